"""What the verbs' answers look like: one function for each type of answer, or for one verb where people need another
view of it. `--json` has the same as plain data."""

from __future__ import annotations

import json
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..errors import BadInput, CommonplaceError
from ..ledger.checks import iso
from ..ledger.printing import number
from ..verbs import Verb
from .data import data_of, plain
from .draw import MADE_ID, Human, continued, cut, id_cell, lines, page, short, table, width
from .sentences import sentence
from .shell import Output, Shell

if TYPE_CHECKING:
    from ..participant import Participant

SHOWN = 2_000
"""Characters of one value that people see; --json has all of them."""

Render = Callable[[Shell, Any], Human]


def answer_of(shell: Shell, verb: Verb, answer: Any) -> Output:
    """The answer of a verb for scripts and for people."""
    path = verb.dotted
    if isinstance(answer, Iterator):
        answer = list(answer)
    many = isinstance(answer, list | tuple)
    name = path if path in RENDER else f"[{_type(answer[0])}]" if many and answer else _type(answer)
    usual = fields if hasattr(answer, "__struct_fields__") else _plainly
    render = RENDER.get(name, _as_it_reads if verb.path[0] == "learn" and answer is not None else usual)
    empty = many and not answer
    empty = empty or (path in EMPTY and hasattr(answer, "__struct_fields__") and not str(answer))
    human = lines(EMPTY.get(path, "none")) if empty else render(shell, answer)
    code = 1 if REFUSED.get(_type(answer), lambda _answer: False)(answer) else 0
    data = {"ok": True} if answer is None else {"text": answer} if type(answer) is str else data_of(answer)
    return Output(data, human, code)


def _type(answer: Any) -> str:
    return type(answer).__name__


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
    "message": lambda _me: (),  # of a message, its number is typed, or the id that it came with
}
"""Where ids of each kind are found. All others are of tasks, and of what was recorded about works."""


def whole_ids(me: Participant, verb: Verb, given: Mapping[str, Any]) -> dict[str, Any]:
    """What was typed, with ids as they are: any unique end of one will do."""
    kinds = {parameter.name: parameter.id_of for parameter in verb.parameters}

    def whole(kind: str, value: Any) -> Any:
        if isinstance(value, str):
            return whole_id(me, kind, value)
        if isinstance(value, list):
            return [whole(kind, each) for each in value]
        return {name: whole(kind, each) for name, each in value.items()} if isinstance(value, dict) else value

    return {name: whole(kinds[name], value) if kinds.get(name) else value for name, value in given.items()}


def whole_id(me: Any, kind: str, typed: str) -> str:
    """The id that ends as was typed, of those that the book has made: an id that somebody chose is typed whole, so that
    no command reaches another thing than the one that was meant. What no id ends with stays as it is, and the verb says
    what is missing."""
    if not SHORTEST_END <= len(typed) < MADE:
        return typed
    if kind not in IDS:
        with suppress(CommonplaceError):  # one that somebody chose: no need to look at all of them
            me.works.containing(typed)
            return typed
    matching = list(dict.fromkeys(id for id in IDS.get(kind, _in_works)(me) if id.endswith(typed)))
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
        [id_cell(item.id), item.kind, _remarked(item), item.agent, item.sensitivity, item.text[:160]]
        for item in items
    )
    return table(rows, "id", "kind", "status", "whose", "sensitivity", "text")


def _list(shell: Shell, listed: Any) -> Human:
    if listed:
        yield from _items(shell, listed)
    else:
        yield from lines(EMPTY["memory.list"] if not listed.left_out else "none")
    yield from _rest_of_list(listed)


def _rest_of_list(listed: Any) -> Human:
    """What a page leaves out, and where the next one begins."""
    for part in listed.left_out:
        yield from lines(f"left out: {part.what} ({part.why.partition(':')[0]})")
    if listed.cursor:
        yield from lines(f"the next page: --after {listed.cursor}")


def _item(_shell: Shell, item: Any) -> Human:
    return lines(f"{short(item.id)} is {item.status}: {item.text}")


def _kept(shell: Shell, kept: Any) -> Human:
    """What became of something to remember, with the command that settles it if it is held."""
    settling = shell.next_command("memory", "resolve", short(kept.item_id), "CHOICE", "--rationale", "WHY")
    superseding = shlex.join(word for id in kept.replaceable for word in ("--supersedes", short(id)))
    yield short(kept.told(settling, superseding))  # no line break within a command
    yield from lines(*map(short, kept.held.comparison.splitlines())) if kept.held else ()


