"""Who asks, of a book behind a server: it takes the place of a `Session` in handles and namespaces, whose verbs it
sends."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from time import monotonic
from typing import Any, cast
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from ..access.rights import OWNER
from ..admin import check_free
from ..errors import (
    BadInput,
    BookClosed,
    CommonplaceError,
    EngineUnavailable,
    NotEnabled,
    NotFound,
    TooManyRequests,
    shown,
)
from ..files.safe import new_file
from ..ledger.checks import check_path, check_position, check_seconds
from ..ledger.encoding import convert
from ..ledger.events import Event, new_id
from ..ledger.ledger import At
from ..participant import Actor
from ..registry import HANDLES, every_verb, ids_of, not_served
from ..run import Run, Turn
from ..session import Session
from ..threads.verbs import Thread
from ..verbs import Verb
from ..wire import TYPED, incoming, outgoing
from ..work.holding import Claim
from ..work.leading import Lead
from ..work.tasks import Task
from ..work.verbs import Work
from .arguments import arguments, artifacts_sent, query_of, sent, with_content
from .connection import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    QUIET,
    UNREADABLE,
    ServerCall,
    ServerConnection,
    error_from,
)

PAGE = 1_000
FILE = "application/octet-stream"
LONGEST_HEADER = 8_000


@cache
def verbs_by_function() -> dict[Callable[..., Any], Verb]:
    return {verb.function: verb for verb in every_verb(properties=True)}


def not_here(name: str) -> Exception:
    """What to raise where something is asked for that only the host of the book has."""
    if name.startswith("__"):
        return AttributeError(name)
    return NotEnabled("this works on the book itself: open the book on the host that serves it")


class EventsOfPage(msgspec.Struct, frozen=True):
    """Some events of a server's answer, where the following ones begin, and the position that they are as of."""

    events: list[Any]
    next: int | None
    as_of: int


