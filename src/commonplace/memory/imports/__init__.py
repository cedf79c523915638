"""Other tools' memories, read as plain data: folders of markdown, and exports of mem0 and of MCP's memory server.

A reader takes the files with certain suffixes: `read(name, text)` gives a `FileRead`. A new format of markdown is one
more rule in `markdown.py`; a new format of JSON records is a module like `mem0.py`, listed in `records.py`.

Nothing is lost silently: whatever a file holds is part of an `Incoming`, or `Skipped` with the reason. Nothing
outside the path that was given is read, nothing in a file is executed or followed, and the same files give the
same answer: paths in order, then lines.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Protocol

import msgspec

from ...errors import BadInput, TooLarge, UnsafePath
from ...files.safe import Folder
from . import markdown, records
from .incoming import FileRead, Incoming, Skipped

MAX_FILES = 20_000


class Reader(Protocol):
    SUFFIXES: set[str]
    MAX_BYTES: int

    def read(self, name: str, text: str, /) -> FileRead: ...


READERS: tuple[Reader, ...] = (markdown, records)
FORMATS = {**markdown.ABOUT, **{each.NAME: each.ABOUT for each in records.FORMATS}}


class Memories(msgspec.Struct, frozen=True):
    """All that was read. `format` names the format, or the formats of a mixed folder with a comma between."""

    format: str
    items: tuple[Incoming, ...]
    skipped: tuple[Skipped, ...]


def read_memories(path: Path) -> Memories:
    """Read a folder with all that is below it, or one file; each file's format is found out by its content.

    Skipped in a folder: hidden files and folders, links (what they lead to is read where it is, if it is inside),
    and files that are too large, binary, not UTF-8 or of another kind. Raises BadInput, which lists the formats,
    when not one file is of a format that is known here.
    """
    whole = Path(os.path.realpath(path))
    root = whole if whole.is_dir() else whole.parent
    folder = Folder(root)
    skipped: list[Skipped] = []
    files: list[FileRead] = []
    for name, file, reason in _files(folder, "" if whole == root else whole.name):
        reader = _reader(file)
        if reader is None or reason:
            skipped.append(Skipped(name, reason))
            continue
        try:
            files.append(reader.read(name, _text(folder, file, reader.MAX_BYTES)))
            skipped += files[-1].skipped
        except BadInput as error:
            skipped.append(Skipped(name, str(error)))
    formats = {file.format for file in files if file.format}
    if not formats:
        raise BadInput(_unknown(path, skipped))
    markdown.link([file for file in files if file.format in markdown.ABOUT])
    items = tuple(item for file in files for item in file.items)
    return Memories(", ".join(sorted(formats)), items, tuple(skipped))


def _reader(file: str) -> Reader | None:
    suffix = PurePosixPath(file).suffix.lower()
    return next((reader for reader in READERS if suffix in reader.SUFFIXES), None)


def _files(folder: Folder, only: str) -> Iterator[tuple[str, str, str]]:
    """Every file below, in order, or only one: its name, its path, and why it is not read if it is not."""
    try:
        todo = [only] if only else _inside(folder, "")
    except OSError as error:
        raise BadInput(f"{folder.path.name} cannot be read ({error.strerror})") from error
    count = 0
    while todo:
        path = todo.pop()
        name = PurePosixPath(path)
        shown = os.fsencode(path).decode("utf-8", "backslashreplace")
        why = ""
        try:
            there = folder.stat(path)
            mode = 0 if there is None else there.st_mode
            hidden = not only and name.name.startswith(".")
            if stat.S_ISDIR(mode) and not hidden:
                todo += _inside(folder, path)
                continue
            if stat.S_ISDIR(mode):
                shown, why = f"{shown}/", "a hidden folder; give its path to read it"
            elif stat.S_ISLNK(mode):
                inside = Path(os.path.realpath(folder.path / path)).is_relative_to(folder.path)
                why = "a link inside the folder" if inside else "a link that leaves the folder"
                why += "; links are not followed"
            elif hidden:
                why = "a hidden file; give its path to read it"
            elif not stat.S_ISREG(mode):
                why = "cannot be read (No such file or directory)" if there is None else "not a file"
            elif _reader(path) is None:
                why = "neither markdown nor JSON"
        except UnsafePath as error:
            why = str(error)
        except OSError as error:
            why = f"cannot be read ({error.strerror})"
        count += 1
        if count > MAX_FILES:
            yield (
                shown,
                path,
                f"more than {MAX_FILES:,} files: this one and all that come after it are not read",
            )
            return
        yield shown, path, why


def _inside(folder: Folder, path: str) -> list[str]:
    """What is in a folder, last first, because it is taken from the end."""
    return [f"{path}/{name}" if path else name for name in reversed(folder.names(path))]


def _text(folder: Folder, path: str, limit: int) -> str:
    """The text of a file; raises BadInput with the reason when it has none to give. Neither a pipe nor a link that took
    the file's place a moment ago is opened."""
    try:
        fd = folder.open(path)
        if fd is None:
            raise BadInput("cannot be read (No such file or directory)")
        with open(fd, "rb") as opened:
            size = os.fstat(fd).st_size
            data = opened.read(limit + 1)
    except OSError as error:
        raise BadInput(f"cannot be read ({error.strerror})") from error
    if len(data) > limit:
        raise TooLarge(f"{size:,} bytes; at most {limit:,} are read")
    if b"\0" in data:
        raise BadInput("binary (it holds a NUL byte)")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput(f"not UTF-8 (line {line}); save it as UTF-8") from error


def _unknown(path: Path, skipped: list[Skipped]) -> str:
    why = "; ".join(f"{file.source}: {file.why}" for file in skipped[:3]) or "the folder is empty"
    known = "\n".join(f"  {name}: {about}" for name, about in FORMATS.items())
    return f"nothing in {path} can be read as memories ({why}). The formats that are known:\n{known}"
