"""Markdown written for agents: notes that stay whole, and lists of things to remember that are cut up.

    a note      has front matter, or speaks of other notes as [[Name]]: Basic Memory, Obsidian, memory folders
    a list      MEMORY.md, CLAUDE.md, AGENTS.md and markdown of no other kind: every bullet and every paragraph
                stands for itself, under the headings above it

Headings become titles; rules such as `---` are layout. All other text ends up in a body, or is skipped aloud.
An `@path` import is text like any other: nothing is ever read because a file says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from posixpath import basename, dirname, join, normpath
from typing import Any
from urllib.parse import unquote

from msgspec.structs import replace

from ...errors import BadInput
from .blocks import blocks, heading, prose
from .incoming import FileRead, Incoming, Skipped, category_of, short, take_time, unique

SUFFIXES = {".md", ".markdown", ".mdc"}
MAX_BYTES = 1_000_000
MAX_FRONT = 64_000
LISTS, NOTES = "markdown", "front-matter"
ABOUT = {
    LISTS: "MEMORY.md, CLAUDE.md, AGENTS.md and the like (.md): a note for each bullet and paragraph",
    NOTES: "notes with front matter or [[links]] (.md; Basic Memory, Obsidian): a note for each file",
}
ALWAYS_LISTS = {
    "memory",
    "claude",
    "claude.local",
    "agents",
    "agents.override",
    "gemini",
    "copilot-instructions",
}
"""Names of files that are lists whatever is in them."""

# As with blocks: linear time only.
_SHELLS = r"bash|sh|zsh|fish|shell|console|terminal|powershell|pwsh|ps1|cmd|bat|shell-session|sh-session"
_COMMANDS = re.compile(
    rf"^[ \t]*(?:[-*+][ \t]+)?(?:`{{3,}}+|~{{3,}}+)[ \t]*+(?:(?:{_SHELLS})\b|[^\n]*\n[ \t]*[$] )", re.M | re.I
)
_TAG = re.compile(r"(?<![^\s(])#([^\W\d][\w/-]*)")
_WIKI = re.compile(r"\[\[([^\[\]|#\n]+)(?:#[^\[\]|\n]*)?(?:\|[^\[\]\n]*)?\]\]")
_FILE = re.compile(r"\]\(<?([^()<>\s#:]+\.md)(?:#[^()<>\s]*)?>?\)")
_RELATION = re.compile(
    r"""[ \t]*[-*+][ \t]+(?:"([^"]+)"|'([^']+)'|([\w-]+))[ \t]+\[\[[^\[\]]+\]\][ \t]*+(?:\([^()]*\)[ \t]*+)?$"""
)
_ENTRY = re.compile(r"\[[^\[\]\n]+\]\(([^()<>\s#:]+\.md)\)[ \t]*(?:[-:–—][^\n]*)?")


