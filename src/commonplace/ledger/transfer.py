"""Moving a ledger: export to JSONL, import, and copies between any two engines.

An export is JSONL that any tool can read. Its first line says which book it is, then each event stands on
one line with everything its hash covers, each blob on a line before the first event that needs it, and the
last line says where it ends, so that a cut file is noticed. Nothing is written before the whole source has
been read and its chain checked.

Into an empty book, or one that holds a beginning of the source, events go as they are: positions, times and
hashes kept. Anything else would break one of the two chains, so there they are recorded anew: the label
`origin` names where they come from, `occurred_at` keeps their time, and kinds with an owner become
`event.imported`, because only their owner may claim that they happened here.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from ..engines.contract import GENESIS, Record
from ..errors import BadInput, Busy, CommonplaceError, Conflict, Corrupt
from ..files.safe import new_file
from .checks import iso, to_us
from .encoding import canonical, decode, encode_payload
from .erase import EraseRequest, decide_erase
from .events import (
    ERASED,
    FORMAT,
    SALT,
    Draft,
    ErasedEvent,
    Event,
    Header,
    draft,
    erased_by,
    header_of,
    read_header,
    seal,
    unseal,
)
from .ledger import IMPORTED, Ledger, Progress
from .overlay import Overlay
from .upkeep import rebuild

BATCH = 500
BATCH_BYTES = 4 * 1024 * 1024

_EVENT = b'{"position"'
"""How a line with an event begins."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """One event on its way from one book to another, with the blobs that must arrive no later than it."""

    record: Record
    blobs: dict[str, bytes]


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of a source. `exact`: positions and hashes were kept. `already` were here before.
    `left_out` gives id and reason of what could not be taken."""

    events: int
    already: int
    exact: bool
    left_out: tuple[tuple[str, str], ...]
    head: int


class Source:
    """Something that can be read from its first event to its last, more than once."""

    def __init__(
        self,
        book: str,
        head: int,
        parcels: Callable[[], Iterator[Parcel]],
        erased_since: Callable[[], set[int]] = set,
    ) -> None:
        self.book = book
        self.head = head
        self.parcels = parcels
        self.erased_since = erased_since
        """The positions that erasures beyond its head name."""


# export


