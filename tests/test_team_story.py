"""One book and five who share it, each in a process of its own: agents by MCP (over stdio and over HTTP), by plain HTTP
and by Python, and a person with the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp")
import httpx2
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from .shells import COMMAND, in_process

LEASE = 2
"""Seconds for which the agent that dies has its task."""

BY_HTTP = """
    # An agent that knows nothing but HTTP. It does one request for each line that it is told, and waits for the next.
    import json, sys, urllib.error, urllib.request
    url, token = sys.argv[1:]
    for line in sys.stdin:
        path, arguments = json.loads(line)
        request = urllib.request.Request(f"{url}/v1/{path}", json.dumps(arguments).encode(), method="POST")
        request.add_header("Content-Type", "application/json")
        request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request) as answer:
                status, body = answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            status, body = error.code, json.load(error)
        print(json.dumps([status, body]), flush=True)
"""

BY_PYTHON = """
    # An agent that works in Python on the served book: it goes on with what others have left.
    import json, sys
    import commonplace
    url, token, work_id = sys.argv[1:]
    with commonplace.open(url, token=token) as book:
        told = []

        def write_the_client(claim):
            limit = [hit.content for hit in book.search("how many calls may the client make?", limit=1)]
            told.append({"context": str(claim.context()), "claims": claim.task.claims, "limit": limit})
            claim.decide(question="What to do when the limit is reached?", choice="wait", rationale="calls are cheap")
            return "it waits between calls"

        worked = book.work(id=work_id).worker(book.actor, write_the_client, most=1)
        print(json.dumps({"completed": worked.completed, "told": told}))
"""


class HttpAgent:
    """A process that speaks plain HTTP."""

    def __init__(self, url: str, token: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", dedent(BY_HTTP), url, token],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __call__(self, path: str, **arguments: Any) -> tuple[int, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps([path, arguments]), file=self.process.stdin, flush=True)
        status, body = json.loads(self.process.stdout.readline())
        return status, body

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


@contextmanager
def http_agent(url: str, token: str) -> Iterator[HttpAgent]:
    agent = HttpAgent(url, token)
    try:
        yield agent
    finally:
        if agent.process.poll() is None:
            agent.kill()


@contextmanager
def serving(book: str) -> Iterator[str]:
    """The address at which `commonplace serve` serves a book."""
    with subprocess.Popen(
        [*COMMAND, "--book", book, "--json", "serve", "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as server:  # fmt: skip
        try:
            assert server.stdout is not None
            yield json.loads(server.stdout.readline())["url"]
        finally:
            server.terminate()
            assert server.wait(30) == 0


class McpAgent:
    """A model's client: it calls tools and reads their data."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def __call__(self, tool: str, **arguments: Any) -> Any:
        result = await self.client.call_tool(tool, arguments)
        assert result.structured_content is not None
        assert result.structured_content["ok"], result.structured_content
        return result.structured_content["data"]

    async def refused(self, tool: str, **arguments: Any) -> int:
        result = await self.client.call_tool(tool, arguments)
        assert result.structured_content is not None
        assert not result.structured_content["ok"]
        return int(result.structured_content["status"])


@asynccontextmanager
async def by_stdio(book: str, *who: str) -> AsyncIterator[McpAgent]:
    command = StdioServerParameters(
        command=COMMAND[0], args=[*COMMAND[1:], "--book", book, *who, "mcp"], env=dict(os.environ)
    )
    async with Client(stdio_client(command)) as client:
        yield McpAgent(client)


@asynccontextmanager
async def by_http(url: str, token: str) -> AsyncIterator[McpAgent]:
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60) as http:
        async with Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client:
            yield McpAgent(client)


