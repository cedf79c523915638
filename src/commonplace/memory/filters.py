"""Choosing items by what they are: the filters that `list`, `search`, `digest`, `forget` and `export` take.

A filter compares rows of `memory.items`, so that an item is only built, and its reader's rights are only looked up, if
it matches. Metadata is compared by type: 1 is not "1", and True is not 1. Of a list, each element counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from heapq import merge
from operator import ge, gt, le, lt
from typing import TYPE_CHECKING, Any, get_args

import msgspec
from msgspec.structs import asdict

from ..errors import BadInput, shown
from ..ledger.checks import check_flag, check_name, to_us
from ..ledger.encoding import decode
from ..ledger.printing import LeftOut
from ..ledger.reader import FEW, PAGE, pages
from .claims import key_form
from .fields import check_field_name, check_one_of, check_tag, wanted_provenance
from .items import CATEGORIES, SHAPES, Item, Status, from_row
from .reading import labelled
from .requests import id_of

if TYPE_CHECKING:
    from .viewer import Viewer

ORDERED: dict[str, Callable[[Any, Any], bool]] = {"gt": gt, "gte": ge, "lt": lt, "lte": le}
OPERATORS = (*ORDERED, "ne", "in", "exists")


class MetadataTest(msgspec.Struct, frozen=True):
    """What one field of metadata must be."""

    field: str
    operator: str
    wanted: Any

    def accepts(self, metadata: Mapping[str, Any]) -> bool:
        """Whether metadata passes. Metadata without the field passes only `exists: False`."""
        if self.operator == "exists":
            return (self.field in metadata) is self.wanted
        if self.field not in metadata:
            return False
        value = metadata[self.field]
        values = [value, *value] if isinstance(value, list) else [value]
        match self.operator:
            case "eq":
                return any(_same(each, self.wanted) for each in values)
            case "ne":
                return not any(_same(each, self.wanted) for each in values)
            case "in":
                return any(_same(each, option) for each in values for option in self.wanted)
        compare = ORDERED[self.operator]
        return any(compare(each, self.wanted) for each in values if self.compares(each))

    def compares(self, value: Any) -> bool:
        """Whether a value can be compared with the wanted one: numbers with numbers, text with text."""
        if self.operator not in ORDERED:
            return True
        return _kind_of(value) == _kind_of(self.wanted)


def _kind_of(value: object) -> str:
    if isinstance(value, bool):
        return "a truth value"
    if isinstance(value, int | float):
        return "a number"
    return "a text" if isinstance(value, str) else "a list" if isinstance(value, list) else "nothing"


def _same(value: object, wanted: object) -> bool:
    return value == wanted and _kind_of(value) == _kind_of(wanted)


def metadata_tests(filters: object) -> tuple[MetadataTest, ...]:
    """The tests that a filter on metadata means: a value that must be equal, or operators. Raises BadInput."""
    if not isinstance(filters, Mapping):
        raise BadInput(f"metadata {shown(filters)} is not a mapping: give one such as {{'plan': 'pro'}}")
    tests = []
    for name, wanted in filters.items():
        field = check_field_name(name)
        if not isinstance(wanted, Mapping):
            tests.append(MetadataTest(field, "eq", _value(field, wanted)))
            continue
        if not wanted:
            raise BadInput(f"metadata field {field!r} has no operator: give one of {', '.join(OPERATORS)}")
        tests += [_test(field, operator, operand) for operator, operand in wanted.items()]
    return tuple(tests)


def _test(field: str, operator: object, wanted: Any) -> MetadataTest:
    if operator not in OPERATORS:
        raise BadInput(
            f"metadata field {field!r} is compared with {shown(operator)}, which is no operator: "
            f"the operators are {', '.join(OPERATORS)}"
        )
    if operator == "exists":
        check_flag(f"exists of metadata field {field!r}", wanted)
    elif operator == "in":
        if not isinstance(wanted, list | tuple | set | frozenset):
            raise BadInput(
                f"`in` of metadata field {field!r} takes a list of values, such as ['pro', 'team']"
            )
        wanted = [_value(field, option) for option in wanted]
    elif operator in ORDERED and _kind_of(wanted) not in ("a number", "a text"):
        raise BadInput(
            f"{operator} of metadata field {field!r} takes a number or a text, and {shown(wanted)} is neither"
        )
    return MetadataTest(field, str(operator), _value(field, wanted))


def _value(field: str, wanted: Any) -> Any:
    wanted = list(wanted) if isinstance(wanted, tuple) else wanted
    if isinstance(wanted, str | int | float | bool | list | None):
        return wanted
    raise BadInput(
        f"metadata field {field!r} is compared with {shown(wanted)}: give text, a number, true, false or a list"
    )


class ItemFilter(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an item must be to be chosen; a field that is None, or empty, does not matter."""

    kind: str | None = None
    key: str | None = None
    """As keys are compared."""
    tags: tuple[str, ...] = ()
    """It has all of these."""
    agent: str | None = None
    core: str | None = None
    repository: bool | None = None
    category: str | None = None
    provenance: dict[str, Any] = {}
    metadata: tuple[MetadataTest, ...] = ()
    status: str | None = None
    since_us: int | None = None
    """It was recorded then or later."""
    until_us: int | None = None
    """It was recorded before."""
    valid_at_us: int | None = None

    def __bool__(self) -> bool:
        return self != ItemFilter()

    def accepts(self, row: Mapping[str, Any]) -> bool:
        """Whether an item matches, by its row."""
        return (
            all(wanted is None or row.get(name, default) == wanted for name, default, wanted in self._plain())
            and (self.key is None or ("key" in row and key_form(row["key"] or "") == self.key))
            and all(tag in row.get("tags", ()) for tag in self.tags)
            and self.provenance.items() <= row.get("provenance", {}).items()
            and (self.since_us is None or row["recorded_us"] >= self.since_us)
            and (self.until_us is None or row["recorded_us"] < self.until_us)
            and (self.valid_at_us is None or _holds(row, self.valid_at_us))
            and all(test.accepts(row.get("metadata", {})) for test in self.metadata)
        )

    def _plain(self) -> tuple[tuple[str, Any, Any], ...]:
        return (
            ("kind", None, self.kind), ("agent", None, self.agent), ("core", None, self.core),
            ("repository", False, self.repository), ("category", None, self.category),
            ("status", "live", self.status),
        )  # fmt: skip

    def accepts_item(self, item: Item) -> bool:
        return self.accepts(asdict(item))


