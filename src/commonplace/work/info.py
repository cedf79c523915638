"""What a work is for and how it stands, and who may know of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec

from ..access.masking import masked
from ..access.rights import Rights, check_actor
from ..errors import BadInput, Fenced, shown
from ..ledger.checks import check_name, from_us
from ..ledger.encoding import convert, encode_payload
from ..ledger.labels import strictness
from ..ledger.printing import Readable
from ..ledger.reader import ViewReader
from ..ledger.scopes import name_of
from .checks import checked_policy, checked_text, listed, required_text, texts
from .tasks import OnFailure

WorkStatus = Literal["active", "paused", "completed", "cancelled", "archived"]

WORK_MOVES: dict[str, tuple[str, ...]] = {
    "active": ("paused", "completed", "cancelled"),
    "paused": ("active", "completed", "cancelled"),
    "completed": ("active", "archived"),
    "cancelled": ("active", "archived"),
    "archived": (),
}

OPEN = ("active", "paused")

IDLE_SETTINGS = ("checkpoint_interval", "backend", "path", "save_interval", "save_on_change")
"""Settings that other tools know and that change nothing here: a book saves every change at once."""
SETTINGS = ("auto_archive_hours", *IDLE_SETTINGS)
ALSO = {
    "saveInterval": "save_interval",
    "saveOnChange": "save_on_change",
    "checkpointInterval": "checkpoint_interval",
}


class WorkLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How large a work may grow."""

    max_tasks: int = 1_000_000
    max_agents: int = 10_000
    max_dependents: int = 10_000


class WorkInfo(Readable, msgspec.Struct, frozen=True, omit_defaults=True):
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
    scope: str = ""
    """The scope that it belongs to; "" for the root. In the book, the scope's key; as it is shown, its path."""
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
    created_us: int = 0
    changed_us: int = 0
    position: int = 0

    def __str__(self) -> str:
        goal = f": {self.goal}" if self.goal else ""
        reason = f" ({self.reason})" if self.reason else ""
        return f"{self.name} is {self.status}{reason}{goal}" + (f"; {self.advice}" if self.advice else "")

    @property
    def created_at(self) -> datetime:
        return from_us(self.created_us)

    @property
    def changed_at(self) -> datetime:
        return from_us(self.changed_us)

    @property
    def open(self) -> bool:
        return self.status in OPEN

    @property
    def advice(self) -> str:
        """Which of its settings change nothing, and why; "" if there are none."""
        idle = [name for name in self.settings if name in IDLE_SETTINGS]
        return (
            f"{', '.join(idle)}: kept, but without effect, because every change is saved at once"
            if idle
            else ""
        )


read_info = msgspec.json.Decoder(WorkInfo).decode


def info_of(views: ViewReader, work: str) -> WorkInfo | None:
    return views.get_as(read_info, "work.works", work)


def shown_info(views: ViewReader, info: WorkInfo) -> WorkInfo:
    """What a work is for, with the path of its scope."""
    return msgspec.structs.replace(info, scope=name_of(views, info.scope)) if info.scope else info


def no_work(id: str) -> str:
    return f"there is no work {id!r} in this book: book.works.list() lists them, and book.work(name=…) begins one"


def check_leads(info: WorkInfo, agent: str, fence: int) -> None:
    """Raises Fenced unless an agent leads the work under a fence."""
    if info.led != fence:
        now = "nobody leads it" if info.leader is None else f"{info.leader!r} has taken the lead"
        raise Fenced(f"{agent!r} no longer leads {info.name!r} by this lead: {now} since")
    if info.leader != agent:
        raise Fenced(f"{agent!r} does not lead {info.name!r}: {info.leader!r} does")


def may_know(rights: Rights, info: WorkInfo) -> bool:
    """Whether an actor may know of a work, its goal and its tasks, which are private: its own, or one that has no
    members or names it as one, as far as its ceiling allows."""
    if not rights.in_scope(info.scope):
        return False
    if rights.owner or rights.actor == info.by:
        return True
    if strictness("sensitivity", rights.ceiling) < strictness("sensitivity", "private"):
        return False
    return not info.members or rights.actor in info.members or rights.role == "person"


def checked_limits(values: Mapping[str, int]) -> WorkLimits:
    if not isinstance(values, Mapping):
        raise BadInput(f"limits {shown(values)} are not a mapping: give one, such as {{'max_tasks': 1000}}")
    try:
        limits = convert(dict(values), WorkLimits)
    except msgspec.ValidationError as error:
        raise BadInput(
            f"limits are max_tasks, max_agents and max_dependents as whole numbers: {error}"
        ) from None
    if min(limits.max_tasks, limits.max_agents, limits.max_dependents) < 1:
        raise BadInput("a limit is at least 1")
    return limits


def checked_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    named = {ALSO.get(name, name): value for name, value in settings.items()}
    stray = sorted(named.keys() - set(SETTINGS))
    if stray:
        raise BadInput(f"a work has no setting {stray[0]!r}: its settings are {', '.join(SETTINGS)}")
    hours = named.get("auto_archive_hours")
    if hours is not None and (
        isinstance(hours, bool) or not isinstance(hours, int | float) or not 0 <= hours <= 1e6
    ):
        raise BadInput(f"auto_archive_hours {shown(hours)} is not a number of hours from 0 to 1,000,000")
    return masked(encode_payload(named)[1])


def info_from(id: str, fields: Mapping[str, Any]) -> WorkInfo:
    """What a work is begun with. Raises BadInput that names the field."""
    pattern = fields["pattern"]
    return WorkInfo(
        id,
        required_text("name", fields["name"]),
        checked_text("goal", fields["goal"]),
        texts("constraints", fields["constraints"]),
        tuple(check_name("a core", core) for core in listed("cores", fields["cores"])),
        None if pattern is None else check_name("pattern", pattern),
        tuple(check_actor(member) for member in listed("members", fields["members"])),
        limits=checked_limits({} if fields["limits"] is None else fields["limits"]),
        on_failure=checked_policy(fields["on_failure"]) or OnFailure(),
        settings=checked_settings(fields["settings"]),
    )
