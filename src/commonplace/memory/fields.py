"""Checking the fields of an item that a caller gives."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ..errors import BadInput, TooLarge, shown
from ..ledger.checks import check_flag, check_name, check_text
from ..ledger.encoding import canonical
from .items import CATEGORIES, COMMON, MAX_TEXT, SHAPES, Shape
from .requests import check_item

SOURCES = ("user", "operator", "tool", "system", "import")
ENTRY_TYPES = ("lesson", "pattern", "gotcha", "decision", "example", "reference", "convention")
PROVENANCE = ("source_kind", "channel", "thread", "session", "message", "tool_call", "refs", "metadata")
ORIGINS = ("channel", "thread", "session", "message", "tool_call")
"""The fields of a provenance that name where something comes from."""
CONFIDENCE = {"high": 0.9, "medium": 0.6, "low": 0.3}
"""What the words for confidence mean."""
TASK_FIELDS = (
    "title", "description", "depends_on", "priority", "needs_review", "on_failure", "for_role", "risk", "metadata",
)  # fmt: skip

MAX_TITLE = 1_000
MAX_TAGS = 64
MAX_LINKS = 256
MAX_METADATA = 64
MAX_METADATA_BYTES = 16_384


def checked(kind: object, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The content of an item from a caller's fields, with empty ones left out. Raises BadInput."""
    shape = shape_of(kind)
    allowed = (*shape.needs, *shape.may, *COMMON)
    rule = f"it needs {_plain_names(shape.needs)} and may have {_plain_names(shape.may)}"
    if stray := sorted(name for name in fields if name not in allowed):
        raise BadInput(f"{named(kind)} has no {_plain_names(stray)}: {rule}")
    if missing := [name for name in shape.needs if name not in fields]:
        raise BadInput(f"{named(kind)} needs {' and '.join(map(plain_name, missing))}: {rule}")
    content = {"kind": str(kind), **{name: CHECKS[name](name, value) for name, value in fields.items()}}
    check_validity(content.get("valid_from_us"), content.get("valid_until_us"))
    return {
        name: value for name, value in content.items() if value not in (None, (), [], {}) or name == "value"
    }


def shape_of(kind: object) -> Shape:
    """The fields of a kind of item. Raises BadInput."""
    if not isinstance(kind, str) or kind not in SHAPES:
        raise BadInput(f"there is no kind of item {shown(kind)}: the kinds are {', '.join(SHAPES)}")
    return SHAPES[kind]


def check_validity(begins_us: int | None, ends_us: int | None) -> None:
    """Raises BadInput for a time that ends before it begins."""
    if begins_us is not None and ends_us is not None and begins_us >= ends_us:
        raise BadInput("valid_until lies before valid_from: give the time from which it holds, then the end")


def named(kind: object) -> str:
    return f"an {kind}" if kind == "episode" else f"a {kind}"


def plain_name(field: str) -> str:
    """The parameter of `remember` that a field comes from."""
    if field in ("body", "summary"):
        return "text"
    return field.removesuffix("_us") + ("_at" if field in ("occurred_us", "observed_us") else "")


def _plain_names(fields: Sequence[str]) -> str:
    return ", ".join(map(plain_name, fields))


def _text(field: str, value: Any) -> str:
    if not check_text(field, value).strip():
        raise BadInput(f"{plain_name(field)} is empty: say something, or leave the item out")
    return _optional_text(field, value)


def _optional_text(field: str, value: Any) -> str:
    text = check_text(field, value)
    if len(text) > MAX_TEXT:
        raise TooLarge(
            f"{plain_name(field)} has {len(text):,} characters and may have {MAX_TEXT:,}: keep it elsewhere, and refer "
            "to it"
        )
    return text


def _line(field: str, value: Any) -> str:
    line = " ".join(_text(field, value).split())
    if len(line) > MAX_TITLE:
        raise TooLarge(
            f"{field} has {len(line):,} characters and may have {MAX_TITLE:,}: say the rest in the text"
        )
    return line


