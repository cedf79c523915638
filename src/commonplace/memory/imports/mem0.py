"""Records of mem0 and of OpenMemory: one memory each."""

from __future__ import annotations

from typing import Any

from .incoming import Incoming, Skipped, category_of, take_time

NAME = "mem0"
ABOUT = "what mem0's get_all() answers, as JSON or one memory a line (.json, .jsonl)"
LISTS: dict[str, dict[str, str]] = {"results": {}, "memories": {}}


def recognises(row: dict[str, Any]) -> bool:
    return _text_field(row) is not None


def refusal(row: dict[str, Any]) -> str:
    if row.get("state") == "deleted" or row.get("event") == "DELETE":
        return "deleted where it comes from"
    return "" if row[_text_field(row) or ""].strip() else "empty"


def items(file: str, source: str, row: dict[str, Any], _skipped: list[Skipped]) -> list[Incoming]:
    left = {key: value for key, value in row.items() if value is not None}
    body = left.pop(_text_field(row) or "")
    metadata = left["metadata"] if isinstance(left.get("metadata"), dict) else {}
    categories = left.get("categories")
    if isinstance(categories, list) and all(isinstance(category, str) for category in categories):
        del left["categories"]
    else:
        categories = []
    item = Incoming(
        kind="procedure" if metadata.get("memory_type") == "procedural_memory" else "note",
        body=body,
        tags=tuple(sorted({category.strip() for category in categories} - {""})),
        category=category_of(metadata.get("category"), metadata.get("type")),
        created_at=take_time(left, "created_at"),
        agent=left.pop("agent_id") if isinstance(left.get("agent_id"), str) else None,
        run=left.pop("run_id") if isinstance(left.get("run_id"), str) else None,
        source=f"{file}#{row['id']}" if isinstance(row.get("id"), str) else source,
        metadata=left,
    )
    return [item]


def _text_field(row: dict[str, Any]) -> str | None:
    """The field that holds a memory's text. OpenMemory calls it content, as many other records do: those of OpenMemory
    have a state, too."""
    for name, beside in (("memory", "memory"), ("content", "state")):
        if isinstance(row.get(name), str) and beside in row:
            return name
    return None
