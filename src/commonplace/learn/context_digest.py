"""The context digest: what one manager knows after an iteration, in a few lines that are addressed by their content.

Every iteration of a manager leaves one. It holds no time and no random id, so the same work gives the same address, and
digests of sub-managers are linked by their addresses. Nothing in it is invented: what workers leave out stays empty.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from ..ledger.printing import Readable
from ..recall.escaping import as_data

LONGEST_GOAL, LONGEST_FACT = 500, 240
MOST_FACTS, MOST_QUESTIONS, MOST_CHILDREN = 10, 10, 10
SURE, UNSURE = 0.8, 0.7
"""From which confidence on a result counts as a fact, and below which it raises a question."""

SAYING = ("summary", "result", "findings", "analysis", "answer", "output")
"""The fields of a worker's output that say what it found, in the order in which they are looked at."""
ASKING = ("open_questions", "questions", "blockers", "unknowns")
"""The fields that say what it does not know."""

WorkerResult = tuple[str, object]
"""A worker and what it answered."""


class ContextDigest(Readable, msgspec.Struct, frozen=True):
    """What a manager knows after an iteration. `address` is the hash of its content."""

    goal: str = ""
    open_questions: Sequence[str] = ()
    key_facts: Sequence[str] = ()
    confidence_trend: Sequence[float] = ()
    child_digest_hashes: Sequence[str] = ()
    iteration: int = 0
    run_id: str = ""

    @property
    def address(self) -> str:
        """The sha256 of its fields as JSON with sorted keys."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        return sha256(json.dumps(fields, sort_keys=True, ensure_ascii=False).encode()).hexdigest()

    @property
    def confidence(self) -> float | None:
        """The last confidence that a worker stated."""
        return self.confidence_trend[-1] if self.confidence_trend else None

    def __str__(self) -> str:
        parts = [f"goal: {as_data(self.goal)}", f"iteration: {self.iteration}"]
        for title, lines in (("key facts", self.key_facts), ("open questions", self.open_questions)):
            parts += [f"{title}:", *(f"- {as_data(line)}" for line in lines)] if lines else []
        if self.confidence_trend:
            parts.append(f"confidence: {' → '.join(f'{each:.2f}' for each in self.confidence_trend[-10:])}")
        return "\n".join(parts)


def digest_of_iteration(
    task: str,
    results: Iterable[WorkerResult],
    *,
    prior: ContextDigest | None = None,
    iteration: int = 1,
    run_id: str = "",
    children: Iterable[str] = (),
) -> ContextDigest:
    """The digest of one iteration from what its workers answered, in the order in which they were dispatched. An answer
    of any shape is taken as far as it can be read."""
    before = prior or ContextDigest()
    facts, questions, trend = list(before.key_facts), list[str](), list(before.confidence_trend)
    for worker, output in results:
        fields = output if isinstance(output, Mapping) else {}
        sure = confidence_of(fields)
        if sure is not None:
            trend.append(sure)
            if sure >= SURE and (text := _said(fields)):
                facts.append(f"{worker}: {text}")
            if 0 < sure < UNSURE:
                questions.append(f"{worker} is not sure of its result (confidence {sure:.2f})")
        questions += _asked(fields)
    return ContextDigest(
        goal=before.goal or plain(task)[:LONGEST_GOAL],
        open_questions=tuple(dict.fromkeys(questions))[:MOST_QUESTIONS],
        key_facts=tuple(dict.fromkeys(facts))[-MOST_FACTS:],
        confidence_trend=tuple(trend),
        child_digest_hashes=tuple(dict.fromkeys((*before.child_digest_hashes, *children))),
        iteration=iteration,
        run_id=run_id,
    )


def confidence_of(output: object) -> float | None:
    """The confidence that a worker states, if it is a number from 0 to 1."""
    value = output.get("confidence") if isinstance(output, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        return None
    return float(value)


def _said(fields: Mapping[str, Any]) -> str:
    """What a worker found: the first field that says something."""
    for name in SAYING:
        text = " ".join(_text(fields.get(name)).split())
        if text:
            return text[:LONGEST_FACT]
    return ""


def _asked(fields: Mapping[str, Any]) -> Iterator[str]:
    for name in ASKING:
        value = fields.get(name)
        for each in value if isinstance(value, list | tuple) else [value]:
            text = " ".join(_text(each).split())
            if text:
                yield text[:LONGEST_FACT]


def _text(value: object) -> str:
    """A value as text; "" where there is none."""
    if value is None or isinstance(value, bool) or value in ("", [], {}):
        return ""
    if isinstance(value, str):
        return plain(value)
    try:
        return plain(json.dumps(value, sort_keys=True, ensure_ascii=False, default=str))
    except (TypeError, ValueError, RecursionError):
        return plain(str(value))


def plain(text: str) -> str:
    """A text that can be encoded."""
    return text.encode("utf-8", "replace").decode()


# what a manager's prompt shows of digests


def my_digest(digest: ContextDigest | None) -> str:
    """The manager's own digest as a block of its prompt; "" before its first iteration has ended."""
    return "" if digest is None else f"## MY DIGEST ({digest.address[:12]})\n{digest}"


def children_digests(children: Sequence[ContextDigest]) -> str:
    """The digests of sub-managers as a block of a prompt, a line each; "" if there are none."""
    lines = [
        f"- {child.address[:12]} iteration {child.iteration}, {len(child.key_facts)} facts, "
        f"{len(child.open_questions)} questions: {as_data(child.goal)[:160]}"
        for child in children[-MOST_CHILDREN:]
    ]
    return "\n".join(["## CHILDREN DIGESTS", *lines]) if lines else ""
