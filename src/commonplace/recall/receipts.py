"""Receipts: what each digest was made of, so that it can be shown, made again and watched.

A receipt is a small event without what items say: what was asked, as of when, which items in which versions stand on
which line, how many were left out and why, and the hash of the text. Its *trace* is an event of its own with the
candidates and the exact text as a blob, derived from the items: when one of these is erased, the trace goes, and the
receipt stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from math import ceil
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ..commit import Overlay
from ..errors import BadInput, Corrupt, Denied, Erased, shown
from ..events import Blob, Event, canonical, decode, draft, iso, new_id
from ..memory.capability import MEMORY, decide_shown
from ..memory.portions import Portions
from ..memory.requests import Shown
from .packing import Candidate, CountTokens, Packed, estimated, pack

if TYPE_CHECKING:
    from ..ledger import Ledger

WRITTEN, TRACED = "receipt.written", "receipt.traced"


class Trace(msgspec.Struct, frozen=True):
    """All that went into a digest, in the order in which it was packed."""

    candidates: tuple[Candidate, ...]
    budgets: Portions
    text: str
    nothing: str = ""
    kept: tuple[Candidate, ...] = ()
    mark: str = ""
    counts: dict[str, int] = {}
    """What a counter of tokens that is not our own has answered, by the hash of each text."""
    rebased: str = ""
    """Why a digest that was to go on with the one before it began anew."""

    def packed(self, without: frozenset[str] = frozenset()) -> Packed:
        """Pack it again, or pack it as if some items had not been there."""
        left = [
            replace(one, barred="") if one.twin in without else one
            for one in self.candidates
            if one.id not in without
        ]
        stay = [one for one in self.kept if one.id not in without]
        count = self._count if self.counts else estimated
        return pack(left, self.budgets, count, nothing=self.nothing, kept=stay, mark=self.mark)

    def _count(self, text: str) -> int:
        """What the counter has answered; for what it was never asked, in proportion to that."""
        known = self.counts.get(_short(text))
        share = max(self.counts.values()) / max(1, len(self.text))
        return ceil(len(text) * share) if known is None else known


class Counted:
    """A counter that remembers what it has answered."""

    def __init__(self, count: CountTokens) -> None:
        self._count, self.answers = count, dict[str, int]()

    def __call__(self, text: str) -> int:
        key = _short(text)
        if key not in self.answers:
            said = self._count(text)
            if isinstance(said, bool) or not isinstance(said, int | float) or not 0 <= said < 1e15:
                raise BadInput(
                    f"count_tokens answered {shown(said)}: it must answer how many tokens a text has"
                )
            self.answers[key] = ceil(said)
        return self.answers[key]


def _short(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:12]


class Write(msgspec.Struct, frozen=True):
    """A receipt to be written, with what its reader was shown."""

    by: str
    run: str | None
    payload: Mapping[str, Any]
    trace: Trace | None
    sources: tuple[str, ...]
    """The items whose words are in the trace."""
    shown: tuple[str, ...] = ()
    keep: bool = True
    """Whether a receipt is written, or only what was shown is kept in mind."""


def decide_receipt(overlay: Overlay, request: Write) -> str | None:
    """Answers the receipt's id."""
    id = None
    if request.keep:
        payload = dict(request.payload)
        if request.trace is not None:
            payload["trace"] = _traced(overlay, request, request.trace)
        id = new_id()
        written = draft(
            WRITTEN, actor=request.by, payload=payload, run_id=request.run, id=id,
            labels={"sensitivity": "private"},
        )  # fmt: skip
        overlay.emit(written)
    if request.shown:
        overlay.run(MEMORY.name, decide_shown, Shown(request.by, request.run, request.shown))
    return id


def _traced(overlay: Overlay, request: Write, trace: Trace) -> str | None:
    """Keep the trace, unless something in it was erased since it was read."""
    records = [overlay.record_of(one) for one in request.sources]
    if any(one is None or one.body is None for one in records):
        return None
    told, labels = {"trace": Blob(canonical(msgspec.to_builtins(trace)))}, {"sensitivity": "private"}
    traced = draft(
        TRACED,
        actor=request.by,
        payload=told,
        run_id=request.run,
        parents=list(request.sources),
        labels=labels,
    )
    return overlay.emit(traced).id


class Receipt(msgspec.Struct, frozen=True):
    """A receipt as its reader sees it."""

    id: str
    by: str
    run: str | None
    as_of: int
    now: str
    request: dict[str, Any]
    index: str
    included: tuple[tuple[str, int, int], ...]
    """Each item with the position where it had changed last, and the line it stands on."""
    block: tuple[tuple[str, int], ...]
    """What stood in the long-term block beside it."""
    omitted: dict[str, int]
    outside: tuple[tuple[str, int], ...]
    """What was read from outside, as it had been recorded: an item, and where its check stands."""
    hash: str
    ignored: str = ""
    told: tuple[str, ...] = ()
    stable: str = ""
    position: int = 0
    trace_id: str | None = None
    trace: Trace | None = None
    missing: str = ""
    """Why there is no trace, if there is none any more."""
    denied: bool = False
    """Whether that is because its reader may not see all of it any more."""

    def replay(self) -> str:
        """The same text again, packed from what was recorded. Raises Erased that names what is gone since."""
        if self.trace is None:
            raise (Denied if self.denied else Erased)(self.missing)
        text = self.trace.packed().text
        if sha256(text.encode()).hexdigest() != self.hash:
            raise Corrupt(
                f"receipt {self.id!r} does not give the text that it was written for", self.position
            )
        return text


def read(event: Event, ledger: Ledger, may_see: Callable[[str], bool]) -> Receipt:
    """A receipt with its trace, as far as it is still there and its reader may still see all of it."""
    payload = event.payload
    receipt = Receipt(
        id=event.id,
        by=event.actor,
        run=event.run_id,
        as_of=payload["as_of"],
        now=iso(payload["now"]),
        request=payload["request"],
        index=payload["index"],
        included=tuple((id, version, line) for id, version, line in payload["included"]),
        block=tuple((id, version) for id, version in payload["block"]),
        omitted=payload["omitted"],
        outside=tuple((id, at) for id, at in payload["outside"]),
        hash=payload["hash"],
        ignored=payload.get("ignored", ""),
        told=tuple(payload.get("told", ())),
        stable=payload.get("stable", ""),
        position=event.position,
        trace_id=payload.get("trace"),
    )
    traced = None if receipt.trace_id is None else ledger.event(receipt.trace_id)
    if traced is None or traced.erased:
        gone = [id for id, _, _ in receipt.included if _erased(ledger, id)]
        named = ", ".join(gone) or "something that it did not include"
        return replace(receipt, missing=f"erased since: {named}")
    if not all(may_see(id) for id in traced.parents):
        told = "some of what it was made of may not be shown to you any more"
        return replace(receipt, missing=told, denied=True)
    return replace(receipt, trace=trace_of(ledger, traced))


def trace_of(ledger: Ledger, traced: Event) -> Trace:
    data = ledger.blob(traced.payload["trace"]["$blob"])
    if data is None:
        raise Corrupt(f"the trace {traced.id!r} is missing: restore the book from a backup", traced.position)
    return msgspec.convert(decode(data), Trace)


def _erased(ledger: Ledger, id: str) -> bool:
    event = ledger.event(id)
    return event is None or event.erased
