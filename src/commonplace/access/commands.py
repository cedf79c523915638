"""The access capability: granting, relabelling, and the record of what was denied or looked at."""

from __future__ import annotations

from collections.abc import Collection
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Never

import msgspec

from ..errors import BadInput, Conflict, Denied, NotFound, id_taken, shown
from ..ledger.events import Draft, Event, draft, read_header
from ..ledger.keys import Key
from ..ledger.labels import FLOWING, flow, lowers
from ..ledger.overlay import Overlay
from ..ledger.reader import ViewReader
from ..ledger.scopes import (
    ROOT,
    SCOPE,
    SCOPES,
    Guarded,
    Path,
    decide_name,
    lies_in,
    name_of,
    path_of,
    written,
)
from ..ledger.views import Capability, Kind, View
from .rights import (
    ACTS,
    LIMITED_SCOPES,
    OWNER,
    Permission,
    checked_rule,
    permission_in,
    reads_scope,
    rights_of,
    rule_in,
    scope_permission,
    stricter,
)

if TYPE_CHECKING:
    from ..session import Session

GRANTED, DENIED, VIEWED, RELABELLED = "access.granted", "access.denied", "access.viewed", "access.relabelled"

GUARD = "access.guard"
"""The command that decides whether an actor may write at all, before another one is decided."""

LIMITED: Key = ("",)
"""The row that says that somebody was once limited in what it may record. Without it there is nothing to
check, so books that use no such rules pay one look for them."""


NAMELESS = "the name of its scope was erased: what belongs to that scope can only be read, by the owner"
"""Why nobody acts in a scope without a name."""


class Grant(msgspec.Struct, frozen=True):
    """Say something about a subject; with `replace`, forget first what was said before."""

    by: str
    subject: str
    rule: dict[str, Any]
    replace: bool = False
    scopes: tuple[tuple[Path, Permission], ...] | None = None


class Relabel(msgspec.Struct, frozen=True):
    by: str
    id: str
    labels: dict[str, str]
    reason: str


class Denial(msgspec.Struct, frozen=True):
    """What was refused to whom, for the owner to read."""

    actor: str
    act: str
    what: str
    run_id: str | None = None


class Look(msgspec.Struct, frozen=True):
    """One actor asks what another one sees."""

    by: str
    of: str


def deny(session: Session, act: str, what: str, why: str) -> Never:
    """Record that something was refused to the actor of a session, and raise Denied."""
    record_denial(session, act, what)
    raise Denied(why)


def record_denial(session: Session, act: str, what: str) -> None:
    """Record that something was refused to the actor of a session; a book that may only be read stays as it is."""
    if not session.ledger.store.facts.read_only:
        denial = Denial(session.looker or session.actor, act, what, session.run)
        session.ledger.submit("access.deny", denial)


def refuse(overlay: Overlay, denial: Denial, message: str) -> Denied:
    """Record that something was refused, and answer the error to raise. A decider returns it."""
    overlay.run(ACCESS.name, decide_denied, denial)
    return Denied(message)


def decide_denied(overlay: Overlay, denial: Denial) -> None:
    payload = {"actor": denial.actor, "act": denial.act, "what": denial.what}
    overlay.emit(draft(DENIED, actor=OWNER, payload=payload, run_id=denial.run_id))


def decide_grant(overlay: Overlay, request: Grant) -> Denied | Event | None:
    """Answers None when nothing changes."""
    refused = need(overlay, request.by, "grant", request.subject)
    if refused:
        return refused
    fields = msgspec.to_builtins(checked_rule(request.rule))
    if request.scopes is not None:
        keys = overlay.run(SCOPES.name, decide_name, tuple(path for path, _ in request.scopes))
        permissions = (permission for _, permission in request.scopes)
        fields["scopes"] = dict(zip(keys, permissions, strict=True))
    # Stored rules hold lists, so a tuple would never equal what is known.
    rule = {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}
    rule_before = overlay.get("rights", request.subject) or {}
    rule_after = rule if request.replace else _with(rule_before, rule)
    if rule_after == rule_before:
        return None
    payload = {"subject": request.subject, "rule": rule, "replace": request.replace}
    return overlay.emit(draft(GRANTED, actor=request.by, payload=payload))


