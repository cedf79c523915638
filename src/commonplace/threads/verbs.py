"""Threads: `book.thread(name)` and `book.threads`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ..access.masking import kinds_of_secrets, masked
from ..errors import BadInput, NotFound, shown
from ..files.safe import new_file
from ..ledger.checks import check_name, check_path, check_whole, from_us
from ..ledger.events import Draft, Event, draft
from ..ledger.printing import LeftOut, Listing, Readable, more_than, number
from ..ledger.reader import ViewReader, pages
from ..ledger.scopes import name_of, scope_of
from ..memory.items import texts_in
from ..memory.settings import Settings, settings_of
from ..memory.viewer import Viewer
from ..memory.visibility import may_see
from ..models import Model
from ..recall.packing import CountTokens
from ..verbs import verb
from .capability import MESSAGE, OPENED, TEAM, AddMessages, MessagesAdded, Summarized, thread_key
from .context import RECENT_SHARE, ThreadContext, thread_context
from .learning import Learned, proposals_of, proposed, summary_of, that_fit
from .messages import (
    Message,
    NewMessage,
    as_json,
    as_markdown,
    checked_messages,
    results_in,
    role_of,
    with_data,
)
from .reading import PAGE, ThreadReader, ThreadSummary, last_summary, learned_upto, read

if TYPE_CHECKING:
    from ..ledger.ledger import At
    from ..session import Session

LAST = "\U0010ffff"
"""What stands behind every key of a scope and every id."""
AT_ONCE = 100
"""How many messages one commit adds."""

MessageOrId = Message | str | int


class AddedMessages(Readable, msgspec.Struct, frozen=True):
    """What `add` did: the id of each message's event in the order of the list, how many were added, and how many were
    in the thread already. `withheld` of these stand where messages were erased: they were not added, because they may
    be what was erased. Give them an id if they are new."""

    ids: tuple[str, ...]
    added: int
    repeated: int
    withheld: int = 0

    def __str__(self) -> str:
        there = self.repeated - self.withheld
        parts = [f"{number(self.added, 'message')} added"]
        parts += [f"{there} {'was' if there == 1 else 'were'} there already"] if there else []
        parts += (
            [f"{self.withheld} not added, where messages were erased (give an id to what is new)"]
            if self.withheld
            else []
        )
        return ", ".join(parts)


class Messages(Listing[Message], msgspec.Struct, frozen=True):
    """Messages of a thread, oldest first, and how many there are before and after them."""

    ENTRIES = "messages"

    messages: tuple[Message, ...]
    earlier: int = 0
    later: int = 0

    def as_dicts(self) -> list[dict[str, Any]]:
        """The messages as an API takes them."""
        return [message.as_dict() for message in self.messages]

    def __str__(self) -> str:
        before = [f"({self.earlier} earlier)"] if self.earlier else []
        after = [f"({self.later} later)"] if self.later else []
        return "\n".join([*before, *map(str, self.messages), *after]) or "no messages yet"


class ThreadInfo(Readable, msgspec.Struct, frozen=True):
    """A thread in a list: its name, how many messages it has, and when the last one was added. A name that was erased
    is empty."""

    id: str
    name: str
    messages: int
    opened_at: datetime
    last_at: datetime | None = None
    scope: str = ""

    def __str__(self) -> str:
        last = f", the last at {self.last_at:%Y-%m-%d %H:%M}" if self.last_at else ""
        scope = f" in {self.scope}" if self.scope else ""
        return f"{self.name or self.id}{scope}: {number(self.messages, 'message')}{last}"


class ThreadList(Listing[ThreadInfo], msgspec.Struct, frozen=True):
    """Conversations, scope by scope, in the order in which they began, and what the list leaves out."""

    ENTRIES = "threads"

    threads: tuple[ThreadInfo, ...]
    left_out: tuple[LeftOut, ...] = ()
    cursor: str | None = None
    """Where the next page begins: give it as `after`. None: there is none."""

    def __str__(self) -> str:
        left_out = (f"left out: {part.what} ({part.why})" for part in self.left_out)
        return "\n".join([*map(str, self.threads), *left_out]) or "no conversations yet"


class Thread:
    """One conversation: `book.thread(name)`. It begins with its first message."""

    def __init__(self, session: Session, name: str) -> None:
        self._session, self.name = session, name

    def __repr__(self) -> str:
        return f"<Thread {self.name!r}>"

    @property
    @verb(reads=True)
    def id(self) -> str | None:
        """The key of the thread, which its messages have as session_id; None while it has no message."""
        with self._session.snapshot() as now:
            return thread_key(now, self.name)

    @verb
    def add(self, messages: Mapping[str, Any] | Message | Iterable[Any]) -> AddedMessages:
        """Add a message or a list of messages, in the shapes of OpenAI's and Anthropic's APIs or as plain role and
        content, with `name`, `time`, `id` and `metadata` where they are known.

        Messages can be sent again. One with an `id` is added once; the same id with other content is a Conflict.
        Without ids, a list is compared with the end of the thread, so that the whole history, or its last part, can be
        sent with what is new at its end. The same words twice in a row need an id or a time each to count as two.
        Everything is checked before anything is written. `messages` is one message or a list of them."""
        return self._add(checked_messages(messages))

    def _add(
        self,
        incoming: Sequence[NewMessage],
        sources: Callable[[NewMessage], Sequence[str] | None] = lambda _: (),
        summary: tuple[int, int] | None = None,
    ) -> AddedMessages:
        """Add messages, each derived from its `sources`; None: it is not to be added. `summary` is the place of the
        message that holds a summary of the thread, and the number of the last message that the summary is about."""
        session = self._session
        settings, derived = session.settings(), [sources(message) for message in incoming]
        drafts = [
            self._draft(settings, place, message, parents)
            for place, (message, parents) in enumerate(zip(incoming, derived, strict=True))
            if parents is not None
        ]
        before = 0 if summary is None else sum(parents is not None for parents in derived[: summary[0]])
        ids, repeated, withheld, after = list[str](), 0, 0, None
        while drafts:
            part = tuple(drafts if after is None else drafts[:AT_ONCE])  # what is compared is the whole list
            split = None if summary is None else (max(0, before - len(ids)), summary[1])
            request = AddMessages(session.actor, session.run, self.name, part, AT_ONCE, after, split)
            answer: MessagesAdded = session.submit("threads.add", request, "add messages")
            ids += answer.ids
            repeated += answer.repeated
            withheld += answer.withheld
            drafts, after = drafts[len(answer.ids) :], None if answer.moved else answer.last
        return AddedMessages(tuple(ids), len(ids) - repeated, repeated, withheld)

    def _draft(self, settings: Settings, place: int, message: NewMessage, parents: Sequence[str]) -> Draft:
        payload = message.payload
        kinds = kinds_of_secrets(texts_in(payload))
        if kinds and settings.secrets == "reject":
            raise BadInput(f"messages[{place}] holds a secret ({', '.join(kinds)}): keep it in a vault")
        labels = dict(TEAM)
        if kinds and settings.secrets == "mask":
            payload = masked(payload)
        elif kinds:
            labels["sensitivity"], payload = "sensitive", {**payload, "secrets": list(kinds)}
        if role_of(message.shape) in ("tool", "function") or results_in(message.shape):
            labels["trust"] = "low"
        time = None if message.time_us is None else from_us(message.time_us)
        try:
            return draft(
                MESSAGE, actor=self._session.actor, payload=payload, run_id=self._session.run, labels=labels,
                occurred_at=time, parents=parents,
            )  # fmt: skip
        except BadInput as error:
            error.args = (f"messages[{place}]: {error}",)
            raise

    @verb
    def messages(
        self,
        last: int | None = None,
        *,
        before: MessageOrId | None = None,
        after: MessageOrId | None = None,
        inline: bool = False,
        at: At = None,
    ) -> Messages:
        """Messages, oldest first: the last ones, or all of them.

        `last` is how many; all, if not said. `before` is the message, its number or its id before which they stand.
        `after` is the message after which they stand. `inline` is whether images, sounds and files that are kept in
        the book stand in the messages as base64, as they came, in place of references."""
        with self._reader(at) as reader:
            if reader is None:
                return Messages(())
            first = 0 if after is None else reader.number_of("after", after)
            end = None if before is None else reader.number_of("before", before)
            most = None if last is None else check_whole("last", last)
            total = reader.count()
            messages = read(reader.newest(end, first), most)[::-1]
        if inline:
            blob = self._session.ledger.blob
            messages = [
                msgspec.structs.replace(message, shape=with_data(message.shape, blob)) for message in messages
            ]
        earlier = messages[0].number - 1 if messages else min(first, total)
        later = total - (messages[-1].number if messages else earlier)
        return Messages(tuple(messages), earlier, later)

    @verb(reads=False)
    def context(
        self,
        query: str | None = None,
        *,
        max_chars: int | None = None,
        max_tokens: int | None = None,
        recent: float = RECENT_SHARE,
        ignore_memory: bool = False,
        count_tokens: CountTokens | None = None,
        receipt: bool = True,
        at: At = None,
    ) -> ThreadContext:
        """What the next turn needs, in one budget (4,000 characters, if not said): the last turns, older turns of
        this thread that bear on the query, and what the book remembers about it. Without a query, it is about the last
        message of the user. Nothing is said twice, and a receipt tells how it came about.

        `recent` is the share of the budget
        that the last turns may take before anything else, from 0 to 1; they get more if there is room. `ignore_memory`,
        or words such as "ignore memory" in the query, leave everything out. `count_tokens` counts the tokens of a text.
        `receipt` is whether a receipt is written."""
        return thread_context(
            self._session, self.name, query, max_chars, max_tokens, recent, ignore_memory, count_tokens, receipt, at
        )  # fmt: skip

    @verb(reads=False)
    def summary(self, model: Model | None = None, *, at: At = None) -> ThreadSummary | None:
        """The last summary of the conversation; None if there is none. A `model` first summarizes what was said since
        the last one, and that is recorded. When a message is erased, the summaries that include it go with it.

        `model` is a function that takes a prompt and returns text, such as `commonplace.models.endpoint(…)`."""
        if model is None:
            with self._reader(at) as reader:
                return None if reader is None else last_summary(reader)
        if at is not None:
            raise BadInput("a model summarizes what was said until now: leave at out")
        while True:
            with self._reader() as reader:
                if reader is None:
                    return None
                before = last_summary(reader)
                messages = self._unread(reader, 0 if before is None else before.upto)
            if not messages:
                return before
            self._summarize(model, reader.key, messages, before)

    def _summarize(
        self, model: Model, key: str, messages: Sequence[Message], before: ThreadSummary | None
    ) -> None:
        session = self._session
        text = summary_of(model, messages, "" if before is None else before.text)
        sources = [*(() if before is None else (before.id,)), *(message.event_id for message in messages)]
        request = Summarized(
            session.actor, session.run, key, masked(text), messages[-1].number, tuple(sources)
        )
        session.submit("threads.summarize", request, "summarize")

    @verb(not_served="it calls a function of the caller: call it with the book opened on this host")
    def learn(self, model: Model) -> Learned:
        """Let a model propose facts and preferences from the messages since the last call. Each proposal cites the
        messages that say it and is held until somebody settles it with `memory.resolve`: see `inbox`. An answer of the
        model that is not what it was asked for raises ModelFailed, and nothing is kept.

        `model` is a function that takes a prompt and returns text, such as `commonplace.models.endpoint(…)`."""
        session = self._session
        session.check_may_act("learn")
        session.check_enabled("memory.write", "long_term")
        with self._reader() as reader:
            if reader is None:
                return Learned(())
            after = learned_upto(reader)
            messages, total = self._unread(reader, after), reader.count()
        if not messages:
            return Learned(())
        proposals = proposals_of(model, messages)
        upto = messages[-1].number
        results = proposed(session, reader.key, after, upto, messages, proposals)
        return Learned(results, messages[0].number, upto, total - upto)

    def _unread(self, reader: ThreadReader, after: int) -> Sequence[Message]:
        """The messages after a number, as many as a model is given at once. What is sensitive is given to no model."""
        with self._session.snapshot() as now:
            allowed = settings_of(now).v1.allow_sensitivities
        events = (event for event in reader.oldest(after) if reader.sensitivity(event) in allowed)
        return that_fit(read(events, AT_ONCE))

    @verb(reads=True, writes_file="to")
    def export(self, to: str | Path, *, format: Literal["json", "markdown"] = "json", at: At = None) -> int:
        """Write the conversation to a file. Answers how many messages it has.

        `to` is the file to write. `format` is json, with images, sounds and files in base64 as they came, or
        markdown."""
        if format not in ("json", "markdown"):
            raise BadInput(f"format {shown(format)} is not one of json, markdown")
        messages = self.messages(inline=format == "json", at=at).messages
        file = check_path("to", to)
        text = as_json(self.name, messages) if format == "json" else as_markdown(self.name, messages)
        with new_file(file, self._session.services.beside) as out:
            out.write(text)
        return len(messages)

    @contextmanager
    def _reader(self, at: At = None) -> Iterator[ThreadReader | None]:
        """The thread for this reader; None while there is no such thread. Raises Denied."""
        self._session.check_reads("episodic")
        with self._session.viewer(at) as viewer:
            key = thread_key(viewer.views, self.name)
            yield None if key is None else ThreadReader(self._session.ledger, viewer, key)


def thread(session: Session, name: str, *, scope: str | None = None) -> Thread:
    """A conversation by its name. It begins with its first message. The same name in two scopes is two conversations.

    `name` is what the conversation is called."""
    return Thread(session.in_scope(scope), check_name("name", name))


class Threads:
    """The conversations of a book: `book.threads`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @verb
    def list(
        self, limit: int = 100, *, after: str | None = None, scope: str | None = None, at: At = None
    ) -> ThreadList:
        """The conversations that this actor may read, scope by scope, in the order in which they began.

        `after` is the cursor of the list before."""
        session = self._session.narrowed(scope)
        session.check_reads("episodic")
        check_whole("limit", limit)
        with session.viewer(at) as viewer:
            opened = _opened(session, viewer, None if after is None else check_name("after", after))
            page = tuple(_info(session, viewer, event) for event in islice(opened, limit))
            more = next(opened, None) is not None
        if not more:
            return ThreadList(page)
        return ThreadList(page, (more_than(limit, "conversations"),), page[-1].id if page else after)


