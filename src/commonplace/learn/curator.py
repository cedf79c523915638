"""The curator: what a delegation has learned is kept for the next run of the same workflow.

It runs at the end of a root manager's loop, calls no model, and takes over three things: the tools that were made, as
recipes; facts that stand in two or more of the run's context digests; and antipatterns, which are dispatches that were
redundant, failed, or came back with little confidence. They become items of memory, derived from the events that they
come from, so that they are searched, labelled, disputed and erased as any item is. What is known already is not kept
again. The first turn of the next root manager begins with them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ..access.redact import Redactor
from ..access.rights import OWNER
from ..errors import BadInput, CommonplaceError
from ..ledger.checks import check_name, check_whole
from ..ledger.events import A_DAY
from ..ledger.printing import LeftOut, Readable, number
from ..memory.echoes import echo_among
from ..memory.items import Item
from ..memory.remember import remember
from ..memory.verbs import Memory
from ..recall.escaping import as_data
from ..recall.lines import text_of
from ..recall.packing import PackLine, estimated, pack, whole
from ..recall.verification import Checks
from ..state.redaction import redactor_of, with_those_below
from ..state.requests import FAILED, FINISHED, SKIPPED
from ..state.rows import opened_run, steps_of
from ..verbs import RunId
from .context_digest import confidence_of
from .delegations import RecordCuration, delegation_of, digests, plans, tools
from .plans import Assignment, decision_of

if TYPE_CHECKING:
    from ..ledger.ledger import At
    from ..ledger.reader import ViewReader
    from ..session import Session

CURATOR = "curator"
"""The channel by which items say that the curator has kept them."""
CONFIRMED = 2
"""In how many digests a fact must stand."""
LITTLE = 0.3
"""Below this confidence a result counts as an antipattern."""
REDUNDANT = "redundant dispatch"
AGAIN = f"{REDUNDANT}: its result was there already"

HEADING = "## PRIOR RUN MEMORY"
SECTIONS = {
    "tool": "### Known Tools",
    "fact": "### Confirmed Facts",
    "antipattern": "### Antipatterns to Avoid",
}
MOST = {"tool": 50, "fact": 20, "antipattern": 10}
FACTS_FOR = timedelta(days=7)
MOST_CHARS = 3_000
_VERSION = re.compile(r"## v(\d+)\nhash .*\n")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class CuratorReport(Readable, msgspec.Struct, frozen=True):
    """What the curator has kept of a run, what of it waits for a person or was refused, and what went wrong."""

    run_id: str
    workflow: str
    tools_added: tuple[str, ...] = ()
    tools_versioned: tuple[str, ...] = ()
    facts_added: tuple[str, ...] = ()
    antipatterns_added: tuple[str, ...] = ()
    item_ids: tuple[str, ...] = ()
    not_kept: tuple[tuple[str, str], ...] = ()
    """What was not kept as it is, and why."""
    errors: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [
            number(len(self.tools_added), "new tool"),
            number(len(self.tools_versioned), "new version") + " of tools",
            number(len(self.facts_added), "confirmed fact"),
            number(len(self.antipatterns_added), "antipattern"),
        ]
        lines = [f"{self.workflow}: {', '.join(parts)}"]
        lines += [f"not kept: {text} ({why})" for text, why in self.not_kept]
        return "\n".join([*lines, *(f"error: {error}" for error in self.errors)])


class PriorRuns(Readable, msgspec.Struct, frozen=True):
    """What earlier runs of a workflow have left for the next one: a block of a prompt, and the items in it."""

    text: str
    item_ids: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    def __str__(self) -> str:
        return self.text


class _Findings(NamedTuple):
    """What there is to keep of a delegation, each with the positions or ids of the events that it comes from."""

    tools: Sequence[tuple[str, dict[str, Any], str]]
    facts: Sequence[tuple[str, list[str]]]
    antipatterns: Sequence[tuple[Assignment, str, tuple[int, ...]]]


def curate_run(session: Session, run_id: RunId) -> CuratorReport:
    """Keep what a delegation has learned for the next run of its workflow. Doing it again changes nothing, and what
    somebody has forgotten meanwhile stays forgotten.

    `run_id` is the run of the root manager."""
    with session.snapshot() as now:
        workflow = opened_run(now, check_name("run_id", run_id)).workflow.get("name", "")
    return _curated(session, run_id, workflow or run_id)


def curated_safely(session: Session, run_id: str, workflow: str) -> CuratorReport:
    """The same at the end of a loop, which never fails because of it: what goes wrong is in the report."""
    try:
        report = _curated(session, run_id, workflow)
    except Exception as error:  # noqa: BLE001  whatever it is, it is reported, and the run ends as it would have
        report = CuratorReport(run_id, workflow, errors=(f"{type(error).__name__}: {error}",))
    try:
        with session.snapshot() as now:
            scope = opened_run(now, run_id).scope
        record = RecordCuration(
            run_id, workflow, report.item_ids, tuple(error[:500] for error in report.errors)
        )
        session.within(scope).write("delegations.curated", record)
    except CommonplaceError as error:
        report = msgspec.structs.replace(
            report, errors=(*report.errors, f"it could not be recorded: {error}")
        )
    return report


def merged_reports(reports: Sequence[CuratorReport]) -> CuratorReport | None:
    """The reports of several delegations of one run as one."""
    if not reports:
        return None
    names = [name for name in CuratorReport.__struct_fields__ if name not in ("run_id", "workflow")]
    every = {name: tuple(each for report in reports for each in getattr(report, name)) for name in names}
    return CuratorReport(reports[-1].run_id, reports[-1].workflow, **every)


def _curated(session: Session, run: str, workflow: str) -> CuratorReport:
    with session.snapshot() as now:
        opened = opened_run(now, run)
        found = _findings(now, run)
        row = plans(now, run)
        told = [
            value for each in row.values() for value in _secrets_in(each["plan"], opened.policy.secret_fields)
        ]
        hide = redactor_of(now, run) | Redactor(secrets=told)
    # What workers do not share stays with their manager.
    manager = "" if opened.policy.strategy == "full" or not row else str(next(iter(row.values()))["manager"])
    return _Keeping(session.within(opened.scope), run, workflow, hide, manager).report(found)


def _secrets_in(value: Any, names: Collection[str]) -> Iterator[str]:
    """The texts that stand under secret names, at any depth."""
    for name, inner in value.items() if isinstance(value, dict) else ():
        if name in names and isinstance(inner, str):
            yield inner
        yield from _secrets_in(inner, names)
    for inner in value if isinstance(value, list) else ():
        yield from _secrets_in(inner, names)


def _findings(now: ViewReader, run: str) -> _Findings:
    below, root = with_those_below(now, {run}), delegation_of(now, run)
    each = [(id, digest) for id, _, digest in digests(now, root) if digest.run_id in below]
    counted = Counter(fact for _, digest in each for fact in dict.fromkeys(digest.key_facts))
    facts = [
        (fact, [id for id, digest in each if fact in digest.key_facts])
        for fact, count in counted.items()
        if count >= CONFIRMED
    ]
    made = [
        (name, row["spec"], row["id"])
        for name, row in sorted(tools(now, root).items())
        if row["run"] in below
    ]
    return _Findings(made, facts, list(_antipatterns(now, below)))


def _antipatterns(now: ViewReader, runs: Iterable[str]) -> Iterator[tuple[Assignment, str, tuple[int, ...]]]:
    """Dispatches that should not be made again, each once, with the reason and where that is recorded. One that failed
    and went well when it was tried again is none."""
    for run in sorted(runs):
        steps, found, well = steps_of(now, run, None), dict[str, Any](), set[str]()
        for iteration, row in plans(now, run).items():
            try:
                workers = decision_of(row["plan"], iteration).workers
            except BadInput:
                continue  # the loop has refused it as well, and says so
            for each in workers:
                step = steps.get(each.name)
                if step is None:
                    continue
                if why := _what_went_wrong(step):
                    found.setdefault(each.address, (each, why, (int(row["position"]), int(step["position"]))))
                elif step["status"] == FINISHED:
                    well.add(each.address)
        for address, antipattern in found.items():
            if address not in well or antipattern[1] == AGAIN:
                yield antipattern


def _what_went_wrong(step: dict[str, Any]) -> str:
    if step["status"] == SKIPPED and step["reason"].startswith(REDUNDANT):
        return AGAIN
    if step["status"] == FAILED:
        return f"worker error: {step['reason']}"[:300]
    sure = confidence_of(step["result"].get("output")) if step["status"] == FINISHED else None
    return f"confidence {sure:.2f}" if sure is not None and sure < LITTLE else ""


# keeping


def tag_of(workflow: str) -> str:
    """The tag of what was learned in runs of a workflow."""
    return f"workflow {workflow}"


class _Keeping:
    """Items of one workflow that are kept for one run."""

    def __init__(
        self, session: Session, run: str, workflow: str, hide: Callable[[Any], Any], manager: str
    ) -> None:
        """`manager`: for which manager alone it is kept; "" if for everybody."""
        self._session, self._run, self._workflow = session, run, workflow
        self._hide, self._manager = hide, manager
        self._items = [*curated_items(session, workflow, status=None)]
        self._ids: list[str] = []
        self._not_kept: list[tuple[str, str]] = []

    def report(self, found: _Findings) -> CuratorReport:
        """Keep all of it. What cannot be kept is named, and keeps nothing else from being kept."""
        kept: dict[str, list[str]] = {"added": [], "versioned": [], "facts": [], "antipatterns": []}
        keeping: list[tuple[str, Callable[[], str]]] = [
            *((name, partial(self._tool, name, spec, source)) for name, spec, source in found.tools),
            *((fact, partial(self._fact, fact, sources)) for fact, sources in found.facts),
            *(
                (each.address, partial(self._antipattern, each, why, positions))
                for each, why, positions in found.antipatterns
            ),
        ]
        for what, keep in keeping:
            try:
                if outcome := keep():
                    kept[outcome].append(what)
            except CommonplaceError as error:
                self._not_kept.append((what[:120], str(error)))
        return CuratorReport(
            self._run, self._workflow, tuple(kept["added"]), tuple(kept["versioned"]), tuple(kept["facts"]),
            tuple(kept["antipatterns"]), tuple(self._ids), tuple(self._not_kept),
        )  # fmt: skip

    def _keep(self, what: str, text: str, sources: list[str], *, kind: str = "note", **more: Any) -> bool:
        """Whether it is a new item. What is told apart by its title is no near-duplicate of another."""
        text = self._hide(text)
        metadata = {"run": self._run} | ({"manager": self._manager} if self._manager else {})
        result = remember(
            self._session, text, kind=kind, shared=not self._manager, parents=sources,
            tags=[CURATOR, what, tag_of(self._workflow)], metadata=metadata,
            provenance={"source_kind": "system", "channel": CURATOR}, **more,
        )  # fmt: skip
        near = result.held is not None and result.held.why == "near_duplicate"
        if near and what != "fact" and result.item_id:
            Memory(self._session).resolve(
                result.item_id, "create", rationale=f"another {what} of the workflow"
            )
        elif result.outcome in ("flagged", "rejected"):
            self._not_kept.append((text[:120], result.reason))
            return False
        if result.outcome == "merged" or result.item_id is None:
            return False
        self._ids.append(result.item_id)
        return True

    def _known(self, what: str, **fields: str) -> list[Item]:
        return [
            item
            for item in self._items
            if what in item.tags and all(getattr(item, name) == value for name, value in fields.items())
        ]

    def _tool(self, name: str, spec: dict[str, Any], source: str) -> str:
        name, spec = self._hide(name), self._hide(spec)
        version = sha256(json.dumps(spec, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]
        known = self._known("tool", title=name)
        if any(f"hash {version}" in (item.body or "") for item in known):
            return ""
        text = _version(len(known) + 1, version, self._run, spec)
        standing = [item.id for item in known if item.status == "live"]
        kept = self._keep("tool", text, [source], kind="procedure", title=name, supersedes=standing)
        return ("versioned" if known else "added") if kept else ""

    def _fact(self, fact: str, sources: list[str]) -> str:
        """A fact that is known, also by the word of another worker, is not kept again: a run that was told it repeats
        it. One that is confirmed anew counts as of now."""
        said = _said(self._hide(fact))
        for item in self._known("fact"):
            if _said(text_of(item)) == said or echo_among(
                {"kind": "note", "body": said}, [(item.id, [text_of(item)])]
            ):
                old = self._session.ledger.moment() - max(item.recorded_us, item.updated_us) > A_DAY
                if item.status == "live" and old and item.metadata.get("run") != self._run:
                    metadata = {**item.metadata, "run": self._run}
                    Memory(self._session).revise(item.id, metadata=metadata, why="confirmed again")
                return ""
        kept = self._keep("fact", fact, sources, reason="it stands in two or more digests of a run")
        return "facts" if kept else ""

    def _antipattern(self, assignment: Assignment, why: str, positions: tuple[int, ...]) -> str:
        title = f"Antipattern {assignment.address}"
        if self._known("antipattern", title=title):
            return ""
        text = f"{assignment.worker}: {assignment.instructions[:240]} ({why})"
        sources, reason = self._session.ledger.ids_at(positions), self._hide(why)
        kept = self._keep("antipattern", text, sources, title=title, category="feedback", reason=reason)
        return "antipatterns" if kept else ""


def _said(fact: str) -> str:
    """What a fact says, whichever worker has said it."""
    return " ".join(fact.partition(": ")[2].casefold().split()) or fact


def _version(number: int, hash: str, run: str, spec: dict[str, Any]) -> str:
    written = json.dumps(spec, sort_keys=True, ensure_ascii=False, indent=1)
    return f"## v{number}\nhash {hash}, made in run {run}\n{written}"


# reading


def curated_items(
    session: Session, workflow: str, at: At = None, status: str | None = "live"
) -> Iterable[Item]:
    """What the curator has kept, by the owner's hand, of runs of a workflow in the scope of the session."""
    with session.snapshot() as now:
        session = session.alone_in(now.scope)
    items = Memory(session).list(tags=[CURATOR, tag_of(workflow)], status=status, at=at)
    return [item for item in items if item.agent == OWNER]


