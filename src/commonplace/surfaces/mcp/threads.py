"""Reading a book, which blocks, within a server that must not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Protocol, TypeVar

import anyio
import mcp_types as types
from anyio.abc import TaskGroup
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from ...errors import CommonplaceError

T = TypeVar("T")
Request = ServerRequestContext[Any, Any]


class RunOnThread(Protocol):
    """Runs what a request reads or writes on a thread, where it goes on if nobody waits for it any longer."""

    def __call__(self, ctx: Request, call: Callable[[], T], /) -> Awaitable[T]: ...


async def on_any_thread(_ctx: Request, call: Callable[[], T]) -> T:
    """For a server with one client."""
    return await anyio.to_thread.run_sync(call, abandon_on_cancel=True)


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
