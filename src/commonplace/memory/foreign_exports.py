"""What other memories export as JSON: mem0 (and OpenMemory), and MCP's reference memory server (server-memory).

Both hold relations beside their records, so one reader takes all three kinds of rows: memories, entities with
observations, and relations.
"""

from __future__ import annotations

import json
from typing import Any

from msgspec.json import decode
from msgspec.structs import replace

from ..errors import shown
from .foreign_items import Incoming, Skipped, category_of, short, taken_time

Row = tuple[str, Any]
"""Where a record stands, and what stands there."""

_LISTS = {"entities": "entity", "relations": "relation", "results": "memory", "memories": "memory"}
_ENDS = (("from", "source"), ("relationType", "relationship"), ("to", "target", "destination"))
_PLAIN = {"type", *(name for names in _ENDS for name in names)}


def read_export(name: str, text: str) -> tuple[str | None, list[Incoming], list[Skipped]]:
    """Read one file, a JSON document or one a line: the format's name, or None when none fits, and what is in it.

    Each memory is a note, and so is each observation of an entity. Relations are links of the entity's first
    note, or of a note of their own when the export holds no such entity. A line that is not JSON, or not a
    record that is known here, is skipped with its number; the others are read.
    """
    if not text.strip():
        return None, [], [Skipped(name, "empty")]
    try:
        format, rows, skipped = _document(name, _parse(text))
        broken = "JSON, but neither memories nor entities and relations"
    except (ValueError, RecursionError) as error:
        format, rows, skipped = None, *_lines(name, text)
        broken = f"not JSON ({error})"
    found: list[Incoming] = []
    kinds: set[str] = set()
    first: dict[str, int] = {}  # of each entity: where its first note is
    related: dict[str, list[tuple[Row, tuple[str, str]]]] = {}
    for source, row in rows:
        kind, why = _judged(row)
        kinds |= {kind} - {""}
        if why:
            skipped.append(Skipped(source, why))
        elif kind == "relation":
            begin, relation, end = _ends(row)
            related.setdefault(begin, []).append(((source, row), (relation, end)))
        elif kind == "entity":
            notes = _observed(source, row, skipped)
            if row["name"] not in first:
                first[row["name"]] = len(found)
                notes[0] = replace(notes[0], name=row["name"])
            found += notes
        else:
            found.append(_memory(name, source, row))
    for begin, told in related.items():
        links = tuple(dict.fromkeys(link for _, link in told))
        if begin not in first:
            first[begin] = len(found)
            body = "\n".join(f"{begin} {relation} {end}" for relation, end in links)
            found.append(Incoming("note", body, title=short(begin), name=begin, source=told[0][0][0]))
        note = found[first[begin]]
        more = [row for (_, row), _ in told if row.keys() - _PLAIN]
        metadata = {**note.metadata, "relations": more} if more else note.metadata
        found[first[begin]] = replace(note, links=links, metadata=metadata)
    if kinds:
        format = "mem0" if "memory" in kinds else format or "server-memory"
    elif rows or not format:
        return None, [], [Skipped(name, broken)]
    return format, found, skipped


def _parse(text: str) -> Any:
    """Read twice: the one notices a key that comes twice, the other what no store of ours could hold."""
    json.loads(text, object_pairs_hook=_unique)
    return decode(text)


def _unique(pairs: list[tuple[str, Any]]) -> None:
    seen = set()
    for key, _ in pairs:
        if key in seen:
            raise ValueError(f"the key {shown(key)} comes twice")
        seen.add(key)


def _lines(name: str, text: str) -> tuple[list[Row], list[Skipped]]:
    rows: list[Row] = []
    skipped = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                rows.append((f"{name}:{number}", _parse(line)))
            except (ValueError, RecursionError) as error:
                skipped.append(Skipped(f"{name}:{number}", f"not JSON ({error}): {shown(line.strip())}"))
    return rows, skipped


