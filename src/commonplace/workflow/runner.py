"""The runner: does a workflow's graph, node by node, and can be killed anywhere.

What has happened is in the ledger and nowhere else: each node's beginning and end is an event, and an output is
written in the same commit as the end of the turn that made it. Whoever resumes reads how far each node has
come, and goes on; a node that had not ended is done again, one that had is not.
"""

from __future__ import annotations

import queue
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..access.redact import Redactor
from ..access.rights import OWNER
from ..access.secrets import masked
from ..errors import BadInput, Conflict, ContractViolation, Denied, NotEnabled, NotFound, RunFailed
from ..recording import record
from ..run import Run, Turn
from ..runs import Runs
from ..runs import run as open_run
from ..state.cells import State
from ..state.contract import violations
from ..state.requests import FAILED, FINISHED, ITERATED, RETRYING, SKIPPED, STARTED, RunStep
from ..state.rows import find_run
from .agents import (
    AgentFailed,
    AgentFunction,
    AgentTask,
    Ask,
    Interrupted,
    answer_within,
    as_failure,
    call,
    find_agent,
    secret_environment,
)
from .expressions import evaluate, is_true
from .leading import leading
from .model import Degradation, Dependency, Node, Retry, Workflow
from .passing import Carried, gathered, passed_down, passed_up

if TYPE_CHECKING:
    from ..session import Session

REFUSALS = (BadInput, Conflict, ContractViolation, Denied, NotFound)
"""What the book says to a node that asks for something wrong."""

PERSON = "person"
"""The actor of what a person has answered."""

AGAIN = "again"
"""A node that has failed and is to be tried anew."""
ENDED = (FINISHED, FAILED, SKIPPED)


class News(msgspec.Struct, frozen=True):
    """Something a watcher of a run may want to draw."""

    run: str
    node: str
    status: str
    detail: str = ""


Tell = Callable[[News], None]


class Outcome(msgspec.Struct, frozen=True):
    """How a run ended. `steps` maps each node to how it ended; `errors` holds what went wrong on the way."""

    run_id: str
    status: str
    steps: dict[str, str]
    errors: tuple[dict[str, Any], ...]
    seconds: float
    reason: str = ""