def decide_relabel(overlay: Overlay, request: Relabel) -> Denied | Event:
    """Others' events, and anything less strict than it was, take the right to. What is made stricter makes
    everything stricter that was derived from it."""
    unknown = sorted(name for name in request.labels if name not in FLOWING)
    if unknown or not request.labels:
        raise BadInput(f"relabel changes {' and '.join(FLOWING)}, not {', '.join(unknown) or 'nothing'}")
    for name, value in request.labels.items():
        if value not in FLOWING[name]:
            raise BadInput(f"there is no {name} {shown(value)}: it is one of {', '.join(FLOWING[name])}")
    record = overlay.record_of(request.id)
    header = None if record is None else read_header(record)
    scope = "" if header is None else header.labels.get(SCOPE, "")
    if header is None or not reads_scope(overlay, request.by, scope):
        raise NotFound(f"there is no event {request.id!r} to relabel")
    refused = need_scope(overlay, request.by, scope)
    if refused:
        return refused
    theirs = header.actor != request.by
    if theirs or lowers(overlay.labels_of(request.id), request.labels):
        refused = need(overlay, request.by, "relabel", request.id)
        if refused:
            return refused
    changes = {request.id: request.labels} | _stricter_below(overlay, request.id, request.labels)
    payload = {"id": request.id, "changes": changes, "reason": request.reason}
    relabelled = draft(RELABELLED, actor=request.by, payload=payload, parents=[request.id])
    return overlay.emit(relabelled, scope=scope)


def _stricter_below(overlay: Overlay, id: str, labels: dict[str, str]) -> dict[str, dict[str, str]]:
    """The new labels of what was derived from an event, and so on down, where these make them stricter."""
    changes: dict[str, dict[str, str]] = {}
    ahead = [child for _, child in overlay.scan("children", id)]
    while ahead:
        child = ahead.pop()
        before = dict(overlay.labels_of(child))
        after = flow(before, [labels])
        if child not in changes and after != before:
            changes[child] = {name: after[name] for name in after if after[name] != before.get(name)}
            ahead += [below for _, below in overlay.scan("children", child)]
    return changes


def decide_look(overlay: Overlay, request: Look) -> Denied | Event:
    refused = need(overlay, request.by, "see_as", request.of)
    if refused:
        return refused
    return overlay.emit(draft(VIEWED, actor=OWNER, payload={"actor": request.by, "of": request.of}))


def need(overlay: Overlay, actor: str, act: str, what: str) -> Denied | None:
    """The refusal, already recorded, if the actor may not do this."""
    rights = rights_of(overlay, actor)
    if rights.may(act):
        return None
    acts = sorted({act, *rights.acts})  # granting some takes the others away
    mend = f"the owner can allow it with book.access.grant({actor!r}, acts={acts!r})"
    return refuse(overlay, Denial(actor, act, what), f"{actor!r} may not {ACTS[act]}: {mend}")


def need_tier(overlay: Overlay, actor: str, tier: str, write: bool, run: str | None = None) -> Denied | None:
    """The refusal, already recorded, if the actor may not read or write this tier of memory."""
    permission = rights_of(overlay, actor, run).tier(tier)
    if permission == "read_write" or (permission == "read" and not write):
        return None
    act = "write to" if write else "read"
    mend = f"The owner can change that with book.access.grant({actor!r}, tiers={{{tier!r}: 'read_write'}})"
    if permission != rights_of(overlay, actor).tier(tier):
        mend = "In this run its workflow says so: see memory.access_control there, and memory.tiers in the agent's file"
    message = f"{actor!r} may not {act} the {tier} tier of memory: it has {permission!r} there. {mend}"
    return refuse(overlay, Denial(actor, f"memory.{'write' if write else 'read'}", tier, run), message)


def need_scope(overlay: Overlay, actor: str, scope: str) -> Denied | None:
    """The refusal, already recorded, if a session may not change what belongs to the scope with this key. What belongs
    to one whose name was erased is the owner's to change."""
    path = path_of(overlay, scope)
    if path is None:
        why = "" if actor == OWNER and overlay.bound is None else NAMELESS
    else:
        why = refused_write(overlay, actor, path)
    if not why:
        return None
    return refuse(overlay, Denial(actor, "write to", name_of(overlay, scope) or "the root"), why)


def decide_guarded(overlay: Overlay, command: Guarded) -> Any:
    """Run a decider for an actor that is bound to no scope, if it may write to the root."""
    if why := refused_write(overlay, command.actor, ()):
        return refuse(overlay, Denial(command.actor, "write to", place_named(()), command.run), why)
    return overlay.run(command.capability, command.decide, command.request)


def refused_write(views: ViewReader, actor: str, path: Path) -> str:
    """Why an actor may not write to a scope, if it may not: a session writes to its own scope and to those below it, as
    far as its actor was granted them."""
    own = () if views.bound is None else views.bound.scope
    if not lies_in(path, own):
        return outside(actor, own, path)
    permission = scope_permission(views, actor, path)
    if permission == "read_write":
        return ""
    may = "only read" if permission == "read" else "neither read nor write"
    mend = f"book.access.grant({actor!r}, scopes={ {written(path) or '/': 'read_write'} })"
    return f"{actor!r} may {may} {place_named(path)}: the owner can change that with {mend}"


