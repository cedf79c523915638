"""Tasks to begin with, out of an entry of a core that is a pattern."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import BadInput
from ..ledger.events import new_id
from ..memory.verbs import Memory

if TYPE_CHECKING:
    from ..session import Session


def tasks_of(session: Session, pattern: str) -> list[dict[str, Any]]:
    """The tasks of a pattern as a work adds them. They depend on each other by title; here they have ids."""
    item = Memory(session).get(pattern)
    if item.type != "pattern" or not item.tasks:
        raise BadInput(
            f"{pattern!r} is not a pattern with tasks: remember one with type='pattern' and "
            "tasks=[{'title': …, 'depends_on': [titles]}]"
        )
    ids = {task["title"]: new_id() for task in item.tasks}
    return [
        {
            **task,
            "id": ids[task["title"]],
            "depends_on": [ids[title] for title in task.get("depends_on") or ()],
        }
        for task in item.tasks
    ]
