"""Receipts: what each digest and prompt was made of, so that it can be shown, made again and watched.

A receipt is one event: what was asked, as of when, which items in which versions stand on which line, how many were
left out and why, what was found of files, and the hash of the text. Its blob is the *trace*: the candidates and the
exact text. The event is derived from the items and events whose words are in it. When one of these is erased, the trace
and the query go, and the rest of the receipt can still be read. What a prompt says of a work is not in the trace,
because tasks change too often to name all that their words come from: it is read again, as of then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from hashlib import sha256
from math import ceil
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ..access.rights import rights_of
from ..errors import BadInput, Corrupt, Denied, Erased, shown
from ..ledger.checks import from_us
from ..ledger.encoding import Blob, canonical, convert, decode
from ..ledger.events import MAX_PARENTS, Event, draft
from ..ledger.overlay import Overlay
from ..ledger.printing import Readable
from ..memory.portions import Portions
from ..memory.reading import item_at
from ..memory.requests import RECEIPT, Shown
from ..memory.showing import not_noted
from ..memory.visibility import may_be_told
from .conversation import pack_conversation
from .lines import DigestLine
from .packing import CountTokens, Packed, estimated, long_term_block, pack_digest
from .prompt import Focused, PromptDraft, prompt_text
from .verification import Checked

if TYPE_CHECKING:
    from ..ledger.ledger import Ledger
    from ..memory.viewer import Viewer
    from ..session import Session


class Whole(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a prompt says besides its digest: its other parts without secrets, and what its long-term block was packed
    from, into so many characters."""

    parts: dict[str, str]
    block: tuple[DigestLine, ...] = ()
    chars: int = 0

    def long_term(self, without: frozenset[str] = frozenset()) -> Packed[DigestLine]:
        return long_term_block([line for line in self.block if line.id not in without], self.chars)

    def text(self, digest: str, work: str) -> str:
        return prompt_text({**self.parts, "long_term": self.long_term().text, "digest": digest, "work": work})


class Around(msgspec.Struct, frozen=True):
    """The prompt around a digest: what stands in it, which events its words come from, what it says of a work, and
    whether it has a digest at all."""

    whole: Whole
    sources: tuple[str, ...]
    work: Focused | None
    work_text: str
    digest: bool
    omitted: tuple[tuple[str, str], ...] = ()
    """Items that its long-term block leaves out, or cuts, and why."""
    shown: tuple[str, ...] = ()
    """What it shows besides the digest, by id."""


def around(draft: PromptDraft, has_digest: bool) -> Around:
    """What a receipt keeps of a prompt that is put together but for its digest."""
    parts = {name: text for name, text in draft.kept.items() if name not in ("long_term", "work")}
    whole = Whole(parts, tuple(draft.block), draft.block_chars)
    work_text = draft.kept.get("work", "")
    omitted, shown = tuple(draft.omitted), tuple(draft.shown)
    return Around(whole, tuple(draft.sources), draft.work, work_text, has_digest, omitted, shown)


class DigestTrace(msgspec.Struct, frozen=True):
    """All that went into a digest, in the order in which it was packed, and into the prompt around it."""

    candidates: tuple[DigestLine, ...]
    budgets: Portions
    text: str
    nothing: str = ""
    kept: tuple[DigestLine, ...] = ()
    mark: str = ""
    counts: dict[str, int] = {}
    """What a counter of tokens that is not our own has answered, by the hash of each text."""
    rebased: str = ""
    """Why a digest that was to go on with the one before it began anew."""
    whole: Whole | None = None
    """Of a prompt, what stands around the digest."""
    conversation: bool = False
    """Whether it is the context of a conversation."""

    def again(self, work: str = "") -> str:
        """The text once more. What a prompt says of a work is not kept: the caller has read it again."""
        digest = self.packed().text
        return digest if self.whole is None else self.whole.text(digest, work)

    def lines(self, without: frozenset[str] = frozenset()) -> list[tuple[str, str]]:
        """Each item in the long-term block and in the digest, and its line, or as it would be if some had not been
        there."""
        block = () if self.whole is None else self.whole.long_term(without).taken
        return [(line.id, line.line) for line in (*block, *self.packed(without).taken)]

    def packed(self, without: frozenset[str] = frozenset()) -> Packed[DigestLine]:
        """Pack it again, or pack it as if some items had not been there."""
        left = [
            replace(line, barred="") if line.twin in without else line
            for line in self.candidates
            if line.id not in without
        ]
        stay = [line for line in self.kept if line.id not in without]
        count = self._count if self.counts else estimated
        pack = pack_conversation if self.conversation else pack_digest
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
            number = self._count(text)
            if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < 1e15:
                raise BadInput(
                    f"count_tokens answered {shown(number)}: it must answer how many tokens a text has"
                )
            self.answers[key] = ceil(number)
        return self.answers[key]


def _short(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:12]


class Write(msgspec.Struct, frozen=True):
    """A receipt to be written."""

    by: str
    run: str | None
    payload: Mapping[str, Any]
    trace: DigestTrace
    checks: tuple[Checked, ...]
    """What was found of files, and is not recorded yet."""
    sources: tuple[str, ...]
    """The items and events whose words are in the trace or in a check."""
    shown: tuple[str, ...]
    """What its reader was shown."""


