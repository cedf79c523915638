"""What NOTES.md may hold: the active objective, blockers, what is pending, in a few lines. Not a journal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MOST_LINES = 20
MOST_BULLETS = 3

_FENCE = re.compile(r"\s*(```|~~~)")
_BULLET = re.compile(r"\s*[-*+]\s")
_JOURNAL = re.compile(r"\b(iteration|verdict)\b", re.IGNORECASE)
_PLAN_PHASE = re.compile(r"phase-\d+-", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class NoteViolation:
    """Something in the notes that belongs elsewhere: the line, counted from 1, the rule, and what to do."""

    line: int
    rule: str
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}"


def check_notes(text: str) -> list[NoteViolation]:
    """Every violation in a NOTES.md, in the order of its lines; none is the good answer."""
    return sorted(_violations(text.splitlines()), key=lambda violation: violation.line)


def _violations(lines: list[str]) -> Iterator[NoteViolation]:
    bullets, fenced = 0, False
    for number, line in enumerate(lines, 1):
        if number == MOST_LINES + 1:
            message = f"notes have at most {MOST_LINES} lines: move history to the task's folder"
            yield NoteViolation(number, "length", message)
        if _FENCE.match(line):
            if not fenced:
                yield NoteViolation(number, "code_fence", "no code here: name the file it is in")
            fenced = not fenced
        if word := _JOURNAL.search(line):
            message = f"{word[0]!r} belongs to the task's history: say what holds now"
            yield NoteViolation(number, "journal", message)
        if phase := _PLAN_PHASE.search(line):
            message = f"{phase[0]!r} names a part of a plan: say what the phase is about"
            yield NoteViolation(number, "plan_phase", message)
        if _BULLET.match(line):
            bullets += 1
            if bullets == MOST_BULLETS + 1:
                message = (
                    f"more than {MOST_BULLETS} bullets in a row: keep objective, blockers, what is pending"
                )
                yield NoteViolation(number, "bullets", message)
        elif line.strip():  # headings and plain lines start a new row of bullets, blank ones do not
            bullets = 0
