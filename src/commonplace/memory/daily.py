"""Daily logs: the working tier. What happened, day by day, for the whole team; lines are only ever added."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

import msgspec

from ..access.commands import need_tier
from ..errors import BadInput, Denied, shown
from ..ledger.checks import from_us
from ..ledger.events import Event, draft
from ..ledger.keys import Key
from ..ledger.overlay import Overlay
from ..ledger.reader import ViewReader

LOGGED = "memory.logged"

LONGEST = 200
"""Characters of a value that a log shows; the run's state has all of it."""

LEFT_OUT = ("confidence", "error")
DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


class Log(msgspec.Struct, frozen=True):
    """Add to the day's log. `about` stands in the heading of what was logged for an agent."""

    by: str
    text: str
    run: str | None = None
    about: str = ""
    sensitivity: str = "private"
    secrets: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    id: str | None = None
    checked: bool = True
    """False: the runtime logs, whatever the agent may do in this tier."""


class LogEntry(msgspec.Struct, frozen=True):
    """One entry of a day, with the id of the event that it is."""

    id: str
    day: str
    time_us: int
    agent: str
    text: str
    about: str = ""
    run: str | None = None
    sensitivity: str = "private"
    secrets: tuple[str, ...] = ()
    position: int = 0

    @property
    def markdown(self) -> str:
        heading = f"### {from_us(self.time_us):%H:%M:%S}" + (f" -- {self.about}" if self.about else "")
        return f"{heading}\n{self.text}" if self.text else heading


def decide_log(overlay: Overlay, request: Log) -> Event | Denied:
    refused = need_tier(overlay, request.by, "working", True, request.run) if request.checked else None
    if refused:
        return refused
    payload: dict[str, Any] = {"text": request.text}
    payload |= {
        name: one for name, one in (("about", request.about), ("secrets", list(request.secrets))) if one
    }
    labels = {"sensitivity": request.sensitivity, "audience": "team"}
    return overlay.emit(
        draft(
            LOGGED,
            actor=request.by,
            payload=payload,
            run_id=request.run,
            labels=labels,
            parents=request.parents,
            id=request.id,
        )
    )


def touched(event: Event) -> list[Key]:
    return [(day_of(event.created_us), event.position)]


def fold(_key: Key, _before: Any, event: Event) -> Any:
    row = {"id": event.id, "time_us": event.created_us, "agent": event.actor, **event.payload}
    return {**row, "run": event.run_id, "sensitivity": event.labels.get("sensitivity", "private")}


def day_of(us: int) -> str:
    return f"{from_us(us):%Y-%m-%d}"


def check_day(field: str, given: object) -> str:
    """A day as YYYY-MM-DD. Raises BadInput."""
    if isinstance(given, date):
        return given.strftime("%Y-%m-%d")
    if isinstance(given, str) and DAY.fullmatch(given):
        try:
            return date.fromisoformat(given).isoformat()
        except ValueError:
            pass  # such as February 30th: told below
    raise BadInput(f"{field} {shown(given)} is not a day: write it as 2026-03-23")


def days(views: ViewReader) -> list[str]:
    """The days that something was logged on, in order."""
    return list(dict.fromkeys(str(key[0]) for key, _ in views.scan("memory.days")))


def entries(views: ViewReader, day: str) -> list[LogEntry]:
    return [
        _entry(key, row, views.get("labels", row["id"]) or {}) for key, row in views.scan("memory.days", day)
    ]


def all_entries(views: ViewReader) -> dict[str, list[LogEntry]]:
    """The entries of every day, in order."""
    changed = {key[0]: labels for key, labels in views.scan("labels")}
    found = dict[str, list[LogEntry]]()
    for key, row in views.scan("memory.days"):
        found.setdefault(str(key[0]), []).append(_entry(key, row, changed.get(row["id"], {})))
    return found


def _entry(key: Key, row: dict[str, Any], labels: Mapping[str, str]) -> LogEntry:
    sensitivity = labels.get("sensitivity", row["sensitivity"])
    plain = {**row, "sensitivity": sensitivity, "day": key[0], "position": key[1]}
    return msgspec.convert(plain, LogEntry)


def page(day: str, found: Iterable[LogEntry]) -> str:
    """A day as markdown."""
    return "\n\n".join([f"# {day}", *(one.markdown for one in found)]) + "\n"


def result_lines(output: Mapping[str, Any]) -> str:
    """What an agent brought about, a line for each field."""
    lines = []
    for name, value in output.items():
        if name in LEFT_OUT:
            continue
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        text = " ".join(text.split())
        lines.append(f"- **{name}**: {text[:LONGEST] + '...' if len(text) > LONGEST else text}")
    return "\n".join(lines)
