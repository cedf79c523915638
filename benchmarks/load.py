"""Many clients of one book at once, who write, do tasks and recall: over HTTP, with our own Python client, or in
processes that open the book themselves. What is counted is the same for all.

Each client goes on without a pause: it takes a step at random, waits for its answer, and takes the next one. Every
acknowledged write is noted, and `lost_or_doubled` compares the notes with the ledger afterwards.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import commonplace
from commonplace import Book
from commonplace.errors import CommonplaceError, TooManyRequests

from .memory import AT_RANDOM, WORDS, sentence

MIX = {"record": 30, "remember": 20, "task": 20, "search": 20, "digest": 10}
"""Of a hundred steps. A task is two calls: it is claimed and completed."""
WRITING = ("record", "remember", "claim", "complete", "digest")
"""Calls that are durable when they are answered: a digest leaves its receipt."""
CALLS = ("record", "remember", "claim", "complete", "search", "digest")
WORK = "load"
LEASE = 3_600.0
PATIENCE = 60.0
"""After how many seconds without an answer a client gives up, which is an error."""
SERVE = (sys.executable, "-m", "commonplace")


@dataclass
class Outcome:
    """What came of some clients: the seconds of each call, and what was acknowledged."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    made: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """By call the ids of what it made: events, items, receipts, tasks."""
    busy: int = 0
    """How often a server said 429. The client waited as long as it said, and asked again."""
    errors: list[str] = field(default_factory=list)
    cpu: float = 0.0
    """The CPU time of the processes with the clients."""
    lasted: float = 0.0

    def note(self, call: str, seconds: float, made: str) -> None:
        self.seconds[call].append(seconds)
        if made:
            self.made[call].append(made)

    def add(self, other: Outcome) -> None:
        for call, seconds in other.seconds.items():
            self.seconds[call] += seconds
        for call, ids in other.made.items():
            self.made[call] += ids
        self.busy += other.busy
        self.errors += other.errors
        self.cpu += other.cpu
        self.lasted += other.lasted

    @property
    def calls(self) -> int:
        return sum(map(len, self.seconds.values()))

    @property
    def writes(self) -> int:
        return sum(len(self.seconds[call]) for call in WRITING)


Steps = Generator[tuple[str, dict[str, Any]], Any, None]


def steps(rng: random.Random) -> Steps:
    """The calls of one client, for ever: their names and arguments. What a claim answers is sent back."""
    names, weights = list(MIX), list(MIX.values())
    for name in iter(lambda: rng.choices(names, weights)[0], ""):
        query = f"what about the {' and the '.join(rng.sample(WORDS, 3))}"
        match name:
            case "record":
                payload = {"text": f"{sentence(rng)}, {sentence(rng)}"}
                yield "record", {"kind": "agent.spoke", "payload": payload}
            case "remember":
                yield "remember", {"text": sentence(rng), "shared": True, "override": AT_RANDOM}
            case "task":
                claimed = yield "claim", {"lease": LEASE}
                yield "complete", claimed
            case "search":
                yield "search", {"query": query}
            case "digest":
                yield "digest", {"query": query}


class NothingLeft(Exception):
    """There was no task left to claim: the load was prepared too small."""


# ways to the book


PATHS = {"claim": "work/claim", "complete": "claim/complete"}
"""Of calls whose path is not their name."""


class HttpClient:
    """One connection that is kept, with a token of its own: what any program would send, and no more. It parses as
    little as it can, so that the clients do not take the processors away from the server."""

    def __init__(self, url: str, token: str) -> None:
        self._host, self._port = urlsplit(url).hostname, urlsplit(url).port
        self._head = (
            f" HTTP/1.1\r\nHost: {self._host}:{self._port}\r\nAuthorization: Bearer {token}\r\n"
            "Content-Type: application/json\r\nContent-Length: "
        )

    async def open(self) -> None:
        self._from, self._to = await asyncio.open_connection(self._host, self._port)

    async def close(self) -> None:
        self._to.close()
        await self._to.wait_closed()

    async def call(self, name: str, given: dict[str, Any]) -> tuple[str, Any]:
        """The id of what a call has made, and what the next call needs of its answer. Raises Busy."""
        if name == "claim":
            given = {"work": WORK, **given}
        status, headers, answer = await self._post(PATHS.get(name, name), given)
        if status == 429:
            raise Busy(float(headers[b"retry-after"]))
        if status != 200:
            raise ServerRefused(f"{name}: {status} {answer[:300].decode(errors='replace')}")
        if name == "search":
            return "", None
        told = json.loads(answer)
        match name:
            case "claim":
                if told is None:
                    raise NothingLeft
                return told["task"]["id"], {"task": told["task"]["id"], "token": told["token"]}
            case "remember":
                return told["item_id"], None
            case "digest":
                return told["receipt_id"], None
        return told["id"], None

    async def _post(self, path: str, given: dict[str, Any]) -> tuple[int, dict[bytes, bytes], bytes]:
        body = json.dumps(given).encode()
        self._to.write(f"POST /v1/{path}{self._head}{len(body)}\r\n\r\n".encode() + body)
        first, *lines = (await self._from.readuntil(b"\r\n\r\n")).split(b"\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
        return int(first.split()[1]), headers, await self._from.readexactly(int(headers[b"content-length"]))


class Busy(Exception):
    """The server said 429."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class ServerRefused(Exception):
    """The server answered with a status that it should not have answered with."""


