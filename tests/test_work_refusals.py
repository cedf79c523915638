"""Small things that a work promises: what cannot be is refused in words, and a task stands for its approval."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import commonplace
from commonplace import BadInput, Book, Conflict, NotFound
from commonplace.work.verbs import Work
from tests.shells import Cli


@pytest.fixture
def book() -> Iterator[Book]:
    with commonplace.open("memory:") as opened:
        yield opened


def test_an_export_to_nowhere_is_refused_and_names_the_file(work: Work, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no-such-folder"):
        work.manage.export(tmp_path / "no-such-folder" / "work.json")
    with pytest.raises(BadInput, match="it is a folder"):
        work.manage.export(tmp_path)


@pytest.mark.parametrize("claims", [["t1"], [None], "t1", 7], ids=str)
def test_what_is_no_claim_is_not_completed(work: Work, claims: Any) -> None:
    work.add_task("Design it", id="t1")
    with pytest.raises(BadInput):
        work.complete_many(claims)


def test_an_awaited_worker_refuses_what_it_does_not_know_as_the_other_does(book: Book, work: Work) -> None:
    with pytest.raises(TypeError, match="leas"):
        work.worker("dev-1", lambda claim: None, leas=5)

    async def run() -> None:
        await (await book.aio.work("auth")).worker("dev-1", lambda claim: None, leas=5)

    with pytest.raises(TypeError, match="leas"):
        asyncio.run(run())


def test_no_task_of_a_paused_work_is_claimed_by_its_name(work: Work) -> None:
    task = work.add_task("Design it")
    work.manage.pause("lunch")
    with pytest.raises(Conflict, match="paused"):
        work.claim("dev-1", task=task)
    assert work.claim("dev-1") is None
    assert [one.id for one in work.ready()] == [task.id]
    work.manage.resume()
    claim = work.claim("dev-1", task=task)
    assert claim is not None
    assert claim.task.id == task.id


def test_a_parent_has_to_be_there(work: Work) -> None:
    with pytest.raises(NotFound, match="nope"):
        work.add_task("A part of it", parent="nope")
    assert work.tasks() == []
    whole, part = work.add_tasks([{"title": "All", "id": "all"}, {"title": "A part", "parent": "all"}])
    assert part.parent == whole.id


def test_a_task_stands_for_its_approval(work: Work) -> None:
    risky = work.add_task("Drop the table", risk="data is lost", id="t1")
    answered = work.approvals.grant(risky, why="there is a backup")
    assert (answered.id, cast(Any, answered).status) == (risky.approval, "approved")
    assert [one.id for one in work.ready()] == ["t1"]
    work.add_task("Drop the other table", risk="data is lost", id="t2")
    work.approvals.refuse("t2", why="there is none")
    assert work.task("t2").info().status == "cancelled"
    with pytest.raises(NotFound, match="nobody was asked"):
        work.approvals.grant(work.add_task("Harmless"))


def test_an_option_without_tasks_is_refused(work: Work) -> None:
    task = work.add_task("Write it in Rust")
    with pytest.raises(BadInput, match="'wait' has no tasks"):
        work.branch("Which one?", {"rust": [task], "wait": []})
    assert work.records("branch") == []


def test_the_story_in_the_shell_goes_as_it_is_told(cli: Cli) -> None:
    page = (Path(__file__).parent.parent / "docs" / "work.md").read_text()
    told = re.search(r"^## From the shell\n.*?^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert told is not None
    for one in re.split(r"^\$ commonplace ", told[1], flags=re.MULTILINE)[1:]:
        command, _, shown = one.partition("\n")
        args = [word for word in shlex.split(command) if word != "--follow"]  # which would go on for good
        ran = cli(*args)
        assert (ran.code, ran.err) == (0, ""), (command, ran)
        assert ran.out.startswith(shown), (command, ran)


@pytest.mark.spec("3.9", "L5")
def test_who_speaks_for_another_is_refused_and_the_owner_can_read_of_it(book: Book, work: Work) -> None:
    task = work.add_task("Design it")
    dev = book.as_actor("dev-1", role="developer")
    own = dev.work(work.id)
    for refused in (
        lambda: own.discover("It is slow", by="dev-2"),
        lambda: own.claim("dev-2"),
        lambda: own.manage.discard(confirm="DISCARD"),
    ):
        with pytest.raises(commonplace.Denied):
            refused()
    told = [event.payload for event in book.events(kinds=["access.denied"])]
    assert [(one["actor"], one["act"], one["what"]) for one in told] == [
        ("dev-1", "act as", "dev-2"), ("dev-1", "act as", "dev-2"), ("dev-1", "discard", work.id),
    ]  # fmt: skip
    assert [one.id for one in work.ready()] == [task.id]


@pytest.mark.spec("L7")
def test_who_only_looks_saves_no_state(book: Book, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = book.run(run_id="r", initial={"topic": "tea"})
    with run.agent("ada") as me:
        me.write({"cups": 2})
    looked = book.access.look_as("ada").run(run_id="r")
    assert looked.state()["ada"] == {"cups": 2}
    with pytest.raises(commonplace.Denied, match="looking"):
        looked.save()
    assert list(tmp_path.iterdir()) == []
    assert run.save().exists()
