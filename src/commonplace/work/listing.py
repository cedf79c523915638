"""What was recorded about a work, and its events, as one reader may see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..access.rights import Rights, rights_of, work_shows
from ..ledger.events import Event
from ..memory.visibility import without_hidden
from .capability import BETWEEN, EVERY
from .kinds import COMPLETED, DECIDED, DISCOVERED, PRODUCED, REVIEWED
from .people import may_see_nudge
from .reading import Reading
from .records import EVENTS, RECORDS, Contribution, Nudge, WorkRecord, nudge_for, record_of

if TYPE_CHECKING:
    from ..ledger.ledger import At
    from .verbs import Work

T = TypeVar("T", bound=WorkRecord)

CONTRIBUTED = {
    "tasks": COMPLETED, "reviews": REVIEWED, "decisions": DECIDED, "discoveries": DISCOVERED, "artifacts": PRODUCED,
}  # fmt: skip


def visible_records(
    type: type[T], reading: Reading, rights: Rights, ids: Sequence[str], erased: bool = False
) -> list[T]:
    """Those of these ids that are of a type and that the reader may see, by the labels of then and of now. Erased ones
    are left out, or are there without their words."""
    rows = {
        id: row
        for id, row in reading.seen(rights.actor, ids).items()
        if row["kind"] == EVENTS[type] and (row["said"] or erased)
    }
    if type is Nudge:
        nudges = [{**row, "id": id} for id, row in rows.items() if may_see_nudge(reading, rights, row)]
        return cast(list[T], [nudge_for(reading, rights.actor, row) for row in nudges])
    return [record_of(type, id, row, _words_of_others(reading, rights, row)) for id, row in rows.items()]


def _words_of_others(reading: Reading, rights: Rights, row: Mapping[str, Any]) -> dict[str, str]:
    """The words of an answer to a record, and the decision that reversed it; "" if the reader may not see that."""
    ids = [row[name] for name in ("answer", "reversed_by") if row.get(name)]
    visible, words = reading.seen(rights.actor, ids) if ids else {}, {}
    if "answer" in row:
        answer = visible.get(row["answer"], {}).get("said", {})
        words = {"why": answer.get("why", ""), "answer": answer.get("answer", "")}
    if row.get("reversed_by"):
        words["reversed_by"] = row["reversed_by"] if row["reversed_by"] in visible else ""
    return words


def latest(type: type[T], count: int, reading: Reading, rights: Rights) -> list[T]:
    """The last few of a type that the reader may see, the newest first."""
    rows = reading.views.each("work.log", reading.work, EVENTS[type], reverse=True)
    visible = reading.visible(rights.actor, ((EVENTS[type], id) for _, id in rows))
    return visible_records(type, reading, rights, [id for _, id in islice(visible, count)])


def pending(type: type[T], reading: Reading, rights: Rights) -> tuple[T, ...]:
    """Those of a type that wait for somebody's word."""
    name = next(name for name, kind in RECORDS.items() if kind.type is type)
    rows = reading.views.scan("work.pending", reading.work, name)
    return tuple(visible_records(type, reading, rights, [str(key[3]) for key, _ in rows], erased=True))


def contributions_of(work: Work, at: At) -> list[Contribution]:
    """What each agent has done, as far as the reader may see it."""
    with work._reading(at) as (reading, rights):
        rows = reading.views.scan("work.by", work.id)
        for kind in RECORDS.values():
            made = [id for (_, _, event, _), id in rows if event == kind.event]
            if not made:
                continue
            visible = {record.id for record in visible_records(kind.type, reading, rights, made, erased=True)}
            rows = [row for row in rows if row[0][2] != kind.event or row[1] in visible]
        done, positions = dict[str, dict[str, list[str]]](), dict[str, list[int]]()
        for (_, agent, event, position), id in rows:
            done.setdefault(str(agent), {}).setdefault(str(event), []).append(id)
            positions.setdefault(str(agent), []).append(int(position))
        roles = {agent: rights_of(reading.views, agent).role for agent in done}
    spans = {agent: (min(each), max(each)) for agent, each in positions.items()}
    with work._ledger.reads() as reads:
        ends = {position for span in spans.values() for position in span}
        times = {end: reads.records(end - 1, end, 1)[0].created_at for end in ends}
    return [
        Contribution(
            agent=agent,
            role=roles[agent],
            first_us=times[spans[agent][0]],
            last_us=times[spans[agent][1]],
            log_ref=f"commonplace log --actor {agent} --after {spans[agent][0] - 1}",
            **{name: tuple(dict.fromkeys(own.get(event, ()))) for name, event in CONTRIBUTED.items()},
        )
        for agent, own in sorted(done.items())
    ]


def visible_event(work: Work, event: Event) -> Event | None:
    """The event, if it is about this work and the reader may see it now. A nudge is between its sender and its
    target."""
    if event.erased or event.kind not in EVERY or event.payload["work"] != work.id:
        return None
    with work._reading(None) as (reading, rights):
        if event.kind in BETWEEN:
            target = event.payload.get("target") or event.payload.get("to")
            if not may_see_nudge(reading, rights, {"by": event.actor, "target": target}):
                return None
        labels = {**event.labels, **(reading.views.get("labels", event.id) or {})}
        if not work_shows(rights, event.actor, event.kind, labels):
            return None
        return without_hidden(reading.views, rights, event)
