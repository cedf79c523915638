"""Evidence for a lesson: how many independent origins it has, whether its citations hold, whether a person said it.

An origin is a run, or outside any run an actor on one day: what a run says twice is one origin. What memory itself has
shown counts for nothing when it comes back (an echo), and what is derived has the origins of what it is derived from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ..access.rights import THREAD, rights_of, role_of
from ..documents.document import day_of
from ..documents.verbs import Documents
from ..errors import NotFound
from ..index.words import STOPWORDS, tokens
from ..ledger.checks import check_each, check_name
from ..ledger.events import Event
from ..ledger.printing import Readable
from ..ledger.reader import ViewReader
from ..ledger.scopes import scope_of
from ..memory.echoes import echo_among, texts_of
from ..memory.items import Item, event_text, texts_in
from ..memory.remember import MOST_SHOWN
from ..memory.requests import CREATED, RECALLED, RECEIPT
from ..recall.verification import check, claims

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

DEEPEST = 5
"""How many steps the sources of a source are followed."""
DERIVED = (CREATED, "agent.reflected")
"""Kinds that have the origins of what they are derived from, if they are derived from something."""
OF_PEOPLE = ("user", "operator")
"""The sources of items that are people, as their provenance says."""


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
        """Whether a lesson may be promoted by itself."""
        return bool(len(self.origins) >= ENOUGH or self.verified or self.person)

    @property
    def lacking(self) -> str:
        """Why it has to wait, if it has to."""
        if self.enough:
            return ""
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
        if self.person:
            return f"{self.person} said so"
        if len(self.origins) >= ENOUGH:
            return f"{len(self.origins)} independent origins: {', '.join(self.origins)}"
        return f"{', '.join(self.verified)} can be seen" if self.verified else self.lacking


class _Origin(NamedTuple):
    """Where a source comes from."""

    name: str
    actor: str
    source: tuple[str, ...] = ()
    """The conversation or tool call that it was taken from, if that is known."""


def source_events(session: Session, sources: Sequence[str]) -> list[str]:
    """The events of sources: an event or item by its id, a document by its path. Raises NotFound."""
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
    return list(dict.fromkeys(ids))


def evidence_of(session: Session, item: Item, sources: Sequence[str]) -> Evidence:
    """What speaks for an item that these events are the sources of. Without any it has one: its own author."""
    with session.viewer() as viewer:
        gathering = _Gathering(session, viewer, item)
        for id in sources:
            gathering.add(id)
        if not sources:
            run, day = item.run or session.run, day_of(item.recorded_us or session.ledger.moment())
            gathering.count("", _Origin(_named(run, item.agent, day), item.agent))
        origins, roles = gathering.origins, gathering.roles
    return Evidence(
        tuple(origins), gathering.occurrences, tuple(roles), _verified(session, item), gathering.person,
        tuple(gathering.against), tuple(gathering.not_counted.items()),
    )  # fmt: skip


def _named(run: str | None, actor: str, day: str) -> str:
    return f"run {run}" if run else f"{actor} on {day}"


class _Gathering:
    """The origins of one lesson, as they are counted."""

    def __init__(self, session: Session, viewer: Viewer, item: Item) -> None:
        self._session, self._viewer, self._item = session, viewer, item
        self._words = tokens(item.text) - STOPWORDS
        self._sources = set[tuple[str, ...]]()
        self.origins, self.roles = dict[str, None](), dict[str, None]()
        self.occurrences, self.person = 0, ""
        self.against, self.not_counted = dict[str, None](), dict[str, str]()

    def count(self, id: str, origin: _Origin) -> None:
        self.occurrences += 1
        role = role_of(self._viewer.now, origin.actor)
        self.roles |= {} if role is None else {role: None}
        if role == "person":
            self.person = self.person or origin.actor
        if origin.source and origin.source in self._sources:
            self.not_counted[id] = "it was taken from the same place as another one"
        else:
            self.origins[origin.name] = None
        self._sources |= {origin.source} if origin.source else set()

    def add(self, id: str) -> None:
        """Count a source, or say why it does not count."""
        event = self._session.ledger.event(id)
        if event is None or event.erased:
            self.not_counted[id] = "it was erased"
            return
        item = self._viewer.item(id)
        if item is not None and item.status not in ("live", "held"):
            self.not_counted[id] = f"it is {item.status}"
        elif not self._words & (tokens(self._said(event, item)) - STOPWORDS):
            self.not_counted[id] = "it says nothing of this"
        else:
            self._add_roots(id, event, item)

    def _add_roots(self, id: str, event: Event, item: Item | None) -> None:
        if item is not None:
            self.against |= dict.fromkeys(item.disputed)
            if item.provenance.get("source_kind") in OF_PEOPLE:
                self.person = self.person or item.agent
            if item.verified_by is not None and rights_of(self._viewer.now, item.verified_by).may(
                "keep_memory"
            ):
                self.person = self.person or item.verified_by
        for root in self._roots(event, DEEPEST):
            if isinstance(root, str):
                self.not_counted[id] = root
                continue
            if _is_persons(root):
                self.person = self.person or root.actor
            source = _source_of(item) if item is not None and root.id == item.id else ()
            name = _named(root.run_id, root.actor, day_of(root.created_us))
            self.count(id, _Origin(name, root.actor, source))
        for other in () if item is None else item.corroborated:
            name = _named(other.run, other.actor, f"position {other.position}")
            self.count(id, _Origin(name, other.actor, other.source))

    def _roots(self, event: Event, deep: int) -> Iterator[Event | str]:
        """What a source goes back to: itself, or what it is derived from. Or why that does not count."""
        parents = self._session.ledger.events_by_id(event.parents) if event.parents else []
        if event.kind in (RECALLED, RECEIPT) or any(parent.kind in (RECALLED, RECEIPT) for parent in parents):
            yield "an echo: it is derived from what memory has shown"
            return
        below = [parent for parent in parents if event.kind in DERIVED and not parent.erased and deep]
        visible = list(self._session.visible(below))
        if visible:
            for parent in visible:
                yield from self._roots(parent, deep - 1)
            return
        shown = self._shown_before(event)
        yield f"an echo: memory has shown {shown} before it was said" if shown else event

    def _shown_before(self, event: Event) -> str:
        """Something that memory had shown to the actor or in the run of an event, which the event repeats."""
        views, item = self._viewer.now, self._viewer.item(event.id)
        content = {"kind": "note", "body": self._said(event, item)} if item is None else item.as_content()
        ids = [id for id in islice(_shown_to(views, event), MOST_SHOWN) if id != event.id]
        items = {id: other for id in ids if (other := self._viewer.item(id)) is not None}
        others = self._session.ledger.events_by_id([id for id in ids if id not in items])
        told = [other for other in self._session.visible(others) if not other.kind.startswith(THREAD)]
        shown = [(id, texts_of(other)) for id, other in items.items()]
        shown += [(other.id, [text for text in texts_in(other.payload) if " " in text]) for other in told]
        return echo_among(content, shown)

    def _said(self, event: Event, item: Item | None) -> str:
        if item is not None:
            return item.text
        registry = self._session.ledger.registry
        return event_text(event.payload) or registry.says(event) or " ".join(texts_in(event.payload))


def _shown_to(views: ViewReader, event: Event) -> Iterator[str]:
    """What was shown before an event to anybody in its run, and to its actor outside any, the last first."""
    scope = scope_of(event)
    places = [(scope, "", event.actor)] + ([(scope, event.run_id)] if event.run_id else [])
    for place in places:
        for key, id in views.each("memory.heard", *place, reverse=True):
            if int(key[3]) < event.position:
                yield str(id)


def _is_persons(event: Event) -> bool:
    """Whether an event is what a person said."""
    said_in_thread = event.kind == "thread.message" and event.payload.get("role") == "user"
    return event.kind == "user.injected" or said_in_thread


def _source_of(item: Item) -> tuple[str, ...]:
    names = ("channel", "thread", "message", "tool_call")
    source = tuple(str(item.provenance.get(name) or "") for name in names)
    return source if any(source) else ()


def _verified(session: Session, item: Item) -> tuple[str, ...]:
    """The citations of an item, if the repository has all of the lines that they name."""
    root = session.services.repository
    cited = [claim.name for claim in claims(item) if claim.cited and claim.file and claim.first]
    if root is None or not cited:
        return ()
    held = check(root, item, None).seen
    return tuple(cited) if all(name in held for name in cited) else ()
