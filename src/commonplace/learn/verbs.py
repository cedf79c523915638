"""What teams learn, and how they carry it on: `book.learn`. Each verb is a function of a module of this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..verbs import method
from .checklists import check_fact, prune_notes
from .chores import chores
from .hygiene import hygiene

if TYPE_CHECKING:
    from ..session import Session


class Learn:
    """What teams learn, and how they carry it on: `book.learn`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    hygiene = method(hygiene)
    check_fact = method(check_fact)
    prune_notes = method(prune_notes)
    chores = method(chores)
