"""Commands about works that do more than call a verb.

A task is named by its id alone. Whoever claims one is told a token, which whatever it does next carries: so the
process that claims need not be the one that completes.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..access.rights import OWNER
from ..errors import BadInput
from ..files.safe import new_file
from ..ledger.events import Event
from ..ledger.ledger import At
from ..registry import open_claim, open_task
from ..verbs import TaskId, WorkId
from .answers import log_lines, one_task, tasks_table, whole_id
from .board import shown as board_lines
from .book import titles
from .data import data_of, plain
from .draw import Human, id_cell, lines, page, short, table
from .shell import Output, Shell

if TYPE_CHECKING:
    from ..work.holding import Claim
    from ..work.verbs import Work

TICK = 1.0
"""After how many seconds without news a live board is drawn again, because leases run out."""


def work_of(shell: Shell, work: WorkId) -> Work:
    me = shell.acting()
    return me.work(whole_id(me, "work", work))


def given(**options: Any) -> dict[str, Any]:
    """What was typed; the rest is as the book has it."""
    return {name: value for name, value in options.items() if value is not None}


# works


def new(
    shell: Shell,
    name: str,
    *,
    goal: str = "",
    constraints: list[str] | None = None,
    cores: list[str] | None = None,
    pattern: str | None = None,
    members: list[str] | None = None,
    on_failure: object = None,
    max_tasks: int | None = None,
    max_agents: int | None = None,
    auto_archive: float | None = None,
    id: str | None = None,
) -> Output:
    """Begin a work. `pattern` is an entry of a core whose tasks it begins with. `members` are those who may know of it;
    nobody is named: everybody. `on_failure` is what happens when a task fails: retry, reassign, escalate, skip or
    abort, or JSON with policy, retries, backoff and then. `max_tasks` is how many tasks it may have. `max_agents` is
    how many agents may take part. `auto_archive` is how many hours after its end `work archive` puts it away.

    `name` is what to call it. `cores` are the cores that give it its context."""
    me = shell.acting()
    begun = me.work(
        id, name=name, goal=goal, constraints=constraints or (), cores=cores or (), members=members or (),
        pattern=None if pattern is None else whole_id(me, "item", pattern), on_failure=on_failure,
        limits=given(max_tasks=max_tasks, max_agents=max_agents), **given(auto_archive_hours=auto_archive),
    )  # fmt: skip
    return _work(begun.info())


def _work(info: Any) -> Output:
    return Output(data_of(info), lines(f"{short(info.id)} is {info.status}: {info.name}"))


def change(
    shell: Shell,
    work: WorkId,
    *,
    goal: str | None = None,
    constraints: list[str] | None = None,
    on_failure: object = None,
    max_tasks: int | None = None,
    max_agents: int | None = None,
) -> Output:
    """Change the goal, the constraints, the limits of a work, or what happens to tasks that fail. `on_failure` is
    retry, reassign, escalate, skip or abort, or JSON. `max_tasks` is how many tasks it may have. `max_agents` is how
    many agents may take part."""
    limits = given(max_tasks=max_tasks, max_agents=max_agents) or None
    fields = given(goal=goal, constraints=constraints, on_failure=on_failure, limits=limits)
    if not fields:
        raise click.BadParameter("say what is to change: --goal, --constraint, --on-failure or a limit")
    return _work(work_of(shell, work).manage.change(**fields))


def show(shell: Shell, work: WorkId, *, follow: bool = False, limit: int = 12, at: At = None) -> Output:
    """Show a work as a board: how far it is, who does what, what waits for people, what was decided. With --follow the
    board is kept up to date on a terminal; elsewhere it is followed by a line for each event, with --json by one JSON
    document a line. `follow` goes on with what happens in it, until Ctrl-C."""
    if follow and at is not None:
        raise click.BadParameter("--follow goes on from now, so it cannot go with --at")
    if limit < 1:
        raise click.BadParameter("--limit is a number from 1")
    opened = work_of(shell, work)
    first = opened.board(limit=limit, at=at)
    if not follow:
        return Output(data_of(first), board_lines(first))

    def events() -> Iterator[Event]:
        return shell.open().access.redacted(opened.watch(first.as_of))

    def data() -> Iterator[object]:
        yield data_of(first)
        yield from (event.as_dict() for event in events())

    def human() -> Human:
        if sys.stdout.isatty():
            _live(opened, limit)
        else:
            yield from board_lines(first)
            yield from log_lines(events(), titles(shell.acting()))

    return Output(data(), human(), lines=True)


def _live(work: Work, limit: int) -> None:
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False) as live:
        while True:
            board = work.board(limit=limit)
            live.update(Text.from_ansi("\n".join(board_lines(board))), refresh=True)
            next(work.watch(board.as_of, timeout=TICK), None)


def archive(
    shell: Shell, work_id: WorkId | None = None, *, older_than: timedelta | None = None, dry_run: bool = False
) -> Output:
    """Put a work away that is finished; without one, those that have been finished for long enough."""
    if work_id is not None:
        if dry_run or older_than is not None:
            raise click.BadParameter("--older-than and --dry-run are for all works, so name none")
        return _work(work_of(shell, work_id).manage.archive())
    archived = shell.acting().works.archive_finished(older_than=older_than, dry_run=dry_run)
    data = {"archived": [{"id": id, "why": why} for id, why in archived], "dry_run": dry_run}
    rows = ([id_cell(id), why] for id, why in archived)
    return Output(
        data, table(rows, "work", "why") if archived else lines("no work has been finished for long enough")
    )


def discard(shell: Shell, work: WorkId, *, reason: str = "", yes: bool = False) -> Output:
    """Erase the content of a work that is put away: what stays is how many tasks there were and how they ended. `yes`
    does it without asking."""
    from .book import ask

    opened = work_of(shell, work)
    if not yes:
        ask("this erases a work for good", "Erase this work for good?", iter(()), "nothing was erased")
    with shell.progress("erasing") as progress:
        count = opened.manage.discard(confirm="DISCARD", reason=reason, progress=progress)
    return Output({"work": opened.id, "erased": count}, lines(f"{count:,} events erased"))


def content(shell: Shell, id: TaskId, path: str | None = None) -> Output:
    """Show or write the content of something that was made, if it is stored. `path` is the file to write; without it,
    text is shown."""
    me = shell.acting()
    whole = whole_id(me, "artifact", id)
    data = me.works.containing(whole).content(whole)
    if path is not None:
        with new_file(Path(path), None) as out:
            out.write(data)
        return Output(
            {"id": whole, "size": len(data), "file": path}, lines(f"{len(data):,} bytes written to {path}")
        )
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise BadInput(f"{id!r} is not text: name a FILE to write its {len(data):,} bytes to") from None
    return Output({"id": whole, "size": len(data), "text": text}, page(text))


def lead(
    shell: Shell,
    work: WorkId,
    *,
    agent: str | None = None,
    lease: float | None = None,
    handled: list[str] | None = None,
    resign: bool = False,
) -> Output:
    """Take the lead of a work, or keep it, and hear what to deal with next. Name the step with --handled when that was
    done: until then it comes again, also to who leads next. `handled` are steps that were dealt with. `resign` lets
    somebody else lead."""
    opened = work_of(shell, work)
    led = opened.lead(agent, **given(lease=lease))
    done, step = set(handled or ()), led.next()
    while step is not None and step.id in done:
        led.handled(step)
        step = led.next()
    if resign:
        led.resign()

    def human() -> Human:
        yield from lines(f"{led.agent} {'has resigned' if resign else f'leads, fence {led.fence}'}")
        if step is not None:
            about = step.nudge or step.escalation or step.task
            text = getattr(about, "text", "") or getattr(about, "title", "")
            yield from lines(f"{step.kind}: {text} (step {step.id})")

    told = {"work": opened.id, "agent": led.agent, "fence": led.fence, "resigned": resign}
    return Output({**told, "step": plain(step)}, human())


def do(
    shell: Shell,
    work: WorkId,
    command: list[str],
    *,
    agent: str | None = None,
    lease: float | None = None,
    until: str = "done",
    wait: bool = False,
    most: int | None = None,
) -> Output:
    """Do the tasks of a work one after the other with a command, as an agent. Ctrl-C or SIGTERM gives the task back.
    The command reads what there is to know about the task on stdin, and finds its id, its work and its token in
    COMMONPLACE_TASK, COMMONPLACE_WORK and COMMONPLACE_CLAIM. What it writes to stdout is the summary. If its exit code
    is not 0, the task has failed, for the reason that it has written to stderr. Exit code 1 means that tasks failed.
    `command` does a task, with its arguments; after -- if it has options. `until` is done, until nothing can go on;
    idle, until nothing is ready; or stopped, until Ctrl-C. `wait` waits for tasks if there are none yet. `most` is how
    many tasks to do at most."""
    opened, who = work_of(shell, work), agent or shell.actor
    if who == OWNER:
        raise click.BadParameter("say which agent does them: --agent AGENT, or --as AGENT")
    if shutil.which(command[0]) is None:
        raise BadInput(
            f"there is no command {command[0]!r} to run: name a program on the PATH, or the path of an executable file"
        )

    def done_by(claim: Claim) -> str:
        about = {
            "COMMONPLACE_TASK": claim.task.id,
            "COMMONPLACE_WORK": opened.id,
            "COMMONPLACE_CLAIM": str(claim.token),
        }
        ran = subprocess.run(  # noqa: S603  it is what the user typed
            command, input=str(claim.context()), capture_output=True, text=True, errors="replace",
            env={**os.environ, **about},
        )  # fmt: skip
        if ran.returncode:
            raise RuntimeError(f"exit code {ran.returncode}: {ran.stderr.strip() or 'it says nothing'}")
        return ran.stdout.strip()

    with _ended_by_sigterm():
        worked = opened.worker(
            who, done_by, until=until, wait_for_tasks=wait, **given(lease=lease, most=most)
        )
    told = f"{who} completed {worked.completed:,}, failed at {worked.failed:,}, and lost {worked.lost:,}"
    left = f"left undone, because they have failed or wait for what has: {worked.left:,}"
    return Output(data_of(worked), lines(told, *([left] if worked.left else [])), 1 if worked.failed else 0)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends what runs as Ctrl-C does, so that it can clean up. Only the main thread may say so."""

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