def read(path: str, text: str) -> FileRead:
    """Read one file. `path` is relative, with slashes: it is the provenance and what links are resolved by."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    front, start, skipped = _split(path, lines)
    stem = basename(path).rpartition(".")[0]
    page = FileRead(path, LISTS, skipped=skipped, aliases=[stem])
    body = "\n".join(lines[start:]).strip()
    if stem.lower() not in ALWAYS_LISTS and (front or _WIKI.search(prose(body))):
        page.format = NOTES
        page.items.append(_note(page, front, body))
    else:
        _cut(page, lines, start)
        if front and page.items:
            page.items[0] = replace(page.items[0], metadata=front)
        elif front:
            page.items.append(_note(page, front, body))
    if not page.items and not skipped:
        skipped.append(Skipped(path, "empty"))
    return page


def link(pages: Sequence[FileRead]) -> None:
    """Make the links of pages lead to each other.

    The first item of a page bears the page's name. A link is followed by path, then by whatever else exactly
    one page is called: file name, title, permalink, alias. An entry of an index (`- [Title](file.md) — hook`)
    whose file was read is not an item of its own: it is kept with that file's first item, as `listed`.
    """
    called: dict[str, set[str]] = {}
    for page in pages:
        for alias in page.aliases:
            called.setdefault(alias.casefold(), set()).add(page.name)

    def resolved(page: FileRead, target: str, among: set[str]) -> str:
        plain = target.removesuffix(".md")
        for place in (normpath(join(dirname(page.path), plain)), normpath(plain)):
            if place in among:
                return place
        others = called.get(plain.casefold(), set()) & among
        return others.pop() if len(others) == 1 else target

    # Only a page with something of its own can keep an entry: two indexes of each other stay as they are.
    solid = {page.name for page in pages if len(page.items) > len(page.pointers)}
    listed: dict[str, list[dict[str, str]]] = {}
    for page in pages:
        kept = []
        for item in page.items:
            target = resolved(page, page.pointers.get(item.source, ""), solid)
            if item.source in page.pointers and target in solid:
                entry = {"source": item.source, "under": item.title or "", "text": item.body}
                listed.setdefault(target, []).append(entry)
            else:
                kept.append(item)
        page.items = kept
    names = {page.name for page in pages if page.items}
    for page in pages:
        page.items = [
            replace(item, links=unique((relation, resolved(page, to, names)) for relation, to in item.links))
            for item in page.items
        ]
        if page.items:
            more = {"listed": listed[page.name]} if page.name in listed else {}
            first = page.items[0]
            page.items[0] = replace(first, name=page.name, metadata={**first.metadata, **more})


def _split(path: str, lines: list[str]) -> tuple[dict[str, Any], int, list[Skipped]]:
    """The front matter, the index of the first line below it, and what cannot be used of it. Front matter that
    is refused is kept as text: the note below it has done nothing wrong."""
    end = 0
    if lines[0].rstrip() == "---":
        end = next((at for at, line in enumerate(lines) if at and line.rstrip() in ("---", "...")), 0)
    raw = "\n".join(lines[1:end])
    try:
        front = _front_matter(raw) if end else None
    except BadInput as error:
        return {"front_matter": raw}, end + 1, [Skipped(f"{path}:1", str(error))]
    if not front:
        return {}, 0, []
    comments = [
        Skipped(f"{path}:{at}", f"a comment in the front matter: {line.strip()}")
        for at, line in enumerate(lines[1:end], 2)
        if line.lstrip().startswith("#")
    ]
    return front, end + 1, comments


def _front_matter(text: str) -> dict[str, Any] | None:
    """The mapping that stands between a file's two `---` lines, all scalars as text, or None when something else stands
    there."""
    from ...files.plain_yaml import parse_yaml

    mapping = parse_yaml(f"\n{text}", "front matter", MAX_FRONT, typed=False)  # it begins on the second line
    return mapping if isinstance(mapping, dict) else None


def _note(page: FileRead, front: dict[str, Any], body: str) -> Incoming:
    left = dict(front)
    kind = left.get("type")
    inner = left["metadata"] if isinstance(left.get("metadata"), dict) else {}
    page.aliases += [left[key] for key in ("title", "name", "permalink") if isinstance(left.get(key), str)]
    page.aliases += _texts(left.get("aliases"))
    named = next((key for key in ("title", "name") if isinstance(left.get(key), str)), None)
    title = (left.pop(named) if named else heading(body.partition("\n")[0])) or page.aliases[0]
    tags = _texts(left.pop("tags")) if _texts(left.get("tags")) else []
    return Incoming(
        kind="procedure" if kind == "procedure" else "note",
        body=body or (left.pop("description") if isinstance(left.get("description"), str) else "") or title,
        title=title,
        tags=_tags(body, tags),
        links=unique([*_links(body), *_properties(left)]),
        category=category_of(kind, left.get("category"), inner.get("type")),
        occurred_at=take_time(left, "occurred_at", "date"),
        created_at=take_time(left, "created_at", "created"),
        source=page.path,
        metadata=left,
    )


@dataclass
class _Above:
    level: int
    text: str
    source: str
    used: bool = False


def _cut(page: FileRead, lines: list[str], start: int) -> None:
    """The items of a list, each titled by the headings above it and by the line that introduces it."""
    above: list[_Above] = []

    def leave(level: int) -> None:
        while above and above[-1].level >= level:
            last = above.pop()
            if last.text and not last.used:
                page.skipped.append(Skipped(last.source, f"a heading with nothing below it: {last.text}"))

    lead = ""
    for block in blocks(lines, start):
        source, body = f"{page.path}:{block.line}", block.body()
        lead = lead if block.kind == "bullet" else ""
        if block.kind == "comment":
            page.skipped.append(Skipped(source, f"a comment: {body}"))
            continue
        if block.kind == "heading":
            leave(block.indent)
            above.append(_Above(block.indent, short(body), source))
            if short(body) == body:
                continue  # a longer one is an item as well, so that all of it is kept
        if block.kind == "lead":
            lead = body
            continue
        if not re.search(r"\w", body):
            page.skipped.append(Skipped(source, f"no words in it: {f'{lead} {body}'.strip()}"))
            continue
        for heading_above in above:
            heading_above.used = True
        if block.kind == "bullet" and (entry := _ENTRY.fullmatch(body)):
            page.pointers[source] = unquote(entry[1])
        page.items.append(
            Incoming(
                kind="procedure" if block.kind == "steps" or _COMMANDS.search(body) else "note",
                body=body,
                title=" > ".join(filter(None, [*(each.text for each in above), lead])) or None,
                tags=_tags(body),
                links=unique(_links(body)),
                source=source,
            )
        )
    leave(0)


def _tags(text: str, more: Iterable[str] = ()) -> tuple[str, ...]:
    words = [*_TAG.findall(prose(text)), *more]
    return tuple(sorted({tag for word in words if (tag := word.strip().strip("#/").strip())}))


def _links(text: str) -> Iterator[tuple[str, str]]:
    """Links to other notes: `- relation [[Note]]`, and any other [[Note]] or [text](note.md) as links_to."""
    for line in prose(text).split("\n"):
        match = _RELATION.match(line)
        relation = next(filter(None, match.groups())) if match else "links_to"
        yield from ((relation, target.strip()) for target in _WIKI.findall(line) if target.strip())
        yield from (("links_to", unquote(target)) for target in _FILE.findall(line))


def _properties(front: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Links in the front matter: `related: "[[Note]]"`."""
    for key, value in front.items():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str):
                yield from ((key, target.strip()) for target in _WIKI.findall(text) if target.strip())


def _texts(value: object) -> list[str]:
    """A list of texts, or one text taken apart at its commas; nothing when it is anything else."""
    if isinstance(value, str):
        return [text.strip() for text in value.split(",")]
    return value if isinstance(value, list) and all(isinstance(text, str) for text in value) else []
