"""Servers and networks that say nothing: every call ends, in time and with a typed error."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

from commonplace import Book, Busy, EngineUnavailable, OutcomeUnknown

from . import Result, fault
from .places import Place, place

NETWORKED = ("postgres", "redis")


class Proxy:
    """A TCP port on this host that leads to a server's socket, and can fall silent.

    Silent, it still takes what it is sent (so that TCP notices nothing) and passes nothing on, in either direction.
    `until_sent` lets the server have the next bytes that hold this text first: what they ask for is done, and the
    answer is lost.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._speaking = threading.Event()
        self._speaking.set()
        self._open = list[socket.socket]()
        self.until_sent = b""
        self.sends_left: int | None = None
        """After how many more pieces from the client it falls silent; None: never by itself."""
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def silent(self) -> bool:
        return not self._speaking.is_set()

    @silent.setter
    def silent(self, silent: bool) -> None:
        (self._speaking.clear if silent else self._speaking.set)()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listening.accept()
                self._open.append(client)
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                self._open.append(server)
                for pump in (self._from_client, self._from_server):
                    threading.Thread(target=pump, args=(client, server), daemon=True).start()

    def _from_client(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                last = bool(self.until_sent) and self.until_sent in data
                if self.sends_left is not None:
                    self.sends_left -= 1
                    last = last or self.sends_left < 0
                if last:
                    self.silent = True
                if last or not self.silent:
                    server.sendall(data)
            server.shutdown(socket.SHUT_WR)

    def _from_server(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                if not self.silent:
                    client.sendall(data)
            if not self.silent:
                client.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        for one in (self._listening, *self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


@contextmanager
def behind_a_proxy(home: Place) -> Iterator[tuple[Proxy, Place]]:
    """The same place, reached through a proxy."""
    if home.kind == "postgres":
        from psycopg.conninfo import conninfo_to_dict

        given = conninfo_to_dict(home.url)
        proxy = Proxy(f"{given['host']}/.s.PGSQL.{given.get('port', 5432)}")
        user, password = given.get("user", ""), given.get("password", "")
        url = f"postgresql://{user}:{password}@127.0.0.1:{proxy.port}/{given.get('dbname', '')}"
        url += "?sslmode=disable&gssencmode=disable"
    else:
        proxy = Proxy(urlsplit(home.url).path)
        url = f"redis://127.0.0.1:{proxy.port}/0"
    try:
        yield proxy, Place(home.kind, url, home.name, home.files)
    finally:
        proxy.close()


@contextmanager
def quicker() -> Iterator[None]:
    """With less room beyond the caller's own time, so that many cases take little of ours."""
    with ExitStack() as patched:
        for module in ("postgres", "redis"):
            patched.enter_context(mock.patch(f"commonplace.engines.{module}.MARGIN", 0.5))
        yield


def follow(book: Book) -> None:
    list(book.watch(after=0, timeout=TIMEOUT))


CALLS: dict[str, Callable[[Book], Any]] = {
    "record": lambda book: book.record("agent.spoke", payload={"text": "hello"}),
    "retry": lambda book: book.record("agent.spoke", id="first", run_id="run-1", payload={"text": "hello"}),
    "remember": lambda book: book.remember("tea is at four in the kitchen"),
    "events": lambda book: list(book.events()),
    "head": lambda book: book.head,
    "runs": lambda book: book.runs.list(),
    "rights": lambda book: book.as_actor("ada").access.rights(),
    "claim": lambda book: book.work(id="w").claim("dev"),
    "watch": follow,
    "lease": lambda book: book.ledger.store.lease("a lease", "somebody", 5),
    "verify": lambda book: book.verify(),
    "rebuild": lambda book: book.rebuild(),
    "search": lambda book: book.search("tea"),
}
TIMEOUT = 0.6
ROOM = 12.0
"""How long a case may take on a busy machine. Without a deadline it takes for ever, or half a minute."""


def one_silence(home: Place, rng: random.Random) -> tuple[str, str, list[str]]:
    """One call while the network falls silent at some moment of it: what was done, what came of it, what is wrong."""
    name = rng.choice(list(CALLS))
    sends = rng.randrange(5)
    wrong = list[str]()
    with behind_a_proxy(home) as (proxy, there):
        book = there.open(timeout=TIMEOUT)
        try:
            book.record("agent.spoke", id="first", run_id="run-1", payload={"text": "hello"})
            head = book.head
            proxy.sends_left = sends
            began = time.monotonic()
            try:
                CALLS[name](book)
                outcome = "done before"
            except (EngineUnavailable, Busy, OutcomeUnknown) as error:
                outcome = type(error).__name__
            took = time.monotonic() - began
            if took > ROOM:
                wrong.append(f"{name} took {took:.1f} s")
            proxy.sends_left, proxy.silent = None, True
            began = time.monotonic()
        finally:
            book.close()
        if time.monotonic() - began > ROOM:
            wrong.append(f"close took {time.monotonic() - began:.1f} s")
    with home.open() as book:
        if book.head > head and outcome not in ("OutcomeUnknown", "done before"):
            wrong.append(f"{name} answered {outcome}, and was recorded")
        if not book.verify().ok:
            wrong.append("the book does not verify")
    return f"{home.kind}, {name}, silent after {sends} sends", outcome, wrong


@fault(31, "silent", 300, 4)
def fault_31_silent(count: int, seed: int, tmp: Path) -> Result:
    """`count` calls to PostgreSQL and Valkey through a proxy that takes everything and passes nothing on, from a random
    moment on."""
    result = Result()
    homes = {}
    for case in range(count):
        kind = NETWORKED[(seed + case) % len(NETWORKED)]
        homes[case] = place(kind, tmp)
        with homes[case].open() as book:
            book.work(name="w", id="w").add_tasks([{"title": "one"}])
    with quicker(), ThreadPoolExecutor(8) as threads:
        running = {
            case: threads.submit(one_silence, home, random.Random(seed + case))
            for case, home in homes.items()
        }
        for case, run in running.items():
            result.cases += 1
            try:
                told, outcome, wrong = run.result()
            except Exception as error:  # noqa: BLE001  an error of no known type is a finding
                told, outcome = homes[case].kind, "UNTYPED"
                wrong = [f"raises {type(error).__name__}: {error}"]
            result.outcomes[f"{homes[case].kind} {outcome}"] += 1
            result.problem(f"{told} (seed {seed + case})", *wrong)
    for home in homes.values():
        home.drop()
    return result
