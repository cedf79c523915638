"""The context of the next turn: the last turns, older ones that bear on the query, and what is remembered about it, in
one budget and with one receipt."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ..errors import BadInput, shown
from ..ledger.checks import check_call, check_text, check_whole
from ..ledger.events import Event
from ..ledger.printing import LeftOut, Readable
from ..ledger.reader import FEW, pages
from ..memory.portions import Portion, Portions
from ..recall.conversation import TURN, pack_conversation
from ..recall.digest import NOT_CONSULTED, Digest, MadeDigest, digest_request, write_receipt
from ..recall.escaping import as_data, as_name
from ..recall.gathering import Bar, DigestRequest, Gathering, gather
from ..recall.lines import DigestLine
from ..recall.packing import CUT, LEAST, WAITS, CountTokens, Packed, estimated, most_that_fits, over, whole
from ..recall.receipts import Counted, DigestTrace
from ..recall.search import excerpt, matched_words, scopes_of, visible
from ..recall.verification import Checks
from .capability import MESSAGE, thread_key
from .messages import Message, instructs, message_of, with_data
from .reading import ThreadReader, ThreadSummary, last_summary

if TYPE_CHECKING:
    from ..index import Hit, Index, IndexHits, Who
    from ..ledger.ledger import At
    from ..memory.viewer import Viewer
    from ..session import Session

MAX_CHARS = 4_000
RECENT_SHARE = 0.25
"""The share of the budget that the last turns may take before anything else."""
SHORT_TURN = 40
"""How many characters a turn takes about, at least: so many are looked for as could fit."""
MOST_TURNS = 400
"""How many turns are looked for, or read from the end, at most."""
LONGEST_TOKEN = 8
"""How many characters a token has at most, for a guess of what could fit."""
LONG = 800
"""Older turns of more characters are shown in part, around the words that were looked for."""
SUMMARY = "summary"
SHARE_OF_SUMMARY = 4
"""The summary takes at most one part in so many of the budget."""
ENOUGH = 1.25
"""How many times the budget is looked at for what fits into it."""
NEARLY = 1 / 3
"""From which share of the best score on an item answers nearly as well."""
NOTHING = "nothing was said or remembered yet."
NO_ROOM = "there is no room for it here."
NOT_ALLOWED = "nothing of it may be shown here."


class ThreadContext(Readable, msgspec.Struct, frozen=True):
    """What the next turn is given: the text, the last turns in it as messages that can be sent to an API, which turns
    and items are in it, what was left out or cut and why, and the receipt that tells how it came about. `background` is
    the text without the last turns, for those who send these as messages."""

    text: str
    recent: tuple[Message, ...] = ()
    background: str = ""
    turn_ids: tuple[str, ...] = ()
    """The events of all turns in the text."""
    item_ids: tuple[str, ...] = ()
    omitted: tuple[tuple[str, str], ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    receipt_id: str | None = None
    query: str = ""
    as_of: int = 0

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The last turns as an API takes them. Results of tools whose call is not among them are left out."""
        turns = list(self.recent)
        while turns and _is_result(turns[0]):
            turns.pop(0)
        return [turn.as_dict() for turn in turns]

    def __str__(self) -> str:
        return self.text


def _is_result(message: Message) -> bool:
    content = message.shape.get("content")
    parts = content if isinstance(content, list) else ()
    return message.role in ("tool", "function") or any(
        isinstance(part, dict) and part.get("type") == "tool_result" for part in parts
    )


def thread_context(
    session: Session,
    name: str,
    query: str | None,
    max_chars: int | None,
    max_tokens: int | None,
    share: float,
    ignore: bool,
    count_tokens: CountTokens | None,
    receipt: bool,
    at: At,
) -> ThreadContext:
    """Raises BadInput."""
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise BadInput(f"recent {shown(share)} is not a share: give a number from 0 to 1")
    if max_chars is None and max_tokens is None:
        max_chars = MAX_CHARS
    total = Portion(
        None,
        None if max_chars is None else check_whole("max_chars", max_chars),
        None if max_tokens is None else check_whole("max_tokens", max_tokens),
    )
    check_call("count_tokens", count_tokens)
    if query is not None:
        check_text("query", query)
    with session.viewer(at) as viewer:
        position = None if at is None else viewer.views.position
        last = _last_turns(session, viewer, position, name, _characters(total))
        if query is None:
            query = _last_question(session, viewer, last)
    request = digest_request(session, query, position, ignore=ignore, count=count_tokens, receipt=receipt)
    budgets = Portions(total, request.rules.budgets.per_kind)
    request = replace(request, rules=replace(request.rules, budgets=budgets))
    return _ContextMaker(session, request, last, share).make()


