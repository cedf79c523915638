"""Beginning runs and reading them again: `book.run` and `book.runs`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from .access.commands import deny, record_denial
from .access.redact import Redactor
from .access.rights import OWNER
from .errors import BadInput, Conflict, NotFound, shown
from .ledger.checks import check_name, check_text
from .ledger.encoding import encode_payload
from .ledger.events import new_id as new_event_id
from .ledger.printing import Readable
from .memory.verbs import Memory
from .state.cells import State
from .state.diff import Difference, differences
from .state.diff import redacted as redacted_differences
from .state.events import OPENED
from .state.policy import Policy, Start
from .state.redaction import redactor_of
from .state.requests import Merged, Open
from .state.rows import OpenedRun, find_run, no_run, totals_of
from .state.sharing import is_known, takes_part
from .verbs import RunId, verb

if TYPE_CHECKING:
    from .ledger.ledger import At
    from .ledger.reader import Snapshot
    from .run import Run
    from .session import Session
    from .workflow.agents import AgentFunction, Ask
    from .workflow.model import Workflow
    from .workflow.runner import Outcome, Tell


class RunInfo(Readable, msgspec.Struct, frozen=True):
    """A run as the ledger knows it: its id, the position of its first event, and if it has a state, how it
    stands and what it belongs to."""

    id: str
    first: int
    status: str | None = None
    workflow: str | None = None
    parent: str | None = None
    forked_from: str | None = None
    by: str | None = None

    def __str__(self) -> str:
        words = [self.status or "without a state", self.workflow and f"workflow {self.workflow}"]
        words += [
            self.parent and f"within {self.parent}",
            self.forked_from and f"forked from {self.forked_from}",
        ]
        return f"{self.id}: {', '.join(word for word in words if word)}"


RunInfos = list[RunInfo]
Differences = list[Difference]
Commands = list[str]


def run(
    session: Session,
    workflow: str | Path | Workflow | None = None,
    run_id: str | None = None,
    initial: Mapping[str, Any] | None = None,
    create: bool = True,
    *,
    scope: str | None = None,
) -> Run:
    """Begin a run, or continue the one with this `run_id`. With `create=False` raises NotFound if there is none. Raises
    Conflict for an id that is taken in a scope that this actor does not read.

    `workflow` is a folder with a workflow.awp.yaml, whose rules hold in the run; without one every agent may take part
    and sees everything.

    `run_id` is the id of the run, which begins one if there is none of that id. `create` is whether to begin a run
    that is not there.
    """
    from .run import Run

    session = session.in_scope(scope)
    only_looks = session.refusal and run_id is not None and workflow is None and initial is None
    if not create or only_looks:
        return existing_run(session, "" if run_id is None else run_id)
    session.check_may_act("run")
    id = new_event_id() if run_id is None else check_name("run_id", run_id)
    plan = _plan(workflow)
    policy = Policy() if plan is None else replace(plan.policy, max_depth=plan.max_depth)
    place = (None, None) if plan is None else (Path(plan.folder), plan.persistence)
    opened = Run(session, id, *place)
    values = encode_payload(initial or {})[1]
    if run_id is None or not _is_there(session, id):
        named = {} if plan is None else {"name": plan.name, "version": plan.version}
        start = Start() if plan is None else plan.start
        try:
            session.write("state.open", Open(id, session.actor, policy, start, values, named))
            if plan is not None and session.is_owner and not session.scope:
                _configure_memory(session, plan)
            opened._begun()
            return opened
        except Conflict:
            if not _is_there(session, id):
                raise
    known = _check_same_run(session, id, None if plan is None else (plan.name, policy), values)
    return Run(session.within(known.scope), id, *place)


class Runs:
    """All runs of a book: `book.runs`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @verb
    def list(self, at: At = None, *, scope: str | None = None) -> RunInfos:
        """The runs that this actor may know of, in the order in which they were first seen."""
        session = self._session.narrowed(scope)
        with session.snapshot(at) as snapshot:
            first = {str(key[0]): int(position) for key, position in snapshot.scan("runs")}
            if not session.is_unbound_owner:
                with session.visibility.judging(None if at is None else snapshot.position) as judge:
                    visible = judge.visible_runs(first)
                first = {id: position for id, position in first.items() if id in visible}
            runs = [_run_info(snapshot, id, position) for id, position in first.items()]
        return sorted(runs, key=lambda info: info.first)

    @verb
    def get(self, run_id: RunId | Run | RunInfo) -> Run:
        """An existing run. Raises NotFound."""
        return existing_run(self._session, _id_of(run_id))

    @verb
    def state(self, run_id: RunId | Run | RunInfo, at: At = None) -> State:
        """The state of a run as of `at`, as far as this actor may see it."""
        return self.get(run_id).state(at)

    @verb(not_served="it runs programs of the host: run the workflow where the agents are")
    def execute(
        self,
        workflow: str | Path | Workflow,
        *,
        agents: Mapping[str, AgentFunction | str | Commands] | None = None,
        run_id: str | None = None,
        initial: Mapping[str, Any] | None = None,
        ask: Ask | None = None,
        tell: Tell | None = None,
    ) -> Outcome:
        """Run a workflow's graph to its end. With the `run_id` of an unfinished run, continue it: agents that have
        finished are not run again.

        `agents` maps agents to functions (sync or async, called with their turn, returning their output),
        `"module:function"` or commands; other agents are run as their files say. `ask` answers for people in
        interactive loops; `tell` is called with every step. Raises RunFailed, or BadWorkflow with every error in the
        files. Only the owner executes workflows.

        `workflow` is the folder with workflow.awp.yaml. `run_id` is the id of the run.
        """
        from .workflow.runner import run_workflow

        plan = _plan(workflow)
        if plan is None:
            raise BadInput("give the folder with workflow.awp.yaml")
        if not self._session.is_owner:
            deny(self._session, "execute", plan.name, "only the owner executes workflows")
        return run_workflow(
            self._session,
            plan,
            agents=agents,
            run_id=run_id,
            initial=initial,
            ask=ask,
            tell=tell or (lambda _news: None),
        )

    @verb(reads=False)
    def fork(self, run_id: RunId | Run | RunInfo, at: At = None, new_id: str | None = None) -> Run:
        """A new run that begins as another one was at `at`.

        `new_id` is an id for the new run."""
        return self.get(run_id).fork(at, new_id)

    @verb
    def diff(self, a: str | Run | RunInfo, b: str | Run | RunInfo, *, redacted: bool = False) -> Differences:
        """What differs between two states, each a run's id, or `id@position` for an earlier one; with `redacted`, as a
        log or a page may show it.

        `a` is a run, or RUN@POSITION. `b` is the other one. `redacted` leaves secrets out."""
        states, hide = [], Redactor()
        for run in (a, b):
            id, at = _id_and_position(check_text("a run to compare", _id_of(run)))
            states.append(self.state(id, at))
            with self._session.snapshot() as snapshot:
                hide |= redactor_of(snapshot, id, self._session.actor)
        changes = differences(*states)
        return redacted_differences(changes, hide) if redacted else changes

    @verb
    def merge(self, fork: RunId | Run | RunInfo, prefer: str | None = None) -> Merged:
        """Bring what a fork has written back into the run it came from: see `Run.merge`.

        `fork` is the id of the fork."""
        return self.get(fork).merge(prefer)


