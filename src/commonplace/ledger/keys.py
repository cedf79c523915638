"""Row keys: tuples of strings and integers as bytes that sort the way the tuples do.

Every part ends where it ends: no prefix of one key can be mistaken for another, whatever the strings
contain, so a scan below ("team", "a") never meets ("team", "ab").
"""

from __future__ import annotations

from functools import lru_cache

from ..errors import BadInput, TooLarge

Key = tuple[str | int, ...]

MAX_KEY = 2_500
"""What every engine can index, in bytes: three names of the greatest length and then some."""

_TEXT, _NUMBER = 0x02, 0x15
_OFFSET = 1 << 63


@lru_cache(4096)
def pack(key: Key) -> bytes:
    packed = bytearray()
    for part in key:
        if isinstance(part, str):
            packed.append(_TEXT)
            packed += part.encode().replace(b"\0", b"\0\xff")
            packed.append(0)
        else:
            packed.append(_NUMBER)
            try:
                packed += (part + _OFFSET).to_bytes(8)
            except OverflowError:
                raise BadInput(f"{part} is too large for a row key") from None
    if len(packed) > MAX_KEY:
        raise TooLarge(
            f"a row key of {len(packed):,} bytes is over the limit of {MAX_KEY:,}: use shorter names"
        )
    return bytes(packed)


def unpack(packed: bytes) -> Key:
    parts: list[str | int] = []
    at = 0
    while at < len(packed):
        if packed[at] == _NUMBER:
            parts.append(int.from_bytes(packed[at + 1 : at + 9]) - _OFFSET)
            at += 9
        else:
            end = packed.index(0, at + 1)
            while packed[end + 1 : end + 2] == b"\xff":
                end = packed.index(0, end + 1)
            parts.append(packed[at + 1 : end].replace(b"\0\xff", b"\0").decode())
            at = end + 1
    return tuple(parts)


def below(prefix: Key) -> tuple[bytes, bytes | None]:
    """The range of bytes that holds exactly the keys that begin with these parts."""
    packed = pack(prefix)
    return (packed, packed + b"\xff") if packed else (b"", None)