def decide_receipt(overlay: Overlay, request: Write) -> str:
    """Answers the receipt's id. If something in the trace was erased since it was read, or it comes from more than can
    be named, nothing is kept that has words in it."""
    payload = {**request.payload, "checks": []}
    payload["shown"] = not_noted(overlay, Shown(request.by, request.run, request.shown))
    overlay.prefetch_records(request.sources)
    records = [overlay.record_of(id) for id in request.sources]
    whole = len(records) <= MAX_PARENTS and all(
        record is not None and record.body is not None for record in records
    )
    if whole:
        payload["checks"] = msgspec.to_builtins(request.checks)
        payload["trace"] = Blob(canonical(msgspec.to_builtins(request.trace)))
    written = draft(
        RECEIPT, actor=request.by, payload=payload, run_id=request.run, labels={"sensitivity": "private"},
        parents=list(request.sources) if whole else [],
    )  # fmt: skip
    return overlay.emit(written).id


def without_words(payload: dict[str, Any]) -> dict[str, Any]:
    """What stays of a receipt when something in it is erased."""
    return {name: value for name, value in payload.items() if name not in ("request", "trace")} | {
        "checks": []
    }


class Receipt(Readable, msgspec.Struct, frozen=True):
    """A receipt as its reader sees it."""

    id: str
    by: str
    run: str | None
    as_of: int
    now: datetime
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
    work: Focused | None = None
    """Which work a prompt told of, if it did."""
    position: int = 0
    trace: DigestTrace | None = None
    missing: str = ""
    """Why there is no trace, if there is none any more."""
    denied: bool = False
    """Whether that is because its reader may not see all of it any more."""
    work_text: str = ""
    """What a prompt said of its work, read again."""

    @property
    def item_ids(self) -> tuple[str, ...]:
        """The items that stood in the digest and in the long-term block beside it."""
        return (*(id for id, _, _ in self.included), *(id for id, _ in self.block))

    def __str__(self) -> str:
        run = f" in run {self.run}" if self.run else ""
        omitted = [f"left out: {number} ({why})" for why, number in self.omitted.items()]
        first = f"receipt {self.id} for {self.by}{run}, as of {self.as_of}: {len(self.item_ids)} items"
        return "\n".join([first, f"asked: {self.request.get('query', '')}", *omitted])

    def replay(self) -> str:
        """The same text again, of a digest or of a whole prompt, packed from what was recorded; secrets are masked.
        Raises Erased that names what is gone since."""
        if self.trace is None:
            raise (Denied if self.denied else Erased)(self.missing)
        text = self.trace.again(self.work_text)
        if sha256(text.encode()).hexdigest() != self.hash:
            if self.work is not None:
                raise Erased(
                    f"erased since, or not shown to you any more: what was said of the work {self.work.id}"
                )
            raise Corrupt(
                f"receipt {self.id!r} does not give the text that it was written for", self.position
            )
        return text


def read_receipt(
    event: Event, ledger: Ledger, may_see: Callable[[str], bool], work: Callable[[Focused], str]
) -> Receipt:
    """A receipt with its trace, as far as that is still there and its reader may still see all of it. `work` reads
    again what a prompt said of a work. Raises Erased if it was erased itself."""
    gone = [id for id in event.parents if _erased(ledger, id)] if event.erased else []
    kept = event if not event.erased else ledger.residue(event) if gone else None
    if kept is None:
        raise Erased(f"receipt {event.id!r} was erased")
    payload = kept.payload
    receipt = Receipt(
        id=event.id,
        by=event.actor,
        run=event.run_id,
        as_of=payload["as_of"],
        now=from_us(payload["now"]),
        request=payload.get("request", {"query": "", "rules": {}}),
        index=payload["index"],
        included=tuple((id, version, line) for id, version, line in payload["included"]),
        block=tuple((id, version) for id, version in payload["block"]),
        omitted=payload["omitted"],
        outside=tuple((id, at or event.position) for id, at in payload["outside"]),
        hash=payload["hash"],
        ignored=payload["ignored"],
        told=tuple(payload["told"]),
        stable=payload["stable"],
        work=Focused(*payload["work"]) if payload["work"] else None,
        position=event.position,
    )
    if "trace" not in payload:
        gone = gone or [id for id, _, _ in receipt.included if _erased(ledger, id)]
        named = ", ".join(gone) or "something that it did not include"
        return replace(receipt, missing=f"erased since: {named}")
    if not all(may_see(id) for id in event.parents):
        why = "some of what it was made of may not be shown to you any more"
        return replace(receipt, missing=why, denied=True)
    work_text = "" if receipt.work is None else work(receipt.work)
    return replace(receipt, trace=trace_of(ledger, event), work_text=work_text)


def may_see_source(session: Session, viewer: Viewer, id: str) -> bool:
    """Whether a reader may still see something that a trace was made of. The sharing rules of a run decided on its
    state when the prompt was made, and they do not change."""
    if item_at(viewer.now, id) is not None:
        return viewer.item(id) is not None
    source = session.ledger.event(id)
    if source is None:
        return False
    rights = rights_of(viewer.now, session.actor, session.run)
    return source.kind.startswith("state.") or may_be_told(viewer.now, rights, source)


def trace_of(ledger: Ledger, receipt: Event) -> DigestTrace | None:
    """The trace of a receipt, if that is still there."""
    if "trace" not in receipt.payload:
        return None
    data = ledger.blob(receipt.payload["trace"]["$blob"])
    if data is None:
        raise Corrupt(
            f"the trace of {receipt.id!r} is missing: restore the book from a backup", receipt.position
        )
    return convert(decode(data), DigestTrace)


def _erased(ledger: Ledger, id: str) -> bool:
    event = ledger.event(id)
    return event is None or event.erased
