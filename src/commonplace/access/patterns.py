"""Regular expressions that users write: in workflow files, in contracts.

They run on RE2, whose time is linear in the length of the text, whatever the pattern. With Python's `re`, somebody who
writes a text could stop everybody who reads it: `(a+)+b` takes twice as long for each further character.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

LONGEST = 2_000
"""How many characters a pattern may have."""


@lru_cache(256)
def compiled(pattern: str) -> Any:
    """A pattern with `search` and `sub`. Raises re2.error."""
    import re2

    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)


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
