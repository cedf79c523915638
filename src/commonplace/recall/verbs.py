"""The verb of recall: search, for whoever asks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from ..access.commands import Denial
from ..access.rights import OWNER, TIERS, rights_of
from ..memory.items import sketch
from ..memory.requests import Shown
from ..memory.similar import tokens
from ..memory.verbs import Remembering

if TYPE_CHECKING:
    from ..book import At
    from .search import Answer


class Recalling(Remembering):
    """What everybody can look for, each under its own rights."""

    def _memory_tiers(self) -> Collection[str]:
        """The tiers that are switched on for whoever acts."""
        return TIERS

    def search(
        self,
        query: str = "",
        *,
        mode: str = "hybrid",
        tiers: Sequence[str] | None = None,
        date_range: Mapping[str, date | str] | tuple[date | str, date | str] | None = None,
        agent_filter: Sequence[str] | None = None,
        cores: Sequence[str] | None = None,
        max_results: int = 10,
        at: At = None,
        explain: bool = False,
    ) -> Answer:
        """Find items and events that answer a query, among those that this actor may see, as of `at`.

        `mode` is keyword, semantic, date_range, agent_filter or hybrid (by all there is to go by: words, meaning, what
        was said around it, days and speakers that are named). "Phrases" in quotes must occur in the first, and count
        for more in the last; a `*` at a word's end stands for any ending; a typing error in a longer word that occurs
        nowhere is mended, and the answer says so. `date_range` (days, both included) and `agent_filter` narrow any
        mode; with no query, those two modes list what there is. `cores` looks in these cores alone. `explain` says why
        each result is there.
        """
        from .finding import find

        wanted = {
            "query": query, "mode": mode, "tiers": tiers, "date_range": date_range, "agent_filter": agent_filter,
            "max_results": max_results, "cores": cores,
        }  # fmt: skip
        self._note_denied_tiers(tiers)
        answer = find(self._ledger, self._memory_actor, wanted, self._memory_tiers(), at, explain)
        self._was_shown([(one.id, one.text, one.content) for one in answer.results])
        return answer

    def _note_denied_tiers(self, tiers: object) -> None:
        """Asking for a tier that one may not read leaves a trace, as reading it does."""
        asked = [tier for tier in TIERS if isinstance(tiers, list | tuple | set) and tier in tiers]
        if not asked:
            return
        with self._ledger.snapshot() as now:
            rights = rights_of(now, self._memory_actor)
        for tier in [tier for tier in asked if rights.tier(tier) == "none"]:
            self._ledger.submit(
                "access.deny", Denial(self._memory_actor, "memory.search", tier, self._memory_run)
            )

    def _delivered(self, shown: Sequence[tuple[str, str]], always: bool = False) -> None:
        """What an agent reads in a run is kept in mind; elsewhere only what it searches for, or is compared with."""
        if always or self._memory_run is not None:
            self._was_shown(shown)

    def _was_shown(self, shown: Sequence[tuple[str, ...]]) -> None:
        """Keep in mind what an agent was shown, so that it does not come back as new evidence."""
        actor, run = self._memory_actor, self._memory_run
        if not shown or actor == OWNER or self._only_looks_at_memory:
            return
        with self._ledger.snapshot() as snapshot:
            fresh = [one for one in shown if snapshot.get("memory.shown", run or "", one[0], actor) is None]
        if fresh:
            told = tuple(
                (id, *dict.fromkeys(sketch(tokens(text.replace("|", " "))) for text in texts))
                for id, *texts in fresh
            )
            self._ledger.submit("memory.shown", Shown(actor, run, told))

    @property
    def _only_looks_at_memory(self) -> bool:
        return False

    def reindex(self, progress: Any = None) -> int:
        """Let the index catch up with the ledger; answers as of where it speaks."""
        return int(self._ledger.indexing.catch_up(progress).position)
