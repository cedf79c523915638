"""The runner: does a workflow's graph, node by node, and can be killed anywhere.

What has happened is in the ledger and nowhere else: each node's beginning and end is an event, and an output is
written in the same commit as the end of the turn that made it. A runner that resumes a run reads how far each node has
come, and continues; a node that had not ended is done again, one that had is not.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ..access.redact import Redactor
from ..access.rights import EVERYBODY
from ..errors import BadInput, RunFailed, UnsafePath
from ..files.safe import Folder
from ..learn.board import board_entries
from ..learn.curator import CuratorReport, curated_files, curated_items, curated_safely, merged_reports
from ..ledger.printing import Readable
from ..memory.curate import scheduled_curation
from ..memory.curation import Curated
from ..run import Run, Turn, file_name
from ..runs import run as open_run
from ..state.cells import State
from ..state.requests import FAILED, FINISHED, SKIPPED, RunStep
from .agents import (
    AgentFailed,
    AgentFunction,
    AgentTask,
    Ask,
    Interrupted,
    call,
    find_agent,
    secret_environment,
)
from .briefing import Left
from .delegation import CLOSED_AS, DelegationLoop, LoopEnd, with_participants
from .leading import leading
from .model import Agent, Delegation, Node, Workflow
from .nodes import AGAIN, FOLLOWS_FAILURE, NodeRun
from .passing import task_of

if TYPE_CHECKING:
    from ..session import Session

log = logging.getLogger("commonplace")

CURATED = "memory"
"""The folder beside a workflow that shows what was learned in its runs."""
ENDED = (FINISHED, FAILED, SKIPPED)
NO_GRAPH = "the workflow has no graph, so nothing was run: write nodes into orchestration.graph"

Agents = Mapping[str, AgentFunction | str | list[str]]
"""How agents are run: by a function, by `module:function`, or by a command."""


class News(msgspec.Struct, frozen=True):
    """One step of a run, for a program that draws it."""

    run: str
    node: str
    status: str
    detail: str = ""


Tell = Callable[[News], None]


class Outcome(Readable, msgspec.Struct, frozen=True):
    """How a run ended. `steps` maps each node to how it ended; `errors` holds what went wrong on the way."""

    run_id: str
    status: str
    steps: dict[str, str]
    errors: tuple[dict[str, Any], ...]
    seconds: float
    reason: str = ""
    curation: CuratorReport | None = None
    """What the curator has kept of a delegation for the next run."""
    curated: Curated | None = None
    """What was taken from the daily logs into long-term memory, if the workflow's file asks for it after a run."""

    @property
    def why(self) -> str:
        """Why it failed, in the words of its last error."""
        return str(self.errors[-1]["message"]) if self.errors else self.reason or "nobody said why"

    def __str__(self) -> str:
        steps = ", ".join(f"{node} {status}" for node, status in self.steps.items())
        reason = f" ({self.reason})" if steps and self.reason else ""
        return f"run {self.run_id} {self.status} in {self.seconds:.1f} s: {steps or self.reason}{reason}"


