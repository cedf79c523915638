"""A book behind a server in this process, for tests of what goes over the wire."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from commonplace import Book
from commonplace.surfaces.http.connections import HttpServer, listen
from commonplace.surfaces.http.limits import ServerLimits
from commonplace.surfaces.serving import book_server


class Served:
    """A server that runs on a thread. `token` is the owner's."""

    def __init__(self, book: Book, limits: ServerLimits = ServerLimits(), groups: Sequence[str] = ()) -> None:
        self.token = "the-owner-of-this-test"
        self.app = book_server(book, self.token, limits=limits, groups=groups)
        listening = listen("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self._server = HttpServer(self.app)
        self._thread = threading.Thread(target=self._run, args=(listening,), daemon=True)
        self._thread.start()  # connections wait in the socket's queue until it serves

    def _run(self, listening: object) -> None:
        self._server.run(sockets=[listening])  # type: ignore[list-item]

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(30)
        assert not self._thread.is_alive()


@contextmanager
def served(book: Book, limits: ServerLimits = ServerLimits(), groups: Sequence[str] = ()) -> Iterator[Served]:
    """A server of a book, until the block ends."""
    server = Served(book, limits, groups)
    try:
        yield server
    finally:
        server.stop()
