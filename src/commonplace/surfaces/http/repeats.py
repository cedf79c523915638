"""Calls that a client sends again, because it has not heard what came of them: each is made once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Generic, Protocol, TypeVar

from ...errors import CommonplaceError, OutcomeUnknown


class HasContent(Protocol):
    """An answer that can be sent again."""

    @property
    def content(self) -> bytes: ...


R = TypeVar("R", bound=HasContent)


class Repeats(Generic[R]):
    """The answers of the last calls by their idempotency keys. Each client has its own room: one that makes many calls,
    or gets large answers, makes the server forget calls of its own. A call that is under way is never forgotten."""

    def __init__(self, most: int = 5_000, most_bytes: int = 16 << 20, seconds: float = 600.0) -> None:
        self._most, self._most_bytes, self._seconds = most, most_bytes, seconds
        self._clients: OrderedDict[str, _CallsOfClient[R]] = OrderedDict()
        self._forgotten_at = float("-inf")
        """When the newest forgotten call began, of clients that are no longer kept."""

    async def once(
        self,
        client: str,
        key: str,
        digest: bytes,
        make: Callable[[], Awaitable[R]],
        *,
        sent_after: float | None = None,
    ) -> R | None:
        """The answer of the first call of a client with this key; None if the first one was another call, which
        `digest` tells. `sent_after` is a time before the client has sent it first, if this is not the first time.
        Raises OutcomeUnknown if it may be one that was forgotten, or if it has failed without a word of what it did."""
        now = monotonic()
        self._forget_clients(now)
        calls = self._clients.setdefault(client, _CallsOfClient(self._forgotten_at))
        self._clients.move_to_end(client)
        call = calls.known.get(key)
        if call is None:
            if sent_after is not None and sent_after <= calls.forgotten_at:
                raise OutcomeUnknown((), "the server has forgotten its answer, because many calls came since")
            call = calls.known[key] = _MadeCall(digest, now)
            call.task = asyncio.ensure_future(self._made(calls, key, call, make))
            call.task.add_done_callback(_noticed)
            self._forget(calls, now)
        elif call.digest != digest:
            return None
        return await call.outcome()

    async def _made(
        self, calls: _CallsOfClient[R], key: str, call: _MadeCall[R], make: Callable[[], Awaitable[R]]
    ) -> R:
        try:
            call.answer = await make()
        except OutcomeUnknown as error:
            call.unknown = error.ids, error.cause
            raise
        except CommonplaceError:
            del calls.known[key]  # nothing was done, so it may be asked for again
            raise
        except Exception as error:
            call.unknown = (), f"it failed with {type(error).__name__} when it was made first"
            raise
        finally:
            call.task = None  # an error holds what its call was about
        calls.bytes += len(call.answer.content)
        self._forget(calls, monotonic())
        return call.answer

    def _forget(self, calls: _CallsOfClient[R], now: float) -> None:
        """Forget the oldest calls of a client, as many as there is no room or time for."""
        count, size, old = len(calls.known), calls.bytes, list[str]()
        for key, call in calls.known.items():
            if count <= self._most and size <= self._most_bytes and call.begun > now - self._seconds:
                break
            if call.task is None:
                old.append(key)
                count, size = count - 1, size - call.size
        for key in old:
            calls.forgotten_at = max(calls.forgotten_at, calls.known.pop(key).begun)
        calls.bytes = size

    def _forget_clients(self, now: float) -> None:
        """Keep nothing of clients that have been quiet for so long that their calls are forgotten."""
        while self._clients:
            client, calls = next(iter(self._clients.items()))
            self._forget(calls, now)
            if calls.known:
                return
            del self._clients[client]
            self._forgotten_at = max(self._forgotten_at, calls.forgotten_at)


class _CallsOfClient(Generic[R]):
    """The calls of one client that are remembered, the oldest first."""

    def __init__(self, forgotten_at: float) -> None:
        self.known: OrderedDict[str, _MadeCall[R]] = OrderedDict()
        self.bytes = 0
        self.forgotten_at = forgotten_at
        """When the newest of its forgotten calls began."""


class _MadeCall(Generic[R]):
    """A call that was made, and what came of it: a task while it is under way, then an answer, or what is unknown."""

    def __init__(self, digest: bytes, begun: float) -> None:
        self.digest, self.begun = digest, begun
        self.task: asyncio.Future[R] | None = None
        self.answer: R | None = None
        self.unknown: tuple[tuple[str, ...], str] = ((), "")

    @property
    def size(self) -> int:
        return 0 if self.answer is None else len(self.answer.content)

    async def outcome(self) -> R:
        if self.task is not None:
            return await asyncio.shield(self.task)
        if self.answer is None:
            raise OutcomeUnknown(*self.unknown)
        return self.answer


def _noticed(task: asyncio.Future[R]) -> None:
    if not task.cancelled():
        task.exception()  # nobody may be left to look at it
