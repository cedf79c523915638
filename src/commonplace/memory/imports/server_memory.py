"""Records of MCP's reference memory server: entities with observations. A note is made of each observation, or one that
says what the entity is."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ...errors import shown
from .incoming import Incoming, Skipped, short, take_time

NAME = "server-memory"
ABOUT = "the file of MCP's memory server, or its read_graph answer (.jsonl, .json)"
LISTS = {"entities": {"type": "entity"}}


def recognises(row: dict[str, Any]) -> bool:
    return row.get("type") == "entity"


def refusal(row: dict[str, Any]) -> str:
    return "" if isinstance(row.get("name"), str) and row["name"].strip() else "an entity without a name"


def items(_file: str, source: str, row: dict[str, Any], skipped: list[Skipped]) -> list[Incoming]:
    name, kind, observations = row["name"], row.get("entityType"), row.get("observations") or []
    left = {key: value for key, value in row.items() if key not in ("type", "name", "observations")}
    tags = (short(kind.strip()),) if isinstance(kind, str) and kind.strip() else ()
    bodies = []
    for number, text in enumerate(observations if isinstance(observations, list) else [observations], 1):
        if isinstance(text, str) and text.strip():
            bodies.append(text)
        else:
            skipped.append(
                Skipped(source, f"observation {number} of {shown(name)} is no text: {shown(text)}")
            )
    time = take_time(left, "createdAt", "created_at")
    notes = [
        Incoming("note", body, title=short(name), tags=tags, created_at=time, source=source)
        for body in bodies or [f"{name} ({kind})" if tags else name]
    ]
    return [replace(notes[0], name=name, metadata=left), *notes[1:]]