def _document(name: str, whole: Any) -> tuple[str | None, list[Row], list[Skipped]]:
    """The format that a document's fields speak of, its rows, and what stands beside them, but for numbers:
    they count the rows."""
    if isinstance(whole, list):
        return None, [(f"{name}#{at}", row) for at, row in enumerate(whole)], []
    if not isinstance(whole, dict) or not any(isinstance(whole.get(key), list) for key in _LISTS):
        return None, [(name, whole)], []
    rows: list[Row] = []
    skipped = []
    for key, value in whole.items():
        if key in _LISTS and isinstance(value, list):
            kind = {} if _LISTS[key] == "memory" else {"type": _LISTS[key]}
            for at, row in enumerate(value):
                rows.append((f"{name}#{key}[{at}]", {**row, **kind} if isinstance(row, dict) else row))
        elif key == "next" and value:
            skipped.append(Skipped(f"{name}#next", "there are further pages, which this file does not hold"))
        elif value and not isinstance(value, int | float):
            skipped.append(Skipped(f"{name}#{key}", "stands beside the memories and is none of them"))
    return "mem0" if "results" in whole or "memories" in whole else "server-memory", rows, skipped


def _judged(row: Any) -> tuple[str, str]:
    """What kind of record a row is, and why it cannot be taken, if so. The kind is "" for one of no known kind."""
    if isinstance(row, dict):
        if row.get("type") == "relation":
            return "relation", "" if _ends(row) else "a relation needs two ends and a type, all of them text"
        if row.get("type") == "entity":
            named = isinstance(row.get("name"), str) and row["name"].strip()
            return "entity", "" if named else "an entity without a name"
        if said := _said(row):
            gone = row.get("state") == "deleted" or row.get("event") == "DELETE"
            return "memory", "deleted where it comes from" if gone else "" if row[said].strip() else "empty"
    return "", f"neither a memory nor an entity nor a relation: {shown(row)}"


def _memory(name: str, source: str, row: dict[str, Any]) -> Incoming:
    left = {key: value for key, value in row.items() if value is not None}
    body = left.pop(_said(row) or "memory")
    inner = left["metadata"] if isinstance(left.get("metadata"), dict) else {}
    categories = left.get("categories")
    if isinstance(categories, list) and all(isinstance(one, str) for one in categories):
        del left["categories"]
    else:
        categories = []
    return Incoming(
        kind="procedure" if inner.get("memory_type") == "procedural_memory" else "note",
        body=body,
        tags=tuple(sorted({one.strip() for one in categories} - {""})),
        category=category_of(inner.get("category"), inner.get("type")),
        created_at=taken_time(left, "created_at"),
        agent=left.pop("agent_id") if isinstance(left.get("agent_id"), str) else None,
        run=left.pop("run_id") if isinstance(left.get("run_id"), str) else None,
        source=f"{name}#{row['id']}" if isinstance(row.get("id"), str) else source,
        metadata=left,
    )


def _observed(source: str, row: dict[str, Any], skipped: list[Skipped]) -> list[Incoming]:
    """The notes of an entity: one for each observation, or one that says what it is."""
    name, kind, observed = row["name"], row.get("entityType"), row.get("observations") or []
    left = {key: value for key, value in row.items() if key not in ("type", "name", "observations")}
    tags = (short(kind.strip()),) if isinstance(kind, str) and kind.strip() else ()
    bodies = []
    for at, one in enumerate(observed if isinstance(observed, list) else [observed]):
        if isinstance(one, str) and one.strip():
            bodies.append(one)
        else:
            skipped.append(Skipped(source, f"observation {at + 1} of {shown(name)} is no text: {shown(one)}"))
    time = taken_time(left, "createdAt", "created_at")
    notes = [
        Incoming("note", body, title=short(name), tags=tags, created_at=time, source=source)
        for body in bodies or [f"{name} ({kind})" if tags else name]
    ]
    return [replace(notes[0], metadata=left), *notes[1:]]


def _ends(row: dict[str, Any]) -> tuple[str, ...]:
    """Where a relation begins, what it is, and where it ends; nothing when one of them is not there."""
    ends = [next((row[name] for name in names if name in row), "") for names in _ENDS]
    return tuple(ends) if all(isinstance(one, str) and one.strip() for one in ends) else ()


def _said(row: dict[str, Any]) -> str | None:
    """The field that holds a memory's text: OpenMemory calls it content, and so does many another record."""
    for name, besides in (("memory", "memory"), ("content", "state")):
        if isinstance(row.get(name), str) and besides in row:
            return name
    return None
