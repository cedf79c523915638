"""Random histories and hostile inputs, told to every engine and to the reference: the same outcome everywhere."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import commonplace
from commonplace import Blob, Book, CommonplaceError, Event, OutcomeUnknown, StorageFailed
from commonplace.engines.contract import WriteSet
from commonplace.ledger.events import FIELDS
from commonplace.testing.transactions import Apply, each_apply

from . import Result, fault
from .places import ALL, DURABLE, Place, place
from .verbs import fuzz_verbs

MADE_UP = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
"""An id that the library chose."""
Command = Callable[[Book], Any]


def plain(event: Event) -> tuple[Any, ...]:
    """An event without what may differ between two books: times, hashes, and ids that nobody gave."""
    return (
        event.position,
        None if MADE_UP.fullmatch(event.id) else event.id,
        *(event.kind, event.actor, event.payload, event.run_id, event.session_id, event.turn),
        *(event.occurred_us, event.schema_version, event.parents, event.labels, event.erased),
    )


def outcome(book: Book, command: Command) -> Any:
    """What a command answers, as data that can be compared; an error is its type."""
    try:
        answer = command(book)
    except CommonplaceError as error:
        return type(error).__name__
    if isinstance(answer, Event):
        return plain(answer)
    if isinstance(answer, list):
        return [plain(one) if isinstance(one, Event) else one for one in answer]
    return answer


def everything(book: Book) -> Any:
    """All that a book answers."""
    events = list(book.events())
    checked = book.verify()
    return (
        [plain(event) for event in events],
        book.runs.list(),
        [book.runs.list(at=position) for position in range(0, len(events), 5)],
        {run.id: [event.position for event in book.events(run_id=run.id)] for run in book.runs.list()},
        (checked.ok, checked.problem, checked.events, checked.erased),
    )


# 14. simulated histories


@contextmanager
def sabotage(book: Book, when: str) -> Iterator[None]:
    """The next commit fails: before anything is written, or after everything was."""

    def fail(apply: Apply, write: WriteSet) -> None:
        if when == "before":
            raise StorageFailed("made up: nothing was written")
        apply(write)
        raise OutcomeUnknown([record.id for record in write.records], "made up")

    with each_apply(book.ledger.store, fail):
        yield


def a_command(rng: random.Random, known: list[str], count: int) -> tuple[bool, Command]:
    """One command with all its data chosen, so that it can be given to any number of books; and whether it is
    one single commit, which can fail only as a whole."""

    def fields(id: str) -> dict[str, Any]:
        payload: dict[str, Any] = {"n": rng.randint(0, 3), "é": ["\0", rng.random()]}
        if rng.random() < 0.2:
            payload["file"] = Blob(b"blob" * rng.randint(1, 3))
        return {
            "id": id,
            "kind": rng.choice(("agent.spoke", "agent.spoke", "world.changed", "task.completed")),
            "actor": rng.choice(("ada", "ben")),
            "run_id": rng.choice(("r", "r2", "R", None)),
            "turn": rng.randint(0, 2),
            "payload": payload,
            "parents": rng.sample(known, min(len(known), rng.choice((0, 0, 1, 2)))),
            "labels": rng.choice(({}, {"trust": "low"})),
        }

    def fresh() -> str:
        known.append(f"id-{count}-{len(known)}")
        return known[-1]

    what = rng.choices(("record", "batch", "same", "erase", "rebuild"), (8, 4, 3, 3, 1))[0]
    if what == "rebuild":
        return False, lambda book: book.rebuild()
    if what == "erase":
        ids = [rng.choice([*known, "unknown"]) for _ in range(rng.randint(1, 2))]
        dry = rng.random() < 0.2
        return True, lambda book: book.erase(ids, reason="because", dry_run=dry)
    if what == "same" and known:
        one = {"kind": "agent.spoke", "id": rng.choice(known), "payload": {"n": rng.randint(0, 1)}}
        return True, lambda book: book.record_all([one, one])
    batch = [fields(fresh()) for _ in range(1 if what == "record" else rng.randint(2, 4))]
    if rng.random() < 0.1:
        batch[-1]["id"] = batch[0]["id"]
    return True, lambda book: book.record_all(batch)


def quick_disk(tmp: Path) -> Path:
    """A folder in memory where there is one: what is simulated here ends with a process, not with the power."""
    memory = Path("/dev/shm")
    return memory / tmp.name if memory.is_dir() and os.access(memory, os.W_OK) else tmp


def one_history(home: Place, seed: int, steps: int = 14) -> list[str]:
    """The same history in a book and in the reference; what differs."""
    rng = random.Random(seed)
    known: list[str] = []
    left = []
    reference, book = commonplace.open("memory:", name=home.name), home.open()
    try:
        for step in range(steps):
            trouble = rng.choices(("", "before", "after", "reopen", "crash"), (10, 1, 1, 1, 1))[0]
            if trouble in ("reopen", "crash") and home.kind != "memory":
                if trouble == "reopen":
                    book.close()
                else:
                    left.append(book)  # a handle that nobody closes
                book = home.open()
            single, command = a_command(rng, known, step)
            if single and trouble in ("before", "after"):
                head = book.head
                with sabotage(book, trouble):
                    told = outcome(book, command)
                if trouble == "before" and (told == "StorageFailed") and book.head != head:
                    return [f"step {step}: a refused command left something behind"]
                if trouble == "before" and told == "StorageFailed":
                    continue
                expected = outcome(reference, command)
                if told not in (expected, "OutcomeUnknown", "StorageFailed"):
                    return [f"step {step}: {told} instead of {expected}"]
                command = (
                    command if trouble == "after" and told == "OutcomeUnknown" else lambda book: book.head
                )
            expected, told = outcome(reference, command), outcome(book, command)
            if told != expected:
                return [f"step {step}: {told} instead of {expected}"]
        return [] if everything(book) == everything(reference) else ["the books differ at the end"]
    finally:
        for each in (*left, book, reference):
            each.close()
        home.drop()


@fault(14, "histories", 10_000, 32)
def fault_14(count: int, seed: int, tmp: Path) -> Result:
    """`count` histories over the engines: of ten, four on SQLite, four on files, one each on the servers."""
    result = Result()
    kinds = ("sqlite", "files", "sqlite", "files", "postgres", "sqlite", "files", "sqlite", "files", "redis")
    for case in range(count):
        home = place(kinds[(seed + case) % 10], quick_disk(tmp))
        wrong = one_history(home, seed + case)
        result.problem(f"{home.kind} (seed {seed + case})", *wrong)
        result.outcomes[home.kind] += 1
        result.cases += 1
        if home.kind in ("sqlite", "files") and home.files:
            shutil.rmtree(home.files)
    shutil.rmtree(quick_disk(tmp) if quick_disk(tmp) != tmp else tmp / "none", ignore_errors=True)
    return result


# 15. fuzzed inputs


class Odd(str):
    """A string that is not quite one."""


def deep(depth: int, of_lists: bool = False) -> dict[str, Any]:
    inner: object = []
    for _ in range(depth - 1):
        inner = [inner] if of_lists else {"a": inner}
    return {"a": inner}


def circle() -> dict[str, Any]:
    round: dict[str, Any] = {}
    round["again"] = round
    return round


HOSTILE = r"""
'' | '\0' | 'a\0b' | '\ud800' | 'a\udfffb' | 'é' | 'x' * 200 | 'x' * 201 | '💥' * 200 | '\u202e' | '../..' | '%' | '_'
"'; --" | 'agent.spoke' | '$blob' | Odd('odd') | ['id-1', 'id-1'] | ['\0'] | None | b'bytes' | bytearray(b'x') | ()
0 | -1 | 1 | 2**31 | 2**53 | 2**63 | 2**64 | -(2**63) - 1 | 10**400 | True | False | 0.0 | -0.0 | 1e308 | 5e-324
float('nan') | float('inf') | Decimal('1.1') | 1j | (1,) | frozenset({1}) | object | ... | {} | [] | [[]] | {'a': 1}
{1: 2} | {'\ud800': 1} | {'a': '\ud800'} | {None: 1} | {'file': {'$blob': '../../etc/passwd'}} | {'file': {'$blob': ''}}
{'file': {'$blob': None}} | {'file': {'$blob': 5}} | {'file': {'$blob': '0' * 64}} | {'file': {'$blob': ['x']}}
{'file': Blob(b'\0\xff')} | {'file': Blob('text')} | {'when': datetime(2020, 1, 1)} | {'set': {1}} | {'n': 10**5000}
{'n': float('nan'), 'm': [float('-inf')]} | {'n': [2**64, -(2**70), 1.5e300]} | {Odd('k'): Odd('v')} | {'UPPER': 'x'}
deep(127) | deep(128) | deep(10_000) | deep(10_000, True) | {'text': '[' * 100_000} | circle() | {'a' * 65: 'x'}
datetime(2020, 1, 1) | datetime.max | datetime.fromisoformat('0001-01-01T00:00:00+00:00') | {'a': '\0'}
datetime.fromisoformat('9999-12-31T23:59:59.999999-14:00') | {'sensitivity': 'private'}
"""
NAMES = {one.__name__: one for one in (Blob, Decimal, Odd, circle, datetime, deep)}
HUGE = ["{'text': 'x' * 10_000_000}", "'x' * 10_000_000", "{'list': list(range(1_500_000))}"]
SOURCES = [source for line in HOSTILE.strip().splitlines() for source in line.split(" | ")]


def a_fuzzed_call(rng: random.Random, case: int) -> tuple[str, str, Command]:
    """A verb, its call as source text, and the call."""

    def hostile() -> str:
        return rng.choice(HUGE if rng.random() < 0.005 else SOURCES)

    what = rng.choices(
        ["record", "record_all", "erase", "event", "events", "blob", "runs", "watch"],
        (10, 5, 2, 1, 2, 1, 1, 1),
    )[0]
    fields = {"kind": "'agent.spoke'", "id": f"'fuzz-{case}'", "payload": "{'n': 1}"}
    fields |= {name: hostile() for name in rng.sample(FIELDS, rng.choice((1, 1, 2, 3)))}
    event = f"{{{', '.join(f'{name!r}: {source}' for name, source in fields.items())}}}"
    first, value, other = f"{{'kind': 'agent.spoke', 'id': 'first-{case}'}}", hostile(), hostile()
    batches = (
        f"[{first}, {event}]",
        f"[{event}, {first}]",
        value,
        f"[{value}]",
        f"[{{**{event}, 'unknown': 1}}]",
    )
    filters = (f"{rng.choice(('after', 'run_id', 'kinds', 'actor', 'at'))!r}: {value}", f"'at': {other}")
    source = {
        "record": f"book.record(**{event})",
        "record_all": f"book.record_all({rng.choice(batches)})",
        "erase": f"book.erase({value}, reason={other}, dry_run={case % 2 == 0})",
        "event": f"book.event({value})",
        "events": f"list(book.events(**{{{', '.join(filters[: 1 + case % 2])}}}))[:20]",
        "blob": f"book.blob({value})",
        "runs": f"book.runs.list(at={value})",
        "watch": f"list(book.watch(after={value}, timeout=0.0))[:20]",
    }[what]
    return what, source, lambda book: eval(source, {**NAMES, "book": book})


@fault(15, "fuzz", 10_000, 250)
def fault_15(count: int, seed: int, tmp: Path) -> Result:
    """`count` hostile calls, each to all five engines: the same outcome as the reference, nothing half done."""
    result = Result()
    homes = [place(kind, tmp) for kind in ALL]
    books = [home.open() for home in homes]
    reference = books[0]
    for case in range(count):
        outcomes: list[Any] = []
        head = reference.head
        for home, book in zip(homes, books, strict=True):
            what, source, command = a_fuzzed_call(random.Random(seed + case), seed + case)
            told = f"{home.kind} (seed {seed + case}), {source[:200]}"
            try:
                outcomes.append(outcome(book, command))
            except Exception as error:  # noqa: BLE001  an error of no known type is a finding
                outcomes.append(f"untyped {type(error).__name__}")
                result.problem(f"{told} ({error})", f"{what} raises {type(error).__name__}")
            if str(outcomes[-1]) != str(outcomes[0]):
                text = f"{str(outcomes[-1])[:100]} instead of {str(outcomes[0])[:100]}"
                result.problem(told, f"{what} on {home.kind}: {text}")
            expected = head if isinstance(outcomes[0], str) else reference.head
            if book.head != expected:
                result.problem(told, f"the head is {book.head}, not {expected}")
        answered = not isinstance(outcomes[0], str)
        result.outcomes["answered" if answered else outcomes[0]] += 1
        result.cases += 1
    whole = str(everything(reference))
    for home, book in zip(homes, books, strict=True):
        if str(everything(book)) != whole or not book.verify().ok:
            result.problem(f"{home.kind} (seed {seed})", "the book differs from the reference at the end")
        book.close()
        home.drop()
    _fuzz_opening(result, tmp)
    fuzz_verbs(result, 4 * count, seed, tmp)
    return result


def _fuzz_opening(result: Result, tmp: Path) -> None:
    """Names and URLs that are none: the same refusal for every engine, and nothing is made."""
    for url in (
        "",
        "\0",
        "a\0b.db",
        "nope:",
        "nope://x",
        "file:",
        "sqlite:",
        "postgresql://h:bad/x",
        "redis://h:bad",
    ):
        _refused(result, f"open({url!r})", lambda url=url: commonplace.open(url))  # type: ignore[misc]
    for kind in DURABLE:
        home = place(kind, tmp)
        for name in ("", "\0", "x" * 201, "\ud800", 5, b"x"):
            _refused(
                result,
                f"open on {kind} with the name {str(name)[:20]!a}",
                lambda home=home, name=name: commonplace.open(home.url, name=name),  # type: ignore[misc]
            )


def _refused(result: Result, told: str, call: Callable[[], Book]) -> None:
    result.cases += 1
    try:
        call().close()
        result.problem(told, "accepted")
    except CommonplaceError as error:
        result.outcomes[f"open: {type(error).__name__}"] += 1
    except Exception as error:  # noqa: BLE001  an error of no known type is a finding
        result.problem(told, f"raises {type(error).__name__}: {error}")
