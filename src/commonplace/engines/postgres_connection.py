"""A connection to PostgreSQL on which every trip has a time limit."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.rows import TupleRow

LIMIT = 32.0
"""How many seconds one trip to the server may take unless a connection says otherwise: a little more than the longest
wait for a lock that it is asked for."""

T = TypeVar("T")


class Connection(psycopg.Connection[TupleRow]):
    """A connection on which no trip takes longer than `limit` seconds.

    libpq has no such limit. A server that has stopped, or a firewall that drops what it says, looks like one that still
    works on the answer, and as long as its kernel acknowledges what is sent, TCP notices nothing either. So when the
    time is up the socket is shut down here, and what follows is what follows a lost connection.
    """

    limit: float = LIMIT
    pooled: bool = True
    """Whether it goes back to a pool."""
    lent: bool = True
    """Whether somebody uses it."""
    holder: int = 0
    """The thread that it was lent to last."""

    def wait(self, gen: PQGen[T], *args: Any, **more: Any) -> T:
        limit, silent = self.limit, False

        def watched() -> PQGen[T]:
            nonlocal silent
            until, ready = time.monotonic() + limit, None
            while True:
                try:
                    state = gen.send(ready)  # type: ignore[arg-type]
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
                ready = yield state
                if not silent and time.monotonic() > until:
                    silent = True
                    self.shut()

        try:
            return super().wait(watched(), *args, **more)
        except psycopg.OperationalError as error:
            if silent:
                raise psycopg.OperationalError(f"the server has not answered for {limit:g} s") from error
            raise

    def shut(self) -> None:
        """End whatever waits on this connection, in any thread: it sees a lost connection."""
        with (
            suppress(OSError, psycopg.Error),  # it is closed already
            socket.socket(fileno=os.dup(self.fileno())) as same,
        ):
            same.shutdown(socket.SHUT_RDWR)
