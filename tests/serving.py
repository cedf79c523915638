"""A book behind a server in this process, for tests of what goes over the wire."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from commonplace import Book
from commonplace.surfaces.http.connections import HttpServer, listen
from commonplace.surfaces.http.limits import ServerLimits
from commonplace.surfaces.serving import book_server

LEDGERS: dict[str, Any] = {}
"""The ledgers of the books that are served here, by their URLs."""


def ledger_below(holder: Any) -> Any:
    """The ledger itself of a book or of a handle, to set a scene with; also of one behind a server of this process."""
    remote = holder._session.remote
    return holder._session.ledger if remote is None else LEDGERS[remote.connection.url]


class Served:
    """A server that runs on a thread. `token` is the owner's."""

    def __init__(
        self,
        book: Book,
        limits: ServerLimits = ServerLimits(),
        groups: Sequence[str] = (),
        *,
        port: int = 0,
        **tls: Any,
    ) -> None:
        self.token = "the-owner-of-this-test"
        self.app = book_server(book, self.token, limits=limits, groups=groups)
        listening = listen("127.0.0.1", port)
        scheme = "https" if tls else "http"
        self.url = f"{scheme}://127.0.0.1:{listening.getsockname()[1]}"
        LEDGERS[self.url] = book.ledger
        self._server = HttpServer(self.app, **tls)
        self._thread = threading.Thread(target=self._run, args=(listening,), daemon=True)
        self._thread.start()  # connections wait in the socket's queue until it serves

    def _run(self, listening: object) -> None:
        self._server.run(sockets=[listening])  # type: ignore[list-item]

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(30)
        LEDGERS.pop(self.url, None)
        assert not self._thread.is_alive()


@contextmanager
def served(
    book: Book, limits: ServerLimits = ServerLimits(), groups: Sequence[str] = (), **how: Any
) -> Iterator[Served]:
    """A server of a book, until the block ends."""
    server = Served(book, limits, groups, **how)
    try:
        yield server
    finally:
        server.stop()
