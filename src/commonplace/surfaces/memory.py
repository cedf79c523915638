"""The commands of durable memory: remember, search, items, forget, cores, notes, logs, the markdown, upkeep."""

from __future__ import annotations

import shlex
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from ..errors import BadInput
from ..events import without_none
from .draw import Human, clean, lines, page, table
from .options import AtOption, as_of, json_or_text, moment, typed_json
from .shell import Answer, Shell, command, group, plain

if TYPE_CHECKING:
    from ..memory.items import Item
    from ..memory.requests import Kept

IdArgument = Annotated[str, typer.Argument(metavar="ITEM", help="The item's id.", show_default=False)]
TagOption = Annotated[list[str] | None, typer.Option("--tag", metavar="TAG", help="A tag; may be repeated.")]
WhyOption = Annotated[str, typer.Option("--why", metavar="TEXT", help="Why.")]
PinOption = Annotated[
    bool | None, typer.Option("--pin/--unpin", help="Prompts show it before all else, or no longer.")
]
DryOption = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]


def _item(item: Item) -> dict[str, Any]:
    return {**plain(item), "text": item.text}


def _table(items: list[Item]) -> Human:
    from ..memory.items import remarks

    now_us = time.time_ns() // 1000

    def status(item: Item) -> str:
        return ", ".join((item.status, *remarks(item, now_us)))

    rows = (
        (one.id, one.kind, status(one), one.agent, one.sensitivity, clean(one.text)[:160]) for one in items
    )
    return table(rows, "id", "kind", "status", "whose", "sensitivity", "text")


# keeping


TasksOption = Annotated[
    str | None,
    typer.Option(
        metavar="JSON",
        help="A pattern's tasks, which a work begins with: a list of titles, or of objects with title, description, "
        "depends_on (titles) and the like.",
    ),
]


def _tasks(typed: str | None) -> Any:
    return (
        ()
        if typed is None
        else typed_json(typed, "--tasks", """a list such as '["design it", "build it"]'""")
    )


@command
def remember(
    shell: Shell,
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="What to keep; - reads it from stdin.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option(metavar="KIND", help="fact, note, procedure or episode.")
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="A fact's key.")] = None,
    value: Annotated[
        str | None, typer.Option(metavar="VALUE", help="A fact's value: JSON, or else text.")
    ] = None,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="A title.")] = None,
    tag: TagOption = None,
    category: Annotated[
        str | None, typer.Option(metavar="CATEGORY", help="user, feedback, project or reference.")
    ] = None,
    confidence: Annotated[float | None, typer.Option(metavar="0..1", help="How sure it is.")] = None,
    sensitivity: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="public, private (as usual) or sensitive.")
    ] = None,
    trust: Annotated[str | None, typer.Option(metavar="LEVEL", help="high, normal or low.")] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=VALUE", help="Where it comes from, such as channel=chat; may be repeated."
        ),
    ] = None,
    link: Annotated[
        list[str] | None, typer.Option(metavar="RELATION=ITEM", help="Another item that it is connected to.")
    ] = None,
    shared: Annotated[
        bool | None, typer.Option("--shared/--own", help="For the whole team, or for whoever acts alone.")
    ] = None,
    pin: PinOption = None,
    cite: Annotated[list[str] | None, typer.Option(metavar="FILE:LINE", help="Where it can be seen.")] = None,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why it matters.")] = None,
    supersedes: Annotated[
        list[str] | None, typer.Option(metavar="ITEM", help="An item it takes the place of; may be repeated.")
    ] = None,
    core: Annotated[str | None, typer.Option(metavar="CORE", help="The core it is for.")] = None,
    type: Annotated[
        str | None, typer.Option(metavar="TYPE", help="What kind of entry of a core it is.")
    ] = None,
    tasks: TasksOption = None,
    occurred_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="When an episode happened (ISO).")
    ] = None,
    valid_from: Annotated[str | None, typer.Option(metavar="TIME", help="From when on it holds.")] = None,
    valid_until: Annotated[str | None, typer.Option(metavar="TIME", help="Until when it holds.")] = None,
    override: Annotated[
        str, typer.Option(metavar="WHY", help="Keep it although such things are not kept, and say why.")
    ] = "",
    run: Annotated[str | None, typer.Option(metavar="RUN", help="The run it comes from.")] = None,
    id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="An id of your own: the call can be repeated safely."),
    ] = None,
) -> Answer:
    """Keep something for later, as text or as a key and a value.

    Says what became of it: stored, merged, flagged or rejected, and why. Exit code 1 if it was rejected.
    """
    said = sys.stdin.read() if text == "-" else text
    given = {"value": json_or_text(value)} if value is not None else {}
    kept = shell.acting(mirrored=True).remember(
        said, kind=kind, key=key, title=title, tags=tag or (), category=category, confidence=confidence,
        sensitivity=sensitivity, shared=shared, citations=cite or (), reason=reason, supersedes=supersedes or (),
        pinned=pin, core=core, type=type, override=override, run_id=run, id=id, trust=trust,
        provenance=dict(_pair(one) for one in source) if source else None,
        links=[_pair(one) for one in link or ()],
        occurred_at=None if occurred_at is None else moment(occurred_at),
        valid_from=None if valid_from is None else moment(valid_from),
        valid_until=None if valid_until is None else moment(valid_until), tasks=_tasks(tasks), **given,
    )  # fmt: skip

    return _kept(shell, kept)


