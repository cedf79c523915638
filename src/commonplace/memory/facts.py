"""Facts of a repository: short, falsifiable, cited, and about more than one plan."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..errors import BadInput, shown
from ..events import check_text

_CITED = re.compile(r"[^\s:][^\n]*?:\d+(?:-\d+)?")
_OF_A_PLAN = re.compile(
    r"(?i)\b(?:phase|iteration|sprint|plan|task|ticket|issue)[ -]?#?\d+\b|\b[A-Z]{2,}-\d+\b"
)
_DATE = re.compile(r"\b\d{4}-\d{2}-\d{2}\b")
_SENTENCE = re.compile(r"[.!?](?:\s|$)")


def checked_fact(
    subject: str, fact: str, citations: Sequence[str], reason: str, category: str | None
) -> tuple[str, str, tuple[str, ...]]:
    """The parts of a fact as they are kept, plans and days stripped from its subject. Raises BadInput that lists
    everything that is wrong with it."""
    given = " ".join(check_text("subject", subject).split())
    subject = " ".join(_DATE.sub("", _OF_A_PLAN.sub("", given)).split()).strip(" ,;:-–()[]")
    fact = " ".join(check_text("fact", fact).split())
    wrong = []
    if not given:
        wrong.append("say what it is about in subject")
    elif not subject:
        wrong.append(
            f"the subject {given!r} names only a plan or a day: keep that in the task's folder instead"
        )
    if not fact:
        wrong.append("say what holds in fact")
    if len(_SENTENCE.findall(fact.rstrip())) > 2 or len(fact) > 500:
        wrong.append("a fact has one or two sentences: split it, or keep the rest in the task's folder")
    if not isinstance(citations, list | tuple) or not citations:
        wrong.append("cite where it can be seen, such as ['src/app.py:12']")
    else:
        bad = [one for one in citations if not _CITED.fullmatch(check_text("a citation", one))]
        wrong += [f"{shown(one)} is no citation: write file:line" for one in bad]
    if not check_text("reason", reason).strip():
        wrong.append("say in reason why it will matter later")
    if category is None:
        wrong.append("say which category it is: user, feedback, project or reference")
    if wrong:
        raise BadInput("that is not a fact of the repository: " + "; ".join(wrong))
    return subject, fact, tuple(dict.fromkeys(citations))
