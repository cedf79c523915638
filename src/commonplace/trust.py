"""What this user trusts: the books and folders of markdown that they made, and those that they said to trust.

A folder from somebody else looks like one's own: it holds a book, and records of what was last written. So what tells
them apart does not lie in the folder, but in a small file of the user's, one line for each book and each folder.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .errors import StorageFailed, UnsafePath
from .folders import PRIVATE, Folder

NAME = "trusted.jsonl"
LARGEST = 1_000_000
"""How many bytes the record may have before lines of folders that are gone are left out."""


class Trusted(NamedTuple):
    """A book, and where it lies or the folder that shows it. Device and inode find a place again that was moved."""

    book: str
    place: str
    device: int
    inode: int


def is_trusted(book: str, path: Path) -> bool:
    """Whether this user made the book that lies here, or the folder that shows it, or said to trust it; also if it was
    moved since."""
    place, now = os.path.realpath(path), _identity(path)
    return any(
        entry.place == place or (entry[2:] == now and not os.path.lexists(entry.place))
        for entry in _entries()
        if entry.book == book
    )


def trusted_places(book: str) -> list[Path]:
    """Where this user trusts a book: its own place, and the folders that show it."""
    return [Path(entry.place) for entry in _entries() if entry.book == book]


def trust(book: str, path: Path) -> None:
    """Remember that this user trusts a book here, or a folder to show it. Raises StorageFailed where that cannot be
    remembered."""
    entry = Trusted(book, os.path.realpath(path), *_identity(path))
    try:
        home = _home()
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with Folder(home).locked(f"{NAME}-lock"):
            raw = _read()
            if any(known[:2] == entry[:2] for known in _parsed(raw)):
                return
            if len(raw) > LARGEST:
                kept = [known for known in _parsed(raw) if os.path.lexists(known.place)]
                Folder(home).write(NAME, b"".join(map(_line, kept)))
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(home / NAME, flags, PRIVATE), "ab") as file:
                file.write(_line(entry))
    except (OSError, RuntimeError, UnsafePath) as error:
        raise StorageFailed(
            f"it cannot be remembered that {path} is trusted ({error}): set XDG_STATE_HOME to a folder of this "
            "user's that can be written, or trust it each time"
        ) from error


def _home() -> Path:
    """This user's folder for what programs remember. Raises RuntimeError if the user has no home."""
    state = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state) if os.path.isabs(state) else Path("~/.local/state").expanduser()  # noqa: PTH117
    return base / "commonplace"


def _entries() -> Iterator[Trusted]:
    try:
        raw = _read()
    except (OSError, RuntimeError, UnsafePath):
        return  # there is no record that can be relied on: then nothing is trusted
    yield from _parsed(raw)


def _read() -> bytes:
    """The record, if it is one that nobody but this user can have written."""
    fd = Folder(_home()).open(NAME)
    if fd is None:
        return b""
    with open(fd, "rb") as file:
        found = os.fstat(fd)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
            raise UnsafePath(f"others can write {_home() / NAME}: remove it")
        return file.read()


def _parsed(raw: bytes) -> Iterator[Trusted]:
    for line in raw.splitlines():
        try:
            entry = Trusted(*json.loads(line))
        except (ValueError, TypeError, RecursionError):
            continue  # cut short by a crash: that folder has to be trusted again
        if isinstance(entry.place, str):
            yield entry


def _line(entry: Trusted) -> bytes:
    return json.dumps(entry).encode() + b"\n"


def _identity(path: Path) -> tuple[int, int]:
    """What a file or folder is known by wherever it is moved; zeros if it is not there."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino
