"""Whose the sessions of MCP are: the id of a session opens it for the token that began it, and for no other."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from starlette.requests import Request

from ...errors import NotFound

HEADER = "mcp-session-id"


class McpSessions:
    """The tokens that began the latest sessions."""

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._tokens: OrderedDict[str, str] = OrderedDict()

    def note(self, headers: Iterable[tuple[bytes, bytes]], token: str) -> None:
        """Note the session that a response begins, if it does."""
        for name, value in headers:
            if name.decode("latin-1").lower() == HEADER:
                self._tokens.setdefault(value.decode("latin-1"), token)
        while len(self._tokens) > self._most:
            self._tokens.popitem(last=False)

    def check(self, request: Request, token: str) -> None:
        """Raises NotFound for a session that another token has begun, as for one that there is not."""
        session = request.headers.get(HEADER)
        if session is not None and self._tokens.get(session) != token:
            raise NotFound("there is no such session: begin a new one")
