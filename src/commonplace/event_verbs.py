"""Recording events and reading them again: what everything else is made of."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from .access.commands import deny, record_denial
from .errors import BadInput, NotFound, TooLarge, shown
from .ledger.checks import check_each, check_name, check_position, check_seconds
from .ledger.encoding import blobs_of
from .ledger.events import MAX_BATCH, MAX_BATCH_BYTES, Draft, Event, draft, draft_from
from .ledger.scopes import SCOPE
from .memory.requests import RECEIPT
from .state.redaction import as_logged
from .verbs import EventId, RunId

if TYPE_CHECKING:
    from .ledger.ledger import At
    from .session import Session


def record(
    session: Session,
    kind: str,
    *,
    actor: str | None = None,
    payload: Mapping[str, Any] | None = None,
    run_id: str | None = None,
    session_id: str | None = None,
    turn: int = 0,
    occurred_at: datetime | None = None,
    id: str | None = None,
    parents: Sequence[str] = (),
    labels: Mapping[str, str] | None = None,
    schema_version: int = 1,
) -> Event:
    """Record one event and return it as it is stored in the ledger.

    With an `id` of your own (1 to 200 characters) the call can be repeated safely: the same content returns the first
    event, other content raises Conflict. Only the owner records in the name of another `actor`.

    `kind` is the kind of event, such as agent.spoke. `actor` is the actor in whose name it is recorded, by default
    the one that asks. `payload` is what happened, as an object. `run_id` is the run that it belongs to, in the scope of
    that run; a run begins with it if there is none. `parents` are the ids of the events that it derives from. `labels`
    is its sensitivity and trust, such as sensitivity=private. `schema_version` is the version of what the payload looks
    like.
    """
    session.check_may_act(kind if isinstance(kind, str) else "record")
    fields = {
        "actor": actor, "payload": payload, "run_id": run_id, "session_id": session_id, "turn": turn,
        "occurred_at": occurred_at, "id": id, "parents": parents, "labels": labels, "schema_version": schema_version,
    }  # fmt: skip
    event = draft(kind, **_own(session, fields))
    stored: list[Event] = session.write("record", [event], event.size)
    return stored[0]


def record_all(session: Session, events: Iterable[Mapping[str, Any] | Draft]) -> list[Event]:
    """Record a batch, all or nothing. Each event is a mapping with the fields of `record`.

    `events` are mappings with the fields of record."""
    session.check_may_act("record_all")
    batch = list(check_each("events", events))
    ids = [fields.get("id") for fields in batch if isinstance(fields, Mapping)]
    # A draft names its actor itself, so it is for the owner alone: for others `_own` refuses what is no mapping.
    drafted = Draft if session.is_owner else ()
    own = [fields if isinstance(fields, drafted) else _own(session, fields, ids) for fields in batch]
    drafts = [draft_from(fields, actor=session.actor) for fields in own]
    size = sum(event.size for event in drafts)
    if len(drafts) > MAX_BATCH or size > MAX_BATCH_BYTES:
        raise TooLarge(
            f"a batch of {len(drafts):,} events and {size:,} bytes is over the limit of {MAX_BATCH:,} events or "
            f"{MAX_BATCH_BYTES:,} bytes: record it in parts"
        )
    stored: list[Event] = session.write("record", drafts, size)
    return stored


def _own(session: Session, fields: Mapping[str, Any], batch: Collection[object] = ()) -> dict[str, Any]:
    """The fields of an event by this actor: it derives from what the actor may see, or from others of the batch."""
    if not isinstance(fields, Mapping):
        raise BadInput(
            f"an event of a batch is a mapping of fields, not {type(fields).__name__}: give a dict"
        )
    actor, run = fields.get("actor"), fields.get("run_id")
    own = {
        **fields,
        "actor": session.actor if actor is None else actor,
        "run_id": session.run if run is None else run,
    }
    labels = fields.get("labels")
    if isinstance(labels, Mapping) and SCOPE in labels:
        raise BadInput(
            "the label scope is the book's own: act in a session of that scope, as_actor(…, scope=…)"
        )
    if session.is_unbound_owner:
        return own
    if not session.is_owner and own["actor"] != session.actor:
        deny(session, "record as", check_name("actor", actor), "only the owner records in the name of others")
    parents, payload = fields.get("parents"), fields.get("payload")
    if isinstance(labels, Mapping) and labels.get("trust") == "high" and not session.rights().may("relabel"):
        deny(
            session,
            "label",
            "trust high",
            "high trust is for a person to give: leave it out, or let one relabel it",
        )
    for parent in parents if isinstance(parents, list | tuple) else ():
        if isinstance(parent, str) and parent not in batch and not _sees(session, parent):
            raise NotFound(f"there is no event {shown(parent)} to derive from: leave it out of parents")
    try:
        digests = blobs_of(payload) if isinstance(payload, dict) else ()
    except RecursionError:  # it is nested too deeply, and `draft` says so
        digests = ()
    sources = _holding(session, digests)
    if sources and (parents is None or isinstance(parents, list | tuple)):
        own["parents"] = list(dict.fromkeys((*(parents or ()), *sources)))
    return own


def _sees(session: Session, id: str) -> bool:
    event = session.ledger.event(id)
    return event is not None and any(session.visible([event]))


def _holding(session: Session, digests: Iterable[str]) -> list[str]:
    """An event that this actor may see for each blob that is referred to and not given: what refers to a blob is
    derived from what holds it, so it is erased with it. Raises NotFound."""
    sources = []
    for digest in digests:
        with session.snapshot() as now:
            positions = [int(key[1]) for key, _ in now.scan("blobs", digest)]
        holding = (next(session.ledger.events(at - 1, at), None) for at in positions)
        seen = (event for event in holding if event is not None and any(session.visible([event])))
        source = next((event for event in seen if not event.erased and event.kind != RECEIPT), None)
        if source is None:
            raise NotFound(f"there is no blob {shown(digest)} to refer to: give its bytes, as Blob(data)")
        sources.append(source.id)
    return sources


def events(
    session: Session,
    after: int = 0,
    run_id: RunId | None = None,
    kinds: Collection[str] | None = None,
    actor: str | None = None,
    at: At = None,
) -> Iterator[Event]:
    """The events that this actor may see, in order: those after the position `after`, up to `at` (by default the
    moment of the call). In a turn, those of its run.

    `after` is the position after which to begin. `actor` is the one who did them."""
    chosen, upto = _filters(session, run_id, kinds, actor), session.ledger.position(at)
    found = session.ledger.events(check_position("after", after), upto, *chosen)
    return session.visible(found, None if at is None else upto)


def event(session: Session, id: EventId, at: At = None) -> Event:
    """One event by its id. Raises NotFound if it does not exist or this actor may not see it."""
    upto = None if at is None else session.ledger.position(at)
    found = session.ledger.event(check_name("id", id))
    if found is not None and (upto is None or found.position <= upto):
        for visible in session.visible([found], upto):
            return visible
    if not session.is_owner:
        record_denial(session, "event", id)
    raise NotFound(f"there is no event {id!r} in this book" + ("" if at is None else " as of then"))


def watch(
    session: Session,
    after: int | None = None,
    run_id: RunId | None = None,
    kinds: Collection[str] | None = None,
    actor: str | None = None,
    timeout: float | None = None,
) -> Iterator[Event]:
    """Yield events as any process commits them, as far as this actor may see each when it is committed. Begins with
    the stored events after the position `after`; None: only new ones. Blocks while there is nothing new. Ends when the
    book is closed, or after `timeout` seconds without a new event.

    `after` is the position after which to begin. `actor` is the one who did them."""
    chosen = _filters(session, run_id, kinds, actor)
    reached = session.ledger.head if after is None else check_position("after", after)
    news = session.ledger.tail(reached, check_seconds("timeout", timeout), *chosen)
    return (visible for event in news for visible in session.visible([event]))


def _filters(
    session: Session, run_id: str | None, kinds: Collection[str] | None, actor: str | None
) -> tuple[str | None, Collection[str] | None, str | None]:
    """The run, kinds and actor that a read was asked to keep to, checked."""
    run_id = session.run if run_id is None else check_name("run_id", run_id)
    actor = None if actor is None else check_name("actor", actor)
    if kinds is not None:
        named = check_each("kinds", kinds)
        kinds = frozenset(check_name("a kind", kind) for kind in named)
    return run_id, kinds, actor


def redacted(session: Session, events: Iterable[Event]) -> Iterator[Event]:
    """The same events without the secrets of their runs, as a log or a page may show them.

    `events` are events, as book.events() answers them."""
    hide = as_logged(session.snapshot)
    return (hide(_an_event(event)) for event in check_each("events", events))


def _an_event(event: object) -> Event:
    if not isinstance(event, Event):
        raise BadInput(f"{shown(event)} is not an event: give what book.events() gives")
    return event
