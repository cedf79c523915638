"""A drop-in for the reference memory server: the same calls on both, as real processes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp")
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPError

import commonplace
from tests.node import ENVIRONMENT, program

pytestmark = pytest.mark.spec("7.3")

Call = Callable[..., Awaitable[Any]]


def theirs(file: Path) -> Client:
    command, *args = program("server-memory", "dist/index.js")
    env = {**ENVIRONMENT, "MEMORY_FILE_PATH": str(file)}
    return Client(stdio_client(StdioServerParameters(command=command, args=args, env=env)))


def ours(place: Path, actor: str = "ada") -> Client:
    args = ["-m", "commonplace", "--book", str(place), "--as", actor, "mcp", "--compat", "server-memory"]
    return Client(
        stdio_client(StdioServerParameters(command=sys.executable, args=args, env=dict(os.environ)))
    )


@pytest.fixture
def place(tmp_path: Path) -> Path:
    commonplace.open(tmp_path / "book.db", mirror=False).close()
    return tmp_path / "book.db"


def story(function: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with anyio.fail_after(60):
            await function()

    anyio.run(bounded)


def entity(name: str, kind: str, *observations: str) -> dict[str, Any]:
    return {"name": name, "entityType": kind, "observations": list(observations)}


def relation(begin: str, kind: str, end: str) -> dict[str, str]:
    return {"from": begin, "to": end, "relationType": kind}


MALLORY = relation("Mallory", "knows", "Ada")
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("read_graph", {}),
    (
        "create_entities",
        {
            "entities": [
                entity("Ada", "person", "speaks Italian", "rises early", "owes 5 euro"),
                entity("Engine", "machine"),
                entity("Bö/x", "person", "speaks Italian", "owes 6 euro"),
                {**entity("Shop", "", "opens at nine"), "unknown": 1},
            ]
        },
    ),
    ("create_entities", {"entities": [entity("Ada", "robot", "other"), entity("New", "thing", "n")]}),
    (
        "create_relations",
        {"relations": [relation("Ada", "programs", "Engine"), relation("Ada", "is", "Ada")]},
    ),
    ("create_relations", {"relations": [relation("Ada", "programs", "Engine"), MALLORY]}),
    ("create_relations", {"relations": [relation("Shop", "sells to", "Nobody")]}),
    ("add_observations", {"observations": [{"entityName": "Engine", "contents": ["is red", "is not red"]}]}),
    (
        "add_observations",
        {
            "observations": [
                {"entityName": "Engine", "contents": ["is red", "has gears"]},
                {"entityName": "Shop", "contents": []},
            ]
        },
    ),
    (
        "add_observations",
        {
            "observations": [
                {"entityName": "Engine", "contents": ["is lost"]},
                {"entityName": "Nowhere", "contents": ["x"]},
            ]
        },
    ),
    ("read_graph", {"unknown": True}),
    ("search_nodes", {"query": "ITALIAN"}),
    ("search_nodes", {"query": "machine"}),
    ("search_nodes", {"query": "no such thing"}),
    ("search_nodes", {"query": ""}),
    ("open_nodes", {"names": ["Engine", "Nowhere", "Mallory"]}),
    ("open_nodes", {"names": []}),
    (
        "delete_observations",
        {"deletions": [{"entityName": "Ada", "observations": ["speaks Italian", "none"]}]},
    ),
    ("delete_observations", {"deletions": [{"entityName": "Nowhere", "observations": ["x"]}]}),
    ("delete_relations", {"relations": [relation("Ada", "is", "Ada"), relation("Ada", "was", "Ada")]}),
    ("delete_relations", {"relations": [MALLORY]}),
    ("read_graph", {}),
    ("delete_entities", {"entityNames": ["Ada", "Nowhere", "Nobody"]}),
    ("read_graph", {}),
    ("create_entities", {"entities": [entity("Ada", "person", "speaks Italian")]}),
    ("create_relations", {"relations": [relation("Ada", "programs", "Engine")]}),
    ("add_observations", {"observations": [{"entityName": "Ada", "contents": ["rises early"]}]}),
    ("read_graph", {}),
    ("create_entities", {}),
    ("create_entities", {"entities": "none"}),
    (
        "create_entities",
        {"entities": [{"name": 1, "entityType": None, "observations": ["x", 5, True, {}]}, 7]},
    ),
    ("open_nodes", {"names": {}}),
    ("no_such_tool", {}),
]
"""One story, with everything that goes wrong on the way."""


def plain(value: Any) -> Any:
    """An answer without the order of relations, which the reference server keeps in the order of their making."""
    if isinstance(value, dict):
        return {name: _sorted(each) if name == "relations" else plain(each) for name, each in value.items()}
    return value


def _sorted(relations: list[dict[str, str]]) -> list[dict[str, str]]:
    return sorted(relations, key=lambda each: sorted(each.items()))


async def answer(client: Client, tool: str, arguments: dict[str, Any]) -> Any:
    result = await client.call_tool(tool, arguments)
    assert len(result.content) == 1
    text = result.content[0].text  # type: ignore[union-attr]
    if result.structured_content is not None and text[0] in "[{":
        (whole,) = [json.loads(text)]
        told = result.structured_content
        assert whole in (told, *told.values())  # text and structure say the same
        text = text if tool.startswith("create") else ""
    return bool(result.is_error), plain(result.structured_content), text


def test_the_same_calls_get_the_same_answers(place: Path, tmp_path: Path) -> None:
    async def play() -> None:
        async with theirs(tmp_path / "memory.jsonl") as reference, ours(place) as client:
            for tool, arguments in CALLS:
                expected = await answer(reference, tool, arguments)
                assert await answer(client, tool, arguments) == expected, (tool, arguments)

    story(play)


def test_the_tools_and_the_resource_are_described_as_there(place: Path, tmp_path: Path) -> None:
    def described(things: Any) -> list[dict[str, Any]]:
        whole = [each.model_dump(by_alias=True, exclude_none=True) for each in things]
        return [{name: value for name, value in each.items() if name != "execution"} for each in whole]

    async def play() -> None:
        async with theirs(tmp_path / "memory.jsonl") as reference, ours(place) as client:
            assert described((await client.list_tools()).tools) == described(
                (await reference.list_tools()).tools
            )
            (resource,) = described((await client.list_resources()).resources)
            assert [resource] == described((await reference.list_resources()).resources)
            for each in (reference, client):
                await each.call_tool("create_entities", {"entities": [entity("Ada", "person", "sings")]})
            texts = [(await each.read_resource(resource["uri"])).contents[0] for each in (reference, client)]
            assert texts[0] == texts[1]
            with pytest.raises(MCPError, match="Resource memory://other not found"):
                await client.read_resource("memory://other")

    story(play)


@pytest.mark.filterwarnings("ignore:resources/")
def test_a_subscriber_hears_that_the_graph_has_changed(place: Path) -> None:
    async def play() -> None:
        heard = anyio.Event()

        async def told(message: Any) -> None:
            if "resources/updated" in repr(message) or "ResourceUpdated" in type(message).__name__:
                heard.set()

        parameters = [
            "-m",
            "commonplace",
            "--book",
            str(place),
            "--as",
            "ada",
            "mcp",
            "--compat",
            "server-memory",
        ]
        transport = stdio_client(
            StdioServerParameters(command=sys.executable, args=parameters, env=dict(os.environ))
        )
        async with Client(transport, mode="legacy", message_handler=told) as client, ours(place) as other:
            await client.subscribe_resource("memory://knowledge-graph")
            await other.call_tool("create_entities", {"entities": [entity("Ada", "person", "sings")]})
            await heard.wait()

    story(play)


def test_its_file_is_taken_in_and_the_graph_is_the_same(place: Path, tmp_path: Path) -> None:
    file = tmp_path / "memory.jsonl"

    async def play() -> None:
        async with AsyncExitStack() as stack:
            reference = await stack.enter_async_context(theirs(file))
            for tool, arguments in CALLS[:9]:
                await reference.call_tool(tool, arguments)
            expected = await answer(reference, "read_graph", {})
            with commonplace.open(place, mirror=False) as book:
                taken = book.as_actor("ada").memory.import_(file)
                assert not taken.skipped
            client = await stack.enter_async_context(ours(place))
            assert await answer(client, "read_graph", {}) == expected
            assert len(expected[1]["relations"]) == 4
            for tool, arguments in CALLS[16:27]:  # and goes on as there
                expected = await answer(reference, tool, arguments)
                assert await answer(client, tool, arguments) == expected, (tool, arguments)

    story(play)


def test_two_processes_that_make_the_same_entities_make_each_once(place: Path) -> None:
    names = [f"Entity {number}" for number in range(12)]

    async def play() -> None:
        async def make(client: Client, own: str) -> None:
            for name in names:
                new = entity(name, "thing", "is made by both", f"is made by {own}")
                result = await client.call_tool("create_entities", {"entities": [new]})
                assert not result.is_error
                edge = relation(name, "follows", names[0])
                await client.call_tool("create_relations", {"relations": [edge]})
                more = {"entityName": name, "contents": ["is made by both", f"is made by {own}"]}
                result = await client.call_tool("add_observations", {"observations": [more]})
                assert not result.is_error

        async with ours(place) as one, ours(place) as two:
            async with anyio.create_task_group() as group:
                group.start_soon(make, one, "one")
                group.start_soon(make, two, "two")
            _, graph, _ = await answer(one, "read_graph", {})
            assert sorted(each["name"] for each in graph["entities"]) == sorted(names)
            for each in graph["entities"]:
                assert sorted(each["observations"]) == ["is made by both", "is made by one", "is made by two"]
            assert len(graph["relations"]) == len(names)

    story(play)


def test_what_is_said_in_other_letters_is_one_observation(place: Path) -> None:
    """The one difference on purpose: the book knows that it is the same, and the answer says that it was not added."""

    async def play() -> None:
        async with ours(place) as client:
            new = entity("Ada", "person", "Rises early.")
            await client.call_tool("create_entities", {"entities": [new]})
            more = {"entityName": "Ada", "contents": ["rises  early", "sings"]}
            _, told, _ = await answer(client, "add_observations", {"observations": [more]})
            assert told == {"results": [{"entityName": "Ada", "addedObservations": ["sings"]}]}
            _, graph, _ = await answer(client, "read_graph", {})
            assert graph["entities"] == [entity("Ada", "person", "Rises early.", "sings")]

    story(play)