def _id_of(run: str | Run | RunInfo) -> str:
    from .run import Run

    return run.id if isinstance(run, Run | RunInfo) else run


def _id_and_position(name: str) -> tuple[str, int | None]:
    """A run's id and a position from `id@position`; None when only the id is given."""
    id, mark, position = name.rpartition("@")
    if mark and id and position.isascii() and position.isdigit() and len(position) < 20:
        return id, int(position)
    return name, None


def existing_run(session: Session, run_id: str) -> Run:
    """A run that is there and that this actor takes part in. Raises NotFound."""
    from .run import Run

    return Run(session.within(_opened(session, run_id).scope), run_id)


def _opened(session: Session, run_id: str) -> OpenedRun:
    run_id = check_name("run_id", run_id)
    with session.snapshot() as snapshot:
        opened = find_run(snapshot, run_id)
        takes = opened is not None and takes_part(snapshot, run_id, opened, session.actor)
    if opened is None or not takes:
        if not session.is_owner:  # in both cases, so that not even the book's length tells which it was
            record_denial(session.acting_as(session.actor, run_id), "run", run_id)
        raise NotFound(no_run(run_id))
    return opened


def _check_same_run(
    session: Session, id: str, plan: tuple[str, Policy] | None, values: Mapping[str, Any]
) -> OpenedRun:
    """Check that a run that is there is the one that was meant. Raises Conflict; NotFound for an actor that takes no
    part in it."""
    opened = _opened(session, id)
    if plan is not None and plan != (opened.workflow.get("name", ""), opened.policy):
        raise Conflict(
            f"the run {id!r} was started under other rules than this workflow's: continue it with the files it "
            "was started from, or choose another run_id"
        )
    if values and session.actor not in (OWNER, opened.by):
        raise Conflict(f"the run {id!r} is there already: leave initial out to take part in it")
    if values:
        _check_same_start(session, id, values)
    return opened


def _configure_memory(session: Session, plan: Workflow) -> None:
    """Take over the settings of memory that a workflow's files name. What they do not name stays as it is."""
    named: dict[str, Any] = {}
    for tier, name in (("long_term", "max_size_kb"), ("working", "retention_days")):
        if tier in plan.memory.tiers and name in plan.memory.tiers[tier].settings:
            named[name] = int(plan.memory.tiers[tier].settings[name])
    if named:
        Memory(session).configure(**named)


def _is_there(session: Session, run_id: str) -> bool:
    with session.snapshot() as snapshot:
        return is_known(snapshot, run_id, session.actor)


def _run_info(snapshot: Snapshot, id: str, first: int) -> RunInfo:
    opened = find_run(snapshot, id)
    if opened is None:
        return RunInfo(id, first)
    forked = None if opened.fork is None else opened.fork.run
    status, workflow = totals_of(snapshot, id).status, opened.workflow.get("name")
    return RunInfo(id, first, status, workflow, opened.parent, forked, opened.by)


def _plan(workflow: str | Path | Workflow | None) -> Workflow | None:
    if workflow is None:
        return None
    from .workflow.load import load
    from .workflow.model import Workflow

    if isinstance(workflow, Workflow):
        return workflow
    if not isinstance(workflow, str | Path):
        raise BadInput(f"{shown(workflow)} is not a workflow: give the folder with workflow.awp.yaml")
    return load(Path(workflow))


def _check_same_start(session: Session, id: str, values: Mapping[str, Any]) -> None:
    """Continuing a run under other start values than its own would lose them silently. Raises Conflict."""
    opened = next(session.ledger.events(run_id=id, kinds=(OPENED,)))
    if opened.erased:
        return
    recorded: dict[str, Any] = {}
    for agent, field, value in opened.payload["initial"]:
        if agent:
            recorded.setdefault(agent, {})[field] = value
        else:
            recorded[field] = value
    other = sorted(name for name, value in values.items() if recorded.get(name) != value)
    if other:
        raise Conflict(
            f"the run {id!r} was started with other values of {', '.join(other)}: leave initial out to continue "
            "it, or choose another run_id"
        )
