"""The index of one opened book: where it lies, and how it keeps up with the ledger."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from ..access.redact import TOKEN
from ..engines.contract import FilePurged, Reads
from ..errors import BadInput, CommonplaceError, NotEnabled, StorageFailed
from ..index.names import ENDINGS
from ..ledger.events import ERASED, Event
from ..ledger.ledger import Ledger, Progress
from ..ledger.reader import PAGE, ViewReader, pages
from ..memory.settings import settings_of

if TYPE_CHECKING:
    from ..index import Change, Embedder, Index, Reword
    from .index_feed import Hide

log = logging.getLogger("commonplace")

T = TypeVar("T")

TRIES = 3
BESIDE = ".next"
"""What the name of an index ends with that is built beside the one in use."""

UNUSED = 30 * 86_400
"""Seconds after which the index of a server's book is removed from the cache if nobody has opened it."""

INSTALLED = ("static", "minilm")
"""Embedders that come with the package, and send nothing anywhere."""

Affected = Callable[[ViewReader, Iterable[Event], Callable[[str], Event | None]], set[str]]
"""The runs of which something else must not be shown because of some events."""


class BookIndex:
    """Opens the index when something is first looked for, and lets it catch up before each answer.

    It never blocks a write: it follows the ledger. If its file cannot be used, it is kept in memory, and `trouble`
    says so.
    """

    def __init__(
        self,
        ledger: Ledger,
        place: Path | None,
        hiding: Callable[[], Hide],
        affected: Affected,
        trusted: Callable[[], bool],
        embedder: str | None = None,
        in_cache: bool = False,
    ) -> None:
        """`in_cache`: its file lies in the user's cache, where files of books that are gone are removed."""
        self._fixed = embedder
        self._trusted = trusted
        self._in_cache = in_cache
        self._affected = affected
        self._ledger = ledger
        self.place = place
        self._hiding = hiding
        self._index: Index | None = None
        self._chosen = (-1, "")
        """The embedder that the book's settings name, and the position as of which they were read."""
        self._lock = Lock()
        self.trouble = ""
        self.missing = ""
        """Why the embedder that is wanted makes no vectors, if it does not."""

    def open(self) -> Index:
        from ..index import Index

        if self._chosen[0] < 0:  # with another embedder than the book's, the file would be built again
            self._choose()
        with self._lock:
            if self._index is None:
                self.trouble = self.missing = ""
                embedder, words = self._embedders()
                # Others may have the embedder and need what it made: the file is left as it is.
                place = None if self.missing else self.place
                try:
                    self._index = Index.open(place, embedder, words, self._ledger.meta.book)
                    if place is not None and self._in_cache:
                        remove_unused(place)
                except (CommonplaceError, OSError) as error:
                    self._index = self._in_memory(error)
            return self._index

    def _embedders(self) -> tuple[Embedder | None, Embedder | None]:
        """What makes vectors of texts, and of words: those are static, because models are made for texts."""
        from ..index import embedder_of

        wanted = self._chosen[1]
        try:
            if wanted not in INSTALLED and not self._trusted():
                raise NotEnabled(
                    f"this book asks for the embedder {wanted!r}, which is given its texts or loads a model by name, "
                    "and this user did not make the book. If you trust it, say so once: `commonplace mirror sync "
                    "--trust`, or open it with trust=True"
                )
            return embedder_of(wanted), embedder_of("static")
        except NotEnabled as error:
            return self._instead(error)

    def _instead(self, error: NotEnabled) -> tuple[Embedder | None, Embedder | None]:
        """What makes vectors where the embedder that is wanted does not: the static one, if there is that."""
        from ..index import embedder_of

        self.missing = str(error)
        try:
            static = embedder_of("static")
        except NotEnabled:
            return None, None
        self.missing += ". Meanwhile meaning is compared by static vectors"
        return static, static

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
            return self._answer(ask)
        except NotEnabled as error:
            if self.missing:
                raise
            with self._lock:
                self._index = Index.open(None, *self._instead(error))
            log.warning("memory.index.fallback: %s", self.missing)
        except (CommonplaceError, OSError) as error:
            if isinstance(error, BadInput) or self.trouble:
                raise
            self.close()
            with self._lock:
                self._index = self._in_memory(error)
        return self._answer(ask)

    def _answer(self, ask: Callable[[Index], T]) -> T:
        """What the index answers. An index that was thrown away meanwhile is filled and asked again."""
        for _ in range(TRIES):
            index = self.catch_up()
            opened = index.opened
            answer = ask(index)
            if index.opened == opened:
                return answer
        raise StorageFailed(f"the index at {self.place} keeps being thrown away: check the disk")

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
        return self._index is not None or (self.place is not None and os.path.lexists(self.place))

    def catch_up(self, progress: Progress | None = None) -> Index:
        """The index, as far as the ledger is now. One that does not know this ledger's past begins anew."""
        with self._ledger.reads() as reads:
            head = reads.head.position
        if head != self._chosen[0]:
            self._choose()
        index = self.open()
        # What was fed up to `known` may show what must not be shown since an event up to `target`; what this call feeds
        # does not, because it is made of a later state of the ledger.
        known = target = 0
        while True:
            after, hash = index.seen
            with self._ledger.reads() as reads:
                head = reads.head.position
                why = _misfit(reads, after, hash)
            if why:
                index.discard(why)
                target = 0
                continue
            if after == head:
                return index
            if head > target:
                known, target = after, head
            if not self._page(index, after, min(head, after + PAGE), known):
                target = 0  # another process has fed it meanwhile, from a state of the ledger that nobody here knows
            if progress is not None:
                progress(min(head, after + PAGE), head)

    def _page(self, index: Index, after: int, upto: int, known: int) -> bool:
        from .index_feed import changes, told_again

        ledger, hide = self._ledger, self._hiding()
        with ledger.snapshot() as now:
            events = list(ledger.events(after, upto))
            if not events:
                return False  # an earlier ledger was put in this one's place meanwhile
            page: list[tuple[int, Change]] = []
            for event in events:
                means = changes(event, now.at, ledger.event, hide, ledger.registry, ledger.residue)
                page += [(event.position, change) for change in means]
                if event.kind == ERASED:
                    page += [(event.position, change) for change in told_again(event, now, ledger.event)]
            runs = self._affected(now, events, ledger.event) if known else set()
        page += [(upto, change) for run in sorted(runs) for change in self._reworded(index, run, known, hide)]
        return index.apply(after, upto, page, bytes.fromhex(events[-1].hash))

    def _reworded(self, index: Index, run: str, known: int, hide: Hide) -> Iterator[Reword]:
        """What the index says of a run's events that must be shown in another way by now."""
        from ..index import Reword
        from .index_feed import event_doc

        for page in pages(self._ledger.events(0, known, run)):
            texts = index.says([event.id for event in page])
            for event in page:
                before = texts.get(event.id, set())
                if not any(TOKEN in text for text in before) and hide(event).payload == event.payload:
                    continue  # as most are: nothing was hidden of it, and nothing is
                doc = event_doc(event, hide, self._ledger.registry)
                if doc is not None and before - {doc.text}:
                    yield Reword(doc)

    def with_embedder(self, place: Path | None, embedder: str) -> BookIndex:
        """Another index of the same book, whatever its settings say."""
        return BookIndex(
            self._ledger, place, self._hiding, self._affected, self._trusted, embedder, self._in_cache
        )

    def give_way_to(self, other: BookIndex) -> None:
        """Put another index in this one's place. Processes that read this one keep it until they open it anew."""
        other.close()
        self.close()
        if self.place is not None and other.place is not None and not _left_alone(self.place):
            self._remove()
            other.place.replace(self.place)

    def takes(self) -> tuple[int, int]:
        """How many bytes the index's files take, and how many a search holds in memory: one is made to see. Zeros
        where there is no index yet."""
        if not self.exists:
            return 0, 0
        self.asked(lambda index: index.search("memory", allowed=lambda _: True, how="hybrid", limit=1))
        return sum(file.stat().st_size for file in self._own() if file.exists()), self.open().memory()

    def throw_away(self) -> None:
        """Remove the index's files; it is built again when something is looked for."""
        self.close()
        self._remove()

    def _remove(self) -> None:
        """Remove the index's files. What only has their place is left alone."""
        own = self._own()
        if self._fixed is not None and own:
            own.append(Path(f"{self.place}-lock"))  # nobody else waits for it
        for path in own:
            remains = "" if _left_alone(path) else _removed(path)
            if remains:
                raise StorageFailed(f"the index's file {path} is still there: {remains}")

    def _own(self, beside: str = "") -> list[Path]:
        return [] if self.place is None else [Path(f"{self.place}{beside}{ending}") for ending in ENDINGS]

    def files(self) -> list[Path]:
        """Every file that is there and can hold what this index ever held: its own, those of one that was built beside
        it, and whatever else has a name that begins with its own."""
        if self.place is None:
            return []
        name, beside = self.place.name, list[Path]()
        with suppress(FileNotFoundError, NotADirectoryError):
            beside = sorted(self.place.parent.iterdir())
        return [
            path
            for path in beside
            if path.name == name
            or (path.name.startswith((f"{name}-", f"{name}.")) and not path.name.endswith("-lock"))
        ]

    def forget(self) -> None:
        """Let what was erased leave the index at once."""
        if self.exists:
            self.asked(lambda _: None)
            if self.missing:  # it is kept in memory, and what lies in the file does not follow
                self._remove()

    def purge(self) -> list[FilePurged]:
        """Let what was erased leave the index's own files, too. Says of every file what became of it."""
        self.forget()
        own, beside, purged = self._own(), self._own(BESIDE), list[FilePurged]()
        kept = self._index is not None and not self.trouble and not self.missing
        why = self._rewritten() if kept else ""
        for path in self.files():
            if path in own and kept and not path.name.endswith("-journal"):  # the file has another log
                remains = why
            elif path in own or path in beside:  # nobody uses it
                remains = _left_alone(path) or _removed(path)
            else:
                remains = "it has the index's name, and is none of its files: look at it, and remove it"
            purged.append(FilePurged(str(path), remains))
        return purged

    def _rewritten(self) -> str:
        """Write the index's file anew; answer what remains in it, and why, if something does."""
        try:
            return "" if self.open().purge() else "somebody reads the index: close it and purge again"
        except CommonplaceError as error:
            return str(error)

    def close(self) -> None:
        with self._lock:
            if self._index is not None:
                self._index.close()
                self._index = None


