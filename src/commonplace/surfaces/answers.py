"""What the verbs' answers look like: one function for each type of answer, or for one verb where people need another
view of it. `--json` has the same as plain data."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..errors import BadInput, CommonplaceError
from ..ledger.events import iso
from ..verbs import Verb
from .draw import MADE_ID, Human, cut, id_cell, lines, page, short, table, width
from .sentences import sentence
from .shell import Output, Shell, plain

if TYPE_CHECKING:
    from ..participant import Participant

SHOWN = 2_000
"""Characters of one value that people see; --json has all of them."""

Render = Callable[[Shell, Any], Human]


def answer_of(shell: Shell, verb: Verb, found: Any) -> Output:
    """The answer of a verb for scripts and for people."""
    path = ".".join(verb.path)
    if isinstance(found, Iterator):
        found = list(found)
    many = isinstance(found, list | tuple)
    name = path if path in RENDER else f"[{_type(found[0])}]" if many and found else _type(found)
    render = RENDER.get(name, fields if hasattr(found, "__struct_fields__") else _plainly)
    empty = many and not found
    human = lines(EMPTY.get(path, "none")) if empty else render(shell, found)
    code = 1 if REFUSED.get(_type(found), lambda _found: False)(found) else 0
    return Output(data_of(found), human, code)


def data_of(found: Any) -> Any:
    """An answer as plain data."""
    match _type(found):
        case "str":
            return {"text": found}
        case "NoneType":
            return {"ok": True}
        case "list" | "tuple":
            return [data_of(each) if hasattr(each, "__struct_fields__") else plain(each) for each in found]
        case "Item":
            return {**plain(found), "text": found.text}
        case "LinkStep":
            return {**plain(found), "item": data_of(found.item)}
        case "Run":
            return {"run_id": found.id}
        case "Prompt":
            names = ("receipt_id", "omitted", "left_out")
            return {"text": str(found), **{name: plain(getattr(found, name)) for name in names}}
        case "Migrated":
            rows = [{**plain(each), "alike": each.alike} for each in found.compared]
            return {**plain(found), "alike": found.alike, "compared": rows}
        case "Adopted":
            return {**plain(found), "counts": found.counts}
        case "PurgeReport":
            files = [
                {"path": file.path, "outcome": file.outcome, "why": file.remains} for file in found.files
            ]
            return {**plain(found), "purged": found.purged, "files": files}
        case "Recollection":
            return {**plain(found), "events": [event.id for event in found.events]}
    return plain(found)


def _type(found: Any) -> str:
    return type(found).__name__


# ids

MADE = 36
"""The length of an id that the book has made."""
SHORTEST_END = 6
"""How many characters of such an id must be typed at least."""


def _in_works(me: Participant) -> Iterator[str]:
    """The ids of tasks, and of what was recorded about works: these are the ids of their events."""
    for event in me.events():
        if event.kind == "task.added":
            yield event.payload.get("task_id", "")
        elif event.kind.startswith("work."):
            yield event.id


IDS: dict[str, Callable[[Any], Iterable[str]]] = {
    "item": lambda me: (item.id for item in me.memory.list(status=None)),
    "receipt": lambda me: (event.id for event in me.events(kinds=("receipt.written",))),
    "run": lambda me: (run.id for run in me.runs.list()),
    "event": lambda me: (event.id for event in me.events()),
    "work": lambda me: (work.id for work in me.works.list()),
    "task": _in_works,
}
"""Where ids of each kind are found."""

OF = {
    "memory": {"id": "item", "kept": "item", "to": "item", "start": "item", "supersedes": "item"},
    "remember": {"supersedes": "item", "run_id": "run"},
    "receipts": {"id": "receipt", "run_id": "run", "without": "item"},
    "runs": {"run_id": "run", "fork": "run"},
    "access": {"id": "event", "run_id": "run"},
    "admin": {"ids": "event"},
}
"""Which parameters of a namespace's verbs are ids, and of what."""


