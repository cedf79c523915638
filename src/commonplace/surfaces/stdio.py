"""The command that serves a book to models."""

from __future__ import annotations

import gc

from ..errors import BadInput, MissingExtra, shown
from ..participant import acting
from ..version import install_hint
from . import clients
from .exporting import export_as_configured
from .shell import Output, Shell


def mcp(
    shell: Shell,
    *,
    tools: str | None = None,
    compat: str | None = None,
    run: str | None = None,
    install: str | None = None,
    hooks: bool = False,
    print_only: bool = False,
    name: str = "commonplace",
) -> Output:
    """Serve the book to a model over stdio, as an MCP server. `--as` and `--scope` say who acts, and where. With
    `--install`, set up a client to start this server: its configuration is printed, and for claude-code,
    claude-desktop, cursor and codex also written, with a copy of what was there beside it.

    `tools` are groups of further tools, with commas: memory, work, documents, learn, admin. `compat` is server-memory,
    for the nine tools of the reference memory server in place of ours. `run` is the run that the actor is an agent of.
    `install` is the client to set up: claude-code, claude-desktop, cursor, codex, vscode, gemini or zed, which acts
    under that name unless `--as` says another. `hooks` is whether to set up its hooks, too: those of claude-code,
    codex, cursor and gemini. `print_only` is whether to print the configuration and write nothing. `name` is what the
    client calls the server: give another for each book."""
    if compat not in (None, "server-memory"):
        raise BadInput(f"there is no compatibility with {shown(compat)}: server-memory is the one there is")
    if install is not None:
        given = {"--tools": tools, "--compat": compat, "--run": run}
        options = [word for option, value in given.items() if value is not None for word in (option, value)]
        return clients.install(shell, install, options, print_only=print_only, hooks=hooks, name=name)
    if hooks or print_only:
        raise BadInput("--hooks and --print-only are for setting up a client: name it with --install")
    gc.disable()  # the SDK builds a thousand classes that stay: looking for rubbish among them is a tenth of the start
    try:
        import anyio
        from mcp.server.stdio import stdio_server

        from .mcp.host import OneClient
        from .mcp.server import build_server
    except ModuleNotFoundError as missing:
        raise MissingExtra(
            f"an MCP server needs {missing.name}, which is not installed: {install_hint('server')}"
        ) from None
    export_as_configured()
    book = shell.open(mirrored=True)
    me = acting(book, shell.actor, run, shell.scope)
    server = build_server(OneClient(me), groups=tools.split(",") if tools else (), compat=compat)

    gc.freeze()
    gc.enable()

    async def serve() -> None:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    anyio.run(serve)
    return Output({})
