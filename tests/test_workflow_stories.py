"""What running a workflow does to the book around it, and what its files switch off: told as stories."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import commonplace
from commonplace import BadInput, Book, Denied, NotEnabled
from commonplace.tools import Tools
from commonplace.workflow.agents import Task
from commonplace.workflow.model import WORKFLOW_FILE, BadWorkflow
from tests.workflows import Documents, agent_file, changed, small, write

Work = Callable[[Task], Any]


@pytest.fixture
def local() -> Iterator[Book]:
    with commonplace.open("memory:") as opened:
        yield opened


def told(**outputs: Any) -> dict[str, Work]:
    """Agents that answer what is given for each."""
    return {name: lambda _task, output=output: output for name, output in outputs.items()}  # type: ignore[misc]


def run_one(book: Book, folder: Path, documents: Documents, work: Work, **more: Any) -> Any:
    """Run a workflow of one agent, `scout`, that does this."""
    return book.execute(write(folder, documents), agents={"scout": work}, **more)


def with_(documents: Documents, changes: Mapping[str, object], file: str = WORKFLOW_FILE) -> Documents:
    for path, value in changes.items():
        documents = changed(documents, file, path, value)
    return documents


def refusals(book: Book, run_id: str | None = None) -> list[tuple[str, str]]:
    found = book.events(run_id=run_id, kinds=("access.denied",))
    return [(event.payload["actor"], event.payload["act"]) for event in found]


# What a run changes in its book.


@pytest.mark.spec("3.8", "7.6")
def test_a_workflow_leaves_the_settings_that_its_files_do_not_name(local: Book, tmp_path: Path) -> None:
    """An owner keeps logs for a year. A workflow that says nothing of retention changes nothing of it."""
    local.configure_memory(retention_days=365, max_size_kb=7, stale="leave_out")
    run_one(local, tmp_path / "silent", small("scout"), lambda _me: {"answer": "done", "confidence": 0.9})
    assert (local.memory_settings().retention_days, local.memory_settings().max_size_kb) == (365, 7)

    named = with_(small("scout"), {"memory.tiers.working.retention_days": 90})
    run_one(local, tmp_path / "named", named, lambda _me: {"answer": "done", "confidence": 0.9})
    settings = local.memory_settings()
    assert (settings.retention_days, settings.max_size_kb, settings.stale) == (90, 7, "leave_out")


@pytest.mark.spec("3.8", "7.6")
def test_a_size_below_one_kilobyte_is_told_before_the_run_begins(local: Book, tmp_path: Path) -> None:
    documents = with_(small("scout"), {"memory.tiers.long_term.max_size_kb": 0.2})
    with pytest.raises(BadWorkflow, match="max_size_kb"):
        run_one(local, tmp_path, documents, lambda _me: {})
    assert local.head == 0


@pytest.mark.spec("3.9", "1.5")
def test_the_rights_of_one_workflow_bind_its_own_runs_and_nothing_else(book: Book, tmp_path: Path) -> None:
    """The first workflow lets its scout read the long-term tier and record what it says. The second says nothing."""
    outcomes: list[str] = []

    def work(me: Task) -> dict[str, Any]:
        try:
            kept = me.remember(f"The gate of {me.run.id} closes at nine.", shared=True)
            outcomes.append(kept.outcome)
        except Denied:
            outcomes.append("denied")
        return {"answer": "done", "confidence": 0.9}

    first = with_(small("scout"), {"memory.access_control.scout": {"long_term": "read", "working": "none"}})
    first = changed(first, agent_file("scout"), "may_emit", ["agent.spoke"])
    run_one(book, tmp_path / "first", first, work, run_id="first")
    assert refusals(book, "first") == [("scout", "memory.write")]
    scout = book.as_actor("scout")
    with pytest.raises(Denied, match=r"agent\.thought"):
        scout.record("agent.thought", run_id="first", payload={"text": "hm"})
    scout.record("agent.spoke", run_id="first", payload={"text": "hm"})

    run_one(book, tmp_path / "second", small("scout"), work, run_id="second")
    scout.record("agent.thought", run_id="second", payload={"text": "hm"})
    scout.record("agent.thought", payload={"text": "hm"})
    assert scout.remember("Nobody limits what the scout does outside.").outcome == "stored"
    assert scout.rights().tier("long_term") == "read_write"
    assert outcomes == ["denied", "stored"]

    turn = book.run(run_id="first").agent("scout")  # the first run's rules still hold in the first run
    with pytest.raises(Denied):
        turn.remember("The gate is made of oak.")
    with pytest.raises(Denied):
        turn.days()
    fork = book.fork("first", new_id="fork")
    with pytest.raises(Denied):
        fork.agent("scout").remember("The gate is made of oak.")


@pytest.mark.spec("3.9")
def test_a_workflow_gives_nobody_more_than_the_owner_has_given(local: Book, tmp_path: Path) -> None:
    local.grant("scout", tiers={"long_term": "read"}, may_emit=["agent.spoke"])
    documents = with_(small("scout"), {"memory.access_control.scout": {"long_term": "read_write"}})
    documents = changed(documents, agent_file("scout"), "may_emit", ["agent.*"])
    outcomes = list[str]()

    def work(me: Task) -> dict[str, Any]:
        with pytest.raises(Denied):
            me.remember("The gate closes at nine.")
        outcomes.append("denied")
        return {"answer": "done", "confidence": 0.9}

    run_one(local, tmp_path, documents, work, run_id="r")
    assert outcomes == ["denied"]
    with pytest.raises(Denied):
        local.as_actor("scout").record("agent.thought", run_id="r", payload={"text": "hm"})


@pytest.mark.spec("3.9")
def test_what_may_only_be_read_is_not_changed_either(local: Book, tmp_path: Path) -> None:
    """Reading alone is no right to revise, share or forget, also what one has written oneself before."""
    own = str(local.as_actor("scout").remember("The gate closes at nine.").item_id)
    documents = with_(small("scout"), {"memory.access_control.scout": {"long_term": "read"}})
    run = local.run(write(tmp_path, documents))
    me = run.agent("scout")
    assert me.item(own).body == "The gate closes at nine."
    for act in (
        lambda: me.revise(own, text="The gate closes at ten."),
        lambda: me.share(own),
        lambda: me.forget(own, confirm="FORGET"),
        lambda: me.remember("Another gate."),
        lambda: me.remember("Another gate.", run_id="elsewhere"),
    ):
        with pytest.raises((Denied, BadInput)):
            act()
    assert local.item(own).position == me.item(own).position


# Tiers, and memory as a whole.

OFF = {"memory.tiers.long_term.enabled": False, "memory.tiers.working.enabled": False}


@pytest.mark.spec("3.9", "L5")
@pytest.mark.parametrize(("listed", "status", "error"), [(False, 503, NotEnabled), (True, 403, Denied)])
def test_a_tier_that_is_off_or_not_listed_is_neither_read_nor_written(
    local: Book, tmp_path: Path, listed: bool, status: int, error: type[Exception]
) -> None:
    """503 for what the workflow has switched off, 403 for what an agent's file does not list; the same for the tools
    and for the agent's own calls."""
    local.remember("The gate closes at nine.")
    local.log("The gate was painted.")
    documents = small("scout")
    if listed:
        documents = changed(documents, agent_file("scout"), "memory.tiers", ["episodic"])
    else:
        documents = with_(documents, OFF)
    run = local.run(write(tmp_path, documents), run_id="r")
    me, tools = run.agent("scout"), Tools(local)
    for tool, arguments in (
        ("memory.read", {"target": "long_term"}),
        ("memory.read", {"target": "daily"}),
        ("memory.read", {"target": "dates"}),
        ("memory.write", {"target": "long_term", "content": "The lock is new."}),
        ("memory.write", {"target": "daily", "content": "The lock is new."}),
        ("memory.search", {"query": "gate", "tiers": ["long_term", "working"]}),
        ("memory.curate", {}),
    ):
        answer = tools.call(tool, arguments, actor="scout", run_id="r")
        assert (answer["status"], answer["data"]) == (status, {}), (tool, arguments, answer)
    before = len(refusals(local))
    for call in (
        lambda: me.remember("The lock is new."),
        lambda: me.log("The lock is new."),
        lambda: me.session_note("gate", "The lock is new."),
        lambda: me.items(),
        lambda: me.long_term(),
        lambda: me.days(),
        lambda: me.search("gate", tiers=["long_term"]),
        lambda: me.search("gate", mode="keyword"),
    ):
        with pytest.raises(error):
            call()
    assert len(refusals(local)) == before + 8  # each leaves a trace for the owner
    found = me.search("gate")
    assert found.results == ()
    assert {one.what for one in found.left_out} >= {"long_term", "working"}
    assert me.digest("gate").item_ids == ()
    prompt = me.prompt("Look after the gate.")
    assert "nine" not in prompt
    assert "painted" not in prompt
    assert [one.body for one in local.items()] == ["The gate closes at nine."]
    with run.agent("scout") as again:
        again.write({"answer": "ok", "confidence": 0.9})
    assert len(local.day(local.days()[-1])) == 1  # nothing was logged for it either


