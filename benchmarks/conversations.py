"""Conversations: what a turn costs as a thread grows, and how often its context holds the evidence.

`python -m benchmarks conversations` measures the cost. `python -m benchmarks.conversations FILE [FILE …]
[--embedder minilm]` asks the questions of conversations in LoCoMo's format: each conversation is one thread, and told
is how often the context for a question, in 4,000 characters, holds all of its evidence, some of it, and which share of
it; beside it the last turns that fit into as many characters, and the best turns by BM25.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

from rich.console import Console
from rich.table import Table

import commonplace
from commonplace.threads.verbs import Thread

from .measure import Figure, folder, memory_disk, microseconds
from .memory import WORDS
from .recall import ANSWERED, turns

BUDGET = 4_000
SHARES = (0.0, 0.25, 0.5)
FEW = 100
VOCABULARY = 20_000


def growth(scale: float) -> Iterator[Figure]:
    """What `add` and `context` cost in a thread with many messages beside one with a hundred, each in a book of its
    own, by turns. Some words are usual and most are rare, as in any language without its stop words."""
    for most in (10_000, 100_000) if scale >= 1 else (max(1_000, int(10_000 * scale)),):
        yield from _beside_few(most)


def _beside_few(most: int) -> Iterator[Figure]:
    rng = random.Random(7)
    with folder(memory_disk()) as where, ExitStack() as books:

        def filled(size: int) -> Thread:
            book = books.enter_context(commonplace.open(where / f"{size}.db", durability="process"))
            book.memory.configure(embedder="static")
            thread = book.thread("talk")
            for start in range(0, size, 1_000):
                thread.add([_message(rng) for _ in range(min(1_000, size - start))])
            _ask(thread, _words(rng), 0)  # the index catches up
            return thread

        threads = {"few": filled(FEW), "many": filled(most)}
        times = defaultdict[tuple[str, str], list[float]](list)
        for _ in range(20):
            for name, thread in threads.items():
                times[name, "add"] += microseconds(partial(_say, thread, rng), 0, 5)
                times[name, "context"] += microseconds(partial(_ask, thread, _words(rng)), 0, 3)
    for verb in ("add", "context"):
        small, large = (median(times[name, verb]) for name in ("few", "many"))
        work = f"thread.{verb}, {FEW} → {most // 1000}k messages"
        yield Figure(work, small, large, "µs", large / small, "<= 1.5", large / small <= 1.5)


def _words(rng: random.Random) -> str:
    ranks = [int(VOCABULARY ** rng.uniform(0.3, 1.0)) for _ in range(12)]
    return " ".join(f"{WORDS[rank % len(WORDS)]}{rank // len(WORDS) or ''}" for rank in ranks)


def _message(rng: random.Random) -> dict[str, Any]:
    role = rng.choice(("user", "assistant"))
    return {"role": role, "content": _words(rng), "id": f"m{rng.getrandbits(64):x}"}


def _say(thread: Thread, rng: random.Random, _: int) -> None:
    thread.add(_message(rng))


def _ask(thread: Thread, query: str, _: int) -> None:
    thread.context(query, max_chars=BUDGET)


# the evidence for questions


def questions(path: Path, embedder: str, times: list[float]) -> Iterator[tuple[str, str, set[str], set[str]]]:
    """For each question of a file: how its context was made, its category, the evidence, and the turns that it has."""
    for one in json.loads(path.read_text()):
        said = list(turns(one["conversation"]))
        known = {turn.id for turn in said}
        with commonplace.open("memory:") as book:
            book.memory.configure(embedder=embedder)
            thread = book.thread("conversation")
            thread.add(
                [
                    {
                        "role": "user",
                        "name": turn.speaker,
                        "content": turn.text,
                        "id": turn.id,
                        "time": turn.when,
                    }
                    for turn in said
                ]
            )
            ids = {message.event_id: message.id for message in thread.messages()}
            texts = {turn.id: f"#{number} {turn.speaker}: {turn.text}" for number, turn in enumerate(said, 1)}
            index = book._session.services.index.catch_up()
            recent = fitting([turn.id for turn in reversed(said)], texts)
            for asked in one["qa"]:
                evidence = known.intersection(asked["evidence"])
                if not evidence:
                    continue
                category = str(asked["category"])
                for share in SHARES:
                    began = time.perf_counter()
                    context = thread.context(asked["question"], max_chars=BUDGET, recent=share, receipt=False)
                    times.append(time.perf_counter() - began)
                    assert len(context.text) <= BUDGET
                    yield f"context, recent={share}", category, evidence, {ids[id] for id in context.turn_ids}
                yield "the last turns", category, evidence, recent
                hits = index.search(asked["question"], allowed=lambda _: True, limit=200).hits
                yield "BM25", category, evidence, fitting([ids[hit.id] for hit in hits], texts)


def fitting(ranked: list[str], texts: dict[str, str]) -> set[str]:
    """The first turns that fit into the budget, a line each."""
    taken, size = set[str](), 0
    for id in ranked:
        size += len(texts[id]) + 1
        if size > BUDGET:
            break
        taken.add(id)
    return taken


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser("benchmarks.conversations", description=__doc__)
    parser.add_argument("paths", nargs="+", metavar="FILE")
    parser.add_argument("--embedder", default="static")
    asked = parser.parse_args(arguments)
    rows, times = defaultdict[tuple[str, str], list[tuple[bool, bool, float]]](list), list[float]()
    for path in asked.paths:
        for way, category, evidence, held in questions(Path(path), asked.embedder, times):
            row = (evidence <= held, bool(evidence & held), len(evidence & held) / len(evidence))
            rows[way, "all"].append(row)
            if category in ANSWERED:
                rows[way, "1-4"].append(row)
    table = Table("context", "category", "questions", "all of it", "some of it", "share")
    for (way, category), graded in rows.items():
        whole, some, share = (mean(part) for part in zip(*graded, strict=True))
        table.add_row(way, category, f"{len(graded):,}", f"{whole:.1%}", f"{some:.1%}", f"{share:.1%}")
    Console(width=110).print(table)
    Console().print(f"thread.context: {1000 * median(times):.1f} ms (p50)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
