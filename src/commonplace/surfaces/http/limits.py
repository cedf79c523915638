"""What one server lets its clients use: sizes, times, rates, streams and work at the same time."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from math import inf
from time import monotonic
from typing import Any, TypeVar

import msgspec

from ...errors import BadInput, BookClosed, CommonplaceError, OutcomeUnknown, TooManyRequests, shown
from ...ledger.encoding import convert

T = TypeVar("T")


class ServerLimits(msgspec.Struct, frozen=True):
    """What one server lets its clients use."""

    body: int = 32 << 20
    """The most bytes of a request's body."""
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
    at_once: int = 256
    """How many calls may be under way or wait for a thread."""
    at_once_each: int = 64
    """How many of them one token may have."""
    threads: int = 32
    """How many calls run at the same time. Tokens take turns."""
    page: int = 1_000
    """The most events of a page."""


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
        raise BadInput(f"a limit cannot be so: {error}") from None


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
    def one(self, client: str) -> Iterator[None]:
        """Raises TooManyRequests."""
        if self.used >= self._most:
            raise TooManyRequests(f"{self._most} {self._what} are in use: try again in a second")
        if self._of[client] >= self._most_each:
            raise TooManyRequests(
                f"{self._most_each} {self._what} of one token are in use: try again in a second"
            )
        self.used += 1
        self._of[client] += 1
        try:
            yield
        finally:
            self.used -= 1
            self._of[client] -= 1
            if not self._of[client]:
                del self._of[client]


class FairThreads:
    """Threads for calls. Calls that wait for one are in a lane for each client, and the lanes take turns: a client with
    many calls does not delay the one call of another."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="commonplace-http")
        self._free = threads
        self._lanes: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    async def run(self, client: str, call: Callable[[], T]) -> T:
        """What a call answers. It goes on in its thread where nobody waits for it any longer."""
        await self._turn(client)
        try:
            future = asyncio.wrap_future(self._pool.submit(copy_context().run, call))
        except RuntimeError:
            self._pass_on()
            raise BookClosed("the server is shutting down: nothing was done") from None
        future.add_done_callback(self._ended)
        return await asyncio.shield(future)

    def finish(self) -> None:
        """Wait for the calls that have begun; no other begins."""
        self._pool.shutdown(wait=True)

    async def _turn(self, client: str) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lanes.setdefault(client, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was given a thread at the same moment
                self._pass_on()
            raise

    def _ended(self, future: asyncio.Future[Any]) -> None:
        if not future.cancelled():
            future.exception()  # nobody may be left to look at it
        self._pass_on()

    def _pass_on(self) -> None:
        """Give a thread that is free to the lane whose turn it is."""
        while self._lanes:
            client, lane = self._lanes.popitem(last=False)
            turn = lane.popleft()
            if lane:
                self._lanes[client] = lane  # behind the others
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class Repeats:
    """The answers of the last calls by their idempotency keys, so that a call that is sent again is made once. A call
    that is still under way is waited for."""

    def __init__(self, most: int = 20_000, seconds: float = 600.0) -> None:
        self._most, self._seconds = most, seconds
        self._answers: OrderedDict[tuple[str, str], tuple[bytes, float, Any]] = OrderedDict()
        self._forgotten_until = -1.0
        """When the youngest of the calls was made that are no longer known."""

    async def once(
        self, key: tuple[str, str], content: bytes, call: Callable[[], Awaitable[T]], *, again: bool = False
    ) -> T | None:
        """The answer of the first call with this key; None if the first one had other content. `again` says that the
        client has sent it before. Raises OutcomeUnknown if that may have been one which was forgotten."""
        known = self._answers.get(key)
        if known is None:
            if again and monotonic() - self._forgotten_until < self._seconds:
                raise OutcomeUnknown((), "so many calls came since that its answer is no longer known")
            future = asyncio.ensure_future(call())
            self._answers[key] = (content, monotonic(), future)
            self._forget()
        else:
            first, _, future = known
            if first != content:
                return None
        try:
            return await asyncio.shield(future)
        except OutcomeUnknown:
            raise  # and stays so: the call is not made again
        except CommonplaceError:
            # What was refused may be asked for again, because nothing was done.
            if self._answers.get(key, (b"", 0.0, None))[2] is future:
                del self._answers[key]
            raise

    def _forget(self) -> None:
        old = monotonic() - self._seconds
        while self._answers and (
            len(self._answers) > self._most or next(iter(self._answers.values()))[1] < old
        ):
            _, (_, made, _) = self._answers.popitem(last=False)
            self._forgotten_until = max(self._forgotten_until, made)
