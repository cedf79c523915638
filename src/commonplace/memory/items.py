"""What an item of durable memory is: its kinds, its fields, the words it is made of.

    fact        key, value                 something that holds, under a name
    note        body                       something worth knowing
    procedure   body                       how something is done
    episode     occurred_at, summary       something that happened

An item's id is the id of the event that created it, so everything that is known of events (labels, lineage,
erasure) holds for items, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from math import ceil
from typing import Any, Literal, NamedTuple

import msgspec

from ..access.masking import masked
from ..errors import BadInput, TooLarge, shown
from ..index.words import STOPWORDS, jaccard, tokens
from ..ledger.checks import check_name, check_text, from_us
from ..ledger.encoding import canonical
from ..ledger.views import typed
from .claims import Claim, claim_of, key_form, value_form
from .similar import FLAGGED

Status = Literal["live", "held", "superseded", "archived", "dropped", "forgotten"]

CATEGORIES = ("user", "feedback", "project", "reference")
SOURCES = ("user", "operator", "tool", "system", "import")
ENTRY_TYPES = ("lesson", "pattern", "gotcha", "decision", "example", "reference", "convention")
BESIDE = "beside"
"""The relation of two facts under one key of which somebody has decided that both hold."""
WRITTEN = (
    "value", "title", "body", "summary", "key", "reason", "citations", "tags", "code_refs", "tasks", "provenance",
)  # fmt: skip
"""The fields of an item that hold what somebody wrote."""
PROVENANCE = ("source_kind", "channel", "thread", "session", "message", "tool_call", "refs", "metadata")
ORIGINS = ("channel", "thread", "session", "message", "tool_call")
"""The fields of a provenance that name where something comes from."""

MAX_TEXT = 100_000
MAX_TITLE = 1_000
MAX_TAGS = 64
MAX_LINKS = 256


class Shape(NamedTuple):
    """The fields that a kind of item needs, and those that it may have besides what every item may have."""

    needs: tuple[str, ...]
    may: tuple[str, ...]
    text: str
    """The field that `remember("…")` fills."""


SHAPES = {
    "fact": Shape(("key", "value"), ("observed_us", "confidence", "citations", "reason"), "value"),
    "note": Shape(("body",), ("title", "citations", "reason", "confidence"), "body"),
    "procedure": Shape(("body",), ("title", "confidence", "citations", "reason"), "body"),
    "episode": Shape(("occurred_us", "summary"), ("title",), "summary"),
}
COMMON = (
    "category", "tags", "links", "provenance", "valid_from_us", "valid_until_us", "core", "type", "scope",
    "source_type", "code_refs", "pinned", "tasks",
)  # fmt: skip
CONTENT = frozenset(
    {
        "key", "value", "title", "body", "summary", "tags", "links", "provenance", "citations", "reason", "category",
        "code_refs", "tasks",
    }
)  # fmt: skip
"""Fields that hold what somebody said. An erasure takes them; the others are marks that stay."""


class Corroboration(msgspec.Struct, frozen=True, omit_defaults=True):
    """Somebody else said the same, from an origin of their own, without having been shown it."""

    actor: str
    position: int
    run: str | None = None
    source: tuple[str, ...] = ()


class Held(msgspec.Struct, frozen=True):
    """Why an item waits for somebody's choice: what it is too near to, and how."""

    why: Literal["near_duplicate", "dispute", "proposal"]
    items: tuple[str, ...] = ()
    score: float = 1.0
    comparison: str = ""
    supersedes: tuple[str, ...] = ()
    """What it will take the place of, if it is chosen."""

    @property
    def choices(self) -> tuple[str, ...]:
        """What `resolve` can make of it."""
        return ("new", "old", "both") if self.why == "dispute" else ("skip", "merge", "create")

    @property
    def because(self) -> str:
        """Why it waits, as part of a sentence."""
        others = " and ".join(self.items) or "another item"
        if self.why == "near_duplicate":
            return f"it is nearly the same as {others}"
        if self.why == "proposal":
            return "it is a proposal for a core"
        if self.items and {*self.items} <= {*self.supersedes}:
            return f"it would take the place of {others}, which is not its author's own"
        return f"it contradicts {others}"


