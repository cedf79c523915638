"""Faults that a text can be: one that takes so long to look through that everybody waits for it."""

from __future__ import annotations

import ast
import importlib
import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import commonplace
from commonplace import Book, CommonplaceError
from commonplace.access.masking import beginning, masked
from commonplace.access.patterns import bad_pattern, replaced
from commonplace.access.redact import Redactor
from commonplace.documents.document import slug
from commonplace.documents.notes import check_notes
from commonplace.index.hints import asks_when, dates, flags
from commonplace.index.query import flat, parse
from commonplace.index.words import counted, snippet
from commonplace.memory import markdown
from commonplace.memory.exclusions import excluded
from commonplace.memory.imports import markdown as imported
from commonplace.memory.imports import records
from commonplace.memory.items import Item
from commonplace.memory.likeness import near_duplicate
from commonplace.mirror import pages
from commonplace.recall.escaping import as_data, as_name
from commonplace.recall.ignoring import asks_to_ignore
from commonplace.recall.verification import claims
from commonplace.surfaces.draw import clean
from commonplace.workflow.expressions import check_expression

from . import Result, fault
from .places import place

SMALL, LARGE = 10_000, 100_000
RATIO = 20
"""How many times as long a text of LARGE characters may take as one of SMALL."""
NOTICED = 0.1
"""Seconds below which it does not matter how a time grows."""
MUCH = 0.5
"""Seconds that a text of SMALL characters never takes."""
TRIED = 16
"""How many texts are tried in one go."""
SIZES = (100_000, 300_000, 1_000_000)
DELAY = 1.0
"""Seconds by which one actor's text may delay another one."""

_READ_ONCE = {"match", "fullmatch"}
_READERS = {*_READ_ONCE, "search", "sub", "subn", "split", "finditer", "findall"}


@dataclass(frozen=True)
class Look:
    """A way in which the library looks at texts, and texts that are worst for it: each is a function of a length."""

    name: str
    run: Callable[[str], object]
    worst: Callable[[random.Random], list[Callable[[int], str]]]


def seconds(run: Callable[[str], object], text: str) -> float:
    """How long it takes of the processor's time: what else the machine does is not counted."""
    begun = time.process_time()
    run(text)
    return time.process_time() - begun


def growth(look: Look, make: Callable[[int], str]) -> str | None:
    """What is wrong with how the time grows with the length of a text, or None. The text is made longer step by step:
    one for which the time explodes is told and not waited for."""
    for size in (16, 20, 24, 28, 32, 100, 300, 2_000):
        taken = seconds(look.run, make(size))
        if taken > NOTICED:  # the first time, something may have been compiled or loaded
            taken = seconds(look.run, make(size))
        if taken > NOTICED:
            return f"{size} characters take {taken:.2f} s"
    small = seconds(look.run, make(SMALL))
    if small > MUCH:
        return f"{SMALL:,} characters take {small:.2f} s"
    if small * RATIO * 5 < NOTICED:  # even a time that grew with the square would not be noticed
        return None
    large = seconds(look.run, make(LARGE))
    for _ in range(3):  # one measurement alone can be far off
        if large <= max(NOTICED, RATIO * small):
            return None
        if large > RATIO * small * 3:
            break
        small, large = max(small, seconds(look.run, make(SMALL))), min(large, seconds(look.run, make(LARGE)))
    return f"{SMALL:,} characters take {small * 1000:.1f} ms, {LARGE:,} take {large * 1000:.0f} ms"


def slower(look: Look, rng: random.Random) -> list[str]:
    """The texts for which the time grows too fast, of some that are worst for it."""
    worst = list({make(200): make for make in look.worst(rng)}.values())
    tried = rng.sample(worst, min(TRIED, len(worst)))
    wrong = ((make(60), growth(look, make)) for make in tried)
    return [f"{look.name}: of {text!r}, {why}" for text, why in wrong if why]


# the patterns of the library


@cache
def patterns() -> dict[str, Look]:
    """Every regular expression in the library that does not depend on what is looked for, by its place."""
    looks: dict[str, Look] = {}
    root = Path(str(commonplace.__file__)).parent
    for path in sorted(root.rglob("*.py")):
        source = path.read_text("utf-8")
        if "\nimport re\n" not in source:
            continue
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        loaded = importlib.import_module(f"commonplace.{module}")
        for name, pattern, once in _in_module(loaded, source):
            where = f"{module}:{name}"
            looks[where] = _look(where, pattern, once)
    return looks