class Runner:
    """One execution of a workflow in a run."""

    def __init__(
        self,
        session: Session,
        workflow: Workflow,
        run: Run,
        agents: Mapping[str, AgentFunction | str | list[str]],
        ask: Ask | None = None,
        tell: Tell = lambda _news: None,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        self.session = session
        self.ledger = session.ledger
        self.workflow = workflow
        self.run = run
        self.given = agents
        self.ask = ask
        self.tell = tell
        self.interrupted = threading.Event()
        self.pause = pause or self.interrupted.wait
        self.folder = Path(workflow.folder)
        self.ends = time.monotonic() + workflow.execution.timeout_total
        self.hide = Redactor(secrets=secret_environment(workflow))
        self.live: set[AgentTask] = set()
        self.functions = {
            node.agent: find_agent(workflow.agents[node.agent], self.folder, agents)
            for node in workflow.nodes
            if node.agent
        } | {
            one.fallback: find_agent(workflow.agents[one.fallback], self.folder, agents)
            for one in workflow.degradation
            if one.fallback
        }

    def execute(self) -> Outcome:
        """Do what is left to do. Answers how it ended; raises only what is not about an agent."""
        began = time.monotonic()
        with leading(self.ledger.store, self.run.id) as self.lead:
            reopened = self.run.reopen()
            self.steps = self.run.steps()
            for node in self.workflow.nodes:
                if self._to_be_tried_again(node, reopened):
                    self.steps[node.id]["status"] = AGAIN
            stopped = self._do_graph()
            status = "failed" if stopped else "completed"
            self.run.close(status, stopped or "")
        reason = self.run.redacted(stopped or "") if self.workflow.nodes else NO_GRAPH
        errors = tuple(self._state().get("_errors", ()))
        ended = {node.id: self._status(node.id) for node in self.workflow.nodes}
        self.tell(News(self.run.id, "", status))
        seconds = time.monotonic() - began
        return Outcome(self.run.id, status, ended, errors, seconds, reason)

    def _to_be_tried_again(self, node: Node, reopened: bool) -> bool:
        """What has failed and should not have: whoever goes on with the run wants it done. What may fail is
        only tried again when the run as a whole had failed."""
        step = self.steps.get(node.id)
        if step is None:
            return False
        if step["status"] == FAILED:
            return reopened or (node.on_failure or self.workflow.execution.on_error) != "continue"
        return reopened and step["reason"].startswith(FOLLOWS_FAILURE)

    def _state(self) -> State:
        """All of the state as it is, also under a model whose readers see a projection."""
        return self.run.state(at=self.ledger.head)

    def _status(self, node: str) -> str:
        step = self.steps.get(node)
        return "pending" if step is None else step["status"]

    # the graph

    def _do_graph(self) -> str | None:
        """Start what is ready until nothing is left; why it stopped early, or None. What is not about an agent
        (a store in trouble, a mistake in this library) is raised once nothing runs any more."""
        width = Width(self.workflow)
        done: queue.Queue[str] = queue.Queue()
        running: dict[str, Future[str | None]] = {}
        stopped: str | None = None
        trouble: BaseException | None = None
        with ThreadPoolExecutor(width.most, thread_name_prefix="commonplace-node") as pool:
            try:
                while True:
                    for node in self._ready(running)[: max(0, width.now - len(running))]:
                        if stopped is None and trouble is None:
                            running[node.id] = pool.submit(self._attempts, node)
                            running[node.id].add_done_callback(partial(_put, done, node.id))
                    if not running:
                        if trouble is not None:
                            raise trouble
                        return stopped
                    ended = running.pop(done.get())
                    trouble = trouble or ended.exception()
                    why = None if ended.exception() else ended.result()
                    width.learn(well=why is None)
                    if time.monotonic() > self.ends:
                        why = why or f"it took longer than {self.workflow.execution.timeout_total:g} s in all"
                    stopped = stopped or why
            except BaseException:  # Ctrl-C: nobody is waited for, and the run stays open to be gone on with
                self.interrupted.set()
                for task in list(self.live):
                    task.interrupt()
                raise

    def _ready(self, running: Collection[str]) -> list[Node]:
        """The nodes that have not begun and whose dependencies have all ended, in file order."""
        return [
            node
            for node in self.workflow.nodes
            if node.id not in running
            and self._status(node.id) not in ENDED
            and all(self._status(one.id) in ENDED and one.id not in running for one in node.depends_on)
        ]

    def _why_not(self, node: Node) -> str | None:
        """Why a node whose dependencies have all ended is not to be done; None: it is."""
        state = self._state()
        if not is_true(node.enabled, state):
            return "it is not enabled"
        met = [self._met(one, state) for one in node.depends_on]
        refusals = [why for why in met if why not in (None, NEUTRAL)]
        if refusals:
            return refusals[0]
        if met and all(why == NEUTRAL for why in met):
            return "what it depends on was skipped"
        return None

    def _met(self, dependency: Dependency, state: Mapping[str, Any]) -> str | None:
        """None: satisfied. NEUTRAL: neither for nor against. Else why the node must be skipped."""
        id, condition = dependency.id, dependency.condition
        status = self._status(id)
        if condition == "always":
            return None
        if status == SKIPPED:
            reason = self.steps[id]["reason"]
            return f"{FOLLOWS_FAILURE} of {id}" if reason.startswith(FOLLOWS_FAILURE) else NEUTRAL
        if condition == "failure":
            return None if status == FAILED else f"{id} did not fail"
        if status == FAILED:
            return f"{FOLLOWS_FAILURE} of {id}"
        if condition == "success" or is_true(condition, state):
            return None
        return f"its condition on {id} is false"

    def _mark(self, node: str, status: str, reason: str = "", **more: Any) -> None:
        self.lead.check()
        self.run.step(node, status, reason=reason, **more)
        self._note(RunStep(self.run.id, node, status, reason=reason, **more))

    def _note(self, step: RunStep) -> None:
        """Remember how far a node has come, and tell whoever watches."""
        self.steps[step.node] = {
            "status": step.status,
            "reason": step.reason,
            "attempt": step.attempt,
            "iteration": step.iteration,
        }
        self.tell(News(self.run.id, step.node, step.status, step.reason))

    # one node

    def _attempts(self, node: Node) -> str | None:
        """In a thread of its own: try, try again as the retry policy says, fall back, give up as on_failure says.
        Answers why the whole run must stop, or None."""
        retry = node.retry or self.workflow.execution.retry
        on_failure = node.on_failure or self.workflow.execution.on_error
        if on_failure == "retry" and retry.max_attempts < 2:
            retry = msgspec.structs.replace(retry, max_attempts=3)
        if on_failure == "retry":
            retry = msgspec.structs.replace(retry, retryable=(*retry.retryable, "error"))
        known = self.steps.get(node.id, {})
        attempt = {RETRYING: known.get("attempt", 0) + 1, AGAIN: 1}.get(known.get("status", ""), 0)
        attempt = attempt or known.get("attempt", 1)  # one that was under way when its runner died goes on
        while True:
            try:
                self._once(node, attempt)
                return None
            except AgentFailed as failure:
                if attempt >= retry.max_attempts or failure.reason not in retry.retryable:
                    return self._give_up(node, failure, attempt, on_failure)
                self._fail(node, failure, attempt, RETRYING)
                self.pause(min(wait_before(retry, attempt), max(0.0, self.ends - time.monotonic())))
                if self.interrupted.is_set():
                    raise Interrupted from None
                attempt += 1

    def _once(self, node: Node, attempt: int) -> None:
        """One attempt. What the book refuses is the node's own failure; trouble with the store is not."""
        try:
            why_not = self._why_not(node)
            if why_not is not None:
                self._mark(node.id, SKIPPED, why_not)
                return
            self._mark(node.id, STARTED, attempt=attempt, iteration=self._iteration(node))
            if node.subworkflow:
                self._do_subworkflow(node, attempt)
            elif node.fan_out is not None:
                self._do_fan_out(node, attempt)
            elif node.loop is not None:
                self._do_loop(node, attempt)
            else:
                self._finish(node, self._call(node, attempt), attempt)
        except REFUSALS as error:
            raise as_failure(error) from None

    def _call(self, node: Node, attempt: int, agent: str = "", **more: Any) -> dict[str, Any]:
        left = self.ends - time.monotonic()
        if left <= 0:
            raise AgentFailed("the run's time is over", "timeout")
        task = AgentTask(self.run, node.id, attempt=attempt, hide=self.hide, **more)
        timeout = min(node.timeout or self.workflow.execution.timeout_per_agent, left)
        self.live.add(task)
        try:
            output: dict[str, Any] = self.hide(call(self.functions[agent or node.agent], task, timeout))
        finally:
            self.live.discard(task)
        return output

    def _finish(
        self,
        node: Node,
        output: dict[str, Any],
        attempt: int,
        *,
        status: str = FINISHED,
        iteration: int = 0,
        reason: str = "",
        contract: bool = True,
        sources: tuple[int, ...] = (),
        secret: tuple[str, ...] = (),
    ) -> None:
        """Write an output together with the end of its turn."""
        self.lead.check()
        step = RunStep(self.run.id, node.id, status, attempt, iteration, reason)
        turn = Turn(self.run, node.id)
        turn.write_with(output, step, contract=contract, sources=sources, secret=secret)
        self._note(step)

    def _fail(self, node: Node, failure: AgentFailed, attempt: int, status: str = FAILED) -> None:
        """Record a failure, without the secrets that its message may hold."""
        self.lead.check()
        told = masked(self.run.redacted(self.hide(str(failure))))
        error = {"type": failure.type, "reason": failure.reason, "message": told, "attempt": attempt}
        iteration = self._iteration(node)
        self.run.step(node.id, status, attempt=attempt, iteration=iteration, reason=told, error=error)
        self._note(RunStep(self.run.id, node.id, status, attempt, iteration, told))

    def _give_up(self, node: Node, failure: AgentFailed, attempt: int, on_failure: str) -> str | None:
        ways = [one for one in self.workflow.degradation if one.node == node.id]
        if not ways and on_failure != "skip":
            self._fail(node, failure, attempt)
            return None if on_failure == "continue" else f"{node.id} failed: {self.steps[node.id]['reason']}"
        self._fail(node, failure, attempt, RETRYING)
        if any(self._degrade(node, way, attempt) for way in ways):
            return None
        if on_failure == "skip":
            self._go_on_without(node, attempt)
            return None
        self._mark(node.id, FAILED, self.steps[node.id]["reason"], attempt=attempt)
        return None if on_failure == "continue" else f"{node.id} failed: {self.steps[node.id]['reason']}"

    def _go_on_without(self, node: Node, attempt: int) -> None:
        """Its dependents get an empty entry."""
        self._finish(node, {}, attempt, contract=False, reason=STANDS_IN["nothing"])

    def _degrade(self, node: Node, how: Degradation, attempt: int) -> bool:
        """Whether something else could stand in for a node that has failed."""
        if how.action == "skip":
            self._go_on_without(node, attempt)
            return True
        try:
            if how.action == "fallback":
                self.lead.check()
                self.run.step(node.id, RETRYING, attempt=attempt + 1, done_by=how.fallback)
                output = self._call(node, attempt + 1, how.fallback)
                self._finish(node, output, attempt + 1, reason=f"done by {how.fallback}")
                return True
            cached = self._cached(node.id, how.max_staleness)
            if cached is not None:
                entry, sources = cached
                self._finish(node, entry, attempt, reason=STANDS_IN["cached"], sources=sources)
            return cached is not None
        except (AgentFailed, *REFUSALS) as error:
            self._fail(node, as_failure(error), attempt + 1, RETRYING)
            return False

    def _cached(self, node: str, max_staleness: float) -> Carried | None:
        """What the same node of the same workflow put out in an earlier run, if that is fresh enough."""
        oldest = time.time() - max_staleness
        for known in reversed(Runs(self.session).list()):
            if known.workflow != self.workflow.name or known.id == self.run.id or known.by != OWNER:
                continue  # another workflow's, or somebody else's who may have put in what they liked
            earlier = Run(self.session, known.id)
            step = earlier.steps().get(node)
            if step is None or step["status"] != FINISHED or step["reason"] in STANDS_IN.values():
                continue
            ended = next(self.ledger.events(step["position"] - 1)).created_at.timestamp()
            state = earlier.state()
            if ended >= oldest and isinstance(state.get(node), dict):
                return state[node], state.sources(node)
        return None

    # loops, fan-out, subworkflows

    def _iteration(self, node: Node) -> int:
        step = self.steps.get(node.id, {})
        return int(step.get("iteration", 0))

    def _do_loop(self, node: Node, attempt: int) -> None:
        """Do it again while the condition holds, or while a person answers."""
        loop = node.loop
        assert loop is not None
        last = loop.max_iterations if loop.type == "standard" else max(loop.max_iterations, 1_000)
        while True:
            iteration = self._iteration(node)
            answer = self._answer(node, iteration) if loop.type == "interactive" and iteration else None
            if iteration and loop.type == "interactive" and not answer:
                self._finish(node, {}, attempt, iteration=iteration)
                return
            output = self._call(node, attempt, iteration=iteration + 1, answer=answer)
            state = self._state()
            state[node.id] = {**state.get(node.id, {}), **output}
            more = loop.type == "interactive" or not loop.condition or is_true(loop.condition, state)
            if iteration + 1 >= last or not more:
                self._finish(node, output, attempt, iteration=iteration + 1)
                return
            self._finish(node, output, attempt, iteration=iteration + 1, status=ITERATED)

    def _answer(self, node: Node, iteration: int) -> str | None:
        """What a person says to the last output. It is recorded before it is used, and asked for once."""
        assert node.loop is not None
        for event in self.ledger.events(run_id=self.run.id, kinds=("user.injected",)):
            asked = (event.payload.get("node"), event.payload.get("iteration"))
            if event.actor == PERSON and asked == (node.id, iteration):
                return event.payload.get("text") or None
        if self.ask is None:
            raise AgentFailed(
                f"{node.id} asks a person and nobody can be asked here: give ask=", "auth_error"
            )
        entry = self._state().get(node.id, {})
        prompt = str(entry.get(node.loop.prompt_field, ""))
        said = answer_within(self.workflow.execution.timeout_idle, self.ask, prompt, node.loop.input_channel)
        told = {
            "text": said or "",
            "node": node.id,
            "iteration": iteration,
            "channel": node.loop.input_channel,
        }
        record(self.session, "user.injected", actor=PERSON, run_id=self.run.id, payload=told)
        return said

    def _do_fan_out(self, node: Node, attempt: int) -> None:
        """One instance an item, each on its own; what has ended before is not done again."""
        fan = node.fan_out
        assert fan is not None
        seen = Turn(self.run, node.id).state  # what the node may see, not what the runtime knows
        items = evaluate(fan.source, seen)
        sources = seen.sources(*(key for key in seen if re.search(rf"\b{re.escape(key)}\b", fan.source)))
        if not isinstance(items, list):
            raise AgentFailed(f"fan_out.source {fan.source!r} is not a list", "validation_error")
        known = self.run.steps()

        def instance(number: int) -> tuple[dict[str, Any], int]:
            name = f"{node.id}[{number}]"
            if known.get(name, {}).get("status") == FINISHED:
                return known[name]["result"], known[name]["position"]
            output = self._call(node, attempt, inputs={fan.variable: items[number], "index": number})
            contract = self.run.policy.agent(node.id).contract
            broken = violations(contract, output) if contract is not None else []
            if broken:
                raise AgentFailed(
                    str(ContractViolation(name, broken)), "validation_error", "ContractViolation"
                )
            position = self.run.step(
                name, FINISHED, attempt=attempt, result=output, of=node.id, sources=sources
            )
            self.tell(News(self.run.id, name, FINISHED))
            return output, position

        with ThreadPoolExecutor(max(1, fan.max_parallel), thread_name_prefix="commonplace-fan") as pool:
            waiting = [pool.submit(instance, number) for number in range(len(items))]
            ended = [one.result() for one in waiting]
        outputs, parts = [output for output, _ in ended], tuple(position for _, position in ended)
        how = node.fan_in
        strategy, target = ("merge", "results") if how is None else (how.strategy, how.target_field)
        output = {target: gathered(strategy, outputs)}
        stated = [one["confidence"] for one in outputs if isinstance(one.get("confidence"), int | float)]
        if stated and target != "confidence":
            output["confidence"] = min(stated)
        self._finish(node, output, attempt, contract=False, sources=parts)

    def _do_subworkflow(self, node: Node, attempt: int) -> None:
        """A workflow of its own, in a run of its own, one level deeper: all of it, or nothing of it."""
        inner = self.workflow.subworkflows[node.subworkflow]
        id = f"{self.run.id}/{node.id}"
        deepest = self.workflow.max_depth if node.max_depth is None else node.max_depth
        if self.run.depth + 1 > deepest:
            raise BadInput(
                f"{node.id} may not delegate to {inner.name!r}: the limit is {deepest} levels (R31). Raise its "
                "max_depth, or delegation_loop.budget.max_depth"
            )
        with self.session.snapshot() as now:
            known = find_run(now, id)
        if known is not None and known.parent != self.run.id:
            raise Conflict(
                f"{id!r} is another run, and the name is needed for the subworkflow {inner.name!r}"
            )
        if known is None:
            passed, sources = passed_down(node, Turn(self.run, node.id).state)
            child = self.run.child(
                id,
                policy=msgspec.structs.replace(inner.policy, max_depth=min(inner.max_depth, deepest)),
                start=inner.start,
                workflow={"name": inner.name, "version": inner.version},
                inherit=passed,
                sources=sources,
                folder=Path(inner.folder),
                persistence=inner.persistence,
            )
        else:
            child = Run(self.session, id, folder=Path(inner.folder), persistence=inner.persistence)
        if child.status != "completed":
            runner = Runner(self.session, inner, child, self.given, self.ask, self.tell, self.pause)
            runner.ends = min(runner.ends, self.ends)
            outcome = runner.execute()
            if outcome.status != "completed":
                raise AgentFailed(f"the subworkflow {inner.name} failed: {told_last(outcome)}")
        output, sources = passed_up(child, [one.id for one in inner.nodes], node.share_output or ())
        secret = tuple(child.policy.secret_fields)
        self._finish(node, output, attempt, contract=False, sources=sources, secret=secret)


STANDS_IN = {
    "nothing": "it failed; what depends on it goes on without it",
    "cached": "taken from an earlier run",
}
"""Why a node has ended although its agent did not do it."""

NO_GRAPH = "the workflow has no graph, so nothing was run: write nodes into orchestration.graph"
NEUTRAL = ""
FOLLOWS_FAILURE = "it follows the failure"


class Width:
    """How many nodes may run at once. Adaptive runs begin narrow, widen with every success, and narrow by half
    with every failure."""

    def __init__(self, workflow: Workflow) -> None:
        execution = workflow.execution
        self.most = 1 if execution.mode == "sequential" else max(1, execution.max_concurrent)
        self._adapts = execution.mode == "adaptive"
        self.now = 1 if self._adapts else self.most

    def learn(self, well: bool) -> None:
        if self._adapts:
            self.now = min(self.most, self.now + 1) if well else max(1, self.now // 2)


def wait_before(retry: Retry, attempt: int) -> float:
    """Seconds to wait after this many failed attempts."""
    if retry.backoff == "linear":
        return min(retry.base * attempt, retry.max)
    if retry.backoff == "exponential":
        return float(min(retry.base ** min(attempt, 64), retry.max))
    return 0.0


def told_last(outcome: Outcome) -> str:
    """Why a run failed, in its own words."""
    return str(outcome.errors[-1]["message"]) if outcome.errors else outcome.reason or "nobody said why"


def _put(done: queue.Queue[str], name: str, _ended: Future[str | None]) -> None:
    done.put(name)


def _check_engine(workflow: Workflow) -> None:
    """Raises NotEnabled for a workflow that is not a graph, here or further inside."""
    if workflow.loops:
        raise NotEnabled(
            f"the workflow {workflow.name!r} is a delegation_loop, which cannot be run from its files yet: write "
            "orchestration.engine: dag and a graph, or open a run with book.run(folder), in which your own manager "
            "takes turns (run.agent) and delegates (run.child)"
        )
    for inner in workflow.subworkflows.values():
        _check_engine(inner)


def run_workflow(
    session: Session,
    workflow: Workflow,
    *,
    agents: Mapping[str, AgentFunction | str | list[str]] | None = None,
    run_id: str | None = None,
    initial: Mapping[str, Any] | None = None,
    ask: Ask | None = None,
    tell: Tell = lambda _news: None,
) -> Outcome:
    """Run a workflow to its end, or go on with the run of this id. Raises RunFailed if it does not end well."""
    _check_engine(workflow)
    known = {node.agent for node in workflow.nodes} | {one.fallback for one in workflow.degradation}
    known |= {agent for inner in workflow.subworkflows.values() for agent in inner.agents}
    if agents is not None and not isinstance(agents, Mapping):
        raise BadInput("agents is a mapping of agents to functions: give {'writer': write}")
    unknown = sorted(str(name) for name in (agents or {}) if name not in known)
    if unknown:
        raise BadInput(
            f"{', '.join(unknown)} is no agent of {workflow.name!r}: its agents are {', '.join(sorted(known - {''}))}"
        )
    for id in sorted(known & workflow.agents.keys()):  # before anything begins
        find_agent(workflow.agents[id], Path(workflow.folder), agents or {})
    run = open_run(session, workflow, run_id, initial)
    outcome = Runner(session, workflow, run, agents or {}, ask, tell).execute()
    if outcome.status != "completed":
        raise RunFailed(
            f"the run {run.id!r} failed: {told_last(outcome)}. Mend the cause and go on with it "
            f"(run_id={run.id!r}); agents that have finished are not run again",
            run.id,
            outcome.errors,
        )
    return outcome
