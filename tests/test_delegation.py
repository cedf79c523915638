"""Delegation loops: a manager decides, workers do, sub-managers delegate further, and it all can be gone on with."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import commonplace
from commonplace import BadInput, Book, NotFound, RunFailed
from commonplace.surfaces.tools import Tools
from commonplace.workflow.briefing import ManagerTurn, WorkerTask
from commonplace.workflow.load import examine, load
from commonplace.workflow.model import WORKFLOW_FILE
from tests.shells import Cli
from tests.workflows import Documents, agent_file, write

Manage = Callable[[ManagerTurn], dict[str, Any]]

LOOP: Documents = {
    WORKFLOW_FILE: {
        "awp": "1.0.0",
        "workflow": {"name": "gates", "description": "Find the gate"},
        "orchestration": {"engine": "delegation_loop", "delegation_loop": {"manager": "agents/manager"}},
    }
}


def loop(**section: Any) -> Documents:
    """The files of a delegation loop whose section says this."""
    document = json.loads(json.dumps(LOOP[WORKFLOW_FILE]))
    document["orchestration"]["delegation_loop"] |= section
    return {WORKFLOW_FILE: document}


def to(worker: str, instructions: str = "look", **more: Any) -> dict[str, Any]:
    return {"worker_id": worker, "instructions": instructions, **more}


def delegate(*workers: dict[str, Any]) -> dict[str, Any]:
    return {"decision": "DELEGATE", "workers": list(workers)}


def complete(**result: Any) -> dict[str, Any]:
    return {"decision": "COMPLETE", "result": result}


def scripted(*decisions: dict[str, Any]) -> Manage:
    """A manager that decides so, one after the other."""
    return lambda turn: decisions[min(turn.iteration, len(decisions)) - 1]


def found(task: WorkerTask) -> dict[str, Any]:
    return {"summary": f"{task.agent} did {task.instructions}", "confidence": 0.9}


def run(
    book: Book, folder: Path, manager: Manage, worker: Any = found, run_id: str = "r", **more: Any
) -> Any:
    agents = {"manager": manager, "*": worker}
    return book.runs.execute(folder, agents=agents, run_id=run_id, initial={"task": "find the gate"}, **more)


@pytest.fixture
def local() -> Iterator[Book]:
    with commonplace.open("memory:") as book:
        yield book


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    return write(tmp_path / "flow", LOOP)


# the loop


@pytest.mark.spec("6.0")
def test_a_manager_plans_and_workers_do(book: Book, flow: Path) -> None:
    asked: list[str] = []

    def manage(turn: ManagerTurn) -> dict[str, Any]:
        asked.append(str(turn.briefing))
        if turn.iteration == 1:
            return delegate(to("scout", "look north"), to("scribe", "write"))
        return complete(answer="the north gate", confidence=0.9)

    outcome = run(book, flow, manage)
    assert (outcome.status, outcome.steps) == (
        "completed",
        {"scout#1.1": "finished", "scribe#1.2": "finished"},
    )
    state = book.runs.state("r")
    assert state["manager"] == {"answer": "the north gate", "confidence": 0.9}
    assert state["scout"]["summary"] == "scout did look north"
    assert "# TASK\nfind the gate" in asked[0]
    assert "HISTORY" not in asked[0]
    assert "scribe did write" in asked[1]
    logged = [entry.about for day in book.documents.days() for entry in book.documents.day(day)]
    assert logged == ["scout (confidence: 0.9)", "scribe (confidence: 0.9)", "manager (confidence: 0.9)"]


@pytest.mark.spec("6.0", "L5")
@pytest.mark.parametrize("agents", [{}, {"*": found}, {"scout": found}])
def test_a_loop_without_a_manager_to_call_is_an_error(
    local: Book, flow: Path, cli: Cli, agents: dict[str, Any]
) -> None:
    with pytest.raises(BadInput, match="nobody says how to run the manager 'manager'"):
        local.runs.execute(flow, agents=agents)
    assert local.runs.list() == []
    cli("init")
    ran = cli("run", flow)
    assert ran.code == 1
    assert "the manager 'manager'" in ran.err


@pytest.mark.spec("6.0")
@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        ({"max_loops": 3}, "3 iterations"),
        ({"max_iterations": 2}, "2 iterations"),
        ({"max_total_workers": 4}, "4 workers"),
        ({"max_total_chars": 300}, "300 characters"),
        ({"max_total_tokens": 75}, "300 characters"),
        ({"max_wall_time": 0.15}, "time"),
    ],
)
def test_a_budget_ends_a_loop_and_what_was_found_stays(
    local: Book, tmp_path: Path, budget: dict[str, Any], reason: str
) -> None:
    flow = write(tmp_path, loop(budget=budget))
    pause = threading.Event()

    def work(task: WorkerTask) -> dict[str, Any]:
        pause.wait(0.1 if "max_wall_time" in budget else 0)
        return found(task)

    outcome = run(local, flow, lambda turn: delegate(to("scout", f"look {turn.iteration}")), work)
    assert outcome.status == "partial"
    assert reason in outcome.reason
    assert "manager" not in local.runs.state("r")
    assert local.runs.get("r").status == "partial"
    assert "reason" in str(outcome) or reason in str(outcome)


@pytest.mark.spec("6.0", "2.4")
def test_a_loop_that_ran_out_of_budget_goes_on_with_more(local: Book, tmp_path: Path) -> None:
    done: list[str] = []

    def work(task: WorkerTask) -> dict[str, Any]:
        done.append(task.instructions)
        return found(task)

    def manage(turn: ManagerTurn) -> dict[str, Any]:
        return complete(answer=1) if turn.iteration > 4 else delegate(to("scout", f"look {turn.iteration}"))

    flow = write(tmp_path / "a", loop(budget={"max_loops": 2}))
    assert run(local, flow, manage, work).status == "partial"
    write(tmp_path / "a", loop(budget={"max_loops": 9}))
    assert run(local, flow, manage, work).status == "completed"
    assert done == ["look 1", "look 2", "look 3", "look 4"]


@pytest.mark.spec("6.0")
def test_a_loop_without_progress_is_warned_and_then_ends(local: Book, flow: Path) -> None:
    warned: list[tuple[str, ...]] = []

    def manage(turn: ManagerTurn) -> dict[str, Any]:
        warned.append(turn.briefing.warnings)
        return delegate(to("scout", f"look {turn.iteration}"))

    outcome = run(local, flow, manage, lambda _task: {"summary": "nothing", "confidence": 0.4})
    assert outcome.status == "partial"
    assert "no progress" in outcome.reason
    assert [any("no progress" in warning for warning in each) for each in warned] == [False] * 4 + [True]


@pytest.mark.spec("6.0")
def test_workers_that_state_no_confidence_make_progress_by_what_they_answer(local: Book, flow: Path) -> None:
    def manage(turn: ManagerTurn) -> dict[str, Any]:
        return complete() if turn.iteration > 9 else delegate(to("scout", f"count to {turn.iteration}"))

    assert run(local, flow, manage, lambda task: {"counted": task.instructions}).status == "completed"


@pytest.mark.spec("6.0")
def test_a_manager_that_says_so_fails_the_run(local: Book, flow: Path) -> None:
    with pytest.raises(RunFailed, match="there is no gate"):
        run(local, flow, scripted(delegate(to("scout")), {"decision": "FAIL", "reason": "there is no gate"}))
    assert local.runs.get("r").status == "failed"


@pytest.mark.spec("6.0", "L5")
@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ({"decision": "GUESS"}, "GUESS"),
        ({}, "decision"),
        (delegate({"worker_id": "scout"}), "instructions"),
        (delegate({"instructions": "go"}), "worker_id"),
        (delegate(to("manager")), "a manager itself"),
        (delegate(to("scout", timeout=-1)), "timeout"),
        (delegate(to("scout", output_contract=[1])), "output_contract"),
        ({"decision": "DELEGATE", "workers": "scout"}, "no list"),
    ],
)
def test_an_answer_that_cannot_be_used_is_told_to_the_manager_once(
    local: Book, flow: Path, answer: dict[str, Any], complaint: str
) -> None:
    told: list[str] = []

    def manage(turn: ManagerTurn) -> dict[str, Any]:
        told.extend(turn.briefing.warnings)
        return complete(answer=1) if turn.briefing.warnings else answer

    assert run(local, flow, manage).status == "completed"
    assert complaint in told[0]
    with pytest.raises(RunFailed, match="manager failed"):
        run(local, flow, lambda _turn: answer, run_id="again")


@pytest.mark.spec("6.0")
def test_the_same_dispatch_is_recognised_and_not_done_again(local: Book, flow: Path) -> None:
    done: list[str] = []

    def work(task: WorkerTask) -> dict[str, Any]:
        done.append(task.instructions)
        return found(task)

    decisions = (
        delegate(to("scout", "Look  north"), to("scout", "look NORTH")),
        delegate(
            to("scout", "look north"),
            to("scout", "look north", inputs={"map": 2}),
            to("scribe", "look north"),
        ),
        complete(),
    )
    told: list[Any] = []

    def manage(turn: ManagerTurn) -> dict[str, Any]:
        told.append(turn.briefing)
        return decisions[turn.iteration - 1]

    outcome = run(local, flow, manage, work)
    assert done == [
        "Look  north",
        "look north",
        "look north",
    ]  # other inputs, or another worker, is another dispatch
    assert outcome.steps["scout#1.2"] == outcome.steps["scout#2.1"] == "skipped"
    again = told[2].history[1]["workers"][0]
    assert (again["status"], again["output"]["summary"]) == ("redundant", "scout did Look  north")
    assert any("told the same" in warning for warning in told[2].warnings)


@pytest.mark.spec("6.0", "2.8")
def test_contracts_and_timeouts_of_workers(local: Book, tmp_path: Path) -> None:
    confidence = {"type": "number", "minimum": 0, "maximum": 1}
    contract = {"answer": {"type": "string", "required": True}, "confidence": confidence}
    flow = write(
        tmp_path,
        {**LOOP, agent_file("scout"): {"identity": {"id": "scout"}, "output": {"contract": contract}}},
    )
    hold = threading.Event()
    outputs: dict[str, Any] = {"scout": {"confidence": 0.5}, "scribe": {"text": "x"}, "sloth": None}

    def work(task: WorkerTask) -> Any:
        if task.agent == "sloth":
            hold.wait(30)
        return outputs[task.agent]

    decisions = delegate(
        to("scout"), to("scribe", output_contract={"required_fields": ["pages"]}), to("sloth", timeout=0.05)
    )
    told: list[Any] = []

    def manage(turn: ManagerTurn) -> dict[str, Any]:
        told.append(turn.briefing.history)
        return decisions if turn.iteration == 1 else complete()

    run(local, flow, manage, work)
    hold.set()
    reasons = {each["worker_id"]: each["reason"] for each in told[1][0]["workers"]}
    assert "answer" in reasons["scout"]
    assert "pages" in reasons["scribe"]
    assert "took longer than 0.05 s" in reasons["sloth"]
    errors = {error["agent"]: error for error in local.runs.state("r")["_errors"]}
    assert errors["sloth#1.3"]["reason"] == "timeout"


@pytest.mark.spec("6.0", "L5")
def test_more_workers_than_the_budget_allows_are_deferred_and_told(local: Book, tmp_path: Path) -> None:
    flow = write(tmp_path, loop(budget={"max_workers_per_iteration": 2, "max_total_workers": 3}))
    told: list[Any] = []

    def manage(turn: ManagerTurn) -> dict[str, Any]:
        told.append(turn.briefing)
        return delegate(*(to(f"w{n}", f"{turn.iteration}") for n in range(3)))

    outcome = run(local, flow, manage)
    assert outcome.steps == {
        "w0#1.1": "finished", "w1#1.2": "finished", "w2#1.3": "skipped",
        "w0#2.1": "finished", "w1#2.2": "skipped", "w2#2.3": "skipped",
    }  # fmt: skip
    assert told[1].warnings == ("w2 was not dispatched: the budget of 2 workers an iteration is used up",)
    assert outcome.reason == "the budget of 3 workers is used up"


# sub-managers


@pytest.mark.spec("6.0")
def test_submanagers_delegate_down_to_the_limit_and_no_deeper(local: Book, tmp_path: Path) -> None:
    flow = write(tmp_path, loop(budget={"max_depth": 2}))
    depths: list[int] = []
    history: list[Any] = []

    def manage(turn: ManagerTurn) -> dict[str, Any]:
        depths.append(turn.briefing.depth)
        if turn.iteration == 1:
            return delegate(to(f"lead{turn.briefing.depth + 1}", "go deeper", submanager=True))
        history.append(turn.briefing.history[0]["workers"][0])
        return complete(deep=turn.briefing.depth, confidence=0.9)

    assert run(local, flow, manage).status == "completed"
    assert sorted(depths) == [0, 0, 1, 1, 2, 2]
    assert "may not delegate any deeper" in history[0]["reason"]
    assert [each["status"] for each in history] == ["failed", "finished", "finished"]
    assert local.runs.state("r")["lead1"] == {"status": "complete", "deep": 1, "confidence": 0.9}
    below = {info.id: (info.parent, info.status) for info in local.runs.list() if info.parent}
    assert below == {
        "r/lead1#1.1": ("r", "completed"),
        "r/lead1#1.1/lead2#1.1": ("r/lead1#1.1", "completed"),
    }


@pytest.mark.spec("6.0")
@pytest.mark.parametrize(
    ("section", "envelope", "expected"),
    [
        ({}, {}, {"task", "secret", "map", "scout"}),
        ({}, {"inherited_state_keys": ["map"]}, {"map"}),
        ({}, {"forbidden_inheritance_keys": ["secret"]}, {"task", "map", "scout"}),
        ({"forbidden_inheritance_keys": ["secret"]}, {}, {"task", "map", "scout"}),
        ({"inherited_state_keys": ["map", "secret"], "forbidden_inheritance_keys": ["secret"]}, {}, {"map"}),
    ],
)
def test_what_a_submanager_inherits(
    local: Book, tmp_path: Path, section: dict[str, Any], envelope: dict[str, Any], expected: set[str]
) -> None:
    flow = write(tmp_path, loop(**section))
    seen: list[set[str]] = []

    def manage(turn: ManagerTurn) -> dict[str, Any]:
        if turn.agent == "lead":
            seen.append({key for key in turn.state if not key.startswith("_")})
            return complete(confidence=1.0) if turn.iteration > 1 else delegate(to("scout", "look again"))
        return [delegate(to("scout")), delegate(to("lead", submanager=True, **envelope)), complete()][
            turn.iteration - 1
        ]

    initial = {"task": "t", "secret": "s", "map": {"x": 1}}
    local.runs.execute(flow, agents={"manager": manage, "*": found}, run_id="r", initial=initial)
    assert seen[0] == expected
    child = local.runs.state("r/lead#2.1")
    assert (
        child["scout"]["summary"] == "scout did look again"
    )  # its own worker's, in place of what it inherited


@pytest.mark.spec("6.0")
def test_submanagers_share_what_is_left_of_the_budget(local: Book, tmp_path: Path) -> None:
    flow = write(tmp_path, loop(budget={"max_total_workers": 9}))
    left: dict[str, int] = {}

    def manage(turn: ManagerTurn) -> dict[str, Any]:
        left[f"{turn.agent}{turn.iteration}"] = turn.briefing.left.workers
        if turn.agent != "manager":
            return complete(confidence=1.0) if turn.iteration > 1 else delegate(to("digger", turn.agent))
        if turn.iteration == 1:
            return delegate(to("one", submanager=True), to("two", submanager=True))
        return complete()

    run(local, flow, manage)
    assert left == {"manager1": 9, "one1": 2, "two1": 2, "one2": 1, "two2": 1, "manager2": 5}


# board and context digests


@pytest.mark.spec("6.1", "6.12")
def test_workers_tell_each_other_what_they_find(book: Book, flow: Path) -> None:
    seen: dict[str, Any] = {}

    def work(task: WorkerTask) -> dict[str, Any]:
        board = task.learn.board
        if task.instructions == "post":
            first = board.post("gate", {"where": "north"})
            board.post("gate", {"where": "south"})
            board.post("weather", {"sky": "grey"})
            seen["since"] = [entry.payload for entry in board.read("gate", since=first.id)]
        else:
            seen["read"] = [(entry.topic, entry.worker_id, entry.payload) for entry in board.read()]
            seen["times"] = [entry.ts for entry in board.read()]
            seen["later"] = [entry.topic for entry in board.read(since=seen["times"][1])]
        return found(task)

    def manage(turn: ManagerTurn) -> dict[str, Any]:
        seen[f"signals {turn.iteration}"] = str(turn.briefing).partition("## SIBLING SIGNALS")[2]
        decisions = [delegate(to("scout", "post")), delegate(to("scribe", "read")), complete()]
        return decisions[turn.iteration - 1]

    run(book, flow, manage, work)
    assert seen["since"] == [{"where": "south"}]
    assert seen["read"] == [
        ("gate", "scout", {"where": "north"}),
        ("gate", "scout", {"where": "south"}),
        ("weather", "scout", {"sky": "grey"}),
    ]
    assert seen["times"] == sorted(set(seen["times"]))
    assert seen["later"] == ["weather"]
    assert seen["signals 1"] == ""
    assert seen["signals 2"].startswith('\n- [gate] by scout: {"where": "north"}\n- [gate] by scout')
    assert seen["signals 3"] == ""  # nothing new
    for actor in ("scout", "scribe"):  # it ended with the run
        with pytest.raises(NotFound, match="ended with it"):
            book.run(run_id="r").agent(actor).learn.board.read()
        assert not [event for event in book.as_actor(actor).events() if event.kind.startswith("delegation.")]
    posted = book.events(run_id="r", kinds=["delegation.posted"])
    assert [event.payload["topic"] for event in posted] == [
        "gate",
        "gate",
        "weather",
    ]  # the owner can audit it


@pytest.mark.spec("6.1", "6.2")
def test_boards_and_digests_are_bound_to_the_run_by_context(local: Book, flow: Path) -> None:
    """A tool that a model calls has only the book at hand."""
    seen: list[Any] = []

    def tool(topic: str) -> None:
        local.learn.board.post(topic, {"n": 1})
        seen.append([(entry.topic, entry.worker_id) for entry in local.learn.board.read()])

    async def work(task: WorkerTask) -> dict[str, Any]:
        tool(f"by {task.agent}")
        return found(task)

    def manage(turn: ManagerTurn) -> dict[str, Any]:
        if turn.iteration == 1:
            return delegate(to("scout"))
        assert turn.briefing.digest is not None
        seen.append(local.learn.digests.fetch(turn.briefing.digest.address[:12]))
        return complete()

    run(local, flow, manage, work)
    assert seen[0] == [("by scout", "scout")]
    assert seen[1].key_facts == ["scout: scout did look"]
    with pytest.raises(BadInput, match="in none"):
        local.learn.board.read()


@pytest.mark.spec("6.1")
def test_each_manager_has_a_board_of_its_own(local: Book, flow: Path) -> None:
    seen: dict[str, list[str]] = {}

    def work(task: WorkerTask) -> dict[str, Any]:
        task.learn.board.post("from", {"run": task.own_run.id})
        return found(task)

    def manage(turn: ManagerTurn) -> dict[str, Any]:
        seen.setdefault(turn.own_run.id, []).extend(entry.payload["run"] for entry in turn.briefing.signals)
        if turn.iteration == 1:
            inner = [to("lead", submanager=True)] if turn.briefing.depth == 0 else []
            return delegate(to("scout"), *inner)
        return complete(confidence=1.0)

    run(local, flow, manage, work)
    assert seen == {"r": ["r"], "r/lead#1.2": ["r/lead#1.2"]}


@pytest.mark.spec("6.1", "6.2", "6.12", "7.3")
def test_the_tools_of_the_board_and_the_digests(local: Book, flow: Path) -> None:
    tools, seen = Tools(local), dict[str, Any]()

    def work(task: WorkerTask) -> dict[str, Any]:
        run_id = task.own_run.id
        seen["post"] = tools.call(
            "board.post", {"topic": "t", "payload": {"a": 1}}, actor="scout", run_id=run_id
        )
        seen["read"] = tools.call("board_read", {"topic": "t"}, actor="scout", run_id=run_id)
        seen["bad"] = tools.call("board.post", {"topic": "", "payload": {}}, actor="scout", run_id=run_id)
        return found(task)

    def manage(turn: ManagerTurn) -> dict[str, Any]:
        if turn.iteration == 1:
            return delegate(to("scout"))
        assert turn.briefing.digest is not None
        seen["sha"] = turn.briefing.digest.address
        seen["fetch"] = tools.call("digest.fetch", {"sha": seen["sha"]}, actor="manager", run_id="r")
        seen["none"] = tools.call("digest.fetch", {"sha": "0" * 64}, actor="manager", run_id="r")
        return complete()

    run(local, flow, manage, work)
    assert seen["post"]["data"] == {"entry_id": seen["read"]["data"]["entries"][0]["id"]}
    assert seen["fetch"]["data"]["digest"]["key_facts"] == ["scout: scout did look"]
    assert (seen["bad"]["status"], seen["none"]["status"]) == (400, 404)
    for name, arguments in (("board.read", {}), ("digest.fetch", {"sha": seen["sha"]})):
        assert tools.call(name, arguments, actor="scout", run_id="r")["status"] == 404
    assert [event.payload["topic"] for event in local.events(kinds=["delegation.posted"])] == [
        "t"
    ]  # the owner audits


@pytest.mark.spec("6.2")
def test_digests_of_submanagers_are_linked_by_their_addresses(local: Book, flow: Path) -> None:
    seen: list[Any] = []

    def manage(turn: ManagerTurn) -> dict[str, Any]:
        if turn.briefing.depth:
            return (
                complete(summary="dug", confidence=0.9)
                if turn.iteration > 1
                else delegate(to("digger", "dig"))
            )
        if turn.iteration == 1:
            return delegate(to("lead", "dig it up", submanager=True))
        seen.append((turn.briefing.digest, turn.briefing.children, str(turn.briefing)))
        return complete()

    run(local, flow, manage)
    digest, (child,), prompt = seen[0]
    assert digest.child_digest_hashes == (child.address,)
    assert (child.goal, child.key_facts) == ("dig it up", ["digger: digger did dig"])
    assert f"## MY DIGEST ({digest.address[:12]})\ngoal: find the gate" in prompt
    assert (
        f"## CHILDREN DIGESTS\n- {child.address[:12]} iteration 1, 1 facts, 0 questions: dig it up" in prompt
    )


@pytest.mark.spec("6.2", "L6")
def test_the_same_run_gives_the_same_digests_on_any_engine(book: Book, tmp_path: Path) -> None:
    def manage(turn: ManagerTurn) -> dict[str, Any]:
        return complete() if turn.iteration > 3 else delegate(to("scout", f"look {turn.iteration}"))

    def addresses(book: Book, folder: str) -> list[str]:
        run(book, write(tmp_path / folder, LOOP), manage)
        made = book.events(run_id="r", kinds=["delegation.digested"])
        return [commonplace.learn.ContextDigest(**event.payload["digest"]).address for event in made]

    with commonplace.open("memory:") as other:
        expected = addresses(other, "other")
    assert len(expected) == 3
    assert addresses(book, "flow") == expected


@pytest.mark.spec("6.1", "6.2")
def test_a_hundred_delegations_side_by_side_never_mix(local: Book, flow: Path) -> None:
    def manage(turn: ManagerTurn) -> dict[str, Any]:
        mine = turn.own_run.id.partition("/")[0]
        known = [entry.payload["run"] for entry in turn.briefing.signals]
        facts = [] if turn.briefing.digest is None else list(turn.briefing.digest.key_facts)
        assert {run.partition("/")[0] for run in known} <= {mine}
        assert all(mine in fact for fact in facts)
        if turn.iteration <= 2:
            inner = [to("lead", f"{mine} again", submanager=True)] if not turn.briefing.depth else []
            return delegate(to("scout", f"{mine} {turn.iteration}"), to("scribe", mine), *inner)
        return complete(mine=mine, facts=facts, confidence=0.9)

    def work(task: WorkerTask) -> dict[str, Any]:
        local.learn.board.post("run", {"run": task.own_run.id})
        return {"summary": task.instructions, "confidence": 0.9}

    with ThreadPoolExecutor(16) as pool:
        outcomes = list(pool.map(lambda n: run(local, flow, manage, work, f"run{n:03d}"), range(100)))
    assert {outcome.status for outcome in outcomes} == {"completed"}
    for number in range(100):
        state = local.runs.state(f"run{number:03d}")
        assert state["manager"]["mine"] == f"run{number:03d}"
        assert state["lead"]["mine"] == f"run{number:03d}"


@pytest.mark.spec("2.7", "6.1", "6.2")
def test_secrets_of_a_run_reach_no_board_no_digest_and_no_history(local: Book, tmp_path: Path) -> None:
    documents = loop()
    documents[WORKFLOW_FILE]["state"] = {
        "sharing": {"strategy": "full", "sensitive_fields": ["token"], "never_share": ["raw"]}
    }
    flow = write(tmp_path, documents)
    shown: list[str] = []

    def work(task: WorkerTask) -> dict[str, Any]:
        task.learn.board.post("t", {"token": "hunter2-secret"})
        return {"summary": "it worked", "token": "hunter2-secret", "raw": "internal", "confidence": 0.9}

    def manage(turn: ManagerTurn) -> dict[str, Any]:
        shown.append(str(turn.briefing))
        return delegate(to("scout")) if turn.iteration == 1 else complete()

    run(local, flow, manage, work)
    assert "it worked" in shown[1]
    assert "hunter2" not in shown[1]
    assert "internal" not in shown[1]
    for event in local.events(run_id="r", kinds=["delegation.posted", "delegation.digested"]):
        assert "hunter2" not in str(event.payload)


# files in every shape that is published


PUBLISHED = [
    loop(budget={"max_loops": 10, "max_total_workers": 20}, termination={"enabled": True, "window": 3}),
    loop(
        models={"manager": None, "worker": None},
        worker_policy={
            "enforced": {"forbidden_tools": ["shell.execute"]},
            "manager_controlled": ["instructions"],
        },
        budget={"max_loops": 15, "max_total_tokens": 500_000, "max_wall_time": 300, "max_tool_calls": 200},
        context_budget={"total_chars": 64_000, "min_per_entry": 4_000, "preview_chars": 2_000},
        history={"rolling_summary": True, "full_results_window": 3},
        critique={"enabled": True, "mode": "inline"},
        planning={"enabled": True, "max_subtasks": 10},
    ),
    {
        WORKFLOW_FILE: {
            "awp": "1.0.0",
            "workflow": {"name": "bare"},
            "orchestration": {"engine": "delegation_loop"},
        }
    },
    {
        WORKFLOW_FILE: {
            "awp": "1.0.0",
            "workflow": {"name": "implied"},
            "delegation_loop": {"budget": {"max_depth": 2}},
        }
    },
]


@pytest.mark.spec("6.0", "7.6")
@pytest.mark.parametrize("documents", PUBLISHED)
def test_published_shapes_of_a_delegation_loop_run(local: Book, tmp_path: Path, documents: Documents) -> None:
    flow = write(tmp_path, documents)
    assert not [problem for problem in examine(flow)[1] if problem.level == "error"]
    assert run(
        local, flow, scripted(delegate(to("market_researcher", "look at trends")), complete(a=1))
    ).status == ("completed")
    assert local.runs.state("r")["market_researcher"]["confidence"] == 0.9


@pytest.mark.spec("6.0", "7.6")
@pytest.mark.parametrize("dialect", ["type", "section"])
def test_a_node_of_a_graph_may_be_a_delegation_loop(local: Book, tmp_path: Path, dialect: str) -> None:
    settings = {"manager": "agents/analyst", "budget": {"max_loops": 10, "max_total_workers": 15}}
    node = (
        {"type": "delegation_loop", "config": settings}
        if dialect == "type"
        else {"delegation_loop": settings}
    )
    confidence = {"type": "number", "minimum": 0, "maximum": 1}
    agent = {"output": {"contract": {"answer": "string", "confidence": confidence}}}
    documents: Documents = {
        WORKFLOW_FILE: {
            "awp": "1.0.0",
            "workflow": {"name": "mixed"},
            "orchestration": {
                "engine": "dag",
                "graph": [
                    {"id": "gather"},
                    {"id": "analysis", "depends_on": ["gather"], **node},
                    {"id": "report", "depends_on": ["analysis"]},
                ],
            },
        },
        **{agent_file(id): {"identity": {"id": id}, **agent} for id in ("gather", "report", "analyst")},
    }
    seen: list[Any] = []

    def manage(turn: ManagerTurn) -> dict[str, Any]:
        seen.append(turn.state.get("gather"))
        return delegate(to("scout")) if turn.iteration == 1 else complete(answer="deep", confidence=0.7)

    agents = {
        "gather": lambda _task: {"answer": "g", "confidence": 1},
        "analyst": manage,
        "report": lambda task: {"answer": task.state["analysis"]["answer"], "confidence": 1},
        "*": found,
    }
    outcome = local.runs.execute(write(tmp_path, documents), agents=agents, run_id="r")
    assert outcome.steps == {"gather": "finished", "analysis": "finished", "report": "finished"}
    assert local.runs.state("r")["report"]["answer"] == "deep"
    assert seen[0] == {"answer": "g", "confidence": 1}
    assert {info.id for info in local.runs.list() if info.parent} == {"r/analysis"}


@pytest.mark.spec("6.0", "7.6")
def test_what_is_wrong_with_a_loops_section_is_told(tmp_path: Path) -> None:
    flow = write(
        tmp_path, loop(budget={"max_loops": "many", "max_total_workers": 0}, termination={"window": -1})
    )
    workflow, problems = examine(flow)
    assert workflow is None
    place = "orchestration.delegation_loop"
    assert [problem.path for problem in problems if problem.level == "error"] == [
        f"{place}.budget.max_loops", f"{place}.budget.max_total_workers", f"{place}.termination.window"
    ]  # fmt: skip
    (warning,) = (problem for problem in problems if problem.level == "warning")
    assert (warning.rule, warning.path) == ("R8", f"{place}.manager")


def test_defaults_of_a_loop(flow: Path) -> None:
    delegation = load(flow).delegation
    assert delegation is not None
    assert (delegation.manager, delegation.budget.max_loops, delegation.auto_curation_enabled) == (
        "manager",
        20,
        True,
    )


# going on


@pytest.mark.spec("6.0", "2.4")
def test_a_manager_that_gave_up_is_asked_again_when_the_run_is_resumed(local: Book, flow: Path) -> None:
    mended: list[bool] = []
    done: list[str] = []

    def manage(turn: ManagerTurn) -> dict[str, Any]:
        if turn.iteration == 1:
            return delegate(to("scout"))
        return complete(answer=1) if mended else {"decision": "FAIL", "reason": "no key"}

    def work(task: WorkerTask) -> dict[str, Any]:
        done.append(task.agent)
        return found(task)

    with pytest.raises(RunFailed, match="no key"):
        run(local, flow, manage, work)
    mended.append(True)
    assert run(local, flow, manage, work).status == "completed"
    assert done == ["scout"]


@pytest.mark.spec("6.0", "2.4")
def test_what_was_deferred_stays_deferred_when_the_run_goes_on_with_more(local: Book, tmp_path: Path) -> None:
    done: list[str] = []

    def work(task: WorkerTask) -> dict[str, Any]:
        done.append(task.instructions)
        return found(task)

    def manage(turn: ManagerTurn) -> dict[str, Any]:
        if turn.iteration > 2:
            return complete(answer=1)
        return delegate(*(to(f"w{n}", f"{turn.iteration} {n}") for n in range(2)))

    small = {"max_workers_per_iteration": 1, "max_loops": 2}
    flow = write(tmp_path / "flow", loop(budget=small))
    assert run(local, flow, manage, work).status == "partial"
    write(tmp_path / "flow", loop(budget={"max_workers_per_iteration": 5, "max_loops": 9}))
    assert run(local, flow, manage, work).status == "completed"
    assert done == ["1 0", "2 0"]


@pytest.mark.spec("6.0")
def test_the_time_of_a_node_is_its_own(local: Book, tmp_path: Path) -> None:
    hold = threading.Event()
    settings = {"manager": "agents/boss", "budget": {"max_wall_time": 0.1}}
    confidence = {"type": "number", "minimum": 0, "maximum": 1}
    contract = {"output": {"contract": {"answer": "string", "confidence": confidence}}}
    graph = [
        {"id": "deep", "delegation_loop": settings, "on_failure": "skip"},
        {"id": "last", "depends_on": ["deep"]},
    ]
    documents: Documents = {
        WORKFLOW_FILE: {"awp": "1.0.0", "workflow": {"name": "timed"}, "orchestration": {"graph": graph}},
        agent_file("last"): {"identity": {"id": "last"}, **contract},
    }

    def sloth(_task: WorkerTask) -> dict[str, Any]:
        hold.wait(20)
        return {}

    agents: dict[str, Any] = {
        "boss": lambda _turn: delegate(to("sloth", timeout=10)),
        "sloth": sloth,
        "last": lambda _task: {"answer": "there was time left", "confidence": 1},
    }
    outcome = local.runs.execute(write(tmp_path, documents), agents=agents, run_id="r")
    hold.set()
    assert outcome.steps == {"deep": "finished", "last": "finished"}
    assert local.runs.get("r/deep").status == "partial"


# what can go wrong


@pytest.mark.spec("6.0", "L5")
@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ({"_meta": {"status": "hacked"}}, "_meta"),
        ({"x": "y" * 1_100_000}, "larger than a field"),
        ({"x": float("nan")}, "nan"),
        ({"x": b"bytes"}, "bytes"),
        ({"confidence": 10**400, "x": object()}, "object"),
    ],
)
def test_an_output_that_cannot_be_kept_is_the_workers_failure(
    local: Book, flow: Path, output: dict[str, Any], reason: str
) -> None:
    told: list[Any] = []

    def manage(turn: ManagerTurn) -> dict[str, Any]:
        told.append(turn.briefing.history)
        return delegate(to("scout")) if turn.iteration == 1 else complete(answer=1)

    assert run(local, flow, manage, lambda _task: output).status == "completed"
    assert reason in told[1][0]["workers"][0]["reason"]


@pytest.mark.spec("6.0", "L5")
@pytest.mark.parametrize("worker", ["_meta", "a/b", "../../x", "scout#1.1", "task", "x" * 61, "manager"])
def test_a_worker_that_cannot_have_an_entry_is_told_to_the_manager(
    local: Book, flow: Path, worker: str
) -> None:
    told: list[str] = []

    def manage(turn: ManagerTurn) -> dict[str, Any]:
        told.extend(turn.briefing.warnings)
        return complete(answer=1) if turn.briefing.warnings else delegate(to(worker))

    assert run(local, flow, manage).status == "completed"
    assert "worker_id" in told[0]


@pytest.mark.spec("6.0")
@pytest.mark.parametrize(
    "text",
    [
        '{"decision": "COMPLETE", "result": {"answer": 1}}',
        '```json\n{"decision": "COMPLETE", "result": {"answer": 1}}\n```',
    ],
)
def test_a_manager_may_answer_with_the_text_of_an_object(local: Book, flow: Path, text: str) -> None:
    """As a model does, given `str(turn.briefing)`."""
    answers = iter(["I would rather talk about it.", text])
    model: Any = lambda _turn: next(answers)  # noqa: E731
    assert run(local, flow, model).status == "completed"
    assert local.runs.state("r")["manager"] == {"answer": 1}


@pytest.mark.spec("6.0", "6.1", "6.2", "2.6")
@pytest.mark.parametrize("strategy", ["full", "isolated"])
def test_nobody_takes_part_that_nothing_was_dispatched_to(local: Book, tmp_path: Path, strategy: str) -> None:
    documents = loop()
    documents[WORKFLOW_FILE]["state"] = {"sharing": {"strategy": strategy}}
    seen: dict[str, Any] = {}

    def work(task: WorkerTask) -> dict[str, Any]:
        task.learn.board.post("t", {"a": 1})
        tools = Tools(local)
        seen["read"] = tools.call("board.read", {}, actor="bob", run_id="r")["status"]
        seen["post"] = tools.call("board.post", {"topic": "t", "payload": {}}, actor="bob", run_id="r")[
            "status"
        ]
        with pytest.raises(BadInput, match="in none"):
            local.as_actor("bob").learn.board.read()  # not even inside of the worker's call
        return found(task)

    run(local, write(tmp_path, documents), scripted(delegate(to("scout")), complete(answer=1)), work)
    assert seen == {"read": 404, "post": 404}
    with pytest.raises(NotFound):
        local.as_actor("bob").runs.state("r")
    assert local.as_actor("scout").runs.state("r")["scout"]["confidence"] == 0.9


@pytest.mark.spec("6.0", "L10")
def test_erasing_a_result_erases_what_was_made_of_it_in_the_delegation(local: Book, flow: Path) -> None:
    secret = "Alice lives in Rosenweg"

    def manage(turn: ManagerTurn) -> dict[str, Any]:
        if turn.agent == "lead":
            return (
                complete(summary="looked", confidence=0.9)
                if turn.iteration > 1
                else delegate(to("digger", "dig"))
            )
        match turn.iteration:
            case 1:
                return delegate(to("scout"))
            case 2:
                return delegate(
                    to("lead", f"find out more: {secret}", submanager=True, inputs={"who": secret})
                )
        return complete(answer=secret, confidence=0.9)

    run(
        local,
        flow,
        manage,
        lambda task: {"summary": secret if task.agent == "scout" else "dug", "confidence": 0.9},
    )
    (step,) = (
        event
        for event in local.events(run_id="r", kinds=["state.stepped"])
        if event.payload["node"] == "scout#1.1" and event.payload["status"] == "finished"
    )
    local.erase(step.id)
    left = [event for event in local.events() if not event.erased and "Rosenweg" in str(event.payload)]
    assert [(event.kind, event.run_id) for event in left] == []
    assert not [path for path in flow.rglob("*") if path.is_file() and "Rosenweg" in path.read_text()]


@pytest.mark.spec("6.0")
def test_another_question_is_not_answered_with_an_old_result(local: Book, flow: Path) -> None:
    asked: list[str] = []
    question = ["the old question"]

    def manage(turn: ManagerTurn) -> dict[str, Any]:
        if turn.iteration == 1:
            return delegate(to("scout", question[0]))
        raise KeyboardInterrupt if len(asked) == 1 else AssertionError

    def work(task: WorkerTask) -> dict[str, Any]:
        asked.append(task.instructions)
        return {"summary": f"answer to {task.instructions}", "confidence": 0.9}

    with pytest.raises((KeyboardInterrupt, RunFailed)):
        run(local, flow, manage, work)
    (plan,) = local.events(run_id="r", kinds=["delegation.planned"])
    local.erase(plan.id)
    question[0] = "the new question"
    history: list[Any] = []

    def go_on(turn: ManagerTurn) -> dict[str, Any]:
        history.append(turn.briefing.history)
        return delegate(to("scout", question[0])) if turn.iteration == 1 else complete(answer=1)

    run(local, flow, go_on, work)
    assert asked == ["the old question", "the new question"]
    assert history[-1][0]["workers"][0]["output"]["summary"] == "answer to the new question"


@pytest.mark.spec("6.0", "2.4")
def test_what_lacked_the_time_is_done_when_the_run_goes_on(local: Book, tmp_path: Path) -> None:
    hold = threading.Event()
    done: list[str] = []

    def work(task: WorkerTask) -> dict[str, Any]:
        if not hold.is_set():
            hold.wait(10)
        done.append(task.agent)
        return found(task)

    manage = scripted(delegate(to("scout"), to("scribe")), complete(answer=1))
    flow = write(tmp_path / "flow", loop(budget={"max_wall_time": 0.2}))
    outcome = run(local, flow, manage, work)
    assert (outcome.status, outcome.reason) == ("partial", "the time is used up")
    assert outcome.curation.antipatterns_added == ()
    hold.set()
    write(tmp_path / "flow", loop(budget={"max_wall_time": 60}))
    assert run(local, flow, manage, work).status == "completed"
    assert local.runs.state("r")["scribe"]["confidence"] == 0.9


@pytest.mark.spec("6.0")
def test_a_loop_that_stalled_goes_on_when_somebody_lets_it(local: Book, flow: Path) -> None:
    better: list[bool] = []

    def manage(turn: ManagerTurn) -> dict[str, Any]:
        return complete(answer=1) if better else delegate(to("scout", f"look {turn.iteration}"))

    work = {"summary": "nothing", "confidence": 0.4}
    assert "no progress" in run(local, flow, manage, lambda _task: work).reason
    better.append(True)
    assert run(local, flow, manage, lambda _task: work).status == "completed"
    assert run(local, flow, manage, lambda _task: work).status == "completed"  # and answers the same again


@pytest.mark.spec("6.0")
def test_a_node_whose_manager_failed_is_tried_again(local: Book, tmp_path: Path) -> None:
    confidence = {"type": "number", "minimum": 0, "maximum": 1}
    contract = {"output": {"contract": {"answer": "string", "confidence": confidence}}}
    node = {"id": "deep", "delegation_loop": {}, "retry": {"max_attempts": 2, "retryable": ["error"]}}
    documents: Documents = {
        WORKFLOW_FILE: {"awp": "1.0.0", "workflow": {"name": "again"}, "orchestration": {"graph": [node]}},
        agent_file("deep"): {"identity": {"id": "deep"}, **contract},
    }
    asked: list[int] = []

    def manage(turn: ManagerTurn) -> dict[str, Any]:
        asked.append(turn.iteration)
        if len(asked) == 1:
            return {"decision": "FAIL", "reason": "the model is down"}
        return complete(answer="x", confidence=1)

    outcome = local.runs.execute(write(tmp_path, documents), agents={"deep": manage}, run_id="r")
    assert outcome.steps == {"deep": "finished"}


@pytest.mark.spec("6.1", "2.7")
def test_secret_values_of_the_environment_reach_no_board_and_no_recipe(
    local: Book, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATE_KEY", "open-sesame-12345")
    documents = loop()
    documents[WORKFLOW_FILE]["security"] = {"sensitive_env": ["GATE_KEY"]}
    flow = write(tmp_path, documents)

    def work(task: WorkerTask) -> dict[str, Any]:
        task.learn.board.post("key open-sesame-12345", {"key": "open-sesame-12345"})
        task.learn.register_tool("use open-sesame-12345", {"key": "open-sesame-12345"})
        return found(task)

    run(local, flow, scripted(delegate(to("scout")), complete(answer=1)), work)
    assert not [event for event in local.events() if "open-sesame" in str(event.payload)]
    assert not [path for path in flow.rglob("*") if "open-sesame" in path.name]


@pytest.mark.spec("6.1")
def test_the_board_of_a_run_under_way_lies_beside_the_workflow(local: Book, flow: Path) -> None:
    seen: list[list[str]] = []

    def manage(turn: ManagerTurn) -> dict[str, Any]:
        boards = sorted((flow / "workspace" / "blackboard").glob("*")) if turn.iteration > 1 else []
        seen.append([path.name for path in boards])
        if boards:
            (entry,) = map(json.loads, boards[0].read_text().splitlines())
            assert (entry["topic"], entry["worker_id"], entry["payload"]) == ("t", "scout", {"a": 1})
        return delegate(to("scout")) if turn.iteration == 1 else complete(answer=1)

    def work(task: WorkerTask) -> dict[str, Any]:
        task.learn.board.post("t", {"a": 1})
        return found(task)

    run(local, flow, manage, work)
    assert seen == [[], ["r-0.jsonl"]]
    assert list((flow / "workspace" / "blackboard").iterdir()) == []  # it ends with the run
