"""Every tool, listed and called by two clients over both transports, with real processes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest

pytest.importorskip("mcp")
import fastmcp
import httpx2
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from jsonschema import Draft202012Validator
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

import commonplace
from commonplace.surfaces.catalogue import GROUPS, offered
from commonplace.surfaces.mcp.server import ENVELOPE
from tests.shells import COMMAND

pytestmark = pytest.mark.spec("7.3")

ALL = ",".join(GROUPS)


class Place(NamedTuple):
    book: Path
    run: str = "r1"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    with commonplace.open(tmp_path / "book.db", mirror=False) as book:
        book.run(run_id="r1", initial={"topic": "ports"})
        book.access.grant("ada", acts=["orchestrate", "nudge"])
    return Place(tmp_path / "book.db")


class Serving(NamedTuple):
    url: str
    token: str


@contextmanager
def serving(book: Path, *words: str) -> Iterator[Serving]:
    file = book.with_name("token")
    told = [
        *COMMAND,
        "--book",
        str(book),
        "--json",
        "serve",
        "--port",
        "0",
        "--token-file",
        str(file),
        *words,
    ]
    with subprocess.Popen(told, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield Serving(json.loads(process.stdout.readline())["url"], file.read_text())
        finally:
            process.terminate()


def words_of(book: Path) -> list[str]:
    return ["-m", "commonplace", "--book", str(book), "mcp", "--tools", ALL]


def story(function: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with anyio.fail_after(120):
            await function()

    anyio.run(bounded)


Calls = Callable[[str, dict[str, Any]], Awaitable[tuple[Any, str]]]
"""Calls a tool, and answers the structured content and the text."""


class Connected(NamedTuple):
    tools: list[Any]
    call: Calls


def sdk(client: Client) -> Calls:
    async def call(name: str, arguments: dict[str, Any]) -> tuple[Any, str]:
        result = await client.call_tool(name, arguments)
        return result.structured_content, result.content[0].text  # type: ignore[union-attr]

    return call


@asynccontextmanager
async def sdk_over_stdio(place: Place) -> AsyncIterator[Connected]:
    parameters = StdioServerParameters(
        command=sys.executable, args=words_of(place.book), env=dict(os.environ)
    )
    async with Client(stdio_client(parameters)) as client:
        yield Connected((await client.list_tools()).tools, sdk(client))


@asynccontextmanager
async def sdk_over_http(place: Place) -> AsyncIterator[Connected]:
    with serving(place.book, "--tools", ALL) as server:
        headers = {"Authorization": f"Bearer {server.token}"}
        async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
            transport = streamable_http_client(f"{server.url}/mcp", http_client=http)
            async with Client(transport) as client:
                yield Connected((await client.list_tools()).tools, sdk(client))


async def _with_fastmcp(transport: Any) -> AsyncIterator[Connected]:
    async with fastmcp.Client(transport) as client:

        async def call(name: str, arguments: dict[str, Any]) -> tuple[Any, str]:
            result = await client.call_tool(name, arguments, raise_on_error=False)
            return result.structured_content, result.content[0].text

        yield Connected(await client.list_tools(), call)


@asynccontextmanager
async def fastmcp_over_stdio(place: Place) -> AsyncIterator[Connected]:
    transport = StdioTransport(sys.executable, words_of(place.book), env=dict(os.environ), keep_alive=False)
    async for connected in _with_fastmcp(transport):
        yield connected


@asynccontextmanager
async def fastmcp_over_http(place: Place) -> AsyncIterator[Connected]:
    with serving(place.book, "--tools", ALL) as server:
        headers = {"Authorization": f"Bearer {server.token}"}
        async for connected in _with_fastmcp(StreamableHttpTransport(f"{server.url}/mcp", headers=headers)):
            yield connected


USUAL: dict[str, Any] = {
    "query": "ports", "text": "Ports are numbers", "title": "Write it down", "name": "Ports", "reason": "no longer",
    "goal": "ship", "thread": "support", "path": "notes.txt", "agent": "ada", "question": "which", "choice": "this",
    "subject": "ports", "fact": "Ports are numbers", "citations": ["a.py:1"], "category": "project",
    "kind": "note.made",
    "run_id": "r1", "a": "r1", "b": "r1", "day": "2026-01-01", "sha": "0" * 64, "document": "decisions",
    "gate": "PLAN", "item": "the tests pass", "phase": "1", "report": "all is well", "topic": "found",
    "digest": "0" * 64,
    "workflow": "none", "texts": ["nowhere to be found"], "count": 1, "relation": "related", "action": "deploy",
    "facts": [{"subject": "ports", "fact": "Ports are numbers", "citations": ["a.py:1"], "reason": "r",
               "category": "project"}],
    "decision": "GO", "reviewer": "ben", "rationale": "better",
    "answer": "yes", "option": "one", "verdict": "approved", "tasks": [{"title": "Third"}], "subtasks": ["A", "B"],
    "items": ["Tea is served at four"], "payload": {"port": 5433}, "content": "began", "target": "daily",
    "messages": [{"role": "user", "content": "hello"}], "embedder": "auto",
}  # fmt: skip
"""What is said for a parameter that has to be given, by its name. Ids are found as the story goes."""

SAID: dict[str, dict[str, Any]] = {
    "remember": {"key": "db.port", "value": 5433, "tags": ["infra"]},
    "memory_revise": {"fields": {"tags": ["seen"]}},
    "memory_set_core": {"id": "handbook", "fields": {"type": "project"}},
    "memory_core": {"id": "handbook"},
    "work_records": {"kind": "decision"},
    "work_manage_discard": {"confirm": "DISCARD"},
    "work_manage_change": {"fields": {"goal": "ship it"}},
    "task_edit": {"fields": {"priority": 3}},
    "nudge": {"target": "all"},
    "learn_compact": {"messages": [{"role": "user", "content": "CONSTRAINT: never push"}]},
    "learn_reflect": {"run_id": "r1"},
    "learn_reflection_due": {"run_id": "r1"},
    "work_artifact": {"content": "aGVsbG8="},
    "learn_check_fact": {"reason": "r", "citations": ["a.py:1"], "category": "project"},
}
"""What a tool is told besides, or in place of that."""


class Story:
    """Calls tools one after the other, with the ids that earlier calls have answered."""

    def __init__(self, tools: list[Any], call: Calls) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._call = call
        self.statuses = dict[str, int]()
        self.messages = dict[str, str]()

    async def do(self, name: str, /, **more: Any) -> Any:
        schema = self._tools[name].model_dump(by_alias=True)["inputSchema"]
        given = {
            each: USUAL[each] for each in schema.get("required", ()) if each not in more and each in USUAL
        }
        arguments = {**given, **SAID.get(name, {}), **more}
        envelope, text = await self._call(name, arguments)
        assert json.loads(text) == envelope
        assert not list(Draft202012Validator(ENVELOPE).iter_errors(envelope)), envelope
        assert envelope["ok"] is (envelope["error"] is None)
        assert envelope["ok"] is (envelope["status"] == 200)
        assert not list(Draft202012Validator(schema).iter_errors(arguments)), (name, arguments)
        self.statuses[name] = envelope["status"]
        if envelope["error"]:
            self.messages[name] = envelope["error"]["message"]
        return envelope["data"]


async def play(story: Story) -> None:
    do = story.do
    item = (await do("remember"))["item_id"]
    other = (await do("remember", key="api.port", value=1))["item_id"]
    await do("memory_search", query="ports")
    for name in ("memory_write", "memory_read", "memory_curate", "inbox", "resume"):
        await do(name, **({"task": "ports"} if name == "resume" else {}))
    for name in ("board_post", "board_read", "digest_fetch"):
        await do(name)
    await do("record")
    await do("event", id=item)
    receipt = (await do("digest", query="ports"))["receipt_id"]
    await do("prompt", task="ports")
    await do("memory_add_many")
    for name in ("get", "history", "unshare", "share", "verify", "archive", "restore", "revise"):
        await do(f"memory_{name}", id=item)
    disputed = (await do("remember", value=5434))["item_id"]
    await do("memory_resolve", id=disputed, choice="new", rationale="it was moved")
    await do("remember", value=5435, supersedes=True)
    await do("memory_link", id=item, to=other)
    await do("memory_traverse", start=item)
    for name in (
        "repository_fact",
        "list",
        "held",
        "disputes",
        "tombstones",
        "tidy",
        "settings",
        "configure",
    ):
        await do(f"memory_{name}")
    for name in ("set_core", "core", "cores", "suggestions"):
        await do(f"memory_{name}")
    await do("receipts_get", id=receipt)
    await do("receipts_list")
    await do("receipts_bisect", run_id="r1")
    await do("receipts_changed_facts")
    for name in ("receipts_window", "receipts_salient"):
        await do(name, run_id="r1")
    for name in ("thread_add", "thread_context", "threads_list", "thread_messages", "thread_summary"):
        await do(name)
    await do("forget", id=other)

    work = (await do("work_begin"))["id"]
    await do("work_list")
    tasks = [(await do("task_add", work=work, title=f"Task {number}"))["id"] for number in range(6)]
    await do("work_add_tasks", work=work)
    claim = await do("task_claim", work=work, task=tasks[0])
    held = {"task": tasks[0], "token": claim["token"]}
    await do("task_heartbeat", **held)
    await do("task_release", **held)
    claim = await do("task_claim", work=work, task=tasks[0])
    await do("task_complete", task=tasks[0], token=claim["token"], summary="done")
    claim = await do("task_claim", work=work, task=tasks[1])
    await do("task_fail", task=tasks[1], token=claim["token"])
    claim = await do("task_claim", work=work, task=tasks[2])
    await do("task_split", task=tasks[2], token=claim["token"])
    await do("work_claim_many", work=work)
    await do("decide", work=work)
    await do("discover", work=work)
    nudge = (await do("nudge", work=work))["id"]
    for name in (
        "board",
        "info",
        "counts",
        "tasks",
        "ready",
        "critical_path",
        "graph",
        "contributions",
        "candidates",
    ):
        await do(f"work_{name}", work=work)
    for name in ("task_info", "task_radar", "work_context_for"):
        await do(name, task=tasks[4])
    ways = [(await do("task_add", work=work, title=title))["id"] for title in ("One way", "Another")]
    branches = {"one": ways[:1], "two": ways[1:]}
    branch = (await do("work_branch", work=work, options=branches))["id"]
    await do("work_choose", branch=branch)
    await do("work_records", work=work)
    artifact = (await do("work_artifact", work=work))["id"]
    await do("work_content", artifact=artifact)
    await do("work_read_messages", work=work)
    await do("work_acknowledge", nudge=nudge)
    question = (await do("work_escalate", work=work))["id"]
    await do("work_answer", escalation=question)
    for verdict in ("grant", "refuse"):
        asked = (await do("work_approvals_request", work=work))["id"]
        await do(f"work_approvals_{verdict}", what=asked)
    candidates = [each["id"] for each in (await do("work_candidates", work=work))["items"]]
    await do("work_promote", candidate=candidates[0], core="handbook")
    await do("work_reject", candidate=candidates[-1])
    await do("task_add_dependencies", task=tasks[5], on=[tasks[4]])
    await do("task_remove_dependencies", task=tasks[5], on=[tasks[4]])
    for name in ("assign", "unassign", "edit", "block", "unblock", "cancel"):
        await do(f"task_{name}", task=tasks[5])
    review = (await do("task_add", work=work, needs_review=True))["id"]
    claim = await do("task_claim", work=work, task=review)
    await do("task_complete", task=review, token=claim["token"], summary="look")
    await do("task_assign_review", task=review)
    await do("work_review", task=review)
    await do("task_retry", task=tasks[1])
    for name in ("outlook", "pause", "resume", "change"):
        await do(f"work_manage_{name}", work=work)
    for names in (("complete", "archive"), ("abandon",)):
        again = (await do("work_begin"))["id"]
        for name in names:
            await do(f"work_manage_{name}", work=again)
    await do("work_manage_discard", work=again)

    for name in (
        "write_notes",
        "notes",
        "check_notes",
        "add_to_session",
        "session",
        "clear_session",
        "add_to_task",
    ):
        await do(f"documents_{name}", **({"task": "ports"} if "session" in name or "task" in name else {}))
    for name in ("task", "record_gate", "gates"):
        await do(f"documents_{name}", task="ports")
    paths = (await do("documents_list"))["items"]
    await do("documents_get", path=paths[0])
    await do("documents_restore")
    for name in story._tools:
        if name.startswith("learn_"):
            required = story._tools[name].model_dump(by_alias=True)["inputSchema"].get("required", ())
            await do(name, **({"task": "ports"} if "task" in required else {}))
    await do("runs_list")
    await do("runs_state")
    fork = (await do("runs_fork"))["run_id"]
    await do("runs_diff", b=fork)
    await do("runs_merge", fork=fork)
    for name in ("status", "verify", "rebuild", "find", "find_text", "reindex", "migrate_index", "blob"):
        await do(f"admin_{name}", **({"text": "ports"} if name == "find" else {}))
    await do("admin_erase", ids=item)
    await do("admin_purge")
    await do("access_rights")
    await do("access_grant", subject="ben")
    kept = (await do("remember", key="c", value=1))["item_id"]
    await do("access_relabel", id=kept, sensitivity="public")
    await do("access_audit")


IN_NO_RUN = (400, "started with --run")
REFUSED = {
    "board_post": IN_NO_RUN, "board_read": IN_NO_RUN, "digest_fetch": IN_NO_RUN,
    "admin_blob": (404, "there is no blob"),
}  # fmt: skip
"""Calls of the story that are refused, and why: its server is started for the owner and in no run, and the book has no
blob. test_mcp.py has the same tools in a run."""


@pytest.mark.parametrize("connect", [sdk_over_stdio, sdk_over_http, fastmcp_over_stdio, fastmcp_over_http])
def test_every_tool_is_listed_and_called(place: Place, connect: Any) -> None:
    remote = connect in (sdk_over_http, fastmcp_over_http)

    async def with_client() -> None:
        async with connect(place) as (tools, call):
            expected = offered(GROUPS, remote=remote)
            assert [tool.name for tool in tools] == [*expected]
            for tool in tools:
                Draft202012Validator.check_schema(tool.model_dump(by_alias=True)["inputSchema"])
            told = Story(tools, call)
            await play(told)
            assert told.statuses.keys() == expected.keys()
            refused = {name: told.messages[name] for name, status in told.statuses.items() if status != 200}
            assert refused.keys() == REFUSED.keys(), json.dumps(refused, indent=1)
            for name, (status, message) in REFUSED.items():
                assert told.statuses[name] == status
                assert re.search(message, told.messages[name])

    story(with_client)
