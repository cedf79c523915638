"""What an event is: its fields and their limits, and its place in the hash chain.

    draft(…)        checks what a caller wants to record            → Draft
    seal(draft, …)  gives it a position, a time and a hash          → Record (what engines store)
    unseal(record)  checks the stored bytes and reads them back     → Event

The chain: `hash = sha256(header)`. The header is a JSON array that holds every field but the payload, the
previous event's hash, and `digest = sha256(salt ‖ payload)`. Salt and payload travel together as the body,
so when the body is erased the header, and with it the chain, still verifies, and nobody can find out a
short secret by trying digests.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any

import msgspec

from ..engines.contract import Record
from ..errors import BadInput, Corrupt, shown
from .checks import MAX_NAME, check_name, from_us, iso, to_us
from .encoding import BLOB_REF, blobs_of, canonical, convert, decode, encode_payload
from .labels import FLOWING

FORMAT = 1
SALT = 16
MAX_PARENTS = 10_000
MAX_BATCH = 10_000
MAX_BATCH_BYTES = 64 * 1024 * 1024

KIND = re.compile(r"[a-z][a-z0-9]*(?:\.[a-z][a-z0-9]*)+")
SESSION = re.compile(r"[A-Za-z0-9._-]{1,64}")
LABEL = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
_BLOB_MARK = f'"{BLOB_REF}"'.encode()

A_DAY = 86_400_000_000
"""In microseconds: how far two clocks may be apart before one of them is taken to be wrong."""

ERASED = "event.erased"
"""The kind of the tombstone that an erasure leaves."""


class Header(msgspec.Struct, array_like=True, frozen=True, omit_defaults=True):
    """The hashed part of an event, in this order. Never reorder: append fields under a new `format`."""

    format: int
    position: int
    id: str
    kind: str
    actor: str
    run_id: str | None
    session_id: str | None
    turn: int
    occurred_at: int | None
    created_at: int
    schema_version: int
    parents: tuple[str, ...]
    labels: dict[str, str]
    digest: str
    previous: str
    clock: int | None = None


_read_header = msgspec.json.Decoder(Header).decode


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One act, as it stands in the ledger.

    `payload` is a copy of what was recorded, brought up to the current schema of its kind; it is empty, and
    `erased` true, when the content was erased. `schema_version` is the one it was recorded under.
    """

    position: int
    id: str
    kind: str
    actor: str
    payload: dict[str, Any]
    run_id: str | None
    session_id: str | None
    turn: int
    created_us: int
    occurred_us: int | None
    schema_version: int
    parents: tuple[str, ...]
    labels: dict[str, str]
    hash: str
    erased: bool = False
    blobs: tuple[str, ...] = ()
    """The digests of the blobs that the payload refers to."""
    clock_us: int | None = None
    """The recorder's own clock, if that was more than a day before the event below it."""

    @property
    def created_at(self) -> datetime:
        """When it was recorded: never before the event at the position below it."""
        return from_us(self.created_us)

    @property
    def occurred_at(self) -> datetime:
        """When it happened, as its actor says; if nothing was said, when it was recorded."""
        return from_us(self.created_us if self.occurred_us is None else self.occurred_us)

    def as_dict(self) -> dict[str, Any]:
        """Plain data with ISO times, as the surfaces show it."""
        shown = {
            "position": self.position,
            "id": self.id,
            "kind": self.kind,
            "actor": self.actor,
            "run_id": self.run_id,
            "session_id": self.session_id,
            "turn": self.turn,
            "created_at": iso(self.created_us),
            "occurred_at": None if self.occurred_us is None else iso(self.occurred_us),
            "schema_version": self.schema_version,
            "parents": list(self.parents),
            "labels": self.labels,
            "payload": self.payload,
            "hash": self.hash,
        }
        return {**shown, "erased": True} if self.erased else shown

    def __repr__(self) -> str:
        fields = {name: value for name, value in self.as_dict().items() if value or name == "payload"}
        return f"Event({', '.join(f'{name}={value!r}' for name, value in fields.items())})"


class ErasedEvent(msgspec.Struct, frozen=True):
    """One erased event, as its tombstone names it."""

    id: str
    position: int
    residue: dict[str, Any] | None = None


def erased_by(event: Event) -> list[ErasedEvent]:
    """What a tombstone says it erased. Raises Corrupt when it says it badly."""
    try:
        erased = convert(event.payload.get("events"), list[ErasedEvent])
    except msgspec.ValidationError:
        erased = []
    if not erased or not all(0 < entry.position < event.position for entry in erased):
        raise _corrupt(event.position, "it is an erasure that does not say what it erased")
    return erased


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """An event that has been checked and not yet recorded. `given_id`: the caller chose the id, so it may
    already be in the book."""

    id: str
    kind: str
    actor: str
    raw: bytes
    payload: dict[str, Any]
    run_id: str | None = None
    session_id: str | None = None
    turn: int = 0
    occurred_at: int | None = None
    schema_version: int = 1
    parents: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    given_id: bool = False
    blobs: dict[str, bytes] = {}

    @property
    def size(self) -> int:
        return len(self.raw) + sum(map(len, self.blobs.values()))


