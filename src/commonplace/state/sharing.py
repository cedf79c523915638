"""Who sees which part of a run's state: the sharing rules as pure functions (R16), and reading a state under them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from ..access.rights import OWNER, reads_scope
from .cells import DONE, Cell, Cells, State, assembled, cells_of, finished_agents
from .policy import Policy
from .rows import PROJECTION, OpenedRun, find_run, opened_run, runtime_keys

if TYPE_CHECKING:
    from ..ledger.ledger import At
    from ..ledger.reader import ViewReader
    from ..session import Session

ALL = "*"


def visible_cells(policy: Policy, viewer: str, cells: Cells, finished: Collection[str]) -> Cells:
    """The cells that an agent may see, with nested fields that it may not see taken out of their values."""
    visible: Cells = {}
    for (agent, field), cell in cells.items():
        if agent == viewer or (field == DONE and sees_others(policy)):
            visible[agent, field] = cell
        elif shares(policy, agent, viewer, field, agent in finished):
            hidden = hidden_fields(policy, agent)
            visible[agent, field] = Cell(without(cell.value, hidden), cell.version) if hidden else cell
    return visible


def shares(policy: Policy, agent: str, viewer: str, field: str, finished: bool) -> bool:
    """Whether a field of an agent's entry (or, with no agent, of the run itself) is shared with the viewer."""
    if field == DONE or field in hidden_fields(policy, agent):
        return False
    takes = policy.agent(viewer).takes.get(agent, ())
    if not agent:
        return policy.strategy != "isolated" or field in takes
    if not finished:
        return False
    if policy.strategy == "full":
        return True
    if policy.strategy == "isolated":
        return field in takes or ALL in takes
    ruled = _rules_between(policy, agent, viewer)
    return field in (policy.agent(agent).share_output if ruled is None else ruled)


def _rules_between(policy: Policy, agent: str, viewer: str) -> set[str] | None:
    """The fields that rules from one agent to the other list; None when there is no such rule."""
    rules = [
        rule.fields
        for rule in policy.rules
        if rule.source == agent
        and (viewer in rule.to if rule.to else agent in policy.agent(viewer).depends_on)
    ]
    return {field for fields in rules for field in fields} if rules else None


def hidden_fields(policy: Policy, agent: str) -> frozenset[str]:
    """The names that nobody but the agent itself may see in its entry, whatever the strategy."""
    return frozenset((*policy.never_share, *policy.agent(agent).not_shareable))


def sees_others(policy: Policy) -> bool:
    """Whether agents may know who else has ended, and what the runtime keeps."""
    return policy.strategy != "isolated"


def without(value: Any, hidden: Collection[str]) -> Any:
    """The value without fields of these names, at any depth."""
    if isinstance(value, dict):
        return {name: without(inner, hidden) for name, inner in value.items() if name not in hidden}
    if isinstance(value, list):
        return [without(inner, hidden) for inner in value]
    return value


def is_known(views: ViewReader, run: str, actor: str) -> bool:
    """Whether there is a run with a state in a scope that an actor reads."""
    opened = find_run(views, run)
    return opened is not None and reads_scope(views, actor, opened.scope)


def takes_part(views: ViewReader, run: str, opened: OpenedRun, actor: str) -> bool:
    """Whether an actor takes part in a run of a scope that it reads: the owner, the one who opened it, its agents, and
    of a delegation those that something was dispatched to. Without a workflow, every agent may take part."""
    policy = opened.policy
    if not reads_scope(views, actor, opened.scope):
        return False
    if actor in (OWNER, opened.by):
        return True
    if policy.agents is not None:
        return actor in policy.agents
    return not policy.dispatched_only or actor in policy.others or was_dispatched(views, run, actor)


def was_dispatched(views: ViewReader, run: str, worker: str) -> bool:
    """Whether the manager of a run has dispatched something to a worker: its steps are called `worker#1.2`."""
    first = f"{worker}#"
    return bool(views.between("state.steps", (run,), first, f"{first}\U0010ffff", limit=1))


def visible_state(session: Session, run: str, viewer: str, at: At = None) -> State:
    """The state of a run as of `at`, as far as the viewer may see it. Under the cqrs model the present comes from a
    projection that may lag; `.as_of` says how far it is."""
    with session.snapshot(at) as views:
        opened = opened_run(views, run)
        if at is not None or opened.policy.model != "cqrs" or not takes_part(views, run, opened, viewer):
            return state_in(views, run, viewer)
        then = views.at(max(session.ledger.speaks_as_of(PROJECTION), views.meta.horizon))
        projected = {} if find_run(then, run) is None else cells_of(then, run, opened.fork)
        return _state(views, run, opened, viewer, projected, then.position)


def state_in(views: ViewReader, run: str, viewer: str) -> State:
    """The state of a run as of a snapshot, as far as the viewer may see it."""
    opened = opened_run(views, run)
    if not takes_part(views, run, opened, viewer):
        return State({}, views.position, {})
    return _state(views, run, opened, viewer, cells_of(views, run, opened.fork), views.position)


def _state(views: ViewReader, run: str, opened: OpenedRun, viewer: str, cells: Cells, as_of: int) -> State:
    around = runtime_keys(views, run, opened)
    if viewer != OWNER:
        cells = visible_cells(opened.policy, viewer, cells, finished_agents(cells))
        around = around if sees_others(opened.policy) else {}
    return State({**around, **assembled(cells)}, as_of, cells)
