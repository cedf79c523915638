"""Another user of the same host, who prepares files, reads what it can and holds locks."""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import tempfile
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

import commonplace
from commonplace import Book, CommonplaceError

from . import Result, fault
from .places import Worker

NOBODY = 65534
SECRET = "the launch code is 4711-4712-4713"
BESIDE = ("-lock", "-wal", "-shm", "-journal", ".index", ".index-lock", ".index-wal", ".mirrors")
TIMEOUT = 5.0


def snooped(home: Path) -> str:
    """What somebody without rights gets at there: in a process of its own, where we are root."""
    said = Worker(_snoop, home).rest()
    return str(said[0]) if said else "could not be played"


def _snoop(say: Connection, home: Path) -> None:
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    say.send(snoop(home))


def prepare(home: Path, name: str, rng: random.Random) -> str:
    """Put something beside where a book will be, open to everybody."""
    ending = rng.choice(BESIDE)
    path = home / f"{name}{ending}"
    shape = rng.choice(("file", "folder", "link"))
    victim = home.parent / "victim"
    if shape == "link":
        path.symlink_to(victim)
    elif shape == "folder":
        path.mkdir()
        path.chmod(0o777)
        for inside in map(str, range(3)):
            (path / inside).write_bytes(rng.randbytes(4096))
            (path / inside).chmod(0o666)
    else:
        path.write_bytes(rng.choice((b"", rng.randbytes(4096))))
        path.chmod(0o666)
    return f"{shape} {ending}"


def snoop(home: Path) -> str:
    """All that can be read, and which files can be locked or written to."""
    got = list[str]()
    for path in home.rglob("*"):
        if path.is_symlink():
            continue
        with suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            if path.is_file() and SECRET.encode() in os.read(fd, 10_000_000):
                got.append(f"reads in {path.name} what was written")
            if path.is_file() and path.stat().st_uid != os.getuid():
                got.append(f"opens {path.name}")
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                got.append(f"locks {path.name}")
            os.close(fd)
        if os.access(path, os.W_OK) and path.stat().st_uid != os.getuid():
            got.append(f"writes {path.name}")
    return ", ".join(got)


def use(book: Book, out: Path) -> None:
    book.remember(SECRET, sensitivity="sensitive")
    book.search("launch code")
    book.record("agent.spoke", payload={"file": commonplace.Blob(SECRET.encode() * 100)})
    book.admin.export(out / "export.jsonl")
    book.admin.backup(out / "backup.db")


@fault(32, "neighbours", 300, 8)
def fault_32(count: int, seed: int, _tmp: Path) -> Result:
    """`count` books in a folder in which everybody may make files, some of which somebody has made before. Where we are
    not root nobody else can be played: then only modes and what was put in the way are looked at."""
    result = Result()
    root = os.getuid() == 0
    result.outcomes["played by another user" if root else "modes only: not run as root"] = 1
    shared = Path(tempfile.mkdtemp(prefix="commonplace-neighbours-"))
    shared.chmod(0o755)
    before = os.umask(0)
    try:
        for case in range(count):
            rng = random.Random(seed + case)
            home, kind = shared / f"home-{case}", rng.choice(("sqlite", "files"))
            home.mkdir()
            home.chmod(0o1777)
            victim = shared / "victim"
            victim.write_text("mine")
            os.umask(rng.choice((0o000, 0o022)))
            name = "book.db" if kind == "sqlite" else "book"
            put = "nothing"
            if rng.random() < 0.6:
                put = f"a {prepare(home, name, rng)}"
                if root:
                    for path in home.rglob("*"):
                        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
            told = f"{kind}, {put} (seed {seed + case})"
            result.cases += 1
            _one(result, told, home, f"file:{home / name}" if kind == "files" else str(home / name), root)
            if victim.read_text() != "mine":
                result.problem(told, "a link led to a file that was changed")
    finally:
        os.umask(before)
        shutil.rmtree(shared)
    return result


def _one(result: Result, told: str, home: Path, url: str, root: bool) -> None:
    out = home / "out"
    out.mkdir(mode=0o755)
    out.chmod(0o755)
    theirs = {path: content(path) for path in home.rglob("*") if path != out}
    began = time.monotonic()
    try:
        with commonplace.open(url, timeout=TIMEOUT) as book:
            use(book, out)
            got = snooped(home) if root else ""
            book.record("agent.spoke")
            if [event.kind for event in book.events()].count("agent.spoke") != 2:
                result.problem(told, "there are events that nobody of us recorded")
        result.outcomes["used"] += 1
    except CommonplaceError as error:
        got = ""
        result.outcomes[f"refused: {type(error).__name__}"] += 1
    except Exception as error:  # noqa: BLE001  an error of no known type is a finding
        got = ""
        result.problem(told, f"raises {type(error).__name__}: {error}")
    if time.monotonic() - began > 10 * TIMEOUT:
        result.problem(told, "it was held up for long")
    got = f"{got}, {snooped(home)}" if root else got
    if got.strip(", "):
        result.problem(told, f"somebody else {got.strip(', ')}")
    for path in home.rglob("*"):
        if path not in theirs and path != out and path.lstat().st_mode & 0o077 and not path.is_symlink():
            result.problem(told, f"{path.name} is open to others: {path.lstat().st_mode & 0o777:o}")
    for path, before in theirs.items():
        if path.exists() and content(path) != before:
            result.problem(told, f"{path.name}, which somebody else has put there, was used")


def content(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() and not path.is_symlink() else b""
