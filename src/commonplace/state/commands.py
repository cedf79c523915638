"""The state capability: how a run is opened, written to, stepped through, forked, merged and closed.

Deciders check everything under the book's lock, so that what they refuse leaves nothing behind but, where it
matters to others, a record of the refusal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ..access.commands import Denial, refuse
from ..access.redact import Redactor
from ..access.rights import OWNER
from ..commit import Lens, Overlay
from ..errors import BadInput, CommonplaceError, Conflict, ContractViolation, Denied, TooLarge
from ..events import Event, draft, iso
from ..keys import Key
from ..views import Capability, Kind, View
from .cells import (
    DONE,
    About,
    Cell,
    Fork,
    Sums,
    about,
    cell,
    cells,
    fold_cell,
    last_written,
    own_cells,
    place_of,
    reduced,
    size_of,
    sums,
    touched,
)
from .contract import CONFIDENCE, FILLED_IN, violations
from .policy import MB, RESERVED, Limits, Policy, Start
from .sharing import reserved

OPENED, CHANGED, STEPPED = "state.opened", "state.changed", "state.stepped"
CLOSED, MERGED, VIOLATED = "state.closed", "state.merged", "state.violated"

STARTED, FINISHED, FAILED, SKIPPED = "started", "finished", "failed", "skipped"
ENDINGS = ("completed", "failed", "cancelled")
BUILDING = ("append", "increment")
"""Types of changes that build on what a field holds."""

RUNTIME = "runtime"
"""The actor of what no agent did: marks of progress, errors, endings."""


# requests and answers


@dataclass(frozen=True, slots=True)
class Open:
    """Open a run. With `fork`, it begins as that run was then."""

    run: str
    by: str
    policy: Policy = field(default_factory=Policy)
    start: Start = field(default_factory=Start)
    given: dict[str, Any] = field(default_factory=dict)
    workflow: dict[str, str] = field(default_factory=dict)
    parent: str | None = None
    depth: int = 0
    fork: Fork | None = None
    sources: tuple[int, ...] = ()
    """The positions of the events that `given` comes from."""


@dataclass(frozen=True, slots=True)
class Change:
    """Write to an agent's own entry. `seen`: the position as of which its writer had read."""

    run: str
    agent: str
    by: str
    type: str
    payload: Mapping[str, Any]
    seen: int | None = None
    partial: bool = False
    step: Step | None = None
    """What this write brings to an end, in the same commit."""
    contract: bool = True
    """False: each part was checked before they were put together."""
    sources: tuple[int, ...] = ()
    """The positions of the events whose content it carries on: it is erased with them."""


@dataclass(frozen=True, slots=True)
class Step:
    """A node of the graph has come somewhere. `error` is kept in the state's `_errors`, redacted."""

    run: str
    node: str
    status: str
    attempt: int = 1
    iteration: int = 0
    reason: str = ""
    error: dict[str, Any] | None = None
    result: dict[str, Any] = field(default_factory=dict)
    """What whoever resumes must know: the outputs of finished instances of a fan-out, say."""
    of: str = ""
    """The node that this is an instance of, if it is one."""
    by: str = OWNER


@dataclass(frozen=True, slots=True)
class Close:
    run: str
    status: str
    reason: str = ""
    by: str = OWNER


@dataclass(frozen=True, slots=True)
class Reopen:
    run: str
    by: str = OWNER


