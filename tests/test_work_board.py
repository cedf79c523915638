"""A work from one process to the next: found by its tasks, its claims gone on with, and at a glance."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from commonplace import Book, Claim, Conflict, Denied, Fenced, NotFound


@pytest.mark.spec("5.7")
def test_a_work_is_found_by_whatever_belongs_to_it(book: Book) -> None:
    work = book.work(name="auth", members=["dev-1"])
    task = work.add_task("design", id="t1")
    said = work.nudge("hurry")
    assert {book.works.containing(id).id for id in ("t1", task.id, said.id)} == {work.id}
    assert book.as_actor("dev-1").works.containing("t1").task("t1").info().title == "design"
    note = book.record("agent.spoke", payload={"work": work.id})
    for id in ("nothing", note.id, work.id):
        with pytest.raises(NotFound, match="no task"):
            book.works.containing(id)
    for id in ("t1", said.id):
        with pytest.raises(NotFound, match="no task") as unknown:
            book.as_actor("eve").works.containing(id)
        assert "auth" not in str(unknown.value)

    async def found() -> str:
        task = await book.aio.works.containing("t1").task("t1")
        return str((await task.info()).title)

    assert asyncio.run(found()) == "design"


@pytest.mark.spec("5.3", "5.7")
def test_a_claim_is_gone_on_with_in_another_process(book: Book) -> None:
    work = book.work(name="auth")
    work.add_tasks([{"title": "design", "id": "t1"}, {"title": "build", "id": "t2"}])
    first = work.claim("dev-1")
    assert first is not None
    again = work.reopen_claim("t1", first.token)
    assert (again.agent, again.lease) == ("dev-1", first.lease)
    assert again.heartbeat() == []
    assert again.complete("done").status == "completed"
    assert again.complete("done").status == "completed"  # the same call again
    with pytest.raises(Fenced, match="it is completed now"):
        work.reopen_claim("t1", first.token)
    second = book.as_actor("dev-2").work(work.id).claim()
    assert second is not None
    second.release()
    for token in (second.token, first.token, 0):
        with pytest.raises(Fenced, match="pending now"):
            work.reopen_claim("t2", token)
    third = work.claim("dev-3")
    assert third is not None
    third.block("nobody knows how")
    with pytest.raises(Fenced, match="it is blocked now"):
        work.reopen_claim("t2", third.token)
    work.task("t2").unblock()
    third = work.claim("dev-3")
    assert third is not None
    with pytest.raises(Denied, match="not as 'dev-3'"):
        book.as_actor("eve").work(work.id).reopen_claim("t2", third.token)


@pytest.mark.spec("5.3")
def test_nobody_finishes_what_another_one_holds(book: Book) -> None:
    work = book.work(name="auth")
    work.add_task("design", id="t1")
    held = work.claim("dev-1")
    assert held is not None
    stolen = Claim(book.as_actor("eve").work(work.id), "eve", work.task("t1").info())
    acts: list[Callable[[], object]] = [
        lambda: stolen.complete(),
        lambda: stolen.release(),
        lambda: stolen.fail("no"),
        lambda: stolen.block("no"),
    ]
    for act in acts:
        with pytest.raises(Fenced, match="held by 'dev-1', not by 'eve'"):
            act()
    with pytest.raises(Fenced, match="to 'dev-1'"):
        stolen.heartbeat()
    for verdict in ("approved", "rejected"):
        with pytest.raises(Conflict, match="handed in is reviewed"):
            work.review("t1", verdict, by="qa")
    assert held.complete().status == "completed"


@pytest.mark.spec("5.10")
def test_the_board_shows_a_work_at_a_glance(book: Book) -> None:
    work = book.work(name="auth", goal="Add JWT")
    assert (work.board().progress, work.board().tasks) == (0.0, {})
    work.add_tasks(
        [
            {"title": "design", "id": "t1", "priority": 5},
            {"title": "build", "id": "t2", "depends_on": ["t1"]},
            {"title": "deploy", "id": "t3", "risk": "may break logins"},
            {"title": "ask around", "id": "t4"},
            {"title": "write docs", "id": "t5"},
            {"title": "old idea", "id": "t6", "assigned_to": "dev-9"},
            {"title": "review me", "id": "t7", "priority": 9, "needs_review": True},
        ]
    )
    done = work.claim("dev-2")
    assert done is not None
    done.complete("see the branch")
    held = work.claim("dev-1", lease=60)
    assert held is not None
    work.task("t4").block("nobody answers")
    first = work.decide(question="which library?", choice="a")
    work.decide(question="which library?", choice="b", reverses=first)
    work.escalate("what now?", task="t4")
    before = book.head
    board = work.board()
    groups = {name: [one.id for one in tasks] for name, tasks in board.tasks.items()}
    assert groups == {
        "in_progress": ["t1"],
        "review": ["t7"],
        "ready": ["t5", "t6"],
        "blocked": ["t2", "t3", "t4"],
    }
    assert board.waits_for == {
        "t2": ("design",),
        "t3": ("somebody's word",),
        "t4": ("nobody answers",),
    }
    assert 0 < board.leases["t1"] <= 60
    assert [one.choice for one in board.decisions] == ["b"]
    assert [len(board.approvals), len(board.escalations), len(board.branches)] == [1, 1, 0]
    assert (board.as_of, book.head) == (before, before)
    assert [len(tasks) for tasks in work.board(limit=1).tasks.values()] == [1, 1, 1, 1]
    assert work.board(limit=1).totals == board.totals
    held.complete()
    work.task("t6").cancel(reason="old")
    later = work.board()
    assert [one.id for one in later.tasks["completed"]] == ["t1"]
    assert later.progress == pytest.approx(2 / 7)
    assert later.waits_for.keys() == {"t3", "t4"}
    then = work.board(at=before)
    assert (then.tasks, then.leases) == (board.tasks, {})


@pytest.mark.spec("5.10")
def test_the_board_of_a_work_is_for_those_who_may_know_of_it(book: Book) -> None:
    work = book.work(name="auth", members=["dev-1"])
    work.decide(question="whose key?", choice="ours", sensitivity="sensitive")
    assert len(work.board().decisions) == 1
    assert book.as_actor("dev-1").work(work.id).board().decisions == ()
    with pytest.raises(NotFound):
        book.as_actor("eve").work(work.id)


@pytest.mark.spec("5.9", "7.1")
def test_times_are_datetimes_and_answers_print_as_a_person_would_read_them(book: Book) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    work = book.work(name="auth", goal="ship it")
    task = work.add_task("Design")
    assert (task.assigned_at, task.started_at, task.completed_at) == (None, None, None)
    claim = work.claim("dev-1")
    assert claim is not None
    assert str(claim.task) == "Design (in progress by dev-1)"
    decision = claim.decide(question="Which format?", choice="JWT")
    done = claim.complete()
    (by,) = work.contributions()
    info = work.info()
    times = [info.created_at, done.added_at, done.started_at, decision.at, done.completed_at, by.last_at]
    assert all(time is not None and before <= time <= datetime.now(UTC) for time in times)
    assert times == sorted(times)  # type: ignore[type-var]
    assert by.first_at == decision.at
    assert str(info) == "auth is active: ship it"
    assert str(by) == "dev-1: 1 tasks, 1 decisions"
    assert str(work.inbox()) == "nothing waits for a person"
    assert str(work.board()) == "auth is active, 100% done: 1 completed"
    assert str(work.worker("dev-1", lambda _: "fine")) == "dev-1: 0 completed, 0 failed, 0 lost"
