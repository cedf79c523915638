"""Working memory as others came to use it: what they should not be able to do, and where they were left waiting."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import commonplace
from commonplace import BadInput, Book, Claim, Conflict, Denied, Work


@pytest.fixture
def book(book_url: str) -> Iterator[Book]:
    with commonplace.open(book_url) as opened:
        yield opened


@pytest.fixture
def work(book: Book) -> Work:
    return book.work(name="auth", goal="Add JWT authentication to the API")


def taken(work: Work, agent: str = "dev-1") -> Claim:
    claim = work.claim(agent)
    assert claim is not None
    return claim


@pytest.mark.spec("5.8")
@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"blocks": ["other"]}, "blocks"),
        ({"assigned_to": "dev-2"}, "assigned_to"),
        ({"on_failure": "abort"}, "on_failure"),
        ({"on_failure": {"policy": "retry", "then": "abort"}}, "on_failure"),
        ({"priority": 6}, "higher priority"),
    ],
)
def test_who_splits_its_task_rules_over_nothing_else(
    book: Book, work: Work, fields: dict[str, object], told: str
) -> None:
    work.add_task("other", id="other")
    task = work.add_task("mine", priority=5)
    claim = book.as_actor("dev-1", role="developer").work(id=work.id).claim(task=task)
    assert claim is not None
    with pytest.raises(Denied, match=told):
        claim.split([{"title": "a part", **fields}])
    assert work.task(task).status == "in_progress"
    assert len(work.tasks()) == 2
    assert claim.split([{"title": "a part", "priority": 5}]).waits == 1


@pytest.mark.spec("5.8")
def test_who_may_orchestrate_splits_as_it_likes(book: Book, work: Work) -> None:
    work.add_task("mine")
    leads = book.as_actor("lead", role="orchestrator").work(id=work.id).claim()
    assert leads is not None
    leads.split([{"title": "a part", "assigned_to": "dev-2", "priority": 9, "on_failure": "abort"}])
    owned = taken(work, "dev-2")
    assert owned.task.title == "a part"
    owned.split([{"title": "a smaller part", "priority": 10}])


@pytest.mark.spec("5.2")
def test_nothing_waits_for_what_was_cancelled(work: Work) -> None:
    gone, waived, other = work.add_task("gone"), work.add_task("waived"), work.add_task("other")
    work.cancel(gone, reason="not needed")
    work.cancel(waived, reason="not needed", dependents="free")
    with pytest.raises(Conflict, match=f"{gone.id}.*cancelled"):
        work.add_task("after", depends_on=[gone])
    with pytest.raises(Conflict, match=f"{gone.id}.*cancelled"):
        work.link(other, on=[gone])
    claim = taken(work)
    with pytest.raises(Conflict, match="cancelled"):
        claim.block(on=[gone])
    assert work.add_task("after", depends_on=[waived]).waits == 0


@pytest.mark.spec("5.2")
def test_what_is_unblocked_waits_no_longer_for_what_was_cancelled(work: Work) -> None:
    gone, kept = work.add_task("gone"), work.add_task("kept")
    task = work.add_task("it", depends_on=[gone, kept])
    work.cancel(gone, reason="not needed")
    assert work.task(task).status == "blocked"
    after = work.unblock(task)
    assert (after.status, after.waits, after.depends_on) == ("pending", 1, (kept.id,))
    taken(work).complete()
    assert taken(work).task.id == task.id


@pytest.mark.spec("5.4")
def test_whom_somebody_names_may_try_again(work: Work) -> None:
    task = work.add_task("it", on_failure={"policy": "reassign", "backoff": 0})
    taken(work).fail("could not")
    assert work.claim("dev-1") is None
    assert work.assign(task, "dev-1").avoid == ()
    assert taken(work).task.id == task.id


@pytest.mark.spec("5.8")
def test_in_a_private_work_tasks_go_to_its_members(book: Book) -> None:
    work = book.work(name="private", members=["dev-1", "dev-2"])
    task = work.add_task("it", needs_review=True)
    with pytest.raises(BadInput, match="dev-1, dev-2"):
        work.assign(task, "eve")
    with pytest.raises(BadInput, match="may not know"):
        work.add_task("another", assigned_to="eve")
    work.assign(task, "dev-1")
    taken(work).complete()
    with pytest.raises(BadInput, match="may not know"):
        work.assign_review(task, "eve")
    assert work.assign_review(task, "dev-2").reviewer == "dev-2"


@pytest.mark.spec("5.1")
def test_limits_that_are_not_named_stay(work: Work) -> None:
    work.change(limits={"max_tasks": 3}, backend="sqlite")
    charter = work.change(limits={"max_agents": 2}, save_interval=5)
    assert (charter.limits.max_tasks, charter.limits.max_agents) == (3, 2)
    assert charter.settings == {"backend": "sqlite", "save_interval": 5}
    with pytest.raises(BadInput, match="at least 1"):
        work.change(limits={"max_agents": 0})


@pytest.mark.spec("5.5")
def test_nobody_is_asked_about_a_task_that_was_cancelled(work: Work) -> None:
    task = work.add_task("drop the table", risk="data is lost")
    asked = work.request_approval("another thing", task=task)
    raised = work.escalate("which table?", task=task)
    other = work.escalate("something else")
    work.cancel(task, reason="we keep it")
    inbox = work.inbox()
    assert inbox.approvals == ()
    assert [one.id for one in inbox.escalations] == [other.id]
    assert {one.status for one in work.approvals()} == {"cancelled"}
    settled = next(one for one in work.escalations() if one.id == raised.id)
    assert (settled.status, settled.answer) == ("resolved", "the task was cancelled: we keep it")
    with pytest.raises(Conflict, match="cancelled"):
        work.approve(asked)


@pytest.mark.spec("5.4")
def test_what_is_tried_again_by_hand_begins_anew(work: Work) -> None:
    task = work.add_task("it", on_failure={"policy": "retry", "retries": 1, "backoff": 0})
    for _ in range(2):
        taken(work).fail("could not")
    assert len(work.inbox().escalations) == 1
    assert work.retry(task).failures == 0
    assert work.inbox().escalations == ()
    taken(work).fail("could not")
    assert work.task(task).status == "pending"


@pytest.mark.spec("5.7")
def test_a_task_is_found_by_its_new_title(work: Work) -> None:
    task = work.add_task("something vague")
    work.edit(task, title="Write the migration of the tokens table")
    other = work.add_task("Write the migration of the tokens table")
    assert [one.id for one in work.radar(other)] == [task.id]


@pytest.mark.spec("5.5")
def test_who_approves_what_was_asked_about_a_decision_approves_the_decision(work: Work) -> None:
    for yes, status in ((True, "approved"), (False, "rejected")):
        decision = work.decide(question="which?", choice="this one")
        asked = work.request_approval("go with it", decision=decision)
        (work.approve if yes else work.disapprove)(asked, by="kim")
        (found,) = (one for one in work.decisions() if one.id == decision.id)
        assert (found.status, found.answered_by) == (status, "kim")
