"""Files that are derived from the ledger and are not what they should be: never believed, never counted as purged."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

import commonplace
from commonplace import Book
from commonplace.index import Doc, Index, Put, Who, embedder_of

from . import Result, fault
from .damage import warnings_heard
from .erasure import holding
from .places import Place, place

LOCAL, SERVERS = ("sqlite", "files"), ("postgres", "redis")
QUERIES = ("harbour gate", '"harbour gate 3"', "harb*", "gatee", "lighthouse", "which word opens it")


def answers(book: Book) -> list[Any]:
    """All that a few searches tell."""
    return [
        (answer.results, answer.total, answer.corrected)
        for query in QUERIES
        for mode in ("hybrid", "keyword", "semantic")
        for answer in [book.search(query, mode=mode, explain=True, max_results=30)]
    ]


def say(book: Book, text: str) -> str:
    return book.record("agent.spoke", actor="ada", run_id="r", payload={"text": text}).id


def index_of(book: Book) -> Path:
    index = book._session.services.index.place
    assert isinstance(index, Path)
    return index


class Case:
    """One book with an index, closed, before something is done to its files."""

    def __init__(self, home: Place, rng: random.Random, canary: str, tmp: Path) -> None:
        self.home, self.rng, self.tmp = home, rng, tmp
        with home.open() as book:
            if book.head == 0:
                for n in range(12):
                    say(book, f"harbour gate {n} is open, says the cedar key")
                book.remember("The harbour freezes in January")
            self.erasable = say(book, f"the gate opens with {canary} {rng.randbytes(2000).hex()}")
            answers(book)
            self.index, self.book = index_of(book), book.id
            self.head = book.head
        self.warns = True
        """Whether a warning has to be given; a flipped bit that nobody reads needs none."""

    # what is done to it

    def of_another_book(self) -> None:
        with commonplace.open(self.tmp / f"other-{self.rng.randrange(10**9)}.db") as other:
            for n in range(self.rng.randint(1, 20)):
                say(other, f"lighthouse gate {n}")
            answers(other)
            theirs = index_of(other)
        shutil.copyfile(theirs, self.index)

    def of_another_past(self) -> None:
        """The same book and a hash that it does not have, at, before or after where it ends."""
        self.index.unlink()
        embedder = embedder_of("static")
        forged = Index.open(self.index, embedder, embedder, self.book)
        ghost = Doc(
            "ghost",
            "lighthouse gate",
            Who("ada", "agent.spoke", False, "public", "episodic"),
            "episodic",
            "",
            0,
        )
        forged.apply(
            0, self.head + self.rng.randint(1 - self.head, 5), [(1, Put(ghost))], self.rng.randbytes(32)
        )
        forged.close()

    def after_an_older_book_came_back(self) -> None:
        path = Path(self.home.url.removeprefix("file:"))
        kept = self.tmp / f"kept-{self.rng.randrange(10**9)}"
        with self.home.open() as book:
            if self.home.kind == "sqlite":
                book.admin.backup(kept)
            else:
                shutil.copytree(path, kept)
            for n in range(self.rng.randint(1, 20)):
                say(book, f"lighthouse gate {n}")
            answers(book)
        if self.home.kind == "sqlite":
            kept.replace(path)
            for ending in ("-wal", "-shm", "-lock"):
                Path(f"{path}{ending}").unlink(missing_ok=True)
        else:
            shutil.rmtree(path)
            kept.rename(path)
        if self.rng.random() < 0.5:
            with self.home.open() as book:
                for n in range(self.rng.randint(1, 40)):
                    say(book, f"windmill gate {n}")

    def cut_off(self) -> None:
        os.truncate(self.index, self.rng.randrange(self.index.stat().st_size))

    def flipped(self) -> None:
        content = bytearray(self.index.read_bytes())
        for _ in range(self.rng.randint(1, 3)):
            bit = self.rng.randrange(len(content) * 8)
            content[bit // 8] ^= 1 << bit % 8
        self.index.write_bytes(content)
        self.warns = False

    def lost_pages(self) -> None:
        """Pages that read as zeros, or as those of another place, as a disk may give them back."""
        content = bytearray(self.index.read_bytes())
        pages = len(content) // 4096
        for _ in range(self.rng.randint(1, 2)):
            at = self.rng.randrange(pages) * 4096
            content[at : at + 4096] = bytes(4096)
        self.index.write_bytes(content)
        self.warns = False

    def something_else(self) -> None:
        """Another type of file, or another file."""
        kind = self.rng.choice(["folder", "link", "nowhere", "pipe", "text", "empty", "zeros", "database"])
        theirs, size = self.tmp / "theirs", self.index.stat().st_size
        self.index.unlink()
        if kind == "folder":
            self.index.mkdir()
        elif kind in ("link", "nowhere"):
            self.index.symlink_to(theirs if kind == "link" else self.tmp / "not there")
        elif kind == "pipe":
            os.mkfifo(self.index)
        elif kind == "database":
            with apsw.Connection(str(self.index)) as connection:
                connection.execute("CREATE TABLE docs (lighthouse)")
            connection.close()
        else:
            content = {"text": self.rng.randbytes(size), "empty": b"", "zeros": bytes(size)}
            self.index.write_bytes(content[kind])


SHAPES: tuple[Callable[[Case], None], ...] = (
    Case.of_another_book,
    Case.of_another_past,
    Case.cut_off,
    Case.flipped,
    Case.flipped,
    Case.lost_pages,
    Case.something_else,
    Case.after_an_older_book_came_back,
)


@fault(30, "swapped", 800, 8)
def fault_30(count: int, seed: int, tmp: Path) -> Result:
    """`count` times something is done to the index of a closed book, on SQLite and files in turn, each tenth on a
    server. Then it answers as a new index does, says that it was not believed, and a purge leaves no file unnamed."""
    result = Result()
    (tmp / "theirs").write_text("precious")
    for number in range(seed, seed + count):
        rng, shape = random.Random(number), SHAPES[number % len(SHAPES)]
        served = number % 80 >= 72 and shape is not Case.after_an_older_book_came_back
        kind = SERVERS[number // 80 % 2] if served else LOCAL[number // len(SHAPES) % 2]
        told, canary = f"{kind}, {shape.__name__} (seed {number})", f"canary-{rng.randbytes(8).hex()}"
        result.cases += 1
        home = place(kind, tmp)
        try:
            outcome, wrong = tried(Case(home, rng, canary, tmp), shape, canary)
        except Exception as error:  # noqa: BLE001  whatever is raised is a finding
            outcome, wrong = "raised", [f"raises {type(error).__name__}: {error}"]
        result.outcomes[f"{kind} {outcome}"] += 1
        result.problem(told, *wrong)
        home.drop()
    if (tmp / "theirs").read_text() != "precious" or (tmp / "not there").exists():
        result.problem("links", "something was written through a link")
    return result


def tried(case: Case, shape: Callable[[Case], None], canary: str) -> tuple[str, list[str]]:
    shape(case)
    with warnings_heard() as heard, case.home.open() as book, commonplace.open("memory:") as copy:
        book.admin.copy(copy)
        wrong = [] if answers(book) == answers(copy) else ["the answers differ from those of a new index"]
        noticed = any("memory.index" in text for text in heard)
        if case.warns and not noticed:
            wrong.append("it was believed, or replaced without a word")
        book.erase(case.erasable)
        report = book.purge()
        index = {file.path: file for file in report.files if file.path.startswith(str(case.index))}
        still = [str(case.index.parent / name) for name in holding(case.index.parent, canary)]
        wrong += [
            f"{path} holds what was purged" for path in still if path not in index or not index[path].remains
        ]
        if os.path.lexists(case.index) and str(case.index) not in index:
            wrong.append("the index is not in the report of the purge")
    remains = any(file.remains for file in index.values())
    return ("left alone, and said so" if remains else "noticed" if noticed else "harmless"), wrong