@dataclass(frozen=True, slots=True)
class Merge:
    """Bring what a fork has written back into the run it came from. `prefer`: which side wins where both
    have written, fork or target; None: that is a Conflict."""

    fork: str
    by: str
    prefer: str | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """What a write did. `position` is also the new version of every field in `fields`; `redacted` are those
    that logs and pages will not show."""

    position: int
    fields: tuple[str, ...]
    redacted: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    outcome: str = "stored"


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge did: the cells taken over, as agent.field."""

    into: str
    fields: tuple[str, ...]
    conflicts: tuple[Mapping[str, Any], ...] = ()


# deciders


def decide_open(overlay: Overlay, request: Open) -> Event | CommonplaceError:
    if overlay.get("state.runs", request.run) is not None:
        raise Conflict(f"the run {request.run!r} is already open: use its id alone to go on with it")
    if request.fork is not None:
        return _open_fork(overlay, request, request.fork)
    policy = request.policy
    if request.parent is not None:
        deepest = about(overlay, request.parent).policy.max_depth
        policy = msgspec.structs.replace(policy, max_depth=min(policy.max_depth, deepest))
        if request.depth > deepest:
            raise BadInput(
                f"{request.parent!r} may not delegate any deeper: the limit is {deepest} (R31). Do the work there, "
                "or raise delegation_loop.max_depth"
            )
    values = start_values(request.start, request.given, request.run, overlay.now)
    problems = [f"{key} is the runtime's own (R13)" for key in reserved(values)]
    problems += [
        f"{name} is required and missing" for name in request.start.required_fields if name not in values
    ]
    if problems:
        raise BadInput(
            f"the run cannot start: {'; '.join(problems)}. Give the values as initial={{…}}, or in the file's "
            "state.initial or state.auto_inject"
        )
    initial = [one for key, value in values.items() for one in place_of(policy.agents, key, value)]
    totals = Sums(sum(size_of(value) for _, _, value in initial), len(values))
    _check_limits(policy.limits, totals, {name: size_of(value) for name, value in values.items()})
    return _opened(overlay, request, policy, request.workflow, initial, totals)


def _open_fork(overlay: Overlay, request: Open, fork: Fork) -> Event:
    if not 0 < fork.at <= overlay.position:
        raise BadInput(f"{fork.at} is not in this book: fork at a position from 1 to {overlay.position}")
    then = overlay.at(fork.at)
    known, totals = about(then, fork.run), sums(then, fork.run)
    return _opened(overlay, request, known.policy, known.workflow, [], totals)


def _opened(
    overlay: Overlay,
    request: Open,
    policy: Policy,
    workflow: dict[str, str],
    initial: list[tuple[str, str, Any]],
    totals: Sums,
) -> Event:
    payload = {
        "policy": msgspec.to_builtins(policy),
        "workflow": workflow,
        "initial": [list(one) for one in initial],
        "parent": request.parent,
        "depth": request.depth,
        "fork": None if request.fork is None else {"run": request.fork.run, "at": request.fork.at},
        "size": totals.size,
        "fields": totals.fields,
        "model": policy.model,
    }
    labels = _labels(policy, {field: value for _, field, value in initial})
    opened = _emit(overlay, OPENED, request.run, request.by, payload, labels, request.sources)
    named = {"workflow": workflow.get("name", "")} | (
        {"forked_from": request.fork.run} if request.fork else {}
    )
    overlay.emit(draft("run.started", actor=request.by, run_id=request.run, payload=named))
    return opened


def decide_change(overlay: Overlay, request: Change) -> Written | CommonplaceError:
    known = about(overlay, request.run)
    totals = _check_open(overlay, request.run)
    refused = _may_not_write(overlay, known.policy, request)
    if refused:
        return refused
    last = {
        name: last_written(overlay, request.run, request.agent, name, known.fork) for name in request.payload
    }
    _check_seen(overlay, request, last)
    before = {name: one.value for name, one in last.items() if one is not None and not one.gone}
    given, after = dict(request.payload), _outcome(request, before)
    warnings, broken = _conform(overlay, known, request, given, after)
    if broken:
        _emit(overlay, VIOLATED, request.run, RUNTIME, {"agent": request.agent, "violations": broken})
        return ContractViolation(request.agent, broken)
    position = overlay.position
    if given or request.step is None:
        keys = _more_keys(overlay, known, request, before, after)
        payload = _changes(known, totals, request, given, before, after, keys)
        sources = (*request.sources, *_built_on(known, request, last))
        labels = _labels(known.policy, given)
        position = _emit(overlay, CHANGED, request.run, request.agent, payload, labels, sources).position
    if request.step is not None:
        decide_step(overlay, request.step)
    hidden = tuple(sorted(known.policy.secret_fields.intersection(given)))
    return Written(position, tuple(sorted(given)), hidden, warnings)


def _may_not_write(overlay: Overlay, policy: Policy, request: Change) -> Denied | None:
    """The refusal, already recorded, of a write to another's entry or to a reserved key."""
    agent, forbidden = request.agent, reserved(request.payload)
    if policy.agents is not None and agent not in policy.agents:
        raise BadInput(f"{agent!r} is no agent of this workflow: its agents are {', '.join(policy.agents)}")
    if request.by not in (agent, OWNER):
        told = f"{request.by!r} may not write to the entry of {agent!r}: an agent writes its own"
        return refuse(overlay, Denial(request.by, "state.write", agent, request.run), told)
    if forbidden:
        names = ", ".join(forbidden)
        told = (
            f"{agent!r} may not write {names} (R13): the runtime fills {', '.join(RESERVED)}. Use other names"
        )
        return refuse(overlay, Denial(agent, "state.write", names, request.run), told)
    return None


