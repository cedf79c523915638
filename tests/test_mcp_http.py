"""MCP over streamable HTTP: the token says who acts, where, and by which verbs."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp")
import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ResourceUpdated
from mcp_types import PromptReference, ResourceTemplateReference

import commonplace
from commonplace import Book
from commonplace.surfaces.catalogue import DEFAULT
from commonplace.surfaces.http.limits import ServerLimits
from tests.serving import Served, served

pytestmark = pytest.mark.spec("7.3", "7.4")
LONG = 30.0


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    with commonplace.open(tmp_path / "book.db", mirror=False) as book:
        book.access.grant("ada", acts=["orchestrate"], scopes={"/": "read_write", "users": "read_write"})
        book.access.grant("ben")
        yield book


@pytest.fixture
def server(book: Book) -> Iterator[Served]:
    with served(book) as server:
        yield server


@asynccontextmanager
async def connected(server: Served, token: str = "", **more: Any) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token or server.token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        async with Client(streamable_http_client(f"{server.url}/mcp", http_client=http), **more) as client:
            yield client


def story(function: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with anyio.fail_after(60):
            await function()

    anyio.run(bounded)


async def envelope(client: Client, tool: str, **arguments: Any) -> Any:
    return (await client.call_tool(tool, arguments)).structured_content


def test_a_token_acts_as_its_actor_in_its_scope(book: Book, server: Served) -> None:
    alice = book.access.tokens.create("ada", scope="users/alice").secret
    bob = book.access.tokens.create("ada", scope="users/bob").secret

    async def play() -> None:
        async with connected(server, alice) as mine, connected(server, bob) as other:
            await envelope(mine, "remember", text="Alice is allergic to peanuts", shared=True)
            found = (await envelope(mine, "memory_search", query="peanuts"))["data"]["results"]
            assert len(found) == 1
            assert (await envelope(other, "memory_search", query="peanuts"))["data"]["results"] == []
            refused = await envelope(mine, "remember", text="no", scope="users/bob")
            assert refused["status"] == 400

    story(play)
    (item,) = book.memory.list()
    assert (item.agent, item.scope) == ("ada", "users/alice")


def test_a_token_for_some_verbs_offers_the_tools_that_are_made_of_them(book: Book, server: Served) -> None:
    token = book.access.tokens.create("ada", verbs=["search", "memory.*", "thread.add"]).secret
    kept = book.remember(key="db.port", value=5433)

    async def play() -> None:
        async with connected(server, token) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            assert names == ["memory_search", "memory_curate", "thread_add"]
            assert (await envelope(client, "memory_search", query="port"))["ok"]
            refused = await envelope(client, "remember", text="x")
            assert refused["status"] == 403
            assert "tools/list" in refused["error"]["message"]
            assert [str(each.uri) for each in (await client.list_resources()).resources] == [
                "memory://long_term"
            ]
            assert (await client.read_resource(f"memory://item/{kept.id}")).contents
            for uri in ("memory://daily/2026-01-01", "work://w1"):
                with pytest.raises(MCPError, match="does not allow"):
                    await client.read_resource(uri)
            with pytest.raises(MCPError, match="does not allow"):
                await client.get_prompt("brief_me", {})
            templates = (await client.list_resource_templates()).resource_templates
            assert [each.uri_template for each in templates] == [
                "memory://item/{id}", "memory://key/{key}", "memory://tag/{tag}",
            ]  # fmt: skip
            assert (await client.list_prompts()).prompts == []
            keys = ResourceTemplateReference(uri="memory://key/{key}", type="ref/resource")
            assert (await client.complete(keys, {"name": "key", "value": ""})).completion.values == [
                "db.port"
            ]
            topics = PromptReference(name="brief_me", type="ref/prompt")
            assert (await client.complete(topics, {"name": "topic", "value": ""})).completion.values == []

    story(play)
    assert book.memory.list(agent="ada") == []


def test_a_session_is_its_tokens_alone(book: Book, server: Served) -> None:
    def ask(token: str, method: str, session: str = "", body: Any = None) -> Any:
        headers = {
            "Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json", **({"Mcp-Session-Id": session} if session else {}),
        }  # fmt: skip
        return httpx2.request(method, f"{server.url}/mcp", headers=headers, json=body, timeout=60)

    ada, ben = (book.access.tokens.create(name).secret for name in ("ada", "ben"))
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    begun = ask(ada, "POST", body={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about})
    session = begun.headers["mcp-session-id"]
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    assert ask(ben, "POST", session, ping).status_code == 404
    assert ask(ben, "DELETE", session).status_code == 404
    assert ask(ada, "POST", session, ping).status_code == 200


def test_a_token_has_a_few_sessions_and_takes_none_from_others(book: Book) -> None:
    ada, ben = (book.access.tokens.create(name).secret for name in ("ada", "ben"))
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    initialize = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about}
    with served(book, ServerLimits(sessions_each=3)) as server:

        def ask(token: str, method: str, session: str = "", body: Any = None) -> Any:
            headers = {
                "Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream",
                "Content-Type": "application/json", **({"Mcp-Session-Id": session} if session else {}),
            }  # fmt: skip
            return httpx2.request(method, f"{server.url}/mcp", headers=headers, json=body, timeout=60)

        mine = ask(ada, "POST", body=initialize).headers["mcp-session-id"]
        for _ in range(10):  # what was ended takes no room
            session = ask(ben, "POST", body=initialize).headers["mcp-session-id"]
            assert ask(ben, "DELETE", session).status_code == 200
        begun = [ask(ben, "POST", body=initialize) for _ in range(4)]
        assert [each.status_code for each in begun] == [200, 200, 200, 429]
        assert "DELETE" in begun[-1].json()["detail"]
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        assert ask(ada, "POST", mine, ping).status_code == 200
        assert ask(ben, "DELETE", begun[0].headers["mcp-session-id"]).status_code == 200
        assert ask(ben, "POST", body=initialize).status_code == 200


def test_further_fields_say_neither_who_acts_nor_where(book: Book) -> None:
    work = book.work(name="W")
    task = work.add_task("T").id
    with served(book, groups=["work"]) as server:

        async def play() -> None:
            async with connected(server) as client:
                for name in ("by", "scope", "_read"):
                    refused = await envelope(client, "task_edit", task=task, fields={name: "mallory"})
                    assert refused["status"] == 400, refused
                assert (await envelope(client, "task_edit", task=task, fields={"title": "New"}))["ok"]

        story(play)
    assert work.task(task).info().title == "New"
    assert "mallory" not in {event.actor for event in book.events()}


def test_the_tools_of_one_client_do_not_wait_for_those_of_another(book: Book) -> None:
    greedy, other = (book.access.tokens.create(name).secret for name in ("ada", "ben"))
    with served(book, ServerLimits(threads=3, threads_each=2)) as server:

        async def play() -> None:
            stored = list[int]()

            async def write(client: Client, number: int) -> None:
                answer = await envelope(client, "remember", text=f"The lamp of gate {number} is lit")
                assert answer["ok"]
                stored.append(number)

            async with connected(server, greedy) as ada, connected(server, other) as ben:
                async with anyio.create_task_group() as group:
                    with book.ledger.store.begin(LONG):  # whoever writes waits for the book
                        for number in range(60):
                            group.start_soon(write, ada, number)
                        while server.app.calls.used < 60:
                            await anyio.sleep(0.01)
                        assert (await envelope(ben, "memory_search", query="lamps"))["ok"]
                        assert (await ben.list_resources()).resources
                        assert stored == []
            assert sorted(stored) == list(range(60))

        story(play)


@pytest.mark.filterwarnings("ignore:resources/")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_server_ends_although_somebody_listens(book: Book, mode: str) -> None:
    took = list[float]()
    with served(book) as server:
        token = book.access.tokens.create("ada").secret

        def stop() -> None:
            begun = monotonic()
            server.stop()
            took.append(monotonic() - begun)

        async def play() -> None:
            async with connected(server, token, mode=mode) as client:
                if mode == "legacy":
                    await client.subscribe_resource("memory://long_term")
                    await anyio.to_thread.run_sync(stop)
                else:
                    async with client.listen(resource_subscriptions=["memory://long_term"]):
                        assert (server.app.streams.used, server.app.calls.used) == (1, 0)
                        await anyio.to_thread.run_sync(stop)

        with suppress(BaseExceptionGroup, httpx2.HTTPError, MCPError):  # the client has lost its server
            story(play)
    assert took[0] < 20  # it would wait for half a minute for what does not end by itself


def test_no_tool_makes_the_server_read_a_file_of_its_own(book: Book, server: Served, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the key of the house")

    async def play() -> None:
        async with connected(server) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert tools.keys() == DEFAULT.keys()
            assert "artifacts" not in tools["task_complete"].input_schema["properties"]
            work = (await envelope(client, "work_begin", name="W"))["data"]["id"]
            await envelope(client, "task_add", work=work, title="T")
            claim = (await envelope(client, "task_claim", work=work))["data"]
            held = {"task": claim["task"]["id"], "token": claim["token"], "summary": "done"}
            refused = await envelope(client, "task_complete", **held, artifacts=[str(secret)])
            assert refused["status"] == 400

    story(play)
    assert not any("key of the house" in str(event.payload) for event in book.events())


@pytest.mark.filterwarnings("ignore:resources/")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_subscriber_hears_of_what_another_writes(book: Book, server: Served, mode: str) -> None:
    token = book.access.tokens.create("ada")
    uri = "memory://long_term"

    async def play() -> None:
        heard = list[Any]()
        told = anyio.Event()

        async def message(each: Any) -> None:
            if "resources/updated" in repr(each) or "ResourceUpdated" in type(each).__name__:
                heard.append(each)
                told.set()

        async with connected(server, token.secret, mode=mode, message_handler=message) as ada:
            async with connected(server) as owner:
                write = {"content": "The port is 5433", "target": "long_term"}
                if mode == "legacy":
                    await ada.subscribe_resource(uri)
                    await envelope(owner, "memory_write", **write)
                    await told.wait()
                else:
                    async with ada.listen(resource_subscriptions=[uri]) as events:
                        await envelope(owner, "memory_write", **write)
                        assert await anext(events) == ResourceUpdated(uri)
                assert "5433" in (await ada.read_resource(uri)).contents[0].text  # type: ignore[union-attr]

    story(play)


@pytest.mark.filterwarnings("ignore:resources/")
def test_a_token_follows_a_bounded_number_of_addresses_with_one_thread(
    book: Book, server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commonplace.surfaces.mcp.feed.MOST_ADDRESSES", 20)
    token = book.access.tokens.create("ada").secret

    def followers() -> int:
        return sum("AnyIO" in thread.name for thread in threading.enumerate())

    async def play() -> None:
        before = followers()
        async with AsyncExitStack() as opened:
            for spaces in range(1, 6):  # however the header is written, it is the same token
                client = await opened.enter_async_context(
                    connected(server, f"{' ' * spaces}{token}", mode="legacy")
                )
                for number in range(20):
                    await client.subscribe_resource(f"memory://key/{number}")
                    await client.subscribe_resource(f"memory://key/{number}")
                with pytest.raises(MCPError, match="20 addresses"):
                    await client.subscribe_resource("memory://key/20")
                await client.unsubscribe_resource("memory://key/0")
                await client.subscribe_resource("memory://key/20")
                with pytest.raises(MCPError, match="4,000 characters"):
                    await client.subscribe_resource(f"memory://key/{'k' * 4_000}")
            assert followers() <= before + 1
        async with connected(server, token, mode="auto") as client:
            with pytest.raises(MCPError, match="20 addresses"):
                async with client.listen(resource_subscriptions=[f"memory://key/{n}" for n in range(21)]):
                    pytest.fail("they are too many")

    story(play)


def test_a_subscription_ends_with_its_token(book: Book, server: Served) -> None:
    token = book.access.tokens.create("ada")
    uri = "memory://long_term"

    async def play() -> None:
        async with connected(server, token.secret, mode="auto") as ada, connected(server) as owner:
            async with ada.listen(resource_subscriptions=[uri]) as events:
                book.access.tokens.revoke(token.id)
                write = {"content": "The port is 5433", "target": "long_term"}
                assert (await envelope(owner, "memory_write", **write))["ok"]
                assert [event async for event in events] == []

    story(play)


def test_the_prompts_say_what_the_book_knows(book: Book, server: Served) -> None:
    ada = book.as_actor("ada")
    ada.remember(key="db.port", value=5433)
    work = ada.work(name="Release", goal="ship")
    task = work.add_task("Write notes")
    ada.documents.add_to_task("Release notes", "decisions", "They are written in markdown.")
    ada.documents.log("built the notes")
    token = book.access.tokens.create("ada").secret

    async def play() -> None:
        async with connected(server, token) as client:
            for name, given, expected in (
                ("resume", {"task": "Release notes"}, "written in markdown"),
                ("brief_me", {"topic": "db.port"}, "5433"),
                ("reflect", {}, "built the notes"),
                ("review", {"task": task.id}, "Write notes"),
            ):
                content = (await client.get_prompt(name, given)).messages[0].content
                assert expected in content.text  # type: ignore[union-attr]

            async def completed(reference: Any, name: str, begun: str) -> list[str]:
                return (await client.complete(reference, {"name": name, "value": begun})).completion.values

            def template(uri: str) -> Any:
                return ResourceTemplateReference(uri=uri, type="ref/resource")

            assert await completed(template("memory://key/{key}"), "key", "db") == ["db.port"]
            assert await completed(template("work://{work}"), "work", "") == [work.id]
            assert await completed(PromptReference(name="review", type="ref/prompt"), "task", "") == [task.id]

    story(play)


def test_a_long_call_tells_its_progress_and_can_be_cancelled(book: Book, tmp_path: Path) -> None:
    with served(book, groups=["memory"]) as server:

        async def play() -> None:
            told = list[tuple[float, float | None]]()
            started = anyio.Event()

            async def tell(progress: float, total: float | None, message: str | None) -> None:
                told.append((progress, total))
                started.set()

            items = [{"text": f"The gate number {number} of the town is open"} for number in range(250)]
            async with connected(server) as client:
                result = await client.call_tool("memory_add_many", {"items": items}, progress_callback=tell)
                assert not result.is_error
                assert told[-1] == (250, 250)
                assert told == sorted(told)

                started = anyio.Event()
                many = [{"text": f"The lamp number {number} of the town is lit"} for number in range(5_000)]
                async with anyio.create_task_group() as group:

                    async def call() -> None:
                        await client.call_tool("memory_add_many", {"items": many}, progress_callback=tell)
                        raise AssertionError("the call was cancelled")

                    group.start_soon(call)
                    await started.wait()
                    group.cancel_scope.cancel()
                assert (await envelope(client, "memory_search", query="gate"))["ok"]  # it goes on with others

        story(play)


def test_a_message_may_be_as_long_as_any_body_and_a_longer_one_is_refused_as_a_problem(book: Book) -> None:
    token = book.access.tokens.create("ada").secret
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}

    def sent(server: Served, size: int) -> Any:
        params = {**about, "note": "x" * size}
        return httpx2.request(
            "POST", f"{server.url}/mcp", timeout=60,
            headers={"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"},
            json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params},
        )  # fmt: skip

    with served(book) as server:
        assert sent(server, 5_000_000).status_code == 200
    with served(book, ServerLimits(body=10_000)) as server:
        refused = sent(server, 20_000)
        assert (refused.status_code, refused.headers["content-type"]) == (413, "application/problem+json")
        assert refused.json()["code"] == "too_large"
