"""Torn files, flipped bits, backups under way, views deleted: what is damaged is noticed, what is derived
comes back."""

from __future__ import annotations

import logging
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from commonplace import Blob, Book, Capability, CommonplaceError, Event, View
from commonplace.engines.contract import Row

from . import Result, fault
from .concurrency import Writers
from .places import ALL, SERVED, Place, place
from .story import Entry, Story, Truth, use_everything


@contextmanager
def warnings_heard() -> Iterator[list[str]]:
    """What the library logs as a warning meanwhile."""
    heard: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("commonplace")
    before = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield heard
    finally:
        logger.removeHandler(handler)
        logger.propagate = before


# 4. the end of the ledger is torn off


@fault(4, "torn", 1_000_000, 60)
def fault_04(count: int, seed: int, tmp: Path) -> Result:
    """The ledger of the files engine cut at every byte of its last three records; `count` of them at most."""
    result = Result()
    home = place("files", tmp)
    rng = random.Random(seed)
    with home.open() as book:
        story = Story(rng, "e", lambda _entry: None, size=200)
        for step in ("record", "batch", "child", "record", "blob", "record"):
            story.tell(book, step)
        events = list(book.events())
    whole = Path(home.url.removeprefix("file:"))
    content = (whole / "ledger.jsonl").read_bytes()
    start = len(content) - sum(map(len, content.splitlines(keepends=True)[-3:]))
    cuts = list(range(start, len(content)))
    for cut in sorted(rng.sample(cuts, min(count, len(cuts)))):
        folder = tmp / "torn"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole, folder)
        (folder / "ledger.jsonl").write_bytes(content[:cut])
        expected = events[: content[:cut].count(b"\n")]
        with_lock_file = cut % 2 == 0
        if not with_lock_file:
            (folder / "lock").unlink()
        told = f"cut at byte {cut} of {len(content)} (seed {seed})"
        result.cases += 1
        try:
            with warnings_heard() as heard, Place("files", f"file:{folder}", "book", None).open() as book:
                if list(book.events()) != expected:
                    result.problem(told, "the earlier events are not all there")
                noticed = any("later events were lost" in text for text in heard) and not book.verify().ok
                if with_lock_file and not noticed:
                    result.problem(told, "acknowledged events are gone and nobody says so")
                result.outcomes["loss noticed" if noticed else "without a lock file to know by"] += 1
                after = book.record("fault.survived")
                if list(book.events()) != [*expected, after] or not book.verify().ok:
                    result.problem(told, "what is written afterwards does not hold")
        except CommonplaceError as error:
            result.problem(told, f"the book cannot be used: {error!r}")
    return result


# 5. bit flips


class Reading:
    """Every question a book can be asked, and the answers of the undamaged one."""

    def __init__(self, book: Book) -> None:
        events = list(book.events())
        self.questions: dict[str, Callable[[Book], object]] = {
            "events": lambda book: list(book.events()),
            "runs": lambda book: book.runs.list(),
            "head": lambda book: book.head,
            "name": lambda book: (book.name, book.id),
        }
        for run in sorted({event.run_id for event in events if event.run_id}):
            self.questions[f"run {run}"] = lambda book, run=run: list(book.events(run_id=run))  # type: ignore[misc]
        for event in events:
            self.questions[f"event {event.id}"] = lambda book, id=event.id: book.event(id)  # type: ignore[misc]
            if "file" in event.payload:
                digest = event.payload["file"]["$blob"]
                self.questions[f"blob {digest}"] = lambda book, digest=digest: book.blob(digest)  # type: ignore[misc]
            children = [other.id for other in events if event.id in other.parents and not other.erased]
            if children:
                self.questions[f"derived {event.id}"] = lambda book, id=event.id: set(  # type: ignore[misc]
                    book.erase(id, dry_run=True).erased
                )
        self.truth = {name: ask(book) for name, ask in self.questions.items()}

    def of(self, home: Place) -> tuple[str, list[str]]:
        """How the book fares: an outcome, and the answers that were wrong without a word."""
        wrong: list[str] = []
        errors = False
        with warnings_heard() as heard:
            try:
                book = home.open(create=False)
            except CommonplaceError as error:
                return f"refused at open: {type(error).__name__}", []
            with book:
                for name, ask in self.questions.items():
                    try:
                        if ask(book) != self.truth[name]:
                            wrong.append(name)
                    except CommonplaceError:
                        errors = True
                try:
                    verified = book.verify().ok
                except CommonplaceError:
                    verified = False
        lost = any("lost" in text for text in heard)
        if wrong:
            return ("told by verify", []) if not verified or lost else ("SILENT", wrong)
        if errors or not verified or lost:
            return ("error" if errors else "told by verify"), []
        return "harmless", []