def _conform(
    overlay: Overlay, known: About, request: Change, given: dict[str, Any], after: dict[str, Any]
) -> tuple[tuple[str, ...], list[dict[str, str]]]:
    """Hold a write against the agent's contract: what was filled in for it, and what breaks it."""
    contract = known.policy.agent(request.agent).contract if request.contract else None
    if contract is None:
        return (), []
    warnings: tuple[str, ...] = ()
    entry = _entry(overlay, request.run, request.agent, known.fork)
    entry = {name: value for name, value in entry.items() if name not in given} | after
    if not request.partial and _confidence_is_missing(known.policy, contract, entry):
        warnings = (f"{request.agent} stated no confidence; {FILLED_IN} was filled in (R17)",)
        for values in (given, after, entry):
            values[CONFIDENCE] = FILLED_IN
    return warnings, violations(contract, entry, request.partial)


def _changes(
    known: About,
    totals: Sums,
    request: Change,
    given: Mapping[str, Any],
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    keys: int,
) -> dict[str, Any]:
    """The payload of a change, within the limits. It says what it adds to the state's size and keys, because a
    row can only be folded from what its events say."""
    sizes = {name: size_of(value) for name, value in after.items()}
    size = sum(sizes.values()) - sum(size_of(value) for value in before.values())
    _check_limits(known.policy.limits, Sums(totals.size + size, totals.fields + keys), sizes)
    payload = {
        "agent": request.agent,
        "type": request.type,
        "payload": given,
        "size": size,
        "fields": keys,
        "model": known.policy.model,
    }
    if known.fork is not None and request.type in BUILDING:
        payload["values"] = after  # a fork's own cells do not know what they build on
    return payload


def _built_on(known: About, request: Change, last: Mapping[str, Cell | None]) -> tuple[int, ...]:
    """The positions of what a fork takes over from the run before it in order to build on it."""
    if known.fork is None or request.type not in BUILDING:
        return ()
    return tuple(one.version for one in last.values() if one is not None and not one.gone)


def _more_keys(
    overlay: Overlay, known: About, request: Change, before: Mapping[str, Any], after: Mapping[str, Any]
) -> int:
    """By how many keys the state grows at its top: 1 with an agent's first field, -1 without its last."""
    if before and after:
        return 0
    entry = _entry(overlay, request.run, request.agent, known.fork)
    if not request.agent:
        return len(after.keys() - before.keys()) - len(before.keys() - after.keys())
    left = {name for name in entry if name not in before} | after.keys()
    return bool(left) - bool(entry)


def _outcome(request: Change, before: Mapping[str, Any]) -> dict[str, Any]:
    """What each field will hold; a removed one is not in it."""
    if request.type == "remove":
        return {}
    return {name: reduced(request.type, before.get(name), value) for name, value in request.payload.items()}


def _check_seen(overlay: Overlay, request: Change, last: Mapping[str, Cell | None]) -> None:
    if request.seen is None:
        return
    moved = {name: one for name, one in last.items() if one is not None and one.version > request.seen}
    if moved:
        hide = redactor_of(overlay, request.run)
        stale = [
            {
                "field": name,
                "seen": request.seen,
                "current": one.version,
                "value": hide({name: one.value})[name],
            }
            for name, one in moved.items()
        ]
        told = ", ".join(
            f"{one['field']} (you saw {one['seen']}, it is at {one['current']})" for one in stale
        )
        raise Conflict(
            f"the state of {request.agent!r} has moved on: {told}. Read it again, decide again, and write with "
            "the new as_of",
            stale,
        )


def _entry(lens: Lens, run: str, agent: str, fork: Fork | None) -> dict[str, Any]:
    """What an agent's entry holds now."""
    entry: dict[str, Any] = {}
    if fork is not None:
        then = lens.at(fork.at)
        entry = _entry(then, fork.run, agent, about(then, fork.run).fork)
    for key, row in lens.scan("state.cells", run, agent):
        if "gone" in row or key[2] == DONE:
            entry.pop(str(key[2]), None)
        else:
            entry[str(key[2])] = row["value"]
    return entry


