"""What importing the library and running a command costs, in CPU-seconds of a fresh process, and how long a client
waits for an MCP server."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from tempfile import TemporaryDirectory

from .measure import Figure

ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""A process that may not keep its bytecode would compile every module anew."""

OPEN = "import commonplace; commonplace.open('memory:').close()"


def cpu_seconds(code: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def commands(_: float) -> Iterator[Figure]:
    """What a command of the shell costs above bare Python, on a book with one item."""
    with TemporaryDirectory() as folder:
        book = f"{folder}/book.db"
        shell = "import sys; from commonplace.surfaces.cli import main; sys.argv = ['commonplace', *{words}]; main()"
        told = [["init", "--quiet"], ["remember", "Tea is served at four."]]
        for words in told:
            cpu_seconds(shell.format(words=[*words, "--book", book]))
        for name, words, goal in (
            ("commonplace --help", ["--help"], 0.25),
            ("commonplace status", ["status", "--book", book], 0.25),
            ("commonplace log", ["log", "--book", book], 0.25),
            ("commonplace memory list", ["memory", "list", "--book", book], 0.25),
            ("commonplace search", ["search", "tea", "--book", book], 0.4),
        ):
            rounds = [(cpu_seconds("pass"), cpu_seconds(shell.format(words=words))) for _ in range(9)]
            bare, ours = (statistics.median(times) for times in zip(*rounds, strict=True))
            cost = ours - bare
            yield Figure(
                name, bare * 1000, ours * 1000, "CPU-ms", cost, f"<= {goal} CPU-s more", cost <= goal
            )


def serving(_: float) -> Iterator[Figure]:
    """How long a client waits for `commonplace mcp`: from its start to the list of tools."""
    with TemporaryDirectory() as folder:
        book = f"{folder}/book.db"
        command = [sys.executable, "-m", "commonplace", "--book", book]
        subprocess.run([*command, "init", "--quiet"], check=True, env=ENVIRONMENT)
        rounds = [(_started([sys.executable, "-c", SDK]), _answered([*command, "mcp"])) for _ in range(10)]
        sdk, ours = (statistics.median(times) for times in zip(*rounds, strict=True))
        yield Figure("commonplace mcp", sdk * 1000, ours * 1000, "ms", ours, "<= 1 s", ours <= 1)


SDK = "import mcp.server.stdio, mcp.server.lowlevel"
"""What a server in Python cannot do without."""

ASKED = (
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "benchmark", "version": "1"}}},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
)  # fmt: skip


def _started(command: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(command, check=True, env=ENVIRONMENT)
    return time.perf_counter() - begun


def _answered(command: list[str]) -> float:
    """Seconds until a server has said which tools it has."""
    begun = time.perf_counter()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        for message in ASKED:
            server.stdin.write(json.dumps(message) + "\n")
        server.stdin.flush()
        answers = [json.loads(server.stdout.readline()) for _ in range(2)]
        seconds = time.perf_counter() - begun
        assert answers[1]["result"]["tools"]
        server.stdin.close()
    return seconds


def importing(_: float) -> Iterator[Figure]:
    codes = ("pass", "import commonplace", "from commonplace import Book", OPEN)
    rounds = [[cpu_seconds(code) for code in codes] for _ in range(9)]
    bare, light, core, first = (statistics.median(times) for times in zip(*rounds, strict=True))
    for name, ours, goal in (
        ("import commonplace", light, 0.15),
        ("import commonplace and its core", core, None),
        ("import commonplace and open a book", first, None),
    ):
        cost = ours - bare
        told = "" if goal is None else f"<= {goal} CPU-s more"
        yield Figure(
            name, bare * 1000, ours * 1000, "CPU-ms", cost, told, None if goal is None else cost <= goal
        )
