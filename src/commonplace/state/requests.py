"""The commands on a run's state and their answers. Plain data, so that a command can wait in a queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ..access.rights import OWNER
from ..ledger.printing import Readable
from .policy import Policy, Start

STARTED, ITERATED, RETRYING = "started", "iterated", "retrying"
FINISHED, FAILED, SKIPPED = "finished", "failed", "skipped"
STATUSES = (STARTED, ITERATED, RETRYING, FINISHED, FAILED, SKIPPED)
ENDINGS = ("completed", "partial", "failed", "cancelled")
"""How a run ends. A delegation ends as partial when its budget is used up, or when it makes no progress."""

BUILDING = ("append", "increment")
"""Types of changes that build on what a field holds."""


class Fork(msgspec.Struct, frozen=True):
    """Where a run branched off another one."""

    run: str
    at: int


class Open(msgspec.Struct, frozen=True):
    """Open a run. With `fork`, it begins as that run was then."""

    run: str
    by: str
    policy: Policy = Policy()
    start: Start = Start()
    initial: Mapping[str, Any] = {}
    workflow: Mapping[str, str] = {}
    parent: str | None = None
    fork: Fork | None = None
    sources: tuple[int, ...] = ()
    """The positions of the events that `initial` comes from."""


class RunStep(msgspec.Struct, frozen=True):
    """How far a node of the graph has come. `error` is kept in the state's `_errors`, without secrets."""

    run: str
    node: str
    status: str
    attempt: int = 1
    iteration: int = 0
    reason: str = ""
    error: Mapping[str, Any] | None = None
    result: Mapping[str, Any] = {}
    """What a runner that resumes must know, for example the outputs of finished instances of a fan-out."""
    of: str = ""
    """The node that this is an instance of, if it is one."""
    sources: tuple[int, ...] = ()
    """The positions of the events that `result` comes from."""
    by: str = OWNER
    done_by: str = ""
    """The agent that does the node's work from now on in place of its own: the rights of both bind it."""


class Change(msgspec.Struct, frozen=True):
    """Write to an agent's own entry. `if_position`: the position as of which its writer had read."""

    run: str
    agent: str
    by: str
    type: str
    payload: Mapping[str, Any]
    if_position: int | None = None
    partial: bool = False
    step: RunStep | None = None
    """What this write brings to an end, in the same commit."""
    contract: bool = True
    """False: each part was checked before they were put together."""
    sources: tuple[int, ...] = ()
    """The positions of the events whose content it carries on: it is erased with them."""
    secret: tuple[str, ...] = ()
    """Names of fields that must not be shown, besides those that the run's policy names."""
    blobs: Mapping[str, bytes] = {}


class Close(msgspec.Struct, frozen=True):
    run: str
    status: str
    reason: str = ""
    by: str = OWNER


class Reopen(msgspec.Struct, frozen=True):
    run: str
    by: str = OWNER


class Merge(msgspec.Struct, frozen=True):
    """Bring what a fork has written back into the run it came from. `prefer`: which side wins where both
    have written, fork or target; None: that is a Conflict."""

    fork: str
    by: str
    prefer: str | None = None


class Written(Readable, msgspec.Struct, frozen=True):
    """What a write did. `position` is also the new version of every field in `fields`; `redacted` are those
    that logs and pages will not show."""

    position: int
    fields: tuple[str, ...]
    redacted: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    outcome: str = "stored"

    def __str__(self) -> str:
        notes = "".join(f"; {warning}" for warning in self.warnings)
        return f"wrote {', '.join(self.fields) or 'nothing'} at position {self.position}{notes}"


class Merged(Readable, msgspec.Struct, frozen=True):
    """What a merge did: the cells taken over, as agent.field, and what both sides had written."""

    into: str
    fields: tuple[str, ...]
    conflicts: tuple[Mapping[str, Any], ...] = ()

    def __str__(self) -> str:
        fields = ", ".join(str(conflict["field"]) for conflict in self.conflicts)
        both = f"; both sides had written {fields}" if fields else ""
        return f"merged {', '.join(self.fields) or 'nothing'} into {self.into}{both}"