def _kept(shell: Shell, kept: Kept) -> Answer:
    """What became of something to remember, with the command that settles it if it is held."""
    settling = shell.next_command("resolve", str(kept.item_id), "CHOICE", "--rationale", "WHY")
    superseding = shlex.join(word for id in kept.near for word in ("--supersedes", id))

    def human() -> Human:
        yield from page(clean(kept.told(settling, superseding)))  # no line break within a command
        yield from lines(*kept.held.comparison.splitlines()) if kept.held else ()

    return Answer(kept, human(), code=1 if kept.outcome == "rejected" else 0)


@command
def fact(
    shell: Shell,
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="What it is about.")],
    fact: Annotated[str, typer.Argument(metavar="FACT", help="One or two sentences.")],
    cite: Annotated[
        list[str], typer.Option(metavar="FILE:LINE", help="Where it can be seen; may be repeated.")
    ],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why it will matter later.")],
    category: Annotated[str, typer.Option(metavar="CATEGORY", help="user, feedback, project or reference.")],
    supersedes: Annotated[
        str | None, typer.Option(metavar="ITEM", help="The fact that it takes the place of.")
    ] = None,
) -> Answer:
    """Keep a fact about the repository. It is never changed, only superseded."""
    more = {} if supersedes is None else {"supersedes": supersedes}
    kept = shell.acting(mirrored=True).memory.repository_fact(
        subject, fact, citations=cite, reason=reason, category=category, **more
    )
    return _kept(shell, kept)


@command
def resolve(
    shell: Shell,
    item: IdArgument,
    choice: Annotated[
        str, typer.Argument(metavar="CHOICE", help="skip, merge or create; for a dispute old, new or both.")
    ],
    rationale: Annotated[str, typer.Option(metavar="TEXT", help="Why.")] = "",
) -> Answer:
    """Choose what becomes of an item that is held."""
    stands = shell.acting(mirrored=True).memory.resolve(item, choice, rationale)
    return Answer(_item(stands), lines(f"{stands.id} stands: {stands.text}"))


@command
def revise(
    shell: Shell,
    item: IdArgument,
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="Its new text.")] = None,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="Its new title.")] = None,
    value: Annotated[
        str | None, typer.Option(metavar="VALUE", help="A fact's new value: JSON, or else text.")
    ] = None,
    tag: TagOption = None,
    pin: PinOption = None,
    why: WhyOption = "",
) -> Answer:
    """Change an item; its history stays."""
    fields = without_none(text=text, title=title, tags=tag, pinned=pin)
    if value is not None:
        fields["value"] = json_or_text(value)
    revised = shell.acting(mirrored=True).memory.revise(item, why=why, **fields)
    return Answer(_item(revised), lines(f"{revised.id}: {revised.text}"))


