"""How well search finds notes, facts, code and short talks: `python -m benchmarks.labelled [--locomo FILE]`.

First R@5, R@10 and nDCG@10 of the labelled set by mode, category and half, and by group what hybrid finds more than the
better of words and vectors. Then what each signal of a hybrid search
gives: what is lost when it is switched off, with the range that 95 of 100 samples of the same questions lie in (a
paired bootstrap) and how many questions it makes better and worse. A range around zero is noise. With `--locomo` the
same for conversations in LoCoMo's format.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

import commonplace
from commonplace import Book
from commonplace.index import embedder_of, fusion

from .. import recall
from ..peers import PEERS, installed
from . import FIT, GROUPS, HELD_OUT, fill, questions

SAMPLES = 2_000
WEIGHTS = (fusion.FIRST, fusion.SECOND, fusion.BY_PARTS)
screen = Console(width=170)


class Asked(NamedTuple):
    """A question, the book that has the answers, and which these are."""

    book: Book
    text: str
    answers: set[str]
    category: str
    half: str


Marks = np.ndarray[tuple[int, int], np.dtype[np.float64]]
"""R@5, R@10 and nDCG@10 in hundredths, a row for each question."""


def marked(asked: list[Asked], mode: str = "hybrid") -> Marks:
    return graded([(recall.found(one.book, one.text, mode), one.answers) for one in asked])


def graded(found: list[tuple[list[str], set[str]]]) -> Marks:
    rows = [recall.graded(ranked, answers) for ranked, answers in found]
    return np.array([[100 * shares[0], 100 * shares[1], 100 * gain] for shares, gain in rows])


@contextmanager
def without(signal: str) -> Iterator[None]:
    """Search as if there were no such signal."""
    known = [(weights, weights[signal]) for weights in WEIGHTS if signal in weights]
    for weights, _ in known:
        weights[signal] = 0.0
    try:
        yield
    finally:
        for weights, weight in known:
            weights[signal] = weight


def labelled(embedder: str, open_until: ExitStack) -> list[Asked]:
    book = open_until.enter_context(commonplace.open("memory:"))
    book.memory.configure(embedder=embedder)
    fill(book)
    return [Asked(book, one.text, set(one.answers), one.category, one.half) for one in questions()]


def conversations(path: Path, embedder: str, open_until: ExitStack) -> list[Asked]:
    """The questions that have an answer."""
    found = []
    for one in json.loads(path.read_text()):
        book = open_until.enter_context(commonplace.open("memory:"))
        book.memory.configure(embedder=embedder)
        recall.told(book, one["conversation"])
        known = {turn.id for turn in recall.turns(one["conversation"])}
        for asked in one["qa"]:
            answers = known.intersection(asked["evidence"])
            if answers and str(asked["category"]) in recall.ANSWERED:
                found.append(Asked(book, asked["question"], answers, str(asked["category"]), ""))
    return found


def beside(asked: list[Asked], embedder: str, open_until: ExitStack) -> dict[str, Marks]:
    """What other memories find that are given the same."""
    book = asked[0].book
    texts = {item.id: item.text for item in book.memory.list()}
    for event in book.events(kinds=["agent.spoke"]):
        texts[event.id] = recall.spoken(
            event.payload["text"], event.actor, event.occurred_at or event.created_at
        )
    finding = {name: PEERS[name](texts, open_until, embedder_of(embedder)) for name in installed()}
    return {name: graded([(find(one.text), one.answers) for one in asked]) for name, find in finding.items()}


def show_modes(asked: list[Asked], peers: dict[str, Marks]) -> None:
    marks = {mode: marked(asked, mode) for mode in recall.MODES} | peers
    table = Table("category", "questions", *marks, caption="R@5 / R@10 / nDCG@10")
    rows = {
        category: [one.category == category for one in asked]
        for category in dict.fromkeys(one.category for one in asked)
    }
    rows |= {half: [one.half == half for one in asked] for half in (FIT, HELD_OUT)}
    for name, which in {**rows, "all": [True] * len(asked)}.items():
        cells = [" / ".join(f"{mark:.1f}" for mark in of[which].mean(axis=0)) for of in marks.values()]
        table.add_row(name, str(sum(which)), *cells)
    screen.print(table)


def show_groups(asked: list[Asked]) -> None:
    """By group of categories, how much more hybrid finds than the better of its parts."""
    marks = {mode: marked(asked, mode) for mode in recall.MODES}
    table = Table("group", "questions", *marks, "hybrid less the better part", caption="R@10")
    for group, categories in GROUPS.items():
        which = [one.category in categories for one in asked]
        means = {mode: float(of[which][:, 1].mean()) for mode, of in marks.items()}
        better = max((mode for mode in marks if mode != "hybrid"), key=lambda mode: means[mode])
        difference = marks["hybrid"][which][:, 1] - marks[better][which][:, 1]
        table.add_row(group, str(sum(which)), *(f"{means[mode]:.1f}" for mode in marks), spread(difference))
    screen.print(table)


def show_signals(sets: dict[str, list[Asked]], by_parts: bool) -> None:
    columns = [f"{name}: {what}" for name in sets for what in ("R@10", "nDCG@10", "better : worse")]
    table = Table("signal", *columns)
    base = {name: marked(asked) for name, asked in sets.items()}
    for signal in fusion.BY_PARTS if by_parts else fusion.SECOND:
        cells = []
        with without(signal):
            for name, asked in sets.items():
                gives = base[name] - marked(asked)
                gained, lost = ((sign * gives[:, 2] > 1e-9).sum() for sign in (1, -1))
                cells += [spread(gives[:, 1]), spread(gives[:, 2]), f"{gained} : {lost}"]
        table.add_row(signal, *cells)
    screen.print(table)


def spread(gives: Marks) -> str:
    """The mean, and where it lies in 95 of 100 samples."""
    draws = np.random.default_rng(7).integers(len(gives), size=(SAMPLES, len(gives)))
    low, high = np.percentile(gives[draws].mean(axis=1), [2.5, 97.5])
    return f"{gives.mean():+.2f} ({low:+.2f} {high:+.2f})"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.labelled", description=__doc__)
    parser.add_argument("--locomo", type=Path, help="conversations in LoCoMo's format")
    parser.add_argument(
        "--fit", action="store_true", help="signals by the half that weights may be fitted to"
    )
    parser.add_argument("--peers", action="store_true", help="ask other memories, too, that are installed")
    parser.add_argument("--no-signals", action="store_true", help="leave out what each signal gives")
    parser.add_argument("--embedder", default="static", help="what makes the vectors")
    wanted = parser.parse_args()
    with ExitStack() as open_until:
        ours = labelled(wanted.embedder, open_until)
        show_modes(ours, beside(ours, wanted.embedder, open_until) if wanted.peers else {})
        show_groups(ours)
        if wanted.no_signals:
            return 0
        sets = {"set": [one for one in ours if one.half == FIT or not wanted.fit]}
        if wanted.locomo:
            sets["LoCoMo"] = conversations(wanted.locomo, wanted.embedder, open_until)
        show_signals(sets, by_parts=wanted.embedder == "minilm")
    return 0


if __name__ == "__main__":
    sys.exit(main())
