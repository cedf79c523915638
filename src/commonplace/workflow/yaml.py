"""YAML files as plain data, read with suspicion; and a reader that takes such data apart.

A workflow's files may come from anywhere. What they hold becomes text, numbers, booleans, lists and mappings
with text keys, all of which JSON can hold, or the file is refused with its name and the line. No tag is ever
followed, so nothing is executed or imported.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath
from types import MappingProxyType, NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin

from msgspec import NODEFAULT, Struct
from msgspec.structs import fields

from ..errors import BadInput, TooLarge, UnsafePath, shown
from ..folders import Folder
from ..plain_yaml import kind_of, parse_yaml
from .model import Problem

S = TypeVar("S", bound=Struct)
Level = Literal["error", "warning"]
Texts = tuple[str, ...]
_fields_of = cache(fields)
NONE: Mapping[str, Any] = MappingProxyType({})


def read_yaml(path: Path, max_bytes: int = 1_000_000, within: Path | None = None) -> object:
    """What the one document in the file says, or None when there is none. Dates stay text. From the folder `within`, or
    else the one that the file is in, no link is followed.

    Refused, with the file's name and the line: more than `max_bytes`, also once aliases are written out;
    anything that is not UTF-8; tags; keys that are not text or come twice; numbers that JSON cannot hold;
    more than one document; too deep nesting.
    """
    root = within or path.parent
    try:
        fd = Folder(root.resolve()).open(path.relative_to(root).as_posix())
        if fd is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        with open(fd, "rb") as file:
            status = os.fstat(fd)
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise BadInput(
            f"{path.name} cannot be read ({error.strerror}): it belongs into {path.parent}"
        ) from error
    if (size := max(status.st_size, len(data))) > max_bytes:
        raise TooLarge(f"{path.name} has {size:,} bytes; at most {max_bytes:,} are read")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{path.name}, line {line}: not UTF-8; save the file as UTF-8") from error
    return parse_yaml(text, path.name, max_bytes)


@dataclass(slots=True)
class Notes:
    """What is known of a workflow's files while they are read: the documents and what is wrong with them."""

    root: Path
    top: Path | None = None
    """The folder of the outermost workflow, if this one is inside another."""
    documents: dict[str, object] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def escape(self, path: str) -> str | None:
        """Why this path may not stand in a workflow's file, or None when it stays in the workflow's folder and meets no
        link."""
        if not path.isprintable() or "\\" in path or re.match("[/~]|[A-Za-z]:", path):
            return f"{shown(path)} is not a path inside the workflow's folder; write folder/name"
        if ".." in path.split("/") or not path.strip():
            return f"{shown(path)} leaves the workflow's folder; write a path below it, such as folder/name"
        plain = PurePosixPath(path).as_posix()
        try:
            there = None if plain == "." else Folder(self.root.resolve()).stat(plain)
        except UnsafePath:
            return f"{shown(path)} lies behind a link, or a file; put the files themselves there"
        except (OSError, ValueError):
            return f"{shown(path)} cannot be a path; write a shorter or simpler one"
        if there is not None and stat.S_ISLNK(there.st_mode):
            return f"{shown(path)} is a link; put the files themselves there"
        return None


# Other names of a struct's fields, the lowest and the highest of numbers that have limits of their own,
# and other words for the same.
ALIASES: dict[str, dict[str, str]] = {
    "Retry": {
        "retryable": "retryable|retryable_errors|retry_on",
        "base": "base|backoff_base",
        "max": "max|max_delay",
    },
    "Degradation": {"node": "node|id|agent", "action": "action|strategy"},
}
LIMITS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("max_attempts", "max_iterations", "max_parallel", "max_concurrent"), (1, 1e9)),
    **dict.fromkeys(("timeout_per_agent", "timeout_total", "timeout_idle"), (0.001, 1e9)),
    **dict.fromkeys(("per_agent", "total", "idle"), (0.001, 1e9)),
    "max_retries": (0, 99),
    "max_depth": (0, 10),
    "max_size_kb": (1, 1e6),
    **dict.fromkeys(("retention_days", "retention"), (0, 36_500)),
}
SYNONYMS = {"abort": "stop"}
_WANTED: dict[Any, str] = {bool: "true or false", bool | str: "true, false or an expression"}
_WANTED |= {str: "text (in quotes)", dict: "a mapping", list: "a list", tuple: "a list of names"}