def _in_module(module: Any, source: str) -> Iterator[tuple[str, re.Pattern[str], bool]]:
    for name, value in vars(module).items():
        made = value
        if callable(value) and "re.Pattern" in str(getattr(value, "__annotations__", {}).get("return")):
            if not hasattr(value, "cache_info"):
                continue  # it depends on what is looked for
            made = value()
        found = list(_patterns_in(made))
        used = set(re.findall(rf"\b{re.escape(name)}(?:\(\))?\.(\w+)\(", source)) & _READERS
        for at, pattern in enumerate(found):
            once = bool(used) and used <= _READ_ONCE
            yield name if len(found) == 1 else f"{name}[{at}]", pattern, once
    for call in ast.walk(ast.parse(source)):
        if isinstance(call, ast.Call) and ast.unparse(call.func).startswith("re."):
            reader = ast.unparse(call.func).removeprefix("re.")
            if reader in _READERS and call.args:
                written = ast.Expression(call.args[0])
                try:
                    value = eval(compile(written, "", "eval"), dict(vars(module)))
                except NameError:  # it depends on what is looked for
                    continue
                flags = re.M if "re.M" in ast.unparse(call) else 0
                yield f"line {call.lineno}", re.compile(value, flags), reader in _READ_ONCE


def _patterns_in(value: object) -> Iterator[re.Pattern[str]]:
    if isinstance(value, re.Pattern):
        if isinstance(value.pattern, str):
            yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _patterns_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _patterns_in(inner)


BOUNDED = {
    "workflow.expressions:_WRITTEN_OTHERWISE": 1_000,
    "memory.exclusions:_lines": 240,
    "memory.exclusions:_sentences": 240,
}
"""Patterns that only see texts of so many characters."""


def _look(name: str, pattern: re.Pattern[str], once: bool) -> Look:
    most = BOUNDED.get(name.partition("[")[0])

    def run(text: str) -> None:
        text = text[:most]
        if once:
            pattern.match(text)
            pattern.fullmatch(text)
        else:
            for _ in pattern.finditer(text):
                pass

    return Look(name, run, lambda rng: list(worst_texts(pattern, rng)))


# texts that are worst for a pattern


