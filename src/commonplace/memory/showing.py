"""What was shown to whom, held in memory until something is written: a reader never waits for the disk.

Each open book has one. What waits is noted in the ledger before the next write of this process, after two seconds in
which nothing was shown, or when the book is closed. A killed process loses what waits; the book knows of what was shown
as far as it was noted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from ..errors import CommonplaceError
from ..ledger.encoding import decode
from ..ledger.events import draft
from ..ledger.overlay import Overlay
from ..ledger.scopes import Bound
from .requests import RECALLED, Shown

if TYPE_CHECKING:
    from ..ledger.ledger import Ledger

MOST_NOTED = 1_000
"""Things that one event notes at the most."""

MOST_WAITING = 10_000
"""Things shown to one actor in one run that wait to be noted: of more, the oldest are forgotten."""

IDLE = 2.0
"""Seconds in which nothing was shown, after which what waits is noted."""

log = logging.getLogger("commonplace")


def decide_shown(overlay: Overlay, request: Shown) -> int | None:
    """Note what was shown to an actor, once. Answers the position, or None when nothing is new."""
    new = not_noted(overlay, request)
    if not new:
        return None
    event = draft(RECALLED, actor=request.actor, payload={"shown": new}, run_id=request.run, parents=new)
    return overlay.emit(event).position


def not_noted(overlay: Overlay, request: Shown) -> list[str]:
    """What of this the book does not say yet, without what was erased meanwhile."""
    return [
        id
        for id in dict.fromkeys(request.shown)
        if overlay.get("memory.shown", overlay.scope, request.run or "", id, request.actor) is None
        and not _gone(overlay, id)
    ]


def _gone(overlay: Overlay, id: str) -> bool:
    record = overlay.record_of(id)
    return record is None or record.body is None


class _Reader(NamedTuple):
    """Who was shown something, and where."""

    actor: str
    run: str | None
    bound: Bound | None


class Showing:
    """The ids of what was shown to each actor in each run, or outside any, and is not noted yet."""

    THREAD = "commonplace-shown"
    """The name of the thread that notes it when nobody writes. It exists only while something waits."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._lock = threading.Condition()
        self._recording = threading.Lock()
        self._waiting: dict[_Reader, dict[str, None]] = {}
        self._last = 0.0
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, actor: str, run: str | None, bound: Bound | None, ids: Iterable[str]) -> None:
        with self._lock:
            waiting = self._waiting.setdefault(_Reader(actor, run, bound), {})
            waiting.update(dict.fromkeys(ids))
            while len(waiting) > MOST_WAITING:
                del waiting[next(iter(waiting))]
            self._last = monotonic()
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._note_when_idle, name=self.THREAD, daemon=True)
                self._thread.start()

    def note(self) -> None:
        """Record what waits. What could not be recorded waits on."""
        if not self._waiting and not self._recording.locked():
            return
        # The other thread may be recording what this caller is about to be judged by: wait until it is there.
        with self._recording:
            with self._lock:
                waiting, self._waiting = self._waiting, {}
                self._lock.notify_all()
            self._record_all(waiting)

    def _record_all(self, waiting: dict[_Reader, dict[str, None]]) -> None:
        while waiting:
            reader, ids = waiting.popitem()
            try:
                self._record(reader, list(ids))
            except BaseException:
                with self._lock:
                    for whose, left in [(reader, ids), *waiting.items()]:
                        self._waiting[whose] = left | self._waiting.get(whose, {})
                raise

    def close(self) -> None:
        """Record what waits, and end the thread. Nothing waits for a thread after this."""
        with self._lock:
            self._closed, thread = True, self._thread
            self._lock.notify_all()
        if thread is not None:
            thread.join()
        self._try_to_note()

    def _note_when_idle(self) -> None:
        """What cannot be recorded now is left to the next write, or to the thread that the next reader starts."""
        recorded = True
        while True:
            with self._lock:
                while self._waiting and not self._closed and (left := self._last + IDLE - monotonic()) > 0:
                    self._lock.wait(left)
                if not (self._waiting and recorded) or self._closed:
                    self._thread = None
                    return
            recorded = self._try_to_note()

    def _try_to_note(self) -> bool:
        try:
            self.note()
        except CommonplaceError as error:
            log.warning("what was shown last could not be noted: %s", error)
            return False
        return True

    def _record(self, reader: _Reader, ids: list[str]) -> None:
        actor, run, bound = reader
        with self._ledger.snapshot(bound=bound) as now:
            noted = now.get_all(decode, "memory.shown", [(now.scope, run or "", id, actor) for id in ids])
        fresh = [id for id, position in zip(ids, noted, strict=True) if position is None]
        for start in range(0, len(fresh), MOST_NOTED):
            shown = Shown(actor, run, tuple(fresh[start : start + MOST_NOTED]))
            self._ledger.submit("memory.shown", shown, bound=bound)
