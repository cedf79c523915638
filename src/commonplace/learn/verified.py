"""Verified items of a task, with regressions across iterations: the verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..access.masking import masked
from ..documents.document import slug, task_path, verified_items
from ..documents.verbs import visible_entries
from ..documents.verified import VERIFIED_ITEMS, ItemReport, VerifiedItem, VerifiedItems
from ..documents.writing import ReportItem
from ..errors import NotFound, TooLarge
from ..ledger.checks import check_name, check_text, check_whole

if TYPE_CHECKING:
    from ..ledger.ledger import At
    from ..session import Session

LONGEST = 2_000
"""How many characters a description or evidence may have."""


def verify_item(
    session: Session,
    task: str,
    item: str,
    *,
    description: str = "",
    holds: bool = True,
    evidence: str = "",
    iteration: int | None = None,
) -> VerifiedItem:
    """Report that an item of a task was verified, or that it does not hold any more. An item that was verified and does
    not hold is REGRESSED: it blocks the end of a phase and of the task until it is verified again. Its history keeps
    every report. Raises NotFound for an item that does not hold and was never verified.

    `task` is the name of the task. `item` is a short name for what was checked. `description` is what holds, in words;
    without one, the item keeps the one that it has. `holds` is whether it holds. `evidence` is how it was found out.
    `iteration` is the number of the iteration: a call that repeats the last report on an item in the same iteration
    records nothing.
    """
    report = ItemReport(
        masked(check_name("item", item)),
        holds,
        _line("description", description),
        _line("evidence", evidence),
        None if iteration is None else check_whole("iteration", iteration),
    )
    request = ReportItem(session.actor, task_path(task, VERIFIED_ITEMS), report, session.run)
    known = verified(session, task)
    if not holds and all(each.id != report.item for each in known):  # also of one that this actor may not see
        there = (
            f"there are {', '.join(each.id for each in known)}" if len(known) else "nothing was verified yet"
        )
        raise NotFound(
            f"item {report.item!r} was never verified in this task, so it cannot have regressed ({there}): name what "
            "blocks the task in the notes instead"
        )
    session.submit("documents.report", request, "verify an item")
    return next(each for each in verified(session, task) if each.id == report.item)


def verified(session: Session, task: str, at: At = None) -> VerifiedItems:
    """The verified items of a task: id, description, when each was first and last verified, and whether it still holds
    (VERIFIED) or not (REGRESSED).

    `task` is the name of the task."""
    session.check_reads("working")
    path = task_path(task, VERIFIED_ITEMS)
    with session.viewer(at) as viewer:
        listed = visible_entries(session, viewer, path)
        return VerifiedItems(slug(task), verified_items(listed), viewer.views.position)


def _line(name: str, text: str) -> str:
    """A text on one line, without secrets."""
    line = " ".join(check_text(name, text).split())
    if len(line) > LONGEST:
        raise TooLarge(
            f"{name} has {len(line):,} characters and may have {LONGEST:,}: write the rest into the task's folder"
        )
    return str(masked(line))
