"""The commands of durable memory and their answers: plain data, so that a command can wait in a queue."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec

from ..errors import BadInput
from ..ledger.checks import check_each, check_name, from_us
from ..ledger.printing import Readable, number
from ..verbs import ItemId
from .items import Held, Item

CREATED, UPDATED = "memory.item.created", "memory.item.updated"
FORGOTTEN, DELETED, CONSOLIDATED = "memory.item.forgotten", "memory.item.deleted", "memory.item.consolidated"
RECALLED, CONFIGURED = "memory.recalled", "memory.configured"
RECEIPT = "receipt.written"
"""What a digest or prompt leaves behind; as RECALLED, it says what was shown to its reader for the first time."""

Outcome = Literal["stored", "merged", "flagged", "rejected"]


class Remember(msgspec.Struct, frozen=True):
    """Keep an item. What needs no look at the book (secrets, exclusions) was judged before."""

    by: str
    content: Mapping[str, Any]
    labels: Mapping[str, str]
    run: str | None = None
    acting_in: str | None = None
    """The run whose turn its author takes; `run` may name another one."""
    session: str | None = None
    parents: tuple[str, ...] = ()
    supersedes: tuple[str, ...] = ()
    follows: bool = False
    """Nobody said whether it is shared: then as what it takes the place of."""
    proposed: bool = False
    """It waits until a person decides, whatever it says."""
    hold: Held | None = None
    """Why it waits for evidence, if it does."""
    replaces: bool = False
    """Supersede whatever fact of the author's own has the same key."""
    secrets: tuple[str, ...] = ()
    excluded: str = ""
    """Why it does not belong into durable memory; refused unless overridden."""
    override: str = ""
    echo_of: str = ""
    """Something that was shown to the author, which this repeats."""
    not_after: tuple[str, ...] = ()
    """It is refused if an item that says the same has one of these statuses: it has ended, and does not come back."""
    id: str | None = None
    occurred_us: int | None = None


class RememberMany(msgspec.Struct, frozen=True):
    """Keep several items of one author, one after the other, in one commit."""

    requests: tuple[Remember, ...]
    before: int = 0
    """How many entries of the same call were kept earlier: an error names the place of an entry."""


class RememberResult(msgspec.Struct, frozen=True):
    """What became of something to remember.

    stored: it is a new item. merged: it was known already, and `item_id` is what it is known as. flagged: it is
    held until somebody chooses (`resolve`), and `held` says why. rejected: nothing was kept.
    """

    item_id: str | None
    outcome: Outcome
    reason: str = ""
    held: Held | None = None
    redacted: tuple[str, ...] = ()
    """What kinds of secrets were found: the item is sensitive now, and nobody is shown them."""
    superseded: tuple[str, ...] = ()
    overflow: str = ""
    """What this write pushed out of MEMORY.md into its archive, if it is full."""
    position: int | None = None
    advice: str = ""
    """What to think about: it was kept, and looks like something that is told elsewhere or will not last."""
    follows: bool = False
    """Whether it is shared because what it takes the place of was: nobody said so."""
    may_supersede: bool = False
    """Whether it may be remembered again with `supersedes`, to take the place of what it is held for."""

    @property
    def id(self) -> str | None:
        """The same as `item_id`."""
        return self.item_id

    def __str__(self) -> str:
        known = self.replaceable
        superseding = f"supersedes={known[0]!r}" if len(known) == 1 else f"supersedes={[*known]}"
        return self.told(f"book.memory.resolve({self.item_id!r}, CHOICE, rationale=WHY)", superseding)

    def __repr__(self) -> str:
        return f"<{self.outcome} {self.item_id}{': ' if self.reason else ''}{self.reason}>"

    @property
    def replaceable(self) -> tuple[str, ...]:
        """What it can take the place of by being remembered again with `supersedes`, and what it was to take the place
        of anyway."""
        if self.held is None or not self.may_supersede:
            return ()
        return tuple(dict.fromkeys((*self.held.supersedes, *self.held.items)))

    def told(self, settling: str, superseding: str) -> str:
        """What happened, in one sentence. `settling` is the call that settles what is held, as the reader would
        write it, with CHOICE and WHY to be filled in; `superseding` names what is `replaceable` as superseded."""
        replaced = f" in place of {' and '.join(self.superseded)}" if self.superseded else ""
        match self.outcome:
            case "stored":
                sentence = f"stored as {self.item_id}{replaced}"
                sentence += ", shared, as what it replaces was" if self.follows else ""
                sentence += f", {self.reason}" if self.reason else ""
            case "merged":
                sentence = f"merged with {self.item_id}: {self.reason}"
            case "flagged":
                waiting = self._waiting(settling, superseding)
                sentence = f"flagged and held as {self.item_id}{replaced}{waiting}"
            case "rejected":
                sentence = f"rejected: {self.reason}"
        secrets = (
            f"it holds a secret ({', '.join(self.redacted)}), which nobody is shown" if self.redacted else ""
        )
        advice = f"advice: {self.advice}" if self.advice else ""
        return "; ".join(part for part in (sentence, secrets, self.overflow, advice) if part)

    def _waiting(self, settling: str, superseding: str) -> str:
        """What it waits for, as the rest of a sentence."""
        if self.held is None:
            return ""
        who = "settle it" if self.held.why == "near_duplicate" else "a librarian or person settles it"
        choices = ", ".join(self.held.choices)
        rest = f" because {self.held.because}; {who} with {settling}, where CHOICE is one of {choices}"
        if self.replaceable:
            rest += "; or, for it to take the place of what is there, remember it again with "
            rest += superseding
        return rest


