"""A book behind a server in this process, for tests of what goes over the wire."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from commonplace import Book
from commonplace.surfaces.http.limits import ServerLimits
from commonplace.surfaces.serving import book_server, listen

LEDGERS: dict[str, Any] = {}
"""The ledgers of the books that are served here, by their URLs."""


def ledger_below(holder: Any) -> Any:
    """The ledger itself of a book or of a handle, to set a scene with; also of one behind a server of this process."""
    remote = holder._session.remote
    return holder._session.ledger if remote is None else LEDGERS[remote.connection.url]


class Served:
    """A server that runs on a thread. `token` is the owner's."""

    def __init__(
        self, book: Book, limits: ServerLimits = ServerLimits(), *, port: int = 0, **uvicorn_options: Any
    ) -> None:
        self.token = "the-owner-of-this-test"
        self.app = book_server(book, self.token, limits=limits)
        listening = listen("127.0.0.1", port)
        scheme = "https" if "ssl_certfile" in uvicorn_options else "http"
        self.url = f"{scheme}://127.0.0.1:{listening.getsockname()[1]}"
        LEDGERS[self.url] = book.ledger
        config = uvicorn.Config(
            self.app,
            log_config=None,
            access_log=False,
            lifespan="on",
            timeout_graceful_shutdown=10,
            **uvicorn_options,
        )
        self._server = uvicorn.Server(config)
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(listening,), daemon=True)
        self._thread.start()  # connections wait in the socket's queue until it serves

    def _run(self, listening: object) -> None:
        self._server.run(sockets=[listening])  # type: ignore[list-item]

    def stop(self) -> None:
        self.app.closing.set()
        self._server.should_exit = True
        self._thread.join(30)
        LEDGERS.pop(self.url, None)
        assert not self._thread.is_alive()


@contextmanager
def served(book: Book, limits: ServerLimits = ServerLimits(), **how: Any) -> Iterator[Served]:
    """A server of a book, until the block ends."""
    server = Served(book, limits, **how)
    try:
        yield server
    finally:
        server.stop()