class _ExportLine(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One event of an export. Its names and order are the format."""

    position: int
    id: str
    kind: str
    actor: str
    run_id: str | None
    session_id: str | None
    turn: int
    created_at: str
    occurred_at: str | None
    schema_version: int
    parents: tuple[str, ...]
    labels: dict[str, str]
    payload: msgspec.Raw
    salt: str | None
    digest: str
    previous: str
    hash: str
    clock: str | None = None


_read_line = msgspec.json.Decoder(_ExportLine).decode


def write_export(
    lines: Iterable[bytes], to: Path, upto: int, progress: Progress | None = None, beside: Path | None = None
) -> int:
    """Write an export to a file, which is there once it is whole and on disk. It has the mode of the book's own file,
    which lies `beside`. Returns the number of its events."""
    with new_file(to, beside) as out:
        count = 0
        for line in lines:
            out.write(line + b"\n")
            if line.startswith(_EVENT):
                count += 1
                if progress and count % BATCH == 0:
                    progress(count, upto)
    return count


def export_lines(ledger: Ledger, upto: int) -> Iterator[bytes]:
    """Everything up to a position, lossless."""
    meta = ledger.meta
    yield canonical(
        {"commonplace": "export", "format": FORMAT, "book": meta.book, "name": meta.name, "head": upto}
    )
    last, blobs = GENESIS, 0
    for parcel in _parcels(ledger, upto):
        for digest, data in parcel.blobs.items():
            yield canonical({"blob": digest, "data": b64encode(data).decode()})
        yield _event_line(parcel.record)
        last = parcel.record.hash
        blobs += len(parcel.blobs)
    yield canonical({"end": upto, "hash": last.hex(), "blobs": blobs})


def excerpt_lines(ledger: Ledger, events: Iterable[Event]) -> Iterator[bytes]:
    """Only these events, in a chain of their own that can be taken in anywhere. What is not shown leaves no trace:
    positions are counted anew, and parents that are not shown are not named. A kind with an owner becomes
    `event.imported`, as where its events are recorded anew."""
    chosen = list(events)
    shown, meta = {event.id for event in chosen}, ledger.meta
    book = f"{meta.book}/excerpt"
    yield canonical(
        {"commonplace": "export", "format": FORMAT, "book": book, "name": meta.name, "head": len(chosen)}
    )
    last, sent = GENESIS, set[str]()
    for position, event in enumerate(chosen, 1):
        kind, payload = event.kind, event.payload
        if ledger.registry.owner(kind) is not None:
            kind, payload = IMPORTED, {"kind": kind, "payload": payload}
        # The trace of a receipt quotes items that may have been taken back since: only the receipt itself shows it.
        for digest in event.blobs if event.kind != "receipt.written" else ():
            data = None if digest in sent else ledger.blob(digest)
            if data is not None:
                sent.add(digest)
                yield canonical({"blob": digest, "data": b64encode(data).decode()})
        copy = draft(
            kind,
            actor=event.actor,
            payload=payload,
            run_id=event.run_id,
            session_id=event.session_id,
            turn=event.turn,
            occurred_at=event.occurred_at,
            id=event.id,
            parents=[parent for parent in event.parents if parent in shown],
            labels=event.labels,
            schema_version=event.schema_version if kind == event.kind else 1,
        )
        record, _ = seal(copy, position, last, event.created_us)
        yield _event_line(record)
        last = record.hash
    yield canonical({"end": len(chosen), "hash": last.hex(), "blobs": len(sent)})


def _event_line(record: Record) -> bytes:
    header, body = read_header(record), record.body
    fields = msgspec.structs.asdict(header)
    del fields["format"]
    for name in ("created_at", "occurred_at", "clock"):
        fields[name] = None if fields[name] is None else iso(fields[name])
    payload = msgspec.Raw(b"null" if body is None else body[SALT:])
    salt = None if body is None else body[:SALT].hex()
    return msgspec.json.encode(_ExportLine(**fields, payload=payload, salt=salt, hash=record.hash.hex()))


def _parcels(ledger: Ledger, upto: int) -> Iterator[Parcel]:
    sent: set[str] = set()
    with closing(ledger.records(0, upto)) as records:
        for record in records:
            blobs = {}
            for digest in unseal(record).blobs:
                if digest in sent:
                    continue
                data = ledger.blob(digest)
                if data is not None:
                    blobs[digest] = data
            sent |= blobs.keys()
            yield Parcel(record, blobs)


def of_ledger(ledger: Ledger) -> Source:
    with ledger.store.read() as reads:
        head = reads.head.position
    return Source(
        ledger.meta.book,
        head,
        lambda: _parcels(ledger, head),
        lambda: {gone.position for one in ledger.events(head, kinds=(ERASED,)) for gone in erased_by(one)},
    )


# import


def of_file(path: Path) -> Source:
    """An export on disk. Every problem names its line."""
    if not path.exists():
        raise BadInput(f"there is no file {path}: check the path")
    if not path.is_file():
        raise BadInput(f"{path} is not a file: give the JSONL file that `commonplace book export` wrote")
    with path.open("rb") as lines:
        first = _plain_line(lines.readline(), path, 1)
    if first.get("commonplace") != "export":
        raise BadInput(
            f"{path} is no export of a book: its first line should say {{'commonplace': 'export', …}}"
        )
    if not isinstance(first.get("format"), int) or first["format"] > FORMAT:
        raise BadInput(
            f"{path} has export format {first.get('format')!r}; this library reads up to {FORMAT}: upgrade it"
        )
    book, head = first.get("book"), first.get("head")
    if not isinstance(book, str) or not isinstance(head, int):
        raise BadInput(f"{path}, line 1: the book or the head is missing, so this is no whole export")
    return Source(book, head, lambda: _read_parcels(path))


def _read_parcels(path: Path) -> Iterator[Parcel]:
    blobs: dict[str, bytes] = {}
    last, count = GENESIS.hex(), 0
    with path.open("rb") as lines:
        next(lines)
        for number, raw in enumerate(lines, 2):
            if raw.startswith(_EVENT):
                record = _read_event(raw, path, number)
                last = record.hash.hex()
                yield Parcel(record, blobs)
                blobs = {}
                continue
            line = _plain_line(raw, path, number)
            if "blob" in line:
                blobs |= _read_blob(line, path, number)
                count += 1
            elif "end" in line:
                if (line.get("hash"), line.get("blobs")) != (last, count):
                    raise BadInput(
                        f"{path}, line {number}: the export does not end where it says; export it again"
                    )
                return
            else:
                raise BadInput(f"{path}, line {number}: neither an event, nor a blob, nor the end")
    raise BadInput(f"{path} is cut off: its last line is missing. Export it again")


def _plain_line(raw: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        line = decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        line = None
    if not isinstance(line, dict):
        raise BadInput(f"{path}, line {number}: not a line of an export (JSON object expected)")
    return line


def _read_blob(line: dict[str, Any], path: Path, number: int) -> dict[str, bytes]:
    try:
        data = b64decode(line["data"], validate=True)
    except (KeyError, TypeError, ValueError, Base64Error):
        raise BadInput(f"{path}, line {number}: the blob's data is not base64") from None
    if sha256(data).hexdigest() != line["blob"]:
        raise BadInput(f"{path}, line {number}: the blob's content does not match its digest")
    return {line["blob"]: data}


def _read_event(raw: bytes, path: Path, number: int) -> Record:
    """An event of an export, as the record it was: the hash must come out the same."""
    try:
        line = _read_line(raw)
        body = None
        if line.salt is not None:
            payload, _, _ = encode_payload(decode(line.payload))
            body = bytes.fromhex(line.salt) + payload
        header = _header(line)
        record = Record(
            line.position,
            line.id,
            line.run_id,
            header.created_at,
            canonical(header),
            bytes.fromhex(line.hash),
            body,
        )
        unseal(record)
    except (CommonplaceError, msgspec.MsgspecError, ValueError, RecursionError, OverflowError) as error:
        raise BadInput(f"{path}, line {number}: this event cannot be taken ({error})") from error
    return record


def _header(line: _ExportLine) -> Header:
    """The header a line stands for; its fields are checked as those of any event are."""
    checked = draft(
        line.kind,
        actor=line.actor,
        run_id=line.run_id,
        session_id=line.session_id,
        turn=line.turn,
        occurred_at=None if line.occurred_at is None else datetime.fromisoformat(line.occurred_at),
        id=line.id,
        parents=line.parents,
        labels=line.labels,
        schema_version=line.schema_version,
    )
    if (checked.id, checked.actor, checked.run_id) != (line.id, line.actor, line.run_id):
        raise BadInput("a name in it is not in the form in which names are kept (Unicode's NFC)")
    created_at = to_us("created_at", datetime.fromisoformat(line.created_at))
    clock = None if line.clock is None else to_us("clock", datetime.fromisoformat(line.clock))
    return header_of(checked, line.position, created_at, line.digest, line.previous, clock)


def import_file(ledger: Ledger, path: Path, progress: Progress | None = None) -> Imported:
    try:
        return take_in(ledger, of_file(path), progress)
    except OSError as error:
        if isinstance(error, CommonplaceError):
            raise
        raise BadInput(f"{path} cannot be read ({error}): check its rights") from error


def copy_book(source: Ledger, target: Ledger, progress: Progress | None = None) -> Imported:
    """Copy up to the source's head. If something is erased there meanwhile, go on to the tombstone."""
    with target.store.read() as reads:
        start = reads.head.position
    while True:
        try:
            done = take_in(target, of_ledger(source), progress)
        except _ErasedMeanwhile:
            continue  # its tombstone is in the source by now
        if not done.exact:
            return done
        taken = max(done.events, done.head - start)  # by all tries
        return replace(done, events=taken, already=done.events + done.already - taken)


def take_in(ledger: Ledger, source: Source, progress: Progress | None = None) -> Imported:
    """Check the whole source, then take it in, exactly where that is possible."""
    exact, tombstones = _check(ledger, source)
    if exact and _half_taken(ledger, tombstones):
        ledger.run(_look_ahead, tombstones)
        rebuild(ledger, [view.name for view in ledger.registry.views.values() if view.present])
    taken = already = 0
    left_out = list[tuple[str, str]]()
    for batch in _batches(source.parcels()):
        if exact:
            result = ledger.run(_append_exactly, (tombstones, batch))
        else:
            result = ledger.run(_record_anew, (source.book, batch))
        taken += result.events
        already += result.already
        left_out += result.left_out
        if result.erased:
            ledger.after_erasure(result.erased)  # at once: an import that breaks off does not come here again
        if progress:
            progress(batch[-1].record.position, source.head)
    with ledger.store.read() as reads:
        return Imported(taken, already, exact, tuple(left_out), reads.head.position)


def _check(ledger: Ledger, source: Source) -> tuple[bool, list[Event]]:
    """Read the source to its end without writing: its chain must hold. Answers whether this book's own chain
    is a beginning of it, or it is a beginning of this book's; and the source's erasures."""
    with ledger.store.read() as reads:
        head = reads.head
    position, previous, exact = 0, GENESIS.hex(), head.position == 0
    blank: set[int] = set()
    tombstones: dict[int, Event] = {}
    created_at, ids = 0, set()
    for parcel in source.parcels():
        header = read_header(parcel.record)
        if header.created_at < created_at:
            raise BadInput(
                f"the source is not whole: event {header.position} is older than the one before it"
            )
        if header.id in ids:
            raise BadInput(f"the source is not whole: two of its events have the id {header.id!r}")
        created_at = header.created_at
        ids.add(header.id)
        if parcel.record.body is None:
            blank.add(header.position)
        elif header.kind == ERASED:
            gone = {one.position for one in _erased_by(parcel.record)}
            if gone & tombstones.keys():
                raise BadInput(f"the source is not whole: event {header.position} erases an erasure")
            blank -= gone
            tombstones[header.position] = unseal(parcel.record)
        if header.position != position + 1 or header.previous != previous:
            raise BadInput(
                f"the source is not whole: event {header.position} does not follow from event {position}. "
                "Nothing was taken in; export it again"
            )
        position, previous = header.position, parcel.record.hash.hex()
        if position == head.position:
            exact = previous == head.hash.hex()
    if position != source.head:
        raise BadInput(f"the source ends at {position} and should end at {source.head}. Nothing was taken in")
    if 0 < position < head.position:
        with ledger.store.read() as reads:
            exact = reads.records(position - 1, position, 1)[0].hash.hex() == previous
    if exact and blank and blank <= source.erased_since():
        raise _ErasedMeanwhile("something was erased from the source while it was being read; start again")
    # A payload that is missing without an erasure that says why would never verify here: such a source ends
    # before the erasure, or is forged.
    return (exact and not blank) or position == 0, list(tombstones.values())


def _erased_by(record: Record) -> list[ErasedEvent]:
    try:
        return erased_by(unseal(record))
    except Corrupt as problem:
        raise BadInput(f"the source cannot be taken in: {problem}") from problem


def _batches(parcels: Iterable[Parcel]) -> Iterator[list[Parcel]]:
    batch: list[Parcel] = []
    size = 0
    for parcel in parcels:
        batch.append(parcel)
        size += len(parcel.record.body or b"") + sum(map(len, parcel.blobs.values()))
        if len(batch) == BATCH or size > BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


@dataclass(slots=True)
class _Taken:
    events: int
    already: int
    left_out: list[tuple[str, str]]
    erased: list[str] = field(default_factory=list)


class _ErasedMeanwhile(Busy):
    """What the check of the source has still seen is gone from it."""


def _half_taken(ledger: Ledger, tombstones: list[Event]) -> bool:
    """Whether an earlier try ended between an event that came erased and its tombstone. What was folded anew since then
    has been without what the tombstone kept, and no row without versions is derived again when that arrives."""
    with ledger.store.read() as reads:
        end = reads.head.position
        erased = (
            gone.position
            for tombstone in tombstones
            if tombstone.position > end
            for gone in erased_by(tombstone)
        )
        return any(
            reads.records(position - 1, position, 1)[0].body is None for position in erased if position <= end
        )


def _look_ahead(overlay: Overlay, tombstones: list[Event]) -> None:
    overlay.residues.ahead(tombstones)


def _append_exactly(overlay: Overlay, request: tuple[list[Event], list[Parcel]]) -> _Taken:
    """Append records as they are. What was erased from one of them later is folded as its tombstone left it, which
    stands further on: so all tombstones are known before."""
    tombstones, batch = request
    overlay.residues.ahead(tombstones)
    fresh = [parcel for parcel in batch if parcel.record.position > overlay.position]
    taken, blanked = _Taken(0, len(batch) - len(fresh), []), len(overlay.write.erase)
    clash = overlay.tx.by_id([parcel.record.id for parcel in fresh])
    for parcel in fresh:
        record = parcel.record
        header = read_header(record)
        if header.position != overlay.position + 1 or header.previous != overlay.hash.hex():
            raise Busy("somebody else wrote to this book while the source was taken in; start again")
        if record.id in clash or overlay.knows(record.id):
            raise Corrupt(f"the source holds the id {record.id!r} twice", record.position)
        if record.body is None and not overlay.residues.knows(record.position):
            raise _ErasedMeanwhile(f"event {record.id!r} was erased while it was being copied; start again")
        overlay.write.blobs.update(parcel.blobs)
        try:
            overlay.append(record, overlay.registry.current(unseal(record)))
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise BadInput(
                f"event {record.position} of the source is not what its kind promises ({error!r:.100}), "
                "so its views cannot be folded"
            ) from error
        taken.events += 1
    taken.erased = overlay.erased_since(blanked)
    return taken


def _record_anew(overlay: Overlay, request: tuple[str, list[Parcel]]) -> _Taken:
    book, batch = request
    taken, blanked = _Taken(0, 0, []), len(overlay.write.erase)
    for parcel in batch:
        header, body = read_header(parcel.record), parcel.record.body
        if body is None:
            taken.left_out.append((header.id, "erased"))
            continue
        here = overlay.record_of(header.id)
        if here is not None:
            _same_or_conflict(here, header, body)
            if here.body is None:
                taken.left_out.append((header.id, "erased here"))
            else:
                taken.already += 1
            continue
        kind, raw, payload = header.kind, body[SALT:], decode(body[SALT:])
        if kind == ERASED:
            _erase_here(overlay, book, parcel.record)
        if overlay.registry.owner(kind) is not None:
            kind, (raw, payload, _) = IMPORTED, encode_payload({"kind": header.kind, "payload": payload})
        overlay.emit(
            Draft(
                id=header.id,
                kind=kind,
                actor=header.actor,
                raw=raw,
                payload=payload,
                run_id=header.run_id,
                session_id=header.session_id,
                turn=header.turn,
                occurred_at=header.created_at if header.occurred_at is None else header.occurred_at,
                schema_version=header.schema_version if kind == header.kind else 1,
                parents=header.parents,
                labels={**header.labels, "origin": f"{book}@{header.position}"},
                given_id=True,
                blobs=parcel.blobs,
            )
        )
        taken.events += 1
    taken.erased = overlay.erased_since(blanked)
    return taken


def _erase_here(overlay: Overlay, book: str, tombstone: Record) -> None:
    """What was erased there and had been taken in from there is erased here, too."""
    ids = []
    for gone in _erased_by(tombstone):
        here = overlay.record_of(gone.id)
        if here is None or here.body is None:
            continue
        if read_header(here).labels.get("origin") == f"{book}@{gone.position}":
            ids.append(gone.id)
    if ids:
        header = read_header(tombstone)
        decide_erase(overlay, EraseRequest(tuple(ids), header.actor, f"erased in {book}", False))


def _same_or_conflict(record: Record, header: Header, body: bytes) -> None:
    """An event that is here already may stand: recorded here first, or taken in before. Otherwise stop."""
    here = read_header(record)
    theirs = (header.kind, body[SALT:])
    mine = None if record.body is None else (here.kind, record.body[SALT:])
    if mine is not None and mine != theirs and here.kind == IMPORTED:
        wrapped = decode(record.body[SALT:]) if record.body is not None else {}
        mine = (wrapped["kind"], canonical(wrapped["payload"]))
    same = mine is None or mine == theirs
    if not same or (here.actor, here.run_id, here.turn) != (header.actor, header.run_id, header.turn):
        raise Conflict(
            f"event {header.id!r} of the source is already here, at position {here.position}, with other content: "
            "take the source into a book of its own"
        )


def is_export(path: Path) -> bool:
    """Whether a path is to be read as an export of a book; also when there is nothing at it."""
    if not path.is_file():
        return not path.is_dir()
    try:
        with path.open("rb") as file:
            return b'"commonplace"' in file.read(200)
    except OSError:
        return True  # reading it says what is wrong
