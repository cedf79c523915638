"""Whether a text says what a fact says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commonplace.memory.agreement import agreement, say_the_same

ROUTES = ("API versions", "Every route begins with the version of the API, such as /v2/users.")


@pytest.mark.spec("6.11", "L9")
@pytest.mark.parametrize(
    ("text", "agrees", "denies"),
    [
        ("Routes begin with the version of the API", True, False),
        ("Lunch is at noon. All routes carry the API version first.", True, False),
        ("I see: Every route begins with the version of the API, such as /v2/users.", True, False),
        ("Routes do not begin with the version of the API, that was reverted.", False, True),
        ("Every route begins with the version of the API? No.", False, True),
        ("It isn't true that every route begins with the version of the API.", False, True),
        ("Routes end with the version of the API", False, False),
        ("The API is slow today.", False, False),
        ("", False, False),
    ],
)
def test_what_a_text_says_of_a_fact(text: str, agrees: bool, denies: bool) -> None:
    found = agreement(*ROUTES, text)
    assert (found.agrees, found.denies) == (agrees, denies), found.why


@pytest.mark.spec("L9")
def test_a_fact_of_two_sentences_agrees_with_itself_and_a_contradiction_wins() -> None:
    fact = "Deploy on Fridays. Never deploy on Mondays."
    assert agreement("Deploys", fact, fact).agrees
    assert agreement(
        "Deploys", "Deploy on Fridays.", "Deploy on Fridays. No, never deploy on Fridays."
    ).denies


@pytest.mark.spec("L9")
@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_texts_that_differ_in_a_number_do_not_say_the_same(first: int, second: int) -> None:
    texts = [f"The client of the shop retries a request {count} times" for count in (first, second)]
    found = say_the_same(*texts)
    assert (found.agrees, found.denies) == (first == second, first != second)
