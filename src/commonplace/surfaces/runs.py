"""The commands for runs and workflows: validate, run, state, fork, diff, merge. What they print is redacted."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..access.rights import OWNER
from ..errors import BadInput, NotFound
from .draw import Human, clean, lines, table
from .options import AtOption, as_of, typed_json
from .shell import Answer, Shell, command

if TYPE_CHECKING:
    from ..book import Book
    from ..run import Run
    from ..workflow.runner import News, Tell

FolderArgument = Annotated[
    Path,
    typer.Argument(
        metavar="DIR", help="The folder with workflow.awp.yaml, or that file.", show_default=False
    ),
]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="The run's id.", show_default=False)]
SHOWN = 2_000
"""Characters of one value that people see; --json has all of them."""


@command
def validate(_shell: Shell, folder: FolderArgument) -> Answer:
    """List everything that is wrong with a workflow's files, and what to write instead.

    Exit code 1 if there are errors; warnings alone are no refusal. A file without its agents' folders is checked by
    itself, and a warning says that agents were not looked at.
    """
    from ..workflow.load import examine

    _, problems = examine(folder)
    errors = sum(one.level == "error" for one in problems)
    warnings = len(problems) - errors

    def human() -> Human:
        for one in sorted(problems, key=lambda one: one.level):
            yield from lines(one, style="red" if one.level == "error" else "yellow")
        yield from lines(f"{errors} errors, {warnings} warnings" if problems else "all is well", style="bold")

    data = {"ok": not errors, "errors": errors, "warnings": warnings, "problems": problems}
    return Answer(data, human(), code=1 if errors else 0)


@command
def run(
    shell: Shell,
    folder: FolderArgument,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with this workflow's last run that did not complete.")
    ] = False,
    run_id: Annotated[
        str | None,
        typer.Option("--run", metavar="RUN", help="An id for the run; one that is there is gone on with."),
    ] = None,
    initial: Annotated[
        str | None, typer.Option(metavar="JSON", help="Values to start with, over the file's; - reads them.")
    ] = None,
) -> Answer:
    """Run a workflow to its end, with its progress shown live.

    Agents run as their files say (runtime.callable or runtime.command). What has finished is never run again,
    so a run that was killed or has failed can be gone on with.
    """
    from ..workflow.load import load

    book = shell.owned(mirrored=True)
    workflow = load(folder)
    if resume and run_id is None:
        run_id = _last_open(book, workflow.name)
    given = None if initial is None else _object(initial)
    with _live(shell, [node.id for node in workflow.nodes]) as tell, redirect_stdout(sys.stderr):
        outcome = book.runs.execute(workflow, run_id=run_id, initial=given, ask=_ask, tell=tell)
    rows = [(name, status) for name, status in outcome.steps.items()]

    def human() -> Human:
        yield from table(rows, "agent", "ended") if rows else lines(outcome.reason)
        yield from lines(f"{outcome.status} in {outcome.seconds:.1f} s: commonplace state {outcome.run_id}")

    return Answer(outcome, human())


def _last_open(book: Book, workflow: str) -> str:
    for known in reversed(book.runs.list()):
        own = known.by == OWNER and known.parent is None and known.forked_from is None
        if own and known.workflow == workflow and known.status != "completed":
            return known.id
    raise NotFound(f"no run of {workflow!r} waits to be gone on with: leave --resume out to start one")


def _object(typed: str) -> dict[str, Any]:
    found = typed_json(typed, "--initial", 'an object such as \'{"topic": "tea"}\'')
    if not isinstance(found, dict):
        raise typer.BadParameter('--initial is not an object: write {"topic": "tea"}')
    return found


def _ask(prompt: str, channel: str) -> str | None:
    """Ask whoever sits at the terminal; an empty line ends the loop."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise BadInput("the workflow asks a person, and there is no terminal to ask on")
    sys.stderr.write(f"{clean(prompt)}\n{clean(channel) or 'answer'} (an empty line ends)> ")
    sys.stderr.flush()
    return sys.stdin.readline().strip() or None


