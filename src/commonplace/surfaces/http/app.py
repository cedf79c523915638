"""The HTTP server of a book, as an ASGI application. Every verb that is served has one route, `/v1/` and its path:
`POST` with the arguments as JSON, and `GET` for what only reads.

The application translates. Who may do what is decided by the book; this module checks what is the network's own: the
token, the Host and Origin of a request, and how much one client may use. It writes one line to the log for each
request: who, what, the status and the time, and nothing of the content.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from hashlib import sha256
from itertools import islice
from time import monotonic
from typing import Any, NamedTuple
from uuid import UUID, uuid4, uuid5

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ... import __version__
from ...book import Book
from ...errors import (
    BadInput,
    BookClosed,
    CommonplaceError,
    Conflict,
    Denied,
    EngineUnavailable,
    NotFound,
    OutcomeUnknown,
    Stale,
    TooLarge,
    TooManyRequests,
    Unauthorized,
    shown,
)
from ...ledger.events import Event
from ...participant import Participant
from ...registry import MADE_UNDER_ID, only_reads
from ...verbs import Verb
from ...wire import outgoing
from ..network import Caller, call_for, named_list, served, verb_named
from .limits import Rate, Repeats, ServerLimits, Slots
from .messages import (
    etag_of,
    from_body,
    from_query,
    header,
    is_typed,
    position_in,
    problem,
    response,
    shown_plain,
)

log = logging.getLogger("commonplace.http")

LOCAL = ("localhost", "127.0.0.1", "[::1]")
KEEP_ALIVE = 15.0
"""After how many seconds without an event a stream says that it is still there."""
LONGEST_WAIT = 30.0
EVERY_VERB = "*"
"""No verb is called so: only a token for all verbs allows it."""


class Admission(NamedTuple):
    """Who calls, by which token, and whether the token allows a verb."""

    caller: Caller
    token: str
    allows: Callable[[str], bool]


class BookServer:
    """Serves one book. `authenticate` answers who has a token, or raises Unauthorized. `hosts` and `origins` are those
    that a request may name, besides this host itself."""

    def __init__(
        self,
        book: Book,
        authenticate: Callable[[str], Admission],
        *,
        limits: ServerLimits = ServerLimits(),
        hosts: tuple[str, ...] = LOCAL,
        origins: tuple[str, ...] = (),
        mounted: Mapping[str, Any] | None = None,
        lifespan: Callable[[], Any] | None = None,
    ) -> None:
        self.book, self._authenticate, self.limits = book, authenticate, limits
        self._hosts, self._origins = frozenset(hosts), frozenset(origins)
        self._threads = ThreadPoolExecutor(limits.threads, thread_name_prefix="commonplace-http")
        self._calls, self._streams = Slots("calls", limits.at_once), Slots("streams", limits.streams)
        self._rate, self._repeats = Rate(limits.rate), Repeats()
        self._lifespan = lifespan
        self.instance = uuid4().hex
        """Tells this process apart from an earlier one: what it remembers of calls ends with it."""
        self.closing = asyncio.Event()
        self._mounted = dict(mounted or {})
        self.app = Starlette(
            routes=[
                Route("/healthz", self._health),
                Route("/readyz", self._ready),
                Route("/openapi.json", self._guarded(self._openapi)),
                Route("/v1/book", self._guarded(self._about)),
                Route("/v1/head", self._guarded(self._head)),
                Route("/v1/watch", self._guarded(self._watch), methods=["GET"]),
                Route("/v1/work/watch", self._guarded(self._watch), methods=["GET"]),
                Route("/v1/{path:path}", self._guarded(self._verb), methods=["GET", "POST"]),
            ],
            lifespan=self._living,
            exception_handlers={HTTPException: self._no_route},
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        mounted = self._mounted.get(scope.get("path", "").rstrip("/"))
        if mounted is None:
            await self.app(scope, receive, send)
            return
        request = Request(scope, receive)
        line = LogLine(request)
        try:
            self._check_place(request)
            admission = await self._admitted(request)
            line.admission = admission
            if not admission.allows(EVERY_VERB):
                raise Denied("this token is for some verbs alone, and this address needs one for all of them")
            self._rate.take(admission.token)
        except CommonplaceError as error:
            await self._finished(line, problem(error, line.id))(scope, receive, send)
            return

        async def noted(message: Any) -> None:
            if message["type"] == "http.response.start":
                line.write(message["status"])
            await send(message)

        await mounted(scope, receive, noted)

    def participant_of(self, request: Request) -> Participant:
        """Who makes a request to a mounted application. Raises Unauthorized and Denied."""
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        caller = self._authenticate(token.strip() if kind.lower() == "bearer" else "").caller
        return self._in_name_of(request, caller).participant(self.book)

    @asynccontextmanager
    async def _living(self, _app: Starlette) -> AsyncIterator[None]:
        try:
            if self._lifespan is None:
                yield
            else:
                async with self._lifespan():
                    yield
        finally:
            self.closing.set()
            self._threads.shutdown(wait=True)  # what is being written is finished

    # one request

    def _guarded(
        self, handler: Callable[[Request, Admission], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """A handler behind the checks that every route has, with a line in the log and errors as problems."""

        async def handle(request: Request) -> Response:
            line = LogLine(request)
            try:
                self._check_place(request)
                line.admission = await self._admitted(request)
                self._rate.take(line.admission.token)
                answer = await handler(request, line.admission)
            except CommonplaceError as error:
                answer = problem(error, line.id)
            except ClientDisconnect:
                answer = Response(status_code=499)
            except Exception as error:
                log.exception("request=%s failed", line.id)
                answer = problem(_Failed(f"the server failed: {type(error).__name__}; see its log"), line.id)
            return self._finished(line, answer)

        return handle

    async def _no_route(self, request: Request, error: Exception) -> Response:
        """What is answered where there is no route, or not with this method."""
        assert isinstance(error, HTTPException)
        line = LogLine(request)
        if error.status_code == 405:
            told: CommonplaceError = BadMethod(f"{request.method} is not served here: use {_allowed(error)}")
        else:
            told = NotFound("there is nothing at this address: /openapi.json lists what there is")
        answer = problem(told, line.id)
        answer.headers.update(error.headers or {})
        return self._finished(line, answer)

    def _finished(self, line: LogLine, answer: Response) -> Response:
        """An answer with the headers that all have, once it is in the log."""
        answer.headers["X-Request-Id"] = line.id
        answer.headers["Cache-Control"] = "no-store"
        answer.headers["X-Content-Type-Options"] = "nosniff"
        answer.headers["Commonplace-Instance"] = self.instance
        line.write(answer.status_code)
        return answer

    def _check_place(self, request: Request) -> None:
        """Raises Denied for a Host that is not ours, which a page that rebinds a name would send, and for a page of
        another site."""
        host = request.headers.get("host", "")
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if name not in self._hosts:
            raise Denied(f"the Host {shown(host)} is not one of this server's: name it with --allow-host")
        origin = request.headers.get("origin")
        if origin is not None and origin not in self._origins and origin.partition("://")[2] != host:
            raise Denied(f"the Origin {shown(origin)} is not allowed: name it with --allow-origin")

    async def _admitted(self, request: Request) -> Admission:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not token:
            raise Unauthorized("this server needs a token: send it as `Authorization: Bearer …`")
        admission: Admission = await self._in_thread(lambda: self._authenticate(token.strip()))
        return admission._replace(caller=self._in_name_of(request, admission.caller))

    @staticmethod
    def _in_name_of(request: Request, caller: Caller) -> Caller:
        """The caller, with the actor, scope and run that it asks to act in."""
        reading = header(request, "reads")
        return caller._replace(
            as_actor=header(request, "actor"), in_scope=header(request, "scope"),
            reading=tuple(named_list(reading or "")), run_id=header(request, "run"),
            looks_as=header(request, "looks-as"),
        )  # fmt: skip

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        with self._calls.one():
            try:
                future = self._threads.submit(call)
            except RuntimeError:
                raise BookClosed("the server is shutting down") from None
            return await asyncio.wrap_future(future)

    async def _body(self, request: Request) -> bytes:
        """Raises TooLarge, and BadInput for one that does not arrive in time."""
        parts, size = [], 0
        declared = request.headers.get("content-length", "0")
        if declared.isdigit() and int(declared) > self.limits.body:
            raise TooLarge(f"a body of {declared} bytes is over the limit of {self.limits.body:,}")
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                async for part in request.stream():
                    size += len(part)
                    if size > self.limits.body:
                        raise TooLarge(f"the body is over the limit of {self.limits.body:,} bytes")
                    parts.append(part)
        except TimeoutError:
            raise BadInput(f"the body did not arrive within {self.limits.body_seconds:g} seconds") from None
        return b"".join(parts)

    # verbs

    async def _verb(self, request: Request, admission: Admission) -> Response:
        path = request.path_params["path"].replace("/", ".")
        verb = verb_named(path)
        if not admission.allows(path):
            raise Denied(f"this token does not allow {path}")
        body = b""
        if request.method == "GET":
            if not only_reads(verb):
                raise BadMethod(f"{path} writes: use POST")
            query = request.query_params.multi_items()
            arguments = _paged(verb, query) if verb.path == ("events",) else from_query(verb, query)
        else:
            body = await self._body(request)
            arguments = from_body(request, verb, body)
        if verb.path == ("events",):
            return await self._events(request, admission, arguments)
        return await self._answered(request, admission, verb, arguments, body)

    async def _answered(
        self, request: Request, admission: Admission, verb: Verb, arguments: dict[str, Any], body: bytes
    ) -> Response:
        takes = {parameter.name for parameter in verb.parameters}
        if (tag := request.headers.get("if-match")) and not only_reads(verb):
            if "if_position" not in takes:
                raise BadInput(f"{'.'.join(verb.path)} has no version to compare: leave If-Match out")
            arguments.setdefault("if_position", position_in(tag))
        key = request.headers.get("idempotency-key")
        try:
            if key is None or only_reads(verb):
                answer = await self._called(request, admission, verb, arguments)
            else:
                answer = await self._once(request, admission, verb, arguments, key, body)
        except Stale as stale:
            if tag:
                stale.status = 412  # what HTTP says of an If-Match that does not hold
            raise
        etag = etag_of(answer)
        if etag is None or not only_reads(verb):
            return response(request, answer)
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers={"ETag": etag})
        return response(request, answer, {"ETag": etag})

    async def _once(
        self,
        request: Request,
        admission: Admission,
        verb: Verb,
        arguments: dict[str, Any],
        key: str,
        body: bytes,
    ) -> Any:
        """What has an id of its own is made once for ever: its id comes from the key. Other calls are made once as
        long as this process remembers them; one that may have reached an earlier process has an unknown outcome."""
        if not 1 <= len(key) <= 200:
            raise BadInput("Idempotency-Key has 1 to 200 characters")
        path = ".".join(verb.path)
        who = f"{admission.token} {admission.caller}"
        claims = path in ("work.claim", "claim.next")
        has_id = claims or path in MADE_UNDER_ID
        if has_id:
            name = sha256(f"{who}\n{path}\n{key}".encode()).hexdigest()
            arguments.setdefault("_event" if claims else "id", str(uuid5(UUID(int=0), name)))
        sent_to = request.headers.get("commonplace-sent-to")
        if sent_to not in (None, self.instance) and not has_id:
            raise OutcomeUnknown((), "the server was started anew after the call was sent")
        content = sha256(f"{path}\n".encode() + body).digest()
        answer = await self._repeats.once(
            (who, key), content, lambda: self._boxed(request, admission, verb, arguments)
        )
        if answer is None:
            raise Conflict("this Idempotency-Key was used for another call: choose a new one for each")
        return answer[0]

    async def _boxed(self, *call: Any) -> tuple[Any]:
        return (await self._called(*call),)

    async def _called(
        self, request: Request, admission: Admission, verb: Verb, arguments: dict[str, Any]
    ) -> Any:
        """What a verb answers. An iterator is read to its end in the thread that made it."""

        def call() -> Any:
            answer = call_for(self.book, admission.caller, verb, arguments)
            return list(answer) if hasattr(answer, "__next__") else answer

        return await self._in_thread(call)

    async def _events(self, request: Request, admission: Admission, arguments: dict[str, Any]) -> Response:
        """One page of events; `next` is where the following one begins."""
        most = min(arguments.pop("limit", None) or self.limits.page, self.limits.page)
        after = arguments.pop("after", 0)

        def read() -> tuple[list[Event], int]:
            head = self.book.ledger.position(arguments.get("at"))
            events = call_for(
                self.book, admission.caller, served()["events"], {**arguments, "after": after, "at": head}
            )
            return list(islice(events, most + 1)), head

        events, as_of = await self._in_thread(read)
        more = len(events) > most
        page = events[:most]
        answer = {"events": page, "next": page[-1].position if more else None, "as_of": as_of}
        return response(request, answer)

    # the change feed

    async def _watch(self, request: Request, admission: Admission) -> Response:
        verb = _watched(request)
        if not admission.allows(".".join(verb.path)):
            raise Denied(f"this token does not allow {'.'.join(verb.path)}")
        given = from_query(verb, request.query_params.multi_items())
        last = request.headers.get("last-event-id")
        if last is not None:
            if not (last.isascii() and last.isdigit() and len(last) < 19):
                raise BadInput(f"Last-Event-ID {shown(last)} is no position")
            given["after"] = int(last)
        timeout = given.pop("timeout", None)
        # Whatever is wrong with the call is said before the stream begins.
        await self._in_thread(
            lambda: next(call_for(self.book, admission.caller, verb, {**given, "timeout": 0}), None)
        )
        if given.get("after") is None:
            given["after"] = await self._in_thread(lambda: self.book.head)
        slot = self._streams.one()
        slot.__enter__()
        return EventStream(self._streamed(request, admission, given, timeout), slot)

    async def _streamed(
        self, request: Request, admission: Admission, given: dict[str, Any], timeout: float | None
    ) -> AsyncIterator[bytes]:
        """Events as they are committed. The id of each is its position. The token and the rights are looked up anew for
        every page, so that what is revoked ends the stream."""
        verb, reached = _watched(request), given["after"]
        render = outgoing if is_typed(request) else shown_plain
        news = self.book.aio._bridge.news
        token = request.headers["authorization"].partition(" ")[2].strip()
        quiet_since = monotonic()
        try:
            yield b": connected\n\n"
            while not self.closing.is_set():
                head = await self._in_thread(lambda: self.book.head)
                await self._in_thread(lambda: self._authenticate(token))
                call = partial(
                    call_for, self.book, admission.caller, verb, {**given, "after": reached, "timeout": 0}
                )
                page = await self._in_thread(partial(_first, self.limits.page, call))
                for event in page:
                    data = msgspec.json.encode(render(event)).decode()
                    yield f"id: {event.position}\nevent: {event.kind}\ndata: {data}\n\n".encode()
                    reached, quiet_since = event.position, monotonic()
                if len(page) < self.limits.page:
                    if head > reached:  # hidden events need not be looked at again after a reconnection
                        reached = head
                        yield f"id: {reached}\n\n".encode()
                    left = KEEP_ALIVE
                    if timeout is not None:
                        left = min(left, timeout - (monotonic() - quiet_since))
                        if left <= 0:
                            return
                    if not await self._grown(news, reached, left):
                        yield b": still here\n\n"
        except CommonplaceError as error:
            data = msgspec.json.encode(msgspec.to_builtins(error.as_dict(), enc_hook=str)).decode()
            yield f"event: error\ndata: {data}\n\n".encode()

    async def _grown(self, news: Any, reached: int, seconds: float) -> bool:
        """Whether the book has grown beyond a position, within so many seconds. A server that closes does not wait."""
        waits = {asyncio.ensure_future(news.beyond(reached)), asyncio.ensure_future(self.closing.wait())}
        done, pending = await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for each in pending:
            each.cancel()
        return bool(done)

    # the server itself

    async def _health(self, _request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _ready(self, _request: Request) -> Response:
        try:
            await self._in_thread(lambda: self.book.head)
        except (EngineUnavailable, BookClosed, TooManyRequests) as error:
            return JSONResponse({"status": "not ready", "code": error.code}, 503, {"Retry-After": "1"})
        return JSONResponse({"status": "ready"})

    async def _openapi(self, _request: Request, _admission: Admission) -> Response:
        from .openapi import document

        return Response(msgspec.json.encode(await self._in_thread(document)), 200, {}, "application/json")

    async def _about(self, request: Request, admission: Admission) -> Response:
        """Which book this is, and who the caller is in it."""
        head = await self._in_thread(lambda: self.book.head)
        caller = admission.caller
        return response(
            request,
            {
                "id": self.book.id,
                "name": self.book.name,
                "head": head,
                "version": __version__,
                "actor": caller.actor,
                "scope": caller.scope,
                "reads": list(caller.reads),
            },
        )

    async def _head(self, request: Request, _admission: Admission) -> Response:
        """The last position; with `beyond`, once it is higher than that, or after `timeout` seconds."""
        beyond, timeout = request.query_params.get("beyond"), request.query_params.get("timeout", "25")
        head: int = await self._in_thread(lambda: self.book.head)
        if beyond is not None:
            try:
                position, seconds = int(beyond), min(float(timeout), LONGEST_WAIT)
            except ValueError:
                raise BadInput("beyond is a position, and timeout a number of seconds") from None
            if head <= position and seconds > 0:
                with self._streams.one():
                    await self._grown(self.book.aio._bridge.news, position, seconds)
                head = await self._in_thread(lambda: self.book.head)
        return response(request, {"head": head})


class EventStream(StreamingResponse):
    """A stream of events, which has a slot until it ends, also where the client leaves before the first event."""

    def __init__(self, events: AsyncIterator[bytes], slot: AbstractContextManager[None]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
        self._slot = slot

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._slot.__exit__(None, None, None)


def _watched(request: Request) -> Verb:
    """The verb whose events a request asks for: of the whole book, or of one work."""
    return served()["work.watch" if request.url.path.endswith("/v1/work/watch") else "watch"]


def _first(most: int, call: Callable[[], Iterator[Event]]) -> list[Event]:
    return list(islice(call(), most))


class _Failed(CommonplaceError):
    """The server itself failed."""


class BadMethod(BadInput):
    """A verb that writes was asked for with GET."""

    code = "bad_method"
    status = 405


def _paged(verb: Verb, query: list[tuple[str, str]]) -> dict[str, Any]:
    """The arguments of a page of events."""
    limits = [text for name, text in query if name == "limit"]
    given = from_query(verb, [(name, text) for name, text in query if name != "limit"])
    if limits:
        if len(limits) > 1 or not limits[0].isdigit() or not 0 < int(limits[0]) < 10**9:
            raise BadInput("limit is a whole number above 0")
        given["limit"] = int(limits[0])
    return given


class LogLine:
    """The line of one request in the log: who, what, the status and the time, and nothing of the content."""

    def __init__(self, request: Request) -> None:
        given = request.headers.get("x-request-id", "")
        usable = 0 < len(given) <= 100 and given.isascii() and given.isprintable()
        self.id = given if usable else uuid4().hex
        self.admission: Admission | None = None
        self._method, self._path, self._begun = request.method, request.scope["path"], monotonic()

    def write(self, status: int) -> None:
        who, token = (
            ("-", "-") if self.admission is None else (self.admission.caller.actor, self.admission.token)
        )
        log.info(
            "request=%s method=%s path=%s status=%d ms=%d actor=%s token=%s",
            _field(self.id), _field(self._method), _field(self._path), status, (monotonic() - self._begun) * 1000,
            _field(who), token,
        )  # fmt: skip


def _field(text: str) -> str:
    """A value of a log line, in quotes where it is not one word of ASCII."""
    cut = text[:200]
    return cut if re.fullmatch(r"[!#-<>-~]+", cut) else json.dumps(cut)


def _allowed(error: HTTPException) -> str:
    return (error.headers or {}).get("Allow", "another method")
