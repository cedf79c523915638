"""State as rows: one cell for each field of each agent, so that agents never meet on the same row.

    state[agent][field]     the cell (run, agent, field)
    state[key]              the cell (run, "", key): what the run was started with, and the runtime's own

Every version of a cell is kept, so state as of any position is a read. A fork holds only the cells that were
written since: the others are read from the run it came from, as of where it left it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from ..errors import BadInput, NotFound
from ..ledger.checks import iso
from ..ledger.encoding import canonical
from ..ledger.events import Event
from ..ledger.keys import Key
from ..ledger.reader import ViewReader
from .policy import Policy

Cells = dict[tuple[str, str], "Cell"]
"""Every cell of a run by agent and field; the agent is "" for what belongs to no agent."""

DONE = ""
"""The field of a cell that says that an agent has come to an end; no real field has this name."""


class Cell(NamedTuple):
    value: Any
    version: int
    """The position of the event that wrote it last."""
    gone: bool = False
    parts: tuple[int, ...] = ()
    """The positions of all that a list was put together from, if it was."""

    @property
    def sources(self) -> tuple[int, ...]:
        """The positions of the events that it comes from."""
        return self.parts or (self.version,)


class Fork(msgspec.Struct, frozen=True):
    """Where a run branched off another one."""

    run: str
    at: int


class About(msgspec.Struct, frozen=True):
    """What was said when a run was opened, and by whom. `parent` is the run that delegated to it, `depth` how deep."""

    policy: Policy
    workflow: dict[str, str]
    started_us: int
    by: str
    parent: str | None = None
    depth: int = 0
    fork: Fork | None = None


class Sums(msgspec.Struct, frozen=True):
    """What changes with every write: sizes for the limits, and how the run stands."""

    size: int = 0
    fields: int = 0
    status: str = "running"
    updated_us: int = 0
    erased: int = 0
    """How many of the run's changes were erased, and how many of them the count has been set right for."""
    righted: int = 0


class State(dict[str, Any]):
    """A run's state as plain data: `state[agent][field]` and `state[key]`. `as_of` is the position at which it
    was so; give it to a write as `if_position=` to be told if somebody wrote in between."""

    def __init__(self, values: Mapping[str, Any], as_of: int, found: Cells) -> None:
        super().__init__(values)
        self.as_of = as_of
        self._sources = {place: one.sources for place, one in found.items()}

    def sources(self, *keys: str, fields: Collection[str] | None = None) -> tuple[int, ...]:
        """The positions of the events that what stands under these keys comes from."""
        found = {
            position
            for (agent, field), sources in self._sources.items()
            if (agent or field) in keys and (fields is None or not agent or field in fields)
            for position in sources
        }
        return tuple(sorted(found))


def about(views: ViewReader, run: str) -> About:
    """Raises NotFound for a run that has no state."""
    known = views.get_as(_read_about, "state.runs", run)
    if known is None:
        raise NotFound(no_run(run))
    return known


_read_about = lru_cache(256)(msgspec.json.Decoder(About).decode)
"""A run's policy is read with every write and never changes."""


def no_run(run: str) -> str:
    return f"there is no run {run!r} with a state in this book; `commonplace runs list` lists the runs"


def sums(views: ViewReader, run: str) -> Sums:
    return views.get_as(_read_sums, "state.sums", run) or Sums()


_read_sums = msgspec.json.Decoder(Sums).decode


def lineage(views: ViewReader, run: str, fork: Fork | None) -> list[tuple[ViewReader, str]]:
    """A run that branched off there, and the runs it comes from, each as of where it was left; itself last."""
    before: list[tuple[ViewReader, str]] = []
    if fork is not None:
        then = views.at(fork.at)
        before = lineage(then, fork.run, about(then, fork.run).fork)
    return [*before, (views, run)]


def last_written(views: ViewReader, run: str, agent: str, field: str, fork: Fork | None) -> Cell | None:
    """One cell, wherever in the line of forks it was written last; also one that was removed."""
    row = views.get("state.cells", run, agent, field)
    if row is None and fork is not None:
        older = (one.get("state.cells", id, agent, field) for one, id in reversed(lineage(views, run, fork)))
        row = next((found for found in older if found is not None), None)
    return None if row is None else _cell(row)


def _cell(row: dict[str, Any]) -> Cell:
    return Cell(row.get("value"), row["version"], "gone" in row, tuple(row.get("parts", ())))


def cells(
    views: ViewReader, run: str, fork: Fork | None, agent: str | None = None, view: str = "state.cells"
) -> Cells:
    """Every cell of a run, or of one agent's entry in it."""
    found: Cells = {}
    for one, id in lineage(views, run, fork):
        for key, row in one.scan(view, id, *(() if agent is None else (agent,))):
            place = (str(key[1]), str(key[2]))
            found.pop(place, None)
            if "gone" not in row:
                found[place] = _cell(row)
    return found


def entry_of(views: ViewReader, run: str, agent: str, fork: Fork | None) -> dict[str, Any]:
    """What an agent's entry holds."""
    found = cells(views, run, fork, agent)
    return {field: one.value for (_, field), one in found.items() if field != DONE}


def own_cells(views: ViewReader, run: str) -> dict[tuple[str, str], Cell]:
    """The cells that were written in this very run, not in the one it was forked from; also removed ones."""
    return {(str(key[1]), str(key[2])): _cell(row) for key, row in views.scan("state.cells", run)}


