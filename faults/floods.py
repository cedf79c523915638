"""Clients of the HTTP API that keep it busy with nothing: others do not notice."""

from __future__ import annotations

import http.client
import json
import random
import resource
import selectors
import socket
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from . import Result, fault
from .places import Worker, place, url_of
from .servers import PATIENCE, ServeProcess

GENEROUS = 15.0
"""Seconds in which a served client has each of its answers, on a busy machine."""

REOPENED = 10
"""How many connections are opened again at a time."""
POOLED = 120
"""Descriptors that a server may have more of when it has been busy: each of its threads keeps the book's files open."""

HEAD = b"POST /v1/record HTTP/1.1\r\nHost: localhost\r\n"


class Served:
    """A client that is served all the time: it writes, searches and asks, and knows what it has to be answered."""

    def __init__(self, server: ServeProcess, token: str) -> None:
        self._server, self._token = server, token
        self._number = 0
        self.problems = list[str]()

    def measure(self, seconds: float, fresh: bool = False) -> list[float]:
        """How long each answer took, in milliseconds, for so many seconds; with `fresh`, each on a connection of its
        own."""
        connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=GENEROUS)
        taken = list[float]()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._number += 1
            id = f"event-{self._number}"
            body = json.dumps({"kind": "agent.spoke", "payload": {"n": self._number}, "id": id})
            for method, path, sent in (
                ("POST", "/v1/record", body),
                ("GET", f"/v1/event?id={id}", None),
                ("GET", "/v1/search?query=lift", None),
            ):
                began = time.monotonic()
                if fresh:
                    connection.close()
                try:
                    connection.request(method, path, sent, {"Authorization": f"Bearer {self._token}"})
                    answer = connection.getresponse()
                    said = json.loads(answer.read())
                except (OSError, http.client.HTTPException, ValueError) as error:
                    self.problems.append(f"{method} {path} got no answer: {type(error).__name__} {error}")
                    connection.close()
                    continue
                taken.append((time.monotonic() - began) * 1000)
                right = answer.status == 200 and (said["results"] if "search" in path else said["id"] == id)
                if not right:
                    self.problems.append(f"{method} {path} was answered {answer.status} {said}")
        connection.close()
        return taken


@dataclass(eq=False)
class Slow:
    """One connection that sends a text byte by byte, then says nothing."""

    raw: socket.socket
    text: bytes
    sent: int = 0


