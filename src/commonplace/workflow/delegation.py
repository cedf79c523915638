"""The delegation loop: a manager decides, workers do what it dispatches, and sub-managers delegate further.

Every decision of a manager is recorded before it is carried out, and every result when it comes. So the loop is a
function of what is recorded: a runner that resumes it goes through the recorded decisions and results, and continues
where they end. A manager is asked again only if it had not answered, a worker only if it had not ended.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from ..access.masking import masked
from ..errors import BadInput, Conflict, ContractViolation
from ..learn.board import board_entries, sibling_signals
from ..learn.context_digest import (
    ContextDigest,
    children_digests,
    confidence_of,
    digest_of_iteration,
    my_digest,
)
from ..learn.curator import REDUNDANT, prior_runs
from ..learn.delegations import BoardEntry, Digested, RecordPlan, delegation_of, digest_at, plans
from ..learn.plans import HOW_TO_ANSWER, Assignment, ManagerDecision, decision_of
from ..ledger.encoding import encode_payload
from ..ledger.printing import Readable
from ..recall.escaping import as_data, as_name
from ..run import Run, Turn
from ..state.contract import violations
from ..state.requests import FAILED, FINISHED, RETRYING, SKIPPED, STARTED, RunStep
from ..state.rows import find_run
from ..state.sharing import hidden_fields, without
from .agents import REFUSALS, AgentFailed, AgentFunction, AgentTask, Interrupted, as_failure, wait_before
from .model import ContextBudget, Delegation
from .passing import inherited

if TYPE_CHECKING:
    from .runner import Runner

DEFERRED = "deferred"
ANSWERS = 2
"""How often a manager may answer in a form that cannot be read before the loop fails."""


class Left(msgspec.Struct, frozen=True):
    """What a manager and those below it may still use up."""

    loops: int
    workers: int
    workers_per_iteration: int
    chars: int

    def __str__(self) -> str:
        return f"{self.loops} iterations, {self.workers} workers, {self.chars:,} characters"


class Spent(NamedTuple):
    workers: int = 0
    chars: int = 0

    def plus(self, other: Spent) -> Spent:
        return Spent(self.workers + other.workers, self.chars + other.chars)


class WorkerEnd(msgspec.Struct, frozen=True):
    """What became of an assignment: its output, or why there is none."""

    assignment: Assignment
    status: Literal["finished", "failed", "redundant", "deferred"]
    output: dict[str, Any] = {}
    reason: str = ""
    position: int = 0
    digest: str = ""
    """Of a sub-manager, the address of its last context digest."""
    spent: tuple[int, int] = (0, 0)

    def told(self) -> dict[str, Any]:
        """It as a manager is told."""
        about = {"worker_id": self.assignment.worker, "instructions": self.assignment.instructions}
        why = {"reason": self.reason} if self.reason else {}
        return {**about, "status": self.status, **why, "output": self.output}


class LoopEnd(msgspec.Struct, frozen=True):
    """How a manager's loop ended: by its own word (complete, failed), or by its budget or for lack of progress
    (partial)."""

    status: Literal["complete", "partial", "failed"]
    reason: str = ""
    result: dict[str, Any] = {}
    digest: str = ""
    iterations: int = 0
    workers: int = 0
    chars: int = 0
    positions: tuple[int, ...] = ()
    """Where the results of its workers are recorded."""


class Briefing(Readable, msgspec.Struct, frozen=True):
    """What a manager should know to decide. As text it is a prompt for a model."""

    task: str
    depth: int
    left: Left
    history: tuple[dict[str, Any], ...] = ()
    signals: tuple[BoardEntry, ...] = ()
    """What was posted on the board since its last decision."""
    digest: ContextDigest | None = None
    children: tuple[ContextDigest, ...] = ()
    warnings: tuple[str, ...] = ()
    prior: str = ""
    """What earlier runs have left, in the first turn of a root manager."""
    context_budget: ContextBudget = ContextBudget()

    def __str__(self) -> str:
        parts = [
            f"# TASK\n{self.task}",
            self.prior,
            my_digest(self.digest),
            children_digests(self.children),
            sibling_signals(self.signals),
            history_block(self.history, self.context_budget),
            f"## BUDGET\n{self.left}",
            "\n".join(["## WARNINGS", *(f"- {as_data(warning)}" for warning in self.warnings)])
            if self.warnings
            else "",
            f"## ANSWER\n{HOW_TO_ANSWER[0].upper()}{HOW_TO_ANSWER[1:]}.",
        ]
        return "\n\n".join(part for part in parts if part)


class ManagerTurn(AgentTask):
    """A manager's turn. Its function returns what to do next (see `learn.plans`), from what `briefing` says; as text,
    the briefing is a prompt for a model."""

    briefing: Briefing

    def request(self) -> dict[str, Any]:
        known: dict[str, Any] = msgspec.to_builtins(self.briefing)
        return {**super().request(), **known, "prompt": str(self.briefing)}


class WorkerTask(AgentTask):
    """A worker's turn. `assignment` is what its manager told it to do, with everything the manager said."""

    assignment: Assignment

    @property
    def instructions(self) -> str:
        """What to do."""
        return self.assignment.instructions

    @property
    def dispatch(self) -> str:
        return self.assignment.name

    def request(self) -> dict[str, Any]:
        told = {"instructions": self.instructions, "envelope": self.assignment.envelope}
        return {**super().request(), **told}