def _mark(act: str, about: str) -> None:
    def run(shell: Shell, item: IdArgument, why: WhyOption = "") -> Answer:
        memory = shell.acting(mirrored=True).memory
        marked: Item = getattr(memory, "verify" if act == "confirm" else act)(item, why)
        return Answer(_item(marked), lines(f"{marked.id} is {marked.status}: {marked.text}"))

    run.__name__, run.__doc__ = act, about
    command(run)


_mark("share", "Let the whole team see an item.")
_mark("unshare", "Keep an item to its author again.")
_mark("confirm", "Say that an item was checked and holds.")
_mark("archive", "Put an item aside; restore brings it back.")
_mark("restore", "Bring back an item that was archived, dropped or forgotten, and not erased.")


# finding


@command
def search(
    shell: Shell,
    query: Annotated[str, typer.Argument(metavar="QUERY", help='Words, "phrases", prefix*.')] = "",
    mode: Annotated[
        str, typer.Option(metavar="MODE", help="keyword, semantic, date_range, agent_filter or hybrid.")
    ] = "hybrid",
    tier: Annotated[
        list[str] | None, typer.Option(metavar="TIER", help="Only this tier; may be repeated.")
    ] = None,
    from_: Annotated[str | None, typer.Option("--from", metavar="DAY", help="From this day on.")] = None,
    to: Annotated[str | None, typer.Option(metavar="DAY", help="Up to this day.")] = None,
    agent: Annotated[list[str] | None, typer.Option(metavar="AGENT", help="Only by this agent.")] = None,
    core: Annotated[
        list[str] | None, typer.Option(metavar="CORE", help="Only in this core; may be repeated.")
    ] = None,
    max_results: Annotated[int, typer.Option("--max", metavar="N", help="At most so many.")] = 10,
    at: AtOption = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say why each result is there.")] = False,
) -> Answer:
    """Find items and events that answer a query."""
    days = None if from_ is None and to is None else {"start": from_, "end": to}
    shell.open()
    with shell.progress("indexing") as progress:
        shell.open().admin.reindex(progress)
    found = shell.acting().search(
        query, mode=mode, tiers=tier or None, date_range=days, agent_filter=agent or None,  # type: ignore[arg-type]
        max_results=max_results, at=as_of(at), explain=explain, cores=core or None,
    )  # fmt: skip

    def human() -> Human:
        shown = found.results
        rows = (
            (
                f"{one.score:.2f}",
                one.tier,
                one.source,
                one.timestamp[:19],
                clean(f"[{one.marks}] {one.content}" if one.marks else one.content),
            )
            for one in shown
        )
        yield from table(rows, "score", "tier", "source", "when", "what")
        if explain:
            yield from lines(*(f"{one.id}: {one.why}" for one in found.results))
        told = [f"{typed!r} was read as {meant!r}" for typed, meant in found.corrected.items()]
        yield from lines(f"{found.total} found, as of {found.as_of}", *told)
        yield from lines(*(f"left out: {one.what} ({one.why})" for one in found.left_out))

    return Answer(found, human())


