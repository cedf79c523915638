"""Working memory in the wrong hands: what nobody should try, tried."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import commonplace
from commonplace import BadMove, Book, Claim, Conflict, Work


@pytest.fixture
def book() -> Iterator[Book]:
    with commonplace.open("memory:") as opened:
        yield opened


@pytest.fixture
def work(book: Book) -> Work:
    return book.work(name="auth", goal="Add JWT", id="w")


def taken(work: Work, agent: str = "dev-1", lease: float = 60.0) -> Claim:
    claim = work.claim(agent, lease=lease)
    assert claim is not None
    return claim


def lost(claim: Claim) -> None:
    """The lease of a claim runs out at once, as if its holder had died."""
    task = claim.task
    claim.work._ledger.store.lease(f"task/{task.work}/{task.number}/{claim.token}", claim.agent, 0, claim.token)


# verbs that are not meant for a task as it stands


@pytest.mark.spec("5.2", "5.3")
def test_nobody_takes_a_task_from_its_holder_by_a_verb_for_other_tasks(book: Book, work: Work) -> None:
    work.add_task("it", needs_review=True, id="t")
    claim = taken(work)
    head = book.head
    for verdict in ("approved", "needs_rework", "rejected"):
        with pytest.raises(Conflict):
            work.review("t", verdict, by="qa")
    for act in (work.unassign, work.unblock, work.retry):
        with pytest.raises(Conflict, match="in_progress, not"):
            act("t")
    assert book.head == head
    assert claim.complete("done").status == "review"


@pytest.mark.spec("5.2", "5.6")
def test_what_is_blocked_failed_or_assigned_goes_on_by_its_own_verb_only(work: Work) -> None:
    for id in ("blocked", "assigned", "failed"):
        work.add_task(id, id=id)
    work.block("blocked", "the vendor")
    work.assign("assigned", "dev-2")
    taken(work).fail("it broke")
    verbs = {"blocked": work.unblock, "assigned": work.unassign, "failed": work.retry}
    for id in verbs:
        for name, verb in verbs.items():
            if name != id:
                with pytest.raises(Conflict, match="only what"):
                    verb(id)
        with pytest.raises((BadMove, Conflict)):
            work.review(id, "needs_rework", by="qa")
        assert work.task(id).status == id
        assert verbs[id](id).status == "pending"


@pytest.mark.spec("5.6")
def test_what_is_handed_in_after_rework_cannot_be_claimed(work: Work) -> None:
    work.add_task("it", needs_review=True, id="t")
    claim = taken(work)
    claim.complete("first try")
    work.review("t", "needs_rework", by="qa")
    assert claim.complete("second try").status == "review"
    assert work.ready("dev-1") == []
    assert work.claim("dev-1") is None
    work.review("t", "needs_rework", by="qa")
    work.edit("t", needs_review=False)
    assert claim.complete("third try").status == "completed"
    assert work.claim("dev-1") is None


@pytest.mark.spec("5.3")
def test_a_task_that_is_assigned_during_its_back_off_is_claimed_after_it(work: Work) -> None:
    work.add_task("it", on_failure={"policy": "retry", "backoff": 3600}, id="t")
    task = taken(work).fail("it broke")
    assert [one.id for one in work.blocked()] == ["t"]
    work.assign("t", "dev-2")
    assert [one.id for one in work.blocked()] == ["t"]
    assert work.claim("dev-2") is None
    work._ledger.store.lease(f"task/w/{task.number}/{task.token}", "back-off", 0, task.token or 0)
    assert work.claim("dev-1") is None
    assert taken(work, "dev-2").task.id == "t"


@pytest.mark.spec("5.3")
def test_one_task_of_a_dead_holder_can_be_asked_for_however_many_are_held(work: Work) -> None:
    for number in range(40):
        work.add_task("it", id=f"t{number}", needs_review=True)
    held = work.claim_many(40, "dev-1", lease=600)
    held[33].complete("first try")
    work.review("t33", "needs_rework", by="qa")
    for claim in (held[17], held[33]):
        lost(claim)
        again = work.claim("dev-2", task=claim.task.id)
        assert again is not None
        assert again.task.assigned_to == "dev-2"
