"""Evidence for a lesson: how many independent origins it has, whether its citations hold, whether a person said it.

An origin is a run, or outside any run an actor on one day: what a run says twice is one origin. A source counts if it
says the same (`memory.agreement`); one that says otherwise speaks against it. What memory itself has shown counts for
nothing when it comes back (an echo), and what is derived has the origins of what it is derived from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ..access.rights import OWNER, rights_of, role_of
from ..documents.document import day_of
from ..documents.verbs import Documents
from ..errors import BadInput, NotFound
from ..ledger.checks import check_each, check_name
from ..ledger.events import Event
from ..ledger.printing import Readable
from ..memory.agreement import Agreement, agreement, content_words
from ..memory.echoes import echo_among, shown_before
from ..memory.items import Corroboration, Item, event_text, subject_and_fact, texts_in
from ..memory.requests import RECALLED, RECEIPT, UPDATED
from ..recall.verification import cited_lines

if TYPE_CHECKING:
    from ..memory.viewer import Viewer
    from ..session import Session

ENOUGH = 2
"""How many independent origins let a lesson be promoted by itself."""

BASE = 0.0
"""The confidence of something that was met once, in one place, and that something speaks against."""
SOURCE, OCCURRENCE, ROLES, UNDISPUTED = 0.2, 0.3, 0.2, 0.15
"""What is added for each independent source above one, for each further occurrence, for three or more roles, and if
nothing speaks against it."""
MANY_ROLES = 3
PERSON = "person"

MOST_SOURCES = 1_000
"""How many sources a fact can have."""
DEEPEST = 20
"""How many steps the sources of a source are followed."""
IN_PERSON = ("", "user", "operator")
"""What the provenance of an item may say of its source so that the item is its author's own word."""


def confidence(sources: int, occurrences: int, roles: int = 1, counter_evidence: int = 0) -> float:
    """How sure a pattern is, from 0 to 1: BASE, 0.2 for each independent source above one, 0.3 for each further
    occurrence, 0.2 for three or more roles, 0.15 if nothing speaks against it. Of what was never met, 0."""
    if sources < 1 or occurrences < 1:
        return 0.0
    total = BASE + SOURCE * (sources - 1) + OCCURRENCE * (occurrences - 1)
    total += (ROLES if roles >= MANY_ROLES else 0.0) + (UNDISPUTED if counter_evidence < 1 else 0.0)
    return round(min(1.0, max(0.0, total)), 2)


class Evidence(Readable, msgspec.Struct, frozen=True):
    """What speaks for a lesson: its independent origins, how often it was met, the citations that hold, a person who
    said it; what speaks against it; and the sources that do not count, with the reason."""

    origins: tuple[str, ...] = ()
    occurrences: int = 0
    roles: tuple[str, ...] = ()
    verified: tuple[str, ...] = ()
    person: str = ""
    against: tuple[str, ...] = ()
    not_counted: tuple[tuple[str, str], ...] = ()

    @property
    def confidence(self) -> float:
        return confidence(len(self.origins), self.occurrences, len(self.roles), len(self.against))

    @property
    def enough(self) -> bool:
        """Whether a lesson may be promoted by itself. What something speaks against takes the word of a person."""
        independent = len(self.origins) >= ENOUGH or bool(self.verified)
        return bool(self.person) or (independent and not self.against)

    @property
    def lacking(self) -> str:
        """Why it has to wait, if it has to."""
        if self.enough:
            return ""
        if self.against:
            return "a source says otherwise" if len(self.against) == 1 else "sources say otherwise"
        return "one source" if self.origins else "no source that counts"

    @property
    def basis(self) -> str:
        """What it is promoted on, without a name."""
        if self.person:
            return "a person's word"
        if len(self.origins) >= ENOUGH:
            return f"{len(self.origins)} independent origins"
        return "citations that hold" if self.verified else ""

    def __str__(self) -> str:
        if not self.enough:
            return self.lacking
        if self.person:
            return f"{self.person} said so"
        if len(self.origins) >= ENOUGH:
            return f"{len(self.origins)} independent origins: {', '.join(self.origins)}"
        return f"{', '.join(self.verified)} can be seen"


class _Origin(NamedTuple):
    """Where a source comes from."""

    name: str
    actor: str
    source: tuple[str, ...] = ()
    """The conversation or tool call that it was taken from, if that is known."""


