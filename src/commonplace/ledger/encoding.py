"""Payloads as canonical bytes: what JSON can hold, with its blobs taken out and put beside it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any, TypeVar, overload

import msgspec

from ..errors import BadInput, TooLarge, shown
from .checks import check_text

MAX_DEPTH = 128
MAX_PAYLOAD = 8 * 1024 * 1024
MAX_BLOB = 64 * 1024 * 1024
BLOB_REF = "$blob"

canonical = msgspec.json.Encoder(order="sorted").encode
"""Canonical bytes of JSON-able data: keys sorted, no spaces, UTF-8, shortest numbers."""

decode = msgspec.json.decode

T = TypeVar("T")
_known: set[Any] = set()
_learning = threading.Lock()


@overload
def convert(value: object, type: type[T], *, strict: bool = True) -> T: ...
@overload
def convert(value: object, type: Any, *, strict: bool = True) -> Any: ...
def convert(value: object, type: Any, *, strict: bool = True) -> Any:
    """Plain data as a value of a type, checked. Raises ValidationError. Safe from any thread: msgspec learns a type
    when it first meets it, and a second thread that meets the type meanwhile would use what is half learned, which
    ends the process. So one thread at a time learns."""
    if type not in _known:
        with _learning:
            msgspec.json.Decoder(type)
            _known.add(type)
    return msgspec.convert(value, type, strict=strict)


class Blob(msgspec.Struct, frozen=True):
    """Bytes to be kept with an event but outside its payload, addressed by their content.

    Put one anywhere in a payload: it is stored in the same commit and the payload keeps
    `{"$blob": sha256, "size": n}`, with which `book.blob()` gives the bytes back. It is erased with the last
    event that refers to it.
    """

    data: bytes


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
