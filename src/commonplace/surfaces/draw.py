"""How answers look to people: lines and tables that fit the terminal, and cannot act on it.

Whatever comes out of a book passes `clean` on its way. rich is imported when something is drawn.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from ..events import Event

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

UNSEEN_WIDTH = 160
"""Columns to write when no terminal says how many there are."""

Human = Iterator["Text | Table"]
"""What people read, drawn when it is asked for."""


def clean(text: str) -> str:
    """Text on one line that cannot act on a terminal."""
    return harmless(" ".join(text.split()))


def page(text: str) -> Human:
    """A text with its lines and spaces as they are, and nothing in it that could act on a terminal. No line is broken:
    what is piped on is what was said."""
    from rich.text import Text

    for line in text.splitlines():
        yield Text(harmless(line), overflow="ignore", no_wrap=True)


def harmless(text: str) -> str:
    """Control characters, escape sequences and marks that turn the direction of writing stand as what they are.
    Joiners stay, scripts and emoji need them."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() or one in "\u200c\u200d" else one.encode("unicode_escape").decode()
        for one in text
    )


def console(*, stderr: bool) -> Console:
    from rich.console import Console

    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    seen = terminal or os.environ.get("COLUMNS")
    made = Console(
        stderr=stderr,
        force_terminal=terminal,
        color_system=None if os.environ.get("NO_COLOR") or not terminal else "auto",
        width=None if seen else UNSEEN_WIDTH,
        highlight=False,
        markup=False,
        emoji=False,
    )
    made.on_broken_pipe = _raise_again  # type: ignore[method-assign]
    return made


def _raise_again() -> None:
    """rich would end the process with exit code 1, which means refused."""
    raise BrokenPipeError


def lines(*said: object, style: str = "") -> Iterator[Text]:
    from rich.text import Text

    for one in said:
        yield Text(clean(str(one)), style=style)


def table(rows: Iterable[Iterable[object]], *headings: str) -> Iterator[Table]:
    """Rows under headings, or without headings as names and values. Nothing is cut, it wraps."""
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, show_header=bool(headings), pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings or ("", ""):
        drawn.add_column(heading, overflow="fold")
    for row in rows:
        cells = [cell if isinstance(cell, Text) else Text(clean(str(cell))) for cell in row]
        if not headings:
            cells[0].stylize("bold")
        drawn.add_row(*cells)
    yield drawn


def log_lines(
    events: Iterable[Event], width: int, content: Callable[[Event], str] | None = None
) -> Iterator[Text]:
    """One line an event, in columns that do not depend on the other events, so that a log can be followed."""
    from rich.text import Text

    if width < 60:
        columns = {"actor": 8, "kind": 14}
    elif width < 110:
        columns = {"time": 14, "actor": 10, "kind": 16, "run": 8}
    else:
        columns = {"time": 20, "actor": 16, "kind": 24, "run": 16}

    def line(position: str, cells: dict[str, str], content: str, style: str) -> Text:
        row = Text(f"{position:>6} ", style=style, no_wrap=True)
        for name, size in columns.items():
            cell = Text(clean(cells[name]))
            cell.truncate(size, overflow="ellipsis", pad=True)
            row.append_text(cell).append(" ")
        row.append(clean(content))
        row.truncate(width, overflow="ellipsis")
        return row

    yield line("#", {name: name for name in columns}, "content", "bold")
    for event in events:
        when = (
            f"{event.created_at:%Y-%m-%dT%H:%M:%SZ}" if width >= 110 else f"{event.created_at:%m-%d %H:%M:%S}"
        )
        cells = {"time": when, "actor": event.actor, "kind": event.kind, "run": event.run_id or ""}
        yield line(str(event.position), cells, (content or _content)(event), "dim" if event.erased else "")


def _content(event: Event) -> str:
    """The gist of a payload: what it says if it says something, else all of it."""
    if event.erased:
        return "(erased)"
    said = (event.payload.get(name) for name in ("text", "summary", "goal"))
    found = next((one for one in said if isinstance(one, str) and one.strip()), None)
    return (json.dumps(event.payload, ensure_ascii=False) if found is None else found.strip())[:1000]
