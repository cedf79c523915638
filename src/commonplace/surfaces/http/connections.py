"""The connections of the server: what a client may leave undone, how many there may be, and how they end.

uvicorn speaks HTTP/1.1. By itself it waits for ever for a request that begins and does not end, and for a client that
does not take its answer. A few hundred such clients would use up what others need, so each of these has a time here.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ...errors import BadInput, EngineUnavailable
from .app import BookServer
from .limits import ServerLimits
from .messages import PROBLEM, problem_body
from .request_log import log

GRACE = 30
"""How many seconds a server that ends waits for what is being written."""
GIVEN_UP = 20
"""After how many of them long calls, such as imports, are given up between two parts."""
LAST_CALL = 0.5
"""For how many seconds a server that ends still takes requests on connections that are open, to refuse them: a request
that is on its way hears that nothing was done."""
QUEUED, ACCEPTED = 2048, 32
"""How many connections the system keeps for the server, and how many of them are accepted at a time. All of them at a
time would hold up the requests that are under way."""
UNACKNOWLEDGED = 60
"""After how many seconds a peer counts as gone that acknowledges nothing it was sent."""


class WaitingConnections:
    """The connections on which no request is under way, the one that has waited longest first: those that never had an
    answer, and those that had."""

    def __init__(self) -> None:
        self.new: dict[ClientConnection, None] = {}
        self.served: dict[ClientConnection, None] = {}

    def remove(self, connection: ClientConnection) -> None:
        self.new.pop(connection, None)
        self.served.pop(connection, None)

    def end_one(self) -> None:
        """Close one, so that there is room for another. One that never had an answer is the first to go."""
        oldest = next(iter(self.new or self.served), None)
        if oldest is not None:
            self.remove(oldest)
            oldest.end()


class ClientConnection(H11Protocol):
    """One connection of a client."""

    def __init__(self, *, limits: ServerLimits, waiting: WaitingConnections, **given: Any) -> None:
        super().__init__(**given)
        self._limits, self._waiting = limits, waiting
        self._part: str | None = None
        self._arrival: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether no request is under way."""
        return self.cycle is None or self.cycle.response_complete

    # what comes in

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._waiting.new[self] = None
        if len(self.connections) > self._limits.connections:
            self._waiting.end_one()
        self._time_arrival("head")

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.is_waiting:
            self._waiting.remove(self)
        self._time_arrival({h11.IDLE: "head", h11.SEND_BODY: "body"}.get(self.conn.their_state))

    def _time_arrival(self, part: str | None) -> None:
        """Begin to measure the time of the part of a request that is arriving; None: it is all there. The application
        gives up a body first, because it can say so."""
        if part == self._part and self._arrival is not None:
            return
        if self._arrival is not None:
            self._arrival.cancel()
        self._part, self._arrival = part, None
        if part is not None:
            seconds = self._limits.head_seconds + (self._limits.body_seconds if part == "body" else 0)
            self._arrival = self.loop.call_later(seconds, self.end)

    def send_400_response(self, msg: str) -> None:
        """A request that cannot be read, or whose head is too large, is refused as a problem."""
        if self.conn.our_state not in (
            h11.IDLE,
            h11.SEND_RESPONSE,
        ):  # an answer to another request is on its way
            self.end()
            return
        size = self._limits.head
        refusal = f"the request is no HTTP/1.1, or its first line and headers are over {size:,} bytes"
        body = problem_body(BadInput(refusal), "-")
        headers = [("content-type", PROBLEM), ("content-length", str(len(body))), ("connection", "close")]
        for event in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
        log.info("request=- client=%s status=400 unreadable", self.client[0] if self.client else "-")

    # what goes out

    def on_response_complete(self) -> None:
        self._waiting.remove(self)
        self._waiting.served[self] = None
        super().on_response_complete()
        if not self.is_waiting:  # the next request had come already
            self._waiting.remove(self)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._time_stall(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _time_stall(self, left: int) -> None:
        self._stall = self.loop.call_later(self._limits.stalled_seconds, self._check_stall, left)

    def _check_stall(self, left: int) -> None:
        now = self.transport.get_write_buffer_size()
        if now >= left:
            self.transport.abort()
        else:
            self._time_stall(now)

    # the end

    def end(self) -> None:
        """Close it, also where the client does not take what it is sent."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def timeout_keep_alive_handler(self) -> None:
        self.end()

    def shutdown(self) -> None:
        """Called when the server ends: what is under way is answered, and what is on its way is refused."""
        if self.is_waiting:
            self.loop.call_later(LAST_CALL, self._shut_down)
        else:
            super().shutdown()

    def _shut_down(self) -> None:
        if not self.transport.is_closing():
            super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        self._waiting.remove(self)
        for timer in (self._arrival, self._stall):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()


class HttpServer(uvicorn.Server):
    """Runs a book's server on a socket until it is told to stop, or by SIGTERM or Ctrl-C, and ends it gracefully: the
    port is closed at once, streams end, calls that are under way are finished and answered, others are refused."""

    def __init__(
        self,
        server: BookServer,
        *,
        behind_proxy: bool = False,
        started: Callable[[], None] = lambda: None,
        **tls: Any,
    ) -> None:
        limits = server.limits
        config = uvicorn.Config(
            server, http=partial(ClientConnection, limits=limits, waiting=WaitingConnections()),  # type: ignore[arg-type]
            backlog=ACCEPTED, ws="none", lifespan="on", log_config=None, access_log=False, server_header=False,
            timeout_graceful_shutdown=GRACE, timeout_keep_alive=limits.idle_seconds,  # type: ignore[arg-type]
            h11_max_incomplete_event_size=limits.head,
            # A proxy on this host may name the client's address, which the log shows and by which requests are counted.
            proxy_headers=behind_proxy, forwarded_allow_ips="127.0.0.1,::1", **tls,
        )  # fmt: skip
        config.load()
        super().__init__(config)
        self._server, self._tell_started = server, started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(QUEUED)  # asyncio takes one number for both
        self._tell_started()  # once it can be ended gracefully

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        began = monotonic()
        self._server.ends_at = began + GIVEN_UP
        self._server.closing.set()
        await super().shutdown(sockets)
        log.info("server=ended ms=%d", (monotonic() - began) * 1000)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGTERM and Ctrl-C end the server, and having been ended is no failure. Only a main thread hears them."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.signal(each, self.handle_exit) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens. Its protocol is named, because asyncio sets TCP_NODELAY only where it is: without that
    every answer waits 40 ms for an acknowledgement."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # its connections inherit it
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED * 1000)
    try:
        listening.bind((host, port))
        listening.listen(QUEUED)
    except (OSError, OverflowError) as error:
        listening.close()
        raise EngineUnavailable(f"cannot listen on {host}:{port}: {error}. Choose another --port") from error
    return listening
