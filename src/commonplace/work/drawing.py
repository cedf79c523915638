"""The graph of a work as pictures are drawn from it, and the longest way through it."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import BadInput, shown
from .info import WorkInfo
from .tasks import Task

COLOURS = {
    "pending": "#e8e8e8", "assigned": "#cfe2ff", "in_progress": "#9ec5fe", "blocked": "#f8d7da", "review": "#fff3cd",
    "completed": "#d1e7dd", "failed": "#f1aeb5", "cancelled": "#f0f0f0",
}  # fmt: skip
FORMATS = ("mermaid", "dot")


def longest_chain(tasks: Sequence[Task]) -> list[Task]:
    """The longest chain of open tasks that wait for each other, the first to be done first. Of chains as long as each
    other, the one of the oldest tasks."""
    open = {task.id: task for task in tasks if not task.final}
    before: dict[str, str | None] = {}
    length: dict[str, int] = {}
    for task in sorted(open.values(), key=lambda task: task.number):
        stack = [task]
        while stack:
            top = stack[-1]
            needs = [open[id] for id in top.depends_on if id in open]
            ahead = [need for need in needs if need.id not in length]
            if ahead:
                stack += ahead
                continue
            stack.pop()
            best = max(needs, key=lambda need: (length[need.id], -need.number), default=None)
            length[top.id] = 1 if best is None else length[best.id] + 1
            before[top.id] = None if best is None else best.id
    if not length:
        return []
    at: str | None = max(length, key=lambda id: (length[id], -open[id].number))
    chain = list[Task]()
    while at is not None:
        chain.append(open[at])
        at = before[at]
    return chain[::-1]


def drawn(info: WorkInfo, tasks: Sequence[Task], format: str) -> str:
    if format not in FORMATS:
        raise BadInput(f"there is no format {shown(format)} for graphs: there is {' and '.join(FORMATS)}")
    return _mermaid(info, tasks) if format == "mermaid" else _dot(info, tasks)


def _mermaid(info: WorkInfo, tasks: Sequence[Task]) -> str:
    numbers = {task.id: task.number for task in tasks}
    lines = [f"%% {_plain(info.name)}", "flowchart LR"]
    lines += [f'    t{task.number}["{_label(task)}"]:::{task.status}' for task in tasks]
    lines += [
        f"    t{numbers[id]} --> t{task.number}" for task in tasks for id in task.depends_on if id in numbers
    ]
    used = dict.fromkeys(task.status for task in tasks)
    lines += [f"    classDef {status} fill:{COLOURS[status]},stroke:#666" for status in used]
    return "\n".join(lines) + "\n"


def _dot(info: WorkInfo, tasks: Sequence[Task]) -> str:
    numbers = {task.id: task.number for task in tasks}
    lines = [f'digraph "{_plain(info.name)}" {{', "    rankdir=LR; node [shape=box, style=filled];"]
    lines += [
        f'    t{task.number} [label="{_label(task)}", fillcolor="{COLOURS[task.status]}"];' for task in tasks
    ]
    lines += [
        f"    t{numbers[id]} -> t{task.number};" for task in tasks for id in task.depends_on if id in numbers
    ]
    return "\n".join([*lines, "}"]) + "\n"


def _label(task: Task) -> str:
    holder = f" ({_plain(task.assigned_to)})" if task.assigned_to else ""
    return f"{_plain(task.title)}{holder}"


def _plain(text: str) -> str:
    """Text that no drawing language takes for anything else."""
    kept = "".join(letter if letter.isalnum() or letter in " .,:+-/_()" else " " for letter in text)
    return " ".join(kept.split())[:80] or "untitled"
