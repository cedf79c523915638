"""The change feed as server-sent events: the id of each event is its position, by which a client resumes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

import msgspec
from starlette.responses import StreamingResponse

from ...book import Book
from ...errors import BadInput, BookClosed, CommonplaceError, shown
from ...verbs import Verb
from ..network import Caller, call_for
from .admission import Authenticate
from .limits import FairThreads, ServerLimits
from .messages import EventPage, page_of
from .request_log import LogLine

KEEP_ALIVE = 15.0
"""After how many seconds without an event a stream says that it is still there."""


class StreamRequest(NamedTuple):
    """What one client follows: who it is, what it asked for, after which position, and in which form."""

    caller: Caller
    token: str
    client: str
    filters: dict[str, Any]
    after: int
    timeout: float | None
    typed: bool
    verb: Verb


class EventStreams:
    """Follows a book for clients. A stream has a thread only while it reads a page."""

    def __init__(
        self, book: Book, authenticate: Authenticate, threads: FairThreads, limits: ServerLimits
    ) -> None:
        self._book, self._authenticate, self._threads, self._limits = book, authenticate, threads, limits
        self.closing = asyncio.Event()
        """Set when the server ends: feeds end then, because they never would by themselves."""

    async def events(self, stream: StreamRequest) -> AsyncIterator[bytes]:
        """Events as they are committed. The token and the rights are looked up anew for every page, so that what is
        revoked ends the stream."""
        reached, quiet_since = stream.after, monotonic()
        try:
            yield b": connected\n\n"
            while not self.closing.is_set():
                page, head = await self._threads.run(
                    stream.client, partial(self._read, stream, reached), "streams"
                )
                for event, data in page.events:
                    yield b"id: %d\nevent: %s\ndata: %s\n\n" % (event.position, event.kind.encode(), data)
                    reached, quiet_since = event.position, monotonic()
                if page.more:
                    continue
                if head > reached:  # hidden events need not be looked at again after a reconnection
                    reached = head
                    yield f"id: {reached}\n\n".encode()
                left = KEEP_ALIVE
                if stream.timeout is not None:
                    left = min(left, stream.timeout - (monotonic() - quiet_since))
                    if left <= 0:
                        return
                if not await self.grown(reached, left):
                    yield b": still here\n\n"
        except CommonplaceError as error:
            if not (isinstance(error, BookClosed) and self.closing.is_set()):
                problem = msgspec.json.encode(msgspec.to_builtins(error.as_dict(), enc_hook=str))
                yield b"event: error\ndata: %s\n\n" % problem

    def _read(self, stream: StreamRequest, after: int) -> tuple[EventPage, int]:
        """A page of events, and the position up to which there are no others that the client may see. The head is
        asked for first: what is committed after that is not passed over."""
        self._authenticate(stream.token)
        head = self._book.head
        asked = {**stream.filters, "after": after, "timeout": 0}
        events = call_for(self._book, stream.caller, stream.verb, lambda: asked)
        return page_of(events, stream.typed, self._limits.page, self._limits.page_bytes), head

    async def grown(self, reached: int, seconds: float) -> bool:
        """Whether the book has grown beyond a position, within so many seconds. A server that ends does not wait."""
        news = self._book.aio._bridge.news
        waits = {asyncio.ensure_future(news.beyond(reached)), asyncio.ensure_future(self.closing.wait())}
        try:
            done, _ = await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
        return bool(done)


class EventStreamResponse(StreamingResponse):
    """A stream of events, which has a slot until it ends, also where the client leaves before the first event."""

    def __init__(self, events: AsyncIterator[bytes], slot: ExitStack, line: LogLine) -> None:
        super().__init__(self._counted(events), media_type="text/event-stream")
        self.headers["X-Accel-Buffering"] = "no"  # a proxy passes each event on at once
        self._slot, self._line, self._events = slot, line, 0

    async def _counted(self, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for part in events:
            self._events += b"\nevent: " in part
            yield part

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        with self._slot:
            try:
                await super().__call__(scope, receive, send)
            finally:
                self._line.write_end(self._events)


def position_of(last_event_id: str) -> int:
    """The position that a client names as the last one it has seen. Raises BadInput."""
    if not (last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) < 19):
        raise BadInput(f"Last-Event-ID {shown(last_event_id)} is no position")
    return int(last_event_id)
