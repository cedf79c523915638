"""How a run begins: with start values, as another one was, or within another one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from ..access.commands import Denial, refuse
from ..access.patterns import bad_pattern
from ..access.rights import rights_of
from ..errors import BadInput, Conflict, Denied, id_taken
from ..ledger.checks import is_name, iso
from ..ledger.events import Event, draft
from ..ledger.overlay import Overlay
from .cells import size_of
from .events import OPENED, Secrecy, emit
from .limits import check_limits
from .policy import Policy, Start, reserved
from .requests import Fork, Open
from .rows import Totals, opened_run, totals_of
from .sharing import is_known, takes_part


def decide_open(overlay: Overlay, request: Open) -> Event | Denied:
    if overlay.get("state.runs", request.run) is not None:
        if not is_known(overlay, request.run, request.by):
            raise id_taken(request.run)
        raise Conflict(f"the run {request.run!r} is already open: use its id alone to continue it")
    if not rights_of(overlay, request.by).emits("run.started"):
        message = f"{request.by!r} may not open runs: it may not record 'run.started'"
        return refuse(overlay, Denial(request.by, "emit", "run.started"), message)
    if request.fork is not None:
        return _open_fork(overlay, request, request.fork)
    policy, depth = _within(overlay, request)
    values = start_values(request.start, request.initial, request.run, overlay.now)
    problems = list(_problems(policy, request.start, values))
    if problems:
        raise BadInput(
            f"the run cannot start: {'; '.join(problems)}. Give the values as initial={{…}}, or in the file's "
            "state.initial or state.auto_inject"
        )
    initial = [cell for key, value in values.items() for cell in _cells(policy.agents, key, value)]
    totals = Totals(sum(size_of(value) for _, _, value in initial), len(values))
    check_limits(policy.limits, totals, {name: size_of(value) for name, value in values.items()})
    return _opened(overlay, request, policy, dict(request.workflow), initial, totals, depth)


def _within(overlay: Overlay, request: Open) -> tuple[Policy, int]:
    """The policy and depth of a run that may be within another one: never deeper than that one allows,
    and with no more rights than there."""
    if request.parent is None:
        return request.policy, 0
    parent = opened_run(overlay, request.parent)
    if not takes_part(overlay, request.parent, parent, request.by):
        raise Conflict(f"{request.by!r} takes no part in {request.parent!r} and cannot delegate from it")
    deepest = parent.policy.max_depth
    if parent.depth + 1 > deepest:
        raise BadInput(
            f"{request.parent!r} may not delegate any deeper: the limit is {deepest} (R31). Do the work there, "
            "or raise delegation_loop.budget.max_depth"
        )
    return request.policy.within(parent.policy), parent.depth + 1


def _cells(agents: Mapping[str, Any] | None, key: str, value: object) -> list[tuple[str, str, Any]]:
    """Where a start value goes: an agent's own object to that agent's entry, anything else to the run."""
    if agents is not None and key in agents and isinstance(value, dict):
        return [(key, field, inner) for field, inner in value.items()]
    return [("", key, value)]


def _problems(policy: Policy, start: Start, values: Mapping[str, Any]) -> list[str]:
    agents = policy.agents or {}
    problems = [f"{key} is the runtime's own (R13)" for key in reserved(values)]
    missing = [name for name in start.required_fields if name not in values]
    if policy.validation != "strict":
        # Some files list what an agent answers, which is not there at the start.
        answered = {
            name for agent in agents.values() for name in (agent.contract or {}).get("properties", {})
        }
        missing = [name for name in missing if name not in answered]
    problems += [f"{name} is required and missing" for name in missing]
    problems += [f"{key!a:.60} is not a name" for key in values if not is_name(key)]
    for key in [key for key in values if key in agents]:
        if not isinstance(values[key], dict):
            problems.append(f"{key} is an agent, so its start value is an object of fields")
        elif reserved(values[key]) or "" in values[key]:
            problems.append(f"the start value of {key} has a field that is no name for one")
    reasons = {pattern: bad_pattern(pattern) for pattern in policy.patterns}
    return problems + [
        f"the pattern {pattern!r:.60} cannot be used: {reason}"
        for pattern, reason in reasons.items()
        if reason
    ]


def _open_fork(overlay: Overlay, request: Open, fork: Fork) -> Event:
    if not 0 < fork.at <= overlay.position:
        raise BadInput(f"{fork.at} is not in this book: fork at a position from 1 to {overlay.position}")
    then = overlay.at(fork.at)
    source, totals = opened_run(then, fork.run), totals_of(then, fork.run)
    return _opened(overlay, request, source.policy, source.workflow, [], totals, source.depth)


def _opened(
    overlay: Overlay,
    request: Open,
    policy: Policy,
    workflow: dict[str, str],
    initial: list[tuple[str, str, Any]],
    totals: Totals,
    depth: int,
) -> Event:
    payload = {
        "policy": msgspec.to_builtins(policy),
        "workflow": workflow,
        "initial": [list(cell) for cell in initial],
        "parent": request.parent,
        "depth": depth,
        "fork": msgspec.to_builtins(request.fork),
        "size": totals.size,
        "fields": totals.fields,
    }
    secrecy = Secrecy(policy, [{field: value} for _, field, value in initial])
    opened = emit(overlay, OPENED, request.run, request.by, payload, request.sources, secrecy)
    started = {"workflow": workflow.get("name", "")}
    if request.fork is not None:
        started["forked_from"] = request.fork.run
    overlay.emit(draft("run.started", actor=request.by, run_id=request.run, payload=started))
    return opened


PLACEHOLDER = re.compile(r"\$\{now\}|\{\{(RUN_ID|TIMESTAMP)\}\}|\$\{(run_id|timestamp)\}")


def start_values(start: Start, values: Mapping[str, Any], run: str, now: int) -> dict[str, Any]:
    """The state a run begins with: what the caller gives wins over auto_inject, that over the file's initial."""

    def filled(value: Any) -> Any:
        if isinstance(value, str):
            return PLACEHOLDER.sub(lambda match: run if "run_id" in match[0].lower() else iso(now), value)
        if isinstance(value, dict):
            return {name: filled(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [filled(inner) for inner in value]
        return value

    return {**start.initial, **filled(start.auto_inject), **values}
