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


def decide_shown(overlay: Overlay, requests: tuple[Shown, ...]) -> None:
    """Note what was shown to each actor, once: an event for each request with something new."""
    for request in requests:
        if new := not_noted(overlay, request):
            payload = {"shown": new}
            overlay.emit(
                draft(RECALLED, actor=request.actor, payload=payload, run_id=request.run, parents=new)
            )


def not_noted(overlay: Overlay, request: Shown) -> list[str]:
    """What of this the book does not say yet, without what was erased meanwhile."""
    keys = {id: (overlay.scope, request.run or "", id, request.actor) for id in request.shown}
    overlay.prefetch(("memory.shown", key) for key in keys.values())
    new = [id for id, key in keys.items() if overlay.get("memory.shown", *key) is None]
    overlay.prefetch_records(new)
    return [id for id in new if not _gone(overlay, id)]


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
        self._recordings: set[threading.Lock] = set()
        """Each is held by a thread for as long as that records something."""
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
        """Record what waits. What could not be recorded waits on. What other threads are recording is not waited for,
        so that many writers share their commits."""
        if not self._waiting:
            return
        recording = threading.Lock()
        with recording:
            with self._lock:
                waiting, self._waiting = self._waiting, {}
                self._recordings.add(recording)
                self._lock.notify_all()
            try:
                self._record_all(waiting)
            finally:
                self._recordings.discard(recording)

    def note_all(self) -> None:
        """Record what waits, and return when that is recorded, too, which others were recording: what a caller says is
        judged by it."""
        self.note()
        with self._lock:
            others = tuple(self._recordings)
        for recording in others:
            with recording:
                pass  # it is free when that is recorded, or its thread was interrupted

    def _record_all(self, waiting: dict[_Reader, dict[str, None]]) -> None:
        """All readers with the same bound in one commit."""
        while waiting:
            bound = next(iter(waiting)).bound
            readers = {reader: ids for reader, ids in waiting.items() if reader.bound == bound}
            try:
                self._record(bound, readers)
            except BaseException:
                with self._lock:
                    for reader, left in waiting.items():
                        self._waiting[reader] = left | self._waiting.get(reader, {})
                raise
            for reader in readers:
                del waiting[reader]

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

    def _record(self, bound: Bound | None, readers: dict[_Reader, dict[str, None]]) -> None:
        shown = list[Shown]()
        with self._ledger.snapshot(bound=bound) as now:
            for (actor, run, _), ids in readers.items():
                keys = [(now.scope, run or "", id, actor) for id in ids]
                noted = now.get_all(decode, "memory.shown", keys)
                fresh = [id for id, position in zip(ids, noted, strict=True) if position is None]
                shown += [
                    Shown(actor, run, tuple(fresh[start : start + MOST_NOTED]))
                    for start in range(0, len(fresh), MOST_NOTED)
                ]
        if shown:
            self._ledger.submit("memory.shown", tuple(shown), bound=bound)