def whole_ids(me: Any, verb: Verb, given: Mapping[str, Any]) -> dict[str, Any]:
    """What was typed with ids as they are: any unique end of one will do."""
    known, found = OF.get(verb.path[0], {}), dict(given)
    for name, kind in known.items():
        value = found.get(name)
        if isinstance(value, str):
            found[name] = whole_id(me, kind, value)
        elif isinstance(value, list):
            found[name] = [whole_id(me, kind, each) for each in value]
    return found


def whole_id(me: Any, kind: str, typed: str) -> str:
    """The id that ends as was typed, of those that the book has made: an id that somebody chose is typed whole, so that
    no command reaches another thing than the one that was meant. What no id ends with stays as it is, and the verb says
    what is missing."""
    if not SHORTEST_END <= len(typed) < MADE:
        return typed
    if kind == "task":
        with suppress(CommonplaceError):  # one that somebody chose: no need to look at all of them
            me.works.containing(typed)
            return typed
    matching = list(dict.fromkeys(id for id in IDS[kind](me) if id.endswith(typed)))
    if typed in matching:
        return typed
    matching = [id for id in matching if MADE_ID.fullmatch(id)]
    if not matching:
        return typed
    if len(matching) > 1:
        raise BadInput(
            f"{typed!r} ends several ids: {', '.join(matching[:8])}; type more of the one you mean"
        )
    return matching[0]


# memory


