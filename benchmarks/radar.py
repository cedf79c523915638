"""How well duplicate work is noticed, on pairs of our own: `python -m benchmarks.radar [--errors]`.

All texts of a file, or of a project of a file, are tasks and discoveries of one work; each first task is asked about
once. A pair that is `same` must be found, any other is a false alarm. Alarms about texts that a task is not paired with
are counted, too. `--errors` shows what goes wrong in the pairs that the weights were fitted to. Every figure is given
for both embedders that the radar has weights for.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

import commonplace
from commonplace import Book, Work

LABELLED = Path(__file__).parent / "labelled"
FITTED = ("radar_projects.txt", "radar.txt")
NOT_FITTED = ("radar_unseen.txt", "radar_later.txt", "radar_other_words.txt")
EMBEDDERS = ("static", "minilm")


class Text(NamedTuple):
    words: str
    description: str = ""
    discovery: bool = False


class Pair(NamedTuple):
    work: str
    task: Text
    other: Text
    label: str
    """`same`, or in which way the two are different."""


def pairs(name: str) -> Iterator[Pair]:
    """The pairs of a file. Those of projects stand below a task, with a label each; others in one line each."""
    heading, task = "", Text("")
    for line in (LABELLED / name).read_text(encoding="utf-8").splitlines():
        if line.startswith("== "):
            heading = line[3:]
        elif line.startswith("  "):
            label, _, written = line.strip().partition(": ")
            yield Pair(heading, task, text_of(written), label)
        elif " || " in line and not line.startswith("#"):
            first, second = map(text_of, line.split(" || "))
            yield Pair(name, first, second, heading.partition(":")[0])
        elif line and not line.startswith("#"):
            task = text_of(line)


def text_of(written: str) -> Text:
    if written.startswith("found: "):
        return Text(written.removeprefix("found: "), discovery=True)
    title, _, description = written.partition(" | ")
    return Text(title, description)


class Noticed(NamedTuple):
    """Whether a pair was found, about which other texts there was an alarm, and how long that took."""

    pair: Pair
    found: bool
    elsewhere: tuple[str, ...]
    took: float


def noticed(book: Book, every: Iterable[Pair]) -> list[Noticed]:
    works = dict[str, list[Pair]]()
    for pair in every:
        works.setdefault(pair.work, []).append(pair)
    return [result for name, those in works.items() for result in noticed_in(book.work(name=name), those)]


def noticed_in(work: Work, every: list[Pair]) -> Iterator[Noticed]:
    ids = dict[Text, str]()
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
    for pair in every:
        began = time.perf_counter()
        overlaps = [of[overlap.id] for overlap in work.task(ids[pair.task]).radar()]
        took = time.perf_counter() - began
        others = tuple(text.words for text in overlaps if text not in partners[pair.task])
        yield Noticed(pair, pair.other in overlaps, others, took)


def share(results: list[Noticed], same: bool) -> tuple[int, int]:
    """How many of the pairs that are the same, or that are not, were noticed, and how many there are."""
    those = [result.found for result in results if (result.pair.label == "same") == same]
    return sum(those), len(those)


def alarms_elsewhere(results: list[Noticed]) -> tuple[int, int]:
    """How many alarms were about texts that a task is not paired with, and how many tasks there are."""
    tasks = {result.pair.task: result.elsewhere for result in results}
    return sum(map(len, tasks.values())), len(tasks)


def report(embedder: str, name: str, results: list[Noticed]) -> None:
    (found, same), (alarms, other), (more, tasks) = (
        share(results, True), share(results, False), alarms_elsewhere(results)
    )  # fmt: skip
    print(
        f"{embedder:7} {name:21}  {found:3} of {same:3} found ({100 * found / same:2.0f} %)  "
        f"{alarms:2} of {other:3} false alarms ({100 * alarms / other:4.1f} %)  "
        f"{more:2} about others of {tasks:3} tasks  {1_000 * median(result.took for result in results):4.1f} ms a task"
    )


def main() -> int:
    for embedder in EMBEDDERS:
        with commonplace.open("memory:") as book:
            book.memory.configure(embedder=embedder)
            for name in (*FITTED, *NOT_FITTED):
                results = noticed(book, pairs(name))
                report(embedder, name, results)
                for result in results if "--errors" in sys.argv and name in FITTED else ():
                    if result.found != (result.pair.label == "same"):
                        kind = "false alarm" if result.found else "missed"
                        print(f"  {kind}: {result.pair.task.words} || {result.pair.other.words}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