@contextmanager
def _live(shell: Shell, nodes: list[str]) -> Iterator[Tell | None]:
    """A table that follows the run on a terminal; elsewhere a line a step on stderr; nothing with --json."""
    if shell.json:
        yield None
        return
    if not sys.stderr.isatty():
        yield lambda news: print(
            f"{clean(news.node) or 'run'}: {news.status}", clean(news.detail), file=sys.stderr
        )
        return
    from rich.live import Live

    standing = dict.fromkeys(nodes, ("waiting", ""))

    def drawn() -> Any:
        return next(
            iter(table(((node, *how) for node, how in standing.items()), "agent", "status", "detail"))
        )

    with Live(drawn(), console=shell.err, transient=True, refresh_per_second=8) as live:

        def tell(news: News) -> None:
            if news.node:
                standing[news.node] = (news.status, news.detail)
                live.update(drawn())

        yield tell


@command
def state(shell: Shell, run_id: RunArgument, at: AtOption = None) -> Answer:
    """Show a run's state, now or as it was.

    With --as, what that agent may see of it. Secret fields are shown as [REDACTED].
    """
    one = _known(shell, run_id)
    found = one.state(as_of(at))
    shown = shell.open().run(run_id=run_id).redacted(dict(found))
    rows = ((f"{key}.{name}", value) for key, entry in shown.items() for name, value in _fields(entry))

    def human() -> Human:
        yield from table(((name.removesuffix("."), _cut(value)) for name, value in rows), "field", "value")
        yield from lines(f"as of position {found.as_of}", style="dim")

    return Answer({"run_id": run_id, "as_of": found.as_of, "state": shown}, human())


def _fields(entry: Any) -> list[tuple[str, Any]]:
    return list(entry.items()) if isinstance(entry, dict) and entry else [("", entry)]


def _cut(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text):,} characters; --json shows all)"


def _known(shell: Shell, run_id: str) -> Run:
    """A run that is there, as whoever acts sees it."""
    return shell.acting().run(run_id=run_id, create=False)


@command
def fork(
    shell: Shell,
    run_id: RunArgument,
    at: AtOption = None,
    new: Annotated[str | None, typer.Option("--new", metavar="RUN", help="The new run's id.")] = None,
) -> Answer:
    """Begin a new run that starts as another one was."""
    made = _known(shell, run_id).fork(as_of(at), new)
    said = {"run_id": made.id, "forked_from": run_id}
    return Answer(
        said, lines(f"{made.id} begins as {run_id} was; `commonplace diff {run_id} {made.id}` compares")
    )


@command
def diff(
    shell: Shell,
    a: Annotated[str, typer.Argument(metavar="A", help="A run's id, or ID@POSITION.", show_default=False)],
    b: Annotated[str, typer.Argument(metavar="B", help="The other one.", show_default=False)],
) -> Answer:
    """Show what differs between the states of two runs, or of one run at two positions."""
    found = shell.acting().runs.diff(a, b, redacted=True)
    marks = {"added": "+", "removed": "-", "changed": "~"}

    def human() -> Human:
        rows = ((marks[one.change], one.path, _cut(one.before), _cut(one.after)) for one in found)
        yield from table(rows, "", "field", "before", "after") if found else lines("no difference")

    return Answer(found, human())


@command
def merge(
    shell: Shell,
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="The fork's id.", show_default=False)],
    prefer: Annotated[
        Literal["fork", "target"] | None, typer.Option(help="Which side wins where both have written.")
    ] = None,
) -> Answer:
    """Bring what a fork has written back into the run it came from.

    Where both have written it is refused and both sides are shown, unless --prefer says which one wins.
    """
    done = _known(shell, run_id).merge(prefer)
    fields = ", ".join(done.fields) or "nothing"
    return Answer(done, lines(f"merged into {done.into}: {fields}"))
