"""Durable memory under stress: the same thing remembered by many at once, hand edits among agents' writes, and
secrets that were kept in every place that memory has."""

from __future__ import annotations

import random
import re
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import mkdtemp

from commonplace import Book
from commonplace.mirror.book import BookMirror

from . import Result, fault
from .erasure import holding
from .places import ALL, SERVED, Place, Worker, place

PROCESSES = 8
TOKEN = re.compile(r"(?:mine|theirs)-[0-9a-f]{12}")


def remember(say: Connection, home: Place, me: int, texts: list[str]) -> None:
    """Remember the same texts as everybody else, at the same time, under a name of our own."""
    outcomes: dict[str, int] = {}
    with home.open() as book:
        actor = book.as_actor(f"agent-{me}")
        for text in texts:
            kept = actor.remember(text, shared=True, run_id=f"run-{me}")
            outcomes[kept.outcome] = outcomes.get(kept.outcome, 0) + 1
    say.send(outcomes)


@fault(13, "remembers", 200, 10)
def fault_13(count: int, seed: int, tmp: Path) -> Result:
    """8 processes remember the same `count` things at once: each is one item, corroborated by the others."""
    result = Result()
    for kind in SERVED:
        rng, home = random.Random(seed), place(kind, tmp)
        texts = [f"fact {n} of the matter is {rng.randbytes(6).hex()}" for n in range(count)]
        with home.open() as book:
            book.memory.configure(exclusions="off")
            workers = [Worker(remember, home, me, texts) for me in range(PROCESSES)]
            said = [worker.rest()[-1:] for worker in workers]
            wrong = [f"a writer said {one}" for one in said if not one or set(one[0]) - {"stored", "merged"}]
            items = book.memory.list()
            if sorted(str(item.body) for item in items) != sorted(texts):
                wrong.append(f"{count} things became {len(items)} items")
            told = {len({*(one.actor for one in item.corroborated), item.agent}) for item in items}
            if told != {PROCESSES}:
                wrong.append(f"an item was said by {sorted(told)} of {PROCESSES}")
            if not book.verify().ok:
                wrong.append("the chain does not hold")
        result.problem(f"{kind} (seed {seed})", *wrong)
        result.cases += PROCESSES * count
        home.drop()
    return result


# hand edits among agents' writes


def revise(say: Connection, home: Place, me: int, seed: int, count: int) -> None:
    """Change and add items as an agent that knows nothing of the markdown. Tells every text that was acknowledged."""
    rng, told = random.Random(seed), []
    with home.open(mirror=False) as book:
        for n in range(count):
            token = f"mine-{rng.randbytes(6).hex()}"
            items = book.memory.list()
            if items and n % 3:
                item = rng.choice(items)
                try:
                    book.memory.revise(item.id, text=f"{item.title} is {token}")
                except LookupError:
                    continue  # the person has deleted it
            else:
                book.remember(f"subject {me}-{n} is {token}", title=f"subject {me}-{n}")
            told.append(token)
    say.send(told)


class Person:
    """Somebody who edits MEMORY.md: changes, adds and deletes, and never looks at what others do."""

    def __init__(self, page: Path, seed: int) -> None:
        self.page, self.rng = page, random.Random(seed)
        self.saved: set[str] = set()

    def edit(self) -> None:
        text, token = self.page.read_text(), f"theirs-{self.rng.randbytes(6).hex()}"
        blocks = re.findall(r"<!-- cp:\S+ -->\n(- .*?)\n<!-- /cp -->", text, re.DOTALL)
        plain = [one for one in blocks if "<!--" not in one]
        what = self.rng.choice(("change", "change", "change", "add", "delete"))
        if what == "add" or not plain:
            text = f"{text.rstrip()}\n\n- **noted** — by hand {token}\n"
        elif what == "delete":
            gone = self.rng.choice(plain)
            text = re.sub(rf"<!-- cp:\S+ -->\n{re.escape(gone)}\n<!-- /cp -->\n\n?", "", text, count=1)
            token = ""
        else:
            chosen = self.rng.choice(plain)
            text = text.replace(chosen, f"{chosen.split(' — ')[0]} — {token}", 1)
        self.page.write_text(text)
        self.saved |= {token} - {""}


