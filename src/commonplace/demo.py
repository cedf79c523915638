"""A scripted team on a real book: everything the ledger promises, shown and checked in a few seconds.

Every claim of the story is checked as it is told, by the book's own answers, by another process that follows
it, or by one that reads the raw files. A claim that does not hold is marked, and the demo has failed.
"""

from __future__ import annotations

import queue
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from .book import Book, open
from .errors import BadInput

SECRET = "demo-key-4f0c1d9a"  # noqa: S105 (made up, to be erased)
PATIENCE = 20.0
"""Seconds after which an event that the follower should see at once counts as missed."""

FOLLOW = """
import sys, commonplace
with commonplace.open(sys.argv[1], create=False) as book:
    for event in book.watch(after=0):
        print(event.position, event.actor, event.kind, event.run_id, flush=True)
"""

# Raw files are read by a process that has not opened the book: closing any descriptor of a SQLite file drops
# the locks that its own process holds on it.
SCAN = """
import pathlib, sys
needle = sys.stdin.buffer.read()
print(*(path for path in sys.argv[1:] if needle in pathlib.Path(path).read_bytes()), sep="\\n", end="")
"""

TEAM: list[dict[str, Any]] = [
    {"run_id": "plan", "actor": "ada", "kind": "goal.set", "payload": {"goal": "let people sign in"}},
    {"run_id": "plan", "actor": "ben", "kind": "agent.spoke", "payload": {"text": "tokens, valid an hour"}},
    {"run_id": "plan", "actor": "cy", "kind": "plan.agreed", "payload": {"summary": "tokens, two steps"}},
    {"run_id": "build", "actor": "ben", "kind": "tool.called", "payload": {"tool": "pytest", "args": ["-q"]}},
    {"run_id": "build", "actor": "ben", "kind": "tool.answered", "payload": {"text": f"the key is {SECRET}"}},
    {"run_id": "build", "actor": "cy", "kind": "agent.reflected", "payload": {"summary": f"use {SECRET}"}},
]
"""What the team does; the last act is derived from the one before it."""


