"""`commonplace serve` as a process of its own, for faults of what goes over the network."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

PATIENCE = 60.0
"""Seconds until something counts as hung, on a busy machine."""


class ServeProcess:
    """One server. It has the port that it is given, or takes a free one and keeps it when it is started again."""

    def __init__(self, book: str, folder: Path, *more: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._token_file, self.log = folder / "token", folder / "log"
        self._command = [sys.executable, "-m", "commonplace", "--book", book, "--json", "serve", *more]
        self._command += ["--token-file", str(self._token_file)]
        self.port = 0
        self.start()

    def start(self) -> None:
        self._token_file.unlink(missing_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self._command, "--port", str(self.port)], stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self.process.stdout is not None
        said: dict[str, Any] = json.loads(self.process.stdout.readline() or "null") or {}
        if "url" not in said:
            raise RuntimeError(f"the server did not start: {self.log.read_text()[-400:]}")
        self.url: str = said["url"]
        self.port = urlsplit(self.url).port or 0
        self.token = self._token_file.read_text()

    def end(self, by: signal.Signals = signal.SIGTERM) -> int:
        """End it as an operator does, and answer its exit code."""
        self.process.send_signal(by)
        return self._gone()

    def kill(self) -> None:
        self.process.kill()
        self._gone()

    def _gone(self) -> int:
        code = self.process.wait(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def __enter__(self) -> ServeProcess:
        return self

    def __exit__(self, *_raised: object) -> None:
        if self.process.poll() is None:
            self.kill()

    def used(self) -> dict[str, int]:
        """How many descriptors and threads the process has."""
        home = Path(f"/proc/{self.process.pid}")
        return {
            "descriptors": len(list((home / "fd").iterdir())),
            "threads": len(list((home / "task").iterdir())),
        }
