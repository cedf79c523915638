"""What other tools' memories are read into, and the small judgements that every reader makes."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from ..items import CATEGORIES

MAX_TITLE = 120
"""What a heading or an entity may add to the title of everything below it, however much there is."""

Links = tuple[tuple[str, str], ...]
"""(relation, the other's `name`); a name that nothing in the import bears stands as it was written."""


class Incoming(msgspec.Struct, frozen=True):
    """One thing to remember, before our rules judge it. Times are ISO and stand as the source has them."""

    kind: str
    """fact, note, procedure or episode; nothing is taken for a fact or an episode by guessing."""
    body: str = ""
    title: str | None = None
    key: str | None = None
    value: Any = None
    tags: tuple[str, ...] = ()
    links: Links = ()
    name: str | None = None
    category: str | None = None
    """user, feedback, project or reference, when the source says so."""
    occurred_at: str | None = None
    created_at: str | None = None
    agent: str | None = None
    run: str | None = None
    source: str = ""
    """File and line, or file and id in the export."""
    metadata: dict[str, Any] = {}
    """What else the source says of it."""
    fields: dict[str, Any] = {}
    """Further parameters of `remember`, where the source is a book."""


class Skipped(msgspec.Struct, frozen=True):
    """Something that was there and is not taken in, and why."""

    source: str
    why: str


class FileRead(msgspec.Struct):
    """What one file holds. `format` is None when it is of no known format, which `skipped` explains.

    Files that refer to each other say how: `aliases` are what others may call this file; `pointers` are the sources of
    items that only point to another file, and to which.
    """

    path: str
    format: str | None
    items: list[Incoming] = []
    skipped: list[Skipped] = []
    aliases: list[str] = []
    pointers: dict[str, str] = {}

    @property
    def name(self) -> str:
        return self.path.removesuffix(".md")


def category_of(*words: object) -> str | None:
    """The first of these words that is one of our categories."""
    return next((word for word in words if isinstance(word, str) and word in CATEGORIES), None)


def short(text: str) -> str:
    """The text as it may stand in a title."""
    return text if len(text) <= MAX_TITLE else f"{text[: MAX_TITLE - 1]}…"


def unique(links: Iterable[tuple[str, str]]) -> Links:
    return tuple(dict.fromkeys(links))


def take_time(fields: dict[str, Any], *names: str) -> str | None:
    """Take the first of these fields that holds an ISO date or time; one that holds none stays where it is."""
    for name in names:
        if isinstance(fields.get(name), str):
            try:
                datetime.fromisoformat(fields[name])
            except ValueError:
                continue
            time: str = fields.pop(name)
            return time
    return None
