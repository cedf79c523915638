"""What a book offers to callers on a network: which verbs, to whom, and with which arguments.

A caller has a token, and the token says who it is. The rules are the book's own: this module only makes the participant
that the caller is, and keeps the paths of this host out of what callers say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from ..access.rights import OWNER, check_actor
from ..book import Book
from ..errors import Denied, NotFound, shown
from ..participant import Actor, Participant, acting_within
from ..registry import PLACES, call, every_verb, not_served
from ..verbs import Verb


@cache
def served() -> dict[str, Verb]:
    """Every verb that is served, by its path with dots."""
    verbs = {}
    for verb in every_verb(properties=True):
        if not not_served(verb):
            path = ".".join(verb.path)
            kept = tuple(each for each in verb.parameters if each.name not in PLACES.get(path, ()))
            verbs[path] = verb._replace(parameters=kept)
    return verbs


class Caller(NamedTuple):
    """Who calls, as the token says, and in which name, scope and run it asks to act."""

    actor: str = OWNER
    scope: str | None = None
    reads: tuple[str, ...] = ()
    as_actor: str | None = None
    in_scope: str | None = None
    reading: tuple[str, ...] = ()
    run_id: str | None = None
    looks_as: str | None = None

    def participant(self, book: Book) -> Participant:
        """The participant that calls. Raises Denied for another actor, unless the token is the owner's."""
        actor = self.actor
        if self.as_actor is not None and self.as_actor != actor:
            if actor != OWNER or self.scope is not None:
                raise Denied(
                    f"this token acts as {actor!r} and not as {shown(self.as_actor)}: only an owner's token may name "
                    "another actor"
                )
            actor = self.as_actor
        bounds = [(self.scope, self.reads), (self.in_scope, self.reading)]
        by_owner = self.actor == OWNER and self.scope is None
        me = acting_within(book, actor, bounds, self.run_id, by_owner=by_owner)
        return me if self.looks_as is None else _looking(me, self.looks_as)


def _looking(me: Participant, actor: str) -> Participant:
    """The book through another actor's eyes, for somebody who has asked for that with `access.look_as`, which is
    recorded, and may still do so."""
    session = me._session
    if not session.rights().may("see_as"):
        raise Denied(f"{session.actor!r} may not look through the eyes of {shown(actor)}")
    return Actor(session.seen_by(session.actor, check_actor(actor)))


def call_for(book: Book, caller: Caller, verb: Verb, arguments: Mapping[str, Any]) -> Any:
    """Call a verb for a caller on a network."""
    me = caller.participant(book)
    given = dict(arguments)
    if verb.name == "artifact":
        given["_read"] = False  # a path is a name: no caller makes this host read a file
    if verb.path[0] == "claim" and given.get("artifacts"):
        given["_read"] = False
    if verb.path == ("access", "redacted"):
        given["events"] = [me.event(id) for id in given.get("events", ())]
    if verb.path[0] == "admin" and not isinstance(me, Book):
        raise Denied(f"only the book's owner may call {'.'.join(verb.path)}, not {me._session.actor!r}")
    claimed = book.ledger.event(given["_event"]) if "_event" in given else None
    if claimed is None:
        answer = call(me, verb, given)
        # Who else looks through these eyes is told by each request.
        return None if ".".join(verb.path) == "access.look_as" else answer
    # The call was made before, by an earlier process of this server: it is answered as then.
    if verb.name == "next":
        call(me, verb, {name: value for name, value in given.items() if name != "_event"})
    return me.works.containing(claimed.payload["task_id"]).reopen_claim(
        claimed.payload["task_id"], claimed.position
    )


def verb_named(path: str, offered: Mapping[str, Verb] | None = None) -> Verb:
    """The served verb with a path. Raises NotFound."""
    verbs = served() if offered is None else offered
    if path in verbs:
        return verbs[path]
    reasons = {".".join(verb.path): not_served(verb) for verb in every_verb()}
    if reasons.get(path):
        raise NotFound(f"{path} is not served: {reasons[path]}")
    raise NotFound(f"there is no verb {shown(path)}: /openapi.json lists all of them")


def named_list(text: str) -> Sequence[str]:
    """The names of a list that a header has, with commas between them."""
    return [name for name in text.split(",") if name]
