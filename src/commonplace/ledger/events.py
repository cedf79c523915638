"""What an event is: its fields and their limits, its canonical bytes, its place in the hash chain.

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
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ..engines.contract import Record
from ..errors import BadInput, Corrupt, TooLarge, shown
from .labels import FLOWING

FORMAT = 1
SALT = 16
MAX_NAME = 200
MAX_DEPTH = 128
MAX_PARENTS = 10_000
MAX_PAYLOAD = 8 * 1024 * 1024
MAX_BLOB = 64 * 1024 * 1024
MAX_BATCH = 10_000
MAX_BATCH_BYTES = 64 * 1024 * 1024

KIND = re.compile(r"[a-z][a-z0-9]*(?:\.[a-z][a-z0-9]*)+")
SESSION = re.compile(r"[A-Za-z0-9._-]{1,64}")
LABEL = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
BLOB_REF = "$blob"
_BLOB_MARK = b'"$blob"'

ERASED = "event.erased"
"""The kind of the tombstone that an erasure leaves."""

canonical = msgspec.json.Encoder(order="sorted").encode
"""Canonical bytes of JSON-able data: keys sorted, no spaces, UTF-8, shortest numbers."""

decode = msgspec.json.decode

T = TypeVar("T")
A_DAY = 86_400_000_000
"""In microseconds: how far two clocks may be apart before one of them is taken to be wrong."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_EARLIEST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LATEST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND


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
    """What the clock said of whoever recorded it, if that was more than a day before the event below it."""

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


class ErasedEvent(msgspec.Struct, frozen=True):
    """One erased event, as its tombstone names it."""

    id: str
    position: int
    residue: dict[str, Any] | None = None


def erased_by(event: Event) -> list[ErasedEvent]:
    """What a tombstone says it erased. Raises Corrupt when it says it badly."""
    try:
        gone = msgspec.convert(event.payload.get("events"), list[ErasedEvent])
    except msgspec.ValidationError:
        gone = []
    if not gone or not all(0 < one.position < event.position for one in gone):
        raise _corrupt(event.position, "it is an erasure that does not say what it erased")
    return gone


class Blob(msgspec.Struct, frozen=True):
    """Bytes to be kept with an event but outside its payload, addressed by their content.

    Put one anywhere in a payload: it is stored in the same commit and the payload keeps
    `{"$blob": sha256, "size": n}`, with which `book.blob()` gives the bytes back. It is erased with the last
    event that refers to it.
    """

    data: bytes


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
    if not isinstance(kind, str) or not _is_kind(kind):
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


def seal(draft: Draft, position: int, previous: bytes, created_at: int, clock: int | None = None) -> Record:
    """Give a draft its place in the chain."""
    body = _salt() + draft.raw
    header = canonical(
        Header(
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
            sha256(body).hexdigest(),
            previous.hex(),
            clock,
        )
    )
    return Record(position, draft.id, draft.run_id, created_at, header, sha256(header).digest(), body)


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
        payload: dict[str, Any] = {}
    elif type(body) is not bytes or sha256(body).hexdigest() != header.digest:
        raise _corrupt(record.position, "its payload does not match its digest")
    else:
        payload = decode(body[SALT:])
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
        blobs=_blobs_in(body, payload),
        clock_us=header.clock,
    )