class RemoteSession:
    """Who asks: an actor, in a scope, perhaps within a run or through the eyes of another actor."""

    refusal = ""
    bound = None

    def __init__(
        self,
        connection: ServerConnection,
        actor: str,
        run: str | None = None,
        scope: str | None = None,
        reads: tuple[str, ...] = (),
        *,
        named: bool = False,
        look: str | None = None,
    ) -> None:
        self.connection, self.actor, self.run = connection, actor, run
        self._scope, self._reads, self._named, self._look = scope, reads, named, look
        self.ledger = RemoteLedger(self)

    def __getattr__(self, name: str) -> Any:
        raise not_here(name)

    @property
    def remote(self) -> RemoteSession:
        return self

    def acting_as(self, actor: str, run: str | None = None) -> RemoteSession:
        return self._but(actor=actor, run=run, named=self._named or actor != self.actor)

    def in_scope(self, scope: str | None, reads: Sequence[str] = ()) -> RemoteSession:
        if scope is None and not reads:
            return self
        return self._but(scope=self._scope if scope is None else scope, reads=(*self._reads, *reads))

    def seen_by(self, look: str) -> RemoteSession:
        """The book through another actor's eyes, which is recorded as this event."""
        return self._but(look=look)

    def _but(self, **others: Any) -> RemoteSession:
        own = {
            "actor": self.actor, "run": self.run, "scope": self._scope, "reads": self._reads, "named": self._named,
            "look": self._look,
        }  # fmt: skip
        return RemoteSession(self.connection, **own | others)

    @property
    def is_owner(self) -> bool:
        return self.actor == OWNER

    def headers(self, with_run: bool = True) -> dict[str, str]:
        """Who acts where, as far as the token does not say it. Raises BadInput for a name that is no text."""
        given = {
            "Commonplace-Actor": self.actor if self._named else None,
            "Commonplace-Scope": self._scope,
            "Commonplace-Run": self.run if with_run else None,
            "Commonplace-Look": self._look,
        }
        try:
            headers = {name: quote(value, safe="/") for name, value in given.items() if value is not None}
            if self._reads:
                headers["Commonplace-Reads"] = ",".join(quote(path, safe="/") for path in self._reads)
        except (UnicodeEncodeError, TypeError) as error:
            raise BadInput(f"the name of an actor, scope or run cannot be sent: {error}") from None
        for name, value in headers.items():
            if len(value) > LONGEST_HEADER:
                raise BadInput(
                    f"{name.removeprefix('Commonplace-').lower()} is too long to be sent: {shown(value)}"
                )
        return headers

    # calls

    def call(
        self, function: Callable[..., Any], holder: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """Send a verb, and answer what the server answers."""
        verb = verbs_by_function()[function]
        given = arguments(function, holder, args, kwargs)
        path = verb.dotted
        if reason := not_served(verb):
            raise NotEnabled(f"{path} is not served: {reason}")
        for name in verb.facts.of_host:
            if given.pop(name, None) is not None:
                raise NotEnabled(f"{name} of {path} comes from files of the book's host: open the book there")
        if verb.facts.reads_file or verb.facts.writes_file:
            return self._with_file(verb, holder, given)
        if path == "events":
            return self._events(**given)
        if path == "access.redacted":
            return self._redacted(given["events"])
        if verb.name == "watch":
            return self._watch(path, ids_of(holder) if path == "work.watch" else {}, **given)
        headers, ids = self._of_handle(verb, holder)
        event = given.pop("_event", None) or new_id()
        if verb.name == "artifact":
            given = with_content(given)
        elif verb.path[0] == "claim" and given.get("artifacts"):
            given["artifacts"] = artifacts_sent(given["artifacts"])
        given = {name: sent(path, name, value) for name, value in given.items()}
        made, repeatable = _identified(verb, given)
        key = None if verb.reads else event
        answer = self._post(path, ids | given, headers, key=key, ids=made, repeatable=repeatable)
        if path == "access.look_as":
            return Actor(cast(Session, self.seen_by(str(answer))))
        if isinstance(holder, Claim):
            self._note(path, holder, answer)
        if path == "claim.nudges":
            urgent, holder.urgent = holder.urgent, []
            return [*urgent, *answer]
        return answer

    @staticmethod
    def _note(path: str, claim: Claim, answer: object) -> None:
        """Note in a claim what has become of its task."""
        if path == "claim.next":
            claim._becomes(claim.work.task(claim.task).info())
        elif isinstance(answer, Task):
            claim._becomes(answer)

    def _with_file(self, verb: Verb, holder: Any, given: dict[str, Any]) -> Any:
        """Call a verb that writes a file of this host, or reads one: the content travels."""
        path, reads = verb.dotted, bool(verb.facts.reads_file)
        name = verb.facts.reads_file or verb.facts.writes_file
        file = check_path(name, given.pop(name))
        headers, ids = self._of_handle(verb, holder)
        given = ids | {name: sent(path, name, value) for name, value in given.items()}
        if reads:
            return self._read_from(file, path, given, headers)
        if path == "admin.backup":
            check_free(name, file)
        with new_file(file, None) as content:
            return self._post(path, given, headers, into=content)

    def _read_from(self, file: Path, path: str, given: Mapping[str, Any], headers: Mapping[str, str]) -> Any:
        if file.is_dir():
            raise NotEnabled(f"{file} is a folder: take its files in one by one, or do it on the book's host")
        try:
            content = file.read_bytes()
        except OSError as error:
            raise BadInput(
                f"{file} cannot be read ({error.strerror}): check its name and its rights"
            ) from error
        described = {**headers, "Content-Type": FILE, "Commonplace-File": quote(file.name, safe="")}
        address = f"/v1/{path.replace('.', '/')}?{query_of(given)}"
        return self.connection.ask(
            ServerCall("POST", address, content, described, key=new_id(), read=self._incoming)
        )

    def _post(self, path: str, given: Mapping[str, Any], headers: Mapping[str, str], **how: Any) -> Any:
        """What the server answers; `how` it is asked for, see `ServerCall`."""
        try:
            body = msgspec.json.encode(outgoing(given))
        except (TypeError, RecursionError) as error:
            raise BadInput(f"{path} cannot be sent to a server: {error}") from None
        except UnicodeEncodeError:
            raise BadInput(f"{path} cannot be sent: a text in it is not valid Unicode") from None
        address = f"/v1/{path.replace('.', '/')}"
        return self.connection.ask(ServerCall("POST", address, body, headers, read=self._incoming, **how))

    def _incoming(self, answer: Any) -> Any:
        return incoming(answer, self._handle)

    def _event(self, sent: Any) -> Event:
        event = self._incoming(sent)
        if not isinstance(event, Event):
            raise TypeError(f"{type(event).__name__} is no event")
        return event

    def _of_handle(self, verb: Verb, holder: Any) -> tuple[dict[str, str], dict[str, Any]]:
        """Who asks and which ids stand for the handle that a verb is called on. A handle says itself which run it is
        of."""
        if verb.path[0] not in HANDLES or len(verb.path) == 1:
            return self.headers(), {}
        handle = holder if isinstance(holder, HANDLES[verb.path[0]][0]) else holder._work
        session = cast(RemoteSession, handle.own_run._session) if isinstance(handle, Turn) else self
        headers = session.headers(with_run=False)
        work = handle if isinstance(handle, Work) else getattr(handle, "_work", None)
        if work is not None and work._lead is not None:
            headers["Commonplace-Lead"] = str(work._lead)
        return headers, ids_of(handle)

    def _handle(self, kind: str, ids: Mapping[str, Any]) -> Any:
        """A handle of this book by its kind and ids."""
        own = cast(Session, self)
        match kind:
            case "work":
                return Work(own, ids["work"])
            case "claim":
                return Claim(Work(own, ids["work"]), ids["agent"], ids["task"])
            case "lead":
                return Lead(Work(own, ids["work"]), ids["agent"], ids["fence"], ids["lease"])
            case "task":
                return Work(own, "").task(ids["task"])
            case "run":
                return Run(own, ids["run_id"])
            case "turn":
                return Turn(Run(own, ids["run_id"]), ids["agent"])
            case "thread":
                return Thread(cast(Session, self.in_scope(ids["scope"])), ids["thread"])
        raise BadInput(f"it answered with a {kind}, which this version of the library does not know")

    # streams

    def _events(self, *, after: int = 0, at: At = None, **filters: Any) -> Iterator[Event]:
        """Events, a page at a time, all as of the same position."""
        page = self.page(after, at, filters)  # what is wrong with the call is said at once
        return self._pages(page, filters)

    def _pages(self, page: EventsOfPage, filters: Mapping[str, Any]) -> Iterator[Event]:
        yield from page.events
        while page.next is not None:
            page = self.page(page.next, page.as_of, filters)
            yield from page.events

    def page(self, after: int, at: At, filters: Mapping[str, Any], limit: int = PAGE) -> EventsOfPage:
        """Some events, where the next page begins, and the position that all of them are as of."""

        def read(answer: Any) -> EventsOfPage:
            page = convert(answer, EventsOfPage)
            return replace(page, events=[self._event(event) for event in page.events])

        query = query_of({**filters, "after": after, "at": at, "limit": limit})
        return cast(
            EventsOfPage,
            self.connection.ask(ServerCall("GET", f"/v1/events?{query}", None, self.headers(), read=read)),
        )

    def _redacted(self, events: Iterable[Event]) -> Iterator[Event]:
        """Events without secrets, one after the other as they come, or all at once where they are there."""
        batches = [list(events)] if isinstance(events, Collection) else ([event] for event in events)
        for batch in batches:
            ids = {"events": [event.id for event in batch]}
            yield from self._post("access.redacted", ids, self.headers())

    def _watch(
        self,
        path: str,
        ids: Mapping[str, Any],
        *,
        after: int | None = None,
        timeout: float | None = None,
        **filters: Any,
    ) -> Iterator[Event]:
        seconds = check_seconds("timeout", timeout)
        reached = self.ledger.head if after is None else check_position("after", after)
        return self._watched(f"/v1/{path.replace('.', '/')}", reached, seconds, {**ids, **filters})

    def _watched(
        self, path: str, reached: int, timeout: float | None, filters: Mapping[str, Any]
    ) -> Iterator[Event]:
        """Events as they are committed; a stream that breaks is taken up where it ended."""
        connection, quiet_since, pause, tried_until = self.connection, monotonic(), FIRST_PAUSE, 0.0
        while not connection.closed:
            left = None if timeout is None else max(timeout - (monotonic() - quiet_since), 0.0)
            query = query_of({**filters, "after": reached, "timeout": left})
            quiet = QUIET if left is None else min(QUIET, left + connection.timeout)
            headers = {
                **self.headers(),
                "Accept": f"text/event-stream, {TYPED}",
                "Last-Event-ID": str(reached),
            }
            try:
                for position, event in self._sent_events(
                    connection.stream(f"{path}?{query}", headers, quiet)
                ):
                    if event is not None or position > reached:
                        pause, tried_until = FIRST_PAUSE, 0.0
                    reached = max(reached, position)
                    if event is not None:
                        quiet_since = monotonic()
                        yield event
                if timeout is not None and monotonic() - quiet_since >= timeout:
                    return
            except (EngineUnavailable, TooManyRequests) as error:
                now = monotonic()
                tried_until = tried_until or now + connection.timeout
                if now > tried_until:
                    raise EngineUnavailable(
                        f"the server at {connection.url} did not answer: {error}"
                    ) from None
            except BookClosed:  # this one, or that of a server that is about to be started anew
                tried_until = tried_until or monotonic() + connection.timeout
                if monotonic() > tried_until:
                    raise
            connection.pause(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    def _sent_events(self, lines: Iterator[bytes]) -> Iterator[tuple[int, Event | None]]:
        """The events of a stream with their positions; None where there is none to be seen. Raises the error that the
        server has ended the stream with, and EngineUnavailable for what no server of ours would send."""
        frame, reached = _Frame(), 0
        for line in lines:
            if line:
                frame.add(line)
                continue
            try:
                reached, content = int(frame.id or reached), self._content(frame)
            except UNREADABLE as error:
                raise EngineUnavailable(
                    f"the stream of {self.connection.url} cannot be read ({type(error).__name__})"
                ) from error
            if isinstance(content, CommonplaceError):
                raise content
            yield reached, content
            frame = _Frame()

    def _content(self, frame: _Frame) -> Event | CommonplaceError | None:
        """The event in a message of a stream, or the error that it ends with."""
        if not frame.data:
            return None
        sent = msgspec.json.decode(frame.data)
        return error_from(sent, str(sent["message"])) if frame.event == b"error" else self._event(sent)


class _Frame(msgspec.Struct):
    """The fields of one message of an event stream, as far as they have come."""

    id: bytes = b""
    event: bytes = b""
    data: bytes = b""

    def add(self, line: bytes) -> None:
        name, _, value = line.partition(b": ")
        if name in (b"id", b"event", b"data"):
            setattr(self, name.decode(), value)


def _identified(verb: Verb, given: dict[str, Any]) -> tuple[tuple[str, ...], bool]:
    """The ids of what a call makes, which it is given here where the caller has not done so; and whether the same call
    again answers as the first time."""
    if verb.facts.own_id:
        given["id"] = new_id() if given.get("id") is None else given["id"]
        return (str(given["id"]),), True
    if verb.name == "record_all" and isinstance(given.get("drafts"), list | tuple):
        drafts = [
            {**draft, "id": new_id() if draft.get("id") is None else draft["id"]}
            if isinstance(draft, dict)
            else draft
            for draft in given["drafts"]
        ]
        given["drafts"] = drafts
        return tuple(str(draft["id"]) for draft in drafts if isinstance(draft, dict)), True
    return (), verb.facts.repeatable


class RemoteLedger:
    """What handles and asyncio ask of a ledger that is not here: where it ends, when it grows, and single events."""

    def __init__(self, session: RemoteSession) -> None:
        self._session, self._connection = session, session.connection
        self.store = self

    def __getattr__(self, name: str) -> Any:
        raise not_here(name)

    @property
    def closed(self) -> bool:
        return self._connection.closed

    def event(self, id: str) -> Event | None:
        with suppress(NotFound):
            return Actor(cast(Session, self._session)).event(id)
        return None

    def position(self, at: At = None) -> int:
        """The position that `at` means."""
        return self.head if at is None else self._session.page(0, at, {}, 1).as_of

    @property
    def head(self) -> int:
        return self._head("/v1/head")

    def wait(self, position: int, timeout: float) -> int:
        """The head, once it is beyond a position, or after a while."""
        query = query_of({"beyond": position, "timeout": min(timeout, self._connection.timeout / 2, 25.0)})
        return self._head(f"/v1/head?{query}")

    def _head(self, path: str) -> int:
        return cast(
            int,
            self._connection.ask(ServerCall("GET", path, read=lambda answer: convert(answer["head"], int))),
        )
