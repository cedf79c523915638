"""The mirror of a book: its memory as markdown files beside it, and hand edits taken in as a person's acts."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Collection, Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..access.rights import check_actor
from ..access_verbs import Access
from ..documents.document import NOTES, REPORTED, SESSIONS, WRITTEN
from ..documents.verbs import Documents
from ..documents.verified import VERIFIED_ITEMS
from ..documents.writing import WriteDocument
from ..errors import BadInput, CommonplaceError, NotFound, NotTrusted, Stale, StorageFailed, UnsafePath
from ..files.safe import FileAccess, Folder, access_of, make_folder
from ..files.trust import is_ours, is_trusted, trust, trust_book
from ..memory.items import Item
from ..memory.markdown import bullets, changed_fields, fields
from ..memory.pages import Sheet, sheets
from ..memory.places import CORES, REPOSITORY, check_places, file_name, renamed
from ..memory.reading import item_at
from ..memory.remember import remember
from ..memory.requests import RememberResult
from ..memory.settings import settings_of
from ..memory.verbs import Memory, forget
from .folder import OWN, FileDifference, Mirror, Report
from .pages import Added, Block, Changed, Clash, Edit, Page, Removed, Taken

if TYPE_CHECKING:
    from ..ledger.reader import Snapshot
    from ..session import Session

log = logging.getLogger("commonplace")

TRIES = 5
BY_HAND = "written by hand"


class BookMirror:
    """A folder of markdown that shows what a book remembers, and that people edit.

    `sync` takes in hand edits first, as acts of the person who edits, then writes what has changed. Where both
    sides changed the same thing the file shows both, and nothing is overwritten.
    """

    def __init__(
        self,
        session: Session,
        folder: Path,
        person: str | None = None,
        place: Path | None = None,
        *,
        trust: bool = False,
        scope: str = "",
    ) -> None:
        """`place` is where the list of the book's folders lies, and `scope` the key of the scope that it shows."""
        self._whole, self._session = session, session.alone_in(scope)
        self._ledger, self._place = session.ledger, place
        self._beside, self._id = session.services.beside, session.ledger.meta.book
        self.folder = folder
        self._person = person
        self._trust = trust
        self._trusted = False
        self._at = -1
        self._until_us = 0.0
        self._sheets: list[Sheet] = []
        self._heads: dict[str, str] = {}
        self._logs: dict[str, bytes] = {}
        """Logs for programs, which have no room for marks, as of the last look at the pages."""
        self._places: dict[str, str] = {}
        self._mirror = Mirror(
            folder, self._pages, self._take, clash=self._told, of=self._id, scope=scope, raw=lambda: self._logs,
            mode=access_of(self._beside).mode,
        )  # fmt: skip

    @property
    def person(self) -> str:
        return self._person or Memory(self._session).settings().person

    def sync(self) -> Report:
        """Take in hand edits and write what changed. What somebody changes in the book meanwhile is looked at anew.
        Raises NotTrusted, and touches nothing, if somebody else has made the folder or the book."""
        self.check_trust()
        for attempt in range(TRIES):
            try:
                return self._mirror.sync()
            except Stale:
                if attempt == TRIES - 1:
                    raise
        raise AssertionError  # not reached

    @property
    def trusted(self) -> bool:
        """Whether it is synced, and reached by erasing: this user has made it, or trusts it."""
        return self._trusted or is_trusted(self._id, self.folder)

    def check_trust(self) -> None:
        """Raises NotTrusted unless this user has made the folder or says to trust it; then that is remembered. A folder
        without records is made now, if the book is this user's own."""
        if self._trusted:
            return
        self._mirror.check_book()
        has_been_synced = has_records(
            self.folder
        )  # asked first: another process trusts the folder, then writes it
        if not is_trusted(self._id, self.folder):
            if not self._trust and (has_been_synced or not is_ours(self._ledger, self._beside)):
                raise NotTrusted(
                    f"{self.folder} is not synced: this user did not make it, or not the book that it shows, and "
                    "others may have prepared them. If you trust both, say so once: `commonplace mirror sync "
                    "--trust`, or trust=True"
                )
            try:
                trust(self._id, self.folder)
                if self._trust:
                    trust_book(self._ledger, self._beside)
            except StorageFailed as error:
                log.warning("%s", error)
        remember_folder(self._place, self.folder.absolute())
        self._trusted = True

    def watch(self, stop: threading.Event, on_report: Callable[[Report], None]) -> None:
        """Sync whenever a file or the book changes, until `stop` is set."""
        self.check_trust()
        follower = threading.Thread(target=self._follow, args=(stop,), daemon=True)
        follower.start()
        try:
            self._mirror.watch(stop, on_report)
        finally:
            stop.set()
            follower.join()

    def _follow(self, stop: threading.Event) -> None:
        after = self._ledger.head
        while not stop.is_set():
            for event in self._ledger.tail(after, 0.5):
                after = event.position
                if event.kind.startswith(("memory.", "event.", "access.", "state.")):
                    self._mirror.poke()
                if stop.is_set():
                    return

    def erase(self, ids: Collection[str]) -> Report:
        """Take what was erased out of the files, and of all that is remembered of them, whatever people made of it.
        Raises NotTrusted as `sync` does."""
        self.check_trust()
        events = self._ledger.events_by_id(list(ids))
        noted = any(event.kind in (WRITTEN, REPORTED) for event in events)
        self._mirror.erase(ids, lambda path: noted and self._made_of_all(path))
        return self.sync()

    def _made_of_all(self, path: str) -> bool:
        """Whether what a file shows is made of all entries of a document together."""
        return renamed(path, self._places, back=True).startswith(SESSIONS) or path.endswith(
            f"/{VERIFIED_ITEMS}"
        )

    def files(self) -> list[Path]:
        """Every file that may hold what this mirror has shown."""
        return self._mirror.files()

    def status(self) -> list[FileDifference]:
        """The files that differ from the book, and how. Changes nothing."""
        return self._mirror.status()

    # what is shown

    def _pages(self) -> Iterator[Page]:
        with self._session.snapshot() as snapshot:
            if self._at != snapshot.position or self._until_us <= self._ledger.moment():
                self._look(snapshot)
        for sheet in self._sheets:
            if sheet.may != "raw":
                blocks = tuple(Block(id, text) for id, text in sheet.blocks)
                yield Page(
                    sheet.path,
                    sheet.head,
                    blocks,
                    editable=sheet.may != "nothing",
                    appends=sheet.may == "append",
                )

    def _look(self, snapshot: Snapshot) -> None:
        """Make every page anew, in the place where this book has it."""
        self._places = settings_of(snapshot).places
        check_places(self._places)  # once more: a ledger from somebody else may hold what none of ours would
        sheets_now, self._until_us = sheets(snapshot, self._ledger.moment())
        self._sheets = [sheet._replace(path=renamed(sheet.path, self._places)) for sheet in sheets_now]
        self._heads = {sheet.path: sheet.head for sheet in self._sheets}
        self._logs = {sheet.path: sheet.head.encode() for sheet in self._sheets if sheet.may == "raw"}
        self._at = snapshot.position

    # what people change

    def _take(self, path: str, edits: list[Edit]) -> list[Taken]:
        return [self._took(path, edit) for edit in edits]

    def _took(self, path: str, edit: Edit) -> Taken:
        try:
            me = self._me()
            if isinstance(edit, Added) and edit.text.strip() in self._heads.get(path, ""):
                return Taken(edit, True)  # a save that was cut off within the head
            path = renamed(path, self._places, back=True)
            if path == NOTES:
                return self._noted(me, edit)
            if path.startswith(("memory/", "archive/2")):
                return self._logged(me, edit)
            if isinstance(edit, Added):
                return self._added(me, path, edit)
            with self._session.snapshot() as snapshot:
                item = item_at(snapshot, edit.block)
            if item is None or not item.current:
                raise NotFound("it is not in the book any more")
            return (
                self._removed(me, item, edit) if isinstance(edit, Removed) else self._changed(me, item, edit)
            )
        except Stale:
            raise  # somebody was quicker: look at the book anew
        except CommonplaceError as error:
            return Taken(edit, False, str(error))

    def _me(self) -> Session:
        """Who edits. Somebody without a role is a person; a role that somebody has is left as it is."""
        me = self._session.acting_as(check_actor(self.person))
        if me.rights().role is None:
            Access(self._whole).grant(self.person, role="person")
        return me

    def _changed(self, me: Session, item: Item, edit: Changed) -> Taken:
        fields_changed = changed_fields(item, edit.after)
        if not fields_changed:
            return Taken(edit, True)
        if item.repository:
            fields_changed = {"key": item.key, "value": item.value, **fields_changed}
            kept = remember(
                me, kind="fact", **fields_changed, citations=item.citations, reason=item.reason, category=item.category,
                repository=True, shared=True, supersedes=item.id, override=BY_HAND, id=edit.id,
            )  # fmt: skip
            return _answer(edit, kept)
        Memory(me).revise(
            item.id, why=BY_HAND, if_position=self._at, idempotency_key=edit.id, **fields_changed
        )
        return Taken(edit, True)

    def _removed(self, me: Session, item: Item, edit: Removed) -> Taken:
        forget(me, item.id, confirm="FORGET", reason="deleted by hand", if_position=self._at)
        return Taken(edit, True)

    def _added(self, me: Session, path: str, edit: Added) -> Taken:
        if path.startswith(REPOSITORY):
            raise BadInput(
                "a fact of the repository needs citations, a reason and a category: use memory.repository_fact"
            )
        core = None
        if path.startswith(CORES):
            core = next(
                core.id for core in Memory(self._session).cores() if f"{CORES}{file_name(core.id)}.md" == path
            )
        kept = [
            self._remembered(me, path, core, part, f"{edit.id}-{n}")
            for n, part in enumerate(bullets(edit.text))
        ]
        waiting = [result for result in kept if result.outcome in ("flagged", "rejected")]
        answer = _answer(edit, (waiting or kept)[0])
        if waiting and len(waiting) < len(kept):
            done = f"{len(kept) - len(waiting)} of {len(kept)} are taken in and stand above: delete them here"
            return Taken(edit, False, f"{done}; of the rest: {answer.note}")
        return answer

    def _remembered(self, me: Session, path: str, core: str | None, text: str, id: str) -> RememberResult:
        kind, content = fields(text)
        id = sha256(
            f"{id} {me.actor}".encode()
        ).hexdigest()  # a copied folder holds the same edit by somebody else
        source = {"source_kind": "user", "channel": path}
        return remember(
            me,
            kind=kind,
            **_arguments(kind, content),
            shared=True,
            core=core,
            provenance=source,
            override=BY_HAND,
            id=id,
        )

    def _noted(self, me: Session, edit: Edit) -> Taken:
        if isinstance(edit, Removed):
            me.write("documents.write", WriteDocument(me.actor, NOTES, "clear", if_position=self._at))
            return Taken(edit, True)
        text = edit.text if isinstance(edit, Added) else edit.after
        Documents(me).write_notes(text, if_position=self._at, id=edit.id)
        return Taken(edit, True, id=edit.id)

    def _logged(self, me: Session, edit: Edit) -> Taken:
        if not isinstance(edit, Added):
            raise BadInput("a day's log is only ever added to: write below what is there")
        event = Documents(me).log(edit.text, id=edit.id)
        return Taken(edit, True, id=event.id)

    def _told(self, clash: Clash) -> None:
        log.warning(
            "%s: the file and the book say different things of %s; the file shows both",
            clash.path,
            clash.block,
        )


