"""One node of a workflow's graph: whether it is done, its attempts, and what stands in for it when it fails."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..access.masking import masked
from ..access.rights import OWNER
from ..errors import BadInput, CommonplaceError, Conflict, ContractViolation
from ..event_verbs import record
from ..learn.reflection import reflect_if_due
from ..run import Run, Turn
from ..runs import Runs
from ..state.contract import violations
from ..state.requests import FAILED, FINISHED, ITERATED, RETRYING, SKIPPED, STARTED, RunStep
from ..state.rows import find_run
from .agents import REFUSALS, AgentFailed, AgentTask, Interrupted, answer_within, as_failure, wait_before
from .delegation import opened_below, with_participants
from .expressions import evaluate, is_true
from .model import Degradation, Delegation, Dependency, FanOut, Node, Retry, Workflow
from .passing import Carried, gathered, inherited, passed_down, passed_up, task_of

if TYPE_CHECKING:
    from .runner import Runner

log = logging.getLogger("commonplace")

PERSON = "person"
"""The actor of what a person has answered."""

AGAIN = "again"
"""A node that has failed and is to be tried anew."""

MOST_ANSWERS = 1_000
"""How often an interactive loop asks a person, unless the file allows more."""

NEUTRAL = ""
FOLLOWS_FAILURE = "it follows the failure"
STANDS_IN = {
    "nothing": "it failed; what depends on it goes on without it",
    "cached": "taken from an earlier run",
}
"""Why a node has ended although its agent did not do it."""

Steps = Mapping[str, Mapping[str, Any]]
"""How far each node has come."""


def reason_to_skip(node: Node, steps: Steps, state: Mapping[str, Any]) -> str | None:
    """Why a node whose dependencies have all ended is not to be done; None: it is."""
    if not is_true(node.enabled, state):
        return "it is not enabled"
    reasons = [_reason_against(dependency, steps, state) for dependency in node.depends_on]
    refusals = [reason for reason in reasons if reason not in (None, NEUTRAL)]
    if refusals:
        return refusals[0]
    if reasons and all(reason == NEUTRAL for reason in reasons):
        return "what it depends on was skipped"
    return None


def _reason_against(dependency: Dependency, steps: Steps, state: Mapping[str, Any]) -> str | None:
    """None: satisfied. NEUTRAL: neither for nor against. Else why the node must be skipped."""
    id, condition = dependency.id, dependency.condition
    status, reason = steps[id]["status"], steps[id]["reason"]
    if condition == "always":
        return None
    if status == SKIPPED:
        return f"{FOLLOWS_FAILURE} of {id}" if reason.startswith(FOLLOWS_FAILURE) else NEUTRAL
    if condition == "failure":
        return None if status == FAILED else f"{id} did not fail"
    if status == FAILED:
        return f"{FOLLOWS_FAILURE} of {id}"
    if condition == "success" or is_true(condition, state):
        return None
    return f"its condition on {id} is false"


class NodeRun:
    """One node being done by a runner, in a thread of its own."""

    def __init__(self, runner: Runner, node: Node) -> None:
        self.runner, self.node = runner, node
        self.run, self.workflow = runner.run, runner.workflow
        self.on_failure = node.on_failure or self.workflow.execution.on_error
        step = runner.steps.get(node.id, {})
        self.attempt: int = step.get("attempt", 1)  # one that was under way when its runner died goes on
        if step.get("status") == RETRYING:
            self.attempt += 1
        elif step.get("status") == AGAIN:
            self.attempt = 1

    def attempts(self) -> str | None:
        """Try, try again as the retry policy says, fall back, give up as on_failure says. Answers why the whole run
        must stop, or None."""
        runner, retry = self.runner, self._retry()
        while True:
            try:
                self._once()
                self._reflect()
                return None
            except AgentFailed as failure:
                if self.attempt >= retry.max_attempts or failure.reason not in retry.retryable:
                    return self._give_up(failure)
                self._fail(failure, RETRYING)
                runner.pause(min(wait_before(retry, self.attempt), max(0.0, runner.seconds_left)))
                if runner.interrupted.is_set():
                    raise Interrupted from None
                self.attempt += 1

    def _retry(self) -> Retry:
        retry = self.node.retry or self.workflow.execution.retry
        if self.on_failure != "retry":
            return retry
        most = retry.max_attempts if retry.max_attempts > 1 else 3
        return replace(retry, max_attempts=most, retryable=(*retry.retryable, "error"))

    def _once(self) -> None:
        """One attempt. What the book refuses is the node's own failure; trouble with the store is not."""
        node, runner = self.node, self.runner
        try:
            reason = reason_to_skip(node, runner.steps, runner.state())
            if reason is not None:
                runner.mark(RunStep(self.run.id, node.id, SKIPPED, reason=reason))
                return
            runner.mark(RunStep(self.run.id, node.id, STARTED, self.attempt, self._iteration))
            if node.delegation is not None:
                self._do_delegation(node.delegation)
            elif node.subworkflow:
                self._do_subworkflow(self.workflow.subworkflows[node.subworkflow])
            elif node.fan_out is not None:
                self._do_fan_out(node.fan_out)
            elif node.loop is not None:
                self._do_loop()
            else:
                self._finish(self._call())
        except REFUSALS as error:
            raise as_failure(error) from None

    def _reflect(self) -> None:
        """Let the agent reflect, if its file asks for it and it is due. The node has ended by then: what fails here is
        told, and changes nothing."""
        if self.runner.steps[self.node.id]["status"] != FINISHED:
            return
        try:
            reflect_if_due(Turn(self.run, self.node.id)._session)
        except CommonplaceError as error:
            reason = masked(self.run.redacted(self.runner.hide(f"{self.node.id} could not reflect: {error}")))
            log.warning("%s", reason)
            self.runner.news(self.node.id, FINISHED, reason)

    @property
    def _iteration(self) -> int:
        return int(self.runner.steps.get(self.node.id, {}).get("iteration", 0))

    def _call(self, agent: str = "", **more: Any) -> dict[str, Any]:
        """The output of the node's agent, or of another one."""
        task = AgentTask(self.run, self.node.id, attempt=self.attempt, hide=self.runner.hide, **more)
        return self.runner.called(self.runner.functions[agent or self.node.agent], task, self.node.timeout)

    def _finish(
        self,
        output: dict[str, Any],
        *,
        status: str = FINISHED,
        iteration: int = 0,
        reason: str = "",
        **more: Any,
    ) -> None:
        """Write an output together with the end of its turn."""
        self.runner.lead.check()
        step = RunStep(self.run.id, self.node.id, status, self.attempt, iteration, reason)
        Turn(self.run, self.node.id).write_with(output, step, **more)
        self.runner.note(step)

    # when it fails

    def _fail(self, failure: AgentFailed, status: str = FAILED) -> None:
        """Record a failure, without the secrets that its message may hold."""
        message = masked(self.run.redacted(self.runner.hide(str(failure))))
        error = {"type": failure.type, "reason": failure.reason, "message": message, "attempt": self.attempt}
        self.runner.mark(
            RunStep(self.run.id, self.node.id, status, self.attempt, self._iteration, message, error)
        )

    def _give_up(self, failure: AgentFailed) -> str | None:
        node, ways = self.node, [way for way in self.workflow.degradation if way.node == self.node.id]
        if ways or self.on_failure == "skip":
            self._fail(failure, RETRYING)
            if any(self._degrade(way) for way in ways):
                return None
            if self.on_failure == "skip":
                self._continue_without()
                return None
            reason = self.runner.steps[node.id]["reason"]
            self.runner.mark(RunStep(self.run.id, node.id, FAILED, self.attempt, reason=reason))
        else:
            self._fail(failure)
        reason = self.runner.steps[node.id]["reason"]
        return None if self.on_failure == "continue" else f"{node.id} failed: {reason}"

    def _continue_without(self) -> None:
        """Its dependents get an empty entry."""
        self._finish({}, contract=False, reason=STANDS_IN["nothing"])

    def _degrade(self, way: Degradation) -> bool:
        """Whether something else could stand in for a node that has failed."""
        if way.action == "skip":
            self._continue_without()
            return True
        try:
            if way.action == "fallback":
                self.attempt += 1
                self.runner.lead.check()
                self.run.step(self.node.id, RETRYING, attempt=self.attempt, done_by=way.fallback)
                self._finish(self._call(way.fallback), reason=f"done by {way.fallback}")
                return True
            cached = self._cached(way.max_staleness)
            if cached is not None:
                entry, sources = cached
                self._finish(entry, reason=STANDS_IN["cached"], sources=sources)
            return cached is not None
        except (AgentFailed, *REFUSALS) as error:
            self._fail(as_failure(error), RETRYING)
            return False

    def _cached(self, max_staleness: float) -> Carried | None:
        """What the same node of the same workflow put out in an earlier run, if that is fresh enough."""
        session, node = self.runner.session, self.node.id
        oldest = time.time() - max_staleness
        for info in reversed(Runs(session).list()):
            if info.workflow != self.workflow.name or info.id == self.run.id or info.by != OWNER:
                continue  # another workflow's, or another actor's, who may have put in anything
            earlier = Run(session, info.id)
            step = earlier.steps().get(node)
            if step is None or step["status"] != FINISHED or step["reason"] in STANDS_IN.values():
                continue
            ended = next(session.ledger.events(step["position"] - 1)).created_at.timestamp()
            state = earlier.state()
            if ended >= oldest and isinstance(state.get(node), dict):
                return state[node], state.sources(node)
        return None

    # loops

    def _do_loop(self) -> None:
        """Do it again while the condition holds, or while a person answers."""
        loop, id = self.node.loop, self.node.id
        assert loop is not None
        interactive = loop.type == "interactive"
        most = max(loop.max_iterations, MOST_ANSWERS) if interactive else loop.max_iterations
        while True:
            iteration = self._iteration
            answer = self._answer(iteration) if interactive and iteration else None
            if interactive and iteration and not answer:
                self._finish({}, iteration=iteration)
                return
            output = self._call(iteration=iteration + 1, answer=answer)
            state = self.runner.state()
            state[id] = {**state.get(id, {}), **output}
            more = interactive or not loop.condition or is_true(loop.condition, state)
            if iteration + 1 >= most or not more:
                self._finish(output, iteration=iteration + 1)
                return
            self._finish(output, iteration=iteration + 1, status=ITERATED)

    def _answer(self, iteration: int) -> str | None:
        """What a person says to the last output. It is recorded before it is used, and asked for once."""
        node, loop, session = self.node, self.node.loop, self.runner.session
        assert loop is not None
        for event in session.ledger.events(run_id=self.run.id, kinds=("user.injected",)):
            asked = (event.payload.get("node"), event.payload.get("iteration"))
            if event.actor == PERSON and asked == (node.id, iteration):
                return event.payload.get("text") or None
        if self.runner.ask is None:
            message = f"{node.id} asks a person and nobody can be asked here: give ask="
            raise AgentFailed(message, "auth_error")
        prompt = str(self.runner.state().get(node.id, {}).get(loop.prompt_field, ""))
        idle = self.workflow.execution.timeout_idle
        answer = answer_within(idle, self.runner.ask, prompt, loop.input_channel)
        payload = {
            "text": answer or "",
            "node": node.id,
            "iteration": iteration,
            "channel": loop.input_channel,
        }
        record(session, "user.injected", actor=PERSON, run_id=self.run.id, payload=payload)
        return answer

    # fan-out

    def _do_fan_out(self, fan: FanOut) -> None:
        """One instance per item, each on its own; what has ended before is not done again."""
        state = Turn(self.run, self.node.id).state  # what the node may see, not what the runtime knows
        items = evaluate(fan.source, state)
        if not isinstance(items, list):
            raise AgentFailed(f"fan_out.source {fan.source!r} is not a list", "validation_error")
        sources = state.sources(*(key for key in state if re.search(rf"\b{re.escape(key)}\b", fan.source)))
        steps = self.run.steps()

        def instance(number: int) -> tuple[dict[str, Any], int]:
            step = steps.get(f"{self.node.id}[{number}]", {})
            if step.get("status") == FINISHED:
                return step["result"], step["position"]
            return self._instance(number, {fan.variable: items[number], "index": number}, sources)

        with ThreadPoolExecutor(max(1, fan.max_parallel), thread_name_prefix="commonplace-fan") as pool:
            futures = [pool.submit(copy_context().run, instance, number) for number in range(len(items))]
            ended = [future.result() for future in futures]
        outputs, positions = [output for output, _ in ended], tuple(position for _, position in ended)
        fan_in = self.node.fan_in
        strategy, target = ("merge", "results") if fan_in is None else (fan_in.strategy, fan_in.target_field)
        output = {target: gathered(strategy, outputs)}
        stated = [each["confidence"] for each in outputs if isinstance(each.get("confidence"), int | float)]
        if stated and target != "confidence":
            output["confidence"] = min(stated)
        self._finish(output, contract=False, sources=positions)

    def _instance(
        self, number: int, inputs: dict[str, Any], sources: tuple[int, ...]
    ) -> tuple[dict[str, Any], int]:
        """Do one instance of a fan-out. Returns its output, and the position at which it is recorded."""
        name = f"{self.node.id}[{number}]"
        output = self._call(inputs=inputs)
        contract = self.run.policy.agent(self.node.id).contract
        broken = violations(contract, output) if contract is not None else []
        if broken:
            raise AgentFailed(str(ContractViolation(name, broken)), "validation_error", "ContractViolation")
        position = self.run.step(
            name, FINISHED, attempt=self.attempt, result=output, of=self.node.id, sources=sources
        )
        self.runner.news(name, FINISHED)
        return output, position

    # delegation

    def _do_delegation(self, delegation: Delegation) -> None:
        """A manager's loop in a run of its own, one level deeper."""
        runner, node = self.runner, self.node
        state, written = Turn(self.run, node.id).state, node.document
        only, forbidden = written.get("inherited_state_keys"), written.get("forbidden_inheritance_keys", ())
        taken = inherited(state, only, forbidden)
        sources = state.sources(*taken)
        everybody = {
            id: replace(agent, contract=None) for id, agent in (self.run.policy.agents or {}).items()
        }
        policy = replace(self.run.policy, others={**self.run.policy.others, **everybody})
        child = opened_below(runner.session, self.run, self._child_id) or self.run.child(
            self._child_id,
            policy=with_participants(policy, delegation.manager),
            inherit=taken,
            sources=sources,
        )
        end = runner.delegated(child, delegation, task_of(state, self.workflow), sources)
        runner.curate(child, delegation)
        runner.close_loop(child, end)
        if end.status != "complete":
            raise AgentFailed(f"{delegation.manager} ended without a result: {end.reason}")
        self._finish(end.result, contract=False, reason=end.reason, sources=end.positions)

    # subworkflows

    def _do_subworkflow(self, inner: Workflow) -> None:
        """A workflow of its own, in a run of its own, one level deeper: all of it, or nothing of it."""
        node = self.node
        deepest = self.workflow.max_depth if node.max_depth is None else node.max_depth
        if self.run.depth + 1 > deepest:
            raise BadInput(
                f"{node.id} may not delegate to {inner.name!r}: the limit is {deepest} levels (R31). Raise its "
                "max_depth, or delegation_loop.budget.max_depth"
            )
        child = self._child(inner, deepest)
        if child.status != "completed":
            outcome = self.runner.inner(inner, child).execute()
            if outcome.status != "completed":
                raise AgentFailed(f"the subworkflow {inner.name} failed: {outcome.why}")
        agents, head = [inside.id for inside in inner.nodes], self.runner.session.ledger.head
        if inner.delegation is not None:
            agents = [inner.delegation.manager]
        output, sources = passed_up(child, head, agents, node.share_output or ())
        secret = tuple(child.policy.secret_fields)
        self._finish(output, contract=False, sources=sources, secret=secret)

    def _child(self, inner: Workflow, deepest: int) -> Run:
        """The subworkflow's run, opened now or earlier."""
        session, place = self.runner.session, Path(inner.folder)
        with session.snapshot() as now:
            opened = find_run(now, self._child_id)
        if opened is not None and opened.parent != self.run.id:
            raise Conflict(
                f"{self._child_id!r} is another run, and the name is needed for the subworkflow {inner.name!r}"
            )
        if opened is not None:
            return Run(session, self._child_id, folder=place, persistence=inner.persistence)
        values, sources = passed_down(self.node, Turn(self.run, self.node.id).state)
        return self.run.child(
            self._child_id,
            policy=replace(inner.policy, max_depth=min(inner.max_depth, deepest)),
            start=inner.start,
            workflow={"name": inner.name, "version": inner.version},
            inherit=values,
            sources=sources,
            folder=place,
            persistence=inner.persistence,
        )

    @property
    def _child_id(self) -> str:
        return f"{self.run.id}/{self.node.id}"
