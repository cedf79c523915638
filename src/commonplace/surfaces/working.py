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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..access.rights import OWNER
from ..errors import BadInput
from ..files.private import new_file
from ..ledger.events import Event
from ..ledger.ledger import At
from .answers import answer_of, data_of, decision_lines, log_lines, one_task, records, tasks_table, whole_id
from .board import shown as board_lines
from .book import titles
from .draw import Human, id_cell, lines, page, short, table
from .shell import Output, Shell, plain

if TYPE_CHECKING:
    from ..verbs import Verb
    from ..work.holding import Claim
    from ..work.verbs import Work

TASKS = frozenset({"task", "depends_on", "blocks", "affects", "on", "parent", "reverses", "decision"})
"""Parameters that are ids of tasks, or of what was recorded about a work."""

TICK = 1.0
"""After how many seconds without news a live board is drawn again, because leases run out."""


def work_of(shell: Shell, work: str) -> Work:
    me = shell.acting()
    return me.work(whole_id(me, "work", work))


def task_of(shell: Shell, task: str) -> tuple[Work, str]:
    """The work that a task or another thing belongs to, and its whole id."""
    me = shell.acting()
    id = whole_id(me, "task", task)
    return me.works.containing(id), id


def call(shell: Shell, verb: Verb, typed: dict[str, Any]) -> Output:
    """Call a verb of a work, of something in it, or of a claim: what it is called on comes first."""
    kind, first = verb.path[0].partition("/")[0], verb.parameters[0].name
    holder: Any
    if kind in ("work", "manage", "approvals"):
        opened = work_of(shell, typed.pop("work"))
        holder = opened if kind == "work" else getattr(opened, kind)
    elif kind in ("in", "in_approvals"):
        opened, typed[first] = task_of(shell, typed[first])
        holder = opened if kind == "in" else opened.approvals
    else:
        opened, id = task_of(shell, typed.pop("task"))
        holder = opened.task(id) if kind == "task" else opened._with_token(id, typed.pop("token"))
    me = shell.acting()
    for name in TASKS & typed.keys():
        value = typed[name]
        whole = [whole_id(me, "task", id) for id in ([value] if isinstance(value, str) else value)]
        typed[name] = whole[0] if isinstance(value, str) else whole
    answer = verb.function(holder, **typed)
    if answer is None:
        return Output({"id": typed.get(first), "ok": True}, lines("done"))
    return answer_of(shell, verb, answer)


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
    how many agents may take part. `auto_archive` is how many hours after its end `work archive` puts it away."""
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
    work: str,
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
    opened, limits = work_of(shell, work), given(max_tasks=max_tasks, max_agents=max_agents)
    fields = given(goal=goal, constraints=constraints, on_failure=on_failure)
    if limits:
        fields["limits"] = {**data_of(opened.info().limits), **limits}
    if not fields:
        raise click.BadParameter("say what is to change: --goal, --constraint, --on-failure or a limit")
    return _work(opened.manage.change(**fields))


def show(shell: Shell, work: str, *, follow: bool = False, limit: int = 12, at: At = None) -> Output:
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
    shell: Shell, work_id: str | None = None, *, older_than: timedelta | None = None, dry_run: bool = False
) -> Output:
    """Put a work away that is finished; without one, those that have been finished for long enough."""
    if work_id is not None:
        if dry_run or older_than is not None:
            raise click.BadParameter("--older-than and --dry-run are for all works, so name none")
        return _work(work_of(shell, work_id).manage.archive())
    found = shell.acting().works.archive_finished(older_than=older_than, dry_run=dry_run)
    data = {"archived": [{"id": id, "why": why} for id, why in found], "dry_run": dry_run}
    rows = ([id_cell(id), why] for id, why in found)
    return Output(
        data, table(rows, "work", "why") if found else lines("no work has been finished for long enough")
    )


def discard(shell: Shell, work: str, *, reason: str = "", yes: bool = False) -> Output:
    """Erase the content of a work that is put away: what stays is how many tasks there were and how they ended. `yes`
    does it without asking."""
    from .book import ask

    opened = work_of(shell, work)
    if not yes:
        ask("this erases a work for good", "Erase this work for good?", iter(()), "nothing was erased")
    with shell.progress("erasing") as progress:
        count = opened.manage.discard(confirm="DISCARD", reason=reason, progress=progress)
    return Output({"work": opened.id, "erased": count}, lines(f"{count:,} events erased"))


def branch(shell: Shell, work: str, question: str, *, options: list[str]) -> Output:
    """Make alternatives of pending tasks, of which one is to be chosen. `options` are alternatives with their tasks,
    which wait until it is chosen: NAME=TASK,TASK"""
    found = {}
    for option in options:
        name, equals, tasks = option.partition("=")
        if not equals:
            raise click.BadParameter(f"{option!r} is no alternative: write NAME=TASK,TASK")
        found[name] = tasks.split(",")
    made = work_of(shell, work).branch(question, found)
    return Output(data_of(made), lines(f"{short(made.id)}: {made.question}"))


def content(shell: Shell, id: str, path: str | None = None) -> Output:
    """Show or write the content of something that was made, if it is stored. `path` is the file to write; without it,
    text is shown."""
    work, whole = task_of(shell, id)
    data = work.content(whole)
    if path is not None:
        try:
            with new_file(Path(path), None) as out:
                out.write(data)
        except OSError as error:
            raise BadInput(f"{path} cannot be written ({error.strerror}): name another file") from error
        return Output(
            {"id": whole, "size": len(data), "file": path}, lines(f"{len(data):,} bytes written to {path}")
        )
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise BadInput(f"{id!r} is not text: name a FILE to write its {len(data):,} bytes to") from None
    return Output({"id": whole, "size": len(data), "text": text}, page(text))


def _candidate(shell: Shell, candidate: str, work: str | None) -> tuple[Work, str]:
    if work is not None:
        return work_of(shell, work), candidate
    if candidate.startswith("pattern-"):
        raise BadInput("a pattern belongs to no one event: say --work, from which it was learned")
    return task_of(shell, candidate)


def promote(
    shell: Shell, candidate: str, *, core: str | None = None, shared: bool = False, work: str | None = None
) -> Output:
    """Put something that was learned from a work into a core, for good. `candidate` is its id, as `work candidates` and
    `inbox` show it. `core` is the core to put it into: the suggested one, if not said. `shared` puts it, out of a work
    with members, also into a core that others read. `work` is the work it comes from; a pattern's has to be named."""
    shell.acting(mirrored=True)
    opened, id = _candidate(shell, candidate, work)
    kept = opened.promote(id, core=core, shared=shared)
    told = lines(f"{kept.outcome} {short(kept.item_id or '')} {kept.reason}".rstrip())
    return Output(data_of(kept), told, code=1 if kept.outcome == "rejected" else 0)


