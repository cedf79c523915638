"""Where an MCP server runs: who makes a request, what its token allows, and which thread answers it, because reading a
book blocks and the server must not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import anyio
import mcp_types as types
from anyio.abc import TaskGroup
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from ...errors import CommonplaceError, Denied

if TYPE_CHECKING:
    from ...participant import Participant

T = TypeVar("T")
Request = ServerRequestContext[Any, Any]


class Host(Protocol):
    """The program that an MCP server is a part of."""

    remote: bool
    """Whether its clients are elsewhere, so that they may reach no file of this host."""

    def participant(self, ctx: Request) -> Participant:
        """Who makes a request. Raises Unauthorized and Denied."""

    def client(self, ctx: Request) -> str:
        """A name for the client that makes a request, by which it is told apart from others."""

    def allows(self, ctx: Request) -> Callable[[str], bool]:
        """Which verbs the token of a request allows. Raises Unauthorized."""

    def run(self, ctx: Request, call: Callable[[], T]) -> Awaitable[T]:
        """Run what a request asks for on a thread, where it goes on if nobody waits for it any longer."""

    def go_on(self, done: int, total: int) -> None:
        """Called between two parts of a long call. Raises BookClosed when the program has to end."""


class OneClient:
    """The host of a server with one client, who acts as one participant."""

    remote = False

    def __init__(self, participant: Participant) -> None:
        self._participant = participant

    def participant(self, _ctx: Request) -> Participant:
        return self._participant

    def client(self, _ctx: Request) -> str:
        return ""

    def allows(self, _ctx: Request) -> Callable[[str], bool]:
        return lambda _verb: True

    async def run(self, _ctx: Request, call: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(call, abandon_on_cancel=True)

    def go_on(self, _done: int, _total: int) -> None:
        """Never stops a call: the client ends the program."""


def permitted(host: Host, ctx: Request, verbs: str) -> Participant:
    """Who makes a request. Raises Denied if the token does not allow each of these verbs."""
    allows = host.allows(ctx)
    for verb in verbs.split():
        if not allows(verb):
            raise Denied(
                f"the token does not allow {verb}: make one that does with `commonplace access create-token`"
            )
    return host.participant(ctx)


@contextmanager
def protocol_errors() -> Iterator[None]:
    """An error of a book is an error of the protocol, with its message."""
    try:
        yield
    except CommonplaceError as error:
        code = types.INVALID_PARAMS if error.status in (400, 404) else types.INTERNAL_ERROR
        raise MCPError(code, str(error), error.as_dict()) from error


@asynccontextmanager
async def with_tasks(_server: Any) -> AsyncIterator[TaskGroup]:
    """The lifespan of a server: a group for what runs beside its requests, which ends with it."""
    async with anyio.create_task_group() as group:
        yield group
        group.cancel_scope.cancel()
