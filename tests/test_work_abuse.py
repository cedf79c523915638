"""Working memory in the wrong hands: what nobody should try, tried."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import commonplace
from commonplace import BadMove, Book, Claim, Conflict, Cycle, Fenced, TooLarge, Work


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
    claim.work._ledger.store.lease(
        f"task/{task.work}/{task.number}/{claim.token}", claim.agent, 0, claim.token
    )


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


# graphs of every shape


@pytest.mark.spec("5.2", "5.10")
def test_a_cycle_by_way_of_a_batch_is_seen_in_whatever_order_it_is_given(book: Book, work: Work) -> None:
    work.add_task("there", id="e")
    head = book.head
    batch = [
        {"title": "a", "id": "a", "depends_on": ["b"], "blocks": ["e"]},
        {"title": "b", "id": "b", "depends_on": ["e"]},
    ]
    for tasks in (batch, batch[::-1]):
        with pytest.raises(Cycle) as error:
            work.add_tasks(tasks)
        assert sorted(set(error.value.cycle)) == ["a", "b", "e"]
        assert error.value.cycle[0] == error.value.cycle[-1]
    assert book.head == head
    work.add_task("after", id="f", depends_on=["e"])
    added = work.add_tasks(
        [
            {"title": "x", "id": "x", "depends_on": ["y"], "blocks": ["e", "z"]},
            {"title": "y", "id": "y"},
            {"title": "z", "id": "z"},
        ]
    )
    assert [(one.id, one.waits) for one in added] == [("x", 1), ("y", 0), ("z", 1)]
    done = [taken(work).complete().id for _ in range(5)]
    assert done == ["y", "x", "e", "f", "z"]


@pytest.mark.spec("5.2")
def test_a_chain_of_thousands_is_walked_checked_and_cancelled(book: Book, work: Work) -> None:
    long = 5_000
    tasks = [{"title": "step", "id": f"t{n}", "depends_on": [f"t{n - 1}"] if n else []} for n in range(long)]
    work.add_tasks(tasks[::-1])
    assert [one.id for one in work.critical_path()] == [f"t{n}" for n in range(long)]
    with pytest.raises(Cycle) as error:
        work.link("t0", on=[f"t{long - 1}"])
    assert len(error.value.cycle) == long + 1
    with pytest.raises(Cycle):
        work.add_tasks(
            [{"title": "it", "id": f"c{n}", "depends_on": [f"c{(n + 1) % long}"]} for n in range(long)]
        )
    assert work.counts == {"tasks": long, "pending": long}
    work.cancel("t0", reason="no need", dependents="cancel")
    assert work.counts["cancelled"] == long
    assert (work.ready(), work.blocked()) == ([], [])
    assert work.task(f"t{long - 1}").reason == f"it depends on t{long - 2}, which was cancelled"


@pytest.mark.spec("5.2")
def test_thousands_wait_for_one_task(work: Work) -> None:
    wide = 5_000
    work.add_task("first", id="first")
    work.add_tasks([{"title": "it", "id": f"t{n}", "depends_on": ["first"]} for n in range(wide)])
    work.add_task("last", id="last", depends_on=[f"t{n}" for n in range(wide)])
    taken(work).complete()
    assert [one.number for one in work.ready(limit=3)] == [1, 2, 3]
    assert len(work.ready()) == wide
    for n in range(wide - 1):
        work.cancel(f"t{n}", reason="no need", dependents="free") if n % 1000 == 0 else None
    assert work.task("last").waits == wide - 5
    work.cancel("last", reason="no need")
    assert work.counts["pending"] == wide - 5


@pytest.mark.spec("5.2", "5.10")
def test_no_way_leads_round_the_limits(book: Book) -> None:
    work = book.work(name="small", limits={"max_tasks": 6, "max_dependents": 2, "max_agents": 2})
    for id in ("a", "b", "c", "d"):
        work.add_task(id, id=id)
    work.link("b", on=["a"])
    work.add_task("e", id="e", depends_on=["a"])
    head = book.head
    for act in (
        lambda: work.link("c", on=["a"]),
        lambda: work.add_task("f", depends_on=["a"]),
        lambda: work.add_task("f", blocks=["b", "c", "d"], depends_on=["a"]),
        lambda: work.add_tasks([{"title": "f"}, {"title": "g"}]),
    ):
        with pytest.raises(TooLarge):
            act()
    assert book.head == head
    claim = taken(work)
    with pytest.raises(TooLarge):
        claim.split(["one", "two"])
    with pytest.raises(TooLarge):
        work.add_tasks([{"title": "f", "id": "f"}] + [{"title": "it", "depends_on": ["f"]}] * 3)
    assert claim.complete().status == "completed"
    work.assign("c", "dev-2")
    with pytest.raises(TooLarge, match="2 agents"):
        work.claim("dev-3")


@pytest.mark.spec("5.2", "5.10")
@pytest.mark.parametrize("way", ["block", "cancel", "free"])
def test_a_diamond_is_cancelled_from_its_top(work: Work, way: str) -> None:
    work.add_tasks(
        [{"title": "a", "id": "a"}]
        + [{"title": id, "id": id, "depends_on": ["a"]} for id in ("b", "c")]
        + [{"title": "d", "id": "d", "depends_on": ["b", "c"]}]
    )
    work.cancel("a", reason="no need", dependents=way)
    found = {one.id: one.status for one in work.tasks()}
    below = {"block": "blocked", "cancel": "cancelled", "free": "pending"}[way]
    assert found == {
        "a": "cancelled",
        "b": below,
        "c": below,
        "d": "cancelled" if way == "cancel" else "pending",
    }
    assert work.critical_path() == ([] if way == "cancel" else [work.task("b"), work.task("d")])
    if way == "free":
        assert [taken(work).complete().id for _ in range(3)] == ["b", "c", "d"]


@pytest.mark.spec("5.2")
def test_the_same_part_named_twice_is_waited_for_once(work: Work) -> None:
    work.add_task("whole", id="whole")
    claim = taken(work)
    work.add_task("part", id="part")
    assert claim.split([{"title": "part", "id": "part"}] * 2).waits == 1
    assert taken(work).complete().id == "part"
    assert taken(work).task.id == "whole"


@pytest.mark.spec("5.2")
def test_what_waited_for_a_task_that_was_cancelled_says_so(work: Work) -> None:
    work.add_task("whole", id="whole")
    taken(work).split([{"title": "part", "id": "part"}])
    work.cancel("part", reason="no need")
    whole = work.task("whole")
    assert (whole.status, whole.reason) == ("blocked", "it depends on part, which was cancelled")
    work.unlink("whole", on=["part"])
    work.unblock("whole")
    assert taken(work).task.id == "whole"


# approvals and closed works


@pytest.mark.spec("5.6")
def test_a_task_waits_for_every_approval_that_is_asked_for(work: Work) -> None:
    task = work.add_task("drop the table", risk="data is lost", id="t")
    second = work.request_approval("drop it on a Friday?", task="t")
    assert task.approval is not None
    work.approve(task.approval, by="ann")
    assert work.claim("dev-1") is None
    work.approve(second, by="ann")
    taken(work).fail("it broke")
    third = work.request_approval("again?", task="t")  # of what has failed, too
    work.retry("t")
    assert work.claim("dev-1") is None
    work.approve(third, by="ann")
    part = work.add_task("part", id="p")
    taken(work, "dev-1").block(on=[part])
    fourth = work.request_approval("and this?", task="t")
    taken(work, "dev-1").complete()
    assert (work.task("t").status, work.claim("dev-1")) == ("blocked", None)
    work.approve(fourth, by="ann")
    assert taken(work).task.id == "t"
    fifth = work.request_approval("by the way?", task="t")  # of what is held: it goes on
    work.disapprove(fifth, by="ann")
    assert work.task("t").status == "in_progress"


# leading


@pytest.mark.spec("5.7")
def test_who_leads_may_take_the_lead_again_and_its_older_lead_is_fenced(book: Book, work: Work) -> None:
    first = work.lead("chief", lease=3600)
    with pytest.raises(Conflict, match="leads"):
        work.lead("deputy")
    second = work.lead("chief", lease=3600)
    head = book.head
    with pytest.raises(Fenced):
        first.add_task("it")
    with pytest.raises(Fenced):
        first.heartbeat()
    first.resign()  # takes nothing from the second
    with pytest.raises(Conflict, match="leads"):
        work.lead("deputy")
    assert book.head == head
    assert second.add_task("it").status == "pending"
    second.resign()
    assert work.lead("deputy").fence > second.fence
