"""Commands that do more than call a verb: they ask first, follow, look at files, or know about places of books."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import MsgspecError

from ..documents.document import NOTES
from ..errors import BadInput, BookNotFound, CommonplaceError, NotFound
from ..files.safe import SHARED, Folder
from ..ledger.encoding import decode
from ..ledger.events import Event
from ..ledger.ledger import At
from ..ledger.printing import number, told
from ..participant import Actor
from ..verbs import EventId
from . import health
from .answers import adopted, imported, kept_many, log_lines, whole_id
from .data import data_of, plain
from .draw import Human, id_cell, lines, short, table
from .places import DEFAULT_BOOK, HOOKS_LOG, public
from .shell import Output, Shell
from .typed import standard_input

if TYPE_CHECKING:
    from ..book import Book

LAST = 50
"""How many events people see of a log when they do not say."""


def init(shell: Shell, *, name: str | None = None, quiet: bool = False) -> Output:
    """Create the book, if it is not there yet. Says where it is and what its engine promises. No other command creates
    a book, save demo and copy. `quiet` says nothing when all is well.

    `name` is what to call the book."""
    try:
        book, created = shell.open(name=name), False
    except BookNotFound:
        book, created = shell.open(name=name, create=True, mirrored=True), True
        if shell.url == DEFAULT_BOOK:
            _keep_out_of_git(Path(DEFAULT_BOOK).parent)

    def human() -> Human:
        yield from lines(f"{'created' if created else 'already there:'} {book.name!r} at {public(shell.url)}")
        yield from table(health.promises(book.admin.facts))

    about = {"created": created, **health.standing(book, shell.url), "facts": book.admin.facts}
    return Output(about, () if quiet else human())


def _keep_out_of_git(folder: Path) -> None:
    """The book in a project's folder holds what is private, and the markdown beside it may be committed."""
    files = Folder(folder.resolve())
    if files.stat(".gitignore") is None:
        files.write(".gitignore", f"/{Path(DEFAULT_BOOK).name}*\n/{HOOKS_LOG}\n".encode(), SHARED)


def status(shell: Shell) -> Output:
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

    return Output(about, human())


def doctor(shell: Shell) -> Output:
    """Check the book's health, and say what its engine promises. Exit code 1 if something is wrong, each problem with
    what to do about it."""
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
        yield from lines(*(f"problem: {problem}" for problem in problems), style="red")
        if not problems:
            yield from lines("all is well; `commonplace book verify` checks every event", style="green")

    return Output(report, human(), code=1 if problems else 0)


def demo(shell: Shell) -> Output:
    """Show a team of agents at work, in half a minute: examples/demo.py. Works on a new SQLite book: a temporary one,
    or at --book PATH. Exit code 1 if a claim does not hold."""
    import subprocess

    place = None if shell.given is None else health.place_of(shell.given)
    if shell.given is not None and (place is None or shell.given.startswith("file:")):
        raise BadInput(f"the demo shows a SQLite book: give it a path, not {public(shell.given)}")
    package = Path(__file__).parents[1]
    installed, cloned = package / "examples", package.parents[1] / "examples"
    story = (installed if installed.exists() else cloned) / "demo.py"
    command = [sys.executable, str(story), *([] if place is None else [str(place)])]
    story_lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        for line in process.stdout or ():
            story_lines.append(line.rstrip())
            if not shell.json:
                print(story_lines[-1], flush=True)
    report = {"ok": process.returncode == 0, "story": story_lines}
    failed = () if report["ok"] else lines("the demo failed: see the marks above", style="red")
    return Output(report, failed, code=process.returncode and 1)


# events


