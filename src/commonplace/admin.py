"""The upkeep of a book: `book.admin`, for its owner."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from .access.rights import OWNER
from .engines import locate
from .engines.contract import Facts, FilePurged, PurgeReport
from .errors import BadInput, CommonplaceError, NotFound, StorageFailed, shown
from .files.safe import access_of, create_private
from .files.trust import is_ours, trust_book
from .index.names import named_embedder
from .ledger.checks import check_call, check_each, check_name, check_path, check_text
from .ledger.clocks import clock_trouble
from .ledger.erase import EraseRequest, Erasure
from .ledger.reader import PAGE
from .ledger.upkeep import damaged_row, rebuild, verify
from .memory.verbs import Memory
from .verbs import EventId, verb

if TYPE_CHECKING:
    from .book import Book
    from .files.scan import FoundText
    from .finding import Found
    from .ledger.ledger import At, Progress
    from .ledger.transfer import Imported
    from .ledger.upkeep import Rebuilt, Verification
    from .mirror.verbs import Mirrors
    from .proof import Proof
    from .recall.book_index import BookIndex
    from .recall.index_migration import Migrated
    from .session import Session

GUARDS = ("rights", "memory.settings")
"""The small views that say who may do what."""

FoundTexts = list["FoundText"]


class Status(msgspec.Struct, frozen=True):
    """Where a book stands. `views` maps each view to the version of the fold that built it; `acknowledged` is
    the last position that this host remembers as durable, 0 where nobody remembers. `damage` names a row of rights
    or settings that is not as it was written; `verify` looks at all others, too. `clock` says from which event on the
    ledger is more than a day ahead of this clock, `slow_clock` which event came from a clock that was behind."""

    name: str
    id: str
    head: int
    hash: str
    horizon: int
    views: dict[str, int]
    acknowledged: int
    facts: Facts
    damage: str | None = None
    clock: str | None = None
    slow_clock: str | None = None


DIGEST = re.compile(r"[0-9a-f]{64}")


def check_free(name: str, path: str | Path) -> Path:
    """The path of a file that is not there yet. Raises BadInput."""
    target = check_path(name, path)
    if os.path.lexists(target):
        raise BadInput(f"{target} exists: choose a file that does not, so that nothing is overwritten")
    return target


class Admin:
    """Checking, copying, erasing and rebuilding a whole book."""

    def __init__(self, session: Session, mirrors: Mirrors) -> None:
        self._session, self._mirrors, self._ledger = session, mirrors, session.ledger

    @property
    def _index(self) -> BookIndex:
        return self._session.services.index

    @cached_property
    def facts(self) -> Facts:
        """What the engine under this book promises."""
        return self._ledger.store.facts

    @verb
    def blob(self, digest: str) -> bytes:
        """The bytes behind a `{"$blob": digest}` in a payload. Raises NotFound.

        `digest` is the hash in the payload."""
        is_digest = isinstance(digest, str) and DIGEST.fullmatch(digest) is not None
        data = self._ledger.blob(digest) if is_digest else None
        if data is None:
            raise NotFound(f"there is no blob {shown(digest)} in this book; it may have been erased")
        return data

    # how it stands

    @verb(reads=True)
    def status(self) -> Status:
        """Where the book stands, and what its engine promises."""
        reached = self._ledger.store.acknowledged()  # before the head: others may write meanwhile
        with self._ledger.reads() as reads:
            head, meta = reads.head, self._ledger.meta_of(reads.head)
            clocks = clock_trouble(reads, meta)
        views = {name: version for name, (version, _) in sorted(meta.views.items())}
        return Status(
            meta.name,
            meta.book,
            head.position,
            head.hash.hex(),
            meta.horizon,
            views,
            reached,
            self.facts,
            damaged_row(self._ledger, GUARDS),
            *clocks,
        )

    @verb
    def verify(self, progress: Progress | None = None) -> Verification:
        """Check the whole hash chain. `.ok`, `.first_bad` (a position) and `.problem`."""
        return verify(self._ledger, check_call("progress", progress))

    @verb
    def rebuild(self, progress: Progress | None = None) -> Rebuilt:
        """Fold every view from the ledger again, beside the ones in use, and switch at once. Hand edits in the markdown
        are taken in first."""
        check_call("progress", progress)
        self._mirrors.sync_own()
        self._index.throw_away()
        return rebuild(self._ledger, progress=progress)

    # erasing

    @verb
    def find(
        self,
        text: str | Sequence[str] | None = None,
        *,
        scope: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        actor: str | None = None,
        progress: Progress | None = None,
    ) -> Found:
        """Find everything about a person or topic, in every event: items, tasks, decisions, state, documents, blobs,
        receipts and their traces, messages, names. Several filters narrow each other; a scope means what lies in it or
        below it. The answer counts by kind of thing, lists what is derived from it, and says which names remain when it
        is erased (`erase` takes it). Hand edits in the markdown are taken in first.

        `text` is what to look for, or several spellings of it; case, Unicode form and line breaks make no difference.
        `actor` is who recorded it."""
        from .finding import find, find_request

        request = find_request(text, scope, metadata, actor)
        check_call("progress", progress)
        self._session.services.outside.take_in()
        return find(self._session, request, progress)

    @verb
    def erase(
        self,
        ids: EventId | Iterable[EventId] | Found,
        *,
        actor: str = OWNER,
        reason: str = "",
        dry_run: bool = False,
    ) -> Erasure:
        """Erase the content of events, and of everything derived from them by `parents`. No read returns it any more,
        and the chain still verifies. Call `purge` to clear the raw files, too. With `dry_run` nothing is erased, and
        `.counts` says how many items, tasks and so on would be. Raises Conflict if somebody would gain a right
        because the name of a scope goes.

        `ids` are the ids of events, or what `find` has found. `actor` is the one in whose name they are erased."""
        from .finding import Found, counted, thing_of

        check_text("reason", reason)
        texts: tuple[str, ...] = ()
        if isinstance(ids, Found):
            if ids.request.spellings.within(reason):
                raise BadInput(
                    "reason names what is to be erased, perhaps as a part of a word, and a reason stays: "
                    "say it without the name"
                )
            texts, ids = ids.request.texts, ids.ids
        wanted = tuple(check_name("id", id) for id in check_each("ids", ids))
        request = EraseRequest(wanted, actor, reason, dry_run, texts)
        erasure: Erasure = self._session.write("memory.erase", request)
        if erasure.already and not dry_run:  # the files of an earlier erasure may not have been reached
            self._session.services.outside.erased(erasure.already)
        return replace(erasure, counts=counted(map(thing_of, self._kinds_of(erasure.erased))))

    def _kinds_of(self, ids: Sequence[str]) -> Iterator[str]:
        for start in range(0, len(ids), PAGE):
            yield from (event.kind for event in self._ledger.events_by_id(ids[start : start + PAGE]))

    @verb(not_served="it scans the files of the host that the book is on: call it there")
    def proof(self, found: Found, to: str | Path, *, progress: Progress | None = None) -> Proof:
        """Purge, look for the same again, verify the chain, scan the raw files, and write what came of it to a private
        JSON file that does not hold the content: what was erased, when, by whom, and what remains and why. What was
        looked for stands in it as digests, whose key is in the answer and not in the file.

        `found` is what was found before it was erased. `to` is the file to write."""
        from .finding import Found
        from .proof import write_proof

        if not isinstance(found, Found):
            raise BadInput(
                f"found {shown(found)} is not what `find` has found: find it, erase it, and prove it"
            )
        return write_proof(self, self._session, found, check_path("to", to), check_call("progress", progress))

    def check_proof(self, to: str | Path) -> None:
        """Check that a proof can be written to a file, before anything is erased. Raises BadInput."""
        from .proof import check_target

        check_target(self._session, check_path("to", to))

    @verb
    def purge(self) -> PurgeReport:
        """Remove what was erased from the files of the store, of the index and of the markdown, and delete the state
        files of runs (`run.save` writes them again). The report names each file, what it may still hold, and why."""
        report = self._ledger.store.purge()
        why = "; ".join(report.remaining)
        outside = self._session.services.outside.purged()
        files = [FilePurged(str(path), why) for path in self._ledger.store.files() if path.exists()]
        files += [*self._index.purge(), *outside]
        more = [f"{file.path}: {file.remains}" for file in files if file.remains not in ("", why)]
        return PurgeReport(report.done, (*report.remaining, *more), tuple(files))

    @verb
    def find_text(self, texts: str | Sequence[str]) -> FoundTexts:
        """Where these texts occur in the raw files of the book, its index and its markdown; empty if they were erased
        and purged. Another process scans the files. Raises BadInput if the files are on a server's host.

        `texts` are the texts to look for."""
        from .files.scan import SHORTEST, look_for

        wanted = [check_text("a text", text) for text in check_each("texts", texts)]
        if any(len(text.encode()) < SHORTEST for text in wanted):
            raise BadInput(f"a text of less than {SHORTEST} bytes is found everywhere: give a longer one")
        if not self._ledger.store.files():
            raise BadInput(
                f"the raw files of this {self.facts.engine} book are not on this host, or it does not say where"
            )
        return look_for(wanted, self.raw_files())

    def raw_files(self) -> list[Path]:
        """The files and folders of this host that may hold what the book says: of its store, index and markdown."""
        outside = self._session.services.outside
        return [*self._ledger.store.files(), *self._index.files(), *outside.files()]

    @property
    def has_files_here(self) -> bool:
        """Whether every file of the store is on this host; a book in memory has none."""
        return self.facts.engine == "memory" or bool(self._ledger.store.files())

    # the index

    @verb
    def index_size(self) -> tuple[int, int]:
        """The bytes of the index on disk and in memory; zeros before the first search."""
        return self._index.takes()

    @verb
    def reindex(self, progress: Progress | None = None) -> int:
        """Let the index catch up with the ledger; returns the position that it has reached."""
        return int(self._index.catch_up(check_call("progress", progress)).position)

    @verb
    def migrate_index(
        self,
        embedder: str,
        *,
        queries: Sequence[str] | None = None,
        switch: bool = False,
        progress: Progress | None = None,
    ) -> Migrated:
        """Build the index with another embedder beside the one in use, and compare what both find for the queries
        given, or for those that were recorded with digests, each under the rights of the actor that asked. With
        `switch` it replaces the one in use, for every process at once; without, it is removed again.

        `embedder` is auto, static, minilm, fastembed:MODEL, sentence-transformers:MODEL or openai:MODEL@URL.
        `queries` is what to compare them by. `switch` is whether the new one is used from now on."""
        from .recall.index_migration import Migrated, built_beside, compared, recorded_queries

        embedder, ledger = named_embedder(check_text("embedder", embedder)), self._ledger
        asked = recorded_queries(ledger) if queries is None else [(OWNER, query) for query in queries]
        old, beside = self._index.catch_up(), built_beside(self._index, embedder, progress)
        try:
            found = compared(ledger, old, beside.catch_up(), asked)
            migrated = Migrated(embedder, old.fingerprint, beside.fingerprint, found, switch)
            if switch:
                self._index.give_way_to(beside)
                Memory(self._session).configure(embedder=embedder)
        finally:
            beside.throw_away()
        return migrated

    # copies

    @verb(reads=True, writes_file="to")
    def export(self, to: str | Path, *, at: At = None, progress: Progress | None = None) -> int:
        """Write every event up to `at` as JSONL, with its hash, and the blobs. Returns how many events.

        `to` is the file to write."""
        from .ledger.transfer import export_lines, write_export

        path, beside = check_path("to", to), self._session.services.beside
        upto = self._ledger.position(at)
        check_call("progress", progress)
        return write_export(export_lines(self._ledger, upto), path, upto, progress, beside)

    @verb(reads_file="source")
    def import_(self, source: str | Path, *, progress: Progress | None = None) -> Imported:
        """Import an export. Into an empty book, or one that holds a beginning of the same ledger, positions and hashes
        are kept; otherwise events are recorded anew with their origin named.

        `source` is the export to read."""
        from .ledger.transfer import import_file

        return import_file(self._ledger, check_path("source", source), check_call("progress", progress))

    @verb(not_served="it copies to a book that is opened on the host of this one: call it there")
    def copy(self, to: Book, *, progress: Progress | None = None) -> Imported:
        """Copy everything to another book, on any engine, as `export` and `import_` would.

        `to` is the book to copy it to."""
        from .book import Book
        from .ledger.transfer import copy_book

        if not isinstance(to, Book):
            raise BadInput(f"to {shown(to)} is not a book: open it first, with commonplace.open(…)")
        return copy_book(self._ledger, to.ledger, check_call("progress", progress))

    @verb(reads=True, writes_file="to")
    def backup(self, to: str | Path, *, progress: Progress | None = None) -> int:
        """Write a consistent copy of the book, as it is now, to a new SQLite file. Returns its head.

        `to` is the SQLite file to write, which must not exist."""
        from .book import open
        from .ledger.transfer import copy_book

        target, beside = check_free("to", to), self._session.services.beside
        check_call("progress", progress)
        head = self._ledger.store.backup(target)
        if head is not None:
            if is_ours(self._ledger, beside):
                trust_book(self._ledger, target)
            return head.position
        try:
            create_private(target, access_of(beside))
            with open(target, name=self._ledger.meta.name) as book:
                copy_book(self._ledger, book.ledger, progress)
                return book.head
        except BaseException as error:
            engine, _ = locate(target)  # a part of a copy is none
            engine.drop(target.stem)
            if isinstance(error, OSError) and not isinstance(error, CommonplaceError):
                raise StorageFailed(f"cannot write {target} ({error}); choose another place") from error
            raise
