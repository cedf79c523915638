"""The change feed of a book as the SDK's subscription bus.

One thread follows the book for each participant that somebody subscribes for, and only as long as somebody does. A
participant is told of what it may see, because it is its own `watch` that is followed.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ResourceUpdated, ServerEvent

from .resources import changed

if TYPE_CHECKING:
    from ...participant import Participant

log = logging.getLogger("commonplace")

ROUND = 5.0
"""After how many seconds without news a thread looks whether it is still needed."""


class ChangeFeed(InMemorySubscriptionBus):
    """Tells of the changes that one participant may see: listeners of the bus, and sessions of older clients."""

    def __init__(self, me: Participant, group: TaskGroup) -> None:
        super().__init__()
        self._me, self._group = me, group
        self._needed = threading.Event()
        self._sessions: dict[str, list[ServerSession]] = {}

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
            # The position is taken here, before the client hears that it is subscribed: nothing is lost between.
            self._group.start_soon(self._run, self._needed, self._me._session.ledger.head)

    def _rest(self) -> None:
        if not self._listeners and not self._sessions:
            self._needed.clear()

    async def _run(self, needed: threading.Event, after: int) -> None:
        try:
            # A limiter of its own: a thread that waits for news must not take the place of one that answers a call.
            await anyio.to_thread.run_sync(
                self._watch, needed, after, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(math.inf)
            )
        finally:
            needed.clear()

    def _watch(self, needed: threading.Event, after: int) -> None:
        ledger = self._me._session.ledger
        while needed.is_set() and not ledger.closed:
            head = ledger.head
            for event in self._me.watch(after=after, timeout=ROUND):
                after = event.position
                for uri in sorted(changed(event)):
                    if needed.is_set():
                        anyio.from_thread.run(self._tell, uri)
                if not needed.is_set():
                    return
            after = max(after, head)

    async def _tell(self, uri: str) -> None:
        await self.publish(ResourceUpdated(uri=uri))
        for session in list(self._sessions.get(uri, ())):
            await session.send_resource_updated(uri)
