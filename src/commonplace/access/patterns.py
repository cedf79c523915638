"""Regular expressions that users write: in workflow files, in contracts.

They run on RE2, which finds a match in time that is linear in the length of the text, whatever the pattern. With
Python's `re`, somebody who writes a text could stop everybody who reads it: `(a+)+b` takes twice as long for each
further character. A text can still have many matches, each looked for up to its end: `replaced` counts that, and gives
up in time.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

LONGEST = 2_000
"""How many characters a pattern may have."""
MOST_STEPS = 100_000_000
"""How many characters may be read to replace all matches in one text: about a second, where matching is slow."""


@lru_cache(256)
def compiled(pattern: str) -> Any:
    """A pattern with `search` and `sub`. Raises re2.error."""
    import re2

    options = re2.Options()
    options.log_errors = False
    return re2.compile(_as_python_means_it(pattern), options)


_CLASSES = {
    "w": r"\p{L}\p{M}\p{N}_",
    "d": r"\p{Nd}",
    "s": r"\t-\r\x{1c}-\x{20}\x{85}\p{Z}",
}
"""Characters of Python's classes, which are Unicode's; those of RE2 are ASCII's."""


def _as_python_means_it(pattern: str) -> str:
    """A pattern as RE2 writes what it means in Python, as far as both can say it. A `\\b` in a pattern with letters
    beyond ASCII is left out: what is looked for is found, and sometimes more."""
    ascii_only, parts, within, at = pattern.isascii(), list[str](), False, 0
    while at < len(pattern):
        char, following = pattern[at], pattern[at + 1 : at + 2]
        at += 1
        if char == "\\":
            at += 1
            parts.append(_escaped(following, within, ascii_only))
        elif char == "$" and not within and "(?m" not in pattern:
            parts.append(r"(?:\n?\z)")
        else:
            if char == "[" and not within:
                within = True
                if following == "^":
                    parts.append(char)
                    char, at = "^", at + 1
                if pattern[at : at + 1] == "]":  # the first one does not close the set
                    char, at = char + r"\]", at + 1
            elif char == "]":
                within = False
            parts.append(char)
    return "".join(parts)


def _escaped(letter: str, within: bool, ascii_only: bool) -> str:
    chars = _CLASSES.get(letter.lower(), "")
    if chars and within and letter.islower():
        return chars
    if chars and not within:
        return f"[{'^' if letter.isupper() else ''}{chars}]"
    if letter == "b" and not within and not ascii_only:
        return ""
    return r"\z" if letter == "Z" and not within else f"\\{letter}"


def replaced(pattern: str, instead: str, text: str) -> str | None:
    """A text with something else in the place of every match that is not empty; None if that takes more than
    MOST_STEPS."""
    parts, end, steps = list[str](), 0, 0
    for match in compiled(pattern).finditer(text):
        start = match.start()
        steps += len(text) - start
        if steps > MOST_STEPS:
            return None
        if match.end() > start:
            parts += [text[end:start], instead]
            end = match.end()
    return "".join([*parts, text[end:]]) if parts else text


def bad_pattern(pattern: object) -> str | None:
    """Why this cannot be used as a pattern, or None."""
    import re2

    if not isinstance(pattern, str):
        return "it is not text"
    if len(pattern) > LONGEST:
        return f"it has {len(pattern):,} characters, and {LONGEST:,} is the most: write several patterns"
    try:
        compiled(pattern)
    except UnicodeEncodeError:
        return "it is not Unicode text"
    except re2.error as error:
        reason = error.args[0]
        said = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        return (
            f"{said}. Patterns are written as RE2 takes them: without look-around and back references, and with "
            "limits up to {1000}"
        )
    return None
