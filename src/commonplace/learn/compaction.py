"""Compaction: a conversation that has grown too long becomes a summary that fits.

First everything is flushed: messages to their thread, the results of the turn to the day's log. Then the summary keeps
what must not be lost, whole, and takes the rest down a ladder as far as the budget asks for it:

    truncate    a message is shown in part: its beginning and its end
    summarize   a message becomes a bullet that points to it
    discard     what was resolved is left out
    spill       a run of messages becomes one pointer: `#2-#40`
    reset       nothing but what must be kept, and one pointer to all messages

Nothing is lost by it: every message is in the book, and its number in the thread is its address. It is a pure function
of the thread, the documents and the work as the reader sees them: no model is asked, and the same gives the same bytes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ..documents.document import slug
from ..documents.verbs import guarded
from ..documents.writing import Log
from ..errors import BadInput, NotFound, TooLarge
from ..ledger.checks import MAX_NAME, check_name, check_whole
from ..ledger.events import Event
from ..ledger.printing import LeftOut, Readable, number
from ..memory.settings import settings_of
from ..recall.escaping import as_data, as_name, block, mark_of
from ..recall.packing import CUT, LEAST, most_that_fits
from ..threads.messages import (
    NewMessage,
    checked_messages,
    instructs,
    message_of,
    results_in,
    role_of,
    spoken,
    words_of_message,
)
from ..threads.verbs import Thread
from ..verbs import WorkId
from .compaction_capability import (
    COMPACTED,
    HEADING,
    FlushContext,
    RecordCompaction,
    flushed_of,
    summaries_in,
)
from .compaction_rules import CONSENT, Standing, Statement, statements
from .compaction_sources import (
    BLOCKERS,
    CONSTRAINTS,
    DECISIONS,
    NOT_SHOWN,
    OBJECTIVE,
    SESSION,
    CompactLine,
    Keeping,
)

if TYPE_CHECKING:
    from ..session import Session

MAX_CHARS = 8_000
MESSAGES = "Messages"
SECTIONS = (OBJECTIVE, BLOCKERS, DECISIONS, CONSTRAINTS, SESSION, MESSAGES)
BULLET, SHORT_BULLET = 160, 80
"""How many characters of a message a bullet shows at least; of agents and tools, fewer."""
SHARES = {"request": 5, "spoke": 8, "user": 16, "last": 20}
"""The part of the room, one in so many, that is left to a message before others are shown at all: to the request, to
what was said last and is not answered yet, to each other message of the user and to each of the last messages."""
LAST = 6
NOISE = 4
"""One part in so many of the room is left to bullets for what agents and tools said before."""
SLOWER = {"user": 1, "system": 2, "assistant": 2, "tool": 4}
"""How many times fewer characters a message gets than one of the user, if there is room for more than its share."""
MOST_LINES = 2_000
ENOUGH = 1.25
"""How many times the room is filled with lines to choose from."""
RESULTS, LONGEST_RESULT = 8, 160
"""How many results of a turn its log entry quotes, and how many characters of each."""


class KeptPiece(Readable, msgspec.Struct, frozen=True):
    """Something that a summary says whole: in which section, its words, and the event that they come from."""

    section: str
    text: str
    id: str | None = None

    def __str__(self) -> str:
        return f"{self.section}: {self.text}"


class Compaction(Readable, msgspec.Struct, frozen=True, kw_only=True):
    """A summary of a conversation, what it keeps and what it dropped. It prints as its text."""

    text: str
    thread: str
    """The name of the thread that holds every message."""
    id: str
    """The event that holds the summary."""
    kept: tuple[KeptPiece, ...] = ()
    """What the text says whole."""
    dropped: tuple[str, ...] = ()
    """The messages that it does not say whole: `book.event(id)` gives each."""
    flushed: tuple[str, ...] = ()
    """What this call added to the book before: messages, and entries of the day's log."""
    ladder: dict[str, int] = {}
    """How many pieces were truncated, summarized, discarded and spilled, and whether it came to a reset."""
    left_out: tuple[LeftOut, ...] = ()

    def __str__(self) -> str:
        return self.text


