"""The chores of a librarian: carry out what `memory.suggestions` suggests, and report each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, Literal

import msgspec

from ..ledger.checks import check_each
from ..ledger.printing import Listing, Readable
from ..memory.claims import claim_of, critical
from ..memory.fields import check_one_of
from ..memory.items import Item, subject_and_fact
from ..memory.likeness import words_of
from ..memory.suggestions import Suggestion
from ..memory.verbs import Memory
from .duplicates import kept_of

if TYPE_CHECKING:
    from ..session import Session

ACTS = ("merge", "link", "tag")
"""What can be carried out. Whether something stale still holds is a person's choice."""


class ChoreDone(Readable, msgspec.Struct, frozen=True):
    """One suggestion, and what became of it."""

    act: str
    items: tuple[str, ...]
    outcome: Literal["done", "planned", "proposed", "listed"]
    """proposed: it waits for a librarian or person. listed: nothing was done, and `why` says what to do."""
    why: str

    def __str__(self) -> str:
        return f"{self.outcome}: {self.act} {' '.join(self.items)} ({self.why})"


class ChoreReport(Listing[ChoreDone], msgspec.Struct, frozen=True):
    """What became of each suggestion, in their order."""

    ENTRIES: ClassVar[str] = "chores"

    chores: tuple[ChoreDone, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.chores)) or "nothing to do"


def chores(
    session: Session,
    core: str | None = None,
    *,
    acts: Sequence[str] = ("link", "tag"),
    now: datetime | None = None,
    dry_run: bool = False,
) -> ChoreReport:
    """Carry out what `memory.suggestions` suggests: link, tag, or merge items that say the same. What is stale is only
    listed: a person verifies or archives it. A librarian or person may change everybody's items, others their own; what
    they may not change is listed, and a merge of facts of the repository is proposed.

    `core` is the core to look at alone. `acts` are the chores to carry out: link, tag, merge."""
    for act in check_each("acts", acts):
        check_one_of("acts", act, ACTS)
    session.check_may_act("do chores")
    memory = Memory(session)
    suggestions = memory.suggestions(core, now=now)
    changed = set[str]()
    done = list[ChoreDone]()
    for suggestion in suggestions:
        if changed.intersection(suggestion.items):
            outcome, why = "listed", "one of them has just changed: run it again"
        else:
            outcome, why = _done(session, memory, suggestion, acts, dry_run)
        if outcome in ("done", "proposed") and suggestion.act == "merge":
            changed.update(suggestion.items)
        done.append(ChoreDone(suggestion.act, suggestion.items, outcome, why))  # type: ignore[arg-type]
    return ChoreReport(tuple(done))


def _done(
    session: Session, memory: Memory, suggestion: Suggestion, acts: Sequence[str], dry_run: bool
) -> tuple[str, str]:
    """Carry out one suggestion. Answers what became of it, and why."""
    act, items = suggestion.act, [memory.get(id) for id in suggestion.items]
    if act == "refresh":
        id = items[0].id
        return "listed", f"{suggestion.why}: `memory verify {id}` if it holds, or `memory archive {id}`"
    if act not in acts:
        return "listed", f"{suggestion.why}: name {act} in acts to do it"
    fixed = items[0].repository and act == "tag"
    if fixed:
        return "listed", "a fact of the repository is never changed: write one that supersedes it"
    if act == "merge":
        return _merge(session, memory, items, suggestion.why, dry_run)
    if not _may_change(session, items[0]):
        return "listed", f"{suggestion.why}: a librarian or person may do it"
    if dry_run:
        return "planned", suggestion.why
    if act == "link":
        memory.link(items[0], "related", items[1])
    else:
        memory.revise(items[0], tags=list(suggestion.tags), why=suggestion.why)
    return "done", suggestion.why


def _may_change(session: Session, item: Item) -> bool:
    return session.rights().may("keep_memory") or (item.agent == session.actor and item.core is None)


def _merge(session: Session, memory: Memory, items: list[Item], why: str, dry_run: bool) -> tuple[str, str]:
    """Keep one of two items, with the citations and reasons of both: the more specific one. Two of which each has words
    of its own may correct each other, and so may two with other numbers, names or a "not": a person merges them."""
    keeper = _more_specific(*items)
    if keeper is None:
        return "listed", f"{why}, but one may correct the other: archive the one that is wrong"
    other = next(item for item in items if item is not keeper)
    if other.agent != keeper.agent and not (keeper.shared and other.shared):
        return "listed", f"{why}, but they are for different readers"
    citations = list(dict.fromkeys((*keeper.citations, *other.citations)))
    reason = "; ".join(dict.fromkeys(part for part in (keeper.reason, other.reason) if part))
    if not keeper.repository and not (_may_change(session, keeper) and _may_change(session, other)):
        return "listed", f"{why}: a librarian or person may do it"
    if dry_run:
        return "planned", f"{why}; {keeper.id} stays"
    if keeper.repository:
        result = memory.repository_fact(
            keeper.key or "", str(keeper.value), citations=citations, reason=reason, category=keeper.category or "",
            supersedes=[keeper.id, other.id], parents=[keeper.id, other.id], tags=[*keeper.tags],
        )  # fmt: skip
        outcome = (
            "done" if result.outcome == "stored" else "proposed" if result.outcome == "flagged" else "listed"
        )
        return outcome, f"{why}; {result}"
    if (citations, reason) != ([*keeper.citations], keeper.reason):
        memory.revise(keeper, citations=citations, reason=reason, why=f"merged with {other.id}")
    memory.archive(other, why=f"merged with {keeper.id}")
    return "done", f"{why}; {keeper.id} stays"


def _more_specific(first: Item, second: Item) -> Item | None:
    """Of two items the one that says all that the other does; None if neither does for certain."""
    if critical(first.text) != critical(second.text):
        return None
    mine, theirs = words_of(first.as_content()), words_of(second.as_content())
    (_, fact), (_, fact2) = subject_and_fact(first.as_content()), subject_and_fact(second.as_content())
    if mine == theirs:
        return kept_of((first, second)) if claim_of(fact) == claim_of(fact2) else None
    return first if mine > theirs else second if mine < theirs else None
