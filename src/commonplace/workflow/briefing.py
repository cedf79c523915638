"""What the agents of a delegation are told: a manager its briefing, a worker its assignment."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..learn.board import sibling_signals
from ..learn.context_digest import ContextDigest, children_digests, my_digest
from ..learn.delegations import BoardEntry
from ..learn.plans import HOW_TO_ANSWER, Assignment
from ..ledger.printing import Readable
from ..recall.escaping import as_data, as_name
from .agents import AgentTask
from .model import ContextBudget

LONGEST_REASON = 500
"""How many characters of a reason, or of what a worker was told, a manager's prompt shows."""


class Left(msgspec.Struct, frozen=True):
    """What a manager and those below it may still use up."""

    loops: int
    workers: int
    workers_per_iteration: int
    chars: int

    def __str__(self) -> str:
        return f"{self.loops} iterations, {self.workers} workers, {self.chars:,} characters"


class Briefing(Readable, msgspec.Struct, frozen=True):
    """What a manager should know to decide. As text it is a prompt for a model."""

    task: str
    depth: int
    left: Left
    history: tuple[dict[str, Any], ...] = ()
    signals: tuple[BoardEntry, ...] = ()
    """What was posted on the board since its last decision."""
    digest: ContextDigest | None = None
    children: tuple[ContextDigest, ...] = ()
    warnings: tuple[str, ...] = ()
    prior: str = ""
    """What earlier runs have left, in the first turn of a root manager."""
    context_budget: ContextBudget = ContextBudget()
    workers: tuple[str, ...] = ()
    """The workers that have a file or a function of their own."""

    def __str__(self) -> str:
        parts = [
            f"# TASK\n{self.task}",
            f"## WORKERS\n{', '.join(map(as_name, self.workers))}" if self.workers else "",
            self.prior,
            my_digest(self.digest),
            children_digests(self.children),
            sibling_signals(self.signals),
            history_block(self.history, self.context_budget),
            f"## BUDGET\n{self.left}",
            "\n".join(["## WARNINGS", *(f"- {as_data(warning)}" for warning in self.warnings)])
            if self.warnings
            else "",
            f"## ANSWER\n{HOW_TO_ANSWER[0].upper()}{HOW_TO_ANSWER[1:]}.",
        ]
        return "\n\n".join(part for part in parts if part)


class ManagerTurn(AgentTask):
    """A manager's turn. Its function returns what to do next (see `learn.plans`), from what `briefing` says; as text,
    the briefing is a prompt for a model."""

    briefing: Briefing
    takes_text = True

    def request(self) -> dict[str, Any]:
        known: dict[str, Any] = msgspec.to_builtins(self.briefing)
        return {**super().request(), **known, "prompt": str(self.briefing)}


class WorkerTask(AgentTask):
    """A worker's turn. `assignment` is what its manager told it to do, with everything the manager said."""

    assignment: Assignment

    @property
    def instructions(self) -> str:
        """What to do."""
        return self.assignment.instructions

    @property
    def dispatch(self) -> str:
        return self.assignment.name

    def request(self) -> dict[str, Any]:
        told = {"instructions": self.instructions, "envelope": self.assignment.envelope}
        return {**super().request(), **told}


def history_block(history: Sequence[Mapping[str, Any]], budget: ContextBudget) -> str:
    """What came of earlier iterations as a block of a prompt, each result within its share of the budget."""
    results = sum(len(each["workers"]) for each in history)
    room = max(budget.min_per_entry, budget.total_chars // max(1, results))
    lines = []
    for each in history:
        lines.append(f"### Iteration {each['iteration']}")
        for result in each["workers"]:
            written = as_data(json.dumps(result.get("output", {}), ensure_ascii=False, sort_keys=True))
            if len(written) > room:
                cut = min(budget.preview_chars, room)
                written = f"{written[:cut]} (cut: {cut:,} of {len(written):,} characters)"
            reason = f" ({as_data(result['reason'])[:LONGEST_REASON]})" if result.get("reason") else ""
            about = f"{as_name(result['worker_id'])}, {result['status']}{reason}"
            lines.append(f"- {about}: {as_data(result['instructions'])[:LONGEST_REASON]}\n  {written}")
    return "\n".join(["## HISTORY", *lines]) if lines else ""
