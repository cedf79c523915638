"""The fault runs: what a book must survive, provoked on purpose, with a number to reach for each.

    python -m faults                     everything (`make faults`)
    python -m faults kills power --quick a share of two of them
    python -m faults --seed 7            the same random choices again
    python -m faults soak                steady load; memory and descriptors must not grow

Each fault is a function of a count, a seed and a folder. Case n of seed s makes the choices of case 0 of seed
s + n, so a case that failed is run again alone with `--seed {s + n} --count 1`.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

os.environ.setdefault("COMMONPLACE_EMBEDDER", "static")  # what is provoked here has nothing to do with models

KEPT = 2
"""How many problems of one shape are told in words; the others are only counted."""


@dataclass
class Result:
    """What came of a fault run. No problems: it was survived."""

    cases: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    figures: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    failed: int = 0
    _shapes: Counter[str] = field(default_factory=Counter)

    def problem(self, told: str, *texts: str) -> None:
        """`told` says which case it was, each text what is wrong there."""
        for text in texts:
            shape = re.sub(r"[0-9a-f-]*[0-9][0-9a-f-]*|/\S+|\".*", "#", text)
            self._shapes[shape] += 1
            self.failed += 1
            if self._shapes[shape] <= KEPT:
                self.problems.append(f"{told}: {text}"[:500])


Run: TypeAlias = Callable[[int, int, Path], Result]


@dataclass(frozen=True)
class Fault:
    number: int
    name: str
    full: int
    quick: int
    run: Run


FAULTS: dict[str, Fault] = {}


def fault(number: int, name: str, full: int, quick: int) -> Callable[[Run], Run]:
    """Register a fault run under its number in the list of faults, with its full and its quick count."""

    def register(run: Run) -> Run:
        FAULTS[name] = Fault(number, name, full, quick, run)
        return run

    return register