class Demo:
    """One telling of the story, on the SQLite book at `path` (None: a new one in a temporary folder)."""

    def __init__(self, path: Path | None = None) -> None:
        self._given = path
        self.path = self._copy = Path()
        self.checks: list[tuple[str, bool]] = []

    @property
    def ok(self) -> bool:
        return all(held for _, held in self.checks)

    @property
    def next_steps(self) -> list[str]:
        at = f"{shlex.quote(sys.argv[0])} --book {shlex.quote(str(self.path))}"
        return [f"{at} log", f"{at} runs", f"{at} status", f"{at} doctor", f"{at} log --follow"]

    def tell(self) -> Iterator[str]:
        """The story line by line, as it happens."""
        self.path = self._given or Path(tempfile.mkdtemp(prefix="commonplace-demo-")) / "team.db"
        self._copy = self.path.with_name(f"{self.path.stem}-copy")
        with open(self.path) as book, open(f"file:{self._copy}") as copy:
            if book.head or copy.head:
                raise BadInput(f"there are events at {self.path} already: give the demo a new path")
            yield f"A book at {self.path}. Durable: {book.admin.facts.durable}, because {book.admin.facts.durable_why}."
            yield from self._team_works(book)
            yield from self._back_in_time(book)
            yield from self._each_sees_its_part(book)
            yield from self._remembers(book)
            yield from self._copied(book, copy)
            yield from self._forgotten(book, copy)
        yield ""
        yield "Look for yourself:"
        yield from (f"  {step}" for step in self.next_steps)

    def _check(self, claim: str, held: bool) -> str:
        self.checks.append((claim, held))
        return f"  {'✓' if held else '✗ NOT SO:'} {claim}"

    def _team_works(self, book: Book) -> Iterator[str]:
        yield ""
        yield "Three agents work in two runs; another process follows them."
        ids: list[str] = []
        told: list[str] = []
        with _follower(self.path) as seen, suppress(queue.Empty):
            for act in TEAM:
                ids.append(book.record(**act, parents=ids[-1:] if act is TEAM[-1] else []).id)
                told.append(seen.get(timeout=PATIENCE))
                yield f"  the follower sees  {told[-1]}"
        wanted = [f"{event.position} {event.actor} {event.kind} {event.run_id}" for event in book.events()]
        yield self._check("it saw every event, in the order of their positions", told == wanted)

    def _back_in_time(self, book: Book) -> Iterator[str]:
        yield ""
        yield "Every read can be asked as of an earlier moment."
        then, now = [run.id for run in book.runs.list(at=3)], [run.id for run in book.runs.list()]
        yield f"  runs as of position 3: {', '.join(then)}; now: {', '.join(now)}"
        yield self._check(
            "the second run is not known before it began", (then, now) == (["plan"], ["plan", "build"])
        )
        verified = book.verify()
        yield self._check(f"the hash chain holds over {verified.events} events", verified.ok)

    def _each_sees_its_part(self, book: Book) -> Iterator[str]:
        yield ""
        yield "A run has a state. Each agent writes its own entry, and the book knows who may see what."
        with book.run(run_id="state", initial={"topic": "sign in"}) as run:
            with run.agent("ada") as ada:
                ada.write({"plan": "tokens", "confidence": 0.9})
            with run.agent("ben") as ben:
                yield f"  ben sees  {ben.state['ada']}"
                ben.write({"draft": "one hour"})
            middle = book.head
            run.agent("ben").write({"draft": "two hours"})
        past, now = run.state(at=middle)["ben"]["draft"], run.state()["ben"]["draft"]
        yield self._check("state can be read as of any moment", (past, now) == ("one hour", "two hours"))
        fork = book.fork("state", at=middle)
        changed = [(one.path, one.before, one.after) for one in book.diff(fork.id, "state")]
        yield self._check("a fork begins as it was then", changed == [("ben.draft", "one hour", "two hours")])
        book.as_actor("ada", role="developer").record("agent.thought", payload={"text": "ben is slow"})
        seen = [event.kind for event in book.as_actor("ben", role="qa").events()]
        yield self._check("what ada thinks is not shown to ben", "agent.thought" not in seen)

    def _remembers(self, book: Book) -> Iterator[str]:
        yield ""
        yield "What the team learns outlives its runs, and people can edit it."
        ada, ben = book.as_actor("ada"), book.as_actor("ben")
        port = ada.remember("Postgres listens on 5433", title="db port", shared=True)
        again = ben.remember("postgres listens on 5433!", title="db port")
        yield f"  ben says it again: {again.outcome}, {again.reason.split(':')[0]}"
        yield self._check("nothing is kept twice", (again.outcome, again.item_id) == ("merged", port.item_id))
        ada.remember(key="token.hours", value=1, shared=True)
        other = ben.remember(key="token.hours", value=2, shared=True)
        yield self._check("a contradiction waits for somebody to settle it", other.outcome == "flagged")
        found = ben.search("which port does postgers use").results
        yield self._check(
            "it is found, typing errors and all", [one.id for one in found[:1]] == [port.item_id]
        )
        echo = ben.remember(found[0].text)
        yield self._check("recalled text is no new evidence", echo.reason.startswith("an echo"))
        mirror = book.mirror.folder(self.path.parent / "notes", person="kim")
        mirror.sync()
        page = self.path.parent / "notes" / "MEMORY.md"
        page.write_text(page.read_text().replace("on 5433", "on 6000"))
        mirror.sync()
        edited = book.memory.get(str(port.item_id))
        yield self._check("a hand edit of MEMORY.md is taken in", edited.body == "Postgres listens on 6000")

    def _copied(self, book: Book, copy: Book) -> Iterator[str]:
        yield ""
        yield f"A copy on another engine: plain files in {self._copy}."
        book.admin.copy(copy)
        yield self._check("it holds the same events under the same hashes", _hashes(book) == _hashes(copy))

    def _forgotten(self, book: Book, copy: Book) -> Iterator[str]:
        yield ""
        yield "The answer of a tool holds a secret, and a reflection was derived from it. Erase the answer."
        answer, derived = (event for event in book.events() if SECRET in str(event.payload))
        yield self._check("before, the secret is in the raw files of both books", len(self._leaks()) >= 2)
        going = book.erase(answer.id, dry_run=True).erased
        yield self._check("what was derived from it goes with it", {answer.id, derived.id} <= set(going))
        book.erase(answer.id, reason="a key was pasted")
        left = [event.id for event in book.events() if SECRET in str(event.payload)]
        yield self._check("no event shows it any more", not left and book.event(derived.id).erased)
        yield self._check("the hash chain still holds", book.verify().ok)
        book.admin.copy(copy)
        yield self._check("the copy, brought up to date, forgot it too", _hashes(book) == _hashes(copy))
        reports = [book.purge(), copy.purge()]
        yield from (f"  purge: {done}" for report in reports for done in report.done)
        yield self._check("purge leaves nothing behind", all(report.purged for report in reports))
        leaks = self._leaks()
        yield self._check(
            "another process searches the raw files of both books and does not find it"
            + (f" (found in {', '.join(leaks)})" if leaks else ""),
            not leaks,
        )

    def _leaks(self) -> list[str]:
        """The files of both books that hold the secret, as another process finds them."""
        mine = [path for path in self.path.parent.iterdir() if path.name.startswith(self.path.name)]
        files = [str(path) for path in (*mine, *self._copy.rglob("*")) if path.is_file()]
        command = [sys.executable, "-c", SCAN, *files]
        found = subprocess.run(command, input=SECRET, capture_output=True, text=True, check=True)  # noqa: S603
        return found.stdout.splitlines()


@contextmanager
def _follower(path: Path) -> Iterator[queue.Queue[str]]:
    """Another process that watches the book; what it prints arrives in the queue."""
    seen: queue.Queue[str] = queue.Queue()
    command = [sys.executable, "-c", FOLLOW, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stdout is not None
        reader = threading.Thread(target=_pass_on, args=(process.stdout, seen), daemon=True)
        reader.start()
        try:
            yield seen
        finally:
            process.terminate()
            reader.join()


def _pass_on(lines: IO[str], seen: queue.Queue[str]) -> None:
    for line in lines:
        seen.put(line.strip())


def _hashes(book: Book) -> list[tuple[str, bool]]:
    return [(event.hash, event.erased) for event in book.events()]
