"""How a fork comes back: three ways, cell by cell, with what both sides have written shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..access.rights import OWNER, RUNTIME
from ..errors import BadInput, Conflict, Denied
from ..ledger.encoding import canonical
from ..ledger.overlay import Overlay
from .cells import DONE, Cell, Cells, Place, cells_of, own_cells
from .changes import outcome, record_change
from .events import MERGED, STEPPED, emit
from .policy import RESERVED_KEYS
from .redaction import redactor_of
from .requests import FINISHED, Change, Merge, Merged
from .rows import OpenedRun, opened_run, totals_of
from .steps import not_yours


def decide_merge(overlay: Overlay, request: Merge) -> Merged | Denied:
    """The base is what both had in common last: when the fork left, or when it was merged before."""
    fork = opened_run(overlay, request.fork).fork
    if fork is None:
        raise BadInput(f"{request.fork!r} is no fork, so there is nothing to merge it into")
    if request.prefer not in (None, "fork", "target"):
        raise BadInput(f"prefer is 'fork' or 'target', not {request.prefer!r:.60}")
    refused = not_yours(overlay, fork.run, request.by, "merge into", request.fork)
    if refused:
        return refused
    if totals_of(overlay, fork.run).status != "running":
        raise Conflict(
            f"the run {fork.run!r} has ended, so nothing is merged into it any more: continue the fork "
            f"{request.fork!r} itself"
        )
    into = opened_run(overlay, fork.run)
    since = overlay.get("state.merges", fork.run, request.fork) or fork.at
    base, target = cells_of(overlay.at(since), fork.run, into.fork), cells_of(overlay, fork.run, into.fork)
    theirs = {
        place: cell
        for place, cell in own_cells(overlay, request.fork).items()
        if place[1] not in (*RESERVED_KEYS, DONE)
        and cell.version > since
        and not _same(cell, target.get(place))
    }
    clash = sorted(place for place in theirs if not _same(target.get(place), base.get(place)))
    conflicts = _conflicts(overlay, request, fork.run, clash, (base, theirs, target))
    if clash and request.prefer is None:
        both = ", ".join(map(_name, clash))
        raise Conflict(
            f"both {request.fork!r} and {fork.run!r} have written {both}: merge again with prefer='fork' or "
            "prefer='target'. Nothing was merged",
            conflicts,
        )
    taken = {place: cell for place, cell in theirs.items() if request.prefer == "fork" or place not in clash}
    _take_over(overlay, request, fork.run, into, taken)
    _take_over_steps(overlay, request.fork, fork.run, since)
    fields = tuple(sorted(map(_name, taken)))
    payload = {"fork": request.fork, "fields": list(fields), "prefer": request.prefer}
    emit(overlay, MERGED, fork.run, request.by, payload)
    return Merged(fork.run, fields, tuple(conflicts))


def _name(place: Place) -> str:
    return ".".join(part for part in place if part)


def _same(a: Cell | None, b: Cell | None) -> bool:
    """Whether two cells hold the same, to the byte: true is not 1, and null is not nothing."""
    there = [cell is not None and not cell.gone for cell in (a, b)]
    if not all(there):
        return there[0] == there[1]
    assert a is not None and b is not None  # noqa: PT018  for the type checker
    return canonical(a.value) == canonical(b.value)


def _conflicts(
    overlay: Overlay, request: Merge, run: str, clash: list[Place], sides: tuple[Cells, Cells, Cells]
) -> list[dict[str, Any]]:
    """What base, fork and target hold where both have written, without secrets; for anybody but the owner, only the
    names of the fields."""
    if request.by != OWNER:
        return [{"field": _name(place)} for place in clash]
    hide = redactor_of(overlay, run) | redactor_of(overlay, request.fork)

    def shown(cell: Cell | None, field: str) -> Any:
        return None if cell is None or cell.gone else hide.under(field, cell.value)

    named = list(zip(("base", "fork", "target"), sides, strict=True))
    return [
        {"field": _name(place), **{side: shown(cells.get(place), place[1]) for side, cells in named}}
        for place in clash
    ]


def _take_over(
    overlay: Overlay, request: Merge, run: str, into: OpenedRun, taken: Mapping[Place, Cell]
) -> None:
    """One change per agent and type, within the target's limits; what makes room goes first."""
    groups: dict[tuple[bool, str], dict[str, Any]] = {}
    for (agent, name), cell in taken.items():
        groups.setdefault((not cell.gone, agent), {})[name] = cell.value
    for (there, agent), values in sorted(groups.items()):
        change = Change(run, agent, request.by, "set" if there else "remove", values)
        cells = cells_of(overlay, run, into.fork, agent)
        before = {name: cells[agent, name].value for name in values if (agent, name) in cells}
        sources = tuple(position for name in values if there for position in taken[agent, name].sources)
        totals, after = totals_of(overlay, run), outcome(change, before)
        record_change(overlay, into, totals, change, request.by, before, after, sources)


def _take_over_steps(overlay: Overlay, fork: str, run: str, since: int) -> None:
    """Nodes that have finished in the fork have finished here, too: others may see what they share."""
    for key, step in overlay.scan("state.steps", fork):
        if step["status"] == FINISHED and not step["of"] and step["position"] > since:
            payload = {name: step[name] for name in ("status", "attempt", "iteration", "of")}
            payload |= {"node": str(key[1]), "reason": f"merged from {fork}", "result": {}}
            emit(overlay, STEPPED, run, RUNTIME, payload)
