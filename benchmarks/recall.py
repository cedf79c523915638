"""How well search finds, on conversations in LoCoMo's format: `python -m benchmarks.recall FILE [FILE …]
[--embedder minilm]`.

A file is a list of conversations, each with sessions of turns and with questions that name the turns that hold their
evidence. Turns are recorded as `agent.spoke` with their dates. Told are R@5, R@10, R@20 (the mean share of a question's
evidence among the first so many) and nDCG@10, by mode and category of question; category 5 has no answer and stands
apart. With `--peers` other memories that are installed are asked the same, with the same vectors of the same texts.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

import commonplace
from commonplace import Book
from commonplace.index import embedder_of

from .peers import PEERS, installed

MODES = ("hybrid", "semantic", "words")
ANSWERED = ("1", "2", "3", "4")
_WHEN = re.compile(r"(\d+):(\d+) (am|pm) on (\d+) (\w+), (\d+)")

Row = tuple[list[float], float]


def day(text: str) -> datetime:
    """`1:56 pm on 8 May, 2023`."""
    found = _WHEN.search(text)
    assert found is not None, text
    hour, minute, half, number, month, year = found.groups()
    plain = f"{hour}:{minute} {half} {number} {month} {year}"
    return datetime.strptime(plain, "%I:%M %p %d %B %Y").replace(tzinfo=UTC)


def spoken(text: str, speaker: str, when: datetime) -> str:
    """A turn with its day and its speaker, for memories that know of neither."""
    return f"[{when:%-d %B %Y}] {speaker}: {text}"


class Turn(NamedTuple):
    id: str
    speaker: str
    text: str
    session: str
    when: datetime


def turns(conversation: dict[str, Any]) -> Iterator[Turn]:
    number = 1
    while f"session_{number}" in conversation:
        began = day(conversation[f"session_{number}_date_time"])
        for n, turn in enumerate(conversation[f"session_{number}"]):
            when = began + timedelta(seconds=n)
            yield Turn(turn["dia_id"], turn["speaker"], turn["text"], f"session-{number}", when)
        number += 1


def told(book: Book, conversation: dict[str, Any]) -> None:
    """Record a conversation; the events have the names of its turns."""
    for turn in turns(conversation):
        book.record(
            "agent.spoke", actor=turn.speaker, session_id=turn.session, occurred_at=turn.when, id=turn.id,
            payload={"text": turn.text},
        )  # fmt: skip


def asking(
    conversation: dict[str, Any], embedder: str, peers: list[str], open_until: ExitStack
) -> dict[str, Callable[[str], list[str]]]:
    """How to ask about a conversation: by our modes, and the peers."""
    book = open_until.enter_context(commonplace.open("memory:"))
    book.memory.configure(embedder=embedder)
    told(book, conversation)
    book.admin.reindex()
    ours = {mode: partial(found, book, mode=mode) for mode in MODES}
    said = {turn.id: spoken(turn.text, turn.speaker, turn.when) for turn in turns(conversation)}
    return ours | {name: PEERS[name](said, open_until, embedder_of(embedder)) for name in peers}


def found(book: Book, question: str, mode: str) -> list[str]:
    if mode == "words":  # keyword mode serves other tiers: the same index, without the rest
        index = book._session.services.index.catch_up()
        hits = index.search(question, allowed=lambda _: True, limit=20).hits
        return [hit.id for hit in hits]
    return [one.id for one in book.search(question, mode=mode, max_results=20).results]


def graded(ranked: list[str], evidence: set[str]) -> Row:
    shares = [len(evidence & {*ranked[:k]}) / len(evidence) for k in (5, 10, 20)]
    gained = sum(1 / math.log2(place + 2) for place, id in enumerate(ranked[:10]) if id in evidence)
    return shares, gained / sum(1 / math.log2(place + 2) for place in range(min(10, len(evidence))))


def questions(
    path: Path, embedder: str, peers: list[str], times: dict[str, list[float]]
) -> Iterator[tuple[str, str, Row]]:
    for one in json.loads(path.read_text()):
        known = {turn.id for turn in turns(one["conversation"])}
        with ExitStack() as open_until:
            ways = asking(one["conversation"], embedder, peers, open_until)
            for asked in one["qa"]:
                evidence = known.intersection(asked["evidence"])
                for way, ask in ways.items() if evidence else ():
                    start = time.perf_counter()
                    ranked = ask(asked["question"])
                    times[way].append(time.perf_counter() - start)
                    yield way, str(asked["category"]), graded(ranked, evidence)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser("benchmarks.recall", description=__doc__)
    parser.add_argument("paths", nargs="+", metavar="FILE")
    parser.add_argument("--embedder", default="static")
    parser.add_argument("--peers", action="store_true")
    given = parser.parse_args(arguments)
    peers = installed() if given.peers else []
    rows, times = defaultdict[tuple[str, str], list[Row]](list), defaultdict[str, list[float]](list)
    for path in given.paths:
        for mode, category, row in questions(Path(path), given.embedder, peers, times):
            rows[mode, category].append(row)
            if category in ANSWERED:
                rows[mode, "1-4"].append(row)
    table = Table("mode", "category", "questions", "R@5", "R@10", "R@20", "nDCG@10", "ms (p50)")
    for (mode, category), graded_ in sorted(rows.items()):
        shares = [f"{100 * mean(one[0][k] for one in graded_):.1f}" for k in range(3)]
        gain = f"{100 * mean(one[1] for one in graded_):.1f}"
        table.add_row(mode, category, str(len(graded_)), *shares, gain, f"{1000 * median(times[mode]):.1f}")
    Console(width=100).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
