"""What a book offers to callers on a network: which verbs, to whom, and with which arguments.

A caller has a token, and the token says who it is. The rules are the book's own: this module only makes the participant
that the caller is, and keeps the paths of this host out of what callers say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, NamedTuple

from ..access.rights import OWNER
from ..book import Book
from ..errors import BadInput, CommonplaceError, Conflict, Denied, NotFound, StorageFailed, shown
from ..ledger.events import Event
from ..participant import Participant, acting_within, begin_look, looking
from ..recall.book_index import INSTALLED
from ..registry import call, every_verb, not_served
from ..verbs import Verb

MOST_IDS = 1_000
"""How many events one call may name."""
LONGEST_FILE_NAME = 200

Read = Callable[[], Mapping[str, Any]]
"""Reads the arguments of a call."""


@cache
def served() -> dict[str, Verb]:
    """Every verb that is served, by its path with dots."""
    verbs = {}
    for verb in every_verb(properties=True):
        if not not_served(verb):
            facts = verb.facts
            dropped = (*facts.of_host, facts.reads_file, facts.writes_file)
            kept = tuple(each for each in verb.parameters if each.name not in dropped)
            verbs[verb.dotted] = verb._replace(parameters=kept)
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
    lead: int | None = None
    """The fence under which the caller leads the work that it calls."""
    look: str | None = None
    """The id of the event that records that the caller looks through another actor's eyes."""

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
        return me if self.look is None else looking(me, self.look)


def call_for(book: Book, caller: Caller, verb: Verb, read: Read) -> Any:
    """Call a verb for a caller on a network. `read` reads the arguments, once it is known that the caller may act as it
    asks to."""
    me = caller.participant(book)
    if verb.path[0] == "admin" and not isinstance(me, Book):
        raise Denied(f"only the book's owner may call {verb.dotted}, not {me._session.actor!r}")
    given = without_files(verb, read())
    _check_embedder(given.get("embedder"))
    if verb.path == ("access", "redacted"):
        given["events"] = [me.event(id) for id in _few_ids(given.get("events"))]
    claimed = book.ledger.event(given["_event"]) if "_event" in given else None
    if claimed is not None:
        return _claimed_before(me, verb, given, claimed, caller.lead)
    if verb.path == ("access", "look_as"):
        return begin_look(me, given["actor"])
    return call(me, verb, given, caller.lead)


def _claimed_before(
    me: Participant, verb: Verb, given: Mapping[str, Any], claimed: Event, lead: int | None
) -> Any:
    """A claim that an earlier process of this server has made: it is answered as then. Raises Conflict if it was asked
    for something else."""
    asked = {name: value for name, value in given.items() if name != "_event"}
    task, agent, actor = claimed.payload["task_id"], claimed.actor, me._session.actor
    work = me.works.containing(task)
    same = actor in (OWNER, agent)
    if verb.name == "next":  # the task that it completed is not the one that it claimed
        same = same and work.task(asked["task"]).info().status != "in_progress"
    else:
        made = {"work": work.id, "task": task, "agent": agent}
        same = same and all(asked.get(name) in (None, value) for name, value in made.items())
    if not same:
        raise Conflict("this key was used for another claim: choose a new one for each")
    if verb.name == "next":
        call(me, verb, asked, lead)
    return work.reopen_claim(task, claimed.position)


class WrittenFile(NamedTuple):
    """What a verb that writes a file has answered, and the file, open to be read and with no name any more."""

    answer: Any
    content: BinaryIO


def call_writing(book: Book, caller: Caller, verb: Verb, read: Read) -> WrittenFile:
    """Call a verb that writes a file, which the caller is sent."""
    with _folder_of_call() as folder:
        path = folder / "content"
        answer = call_for(book, caller, verb, lambda: {**read(), verb.facts.writes_file: path})
        return WrittenFile(answer, path.open("rb"))


def call_reading(book: Book, caller: Caller, verb: Verb, read: Read, name: str, content: bytes) -> Any:
    """Call a verb that reads a file, whose name and content the caller has sent. The name may tell how it is read."""
    with _folder_of_call() as folder:

        def asked() -> dict[str, Any]:
            path = folder / _check_file_name(name)
            path.write_bytes(content)
            return {**read(), verb.facts.reads_file: path}

        return call_for(book, caller, verb, asked)


@contextmanager
def _folder_of_call() -> Iterator[Path]:
    """A folder for the files of one call. Its path says nothing to the caller: errors name the file alone."""
    try:
        with TemporaryDirectory(prefix="commonplace-") as folder:
            try:
                yield Path(folder)
            except CommonplaceError as error:
                error.args = tuple(
                    part.replace(f"{folder}/", "") if isinstance(part, str) else part for part in error.args
                )
                raise
    except OSError as error:
        if isinstance(error, CommonplaceError):
            raise
        raise StorageFailed(
            f"the host of the book has no room for a file meanwhile ({error.strerror}): see the space and TMPDIR there"
        ) from error


def _check_file_name(name: str) -> str:
    """Raises BadInput for a name with a folder in it, and for one that no file may have."""
    if name in ("", ".", "..") or not name.isprintable() or {"/", "\\"} & set(name):
        raise BadInput(f"the file is named {shown(name)}: give its name without the folder")
    if len(name.encode()) > LONGEST_FILE_NAME:
        raise BadInput(f"the name of the file is too long: at most {LONGEST_FILE_NAME} bytes")
    return name


def _check_embedder(embedder: object) -> None:
    """Raises Denied for an embedder that would make this host send texts somewhere, or read a model's files."""
    if embedder is not None and embedder not in INSTALLED:
        raise Denied(
            f"over a network the embedder is one of {', '.join(INSTALLED)}: choose another one on the book's own host"
        )


def _few_ids(ids: object) -> list[str]:
    """Ids of events, each once. Raises BadInput for what is no list of them, and for more than a page."""
    if not isinstance(ids, list) or not all(isinstance(id, str) for id in ids) or len(set(ids)) > MOST_IDS:
        raise BadInput(f"events is a list of at most {MOST_IDS:,} ids")
    return list(dict.fromkeys(ids))


def without_files(verb: Verb, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call from elsewhere: no caller makes this host read a file."""
    given = dict(arguments)
    if "_read" in verb.inner:
        given["_read"] = False  # a path is a name
    return given


@cache
def _unserved() -> dict[str, str]:
    """The reason for each verb that is not served, by its path."""
    return {verb.dotted: reason for verb in every_verb() if (reason := not_served(verb))}


def verb_named(path: str, offered: Mapping[str, Verb] | None = None) -> Verb:
    """The served verb with a path. Raises NotFound."""
    verbs = served() if offered is None else offered
    if path in verbs:
        return verbs[path]
    if path in (reasons := _unserved()):
        raise NotFound(f"{path} is not served: {reasons[path]}")
    raise NotFound(f"there is no verb {shown(path)}: /openapi.json lists all of them")
