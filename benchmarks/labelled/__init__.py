"""A labelled set of our own: what the agents of a software team keep, and questions that name what answers them.

`memories.txt` and `questions.txt` are meant to be read, and say themselves how. They were written before the first
measurement, and before their author had read the code that ranks; the category `languages, other words` came later.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from commonplace import Actor, Book

HERE = Path(__file__).parent
FIT, HELD_OUT = "fit", "held out"
GROUPS = {
    "notes": (
        "paraphrase", "superseded", "near duplicate", "several", "languages", "languages, other words", "notes: plain",
        "notes: day", "notes: quoted", "notes: meaning",
    ),
    "identifiers and facts": ("identifier", "path", "typing error", "quoted", "fact", "when", "who"),
    "talk": (
        "in conversation", "talk: answer", "talk: who", "talk: when", "talk: about", "work talk: answer",
        "work talk: who or when",
    ),
    "meetings and sessions": (
        "meeting: answer", "meeting: when", "meeting: who", "meeting: detail", "session: answer", "session: when",
        "session: who", "session: thread",
    ),
}  # fmt: skip
"""The categories by what kind of text their questions are about."""

_HEADING = re.compile(r"== (\S+) (\w+)")
_KEPT = re.compile(r"(\S+) (note|procedure|episode): (.+)")
_FACT = re.compile(r"(\S+) (fact|now) (\S+) = (.+)")
_TALK = re.compile(r"talk (\w+) (\S+ \S+)")
_TURN = re.compile(r"(\S+) (\w+): (.+)")


class Question(NamedTuple):
    text: str
    answers: frozenset[str]
    category: str
    half: str
    """Whether weights may be fitted to it."""


def lines(name: str) -> Iterator[str]:
    for line in (HERE / name).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            yield line


def questions() -> list[Question]:
    found, category = list[Question](), ""
    for line in lines("questions.txt"):
        if line.startswith("== "):
            category = line[3:]
            continue
        text, names = line.rsplit(" -> ", 1)
        half = FIT if len(found) % 2 == 0 else HELD_OUT
        found.append(Question(text, frozenset(names.split()), category, half))
    return found


def fill(book: Book) -> None:
    """Put all memories into a book, each with its name as its id, as the authors would."""
    author, when, talk = "", datetime.now(UTC), ""
    for line in lines("memories.txt"):
        if heading := _HEADING.fullmatch(line):
            author, when = heading[2], datetime.fromisoformat(heading[1]).replace(tzinfo=UTC)
        elif opened := _TALK.fullmatch(line):
            talk, when = opened[1], datetime.fromisoformat(opened[2]).replace(tzinfo=UTC)
        else:
            when += timedelta(minutes=1)
            if not keep(book.as_actor(author), line, when):
                say(book, line, talk, when)


def keep(author: Actor, line: str, when: datetime) -> bool:
    """Remember what a line tells, unless it is a turn of a conversation."""
    reason = "part of a labelled set"
    if fact := _FACT.fullmatch(line):
        id, how, key, value = fact.groups()
        kept = author.remember(
            key=key, value=value, id=id, occurred_at=when, shared=True, override=reason, supersedes=how == "now"
        )  # fmt: skip
    elif text := _KEPT.fullmatch(line):
        id, kind, says = text.groups()
        kept = author.remember(says, kind=kind, id=id, occurred_at=when, shared=True, override=reason)
    else:
        return False
    assert kept.outcome == "stored", (line, kept)
    return True


def say(book: Book, line: str, talk: str, when: datetime) -> None:
    turn = _TURN.fullmatch(line)
    assert turn is not None, line
    id, speaker, text = turn.groups()
    book.record(
        "agent.spoke", actor=speaker, id=id, session_id=talk, occurred_at=when, payload={"text": text}
    )
