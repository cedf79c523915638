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
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ..errors import BadInput, CommonplaceError
from ..ledger.checks import check_name, check_whole
from ..ledger.printing import LeftOut, Readable, number
from ..memory.items import Item
from ..memory.remember import remember
from ..memory.verbs import Memory
from ..recall.escaping import as_data
from ..recall.lines import text_of
from ..recall.packing import PackLine, estimated, pack, whole
from ..recall.verification import Checks
from ..state.redaction import with_those_below
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

HEADING = "## PRIOR RUN MEMORY"
SECTIONS = {
    "tool": "### Known Tools",
    "fact": "### Confirmed Facts",
    "antipattern": "### Antipatterns to Avoid",
}
MOST = {"tool": 50, "fact": 20, "antipattern": 10}
FACTS_FOR = timedelta(days=7)
MOST_CHARS = 3_000
_VERSION = re.compile(r"(?m)^## v\d+\nhash .*\n")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class CuratorReport(Readable, msgspec.Struct, frozen=True):
    """What the curator has kept of a run, what of it waits for a person or was refused, and what went wrong."""

    run_id: str
    workflow: str
    tools_added: tuple[str, ...] = ()
    tools_versioned: tuple[str, ...] = ()
    facts_added: tuple[str, ...] = ()
    antipatterns_added: tuple[str, ...] = ()
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
    """What there is to keep of a delegation, each with the events that it comes from."""

    tools: Sequence[tuple[str, dict[str, Any], str]]
    facts: Sequence[tuple[str, list[str]]]
    antipatterns: Sequence[tuple[Assignment, str, list[str]]]


def curate_run(session: Session, run_id: RunId) -> CuratorReport:
    """Keep what a delegation has learned for the next run of its workflow. Doing it again changes nothing.

    `run_id` is the run of the root manager."""
    with session.snapshot() as now:
        root = delegation_of(now, check_name("run_id", run_id))
        opened = opened_run(now, root)
        found = _findings(now, root)
    return _kept(session.within(opened.scope), root, opened.workflow.get("name", "") or root, found)


def curated_safely(session: Session, run_id: str) -> CuratorReport:
    """The same at the end of a run, which never fails because of it: what goes wrong is in the report."""
    try:
        report = curate_run(session, run_id)
    except Exception as error:  # noqa: BLE001  whatever it is, it is reported, and the run ends as it would have
        report = CuratorReport(run_id, "", errors=(f"{type(error).__name__}: {error}",))
    try:
        with session.snapshot() as now:
            scope = opened_run(now, run_id).scope
        session.within(scope).write(
            "delegations.curated", RecordCuration(run_id, msgspec.to_builtins(report))
        )
    except CommonplaceError as error:
        report = msgspec.structs.replace(
            report, errors=(*report.errors, f"it could not be recorded: {error}")
        )
    return report


def _findings(now: ViewReader, root: str) -> _Findings:
    each = digests(now, root)
    counted = Counter(fact for _, _, digest in each for fact in dict.fromkeys(digest.key_facts))
    facts = [
        (fact, [id for id, _, digest in each if fact in digest.key_facts])
        for fact, count in counted.items()
        if count >= CONFIRMED
    ]
    made = [(name, row["spec"], row["id"]) for name, row in sorted(tools(now, root).items())]
    return _Findings(made, facts, list(_antipatterns(now, root)))


def _antipatterns(now: ViewReader, root: str) -> Iterator[tuple[Assignment, str, list[str]]]:
    """Dispatches that should not be made again, each once, with the reason and the plan that made it."""
    known = set[str]()
    for run in sorted(with_those_below(now, {root})):
        steps = steps_of(now, run, None)
        for iteration, row in plans(now, run).items():
            try:
                workers = decision_of(row["plan"], iteration).workers
            except BadInput:
                continue  # the loop has refused it as well, and says so
            for assignment in workers:
                why = _what_went_wrong(steps.get(assignment.name))
                if why and assignment.address not in known:
                    known.add(assignment.address)
                    yield assignment, why, [row["id"]]


def _what_went_wrong(step: dict[str, Any] | None) -> str:
    if step is None:
        return ""
    if step["status"] == SKIPPED and step["reason"].startswith(REDUNDANT):
        return REDUNDANT
    if step["status"] == FAILED:
        return f"worker error: {step['reason']}"[:300]
    sure = confidence_of(step["result"].get("output")) if step["status"] == FINISHED else None
    return f"confidence {sure:.2f}" if sure is not None and sure < LITTLE else ""


# keeping


def tag_of(workflow: str) -> str:
    """The tag of what was learned in runs of a workflow."""
    return f"workflow {workflow}"