def scope_of_run(views: ViewReader, actor: str, run: str | None) -> str:
    """The key of the scope that something belongs to which is recorded for a run: that of the run, or if there is no
    such run, the one that the session writes to. Raises Conflict for a run of a scope that the actor does not write to,
    as for any id that is taken: nothing of that run holds here."""
    row = None if run is None else views.get("state.runs", run)
    scope: str = views.scope if row is None else row.get("scope", "")
    if run is None or scope == views.scope:
        return scope
    path = path_of(views, scope)
    if path is None or refused_write(views, actor, path):
        raise id_taken(run)
    return scope


def outside(actor: str, own: Path, path: Path, does: str = "writes to") -> str:
    """That a session does something in its own scope, and not in another one."""
    return f"{actor!r} is bound to a scope and {does} {written(own)}, not {place_named(path)}"


def place_named(path: Path) -> str:
    """A scope as a message names it."""
    return "the root" if path in ((), ROOT) else written(path)


def check_names_kept(overlay: Overlay, erased: Collection[str]) -> None:
    """Raises Conflict if one of these events names a scope, and a grant for that name takes away what a wider one
    gives: the grant ends with the name, and nobody may gain a right by an erasure."""
    if overlay.get("rights", *LIMITED_SCOPES) is None:
        return
    for (subject, *mark), rule in overlay.scan("rights"):
        granted: dict[str, Permission] = {} if mark or not subject else rule.get("scopes") or {}
        left = {key: permission for key, permission in granted.items() if key not in erased}
        for key in sorted(granted.keys() - left.keys()):
            path = path_of(overlay, key) or ()
            wider = permission_in(overlay, left, path)
            if path and stricter(wider, granted[key]) != wider:
                whose, name = str(subject).removeprefix("actor:"), written(path)
                raise Conflict(
                    f"without the name of {name}, {whose!r} could do more in a new scope of that name than "
                    f"{granted[key]!r}, which it was granted: nothing was erased. Say first that it may, with "
                    f"book.access.grant({whose!r}, scopes={ {name: 'read_write'} }), or grant it other scopes with "
                    "replace=True"
                )


def check_emits(overlay: Overlay, drafts: list[Draft]) -> Denied | None:
    """The refusal, already recorded, if an actor may not record one of these kinds."""
    limited = overlay.get("rights", *LIMITED)
    for actor, kind, run in dict.fromkeys(map(attrgetter("actor", "kind", "run_id"), drafts)):
        if not limited and rule_in(overlay, run, actor) is None:
            continue
        rights = rights_of(overlay, actor, run)
        if rights.emits(kind):
            continue
        allowed, mend = (
            rights.may_emit,
            f"The owner can change that with book.access.grant({actor!r}, may_emit=[…])",
        )
        if msgspec.structs.replace(rights, run_may_emit=None).emits(kind):
            allowed, mend = rights.run_may_emit, "In this run the may_emit of its agent file says so"
        message = f"{actor!r} may not record {kind!r}: it may record {', '.join(allowed or ()) or 'nothing'}. {mend}"
        return refuse(overlay, Denial(actor, "emit", kind, run), message)
    return None


def _rights_touched(event: Event) -> list[Key]:
    rule, marks = event.payload["rule"], {"may_emit": LIMITED, "scopes": LIMITED_SCOPES}
    subject: Key = (event.payload["subject"],)
    return [subject, *(mark for field, mark in marks.items() if rule.get(field) is not None)]


def _fold_rights(key: Key, before: Any, event: Event) -> Any:
    if key in (LIMITED, LIMITED_SCOPES):
        return True
    rule: dict[str, Any] = event.payload["rule"]
    return rule if event.payload["replace"] else _with(before or {}, rule)


def _with(before: dict[str, Any], rule: dict[str, Any]) -> dict[str, Any]:
    """A rule with the fields of another one in place of its own. Scopes are granted one by one: others stay."""
    after = {**before, **rule}
    if before.get("scopes") and rule.get("scopes"):
        after["scopes"] = {**before["scopes"], **rule["scopes"]}
    return after


def _fold_labels(key: Key, before: Any, event: Event) -> Any:
    return {**(before or {}), **event.payload["changes"][key[0]]}


def _all_of_it(payload: dict[str, Any]) -> dict[str, Any]:
    """A rule holds names of actors, kinds and tiers, and must not end because its event was erased."""
    return payload


ACCESS = Capability(
    "access",
    kinds=(
        Kind(GRANTED, residue=_all_of_it),
        Kind(DENIED),
        Kind(VIEWED),
        Kind(RELABELLED, residue=lambda payload: {**payload, "reason": ""}),
    ),
    commands={
        "access.grant": decide_grant,
        "access.relabel": decide_relabel,
        "access.look": decide_look,
        "access.deny": decide_denied,
        GUARD: decide_guarded,
    },
    views=(
        View(
            "rights",
            1,
            _rights_touched,
            _fold_rights,
            kinds=frozenset({GRANTED}),
        ),
        View(
            "labels",
            1,
            lambda event: [(id,) for id in event.payload["changes"]],
            _fold_labels,
            kinds=frozenset({RELABELLED}),
        ),
    ),
)
