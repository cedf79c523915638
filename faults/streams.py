"""Event streams that break: clients that leave at any byte, and servers that end, while others write."""

from __future__ import annotations

import http.client
import itertools
import json
import random
import socket
import struct
import threading
import time
from contextlib import closing
from pathlib import Path

from . import Result, fault
from .places import Place, place, url_of
from .servers import PATIENCE, ServeProcess

WRITERS, FOLLOWERS = 3, 4
RESTARTS = 6
"""How often the server is ended or killed during a run."""


class Writer(threading.Thread):
    """Writes events, one after the other, and sends each again until it is acknowledged."""

    def __init__(self, server: ServeProcess, name: str, token: str) -> None:
        super().__init__(daemon=True)
        self._server, self._name, self._token = server, name, token
        self.over = threading.Event()
        self.acknowledged = list[str]()
        self.trouble = ""

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=PATIENCE)
        with closing(connection):
            self._write(connection)

    def _write(self, http_client: http.client.HTTPConnection) -> None:
        for number in itertools.count():
            if self.over.wait(0.002):
                return
            id = f"{self._name}-{number}"
            body = json.dumps({"kind": "agent.spoke", "payload": {"text": "x" * (number % 700)}, "id": id})
            headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
            while not self.over.is_set():
                try:
                    http_client.request("POST", "/v1/record", body, headers)
                    answer = http_client.getresponse()
                    said = answer.read()
                except (OSError, http.client.HTTPException):  # the server is being started again
                    http_client.close()
                    self.over.wait(0.02)
                    continue
                if answer.status == 200:
                    self.acknowledged.append(id)
                    break
                if answer.status not in (429, 503):
                    self.trouble = f"{id}: {answer.status} {said[:200]!r}"
                    return


class Follower:
    """A client of the change feed, as the standard says: an event counts when its blank line has come, and the last id
    that came is named when it connects again."""

    def __init__(self, server: ServeProcess, token: str) -> None:
        self._server, self._token = server, token
        self.last: str | None = None
        self.seen = list[str]()
        self.trouble = list[str]()

    def follow(self, enough: int | None, until: str | None = None, rng: random.Random | None = None) -> bool:
        """Read so many bytes and leave, or until an id has been seen. Answers whether there was a stream."""
        connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=PATIENCE)
        answer: http.client.HTTPResponse | None = None
        resume = {"Last-Event-ID": self.last} if self.last is not None else {}
        after = "" if resume else "?after=0"
        try:
            headers = {"Authorization": f"Bearer {self._token}", **resume}
            connection.request("GET", f"/v1/watch{after}", headers=headers)
            answer = connection.getresponse()
            if answer.status == 503:  # it is being ended
                return False
            if answer.status != 200:
                self.trouble.append(f"{answer.status} {answer.read()[:200]!r}")
                return False
            rest, read = b"", 0
            while enough is None or read < enough:
                part = answer.read1(65536 if enough is None else min(enough - read, 700))
                if not part:
                    break
                read += len(part)
                rest = self._taken(rest + part)
                if until is not None and self.last is not None and int(self.last) >= int(until):
                    break
            if rng is not None and rng.random() < 0.5 and connection.sock is not None:
                # Reset, in place of closed.
                connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except (OSError, http.client.HTTPException):  # the server has ended
            return False
        finally:
            connection.close()
            if answer is not None:
                answer.close()  # which has the socket open, too
        return True

    def _taken(self, data: bytes) -> bytes:
        """Take the whole events; answers what is left."""
        *blocks, rest = data.split(b"\n\n")
        for block in blocks:
            fields = dict(
                line.split(": ", 1) for line in block.decode().split("\n") if line[:1] not in (":", "")
            )
            if fields.get("event") == "error":
                self.trouble.append(block.decode()[:300])
            elif "data" in fields:
                position = str(json.loads(fields["data"])["position"])
                if position != fields["id"]:
                    self.trouble.append(f"the event {position} has the id {fields['id']}")
                self.seen.append(position)
            self.last = fields.get("id", self.last)
        return rest


