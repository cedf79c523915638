"""The labelled set: search finds what it found when it was measured, a little less allowed."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean

import numpy as np
import pytest
from benchmarks.labelled import GROUPS, Question, fill, questions
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
    there = {one.id for one in book.memory.list()} | {one.id for one in book.events()}
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


def group_of(category: str) -> str:
    return next(group for group, categories in GROUPS.items() if category in categories)


@pytest.mark.spec("4.2")
@pytest.mark.parametrize("group", GROUPS)
def test_hybrid_is_behind_neither_of_its_parts_in_any_group(
    rows: dict[str, list[tuple[Question, Row]]], group: str
) -> None:
    """By a paired bootstrap over the questions of the group: R@10."""
    found = {
        mode: np.array([row[0][1] for one, row in some if one.category in GROUPS[group]])
        for mode, some in rows.items()
    }
    assert len(found["hybrid"]) >= 100
    better = max(("words", "semantic"), key=lambda mode: float(found[mode].mean()))
    gives = found["hybrid"] - found[better]
    draws = np.random.default_rng(7).integers(len(gives), size=(2_000, len(gives)))
    assert np.percentile(gives[draws].mean(axis=1), 97.5) > 0


def test_every_signal_earns_its_place(book: Book) -> None:
    """For some kind of text, all signals rank better than all but one, whichever that is; none costs much elsewhere."""
    index = book._session.services.index.catch_up()
    asked = [
        (one, index.search(one.text, allowed=lambda _: True, how="hybrid", limit=200).hits)
        for one in questions()
    ]
    given = [(one, [hit.id for hit in hits], [dict(hit.signals) for hit in hits]) for one, hits in asked]

    def ranked(without: str) -> dict[str, float]:
        """nDCG@10 by group, in hundredths."""
        gains = dict[str, list[float]]()
        for one, ids, signals in given:
            sums = [sum(gave for name, gave in each.items() if name != without) for each in signals]
            order = np.argsort(-np.array(sums), kind="stable")
            gain = graded([ids[place] for place in order], set(one.answers))[1]
            gains.setdefault(group_of(one.category), []).append(gain)
        return {group: 100 * mean(some) for group, some in gains.items()}

    best = ranked("")
    for signal in SECOND:
        rest = ranked(signal)
        gives = {group: round(best[group] - rest[group], 2) for group in best}
        assert max(gives.values()) >= 0.3, (signal, gives)
        assert min(gives.values()) > -5, (signal, gives)
