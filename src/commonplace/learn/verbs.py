"""What teams learn, and how they carry it on: `book.learn`. Each verb is a function of a module of this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..verbs import method
from .lifecycle import context_start, conversation_end, phase_end, phase_start, task_complete
from .resume import resume
from .verified import verified, verify_item

if TYPE_CHECKING:
    from ..session import Session


class Learn:
    """What teams learn, and how they carry it on: `book.learn`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    context_start = method(context_start)
    phase_start = method(phase_start)
    phase_end = method(phase_end)
    task_complete = method(task_complete)
    conversation_end = method(conversation_end)
    resume = method(resume)

    verify_item = method(verify_item)
    verified = method(verified)
