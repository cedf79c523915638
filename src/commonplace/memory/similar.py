"""How alike two facts are, by the words they are made of."""

from __future__ import annotations

from dataclasses import dataclass

from ..index.words import jaccard, tokens

FLAGGED = 0.85
"""From this likeness on two facts are held to be the same until somebody chooses."""


@dataclass(frozen=True, slots=True)
class Likeness:
    """How alike two facts are: `score` from 0 to 1, the words they share and those that only one of them has."""

    score: float
    shared: tuple[str, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]

    @property
    def flagged(self) -> bool:
        """Alike enough that somebody should choose: skip it, merge citations and reason, or create it with a
        rationale. Nothing is ever dropped by itself."""
        return self.score >= FLAGGED

    def __str__(self) -> str:
        told = [f"{self.score:.2f} alike", f"both say: {' '.join(self.shared) or 'nothing'}"]
        told += [f"only the first: {' '.join(self.only_first)}"] if self.only_first else []
        told += [f"only the second: {' '.join(self.only_second)}"] if self.only_second else []
        return "; ".join(told)


def near_duplicate(subject: str, fact: str, subject2: str, fact2: str) -> Likeness:
    """Compare two facts, each with its subject; a pipe stands between words as it does between the two."""
    first, second = (tokens(f"{a}|{b}".replace("|", " ")) for a, b in ((subject, fact), (subject2, fact2)))
    return Likeness(
        jaccard(first, second),
        tuple(sorted(first & second)),
        tuple(sorted(first - second)),
        tuple(sorted(second - first)),
    )