def draft(
    kind: str,
    *,
    actor: str,
    payload: Mapping[str, Any] | None = None,
    run_id: str | None = None,
    session_id: str | None = None,
    turn: int = 0,
    occurred_at: datetime | None = None,
    id: str | None = None,
    parents: Sequence[str] = (),
    labels: Mapping[str, str] | None = None,
    schema_version: int = 1,
) -> Draft:
    """Check every field. Raises BadInput or TooLarge that names the field and what is allowed."""
    if not isinstance(kind, str) or len(kind) > MAX_NAME or not KIND.fullmatch(kind):
        raise BadInput(
            f"kind {shown(kind)} is not dotted lowercase: write two or more words of a-z and 0-9, "
            "such as 'agent.spoke'"
        )
    actor = check_name("actor", actor)
    if run_id is not None:
        run_id = check_name("run_id", run_id)
    if id is not None:
        id = check_name("id", id)
    if session_id is not None and not (isinstance(session_id, str) and SESSION.fullmatch(session_id)):
        raise BadInput(
            f"session_id {shown(session_id)} is not allowed: use 1 to 64 of A-Z a-z 0-9 . _ -, such as 's-1'"
        )
    if type(turn) is not int or not 0 <= turn < 2**53:
        raise BadInput(f"turn {shown(turn)} is not a turn: give a whole number from 0")
    if type(schema_version) is not int or not 1 <= schema_version < 2**31:
        raise BadInput(f"schema_version {shown(schema_version)} is not a version: give a whole number from 1")
    raw, copy, blobs = encode_payload({} if payload is None else payload)
    return Draft(
        id=new_id() if id is None else id,
        kind=str(kind),
        actor=actor,
        raw=raw,
        payload=copy,
        run_id=run_id,
        session_id=None if session_id is None else str(session_id),
        turn=turn,
        occurred_at=None if occurred_at is None else to_us("occurred_at", occurred_at),
        schema_version=schema_version,
        parents=_parents(parents) if parents else (),
        labels=_labels(labels) if labels else {},
        given_id=id is not None,
        blobs=blobs,
    )


FIELDS = ("kind", *(name for name in draft.__annotations__ if name not in ("kind", "return")))
"""The names a caller may give for an event, as in `record_all([{…}])`."""
_FIELDS = frozenset(FIELDS)


def draft_from(fields: object, *, actor: str) -> Draft:
    """The same from plain data, as it comes from a batch, a file or another process."""
    if isinstance(fields, Draft):
        return fields
    if not isinstance(fields, dict | Mapping):
        raise BadInput(
            f"an event of a batch is a mapping of fields, not {type(fields).__name__}: give a dict"
        )
    if not fields.keys() <= _FIELDS:
        unknown = sorted(str(name) for name in fields if name not in FIELDS)
        raise BadInput(f"unknown event field {', '.join(unknown)}: the fields are {', '.join(FIELDS)}")
    if "kind" not in fields:
        raise BadInput("an event needs a kind, such as 'agent.spoke'")
    return draft(**{"actor": actor, **fields})


def recorded_at(previous: int, now: int) -> tuple[int, int | None]:
    """The time of an event that follows one of that time, and what the clock said if the two cannot both be right.

    Times in the ledger never go back. A jump ahead may be a long pause as well as a wrong clock, and is believed. A
    jump back by more than a day is no skew between hosts: either this clock is wrong or an earlier one was, so what it
    said is recorded, too.
    """
    return max(previous, now), now if previous - now > A_DAY else None


def seal(
    draft: Draft, position: int, previous: bytes, created_at: int, clock: int | None = None
) -> tuple[Record, Event]:
    """Give a draft its place in the chain: the record that engines store, and the event that it is read as."""
    body = _salt() + draft.raw
    header = header_of(draft, position, created_at, sha256(body).hexdigest(), previous.hex(), clock)
    raw = canonical(header)
    record = Record(position, draft.id, draft.run_id, created_at, raw, sha256(raw).digest(), body)
    return record, _event(header, record, draft.payload)


