"""A new item tried on recorded digests: which of them would have been worse with it?

What a digest was made of is recorded: the request, its rules and budgets, and the candidates in their order. The new
item is ranked among these candidates by an index of its own, which holds what all of these digests considered and makes
words and vectors as the book's index does. It is put at that place, and the same packer packs both lists, so that only
the new item differs.

A digest gets worse if an item that bore on the request and stood in it whole is cut or left out then, unless the new
item takes the place of it. Digests are filled up with what is only faintly related. That may go: if it counted, no
lesson could ever be added to a digest that is full.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ..access.rights import rights_of
from ..ledger.encoding import convert
from ..ledger.events import Event
from ..ledger.printing import Listing, Readable, number
from ..ledger.reader import ViewReader
from ..ledger.scopes import lies_in, path_of, scope_of
from ..memory.claims import key_form
from ..memory.filters import ItemFilter
from ..memory.items import Held, Item, without_secrets
from ..memory.portions import DigestRules
from ..memory.reading import item_at, may_read
from ..memory.remember import previewed
from ..memory.requests import CREATED, RECEIPT
from .gathering import how_of, part_of
from .lines import DigestLine, candidate
from .packing import Packed
from .receipts import DigestTrace, may_see_source, trace_of
from .search import matched_words

if TYPE_CHECKING:
    from ..index import Hit, How, Index
    from ..session import Session

MOST_RECEIPTS = 200
"""On how many recorded digests a new item is tried, the newest first."""
LAST_EVENTS = 20_000
"""Among how many of the last events receipts are looked for."""
PAGE = 2_000
FOUND = ("keyword", "semantic", "hybrid")
"""How a line was found that is ranked by the query; the others have places of their own."""
NEW = "new"
BEARING = 0.5
"""An item that was found bore on the request if it answered it at least half as well as the best one."""


class WorseDigest(Readable, msgspec.Struct, frozen=True):
    """A recorded digest that would have been worse, by its receipt, and what would have been cut or left out."""

    receipt: str
    query: str
    lost: tuple[str, ...]

    def __str__(self) -> str:
        return f"receipt {self.receipt} ({self.query}) would lose {' and '.join(self.lost)}"


class DigestTrial(Listing[WorseDigest], msgspec.Struct, frozen=True):
    """What a new item would have done to recorded digests: on how many it was tried, which of them would have been
    worse, and how many could not be read any more."""

    ENTRIES = "worse"

    tried: int = 0
    worse: tuple[WorseDigest, ...] = ()
    unread: int = 0

    @property
    def lost(self) -> tuple[str, ...]:
        """The items that would have been cut or left out."""
        return tuple(dict.fromkeys(id for digest in self.worse for id in digest.lost))

    def __str__(self) -> str:
        unread = f"; {self.unread:,} more could not be read" if self.unread else ""
        of = f"{len(self.worse):,} of {number(self.tried, 'recorded digest')} would be worse{unread}"
        return "\n".join([of, *map(str, self.worse)])

    def hold(self) -> Held | None:
        """Why the new item has to wait, if it has to."""
        if not self.worse:
            return None
        receipts = tuple(digest.receipt for digest in self.worse)
        return Held(
            "evidence", self.lost, reason="recorded digests would be worse with it", receipts=receipts
        )


class RecordedDigest(NamedTuple):
    """A digest as it was recorded, with the items among its candidates as they were then."""

    id: str
    query: str
    rules: DigestRules
    trace: DigestTrace
    items: dict[str, Item]

    def docs(self) -> Iterator[tuple[str, str]]:
        """What its candidates say, by an id of each version."""
        for line in self.trace.candidates:
            if line.text and not line.barred:
                item = self.items.get(line.id)
                yield _version(line), line.text if item is None else without_secrets(item).text


def tried_on_digests(session: Session, item: Item, ends: Collection[str] = ()) -> DigestTrial:
    """Try an item on the recorded digests that this session may read and whose readers could read the item. `ends` are
    the items that it takes the place of."""
    digests, unread = _recorded(session, item)
    if not digests:
        return DigestTrial(unread=unread)

    def ranked(index: Index) -> tuple[WorseDigest, ...]:
        scratch = index.empty()
        try:
            _fill(scratch, digests, item)
            worse = [(digest, _lost(digest, item, _hits(scratch, digest), ends)) for digest in digests]
        finally:
            scratch.close()
        return tuple(WorseDigest(digest.id, digest.query, lost) for digest, lost in worse if lost)

    return DigestTrial(len(digests), session.services.index.asked(ranked), unread)


def tried_before_keeping(session: Session, **fields: Any) -> Held | None:
    """Why something must not be remembered yet, as `remember` takes it, if recorded digests would be worse with it."""
    preview = previewed(session, **fields)
    if preview.item is None or preview.result.outcome != "stored":
        return None
    return tried_on_digests(session, preview.item, preview.result.superseded).hold()


# the recorded digests


def _recorded(session: Session, item: Item) -> tuple[list[RecordedDigest], int]:
    """The digests in which the item could have been, the newest first; and how many could not be read."""
    digests, unread, ledger = list[RecordedDigest](), 0, session.ledger
    with session.viewer() as viewer:
        rights = viewer.rights_now
        for event in _receipts(session, ledger.head):
            if not rights.in_scope(scope_of(event)) or not (session.is_owner or event.actor == session.actor):
                continue
            if event.erased or "trace" not in event.payload:
                unread += 1
                continue
            payload = event.payload
            rules = convert(payload["request"]["rules"], DigestRules)
            if payload["ignored"] or not payload["index"] or not _allows(viewer.now, event, rules, item):
                continue
            if not all(may_see_source(session, viewer, id) for id in event.parents):
                unread += 1
                continue
            trace = trace_of(ledger, event)
            if trace is None:
                continue
            items = _items(viewer.now, trace)
            if not _reads_scope(viewer.now, event, item, items):
                continue
            digests.append(RecordedDigest(event.id, payload["request"]["query"], rules, trace, items))
            if len(digests) == MOST_RECEIPTS:
                break
    return digests, unread


def _receipts(session: Session, head: int) -> Iterator[Event]:
    """The receipts among the last events, the newest first."""
    first = max(0, head - LAST_EVENTS)
    for upto in range(head, first, -PAGE):
        page = session.ledger.events(max(first, upto - PAGE), upto, kinds=(RECEIPT,))
        yield from reversed(list(page))


def _allows(views: ViewReader, event: Event, rules: DigestRules, item: Item) -> bool:
    """Whether the item could be in a digest of this reader, under the rules and filters of the request."""
    only = convert(event.payload["request"].get("only", {}), ItemFilter)
    only = replace(only, since_us=None, until_us=None)  # it is tried as if it had been there
    return (
        rules.enabled
        and item.sensitivity in rules.allow_sensitivities
        and may_read(rights_of(views, event.actor, event.run_id), item)
        and (not only or only.accepts_item(replace(item, status="live")))
    )


def _reads_scope(views: ViewReader, event: Event, item: Item, items: dict[str, Item]) -> bool:
    """Whether the reader's session read the item's scope: it lies in the session's own, or others of it were found."""
    own, theirs = path_of(views, item.scope), path_of(views, scope_of(event))
    inside = own is not None and theirs is not None and lies_in(own, theirs)
    return inside or any(other.scope == item.scope for other in items.values())