def _remarked(item: Any) -> str:
    from ..memory.items import remarks

    return ", ".join((item.status, *remarks(item, time.time_ns() // 1000)))


def _items(_shell: Shell, items: Sequence[Any]) -> Human:
    rows = (
        [id_cell(one.id), one.kind, _remarked(one), one.agent, one.sensitivity, one.text[:160]]
        for one in items
    )
    return table(rows, "id", "kind", "status", "whose", "sensitivity", "text")


def _item(_shell: Shell, item: Any) -> Human:
    return lines(f"{short(item.id)} is {item.status}: {item.text}")


def _kept(shell: Shell, kept: Any) -> Human:
    """What became of something to remember, with the command that settles it if it is held."""
    settling = shell.next_command("memory", "resolve", short(kept.item_id), "CHOICE", "--rationale", "WHY")
    superseding = shlex.join(word for id in kept.near for word in ("--supersedes", short(id)))
    yield short(kept.told(settling, superseding))  # no line break within a command
    yield from lines(*map(short, kept.held.comparison.splitlines())) if kept.held else ()


def _compared(_shell: Shell, items: Sequence[Any]) -> Human:
    for one in items:
        comparison = one.held.comparison if one.held else ""
        yield from lines(short(one.id), *(f"  {short(line)}" for line in comparison.splitlines()))


def _tombstones(_shell: Shell, found: Sequence[Any]) -> Human:
    rows = (
        [id_cell(one.id), one.agent, one.deleted_at[:19], one.deleted_by, one.reason, one.erased]
        for one in found
    )
    return table(rows, "id", "whose", "when", "by", "reason", "erased")


def _cores(_shell: Shell, found: Sequence[Any]) -> Human:
    rows = ((one.id, one.name, one.type, one.visibility, one.owner, one.description) for one in found)
    return table(rows, "id", "name", "type", "visible to", "owner", "description")


def _suggestions(_shell: Shell, found: Sequence[Any]) -> Human:
    return lines(
        *(f"{one.act} {' '.join(map(short, one.items))} {' '.join(one.tags)} ({one.why})" for one in found)
    )


def _steps(_shell: Shell, found: Sequence[Any]) -> Human:
    rows = ([one.depth, one.relation, id_cell(one.item.id), one.item.text[:160]] for one in found)
    return table(rows, "steps", "relation", "item", "text")


def _curated(_shell: Shell, done: Any) -> Human:
    for one in done["found"]:
        yield from lines(
            f"+ {one['text']}  [{one['outcome']}]", *(f"    {cited}" for cited in one["citations"])
        )
    yield from lines(f"{done['lines']} lines looked at, {len(done['found'])} of them recur")


def _upkeep(_shell: Shell, done: Any) -> Human:
    for chore in done.chores:
        yield from lines(f"{chore.act}: {chore.why}", *(f"    {short(name)}" for name in chore.names))
    yield from lines(*(f"left alone: {one}" for one in done.left_alone))
    yield from lines(f"{done.items} items, {done.chars:,} characters")


def adopted(_shell: Shell, found: Any) -> Human:
    rows = (
        [one.source, one.kind, one.outcome, id_cell(one.id or ""), one.reason[:160]] for one in found.became
    )
    yield from table(rows, "source", "kind", "became", "id", "why")
    yield from lines(*(f"left out {one.source}: {one.why}" for one in found.skipped))
    told = ", ".join(f"{count} {outcome}" for outcome, count in found.counts.items()) or "nothing"
    yield from lines(f"{found.format}: {told}; {len(found.skipped)} left out, {found.links} links")


# documents


def _text(_shell: Shell, text: str) -> Human:
    return page(text)


def _pages(_shell: Shell, found: Mapping[str, str]) -> Human:
    if not found:
        yield from lines("nothing is written down about it: `commonplace documents add-to-task` does")
    for name, text in found.items():
        yield from lines(f"== {name}")
        yield from page(text)


def _entries(_shell: Shell, found: Sequence[Any]) -> Human:
    for entry in found:
        yield from page(f"{entry.markdown}\n")


# recall


def _found(_shell: Shell, found: Any) -> Human:
    results = found.results
    if not results:
        yield from lines("nothing was found: try fewer or other words")
    rows = (
        [
            f"{hit.score:.2f}", id_cell(hit.id), hit.tier, f"{hit.timestamp:%Y-%m-%d}",
            f"[{hit.marks}] {hit.content}" if hit.marks else hit.content,
        ]
        for hit in results
    )  # fmt: skip
    yield from table(rows, "score", "id", "tier", "when", "what") if results else ()
    yield from lines(*(f"{short(hit.id)}: {hit.why}" for hit in results if hit.why))
    corrected = [f"{typed!r} was read as {meant!r}" for typed, meant in found.corrected.items()]
    yield from lines(f"{found.total} found, as of {found.as_of}", *corrected)
    yield from lines(*(f"left out: {one.what} ({one.why})" for one in found.left_out))


def _digest(_shell: Shell, found: Any) -> Human:
    yield from page(found.text)
    yield from lines(*(f"left out: {short(id)} ({why})" for id, why in found.omitted))
    yield from lines(*(f"left out: {one.what} ({one.why})" for one in found.left_out))
    if found.kept or found.rebased:
        yield from lines(
            f"{found.kept} characters are as they were", *([found.rebased] if found.rebased else [])
        )
    if found.receipt_id:
        yield from lines(f"receipt {short(found.receipt_id)}, as of {found.as_of}")


def _prompt(_shell: Shell, found: Any) -> Human:
    return page(str(found))


def _receipt(_shell: Shell, found: Any) -> Human:
    where = f" in run {found.run}" if found.run else ""
    yield from lines(
        f"for {found.by}{where}, as of {found.as_of}, at {found.now:%Y-%m-%d %H:%M:%S}",
        f"asked: {found.request.get('query', '')}",
        f"index: {found.index}",
        *([f"memory was left out: {found.ignored}"] if found.ignored else []),
    )
    rows = ([id_cell(item), version, line] for item, version, line in found.included)
    yield from table(rows, "item", "version", "line")
    yield from lines(*(f"left out: {number} ({why})" for why, number in found.omitted.items()))
    if found.trace is not None:
        tried = ([one.via, f"{one.score:.3f}", id_cell(one.id), one.barred] for one in found.trace.candidates)
        yield from table(tried, "found by", "score", "candidate", "why not")
    if found.missing:
        yield from lines(f"no trace: {found.missing}")


def _receipts(_shell: Shell, found: Sequence[Any]) -> Human:
    rows = (
        [id_cell(one.id), one.by, one.run or "", one.as_of, len(one.included), one.request.get("query", "")]
        for one in found
    )
    return table(rows, "id", "for", "run", "as of", "items", "asked")


def bisected(_shell: Shell, found: Any, lost_lines: bool) -> Human:
    rows = (
        [id_cell(one.item), len(one.changed), one.lines, ", ".join(map(short, one.with_it))]
        for one in found.effects
    )
    yield from (
        table(rows, "without", "digests changed", "lines", "and what came from it") if found.effects else ()
    )
    for effect in found.effects if lost_lines else ():
        for one in effect.changed:
            yield from lines(f"receipt {short(one.receipt)}:", *(f"- {line}" for line in one.lost))
            yield from lines(*(f"+ {line}" for line in one.gained))
    yield from lines(
        f"{found.receipts} digests looked at", *(f"not {short(id)}: {why}" for id, why in found.unread)
    )


def _recent(_shell: Shell, found: Any) -> Human:
    return page("\n".join(filter(None, (found.text, found.fallback))))


# events and runs


def log_lines(events: Iterable[Any], title: Callable[[str], str] = short) -> Human:
    """One sentence for each event: who did what to what."""
    room = width()
    for event in events:
        when = f"{event.created_at:%m-%d %H:%M:%S}" if room >= 60 else f"{event.created_at:%H:%M}"
        told = f"{event.position:>5}  {when}  {sentence(event, title)}"
        run = f"  [{cut(short(event.run_id), 20)}]" if event.run_id and room >= 60 else ""
        yield cut(told, room - len(run)) + run


def _event(_shell: Shell, event: Any) -> Human:
    return lines(f"{event.position} {event.id}")


def _events_listed(_shell: Shell, events: Sequence[Any]) -> Human:
    return log_lines(events)


def _runs(_shell: Shell, found: Sequence[Any]) -> Human:
    rows = (
        [id_cell(run.id), run.first, run.status or "", run.workflow or "", short(run.forked_from or "")]
        for run in found
    )
    return table(rows, "run", "first position", "status", "workflow", "forked from")


def _forked(_shell: Shell, run: Any) -> Human:
    return lines(f"{short(run.id)} begins as it was; `commonplace runs diff` compares them")


def _differences(_shell: Shell, found: Sequence[Any]) -> Human:
    marks = {"added": "+", "removed": "-", "changed": "~"}
    return table(
        ([marks[one.change], one.path, value_text(one.before), value_text(one.after)] for one in found),
        "", "field", "before", "after",
    )  # fmt: skip


def _merged(_shell: Shell, done: Any) -> Human:
    return lines(f"merged into {short(done.into)}: {', '.join(done.fields) or 'nothing'}")


def value_text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text):,} characters; --json shows all)"


