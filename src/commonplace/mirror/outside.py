"""What was made from a book and lies outside it: the folders that show it as markdown, and the files that runs' states
were written to. Erasing reaches all of it, whichever process made it."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from ..engines.contract import FilePurged
from ..errors import BadInput, NotTrusted, StorageFailed, UnsafePath
from ..files.safe import Folder
from ..files.trust import StateFile, note_state_file, state_files, trusted_places
from ..state.redaction import with_those_below

if TYPE_CHECKING:
    from ..session import Session
    from .book import BookMirror
    from .folder import Report

log = logging.getLogger("commonplace")


class OutsideFiles:
    """The files outside one open book."""

    def __init__(self, session: Session, place: Path | None, *, remembered: bool) -> None:
        """`place` is where the list of the book's folders lies; the state files of a book that is `remembered` are
        known to other processes, too."""
        self._session, self._ledger = session, session.ledger
        self._place, self._remembered = place, remembered
        self._mirrors: dict[Path, BookMirror] = {}
        self._states: set[StateFile] = set()
        self._book = session.ledger.meta.book

    def erased(self, ids: Collection[str]) -> None:
        """Take what was erased out of the index, the markdown and the state files. The ledger calls it after every
        erasure, decided here or brought by an import; a caller that erases again calls it again. Raises StorageFailed
        when a folder could not be written, after all of them were tried."""
        self._session.services.index.forget()
        self._forget_states(ids)
        failed = []
        for mirror in self.mirrors():
            try:
                warn_of_refusals(mirror.erase(ids))
            except (NotTrusted, UnsafePath) as error:
                log.warning("what was erased may still stand in %s: %s", mirror.folder, error)
            except OSError as error:
                failed.append(f"{mirror.folder} ({error})")
        if failed:
            raise StorageFailed(
                f"it is erased from the book, and may still stand in {', '.join(failed)}: erase it again when that "
                "can be written"
            )

    def take_in(self) -> None:
        """Take in the hand edits of every folder that shows this book, as far as they are trusted."""
        for mirror in [] if self._ledger.store.facts.read_only else self.mirrors():
            if mirror.trusted:
                warn_of_refusals(mirror.sync())

    def purged(self) -> list[FilePurged]:
        """Remove what was erased from all of it, and every state file: which of them hold what was erased is not known.
        Answers what each file may still hold, and why."""
        for mirror in self.mirrors():
            if mirror.trusted:
                mirror.erase(())  # what was swapped out of its files may hold what is gone
        shown = [
            FilePurged(
                str(path), "" if mirror.trusted else "not trusted, so not reached: sync it with --trust"
            )
            for mirror in self.mirrors()
            for path in mirror.files()
            if path.exists()
        ]
        states = [file for file in self._state_files() if os.path.lexists(file.place)]
        unreached = self._remove(states)
        left = "it has shown this book and does not any more: look at what it still holds"
        return [
            *shown,
            *(FilePurged(file.place, unreached.get(file, "")) for file in states),
            *(FilePurged(str(folder), left) for folder in self._left_folders()),
        ]

    def files(self) -> list[Path]:
        """All files and folders that may hold what the book said."""
        shown = [file for mirror in self.mirrors() for file in mirror.files()]
        return [*shown, *self._left_folders(), *(Path(file.place) for file in self._state_files())]

    # markdown

    def mirror(
        self, folder: Path, person: str | None = None, *, trust: bool = False, scope: str = ""
    ) -> BookMirror:
        """The mirror in a folder, made if it is not there, of the scope with a key."""
        from .book import BookMirror  # loaded when there is a folder: most processes touch no markdown
        from .folder import shows, shows_scope

        if shows(folder) == self._book and shows_scope(folder) != scope:
            raise BadInput(f"{folder} shows another scope of this book: give each scope a folder of its own")
        self._mirrors[folder.absolute()] = made = BookMirror(
            self._session, folder, person, self._place, trust=trust, scope=scope
        )
        return made

    def mirrors(self) -> list[BookMirror]:
        """Every folder of this host that is known to show this book."""
        from .book import known_folders
        from .folder import shows, shows_scope

        for folder in (*known_folders(self._place), *trusted_places(self._book)):
            if folder not in self._mirrors and shows(folder) == self._book:
                self.mirror(folder, scope=shows_scope(folder))
        return [mirror for folder, mirror in self._mirrors.items() if shows(folder) == self._book]

    def _left_folders(self) -> list[Path]:
        """Folders of this host that this user once had show this book, and that are not kept up with it any more."""
        # The list beside the book may have come with it, and may name any folder: only this user's own count.
        from .book import known_folders
        from .folder import shows

        ours = trusted_places(self._book)
        folders = [folder for folder in known_folders(self._place) if folder in ours and folder.exists()]
        return [folder for folder in folders if shows(folder) != self._book]

    # states of runs

    def saved(self, run: str, folder: Path, path: str) -> None:
        """Keep in mind where a run's state is written, so that erasing finds it, also from another process."""
        file = StateFile(self._book, run, str(folder), path)
        if file in self._states:
            return
        self._states.add(file)
        if self._remembered:
            try:
                note_state_file(file)
            except StorageFailed as error:
                log.warning("erasing will not find this file from another process: %s", error)

    def _state_files(self) -> list[StateFile]:
        return sorted({*self._states, *state_files(self._book)})

    def _forget_states(self, ids: Collection[str]) -> None:
        """Remove the state files of the runs that these events belong to, and of those below them."""
        files = self._state_files()
        if files:
            erased = self._ledger.events_by_id(list(ids))
            with self._ledger.snapshot() as now:
                runs = with_those_below(now, {event.run_id for event in erased if event.run_id})
            self._remove([file for file in files if file.run in runs])

    @staticmethod
    def _remove(files: Collection[StateFile]) -> dict[StateFile, str]:
        """Remove files that hold the state of runs; `run.save` writes them again, with what is left. Answers which
        could not be reached, and why."""
        unreached = {}
        for file in files:
            try:
                Folder(file.folder).unlink(file.path)
            except (OSError, UnsafePath) as error:
                log.warning("what was erased may still stand in %s: %s", file.place, error)
                unreached[file] = f"it may hold what was erased, and could not be removed: {error}"
        return unreached


def warn_of_refusals(report: Report) -> None:
    for path, why in report.refused:
        log.warning("%s was left alone: %s", path, why)
