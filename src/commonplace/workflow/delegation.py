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
from contextvars import copy_context
from functools import partial
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace
from referencing.exceptions import Unresolvable

from ..access.masking import masked
from ..access.rights import OWNER
from ..errors import BadInput, Conflict, ContractViolation, TooLarge
from ..learn.board import board_entries
from ..learn.context_digest import (
    ContextDigest,
    confidence_of,
    digest_of_iteration,
)
from ..learn.curator import REDUNDANT, prior_for_manager
from ..learn.delegations import BoardEntry, Digested, RecordPlan, delegation_of, digest_at, plans
from ..learn.plans import Assignment, ManagerDecision, decision_of, read_answer
from ..ledger.checks import MAX_NAME
from ..ledger.encoding import encode_payload
from ..run import Run, Turn
from ..state.cells import size_of
from ..state.contract import violations
from ..state.policy import MB, Policy, reserved
from ..state.requests import FAILED, FINISHED, RETRYING, SKIPPED, STARTED, RunStep
from ..state.rows import find_run, opened_run
from ..state.sharing import hidden_fields, without
from .agents import (
    REFUSALS,
    TEXT,
    AgentFailed,
    AgentFunction,
    AgentTask,
    Interrupted,
    as_failure,
    wait_before,
)
from .briefing import Briefing, Left, ManagerTurn, WorkerTask
from .model import Delegation
from .passing import inherited

if TYPE_CHECKING:
    from ..session import Session
    from .runner import Runner

MOST_SOURCES = 1_000
"""How many of the results that something comes from are named as its sources."""
DEFERRED = "deferred"
OUT_OF_TIME = "the time is used up"
UNUSABLE = (*REFUSALS, TooLarge, ValueError, RecursionError, Unresolvable)
"""What is wrong with an answer: the agent is told, or has failed."""
ANSWERS = 2
"""How often a manager may answer in a form that cannot be read before the loop fails."""


class Spent(NamedTuple):
    workers: int = 0
    chars: int = 0

    def plus(self, other: Spent) -> Spent:
        return Spent(self.workers + other.workers, self.chars + other.chars)


class WorkerEnd(msgspec.Struct, frozen=True):
    """What became of an assignment: its output, or why there is none."""

    assignment: Assignment
    status: Literal["finished", "failed", "redundant", "deferred", "unfinished"]
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


Ending = Literal["complete", "partial", "failed"]


