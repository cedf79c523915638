"""Kills, power cuts and failing disks: nothing acknowledged is lost, whatever dies in the middle."""

from __future__ import annotations

import errno
import os
import random
import select
import shutil
import signal
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import apsw

from commonplace import Book, CommonplaceError, EngineUnavailable, OutcomeUnknown

from . import Result, fault
from .places import DURABLE, Place, Worker, place
from .shims import Tape, World, taped, write_image
from .story import Entry, Story, judge_again

LOCAL = ("sqlite", "files")
"""The engines whose calls to the disk can be watched."""
PER_BOOK = 10
"""Kills on one book before the next one starts from nothing."""


# 1. kill -9


def write_until_killed(say: Connection, home: Place, seed: int, tag: str, die_at: int) -> None:
    """Tell a story; with `die_at`, be killed at that call to the disk, between one byte and the next."""
    rng = random.Random(seed)
    if die_at:
        _die_at(die_at)
    with home.open() as book:
        say.send(("open", None))
        story = Story(rng, tag, say.send, size=300)
        while True:
            story.tell(book)


def _die_at(call: int) -> None:
    """Let the process kill itself at its n-th system call that writes or syncs."""
    left = call

    def counted(real: Callable[..., object], *args: object) -> object:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args)

    for name in ("write", "pwrite", "fsync", "replace", "ftruncate"):
        setattr(os, name, partial(counted, getattr(os, name)))


@fault(1, "kills", 1000, 10)
def fault_01(count: int, seed: int, tmp: Path) -> Result:
    """`count` kills per durable engine."""
    result = Result()
    for kind in DURABLE:
        home, log = place(kind, tmp), list[Entry]()
        for case in range(count):
            rng = random.Random(seed + case)
            if case % PER_BOOK == 0:
                home.drop()
                home, log = place(kind, tmp), []
            inside = kind == "files" and rng.random() < 0.5
            die_at = rng.randint(1, 40) if inside else 0
            worker = Worker(write_until_killed, home, seed + case, f"{case}", die_at)
            fresh = _listen(worker, rng.uniform(0.0, 0.03) if not inside else 5.0)
            worker.kill()
            fresh += _drain(worker)
            log += [entry for entry in fresh if isinstance(entry, tuple) and entry[0] != "open"]
            told = f"{kind}, kill {case} (seed {seed + case})"
            result.problem(told, *(f"the writer {entry}" for entry in fresh if isinstance(entry, str)))
            result.outcomes[f"{kind} {'at a call' if inside else 'at a moment'}"] += 1
            result.cases += 1
            try:
                with home.open() as book:
                    wrong = judge_again(book, log)
            except CommonplaceError as error:
                wrong = [f"does not open: {error!r}"]
            result.problem(told, *wrong)
        home.drop()
        result.figures[f"{kind} acknowledged in the last book"] = sum(
            len(about) for what, about in log if what == "recorded"
        )
    return result


def _listen(worker: Worker, seconds: float) -> list[Entry]:
    """What the worker says until so long after its book is open."""
    heard: list[Entry] = []
    end = time.monotonic() + 30.0
    while (left := end - time.monotonic()) > 0:
        if not select.select([worker.heard], [], [], left)[0]:
            break
        try:
            heard.append(worker.listen(0))
        except (EOFError, OSError):
            break
        if heard[-1][0] == "open":
            end = time.monotonic() + seconds
    return heard


def _drain(worker: Worker) -> list[Entry]:
    """What it had said when it was killed. A last word cut short says nothing."""
    heard: list[Entry] = []
    try:
        while worker.heard.poll(0):
            heard.append(worker.heard.recv())
    except (EOFError, OSError):
        pass
    worker.heard.close()
    return heard


# 2. power cuts


@fault(2, "power", 1000, 12)
def fault_02(count: int, seed: int, tmp: Path) -> Result:
    """`count` cuts per engine, some tens on each recording."""
    result = Result()
    for kind in LOCAL:
        case = 0
        while case < count:
            cuts = min(50, count - case)
            rng = random.Random(seed + case)
            tape = record_tape(kind, tmp / f"{kind}-{case}", rng)
            cut_power(kind, tape, cuts, rng, tmp, result, f"{kind}, seed {seed + case}")
            case += cuts
    return result