def kept_many(_shell: Shell, results: Sequence[Any]) -> Human:
    """What became of many entries: those that were not simply stored one by one, and how many there are of each."""
    others = [
        (number, result)
        for number, result in enumerate(results, 1)
        if result.outcome != "stored" or result.advice
    ]
    rows = (
        [number, result.outcome, id_cell(result.item_id or ""), result.reason or result.advice]
        for number, result in others
    )
    if others:
        yield from table(rows, "entry", "became", "id", "why")
    counts = Counter(result.outcome for result in results)
    yield from lines(", ".join(f"{count} {outcome}" for outcome, count in counts.items()) or "no entries")


def _history(_shell: Shell, changes: Sequence[Any]) -> Human:
    return lines(*(short(str(change)) for change in changes))


def _compared(_shell: Shell, items: Sequence[Any]) -> Human:
    for item in items:
        comparison = item.held.comparison if item.held else ""
        yield from lines(short(item.id), *(f"  {short(line)}" for line in comparison.splitlines()))


def _tombstones(_shell: Shell, tombstones: Sequence[Any]) -> Human:
    rows = (
        [
            id_cell(tombstone.id),
            tombstone.agent,
            f"{tombstone.deleted_at:%Y-%m-%dT%H:%M:%S}",
            tombstone.deleted_by,
            tombstone.reason,
            tombstone.erased,
        ]
        for tombstone in tombstones
    )
    return table(rows, "id", "whose", "when", "by", "reason", "erased")


def _cores(_shell: Shell, cores: Sequence[Any]) -> Human:
    rows = ((core.id, core.name, core.type, core.visibility, core.owner, core.description) for core in cores)
    return table(rows, "id", "name", "type", "visible to", "owner", "description")


def _suggestions(_shell: Shell, suggestions: Sequence[Any]) -> Human:
    return lines(
        *(
            f"{suggestion.act} {' '.join(map(short, suggestion.items))} {' '.join(suggestion.tags)} ({suggestion.why})"
            for suggestion in suggestions
        )
    )


def _steps(_shell: Shell, steps: Sequence[Any]) -> Human:
    rows = ([step.depth, step.relation, id_cell(step.item.id), step.item.text[:160]] for step in steps)
    return table(rows, "steps", "relation", "item", "text")


def _upkeep(_shell: Shell, done: Any) -> Human:
    for chore in done.chores:
        yield from lines(f"{chore.act}: {chore.why}", *(f"    {short(name)}" for name in chore.names))
    yield from lines(*(f"left alone: {kept}" for kept in done.left_alone))
    yield from lines(f"{done.items} items, {done.chars:,} characters")


def adopted(_shell: Shell, report: Any) -> Human:
    rows = (
        [part.source, part.kind, part.outcome, id_cell(part.id or ""), part.reason[:160]]
        for part in report.became
    )
    yield from table(rows, "source", "kind", "became", "id", "why")
    yield from lines(*(f"left out {part.source}: {part.why}" for part in report.skipped))
    told = ", ".join(f"{count} {outcome}" for outcome, count in report.counts.items()) or "nothing"
    yield from lines(f"{report.format}: {told}; {len(report.skipped)} left out, {report.links} links")


# documents


def _text(_shell: Shell, text: str) -> Human:
    return page(text)


def _pages(_shell: Shell, pages: Mapping[str, str]) -> Human:
    if not pages:
        yield from lines("nothing is written down about it: `commonplace documents add-to-task` does")
    for name, text in pages.items():
        yield from lines(f"== {name}")
        yield from page(text)


def _entries(_shell: Shell, entries: Sequence[Any]) -> Human:
    for entry in entries:
        yield from page(f"{entry.markdown}\n")


# recall


def _found(_shell: Shell, answer: Any) -> Human:
    results = answer.results
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
    corrected = [f"{typed!r} was read as {meant!r}" for typed, meant in answer.corrected.items()]
    yield from lines(f"{answer.total} found, as of {answer.as_of}", *corrected)
    yield from lines(*(f"left out: {gap.what} ({gap.why})" for gap in answer.left_out))


def _digest(_shell: Shell, digest: Any) -> Human:
    yield from page(digest.text)
    yield from lines(*(f"left out: {short(id)} ({why})" for id, why in digest.omitted))
    yield from lines(*(f"left out: {gap.what} ({gap.why})" for gap in digest.left_out))
    if digest.kept or digest.rebased:
        yield from lines(
            f"{digest.kept} characters are as they were", *([digest.rebased] if digest.rebased else [])
        )
    if digest.receipt_id:
        yield from lines(f"receipt {short(digest.receipt_id)}, as of {digest.as_of}")


