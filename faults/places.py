"""Where fault runs keep their books: every engine, real servers included, and processes that use them."""

from __future__ import annotations

import multiprocessing
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import commonplace
from commonplace.engines import locate
from commonplace.testing.servers import Server, postgres_server, valkey_server

DURABLE = ("sqlite", "files", "postgres", "redis")
SERVED = ("sqlite", "postgres", "redis")
ALL = ("memory", *DURABLE)

_servers: dict[str, Server] = {}
_running = ExitStack()


def server(kind: str) -> Server:
    """The server behind an engine, started when first asked for."""
    if kind not in _servers:
        start = postgres_server if kind == "postgres" else valkey_server
        _servers[kind] = _running.enter_context(start(shared=True))
    return _servers[kind]


def stop_servers() -> None:
    _servers.clear()
    _running.close()


@dataclass(frozen=True)
class Place:
    """One book's home. `files`: the folder with the raw bytes of its store; None where nobody can look."""

    kind: str
    url: str
    name: str
    files: Path | None

    def open(self, **options: Any) -> commonplace.Book:
        return commonplace.open(self.url, name=self.name, **options)

    def drop(self) -> None:
        engine, name = locate(self.url, self.name)
        engine.drop(name)
        engine.close()


def place(kind: str, folder: Path, name: str | None = None) -> Place:
    """A home where there is no book yet."""
    fresh = uuid.uuid4().hex[:12]
    if kind == "memory":
        return Place(kind, "memory:", name or fresh, None)
    if kind in ("sqlite", "files"):
        home = folder / f"{kind}-{fresh}"
        home.mkdir(parents=True)
        path = home / "book.db" if kind == "sqlite" else home / "book"
        return Place(kind, f"{'file:' if kind == 'files' else ''}{path}", name or "book", home)
    running = server(kind)
    return Place(kind, running.url, name or f"fault-{fresh}", running.data_dir)


def url_of(home: Place) -> str:
    """The place as one string, as a person would write it."""
    if home.kind not in ("postgres", "redis"):
        return home.url
    return f"{home.url}{'&' if '?' in home.url else '?'}book={quote(home.name, safe='')}"


WORK = ("commonplace.work.leading", "commonplace.work.worker", "faults.work")


def _context() -> multiprocessing.context.ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    engines = [f"commonplace.engines.{engine}" for engine in ("sqlite", "files", "postgres", "redis")]
    context.set_forkserver_preload(["commonplace", "commonplace.ledger.transfer", *engines, *WORK])
    return context


PROCESSES = _context()


class Worker:
    """A process that runs `work(say, *args)` and tells what it does through `say`."""

    def __init__(self, work: Callable[..., None], *args: object) -> None:
        self.heard, say = PROCESSES.Pipe(duplex=False)
        self.process = PROCESSES.Process(target=partial(_tell, work), args=(say, *args), daemon=True)
        self.process.start()
        say.close()

    def listen(self, timeout: float) -> Any:
        """The next thing it says; EOFError when it has ended, TimeoutError when it says nothing for long."""
        if not self.heard.poll(timeout):
            raise TimeoutError
        return self.heard.recv()

    def rest(self, timeout: float = 300.0) -> list[Any]:
        """All that it still says until it ends."""
        said = []
        try:
            while True:
                said.append(self.listen(timeout))
        except EOFError:
            self.process.join(timeout)
        return said

    def kill(self) -> None:
        self.process.kill()
        self.process.join()


def _tell(work: Callable[..., None], say: Connection, *args: object) -> None:
    try:
        work(say, *args)
    except Exception as error:  # noqa: BLE001  whoever started this process hears of it
        say.send(f"failed: {error!r}")
    say.close()
