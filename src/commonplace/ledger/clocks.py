"""Clocks and positions: which position a time means, also where a host recorded with a wrong clock."""

from __future__ import annotations

import time
from datetime import datetime

from ..engines.contract import Reads, Record
from ..errors import BadInput, shown
from .checks import iso, to_us
from .events import A_DAY, unseal
from .keys import pack
from .views import Meta, View, read_row

A_SECOND, A_MINUTE = 1_000_000, 60_000_000
"""In microseconds: how long ago `at=` may lie and still mean now, where the ledger is ahead of this clock."""

CLOCKS = View(
    "clocks",
    1,
    keys=lambda event: () if event.clock_us is None else ((event.clock_us, event.position),),
    fold=lambda _key, _before, event: event.position,
    header_only=True,
    insert_only=True,
)
"""The events whose recorders had a clock that did not fit the ledger, by the time of that clock."""


def now_us() -> int:
    return time.time_ns() // 1000


def position_at(reads: Reads, meta: Meta, at: int | datetime) -> int:
    """The position that `at` means. A time means the last event recorded at or before it.

    Where the ledger is ahead of this clock, now means all there is. Where it is ahead by more than a day, an event was
    recorded with a wrong clock, and no later event can have an earlier time: there, a time means the last event whose
    recorder's own clock had not passed it.
    """
    if isinstance(at, datetime):
        now, moment = now_us(), to_us("at", at)
        ahead = reads.head.created_at - now
        if ahead > 0 and moment > now - (A_MINUTE if ahead > A_DAY else A_SECOND):
            return reads.head.position
        position = _last_before(reads, moment)
        if ahead <= A_DAY:
            return position
        rows = reads.scan(meta.space(CLOCKS), b"", pack((moment + 1,)), limit=1, reverse=True)
        records = [_record_at(reads, int(read_row(row))) for row in rows]
        return max([position, *(record.position for record in records if record.created_at - now > A_DAY)])
    if type(at) is not int or not 0 <= at <= reads.head.position:
        raise BadInput(
            f"at={shown(at)} is not in this book: give a position from 0 to {reads.head.position}, or a time"
        )
    return at


def _last_before(reads: Reads, moment: int) -> int:
    """The last event with this time or an earlier one; 0 if there is none."""
    low, high = 0, reads.head.position
    while low < high:  # created_at never decreases, so the ledger is its own index of time
        middle = (low + high + 1) // 2
        if _record_at(reads, middle).created_at <= moment:
            low = middle
        else:
            high = middle - 1
    return low


def _record_at(reads: Reads, position: int) -> Record:
    return reads.records(position - 1, position, 1)[0]


def clock_trouble(reads: Reads, meta: Meta) -> tuple[str | None, str | None]:
    """What is wrong if the ledger is ahead of this clock by more than a day, and from which event on; and which
    event was recorded by a clock that was behind, if there is one."""
    now = now_us()
    if reads.head.created_at - now > A_DAY:
        event = unseal(_record_at(reads, _last_before(reads, now + A_DAY) + 1))
        return (
            f"event {event.position}, recorded by {event.actor!r}, has the time {iso(event.created_us)}, "
            f"{_days(event.created_us - now)} ahead of this clock, and so have all events since: set the clock "
            "of its host right, or this one's. Until then `at=` goes by the clocks of those who record"
        ), None
    for row in reads.scan(meta.space(CLOCKS), limit=1, reverse=True):
        event = unseal(_record_at(reads, int(read_row(row))))
        behind = event.created_us - (event.clock_us or 0)
        return None, (
            f"event {event.position}, recorded by {event.actor!r}, came from a clock that was {_days(behind)} "
            "behind the ledger"
        )
    return None, None


def _days(microseconds: int) -> str:
    days = microseconds // A_DAY
    return f"{days:,} days" if days < 730 else f"{days / 365.25:.1f} years"
