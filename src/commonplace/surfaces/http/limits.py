"""What one server lets its clients use: sizes, rates, streams and work at the same time."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any, TypeVar

import msgspec

from ...errors import CommonplaceError, OutcomeUnknown, TooManyRequests

T = TypeVar("T")


class ServerLimits(msgspec.Struct, frozen=True):
    """What one server lets its clients use."""

    body: int = 32 << 20
    """The most bytes of a request's body."""
    body_seconds: float = 30.0
    """How long a body may take to arrive."""
    rate: float = 1_000.0
    """How many requests a second one token may make."""
    streams: int = 200
    """How many event streams may be open."""
    at_once: int = 256
    """How many calls may be under way or wait for a thread."""
    threads: int = 32
    """How many calls run at the same time."""
    page: int = 1_000
    """The most events of a page."""


class Rate:
    """A token bucket for each client: it holds one second's worth of requests."""

    def __init__(self, per_second: float, most: int = 10_000) -> None:
        self._per_second, self._most = per_second, most
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> None:
        """Raises TooManyRequests."""
        now = monotonic()
        left, since = self._left.pop(client, (self._per_second, now))
        left = min(self._per_second, left + (now - since) * self._per_second)
        self._left[client] = (max(left - 1, 0.0), now)
        while len(self._left) > self._most:  # the longest idle ones begin anew with a full bucket
            self._left.popitem(last=False)
        if left < 1:
            raise TooManyRequests(
                f"over {self._per_second:g} requests a second with this token: try again in a second"
            )


class Slots:
    """How many of something are in use, and how many may be."""

    def __init__(self, what: str, most: int) -> None:
        self._what, self._most, self.used = what, most, 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """Raises TooManyRequests."""
        if self.used >= self._most:
            raise TooManyRequests(f"{self._most} {self._what} are in use: try again in a second")
        self.used += 1
        try:
            yield
        finally:
            self.used -= 1


class Repeats:
    """The answers of the last calls by their idempotency keys, so that a call that is sent again is made once. A call
    that is still under way is waited for."""

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._answers: OrderedDict[tuple[str, str], tuple[bytes, Any]] = OrderedDict()

    async def once(self, key: tuple[str, str], content: bytes, call: Callable[[], Awaitable[T]]) -> T | None:
        """The answer of the first call with this key; None if the first one had other content."""
        known = self._answers.get(key)
        if known is None:
            future = asyncio.ensure_future(call())
            self._answers[key] = (content, future)
            while len(self._answers) > self._most:
                self._answers.popitem(last=False)
        else:
            first, future = known
            if first != content:
                return None
        try:
            return await asyncio.shield(future)
        except OutcomeUnknown:
            raise  # and stays so: the call is not made again
        except CommonplaceError:
            # What was refused may be asked for again, because nothing was done.
            if self._answers.get(key, (b"", None))[1] is future:
                del self._answers[key]
            raise