def source_events(session: Session, sources: Sequence[str]) -> list[str]:
    """The events of sources: an event or item by its id, a document by its path. Raises NotFound, or
    BadInput if they are too many."""
    ids = list[str]()
    for source in (check_name("a source", source) for source in check_each("sources", sources)):
        event = session.ledger.event(source)
        if event is not None and next(iter(session.visible([event])), None) is not None:
            ids.append(source)
        elif entries := Documents(session).get(source) if event is None else []:
            ids += [entry.id for entry in entries]
        else:
            raise NotFound(
                f"there is no source {source!r}: give the ids of events and items, or the paths of documents"
            )
    ids = list(dict.fromkeys(ids))
    if len(ids) > MOST_SOURCES:
        raise BadInput(
            f"sources are at most {MOST_SOURCES:,} events, not {len(ids):,}: name those that say it"
        )
    return ids


def evidence_of(
    session: Session, item: Item, sources: Sequence[str], *, vouches: bool, waiting: bool = False
) -> Evidence:
    """What speaks for an item that these events are the sources of. `vouches` is whether this actor says so itself;
    `waiting`, whether the item waits already: then its author, or what it was derived from, and those who have vouched
    for it speak for it, too."""
    with session.viewer() as viewer:
        gathering = _Gathering(session, viewer, item)
        for id in sources:
            gathering.add(id)
        if waiting:
            if not has_sources(session, item.id):
                gathering.vouch(_Origin(_named(item.run, item.agent, day_of(item.recorded_us)), item.agent))
            for other in item.corroborated:
                gathering.vouch(_corroborated(other))
        if vouches:
            day = day_of(session.ledger.moment())
            gathering.vouch(_Origin(_named(session.run, session.actor, day), session.actor))
        verified, unseen = _verified(session, item)
        return Evidence(
            tuple(gathering.origins), gathering.occurrences, tuple(gathering.roles), verified, gathering.person,
            tuple(gathering.against), (*gathering.not_counted.items(), *unseen),
        )  # fmt: skip


def has_sources(session: Session, id: str) -> bool:
    """Whether an item was derived from something when it was recorded."""
    event = session.ledger.event(id)
    return event is not None and bool(event.parents)


def sources_so_far(session: Session, item: Item) -> list[str]:
    """The sources of an item: what it was derived from, and what was brought as evidence since."""
    event = session.ledger.event(item.id)
    ids = [] if event is None else [*event.parents]
    with session.viewer() as viewer:
        children = [child for _, child in viewer.now.scan("children", item.id)]
    for change in session.ledger.events_by_id(children):
        if change.kind == UPDATED and not change.erased:
            ids += [id for id in change.parents if id not in change.payload["changes"]]
    return list(dict.fromkeys(ids))


def _named(run: str | None, actor: str, day: str) -> str:
    return f"run {run}" if run else f"{actor} on {day}"


def _corroborated(other: Corroboration) -> _Origin:
    return _Origin(_named(other.run, other.actor, f"position {other.position}"), other.actor, other.source)