# the book


def _verification(_shell: Shell, found: Any) -> Human:
    if found.ok:
        return lines(
            f"the chain holds: {found.events:,} events, {found.erased:,} of them erased, head {found.hash}"
        )
    where = "" if found.first_bad is None else f"the chain is broken at position {found.first_bad}: "
    return lines(f"{where}{found.problem}")


def _rebuilt(_shell: Shell, built: Any) -> Human:
    return lines(f"built {', '.join(built.views)} from {built.events:,} events")


def imported(_shell: Shell, taken: Any) -> Human:
    how = "with their positions and hashes" if taken.exact else "recorded anew, with their origin named"
    yield from lines(
        f"{taken.events:,} events taken in {how}; {taken.already:,} were here; head {taken.head}"
    )
    yield from table(taken.left_out, "left out", "why") if taken.left_out else ()


def _purged(_shell: Shell, report: Any) -> Human:
    rows = [*(("done", done) for done in report.done), *(("remains", what) for what in report.remaining)]
    rows += [("purged", file.path) for file in report.files if not file.remains]
    return table(rows or [("done", "nothing was left to clear")])


def _traces(_shell: Shell, found: Sequence[Any]) -> Human:
    return lines(*(f"text {one.text + 1} is still in {one.path}" for one in found))


def _migrated(_shell: Shell, found: Any) -> Human:
    from ..recall.index_migration import TOP

    rows = ((f"{one.alike:.0%}", one.actor, one.query[:100]) for one in found.compared)
    yield from table(rows, "found by both", "who asked", "what") if found.compared else ()
    yield from lines(
        f"{len(found.compared)} queries compared, {found.alike:.0%} of the first {TOP} results are the same",
        "every process uses it from now on" if found.switched else "nothing was changed: --switch uses it",
    )


def _granted(_shell: Shell, _found: None) -> Human:
    return lines("done")


