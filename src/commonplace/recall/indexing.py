"""The index of one opened book: where it lies, and how it keeps up with the ledger."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from ..errors import BadInput, CommonplaceError, NotEnabled
from ..events import ERASED, Event, erased_by
from ..ledger import Ledger, Progress
from ..memory.reading import settings_of

if TYPE_CHECKING:
    from ..index import Embedder, Index

log = logging.getLogger("commonplace")

T = TypeVar("T")

PAGE = 500
ENDINGS = ("", "-wal", "-shm")


class Indexing:
    """Opens the index when something is first looked for, and lets it catch up before each answer.

    It never blocks a write: it follows the ledger. If its file cannot be used, it is kept in memory, and `trouble`
    says so.
    """

    def __init__(
        self, ledger: Ledger, place: Path | None, hide: Callable[[Event], Event], embedder: str | None = None
    ) -> None:
        self._fixed = embedder
        self._ledger = ledger
        self.place = place
        self._hide = hide
        self._index: Index | None = None
        self._chosen = (-1, embedder or "static")
        self._lock = Lock()
        self._left: dict[int, dict[str, Any]] = {}
        self._erasures = 0
        self.trouble = ""
        self.without_vectors = ""
        """Why there are no vectors, if there are none."""

    def open(self) -> Index:
        from ..index import Index

        with self._lock:
            if self._index is None:
                self.trouble = self.without_vectors = ""
                embedder, words = self._embedders()
                # Whoever has the embedder needs what it made: a file is not thrown away because it is missing here.
                place = None if embedder is None else self.place
                try:
                    self._index = Index.open(place, embedder, words)
                except (CommonplaceError, OSError) as error:
                    self._index = self._in_memory(error)
            return self._index

    def _embedders(self) -> tuple[Embedder | None, Embedder | None]:
        """What makes vectors of texts, and of words: those are static, because models are made for texts."""
        from ..index import embedder_of

        try:
            return embedder_of(self._chosen[1]), embedder_of("static")
        except NotEnabled as error:
            self.without_vectors = str(error)
            return None, None

    def _choose(self) -> None:
        """Look which embedder is wanted by now; with another one the index is opened anew."""
        with self._ledger.snapshot() as now:
            chosen = now.position, self._fixed or settings_of(now).embedder
        if chosen[1] != self._chosen[1]:
            with self._lock:
                self._index = None  # not closed: another thread may be reading it
        self._chosen = chosen

    def asked(self, ask: Callable[[Index], T]) -> T:
        """What the index answers once it has caught up. If its file fails, everything is read through again and the
        answer comes from memory, which `trouble` says. An embedder that fails is done without in the same way, until
        the book is opened anew or another one is chosen; what it made stays in the file."""
        from ..index import Index

        try:
            return ask(self.catch_up())
        except NotEnabled as error:
            if self.without_vectors:
                raise
            with self._lock:
                self.without_vectors = str(error)
                self._index = Index.open(None)
            log.warning("memory.index.fallback: %s", error)
        except (CommonplaceError, OSError) as error:
            if isinstance(error, BadInput) or self.trouble:
                raise
            self.close()
            with self._lock:
                self._index = self._in_memory(error)
        return ask(self.catch_up())

    def _in_memory(self, error: Exception) -> Index:
        from ..index import Index

        self.trouble = f"the index at {self.place} cannot be used ({error}), so it is kept in memory"
        log.warning("memory.index.fallback: %s", self.trouble)
        return Index.open(None, *self._embedders())

    @property
    def fingerprint(self) -> str:
        """All that an answer of the index depends on besides the ledger."""
        return self.open().fingerprint

    @property
    def exists(self) -> bool:
        return self._index is not None or (self.place is not None and self.place.exists())

    def catch_up(self, progress: Progress | None = None) -> Index:
        """The index, as far as the ledger is now."""
        with self._ledger.reads() as reads:
            head = reads.head.position
        if head != self._chosen[0]:
            self._choose()
        index = self.open()
        while True:
            after = index.position
            with self._ledger.reads() as reads:
                head = reads.head.position
            if after > head:  # a ledger that was put back to an earlier one
                self.throw_away()
                index = self.open()
                continue
            if after == head:
                return index
            self._page(index, after, min(head, after + PAGE))
            if progress is not None:
                progress(min(head, after + PAGE), head)

    def _page(self, index: Index, after: int, upto: int) -> None:
        from .feed import changes

        ledger = self._ledger
        with ledger.snapshot() as now:
            found = [
                (event.position, change)
                for event in ledger.events(after, upto)
                for change in changes(
                    event, now.at, ledger.event, self._hide, ledger.registry, self._stand_in
                )
            ]
        index.apply(after, upto, found)

    def _stand_in(self, event: Event) -> Event | None:
        """What an erased event left behind, as the erasures that stand after it tell. They are read once."""
        with self._ledger.reads() as reads:
            head = reads.head.position
        for erasure in self._ledger.events(self._erasures, head, kinds=(ERASED,)):
            self._left |= {
                gone.position: gone.residue for gone in erased_by(erasure) if gone.residue is not None
            }
        self._erasures = head
        left = self._left.get(event.position)
        return None if left is None else replace(event, payload=left)

    def with_embedder(self, place: Path | None, embedder: str) -> Indexing:
        """Another index of the same book, whatever its settings say."""
        return Indexing(self._ledger, place, self._hide, embedder)

    def give_way_to(self, other: Indexing) -> None:
        """Put another index in this one's place. Who reads this one goes on with it until it is opened anew."""
        other.close()
        self.close()
        if self.place is not None and other.place is not None:
            self._remove()
            other.place.replace(self.place)

    def takes(self) -> tuple[int, int]:
        """How many bytes the index's files take, and how many a search holds in memory: one is made to see. Zeros
        where there is no index yet."""
        if not self.exists:
            return 0, 0
        self.asked(lambda index: index.search("memory", allowed=lambda _: True, how="hybrid", limit=1))
        files = [] if self.place is None else [Path(f"{self.place}{ending}") for ending in ENDINGS]
        return sum(file.stat().st_size for file in files if file.exists()), self.open().memory()

    def throw_away(self) -> None:
        """Remove the index's files; it is built again when something is looked for."""
        self.close()
        self._remove()

    def _remove(self) -> None:
        if self.place is not None:
            for ending in (
                *ENDINGS,
                *([] if self._fixed is None else ["-lock"]),
            ):  # nobody else waits for that one
                Path(f"{self.place}{ending}").unlink(missing_ok=True)

    def forget(self) -> None:
        """Let what was erased leave the index at once."""
        if self.exists:
            self.asked(lambda _: None)
            if self.without_vectors:  # it is kept in memory, and what lies in the file does not follow
                self._remove()

    def purge(self) -> bool:
        """Let what was erased leave the index's own files, too. True when it has."""
        self.forget()
        return not self.exists or self.open().purge()

    def close(self) -> None:
        with self._lock:
            if self._index is not None:
                self._index.close()
                self._index = None


def place_for(beside: Path | None, engine: str, book: str) -> Path | None:
    """Where a book's index lies: beside a local book, in the user's cache for one on a server."""
    if beside is not None:
        return beside.with_name(f"{beside.name}.index")
    if engine == "memory":
        return None
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    return Path(cache) / "commonplace" / f"{book}.index"