def _value(_field: str, value: Any) -> Any:
    if len(canonical(value)) > MAX_TEXT:
        raise TooLarge(f"a fact's value may have {MAX_TEXT:,} bytes: keep it elsewhere, and refer to it")
    return value


def _share(field: str, value: Any) -> float:
    value = CONFIDENCE.get(value, value) if isinstance(value, str) else value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise BadInput(f"{field} {shown(value)} is not a number from 0 to 1, nor high, medium or low")
    return float(value)


def _name(field: str) -> Callable[[str, Any], str]:
    return lambda _, value: check_name(field, value)


def _one_of(*allowed: str) -> Callable[[str, Any], str]:
    return lambda field, value: check_one_of(field, value, allowed)


def check_one_of(field: str, value: object, allowed: Collection[str]) -> str:
    """One of some words. Raises BadInput that lists them."""
    if not isinstance(value, str) or value not in allowed:
        raise BadInput(f"there is no {field} {shown(value)}: it is one of {', '.join(allowed)}")
    return value


def _tags(field: str, value: Any) -> list[str]:
    tags = sorted({check_tag(tag) for tag in _strings(field, value) if tag.strip(" ")})
    if len(tags) > MAX_TAGS:
        raise TooLarge(f"an item has at most {MAX_TAGS} tags")
    return tags


def check_tag(value: object) -> str:
    """A tag, without the spaces around it. Raises BadInput."""
    return check_name("a tag", value.strip(" ") if isinstance(value, str) else value)


def _strings(field: str, value: Any) -> list[str]:
    if isinstance(value, str) or not isinstance(value, list | tuple | set | frozenset):
        raise BadInput(f"{field} {shown(value)} is not a list of strings, such as ['infra']")
    return [check_text(field, text) for text in value]


def _links(field: str, value: Any) -> list[list[str]]:
    if not isinstance(value, list | tuple) or not all(
        isinstance(link, list | tuple) and len(link) == 2 for link in value
    ):
        raise BadInput(
            f"{field} is a list of pairs of a relation and an item's id, such as [('related', id)]"
        )
    if len(value) > MAX_LINKS:
        raise TooLarge(f"an item has at most {MAX_LINKS} links")
    links = {(check_name("a relation", relation), check_item("an item's id", to)) for relation, to in value}
    return [list(link) for link in sorted(links)]