@command
def items(
    shell: Shell,
    item: Annotated[
        str | None, typer.Argument(metavar="ITEM", help="Only this one, with all that is known.")
    ] = None,
    kind: Annotated[str | None, typer.Option(metavar="KIND", help="Only this kind.")] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Only facts under this key.")] = None,
    tag: Annotated[str | None, typer.Option(metavar="TAG", help="Only with this tag.")] = None,
    agent: Annotated[str | None, typer.Option(metavar="AGENT", help="Only this agent's.")] = None,
    core: Annotated[str | None, typer.Option(metavar="CORE", help="Only of this core.")] = None,
    status: Annotated[
        str,
        typer.Option(metavar="STATUS", help="live, held, superseded, archived, dropped, forgotten or all."),
    ] = "live",
    at: AtOption = None,
    valid_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only what holds at this time.")
    ] = None,
) -> Answer:
    """List what is remembered, oldest first."""
    reader = shell.acting()
    if item is not None:
        one = _item(reader.memory.get(item, as_of(at)))
        shown = {name: value for name, value in one.items() if value not in (None, "", [], {})}
        return Answer(one, table((name.replace("_", " "), value) for name, value in shown.items()))
    found = reader.memory.list(
        kind=kind, key=key, tag=tag, agent=agent, core=core, status=None if status == "all" else status,
        at=as_of(at), valid_at=None if valid_at is None else moment(valid_at),
    )  # fmt: skip
    return Answer([_item(one) for one in found], _table(found))


@command
def disputes(shell: Shell, at: AtOption = None) -> Answer:
    """List what contradicts something that is remembered, and waits to be settled with resolve."""
    found = shell.acting().memory.disputes(as_of(at))

    def human() -> Human:
        for one in found:
            comparison = one.held.comparison if one.held else ""
            yield from lines(one.id, *(f"  {line}" for line in comparison.splitlines()))

    return Answer([_item(one) for one in found], human())


# forgetting


@command
def forget(
    shell: Shell,
    item: Annotated[list[str] | None, typer.Argument(metavar="ITEM…", help="Items by their ids.")] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Facts under this key.")] = None,
    tag: Annotated[str | None, typer.Option(metavar="TAG", help="Items with this tag.")] = None,
    provenance: Annotated[
        list[str] | None, typer.Option(metavar="FIELD=VALUE", help="Items from there; may be repeated.")
    ] = None,
    erase: Annotated[
        bool, typer.Option("--erase", help="Also erase their content, and all derived from it.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it without asking.")] = False,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why.")] = "",
    dry_run: DryOption = False,
) -> Answer:
    """Forget items by id, key, tag or provenance; with --erase, their content is gone for good.

    Asks first, unless --yes or --dry-run is given. What was not erased can be restored.
    """
    where = None if not provenance else dict(_pair(one) for one in provenance)
    chosen: dict[str, Any] = {"id": item or None, "key": key, "tag": tag, "provenance": where, "erase": erase}
    actor = shell.acting(mirrored=not dry_run)
    plan = actor.forget(**chosen, reason=reason, dry_run=True)
    names = [*plan.items, *plan.already]
    told = f"{len(names)} items" + (f" and {len(plan.erased)} events" if erase else "")
    if dry_run:
        return Answer(plan, lines(f"would {'erase' if erase else 'forget'} {told}", *names, *plan.derived))
    if not yes:
        if sys.stdin is None or not sys.stdin.isatty():
            raise BadInput(f"this would {'erase' if erase else 'forget'} {told}: add --yes to do it")
        typer.confirm(f"{'Erase' if erase else 'Forget'} {told}?", abort=True, err=True)
    done = actor.forget(**chosen, reason=reason, confirm="FORGET")
    again = [f"told again without it: {one}" for one in done.rederived]
    return Answer(
        done, lines(f"{'erased' if erase else 'forgot'} {told}", *done.items, *done.derived, *again)
    )


def _pair(typed: str) -> tuple[str, str]:
    name, equals, value = typed.partition("=")
    if not equals:
        raise typer.BadParameter(f"{typed!r} is not FIELD=VALUE, such as channel=chat")
    return name, value


@command
def tombstones(shell: Shell, at: AtOption = None) -> Answer:
    """List what was forgotten: when, by whom and why, never what it said."""
    found = shell.acting().memory.tombstones(as_of(at))
    rows = ((one.id, one.agent, one.deleted_at[:19], one.deleted_by, one.reason, one.erased) for one in found)
    return Answer(found, table(rows, "id", "whose", "when", "by", "reason", "erased"))


# cores

_core = group("core", "Memory cores: collections with rules of their own.")