class PythonClient:
    """An actor of a book that is opened here, or behind a server."""

    def __init__(self, me: Any) -> None:
        self._me, self._work = me, me.work(id=WORK)

    def call(self, name: str, given: Any) -> tuple[str, Any]:
        match name:
            case "record":
                return self._me.record(given["kind"], payload=given["payload"]).id, None
            case "remember":
                return self._me.remember(**given).id, None
            case "claim":
                claim = self._work.claim(**given)
                if claim is None:
                    raise NothingLeft
                return claim.task.id, claim
            case "complete":
                return given.complete().id, None
            case "digest":
                return self._me.digest(**given).receipt_id, None
        self._me.search(**given)
        return "", None


# clients


async def over_http(client: HttpClient, rng: random.Random, until: float, outcome: Outcome) -> None:
    """The steps of one client until that time. A task that it has begun is finished."""
    doing = steps(rng)
    name, given = next(doing)
    while time.monotonic() < until or name == "complete":
        began = time.monotonic()
        while True:
            try:
                async with asyncio.timeout(PATIENCE):
                    made, answer = await client.call(name, given)
                break
            except Busy as busy:
                outcome.busy += 1
                await asyncio.sleep(busy.seconds)
            except (ServerRefused, NothingLeft, OSError, EOFError, TimeoutError) as error:
                outcome.errors.append(f"{name}: {error!r}")
                return
        outcome.note(name, time.monotonic() - began, made)
        name, given = doing.send(answer)


def by_python(client: PythonClient, rng: random.Random, until: float, outcome: Outcome) -> None:
    doing = steps(rng)
    name, given = next(doing)
    while time.monotonic() < until or name == "complete":
        began = time.monotonic()
        while True:
            try:
                made, answer = client.call(name, given)
                break
            except TooManyRequests:  # our own client has waited and asked again until its deadline
                outcome.busy += 1
            except (CommonplaceError, NothingLeft) as error:
                outcome.errors.append(f"{name}: {error!r}")
                return
        outcome.note(name, time.monotonic() - began, made)
        name, given = doing.send(answer)


# processes with clients


class Clients(NamedTuple):
    """Clients in one process: a connection each, or one for all where a book is opened (`way` "direct")."""

    way: str
    url: str
    names: tuple[str, ...]
    tokens: tuple[str, ...] = ()

    def run(self, told: Connection) -> None:
        """Open, say so, and then for each number of seconds and seed that is told say what came of it. None ends."""
        {"http": self._http, "python": self._python, "direct": self._direct}[self.way](told)

    def _http(self, told: Connection) -> None:
        asyncio.run(self._over_http(told))

    async def _over_http(self, told: Connection) -> None:
        clients = [HttpClient(self.url, token) for token in self.tokens]
        for client in clients:
            await client.open()
        await clients[0].call("search", {"query": "warm up"})
        told.send("open")
        while (asked := await asyncio.to_thread(told.recv)) is not None:
            with measured(told) as outcome:
                until = time.monotonic() + asked[0]
                async with asyncio.TaskGroup() as group:
                    for n, client in enumerate(clients):
                        rng = random.Random(f"{asked[1]}/{self.names[n]}")
                        group.create_task(over_http(client, rng, until, outcome))
        for client in clients:
            await client.close()

    def _python(self, told: Connection) -> None:
        books = [commonplace.open(self.url, token=token, timeout=PATIENCE) for token in self.tokens]
        self._by_python(told, books)
        for book in books:
            book.close()

    def _direct(self, told: Connection) -> None:
        with commonplace.open(self.url) as book:
            self._by_python(told, [book.as_actor(name) for name in self.names])

    def _by_python(self, told: Connection, actors: Sequence[Any]) -> None:
        clients = [PythonClient(actor) for actor in actors]
        actors[0].search("warm up")
        told.send("open")
        with ThreadPoolExecutor(len(clients)) as threads:
            while (asked := told.recv()) is not None:
                with measured(told) as outcome:
                    until = time.monotonic() + asked[0]
                    doing = [
                        threads.submit(by_python, client, random.Random(f"{asked[1]}/{name}"), until, outcome)
                        for name, client in zip(self.names, clients, strict=True)
                    ]
                    for each in doing:
                        each.result()


@contextmanager
def measured(told: Connection) -> Iterator[Outcome]:
    """What came of the block is sent when it ends."""
    outcome, began, cpu = Outcome(), time.monotonic(), time.process_time()
    yield outcome
    outcome.lasted, outcome.cpu = time.monotonic() - began, time.process_time() - cpu
    told.send(outcome)


