"""The change feed of a book as the SDK's subscription bus.

One thread follows the book for each client that has subscribed, and only as long as it does. A client is told of what
its participant may see, because it is that one's own `watch` that is followed.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import anyio
import mcp_types as types
from anyio.abc import TaskGroup
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated, ServerEvent

from ...errors import CommonplaceError, TooManyRequests
from .threads import Request, RunOnThread, protocol_errors

if TYPE_CHECKING:
    from ...ledger.events import Event
    from ...participant import Participant

log = logging.getLogger("commonplace")

MOST_FEEDS = 16
"""How many parts of a book one token may follow: each takes a thread."""
ROUND = 5.0
"""After how many seconds without news a thread looks whether it is still needed."""


class ChangeFeed(InMemorySubscriptionBus):
    """Tells of the changes that one participant may see: listeners of the bus, and sessions of older clients.

    `find` answers the participant, and is asked anew before anything is told: a token that was revoked meanwhile ends
    the feed. `changed` answers the addresses that an event has changed."""

    def __init__(
        self, find: Callable[[], Participant], changed: Callable[[Event], Collection[str]], group: TaskGroup
    ) -> None:
        super().__init__()
        self._find, self._changed, self._group = find, changed, group
        self.after = 0
        """Where a follower begins: the head before the client hears that it is subscribed, so that nothing is lost."""
        self._needed = threading.Event()
        self._sessions: dict[str, list[ServerSession]] = {}
        self.listening = ListenHandler(self)

    @property
    def followed(self) -> bool:
        return self._needed.is_set()

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Register a listener. What is committed from now on reaches it."""
        unsubscribe = super().subscribe(listener)
        self._follow()

        def end() -> None:
            unsubscribe()
            self._rest()

        return end

    def add(self, uri: str, session: ServerSession) -> None:
        """Tell a client of the older protocol when an address changes."""
        self.remove(uri, session)
        self._sessions.setdefault(uri, []).append(session)
        session._connection.exit_stack.callback(self.remove, uri, session)
        self._follow()

    def remove(self, uri: str, session: ServerSession) -> None:
        # A session is made for each request; the connection is the client.
        others = [each for each in self._sessions.pop(uri, ()) if each._connection is not session._connection]
        if others:
            self._sessions[uri] = others
        self._rest()

    def _follow(self) -> None:
        if not self._needed.is_set():
            self._needed = threading.Event()
            self._needed.set()
            self._group.start_soon(self._run, self._needed, self.after)

    def _rest(self) -> None:
        if not self._listeners and not self._sessions:
            self._needed.clear()

    async def _run(self, needed: threading.Event, after: int) -> None:
        try:
            # A limiter of its own: a thread that waits for news must not take the place of one that answers a call.
            await anyio.to_thread.run_sync(
                self._watch, needed, after, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(math.inf)
            )
        except CommonplaceError as error:
            log.warning("a client is told of no more changes: %s", error)
            self._sessions.clear()
            self.listening.close()
        finally:
            needed.clear()

    def _watch(self, needed: threading.Event, after: int) -> None:
        ledger = self._find()._session.ledger
        while needed.is_set() and not ledger.closed:
            head = ledger.head
            for event in self._find().watch(after=after, timeout=ROUND):
                after = event.position
                uris = sorted(self._changed(event))
                if uris:
                    self._find()
                for uri in uris:
                    if needed.is_set():
                        anyio.from_thread.run(self._tell, uri)
                if not needed.is_set():
                    return
            after = max(after, head)

    async def _tell(self, uri: str) -> None:
        await self.publish(ResourceUpdated(uri=uri))
        for session in list(self._sessions.get(uri, ())):
            try:
                await session.send_resource_updated(uri)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):  # the client has gone
                self.remove(uri, session)


class Feeds:
    """The feeds of all clients of a server, and its answers to their subscriptions. `check` raises NotFound for an
    address that there is not."""

    def __init__(
        self,
        find: Callable[[Request], Participant],
        changed: Callable[[Event], Collection[str]],
        check: Callable[[str], object],
        run: RunOnThread,
    ) -> None:
        self._find, self._changed, self._check, self._on_thread = find, changed, check, run
        self._feeds: dict[tuple[str, str], ChangeFeed] = {}

    async def _of(self, ctx: Request) -> ChangeFeed:
        """The feed of the client that makes a request. One that begins now begins with what is committed after this."""

        def read() -> tuple[tuple[str, str], int]:
            session = self._find(ctx)._session
            token = "" if ctx.request is None else ctx.request.headers.get("authorization", "")
            return (token, repr((session.actor, session.bound, session.run))), session.ledger.head

        with protocol_errors():
            key, head = await self._on_thread(ctx, read)
            if key not in self._feeds:
                self._feeds = {name: feed for name, feed in self._feeds.items() if feed.followed}
                if sum(token == key[0] for token, _ in self._feeds) >= MOST_FEEDS:
                    raise TooManyRequests(
                        f"{MOST_FEEDS} actors, scopes and runs are followed with this token"
                    )
                self._feeds[key] = ChangeFeed(lambda: self._find(ctx), self._changed, ctx.lifespan_context)
        feed = self._feeds[key]
        if not feed.followed:
            feed.after = head
        return feed

    async def subscribe(self, ctx: Request, params: types.SubscribeRequestParams) -> types.EmptyResult:
        with protocol_errors():
            self._check(str(params.uri))
        (await self._of(ctx)).add(str(params.uri), ctx.session)
        return types.EmptyResult()

    async def unsubscribe(self, ctx: Request, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        (await self._of(ctx)).remove(str(params.uri), ctx.session)
        return types.EmptyResult()

    async def listen(
        self, ctx: Request, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        return await (await self._of(ctx)).listening(ctx, params)
