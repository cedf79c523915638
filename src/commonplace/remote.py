"""A book behind `commonplace serve`, with the same verbs: `commonplace.open("http://host:port", token=…)`.

Verbs travel, not rows. A verb that is called on this book, on an actor or on a handle of it is sent to the server with
its arguments, and answers the same types and raises the same errors as it does there. What runs on the side of the
caller stays there: `with` blocks, functions that are given to a verb, and files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from inspect import Parameter as Described
from inspect import signature, unwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast
from urllib.parse import quote, urlencode
from uuid import uuid4

import msgspec

from . import errors
from .access.rights import check_actor
from .admin import Admin
from .errors import (
    BadInput,
    BookClosed,
    CommonplaceError,
    EngineUnavailable,
    MissingExtra,
    NotEnabled,
    OutcomeUnknown,
    TooManyRequests,
    shown,
)
from .ledger.checks import check_seconds
from .ledger.events import Event
from .ledger.printing import Readable
from .participant import Actor, Owner
from .registry import HANDLES, every_verb, ids_of, only_reads
from .run import Run, Turn
from .telemetry import carry
from .threads.verbs import Thread
from .verbs import Verb, namespace
from .version import install_hint
from .wire import incoming, outgoing
from .work.artifacts import SMALL
from .work.holding import Claim
from .work.verbs import Work

if TYPE_CHECKING:
    from .aio import AsyncHandle
    from .book import Book
    from .ledger.ledger import At
    from .session import Session

TYPED = "application/vnd.commonplace+json"
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
"""How many seconds to wait before a call is sent again."""
PAGE = 1_000


@cache
def _verbs() -> dict[Callable[..., Any], Verb]:
    """Every verb by its function."""
    return {verb.function: verb for verb in every_verb(properties=True)}


@cache
def _errors() -> dict[str, type[CommonplaceError]]:
    return {
        kind.code: kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, CommonplaceError)
    }


class ServerConnection:
    """The way to one server: a pool of connections, the token, and how a call is sent again."""

    def __init__(self, url: str, token: str | None, timeout: float) -> None:
        try:
            import urllib3
        except ImportError as error:
            raise MissingExtra(f"a book behind a server needs urllib3: {install_hint('client')}") from error
        self._urllib3 = urllib3
        self.url, self.timeout = url.rstrip("/"), timeout
        self._token = token
        self._pool = urllib3.PoolManager(maxsize=64, block=False, retries=False)
        self.instance: str | None = None
        self.book: str | None = None
        """The id of the book, as soon as the server has said it."""
        self.closed = False

    def ask(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], *, safe: bool
    ) -> Any:
        """What the server answers. A call is sent again until its deadline when the server is busy or cannot be
        reached; a call that writes carries a key, by which the server makes it once. Raises OutcomeUnknown if a call
        that writes may have landed, and EngineUnavailable if none has."""
        deadline = time.monotonic() + self.timeout
        sent = dict(headers)
        if not safe:
            sent["Idempotency-Key"] = uuid4().hex
        pause, may_have_landed = FIRST_PAUSE, False
        trouble: Exception
        while True:
            try:
                response = self._send(method, path, body, sent, deadline)
            except _NotSent as error:
                trouble, landed = error, False
            except _Broken as error:
                trouble, landed = error, not safe
            else:
                if not _again(response):
                    self.instance = response.headers.get("Commonplace-Instance", self.instance)
                    return self._answer(response)
                trouble, landed = _error_of(response), False
                pause = max(
                    pause,
                    float(response.headers.get("Retry-After", "0") or 0) if may_wait(response) else pause,
                )
            if landed and not may_have_landed:
                may_have_landed = True
                if self.instance is not None:
                    sent["Commonplace-Sent-To"] = self.instance
            if time.monotonic() + pause > deadline:
                if may_have_landed:
                    raise OutcomeUnknown((), f"{trouble}") from None
                if isinstance(trouble, CommonplaceError):
                    raise trouble
                raise EngineUnavailable(f"the server at {self.url} did not answer: {trouble}") from None
            time.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    def stream(self, path: str, headers: Mapping[str, str], quiet: float) -> Iterator[bytes]:
        """The lines of an event stream. Raises EngineUnavailable when it breaks, and after `quiet` seconds without a
        line."""
        response = self._send("GET", path, None, headers, None, streamed=quiet)
        try:
            if response.status != 200:
                response.read()
                self._answer(response)
            rest = b""
            for part in response.stream(65536, decode_content=True):
                *lines, rest = (rest + part).split(b"\n")
                yield from lines
        except (self._urllib3.exceptions.HTTPError, OSError) as error:
            raise EngineUnavailable(f"the stream of {self.url} broke: {error}") from error
        finally:
            response.close()

    def _send(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        deadline: float | None,
        streamed: float | None = None,
    ) -> Any:
        if self.closed:
            raise BookClosed("this book is closed: open it again")
        own = {"Accept": TYPED, "Content-Type": TYPED, **headers}
        carry(own)
        if self._token:
            own["Authorization"] = f"Bearer {self._token}"
        exceptions = self._urllib3.exceptions
        left = self.timeout if deadline is None else max(deadline - time.monotonic(), 0.001)
        timeout = self._urllib3.Timeout(connect=left, read=left if streamed is None else streamed)
        try:
            return self._pool.request(
                method, f"{self.url}{path}", body=body, headers=own, timeout=timeout, redirect=False,
                preload_content=streamed is None,
            )  # fmt: skip
        except (
            exceptions.NewConnectionError,
            exceptions.ConnectTimeoutError,
            exceptions.NameResolutionError,
        ) as error:
            raise _NotSent(str(error)) from error
        except exceptions.LocationParseError as error:
            raise BadInput(f"{self.url!r} is not the URL of a server: {error}") from None
        except (exceptions.HTTPError, OSError) as error:
            raise _Broken(str(error)) from error

    def _answer(self, response: Any) -> Any:
        if response.status == 200:
            return decoded(response)
        raise _error_of(response)

    def close(self) -> None:
        self.closed = True
        self._pool.clear()


class _NotSent(Exception):
    """No connection was made: nothing was sent."""


class _Broken(Exception):
    """The connection broke after something was sent."""


def may_wait(response: Any) -> bool:
    return str(response.headers.get("Retry-After", "")).isdigit()


def _again(response: Any) -> bool:
    """Whether the server says that nothing was done, and that the call may be sent again."""
    return response.status == 429 or (response.status in (502, 503) and _code(response) in ("", "closed"))


def _code(response: Any) -> str:
    told = _told(response)
    return str(told.get("code", ""))


def _told(response: Any) -> dict[str, Any]:
    try:
        told = msgspec.json.decode(response.data)
    except msgspec.MsgspecError:
        return {}
    return told if isinstance(told, dict) else {}


def decoded(response: Any) -> Any:
    try:
        return msgspec.json.decode(response.data)
    except msgspec.MsgspecError as error:
        raise EngineUnavailable(f"what answered is no commonplace server: {error}") from error


def _error_of(response: Any) -> CommonplaceError:
    """The error that the server has raised."""
    told = _told(response)
    if "code" not in told:
        return EngineUnavailable(f"what answered is no commonplace server: HTTP status {response.status}")
    return error_from(told, str(told.get("detail", "")))


def error_from(told: Mapping[str, Any], message: str) -> CommonplaceError:
    kind = _errors().get(str(told["code"]), CommonplaceError)
    error = kind.__new__(kind)
    error.args = (message,)
    for name, value in told.items():
        if name not in ("type", "title", "detail", "message", "status", "code", "request_id"):
            setattr(error, name, tuple(value) if isinstance(value, list) else value)
    return error


def not_here(name: str) -> Exception:
    """What to raise where something is asked for that only the host of the book has."""
    if name.startswith("__"):
        return AttributeError(name)
    return NotEnabled("this works on the book itself: open the book on the host that serves it")


class RemoteSession:
    """Who asks, of a book behind a server. It takes the place of a `Session` in handles and namespaces, whose verbs it
    sends."""

    refusal = ""
    looker = None
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
    ) -> None:
        self.connection, self.actor, self.run = connection, actor, run
        self._scope, self._reads, self._named = scope, reads, named
        self.ledger = RemoteLedger(connection)

    def __getattr__(self, name: str) -> Any:
        raise not_here(name)

    @property
    def remote(self) -> RemoteSession:
        return self

    def acting_as(self, actor: str, run: str | None = None) -> RemoteSession:
        named = self._named or actor != self.actor
        return RemoteSession(self.connection, actor, run, self._scope, self._reads, named=named)

    def in_scope(self, scope: str | None, reads: Sequence[str] = ()) -> RemoteSession:
        if scope is None and not reads:
            return self
        return RemoteSession(
            self.connection, self.actor, self.run, scope if scope is not None else self._scope,
            (*self._reads, *reads), named=self._named,
        )  # fmt: skip

    @property
    def is_owner(self) -> bool:
        return self.actor == "owner"

    def headers(self, with_run: bool = True) -> dict[str, str]:
        """Who acts where, as far as the token does not say it."""
        given = {
            "Commonplace-Actor": self.actor if self._named else None,
            "Commonplace-Scope": self._scope,
            "Commonplace-Run": self.run if with_run else None,
        }
        headers = {name: quote(value, safe="/") for name, value in given.items() if value is not None}
        if self._reads:
            headers["Commonplace-Reads"] = quote(",".join(self._reads), safe="/,")
        return headers

    def call(
        self, function: Callable[..., Any], holder: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """Send a verb, and answer what the server answers."""
        verb = _verbs()[function]
        arguments = _arguments(function, holder, args, kwargs)
        path = ".".join(verb.path)
        if path == "events":
            return self._events(**arguments)
        if verb.name == "watch":
            return self._watch(verb, holder, **arguments)
        if path == "claim.next":  # as two calls: the claim has to learn what became of its own task
            holder.complete(**arguments)
            return holder.work.claim(holder.agent, lease=holder.lease)
        headers, ids = self._of_handle(verb, holder)
        given = {name: _sent(path, name, value) for name, value in (ids | arguments).items()}
        if verb.name == "artifact":
            _read_file(given)
        if verb.path[0] == "claim" and given.get("artifacts"):
            for made in given.pop("artifacts"):
                holder.artifact(made)
        answer = self._answer(verb, self._post(path, given, headers, safe=only_reads(verb)))
        note = getattr(holder, "_answered", None)
        if note is not None:
            note(answer)
        return answer

    def _post(self, path: str, given: Mapping[str, Any], headers: Mapping[str, str], *, safe: bool) -> Any:
        try:
            body = msgspec.json.encode(outgoing(given))
        except (TypeError, RecursionError) as error:
            raise BadInput(f"{path} cannot be sent to a server: {error}") from None
        except UnicodeEncodeError:
            raise BadInput(f"{path} cannot be sent: a text in it is not valid Unicode") from None
        return self.connection.ask("POST", f"/v1/{path.replace('.', '/')}", body, headers, safe=safe)

    def _of_handle(self, verb: Verb, holder: Any) -> tuple[dict[str, str], dict[str, Any]]:
        """Who asks and which ids stand for the handle that a verb is called on. A handle says itself which run it is
        of."""
        if verb.path[0] not in HANDLES or len(verb.path) == 1:
            return self.headers(), {}
        handle = holder if isinstance(holder, HANDLES[verb.path[0]][0]) else holder._work
        session = cast(RemoteSession, handle.own_run._session) if isinstance(handle, Turn) else self
        return session.headers(with_run=False), ids_of(handle)

    def _answer(self, verb: Verb, data: Any) -> Any:
        return incoming(data, self._handle)

    def _handle(self, kind: str, ids: Mapping[str, Any]) -> Any:
        """A handle of this book by its kind and ids."""
        own = cast("Session", self)
        match kind:
            case "work":
                return Work(own, ids["work"])
            case "claim":
                return Claim(Work(own, ids["work"]), ids["agent"], ids["task"])
            case "task":
                return Work(own, "").task(ids["task"])
            case "run":
                return Run(own, ids["run_id"])
            case "turn":
                return Turn(Run(own, ids["run_id"]), ids["agent"])
            case _:
                return Thread(own, ids["thread"])

    # streams

    def _events(self, *, after: int = 0, at: At = None, **filters: Any) -> Iterator[Event]:
        """Events, a page at a time, all as of the same position."""
        page = self._page(after, at, filters)  # what is wrong with the call is said at once
        return self._pages(page, filters)

    def _pages(self, page: Mapping[str, Any], filters: Mapping[str, Any]) -> Iterator[Event]:
        yield from page["events"]
        while page["next"] is not None:
            page = self._page(page["next"], page["as_of"], filters)
            yield from page["events"]

    def _page(self, after: int, at: Any, filters: Mapping[str, Any]) -> Any:
        query = _query({**filters, "after": after, "at": at, "limit": PAGE})
        answer = self.connection.ask("GET", f"/v1/events?{query}", None, self.headers(), safe=True)
        return incoming(answer, self._handle)

    def _watch(
        self,
        verb: Verb,
        holder: Any,
        *,
        after: int | None = None,
        timeout: float | None = None,
        **filters: Any,
    ) -> Iterator[Event]:
        if verb.path[0] != "watch":
            raise NotEnabled(
                f"{'.'.join(verb.path)} is not served: watch the book, and choose the events by their kind"
            )
        check_seconds("timeout", timeout)
        reached = self.ledger.head if after is None else after
        return self._watched(reached, timeout, _query(filters))

    def _watched(self, reached: int, timeout: float | None, filters: str) -> Iterator[Event]:
        """Events as they are committed; a stream that breaks is taken up where it ended."""
        quiet_since, pause, tried_until = time.monotonic(), FIRST_PAUSE, 0.0
        while not self.connection.closed:
            left = None if timeout is None else max(timeout - (time.monotonic() - quiet_since), 0.0)
            query = _query({"after": reached, "timeout": left}) + (f"&{filters}" if filters else "")
            kind, data = "", b""
            try:
                for line in self.connection.stream(f"/v1/watch?{query}", self._stream_headers(reached), 60.0):
                    pause, tried_until = FIRST_PAUSE, 0.0
                    name, _, value = line.partition(b": ")
                    if name == b"id":
                        reached = int(value)
                    elif name == b"event":
                        kind = value.decode()
                    elif name == b"data":
                        data = value
                    elif not line and data:
                        told, data = msgspec.json.decode(data), b""
                        if kind == "error":
                            raise error_from(told, str(told.get("message", "")))
                        quiet_since = time.monotonic()
                        yield incoming(told, self._handle)
                if timeout is not None and time.monotonic() - quiet_since >= timeout:
                    return
            except (EngineUnavailable, TooManyRequests, _NotSent, _Broken) as error:
                now = time.monotonic()
                tried_until = tried_until or now + self.connection.timeout
                if now > tried_until:
                    raise EngineUnavailable(
                        f"the server at {self.connection.url} did not answer: {error}"
                    ) from error
                time.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            except BookClosed:
                return

    def _stream_headers(self, reached: int) -> dict[str, str]:
        return {**self.headers(), "Accept": f"text/event-stream, {TYPED}", "Last-Event-ID": str(reached)}


class RemoteLedger:
    """What handles and asyncio ask of a ledger that is not here: where it ends, and when it grows."""

    closed = False

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self.store = self

    def __getattr__(self, name: str) -> Any:
        raise not_here(name)

    def event(self, _id: str) -> None:
        """A claim whose answer was lost is not looked for: its lease ends by itself."""

    @property
    def head(self) -> int:
        return int(self._connection.ask("GET", "/v1/head", None, {}, safe=True)["head"])

    def wait(self, position: int, timeout: float) -> int:
        """The head, once it is beyond a position, or after a while."""
        query = _query({"beyond": position, "timeout": min(timeout, self._connection.timeout / 2, 25.0)})
        return int(self._connection.ask("GET", f"/v1/head?{query}", None, {}, safe=True)["head"])


class RemoteBook(Owner):
    """A book behind a server, as the actor of the token. An owner's token may name other actors."""

    def __init__(self, connection: ServerConnection) -> None:
        about = connection.ask("GET", "/v1/book", None, {}, safe=True)
        session = RemoteSession(connection, about["actor"])
        super().__init__(cast("Session", session))
        self.id, self.name, self._connection = about["id"], about["name"], connection
        connection.book = self.id
        self.actor: str = about["actor"]
        self.ledger = session.ledger
        self._aio: AsyncHandle | None = None

    admin = namespace(Admin, lambda book: Admin(book._session, cast(Any, None)))

    def as_actor(
        self, name: str, role: str | None = None, *, scope: str | None = None, reads: Sequence[str] = ()
    ) -> Actor:
        """The verbs of this book under one actor's rights; another actor than the token's needs an owner's token."""
        if scope is None and reads:
            raise BadInput("reads goes with a scope: without one, an actor reads all that its rights allow")
        session = cast(RemoteSession, self._session).acting_as(check_actor(name)).in_scope(scope, reads)
        if role is not None:
            self.access.grant(name, role=role)
        return Actor(cast("Session", session))

    @property
    def head(self) -> int:
        """The last position; 0 when nothing has been recorded."""
        return self.ledger.head

    @property
    def aio(self) -> AsyncHandle:
        """The same verbs for asyncio."""
        if self._aio is None:
            from .aio import AsyncHandle, Bridge

            self._aio = AsyncHandle(Bridge(cast("Book", self)), self)
        return self._aio

    def close(self) -> None:
        """Close the connections; later calls raise BookClosed. Safe to call twice."""
        self._connection.close()
        if self._aio is not None:
            self._aio._bridge.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RemoteBook {self._connection.url} as {self.actor!r}{' (closed)' if self._connection.closed else ''}>"


