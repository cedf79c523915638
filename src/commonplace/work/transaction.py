"""A work as readers and deciders see it, and the one way in which events about it are recorded.

Every event about tasks says the same things: which fields of which tasks become what (`set`), how a task stood before
if that has changed (`was`), and under `said` the words, which an erasure takes away while everything else stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from heapq import merge
from itertools import islice
from typing import Any, Literal

import msgspec
from msgspec.structs import astuple, replace

from ..access.commands import Denial, need, refuse
from ..access.masking import masked
from ..access.rights import OWNER, ROLES, Rights, may_see_of, rights_of, role_of
from ..engines.contract import Lease
from ..errors import BadInput, Conflict, Denied, Fenced, NotFound, TooLarge, shown
from ..ledger.encoding import decode, encode_payload
from ..ledger.events import Event, draft
from ..ledger.labels import strictness
from ..ledger.overlay import Overlay
from ..ledger.reader import ViewReader
from .kinds import CHANGED
from .tasks import OnFailure, Task, check_moves, placed, returned, role_lane, waiting_less

WORDS = frozenset({"title", "description", "reason", "comments", "result", "metadata"})
"""The fields of a task that are words of whoever told them."""

WorkStatus = Literal["active", "paused", "completed", "cancelled", "archived"]
WORK_MOVES: dict[str, tuple[str, ...]] = {
    "active": ("paused", "completed", "cancelled"),
    "paused": ("active", "completed", "cancelled"),
    "completed": ("active", "archived"),
    "cancelled": ("active", "archived"),
    "archived": (),
}
OPEN = ("active", "paused")
PAGE, MOST_PAGE = 16, 1_024
_USUAL = Task("", "", 0)
_NAMES = frozenset({"id", "work", "number"})
"""The fields that name a task, which never change."""
READY_FOR_MANY = tuple(f"ready:{role_lane(role)}" for role in (None, *ROLES))
"""The lists of the tasks that can be claimed now and that no one agent was given."""


class WorkLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How large a work may grow."""

    max_tasks: int = 1_000_000
    max_agents: int = 10_000
    max_dependents: int = 10_000


class WorkInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a work is for, and how it stands."""

    id: str
    name: str = ""
    goal: str = ""
    constraints: tuple[str, ...] = ()
    cores: tuple[str, ...] = ()
    pattern: str | None = None
    """The entry of a core whose tasks it was begun with."""
    members: tuple[str, ...] = ()
    """Who may know of it; nobody is named: everybody."""
    status: WorkStatus = "active"
    limits: WorkLimits = WorkLimits()
    on_failure: OnFailure = OnFailure()
    settings: dict[str, Any] = {}
    reason: str = ""
    summary: str = ""
    by: str = ""
    leader: str | None = None
    led: int | None = None
    """The fence of its leader."""
    handled: dict[str, int] = {}
    """How far the leader has dealt with what has happened."""
    created_us: int = 0
    changed_us: int = 0
    position: int = 0

    @property
    def open(self) -> bool:
        return self.status in OPEN


SETTINGS = ("checkpoint_interval", "auto_archive_hours", "backend", "path", "save_interval", "save_on_change")
"""What a work can be told besides. The ledger saves every change at once whatever they say; the intervals are for
whoever exports snapshots."""
ALSO = {
    "saveInterval": "save_interval",
    "saveOnChange": "save_on_change",
    "checkpointInterval": "checkpoint_interval",
}


def checked_limits(given: Mapping[str, int]) -> WorkLimits:
    if not isinstance(given, Mapping):
        raise BadInput(f"limits {shown(given)} are not a mapping: give one, such as {{'max_tasks': 1000}}")
    try:
        limits = msgspec.convert(dict(given), WorkLimits)
    except msgspec.ValidationError as error:
        raise BadInput(
            f"limits are max_tasks, max_agents and max_dependents as whole numbers: {error}"
        ) from None
    if min(limits.max_tasks, limits.max_agents, limits.max_dependents) < 1:
        raise BadInput("a limit is at least 1")
    return limits


def checked_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    named = {ALSO.get(name, name): value for name, value in given.items()}
    stray = sorted(named.keys() - set(SETTINGS))
    if stray:
        raise BadInput(f"a work has no setting {stray[0]!r}: its settings are {', '.join(SETTINGS)}")
    hours = named.get("auto_archive_hours")
    if hours is not None and (
        isinstance(hours, bool) or not isinstance(hours, int | float) or not 0 <= hours <= 1e6
    ):
        raise BadInput(f"auto_archive_hours {shown(hours)} is not a number of hours from 0 to 1,000,000")
    return masked(encode_payload(named)[1])


class Act(msgspec.Struct, frozen=True):
    """Something that is asked of a work: by whom, under whose name it is recorded (its own, unless the owner speaks
    for others), and what."""

    work: str
    actor: str
    by: str
    given: dict[str, Any]
    run: str | None = None
    lead: int | None = None
    """The fence under which the actor leads the work."""


_read_info = msgspec.json.Decoder(WorkInfo).decode
_known_info = lru_cache(64)(_read_info)
"""For those who do not hand it on: it is read with every act, and seldom changes."""
_read_task = msgspec.json.Decoder(Task).decode


def info_of(views: ViewReader, work: str) -> WorkInfo | None:
    return views.get_as(_read_info, "work.works", work)


def no_work(id: str) -> str:
    return f"there is no work {id!r} in this book: book.works.list() lists them, and book.work(name=…) begins one"


def no_record(id: str, kinds: Sequence[str]) -> str:
    what = " or ".join(kind.partition(".")[2] for kind in kinds) or "thing"
    return f"nothing {what} under {id!r} is known in this work"


def may_know(rights: Rights, info: WorkInfo) -> bool:
    """Whether an actor may know of a work, its goal and its tasks, which are private: its own, or one that has no
    members or names it as one, as far as its ceiling allows."""
    if rights.owner or rights.actor == info.by:
        return True
    if strictness("sensitivity", rights.ceiling) < strictness("sensitivity", "private"):
        return False
    return not info.members or rights.actor in info.members or rights.role == "person"


def lease_name(task: Task) -> str:
    """Each claim has a lease of its own, so a late heartbeat renews nothing but what is lost anyway."""
    return f"task/{task.work}/{task.number}/{task.token}"


def may_see_record(rights: Rights, row: Mapping[str, Any], decided: Mapping[str, str] | None) -> bool:
    """Whether an actor may see something that was recorded about a work, with the labels it has been given since."""
    labels = {"audience": "team", "sensitivity": row["sensitivity"], **(decided or {})}
    return may_see_of(rights, row["by"], row["kind"], labels)


class Reading:
    """A work's tasks through a views; `now` says what may be seen of what was then."""

    def __init__(self, views: ViewReader, work: str, now: ViewReader | None = None) -> None:
        self.views, self.work, self.now = views, work, views if now is None else now
        self._rights_of: dict[tuple[int, str], Rights] = {}

    @property
    def readers(self) -> tuple[ViewReader, ...]:
        """What is read must be allowed in each of these."""
        return (self.views,) if self.now is self.views else (self.views, self.now)

    def rights(self, views: ViewReader, actor: str) -> Rights:
        known = self._rights_of.get((views.position, actor))
        if known is None:
            known = self._rights_of[views.position, actor] = rights_of(views, actor)
        return known

    def seen(self, actor: str, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The things among these ids that an actor may see, by the rights and labels of then and of now."""
        rows = self.views.get_all(decode, "work.records", [(self.work, id) for id in ids])
        known = {id: row for id, row in zip(ids, rows, strict=True) if row is not None}
        for views in self.readers:
            rights, places = self.rights(views, actor), [(id,) for id in known]
            labels = dict(zip(known, views.get_all(decode, "labels", places), strict=True))
            known = {id: row for id, row in known.items() if may_see_record(rights, row, labels[id])}
        return known

    def visible(self, actor: str, found: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        """Those of the pairs of kind and id that an actor may see, read page by page: whoever takes the first few of
        them counts nothing that the actor may not see. Tasks are seen by everybody who may know of the work."""
        pairs = iter(found)
        while page := list(islice(pairs, PAGE)):
            seen = self.seen(actor, [id for kind, id in page if not kind.startswith("task.")])
            yield from (pair for pair in page if pair[0].startswith("task.") or pair[1] in seen)

    def find(self, id: str) -> Task | None:
        return self.find_all([id])[0]

    def find_all(self, ids: Sequence[str]) -> list[Task | None]:
        """The tasks with these ids, None for those that are not of this work, in two trips to the engine."""
        places = self.views.get_all(decode, "work.ids", [(id,) for id in ids])
        numbers = [None if one is None or one[0] != self.work else int(one[1]) for one in places]
        tasks = iter(self.all_numbered([number for number in numbers if number is not None]))
        return [None if number is None else next(tasks) for number in numbers]

    def task(self, id: str) -> Task:
        """Raises NotFound."""
        found = self.find(id)
        if found is None:
            raise NotFound(f"there is no task {id!r} in this work: work.tasks() lists them")
        return found

    def numbered(self, number: int) -> Task:
        """Raises NotFound."""
        (found,) = self.views.get_all(_read_task, "work.tasks", [(self.work, number)])
        if found is None:
            raise NotFound(f"there is no task {number} in this work: work.tasks() lists them")
        return found

    def all_numbered(self, numbers: Sequence[int]) -> list[Task]:
        found = self.views.get_all(_read_task, "work.tasks", [(self.work, number) for number in numbers])
        assert None not in found, f"tasks {numbers} of {self.work}"
        return found  # type: ignore[return-value]

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
            found = (one for one in self.all if not wanted.isdisjoint(one.standing.lists))
            yield from (one.number for one in sorted(found, key=lambda one: (-one.priority, one.number)))
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

    def ready_for(self, agent: str) -> tuple[str, ...]:
        """The lists of the tasks that an agent may claim: anybody's, its role's and its own."""
        lanes = dict.fromkeys(["", role_lane(role_of(self.views, agent)), agent])
        return tuple(f"ready:{lane}" for lane in lanes)

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
        if not self.views.past:
            row = self.views.get("work.counts", self.work) or {}
            return {name: count for name, count in row.items() if name != "agents"}
        found = Counter({"tasks": len(self.all)})
        return dict(+(found + Counter(task.status for task in self.all)))

    @cached_property
    def all(self) -> list[Task]:
        """Every task, in the order of their numbers."""
        return [msgspec.convert(row, Task) for _, row in self.views.scan("work.tasks", self.work)]


class WorkTransaction(Reading):
    """A work under the lock, for the actor that changes it."""

    def __init__(self, overlay: Overlay, act: Act) -> None:
        super().__init__(overlay, act.work)
        self.overlay, self.act = overlay, act
        info = overlay.get_as(_known_info, "work.works", act.work)
        rights = None if act.actor == OWNER else rights_of(overlay, act.actor)
        if info is None or (rights is not None and not may_know(rights, info)):
            raise NotFound(no_work(act.work))
        self.info, self._rights = info, rights

    def record(self, id: str, *kinds: str) -> dict[str, Any]:
        """What the actor may not see is NotFound like what is not there."""
        row = super().record(id, *kinds)
        if self._rights is not None and not may_see_record(self._rights, row, self.views.get("labels", id)):
            raise NotFound(no_record(id, kinds))
        return row

    # who may

    def refused(self, right: str) -> Denied | None:
        """The refusal, already recorded, if the actor lacks a right."""
        if not right or self.act.actor == OWNER:
            return None
        return need(self.overlay, self.act.actor, right, self.work)

    def refuse(self, act: str, what: str, told: str) -> Denied:
        return refuse(self.overlay, Denial(self.act.actor, act, what, self.act.run), told)

    def may(self, right: str) -> bool:
        """Whether the actor has a right."""
        return self.act.actor == OWNER or rights_of(self.overlay, self.act.actor).may(right)

    def need_member(self, agent: str) -> None:
        """Nothing is given to somebody who may not even know of the work."""
        if not may_know(rights_of(self.overlay, agent), self.info):
            members = ", ".join(self.info.members)
            raise BadInput(
                f"{agent!r} may not know of the work {self.info.name!r}: "
                + (f"name one of its members, {members}" if members else "its ceiling is below private")
            )

    def need_open(self) -> None:
        if not self.info.open:
            raise Conflict(
                f"the work {self.info.name!r} is {self.info.status}"
                + (f" ({self.info.reason})" if self.info.reason else "")
                + ("" if self.info.status == "archived" else ": resume it first")
            )

    def need_lead(self) -> None:
        """Whoever says that it leads must still do."""
        fence = self.act.lead
        if fence is not None and fence != self.info.led:
            (led,) = self.overlay.tx.records(fence - 1, fence, 1)  # who leads may act by the owner's hand
            taken = self.overlay.event(led.id)
            leader = self.act.by if taken is None or taken.erased else taken.payload["set"]["leader"]
            raise Fenced(
                f"{leader!r} no longer leads {self.info.name!r}: {self.info.leader!r} has taken over"
            )

    def joined(self, agent: str) -> dict[str, Any]:
        """What an event tells when an agent takes part for the first time."""
        if self.overlay.get("work.agents", self.work, agent) is not None:
            return {}
        most = self.info.limits.max_agents
        if (self.overlay.get("work.counts", self.work) or {}).get("agents", 0) >= most:
            raise TooLarge(f"{most:,} agents take part in this work already, which is its limit")
        return {"joins": agent}

    # telling

    def tell(
        self,
        kind: str,
        *changes: tuple[Task | None, Task],
        said: Mapping[str, Any] | None = None,
        parents: Collection[str] = (),
        id: str | None = None,
        **more: Any,
    ) -> Event:
        """Record what happens to tasks; the first of them is what the event is about. Answers with the event."""
        tasks, words = list[dict[str, Any]](), dict(said or {})
        for before, after in changes:
            fields = _differences(before, after)
            if after is changes[0][1]:
                words |= {name: fields.pop(name) for name in WORDS & fields.keys()}
            entry = {"number": after.number, "set": fields}
            if before is not None and before.standing != after.standing:
                entry["was"] = msgspec.to_builtins(before.standing)
            tasks.append(entry)
        payload = {"work": self.work, "task_id": changes[0][1].id, "tasks": tasks, **more, "said": words}
        return self.emit(kind, payload, parents=parents, id=id)

    def note(
        self,
        kind: str,
        said: Mapping[str, Any],
        *,
        affects: Iterable[Task] = (),
        pending: str = "",
        settles: Iterable[tuple[str, str, int]] = (),
        updates: Iterable[tuple[str, Mapping[str, Any]]] = (),
        id: str | None = None,
        parents: Collection[str] = (),
        labels: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Event:
        """Record something about the work that is no change of a task: `pending` names the list in which it waits,
        `settles` what waits no more, `updates` what becomes of other such things."""
        about = [[one.number, one.id] for one in affects]
        ended, changed = [list(one) for one in settles], [[id, dict(fields)] for id, fields in updates]
        told = {"affects": about, "pending": pending, "settles": ended, "updates": changed}
        payload = {"work": self.work, **{name: value for name, value in told.items() if value}, **more}
        return self.emit(kind, {**payload, "said": dict(said)}, parents=parents, id=id, labels=labels)

    def change(
        self, said: Mapping[str, Any] | None = None, parents: Collection[str] = (), **fields: Any
    ) -> Event:
        """Change the info."""
        payload = {"work": self.work, "set": fields, "said": dict(said or {})}
        event = self.emit(CHANGED, payload, parents=parents)
        self.info = info_of(self.overlay, self.work) or self.info
        return event

    def emit(
        self,
        kind: str,
        payload: dict[str, Any],
        *,
        parents: Collection[str] = (),
        id: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Event:
        """Record an event. An `id` is one that was made for it, so nobody looks whether there is such an event."""
        made = draft(
            kind, actor=self.act.by, payload=payload, run_id=self.act.run, id=id, parents=list(parents),
            labels=self.labels() if labels is None else labels,
        )  # fmt: skip
        return self.overlay.emit(replace(made, given_id=False) if made.given_id else made)

    def labels(self, sensitivity: str = "private") -> dict[str, str]:
        """What everybody who takes part may see, up to how sensitive it is."""
        told = {"sensitivity": sensitivity}
        return told if self.info.members else {**told, "audience": "team"}

    # what follows

    def freeing(self, task: Task) -> list[tuple[Task, Task]]:
        """What waits for a task, with one thing less to wait for."""
        waiting = self.all_numbered(self.dependents(task))
        return [(one, waiting_less(one, one.waits - 1)) for one in waiting if not one.final and one.waits]

    def next_fence(self) -> int:
        """The position that the next event will have: the fence of a claim."""
        return self.overlay.position + 1

    def lease(self, name: str) -> Lease | None:
        """The lease in force under this name, also one that this very batch takes."""
        taken = [one for one in self.overlay.write.leases if one.name == name]
        if taken:
            return taken[-1] if taken[-1].seconds > 0 else None
        return self.overlay.lease(name)

    def hold(self, task: Task, holder: str) -> None:
        assert task.token is not None
        self.overlay.take_lease(lease_name(task), holder, task.lease, task.token)

    def let_go(self, task: Task) -> None:
        if task.token is not None:
            self.overlay.take_lease(lease_name(task), task.assigned_to or "", 0, task.token)


def _differences(before: Task | None, after: Task) -> dict[str, Any]:
    """The fields that are new, as plain data."""
    pairs = zip(Task.__struct_fields__, astuple(after), astuple(before or _USUAL), strict=True)
    new = {
        name: value for name, value, old in pairs if value is not old and value != old and name not in _NAMES
    }
    fields: dict[str, Any] = msgspec.to_builtins(new)
    return fields


Decide = Callable[..., Any]


def command(
    needs: str = "", *, open: bool = True, archived: bool = False
) -> Callable[[Decide], Callable[[Overlay, Act], Any]]:
    """A decider of a work: rights and the work's status are checked first, then it is given the transaction. What needs
    no open work still changes nothing in one that is archived, unless it says so."""

    def wrap(decide: Decide) -> Callable[[Overlay, Act], Any]:
        def run(overlay: Overlay, act: Act) -> Any:
            tx = WorkTransaction(overlay, act)
            refused = tx.refused(needs)
            if refused:
                return refused
            if open or (tx.info.status == "archived" and not archived):
                tx.need_open()
            tx.need_lead()
            return decide(tx, **act.given)

        run.__name__, run.__doc__ = decide.__name__, decide.__doc__
        return run

    return wrap


def moved(task: Task, *path: str, **fields: Any) -> Task:
    """The task after these steps, each of them checked, ready for those who may claim it then."""
    check_moves(task, *path)
    status = path[-1] if path else task.status
    if status != "in_progress":
        fields["rework"] = False
    return placed(replace(task, status=status, **fields))


def given_back(task: Task, **fields: Any) -> Task:
    """The task after its holder has lost it or let go of it: for whom it was before."""
    return returned(moved(task, "pending", **fields))
