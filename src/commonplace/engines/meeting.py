"""Where the processes of one host meet that write to the same book on a server.

The server keeps writers apart, wherever they are. Those on one host can do better than to wait there one after the
other: at a gate of their own, whoever goes to the server takes along what the others want to have written.
"""

from __future__ import annotations

import os
import stat
import tempfile
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from ..errors import Busy
from .gate import Gate

OLD = 86_400
"""How many seconds after the last process came to it a gate is taken to be forgotten."""


def meeting(*server: object) -> Gate | None:
    """The gate of this user's processes for one book on one server; None where there is no folder of its own for it.
    What is given must tell any two books apart that are not the same."""
    try:
        folder = _folder()
        if folder is None:
            return None
        path = _gate_in(folder, server)
        if not path.exists():
            _clear(folder)
        gate = Gate(path)
        os.utime(path)
        return gate
    except OSError:
        return None  # no room, or no right to write there: everybody goes to the server by itself


def leave(*server: object) -> None:
    """Remove the gate of a book that is no more."""
    folder = _where()
    if folder is not None and _is_ours(folder):
        Gate.remove(_gate_in(folder, server))


def _gate_in(folder: Path, server: Sequence[object]) -> Path:
    return folder / f"{sha256(repr(server).encode()).hexdigest()}-gate"


def lines() -> list[Path]:
    """The folders in which what was asked for and handed on lies, at all gates of this user."""
    folder = _where()
    return sorted(folder.glob("*-line")) if folder is not None and _is_ours(folder) else []


def sweep(timeout: float) -> list[str]:
    """Overwrite what was asked for and handed on at any gate of this user: also at those of another role, and of the
    same server before it was restarted. Says where that could not be done."""
    left = list[str]()
    for line in lines():
        try:
            gate = Gate(line.with_name(line.name.removesuffix("line") + "gate"))
            try:
                with gate.inside(timeout):
                    gate.sweep()
            finally:
                gate.close()
        except (OSError, Busy) as error:
            left.append(f"{line}, where writers of this host meet, could not be swept: {error}")
    return left


def _clear(folder: Path) -> None:
    """Remove the gates of servers that are long gone. Whoever is still at one of them meets nobody new there."""
    for gate in folder.glob("*-gate"):
        if time.time() - gate.stat().st_mtime > OLD:
            Gate.remove(gate)


def _where() -> Path | None:
    """Where this user's gates are; None where there are no users."""
    if not hasattr(os, "getuid"):
        return None
    return Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"commonplace-{os.getuid()}"


def _folder() -> Path | None:
    """A folder that nobody else can write to: what is asked for there is done in the name of whoever is at the gate."""
    folder = _where()
    if folder is not None:
        folder.mkdir(mode=0o700, exist_ok=True)
    return folder if folder is not None and _is_ours(folder) else None


def _is_ours(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
