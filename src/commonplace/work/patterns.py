"""Tasks to begin with, out of an entry of a core that is a pattern."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import BadInput

if TYPE_CHECKING:
    from ..recall.verbs import Recalling


def tasks_of(asker: Recalling, pattern: str) -> list[dict[str, Any]]:
    """The tasks of a pattern: an item whose provenance holds `tasks` as metadata, each with a title, a description
    and what it depends on, by title."""
    item = asker.item(pattern)
    given = (item.provenance.get("metadata") or {}).get("tasks")
    if item.type != "pattern" or not isinstance(given, list) or not given:
        raise BadInput(
            f"{pattern!r} is not a pattern with tasks: remember one with type='pattern' and "
            "provenance={'metadata': {'tasks': [{'title': …, 'depends_on': [titles]}]}}"
        )
    made = [_one(pattern, number, one) for number, one in enumerate(given)]
    ids = {one["title"]: one["id"] for one in made}
    for one in made:
        unknown = [title for title in one["depends_on"] if title not in ids]
        if unknown:
            raise BadInput(
                f"task {one['title']!r} of the pattern depends on {unknown[0]!r}, which is none of its tasks"
            )
        one["depends_on"] = [ids[title] for title in one["depends_on"]]
    return made


def _one(pattern: str, number: int, given: Any) -> dict[str, Any]:
    from ..events import new_id

    if isinstance(given, str):
        given = {"title": given}
    if not isinstance(given, dict) or not isinstance(given.get("title"), str):
        raise BadInput(f"task {number + 1} of the pattern {pattern!r} has no title")
    return {**given, "depends_on": list(given.get("depends_on") or ()), "id": new_id()}
