"""Everything about one person or topic: finding it in every event, and the proof that it was erased.

Whatever a book shows is derived from its events, so a look through every event (its payload, its blobs, its header)
finds it wherever it is shown. What stands in a payload or a blob can be erased. What stands in a header (names of
actors, of runs, of sessions, ids, labels) is part of the hash chain and remains; so do the few names that an erasure
keeps so that rights and tasks stay what they were.

A proof looks through the raw files for the texts that were looked for. Where something was found by its scope, its
metadata or its actor alone, samples of what it says stand for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from .access.commands import DENIED
from .access.masking import beginning
from .errors import BadInput, NotFound, shown
from .files.scan import forms
from .ledger.checks import check_each, check_name
from .ledger.encoding import decode
from .ledger.erase import with_derived
from .ledger.events import ERASED, Event, erased_by
from .ledger.keys import Key
from .ledger.matching import Spellings, around, can_be_looked_for
from .ledger.printing import Listing, Readable, number, told
from .ledger.reader import PAGE, pages
from .ledger.scopes import NAMED, parsed, scope_of, written
from .memory.capability import ENDING
from .memory.filters import MetadataTest
from .memory.items import event_text, joined, subject_and_fact, texts_in
from .memory.requests import CREATED, UPDATED
from .recall.changed_facts import CHANGED
from .recall.index_feed import shown_text
from .state.redaction import as_logged
from .threads.capability import MESSAGE
from .work.kinds import ADDED, EDITED

if TYPE_CHECKING:
    from .ledger.ledger import Ledger, Progress
    from .session import Session

THINGS = {
    "memory.recalled": "record of what was shown", "memory.checked": "check of an item",
    "memory.noted": "document", "memory.logged": "document", "memory.gated": "document", "memory.archived": "document",
    "memory.verified": "document",
    "memory.core.set": "core", "memory.configured": "setting", "receipt.written": "receipt",
    "premise.changed": "receipt", "work.decided": "decision", "work.discovered": "discovery",
    "work.produced": "artifact", "work.nudged": "nudge", "work.asked": "approval", "work.escalated": "escalation",
    "work.branched": "branch", "scope.named": "scope name", "thread.opened": "thread name",
    "thread.summarized": "summary", "thread.learned": "record of learning", "access.denied": "refusal",
    "thread.compacted": "summary", "thread.flushed": "record of logging",
    "access.relabelled": "change of labels", "access.viewed": "record of a look",
    "access.token.created": "token", "access.token.revoked": "token",
}  # fmt: skip
"""What people call what an event of this kind is about."""

GROUPS = {
    "memory": "item", "task": "task", "work": "work", "state": "state", "run": "run", "access": "right",
    "thread": "thread message",
}  # fmt: skip
"""The same by the first word of its kind; every other event is an event."""

MOST_PLACES = 5
"""How many places within one event are named."""

LONGEST_SNIPPET = 120
"""How many characters of what an event says are shown."""

KNOWN = 12
"""How many names an error lists."""

MOST_SAMPLES, SHORTEST_SAMPLE, LONGEST_SAMPLE = 50, 12, 60
"""How many samples are kept of what was found, and how many characters they have."""

ADVICE = "headers are part of the hash chain: use a name that tells nothing from now on, or begin a new book"
KEPT = (
    "kept so that rights, tasks and runs stay what they are: replace it there (grant, assign, configure anew)"
)
NOT_TWICE = "kept so that the message is not added again: give messages ids that tell nothing from now on"
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

    @property
    def path(self) -> str | None:
        """The scope as people write it; None for none, and for the root."""
        return None if self.scope in (None, "/") else written(parsed(self.scope))

    @property
    def spellings(self) -> Spellings:
        """All that it names: its texts, the scope and its last name, the texts in the metadata, the actor. No reason of
        an erasure and no proof may say them."""
        names = list(texts_in(list(self.metadata.values())))
        if self.path is not None:
            names += [self.path, self.path.rpartition("/")[2]]
        if self.actor is not None:
            names.append(self.actor)
        return Spellings([*self.texts, *(name for name in names if can_be_looked_for(name))])

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
    """Everything that was found as of a position: iterable, in order. `derived` was made from it, in whatever scope,
    and goes with it when it is erased; `remaining` is what erasing cannot remove."""

    ENTRIES = "entries"

    request: FindRequest
    as_of: int
    entries: tuple[Mention, ...]
    derived: tuple[Mention, ...] = ()
    remaining: tuple[Remaining, ...] = ()
    scopes: tuple[str, ...] | None = None
    """The keys of the scopes that were looked through, which outlive their names; None: all of the book."""
    samples: tuple[str, ...] = ()
    """Where no text was looked for: pieces of what was found, for the proof to look for. They are never written."""

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
    if not all(isinstance(name, str) for name in metadata or ()):
        raise BadInput("a field of metadata has a text as its name: give {'customer': 'c-17'}")
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
    search = _LedgerSearch(session, request, scopes)
    found = search.look_through(progress)
    search.check_names()
    return found


def find_again(session: Session, found: Found, progress: Progress | None = None) -> Found:
    """Look for the same in the same scopes, as the book is now: their names may be gone, and so may all else. Its
    samples are those that no other event holds, so that they must be in no file once it is purged."""
    scopes = None if found.scopes is None else frozenset(found.scopes)
    return _LedgerSearch(session, found.request, scopes, before=found).look_through(progress)


class _MatchedText(NamedTuple):
    """Where something was found in an event, and the text there."""

    path: str
    text: str


class _LedgerSearch:
    """One look through a ledger, and what it has found so far."""

    def __init__(
        self,
        session: Session,
        request: FindRequest,
        scopes: frozenset[str] | None,
        before: Found | None = None,
    ) -> None:
        self._session, self._ledger = session, session.ledger
        self._request, self._scopes = request, scopes
        self._path = request.path
        self._spellings = Spellings(request.texts)
        self._in_blob = lru_cache(1024)(self._blob_holds)
        self._as_logged = as_logged(self._ledger.snapshot)
        self._actors: set[str] = set()
        self._fields: set[str] = set()
        self._entries: list[Mention] = []
        self._fitting: set[str] = set()
        """The ids of events that fit all but the texts."""
        self._about: set[Key] = set()
        """The items and tasks that were given the metadata by a change."""
        self._remaining: Counter[tuple[str, str, str]] = Counter()
        self._samples = [] if self._path is None else [self._path]
        self._known = None if before is None else _Standing(self._ledger, before)

    def look_through(self, progress: Progress | None) -> Found:
        """All that there is, up to the head of now."""
        head = self._ledger.head
        for event in self._ledger.events(0, head):
            if self._is_in(event):
                self._look_at(event)
            if self._known is not None:
                self._known.look_at(event)
            if progress and (event.position % PAGE == 0 or event.position == head):
                progress(event.position, head)
        for event in self._ledger.events(0, head) if self._about else ():
            if _thing(event) in self._about and event.id not in self._fitting and self._is_in(event):
                self._look_at(event, has_metadata=True)
        name = self._ledger.meta.name
        if self._spellings.within(name):
            self._remaining["name of the book", name, NAMED_SO] += 1
        return self._found(head)

    def _is_in(self, event: Event) -> bool:
        """Whether it belongs to a scope that is looked through, or is the record that such a scope was refused to
        somebody, which names it."""
        if self._scopes is None or scope_of(event) in self._scopes:
            return True
        if event.kind != DENIED or self._path is None or not self._session.is_unbound_owner:
            return False
        return f"{event.payload.get('what', '')}/".startswith(f"{self._path}/")

    def _found(self, head: int) -> Found:
        remaining = sorted(self._remaining.items())
        entries = tuple(sorted(self._entries, key=lambda mention: mention.position))
        return Found(
            self._request,
            head,
            entries,
            tuple(self._derived({mention.id for mention in entries})),
            tuple(Remaining(where, name, count, advice) for (where, name, advice), count in remaining),
            None if self._scopes is None else tuple(sorted(self._scopes)),
            self._kept_samples(),
        )

    def _derived(self, found: set[str]) -> list[Mention]:
        """What an erasure takes besides, as far as this session may know of it."""
        with self._session.snapshot() as now:
            ids, visible = with_derived(now, found) - found, now.readable
        events = [event for page in pages(ids) for event in self._ledger.events_by_id(page)]
        return [
            Mention(event.id, event.position, thing_of(event.kind), event.kind)
            for event in sorted(events, key=lambda event: event.position)
            if not event.erased and (visible is None or scope_of(event) in visible)
        ]

    def _kept_samples(self) -> tuple[str, ...]:
        if self._request.texts:
            return ()
        if self._known is not None:
            return self._known.samples
        pieces = list(dict.fromkeys(self._samples))
        return tuple(pieces[:: len(pieces) // MOST_SAMPLES + 1])

    def _look_at(self, event: Event, has_metadata: bool = False) -> None:
        request, spellings = self._request, self._spellings
        self._actors.add(event.actor)
        if request.metadata and not has_metadata:
            metadata = list(_metadata_in(event.payload))
            self._fields.update(name for fields in metadata for name in fields)
            has_metadata = any(_has(fields, request.metadata) for fields in metadata)
            if has_metadata:
                self._about.update(_changed_by(event, request.metadata))
        if (request.metadata and not has_metadata) or (
            request.actor is not None and event.actor != request.actor
        ):
            return
        if request.metadata:
            self._fitting.add(event.id)
        self._look_at_header(event)
        if event.kind == ERASED:
            self._look_at_erasure(event)
        elif not spellings.texts:
            if not (event.erased or _is_tombstone(event)):
                self._add(event, ())
        elif places := self._places(event):
            self._add(event, places)

    def _look_at_erasure(self, event: Event) -> None:
        """What it keeps of others, and its reason, cannot be erased."""
        if not self._spellings.held_by(event.payload):
            return
        for gone in erased_by(event):
            if gone.residue and self._spellings.held_by(gone.residue):
                erased = self._ledger.event(gone.id)
                self._kept("" if erased is None else erased.kind, gone.residue)
        if self._spellings.within(event.payload["reason"]):
            self._remaining["reason of an erasure", event.payload["reason"][:200], EARLIER] += 1

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
        says = around(places[0].text, self._spellings) if places else self._beginning(event)
        self._entries.append(
            Mention(
                event.id,
                event.position,
                "blob" if in_blob_alone and thing != "receipt" else thing,
                event.kind,
                tuple(place.path for place in places[:MOST_PLACES]) or tuple(given),
                beginning(says, LONGEST_SNIPPET),
            )
        )
        if not places:
            self._take_sample(event)
            return
        residue = self._ledger.registry.residue(event, self._spellings)
        if residue:
            self._kept(event.kind, residue)

    def _take_sample(self, event: Event) -> None:
        """Keep the longest piece of what it says, as it stands there."""
        pieces = list(_pieces(event.payload))
        for digest in () if pieces else event.blobs[:1]:
            pieces = list(_pieces(list(_readings(self._ledger.blob(digest) or b""))))
        self._samples += [max(pieces, key=len)] if pieces else []

    def _beginning(self, event: Event) -> str:
        """The beginning of what an event says, on one line, without the secrets of its run."""
        text = shown_text(self._says(event), event, self._as_logged, most=2 * LONGEST_SNIPPET)
        return " ".join(text.split())

    def _says(self, event: Event) -> str:
        """What an event says: its words, or else the first words that stand in it."""
        payload = event.payload
        if event.kind == CREATED:
            text = joined(*subject_and_fact(payload["item"]))
        elif event.kind == NAMED:
            text = written(tuple(payload["path"]))
        else:
            said = (payload.get(name) for name in ("name", "what", "reason"))
            text = self._ledger.registry.says(event) or event_text(payload)
            text = text or next((each for each in said if isinstance(each, str)), "")
        return text if text.strip() else next(_pieces(payload), "")

    def _asks(self, name: str) -> bool:
        return bool(getattr(self._request, name))

    def _kept(self, kind: str, residue: Mapping[str, Any]) -> None:
        """Count the names in what an erasure keeps of an event."""
        where, advice = ("id of a message", NOT_TWICE) if kind == MESSAGE else ("kept by an erasure", KEPT)
        for name in {text[:200] for _, text in self._spellings.places(residue)}:
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


class _Standing:
    """Which of the samples of what was found are its alone: what other events say as well stays in the files."""

    def __init__(self, ledger: Ledger, found: Found) -> None:
        self._ledger = ledger
        self._ids = {mention.id for mention in (*found.entries, *found.derived)}
        self._left = {sample: forms(sample) for sample in found.samples if sample not in ledger.meta.name}

    @property
    def samples(self) -> tuple[str, ...]:
        return tuple(self._left)

    def look_at(self, event: Event) -> None:
        if not self._left or (event.id in self._ids and not event.erased):
            return
        header = (event.id, event.kind, event.actor, event.run_id, event.session_id, event.parents)
        text = "\n".join(texts_in([*header, event.labels, event.payload]))
        blobs = [] if event.erased else [self._ledger.blob(digest) or b"" for digest in event.blobs]
        for sample, written_as in list(self._left.items()):
            if sample in text or any(form in blob for blob in blobs for form in written_as):
                del self._left[sample]


def _pieces(value: object) -> Iterator[str]:
    """From each text in a value that holds words, one piece of a line. Ids are no words: they stand in headers, too."""
    for text in texts_in(value):
        for line in text.splitlines():
            piece = line.strip()[:LONGEST_SAMPLE].strip()
            if len(piece) >= SHORTEST_SAMPLE and (" " in piece or not piece.isascii()):
                yield piece
                break


def _is_tombstone(event: Event) -> bool:
    """Whether it only says that items were erased, to all or to somebody that had relied on one, and holds nothing of
    them."""
    if event.kind == CHANGED:
        return not event.parents and not event.payload.get("text")
    return event.kind in ENDING and bool(event.payload.get("erased"))


def _thing(event: Event) -> Key | None:
    """The item or the task that an event gives its words."""
    if event.kind in (ADDED, EDITED) and not event.erased:
        return event.payload["work"], event.payload["task_id"]
    return (event.id,) if event.kind == CREATED else None


def _changed_by(event: Event, wanted: Mapping[str, Any]) -> list[Key]:
    """The items, or the task, that a change gives this metadata."""
    if event.kind == UPDATED:
        changes = event.payload["changes"].items()
        return [(id,) for id, fields in changes if any(_has(each, wanted) for each in _metadata_in(fields))]
    task = _thing(event) if event.kind == EDITED else None
    return [] if task is None else [task]


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
