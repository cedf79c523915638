"""How far a run has come: marks of its nodes, its errors, its end."""

from __future__ import annotations

from typing import Any

import msgspec

from ..access.commands import Denial, refuse
from ..access.masking import masked
from ..access.rights import OWNER, RUNTIME, AccessRule, rule_in
from ..documents.writing import Log, decide_log, result_lines
from ..errors import BadInput, Conflict, Denied
from ..ledger.checks import check_name, iso
from ..ledger.overlay import Overlay
from ..ledger.reader import ViewReader
from .cells import DONE, cells_of, last_written, reduced
from .events import CHANGED, CLOSED, STEPPED, Secrecy, emit, events_at
from .policy import Policy
from .redaction import redactor_of
from .requests import ENDINGS, FAILED, FINISHED, STATUSES, Close, Reopen, RunStep
from .rows import Totals, done_by, opened_run, totals_of
from .sharing import visible_cells

NOBODY = ""
"""A viewer that is no agent: it sees what every agent may see."""

LONGEST, MOST_FIELDS = 2_000, 8
"""Characters that are kept of each field of an error, and how many fields."""


def check_open(views: ViewReader, run: str) -> Totals:
    totals = totals_of(views, run)
    if totals.status != "running":
        raise Conflict(f"the run {run!r} is {totals.status}: fork it to go on from any of its positions")
    return totals


def not_yours(overlay: Overlay, run: str, by: str, act: str, subject: str) -> Denied | None:
    """The refusal, already recorded, of what only the owner and the actor that opened a run may do to it."""
    if by in (OWNER, opened_run(overlay, run).by):
        return None
    message = f"{by!r} may not {act} the run {run!r}: its owner can, and the actor that opened it"
    return refuse(overlay, Denial(by, f"run.{act}", subject, run), message)


def decide_step(overlay: Overlay, request: RunStep) -> int | Denied:
    """Answers the position of the mark. An agent may mark its own turns."""
    policy = opened_run(overlay, request.run).policy
    node = request.of or check_name("a node", request.node)
    if request.status not in STATUSES:
        raise BadInput(f"a node is {', '.join(STATUSES)}, not {request.status!r:.60}")
    if policy.agents is not None and node not in policy.agents:
        raise BadInput(f"{node!r} is no agent of this workflow: its agents are {', '.join(policy.agents)}")
    if request.by not in (OWNER, request.node):
        message = (
            f"{request.by!r} may not mark how far {request.node!r} has come: an agent marks its own turns"
        )
        return refuse(overlay, Denial(request.by, "run.step", request.node, request.run), message)
    check_open(overlay, request.run)
    reason, sources = "", request.sources
    if request.reason or request.error is not None:
        hide = redactor_of(overlay, request.run, request.node)
        reason = _cut(hide(request.reason))
        if request.error is not None:
            sources += (_keep_error(overlay, request, hide(dict(request.error))),)
    before = done_by(overlay, request.run, request.node)
    payload = _payload(overlay, policy, request, reason, before)
    secrecy = Secrecy(policy, request.result)
    position = emit(overlay, STEPPED, request.run, RUNTIME, payload, sources, secrecy).position
    logs = policy.doing(request.node, before).memory.logs
    if request.status == FINISHED and not request.of and logs:
        _log_result(overlay, request)
    return position


def _payload(overlay: Overlay, policy: Policy, request: RunStep, reason: str, before: str) -> dict[str, Any]:
    """`before` is the agent that did the node's work until now in place of its own."""
    payload: dict[str, Any] = {
        "node": request.node,
        "status": request.status,
        "attempt": request.attempt,
        "iteration": request.iteration,
        "reason": reason,
        "result": dict(request.result),
        "of": request.of,
    }
    done_by = request.done_by if request.by == OWNER else before  # no agent lifts what binds it
    if done_by:
        payload["done_by"] = done_by
    rule = policy.doing(request.node, done_by).rule
    if not request.of and rule != (rule_in(overlay, request.run, request.node) or AccessRule()):
        payload["rule"] = msgspec.to_builtins(rule)
    return payload


