"""Who may do and see what: `book.access`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from .access.commands import Grant, Look, Relabel, deny
from .access.rights import (
    OWNER,
    PERMISSIONS,
    Permission,
    Rights,
    check_actor,
    granted_scopes,
    rights_of,
    scope_permission,
    subject_of,
)
from .access.tokens import (
    ONLY_OWNER,
    CreateToken,
    NewToken,
    RevokeToken,
    TokenGrant,
    TokenInfo,
    grant_of,
    hashed,
    new_secret,
    token_infos,
    token_text,
)
from .errors import BadInput, shown
from .event_verbs import event, events, redacted
from .ledger.checks import check_each, check_name, check_text, from_us, without_none
from .ledger.events import Event
from .ledger.reader import ViewReader
from .ledger.scopes import Path, parsed, parsed_read, written
from .verbs import EventId, RunId, method, namespace, verb

if TYPE_CHECKING:
    from .access.audit import AuditEntry
    from .ledger.ledger import At
    from .participant import Actor
    from .session import Session


TokenInfos = list[TokenInfo]

LIFETIME = timedelta(days=90)
"""How long a token is valid, if nothing else is said."""

LONGEST_LIFETIME = timedelta(days=3650)


class AccessTokens:
    """Tokens by which network clients act as actors of the book."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @verb
    def create(
        self,
        actor: str,
        *,
        scope: str | None = None,
        reads: Sequence[str] = (),
        verbs: Sequence[str] | None = None,
        expires_in: timedelta | float | None = None,
        label: str = "",
    ) -> NewToken:
        """Create a token for an actor. Its `secret` is shown this once; the book keeps a hash of it. Only the owner of
        the whole book may.

        `actor` is the actor that a client with the token acts as; owner, for the book's owner. With a `scope` it is
        bound to that; without one, it reaches all that its actor may. `reads` are scopes that it reads besides.
        `verbs` are the only verbs that it may call: paths such as search or work.claim, and memory.* for all of a
        namespace. `expires_in` is how long it is valid, by default 90 days. In Python that is a timedelta or a number
        of seconds. `label` is a note for the list of tokens.
        """
        session, (id, secret) = self._session, new_secret()
        request = CreateToken(
            session.actor,
            id,
            hashed(secret),
            actor if actor == OWNER else check_actor(actor),
            _lifetime_us(expires_in),
            None if scope is None else parsed(scope),
            tuple(dict.fromkeys(parsed_read(path) for path in check_each("reads", reads))),
            None if verbs is None else _verb_patterns(verbs),
            check_name("label", label) if label != "" else "",
        )
        event: Event = session.submit("access.tokens.create", request, "create a token")
        return NewToken(id, request.actor, from_us(event.payload["expires_us"]), token_text(id, secret))

    @verb
    def list(self, at: At = None) -> TokenInfos:
        """All tokens, also those that have expired or were revoked, oldest first. Only the owner of the whole book
        may."""
        session = self._session
        if not session.is_unbound_owner:
            deny(session, "list", "tokens", ONLY_OWNER)
        with session.snapshot(at) as snapshot:
            return token_infos(snapshot)

    @verb
    def revoke(self, id: str) -> None:
        """End a token now. A token that is revoked already stays so. Only the owner of the whole book may.

        `id` is the id of the token: the part after cpl_."""
        request = RevokeToken(self._session.actor, check_name("id", id))
        self._session.submit("access.tokens.revoke", request, "revoke a token")

    def authenticate(self, text: str, now: datetime | None = None) -> TokenGrant:
        """What the client that shows this token may do, for servers. Raises Unauthorized."""
        ledger = self._session.ledger
        with ledger.snapshot() as snapshot:
            return grant_of(snapshot, text, ledger.moment(now))


def _lifetime_us(expires_in: timedelta | float | None) -> int:
    """A lifetime in microseconds. Raises BadInput."""
    seconds: object = LIFETIME.total_seconds() if expires_in is None else expires_in
    if isinstance(seconds, timedelta):
        seconds = seconds.total_seconds()
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise BadInput(f"expires_in {shown(seconds)} is neither a number of seconds nor a timedelta")
    if not 0 < seconds <= LONGEST_LIFETIME.total_seconds():
        raise BadInput(
            f"expires_in {shown(seconds)} is not a lifetime: give seconds, more than 0 and at most "
            f"{LONGEST_LIFETIME.days:,} days of them"
        )
    return max(1, int(seconds * 1_000_000))


def _verb_patterns(verbs: Sequence[str]) -> tuple[str, ...]:
    """Patterns of verbs' paths. Raises BadInput for one that no verb fits."""
    from .registry import every_verb

    patterns = tuple(dict.fromkeys(check_name("verbs", pattern) for pattern in check_each("verbs", verbs)))
    if not patterns:
        raise BadInput(
            "verbs is empty, so the token could do nothing: name some, or leave verbs out to allow all"
        )
    paths = [verb.path for verb in every_verb()]
    known = {"*", *(".".join(path) for path in paths)}
    known |= {f"{'.'.join(path[:depth])}.*" for path in paths for depth in range(1, len(path))}
    for pattern in patterns:
        if pattern not in known:
            near = get_close_matches(pattern, sorted(known), 3, 0.5)
            raise BadInput(
                f"there is no verb {shown(pattern)}"
                + (f": do you mean {' or '.join(near)}?" if near else "")
                + " Give paths such as search or work.claim, memory.* for all of a namespace, or * for all"
            )
    return patterns


