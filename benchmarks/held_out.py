"""How well search finds in conversations that its weights were not fitted to: `python -m benchmarks.held_out FILE …`.

The weights of hybrid search are fitted anew, to the questions of all conversations but one (a softmax over the
candidates of each question), and measured on that one; each conversation in turn. Candidates and signals come from the
library as it is.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import commonplace

from .recall import ANSWERED, Row, graded, told, turns

Floats = NDArray[np.float64]
STEPS, PACE, HELD_BACK = 300, 0.1, 1e-3


class Question(NamedTuple):
    """Its candidates with what each signal says of them, and which of them hold the evidence."""

    ids: list[str]
    signals: Floats
    evidence: set[str]

    @property
    def right(self) -> Floats:
        found = np.array([float(id in self.evidence) for id in self.ids])
        shares: Floats = found / max(1.0, found.sum())
        return shares


def asked(path: Path, embedder: str) -> Iterator[tuple[tuple[str, ...], list[Question]]]:
    """The questions of each conversation, and the names of the signals."""
    for one in json.loads(path.read_text()):
        known = {turn.id for turn in turns(one["conversation"])}
        with commonplace.open("memory:") as book:
            book.memory.configure(embedder=embedder)
            told(book, one["conversation"])
            index, found, names = (
                book._session.services.index.catch_up(),
                list[Question](),
                tuple[str, ...](),
            )
            for question in one["qa"]:
                evidence = known.intersection(question["evidence"])
                if not evidence or str(question["category"]) not in ANSWERED:
                    continue
                hits = index.search(
                    question["question"], allowed=lambda _: True, how="hybrid", limit=200
                ).hits
                names = tuple(name for name, _ in hits[0].signals) if hits else names
                given = np.array([[one for _, one in hit.signals] for hit in hits]).reshape(len(hits), -1)
                found.append(Question([hit.id for hit in hits], given, evidence))
            yield names, found


def fitted(questions: Sequence[Question], width: int) -> Floats:
    """What to multiply each signal's share by, so that what holds the evidence comes first."""
    useful = [one for one in questions if one.right.any()]
    signals, right = (
        np.concatenate([one.signals for one in useful]),
        np.concatenate([one.right for one in useful]),
    )
    sizes = np.array([len(one.ids) for one in useful])
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    weights, slope, spread = np.ones(width) * 0.5, np.zeros(width), np.zeros(width)
    for step in range(1, STEPS + 1):
        scores = signals @ weights
        shares = np.exp(scores - np.repeat(np.maximum.reduceat(scores, starts), sizes))
        shares /= np.repeat(np.add.reduceat(shares, starts), sizes)
        change = (shares - right) @ signals / len(useful) + HELD_BACK * weights
        slope, spread = 0.9 * slope + 0.1 * change, 0.99 * spread + 0.01 * change**2
        weights -= PACE * slope / (1 - 0.9**step) / (np.sqrt(spread / (1 - 0.99**step)) + 1e-9)
    return weights


def measured(questions: Sequence[Question], weights: Floats) -> list[Row]:
    ranked = [
        [one.ids[place] for place in np.argsort(-(one.signals @ weights), kind="stable")] if one.ids else []
        for one in questions
    ]
    return [graded(ids, one.evidence) for ids, one in zip(ranked, questions, strict=True)]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser("benchmarks.held_out", description=__doc__)
    parser.add_argument("paths", nargs="+", metavar="FILE")
    parser.add_argument("--embedder", default="static")
    given = parser.parse_args(arguments)
    every = [one for path in given.paths for one in asked(Path(path), given.embedder)]
    names, talks = every[0][0], [questions for _, questions in every]
    rows: list[Row] = []
    weights: list[Floats] = []
    for out, questions in enumerate(talks):
        others = [one for at, some in enumerate(talks) if at != out for one in some]
        weights.append(fitted(others, len(names)))
        rows += measured(questions, weights[-1])
        print(
            f"conversation {out + 1}: {len(questions)} questions, R@10 {100 * _mean(rows[-len(questions) :], 1):.1f}"
        )
    shares = ", ".join(f"R@{k} {100 * _mean(rows, at):.1f}" for at, k in enumerate((5, 10, 20)))
    print(f"{len(rows)} questions, each conversation held out in turn: {shares}, "
          f"nDCG@10 {100 * mean(row[1] for row in rows):.1f}")  # fmt: skip
    print("weights beside those in use: " + ", ".join(
        f"{name} x {one:.2f}" for name, one in zip(names, np.mean(weights, axis=0), strict=True)))  # fmt: skip
    return 0


def _mean(rows: Sequence[Row], at: int) -> float:
    return mean(row[0][at] for row in rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
