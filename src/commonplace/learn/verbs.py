"""What teams learn, and how they carry it on: `book.learn`. Each verb is a function of a module of this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..verbs import method, namespace
from .board import ContextDigests, RunBoard, register_tool
from .checklists import check_fact, prune_notes
from .chores import chores
from .compaction import compact
from .curator import curate_run, prior_runs
from .hygiene import hygiene
from .lifecycle import context_start, conversation_end, phase_end, phase_start, task_complete
from .promotion import promote
from .reflection import reflect, reflection_due
from .resume import resume
from .skills import patterns, propose_skills
from .verified import verified, verify_item

if TYPE_CHECKING:
    from ..session import Session


class Learn:
    """What teams learn, and how they carry it on: `book.learn`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    board = namespace(RunBoard)
    digests = namespace(ContextDigests)

    register_tool = method(register_tool)
    curate_run = method(curate_run)
    prior_runs = method(prior_runs)
    compact = method(compact)
    reflect = method(reflect)
    reflection_due = method(reflection_due)
    promote = method(promote)
    patterns = method(patterns)
    propose_skills = method(propose_skills)
    hygiene = method(hygiene)
    check_fact = method(check_fact)
    prune_notes = method(prune_notes)
    chores = method(chores)
    context_start = method(context_start)
    phase_start = method(phase_start)
    phase_end = method(phase_end)
    task_complete = method(task_complete)
    conversation_end = method(conversation_end)
    resume = method(resume)

    verify_item = method(verify_item)
    verified = method(verified)
