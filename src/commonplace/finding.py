"""Everything about one person or topic: finding it in every event, and the proof that it was erased.

Whatever a book shows is derived from its events, so a look through every event (its payload, its blobs, its header)
finds it wherever it is shown. What stands in a payload or a blob can be erased. What stands in a header (names of
actors, of runs, of sessions, ids, labels) is part of the hash chain and remains; so do the few names that an erasure
keeps so that rights and tasks stay what they were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from .access.masking import beginning
from .errors import BadInput, NotFound, shown
from .ledger.checks import check_each, check_name
from .ledger.encoding import decode
from .ledger.events import ERASED, Event
from .ledger.matching import Spellings, around
from .ledger.printing import Listing, Readable
from .ledger.reader import PAGE
from .ledger.scopes import scope_of, written
from .memory.capability import ENDING
from .memory.filters import MetadataTest

if TYPE_CHECKING:
    from .ledger.ledger import Ledger, Progress
    from .session import Session

THINGS = {
    "memory.noted": "document", "memory.logged": "document", "memory.gated": "document", "memory.archived": "document",
    "memory.core.set": "core", "memory.configured": "setting", "receipt.written": "receipt",
    "premise.changed": "receipt", "work.decided": "decision", "work.discovered": "discovery",
    "work.produced": "artifact", "work.nudged": "nudge", "work.asked": "approval", "work.escalated": "escalation",
    "work.branched": "branch", "scope.named": "scope name", "thread.opened": "thread name",
}  # fmt: skip
"""What people call what an event of this kind is about."""

GROUPS = {
    "memory": "item", "task": "task", "work": "work", "state": "state", "run": "run", "access": "right",
    "thread": "thread message",
}  # fmt: skip
"""The same by the first word of its kind; every other event is an event."""

MOST_PLACES = 5
"""How many places within one event are named."""

KNOWN = 12
"""How many names an error lists."""

ADVICE = "headers are part of the hash chain: use a name that tells nothing from now on, or begin a new book"
KEPT = (
    "kept so that rights, tasks and runs stay what they are: replace it there (grant, assign, configure anew)"
)
NAMED_SO = "it was given when the book was made: copy what is left to a book of another name"
EARLIER = "it was given as the reason of an erasure, which cannot be erased"


def thing_of(kind: str) -> str:
    """What people call what an event of this kind is about."""
    return THINGS.get(kind) or GROUPS.get(kind.partition(".")[0], "event")


class FindRequest(msgspec.Struct, frozen=True):
    """What is looked for: events that fit everything that is given."""

    texts: tuple[str, ...] = ()
    scope: str | None = None
    metadata: dict[str, Any] = {}
    actor: str | None = None

    def __str__(self) -> str:
        parts = [" or ".join(repr(text) for text in self.texts)] if self.texts else []
        parts += [f"scope {self.scope}"] if self.scope is not None else []
        parts += [f"{name}={value!r}" for name, value in self.metadata.items()]
        parts += [f"actor {self.actor}"] if self.actor is not None else []
        return ", ".join(parts)


class Mention(Readable, msgspec.Struct, frozen=True):
    """One event that was found, or that is derived from one. `where` are the places in its payload, `snippet` is what
    the first of them says, without secrets."""

    id: str
    position: int
    thing: str
    kind: str
    where: tuple[str, ...] = ()
    snippet: str = ""

    def __str__(self) -> str:
        places = f" ({', '.join(self.where)})" if self.where else ""
        return f"{self.position} {self.thing}{places}" + (f": {self.snippet}" if self.snippet else "")


class Remaining(Readable, msgspec.Struct, frozen=True):
    """A name that erasing cannot remove: where it stands, in how many events, and what to do."""

    where: str
    name: str
    events: int
    advice: str

    def __str__(self) -> str:
        return f"{self.where} {self.name!r} in {number(self.events, 'event')}: {self.advice}"


class Found(Listing[Mention], msgspec.Struct, frozen=True):
    """Everything that was found as of a position: iterable, in order. `derived` was made from it and goes with it when
    it is erased; `remaining` is what erasing cannot remove."""

    ENTRIES = "entries"

    request: FindRequest
    as_of: int
    entries: tuple[Mention, ...]
    derived: tuple[Mention, ...] = ()
    remaining: tuple[Remaining, ...] = ()
    scopes: tuple[str, ...] | None = None
    """The keys of the scopes that were looked through, which outlive their names; None: all of the book."""

    @property
    def counts(self) -> dict[str, int]:
        """How many events tell of each kind of thing, the most first."""
        return counted(mention.thing for mention in self.entries)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(mention.id for mention in self.entries)

    def __str__(self) -> str:
        lines = [f"{told(self.counts) or 'nothing'} found for {self.request}"]
        if self.derived:
            lines.append(f"derived from it: {told(counted(mention.thing for mention in self.derived))}")
        lines += [f"remains: {left}" for left in self.remaining]
        return "\n".join(lines)


def counted(things: Iterator[str] | Collection[str]) -> dict[str, int]:
    return dict(sorted(Counter(things).items(), key=lambda pair: (-pair[1], pair[0])))


def told(counts: Mapping[str, int]) -> str:
    """Counts by kind of thing as people say them: "14 items, 1 task"."""
    return ", ".join(number(count, thing) for thing, count in counts.items())


def number(count: int, thing: str) -> str:
    plural = {
        "discovery": "discoveries",
        "branch": "branches",
        "state": "changes of state",
        "work": "events of works",
    }
    return f"{count:,} {thing if count == 1 else plural.get(thing, f'{thing}s')}"


# asking


def find_request(
    text: str | Sequence[str] | None,
    scope: str | None,
    metadata: Mapping[str, Any] | None,
    actor: str | None,
) -> FindRequest:
    """Raises BadInput if nothing is given to look for."""
    texts = () if text is None else tuple(check_each("text", text))
    if metadata is not None and not isinstance(metadata, Mapping):
        raise BadInput(f"metadata {shown(metadata)} is not a mapping: give {{'customer': 'c-17'}}")
    if not (texts or scope is not None or metadata or actor is not None):
        raise BadInput("nothing to find was given: give text=, scope=, metadata= or actor=")
    named = None if actor is None else check_name("actor", actor)
    return FindRequest(Spellings(texts).texts, scope, dict(metadata or {}), named)


def find(session: Session, request: FindRequest, progress: Progress | None = None) -> Found:
    """Look through every event of the scopes that a session reads, page by page. Raises NotFound that lists the names
    there are if there is no such scope, no event by this actor, or no field of metadata of this name."""
    with session.narrowed(request.scope).snapshot() as now:
        scopes = now.readable
        if request.scope is not None and not scopes:
            names = {written(tuple(path)) for _, path in now.scan("scopes.paths")}
            known = f"the scopes are {_some(names)}" if names else "this book has no scopes"
            raise NotFound(f"there is no scope {request.scope!r}: {known}")
    search = _LedgerSearch(session.ledger, request, scopes)
    found = search.look_through(progress)
    search.check_names()
    return found


def find_again(session: Session, found: Found, progress: Progress | None = None) -> Found:
    """Look for the same in the same scopes, as the book is now: their names may be gone, and so may all else."""
    scopes = None if found.scopes is None else frozenset(found.scopes)
    return _LedgerSearch(session.ledger, found.request, scopes).look_through(progress)


class _MatchedText(NamedTuple):
    """Where something was found in an event, and the text there."""

    path: str
    text: str


class _LedgerSearch:
    """One look through a ledger, and what it has found so far."""

    def __init__(self, ledger: Ledger, request: FindRequest, scopes: frozenset[str] | None) -> None:
        self._ledger, self._request, self._scopes = ledger, request, scopes
        self._spellings = Spellings(request.texts)
        self._in_blob = lru_cache(1024)(self._blob_holds)
        self._actors: set[str] = set()
        self._fields: set[str] = set()
        self._entries: list[Mention] = []
        self._derived: list[Mention] = []
        self._matched: set[str] = set()
        self._below: set[str] = set()
        """The ids of what was found and of what is derived from it."""
        self._remaining: Counter[tuple[str, str, str]] = Counter()

    def look_through(self, progress: Progress | None) -> Found:
        """All that there is, up to the head of now."""
        head = self._ledger.head
        for event in self._ledger.events(0, head):
            if self._scopes is None or scope_of(event) in self._scopes:
                self._look_at(event)
            if progress and (event.position % PAGE == 0 or event.position == head):
                progress(event.position, head)
        name = self._ledger.meta.name
        if self._spellings.within(name):
            self._remaining["name of the book", name, NAMED_SO] += 1
        return self._found(head)

    def _found(self, head: int) -> Found:
        remaining = sorted(self._remaining.items())
        return Found(
            self._request,
            head,
            tuple(self._entries),
            tuple(mention for mention in self._derived if mention.id not in self._matched),
            tuple(Remaining(where, name, count, advice) for (where, name, advice), count in remaining),
            None if self._scopes is None else tuple(sorted(self._scopes)),
        )

    def _look_at(self, event: Event) -> None:
        request, spellings = self._request, self._spellings
        self._actors.add(event.actor)
        metadata = list(_metadata_in(event.payload)) if request.metadata else []
        self._fields.update(name for fields in metadata for name in fields)
        fits = (request.actor is None or event.actor == request.actor) and (
            not request.metadata or any(_has(fields, request.metadata) for fields in metadata)
        )
        if fits:
            self._look_at_header(event)
            places = self._places(event) if spellings.texts else ()
            if event.kind == ERASED:
                kept = [place for place in places if ".residue" in place.path]
                self._remains("kept by an erasure", kept, KEPT)
                self._remains(
                    "reason of an erasure", [place for place in places if place.path == "reason"], EARLIER
                )
            elif places or not (spellings.texts or event.erased or _is_tombstone(event)):
                self._add(event, places)
        if event.parents and not event.erased and not self._below.isdisjoint(event.parents):
            self._below.add(event.id)
            self._derived.append(Mention(event.id, event.position, thing_of(event.kind), event.kind))

    def check_names(self) -> None:
        request = self._request
        if request.actor is not None and request.actor not in self._actors:
            raise NotFound(f"no event is by {request.actor!r}: the actors are {_some(self._actors)}")
        unknown = sorted(request.metadata.keys() - self._fields)
        if unknown:
            known = f"the names are {_some(self._fields)}" if self._fields else "nothing has metadata"
            raise NotFound(f"no metadata has the name {unknown[0]!r}: {known}")

    def _add(self, event: Event, places: Sequence[_MatchedText]) -> None:
        given = (
            []
            if self._request.texts
            else [name for name in ("actor", "metadata", "scope") if self._asks(name)]
        )
        in_blob_alone = bool(places) and all(place.path.startswith("blob ") for place in places)
        thing = thing_of(event.kind)
        self._entries.append(
            Mention(
                event.id,
                event.position,
                "blob" if in_blob_alone and thing != "receipt" else thing,
                event.kind,
                tuple(place.path for place in places[:MOST_PLACES]) or tuple(given),
                beginning(around(places[0].text, self._spellings), 120) if places else "",
            )
        )
        self._matched.add(event.id)
        self._below.add(event.id)
        residue = self._ledger.registry.residue(event, self._spellings)
        if residue and places:
            kept = [_MatchedText(*place) for place in self._spellings.places(residue)]
            self._remains("kept by an erasure", kept, KEPT)

    def _asks(self, name: str) -> bool:
        return bool(getattr(self._request, name))

    def _remains(self, where: str, places: Sequence[_MatchedText], advice: str) -> None:
        for name in {place.text[:200] for place in places}:
            self._remaining[where, name, advice] += 1

    # where it is

    def _look_at_header(self, event: Event) -> None:
        names = {
            "actor": event.actor,
            "run id": event.run_id,
            "session id": event.session_id,
            "event id": event.id,
        }
        if self._ledger.registry.owner(event.kind) is None:
            names["kind"] = event.kind
        for where, name in names.items():
            if name and (self._spellings.in_name(name) or (where == "actor" and name == self._request.actor)):
                self._remaining[where, name, ADVICE] += 1
        for parent in event.parents:
            if self._spellings.in_name(parent):
                self._remaining["parent id", parent, ADVICE] += 1
        for label, value in event.labels.items():
            if self._spellings.in_name(value) or self._spellings.in_name(label):
                self._remaining["label", f"{label}={value}", ADVICE] += 1

    def _places(self, event: Event) -> list[_MatchedText]:
        """Where the texts are in its payload and its blobs."""
        places = list[_MatchedText]()
        if event.payload and self._spellings.held_by(event.payload):
            places += [_MatchedText(*place) for place in self._spellings.places(event.payload)]
        for digest in event.blobs:
            if text := self._in_blob(digest):
                places.append(_MatchedText(f"blob {digest[:12]}", text))
        return places

    def _blob_holds(self, digest: str) -> str:
        """The beginning of a text in a blob that holds what is looked for; "" if none does."""
        data = self._ledger.blob(digest)
        for value in () if data is None else _readings(data):
            if self._spellings.held_by(value):
                return next((around(text, self._spellings) for _, text in self._spellings.places(value)), "…")
        return ""


def _is_tombstone(event: Event) -> bool:
    """Whether it only says that items were erased, and holds nothing of them."""
    return event.kind in ENDING and bool(event.payload.get("erased"))


def _readings(data: bytes) -> Iterator[object]:
    """What the bytes of a blob can be read as: JSON, and text in the encodings that people use."""
    if data[:1] in (b"{", b"["):
        try:
            yield decode(data)
        except (msgspec.DecodeError, RecursionError):
            pass  # it only looks like JSON
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        yield data.decode("utf-16", "ignore")
    try:
        yield data.decode()
    except UnicodeDecodeError:
        yield data.decode("utf-8", "ignore")
        yield data.decode("latin-1")


def _metadata_in(value: object) -> Iterator[Mapping[str, Any]]:
    """Every mapping that stands under the name `metadata`, at any depth."""
    if isinstance(value, dict):
        fields = value.get("metadata")
        if isinstance(fields, dict):
            yield fields
        for inner in value.values():
            yield from _metadata_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _metadata_in(inner)


def _has(fields: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether metadata has these values, as filters of memory compare them."""
    return all(MetadataTest(name, "eq", value).accepts(fields) for name, value in wanted.items())


def _some(names: Collection[str]) -> str:
    more = f" and {len(names) - KNOWN:,} more" if len(names) > KNOWN else ""
    return ", ".join(sorted(names)[:KNOWN]) + more