# tasks


def tasks(
    shell: Shell,
    work: WorkId,
    *,
    status: str | None = None,
    ready: bool = False,
    blocked: bool = False,
    at: At = None,
) -> Output:
    """List the tasks of a work. `ready` shows only those that can be claimed, the next one first. `blocked` shows only
    those that wait for something.

    `status` is pending, assigned, in_progress, blocked, review, completed, failed or cancelled."""
    if (status is not None) + ready + blocked > 1:
        raise click.BadParameter("give one of --status, --ready and --blocked")
    opened = work_of(shell, work)
    tasks = opened.ready(at=at) if ready else opened.tasks("waiting" if blocked else status, at=at)
    return _tasks(shell, tasks)


def _tasks(shell: Shell, tasks: list[Any]) -> Output:
    empty = "there are no such tasks: `commonplace task add WORK TITLE` adds one"
    return Output(data_of(tasks), tasks_table(shell, tasks) if tasks else lines(empty))


def claim(
    shell: Shell,
    work: WorkId,
    *,
    agent: str | None = None,
    task: TaskId | None = None,
    lease: float | None = None,
) -> Output:
    """Take the best task that an agent can do now: it is its own for a while, and longer with `task heartbeat`. Answers
    the task and a token for whatever the agent does next, and says what may make the task needless. If there is nothing
    to do now, task and token are null. `task` is this one, and no other."""
    opened = work_of(shell, work)
    wanted = None if task is None else whole_id(shell.acting(), "task", task)
    held = opened.claim(agent, task=wanted, **given(lease=lease))
    if held is None:
        return Output({"task": None, "token": None, "agent": agent, "radar": []}, lines("nothing to do now"))
    overlaps = held.radar()

    def human() -> Human:
        yield from lines(f"{short(held.task.id)} {held.token}", held.task.title)
        yield from lines(
            *(
                f"maybe needless: {overlap.text} ({overlap.kind} {short(overlap.id)}, {overlap.status})"
                for overlap in overlaps
            )
        )

    return Output({**data_of(held), "radar": data_of(overlaps)}, human())


