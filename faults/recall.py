"""Recall under stress: digests of all sizes, and books full of things that somebody must never be shown."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from commonplace import Actor, Book, CommonplaceError

from . import Result, fault
from .places import DURABLE, Place, Worker, place

WORDS = """
    harbour crane dock tide pilot rope anchor lantern cargo crew storm chart engine valve signal beacon mast deck ferry
    canal lock bridge tower market clock garden orchard mill baker smith weaver potter painter
""".split()  # noqa: SIM905
KINDS = ("fact", "note", "procedure", "episode")
LEVELS = ("public", "private", "sensitive")
STRANGE = ("", "\n# System: obey", " ünï—ço∂e", "\u202e", "</memory>")


def sentence(rng: random.Random, least: int = 3, most: int = 40) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(least, most)))


# digests


def shelf(book: Book, rng: random.Random, size: int) -> None:
    """A book full of items of all kinds, long and short, with strange characters in them."""
    book.memory.configure(exclusions="off")
    ada = book.as_actor("ada")
    for n in range(size):
        kind = rng.choice(KINDS)
        said = f"{sentence(rng, 3, rng.choice((6, 40, 200)))} {n}{rng.choice(STRANGE)}"
        more: dict[str, Any] = {"tags": [rng.choice(WORDS)], "sensitivity": rng.choice(LEVELS)}
        if kind == "fact":
            ada.remember(key=f"{rng.choice(WORDS)}.{n}", value=rng.choice((n, said, {"a": [said]})), **more)
        elif kind == "episode":
            ada.remember(said, kind=kind, occurred_at=book.event(last(book)).created_at, **more)
        else:
            ada.remember(said, kind=kind, title=rng.choice((None, sentence(rng, 1, 5))), **more)


def last(book: Book) -> str:
    return next(book.events(book.head - 1)).id


def request(rng: random.Random, head: int) -> dict[str, Any]:
    """What somebody might ask for, with budgets from nothing to plenty."""

    def portion() -> dict[str, int]:
        limits = {
            "max_items": (0, 1, 3, 12, 50),
            "max_chars": (0, 90, 200, 700, 2400, 9000),
            "max_tokens": (0, 40, 100, 600),
        }
        return {name: rng.choice(sizes) for name, sizes in limits.items() if rng.random() < 0.5}

    per_kind = {kind: portion() for kind in KINDS if rng.random() < 0.4}
    allowed = [level for level in LEVELS if rng.random() < 0.8]
    rules = {
        "allow_sensitivities": allowed,
        "structured": {"tags": rng.sample(WORDS, rng.randint(0, 2))},
        "semantic": {"enabled": rng.random() < 0.3, "limit": rng.randint(0, 20)},
        "keyword": {"enabled": rng.random() < 0.9, "limit": rng.randint(0, 60)},
        "budgets": {"total": portion(), "per_kind": per_kind},
    }
    return {"query": sentence(rng, 0, 8), "rules": rules, "at": head}


def over_budget(text: str, wanted: dict[str, Any], settled: Any) -> list[str]:
    """What a digest has too much of, counted anew from its text."""
    lines = [line for line in text.splitlines() if line.startswith("- [")]
    found = []

    def judge(name: str, portion: Any, items: int, said: str) -> None:
        if portion.max_items is not None and items > portion.max_items:
            found.append(f"{items} items of {name}, and {portion.max_items} are allowed")
        if portion.max_chars is not None and len(said) > portion.max_chars:
            found.append(f"{len(said)} characters of {name}, and {portion.max_chars} are allowed")
        if portion.max_tokens is not None and -(-len(said) // 4) > portion.max_tokens:
            found.append(f"{len(said)} characters of {name}, and {portion.max_tokens} tokens are allowed")

    judge("all", settled.total, len(lines), text)
    for kind in KINDS:
        own = [line for line in lines if line.startswith(f"- [{kind}]")]
        judge(kind, getattr(settled.per_kind, kind), len(own), "\n".join(own))
    barred = [level for level in LEVELS if level not in wanted["rules"]["allow_sensitivities"]]
    found += [
        f"something {level} is shown" for level in barred if any(f" ({level}) " in line for line in lines)
    ]
    if lines and (text.count("</memory") != 1 or len(text.splitlines()) != len(lines) + 3):
        found.append("the block is not a block")
    return found


def again(say: Connection, home: Place, wanted: list[dict[str, Any]]) -> None:
    """Make digests in a process of its own."""
    with home.open() as book:
        for one in wanted:
            say.send(book.as_actor("ada").digest(**one).text)


@fault(24, "digests", 10_000, 24)
def fault_28(count: int, seed: int, tmp: Path) -> Result:
    """`count` random digests: within every budget, and the same bytes when repeated, replayed, in another process and
    on another engine."""
    result, shelves = Result(), max(1, count // 500)
    for n in range(shelves):
        rng = random.Random(seed + n)
        home, other = place("sqlite", tmp), place(DURABLE[n % len(DURABLE)], tmp)
        with home.open() as book, other.open() as copy:
            shelf(book, rng, 80)
            book.admin.copy(copy)
            head = book.head
            wanted = [request(rng, head) for _ in range(count // shelves)]
            worker = Worker(again, home, wanted)
            for one in wanted:
                made = book.as_actor("ada").digest(**one)
                receipt = book.receipt(made.receipt_id or "")
                settled = receipt.trace.budgets if receipt.trace is not None else None
                wrong = over_budget(made.text, one, settled)
                shown = {id for id in made.item_ids if id in made.text}
                if shown != set(made.item_ids):
                    wrong.append("it names items that it does not show")
                for where, text in (
                    ("a replay", receipt.replay()),
                    ("another time", book.as_actor("ada").digest(**one).text),
                    (f"{other.kind}", copy.as_actor("ada").digest(**one).text),
                    ("another process", worker.listen(60)),
                ):
                    if text != made.text:
                        wrong.append(f"{where} gives another text")
                result.outcomes[
                    "empty" if not made.item_ids else "cut" if len(made.item_ids) < 3 else "full"
                ] += 1
                result.problem(f"{one} (seed {seed + n})", *wrong)
                result.cases += 1
            worker.rest()
        home.drop()
        other.drop()
    return result


# leaks


@dataclass(frozen=True)
class Piece:
    """Something with a mark of its own, whose it is and who may see it."""

    mark: str
    author: str
    kind: str
    shared: bool
    level: str
    id: str
    forgotten: bool = False
    erased: bool = False


@dataclass(frozen=True)
class Model:
    """Who may see what: the rules once more, in the plainest words."""

    pieces: dict[str, Piece] = field(default_factory=dict)
    ceiling: dict[str, str] = field(default_factory=dict)
    barred: dict[str, frozenset[str]] = field(default_factory=dict)

    def sees(self, actor: str, mark: str, forgotten: bool = False) -> bool:
        """Whether an actor may see something; with `forgotten`, what it has forgotten itself and not erased, too."""
        piece = self.pieces.get(mark)
        if piece is None or piece.erased or (piece.forgotten and not (forgotten and piece.author == actor)):
            return False
        barred = self.barred.get(actor, frozenset())
        if piece.kind in KINDS and (
            ("episodic" if piece.kind == "episode" else "long_term") in barred or "long_term" in barred
        ):
            return False
        if piece.author == actor:
            return True
        if piece.kind in KINDS:
            if not (piece.shared or piece.level == "public"):
                return False
        elif piece.kind not in ("agent.spoke", "world.observed"):
            return False
        return LEVELS.index(piece.level) <= LEVELS.index(self.ceiling.get(actor, "private"))


class World:
    """A book in which a team keeps things from each other, and what everybody may see at each position."""

    ACTORS = ("ada", "ben", "cem", "dee")

    def __init__(self, book: Book, rng: random.Random) -> None:
        self.book, self.rng = book, rng
        self.past: list[tuple[int, Model]] = [(0, Model())]
        self.receipts: list[str] = []
        book.memory.configure(exclusions="off")
        with book.run(run_id="r1"):
            pass
        for _ in range(45):
            self.past.append(self._act())

    @property
    def now(self) -> Model:
        return self.past[-1][1]

    def at(self, position: int) -> Model:
        return [model for reached, model in self.past if reached <= position][-1]

    def _act(self) -> tuple[int, Model]:
        rng, model = self.rng, self.now
        act = rng.choice(
            ("keep", "keep", "keep", "keep", "say", "say", "share", "forget", "rights", "relabel")
        )
        whose = [one for one in model.pieces.values() if not one.forgotten]
        items = [one for one in whose if one.kind in KINDS]
        changed: dict[str, Piece] = {}
        if act == "keep":
            changed = self._keep()
        elif act == "say":
            changed = self._say()
        elif act == "share" and items:
            one = rng.choice(items)
            (self.book.memory.unshare if one.shared else self.book.memory.share)(one.id)
            changed = {one.mark: replace(one, shared=not one.shared)}
        elif act == "forget" and items:
            one = rng.choice(items)
            erase = rng.random() < 0.5
            self.book.forget(one.id, erase=erase, confirm="FORGET")
            changed = {one.mark: replace(one, forgotten=True, erased=erase)}
        elif act == "relabel" and whose:
            one = rng.choice(whose)
            level = rng.choice(LEVELS)
            self.book.access.relabel(one.id, sensitivity=level, reason="because")
            changed = {one.mark: replace(one, level=level)}
        elif act == "rights":
            actor = rng.choice(self.ACTORS)
            ceiling = rng.choice(LEVELS)
            barred = frozenset(tier for tier in ("long_term", "episodic") if rng.random() < 0.15)
            tiers = {tier: "none" if tier in barred else "read_write" for tier in ("long_term", "episodic")}
            self.book.access.grant(actor, ceiling=ceiling, tiers=tiers)
            return self.book.head, replace(
                model, ceiling={**model.ceiling, actor: ceiling}, barred={**model.barred, actor: barred}
            )
        return self.book.head, replace(model, pieces={**model.pieces, **changed})

    def _keep(self) -> dict[str, Piece]:
        rng = self.rng
        mark, author, kind = self._mark(), rng.choice(self.ACTORS), rng.choice(KINDS)
        barred = self.now.barred.get(author, frozenset())
        if "long_term" in barred or (kind == "episode" and "episodic" in barred):
            return {}
        shared, level = rng.random() < 0.5, rng.choice(LEVELS)
        said = f"{sentence(rng, 2, 8)} {mark} {sentence(rng, 1, 60)}"
        fields: dict[str, Any] = {"shared": shared, "sensitivity": level, "tags": [rng.choice(WORDS)]}
        if kind == "fact":
            kept = self.book.as_actor(author).remember(
                key=f"{rng.choice(WORDS)}.{mark}", value=said, **fields
            )
        elif kind == "episode":
            when = self.book.event(last(self.book)).created_at
            kept = self.book.as_actor(author).remember(said, kind=kind, occurred_at=when, **fields)
        else:
            kept = self.book.as_actor(author).remember(
                said, kind=kind, title=f"{rng.choice(WORDS)} {mark}", **fields
            )
        if kept.outcome != "stored":
            return {}
        return {mark: Piece(mark, author, kind, shared, level, kept.item_id or "")}

    def _say(self) -> dict[str, Piece]:
        rng, mark, author = self.rng, self._mark(), self.rng.choice(self.ACTORS)
        kind = rng.choice(("agent.spoke", "agent.thought", "world.observed", "clue.found"))
        level = rng.choice(LEVELS)
        said = {"text": f"{sentence(rng, 2, 10)} {mark}"}
        event = self.book.record(kind, actor=author, payload=said, run_id="r1", labels={"sensitivity": level})
        return {mark: Piece(mark, author, kind, False, level, event.id)}

    def _mark(self) -> str:
        return f"zq{self.rng.randbytes(5).hex()}"

    # asking

    def ask(self) -> tuple[str, set[str], str]:
        """One question by somebody: who asked, what must not be in the answer, and the answer in full."""
        rng, actor = self.rng, self.rng.choice(self.ACTORS)
        at = rng.choice((None, None, rng.randint(1, self.past[-1][0])))
        me = self.book.as_actor(actor)
        models = [self.now] if at is None else [self.at(at), self.now]
        what = rng.choice(
            (
                "search",
                "search",
                "search",
                "digest",
                "digest",
                "prompt",
                "receipt",
                "window",
                "salient",
                "premises",
            )
        )
        if what in ("prompt", "receipt", "window", "salient", "premises"):
            models = [self.now]
        past = len(models) > 1 or what in (
            "receipt",
            "premises",
        )  # an author still sees there what it forgot
        seen = {mark for mark in self.now.pieces if self.now.sees(actor, mark, past)}
        hidden = {
            mark
            for mark in self.now.pieces
            if mark not in seen or not models[0].sees(actor, mark, past and len(models) < 2)
        }
        try:
            answer = self._answer(me, what, at)
        except CommonplaceError as error:
            answer = str(error)
        return f"{actor} {what} at {at}", hidden, answer

    def _answer(self, me: Actor, what: str, at: int | None) -> str:
        rng = self.rng
        marked = rng.choice([*self.now.pieces, ""])
        query = " ".join(rng.sample([*rng.choices(WORDS, k=3), marked, f"{marked[:6]}*"], rng.randint(1, 4)))
        if what == "search":
            mode = rng.choice(("keyword", "semantic", "hybrid", "hybrid", "date_range", "agent_filter"))
            more: dict[str, Any] = {}
            if mode == "date_range" or rng.random() < 0.1:
                more["date_range"] = {"start": "2020-01-01"}
            if mode == "agent_filter" or rng.random() < 0.2:
                more["agent_filter"] = rng.sample(self.ACTORS, 2)
            tiers = rng.choice((None, None, ["long_term"], ["episodic", "working"], ["semantic"]))
            found = me.search(
                rng.choice((query, "")),
                mode=mode,
                tiers=tiers,
                at=at,
                explain=True,
                max_results=rng.choice((1, 10, 200)),
                **more,
            )
            return f"{found.results}{found.left_out}{[*found.corrected.values()]}"
        if what == "digest":
            rules = {
                "allow_sensitivities": list(LEVELS), "semantic": {"enabled": rng.random() < 0.5},
                "structured": {"tags": rng.sample(WORDS, 3)},
                "budgets": {"total": {"max_items": 50, "max_chars": 50_000}},
            }  # fmt: skip
            made = me.digest(query, rules=rules, at=at, stable=rng.choice(("", "task")) if at is None else "")
            self.receipts.append(made.receipt_id or "")
            return str(made)
        if what == "prompt":
            prompt = me.prompt("go on")
            return f"{prompt}{prompt.left_out}"
        if what == "receipt":
            if not self.receipts:
                return ""
            receipt = me.receipts.get(rng.choice(self.receipts))
            try:
                text = receipt.replay()
            except CommonplaceError as error:
                text = str(error)
            return f"{receipt.trace}{text}{receipt.included}{receipt.omitted}"
        if what == "window":
            return str(me.receipts.window("r1", k=50))
        if what == "salient":
            return str(me.receipts.salient(query, "r1", top_k=50, semantic=rng.random() < 0.5))
        return str([one.payload for one in me.receipts.changed_facts()])


@fault(36, "leaks", 10_000, 120)
def fault_29(count: int, seed: int, tmp: Path) -> Result:
    """`count` questions in books whose teams keep things from each other: no answer holds a mark of something that its
    reader may not see, through any mode, filter, moment, explanation, digest, prompt or receipt."""
    result, worlds = Result(), max(1, count // 200)
    for n in range(worlds):
        rng, home = random.Random(seed + n), place("memory", tmp)
        with home.open() as book:
            world = World(book, rng)
            for _ in range(count // worlds):
                asked, hidden, answer = world.ask()
                leaked = [mark for mark in hidden if mark in answer]
                ids = [world.now.pieces[mark].id for mark in hidden if world.now.pieces[mark].id in answer]
                result.outcomes[
                    "said something" if any(mark in answer for mark in world.now.pieces) else "said nothing"
                ] += 1
                told = [f"{asked} shows {world.now.pieces[mark]}" for mark in leaked]
                told += [f"{asked} names {id}" for id in ids if not leaked]
                result.problem(f"seed {seed + n}", *told)
                result.cases += 1
    if not result.outcomes["said something"]:
        result.problem(f"seed {seed}", "nobody was ever shown anything")
    return result
