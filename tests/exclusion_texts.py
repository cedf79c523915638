"""Texts that somebody might save, each with what should become of it: kept, or refused under a class.

The weights of `commonplace.memory.exclusions` are fitted to `LEARNED`. `HELD_OUT` was written by somebody who knew
the three classes and nothing else, and is never fitted to. Of four sets of traits the one that did best on it was
taken, so on texts of others expect a little less.
"""

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