def _holds(row: Mapping[str, Any], at_us: int) -> bool:
    begins, ends = row.get("valid_from_us"), row.get("valid_until_us")
    return (begins is None or begins <= at_us) and (ends is None or ends > at_us)


def item_filter(
    *,
    kind: object = None,
    key: object = None,
    tags: object = None,
    agent: object = None,
    core: object = None,
    repository: bool | None = None,
    category: object = None,
    provenance: object = None,
    metadata: object = None,
    status: object = None,
    since: datetime | None = None,
    until: datetime | None = None,
    valid_at: datetime | None = None,
) -> ItemFilter:
    """The filter that the parameters of a verb mean. Raises BadInput."""
    since_us, until_us = time_range(since, until)
    return ItemFilter(
        kind=None if kind is None else check_one_of("kind", kind, SHAPES),
        key=None if key is None else key_form(check_name("key", key)),
        tags=wanted_tags(tags),
        agent=None if agent is None else check_name("agent", agent),
        core=None if core is None else check_name("core", id_of(core)),
        repository=repository,
        category=None if category is None else check_one_of("category", category, CATEGORIES),
        provenance={} if provenance is None else wanted_provenance(provenance),
        metadata=() if metadata is None else metadata_tests(metadata),
        status=None if status is None else check_one_of("status", status, get_args(Status)),
        since_us=since_us,
        until_us=until_us,
        valid_at_us=None if valid_at is None else to_us("valid_at", valid_at),
    )