@_core
def core__list(shell: Shell, at: AtOption = None) -> Answer:
    """List the cores."""
    found = shell.acting().memory.cores(as_of(at))
    rows = ((one.id, one.name, one.type, one.visibility, one.owner, one.description) for one in found)
    return Answer(found, table(rows, "id", "name", "type", "visible to", "owner", "description"))


CoreArgument = Annotated[str, typer.Argument(metavar="CORE", help="The core's id.", show_default=False)]


@_core
def core__show(shell: Shell, core: CoreArgument, at: AtOption = None) -> Answer:
    """Show a core's settings and entries."""
    reader = shell.acting()
    found, entries = reader.memory.core(core, as_of(at)), reader.memory.list(core=core, at=as_of(at))

    def human() -> Human:
        yield from table((name, value) for name, value in msgspec.to_builtins(found).items())
        yield from _table(entries)

    return Answer({"core": found, "entries": [_item(one) for one in entries]}, human())


@_core
def core__set(
    shell: Shell,
    core: CoreArgument,
    settings: Annotated[
        str,
        typer.Argument(metavar="JSON", help='Such as {"name": "Auth", "config": {"min_confidence": 0.5}}.'),
    ],
) -> Answer:
    """Make a core, or change its settings. It takes a librarian or a person."""
    given = json_or_text(settings)
    if not isinstance(given, dict) or not given:
        raise typer.BadParameter('write an object, such as {"name": "Auth"}')
    made = shell.acting(mirrored=True).memory.set_core(core, **given)
    return Answer(made, lines(f"{made.id}: {made.name}"))


@_core
def core__propose(
    shell: Shell,
    core: CoreArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to propose.")],
    type: Annotated[str | None, typer.Option(metavar="TYPE", help="lesson, pattern, gotcha …")] = None,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="A title.")] = None,
    confidence: Annotated[float | None, typer.Option(metavar="0..1", help="How sure it is.")] = None,
    tag: TagOption = None,
    tasks: TasksOption = None,
) -> Answer:
    """Propose an entry; from a librarian or person it is an entry at once."""
    kept = shell.acting(mirrored=True).remember(
        text, core=core, type=type, title=title, confidence=confidence, tags=tag or (), tasks=_tasks(tasks)
    )
    return Answer(kept, lines(f"{kept.outcome} {kept.item_id or ''} {kept.reason}".rstrip()))


@_core
def core__proposals(shell: Shell, at: AtOption = None) -> Answer:
    """List what was proposed and waits for resolve ITEM create or skip."""
    found = shell.acting().memory.held("proposal", at=as_of(at))
    return Answer([_item(one) for one in found], _table(found))


@_core
def core__suggest(
    shell: Shell,
    core: Annotated[str | None, typer.Argument(metavar="[CORE]", help="Only of this core.")] = None,
    at: AtOption = None,
) -> Answer:
    """Say what could be done: duplicates to merge, links to make, what has grown stale, better tags."""
    found = shell.acting().memory.suggestions(core, at=as_of(at))
    told = [f"{one.act:8} {' '.join(one.items)} {' '.join(one.tags)} ({one.why})" for one in found]
    return Answer(found, lines(*told) if told else lines("nothing to suggest"))


@_core
def core__link(
    shell: Shell,
    item: IdArgument,
    relation: Annotated[str, typer.Argument(metavar="RELATION", help="related, depends_on, or your own.")],
    to: Annotated[str, typer.Argument(metavar="ITEM", help="The other item.")],
) -> Answer:
    """Connect two items."""
    linked = shell.acting(mirrored=True).memory.link(item, relation, to)
    return Answer(_item(linked), lines(f"{item} {relation} {to}"))


@_core
def core__traverse(
    shell: Shell,
    item: IdArgument,
    depth: Annotated[int, typer.Option(metavar="N", help="How many links away.")] = 1,
    relation: Annotated[list[str] | None, typer.Option(metavar="RELATION", help="Only these.")] = None,
    at: AtOption = None,
) -> Answer:
    """Show where links lead from an item."""
    found = shell.acting().memory.traverse(item, depth, relation or None, as_of(at))
    rows = ((one.depth, one.relation, one.item.id, clean(one.item.text)[:160]) for one in found)
    data = ({**msgspec.to_builtins(one), "item": _item(one.item)} for one in found)
    return Answer(list(data), table(rows, "steps", "relation", "item", "text"))