def what_it_is(item: Item) -> str:
    return next((what for what in SECTIONS if what in item.tags), "fact")


def prior_runs(session: Session, workflow: str, *, max_chars: int = MOST_CHARS, at: At = None) -> PriorRuns:
    """What earlier runs of a workflow have left for the next one: known tools, confirmed facts of the last seven days,
    antipatterns to avoid.

    `workflow` is the name of the workflow."""
    items = [*curated_items(session, check_name("workflow", workflow), at)]
    return prior_block(session, items, check_whole("max_chars", max_chars), at)


def prior_for_manager(session: Session, reader: Session, workflow: str) -> PriorRuns:
    """The same for the manager of a run, with what was kept for it alone. `session` is the owner's, `reader` that of
    the manager."""
    items = [
        item
        for item in curated_items(session, workflow)
        if item.shared or item.metadata.get("manager") == reader.actor
    ]
    return prior_block(reader, items, MOST_CHARS)


def prior_block(session: Session, every: Sequence[Item], max_chars: int, at: At = None) -> PriorRuns:
    """Items that the curator has kept as a block of a prompt for an actor, who counts as shown them."""
    now_us, checks = session.ledger.moment(at), Checks(session, at)
    oldest = now_us - FACTS_FOR // timedelta(microseconds=1)
    with session.viewer(at) as viewer:
        allowed = viewer.settings.v1.allow_sensitivities
        items = [item for item in every if item.sensitivity in allowed]
        stale = {id: known.check.stale for id, known in checks.of(viewer.views, items).items()}
    hidden = len(every) - len(items)
    left_out = [LeftOut(number(hidden, "item"), "too sensitive for a prompt")] if hidden else []
    lines = list[PackLine]()
    for what, most in MOST.items():
        mine = sorted((item for item in items if what_it_is(item) == what), key=_newest_first)
        if what == "fact":
            mine = [item for item in mine if max(item.recorded_us, item.updated_us) >= oldest]
        shown = [item for item in mine if not item.expired(now_us) and not stale.get(item.id)]
        left_out += [LeftOut(f"{len(mine) - len(shown)} {what}s", "stale")] if len(shown) < len(mine) else []
        left_out += (
            [LeftOut(f"{len(shown) - most} {what}s", f"more than {most}")] if len(shown) > most else []
        )
        lines += [PackLine(item.id, what, "- ", _line(item)) for item in shown[:most]]
    packed = pack(lines, whole(max_chars), estimated, _framed)
    left_out += [LeftOut(id, why) for id, why in packed.omitted]
    if not session.refusal and not session.ledger.store.facts.read_only:
        checks.record()
    session.was_shown(packed.ids)
    return PriorRuns(packed.text, packed.ids, tuple(left_out))


