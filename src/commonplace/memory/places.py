"""The files and folders of the mirror, and the names that a book may give them instead."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from itertools import permutations

from ..documents.document import LOGS, NOTES, SESSIONS, TASKS
from ..errors import BadInput, shown
from .items import Item

MEMORY_MD = "MEMORY.md"
ARCHIVE = "archive/MEMORY.md"
AGENTS, CORES, REPOSITORY = "memories/agents/", "memories/cores/", "memories/repo/"
TEMPLATE = "plans/templates/session-notes-template.md"
PLACES = (
    MEMORY_MD, NOTES, LOGS, SESSIONS, REPOSITORY, AGENTS, CORES, TASKS, "plans/templates/", "archive/",
)  # fmt: skip
"""The files and folders that can be called something else."""

_PART = re.compile(r"\w[\w. -]{0,79}")


def check_places(places: Mapping[str, str]) -> None:
    """Raises BadInput unless every place is known and its other name a plain path that no other place has."""
    for usual, name in places.items():
        if usual not in PLACES:
            raise BadInput(f"the mirror has no place {shown(usual)}: it has {', '.join(PLACES)}")
        parts = name.removesuffix("/").split("/")
        if name.endswith("/") != usual.endswith("/") or not all(map(_PART.fullmatch, parts)):
            like = "a folder such as 'work/'" if usual.endswith("/") else "a file such as 'TEAM.md'"
            raise BadInput(f"{shown(usual)} cannot be called {shown(name)}: give {like}")
    names = [places.get(place, place) for place in PLACES]
    clash = next((name for name, other in permutations(names, 2) if other.startswith(name)), None)
    if clash is not None:
        raise BadInput(f"two places of the mirror would be in {clash!r}: give each a name of its own")


def renamed(path: str, places: Mapping[str, str], *, back: bool = False) -> str:
    """What a path of the mirror is called, or with `back` what one that is called so usually is."""
    for usual, name in places.items():
        was, becomes = (name, usual) if back else (usual, name)
        if path.startswith(was) and (was.endswith("/") or path == was):
            return becomes + path.removeprefix(was)
    return path


def file_name(name: str) -> str:
    """A file's name that no other name has: the name itself where it can be one."""
    plain = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-")[:60]
    return plain if plain == name else f"{plain}-{sha256(name.encode()).hexdigest()[:8]}".strip("-")


def source_of(item: Item) -> str:
    """The page on which a person finds an item."""
    if item.core is not None and item.shared:
        return f"{CORES}{file_name(item.core)}.md"
    if item.repository:
        return f"{REPOSITORY}{item.category or 'facts'}.md"
    return MEMORY_MD if item.shared else f"{AGENTS}{file_name(item.agent)}.md"