@pytest.mark.spec("L12", "3.11", "5.3", "5.6", "7.2", "7.3", "7.4", "L7")
def test_a_team_shares_one_book_through_every_door(tmp_path: Path) -> None:
    place = str(tmp_path / "team.db")

    def person(*words: object) -> Any:
        ran = in_process("--book", place, "--json", *words)
        assert ran.code == 0, ran.err
        return ran.json

    # A person makes the book, says who may do what, and gives each client of the server a token.
    person("init")
    person("access", "grant", "planner", "--role", "orchestrator")
    for agent in ("coder", "helper"):
        person("access", "grant", agent, "--role", "developer")
    person("access", "grant", "checker", "--role", "qa")
    person(
        "access", "grant", "chief", "--role", "person"
    )  # how the person signs what only one of the team may do

    def token(actor: str, *words: str) -> str:
        return str(person("access", "create-token", actor, *words)["secret"])

    async def play(url: str) -> None:
        async with by_stdio(place, "--as", "planner") as planner, by_http(url, token("checker")) as checker:
            # The planner keeps a fact for the team, and begins a work with two tasks.
            await planner("remember", key="api.limit", value="60 calls a minute", shared=True)
            work = (await planner("work_begin", name="Client", goal="A client of the API"))["id"]
            written = await planner("task_add", work=work, title="Write the client", needs_review=True)
            await planner("task_add", work=work, title="Announce it", depends_on=[written["id"]])
            assert await checker.refused("task_add", work=work, title="Rest") == 403  # not its role

            # An agent by HTTP asks in other words, takes the task, and dies.
            with http_agent(url, token("coder")) as coder:
                status, found = coder("search", query="how often may the client call?", limit=1)
                assert (status, found["results"][0]["content"]) == (200, "api.limit: 60 calls a minute")
                assert coder("access/grant", subject="coder", role="orchestrator")[0] == 403
                status, claim = coder("work/claim", work=work, agent="coder", lease=LEASE)
                assert (status, claim["task"]["id"]) == (200, written["id"])
                as_the_coder_knew_it = person("status")["head"]
                # The person has something to say to it.
                person(
                    "nudge", work, "Log every call that waits", "--target", "coder", "--task", written["id"]
                )
                status, nudges = coder("work/read_messages", work=work, agent="coder")
                assert [nudge["text"] for nudge in nudges] == ["Log every call that waits"]
                coder.kill()

            # The limit changes, and the person corrects what is known.
            known = person("memory", "list", "--key", "api.limit")["items"][0]["id"]
            limit = ("remember", "--key", "api.limit", "--value", "90 calls a minute", "--supersedes", known)
            assert person(*limit)["outcome"] == "stored"

            # An agent in Python gets the task when the lease has ended, with all that the first one was told.
            took = subprocess.run(
                [sys.executable, "-c", dedent(BY_PYTHON), url, token("helper"), work],
                capture_output=True, text=True, timeout=60,
            )  # fmt: skip
            assert took.returncode == 0, took.stderr
            worked = json.loads(took.stdout)
            assert worked["completed"] == 1
            (told,) = worked["told"]
            assert told["claims"] == 2
            assert told["limit"] == ["api.limit: 90 calls a minute"]
            assert "Log every call that waits" in told["context"]

            # The first one comes back, late: it is told that the task is no longer its own.
            with http_agent(url, token("coder")) as late:
                status, problem = late(
                    "claim/complete", task=written["id"], token=claim["token"], summary="done, I think"
                )
                assert (status, problem["code"]) == (409, "fenced")

            # The checker sees what waits for a review, and the decision; the person approves.
            waiting = await checker("inbox")
            assert written["id"] in json.dumps(waiting)
            assert "What to do when the limit is reached?" in json.dumps(
                await checker("work_board", work=work)
            )
            person("--as", "chief", "task", "review", written["id"], "approved")
            assert (await planner("task_claim", work=work))["task"]["title"] == "Announce it"

            # What did the coder know when it began? Everybody gets the same answer.
            with http_agent(url, token("coder")) as again:
                _, by_http_then = again("memory/list", key="api.limit", at=as_the_coder_knew_it)
            in_python = f"""
                import sys, commonplace
                with commonplace.open({url!r}, token=sys.argv[1]) as book:
                    print(book.memory.list(key="api.limit", at={as_the_coder_knew_it})[0].value)
            """
            by_python_then = subprocess.run(
                [sys.executable, "-c", dedent(in_python), token("helper")], capture_output=True, text=True, timeout=60
            )  # fmt: skip
            by_shell_then = person("memory", "list", "--key", "api.limit", "--at", as_the_coder_knew_it)
            assert [item["value"] for item in by_http_then["items"]] == ["60 calls a minute"]
            assert by_python_then.stdout == "60 calls a minute\n"
            assert [item["value"] for item in by_shell_then["items"]] == ["60 calls a minute"]

        # Two customers are served by one bot: what one of them says is not found for the other, whatever is asked.
        alice, bob = (token("bot", "--scope", f"users/{name}") for name in ("alice", "bob"))
        async with by_http(url, alice) as for_alice, by_http(url, bob) as for_bob:
            await for_alice("remember", text="Alice is allergic to peanuts", shared=True)
            assert (await for_alice("memory_search", query="what must she not eat?"))["results"]
            assert (await for_bob("memory_search", query="peanuts"))["results"] == []
        with http_agent(url, bob) as for_bob_by_http:
            assert for_bob_by_http("search", query="peanuts", scope="users/alice")[0] in (403, 404)
        assert (
            person("--scope", "users/alice", "memory", "list")["items"][0]["text"]
            == "Alice is allergic to peanuts"
        )

    with serving(place) as url:
        anyio.run(play, url)

    # The person sees who did what, what was refused, and that nothing was lost.
    did = {(event["actor"], event["kind"]) for event in person("log")}
    assert {("planner", "work.created"), ("coder", "task.claimed"), ("helper", "task.submitted")} <= did
    audit = person("access", "audit")
    denied = {entry["agent_id"] for entry in audit if entry["event_type"] == "access.denied"}
    assert denied == {"checker", "coder", "bot"}
    assert person("book", "verify")["ok"]
