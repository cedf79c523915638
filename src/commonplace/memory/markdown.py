"""Items as markdown that people read and edit, and back.

- **db.port**: 5433                       a fact: its key, its value
- **db port** — Postgres listens …        anything else: its title, if it has one, and its text
  a second line of the same item
- *(pinned, disputed)* **api.limit**: 60  remarks, which are no part of the item
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from ..documents.document import check_day
from ..errors import BadInput
from .items import SHAPES, Item, value_text

HEADINGS = {"fact": "Facts", "note": "Notes", "procedure": "Procedures", "episode": "Episodes"}

_BULLET = re.compile(r"[-*+] ")
_FACT = re.compile(r"\*\*(?P<key>[^*\n]+)\*\*: (?P<value>.*)", re.DOTALL)
_DAY = re.compile(r"^(?:- )?(?:\*\*[^*\n]+\*\* — )?(\d{4}-\d{2}-\d{2}): ")
_REMARK = r"(?:pinned|disputed|stale|expired|from [\d: -]+)"
_REMARKS = re.compile(rf"^(\s*[-*+] )?\*\({_REMARK}(?:, {_REMARK})*\)\* ")
_TITLED = re.compile(r"\*\*(?P<title>[^*\n]+)\*\* — (?P<text>.*)", re.DOTALL)


def block(item: Item) -> str:
    """An item as one bullet."""
    if item.kind == "fact":
        text = f"**{_plain(item.key or '')}**: {value_text(item.value)}"
    else:
        body = getattr(item, SHAPES[item.kind].text) or ""
        if item.kind == "episode" and item.occurred_us is not None:
            body = f"{item.occurred_at:%Y-%m-%d}: {body}"
        text = f"**{_plain(item.title)}** — {body}" if item.title else body
    first, *rest = text.split("\n")
    return "\n".join([f"- {first}", *(f"  {line}" if line.strip() else "" for line in rest)])


def remarked(bullet: str, remarks: Sequence[str]) -> str:
    """A bullet with remarks in front of what it says."""
    return f"- *({', '.join(remarks)})* {bullet.removeprefix('- ')}" if remarks else bullet


def _unremarked(bullet: str) -> str:
    return _REMARKS.sub(r"\1", bullet)


def _plain(title: str) -> str:
    return title.replace("*", "∗").replace("\n", " ")


def fields(text: str, kind: str | None = None) -> tuple[str, dict[str, Any]]:
    """What somebody wrote as a bullet: the kind of item, and its fields. Without a kind, a key and value are a
    fact and anything else is a note."""
    text = _unindented(_unremarked(text))
    if not text.strip():
        raise BadInput("an item of memory cannot be empty: delete its line to have it forgotten")
    fact = _FACT.fullmatch(text)
    if kind == "fact" or (kind is None and fact is not None):
        if fact is None:
            raise BadInput("a fact is written as - **key**: value")
        return "fact", {"key": fact["key"].strip(), "value": _value(fact["value"].strip())}
    kind = kind or "note"
    titled = _TITLED.fullmatch(text)
    plain: dict[str, Any] = {"title": titled["title"].strip()} if titled else {}
    body = (titled["text"] if titled else text).strip("\n")
    if kind == "episode":
        body = re.sub(r"^\d{4}-\d{2}-\d{2}: ", "", body)
    return kind, {**plain, SHAPES[kind].text: body}


def bullets(text: str) -> list[str]:
    """What somebody wrote, cut into items: each bullet is one, and so is each paragraph."""
    parts: list[list[str]] = [[]]
    blank = False
    for line in text.strip("\n").split("\n"):
        indented = line.startswith((" ", "\t"))
        if parts[-1] and not indented and line.strip() and (blank or _BULLET.match(line)):
            parts.append([])
        parts[-1].append(line)
        blank = not line.strip()
    return ["\n".join(lines).strip("\n") for lines in parts]


def changed_fields(item: Item, text: str) -> dict[str, Any]:
    """What somebody changed of an item by changing its text. What looks as it did is as it was: a key that markdown
    cannot show, a text that reads like a number."""
    text = _unremarked(text)
    _, after = fields(text, item.kind)
    _, before = fields(block(item), item.kind)
    changed = {name: value for name, value in after.items() if name not in before or before[name] != value}
    changed |= {name: None for name in before if name not in after}
    day, was = _DAY.search(text), _DAY.search(block(item))
    if item.kind == "episode" and day and was and day[1] != was[1]:
        changed["occurred_at"] = datetime.fromisoformat(check_day("its day", day[1])).replace(tzinfo=UTC)
    if isinstance(item.value, str) and "value" in changed:
        fact = _FACT.fullmatch(_unindented(text))
        changed["value"] = fact["value"].strip() if fact else changed["value"]
    return changed


def _unindented(text: str) -> str:
    """A bullet's text without its dash, and without the indent of what follows."""
    first, *rest = text.strip("\n").split("\n")
    first = re.sub(r"^\s*[-*+] ", "", first)
    return "\n".join([first, *(line.removeprefix("  ") for line in rest)])


def _value(text: str) -> Any:
    """What was written after a key: JSON if it is, else the words themselves."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if isinstance(value, float) and value - value != 0 else value


def ordered(items: Iterable[Item]) -> list[Item]:
    """Items in the order of a page: by kind, then as they were recorded."""
    kinds = list(HEADINGS)
    return sorted(items, key=lambda item: (kinds.index(item.kind), item.recorded_us, item.id))


MARKS = len("<!-- cp: -->\n\n<!-- /cp -->\n\n")


def size(item: Item) -> int:
    """The bytes that an item takes on a page, marks and all."""
    return len(block(item).encode()) + len(item.id) + MARKS


HEAD = 400
"""The bytes of a page's head and end."""


def fitting(
    items: Iterable[Item], limit: int, remarks: Callable[[Item], Sequence[str]] = lambda _: ()
) -> tuple[list[Item], list[Item]]:
    """The pinned and the newest items that fit into so many bytes with their remarks, and the others, which are
    older."""
    newest = sorted(items, key=lambda item: (item.pinned, item.recorded_us, item.id), reverse=True)
    left, shown, older = limit - HEAD, list[Item](), list[Item]()
    for item in newest:
        left -= size(item) + len(remarked("", remarks(item)))
        (older if left < 0 else shown).append(item)
    return ordered(shown), ordered(older)


def document(title: str, items: Iterable[Item], remarks: Callable[[Item], Sequence[str]]) -> str:
    """A page of items as text, each kind under its heading."""
    parts, last = [f"# {title}"], ""
    for item in ordered(items):
        if item.kind != last:
            parts.append(f"\n## {HEADINGS[item.kind]}\n")
            last = item.kind
        parts.append(remarked(block(item), remarks(item)))
    return "\n".join(parts) + "\n"
