"""The proof that something was erased: a file that says what was done and holds nothing of the content."""

from __future__ import annotations

import hmac
import os
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from .files.safe import check_new_file, new_file
from .files.scan import SHORTEST, look_for
from .finding import FindRequest, Found, counted, find_again
from .ledger.checks import iso
from .ledger.clocks import now_us
from .ledger.matching import Spellings, written_forms
from .ledger.printing import Readable, number

if TYPE_CHECKING:
    from .admin import Admin
    from .ledger.ledger import Ledger, Progress
    from .session import Session

FORMAT = "commonplace-proof-1"
KEY = 32
"""Bytes of the key of the digests."""


class Proof(Readable, msgspec.Struct, frozen=True):
    """What a proof says. `gone`: no payload and no blob holds it any more. `purged`: nor does any raw file, as far as
    they are on this host; where no text was looked for, samples of what was found were. `key` is not in the file: only
    with it do the file's digests show what was looked for."""

    path: str
    gone: bool
    purged: bool
    erased: int
    remaining: int
    key: str
    file: dict[str, Any]

    def __str__(self) -> str:
        first = f"{number(self.erased, 'event')} erased: {'gone' if self.gone else 'NOT all of it is gone'}"
        raw = self.file["raw_files"]
        purged = f"not proven purged ({raw['problem']})"
        if self.purged:
            purged = f"purged ({number(raw['texts'], 'text')} looked for in the files)"
        left = f", {number(self.remaining, 'name')} left" if self.remaining else ""
        return f"{first}, {purged}{left}\nwritten to {self.path}; the key of its digests is {self.key}"


def check_target(session: Session, to: Path) -> None:
    """Raises what writing a proof to this file would raise; what is there stays as it is."""
    check_new_file(to, session.services.beside)


def write_proof(admin: Admin, session: Session, found: Found, to: Path, progress: Progress | None) -> Proof:
    """Purge, look again, verify, scan the files, and write what came of it."""
    check_target(session, to)
    ledger, request = session.ledger, found.request
    session.services.outside.take_in()
    purge, again = admin.purge(), find_again(session, found, progress)
    verification = admin.verify()
    erased = [mention for mention in (*found.entries, *found.derived) if _is_erased(ledger, mention.id)]
    gone = not again.entries and len(erased) == len(found.entries) + len(found.derived)
    raw, key = _raw_files(admin, request.texts, again), os.urandom(KEY)
    hide = request.spellings.masked  # an id, a path or a name of an actor may spell what was looked for
    file: dict[str, Any] = {
        "format": FORMAT,
        "book": {"id": ledger.meta.book, "name": hide(ledger.meta.name), "engine": admin.facts.engine},
        "written_at": iso(now_us()),
        "looked_for": _digests(key, request),
        "found_as_of": found.as_of,
        "counts": found.counts,
        "derived": counted(mention.thing for mention in found.derived),
        "erased": [
            {"id": hide(mention.id), "position": mention.position, "thing": mention.thing}
            for mention in erased
        ],
        "erasures": [
            {**erasure, "by": hide(erasure["by"]), "reason": hide(erasure["reason"])}
            for erasure in _erasures(ledger, [mention.position for mention in erased])
        ],
        "gone": gone,
        "found_again": again.counts,
        "chain": msgspec.to_builtins(verification),
        "purge": {"done": hide(purge.done), "remaining": hide(purge.remaining)},
        "raw_files": {**raw, "scanned": hide(raw["scanned"]), "holding": hide(raw["holding"])},
        "remaining": _without_names(again),
    }
    raw_file = msgspec.json.format(msgspec.json.encode(file), indent=2) + b"\n"
    with new_file(to, session.services.beside) as target:
        target.write(raw_file)
    purged = gone and verification.ok and not raw["problem"]
    remaining = sum(left["names"] for left in file["remaining"])
    return Proof(str(to), gone, purged, len(erased), remaining, key.hex(), file)


def _is_erased(ledger: Ledger, id: str) -> bool:
    event = ledger.event(id)
    return event is not None and event.erased


def _erasures(ledger: Ledger, positions: list[int]) -> list[dict[str, Any]]:
    """The erasures of the events at these positions: when they were, by whom and why."""
    with ledger.snapshot() as now:
        ids = dict.fromkeys(filter(None, (now.get("erasures", position) for position in positions)))
    return [
        {
            "id": event.id,
            "position": event.position,
            "at": iso(event.created_us),
            "by": event.actor,
            "reason": event.payload["reason"],
        }
        for event in ledger.events_by_id(list(ids))
    ]


def _raw_files(admin: Admin, looked_for: Sequence[str], again: Found) -> dict[str, Any]:
    """Whether the files of the store, of the index and of the markdown hold a text that was looked for or, where none
    was, a sample of what was found. `problem` says what speaks against it, or what could not be looked at."""
    texts = [text for text in looked_for or again.samples if len(text.encode()) >= SHORTEST]
    forms = [form for text in texts for form in (written_forms(text) if looked_for else [text])]
    files = admin.raw_files()
    holding = sorted({hit.path for hit in look_for(forms, files)}) if forms else []
    problem = ""
    if not forms:
        problem = f"no text of {SHORTEST} bytes or more was looked for, so the files were not scanned"
    elif holding:
        problem = f"it is still in {number(len(holding), 'file')}"
        problem += ", where names remain" if again.remaining else ""
    elif not admin.has_files_here:
        problem = (
            f"the store's own files are not on this host: they belong to the {admin.facts.engine} server"
        )
    return {
        "texts": len(texts),
        "scanned": [str(file) for file in files] if forms else [],
        "holding": holding,
        "problem": problem,
    }


def _without_names(again: Found) -> list[dict[str, Any]]:
    """What remains and why, without the names themselves."""
    rows: dict[tuple[str, str], list[int]] = {}
    for left in again.remaining:
        rows.setdefault((left.where, left.advice), []).append(left.events)
    return [
        {"where": where, "names": len(events), "events": sum(events), "why": why}
        for (where, why), events in rows.items()
    ]


def _digests(key: bytes, request: FindRequest) -> dict[str, list[str]]:
    """What was looked for, as keyed digests: nobody who lacks the key can try names until one fits."""

    def digest(text: str) -> str:
        return hmac.new(key, text.encode(), sha256).hexdigest()

    pairs = (
        f"{name}={msgspec.json.encode(value).decode()}" for name, value in sorted(request.metadata.items())
    )
    asked = {
        "text": [digest(form) for form in Spellings(request.texts).forms],
        "metadata": [digest(pair) for pair in pairs],
        "scope": [] if request.scope is None else [digest(request.scope)],
        "actor": [] if request.actor is None else [digest(request.actor)],
    }
    return {name: values for name, values in asked.items() if values}
