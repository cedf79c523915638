"""Two worlds that differ only in what one reader may not see: that reader is told the same in both."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from commonplace import Actor, Book

from . import Result, fault
from .places import ALL, place
from .readers import Read, reads, reads_now, shown

WORDS = (
    "harbour", "crane", "dock", "tide", "pilot", "rope", "anchor", "lantern", "cargo", "crew", "storm", "chart",
    "engine", "valve", "signal", "beacon", "port", "open", "friday",
)  # fmt: skip
HIDDEN = ("zqmarmalade", "zqobsidian", "zqtelescope")
"""Words that only hidden things hold; no visible one looks like them."""

UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
TIME = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)?|datetime\.datetime\([^)]*\)|### \d\d:\d\d:\d\d"
)
NUMBERED = re.compile(
    r"\b(position|as_of|recorded_us|updated_us|created_us|changed_us|at_us|first_us|last_us|occurred_us|written_us"
    r"|time_us|size|now|reached|token|number|led|created_at|recorded_at|leases|deleted_at|seconds"
    r")(['\"]?\s*[=:]\s*)['\"]?[\d.]+"
)
VERSION = re.compile(r"""(\[['"][^'"]+['"], ?)\d+([,\]])""")
"""An item and the position where it changed last, as receipts name both."""
BLOB = re.compile(r"[A-Za-z0-9+/]{80,}={0,2}")
HASH = re.compile(r"\b[0-9a-f]{12,64}\b")


@dataclass
class World:
    """One of the two books, with the ids of what is hidden: things of it in one, of nothing in the other."""

    book: Book
    full: bool
    ids: list[str] = field(default_factory=list)
    heads: list[int] = field(default_factory=list)
    scope: str | None = None
    """The scope that all of it happens in; what is hidden then happens in another one, by the same actors."""

    @property
    def ada(self) -> Actor:
        return self.book.as_actor("ada", role="orchestrator", scope=self.scope)

    @property
    def bob(self) -> Actor:
        return self.book.as_actor("bob", role="developer", scope=self.scope)

    @property
    def lib(self) -> Actor:
        return self.book.as_actor("lib", role="librarian", scope=self.scope)


def sentence(rng: random.Random, *more: str) -> str:
    return " ".join([*rng.sample(WORDS, 5), *more])


# what everybody sees

Step = Callable[[World, random.Random], object]


def plain(world: World, rng: random.Random) -> object:
    n = rng.randrange(10**6)
    match rng.randrange(8):
        case 0:
            return world.ada.remember(sentence(rng), tags=[rng.choice(WORDS)], shared=True, id=f"note-{n}")
        case 1:
            return world.ada.remember(key=f"{rng.choice(WORDS)}.{n}", value=n, shared=True, id=f"fact-{n}")
        case 2:
            return world.ada.record(
                "agent.spoke", payload={"text": sentence(rng)}, run_id="r1", id=f"spoke-{n}"
            )
        case 3:
            return world.bob.remember(sentence(rng), id=f"mine-{n}")
        case 4:
            return world.ada.documents.log(sentence(rng), id=f"log-{n}")
        case 5:
            return world.ada.work("w1").add_task(f"{sentence(rng)} {n}", id=f"task-{n}")
        case 6:
            return world.ada.work("w1").discover(sentence(rng), affects=["t1"])
        case _:
            return world.ada.work("w1").decide(
                question=sentence(rng), choice=rng.choice(WORDS), rationale="so"
            )


# what bob may not see, in one of the worlds only


def hidden(world: World, rng: random.Random) -> None:
    n, text = rng.randrange(10**6), sentence(rng, *rng.sample(HIDDEN, 2))
    ada = world.ada
    match rng.randrange(14):
        case 0:
            ada.remember(text, tags=[rng.choice(HIDDEN)], id=f"h-note-{n}")
        case 1:
            ada.remember(key=f"{rng.choice(HIDDEN)}.limit", value=n, id=f"h-fact-{n}")
        case 2:
            ada.remember(text, shared=True, sensitivity="sensitive", id=f"h-sensitive-{n}")
        case 3:
            ada.record("agent.thought", payload={"text": text}, run_id="r1", id=f"h-thought-{n}")
        case 4:
            ada.record(
                "agent.spoke", payload={"text": text}, labels={"sensitivity": "sensitive"}, id=f"h-said-{n}"
            )
        case 5:
            by = rng.choice(("ada", "eve"))
            world.book.work("w1").discover(text, affects=["t1"], sensitivity="sensitive", by=by)
        case 6:
            ada.work("w1").decide(question=text, choice="so", sensitivity="sensitive", rationale="so")
        case 7:
            work = ada.work(f"h-work-{n}", name=rng.choice(HIDDEN), goal=text, members=["ada"])
            work.add_task(text, id=f"h-task-{n}")
        case 8:
            world.lib.memory.set_core("h-core", visibility="private", description=text)
            world.lib.remember(text, core="h-core", id=f"h-entry-{n}")
        case 9:
            event = ada.documents.log(text, id=f"h-log-{n}")
            world.book.access.relabel(event.id, sensitivity="sensitive", reason="a customer's")
        case 10:
            noted = ada.documents.add_to_task(rng.choice(HIDDEN), "decisions", text)
            world.book.access.relabel(noted.id, sensitivity="sensitive", reason="a customer's")
        case 11:
            kept = ada.remember(text, id=f"h-forgotten-{n}")
            ada.forget(kept.item_id, confirm="FORGET")
        case 12:
            world.book.as_actor("eve").remember(text, id=f"h-eve-{n}")
            world.book.as_actor("eve").search(text)
            world.book.as_actor("eve").digest(text)
        case _:
            world.book.access.grant("eve", sees=["agent.*"])


SCOPES = ("users/al", "users/alice")
"""The scope that is looked at, and the one that must not matter to it."""


def next_door(world: World, rng: random.Random) -> None:
    """What the same actors do in another scope: in the words of this one, and in words of its own."""
    other = World(world.book, full=True, scope=SCOPES[1])
    n, text = rng.randrange(10**6), sentence(rng, *rng.sample(HIDDEN, 2))
    ada, bob = other.ada, other.bob
    match rng.randrange(13):
        case 0:
            bob.remember(
                text, tags=[rng.choice(HIDDEN), rng.choice(WORDS)], shared=True, pinned=True, id=f"h-note-{n}"
            )
        case 1:
            ada.remember(key=f"{rng.choice(HIDDEN)}.limit", value=n, shared=True, id=f"h-fact-{n}")
        case 2:
            bob.remember(key=f"{rng.choice(WORDS)}.1", value=n, id=f"h-same-{n}")
        case 3:
            bob.record("agent.spoke", payload={"text": text}, run_id=f"h-run-{n}", id=f"h-said-{n}")
        case 4:
            bob.record("agent.thought", payload={"text": text}, id=f"h-thought-{n}")
        case 5:
            work = ada.work(f"h-work-{n}", name=rng.choice(HIDDEN), goal="open the port")
            work.add_task("Open the harbour port", id=f"h-task-{n}")
            work.discover(text, by="ada")
        case 6:
            ada.work(f"h-work-{n}", name="ports", goal=text).nudge(text, target="bob")
        case 7:
            other.lib.memory.set_core("h-core", description=text)
            other.lib.remember(text, core="h-core", id=f"h-entry-{n}")
        case 8:
            bob.documents.log(text, id=f"h-log-{n}")
            bob.documents.write_notes(f"# Objective\n{text}\n")
            bob.documents.add_to_session("Open the port", text)
        case 9:
            bob.documents.add_to_task(rng.choice(HIDDEN), "decisions", text)
        case 10:
            kept = bob.remember(text, id=f"h-forgotten-{n}")
            bob.forget(kept.item_id, confirm="FORGET")
        case 11:
            kept = ada.remember(text, shared=True, id=f"h-shown-{n}")
            bob.search(text)
            bob.digest("which port is open", stable="task")
            bob.prompt("find out which port is open")
            ada.memory.revise(kept, text=f"{text} no more")
        case _:
            with bob.run(run_id=f"h-state-{n}", initial={"topic": text}) as run, run.agent("bob") as turn:
                turn.write({"text": text})


def built(world: World, seed: int) -> None:
    """The same story in both worlds; in one of them hidden things happen in between."""
    book, hides = world.book, hidden if world.scope is None else next_door
    book.memory.configure(exclusions="off")
    for name, role in (("ada", "orchestrator"), ("bob", "developer"), ("lib", "librarian")):
        book.access.grant(name, role=role)  # the same from the beginning, whoever acts first
    book.run(run_id="r1", initial={"topic": "ports"}, scope=world.scope).close()
    book.run(run_id="r2", initial={"topic": "ports"}, scope=world.scope).close()
    world.ada.work("w1", name="ports", goal="open the port").add_task("Open the harbour port", id="t1")
    for n in range(14):
        if world.full:
            rng = random.Random(f"{seed} hidden {n}")
            for _ in range(rng.randint(1, 4)):
                hides(world, rng)
        plain(world, random.Random(f"{seed} plain {n}"))
        world.heads.append(book.head)
    if world.full:
        world.ids = [event.id for event in book.events() if event.id.startswith("h-")]


def probes(world: World, ids: list[str], rng: random.Random) -> Iterator[tuple[str, Read]]:
    """What somebody tries who wants to find out what is hidden: guesses of words, keys, ids and texts."""
    bob, word = world.bob, rng.choice(HIDDEN)
    for guess in (word, f"{word[:5]}*", word[:-1] + "x", f'"{word}"', f"{word} port"):
        for mode in ("hybrid", "keyword", "semantic"):
            yield f"search {mode} for {guess}", partial(bob.search, guess, mode=mode, explain=True)
    yield "fact of a hidden key", partial(bob.remember, key=f"{word}.limit", value=1, id=f"guess-{word}")
    yield "forget by a hidden tag", partial(bob.forget, tags=[word], dry_run=True)
    yield "forget by a hidden key", partial(bob.forget, key=f"{word}.limit", dry_run=True)
    yield "items by a hidden tag", partial(bob.memory.list, tags=[word], status=None)
    yield "hidden core", partial(bob.memory.core, "h-core")
    yield "propose for a hidden core", partial(bob.remember, "the port is open", core="h-core")
    yield "search in a hidden core", partial(bob.search, "port", cores=["h-core"])
    yield "work on a hidden core", partial(bob.work, "probe", name="probe", cores=["h-core"])
    yield "hidden document", partial(bob.documents.get, f"plans/artifacts/{word}/decisions.md")
    yield "hidden task folder", partial(bob.documents.task, word)
    for n, id in enumerate(ids):
        yield f"event {n}", partial(bob.event, id)
        yield f"item {n}", partial(bob.memory.get, id)
        yield f"receipt {n}", partial(bob.receipts.get, id)
        yield f"revise {n}", partial(bob.memory.revise, id, text="x")
        yield f"share {n}", partial(bob.memory.share, id)
        yield f"link {n}", partial(bob.memory.link, id, "related", id)
        yield f"supersede {n}", partial(bob.remember, "the crane is red", supersedes=id)
        yield f"forget {n}", partial(bob.forget, id, confirm="FORGET")
        yield f"resolve {n}", partial(bob.memory.resolve, id, "skip")
        yield f"derive {n}", partial(bob.record, "agent.spoke", payload={"text": "x"}, parents=[id])
        yield f"derive an item {n}", partial(bob.remember, "the crane is blue", parents=[id])
        yield f"relabel {n}", partial(bob.access.relabel, id, sensitivity="sensitive", reason="x")
        yield f"work {n}", partial(bob.work, id)
        yield f"work of {n}", partial(bob.works.containing, id)
        yield f"bisect without {n}", partial(bob.receipts.bisect, "r1", without=id)
        yield f"acknowledge {n}", partial(_acknowledge, bob, id)


def _acknowledge(bob: Actor, id: str) -> None:
    bob.work("w1").acknowledge(id)


def same(text: str) -> str:
    """An answer without what differs between any two books: ids that a book makes, times, positions, hashes."""
    numbers: dict[str, str] = {}
    text = UUID.sub(lambda match: numbers.setdefault(match[0], f"<id {len(numbers)}>"), text)
    text = TIME.sub("<time>", text)
    text = re.sub(r"--after \d+", "--after <n>", NUMBERED.sub(r"\1\2<n>", text))
    text = VERSION.sub(r"\1<n>\2", BLOB.sub("<blob>", text))
    return HASH.sub("<hash>", text)


@fault(28, "worlds", 10, 1)
def fault_28(count: int, seed: int, tmp: Path) -> Result:
    """`count` pairs of books that differ only in what bob may not see: each of some 300 reads and guesses answers him
    the same in both."""
    return compared(count, seed, tmp, None)


@fault(28, "tenants", 10, 1)
def tenants(count: int, seed: int, tmp: Path) -> Result:
    """The same for what happens in a scope next to bob's, where bob himself is at work."""
    return compared(count, seed, tmp, SCOPES[0])


