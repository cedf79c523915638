"""How a run's state changes: what is checked, under the book's lock, before a write becomes an event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from ..access.commands import Denial, need_scope, refuse
from ..access.rights import OWNER, RUNTIME
from ..errors import BadInput, CommonplaceError, Conflict, ContractViolation, Denied
from ..ledger.events import Event
from ..ledger.overlay import Overlay
from ..ledger.reader import ViewReader
from .cells import Cell, entry_of, last_written, reduced, size_of
from .contract import CONFIDENCE, FILLED_IN, violations
from .events import CHANGED, VIOLATED, Secrecy, emit
from .limits import check_limits, counted
from .policy import RESERVED_KEYS, Policy, reserved
from .redaction import redactor_of
from .requests import BUILDING, Change, Written
from .rows import OpenedRun, Totals, opened_run
from .steps import check_open, decide_step

Values = Mapping[str, Any]


def decide_change(overlay: Overlay, request: Change) -> Written | CommonplaceError:
    opened = opened_run(overlay, request.run)
    totals = check_open(overlay, request.run)
    refused = need_scope(overlay, request.agent, opened.scope)
    refused = refused or _may_not_write(overlay, opened, request)
    if refused:
        return refused
    last = last_written(overlay, request.run, request.agent, request.payload, opened.fork)
    if request.if_position is not None:
        _check_if_position(overlay, request, request.if_position, last)
    last = {name: cell for name, cell in last.items() if not cell.gone}
    before = {name: cell.value for name, cell in last.items()}
    after = outcome(request, before)
    filled_in, broken = _conform(overlay, opened, request, after)
    if broken:
        emit(overlay, VIOLATED, request.run, RUNTIME, {"agent": request.agent, "violations": broken})
        return ContractViolation(request.agent, broken)
    if filled_in:
        request = replace(request, payload={**request.payload, **filled_in})
    secret: list[str] = []
    if request.payload or request.step is None:
        sources = (*request.sources, *_built_on(opened, request, last))
        change = record_change(
            overlay, opened, totals, request, request.agent, before, after | filled_in, sources
        )
        secret = change.payload.get("secret", [])
    position = overlay.position
    if request.step is not None:
        step = decide_step(overlay, request.step)
        if isinstance(step, Denied):
            return step
    stated_none = f"{request.agent} stated no confidence; {FILLED_IN} was filled in (R17)"
    return Written(
        position,
        tuple(sorted(request.payload)),
        tuple(name for name in secret if name in request.payload),
        (stated_none,) if filled_in else (),
    )


def _may_not_write(overlay: Overlay, opened: OpenedRun, request: Change) -> Denied | None:
    """The refusal, already recorded, of a write to another's entry or to a reserved key."""
    policy, agent, forbidden = opened.policy, request.agent, reserved(request.payload)
    if policy.agents is not None and agent not in policy.agents:
        raise BadInput(f"{agent!r} is no agent of this workflow: its agents are {', '.join(policy.agents)}")
    started_with = opened.parent is None and policy.agents is None
    if started_with and overlay.get("state.cells", request.run, "", agent) is not None:
        raise BadInput(f"the run was started with a value under the name {agent!r}: choose another name")
    if request.by not in (agent, OWNER):
        message = f"{request.by!r} may not write to the entry of {agent!r}: an agent writes its own"
        return refuse(overlay, Denial(request.by, "state.write", agent, request.run), message)
    if forbidden:
        names, keys = ", ".join(forbidden), ", ".join(RESERVED_KEYS)
        message = f"{agent!r} may not write {names} (R13): the runtime fills {keys}. Use other names"
        return refuse(overlay, Denial(agent, "state.write", names, request.run), message)
    return None


