"""The commands of `commonplace`: the book's verbs for a shell, translated and nothing more."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from ..actor import Actor
from ..erase import Erasure
from ..errors import BadInput, BookNotFound, CommonplaceError
from ..events import Event
from ..transfer import Imported, is_export
from . import health
from .draw import Human, lines, log_lines, table
from .health import public
from .options import AtOption, as_of, moment, typed_json
from .shell import Answer, Shell, app, command, main

__all__ = ["app", "main"]

LAST = 50
"""How many events people see of a log when they do not say."""


# the book itself


@command
def init(
    shell: Shell,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="What to call the book.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing when all is well.")] = False,
) -> Answer:
    """Create the book, if it is not there yet.

    Says where it is and what its engine promises. No other command creates a book, save demo and copy.
    """
    try:
        book, created = shell.open(name=name), False
    except BookNotFound:
        book, created = shell.open(name=name, create=True, mirrored=True), True

    def human() -> Human:
        yield from lines(f"{'created' if created else 'already there:'} {book.name!r} at {public(shell.url)}")
        yield from table(health.promises(book.admin.facts))

    about = {"created": created, **health.standing(book, shell.url), "facts": book.admin.facts}
    return Answer(about, () if quiet else human())


@command
def status(shell: Shell) -> Answer:
    """Show where the book stands: head, runs, last event, size."""
    about = health.standing(shell.open(), shell.url, shell.acting())

    def human() -> Human:
        last = about["last_event"]
        shown = {**about, "size": health.in_bytes(about["size"]), "last_event": "none yet"}
        if last is not None:
            when = datetime.fromisoformat(last["created_at"])
            age = health.ago((datetime.now(UTC) - when).total_seconds())
            shown["last_event"] = f"{last['kind']} by {last['actor']}, {age} ({when:%Y-%m-%dT%H:%M:%SZ})"
        shown["horizon"] = about["horizon"] or "none: views can be read as of any position"
        yield from table(
            (name.replace("_", " "), "none" if value is None else value) for name, value in shown.items()
        )

    return Answer(about, human())


@command
def doctor(shell: Shell) -> Answer:
    """Check the book's health, and say what its engine promises.

    Exit code 1 if something is wrong, each problem with what to do about it.
    """
    report = health.surroundings(shell.url)
    problems: list[str] = []
    try:
        report |= health.condition(shell.open())
    except CommonplaceError as error:
        problems.append(str(error))
    problems += health.ills(report)
    report |= {"ok": not problems, "problems": problems}

    def human() -> Human:
        yield from table(health.findings(report))
        yield from lines(*(f"problem: {problem}" for problem in problems), style="bold red")
        if not problems:
            yield from lines("all is well; `commonplace verify` checks every event", style="green")

    return Answer(report, human(), code=1 if problems else 0)


# events


@command
def record(
    shell: Shell,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="Dotted lowercase, such as agent.spoke.")],
    payload: Annotated[str, typer.Argument(metavar="JSON", help="An object; - reads it from stdin.")] = "{}",
    run: Annotated[str | None, typer.Option(metavar="RUN", help="The run it belongs to.")] = None,
    session: Annotated[str | None, typer.Option(metavar="SESSION", help="The session it belongs to.")] = None,
    turn: Annotated[int, typer.Option(metavar="N", help="The turn within the run.")] = 0,
    occurred_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="When it happened (ISO), if that is not now.")
    ] = None,
    id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="An id of your own: the call can be repeated safely."),
    ] = None,
    parent: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="An event it derives from; may be repeated.")
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A label; may be repeated.")
    ] = None,
) -> Answer:
    """Record one event and print its position and id."""
    fields = {
        "payload": typed_json(payload, "the payload", 'an object such as \'{"text": "hello"}\''),
        "run_id": run,
        "session_id": session,
        "turn": turn,
        "occurred_at": None if occurred_at is None else moment(occurred_at),
        "id": id,
        "parents": parent or (),
        "labels": _labels(label or ()),
    }
    event = shell.acting().record(kind, **fields)
    return Answer(event.as_dict(), lines(f"{event.position} {event.id}"))


@command
def log(
    shell: Shell,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with events as they are recorded, until Ctrl-C.")
    ] = False,
    run: Annotated[str | None, typer.Option(metavar="RUN", help="Only this run.")] = None,
    kind: Annotated[
        list[str] | None, typer.Option(metavar="KIND", help="Only this kind; may be repeated.")
    ] = None,
    actor: Annotated[str | None, typer.Option(metavar="ACTOR", help="Only what this actor did.")] = None,
    after: Annotated[int | None, typer.Option(metavar="POSITION", help="Only what comes after it.")] = None,
    at: AtOption = None,
    last: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help=f"Only the last N.  [default: {LAST}; all with --json or --after]"
        ),
    ] = None,
) -> Answer:
    """Show events in order, one a line.

    With --follow and --json, it prints one JSON document a line.
    """
    if follow and at is not None:
        raise typer.BadParameter("--follow goes on from now, so it cannot go with --at")
    book, reader = shell.open(), shell.acting()
    if last is None and after is None and not shell.json:
        last = LAST
    wanted: dict[str, Any] = {"run_id": run, "kinds": kind or None, "actor": actor}
    start, end = after or 0, book.ledger.position(as_of(at))
    shown = (
        reader.events(start, at=end, **wanted)
        if last is None
        else health.last_events(reader, start, end, last, **wanted)
    )

    def events() -> Iterator[Event]:
        yield from book.access.redacted(shown)
        if follow:
            yield from book.access.redacted(reader.watch(max(start, end), **wanted))

    def human() -> Human:
        yield from log_lines(events(), shell.out.width)

    return Answer((event.as_dict() for event in events()), human(), lines=follow)


@command
def runs(shell: Shell, at: AtOption = None) -> Answer:
    """List the runs in the order in which they began."""
    found = shell.acting().runs.list(as_of(at))
    rows = ((run.id, run.first, run.status or "", run.workflow or "", run.forked_from or "") for run in found)
    return Answer(found, table(rows, "run", "first position", "status", "workflow", "forked from"))


def _labels(pairs: Iterable[str]) -> dict[str, str]:
    split = [pair.partition("=") for pair in pairs]
    for name, equals, _ in split:
        if not equals:
            raise typer.BadParameter(f"{name!r} is not a label: write NAME=VALUE")
    return {name: value for name, _, value in split}


# upkeep


@command
def verify(
    shell: Shell,
    erased: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT", help="Look for this text in the raw files instead; - reads texts from stdin."
        ),
    ] = None,
) -> Answer:
    """Check every event against the hash chain.

    Exit code 1 if the chain is broken; the first bad position is named. With --erased, another process looks for a
    text that should be gone, in the raw files of the book, its index and its markdown: exit code 1 if it is there.
    """
    if erased:
        return _verify_erased(shell, erased)
    book = shell.open()
    with shell.progress("verifying") as progress:
        found = book.verify(progress)
    said = f"the chain holds: {found.events:,} events, {found.erased:,} of them erased, head {found.hash}"
    if not found.ok:
        where = "" if found.first_bad is None else f"the chain is broken at position {found.first_bad}: "
        said = f"{where}{found.problem}"
    return Answer(found, lines(said), code=0 if found.ok else 1)


def _verify_erased(shell: Shell, typed: list[str]) -> Answer:
    texts = [
        text for one in typed for text in (sys.stdin.read().splitlines() if one == "-" else [one]) if text
    ]
    if not texts:
        raise typer.BadParameter("there is no text to look for")
    found = shell.owned().admin.find_text(texts)
    told = [f"text {one.text + 1} of {len(texts)} is still in {one.path}" for one in found]
    data = {"ok": not found, "texts": len(texts), "found": found}
    return Answer(
        data, lines(*(told or [f"none of {len(texts)} texts is anywhere in the raw files"])), code=bool(found)
    )


@command
def rebuild(shell: Shell) -> Answer:
    """Build every view from the ledger again.

    The old ones stay in use until the new ones are complete.
    """
    book = shell.owned(mirrored=True)
    with shell.progress("rebuilding") as progress:
        built = book.rebuild(progress)
    return Answer(built, lines(f"built {', '.join(built.views)} from {built.events:,} events"))


@command
def export(
    shell: Shell,
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", dir_okay=False, help="The file to write; an old one is replaced."),
    ],
    at: AtOption = None,
) -> Answer:
    """Write every event, with its hash, to a JSONL file.

    With --as, only what that actor may see, without secrets, in a chain of its own.
    """
    book = shell.acting()
    with shell.progress("exporting") as progress:
        write = book.export if isinstance(book, Actor) else book.admin.export
        count = write(file, at=as_of(at), progress=progress)
    return Answer({"events": count, "file": str(file)}, lines(f"{count:,} events written to {file}"))


@command
def import_(
    shell: Shell,
    file: Annotated[
        Path, typer.Argument(metavar="PATH", help="What export has written, or the memory of another tool.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what there is in another tool's memory.")
    ] = False,
) -> Answer:
    """Take in the events of an export, or the memory of another tool.

    Of an export: into an empty book, or one that holds a beginning of it, positions and hashes are kept; otherwise
    the events are recorded anew, with their origin named. Of another tool: a folder of markdown notes, a MEMORY.md,
    CLAUDE.md or AGENTS.md, an export of mem0 or of the MCP memory server, with a report of what became what.
    """
    if not is_export(file):
        return _adopted(shell, file, dry_run)
    book = shell.owned(mirrored=True)
    with shell.progress("importing") as progress:
        return _taken(book.admin.import_(file, progress=progress))


def _adopted(shell: Shell, path: Path, dry_run: bool) -> Answer:
    actor = shell.acting(mirrored=not dry_run)
    with shell.progress("importing") as progress:
        adopted = actor.memory.import_(path, dry_run=dry_run, progress=progress)

    def human() -> Human:
        rows = ((one.source, one.kind, one.outcome, one.id or "", one.reason[:160]) for one in adopted.became)
        yield from table(rows, "source", "kind", "became", "id", "why")
        yield from lines(*(f"left out {one.source}: {one.why}" for one in adopted.skipped))
        told = ", ".join(f"{count} {outcome}" for outcome, count in adopted.counts.items()) or "nothing"
        yield from lines(f"{adopted.format}: {told}; {len(adopted.skipped)} left out, {adopted.links} links")

    return Answer({**msgspec.to_builtins(adopted), "counts": adopted.counts}, human())


@command
def copy(
    shell: Shell,
    source: Annotated[str, typer.Argument(metavar="FROM", help="The URL of the book to copy.")],
    target: Annotated[
        str, typer.Argument(metavar="TO", help="The URL to copy it to; created if it is not there.")
    ],
) -> Answer:
    """Copy a book to another, on whatever engine.

    --book plays no part. Copy again to bring the copy up to date: erasures arrive there too.
    """
    book, to = shell.owned(url=source), shell.owned(url=target, create=True, mirrored=True)
    with shell.progress("copying") as progress:
        return _taken(book.admin.copy(to, progress=progress))


def _taken(taken: Imported) -> Answer:
    def human() -> Human:
        how = "with their positions and hashes" if taken.exact else "recorded anew, with their origin named"
        yield from lines(
            f"{taken.events:,} events taken in {how}; {taken.already:,} were here; head {taken.head}"
        )
        if taken.left_out:
            yield from table(taken.left_out, "left out", "why")

    return Answer(taken, human())


@command
def backup(
    shell: Shell,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", dir_okay=False, help="A file that is not there yet.")
    ],
) -> Answer:
    """Write a consistent copy to a new SQLite file."""
    book = shell.owned()
    with shell.progress("backing up") as progress:
        head = book.admin.backup(file, progress=progress)
    return Answer({"head": head, "file": str(file)}, lines(f"backed up to {file}, head {head}"))


@command
def purge(shell: Shell) -> Answer:
    """Clear what was erased from the files of the store, the index and the markdown.

    Names each file, and says what it may still hold, and why.
    """
    report = shell.owned().purge()
    rows = [*(("done", done) for done in report.done), *(("remains", what) for what in report.remaining)]
    rows += [("purged", file.path) for file in report.files if not file.remains]
    files = [{"path": file.path, "outcome": file.outcome, "why": file.remains} for file in report.files]
    return Answer(
        {"purged": report.purged, "done": report.done, "remaining": report.remaining, "files": files},
        table(rows or [("done", "nothing was left to clear")]),
    )


@command
def erase(
    shell: Shell,
    ids: Annotated[list[str], typer.Argument(metavar="ID", help="The events to erase.", show_default=False)],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; it is kept with the erasure.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be erased.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> Answer:
    """Erase the content of events and of what derives from them.

    Asks first. The hash chain still verifies; `purge` clears the files. Earlier exports and backups keep it.
    """
    book = shell.owned(mirrored=not dry_run)
    planned = book.erase(ids, dry_run=True)

    def human(erasure: Erasure, heading: str) -> Human:
        gone = [book.event(id) for id in erasure.erased]
        if gone:
            why = ["asked for" if event.id in ids else "derived" for event in gone]
            rows = ((e.position, e.id, e.actor, e.kind, w) for e, w in zip(gone, why, strict=True))
            yield from table(rows, heading, "id", "actor", "kind", "why")
        yield from lines(*(f"erased before: {id}" for id in erasure.already))
        if erasure.position:
            yield from lines("gone from every read; `commonplace purge` clears the store's files too")

    if planned.erased and not (yes or dry_run):
        _ask(shell, human(planned, "to erase"))
    done = planned if dry_run else book.erase(ids, reason=reason)
    return Answer(
        {
            "erased": done.erased,
            "derived": [id for id in done.erased if id not in ids],
            "already": done.already,
            "position": done.position,
            "gone": done.gone,
            "dry_run": dry_run,
        },
        human(done, "to erase" if dry_run else "erased"),
    )


def _ask(shell: Shell, shown: Human) -> None:
    if sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise BadInput(
            "erasing cannot be undone, and there is no terminal to ask on: add --yes, or --dry-run to look"
        )
    for line in shown:
        shell.err.print(line)
    if not typer.confirm("Erase these for good?", err=True):
        raise BadInput("nothing was erased")


@command
def demo(shell: Shell) -> Answer:
    """Show a team of agents at work, in half a minute: examples/demo.py.

    Works on a new SQLite book: a temporary one, or at --book PATH. Exit code 1 if a claim does not hold.
    """
    import subprocess

    place = None if shell.given is None else health.place_of(shell.given)
    if shell.given is not None and (place is None or shell.given.startswith("file:")):
        raise BadInput(f"the demo shows a SQLite book: give it a path, not {public(shell.given)}")
    package = Path(__file__).parents[1]
    installed, cloned = package / "examples", package.parents[1] / "examples"
    story = (installed if installed.exists() else cloned) / "demo.py"
    command = [sys.executable, str(story), *([] if place is None else [str(place)])]
    told = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        for line in process.stdout or ():
            told.append(line.rstrip())
            if not shell.json:
                shell.out.print(told[-1], soft_wrap=True, markup=False, highlight=False)
    report = {"ok": process.returncode == 0, "story": told}
    failed = () if report["ok"] else lines("the demo failed: see the marks above", style="bold red")
    return Answer(report, failed, code=process.returncode and 1)


from . import memory as _memory  # noqa: E402, F401  its commands stand after these
from . import recall as _recall  # noqa: E402, F401
from . import runs as _runs  # noqa: E402, F401
from . import team as _team  # noqa: E402, F401
from . import work as _work  # noqa: E402, F401

if __name__ == "__main__":
    main()
