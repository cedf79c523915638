"""Echoes: what memory itself has shown to an agent and the agent says again. It is no new evidence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from ..access.rights import THREAD, Rights
from ..ledger.events import Event
from ..ledger.reader import ViewReader
from ..ledger.scopes import scope_of
from .agreement import agreement
from .claims import Claim, claim_of, corrects, covered, is_part, repeats
from .items import MAX_TEXT, Item, joined, subject_and_fact, texts_in, without_secrets
from .markdown import block
from .reading import items_at, may_name, may_read
from .standing import holds_for

if TYPE_CHECKING:
    from ..session import Session
    from .viewer import Viewer

MOST_SHOWN = 500
"""How much of what a run was shown is compared with what it remembers."""
STANDING = ("live", "held")
"""The statuses of items that keep others out: they stand, or wait for a choice."""


def texts_of(item: Item) -> list[str]:
    """What an item says, in each way in which it is shown."""
    shown = without_secrets(item)
    fact = subject_and_fact(shown.as_content())[1]
    return list(dict.fromkeys((item.text, shown.text, fact, block(shown))))


def comparable(rights: Rights, new: Item, items: Iterable[Item]) -> list[Item]:
    """The items that somebody may see and that keep out what repeats them."""
    return [item for item in items if _keeps_out(new, item) and may_read(rights, item)]


def _keeps_out(new: Item, item: Item) -> bool:
    """Whether an item stands or waits for a choice, and holds for the time that a new one speaks of."""
    return item.status in STANDING and holds_for(new, item)


def echo_among(content: Mapping[str, Any], shown: Iterable[tuple[str, list[str]]]) -> str:
    """The id of something that was shown which says all that this does, if there is one."""
    subject, fact = subject_and_fact(content)
    mine, whole = claim_of(fact, subject), joined(subject, fact)
    claims = list[Claim]()
    for id, texts in shown:
        theirs = [claim_of(text) for text in texts if len(text) <= MAX_TEXT]
        claims += theirs
        if any(repeats(mine, claim) for claim in theirs) or any(is_part(whole, text) for text in texts):
            return id
        if any(claim <= mine for claim in theirs) and covered(mine, claims):
            return id
    return ""


def repeats_receipt(
    views: ViewReader, rights: Rights, new: Item, content: Mapping[str, Any], receipt: Event
) -> bool:
    """Whether the new item says nothing but what a receipt's reader was shown and what still stands."""
    listed = [*receipt.payload.get("included", ()), *receipt.payload.get("block", ())]
    ids = dict.fromkeys((*receipt.payload.get("shown", ()), *(row[0] for row in listed)))
    # An item that the author may not read any more must not show in the answer, not even by a right guess.
    items = [item for item in items_at(views, ids) if may_read(rights, item)]
    current = [item for item in items if _keeps_out(new, item)]
    ended = [(item.id, texts_of(item)) for item in items if not _keeps_out(new, item)]
    if items and (not current or echo_among(content, ended)):
        return False  # what stands no more keeps nothing out
    texts = [text for item in current for text in texts_of(item)]
    return not corrects(joined(*subject_and_fact(content)), texts)


def was_shown(views: ViewReader, actor: str, run: str | None, id: str) -> bool:
    """Whether something was shown to an actor outside any run, or to anybody in the same run."""
    if run is not None and views.scan("memory.shown", views.scope, run, id, limit=1):
        return True
    return views.get("memory.shown", views.scope, "", id, actor) is not None


class ShownBefore(NamedTuple):
    """What memory had shown to an actor and in its run before it said something, as far as the reader may be told."""

    texts: list[tuple[str, list[str]]]
    """The texts of each, by id."""
    erased: bool = False
    """Whether some of it was erased since, so that nobody can say what it was."""

    def echo(self, subject: str, fact: str) -> str:
        """The id of something that was shown and says the same."""
        same = (
            id for id, texts in self.texts if any(agreement(subject, fact, text).agrees for text in texts)
        )
        return next(same, "") or echo_among({"kind": "note", "title": subject, "body": fact}, self.texts)


def shown_before(session: Session, viewer: Viewer, event: Event) -> ShownBefore:
    """What was shown before an event to anybody in its run, and to its actor outside any."""
    views, rights = viewer.now, viewer.rights_now
    ids = [id for id in dict.fromkeys(islice(_heard_before(views, event), MOST_SHOWN)) if id != event.id]
    items = {item.id: item for item in items_at(views, ids)}
    stones = (views.get("memory.tombstones", id) for id in ids if id not in items)
    erased = any(stone is not None and stone["erased"] for stone in stones)
    events = session.ledger.events_by_id([id for id in ids if id not in items])
    # What was said in a conversation is a source: keeping it is no echo, however it was found.
    told = [other for other in session.visible(events) if not other.kind.startswith(THREAD)]
    texts = [(id, texts_of(item)) for id, item in items.items() if may_name(rights, item)]
    texts += [(other.id, [text for text in texts_in(other.payload) if " " in text]) for other in told]
    return ShownBefore(texts, erased)


def _heard_before(views: ViewReader, event: Event) -> Iterator[str]:
    scope = scope_of(event)
    places = [(scope, "", event.actor)] + ([(scope, event.run_id)] if event.run_id else [])
    for place in places:
        for key, id in views.each("memory.heard", *place, reverse=True):
            if int(key[3]) < event.position:
                yield str(id)
