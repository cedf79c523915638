"""What differs between two states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ..access.redact import TOKEN, Redactor

VOLATILE = ("_meta", "_trace")
"""Keys that differ between any two runs and say nothing about what they know."""


class Difference(msgspec.Struct, frozen=True):
    """One place that differs. `change` is added, removed or changed."""

    path: str
    change: str
    before: Any = None
    after: Any = None


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    """Field by field, in the order of their paths; lists are compared whole."""
    keep = [{key: value for key, value in one.items() if key not in VOLATILE} for one in (a, b)]
    return list(_walk(keep[0], keep[1], ""))


def redacted(found: list[Difference], hide: Redactor) -> list[Difference]:
    """The same differences as a log or a page may show them."""
    return [
        Difference(
            one.path, one.change, *(_hidden(one.path, value, hide) for value in (one.before, one.after))
        )
        for one in found
    ]


def _hidden(path: str, value: Any, hide: Redactor) -> Any:
    if value is None:
        return None
    return TOKEN if hide.fields.intersection(path.split(".")) else hide(value)


def _walk(a: Mapping[str, Any], b: Mapping[str, Any], path: str) -> Iterator[Difference]:
    for key in sorted({*a, *b}):
        here = f"{path}.{key}" if path else key
        if key not in b:
            yield Difference(here, "removed", before=a[key])
        elif key not in a:
            yield Difference(here, "added", after=b[key])
        elif isinstance(a[key], dict) and isinstance(b[key], dict):
            yield from _walk(a[key], b[key], here)
        elif a[key] != b[key] or type(a[key]) is not type(b[key]):
            yield Difference(here, "changed", a[key], b[key])
