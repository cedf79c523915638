"""What was shown to whom, kept in mind until the next write: a reader never waits for the disk.

Each open book has one. It is lost with its process, so the book knows of what was shown as far as it was noted.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..events import decode
from .requests import Shown

if TYPE_CHECKING:
    from ..ledger import Ledger

MOST_NOTED = 1_000
"""Things that one event notes at the most."""


MOST_WAITING = 10_000
"""Things shown to one actor in one run that wait to be noted: of more, the oldest are forgotten."""


class Showing:
    """The ids of what was shown to each actor in each run, or outside any, and is not noted yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[tuple[str, str | None], dict[str, None]] = {}

    def add(self, actor: str, run: str | None, ids: Iterable[str]) -> None:
        with self._lock:
            waiting = self._waiting.setdefault((actor, run), {})
            waiting.update(dict.fromkeys(ids))
            while len(waiting) > MOST_WAITING:
                del waiting[next(iter(waiting))]

    def note(self, ledger: Ledger) -> None:
        """Record what is not noted yet. What could not be recorded waits on."""
        if not self._waiting:
            return
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        while waiting:
            (actor, run), ids = waiting.popitem()
            try:
                self._note(ledger, actor, run, list(ids))
            except BaseException:
                for (whose, where), left in [((actor, run), ids), *waiting.items()]:
                    self.add(whose, where, left)
                raise

    @staticmethod
    def _note(ledger: Ledger, actor: str, run: str | None, ids: list[str]) -> None:
        with ledger.snapshot() as now:
            noted = now.get_all(decode, "memory.shown", [(run or "", id, actor) for id in ids])
        fresh = [id for id, position in zip(ids, noted, strict=True) if position is None]
        for start in range(0, len(fresh), MOST_NOTED):
            ledger.submit("memory.shown", Shown(actor, run, tuple(fresh[start : start + MOST_NOTED])))