def _misfit(reads: Reads, position: int, hash: bytes) -> str:
    """Why an index that knows the ledger up to this event is not one of this ledger, if it is not."""
    head = reads.head
    if position > head.position:
        return (
            f"it knew the book up to position {position}, and the book ends at {head.position}: an earlier one was "
            "put in its place"
        )
    there = head.hash
    if position < head.position:
        there = reads.records(position - 1, position, 1)[0].hash if position else b""
    if position and hash != there:
        return f"the book has another event at position {position} than it knew: another one was put in its place"
    return ""


def _left_alone(path: Path) -> str:
    """Why what lies in the place of one of the index's files is not to be removed, if it is not."""
    from ..index import not_ours, other_database

    why = not_ours(path) or other_database(path)
    return why and f"it {why}"


def _removed(path: Path) -> str:
    """Remove a file; answer why it is still there, if it is."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        return f"it could not be removed ({error.strerror}): remove it yourself"
    return ""


def remove_unused(used: Path) -> None:
    """Remove what lies beside an index in the cache and was not used for long: nobody tells this host that a book was
    dropped on its server. An index that is missed is built again."""
    os.utime(used)
    for index in used.parent.glob("*.index"):
        with suppress(FileNotFoundError):  # another process removes it, too
            if index != used and index.is_file() and index.stat().st_mtime < time.time() - UNUSED:
                for path in filter(Path.is_file, index.parent.glob(f"{index.name}*")):
                    path.unlink()


def place_for(beside: Path | None, engine: str, book: str) -> Path | None:
    """Where a book's index lies: beside a local book, in the user's cache for one on a server."""
    if beside is not None:
        return beside.with_name(f"{beside.name}.index")
    if engine == "memory":
        return None
    cache = os.environ.get("XDG_CACHE_HOME", "")
    try:
        home = Path(cache) if os.path.isabs(cache) else Path("~/.cache").expanduser()  # noqa: PTH117
    except RuntimeError:  # a user without a home, as in many containers: the index is kept in memory
        return None
    return home / "commonplace" / f"{book}.index"