# notes and logs

_notes = group("notes", "NOTES.md: the active objective, and nothing else.")


@_notes
def notes__show(shell: Shell, at: AtOption = None) -> Answer:
    """Print the notes."""
    text = shell.acting().documents.notes(as_of(at))
    return Answer({"text": text}, lines(*text.splitlines()))


@_notes
def notes__write(
    shell: Shell,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The notes; - reads them from stdin.")],
) -> Answer:
    """Write the notes anew. What belongs elsewhere is refused, each with its line."""
    event = shell.acting(mirrored=True).documents.write_notes(sys.stdin.read() if text == "-" else text)
    return Answer(event.as_dict(), lines(f"written at {event.position}"))


@_notes
def notes__check(
    _shell: Shell,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A NOTES.md.")] = Path("NOTES.md"),
) -> Answer:
    """Check a file by the rules for notes. Exit code 1 if something does not belong there."""
    from ..memory import check_notes

    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{file} cannot be read: {error}") from None
    found = check_notes(
        "\n".join(line for line in text.splitlines() if not line.startswith(("<!-- cp", "<!-- /cp")))
    )
    return Answer(
        [msgspec.to_builtins(one) for one in found], lines(*map(str, found)), code=1 if found else 0
    )


_session = group("session", "The notes of a session, in five sections.")
TaskArgument = Annotated[str, typer.Argument(metavar="TASK", help="The task's title.", show_default=False)]


@_session
def session__note(
    shell: Shell,
    task: TaskArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to note.")],
    section: Annotated[str, typer.Option(metavar="SECTION", help="Which section.")] = "Worklog",
) -> Answer:
    """Add to a session's notes."""
    event = shell.acting(mirrored=True).documents.add_to_session(task, text, section)
    return Answer(event.as_dict(), lines(f"noted at {event.position}"))


@_session
def session__show(shell: Shell, task: TaskArgument, at: AtOption = None) -> Answer:
    """Print a session's notes."""
    text = shell.acting().documents.session(task, as_of(at))
    return Answer({"text": text}, lines(*text.splitlines()))


@_session
def session__clear(shell: Shell, task: TaskArgument) -> Answer:
    """End a session: its notes are gone for agents."""
    event = shell.acting(mirrored=True).documents.clear_session(task)
    return Answer(event.as_dict(), lines(f"cleared at {event.position}"))


_folder = group("folder", "A task's folder: decisions, revisions, verified items, reports, gates.")


