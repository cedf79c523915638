"""The command that serves a book to models."""

from __future__ import annotations

from ..errors import BadInput, MissingExtra, shown
from ..participant import acting
from ..version import install_hint
from .shell import Output, Shell


def mcp(
    shell: Shell, *, tools: str | None = None, compat: str | None = None, run: str | None = None
) -> Output:
    """Serve the book to a model over stdio, as an MCP server. `--as` and `--scope` say who acts, and where.

    `tools` are groups of further tools, with commas: memory, work, documents, learn, admin. `compat` is server-memory,
    for the nine tools of the reference memory server in place of ours. `run` is the run that the actor is an agent of.
    """
    try:
        import anyio
        from mcp.server.stdio import stdio_server

        from .mcp.server import build_server
    except ModuleNotFoundError as missing:
        raise MissingExtra(
            f"an MCP server needs {missing.name}, which is not installed: {install_hint('server')}"
        ) from None
    if compat not in (None, "server-memory"):
        raise BadInput(f"there is no compatibility with {shown(compat)}: server-memory is the one there is")
    book = shell.open(mirrored=True)
    me = acting(book, shell.actor, run, shell.scope)
    server = build_server(lambda _context: me, groups=tools.split(",") if tools else (), compat=compat)

    async def serve() -> None:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    anyio.run(serve)
    return Output({})