def event_of(draft: Draft, record: Record, clock: int | None = None) -> Event:
    """The event a draft became, without reading its bytes again."""
    return Event(
        position=record.position,
        id=draft.id,
        kind=draft.kind,
        actor=draft.actor,
        payload=draft.payload,
        run_id=draft.run_id,
        session_id=draft.session_id,
        turn=draft.turn,
        created_us=record.created_at,
        occurred_us=draft.occurred_at,
        schema_version=draft.schema_version,
        parents=draft.parents,
        labels=draft.labels,
        hash=record.hash.hex(),
        blobs=_blobs_in(draft.raw, draft.payload),
        clock_us=clock,
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


def encode_payload(payload: object) -> tuple[bytes, dict[str, Any], dict[str, bytes]]:
    """Canonical bytes of a payload, a copy that nobody else can change, and the blobs it carried.

    The quick way is to encode, decode and compare: whatever JSON cannot hold (NaN, a date, a number as a
    key) comes back different. Only then is the payload walked, to convert what can be converted and to
    name what cannot.
    """
    blobs: dict[str, bytes] = {}
    try:
        raw = canonical(payload)
        copy: Any = decode(raw) if raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH else None
        exact = type(copy) is dict and copy == payload
    except (TypeError, ValueError, RecursionError, OverflowError):
        exact = False  # the walk below finds the place and says what is wrong with it
    if not exact:
        if not isinstance(payload, Mapping):
            raise BadInput(
                f"payload is a {type(payload).__name__}: give an object (a dict), such as {{'text': …}}"
            )
        copy = _plain(payload, "payload", 1, blobs)
        raw = canonical(copy)
    if len(raw) > MAX_PAYLOAD:
        raise TooLarge(
            f"payload is {len(raw):,} bytes and the limit is {MAX_PAYLOAD:,}: "
            "put large content into a commonplace.Blob, or record a reference to it"
        )
    return raw, copy, blobs


def _plain(value: object, path: str, depth: int, blobs: dict[str, bytes]) -> Any:
    if depth > MAX_DEPTH:
        raise BadInput(f"payload is nested deeper than {MAX_DEPTH} levels at {path[:120]}: flatten it")
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return check_text(path, str(value))
    if isinstance(value, int):
        try:
            str(value)
        except ValueError:
            raise BadInput(f"{path} is an integer of too many digits: record it as a string") from None
        return int(value)
    if isinstance(value, float):
        if value - value != 0:
            raise BadInput(f"{path} is {value}, which JSON cannot hold: record null or a string instead")
        return float(value)
    if isinstance(value, Mapping):
        clean = {}
        for key, inner in value.items():
            if not isinstance(key, str):
                raise BadInput(f"{path} has the key {shown(key)}: keys are strings, write it as one")
            clean[check_text(f"a key of {path}", key)] = _plain(inner, f"{path}.{key[:40]}", depth + 1, blobs)
        return clean
    if isinstance(value, list | tuple):
        return [_plain(inner, f"{path}[{i}]", depth + 1, blobs) for i, inner in enumerate(value)]
    if isinstance(value, Blob):
        if not isinstance(value.data, bytes):
            raise BadInput(f"the blob at {path} holds a {type(value.data).__name__}: give it bytes")
        if len(value.data) > MAX_BLOB:
            raise TooLarge(f"the blob at {path} is {len(value.data):,} bytes; the limit is {MAX_BLOB:,}")
        digest = sha256(value.data).hexdigest()
        blobs[digest] = value.data
        return {BLOB_REF: digest, "size": len(value.data)}
    hint = " (use .isoformat())" if isinstance(value, datetime) else ""
    raise BadInput(
        f"{path} is a {type(value).__name__}, which JSON cannot hold: "
        f"give an object, array, string, number, boolean or null{hint}"
    )


def _blobs_in(raw: bytes | None, payload: dict[str, Any]) -> tuple[str, ...]:
    """The digests of every blob a payload refers to. Most refer to none, and their bytes show it."""
    return blobs_of(payload) if raw is not None and _BLOB_MARK in raw else ()


def blobs_of(payload: dict[str, Any]) -> tuple[str, ...]:
    """The digests of every blob a payload refers to."""
    return tuple(sorted(set(_refs(payload))))


def _refs(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get(BLOB_REF), str):
            yield value[BLOB_REF]
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from _refs(inner)


@lru_cache(1024)
def _is_kind(kind: str) -> bool:
    return len(kind) <= MAX_NAME and KIND.fullmatch(kind) is not None


def check_path(field: str, value: object) -> Path:
    """The path of a file or folder, whether it is there or not. Raises BadInput."""
    path = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(path, str) or "\0" in path:
        raise BadInput(f"{field} {shown(value)} is not a path: give the name of a file or folder")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise BadInput(f"{field} {shown(value)} is not a path: no file can have that name") from None
    return Path(path)


def check_whole(field: str, value: object, most: int = 10**9) -> int:
    """A whole number from 0. Raises BadInput."""
    if type(value) is not int or not 0 <= value <= most:
        raise BadInput(f"{field} {shown(value)} is not a whole number from 0 to {most:,}")
    return value


def check_seconds(field: str, value: object) -> float | None:
    """A number of seconds, or None: no end. Raises BadInput."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 10**9:
        raise BadInput(f"{field} {shown(value)} is not a number of seconds: give one, or None to wait on")
    return float(value)


def without_none(**fields: Any) -> dict[str, Any]:
    """The fields that somebody has given."""
    return {name: value for name, value in fields.items() if value is not None}


def check_each(field: str, values: str | Iterable[T]) -> Iterable[Any]:
    """Several values; a text is one of them. Raises BadInput."""
    if isinstance(values, str):
        return (values,)
    if isinstance(values, bytes | Mapping) or not isinstance(values, Iterable):
        raise BadInput(f"{field} {shown(values)} is not a list: give one, such as [...]")
    return values


def check_position(field: str, value: object) -> int:
    """A position of a ledger. Raises BadInput."""
    if type(value) is not int or not 0 <= value < 2**63:
        raise BadInput(f"{field}={shown(value)} is not a position: give a whole number from 0")
    return value


def check_call(field: str, value: T) -> T:
    """A function, or None. Raises BadInput."""
    if value is not None and not callable(value):
        raise BadInput(f"{field} {shown(value)} is not a function: give one, or leave it out")
    return value


def check_if_position(value: object) -> int | None:
    """A position that somebody has read, or None: any. Raises BadInput."""
    if value is not None and type(value) is not int:
        raise BadInput(
            f"if_position={shown(value)} is not a position: give the position of what you have read"
        )
    return value


def check_name(field: str, value: object) -> str:
    """A name (of an event, actor, run, book, tag, key, task …): 1 to 200 characters of any script, in NFC.

    Two names that look the same must be the same name, so whatever cannot be seen is refused: control and format
    characters (zero-width ones and joiners too, so an emoji of several parts is no name), other spaces than the
    usual one, spaces at the ends. Letters of other scripts that look alike stay other letters. Use what is
    returned: it may be another string than the one that was given.
    """
    short = isinstance(value, str) and 0 < len(value) <= MAX_NAME
    if short and type(value) is str and value.isascii() and value.isprintable() and value == value.strip():
        return value
    if not short:
        raise BadInput(f"{field} {shown(value)} is not a name: give 1 to {MAX_NAME} characters")
    name = unicodedata.normalize("NFC", check_text(field, value))
    unseen = next((char for char in name if char != " " and _unseen(char)), None)
    if unseen is not None:
        raise BadInput(
            f"{field} {shown(value)} is not a name: U+{ord(unseen):04X} in it cannot be seen. Leave it out"
        )
    if name != name.strip():
        raise BadInput(f"{field} {shown(value)} is not a name: leave out the space at its beginning or end")
    if len(name) > MAX_NAME:
        raise BadInput(f"{field} {shown(value)} is not a name: give 1 to {MAX_NAME} characters")
    return name


def is_name(value: object) -> bool:
    """Whether this is a name, in the form in which it is kept."""
    try:
        return check_name("it", value) == value
    except BadInput:
        return False


_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""What has no look of its own though it counts as a letter or a mark."""


@lru_cache(1024)
def _unseen(char: str) -> bool:
    return unicodedata.category(char)[0] in "CZ" or _UNSEEN.match(char) is not None


def check_text(path: str, value: object) -> str:
    """Any text, as long as it is text."""
    if not isinstance(value, str):
        raise BadInput(f"{path} {shown(value)} is not text: give a string")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise BadInput(
                f"{path} holds a lone surrogate, which is not text: "
                "decode the bytes it came from with errors='replace'"
            ) from None
    return value


def _parents(parents: Sequence[str]) -> tuple[str, ...]:
    if not isinstance(parents, list | tuple) or len(parents) > MAX_PARENTS:
        raise BadInput(f"parents is a list of at most {MAX_PARENTS} event ids, such as ['id-1']")
    return tuple(check_name("a parent", parent) for parent in parents)


def _labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The same labels stand on very many events, so those that were found good are known."""
    if not isinstance(labels, Mapping):
        raise BadInput(f"labels {shown(labels)} is not a mapping: give {{'sensitivity': 'private'}}")
    known = tuple(labels.items())
    try:
        if known in _good_labels:
            return dict(known)
    except TypeError:
        pass  # what cannot be hashed is no label, and is told below
    checked = _checked_labels(labels)
    if len(_good_labels) < MAX_NAME:
        _good_labels.add(tuple(checked.items()))
    return checked


_good_labels: set[tuple[tuple[str, str], ...]] = set()


def _checked_labels(labels: Mapping[str, str]) -> dict[str, str]:
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
    """A version 7 UUID: ids made later sort later, to a quarter of a microsecond. Whoever has seen others cannot guess
    it: 62 bits are secret random ones."""
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    tail = f"{int.from_bytes(_salt()[:8]) >> 2 | 0x8000_0000_0000_0000:016x}"
    head = f"{milliseconds:012x}"
    return f"{head[:8]}-{head[8:]}-7{rest * 4096 // 1_000_000:03x}-{tail[:4]}-{tail[4:]}"


def to_us(field: str, moment: object) -> int:
    """Microseconds since 1970 of a datetime that knows its timezone."""
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise BadInput(f"{field} {shown(moment)} is not a datetime with a timezone: add tzinfo=UTC")
    us = (moment - _EPOCH) // _MICROSECOND
    if not _EARLIEST <= us <= _LATEST:
        raise BadInput(f"{field} {moment.isoformat()} lies outside the years 1 to 9999 of UTC")
    return us


def from_us(us: int) -> datetime:
    return _EPOCH + us * _MICROSECOND


def iso(us: int) -> str:
    return from_us(us).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _corrupt(position: int, why: str) -> Corrupt:
    return Corrupt(
        f"event {position} is damaged: {why}. Run `commonplace book verify`, and restore from a backup or a copy",
        position,
    )
