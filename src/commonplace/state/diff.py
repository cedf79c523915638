"""What differs between two states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ..access.redact import TOKEN, Redactor
from ..ledger.printing import Readable

VOLATILE = ("_meta", "_trace")
"""Keys that differ between any two runs and say nothing about what they know."""


class Difference(Readable, msgspec.Struct, frozen=True):
    """One place that differs. `change` is added, removed or changed."""

    path: str
    change: str
    before: Any = None
    after: Any = None
    parts: tuple[str, ...] = ()
    """The names that the path is made of."""

    def __str__(self) -> str:
        values = {"added": f"{self.after}", "removed": f"{self.before}"}
        return f"{self.change} {self.path}: {values.get(self.change, f'{self.before} → {self.after}')}"


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    """Field by field, in the order of their paths; lists are compared whole."""
    lasting = [{key: value for key, value in state.items() if key not in VOLATILE} for state in (a, b)]
    return list(_walk(lasting[0], lasting[1], ()))


def redacted(differences: list[Difference], hide: Redactor) -> list[Difference]:
    """The same differences as a log or a page may show them. Below a secret field not even names are shown."""
    shown: dict[tuple[tuple[str, ...], str], Difference] = {}
    for each in differences:
        secret = next((n for n, name in enumerate(each.parts) if name in hide.fields), None)
        parts = tuple(hide.text(name) for name in each.parts[: None if secret is None else secret + 1])
        before, after = (
            None if value is None else TOKEN if secret is not None else hide(value)
            for value in (each.before, each.after)
        )
        shown[parts, each.change] = Difference(".".join(parts), each.change, before, after, parts)
    return list(shown.values())


def _walk(a: Mapping[str, Any], b: Mapping[str, Any], above: tuple[str, ...]) -> Iterator[Difference]:
    for key in sorted({*a, *b}):
        parts = (*above, key)
        path = ".".join(parts)
        if key not in b:
            yield Difference(path, "removed", before=a[key], parts=parts)
        elif key not in a:
            yield Difference(path, "added", after=b[key], parts=parts)
        elif isinstance(a[key], dict) and isinstance(b[key], dict):
            yield from _walk(a[key], b[key], parts)
        elif a[key] != b[key] or type(a[key]) is not type(b[key]):
            yield Difference(path, "changed", a[key], b[key], parts)
