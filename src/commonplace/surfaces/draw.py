"""How answers look to people: lines and tables that fit the terminal, and cannot act on it.

Whatever comes out of a book passes `clean` on its way. What is drawn is lines of text; styles are escape sequences that
are added on a terminal only.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from unicodedata import east_asian_width

UNSEEN_WIDTH = 100
"""Columns to write when no terminal says how many there are."""

STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35"}

MADE_ID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}\b")
"""An id that the book has made."""

SHORT = 8
"""How many of an id's last characters people see."""

GAP = "  "

Human = Iterator[str]
"""What people read, made when it is asked for."""


def clean(text: str) -> str:
    """Text on one line that cannot act on a terminal."""
    return harmless(" ".join(text.split()))


def harmless(text: str) -> str:
    """Control characters, escape sequences and marks that turn the direction of writing stand as what they are.
    Joiners stay, scripts and emoji need them."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in "\u200c\u200d" else char.encode("unicode_escape").decode()
        for char in text
    )


def short(text: object) -> str:
    """A text with ids as people see them: the end of one that the book made, all of one that somebody chose."""
    return MADE_ID.sub(lambda id: id[0][-SHORT:], clean(str(text)))


def width() -> int:
    """How many columns there are."""
    if not sys.stdout.isatty() and not os.environ.get("COLUMNS"):
        return UNSEEN_WIDTH
    return shutil.get_terminal_size().columns


def styled(text: str, style: str, *, stderr: bool = False) -> str:
    """The text in a style, on a terminal that shows styles."""
    shown = (sys.stderr if stderr else sys.stdout).isatty() and not os.environ.get("NO_COLOR")
    return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if style and shown and text else text


def lines(*said: object, style: str = "") -> Human:
    """Each as a paragraph that fits the terminal, indented as it is."""
    for text in map(str, said):
        indent = text[: len(text) - len(text.lstrip(" "))]
        for line in wrapped(clean(text), width() - len(indent)):
            yield styled(indent + line, style)


_SHELL_WORD = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+""")


def continued(label: str, command: str) -> Human:
    """A command after a label, broken between its words as a shell reads it: each line but the last ends in a
    backslash. A word stays in one piece."""
    line, indent = label, " " * len(label)
    for word in _SHELL_WORD.findall(harmless(command)):
        candidate = f"{line}{'' if line.endswith(' ') else ' '}{word}"
        if columns(candidate) > width() - 2 and line.strip() and line != label:
            yield f"{line} \\"
            candidate = f"{indent}{word}"
        line = candidate
    yield line


def page(text: str) -> Human:
    """A text with its lines and spaces as they are, and nothing in it that could act on a terminal. No line is broken:
    what is piped on is what was said."""
    return map(harmless, text.splitlines())


LONGEST = 36
"""Columns of an id in a table. A longer one, which somebody chose, has a line of its own."""


class TableCell(str):
    """A cell of a table in a style; one that is `whole` is not broken."""

    style: str
    whole: bool

    def __new__(cls, text: object, style: str = "", *, whole: bool = False) -> TableCell:
        made = super().__new__(cls, clean(str(text)))
        made.style, made.whole = style, whole
        return made


def id_cell(id: object) -> TableCell:
    return TableCell(short(id), whole=True)


def table(rows: Iterable[Iterable[object]], *headings: str) -> Human:
    """Rows under headings, or without headings as names and values. Nothing is cut: what is too wide wraps. An id stays
    in one piece as long as a line has room for it: one that would squeeze the other columns stands above its row."""
    body = [[cell if isinstance(cell, TableCell) else TableCell(cell) for cell in row] for row in rows]
    head = [[TableCell(heading, "bold", whole=True) for heading in headings]] if headings else []
    if not headings:
        body = [[TableCell(row[0], "bold", whole=True), *row[1:]] for row in body]
    every = [_without_long_ids(row) for row in head + body]
    if not every:
        return
    sizes = _sizes([row for _, row in every], width())
    for long_ids, row in every:
        for id in long_ids:
            yield from wrapped(id, width())
        parts = [wrapped(cell, size) for cell, size in zip(row, sizes, strict=False)]
        for number in range(max(map(len, parts))):
            line = ""
            for column, (cell, size) in enumerate(zip(row, sizes, strict=False)):
                text = parts[column][number] if number < len(parts[column]) else ""
                last = column == len(row) - 1
                line += styled(text, cell.style) + ("" if last else " " * (size - columns(text)) + GAP)
            yield line.rstrip()


def _without_long_ids(row: list[TableCell]) -> tuple[list[TableCell], list[TableCell]]:
    """The ids of a row that are too long for a column, and the row without them."""
    long = [cell.whole and columns(cell) > LONGEST for cell in row]
    return (
        [cell for cell, is_long in zip(row, long, strict=True) if is_long],
        [TableCell("") if is_long else cell for cell, is_long in zip(row, long, strict=True)],
    )


def _sizes(rows: list[list[TableCell]], room: int) -> list[int]:
    """How wide each column is: as its widest cell, or less where the whole does not fit; columns that may wrap give
    way first, the widest of them before the others."""
    count = max(map(len, rows))
    sizes = [max(columns(row[at]) if at < len(row) else 0 for row in rows) for at in range(count)]
    whole = [
        max((columns(row[at]) for row in rows if at < len(row) and row[at].whole), default=1)
        for at in range(count)
    ]
    for least in (whole, [1] * count):
        over = sum(sizes) + len(GAP) * (count - 1) - room
        while over > 0:
            widest = max(range(count), key=lambda at: sizes[at] - least[at])
            if sizes[widest] <= least[widest]:
                break
            second = max((sizes[at] for at in range(count) if at != widest), default=0)
            cut = min(over, max(1, sizes[widest] - max(second, least[widest])))
            sizes[widest] -= min(cut, sizes[widest] - least[widest])
            over = sum(sizes) + len(GAP) * (count - 1) - room
    return sizes


def columns(text: str) -> int:
    """How many columns a text takes on a terminal."""
    return len(text) if text.isascii() else sum(2 if east_asian_width(char) in "WF" else 1 for char in text)


def wrapped(text: str, room: int) -> list[str]:
    """The text in lines that fit, broken between words where there is a place."""
    room = max(room, 1)
    if columns(text) <= room:
        return [text]
    found, line = list[str](), ""
    for word in text.split(" "):
        candidate = f"{line} {word}" if line else word
        if columns(candidate) <= room:
            line = candidate
            continue
        if line:
            found.append(line)
        while columns(word) > room:
            taken = fitting(word, room)
            found.append(taken)
            word = word[len(taken) :]
        line = word
    return [*found, line] if line else found


def fitting(text: str, room: int) -> str:
    """The beginning of a text that fits, at least one character."""
    size = 0
    for number, char in enumerate(text):
        size += columns(char)
        if size > room and number:
            return text[:number]
    return text


def cut(text: str, room: int) -> str:
    """One line of a text, with a mark where something was left out."""
    return text if columns(text) <= room else fitting(text, room - 1) + "…"
