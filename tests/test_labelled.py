"""The labelled set: search finds what it found when it was measured, a little less allowed."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean

import numpy as np
import pytest
from benchmarks.labelled import Question, fill, questions
from benchmarks.recall import MODES, Row, found, graded

import commonplace
from commonplace import Book
from commonplace.index.fusion import SECOND

pytestmark = pytest.mark.spec("4.2")


@pytest.fixture(scope="module")
def book() -> Iterator[Book]:
    with commonplace.open("memory:") as opened:
        fill(opened)
        yield opened


@pytest.fixture(scope="module")
def rows(book: Book) -> dict[str, list[tuple[Question, Row]]]:
    return {
        mode: [(one, graded(found(book, one.text, mode), set(one.answers))) for one in questions()]
        for mode in MODES
    }


def share(rows: list[tuple[Question, Row]], category: str = "", at: int = 1) -> float:
    """R@10 (R@5 at 0) in hundredths."""
    return 100 * mean(row[0][at] for one, row in rows if category in ("", one.category))


def gain(rows: list[tuple[Question, Row]], category: str = "") -> float:
    """nDCG@10 in hundredths."""
    return 100 * mean(row[1] for one, row in rows if category in ("", one.category))


def test_every_answer_is_in_the_book(book: Book) -> None:
    there = {one.id for one in book.items()} | {one.id for one in book.events()}
    assert {name for one in questions() for name in one.answers} <= there
    assert len(there) > 300
    assert len({one.text for one in questions()}) == len(questions()) > 200


def test_all_signals_together_find_more_than_words_or_meaning_alone(
    rows: dict[str, list[tuple[Question, Row]]],
) -> None:
    hybrid, semantic, words = (rows[mode] for mode in ("hybrid", "semantic", "words"))
    assert share(hybrid) >= 73
    assert gain(hybrid) >= 56
    assert share(hybrid) > max(share(semantic), share(words)) + 22
    assert gain(hybrid) > max(gain(semantic), gain(words)) + 17


@pytest.mark.parametrize("category", ["identifier", "path", "typing error", "languages"])
def test_what_is_named_exactly_comes_first(
    rows: dict[str, list[tuple[Question, Row]]], category: str
) -> None:
    assert gain(rows["hybrid"], category) >= 96


@pytest.mark.parametrize(
    ("category", "least"),
    [
        ("fact", 96),
        ("near duplicate", 90),
        ("quoted", 95),
        ("superseded", 75),
        ("who", 90),
        ("several", 72),
        ("languages, other words", 90),
    ],
)
def test_the_right_one_of_many_alike_is_found(
    rows: dict[str, list[tuple[Question, Row]]], category: str, least: float
) -> None:
    assert share(rows["hybrid"], category) >= least


def test_a_turn_that_needs_the_turn_before_it_is_found_among_notes(
    rows: dict[str, list[tuple[Question, Row]]],
) -> None:
    assert share(rows["hybrid"], "in conversation", at=0) >= 70
    assert share(rows["words"], "in conversation") < 30


def test_every_signal_earns_its_place(book: Book) -> None:
    """What is ranked by all signals is ranked better than by all but one, whichever that is."""
    index = book._ledger.indexing.catch_up()
    asked = [
        (one, index.search(one.text, allowed=lambda _: True, how="hybrid", limit=200).hits)
        for one in questions()
    ]
    given = [(one, [hit.id for hit in hits], [dict(hit.signals) for hit in hits]) for one, hits in asked]

    def ranked(without: str) -> float:
        """nDCG@10 in hundredths."""
        gains = []
        for one, ids, signals in given:
            sums = [sum(gave for name, gave in each.items() if name != without) for each in signals]
            order = np.argsort(-np.array(sums), kind="stable")
            gains.append(graded([ids[place] for place in order], set(one.answers))[1])
        return 100 * mean(gains)

    best = ranked("")
    gives = {signal: best - ranked(signal) for signal in SECOND}
    assert {signal: round(gave, 2) for signal, gave in gives.items() if gave < 0.3} == {}
