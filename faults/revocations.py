"""Taking something away: every way of it, every way of reading, then and now."""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from commonplace import Actor, Book
from commonplace.work.prompting import WorkFocus

from . import Result, fault
from .places import ALL, place
from .readers import Read, reads, reads_now, shown


@dataclass
class Scene:
    """A team: ada writes, bob reads, lib keeps the memory. `word` stands in everything that ada writes."""

    book: Book
    word: str
    ids: list[str] = field(default_factory=list)

    @property
    def ada(self) -> Actor:
        return self.book.as_actor("ada", role="orchestrator")

    @property
    def bob(self) -> Actor:
        return self.book.as_actor("bob")

    @property
    def lib(self) -> Actor:
        return self.book.as_actor("lib", role="librarian")

    @property
    def last(self) -> str:
        return self.ids[-1]


# what there is to be taken away: each is written so that bob may read it


def note(scene: Scene) -> None:
    kept = scene.ada.remember(
        f"the port {scene.word} is open", title=scene.word, tags=[scene.word], shared=True
    )
    scene.ids.append(str(kept.item_id))


def revised(scene: Scene) -> None:
    note(scene)
    scene.ada.memory.revise(scene.last, text=f"the port {scene.word} is open since friday", why=scene.word)
    scene.lib.memory.verify(scene.last)


def relied_on(scene: Scene) -> None:
    """It changes after bob was told, and he is yet to hear of the change."""
    note(scene)


def nudged_of(scene: Scene) -> None:
    """It changes after bob was told, and a nudge about the change waits for him."""
    note(scene)


def change(scene: Scene) -> None:
    scene.ada.memory.revise(scene.last, text=f"the port {scene.word} was closed on friday")
    scene.bob.receipts.changed_facts()


def change_and_nudge(scene: Scene) -> None:
    change(scene)
    scene.bob.work("w1").context_for("t1")
    WorkFocus(scene.bob.work("w1")).nudges(changes=True)


def fact(scene: Scene) -> None:
    kept = scene.ada.remember(key=f"port.{scene.word}", value=f"{scene.word} is open", shared=True)
    scene.ids.append(str(kept.item_id))


def later_shared(scene: Scene) -> None:
    kept = scene.ada.remember(f"the port {scene.word} is open", shared=False)
    scene.ids.append(str(kept.item_id))
    scene.ada.memory.share(scene.last)


def entry(scene: Scene) -> None:
    scene.lib.memory.set_core("handbook", description="about ports")
    kept = scene.lib.remember(f"the port {scene.word} is open", core="handbook")
    scene.ids.append(str(kept.item_id))


def described(scene: Scene) -> None:
    scene.lib.memory.set_core("handbook", description=f"about the port {scene.word}")


def spoken(scene: Scene) -> None:
    said = scene.ada.record("agent.spoke", payload={"text": f"the port {scene.word} is open"}, run_id="r1")
    scene.ids.append(said.id)


def thought(scene: Scene) -> None:
    """Seen by a role's right, which can be taken away."""
    scene.book.access.grant("role:qa", sees=["agent.thought"])
    scene.book.access.grant("bob", role="qa")
    said = scene.ada.record("agent.thought", payload={"text": f"the port {scene.word} is open"}, run_id="r1")
    scene.ids.append(said.id)


def logged(scene: Scene) -> None:
    scene.ids.append(scene.ada.documents.log(f"the port {scene.word} is open").id)


def document(scene: Scene) -> None:
    scene.ids.append(
        scene.ada.documents.add_to_task("Auth", "decisions", f"the port {scene.word} is open").id
    )


def session(scene: Scene) -> None:
    scene.ids.append(scene.ada.documents.add_to_session("Auth", f"the port {scene.word} is open").id)


def discovery(scene: Scene) -> None:
    found = scene.ada.work("w1").discover(f"the port {scene.word} is open", affects=["t1"])
    scene.ids.append(found.id)


def decision(scene: Scene) -> None:
    made = scene.ada.work("w1").decide(
        question="Which port is open?",
        choice=scene.word,
        alternatives=["none"],
        rationale=f"port {scene.word}",
    )
    scene.ids.append(made.id)


def task(scene: Scene) -> None:
    """A word in a task's title, and in the goal of its work."""
    scene.ada.work("w1").manage.change(goal=f"open the port {scene.word}")
    added = scene.ada.work("w1").add_task(f"Close the port {scene.word}", id="t2", depends_on=["t1"])
    scene.ada.work("w1").nudge(f"look at port {scene.word}", target="all")
    scene.ids.append(added.id)


# how it is taken away

