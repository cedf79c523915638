"""Every read of a work as of then: what was so then, for whoever might know it then and may know it now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from commonplace import Book, NotFound, Work
from tests.shells import Cli
from tests.works import taken


@pytest.mark.spec("5.1", "5.2", "L7")
def test_how_a_work_stood_and_how_many_tasks_it_had_then(book: Book, work: Work) -> None:
    empty = book.head
    work.add_tasks([{"title": "Design it"}, {"title": "Build it"}])
    taken(work).complete()
    begun = book.head
    taken(work).complete()
    work.manage.complete()
    assert [work.info(at=at).status for at in (empty, begun, book.head)] == ["active", "active", "completed"]
    assert work.counts(at=empty) == {}
    assert work.counts(at=begun) == {"tasks": 2, "pending": 1, "completed": 1}
    assert work.counts(at=book.head) == work.counts() == {"tasks": 2, "completed": 2}
    assert (work.info().status, work.board(at=begun).counts) == ("completed", work.counts(at=begun))


@pytest.mark.spec("5.11", "L7")
def test_what_made_a_task_needless_then(book: Book, work: Work) -> None:
    task = work.add_task("Delete the old table")
    alone = book.head
    other = work.add_task("Remove the old table")
    both = book.head
    work.task(other).cancel(reason="not needed")
    assert work.task(task).radar(at=alone) == []
    (overlap,) = work.task(task).radar(at=both)
    assert (overlap.id, overlap.status) == (other.id, "pending")
    assert work.task(task).radar() == work.task(task).radar(at=book.head) == []
    with pytest.raises(NotFound):
        work.task(other).radar(at=alone)


@pytest.mark.spec("5.9", "L7")
def test_what_was_worth_learning_then(book: Book, work: Work) -> None:
    book.memory.set_core("jwt", name="JWT")
    nothing = book.head
    first = work.decide(question="Which?", choice="HS256", alternatives=["RS256"], rationale="it is internal")
    decided = book.head
    work.promote(first.id, core="jwt")
    found = work.discover("Refresh tokens never expire")
    after = book.head
    work.decide(question="Which?", choice="RS256", reverses=first)
    assert work.candidates(at=nothing) == []
    (one,) = work.candidates(at=decided)
    assert (one.id, one.verdict) == (first.id, "")
    assert [one.id for one in work.candidates(at=after)] == [found.id]
    assert [(one.id, one.verdict) for one in work.candidates(judged=True, at=after)] == [
        (first.id, "promoted"), (found.id, ""),
    ]  # fmt: skip
    assert [one.id for one in work.candidates(judged=True)] == [found.id]
    assert [one.id for one in work.inbox(at=decided).candidates] == [first.id]


@pytest.mark.spec("5.4", "L7")
def test_content_is_read_from_when_it_was_stored(book: Book, work: Work) -> None:
    before = book.head
    made = work.artifact("schema.sql", content="create table")
    assert work.content(made, at=book.head) == b"create table"
    with pytest.raises(NotFound):
        work.content(made, at=before)


READS: dict[str, Callable[[Work, int | None], Any]] = {
    "status": lambda work, at: work.info(at=at).status,
    "counts": lambda work, at: work.counts(at=at),
    "radar": lambda work, at: [one.id for one in work.task("t").radar(at=at)],
    "candidates": lambda work, at: [one.id for one in work.candidates(at=at)],
}


@pytest.mark.spec("L7", "4.3")
@pytest.mark.parametrize("read", READS)
def test_who_might_not_know_of_a_work_then_or_may_not_now_reads_nothing_of_then(
    book: Book, read: str
) -> None:
    work = book.work(name="private", id="private", members=["ada", "eve"])
    work.add_task("Delete the old table", id="t")
    ada = book.as_actor("ada", role="developer").work(id="private")
    eve = book.as_actor("eve", role="developer").work(id="private")
    then = book.head
    assert READS[read](ada, then) == READS[read](ada, None)
    book.access.grant("eve", ceiling="public")
    limited = book.head
    for at in (then, None):
        with pytest.raises(NotFound):
            READS[read](eve, at)
    book.access.grant("eve", ceiling="private")
    READS[read](eve, then)
    with pytest.raises(NotFound, match="as of then"):
        READS[read](eve, limited)


@pytest.mark.spec("L7", "L10", "4.3", "5.9", "5.11")
def test_what_a_reader_might_not_see_then_or_may_not_now_is_not_counted(book: Book, work: Work) -> None:
    work.add_task("Measure how long refresh tokens last", id="t")
    ada = book.as_actor("ada", role="developer").work(id="auth")
    secret = work.discover("Refresh tokens last 40 minutes", sensitivity="sensitive")
    hidden = book.head
    assert READS["candidates"](work, hidden) == [secret.id]
    assert READS["radar"](work, hidden) == [secret.id]
    book.access.relabel(secret.id, sensitivity="private", reason="everybody knows")
    shown = book.head
    for read in ("candidates", "radar"):
        assert READS[read](ada, None) == READS[read](ada, shown) == [secret.id]
        assert READS[read](ada, hidden) == []  # it might not know it then
    book.access.relabel(secret.id, sensitivity="sensitive", reason="it should not")
    for read in ("candidates", "radar"):
        assert READS[read](ada, shown) == []  # nor may it now
    book.erase(secret.id)
    for read in ("candidates", "radar"):
        assert READS[read](work, hidden) == []


@pytest.mark.spec("L7", "7.2")
def test_as_of_in_the_shell(cli: Cli) -> None:
    def ask(*args: object) -> Any:
        ran = cli(*args, "--json")
        assert (ran.code, ran.err) == (0, ""), ran
        return ran.json

    ask("init")
    ask("work", "new", "auth", "--id", "auth")
    then = ask("task", "add", "auth", "Delete the old table", "--id", "t")["position"]
    ask("task", "add", "auth", "Remove the old table")
    ask("discover", "auth", "Nobody reads the old table")
    assert [len(ask("task", "radar", "t", *at)) for at in ((), ("--at", then))] == [1, 0]
    assert [len(ask("work", "candidates", "auth", *at)) for at in ((), ("--at", then))] == [1, 0]
    assert [len(ask("work", "discoveries", "auth", *at)) for at in ((), ("--at", then))] == [1, 0]
    assert ask("work", "show", "auth", "--at", then)["counts"] == {"tasks": 1, "pending": 1}


@pytest.mark.spec("7.1")
def test_a_work_has_few_names_and_none_of_them_twice(work: Work) -> None:
    names = [name for name in dir(work) if not name.startswith("_")]
    assert len(names) <= 40, names
    (task,) = work.add_tasks([{"title": "Design it"}])
    assert work.task(task.id).info() == task
    work.decide(question="Which colour?", choice="green", by="dev-1")
    (decision,) = work.records("decision")
    assert str(decision) == "Which colour? → green, by dev-1"
