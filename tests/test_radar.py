"""Duplicate work is noticed, and what only looks like it is not."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from benchmarks.radar import EMBEDDERS, NOT_FITTED, alarms_elsewhere, noticed, pairs, share

import commonplace
from commonplace import Book, Work
from commonplace.index.names import MINILM_PACKAGE
from commonplace.work.alike import SAME, embedder_for, likelihood, reason, text_of
from commonplace.work.radar import RECENT_TASKS

FOUND = {"static": 0.35, "minilm": 0.6}
"""Which part of the pairs is found at least, by the embedder that compares whole texts."""


@pytest.fixture
def work(book: Book) -> Work:
    return book.work(name="auth")


@pytest.fixture(params=EMBEDDERS)
def embedder(request: pytest.FixtureRequest) -> str:
    if request.param == "minilm" and find_spec(MINILM_PACKAGE) is None:
        pytest.skip("the weights of MiniLM are not installed")
    return str(request.param)


@pytest.mark.spec("5.11")
def test_many_are_found_in_other_words_and_one_in_twenty_is_a_false_alarm_at_most(embedder: str) -> None:
    with commonplace.open("memory:") as book:
        book.memory.configure(embedder=embedder)
        results = noticed(book, (pair for name in NOT_FITTED for pair in pairs(name)))
    (found, same), (alarms, other) = (share(results, label) for label in (True, False))
    assert same >= 100
    assert other >= 280
    assert found >= FOUND[embedder] * same
    assert alarms <= 0.05 * other
    elsewhere, tasks = alarms_elsewhere(results)
    assert elsewhere < 0.4 * tasks


@pytest.mark.spec("5.11")
@pytest.mark.parametrize(
    ("task", "other"),
    [
        ("Delete the old table", "Remove the old table"),
        ("Drop the old table", "The old table should be dropped"),
        ("Make the Docker image smaller", "Reduce the size of the Docker image"),
        ("Speed up the start page", "Make the start page load faster"),
        ("Send an e-mail when an invoice is overdue", "Notify customers about late invoices"),
        ("Add dark mode | the night theme", "Add a night theme | dark mode"),
    ],
)
def test_the_same_in_other_words_is_the_same(task: str, other: str, embedder: str) -> None:
    ours, theirs = (text_of(*text.split(" | ")) for text in (task, other))
    assert likelihood(ours, theirs, embedder) > SAME
    assert likelihood(theirs, ours, embedder) > SAME


@pytest.mark.spec("5.11")
@pytest.mark.parametrize(
    ("task", "other"),
    [
        ("Upgrade Node to 20", "Upgrade Node to 22"),
        ("Refactor load_config()", "Refactor save_config()"),
        ("Renew the certificate of api.example.org", "Renew the certificate of shop.example.org"),
        ("Write unit tests for the cart", "Write unit tests for the mailer"),
        ("Translate the checkout into French", "Translate the checkout into Polish"),
        ("Implement password reset", "Document password reset"),
        ("Paint the office", "Rotate the keys"),
        ("good", "bad"),
        ("it", "it"),
        ("", ""),
    ],
)
def test_another_name_another_thing_or_another_action_is_not_the_same(
    task: str, other: str, embedder: str
) -> None:
    assert likelihood(text_of(task), text_of(other), embedder) <= SAME


@pytest.mark.spec("5.11")
def test_the_reason_names_the_words_that_both_have_and_those_that_stand_for_each_other() -> None:
    assert reason(text_of("Delete the old table"), text_of("Remove the old table")) == (
        "both say old, table; delete ≈ remove"
    )
    assert reason(text_of("Keep bots out"), text_of("Captcha")) == "keep bots ≈ captcha"


def test_models_that_nothing_was_fitted_to_leave_the_comparison_to_static_vectors() -> None:
    assert embedder_for("fastembed:BAAI/bge-small-en-v1.5") == "static"
    assert embedder_for("static") == "static"


@pytest.mark.spec("5.11")
def test_of_tasks_without_a_common_word_the_most_recent_ones_are_compared(work: Work) -> None:
    faster = work.add_task("Increase the speed of the site")
    task = work.add_task("Make our pages load faster")
    assert [overlap.id for overlap in work.task(task).radar()] == [faster.id]
    work.add_tasks([{"title": f"thing {number}"} for number in range(RECENT_TASKS)])
    assert work.task(task).radar() == []


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
    assert overlap.why == "both say legacy, export, api; remove ≈ delete"
    context = again.context()
    assert context.overlaps == (overlap,)
    section = context.text.partition("## May be done already\n")[2].partition("\n\n")[0]
    assert done.id in section
    assert "[task, completed]" in section
    assert linked.id not in section  # somebody has said how the two belong together
    work.task(linked).cancel(reason="not needed")
    book.rebuild()
    assert again.radar() == [overlap]


@pytest.mark.spec("5.11")
def test_asking_writes_nothing(book: Book, work: Work) -> None:
    work.add_task("Delete the legacy export API")
    task = work.add_task("Remove the legacy export API")
    before = book.head
    assert work.task(task).radar()
    assert book.head == before


@pytest.mark.spec("5.11", "L7")
def test_nobody_is_warned_of_what_it_may_not_see(book: Book, work: Work) -> None:
    dev = book.as_actor("dev-1", role="developer").work(id=work.id)
    other = book.as_actor("dev-2", role="developer").work(id=work.id)
    dev.discover("The nightly build takes 40 minutes, as a person told us", sensitivity="sensitive")
    task = work.add_task("Measure how long the nightly build takes")
    assert [overlap.kind for overlap in dev.task(task).radar()] == ["discovery"]
    assert other.task(task).radar() == []
    assert "May be done already" not in other.context_for(task).text
