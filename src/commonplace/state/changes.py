"""How a run's state changes: what is checked, under the book's lock, before a write becomes an event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..access.commands import Denial, refuse
from ..access.rights import OWNER, RUNTIME
from ..errors import BadInput, CommonplaceError, Conflict, ContractViolation, Denied
from ..ledger.overlay import Overlay
from ..ledger.reader import ViewReader
from .accounts import grown
from .cells import About, Cell, Sums, about, entry_of, last_written, reduced, size_of
from .contract import CONFIDENCE, FILLED_IN, violations
from .emitting import emit, labels_for, secret_in, secret_names
from .policy import RESERVED_KEYS, Policy
from .redaction import redactor_of
from .requests import BUILDING, CHANGED, VIOLATED, Change, Written
from .sharing import reserved
from .steps import check_open, decide_step


def decide_change(overlay: Overlay, request: Change) -> Written | CommonplaceError:
    known = about(overlay, request.run)
    totals = check_open(overlay, request.run)
    refused = _may_not_write(overlay, known.policy, request)
    if refused:
        return refused
    last = {
        name: last_written(overlay, request.run, request.agent, name, known.fork) for name in request.payload
    }
    _check_if_position(overlay, request, last)
    before = {name: one.value for name, one in last.items() if one is not None and not one.gone}
    given, after = dict(request.payload), outcome(request, before)
    warnings, broken = _conform(overlay, known, request, given, after)
    if broken:
        broken = [{**one, "field": _above_secrets(known.policy, one["field"])} for one in broken]
        told = {"agent": request.agent, "violations": broken}
        emit(overlay, VIOLATED, request.run, RUNTIME, told)
        return ContractViolation(request.agent, broken)
    if given or request.step is None:
        built_on = _built_on(known, request, last)
        sources = (*request.sources, *built_on)
        record_change(overlay, known, totals, request, request.agent, given, before, after, sources)
    position = overlay.position
    if request.step is not None:
        marked = decide_step(overlay, request.step)
        if isinstance(marked, Denied):
            return marked
    hidden = tuple(sorted(known.policy.secret_fields.intersection(given)))
    return Written(position, tuple(sorted(given)), hidden, warnings)


def _may_not_write(overlay: Overlay, policy: Policy, request: Change) -> Denied | None:
    """The refusal, already recorded, of a write to another's entry or to a reserved key."""
    agent, forbidden = request.agent, reserved(request.payload)
    if policy.agents is not None and agent not in policy.agents:
        raise BadInput(f"{agent!r} is no agent of this workflow: its agents are {', '.join(policy.agents)}")
    if policy.agents is None and overlay.get("state.cells", request.run, "", agent) is not None:
        raise BadInput(f"the run was started with a value under the name {agent!r}: choose another name")
    if request.by not in (agent, OWNER):
        told = f"{request.by!r} may not write to the entry of {agent!r}: an agent writes its own"
        return refuse(overlay, Denial(request.by, "state.write", agent, request.run), told)
    if forbidden:
        names = ", ".join(forbidden)
        told = f"{agent!r} may not write {names} (R13): the runtime fills {', '.join(RESERVED_KEYS)}. Use other names"
        return refuse(overlay, Denial(agent, "state.write", names, request.run), told)
    return None


def _check_if_position(overlay: Overlay, request: Change, last: Mapping[str, Cell | None]) -> None:
    if request.if_position is None:
        return
    moved = {name: one for name, one in last.items() if one is not None and one.version > request.if_position}
    if not moved:
        return
    hide = redactor_of(overlay, request.run, request.agent)
    stale = [
        {
            "field": name,
            "seen": request.if_position,
            "current": one.version,
            "value": hide.under(name, one.value),
        }
        for name, one in moved.items()
    ]
    told = ", ".join(f"{one['field']} (you saw {one['seen']}, it is at {one['current']})" for one in stale)
    raise Conflict(
        f"the state of {request.agent!r} has moved on: {told}. Read it again, decide again, and write with the "
        "new as_of",
        stale,
    )


def outcome(request: Change, before: Mapping[str, Any]) -> dict[str, Any]:
    """What each field will hold; a removed one is not in it."""
    if request.type == "remove":
        return {}
    return {name: reduced(request.type, before.get(name), value) for name, value in request.payload.items()}


def _conform(
    overlay: Overlay, known: About, request: Change, given: dict[str, Any], after: dict[str, Any]
) -> tuple[tuple[str, ...], list[dict[str, str]]]:
    """Hold a write against the agent's contract: what was filled in for it, and what breaks it."""
    contract = known.policy.agent(request.agent).contract if request.contract else None
    if contract is None:
        return (), []
    warnings: tuple[str, ...] = ()
    entry = entry_of(overlay, request.run, request.agent, known.fork)
    entry = {name: value for name, value in entry.items() if name not in given} | after
    fills_in = known.policy.validation == "warn" and CONFIDENCE not in contract.get("required", ())
    if CONFIDENCE not in entry and fills_in and not request.partial:
        warnings = (f"{request.agent} stated no confidence; {FILLED_IN} was filled in (R17)",)
        for values in (given, after, entry):
            values[CONFIDENCE] = FILLED_IN
    return warnings, violations(contract, entry, request.partial)


def record_change(
    overlay: Overlay,
    known: About,
    totals: Sums,
    request: Change,
    actor: str,
    given: Mapping[str, Any],
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    sources: tuple[int, ...],
) -> None:
    """Record a change within the limits. Its event says what it adds to the state's size and keys, because a
    row can only be folded from what events say."""
    sizes = {name: size_of(value) for name, value in after.items()}
    size = sum(sizes.values()) - sum(size_of(value) for value in before.values())
    by = Sums(size, _more_keys(overlay, known, request, before, after))
    size, keys, righted = grown(overlay, request.run, known, totals, by, sizes)
    payload: dict[str, Any] = {
        "agent": request.agent,
        "type": request.type,
        "payload": given,
        "size": size,
        "fields": keys,
        "model": known.policy.model,
    }
    if righted:
        payload["righted"] = righted
    if known.fork is not None and request.type in BUILDING:
        payload["values"] = after  # a fork's own cells do not know what they build on
    secret = secret_names(known.policy, given, {*request.secret, *secret_in(overlay, sources)})
    if secret:
        payload["secret"] = secret
    emit(overlay, CHANGED, request.run, actor, payload, labels_for(secret), sources, request.blobs)


def _above_secrets(policy: Policy, field: str) -> str:
    """The path of a field without what lies below a secret one: names there may be secrets, too."""
    parts = field.split(".")
    end = next((n for n, part in enumerate(parts, 1) if part in policy.secret_fields), len(parts))
    return ".".join(parts[:end])


def _built_on(known: About, request: Change, last: Mapping[str, Cell | None]) -> tuple[int, ...]:
    """The positions of what a fork takes over from the run before it in order to build on it."""
    if known.fork is None or request.type not in BUILDING:
        return ()
    return tuple(
        position for one in last.values() if one is not None and not one.gone for position in one.sources
    )


def _more_keys(
    views: ViewReader, known: About, request: Change, before: Mapping[str, Any], after: Mapping[str, Any]
) -> int:
    """By how many keys the state grows at its top: 1 with an agent's first field, -1 without its last."""
    if before and after:
        return 0
    if not request.agent:
        return len(after.keys() - before.keys()) - len(before.keys() - after.keys())
    entry = entry_of(views, request.run, request.agent, known.fork)
    left = {name for name in entry if name not in before} | after.keys()
    return bool(left) - bool(entry)