def _prompt(_shell: Shell, prompt: Any) -> Human:
    return page(str(prompt))


def _receipt(_shell: Shell, receipt: Any) -> Human:
    where = f" in run {receipt.run}" if receipt.run else ""
    yield from lines(
        f"for {receipt.by}{where}, as of {receipt.as_of}, at {receipt.now:%Y-%m-%d %H:%M:%S}",
        f"asked: {receipt.request.get('query', '')}",
        f"index: {receipt.index}",
        *([f"memory was left out: {receipt.ignored}"] if receipt.ignored else []),
    )
    rows = ([id_cell(item), version, line] for item, version, line in receipt.included)
    yield from table(rows, "item", "version", "line")
    yield from lines(*(f"left out: {number} ({why})" for why, number in receipt.omitted.items()))
    if receipt.trace is not None:
        tried = (
            [candidate.via, f"{candidate.score:.3f}", id_cell(candidate.id), candidate.barred]
            for candidate in receipt.trace.candidates
        )
        yield from table(tried, "found by", "score", "candidate", "why not")
    if receipt.missing:
        yield from lines(f"no trace: {receipt.missing}")


def _receipts(_shell: Shell, receipts: Sequence[Any]) -> Human:
    rows = (
        [
            id_cell(receipt.id),
            receipt.by,
            id_cell(receipt.run or ""),
            receipt.as_of,
            len(receipt.included),
            receipt.request.get("query", ""),
        ]
        for receipt in receipts
    )
    return table(rows, "id", "for", "run", "as of", "items", "asked")


def bisected(_shell: Shell, report: Any, lost_lines: bool) -> Human:
    rows = (
        [id_cell(effect.item), len(effect.changed), effect.lines, ", ".join(map(short, effect.with_it))]
        for effect in report.effects
    )
    yield from (
        table(rows, "without", "digests changed", "lines", "and what came from it") if report.effects else ()
    )
    for effect in report.effects if lost_lines else ():
        for change in effect.changed:
            yield from lines(f"receipt {short(change.receipt)}:", *(f"- {line}" for line in change.lost))
            yield from lines(*(f"+ {line}" for line in change.gained))
    yield from lines(
        f"{report.receipts} digests looked at", *(f"not {short(id)}: {why}" for id, why in report.unread)
    )


def _recent(_shell: Shell, recollection: Any) -> Human:
    return page("\n".join(filter(None, (recollection.text, recollection.fallback))))


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


def _runs(_shell: Shell, runs: Sequence[Any]) -> Human:
    rows = (
        [id_cell(run.id), run.first, run.status or "", run.workflow or "", id_cell(run.forked_from or "")]
        for run in runs
    )
    return table(rows, "run", "first position", "status", "workflow", "forked from")


def _forked(_shell: Shell, run: Any) -> Human:
    return lines(f"{short(run.id)} begins as it was; `commonplace runs diff` compares them")


def _differences(_shell: Shell, differences: Sequence[Any]) -> Human:
    marks = {"added": "+", "removed": "-", "changed": "~"}
    return table(
        ([marks[each.change], each.path, value_text(each.before), value_text(each.after)] for each in differences),
        "", "field", "before", "after",
    )  # fmt: skip


def _merged(_shell: Shell, done: Any) -> Human:
    return lines(f"merged into {short(done.into)}: {', '.join(done.fields) or 'nothing'}")


def value_text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text):,} characters; --json shows all)"


# the book


def _verification(_shell: Shell, verification: Any) -> Human:
    if verification.ok:
        events = f"{verification.events:,} events, {verification.erased:,} of them erased"
        return lines(f"the chain holds: {events}, head {verification.hash}")
    where = (
        ""
        if verification.first_bad is None
        else f"the chain is broken at position {verification.first_bad}: "
    )
    return lines(f"{where}{verification.problem}")


def _rebuilt(_shell: Shell, built: Any) -> Human:
    return lines(f"built {', '.join(built.views)} from {built.events:,} events")


def imported(_shell: Shell, taken: Any) -> Human:
    how = "with their positions and hashes" if taken.exact else "recorded anew, with their origin named"
    yield from lines(
        f"{taken.events:,} events taken in {how}; {taken.already:,} were here; head {taken.head}"
    )
    yield from table(taken.left_out, "left out", "why") if taken.left_out else ()