def _audit(_shell: Shell, entries: Sequence[Any]) -> Human:
    rows = ([value_text(value) for value in plain(entry).values()] for entry in entries)
    return table(rows, *(name.replace("_", " ") for name in plain(entries[0])))


# works


def words(status: str) -> str:
    return status.replace("_", " ")


def whose(task: Any) -> str:
    """Who has a task, or whom it is for."""
    return task.assigned_to or (f"any {task.for_role}" if task.for_role else "")


def standing(task: Any) -> str:
    """The status of a task as a board has it: of what is pending, whether it can be claimed."""
    if task.status != "pending":
        return words(task.status)
    return "blocked" if task.waits else "ready"


def one_work(_shell: Shell, info: Any) -> Human:
    return lines(f"{short(info.id)} is {info.status}: {info.name}")


def _works(_shell: Shell, found: Sequence[Any]) -> Human:
    rows = ([id_cell(one.id), one.status, one.name, one.goal, one.leader or ""] for one in found)
    return table(rows, "id", "status", "name", "goal", "led by")


def one_task(_shell: Shell, task: Any) -> Human:
    return lines(f"{short(task.id)} is {words(task.status)}: {task.title}")


def tasks_table(_shell: Shell, found: Sequence[Any]) -> Human:
    rows = (
        [id_cell(task.id), standing(task), task.priority, task.title, whose(task), task.waits or ""]
        for task in found
    )
    return table(rows, "id", "status", "priority", "task", "who", "waits for")


def _decision(one: Any) -> Iterator[str]:
    yield f"{short(one.id)}  {one.question} {one.choice} ({one.status} by {one.by}, {iso(one.at_us)[:16]}Z)"
    if one.rationale:
        yield f"    because {one.rationale}"
    if one.alternatives:
        yield f"    not {', '.join(one.alternatives)}"


def decision_lines(_shell: Shell, found: Sequence[Any]) -> Human:
    for one in found:
        yield from lines(*_decision(one))


def one_record(shell: Shell, found: Any) -> Human:
    return records(shell, [found])


def records(_shell: Shell, found: Sequence[Any]) -> Human:
    return lines(*(f"{short(one.id)}: {gist(one)}" for one in found))


def _context(_shell: Shell, found: Any) -> Human:
    yield from page(found.text)
    yield from lines(*(f"left out: {short(id)} ({why})" for id, why in found.left_out))


def _overlaps(_shell: Shell, found: Sequence[Any]) -> Human:
    rows = ([f"{one.score:.2f}", one.kind, one.status, one.text, id_cell(one.id)] for one in found)
    return table(rows, "alike", "what", "status", "text", "id")


def _contributions(_shell: Shell, found: Sequence[Any]) -> Human:
    names = ("tasks", "reviews", "decisions", "discoveries", "artifacts")
    rows = (
        (one.agent, one.role or "", *(len(getattr(one, name)) for name in names), one.log_ref)
        for one in found
    )
    return table(rows, "agent", "role", *names, "log")


# what waits for people


def inbox(_shell: Shell, found: Any) -> Human:
    rows: list[list[object]] = []
    for name in ("held", "disputes", "proposals"):
        rows += [[name.removesuffix("s"), "", id_cell(item.id), item.text] for item in getattr(found, name)]
    for waits in found.works:
        for name in waits.inbox.__struct_fields__:
            for one in getattr(waits.inbox, name):
                rows.append(
                    [name.removesuffix("s").replace("_", " "), waits.name, id_cell(one.id), gist(one)]
                )
    if not rows:
        return lines("nothing waits for a person")
    return table(rows, "waits", "work", "id", "what")


def gist(found: Any) -> str:
    """What a task, a decision, a nudge or the like says, on one line; of a task, who did it."""
    names = (
        "type", "kind", "priority", "status", "title", "path", "question", "choice", "action", "risk", "text", "answer",
        "reason",
    )  # fmt: skip
    said = [str(value) for name in names if (value := getattr(found, name, ""))]
    who = (
        getattr(found, "completed_by", None)
        or getattr(found, "assigned_to", None)
        or getattr(found, "by", None)
    )
    return ", ".join([*said, *([who] if who else [])])


# anything else


