"""Whether plain data names somebody: texts compared without regard to case, Unicode form and line breaks. What a text
holds as JSON is escaped there (`Zo\\u00eb`), and is compared as what it says."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from ..errors import BadInput, shown
from .checks import check_text

SHORTEST = 2
"""Characters that a text must have at least: a single letter is found everywhere."""

ERASED_NAME = "[erased]"
"""What takes the place of a name in what an erasure keeps."""

_BETWEEN = "\0"
"""Stands between two texts that are searched at once. No text that is searched for holds it."""

_ALIKE = str.maketrans(
    {
        **dict.fromkeys("\u00ad\u034f\u200b\u200c\u200d\u2060\ufe0f\ufeff"),  # signs that nobody sees
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        **dict.fromkeys("\u2018\u2019\u02bc", "'"),
    }
)

_ESCAPED = re.compile(
    r"""(?x) (?<!\\) \\++
    (?: u (?P<high> [dD][89abAB][0-9a-fA-F]{2} ) \\++ u (?P<low> [dD][c-fC-F][0-9a-fA-F]{2} )
      | u (?P<code> [0-9a-fA-F]{4} ) | (?P<blank> [nrtf] ) | (?= ["/] ) )"""
)
"""A sign as JSON escapes it: those beyond the first 65,536 are written as two. Where JSON stands in JSON, there are
more backslashes; each run of them is read once, however long it is."""


_BACKSLASHES = re.compile(r"\\++")
"""A backslash, however often JSON has escaped it."""


def unescaped(text: str) -> str:
    """A text with the signs in it that are escaped as in JSON; any white space is a space."""
    return _ESCAPED.sub(_sign, text)


def _sign(match: re.Match[str]) -> str:
    if match["high"]:
        return chr(0x10000 + ((int(match["high"], 16) & 0x3FF) << 10) + (int(match["low"], 16) & 0x3FF))
    if match["code"]:
        sign = chr(int(match["code"], 16))
        return "\ufffd" if "\ud800" <= sign <= "\udfff" else sign  # half of a sign is none
    return " " if match["blank"] else ""


def folded(text: str) -> str:
    """A text in the form in which texts are compared: the same for every Unicode form and case of it, with one space
    for any white space, and one sign for every dash and for every apostrophe."""
    if not text.isascii():
        plain = unicodedata.normalize("NFKD", text.translate(_ALIKE)).casefold()
        text = unicodedata.normalize("NFKC", plain)
    return " ".join(text.lower().split())


def can_be_looked_for(text: str) -> bool:
    """Whether a text is long enough to be told from others."""
    return len(folded(text)) >= SHORTEST and _BETWEEN not in text


class Spellings:
    """The spellings of what is looked for. Besides those that are given, the one that names files and folders made
    from it (`zoe-unal` for "Zoë Ünal"). Raises BadInput for what is no text, or too short."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = tuple(dict.fromkeys(check_text("text", text) for text in texts))
        for text in self.texts:
            if not can_be_looked_for(text):
                raise BadInput(
                    f"text {shown(text)} cannot be looked for: give at least {SHORTEST} letters or digits, as people "
                    "write them"
                )
        every = [
            form
            for text in self.texts
            for form in (folded(text), _BACKSLASHES.sub("\\\\", folded(text)), file_name(text))
            if form
        ]
        self.forms = tuple(dict.fromkeys(every))
        self.in_name = lru_cache(4096)(self.within)
        """`within` for names that occur again and again."""

    def within(self, text: str) -> bool:
        """Whether a text holds any of the spellings, as they are or escaped."""
        plain = folded(text)
        if "\\" in text:
            plain = _BETWEEN.join((plain, folded(unescaped(text)), _BACKSLASHES.sub("\\\\", plain)))
        return any(form in plain for form in self.forms)

    def held_by(self, value: object) -> bool:
        """Whether plain data holds any of them: in a text, in a number, in a name of a field, at any depth."""
        parts = list[str]()
        _collect(value, parts)
        return self.within(_BETWEEN.join(parts))

    def places(self, value: object, path: str = "") -> Iterator[tuple[str, str]]:
        """Where in plain data they are: the path, such as `item.tags[0]`, and the text there."""
        if isinstance(value, dict):
            for name, inner in value.items():
                below = f"{path}.{name}" if path else name
                if self.within(name):
                    yield below, name
                yield from self.places(inner, below)
        elif isinstance(value, list | tuple):
            for number, inner in enumerate(value):
                yield from self.places(inner, f"{path}[{number}]")
        elif value is not None and not isinstance(value, bool) and self.within(str(value)):
            yield path, str(value)

    def masked(self, value: Any) -> Any:
        """Plain data with `[erased]` in place of every text and name that holds any of them."""
        if isinstance(value, dict):
            return {self.masked(name): self.masked(inner) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.masked(inner) for inner in value]
        return ERASED_NAME if isinstance(value, str) and self.within(value) else value


def _collect(value: object, parts: list[str]) -> None:
    kind = type(value)
    if kind is str:
        parts.append(value)  # type: ignore[arg-type]
    elif kind is dict:
        for name, inner in value.items():  # type: ignore[attr-defined]
            parts.append(name)
            _collect(inner, parts)
    elif kind is list or kind is tuple:
        for inner in value:  # type: ignore[attr-defined]
            _collect(inner, parts)
    elif kind is int or kind is float:
        parts.append(str(value))


def file_name(text: str) -> str:
    """How names of files and folders spell a text; "" where that is no spelling of its own, or says too little."""
    ascii = unicodedata.normalize("NFKD", text.casefold()).encode("ascii", "ignore").decode()
    words = re.findall("[a-z0-9]+", ascii)
    letters = sum(sign.isalnum() for sign in text)
    return "-".join(words) if len("".join(words)) >= max(4, letters - 2) else ""


def written_forms(text: str) -> list[str]:
    """The forms in which files are most likely to hold a text: as it is given, in small letters and in capitals,
    composed and decomposed, each as it is and as JSON escapes it."""
    cases = (text, text.lower(), text.upper())
    plain = [unicodedata.normalize(form, case) for case in cases for form in ("NFC", "NFD")]
    escaped = [json.dumps(form)[1:-1] for form in plain]
    capitals = [re.sub(r"(?<=\\u)[0-9a-f]{4}", lambda code: code[0].upper(), form) for form in escaped]
    return list(dict.fromkeys([*plain, *escaped, *capitals]))


def around(text: str, spellings: Spellings, most: int = 80) -> str:
    """The part of a text in which one of them stands, on one line. Where folding has moved it, the beginning."""
    line, at = _first_in(text, spellings)
    if at < 0 and "\\" in text:
        line, at = _first_in(unescaped(text), spellings)
    start = max(0, at - most // 3)
    part = line[start : start + most]
    return f"{'…' if start else ''}{part}{'…' if start + most < len(line) else ''}"


def _first_in(text: str, spellings: Spellings) -> tuple[str, int]:
    """A text on one line, and where one of them stands in it; -1 if that cannot be said."""
    line = " ".join(unicodedata.normalize("NFC", text).split())
    return line, max((line.lower().find(form) for form in spellings.forms), default=-1)
