"""Whoever has been replaced leads no more: it is told nothing, and what it says counts for nothing."""

from __future__ import annotations

import pytest

from commonplace import Book, Fenced
from commonplace.work.leading import Lead
from tests.serving import ledger_below


def replaced(lead: Lead, by: str) -> Lead:
    """The lease of the lead runs out, and somebody else takes over."""
    ledger_below(lead.work).store.lease(f"lead/{lead.work.id}/{lead.fence}", lead.agent, 0, lead.fence)
    return lead.work.lead(by)


@pytest.mark.spec("5.3", "5.7")
def test_a_leader_that_was_replaced_is_told_nothing_and_deals_with_nothing(book: Book) -> None:
    work = book.work(name="release")
    first = work.lead("chief-1")
    task = work.add_task("Tag it")
    work.nudge("hurry", target="orchestrator", by="eve")
    nudge = first.next()
    assert nudge is not None
    first.handled(nudge)
    ready = first.next()
    assert ready is not None
    assert (nudge.kind, ready.kind) == ("nudge", "ready")
    work.nudge("hurry more", target="orchestrator", by="eve")
    another = first.next()
    assert another is not None

    second = replaced(first, "chief-2")
    head = book.head
    for late in (
        first.next,
        lambda: first.handled(another),
        lambda: first.handled(ready),
        lambda: first.task(task).assign("dev-1"),
    ):
        with pytest.raises(Fenced, match="'chief-1' no longer leads"):
            late()
    with pytest.raises(Fenced), first.step():
        pytest.fail("there is no step for a leader that was replaced")
    assert book.head == head

    again = second.next()
    assert again is not None
    assert again.id == another.id
    second.handled(again)
    offered = second.next()
    assert offered is not None
    assert (offered.kind, offered.task) == ("ready", task)


@pytest.mark.spec("5.3", "5.7")
def test_who_takes_the_lead_again_replaces_itself(book: Book) -> None:
    work = book.work(name="release")
    before = work.lead("chief-1")
    now = work.lead("chief-1")
    with pytest.raises(Fenced):
        before.next()
    assert now.next() is None


@pytest.mark.spec("5.7", "L5")
def test_a_leader_that_lost_its_right_stays_no_longer_and_makes_room(book: Book) -> None:
    book.access.grant("ada", acts=["orchestrate"])
    work = book.work(name="release")
    lead = book.as_actor("ada").work(id=work.id).lead(lease=3600)
    lead.heartbeat()
    book.access.grant("ada", acts=[])
    head = book.head
    for _ in range(3):
        with pytest.raises(Fenced, match="lost the right"):
            lead.heartbeat()
    lead.resign()
    assert book.head == head  # a heartbeat is no offence
    assert work.lead("bob").agent == "bob"