def one_engine(home: Place, count: int, seed: int, folder: Path, result: Result) -> None:
    with home.open() as book:
        writer_token = book.access.tokens.create("writer", expires_in=86_400).secret
        reader_token = book.access.tokens.create("owner", expires_in=86_400).secret
        with ServeProcess(url_of(home), folder, "--limits", "streams_each=20") as server:
            followers = [Follower(server, reader_token) for _ in range(FOLLOWERS)]
            for follower in followers:
                follower.follow(1)
            writers = [Writer(server, f"w{n}", writer_token) for n in range(WRITERS)]
            for writer in writers:
                writer.start()
            left = itertools.count(1)
            broken = threading.Semaphore(0)

            def leave(follower: Follower, rng: random.Random) -> None:
                while next(left) <= count:
                    if not follower.follow(
                        rng.choice((1, 40, 300, 3_000, 30_000)) * rng.randint(1, 9), rng=rng
                    ):
                        time.sleep(0.02)  # until the server is there again
                    broken.release()

            threads = [
                threading.Thread(target=leave, args=(follower, random.Random(seed + n)), daemon=True)
                for n, follower in enumerate(followers)
            ]
            for thread in threads:
                thread.start()
            starts = min(RESTARTS, max(count // 50, 1))
            for start in range(starts):
                for _ in range(count // (starts + 1)):
                    broken.acquire(timeout=PATIENCE)
                if (seed + start) % 2:
                    server.kill()
                elif (code := server.end()) != 0:
                    result.problem(home.kind, f"the server ended with {code}")
                server.start()
            used = server.used()
            for thread in threads:
                thread.join(PATIENCE * 10)
            for writer in writers:
                writer.over.set()
                writer.join(PATIENCE)
                if writer.trouble:
                    result.problem(home.kind, f"a writer met {writer.trouble}")
            events = list(book.events())
            for number, follower in enumerate(followers):
                follower.follow(None, until=str(events[-1].position))
                told = [
                    *_compared(follower.seen, [str(event.position) for event in events]),
                    *follower.trouble,
                ]
                result.problem(f"{home.kind}, follower {number} (seed {seed})", *told)
            there = {event.id for event in events}
            lost = [id for writer in writers for id in writer.acknowledged if id not in there]
            if lost:
                result.problem(home.kind, f"{len(lost)} acknowledged events are not there, such as {lost[0]}")
            result.problem(home.kind, *_leaks(server, used))
            result.cases += count
            result.outcomes[f"{home.kind} disconnects"] += count
            result.outcomes[f"{home.kind} restarts"] += starts
            result.outcomes[f"{home.kind} events"] += len(events)
            for log_line in server.log.read_text().splitlines():
                if "Traceback" in log_line or writer_token in log_line or reader_token in log_line:
                    result.problem(home.kind, f"the log has {log_line[:200]}")


def _compared(seen: list[str], events: list[str]) -> list[str]:
    if seen == events:
        return []
    missed, repeated = set(events) - set(seen), len(seen) - len(set(seen))
    return [f"{len(missed)} of {len(events)} events missed, {repeated} seen twice, or in another order"]


def _leaks(server: ServeProcess, before: dict[str, int]) -> list[str]:
    """What the server still holds when every client has left, beyond what it had when it was started. It notices that a
    client has left when it writes to it, or hears of it from the system."""
    until = time.monotonic() + PATIENCE
    # A pool of threads grows to its size and stays so, and each thread keeps the book's files open.
    room = {"descriptors": before["descriptors"] + 120, "threads": before["threads"] + 60}
    while time.monotonic() < until:
        now = server.used()
        if all(now[name] <= room[name] for name in room):
            return []
        time.sleep(0.2)
    return [f"the server holds {now}, and held {before} when it was started"]


@fault(10, "streams", 1_000, 24)
def fault_10_streams(count: int, seed: int, tmp: Path) -> Result:
    """`count` times a client of an event stream leaves after some bytes, often in the middle of an event, while three
    writers write and the server is ended or killed and started again; on SQLite and on PostgreSQL."""
    result = Result()
    for kind in ("sqlite", "postgres"):
        home = place(kind, tmp)
        one_engine(home, count, seed, tmp / f"server-{kind}", result)
        home.drop()
    return result
