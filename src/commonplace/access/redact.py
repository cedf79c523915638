"""Redaction: what nobody should read in a log, a trace, an audit entry, an event view or on a page.

Three things are taken out: the values of fields with certain names, wherever they are nested; whatever
matches a configured pattern; and known secret texts, wherever else they turn up (in an error message, say).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

TOKEN = "[REDACTED]"  # noqa: S105  what stands in a secret's place
SHORTEST = 4
"""Known texts shorter than this are not looked for elsewhere: they would match everywhere."""


class Redactor:
    """What to take out. Immutable, and a pure function of what it was made with."""

    def __init__(
        self, fields: Iterable[str] = (), patterns: Iterable[str] = (), secrets: Iterable[str] = ()
    ) -> None:
        self.fields = frozenset(fields)
        self.patterns = tuple(dict.fromkeys(patterns))
        self.secrets = frozenset(one for one in secrets if len(one) >= SHORTEST)
        # The longest first, so that no secret is left half standing because another one is a part of it.
        known = sorted(self.secrets, key=lambda one: (-len(one), one))
        self._known = re.compile("|".join(map(re.escape, known))) if known else None
        self._patterns = [re.compile(pattern) for pattern in self.patterns]

    def __bool__(self) -> bool:
        return bool(self.fields or self.patterns or self.secrets)

    def __or__(self, other: Redactor) -> Redactor:
        return Redactor(
            self.fields | other.fields, self.patterns + other.patterns, self.secrets | other.secrets
        )

    def knowing(self, value: object) -> Redactor:
        """The same, with every text under a secret field of this value known as a secret, too."""
        return Redactor(self.fields, self.patterns, self.secrets.union(self._secrets_in(value)))

    def _secrets_in(self, value: object) -> Iterator[str]:
        if isinstance(value, Mapping):
            for name, inner in value.items():
                yield from _texts(inner) if name in self.fields else self._secrets_in(inner)
        elif isinstance(value, list | tuple):
            for inner in value:
                yield from self._secrets_in(inner)

    def text(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(TOKEN, text)
        for pattern in self._patterns:
            text = pattern.sub(TOKEN, text)
        return text

    def __call__(self, value: Any) -> Any:
        """The value without its secrets; the shape stays, so that a reader sees that something was there."""
        if not self:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {
                self.text(name): TOKEN if name in self.fields else self(inner)
                for name, inner in value.items()
            }
        if isinstance(value, list | tuple):
            return [self(inner) for inner in value]
        if value is None or isinstance(value, bool):
            return value
        return TOKEN if self.text(str(value)) != str(value) else value  # a number can be a secret, too


def _texts(value: object) -> Iterator[str]:
    """Every text and number inside a value, as text."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
    elif value is not None and not isinstance(value, bool):
        yield str(value)
        if isinstance(value, str) and value != value.strip():
            yield value.strip()


NOTHING = Redactor()
