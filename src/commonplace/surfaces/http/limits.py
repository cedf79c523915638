"""What one server lets its clients use: sizes, times, rates, streams and work at the same time."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from math import inf
from time import monotonic
from typing import Any, TypeVar

import msgspec

from ...errors import BadInput, BookClosed, TooManyRequests, shown
from ...ledger.encoding import convert

T = TypeVar("T")


class ServerLimits(msgspec.Struct, frozen=True):
    """What one server lets its clients use."""

    body: int = 32 << 20
    """The most bytes of a request's body."""
    bodies: int = 256 << 20
    """The most bytes of bodies of requests that are under way."""
    bodies_each: int = 64 << 20
    """How many of them one token may have."""
    body_seconds: float = 30.0
    """How long a body may take to arrive."""
    head: int = 64 << 10
    """The most bytes of a first line and headers that are waited for."""
    head_seconds: float = 10.0
    """How long the first line and the headers may take to arrive, also those of a new connection."""
    idle_seconds: float = 75.0
    """How long a connection stays open between two requests."""
    stalled_seconds: float = 60.0
    """How long a client may take none of an answer that waits for it."""
    connections: int = 4_000
    """How many connections may be open. One more closes the one that has waited longest without a request."""
    rate: float = 1_000.0
    """How many requests a second one token may make."""
    unknown_rate: float = 200.0
    """How many requests a second one address may make with tokens that were not valid here before."""
    streams: int = 200
    """How many event streams may be open."""
    streams_each: int = 50
    """How many of them one token may have."""
    files: int = 32
    """How many files may be made or be on their way to a client: exports and backups."""
    files_each: int = 4
    """How many of them one token may have."""
    sessions_each: int = 100
    """How many sessions of MCP one token may have, by clients of its older versions."""
    at_once: int = 256
    """How many calls may be under way or wait for a thread."""
    at_once_each: int = 64
    """How many of them one token may have."""
    threads: int = 8
    """How many calls run at the same time. Tokens take turns."""
    threads_each: int = 4
    """How many of them one token may have."""
    page: int = 1_000
    """The most events of a page."""
    page_bytes: int = 4 << 20
    """A page ends with the event that fills so many bytes."""


def server_limits(given: Mapping[str, float]) -> ServerLimits:
    """The limits, some of which are given. Raises BadInput."""
    for name, value in given.items():
        if name not in ServerLimits.__struct_fields__:
            every = ", ".join(ServerLimits.__struct_fields__)
            raise BadInput(f"there is no limit {shown(name)}: there are {every}")
        if not (isinstance(value, int | float) and 0 < value < inf):
            raise BadInput(f"the limit {name} is {shown(value)}: it is a number above 0")
    try:
        return convert(given, ServerLimits, strict=False)
    except msgspec.ValidationError as error:
        raise BadInput(f"--limits cannot be read: {error}") from None


class Rate:
    """A token bucket for each client: it holds one second's worth of requests."""

    def __init__(self, per_second: float, whose: str, most: int = 10_000) -> None:
        self._per_second, self._whose, self._most = per_second, whose, most
        self._full = max(per_second, 1.0)
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> None:
        """Raises TooManyRequests."""
        now = monotonic()
        left, since = self._left.pop(client, (self._full, now))
        left = min(self._full, left + (now - since) * self._per_second)
        self._left[client] = (left - 1 if left >= 1 else left, now)
        while len(self._left) > self._most:  # the longest idle ones begin anew with a full bucket
            self._left.popitem(last=False)
        if left < 1:
            raise TooManyRequests(
                f"over {self._per_second:g} requests a second {self._whose}: try again in a second"
            )


class Slots:
    """How many of something are in use, and how many may be, in all and by one client."""

    def __init__(self, what: str, most: int, most_each: int) -> None:
        self._what, self._most, self._most_each = what, most, most_each
        self._of: Counter[str] = Counter()
        self.used = 0

    @contextmanager
    def hold(self, client: str, amount: int = 1) -> Iterator[None]:
        """Raises TooManyRequests."""
        if self.used + amount > self._most:
            raise TooManyRequests(f"{self._most:,} {self._what} are in use: try again in a second")
        if self._of[client] + amount > self._most_each:
            raise TooManyRequests(
                f"{self._most_each:,} {self._what} of one token are in use: try again in a second"
            )
        self.used += amount
        self._of[client] += amount
        try:
            yield
        finally:
            self.used -= amount
            self._of[client] -= amount
            if not self._of[client]:
                del self._of[client]


class FairThreads:
    """Threads for calls. Calls that wait for one are in a lane for each client, and the lanes take turns, so that a
    client with many calls does not delay the one call of another. Nor may one client have more than some of the threads
    at a time: they share the interpreter, so each call that runs beside others is slower for it."""

    def __init__(self, threads: int, most_each: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="commonplace-http")
        self._free, self._most_each = threads, most_each
        self._running: Counter[str] = Counter()
        self._lanes: OrderedDict[tuple[str, str], deque[asyncio.Future[None]]] = OrderedDict()

    async def run(self, client: str, call: Callable[[], T], lane: str = "") -> T:
        """What a call answers. It goes on in its thread where nobody waits for it any longer. A client whose calls are
        of several kinds may have a `lane` for each, so that those of one kind do not wait behind all others."""
        await self._turn(client, lane)
        try:
            future = asyncio.wrap_future(self._pool.submit(copy_context().run, call))
        except RuntimeError:
            self._end(client)
            raise BookClosed("the server is shutting down: nothing was done") from None
        future.add_done_callback(partial(self._ended, client))
        return await asyncio.shield(future)

    def finish(self) -> None:
        """Wait for the calls that have begun; no other begins."""
        self._pool.shutdown(wait=True)

    async def _turn(self, client: str, lane: str) -> None:
        if self._free and self._running[client] < self._most_each:
            self._begin(client)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lanes.setdefault((client, lane), deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was given a thread at the same moment
                self._end(client)
            raise

    def _begin(self, client: str) -> None:
        self._free -= 1
        self._running[client] += 1

    def _ended(self, client: str, future: asyncio.Future[Any]) -> None:
        if not future.cancelled():
            future.exception()  # nobody may be left to look at it
        self._end(client)

    def _end(self, client: str) -> None:
        self._free += 1
        self._running[client] -= 1
        if not self._running[client]:
            del self._running[client]
        self._pass_on()

    def _pass_on(self) -> None:
        """Give threads that are free to the lanes whose turn it is."""
        for client, lane in list(self._lanes):
            if not self._free:
                return
            if self._running[client] < self._most_each:
                waiting = self._lanes.pop((client, lane))
                turn = waiting.popleft()
                while turn.done() and waiting:  # given up meanwhile
                    turn = waiting.popleft()
                if waiting:
                    self._lanes[client, lane] = waiting  # behind the others
                if not turn.done():
                    self._begin(client)
                    turn.set_result(None)