def log(
    shell: Shell,
    *,
    follow: bool = False,
    run_id: str | None = None,
    kinds: list[str] | None = None,
    actor: str | None = None,
    after: int | None = None,
    at: At = None,
    last: int | None = None,
) -> Output:
    """Show what happened in order, one sentence for each event. With --follow and --json, it prints one JSON document
    a line. `follow` goes on with events as they are recorded, until Ctrl-C. `last` is how many to show: 50, or all with
    --json or --after.

    `run_id` is the id of the run. `after` is the position after which to begin. `actor` is the one who did it."""
    if follow and at is not None:
        raise click.BadParameter("--follow goes on from now, so it cannot go with --at")
    if last is not None and last < 1:
        raise click.BadParameter("--last is a number from 1")
    book, reader = shell.open(), shell.acting()
    if last is None and after is None and not shell.json:
        last = LAST
    run_id = None if run_id is None else whole_id(reader, "run", run_id)
    wanted: dict[str, Any] = {"run_id": run_id, "kinds": kinds, "actor": actor}
    start, end = after or 0, book.ledger.position(at)
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
        told = False
        for line in log_lines(events(), titles(reader)):
            yield line
            told = True
        if not told and end:
            yield from lines(f"no event up to {end} is of that kind, run or actor and after {start}")
        elif not told:
            yield from lines("nothing happened yet: `commonplace record KIND JSON` records an event")

    return Output((event.as_dict() for event in events()), human(), lines=follow)


def titles(reader: Any) -> Callable[[str], str]:
    """What tasks are called, as far as the reader may know of them."""

    @cache
    def title(id: str) -> str:
        with suppress(NotFound):
            return str(reader.works.containing(id).task(id).info().title) or short(id)
        return short(id)

    return title


# what is taken in and written out


def import_(shell: Shell, source: str, *, dry_run: bool = False) -> Output:
    """Take in the events of an export, or the memory of another tool: a folder of markdown notes, a MEMORY.md,
    CLAUDE.md or AGENTS.md, an export of memory, of mem0 or of the MCP memory server, with a report of what became what.
    Of an export of events: into an empty book, or one that holds a beginning of it, positions and hashes are kept;
    otherwise the events are recorded anew, with their origin named.

    `source` is the folder or file to read."""
    from ..ledger.transfer import is_export

    path = Path(source)
    if is_export(path):
        book = shell.owned(mirrored=True)
        with shell.progress("importing") as progress:
            taken = book.admin.import_(path, progress=progress)
        return Output(data_of(taken), imported(shell, taken))
    actor = shell.acting(mirrored=not dry_run)
    with shell.progress("importing") as progress:
        report = actor.memory.import_(path, dry_run=dry_run, progress=progress)
    return Output(data_of(report), adopted(shell, report))


def export(shell: Shell, to: str, *, at: At = None) -> Output:
    """Write every event, with its hash, to a JSONL file; an old one is replaced. With --as, only what that actor may
    see, without secrets, in a chain of its own.

    `to` is the file to write."""
    if Path(to).is_dir():
        raise click.BadParameter(f"{to} is a folder: name a file")
    book = shell.acting()
    with shell.progress("exporting") as progress:
        write = book.export if isinstance(book, Actor) else shell.owned().admin.export
        count = write(to, at=at, progress=progress)
    return Output({"events": count, "file": to}, lines(f"{count:,} events written to {to}"))


def copy(shell: Shell, source: str, to: str) -> Output:
    """Copy a book to another, on whatever engine. --book plays no part. Copy again to bring the copy up to date:
    erasures arrive there too. `source` is the URL of the book to copy. `to` is the URL to copy it to, which is created
    if it is not there."""
    book, target = shell.owned(url=source), shell.owned(url=to, create=True, mirrored=True)
    with shell.progress("copying") as progress:
        taken = book.admin.copy(target, progress=progress)
    return Output(data_of(taken), imported(shell, taken))


# what cannot be undone