class Access:
    """Rights, labels and the record of who was given what."""

    def __init__(self, session: Session) -> None:
        self._session = session

    tokens = namespace(AccessTokens)

    @verb
    def rights(self, actor: str | None = None, at: At = None) -> Rights:
        """What an actor may do and see, as of `at`; by default the actor that asks.

        `actor` is the one whose rights they are."""
        session = self._session
        if actor is None or check_actor(actor) == session.actor:
            actor, rights = session.actor, session.rights(at)
        elif not session.is_owner:
            deny(session, "rights", actor, "only the owner reads the rights of others")
        else:
            with session.snapshot(at) as snapshot:
                rights = rights_of(snapshot, actor)
        with session.snapshot(at) as snapshot:
            return replace(rights, granted=self._granted(snapshot, actor))

    def _granted(self, views: ViewReader, actor: str) -> dict[str, Permission] | None:
        """What an actor was granted in which scopes, as far as the one who asks may know of them."""
        bound, granted = self._session.bound, granted_scopes(views, actor)
        if granted is None or self._session.is_unbound_owner:
            return granted
        if bound is not None:
            return {written(path) or "/": scope_permission(views, actor, path) for path in bound.reads}
        return {scope: permission for scope, permission in granted.items() if permission != "none"}

    @verb
    def grant(
        self,
        subject: str,
        *,
        role: str | None = None,
        tiers: Mapping[str, str] | None = None,
        may_emit: Sequence[str] | None = None,
        sees: Sequence[str] | None = None,
        acts: Sequence[str] | None = None,
        ceiling: str | None = None,
        scopes: Mapping[str, str] | Sequence[str] | None = None,
        replace: bool = False,
    ) -> None:
        """Grant rights to an actor, a role ("role:qa") or everybody ("*"). Needs the right `grant`. Fields that are not
        named stay as they were; with `replace` they are reset.

        `tiers` maps memory tiers to none, read or read_write. `may_emit` are the kinds that it may record, with `*` for
        any ending. `acts` are rights to do something out of the ordinary. `ceiling` is the highest sensitivity of
        others' events that it may see.

        `scopes` maps scopes (users/alice) to none, read or read_write, for what lies below them, too; a list means
        read_write; `/` is what belongs to no scope. Scopes that are not named keep what was granted; an actor that was
        never granted one may read and write all of them. Among several, the longest path decides.

        `subject` is an actor, a role (role:qa) or everybody (*). `role` is orchestrator, developer, qa, researcher,
        librarian, analyst or person. `sees` are kinds of others' events that it may see. `replace` is whether fields
        that are not named are reset.
        """
        rule = without_none(role=role, tiers=tiers, may_emit=may_emit, sees=sees, acts=acts, ceiling=ceiling)
        granted = None if scopes is None else _granted(scopes)
        request = Grant(self._session.actor, subject_of(subject), rule, replace, granted)
        self._session.submit("access.grant", request, "grant")

    @verb
    def relabel(
        self, id: EventId, *, reason: str, sensitivity: str | None = None, trust: str | None = None
    ) -> Event:
        """Change the sensitivity or trust of an event, from now on, also for what is derived from it. An actor relabels
        what it can see in the scopes that it writes to; only a person may make a label less strict.

        `trust` is how far it is trusted: high, normal or low."""
        labels = without_none(sensitivity=sensitivity, trust=trust)
        self._session.check_may_act("relabel")
        if not self._session.is_owner:
            event(self._session, id)
        request = Relabel(self._session.actor, check_name("id", id), labels, check_text("reason", reason))
        recorded: Event = self._session.submit("access.relabel", request, "relabel")
        return recorded

    @verb
    def look_as(self, actor: str) -> Actor:
        """The book as another actor sees it, read-only. Needs the right `see_as`, and is recorded.

        `actor` is the one through whose eyes it is."""
        from .participant import Actor

        session = self._session
        record_look(session, actor)
        return Actor(session.seen_by(session.actor, actor))

    @verb
    def audit(self, run_id: RunId | None = None, at: At = None) -> Iterator[AuditEntry]:
        """Who changed, was granted and was denied what, as far as this actor may see it: a hash chain of entries
        without secrets or content."""
        from .access.audit import entries

        return entries(redacted(self._session, events(self._session, run_id=run_id, at=at)))

    redacted = method(redacted)


def record_look(session: Session, actor: str) -> Event:
    """Record that somebody looks through the eyes of another actor. Raises Denied without the right to."""
    event: Event = session.submit("access.look", Look(session.actor, check_actor(actor)), "view_of")
    return event


def _granted(scopes: Mapping[str, str] | Sequence[str]) -> tuple[tuple[Path, Permission], ...]:
    """What may be done in which scopes. Raises BadInput."""
    given: Iterable[tuple[str, str]] = (
        scopes.items()
        if isinstance(scopes, Mapping)
        else ((scope, "read_write") for scope in check_each("scopes", scopes))
    )
    granted = dict[Path, Permission]()
    for scope, permission in given:
        if permission not in PERMISSIONS:
            raise BadInput(
                f"there is no permission {shown(permission)}: it is one of {', '.join(PERMISSIONS)}"
            )
        path = parsed_read(scope)
        if granted.setdefault(path, cast(Permission, permission)) != permission:
            raise BadInput(
                f"scopes names {written(path)} twice, in two forms: say once what is granted there"
            )
    return tuple(granted.items())
