"""A book served to models: real server processes over stdio, and the SDK's and fastmcp's own clients."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp")
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ResourceUpdated

import commonplace
from commonplace.surfaces.catalogue import DEFAULT, GROUPS, offered, table
from tests.serving import served as serving

pytestmark = pytest.mark.spec("7.3")


@pytest.fixture
def place(tmp_path: Path) -> str:
    path = str(tmp_path / "book.db")
    with commonplace.open(path, mirror=False) as book:
        for actor in ("ada", "ben"):
            book.access.grant(actor, acts=["orchestrate", "nudge"])
        book.run(run_id="r1")
    return path


def served(place: str, *words: str, before: tuple[str, ...] = ("--as", "ada"), **more: Any) -> Client:
    args = ["-m", "commonplace", "--book", place, *before, "mcp", *words]
    parameters = StdioServerParameters(command=sys.executable, args=args, env=dict(os.environ))
    return Client(stdio_client(parameters), **more)


def story(function: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with anyio.fail_after(60):
            await function()

    anyio.run(bounded)


async def data(client: Client, tool: str, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments)
    envelope = result.structured_content
    assert envelope is not None
    assert json.loads(result.content[0].text) == envelope  # type: ignore[union-attr]
    assert not result.is_error, envelope
    return envelope["data"]


async def failure(client: Client, tool: str, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    assert result.structured_content is not None
    return result.structured_content["error"]


def test_a_model_works_through_every_default_tool(place: str) -> None:
    async def play() -> None:
        called = set[str]()

        async with served(place, "--run", "r1") as client:
            listed = [tool.name for tool in (await client.list_tools()).tools]

            async def do(tool: str, **arguments: Any) -> Any:
                called.add(tool)
                return await data(client, tool, **arguments)

            kept = await do("remember", key="db.port", value=5433, tags=["infra"])
            assert (await do("memory_search", query="db.port"))["results"]
            await do("memory_write", content="began", target="daily")
            assert "began" in (await do("memory_read", target="daily"))["content"]
            await do("memory_curate", dry_run=True)
            entry = await do("board_post", topic="found", payload={"port": 5433})
            assert (await do("board_read"))["entries"][0]["id"] == entry["entry_id"]
            assert "text" in await do("resume", task="release")
            work = (await do("work_begin", name="Release", goal="ship"))["id"]
            assert [each["id"] for each in (await do("work_list"))["items"]] == [work]
            await do("task_add", work=work, title="Write notes")
            await do("task_add", work=work, title="Sell them")
            claim = await do("task_claim", work=work)
            assert "Write notes" in claim["context"]
            held = {"task": claim["task"]["id"], "token": claim["token"]}
            await do("task_heartbeat", **held)
            await do("decide", work=work, question="which format", choice="markdown")
            await do("discover", work=work, text="the notes are long", task=held["task"])
            await do("nudge", work=work, text="nearly there")
            done = await do("task_complete", **held, summary="written")
            assert done["status"] == "completed"
            second = await do("task_claim", work=work)
            await do("task_fail", task=second["task"]["id"], token=second["token"], reason="nobody buys")
            assert "Release" in json.dumps(await do("work_board", work=work))
            await do("inbox")
            await do("thread_add", thread="support", messages=[{"role": "user", "content": "hello there"}])
            assert "hello there" in (await do("thread_context", thread="support"))["text"]
            await do("forget", id=kept["item_id"])
            called.add("digest_fetch")
            assert (await failure(client, "digest_fetch", sha="0" * 64))["status"] == 404
            assert called == set(listed) == set(DEFAULT)

    story(play)


def test_the_list_is_short_and_lets_nobody_speak_for_others(place: str) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    model = distribution("wordllama").locate_file("wordllama/tokenizers/l2_supercat_tokenizer_config.json")
    tokenizer = tokenizers.Tokenizer.from_file(str(model))

    async def play() -> None:
        async with served(place) as client:
            listed = await client.list_tools()
            assert len(listed.tools) <= 24
            text = listed.model_dump_json(by_alias=True, exclude_none=True)
            assert (
                len(tokenizer.encode(text).ids) < 6_000
            )  # by Llama's tokenizer, which newer ones need fewer than

    story(play)
    for name, tool in table(offered(GROUPS)).items():
        assert not {"by", "scope", "actor"} & {parameter.name for parameter in tool.parameters}, name
        assert offered(GROUPS)[name].about


PAGE = Path(__file__).parents[1] / "docs" / "mcp.md"


def test_the_page_lists_every_tool() -> None:
    """`UPDATE_DOCS=1` writes the table."""
    known = dict[str, str]()
    rows = ["| group | tools |", "|---|---|"]
    for group, chosen in (("default", offered()), *((group, offered([group])) for group in GROUPS)):
        new = [name for name in chosen if name not in known]
        known |= dict.fromkeys(new, group)
        rows.append(f"| `{group}` | {', '.join(f'`{name}`' for name in new)} |")
    begin, end = "<!-- tools -->", "<!-- end of tools -->"
    text = PAGE.read_text()
    before, after = text.split(begin)[0], text.split(end)[1]
    whole = f"{before}{begin}\n" + "\n".join(rows) + f"\n{end}{after}"
    if os.environ.get("UPDATE_DOCS"):
        PAGE.write_text(whole)
    assert PAGE.read_text() == whole


def test_two_actors_see_their_own_memory(place: str) -> None:
    async def play() -> None:
        async with served(place) as ada, served(place, before=("--as", "ben")) as ben:
            mine = await data(ada, "remember", text="The spare key is under the third stone")
            assert (await data(ada, "memory_search", query="spare key"))["results"]
            assert (await data(ben, "memory_search", query="spare key"))["results"] == []
            error = await failure(ben, "forget", id=mine["item_id"])
            assert error["status"] in (403, 404)
            with pytest.raises(MCPError):
                await ben.read_resource(f"memory://item/{mine['item_id']}")

    story(play)


@pytest.mark.spec("3.3", "3.5", "7.3")
def test_a_model_corrects_what_it_has_written_as_the_answer_tells_it(place: str) -> None:
    async def play() -> None:
        async with served(place) as ada:
            lasting = {"target": "long_term"}
            old = await data(ada, "memory_write", content="Backups are kept for 35 days", **lasting)
            text = "Backups are not kept for 35 days"
            held = await data(ada, "memory_write", content=text, **lasting)
            assert f"nearly the same as {old['id']}" in held["reason"]
            assert held["reason"].endswith("remember it again with supersedes to replace what is there")
            new = await data(ada, "remember", text=text, shared=True, supersedes=[old["id"]])
            assert (new["outcome"], new["superseded"]) == ("stored", [old["id"], held["id"]])
            await data(ada, "remember", key="queue.kind", value="RabbitMQ", shared=True)
            fact = {"key": "queue.kind", "value": "Kafka", "shared": True}
            assert "supersedes=true" in (await data(ada, "remember", **fact))["reason"]
            assert (await data(ada, "remember", **fact, supersedes=True))["outcome"] == "stored"
            assert (await data(ada, "inbox"))["held"] == []

    story(play)


def test_the_scope_comes_from_the_start_command(place: str) -> None:
    async def play() -> None:
        async with served(place, before=("--as", "ada", "--scope", "users/alice")) as alice:
            await data(alice, "remember", text="Alice is allergic to peanuts", shared=True)
            error = await failure(alice, "remember", text="no", scope="users/bob")
            assert error["status"] == 400
        async with served(place, before=("--as", "ada", "--scope", "users/bob")) as bob:
            assert (await data(bob, "memory_search", query="peanuts"))["results"] == []

    with commonplace.open(place, mirror=False) as book:
        book.access.grant("ada", scopes={"users": "read_write"})
    story(play)


def test_errors_say_what_to_call_next(place: str) -> None:
    async def play() -> None:
        async with served(place) as client:
            error = await failure(client, "task_add", work="nothing", title="x")
            assert error["status"] == 404
            assert "work_list" in error["message"]
            assert (await failure(client, "memory_read", target="moon"))["status"] == 400
            assert "the tools are" in (await failure(client, "no_such_tool"))["message"]
            assert "--run" in (await failure(client, "board_read"))["message"]

    story(play)


def test_the_owner_claims_as_one_agent(place: str) -> None:
    async def play() -> None:
        async with served(place, "--tools", "memory,work", before=()) as client:
            work = (await data(client, "work_begin", name="Own"))["id"]
            await data(client, "task_add", work=work, title="One")
            assert (await data(client, "task_claim", work=work))["agent"] == "mcp"
            told = list[float]()

            async def progress(progress: float, total: float | None, message: str | None) -> None:
                told.append(progress)

            result = await client.call_tool(
                "memory_add_many",
                {"items": [{"text": f"Port {number} is open"} for number in range(3)]},
                progress_callback=progress,
            )
            assert not result.is_error, result
            assert told

    story(play)


@pytest.mark.filterwarnings("ignore:resources/")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_subscriber_hears_of_what_another_process_writes(place: str, mode: str) -> None:
    async def play() -> None:
        heard = anyio.Event()

        async def told(message: Any) -> None:
            if "resources/updated" in repr(message) or "ResourceUpdated" in type(message).__name__:
                heard.set()

        uri = "memory://long_term"
        async with served(place, mode=mode, message_handler=told) as ada, served(place, before=()) as owner:
            if mode == "legacy":
                await ada.subscribe_resource(uri)
                await data(owner, "memory_write", content="The port is 5433", target="long_term")
                await heard.wait()
            else:
                async with ada.listen(resource_subscriptions=[uri]) as events:
                    await data(owner, "memory_write", content="The port is 5433", target="long_term")
                    async for event in events:
                        assert event == ResourceUpdated(uri)
                        break
            assert "5433" in (await ada.read_resource(uri)).contents[0].text  # type: ignore[union-attr]

    story(play)


def test_prompts_and_completion(place: str) -> None:
    from mcp_types import PromptReference, ResourceTemplateReference

    async def play() -> None:
        async with served(place) as client:
            await data(client, "remember", key="db.port", value=5433, tags=["infra"])
            work = (await data(client, "work_begin", name="Release"))["id"]
            task = (await data(client, "task_add", work=work, title="Write notes"))["id"]
            prompts = [prompt.name for prompt in (await client.list_prompts()).prompts]
            assert prompts == ["resume", "brief_me", "reflect", "review"]
            given = {"resume": {"task": "notes"}, "brief_me": {"topic": "db.port"}, "review": {"task": task}}
            for name, expected in (
                ("resume", "notes"),
                ("brief_me", "Release"),
                ("reflect", "remember"),
                ("review", "Write notes"),
            ):
                text = (await client.get_prompt(name, given.get(name, {}))).messages[0].content
                assert expected in text.text  # type: ignore[union-attr]
            with pytest.raises(MCPError, match="task"):
                await client.get_prompt("review", {})

            async def completed(of: str, name: str, value: str) -> list[str]:
                ref = (
                    ResourceTemplateReference(uri=of, type="ref/resource")
                    if "://" in of
                    else PromptReference(name=of, type="ref/prompt")
                )
                return (await client.complete(ref, {"name": name, "value": value})).completion.values

            assert await completed("memory://key/{key}", "key", "db") == ["db.port"]
            assert await completed("brief_me", "tag", "in") == ["infra"]
            assert await completed("work://{work}", "work", "") == [work]
            assert await completed("review", "task", task[:8]) == [task]
            assert len((await client.list_resource_templates()).resource_templates) == 6
            assert f"work://{work}" in [each.uri for each in (await client.list_resources()).resources]
            shown = (await client.read_resource(f"work://{work}/task/{task}")).contents[0]
            assert "Write notes" in shown.text  # type: ignore[union-attr]

    story(play)


def test_another_client_speaks_with_it_too(place: str) -> None:
    fastmcp = pytest.importorskip("fastmcp")
    from fastmcp.client.transports import StdioTransport

    async def play() -> None:
        args = ["-m", "commonplace", "--book", place, "--as", "ada", "mcp"]
        async with fastmcp.Client(StdioTransport(sys.executable, args, env=dict(os.environ))) as client:
            assert len(await client.list_tools()) == len(DEFAULT)
            result = await client.call_tool("memory_write", {"content": "hello", "target": "daily"})
            assert result.structured_content["ok"]

    story(play)


def test_a_drop_in_for_the_reference_memory_server(place: str, tmp_path: Path) -> None:
    file = tmp_path / "memory.jsonl"
    rows: list[dict[str, Any]] = [
        {"type": "entity", "name": "Acme", "entityType": "company", "observations": ["makes anvils"]},
        {"type": "entity", "name": "Road", "entityType": "place", "observations": ["is dusty", "is long"]},
        {"type": "relation", "from": "Acme", "to": "Road", "relationType": "lies_on"},
    ]
    file.write_text("\n".join(map(json.dumps, rows)))
    with commonplace.open(place, mirror=False) as book:
        book.as_actor("ada").memory.import_(file)

    async def play() -> None:
        async with served(place, "--compat", "server-memory") as client:
            assert len((await client.list_tools()).tools) == 9

            async def call(tool: str, **arguments: Any) -> Any:
                result = await client.call_tool(tool, arguments)
                text = result.content[0].text  # type: ignore[union-attr]
                assert not result.is_error, text
                return json.loads(text) if text[0] in "[{" else text

            graph = await call("read_graph")
            assert graph == {
                "entities": [
                    {name: row[name] for name in ("name", "entityType", "observations")} for row in rows[:2]
                ],
                "relations": [{"from": "Acme", "to": "Road", "relationType": "lies_on"}],
            }
            new = {"name": "Shop", "entityType": "place", "observations": ["opens at nine"]}
            assert await call("create_entities", entities=[new, graph["entities"][0]]) == [new]
            edge = {"from": "Shop", "to": "Acme", "relationType": "sells_for"}
            assert await call("create_relations", relations=[edge]) == [edge]
            added = await call(
                "add_observations", observations=[{"entityName": "Shop", "contents": ["is red"]}]
            )
            assert added == [{"entityName": "Shop", "addedObservations": ["is red"]}]
            opened = await call("open_nodes", names=["Shop"])
            assert opened["entities"] == [{**new, "observations": ["opens at nine", "is red"]}]
            assert edge in opened["relations"]
            assert [each["name"] for each in (await call("search_nodes", query="anvils"))["entities"]] == [
                "Acme"
            ]
            await call(
                "delete_observations", deletions=[{"entityName": "Shop", "observations": ["opens at nine"]}]
            )
            await call("delete_relations", relations=[edge])
            opened = await call("open_nodes", names=["Shop"])
            assert opened == {"entities": [{**new, "observations": ["is red"]}], "relations": []}
            await call("delete_entities", entityNames=["Shop"])
            assert (await call("open_nodes", names=["Shop"]))["entities"] == []
            wrong = await client.call_tool("create_entities", {"entities": "none"})
            assert wrong.is_error

    story(play)


def test_only_tools_that_write_nothing_say_so(place: str) -> None:
    async def play() -> None:
        async with served(place, "--tools", ",".join(GROUPS)) as client:
            tools = (await client.list_tools()).tools
        reading = {tool.name for tool in tools if tool.annotations and tool.annotations.read_only_hint}
        assert {"memory_search", "work_board", "memory_list", "runs_state", "work_manage_outlook"} <= reading
        # A receipt, what is delivered once, a new run: these take a time, too, and write.
        writing = {"digest", "prompt", "thread_context", "work_read_messages", "runs_fork", "remember"}
        assert writing <= {tool.name for tool in tools} - reading

    story(play)


def test_what_is_wrong_with_a_call_is_said_in_the_words_of_the_call(place: str) -> None:
    async def play() -> None:
        async with served(place) as client:
            wrong = {"content": "tea", "target": "list"}
            refused = (await client.call_tool("memory_write", wrong)).structured_content
            assert refused is not None
            message = refused["error"]["message"]
            assert message.startswith("memory_write takes content, target: ")
            assert "one of daily, long_term" in message
            kept = await data(
                client, "remember", text="Tea is served at four", shared="true"
            )  # as models write
            assert len((await data(client, "memory_search", query="tea", max_results="1"))["results"]) == 1
            assert kept["outcome"] == "stored"
            assert not [name for name, value in kept.items() if value in ("", None, [])]  # they say nothing
            assert (await data(client, "work_list"))["items"] == []  # an empty list is the answer

    story(play)


@pytest.mark.spec("5.6")
def test_a_worker_hears_what_it_is_told_while_it_works(place: str) -> None:
    async def play() -> None:
        async with served(place) as ada, served(place, before=("--as", "ben")) as ben:
            work = (await data(ada, "work_begin", name="Bakery"))["id"]
            await data(ada, "task_add", work=work, title="Heat the oven")
            claim = await data(ben, "task_claim", work=work)
            held = {"task": claim["task"]["id"], "token": claim["token"]}
            await data(ada, "nudge", work=work, text="The door of the oven is loose", target="ben")
            told = await data(ben, "task_heartbeat", **held)
            assert [nudge["text"] for nudge in told["items"]] == ["The door of the oven is loose"]
            assert (await data(ben, "task_heartbeat", **held))["items"] == []  # once

    story(play)


@pytest.mark.spec("6.10")
def test_a_model_goes_on_with_a_task_of_a_work_by_its_name(place: str) -> None:
    async def play() -> None:
        async with served(place) as ada:
            work = (await data(ada, "work_begin", name="Shop", goal="People can pay"))["id"]
            before = (await data(ada, "task_add", work=work, title="Draw the basket"))["id"]
            claim = await data(ada, "task_claim", work=work)
            await data(
                ada, "task_complete", task=before, token=claim["token"], summary="It is drawn",
                learnings=["Prices need two columns"],
            )  # fmt: skip
            task = (
                await data(ada, "task_add", work=work, title="Write the checkout page", depends_on=[before])
            )["id"]
            await data(ada, "decide", work=work, question="Which provider?", choice="Adyen", affects=[task])
            for name in ("Write the checkout page", task):
                text = (await data(ada, "resume", task=name))["text"]
                for known in (
                    "is pending",
                    "People can pay",
                    "Adyen",
                    "It is drawn",
                    "Prices need two columns",
                ):
                    assert known in text
                assert "nothing is written" not in text

    story(play)


def test_prompts_have_what_they_promise(place: str) -> None:
    async def said(client: Client, prompt: str, **arguments: str) -> str:
        return (await client.get_prompt(prompt, arguments)).messages[0].content.text  # type: ignore[union-attr]

    async def play() -> None:
        async with served(place) as ada:
            await data(ada, "remember", text="The mill grinds at six", shared=True)
            assert "The mill grinds at six" in await said(ada, "brief_me")
            work = (await data(ada, "work_begin", name="Mill"))["id"]
            await data(ada, "task_add", work=work, title="Oil the gears")
            claim = await data(ada, "task_claim", work=work)
            held = {"task": claim["task"]["id"], "token": claim["token"]}
            await data(ada, "task_complete", **held, summary="Oiled", learnings=["The third gear is worn"])
            review = await said(ada, "review", task=held["task"])
            assert "Oiled" in review
            assert "The third gear is worn" in review

    story(play)


@pytest.mark.spec("7.4")
def test_a_served_book_has_the_same_tools_and_resources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with commonplace.open(tmp_path / "team.db", mirror=False) as book, serving(book) as server:
        monkeypatch.setenv("COMMONPLACE_TOKEN", server.token)

        async def play() -> None:
            async with served(server.url, before=()) as client:
                await data(client, "memory_write", content="The mill grinds at six", target="long_term")
                page = await data(client, "memory_read", target="long_term")
                assert "The mill grinds at six" in page["content"]
                (content,) = (await client.read_resource("memory://long_term")).contents
                assert "The mill grinds at six" in content.text  # type: ignore[union-attr]

        story(play)


def test_what_a_model_leaves_out_as_null_is_left_out(place: str) -> None:
    async def play() -> None:
        async with served(place) as ada:
            kept = await data(
                ada, "remember", text="The mill grinds at six", tags=None, shared=None, title=None
            )
            assert kept["outcome"] == "stored"
            found = await data(ada, "memory_search", query="mill", explain=None, mode=None, max_results=None)
            assert len(found["results"]) == 1
            assert (await failure(ada, "memory_write", content=None, target="daily"))["status"] == 400
            for empty in ({}, {"query": ""}, {"query": None}):
                assert "query is missing" in (await failure(ada, "memory_search", **empty))["message"]
            assert "results" in await data(ada, "memory_search", mode="agent_filter", agent_filter=["ada"])

    story(play)


def test_hints_name_tools_that_a_model_can_call(place: str) -> None:
    async def play() -> None:
        async with served(place) as ada:
            unknown = (await failure(ada, "work_board", work="nowhere"))["message"]
            assert "`work_list`" in unknown
            assert "`work_begin`" in unknown
            work = (await data(ada, "work_begin", name="Mill"))["id"]
            lost = (await failure(ada, "task_claim", work=work, task="gone"))["message"]
            assert "`work_board`" in lost
            assert not [
                words for words in ("work.tasks", "book.", "commonplace work") if words in unknown + lost
            ]
            wrong = (await failure(ada, "task_add", work=work, title=""))["message"]
            assert "work_list" not in wrong  # the work is there

    story(play)


@pytest.mark.parametrize(
    "words", ["book.grant(x=True)", "book.event(a=b)", "work(1)", "work.tasks()", "it's book.works.list()"]
)
def test_a_models_own_words_are_not_taken_for_a_hint(place: str, words: str) -> None:
    async def play() -> None:
        async with served(place) as ada:
            told = (await failure(ada, "task_claim", work=words))["message"]
            assert told.startswith(f"there is no work {words!r} in this book")

    story(play)
