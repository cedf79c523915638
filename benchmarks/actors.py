"""What an actor reads, beside the same read by the owner: it is judged event by event."""

from __future__ import annotations

from collections.abc import Iterator

import commonplace

from .measure import PAYLOAD, Action, Figure, by_turns, folder, median, memory_disk


def reads(scale: float) -> Iterator[Figure]:
    """A book of runs in which two agents speak and keep state, half of it by the one who asks."""
    runs = max(20, int(200 * scale))
    with folder(memory_disk()) as where, commonplace.open(where / "ours.db", durability="process") as book:
        for number in range(runs):
            run = book.run(run_id=f"r{number}")
            for name in ("ada", "bob"):
                run.agent(name).write({"entry": PAYLOAD})
                said = {"kind": "agent.spoke", "actor": name, "run_id": run.id, "payload": PAYLOAD}
                book.record_all([said] * 20)
        ada, head = book.as_actor("ada"), book.head

        def through(reader: commonplace.Book | commonplace.Actor, at: int | None) -> Action:
            return lambda _: sum(1 for _ in reader.events(at=at))

        pairs: dict[str, tuple[Action, Action]] = {
            f"events, {head:,}": (through(book, None), through(ada, None)),
            f"events as of before, {head:,}": (through(book, head - 1), through(ada, head - 1)),
            f"runs, {runs}": (lambda _: book.runs.list(), lambda _: ada.runs.list()),
        }
        for what, (by_owner, by_actor) in pairs.items():
            times = by_turns({"owner": by_owner, "actor": by_actor}, count=10)
            owner, actor = median(times["owner"]), median(times["actor"])
            yield Figure(
                f"{what}, by an actor beside the owner",
                owner,
                actor,
                "µs",
                actor / owner,
                "<= 2",
                actor <= 2 * owner,
            )