def compared(count: int, seed: int, tmp: Path, scope: str | None) -> Result:
    result, scratch = Result(), tmp / "scratch"
    scratch.mkdir()
    for n in range(count):
        engine = "memory" if n < max(1, count // 2) else ALL[1 + n % 4]
        homes = [place(engine, tmp), place(engine, tmp)]
        with homes[0].open() as left, homes[1].open() as right:
            worlds = [World(left, full=False, scope=scope), World(right, full=True, scope=scope)]
            for world in worlds:
                built(world, seed + n)
            observed, seconds = [], []
            for world in worlds:
                start = time.perf_counter()
                observed.append(
                    [(name, same(shown(read))) for name, read in observations(world, worlds[1].ids, scratch)]
                )
                seconds.append(time.perf_counter() - start)
            for (name, without), (_, beside) in zip(*observed, strict=True):
                result.outcomes["observations"] += 1
                if without != beside:
                    result.problem(f"seed {seed + n} {engine}", difference(name, without, beside))
            result.outcomes["hidden things"] += len(worlds[1].ids)
            slower = seconds[1] / seconds[0]
            result.figures["slower beside hidden things"] = max(
                result.figures.get("slower beside hidden things", 0.0), round(slower, 2)
            )
        for home in homes:
            if engine in ("postgres", "redis"):
                home.drop()
        result.cases += 1
    return result


def observations(world: World, ids: list[str], scratch: Path) -> Iterator[tuple[str, Read]]:
    rng = random.Random(len(ids))
    yield from probes(world, rng.sample(ids, min(5, len(ids))), rng)
    yield from reads_now(world.bob, scratch)
    for n in (None, 3, 9):
        at = None if n is None else world.heads[n]
        yield from ((f"{name} at {n}", read) for name, read in reads(world.bob, at, scratch, []))


def difference(name: str, without: str, beside: str) -> str:
    """Where two answers part."""
    at = next(
        (i for i, (a, b) in enumerate(zip(without, beside, strict=False)) if a != b),
        min(len(without), len(beside)),
    )
    start = max(0, at - 60)
    return f"{name} differs: …{without[start : at + 120]!r} and …{beside[start : at + 120]!r}"
