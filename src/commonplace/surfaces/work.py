"""The commands of works and of their tasks.

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
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ..access.rights import OWNER
from ..errors import BadInput
from ..events import without_none
from .board import followed, shown
from .draw import Human, lines, page, table
from .options import AtOption, as_of, typed_json
from .shell import Answer, Shell, group, plain
from .verbs import (
    A_REASON,
    AN_AGENT,
    OTHERS,
    WHY,
    AgentOption,
    IdOption,
    LeaseOption,
    PolicyOption,
    RoleOption,
    TaskArgument,
    TokenArgument,
    WorkArgument,
    argument,
    by_id,
    many,
    on_claim,
    on_task,
    one_task,
    one_work,
    policy,
    some_tasks,
    to_manage,
    verbs,
)

if TYPE_CHECKING:
    from ..work.verbs import Claim

_work = group("work", "Works: what a team of agents and people does together, as a graph of tasks.")
_task = group("task", "The tasks of works: who does what, and what waits for what.")


# works

verbs(
    _work, {"work": WorkArgument}, to_manage, one_work,
    {
        "pause": ("Let nothing be claimed until it is resumed. What is held may be finished.", {"reason": WHY}),
        "resume": ("Let a work go on.", {}),
        "complete": (
            "Say that a work is done, once no task is left to be done.",
            {"summary": Annotated[str | None, typer.Option(metavar="TEXT", help="What came of it.")]},
        ),
        "abandon": ("Give a work up: nothing in it is claimed or finished any more.", {"reason": A_REASON}),
    },
)  # fmt: skip


@_work
def work__new(
    shell: Shell,
    name: Annotated[str, argument("NAME", "What to call it.")],
    goal: Annotated[str, typer.Option(metavar="TEXT", help="What is to be reached.")] = "",
    constraint: Annotated[list[str] | None, many("TEXT", "Something that has to hold")] = None,
    core: Annotated[list[str] | None, many("CORE", "A core that gives it its context")] = None,
    pattern: Annotated[
        str | None, typer.Option(metavar="ITEM", help="An entry of a core whose tasks it begins with.")
    ] = None,
    member: Annotated[list[str] | None, many("ACTOR", "Who may know of it (nobody named: everybody)")] = None,
    on_failure: PolicyOption = None,
    max_tasks: Annotated[int | None, typer.Option(metavar="N", help="At most so many tasks.")] = None,
    max_agents: Annotated[int | None, typer.Option(metavar="N", help="At most so many agents.")] = None,
    auto_archive: Annotated[
        float | None,
        typer.Option(metavar="HOURS", help="How long after its end `work archive` puts it away."),
    ] = None,
    id: IdOption = None,
) -> Answer:
    """Begin a work."""
    made = shell.acting().work(
        id, name=name, goal=goal, constraints=constraint or (), cores=core or (), pattern=pattern,
        members=member or (), on_failure=policy(on_failure),
        limits=without_none(max_tasks=max_tasks, max_agents=max_agents),
        **without_none(auto_archive_hours=auto_archive),
    )  # fmt: skip
    return one_work(made.info())


@_work
def work__change(
    shell: Shell,
    work: WorkArgument,
    goal: Annotated[str | None, typer.Option(metavar="TEXT", help="What is to be reached now.")] = None,
    constraint: Annotated[
        list[str] | None, many("TEXT", "Something that has to hold, instead of what had to")
    ] = None,
    on_failure: PolicyOption = None,
    max_tasks: Annotated[int | None, typer.Option(metavar="N", help="At most so many tasks.")] = None,
    max_agents: Annotated[int | None, typer.Option(metavar="N", help="At most so many agents.")] = None,
) -> Answer:
    """Change the goal, the constraints, the limits of a work, or what happens to tasks that fail."""
    one, limits = shell.acting().work(work), without_none(max_tasks=max_tasks, max_agents=max_agents)
    fields = without_none(goal=goal, constraints=constraint, on_failure=policy(on_failure))
    if limits:
        fields["limits"] = {**plain(one.info().limits), **limits}
    if not fields:
        raise typer.BadParameter("say what is to change: --goal, --constraint, --on-failure or a limit")
    return one_work(one.manage.change(**fields))


@_work
def work__list(
    shell: Shell,
    status: Annotated[
        str | None, typer.Option(metavar="STATUS", help="active, paused, completed, cancelled or archived.")
    ] = None,
    at: AtOption = None,
) -> Answer:
    """List the works."""
    found = shell.acting().works.list(status, at=as_of(at))
    rows = ((one.id, one.status, one.name, one.goal, one.leader or "") for one in found)
    return Answer(plain(found), table(rows, "id", "status", "name", "goal", "led by"))


@_work
def work__show(
    shell: Shell,
    work: WorkArgument,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with what happens in it, until Ctrl-C.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="At most so many tasks of a kind.")] = 12,
    at: AtOption = None,
) -> Answer:
    """Show a work as a board: how far it is, who does what, what waits for people, what was decided.

    With --follow the board is kept up to date on a terminal; elsewhere the board is followed by a line for each event,
    with --json by one JSON document a line.
    """
    if follow and at is not None:
        raise typer.BadParameter("--follow goes on from now, so it cannot go with --at")
    one = shell.acting().work(work)
    if follow:
        return followed(shell, one, limit)
    board = one.board(limit=limit, at=as_of(at))
    return Answer(plain(board), shown(board))


@_work
def work__archive(
    shell: Shell,
    work: Annotated[
        str | None, typer.Argument(metavar="WORK", help="The work's id; without it, all that are old enough.")
    ] = None,
    older_than: Annotated[
        float | None,
        typer.Option(metavar="HOURS", help="How long they have been finished.  [default: as each work says]"),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be put away.")] = False,
) -> Answer:
    """Put a work away for good, or all that have been finished for long enough. They can still be read."""
    if work is not None:
        if older_than is not None or dry_run:
            raise typer.BadParameter("--older-than and --dry-run are for all works: leave WORK out")
        return one_work(shell.acting().work(work).manage.archive())
    age = None if older_than is None else timedelta(hours=older_than)
    found = shell.acting().works.archive_finished(older_than=age, dry_run=dry_run)
    told = [{"id": id, "why": why} for id, why in found]
    return Answer({"archived": told, "dry_run": dry_run}, table(found, "work", "why"))


@_work
def work__discard(
    shell: Shell,
    work: WorkArgument,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> Answer:
    """Erase what was said in a work that is over, for good. How many tasks there were, and how they ended, stays."""
    if not yes:
        if sys.stdin is None or not sys.stdin.isatty():
            raise BadInput(
                "discarding a work cannot be undone, and there is no terminal to ask on: add --yes"
            )
        typer.confirm(f"Erase what was said in {work!r} for good?", abort=True, err=True)
    with shell.progress("discarding") as progress:
        count = shell.acting().work(work).manage.discard(confirm="DISCARD", reason=reason, progress=progress)
    return Answer({"work": work, "erased": count}, lines(f"{count:,} events of {work} were erased"))


@_work
def work__export(
    shell: Shell,
    work: WorkArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", dir_okay=False, help="The file to write.")],
    at: AtOption = None,
) -> Answer:
    """Write a work as one JSON document, as far as whoever acts may see it."""
    count = shell.acting().work(work).manage.export(file, at=as_of(at))
    told = {"work": work, "tasks": count, "file": str(file)}
    return Answer(told, lines(f"{count:,} tasks written to {file}"))


@_work
def work__graph(
    shell: Shell,
    work: WorkArgument,
    format: Annotated[
        Literal["mermaid", "dot"], typer.Option(metavar="FORMAT", help="mermaid, or dot for Graphviz.")
    ] = "mermaid",
    at: AtOption = None,
) -> Answer:
    """Draw the tasks and what they wait for, as text for Mermaid or Graphviz."""
    drawn = shell.acting().work(work).graph(format, at=as_of(at))
    return Answer({"format": format, "graph": drawn}, page(drawn))


@_work
def work__path(shell: Shell, work: WorkArgument, at: AtOption = None) -> Answer:
    """Show the critical path: the longest chain of tasks that have to be done one after the other."""
    return some_tasks(shell.acting().work(work).critical_path(at=as_of(at)))


@_work
def work__contributions(shell: Shell, work: WorkArgument, at: AtOption = None) -> Answer:
    """Show what each agent has done, and how to see all of it."""
    found = shell.acting().work(work).contributions(at=as_of(at))
    names = ("tasks", "reviews", "decisions", "discoveries", "artifacts")
    rows = ((one.agent, one.role or "", *(len(getattr(one, n)) for n in names), one.log_ref) for one in found)
    return Answer(plain(found), table(rows, "agent", "role", *names, "log"))


@_work
def work__do(
    shell: Shell,
    work: WorkArgument,
    command: Annotated[
        list[str], argument("COMMAND", "What does a task, with its arguments; after -- if it has options.")
    ],
    agent: AgentOption = None,
    lease: LeaseOption = None,
    until: Annotated[
        str,
        typer.Option(
            metavar="WHEN",
            help="done: until nothing can go on; idle: until nothing is ready; stopped: until Ctrl-C.",
        ),
    ] = "done",
    wait: Annotated[bool, typer.Option("--wait", help="Wait for tasks if there are none yet.")] = False,
    most: Annotated[int | None, typer.Option(metavar="N", help="At most so many tasks.")] = None,
) -> Answer:
    """Do the tasks of a work one after the other with a command, as an agent. Ctrl-C or SIGTERM gives the task back.

    The command reads what there is to know about the task on stdin, and finds its id, its work and its token in
    COMMONPLACE_TASK, COMMONPLACE_WORK and COMMONPLACE_TOKEN. What it writes to stdout is the summary. If its exit code
    is not 0, the task has failed, for the reason that it has written to stderr. Exit code 1 means that tasks failed.
    """
    one, who = shell.acting().work(work), agent or shell.actor
    if who == OWNER:
        raise typer.BadParameter("say which agent does them: --agent AGENT, or --as AGENT")
    if shutil.which(command[0]) is None:
        raise BadInput(
            f"there is no command {command[0]!r} to run: name a program on the PATH, or the path of an executable file"
        )

    def done_by(claim: Claim) -> str:
        about = {
            "COMMONPLACE_TASK": claim.task.id,
            "COMMONPLACE_WORK": work,
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
        worked = one.worker(
            who, done_by, until=until, wait_for_tasks=wait, **without_none(lease=lease, most=most)
        )
    told = f"{who} completed {worked.completed:,}, failed at {worked.failed:,}, and lost {worked.lost:,}"
    left = f"left undone, because they have failed or wait for what has: {worked.left:,}"
    code = 1 if worked.failed else 0
    return Answer(plain(worked), lines(told, *([left] if worked.left else [])), code)


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


@_task
def task__add(
    shell: Shell,
    work: WorkArgument,
    title: Annotated[str, argument("TITLE", "What is to be done.")],
    description: Annotated[str, typer.Option(metavar="TEXT", help="More about it.")] = "",
    depends_on: Annotated[list[str] | None, many("TASK", "A task that has to be done before it")] = None,
    blocks: Annotated[list[str] | None, many("TASK", "A task that has to wait for it")] = None,
    priority: Annotated[int, typer.Option(metavar="N", help="The highest is done first.")] = 0,
    needs_review: Annotated[
        bool, typer.Option("--needs-review", help="It is completed only when somebody has approved it.")
    ] = False,
    risk: Annotated[str, typer.Option(metavar="TEXT", help="Why a person has to allow it first.")] = "",
    on_failure: PolicyOption = None,
    for_role: RoleOption = None,
    assign: Annotated[str | None, typer.Option(metavar="AGENT", help="Who is to do it.")] = None,
    id: IdOption = None,
) -> Answer:
    """Add a task to a work."""
    added = shell.acting().work(work).add_task(
        title, description=description, depends_on=depends_on or (), blocks=blocks or (), priority=priority,
        needs_review=needs_review, risk=risk, on_failure=policy(on_failure), for_role=for_role, assigned_to=assign,
        id=id,
    )  # fmt: skip
    return one_task(added)


@_task
def task__add_many(
    shell: Shell,
    work: WorkArgument,
    tasks: Annotated[str, argument("JSON", "A list of tasks; - reads it from stdin.")],
) -> Answer:
    """Add many tasks to a work, all or none.

    Each is an object with a title and whatever else a task has, such as id, depends_on or priority. They may depend on
    each other by the ids they give themselves, in any order.
    """
    found = typed_json(tasks, "the list of tasks", 'one such as \'[{"id": "a", "title": "draw it"}]\'')
    return some_tasks(shell.acting().work(work).add_tasks(found))


@_task
def task__list(
    shell: Shell,
    work: WorkArgument,
    status: Annotated[
        str | None, typer.Option(metavar="STATUS", help="Only those of one status, such as in_progress.")
    ] = None,
    ready: Annotated[
        bool, typer.Option("--ready", help="Only those that can be claimed, the next one first.")
    ] = False,
    blocked: Annotated[bool, typer.Option("--blocked", help="Only those that wait for something.")] = False,
    at: AtOption = None,
) -> Answer:
    """List the tasks of a work."""
    if (status is not None) + ready + blocked > 1:
        raise typer.BadParameter("give one of --status, --ready and --blocked")
    one, moment = shell.acting().work(work), as_of(at)
    if ready:
        return some_tasks(one.ready(at=moment))
    return some_tasks(one.tasks("waiting", at=moment) if blocked else one.tasks(status, at=moment))


@_task
def task__show(shell: Shell, task: TaskArgument, at: AtOption = None) -> Answer:
    """Show all about a task."""
    found = plain(shell.acting().works.containing(task).task(task).info(as_of(at)))
    rows = (
        (name.replace("_", " "), value) for name, value in found.items() if value not in (None, "", [], {})
    )
    return Answer(found, table(rows))


@_task
def task__claim(
    shell: Shell,
    work: WorkArgument,
    agent: AgentOption = None,
    task: Annotated[str | None, typer.Option(metavar="TASK", help="This one, and no other.")] = None,
    lease: LeaseOption = None,
) -> Answer:
    """Take the best task that an agent can do now: it is its own for a while, and longer with `task heartbeat`.

    Answers the task and a token for whatever the agent does next, and says what may make the task needless. If there is
    nothing to do now, task and token are null.
    """
    claim = shell.acting().work(work).claim(agent, task=task, **without_none(lease=lease))
    if claim is None:
        return Answer({"task": None, "token": None, "agent": agent, "radar": []}, lines("nothing to do now"))
    overlaps = claim.radar()

    def human() -> Human:
        yield from lines(f"{claim.task.id} {claim.token}", claim.task.title)
        yield from lines(
            *(f"maybe needless: {one.text} ({one.kind} {one.id}, {one.status})" for one in overlaps)
        )

    told = {"task": claim.task, "token": claim.token, "agent": claim.agent, "radar": overlaps}
    return Answer(plain(told), human())


@_task
def task__claim_many(
    shell: Shell,
    work: WorkArgument,
    count: Annotated[int, argument("COUNT", "How many at most.")],
    agent: AgentOption = None,
    lease: LeaseOption = None,
) -> Answer:
    """Take the best tasks that an agent can do now, up to so many at once.

    Answers each with the token for whatever the agent does next with it, or an empty list if there is nothing to do.
    """
    claims = shell.acting().work(work).claim_many(count, agent, **without_none(lease=lease))
    rows = ((one.task.id, one.token, one.task.title) for one in claims)
    told = [{"task": one.task, "token": one.token, "agent": one.agent} for one in claims]
    return Answer(plain(told), table(rows, "task", "token", "title"))


@_task
def task__complete_many(
    shell: Shell,
    work: WorkArgument,
    claims: Annotated[
        list[str], argument("TASK=TOKEN", "What was claimed, with its token. Several may be given.")
    ],
    summary: Annotated[str, typer.Option(metavar="TEXT", help="What came of all of them.")] = "",
) -> Answer:
    """Say that tasks that were claimed by one agent are done, all or none."""
    held, one = [], shell.acting().work(work)
    for claim in claims:
        task, _, token = claim.rpartition("=")
        if not task or not token.isdecimal() or len(token) > 19:
            raise typer.BadParameter(
                f"{claim!r} is not a claim: write TASK=TOKEN, as `task claim-many` tells them"
            )
        held.append(one._with_token(task, int(token)))
    return some_tasks(one.complete_many(held, summary))


@_task
def task__heartbeat(
    shell: Shell, task: TaskArgument, token: TokenArgument, lease: LeaseOption = None
) -> Answer:
    """Say that the holder of a task is still there, and hear what is to be told at once."""
    claim, _ = on_claim(shell, task, token)
    urgent = claim.heartbeat(lease)
    said = lines(*(f"[{one.priority}] {one.text} ({one.by})" for one in urgent) if urgent else ["still held"])
    return Answer(plain({"task": task, "token": token, "nudges": urgent}), said)


@_task
def task__block(
    shell: Shell,
    task: TaskArgument,
    reason: Annotated[str, typer.Argument(metavar="REASON", help="Why it cannot go on.")] = "",
    token: Annotated[int | None, typer.Option(metavar="TOKEN", help="By whoever holds it.")] = None,
    on: Annotated[list[str] | None, many("TASK", "A task that it waits for, if its holder says so")] = None,
) -> Answer:
    """Say that a task cannot go on. Its holder, if it has one, loses it."""
    if on and token is None:
        raise typer.BadParameter("--on goes with --token; `task link` lets others wait")
    work = shell.acting().works.containing(task)
    if token is None:
        return one_task(work.task(task).block(reason))
    return one_task(work._with_token(task, token).block(reason, on=on or ()))


RESULT = {
    "summary": Annotated[str | None, typer.Option(metavar="TEXT", help="What came of it.")],
    "next_steps": Annotated[list[str] | None, many("TEXT", "What should follow", "--next-step")],
    "learnings": Annotated[list[str] | None, many("TEXT", "What was learned", "--learning")],
    "artifacts": Annotated[list[str] | None, many("PATH", "What was made", "--artifact")],
}
verbs(
    _task, {"task": TaskArgument, "token": TokenArgument}, on_claim, one_task,
    {
        "complete": ("Say that a task is done; if it needs a review, it waits for that.", RESULT),
        "fail": ("Say that a task has failed; its policy says what happens next.", {"reason": A_REASON}),
        "release": ("Give a task back, for those it was for.", {"reason": WHY}),
        "split": (
            "Split a task: it waits until these are done, and can then be claimed again.",
            {"subtasks": Annotated[list[str], argument("TITLE", "What is to be done.")]},
        ),
    },
)  # fmt: skip
verbs(
    _task, {"task": TaskArgument}, on_task, one_task,
    {
        "assign": ("Give a task to one agent, whatever its role, which then claims it.", {"agent": AN_AGENT}),
        "unassign": ("Let those claim a task again whom it was for before: its role, or anybody.", {}),
        "unblock": ("Let a task go on that was blocked.", {}),
        "retry": ("Let a failed task be done once more.", {}),
        "cancel": (
            "Cancel a task.",
            {
                "reason": A_REASON,
                "dependents": Annotated[
                    str | None,
                    typer.Option(
                        metavar="HOW", help="What waits for it: block it (as usual), cancel it too, or free it."
                    ),
                ],
            },
        ),
        "link": ("add_dependencies", "Let a task wait for others, too.", {"on": OTHERS}),
        "unlink": ("remove_dependencies", "Let a task no longer wait for others.", {"on": OTHERS}),
        "edit": (
            "Change what a task says.",
            {
                "title": Annotated[str | None, typer.Option(metavar="TEXT", help="Its new title.")],
                "description": Annotated[str | None, typer.Option(metavar="TEXT", help="More about it.")],
                "priority": Annotated[int | None, typer.Option(metavar="N", help="The highest is done first.")],
                "for_role": RoleOption,
                "needs_review": Annotated[
                    bool | None, typer.Option("--needs-review/--no-review", help="Whether somebody has to approve it.")
                ],
            },
        ),
        "assign-review": ("Let one agent review a task, whatever its role.", {"reviewer": AN_AGENT}),
    },
)  # fmt: skip
verbs(
    _task, {"task": TaskArgument}, by_id, one_task,
    {
        "review": (
            "Review a task that is done. Nobody reviews what it did itself.",
            {
                "verdict": Annotated[str, argument("VERDICT", "approved, needs_rework or rejected.")],
                "comments": Annotated[str | None, typer.Option(metavar="TEXT", help="What to say of it.")],
            },
        ),
    },
)  # fmt: skip