class Item(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One item as of one moment."""

    id: str
    kind: str
    agent: str
    """Whose it is."""
    status: Status = "live"
    shared: bool = False
    """Whether the whole team may see it."""
    pinned: bool = False
    """Whether prompts show it before all else."""
    sensitivity: str = "private"
    trust: str = "normal"
    category: str | None = None
    key: str | None = None
    value: Any = None
    title: str | None = None
    body: str | None = None
    """Of a note or procedure; None for other kinds. `text` is what an item of any kind says."""
    summary: str | None = None
    """Of an episode; None for other kinds."""
    occurred_us: int | None = None
    observed_us: int | None = None
    confidence: float | None = None
    tags: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    """Relation and the item at its other end."""
    provenance: dict[str, Any] = {}
    citations: tuple[str, ...] = ()
    reason: str = ""
    supersedes: tuple[str, ...] = ()
    superseded_by: str | None = None
    valid_from_us: int | None = None
    valid_until_us: int | None = None
    core: str | None = None
    type: str | None = None
    source_type: str | None = None
    code_refs: tuple[dict[str, Any], ...] = ()
    tasks: tuple[dict[str, Any], ...] = ()
    """Of a pattern: the tasks that a work begins with."""
    scope: str = ""
    """"" for what agents remember; "repository" for facts of the repository, which are only ever superseded."""
    verified_by: str | None = None
    verified_us: int | None = None
    corroborated: tuple[Corroboration, ...] = ()
    disputed: tuple[str, ...] = ()
    """Items that say otherwise, until somebody settles it."""
    held: Held | None = None
    secrets: tuple[str, ...] = ()
    """What kinds of secrets its text holds; they are shown to nobody."""
    was: Status = "live"
    """What it was before it was forgotten."""
    retells: tuple[str, ...] = ()
    """The episodes that this note stands for."""
    run: str | None = None
    recorded_us: int = 0
    updated_us: int = 0
    position: int = 0
    """Where it changed last."""

    @property
    def text(self) -> str:
        """What it says, without its secrets: key and value, or title and text."""
        return joined(*subject_and_fact(self.as_content()))

    def __str__(self) -> str:
        return self.text

    def as_content(self) -> dict[str, Any]:
        return {
            name: getattr(self, name) for name in ("kind", "key", "value", "title", "body", "summary", "core")
        }

    @property
    def current(self) -> bool:
        return self.status == "live"

    def valid(self, at_us: int) -> bool:
        """Whether it holds at a time, as far as somebody said from when and until when it does."""
        begun = self.valid_from_us is None or self.valid_from_us <= at_us
        return begun and not self.expired(at_us)

    def expired(self, at_us: int) -> bool:
        """Whether the time until when it holds is over."""
        return self.valid_until_us is not None and self.valid_until_us <= at_us


def remarks(item: Item, now_us: int, stale: bool = False) -> list[str]:
    """What a reader has to know of an item besides what it says."""
    told = ["pinned"] if item.pinned else []
    told += ["disputed"] if item.disputed else []
    told += ["stale"] if stale else []
    begins = item.valid_from_us
    told += [f"from {from_us(begins):%Y-%m-%d %H:%M}"] if begins is not None and now_us < begins else []
    return told + (["expired"] if item.expired(now_us) else [])


def joined(subject: str, fact: str) -> str:
    return f"{subject}: {fact}" if subject else fact


def value_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def subject_and_fact(content: Mapping[str, Any]) -> tuple[str, str]:
    """What an item is about, and what it says of it."""
    kind = content["kind"]
    if kind == "fact":
        return content.get("key") or "", value_text(content.get("value"))
    return content.get("title") or "", content.get(SHAPES[kind].text) or ""


def from_row(row: Mapping[str, Any]) -> Item:
    return typed(row, Item, "memory.items", str(row.get("id", "")))


def without_secrets(item: Item) -> Item:
    """The item as anybody may be shown it."""
    if not item.secrets:
        return item
    return msgspec.structs.replace(item, **{name: masked(getattr(item, name)) for name in WRITTEN})


def texts_in(value: Any) -> Iterator[str]:
    """Every text in a value of any shape."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, one in value.items():
            yield name
            yield from texts_in(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from texts_in(one)


# what alike items share


def words_of(content: Mapping[str, Any]) -> frozenset[str]:
    return tokens(joined(*subject_and_fact(content)).replace("|", " "))


def claim_in(content: Mapping[str, Any]) -> Claim:
    """What an item claims: each sentence of what it says, with what it is about."""
    subject, said = subject_and_fact(content)
    return claim_of(said, subject)


def fingerprint(content: Mapping[str, Any]) -> str:
    """The same for items of one place that claim the same; facts, if they have the same value under the same key."""
    if content["kind"] == "fact":
        said = [key_form(content["key"]), value_form(content.get("value")).decode()]
    else:
        said = sorted(claim_in(content))
    return sha256(canonical([content["kind"], content.get("core") or "", *said])).hexdigest()[:32]


MOST_MARKS = 16
"""Marks of a long text: two texts that are alike share nearly all their words, so these few are enough."""

SKETCHED = 64
"""Words of a text by which it is compared before it is read."""


class WordMark(NamedTuple):
    """A word under which an item is found by items that are alike, how many words the item has, and as which of
    its rarest words this one counts."""

    word: str
    size: int
    place: int


@lru_cache(256)
def marks(words: frozenset[str]) -> list[WordMark]:
    """The words under which alike items meet. Of two sets of words that are at least 0.85 alike, the first few in a
    fixed order must share one (of more than a hundred words, nearly always); the order puts words first that few
    texts have."""
    ordered = sorted(words, key=_rarity)
    few = len(words) - ceil(FLAGGED * len(words)) + 1
    chosen = ordered[: min(few, MOST_MARKS)]
    return [WordMark(word[:60], len(words), place) for place, word in enumerate(chosen, 1)]


def alike_places(mark: WordMark) -> list[tuple[int, int]]:
    """Where an alike item can have the same mark: among how many words, and as which of its rarest at the most.
    What lies behind the two places must be enough for all the words that the two must share."""
    found = []
    for size in range(ceil(FLAGGED * mark.size), int(mark.size / FLAGGED) + 1):
        shared = ceil(FLAGGED / (1 + FLAGGED) * (mark.size + size) - 1e-9)
        if mark.size - mark.place + 1 >= shared and size >= shared:
            found.append((size, min(size - shared + 1, MOST_MARKS)))
    return found


@lru_cache(256)
def sketch(words: frozenset[str]) -> str:
    """A few short hashes that stand for a set of words."""
    return "".join(sorted(_hash(word) for word in words)[:SKETCHED])


@lru_cache(20_000)
def _hash(word: str) -> str:
    return sha256(word.encode()).hexdigest()[:5]


def alike_sketches(one: str, other: str) -> float:
    """How alike two texts are, by their sketches: exactly, if neither has more words than a sketch."""
    a = {one[at : at + 5] for at in range(0, len(one), 5)}
    b = {other[at : at + 5] for at in range(0, len(other), 5)}
    return jaccard(a, b)


WORTH = 0.75
"""From which likeness of sketches on two texts are worth comparing: a sketch of a long one is only a sample."""


@lru_cache(20_000)
def _rarity(word: str) -> tuple[bool, bool, int, str]:
    return (word in STOPWORDS, not any(one.isdigit() for one in word), -len(word), word)


# checking what a caller gives


def checked(kind: object, given: Mapping[str, Any]) -> dict[str, Any]:
    """The content of an item from what a caller gave, with empty fields left out. Raises BadInput."""
    if kind not in SHAPES:
        raise BadInput(f"there is no kind of item {shown(kind)}: the kinds are {', '.join(SHAPES)}")
    shape = SHAPES[str(kind)]
    allowed = (*shape.needs, *shape.may, *COMMON)
    stray = sorted(name for name in given if name not in allowed)
    if stray:
        raise BadInput(f"{named(kind)} has no {', '.join(map(plain_name, stray))}: {_fields_of(str(kind))}")
    missing = [name for name in shape.needs if name not in given]
    if missing:
        raise BadInput(
            f"{named(kind)} needs {' and '.join(map(plain_name, missing))}: {_fields_of(str(kind))}"
        )
    content = {"kind": str(kind), **{name: CHECKS[name](name, value) for name, value in given.items()}}
    begins, ends = content.get("valid_from_us"), content.get("valid_until_us")
    if begins is not None and ends is not None and begins >= ends:
        raise BadInput("valid_until lies before valid_from: give the time from which it holds, then the end")
    return {
        name: value for name, value in content.items() if value not in (None, (), [], {}) or name == "value"
    }


def named(kind: object) -> str:
    return f"an {kind}" if kind == "episode" else f"a {kind}"


def plain_name(field: str) -> str:
    return field.removesuffix("_us") + ("_at" if field in ("occurred_us", "observed_us") else "")


def _fields_of(kind: str) -> str:
    shape = SHAPES[kind]
    return f"it needs {', '.join(map(plain_name, shape.needs))} and may have {', '.join(map(plain_name, shape.may))}"


def _text(field: str, value: Any) -> str:
    text = check_text(field, value)
    if not text.strip():
        raise BadInput(f"{field} is empty: say something, or leave the item out")
    if len(text) > MAX_TEXT:
        raise TooLarge(
            f"{field} has {len(text):,} characters and may have {MAX_TEXT:,}: keep it elsewhere, and refer to it"
        )
    return text


def _line(field: str, value: Any) -> str:
    line = " ".join(_text(field, value).split())
    if len(line) > MAX_TITLE:
        raise TooLarge(
            f"{field} has {len(line):,} characters and may have {MAX_TITLE:,}: say the rest in the text"
        )
    return line


def _optional_text(field: str, value: Any) -> str:
    if len(check_text(field, value)) > MAX_TEXT:
        raise TooLarge(f"{field} may have {MAX_TEXT:,} characters: keep it elsewhere, and refer to it")
    return str(value)


def _value(_field: str, value: Any) -> Any:
    if len(canonical(value)) > MAX_TEXT:
        raise TooLarge(f"a fact's value may have {MAX_TEXT:,} bytes: keep it elsewhere, and refer to it")
    return value


CONFIDENCE = {"high": 0.9, "medium": 0.6, "low": 0.3}
"""What the words for confidence mean."""


def _share(field: str, value: Any) -> float:
    value = CONFIDENCE.get(value, value) if isinstance(value, str) else value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise BadInput(f"{field} {shown(value)} is not a number from 0 to 1, nor high, medium or low")
    return float(value)


def _flag(field: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise BadInput(f"{field} {shown(value)} is neither True nor False")
    return value


def _one_of(*allowed: str) -> Any:
    def check(field: str, value: Any) -> str:
        if value not in allowed:
            raise BadInput(f"there is no {field} {shown(value)}: it is one of {', '.join(allowed)}")
        return str(value)

    return check


def _tags(field: str, value: Any) -> list[str]:
    names = _strings(field, value)
    found = sorted({check_tag(name) for name in names if name.strip(" ")})
    if len(found) > MAX_TAGS:
        raise TooLarge(f"an item has at most {MAX_TAGS} tags")
    return found


def check_tag(value: object) -> str:
    """A tag, without the spaces around it. Raises BadInput."""
    return check_name("a tag", value.strip(" ") if isinstance(value, str) else value)


def _strings(field: str, value: Any) -> list[str]:
    if isinstance(value, str) or not isinstance(value, list | tuple | set | frozenset):
        raise BadInput(f"{field} {shown(value)} is not a list of strings, such as ['infra']")
    return [check_text(field, one) for one in value]


def _links(field: str, value: Any) -> list[list[str]]:
    if not isinstance(value, list | tuple) or not all(
        isinstance(one, list | tuple) and len(one) == 2 for one in value
    ):
        raise BadInput(
            f"{field} is a list of pairs of a relation and an item's id, such as [('related', id)]"
        )
    if len(value) > MAX_LINKS:
        raise TooLarge(f"an item has at most {MAX_LINKS} links")
    found = {(check_name("a relation", one[0]), check_name("an item's id", one[1])) for one in value}
    return [list(one) for one in sorted(found)]


def _provenance(field: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise BadInput(f"{field} {shown(value)} is not a mapping: its fields are {', '.join(PROVENANCE)}")
    stray = sorted(str(name) for name in value if name not in PROVENANCE)
    if stray:
        raise BadInput(f"provenance has no {', '.join(stray)}: its fields are {', '.join(PROVENANCE)}")
    if value.get("source_kind") not in (None, *SOURCES):
        raise BadInput(
            f"there is no source_kind {shown(value['source_kind'])}: it is one of {', '.join(SOURCES)}"
        )
    given = {str(name): one for name, one in value.items() if one not in (None, "", [], {})}
    return given | {
        name: check_name(name, given[name]) for name in ORIGINS if isinstance(given.get(name), str)
    }


def wanted_provenance(given: object) -> dict[str, Any]:
    """The fields by which items are chosen. Raises BadInput for one that no item can have."""
    wanted = _provenance("provenance", given)
    empty = sorted(str(name) for name in given if name not in wanted) if isinstance(given, Mapping) else []
    if empty:
        raise BadInput(
            f"provenance says nothing of {', '.join(empty)}: give a value to look for, or leave it out"
        )
    return wanted


def _code_refs(field: str, value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list | tuple) or not all(
        isinstance(one, Mapping) and one.keys() <= {"file", "symbol", "lines"} for one in value
    ):
        raise BadInput(f"{field} is a list of places in code, such as [{{'file': 'a.py', 'symbol': 'main'}}]")
    return [dict(one) for one in value]


TASK_FIELDS = (
    "title", "description", "depends_on", "priority", "needs_review", "on_failure", "for_role", "risk", "metadata",
)  # fmt: skip


def _tasks(field: str, value: Any) -> list[dict[str, Any]]:
    """A pattern's tasks: titles, or mappings with a title, which depend on each other by their titles."""
    if isinstance(value, str | Mapping) or not isinstance(value, Sequence):
        raise BadInput(f"{field} {shown(value)} is not a list of tasks: give titles, or {{'title': …}}")
    tasks = [{"title": one} if isinstance(one, str) else one for one in value]
    for number, task in enumerate(tasks, 1):
        if (
            not isinstance(task, Mapping)
            or not isinstance(task.get("title"), str)
            or not task["title"].strip()
        ):
            raise BadInput(
                f"task {number} of {field} has no title: give one, such as {{'title': 'Design it'}}"
            )
        stray = sorted(set(map(str, task)) - set(TASK_FIELDS))
        if stray:
            raise BadInput(
                f"task {task['title']!r} has no {stray[0]!r}: its fields are {', '.join(TASK_FIELDS)}"
            )
    titles = [task["title"] for task in tasks]
    for task in tasks:
        needs = task.get("depends_on") or ()
        if isinstance(needs, str) or not isinstance(needs, Sequence):
            raise BadInput(f"depends_on of task {task['title']!r} is not a list: give titles of other tasks")
        unknown = [title for title in needs if title not in titles]
        if unknown:
            raise BadInput(
                f"task {task['title']!r} depends on {shown(unknown[0])}, which is none of the tasks"
            )
    if len(set(titles)) < len(titles):
        raise BadInput(
            f"two of the tasks in {field} have the same title: they depend on each other by titles"
        )
    return [dict(task) for task in tasks]


def check_tasks(tasks: object, type: object) -> None:
    """Raises BadInput for tasks of what is no pattern: no work could begin with them."""
    if tasks and type != "pattern":
        raise BadInput(f"only a pattern has tasks, and its type is {shown(type)}: say type='pattern'")


def _moment(_field: str, value: Any) -> int:
    assert isinstance(value, int)  # datetimes are turned into microseconds where they come in
    return value


CHECKS: dict[str, Any] = {
    "key": lambda _, value: check_name("key", value),
    "value": _value,
    "body": _text,
    "summary": _text,
    "title": _line,
    "category": _one_of(*CATEGORIES),
    "confidence": _share,
    "tags": _tags,
    "links": _links,
    "provenance": _provenance,
    "citations": _strings,
    "reason": _optional_text,
    "occurred_us": _moment,
    "observed_us": _moment,
    "valid_from_us": _moment,
    "valid_until_us": _moment,
    "core": lambda _, value: check_name("a core", value),
    "type": _one_of(*ENTRY_TYPES),
    "scope": _one_of("repository"),
    "source_type": _one_of("manual", "extracted", "promoted", "imported"),
    "code_refs": _code_refs,
    "pinned": _flag,
    "tasks": _tasks,
}


SAID = ("text", "summary", "goal")


def event_text(payload: Mapping[str, Any]) -> str:
    """What an event says: its text, else its summary, else its goal; never the whole payload."""
    return next((payload[name] for name in SAID if isinstance(payload.get(name), str)), "")
