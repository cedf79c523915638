"""`python -m benchmarks [--quick] [NAME …]`: print a table and write benchmarks/results/latest.json."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from . import actors, appends, conversations, holders, memory, served, servers, start, state
from .measure import Figure

BENCHES: dict[str, Callable[[float], Iterator[Figure]]] = {
    "import": start.importing,
    "commands": start.commands,
    "mcp": start.serving,
    "append": appends.single,
    "threads": appends.threads,
    "conversations": conversations.growth,
    "batch": appends.batches,
    "processes": appends.processes,
    "holders": holders.holders,
    "tail": appends.tailing,
    "postgres": servers.postgres,
    "postgres-processes": servers.postgres_processes,
    "redis": servers.valkey,
    "served": served.both,
    "served-sqlite": served.sqlite,
    "served-postgres": served.postgres,
    "growth": appends.growth,
    "actors": actors.reads,
    "state": state.beside_langgraph,
    "states": state.growth,
    "memory": memory.beside_mem0,
    "many": memory.many_beside_mem0,
    "memories": memory.growth,
    "prompt": memory.prompting,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*BENCHES, []], help="which to run; all by default")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, for a first look")
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "latest.json")
    asked = parser.parse_args()
    figures: list[Figure] = []
    screen = Console(stderr=True)
    for name in asked.names or BENCHES:
        with screen.status(f"measuring {name}"):
            figures += BENCHES[name](0.1 if asked.quick else 1.0)
    show(figures)
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    machine = {"python": platform.python_version(), "system": platform.platform()}
    asked.json.write_text(
        json.dumps({"machine": machine, "figures": [asdict(one) for one in figures]}, indent=2)
    )
    return 0


def show(figures: list[Figure]) -> None:
    table = Table("work", "raw", "ours", "unit", "ratio", "goal", "", "note")
    for one in figures:
        mark = {True: "met", False: "missed", None: ""}[one.met]
        table.add_row(
            one.work,
            f"{one.peer:,.1f}",
            f"{one.ours:,.1f}",
            one.unit,
            f"{one.ratio:.2f}",
            one.goal,
            mark,
            one.note,
        )
    Console(width=170).print(table)


if __name__ == "__main__":
    sys.exit(main())