class LoopEnd(msgspec.Struct, frozen=True):
    """How a manager's loop ended: by its own word (complete, failed), or by its budget or for lack of progress
    (partial)."""

    status: Ending
    reason: str = ""
    result: dict[str, Any] = {}
    digest: str = ""
    iterations: int = 0
    workers: int = 0
    chars: int = 0
    positions: tuple[int, ...] = ()
    """Where what it comes from is recorded."""


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
        ends: float,
        origin: tuple[int, ...] = (),
        root: bool = True,
    ) -> None:
        """`ends` is when its time is over, by the monotonic clock; `origin` are the positions of what the task comes
        from."""
        self.runner, self.run, self.delegation = runner, run, delegation
        self._task, self._limits, self._manager = task, left, manager
        self._function, self._ends, self._origin, self._root = function, ends, origin, root
        self._session = runner.session.within(run._opened.scope).acting_as(runner.session.actor, run.id)
        self._policy = run.policy
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
        steps, seen = self.run.steps(), 0
        for iteration in count(1):
            known = recorded.get(iteration)
            if known is None and (why := self._over(iteration)):
                return self._end("partial", why, iteration - 1)
            try:
                plan, position, seen = self._recorded(known) if known else self._asked(iteration, seen)
                decision = decision_of(plan, iteration)
            except AgentFailed as failure:
                if self._seconds_left <= 0:
                    return self._end("partial", OUT_OF_TIME, iteration - 1)
                return self._end("failed", f"{self._manager} failed: {self._plain(failure)}", iteration - 1)
            self._spent = self._spent.plus(Spent(0, _size(plan)))
            if decision.action == "complete":
                return self._end("complete", "", iteration, decision.result)
            if decision.action == "fail":
                return self._end("failed", decision.reason, iteration)
            self._warnings = []
            ends = self._dispatched(iteration, decision, position, steps)
            if any(end.status == "unfinished" for end in ends):
                return self._end("partial", OUT_OF_TIME, iteration)
            self._keep(iteration, ends, position, steps)
            if why := self._stalled():
                if known is None or not self.runner.reopened or iteration + 1 in recorded:
                    return self._end("partial", why, iteration)
                self._idle = 0  # somebody has let it go on
        raise AssertionError("the loop ends by a return")

    @staticmethod
    def _recorded(row: Mapping[str, Any]) -> tuple[dict[str, Any], int, int]:
        return row["plan"], int(row["position"]), int(row["seen"])

    def _end(
        self, status: Ending, reason: str, iterations: int, result: Mapping[str, Any] | None = None
    ) -> LoopEnd:
        digest = "" if self._digest is None else self._digest.address
        return LoopEnd(
            status, reason, dict(result or {}), digest, iterations, *self._spent, self._positions()
        )

    def _positions(self) -> tuple[int, ...]:
        """Where the results of its workers, and its last digest, are recorded."""
        results = (end.position for _, ends in self._history for end in ends if end.position)
        found = dict.fromkeys((*results, *([self._digest_position] if self._digest_position else ())))
        return (*self._origin, *list(found)[-MOST_SOURCES:])

    def _plain(self, failure: BaseException) -> str:
        """What an error says, without secrets."""
        return str(masked(self.run.redacted(self.runner.hide(str(failure)))))

    # the manager

    def _asked(self, iteration: int, since: int) -> tuple[dict[str, Any], int, int]:
        """Ask the manager, and record what it decides. Answers the decision, its position, and up to where the manager
        has seen the board. Raises AgentFailed."""
        retry, attempt = self.runner.workflow.execution.retry, 0
        while True:
            attempt += 1
            self.runner.lead.check()
            turn, seen = self._manager_turn(iteration, attempt, since)
            try:
                answer = self._called(self._function, turn)
                plan = self.runner.hide(read_answer(answer.get(TEXT, answer)))
                decision = decision_of(plan, iteration)
                _, plan, _ = encode_payload(plan)
                self._check(decision)
                break
            except AgentFailed as failure:
                if attempt >= retry.max_attempts or failure.reason not in retry.retryable:
                    raise
                self._pause(wait_before(retry, attempt))
            except UNUSABLE as error:
                if attempt >= max(ANSWERS, retry.max_attempts):
                    raise as_failure(error) from None
                self._warnings.append(f"your last answer could not be used: {self._plain(error)}")
        self.runner.news(self._manager, decision.action, f"iteration {iteration}")
        if decision.action == "fail":  # the end of the run says so; a manager that is resumed is asked again
            return plan, 0, seen
        self.runner.lead.check()
        request = RecordPlan(self.run.id, iteration, self._manager, plan, seen, self._positions())
        position: int = self._session.write("delegations.plan", request)
        return plan, position, seen

    def _check(self, decision: ManagerDecision) -> None:
        """Raises what a manager has to mend in its decision."""
        for each in decision.workers:
            if each.worker in (self._manager, self.delegation.manager):
                raise BadInput(f"{each.worker} is a manager itself: dispatch to another worker_id")
            self._check_name(each.worker)
            self.runner.function_of(each.worker, self.delegation, self._function if each.submanager else None)
            if each.contract is not None:
                violations(each.contract, {})  # a contract that cannot be read is told to who wrote it
        if decision.action == "complete":
            self._check_output(decision.result)
        agent = self.runner.workflow.agents.get(self._manager)
        contract = None if agent is None else agent.contract
        if decision.action != "complete" or contract is None or "decision" in contract.get("properties", {}):
            return  # a contract that speaks of decisions is about these
        broken = violations(contract, decision.result)
        if broken:
            raise ContractViolation(self._manager, broken)

    def _check_name(self, worker: str) -> None:
        """Raises BadInput for a worker that could not have an entry in the state."""
        with self._session.snapshot() as now:
            opened = opened_run(now, self.run.id)
            taken = opened.parent is None and now.get("state.cells", self.run.id, "", worker) is not None
        if taken:
            raise BadInput(f"the run was started with a value called {worker!r}: choose another worker_id")

    def _check_output(self, output: Mapping[str, Any]) -> None:
        """Raises what keeps an output from being written to the state."""
        if keys := reserved(output):
            raise BadInput(f"{', '.join(keys)} is the runtime's own: leave it out")
        _, plain, _ = encode_payload(output)
        most = self._policy.limits.max_field_size_mb * MB
        if large := [name for name, value in plain.items() if size_of(value) > most]:
            raise BadInput(f"{large[0]!r} is larger than a field may be: write it to a file and name that")

    def _manager_turn(self, iteration: int, attempt: int, since: int) -> tuple[ManagerTurn, int]:
        """The manager's turn, and up to where it sees the board."""
        turn = ManagerTurn(
            self.run, self._manager, attempt=attempt, iteration=iteration, hide=self.runner.hide
        )
        children: tuple[ContextDigest, ...] = ()
        signals: tuple[BoardEntry, ...] = ()
        with self._session.snapshot() as now:
            seen = now.position
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
            self.runner.known_workers(self.delegation),
        )
        return turn, seen

    def _prior(self, turn: ManagerTurn) -> str:
        """What earlier runs have left, for the first turn of a root manager, as far as the manager may read memory. It
        counts as shown it."""
        session = turn._session
        told = self.delegation.auto_curation_enabled and session.rules.enabled and session.reads("long_term")
        if not told:
            return ""
        return prior_for_manager(self._session.acting_as(OWNER), session, self.runner.workflow.name).text

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
        hidden = hidden_fields(self._policy, end.assignment.worker)
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
        return OUT_OF_TIME if self._seconds_left <= 0 else ""

    def _stalled(self) -> str:
        """Why the loop ends for lack of progress, if it does; the manager is warned first."""
        rule = self.delegation.termination
        self._idle = 0 if self._note_progress() else self._idle + 1
        if not rule.enabled or self._idle < rule.window:
            return ""
        why = f"no progress in {self._idle} iterations: nothing new was found, and confidence has not grown"
        if rule.action == "stop" or (rule.action == "warn_then_stop" and self._idle > rule.window):
            return why
        self._warnings.append(f"{why}. Try something else, or complete with what there is")
        return ""

    def _note_progress(self) -> bool:
        """Whether the workers of the last iteration have found something new, or have grown surer. Where they state no
        confidence, or no digests are made, any new answer counts."""
        *earlier, (_, last) = self._history
        before = [end.output for _, ends in earlier for end in ends if end.status == "finished"]
        new = [end.output for end in last if end.status == "finished" and end.output not in before]
        stated = [sure for output in new if (sure := confidence_of(output)) is not None]
        best, facts = max(self._confidences, default=None), self._facts
        self._confidences += stated
        self._facts = frozenset(() if self._digest is None else self._digest.key_facts)
        if not new or len(stated) < len(new) or best is None or self._digest is None:
            return bool(new)
        grown = max(stated) >= best + self.delegation.termination.min_confidence_delta
        return grown or not self._facts <= facts

    # workers

    def _dispatched(
        self, iteration: int, decision: ManagerDecision, position: int, steps: Mapping[str, Mapping[str, Any]]
    ) -> list[WorkerEnd]:
        """Carry out a decision, which was recorded at a position. What was recorded before is not done again."""
        left, most = self._left(iteration), self._limits.workers_per_iteration
        room = min(left.workers, most)
        ends: dict[str, WorkerEnd] = {}
        to_do, same = list[Assignment](), dict[str, str]()
        for each in decision.workers:
            step = _step_of(each, steps)
            if (before := self._known.get(each.signature)) is not None:
                ends[each.name] = self._redundant(each, before, steps)
            elif each.signature in same:
                continue
            elif step.get("status") not in (FINISHED, FAILED) and (len(to_do) >= room or _was_deferred(step)):
                ends[each.name] = self._deferred(each, room, most, steps)
            else:
                same[each.signature] = each.name
                to_do.append(each)
        share = self._share(left, to_do)
        pool = ThreadPoolExecutor(max(1, len(to_do)), thread_name_prefix="commonplace-worker")
        try:
            work = partial(self._done, iteration, share=share, position=position, steps=steps)
            futures = [pool.submit(copy_context().run, work, each) for each in to_do]
            for future in futures:
                end = future.result()
                ends[end.assignment.name] = end
                self._spent = self._spent.plus(Spent(*end.spent))
                if end.status == "finished":
                    self._known[end.assignment.signature] = end
        except BaseException:  # Ctrl-C, or trouble with the store: nobody is waited for
            self.runner.interrupt()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
        for each in decision.workers:  # the same twice in one decision
            if each.name not in ends:
                ends[each.name] = self._redundant(each, ends[same[each.signature]], steps)
        return [ends[each.name] for each in decision.workers]

    def _share(self, left: Left, to_do: Sequence[Assignment]) -> Left:
        """What each sub-manager of a decision may use up: an equal part of what its workers leave, and one part stays
        here."""
        parts = sum(each.submanager for each in to_do) + 1
        workers, chars = max(0, left.workers - len(to_do)) // parts, left.chars // parts
        return replace(self._limits, workers=workers, chars=chars)

    def _redundant(
        self, assignment: Assignment, before: WorkerEnd, steps: Mapping[str, Mapping[str, Any]]
    ) -> WorkerEnd:
        if before.status != "finished":
            reason = f"{before.assignment.name} was told the same and did not finish: {before.reason}"
            self._skip(assignment, reason, steps)
            return WorkerEnd(assignment, "failed", {}, reason)
        reason = f"{REDUNDANT}: {before.assignment.name} was told the same, and this is its result"
        self._skip(assignment, reason, steps)
        self._warnings.append(f"{assignment.worker} was told the same before: its earlier result was taken")
        return WorkerEnd(assignment, "redundant", before.output, reason, before.position)

    def _deferred(
        self, assignment: Assignment, room: int, most: int, steps: Mapping[str, Mapping[str, Any]]
    ) -> WorkerEnd:
        which = f"{most} workers an iteration" if room == most else f"{self._limits.workers} workers"
        reason = f"{DEFERRED}: the budget of {which} is used up"
        self._skip(assignment, reason, steps)
        self._warnings.append(f"{assignment.worker} was not dispatched: the budget of {which} is used up")
        return WorkerEnd(assignment, "deferred", {}, reason)

    def _skip(self, assignment: Assignment, reason: str, steps: Mapping[str, Mapping[str, Any]]) -> None:
        if not _step_of(assignment, steps):
            result = {"signature": assignment.address}
            self.run.step(assignment.name, SKIPPED, reason=reason, result=result, of=assignment.worker)
            self.runner.news(assignment.name, SKIPPED, reason)

    def _done(
        self,
        iteration: int,
        assignment: Assignment,
        share: Left,
        position: int,
        steps: Mapping[str, Mapping[str, Any]],
    ) -> WorkerEnd:
        """Do one assignment, or take what is recorded of it. What lacks the time is left for when the run goes on."""
        step = _step_of(assignment, steps)
        if step.get("status") in (FINISHED, FAILED):
            return _recorded_end(assignment, step)
        try:
            if self._seconds_left <= 0:
                raise AgentFailed(OUT_OF_TIME, "timeout")
            if assignment.submanager:
                return self._submanaged(assignment, share, position)
            return self._worked(iteration, assignment, int(step.get("attempt", 1)))
        except AgentFailed as failure:
            if failure.reason == "timeout" and self._seconds_left <= 0:
                return WorkerEnd(assignment, "unfinished", {}, OUT_OF_TIME)
            return self._failed(assignment, failure)
        except UNUSABLE as error:
            return self._failed(assignment, as_failure(error))

    def _worked(self, iteration: int, assignment: Assignment, attempt: int) -> WorkerEnd:
        retry, runner = self.runner.workflow.execution.retry, self.runner
        while True:
            runner.lead.check()
            result = {"signature": assignment.address}
            self.run.step(assignment.name, STARTED, attempt=attempt, result=result, of=assignment.worker)
            runner.news(assignment.name, STARTED)
            try:
                with runner.slots:
                    output = self._output(iteration, assignment, attempt)
                break
            except AgentFailed as failure:
                if attempt >= retry.max_attempts or failure.reason not in retry.retryable:
                    raise
                reason = self._plain(failure)
                self.run.step(
                    assignment.name, RETRYING, attempt=attempt, reason=reason, result=result, of=assignment.worker
                )  # fmt: skip
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
        self._check_output(output)
        agent = self.runner.workflow.agents.get(assignment.worker)
        self._check_contracts(assignment, output, None if agent is None else agent.contract)
        return output

    def _check_contracts(
        self, assignment: Assignment, output: dict[str, Any], own: dict[str, Any] | None = None
    ) -> None:
        contracts = [contract for contract in (own, assignment.contract) if contract is not None]
        broken = [each for contract in contracts for each in violations(contract, output)]
        if broken:
            raise AgentFailed(
                str(ContractViolation(assignment.worker, broken)), "validation_error", "ContractViolation"
            )

    def _finished(
        self,
        assignment: Assignment,
        output: dict[str, Any],
        spent: tuple[int, int],
        digest: str = "",
        **more: Any,
    ) -> WorkerEnd:
        self.runner.lead.check()
        result = {"signature": assignment.address, "output": output, "spent": list(spent), "digest": digest}
        position = self.run.step(assignment.name, FINISHED, result=result, of=assignment.worker, **more)
        self.runner.news(assignment.name, FINISHED)
        return WorkerEnd(assignment, "finished", output, position=position, digest=digest, spent=spent)

    def _failed(
        self, assignment: Assignment, failure: AgentFailed, spent: tuple[int, int] = (1, 0), **more: Any
    ) -> WorkerEnd:
        message = self._plain(failure)
        error = {"type": failure.type, "reason": failure.reason, "message": message}
        result = {"signature": assignment.address, "spent": list(spent)}
        self.runner.lead.check()
        position = self.run.step(
            assignment.name, FAILED, reason=message, error=error, result=result, of=assignment.worker, **more
        )
        self.runner.news(assignment.name, FAILED, message)
        return WorkerEnd(assignment, "failed", {}, message, position, spent=spent)

    def _pause(self, seconds: float) -> None:
        self.runner.pause(min(seconds, max(0.0, self._seconds_left)))
        if self.runner.interrupted.is_set():
            raise Interrupted

    # sub-managers

    def _submanaged(self, assignment: Assignment, share: Left, position: int) -> WorkerEnd:
        """A loop of its own, in a run one level deeper. `position` is where its manager's decision is recorded."""
        name = assignment.worker
        child = self._child(assignment, position)
        ends = self._ends
        if assignment.timeout is not None:
            ends = min(ends, time.monotonic() + assignment.timeout)
        function = self.runner.function_of(name, self.delegation, self._function)
        loop = DelegationLoop(
            self.runner, child, self.delegation, assignment.instructions, share, manager=name, function=function,
            ends=ends, origin=(position,), root=False,
        )  # fmt: skip
        end = loop.execute()
        if end.reason == OUT_OF_TIME and self._seconds_left <= 0:
            raise AgentFailed(OUT_OF_TIME, "timeout")  # it goes on when this run does
        self.runner.close_loop(child, end)
        spent = (end.workers + 1, end.chars)
        if end.status == "failed":
            failure = AgentFailed(f"the sub-manager {name} failed: {end.reason}")
            return self._failed(assignment, failure, spent, sources=end.positions)
        output = {**end.result, "status": end.status, **({"reason": end.reason} if end.reason else {})}
        try:
            self._check_contracts(assignment, output)
        except AgentFailed as failure:
            return self._failed(assignment, failure, spent, sources=end.positions)
        return self._finished(assignment, output, spent, end.digest, sources=end.positions)

    def _child(self, assignment: Assignment, position: int) -> Run:
        """The run of a sub-manager, opened now or earlier. Raises BadInput if it would be too deep."""
        id = child_id(self.run.id, assignment.name)
        if (opened := opened_below(self._session, self.run, id)) is not None:
            return opened
        state = Turn(self.run, self._manager).state
        only = assignment.inherited_state_keys
        only = self.delegation.inherited_state_keys if only is None else only
        forbidden = (*self.delegation.forbidden_inheritance_keys, *assignment.forbidden_inheritance_keys)
        taken = inherited(state, only, forbidden)
        sources = (position, *state.sources(*taken))
        policy = with_participants(self._policy, assignment.worker)
        return self.run.child(id, policy=policy, inherit={**taken, **assignment.inputs}, sources=sources)

    # after an iteration

    def _keep(
        self, iteration: int, ends: Sequence[WorkerEnd], position: int, steps: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Write what the workers have found to the state, and record the digest of the iteration."""
        last = {end.assignment.worker: end for end in ends if end.status == "finished"}
        for worker, end in last.items():
            if int(steps.get(worker, {}).get("iteration", 0)) < iteration:
                self._write_entry(worker, end, iteration)
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
        sources = [*self._origin, *(end.position for end in ends if end.status == "finished")]
        sources += [self._digest_position] if self._digest_position else []
        request = Digested(self.run.id, self._digest, tuple(sources))
        self._digest_position = self._session.write("delegations.digest", request)

    def _write_entry(self, worker: str, end: WorkerEnd, iteration: int) -> None:
        """Write a result to the state. If that is refused (the state is full), the manager is told; the result is
        recorded anyway."""
        self.runner.lead.check()
        step = RunStep(self.run.id, worker, FINISHED, iteration=iteration)
        try:
            Turn(self.run, worker).write_with(end.output, step, contract=False, sources=(end.position,))
        except UNUSABLE as error:
            self._warnings.append(f"the result of {worker} is not in the state: {self._plain(error)}")


def child_id(run: str, name: str) -> str:
    """The id of a run within another one. One that would be too long ends in a digest."""
    id = f"{run}/{name}"
    return id if len(id) <= MAX_NAME else f"{id[: MAX_NAME - 17]}~{sha256(id.encode()).hexdigest()[:16]}"


def opened_below(session: Session, parent: Run, id: str) -> Run | None:
    """The run with an id, if it was opened within another one before; it goes on if it did not complete. Raises
    Conflict if another run has the name."""
    with session.snapshot() as now:
        opened = find_run(now, id)
    if opened is None:
        return None
    if opened.parent != parent.id:
        raise Conflict(f"{id!r} is another run, and its name is needed within {parent.id!r}")
    run = Run(session, id)
    run.reopen()
    return run


def with_participants(policy: Policy, *names: str) -> Policy:
    """The rules of a delegation in which these agents take part, besides those that are dispatched."""
    others = {name: policy.agent(name) for name in names}
    return replace(policy, agents=None, others={**policy.others, **others}, dispatched_only=True)


def _step_of(assignment: Assignment, steps: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """What is recorded of an assignment; {} if nothing is, or if something else was told to the worker then."""
    step = steps.get(assignment.name, {})
    same = step.get("result", {}).get("signature", assignment.address) == assignment.address
    return step if same else {}


def _recorded_end(assignment: Assignment, step: Mapping[str, Any]) -> WorkerEnd:
    result, position = step["result"], step["position"]
    spent = tuple(result.get("spent", (1, 0)))
    if step["status"] == FAILED:
        return WorkerEnd(assignment, "failed", {}, step["reason"], position, spent=spent)
    return WorkerEnd(
        assignment, "finished", result.get("output", {}), "", position, result.get("digest", ""), spent
    )


CLOSED_AS = {"complete": "completed", "partial": "partial", "failed": "failed"}


def _was_deferred(step: Mapping[str, Any]) -> bool:
    """Whether a dispatch was deferred before: the decisions that followed it rest on that."""
    return step.get("status") == SKIPPED and step["reason"].startswith(DEFERRED)


def _size(value: object) -> int:
    return len(json.dumps(value, ensure_ascii=False, default=str))


def _summary(output: Mapping[str, Any]) -> dict[str, Any]:
    """What is left of a result that is too long ago to be told whole."""
    kept = {name: output[name] for name in ("summary", "status", "confidence") if name in output}
    return {name: value[:240] if isinstance(value, str) else value for name, value in kept.items()}