def compact(
    session: Session,
    messages: Sequence[Mapping[str, Any]] | None = None,
    *,
    thread: str | None = None,
    task: str | None = None,
    work: WorkId | None = None,
    notes: str | None = None,
    max_chars: int = MAX_CHARS,
) -> Compaction:
    """Make a summary of a conversation that has grown too long, and lose nothing. Give messages, or the name of a
    thread that holds them, or both.

    First everything is saved: messages that are not in the thread yet, and in the day's log the results of this turn.
    The summary then keeps the objective, open blockers, approved decisions and constraints, whole, and of the rest the
    last messages, a bullet for older ones and pointers to all others. They stay in the book. Raises TooLarge if what
    must be kept exceeds the budget: what was saved stays saved.

    `messages` are in the shapes that a thread takes. `thread` is the name of the conversation, by default "context of"
    and the actor, with the task and the run. `task` is the name of the task whose session notes, decisions and gates
    are kept. `work` is the id of a work whose constraints, decisions and blockers are kept. `notes` is what was noted
    and not saved yet; the day's log keeps it."""
    return _Compacting(session, thread, task, check_whole("max_chars", max_chars)).make(messages, work, notes)


class Piece(NamedTuple):
    """One message: who said what, and whether that may be copied."""

    event: Event
    role: str
    by: str
    text: str
    said: tuple[tuple[str, str], ...]
    """Its lines that count: what each is, and its words."""
    speaks: bool
    """Whether it says something in words of its own, and is not a call or a result alone."""
    shown: bool
    logged: bool
    """Whether its words may stand in the log, which others read."""

    @property
    def number(self) -> int:
        return self.event.turn

    @property
    def id(self) -> str:
        return self.event.id


