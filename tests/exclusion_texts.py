"""Texts that somebody might save, each with what it is: to be kept, or told elsewhere, by class."""

from __future__ import annotations

from pathlib import Path

KEPT = "keep"


def _labelled(name: str) -> list[tuple[str, str]]:
    """One text a line (with `\\n` for a line break), under a line that names what should become of those below it."""
    texts, label = [], ""
    for line in (Path(__file__).parent / "exclusions" / name).read_text(encoding="utf-8").splitlines():
        if line.startswith("== "):
            label = line.removeprefix("== ")
        else:
            texts.append((line.replace("\\n", "\n"), label))
    return texts


LEARNED, HELD_OUT = _labelled("learned.txt"), _labelled("held_out.txt")
