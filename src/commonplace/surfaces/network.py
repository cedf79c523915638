"""What a book offers to callers on a network: which verbs, to whom, and with which arguments.

A caller has a token, and the token says who it is. The rules are the book's own: this module only makes the participant
that the caller is, and keeps the paths of this host out of what callers say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from ..access.rights import OWNER
from ..book import Book
from ..errors import BadInput, Denied, NotFound, shown
from ..participant import Participant, acting_within
from ..registry import call, every_verb
from ..verbs import Verb, name_of

FILES = "it reads or writes files of the host that the book is on: call it there"
CALLED = "it calls a function of the caller: call it with the book opened on this host"
NOT_SERVED = {
    "runs.execute": "it runs programs of the host: run the workflow where the agents are",
    "access.redacted": "what is served is redacted already",
    "work.watch": "it waits for ever: watch the book, and choose its events",
    "work.lead": "it is a lease that a process of this host renews: lead where the book is opened",
    "admin.copy": FILES, "mirror.sync": FILES, "mirror.status": FILES, "thread.learn": CALLED,
}  # fmt: skip
"""Verbs that are not served, and why. Those that take a path are not served either, apart from `artifact`, which takes
it as a name."""


def not_served(verb: Verb) -> str:
    """Why a verb is not served; "" if it is."""
    path = ".".join(verb.path)
    if path in NOT_SERVED:
        return NOT_SERVED[path]
    takes_path = any(name_of(kind) == "Path" for each in verb.parameters for kind in each.kinds)
    return FILES if takes_path and verb.name != "artifact" and path != "run" else ""


@cache
def served() -> dict[str, Verb]:
    """Every verb that is served, by its path with dots. `run` takes no workflow: that is a folder of this host."""
    verbs = {}
    for verb in every_verb(properties=True):
        if not not_served(verb):
            kept = tuple(each for each in verb.parameters if verb.path != ("run",) or each.name != "workflow")
            verbs[".".join(verb.path)] = verb._replace(parameters=kept)
    for path, verb in verbs.items():
        if path.startswith("claim.") and verb.fields:  # it hands them on to the verb of its work
            own = {"work", *(each.name for each in verb.parameters)}
            of_work = (each for each in verbs[f"work.{verb.name}"].parameters if each.name not in own)
            verbs[path] = verb._replace(parameters=(*verb.parameters, *of_work), fields=False)
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
        return acting_within(book, actor, bounds, self.run_id, by_owner=by_owner)


def call_for(book: Book, caller: Caller, verb: Verb, read: Callable[[], Mapping[str, Any]]) -> Any:
    """Call a verb for a caller on a network. `read` reads the arguments, once it is known that the caller may act as it
    asks to."""
    me = caller.participant(book)
    if verb.path[0] == "admin" and not isinstance(me, Book):
        raise Denied(f"only the book's owner may call {'.'.join(verb.path)}, not {me._session.actor!r}")
    return call(me, verb, without_files(verb, read()))


def without_files(verb: Verb, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call from elsewhere: no caller makes this host read a file. Raises BadInput."""
    given = dict(arguments)
    if verb.name == "artifact":
        given["_read"] = False  # a path is a name
    if verb.path[0] == "claim" and given.get("artifacts"):
        raise BadInput(
            "artifacts are paths of your host: record each with claim.artifact, then complete the task"
        )
    return given


def verb_named(path: str, offered: Mapping[str, Verb] | None = None) -> Verb:
    """The served verb with a path. Raises NotFound."""
    verbs = served() if offered is None else offered
    if path in verbs:
        return verbs[path]
    reasons = {".".join(verb.path): not_served(verb) for verb in every_verb()}
    if reasons.get(path):
        raise NotFound(f"{path} is not served: {reasons[path]}")
    raise NotFound(f"there is no verb {shown(path)}: /openapi.json lists all of them")