def reject(shell: Shell, candidate: str, *, reason: str = "", work: str | None = None) -> Output:
    """Put something aside that could be learned from a work. `candidate` is its id, as `work candidates` and `inbox`
    show it. `work` is the work it comes from; a pattern's has to be named."""
    opened, id = _candidate(shell, candidate, work)
    opened.reject(id, reason=reason)
    return Output({"id": id, "verdict": "rejected"}, lines(f"{short(id)} was rejected"))


def lead(
    shell: Shell,
    work: str,
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
    work: str,
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
    COMMONPLACE_TASK, COMMONPLACE_WORK and COMMONPLACE_TOKEN. What it writes to stdout is the summary. If its exit code
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
            "COMMONPLACE_TOKEN": str(claim.token),
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


# what was recorded about a work


def _recorded(kind: str, about: str) -> Callable[..., Output]:
    def records_of(shell: Shell, work: str, *, task: str | None = None, at: At = None) -> Output:
        about_task = None if task is None else whole_id(shell.acting(), "task", task)
        found = work_of(shell, work).records(kind, task=about_task, at=at)
        human = decision_lines if kind == "decision" else records
        return Output(data_of(found), human(shell, found) if found else lines(f"none yet: {NEXT[kind]}"))

    records_of.__doc__ = about
    return records_of


NEXT = {
    "decision": "`commonplace decide WORK QUESTION CHOICE` records one",
    "discovery": "`commonplace discover WORK TEXT` records one",
    "artifact": "`commonplace artifact WORK PATH` records one",
    "approval": "`commonplace work request-approval WORK ACTION` asks for one",
    "escalation": "`commonplace work escalate WORK TEXT` asks for help",
    "branch": "`commonplace work branch WORK QUESTION` makes alternatives",
}
decisions = _recorded("decision", "List what was decided, with reasons, alternatives and times.")
discoveries = _recorded("discovery", "List what was learned, in order.")
artifacts = _recorded("artifact", "List what was made, every version in order.")
approvals = _recorded("approval", "List what people were asked to allow, in order.")
escalations = _recorded("escalation", "List what agents could not settle by themselves, in order.")
branches = _recorded("branch", "List the alternatives of which one is to be chosen, in order.")


# tasks


def tasks(
    shell: Shell,
    work: str,
    *,
    status: str | None = None,
    ready: bool = False,
    blocked: bool = False,
    at: At = None,
) -> Output:
    """List the tasks of a work. `ready` shows only those that can be claimed, the next one first. `blocked` shows only
    those that wait for something."""
    if (status is not None) + ready + blocked > 1:
        raise click.BadParameter("give one of --status, --ready and --blocked")
    opened = work_of(shell, work)
    found = opened.ready(at=at) if ready else opened.tasks("waiting" if blocked else status, at=at)
    return _tasks(shell, found)


def _tasks(shell: Shell, found: list[Any]) -> Output:
    empty = "there are no such tasks: `commonplace task add WORK TITLE` adds one"
    return Output(data_of(found), tasks_table(shell, found) if found else lines(empty))


def claim(
    shell: Shell, work: str, *, agent: str | None = None, task: str | None = None, lease: float | None = None
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
            *(f"maybe needless: {one.text} ({one.kind} {short(one.id)}, {one.status})" for one in overlaps)
        )

    return Output({**_held(held), "radar": data_of(overlaps)}, human())


def _held(claim: Claim) -> dict[str, Any]:
    return {"task": data_of(claim.task), "token": claim.token, "agent": claim.agent}


def claim_many(
    shell: Shell, work: str, count: int, *, agent: str | None = None, lease: float | None = None
) -> Output:
    """Take the best tasks that an agent can do now, up to so many at once. Answers each with the token for whatever the
    agent does next with it, or an empty list if there is nothing to do. `count` is how many at most."""
    claims = work_of(shell, work).claim_many(count, agent, **given(lease=lease))
    rows = ([id_cell(one.task.id), one.token, one.task.title] for one in claims)
    human = table(rows, "task", "token", "title") if claims else lines("nothing to do now")
    return Output([_held(one) for one in claims], human)


def complete_many(shell: Shell, work: str, claims: list[str], *, summary: str = "") -> Output:
    """Say that tasks that were claimed by one agent are done, all or none. `claims` are what was claimed, each with its
    token: TASK=TOKEN. `summary` is what came of all of them."""
    held, opened = [], work_of(shell, work)
    for typed in claims:
        task, _, token = typed.rpartition("=")
        if not task or not token.isdecimal() or len(token) > 19:
            raise click.BadParameter(
                f"{typed!r} is not a claim: write TASK=TOKEN, as `task claim-many` tells them"
            )
        held.append(opened._with_token(whole_id(shell.acting(), "task", task), int(token)))
    return _tasks(shell, opened.complete_many(held, summary))


def heartbeat(shell: Shell, task: str, token: int, *, lease: float | None = None) -> Output:
    """Say that the holder of a task is still there, and hear what is to be told at once. `token` is what the claim of
    the task has answered."""
    work, id = task_of(shell, task)
    urgent = work._with_token(id, token).heartbeat(lease)
    said = [f"[{one.priority}] {one.text} ({one.by})" for one in urgent] or ["still held"]
    return Output({"task": id, "token": token, "nudges": data_of(urgent)}, lines(*said))


def block(
    shell: Shell, task: str, *, reason: str = "", token: int | None = None, on: list[str] | None = None
) -> Output:
    """Say that a task cannot go on. Its holder, if it has one, loses it. `token` is given by who holds it. `on` are
    tasks that it waits for, if its holder says so."""
    if on and token is None:
        raise click.BadParameter("--on goes with --token; `task link` lets others wait")
    work, id = task_of(shell, task)
    found = (
        work.task(id).block(reason)
        if token is None
        else work._with_token(id, token).block(reason, on=on or ())
    )
    return Output(data_of(found), one_task(shell, found))
