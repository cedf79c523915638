"""Where the processes of one host meet that write to the same book on a server.

The server keeps writers apart, wherever they are. Those on one host can do better than to wait there one after the
other: at a gate of their own, whoever goes to the server takes along what the others want to have written.
"""

from __future__ import annotations

import os
import stat
import tempfile
import time
from hashlib import sha256
from pathlib import Path

from .gate import Gate

OLD = 30 * 86_400
"""How many seconds after the last process came to it a gate is taken to be forgotten."""


def meeting(*server: object) -> Gate | None:
    """The gate of this user's processes for one book on one server; None where there is no folder of its own for it.
    What is given must tell any two books apart that are not the same."""
    try:
        folder = _folder()
        if folder is None:
            return None
        path = folder / f"{sha256(repr(server).encode()).hexdigest()}-gate"
        if not path.exists():
            _clear(folder)
        gate = Gate(path)
        os.utime(path)
        return gate
    except OSError:
        return None  # no room, or no right to write there: everybody goes to the server by itself


def _clear(folder: Path) -> None:
    """Remove the gates of servers that are long gone. Whoever is still at one of them meets nobody new there."""
    for gate in folder.glob("*-gate"):
        if time.time() - gate.stat().st_mtime > OLD:
            Gate.remove(gate)


def _folder() -> Path | None:
    """A folder that nobody else can write to: what is asked for there is done in the name of whoever is at the gate."""
    if not hasattr(os, "getuid"):
        return None
    folder = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"commonplace-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    return folder if ours and not found.st_mode & 0o077 else None