def _opened(session: Session, viewer: Viewer, after: str | None) -> Iterator[Event]:
    """The openings of the threads that a reader may see, those after one of them. Raises NotFound."""
    first = session.ledger.event(after) if after is not None else None
    if after is not None and (first is None or first.kind != OPENED or not _sees(viewer, first)):
        raise NotFound(f"there is no thread {after!r} to begin after")
    views, scopes = viewer.views, viewer.rights_now.scopes
    begin = "" if first is None else scope_of(first)
    every = sorted(scopes) if scopes is not None else _scopes_with_threads(views, begin)
    for scope in (scope for scope in every if scope >= begin):
        start = first.id if first is not None and scope == begin else ""
        rows = views.each_between("threads.opened", (scope,), start, LAST)
        for page in pages((str(id) for (_, id), _ in rows if id != start), PAGE):
            events = {event.id: event for event in session.ledger.events_by_id(page)}
            yield from (events[id] for id in page if _sees(viewer, events[id]))


def _scopes_with_threads(views: ViewReader, begin: str) -> Iterator[str]:
    """The keys of all scopes that have threads, from one of them on: each is found by one look at the next row."""
    rows = views.between("threads.opened", (), begin, LAST, limit=1)
    while rows:
        scope = str(rows[0][0][0])
        yield scope
        rows = views.between("threads.opened", (), f"{scope} ", LAST, limit=1)


def _sees(viewer: Viewer, event: Event) -> bool:
    return all(may_see(views, rights, event) for views, rights in viewer.pairs)


def _info(session: Session, viewer: Viewer, opened: Event) -> ThreadInfo:
    last = viewer.views.scan("threads.messages", opened.id, limit=1, reverse=True)
    event = session.ledger.event(last[0][1][0]) if last else None
    return ThreadInfo(
        opened.id,
        opened.payload.get("name", ""),
        int(last[0][0][1]) if last else 0,
        opened.created_at,
        None if event is None else event.created_at,
        name_of(viewer.now, scope_of(opened)),
    )