def _confidence_is_missing(policy: Policy, contract: Mapping[str, Any], entry: Mapping[str, Any]) -> bool:
    """Whether to fill in a confidence: none is stated, and the contract does not insist on one."""
    insists = policy.validation == "strict" or CONFIDENCE in contract.get("required", ())
    return CONFIDENCE not in entry and not insists


def _check_limits(limits: Limits, totals: Sums, sizes: Mapping[str, int]) -> None:
    for name, size in sizes.items():
        if size > limits.max_field_size_mb * MB:
            raise TooLarge(
                f"{name!r} is {size:,} bytes and a field may have {limits.max_field_size_mb:g} MB: store it elsewhere "
                "and write a reference, or raise state.limits.max_field_size_mb. Nothing was written"
            )
    if totals.size > limits.max_state_size_mb * MB:
        raise TooLarge(
            f"the state would be {totals.size:,} bytes and may have {limits.max_state_size_mb:g} MB: remove "
            "something, or raise state.limits.max_state_size_mb. Nothing was written"
        )
    if totals.fields > limits.max_fields:
        raise TooLarge(
            f"the state would have {totals.fields:,} keys and may have {limits.max_fields:,}: raise "
            "state.limits.max_fields. Nothing was written"
        )


def _refused(overlay: Overlay, run: str, by: str, act: str, what: str) -> Denied | None:
    """The refusal, already recorded, of what only the owner and whoever opened a run may do to it."""
    if by in (OWNER, about(overlay, run).by):
        return None
    told = f"{by!r} may not {act} the run {run!r}: its owner can, and whoever opened it"
    return refuse(overlay, Denial(by, f"run.{act}", what, run), told)


def decide_step(overlay: Overlay, request: Step) -> int | Denied:
    """Answers the position of the mark. An agent may mark its own turns."""
    known = about(overlay, request.run)
    refused = request.by != request.node and _refused(overlay, request.run, request.by, "step", request.node)
    if refused:
        return refused
    _check_open(overlay, request.run)
    payload = {
        "node": request.node,
        "status": request.status,
        "attempt": request.attempt,
        "iteration": request.iteration,
        "reason": request.reason,
        "result": request.result,
        "of": request.of,
        "model": known.policy.model,
    }
    if request.error is not None:
        hide = redactor_of(overlay, request.run)
        payload["reason"] = hide(request.reason)
        told = {"agent": request.node, "at": iso(overlay.now), **hide(request.error)}
        errors = {
            "agent": "",
            "type": "append",
            "payload": {"_errors": told},
            "size": size_of(told),
            "fields": 0,
        }
        errors["model"] = known.policy.model
        sources: tuple[int, ...] = ()
        if known.fork is not None:
            last = cell(overlay, request.run, "", "_errors", known.fork)
            errors["values"] = {"_errors": reduced("append", None if last is None else last.value, told)}
            sources = () if last is None else (last.version,)
        _emit(overlay, CHANGED, request.run, RUNTIME, errors, sources=sources)
    return _emit(overlay, STEPPED, request.run, RUNTIME, payload).position


def decide_close(overlay: Overlay, request: Close) -> int | Denied:
    """Closing a run that is closed in the same way changes nothing."""
    refused = _refused(overlay, request.run, request.by, "close", request.status)
    if refused:
        return refused
    if request.status not in ENDINGS:
        raise BadInput(f"a run ends as {', '.join(ENDINGS)}, not {request.status!r}")
    standing = sums(overlay, request.run)
    if standing.status == request.status:
        return overlay.position
    _check_open(overlay, request.run)
    reason = redactor_of(overlay, request.run)(request.reason)
    payload = {"status": request.status, "reason": reason}
    position = _emit(overlay, CLOSED, request.run, RUNTIME, payload).position
    _emit(overlay, "run.finished", request.run, RUNTIME, payload)
    return position


def decide_reopen(overlay: Overlay, request: Reopen) -> bool | Denied:
    """Let a failed or cancelled run go on. Answers whether it was one."""
    run = request.run
    refused = _refused(overlay, run, request.by, "reopen", "")
    if refused:
        return refused
    if sums(overlay, run).status not in ("failed", "cancelled"):
        return False
    _emit(overlay, CLOSED, run, RUNTIME, {"status": "running", "reason": "resumed"})
    return True