def erase(
    shell: Shell,
    id: list[EventId] | None = None,
    *,
    text: list[str] | None = None,
    metadata: dict[str, Any] | None = None,
    actor: str | None = None,
    reason: str = "",
    proof: str | None = None,
    dry_run: bool = False,
    yes: bool = False,
) -> Output:
    """Erase the content of events, or of all that --text, --scope, --metadata and --actor find, and what derives from
    it. Asks first. The hash chain still verifies; `book purge` clears the files, and so does --proof. Earlier exports
    and backups keep it. `yes` does it without asking.

    `id` are the ids of events. `text` is a text to find, however it is spelled. `actor` is who recorded it. `proof` is
    a file to write: what was erased, and that it is gone."""
    book = shell.owned(mirrored=not dry_run, scoped=id is None)
    filters: dict[str, Any] = {"text": text, "scope": shell.scope, "metadata": metadata, "actor": actor}
    if (id is None) == all(value is None for value in filters.values()):
        raise BadInput("name what to erase: either ids of events, or --text, --scope, --metadata or --actor")
    if id is not None:
        if proof is not None:
            raise BadInput("--proof goes with what is found: give --text, --scope, --metadata or --actor")
        return _erase_events(book, [whole_id(book, "event", each) for each in id], reason, dry_run, yes)
    if proof is not None:  # before anything is erased
        book.admin.check_proof(proof)
    with shell.progress("looking") as progress:
        found = book.admin.find(**filters, progress=progress)
    planned = book.erase(found, reason=reason, dry_run=True)
    counts = told(planned.counts)
    if counts and not (yes or dry_run):
        shown = lines(f"this erases {counts}", *(f"remains: {left}" for left in found.remaining))
        ask_for_word("ERASE", f"erase {counts}", shown, "nothing was erased")
    done = planned if dry_run else book.erase(found, reason=reason)
    proven = None
    if proof is not None and not dry_run:
        with shell.progress("proving") as progress:
            proven = book.admin.proof(found, proof, progress=progress)
    data = {
        **_erased_data(done, found.ids, dry_run), "counts": done.counts, "remaining": plain(found.remaining),
        "proof": None if proven is None else {name: value for name, value in plain(proven).items() if name != "file"},
    }  # fmt: skip
    first = f"{'would erase' if dry_run else 'erased'} {counts or 'nothing'}"
    after = (
        [str(proven)]
        if proven
        else ["`commonplace book purge` clears the store's files too"]
        if done.gone
        else []
    )
    remains = (f"remains: {left}" for left in found.remaining)
    human = lines(first, *remains, *(after if counts and not dry_run else [str(proven)] if proven else []))
    return Output(data, human, code=0 if proven is None or proven.gone else 1)


def _erase_events(book: Book, wanted: list[str], reason: str, dry_run: bool, yes: bool) -> Output:
    planned = book.erase(wanted, dry_run=True)

    def human(erasure: Any, heading: str) -> Human:
        gone = [book.event(id) for id in erasure.erased]
        rows = (
            [
                event.position,
                id_cell(event.id),
                event.actor,
                event.kind,
                "asked for" if event.id in wanted else "derived",
            ]
            for event in gone
        )
        yield from table(rows, heading, "id", "actor", "kind", "why") if gone else ()
        yield from lines(*(f"erased before: {short(id)}" for id in erasure.already))
        if erasure.position:
            yield from lines("gone from every read; `commonplace book purge` clears the store's files too")

    if planned.erased and not (yes or dry_run):
        ask(
            "erasing cannot be undone",
            "Erase these for good?",
            human(planned, "to erase"),
            "nothing was erased",
        )
    done = planned if dry_run else book.erase(wanted, reason=reason)
    return Output(_erased_data(done, wanted, dry_run), human(done, "to erase" if dry_run else "erased"))


def _erased_data(done: Any, wanted: Collection[str], dry_run: bool) -> dict[str, Any]:
    asked = set(wanted)
    return {
        "erased": done.erased, "derived": [id for id in done.erased if id not in asked], "already": done.already,
        "position": done.position, "gone": done.gone, "dry_run": dry_run,
    }  # fmt: skip


