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
from mcp.server.connection import Connection
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated, ServerEvent

from ...errors import BadInput, CommonplaceError, TooManyRequests
from .host import Host, Request, permitted, protocol_errors

if TYPE_CHECKING:
    from ...ledger.events import Event
    from ...participant import Participant

log = logging.getLogger("commonplace")

MOST_FEEDS = 16
"""How many parts of a book one token may follow: each takes a thread."""
MOST_ADDRESSES, LONGEST_ADDRESS = 1_000, 4_000
"""How many addresses one client may subscribe to, and how many characters each has at most."""
ROUND = 5.0
"""After how many seconds without news a thread looks whether it is still needed."""


class ChangeFeed(InMemorySubscriptionBus):
    """Tells of the changes that one participant may see: listeners of the bus, and clients of the older protocol.

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
        self._clients: dict[Connection, _Addresses] = {}
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
        """Tell a client of the older protocol when an address changes. Raises TooManyRequests."""
        client = session._connection  # a session is made for each request
        if client not in self._clients:
            self._clients[client] = _Addresses(session)
            client.exit_stack.callback(self._leave, client)
        addresses = self._clients[client].addresses
        if len(addresses) >= MOST_ADDRESSES and uri not in addresses:
            raise TooManyRequests(f"{MOST_ADDRESSES:,} addresses are subscribed to: unsubscribe from others")
        addresses.add(uri)
        self._follow()

    def remove(self, uri: str, session: ServerSession) -> None:
        if session._connection in self._clients:
            self._clients[session._connection].addresses.discard(uri)
        self._rest()

    def _leave(self, client: Connection) -> None:
        self._clients.pop(client, None)
        self._rest()

    def _follow(self) -> None:
        if not self._needed.is_set():
            self._needed = threading.Event()
            self._needed.set()
            self._group.start_soon(self._run, self._needed, self.after)

    def _rest(self) -> None:
        if not self._listeners and not any(client.addresses for client in self._clients.values()):
            self._needed.clear()

    async def _run(self, needed: threading.Event, after: int) -> None:
        try:
            # A limiter of its own: a thread that waits for news must not take the place of one that answers a call.
            await anyio.to_thread.run_sync(
                self._watch, needed, after, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(math.inf)
            )
        except CommonplaceError as error:
            log.warning("a client is told of no more changes: %s", error)
            self._clients.clear()
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
        for client, told in list(self._clients.items()):
            if uri in told.addresses:
                try:
                    await told.session.send_resource_updated(uri)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):  # the client has gone
                    self._leave(client)


class _Addresses:
    """The addresses that a client of the older protocol has subscribed to, and the session to tell it by."""

    def __init__(self, session: ServerSession) -> None:
        self.session, self.addresses = session, set[str]()


class Feeds:
    """The feeds of all clients of a server, and its answers to their subscriptions. `check` raises NotFound for an
    address that there is not."""

    def __init__(
        self, host: Host, changed: Callable[[Event], Collection[str]], check: Callable[[str], object]
    ) -> None:
        self._host, self._changed, self._check = host, changed, check
        self._feeds: dict[tuple[str, str], ChangeFeed] = {}

    async def _of(self, ctx: Request) -> ChangeFeed:
        """The feed of the client that makes a request. One that begins now begins with what is committed after this."""

        def find() -> Participant:
            return permitted(self._host, ctx, "watch")

        def read() -> tuple[tuple[str, str], int]:
            session = find()._session
            who = repr((session.actor, session.bound, session.run))
            return (self._host.client(ctx), who), session.ledger.head

        key, head = await self._host.run(ctx, read)
        if key not in self._feeds:
            self._feeds = {name: feed for name, feed in self._feeds.items() if feed.followed}
            if sum(client == key[0] for client, _ in self._feeds) >= MOST_FEEDS:
                raise TooManyRequests(f"{MOST_FEEDS} actors, scopes and runs are followed with this token")
            self._feeds[key] = ChangeFeed(find, self._changed, ctx.lifespan_context)
        feed = self._feeds[key]
        if not feed.followed:
            feed.after = head
        return feed

    async def subscribe(self, ctx: Request, params: types.SubscribeRequestParams) -> types.EmptyResult:
        uri = str(params.uri)
        with protocol_errors():
            _check_length(uri)
            self._check(uri)
            (await self._of(ctx)).add(uri, ctx.session)
        return types.EmptyResult()

    async def unsubscribe(self, ctx: Request, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        with protocol_errors():
            (await self._of(ctx)).remove(str(params.uri), ctx.session)
        return types.EmptyResult()

    async def listen(
        self, ctx: Request, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        uris = params.notifications.resource_subscriptions or ()
        with protocol_errors():
            if len(uris) > MOST_ADDRESSES:
                raise TooManyRequests(f"at most {MOST_ADDRESSES:,} addresses are listened to at once")
            for uri in uris:
                _check_length(uri)
            feed = await self._of(ctx)
        return await feed.listening(ctx, params)


def _check_length(uri: str) -> None:
    if len(uri) > LONGEST_ADDRESS:
        raise BadInput(f"an address has at most {LONGEST_ADDRESS:,} characters, and not {len(uri):,}")
