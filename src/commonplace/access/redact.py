"""Redaction: taking what a run has declared secret out of logs, traces, audit entries, event views and pages.

It goes by what is declared, never by the look, which is `masking`. Three things are taken out: the values of fields
with certain names, wherever they are nested; text that matches a configured pattern; and the texts that secret fields
have held, wherever else they turn up (in an error message, say).

The writer of a text must not be able to stop its readers. So patterns run in linear time, and a text in which too many
known secrets would have to be looked for is taken out whole. Steps are counted, not measured: the same text always gets
the same answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..ledger.checks import is_unicode
from .patterns import bad_pattern, replaced

TOKEN = "[REDACTED]"  # noqa: S105  what stands in a secret's place
SHORTEST, SHORTEST_LINE, LONGEST = 4, 8, 4_000
"""Known texts (and lines of texts) shorter than this are not looked for elsewhere, because they would match
everywhere, nor are longer ones, because nobody repeats them."""
MOST_STEPS = 100_000_000
"""How many steps one text may take, about a second. For each character, a known text that is in the text takes
STEPS_PRESENT, and a hundred known texts that are not in it take one."""
STEPS_PRESENT = 10


class Redactor:
    """What to take out. Immutable, and a pure function of what it was made with."""

    def __init__(
        self, fields: Iterable[str] = (), patterns: Iterable[str] = (), secrets: Iterable[str] = ()
    ) -> None:
        self.fields = frozenset(fields)
        self._texts = frozenset(secrets)
        self._sources = tuple(dict.fromkeys(patterns))
        # The longest first, so that no secret is left half standing because another one is a part of it.
        forms = {form for text in self._texts for form in _forms(text) if len(form) >= SHORTEST}
        self._known = sorted(forms, key=lambda form: (-len(form), form))
        # A book that somebody else made can hold patterns that no run is opened with here: then no text can be shown.
        self._usable = not any(map(bad_pattern, self._sources))

    def __bool__(self) -> bool:
        return bool(self.fields or self._sources or self._known)

    def __or__(self, other: Redactor) -> Redactor:
        return Redactor(
            self.fields | other.fields, self._sources + other._sources, self._texts | other._texts
        )

    def secrets_in(self, value: object) -> set[str]:
        """Every text under a field that must not be shown, wherever in the value it is."""
        texts: set[str] = set()
        if isinstance(value, Mapping):
            for name, inner in value.items():
                texts |= set(_texts(inner)) if name in self.fields else self.secrets_in(inner)
        elif isinstance(value, list | tuple):
            texts = texts.union(*map(self.secrets_in, value))
        return texts

    def text(self, text: str) -> str:
        """A text without its secrets; TOKEN alone if it cannot be looked through, or not in time."""
        if not self._usable or len(text) * (len(self._known) // 100) > MOST_STEPS:
            return TOKEN
        if self._sources and not is_unicode(text):
            return TOKEN
        present = [form for form in self._known if form in text]
        if len(text) * STEPS_PRESENT * len(present) > MOST_STEPS:
            return TOKEN
        if present:
            text = re.sub("|".join(map(re.escape, present)), TOKEN, text)
        for pattern in self._sources:
            shown = replaced(pattern, TOKEN, text)
            if shown is None:
                return TOKEN
            text = shown
        return text

    def under(self, name: str, value: Any) -> Any:
        """The value of a field of this name, without its secrets."""
        return TOKEN if name in self.fields else self(value)

    def __call__(self, value: Any) -> Any:
        """The value without its secrets; the shape stays, so that a reader sees that something was there."""
        if not self:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(name): self.under(name, inner) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self(inner) for inner in value]
        if value is None or isinstance(value, bool):
            return value
        return TOKEN if self.text(str(value)) != str(value) else value  # a number can be a secret, too


def _texts(value: object) -> Iterator[str]:
    """Every text, number and key inside a value, as text; of a text of several lines, each line, too."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(name)
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
    elif isinstance(value, float) and value.is_integer():
        yield str(int(value))
    elif value is not None and not isinstance(value, bool):
        text = str(value).strip()
        if SHORTEST <= len(text) <= LONGEST:
            yield text
        lines = text.splitlines()
        if len(lines) > 1:
            yield from (line.strip() for line in lines if SHORTEST_LINE <= len(line.strip()) <= LONGEST)


def _forms(text: str) -> Iterator[str]:
    """A text as it is, and as it looks inside Python's and JSON's quotes."""
    yield text
    yield repr(text)[1:-1]
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]


NOTHING = Redactor()
