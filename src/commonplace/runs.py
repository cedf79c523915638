"""Beginning runs and reading them again: `book.run` and `book.runs`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from .ledger.events import Event
from .ledger.events import new_id as new_event_id
from .memory.verbs import Memory
from .state.cells import About, State, about, no_run, run_at, sums
from .state.diff import Difference, differences
from .state.diff import redacted as redacted_differences
from .state.opening import takes_part
from .state.policy import Policy, Start
from .state.redaction import redactor_of
from .state.requests import OPENED, Merged, Open
from .verbs import RunId, verb

if TYPE_CHECKING:
    from .ledger.ledger import At
    from .ledger.reader import Snapshot
    from .run import Run
    from .session import Session
    from .workflow.agents import AgentFunction, Ask
    from .workflow.model import Workflow
    from .workflow.runner import Outcome, Tell


class RunInfo(msgspec.Struct, frozen=True):
    """A run as the ledger knows it: its id, the position of its first event, and if it has a state, how it
    stands and what it belongs to."""

    id: str
    first: int
    status: str | None = None
    workflow: str | None = None
    parent: str | None = None
    forked_from: str | None = None
    by: str | None = None


RunInfos = list[RunInfo]
Differences = list[Difference]


def run(
    session: Session,
    workflow: str | Path | Workflow | None = None,
    run_id: str | None = None,
    initial: Mapping[str, Any] | None = None,
    create: bool = True,
) -> Run:
    """Begin a run, or continue the one with this `run_id`. With `create=False` raises NotFound if there is none.

    `workflow` is a folder with a workflow.awp.yaml, whose rules hold in the run; without one every agent may take part
    and sees everything.

    `run_id` is the id of the run, which begins one if there is none of that id. `create` is whether to begin a run
    that is not there.
    """
    from .run import Run

    only_looks = session.refusal and run_id is not None and workflow is None and initial is None
    if not create or only_looks:
        return known_run(session, "" if run_id is None else run_id)
    session.check_may_act("run")
    id = new_event_id() if run_id is None else check_name("run_id", run_id)
    plan = _plan(workflow)
    policy = Policy() if plan is None else replace(plan.policy, max_depth=plan.max_depth)
    opened = Run(
        session, id, None if plan is None else Path(plan.folder), None if plan is None else plan.persistence
    )
    values = encode_payload(initial or {})[1]
    if run_id is None or not _has_state(session, id):
        named = {} if plan is None else {"name": plan.name, "version": plan.version}
        start = Start() if plan is None else plan.start
        try:
            session.write("state.open", Open(id, session.actor, policy, start, values, named))
            if plan is not None and session.is_owner:
                _configure_memory(session, plan)
            opened._begun()
            return opened
        except Conflict:
            if not _has_state(session, id):
                raise
    _check_same_run(session, id, None if plan is None else (plan.name, policy), values)
    return opened


class Runs:
    """All runs of a book: `book.runs`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @verb
    def list(self, at: At = None) -> RunInfos:
        """The runs that this actor may know of, in the order in which they were first seen."""
        session = self._session
        with session.snapshot(at) as snapshot:
            runs = [_run_info(snapshot, str(key[0]), int(first)) for key, first in snapshot.scan("runs")]
            upto = None if at is None else snapshot.position
        if not session.is_owner:
            with session.visibility.judging(upto) as judge:
                seen = judge.visible_runs({info.id: info.first for info in runs})
            runs = [info for info in runs if info.id in seen]
        return sorted(runs, key=lambda info: info.first)

    @verb
    def get(self, run_id: RunId) -> Run:
        """An existing run. Raises NotFound."""
        return known_run(self._session, run_id)

    @verb
    def state(self, run_id: RunId, at: At = None) -> State:
        """The state of a run as of `at`, as far as this actor may see it."""
        return self.get(run_id).state(at)

    @verb
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

    @verb
    def fork(self, run_id: RunId, at: At = None, new_id: str | None = None) -> Run:
        """A new run that begins as another one was at `at`.

        `new_id` is an id for the new run."""
        return self.get(run_id).fork(at, new_id)

    @verb
    def diff(self, a: str, b: str, *, redacted: bool = False) -> Differences:
        """What differs between two states, each a run's id, or `id@position` for an earlier one; with `redacted`, as a
        log or a page may show it.

        `a` is a run, or RUN@POSITION. `b` is the other one. `redacted` leaves secrets out."""
        states, hide = [], Redactor()
        for named in (a, b):
            id, at = run_at(check_text("a run to compare", named))
            states.append(self.state(id, at))
            with self._session.snapshot() as snapshot:
                hide |= redactor_of(snapshot, id, self._session.actor)
        found = differences(*states)
        return redacted_differences(found, hide) if redacted else found

    @verb
    def merge(self, fork: RunId, prefer: str | None = None) -> Merged:
        """Bring what a fork has written back into the run it came from: see `Run.merge`.

        `fork` is the id of the fork."""
        return self.get(fork).merge(prefer)


