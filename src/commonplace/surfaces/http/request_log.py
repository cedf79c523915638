"""The log of requests: a line of fields for each, `name=value`, and nothing of the content."""

from __future__ import annotations

import json
import logging
import re
from time import monotonic
from uuid import uuid4

from starlette.requests import Request

log = logging.getLogger("commonplace.http")


class LogLine:
    """The line of one request: who, what, the status and the time. `actor` and `token` are known once the request has
    been admitted; the token is named by its id."""

    def __init__(self, request: Request) -> None:
        given = request.headers.get("x-request-id", "")
        usable = 0 < len(given) <= 100 and given.isascii() and given.isprintable()
        self.id = given if usable else uuid4().hex
        self.actor, self.token = "-", "-"
        self._method, self._path, self._begun = request.method, request.scope["path"], monotonic()
        self._client = request.client.host if request.client else "-"

    @property
    def milliseconds(self) -> float:
        return (monotonic() - self._begun) * 1000

    def write(self, status: int) -> None:
        log.info(
            "request=%s client=%s method=%s path=%s status=%d ms=%d actor=%s token=%s",
            field(self.id), field(self._client), field(self._method), field(self._path), status, self.milliseconds,
            field(self.actor), self.token,
        )  # fmt: skip

    def write_end(self, events: int) -> None:
        """That a stream has ended."""
        log.info("request=%s stream=ended ms=%d events=%d", field(self.id), self.milliseconds, events)


def field(text: str) -> str:
    """A value of a log line, in quotes where it is not one word of ASCII."""
    cut = text[:200]
    return cut if re.fullmatch(r"[!#-<>-~]+", cut) else json.dumps(cut)
