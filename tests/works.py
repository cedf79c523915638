"""What the tests of working memory have in common."""

from __future__ import annotations

from typing import Any

from commonplace.work.holding import Claim
from commonplace.work.verbs import Work

from .serving import ledger_below


def taken(work: Work, agent: str = "dev-1", **how: Any) -> Claim:
    """A claim of the best task, which must be there."""
    claim = work.claim(agent, **how)
    assert claim is not None
    return claim


def lost(claim: Claim) -> None:
    """The lease of a claim runs out at once, as if its holder had died."""
    task = claim.task
    name = f"task/{task.work}/{task.number}/{claim.token}"
    ledger_below(claim).store.lease(name, claim.agent, 0, claim.token)
