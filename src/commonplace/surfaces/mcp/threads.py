"""Reading a book, which blocks, within a server that must not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
import mcp_types as types
from anyio.abc import TaskGroup
from mcp.shared.exceptions import MCPError

from ...errors import CommonplaceError

T = TypeVar("T")


async def in_thread(function: Callable[[], T]) -> T:
    """Run what reads a book on a thread. An error of a book is an error of the protocol, with its message."""
    try:
        return await anyio.to_thread.run_sync(function, abandon_on_cancel=True)
    except CommonplaceError as error:
        code = types.INVALID_PARAMS if error.status in (400, 404) else types.INTERNAL_ERROR
        raise MCPError(code, str(error), error.as_dict()) from error


@asynccontextmanager
async def with_tasks(_server: Any) -> AsyncIterator[TaskGroup]:
    """The lifespan of a server: a group for what runs beside its requests, which ends with it."""
    async with anyio.create_task_group() as group:
        yield group
        group.cancel_scope.cancel()
