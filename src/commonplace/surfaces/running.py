"""Commands about runs that do more than call a verb. What they print is redacted."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..access.rights import OWNER
from ..errors import BadInput, NotFound
from ..ledger.ledger import At
from ..verbs import ReceiptId, RunId
from .answers import bisected, value_text, whole_id
from .data import data_of, plain
from .draw import Human, clean, lines, page, short, table
from .shell import Output, Shell

if TYPE_CHECKING:
    from ..book import Book
    from ..workflow.runner import News, Tell


def validate(_shell: Shell, workflow: str) -> Output:
    """List everything that is wrong with a workflow's files, and what to write instead. Exit code 1 if there are
    errors; warnings alone are no refusal. A file without its agents' folders is checked by itself, and a warning says
    that agents were not looked at.

    `workflow` is the folder with workflow.awp.yaml, or that file."""
    from ..workflow.load import examine

    _, problems = examine(Path(workflow))
    errors = sum(problem.level == "error" for problem in problems)
    warnings = len(problems) - errors

    def human() -> Human:
        for problem in sorted(problems, key=lambda problem: problem.level):
            yield from lines(problem, style="red" if problem.level == "error" else "yellow")
        yield from lines(f"{errors} errors, {warnings} warnings" if problems else "all is well", style="bold")

    data = {"ok": not errors, "errors": errors, "warnings": warnings, "problems": plain(problems)}
    return Output(data, human(), code=1 if errors else 0)


def run(
    shell: Shell,
    workflow: str,
    *,
    resume: bool = False,
    run_id: str | None = None,
    initial: dict[str, Any] | None = None,
) -> Output:
    """Run a workflow to its end, with its progress shown live. Agents run as their files say (runtime.callable or
    runtime.command). What has finished is never run again, so a run that was killed or has failed can be gone on with.
    `resume` goes on with this workflow's last run that did not complete. `run_id` is an id for the run; one that is
    there is gone on with.

    `workflow` is the folder with workflow.awp.yaml, or that file."""
    from ..workflow.load import load

    book = shell.owned(mirrored=True)
    loaded = load(Path(workflow))
    if resume and run_id is None:
        run_id = _last_open(book, loaded.name)
    with _live(shell, [node.id for node in loaded.nodes]) as tell, redirect_stdout(sys.stderr):
        outcome = book.runs.execute(loaded, run_id=run_id, initial=initial, ask=_ask, tell=tell)

    def human() -> Human:
        yield from table(outcome.steps.items(), "agent", "ended") if outcome.steps else lines(outcome.reason)
        yield from lines(
            f"{outcome.status} in {outcome.seconds:.1f} s: commonplace runs state {short(outcome.run_id)}"
        )

    return Output(plain(outcome), human())


def _last_open(book: Book, workflow: str) -> str:
    for known in reversed(book.runs.list()):
        own = known.by == OWNER and known.parent is None and known.forked_from is None
        if own and known.workflow == workflow and known.status != "completed":
            return known.id
    raise NotFound(f"no run of {workflow!r} waits to be gone on with: leave --resume out to start one")


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
        yield lambda news: _say(f"{clean(news.node) or 'run'}: {news.status} {clean(news.detail)}")
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    standing = dict.fromkeys(nodes, ("waiting", ""))

    def drawn() -> Text:
        rows = ((node, *how) for node, how in standing.items())
        return Text.from_ansi("\n".join(table(rows, "agent", "status", "detail")))

    with Live(drawn(), console=Console(file=sys.stderr), transient=True, refresh_per_second=8) as live:

        def tell(news: News) -> None:
            if news.node:
                standing[news.node] = (news.status, news.detail)
                live.update(drawn())

        yield tell


def _say(line: str) -> None:
    """Write a line in one piece: agents that work side by side tell theirs at the same time."""
    sys.stderr.write(f"{line.rstrip()}\n")


def state(shell: Shell, run_id: RunId, *, at: At = None) -> Output:
    """Show a run's state, now or as it was. With --as, what that agent may see of it. Secret fields are shown as
    [REDACTED]."""
    me = shell.acting()
    id = whole_id(me, "run", run_id)
    state = me.runs.state(id, at)
    shown = shell.open().runs.get(id).redacted(dict(state))
    rows = ((f"{key}.{name}", value) for key, entry in shown.items() for name, value in _fields(entry))

    def human() -> Human:
        yield from table(
            ((name.removesuffix("."), value_text(value)) for name, value in rows), "field", "value"
        )
        yield from lines(f"as of position {state.as_of}", style="dim")

    return Output({"run_id": id, "as_of": state.as_of, "state": shown}, human())


def _fields(entry: Any) -> list[tuple[str, Any]]:
    return list(entry.items()) if isinstance(entry, dict) and entry else [("", entry)]


# receipts


def replay(shell: Shell, id: ReceiptId) -> Output:
    """Print the text of a digest or prompt again, byte for byte, packed from its trace."""
    me = shell.acting()
    receipt = me.receipts.get(whole_id(me, "receipt", id))
    text = receipt.replay()
    return Output({"id": receipt.id, "text": text, "hash": receipt.hash}, page(text))


def bisect(
    shell: Shell, run_id: RunId, *, without: str | None = None, looking_for: str | None = None
) -> Output:
    """What a run's digests would have been without one memory, or without each of them. `looking_for` is a text: only
    what it depended on in a digest is told.

    `without` is the id of the item to leave out."""
    me = shell.acting()
    matters = None if looking_for is None else lambda text: looking_for in text
    left = None if without is None else whole_id(me, "item", without)
    report = me.receipts.bisect(whole_id(me, "run", run_id), left, matters)
    return Output(data_of(report), bisected(shell, report, without is not None))
