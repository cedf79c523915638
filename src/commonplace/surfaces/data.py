"""Answers as plain data, as JSON has it: the same for the command line, for MCP and for HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import msgspec

from ..ledger.checks import iso


def plain(data: Any) -> Any:
    """What a book answers with, as JSON has it: every field is named, and times are ISO times."""
    if hasattr(data, "as_dict"):
        return data.as_dict()
    if isinstance(data, msgspec.Struct):
        return {
            name if stamp == name else "at" if stamp == "at" else f"{stamp}_at": _told(value, stamp != name)
            for name in data.__struct_fields__
            for stamp, value in [(name.removesuffix("_us"), getattr(data, name))]
        }
    if isinstance(data, dict):
        return {name: plain(value) for name, value in data.items()}
    if is_dataclass(data) and not isinstance(data, type):
        return {field.name: plain(getattr(data, field.name)) for field in fields(data)}
    return [plain(one) for one in data] if isinstance(data, list | tuple | set | frozenset) else data


def _told(value: Any, is_time: bool) -> Any:
    return iso(value) if is_time and value is not None else plain(value)


def data_of(answer: Any) -> Any:
    """An answer as plain data. An iterator is read to its end; a handle is the ids that it is opened by."""
    if isinstance(answer, list | tuple | Iterator):
        return [data_of(each) for each in answer]
    name = type(answer).__name__
    if name in MORE:
        return {**plain(answer), **{part: plain(getattr(answer, part)) for part in MORE[name]}}
    return FORMS[name](answer) if name in FORMS else plain(answer)


def _handle(handle: Any) -> dict[str, Any]:
    from ..registry import ids_of

    return ids_of(handle)


def _claim(claim: Any) -> dict[str, Any]:
    return {"task": plain(claim.task), "token": claim.token, "agent": claim.agent}


def _prompt(prompt: Any) -> dict[str, Any]:
    names = ("receipt_id", "omitted", "left_out")
    return {"text": str(prompt), **{name: plain(getattr(prompt, name)) for name in names}}


def _items(items: Any) -> dict[str, Any]:
    return {"items": data_of(items.items), "left_out": plain(items.left_out), "cursor": items.cursor}


def _migrated(migrated: Any) -> dict[str, Any]:
    rows = [{**plain(each), "alike": each.alike} for each in migrated.compared]
    return {**plain(migrated), "alike": migrated.alike, "compared": rows}


def _purged(report: Any) -> dict[str, Any]:
    files = [{"path": file.path, "outcome": file.outcome, "why": file.remains} for file in report.files]
    return {**plain(report), "purged": report.purged, "files": files}


def _found(found: Any) -> dict[str, Any]:
    kept = {name: value for name, value in plain(found).items() if name not in ("samples", "scopes")}
    return {**kept, "counts": found.counts}


def _rights(rights: Any) -> dict[str, Any]:
    """Keys of scopes say nothing to anybody."""
    data = plain(rights)
    return {**data, "scopes": data.pop("granted")}


MORE: Mapping[str, tuple[str, ...]] = {"ImportReport": ("counts",), "Item": ("text",)}
"""What the data of an answer has besides its fields."""

FORMS: Mapping[str, Callable[[Any], Any]] = {
    "Claim": _claim,
    "Found": _found,
    "ItemList": _items,
    "LinkStep": lambda step: {**plain(step), "item": data_of(step.item)},
    "Messages": msgspec.to_builtins,  # a message's own as_dict is for an API, and has its shape alone
    "Migrated": _migrated,
    "Prompt": _prompt,
    "PurgeReport": _purged,
    "Recollection": lambda recollection: {
        **plain(recollection),
        "events": [event.id for event in recollection.events],
    },
    "Rights": _rights,
    "Lead": _handle,
    "Run": _handle,
    "TaskHandle": _handle,
    "Thread": _handle,
    "ThreadContext": msgspec.to_builtins,
    "Turn": _handle,
    "Work": _handle,
}
"""The types of answers whose data has another shape than their fields."""
