"""What this user trusts: the books and folders of markdown that they made, and those that they said to trust.

A folder from somebody else looks like one's own: it holds a book, and records of what was last written. So what tells
them apart does not lie in the folder, but in a small file of the user's, one line for each book and each folder.
Another one, for the same reason, says which files hold the state of which runs: erasing removes them.
"""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ..errors import StorageFailed, UnsafePath
from .safe import PRIVATE, Folder

if TYPE_CHECKING:
    from ..ledger.ledger import Ledger

log = logging.getLogger("commonplace")

NAME = "trusted.jsonl"
STATE_FILES = "state-files.jsonl"
LARGEST = 1_000_000
"""How many bytes a record may have before lines of what is gone are left out."""


class Trusted(NamedTuple):
    """A book, and where it lies or the folder that shows it. Device and inode find a place again that was moved."""

    book: str
    place: str
    device: int
    inode: int


class StateFile(NamedTuple):
    """A file that a run's state was written to, by the folder of its workflow and the path below that."""

    book: str
    run: str
    folder: str
    path: str

    @property
    def place(self) -> str:
        return os.path.join(self.folder, self.path)  # noqa: PTH118  a record's own text


E = TypeVar("E", Trusted, StateFile)


def is_trusted(book: str, path: Path) -> bool:
    """Whether this user made the book that lies here, or the folder that shows it, or said to trust it; also if it was
    moved since."""
    place, now = os.path.realpath(path), _identity(path)
    return any(
        entry.place == place or (entry[2:] == now and not os.path.lexists(entry.place))
        for entry in _entries(NAME, Trusted)
        if entry.book == book
    )


def trusted_places(book: str) -> list[Path]:
    """Where this user trusts a book: its own place, and the folders that show it."""
    return [Path(entry.place) for entry in _entries(NAME, Trusted) if entry.book == book]


def state_files(book: str) -> list[StateFile]:
    """The files of this host that this user has had the state of the book's runs written to."""
    return [entry for entry in _entries(STATE_FILES, StateFile) if entry.book == book]


def note_state_file(entry: StateFile) -> None:
    """Remember that a run's state was written to a file. Raises StorageFailed where that cannot be remembered."""
    try:
        _add(STATE_FILES, entry)
    except (OSError, RuntimeError, UnsafePath) as error:
        raise StorageFailed(
            f"it cannot be remembered that {entry.place} holds a run's state ({error}): set XDG_STATE_HOME to a folder "
            "of this user's that can be written"
        ) from error


def trust(book: str, path: Path) -> None:
    """Remember that this user trusts a book here, or a folder to show it. Raises StorageFailed where that cannot be
    remembered."""
    try:
        _add(NAME, Trusted(book, os.path.realpath(path), *_identity(path)))
    except (OSError, RuntimeError, UnsafePath) as error:
        raise StorageFailed(
            f"it cannot be remembered that {path} is trusted ({error}): set XDG_STATE_HOME to a folder of this "
            "user's that can be written, or trust it each time"
        ) from error


def _add(name: str, entry: E) -> None:
    """Add a line to one of the records, unless it has it."""
    home = _home()
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with Folder(home).locked(f"{name}-lock"):
        raw = _read(name)
        entries = list(_parsed(raw, type(entry)))
        if any((line.book, line.place) == (entry.book, entry.place) for line in entries):
            return
        if len(raw) > LARGEST:
            kept = [line for line in entries if os.path.lexists(line.place)]
            Folder(home).write(name, b"".join(map(_line, kept)))
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(home / name, flags, PRIVATE), "ab") as file:
            file.write(_line(entry))


def _home() -> Path:
    """This user's folder for what programs remember. Raises RuntimeError if the user has no home."""
    state = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state) if os.path.isabs(state) else Path("~/.local/state").expanduser()  # noqa: PTH117
    return base / "commonplace"


def _entries(name: str, kind: type[E]) -> Iterator[E]:
    try:
        raw = _read(name)
    except (OSError, RuntimeError, UnsafePath):
        return  # there is no record that can be relied on: then nothing is trusted
    yield from _parsed(raw, kind)


def _read(name: str) -> bytes:
    """A record, if it is one that nobody but this user can have written."""
    fd = Folder(_home()).open(name)
    if fd is None:
        return b""
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o022:
            raise UnsafePath(f"others can write {_home() / name}: remove it")
        return file.read()


def _parsed(raw: bytes, kind: type[E]) -> Iterator[E]:
    for line in raw.splitlines():
        try:
            entry = kind(*json.loads(line))
            if isinstance(entry.place, str):
                yield entry
        except (ValueError, TypeError, RecursionError):
            continue  # cut short by a crash: that folder has to be trusted again


def _line(entry: E) -> bytes:
    return json.dumps(entry).encode() + b"\n"


def _identity(path: Path) -> tuple[int, int]:
    """What a file or folder is known by wherever it is moved; zeros if it is not there."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_dev, status.st_ino


def trust_book(ledger: Ledger, file: Path | None) -> None:
    """Remember that this user has made the book that lies here, or trusts it."""
    if file is not None:
        try:
            trust(ledger.meta.book, file)
        except StorageFailed as error:  # it only matters once its markdown is synced, and is said then
            log.info("%s", error)


def is_ours(ledger: Ledger, file: Path | None) -> bool:
    """Whether this user made the book, or trusts it: a server's is as trusted as the server."""
    return file is None or ledger.created or is_trusted(ledger.meta.book, file)
