"""The runner: order, conditions, loops, fan-out, subworkflows, failures, and going on after a kill."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

import commonplace
from commonplace import Book
from commonplace.state.policy import AgentPolicy, Persistence, Policy
from commonplace.testing.servers import Server
from commonplace.workflow.agents import AgentFailed, AgentTask, wait_before
from commonplace.workflow.expressions import check_expression, evaluate
from commonplace.workflow.model import (
    Agent,
    Degradation,
    Dependency,
    Execution,
    FanIn,
    FanOut,
    Loop,
    Node,
    Retry,
    Workflow,
)
from commonplace.workflow.passing import gathered, inherited
from commonplace.workflow.runner import Runner
from tests.workflows import example, write

Functions = Mapping[str, Callable[[AgentTask], Any] | str | list[str]]


@pytest.fixture
def book() -> Iterator[Book]:
    with commonplace.open("memory:") as opened:
        yield opened


def flow(folder: Path, *nodes: Node, agents: Mapping[str, Agent] | None = None, **more: Any) -> Workflow:
    """A workflow without files: an agent for each node."""
    known = {node.agent: Agent(node.agent) for node in nodes if node.agent} | dict(agents or {})
    policy = more.pop("policy", Policy())
    rules = {node.id: AgentPolicy(depends_on=tuple(one.id for one in node.depends_on)) for node in nodes}
    policy = msgspec.structs.replace(policy, agents=rules | (policy.agents or {}))
    return Workflow(
        awp="1.0.0",
        name=more.pop("name", "flow"),
        nodes=nodes,
        agents=known,
        policy=policy,
        persistence=Persistence(enabled=False, interval="manual"),
        folder=str(folder),
        **more,
    )


def node(id: str, *after: str | Dependency, **more: Any) -> Node:
    depends = tuple(Dependency(one) if isinstance(one, str) else one for one in after)
    return Node(id, agent=more.pop("agent", id), depends_on=depends, **more)


def answers(**outputs: Any) -> dict[str, Callable[[AgentTask], Any]]:
    def answering(output: Any) -> Callable[[AgentTask], Any]:
        return lambda _task: output

    return {name: answering(output) for name, output in outputs.items()}


def known(book: Book, run_id: str) -> dict[str, Any]:
    return {key: value for key, value in book.run(run_id=run_id).state().items() if not key.startswith("_")}


def quick(book: Book, workflow: Workflow, agents: Functions, **more: Any) -> Any:
    """Run it without waiting between attempts; answers the outcome, however it ended."""
    run = book.run(workflow, more.pop("run_id", None), more.pop("initial", None))
    return Runner(book._session, workflow, run, agents, pause=lambda _seconds: None, **more).execute()


@pytest.mark.spec("7.6", "2.1")
@pytest.mark.parametrize("mode", ["sequential", "parallel", "conditional", "adaptive"])
def test_a_graph_runs_in_order_and_each_agent_sees_what_came_before(
    book: Book, tmp_path: Path, mode: Any
) -> None:
    seen: dict[str, set[str]] = {}

    def agent(task: AgentTask) -> dict[str, Any]:
        seen[task.agent] = {key for key in task.state if not key.startswith("_")}
        return {"said": task.agent}

    async def later(task: AgentTask) -> dict[str, Any]:
        await asyncio.sleep(0)
        return agent(task)

    workflow = flow(
        tmp_path,
        node("a"),
        node("b", "a"),
        node("c", "a"),
        node("d", "b", "c"),
        execution=Execution(mode=mode),
    )
    outcome = book.runs.execute(
        workflow, agents={"a": agent, "b": later, "c": agent, "d": agent}, initial={"topic": "tea"}
    )
    assert outcome.steps == dict.fromkeys("abcd", "finished")
    assert (seen["a"], seen["d"]) == ({"topic"}, {"topic", "a", "b", "c"})
    assert known(book, outcome.run_id) == {"topic": "tea"} | {name: {"said": name} for name in "abcd"}
    assert (outcome.status, outcome.errors) == ("completed", ())


@pytest.mark.spec("7.6", "2.2", "2.6", "3.9")
def test_the_complete_example_of_the_format_runs(book: Book, tmp_path: Path) -> None:
    write(tmp_path, example())
    seen: dict[str, dict[str, Any]] = {}

    def agent(task: AgentTask) -> dict[str, Any]:
        seen[task.agent] = {key: value for key, value in task.state.items() if not key.startswith("_")}
        contract = task.own_run.policy.agent(task.agent).contract or {}
        filled = {
            "string": f"by {task.agent}",
            "number": 0.9,
            "array": [task.agent],
            "object": {"by": task.agent},
        }
        fields = contract["properties"].items()
        return {name: filled[field["type"]] for name, field in fields if field["type"] in filled}

    agents = dict.fromkeys(("research_analyst", "report_writer", "quality_reviewer"), agent)
    outcome = book.runs.execute(tmp_path, agents=agents, run_id="r")
    assert outcome.steps == dict.fromkeys(agents, "finished")
    assert seen["research_analyst"]["context"] == {"topic": "quantum computing"}
    assert seen["research_analyst"]["workflow_name"] == "research-and-write"
    assert set(seen["report_writer"]["research_analyst"]) == {"findings", "summary"}
    assert set(seen["quality_reviewer"]["report_writer"]) == {"draft", "metadata"}
    state = book.run(run_id="r").state()
    assert json.loads((tmp_path / "data/state/r.json").read_text())["report_writer"] == state["report_writer"]
    assert book.run(run_id="r").agent("research_analyst").remember("Qubits decay.").outcome == "stored"
    with pytest.raises(commonplace.Denied, match="long_term"):
        book.run(run_id="r").agent("report_writer").remember("Reports are long.")
    assert (
        book.as_actor("report_writer").access.rights().tier("long_term") == "read_write"
    )  # outside of its runs


@pytest.mark.spec("7.6")
def test_what_does_not_depend_on_each_other_runs_at_the_same_time(book: Book, tmp_path: Path) -> None:
    together = threading.Barrier(3, timeout=20)  # breaks unless all three are inside at once

    def agent(_task: AgentTask) -> None:
        together.wait()

    names = ("a", "b", "c")
    workflow = flow(tmp_path, *map(node, names), execution=Execution(mode="parallel", max_concurrent=3))
    assert book.runs.execute(workflow, agents=dict.fromkeys(names, agent)).status == "completed"


def test_a_sequential_run_never_overlaps_and_keeps_the_order_of_the_file(book: Book, tmp_path: Path) -> None:
    inside, order = threading.Lock(), []

    def agent(task: AgentTask) -> None:
        assert inside.acquire(blocking=False)
        order.append(task.agent)
        time.sleep(0.001)
        inside.release()

    names = ("c", "a", "b")
    book.runs.execute(flow(tmp_path, *map(node, names)), agents=dict.fromkeys(names, agent))
    assert order == ["c", "a", "b"]


@pytest.mark.spec("7.6")
@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([node("a"), node("b", Dependency("a", "state.a.n > 1"))], {"a": "finished", "b": "skipped"}),
        ([node("a"), node("b", Dependency("a", "state.a.n == 1"))], {"a": "finished", "b": "finished"}),
        ([node("a", enabled=False), node("b", "a"), node("c", "b")], dict.fromkeys("abc", "skipped")),
        ([node("a", enabled="topic == 'coffee'"), node("b", "a")], dict.fromkeys("ab", "skipped")),
        # a skipped branch does not hold back what another dependency satisfies
        ([node("a", enabled=False), node("b"), node("c", "a", "b")],
         {"a": "skipped", "b": "finished", "c": "finished"}),
        ([node("bad", on_failure="continue"), node("b", "bad"), node("c", "b"), node("d")],
         {"bad": "failed", "b": "skipped", "c": "skipped", "d": "finished"}),
        ([node("bad", on_failure="continue"), node("b", Dependency("bad", "failure")),
          node("c", Dependency("bad", "always"))],
         {"bad": "failed", "b": "finished", "c": "finished"}),
        ([node("a"), node("b", Dependency("a", "failure"))], {"a": "finished", "b": "skipped"}),
        ([node("bad", on_failure="skip"), node("b", "bad")], {"bad": "finished", "b": "finished"}),
        ([node("bad"), node("b", "bad"), node("c")], {"bad": "failed", "b": "pending", "c": "pending"}),
        ([node("a", enabled="state.a.n <"), node("b", "a")], {"a": "failed", "b": "pending"}),
    ],
)  # fmt: skip
def test_conditions_and_failures_decide_what_is_done(
    book: Book, tmp_path: Path, nodes: list[Node], expected: dict[str, str]
) -> None:
    def bad(_task: AgentTask) -> None:
        raise RuntimeError("no")

    agents = answers(**{name: {"n": 1} for name in "abcd"}) | {"bad": bad}
    outcome = quick(book, flow(tmp_path, *nodes), agents, initial={"topic": "tea"})
    assert outcome.steps == expected
    assert outcome.status == ("failed" if "pending" in expected.values() else "completed")


@pytest.mark.spec("7.6", "2.3")
def test_a_failed_run_says_what_failed_and_can_be_gone_on_with(book: Book, tmp_path: Path) -> None:
    ran: list[str] = []
    broken = True

    def agent(task: AgentTask) -> dict[str, Any]:
        ran.append(task.agent)
        if task.agent == "b" and broken:
            raise ValueError("out of paper")
        return {"by": task.agent}

    workflow = flow(tmp_path, node("a"), node("b", "a"), node("c", "b"))
    agents = dict.fromkeys("abc", agent)
    with pytest.raises(commonplace.RunFailed, match="out of paper") as failed:
        book.runs.execute(workflow, agents=agents, run_id="r")
    (error,) = failed.value.errors
    assert (error["agent"], error["type"], error["message"]) == ("b", "ValueError", "out of paper")
    assert failed.value.run_id == "r"
    assert book.run(run_id="r").status == "failed"
    broken = False
    assert book.runs.execute(workflow, agents=agents, run_id="r").status == "completed"
    assert ran == ["a", "b", "b", "c"]
    assert known(book, "r") == {name: {"by": name} for name in "abc"}
    assert [error["message"] for error in book.run(run_id="r").state()["_errors"]] == ["out of paper"]


@pytest.mark.spec("7.6")
def test_retries_wait_longer_each_time_and_only_for_what_may_pass(book: Book, tmp_path: Path) -> None:
    waits: list[float] = []
    tries: list[int] = []

    def agent(task: AgentTask) -> dict[str, Any]:
        tries.append(task.attempt)
        if len(tries) < 4:
            raise (AgentFailed("busy", "rate_limit"), TimeoutError("slow"), ConnectionError("gone"))[
                len(tries) - 1
            ]
        return {"ok": True}

    retry = Retry(max_attempts=5, backoff="exponential", base=2.0, max=5.0)
    workflow = flow(tmp_path, node("a", retry=retry))
    run = book.run(workflow)
    outcome = Runner(book._session, workflow, run, {"a": agent}, pause=waits.append).execute()
    assert (outcome.status, tries, waits) == ("completed", [1, 2, 3, 4], [2.0, 4.0, 5.0])
    assert [error["reason"] for error in outcome.errors] == ["rate_limit", "timeout", "server_error"]
    assert [wait_before(Retry(backoff="linear", base=3), n) for n in (1, 2, 30)] == [3, 6, 60]

    tries.clear()

    def hopeless(task: AgentTask) -> dict[str, Any]:
        tries.append(task.attempt)
        raise AgentFailed("wrong key", "auth_error")

    assert quick(book, workflow, {"a": hopeless}).status == "failed"
    assert tries == [1]


@pytest.mark.spec("2.8", "7.6")
def test_an_output_against_the_contract_fails_the_agent_and_is_never_retried(
    book: Book, tmp_path: Path
) -> None:
    contract = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    policy = Policy(agents={"a": AgentPolicy(contract=contract)})
    tries: list[int] = []

    def agent(task: AgentTask) -> dict[str, Any]:
        tries.append(task.attempt)
        return {"n": "SECRET"}

    workflow = flow(tmp_path, node("a", retry=Retry(max_attempts=3)), policy=policy)
    outcome = quick(book, workflow, {"a": agent})
    assert (outcome.status, tries) == ("failed", [1])
    assert "n must be of type integer" in outcome.errors[0]["message"]
    assert "SECRET" not in json.dumps(outcome.errors)
    for nonsense in ("text", ["list"], 7):
        assert "an output is a dict" in quick(book, workflow, answers(a=nonsense)).errors[0]["message"]


@pytest.mark.spec("7.6")
def test_an_agent_that_takes_too_long_is_left_behind_and_cannot_write_any_more(
    book: Book, tmp_path: Path
) -> None:
    go_on, refused = threading.Event(), threading.Event()

    def slow(task: AgentTask) -> dict[str, Any]:
        go_on.wait(20)
        try:
            task.write({"late": True})
        except commonplace.Denied:
            refused.set()
        return {"late": True}

    outcome = quick(book, flow(tmp_path, node("a", timeout=0.05)), {"a": slow})
    go_on.set()
    assert (outcome.status, outcome.errors[0]["reason"]) == ("failed", "timeout")
    assert refused.wait(20)
    assert known(book, outcome.run_id) == {}
    never = asyncio.Event

    async def asleep(_task: AgentTask) -> None:
        await never().wait()

    assert (
        quick(book, flow(tmp_path, node("a", timeout=0.05)), {"a": asleep}).errors[0]["reason"] == "timeout"
    )
    late = flow(tmp_path, node("a"), node("b", "a"), execution=Execution(timeout_total=0.0))
    assert "time is over" in quick(book, late, answers(a={}, b={})).errors[0]["message"]


@pytest.mark.spec("7.6")
def test_degradation_finds_another_way(book: Book, tmp_path: Path) -> None:
    def bad(_task: AgentTask) -> None:
        raise RuntimeError("no")

    def good(task: AgentTask) -> dict[str, Any]:
        return {"by": "spare", "for": task.agent}

    spare = {"spare": Agent("spare")}

    def degraded(*ways: Degradation) -> Workflow:
        return flow(tmp_path, node("a"), node("b", "a"), agents=spare, degradation=ways)

    fallback = degraded(Degradation("a", "fallback", "spare"))
    done = quick(book, fallback, {"a": bad, "b": lambda _task: {}, "spare": good})
    assert (done.status, known(book, done.run_id)["a"]) == ("completed", {"by": "spare", "for": "a"})
    cached = degraded(Degradation("a", "cached_results", max_staleness=60))
    done = quick(book, cached, {"a": bad, **answers(b={}, spare={})})
    assert (done.status, known(book, done.run_id)["a"]) == ("completed", {"by": "spare", "for": "a"})
    stale = degraded(Degradation("a", "cached_results", max_staleness=0), Degradation("a", "skip"))
    done = quick(book, stale, {"a": bad, **answers(b={}, spare={})})
    assert (done.status, known(book, done.run_id)["a"]) == ("completed", {})
    both = degraded(Degradation("a", "fallback", "spare"))
    assert quick(book, both, {"a": bad, "spare": bad, **answers(b={})}).status == "failed"


@pytest.mark.spec("7.6")
def test_a_loop_goes_on_while_its_condition_holds(book: Book, tmp_path: Path) -> None:
    def agent(task: AgentTask) -> dict[str, Any]:
        return {"n": task.state.get("a", {}).get("n", 0) + 1, "turn": task.iteration}

    until = node("a", loop=Loop(max_iterations=10, condition="state.a.n < 4"))
    done = quick(book, flow(tmp_path, until), {"a": agent})
    assert known(book, done.run_id)["a"] == {"n": 4, "turn": 4}
    most = node("a", loop=Loop(max_iterations=3, condition="true"))
    done = quick(book, flow(tmp_path, most), {"a": agent})
    assert known(book, done.run_id)["a"] == {"n": 3, "turn": 3}


@pytest.mark.spec("7.6", "L6")
def test_an_interactive_loop_asks_a_person_and_records_what_they_said(book: Book, tmp_path: Path) -> None:
    asked: list[tuple[str, str]] = []
    said = iter(["shorter", "bolder", None])

    def ask(prompt: str, channel: str) -> str | None:
        asked.append((prompt, channel))
        return next(said)

    def agent(task: AgentTask) -> dict[str, Any]:
        return {"question": f"draft {task.iteration}?", "heard": task.answer or ""}

    loop = Loop("interactive", prompt_field="question", input_channel="desk")
    done = quick(book, flow(tmp_path, node("a", loop=loop)), {"a": agent}, ask=ask)
    assert asked == [("draft 1?", "desk"), ("draft 2?", "desk"), ("draft 3?", "desk")]
    assert known(book, done.run_id)["a"] == {"question": "draft 3?", "heard": "bolder"}
    heard = [event.payload["text"] for event in book.events(kinds=["user.injected"])]
    assert heard == ["shorter", "bolder", ""]
    nobody = quick(book, flow(tmp_path, node("a", loop=loop)), {"a": agent})
    assert "nobody can be asked" in nobody.errors[0]["message"]


@pytest.mark.spec("7.6")
def test_fan_out_gives_each_instance_an_item_and_gathers_what_they_found(book: Book, tmp_path: Path) -> None:
    def agent(task: AgentTask) -> dict[str, Any]:
        return {"square": task.item * task.item, "confidence": 1 / (1 + task.item)}

    fan = FanOut("state.a.numbers", "number", max_parallel=2)
    nodes = (node("a"), node("b", "a", fan_out=fan, fan_in=FanIn("merge", "squares")))
    done = quick(book, flow(tmp_path, *nodes), {**answers(a={"numbers": [3, 1, 2]}), "b": agent})
    assert known(book, done.run_id)["b"] == {
        "squares": [
            {"square": 9, "confidence": 0.25},
            {"square": 1, "confidence": 0.5},
            {"square": 4, "confidence": 1 / 3},
        ],
        "confidence": 0.25,
    }
    empty = quick(book, flow(tmp_path, *nodes), {**answers(a={"numbers": []}), "b": agent})
    assert known(book, empty.run_id)["b"] == {"squares": []}
    wrong = quick(book, flow(tmp_path, *nodes), {**answers(a={"numbers": 7}), "b": agent})
    assert "is not a list" in wrong.errors[0]["message"]


def test_four_ways_to_gather() -> None:
    outputs = [{"n": 1, "l": [1], "o": {"a": 1}, "t": "x"}, {"n": 2, "l": [2], "o": {"b": 2}, "t": "y"}]
    assert gathered("merge", outputs) == outputs
    assert gathered("reduce", outputs) == {"n": 3, "l": [1, 2], "o": {"a": 1, "b": 2}, "t": "y"}
    assert gathered("first", outputs) == outputs[0]
    assert gathered("majority", [outputs[0], outputs[1], outputs[1]]) == outputs[1]
    assert [gathered(how, []) for how in ("merge", "reduce", "first", "majority")] == [[], {}, None, None]


@pytest.mark.spec("7.6")
def test_a_subworkflow_is_a_run_within_the_run_all_or_nothing(book: Book, tmp_path: Path) -> None:
    broken = True

    def inner_b(task: AgentTask) -> dict[str, Any]:
        if broken:
            raise RuntimeError("not yet")
        assert task.state["given"] == 7
        assert "hidden" not in task.state
        return {"sum": task.state["a"]["n"] + task.state["given"], "private": "stays inside"}

    inner = flow(tmp_path / "inner", node("a"), node("b", "a"), name="inner")
    outer = flow(
        tmp_path,
        node("first"),
        node(
            "sub",
            "first",
            agent="",
            subworkflow="inner",
            share_input={"first": ("given",)},
            share_output=("sum",),
        ),
        node("last", "sub"),
        subworkflows={"inner": inner},
    )
    seen: list[Any] = []

    def last(task: AgentTask) -> None:
        seen.append(task.state["sub"])

    agents = {**answers(first={"given": 7, "hidden": 1}, a={"n": 1}), "b": inner_b, "last": last}
    failed = quick(book, outer, agents, run_id="r")
    assert (failed.status, failed.steps["sub"]) == ("failed", "failed")
    assert "the subworkflow inner failed: not yet" in failed.errors[-1]["message"]
    assert "sub" not in known(book, "r")  # nothing of it
    broken = False
    done = quick(book, outer, agents, run_id="r")
    assert (done.status, seen) == ("completed", [{"sum": 8}])
    assert [(run.id, run.parent, run.status) for run in book.runs.list()] == [
        ("r", None, "completed"),
        ("r/sub", "r", "completed"),
    ]
    given = next(
        event for event in book.events(run_id="r", kinds=["state.changed"]) if event.actor == "first"
    )
    gone = [book.event(id) for id in book.erase(given.id, dry_run=True).erased]
    assert [one.run_id for one in gone if one.kind != "memory.logged"] == [
        "r",
        "r/sub",
    ]  # the child started with it
    flat = msgspec.structs.replace(outer, max_depth=0)
    refused = quick(book, flat, agents)
    assert "R31" in refused.errors[0]["message"]


def test_a_sub_manager_inherits_all_or_what_is_listed_never_what_is_forbidden() -> None:
    state = {"_meta": 1, "a": 1, "b": {"secret": 1, "x": 2}, "secret": 3}
    assert inherited(state, None) == {"a": 1, "b": {"secret": 1, "x": 2}, "secret": 3}
    assert inherited(state, ["a", "missing", "_meta"]) == {"a": 1}
    assert inherited(state, None, ["secret"]) == {"a": 1, "b": {"x": 2}}


@pytest.mark.spec("7.6")
def test_commands_and_imported_functions_are_agents_too(book: Book, tmp_path: Path) -> None:
    (tmp_path / "our_agents.py").write_text(
        "def shout(task):\n    return {'text': task.state['topic'].upper()}\n"
    )
    (tmp_path / "count.py").write_text(
        textwrap.dedent("""
        import json, sys
        given = json.load(sys.stdin)
        text = given["state"]["a"]["text"]
        if text == "FAIL":
            print(json.dumps({"error": {"reason": "rate_limit", "message": "not now"}}))
        elif text == "CRASH":
            sys.exit("broken")
        elif text == "JUNK":
            print("no json")
        else:
            print(json.dumps({"length": len(text), "agent": given["agent"]}))
        """)
    )
    agents = {
        "a": Agent("a", runtime={"callable": "our_agents:shout"}),
        "b": Agent("b", runtime={"command": [sys.executable, "count.py"]}),
    }
    workflow = flow(tmp_path, node("a"), node("b", "a"), agents=agents)
    done = book.runs.execute(workflow, initial={"topic": "tea"})
    assert known(book, done.run_id)["b"] == {"length": 3, "agent": "b"}
    for topic, reason in (("fail", "rate_limit"), ("crash", "server_error"), ("junk", "validation_error")):
        outcome = quick(book, workflow, {}, initial={"topic": topic})
        assert (outcome.status, outcome.errors[0]["reason"]) == ("failed", reason)
    with pytest.raises(commonplace.BadInput, match=r"runtime\.callable"):
        book.runs.execute(flow(tmp_path, node("c")))
    with pytest.raises(commonplace.BadInput, match="cannot be imported"):
        book.runs.execute(flow(tmp_path, node("c")), agents={"c": "no_such_module:f"})


def test_a_command_that_hangs_is_killed_with_all_it_started(book: Book, tmp_path: Path) -> None:
    (tmp_path / "hang.sh").write_text(f"sleep 600 & echo $! > {tmp_path}/pid; wait\n")
    agents = {"a": Agent("a", runtime={"command": ["sh", "hang.sh"]})}
    outcome = quick(book, flow(tmp_path, node("a", timeout=1.0), agents=agents), {})
    assert outcome.errors[0]["reason"] == "timeout"
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and _alive(pid):
        time.sleep(0.01)
    assert not _alive(pid)


def _alive(pid: int) -> bool:
    try:
        return "(sleep) Z" not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.spec("2.7")
def test_errors_hold_no_secret_of_the_state_or_the_environment(
    book: Book, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MY_TOKEN", "env-secret-991")

    def agent(task: AgentTask) -> dict[str, Any]:
        task.write({"api_key": "state-secret-772"})
        raise RuntimeError(f"failed with state-secret-772 and {os.environ['MY_TOKEN']}")

    policy = Policy(sensitive_fields=("api_key",))
    workflow = flow(
        tmp_path, node("a"), policy=policy, document={"security": {"sensitive_env": ["MY_TOKEN"]}}
    )
    told: list[Any] = []
    with pytest.raises(commonplace.RunFailed) as failed:
        book.runs.execute(workflow, agents={"a": agent}, tell=told.append, run_id="r")
    shown = f"{failed.value} {failed.value.as_dict()} {told} {book.run(run_id='r').steps()} {caplog.text}"
    shown += json.dumps([event.as_dict() for event in book.access.redacted(book.events())])
    shown += str(list(book.access.audit()))
    assert "secret-" not in shown
    assert shown.count("[REDACTED]") > 3
    assert failed.value.__cause__ is None
    assert failed.value.__context__ is None


def test_trouble_with_the_store_is_raised_and_leaves_the_run_open(
    book: Book, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow = flow(tmp_path, node("a"), node("b", "a"))
    step = commonplace.Run.step

    def full(self: commonplace.Run, name: str, status: str, **more: Any) -> int:
        if name == "b":
            raise commonplace.StorageFailed("the disk is full")
        return step(self, name, status, **more)

    monkeypatch.setattr(commonplace.Run, "step", full)
    with pytest.raises(commonplace.StorageFailed):
        book.runs.execute(workflow, agents=answers(a={"n": 1}, b={}), run_id="r")
    assert book.run(run_id="r").status == "running"
    monkeypatch.undo()
    assert book.runs.execute(workflow, agents=answers(a={"n": 2}, b={}), run_id="r").status == "completed"
    assert known(book, "r")["a"] == {"n": 1}


def test_two_runners_never_run_the_same_run_at_once(book: Book, tmp_path: Path) -> None:
    workflow = flow(tmp_path, node("a"))
    busy: list[str] = []

    def agent(_task: AgentTask) -> dict[str, Any]:
        with pytest.raises(commonplace.Busy, match="is being run by"):
            quick(book, workflow, {"a": agent}, run_id="r")
        busy.append("yes")
        return {}

    assert quick(book, workflow, {"a": agent}, run_id="r").status == "completed"
    assert busy == ["yes"]


RUN_AND_DIE = """
import os, signal, sys
import commonplace
from commonplace.engines import clock