def forget(
    shell: Shell,
    id: list[str] | None = None,
    *,
    kind: str | None = None,
    key: str | None = None,
    tags: list[str] | None = None,
    agent: str | None = None,
    core: str | None = None,
    category: str | None = None,
    provenance: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    erase: bool = False,
    reason: str = "",
    dry_run: bool = False,
    yes: bool = False,
) -> Output:
    """Forget items by id, or those that match every filter; with --erase, their content is gone for good. Asks first,
    unless --yes or --dry-run is given. What was not erased can be restored. `yes` does it without asking.

    `id` are the ids of items. `kind` is fact, note, procedure or episode. `core` is the core that they belong to.
    `until` is the time before which they were recorded. `erase` is whether the content goes as well, and all that is
    derived from it."""
    actor = shell.acting(mirrored=not dry_run)
    wanted = None if id is None else [whole_id(actor, "item", one) for one in id]
    chosen: dict[str, Any] = {
        "id": wanted, "kind": kind, "key": key, "tags": tags, "agent": agent, "core": core, "category": category,
        "provenance": provenance, "metadata": metadata, "since": since, "until": until, "erase": erase,
    }  # fmt: skip
    plan = actor.forget(**chosen, reason=reason, dry_run=True)
    names = [short(one) for one in (*plan.items, *plan.already)]
    told = number(len(names), "item") + (f" and {number(len(plan.erased), 'event')}" if erase else "")
    act = "erase" if erase else "forget"
    if not names and not dry_run:
        return Output(plan, lines("nothing matches, so nothing was forgotten"))
    if dry_run:
        return Output(plan, lines(f"would {act} {told}", *names, *map(short, plan.derived)))
    if not yes:
        ask(f"this would {act} {told}", f"{act.title()} {told}?", iter(()), "nothing was forgotten")
    done = actor.forget(**chosen, reason=reason, confirm="FORGET")
    again = [f"told again without it: {one}" for one in done.rederived]
    said = lines(
        f"{'erased' if erase else 'forgot'} {told}", *map(short, (*done.items, *done.derived)), *again
    )
    return Output(done, said)


def add_many(shell: Shell, file: str, *, shared: bool | None = None) -> Output:
    """Remember every entry of a file, a hundred in each commit: a JSON list, JSON one entry per line, or text, one note
    per line. An entry is a text, or an object with the options of remember. All of them are checked before anything is
    written.

    `file` is the file to read; - reads standard input. `shared` is whether the whole team sees what does not say so."""
    entries = _entries(_read_text(file))
    actor = shell.acting(mirrored=True)
    with shell.progress("remembering") as progress:
        results = actor.memory.add_many(entries, shared=shared, progress=progress)
    return Output(results, kept_many(shell, results))