Commands = list[str]


def known_run(session: Session, run_id: str) -> Run:
    """A run that is there and that this actor takes part in. Raises NotFound."""
    from .run import Run

    _about(session, run_id)
    return Run(session, run_id)


def _about(session: Session, run_id: str) -> About:
    run_id = check_name("run_id", run_id)
    with session.snapshot() as snapshot:
        known = about(snapshot, run_id) if snapshot.get("state.runs", run_id) is not None else None
    if known is None or not takes_part(known, session.actor):
        if not session.is_owner:  # in both cases, so that not even the book's length tells which it was
            record_denial(session.acting_as(session.actor, run_id), "run", run_id)
        raise NotFound(no_run(run_id))
    return known


def _check_same_run(
    session: Session, id: str, plan: tuple[str, Policy] | None, values: Mapping[str, Any]
) -> None:
    """Check that a run that is there is the one that was meant. Raises Conflict; NotFound for an actor that takes no
    part in it."""
    known = _about(session, id)
    if plan is not None and plan != (known.workflow.get("name", ""), known.policy):
        raise Conflict(
            f"the run {id!r} was started under other rules than this workflow's: go on with the files it "
            "was started from, or choose another run_id"
        )
    if values and session.actor not in (OWNER, known.by):
        raise Conflict(f"the run {id!r} is there already: leave initial out to take part in it")
    if values:
        _check_same_start(session.ledger.events(run_id=id, kinds=(OPENED,)), values, id)


def _configure_memory(session: Session, plan: Workflow) -> None:
    """Take over the settings of memory that a workflow's files name. What they do not name stays as it is."""
    named: dict[str, Any] = {}
    for tier, name in (("long_term", "max_size_kb"), ("working", "retention_days")):
        if tier in plan.memory.tiers and name in plan.memory.tiers[tier].settings:
            named[name] = int(plan.memory.tiers[tier].settings[name])
    if named:
        Memory(session).configure(**named)


def _has_state(session: Session, run_id: str) -> bool:
    with session.snapshot() as snapshot:
        return snapshot.get("state.runs", run_id) is not None


def _run_info(snapshot: Snapshot, id: str, first: int) -> RunInfo:
    if snapshot.get("state.runs", id) is None:
        return RunInfo(id, first)
    known = about(snapshot, id)
    forked = None if known.fork is None else known.fork.run
    status, name = sums(snapshot, id).status, known.workflow.get("name")
    return RunInfo(id, first, status, name, known.parent, forked, known.by)


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


def _check_same_start(opened: Iterator[Event], given: Mapping[str, Any], id: str) -> None:
    """Going on with a run under other start values than its own would lose them silently."""
    recorded: dict[str, Any] = {}
    first = next(opened)
    if first.erased:
        return
    for agent, field, value in first.payload["initial"]:
        if agent:
            recorded.setdefault(agent, {})[field] = value
        else:
            recorded[field] = value
    other = sorted(name for name, value in given.items() if recorded.get(name) != value)
    if other:
        raise Conflict(
            f"the run {id!r} was started with other values of {', '.join(other)}: leave initial out to go on with "
            "it, or choose another run_id"
        )