def small_book(home: Place, rng: random.Random, raw: Path, live: bool) -> Reading:
    """A small book, and a copy of its files in `raw`: closed and whole, or taken while it is open."""
    story = Story(rng, "e", lambda _entry: None, size=120)
    with home.open() as book:
        for step in (
            "record",
            "batch",
            "blob",
            "child",
            "record",
            "erase",
            "blob",
            "record",
            "batch",
            "child",
        ):
            story.tell(book, step)
        book.record("agent.spoke", id="last", run_id="run-1", payload={"file": Blob(rng.randbytes(5000))})
        reading = Reading(book)
        if live:
            _copy(home, raw)
    if not live:
        _copy(home, raw)
    return reading


def _copy(home: Place, raw: Path) -> None:
    assert home.files is not None
    shutil.rmtree(raw, ignore_errors=True)
    # By another process: closing a database file here would drop SQLite's locks on it.
    subprocess.run(["cp", "-R", str(home.files), str(raw)], check=True)
    for index in raw.glob("*-shm"):
        index.unlink()


@fault(5, "flips", 10_000, 150)
def fault_05(count: int, seed: int, tmp: Path) -> Result:
    """`count` single flipped bits, spread over SQLite closed, SQLite with a live log, and files."""
    result = Result()
    books: list[tuple[str, Place, Reading, dict[Path, bytes]]] = []
    for kind, live in (("sqlite", False), ("sqlite", True), ("files", False)):
        home, raw = place(kind, tmp), tmp / f"raw-{kind}-{live}"
        reading = small_book(home, random.Random(0), raw, live)
        at = raw / "book.db" if kind == "sqlite" else raw / "book"
        files = {path.relative_to(raw): path.read_bytes() for path in raw.rglob("*") if path.is_file()}
        books.append((f"{kind}{' live' if live else ''}", Place(kind, "", "book", at), reading, files))
    for case in range(count):
        rng = random.Random(seed + case)
        label, kept, reading, files = books[(seed + case) % 3]
        targets = {
            path: content for path, content in files.items() if not path.name.endswith("lock") and content
        }
        path = rng.choices(list(targets), [len(content) for content in targets.values()])[0]
        content = bytearray(files[path])
        bit = rng.randrange(len(content) * 8)
        content[bit // 8] ^= 1 << bit % 8
        folder = tmp / "flipped"
        shutil.rmtree(folder, ignore_errors=True)
        for other, whole in files.items():
            (folder / other).parent.mkdir(parents=True, exist_ok=True)
            (folder / other).write_bytes(bytes(content) if other == path else whole)
        url = f"file:{folder / 'book'}" if kept.kind == "files" else str(folder / "book.db")
        told = f"{label}, bit {bit % 8} of byte {bit // 8} of {path} (seed {seed + case})"
        result.cases += 1
        try:
            outcome, wrong = reading.of(Place(kept.kind, url, "book", None))
        except Exception as error:  # noqa: BLE001  an error of no known type is a finding
            outcome, wrong = "UNTYPED", []
            result.problem(told, f"raises {type(error).__name__}: {error}")
        result.outcomes[f"{label} {outcome}"] += 1
        if wrong:
            result.problem(told, f"silently wrong about {sorted({name.split()[0] for name in wrong})}")
    return result


# 5. bit flips inside view rows


ACTORS = ("ada", "ben", "eve")


def guarded_book(book: Book) -> dict[str, object]:
    """A book in which everybody had more rights once, and labels and settings were weaker; what holds now."""
    for actor in ACTORS:
        book.access.grant(
            actor, ceiling="sensitive", sees=["*"], acts=["see_as"], tiers={"long_term": "read_write"}
        )
    for n, actor in enumerate(ACTORS):
        book.record("world.noted", actor=actor, id=f"noted-{n}", payload={"text": f"by {actor}"})
        book.access.relabel(f"noted-{n}", sensitivity="sensitive", reason="it names a customer")
    book.memory.configure(secrets="reject")
    for actor in ACTORS:
        book.access.grant(actor, ceiling="public", sees=["agent.*"], acts=[], tiers={"long_term": "none"})
    return guarded(book)


def guarded(book: Book) -> dict[str, object]:
    """Each answer, or the name of the error in its place."""
    questions: dict[str, Callable[[], object]] = {"settings": lambda: book.memory.settings().secrets}
    for actor in ACTORS:
        questions[f"rights of {actor}"] = lambda actor=actor: book.as_actor(actor).access.rights()  # type: ignore[misc]
        questions[f"events of {actor}"] = lambda actor=actor: [  # type: ignore[misc]
            event.id for event in book.as_actor(actor).events()
        ]
    answers: dict[str, object] = {}
    for name, ask in questions.items():
        try:
            answers[name] = ask()
        except CommonplaceError as error:
            answers[name] = error
    return answers


def _flip_in_row(home: Place, rng: random.Random) -> str:
    """Flip one bit in the value of a row of rights, labels or settings, by the server's own means."""
    wanted = rng.choice((b"rights/", b"labels/", b"memory.settings/"))
    if home.kind == "postgres":
        import psycopg

        with psycopg.connect(home.url) as connection:
            number = connection.execute(
                "SELECT number FROM commonplace.books WHERE name = %s", (home.name.encode(),)
            ).fetchone()
            assert number is not None
            connection.execute("SELECT set_config('commonplace.book', %s, true)", (str(number[0]),))
            rows = connection.execute(
                "SELECT ctid::text, value FROM commonplace.rows WHERE book = %s AND value IS NOT NULL "
                "AND substr(space, 1, %s) = %s ORDER BY space, key, position",
                (number[0], len(wanted), wanted),
            ).fetchall()
            row, value = rng.choice(rows)
            bit = rng.randrange(len(value) * 8)
            connection.execute(
                "UPDATE commonplace.rows SET value = set_bit(value, %s, 1 - get_bit(value, %s)) WHERE ctid = %s::tid",
                (bit, bit, row),
            )
    else:
        import redis

        from commonplace.engines.redis_lua import Keys

        client = redis.Redis.from_url(home.url)
        key = Keys.of(home.name).rows
        stored: Any = client.zrange(key, 0, -1)
        member: bytes = rng.choice([one for one in stored if one.startswith(wanted) and b"{" in one])
        start = member.index(b"{") - 4  # the checksum stands before the value
        bit = rng.randrange(start * 8, len(member) * 8)
        flipped = bytearray(member)
        flipped[bit // 8] ^= 1 << bit % 8
        client.zrem(key, member)
        client.zadd(key, {bytes(flipped): 0})
        client.close()
    return wanted.decode()


def _flip_in_page(path: Path, rng: random.Random) -> str:
    """Flip one bit in one of the pages that hold rows: in a value, a key, a position or the page's own structure."""
    content = bytearray(path.read_bytes())
    size = int.from_bytes(content[16:18])
    pages = [n for n in range(0, len(content), size) if b"rights/" in content[n : n + size]]
    used = [at for page in pages for at in range(page, page + size) if content[at]]
    at, bit = rng.choice(used), rng.randrange(8)
    content[at] ^= 1 << bit
    path.write_bytes(content)
    return f"byte {at}"


@fault(5, "rows", 2_000, 45)
def fault_05_rows(count: int, seed: int, tmp: Path) -> Result:
    """`count` single flipped bits inside rows of rights, labels and settings: in any byte of SQLite's pages, in the
    values on PostgreSQL and Valkey. Nobody may see or do more than before: the truth, or an error."""
    result = Result()
    homes: dict[str, tuple[Place, dict[str, object], bytes]] = {}
    for kind in SERVED:
        home = place(kind, tmp)
        with home.open() as book:
            truth = guarded_book(book)
        homes[kind] = (home, truth, Path(home.url).read_bytes() if kind == "sqlite" else b"")
    for case in range(count):
        rng = random.Random(seed + case)
        kind = SERVED[(seed + case) % len(SERVED)]
        home, truth, whole = homes[kind]
        result.cases += 1
        if kind == "sqlite":
            where = _flip_in_page(Path(home.url), rng)
        else:
            where = _flip_in_row(home, rng)
        told = f"{kind}, {where} (seed {seed + case})"
        noticed = False
        try:
            with home.open(create=False) as book:
                for name, answer in guarded(book).items():
                    if isinstance(answer, CommonplaceError):
                        noticed = True
                    elif answer != truth[name]:
                        result.problem(
                            told, f"{name.partition(' ')[0]} are others, without a word: {answer!r}"
                        )
                verified = book.verify()
                if noticed and verified.ok:
                    result.problem(told, "verify finds nothing")
                if kind != "sqlite":
                    book.rebuild()
                    if guarded(book) != truth:
                        result.problem(told, "a rebuild does not mend it")
        except CommonplaceError:
            noticed = True
        except Exception as error:  # noqa: BLE001  an error of no known type is a finding
            result.problem(told, f"raises {type(error).__name__}: {error}")
        if kind == "sqlite":
            Path(home.url).write_bytes(whole)
        result.outcomes[f"{kind} {'noticed' if noticed else 'no answer touched it'}"] += 1
    for kind, (home, _, _) in homes.items():
        if kind != "sqlite":
            home.drop()
    return result


# 6. backup while others write


@fault(6, "backup", 20, 2)
def fault_06(count: int, _seed: int, tmp: Path) -> Result:
    """`count` backups per engine while 8 processes write: each a beginning of what the book holds at the end."""
    result = Result()
    for kind in SERVED:
        home = place(kind, tmp)
        with home.open() as book:
            writers = Writers(home, 8, 100_000)
            backups = []
            for case in range(count):
                book.ledger.store.wait(book.head + 40, 30.0)
                backups.append(tmp / f"backup-{kind}-{case}.db")
                book.admin.backup(backups[-1])
            writers.stop()
            whole = list(book.events())
        for case, path in enumerate(backups):
            result.cases += 1
            with Place("sqlite", str(path), home.name, None).open(create=False) as restored:
                events = list(restored.events())
                result.outcomes[f"{kind} events"] += len(events)
                problem = Truth([("try", [event.id]) for event in whole]).judge(restored)
                if events != whole[: len(events)] or not events:
                    problem.append("no beginning of the book")
                restored.record("fault.survived")
            result.problem(f"{kind}, backup {case}", *problem)
        home.drop()
    return result


# 7. every view deleted


def _last_said(_key: object, before: Any, event: Event) -> Any:
    return [*(before or [])[-2:], event.payload.get("text", "")[:8]]


SAID = View("said", 1, keys=lambda event: [(event.actor,)], fold=_last_said)
TRAILING = View(
    "kinds", 1, keys=lambda event: [(event.kind,)], fold=lambda _key, n, _event: (n or 0) + 1, trailing=True
)
EXTRA = Capability("faults", views=(SAID, TRAILING))
"""Views that read payloads, so that an erasure has something to derive again."""


def rows_of(book: Book) -> dict[str, list[Row]]:
    """Every version of every row, without the generation that a rebuild changes."""
    ledger = book.ledger
    ledger.follow("kinds")
    with ledger.reads() as reads:
        meta = ledger.meta_of(reads.head)
        return {
            name: [row._replace(space="") for row in reads.versions(meta.space(view))]
            for name, view in ledger.registry.views.items()
        }


@fault(7, "views", 20, 1)
def fault_07(count: int, seed: int, tmp: Path) -> Result:
    """`count` random histories per engine: all rows deleted, then rebuilt, the same bytes."""
    result = Result()
    for kind in ALL:
        for case in range(count):
            home, log = place(kind, tmp), list[Entry]()
            with home.open(capabilities=(EXTRA,)) as book:
                story = Story(random.Random(seed + case), "e", log.append, size=60)
                for _ in range(60):
                    story.tell(book)
                story.tell(book, "erase")
                use_everything(book)
                book.ledger.follow("state.projection")
                before = rows_of(book)
                book.ledger.store.drop_spaces("")
                book.rebuild()
                after, wrong = rows_of(book), Truth(log).judge(book)
                wrong += [f"the rows of {name} differ" for name in before if before[name] != after[name]]
                # Clocks need a wrong clock, and the projection is only a checkpoint.
                empty = [name for name, rows in before.items() if not rows]
                if {*empty} - {"clocks", "state.projection"}:
                    wrong.append(f"views without rows to begin with: {empty}")
                result.problem(f"{kind} (seed {seed + case})", *wrong)
                result.outcomes[f"{kind} rows"] += sum(map(len, before.values()))
            home.drop()
            result.cases += 1
    return result