def _sentences(_shell: Shell, answer: Any) -> Human:
    """An answer that says itself what it is."""
    return lines(*str(answer).splitlines())


def _written(_shell: Shell, count: int) -> Human:
    return lines(f"{number(count, 'record')} written")


def _purged(_shell: Shell, report: Any) -> Human:
    rows = [*(("done", done) for done in report.done), *(("remains", what) for what in report.remaining)]
    rows += [("purged", file.path) for file in report.files if not file.remains]
    return table(rows or [("done", "nothing was left to clear")])


def _mentions(_shell: Shell, found: Any) -> Human:
    rows = (
        (mention.position, id_cell(mention.id), mention.thing, ", ".join(mention.where), mention.snippet)
        for mention in found
    )
    yield from table(rows, "at", "id", "what", "where", "says") if found.entries else ()
    yield from lines(*str(found).splitlines())


def _traces(_shell: Shell, traces: Sequence[Any]) -> Human:
    return lines(*(f"text {trace.text + 1} is still in {trace.path}" for trace in traces))


def _migrated(_shell: Shell, report: Any) -> Human:
    from ..recall.index_migration import TOP

    rows = ((f"{query.alike:.0%}", query.actor, query.query[:100]) for query in report.compared)
    yield from table(rows, "found by both", "who asked", "what") if report.compared else ()
    yield from lines(
        f"{len(report.compared)} queries compared, {report.alike:.0%} of the first {TOP} results are the same",
        "every process uses it from now on" if report.switched else "nothing was changed: --switch uses it",
    )


def _granted(_shell: Shell, _found: None) -> Human:
    return lines("done")


def _new_token(shell: Shell, token: Any) -> Human:
    """The token alone, so that it can be sent to a file."""
    shell.tell(
        f"the token {token.id} for {token.actor}, valid until {_minute(token.expires)}: keep it now, because it cannot "
        "be shown again"
    )
    return lines(token.secret)


def _tokens(_shell: Shell, tokens: Sequence[Any]) -> Human:
    rows = (
        [
            token.id, token.actor, "" if token.scope is None else token.scope,
            "all" if token.verbs is None else ", ".join(token.verbs), _minute(token.expires),
            "" if token.revoked is None else _minute(token.revoked), token.label,
        ]
        for token in tokens
    )  # fmt: skip
    return table(rows, "token", "actor", "scope", "verbs", "expires", "revoked", "label")


def _minute(moment: Any) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _audit(_shell: Shell, entries: Sequence[Any]) -> Human:
    rows = (
        [
            entry.seq, entry.timestamp, entry.event_type, entry.agent_id,
            ", ".join(f"{name} {short(value_text(value))}" for name, value in entry.details.items()), entry.hash[:8],
        ]
        for entry in entries
    )  # fmt: skip
    yield from table(rows, "seq", "timestamp", "event type", "agent", "details", "hash")
    yield from lines("each hash covers the entry and the hash before it: --json has them whole")


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


def _works(_shell: Shell, works: Sequence[Any]) -> Human:
    rows = ([id_cell(work.id), work.status, work.name, work.goal, work.leader or ""] for work in works)
    return table(rows, "id", "status", "name", "goal", "led by")


def one_task(_shell: Shell, task: Any) -> Human:
    return lines(f"{short(task.id)} is {words(task.status)}: {task.heading}")


def tasks_table(_shell: Shell, tasks: Sequence[Any]) -> Human:
    rows = (
        [id_cell(task.id), standing(task), task.priority, task.heading, whose(task), task.waits or ""]
        for task in tasks
    )
    return table(rows, "id", "status", "priority", "task", "who", "waits for")


def _claims(_shell: Shell, claims: Sequence[Any]) -> Human:
    rows = ([id_cell(claim.task.id), claim.token, claim.task.heading] for claim in claims)
    return table(rows, "task", "token", "title")


def _decision(decision: Any) -> Iterator[str]:
    how = f"{decision.status} by {decision.by}, {iso(decision.at_us)[:16]}Z"
    yield f"{short(decision.id)}  {decision.question} {decision.choice} ({how})"
    if decision.rationale:
        yield f"    because {decision.rationale}"
    if decision.alternatives:
        yield f"    not {', '.join(decision.alternatives)}"


def decision_lines(_shell: Shell, decisions: Sequence[Any]) -> Human:
    for decision in decisions:
        yield from lines(*_decision(decision))


def one_record(shell: Shell, record: Any) -> Human:
    return records(shell, [record])


