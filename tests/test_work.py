"""Working memory: a graph of tasks that agents and people share, on every engine."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import commonplace
from commonplace import (
    BadInput,
    BadMove,
    Book,
    Claim,
    Conflict,
    Cycle,
    Denied,
    Fenced,
    NotFound,
    TooLarge,
    Work,
)
from commonplace.engines.contract import Tx
from commonplace.testing.transactions import each_transaction
from commonplace.work.tasks import MOVES, STATUSES, Task
from tests.works import taken


def titles(tasks: list[Task]) -> list[str]:
    return [one.title for one in tasks]


# the work itself


@pytest.mark.spec("5.1")
def test_a_work_is_begun_opened_again_paused_completed_and_archived(book: Book) -> None:
    work = book.work(name="auth", goal="JWT", constraints=["keep the user table"], id="w1")
    again = book.work(name="auth", goal="JWT", constraints=["keep the user table"], id="w1")
    assert again.id == "w1"  # the same call again
    assert book.work(id="w1").info().constraints == ("keep the user table",)
    with pytest.raises(Conflict, match="another name and goal and constraints"):
        book.work(name="other", id="w1")
    task = work.add_task("Design token schema")
    assert work.manage.pause("lunch").status == "paused"
    assert work.claim("dev-1") is None
    work.manage.resume()
    with pytest.raises(Conflict, match="1 pending"):
        work.manage.complete()
    taken(work).complete("done")
    assert work.manage.complete("all is done").summary == "all is done"
    with pytest.raises(Conflict, match="is completed"):
        work.add_task("one more")
    assert work.manage.archive().status == "archived"
    with pytest.raises(Conflict, match="archived"):
        work.manage.resume()
    assert work.task(task.id).info().status == "completed"
    assert [one.id for one in book.works.list("archived")] == ["w1"]


@pytest.mark.spec("5.1", "5.10")
def test_what_is_finished_long_enough_is_put_away(book: Book) -> None:
    from datetime import timedelta

    done = book.work(name="done", auto_archive_hours=0)
    done.manage.complete()
    still = book.work(name="still")
    assert [id for id, _ in book.works.archive_finished(dry_run=True)] == [done.id]
    assert done.info().status == "completed"
    assert [id for id, _ in book.works.archive_finished()] == [done.id]
    assert (done.info().status, still.info().status) == ("archived", "active")
    still.manage.abandon("nobody wants it")
    assert [id for id, _ in book.works.archive_finished(older_than=timedelta(0))] == [still.id]


@pytest.mark.spec("5.1", "L10")
def test_a_work_that_is_over_can_be_discarded(book: Book, work: Work, tmp_path: Path) -> None:
    work.add_task("Paint it blue")
    claim = taken(work)
    claim.artifact("colour.txt", content="blue")
    claim.decide(question="which colour?", choice="blue", rationale="we like blue")
    claim.complete("it is blue")
    assert work.manage.export(tmp_path / "work.json") == 1
    assert (tmp_path / "work.json").read_text().count("blue") >= 4
    with pytest.raises(Conflict, match="complete or abandon"):
        work.manage.discard(confirm="DISCARD")
    work.manage.complete("all blue")
    with pytest.raises(BadInput, match="DISCARD"):
        work.manage.discard(confirm="yes")
    with pytest.raises(Denied):
        book.as_actor("eve", role="person").work(id=work.id).manage.discard(confirm="DISCARD")
    assert work.manage.discard(confirm="DISCARD") > 4
    assert work.counts()["completed"] == 1
    work.manage.export(tmp_path / "work.json")
    assert "blue" not in (tmp_path / "work.json").read_text()
    assert not any("blue" in str(event.payload) for event in book.events())
    assert book.search("blue").results == ()


@pytest.mark.spec("5.3")
def test_whoever_works_on_something_that_was_given_up_learns_of_it(work: Work) -> None:
    work.add_task("it")
    claim = taken(work)
    work.manage.abandon("nobody wants it")
    with pytest.raises(Conflict, match="is cancelled"):
        claim.heartbeat()
    with pytest.raises(Conflict, match="is cancelled"):
        claim.complete()
    work.manage.resume()
    claim.complete()

    def gives_up(_claim: Claim) -> None:
        work.manage.abandon("for good")

    work.add_task("another")
    assert work.worker("dev-1", gives_up).lost == 1


@pytest.mark.spec("5.1", "3.4")
def test_a_pattern_of_a_core_gives_a_work_its_first_tasks(book: Book) -> None:
    book.memory.set_core("auth-jwt", name="JWT")
    plan: list[dict[str, Any]] = [
        {"title": "Design"},
        {"title": "Build", "depends_on": ["Design"]},
        {"title": "Test", "depends_on": ["Build"]},
    ]
    kept = book.remember(
        "Authentication is added in three steps.", core="auth-jwt", type="pattern",
        tasks=plan, override="a pattern",
    )  # fmt: skip
    work = book.work(name="auth", cores=["auth-jwt"], pattern=kept.item_id)
    assert titles(work.ready()) == ["Design"]
    assert titles(work.tasks("waiting")) == ["Build", "Test"]
    with pytest.raises(NotFound, match="no core"):
        book.work(name="x", cores=["nothing"])


# the graph


@pytest.mark.spec("5.2")
def test_tasks_are_ready_when_what_they_depend_on_is_done(work: Work) -> None:
    design = work.add_task("Design")
    build = work.add_task("Build", depends_on=[design.id])
    test = work.add_task("Test", depends_on=[design, build])
    assert titles(work.ready()) == ["Design"]
    assert titles(work.tasks("waiting")) == ["Build", "Test"]
    assert titles(work.critical_path()) == ["Design", "Build", "Test"]
    taken(work).complete()
    assert titles(work.ready()) == ["Build"]
    taken(work).complete()
    taken(work).complete()
    assert (work.ready(), work.tasks("waiting"), work.critical_path()) == ([], [], [])
    assert work.task(test.id).info().status == "completed"
    late = work.add_task("Document", depends_on=[test.id])  # all of it is done already
    assert late.ready_for == ""


@pytest.mark.spec("5.2")
def test_the_highest_priority_comes_first_and_then_the_oldest(work: Work) -> None:
    for title, priority in (("c", 0), ("a", 5), ("d", 0), ("b", 5), ("e", -1)):
        work.add_task(title, priority=priority)
    assert titles(work.ready()) == ["a", "b", "c", "d", "e"]
    work.task(work.ready()[4]).edit(priority=9)
    assert [taken(work, f"dev-{n}").task.title for n in range(5)] == ["e", "a", "b", "c", "d"]
    assert work.claim("dev-9") is None


@pytest.mark.spec("5.2", "5.10")
def test_a_cycle_is_refused_and_named(work: Work) -> None:
    a = work.add_task("a")
    b = work.add_task("b", depends_on=[a])
    c = work.add_task("c", depends_on=[b])
    with pytest.raises(Cycle) as error:
        work.task(a).add_dependencies(on=[c])
    assert error.value.cycle == (a.id, c.id, b.id, a.id)
    with pytest.raises(Cycle):
        work.task(a).add_dependencies(on=[a])
    with pytest.raises(Cycle) as error:
        work.add_tasks(
            [{"title": "x", "id": "x", "depends_on": ["y"]}, {"title": "y", "id": "y", "depends_on": ["x"]}]
        )
    assert error.value.cycle == ("x", "y", "x")
    assert len(work.tasks()) == 3  # nothing was half-written


@pytest.mark.spec("5.2")
def test_tasks_are_added_linked_and_split_while_work_goes_on(work: Work) -> None:
    first = work.add_task("first")
    second = work.add_task("second")
    work.task(second).add_dependencies(on=[first])
    assert titles(work.ready()) == ["first"]
    work.task(second).remove_dependencies(on=[first])
    assert titles(work.ready()) == ["first", "second"]
    before = work.add_task("before", blocks=[second])
    assert titles(work.ready()) == ["first", "before"]
    claim = taken(work)
    claim.split(["left", {"title": "right", "priority": 3}])
    assert work.task(first).info().status == "blocked"
    assert titles(work.ready()) == ["right", "before", "left"]
    done = [taken(work).complete().title for _ in range(4)]
    assert done == ["right", "before", "second", "left"]
    assert titles(work.ready()) == ["first"]  # to bring the parts together
    assert work.task(before).info().status == "completed"
    held = taken(work)
    found = work.add_task("found out late")
    assert held.block(on=[found]).status == "blocked"
    with pytest.raises(Fenced):
        held.complete()
    assert titles(work.ready()) == ["found out late"]


@pytest.mark.spec("5.2", "5.10")
def test_one_of_several_alternatives_is_chosen_and_the_others_are_cancelled(work: Work) -> None:
    sql, kv = work.add_task("postgres schema"), work.add_task("redis keys")
    after = work.add_task("wire it up", depends_on=[sql, kv])
    branch = work.branch("which store?", {"postgres": [sql], "redis": [kv]})
    assert work.ready() == []
    assert work.inbox().branches == (branch,)
    decision = work.choose(branch, "postgres", rationale="we run it already", by="chief")
    assert (decision.choice, decision.alternatives) == ("postgres", ("redis",))
    gone = work.task(kv).info()
    assert gone.status == "cancelled"
    assert "we run it already" in gone.reason
    assert titles(work.ready()) == ["postgres schema"]
    taken(work).complete()
    assert titles(work.ready()) == ["wire it up"]
    assert work.task(after).info().waits == 0
    with pytest.raises(Conflict, match="has been decided"):
        work.choose(branch, "redis", rationale="no")


@pytest.mark.spec("5.2")
@pytest.mark.parametrize("status", STATUSES)
def test_every_move_that_is_not_in_the_table_is_refused_and_says_what_is(work: Work, status: str) -> None:
    task = brought_to(work, status)
    tries: dict[str, Callable[[], object]] = {
        "assigned": lambda: work.task(task).assign("dev-7"),
        "blocked": lambda: work.task(task).block("a reason"),
        "cancelled": lambda: work.task(task).cancel(reason="a reason"),
        "pending": lambda: work.task(task).unblock() if status == "blocked" else work.task(task).retry(),
        "completed": lambda: work.review(task, "approved", by="qa"),
        "in_progress": lambda: work.review(task, "needs_rework", by="qa"),
    }
    for wanted, act in tries.items():
        if wanted in MOVES[status] or (status, wanted) in {("assigned", "assigned"), ("assigned", "blocked")}:
            continue
        if status == "in_progress" and wanted in ("completed", "pending"):
            continue  # its holder's to say
        with pytest.raises(BadMove) as error:
            act()
        assert error.value.allowed == MOVES[status]
        assert work.task(task).info().status == status


def brought_to(work: Work, status: str) -> Task:
    task = work.add_task("it", needs_review=status == "review")
    if status == "assigned":
        work.task(task).assign("dev-1")
    elif status == "blocked":
        work.task(task).block("waiting for the vendor")
    elif status == "cancelled":
        work.task(task).cancel(reason="not needed")
    elif status != "pending":
        claim = taken(work)
        if status in ("review", "completed"):
            claim.complete()
        elif status == "failed":
            claim.fail("it broke")
    found = work.task(task).info()
    assert found.status == status
    return found


# claims


@pytest.mark.spec("5.3")
def test_a_dead_workers_task_goes_to_the_next_and_its_late_write_is_refused(work: Work) -> None:
    task = work.add_task("it")
    late = taken(work, "dev-1", lease=0.1)
    assert work.claim("dev-2") is None
    time.sleep(0.15)
    assert titles(work.ready()) == ["it"]  # whoever looks finds it
    claim = taken(work, "dev-2")
    assert (claim.task.id, claim.task.assigned_to) == (task.id, "dev-2")
    assert claim.token > late.token
    for write in (
        late.complete,
        late.release,
        late.heartbeat,
        lambda: late.fail("x"),
        lambda: late.block("x"),
    ):
        with pytest.raises(Fenced):
            write()
    with pytest.raises(Fenced):
        late.artifact("late.txt", content="x")
    claim.complete("mine")
    assert work.task(task).info().result.summary == "mine"  # type: ignore[union-attr]


@pytest.mark.spec("5.3")
def test_heartbeats_keep_a_task(work: Work) -> None:
    work.add_task("it")
    claim = taken(work, lease=0.3)
    for _ in range(6):
        time.sleep(0.1)
        claim.heartbeat()
    assert work.claim("dev-2") is None
    claim.complete()


@pytest.mark.spec("5.5", "5.6")
def test_who_decides_about_a_decision_has_answered_all_that_was_asked_about_it(work: Work) -> None:
    held, other = work.add_task("delete the old table"), work.add_task("delete the new one")
    made = work.decide(question="keep it?", choice="no", rationale="nobody reads it")
    asked = work.approvals.request("delete it", decision=made, task=held)
    again = work.approvals.request("delete that as well", decision=made, task=other)
    apart = work.approvals.request("something else")
    work.approvals.grant(made.id, by="pat")
    assert [one.id for one in work.records("approval") if one.status == "pending"] == [apart.id]
    assert [one.id for one in work.inbox().approvals] == [apart.id]
    assert titles(work.ready()) == ["delete the old table", "delete the new one"]
    assert {work.approvals.grant(one.id, by="pat").status for one in (asked, again)} == {"approved"}
    with pytest.raises(Conflict, match="approved"):
        work.approvals.refuse(asked.id, by="pat")


@pytest.mark.spec("5.3")
def test_what_a_dead_worker_left_comes_before_what_is_less_urgent(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    work.add_tasks(
        [{"title": "urgent", "priority": 5}, {"title": "one"}, {"title": "two"}, {"title": "three"}]
    )
    assert taken(work, lease=0.05).task.title == "urgent"
    time.sleep(0.1)
    monkeypatch.setattr("commonplace.work.claims.CHECK_EVERY_US", 10**12)
    assert taken(work, agent="dev-2").task.title == "one", "this process has just looked after the holders"
    monkeypatch.setattr("commonplace.work.claims.CHECK_ONE_CLAIM_IN", 1)
    assert taken(work, agent="dev-2").task.title == "urgent"
    assert taken(work, agent="dev-2").task.title == "two"


@pytest.mark.spec("5.3")
def test_many_are_claimed_at_once_and_a_repeated_completion_answers_as_the_first(work: Work) -> None:
    work.add_tasks([{"title": f"t{n}"} for n in range(5)])
    claims = work.claim_many(3, "dev-1")
    assert [one.task.title for one in claims] == ["t0", "t1", "t2"]
    first = claims[0].complete("done")
    assert claims[0].complete("done") == first
    with pytest.raises(Fenced):
        claims[0].complete("something else")
    assert work.counts()["in_progress"] == 2


@pytest.mark.spec("5.3")
def test_many_are_completed_at_once_all_or_none(work: Work) -> None:
    first = work.add_task("first")
    work.add_tasks([{"title": f"t{n}"} for n in range(3)])
    after = work.add_task("after the first", depends_on=[first])
    claims = work.claim_many(4, "dev-1")
    claims[3].release()
    with pytest.raises(Fenced):
        work.complete_many(claims, "done")
    assert work.counts()["in_progress"] == 3
    done = work.complete_many(claims[:3], "done")
    assert [(one.status, one.result.summary if one.result else None) for one in done] == [
        ("completed", "done")
    ] * 3
    assert work.complete_many(claims[:3], "done") == done  # the same call again
    assert work.complete_many([]) == []
    assert after.id in {one.id for one in work.ready()}
    with pytest.raises(BadInput):
        work.complete_many([*claims[:1], taken(work, "dev-2")])


@pytest.mark.spec("5.3")
def test_a_task_is_completed_and_the_next_one_claimed_in_one_commit(book: Book, work: Work) -> None:
    for title in ("first", "second", "third"):
        work.add_task(title, id=title)
    claim, begun = taken(work, lease=20), list[Tx]()
    with each_transaction(book.ledger.store, begun.append):
        following = claim.next("done", learnings=["look twice"])
    assert len(begun) == 1
    assert claim.task.status == "completed"
    assert following is not None
    assert (following.task.title, following.agent, following.lease) == ("second", "dev-1", 20)
    told = list(book.events(after=book.head - 2))
    assert [(one.kind, one.payload["task_id"]) for one in told] == [
        ("task.completed", "first"),
        ("task.claimed", "second"),
    ]
    assert following.token == told[1].position

    assert claim.next("done", learnings=["look twice"]) is None  # the same again: nothing more is claimed
    assert titles(work.tasks("in_progress")) == ["second"]
    with pytest.raises(Fenced):  # completed with another result: nothing is written, and nothing claimed
        claim.next("something else")
    assert titles(work.tasks("in_progress")) == ["second"]
    work.manage.pause()
    assert following.next("done") is None
    assert work.task("second").info().status == "completed"
    work.manage.resume()
    last = taken(work)
    assert last.task.title == "third"
    assert last.next() is None
    assert work.counts()["completed"] == 3


@pytest.mark.spec("5.3", "L4")
def test_who_was_alone_with_a_work_sees_at_once_what_others_add(book_url: str, engine_name: str) -> None:
    if engine_name == "memory":
        pytest.skip("a book in memory is opened once")
    with commonplace.open(book_url) as here, commonplace.open(book_url) as there:
        mine = here.work(name="shared")
        theirs = there.work(id=mine.id)
        for n in range(4):
            for _ in range(12):
                assert mine.claim("dev-1") is None
            theirs.add_task(f"t{n}")
            assert taken(mine).task.title == f"t{n}"
            mine.manage.pause()
            for _ in range(12):
                assert mine.claim("dev-1") is None
            theirs.manage.resume()
            mine.add_task("more")
            assert taken(mine).next("done") is None
        assert mine.counts() == theirs.counts()


@pytest.mark.spec("5.3")
def test_what_is_completed_can_make_the_next_one_ready(work: Work) -> None:
    work.add_task("one", id="one")
    work.add_task("two", depends_on=["one"])
    following = taken(work).next("done")
    assert following is not None
    assert following.task.title == "two"


@pytest.mark.spec("5.3")
def test_lists_come_in_order_however_long_they_are(work: Work) -> None:
    added = work.add_tasks([{"title": f"t{n}", "priority": n % 3} for n in range(90)])
    work.task(added[0]).assign("dev-1")
    wanted = [one.id for one in sorted(added[1:], key=lambda one: (-one.priority, one.number))]
    assert [one.id for one in work.ready("dev-2")] == wanted
    assert [one.id for one in work.ready(limit=20)] == wanted[:20]
    assert sorted(one.id for one in work.ready()) == sorted(one.id for one in added)


@pytest.mark.spec("5.3")
def test_an_assigned_task_is_for_its_agent_alone(work: Work) -> None:
    task = work.add_task("for dev-1")
    work.task(task).assign("dev-1")
    assert work.claim("dev-2") is None
    assert titles(work.ready("dev-1")) == ["for dev-1"]
    work.task(task).assign("dev-2")
    assert work.claim("dev-1") is None
    assert taken(work, "dev-2").task.id == task.id


@pytest.mark.spec("5.3")
def test_what_fails_is_retried_after_a_while_and_then_escalated(work: Work) -> None:
    work.add_task("flaky", on_failure={"policy": "retry", "retries": 1, "backoff": 0.1})
    taken(work).fail("no network")
    assert work.claim("dev-1") is None  # not at once
    time.sleep(0.15)
    again = taken(work)
    assert again.task.failures == 1
    again.fail("still no network")
    (escalation,) = work.inbox().escalations
    assert (escalation.type, escalation.status) == ("error", "open")
    assert titles(work.tasks("failed")) == ["flaky"]
    work.answer(escalation, "try it by hand", by="chief")
    assert work.inbox().escalations == ()
    work.task(work.tasks("failed")[0]).retry()
    taken(work).complete()


@pytest.mark.spec("5.3", "5.10")
@pytest.mark.parametrize("policy", ["reassign", "skip", "abort", "escalate"])
def test_a_failure_policy_decides_what_happens_next(work: Work, policy: str) -> None:
    first = work.add_task("first", on_failure={"policy": policy, "backoff": 0})
    work.add_task("second", depends_on=[first])
    taken(work, "dev-1").fail("cannot")
    if policy == "reassign":
        assert work.claim("dev-1") is None
        taken(work, "dev-2").complete()
        assert titles(work.ready()) == ["second"]
    elif policy == "skip":
        assert work.task(first).info().status == "cancelled"
        assert titles(work.ready()) == ["second"]
    elif policy == "abort":
        assert work.info().status == "cancelled"
        with pytest.raises(Conflict, match="cancelled"):
            work.claim("dev-2")
    else:
        assert work.task(first).info().status == "failed"
        assert titles(work.tasks("waiting")) == ["second"]


@pytest.mark.spec("5.2", "5.10")
@pytest.mark.parametrize("dependents", ["block", "cancel", "free"])
def test_what_depends_on_a_cancelled_task(work: Work, dependents: str) -> None:
    first = work.add_task("first")
    second = work.add_task("second", depends_on=[first])
    third = work.add_task("third", depends_on=[second])
    work.task(first).cancel(reason="not needed", dependents=dependents)
    found = [work.task(one).info().status for one in (second, third)]
    assert (
        found
        == {"block": ["blocked", "pending"], "cancel": ["cancelled"] * 2, "free": ["pending"] * 2}[dependents]
    )
    assert titles(work.ready()) == (["second"] if dependents == "free" else [])


@pytest.mark.spec("5.3")
def test_a_worker_does_tasks_until_nothing_is_left_and_heartbeats_by_itself(work: Work) -> None:
    work.add_tasks(
        [{"title": f"t{n}", "id": f"t{n}", "depends_on": [f"t{n - 1}"] if n else []} for n in range(4)]
    )
    work.add_task("bad", on_failure="skip")

    def handler(claim: Claim) -> object:
        if claim.task.title == "bad":
            raise ValueError("no way")
        if claim.task.title == "t1":
            time.sleep(0.5)  # longer than its lease
        return {"summary": "fine", "learnings": ["it works"]} if claim.task.title == "t2" else "fine"

    worked = work.worker("dev-1", handler, lease=0.3)
    assert (worked.completed, worked.failed, worked.lost) == (4, 1, 0)
    assert work.task("t2").info().result.learnings == ("it works",)  # type: ignore[union-attr]
    assert work.counts()["completed"] == 4


@pytest.mark.spec("5.3")
def test_a_worker_that_is_stopped_or_has_done_enough_holds_nothing(work: Work) -> None:
    work.add_tasks([{"title": f"t{n}"} for n in range(6)])
    assert work.worker("dev-1", lambda claim: None, most=2).completed == 2
    assert work.counts().get("in_progress", 0) == 0
    stop = threading.Event()

    def stops(claim: Claim) -> None:
        if claim.task.title == "t3":
            stop.set()

    assert work.worker("dev-1", stops, stop=stop).completed == 2
    assert work.counts().get("in_progress", 0) == 0
    assert titles(work.ready()) == ["t4", "t5"]
    calm, asked = threading.Event(), iter([False, False, True])
    calm.is_set = lambda: next(asked)  # type: ignore[method-assign]  # stopped just when the next one came along
    assert work.worker("dev-1", lambda claim: "fine", stop=calm).completed == 1
    assert titles(work.ready()) == ["t5"]


@pytest.mark.spec("5.3")
def test_a_heartbeat_that_fails_is_not_the_last_one(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker is heard of for all of its tasks, whatever came in between."""
    work.add_tasks([{"title": f"t{n}"} for n in range(3)])
    heard, beat = list[str](), Claim.heartbeat

    def heartbeat(claim: Claim, lease: float | None = None) -> Any:
        heard.append(claim.task.title)
        if len(heard) == 1:
            raise OSError("too many open files")
        return beat(claim, lease)

    monkeypatch.setattr(Claim, "heartbeat", heartbeat)

    def handler(claim: Claim) -> None:
        before = len(heard)
        while len(heard) < before + 2:
            time.sleep(0.01)

    worked = work.worker("dev-1", handler, lease=1.5)  # a third of it is far longer than a busy machine takes
    assert (worked.completed, worked.lost) == (3, 0)
    assert set(heard) == {"t0", "t1", "t2"}