def _read_text(file: str) -> str:
    if file == "-":
        return standard_input("file")
    try:
        return Path(file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{file} cannot be read as text ({error})") from None


def _entries(text: str) -> list[Any]:
    """The entries of a file: of a JSON list, else one in each line, which is JSON if it looks like it."""
    with suppress(MsgspecError):
        whole = decode(text)
        if isinstance(whole, list):
            return whole
    entries = list[Any]()
    for place, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith(("{", '"')):
            try:
                entries.append(decode(line))
            except MsgspecError as error:
                raise BadInput(f"line {place} is not JSON ({error}): nothing was kept") from None
        elif line.strip():
            entries.append(line.strip())
    return entries


def ask(what: str, question: str, shown: Human, otherwise: str) -> None:
    """Ask on the terminal. Raises BadInput without one, or if the answer is no."""
    _show_before_asking(what, shown)
    if not click.confirm(question, err=True):
        raise BadInput(otherwise)


def ask_for_word(word: str, act: str, shown: Human, otherwise: str) -> None:
    """Have somebody type a word on the terminal. Raises BadInput without one, or if another word is typed."""
    _show_before_asking(f"this would {act}", shown)
    if click.prompt(f"Type {word} to {act}", err=True, default="", show_default=False).strip() != word:
        raise BadInput(otherwise)


def _show_before_asking(what: str, shown: Human) -> None:
    if sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise BadInput(f"{what}, and there is no terminal to ask on: add --yes")
    for line in shown:
        print(line, file=sys.stderr)


# notes and the markdown


def check_notes(shell: Shell, path: str | None = None) -> Output:
    """Check notes by their rules: a file, or the book's NOTES.md. Exit code 1 if something does not belong there.

    `path` is the file to check, or - for standard input; without one, NOTES.md in this folder if there is one, else the
    book's."""
    from ..memory import check_notes

    if path is None and Path(NOTES).is_file():
        path = NOTES
    if path is None:
        problems = shell.acting().documents.check_notes()
    else:
        try:
            text = standard_input("notes") if path == "-" else Path(path).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{path} cannot be read: {error}") from None
        marks = ("<!-- cp", "<!-- /cp")
        problems = check_notes("\n".join(line for line in text.splitlines() if not line.startswith(marks)))
    human = lines(*map(str, problems)) if problems else lines("all of it belongs there")
    return Output(data_of(problems), human, code=1 if problems else 0)


def mirror_sync(shell: Shell, *, trust: bool = False) -> Output:
    """Take in hand edits, then write what changed, and say where. Makes the files if there are none. Exit code 1 if a
    clash waits for a person, or a file had to be left alone. `trust` trusts this book and folder from now on, though
    you did not make them."""
    mirror = shell.owned().mirror.folder(shell.mirror, trust=trust)
    report = mirror.sync()

    def human() -> Human:
        yield from _told(report)
        took = sum(edit.ok for edit in report.taken)
        yield from lines(
            f"{len(report.written)} files written to {mirror.folder}, {len(report.unchanged)} as they were; "
            f"{took} hand edits taken in"
        )

    data = {
        "folder": str(mirror.folder),
        "written": report.written,
        "removed": report.removed,
        "taken": [
            {"path": part.edit.path, "ok": part.ok, "note": part.note, "id": part.id} for part in report.taken
        ],
        "clashes": [{"path": part.path, "block": part.block} for part in report.clashes],
        "refused": [{"path": path, "why": why} for path, why in report.refused],
    }
    return Output(data, human(), code=1 if report.clashes or report.refused else 0)


def _told(report: Any) -> Human:
    yield from lines(
        *(f"wrote {path}" for path in report.written), *(f"removed {path}" for path in report.removed)
    )
    for part in report.taken:
        yield from lines(
            f"took in an edit of {part.edit.path}" if part.ok else f"left in {part.edit.path}: {part.note}"
        )
    yield from lines(*(f"clash in {part.path}: it shows both texts, delete one" for part in report.clashes))
    yield from lines(*(f"left {path} alone: {why}" for path, why in report.refused))


def mirror_status(shell: Shell) -> Output:
    """Show which files differ from the book, and how. Changes nothing."""
    differences = shell.owned().mirror.folder(shell.mirror).status()
    data = [
        {
            "path": file.path, "edits": len(file.edits), "clashes": len(file.clashes), "refused": file.refused,
            "behind": file.behind,
        }
        for file in differences
    ]  # fmt: skip
    headings = ("file", "edits", "clashes", "refused", "behind the book")
    human = (
        table((file.values() for file in data), *headings)
        if data
        else lines("every file is as the book has it")
    )
    return Output(data, human)


def mirror_watch(shell: Shell, *, trust: bool = False) -> Output:
    """Keep files and book together until Ctrl-C. `trust` trusts this book and folder from now on, though you did not
    make them."""
    made, stop = shell.owned().mirror.folder(shell.mirror, trust=trust), threading.Event()

    def on_report(report: Any) -> None:
        for line in _told(report):
            print(line, file=sys.stderr)

    try:
        made.watch(stop, on_report)
    except KeyboardInterrupt:
        stop.set()
    return Output({"stopped": True}, lines("stopped"))
