"""YAML as plain data, read with suspicion.

A file may come from anywhere. What it holds becomes text, numbers, booleans, lists and mappings with text keys, all of
which JSON can hold, or it is refused with its name and the line. No tag is ever followed, so nothing is executed or
imported; every limit is checked before a value is built.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import NoneType
from typing import Any, NoReturn

import yaml

from ..errors import BadInput, TooLarge, shown

MAX_DEPTH = 64
MAX_ALIASES = 100
MAX_NODES = 100_000

_FAST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SAFE: Any = yaml.SafeLoader("")
_SCALAR: Any = yaml.ScalarNode
_CONSTRUCTORS = {
    f"tag:yaml.org,2002:{kind}": f"construct_yaml_{kind}" for kind in ("null", "bool", "int", "float")
}
_LONGEST_NUMBER = 64
_INTEGERS = range(-(2**63), 2**64)  # what every store and every JSON library can carry


def parse_yaml(text: str, name: str, max_characters: int = 1_000_000, typed: bool = True) -> object:
    """What the one document in the text says, or None when there is none. Dates stay text; unless `typed`, so do
    numbers and booleans. `name` says in errors where the text comes from.

    Refused, with the line: tags; keys that are not text or come twice; numbers that JSON cannot hold; more than one
    document; too deep nesting; more characters than `max_characters`, also once aliases are written out.
    """
    if len(text) > max_characters:
        raise TooLarge(f"{name} of {len(text):,} characters; at most {max_characters:,} are read")
    return _Builder(text, name, max_characters, typed).document()


class _Builder:
    """Plain values from the parser's events, so that every limit holds before anything is built."""

    def __init__(self, text: str, name: str, max_characters: int, typed: bool) -> None:
        self._text, self._name, self._max_characters, self._typed = text, name, max_characters, typed
        self._events = yaml.parse(text, Loader=_FAST)
        self._nodes = self._characters = self._aliases = 0
        self._anchors: dict[str, object] = {}

    def document(self) -> object:
        try:
            next(self._events)
            if isinstance(next(self._events), yaml.StreamEndEvent):
                return None
            value = self._value(next(self._events), 0)
            next(self._events)
            after = next(self._events)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            before = self._text.encode()[: getattr(error, "position", 0)]
            line = (mark.line if mark else before.count(b"\n")) + 1
            reason = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be parsed"
            raise BadInput(f"{self._name}, line {line}: not YAML: {reason}") from error
        if not isinstance(after, yaml.StreamEndEvent):
            self._refuse(after, "a second document begins here; keep one document in the file")
        return value

    def _value(self, event: Any, depth: int) -> object:
        """The value that begins with this event."""
        if isinstance(event, yaml.AliasEvent):
            return self._aliased(event, depth)
        if event.tag is not None:
            self._refuse(event, f"the tag {shown(event.tag)} is not followed; leave it out")
        self._count(event, getattr(event, "value", None), depth)
        value: object
        if isinstance(event, yaml.ScalarEvent):
            value = self._scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = [self._value(inner, depth + 1) for inner in self._until(yaml.SequenceEndEvent)]
        else:
            value = self._mapping(depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        return value

    def _aliased(self, event: Any, depth: int) -> object:
        self._aliases += 1
        if self._aliases > MAX_ALIASES:
            self._refuse(event, f"more than {MAX_ALIASES} aliases; write the values out")
        if event.anchor not in self._anchors:
            self._refuse(event, f"the alias *{event.anchor} stands inside its own anchor, or has none")
        value = self._anchors[event.anchor]
        self._count(event, value, depth)
        return value

    def _until(self, end: type) -> Iterator[Any]:
        while not isinstance(event := next(self._events), end):
            yield event

    def _mapping(self, depth: int) -> dict[str, object]:
        values: dict[str, object] = {}
        merged: dict[str, object] = {}
        for event in self._until(yaml.MappingEndEvent):
            merging = (
                self._typed
                and isinstance(event, yaml.ScalarEvent)
                and event.value == "<<"
                and event.implicit[0]
            )
            key = self._value(event, depth + 1)
            if not isinstance(key, str):
                self._refuse(event, f"a key must be text, not {kind_of(key)}; write it in quotes")
            if key in values or (merging and merged):
                self._refuse(event, f"the key {shown(key)} comes twice; keep one of them")
            value = self._value(next(self._events), depth + 1)
            if not merging:
                values[key] = value
                continue
            for part in value if isinstance(value, list) else [value]:
                if not isinstance(part, dict):
                    self._refuse(event, "<< takes mappings only; write the keys out")
                merged = {**part, **merged}
        return {**merged, **values}

    def _scalar(self, event: Any) -> object:
        text: str = event.value
        tag = _SAFE.resolve(_SCALAR, text, event.implicit)
        if not self._typed and event.implicit[0] and text in ("", "~", "null"):
            return None
        if not self._typed or tag not in _CONSTRUCTORS or ":" in text:
            # dates are text, and so is 12:30, which is 750 to YAML 1.1
            if any("\ud800" <= letter <= "\udfff" for letter in text):
                self._refuse(event, "half of a character (a lone surrogate); write the whole character")
            return text
        value: object = math.nan
        if len(text) <= _LONGEST_NUMBER:
            try:
                value = getattr(_SAFE, _CONSTRUCTORS[tag])(_SCALAR(tag, text))
            except (ValueError, OverflowError):
                pass
        if not (math.isfinite(value) if isinstance(value, float) else value is None or value in _INTEGERS):
            message = f"{shown(text)} is a number that JSON cannot hold; write it in quotes, as text"
            self._refuse(event, message)
        return value

    def _count(self, event: Any, value: object, depth: int) -> None:
        """Count a value and all that is in it, as if it were written out here."""
        self._nodes += 1
        self._characters += len(value) if isinstance(value, str) else 0
        if depth > MAX_DEPTH:
            self._refuse(event, f"nested deeper than {MAX_DEPTH} levels; write it flatter")
        if self._nodes > MAX_NODES or self._characters > self._max_characters:
            raise TooLarge(
                f"{self._name}, line {event.start_mark.line + 1}: with its aliases written out, the file has "
                f"more than {MAX_NODES:,} values or {self._max_characters:,} characters; write less"
            )
        parts = (*value, *value.values()) if isinstance(value, dict) else value
        for part in parts if isinstance(parts, list | tuple) else ():
            self._count(event, part, depth + 1)

    def _refuse(self, event: Any, message: str) -> NoReturn:
        raise BadInput(f"{self._name}, line {event.start_mark.line + 1}: {message}")


def kind_of(value: object) -> str:
    """What was found, as a sentence can say it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return {dict: "a mapping", list: "a list", NoneType: "nothing"}.get(type(value)) or shown(value)
