"""The official inspector and the official conformance tool against real processes: `commonplace mcp` over stdio, and
`commonplace serve` over streamable HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("mcp")

import commonplace
from commonplace.surfaces.catalogue import DEFAULT
from tests.forwarding import forwarded
from tests.node import ENVIRONMENT, program
from tests.shells import COMMAND

pytestmark = pytest.mark.spec("7.3")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with commonplace.open(tmp_path / "book.db", mirror=False) as book:
        book.remember("Tea is served at four")
        book.remember(key="123", value="a number")
    return tmp_path / "book.db"


AUTHENTICATION = 3
"""The inspector's exit code when a server asks for another token."""


class Serving(NamedTuple):
    url: str
    token: str


@pytest.fixture
def server(place: Path) -> Iterator[Serving]:
    file = place.with_name("token")
    words = [*COMMAND, "--book", str(place), "--json", "serve", "--port", "0", "--token-file", str(file)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield Serving(json.loads(process.stdout.readline())["url"], file.read_text())
        finally:
            process.terminate()


def inspect(*words: str, code: int = 0) -> Any:
    """What the inspector prints. Its own files go to no home of a user."""
    ran = subprocess.run(
        [*program("inspector", "clients/launcher/build/index.js"), "--cli", *words],
        capture_output=True, text=True, timeout=120, check=False, env=ENVIRONMENT,
    )  # fmt: skip
    assert ran.returncode == code, ran.stderr + ran.stdout
    return json.loads(ran.stdout) if code == 0 else ran.stderr + ran.stdout


def story(*connection: str, command: tuple[str, ...] = ()) -> None:
    """What somebody tries who looks at a server with the inspector."""

    def ask(method: str, *words: str) -> Any:
        return inspect(*connection, "--method", method, *words, *(("--", *command) if command else ()))

    tools = ask("tools/list", "--strict")["tools"]
    assert [tool["name"] for tool in tools] == [*DEFAULT]
    words = ("--tool-arg", "key=api.limit", "value=60", "shared=true", 'tags=["infra"]')
    kept = ask("tools/call", "--tool-name", "remember", *words)["structuredContent"]
    assert (kept["ok"], kept["data"]["outcome"]) == (True, "stored")
    assert len(ask("resources/templates/list")["resourceTemplates"]) == 6
    (content,) = ask("resources/read", "--uri", "memory://key/api.limit")["contents"]
    assert json.loads(content["text"])["items"][0]["value"] == 60
    (message,) = ask("prompts/get", "--prompt-name", "brief_me", "--prompt-args", "topic=api.limit")[
        "messages"
    ]
    assert "api.limit" in message["content"]["text"]


def test_the_inspector_sees_and_uses_a_server_over_stdio(place: Path) -> None:
    words = (sys.executable, "-m", "commonplace", "--book", str(place), "--as", "ada", "mcp")
    story("--transport", "stdio", command=words)


def test_the_inspector_sees_and_uses_a_server_over_http(server: Serving) -> None:
    at = (f"{server.url}/mcp", "--transport", "http")
    story(*at, "--header", f"Authorization: Bearer {server.token}")
    inspect(*at, "--header", "Authorization: Bearer other", "--method", "tools/list", code=AUTHENTICATION)


NOT_OFFERED = "no tool answers with images, sounds or resources: the book holds text"
ASKS_NOTHING = "the server asks nothing of a client: no sampling, no elicitation"
NOT_APPLICABLE = {
    "logging-set-level": "the server sends no log messages, and does not say that it would",
    "tools-call-with-logging": "the server sends no log messages, and does not say that it would",
    "tools-call-image": NOT_OFFERED,
    "tools-call-audio": NOT_OFFERED,
    "tools-call-embedded-resource": NOT_OFFERED,
    "tools-call-mixed-content": NOT_OFFERED,
    "tools-call-with-progress": "it wants three notifications of a call without arguments; test_mcp.py shows progress",
    "tools-call-sampling": ASKS_NOTHING,
    "tools-call-elicitation": ASKS_NOTHING,
    "elicitation-sep1034-defaults": ASKS_NOTHING,
    "elicitation-sep1330-enums": ASKS_NOTHING,
    "json-schema-2020-12": "it wants a tool with one given schema, to see whether an SDK drops parts of it",
    "server-sse-polling": "it wants a tool that closes its own stream; a stream that breaks is not resumed, calls are",
    "resources-read-binary": "every resource is text",
    "prompts-get-embedded-resource": "the prompts are text",
    "prompts-get-with-image": "the prompts are text",
}
"""Scenarios that ask for what this server does not have, and why it does not. Each has to fail: one that passes has to
be taken from this list."""

STANDS_FOR = {
    "test_simple_text": "work_list",
    "test_error_handling": "memory_read",
    "test://static-text": "memory://long_term",
    "test://watched-resource": "memory://long_term",
    "test://template/123/data": "memory://key/123",
    "test_simple_prompt": "brief_me",
    "test_prompt_with_arguments": "brief_me",
    '"arg1"': '"topic"',
    '"arg2"': '"tag"',
}
"""The tool's scenarios call fixtures by their names. The forwarder calls what this server has of the same kind."""


def test_the_conformance_tool_finds_what_it_asks_for(server: Serving, tmp_path: Path) -> None:
    """The tool can send no token, so the forwarder adds it."""
    reports = tmp_path / "reports"
    with forwarded(server.url, server.token, STANDS_FOR) as url:
        words = ["server", "--url", f"{url}/mcp", "--suite", "all", "--output-dir", str(reports)]
        ran = subprocess.run(
            [*program("conformance", "dist/index.js"), *words],
            capture_output=True, text=True, timeout=120, check=False, env=ENVIRONMENT, cwd=tmp_path,
        )  # fmt: skip
    found = dict[str, list[dict[str, Any]]]()
    for file in reports.glob("*/checks.json"):
        scenario = file.parent.name.removeprefix("server-").rsplit("-", 6)[0]
        found[scenario] = json.loads(file.read_text())
    assert len(found) >= 30, ran.stdout + ran.stderr
    failed = {
        scenario: [check.get("errorMessage") for check in checks if check["status"] == "FAILURE"]
        for scenario, checks in found.items()
        if any(check["status"] == "FAILURE" for check in checks)
    }
    assert failed.keys() == NOT_APPLICABLE.keys(), failed