def _log_result(overlay: Overlay, request: RunStep) -> None:
    """Write what an agent brought about into the day's log, as far as everybody may know it (3.1)."""
    opened = opened_run(overlay, request.run)
    entry = {
        place: cell
        for place, cell in cells_of(overlay, request.run, opened.fork, request.node).items()
        if place[1] != DONE
    }
    shared = visible_cells(opened.policy, NOBODY, entry, (request.node,))
    secret = opened.policy.secret_fields
    public = {field: cell for (_, field), cell in shared.items() if field not in secret}
    hide = redactor_of(overlay, request.run, request.node)
    output = {name: hide(cell.value) for name, cell in public.items()}
    confidence = output.get("confidence")
    title = request.node if confidence is None else f"{request.node} (confidence: {confidence})"
    sources = (position for cell in public.values() for position in cell.sources)
    parents = tuple(event.id for event in events_at(overlay, sources))
    text = masked(result_lines(output))
    overlay.run(
        "documents", decide_log, Log(request.node, text, request.run, title, parents=parents, checked=False)
    )


def _keep_error(overlay: Overlay, request: RunStep, error: dict[str, Any]) -> int:
    """One more entry of `_errors`, short enough not to need a place within the limits; answers its position."""
    opened = opened_run(overlay, request.run)
    entry: dict[str, Any] = {}
    for name, value in list(error.items())[:MOST_FIELDS]:
        entry[name[:100]] = value if isinstance(value, int | float | None) else _cut(str(value))
    entry |= {"agent": request.node, "at": iso(overlay.now)}
    payload = {"agent": "", "type": "append", "payload": {"_errors": entry}, "fields": 0, "size": 0}
    sources: tuple[int, ...] = ()
    if opened.fork is not None:
        last = last_written(overlay, request.run, "", ("_errors",), opened.fork).get("_errors")
        payload["values"] = {"_errors": reduced("append", None if last is None else last.value, entry)}
        sources = () if last is None else last.sources
    return emit(overlay, CHANGED, request.run, RUNTIME, payload, sources).position


def _cut(text: str) -> str:
    """The beginning of a text, without what looks like a secret. The book's lock is held meanwhile, so no more of
    it is searched than could be kept."""
    return masked(text[: 2 * LONGEST])[:LONGEST]


def decide_close(overlay: Overlay, request: Close) -> int | Denied:
    """Closing a run that is closed in the same way changes nothing."""
    refused = not_yours(overlay, request.run, request.by, "close", request.status)
    if refused:
        return refused
    if request.status not in ENDINGS:
        raise BadInput(f"a run ends as {', '.join(ENDINGS)}, not {request.status!r:.60}")
    if totals_of(overlay, request.run).status == request.status:
        return overlay.position
    check_open(overlay, request.run)
    reason = _cut(redactor_of(overlay, request.run, request.by)(request.reason)) if request.reason else ""
    payload = {"status": request.status, "reason": reason}
    failed = [
        step["position"] for _, step in overlay.scan("state.steps", request.run) if step["status"] == FAILED
    ]
    closed = emit(overlay, CLOSED, request.run, RUNTIME, payload, failed if reason else ())
    emit(overlay, "run.finished", request.run, RUNTIME, payload, (closed.position,) if reason else ())
    return closed.position


def decide_reopen(overlay: Overlay, request: Reopen) -> bool | Denied:
    """Let a run go on that did not complete. Answers whether it was one."""
    refused = not_yours(overlay, request.run, request.by, "reopen", "")
    if refused:
        return refused
    if totals_of(overlay, request.run).status not in ("partial", "failed", "cancelled"):
        return False
    emit(overlay, CLOSED, request.run, RUNTIME, {"status": "running", "reason": "resumed"})
    return True
