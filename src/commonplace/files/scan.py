"""Looking for texts in raw files, in a process of its own: reading a database's files in the process that uses
them would drop its locks.

    python -m commonplace.files.scan < {"texts": [...], "paths": [...]}  →  [{"path": …, "text": n}, …]

A text is found as it is, escaped as in JSON, in hexadecimal and in base64.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from ..errors import StorageFailed

CHUNK = 8 * 1024 * 1024
SHORTEST = 4
"""Bytes of a text that can be looked for: a shorter one is found everywhere."""


class FoundText(msgspec.Struct, frozen=True):
    """A file that still holds one of the texts; `text` is its number."""

    path: str
    text: int


def look_for(texts: Sequence[str], paths: Iterable[Path]) -> list[FoundText]:
    """Where these texts still are, below these files and folders. Another process looks."""
    request = json.dumps({"texts": list(texts), "paths": [str(path) for path in paths]})
    command = [sys.executable, "-m", "commonplace.files.scan"]
    done = subprocess.run(command, input=request, capture_output=True, text=True, check=False)  # noqa: S603  ourselves
    if done.returncode:
        raise StorageFailed(f"the raw files could not be looked at: {done.stderr.strip()[-300:]}")
    return msgspec.json.decode(done.stdout, type=list[FoundText])


def forms(text: str) -> list[bytes]:
    """The bytes that a text can stand as."""
    raw = text.encode()
    indented = text.replace("\n", "\n  ").encode()
    encodings = [
        raw,
        indented,
        json.dumps(text)[1:-1].encode(),
        json.dumps(text, ensure_ascii=False)[1:-1].encode(),
    ]
    encodings += [raw.hex().encode(), raw.hex().upper().encode()]
    for shift in range(
        3
    ):  # the bytes before it decide how base64 cuts it up; its ends mix with its neighbours
        encoded = base64.b64encode(bytes(shift) + raw)
        encodings.append(encoded[4:-4] if shift else encoded[:-4])
    return [form for form in dict.fromkeys(encodings) if len(form) >= SHORTEST]


def _files(paths: Iterable[str]) -> Iterator[Path]:
    for path in map(Path, paths):
        below = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (file for file in below if file.is_file() and not file.is_symlink())


def _holding(path: Path, wanted: list[list[bytes]]) -> set[int]:
    overlap = max((len(form) for text_forms in wanted for form in text_forms), default=1)
    numbers: set[int] = set()
    tail = b""
    try:
        with path.open("rb") as file:
            while part := file.read(CHUNK):
                window = tail + part
                numbers |= {
                    n for n, text_forms in enumerate(wanted) if any(form in window for form in text_forms)
                }
                tail = window[-overlap:]
    except FileNotFoundError:
        pass  # a server's own files come and go
    return numbers


def main() -> None:
    request = json.load(sys.stdin)
    wanted = [forms(text) for text in request["texts"]]
    matches = [
        {"path": str(path), "text": number}
        for path in _files(request["paths"])
        for number in sorted(_holding(path, wanted))
    ]
    json.dump(matches, sys.stdout)


if __name__ == "__main__":
    main()