FILTERS = (
    "kind", "key", "tags", "agent", "core", "repository", "category", "provenance", "metadata", "since", "until",
)  # fmt: skip
"""The filters of `list`, `forget` and `export`."""


def time_range(since: datetime | None, until: datetime | None) -> tuple[int | None, int | None]:
    """Two times in microseconds. Raises BadInput if the second lies before the first."""
    since_us = None if since is None else to_us("since", since)
    until_us = None if until is None else to_us("until", until)
    if since_us is not None and until_us is not None and since_us > until_us:
        raise BadInput(f"since ({since}) lies after until ({until}): give the earlier time as since")
    return since_us, until_us


def wanted_tags(tags: object) -> tuple[str, ...]:
    if tags is None:
        return ()
    if isinstance(tags, str) or not isinstance(tags, list | tuple | set | frozenset):
        raise BadInput(f"tags {shown(tags)} is not a list of tags, such as ['infra']")
    return tuple(dict.fromkeys(check_tag(tag) for tag in tags))


# looking through a book


def chosen_ids(viewer: Viewer, only: ItemFilter) -> set[str]:
    """The ids of the items that match. Not all of them may be seen by this reader: a search looks at rights itself."""
    return {id for _, id, row in _in_order(viewer) if only.accepts(row)}


def check_filter(viewer: Viewer, only: ItemFilter, empty: bool) -> list[LeftOut]:
    """Why nothing was chosen: what to say of tags that no item has. Raises BadInput for a field of metadata that no
    item has which this reader may see, or that holds nothing which the wanted value can be compared with."""
    unsure = [test for test in only.metadata if empty or (test.operator, test.wanted) == ("exists", False)]
    if not unsure and not (only.tags and empty):
        return []
    fields, tags = dict[str, set[str]](), set[str]()
    for item in viewer.items():
        tags.update(item.tags)
        for field, value in item.metadata.items():
            values = value if isinstance(value, list) else [value]
            fields.setdefault(field, set()).update(map(_kind_of, values))
    for test in unsure:
        _check_test(test, fields)
    return [
        LeftOut(f"tag {tag!r}", "nothing that you may see has it") for tag in only.tags if tag not in tags
    ]


def _check_test(test: MetadataTest, fields: Mapping[str, set[str]]) -> None:
    if test.field not in fields:
        known = f"the fields there are: {', '.join(sorted(fields))}" if fields else "no item has metadata"
        raise BadInput(f"no item that you may see has a metadata field {test.field!r}; {known}")
    if test.operator in ORDERED and _kind_of(test.wanted) not in fields[test.field]:
        kinds = " or ".join(sorted(fields[test.field]))
        raise BadInput(
            f"metadata field {test.field!r} is {kinds} and {test.operator} compares it with "
            f"{shown(test.wanted)}, which is {_kind_of(test.wanted)}: compare it with a value of its own type"
        )


def check_known(verb: str, unknown: Mapping[str, object], allowed: Sequence[str]) -> None:
    """Raises BadInput for a filter that there is not."""
    if unknown:
        raise BadInput(f"{verb} has no {', '.join(sorted(unknown))}: it takes {', '.join(allowed)}")


def matching(viewer: Viewer, only: ItemFilter, after: int = 0) -> Iterator[tuple[int, Item]]:
    """The items that match and that the reader may see, oldest first, each with the position at which it was recorded:
    those recorded after a position."""
    for position, _, row in _in_order(viewer, after):
        if only.accepts(row):
            item = labelled(viewer.views, from_row(row))
            if viewer.allows(item):
                yield position, item


def _in_order(viewer: Viewer, after: int = 0) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """The rows of items in the order in which they were recorded."""
    views = viewer.views
    order = merge(
        *(
            views.each_between("memory.order", (where,), after + 1, views.position)
            for where in viewer.partitions
        ),
        key=lambda row: int(row[0][1]),
    )
    for page in pages(order, FEW if after else PAGE):
        rows = views.get_all(decode, "memory.items", [(id,) for _, id in page])
        for ((_, position), id), row in zip(page, rows, strict=True):
            if row is not None:
                yield int(position), str(id), row
