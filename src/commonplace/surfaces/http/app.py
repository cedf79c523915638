"""The HTTP server of a book, as an ASGI application. Every verb that is served has one route, `/v1/` and its path:
`POST` with the arguments as JSON, and `GET` for what only reads.

The application translates. Who may do what is decided by the book; what is the network's own is beside it: who is let
in (`admission`), how much a client may use (`limits`), what a connection may leave undone (`connections`), the change
feed (`streams`) and the log (`request_log`).
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import FIRST_COMPLETED
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from functools import partial
from hashlib import sha256
from time import monotonic
from typing import Any, NamedTuple, TypeVar
from uuid import UUID, uuid4, uuid5

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ... import __version__
from ...book import Book
from ...errors import (
    BadInput,
    BadMethod,
    BookClosed,
    CommonplaceError,
    Conflict,
    Denied,
    EngineUnavailable,
    NotFound,
    OutcomeUnknown,
    ServerFailed,
    Stale,
    TooLarge,
    TooManyRequests,
)
from ...ledger.checks import check_seconds
from ...participant import Participant
from ...telemetry import answering_http
from ...verbs import Verb
from ..network import Caller, WrittenFile, call_for, call_reading, call_writing, served, verb_named
from .admission import Admission, Authenticate, Gate, token_of
from .limits import FairThreads, Rate, ServerLimits, Slots
from .messages import (
    FileResponse,
    Rendered,
    from_body,
    from_query,
    from_query_of_page,
    header,
    is_typed,
    page_of,
    position_in,
    problem,
    rendered,
)
from .repeats import Repeats
from .request_log import LogLine, field
from .sessions import McpSessions
from .streams import EventStreamResponse, EventStreams, StreamRequest, position_of

log = logging.getLogger("commonplace.http")

LOCAL = ("localhost", "127.0.0.1", "[::1]")
LONGEST_WAIT = 30.0
OWN_ROUTES = ("/healthz", "/readyz", "/openapi.json", "/v1/book", "/v1/head", "/v1/watch", "/v1/work/watch")
ONLY_GET = ("book", "head", "watch", "work.watch")
"""These have routes of their own."""
LISTEN = "subscriptions/listen"
"""The method of MCP whose answer is a stream."""
READINGS = 20.0
"""How often a second one address may ask whether the server is ready: it needs no token, and reads the book."""

SAYING_WHAT = (
    "accept", "content-type", "if-match", "commonplace-actor", "commonplace-scope", "commonplace-reads",
    "commonplace-run", "commonplace-lead", "commonplace-look", "commonplace-file",
)  # fmt: skip
"""The headers that say what a call is about, or who makes it."""

T = TypeVar("T")
Arguments = dict[str, Any]
Handler = Callable[[Request, Admission], Awaitable[Response]]


class BookServer:
    """Serves one book. `authenticate` answers who has a token, or raises Unauthorized. `hosts` and `origins` are those
    that a request may name, besides this host itself."""

    def __init__(
        self,
        book: Book,
        authenticate: Authenticate,
        *,
        limits: ServerLimits = ServerLimits(),
        hosts: tuple[str, ...] = LOCAL,
        origins: tuple[str, ...] = (),
    ) -> None:
        self.book, self.limits = book, limits
        self._threads = FairThreads(limits.threads, limits.threads_each)
        self._gate = Gate(authenticate, limits, hosts, origins)
        self.calls = Slots("calls", limits.at_once, limits.at_once_each)
        self.streams = Slots("streams", limits.streams, limits.streams_each)
        self._event_streams = EventStreams(book, authenticate, self._threads, limits)
        self._sessions = McpSessions(limits.sessions_each)
        self._bodies = Slots("bytes of bodies", limits.bodies, limits.bodies_each)
        self._files = Slots("files", limits.files, limits.files_each)
        self._repeats, self._readings = Repeats[Rendered](), Rate(READINGS, "from this address")
        self._process, self._began = uuid4().hex, monotonic()
        self.ends_at: float | None = None
        """When long calls are given up, because the server is to end."""
        self.mcp = McpHost(book, self._gate, self._threads, self.go_on)
        self._mounted = dict[str, Any]()
        self._lifespans = list[Callable[[], Any]]()
        self.app = Starlette(
            routes=[
                Route("/healthz", self._health),
                Route("/readyz", self._ready),
                Route("/openapi.json", self._guarded(self._openapi)),
                Route("/v1/book", self._guarded(self._about)),
                Route("/v1/head", self._guarded(self._head)),
                Route("/v1/watch", self._guarded(self._watch)),
                Route("/v1/work/watch", self._guarded(self._watch)),
                Route("/v1/{path:path}", self._guarded(self._verb), methods=["GET", "POST"]),
            ],
            lifespan=self._living,
            exception_handlers={HTTPException: self._no_route},
        )

    def mount(self, path: str, app: Any, lifespan: Callable[[], Any]) -> None:
        """Serve another application at an address, behind the same checks. `lifespan` answers the context that it runs
        in."""
        self._mounted[path] = app
        self._lifespans.append(lifespan)

    @property
    def instance(self) -> str:
        """This process, and its time in milliseconds: what it remembers of calls ends with it. A client that sends a
        call again names the last value that it had seen when it first sent the call."""
        return f"{self._process}.{int((monotonic() - self._began) * 1000)}"

    @property
    def closing(self) -> asyncio.Event:
        """Set when the server ends: streams end, and what comes in then is refused."""
        return self._event_streams.closing

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._serve(scope, receive, send)
            return
        with answering_http(scope, self._route(scope["path"])) as answered:

            async def noted(message: Any) -> None:
                if message["type"] == "http.response.start":
                    answered(message["status"])
                await send(message)

            await self._serve(scope, receive, noted)

    def _route(self, path: str) -> str | None:
        """The address of a request, if it is one of ours: any other is the client's own words."""
        if path in self._mounted:
            return path
        verb = path.removeprefix("/v1/").replace("/", ".")
        return path if path in OWN_ROUTES or (path.startswith("/v1/") and verb in served()) else None

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        mounted = self._mounted.get(scope.get("path", ""))
        if mounted is None:
            await self.app(scope, receive, send)
        else:
            await self._serve_mounted(mounted, scope, receive, send)

    @asynccontextmanager
    async def _living(self, _app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as running:
            running.push_async_callback(self._finish)
            for lifespan in self._lifespans:
                await running.enter_async_context(lifespan())
            yield

    async def _finish(self) -> None:
        """Finish what is being written. It may tell its progress meanwhile, so the loop goes on."""
        self.closing.set()
        for threads in (self._gate, self._threads):
            await asyncio.to_thread(threads.finish)

    # one request

    def _guarded(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """A handler behind the checks that every route has, with a line in the log and errors as problems."""

        async def handle(request: Request) -> Response:
            line = LogLine(request)
            request.state.line = line
            try:
                answer = await handler(request, await self._admitted(request, line))
            except Exception as error:  # noqa: BLE001  told to the client, and logged if it was not expected
                answer = _refusal(line, error)
            if getattr(request.state, "key_seen", False):
                answer.headers["Commonplace-Key"] = "seen"
            return self._finished(line, answer)

        return handle

    async def _admitted(self, request: Request, line: LogLine) -> Admission:
        if self.closing.is_set():
            raise BookClosed("the server is shutting down: nothing was done")
        admission = await self._gate.admit(request)
        line.actor, line.token = admission.caller.actor, admission.token
        return self._gate.as_asked(request, admission)

    async def _no_route(self, request: Request, error: Exception) -> Response:
        """What is answered where there is no route, or not with this method."""
        assert isinstance(error, HTTPException)
        line = LogLine(request)
        if error.status_code == 405:
            allowed = _methods(request.url.path, (error.headers or {}).get("Allow", "GET"))
            answer = problem(
                BadMethod(f"{request.method} is not served here: use {allowed}", allowed), line.id
            )
        else:
            answer = problem(
                NotFound("there is nothing at this address: /openapi.json lists what there is"), line.id
            )
        return self._finished(line, answer)

    def _finished(self, line: LogLine, answer: Response) -> Response:
        """An answer with the headers that all have, once it is in the log."""
        answer.headers.update(self._own_headers(line))
        if self.closing.is_set():
            answer.headers["Connection"] = "close"
        line.write(answer.status_code)
        return answer

    def _own_headers(self, line: LogLine) -> dict[str, str]:
        """Those of every answer."""
        return {
            "X-Request-Id": line.id,
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Commonplace-Instance": self.instance,
        }

    async def _in_thread(self, admission: Admission, call: Callable[[], T]) -> T:
        with self.calls.hold(admission.token):
            return await self._threads.run(admission.token, call)

    async def _body(self, request: Request, token: str, held: ExitStack) -> Body:
        """The body of a request, whose room is `held` for the token. Raises TooLarge, TooManyRequests, and BadInput for
        one that does not arrive in time."""
        parts, size, digest = [], 0, sha256()
        declared = request.headers.get("content-length", "0")
        if declared.isdigit() and int(declared) > self.limits.body:
            raise TooLarge(f"a body of {declared} bytes is over the limit of {self.limits.body:,}")
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                async for part in request.stream():
                    size += len(part)
                    if size > self.limits.body:
                        raise TooLarge(f"the body is over the limit of {self.limits.body:,} bytes")
                    held.enter_context(self._bodies.hold(token, len(part)))
                    parts.append(part)
                    digest.update(part)
        except TimeoutError:
            raise BadInput(f"the body did not arrive within {self.limits.body_seconds:g} seconds") from None
        return Body(b"".join(parts), digest.digest())

    # another application at one address

    async def _serve_mounted(self, mounted: Any, scope: Any, receive: Any, send: Any) -> None:
        """A mounted application serves what it answers itself; the checks and the limits are the same as everywhere."""
        request = Request(scope, receive)
        line = LogLine(request)
        with ExitStack() as used:
            try:
                admission = await self._admitted(request, line)
                # Whether it may act as it asks to is said before anything of it is read.
                await self._in_thread(admission, partial(admission.caller.participant, self.book))
                body, _ = await self._body(request, admission.token, used)
                self._sessions.check(request, body, admission.token)
                listens = _only_listens(request)
                used.enter_context((self.streams if listens else self.calls).hold(admission.token))
                request.state.client = admission.token
            except Exception as error:  # noqa: BLE001  told to the client, and logged if it was not expected
                used.close()
                await self._finished(line, _refusal(line, error))(scope, receive, send)
                return
            messages = [{"type": "http.request", "body": body, "more_body": False}]

            async def received() -> Any:
                return messages.pop() if messages else await receive()

            async def noted(message: Any) -> None:
                if message["type"] == "http.response.start":
                    headers, status = message.get("headers", ()), message["status"]
                    self._sessions.note(request, status, headers, admission.token)
                    message = {**message, "headers": self._with_own_headers(headers, line)}
                    line.write(status)
                await send(message)

            await self._run_mounted(mounted(scope, received, noted), line, ends_with_server=listens)

    def _with_own_headers(self, theirs: Iterable[tuple[bytes, bytes]], line: LogLine) -> list[Any]:
        own = {name.lower().encode(): value.encode() for name, value in self._own_headers(line).items()}
        return [*(pair for pair in theirs if pair[0].lower() not in own), *own.items()]

    async def _run_mounted(
        self, serving: Coroutine[Any, Any, None], line: LogLine, *, ends_with_server: bool
    ) -> None:
        """Let a mounted application answer. What only listens would never end by itself, so it ends with the server."""
        served = asyncio.ensure_future(serving)
        ends = asyncio.ensure_future(self.closing.wait())
        try:
            await asyncio.wait({served, ends} if ends_with_server else {served}, return_when=FIRST_COMPLETED)
            error = served.exception() if served.done() and not served.cancelled() else None
            if error is not None and self.closing.is_set():
                log.warning("request=%s was ended with the server: %s", field(line.id), type(error).__name__)
            elif error is not None:
                raise error
        finally:
            served.cancel()
            ends.cancel()
            await asyncio.gather(served, ends, return_exceptions=True)

    # verbs

    async def _verb(self, request: Request, admission: Admission) -> Response:
        """Reading the arguments, the call and writing the answer are done on a thread: one large request delays nobody
        else."""
        route = request.path_params["path"]
        path = route.replace("/", ".")
        if path in ONLY_GET:
            raise BadMethod(f"{path} is asked for with GET", "GET")
        verb = verb_named(path if "." not in route else "")
        if not admission.allows(path):
            raise Denied(f"this token does not allow {path}")
        if request.method != "POST" and not verb.reads:
            raise BadMethod(f"{path} writes: use POST", "POST")
        with ExitStack() as held:
            token = admission.token
            body = await self._body(request, token, held) if request.method == "POST" else None
            call = VerbCall(request, admission, verb, body)
            if not verb.reads:
                return (await self._written(call)).response()
            if verb.facts.writes_file:
                held.enter_context(self._files.hold(token))
                file = await self._in_thread(admission, partial(self._file, call))
                return FileResponse(file.content, file.answer, held.pop_all())
            answers = self._events if path == "events" else self._answer
            answer = await self._in_thread(admission, partial(answers, call))
            return answer.response(request.headers.get("if-none-match", ""))

    def _answer(self, call: VerbCall, said: Arguments | None = None) -> Rendered:
        """What a verb answers; `said` are arguments that come from the request's headers."""
        caller, verb = call.admission.caller, call.verb
        as_of: int | None = None

        def read() -> Arguments:
            nonlocal as_of
            given = _with_headers(self._arguments(call), said or {})
            if verb.reads:  # before it is read: what is written meanwhile is newer than the tag
                as_of = self.book.ledger.position(given.get("at"))
            return given

        if verb.facts.reads_file:
            name, content = header(call.request, "file") or "content", call.content
            answer = call_reading(self.book, caller, verb, read, name, content)
        else:
            answer = call_for(self.book, caller, verb, read)
        if hasattr(answer, "__next__"):
            answer = list(answer)
        return rendered(answer, typed=is_typed(call.request), as_of=as_of)

    def _arguments(self, call: VerbCall) -> Arguments:
        """The arguments of a call. Long ones, which tell their progress, are given up when the server has to end."""
        given = call.arguments()
        if any(parameter.name == "progress" for parameter in call.verb.parameters):
            given["progress"] = self.go_on
        return given

    def go_on(self, _done: int, _total: int) -> None:
        """Called between two parts of a long call. Raises BookClosed when the server has to end."""
        if self.ends_at is not None and monotonic() > self.ends_at:
            raise BookClosed("the server is shutting down: only a part was done; do it again when it is back")

    def _events(self, call: VerbCall) -> Rendered:
        """One page of events; `next` is where the following one begins."""
        most, as_of = self.limits.page, 0

        def asked() -> Arguments:
            nonlocal most, as_of
            given = call.arguments()
            most = min(given.pop("limit", None) or most, most)
            as_of = self.book.ledger.position(given.get("at"))
            return {**given, "at": as_of}

        events = call_for(self.book, call.admission.caller, call.verb, asked)
        page = page_of(events, is_typed(call.request), most, self.limits.page_bytes)
        return page.rendered(as_of, is_typed(call.request))

    def _file(self, call: VerbCall) -> WrittenFile:
        """The file that a verb writes, and its answer."""
        return call_writing(self.book, call.admission.caller, call.verb, partial(self._arguments, call))

    async def _written(self, call: VerbCall) -> Rendered:
        """The answer of a verb that writes, on the conditions that the headers name."""
        tag, key = call.request.headers.get("if-match"), call.request.headers.get("idempotency-key")
        said: Arguments = {}
        if tag is not None:
            if "if_position" not in {parameter.name for parameter in call.verb.parameters}:
                raise BadInput(f"{call.path} has no version to compare: leave If-Match out")
            said["if_position"] = position_in(tag)
        own_id = {} if key is None else _own_id(call, key)
        make = partial(self._in_thread, call.admission, partial(self._answer, call, said | own_id))
        try:
            return await (make() if key is None else self._once(call, key, make, has_id=bool(own_id)))
        except Stale as stale:
            if tag is not None:
                stale.status = 412  # what HTTP says of an If-Match that does not hold
            raise

    async def _once(
        self, call: VerbCall, key: str, make: Callable[[], Awaitable[Rendered]], *, has_id: bool
    ) -> Rendered:
        """What has an id of its own is made once for ever, because its id comes from the key. Other calls are made once
        as long as this process remembers them; one that may have reached an earlier process has an unknown outcome."""
        call.request.state.key_seen = True
        sent_to = call.request.headers.get("commonplace-sent-to")
        sent_after = None if sent_to is None or has_id else self._time_of(sent_to)
        answer = await self._repeats.once(call.admission.token, key, call.digest, make, sent_after=sent_after)
        if answer is None:
            raise Conflict("this Idempotency-Key was used for another call: choose a new one for each")
        return answer

    def _time_of(self, instance: str) -> float:
        """When this process has told a client so. Raises OutcomeUnknown for an earlier process."""
        process, _, told = instance.partition(".")
        if process != self._process or not (told.isascii() and told.isdigit() and len(told) < 16):
            raise OutcomeUnknown((), "the server was started anew after the call was sent")
        return self._began + int(told) / 1000

    # the change feed

    async def _watch(self, request: Request, admission: Admission) -> Response:
        verb = _watched(request)
        if not admission.allows(verb.dotted):
            raise Denied(f"this token does not allow {verb.dotted}")
        await self._in_thread(admission, partial(admission.caller.participant, self.book))
        given = from_query(verb, request.query_params.multi_items())
        last = request.headers.get("last-event-id")
        if last is not None:
            given["after"] = position_of(last)
        timeout, after = given.pop("timeout", None), given.get("after")
        check_seconds("timeout", timeout)

        def begin() -> int:
            """Where the stream begins. Whatever is wrong with the call is said before it does."""
            head = self.book.head
            next(call_for(self.book, admission.caller, verb, lambda: {**given, "timeout": 0}), None)
            return head

        head = await self._in_thread(admission, begin)
        slot = ExitStack()
        slot.enter_context(self.streams.hold(admission.token))
        asked = StreamRequest(
            admission.caller, token_of(request), admission.token, given,
            head if after is None else after, timeout, is_typed(request), verb,
        )  # fmt: skip
        return EventStreamResponse(self._event_streams.events(asked), slot, request.state.line)

    # the server itself

    async def _health(self, _request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _ready(self, request: Request) -> Response:
        """Whether the book can be read."""
        try:
            self._readings.take(request.client.host if request.client else "")
            if self.closing.is_set():
                raise BookClosed("the server is shutting down")
            await self._gate.look_up("readiness", lambda: self.book.head)
        except TooManyRequests as error:
            return problem(error, LogLine(request).id)
        except (EngineUnavailable, BookClosed) as error:
            return JSONResponse({"status": "not ready", "code": error.code}, 503, {"Retry-After": "1"})
        return JSONResponse({"status": "ready"})

    async def _openapi(self, _request: Request, admission: Admission) -> Response:
        from .openapi import written

        return Response(await self._in_thread(admission, written), 200, {}, "application/json")

    async def _about(self, request: Request, admission: Admission) -> Response:
        """Which book this is, and who the caller is in it."""
        caller = admission.caller
        about = {
            "id": self.book.id,
            "name": self.book.name,
            "head": await self._in_thread(admission, partial(self._position, caller)),
            "version": __version__,
            "actor": caller.as_actor or caller.actor,
            "scope": caller.in_scope or caller.scope,
            "reads": [*caller.reads, *caller.reading],
        }
        return rendered(about, typed=is_typed(request)).response()

    async def _head(self, request: Request, admission: Admission) -> Response:
        """The last position; with `beyond`, once it is higher than that, or after `timeout` seconds."""
        position, seconds = _awaited_position(request.query_params.multi_items())
        head = await self._in_thread(admission, partial(self._position, admission.caller))
        if position is not None and head <= position and seconds > 0:
            with self.streams.hold(admission.token):
                await self._event_streams.grown(position, seconds)
            head = await self._in_thread(admission, partial(self._position, admission.caller))
        return rendered({"head": head}, typed=is_typed(request)).response()

    def _position(self, caller: Caller) -> int:
        """The last position, for a caller that may act as it asks to."""
        caller.participant(self.book)
        return self.book.head


class McpHost:
    """The server, as the MCP server that is mounted in it asks: about requests that were let in before."""

    remote = True

    def __init__(
        self, book: Book, gate: Gate, threads: FairThreads, go_on: Callable[[int, int], None]
    ) -> None:
        self._book, self._gate, self._threads, self.go_on = book, gate, threads, go_on

    def participant(self, ctx: Any) -> Participant:
        """Who makes a request, as its token is now. Raises Unauthorized and Denied."""
        return self._gate.again(ctx.request).caller.participant(self._book)

    def client(self, ctx: Any) -> str:
        return str(ctx.request.state.client)

    def allows(self, ctx: Any) -> Callable[[str], bool]:
        return self._gate.again(ctx.request).allows

    async def run(self, ctx: Any, call: Callable[[], T]) -> T:
        """On a thread; clients take turns, as everywhere."""
        return await self._threads.run(self.client(ctx), call)


class Body(NamedTuple):
    """The body of a request, and its SHA-256."""

    content: bytes
    digest: bytes


class VerbCall(NamedTuple):
    """One call of a verb: the request, who makes it, and its body, if it has one."""

    request: Request
    admission: Admission
    verb: Verb
    body: Body | None

    @property
    def content(self) -> bytes:
        return b"" if self.body is None else self.body.content

    @property
    def path(self) -> str:
        return ".".join(self.verb.path)

    @property
    def digest(self) -> bytes:
        """Of what was asked for, which is the same when the call is sent again."""
        headers = [self.request.headers.get(name) for name in SAYING_WHAT]
        asked = f"{self.path} {self.request.url.query} {headers}\n"
        return sha256(asked.encode() + (b"" if self.body is None else self.body.digest)).digest()

    def arguments(self) -> Arguments:
        """Those in the body, or in the query if there is none, or if it is the content of a file. Raises BadInput."""
        if self.body is not None and not self.verb.facts.reads_file:
            return from_body(self.request, self.verb, self.content)
        query = self.request.query_params.multi_items()
        return from_query_of_page(self.verb, query) if self.path == "events" else from_query(self.verb, query)


def _refusal(line: LogLine, error: Exception) -> Response:
    """What is answered in place of what was asked for. The log has the error if the server has failed."""
    if isinstance(error, ClientDisconnect):
        return Response(status_code=499)
    if isinstance(error, CommonplaceError):
        return problem(error, line.id)
    log.error("request=%s failed", field(line.id), exc_info=error)
    return problem(ServerFailed(f"the server failed: {type(error).__name__}; see its log"), line.id)


def _own_id(call: VerbCall, key: str) -> Arguments:
    """The id of what a call with an idempotency key makes, or of the event of a claim, if the verb takes one: the same
    for each repetition. Raises BadInput."""
    if not 1 <= len(key) <= 200:
        raise BadInput("Idempotency-Key has 1 to 200 characters")
    name = "id" if call.verb.facts.own_id else "_event" if "_event" in call.verb.inner else ""
    id = str(uuid5(UUID(int=0), sha256(f"{call.admission.token}\n{call.path}\n{key}".encode()).hexdigest()))
    return {name: id} if name else {}


def _with_headers(given: Arguments, said: Arguments) -> Arguments:
    """Arguments, and what the headers of their request have said. An id among the arguments comes before that of a key.
    Raises BadInput for a version that both name."""
    for name, value in said.items():
        if given.get(name) is None:
            given[name] = value
        elif name == "if_position":
            raise BadInput("If-Match and if_position both name a version: give one of them")
    return given


def _only_listens(request: Request) -> bool:
    """Whether a request to the MCP server is answered by a stream of changes."""
    in_session = "mcp-session-id" in request.headers
    return request.method == "GET" or (request.headers.get("mcp-method") == LISTEN and not in_session)


def _methods(path: str, otherwise: str) -> str:
    """The methods that are served at an address."""
    dotted = path.removeprefix("/v1/").replace("/", ".") if path.startswith("/v1/") else ""
    if dotted in ONLY_GET:
        return "GET"
    verb = served().get(dotted)
    return otherwise if verb is None else "GET, POST" if verb.reads else "POST"


def _watched(request: Request) -> Verb:
    """The verb whose events a request asks for: of the whole book, or of one work."""
    return served()["work.watch" if request.url.path.endswith("/v1/work/watch") else "watch"]


def _awaited_position(query: Iterable[tuple[str, str]]) -> tuple[int | None, float]:
    """What `/v1/head` waits for, and how many seconds at most."""
    given = dict(query)
    unknown = given.keys() - {"beyond", "timeout"}
    beyond, timeout = given.get("beyond"), given.get("timeout", "25")
    try:
        position = None if beyond is None else int(beyond)
        seconds = min(float(timeout), LONGEST_WAIT)
        if unknown or not seconds >= 0 or (position is not None and not 0 <= position < 2**63):
            raise ValueError
    except ValueError:
        raise BadInput("head takes beyond, a position, and timeout, a number of seconds from 0") from None
    return position, seconds
