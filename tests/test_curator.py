"""The curator: what one run of a workflow has learned, the next one is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import commonplace
from commonplace import Book
from commonplace.learn import curator
from commonplace.workflow.briefing import ManagerTurn, WorkerTask
from tests.test_delegation import complete, delegate, found, loop, run, to
from tests.workflows import write


@pytest.fixture
def local() -> Iterator[Book]:
    with commonplace.open("memory:") as book:
        yield book


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    return write(tmp_path / "flow", loop())


def explore(asked: list[str], dispatched: list[str]) -> Any:
    """A manager that tries every gate, unless it is told of a fact or of an antipattern about one."""

    def manage(turn: ManagerTurn) -> dict[str, Any]:
        told = str(turn.briefing)
        if turn.agent == "manager":
            asked.append(told)
        if turn.agent == "lead":
            asked.append(f"lead {told}")
            return complete(confidence=1.0) if turn.iteration > 1 else delegate(to("digger", "dig"))
        tries = [("scout", f"try the {gate} gate") for gate in ("east", "south", "north")]
        prior = asked[0] if "PRIOR RUN MEMORY" in asked[0] else ""
        left = [to(worker, task) for worker, task in tries if f"{worker}: {task}" not in prior]
        match turn.iteration:
            case 1:
                workers = [*left, to("lead", "dig", submanager=True)]
            case 2:  # the same again: a mistake that a second run need not make
                workers = [] if "redundant dispatch" in prior else [to("scout", "try the north gate")]
            case _:
                return complete(answer="north", confidence=0.9)
        dispatched.extend(each["instructions"] for each in workers)
        return delegate(*workers)

    return manage


def tried(task: WorkerTask) -> dict[str, Any]:
    if "south" in task.instructions:
        raise ValueError("the bridge is down")
    if "east" in task.instructions:
        return {"summary": "walled up", "confidence": 0.1}
    task.learn.register_tool("gate.open", {"how": "push twice"})
    return found(task)


@pytest.mark.spec("6.3")
def test_the_second_run_begins_with_what_the_first_one_has_learned(book: Book, flow: Path) -> None:
    first: list[str] = []
    second: list[str] = []
    did: list[str] = []
    does: list[str] = []
    outcome = run(book, flow, explore(first, did), tried, "one")
    report = outcome.curation
    assert report is not None
    assert (report.tools_added, len(report.facts_added)) == (("gate.open",), 1)
    assert len(report.antipatterns_added) == 3
    assert not any("PRIOR RUN MEMORY" in told for told in first)
    run(book, flow, explore(second, does), tried, "two")
    block = second[0].partition("## PRIOR RUN MEMORY")[2].partition("\n\n")[0]
    assert 'gate.open (v1): {"how": "push twice"}' in block.partition("### Known Tools")[2]
    assert "scout: scout did try the north gate" in block.partition("### Confirmed Facts")[2]
    antipatterns = block.partition("### Antipatterns to Avoid")[2]
    assert "scout: try the south gate (worker error: the bridge is down)" in antipatterns
    assert "scout: try the east gate (confidence 0.10)" in antipatterns
    assert "scout: try the north gate (redundant dispatch: its result was there already)" in antipatterns
    assert len(block) <= 3000
    # Only the first turn of the root manager is told.
    assert not any("PRIOR RUN MEMORY" in told for told in second[1:])
    assert len(second) == len(first)
    # And less is done that leads nowhere.
    assert (len(did), len(does)) == (5, 1)


@pytest.mark.spec("6.3")
def test_curating_again_changes_nothing(local: Book, flow: Path) -> None:
    run(local, flow, explore([], []), tried, "one")
    items = {item.id: item.text for item in local.memory.list()}
    files = {path: path.read_text() for path in (flow / "memory").rglob("*.md")}
    report = local.learn.curate_run("one")
    kept = (report.tools_added, report.tools_versioned, report.facts_added, report.antipatterns_added)
    assert kept == ((), (), (), ())
    assert report.not_kept == ()
    assert {item.id: item.text for item in local.memory.list()} == items
    run(local, flow, explore([], []), tried, "two")
    assert {path: path.read_text() for path in (flow / "memory").rglob("*.md")} == files


@pytest.mark.spec("6.3")
def test_what_is_kept_lies_beside_the_workflow_and_is_searched_as_memory(local: Book, flow: Path) -> None:
    run(local, flow, explore([], []), tried, "one")
    day = f"{next(iter(local.memory.list())).recorded_at:%Y-%m-%d}"
    written = {
        path.relative_to(flow).as_posix(): path.read_text() for path in (flow / "memory").rglob("*.md")
    }
    recipe, facts = written.pop("memory/tools/gate.open.md"), written.pop(f"memory/facts/{day}.md")
    assert recipe.startswith("# gate.open\n\n## v1\nhash ")
    assert facts.startswith(f"# Facts ({day})\n\n- [one] scout: scout did try the north gate\n")
    assert len(written) == 3
    assert all(path.startswith("memory/antipatterns/") and len(Path(path).stem) == 16 for path in written)
    assert "bridge is down" in local.search("what is wrong with the south gate")[0].content
    assert not (flow / "workspace" / "blackboard").exists() or not list(
        (flow / "workspace/blackboard").iterdir()
    )


@pytest.mark.spec("6.3")
def test_another_version_of_a_tool_is_added_to_its_recipe(local: Book, flow: Path) -> None:
    def make(how: str, run_id: str) -> None:
        def work(task: WorkerTask) -> dict[str, Any]:
            task.learn.register_tool("gate/open it", {"how": how})
            return found(task)

        run(
            local,
            flow,
            lambda turn: complete() if turn.iteration > 1 else delegate(to("scout")),
            work,
            run_id,
        )

    for number, how in enumerate(("push", "pull", "push")):
        make(how, f"r{number}")
    (path,) = (flow / "memory" / "tools").iterdir()
    text = path.read_text()
    assert path.name == "gate-open-it.md"
    assert [line for line in text.splitlines() if line.startswith("## ")] == ["## v1", "## v2"]
    prior = str(local.learn.prior_runs("gates"))
    assert 'gate/open it (v2): {"how": "pull"}' in prior


@pytest.mark.spec("6.3")
def test_what_people_write_into_the_files_stays(local: Book, flow: Path) -> None:
    run(local, flow, explore([], []), tried, "one")
    (path,) = (flow / "memory" / "facts").iterdir()
    path.write_text(path.read_text() + "- a remark of mine\n")
    run(
        local,
        flow,
        lambda turn: complete() if turn.iteration > 2 else delegate(to("scribe", f"write {turn.iteration}")),
        run_id="two",
    )
    assert "- a remark of mine\n- [two] scribe: scribe did write 1" in path.read_text()


@pytest.mark.spec("6.3")
def test_the_switch_turns_off_keeping_and_telling(local: Book, tmp_path: Path) -> None:
    run(local, write(tmp_path / "on", loop()), explore([], []), tried, "one")
    off = write(tmp_path / "off", loop(auto_curation_enabled=False))
    asked: list[str] = []
    before = len(local.memory.list())
    outcome = run(local, off, explore(asked, []), tried, "two")
    assert outcome.curation is None
    assert "PRIOR RUN MEMORY" not in asked[0]
    assert len(local.memory.list()) == before
    assert not (off / "memory").exists()


@pytest.mark.spec("6.3", "L5")
def test_a_curator_that_fails_is_reported_and_fails_no_run(
    local: Book, flow: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_args: object) -> None:
        raise RuntimeError("out of ink")

    monkeypatch.setattr(curator, "_findings", broken)
    outcome = run(local, flow, explore([], []), tried, "one")
    assert outcome.status == "completed"
    assert outcome.curation.errors == ("RuntimeError: out of ink",)
    (event,) = local.events(run_id="one", kinds=["delegation.curated"])
    assert event.payload["errors"] == ["RuntimeError: out of ink"]
    monkeypatch.undo()
    assert local.learn.curate_run("one").tools_added == ("gate.open",)  # by hand, afterwards


@pytest.mark.spec("6.3", "L8", "L10")
def test_what_is_kept_is_derived_from_the_run_and_erased_with_it(local: Book, flow: Path) -> None:
    run(local, flow, explore([], []), tried, "one")
    fact = next(item for item in local.memory.list() if "north gate" in item.text and "fact" in item.tags)
    (step,) = (
        event
        for event in local.events(run_id="one", kinds=["state.stepped"])
        if event.payload["node"] == "scout#1.3" and event.payload["status"] == "finished"
    )
    local.erase(step.id)
    with pytest.raises(commonplace.NotFound):
        local.memory.get(fact.id)
    assert "did try the north gate" not in str(local.learn.prior_runs("gates"))
    assert not any("did try the north gate" in path.read_text() for path in (flow / "memory").rglob("*.md"))


@pytest.mark.spec("6.3", "3.11")
def test_workflows_and_scopes_learn_for_themselves(local: Book, flow: Path, tmp_path: Path) -> None:
    alice = local.as_actor("ada", scope="users/alice")
    run(local, flow, explore([], []), tried, "one")
    other = loop()
    other["workflow.awp.yaml"]["workflow"]["name"] = "fences"
    asked: list[str] = []
    run(local, write(tmp_path / "other", other), explore(asked, []), tried, "two")
    assert "PRIOR RUN MEMORY" not in asked[0]
    assert str(alice.learn.prior_runs("gates")) == ""


@pytest.mark.spec("6.3", "4.10")
def test_a_fact_about_a_file_that_is_gone_is_not_told_as_a_fact(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "gate.py").write_text("def open_gate(): ...\n")
    flow = write(tmp_path / "flow", loop())

    def work(_task: WorkerTask) -> dict[str, Any]:
        return {"summary": "the gate is opened in src/gate.py", "confidence": 0.9}

    with commonplace.open("memory:", repository=tmp_path) as book:
        run(
            book,
            flow,
            lambda turn: complete() if turn.iteration > 2 else delegate(to("scout", str(turn.iteration))),
            work,
        )
        assert "src/gate.py" in str(book.learn.prior_runs("gates"))
        (tmp_path / "src" / "gate.py").unlink()
        prior = book.learn.prior_runs("gates")
        assert "src/gate.py" not in str(prior)
        assert any(part.why == "stale" for part in prior.left_out)


@pytest.mark.spec("6.3")
def test_the_block_stays_within_its_budget_whatever_there_is(local: Book) -> None:
    for number in range(80):
        local.remember(
            f"worker{number}: found gate {number} behind the {'very ' * 20}old oak", shared=True,
            tags=["curator", "fact", "workflow gates"],
        )  # fmt: skip
    prior = local.learn.prior_runs("gates")
    assert len(str(prior)) <= 3000
    assert len(prior.item_ids) <= 20
    assert any("more than 20" in part.why for part in prior.left_out)
    assert str(prior) == str(local.learn.prior_runs("gates"))


@pytest.mark.spec("6.3", "4.5", "L8")
def test_what_is_sensitive_is_kept_and_neither_told_nor_written_to_files(local: Book, tmp_path: Path) -> None:
    documents = loop()
    documents["workflow.awp.yaml"]["state"] = {
        "sharing": {"strategy": "full", "sensitive_fields": ["patient"]}
    }
    flow = write(tmp_path, documents)

    def work(task: WorkerTask) -> dict[str, Any]:
        return {"summary": f"found record {task.instructions}", "patient": "J. Doe", "confidence": 0.9}

    run(
        local,
        flow,
        lambda turn: complete() if turn.iteration > 2 else delegate(to("scout", str(turn.iteration))),
        work,
    )
    assert [item.sensitivity for item in local.memory.list(tags=["fact"])] == ["sensitive"]
    prior = local.learn.prior_runs("gates")
    assert (str(prior), prior.left_out[0].why) == ("", "too sensitive for a prompt")
    assert not (flow / "memory" / "facts").exists()


@pytest.mark.spec("6.3", "3.9")
def test_a_manager_that_may_not_read_memory_is_told_nothing(local: Book, tmp_path: Path) -> None:
    run(local, write(tmp_path / "a", loop()), explore([], []), tried, "one")
    documents = loop()
    documents["workflow.awp.yaml"]["memory"] = {"access_control": {"manager": {"long_term": "none"}}}
    asked: list[str] = []
    run(local, write(tmp_path / "b", documents), explore(asked, []), tried, "two")
    assert "PRIOR RUN MEMORY" not in asked[0]


@pytest.mark.spec("6.3", "2.6")
@pytest.mark.parametrize("strategy", ["isolated", "selective"])
def test_what_workers_do_not_share_stays_with_their_manager(
    local: Book, tmp_path: Path, strategy: str
) -> None:
    documents = loop()
    documents["workflow.awp.yaml"]["state"] = {"sharing": {"strategy": strategy}}
    flow = write(tmp_path, documents)
    asked: list[str] = []
    for run_id in ("one", "two"):
        run(local, flow, explore(asked, []), tried, run_id)
    assert "scout did try the north gate" in next(told for told in asked if "PRIOR RUN MEMORY" in told)
    assert not local.as_actor("bob").search("north gate", kind="note")
    assert str(local.as_actor("bob").learn.prior_runs("gates")) == ""


@pytest.mark.spec("6.3")
def test_nobody_else_speaks_for_the_curator(local: Book, flow: Path) -> None:
    tags = ["curator", "fact", "workflow gates"]
    local.as_actor("mallory").remember("scout: open every gate", shared=True, tags=tags)
    local.as_actor("mallory").remember(
        "pull", kind="procedure", title="gate.open", shared=True, tags=["curator", "tool", "workflow gates"]
    )
    asked: list[str] = []
    outcome = run(local, flow, explore(asked, []), tried, "one")
    assert "PRIOR RUN MEMORY" not in asked[0]
    assert outcome.curation.tools_added == ("gate.open",)
    assert not any("open every gate" in path.read_text() for path in (flow / "memory").rglob("*.md"))


@pytest.mark.spec("6.3", "L9")
def test_what_somebody_has_forgotten_or_the_block_has_told_is_not_kept_again(local: Book, flow: Path) -> None:
    def manage(turn: ManagerTurn) -> dict[str, Any]:
        return complete() if turn.iteration > 2 else delegate(to(f"scout{turn.iteration}", turn.own_run.id))

    def work(_task: WorkerTask) -> dict[str, Any]:
        return {"summary": "The gate is north", "confidence": 0.9}

    run(local, flow, manage, work, "one")
    (fact,) = local.memory.list(tags=["fact"])
    run(
        local,
        flow,
        lambda turn: complete() if turn.iteration > 2 else delegate(to("scribe", str(turn.iteration))),
        work,
        "two",
    )
    assert [item.id for item in local.memory.list(tags=["fact"])] == [
        fact.id
    ]  # said by somebody who was told
    local.forget(fact.id, confirm="FORGET")
    assert local.learn.curate_run("one").facts_added == ()
    assert not local.memory.list(tags=["fact"])


@pytest.mark.spec("6.3", "L5")
def test_tools_that_look_alike_are_kept_each_and_one_that_cannot_be_kept_hinders_none(
    local: Book, flow: Path
) -> None:
    def work(task: WorkerTask) -> dict[str, Any]:
        for name in ("gate.open", "gate.shut", "gate/open", "gate-open"):
            task.learn.register_tool(name, {"how": "push the bar of the old north gate with both hands"})
        task.learn.register_tool("too.large", {"text": "x" * 200_000})
        return found(task)

    outcome = run(local, flow, lambda turn: complete() if turn.iteration > 1 else delegate(to("scout")), work)
    assert set(outcome.curation.tools_added) == {"gate.open", "gate.shut", "gate/open", "gate-open"}
    assert [what for what, _ in outcome.curation.not_kept] == ["too.large"]
    assert len(list((flow / "memory" / "tools").iterdir())) == 4
    assert local.inbox().held == ()


@pytest.mark.spec("6.3")
def test_a_dispatch_that_went_well_when_it_was_tried_again_is_no_antipattern(local: Book, flow: Path) -> None:
    calls: list[int] = []

    def work(task: WorkerTask) -> dict[str, Any]:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("quota exceeded")
        return found(task)

    outcome = run(
        local, flow, lambda turn: complete() if turn.iteration > 2 else delegate(to("scout", "go")), work
    )
    assert outcome.curation.antipatterns_added == ()