class Reader:
    """One mapping of a document. What is taken from it is checked, and noted where it is wrong; then the
    default stands in, so that reading goes on. Names are alternatives: "file|path" takes the first there is.
    With `short`, a value that is no mapping stands for {short: value}.
    """

    def __init__(self, notes: Notes, file: str, path: str, value: object, short: str = "") -> None:
        self.notes, self.file, self.path = notes, file, path
        self.given = value is not None
        self._short = ""
        if short and self.given and not isinstance(value, dict):
            self._short, value = short, {short: value}
        self._left = dict(value) if isinstance(value, dict) else {}
        self._inner: dict[str, Reader | list[Reader]] = {}
        if self.given and not isinstance(value, dict):
            self.tell("", f"write a mapping (name: value) here, not {kind_of(value)}")

    def at(self, name: str) -> str:
        return ".".join(part for part in (self.path, name) if part and part != self._short)

    def tell(self, name: str, message: str, rule: str = "", level: Level = "error") -> None:
        self.notes.problems.append(Problem(level, self.file, self.at(name), rule, message))

    def take(self, names: str) -> tuple[str, Any]:
        """The first of these names that has a value, and that value."""
        options = names.split("|")
        for name in options:
            if (value := self._left.pop(name, None)) is not None:
                return name, value
        return options[0], None

    def peek(self, *names: str) -> Any:
        """What stands at this path, left where it is, or None."""
        value: Any = self._left
        for name in names:
            value = value.get(name) if isinstance(value, dict) else None
        return value

    def look(self, *names: str) -> Reader:
        """A reader of the mapping at this path that leaves everything where it is."""
        value = self.peek(*names)
        value = None if value is True else value or None
        return Reader(self.notes, self.file, self.at(".".join(names)), value)

    def read(self, names: str, kind: Any, default: Any = None, rule: str = "") -> Any:
        """What is there if it is of this type, else the default. One text stands for a list of one. Text of
        a form (pattern, words) has to be there unless there is a default."""
        kind = get_args(kind)[0] if NoneType in get_args(kind) else kind
        if isinstance(kind, type) and issubclass(kind, Struct):
            inner = self.mapping(names)
            return inner.struct(kind) if inner.given else default
        name, value = self.take(names)
        if value is None and (default or not isinstance(kind, tuple)):
            return default
        if kind == Texts and isinstance(value, str | list):
            listed = enumerate([value] if isinstance(value, str) else value)
            return tuple(one for index, one in listed if self._is(f"{name}[{index}]", one, str))
        if get_origin(kind) is Literal and value not in get_args(kind) and isinstance(value, str):
            value = SYNONYMS.get(value, value)
        return value if self._is(name, value, kind, rule) else default

    def _is(self, name: str, value: Any, kind: Any, rule: str = "") -> bool:
        """Whether the value is of this type; what to write instead is told."""
        if get_origin(kind) is Literal:
            right, want = value in get_args(kind), f"one of {', '.join(get_args(kind))}"
        elif isinstance(kind, tuple):
            pattern, want = kind
            right = isinstance(value, str) and re.fullmatch(pattern, value) is not None
        elif kind in (int, float):
            low, high = LIMITS.get(name, (0, 1e9))
            right = isinstance(value, int | kind) and not isinstance(value, bool) and low <= value <= high
            want = f"a {'whole ' if kind is int else ''}number from {low:,} to {high:,.0f}"
        else:
            kind = get_origin(kind) if get_origin(kind) in (dict, tuple) else kind
            right, want = isinstance(value, kind), _WANTED[kind]
        if not right:
            self.tell(name, f"write {want} here, not {kind_of(value)}", rule)
        return right

    def folder(self, names: str, default: str, below: str = "") -> str:
        """A path that stays inside the workflow's folder, or inside the folder `below` in it."""
        name = next((name for name in names.split("|") if self.peek(name) is not None), "")
        path: str = self.read(names, str, default)
        if name and (reason := self.notes.escape(path) or (below and self.notes.escape(f"{below}/{path}"))):
            self.tell(name, reason)
            return default
        return path

    def mapping(self, names: str, short: str = "") -> Reader:
        name, value = self.take(names)
        self._inner[name] = inner = Reader(self.notes, self.file, self.at(name), value, short)
        return inner

    def items(self, names: str, short: str = "") -> list[Reader]:
        """The mappings of a list; with `short`, one item stands for a list of one."""
        name, value = self.take(names)
        listed = [value] if short and isinstance(value, str | dict) else [] if value is None else value
        self._inner[name] = inner = [
            Reader(self.notes, self.file, self.at(f"{name}[{index}]"), {} if item is None else item, short)
            for index, item in enumerate(listed if self._is(name, listed, list) else [])
        ]
        return inner

    def struct(self, kind: type[S], defaults: Mapping[str, Any] = NONE, **given: Any) -> S:
        """A struct of what is given and, for its other fields, of what this mapping says. `defaults` stand in
        for fields that are not written, before the struct's own; the field `kept` is what nobody took."""
        for one in _fields_of(kind):
            if one.name in given or one.name == "kept":
                continue
            names = ALIASES.get(kind.__name__, {}).get(one.name, one.name)
            usual = one.default_factory() if one.default_factory is not NODEFAULT else one.default
            default = defaults.get(one.name, usual)
            if default is NODEFAULT and not any(map(self.peek, names.split("|"))):
                self.tell(one.name, "write it; there is no default")
            given[one.name] = self.read(names, one.type, "" if default is NODEFAULT else default)
        return kind(**given, **({"kept": self.rest()} if "kept" in kind.__struct_fields__ else {}))

    def rest(self) -> dict[str, Any]:
        """What nobody took, here and below, taken now: lists of mappings keep their length."""
        left, self._left = self._left, {}
        for name, inner in self._inner.items():
            below = inner.rest() if isinstance(inner, Reader) else [reader.rest() for reader in inner]
            if any(below):
                left[name] = below
        return left