def _newest_first(item: Item) -> tuple[int, str]:
    return -item.recorded_us, item.id


def _line(item: Item) -> str:
    if what_it_is(item) != "tool":
        mark = " (disputed)" if item.disputed else ""
        return as_data(text_of(item)) + mark
    version = _VERSION.match(item.body or "")
    written = (item.body or "")[version.end() if version else 0 :]
    try:
        written = json.dumps(json.loads(written), sort_keys=True, ensure_ascii=False)
    except ValueError:  # somebody has written it in other words
        pass
    return as_data(f"{item.title} (v{version[1] if version else 1}): {written}")[:240]


def _framed(lines: Sequence[PackLine]) -> str:
    parts = [HEADING]
    for what, title in SECTIONS.items():
        mine = [line.line for line in lines if line.kind == what]
        parts += [title, *mine] if mine else []
    return "\n".join(parts)


# the files beside the workflow


class CuratedFile(NamedTuple):
    """A file of what was curated: its path below the workflow's folder, its title, and its blocks in their order."""

    path: str
    title: str
    blocks: tuple[str, ...]
    between: str = "\n\n"

    def added_to(self, before: str) -> str:
        """The file with the blocks that it does not hold yet at its end; what people have written in it stays."""
        missing = [block for block in self.blocks if not self._holds(before, block)]
        if not missing:
            return before
        written = before.rstrip("\n") or f"# {self.title}"
        first = "\n\n" if written == f"# {self.title}" else self.between
        return written + first + self.between.join(missing) + "\n"

    def _holds(self, text: str, block: str) -> bool:
        return block in text.split("\n") if self.between == "\n" else block in text


