"""The markdown that people edit: `book.mirror`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import BadInput, CommonplaceError
from ..ledger.checks import check_path
from ..ledger.scopes import parsed
from ..verbs import verb
from .outside import warn_of_refusals

if TYPE_CHECKING:
    from ..session import Session
    from .book import BookMirror
    from .folder import FileDifference, Report

    FileDifferences = list[FileDifference]

log = logging.getLogger("commonplace")


class Mirrors:
    """The folders that show a book's memory as markdown: `book.mirror`. The book's own folder is the one that it was
    opened with, or the one that it lies in."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._own: BookMirror | None = None

    def folder(
        self,
        path: str | Path | None = None,
        person: str | None = None,
        *,
        trust: bool = False,
        scope: str | None = None,
    ) -> BookMirror:
        """The mirror in a folder, by default the one that the book lies in. `person` is the actor in whose name edits
        are recorded. With `trust`, a folder that this user did not make is synced, now and later. It shows the root
        alone, or a `scope` such as "users/alice" alone; each takes a folder of its own."""
        beside = self._session.services.beside
        where = check_path("a folder", path) if path is not None else beside and beside.parent
        if where is None:
            raise BadInput(
                "this book is not in a folder of this host: say in which one its markdown shall lie"
            )
        outside = self._session.services.outside
        if scope is None:
            return outside.mirror(where, person, trust=trust)
        if path is None:
            raise BadInput(
                "say in which folder: the one that the book lies in shows what belongs to no scope"
            )
        (key,) = self._session.write("scopes.name", (parsed(scope),))
        return outside.mirror(where, person, trust=trust, scope=key)

    @verb(not_served="it is about markdown on the host that the book is on: call it there")
    def sync(self) -> Report:
        """Take in hand edits, and write what changed."""
        return self._default().sync()

    @verb(not_served="it is about markdown on the host that the book is on: call it there")
    def status(self) -> FileDifferences:
        """The files that differ from the book, and how. Changes nothing."""
        return self._default().status()

    def watch(self, stop: threading.Event, on_report: Callable[[Report], None]) -> None:
        """Sync whenever a file or the book changes, until `stop` is set."""
        self._default().watch(stop, on_report)

    def _default(self) -> BookMirror:
        return self.folder() if self._own is None else self._own

    def use(self, folder: str | Path | bool | None, *, trust: bool) -> None:
        """Make a folder the book's own mirror and sync it: this folder, with True the one that the book lies in, with
        None that one if it has a mirror already."""
        if folder is False:
            return
        from .folder import shows

        beside = self._session.services.beside
        if folder is None and self._session.ledger.store.facts.read_only:
            return
        if folder is None and beside is not None and shows(beside.parent) == self._session.ledger.meta.book:
            try:
                self._own = self.folder(trust=trust)
                self.sync_own()
            except (CommonplaceError, OSError) as error:  # nobody asked for it: the book itself is well
                self._own = None
                log.warning("the markdown beside this book could not be taken in: %s", error)
        elif folder is not None:
            mirror = self.folder(None if folder is True else folder, trust=trust)
            mirror.check_trust()  # before it counts as the book's: closing would try to sync it again
            self._own = mirror
            self.sync_own()

    def sync_own(self) -> None:
        """Sync the book's own mirror, if it has one, and warn of files that were left alone."""
        if self._own is not None:
            warn_of_refusals(self._own.sync())
