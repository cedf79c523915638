"""What goes from one place to another in a workflow: into a subworkflow and out of it, and from many into one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import BadInput
from ..ledger.encoding import canonical
from ..run import Run
from ..state.cells import State
from ..state.policy import RESERVED_KEYS
from ..state.sharing import hidden_fields, without
from .model import Node, Workflow

Carried = tuple[dict[str, Any], tuple[int, ...]]
"""Content on its way from one place to another, and the positions of the events that it comes from: what is
erased there is erased wherever it was carried."""


def passed_down(node: Node, state: State) -> Carried:
    """What a subworkflow starts with: what share_input names, of what its node may see. A node that declares
    inheritance gets everything it may see instead, less what is kept back."""
    written = node.document
    if "inherited_state_keys" in written or "forbidden_inheritance_keys" in written:
        forbidden = written.get("forbidden_inheritance_keys", ())
        taken = inherited(state, written.get("inherited_state_keys"), forbidden)
        return taken, state.sources(*taken)
    passed: dict[str, Any] = {}
    sources: tuple[int, ...] = ()
    for producer, fields in node.share_input.items():
        entry = state if not producer else state.get(producer, {})
        named = [field for field in (entry if "*" in fields else fields) if field not in RESERVED_KEYS]
        chosen = {field: entry[field] for field in named if field in entry}
        twice = sorted(passed.keys() & chosen.keys())
        if twice:
            raise BadInput(f"share_input takes {', '.join(twice)} from two places: name one of them")
        passed |= chosen
        sources += state.sources(producer, fields=chosen) if producer else state.sources(*chosen)
    return passed, sources


def gathered(strategy: str, outputs: Sequence[dict[str, Any]]) -> Any:
    """The results of a fan-out as one. `merge`: all of them in order; `reduce`: field by field, numbers added,
    lists joined, objects merged, the last of anything else; `first`: the first; `majority`: the most frequent,
    of equals the first."""
    if strategy == "first":
        return outputs[0] if outputs else None
    if strategy == "majority":
        votes = Counter(canonical(output) for output in outputs)
        return max(outputs, key=lambda output: votes[canonical(output)]) if outputs else None
    if strategy == "reduce":
        whole: dict[str, Any] = {}
        for output in outputs:
            for name, value in output.items():
                whole[name] = _joined(whole[name], value) if name in whole else value
        return whole
    return list(outputs)


def _joined(a: Any, b: Any) -> Any:
    if isinstance(a, list) and isinstance(b, list):
        return [*a, *b]
    if isinstance(a, dict) and isinstance(b, dict):
        return {**a, **b}
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in (a, b)):
        return a + b
    return b


def inherited(
    state: Mapping[str, Any], only: Sequence[str] | None, forbidden: Sequence[str] = ()
) -> dict[str, Any]:
    """What a sub-manager starts with: all that its manager sees, or only the keys named, never a forbidden or
    reserved one."""
    chosen = list(state) if only is None else [key for key in only if key in state]
    allowed = [key for key in chosen if key not in forbidden and not key.startswith("_")]
    return {key: without(state[key], forbidden) for key in allowed}


def passed_up(child: Run, head: int, agents: Sequence[str], fields: Sequence[str]) -> Carried:
    """The fields that a subworkflow hands to its caller, as of the book's head: from the last of its agents, in the
    order of its graph, that has such a field and shares it, or from its state."""
    state, policy = child.state(at=head), child.policy
    passed: dict[str, Any] = {}
    sources: dict[str, tuple[int, ...]] = {}
    for field in fields:
        if field in state and field not in policy.never_share and field not in agents:
            passed[field] = without(state[field], policy.never_share)
            sources[field] = state.sources(field)
        for agent in agents:
            entry, hidden = state.get(agent, {}), hidden_fields(policy, agent)
            shared = policy.strategy == "full" or field in policy.agent(agent).share_output
            if field in entry and field not in hidden and shared:
                passed[field] = without(entry[field], hidden)
                sources[field] = state.sources(agent, fields=(field,))
    return passed, tuple(position for positions in sources.values() for position in positions)


def task_of(state: Mapping[str, Any], workflow: Workflow) -> str:
    """What a manager is to do: the state's `task` or `goal`, or else what the workflow is about."""
    for name in ("task", "goal"):
        if isinstance(state.get(name), str) and state[name].strip():
            return str(state[name])
    return workflow.description or workflow.name