def header_of(
    draft: Draft, position: int, created_at: int, digest: str, previous: str, clock: int | None
) -> Header:
    """The header of a draft at a position."""
    return Header(
        FORMAT,
        position,
        draft.id,
        draft.kind,
        draft.actor,
        draft.run_id,
        draft.session_id,
        draft.turn,
        draft.occurred_at,
        created_at,
        draft.schema_version,
        draft.parents,
        draft.labels,
        digest,
        previous,
        clock,
    )


def read_header(record: Record) -> Header:
    """The header, after checking that the stored bytes are the ones that were hashed."""
    if type(record.header) is not bytes or sha256(record.header).digest() != record.hash:
        raise _corrupt(record.position, "its header does not match its hash")
    try:
        header = _read_header(record.header)
    except msgspec.MsgspecError:
        raise _corrupt(record.position, "its header cannot be read") from None
    if (header.position, header.id, header.run_id, header.created_at) != (
        record.position,
        record.id,
        record.run,
        record.created_at,
    ):
        raise _corrupt(record.position, "it is filed under another position, id, run or time than its own")
    return header


def unseal(record: Record) -> Event:
    """Read an event back. Raises Corrupt rather than answer with anything but what was recorded."""
    header = read_header(record)
    body = record.body
    if body is None:
        return _event(header, record, {})
    if type(body) is not bytes or sha256(body).hexdigest() != header.digest:
        raise _corrupt(record.position, "its payload does not match its digest")
    return _event(header, record, decode(body[SALT:]))


def _event(header: Header, record: Record, payload: dict[str, Any]) -> Event:
    body = record.body
    return Event(
        position=header.position,
        id=header.id,
        kind=header.kind,
        actor=header.actor,
        payload=payload,
        run_id=header.run_id,
        session_id=header.session_id,
        turn=header.turn,
        created_us=header.created_at,
        occurred_us=header.occurred_at,
        schema_version=header.schema_version,
        parents=header.parents,
        labels=header.labels,
        hash=record.hash.hex(),
        erased=body is None,
        # most payloads refer to no blob, and their bytes show it
        blobs=blobs_of(payload) if body is not None and _BLOB_MARK in body else (),
        clock_us=header.clock,
    )


def same_content(draft: Draft, record: Record) -> bool:
    """Whether a draft says what a record already holds: then recording it again changes nothing."""
    header = read_header(record)
    return (
        record.body is not None
        and sha256(record.body[:SALT] + draft.raw).hexdigest() == header.digest
        and (draft.kind, draft.actor, draft.run_id, draft.session_id, draft.turn, draft.occurred_at)
        == (header.kind, header.actor, header.run_id, header.session_id, header.turn, header.occurred_at)
        and (draft.schema_version, draft.parents, draft.labels)
        == (header.schema_version, header.parents, header.labels)
    )


def _parents(parents: Sequence[str]) -> tuple[str, ...]:
    if not isinstance(parents, list | tuple) or len(parents) > MAX_PARENTS:
        raise BadInput(f"parents is a list of at most {MAX_PARENTS} event ids, such as ['id-1']")
    return tuple(check_name("a parent", parent) for parent in parents)


def _labels(labels: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(labels, Mapping):
        raise BadInput(f"labels {shown(labels)} is not a mapping: give {{'sensitivity': 'private'}}")
    for name in labels:
        if not isinstance(name, str) or not LABEL.fullmatch(name):
            raise BadInput(f"label {shown(name)} is not a label's name: use lowercase letters, digits . _ -")
        if name in FLOWING and labels[name] not in FLOWING[name]:
            allowed = ", ".join(FLOWING[name])
            raise BadInput(f"the label {name} {shown(labels[name])} is unknown: it is one of {allowed}")
    return {str(name): check_name(f"the label {name}", value) for name, value in labels.items()}


_salts: list[bytes] = []

os.register_at_fork(
    after_in_child=_salts.clear
)  # a child process must not use its parent's random bytes again


def _salt() -> bytes:
    """Secret random bytes; the system is asked for many at a time."""
    try:
        return _salts.pop()
    except IndexError:
        pool = os.urandom(SALT * 256)
        _salts.extend(pool[at : at + SALT] for at in range(SALT, len(pool), SALT))
        return pool[:SALT]


def new_id() -> str:
    """A version 7 UUID: ids made later sort later, to a quarter of a microsecond. It cannot be guessed from others: 62
    bits are secret random ones."""
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    tail = f"{int.from_bytes(_salt()[:8]) >> 2 | 0x8000_0000_0000_0000:016x}"
    head = f"{milliseconds:012x}"
    return f"{head[:8]}-{head[8:]}-7{rest * 4096 // 1_000_000:03x}-{tail[:4]}-{tail[4:]}"


def _corrupt(position: int, why: str) -> Corrupt:
    return Corrupt(
        f"event {position} is damaged: {why}. Run `commonplace book verify`, and restore from a backup or a copy",
        position,
    )
