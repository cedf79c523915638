"""What the commands of working memory have in common: what is typed, what people read, and how a verb of a work becomes
a command.

Commands that only call a verb of a work, of a task in it or of a claim stand in tables; the others are functions, as
elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.models import OptionInfo

from ..events import without_none
from .draw import lines, table
from .options import as_of, json_or_text
from .shell import Answer, Command, Shell, plain

if TYPE_CHECKING:
    from ..work.tasks import Task
    from ..work.transaction import WorkInfo

# what is typed


def argument(metavar: str, help: str) -> Any:
    return typer.Argument(metavar=metavar, help=help, show_default=False)


def many(metavar: str, help: str, *flag: str) -> Any:
    return typer.Option(*flag, metavar=metavar, help=f"{help}; may be repeated.")


WorkArgument = Annotated[str, argument("WORK", "The work's id.")]
TaskArgument = Annotated[str, argument("TASK", "The task's id.")]
TokenArgument = Annotated[int, argument("TOKEN", "What the claim of the task has answered.")]
IdOption = Annotated[
    str | None, typer.Option("--id", metavar="ID", help="An id of your own: the call can be repeated safely.")
]
AgentOption = Annotated[
    str | None, typer.Option("--agent", metavar="AGENT", help="Which agent.  [default: whoever acts]")
]
LeaseOption = Annotated[
    float | None, typer.Option(metavar="SECONDS", help="For how long, without another sign of life.")
]
PolicyOption = Annotated[
    str | None,
    typer.Option(
        metavar="POLICY",
        help="What happens when a task fails: retry, reassign, escalate, skip or abort; or JSON with policy, retries, "
        "backoff and then.",
    ),
]
RoleOption = Annotated[
    str | None,
    typer.Option("--for-role", metavar="ROLE", help="Only agents of this role may claim it; empty: anybody."),
]
OfWorkOption = Annotated[
    str | None,
    typer.Option(
        "--work",
        metavar="WORK",
        help="The work it comes from; a pattern's has to be named.",
        show_default=False,
    ),
]


def policy(typed: str | None) -> Any:
    return None if typed is None else json_or_text(typed)


# what people read


def words(status: str) -> str:
    return status.replace("_", " ")


def one_work(found: WorkInfo) -> Answer:
    return Answer(plain(found), lines(f"{found.id} is {found.status}: {found.name}"))


def one_task(found: Task) -> Answer:
    return Answer(plain(found), lines(f"{found.id} is {words(found.status)}: {found.title}"))


def some_tasks(found: Sequence[Task]) -> Answer:
    rows = (
        (words(one.status), one.priority, one.title, whose(one), one.waits or "", one.id) for one in found
    )
    return Answer(plain(found), table(rows, "status", "priority", "task", "who", "waits for", "id"))


def whose(task: Task) -> str:
    """Who has a task, or whom it is for."""
    return task.assigned_to or (f"any {task.for_role}" if task.for_role else "")


def one_record(found: Any) -> Answer:
    return some_records([found], plain(found))


def some_records(found: Sequence[Any], data: Any = None) -> Answer:
    told = (f"{one.id}: {gist(one)}" for one in found)
    return Answer(plain(found) if data is None else data, lines(*told if found else ["none"]))


def gist(found: Any) -> str:
    """What a task, a decision, a nudge or the like says, on one line."""
    names = (
        "type", "kind", "priority", "status", "title", "path", "question", "choice", "action", "risk", "text", "answer",
        "reason", "by",
    )  # fmt: skip
    return ", ".join(str(one) for name in names if (one := getattr(found, name, "")))


# commands that only call a verb

Found = tuple[Any, tuple[Any, ...]]
"""What a verb is called on, and what it is told first."""


def _typed(name: str, how: Any) -> Parameter:
    """A parameter of a command: one that is an option may be left out."""
    default = None if isinstance(how.__metadata__[0], OptionInfo) else Parameter.empty
    return Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=how)


def verbs(
    into: Callable[[Command], Command],
    subject: Mapping[str, Any],
    find: Callable[..., Found],
    told: Callable[[Any], Answer],
    rows: Mapping[str, tuple[Any, ...]],
) -> None:
    """Make a command of each verb: its subject's parameters and its own, called on what `find` makes of the subject.
    A verb is what the command is called, unless its row says another one first."""

    def make(name: str, verb: str, about: str, own: Mapping[str, Any]) -> None:
        def run(shell: Shell, **typed: Any) -> Answer:
            found, first = find(shell, *(typed.pop(one) for one in subject))
            if "at" in typed:
                typed["at"] = as_of(typed["at"])
            return told(attrgetter(verb)(found)(*first, **without_none(**typed)))

        parameters = [_typed(one, how) for one, how in {**subject, **own}.items()]
        parameters.sort(key=lambda one: one.default is None)
        context = Parameter("shell", Parameter.POSITIONAL_OR_KEYWORD)
        run.__name__, run.__doc__ = name.replace("-", "_"), about
        vars(run)["__signature__"] = Signature([context, *parameters])
        into(run)

    for name, (*verb, about, own) in rows.items():
        make(name, verb[0] if verb else name.replace("-", "_"), about, own)


def in_work(shell: Shell, work: str) -> Found:
    return shell.acting().work(work), ()


def list_of(kind: str, shell: Shell, work: str) -> Found:
    return shell.acting().work(work), (kind,)


def to_manage(shell: Shell, work: str) -> Found:
    return shell.acting().work(work).manage, ()


def on_task(shell: Shell, task: str) -> Found:
    return shell.acting().works.containing(task).task(task), ()


def by_id(shell: Shell, id: str) -> Found:
    """A verb of a work whose first argument is the id of something in it."""
    return shell.acting().works.containing(id), (id,)


def on_claim(shell: Shell, task: str, token: int) -> Found:
    return shell.acting().works.containing(task)._with_token(task, token), ()


A_TEXT = Annotated[str, argument("TEXT", "What to say.")]
AN_AGENT = Annotated[str, argument("AGENT", "Which agent.")]
A_REASON = Annotated[str, argument("REASON", "Why.")]
WHY = Annotated[str | None, typer.Option(metavar="TEXT", help="Why.")]
TASK = Annotated[str | None, typer.Option(metavar="TASK", help="The task that it is about.")]
AFFECTS = Annotated[list[str] | None, many("TASK", "A task that it affects")]
OTHERS = Annotated[list[str], argument("ON", "The tasks that it waits for.")]
LEVEL = Annotated[str | None, typer.Option(metavar="LEVEL", help="public, private (as usual) or sensitive.")]
ID = Annotated[str, argument("ID", "Its id.")]