@pytest.mark.spec("3.9")
def test_an_episode_needs_the_episodic_tier(local: Book, tmp_path: Path) -> None:
    documents = with_(small("scout"), {"memory.tiers.episodic.enabled": False})
    me = local.run(write(tmp_path, documents), run_id="r").agent("scout")
    with pytest.raises(NotEnabled, match="episodic"):
        me.remember("The gate fell.", kind="episode", occurred_at=datetime.now(UTC))
    with pytest.raises(NotEnabled, match="episodic"):
        me.window()
    local.record("agent.spoke", actor="scout", run_id="r", payload={"text": "The gate squeaks."})
    assert "squeaks" not in me.prompt("Look after the gate.")
    assert me.remember("The gate squeaks.").outcome == "stored"


@pytest.mark.spec("3.1", "3.9", "4.5")
@pytest.mark.parametrize(
    "place", [(WORKFLOW_FILE, "memory.enabled"), (agent_file("scout"), "memory.enabled")]
)
def test_memory_that_is_switched_off_logs_nothing_and_shows_nothing(
    local: Book, tmp_path: Path, place: tuple[str, str]
) -> None:
    local.remember("The gate closes at nine.")
    seen = list[str]()

    def work(me: Task) -> dict[str, Any]:
        seen.append(str(me.prompt("When does the gate close?")))
        for call in (
            lambda: me.search("gate"),
            lambda: me.remember("The lock is new."),
            lambda: me.log("The lock is new."),
            lambda: me.items(),
            lambda: me.day(local.days()[-1] if local.days() else "2026-01-01"),
            lambda: me.premises(),
        ):
            with pytest.raises(NotEnabled):
                call()
        return {"answer": "done", "confidence": 0.9}

    run_one(local, tmp_path, changed(small("scout"), *place, False), work, run_id="r")
    assert "nine" not in seen[0]
    assert "Memory" not in seen[0]
    assert local.days() == []
    assert list(local.events(run_id="r", kinds=("memory.logged", "memory.item.created"))) == []
    for tool, arguments in (("memory.read", {"target": "dates"}), ("memory.search", {"query": "gate"})):
        assert Tools(local).call(tool, arguments, actor="scout", run_id="r")["status"] == 503


