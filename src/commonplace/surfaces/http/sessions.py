"""The sessions of MCP, which clients of its older versions have: each opens for the token that began it, and for no
other, and a token may have a few of them.

The SDK keeps the sessions themselves, for all tokens together, and ends one that nobody uses for `IDLE` seconds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from time import monotonic

import msgspec
from starlette.requests import Request

from ...errors import NotFound, TooManyRequests

HEADER = "mcp-session-id"
IDLE = 1800.0


class _Message(msgspec.Struct):
    method: str = ""


class McpSessions:
    """Which token has begun each session, and when it was used last."""

    def __init__(self, most_each: int) -> None:
        self._most_each = most_each
        self._of: dict[str, OrderedDict[str, float]] = {}

    def check(self, request: Request, body: bytes, token: str) -> None:
        """Raises NotFound for a session that another token has begun, as for one that there is not, and
        TooManyRequests for one more than a token may have."""
        own, session = self._of.get(token, OrderedDict()), request.headers.get(HEADER)
        if session is not None:
            if session not in own:
                raise NotFound("there is no such session: begin a new one")
            own[session] = monotonic()
            own.move_to_end(session)
        elif len(own) >= self._most_each and _begins_session(body):
            while own and next(iter(own.values())) < monotonic() - IDLE:
                own.popitem(last=False)
            if len(own) >= self._most_each:
                raise TooManyRequests(
                    f"{self._most_each} sessions of one token are open: end one with DELETE, or wait until one that "
                    "is not used ends"
                )

    def note(self, request: Request, status: int, headers: Iterable[tuple[bytes, bytes]], token: str) -> None:
        """Note what a response says: a session begins, or there is none any more."""
        ended = request.headers.get(HEADER)
        if ended is not None and (status == 404 or (request.method == "DELETE" and status < 300)):
            own = self._of.get(token, OrderedDict())
            own.pop(ended, None)
            if not own:
                self._of.pop(token, None)
            return
        for name, value in headers:
            if name.decode("latin-1").lower() == HEADER:
                self._of.setdefault(token, OrderedDict())[value.decode("latin-1")] = monotonic()


def _begins_session(body: bytes) -> bool:
    try:
        return msgspec.json.decode(body, type=_Message).method == "initialize"
    except (msgspec.MsgspecError, RecursionError):
        return False  # the SDK says what is wrong with it
