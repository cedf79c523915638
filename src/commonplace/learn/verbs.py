"""What teams learn, and how they carry it on: `book.learn`. Each verb is a function of a module of this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..verbs import method
from .promotion import promote
from .skills import patterns, propose_skills

if TYPE_CHECKING:
    from ..session import Session


class Learn:
    """What teams learn, and how they carry it on: `book.learn`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    promote = method(promote)
    patterns = method(patterns)
    propose_skills = method(propose_skills)
