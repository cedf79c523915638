"""Keeping count of a state's size and keys, so that its limits can be held without reading all of it."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import TooLarge
from ..ledger.reader import ViewReader
from .cells import DONE, About, Sums, cells, size_of
from .policy import MB, RESERVED_KEYS, StateLimits


def check_limits(limits: StateLimits, totals: Sums, sizes: Mapping[str, int]) -> None:
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


def grown(
    views: ViewReader, run: str, known: About, totals: Sums, by: Sums, sizes: Mapping[str, int]
) -> tuple[int, int, int]:
    """What to add to a run's size and keys when a write changes them `by` so much. After an erasure the count is
    off: then the state is counted anew, and the third answer says for how many erasures it was set right."""
    exact = totals if totals.erased == totals.righted else counted(views, run, known)
    check_limits(known.policy.limits, Sums(exact.size + by.size, exact.fields + by.fields), sizes)
    righted = totals.erased if exact is not totals else 0
    return exact.size + by.size - totals.size, exact.fields + by.fields - totals.fields, righted


def counted(views: ViewReader, run: str, known: About) -> Sums:
    """A run's size and keys, from all of its cells."""
    found = {
        (agent, field): one
        for (agent, field), one in cells(views, run, known.fork).items()
        if field != DONE and (agent or field not in RESERVED_KEYS)
    }
    keys = {agent or field for agent, field in found}
    return Sums(sum(size_of(one.value) for one in found.values()), len(keys))