@pytest.mark.spec("4.1", "3.9")
@pytest.mark.parametrize(
    "place", [(WORKFLOW_FILE, "memory.search_enabled"), (agent_file("scout"), "memory.search_enabled")]
)
def test_search_that_is_switched_off_is_off_for_the_library_too(
    local: Book, tmp_path: Path, place: tuple[str, str]
) -> None:
    local.remember("The gate closes at nine.")
    me = local.run(write(tmp_path, changed(small("scout"), *place, False)), run_id="r").agent("scout")
    with pytest.raises(Denied, match="search_enabled"):
        me.search("gate")
    assert refusals(local) == [("scout", "memory.search")]
    assert Tools(local).call("memory.search", {"query": "gate"}, actor="scout", run_id="r")["status"] == 403
    assert [one.body for one in me.long_term()] == ["The gate closes at nine."]


@pytest.mark.spec("3.1")
@pytest.mark.parametrize(
    "changes",
    [
        {"memory.tiers.working.auto_write": False},
        {"memory.daily_log": {"auto_write": False}},
        {"memory.tiers.long_term.inject": False, "memory.daily_log.auto_write": False},
    ],
)
def test_what_the_workflow_says_of_a_tier_holds_for_each_agent(
    local: Book, tmp_path: Path, changes: dict[str, object]
) -> None:
    local.remember("The gate closes at nine.")
    prompts = list[str]()

    def work(me: Task) -> dict[str, Any]:
        prompts.append(str(me.prompt("Write the report.")))
        return {"answer": "done", "confidence": 0.9}

    run_one(local, tmp_path, with_(small("scout"), changes), work)
    assert local.days() == []
    assert ("## Long-term Memory" in prompts[0]) is ("memory.tiers.long_term.inject" not in changes)


@pytest.mark.spec("4.2")
def test_a_run_without_files_searches_every_tier(local: Book) -> None:
    """No file has switched anything off, so a turn finds what the book finds: also by meaning."""
    local.remember("The automobile is in the garage.")
    me = local.run(run_id="r").agent("ada")
    assert [one.what for one in me.search("where is the car").left_out] == [
        one.what for one in local.search("where is the car").left_out
    ]