@_folder
def folder__note(
    shell: Shell,
    task: TaskArgument,
    paper: Annotated[str, typer.Argument(metavar="PAPER", help="decisions, revisions, verified_items, …")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to write; - reads it from stdin.")],
    anew: Annotated[bool, typer.Option("--anew", help="Write the paper anew.")] = False,
) -> Answer:
    """Add to a paper in a task's folder."""
    event = shell.acting(mirrored=True).documents.add_to_task(
        task, paper, sys.stdin.read() if text == "-" else text, anew=anew
    )
    return Answer(event.as_dict(), lines(f"written at {event.position}"))


@_folder
def folder__show(shell: Shell, task: TaskArgument, at: AtOption = None) -> Answer:
    """Print the papers of a task's folder."""
    found = shell.acting().documents.task(task, as_of(at))

    def human() -> Human:
        for name, text in found.items():
            yield from lines(f"== {name}", *text.splitlines())

    return Answer(found, human())


@_folder
def folder__gate(
    shell: Shell,
    task: TaskArgument,
    gate: Annotated[str, typer.Argument(metavar="GATE", help="PLAN, PREFLECT, PHASE_REVIEW …")],
    decision: Annotated[str, typer.Argument(metavar="DECISION", help="GO, REPLAN, ABSTAIN or BLOCKED.")],
    phase: Annotated[int | None, typer.Option(metavar="N", help="Which phase.")] = None,
    confidence: Annotated[float | None, typer.Option(metavar="0..1", help="How sure it is.")] = None,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why.")] = "",
    next_action: Annotated[str, typer.Option(metavar="TEXT", help="What comes next.")] = "",
    iteration_index: Annotated[
        int | None, typer.Option(metavar="0..5", help="Which iteration; the first is 0.")
    ] = None,
    max_iterations: Annotated[int | None, typer.Option(metavar="1..5", help="How many there may be.")] = None,
    field: Annotated[
        list[str] | None, typer.Option(metavar="FIELD=VALUE", help="A further field; may be repeated.")
    ] = None,
    id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="The task's id, if it has one.")
    ] = None,
) -> Answer:
    """Record a gate that a task has come to."""
    event = shell.acting(mirrored=True).documents.record_gate(
        task,
        gate,
        decision,
        id=id,
        phase=phase,
        confidence=confidence,
        reason=reason,
        next_action=next_action,
        iteration_index=iteration_index,
        max_iterations=max_iterations,
        **{name: json_or_text(value) for name, value in map(_pair, field or ())},
    )
    return Answer(event.as_dict(), lines(f"recorded at {event.position}"))


_daily = group("daily", "The daily logs.")


@_daily
def daily__log(
    shell: Shell, text: Annotated[str, typer.Argument(metavar="TEXT", help="What to log.")]
) -> Answer:
    """Add to the day's log."""
    event = shell.acting(mirrored=True).documents.log(text)
    return Answer(event.as_dict(), lines(f"logged at {event.position}"))


@_daily
def daily__show(
    shell: Shell,
    day: Annotated[
        str | None, typer.Argument(metavar="DAY", help="YYYY-MM-DD; the last one, if not said.")
    ] = None,
    at: AtOption = None,
) -> Answer:
    """Print what was logged on a day."""
    reader = shell.acting()
    chosen = day or next(reversed(reader.documents.days(as_of(at))), None)
    found = [] if chosen is None else reader.documents.day(chosen, as_of(at))

    def human() -> Human:
        for one in found:
            yield from lines(*one.markdown.splitlines(), "")

    return Answer(found, human())


@_daily
def daily__days(
    shell: Shell,
    archived: Annotated[bool, typer.Option("--archived", help="Those that were put aside.")] = False,
) -> Answer:
    """List the days that have a log."""
    found = shell.acting().documents.days(archived=archived)
    return Answer(found, lines(*found))


# upkeep


@command
def curate(
    shell: Shell,
    days: Annotated[int, typer.Option(metavar="N", help="How many days to look through.")] = 7,
    dry_run: DryOption = False,
) -> Answer:
    """Take what recurs in the daily logs into long-term memory, with its lines cited."""
    done = shell.acting(mirrored=not dry_run).memory.curate(days, dry_run=dry_run)

    def human() -> Human:
        for one in done["found"]:
            yield from lines(
                f"+ {one['text']}  [{one['outcome']}]", *(f"    {cited}" for cited in one["citations"])
            )
        yield from lines(f"{done['lines']} lines of {days} days, {len(done['found'])} of them recur")

    return Answer(done, human())


@command
def gc(shell: Shell, dry_run: DryOption = False) -> Answer:
    """Keep memory small: archive what is old, and consolidate what exceeds the budget, step by step.

    Everything can be brought back until it is erased.
    """
    done = shell.acting(mirrored=not dry_run).memory.tidy(dry_run=dry_run)

    def human() -> Human:
        for one in done.chores:
            would = "would " if dry_run else ""
            yield from lines(f"{would}{one.act}: {one.why}", *(f"    {name}" for name in one.names))
        yield from lines(*(f"left alone: {one}" for one in done.left_alone))
        yield from lines(f"{done.items} items, {done.chars:,} characters")

    return Answer(done, human())