class Processes:
    """Processes with clients, whose books and connections are open."""

    def __init__(self, clients: Sequence[Clients]) -> None:
        spawn = multiprocessing.get_context("spawn")
        pipes = [spawn.Pipe() for _ in clients]
        self._pipes = [here for here, _ in pipes]
        self._processes = [
            spawn.Process(target=each.run, args=(there,), daemon=True)
            for each, (_, there) in zip(clients, pipes, strict=True)
        ]
        for process in self._processes:
            process.start()
        for _, there in pipes:
            there.close()  # so that a process that dies is noticed
        for pipe in self._pipes:
            assert pipe.recv() == "open"

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes if process.pid is not None]

    def run(self, seconds: float, seed: int) -> Outcome:
        """What came of all clients, for so many seconds. They begin together."""
        for pipe in self._pipes:
            pipe.send((seconds, seed))
        outcomes = [pipe.recv() for pipe in self._pipes]
        whole = Outcome()
        for outcome in outcomes:
            whole.add(outcome)
        whole.lasted = max(outcome.lasted for outcome in outcomes)
        return whole

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join()

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            for process in self._processes:
                process.kill()
        else:
            self.close()


# the server


class Server(NamedTuple):
    url: str
    pid: int


@contextmanager
def serving(book: str, folder: Path) -> Iterator[Server]:
    """`commonplace serve` as a process of its own; its log is in the folder. It has to end cleanly."""
    with (folder / "serve.log").open("ab") as log:
        process = subprocess.Popen(
            [*SERVE, "--book", book, "--json", "serve", "--port", "0", "--token-file", str(folder / "token")],
            stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, (folder / "serve.log").read_text()
        told = json.loads(line)
        yield Server(told["url"], told["pid"])
        process.terminate()
        assert process.wait(60) in (0, -signal.SIGTERM), (folder / "serve.log").read_text()[-2_000:]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


# the book


def prepare(book: Book, tasks: int, items: int) -> None:
    """A work with so many tasks that are ready, and so many items of the team."""
    rng, work = random.Random(7), book.work(name=WORK, id=WORK)
    for begin in range(0, tasks, 500):
        work.add_tasks([{"title": f"look at page {n}"} for n in range(begin, min(begin + 500, tasks))])
    for begin in range(0, items, 100):
        book.memory.add_many(
            [{"text": sentence(rng), "override": AT_RANDOM} for _ in range(min(100, items - begin))]
        )
    book.admin.reindex()


def tokens(book: Book, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(book.access.tokens.create(name).secret for name in names)


def shared_out(names: Sequence[str], make: Callable[[tuple[str, ...]], Clients], count: int) -> list[Clients]:
    """The clients of these names in so many processes."""
    return [make(tuple(names[n::count])) for n in range(count)]


def behind(book: Book, url: str, way: str, names: Sequence[str], processes: int) -> list[Clients]:
    """Clients of a server, each with a token of its own."""
    return shared_out(names, lambda some: Clients(way, url, some, tokens(book, some)), processes)


def beside(url: str, names: Sequence[str]) -> list[Clients]:
    """Processes that open the book themselves, one for each name."""
    return shared_out(names, partial(Clients, "direct", url), len(names))


def lost_or_doubled(book: Book, outcome: Outcome) -> list[str]:
    """What the ledger lacks of what was acknowledged, or has and nobody was told of. No client has had an error."""
    counts, ids, completed, claimed = Counter[str](), set[str](), Counter[str](), Counter[str]()
    for event in book.events():
        counts[event.kind] += 1
        ids.add(event.id)
        if event.kind == "task.completed":
            completed[event.payload["task_id"]] += 1
        if event.kind == "task.claimed":
            claimed[event.payload["task_id"]] += 1
    wrong = [
        f"{len(missing):,} of {call} were acknowledged and are not in the ledger"
        for call in ("record", "remember", "digest")
        if (missing := set(outcome.made[call]) - ids)
    ]
    for call, told in (("claim", claimed), ("complete", completed)):
        if twice := [task for task, times in told.items() if times > 1]:
            wrong.append(f"{len(twice):,} tasks were there twice by {call}")
        if Counter(outcome.made[call]) != told:
            wrong.append(f"{call}: {len(outcome.made[call]):,} were acknowledged, {told.total():,} recorded")
    if counts["agent.spoke"] != len(outcome.made["record"]):
        wrong.append(f"{counts['agent.spoke']:,} recorded, {len(outcome.made['record']):,} acknowledged")
    verified = book.verify()
    if not verified.ok:
        wrong.append(f"verify: {verified}")
    return wrong


# what processes use


TICK = os.sysconf("SC_CLK_TCK")


def cpu_of(pids: Sequence[int], ended: bool = False) -> float:
    """The CPU seconds of processes that run; with `ended`, also those of their children that have ended."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += sum(map(int, fields[11 : 15 if ended else 13]))
    return total / TICK


def busy_seconds() -> float:
    """How long the processors of this machine were busy since it started."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    return (sum(map(int, fields[:8])) - int(fields[3]) - int(fields[4])) / TICK


def megabytes(pid: int, what: str = "VmHWM") -> float:
    """The memory of a process: the most that it had, or what it has (VmRSS)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) / 1024
    return 0.0