def decide_merge(overlay: Overlay, request: Merge) -> Merged | Denied:
    """Three ways: as it was when the fork left, as the fork has it, as the target has it now."""
    fork = about(overlay, request.fork).fork
    if fork is None:
        raise BadInput(f"{request.fork!r} is no fork, so there is nothing to merge it into")
    if request.prefer not in (None, "fork", "target"):
        raise BadInput(f"prefer is 'fork' or 'target', not {request.prefer!r}")
    refused = _refused(overlay, fork.run, request.by, "merge into", request.fork)
    if refused:
        return refused
    _check_open(overlay, fork.run)
    into = about(overlay, fork.run)
    base = cells(overlay.at(fork.at), fork.run, into.fork)
    target = cells(overlay, fork.run, into.fork)
    theirs = {
        place: one
        for place, one in own_cells(overlay, request.fork).items()
        if place[1] not in (*RESERVED, DONE) and _value(one) != _value(target.get(place))
    }
    hide = redactor_of(overlay, fork.run) | redactor_of(overlay, request.fork)
    conflicts = [
        {
            "field": ".".join(part for part in place if part),
            "base": hide({place[1]: _value(base.get(place))})[place[1]],
            "fork": hide({place[1]: _value(one)})[place[1]],
            "target": hide({place[1]: _value(target.get(place))})[place[1]],
        }
        for place, one in sorted(theirs.items())
        if _value(target.get(place)) != _value(base.get(place))
    ]
    if conflicts and request.prefer is None:
        both = ", ".join(str(one["field"]) for one in conflicts)
        raise Conflict(
            f"both {request.fork!r} and {fork.run!r} have written {both}: merge again with prefer='fork' or "
            "prefer='target'. Nothing was merged",
            conflicts if request.by == OWNER else [{"field": one["field"]} for one in conflicts],
        )
    if request.prefer == "target":
        kept = {str(one["field"]) for one in conflicts}
        theirs = {place: one for place, one in theirs.items() if ".".join(filter(None, place)) not in kept}
    _take_over(overlay, request, fork.run, into, theirs)
    named = tuple(sorted(".".join(part for part in place if part) for place in theirs))
    payload = {"fork": request.fork, "fields": list(named), "prefer": request.prefer}
    _emit(overlay, MERGED, fork.run, request.by, payload)
    return Merged(fork.run, named, tuple(conflicts))


def _take_over(
    overlay: Overlay, request: Merge, run: str, into: About, theirs: dict[tuple[str, str], Cell | None]
) -> None:
    """One change an agent and type, within the target's limits; what makes room goes first."""
    groups: dict[tuple[str, str], dict[str, Any]] = {}
    for (agent, name), one in theirs.items():
        groups.setdefault((agent, "remove" if one is None else "set"), {})[name] = _value(one)
    for (agent, type), given in sorted(groups.items(), key=lambda one: (one[0][1] != "remove", one[0][0])):
        change = Change(run, agent, request.by, type, given)
        found = {name: cell(overlay, run, agent, name, into.fork) for name in given}
        before = {name: one.value for name, one in found.items() if one is not None}
        after = _outcome(change, before)
        keys = _more_keys(overlay, into, change, before, after)
        payload = _changes(into, sums(overlay, run), change, given, before, after, keys)
        sources = tuple(one.version for name in given if (one := theirs[agent, name]) is not None)
        _emit(overlay, CHANGED, run, request.by, payload, _labels(into.policy, given), sources)


def _value(one: Cell | None) -> Any:
    return None if one is None else one.value


def _check_open(lens: Lens, run: str) -> Sums:
    standing = sums(lens, run)
    if standing.status != "running":
        raise Conflict(f"the run {run!r} is {standing.status}: fork it to go on from any of its positions")
    return standing


def _emit(
    overlay: Overlay,
    kind: str,
    run: str,
    actor: str,
    payload: dict[str, Any],
    labels: dict[str, str] | None = None,
    sources: tuple[int, ...] = (),
) -> Event:
    parents = [overlay.event_at(position).id for position in dict.fromkeys(sources)]
    return overlay.emit(draft(kind, actor=actor, run_id=run, payload=payload, labels=labels, parents=parents))