class _Turn(NamedTuple):
    """A message, where its event stands, and how sensitive it is."""

    message: Message
    position: int
    sensitivity: str


class _LastTurns(NamedTuple):
    """The key of a thread, if there is one, and its last turns, newest first, as many as could fit."""

    key: str | None
    turns: Sequence[_Turn] = ()
    summary: ThreadSummary | None = None
    closed: str = ""
    """Why they may not be read, if they may not."""


def _characters(budget: Portion) -> int:
    """How many characters could fit into a budget, whatever counts its tokens."""
    by_tokens = None if budget.max_tokens is None else LONGEST_TOKEN * budget.max_tokens
    return min(most for most in (budget.max_chars, by_tokens) if most is not None)


def _last_turns(session: Session, viewer: Viewer, at: int | None, name: str, most: int) -> _LastTurns:
    if not session.reads("episodic", at):
        return _LastTurns(None, closed="you may not read it")
    key = thread_key(viewer.views, name)
    if key is None:
        return _LastTurns(None)
    turns, length = list[_Turn](), 0
    reader = ThreadReader(session.ledger, viewer, key)
    for event in islice(filter(is_said, reader.newest()), MOST_TURNS):
        turns.append(_turn(reader, event))
        length += len(turns[-1].message.text)
        if length > most:
            break
    return _LastTurns(key, turns, last_summary(reader))


def _last_question(session: Session, viewer: Viewer, last: _LastTurns) -> str:
    """What the user said last, also if more was said since than fits into a context."""
    if last.key is None:
        return ""
    newest = ThreadReader(session.ledger, viewer, last.key).newest()
    messages = map(message_of, islice(newest, MOST_TURNS))
    said = (turn.text for turn in messages if turn.role == "user" and not _is_result(turn))
    return next(filter(None, said), "")


def is_said(event: Event) -> bool:
    """Whether a message is a turn: the instructions of a model are its caller's to give, and stand in no context."""
    return not instructs(event.payload["message"])


def _turn(reader: ThreadReader, event: Event) -> _Turn:
    return _Turn(message_of(event), event.position, reader.sensitivity(event))


def _part(budget: Portion, share: float) -> Portion:
    """A share of a budget."""
    return Portion(
        None,
        None if budget.max_chars is None else int(budget.max_chars * share),
        None if budget.max_tokens is None else int(budget.max_tokens * share),
    )


def _nothing(lines: Sequence[DigestLine]) -> str:
    """What the text says if none of these lines stands in it."""
    if not lines:
        return NOTHING
    return NOT_ALLOWED if all(line.barred for line in lines) else NO_ROOM