class Flood:
    """Many connections. Now and then some send a byte, and one that was closed is opened again."""

    def __init__(self, port: int, texts: list[tuple[bytes, int]], rng: random.Random) -> None:
        self._port, self._texts, self._rng = port, texts, rng
        self._selector = selectors.DefaultSelector()
        self._open = list[Slow]()
        self.opened = self.closed = 0

    def begin(self) -> None:
        for text, at_once in self._texts:
            self._begin(text, at_once)

    def go_on(self) -> None:
        for key, _ in self._selector.select(0.05)[:REOPENED]:
            slow: Slow = key.data
            if self._ended(slow.raw):
                self._selector.unregister(slow.raw)
                slow.raw.close()
                self._open.remove(slow)
                self.closed += 1
                self._begin(*self._rng.choice(self._texts))
        for slow in self._rng.sample(self._open, len(self._open) // 20):
            if slow.sent < len(slow.text):
                with suppress(OSError):
                    slow.sent += slow.raw.send(slow.text[slow.sent : slow.sent + 1])
        time.sleep(0.02)

    def _begin(self, text: bytes, at_once: int) -> None:
        try:
            raw = socket.create_connection(("127.0.0.1", self._port), 1)
        except OSError:
            return
        self.opened += 1
        raw.setblocking(False)
        with suppress(OSError):
            raw.send(text[:at_once])
        slow = Slow(raw, text, at_once)
        self._open.append(slow)
        if not text.startswith(b"GET"):  # those read nothing
            self._selector.register(raw, selectors.EVENT_READ, slow)

    @staticmethod
    def _ended(raw: socket.socket) -> bool:
        try:
            return raw.recv(65536) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True


def flood(say: Connection, port: int, token: str, count: int, seed: int) -> None:
    """Make connections of every kind, until this process is killed. Says how many were opened and closed."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    rng = random.Random(seed)
    # One that takes no answer has a valid token and costs real work: there are fewer of them.
    texts = [
        texts_for(kind, token, rng)
        for kind in KINDS
        for _ in range(max(count // 20, 1) if kind == "deaf" else count)
    ]
    rng.shuffle(texts)
    crowd = Flood(port, texts, rng)
    crowd.begin()
    while True:
        say.send((crowd.opened, crowd.closed))
        crowd.go_on()


def texts_for(kind: str, token: str, rng: random.Random) -> tuple[bytes, int]:
    """What a connection of a kind sends, and how much of it at once."""
    own = b"Authorization: Bearer " + token.encode() + b"\r\n"
    match kind:
        case "idle":
            return b"", 0
        case "slow heads":
            return HEAD + b"".join(b"X-%d: y\r\n" % n for n in range(1000)), rng.randrange(40)
        case "slow bodies":
            begun = HEAD + own + b"Content-Length: 100000\r\n\r\n{"
            return begun + b" " * 100_000, len(begun)
        case "half-open":
            return HEAD + own + b"Content-Length: 20\r\n\r\n{", 1_000
        case "large heads":
            return HEAD + b"X: " + b"x" * 70_000, 75_000
        case "large bodies":
            return HEAD + own + b"Content-Length: 999999999\r\n\r\n" + b"x" * 5_000, 6_000
        case "endless bodies":
            return (
                HEAD + own + b"Transfer-Encoding: chunked\r\n\r\n" + b"ffff\r\n" + b"x" * 65_535 + b"\r\n",
                70_000,
            )
        case "no token":
            return HEAD + b"Content-Length: 100000\r\n\r\n" + b" " * 100_000, 300
        case "deaf":
            return b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n" + own + b"\r\n", 1_000
        case _:
            raise ValueError(kind)


KINDS = (
    "idle", "slow heads", "slow bodies", "half-open", "large heads", "large bodies", "endless bodies", "no token",
    "deaf",
)  # fmt: skip


def percentiles(taken: list[float]) -> tuple[float, float]:
    cut = statistics.quantiles(taken, n=100) if len(taken) > 1 else [0.0] * 99
    return round(cut[49], 1), round(cut[98], 1)


@fault(23, "floods", 1_000, 15)
def fault_23_floods(count: int, seed: int, tmp: Path) -> Result:
    """`count` connections of each of eight kinds at the same time, among them idle ones and requests that come byte by
    byte, and some that take no answer, while another client is served. It is measured before and meanwhile, in the same
    run."""
    result = Result()
    home = place("sqlite", tmp)
    seconds = 3.0 if count < 100 else 15.0
    with home.open() as book:
        book.remember("The lift stops at the fourth floor", shared=True)
        client, attacker = (book.access.tokens.create(name).secret for name in ("client", "attacker"))
        book.record_all([{"kind": "agent.spoke", "payload": {"text": "x" * 1_000}} for _ in range(1_000)])
    limits = ("head_seconds=3", "body_seconds=3", "stalled_seconds=3", "connections=6000")
    with ServeProcess(
        url_of(home), tmp / "server", *(word for limit in limits for word in ("--limits", limit))
    ) as server:
        served = Served(server, client)
        served.measure(1.0)
        used = server.used()
        before = percentiles(served.measure(seconds)), percentiles(served.measure(seconds, fresh=True))
        flooding = Worker(flood, server.port, attacker, count, seed)
        opened, closed = flooding.listen(PATIENCE * 3)
        during = percentiles(served.measure(seconds)), percentiles(served.measure(seconds, fresh=True))
        until = time.monotonic() + PATIENCE
        while flooding.heard.poll(0) or (not closed and time.monotonic() < until):
            opened, closed = flooding.listen(PATIENCE * 3)
        flooding.kill()
        room = used["descriptors"] + POOLED
        wait_until(lambda: server.used()["descriptors"] <= room)
        after = percentiles(served.measure(seconds / 3))
        now = server.used()
        if now["descriptors"] > room:
            result.problem(f"seed {seed}", f"the server holds {now}, and held {used} before")
        result.problem(f"seed {seed}", *served.problems)
        if (code := server.end()) != 0:
            result.problem(f"seed {seed}", f"the server ended with {code}")
        log = server.log.read_text()
        for line in log.splitlines():
            if "Traceback" in line or client in line or attacker in line:
                result.problem(f"seed {seed}", f"the log has {line[:200]}")
    result.cases = opened
    result.outcomes["connections"], result.outcomes["closed by the server"] = opened, closed
    for name, (p50, p99) in {
        "before": before[0], "before, new connections": before[1], "during": during[0],
        "during, new connections": during[1], "after": after,
    }.items():  # fmt: skip
        result.figures |= {f"p50 ms {name}": p50, f"p99 ms {name}": p99}
    home.drop()
    return result


def wait_until(done: Callable[[], bool]) -> None:
    """Wait for something, as long as a busy machine may need."""
    until = time.monotonic() + PATIENCE
    while not done() and time.monotonic() < until:
        time.sleep(0.05)
