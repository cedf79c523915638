"""How answers print."""

from __future__ import annotations

LONGEST = 120
"""How many characters of an answer's first line stand in its `repr`."""


class Readable:
    """An answer that prints as a person would read it, also in a list: `<Task Write the labels (pending)>`."""

    __slots__ = ()

    def __repr__(self) -> str:
        first, _, rest = str(self).partition("\n")
        cut = rest or len(first) > LONGEST
        return f"<{type(self).__name__} {first[:LONGEST]}{' …' if cut else ''}>"
