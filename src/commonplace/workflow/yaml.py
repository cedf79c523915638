"""YAML files as plain data, read with suspicion; and a reader that takes such data apart.

A workflow's files may come from anywhere. What they hold becomes text, numbers, booleans, lists and mappings
with text keys, all of which JSON can hold, or the file is refused with its name and the line. No tag is ever
followed, so nothing is executed or imported.
"""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NoReturn, TypeVar, get_args, get_origin

import yaml
from msgspec import NODEFAULT, Struct
from msgspec.structs import fields

from ..errors import BadInput, TooLarge, shown
from .model import Problem

MAX_DEPTH = 64
MAX_ALIASES = 100
MAX_NODES = 100_000

_FAST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SCALAR: Any = yaml.ScalarNode
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_LONGEST_NUMBER = 64
_INTEGERS = range(-(2**63), 2**64)  # what every store and every JSON library can carry
_OTHERS: dict[str, Callable[[str], object]] = {
    "tag:yaml.org,2002:null": lambda _: None,
    "tag:yaml.org,2002:bool": lambda value: yaml.SafeLoader.bool_values[value.lower()],
}

D = TypeVar("D")
S = TypeVar("S", bound=Struct)
NONE: Mapping[str, str] = MappingProxyType({})
LOWEST: dict[str, float] = {"max_attempts": 1, "max_iterations": 1, "max_parallel": 1, "max_concurrent": 1}
LOWEST |= {"timeout_per_agent": 0.001, "timeout_total": 0.001, "timeout_idle": 0.001}


def read_yaml(path: Path, max_bytes: int = 1_000_000) -> object:
    """What the one document in the file says, or None when there is none. Dates stay text.

    Refused, with the file's name and the line: more than `max_bytes`, also once aliases are written out;
    anything that is not UTF-8; tags; keys that are not text or come twice; numbers that JSON cannot hold;
    more than one document; too deep nesting.
    """
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise BadInput(f"{path.name} is not a file: put the document there")
            if status.st_size > max_bytes:
                raise TooLarge(f"{path.name} has {status.st_size:,} bytes; at most {max_bytes:,} are read")
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise BadInput(f"{path.name} cannot be read: {error.strerror}") from error
    if len(data) > max_bytes:
        raise TooLarge(f"{path.name} grew while it was read; at most {max_bytes:,} bytes are read")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{path.name}, line {line}: not UTF-8; save the file as UTF-8") from error
    return _Builder(path.name, text, max_bytes).document()


