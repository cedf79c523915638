"""What teams learn, and how they carry it on: `book.learn`. Each verb is a function of a module of this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..verbs import method
from .reflection import reflect, reflection_due

if TYPE_CHECKING:
    from ..session import Session


class Learn:
    """What teams learn, and how they carry it on: `book.learn`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    reflect = method(reflect)
    reflection_due = method(reflection_due)
