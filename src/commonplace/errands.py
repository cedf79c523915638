"""Errands: what one process lets another do for it, because that one holds the book's lock and commits anyway.

A command is data, so it can travel to whoever leads, and its answer back. A capability says of which commands it can,
by the types of request and answer. Whatever does not fit on the way (a refusal, an error, a command that says nothing
of its types, another version of the library) is left to whoever asked: it comes in and does it itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from hashlib import sha256
from importlib.metadata import version
from typing import Any

import msgspec

from .keys import Key
from .views import Registry

_encode = msgspec.msgpack.Encoder().encode


Errand = tuple[str, Any, Sequence[tuple[str, Key]]]
"""A command by its name, its request, and the rows that it is known to read, by view and key."""


class Done(msgspec.Struct, frozen=True, array_like=True):
    """What became of one command: its answer, and the ids of the events that it recorded."""

    answer: msgspec.Raw
    ids: list[str]


_read_asked = msgspec.msgpack.Decoder(
    tuple[bytes, list[tuple[str, msgspec.Raw, list[tuple[str, Key]]]]]
).decode
_read_answer = msgspec.msgpack.Decoder(list[Done | None]).decode


class Errands:
    """How the commands of one registry travel."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._ways: dict[str, tuple[Any, Any]] = {}

    @cached_property
    def _mark(self) -> bytes:
        """What two processes must have in common to do things for each other."""
        registry = self._registry
        brought = [[view.name, view.version] for view in registry.views.values()]
        return sha256(_encode([version("commonplace"), sorted(brought), sorted(registry.travels)])).digest()

    def ask(self, commands: Sequence[Errand]) -> bytes | None:
        """These commands as bytes; None if one of them cannot travel."""
        if not all(name in self._registry.travels for name, _, _ in commands):
            return None
        try:
            return _encode((self._mark, commands))
        except (TypeError, ValueError, OverflowError):
            return None  # a number that is too large, say

    def asked(self, said: bytes) -> list[Errand]:
        """The commands that somebody asks for; none if they are not for us."""
        try:
            mark, commands = _read_asked(said)
            if mark == self._mark:
                return [(name, self._way(name)[0](raw), reads) for name, raw, reads in commands]
        except (msgspec.MsgspecError, KeyError):
            pass  # of another version, which has its own way to say it
        return []

    def done(self, answer: Any, ids: list[str]) -> Done:
        """What is told of a command that has been done. Raises TypeError, ValueError or OverflowError if its answer
        cannot travel."""
        return Done(msgspec.Raw(_encode(answer)), ids)

    def answer(self, each: Sequence[Done | None]) -> bytes:
        return _encode(each)

    def answered(self, said: bytes, names: Sequence[str]) -> list[tuple[Any, list[str]] | None]:
        """The answers to commands of these names, each with the ids of its events; None where there is none."""
        return [
            None if one is None else (self._way(name)[1](one.answer), one.ids)
            for name, one in zip(names, _read_answer(said), strict=True)
        ]

    def _way(self, name: str) -> tuple[Any, Any]:
        """How the request and the answer of a command are read."""
        if name not in self._ways:
            request, answer = self._registry.travels[name]
            self._ways[name] = msgspec.msgpack.Decoder(request).decode, msgspec.msgpack.Decoder(answer).decode
        return self._ways[name]
