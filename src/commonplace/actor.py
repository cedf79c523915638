"""Acting as somebody: the book's verbs under one actor's rights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .ledger.checks import check_call, check_path
from .participant import Participant
from .recording import events

if TYPE_CHECKING:
    from .ledger.ledger import At, Progress
    from .session import Session


class Actor(Participant):
    """One actor of a book. `book.as_actor(name)` makes one.

    Everything it does is recorded under its name and checked against its rights; everything it reads is limited to what
    it may see. A refusal is `Denied`, and an event that the owner can read.
    """

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.name = session.actor

    def export(self, to: str | Path, *, at: At = None, progress: Progress | None = None) -> int:
        """Write the events that this actor may see as JSONL, without secrets. Returns how many."""
        from .ledger.transfer import excerpt_lines, write_export

        session, path = self._session, check_path("to", to)
        check_call("progress", progress)
        lines = excerpt_lines(session.ledger, events(session, at=at))
        return write_export(lines, path, session.ledger.position(at), progress, session.services.beside)

    def __repr__(self) -> str:
        return f"<Actor {self.name!r}>"
