"""Faults that a text can be: one that takes so long to look through that everybody waits for it."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import commonplace
from commonplace.access.patterns import Reader

from . import Result, fault

SMALL, LARGE = 10_000, 100_000
RATIO = 20
"""How many times as long a text of LARGE characters may take as one of SMALL."""
NOTICED = 0.05
"""Seconds below which it does not matter how a time grows."""
MUCH = 0.5
"""Seconds that a text of SMALL characters never takes."""

_READ_ONCE = {"match", "fullmatch"}
_READERS = {*_READ_ONCE, "search", "sub", "subn", "split", "finditer", "findall"}


@dataclass(frozen=True)
class Look:
    """A way in which the library looks at texts, and texts that are worst for it: each is a function of a length."""

    name: str
    run: Callable[[str], object]
    worst: Callable[[random.Random], list[Callable[[int], str]]]


def seconds(run: Callable[[str], object], text: str) -> float:
    begun = time.perf_counter()
    run(text)
    return time.perf_counter() - begun


def growth(look: Look, make: Callable[[int], str]) -> str | None:
    """What is wrong with how the time grows with the length of a text, or None. The text is made longer step by step, so
    that one for which the time explodes is told and not waited for."""
    for size in (24, 300, 2_000):
        taken = seconds(look.run, make(size))
        if taken > MUCH:
            return f"{size} characters take {taken:.2f} s"
    small = min(seconds(look.run, make(SMALL)) for _ in range(2))
    if small > MUCH:
        return f"{SMALL:,} characters take {small:.2f} s"
    if small * RATIO * 5 < NOTICED:  # even a time that grew with the square would not be noticed
        return None
    large = seconds(look.run, make(LARGE))
    if large > NOTICED and large > RATIO * small:
        large, small = min(large, seconds(look.run, make(LARGE))), max(small, seconds(look.run, make(SMALL)))
    if large > NOTICED and large > RATIO * small:
        return f"{SMALL:,} characters take {small * 1000:.1f} ms, {LARGE:,} take {large * 1000:.0f} ms"
    return None


# the patterns of the library


@cache
def patterns() -> dict[str, Look]:
    """Every regular expression in the library that does not depend on what is looked for, by its place in the source."""
    looks: dict[str, Look] = {}
    for module in pkgutil.walk_packages(commonplace.__path__, "commonplace."):
        if module.name.endswith("__main__"):
            continue
        loaded = importlib.import_module(module.name)
        source = Path(str(loaded.__file__)).read_text("utf-8")
        for name, pattern, once in _in_module(loaded, source):
            looks[f"{module.name.removeprefix('commonplace.')}:{name}"] = _look(name, pattern, once)
    return looks


def _in_module(module: Any, source: str) -> Iterator[tuple[str, re.Pattern[str], bool]]:
    for name, value in vars(module).items():
        made = value
        if hasattr(value, "cache_info") and value.__module__ == module.__name__:
            try:
                made = value()
            except TypeError:
                continue
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
                    value = eval(compile(written, "", "eval"), dict(vars(module)))  # noqa: S307  the library's own
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


def _look(name: str, pattern: re.Pattern[str], once: bool) -> Look:
    def run(text: str) -> None:
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
    tree = re._parser.parse(pattern.pattern, pattern.flags)  # type: ignore[attr-defined]
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
        yield lambda size: (before + part * (size // len(part) + 1))[: size - 1] + "\x01"


class _Examples:
    """Texts that parts of a pattern match."""

    def __init__(self, tree: Any, rng: random.Random) -> None:
        self._reader = Reader(tree)
        self._flags = tree.state.flags
        self._rng = rng

    def of(self, items: list[Any]) -> str:
        return "".join(map(self._one, items))

    def _one(self, item: Any) -> str:
        op, given = str(item[0]), item[1]
        chars = self._reader.chars(item, self._flags)
        if chars is not None:
            plain = sorted(char for char in chars if " " <= char <= "~") or sorted(chars) or [""]
            return self._rng.choice(plain if self._rng.random() < 0.9 else sorted(chars) or [""])
        if op == "SUBPATTERN":
            return self.of(list(given[3]))
        if op == "ATOMIC_GROUP":
            return self.of(list(given))
        if op == "BRANCH":
            return self.of(list(self._rng.choice(given[1])))
        if "REPEAT" in op:
            return "".join(self.of(list(given[2])) for _ in range(min(max(given[0], 1), 60)))
        return ""

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