WAYS: dict[str, Callable[[Scene], object]] = {
    "unshare": lambda scene: scene.ada.memory.unshare(scene.last),
    "private core": lambda scene: scene.lib.memory.set_core("handbook", visibility="private"),
    "relabel": lambda scene: scene.book.access.relabel(
        scene.last, sensitivity="sensitive", reason="a secret"
    ),
    "ceiling": lambda scene: scene.book.access.grant("bob", ceiling="public"),
    "long_term none": lambda scene: scene.book.access.grant("bob", tiers={"long_term": "none"}),
    "working none": lambda scene: scene.book.access.grant("bob", tiers={"working": "none"}),
    "role": lambda scene: scene.book.access.grant("bob", role="developer"),
    "clear": lambda scene: scene.ada.documents.clear_session("Auth"),
    "forget": lambda scene: scene.book.forget(scene.last, confirm="FORGET"),
    "erase item": lambda scene: scene.book.forget(scene.last, erase=True, confirm="FORGET"),
    "erase": lambda scene: scene.book.erase(scene.last, reason="named a customer"),
}

ITEM = ("relabel", "ceiling", "long_term none", "forget", "erase item", "erase")
PAIRS: list[tuple[Callable[[Scene], None], str]] = [
    *(
        (thing, way)
        for thing in (note, revised, fact, later_shared, relied_on, nudged_of)
        for way in ("unshare", *ITEM)
    ),
    *((entry, way) for way in ("private core", *ITEM)),
    *((described, way) for way in ("private core", "ceiling", "long_term none")),
    *((spoken, way) for way in ("relabel", "erase")),
    *((thought, way) for way in ("role", "relabel", "erase")),
    *(
        (thing, way)
        for thing in (logged, document)
        for way in ("relabel", "ceiling", "working none", "erase")
    ),
    *((session, way) for way in ("clear", "ceiling", "working none", "erase")),
    *((thing, way) for thing in (discovery, decision) for way in ("relabel", "ceiling", "erase")),
    (task, "ceiling"),
]


AFTERWARDS: dict[Callable[[Scene], None], Callable[[Scene], None]] = {
    relied_on: change,
    nudged_of: change_and_nudge,
}
"""What happens after bob was shown the thing."""


def prepared(book: Book, word: str, thing: Callable[[Scene], None]) -> tuple[Scene, list[int | datetime]]:
    """A book in which bob was shown something of ada's, in a prompt, a digest, a search and a task's context. Answers
    with the moments at which it was there."""
    scene = Scene(book, word)
    book.memory.configure(exclusions="off")
    with book.run(run_id="r1", initial={"topic": "ports"}):
        pass
    with book.run(run_id="r2", initial={"topic": "ports"}):
        pass
    work = scene.ada.work("w1", name="ports", goal="open the ports")
    work.add_task("Open the port", id="t1", assigned_to="bob")
    thing(scene)
    planted = book.head
    bob = scene.bob
    claim = bob.work("w1").claim()
    if claim is not None:
        claim.context()
    bob.prompt("find out which port is open", work="w1")
    bob.search("which port is open")
    bob.digest("which port is open", stable="task")  # the last one that he relies on: it has a line to quote
    if thing in AFTERWARDS:
        AFTERWARDS[thing](scene)
    return scene, [planted, book.head, datetime.now(UTC)]


def showing(scene: Scene, paths: Iterable[tuple[str, Read]]) -> tuple[int, list[str]]:
    """How many reads were made, and those of them that show the word."""
    answers = [(name, shown(read)) for name, read in paths]
    return len(answers), [name for name, answer in answers if scene.word in answer]


def after(scene: Scene, moments: list[int | datetime], scratch: Path) -> Iterator[tuple[str, Read]]:
    """Every read of bob's, those that tell him of changes first: they tell it once."""
    yield from reads_now(scene.bob, scratch)
    for at in (None, *moments):
        when = "now" if at is None else "as of before"
        yield from ((f"{name} {when}", read) for name, read in reads(scene.bob, at, scratch, scene.ids))


@fault(27, "revocations", 5 * len(PAIRS), len(PAIRS) // 8)
def fault_27(count: int, seed: int, tmp: Path) -> Result:
    """`count` things that a reader was shown are taken away, each in one of the ways that there are: no read shows them
    any more, neither now nor as of before."""
    result, scratch = Result(), tmp / "scratch"
    scratch.mkdir()
    shuffled = random.Random(seed).sample(PAIRS, len(PAIRS))
    for n in range(count):
        thing, way = shuffled[n % len(PAIRS)]
        engine = "memory" if n < len(PAIRS) else ALL[1 + n // len(PAIRS) % 4]
        word = "zq" + "".join(random.Random(seed + n).choices(string.ascii_lowercase, k=10))
        home = place(engine, tmp)
        with home.open() as book:
            scene, moments = prepared(book, word, thing)
            before, visible = showing(scene, reads(scene.bob, None, scratch, scene.ids))
            if not visible:
                result.problem(f"seed {seed + n}", f"bob was never shown the {thing.__name__}")
            WAYS[way](scene)
            reads_made, shown_still = showing(scene, after(scene, moments, scratch))
            told = f"{thing.__name__}, {way}, {engine}"
            result.problem(f"seed {seed + n}", *(f"{told}: {name} shows it" for name in shown_still))
            result.outcomes["reads"] += before + reads_made
            result.outcomes["shown before"] += len(visible)
        if engine not in ("memory", "sqlite", "files"):
            home.drop()
        result.cases += 1
    return result