@fault(35, "edits", 1000, 12)
def fault_27(count: int, seed: int, tmp: Path) -> Result:
    """`count` hand edits of MEMORY.md while two other processes write: nothing is lost, every clash is told."""
    result = Result()
    home = place("sqlite", tmp)
    assert home.files is not None
    with home.open(mirror=False) as book:
        book.memory.configure(exclusions="off", max_size_kb=10_000)
        for n in range(10):
            book.remember(f"subject {n} is mine-{n:012x}", title=f"subject {n}")
        mirror = book.mirror.folder(home.files, person="kim")
        mirror.sync()
        workers = [Worker(revise, home, me, seed + me, count // 2) for me in (1, 2)]
        person, refused = Person(home.files / "MEMORY.md", seed), set[str]()
        for _ in range(count):
            person.edit()
            refused |= _told(mirror, result)
        written = [token for worker in workers for token in (worker.rest()[-1:] or [[]])[0]]
        refused |= _told(mirror, result)
        wrong = _lost(book, home.files, person.saved, written)
        shown = set(TOKEN.findall((home.files / "MEMORY.md").read_text()))
        wrong += [
            f"the clash or refusal of {token} was not told"
            for token in sorted(shown & person.saved - _known(book))
            if token not in refused
        ]
        if not book.verify().ok:
            wrong.append("the chain does not hold")
        before = {path: path.read_bytes() for path in home.files.glob("*.md")}
        book.rebuild()
        mirror.sync()
        wrong += [
            f"{path.name} is another after a rebuild" for path in before if path.read_bytes() != before[path]
        ]
        result.outcomes |= {"edits": len(person.saved), "writes": len(written)}
        result.problem(f"seed {seed}", *wrong)
    result.cases = count
    home.drop()
    return result


def _told(mirror: BookMirror, result: Result) -> set[str]:
    """Sync, and answer every token that a clash or a refusal speaks of."""
    report = mirror.sync()
    spoken = [str(one) for one in report.clashes] + [str(one.edit) for one in report.taken if not one.ok]
    result.outcomes["clashes"] = result.outcomes.get("clashes", 0) + len(report.clashes)
    return {token for text in spoken for token in TOKEN.findall(text)}


def _known(book: Book) -> set[str]:
    return {token for event in book.events() for token in TOKEN.findall(str(event.payload))}


def _lost(book: Book, folder: Path, saved: set[str], written: list[str]) -> list[str]:
    """Texts that somebody saved or wrote and that are nowhere."""
    known = _known(book)
    shown = {token for path in folder.rglob("*.md") for token in TOKEN.findall(path.read_text())}
    return [f"{token} of the person is lost" for token in sorted(saved - known - shown)] + [
        f"{token} of an agent is lost" for token in written if token not in known
    ]


# secrets in every place that memory has


@fault(22, "forgetting", 1000, 10)
def fault_22(count: int, seed: int, tmp: Path) -> Result:
    """`count` secrets in items of every sort, found by search and shown in markdown: erased, they are nowhere."""
    result = Result()
    for kind in ALL:
        rng, told, home = random.Random(seed), f"{kind} (seed {seed})", place(kind, tmp)
        marker, control = f"heron{rng.randbytes(6).hex()}", f"stork{rng.randbytes(6).hex()}"
        folder = Path(mkdtemp(prefix=f"mirror-{kind}-", dir=tmp))
        with home.open(mirror=folder) as book:
            book.memory.configure(exclusions="off")
            ids = [_hide(book, n, f"{marker} {rng.randbytes(8).hex()}") for n in range(count)]
            kept = [book.remember(f"{control} number {n} is harmless {rng.random()}") for n in range(10)]
            book.search(marker)

            book.mirror.sync()
            if home.files and not (holding(home.files, marker) and holding(folder, marker)):
                result.problem(told, "the search does not find what is there")
            wrong = []
            for start in range(0, count, 50):
                book.forget(ids[start : start + 50], erase=True, confirm="FORGET")
            wrong += [
                f"items show {item.id}" for item in book.memory.list(status=None) if marker in str(item)
            ]
            wrong += [f"events show {event.id}" for event in book.events() if marker in str(event.payload)]
            for mode in ("keyword", "hybrid", "semantic"):
                found = book.search(marker, mode=mode, max_results=50).results
                wrong += [f"a search ({mode}) finds {hit.id}" for hit in found if marker in hit.text]
            wrong += [f"a word finds {hit.id}" for hit in book.search(marker, mode="keyword").results]
            wrong += [f"the mirror shows it in {path}" for path in holding(folder, marker)]
            report = book.purge()
            wrong += [f"purge left: {text}" for text in report.remaining]
            if home.files:
                wrong += [f"after the purge {path} holds it" for path in holding(home.files, marker)]
                wrong += [f"another process finds it in {one.path}" for one in book.admin.find_text([marker])]
            if len(book.memory.list()) < len(kept) or not book.verify().ok:
                wrong.append("harmless items are gone, too, or the chain does not hold")
            result.problem(told, *wrong)
        result.outcomes[f"{kind} erased"] = count
        result.cases += count
        home.drop()
    return result


def _hide(book: Book, n: int, secret: str) -> str:
    """Keep a secret somewhere in memory; answers the item whose erasure must take it along."""
    ada = book.as_actor(f"ada-{n % 7}")
    match n % 6:
        case 0:
            kept = ada.remember(f"the word of the day {n} is {secret}", shared=True, tags=["words"])
        case 1:
            kept = ada.remember(key=f"word.{n}", value={"secret": secret, "n": n}, shared=True)
        case 2:
            kept = ada.remember(f"a first text numbered {n}", shared=True)
            ada.memory.revise(str(kept.item_id), text=f"a second text numbered {n} with {secret}")
        case 3:
            then = datetime(2026, 1, 1, tzinfo=UTC)
            kept = ada.remember(f"episode {n}: somebody said {secret}", kind="episode", occurred_at=then)
        case 4:
            kept = ada.remember(
                f"the long sentence numbered {n} about {secret} goes on for a good while, as it should"
            )
            ada.remember(f"the long sentence numbered {n} about {secret} goes on for a good while, as it should be",
                         parents=[str(kept.item_id)])  # fmt: skip
        case _:
            kept = ada.remember(f"what is said in private {n}: {secret}")
            ada.remember(f"in other words numbered {n}, {secret}", parents=[str(kept.item_id)])
    return str(kept.item_id)