class _ContextMaker:
    """Makes one context: the last turns first, then what was found, then more of the last turns."""

    def __init__(self, session: Session, request: DigestRequest, last: _LastTurns, share: float) -> None:
        self._session, self._request, self._last, self._share = session, request, last, share
        self._checks = Checks(session, request.at)
        self._outside: list[tuple[str, int]] = []
        self._counted = None if request.count is None else Counted(request.count)
        self._count: CountTokens = self._counted or estimated
        self._most = _characters(request.rules.budgets.total)
        self._left_out = [LeftOut("episodic", last.closed)] if last.closed else []
        self._cut: list[tuple[str, str]] = []

    def make(self) -> ThreadContext:
        request = self._request
        gathering, lines = Gathering((), (), "", NOT_CONSULTED), list[DigestLine]()
        if not request.ignored:
            gathering = gather(self._session, request) if request.rules.enabled else Gathering((), (), "", "")
            lines = self._candidates(gathering)
        nothing = gathering.nothing if request.ignored else _nothing(lines)
        packed = pack_conversation(lines, request.rules.budgets, self._count, nothing=nothing)
        counts = self._counted.answers if self._counted else {}
        trace = DigestTrace(
            tuple(lines), request.rules.budgets, packed.text, nothing, counts=counts, conversation=True
        )
        # A turn that does not fit waits for nothing: the next context is another one.
        omitted = [(id, why.removesuffix(WAITS)) for id, why in packed.omitted]
        packed = replace(packed, omitted=(*self._cut, *omitted))
        self._left_out += gathering.left_out
        return self._answer(packed, trace, gathering.fingerprint)

    def _answer(self, packed: Packed[DigestLine], trace: DigestTrace, fingerprint: str) -> ThreadContext:
        session, request = self._session, self._request
        turns = sorted((line for line in packed.taken if line.kind == TURN), key=lambda line: line.place)
        items = tuple(line.id for line in packed.taken if line.kind not in (TURN, SUMMARY))
        recent = self._window({line.place for line in turns})
        shown = {message.event_id for message in recent}
        background = [line for line in packed.taken if line.id not in shown]
        with session.viewer(request.at) as viewer:
            settings, as_of = viewer.settings, viewer.views.position
        context = ThreadContext(
            packed.text,
            recent,
            pack_conversation(background, whole(None), self._count).text,
            tuple(line.id for line in turns),
            items,
            packed.omitted,
            tuple(self._left_out),
            query=request.query,
            as_of=as_of,
        )
        if session.refusal:
            return context
        digest = Digest(packed.text, items, packed.omitted, as_of=as_of)
        made = MadeDigest(digest, settings, fingerprint, trace, packed, self._outside)
        receipt = write_receipt(session, request, self._checks, made)
        if receipt is not None:
            session.services.fact_watch.look_after_write()
        return replace(context, receipt_id=receipt)

    def _window(self, places: set[int]) -> tuple[Message, ...]:
        """The turns at the end of the thread, as far as all of them are in the text, oldest first, with their images,
        sounds and files, as an API takes them."""
        blob = self._session.ledger.blob
        shown = takewhile(lambda turn: turn.message.number in places, self._last.turns)
        messages = (turn.message for turn in shown)
        return tuple(replace(message, shape=with_data(message.shape, blob)) for message in messages)[::-1]

    # what may go in

    def _candidates(self, gathering: Gathering) -> list[DigestLine]:
        """The last turns within their share, what was found, the best first, and the turns before the last ones, for
        the room that is left."""
        last = [self._line(turn, "recent", turn.message.text) for turn in self._last.turns]
        number = self._within_share(last)
        first, rest = last[:number], last[number:]
        found = [*self._turns_about({line.id for line in first}), *self._items(gathering)]
        lines = self._once(first, _in_turn(found))
        lines[number:number] = self._summary(min((line.place for line in first), default=0))
        ids = {line.id for line in lines}
        return self._that_could_fit([*lines, *(line for line in rest if line.id not in ids)])

    def _summary(self, begin: int) -> list[DigestLine]:
        """The summary of the conversation, if it tells of turns before the one that the last turns begin with."""
        summary = self._last.summary
        allowed = self._request.rules.allow_sensitivities
        if summary is None or begin == 1 or summary.sensitivity not in allowed:
            return []
        text, most = as_data(summary.text), self._most // SHARE_OF_SUMMARY
        line = DigestLine(
            summary.id,
            SUMMARY,
            f"- [summary] #1-#{summary.upto}: ",
            text,
            version=summary.position,
            via=SUMMARY,
        )
        if len(text) > most:
            self._cut.append((summary.id, f"cut to {most} of {len(text)} characters"))
        return [line if len(text) <= most else line.cut_to(most)]

    def _that_could_fit(self, lines: list[DigestLine]) -> list[DigestLine]:
        """The first lines, as many as could fit and a few more: packing looks at each."""
        length, number = 0, 0
        while number < len(lines) and length < ENOUGH * self._most:
            length += len(lines[number].line) + 1
            number += 1
        if number < len(lines):
            self._left_out.append(LeftOut(f"{len(lines) - number} more", "the budget has no room for them"))
        return lines[:number]

    def _within_share(self, last: list[DigestLine]) -> int:
        """How many of the last turns fit into their share of the budget: the very last one in any case. It is cut if it
        takes more than half of the whole budget."""
        if not self._share:
            return 0
        total = self._request.rules.budgets.total

        def fits(lines: Sequence[DigestLine], share: float) -> bool:
            text = pack_conversation(lines, whole(None), self._count).text
            return not over(_part(total, share), text, self._count)

        def is_short(line: DigestLine) -> bool:
            return not over(_part(total, 0.5), line.line, self._count) and fits([line], 1)

        line = last[0] if last else None
        if line is not None and not is_short(line):
            length = most_that_fits(lambda length: is_short(line.cut_to(length)), LEAST, len(line.text) - 1)
            if length is None:
                return 0
            last[0] = line.cut_to(length)
            self._cut.append((line.id, f"cut to {length} of {len(line.text)} characters"))
        number = most_that_fits(lambda number: fits(last[:number], self._share), 1, len(last))
        return number or min(1, len(last))

    def _line(self, turn: _Turn, via: str, text: str, score: float = 0.0) -> DigestLine:
        message, allowed = turn.message, self._request.rules.allow_sensitivities
        line = DigestLine(
            message.event_id, TURN, version=turn.position, via=via, score=score, place=message.number
        )
        if turn.sensitivity not in allowed:
            return replace(line, barred=f"it is {turn.sensitivity}, which is not allowed here")
        return replace(
            line,
            before=f"#{message.number} {as_name(message.speaker)}: ",
            text=as_data(text if len(text) <= self._most else f"{text[: self._most]}{CUT}"),
            day=f"{message.time:%Y-%m-%d}",
        )

    def _turns_about(self, shown: Collection[str]) -> Iterator[_Candidate]:
        """Older turns that bear on the query, without those that are shown."""
        for turn, hit in self._older_turns(shown):
            text = turn.message.text
            part = text if len(text) <= LONG else f"{CUT}{excerpt(text, matched_words(hit))}{CUT}"
            yield _Candidate(self._line(turn, "search", part, hit.score), text)

    def _items(self, gathering: Gathering) -> list[_Candidate]:
        """Items that bear on the query, checked anew. What was checked outside the book is noted for the receipt."""
        items = [gathered.item for gathered in gathering.items]
        with self._session.viewer(self._request.at) as viewer:
            checked = self._checks.of(viewer.views, items)
            bar = Bar(self._request, viewer.settings, checked)
        self._outside = [(id, record.position) for id, record in sorted(checked.items())]
        events = self._session.ledger.events_by_id([item.id for item in items])
        parents = {event.id: frozenset(event.parents) for event in events}
        return [
            _Candidate(
                bar.candidate(gathered),
                gathered.item.text,
                parents.get(gathered.item.id, frozenset()),
                gathered.via in ("key", "tagged"),
            )
            for gathered in gathering.items
        ]

    def _older_turns(self, shown: Collection[str]) -> Iterator[tuple[_Turn, Hit]]:
        request, key = self._request, self._last.key
        if key is None or not request.query.strip():
            return

        def look(index: Index) -> IndexHits:
            return index.search(
                request.query,
                allowed=visible(request.rights),
                scopes=scopes_of(request.rights),
                at=request.at,
                chosen=_is_turn,
                talk=f"{key}@",
                limit=min(MOST_TURNS, len(shown) + self._most // SHORT_TURN),
                how="hybrid",
            )

        hits = [hit for hit in self._session.services.index.asked(look).hits if hit.id not in shown]
        length = 0
        with self._session.viewer(request.at) as viewer:
            reader = ThreadReader(self._session.ledger, viewer, key)
            for page in pages(hits, FEW):
                by_id = {hit.id: hit for hit in page}
                for event in filter(is_said, reader.visible(list(by_id))):
                    turn = _turn(reader, event)
                    length += len(turn.message.text)
                    yield turn, by_id[event.id]
                if length > self._most:
                    return

    def _once(self, first: Sequence[DigestLine], found: Sequence[_Candidate]) -> list[DigestLine]:
        """Every turn and item, but no item that comes from turns which stand before it, and nothing in the same words
        twice."""
        lines, texts = list(first), {as_said(line.text): line.id for line in first if line.text}
        turns = {line.id for line in first}
        for candidate in found:
            line = candidate.line
            twin = texts.setdefault(as_said(candidate.text), line.id)
            if not line.barred and twin != line.id:
                line = replace(line, barred=f"it says the same as {twin}", twin=twin)
            elif not line.barred and candidate.sources and candidate.sources <= turns:
                source = min(candidate.sources)
                line = replace(line, barred=f"it comes from {source}, which is shown", twin=source)
            if line.kind == TURN:
                turns.add(line.id)
            lines.append(line)
        return lines


class _Candidate(NamedTuple):
    """A line, all that it says, what it was derived from, and whether the rules of the book ask for it."""

    line: DigestLine
    text: str
    sources: frozenset[str] = frozenset()
    configured: bool = False


def _in_turn(found: Sequence[_Candidate]) -> list[_Candidate]:
    """What was found, the best first. A conversation has more turns about something than the book has items, so that
    items which answer nearly as well come in turn with the turns."""
    ranked = sorted(found, key=lambda candidate: (-candidate.line.score, candidate.line.id))
    least = NEARLY * max((candidate.line.score for candidate in found), default=0.0)
    asked = [candidate for candidate in ranked if candidate.configured]
    turns = [candidate for candidate in ranked if candidate.line.kind == TURN]
    items = [candidate for candidate in ranked if candidate.line.kind != TURN and not candidate.configured]
    good = [candidate for candidate in items if candidate.line.score >= least]
    mixed = [candidate for pair in zip(turns, good, strict=False) for candidate in pair]
    placed = {candidate.line.id for candidate in (*asked, *mixed)}
    return [*asked, *mixed, *(candidate for candidate in ranked if candidate.line.id not in placed)]


def _is_turn(who: Who) -> bool:
    return who.kind == MESSAGE


def as_said(text: str) -> str:
    """A text as it is compared with others."""
    return " ".join(text.casefold().split())
