"""A work as people see it in a terminal: once, or live."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ..events import Event
from .draw import Human, clean, lines, log_lines, page, table
from .shell import Answer, Shell, plain
from .verbs import whose

if TYPE_CHECKING:
    from ..work.board import Board
    from ..work.tasks import Task
    from ..work.verbs import Work

COLOURS = {
    "in_progress": "blue", "review": "yellow", "failed": "red", "ready": "green", "blocked": "magenta",
    "completed": "dim",
}  # fmt: skip
BAR = 30
TICK = 1.0
"""After how many seconds without news a live board is drawn again, because leases run out."""
SAID = (
    "text", "choice", "action", "answer", "why", "reason", "comments", "summary", "goal", "description"
)  # fmt: skip


def shown(board: Board) -> Human:
    """What it is for and how far it is, its tasks, what waits for people, what was decided."""
    from rich.text import Text

    work, counts = board.work, board.counts
    yield Text.assemble((clean(work.name), "bold"), f"  {work.status}", f"  {clean(work.id)}")
    yield from lines(*filter(None, (work.goal, work.reason, work.summary)))
    yield from lines(*(f"- {one}" for one in work.constraints))
    full = round(BAR * board.progress)
    told = ", ".join(
        f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count and name != "tasks"
    )
    bar = Text.assemble(("█" * full, "green"), ("░" * (BAR - full), "dim"))
    yield bar.append(f" {board.progress:.0%} of {counts.get('tasks', 0)} tasks: {told or 'none yet'}")
    if work.leader:
        yield from lines(f"led by {work.leader}")
    if board.tasks:
        yield from lines("")
        yield from table(_rows(board), "status", "priority", "task", "who", "lease", "waits for", "id")
    asked = [
        *(f"approve {one.id}: {one.action} {one.risk}".rstrip() for one in board.approvals),
        *(f"choose {one.id}: {one.question} ({', '.join(one.options)})" for one in board.branches),
        *(f"resolve {one.id}: {one.text} ({one.type}, {one.by})" for one in board.escalations),
    ]
    yield from _headed("waits for people", asked)
    yield from _headed("latest decisions", [f"{d.question} {d.choice} ({d.by})" for d in board.decisions])


def _headed(heading: str, told: list[str]) -> Human:
    if told:
        yield from lines("")
        yield from lines(heading, style="bold")
        yield from page("\n".join(f"  {clean(one)}" for one in told))


def _rows(board: Board) -> Iterator[list[object]]:
    from rich.text import Text

    for status, tasks in board.tasks.items():
        label: object = Text(status.replace("_", " "), style=COLOURS[status])
        for task in tasks:
            who = task.reviewer if status == "review" and task.reviewer else whose(task)
            waits = ", ".join(board.waits_for.get(task.id, ())) or (task.reason if status == "failed" else "")
            yield [label, task.priority, task.title, who, _lease(board, task), waits, task.id]
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


def followed(shell: Shell, work: Work, limit: int) -> Answer:
    """The board, and then whatever happens: drawn again on a terminal, elsewhere a line each, until Ctrl-C."""
    first = work.board(limit=limit)

    def events() -> Iterator[Event]:
        return shell.open().access.redacted(work.watch(first.as_of))

    def data() -> Iterator[object]:
        yield plain(first)
        yield from (event.as_dict() for event in events())

    def human() -> Human:
        if shell.out.is_terminal:
            _live(shell, work, limit)
        else:
            yield from shown(first)
            yield from log_lines(events(), shell.out.width, _content(work))

    return Answer(data(), human(), lines=True)


def _live(shell: Shell, work: Work, limit: int) -> None:
    from rich.console import Group
    from rich.live import Live

    with Live(console=shell.out, auto_refresh=False) as live:
        while True:
            board = work.board(limit=limit)
            live.update(Group(*shown(board)), refresh=True)
            next(work.watch(board.as_of, timeout=TICK), None)


def _content(work: Work) -> Callable[[Event], str]:
    """What an event of a work says: the title of its task, and the words."""
    titles = dict[str, str]()

    def told(event: Event) -> str:
        task, said = event.payload.get("task_id") or event.payload.get("task"), event.payload["said"]
        if task and task not in titles:
            titles[task] = work.task(task).info().title
        words = next((said[name] for name in SAID if isinstance(said.get(name), str) and said[name]), "")
        about = said.get("question") or titles.get(task or "", "") or said.get("path", "")
        return ": ".join(filter(None, (about, words)))

    return told
