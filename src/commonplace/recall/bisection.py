"""Memory bisect: what a past run's digests would have been without one memory. No model is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from ..ledger.printing import Listing, Readable
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


class Effect(Readable, msgspec.Struct, frozen=True):
    """What leaving out a memory, and what was derived from it, would have changed."""

    item: str
    with_it: tuple[str, ...]
    """What was derived from it and goes with it."""
    changed: tuple[ChangedDigest, ...]

    @property
    def lines(self) -> int:
        return sum(len(digest.lost) + len(digest.gained) + digest.from_block for digest in self.changed)

    def __str__(self) -> str:
        return (
            f"without {self.item}: {self.lines} lines of {len(self.changed)} digests would have been others"
        )


class Bisected(Listing[Effect], msgspec.Struct, frozen=True):
    """What matters most first; `unread` are receipts whose traces are gone or may not be read, and why."""

    ENTRIES = "effects"

    run: str
    receipts: int
    effects: tuple[Effect, ...]
    unread: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        unread = [f"left out: receipt {id} ({why})" for id, why in self.unread]
        return "\n".join([*map(str, self.effects), *unread]) or "nothing would have been different"


def bisected(
    run: str,
    receipts: Sequence[Receipt],
    derived: Callable[[str], Iterable[str]],
    without: str | None = None,
    matters: Callable[[str], bool] | None = None,
) -> Bisected:
    """Leave out one memory, or each that was shown in turn. With `matters`, only those without which the answer of
    this function to a digest's text would have been another one."""
    shown = dict.fromkeys(id for receipt in receipts for id in receipt.item_ids)
    effects = []
    for id in shown if without is None else [without]:
        with_it = tuple(derived(id))
        changed = [
            digest
            for receipt in receipts
            if (digest := _without(receipt, frozenset((id, *with_it)))) is not None
            and (matters is None or matters(digest.before) != matters(digest.after))
        ]
        if changed or (without is not None and matters is None):
            effects.append(Effect(id, with_it, tuple(changed)))
    ordered = sorted(effects, key=lambda effect: (-effect.lines, effect.item))
    unread = tuple((receipt.id, receipt.missing) for receipt in receipts if receipt.missing)
    return Bisected(run, len(receipts), tuple(ordered), unread)


def _without(receipt: Receipt, gone: frozenset[str]) -> ChangedDigest | None:
    """A digest as it would have been without some items; None if it would have been the same."""
    from_block = any(id in gone for id, _ in receipt.block)
    before = after = ""
    was, now = list[str](), list[str]()
    if receipt.trace is not None:
        before, after = receipt.trace.text, receipt.trace.packed(gone).text
        was = [line for _, line in receipt.trace.lines()]
        now = [line for _, line in receipt.trace.lines(gone)]
    if before == after and not from_block:
        return None
    lost = tuple(line for line in was if line not in now)
    gained = tuple(line for line in now if line not in was)
    return ChangedDigest(receipt.id, receipt.position, lost, gained, before, after, from_block)
