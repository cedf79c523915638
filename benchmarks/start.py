"""What importing the library and running a command costs, in CPU-seconds of a fresh process."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
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
