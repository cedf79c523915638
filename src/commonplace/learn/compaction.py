"""Compaction: a conversation that has grown too long becomes a summary that fits.

First everything is flushed: messages to their thread, the results of the turn to the day's log. Then the summary keeps
what must not be lost, whole, and takes the rest down a ladder as far as the budget asks for it:

    truncate    a recent message is shown in part
    summarize   an older one becomes a bullet that points to it
    discard     what was resolved is left out
    spill       a run of messages becomes one pointer: `#2-#40`
    reset       nothing but what must be kept, and one pointer to all messages

Nothing is lost by it: every message is in the book, and its number in the thread is its address. It is a pure function
of the thread, the documents and the work as the reader sees them: no model is asked, and the same gives the same bytes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
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
from ..recall.packing import CUT, LEAST, estimated, most_that_fits, pack, whole
from ..threads.messages import NewMessage, checked_messages, instructs, message_of, role_of, words_of_message
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
from .compaction_rules import Statement, statements
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
EARLIER, RECENT = "Earlier", "Recent"
SECTIONS = (OBJECTIVE, BLOCKERS, DECISIONS, CONSTRAINTS, SESSION, EARLIER, RECENT)
LONGEST_BULLET = {"tool": 80}
"""How many characters of an older message its bullet shows; of what a tool returned, fewer."""
USUAL_BULLET = 160
SHARE_OF_TURN = 6
"""A recent message takes at most one part in so many of the room, unless all of them fit."""
MOST_LINES = 2_000
FEW = 8
"""How many lines are tried one by one after those that fit together."""
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
    shown: bool

    @property
    def number(self) -> int:
        return self.event.turn

    @property
    def id(self) -> str:
        return self.event.id

    def quoted(self, most: int, section: str) -> CompactLine:
        """The message as a line of at most so many characters of its words."""
        before, cut = f"- #{self.number} {as_name(self.by)}: ", len(self.text) > most
        if not self.shown:
            return CompactLine(self.id, section, before, NOT_SHOWN, number=self.number, whole=False)
        text = as_data(self.text[:most]) + (CUT if cut else "")
        after = f" ({len(self.text):,} characters)" if cut else ""
        return CompactLine(self.id, section, before, text, after, "", self.number, (self.id,), not cut)


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
            self._thread._add(incoming, self._sources)
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
        said = [
            (piece.event.position, Statement(what, words, piece.id, piece.number, piece.by, piece.shown))
            for piece in pieces
            if piece.role != "tool"
            for what, words in statements(piece.text, piece.role == "system")
        ]
        kept, standing = keeping.lines(said)
        text, lines = Summary(self._thread.name, pieces, self._max_chars).packed(kept, keeping.notes)
        sources = tuple(dict.fromkeys(id for line in lines for id in line.sources))
        request = RecordCompaction(session.actor, session.run, self._thread.id or "", text, sources)
        id: str = session.submit("compaction.record", request, "compact")
        added = tuple(piece.id for piece in pieces if piece.event.position > head)
        return _answer(
            pieces, lines, keeping.notes, text=text, thread=self._thread.name, id=id, flushed=(*added, *logged),
            resolved=[(old.number, new.number) for old, new in standing.ended],
        )  # fmt: skip

    @property
    def _allowed(self) -> Sequence[str]:
        with self._session.snapshot() as now:
            return settings_of(now).v1.allow_sensitivities

    def _sources(self, message: NewMessage) -> list[str] | None:
        """What a message is derived from: the summaries that it holds. None: it is nothing but a summary of this
        thread, which holds all that the summary tells of."""
        words = words_of_message(message.shape)
        if HEADING not in words:
            return []
        with self._session.snapshot() as now:
            ids = summaries_in(now, self._session.actor, words)
        for summary in self._session.ledger.events_by_id(ids):
            if summary.payload.get("text") == words.strip() and summary.session_id == self._thread.id:
                return None
        return ids

    def _pieces(self) -> list[Piece]:
        """The messages of the thread that this actor may see, without the summaries of this thread in them."""
        with self._thread._reader() as reader:
            events = [] if reader is None else list(reader.oldest())
            levels = [] if reader is None else [reader.sensitivity(event) for event in events]
        parents = {id for event in events for id in event.parents}
        summaries = {
            event.id: event.payload["text"]
            for event in self._session.ledger.events_by_id(sorted(parents))
            if event.kind == COMPACTED and not event.erased and event.session_id == events[0].session_id
        }
        tools, pieces, allowed = dict[str, str](), list[Piece](), self._allowed
        for event, level in zip(events, levels, strict=True):
            message, shape = message_of(event), event.payload["message"]
            tools.update(_calls(shape))
            text = message.text
            for id in event.parents:
                text = text.replace(summaries[id], f"[summary {id}]") if id in summaries else text
            called = [tools[id] for id in _results(shape) if id in tools]
            returned = role_of(shape) in ("tool", "function") or (_results(shape) and _only_results(shape))
            role = "tool" if returned else "system" if instructs(shape) else message.role
            by = called[0] if returned and called else message.speaker
            pieces.append(Piece(event, role, by, text, level in allowed))
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
                parents=tuple(piece.id for piece in results[-RESULTS:] if piece.shown),
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

    def packed(self, kept: list[CompactLine], notes: list[CompactLine]) -> tuple[str, list[CompactLine]]:
        """The text, and the lines that it is made of. Raises TooLarge."""
        least = len(self.text(kept))
        if least > self._max_chars:
            raise TooLarge(
                f"what must be kept takes {least:,} characters and max_chars is {self._max_chars:,}: give at least "
                f"{least:,}. Nothing is lost: all messages are in the thread {self._thread!r}"
            )
        lines = self._candidates(self._max_chars - least, notes)
        fitting = most_that_fits(lambda count: self._fits([*kept, *lines[:count]]), 0, len(lines)) or 0
        packed = pack(
            lines[fitting : fitting + FEW], whole(self._max_chars), estimated, self.text,
            kept=[*kept, *lines[:fitting]],
        )  # fmt: skip
        asked = {line.id: line.text for line in lines}
        taken = [
            line if asked.get(line.id, line.text) == line.text else msgspec.structs.replace(line, whole=False)
            for line in packed.taken
        ]
        return packed.text, taken

    def _fits(self, lines: Sequence[CompactLine]) -> bool:
        return len(self.text(lines)) <= self._max_chars

    def text(self, lines: Sequence[CompactLine]) -> str:
        """Lines in their sections, with a pointer for every run of messages that none of them shows."""
        rows = [self._about()]
        shown = sorted((line for line in lines if line.number), key=lambda line: line.number)
        earlier = sorted(
            [*self._pointers(shown), *((line.number, line.line) for line in shown if line.kind == EARLIER)]
        )
        for section in SECTIONS:
            if section == EARLIER:
                under = [text for _, text in earlier]
            elif section == RECENT:
                under = [line.line for line in shown if line.kind == RECENT]
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

    def _candidates(self, room: int, notes: list[CompactLine]) -> list[CompactLine]:
        """Lines in the order of their worth, as many as could fit: the last messages, session notes, and a bullet for
        each message before them. Instructions are given anew by the caller, and have no place among the last."""
        turns = [piece for piece in reversed(self._pieces) if piece.role != "system"]
        if sum(len(piece.text) + LEAST for piece in turns) <= room:
            longest, share = room, room
        else:
            longest, share = max(LEAST, room // SHARE_OF_TURN), room // 2
        answered, used = False, 0
        lines, recent = list[CompactLine](), set[int]()
        for piece in turns:
            told = piece.role == "tool" and answered  # what a tool returned and the agent has worked on since
            answered = answered or piece.role == "assistant"
            if told and share < room:
                continue
            line = piece.quoted(longest, RECENT)
            used += len(line.line) + 1
            if used > share and lines:
                break
            lines.append(line)
            recent.add(piece.number)
        lines += notes
        used = sum(len(line.line) + 1 for line in lines)
        for piece in reversed(self._pieces):
            if used > ENOUGH * room or len(lines) >= MOST_LINES:
                break
            if piece.number not in recent:
                lines.append(piece.quoted(LONGEST_BULLET.get(piece.role, USUAL_BULLET), EARLIER))
                used += len(lines[-1].line) + 1
        return lines


def _answer(
    pieces: Sequence[Piece], lines: Sequence[CompactLine], notes: Sequence[CompactLine],
    resolved: Sequence[tuple[int, int]], **fields: Any,
) -> Compaction:  # fmt: skip
    said = {line.number for line in lines if line.number and line.whole}
    part = {line.number: line for line in lines if line.number and not line.whole}
    spilled = [piece for piece in pieces if piece.number not in said and piece.number not in part]
    ladder = {
        "truncated": sum(line.kind == RECENT for line in part.values()),
        "summarized": sum(line.kind == EARLIER for line in part.values()),
        "discarded": len(resolved),
        "spilled": len(spilled),
        "reset": int(bool(pieces) and not said and not part),
    }
    hidden = [piece for piece in pieces if not piece.shown]
    taken = {line.id for line in lines}
    left = [line for line in notes if line.id not in taken]
    ended = ", ".join(f"{_where(old)} by {_where(new)}" for old, new in resolved)
    why = (
        (
            number(len(spilled), "message"),
            bool(spilled),
            "the budget has no room for their words: they are in the thread",
        ),
        (f"the words of {number(len(hidden), 'message')}", bool(hidden), "they are sensitive and not copied"),
        (f"{number(len(resolved), 'statement')}", bool(resolved), f"ended later: {ended}"),
        (number(len(left), "session note"), bool(left), "the budget has no room for them"),
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
        words = " ".join(piece.text[: 2 * LONGEST_RESULT].split()) if piece.shown else NOT_SHOWN
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


def _calls(shape: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The id of each call that a message makes, and the name of its tool."""
    calls = [(shape.get("call_id"), shape.get("name"))] if shape.get("type") == "function_call" else []
    for call in shape.get("tool_calls") or ():
        about = call.get("function") or call.get("custom") or call
        calls.append((call.get("id"), about.get("name") if isinstance(about, Mapping) else None))
    calls += [(part.get("id"), part.get("name")) for part in _parts(shape) if part.get("type") == "tool_use"]
    return ((id, name) for id, name in calls if isinstance(id, str) and isinstance(name, str))


def _results(shape: Mapping[str, Any]) -> list[str]:
    """The ids of the calls whose results a message brings."""
    ids = [
        shape.get("tool_call_id"),
        shape.get("call_id"),
        *(part.get("tool_use_id") for part in _parts(shape)),
    ]
    return [id for id in ids if isinstance(id, str)]


def _only_results(shape: Mapping[str, Any]) -> bool:
    parts = _parts(shape)
    return bool(parts) and all(str(part.get("type")).endswith("tool_result") for part in parts)
