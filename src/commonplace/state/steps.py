"""How far a run has come: marks of its nodes, its errors, its end."""

from __future__ import annotations

from typing import Any

import msgspec

from ..access.commands import Denial, refuse
from ..access.rights import OWNER, RUNTIME, AccessRule, rule_in
from ..access.secrets import masked
from ..documents.writing import Log, decide_log, result_lines
from ..errors import BadInput, Conflict, Denied
from ..ledger.events import check_name, iso
from ..ledger.overlay import Overlay
from ..ledger.reader import ViewReader
from .cells import DONE, About, Sums, about, cells, done_by, last_written, reduced, sums
from .emitting import emit, labels_for, secret_names, sources_at
from .redaction import redactor_of
from .requests import CHANGED, CLOSED, ENDINGS, FAILED, FINISHED, STATUSES, STEPPED, Close, Reopen, RunStep
from .sharing import visible

NOBODY = ""
"""A viewer that is no agent: it sees what every agent may see."""

LONGEST, MOST_FIELDS = 2_000, 8
"""Characters that are kept of each field of an error, and how many fields."""


def check_open(views: ViewReader, run: str) -> Sums:
    standing = sums(views, run)
    if standing.status != "running":
        raise Conflict(f"the run {run!r} is {standing.status}: fork it to go on from any of its positions")
    return standing


def not_yours(overlay: Overlay, run: str, by: str, act: str, what: str) -> Denied | None:
    """The refusal, already recorded, of what only the owner and whoever opened a run may do to it."""
    if by in (OWNER, about(overlay, run).by):
        return None
    told = f"{by!r} may not {act} the run {run!r}: its owner can, and whoever opened it"
    return refuse(overlay, Denial(by, f"run.{act}", what, run), told)


def decide_step(overlay: Overlay, request: RunStep) -> int | Denied:
    """Answers the position of the mark. An agent may mark its own turns."""
    known = about(overlay, request.run)
    node = request.of or check_name("a node", request.node)
    if request.status not in STATUSES:
        raise BadInput(f"a node is {', '.join(STATUSES)}, not {request.status!r:.60}")
    if known.policy.agents is not None and node not in known.policy.agents:
        raise BadInput(
            f"{node!r} is no agent of this workflow: its agents are {', '.join(known.policy.agents)}"
        )
    if request.by not in (OWNER, request.node):
        told = f"{request.by!r} may not mark how far {request.node!r} has come: an agent marks its own turns"
        return refuse(overlay, Denial(request.by, "run.step", request.node, request.run), told)
    check_open(overlay, request.run)
    hide = (
        redactor_of(overlay, request.run, request.node)
        if request.reason or request.error is not None
        else None
    )
    sources = request.sources
    if request.error is not None and hide is not None:
        sources += (_keep_error(overlay, known, request, hide(dict(request.error))),)
    secret = secret_names(known.policy, request.result)
    payload: dict[str, Any] = {
        "node": request.node,
        "status": request.status,
        "attempt": request.attempt,
        "iteration": request.iteration,
        "reason": _cut(hide(request.reason)) if hide is not None else "",
        "result": dict(request.result),
        "of": request.of,
        "model": known.policy.model,
    }
    if secret:
        payload["secret"] = secret
    before = done_by(overlay, request.run, request.node)
    doer = request.done_by if request.by == OWNER else before  # no agent lifts what binds it
    if doer:
        payload["done_by"] = doer
    rule = known.policy.doing(request.node, doer).rule
    if not request.of and rule != (rule_in(overlay, request.run, request.node) or AccessRule()):
        payload["rule"] = msgspec.to_builtins(rule)
    position = emit(overlay, STEPPED, request.run, RUNTIME, payload, labels_for(secret), sources).position
    logs = known.policy.doing(request.node, before).memory.logs
    if request.status == FINISHED and not request.of and logs:
        _log_result(overlay, known, request)
    return position


def _log_result(overlay: Overlay, known: About, request: RunStep) -> None:
    """The day's log says what an agent brought about, as far as everybody may know it (3.1)."""
    own = {
        place: one
        for place, one in cells(overlay, request.run, known.fork, request.node).items()
        if place[1] != DONE
    }
    shared = visible(known.policy, NOBODY, own, (request.node,))
    secret = known.policy.secret_fields
    told = {field: one for (_, field), one in shared.items() if field not in secret}
    hide = redactor_of(overlay, request.run, request.node)
    output = {name: hide(one.value) for name, one in told.items()}
    confidence = output.get("confidence")
    about = request.node if confidence is None else f"{request.node} (confidence: {confidence})"
    parents = tuple(
        one.id for one in sources_at(overlay, (at for cell in told.values() for at in cell.sources))
    )
    text = masked(result_lines(output))
    overlay.run(
        "documents", decide_log, Log(request.node, text, request.run, about, parents=parents, checked=False)
    )


def _keep_error(overlay: Overlay, known: About, request: RunStep, error: dict[str, Any]) -> int:
    """One more entry of `_errors`, short enough not to need a place within the limits; answers its position."""
    told: dict[str, Any] = {}
    for name, one in list(error.items())[:MOST_FIELDS]:
        told[name[:100]] = one if isinstance(one, int | float | None) else _cut(str(one))
    told |= {"agent": request.node, "at": iso(overlay.now)}
    payload = {"agent": "", "type": "append", "payload": {"_errors": told}, "fields": 0, "size": 0}
    payload |= {"model": known.policy.model}
    sources: tuple[int, ...] = ()
    if known.fork is not None:
        last = last_written(overlay, request.run, "", "_errors", known.fork)
        payload["values"] = {"_errors": reduced("append", None if last is None else last.value, told)}
        sources = () if last is None else last.sources
    return emit(overlay, CHANGED, request.run, RUNTIME, payload, sources=sources).position


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
    if sums(overlay, request.run).status == request.status:
        return overlay.position
    check_open(overlay, request.run)
    reason = _cut(redactor_of(overlay, request.run, request.by)(request.reason)) if request.reason else ""
    payload = {"status": request.status, "reason": reason}
    failed = [
        step["position"] for _, step in overlay.scan("state.steps", request.run) if step["status"] == FAILED
    ]
    closed = emit(overlay, CLOSED, request.run, RUNTIME, payload, sources=failed if reason else ())
    emit(overlay, "run.finished", request.run, RUNTIME, payload, sources=(closed.position,) if reason else ())
    return closed.position


def decide_reopen(overlay: Overlay, request: Reopen) -> bool | Denied:
    """Let a failed or cancelled run go on. Answers whether it was one."""
    refused = not_yours(overlay, request.run, request.by, "reopen", "")
    if refused:
        return refused
    if sums(overlay, request.run).status not in ("failed", "cancelled"):
        return False
    emit(overlay, CLOSED, request.run, RUNTIME, {"status": "running", "reason": "resumed"})
    return True
