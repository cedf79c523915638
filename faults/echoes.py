"""What comes out of memory and back in, in other words; and corrections, which must not be taken for that."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import commonplace
from commonplace import Actor, Book
from commonplace.run import Turn

from . import Result, fault

ITEMS = 20
CORRECTIONS = 50
THINGS = (
    "billing search mail login cart chat audit image video queue proxy cache export import metrics alert batch "
    "report backup index"
)
OWNERS = ("Alpha", "Beta", "Gamma", "Delta")
PREFACES = """
I recall that | According to memory, | As we know, | Note that | Reminder: | From memory: | The team knows that
As noted: | It is worth noting that | Just to confirm: | As I remember it, | We were told that | The notes say: | FYI,
To recap: | As mentioned earlier, | Our records show that | I believe that | Per the notes, | It is known that
"""
ENDINGS = ("", "", ", as noted earlier", " (from memory)", ", I recall", " — as mentioned")
QUOTES = ("{}", "{}", '"{}"', "“{}”", "\n> {}", "**{}**", "«{}»", "'{}'")


def sentences(rng: random.Random, number: int, thing: str) -> list[str]:
    return [
        f"The {thing} service of {rng.choice(OWNERS)} listens on port {8000 + number}",
        f"It does not restart before {rng.choice(('two', 'three', 'four'))} at night",
        f"Its settings are in etc/{thing}.toml",
    ]


def reworded(rng: random.Random, texts: list[list[str]], number: int, several: bool) -> str:
    """One item in other words, or two of them as a list."""
    chosen = [list(texts[number])]
    if several:
        chosen.append(list(rng.choice(texts)))
    said = []
    for parts in chosen:
        shape = rng.randrange(5)
        if shape == 0:
            first = parts[0].split(" listens ")
            parts[0] = f"On{first[1][2:]}, {first[0].lower()} listens"  # the end of the sentence first
        elif shape == 1:
            parts[:] = parts[1:] + parts[:1]
        elif shape == 2:
            parts[:] = [part.upper() for part in parts]
        if shape == 3 or len(chosen) > 1:
            mark = rng.choice(("-", "*", "•", "{n}."))
            said.append("\n".join(f"{mark.format(n=n)} {part}" for n, part in enumerate(parts, 1)))
        else:
            said.append(". ".join(parts))
    text = "\n".join(said)
    if len(chosen) == 1:
        text = rng.choice(QUOTES).format(text + rng.choice(ENDINGS))
    prefaces = [preface.strip() for line in PREFACES.strip().splitlines() for preface in line.split("|")]
    if rng.random() < 0.8:
        preface = rng.choice(prefaces)
        text = f"{preface.rstrip(',: ')}:\n{text}" if len(chosen) > 1 else f"{preface} {text}"
    return text


def corrected(rng: random.Random, parts: list[str]) -> str:
    """An item with another number, name, path, value, or with a "not" more or less."""
    text = ". ".join(parts)
    owner = next(name for name in OWNERS if f"of {name} " in text)
    changes: tuple[Callable[[], str], ...] = (
        lambda: text.replace("port 8", "port 9"),
        lambda: text.replace(f"of {owner} ", "of Omega "),
        lambda: text.replace("does not restart", "does restart"),
        lambda: text.replace(" listens on", " never listens on"),
        lambda: text.replace(".toml", ".yaml"),
        lambda: text.replace("at night", "in the morning"),
        lambda: text.replace("service", "server"),
    )
    return rng.choice(changes)()


def read(book: Book, rng: random.Random, round: int, thing: str) -> tuple[Actor | Turn, bool]:
    """An agent that has been shown an item, in one of the ways in which items are shown, and whether it has been shown
    all of them."""
    actor = f"agent-{rng.randrange(7)}"
    if rng.random() < 0.3:
        alone = book.as_actor(actor)
        if rng.random() < 0.5:
            alone.memory.list()
            return alone, True
        alone.search(f"{thing} service", max_results=20)
        return alone, False
    me = book.run(run_id=f"round-{round}").agent(actor)
    shown = rng.randrange(4)
    if shown == 0:
        me.search(f"{thing} service", max_results=20)
    elif shown == 1:
        me.memory.list()
    elif shown == 2:
        me.digest(f"{thing} service", max_items=20, max_chars=20_000)
        me.search(f"{thing} service", max_results=20)
    else:
        me.memory.long_term()
    return me, shown in (1, 3)


@fault(33, "echoes", 100, 4)
def fault_33(count: int, seed: int, tmp: Path) -> Result:
    """`count` rounds in which agents are shown 20 items and say each of them again in other words; then 50
    corrections."""
    del tmp
    result = Result()
    rng = random.Random(seed)
    with commonplace.open("memory:") as book:
        book.memory.configure(exclusions="off")
        things = THINGS.split()
        texts = [sentences(rng, number, thing) for number, thing in enumerate(things)]
        for parts in texts:
            book.remember(". ".join(parts))
        for round in range(count):
            rng = random.Random(seed + round)
            for number, thing in enumerate(things):
                me, all_shown = read(book, rng, round, thing)
                text = reworded(rng, texts, number, all_shown and rng.random() < 0.4)
                kept = me.remember(text, shared=rng.random() < 0.8)
                result.outcomes["echo" if kept.reason.startswith("an echo") else kept.outcome] += 1
                result.cases += 1
                if not kept.reason.startswith("an echo"):
                    told = f"round {round} (seed {seed + round}): {kept.outcome} {kept.reason}: {text!a}"
                    result.problem(told, "a reworded echo is not known again")
        items = book.memory.list(status=None)
        support = sum(len(item.corroborated) for item in items)
        result.figures |= {"items": len(items), "corroborations": support}
        if len(items) != ITEMS or support:
            told = f"{ITEMS} items became {len(items)}, with {support} corroborations"
            result.problem(f"seed {seed}", told)
        _correct(book, random.Random(seed), texts, result)
    return result


def _correct(book: Book, rng: random.Random, texts: list[list[str]], result: Result) -> None:
    said = set[str]()
    for number in range(CORRECTIONS):
        me = book.run(run_id=f"correction-{number}").agent("ada")
        parts = texts[number % ITEMS]
        me.search(parts[0], max_results=20)
        key = f"port.{number % ITEMS}"
        if number < ITEMS:
            book.remember(key=key, value=number)
        if rng.random() < 0.3:
            kept = me.remember(key=key.replace(".", rng.choice(" ._-/")), value=number + 0.5, shared=True)
        else:
            text = corrected(rng, parts)
            while text in said:  # the same correction again is an echo of the first
                text = corrected(rng, parts)
            said.add(text)
            kept = me.remember(text, shared=True)
        result.cases += 1
        result.outcomes[f"correction {kept.outcome}"] += 1
        if kept.outcome == "rejected":
            result.problem(f"correction {number}: {kept.reason}", "a correction was refused")
