"""A work as people see it in a terminal: once, or live."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .answers import whose
from .draw import Human, TableCell, clean, id_cell, lines, page, short, styled, table

if TYPE_CHECKING:
    from ..work.board import Board
    from ..work.tasks import Task

COLOURS = {
    "in_progress": "blue", "review": "yellow", "failed": "red", "ready": "green", "blocked": "magenta",
    "completed": "dim",
}  # fmt: skip
BAR = 30


def shown(board: Board) -> Human:
    """What it is for and how far it is, its tasks, what waits for people, what was decided."""
    work, counts = board.work, board.counts
    yield f"{styled(clean(work.name), 'bold')}  {work.status}  {short(work.id)}"
    yield from lines(*filter(None, (work.goal, work.reason, work.summary)))
    yield from lines(*(f"- {one}" for one in work.constraints))
    full = round(BAR * board.progress)
    by_status = ", ".join(
        f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count and name != "tasks"
    )
    bar = styled("█" * full, "green") + styled("░" * (BAR - full), "dim")
    yield f"{bar} {board.progress:.0%} of {counts.get('tasks', 0)} tasks: {by_status or 'none yet'}"
    if work.leader:
        yield from lines(f"led by {work.leader}")
    if board.tasks:
        yield from lines("")
        yield from table(_rows(board), "status", "priority", "task", "who", "lease", "waits for", "id")
    asked = [
        *(f"approve {short(one.id)}: {one.action} {one.risk}".rstrip() for one in board.approvals),
        *(f"choose {short(one.id)}: {one.question} ({', '.join(one.options)})" for one in board.branches),
        *(f"resolve {short(one.id)}: {one.text} ({one.type}, {one.by})" for one in board.escalations),
    ]
    yield from _headed("waits for people", asked)
    yield from _headed("latest decisions", [f"{d.question} {d.choice} ({d.by})" for d in board.decisions])


def _headed(heading: str, rows: list[str]) -> Human:
    if rows:
        yield from lines("")
        yield from lines(heading, style="bold")
        yield from page("\n".join(f"  {clean(row)}" for row in rows))


def _rows(board: Board) -> Iterator[list[object]]:
    for status, tasks in board.tasks.items():
        label: object = TableCell(status.replace("_", " "), COLOURS[status])
        for task in tasks:
            who = task.reviewer if status == "review" and task.reviewer else whose(task)
            waits = ", ".join(board.waits_for.get(task.id, ())) or (task.reason if status == "failed" else "")
            yield [label, task.priority, task.heading, who, _lease(board, task), waits, id_cell(task.id)]
            label = ""
        more = board.totals[status] - len(tasks)
        if more > 0:
            yield ["", "", f"… and {more} more", "", "", "", ""]


def _lease(board: Board, task: Task) -> str:
    if task.status != "in_progress":
        return ""
    left = board.leases.get(task.id)
    return "run out" if left is None else f"{left:.0f} s"


# live
