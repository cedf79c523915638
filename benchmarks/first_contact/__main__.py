"""How the first hour goes: `python -m benchmarks.first_contact [--embedder minilm] [--peers]`.

Told are how many sentences save exclusions touch or refuse; how many questions have their note among the first and the
first five results, by mode, in one book of all 150 notes with its default settings, and whether the memory digest and
the prompt hold it; what becomes of corrections after the original was recalled in the same run; and which texts switch
memory off. With `--peers` other memories that are installed are given the same notes and the same vectors.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from contextlib import ExitStack
from functools import partial

from rich.console import Console
from rich.table import Table

import commonplace
from commonplace import Book
from commonplace.index import embedder_of

from ..peers import PEERS, Find, installed
from ..recall import MODES, found
from . import data

screen = Console(width=120)


def sentences(embedder: str) -> None:
    with commonplace.open("memory:") as book:
        book.memory.configure(embedder=embedder)
        kept = [(one["text"], book.remember(one["text"])) for one in data("sentences")]
    outcomes = Counter(answer.outcome for _, answer in kept)
    touched = [(text, answer.advice) for text, answer in kept if answer.advice]
    screen.print(f"{len(kept)} sentences: {dict(outcomes)}; {len(touched)} with an advice")
    for text, advice in touched:
        screen.print(f"  {text}\n    {advice}")
    for text, answer in kept:
        if answer.outcome != "stored":
            screen.print(f"  {text}\n    {answer}")


def questions(embedder: str, with_peers: bool) -> None:
    """The questions in a book of all notes: by mode, and by other memories."""
    asked = data("questions")
    with ExitStack() as open_until:
        book = open_until.enter_context(commonplace.open("memory:"))
        book.memory.configure(embedder=embedder)
        ids = [_stored(book, one["note"]) for one in asked]
        book.admin.reindex()
        ways: dict[str, Find] = {mode: partial(found, book, mode=mode) for mode in MODES}
        notes = {id: one["note"] for id, one in zip(ids, asked, strict=True)}
        for name in installed() if with_peers else []:
            ways[name] = PEERS[name](notes, open_until, embedder_of(embedder))
        table = Table("way", "first", "among the first five", "empty")
        for way, ask in ways.items():
            results = [ask(one["question"]) for one in asked]
            first, five = (
                sum(id in ranked[:most] for id, ranked in zip(ids, results, strict=True)) for most in (1, 5)
            )
            table.add_row(way, str(first), str(five), str(sum(not ranked for ranked in results)))
        screen.print(table)
        digests = [id in book.digest(one["question"]).item_ids for id, one in zip(ids, asked, strict=True)]
        prompts = [id in str(book.prompt(one["question"])) for id, one in zip(ids, asked, strict=True)]
    screen.print(f"of {len(asked)} answers the digest holds {sum(digests)}, the prompt {sum(prompts)}")


def _stored(book: Book, note: str) -> str:
    kept = book.remember(note)
    assert kept.outcome == "stored", (note, kept)
    return str(kept.item_id)


def corrections(embedder: str) -> None:
    outcomes = Counter[str]()
    for one in data("corrections"):
        with commonplace.open("memory:") as book:
            book.memory.configure(embedder=embedder)
            with book.run() as run, run.agent("ada") as ada:
                ada.remember(one["original"])
                shown = [hit.text for hit in ada.search(one["question"]).results]
                answer = ada.remember(one["correction"])
        outcomes[f"{answer.outcome}{'' if one['original'] in shown else ', not recalled before'}"] += 1
        if answer.outcome not in ("stored", "flagged"):
            screen.print(f"  {one['original']}\n  {one['correction']}\n    {answer}")
    screen.print(f"{outcomes.total()} corrections after recall: {dict(outcomes)}")


def switches() -> None:
    texts = data("memory_tasks")
    with commonplace.open("memory:") as book:
        book.remember("The harbour has three cranes")
        off = {text: bool(_is_off(book, text)) for text in (*texts["tasks"], *texts["instructions"])}
    wrong = [text for text in texts["tasks"] if off[text]] + [
        text for text in texts["instructions"] if not off[text]
    ]
    tasks, instructions = (sum(off[text] for text in texts[name]) for name in ("tasks", "instructions"))
    screen.print(
        f"memory switched off by {tasks} of {len(texts['tasks'])} tasks that mention it "
        f"and by {instructions} of {len(texts['instructions'])} instructions"
    )
    for text in wrong:
        screen.print(f"  {text!r}")


def _is_off(book: Book, task: str) -> str:
    receipt = book.receipt(str(book.digest(task).receipt_id))
    return str(receipt.ignored)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_contact", description=__doc__)
    parser.add_argument("--embedder", default="static", help="what makes the vectors")
    parser.add_argument("--peers", action="store_true", help="ask other memories, too, that are installed")
    wanted = parser.parse_args()
    sentences(wanted.embedder)
    questions(wanted.embedder, wanted.peers)
    corrections(wanted.embedder)
    switches()
    return 0


if __name__ == "__main__":
    sys.exit(main())
