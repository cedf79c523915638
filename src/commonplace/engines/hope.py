"""Hope: what spares whoever writes to a book on a server a first trip there.

A transaction knows how it has left the book. The next one may begin in the hope that nobody else has written since, and
says with its write on which state it rests; the server refuses it if that is no longer the state. Whoever comes next at
a gate is handed this, and the rows that it will probably read.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from .contract import Head, Place, Row

ALONE, FRESH = 8, 1.0
"""After how many transactions in which nobody else wrote it is hoped that nobody does, and for how many seconds after
the last one, its connection included. To be wrong costs more than a trip."""
FORMAT = 1
"""Of what is handed on; the library next to us may be of another version."""


def clock() -> float:
    """Seconds on a clock that nobody sets, and that goes on while the machine sleeps where there is such a one."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def fresh(when: float) -> bool:
    """Whether that was a moment ago."""
    return 0 <= clock() - when < FRESH


class Found(NamedTuple):
    """How a transaction found the book, or left it."""

    head: Head
    state: int
    """What is the same again only if nobody has written."""
    clock: int
    """What the server's clock said, in microseconds."""
    when: float
    """And ours, which nobody sets."""
    alone: int
    """How many transactions of this store in a row have found the book as the one before had left it."""

    @property
    def hopeful(self) -> bool:
        """Whether nobody else seems to write."""
        return self.alone >= ALONE and fresh(self.when)

    def now(self) -> int:
        return self.clock + int((clock() - self.when) * 1e6)

    def again(self, state: int) -> int:
        """How many of them there are with one that finds this state."""
        return self.alone + 1 if self.state == state else 0


class Handed(msgspec.Struct, frozen=True, array_like=True):
    """What is handed on."""

    format: int
    found: Found
    """How the book was left."""
    run: int
    """How many transactions in a row, of whatever process at the gate, found it as the one before had left it."""
    rows: list[Row]
    """Rows as they were then; where there was none, one without a value."""

    @property
    def hopeful(self) -> bool:
        """Whether nobody elsewhere seems to write."""
        return self.run >= ALONE and fresh(self.found.when)

    @property
    def brought(self) -> dict[Place, Row | None]:
        return {row[:2]: None if row.value is None else row for row in self.rows}


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Handed).decode


def pack(found: Found, run: int, rows: Mapping[Place, Row | None]) -> bytes:
    each = [Row(*place, 0, None) if row is None else row for place, row in rows.items()]
    return _encode(Handed(FORMAT, found, run, each))


def unpack(said: bytes) -> Handed | None:
    """What was handed on, if we can read it."""
    try:
        found = _decode(said) if said else None
    except msgspec.MsgspecError:
        return None  # another version of the library has its own way to say it
    return found if found is not None and found.format == FORMAT else None