class _Gathering:
    """The origins of one lesson, as they are counted."""

    def __init__(self, session: Session, viewer: Viewer, item: Item) -> None:
        self._session, self._viewer, self._item = session, viewer, item
        self._subject, self._fact = subject_and_fact(item.as_content())
        self._sources = set[tuple[str, ...]]()
        self._actors = set[str]()
        self.origins, self.roles = dict[str, None](), dict[str, None]()
        self.occurrences, self.person = 0, ""
        self.against, self.not_counted = dict[str, None](), dict[str, str]()

    def add(self, id: str) -> None:
        """Count a source, or say why it does not count."""
        event = self._session.ledger.event(id)
        if event is None or event.erased:
            self.not_counted[id] = "it was erased"
            return
        item = self._viewer.item(id)
        if item is not None and item.status not in ("live", "held"):
            self.not_counted[id] = f"it is {item.status}"
            return
        said = self._agreement(event, item)
        if said.denies:
            self.against[id] = None
        elif not said.agrees:
            self.not_counted[id] = said.why
        elif (
            item is not None and item.status == "held"
        ):  # it waits itself, and is no more than its author's word
            self.vouch(_Origin(_named(item.run, item.agent, day_of(item.recorded_us)), item.agent))
        else:
            self._add_roots(id, event, item)

    def vouch(self, origin: _Origin) -> None:
        """Count the word of somebody, unless a source of the same author counts already."""
        if origin.actor not in self._actors:
            self._count("", origin)
            if role_of(self._viewer.now, origin.actor) == PERSON:
                self.person = self.person or origin.actor

    def _count(self, id: str, origin: _Origin) -> None:
        self.occurrences += 1
        self._actors.add(origin.actor)
        role = role_of(self._viewer.now, origin.actor)
        self.roles |= {} if role is None else {role: None}
        if origin.source and origin.source in self._sources:
            self.not_counted[id] = "it was taken from the same place as another one"
        else:
            self.origins[origin.name] = None
        self._sources |= {origin.source} if origin.source else set()

    def _add_roots(self, id: str, event: Event, item: Item | None) -> None:
        if item is not None:
            self.against |= dict.fromkeys(item.disputed)
            if item.verified_by is not None and self._keeps(item.verified_by):
                self.person = self.person or item.verified_by
        for root in self._roots(event, DEEPEST):
            if isinstance(root, str):
                self.not_counted[id] = root
                continue
            if self._is_persons(root):
                self.person = self.person or root.actor
            source = _source_of(item) if item is not None and root.id == item.id else ()
            self._count(
                id, _Origin(_named(root.run_id, root.actor, day_of(root.created_us)), root.actor, source)
            )
        for other in () if item is None else item.corroborated:
            self._count(id, _corroborated(other))

    def _roots(self, event: Event, deep: int) -> Iterator[Event | str]:
        """What a source goes back to: of what is derived, those of its sources that say the same; if none of them does,
        its author has concluded it. Or why that does not count."""
        parents = self._session.ledger.events_by_id(event.parents) if event.parents else []
        if event.kind in (RECALLED, RECEIPT) or any(parent.kind in (RECALLED, RECEIPT) for parent in parents):
            yield "an echo: it is derived from what memory has shown"
            return
        visible = {parent.id for parent in self._session.visible(parents) if not parent.erased}
        if not deep or len(visible) < len(event.parents):
            yield "it is derived from something that cannot be looked at"
            return
        same = [parent for parent in parents if self._agreement(parent, self._viewer.item(parent.id)).agrees]
        for parent in same:
            yield from self._roots(parent, deep - 1)
        if not same:
            shown = self._shown_before(event)
            yield f"an echo: memory has shown {shown} before it was said" if shown else event

    def _shown_before(self, event: Event) -> str:
        """Something that memory had shown to the actor or in the run of an event, and that says the same as the lesson
        or as the event."""
        shown, item = shown_before(self._session, self._viewer, event), self._viewer.item(event.id)
        content = {"kind": "note", "body": self._said(event, item)} if item is None else item.as_content()
        return shown.echo(self._subject, self._fact) or echo_among(content, shown.texts)

    def _agreement(self, event: Event, item: Item | None) -> Agreement:
        return agreement(self._subject, self._fact, self._said(event, item))

    def _said(self, event: Event, item: Item | None) -> str:
        if item is not None:
            return item.text
        registry = self._session.ledger.registry
        return event_text(event.payload) or registry.says(event) or " ".join(texts_in(event.payload))

    def _keeps(self, actor: str) -> bool:
        return rights_of(self._viewer.now, actor).may("keep_memory")

    def _is_persons(self, event: Event) -> bool:
        """Whether an event is a person's own word: the book says who is a person, not the event. The owner and people
        also record what others say: only what they say themselves counts."""
        if event.actor != OWNER and role_of(self._viewer.now, event.actor) != PERSON:
            return False
        if event.kind == "thread.message":
            message = event.payload.get("message")
            return isinstance(message, Mapping) and message.get("role") == "user"
        item = self._viewer.item(event.id)
        if item is not None:
            return str(item.provenance.get("source_kind") or "") in IN_PERSON
        return event.kind.startswith(("user.", "memory."))


def _source_of(item: Item) -> tuple[str, ...]:
    names = ("channel", "thread", "message", "tool_call")
    source = tuple(str(item.provenance.get(name) or "") for name in names)
    return source if any(source) else ()


def _verified(session: Session, item: Item) -> tuple[tuple[str, ...], list[tuple[str, str]]]:
    """The citations of an item, if all of them hold: the repository has the lines, and they have a word of what the
    item says, or the item names the file. And those that do not count, with the reason."""
    root = session.services.repository
    if root is None:
        return (), []
    words, cited, unseen = content_words(item.text), list[str](), list[tuple[str, str]]()
    for citation in dict.fromkeys(item.citations):
        place = cited_lines(root, citation)
        if place.wrong:
            unseen.append((citation, place.wrong))
        elif not words & content_words(place.text) and place.file not in item.text:
            unseen.append((citation, "the cited lines have no word of this"))
        else:
            cited.append(citation)
    return (tuple(cited) if not unseen else ()), unseen