def steps(views: ViewReader, run: str, fork: Fork | None) -> dict[str, dict[str, Any]]:
    """How far each node of the run's graph has come."""
    found: dict[str, dict[str, Any]] = {}
    for one, id in lineage(views, run, fork):
        found |= {str(key[1]): row for key, row in one.scan("state.steps", id)}
    return found


def done_by(views: ViewReader, run: str, node: str) -> str:
    """The agent that does a node's work at present in place of its own, or ""."""
    row = views.get("state.steps", run, node)
    return "" if row is None else str(row.get("done_by", ""))


def finished(found: Cells) -> frozenset[str]:
    """The agents that have come to an end at least once: others may see what they share."""
    return frozenset(agent for agent, field in found if field == DONE)


def assembled(found: Cells) -> dict[str, Any]:
    """Cells as nested plain data. An agent that has ended without any output has an empty entry."""
    state: dict[str, Any] = {}
    for (agent, field), one in sorted(found.items()):
        if agent and not isinstance(state.get(agent, {}), dict):
            continue  # a start value of another shape has this name; decide_open refuses that by now
        if field == DONE:
            state.setdefault(agent, {})
        elif agent:
            state.setdefault(agent, {})[field] = one.value
        else:
            state[field] = one.value
    return state


def runtime_keys(views: ViewReader, run: str, known: About) -> dict[str, Any]:
    """The reserved keys that are not cells but follow from what the ledger knows of the run."""
    standing = sums(views, run)
    meta: dict[str, Any] = {
        "run_id": run,
        "status": standing.status,
        "started_at": iso(known.started_us),
        "updated_at": iso(standing.updated_us),
        "depth": known.depth,
        "parent": known.parent,
    }
    root, above = run, known.parent
    while above is not None:  # all runs of one delegation belong to one trace
        root, above = above, about(views, above).parent
    return {
        "_errors": [],
        "_meta": meta,
        "_trace": {"trace_id": _digest(root)[:32], "span_id": _digest(run)[32:48]},
        "_workflow": dict(known.workflow),
    }


def _digest(id: str) -> str:
    return sha256(id.encode()).hexdigest()


# how a cell comes about


def reduced(type: str, before: Any, given: Any) -> Any:
    """A field's next value: `append` and `increment` build on what is there, any other type sets."""
    if type == "append":
        listed = [] if before is None else before
        if not isinstance(listed, list):
            raise BadInput("append needs a field that is a list, or is not there yet; use another field")
        return [*listed, given]
    if type == "increment":
        if not _is_number(given) or not _is_number(before or 0):
            raise BadInput("increment needs a number, and a field that is a number or is not there yet")
        try:
            total = (before or 0) + given
        except OverflowError:
            total = math.inf
        if isinstance(total, float) and not math.isfinite(total):
            raise BadInput("increment would go beyond what a number can hold")
        return total
    return given


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def refolded(type: str, before: Any, given: Any) -> Any:
    """The same when a cell is folded. An erasure may have taken away what a write was built on: then it starts
    anew."""
    try:
        return reduced(type, before, given)
    except BadInput:
        return reduced(type, None, given)


def size_of(value: object) -> int:
    return len(canonical(value))


def touched(event: Event) -> list[Key]:
    """The cells that an event writes."""
    run, payload = event.run_id or "", event.payload
    if event.kind == "state.opened":
        return [(run, agent, field) for agent, field in _initial(payload)]
    if event.kind == "state.stepped":
        ended = payload["status"] == "finished" and not payload["of"]
        return [(run, payload["node"], DONE)] if ended else []
    return [(run, payload["agent"], field) for field in payload["payload"]]


def _initial(payload: dict[str, Any]) -> dict[tuple[str, str], Any]:
    return {(agent, field): value for agent, field, value in payload["initial"]}


def fold_cell(key: Key, before: Any, event: Event) -> Any:
    agent, field = str(key[1]), str(key[2])
    if field == DONE:
        return {"value": True, "version": event.position}
    if event.kind == "state.opened":
        return {"value": _initial(event.payload)[agent, field], "version": event.position}
    type, given = event.payload["type"], event.payload["payload"][field]
    if type == "remove":
        return {"gone": True, "version": event.position}
    if field in event.payload.get("values", ()):  # a fork builds on what the run before it held
        return {"value": event.payload["values"][field], "version": event.position}
    held = None if before is None or "gone" in before else before
    row = {"value": refolded(type, held and held["value"], given), "version": event.position}
    if type == "append" and held is not None:
        row["parts"] = [*held.get("parts", (held["version"],)), event.position]
    return row


def place_of(agents: Mapping[str, Any] | None, key: str, value: object) -> list[tuple[str, str, Any]]:
    """Where a start value goes: an agent's own object to that agent's entry, anything else to the run."""
    if agents is not None and key in agents and isinstance(value, dict):
        return [(key, field, inner) for field, inner in value.items()]
    return [("", key, value)]


def run_at(named: str) -> tuple[str, int | None]:
    """A run's id and a position from `id@position`; None when only the id is given."""
    id, mark, position = named.rpartition("@")
    if mark and id and position.isascii() and position.isdigit() and len(position) < 20:
        return id, int(position)
    return named, None