def curated_files(items: Iterable[Item]) -> list[CuratedFile]:
    """What was curated as files: a recipe for each tool, the facts of each day, a page for each antipattern. What is
    sensitive stays in the book."""
    files, facts = list[CuratedFile](), dict[str, list[str]]()
    recipes = dict[str, str]()
    shown = (item for item in items if item.sensitivity != "sensitive")
    for item in sorted(shown, key=lambda item: (item.recorded_us, item.id)):
        title, text = item.title or "", text_of(item)
        match what_it_is(item):
            case "tool":
                name = _UNSAFE.sub("-", title)[:80].strip("-") or "tool"
                if (
                    recipes.setdefault(name, title) != title
                ):  # another tool whose name looks the same as a file's
                    name = f"{name[:71]}-{sha256(title.encode()).hexdigest()[:8]}"
                files.append(CuratedFile(f"tools/{name}.md", title, (text,)))
            case "antipattern":
                files.append(
                    CuratedFile(f"antipatterns/{title.removeprefix('Antipattern ')}.md", title, (text,))
                )
            case _:
                line = f"- [{item.metadata.get('run', '')}] {' '.join(text.split())}"
                facts.setdefault(f"{item.recorded_at:%Y-%m-%d}", []).append(line)
    days = [
        CuratedFile(f"facts/{day}.md", f"Facts ({day})", tuple(lines), "\n") for day, lines in facts.items()
    ]
    return [*files, *days]
