"""How large a state may be: its size and keys are counted with every write, so that limits hold without reading it."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import TooLarge
from ..ledger.reader import ViewReader
from .cells import DONE, cells_of, size_of
from .policy import MB, RESERVED_KEYS, StateLimits
from .rows import OpenedRun, Totals


def check_limits(limits: StateLimits, totals: Totals, sizes: Mapping[str, int]) -> None:
    """Raises TooLarge for fields of these sizes, or a state that would come to these totals."""
    for name, size in sizes.items():
        if size > limits.max_field_size_mb * MB:
            raise TooLarge(
                f"{name!r} is {size:,} bytes and a field may have {limits.max_field_size_mb:g} MB: store it elsewhere "
                "and write a reference, or raise state.limits.max_field_size_mb. Nothing was written"
            )
    if totals.size > limits.max_state_size_mb * MB:
        raise TooLarge(
            f"the state would be {totals.size:,} bytes and may have {limits.max_state_size_mb:g} MB: remove "
            "something, or raise state.limits.max_state_size_mb. Nothing was written"
        )
    if totals.fields > limits.max_fields:
        raise TooLarge(
            f"the state would have {totals.fields:,} keys and may have {limits.max_fields:,}: raise "
            "state.limits.max_fields. Nothing was written"
        )


def counted(views: ViewReader, run: str, opened: OpenedRun, totals: Totals) -> Totals:
    """A run's size and keys. An erasure makes the totals wrong: then all cells are counted."""
    if totals.erased == totals.corrected:
        return totals
    cells = {
        (agent, field): cell
        for (agent, field), cell in cells_of(views, run, opened.fork).items()
        if field != DONE and (agent or field not in RESERVED_KEYS)
    }
    keys = {agent or field for agent, field in cells}
    return Totals(sum(size_of(cell.value) for cell in cells.values()), len(keys), corrected=totals.erased)