@command
def unarchive(
    shell: Shell,
    day: Annotated[
        list[str] | None, typer.Option(metavar="DAY", help="A day's log; may be repeated.")
    ] = None,
    task: Annotated[
        list[str] | None, typer.Option(metavar="TASK", help="A task's folder; may be repeated.")
    ] = None,
) -> Answer:
    """Bring days and tasks back from the archive."""
    shell.acting(mirrored=True).documents.restore(days=day or (), tasks=task or ())
    return Answer({"days": day or [], "tasks": task or []}, lines("brought back"))


@command
def settings(
    shell: Shell,
    change: Annotated[
        str | None, typer.Argument(metavar="JSON", help='What to change, such as {"max_size_kb": 200}.')
    ] = None,
) -> Answer:
    """Show how memory is kept, or change it."""
    actor = shell.acting(mirrored=change is not None)
    given = {} if change is None else json_or_text(change)
    if not isinstance(given, dict):
        raise typer.BadParameter('write an object, such as {"max_size_kb": 200}')
    found = actor.memory.configure(**given) if given else actor.memory.settings()
    return Answer(found, table((name, value) for name, value in msgspec.to_builtins(found).items()))


# the markdown

_mirror = group("mirror", "The book's memory as markdown that people edit.")


def _report(report: Any) -> dict[str, Any]:
    return {
        "written": report.written,
        "removed": report.removed,
        "taken": [
            {"path": one.edit.path, "ok": one.ok, "note": one.note, "id": one.id} for one in report.taken
        ],
        "clashes": [{"path": one.path, "block": one.block} for one in report.clashes],
        "refused": [{"path": path, "why": why} for path, why in report.refused],
    }


def _told(report: Any) -> Human:
    yield from lines(
        *(f"wrote {path}" for path in report.written), *(f"removed {path}" for path in report.removed)
    )
    for one in report.taken:
        yield from lines(
            f"took in an edit of {one.edit.path}" if one.ok else f"left in {one.edit.path}: {one.note}"
        )
    yield from lines(*(f"clash in {one.path}: it shows both texts, delete one" for one in report.clashes))
    yield from lines(*(f"left {path} alone: {why}" for path, why in report.refused))


TrustOption = Annotated[
    bool,
    typer.Option("--trust", help="Trust this book and folder from now on, though you did not make them."),
]


@_mirror
def mirror__sync(shell: Shell, trust: TrustOption = False) -> Answer:
    """Take in hand edits, then write what changed. Makes the files if there are none.

    Exit code 1 if a clash waits for a person, or a file had to be left alone. A book or folder that somebody else
    made is not synced without --trust.
    """
    report = shell.owned().mirror.folder(shell.mirror, trust=trust).sync()

    def human() -> Human:
        yield from _told(report)
        yield from lines(f"{len(report.written)} written, {len(report.unchanged)} as they were")

    return Answer(_report(report), human(), code=1 if report.clashes or report.refused else 0)


@_mirror
def mirror__status(shell: Shell) -> Answer:
    """Show which files differ from the book, and how. Changes nothing."""
    found = shell.owned().mirror.folder(shell.mirror).status()
    data = [
        {
            "path": one.path,
            "edits": len(one.edits),
            "clashes": len(one.clashes),
            "refused": one.refused,
            "behind": one.behind,
        }
        for one in found
    ]
    rows = ((one["path"], one["edits"], one["clashes"], one["refused"], one["behind"]) for one in data)
    return Answer(data, table(rows, "file", "edits", "clashes", "refused", "behind the book"))


@_mirror
def mirror__watch(shell: Shell, trust: TrustOption = False) -> Answer:
    """Keep files and book together until Ctrl-C."""
    made, stop = shell.owned().mirror.folder(shell.mirror, trust=trust), threading.Event()

    def on_report(report: Any) -> None:
        for line in _told(report):
            shell.err.print(line)

    try:
        made.watch(stop, on_report)
    except KeyboardInterrupt:
        stop.set()
    return Answer({"stopped": True}, lines("stopped"))
