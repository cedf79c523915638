"""How tests run the `commonplace` command: in this process, in one of its own, and on a terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        return json.loads(self.err)["error"]


Cli = Callable[..., Ran]

COMMAND = [sys.executable, "-m", "commonplace.surfaces.cli"]


def in_process(*args: object, **more: Any) -> Ran:
    """Run the entry point in a process of its own."""
    ran = subprocess.run([*COMMAND, *map(str, args)], capture_output=True, text=True, timeout=60, **more)
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def on_a_terminal(*args: object, typed: str = "", **env: str) -> tuple[int, str]:
    """Run it where stdin, stdout and stderr are a terminal; answer the exit code and what was shown."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, *map(str, args)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", **env},
    ) as process:
        os.close(theirs)
        os.write(ours, typed.encode())
        shown = b""
        with suppress(OSError):  # how Linux says that the other side has gone
            while piece := os.read(ours, 65536):
                shown += piece
    os.close(ours)
    return process.returncode, shown.decode()
