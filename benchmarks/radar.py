"""How well duplicate work is noticed, on pairs of our own: `python -m benchmarks.radar [--errors]`.

All texts of `labelled/radar.txt` are tasks and discoveries of one work; each first task is asked about once. A pair
that is `same` must be found, one that is `other` is a false alarm. Alarms about texts of other pairs are counted, too:
about half of them are wrong. Half of the pairs are there to fit by; `--errors` shows what goes wrong in that half.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

import commonplace
from commonplace import Work

PAIRS = Path(__file__).parent / "labelled" / "radar.txt"
LATER = PAIRS.with_name("radar_later.txt")
OTHER_WORDS = PAIRS.with_name("radar_other_words.txt")
"""Pairs that no rule was fitted to."""
FIT, HELD_OUT = "fit", "held out"


class Text(NamedTuple):
    words: str
    description: str = ""
    discovery: bool = False


class Pair(NamedTuple):
    task: Text
    other: Text
    same: bool
    category: str
    half: str


def pairs(file: Path) -> Iterator[Pair]:
    category, seen = "", {True: 0, False: 0}
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("== "):
            category = line[3:]
        elif line and not line.startswith("#"):
            same = category.startswith("same")
            task, other = (text_of(one) for one in line.split(" || "))
            yield Pair(task, other, same, category, HELD_OUT if seen[same] % 2 else FIT)
            seen[same] += 1


def text_of(written: str) -> Text:
    if written.startswith("found: "):
        return Text(written.removeprefix("found: "), discovery=True)
    title, _, description = written.partition(" | ")
    return Text(title, description)


class Noticed(NamedTuple):
    """What was found for a pair: the texts of the task's overlaps, and how long that took."""

    pair: Pair
    found: bool
    elsewhere: tuple[str, ...]
    """Texts of other pairs that an alarm was given about."""
    took: float


def noticed(work: Work, file: Path = PAIRS) -> list[Noticed]:
    every = list(pairs(file))
    ids = {}
    for text in dict.fromkeys(text for pair in every for text in (pair.task, pair.other)):
        if text.discovery:
            ids[text] = work.discover(text.words).id
        else:
            ids[text] = work.add_task(text.words, description=text.description).id
    of = {id: text for text, id in ids.items()}
    partners = dict[Text, set[Text]]()
    for pair in every:
        partners.setdefault(pair.task, set()).add(pair.other)
        partners.setdefault(pair.other, set()).add(pair.task)
    work.task(ids[every[0].task]).radar()  # the vectors are loaded
    told = []
    for pair in every:
        began = time.perf_counter()
        overlaps = [of[one.id] for one in work.task(ids[pair.task]).radar()]
        took = time.perf_counter() - began
        others = tuple(one.words for one in overlaps if one not in partners[pair.task])
        told.append(Noticed(pair, pair.other in overlaps, others, took))
    return told


def share(told: list[Noticed], same: bool, half: str = "", category: str = "") -> tuple[int, int]:
    """How many of some pairs were noticed, and how many there are."""
    these = [
        one
        for one in told
        if one.pair.same == same and half in ("", one.pair.half) and category in ("", one.pair.category)
    ]
    return sum(one.found for one in these), len(these)


def main() -> int:
    with commonplace.open("memory:") as book:
        told = noticed(book.work(name="radar"))
        unseen = {
            name: noticed(book.work(name=name), file)
            for name, file in (("written later", LATER), ("other words", OTHER_WORDS))
        }
    for category in dict.fromkeys(one.pair.category for one in told):
        cells = []
        for half in (FIT, HELD_OUT):
            found, total = share(told, category.startswith("same"), half, category)
            cells.append(f"{half} {found:3} of {total:3}")
        print(f"{category:45} {'   '.join(cells)}")
    for half in (FIT, HELD_OUT):
        (found, same), (alarms, other) = (share(told, label, half) for label in (True, False))
        print(
            f"{half}: {found} of {same} found ({100 * found / same:.1f} %), "
            f"{alarms} of {other} false alarms ({100 * alarms / other:.1f} %)"
        )
    for name, these in unseen.items():
        (found, same), (alarms, other) = share(these, True), share(these, False)
        print(f"{name}: {found} of {same} found, {alarms} of {other} false alarms")
    tasks = {one.pair.task: one.elsewhere for one in told}
    print(f"{sum(map(len, tasks.values()))} alarms about texts of other pairs, for {len(tasks)} tasks")
    print(f"{1_000 * median(one.took for one in told):.1f} ms a task (median)")
    if "--errors" in sys.argv:
        for one in told:
            if one.pair.half == FIT and one.found != one.pair.same:
                print(
                    "missed" if one.pair.same else "false alarm",
                    one.pair.task.words,
                    "||",
                    one.pair.other.words,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