def connect(url: str, token: str | None, timeout: float) -> RemoteBook:
    """The book that is served at a URL. Raises EngineUnavailable and Unauthorized."""
    if "@" in url.partition("//")[2].partition("/")[0]:
        raise BadInput("leave user and password out of the URL: a server takes token=…")
    connection = ServerConnection(url, token, timeout)
    try:
        return RemoteBook(connection)
    except BaseException:
        connection.close()
        raise


# arguments


def _arguments(
    function: Callable[..., Any], holder: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of a call by their names, as the verb's own signature has them."""
    described = signature(unwrap(function))
    bound = described.bind(holder, *args, **kwargs)
    _holder, *rest = described.parameters.values()
    given: dict[str, Any] = {}
    for parameter in rest:
        if parameter.name not in bound.arguments:
            continue
        value = bound.arguments[parameter.name]
        if parameter.kind is Described.VAR_KEYWORD:
            given |= value
        elif parameter.name != "progress" and not parameter.name.startswith("_"):
            given[parameter.name] = value
    return given


def _sent(path: str, name: str, value: Any) -> Any:
    """An argument as it is sent: an object that has an id is sent as that."""
    if callable(value) and not isinstance(value, type):
        raise NotEnabled(
            f"{name} of {path} is a function, and {path} runs on the server: leave it out, or open the book on its host"
        )
    if isinstance(value, Claim | Run | Work | Turn):
        return (
            ids_of(value)
            if isinstance(value, Claim)
            else value.own_run.id
            if isinstance(value, Turn)
            else value.id
        )
    if isinstance(value, Thread):
        return value.name
    if hasattr(value, "as_dict") and name == "messages":
        return value.as_dict()
    if isinstance(value, msgspec.Struct) and hasattr(value, "id"):
        if value.id is None:
            raise BadInput(f"nothing was stored, so it has no id: {getattr(value, 'reason', '')}")
        return value.id
    if isinstance(value, Readable) and hasattr(value, "ids"):
        return list(value.ids)
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    if type(value) in (list, tuple):
        return type(value)(_sent(path, name, each) for each in value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping) and type(value) is dict:
        return value
    if isinstance(value, Iterator):
        return [_sent(path, name, each) for each in value]
    return value


def _read_file(given: dict[str, Any]) -> None:
    """A file of this host travels with its path, as far as it is small or is to be stored."""
    path, store = given.get("path"), given.get("store")
    if given.get("content") is None and isinstance(path, str):
        file = Path(path)
        if file.is_file() and not file.is_symlink() and (store or file.stat().st_size <= SMALL):
            given["content"] = file.read_bytes()


def _query(given: Mapping[str, Any]) -> str:
    """Arguments as the query of a URL. What is not given is left out."""
    pairs: list[tuple[str, str]] = []
    for name, value in given.items():
        if value is None:
            continue
        if isinstance(value, list | tuple | set | frozenset):
            pairs += [(name, str(each)) for each in value]
        elif hasattr(value, "isoformat"):
            pairs.append((name, value.isoformat()))
        elif isinstance(value, str | int | float):
            pairs.append((name, str(value)))
        else:
            raise BadInput(f"{name} {shown(value)} cannot be sent to a server")
    return urlencode(pairs)