def worst_texts(pattern: re.Pattern[str], rng: random.Random) -> Iterator[Callable[[int], str]]:
    """Texts that repeat what a pattern repeats, and what stands before it."""
    tree = import_module("re._parser").parse(pattern.pattern, pattern.flags)
    examples = _Examples(tree, rng)
    pumps = [(examples.of(before), examples.of(body)) for before, body in examples.repeats(list(tree), [])]
    whole = examples.of(list(tree))
    for part in dict.fromkeys([whole, whole[:-1], whole[: len(whole) // 2]]):
        yield from _repeating("", part)
    for before, body in dict.fromkeys(pumps):
        yield from _repeating(before, body)
        yield from _repeating("", before + body)
        yield from _repeating("", before + body * 60)
        _, other = rng.choice(pumps)
        yield from _repeating(before, body + other)


def _repeating(before: str, part: str) -> Iterator[Callable[[int], str]]:
    if part:
        yield lambda size: (before + part * (size // len(part) + 1))[:size]
        yield lambda size: ("\x01" + before + part * (size // len(part) + 1))[: size - 1] + "\x01"


CHARACTERS = [*map(chr, range(256)), *"\u00e9\u0416\u6f22\u0663\u00a0\u2028\u2014\u20ac"]


class _Examples:
    """Texts that parts of a pattern match."""

    def __init__(self, tree: Any, rng: random.Random) -> None:
        self._state, self._rng = tree.state, rng

    def of(self, items: list[Any]) -> str:
        return "".join(map(self._one, items))

    def _one(self, item: Any) -> str:
        op, given = str(item[0]), item[1]
        if op in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
            chars = self._chars(item)
            plain = [char for char in chars if " " <= char <= "~"] or chars
            signs = [char for char in plain if not char.isalnum()] or plain  # where words begin and end
            return self._rng.choice(self._rng.choice((plain, signs)))
        if op == "SUBPATTERN":
            return self.of(list(given[3]))
        if op == "ATOMIC_GROUP":
            return self.of(list(given))
        if op == "BRANCH":
            return self.of(list(self._rng.choice(given[1])))
        if "REPEAT" in op:
            return "".join(self.of(list(given[2])) for _ in range(min(max(given[0], 1), 60)))
        return ""

    def _chars(self, item: Any) -> list[str]:
        """The characters that an item matches, of those that are tried."""
        alone = import_module("re._parser").SubPattern(self._state, [item])
        matcher = import_module("re._compiler").compile(alone, self._state.flags)
        literal = [chr(item[1])] if str(item[0]) == "LITERAL" else []
        return literal or [char for char in CHARACTERS if matcher.fullmatch(char)] or [""]

    def repeats(self, items: list[Any], before: list[Any]) -> Iterator[tuple[list[Any], list[Any]]]:
        """What is repeated, each with what stands before it."""
        for item in items:
            op, given = str(item[0]), item[1]
            if "REPEAT" in op:
                yield before, list(given[2])
                yield from self.repeats(list(given[2]), before)
            elif op == "SUBPATTERN":
                yield from self.repeats(list(given[3]), before)
            elif op == "ATOMIC_GROUP":
                yield from self.repeats(list(given), before)
            elif op == "BRANCH":
                for branch in given[1]:
                    yield from self.repeats(list(branch), before)
            elif op in ("ASSERT", "ASSERT_NOT"):
                yield from self.repeats(list(given[1]), before)
            before = [*before, item]


# the parsers and tokenizers of the library


def _refusing(run: Callable[[str], object]) -> Callable[[str], object]:
    """The same; what is refused was looked at, too."""

    def looked(text: str) -> object:
        try:
            return run(text)
        except CommonplaceError as error:
            return error

    return looked


_HIDE = Redactor(["key"], [r"\btok-\w+", r"\S{1,60}@\S{1,60}"], [f"{n:04}-known-{n:04}" for n in range(50)])
_FUNCTIONS: dict[str, Callable[[str], object]] = {
    "secrets": masked,
    "beginning": lambda text: beginning(text, len(text) // 2),
    "redaction": _HIDE.text,
    "exclusions": excluded,
    "data": as_data,
    "name": as_name,
    "flags": flags,
    "dates": lambda text: dates(parse(text).text),
    "when": lambda text: asks_when(parse(text).text),
    "ignoring": asks_to_ignore,
    "query": parse,
    "phrase": lambda text: parse('"a b c"').phrases[0].search(flat(text)),
    "words": counted,
    "snippet": lambda text: snippet(text, {"needle"}),
    "notes": check_notes,
    "front matter": lambda text: imported.read("a.md", f"---\n{text[: imported.MAX_FRONT]}\n---\n"),
    "markdown": lambda text: imported.read("a.md", text),
    "vault": lambda text: imported.link([imported.read("a.md", f"---\ntitle: x\n---\n- a [[b]] {text}")]),
    "export": lambda text: records.read("a.json", text),
    "page": pages.parse,
    "hand edits": lambda text: pages.edits(None, text),
    "rendered": lambda text: pages.parse(pages.render(pages.Page("a.md", "# a", (pages.Block("id", text),)))),
    "blocks": lambda text: pages.without_blocks(text, ["id"]),
    "fields": markdown.fields,
    "bullets": markdown.bullets,
    "slug": slug,
    "likeness": lambda text: near_duplicate("a", text, "b", text[::-1]),
    "claims": lambda text: claims(Item(id="i", kind="note", agent="ada", body=text, citations=(text,))),
    "expression": check_expression,
    "drawing": clean,
}

UNITS = (
    "a", "aB3", "aa-", "M-", "eyJaaaaaaaa-", "eyJaaaaaaaa.", " ", "\t", "\n", "\n ", "!?.,;", "password is ", 'key="a',
    "-----BEGIN A ", "[[((", "[[a", "a@", "://", "a://a:", "a.", "a/", "a_", "#a", "- ", "1. ", "```", "`a", "<!-- cp ",
    "<!-- cp:id -->\n", "<<<<<<< \n", "&#38;", '"', "“", "< a", "漢字", "각", "\u0301", "\ufdfa", "é", "1", "1:", "{",
    "[", '{"a":', "a.py `f()` ", "authorization ", "the ", "ignore all ", "\\", "$ ", "---\n", "a: b\n", "\x1b[",
)  # fmt: skip


def functions() -> dict[str, Look]:
    return {name: Look(name, _refusing(run), _any_texts) for name, run in _FUNCTIONS.items()}


def _any_texts(rng: random.Random) -> list[Callable[[int], str]]:
    units = [*rng.sample(UNITS, 4), "".join(rng.sample(UNITS, 2))]
    return [*(make for unit in units for make in _repeating("", unit)), lambda size: random_text(rng, size)]


def random_text(rng: random.Random, size: int) -> str:
    """Words that all differ, joined by one sign."""
    letters = rng.choice(("abcdefghij0123456789", "".join(map(chr, range(0x4E00, 0x9FFF)))))
    sign = rng.choice((" ", "@", ".", "-", "_", "/", ""))
    return sign.join("".join(rng.choices(letters, k=4)) for _ in range(size // (4 + len(sign)) + 1))[:size]


@cache
def looks() -> list[Look]:
    """All of them, in an order in which neighbours differ."""
    every = [*patterns().values(), *functions().values()]
    random.Random(0).shuffle(every)
    return every


# the patterns of users


def user_look(pattern: str) -> Look:
    """A pattern as a user writes it, looked for as redaction does."""
    written, run = re.compile(pattern), partial(replaced, pattern, "")
    return Look(repr(pattern), run, lambda rng: list(worst_texts(written, rng)))


_CHARS = ("a", "b", r"\w", r"\d", r"\s", r"\S", ".", "-", "=", "[^a]", r"[\w-]", r"[^\s=]", "x")
_COUNTS = ("", "", "", "?", "+", "*", "+?", "{2}", "{1,5}", "{0,40}", "{3,}")


def any_pattern(rng: random.Random, depth: int = 0) -> str:
    """A regular expression as somebody may write it."""
    written = rng.choice(("", "", "", r"\b", "^", "(?=a*b)"))
    for _ in range(rng.randint(1, 4)):
        part = rng.choice(_CHARS)
        if depth < 2 and rng.random() < 0.3:
            inner = any_pattern(rng, depth + 1)
            part = f"(?:{inner}|{any_pattern(rng, depth + 1)})" if rng.random() < 0.4 else f"({inner})"
        written += part + rng.choice(_COUNTS)
    return written + rng.choice(("", "", "", r"\b", "$"))


def taken_patterns(rng: random.Random, count: int) -> list[str]:
    """So many that are taken, of those that are written at random."""
    taken: list[str] = []
    while len(taken) < count:
        pattern = any_pattern(rng)
        if bad_pattern(pattern) is None:
            taken.append(pattern)
    return taken


# two actors


def delays(book: Book, text: str) -> dict[str, float]:
    """How long another actor's calls take right after an actor has recorded a text."""
    ada = book.as_actor("ada")
    calls: dict[str, Callable[[], object]] = {
        "search": lambda: ada.search("needle"),
        "a phrase": lambda: ada.search(f'"quick needle" {text[:40]}'),
        "digest": lambda: ada.digest("needle"),
        "window": lambda: ada.receipts.window("r"),
        "salient": lambda: ada.receipts.salient("needle", "r"),
        "prompt": lambda: ada.prompt("find the needle"),
        "events": lambda: list(ada.events()),
    }
    for call in calls.values():
        call()
    book.record("note.taken", actor="mallory", payload={"text": text}, run_id="r")
    return {name: seconds(lambda _, call=call: call(), "") for name, call in calls.items()}  # type: ignore[misc]


def delayed(text: str, tmp: Path) -> dict[str, float]:
    """The calls that take longer than they may. What is late once is measured again in another book: one measurement
    alone can be far off."""
    late: dict[str, float] = {}
    for _ in range(2):
        with place("sqlite", tmp).open() as book, book.run(run_id="r"):
            book.record("note.taken", actor="ada", payload={"text": "the quick needle"}, run_id="r")
            late = {name: taken for name, taken in delays(book, text).items() if taken > DELAY}
        if not late:
            break
    return late


EVERY = 12
"""Of so many cases, one is about two actors and one about patterns of users; each of the others is about one pattern,
parser or tokenizer of the library."""


@fault(29, "worst", 600, 13)
def fault_29(count: int, seed: int, tmp: Path) -> Result:
    """`count` times texts that are worst for a pattern, a parser or a tokenizer: ten times the length takes at most
    twenty times as long. In between, large ones in a book: nobody else waits for more than a second."""
    result = Result()
    for n in range(count):
        rng = random.Random(seed + n)
        if (seed + n) % EVERY == 0:
            size = rng.choice(SIZES)
            unit = rng.choice(UNITS)
            text = random_text(rng, size) if rng.random() < 0.3 else (unit * (size // len(unit) + 1))[:size]
            late = delayed(text, tmp)
            result.outcomes["two actors"] += 1
            told = [
                f"after {size:,} of {text[:20]!r}, {call} takes {taken:.1f} s" for call, taken in late.items()
            ]
        elif (seed + n) % EVERY == 1:
            written = taken_patterns(rng, 5)
            result.outcomes["patterns of users"] += len(written)
            told = [why for pattern in written for why in slower(user_look(pattern), rng)]
        else:
            result.outcomes["patterns, parsers and tokenizers"] += 1
            told = slower(looks()[(seed + n) % len(looks())], rng)
        result.problem(f"seed {seed + n}", *told)
        result.cases += 1
    return result