def fields(_shell: Shell, found: Any) -> Human:
    """Names and values, without those that are empty."""
    shown = data_of(found) if not isinstance(found, Mapping) else found
    rows = (
        (name.replace("_", " "), value_text(value))
        for name, value in shown.items()
        if value not in (None, "", [], {})
    )
    return table(rows)


def _plainly(_shell: Shell, found: Any) -> Human:
    if isinstance(found, Mapping):
        return fields(_shell, found)
    many = found if isinstance(found, list | tuple) else [found]
    if many and hasattr(many[0], "__struct_fields__"):
        chosen = many[0].__struct_fields__[:6]
        return table(([value_text(plain(getattr(one, name))) for name in chosen] for one in many), *chosen)
    return lines(*(short(one) if isinstance(one, str) else value_text(plain(one)) for one in many))


RECORDS = ("Decision", "Discovery", "Artifact", "Nudge", "Approval", "Escalation", "Branch", "Candidate")

RENDER: dict[str, Render] = {
    "[Item]": _items, "Item": _item, "memory.get": fields, "memory.disputes": _compared, "RememberResult": _kept,
    "[Tombstone]": _tombstones, "[Core]": _cores, "[Suggestion]": _suggestions, "[LinkStep]": _steps,
    "memory.curate": _curated, "Upkeep": _upkeep, "str": _text, "documents.task": _pages, "[LogEntry]": _entries,
    "Answer": _found, "Digest": _digest, "Prompt": _prompt, "Receipt": _receipt, "[Receipt]": _receipts,
    "Recollection": _recent, "Event": _event, "[Event]": _events_listed, "[RunInfo]": _runs, "Run": _forked,
    "[Difference]": _differences, "Merged": _merged, "Verification": _verification, "Rebuilt": _rebuilt,
    "PurgeReport": _purged, "[FoundText]": _traces, "Migrated": _migrated, "NoneType": _granted, "Waiting": inbox,
    "access.audit": _audit, "WorkInfo": one_work, "[WorkInfo]": _works, "Task": one_task, "[Task]": tasks_table,
    "task/info": fields, "Context": _context, "[Overlap]": _overlaps,
    "[Contribution]": _contributions,
    **dict.fromkeys(RECORDS, one_record), **{f"[{name}]": records for name in RECORDS if name != "Decision"},
}  # fmt: skip
"""How each answer looks, by the verb's path or by its type; `[…]` is a list of them."""

EMPTY = {
    "memory.list": "nothing is remembered yet: `commonplace remember TEXT` keeps something",
    "memory.long_term": "MEMORY.md is empty: what is remembered with --shared stands there",
    "memory.held": "nothing is held",
    "memory.disputes": "nothing is disputed",
    "memory.tombstones": "nothing was forgotten",
    "memory.cores": "there are no cores: `commonplace memory set-core ID name=NAME` makes one",
    "memory.suggestions": "nothing to suggest",
    "memory.traverse": "no link leads from it: `commonplace memory link ITEM RELATION ITEM` makes one",
    "documents.days": "nothing was logged yet: `commonplace documents log TEXT` does",
    "documents.day": "nothing was logged on that day",
    "documents.list": "nothing is written down yet: `commonplace documents write-notes TEXT` does",
    "receipts.list": "no digest or prompt was made yet: `commonplace digest TASK` makes one",
    "runs.list": "there are no runs yet: `commonplace run DIR` starts one",
    "runs.diff": "no difference",
    "admin.find_text": "none of the texts is anywhere in the raw files",
    "access.audit": "nothing was granted or denied yet",
    "works.list": "there are no works yet: `commonplace work new NAME` begins one",
    "task/radar": "nothing makes it needless",
    "work/read_messages": "there is nothing to be told",
    "work/candidates": "nothing waits to be learned",
}
"""What is said where there is nothing, and what to do next."""

REFUSED: dict[str, Callable[[Any], bool]] = {
    "RememberResult": lambda kept: kept.outcome == "rejected",
    "Verification": lambda found: not found.ok,
    "list": lambda found: bool(found) and _type(found[0]) == "FoundText",
}
"""When an answer is a refusal, for scripts: exit code 1."""
