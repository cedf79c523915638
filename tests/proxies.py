"""Between a client and a server on loopback: a proxy that breaks calls on purpose, and servers that say too little."""

from __future__ import annotations

import random
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import urllib3

FATES = ("pass", "pass", "pass", "lost", "unanswered", "doubled", "cut", "502 before", "502 after", "late")
"""What may become of a request: it passes; it is lost before the server has it; the server has it and the answer is
lost; it arrives twice; its answer is cut off; another proxy says 502 before or after the server had it; it waits. With
"closing" it passes, and the connection is closed after its answer."""


class Proxy(ThreadingHTTPServer):
    """Passes requests on to `upstream`, each with the fate that `fate(path)` says."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, upstream: str, fate: Callable[[str], str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream, self.fate = upstream, fate
        self.met: Counter[str] = Counter()
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.http = urllib3.PoolManager(retries=False, timeout=30)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: object) -> None:
        """A client that has gone away is what is provoked here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        fate = self.server.fate(self.path)
        self.server.met[fate] += 1
        self.server.seen.append((self.path, headers))
        if fate == "late":
            threading.Event().wait(0.05)
        if fate in ("lost", "502 before"):
            self._end(fate)
            return
        for _ in range(2 if fate == "doubled" else 1):
            got = self.server.http.request(
                self.command, self.server.upstream + self.path, body=body or None, headers=headers
            )
        if fate in ("unanswered", "502 after"):
            self._end(fate)
            return
        self.send_response(got.status)
        for name, value in got.headers.items():
            if name.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(got.data)))
        if fate == "closing":
            self.send_header("Connection", "close")
        self.end_headers()
        if fate == "cut":
            self.wfile.write(got.data[: len(got.data) // 2])
            self.close_connection = True
        else:
            self.wfile.write(got.data)

    do_GET = do_POST = _pass

    def _end(self, fate: str) -> None:
        self.close_connection = True
        if fate.startswith("502"):
            self.send_response(502)
            self.send_header("Content-Length", "4")
            self.end_headers()
            self.wfile.write(b"nope")


def at_random(seed: int) -> Callable[[str], str]:
    """A fate for each request by chance; the first call, which asks which book it is, passes."""
    chance, lock = random.Random(seed), threading.Lock()

    def fate(path: str) -> str:
        with lock:
            return "pass" if path == "/v1/book" else chance.choice(FATES)

    return fate


@contextmanager
def proxied(upstream: str, fate: Callable[[str], str]) -> Iterator[Proxy]:
    with Proxy(upstream, fate) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()
            proxy.http.clear()


@contextmanager
def saying(*parts: bytes, again: bytes = b"") -> Iterator[str]:
    """The URL of a server that takes any connection, says these parts once, then `again` every few milliseconds, and
    never ends by itself."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0), backlog=16) as listening:

        def serve() -> None:
            taken = []
            while not over.is_set():
                try:
                    connection, _ = listening.accept()
                except OSError:
                    break
                taken.append(connection)
                talker = threading.Thread(target=talk, args=(connection,), daemon=True)
                talker.start()
            for connection in taken:
                connection.close()

        def talk(connection: socket.socket) -> None:
            try:
                for part in parts:
                    connection.sendall(part)
                while again and not over.wait(0.02):
                    connection.sendall(again)
            except OSError:
                return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            over.set()
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


@contextmanager
def full() -> Iterator[str]:
    """The URL of a place that answers no attempt to connect: its queue is full, and nobody takes from it."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening:
        place, waiting = listening.getsockname(), []
        for _ in range(4):
            trying = socket.socket()
            trying.setblocking(False)
            trying.connect_ex(place)
            waiting.append(trying)
        try:
            yield f"http://127.0.0.1:{place[1]}"
        finally:
            for each in waiting:
                each.close()


@contextmanager
def scripted(answer: Callable[[str, int], tuple[int, bytes] | None], *, seen: bool = False) -> Iterator[str]:
    """A server that answers the n-th request for a path with this status and body, or breaks the connection (None). It
    says of itself that it is a server of ours, and that it has looked at the key of the call, if it is `seen`."""
    counts, process = Counter[str](), "one"

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            path = self.path.partition("?")[0]
            counts[path] += 1
            if path == "/v1/book":
                said: tuple[int, bytes] | None = (200, b'{"id": "b", "name": "n", "head": 0, "actor": "ada"}')
            else:
                said = answer(path, counts[path])
            if said is None:
                self.close_connection = True
                return
            status, body = said
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Commonplace-Instance", f"{process}.5")
            if seen:
                self.send_header("Commonplace-Key", "seen")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = _answer

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
