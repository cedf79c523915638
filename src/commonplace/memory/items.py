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
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec

from ..access.masking import masked
from ..ledger.checks import from_us
from ..ledger.printing import number
from ..ledger.views import typed

Status = Literal["live", "held", "superseded", "archived", "dropped", "forgotten"]

CATEGORIES = ("user", "feedback", "project", "reference")
BESIDE = "beside"
"""The relation of two facts under one key of which somebody has decided that both hold."""
WRITTEN = (
    "value", "title", "body", "summary", "key", "reason", "citations", "tags", "code_refs", "tasks", "provenance",
    "metadata",
)  # fmt: skip
"""The fields of an item that hold what somebody wrote."""
MAX_TEXT = 100_000


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
    "category", "tags", "links", "provenance", "valid_from_us", "valid_until_us", "core", "type", "repository",
    "source_type", "code_refs", "pinned", "tasks", "metadata",
)  # fmt: skip
CONTENT = frozenset({*WRITTEN, "links", "category"})
"""Fields that hold what somebody said. An erasure takes them; the others are marks that stay."""


class Corroboration(msgspec.Struct, frozen=True, omit_defaults=True):
    """Somebody else said the same, from an origin of their own, without having been shown it."""

    actor: str
    position: int
    run: str | None = None
    source: tuple[str, ...] = ()


class Held(msgspec.Struct, frozen=True):
    """Why an item waits for somebody's choice: what it is too near to, and how."""

    why: Literal["near_duplicate", "dispute", "proposal", "evidence"]
    items: tuple[str, ...] = ()
    """What it is too near to, or contradicts; of one that waits for evidence, what it would push out of digests."""
    score: float = 1.0
    comparison: str = ""
    supersedes: tuple[str, ...] = ()
    """What it will take the place of, if it is chosen."""
    reason: str = ""
    """What is missing, if it waits for evidence. What is nearly the same may lack evidence, too."""
    receipts: tuple[str, ...] = ()
    """The recorded digests that would get worse with it."""

    @property
    def choices(self) -> tuple[str, ...]:
        """What `resolve` can make of it."""
        if self.why == "evidence":
            return ("create", "skip")
        return ("new", "old", "both") if self.why == "dispute" else ("skip", "merge", "create")

    @property
    def because(self) -> str:
        """Why it waits, as part of a sentence."""
        others = " and ".join(self.items) or "another item"
        if self.why == "near_duplicate":
            return f"it is nearly the same as {others}"
        if self.why == "proposal":
            return "it is a proposal"
        if self.why == "evidence":
            if not self.receipts:  # a reader that may not see them is not told how many there are
                return self.reason or "it waits for evidence"
            digests = number(len(self.receipts), "recorded digest")
            return f"it would push {others} out of {digests}: receipt {', '.join(self.receipts)}"
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
    scope: str = ""
    """The scope that it belongs to; "" for the root. In the book, the scope's key; as it is shown, its path."""
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
    metadata: dict[str, Any] = {}
    """Fields of its author's own, by which it can be chosen."""
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
    repository: bool = False
    """Whether it is a fact of the repository, which is never changed, only superseded."""
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
    summarizes: tuple[str, ...] = ()
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

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= 80 else f"{self.text[:79]}…"
        return f"<{self.status} {self.kind} {self.id}: {text}>"

    @property
    def recorded_at(self) -> datetime:
        return from_us(self.recorded_us)

    @property
    def updated_at(self) -> datetime:
        """When it changed last."""
        return from_us(self.updated_us)

    @property
    def occurred_at(self) -> datetime | None:
        return moment(self.occurred_us)

    @property
    def observed_at(self) -> datetime | None:
        return moment(self.observed_us)

    @property
    def verified_at(self) -> datetime | None:
        return moment(self.verified_us)

    @property
    def valid_from(self) -> datetime | None:
        return moment(self.valid_from_us)

    @property
    def valid_until(self) -> datetime | None:
        return moment(self.valid_until_us)

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


def moment(us: int | None) -> datetime | None:
    return None if us is None else from_us(us)


def remarks(item: Item, now_us: int, stale: bool = False) -> list[str]:
    """What a reader has to know of an item besides what it says."""
    texts = [("pinned", item.pinned), ("disputed", bool(item.disputed)), ("stale", stale)]
    if item.valid_from_us is not None and now_us < item.valid_from_us:
        texts.append((f"from {item.valid_from:%Y-%m-%d %H:%M}", True))
    texts.append(("expired", item.expired(now_us)))
    return [text for text, applies in texts if applies]


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
        for name, inner in value.items():
            yield name
            yield from texts_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from texts_in(inner)


SAID = ("text", "summary", "goal")


def event_text(payload: Mapping[str, Any]) -> str:
    """What an event says: its text, else its summary, else its goal; never the whole payload."""
    return next((payload[name] for name in SAID if isinstance(payload.get(name), str)), "")