def complete_many(shell: Shell, work: WorkId, claims: list[str], *, summary: str = "") -> Output:
    """Say that tasks that were claimed by one agent are done, all or none. `claims` are what was claimed, each with its
    token: TASK=TOKEN."""
    me, held = shell.acting(), []
    for typed in claims:
        task, _, token = typed.rpartition("=")
        if not task or not token.isdecimal() or len(token) > 19:
            raise click.BadParameter(
                f"{typed!r} is not a claim: write TASK=TOKEN, as `task claim-many` tells them"
            )
        held.append(open_claim(me, whole_id(me, "task", task), int(token)))
    return _tasks(shell, work_of(shell, work).complete_many(held, summary))


def block(
    shell: Shell, task: TaskId, *, reason: str = "", token: int | None = None, on: list[str] | None = None
) -> Output:
    """Say that a task cannot go on. Its holder, if it has one, loses it. `token` is given by who holds it. `on` are
    tasks that it waits for, if its holder says so."""
    if on and token is None:
        raise click.BadParameter("--on goes with --token; `task link` lets others wait")
    me = shell.acting()
    id = whole_id(me, "task", task)
    waits_for = [whole_id(me, "task", other) for other in on or ()]
    blocked = (
        open_task(me, id).block(reason)
        if token is None
        else open_claim(me, id, token).block(reason, on=waits_for)
    )
    return Output(data_of(blocked), one_task(shell, blocked))
