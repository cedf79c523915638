"""OpenTelemetry: what each verb, tool and request tells, and what it never tells."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest
import urllib3
from opentelemetry import trace
from opentelemetry.propagate import inject
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

pytest.importorskip("mcp")
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPError

import commonplace
from commonplace import Book, CommonplaceError, Denied
from commonplace.registry import HANDLES, every_verb
from commonplace.state.policy import Policy, Start
from commonplace.state.requests import Open
from commonplace.surfaces.mcp.host import OneClient
from commonplace.surfaces.mcp.server import build_server
from commonplace.surfaces.tools import Tools
from commonplace.telemetry import CAPTURE, OPERATIONS
from commonplace.verbs import Parameter, Verb
from commonplace.workflow.agents import AgentTask

from .serving import served
from .telemetry_seen import Seen
from .workflows import small, write

pytestmark = pytest.mark.spec("7.8")

PLANTED = "Zanzibar secrets"
SECRET = "sk-ant-REDACTED-example-key-1234567890"
SCOPE, THREAD, TAG = "users/mirabelle", "talk-with-mirabelle", "about-mirabelle"
STANDARD = {
    "create_memory", "update_memory", "upsert_memory", "delete_memory", "search_memory", "invoke_workflow",
}  # fmt: skip
ANSWERS_LATER = ("watch", "work.watch")


@pytest.fixture
def book() -> Iterator[Book]:
    with commonplace.open("memory:") as opened:
        yield opened


def told(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def story(function: Callable[[], Any]) -> None:
    async def bounded() -> None:
        with anyio.fail_after(60):
            await function()

    anyio.run(bounded)


# off


def test_a_process_that_has_not_configured_it_does_not_even_load_it(tmp_path: Path) -> None:
    program = (
        "import sys, commonplace\n"
        "with commonplace.open('book.db') as book:\n"
        "    book.remember('the port is 5433')\n"
        "    book.digest('port')\n"
        "    book.record('agent.spoke', payload={'text': 'hello'})\n"
        "print(*[name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == []


def test_with_the_sdk_loaded_and_no_provider_nothing_is_told(tmp_path: Path) -> None:
    program = (
        "import opentelemetry.sdk.trace, opentelemetry.sdk.metrics\n"
        "import commonplace, commonplace.telemetry as telemetry\n"
        "with commonplace.open('book.db') as book:\n"
        "    book.remember('the port is 5433')\n"
        "print(telemetry.is_on(), telemetry._made)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == ["False", "None"]


# every verb


def made_up(parameter: Parameter, folder: Path) -> Any:
    """An argument that names what was planted, wherever that is no id: ids stay in a book for ever."""
    kinds = {getattr(kind, "__origin__", kind) for kind in parameter.kinds}
    names = {getattr(kind, "__name__", str(kind)) for kind in kinds}
    if "Path" in names or parameter.name in ("to", "source", "path"):
        return str(folder / PLANTED)
    if parameter.id_of or parameter.name in (
        "id",
        "run_id",
        "session_id",
        "new_id",
        "actor",
        "name",
        "agent",
    ):
        return "an-id"
    if names & {"Sequence", "Collection", "Iterable", "list"} and str not in kinds:
        return [
            {"text": PLANTED, "role": "user", "content": PLANTED, "kind": "agent.spoke", "title": PLANTED}
        ]
    if names & {"Mapping", "dict"} and str not in kinds:
        return {PLANTED: PLANTED}
    if parameter.name == "timeout":
        return 0
    if bool in kinds or int in kinds or float in kinds:
        return 1 if bool not in kinds else False
    return PLANTED


def asked(verb: Verb, holder: Any, arguments: dict[str, Any]) -> None:
    """Ask for a verb; what it refuses is refused, and told as that."""
    with suppress(CommonplaceError, TypeError, ValueError, AttributeError, OSError):
        answer = verb.function(holder, **arguments)
        if verb.name != "watch" and hasattr(answer, "__next__"):
            list(answer)


def every_holder(book: Book) -> dict[str, Callable[[], Any]]:
    """How to get at the handle of each kind. Each call makes a new one: verbs end what they are asked of."""

    def claim() -> Any:
        work = book.work(name=PLANTED, goal=PLANTED)
        work.add_task(PLANTED)
        return work.claim("dev-1", lease=60)

    return {
        "work": lambda: book.work(name=PLANTED, goal=PLANTED),
        "task": lambda: (work := book.work(name=PLANTED, goal=PLANTED)).task(work.add_task(PLANTED)),
        "claim": claim,
        "lead": lambda: book.work(name=PLANTED, goal=PLANTED).lead("dev-1"),
        "run": lambda: book.run(),
        "turn": lambda: book.run().agent("ada"),
        "thread": lambda: book.thread(THREAD, scope=SCOPE),
    }


@pytest.mark.spec("2.7")
def test_every_verb_is_one_span_with_a_standard_name_or_its_own_and_says_nothing_of_its_arguments(
    seen: Seen, book: Book, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    holders = every_holder(book)
    paths, answered = set[str](), set[str]()
    for verb in every_verb(properties=True):
        path = verb.dotted
        paths.add(path)
        of_handle = len(verb.path) > 1 and verb.path[0] in HANDLES
        ids = {parameter.name for parameter in verb.parameters} if of_handle else set()
        own = [each for each in verb.parameters if each.is_data]
        if of_handle:  # the ids of the handle are in it already
            opened = {"work": 1, "task": 1, "claim": 2, "lead": 4, "run": 1, "turn": 2, "thread": 2}[
                verb.path[0]
            ]
            own = [each for each in own if each.name not in ("work", "run_id", "thread")][
                opened - 1
                if verb.path[0] in ("task", "claim", "turn")
                else 3
                if verb.path[0] == "lead"
                else 0 :
            ]
        assert ids or not of_handle
        for chosen in ([each for each in own if each.required], own):
            holder = holders[verb.path[0]]() if of_handle else book
            for name in verb.path[1 if of_handle else 0 : -1]:
                holder = getattr(holder, name)
            seen.forget()
            asked(verb, holder, {each.name: made_up(each, tmp_path) for each in chosen})
            operation = OPERATIONS.get(path, f"commonplace.{path}")
            (root,) = seen.roots
            assert root.name == operation, path
            about = told(root)
            assert about["gen_ai.operation.name"] == operation
            assert about["commonplace.verb"] == path
            assert about["gen_ai.memory.store.id"] == book.id
            assert about["gen_ai.agent.name"] in ("owner", "ada")
            assert root.kind is SpanKind.INTERNAL
            if root.status.status_code is StatusCode.ERROR:
                assert about["error.type"], path
                assert root.status.description is None
            else:
                answered.add(path)
            inner = {span.name for span in seen.spans} - {root.name, "memory.recall"}
            assert not inner or path == "runs.execute", "the verbs that a verb is made of have no spans"
            for span in seen.spans:
                assert not re.search("Zanzibar|irabelle", span.to_json()), path
    assert not re.search("Zanzibar|irabelle", seen.everything)
    assert len(answered) > len(paths) / 2, "a good share does what it is asked for"
    assert paths >= {*OPERATIONS, "run.status", "turn.state", "thread.id", "work.manage.outlook"}
    assert set(OPERATIONS.values()) <= STANDARD
    counted = seen.durations()["gen_ai.client.operation.duration"]
    assert {point.get("commonplace.verb") for point in counted} - {None} == paths


def test_the_attributes_of_memory_operations(seen: Seen, book: Book) -> None:
    ada = book.as_actor("ada")
    seen.forget()
    kept = ada.remember("Postgres listens on 5433", shared=True)
    found = ada.search("which port does Postgres use")
    ada.memory.revise(kept, body="Postgres listens on 5434")
    digest = ada.digest("Postgres")
    ada.forget(kept.id, confirm="FORGET")
    assert [span.name for span in seen.roots] == [
        "upsert_memory", "search_memory", "update_memory", "search_memory", "delete_memory",
    ]  # fmt: skip
    upsert, search, update, recall, delete = map(told, seen.roots)
    assert upsert == {
        "gen_ai.operation.name": "upsert_memory", "commonplace.verb": "remember", "gen_ai.agent.id": "ada",
        "gen_ai.agent.name": "ada", "gen_ai.memory.store.id": book.id, "gen_ai.memory.record.id": kept.id,
        "gen_ai.memory.record.count": 1,
    }  # fmt: skip
    assert search["gen_ai.memory.record.count"] == len(found) == 1
    assert update["gen_ai.memory.record.id"] == kept.id
    assert recall["commonplace.receipt.id"] == digest.receipt_id
    assert recall["gen_ai.memory.record.count"] == len(digest.item_ids)
    assert delete["gen_ai.memory.record.count"] == 1
    inner = seen.only("memory.recall")
    assert told(inner) == {"agent": "ada", "memory.mode": "digest", "memory.visible_count": 1}
    assert inner.parent is not None
    assert inner.parent.span_id == seen.roots[3].context.span_id
    assert {"memory.mode": "digest"} in seen.durations()["memory.visible_count"]


def test_a_new_book_is_a_new_store_and_an_old_one_is_not(seen: Seen, tmp_path: Path) -> None:
    for times in (1, 1):
        with commonplace.open(tmp_path / "book.db") as book:
            about = told(seen.only("create_memory_store"))
            assert about["gen_ai.memory.store.id"] == book.id
            assert len(seen.spans) == times


def test_a_turn_says_its_run_and_a_conversation_its_key(seen: Seen, book: Book) -> None:
    with book.run(run_id="r1") as run, run.agent("ada") as me:
        me.remember("the leak is in the roof")
    thread = book.thread(THREAD, scope=SCOPE)
    thread.add({"role": "user", "content": "hello"})
    assert told(seen.only("upsert_memory"))["commonplace.run.id"] == "r1"
    about = told(seen.only("commonplace.thread.add"))
    assert about["gen_ai.conversation.id"] == thread.id != THREAD


def test_a_refusal_is_an_error_with_its_code_and_without_its_message(seen: Seen, book: Book) -> None:
    bot = book.as_actor("bot", scope=SCOPE)
    with pytest.raises(Denied):
        bot.access.grant("bot", role="person")
    with pytest.raises(commonplace.NotFound):
        bot.memory.get(PLANTED)
    with pytest.raises(TypeError):
        bot.remember(nonsense=PLANTED)  # type: ignore[call-arg]
    denied, missing, wrong = seen.roots[-3:]
    for span, kind in ((denied, "denied"), (missing, "not_found"), (wrong, "TypeError")):
        assert told(span)["error.type"] == kind
        assert (span.status.status_code, span.status.description, span.events) == (StatusCode.ERROR, None, ())
    assert {"denied", "not_found", "TypeError"} <= {
        point.get("error.type") for point in seen.durations()["gen_ai.client.operation.duration"]
    }


def test_agents_of_a_workflow_have_spans_within_that_of_the_workflow(
    seen: Seen, book: Book, tmp_path: Path
) -> None:
    def agent(task: AgentTask) -> dict[str, Any]:
        book.as_actor("ben").remember("the leak is in the roof")
        return {"done": True}

    book.runs.execute(write(tmp_path, small("roofer")), agents={"roofer": agent}, run_id="r1")
    whole = seen.only("invoke_workflow")
    within = seen.only("upsert_memory")
    assert within.parent is not None
    assert within.parent.span_id == whole.context.span_id


def test_asyncio_keeps_the_trace_of_the_caller(seen: Seen) -> None:
    async def play() -> None:
        async with commonplace.open("memory:").aio as book:
            with trace.get_tracer("app").start_as_current_span("turn") as outer:
                await book.remember("the build takes nine minutes")
        assert seen.only("upsert_memory").parent.span_id == outer.get_span_context().span_id  # type: ignore[union-attr]

    story(play)


# content


@pytest.mark.spec("2.7")
def test_captured_content_has_no_secret_and_nothing_that_is_sensitive(
    seen: Seen, book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CAPTURE, "SPAN_ONLY")
    bot = book.as_actor("bot", scope=SCOPE)
    kept = bot.remember("the ferry leaves at nine", tags=[TAG])
    secret = bot.remember(f"the ferry's key is {SECRET}")
    bot.remember("the ferry is haunted", sensitivity="sensitive")
    book.access.relabel(str(bot.remember("the ferry sinks").id), sensitivity="sensitive", reason="it is")
    assert secret.redacted
    upserts = [told(span) for span in seen.spans if span.name == "upsert_memory"]
    (first,) = json.loads(upserts[0]["gen_ai.memory.records"])
    assert first == {"id": kept.id, "content": "the ferry leaves at nine"}
    assert upserts[0]["commonplace.scope"] == SCOPE
    assert "gen_ai.memory.records" not in upserts[1]
    assert "gen_ai.memory.records" not in upserts[2]

    seen.forget()
    bot.search(f"ferry with password={SECRET}")
    bot.memory.list()
    search, listed = (told(span) for span in seen.roots)
    assert "[REDACTED]" in search["gen_ai.memory.query.text"]
    for about in (search, listed):
        records = json.loads(about["gen_ai.memory.records"])
        assert [record["id"] for record in records] == [kept.id]
    with pytest.raises(commonplace.NotFound):
        bot.memory.get(f"ferry {SECRET}")
    assert "ferry" in (seen.roots[-1].status.description or "")
    for never in (SECRET, "haunted", "sinks"):
        assert never not in seen.everything


@pytest.mark.spec("2.7")
def test_what_a_run_keeps_secret_is_in_no_span(
    seen: Seen, book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CAPTURE, "true")
    policy = Policy(sensitive_fields=("code",), patterns=("tok-[0-9]+",))
    book.ledger.submit("state.open", Open("r1", "owner", policy, Start(), {}))
    me = book.run(run_id="r1").agent("ada")
    me.write({"code": "open-sesame"})
    me.search("who says open-sesame or tok-77 to the ferryman")
    assert told(seen.only("search_memory"))["gen_ai.memory.query.text"].endswith("to the ferryman")
    tools = Tools(book)
    tools.call("memory_search", {"query": "open-sesame, ferryman"}, actor="ada", run_id="r1")
    with pytest.raises(CommonplaceError):
        me.memory.get("open-sesame")
    assert "ferryman" in told(seen.only("execute_tool memory.search"))["gen_ai.tool.call.arguments"]
    for never in ("open-sesame", "tok-77"):
        assert never not in seen.everything


@pytest.mark.parametrize("value", ["", "false", "NO_CONTENT", "EVENT_ONLY", "0", "nonsense"])
def test_content_is_captured_only_where_spans_are_to_have_it(
    seen: Seen, book: Book, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv(CAPTURE, value)
    book.as_actor("bot", scope=SCOPE).remember("the ferry leaves at nine", tags=[TAG])
    book.search("ferry")
    with pytest.raises(CommonplaceError):
        book.memory.get("ferry")
    assert "ferry" not in seen.everything
    assert "irabelle" not in seen.everything


# tools and servers


def test_a_tool_that_is_called_by_its_name(seen: Seen, book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = Tools(book)
    seen.forget()
    assert tools.call("memory_write", {"content": "the ferry", "target": "long_term"}, actor="ada")["ok"]
    assert not tools.call("memory_search", {"query": 7}, actor="ada")["ok"]
    assert not tools.call(PLANTED, {})["ok"]
    wrote, searched, unknown = seen.roots
    assert wrote.name == "execute_tool memory.write"
    assert told(wrote) == {
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "memory.write", "gen_ai.tool.type": "function",
        "gen_ai.memory.store.id": book.id, "gen_ai.agent.id": "ada", "gen_ai.agent.name": "ada",
    }  # fmt: skip
    assert seen.only("upsert_memory").parent.span_id == wrote.context.span_id  # type: ignore[union-attr]
    assert told(searched)["error.type"] == "bad_input"
    assert (unknown.name, told(unknown)["error.type"]) == ("execute_tool", "not_found")
    assert len(seen.durations()["gen_ai.execute_tool.duration"]) == 3
    assert "Zanzibar" not in seen.everything
    assert "ferry" not in seen.everything

    monkeypatch.setenv(CAPTURE, "true")
    tools.call("memory_write", {"content": f"the ferry, api_key={SECRET}", "target": "long_term"})
    (arguments,) = (told(span)["gen_ai.tool.call.arguments"] for span in seen.roots[3:])
    assert json.loads(arguments) == {"content": "the ferry, api_key=[REDACTED]", "target": "long_term"}
    assert SECRET not in seen.everything


@pytest.mark.spec("2.7")
def test_mcp_tools_prompts_and_resources(seen: Seen, book: Book) -> None:
    me = book.as_actor("ada")

    async def play() -> None:
        async with Client(build_server(OneClient(me))) as client:
            with trace.get_tracer("app").start_as_current_span("turn") as outer:
                sent: dict[str, Any] = {}
                inject(sent)
            await client.call_tool("remember", {"text": f"{PLANTED} {SECRET}", "tags": [TAG]}, meta=sent)  # type: ignore[arg-type]
            await client.call_tool("forget", {"id": PLANTED})
            await client.call_tool("memory_search", {"query": PLANTED})
            await client.get_prompt("brief_me", {"topic": PLANTED})
            with suppress(MCPError):
                await client.read_resource(f"memory://tag/{TAG}")
            for name in (PLANTED, TAG):
                with suppress(MCPError):
                    await client.read_resource(f"memory://nowhere/{name}")
                with suppress(MCPError):
                    await client.get_prompt(name)
                with suppress(MCPError):
                    await client.call_tool(name, {})
            call = seen.only("tools/call remember")
            assert call.parent is not None
            assert call.parent.span_id == outer.get_span_context().span_id

    story(play)
    about = told(seen.only("tools/call remember"))
    assert about["mcp.method.name"] == "tools/call"
    assert about["gen_ai.operation.name"] == "execute_tool"
    assert about["gen_ai.tool.name"] == "remember"
    assert about["gen_ai.agent.name"] == "ada"
    assert seen.only("tools/call remember").kind is SpanKind.SERVER
    assert seen.only("upsert_memory").parent.span_id == seen.only("tools/call remember").context.span_id  # type: ignore[union-attr]
    failed = seen.only("tools/call forget")
    assert (told(failed)["error.type"], failed.status.description) == ("tool_error", None)
    assert told(seen.only("prompts/get brief_me"))["gen_ai.prompt.name"] == "brief_me"
    assert "mcp.server.operation.duration" in seen.durations()
    of_the_sdk = [json.loads(span.to_json()) for span in seen._exporter.get_finished_spans()]
    assert all(
        span["kind"] != "SpanKind.SERVER" for span in of_the_sdk if "mcp-python-sdk" in json.dumps(span)
    )
    ours = "\n".join(span.to_json() for span in seen.spans) + json.dumps(seen.durations())
    for never in ("Zanzibar", SECRET, TAG):
        assert never not in ours


def test_a_remote_verb_is_one_trace_from_the_client_to_the_book(
    seen: Seen, book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(book) as server, commonplace.open(server.url, token=server.token) as far:
        far.remember("the ferry leaves at nine", tags=[TAG])
        monkeypatch.setenv(CAPTURE, "true")
        far.search(f"ferry {SECRET}")
    # The server has stopped: an answer may arrive before the span of its request has ended.
    outer, inner = (
        next(span for span in seen.spans if span.name == "upsert_memory" and span.kind is kind)
        for kind in (SpanKind.CLIENT, SpanKind.INTERNAL)
    )
    request = seen.only("POST /v1/remember")
    assert outer.parent is None
    assert request.parent is not None
    assert request.parent.span_id == outer.context.span_id
    assert inner.parent is not None
    assert inner.parent.span_id == request.context.span_id
    assert told(outer)["server.address"] == "127.0.0.1"
    assert told(outer)["gen_ai.memory.store.id"] == book.id
    assert told(request) == {
        "http.request.method": "POST", "url.scheme": "http", "http.route": "/v1/remember",
        "http.response.status_code": 200,
    }  # fmt: skip
    asked_far, asked_here = (
        next(told(span) for span in seen.spans if span.name == "search_memory" and span.kind is kind)
        for kind in (SpanKind.CLIENT, SpanKind.INTERNAL)
    )
    assert "gen_ai.memory.query.text" not in asked_far  # a client does not know what is secret there
    assert "ferry" in asked_here["gen_ai.memory.query.text"]
    assert SECRET not in seen.everything


@pytest.mark.spec("2.7")
def test_http_requests_tell_nothing_that_a_client_has_made_up(seen: Seen, book: Book) -> None:
    with served(book) as server:
        http = urllib3.PoolManager(retries=False)
        headers = {"Authorization": f"Bearer {server.token}", "Commonplace-Scope": SCOPE}
        for method, path in [
            ("GET", "/v1/search?query=Zanzibar"), ("GET", "/v1/Zanzibar"), ("GET", "/Zanzibar"),
            ("POST", "/v1/memory/get"), ("GET", "/v1/memory/list?tags=Zanzibar"),
        ]:  # fmt: skip
            http.request(
                method,
                server.url + path,
                headers=headers,
                body=b'{"id": "Zanzibar"}' if method == "POST" else None,
            )
        http.request(
            "GET", f"{server.url}/v1/search?query=Zanzibar", headers={"Authorization": f"Bearer {SECRET}"}
        )
    names = [span.name for span in seen.spans if span.kind is SpanKind.SERVER]
    assert names == [
        "GET /v1/search", "GET", "GET", "POST /v1/memory/get", "GET /v1/memory/list",
        "GET /v1/search",
    ]  # fmt: skip
    assert "http.server.request.duration" in seen.durations()
    for never in ("anzibar", SECRET, "irabelle", server.token):
        assert never not in seen.everything


# commands


class Collector(BaseHTTPRequestHandler):
    """Takes what an exporter sends over HTTP."""

    got: list[tuple[str, bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.got.append((self.path, body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_args: Any) -> None:
        pass


@contextmanager
def collector() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    got: list[tuple[str, bytes]] = []
    handler = type("Collecting", (Collector,), {"got": got})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", got
        server.shutdown()
        thread.join()


def remembered_over_stdio(place: Path, environment: dict[str, str]) -> None:
    """A client that starts a server of a new book, has it remember something, and ends it. Anything on its standard
    output that is no message would break the protocol."""

    commonplace.open(place, mirror=False).close()

    async def play() -> None:
        parameters = StdioServerParameters(
            command=sys.executable, args=["-m", "commonplace", "--book", str(place), "--as", "ada", "mcp"],
            env={**os.environ, **environment},
        )  # fmt: skip
        async with Client(stdio_client(parameters)) as client:
            result = await client.call_tool("remember", {"text": PLANTED})
            assert not result.is_error

    story(play)


def test_the_server_over_stdio_exports_where_the_environment_says(tmp_path: Path) -> None:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    with collector() as (url, got):
        remembered_over_stdio(tmp_path / "book.db", {"OTEL_EXPORTER_OTLP_ENDPOINT": url, CAPTURE: "false"})
    assert {path for path, _ in got} == {"/v1/traces", "/v1/metrics"}
    names, services = set(), set()
    for path, body in got:
        assert b"Zanzibar" not in body
        if path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                services |= {
                    each.value.string_value
                    for each in resource.resource.attributes
                    if each.key == "service.name"
                }
                names |= {span.name for scope in resource.scope_spans for span in scope.spans}
    assert {"tools/call remember", "upsert_memory"} <= names
    assert services == {"commonplace"}


def test_what_a_console_is_told_is_not_on_standard_output(tmp_path: Path) -> None:
    remembered_over_stdio(
        tmp_path / "book.db", {"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "console"}
    )


def test_without_the_variables_or_with_the_sdk_disabled_nothing_is_exported(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom commonplace.surfaces.exporting import export_as_configured\nexport_as_configured()\n"
        "print('opentelemetry.sdk' in sys.modules)"
    )
    own = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    for more, loaded in (
        ({}, "False"),
        ({"OTEL_SERVICE_NAME": "mine"}, "False"),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"}, "False"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"}, "False"),
        ({"OTEL_TRACES_EXPORTER": "nowhere"}, "True"),
    ):
        ran = subprocess.run(
            [sys.executable, "-c", program], env={**own, **more}, capture_output=True, text=True, check=True
        )
        assert ran.stdout.strip() == loaded
        assert ("no exporter nowhere for traces" in ran.stderr) == ("nowhere" in more.values())
