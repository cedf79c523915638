"""Artifacts on their way into the book: paths, contents and checksums, and versions."""

from __future__ import annotations

import os
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

import msgspec

from ..access.masking import masked
from ..errors import BadInput, TooLarge, UnsafePath, shown
from ..files.safe import Folder
from ..ledger.checks import MAX_NAME, check_flag, check_name, check_path, check_text
from ..ledger.encoding import MAX_BLOB, Blob
from .checks import checked, checked_text
from .tasks import ARTIFACT_TYPES
from .transaction import WorkTransaction

SMALL = 1 << 20
"""The most bytes of a file that are stored in the book unless somebody asks for it."""


class Made(msgspec.Struct, frozen=True):
    """Something that was made: what is said of it, its path among that, and what stays when that is erased."""

    said: dict[str, Any]
    more: dict[str, Any]


def made(
    path: str | Path,
    type: str = "file",
    description: str = "",
    content: bytes | str | None = None,
    store: bool | None = None,
    commit: str | None = None,
    branch: str | None = None,
    *,
    read: bool = True,
) -> Made:
    """Something that was made, as it is recorded. Without `read`, the path is a name and no file of this host."""
    if not isinstance(path, str | Path) or not 1 <= len(str(path)) <= MAX_NAME:
        raise BadInput(f"path {shown(path)} is not a path: give where it lies, in 1 to {MAX_NAME} characters")
    where = checked_text("path", str(check_path("path", path)))
    if content is not None and not isinstance(content, bytes | str):
        raise BadInput(f"content {shown(content)} is neither bytes nor text")
    if store is not None:
        check_flag("store", store)
    data = check_text("content", content).encode() if isinstance(content, str) else content
    checksum: str | None = None
    size = 0 if data is None else len(data)
    if data is None:
        data, checksum, size = _file(Path(path), store) if read else (None, None, 0)
    elif store is not False:
        _check_size(where, size, store)
    if store and data is None:
        raise BadInput(f"there is no file {where} to store: give its content")
    about = checked_text("description", description)
    said: dict[str, Any] = {"path": where, "description": about}
    more: dict[str, Any] = {
        "type": checked("type of artifact", type, ARTIFACT_TYPES),
        "commit": None if commit is None else masked(check_name("commit", commit)),
        "branch": None if branch is None else masked(check_name("branch", branch)),
    }
    if data is not None:
        checksum = sha256(data).hexdigest()
    if checksum is not None:
        more |= {"checksum": f"sha256:{checksum}", "size": size}
    if data is not None and store is not False:
        said["content"] = Blob(data)
    return Made(said, {name: value for name, value in more.items() if value is not None})


def _check_size(where: str, size: int, store: bool | None) -> None:
    """Raises TooLarge for content that would not be stored whole."""
    if size > MAX_BLOB:
        raise TooLarge(
            f"the content of {where} has {size:,} bytes, and at most {MAX_BLOB:,} are stored: keep it in a file, and "
            "name its path without content"
        )
    if size > SMALL and not store:
        raise TooLarge(
            f"the content of {where} has {size:,} bytes, and more than {SMALL:,} are stored only if you say so: say "
            "store=True, or store=False for its checksum alone"
        )


def _file(file: Path, store: bool | None) -> tuple[bytes | None, str | None, int]:
    """The content of a file that is small, or is to be stored, and the checksum and size of a larger one. What is not
    a file has neither, nor has a link: what it leads to may be anything on this host."""
    try:
        fd = _plain_file(file)
        if fd is None:
            return None, None, 0
        with open(fd, "rb") as opened:
            size = os.fstat(fd).st_size
            if size <= (MAX_BLOB if store else SMALL):
                data = opened.read()
                return data, None, len(data)
            if store:
                raise TooLarge(
                    f"{file} has {size:,} bytes, and at most {MAX_BLOB:,} are stored: leave store out"
                )
            return None, file_digest(opened, "sha256").hexdigest(), size
    except OSError as error:
        raise BadInput(
            f"{file} cannot be read ({error.strerror}): give its content, or another path"
        ) from error


def _plain_file(file: Path) -> int | None:
    """A descriptor of the file at a path; None if there is none. Below the folder that we are in no part of the path
    may be a link; elsewhere the folders are the caller's word."""
    try:
        inside = not file.is_absolute() and ".." not in file.parts
        root, name = (Path.cwd(), file.as_posix()) if inside else (file.parent.resolve(), file.name)
        return Folder(root).open(name)
    except UnsafePath:
        return None


def path_key(work: str, path: str) -> str:
    """What stands for a path where its versions are counted: it stays when the path is erased."""
    return sha256(f"{work}\n{path}".encode()).hexdigest()


def next_version(tx: WorkTransaction, path: str) -> dict[str, Any]:
    """Which version of it something under a path is, and which one was before."""
    key = path_key(tx.work, path)
    last = tx.overlay.get("work.paths", tx.work, key)
    version, previous = (1, None) if last is None else (last["version"] + 1, last["id"])
    return {"path_key": key, "version": version, "previous": previous}