def _labels(policy: Policy, given: Mapping[str, Any]) -> dict[str, str] | None:
    """A write that holds a secret field is labelled so."""
    hide = Redactor(policy.secret_fields)
    return {"sensitivity": "sensitive"} if hide and hide(given) != given else None


PLACEHOLDER = re.compile(r"\$\{now\}|\{\{(RUN_ID|TIMESTAMP)\}\}|\$\{(run_id|timestamp)\}")


def start_values(start: Start, given: Mapping[str, Any], run: str, now: int) -> dict[str, Any]:
    """The state a run begins with: what the caller gives wins over auto_inject, that over the file's initial."""

    def filled(value: Any) -> Any:
        if isinstance(value, str):
            return PLACEHOLDER.sub(lambda found: run if "run_id" in found[0].lower() else iso(now), value)
        if isinstance(value, dict):
            return {name: filled(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [filled(inner) for inner in value]
        return value

    return {**start.initial, **filled(start.auto_inject), **given}


def redactor_of(lens: Lens, run: str | None) -> Redactor:
    """What must not be shown of a run outside the run: its secret fields, its patterns, and the texts that its
    secret fields hold, wherever they turn up. A run within another one keeps that one's secrets, too."""
    if run is None or lens.get("state.runs", run) is None:
        return Redactor()
    known = about(lens, run)
    hide = Redactor(known.policy.secret_fields, known.policy.patterns)
    if hide.fields:
        for (_, name), one in cells(lens, run, known.fork).items():
            hide = hide.knowing({name: one.value})
    return hide | redactor_of(lens, known.parent) if known.parent else hide


# folds


def _fold_about(_key: Key, _before: Any, event: Event) -> Any:
    payload = event.payload
    return msgspec.to_builtins(
        About(
            policy=msgspec.convert(payload["policy"], Policy),
            workflow=payload["workflow"],
            started_us=event.created_us,
            by=event.actor,
            parent=payload["parent"],
            depth=payload["depth"],
            fork=msgspec.convert(payload["fork"], Fork | None),
        )
    )


def _fold_sums(_key: Key, before: Any, event: Event) -> Any:
    payload = event.payload
    known = before or {"size": 0, "fields": 0, "status": "running"}
    return {
        "size": known["size"] + payload.get("size", 0),
        "fields": known["fields"] + payload.get("fields", 0),
        "status": payload["status"] if event.kind == CLOSED else known["status"],
        "updated_us": event.created_us,
    }


def _fold_step(_key: Key, before: Any, event: Event) -> Any:
    payload = event.payload
    done = payload["status"] == FINISHED or bool(before and before["done"])
    return {name: payload[name] for name in ("status", "attempt", "iteration", "reason", "result", "of")} | {
        "done": done,
        "position": event.position,
    }


def _of_run(event: Event) -> list[Key]:
    return [(event.run_id or "",)]


def _no_content(payload: dict[str, Any]) -> dict[str, Any]:
    return {**payload, "initial": [], "size": 0, "fields": 0}


def _no_result(payload: dict[str, Any]) -> dict[str, Any]:
    return {**payload, "reason": "", "result": {}}


STATE = Capability(
    "state",
    kinds=(
        Kind(OPENED, residue=_no_content),
        Kind(CHANGED),
        Kind(STEPPED, residue=_no_result),
        Kind(CLOSED, residue=lambda payload: {**payload, "reason": ""}),
        Kind(MERGED),
        Kind(VIOLATED),
    ),
    commands={
        "state.open": decide_open,
        "state.change": decide_change,
        "state.step": decide_step,
        "state.close": decide_close,
        "state.reopen": decide_reopen,
        "state.merge": decide_merge,
    },
    views=(
        View("state.runs", 1, _of_run, _fold_about, kinds=frozenset({OPENED})),
        View("state.sums", 1, _of_run, _fold_sums, kinds=frozenset({OPENED, CHANGED, CLOSED})),
        View("state.cells", 1, touched, fold_cell, kinds=frozenset({OPENED, CHANGED, STEPPED})),
        View(
            "state.steps",
            1,
            lambda event: [(event.run_id or "", event.payload["node"])],
            _fold_step,
            kinds=frozenset({STEPPED}),
        ),
        View(
            "state.projection",
            1,
            lambda event: touched(event) if event.payload["model"] == "cqrs" else [],
            fold_cell,
            kinds=frozenset({OPENED, CHANGED, STEPPED}),
            trailing=True,
        ),
    ),
)
