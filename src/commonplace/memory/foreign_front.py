"""The front matter of a markdown file, read with suspicion."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import BadInput, TooLarge, shown

MAX_FRONT = 64_000
MAX_DEPTH = 32


def read_front(text: str) -> dict[str, Any] | None:
    """The mapping that stands between a file's two `---` lines, or None when something else stands there.

    Scalars are text as they are written (`1.10`, `no` and dates too), nothing at all is None. Only the parser
    runs, so no tag can build anything. Refused, with the line in the file: tags, anchors and aliases (which is
    how little text becomes gigabytes), keys that come twice or are not text, deep nesting, more than
    64,000 characters.
    """
    import yaml

    if len(text) > MAX_FRONT:
        raise TooLarge(f"front matter of {len(text):,} characters; at most {MAX_FRONT:,} are read")
    events: Iterator[Any] = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))

    def refuse(event: Any, why: str) -> BadInput:
        return BadInput(f"front matter, line {event.start_mark.line + 2}: {why}")

    def value(event: Any, depth: int) -> Any:
        if getattr(event, "anchor", None) is not None:
            raise refuse(event, "anchors and aliases are not followed; write the value out")
        if event.tag is not None:
            raise refuse(event, f"the tag {shown(event.tag)} is not followed; leave it out")
        if depth > MAX_DEPTH:
            raise refuse(event, f"nested deeper than {MAX_DEPTH} levels; write it flatter")
        if isinstance(event, yaml.ScalarEvent):
            if any("\ud800" <= letter <= "\udfff" for letter in event.value):
                raise refuse(event, "half of a character (a lone surrogate); write the whole character")
            return None if event.implicit[0] and event.value in ("", "~", "null") else event.value
        if isinstance(event, yaml.SequenceStartEvent):
            listed = []
            while not isinstance(inner := next(events), yaml.SequenceEndEvent):
                listed.append(value(inner, depth + 1))
            return listed
        mapping: dict[str, Any] = {}
        while not isinstance(inner := next(events), yaml.MappingEndEvent):
            key = value(inner, depth + 1)
            if not isinstance(key, str) or key in mapping:
                why = "comes twice; keep one of them" if isinstance(key, str) else "must be text"
                raise refuse(inner, f"the key {shown(key)} {why}")
            mapping[key] = value(next(events), depth + 1)
        return mapping

    try:
        next(events)
        if isinstance(next(events), yaml.StreamEndEvent):
            return None
        read = value(next(events), 0)
        next(events)
        if not isinstance(after := next(events), yaml.StreamEndEvent):
            raise refuse(after, "a second document begins here; keep one")
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 2}" if mark else ""
        raise BadInput(
            f"front matter{line}: not YAML ({getattr(error, 'problem', None) or error})"
        ) from error
    return read if isinstance(read, dict) else None