def _check_if_position(overlay: Overlay, request: Change, if_position: int, last: Mapping[str, Cell]) -> None:
    newer = {name: cell for name, cell in last.items() if cell.version > if_position}
    if not newer:
        return
    hide = redactor_of(overlay, request.run, request.agent)
    conflicts = [
        {
            "field": name,
            "seen": if_position,
            "current": cell.version,
            "value": hide.under(name, cell.value),
        }
        for name, cell in newer.items()
    ]
    listed = ", ".join(
        f"{name} (you saw {if_position}, it is at {cell.version})" for name, cell in newer.items()
    )
    raise Conflict(
        f"the state of {request.agent!r} has moved on: {listed}. Read it again, decide again, and write with the "
        "new as_of",
        conflicts,
    )


def outcome(request: Change, before: Values) -> dict[str, Any]:
    """What each field will hold; a removed one is not in it."""
    if request.type == "remove":
        return {}
    return {name: reduced(request.type, before.get(name), value) for name, value in request.payload.items()}


def _conform(
    overlay: Overlay, opened: OpenedRun, request: Change, after: Values
) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """Check a write against the agent's contract. Returns what is filled in for the agent, and what breaks the
    contract."""
    policy = opened.policy
    contract = policy.agent(request.agent).contract if request.contract else None
    if contract is None:
        return {}, []
    entry = entry_of(overlay, request.run, request.agent, opened.fork)
    entry = {name: value for name, value in entry.items() if name not in request.payload} | dict(after)
    fills_in = policy.validation == "warn" and CONFIDENCE not in contract.get("required", ())
    filled_in: dict[str, Any] = {}
    if CONFIDENCE not in entry and fills_in and not request.partial:
        filled_in = {CONFIDENCE: FILLED_IN}
    broken = violations(contract, entry | filled_in, request.partial)
    return filled_in, [{**broke, "field": _above_secrets(policy, broke["field"])} for broke in broken]


def _above_secrets(policy: Policy, field: str) -> str:
    """The path of a field without what lies below a secret one: names there may be secrets, too."""
    parts = field.split(".")
    end = next((n for n, part in enumerate(parts, 1) if part in policy.secret_fields), len(parts))
    return ".".join(parts[:end])


def record_change(
    overlay: Overlay,
    opened: OpenedRun,
    totals: Totals,
    change: Change,
    actor: str,
    before: Values,
    after: Values,
    sources: tuple[int, ...],
) -> Event:
    """Record a change within the limits. Its event says what it adds to the state's size and keys, because a
    row can only be folded from what events say."""
    sizes = {name: size_of(value) for name, value in after.items()}
    exact = counted(overlay, change.run, opened, totals)
    size = exact.size + sum(sizes.values()) - sum(map(size_of, before.values()))
    keys = exact.fields + _more_keys(overlay, opened, change, before, after)
    check_limits(opened.policy.limits, Totals(size, keys), sizes)
    payload: dict[str, Any] = {
        "agent": change.agent,
        "type": change.type,
        "payload": change.payload,
        "size": size - totals.size,
        "fields": keys - totals.fields,
    }
    if exact is not totals:
        payload["corrected"] = exact.corrected
    if opened.fork is not None and change.type in BUILDING:
        payload["values"] = after  # a fork's own cells do not know what they build on
    secrecy = Secrecy(opened.policy, change.payload, change.secret)
    return emit(overlay, CHANGED, change.run, actor, payload, sources, secrecy, change.blobs)


def _built_on(opened: OpenedRun, request: Change, last: Mapping[str, Cell]) -> tuple[int, ...]:
    """The positions of what a fork takes over from the run before it in order to build on it."""
    if opened.fork is None or request.type not in BUILDING:
        return ()
    return tuple(position for cell in last.values() for position in cell.sources)


def _more_keys(views: ViewReader, opened: OpenedRun, change: Change, before: Values, after: Values) -> int:
    """By how many keys the state grows at its top: 1 with an agent's first field, -1 without its last."""
    if before and after:
        return 0
    if not change.agent:
        return len(after.keys() - before.keys()) - len(before.keys() - after.keys())
    entry = entry_of(views, change.run, change.agent, opened.fork)
    left = {name for name in entry if name not in before} | after.keys()
    return bool(left) - bool(entry)