class Runner:
    """One execution of a workflow in a run."""

    def __init__(
        self,
        session: Session,
        workflow: Workflow,
        run: Run,
        agents: Agents,
        ask: Ask | None = None,
        tell: Tell = lambda _news: None,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        self.session = session
        self.workflow = workflow
        self.run = run
        self.ask = ask
        self.interrupted = threading.Event()
        self.pause = pause or self.interrupted.wait
        self.hide = Redactor(secrets=secret_environment(workflow))
        self.live: set[AgentTask] = set()
        self.reopened = False
        """Whether the run had ended and was let go on."""
        self.slots = threading.BoundedSemaphore(_at_once(workflow))
        """How many workers of delegations may be at work at the same time."""
        self.reports: list[CuratorReport] = []
        """What the curator has kept of each delegation."""
        self.steps: dict[str, dict[str, Any]] = {}
        """How far each node has come."""
        self._agents = agents
        self._tell = tell
        total = None if workflow.delegation is None else workflow.delegation.budget.max_wall_time
        self._ends = time.monotonic() + (workflow.execution.timeout_total if total is None else total)
        graph = workflow.nodes if workflow.delegation is None else ()
        names = {node.agent for node in graph if node.delegation is None}
        names |= {way.fallback for way in workflow.degradation if graph}
        self.functions = {
            name: find_agent(workflow.agents[name], Path(workflow.folder), agents) for name in names if name
        }

    def inner(self, workflow: Workflow, run: Run) -> Runner:
        """A runner of a subworkflow, which has to end before this one."""
        runner = Runner(self.session, workflow, run, self._agents, self.ask, self._tell, self.pause)
        runner._ends = min(runner._ends, self._ends)
        runner.live, runner.interrupted, runner.reports = self.live, self.interrupted, self.reports
        return runner

    def execute(self) -> Outcome:
        """Do what is left to do. Answers how it ended; raises only what is not about an agent."""
        began = time.monotonic()
        with leading(self.session.ledger.store, self.run.id) as self.lead:
            self.reopened = reopened = self.run.reopen()
            self.steps = self.run.steps()
            for node in self.workflow.nodes:
                if self._to_be_tried_again(node, reopened):
                    self.steps[node.id]["status"] = AGAIN
            stopped: str | None
            if self.workflow.delegation is not None:
                status, stopped = self._do_delegation(self.workflow.delegation)
            else:
                stopped = self._do_graph()
                status = "failed" if stopped else "completed"
            self.run.close(status, stopped or "")
            self.remove_board(self.run)
        curated = self._curated_logs()
        nothing = not self.workflow.nodes and self.workflow.delegation is None
        reason = NO_GRAPH if nothing else self.run.redacted(stopped or "")
        errors = tuple(self.state().get("_errors", ()))
        steps = {node.id: self._status(node.id) for node in self.workflow.nodes}
        if self.workflow.delegation is not None:
            steps = {name: step["status"] for name, step in self.run.steps().items() if "#" in name}
        self.news("", status)
        kept = merged_reports(self.reports) if not self.run.depth else None
        return Outcome(self.run.id, status, steps, errors, time.monotonic() - began, reason, kept, curated)

    def _to_be_tried_again(self, node: Node, reopened: bool) -> bool:
        """A node that has failed and should not have is done again when the run is resumed. One that may fail is
        only tried again when the run as a whole had failed."""
        step = self.steps.get(node.id)
        if step is None:
            return False
        if step["status"] == FAILED:
            return reopened or (node.on_failure or self.workflow.execution.on_error) != "continue"
        return reopened and step["reason"].startswith(FOLLOWS_FAILURE)

    def state(self) -> State:
        """All of the state as it is, also under a model whose readers see a projection."""
        return self.run.state(at=self.session.ledger.head)

    @property
    def seconds_left(self) -> float:
        return self._ends - time.monotonic()

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
                    ready = self._ready(running) if stopped is None and trouble is None else []
                    for node in ready[: max(0, width.now - len(running))]:
                        future = running[node.id] = pool.submit(
                            copy_context().run, NodeRun(self, node).attempts
                        )
                        future.add_done_callback(lambda _future, id=node.id: done.put(id))  # type: ignore[misc]
                    if not running:
                        if trouble is not None:
                            raise trouble
                        return stopped
                    ended = running.pop(done.get())
                    trouble = trouble or ended.exception()
                    reason = None if ended.exception() else ended.result()
                    width.learn(well=reason is None)
                    if reason is None and self.seconds_left < 0:
                        reason = f"it took longer than {self.workflow.execution.timeout_total:g} s in all"
                    stopped = stopped or reason
            except BaseException:  # Ctrl-C: nobody is waited for, and the run stays open to be continued
                self.interrupt()
                raise

    def _ready(self, running: Collection[str]) -> list[Node]:
        """The nodes that have not begun and whose dependencies have all ended, in file order."""
        ended = {node.id for node in self.workflow.nodes if self._status(node.id) in ENDED} - set(running)
        return [
            node
            for node in self.workflow.nodes
            if node.id not in running
            and node.id not in ended
            and all(dependency.id in ended for dependency in node.depends_on)
        ]

    # delegation

    def _do_delegation(self, delegation: Delegation) -> tuple[str, str]:
        """Run the manager's loop. Answers how the run ends, and why."""
        try:
            state = self.state()
            origin = state.sources(*(name for name in ("task", "goal") if name in state))
            end = self.delegated(self.run, delegation, task_of(state, self.workflow), origin)
        except BaseException:
            self.interrupt()
            raise
        if end.status == "complete":
            self.lead.check()
            step = RunStep(self.run.id, delegation.manager, FINISHED, iteration=end.iterations)
            Turn(self.run, delegation.manager).write_with(
                end.result, step, contract=False, sources=end.positions
            )
        self.curate(self.run, delegation)
        return CLOSED_AS[end.status], end.reason

    def delegated(self, run: Run, delegation: Delegation, task: str, origin: tuple[int, ...] = ()) -> LoopEnd:
        """The end of a root manager's loop in a run. `origin` are the positions of what the task comes from."""
        budget, ends = delegation.budget, self._ends
        if budget.max_wall_time is not None:
            ends = min(ends, time.monotonic() + budget.max_wall_time)
        left = Left(
            budget.max_loops, budget.max_total_workers, budget.max_workers_per_iteration, budget.max_total_chars
        )  # fmt: skip
        manager, function = delegation.manager, self.function_of(delegation.manager, delegation)
        loop = DelegationLoop(
            self, run, delegation, task, left, manager=manager, function=function, ends=ends, origin=origin
        )  # fmt: skip
        return loop.execute()

    def close_loop(self, run: Run, end: LoopEnd) -> None:
        """Close the run of a loop that is within another run, and remove its board."""
        if run.status == "running":
            run.close(CLOSED_AS[end.status], end.reason)
            self.remove_board(run)

    def mirror_board(self, run: Run, session: Session) -> None:
        """Write the board of a manager's run beside the workflow, one JSON object per line, for people to follow. It is
        removed when the run ends."""
        if self.workflow.folder and self.workflow.persistence.enabled:
            with session.snapshot() as now:
                entries = board_entries(session, now, run.id)
            if entries:
                lines = b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
                self._beside(run, {board_path(self.workflow, run): lines})

    def remove_board(self, run: Run) -> None:
        """Remove the board of a run that ends."""
        if self.workflow.folder and self.workflow.persistence.enabled:
            try:
                Folder(Path(self.workflow.folder).resolve()).unlink(board_path(self.workflow, run))
            except FileNotFoundError:
                pass  # nothing was posted
            except (OSError, UnsafePath) as error:
                log.warning("the board of the run %s stays beside the workflow: %s", run.id, error)

    def _beside(self, run: Run, files: Mapping[str, bytes]) -> None:
        """Write files beside the workflow that show what the book holds of a run. Erasing finds them."""
        folder = Folder(Path(self.workflow.folder).resolve())
        for path, data in files.items():
            self.session.services.outside.saved(run.id, folder.path, path)
            try:
                folder.write(path, data)
            except (OSError, UnsafePath) as error:
                log.warning("%s cannot be written beside the workflow (%s); the book has it", path, error)

    def curate(self, run: Run, delegation: Delegation) -> None:
        """Keep what a root manager's loop has learned for the next run of the workflow."""
        if not delegation.auto_curation_enabled:
            return
        report = curated_safely(self.session, run.id, self.workflow.name)
        if self.workflow.folder and not report.errors:
            folder = Folder(Path(self.workflow.folder).resolve())
            files = dict[str, bytes]()
            for file in curated_files(curated_items(self.session, self.workflow.name)):
                path = f"{CURATED}/{file.path}"
                before = (folder.read(path) or b"").decode("utf-8", "replace")
                if (after := file.added_to(before)) != before:
                    files[path] = after.encode()
            self._beside(run, files)
        self.reports.append(report)

    def known_workers(self, delegation: Delegation) -> tuple[str, ...]:
        """The workers that have a file or a function of their own."""
        named = {*self.workflow.agents, *(name for name in self._agents if name != EVERYBODY)}
        return tuple(sorted(named - {delegation.manager, delegation.worker}))

    def _curated_logs(self) -> Curated | None:
        """At the end of a run that is within no other one, curate the daily logs as the workflow's file says. The run
        has ended by then: what fails here is told, and changes nothing."""
        if self.run.depth:
            return None
        try:
            return scheduled_curation(self.session, self.workflow.memory.curation, datetime.now(UTC))
        except Exception as error:
            log.exception("the daily logs were not curated")
            self.news("", "curation failed", self.run.redacted(f"{type(error).__name__}: {error}"))
            return None

    def function_of(
        self, name: str, delegation: Delegation, default: AgentFunction | None = None
    ) -> AgentFunction:
        """How an agent of a delegation is called: as the caller says, as its file says, as the loop's worker is, or as
        the caller says of every other one (`*`). Raises BadInput."""
        return function_of(self.workflow, self._agents, name, delegation, default)

    def called(
        self, function: AgentFunction, task: AgentTask, timeout: float | None = None
    ) -> dict[str, Any]:
        """What an agent answers, without secret values of the environment. Raises AgentFailed."""
        left = self.seconds_left
        if self.interrupted.is_set():
            raise Interrupted
        if left <= 0:
            raise AgentFailed("the run's time is over", "timeout")
        self.live.add(task)
        try:
            most = self.workflow.execution.timeout_per_agent if timeout is None else timeout
            answer: dict[str, Any] = self.hide(call(function, task, min(most, left)))
        except AgentFailed:
            raise
        except BaseException:  # Ctrl-C while this thread waits for it
            task.interrupt()
            raise
        finally:
            self.live.discard(task)
        return answer

    def interrupt(self) -> None:
        """Wait for nobody any more: what agents that are at work write from now on is refused."""
        self.interrupted.set()
        for task in list(self.live):
            task.interrupt()

    def mark(self, step: RunStep) -> None:
        """Record how far a node has come."""
        self.lead.check()
        self.run.step(
            step.node,
            step.status,
            attempt=step.attempt,
            iteration=step.iteration,
            reason=step.reason,
            error=step.error,
        )
        self.note(step)

    def note(self, step: RunStep) -> None:
        """Remember how far a node has come, and tell it."""
        self.steps[step.node] = {
            "status": step.status,
            "reason": step.reason,
            "attempt": step.attempt,
            "iteration": step.iteration,
        }
        self.news(step.node, step.status, step.reason)

    def news(self, node: str, status: str, detail: str = "") -> None:
        self._tell(News(self.run.id, node, status, detail))


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


def _at_once(workflow: Workflow) -> int:
    """How many workers may be at work at the same time: one, if the file says so."""
    orchestration = workflow.document.get("orchestration")
    execution = orchestration.get("execution") if isinstance(orchestration, dict) else None
    in_turn = isinstance(execution, dict) and execution.get("mode") == "sequential"
    return 1 if in_turn else max(1, workflow.execution.max_concurrent)


def board_path(workflow: Workflow, run: Run) -> str:
    """Where the board of a manager's run lies beside the workflow: one file for each run and depth."""
    memory = workflow.document.get("memory")
    workspace = memory.get("workspace_dir") if isinstance(memory, dict) else None
    return f"{workspace or 'workspace'}/blackboard/{file_name(run.id)}-{run.depth}.jsonl"


def function_of(
    workflow: Workflow,
    agents: Agents,
    name: str,
    delegation: Delegation,
    default: AgentFunction | None = None,
) -> AgentFunction:
    """How an agent of a delegation is called. Raises BadInput."""
    folder = Path(workflow.folder)
    for known in (name, delegation.worker if name != delegation.manager else ""):
        if known in agents or (known in workflow.agents and _says_how(workflow.agents[known])):
            return find_agent(workflow.agents.get(known, Agent(known)), folder, agents)
    if default is not None:
        return default
    if EVERYBODY in agents and name != delegation.manager:
        return find_agent(Agent(EVERYBODY), folder, agents)
    what = "manager" if name == delegation.manager else "worker"
    raise BadInput(
        f"nobody says how to run the {what} {name!r}: give agents={{{name!r}: function}}"
        + (", or '*' for every worker" if what == "worker" else "")
        + f", or write runtime.callable: module:function into agents/{name}/agent.awp.yaml"
    )


def _says_how(agent: Agent) -> bool:
    return any(agent.runtime.get(name) for name in ("callable", "entrypoint", "command"))


def _delegations(workflow: Workflow) -> list[Delegation]:
    """The delegation loops of a workflow, in place of its graph or at its nodes."""
    each = (workflow.delegation, *(node.delegation for node in workflow.nodes))
    return [delegation for delegation in each if delegation is not None]


def _outcome_of(run: Run) -> Outcome:
    """The outcome of a delegation that had completed before."""
    steps = {name: step["status"] for name, step in run.steps().items() if "#" in name}
    return Outcome(run.id, run.status, steps, tuple(run.state().get("_errors", ())), 0.0)


def run_workflow(
    session: Session,
    workflow: Workflow,
    *,
    agents: Agents | None = None,
    run_id: str | None = None,
    initial: Mapping[str, Any] | None = None,
    ask: Ask | None = None,
    tell: Tell = lambda _news: None,
) -> Outcome:
    """Run a workflow to its end, or continue the run of this id. Raises RunFailed if it does not end well."""
    names = {node.agent for node in workflow.nodes} | {way.fallback for way in workflow.degradation}
    names |= {agent for inner in workflow.subworkflows.values() for agent in inner.agents}
    if agents is not None and not isinstance(agents, Mapping):
        raise BadInput("agents is a mapping of agents to functions: give {'writer': write}")
    every = [workflow, *workflow.subworkflows.values()]
    loops = [(each, delegation) for each in every for delegation in _delegations(each)]
    unknown = [] if loops else sorted(str(name) for name in (agents or {}) if name not in names)
    if unknown:
        raise BadInput(
            f"{', '.join(unknown)} is no agent of {workflow.name!r}: its agents are {', '.join(sorted(names - {''}))}"
        )
    managers = {delegation.manager for delegation in _delegations(workflow)}
    needed = names & workflow.agents.keys() - managers if workflow.delegation is None else set()
    for id in sorted(needed):  # before anything begins
        find_agent(workflow.agents[id], Path(workflow.folder), agents or {})
    for each, delegation in loops:
        function_of(each, agents or {}, delegation.manager, delegation)
    if workflow.delegation is not None:
        manager = workflow.delegation.manager
        if manager in {**workflow.start.initial, **workflow.start.auto_inject, **(initial or {})}:
            raise BadInput(f"initial has a value called {manager!r}, as the manager is: give it another name")
        policy = with_participants(workflow.policy, workflow.delegation.manager)
        workflow = replace(workflow, policy=policy)
    run = open_run(session, workflow, run_id, initial)
    if workflow.delegation is not None and run.status == "completed":
        return _outcome_of(run)
    outcome = Runner(session, workflow, run, agents or {}, ask, tell).execute()
    if outcome.status == "failed":
        raise RunFailed(
            f"the run {run.id!r} failed: {outcome.why}. Mend the cause and continue it "
            f"(run_id={run.id!r}); agents that have finished are not run again",
            run.id,
            outcome.errors,
        )
    return outcome