def _kept(session: Session, run: str, workflow: str, found: _Findings) -> CuratorReport:
    keeping = _Keeping(session, run, workflow)
    added, versioned = list[str](), list[str]()
    for name, spec, source in found.tools:
        if outcome := keeping.tool(name, spec, source):
            (added if outcome == "added" else versioned).append(name)
    facts = [
        fact
        for fact, sources in found.facts
        if keeping.keep("fact", fact, sources, reason="it stands in two or more digests of a run")
    ]
    antipatterns = [
        assignment.address
        for assignment, why, sources in found.antipatterns
        if keeping.antipattern(assignment, why, sources)
    ]
    return CuratorReport(
        run, workflow, tuple(added), tuple(versioned), tuple(facts), tuple(antipatterns), tuple(keeping.not_kept)
    )  # fmt: skip


class _Keeping:
    """Items of one workflow that are kept for one run."""

    def __init__(self, session: Session, run: str, workflow: str) -> None:
        self._session, self._run, self._workflow = session, run, workflow
        self._items = [*curated_items(session, workflow)]
        self.not_kept: list[tuple[str, str]] = []

    def keep(self, what: str, text: str, sources: list[str], *, kind: str = "note", **more: Any) -> bool:
        """Whether it is a new item."""
        result = remember(
            self._session, text, kind=kind, shared=True, parents=sources,
            tags=[CURATOR, what, tag_of(self._workflow)], metadata={"run": self._run},
            provenance={"source_kind": "system", "channel": CURATOR}, **more,
        )  # fmt: skip
        if result.outcome in ("flagged", "rejected"):
            self.not_kept.append((text[:120], result.reason))
        return result.outcome == "stored"

    def tool(self, name: str, spec: dict[str, Any], source: str) -> str:
        """Whether it was added or versioned; "" if this version is known."""
        version = sha256(json.dumps(spec, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]
        known = next((item for item in self._items if "tool" in item.tags and item.title == name), None)
        if known is None:
            text = _version(1, version, self._run, spec)
            return "added" if self.keep("tool", text, [source], kind="procedure", title=name) else ""
        if f"hash {version}" in (known.body or ""):
            return ""
        count = len(_VERSION.findall(known.body or ""))
        text = f"{known.body}\n\n{_version(count + 1, version, self._run, spec)}"
        Memory(self._session).revise(known.id, text=text, why=f"the run {self._run} has made another version")
        return "versioned"

    def antipattern(self, assignment: Assignment, why: str, sources: list[str]) -> bool:
        title = f"Antipattern {assignment.address}"
        if any(item.title == title for item in self._items):
            return False
        text = f"{assignment.worker}: {assignment.instructions[:240]} ({why})"
        return self.keep("antipattern", text, sources, title=title, category="feedback", reason=why)


def _version(number: int, hash: str, run: str, spec: dict[str, Any]) -> str:
    written = json.dumps(spec, sort_keys=True, ensure_ascii=False, indent=1)
    return f"## v{number}\nhash {hash}, made in run {run}\n{written}"


# reading


def curated_items(session: Session, workflow: str, at: At = None) -> Iterable[Item]:
    """What the curator has kept of runs of a workflow and still holds."""
    return Memory(session).list(tags=[CURATOR, tag_of(workflow)], at=at)


def what_it_is(item: Item) -> str:
    return next((what for what in SECTIONS if what in item.tags), "fact")


def prior_runs(session: Session, workflow: str, *, max_chars: int = MOST_CHARS, at: At = None) -> PriorRuns:
    """What earlier runs of a workflow have left for the next one: known tools, confirmed facts of the last seven days,
    antipatterns to avoid.

    `workflow` is the name of the workflow."""
    now_us, checks = session.ledger.moment(at), Checks(session, at)
    every = [*curated_items(session, check_name("workflow", workflow), at)]
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
            mine = [item for item in mine if item.recorded_us >= oldest]
        shown = [item for item in mine if not item.expired(now_us) and not stale.get(item.id)]
        left_out += [LeftOut(f"{len(mine) - len(shown)} {what}s", "stale")] if len(shown) < len(mine) else []
        left_out += (
            [LeftOut(f"{len(shown) - most} {what}s", f"more than {most}")] if len(shown) > most else []
        )
        lines += [PackLine(item.id, what, "- ", _line(item)) for item in shown[:most]]
    packed = pack(lines, whole(check_whole("max_chars", max_chars)), estimated, _framed)
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
    versions = _VERSION.split(item.body or "")
    try:
        spec = json.dumps(json.loads(versions[-1]), sort_keys=True, ensure_ascii=False)
    except ValueError:  # somebody has written it in other words
        spec = versions[-1]
    return as_data(f"{item.title} (v{max(1, len(versions) - 1)}): {spec}")[:240]


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
    shown = (item for item in items if item.sensitivity != "sensitive")
    for item in sorted(shown, key=lambda item: (item.recorded_us, item.id)):
        title, text = item.title or "", text_of(item)
        match what_it_is(item):
            case "tool":
                name = _UNSAFE.sub("-", title)[:80] or "tool"
                versions = re.split(r"\n\n(?=## v\d+\n)", text)
                files.append(CuratedFile(f"tools/{name}.md", title, tuple(versions)))
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
