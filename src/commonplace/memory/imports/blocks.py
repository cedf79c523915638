"""Markdown as blocks of lines that belong together: just enough of it to cut a list of things to remember.

Every pattern here runs over text of strangers: none may take more than linear time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import dedent

from .incoming import MAX_TITLE

_HEADING = re.compile(r" {0,3}(#{1,6})(?=[ \t]|$)")
_RULE = re.compile(r" {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$")
_BULLET = re.compile(r"[ \t]*[-*+][ \t]+(?=\S)")
_STEP = re.compile(r"[ \t]*(\d{1,3})[.)][ \t]+(?=\S)")
_FENCE = re.compile(r"[ \t]*(?:[-*+][ \t]+|\d{1,3}[.)][ \t]+)?(`{3,}|~{3,})[^`]*$")
_CODE = re.compile(r"`[^`\n]*`")


@dataclass
class MarkdownBlock:
    """Lines that belong together. The kinds: heading (its `indent` is its level), text, bullet with all that is
    indented below it, steps (a whole numbered list), comment, and lead: a short line that introduces bullets."""

    line: int
    kind: str
    indent: int
    lines: list[str]

    def body(self) -> str:
        if self.kind == "heading":
            return heading(self.lines[0]) or ""
        mark = _BULLET.match(self.lines[0]) if self.kind == "bullet" else None
        if mark is None:
            return dedent("\n".join(self.lines)).strip()
        return "\n".join([self.lines[0][mark.end() :], dedent("\n".join(self.lines[1:]))]).strip()

    def leads(self) -> bool:
        """Whether it introduces what comes next."""
        return self.kind == "text" and self.lines[-1].rstrip("*_ \t").endswith(":")

    def joins(self, line: str, kind: str, gap: bool) -> bool:
        """Whether this line belongs here too; with a gap, blank lines stand in between."""
        if self.kind in ("bullet", "steps") and _indent(line) >= self.indent + 2:
            return True
        if self.kind in ("heading", "comment") or kind in ("heading", "rule", "comment"):
            return False
        if kind == "bullet":
            return self.kind == "steps" and not gap
        if kind == "steps":
            interrupts = self.kind != "text" or re.match(r"\s*0*1[.)]", line)
            return self.kind == "steps" or self.leads() or not (gap or interrupts)
        return not gap or (bool(_FENCE.match(line)) and (self.kind == "steps" or self.leads()))


def blocks(lines: list[str], start: int = 0) -> Iterator[MarkdownBlock]:
    """The blocks of these lines from index `start` on, in order. Only blank lines and rules are in none."""
    block: MarkdownBlock | None = None
    closing, gap = "", False
    for number, line in enumerate(lines[start:], start + 1):
        if block and closing:
            block.lines.append(line)
            closing = "" if _closes(line, closing) else closing
            continue
        if not line.strip():
            gap = True
            continue
        kind = _kind(line)
        if block and block.joins(line, kind, gap):
            if kind == "steps" and block.leads():
                block.kind = "steps"
            block.lines += ["", line] if gap else [line]
        else:
            if block:
                if kind == "bullet" and block.leads() and len("".join(block.lines)) <= MAX_TITLE:
                    block.kind = "lead"
                yield block
            level = _HEADING.match(line)
            indent = len(level[1]) if level and kind == "heading" else _indent(line)
            block = None if kind == "rule" else MarkdownBlock(number, kind, indent, [line])
        if fence := _FENCE.match(line):
            closing = fence[1]
        elif kind == "comment" and not _closes(line, "-->"):
            closing = "-->"
        gap = False
    if block:
        yield block


def heading(line: str) -> str | None:
    """The text of a heading, or None when the line is none."""
    if not _HEADING.match(line):
        return None
    text = line.strip().lstrip("#").strip()
    before, _, closers = text.rpartition(" ")
    return before.rstrip() if closers and not closers.strip("#") else text


def prose(text: str) -> str:
    """The text without code, in which a # or a bracket means something else."""
    kept, closing = [], ""
    for line in text.split("\n"):
        if closing:
            closing = "" if _closes(line, closing) else closing
        elif fence := _FENCE.match(line):
            closing = fence[1]
        else:
            kept.append(_CODE.sub("", line))
    return "\n".join(kept)


def _kind(line: str) -> str:
    if _HEADING.match(line):
        return "heading"
    if _RULE.match(line):
        return "rule"
    if line.lstrip().startswith("<!--") and ("-->" not in line or line.rstrip().endswith("-->")):
        return "comment"
    return "bullet" if _BULLET.match(line) else "steps" if _STEP.match(line) else "text"


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _closes(line: str, closing: str) -> bool:
    if closing == "-->":
        return "-->" in line
    bare = line.strip()
    return bare.startswith(closing) and not bare.strip(closing[0])
