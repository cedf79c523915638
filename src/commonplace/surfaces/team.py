"""The commands for what agents and people tell each other about a work: what was decided, found and made, nudges,
approvals, escalations, what is worth learning, and who leads."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import BadInput
from ..events import without_none
from ..private import new_file
from .draw import Human, clean, lines, page, table
from .options import AtOption, as_of
from .recall import MaxChars, MaxTokens
from .shell import Answer, Shell, command, plain
from .verbs import (
    A_TEXT,
    AFFECTS,
    ID,
    LEVEL,
    TASK,
    WHY,
    AgentOption,
    LeaseOption,
    OfWorkOption,
    TaskArgument,
    WorkArgument,
    argument,
    by_id,
    gist,
    in_work,
    list_of,
    many,
    one_record,
    some_records,
    verbs,
    words,
)

if TYPE_CHECKING:
    from ..work.verbs import Work


# what was decided, found and said

verbs(
    command, {"work": WorkArgument}, in_work, one_record,
    {
        "decide": (
            "Record a choice with its reasons.",
            {
                "question": Annotated[str, argument("QUESTION", "What was to be decided.")],
                "choice": Annotated[str, argument("CHOICE", "What was chosen.")],
                "alternatives": Annotated[list[str] | None, many("TEXT", "What was not", "--alternative")],
                "rationale": WHY,
                "affects": AFFECTS,
                "task": TASK,
                "reversible": Annotated[
                    bool | None, typer.Option("--reversible/--for-good", help="Whether it can be reversed.")
                ],
                "reverses": Annotated[
                    str | None, typer.Option(metavar="ID", help="The decision whose place it takes.")
                ],
                "confidence": Annotated[float | None, typer.Option(metavar="0..1", help="How sure it is.")],
                "sensitivity": LEVEL,
            },
        ),
        "discover": (
            "Record something that was learned.",
            {
                "text": A_TEXT,
                "type": Annotated[
                    str | None,
                    typer.Option(metavar="TYPE", help="constraint, opportunity, risk or insight (as usual)."),
                ],
                "affects": AFFECTS,
                "task": TASK,
                "promote_to_core": Annotated[
                    str | None, typer.Option("--core", metavar="CORE", help="A core that it may belong to.")
                ],
                "sensitivity": LEVEL,
            },
        ),
        "artifact": (
            "Record something that was made: its path, and the checksum of the file there. What is small is stored.",
            {
                "path": Annotated[str, argument("PATH", "Where it is.")],
                "type": Annotated[
                    str | None,
                    typer.Option(
                        metavar="TYPE", help="file (as usual), code, document, config, test, migration or schema."
                    ),
                ],
                "description": Annotated[str | None, typer.Option(metavar="TEXT", help="What it is.")],
                "task": TASK,
                "store": Annotated[
                    bool | None, typer.Option("--store/--reference", help="Whether its content is stored.")
                ],
                "commit": Annotated[str | None, typer.Option(metavar="COMMIT", help="The commit it is in.")],
                "branch": Annotated[str | None, typer.Option(metavar="BRANCH", help="The branch it is on.")],
            },
        ),
        "nudge": (
            "Say something to those who work: each is told once.",
            {
                "text": A_TEXT,
                "target": Annotated[
                    str | None, typer.Option(metavar="WHO", help="An agent, orchestrator, or all (as usual).")
                ],
                "priority": Annotated[
                    str | None, typer.Option(metavar="LEVEL", help="low, normal, high or critical.")
                ],
                "delivery": Annotated[
                    str | None, typer.Option(metavar="WHEN", help="next_turn (as usual), immediate or when_idle.")
                ],
                "task": TASK,
            },
        ),
        "escalate": (
            "Ask somebody for help.",
            {
                "text": A_TEXT,
                "type": Annotated[
                    str | None,
                    typer.Option(metavar="TYPE", help="stuck (as usual), confused, needs_decision or error."),
                ],
                "task": TASK,
            },
        ),
        "request-approval": (
            "approvals.request",
            "Ask a person to allow something. A task that it is about is not claimed before the answer.",
            {
                "action": Annotated[str, argument("ACTION", "What is to be allowed.")],
                "risk": Annotated[str | None, typer.Option(metavar="TEXT", help="What may go wrong.")],
                "task": TASK,
                "decision": Annotated[str | None, typer.Option(metavar="ID", help="The decision it is about.")],
            },
        ),
    },
)  # fmt: skip
verbs(
    command, {"id": ID}, by_id, one_record,
    {
        "approve": (
            "approvals.grant", "Allow what was asked for, or confirm a decision. It takes a person.", {"why": WHY}
        ),
        "disapprove": ("approvals.refuse", "Do not allow it: a task that waits for it is cancelled.", {"why": WHY}),
        "resolve-escalation": (
            "answer", "Settle an escalation.", {"answer": Annotated[str, argument("ANSWER", "The answer.")]}
        ),
        "choose": (
            "Choose one of the alternatives of a branch. The tasks of the others are cancelled.",
            {
                "option": Annotated[str, argument("OPTION", "Its name.")],
                "rationale": Annotated[str, argument("WHY", "Why this one.")],
            },
        ),
    },
)  # fmt: skip
for plural, (kind, about) in {
    "decisions": ("decision", "what was decided"), "discoveries": ("discovery", "what was learned"),
    "artifacts": ("artifact", "what was made"), "approvals": ("approval", "what a person was asked to allow"),
    "escalations": ("escalation", "what agents could not settle by themselves"),
    "branches": ("branch", "the alternatives of which one is to be chosen"),
}.items():  # fmt: skip
    verbs(
        command, {"work": WorkArgument}, partial(list_of, kind), some_records,
        {plural: ("records", f"List {about}, in order.", {"task": TASK, "at": AtOption})},
    )  # fmt: skip
verbs(
    command, {"work": WorkArgument}, in_work, some_records,
    {
        "candidates": (
            "List what may be worth learning from a work, each with the reason and a core for it.",
            {
                "judged": Annotated[bool | None, typer.Option("--judged", help="Those, too, that were judged.")],
                "at": AtOption,
            },
        ),
    },
)  # fmt: skip


@command
def artifact_content(
    shell: Shell,
    id: ID,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", dir_okay=False, help="The file to write; without it, text is shown."),
    ] = None,
) -> Answer:
    """Show or write the content of something that was made, if it is stored."""
    data = shell.acting().works.containing(id).content(id)
    if file is not None:
        try:
            with new_file(file, None) as out:
                out.write(data)
        except OSError as error:
            raise BadInput(f"{file} cannot be written ({error.strerror}): name another file") from error
        told = {"id": id, "size": len(data), "file": str(file)}
        return Answer(told, lines(f"{len(data):,} bytes written to {file}"))
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise BadInput(f"{id!r} is not text: name a FILE to write its {len(data):,} bytes to") from None
    return Answer({"id": id, "size": len(data), "text": text}, page(text))


@command
def branch(
    shell: Shell,
    work: WorkArgument,
    question: Annotated[str, argument("QUESTION", "What is to be chosen.")],
    option: Annotated[
        list[str], many("NAME=TASK,…", "An alternative and its tasks, which wait until it is chosen")
    ],
) -> Answer:
    """Make alternatives of pending tasks, of which one is to be chosen."""
    options = {}
    for one in option:
        name, equals, tasks = one.partition("=")
        if not equals:
            raise typer.BadParameter(f"{one!r} is no alternative: write NAME=TASK,TASK")
        options[name] = tasks.split(",")
    return one_record(shell.acting().work(work).branch(question, options))


@command
def nudges(
    shell: Shell,
    work: WorkArgument,
    agent: AgentOption = None,
    peek: Annotated[
        bool, typer.Option("--peek", help="Only look; the owner sees everybody's without --agent.")
    ] = False,
) -> Answer:
    """Take what an agent is to be told in this turn: each nudge is told once."""
    one = shell.acting().work(work)
    return some_records(one.read_messages(agent, peek=True) if peek else one.read_messages(agent))


@command
def acknowledge(shell: Shell, id: ID, agent: AgentOption = None) -> Answer:
    """Say that a nudge was heard: whoever holds the task next is not told it again."""
    shell.acting().works.containing(id).acknowledge(id, agent)
    return Answer({"id": id, "acknowledged": True}, lines(f"{id} was heard"))


@command
def context(
    shell: Shell,
    task: TaskArgument,
    max_chars: MaxChars = None,
    max_tokens: MaxTokens = None,
    at: AtOption = None,
) -> Answer:
    """What somebody needs to know to do a task, in one budget, for a prompt."""
    budget = without_none(max_chars=max_chars, max_tokens=max_tokens)
    found = shell.acting().works.containing(task).context_for(task, at=as_of(at), **budget)

    def human() -> Human:
        yield from page(found.text)
        yield from lines(*(f"left out: {id} ({why})" for id, why in found.left_out))

    return Answer(plain(found), human())


@command
def radar(shell: Shell, task: TaskArgument, at: AtOption = None) -> Answer:
    """What may make a task needless: another one that says the same, or something that was found."""
    found = shell.acting().works.containing(task).task(task).radar(at=as_of(at))
    rows = ((f"{one.score:.2f}", one.kind, one.status, one.text, one.id) for one in found)
    return Answer(plain(found), table(rows, "alike", "what", "status", "text", "id"))


# people, and whoever leads


@command
def inbox(
    shell: Shell,
    work: Annotated[
        str | None, typer.Argument(metavar="WORK", help="The work's id; without it, all that are open.")
    ] = None,
    at: AtOption = None,
) -> Answer:
    """What waits for a person: approvals, choices, reviews, escalations, failed tasks, candidates."""
    actor, moment = shell.acting(), as_of(at)
    infos = (
        [one for one in actor.works.list(at=moment) if one.open]
        if work is None
        else [actor.work(work).info(moment)]
    )
    found = [(one, actor.work(one.id).inbox(at=moment)) for one in infos]

    def human() -> Human:
        rows = (
            (info.name, words(name), one.id, gist(one))
            for info, waits in found
            for name in waits.__struct_fields__
            for one in getattr(waits, name)
        )
        yield from table(rows, "work", "waits", "id", "what")

    return Answer([{"work": one.id, "name": one.name, **plain(waits)} for one, waits in found], human())


def _with(shell: Shell, candidate: str, work: str | None) -> Work:
    if work is None and candidate.startswith("pattern-"):
        raise BadInput("a pattern belongs to no one event: say --work, from which it was learned")
    return shell.acting().works.containing(candidate) if work is None else shell.acting().work(work)


CandidateArgument = Annotated[str, argument("CANDIDATE", "Its id, as `candidates` and `inbox` show it.")]


@command
def promote(
    shell: Shell,
    candidate: CandidateArgument,
    core: Annotated[
        str | None,
        typer.Option(metavar="CORE", help="The core to put it into.  [default: the suggested one]"),
    ] = None,
    shared: Annotated[
        bool,
        typer.Option("--shared", help="Out of a work with members, also into a core that others read."),
    ] = False,
    work: OfWorkOption = None,
) -> Answer:
    """Put something that was learned from a work into a core, for good."""
    shell.acting(mirrored=True)
    kept = _with(shell, candidate, work).promote(candidate, core=core, shared=shared)
    told = f"{kept.outcome} {kept.item_id or ''} {clean(kept.reason)}".rstrip()
    return Answer(kept, lines(told), code=1 if kept.outcome == "rejected" else 0)


@command
def reject(
    shell: Shell,
    candidate: CandidateArgument,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why.")] = "",
    work: OfWorkOption = None,
) -> Answer:
    """Put something aside that could be learned from a work."""
    _with(shell, candidate, work).reject(candidate, reason=reason)
    return Answer({"id": candidate, "verdict": "rejected"}, lines(f"{candidate} was rejected"))


@command
def lead(
    shell: Shell,
    work: WorkArgument,
    agent: AgentOption = None,
    lease: LeaseOption = None,
    handled: Annotated[list[str] | None, many("STEP", "A step that was dealt with")] = None,
    resign: Annotated[bool, typer.Option("--resign", help="Let somebody else lead.")] = False,
) -> Answer:
    """Take the lead of a work, or keep it, and hear what to deal with next.

    Name the step with --handled when that was done: until then it comes again, also to whoever leads next.
    """
    led = shell.acting().work(work).lead(agent, **without_none(lease=lease))
    done, step = set(handled or ()), led.next()
    while step is not None and step.id in done:
        led.handled(step)
        step = led.next()
    if resign:
        led.resign()
    told = {"work": work, "agent": led.agent, "fence": led.fence, "resigned": resign, "step": plain(step)}

    def human() -> Human:
        yield from lines(f"{led.agent} {'has resigned' if resign else f'leads, fence {led.fence}'}")
        if step is not None:
            about = step.nudge or step.escalation or step.task
            text = getattr(about, "text", "") or getattr(about, "title", "")
            yield from lines(f"{step.kind}: {text} (step {step.id})")

    return Answer(told, human())


@command
def role(
    shell: Shell,
    actor: Annotated[str, argument("ACTOR", "Who.")],
    role: Annotated[
        str,
        argument("ROLE", "orchestrator, developer, qa, researcher, librarian, analyst or person."),
    ],
) -> Answer:
    """Say what an actor is: whoever orchestrates, reviews or approves needs a role for it."""
    shell.owned().as_actor(actor, role)
    return Answer({"actor": actor, "role": role}, lines(f"{actor} is {role}"))
