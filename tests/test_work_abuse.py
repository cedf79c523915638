"""Working memory in the wrong hands: what nobody should try, tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import commonplace
from commonplace import BadMove, Book, Claim, Conflict, Cycle, Fenced, TooLarge, Work
from commonplace.work.tasks import OnFailure


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


# what is not what it should be

ODD: list[Any] = [
    5,
    -1,
    1.5,
    float("nan"),
    b"bytes",
    object(),
    [],
    [5],
    {},
    {"x": object()},
    {5},
    True,
    "",
    "\ud800",
]
NOT = {
    "text": [one for one in ODD if not isinstance(one, str)] + ["\ud800"],
    "said": ODD,
    "name": [*ODD, "a\0b", "x" * 201],
    "flag": [one for one in ODD if one is not True],
    "number": [one for one in ODD if one != 5 or one is True],
    "seconds": [one for one in ODD if one not in (5, 1.5) or one is True],
    "whole": [one for one in ODD if one not in (5, -1) or one is True],
    "share": [one for one in ODD if one is not True and one != 5] + [True, 5],
    "list": [one for one in ODD if one != []] + ["abc"],
    "names": [one for one in ODD if one != []] + ["abc", [""], ["a\0b"], [None]],
    "mapping": [one for one in ODD if one != {}],
    "word": [*ODD, "nothing of the kind"],
    "policy": [one for one in ODD if one != {}] + ["never", {"policy": "retry", "retries": -1}]
    + [OnFailure(policy="never"), OnFailure(backoff=-1.0)],  # type: ignore[arg-type]
    "at": [1.5, b"bytes", object(), [], {}, "yesterday, perhaps"],
}  # fmt: skip


def verbs(book: Book, work: Work) -> list[tuple[Callable[..., Any], dict[str, Any], dict[str, str]]]:
    """Every verb, with arguments that would do, and what each argument is."""
    new = {"title": "it"}
    return [
        (book.work, {"name": "new"}, {"name": "said", "goal": "text", "constraints": "list", "cores": "names",
            "members": "names", "limits": "mapping", "on_failure": "policy", "by": "name", "id": "name",
            "auto_archive_hours": "seconds"}),
        (book.works, {}, {"status": "word", "at": "at"}),
        (book.archive_works, {"dry_run": True}, {"older_than": "said", "now": "said"}),
        (work.pause, {}, {"reason": "text", "by": "name"}),
        (work.complete, {}, {"summary": "text"}),
        (work.abandon, {}, {"reason": "text"}),
        (work.change, {"goal": "x"}, {"goal": "text", "constraints": "list", "limits": "mapping",
            "on_failure": "policy", "auto_archive_hours": "seconds"}),
        (work.add_task, new, {"title": "said", "description": "text", "depends_on": "names", "blocks": "names",
            "priority": "whole", "needs_review": "flag", "on_failure": "policy", "assigned_to": "name", "risk": "text",
            "parent": "name", "metadata": "mapping", "id": "name", "by": "name"}),
        (work.add_tasks, {}, {"tasks": "list"}),
        (work.task, {"id": "t"}, {"id": "name", "at": "at"}),
        (work.tasks, {}, {"status": "word", "at": "at"}),
        (work.ready, {}, {"agent": "name", "limit": "number", "at": "at"}),
        (work.needs_review, {}, {"reviewer": "name"}),
        (work.graph, {}, {"format": "word"}),
        (work.link, {"task": "t", "on": []}, {"task": "name", "on": "names"}),
        (work.unlink, {"task": "t", "on": []}, {"task": "name", "on": "names"}),
        (work.assign, {"task": "t", "agent": "dev-1"}, {"task": "name", "agent": "name"}),
        (work.unassign, {}, {"task": "name"}),
        (work.edit, {"task": "t"}, {"title": "said", "description": "text", "priority": "whole", "needs_review": "flag",
            "on_failure": "policy", "metadata": "mapping"}),
        (work.block, {"task": "t"}, {"reason": "said"}),
        (work.unblock, {}, {"task": "name"}),
        (work.retry, {}, {"task": "name"}),
        (work.cancel, {"task": "t", "reason": "x"}, {"reason": "said", "dependents": "word"}),
        (work.branch, {"question": "x", "options": {"a": [], "b": []}}, {"question": "said", "options": "word"}),
        (work.choose, {"branch": "b", "option": "a", "rationale": "x"}, {"branch": "name", "option": "name",
            "rationale": "said"}),
        (work.claim, {"agent": "dev-1"}, {"agent": "name", "lease": "seconds", "task": "name"}),
        (work.claim_many, {"count": 1, "agent": "dev-1"}, {"count": "number"}),
        (work.worker, {"agent": "dev-1", "handler": str, "until": "idle"}, {"agent": "name", "handler": "said",
            "lease": "seconds", "until": "word", "most": "number", "poll": "seconds"}),
        (work.decide, {"question": "x", "choice": "y"}, {"question": "said", "choice": "said", "alternatives": "list",
            "rationale": "text", "affects": "names", "task": "name", "reversible": "flag", "reverses": "name",
            "confidence": "share", "sensitivity": "word"}),
        (work.discover, {"text": "x"}, {"text": "said", "type": "word", "affects": "names", "task": "name",
            "promote_to_core": "name", "sensitivity": "word"}),
        (work.artifact, {"path": "nowhere/x.py"}, {"path": "name", "type": "word", "description": "text",
            "task": "name", "store": "flag", "commit": "name", "branch": "name"}),
        (work.content, {}, {"artifact": "name"}),
        (work.nudge, {"text": "x"}, {"text": "said", "target": "name", "priority": "word", "delivery": "word",
            "task": "name"}),
        (work.take_nudges, {}, {"agent": "name"}),
        (work.acknowledge, {"nudge": "x", "agent": "dev-1"}, {"nudge": "name", "agent": "name"}),
        (work.request_approval, {"action": "x"}, {"action": "said", "risk": "text", "task": "name",
            "decision": "name"}),
        (work.approve, {"what": "x"}, {"what": "name", "why": "text"}),
        (work.review, {"task": "t", "verdict": "approved"}, {"task": "name", "verdict": "word", "comments": "text"}),
        (work.assign_review, {"task": "t", "reviewer": "qa"}, {"task": "name", "reviewer": "name"}),
        (work.escalate, {"text": "x"}, {"text": "said", "type": "word", "task": "name"}),
        (work.resolve, {"escalation": "x", "answer": "y"}, {"escalation": "name", "answer": "said"}),
        (work.lead, {"agent": "chief"}, {"agent": "name", "lease": "seconds"}),
        (work.context_for, {"task": "t"}, {"task": "name", "max_chars": "number", "max_tokens": "number", "at": "at"}),
        (work.radar, {}, {"task": "name"}),
        (work.promote, {"candidate": "x"}, {"candidate": "name"}),
        (work.reject, {"candidate": "x"}, {"candidate": "name"}),
    ]  # fmt: skip


@pytest.mark.spec("5.2", "L5")
def test_whatever_is_not_what_it_should_be_is_refused_by_name(book: Book, work: Work) -> None:
    work.add_task("it", id="t")
    head = book.head
    for verb, usual, params in verbs(book, work):
        for name, kind in params.items():
            for odd in NOT[kind]:
                with pytest.raises(commonplace.CommonplaceError):
                    verb(**{**usual, name: odd})
                    pytest.fail(f"{verb.__qualname__}({name}={odd!r}) was taken")
                assert book.head == head, (verb, name, odd)


@pytest.mark.spec("5.3", "L5")
def test_a_claim_refuses_what_is_not_what_it_should_be(book: Book, work: Work) -> None:
    work.add_task("it", id="t")
    claim = taken(work)
    head = book.head
    calls: list[tuple[Callable[..., Any], dict[str, Any], dict[str, str]]] = [
        (claim.heartbeat, {}, {"lease": "seconds"}),
        (claim.complete, {}, {"summary": "text", "next_steps": "list", "learnings": "list", "artifacts": "names"}),
        (claim.fail, {}, {"reason": "said"}),
        (claim.release, {}, {"reason": "text"}),
        (claim.block, {}, {"reason": "text", "on": "names"}),
        (claim.split, {}, {"subtasks": "list"}),
        (claim.context, {}, {"max_chars": "number", "max_tokens": "number"}),
    ]  # fmt: skip
    for verb, usual, params in calls:
        for name, kind in params.items():
            for odd in NOT[kind]:
                with pytest.raises(commonplace.CommonplaceError):
                    verb(**{**usual, name: odd})
                    pytest.fail(f"{verb.__qualname__}({name}={odd!r}) was taken")
                assert book.head == head, (verb, name, odd)
    assert claim.complete("done").status == "completed"


@pytest.mark.spec("5.2")
@pytest.mark.parametrize(
    "id", ["a/b/../c", "ünï-çødé-日本", "x" * 200, "'; DROP TABLE tasks; --", "..", "a\nb", "w\t", "🦀"]
)
def test_ids_may_be_any_names(book: Book, id: str) -> None:
    work = book.work(name="it", id=id)
    work.add_task("first", id=id)
    work.add_task("second", id="other", depends_on=[id])
    agent = id.replace("\n", "")
    claim = taken(work, agent)
    work.discover("found", by=agent, affects=[id])
    work.nudge("hurry", target=agent, by="ann")
    assert [one.text for one in claim.nudges()] == ["hurry"]
    assert claim.complete(artifacts=[id]).status == "completed"
    assert [one.id for one in work.ready()] == ["other"]
    assert [one.path for one in work.artifacts(task=id)] == [id]
    assert work.context_for("other").text
    assert book.work(id).graph("dot")
    assert [one.agent for one in work.contributions()] == [agent]


@pytest.mark.spec("5.2", "5.5")
def test_a_huge_title_is_kept_and_cut_where_there_is_no_room(work: Work) -> None:
    title = "many words " * 100_000
    task = work.add_task(title, description=title)
    assert work.task(task).title == title
    found = work.context_for(task, max_chars=500)
    assert len(found.text) <= 500
    assert found.left_out
    assert len(work.graph()) < 1_000
    with pytest.raises(TooLarge):
        work.add_task("x" * (9 << 20))


@pytest.mark.spec("5.5")
def test_a_context_keeps_to_the_smallest_budget(work: Work) -> None:
    task = work.add_task("Rotate the signing keys", description="every ninety days")
    work.discover("the old key stays valid for an hour", affects=[task])
    work.nudge("hurry", target="dev-1", by="ann")
    work.assign(task, "dev-1")
    for most in range(1, 51):
        by_chars = work.context_for(task, max_chars=most)
        assert len(by_chars.text) <= most
        by_tokens = work.context_for(task, max_tokens=most)
        assert len(by_tokens.text) <= 8 * most
        assert {id for id, _ in by_chars.left_out} >= {task.id} or most > 40
