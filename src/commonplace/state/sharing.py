"""The sharing algebra: which fields of whose entry an agent may see. One pure function decides (R16)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from .cells import DONE, Cell, Cells
from .policy import RESERVED_KEYS, Policy

ALL = "*"


def visible(policy: Policy, viewer: str, found: Cells, finished: Collection[str]) -> Cells:
    """The cells that an agent may see, with nested fields that it may not see taken out of their values."""
    seen: Cells = {}
    for (agent, field), one in found.items():
        if agent == viewer or (field == DONE and sees_others(policy)):
            seen[agent, field] = one
        elif shares(policy, agent, viewer, field, agent in finished):
            hidden = hidden_fields(policy, agent)
            seen[agent, field] = Cell(without(one.value, hidden), one.version) if hidden else one
    return seen


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
    ruled = rules_between(policy, agent, viewer)
    return field in (policy.agent(agent).share_output if ruled is None else ruled)


def rules_between(policy: Policy, agent: str, viewer: str) -> set[str] | None:
    """The fields that rules from one agent to the other list; None when there is no such rule."""
    found = [
        rule.fields
        for rule in policy.rules
        if rule.source == agent
        and (viewer in rule.to if rule.to else agent in policy.agent(viewer).depends_on)
    ]
    return {field for fields in found for field in fields} if found else None


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


def reserved(fields: Collection[str]) -> list[str]:
    return [field for field in fields if field in RESERVED_KEYS]
