"""The rules that a run was started with: which hold for its state, and for whom.

A policy is plain data. It is recorded with the run's first event, so that "what could she see then" has an
answer long after the workflow's files have changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from ..access.rights import EVERYBODY, TIERS, AccessRule, Permission, in_both, stricter

Model = Literal["shared_dict", "event_sourced", "cqrs"]
Strategy = Literal["full", "selective", "isolated"]
Strictness = Literal["strict", "warn", "none"]

RESERVED_KEYS = ("_meta", "_errors", "_trace", "_workflow")
"""Keys that the runtime fills; an agent's write to one is refused (R13)."""

MB = 1024 * 1024


def reserved(fields: Iterable[str]) -> list[str]:
    """Those of the fields that are reserved keys."""
    return [field for field in fields if field in RESERVED_KEYS]


class StateLimits(msgspec.Struct, frozen=True):
    max_state_size_mb: float = 10.0
    max_field_size_mb: float = 1.0
    max_fields: int = 1000


class SharingRule(msgspec.Struct, frozen=True):
    """`to` empty: all agents that depend on `source`, directly or not."""

    source: str
    to: tuple[str, ...]
    fields: tuple[str, ...]


class AgentMemory(msgspec.Struct, frozen=True):
    """What an agent's file says of its memory: whether it has any, what its prompt begins with and how many
    characters of it, whether its results are logged, whether it may search, and in which tiers. Without a file it
    has all of it."""

    enabled: bool = True
    inject: bool = True
    max_chars: int = 2000
    log: bool = True
    search: bool = True
    tiers: tuple[str, ...] = TIERS
    """The tiers that the agent's file lists."""
    off: tuple[str, ...] = ()
    """Those that its workflow has switched off for every agent."""
    v1: dict[str, Any] = {}
    """What its digests have in place of the book's rules: see `DigestRules`."""
    window: int = 8
    use_salience: bool = False
    salience_top_k: int = 8
    """How many of a run's events its prompt shows: the most recent ones, or the most salient."""
    reflection_threshold: int | None = None
    """It reflects after so many events that count for it; None: only when it is asked to."""

    @property
    def served(self) -> tuple[str, ...]:
        """The tiers that there are for this agent."""
        return tuple(tier for tier in self.tiers if tier not in self.off) if self.enabled else ()

    @property
    def logs(self) -> bool:
        """Whether the day's log says what the agent brought about."""
        return self.log and "working" in self.served

    def within(self, outer: AgentMemory) -> AgentMemory:
        """The same, with nothing that the other has not."""
        return replace(
            self,
            enabled=self.enabled and outer.enabled,
            inject=self.inject and outer.inject,
            log=self.log and outer.log,
            search=self.search and outer.search,
            tiers=tuple(tier for tier in self.tiers if tier in outer.tiers),
            off=(*self.off, *(tier for tier in outer.off if tier not in self.off)),
        )


class AgentPolicy(msgspec.Struct, frozen=True):
    """One agent's part in a run. `contract` is a JSON Schema of its output, or None.

    `takes` is what share_input names: state fields under "", an agent's fields under its id.
    """

    contract: dict[str, Any] | None = None
    share_output: tuple[str, ...] = ()
    takes: dict[str, tuple[str, ...]] = {}
    depends_on: tuple[str, ...] = ()
    not_shareable: tuple[str, ...] = ()
    sensitive: tuple[str, ...] = ()
    memory: AgentMemory = AgentMemory()
    access: dict[str, Permission] = {}
    """What its workflow lets it do in tiers of memory; in one that is not named, what everybody may."""
    may_emit: tuple[str, ...] | None = None

    @property
    def rule(self) -> AccessRule:
        """What its workflow leaves it of its rights in the book, for the length of the run."""
        served = self.memory.served
        tiers = {tier: self.access.get(tier) if tier in served else "none" for tier in TIERS}
        named = {tier: permission for tier, permission in tiers.items() if permission is not None}
        return AccessRule(tiers=named or None, may_emit=self.may_emit)

    def within(self, outer: AgentPolicy) -> AgentPolicy:
        """The same part, with no more rights and no more memory than the other has."""
        named = [tier for tier in TIERS if tier in self.access or tier in outer.access]
        both = ((tier, [part.access.get(tier, "read_write") for part in (self, outer)]) for tier in named)
        return replace(
            self,
            memory=self.memory.within(outer.memory),
            access={tier: stricter(*permissions) for tier, permissions in both},
            may_emit=in_both(self.may_emit, outer.may_emit),
        )


class Policy(msgspec.Struct, frozen=True):
    """`agents` None: any agent may take part, under no contract. `max_depth` is how deep runs may delegate."""

    model: Model = "shared_dict"
    strategy: Strategy = "full"
    rules: tuple[SharingRule, ...] = ()
    never_share: tuple[str, ...] = ()
    sensitive_fields: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    validation: Strictness = "warn"
    limits: StateLimits = StateLimits()
    max_depth: int = 10
    agents: dict[str, AgentPolicy] | None = None
    others: dict[str, AgentPolicy] = {}
    """What holds for those that are no agents of the graph: by name, and under `*` for everybody else."""
    dispatched_only: bool = False
    """Of a delegation: only those take part that `others` names, and workers that something was dispatched to."""

    def agent(self, id: str) -> AgentPolicy:
        named = {**self.others, **(self.agents or {})}
        return named.get(id) or self.others.get(EVERYBODY) or AgentPolicy()

    def doing(self, node: str, agent: str) -> AgentPolicy:
        """What holds for a node while another agent does its work, if one is named: the stricter of both."""
        own = self.agent(node)
        return own.within(self.agent(agent)) if agent else own

    def within(self, outer: Policy) -> Policy:
        """The policy of a run within another one: nobody has more rights or more memory there than in the other."""
        agents = self.agents or {}
        named = {*self.others, *(outer.agents or {}), *outer.others} - agents.keys()
        narrowed = {name: self.agent(name).within(outer.agent(name)) for name in sorted({*agents, *named})}
        return replace(
            self,
            max_depth=min(self.max_depth, outer.max_depth),
            agents=None if self.agents is None else {name: narrowed[name] for name in agents},
            others={name: narrowed[name] for name in sorted(named)},
        )

    @property
    def rules_of_agents(self) -> dict[str, AccessRule]:
        """The rule that narrows the rights of each agent named here; {} if none narrows any."""
        rules = {name: self.agent(name).rule for name in (*self.others, *(self.agents or {}))}
        return rules if any(rule != AccessRule() for rule in rules.values()) else {}

    @property
    def secret_fields(self) -> frozenset[str]:
        """The names of fields that no log, trace, audit entry, error or page may show (R14)."""
        agents = (*(self.agents or {}).values(), *self.others.values())
        flagged = (name for agent in agents for name in (*agent.sensitive, *agent.not_shareable))
        return frozenset((*self.sensitive_fields, *self.never_share, *flagged))


class Start(msgspec.Struct, frozen=True):
    """What a run's state begins with, and what must be in it before the first agent."""

    initial: dict[str, Any] = {}
    auto_inject: dict[str, Any] = {}
    required_fields: tuple[str, ...] = ()


class Persistence(msgspec.Struct, frozen=True):
    """Where state is also written as files. The ledger keeps it in any case."""

    enabled: bool = True
    path: str = "data/state"
    format: Literal["json", "msgpack"] = "json"
    interval: Literal["per_agent", "per_run", "manual"] = "per_agent"