def record_tape(kind: str, folder: Path, rng: random.Random, steps: int = 60) -> Tape:
    tape = Tape()
    folder.mkdir(parents=True)
    with taped(kind, folder, tape) as open_book:
        story = Story(rng, "e", lambda entry: tape.ops.append(("log", entry)), size=6000)
        for _ in range(2):  # closed and opened again in between
            with open_book() as book:
                for _ in range(steps // 2):
                    story.tell(book)
    shutil.rmtree(folder)
    return tape


def cut_power(
    kind: str, tape: Tape, cuts: int, rng: random.Random, tmp: Path, result: Result, told: str
) -> None:
    moments = sorted(rng.randrange(len(tape.ops) + 1) for _ in range(cuts))
    world, played = World(), 0
    for cut, moment in enumerate(moments):
        for op in tape.ops[played:moment]:
            world.play(op)
        played = moment
        folder = tmp / f"image-{kind}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        write_image(world.image(rng if cut % 5 else None), folder)
        last = max((p for what, about in world.log if what == "recorded" for _, _, p in about), default=0)
        if last and rng.random() < 0.5:  # the lock_file's word may have reached the disk, too
            lock_file = folder / ("book.db-lock" if kind == "sqlite" else "lock")
            lock_file.write_bytes(b"%020d" % last)
        result.cases += 1
        result.outcomes[kind] += 1
        wrong = judge_image(kind, folder, world.log)
        result.problem(f"{told}, cut {cut} after {moment} of {len(tape.ops)} calls", *wrong)


def judge_image(kind: str, folder: Path, log: list[Entry]) -> list[str]:
    try:
        with Place(
            kind, f"{'file:' if kind == 'files' else ''}{_path(kind, folder)}", "book", None
        ).open() as book:
            return judge_again(book, log)
    except CommonplaceError as error:
        return [f"does not open: {error!r}"]


def _path(kind: str, folder: Path) -> Path:
    return folder / "book.db" if kind == "sqlite" else folder


# 3. every call to the disk fails once

STORY = (
    *("record", "batch", "blob", "record", "child", "erase", "blob", "again"),
    *("rebuild", "record", "erase", "purge", "record", "batch", "blob"),
)


@fault(3, "failing", 1_000_000, 40)
def fault_03(count: int, seed: int, tmp: Path) -> Result:
    """Each of the calls of a short story, in turn, with EIO and with ENOSPC; `count` of them at most."""
    result = Result()
    for kind in LOCAL:
        calls = fail_once(kind, Tape(), seed, tmp, Result(), "")
        cases = [(call, number) for call in range(1, calls + 1) for number in (errno.EIO, errno.ENOSPC)]
        random.Random(seed).shuffle(cases)
        for call, number in cases[: count // 2]:
            told = f"{kind}, call {call} of {calls}, {errno.errorcode[number]} (seed {seed})"
            fail_once(kind, Tape(call, number), seed, tmp, result, told)
            result.cases += 1
        result.figures[f"{kind} calls"] = calls
    return result


def fail_once(kind: str, tape: Tape, seed: int, tmp: Path, result: Result, told: str) -> int:
    folder = tmp / f"failing-{kind}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    log: list[Entry] = []

    def note(entry: Entry) -> None:
        log.append(entry)
        tape.ops.append(("log", entry))

    told_error = ""
    with taped(kind, folder, tape) as open_book:
        story = Story(random.Random(seed), "e", note, size=6000)
        try:
            book = open_book()
        except (EngineUnavailable, OutcomeUnknown) as error:
            told_error = type(error).__name__
            try:
                book = open_book()
            except CommonplaceError as refusal:
                result.problem(told, f"does not open after the disk has recovered: {refusal!r}")
                return tape.calls
        for step in STORY:
            failed = tape.failed
            try:
                story.tell(book, step)
            except (EngineUnavailable, OutcomeUnknown) as error:
                if failed:  # the disk works again, so must the book
                    result.problem(told, f"{step} fails after the disk has recovered: {error!r}")
                    break
                told_error = type(error).__name__
            except Exception as error:  # noqa: BLE001  any other error is a finding
                result.problem(told, f"{step} raises {error!r}")
                break
        tape.fail_at, calls = 0, tape.calls
        wrong = _judged(book, log)
        _close(book)
        with open_book() as again:
            wrong += [text for text in _judged(again, log) if text not in wrong]
    world = World()
    for op in tape.ops:
        world.play(op)
    image = folder / "certain"
    image.mkdir()
    write_image(world.image(None), image)
    wrong += [f"after a power cut {text}" for text in judge_image(kind, image, log) if text not in wrong]
    result.problem(f"{told} ({tape.failed}, {told_error or 'no error'})", *wrong)
    result.outcomes[f"{kind} {tape.failed}: {told_error or 'nothing was lost, no error'}"] += 1
    return calls


def _close(book: Book) -> None:
    try:
        book.close()
    except (
        apsw.Error
    ):  # SQLite ignores a failed checkpoint at close; through a VFS in Python it shows all the same
        book.ledger.store.close()


def _judged(book: Book, log: list[Entry]) -> list[str]:
    try:
        return judge_again(book, log)
    except Exception as error:  # noqa: BLE001  any other error is a finding
        return [f"reading raises {error!r}"]
