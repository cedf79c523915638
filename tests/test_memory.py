"""What is nearly the same, and what does not belong into notes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonplace.index.words import jaccard, tokens
from commonplace.memory import check_notes, near_duplicate

NOTES = """# Notes
Active objective: let people sign in, phase build, until the login page works

- Blockers and risks: none
- Pending: choose a name
"""


@pytest.mark.spec("3.5")
@pytest.mark.parametrize(
    ("first", "second", "score", "flagged"),
    [
        (("tests", "run `make test`"), ("tests", "Run make test!"), 1.0, True),
        (("db port", "Postgres listens on 5433"), ("db port", "Postgres listens on 5432"), 5 / 7, False),
        (
            ("a b c d e f", "g h i j k l m n o p q"),
            ("a b c d e f", "g h i j k l m n o p z r"),
            16 / 19,
            False,
        ),
        (
            ("a b c d e f", "g h i j k l m n o p q"),
            ("a b c d e f", "g h i j k l m n o p q r s t"),
            17 / 20,
            True,
        ),
        (("style|guide", "use four spaces"), ("style", "guide use four spaces"), 1.0, True),
        (("a_b", "c"), ("ab", "c"), 1.0, True),
        (("x", "don't"), ("x", "dont"), 1.0, True),
        (("", ""), ("", ""), 1.0, True),
        (("ÜBER", "größe"), ("über", "GRÖSSE"), 1 / 3, False),
    ],
)
def test_facts_are_compared_by_their_words(
    first: tuple[str, str], second: tuple[str, str], score: float, flagged: bool
) -> None:
    found = near_duplicate(*first, *second)
    assert found.score == pytest.approx(score)
    assert found.flagged is flagged


@pytest.mark.spec("3.5")
def test_the_comparison_can_be_read() -> None:
    found = near_duplicate("db port", "Postgres listens on 5433", "db port", "Postgres listens on 5432 now")
    assert str(found) == (
        "0.62 alike; both say: db listens on port postgres; only the first: 5433; only the second: 5432 now"
    )


@given(st.text(), st.text())
def test_likeness_is_symmetric_and_between_nothing_and_all(a: str, b: str) -> None:
    first, second = tokens(a), tokens(b)
    assert 0 <= jaccard(first, second) == jaccard(second, first) <= 1
    assert jaccard(first, first) == 1


@pytest.mark.spec("3.2")
def test_good_notes_have_no_violation() -> None:
    assert check_notes(NOTES) == []
    assert check_notes("") == []


@pytest.mark.spec("3.2")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\n```sh\nmake\n```\n", [(2, "code_fence")]),
        ("~~~\nx\n~~~\n```\ny\n```", [(1, "code_fence"), (4, "code_fence")]),
        ("Iteration 3 passed\n", [(1, "journal")]),
        ("the verdict was GO", [(1, "journal")]),
        ("reiterations and verdictive words are words of their own", []),
        ("see phase-2-build", [(1, "plan_phase")]),
        ("phase 2 of the build, phase-two", []),
        ("- a\n- b\n- c\n- d\n- e", [(4, "bullets")]),
        ("- a\n- b\n\n- c\n\n\n* d", [(7, "bullets")]),
        ("- a\n- b\n- c\n## More\n- d\n- e", []),
        ("- a\n- b\n- c\nplain\n- d", []),
        ("- a\n  - b\n- c\n  + d", [(4, "bullets")]),
        ("-no bullet\n" * 5, []),
        ("x\n" * 20, []),
        ("x\n" * 25, [(21, "length")]),
        ("- iteration of phase-1-x\n", [(1, "journal"), (1, "plan_phase")]),
    ],
)
def test_what_does_not_belong_into_notes_is_told_with_its_line(
    text: str, expected: list[tuple[int, str]]
) -> None:
    found = check_notes(text)
    assert [(one.line, one.rule) for one in found] == expected
    assert all(str(one).startswith(f"line {one.line}: ") for one in found)