def _items(views: ViewReader, trace: DigestTrace) -> dict[str, Item]:
    """The items among the candidates that have words, each in the version that was recorded."""
    items = dict[str, Item]()
    for line in trace.candidates:
        past = item_at(views.at(max(line.version, views.meta.horizon)), line.id) if line.text else None
        if past is not None:
            items[line.id] = past
    return items


# ranking


def _version(line: DigestLine) -> str:
    return f"{line.id}@{line.version}"


def _fill(scratch: Index, digests: Sequence[RecordedDigest], item: Item) -> None:
    """Put what the digests considered into an empty index, and then the item."""
    from ..index import Doc, Put, Who

    who = Who("", CREATED, True, "public", "long_term")
    texts = dict(pair for digest in digests for pair in digest.docs()) | {NEW: without_secrets(item).text}
    docs = [Put(Doc(id, text, who, "long_term", "", 0)) for id, text in texts.items()]
    scratch.apply(0, 1, [(1, doc) for doc in docs])


def _hits(scratch: Index, digest: RecordedDigest) -> dict[str, Hit]:
    """What the request of a digest finds among its candidates and the new item."""
    how, limit = how_of(digest.rules)
    if not digest.query.strip() or not limit:
        return {}
    ids = {NEW, *(id for id, _ in digest.docs())}
    return {hit.id: hit for hit in _search(scratch, digest.query, how, ids)}


def _search(scratch: Index, query: str, how: How, ids: Collection[str]) -> list[Hit]:
    return scratch.search(query, allowed=lambda _who: True, ids=ids, how=how, limit=len(ids)).hits


def _lost(digest: RecordedDigest, item: Item, hits: dict[str, Hit], ends: Collection[str]) -> tuple[str, ...]:
    """The items that bore on the request, stood whole in its digest and would not with the new item."""
    trace, place = digest.trace, _place(digest, item, hits)
    if place is None:
        return ()
    hit = hits.get(NEW)
    words = part_of(without_secrets(item), matched_words(hit) if hit is not None else ())
    line = candidate(without_secrets(item), NEW, words)
    after = replace(trace, candidates=(*trace.candidates[:place], line, *trace.candidates[place:]))
    kept = {line.id for line in _whole(after.packed(frozenset(ends)))} | {*ends}
    before = _whole(trace.packed())
    bearing = BEARING * max((line.score for line in before), default=0.0)
    return tuple(
        line.id for line in before if line.id not in kept and (line.score >= bearing or line.via not in FOUND)
    )


def _whole(packed: Packed[DigestLine]) -> list[DigestLine]:
    cut = dict(packed.omitted)
    return [line for line in packed.taken if line.id not in cut]


def _place(digest: RecordedDigest, item: Item, hits: dict[str, Hit]) -> int | None:
    """Where the new item stands among the candidates; None if it is not found."""
    lines = digest.trace.candidates
    keys = [key_form(key) for key in digest.rules.structured.fact_keys]
    if item.kind == "fact" and key_form(item.key or "") in keys:
        own = keys.index(key_form(item.key or ""))
        before = (other for line in lines if line.via == "key" and (other := digest.items.get(line.id)))
        return sum(keys.index(key_form(other.key or "")) < own for other in before)
    new = hits.get(NEW)
    if new is None:
        return None
    found = [place for place, line in enumerate(lines) if line.via in FOUND or line.score > 0]
    scores = {place: hits[id].score for place in found if (id := _version(lines[place])) in hits}
    rank = sum(
        score > new.score for score in scores.values()
    )  # of those that fit equally well, the newer first
    ahead = [place for place in found if place in scores][rank:]
    return ahead[0] if ahead else found[-1] + 1 if found else len(lines)
