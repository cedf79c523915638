"""How fast search is, and how much of the exact answer it finds, at several sizes:
`python -m benchmarks.scale [--sizes 10000 100000 1000000] [--queries 100] [--keep FOLDER]`.

Notes of about twelve words with frequencies as in real texts, each on one of some hundred topics, are put straight
into an index. Their vectors are sums of made-up vectors of words, of which those of one topic are somewhat alike and
those of one group clearly. Every query is asked once by each mode; making its vectors is timed apart and left out of
the other figures. CPU is beside the clock, because machines have other things to do. At the smallest size others
stand beside it, with the same notes, queries and vectors. `--keep` leaves the indexes in a folder, and uses those that
an earlier run left there.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress, track
from rich.table import Table

from commonplace.index import Doc, How, Index, Put, Who, columns, static_words
from commonplace.index.vectors import SCALE, Vectors, whole
from commonplace.index.words import STOPWORDS

from .measure import folder, median, microseconds, percentile

MODES: tuple[How, ...] = ("keyword", "semantic", "hybrid")
GOALS = {10_000: 3.0, 100_000: 20.0, 1_000_000: 100.0}
"""Milliseconds of a hybrid search."""
WORDS, TOPICS, GROUP, DIMENSIONS = 60_000, 300, 8, 256
PAGE = 5_000
WHO = Who("ada", "memory.stored", False, "public", "semantic")


class World:
    """What notes and queries are made of. The same in every run. Also the embedder: it adds up vectors of words."""

    name, dimensions = "made up 1", DIMENSIONS

    def __init__(self) -> None:
        rng = np.random.default_rng(7)
        self.spent = 0.0
        self.words = [*sorted(STOPWORDS)[:100], *_made_up(rng, WORDS)]
        self._numbers = {word: n for n, word in enumerate(self.words)}
        count = len(self.words)
        self._topic = rng.integers(0, TOPICS, count // GROUP + 1)[np.arange(count) // GROUP]
        self._of_topic = [np.flatnonzero(self._topic == topic) for topic in range(TOPICS)]
        self._often = 1 / (np.arange(count) + 3.0)
        self._rng_seed = int(rng.integers(1 << 30))

    @cached_property
    def _vectors(self) -> NDArray[np.float64]:
        rng, count = np.random.default_rng(self._rng_seed), len(self.words)
        topics, groups = (
            rng.normal(size=(TOPICS, DIMENSIONS)),
            rng.normal(size=(count // GROUP + 1, DIMENSIONS)),
        )
        own = rng.normal(size=(count, DIMENSIONS))
        made = 0.5 * topics[self._topic] + 0.7 * groups[np.arange(count) // GROUP] + 0.6 * own
        made[:100] *= 0.2  # words that say little
        return np.rint(made * 256)

    def embed(self, texts: Sequence[str], asking: bool = False) -> Vectors:
        began = time.perf_counter()
        made = np.zeros((len(texts), DIMENSIONS), np.int8)
        for at, text in enumerate(texts):
            known = [self._numbers[word] for word in text.split() if word in self._numbers]
            if known:
                made[at] = whole(self._vectors[known].sum(axis=0))
        self.spent += time.perf_counter() - began
        return made

    def notes(self, count: int, seed: int = 11) -> Iterator[str]:
        for page in range(0, count, PAGE):
            rng = np.random.default_rng([seed, page])
            for topic in _drawn(rng, 1 / (np.arange(TOPICS) + 10.0), min(PAGE, count - page)):
                yield " ".join(self.words[n] for n in self._said(rng, int(topic), int(rng.integers(6, 19))))

    def _said(self, rng: np.random.Generator, topic: int, length: int) -> list[int]:
        own = self._of_topic[topic]
        common = self._drawn_often(rng, length // 3 + 1)
        about = own[_drawn(rng, self._often[own], length - len(common))]
        return [int(n) for n in rng.permutation(np.concatenate([common, about]))]

    def _drawn_often(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        return np.searchsorted(self._upto, rng.random(count)).astype(np.int64)

    @cached_property
    def _upto(self) -> NDArray[np.float64]:
        upto: NDArray[np.float64] = np.cumsum(self._often) / self._often.sum()
        return upto

    def queries(self, count: int, size: int) -> list[str]:
        """Some words of a note, one more of its topic, and one that says nothing."""
        rng, made = np.random.default_rng(13), list[str]()
        notes = [*self.notes(min(size, PAGE))]
        while len(made) < count:
            words = [word for word in notes[rng.integers(len(notes))].split() if word not in STOPWORDS]
            if len(words) >= 4:
                topic = self._topic[self._numbers[words[0]]]
                also = self.words[int(rng.choice(self._of_topic[topic]))]
                made.append(" ".join(["what", "about", *rng.choice(words, 3, replace=False), also]))
        return made


def _made_up(rng: np.random.Generator, count: int) -> list[str]:
    parts = [first + vowel for first in "bdfgklmnprstvz" for vowel in "aeiou"]
    made: dict[str, None] = {}
    while len(made) < count:
        made["".join(rng.choice(parts, int(rng.integers(2, 5))))] = None
    return [*made]


def _drawn(rng: np.random.Generator, often: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    upto = np.cumsum(often)
    drawn: NDArray[np.int64] = np.searchsorted(upto, rng.random(count) * upto[-1]).astype(np.int64)
    return drawn


def built(world: World, path: Path, size: int, progress: Progress) -> float:
    """Build the index of so many notes, or go on where it stands; answers the seconds it took."""
    began, index = time.perf_counter(), Index.open(path, world)
    task = progress.add_task(f"{size:,} notes into the index", total=size)
    page: list[tuple[int, Put]] = []
    done = index.position
    for n, text in enumerate(world.notes(size if done < size else 0), 1):
        if n > done:
            page.append((n, Put(Doc(f"note-{n * 7919 % 10_000_019:08}", text, WHO, "semantic", "x", n))))
        if page and (len(page) == PAGE or n == size):
            index.apply(page[0][0] - 1, n, page)
            page = []
        if not n % PAGE:
            progress.update(task, completed=n)
    progress.remove_task(task)
    index.close()
    return time.perf_counter() - began


class Timed(NamedTuple):
    """Milliseconds of each query without the making of vectors, by the clock and of CPU, and the answers."""

    clock: list[float]
    cpu: list[float]
    answers: list[list[str]]


def asked(index: Index, query: str, how: How) -> list[str]:
    return [hit.id for hit in index.search(query, allowed=lambda _: True, how=how).hits]


def timed(world: World, queries: list[str], ask: Callable[[str], list[str]]) -> Timed:
    every = Timed([], [], [])
    for query in queries:
        world.spent, began, used = 0.0, time.perf_counter(), time.process_time()
        every.answers.append(ask(query))
        every.clock.append((time.perf_counter() - began - world.spent) * 1000)
        every.cpu.append(max(0.0, time.process_time() - used - world.spent) * 1000)
    return every


def share(found: list[list[str]], exact: list[list[str]]) -> float:
    """How much of the exact answers was found."""
    shares = [len({*one} & {*other}) / len(other) for one, other in zip(found, exact, strict=True) if other]
    return sum(shares) / len(shares)


def exactly(world: World, path: Path, queries: list[str], how: How) -> list[list[str]]:
    """The answers where every vector is compared."""
    few = columns.FEW
    columns.FEW = 1 << 62
    try:
        index = Index.open(path, world)
        answers = [asked(index, query, how) for query in queries]
        index.close()
    finally:
        columns.FEW = few
    return answers


def first_search(path: Path, query: str) -> tuple[float, float]:
    """Milliseconds from opening the index to the first answer in a process of its own, by the clock and of CPU."""
    command = [sys.executable, "-m", "benchmarks.scale", "--first", str(path), query]
    clock, cpu = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return float(clock), float(cpu)


def first_here(path: Path, query: str) -> None:
    world = World()
    world.embed([query])
    took = timed(world, [query], lambda query: asked(Index.open(path, world), query, "hybrid"))
    print(*took.clock, *took.cpu)


def at_size(world: World, path: Path, size: int, count: int) -> Iterator[dict[str, Any]]:
    queries = world.queries(count, size)
    first = [
        median([*those]) for those in zip(*(first_search(path, queries[0]) for _ in range(3)), strict=True)
    ]
    index = Index.open(path, world)
    asked(index, queries[-1], "hybrid")
    for how in MODES:
        took = timed(world, queries, lambda query, how=how: asked(index, query, how))  # type: ignore[misc]
        row: dict[str, Any] = {"what": how, "notes": size, **figures(took)}
        if how != "keyword":
            row["share"] = share(took.answers, exactly(world, path, queries, how))
        if how == "hybrid":
            again = timed(world, queries, lambda query: asked(index, query, "hybrid"))
            files = sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))
            row |= {"again": median(again.clock), "first": first, "memory": index.memory(), "file": files}
            row["met"] = row["p50"] <= GOALS[size] if size in GOALS else None
        yield row
    index.close()


def figures(took: Timed) -> dict[str, float]:
    return {"p50": median(took.clock), "p95": percentile(took.clock, 0.95), "cpu": median(took.cpu)}


def beside(world: World, size: int, count: int, where: Path) -> Iterator[dict[str, Any]]:
    """Others with the same notes, queries and vectors."""
    queries, notes = world.queries(count, size), [*world.notes(size)]
    for name, module, peer in (
        ("LangGraph SqliteStore", "langgraph.store.sqlite", sqlite_store),
        ("mem0", "mem0", mem0),
    ):
        if find_spec(module.partition(".")[0]) is None:
            print(f"{name} is not installed, so it is left out: pip install 'commonplace-memory[bench]'")
            continue
        if peer is sqlite_store and not hasattr(sqlite3.Connection, "enable_load_extension"):
            print(f"{name} is left out: this Python's sqlite3 was built without extensions")
            continue
        ask = peer(world, notes, where)
        ask(queries[-1])
        yield {"what": name, "notes": size, **figures(timed(world, queries, ask))}


def floats(world: World, texts: Sequence[str]) -> list[list[float]]:
    made: list[list[float]] = (world.embed(texts) / SCALE).tolist()
    return made


def sqlite_store(world: World, notes: list[str], where: Path) -> Callable[[str], list[str]]:
    from langgraph.store.base import PutOp
    from langgraph.store.sqlite import SqliteStore  # type: ignore[import-untyped,unused-ignore]

    connection = sqlite3.connect(where / "store.db", isolation_level=None, check_same_thread=False)
    embed: Any = lambda texts: floats(world, texts)  # noqa: E731
    store = SqliteStore(connection, index={"dims": DIMENSIONS, "embed": embed, "fields": ["text"]})
    store.setup()
    for page in range(0, len(notes), 500):
        some = enumerate(notes[page : page + 500], page)
        store.batch([PutOp(("notes",), str(n), {"text": text}) for n, text in some])
    return lambda query: [one.key for one in store.search(("notes",), query=query, limit=10)]


def mem0(world: World, notes: list[str], where: Path) -> Callable[[str], list[str]]:
    from .peers import theirs

    class Embedding:
        def embed(self, text: str, _action: str | None = None, **_: Any) -> list[float]:
            return floats(world, [text])[0]

        def embed_batch(self, texts: list[str], _action: str | None = None, **_: Any) -> list[list[float]]:
            return floats(world, texts)

    memory = theirs(where, Embedding(), DIMENSIONS)
    for note in track(notes, "notes into mem0"):
        memory.add(note, user_id="ada", infer=False)
    return lambda query: [
        one["id"] for one in memory.search(query, filters={"user_id": "ada"}, top_k=10)["results"]
    ]


def embedding(queries: list[str]) -> dict[str, Any]:
    """What making a query's vectors takes with the embedder that everybody has: its own, and its words'."""
    words = static_words()
    words.embed(queries[:1])
    times = microseconds(lambda n: words.embed([queries[n], *queries[n].split()]), 0, len(queries))
    return {"what": "embedding a query and its words", "p50": median(times) / 1000}


def show(rows: list[dict[str, Any]]) -> None:
    table = Table(
        "",
        "notes",
        "p50",
        "p95",
        "CPU p50",
        "of the exact 10",
        "asked again",
        "first, CPU",
        "memory",
        "file",
        "goal",
    )
    for row in rows:
        goal = GOALS.get(row.get("notes", 0)) if "met" in row else None
        table.add_row(
            row["what"], f"{row['notes']:,}" if "notes" in row else "",
            *(f"{row[name]:.2f}" if name in row else "" for name in ("p50", "p95", "cpu")),
            f"{row['share']:.3f}" if "share" in row else "", f"{row['again']:.2f}" if "again" in row else "",
            ", ".join(f"{one:,.0f}" for one in row.get("first", [])),
            *(f"{row[name] / 1e6:,.0f} MB" if name in row else "" for name in ("memory", "file")),
            "" if goal is None else f"<= {goal:.0f} ms: {'met' if row['met'] else 'missed'}",
        )  # fmt: skip
    Console(width=150).print(table, "times in ms unless said")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--sizes", nargs="+", type=int, default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--first", nargs=2, metavar=("INDEX", "QUERY"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.first:
        first_here(Path(given.first[0]), given.first[1])
        return 0
    world, rows = World(), list[dict[str, Any]]()
    with folder() as made:
        where = given.keep or made
        where.mkdir(parents=True, exist_ok=True)
        for size in sorted(given.sizes):
            path = where / f"{size}.index"
            with Progress(console=Console(stderr=True)) as progress:
                took = built(world, path, size, progress)
            print(f"{size:,} notes: {took:.0f} s to build", file=sys.stderr)
            rows += at_size(world, path, size, given.queries)
        rows += beside(world, min(given.sizes), given.queries, made)
        rows.append(embedding(world.queries(given.queries, min(given.sizes))))
    show(rows)
    results = Path(__file__).parent / "results" / "scale.json"
    results.parent.mkdir(exist_ok=True)
    results.write_text(json.dumps(rows, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