def _without_waiting(path: str, flags: int) -> int:
    """A pipe in the place of the file must not hold the reader up until someone writes to it."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


class _Builder:
    """Plain values from the parser's events, so that every limit holds before anything is built."""

    def __init__(self, name: str, text: str, max_characters: int) -> None:
        self._name = name
        self._text = text
        self._max_characters = max_characters
        self._nodes = self._characters = self._aliases = 0
        self._anchors: dict[str, tuple[object, int, int, int]] = {}  # value, height, nodes, characters
        try:
            self._loader = _FAST(text)
        except yaml.YAMLError as error:
            self._refuse_syntax(error)

    def document(self) -> object:
        try:
            self._loader.get_event()
            if isinstance(self._loader.get_event(), yaml.StreamEndEvent):
                return None
            value, _ = self._value(self._loader.get_event(), 0)
            self._loader.get_event()
            after = self._loader.get_event()
        except yaml.YAMLError as error:
            self._refuse_syntax(error)
        finally:
            self._loader.dispose()
        if not isinstance(after, yaml.StreamEndEvent):
            self._refuse(after, "a second document begins here; keep one document in the file")
        return value

    def _value(self, event: Any, depth: int) -> tuple[object, int]:
        """The value that begins with this event, and how deep it nests."""
        if depth > MAX_DEPTH:
            self._refuse(event, f"nested deeper than {MAX_DEPTH} levels; write it flatter")
        if isinstance(event, yaml.AliasEvent):
            return self._aliased(event, depth)
        if event.tag is not None:
            self._refuse(event, f"the tag {shown(event.tag)} is not followed; leave it out")
        before = self._nodes, self._characters
        self._count(event, 1, 0)
        value: object
        if isinstance(event, yaml.ScalarEvent):
            self._count(event, 0, len(event.value))
            value, height = self._scalar(event), 0
        elif isinstance(event, yaml.SequenceStartEvent):
            value, height = self._list(depth)
        else:
            value, height = self._mapping(depth)
        if event.anchor is not None:
            size = self._nodes - before[0], self._characters - before[1]
            self._anchors[event.anchor] = value, height, *size
        return value, height

    def _list(self, depth: int) -> tuple[list[object], int]:
        values, deepest = [], 0
        while not isinstance(event := self._loader.get_event(), yaml.SequenceEndEvent):
            value, height = self._value(event, depth + 1)
            values.append(value)
            deepest = max(deepest, height)
        return values, deepest + 1

    def _mapping(self, depth: int) -> tuple[dict[str, object], int]:
        values: dict[str, object] = {}
        merged: dict[str, object] = {}
        deepest = 0
        while not isinstance(event := self._loader.get_event(), yaml.MappingEndEvent):
            merging = isinstance(event, yaml.ScalarEvent) and event.value == "<<" and event.implicit[0]
            key, _ = self._value(event, depth + 1)
            if not isinstance(key, str):
                self._refuse(event, f"a key must be text, not {kind_of(key)}; write it in quotes")
            if key in values or (merging and merged):
                self._refuse(event, f"the key {shown(key)} comes twice; keep one of them")
            value, height = self._value(self._loader.get_event(), depth + 1)
            deepest = max(deepest, height)
            if merging:
                merged = self._merged(event, value)
            else:
                values[key] = value
        return {**merged, **values}, deepest + 1

    def _merged(self, event: Any, value: object) -> dict[str, object]:
        merged: dict[str, object] = {}
        for part in value if isinstance(value, list) else [value]:
            if not isinstance(part, dict):
                self._refuse(event, "<< takes mappings only; write the keys out")
            merged = {**part, **merged}
        return merged

    def _aliased(self, event: Any, depth: int) -> tuple[object, int]:
        self._aliases += 1
        if self._aliases > MAX_ALIASES:
            self._refuse(event, f"more than {MAX_ALIASES} aliases; write the values out")
        found = self._anchors.get(event.anchor)
        if found is None:
            self._refuse(event, f"the alias *{event.anchor} stands inside its own anchor, or has none")
        value, height, nodes, characters = found
        self._count(event, nodes, characters)
        if depth + height > MAX_DEPTH:
            self._refuse(event, f"nested deeper than {MAX_DEPTH} levels; write it flatter")
        return value, height

    def _scalar(self, event: Any) -> object:
        text: str = event.value
        tag = self._loader.resolve(_SCALAR, text, event.implicit)
        if tag in _NUMBERS and ":" not in text:  # 12:30 is a time to most, and 750 to YAML 1.1
            return self._number(event, tag)
        if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
            self._refuse(event, "half of a character (a lone surrogate); write the whole character")
        return _OTHERS[tag](text) if tag in _OTHERS else text  # dates, merges and the rest are text

    def _number(self, event: Any, tag: str) -> int | float:
        make = self._loader.construct_yaml_int if tag == _NUMBERS[0] else self._loader.construct_yaml_float
        number: int | float = math.nan
        if len(event.value) <= _LONGEST_NUMBER:
            try:
                number = make(_SCALAR(tag, event.value))
            except (ValueError, OverflowError):
                pass
        if not math.isfinite(number) or (isinstance(number, int) and number not in _INTEGERS):
            self._refuse(
                event, f"{shown(event.value)} is a number that JSON cannot hold; write it in quotes, as text"
            )
        return number

    def _count(self, event: Any, nodes: int, characters: int) -> None:
        self._nodes += nodes
        self._characters += characters
        if self._nodes > MAX_NODES or self._characters > self._max_characters:
            raise TooLarge(
                f"{self._name}, line {event.start_mark.line + 1}: with its aliases written out, the file has "
                f"more than {MAX_NODES:,} values or {self._max_characters:,} characters; write less"
            )

    def _refuse(self, event: Any, message: str) -> NoReturn:
        raise BadInput(f"{self._name}, line {event.start_mark.line + 1}: {message}")

    def _refuse_syntax(self, error: yaml.YAMLError) -> NoReturn:
        mark = getattr(error, "problem_mark", None)
        before = self._text.encode()[: getattr(error, "position", 0)]
        line = (mark.line if mark else before.count(b"\n")) + 1
        reason = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be parsed"
        raise BadInput(f"{self._name}, line {line}: not YAML: {reason}") from error


