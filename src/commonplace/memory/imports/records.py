"""Exports as JSON, one document or one record a line. Each format has a module that says which records are its own and
makes items of them; relations between names, which more than one format has, are read here.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

from msgspec.json import decode
from msgspec.structs import replace

from ...errors import shown
from . import items as own_items
from . import mem0, server_memory
from .incoming import FileRead, Incoming, Skipped, short, unique

SUFFIXES = {".json", ".jsonl", ".ndjson"}
MAX_BYTES = 16_000_000


class Records(Protocol):
    """The records of one format. `LISTS` names the lists of a document that hold them, and what a record there does not
    say of itself. `items` is asked only for rows that are recognised and not refused; the first item may bear a name
    that relations lead to."""

    NAME: str
    ABOUT: str
    LISTS: dict[str, dict[str, str]]

    def recognises(self, row: dict[str, Any], /) -> bool: ...
    def refusal(self, row: dict[str, Any], /) -> str: ...
    def items(
        self, file: str, source: str, row: dict[str, Any], skipped: list[Skipped], /
    ) -> list[Incoming]: ...


FORMATS: tuple[Records, ...] = (own_items, mem0, server_memory)

Row = tuple[str, Any]
"""Where a record stands, and what stands there."""

_LISTS = {"relations": {"type": "relation"}, **mem0.LISTS, **server_memory.LISTS}
_ENDS = (("from", "source"), ("relationType", "relationship"), ("to", "target", "destination"))
_OF_GRAPH = {name for name, *_ in _ENDS}
"""How the reference memory server names the parts of a relation."""
_PLAIN = {"type", *(name for names in _ENDS for name in names)}


def read(name: str, text: str) -> FileRead:
    """Relations are links of the item that bears the name they begin at, or of a note of their own when there is no
    such item. A line that is not JSON, or not a record that is known here, is skipped with its number."""
    if not text.strip():
        return FileRead(name, None, skipped=[Skipped(name, "empty")])
    try:
        format, rows, skipped = _document(name, _parse(text))
        broken = "JSON, but neither memories nor entities and relations"
    except (ValueError, RecursionError) as error:
        format, rows, skipped = None, *_lines(name, text)
        broken = f"not JSON ({error})"
    items: list[Incoming] = []
    named: dict[str, int] = {}  # where the first item of each name is
    relations: list[tuple[Row, tuple[str, ...]]] = []
    kinds: set[str] = set()
    for source, row in rows:
        if isinstance(row, dict) and row.get("type") == "relation":
            kinds.add("relation")
            if ends := _ends(row):
                relations.append(((source, row), ends))
            else:
                skipped.append(Skipped(source, "a relation needs two ends and a type, all of them text"))
            continue
        kind = next((each for each in FORMATS if isinstance(row, dict) and each.recognises(row)), None)
        kinds |= set() if kind is None else {kind.NAME}
        why = (
            f"neither a memory nor an entity nor a relation: {shown(row)}"
            if kind is None
            else kind.refusal(row)
        )
        if kind is None or why:
            skipped.append(Skipped(source, why))
            continue
        first, *more = kind.items(name, source, row, skipped)
        if first.name is not None and named.setdefault(first.name, len(items)) != len(items):
            first = replace(first, name=None)
        items += [first, *more]
    if not kinds and (rows or not format):
        return FileRead(name, None, skipped=[Skipped(name, broken)])
    _link(items, named, relations)
    known = (each.NAME for each in (own_items, mem0) if each.NAME in kinds)
    format = next(known, format or server_memory.NAME)
    return FileRead(name, format, items, skipped)


def _link(items: list[Incoming], named: dict[str, int], relations: list[tuple[Row, tuple[str, ...]]]) -> None:
    """Give each item the relations that begin at its name. One that leads to itself, or has an end that is no item
    of its own, stays beside the links as it was written: a link cannot hold it."""
    entities = {*named}
    beginning: dict[str, list[tuple[Row, tuple[str, ...]]]] = {}
    for row, ends in relations:
        beginning.setdefault(ends[0], []).append((row, ends))
    for begin, all_of_it in beginning.items():
        links = unique((relation, end) for _, (_, relation, end) in all_of_it)
        if begin not in named:
            named[begin] = len(items)
            body = "\n".join(f"{begin} {relation} {end}" for relation, end in links)
            items.append(Incoming("note", body, title=short(begin), name=begin, source=all_of_it[0][0][0]))
        item = items[named[begin]]
        more = [
            row
            for (_, row), (_, _, end) in all_of_it
            if row.keys() - _PLAIN or ({*row} >= _OF_GRAPH and (end == begin or not {begin, end} <= entities))
        ]
        metadata = {**item.metadata, "relations": more} if more else item.metadata
        items[named[begin]] = replace(item, links=links, metadata=metadata)


def _ends(row: dict[str, Any]) -> tuple[str, ...]:
    """Where a relation begins, what it is, and where it ends; nothing when one of them is not there."""
    ends = [next((row[name] for name in names if name in row), "") for names in _ENDS]
    return tuple(ends) if all(isinstance(end, str) and end.strip() for end in ends) else ()


def _parse(text: str) -> Any:
    """Read twice: the one notices a key that comes twice, the other what no store of ours could hold."""
    json.loads(text, object_pairs_hook=_no_key_twice)
    return decode(text)


def _no_key_twice(pairs: list[tuple[str, Any]]) -> None:
    keys = set()
    for key, _ in pairs:
        if key in keys:
            raise ValueError(f"the key {shown(key)} comes twice")
        keys.add(key)


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
    """The format that a document's lists speak of, its rows, and what stands beside them, except numbers, which count
    the rows."""
    if isinstance(whole, list):
        return None, [(f"{name}#{at}", row) for at, row in enumerate(whole)], []
    if not isinstance(whole, dict) or not any(isinstance(whole.get(key), list) for key in _LISTS):
        return None, [(name, whole)], []
    rows: list[Row] = []
    skipped = []
    for key, value in whole.items():
        if key in _LISTS and isinstance(value, list):
            for at, row in enumerate(value):
                rows.append((f"{name}#{key}[{at}]", {**row, **_LISTS[key]} if isinstance(row, dict) else row))
        elif key == "next" and value:
            skipped.append(Skipped(f"{name}#next", "there are further pages, which this file does not hold"))
        elif value and not isinstance(value, int | float):
            skipped.append(Skipped(f"{name}#{key}", "stands beside the memories and is none of them"))
    return mem0.NAME if mem0.LISTS.keys() & whole else server_memory.NAME, rows, skipped
