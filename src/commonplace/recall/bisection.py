"""Memory bisect: what a past run's digests would have been without one memory. No model is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from .receipts import Receipt


class ChangedDigest(msgspec.Struct, frozen=True):
    """One digest as it was and as it would have been: the lines it loses and gains, and both texts."""

    receipt: str
    position: int
    lost: tuple[str, ...]
    gained: tuple[str, ...]
    before: str
    after: str
    from_block: bool = False
    """Whether the long-term block beside it would have changed, too."""


class Effect(msgspec.Struct, frozen=True):
    """What leaving out a memory, and what was derived from it, would have changed."""

    item: str
    with_it: tuple[str, ...]
    """What was derived from it and goes with it."""
    changed: tuple[ChangedDigest, ...]

    @property
    def lines(self) -> int:
        return sum(len(one.lost) + len(one.gained) + one.from_block for one in self.changed)


class Bisected(msgspec.Struct, frozen=True):
    """What matters most first; `unread` are receipts whose traces are gone or may not be read, and why."""

    run: str
    receipts: int
    effects: tuple[Effect, ...]
    unread: tuple[tuple[str, str], ...] = ()


def bisected(
    run: str,
    receipts: Sequence[Receipt],
    derived: Callable[[str], Iterable[str]],
    without: str | None = None,
    matters: Callable[[str], bool] | None = None,
) -> Bisected:
    """Leave out one memory, or each that was shown in turn. With `matters`, only those without which the answer of
    this function to a digest's text would have been another one."""
    shown = [id for one in receipts for id in (*(i for i, _, _ in one.included), *(i for i, _ in one.block))]
    effects = []
    for id in dict.fromkeys(shown) if without is None else [without]:
        below = tuple(derived(id))
        gone = frozenset((id, *below))
        changed = [one for one in (_without(receipt, gone) for receipt in receipts) if one is not None]
        if matters is not None:
            changed = [one for one in changed if matters(one.before) != matters(one.after)]
        if changed or (without is not None and matters is None):
            effects.append(Effect(id, below, tuple(changed)))
    ordered = sorted(effects, key=lambda one: (-one.lines, one.item))
    unread = tuple((one.id, one.missing) for one in receipts if one.missing)
    return Bisected(run, len(receipts), tuple(ordered), unread)


def _without(receipt: Receipt, gone: frozenset[str]) -> ChangedDigest | None:
    from_block = any(id in gone for id, _ in receipt.block)
    before = after = receipt.trace.text if receipt.trace is not None else ""
    lost: list[str] = []
    gained: list[str] = []
    if receipt.trace is not None:
        after = receipt.trace.packed(gone).text
        was = [line for _, line in receipt.trace.lines()]
        now = [line for _, line in receipt.trace.lines(gone)]
        lost = [line for line in was if line not in now]
        gained = [line for line in now if line not in was]
    if before == after and not from_block:
        return None
    return ChangedDigest(receipt.id, receipt.position, tuple(lost), tuple(gained), before, after, from_block)
