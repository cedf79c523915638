"""Durable memory: what remembering costs as a book grows, and beside mem0 with the same stub embedder."""

from __future__ import annotations

import random
from collections.abc import Iterator
from importlib.util import find_spec
from time import perf_counter

import commonplace
from commonplace.index import embedder_of

from .measure import Figure, by_turns, folder, median, memory_disk, microseconds
from .peers import ForMem0, theirs, width

WORDS = [
    "harbour", "engine", "invoice", "river", "copper", "lantern", "garden", "signal", "orchard", "ledger", "window",
    "meadow", "compass", "kettle", "timber", "marble", "saddle", "anchor", "thimble", "walnut", "bridge", "candle",
    "pebble", "ribbon", "barrel", "hammer", "feather", "basket", "mirror", "needle", "pocket", "velvet", "cinder",
]  # fmt: skip
AT_ONCE = 1_000
AT_RANDOM = "words at random now and then look like something that is not kept"


def sentence(rng: random.Random) -> str:
    return f"{' '.join(rng.sample(WORDS, 9))} and {rng.randrange(10**6)}"


def growth(scale: float) -> Iterator[Figure]:
    """The same remember with 1,000 and with 100,000 items before it, near-duplicates looked for each time; then
    the same for one that is found by a search."""
    most, rng = max(3_000, int(100_000 * scale)), random.Random(7)
    with folder(memory_disk()) as where, commonplace.open(where / "ours.db", durability="process") as book:
        ada = book.as_actor("ada")

        def remember(_: int) -> None:
            kept = ada.remember(sentence(rng), override=AT_RANDOM)
            assert kept.outcome == "stored", kept

        def fill(upto: int) -> None:
            while len(taken) < upto:
                taken.append(1)
                remember(0)

        taken: list[int] = []
        fill(1_000)
        small = median(microseconds(remember, 0, 300))
        book.admin.reindex()
        fill(most)
        large = median(microseconds(remember, 0, 300))
        told = f"remember, 1k → {most // 1000}k items"
        yield Figure(told, small, large, "µs", large / small, "<= 1.5", large / small <= 1.5)


def prompting(scale: float) -> Iterator[Figure]:
    """A prompt and a search by an actor of a book with 10,000 items of the team and a run of 1,000 events."""
    items, rng = max(1_000, int(10_000 * scale)), random.Random(7)
    with folder(memory_disk()) as where, commonplace.open(where / "ours.db", durability="process") as book:
        book.memory.configure(embedder="static")
        ada = book.as_actor("ada")
        for _ in range(items):
            ada.remember(sentence(rng), shared=True, override=AT_RANDOM)
        with book.run() as run:
            for _ in range(items // 10):
                ada.record("agent.spoke", payload={"text": sentence(rng)}, run_id=run.id)
        book.admin.reindex()

        def task() -> str:
            return f"set up the {' '.join(rng.sample(WORDS, 3))}"

        for name, goal, recall in (
            ("prompt", 25, lambda _: ada.prompt(task())),
            ("prompt without a task", 25, lambda _: ada.prompt("")),
            ("digest", 25, lambda _: ada.digest(task())),
            ("search", 3, lambda _: ada.search(task())),
        ):
            microseconds(recall, 0, 5)
            taken = median(microseconds(recall, 0, 50)) / 1_000
            yield Figure(
                f"{name}, {items:,} items", goal, taken, "ms", taken / goal, f"<= {goal}", taken <= goal
            )


def beside_mem0(scale: float) -> Iterator[Figure]:
    if find_spec("mem0") is None:
        print("mem0 is not installed, so it is left out: pip install 'commonplace-memory[bench]'")
        return
    rng, count = random.Random(7), max(20, int(200 * scale))
    with folder(None) as where, commonplace.open(where / "ours.db") as book:
        ada, mem0 = book.as_actor("ada"), theirs(where)

        def ours(_: int) -> None:
            ada.remember(sentence(rng), override=AT_RANDOM)

        def ours_found(_: int) -> None:
            ada.remember(sentence(rng), override=AT_RANDOM)
            book.admin.reindex()

        def add(_: int) -> None:
            mem0.add(sentence(rng), user_id="ada", infer=False)

        for n in range(max(50, int(1_000 * scale))):
            ours(n)
            add(n)
        book.admin.reindex()
        times = {
            name: median(one)
            for name, one in by_turns({"theirs": add, "ours": ours, "found": ours_found}, count=count).items()
        }
    for told, name in (("durable", "ours"), ("durable and in the index", "found")):
        ratio = times["theirs"] / times[name]
        what = f"remember, {told}, beside mem0 add(infer=False)"
        yield Figure(what, times["theirs"], times[name], "µs", ratio, ">= 10 × its speed", ratio >= 10)


def many_beside_mem0(scale: float) -> Iterator[Figure]:
    """10,000 notes, a thousand of ours at once and theirs one by one, as it takes them, by turns, with the same static
    vectors; the medians of those thousands. Then searches among them."""
    if find_spec("mem0") is None:
        print("mem0 is not installed, so it is left out: pip install 'commonplace-memory[bench]'")
        return
    rng, count = random.Random(7), max(300, int(10_000 * scale))
    notes = [sentence(rng) for _ in range(count)]
    with folder(None) as where, commonplace.open(where / "ours.db") as book:
        book.memory.configure(embedder="static")
        vectors = embedder_of("static")
        ada, mem0 = book.as_actor("ada"), theirs(where, ForMem0(vectors), width(vectors))
        # The first call of each loads what it needs.
        mem0.add(sentence(rng), user_id="ada", infer=False)
        mem0.search(sentence(rng), filters={"user_id": "ada"}, top_k=1)
        ada.memory.add_many([{"text": sentence(rng), "override": AT_RANDOM}])
        book.admin.reindex()
        times = {name: list[float]() for name in ("theirs", "durable", "found")}
        for start in range(
            0, count, AT_ONCE
        ):  # by turns, so that both have the same disk and the same neighbours
            part = notes[start : start + AT_ONCE]
            began = perf_counter()
            kept = ada.memory.add_many([{"text": note, "override": AT_RANDOM} for note in part])
            durable = perf_counter() - began
            book.admin.reindex()
            found = perf_counter() - began
            assert all(result.outcome == "stored" for result in kept)
            began = perf_counter()
            for note in part:
                mem0.add(note, user_id="ada", infer=False)
            added = perf_counter() - began
            for name, taken in (("theirs", added), ("durable", durable), ("found", found)):
                times[name].append(taken / len(part) * 1e6)
        for what, name in (("durable", "durable"), ("durable and in the index", "found")):
            peer, ours = median(times["theirs"]), median(times[name])
            yield Figure(
                f"add_many of {count:,}, {what}, beside mem0 add(infer=False)", peer, ours, "µs a note", peer / ours,
                ">= 10 × its speed", peer / ours >= 10,
            )  # fmt: skip

        def query() -> str:
            return " ".join(rng.sample(WORDS, 4))

        def ours_search(_: int) -> None:
            assert len(ada.search(query(), limit=10)) == 10

        def their_search(_: int) -> None:
            assert mem0.search(query(), filters={"user_id": "ada"}, top_k=10)["results"]

        medians = {
            name: median(taken)
            for name, taken in by_turns({"theirs": their_search, "ours": ours_search}, count=50).items()
        }
        ratio = medians["theirs"] / medians["ours"]
        yield Figure(
            f"search among {count:,}, beside mem0 search", medians["theirs"], medians["ours"], "µs", ratio,
            ">= 3 × its speed", ratio >= 3,
        )  # fmt: skip
