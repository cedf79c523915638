"""Items that `memory.export` has written: one item each, as it stood."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ...ledger.checks import from_us, iso
from ...ledger.encoding import convert
from ..items import SHAPES
from .incoming import Incoming, Skipped

NAME = "commonplace"
ABOUT = "what `memory.export` writes, one item a line (.json, .jsonl)"
LISTS: dict[str, dict[str, str]] = {}

Time = Annotated[int, Meta(ge=-62_135_596_800_000_000, le=253_402_300_799_999_999)]
"""Microseconds since 1970, within the years 1 to 9999."""


class ExportedItem(msgspec.Struct, frozen=True):
    """The fields of an exported item that are taken in."""

    id: str
    kind: str
    agent: str
    recorded_us: Time
    status: str = "live"
    title: str | None = None
    body: str = ""
    summary: str = ""
    key: str | None = None
    value: Any = None
    tags: tuple[str, ...] = ()
    category: str | None = None
    citations: tuple[str, ...] = ()
    reason: str | None = None
    confidence: float | None = None
    sensitivity: str | None = None
    pinned: bool | None = None
    metadata: dict[str, Any] = {}
    run: str | None = None
    occurred_us: Time | None = None
    valid_from_us: Time | None = None
    valid_until_us: Time | None = None


def recognises(row: dict[str, Any]) -> bool:
    kind = row.get("kind")
    return (
        isinstance(kind, str) and kind in SHAPES and {"id", "agent", "position", "recorded_us"} <= row.keys()
    )


def refusal(row: dict[str, Any]) -> str:
    try:
        item = convert(row, ExportedItem)
    except msgspec.ValidationError as error:
        return f"no item as `memory.export` writes it: {error}"
    return "" if item.status == "live" else f"it is {item.status}"


def items(file: str, _source: str, row: dict[str, Any], _skipped: list[Skipped]) -> list[Incoming]:
    item = convert(row, ExportedItem)
    times = {"valid_from": item.valid_from_us, "valid_until": item.valid_until_us}
    fields = {
        **{
            name: getattr(item, name)
            for name in ("citations", "reason", "confidence", "sensitivity", "pinned")
        },
        **{name: from_us(us) for name, us in times.items() if us is not None},
        "metadata": item.metadata,
    }
    incoming = Incoming(
        kind=item.kind,
        body=item.body or item.summary,
        title=item.title,
        key=item.key,
        value=item.value,
        tags=item.tags,
        category=item.category,
        occurred_at=None if item.occurred_us is None else iso(item.occurred_us),
        created_at=iso(item.recorded_us),
        agent=item.agent,
        run=item.run,
        source=f"{file}#{item.id}",
        fields={name: value for name, value in fields.items() if value},
    )
    return [incoming]