class Patch(msgspec.Struct, frozen=True):
    """Change fields of an item that may be changed."""

    by: str
    id: str
    content: Mapping[str, Any]
    secrets: tuple[str, ...] = ()
    act: str = "patched"
    why: str = ""
    if_position: int | None = None
    """Refused if the item changed after this position."""
    key: str = ""
    """The same key again changes nothing: the edit was taken in before."""
    run: str | None = None


class MarkItems(msgspec.Struct, frozen=True):
    """Change what an item counts as: shared, verified, archived, restored."""

    by: str
    ids: tuple[str, ...]
    act: Literal["shared", "unshared", "verified", "archived", "restored", "linked"]
    why: str = ""
    links: tuple[tuple[str, str], ...] = ()
    run: str | None = None


class Resolve(msgspec.Struct, frozen=True):
    """Choose what becomes of an item that is held."""

    by: str
    id: str
    choice: str
    rationale: str = ""
    run: str | None = None


class Prove(msgspec.Struct, frozen=True):
    """Bring evidence for an item that is held for lack of it. Without a `hold` there is enough, and it stands."""

    by: str
    id: str
    why: str
    run: str | None = None
    sources: tuple[str, ...] = ()
    """The events that speak for it and were not brought before. It is derived from them from now on."""
    vouches: bool = False
    """Whether somebody else than its author says so, without naming a source."""
    hold: Held | None = None
    """Why it waits further, if it does."""


class Previewed(msgspec.Struct, frozen=True):
    """What would become of something to remember, and the item that would be stored."""

    result: RememberResult
    item: Item | None = None


class Forget(msgspec.Struct, frozen=True):
    by: str
    ids: tuple[str, ...]
    reason: str = ""
    deleted_by: str = "user"
    erase: bool = False
    dry_run: bool = False
    if_position: int | None = None
    """Refused if one of them changed after this position."""
    run: str | None = None


class Summarize(msgspec.Struct, frozen=True):
    """Let one note stand for episodes, which are forgotten in its favour."""

    by: str
    ids: tuple[str, ...]
    run: str | None = None


class Forgotten(Readable, msgspec.Struct, frozen=True):
    """What a forget did, or would do. `erased` are the events whose content is gone, those derived included."""

    items: tuple[str, ...]
    already: tuple[str, ...] = ()
    erased: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()
    """Other items that were derived from these, and went with them."""
    position: int | None = None
    rederived: tuple[str, ...] = ()
    """Notes that were written again from what is left."""

    def __str__(self) -> str:
        planned = self.position is None and bool(self.items or self.erased)
        parts = [f"{number(len(self.items), 'item')} {'would be ' if planned else ''}forgotten"]
        parts += [f"{len(self.already):,} forgotten before"] if self.already else []
        if self.erased:
            also = f", {number(len(self.derived), 'derived item')} among them" if self.derived else ""
            parts.append(f"{number(len(self.erased), 'event')} {'would be ' if planned else ''}erased{also}")
        parts += [f"{number(len(self.rederived), 'note')} written again"] if self.rederived else []
        return "; ".join(parts)


class Tombstone(msgspec.Struct, frozen=True):
    """What stays of a forgotten item: no content."""

    id: str
    agent: str
    deleted_us: int
    deleted_by: str
    reason: str
    erased: bool = False
    scope: str = ""
    """The scope that it belonged to, by its key."""

    @property
    def deleted_at(self) -> datetime:
        return from_us(self.deleted_us)

    def __str__(self) -> str:
        how = "erased" if self.erased else "forgotten"
        reason = f": {self.reason}" if self.reason else ""
        return f"{self.id} of {self.agent}, {how} by {self.deleted_by} at {self.deleted_at:%Y-%m-%d %H:%M}{reason}"

    def __repr__(self) -> str:
        return f"<tombstone of {self}>"


ItemOrId = ItemId | Item | RememberResult
"""An item, or the answer of `remember`, can be given wherever an item's id is asked for."""


def id_of(item: object) -> object:
    """The id of an item or answer. Raises BadInput for an answer of which nothing was stored."""
    if isinstance(item, RememberResult) and item.item_id is None:
        raise BadInput(f"nothing was stored, so it has no id: {item.reason}")
    return getattr(item, "id", item)


def check_item(field: str, item: object) -> str:
    """The id of an item, from the id, the item or the answer of `remember`. Raises BadInput."""
    return check_name(field, id_of(item))


def check_items(field: str, items: object) -> tuple[str, ...]:
    """The ids of one item or of several, each as `check_item` takes it. Raises BadInput."""
    each: Any = (items,) if hasattr(items, "id") else check_each(field, items)  # type: ignore[arg-type]
    return tuple(check_item("an item", item) for item in each)


class Shown(msgspec.Struct, frozen=True):
    """Things that were shown to an actor in a run, so that they are known when they come back."""

    actor: str
    run: str | None
    shown: tuple[str, ...]
    """The id of each."""
