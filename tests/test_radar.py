"""Duplicate work is noticed, and what only looks like it is not."""

from __future__ import annotations

import pytest
from benchmarks.radar import FIT, HELD_OUT, Noticed, noticed, share

import commonplace
from commonplace import Book, Work
from commonplace.work.alike import Words, answered, compared


@pytest.fixture(scope="module")
def told() -> list[Noticed]:
    with commonplace.open("memory:") as book:
        return noticed(book.work(name="radar"))


@pytest.fixture
def work(book: Book) -> Work:
    return book.work(name="auth")


@pytest.mark.spec("5.11")
@pytest.mark.parametrize("half", [FIT, HELD_OUT])
def test_nine_in_ten_are_found_and_one_in_twenty_is_a_false_alarm_at_most(
    told: list[Noticed], half: str
) -> None:
    (found, same), (alarms, other) = share(told, True, half), share(told, False, half)
    assert same >= 60
    assert other >= 70
    assert found >= 0.9 * same
    assert alarms <= 0.05 * other


@pytest.mark.spec("5.11")
def test_there_are_few_alarms_about_what_nobody_has_compared(told: list[Noticed]) -> None:
    """Among the texts of other pairs are some that are the same as well; most are not."""
    tasks = {one.pair.task: one.elsewhere for one in told}
    assert sum(map(len, tasks.values())) < 0.7 * len(tasks)


@pytest.mark.spec("5.11")
@pytest.mark.parametrize(
    ("task", "other", "why"),
    [
        ("Add rate limiting to login", "Remove rate limiting from login", "opposite"),
        ("Implement password reset", "Document password reset", "document"),
        ("Upgrade Node to 20", "Upgrade Node to 22", "about 20, the other about 22"),
        ("Refactor load_config()", "Refactor save_config()", "load_config"),
        ("Write unit tests for the cart", "Write unit tests for the mailer", "about cart, the other about mailer"),
        ("Set up CI", "Cache the Python packages in CI", "part"),
        ("Paint the office", "Rotate the keys", "too little"),
        ("", "", "too little"),
    ],
)  # fmt: skip
def test_what_sets_two_tasks_apart_is_said(task: str, other: str, why: str) -> None:
    verdict = compared(Words(task), Words(other), lambda _: 1.0)
    assert verdict.score == 0
    assert why in verdict.why


@pytest.mark.spec("5.11")
def test_a_discovery_answers_a_question_or_says_that_it_is_done() -> None:
    def covered(task: str, found: str) -> bool:
        return answered(Words(task), Words(found), lambda _: 1.0).score > 0

    assert covered("Find out why the nightly build fails", "The nightly build fails: its disk is full")
    assert not covered("Fix the nightly build", "The nightly build fails: its disk is full")
    assert covered("Add an index on orders.id", "There is an index on orders.id already")
    assert not covered("Add an index on orders.id", "There is no index on orders.id")


@pytest.mark.spec("5.11", "5.5")
def test_a_claim_and_its_context_say_what_may_be_done_already(book: Book, work: Work) -> None:
    done = work.add_task("Delete the legacy export API")
    claim = work.claim("dev-1")
    assert claim is not None
    claim.complete()
    work.discover("The legacy export API is called by two partners", by="dev-1")
    task = work.add_task("Remove the legacy export API")
    linked = work.add_task("Remove the legacy export API in the docs", depends_on=[task])
    again = work.claim("dev-2", task=task)
    assert again is not None
    (overlap,) = again.radar()
    assert (overlap.kind, overlap.id, overlap.status) == ("task", done.id, "completed")
    assert "legacy, export, api" in overlap.why
    context = again.context()
    assert context.overlaps == (overlap,)
    section = context.text.partition("## May be done already\n")[2].partition("\n\n")[0]
    assert done.id in section
    assert "[task, completed]" in section
    assert linked.id not in section  # somebody has said how the two belong together
    work.task(linked).cancel(reason="not needed")
    book.rebuild()
    assert again.radar() == [overlap]


@pytest.mark.spec("5.11", "L7")
def test_nobody_is_warned_of_what_it_may_not_see(book: Book, work: Work) -> None:
    dev = book.as_actor("dev-1", role="developer").work(id=work.id)
    other = book.as_actor("dev-2", role="developer").work(id=work.id)
    dev.discover("The nightly build fails because a person deleted the cache", sensitivity="sensitive")
    task = work.add_task("Find out why the nightly build fails")
    assert [one.kind for one in dev.task(task).radar()] == ["discovery"]
    assert other.task(task).radar() == []
    assert "May be done already" not in other.context_for(task).text