_, url, folder, boot = sys.argv
clock._boot = boot or clock._boot
with commonplace.open(url) as book:
    book.runs.execute(folder, agents={"writer": lambda _: os.kill(os.getpid(), signal.SIGKILL)}, run_id="r")
"""


@pytest.mark.spec("7.6")
@pytest.mark.parametrize("machine", ["", "another"])
def test_a_run_is_taken_over_at_once_only_on_the_machine_where_its_runner_died(
    valkey: Server, tmp_path: Path, machine: str
) -> None:
    url = f"{valkey.url}{'&' if '?' in valkey.url else '?'}book=takeover-{os.urandom(6).hex()}"
    graph = {"graph": [{"id": "writer", "agent": "agents/writer"}]}
    flow = {"awp": "1.0.0", "workflow": {"name": "flow", "version": "1.0.0"}, "orchestration": graph}
    writer = {
        "awp": "1.0.0",
        "identity": {"id": "writer"},
        "output": {"contract": {"text": {"type": "string"}}},
    }
    write(tmp_path, {"workflow.awp.yaml": flow, "agents/writer/agent.awp.yaml": writer})
    died = subprocess.run([sys.executable, "-c", RUN_AND_DIE, url, str(tmp_path), machine], check=False)
    assert died.returncode == -signal.SIGKILL
    with commonplace.open(url) as book:
        if machine:  # of the same host name; nobody here can tell whether its process lives
            with pytest.raises(
                commonplace.Busy, match=f"is being run by {socket.gethostname()} pid [0-9]+: wait"
            ):
                book.runs.execute(tmp_path, agents=answers(writer={"text": "done"}), run_id="r")
        else:
            assert (
                book.runs.execute(tmp_path, agents=answers(writer={"text": "done"}), run_id="r").status
                == "completed"
            )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("state.qa.confidence >= 0.8 and not state.qa.blocked", True),
        ("qa.confidence > 0.95 || topic == 'tea'", True),
        ("!(topic in ['coffee', 'milk']) && len(qa.issues) == 2", True),
        ("state.nobody.there > 3", False),
        ("state.nobody.there == null", True),
        ("exists(state.nobody)", False),
        ("qa.issues[-1] == 'b' and qa['issues'][0] == 'a'", True),
        ("1 < qa.n <= 3", True),
        ("qa.n + 1 - 2 == 2", True),
        ("'x && y' != 'x and y'", True),
        ("'no' if qa.blocked else 'yes'", "yes"),
        ("${{ qa.n == 3 }}", True),
    ],
)
def test_expressions_read_the_state(text: str, value: Any) -> None:
    state = {"topic": "tea", "qa": {"confidence": 0.9, "blocked": False, "issues": ["a", "b"], "n": 3}}
    assert check_expression(text) is None
    assert evaluate(text, state) == value


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('id')",
        "open('/etc/passwd')",
        "().__class__.__bases__[0]()",
        "state.get('x')",
        "[x for x in state]",
        "(lambda: 1)()",
        "9 ** 9 ** 9",
        "'a' * 1000000",
        "f'{state}'",
        "x := 1",
        "",
        "state.a ==",
        "1" * 1001,
        "+".join(["1"] * 300),
        "(" * 150 + "x" + ")" * 150,
        "b'bytes'",
        "1j",
        "print",
        "state.__class__.__name__",
    ],
)
def test_expressions_reach_nothing_but_the_state(text: str) -> None:
    try:
        assert evaluate(text, {"a": 1}) is None
    except commonplace.BadInput:
        pass