@pytest.mark.spec("5.3")
def test_a_worker_is_heard_of_while_it_tells_what_came_of_a_task(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    work.add_task("slow to tell")
    heard, beat, complete = threading.Event(), Claim.heartbeat, Claim._complete

    def heartbeat(claim: Claim, lease: float | None = None) -> Any:
        told = beat(claim, lease)
        heard.set()
        return told

    def telling(claim: Claim, *what: Any) -> Any:
        heard.clear()
        assert heard.wait(30)
        return complete(claim, *what)

    monkeypatch.setattr(Claim, "heartbeat", heartbeat)
    monkeypatch.setattr(Claim, "_complete", telling)
    assert work.worker("dev-1", lambda claim: "fine", lease=0.3).completed == 1


@pytest.mark.spec("5.3", "L2")
def test_trouble_with_the_book_is_not_blamed_on_the_handler(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    work.add_task("fine", id="fine")
    complete = Claim._complete

    def busy(claim: Claim, *what: Any) -> Any:
        monkeypatch.setattr(Claim, "_complete", complete)
        raise commonplace.Busy("made up: nothing was written")

    monkeypatch.setattr(Claim, "_complete", busy)
    assert work.worker("dev-1", lambda claim: "fine").completed == 1  # it told what came of it a second time
    assert work.task("fine").info().status == "completed"
    assert work.task("fine").info().failures == 0


@pytest.mark.spec("5.3")
def test_who_is_cancelled_while_it_tells_holds_nothing(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    telling, complete = threading.Event(), Claim._complete

    def slow(claim: Claim, *what: Any) -> Any:
        telling.set()
        time.sleep(0.1)
        return complete(claim, *what)

    monkeypatch.setattr(Claim, "_complete", slow)

    async def story() -> None:
        work = await book.aio.work(name="async")
        await work.add_tasks([{"title": f"t{n}"} for n in range(3)])

        async def handler(claim: Any) -> str:
            return "fine"

        working = asyncio.ensure_future(work.worker("dev-1", handler))
        while not telling.is_set():
            await asyncio.sleep(0.001)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        assert titles(await work.tasks("completed")) == ["t0"]
        assert titles(await work.ready()) == ["t1", "t2"]

    asyncio.run(story())


@pytest.mark.spec("5.3")
def test_a_worker_whose_work_ends_as_it_is_stopped_tells_what_it_did(work: Work) -> None:
    work.add_tasks([{"title": "t0"}, {"title": "t1"}])
    stop, asked = threading.Event(), iter([False, False, True])

    def is_set() -> bool:
        ends = next(asked)
        if ends:
            work.manage.abandon("no more of this")
        return ends

    stop.is_set = is_set  # type: ignore[method-assign]
    assert work.worker("dev-1", lambda claim: "fine", stop=stop).completed == 1


@pytest.mark.spec("5.3")
def test_workers_of_one_process_share_the_work(work: Work) -> None:
    work.add_tasks([{"title": f"t{n}"} for n in range(30)])
    seen: list[str] = []
    crew = [
        threading.Thread(target=work.worker, args=(f"dev-{n}", lambda claim: seen.append(claim.task.id)))
        for n in range(4)
    ]
    for one in crew:
        one.start()
    for one in crew:
        one.join()
    assert len(seen) == len(set(seen)) == 30


@pytest.mark.spec("5.3", "7.1")
def test_a_worker_for_asyncio(book: Book) -> None:
    async def handler(claim: Any) -> str:
        await claim.discover("found it")
        return "fine"

    async def story() -> tuple[int, int]:
        work = await book.aio.work(name="async")
        await work.add_tasks([{"title": f"t{n}"} for n in range(3)])
        worked = await work.worker("dev-1", handler)
        return worked.completed, len(await work.records("discovery"))

    assert asyncio.run(story()) == (3, 3)


# what was decided, found and made


@pytest.mark.spec("5.4")
def test_decisions_are_reversed_by_later_ones(work: Work) -> None:
    task = work.add_task("Design token schema")
    first = work.decide(
        question="Where do refresh tokens live?", choice="in the user table", alternatives=["a table of their own"],
        rationale="it is there already", affects=[task], by="dev-1",
    )  # fmt: skip
    second = work.decide(
        question="Where do refresh tokens live?", choice="in a table of their own",
        rationale="nobody touches the user table",
        affects=[task], reverses=first, by="dev-1",
    )  # fmt: skip
    assert [one.reversed_by for one in work.records("decision", task=task)] == [second.id, None]
    with pytest.raises(Conflict, match="was reversed"):
        work.decide(question="?", choice="x", reverses=first)
    final = work.decide(question="licence?", choice="MIT", reversible=False)
    with pytest.raises(Conflict, match="for good"):
        work.decide(question="licence?", choice="GPL", reverses=final)


@pytest.mark.spec("5.4", "5.10")
def test_artifacts_are_references_with_versions_and_small_ones_are_stored(work: Work, tmp_path: Path) -> None:
    file = tmp_path / "tokens.sql"
    file.write_text("create table tokens ()")
    task = work.add_task("schema")
    first = work.artifact(file, type="schema", task=task, by="dev-1")
    file.write_text("create table tokens (id int)")
    second = work.artifact(file, type="schema", task=task, commit="abc123", by="dev-1")
    assert (first.version, second.version, second.previous) == (1, 2, first.id)
    assert first.checksum != second.checksum
    assert second.checksum.startswith("sha256:")  # type: ignore[union-attr]
    file.unlink()
    assert work.content(first) == b"create table tokens ()"
    elsewhere = work.artifact("s3://bucket/report.pdf", type="document", by="dev-1")
    with pytest.raises(NotFound, match="reference only"):
        work.content(elsewhere)
    assert [one.version for one in work.records("artifact", task=task)] == [1, 2]


@pytest.mark.spec("5.4")
def test_who_names_a_reviewer_has_not_reviewed(work: Work) -> None:
    task = work.add_task("it", needs_review=True)
    taken(work).complete()
    work.task(task).assign_review("qa", by="chief")
    assert work.contributions() == []
    work.review(task, "approved", by="qa")
    assert [(one.agent, one.tasks, one.reviews) for one in work.contributions()] == [
        ("dev-1", (task.id,), ()), ("qa", (), (task.id,)),
    ]  # fmt: skip


@pytest.mark.spec("5.4")
def test_contributions_say_who_did_what(book: Book, work: Work) -> None:
    book.as_actor("dev-1", role="developer")
    task = work.add_task("it", needs_review=True)
    claim = taken(work)
    claim.discover("the table has no such column", type="constraint")
    claim.complete()
    work.review(task, "approved", by="qa")
    dev, qa = work.contributions()
    assert (dev.agent, dev.role, dev.tasks, len(dev.discoveries)) == ("dev-1", "developer", (task.id,), 1)
    assert (qa.agent, qa.reviews) == ("qa", (task.id,))
    assert (dev.first_us or 0) < (dev.last_us or 0)
    assert "--actor dev-1" in dev.log_ref


@pytest.mark.spec("5.5")
def test_context_for_a_task_holds_what_matters_for_it_within_its_budget(book: Book, work: Work) -> None:
    book.remember("Refresh tokens are rotated every hour by the gateway.", shared=True)
    schema = work.add_task("Design token schema", description="claims and refresh tokens")
    service = work.add_task("Build token service", depends_on=[schema])
    other = work.add_task("Paint the office")
    work.decide(question="Which library?", choice="jose", rationale="types", affects=[service], by="dev-1")
    work.discover(
        "The user table has no refresh_token column", type="constraint", affects=[schema], by="dev-1"
    )
    work.discover("Green paint is sold out", affects=[other], by="dev-1")
    work.discover("The token service of the old API had no tests", by="dev-1")
    claim = taken(work)
    claim.complete("two tables", artifacts=["schema/tokens.sql"])
    context = work.context_for(service)
    for part in (
        "Add JWT authentication", "No breaking changes", "Build token service", "two tables", "jose",
        "no refresh_token column",
        "schema/tokens.sql", "had no tests", "rotated every hour",
    ):  # fmt: skip
        assert part in context.text
    assert "paint" not in context.text
    short = work.context_for(service, max_chars=300)
    assert len(short.text) <= 300
    assert short.left_out
    assert all(why for _, why in short.left_out)
    assert "No breaking changes" in short.text  # what matters most is there
    assert len(work.context_for(service, max_chars=None, max_tokens=60).text) <= 240


@pytest.mark.spec("4.1", "5.4", "L7")
def test_what_was_decided_and_found_is_searched_for_like_everything_else(book: Book, work: Work) -> None:
    work.decide(question="Which library signs tokens?", choice="jose", rationale="it has types", by="dev-1")
    work.discover("The gateway rotates its keys hourly", by="dev-1")
    hidden = book.work(name="hidden", members=["dev-1"])
    hidden.discover("The gateway leaks its keys", by="dev-1")
    work.add_task("it")
    taken(work).complete("the signing service answers in two milliseconds")
    ada = book.as_actor("ada", role="developer")
    assert "jose" in ada.search("which library signs tokens").results[0].content
    found = [one.content for one in ada.search("gateway keys").results]
    assert any("rotates" in one for one in found)
    assert not any("leaks" in one for one in found)
    assert any("two milliseconds" in one.content for one in ada.search("signing service").results)
    (secret,) = [one for one in book.search("gateway leaks").results if "leaks" in one.content]
    book.erase(secret.id)
    assert not any("leaks" in one.content for one in book.search("gateway leaks").results)


# people


@pytest.mark.spec("5.6")
def test_a_nudge_is_told_once_to_each_by_its_priority(work: Work) -> None:
    work.nudge("low", target="dev-1", priority="low", by="eve")
    work.nudge("everybody", by="eve")
    work.nudge("now", target="dev-1", priority="critical", by="eve")
    assert [one.text for one in work.read_messages("dev-1")] == ["now", "everybody", "low"]
    assert work.read_messages("dev-1") == []
    assert [one.text for one in work.read_messages("dev-2")] == ["everybody"]
    assert [one.text for one in work.read_messages("dev-2")] == []


@pytest.mark.spec("5.6")
def test_a_nudge_is_told_again_to_a_tasks_next_holder_unless_it_was_acknowledged(work: Work) -> None:
    work.add_task("it")
    work.nudge("use HS256", target="dev-1", by="eve")
    work.nudge("be quick", target="dev-1", by="eve")
    first = taken(work, "dev-1")
    hs256, _quick = first.nudges()
    work.acknowledge(hs256, "dev-1")
    first.release()
    assert [one.text for one in taken(work, "dev-2").nudges()] == ["be quick"]


@pytest.mark.spec("5.6")
def test_who_sends_a_nudge_is_told_it_only_if_it_names_itself(work: Work) -> None:
    work.nudge("look at the tests again", target="chief", by="chief")
    work.nudge("keep the tests green", by="chief")
    assert [one.text for one in work.read_messages("chief", peek=True)] == ["look at the tests again"]
    assert [one.text for one in work.read_messages("chief")] == ["look at the tests again"]
    assert work.read_messages("chief") == []


@pytest.mark.spec("5.6")
def test_what_comes_with_a_task_is_not_told_to_whoever_said_it(work: Work) -> None:
    work.add_task("it")
    work.nudge("use HS256", target="dev-1", by="chief")
    first = taken(work, "dev-1")
    assert len(first.nudges()) == 1
    first.release()
    second = taken(work, "chief")
    assert second.nudges() == []
    second.release()
    assert [one.text for one in taken(work, "dev-2").nudges()] == ["use HS256"]


@pytest.mark.spec("5.6")
def test_what_comes_with_two_tasks_is_told_once(work: Work) -> None:
    work.add_tasks([{"title": "one"}, {"title": "two"}])
    work.nudge("use HS256", target="dev-1", by="eve")
    first = work.claim_many(2, "dev-1")
    assert len(work.read_messages("dev-1")) == 1
    for one in first:
        one.release()
    work.claim_many(2, "dev-2")
    assert [one.text for one in work.read_messages("dev-2")] == ["use HS256"]


@pytest.mark.spec("5.6")
def test_when_a_nudge_is_told(work: Work) -> None:
    work.add_task("it")
    claim = taken(work)
    work.nudge("when you have time", target="dev-1", delivery="when_idle", by="eve")
    urgent = work.nudge("stop!", target="dev-1", delivery="immediate", by="eve")
    assert claim.heartbeat() == [urgent]
    assert claim.heartbeat() == []  # once
    assert claim.nudges() == []
    claim.complete()
    assert [one.text for one in work.read_messages("dev-1")] == ["when you have time"]


@pytest.mark.spec("4.8", "5.6")
def test_what_changed_since_it_was_told_comes_as_a_nudge(book: Book, work: Work) -> None:
    dev = book.as_actor("dev-1", role="developer")
    kept = book.remember("The API speaks RS256 only.", shared=True)
    assert kept.item_id in dev.digest("which algorithm does the API speak").item_ids
    book.remember("The API speaks HS256 only.", supersedes=kept.item_id, shared=True)
    (nudge,) = dev.work(id=work.id).read_messages()
    assert nudge.premise is not None
    assert "RS256" in nudge.text
    assert dev.work(id=work.id).read_messages() == []


@pytest.mark.spec("5.6")
def test_a_risky_task_waits_for_a_persons_approval(book: Book, work: Work) -> None:
    task = work.add_task("Drop the old table", risk="data is lost")
    assert work.claim("dev-1") is None
    (approval,) = work.inbox().approvals
    assert (approval.risk, approval.task) == ("data is lost", task.id)
    book.as_actor("dev-1", role="developer")
    with pytest.raises(Denied, match="approve"):
        book.as_actor("dev-1").work(id=work.id).approvals.grant(approval)
    eve = book.as_actor("eve", role="person").work(id=work.id)
    answered = eve.approvals.grant(approval, why="there is a backup")
    assert (answered.status, answered.answered_by) == ("approved", "eve")
    assert taken(work).task.id == task.id
    other = work.add_task("Drop the log", risk="it is gone")
    after = work.add_task("Then rest", depends_on=[other])
    eve.approvals.refuse(work.inbox().approvals[0], why="keep it")
    assert (work.task(other).info().status, work.task(after).info().status) == ("cancelled", "blocked")


@pytest.mark.spec("5.6")
def test_a_review_sends_work_back_until_it_is_right(book: Book, work: Work) -> None:
    task = work.add_task("it", needs_review=True)
    after = work.add_task("after", depends_on=[task])
    claim = taken(work)
    assert claim.complete("first try").status == "review"
    assert work.claim("dev-2") is None  # what depends on it waits for the approval
    work.task(task).assign_review("qa-1")
    assert titles(work.tasks("review", reviewer="qa-1")) == ["it"]
    with pytest.raises(Denied, match="somebody else"):
        work.review(task, "approved", by="dev-1")
    assert work.review(task, "needs_rework", comments="no tests", by="qa-1").status == "in_progress"
    assert "no tests" in work.context_for(task).text
    again = taken(work, "dev-1")
    assert again.task.id == task.id
    with pytest.raises(Fenced):
        claim.complete("from the first claim")
    again.complete("with tests")
    book.as_actor("qa-2", role="qa")
    assert book.as_actor("qa-2").work(id=work.id).review(task, "approved").status == "completed"
    assert titles(work.ready()) == [work.task(after).info().title]
    kinds = [event.kind for event in book.events() if event.payload.get("task_id") == task.id]
    assert kinds.count("task.submitted") == 2
    assert kinds.count("task.completed") == 1


@pytest.mark.spec("5.6")
def test_a_rejected_task_has_failed(work: Work) -> None:
    task = work.add_task("it", needs_review=True)
    taken(work).complete()
    assert work.review(task, "rejected", comments="wrong approach", by="qa").status == "failed"
    assert work.task(task).info().reason == "wrong approach"


# whoever leads


@pytest.mark.spec("5.7")
def test_another_takes_the_lead_when_the_first_dies_and_nothing_is_done_twice(work: Work) -> None:
    task, other = work.add_task("it"), work.add_task("other")
    dead = work.lead("chief-1", lease=0.2)
    with pytest.raises(Conflict, match="leads"):
        work.lead("chief-2")
    dead.task(task).assign("dev-1")
    taken(work, "dev-1").complete()
    step = dead.next()
    assert step is not None
    assert (step.kind, step.task) == ("completed", work.task(task).info())
    time.sleep(0.25)
    with work.lead("chief-2") as lead:
        again = lead.next()
        assert again is not None
        assert again.id == step.id  # it had not been dealt with
        lead.handled(again)
        with pytest.raises(Fenced):
            dead.task(other).assign("dev-2")
        with pytest.raises(Fenced):
            dead.heartbeat()
        ready = lead.next()
        assert ready is not None
        assert (ready.kind, ready.task) == ("ready", work.task(other).info())
    assert work.lead("chief-3").fence > lead.fence  # it resigned


@pytest.mark.spec("5.7")
def test_whoever_takes_over_is_not_offered_what_was_dispatched_or_sent_back(work: Work) -> None:
    given, back, free = (work.add_task(title, needs_review=True) for title in ("given", "back", "free"))
    work.claim("dev", task=back).complete()  # type: ignore[union-attr]
    work.review(back, "needs_rework", by="qa")
    with work.lead("chief-1") as lead:
        lead.task(given).assign("dev")
    with work.lead("chief-2") as lead:
        step = lead.next()
        assert step is not None
        assert (step.kind, step.task) == ("ready", work.task(free).info())
        assert lead.next() is None


@pytest.mark.spec("5.7")
def test_what_follows_from_the_last_task_is_done_by_whoever_comes_after_a_dead_leader(work: Work) -> None:
    task = work.add_task("the last")
    work.lead("chief-1", lease=0.1)  # dies
    taken(work).complete()
    heard = []

    def follow(lead: Any, step: Any) -> None:
        heard.append(step.task.id)
        if step.task.id == task.id:
            lead.add_task("one more", id=f"after-{step.id}")
            work.claim("dev", task=f"after-{step.id}").complete()  # type: ignore[union-attr]

    work.orchestrate("chief-2", follow)
    assert heard == [task.id, work.tasks()[1].id]
    assert work.orchestrate("chief-3", follow) == 0


@pytest.mark.spec("5.7")
def test_whoever_leads_is_told_in_order(work: Work) -> None:
    with work.lead("chief") as lead:
        done, bad, ready = (work.add_task(title) for title in ("done", "bad", "ready"))
        work.claim("dev", task=bad).fail("broke")  # type: ignore[union-attr]
        work.claim("dev", task=done).complete()  # type: ignore[union-attr]
        work.nudge("hurry", target="orchestrator", by="eve")
        kinds = []
        while (step := lead.next()) is not None:
            kinds.append(step.kind)
            lead.handled(step)
    assert kinds == ["nudge", "completed", "failed", "escalation", "ready", "stuck"]
    assert ready.status == "pending"


@pytest.mark.spec("5.7")
def test_whoever_leads_later_is_told_what_waits_and_each_thing_once(work: Work) -> None:
    work.nudge("hurry", target="orchestrator", by="eve")
    work.escalate("who decides?", type="needs_decision", by="dev")
    with work.lead("chief") as lead:
        for kind in ("nudge", "escalation"):
            step = lead.next()
            assert step is not None
            assert step.kind == kind
            lead.handled(step)
        assert work.read_messages("chief") == []
        work.nudge("still there?", target="orchestrator", by="eve")
        assert [one.text for one in work.read_messages("chief")] == ["still there?"]
        assert lead.next() is None
    with pytest.raises(BadInput, match="no name of an agent"):
        work.claim("all")


@pytest.mark.spec("5.7")
def test_a_leader_that_takes_long_over_a_step_stays_in_the_lead(work: Work) -> None:
    task = work.add_task("it")
    with work.lead("first"):
        taken(work).complete()
    handled: list[str] = []

    def slow(lead: Any, step: Any) -> None:
        handled.append(f"{lead.agent} {step.id}")
        time.sleep(0.5)  # longer than the lease

    crew = [
        threading.Thread(target=work.orchestrate, args=(f"chief-{n}", slow), kwargs={"lease": 0.2})
        for n in "12"
    ]
    for one in crew:
        one.start()
    for one in crew:
        one.join()
    assert len(handled) == 1
    assert work.task(task).info().status == "completed"


@pytest.mark.spec("5.3")
def test_a_handler_that_returns_nonsense_fails_its_task_and_hears_what_is_urgent(work: Work) -> None:
    work.add_task("nonsense", on_failure="skip")
    work.add_task("long")
    heard: list[str] = []

    def handler(claim: Claim) -> object:
        if claim.task.title == "nonsense":
            return {"files": 3}
        work.nudge("stop!", target="dev-1", delivery="immediate", by="eve")
        time.sleep(0.5)
        heard.extend(one.text for one in claim.nudges())
        return None

    worked = work.worker("dev-1", handler, lease=0.3)
    assert (worked.completed, worked.failed, heard) == (1, 1, ["stop!"])


# learning


@pytest.mark.spec("5.9")
def test_what_is_worth_learning_is_proposed_reviewed_and_promoted(book: Book, work: Work) -> None:
    book.memory.set_core("auth-jwt", name="JWT")
    decision = work.decide(
        question="Which library?", choice="jose", alternatives=["jwt-simple"], rationale="types"
    )
    work.decide(question="Which colour?", choice="green")  # no reason
    insight = work.discover("Tests with real keys are slow", type="insight")
    work.discover("The table is small", type="constraint")
    for n in range(3):
        work.add_task(f"step {n}")
        taken(work).complete(learnings=["run the linter first"])
    found = {one.kind: one for one in work.candidates() if "step" not in one.text}
    assert found["decision"].id == decision.id
    assert found["insight"].id == insight.id
    assert "3 tasks" in found["pattern"].reason
    dev = book.as_actor("dev-1", role="developer").work(id=work.id)
    with pytest.raises(Denied):
        dev.promote(decision.id, core="auth-jwt")
    kept = work.promote(found["decision"], core="auth-jwt", by="librarian")
    entry = book.memory.get(str(kept.item_id))
    assert (entry.core, entry.type, entry.source_type) == ("auth-jwt", "decision", "promoted")
    work.reject(insight.id, reason="known")
    assert not {decision.id, insight.id} & {one.id for one in work.candidates()}
    assert {one.verdict for one in work.candidates(judged=True)} == {"promoted", "rejected", ""}
    book.erase(decision.id)
    assert not [
        one for one in book.memory.list() if "jose" in (one.body or "")
    ]  # it went with what it came from


# rights, limits, dates and the ledger


@pytest.mark.spec("5.10", "L7")
def test_each_does_what_its_role_allows_and_sees_what_it_may(book: Book, work: Work) -> None:
    dev = book.as_actor("dev-1", role="developer").work(id=work.id)
    chief = book.as_actor("chief", role="orchestrator").work(id=work.id)
    task = chief.add_task("it", needs_review=True)
    for refused in (
        lambda: dev.add_task("x"), lambda: dev.task(task).assign("dev-1"), lambda: dev.task(task).cancel(reason="x"),
        lambda: dev.manage.pause(),
        lambda: dev.nudge("x"), lambda: dev.manage.archive(), lambda: dev.lead(),
    ):  # fmt: skip
        with pytest.raises(Denied):
            refused()
    claim = dev.claim()
    assert claim is not None
    with pytest.raises(Denied):
        dev.claim("dev-2")
    secret = claim.discover("the root cause is a person", sensitivity="sensitive")
    claim.complete()
    with pytest.raises(Denied):
        chief.review(task, "approved")
    other = book.as_actor("dev-2", role="developer").work(id=work.id)
    assert [one.id for one in dev.records("discovery")] == [secret.id]
    assert other.records("discovery") == []
    assert "root cause" not in other.context_for(task).text
    hidden = book.work(name="secret", members=["dev-1"])
    assert book.as_actor("dev-1").work(id=hidden.id).info().name == "secret"
    with pytest.raises(NotFound):
        book.as_actor("dev-2").work(id=hidden.id)
    assert [one.id for one in book.as_actor("dev-2").works.list()] == [work.id]
    assert not [e for e in book.as_actor("dev-2").events() if e.payload.get("work") == hidden.id]


@pytest.mark.spec("5.10")
def test_limits_are_refused_with_what_to_do(book: Book) -> None:
    work = book.work(name="small", limits={"max_tasks": 2, "max_agents": 1, "max_dependents": 1})
    first = work.add_task("a")
    work.add_task("b", depends_on=[first])
    with pytest.raises(TooLarge, match="raise max_tasks"):
        work.add_task("c")
    work.manage.change(limits={"max_tasks": 3})
    with pytest.raises(BadInput, match="limits are"):
        work.manage.change(limits={"most": 3})
    work.add_task("c")
    taken(work, "dev-1")


@pytest.mark.spec("L1", "5.8")
def test_every_read_can_be_dated_and_everything_is_rebuilt_the_same(book: Book, work: Work) -> None:
    first = work.add_task("first")
    second = work.add_task("second", depends_on=[first])
    then = book.head
    taken(work).complete()
    assert titles(work.ready(at=then)) == ["first"]
    assert titles(work.tasks("waiting", at=then)) == ["second"]
    assert work.task(first).info(at=then).status == "pending"
    before = (work.tasks(), work.ready(), work.counts(), work.contributions())
    book.rebuild()
    assert (work.tasks(), work.ready(), work.counts(), work.contributions()) == before
    added = next(e for e in book.events(kinds=["task.added"]) if e.payload["task_id"] == second.id)
    book.erase(added.id)
    assert work.task(second).info().title == ""  # the words are gone, the graph stands
    assert [one.id for one in work.ready()] == [second.id]
    book.rebuild()
    assert [one.id for one in work.ready()] == [second.id]


@pytest.mark.spec("5.6", "5.10")
def test_anybody_can_follow_a_work(book: Book, work: Work) -> None:
    head = book.head
    work.add_task("it")
    taken(work).complete()
    book.record("agent.spoke", actor="ada", payload={"text": "elsewhere"})
    kinds = [event.kind for event in work.watch(after=head, timeout=0.2)]
    assert kinds == ["task.added", "task.claimed", "task.completed"]
    (done,) = book.events(kinds=["task.completed"])
    assert done.payload["task_id"] == work.tasks()[0].id


@pytest.mark.spec("5.6", "L7")
def test_members_follow_their_private_work_and_nobody_else_does(book: Book) -> None:
    ada, ben = (book.as_actor(name, role="developer") for name in ("ada", "ben"))
    work = book.work(name="secret", members=["ada", "ben"])
    head = book.head
    work.add_task("it")
    claim = ada.work(id=work.id).claim()
    assert claim is not None
    claim.discover("the safe is open", sensitivity="sensitive")
    work.nudge("for ada alone", target="ada", by="eve")
    claim.complete()
    seen = {
        who.name: [e.kind for e in who.work(id=work.id).watch(after=head, timeout=0.2)] for who in (ada, ben)
    }
    assert seen["ben"] == ["task.added", "task.claimed", "task.completed"]
    assert seen["ada"] == ["task.added", "task.claimed", "work.discovered", "work.nudged", "task.completed"]
    with pytest.raises(NotFound):
        next(book.as_actor("cleo", role="developer").work(id=work.id).watch(after=head))


@pytest.mark.spec("5.10")
def test_the_graph_is_drawn(work: Work) -> None:
    first = work.add_task('first "quoted" ]')
    work.add_task("second", depends_on=[first])
    assert "t0 --> t1" in work.graph()
    assert "t0 -> t1;" in work.graph("dot")
    assert '"quoted"' not in work.graph("dot")
    with pytest.raises(BadInput, match="mermaid and dot"):
        work.graph("png")