def history_block(history: Sequence[Mapping[str, Any]], budget: ContextBudget) -> str:
    """What came of earlier iterations as a block of a prompt, each result within its share of the budget."""
    results = sum(len(each["workers"]) for each in history)
    room = max(budget.min_per_entry, budget.total_chars // max(1, results))
    lines = []
    for each in history:
        lines.append(f"### Iteration {each['iteration']}")
        for result in each["workers"]:
            written = json.dumps(result.get("output", {}), ensure_ascii=False, sort_keys=True)
            if len(written) > room:
                cut = min(budget.preview_chars, room)
                written = (
                    f"{written[:cut]} (cut: {cut:,} of {len(written):,} characters; the run's state has all)"
                )
            reason = f" ({result['reason']})" if result.get("reason") else ""
            about = f"{as_name(result['worker_id'])}, {result['status']}{reason}"
            lines.append(f"- {about}: {as_data(result['instructions'])}\n  {written}")
    return "\n".join(["## HISTORY", *lines]) if lines else ""


class DelegationLoop:
    """One manager's loop in a run of its own."""

    def __init__(
        self,
        runner: Runner,
        run: Run,
        delegation: Delegation,
        task: str,
        left: Left,
        *,
        manager: str,
        function: AgentFunction,
        root: bool,
        ends: float,
    ) -> None:
        self.runner, self.run, self.delegation = runner, run, delegation
        self._task, self._limits, self._manager = task, left, manager
        self._function, self._root, self._ends = function, root, ends
        self._session = runner.session.within(run._opened.scope).acting_as(runner.session.actor, run.id)
        self._spent = Spent()
        self._known: dict[str, WorkerEnd] = {}
        """What has been finished, by signature."""
        self._history: list[tuple[int, list[WorkerEnd]]] = []
        self._digest: ContextDigest | None = None
        self._digest_position = 0
        self._warnings: list[str] = []
        self._idle = 0
        """How many iterations have passed without progress."""
        self._confidences: list[float] = []
        self._facts: frozenset[str] = frozenset()

    def execute(self) -> LoopEnd:
        """Decide and dispatch until the loop ends. Raises only what is not about an agent."""
        with self._session.snapshot() as now:
            recorded = plans(now, self.run.id)
        steps, since = self.run.steps(), 0
        for iteration in count(1):
            known = recorded.get(iteration)
            if known is None and (why := self._over(iteration)):
                return self._end("partial", why, iteration - 1)
            try:
                plan, position = (
                    (known["plan"], known["position"]) if known else self._asked(iteration, since)
                )
                decision = decision_of(plan, iteration)
            except AgentFailed as failure:
                return self._end(
                    "failed", f"the manager {self._manager} failed: {self._plain(failure)}", iteration - 1
                )
            self._spent = self._spent.plus(Spent(0, _size(plan)))
            if decision.action == "complete":
                return self._end("complete", "", iteration, decision.result)
            if decision.action == "fail":
                return self._end("failed", decision.reason, iteration)
            self._warnings, since = [], position
            ends = self._dispatched(iteration, decision, steps)
            self._keep(iteration, ends, steps)
            if why := self._stalled():
                return self._end("partial", why, iteration)
        raise AssertionError("the loop ends by a return")

    def _end(
        self, status: Any, reason: str, iterations: int, result: Mapping[str, Any] | None = None
    ) -> LoopEnd:
        digest = "" if self._digest is None else self._digest.address
        positions = tuple(end.position for _, ends in self._history for end in ends if end.position)
        return LoopEnd(status, reason, dict(result or {}), digest, iterations, *self._spent, positions)

    def _plain(self, failure: BaseException) -> str:
        """What an error says, without secrets."""
        return str(masked(self.run.redacted(self.runner.hide(str(failure)))))

    # the manager

    def _asked(self, iteration: int, since: int) -> tuple[dict[str, Any], int]:
        """Ask the manager, and record what it decides. Raises AgentFailed."""
        retry, attempt = self.runner.workflow.execution.retry, 0
        while True:
            attempt += 1
            self.runner.lead.check()
            turn = self._manager_turn(iteration, attempt, since)
            try:
                answer = self._called(self._function, turn)
                decision = decision_of(answer, iteration)
                self._check(decision)
                break
            except AgentFailed as failure:
                if attempt >= retry.max_attempts or failure.reason not in retry.retryable:
                    raise
                self._pause(wait_before(retry, attempt))
            except REFUSALS as error:
                if attempt >= max(ANSWERS, retry.max_attempts):
                    raise as_failure(error) from None
                self._warnings.append(f"your last answer could not be used: {self._plain(error)}")
        _, plan, _ = encode_payload(self.runner.hide(answer))
        if decision.action == "fail":  # the end of the run says so; a manager that is resumed is asked again
            return plan, 0
        request = RecordPlan(self.run.id, iteration, self._manager, plan)
        self.runner.lead.check()
        position = self._session.write("delegations.plan", request)
        self.runner.news(self._manager, decision.action, f"iteration {iteration}")
        return plan, position

    def _check(self, decision: ManagerDecision) -> None:
        """Raises what a manager has to mend in its decision."""
        for each in decision.workers:
            if each.worker == self._manager:
                raise BadInput(f"{each.worker} is the manager itself: dispatch to another worker_id")
            self.runner.function_of(each.worker, self.delegation, self._function if each.submanager else None)
        agent = self.runner.workflow.agents.get(self._manager)
        contract = None if agent is None else agent.contract
        if decision.action != "complete" or contract is None or "decision" in contract.get("properties", {}):
            return  # a contract that speaks of decisions is about these
        broken = violations(contract, decision.result)
        if broken:
            raise ContractViolation(self._manager, broken)

    def _manager_turn(self, iteration: int, attempt: int, since: int) -> ManagerTurn:
        turn = ManagerTurn(
            self.run, self._manager, attempt=attempt, iteration=iteration, hide=self.runner.hide
        )
        children: tuple[ContextDigest, ...] = ()
        signals: tuple[BoardEntry, ...] = ()
        with self._session.snapshot() as now:
            if self._digest is not None:
                root = delegation_of(now, self.run.id)
                found = [digest_at(now, root, sha) for sha in self._digest.child_digest_hashes]
                children = tuple(child for child in found if child is not None)
            if self.delegation.blackboard_enabled and iteration > 1:
                signals = tuple(board_entries(self._session, now, self.run.id, since))
        turn.briefing = Briefing(
            self._task,
            self.run.depth,
            self._left(iteration),
            tuple(self._told_history()),
            signals,
            self._digest,
            children,
            tuple(self._warnings),
            self._prior(turn) if iteration == 1 and self._root else "",
            self.delegation.context_budget,
        )
        return turn

    def _prior(self, turn: ManagerTurn) -> str:
        """What earlier runs have left, for the first turn of a root manager, as far as the manager may read memory. It
        counts as shown it."""
        session = turn._session
        if (
            not self.delegation.auto_curation_enabled
            or not session.rules.enabled
            or not session.reads("long_term")
        ):
            return ""
        return prior_runs(session, self.runner.workflow.name).text

    def _told_history(self) -> list[dict[str, Any]]:
        """What the manager is told of earlier iterations: of the last ones all, of the others no outputs."""
        window = self.delegation.history.full_results_window
        first = len(self._history) - window
        told = []
        for place, (iteration, ends) in enumerate(self._history):
            results = [self._shareable(end).told() for end in ends]
            if place < first:
                results = [{**result, "output": _summary(result["output"])} for result in results]
            told.append({"iteration": iteration, "workers": results})
        return told

    def _shareable(self, end: WorkerEnd) -> WorkerEnd:
        """A result without what its worker shares with nobody."""
        hidden = hidden_fields(self.run.policy, end.assignment.worker)
        return replace(end, output=without(end.output, hidden)) if hidden else end

    # budgets

    def _left(self, iteration: int) -> Left:
        limits, spent = self._limits, self._spent
        return replace(
            limits,
            loops=limits.loops - iteration + 1,
            workers=max(0, limits.workers - spent.workers),
            chars=max(0, limits.chars - spent.chars),
        )

    @property
    def _seconds_left(self) -> float:
        return min(self._ends - time.monotonic(), self.runner.seconds_left)

    def _called(
        self, function: AgentFunction, task: AgentTask, timeout: float | None = None
    ) -> dict[str, Any]:
        """What an agent answers within the time that is left. Raises AgentFailed."""
        most = self.runner.workflow.execution.timeout_per_agent if timeout is None else timeout
        return self.runner.called(function, task, max(0.001, min(most, self._seconds_left)))

    def _over(self, iteration: int) -> str:
        """Which budget is used up, if one is."""
        left = self._left(iteration)
        if left.loops < 1:
            return f"the budget of {self._limits.loops} iterations is used up"
        if left.workers < 1:
            return f"the budget of {self._limits.workers} workers is used up"
        if left.chars < 1:
            return f"the budget of {self._limits.chars:,} characters is used up"
        if self._seconds_left <= 0:
            return "the time is used up"
        return ""

    def _stalled(self) -> str:
        """Why the loop ends for lack of progress, if it does; the manager is warned first."""
        rule = self.delegation.termination
        self._idle = 0 if self._progressed() else self._idle + 1
        if not rule.enabled or self._idle < rule.window:
            return ""
        why = f"no progress in {self._idle} iterations: nothing new was found, and confidence has not grown"
        if rule.action == "stop" or (rule.action == "warn_then_stop" and self._idle > rule.window):
            return why
        self._warnings.append(f"{why}. Try something else, or complete with what there is")
        return ""

    def _progressed(self) -> bool:
        """Whether the workers of the last iteration have found something new, or have grown surer. Where they state no
        confidence, any new answer counts."""
        *earlier, (_, last) = self._history
        before = [end.output for _, ends in earlier for end in ends if end.status == "finished"]
        new = [end.output for end in last if end.status == "finished" and end.output not in before]
        stated = [sure for output in new if (sure := confidence_of(output)) is not None]
        best, facts = max(self._confidences, default=None), self._facts
        self._confidences += stated
        self._facts = frozenset(() if self._digest is None else self._digest.key_facts)
        if not new or len(stated) < len(new) or best is None:
            return bool(new)
        grown = max(stated) >= best + self.delegation.termination.min_confidence_delta
        return grown or not self._facts <= facts

    # workers

    def _dispatched(
        self, iteration: int, decision: ManagerDecision, steps: Mapping[str, Mapping[str, Any]]
    ) -> list[WorkerEnd]:
        """Carry out a decision. What was recorded before is not done again."""
        left, most = self._left(iteration), self._limits.workers_per_iteration
        room = min(left.workers, most)
        submanagers = sum(each.submanager for each in decision.workers)
        share = self._share(left, submanagers)
        ends: dict[str, WorkerEnd] = {}
        to_do, same = list[Assignment](), dict[str, str]()
        for each in decision.workers:
            if (before := self._known.get(each.signature)) is not None:
                ends[each.name] = self._redundant(each, before, steps)
            elif each.signature in same:
                continue
            elif len(to_do) >= room or _was_deferred(steps.get(each.name)):
                ends[each.name] = self._deferred(each, room, most, steps)
            else:
                same[each.signature] = each.name
                to_do.append(each)
        width = max(1, self.runner.workflow.execution.max_concurrent)
        with ThreadPoolExecutor(width, thread_name_prefix="commonplace-worker") as pool:
            futures = [pool.submit(self._done, iteration, each, share, steps) for each in to_do]
            for future in futures:
                try:
                    end = future.result()
                except BaseException:  # Ctrl-C, or trouble with the store: nobody is waited for
                    self.runner.interrupt()
                    raise
                ends[end.assignment.name] = end
                self._spent = self._spent.plus(Spent(*end.spent))
                if end.status == "finished":
                    self._known[end.assignment.signature] = end
        for each in decision.workers:  # the same twice in one decision
            if each.name not in ends:
                ends[each.name] = self._redundant(each, ends[same[each.signature]], steps)
        return [ends[each.name] for each in decision.workers]

    def _share(self, left: Left, submanagers: int) -> Left:
        """What each sub-manager of a decision may use up: an equal part, and one part stays here."""
        parts = submanagers + 1
        return replace(self._limits, workers=max(1, left.workers // parts), chars=max(1, left.chars // parts))

    def _redundant(self, assignment: Assignment, before: WorkerEnd, steps: Mapping[str, Any]) -> WorkerEnd:
        reason = f"{REDUNDANT}: {before.assignment.name} was told the same, and this is its result"
        self._skip(assignment, reason, steps)
        self._warnings.append(f"{assignment.worker} was told the same before: its earlier result was taken")
        return WorkerEnd(assignment, "redundant", before.output, reason, before.position)

    def _deferred(self, assignment: Assignment, room: int, most: int, steps: Mapping[str, Any]) -> WorkerEnd:
        which = f"{most} workers an iteration" if room == most else f"{self._limits.workers} workers"
        reason = f"{DEFERRED}: the budget of {which} is used up"
        self._skip(assignment, reason, steps)
        self._warnings.append(f"{assignment.worker} was not dispatched: the budget of {which} is used up")
        return WorkerEnd(assignment, "deferred", {}, reason)

    def _skip(self, assignment: Assignment, reason: str, steps: Mapping[str, Any]) -> None:
        if assignment.name not in steps:
            self.run.step(assignment.name, SKIPPED, reason=reason, of=assignment.worker)
            self.runner.news(assignment.name, SKIPPED, reason)

    def _done(
        self, iteration: int, assignment: Assignment, share: Left, steps: Mapping[str, Mapping[str, Any]]
    ) -> WorkerEnd:
        """Do one assignment, or take what is recorded of it."""
        step = steps.get(assignment.name, {})
        if step.get("status") == FINISHED:
            result = step["result"]
            return WorkerEnd(
                assignment,
                "finished",
                result.get("output", {}),
                position=step["position"],
                digest=result.get("digest", ""),
                spent=tuple(result.get("spent", (1, 0))),
            )
        if step.get("status") == FAILED:
            return WorkerEnd(assignment, "failed", {}, step["reason"], step["position"], spent=(1, 0))
        try:
            if assignment.submanager:
                return self._submanaged(assignment, share)
            return self._worked(iteration, assignment, int(step.get("attempt", 1)))
        except AgentFailed as failure:
            return self._failed(assignment, failure)
        except REFUSALS as error:
            return self._failed(assignment, as_failure(error))

    def _worked(self, iteration: int, assignment: Assignment, attempt: int) -> WorkerEnd:
        retry, runner = self.runner.workflow.execution.retry, self.runner
        while True:
            runner.lead.check()
            self.run.step(assignment.name, STARTED, attempt=attempt, of=assignment.worker)
            runner.news(assignment.name, STARTED)
            try:
                output = self._output(iteration, assignment, attempt)
                break
            except AgentFailed as failure:
                if attempt >= retry.max_attempts or failure.reason not in retry.retryable:
                    raise
                reason = self._plain(failure)
                self.run.step(assignment.name, RETRYING, attempt=attempt, reason=reason, of=assignment.worker)
                self._pause(wait_before(retry, attempt))
                attempt += 1
        return self._finished(assignment, output, (1, _size(output)))

    def _output(self, iteration: int, assignment: Assignment, attempt: int) -> dict[str, Any]:
        """What a worker answers, checked against the contract of its file and that of its manager."""
        task = WorkerTask(
            self.run, assignment.worker, attempt=attempt, iteration=iteration, inputs=assignment.inputs,
            hide=self.runner.hide,
        )  # fmt: skip
        task.assignment = assignment
        function = self.runner.function_of(assignment.worker, self.delegation)
        output = self._called(function, task, assignment.timeout)
        agent = self.runner.workflow.agents.get(assignment.worker)
        contracts = [agent.contract if agent is not None else None, assignment.contract]
        broken = [
            each for contract in contracts if contract is not None for each in violations(contract, output)
        ]
        if broken:
            raise AgentFailed(
                str(ContractViolation(assignment.worker, broken)), "validation_error", "ContractViolation"
            )
        return output

    def _finished(
        self,
        assignment: Assignment,
        output: dict[str, Any],
        spent: tuple[int, int],
        digest: str = "",
        **more: Any,
    ) -> WorkerEnd:
        self.runner.lead.check()
        result = {"output": output, "spent": list(spent), "digest": digest}
        position = self.run.step(assignment.name, FINISHED, result=result, of=assignment.worker, **more)
        self.runner.news(assignment.name, FINISHED)
        return WorkerEnd(assignment, "finished", output, position=position, digest=digest, spent=spent)

    def _failed(self, assignment: Assignment, failure: AgentFailed) -> WorkerEnd:
        message = self._plain(failure)
        error = {"type": failure.type, "reason": failure.reason, "message": message}
        self.runner.lead.check()
        position = self.run.step(assignment.name, FAILED, reason=message, error=error, of=assignment.worker)
        self.runner.news(assignment.name, FAILED, message)
        return WorkerEnd(assignment, "failed", {}, message, position, spent=(1, 0))

    def _pause(self, seconds: float) -> None:
        self.runner.pause(min(seconds, max(0.0, self._seconds_left)))
        if self.runner.interrupted.is_set():
            raise Interrupted

    # sub-managers

    def _submanaged(self, assignment: Assignment, share: Left) -> WorkerEnd:
        """A loop of its own, in a run one level deeper."""
        name = assignment.worker
        child = self._child(assignment)
        function = self.runner.function_of(name, self.delegation, self._function)
        loop = DelegationLoop(
            self.runner, child, self.delegation, assignment.instructions, share, manager=name, function=function,
            root=False, ends=self._ends,
        )  # fmt: skip
        end = loop.execute()
        if child.status == "running":
            child.close(CLOSED_AS[end.status], end.reason)
            self.runner.remove_board(child)
        spent = (end.workers + 1, end.chars)
        if end.status == "failed":
            raise AgentFailed(f"the sub-manager {name} failed: {end.reason}")
        reason = {"reason": end.reason} if end.reason else {}
        output = {"status": end.status, **reason, **end.result}
        return self._finished(assignment, output, spent, end.digest, sources=end.positions[-50:])

    def _child(self, assignment: Assignment) -> Run:
        """The run of a sub-manager, opened now or earlier. Raises BadInput if it would be too deep."""
        id = f"{self.run.id}/{assignment.name}"
        with self._session.snapshot() as now:
            opened = find_run(now, id)
        if opened is not None and opened.parent != self.run.id:
            raise Conflict(
                f"{id!r} is another run, and the name is needed for the sub-manager {assignment.worker}"
            )
        if opened is not None:
            return Run(self._session, id)
        state = Turn(self.run, self._manager).state
        only = assignment.inherited_state_keys
        only = self.delegation.inherited_state_keys if only is None else only
        forbidden = (*self.delegation.forbidden_inheritance_keys, *assignment.forbidden_inheritance_keys)
        taken = inherited(state, only, forbidden)
        values = {**taken, **assignment.inputs}
        return self.run.child(id, inherit=values, sources=state.sources(*taken))

    # after an iteration

    def _keep(
        self, iteration: int, ends: Sequence[WorkerEnd], steps: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Write what the workers have found to the state, and record the digest of the iteration."""
        last = {end.assignment.worker: end for end in ends if end.status == "finished"}
        for worker, end in last.items():
            if int(steps.get(worker, {}).get("iteration", 0)) < iteration:
                self.runner.lead.check()
                step = RunStep(self.run.id, worker, FINISHED, iteration=iteration)
                Turn(self.run, worker).write_with(end.output, step, contract=False, sources=(end.position,))
        self._history.append(
            (iteration, [replace(end, output=self.run.redacted(end.output)) for end in ends])
        )
        self.runner.mirror_board(self.run, self._session)
        if not self.delegation.digest_enabled:
            return
        results = [
            (end.assignment.worker, self._shareable(end).output)
            for end in self._history[-1][1]
            if end.status == "finished"
        ]
        children = [end.digest for end in ends if end.digest]
        self._digest = digest_of_iteration(
            self._task, results, prior=self._digest, iteration=iteration, run_id=self.run.id, children=children
        )  # fmt: skip
        sources = [end.position for end in ends if end.status == "finished"]
        sources += [self._digest_position] if self._digest_position else []
        request = Digested(self.run.id, self._digest, tuple(sources))
        self._digest_position = self._session.write("delegations.digest", request)


CLOSED_AS = {"complete": "completed", "partial": "partial", "failed": "failed"}


def _was_deferred(step: Mapping[str, Any] | None) -> bool:
    """Whether a dispatch was deferred before: the decisions that followed it rest on that."""
    return step is not None and step["status"] == SKIPPED and step["reason"].startswith(DEFERRED)


def _size(value: object) -> int:
    return len(json.dumps(value, ensure_ascii=False, default=str))


def _summary(output: Mapping[str, Any]) -> dict[str, Any]:
    """What is left of a result that is too long ago to be told whole."""
    kept = {name: output[name] for name in ("summary", "status", "confidence") if name in output}
    return {name: value[:240] if isinstance(value, str) else value for name, value in kept.items()}
