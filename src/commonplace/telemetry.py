"""What a process tells OpenTelemetry of the verbs that it is asked for: spans and durations, under the names of the
GenAI, MCP and HTTP conventions.

Nothing is told unless the process has configured a provider of the OpenTelemetry SDK, and this module does not import
it. Every call of a verb is one span, named as `OPERATIONS` says. Verbs that are called inside a verb get no span: one
search would produce a dozen. Two things within a verb are told: each recall,
as `memory.recall`, and what the caller's own functions ask for while a verb runs them.

A span says who (the agent, the run), what (the operation, the ids and the number of records) and how it ended (the
code of the error). It never says what was written or found, or any name that can be erased, unless the capture of
content is switched on; and then without secrets, and without anything that is sensitive.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from inspect import signature, unwrap
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from .errors import CommonplaceError
from .version import __version__

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import Histogram, MeterProvider
    from opentelemetry.trace import Span, SpanKind, Tracer, TracerProvider

    from .session import Session

log = logging.getLogger("commonplace")

SDK = "opentelemetry.sdk"
"""Without this module there is no provider. Looking for it among the modules that are loaded is all that a verb costs
where nothing is told."""

OPERATIONS = {
    "search": "search_memory",
    "digest": "search_memory",
    "memory.get": "search_memory",
    "memory.list": "search_memory",
    "memory.long_term": "search_memory",
    "memory.traverse": "search_memory",
    "receipts.window": "search_memory",
    "receipts.salient": "search_memory",
    "documents.log": "create_memory",
    "remember": "upsert_memory",
    "memory.add_many": "upsert_memory",
    "memory.repository_fact": "upsert_memory",
    "memory.curate": "upsert_memory",
    "memory.import_": "upsert_memory",
    "learn.promote": "upsert_memory",
    "thread.learn": "upsert_memory",
    "work.promote": "upsert_memory",
    "memory.resolve": "update_memory",
    "memory.revise": "update_memory",
    "memory.share": "update_memory",
    "memory.unshare": "update_memory",
    "memory.verify": "update_memory",
    "memory.archive": "update_memory",
    "memory.restore": "update_memory",
    "memory.link": "update_memory",
    "forget": "delete_memory",
    "runs.execute": "invoke_workflow",
}
"""The verbs that the GenAI conventions have a name for. Whatever may merge what it is given with what is known is an
upsert. Any other verb is `commonplace.` and its path, such as `commonplace.work.claim`."""

OF_RECORDS = {"search_memory", "create_memory", "upsert_memory", "update_memory", "delete_memory"}
CALLS_BACK = {"runs.execute"}
"""Verbs that run agents of the caller: what these ask for has spans of its own."""

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
CAPTURES_IN_SPANS = {"true", "span_only", "span_and_event"}
MOST_RECORDS, MOST_CHARS = 20, 2_000
"""How many records are captured of one call, and how many characters of one text."""

GENAI_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
VERB_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, *GENAI_SECONDS)
"""The buckets of the conventions, and finer ones below: most verbs take less than the first of theirs."""
MCP_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
HTTP_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
HTTP_METHODS = {"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"}

HTTP_SPAN = "commonplace.span"
"""Where the scope of an ASGI request has its span, for what is mounted below."""

_verb: ContextVar[str] = ContextVar("commonplace_verb", default="")
"""The path of the verb that runs here, if one does."""


# whether anybody listens


class _Instruments(NamedTuple):
    """The tracer and the histograms of one pair of providers."""

    providers: tuple[TracerProvider, MeterProvider]
    tracer: Tracer
    verbs: Histogram
    tools: Histogram
    mcp: Histogram
    http: Histogram
    recalled: Histogram


_made: _Instruments | None = None


def is_on() -> bool:
    """Whether this process has configured a provider."""
    return _instruments() is not None


def _instruments() -> _Instruments | None:
    global _made
    if SDK not in sys.modules:
        return None
    from opentelemetry import metrics, trace

    providers = trace.get_tracer_provider(), metrics.get_meter_provider()
    made = _made
    if made is None or made.providers != providers:
        if not any(map(has_provider, providers)):
            return None
        made = _made = _instruments_of(*providers)
    return made


def has_provider(provider: object) -> bool:
    """Whether this provider is more than what the API has in its place until there is one."""
    return not type(provider).__module__.startswith(("opentelemetry.trace", "opentelemetry.metrics"))


def _instruments_of(tracers: TracerProvider, meters: MeterProvider) -> _Instruments:
    meter = meters.get_meter("commonplace", __version__)

    def seconds(name: str, bounds: tuple[float, ...], about: str) -> Histogram:
        return meter.create_histogram(name, "s", about, explicit_bucket_boundaries_advisory=bounds)

    return _Instruments(
        (tracers, meters),
        tracers.get_tracer("commonplace", __version__),
        seconds("gen_ai.client.operation.duration", VERB_SECONDS, "GenAI operation duration."),
        seconds("gen_ai.execute_tool.duration", GENAI_SECONDS, "The duration of a single tool execution."),
        seconds("mcp.server.operation.duration", MCP_SECONDS, "MCP request or notification duration."),
        seconds("http.server.request.duration", HTTP_SECONDS, "Duration of HTTP server requests."),
        meter.create_histogram("memory.visible_count", "{item}", "Items and events that a recall has shown."),
    )


# spans


class OpenSpan(NamedTuple):
    """A span that has begun, and what its duration is counted by."""

    span: Span
    counted: MutableMapping[str, Any]

    def tell(self, name: str, value: str | int) -> None:
        """An attribute of the span and of its duration."""
        self.span.set_attribute(name, value)
        self.counted[name] = value

    def fail(self, kind: str, message: str | None = None) -> None:
        """Say that it has ended in an error, of this kind."""
        from opentelemetry.trace import StatusCode

        self.tell("error.type", kind)
        self.span.set_status(StatusCode.ERROR, message)


@contextmanager
def _spanning(
    instruments: _Instruments,
    name: str,
    kind: SpanKind,
    attributes: Mapping[str, Any],
    durations: Histogram | None,
    counted: Mapping[str, Any],
    parent: Context | None = None,
    links: Any = None,
    message: Callable[[BaseException], str | None] = lambda _error: None,
) -> Iterator[OpenSpan]:
    """A span around a block, and its duration. Of an error it has the kind, and what `message` makes of it: the error
    itself, which OpenTelemetry would record, quotes what people have written."""
    opened, begun = instruments.tracer.start_as_current_span, time.perf_counter()
    with opened(
        name, parent, kind, attributes, links, record_exception=False, set_status_on_exception=False
    ) as span:
        current = OpenSpan(span, dict(counted))
        try:
            yield current
        except BaseException as error:
            current.fail(_kind_of(error), message(error))
            raise
        finally:
            if durations is not None:
                durations.record(time.perf_counter() - begun, current.counted)


def _kind_of(error: BaseException) -> str:
    return error.code if isinstance(error, CommonplaceError) else type(error).__qualname__


# verbs


def in_span(
    verb: Callable[..., Any],
    ask: Callable[[Any, tuple[Any, ...], Mapping[str, Any]], Any],
    holder: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Any:
    """Ask for a verb of a book, an actor or a handle, within a span, if anybody listens. An answer that is read piece
    by piece is read after its span has ended."""
    instruments, within = _instruments(), _verb.get()
    if instruments is None or (within and within not in CALLS_BACK):
        return ask(holder, args, kwargs)
    from opentelemetry.trace import SpanKind

    session, path = holder._session, _path_of(verb)
    operation = OPERATIONS.get(path, f"commonplace.{path}")
    counted = {"gen_ai.operation.name": operation, "commonplace.verb": path}
    attributes = {**counted, **_asked_by(session)}
    kind = SpanKind.INTERNAL
    if session.remote is not None:
        kind, server = SpanKind.CLIENT, _address(session.remote.connection.url)
        attributes |= server
        counted |= server
    content = _Content(session, verb, holder, args, kwargs)
    entered = _verb.set(path)
    try:
        with _spanning(
            instruments, operation, kind, attributes, instruments.verbs, counted, message=content.message
        ) as current:
            answer = ask(holder, args, kwargs)
            if current.span.is_recording():
                current.span.set_attributes(_about(operation, answer))
                current.span.set_attributes(_conversation(holder))
                current.span.set_attributes(content.of(answer))
            return answer
    finally:
        _verb.reset(entered)


@cache
def _paths() -> dict[Callable[..., Any], str]:
    from .registry import every_verb

    return {verb.function: verb.dotted for verb in every_verb(properties=True)}


def _path_of(verb: Callable[..., Any]) -> str:
    return _paths().get(verb, verb.__name__)


def _asked_by(session: Session) -> dict[str, str]:
    """The ids that a book keeps for ever. Names that can be erased are none of them."""
    remote = session.remote
    store = session.ledger.meta.book if remote is None else remote.connection.book
    ids = {
        "gen_ai.memory.store.id": store,
        "gen_ai.agent.id": session.actor,
        "gen_ai.agent.name": session.actor,
        "commonplace.run.id": session.run,
    }
    return {name: id for name, id in ids.items() if id}


@cache
def _address(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    return {
        "server.address": parts.hostname or "",
        "server.port": parts.port or (443 if parts.scheme == "https" else 80),
    }


def _about(operation: str, answer: Any) -> dict[str, str | int]:
    """Which records an answer is about, and how many."""
    about: dict[str, str | int] = {}
    receipt = getattr(answer, "receipt_id", None)
    if isinstance(receipt, str):
        about["commonplace.receipt.id"] = receipt
    if operation not in OF_RECORDS:
        return about
    id = getattr(answer, "id", None)
    if isinstance(id, str):
        return {**about, "gen_ai.memory.record.id": id, "gen_ai.memory.record.count": 1}
    held = [
        getattr(answer, name, None) for name in ("item_ids", "items")
    ]  # of a digest, of what was forgotten
    records = next((each for each in held if isinstance(each, tuple)), answer)
    if isinstance(records, Sized) and not isinstance(records, str):
        about["gen_ai.memory.record.count"] = len(records)
    return about


def _conversation(holder: Any) -> dict[str, str]:
    """The key of a conversation, which tells nothing of its name. A client does not ask its server for it."""
    from .threads.verbs import Thread

    if not isinstance(holder, Thread) or holder._session.remote is not None:
        return {}
    try:
        key = holder.id
    except CommonplaceError:  # a book that was closed meanwhile
        return {}
    return {} if key is None else {"gen_ai.conversation.id": key}


def made_store(session: Session, begun_ns: int) -> None:
    """Tell of a book that was made, if it was; it began at this time."""
    instruments = _instruments()
    if instruments is not None and session.ledger.created:
        operation = {"gen_ai.operation.name": "create_memory_store"}
        span = instruments.tracer.start_span(
            "create_memory_store", attributes={**operation, **_asked_by(session)}, start_time=begun_ns
        )
        span.end()
        instruments.verbs.record((time.time_ns() - begun_ns) / 1e9, operation)


# recall


@contextmanager
def recalling(agent: str, mode: str, **more: Any) -> Iterator[dict[str, Any]]:
    """A span `memory.recall` around a recall. What the caller puts into the mapping becomes its attributes; `text` is
    what was recalled, and goes to the log alone, at the level of debugging."""
    attributes: dict[str, Any] = {"agent": agent, "memory.mode": mode, **more}
    instruments = _instruments()
    if instruments is None:
        yield attributes
        _log(attributes)
        return
    from opentelemetry.trace import SpanKind

    with _spanning(instruments, "memory.recall", SpanKind.INTERNAL, {}, None, {}) as current:
        yield attributes
        _log(attributes)
        told = {name: value for name, value in attributes.items() if value is not None and name != "text"}
        current.span.set_attributes(told)
        instruments.recalled.record(attributes.get("memory.visible_count", 0), {"memory.mode": mode})


def _log(attributes: Mapping[str, Any]) -> None:
    if log.isEnabledFor(logging.DEBUG):
        from .access.masking import masked

        log.debug("memory.recall %s", masked(dict(attributes)))


# tools and servers


@contextmanager
def executing(name: str | None) -> Iterator[Callable[[str], None]]:
    """A span around a tool that this process calls by its name; None for one that there is not. Yields what to call
    with the code of the error that it has ended in."""
    instruments = _instruments()
    if instruments is None:
        yield lambda _code: None
        return
    from opentelemetry.trace import SpanKind

    tool = {"gen_ai.operation.name": "execute_tool"} | ({} if name is None else {"gen_ai.tool.name": name})
    attributes = {**tool, "gen_ai.tool.type": "function"}
    span_name = " ".join(filter(None, ("execute_tool", name)))
    with _spanning(instruments, span_name, SpanKind.INTERNAL, attributes, instruments.tools, tool) as current:
        yield current.fail


@contextmanager
def answering_mcp(
    method: str | None,
    target: Mapping[str, str],
    attributes: Mapping[str, Any],
    meta: Mapping[str, Any] | None,
    request: Any,
) -> Iterator[OpenSpan | None]:
    """A span around the answer to a message of a client of MCP. `target` is the tool or the prompt that it names, if
    there is one; a method that there is not is None. The client's context is the parent, and the HTTP request that
    brought it is linked; without one the HTTP request is the parent."""
    instruments = _instruments()
    if instruments is None:
        yield None
        return
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, SpanKind, get_current_span, set_span_in_context

    counted = {"mcp.method.name": method or "_OTHER", **target}
    if method == "tools/call":
        counted["gen_ai.operation.name"] = "execute_tool"
    sent, parent, links = _context(meta), None, None
    # Over HTTP a session's task began within its first request: what is current in it says nothing of this one.
    brought = None if request is None else request.scope.get(HTTP_SPAN)
    if get_current_span(sent).get_span_context().is_valid:
        parent, links = sent, brought and [Link(brought.get_span_context())]
    elif brought is not None:
        parent = set_span_in_context(brought, Context())
    transport = {"network.transport": "pipe" if request is None else "tcp"}
    if request is not None:
        transport["network.protocol.name"] = "http"
    names = [name for key, name in target.items() if key.endswith(".name")]
    with _spanning(
        instruments, " ".join([counted["mcp.method.name"], *names]), SpanKind.SERVER,
        {**counted, **attributes, **transport}, instruments.mcp, {**counted, **transport}, parent, links,
    ) as current:  # fmt: skip
        yield current


@contextmanager
def answering_http(scope: MutableMapping[str, Any], route: str | None) -> Iterator[Callable[[int], None]]:
    """A span around the answer to an HTTP request, which continues the trace of its client. Yields what to call with
    its status. `route` is None where there is nothing."""
    instruments = _instruments()
    if instruments is None:
        yield lambda _status: None
        return
    from opentelemetry.trace import SpanKind

    method = scope["method"] if scope["method"] in HTTP_METHODS else "_OTHER"
    counted = {"http.request.method": method, "url.scheme": scope.get("scheme", "http")}
    if route is not None:
        counted["http.route"] = route
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    name = " ".join(filter(None, ("HTTP" if method == "_OTHER" else method, route)))
    with _spanning(
        instruments, name, SpanKind.SERVER, counted, instruments.http, counted, _context(headers)
    ) as current:
        scope[HTTP_SPAN] = current.span

        def answered(status: int) -> None:
            current.tell("http.response.status_code", status)
            if status >= 500:
                current.fail(str(status))

        yield answered


def _context(carrier: Mapping[str, Any] | None) -> Context:
    """The context that a client has sent, and nothing of what is current here."""
    from opentelemetry.context import Context
    from opentelemetry.propagate import extract

    texts = {name: value for name, value in (carrier or {}).items() if isinstance(value, str)}
    return extract(texts, Context())


def carry(headers: MutableMapping[str, str]) -> None:
    """Add to the headers of a request which trace it belongs to."""
    if _instruments() is not None:
        from opentelemetry.propagate import inject

        inject(headers)


# content


def captures() -> bool:
    """Whether spans may say what was written and found."""
    return os.environ.get(CAPTURE, "").strip().lower() in CAPTURES_IN_SPANS


def tell_of_call(session: Session, arguments: Any) -> None:
    """Add to the span of a tool who calls it, and if content is captured, with which arguments. What a tool answers is
    not captured: it may be a text that was made from many items. The records are on the spans of the verbs within, and
    the text can be replayed from its receipt, under the rights of who asks."""
    if not is_on():
        return
    from opentelemetry.trace import get_current_span

    span = get_current_span()
    span.set_attributes(_asked_by(session))
    told = _shown(session, arguments) if captures() and not _is_sensitive(arguments) else None
    if told is not None:
        span.set_attribute("gen_ai.tool.call.arguments", _as_json(told))


class _Content:
    """What a span may say of one call where content is captured."""

    def __init__(
        self,
        session: Session,
        verb: Callable[..., Any],
        holder: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> None:
        self._session, self._call = session, (verb, holder, args, kwargs)

    def message(self, error: BaseException) -> str | None:
        """The message of an error, which may quote the arguments."""
        if not captures() or _is_sensitive(self._given()):
            return None
        text = _shown(self._session, str(error))
        return text if isinstance(text, str) else None

    def of(self, answer: Any) -> dict[str, str]:
        if not captures():
            return {}
        given = self._given()
        if _is_sensitive(given):
            return {}
        content = {
            "gen_ai.memory.query.text": given.get("query"),
            "commonplace.scope": self._scope(),
            "commonplace.thread": getattr(self._call[1], "name", None) if self._is_of_thread() else None,
            "gen_ai.memory.records": self._records(given, answer),
        }
        shown = {name: _shown(self._session, value) for name, value in content.items() if value}
        return {
            name: value if isinstance(value, str) else _as_json(value)
            for name, value in shown.items()
            if value is not None
        }

    def _given(self) -> dict[str, Any]:
        """The arguments by their names; none of a call that does not fit its verb, which has raised TypeError."""
        verb, holder, args, kwargs = self._call
        try:
            arguments = signature(unwrap(verb)).bind(holder, *args, **kwargs).arguments
        except TypeError:
            return {}
        return dict(list(arguments.items())[1:])

    def _scope(self) -> str | None:
        from .ledger.scopes import written

        return written(self._session.scope) if self._session.remote is None and self._session.scope else None

    def _is_of_thread(self) -> bool:
        from .threads.verbs import Thread

        return isinstance(self._call[1], Thread)

    def _records(self, given: Mapping[str, Any], answer: Any) -> list[dict[str, Any]]:
        """The items and results of an answer, or what was remembered, without those that are sensitive."""
        if self._session.remote is not None:
            return []
        from .ledger.printing import Listing
        from .memory.requests import RememberResult

        if isinstance(answer, RememberResult):
            text = given.get("text")
            content = {str(given.get("key")): given.get("value")} if text is None else text
            records = [{"id": answer.item_id, "content": content}]
        else:
            listed = isinstance(answer, list | tuple | Listing)
            records = list(filter(None, map(_record, islice(answer, MOST_RECORDS) if listed else [answer])))
        return [record for record in records if _may_be_told(self._session, str(record["id"]))]


def _record(entry: object) -> dict[str, Any] | None:
    """An item or a result of a search as a record of the conventions."""
    from .memory.items import Item
    from .recall.search import SearchResult

    if isinstance(entry, Item):
        return {
            "id": entry.id,
            "content": {str(entry.key): entry.value} if entry.body is None else entry.body,
        }
    if isinstance(entry, SearchResult):
        return {"id": entry.id, "content": entry.content, "score": entry.score}
    return None


def _is_sensitive(value: Any) -> bool:
    """Whether something says of itself, or of a part, that it is sensitive."""
    if isinstance(value, Mapping):
        return value.get("sensitivity") == "sensitive" or any(map(_is_sensitive, value.values()))
    return isinstance(value, list | tuple) and any(map(_is_sensitive, value))


def _may_be_told(session: Session, id: str) -> bool:
    """Whether an item or an event is there and is not sensitive by now."""
    from .memory.reading import item_at

    try:
        with session.snapshot() as now:
            item, changed = item_at(now, id), now.get("labels", id) or {}
        labels = {} if item is None else {"sensitivity": item.sensitivity}
        if item is None:
            events = list(session.ledger.events_by_id([id]))
            labels = events[0].labels if events else {"sensitivity": "sensitive"}
    except CommonplaceError:
        return False
    return {**labels, **changed}.get("sensitivity") != "sensitive"


def _shown(session: Session, value: Any) -> Any:
    """A value as a log may show it: without what its run has declared secret, and without what looks like a secret.
    None where that cannot be said: a client does not know what the runs of its server keep secret."""
    from .state.redaction import redactor_of

    if session.remote is not None:
        return None
    try:
        with session.ledger.snapshot() as now:
            hide = redactor_of(now, session.run)
        return _masked(hide(value))
    except CommonplaceError:
        return None


def _masked(value: Any) -> Any:
    from .access.masking import beginning, masked

    if isinstance(value, str):
        return beginning(value, MOST_CHARS)
    if isinstance(value, Mapping):
        return {masked(str(name)): _masked(inner) for name, inner in value.items()}
    return list(map(_masked, value)) if isinstance(value, list | tuple) else value


def _as_json(value: Any) -> str:
    return json.dumps(
        value, ensure_ascii=False, default=lambda inner: re.sub(r"\W.*", "", type(inner).__name__)
    )
