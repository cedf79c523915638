"""How values travel between a book behind a server and its client: what a verb answers comes out as the same types.

JSON has no bytes, times, tuples or classes. A value that JSON does not have becomes an object with the key `$`, which
says what it is. An answer may hold the data types of this package, by the module and name of their class, and handles,
by their ids. A request holds plain values only: a server makes no objects that a client describes.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, timedelta
from importlib import import_module
from math import isfinite
from pathlib import PurePath
from typing import Any

import msgspec

from .errors import BadInput, shown
from .ledger.encoding import Blob
from .ledger.scopes import written
from .registry import HANDLES, ids_of
from .threads.verbs import Thread
from .work.holding import Claim

TYPED = "application/vnd.commonplace+json"
"""The media type of values in this form."""
PACKAGE = __name__.partition(".")[0]
MARK = "$"
DEEPEST = 200
OF_DATA = frozenset({
    "access", "admin", "documents", "engines", "finding", "inbox", "index", "learn", "ledger", "memory", "proof",
    "recall", "runs", "state", "threads", "work", "workflow",
})  # fmt: skip
"""The folders and modules of this package that have the types of answers. None of them does anything when it is
imported."""


def outgoing(value: Any) -> Any:
    """A value as JSON can hold it. Raises TypeError for what is no data, such as a function."""
    if value is None or type(value) in (bool, str):
        return value
    if type(value) is int:
        return value if -(2**53) <= value <= 2**53 else {MARK: "int", "hex": f"{value:x}"}
    if type(value) is float:
        return value if isfinite(value) else {MARK: "float", "text": str(value)}
    if type(value) is list or isinstance(value, Iterator):
        return [outgoing(each) for each in value]
    if type(value) is dict or (isinstance(value, Mapping) and not isinstance(value, dict)):
        if all(type(key) is str for key in value) and MARK not in value:
            return {key: outgoing(each) for key, each in value.items()}
        return {MARK: "dict", "pairs": [[outgoing(key), outgoing(each)] for key, each in value.items()]}
    return _marked(value)


def _marked(value: Any) -> dict[str, Any]:
    match value:
        case bytes():
            return {MARK: "bytes", "base64": b64encode(value).decode()}
        case Blob():
            return {MARK: "blob", "base64": b64encode(value.data).decode()}
        case datetime():
            return {MARK: "datetime", "text": value.isoformat()}
        case date():
            return {MARK: "date", "text": value.isoformat()}
        case timedelta():
            return {MARK: "timedelta", "seconds": value.total_seconds()}
        case PurePath():
            return {MARK: "path", "text": str(value)}
        case Claim():
            claim = {"agent": value.agent, "task": outgoing(value.task), "work": value.work.id}
            return {MARK: "handle", "kind": "claim", "ids": claim}
        case Thread():
            scope = value._session.scope
            ids = {"thread": value.name, "scope": written(scope) if scope else None}
            return {MARK: "handle", "kind": "thread", "ids": ids}
    for name, (kind, _) in HANDLES.items():
        if type(value) is kind:
            return {MARK: "handle", "kind": name, "ids": ids_of(value)}
    if type(value) in (tuple, set, frozenset):
        return {MARK: type(value).__name__, "of": [outgoing(each) for each in value]}
    return {MARK: _named(type(value)), **_parts(value)}


def _parts(value: Any) -> dict[str, Any]:
    """What a data type of this package is made of."""
    if isinstance(value, msgspec.Struct):
        return {name: outgoing(getattr(value, name)) for name in value.__struct_fields__}
    if is_dataclass(value):
        return {field.name: outgoing(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: outgoing(each) for name, each in zip(value._fields, value, strict=True)}
    if isinstance(value, str):
        return {"value": str(value), "more": outgoing(dict(vars(value)))}
    if isinstance(value, dict):
        return {"value": outgoing(dict(value)), "more": outgoing(dict(vars(value)))}
    raise TypeError(f"{type(value).__name__} is no data that can travel")


def _named(kind: type) -> str:
    package, _, module = kind.__module__.partition(".")
    if package != PACKAGE:
        raise TypeError(f"{kind.__module__}.{kind.__name__} is no data of {PACKAGE} that can travel")
    return f"{module}:{kind.__name__}"


def incoming(value: Any, handle: Callable[[str, Mapping[str, Any]], Any] | None = None) -> Any:
    """The value that was sent. `handle` makes a handle of its kind and ids; without it only plain values are taken,
    as a server takes them from a client. Raises BadInput."""
    return _Incoming(handle).value(value)


class _Incoming:
    def __init__(self, handle: Callable[[str, Mapping[str, Any]], Any] | None) -> None:
        self._handle = handle

    def value(self, value: Any, depth: int = 0) -> Any:
        if depth > DEEPEST:
            raise BadInput(f"the values are nested more than {DEEPEST} levels deep")
        if isinstance(value, list):
            return [self.value(each, depth + 1) for each in value]
        if not isinstance(value, dict):
            return value
        if MARK not in value:
            return {key: self.value(each, depth + 1) for key, each in value.items()}
        try:
            return self._marked(value[MARK], value, depth + 1)
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError, ImportError) as error:
            raise BadInput(
                f"the value {shown(value.get(MARK))} cannot be read: {type(error).__name__}"
            ) from error

    def _marked(self, mark: Any, value: dict[str, Any], depth: int) -> Any:
        match mark:
            case "int":
                return int(value["hex"], 16)
            case "float":
                return float(value["text"])
            case "dict":
                return {self.value(key, depth): self.value(each, depth) for key, each in value["pairs"]}
            case "bytes":
                return b64decode(value["base64"], validate=True)
            case "blob":
                return Blob(b64decode(value["base64"], validate=True))
            case "datetime":
                return datetime.fromisoformat(value["text"])
            case "date":
                return date.fromisoformat(value["text"])
            case "timedelta":
                return timedelta(seconds=value["seconds"])
            case "path":
                return PurePath(value["text"])
            case "tuple":
                return tuple(self.value(value["of"], depth))
            case "set" | "frozenset":
                return frozenset(self.value(value["of"], depth))
        if self._handle is None:
            raise BadInput(f"a request holds plain values, and {shown(mark)} is none: give its id")
        if mark == "handle":
            ids = {name: self.value(each, depth) for name, each in value["ids"].items()}
            return self._handle(value["kind"], ids)
        parts = {name: self.value(each, depth) for name, each in value.items() if name != MARK}
        return _made(mark, parts)


def _made(mark: str, parts: dict[str, Any]) -> Any:
    """An object of a data type of this package."""
    module, _, name = mark.partition(":")
    if module.partition(".")[0] not in OF_DATA:  # nothing else is imported because a server names it
        raise BadInput(f"{shown(mark)} is no type of data")
    kind = getattr(import_module(f"{PACKAGE}.{module}"), name)
    is_data = isinstance(kind, type) and (
        issubclass(kind, msgspec.Struct | str | dict | tuple) or is_dataclass(kind)
    )
    if not is_data or kind.__module__ != f"{PACKAGE}.{module}":
        raise BadInput(f"{shown(mark)} is no type of data")
    if issubclass(kind, str | dict):
        made = kind.__new__(kind, parts["value"]) if issubclass(kind, str) else kind.__new__(kind)
        if isinstance(made, dict):
            made.update(parts["value"])
        vars(made).update(parts["more"])
        return made
    return kind(**parts)
