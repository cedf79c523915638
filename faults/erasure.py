"""Erased is gone from every read at once, and after a purge from the store's own files."""

from __future__ import annotations

import random
from multiprocessing.connection import Connection
from pathlib import Path

import commonplace
from commonplace import Blob, Book, CommonplaceError, NotFound
from commonplace.testing.workers import look_for

from . import Result, fault
from .places import ALL, Worker, place


def look(say: Connection, folder: Path, text: str) -> None:
    look_for(folder, text.encode(), say)


def holding(folder: Path, text: str) -> list[str]:
    """The raw files that hold a text. Another process looks: closing a database file here would drop locks."""
    found: list[str] = Worker(look, folder, text).rest()[0]
    return found


def leaks(book: Book, marker: str, ids: list[str], blobs: list[str], tmp: Path) -> list[str]:
    """Where the book still gives out what was erased."""
    found = [f"events() shows {event.id}" for event in book.events() if marker in str(event.payload)]
    for id in ids:
        event = book.event(id)
        if not event.erased or event.payload:
            found.append(f"event() shows {id}")
    for digest in blobs:
        try:
            book.blob(digest)
            found.append(f"blob() gives {digest}")
        except NotFound:
            pass
    book.admin.export(tmp / "export.jsonl")
    if marker.encode() in (tmp / "export.jsonl").read_bytes():
        found.append("the export holds it")
    with commonplace.open("memory:") as copy:
        book.admin.copy(copy)
        if any(marker in str(event.payload) for event in copy.events()) or not copy.verify().ok:
            found.append("the copy holds it")
    checked = book.verify()
    return [*found, f"verify: {checked.problem}"] if not checked.ok else found


@fault(22, "erasure", 1000, 24)
def fault_22(count: int, seed: int, tmp: Path) -> Result:
    """`count` secrets per engine: in payloads, in blobs, and in what was derived from them."""
    result = Result()
    for kind in ALL:
        rng, told = random.Random(seed), f"{kind} (seed {seed})"
        marker, control = f"secret-{rng.randbytes(8).hex()}", f"harmless-{rng.randbytes(8).hex()}"
        home = place(kind, tmp)
        with home.open() as book:
            roots, all_ids, blobs = [], [], []
            for n in range(count):
                text = f"{marker} {rng.randbytes(rng.randint(1, 300)).hex()} {marker}"
                shape = n % 3
                book.record("agent.spoke", id=f"control-{n}", payload={"text": f"{control} {rng.random()}"})
                if shape == 1:
                    event = book.record("agent.spoke", id=f"s-{n}", payload={"file": Blob(text.encode())})
                    blobs.append(event.payload["file"]["$blob"])
                else:
                    book.record("agent.spoke", id=f"s-{n}", payload={"text": text, marker: 1}, run_id="r")
                roots.append(f"s-{n}")
                all_ids.append(f"s-{n}")
                if shape == 2:
                    book.record("agent.derived", id=f"d-{n}", payload={"of": text}, parents=[f"s-{n}"])
                    all_ids.append(f"d-{n}")
            found = holding(home.files, marker) if home.files else []
            if home.files and not found:
                result.problem(told, "the search does not find what is there")
            while roots:
                batch = [roots.pop() for _ in range(min(len(roots), rng.choice((1, 5, 50))))]
                erasure = book.erase(batch, reason="asked to")
                gone = book.event(batch[0])
                if not erasure.gone or not gone.erased or gone.payload:
                    result.problem(told, f"{batch[0]} is not gone at once")
            wrong = leaks(book, marker, all_ids, blobs, tmp)
            try:
                book.record("agent.spoke", id=all_ids[0], payload={"text": marker})
                wrong.append("an erased id can be recorded again")
            except CommonplaceError:
                pass
            report = book.purge()
            wrong += [f"purge left: {text}" for text in report.remaining]
            if home.files:
                wrong += [f"after the purge {path} holds it" for path in holding(home.files, marker)]
                if not holding(home.files, control):
                    wrong.append("the search does not find what should still be there")
            if len([event for event in book.events() if control in str(event.payload)]) != count:
                wrong.append("harmless events are gone, too")
            result.problem(told, *wrong)
        if home.files:
            result.problem(told, *(f"when closed {path} holds it" for path in holding(home.files, marker)))
        result.outcomes[f"{kind} erased"] = len(all_ids)
        result.cases += count
        home.drop()
    return result