def _arguments(kind: str, content: dict[str, Any]) -> dict[str, Any]:
    """Fields of an item as `remember` takes them."""
    text = {"note": "body", "procedure": "body", "episode": "summary"}.get(kind)
    return {("text" if name == text else name): value for name, value in content.items()}


def _answer(edit: Edit, kept: RememberResult) -> Taken:
    """A text that is held or refused stays in the file, with the reason."""
    ok = kept.outcome in ("stored", "merged")
    return Taken(edit, ok, "" if ok else kept.reason, kept.item_id if ok else None)


def has_records(folder: Path) -> bool:
    """Whether there are records of a mirror in a folder, made by this user or by others."""
    return os.path.lexists(folder / OWN)


def known_folders(place: Path | None) -> list[Path]:
    """The folders of this host that were once made to show a book. The list lies beside the book, where anybody may
    have written it: what is in it is looked at, and changed only where it is trusted."""
    if place is None:
        return []
    try:
        listed = Folder(place.parent).read(_list(place)) or b""
    except (UnsafePath, OSError) as error:
        log.warning("the list of the folders that show this book cannot be read: %s", error)
        return []
    paths = [Path(os.fsdecode(line)) for line in listed.splitlines() if b"\0" not in line]
    return [path for path in paths if path.is_absolute()]


def remember_folder(place: Path | None, folder: Path) -> None:
    """Keep in mind that a folder shows a book, so that erasing reaches it from other processes, too."""
    folders = known_folders(place)
    if place is not None and folder not in folders:
        raw = b"".join(os.fsencode(path) + b"\n" for path in (*folders, folder))
        book = place.with_suffix("")
        try:
            make_folder(place.parent, FileAccess())
            Folder(place.parent).write(_list(place), raw, like=book.stat() if book.is_file() else None)
        except (UnsafePath, OSError) as error:
            log.warning("that %s shows this book cannot be noted beside the book: %s", folder, error)


def _list(place: Path) -> str:
    return place.with_suffix(".mirrors").name