def records(_shell: Shell, listed: Sequence[Any]) -> Human:
    return lines(*(f"{short(record.id)}: {gist(record)}" for record in listed))


def _context(_shell: Shell, context: Any) -> Human:
    yield from page(context.text)
    yield from lines(*(f"left out: {short(id)} ({why})" for id, why in context.left_out))


def _thread_context(_shell: Shell, context: Any) -> Human:
    yield from page(context.text)
    yield from lines(*(f"left out: {short(id)} ({why})" for id, why in context.omitted))
    yield from lines(*(f"left out: {gap.what} ({gap.why})" for gap in context.left_out))
    if context.receipt_id:
        yield from lines(f"receipt {short(context.receipt_id)}, as of {context.as_of}")


def _messages(_shell: Shell, messages: Any) -> Human:
    return page(str(messages))


def _threads(_shell: Shell, threads: Any) -> Human:
    rows = [
        [
            info.name,
            info.scope,
            f"{info.messages:,}",
            f"{info.last_at or info.opened_at:%Y-%m-%d %H:%M}",
            id_cell(info.id),
        ]
        for info in threads
    ]
    yield from (
        table(rows, "thread", "scope", "messages", "last", "id") if rows else lines(EMPTY["threads.list"])
    )
    yield from _rest_of_list(threads)


def _overlaps(_shell: Shell, overlaps: Sequence[Any]) -> Human:
    rows = (
        [f"{overlap.score:.2f}", overlap.kind, overlap.status, overlap.text, id_cell(overlap.id)]
        for overlap in overlaps
    )
    return table(rows, "alike", "what", "status", "text", "id")


def _contributions(_shell: Shell, contributions: Sequence[Any]) -> Human:
    names = ("tasks", "reviews", "decisions", "discoveries", "artifacts")
    rows = (
        (
            contribution.agent,
            contribution.role or "",
            *(len(getattr(contribution, name)) for name in names),
            contribution.log_ref,
        )
        for contribution in contributions
    )
    return table(rows, "agent", "role", *names, "log")


# what waits for people


def inbox(_shell: Shell, waiting: Any) -> Human:
    rows: list[list[object]] = []
    for name in ("held", "disputes", "proposals"):
        rows += [
            [name.removesuffix("s"), "", id_cell(item.id), _waits(item)] for item in getattr(waiting, name)
        ]
    for waits in waiting.works:
        for name in waits.inbox.__struct_fields__:
            for record in getattr(waits.inbox, name):
                rows.append(
                    [name.removesuffix("s").replace("_", " "), waits.name, id_cell(record.id), gist(record)]
                )
    if not rows:
        return lines("nothing waits for a person")
    return table(rows, "waits", "work", "id", "what")


def _waits(item: Any) -> str:
    """What an item that waits says, and what it lacks, if it waits for evidence."""
    evidence = item.held is not None and item.held.why == "evidence"
    return f"{item.text} ({item.held.because})" if evidence else str(item.text)


def gist(record: Any) -> str:
    """What a task, a decision, a nudge or the like says, on one line; of a task, who did it."""
    names = (
        "type", "kind", "priority", "status", "title", "path", "question", "choice", "action", "risk", "text", "answer",
        "reason",
    )  # fmt: skip
    parts = [str(value) for name in names if (value := getattr(record, name, ""))]
    who = (
        getattr(record, "completed_by", None)
        or getattr(record, "assigned_to", None)
        or getattr(record, "by", None)
    )
    return ", ".join([*parts, *([who] if who else [])])


# anything else


def fields(_shell: Shell, answer: Any) -> Human:
    """Names and values, without those that are empty."""
    shown = data_of(answer) if not isinstance(answer, Mapping) else answer
    rows = (
        (name.replace("_", " "), value_text(value))
        for name, value in shown.items()
        if value not in (None, "", [], {})
    )
    return table(rows)


def _plainly(_shell: Shell, answer: Any) -> Human:
    if isinstance(answer, Mapping):
        return fields(_shell, answer)
    many = answer if isinstance(answer, list | tuple) else [answer]
    if many and hasattr(many[0], "__struct_fields__"):
        chosen = many[0].__struct_fields__[:6]
        return table(
            ([value_text(plain(getattr(value, name))) for name in chosen] for value in many), *chosen
        )
    return lines(*(short(value) if isinstance(value, str) else value_text(plain(value)) for value in many))


def _as_it_reads(_shell: Shell, answer: Any) -> Human:
    return page(str(answer))


