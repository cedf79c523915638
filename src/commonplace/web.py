"""Asking a server that speaks JSON over HTTP: one that makes vectors, or a model."""

from __future__ import annotations

import json
from time import monotonic
from typing import Any
from urllib.request import HTTPRedirectHandler, Request, build_opener

CHUNK = 1 << 16


def post(url: str, body: object, *, key: str | None, timeout: float, largest: int) -> bytes:
    """What a server answers. Raises OSError: HTTPError for an answer that is an error, TimeoutError if the answer is
    not there in time; and ValueError for one of more bytes than `largest`."""
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    request = Request(url, json.dumps(body).encode(), headers)  # noqa: S310 - callers allow http(s) alone
    deadline = monotonic() + timeout
    with build_opener(_StayHere()).open(request, timeout=timeout) as answer:
        parts, size = list[bytes](), 0
        while part := answer.read1(CHUNK):
            parts.append(part)
            size += len(part)
            if size > largest:
                raise ValueError(f"the answer has more than {largest:,} bytes")
            if monotonic() > deadline:  # the timeout of a socket begins anew with every byte
                raise TimeoutError("timed out")
    return b"".join(parts)


class _StayHere(HTTPRedirectHandler):
    """An answer that sends one elsewhere is an error: key and texts are for the server that was named."""

    def redirect_request(self, *_: Any) -> None:
        return None