def _provenance(field: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise BadInput(f"{field} {shown(value)} is not a mapping: its fields are {', '.join(PROVENANCE)}")
    if stray := sorted(str(name) for name in value if name not in PROVENANCE):
        raise BadInput(f"provenance has no {', '.join(stray)}: its fields are {', '.join(PROVENANCE)}")
    if value.get("source_kind") is not None:
        check_one_of("source_kind", value["source_kind"], SOURCES)
    full = {str(name): inner for name, inner in value.items() if inner not in (None, "", [], {})}
    names = {name: check_name(name, full[name]) for name in ORIGINS if isinstance(full.get(name), str)}
    return full | names


def wanted_provenance(fields: object) -> dict[str, Any]:
    """The fields by which items are chosen. Raises BadInput for one that no item can have."""
    wanted = _provenance("provenance", fields)
    empty = sorted(str(name) for name in fields if name not in wanted) if isinstance(fields, Mapping) else []
    if empty:
        raise BadInput(
            f"provenance says nothing of {', '.join(empty)}: give a value to look for, or leave it out"
        )
    return wanted


def check_field_name(value: object) -> str:
    """The name of a field of metadata. Raises BadInput."""
    return check_name("a metadata field", value)


def check_metadata(field: str, value: Any) -> dict[str, Any]:
    """Fields of the caller's own: text, numbers, true, false, null, and lists of these. Raises BadInput."""
    if not isinstance(value, Mapping):
        raise BadInput(f"{field} {shown(value)} is not a mapping: give one such as {{'plan': 'pro'}}")
    if len(value) > MAX_METADATA:
        raise TooLarge(f"{field} has {len(value):,} fields and may have {MAX_METADATA}")
    fields = {check_field_name(name): _metadata_value(name, inner) for name, inner in value.items()}
    if len(canonical(fields)) > MAX_METADATA_BYTES:
        raise TooLarge(
            f"{field} may have {MAX_METADATA_BYTES:,} bytes: keep the rest elsewhere, and refer to it"
        )
    return fields


def _metadata_value(name: object, value: Any) -> Any:
    values = value if isinstance(value, list | tuple) else [value]
    for inner in values:
        if not isinstance(inner, str | int | float | None):
            raise BadInput(
                f"metadata field {shown(name)} is {shown(inner)}: give text, a number, true, false, null or a list of "
                "these; what is inside a mapping becomes fields of its own, such as 'address.city'"
            )
    return list(value) if isinstance(value, tuple) else value


def _code_refs(field: str, value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list | tuple) or not all(
        isinstance(place, Mapping) and place.keys() <= {"file", "symbol", "lines"} for place in value
    ):
        raise BadInput(f"{field} is a list of places in code, such as [{{'file': 'a.py', 'symbol': 'main'}}]")
    return [dict(place) for place in value]


def _tasks(field: str, value: Any) -> list[dict[str, Any]]:
    """A pattern's tasks: titles, or mappings with a title, which depend on each other by their titles."""
    if isinstance(value, str | Mapping) or not isinstance(value, Sequence):
        raise BadInput(f"{field} {shown(value)} is not a list of tasks: give titles, or {{'title': …}}")
    tasks = [{"title": task} if isinstance(task, str) else task for task in value]
    for number, task in enumerate(tasks, 1):
        title = task.get("title") if isinstance(task, Mapping) else None
        if not isinstance(title, str) or not title.strip():
            raise BadInput(
                f"task {number} of {field} has no title: give one, such as {{'title': 'Design it'}}"
            )
        if stray := sorted(set(map(str, task)) - set(TASK_FIELDS)):
            raise BadInput(f"task {title!r} has no {stray[0]!r}: its fields are {', '.join(TASK_FIELDS)}")
    titles = [task["title"] for task in tasks]
    for task in tasks:
        needs = task.get("depends_on") or ()
        if isinstance(needs, str) or not isinstance(needs, Sequence):
            raise BadInput(f"depends_on of task {task['title']!r} is not a list: give titles of other tasks")
        if unknown := [title for title in needs if title not in titles]:
            raise BadInput(
                f"task {task['title']!r} depends on {shown(unknown[0])}, which is none of the tasks"
            )
    if len(set(titles)) < len(titles):
        raise BadInput(
            f"two of the tasks in {field} have the same title: they depend on each other by titles"
        )
    return [dict(task) for task in tasks]


def check_tasks(tasks: object, type: object) -> None:
    """Raises BadInput for tasks of what is no pattern: no work could begin with them."""
    if tasks and type != "pattern":
        raise BadInput(f"only a pattern has tasks, and its type is {shown(type)}: say type='pattern'")


def _moment(_field: str, value: Any) -> int:
    assert isinstance(value, int)  # datetimes are turned into microseconds where they come in
    return value


CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "key": _name("key"),
    "value": _value,
    "body": _text,
    "summary": _text,
    "title": _line,
    "category": _one_of(*CATEGORIES),
    "confidence": _share,
    "tags": _tags,
    "links": _links,
    "provenance": _provenance,
    "citations": _strings,
    "reason": _optional_text,
    "occurred_us": _moment,
    "observed_us": _moment,
    "valid_from_us": _moment,
    "valid_until_us": _moment,
    "core": _name("a core"),
    "type": _one_of(*ENTRY_TYPES),
    "repository": check_flag,
    "source_type": _one_of("manual", "extracted", "promoted", "imported"),
    "code_refs": _code_refs,
    "pinned": check_flag,
    "tasks": _tasks,
    "metadata": check_metadata,
}