def _resumed(_shell: Shell, answer: Any) -> Human:
    yield from page(answer.text)
    yield from lines(*(f"left out: {gap.what} ({gap.why})" for gap in answer.left_out))


def _audited(_shell: Shell, answer: Any) -> Human:
    """The audit of memory. A command that is too wide goes on in the next line, and can be copied as it stands."""
    for line in str(answer).splitlines():
        _, next_command, command = line.partition("    next: ")
        yield from continued(next_command, command) if next_command else lines(line)


RECORDS = ("Decision", "Discovery", "Artifact", "Nudge", "Approval", "Escalation", "Branch", "Candidate")

RENDER: dict[str, Render] = {
    "[Item]": _items, "ItemList": _list, "[ItemChange]": _history, "Item": _item, "memory.get": fields,
    "memory.disputes": _compared, "RememberResult": _kept, "[RememberResult]": kept_many,
    "[Tombstone]": _tombstones, "[Core]": _cores, "[Suggestion]": _suggestions, "[LinkStep]": _steps,
    "Upkeep": _upkeep, "str": _text, "documents.task": _pages, "documents.day": _entries,
    "Answer": _found, "Digest": _digest, "Prompt": _prompt, "Receipt": _receipt, "[Receipt]": _receipts,
    "Recollection": _recent, "Event": _event, "[Event]": _events_listed, "[RunInfo]": _runs, "Run": _forked,
    "[Difference]": _differences, "Merged": _merged, "Verification": _verification, "Rebuilt": _rebuilt,
    "memory.export": _written, "thread.export": _written, "PurgeReport": _purged, "Rights": _sentences,
    "Found": _mentions, "[FoundText]": _traces, "Migrated": _migrated,
    "NoneType": _granted, "Waiting": inbox,
    "access.audit": _audit, "NewToken": _new_token, "[TokenInfo]": _tokens,
    "WorkInfo": one_work, "[WorkInfo]": _works, "Task": one_task, "[Task]": tasks_table,
    "task.info": fields, "Context": _context, "ThreadContext": _thread_context, "Messages": _messages,
    "ThreadList": _threads, "[Overlap]": _overlaps,
    "Resume": _resumed, "HygieneReport": _audited,
    "[Contribution]": _contributions, "[Claim]": _claims,
    **dict.fromkeys(RECORDS, one_record), **{f"[{name}]": records for name in RECORDS},
    "[Decision]": decision_lines,
}  # fmt: skip
"""How each answer looks, by the verb's path or by its type; `[…]` is a list of them."""

EMPTY = {
    "memory.list": "nothing that matches is remembered: `commonplace remember TEXT` keeps something",
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
    "learn.prior_runs": "no run of a workflow of this name has left anything yet",
    "receipts.list": "no digest or prompt was made yet: `commonplace digest TASK` makes one",
    "runs.list": "there are no runs yet: `commonplace run DIR` starts one",
    "runs.diff": "no difference",
    "admin.find_text": "none of the texts is anywhere in the raw files",
    "access.audit": "nothing was granted or denied yet",
    "access.tokens.list": "there are no tokens: `commonplace access create-token ACTOR` makes one",
    "threads.list": "there are no conversations yet: `commonplace thread add NAME` begins one",
    "works.list": "there are no works yet: `commonplace work new NAME` begins one",
    "task.radar": "nothing makes it needless",
    "work.read_messages": "there is nothing to be told",
    "work.candidates": "nothing waits to be learned",
    "work.claim_many": "nothing to do now",
    "claim.heartbeat": "still held",
    "work.decisions": "none yet: `commonplace decide WORK QUESTION CHOICE` records one",
    "work.discoveries": "none yet: `commonplace discover WORK TEXT` records one",
    "work.artifacts": "none yet: `commonplace artifact WORK PATH` records one",
    "work.approvals": "none yet: `commonplace work request-approval WORK ACTION` asks for one",
    "work.escalations": "none yet: `commonplace work escalate WORK TEXT` asks for help",
    "work.branches": "none yet: `commonplace work branch WORK QUESTION` makes alternatives",
}
"""What is said where there is nothing, and what to do next."""

REFUSED: dict[str, Callable[[Any], bool]] = {
    "RememberResult": lambda kept: kept.outcome == "rejected",
    "FactChecklist": lambda checked: not checked.ok,
    "Verification": lambda found: not found.ok,
    "list": lambda found: bool(found) and _type(found[0]) == "FoundText",
}
"""When an answer is a refusal, for scripts: exit code 1."""
