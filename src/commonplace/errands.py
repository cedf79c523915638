"""Errands: what one process lets another do for it, because that one holds the book's lock and commits anyway.

A command is data, so it can travel to whoever leads, and its answer back. A capability says of which commands it can,
by the types of request and answer. Whatever does not fit on the way (a refusal, an error, a command that says nothing
of its types, another version of the library) is left to whoever asked: it comes in and does it itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from hashlib import sha256
from typing import Any

import msgspec

from .engines.contract import ROOM, Record
from .errors import OutcomeUnknown
from .keys import Key
from .version import __version__
from .views import Registry

_encode = msgspec.msgpack.Encoder().encode


Errand = tuple[str, Any, Sequence[tuple[str, Key]]]
"""A command by its name, its request, and the rows that it is known to read, by view and key."""


class Done(msgspec.Struct, frozen=True, array_like=True):
    """What became of one command: its answer, the ids of the events that it recorded, and the hash of the first of
    them, which is salted and so shows beyond doubt that it is this event and no other of the same id."""

    answer: msgspec.Raw
    ids: list[str]
    proof: bytes


Told = tuple[Any, list[str], bytes]
"""The same with the answer as it was."""


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
        return sha256(_encode([__version__, ROOM, self._registry.brought])).digest()

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

    def done(self, answer: Any, records: Sequence[Record], room: int) -> msgspec.Raw:
        """What is told of a command that has been done and recorded this. Raises TypeError, ValueError or OverflowError
        if its answer cannot travel."""
        proof = records[0].hash if records else b""
        done = _encode(Done(msgspec.Raw(_encode(answer)), [record.id for record in records], proof))
        if len(done) > room:
            raise OverflowError("there is no room for the answer")
        return msgspec.Raw(done)

    def answer(self, each: Sequence[msgspec.Raw | None]) -> bytes:
        """What is told of several commands, if anything."""
        return _encode(each) if any(each) else b""

    def answered(self, said: bytes, names: Sequence[str]) -> list[Told | None]:
        """What is told of commands of these names; None where there is no answer. Raises OutcomeUnknown if it cannot be
        understood."""
        try:
            return [
                None if one is None else (self._way(name)[1](one.answer), one.ids, one.proof)
                for name, one in zip(names, _read_answer(said), strict=True)
            ]
        except (msgspec.MsgspecError, ValueError) as error:
            raise OutcomeUnknown(
                [], f"what another process has written for us is damaged: {error}"
            ) from error

    def _way(self, name: str) -> tuple[Any, Any]:
        """How the request and the answer of a command are read."""
        if name not in self._ways:
            request, answer = self._registry.travels[name]
            self._ways[name] = msgspec.msgpack.Decoder(request).decode, msgspec.msgpack.Decoder(answer).decode
        return self._ways[name]
