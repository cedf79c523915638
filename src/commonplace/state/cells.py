"""State as rows: one cell for each field of each agent, so that agents never meet on the same row.

    state[agent][field]     the cell (run, agent, field)
    state[key]              the cell (run, "", key): what the run was started with, and the runtime's own

Every version of a cell is kept, so state as of any position is a read. A fork holds only the cells that were
written since: the others are read from the run it came from, as of where it left it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from ..errors import BadInput
from ..ledger.encoding import canonical, decode
from ..ledger.events import Event
from ..ledger.keys import Key
from ..ledger.reader import ViewReader
from ..ledger.views import View
from .events import OPENED, STEPPED
from .requests import FINISHED, Fork
from .rows import WRITING, lineage

Place = tuple[str, str]
"""An agent and a field of its entry; the agent is "" for what belongs to no agent."""

Cells = dict[Place, "Cell"]

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


class State(dict[str, Any]):
    """A run's state as plain data: `state[agent][field]` and `state[key]`. `as_of` is the position at which it
    was so; give it to a write as `if_position=` to get a Conflict if a field was written in between."""

    def __init__(self, values: Mapping[str, Any], as_of: int, cells: Cells) -> None:
        super().__init__(values)
        self.as_of = as_of
        self._sources = {place: cell.sources for place, cell in cells.items()}

    def sources(self, *keys: str, fields: Collection[str] | None = None) -> tuple[int, ...]:
        """The positions of the events that the values under these keys come from."""
        positions = {
            position
            for (agent, field), sources in self._sources.items()
            if (agent or field) in keys and (fields is None or not agent or field in fields)
            for position in sources
        }
        return tuple(sorted(positions))


def last_written(
    views: ViewReader, run: str, agent: str, fields: Iterable[str], fork: Fork | None
) -> dict[str, Cell]:
    """Cells of one entry, each as it was written last in the run or in those it was forked from; also removed ones."""
    names = list(fields)
    rows = dict(zip(names, _rows(views, run, agent, names), strict=True))
    if fork is not None:
        for reader, id in reversed(lineage(views, run, fork)[:-1]):
            missing = [name for name, row in rows.items() if row is None]
            if missing:
                rows |= zip(missing, _rows(reader, id, agent, missing), strict=True)
    return {name: _cell(row) for name, row in rows.items() if row is not None}


def _rows(views: ViewReader, run: str, agent: str, fields: list[str]) -> list[dict[str, Any] | None]:
    return views.get_all(decode, "state.cells", [(run, agent, field) for field in fields])


def _cell(row: dict[str, Any]) -> Cell:
    return Cell(row.get("value"), row["version"], "gone" in row, tuple(row.get("parts", ())))


def cells_of(views: ViewReader, run: str, fork: Fork | None, agent: str | None = None) -> Cells:
    """Every cell of a run, or of one agent's entry in it."""
    cells: Cells = {}
    for reader, id in lineage(views, run, fork):
        for key, row in reader.scan("state.cells", id, *(() if agent is None else (agent,))):
            place = (str(key[1]), str(key[2]))
            cells.pop(place, None)
            if "gone" not in row:
                cells[place] = _cell(row)
    return cells


def entry_of(views: ViewReader, run: str, agent: str, fork: Fork | None) -> dict[str, Any]:
    """The fields of an agent's entry."""
    cells = cells_of(views, run, fork, agent)
    return {field: cell.value for (_, field), cell in cells.items() if field != DONE}


def own_cells(views: ViewReader, run: str) -> Cells:
    """The cells that were written in this very run, not in the one it was forked from; also removed ones."""
    return {(str(key[1]), str(key[2])): _cell(row) for key, row in views.scan("state.cells", run)}


def finished_agents(cells: Cells) -> frozenset[str]:
    """The agents that have come to an end at least once: others may see what they share."""
    return frozenset(agent for agent, field in cells if field == DONE)


def assembled(cells: Cells) -> dict[str, Any]:
    """Cells as nested plain data. An agent that has ended without any output has an empty entry. An entry takes the
    place of a value of the same name that a run within another one was started with."""
    state: dict[str, Any] = {}
    entries = dict[str, dict[str, Any]]()
    for (agent, field), cell in sorted(cells.items()):
        if not agent:
            state[field] = cell.value
            continue
        if agent not in entries:
            state[agent] = entries[agent] = {}
        if field != DONE:
            entries[agent][field] = cell.value
    return state


# How a cell is folded


def reduced(type: str, before: Any, value: Any) -> Any:
    """A field's next value: `append` and `increment` build on what is there, any other type sets."""
    if type == "append":
        listed = [] if before is None else before
        if not isinstance(listed, list):
            raise BadInput("append needs a field that is a list, or is not there yet; use another field")
        return [*listed, value]
    if type == "increment":
        if not _is_number(value) or not _is_number(before or 0):
            raise BadInput("increment needs a number, and a field that is a number or is not there yet")
        try:
            total = (before or 0) + value
        except OverflowError:
            total = math.inf
        if isinstance(total, float) and not math.isfinite(total):
            raise BadInput("increment would go beyond what a number can hold")
        return total
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _refolded(type: str, before: Any, value: Any) -> Any:
    """The same when a cell is folded. An erasure may have taken away what a write was built on: then it starts
    anew."""
    try:
        return reduced(type, before, value)
    except BadInput:
        return reduced(type, None, value)


def size_of(value: object) -> int:
    return len(canonical(value))


def _keys(event: Event) -> list[Key]:
    """The cells that an event writes."""
    run, payload = event.run_id or "", event.payload
    if event.kind == OPENED:
        return [(run, agent, field) for agent, field in _initial(payload)]
    if event.kind == STEPPED:
        ended = payload["status"] == FINISHED and not payload["of"]
        return [(run, payload["node"], DONE)] if ended else []
    return [(run, payload["agent"], field) for field in payload["payload"]]


def _initial(payload: dict[str, Any]) -> dict[Place, Any]:
    return {(agent, field): value for agent, field, value in payload["initial"]}


def _fold(key: Key, before: Any, event: Event) -> Any:
    agent, field = str(key[1]), str(key[2])
    if field == DONE:
        return {"value": True, "version": event.position}
    if event.kind == OPENED:
        return {"value": _initial(event.payload)[agent, field], "version": event.position}
    type, value = event.payload["type"], event.payload["payload"][field]
    if type == "remove":
        return {"gone": True, "version": event.position}
    if field in event.payload.get("values", ()):  # a fork builds on what the run before it held
        return {"value": event.payload["values"][field], "version": event.position}
    held = None if before is None or "gone" in before else before
    row = {"value": _refolded(type, held and held["value"], value), "version": event.position}
    if type == "append" and held is not None:
        row["parts"] = [*held.get("parts", (held["version"],)), event.position]
    return row


CELLS = View("state.cells", 1, _keys, _fold, kinds=WRITING)
