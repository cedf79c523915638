"""The tasks and records of a work, read through views: as of now, as of then, or inside a transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from heapq import merge
from itertools import islice
from typing import Any

import msgspec

from ..access.rights import ROLES, Rights, rights_of, role_of, work_shows
from ..engines.contract import Lease
from ..errors import NotFound
from ..ledger.encoding import convert, decode
from ..ledger.reader import Snapshot, ViewReader
from ..ledger.scopes import SCOPE
from .info import WorkInfo, info_of
from .tasks import LANES, STATUSES, Task, role_lane

PAGE, MOST_PAGE = 16, 1_024

READY_FOR_MANY = tuple(f"ready:{role_lane(role)}" for role in (None, *ROLES))
"""The lists of the tasks that can be claimed now and that no one agent was given."""

_read_task = msgspec.json.Decoder(Task).decode


def no_record(id: str, kinds: Sequence[str]) -> str:
    names = " or ".join(kind.partition(".")[2] for kind in kinds) or "thing"
    return f"nothing {names} under {id!r} is known in this work"


def lease_name(task: Task) -> str:
    """Each claim has a lease of its own, so a late heartbeat renews nothing but what is lost anyway."""
    return f"task/{task.work}/{task.number}/{task.token}"


def may_see_record(rights: Rights, row: Mapping[str, Any], decided: Mapping[str, str] | None) -> bool:
    """Whether an actor may see something that was recorded about a work, with the labels it has been given since."""
    labels = {"sensitivity": row["sensitivity"], SCOPE: row.get(SCOPE, ""), **(decided or {})}
    return work_shows(rights, row["by"], row["kind"], labels)


class Reading:
    """A work's tasks, read through views; `now` says what may be seen of what was then."""

    def __init__(self, views: ViewReader, work: str, now: ViewReader | None = None) -> None:
        self.views, self.work, self.now = views, work, views if now is None else now
        self._rights_of: dict[tuple[int, str], Rights] = {}

    @cached_property
    def info(self) -> WorkInfo:
        """What the work is for and how it stands."""
        info = info_of(self.views, self.work)
        assert info is not None, self.work
        return info

    @property
    def readers(self) -> tuple[ViewReader, ...]:
        """What is read must be allowed in each of these."""
        return (self.views,) if self.now is self.views else (self.views, self.now)

    def rights(self, views: ViewReader, actor: str) -> Rights:
        rights = self._rights_of.get((views.position, actor))
        if rights is None:
            rights = self._rights_of[views.position, actor] = rights_of(views, actor)
        return rights

    def seen(self, actor: str, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The things among these ids that an actor may see, by the rights and labels of then and of now."""
        rows = self.views.get_all(decode, "work.records", [(self.work, id) for id in ids])
        rows_seen = {id: row for id, row in zip(ids, rows, strict=True) if row is not None}
        for views in self.readers:
            rights, places = self.rights(views, actor), [(id,) for id in rows_seen]
            labels = dict(zip(rows_seen, views.get_all(decode, "labels", places), strict=True))
            rows_seen = {id: row for id, row in rows_seen.items() if may_see_record(rights, row, labels[id])}
        return rows_seen

    def visible(self, actor: str, records: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        """Those of the pairs of kind and id that an actor may see, read page by page, so that the first few can be
        taken without counting what is hidden. Tasks are visible to every actor that may know of the work."""
        pairs = iter(records)
        while page := list(islice(pairs, PAGE)):
            rows = self.seen(actor, [id for kind, id in page if not kind.startswith("task.")])
            yield from (pair for pair in page if pair[0].startswith("task.") or pair[1] in rows)

    def find(self, id: str) -> Task | None:
        return self.find_all([id])[0]

    def find_all(self, ids: Sequence[str]) -> list[Task | None]:
        """The tasks with these ids, None for those that are not of this work, in two trips to the engine."""
        places = self.views.get_all(decode, "work.ids", [(id,) for id in ids])
        numbers = [None if place is None or place[0] != self.work else int(place[1]) for place in places]
        tasks = iter(self.all_numbered([number for number in numbers if number is not None]))
        return [None if number is None else next(tasks) for number in numbers]

    def task(self, id: str) -> Task:
        """Raises NotFound."""
        task = self.find(id)
        if task is None:
            raise NotFound(f"there is no task {id!r} in this work: work.tasks() lists them")
        return task

    def numbered(self, number: int) -> Task:
        """Raises NotFound."""
        (task,) = self.views.get_all(_read_task, "work.tasks", [(self.work, number)])
        if task is None:
            raise NotFound(f"there is no task {number} in this work: work.tasks() lists them")
        return task

    def all_numbered(self, numbers: Sequence[int]) -> list[Task]:
        tasks = self.views.get_all(_read_task, "work.tasks", [(self.work, number) for number in numbers])
        assert None not in tasks, f"tasks {numbers} of {self.work}"
        return tasks  # type: ignore[return-value]

    def listed(self, *lists: str) -> Iterator[Task]:
        """The tasks of these lists, the highest priority first and then the oldest. They are read page by page, and
        pages grow: who wants a few does not pay for many."""
        members, size = self.members(lists), PAGE
        while page := list(islice(members, size)):
            yield from self.all_numbered(page)
            size = min(size * 4, MOST_PAGE)

    def members(self, lists: Sequence[str]) -> Iterator[int]:
        """The numbers of the tasks of these lists in the same order, each once."""
        if self.views.past:
            wanted = set(lists)
            tasks = (task for task in self.all if not wanted.isdisjoint(task.lists))
            yield from (task.number for task in sorted(tasks, key=lambda task: (-task.priority, task.number)))
            return
        walks = [self.views.each("work.lists", self.work, name) for name in lists]
        last = -1
        for _, number in merge(*(((key[2], key[3]) for key, _ in walk) for walk in walks)):
            if number != last:  # a task of two lists comes twice, one after the other
                yield int(number)
            last = int(number)

    def first(self, lists: Sequence[str], count: int) -> list[int]:
        """The numbers of the first tasks of these lists."""
        rows = [row for name in lists for row in self.views.scan("work.lists", self.work, name, limit=count)]
        best = sorted({(key[2], key[3]) for key, _ in rows})
        return [int(number) for _, number in best[:count]]

    def dependents(self, task: Task) -> list[int]:
        """The numbers of the tasks that depend on this one."""
        if not task.needed:
            return []
        return [int(key[2]) for key, _ in self.views.scan("work.edges", self.work, task.number)]

    def leases(self, tasks: Sequence[Task]) -> Mapping[str, Lease]:
        """The leases of these tasks that are in force now."""
        assert isinstance(self.views, Snapshot)
        return self.views.reads.leases([lease_name(task) for task in tasks]) if tasks else {}

    def ready_for(self, agent: str) -> tuple[str, ...]:
        """The lists of the tasks that an agent may claim: anybody's, its role's and its own. Where no task of a work is
        ready for any role, or for any one agent, that list is not looked at."""
        lists, filled = list[str](), self._counted
        if filled is None or LANES[0] in filled:
            lists.append("ready:")
        if filled is None or LANES[1] in filled:
            role = role_of(self.views, agent)
            lists += [] if role is None else [f"ready:{role_lane(role)}"]
        if filled is None or LANES[2] in filled:
            lists.append(f"ready:{agent}")
        return tuple(lists)

    @property
    def _counted(self) -> dict[str, int] | None:
        """What is counted of the tasks of a work; None: as of the past, of which nothing is counted."""
        return None if self.views.past else self.views.get("work.counts", self.work) or {}

    def ready_for_somebody(self) -> tuple[str, ...]:
        """The lists of all tasks that can be claimed now."""
        agents = (str(key[1]) for key, _ in self.views.scan("work.agents", self.work))
        return (*READY_FOR_MANY, *(f"ready:{agent}" for agent in agents))

    def record(self, id: str, *kinds: str) -> dict[str, Any]:
        """A decision, discovery, nudge or whatever else was recorded about the work. Raises NotFound."""
        row = self.views.get("work.records", self.work, id)
        if row is None or (kinds and row["kind"] not in kinds):
            raise NotFound(no_record(id, kinds))
        return dict(row)

    @property
    def counts(self) -> dict[str, int]:
        """How many tasks have each status, and how many there are."""
        counted = self._counted
        if counted is not None:
            return {name: count for name, count in counted.items() if name == "tasks" or name in STATUSES}
        counts = Counter({"tasks": len(self.all)})
        return dict(+(counts + Counter(task.status for task in self.all)))

    @cached_property
    def all(self) -> list[Task]:
        """Every task, in the order of their numbers."""
        return [convert(row, Task) for _, row in self.views.scan("work.tasks", self.work)]
