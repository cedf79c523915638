"""Tasks to begin with, out of an entry of a core that is a pattern."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import BadInput
from ..events import new_id

if TYPE_CHECKING:
    from ..recall.verbs import Recalling


def tasks_of(asker: Recalling, pattern: str) -> list[dict[str, Any]]:
    """The tasks of a pattern as a work adds them. They depend on each other by title; here they have ids."""
    item = asker.item(pattern)
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