def kind_of(value: object) -> str:
    """What was found, as a sentence can say it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return {dict: "a mapping", list: "a list", type(None): "nothing"}.get(type(value)) or shown(value)


@dataclass(slots=True)
class Notes:
    """What is known of a workflow's files while they are read: the documents and what is wrong with them."""

    root: Path
    documents: dict[str, object] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def add(self, level: Literal["error", "warning"], file: str, path: str, rule: str, message: str) -> None:
        self.problems.append(Problem(level, file, path, rule, message))

    def escape(self, path: str) -> str | None:
        """Why this path may not stand in a workflow's file, or None when it stays in the workflow's folder."""
        parts = path.split("/")
        if (
            not path.isprintable()
            or "\\" in path
            or path.startswith(("/", "~"))
            or re.match("[A-Za-z]:", path)
        ):
            return f"{shown(path)} is not a path inside the workflow's folder; write folder/name"
        if ".." in parts or not path.strip():
            return f"{shown(path)} leaves the workflow's folder; write a path below it, such as folder/name"
        try:
            root, target = os.path.realpath(self.root), os.path.realpath(self.root / path)
        except (OSError, ValueError):
            return f"{shown(path)} cannot be a path; write a shorter or simpler one"
        if not Path(target).is_relative_to(root):
            return f"{shown(path)} is a link that leaves the workflow's folder; put the files inside"
        return None


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
            self.error("", f"write a mapping (name: value) here, not {kind_of(value)}")

    def at(self, name: str) -> str:
        return ".".join(part for part in (self.path, name) if part and part != self._short)

    def error(self, name: str, message: str, rule: str = "") -> None:
        self.notes.add("error", self.file, self.at(name), rule, message)

    def warn(self, name: str, message: str, rule: str = "") -> None:
        self.notes.add("warning", self.file, self.at(name), rule, message)

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
        return Reader(
            self.notes, self.file, self.at(".".join(names)), None if value is True else value or None
        )

    def names(self) -> list[str]:
        return list(self._left)

    def value(self, names: str, kind: type[D], want: str, default: D, rule: str = "") -> D:
        name, value = self.take(names)
        if value is None:
            return default
        if not isinstance(value, kind):
            self.error(name, f"write {want} here, not {kind_of(value)}", rule)
            return default
        return value

    def text(self, names: str, default: str = "", among: Sequence[str] = (), rule: str = "") -> str:
        name, value = self.take(names)
        if value is None:
            return default
        if not isinstance(value, str):
            self.error(name, f"write text here (in quotes), not {kind_of(value)}", rule)
        elif among and value not in among:
            self.error(name, f"{shown(value)} is not known here; write one of {', '.join(among)}", rule)
        else:
            return value
        return default

    def matching(self, names: str, pattern: re.Pattern[str], rule: str, want: str, default: str = "") -> str:
        """Text of this form; without a default it has to be there."""
        name, value = self.take(names)
        if value is None and default:
            return default
        if not isinstance(value, str) or not pattern.fullmatch(value):
            self.error(name, f"write {want}" + ("" if value is None else f", not {kind_of(value)}"), rule)
            return default
        return value

    def flag(self, names: str, default: bool) -> bool:
        return self.value(names, bool, "true or false", default)

    def number(
        self, names: str, default: Any, low: float = 0, high: float = 1e9, whole: bool = False, rule: str = ""
    ) -> Any:
        name, value = self.take(names)
        if value is None:
            return default
        right = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if not right or not low <= value <= high:
            want = f"a {'whole ' if whole else ''}number from {low:,} to {high:,.0f}"
            self.error(name, f"write {want} here, not {kind_of(value)}", rule)
            return default
        return value

    def texts(self, names: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """A list of texts; one text stands for a list of one."""
        name, value = self.take(names)
        if value is None:
            return default
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list):
            self.error(name, f"write a list of names here, not {kind_of(value)}")
            return default
        for index, item in enumerate(listed):
            if not isinstance(item, str):
                self.error(f"{name}[{index}]", f"write text here (in quotes), not {kind_of(item)}")
        return tuple(item for item in listed if isinstance(item, str))

    def folder(self, names: str, default: str, below: str = "") -> str:
        """A path that stays inside the workflow's folder, or inside the folder `below` in it."""
        name = next((name for name in names.split("|") if self.peek(name) is not None), "")
        path = self.text(names, default)
        if name and (reason := self.notes.escape(path) or (below and self.notes.escape(f"{below}/{path}"))):
            self.error(name, reason)
            return default
        return path

    def mapping(self, names: str, short: str = "") -> Reader:
        name, value = self.take(names)
        reader = Reader(self.notes, self.file, self.at(name), value, short)
        self._inner[name] = reader
        return reader

    def items(self, names: str, short: str = "") -> list[Reader]:
        """The mappings of a list; with `short`, one item stands for a list of one."""
        name, value = self.take(names)
        listed = [value] if short and isinstance(value, str | dict) else [] if value is None else value
        if not isinstance(listed, list):
            self.error(name, f"write a list here, not {kind_of(value)}")
            listed = []
        readers = [
            Reader(self.notes, self.file, self.at(f"{name}[{index}]"), {} if item is None else item, short)
            for index, item in enumerate(listed)
        ]
        self._inner[name] = readers
        return readers

    def struct(self, kind: type[S], names: Mapping[str, str] = NONE, **defaults: Any) -> S:
        """A struct from the fields of this mapping, each checked by its type. `names` has the alternatives
        of a field's name, and `defaults` what stands in for a field in place of the struct's own default."""
        values = dict(defaults)
        for one in fields(kind):
            name, default = names.get(one.name, one.name), defaults.get(one.name, one.default)
            if one.required and one.name not in defaults and not any(map(self.peek, name.split("|"))):
                self.error(one.name, "write it; there is no default")
            read = _READ.get(Literal if get_origin(one.type) is Literal else one.type)
            if read is not None:
                values[one.name] = read(self, name, "" if default is NODEFAULT else default, one.type)
        return kind(**values)

    def rest(self) -> dict[str, Any]:
        """What nobody took, here and below, taken now: lists of mappings keep their length."""
        left, self._left = self._left, {}
        for name, inner in self._inner.items():
            below = inner.rest() if isinstance(inner, Reader) else [reader.rest() for reader in inner]
            if any(below):
                left[name] = below
        return left


# How a struct's field is read, by its type; fields of other types are the caller's to give.
_READ: dict[Any, Callable[[Reader, str, Any, Any], Any]] = {
    bool: lambda r, name, default, _: r.flag(name, default),
    int: lambda r, name, default, _: r.number(name, default, LOWEST.get(name, 0), whole=True),
    float: lambda r, name, default, _: r.number(name, default, LOWEST.get(name, 0)),
    str: lambda r, name, default, _: r.text(name, default),
    tuple[str, ...]: lambda r, name, default, _: r.texts(name, default),
    Literal: lambda r, name, default, kind: r.text(name, default, among=get_args(kind)),
}