class Quote:
    """A message, and how much of it a summary shows at least. Its words are escaped once."""

    def __init__(self, piece: Piece, section: str, least: int, room: int) -> None:
        self.piece, self._section, most = piece, section, 2 * room + LEAST
        self._text = as_data(piece.text[:most]) if piece.shown else NOT_SHOWN
        self._all = len(piece.text) <= most
        self._end = self._text if self._all else as_data(piece.text[-room - LEAST :])
        self.least = min(max(least, LEAST), self.length)

    @property
    def length(self) -> int:
        return len(self._text)

    def line(self, level: int) -> CompactLine:
        """The line at a level: users' messages have as many characters, others fewer, and none less than its least."""
        piece, most = self.piece, max(self.least, level // SLOWER[self.piece.role])
        before, size = f"- #{piece.number} {as_name(piece.by)}: ", f" ({len(piece.text):,} characters)"
        if self._all and most + len(size) >= self.length:  # to cut it would make it longer
            sources = (piece.id,) if piece.shown else ()
            return CompactLine(
                piece.id, self._section, before, self._text, "", "", piece.number, sources, piece.shown
            )
        end = most * 2 // 3 if piece.role == "tool" else most // 3  # a run says at its end how it went
        after = self._end[max(0, len(self._end) - end) :].partition(" ")[
            2
        ]  # from a word on, as escaping saw it
        text = f"{self._text[: most - end].rstrip()}{CUT} {after}".rstrip()
        return CompactLine(piece.id, self._section, before, text, size, "", piece.number, (piece.id,), False)


class _Compacting:
    """One call of `compact`."""

    def __init__(self, session: Session, thread: str | None, task: str | None, max_chars: int) -> None:
        self._session, self._task, self._max_chars = session, task, max_chars
        self._named = thread is not None
        self._thread = Thread(
            session, _default(session, task) if thread is None else check_name("thread", thread)
        )

    def make(
        self, messages: Sequence[Mapping[str, Any]] | None, work: str | None, notes: str | None
    ) -> Compaction:
        session = self._session
        incoming = checked_messages(() if messages is None else messages)
        if not incoming and not self._named:
            raise BadInput("say what to compact: give messages, or name the thread that holds them")
        session.check_may_act("compact")
        session.check_enabled("memory.write", "working")
        for tier in ("working", "episodic"):
            session.check_reads(tier)
        head = session.ledger.head
        if incoming:
            self._thread._add(incoming, self._sources, self._summary_in(incoming))
        pieces = self._pieces()
        if not pieces and not incoming:
            raise NotFound(
                f"there is no thread {self._thread.name!r} with messages to compact: give messages"
            )
        logged = self._flush(pieces, notes)
        keeping = Keeping(session, self._allowed)
        keeping.documents(self._task)
        if work is not None:
            keeping.work(check_name("work", getattr(work, "id", work)))
        kept, rules, standing = keeping.lines(list(_said_in(pieces)))
        text, lines = Summary(self._thread.name, pieces, self._max_chars).packed(kept, rules, keeping.notes)
        sources = tuple(dict.fromkeys(id for line in lines for id in line.sources))
        last = pieces[-1].number if pieces else 0
        request = RecordCompaction(session.actor, session.run, self._thread.id or "", text, last, sources)
        id: str = session.submit("compaction.record", request, "compact")
        added = tuple(piece.id for piece in pieces if piece.event.position > head)
        return _answer(
            pieces, lines, [*rules, *keeping.notes], standing,
            text=text, thread=self._thread.name, id=id, flushed=(*added, *logged),
        )  # fmt: skip

    @property
    def _allowed(self) -> Sequence[str]:
        with self._session.snapshot() as now:
            return settings_of(now).v1.allow_sensitivities

    def _summaries(self, message: NewMessage) -> list[Event]:
        """The summaries in a message that this actor was given."""
        words = words_of_message(message.shape)
        if HEADING not in words:
            return []
        with self._session.snapshot() as now:
            ids = summaries_in(now, self._session.actor, words)
        return list(self._session.ledger.events_by_id(ids))

    def _sources(self, message: NewMessage) -> list[str] | None:
        """What a message is derived from: the summaries that it holds. None: it is nothing but a summary of this
        thread, which holds all that the summary tells of."""
        summaries, words = self._summaries(message), spoken(message.shape).strip()
        if any(self._tells(summary) and summary.payload.get("text") == words for summary in summaries):
            return None
        return [summary.id for summary in summaries]

    def _summary_in(self, incoming: Sequence[NewMessage]) -> tuple[int, int] | None:
        """The place of the last message that hands on a summary of this thread, and how far the summary goes."""
        for place in reversed(range(len(incoming))):
            if HEADING in spoken(incoming[place].shape):
                summaries = filter(self._tells, self._summaries(incoming[place]))
                told = [int(summary.payload.get("upto", 0)) for summary in summaries]
                if told:
                    return place, max(told)
        return None

    def _tells(self, summary: Event) -> bool:
        """Whether a summary is one of this thread."""
        return summary.session_id == self._thread.id

    def _pieces(self) -> list[Piece]:
        """The messages of the thread that this actor may see, without the summaries of this thread in them."""
        with self._thread._reader() as reader:
            events = [] if reader is None else list(reader.oldest())
            levels = [] if reader is None else [reader.sensitivity(event) for event in events]
            masked = set() if reader is None else {event.id for event in events if reader.masks(event)}
        parents = {id for event in events for id in event.parents}
        summaries = {
            event.id: event
            for event in self._session.ledger.events_by_id(sorted(parents))
            if event.kind == COMPACTED and not event.erased
        }
        tools, pieces, allowed = dict[str, str](), list[Piece](), self._allowed
        for event, level in zip(events, levels, strict=True):
            message, shape = message_of(event), event.payload["message"]
            tools.update(_calls(shape))
            text, words, statements_of_others = _as_shown(shape, message.text), spoken(shape), list[Any]()
            returned = role_of(shape) in ("tool", "function") or (results_in(shape) and not words)
            role = "tool" if returned else "system" if instructs(shape) else message.role
            for summary in (summaries[id] for id in event.parents if id in summaries):
                told, pointer = summary.payload["text"], f"[summary {summary.id}]"
                if summary.session_id == event.session_id:
                    text = text.replace(told, pointer)
                elif told in words:  # what it says was judged when it was made: nobody says it anew
                    statements_of_others += statements(told)
                words = words.replace(told, pointer)
            called = [tools[id] for id in results_in(shape) if id in tools]
            by = called[0] if returned and called else message.speaker
            said = (*statements_of_others, *statements(words, role))
            shown = level in allowed
            pieces.append(Piece(event, role, by, text, said, bool(words), shown or event.id in masked, shown))
        return pieces

    def _flush(self, pieces: Sequence[Piece], notes: str | None) -> list[str]:
        """Log the results of this turn, that is of all since the user spoke, and the notes. What was logged before is
        not logged again."""
        session, key = self._session, self._thread.id or ""
        with session.snapshot() as now:
            upto = int(flushed_of(now, key)["upto"])
        spoke = max((piece.number for piece in pieces if piece.role == "user"), default=0)
        results = [
            piece
            for piece in pieces
            if piece.number > max(spoke, upto) and piece.role in ("tool", "assistant") and piece.text.strip()
        ]
        log = Log(session.actor, "", session.run)
        entry = noted = None
        if results:
            entry = msgspec.structs.replace(
                log, text=_log_entry(self._thread.name, results),
                parents=tuple(piece.id for piece in results[-RESULTS:] if piece.logged),
            )  # fmt: skip
        if notes is not None:
            text, secrets = guarded(session, notes, "notes")
            level = "sensitive" if secrets else "private"
            noted = msgspec.structs.replace(log, text=text, secrets=secrets, sensitivity=level)
        if entry is None and noted is None:
            return []
        last = pieces[-1].number if pieces else 0
        ids: list[str] = session.submit("compaction.flush", FlushContext(key, last, entry, noted), "compact")
        return ids


class Summary:
    """The messages of a thread as a summary of at most so many characters."""

    def __init__(self, thread: str, pieces: Sequence[Piece], max_chars: int) -> None:
        self._thread, self._pieces, self._max_chars = thread, pieces, max_chars
        self._numbers = [piece.number for piece in pieces]
        self._lengths = [0, *accumulate(len(piece.text) for piece in pieces)]

    def packed(
        self, kept: list[CompactLine], rules: list[CompactLine], notes: list[CompactLine]
    ) -> tuple[str, list[CompactLine]]:
        """The text, and the lines that it is made of. Raises TooLarge."""
        least = len(self.text(kept))
        if least > self._max_chars:
            raise TooLarge(
                f"what must be kept takes {least:,} characters and max_chars is {self._max_chars:,}: give at least "
                f"{least:,}. Nothing is lost: all messages are in the thread {self._thread!r}"
            )
        half = least + (self._max_chars - least) // 2
        ranked = sorted(rules, key=lambda line: line.after.endswith(" system)"))  # callers send these anew
        count = most_that_fits(lambda count: self._fits([*kept, *ranked[:count]], half), 0, len(ranked)) or 0
        taken = {line.id for line in ranked[:count]}
        kept = [*kept, *(line for line in rules if line.id in taken)]
        lines = self._quoted(kept, notes)
        return self.text(lines), lines

    def _quoted(self, kept: list[CompactLine], notes: list[CompactLine]) -> list[CompactLine]:
        """What is kept, and messages as far as there is room: those of the user, the last ones and instructions before
        what agents and tools said earlier."""
        room = self._max_chars - len(self.text(kept))
        first, others = self._by_worth(room, all(line.kind != OBJECTIVE for line in kept))
        limit, tried = self._max_chars - (room // NOISE if others else 0), _quotes(first, room)
        quotes = self._filled(kept, tried, limit, growing=("user", "system", "assistant"))
        shown = _lines(quotes)
        count = most_that_fits(
            lambda count: self._fits([*kept, *shown, *notes[:count]], limit), 0, len(notes)
        )
        fixed = [*kept, *notes[: count or 0]]
        rest = _quotes(others, room) if len(quotes) == len(tried) else tried[len(quotes) :]
        return [*fixed, *_lines(self._filled(fixed, [*quotes, *rest], self._max_chars))]

    def _filled(
        self, fixed: list[CompactLine], quotes: list[Quote], limit: int, growing: Collection[str] = SLOWER
    ) -> list[Quote]:
        """As many of the quotes as fit, and of those with a growing role as much: they get a new least."""
        count = most_that_fits(
            lambda count: self._fits([*fixed, *_lines(quotes[:count])], limit), 0, len(quotes)
        )
        quotes = quotes[: count or 0]
        still = _lines([quote for quote in quotes if quote.piece.role not in growing])
        others = [quote for quote in quotes if quote.piece.role in growing]
        longest = max((quote.length * SLOWER[quote.piece.role] for quote in others), default=0)
        level = most_that_fits(
            lambda level: self._fits([*fixed, *still, *_lines(others, level)], limit), 0, longest
        )
        for quote in others:
            quote.least = max(quote.least, (level or 0) // SLOWER[quote.piece.role])
        return quotes

    def _by_worth(self, room: int, asks: bool) -> tuple[list[Worth], list[Worth]]:
        """The messages in the order of their worth, each with its section and the characters that are left to it: those
        that come before all others, and the others. If nothing else says what the objective is, the first request
        does."""
        newest = self._pieces[::-1]
        of_user = [piece for piece in newest if piece.role == "user" and piece.shown and piece.text.strip()]
        shares = {name: room // part for name, part in SHARES.items()}
        ranked = dict[int, Worth]()
        if of_user and asks:
            ranked[of_user[-1].number] = (of_user[-1], OBJECTIVE, shares["request"])
        ranked.update(
            {
                piece.number: (piece, MESSAGES, shares["spoke"])
                for piece in of_user[:1]
                if piece.number not in ranked
            }
        )
        turns = [piece for piece in newest if piece.role != "system"][:LAST]
        unanswered = list(takewhile(lambda piece: piece.role == "tool", turns))
        for pieces, least in (
            ([*of_user[:1], *unanswered], shares["spoke"]),
            (turns, shares["last"]),
            (of_user, max(BULLET, shares["user"])),
            ([piece for piece in newest if piece.role in ("system", "user")], BULLET),
        ):
            for piece in pieces:
                ranked.setdefault(piece.number, (piece, MESSAGES, least))
        others = [(piece, MESSAGES, SHORT_BULLET) for piece in newest if piece.number not in ranked]
        return list(ranked.values()), others

    def _fits(self, lines: Sequence[CompactLine], limit: int) -> bool:
        return len(self.text(lines)) <= limit

    def text(self, lines: Sequence[CompactLine]) -> str:
        """Lines in their sections, the messages in the order of time, with a pointer for every run of messages that no
        line shows."""
        rows = [self._about()]
        shown = sorted((line for line in lines if line.number), key=lambda line: line.number)
        told = [(line.number, line.line) for line in shown if line.kind == MESSAGES]
        for section in SECTIONS:
            if section == MESSAGES:
                under = [text for _, text in sorted([*self._pointers(shown), *told])]
            else:
                under = [line.line for line in lines if line.kind == section]
            rows += [f"{section}:", *under] if under else ()
        return block(rows, mark_of(rows), HEADING)

    def _about(self) -> str:
        return f"Thread “{as_data(self._thread)}”. #n is its message n; messages(after=n-1, before=n+1) gives it whole."

    def _pointers(self, shown: Sequence[CompactLine]) -> Iterator[tuple[int, str]]:
        places = [bisect_left(self._numbers, line.number) for line in shown]
        for first, end in zip(
            [0, *(place + 1 for place in places)], [*places, len(self._pieces)], strict=True
        ):
            if first < end:
                low, high = self._numbers[first], self._numbers[end - 1]
                where = f"#{low}" if low == high else f"#{low}-#{high}"
                characters = self._lengths[end] - self._lengths[first]
                yield (
                    low,
                    f"- {where}: {number(end - first, 'message')}, {characters:,} characters, in the book",
                )


Worth = tuple[Piece, str, int]
"""A message, the section of a summary that it stands in, and how many characters of it are shown at least."""


def _quotes(ranked: Sequence[Worth], room: int) -> list[Quote]:
    """As many quotes as could fit."""
    quotes, used = list[Quote](), 0
    for piece, section, least in ranked[:MOST_LINES]:
        if used > ENOUGH * room:
            break
        quotes.append(Quote(piece, section, least, room))
        used += quotes[-1].least
    return quotes


def _lines(quotes: Sequence[Quote], level: int = 0) -> list[CompactLine]:
    return [quote.line(level) for quote in quotes]


def _answer(
    pieces: Sequence[Piece], lines: Sequence[CompactLine], optional: Sequence[CompactLine], standing: Standing,
    **fields: Any,
) -> Compaction:  # fmt: skip
    said = {line.number for line in lines if line.number and line.whole}
    part = {line.number: line for line in lines if line.number and not line.whole}
    spilled = [piece for piece in pieces if piece.number not in said and piece.number not in part]
    ladder = {
        "truncated": sum(len(line.text) > BULLET + 2 for line in part.values()),
        "summarized": sum(len(line.text) <= BULLET + 2 for line in part.values()),
        "discarded": len(standing.ended),
        "spilled": len(spilled),
        "reset": int(bool(pieces) and not said and not part),
    }
    hidden = [piece for piece in pieces if not piece.shown]
    taken = {line.id for line in lines}
    left = [line for line in optional if line.id not in taken]
    notes = sum(line.kind == SESSION for line in left)
    sentences = [line.after.strip(" ()") for line in left if line.kind != SESSION]
    ended = ", ".join(f"{_where(old.number)} by {_where(new.number)}" for old, new in standing.ended)
    loose = standing.fits_nothing
    named = "; ".join(
        f"{_where(one.number)} {one.what.upper()}: {as_data(one.text[:BULLET])}" for one in loose if one.shown
    )
    no_room = "the budget has no room for them"
    why = (
        (number(len(spilled), "message"), len(spilled), f"{no_room[:-4]}their words: they are in the thread"),
        (f"the words of {number(len(hidden), 'message')}", len(hidden), "they are sensitive and not copied"),
        (number(len(standing.ended), "statement"), len(standing.ended), f"ended later: {ended}"),
        (number(len(loose), "line"), len(loose), f"it is not clear what they end: {named}"),
        (number(len(sentences), "rule or decision"), len(sentences), f"{no_room}: {', '.join(sentences)}"),
        (number(notes, "session note"), notes, no_room),
    )
    return Compaction(
        kept=tuple(
            KeptPiece(line.kind, line.text, line.sources[0] if line.sources else None) for line in lines if line.whole
        ),
        dropped=tuple(piece.id for piece in pieces if piece.number not in said),
        ladder={step: count for step, count in ladder.items() if count},
        left_out=tuple(LeftOut(what, because) for what, there, because in why if there),
        **fields,
    )  # fmt: skip


def _said_in(pieces: Sequence[Piece]) -> Iterator[tuple[int, Statement]]:
    """The statements in messages, with their positions in the book."""
    answer = 0
    for piece in pieces:
        for what, words in piece.said:
            about = answer if what == CONSENT else piece.number  # a yes is about what the agent said last
            yield piece.event.position, Statement(what, words, piece.id, about, piece.by, piece.shown)
        answer = piece.number if piece.role == "assistant" and piece.speaks else answer


def _where(number: int) -> str:
    return f"#{number}" if number else "a document"


def _default(session: Session, task: str | None) -> str:
    """The name of the thread for messages that name none."""
    about = "" if task is None else f" on {slug(task)}"
    run = "" if session.run is None else f" in {session.run}"
    return f"context of {session.actor}{about}{run}"[:MAX_NAME]


def _log_entry(thread: str, results: Sequence[Piece]) -> str:
    """What the day's log says of a turn: its last results, and where the others are."""
    rows = [f"Results in the thread “{thread}”:"]
    for piece in results[-RESULTS:]:
        words = " ".join(piece.text[: 2 * LONGEST_RESULT].split()) if piece.logged else NOT_SHOWN
        cut = words if len(words) <= LONGEST_RESULT else f"{words[:LONGEST_RESULT]}{CUT}"
        rows.append(f"- #{piece.number} {piece.by} ({piece.id}): {cut}")
    before = results[:-RESULTS]
    if before:
        rows.append(
            f"- before these: {number(len(before), 'result')}, #{before[0].number}-#{before[-1].number}"
        )
    return "\n".join(rows)


# the shapes of calls and of what they returned


def _parts(shape: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = shape.get("content")
    return [part for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []


def _as_shown(shape: Mapping[str, Any], words: str) -> str:
    """The words of a message. What tools returned stands apart from what the speaker says."""
    said, parts = spoken(shape), _parts(shape)
    if not said or not results_in(shape) or not parts:
        return words
    returned = words_of_message({"content": [part for part in parts if "tool_use_id" in part]})
    return f"{said}\n[a tool returned] {returned}"


def _calls(shape: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The id of each call that a message makes, and the name of its tool."""
    calls = [(shape.get("call_id"), shape.get("name"))] if shape.get("type") == "function_call" else []
    for call in shape.get("tool_calls") or ():
        about = call.get("function") or call.get("custom") or call
        calls.append((call.get("id"), about.get("name") if isinstance(about, Mapping) else None))
    calls += [(part.get("id"), part.get("name")) for part in _parts(shape) if part.get("type") == "tool_use"]
    return ((id, name) for id, name in calls if isinstance(id, str) and isinstance(name, str))
