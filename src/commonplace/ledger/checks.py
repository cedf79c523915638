"""Checks of what callers pass in: names, texts, numbers, paths, times.

Each check returns the value in the form in which it is kept, or raises BadInput that names the parameter, what was
passed and what is allowed.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from ..errors import BadInput, shown

T = TypeVar("T")

MAX_NAME = 200
"""Characters of a name."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_EARLIEST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LATEST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND


def check_path(field: str, value: object) -> Path:
    """The path of a file or folder, whether it is there or not. Raises BadInput."""
    path = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(path, str) or "\0" in path:
        raise BadInput(f"{field} {shown(value)} is not a path: give the name of a file or folder")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise BadInput(f"{field} {shown(value)} is not a path: no file can have that name") from None
    return Path(path)


def check_whole(field: str, value: object, most: int = 10**9) -> int:
    """A whole number from 0. Raises BadInput."""
    if type(value) is not int or not 0 <= value <= most:
        raise BadInput(f"{field} {shown(value)} is not a whole number from 0 to {most:,}")
    return value


def check_seconds(field: str, value: object) -> float | None:
    """A number of seconds, or None: no end. Raises BadInput."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 10**9:
        raise BadInput(f"{field} {shown(value)} is not a number of seconds: give one, or None to wait on")
    return float(value)


def without_none(**fields: Any) -> dict[str, Any]:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def check_each(field: str, values: str | Iterable[T]) -> Iterable[Any]:
    """Several values; a text is one of them. Raises BadInput."""
    if isinstance(values, str):
        return (values,)
    if isinstance(values, bytes | Mapping) or not isinstance(values, Iterable):
        raise BadInput(f"{field} {shown(values)} is not a list: give one, such as [...]")
    return values


def check_position(field: str, value: object) -> int:
    """A position of a ledger. Raises BadInput."""
    if type(value) is not int or not 0 <= value < 2**63:
        raise BadInput(f"{field}={shown(value)} is not a position: give a whole number from 0")
    return value


def check_flag(field: str, value: object) -> bool:
    """True or False. Raises BadInput for anything else: no word is taken for True."""
    if not isinstance(value, bool):
        raise BadInput(f"{field} {shown(value)} is neither True nor False")
    return value


def check_call(field: str, value: T) -> T:
    """A function, or None. Raises BadInput."""
    if value is not None and not callable(value):
        raise BadInput(f"{field} {shown(value)} is not a function: give one, or leave it out")
    return value


def check_if_position(value: object) -> int | None:
    """The position of what the caller has read, or None: any. Raises BadInput."""
    return None if value is None else check_position("if_position", value)


def check_name(field: str, value: object) -> str:
    """A name (of an event, actor, run, book, tag, key, task …): 1 to 200 characters of any script, in NFC.

    Two names that look the same must be the same name, so characters that cannot be seen are refused: control and
    format characters (zero-width ones and joiners too, so an emoji of several parts is no name), other spaces than
    U+0020, spaces at the ends. Letters of other scripts that look alike stay other letters. Use the returned name: it
    may differ from the argument.
    """
    short = isinstance(value, str) and 0 < len(value) <= MAX_NAME
    if short and type(value) is str and value.isascii() and value.isprintable() and value == value.strip():
        return value
    if not short:
        raise BadInput(f"{field} {shown(value)} is not a name: give 1 to {MAX_NAME} characters")
    name = unicodedata.normalize("NFC", check_text(field, value))
    unseen = next((char for char in name if char != " " and _unseen(char)), None)
    if unseen is not None:
        raise BadInput(
            f"{field} {shown(value)} is not a name: U+{ord(unseen):04X} in it cannot be seen. Leave it out"
        )
    if name != name.strip():
        raise BadInput(f"{field} {shown(value)} is not a name: leave out the space at its beginning or end")
    if len(name) > MAX_NAME:
        raise BadInput(f"{field} {shown(value)} is not a name: give 1 to {MAX_NAME} characters")
    return name


def is_name(value: object) -> bool:
    """Whether this is a name, in the form in which it is kept."""
    try:
        return check_name("it", value) == value
    except BadInput:
        return False


_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Letters and marks that show nothing."""


@lru_cache(1024)
def _unseen(char: str) -> bool:
    return unicodedata.category(char)[0] in "CZ" or _UNSEEN.match(char) is not None


def check_text(path: str, value: object) -> str:
    """Any text, as long as it is text."""
    if not isinstance(value, str):
        raise BadInput(f"{path} {shown(value)} is not text: give a string")
    if not is_unicode(value):
        raise BadInput(
            f"{path} holds a lone surrogate, which is not text: "
            "decode the bytes it came from with errors='replace'"
        )
    return value


def is_unicode(text: str) -> bool:
    """Whether a text can be written as UTF-8: one with a lone surrogate cannot."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# times: in the ledger, microseconds since 1970


def to_us(field: str, moment: object) -> int:
    """Microseconds since 1970 of a datetime that knows its timezone."""
    if not isinstance(moment, datetime):
        raise BadInput(
            f"{field} {shown(moment)} is not a datetime, such as datetime(2027, 1, 31, tzinfo=UTC)"
        )
    if moment.tzinfo is None:
        raise BadInput(f"{field} {moment.isoformat()} is a datetime without a timezone: add tzinfo=UTC")
    us = (moment - _EPOCH) // _MICROSECOND
    if not _EARLIEST <= us <= _LATEST:
        raise BadInput(f"{field} {moment.isoformat()} lies outside the years 1 to 9999 of UTC")
    return us


def from_us(us: int) -> datetime:
    return _EPOCH + us * _MICROSECOND


def iso(us: int) -> str:
    return from_us(us).isoformat(timespec="microseconds").replace("+00:00", "Z")
