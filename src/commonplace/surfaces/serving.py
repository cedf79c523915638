"""`commonplace serve`: the book behind an HTTP server."""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import secrets
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BadInput, EngineUnavailable, MissingExtra
from ..files.safe import new_file
from ..version import install_hint
from .shell import Output, Shell

if TYPE_CHECKING:
    from ..book import Book
    from .http.app import BookServer

LOOPBACK = ("127.0.0.1", "localhost", "::1")
GRACE = 30
"""How many seconds a server that ends waits for what is being written."""


def serve(
    shell: Shell,
    *,
    host: str = "127.0.0.1",
    port: int = 8787,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    behind_proxy: bool = False,
    allow_hosts: Sequence[str] = (),
    allow_origins: Sequence[str] = (),
    token_file: str | None = None,
    rate: float | None = None,
    tools: str | None = None,
) -> Output:
    """Serve the book over HTTP, and MCP at /mcp, until it is stopped. Clients need a token: `commonplace access
    create-token` makes one; an owner's token for as long as this server runs is shown on a terminal, or written to a
    file. Any address but this host's own needs TLS, or a proxy that has it.

    `host` is the address to listen on. `port` is the port; 0 takes a free one. `tls_cert` is the file with the
    certificate. `tls_key` is the file with its key. `behind_proxy` is whether a proxy in front of it has TLS.
    `allow_hosts` are names of this server that clients use. `allow_origins` are web pages that may call it, such as
    https://example.org. `token_file` is where an owner's token for this run of the server is written, readable by you
    alone. `rate` is how many requests a second one token may make. `tools` are groups of further tools at /mcp, with
    commas: memory, work, documents, learn, admin."""
    try:
        import uvicorn

        from .http.app import LOCAL
        from .http.limits import ServerLimits
    except ImportError as error:
        raise MissingExtra(f"serving a book needs more packages: {install_hint('server')}") from error
    if (tls_cert is None) != (tls_key is None):
        raise BadInput("--tls-cert and --tls-key go together: name both files")
    if host not in LOOPBACK and tls_cert is None and not behind_proxy:
        raise BadInput(
            f"{host} can be reached from other hosts: give --tls-cert and --tls-key, or say --behind-proxy if a proxy "
            "on this network has TLS"
        )
    book = shell.owned()
    token = secrets.token_urlsafe(32)
    limits = ServerLimits() if rate is None else ServerLimits(rate=rate)
    names = {*LOCAL, *allow_hosts, *((host,) if host not in ("0.0.0.0", "::") else ())}  # noqa: S104
    server = book_server(
        book, token, groups=tools.split(",") if tools else (), limits=limits, hosts=tuple(names),
        origins=tuple(allow_origins),
    )  # fmt: skip
    listening = listen(host, port)
    scheme = "http" if tls_cert is None else "https"
    at = listening.getsockname()
    url = f"{scheme}://{f'[{at[0]}]' if ':' in at[0] else at[0]}:{at[1]}"
    if token_file is not None:
        with new_file(Path(token_file), book._session.services.beside) as file:
            file.write(token.encode())
    config = uvicorn.Config(
        server, log_config=None, access_log=False, ssl_certfile=tls_cert, ssl_keyfile=tls_key, lifespan="on",
        timeout_graceful_shutdown=GRACE, timeout_keep_alive=75, server_header=False, proxy_headers=behind_proxy,
        limit_concurrency=None, h11_max_incomplete_event_size=65536,
    )  # fmt: skip

    def told() -> Iterator[str]:
        yield f"serving {book.name} at {url}"
        if token_file is not None:
            yield f"the owner's token until the server ends is in {token_file}"
        elif sys.stderr.isatty():
            yield f"the owner's token until the server ends: {token}"
        yield "other tokens: commonplace access create-token ACTOR"

    _raise_limit_of_files()
    _log_to_stderr()
    if shell.json:
        print(f'{{"url": "{url}", "pid": {os.getpid()}}}', flush=True)
    else:
        print("\n".join(told()), file=sys.stderr, flush=True)
    asyncio.run(_until_stopped(uvicorn, config, server, listening))
    return Output({"served": url} if not shell.json else None, ())


def book_server(book: Book, token: str, *, groups: Sequence[str] = (), **how: Any) -> BookServer:
    """A server of a book with MCP at /mcp, as the actor of each request's token. `token` is the owner's for as long as
    it runs. `groups` are groups of further tools."""
    from mcp.server.transport_security import TransportSecuritySettings

    from .http.app import BookServer
    from .mcp.server import build_server

    tools = build_server(
        lambda context: server.participant_of(context.request),  # type: ignore[arg-type]
        groups=groups,
        allows=lambda context: server.allowed_of(context.request),  # type: ignore[arg-type]
    )
    # Host and Origin are checked in front of it.
    security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    mounted = tools.streamable_http_app(streamable_http_path="/mcp", transport_security=security)
    lifespan = tools.session_manager.run
    server = BookServer(
        book, Admitting(book, token).admit, mounted={"/mcp": mounted}, lifespan=lifespan, **how
    )
    return server


async def _until_stopped(uvicorn: Any, config: Any, server: BookServer, listening: socket.socket) -> None:
    class Graceful(uvicorn.Server):  # type: ignore[misc]
        """Ends event streams before it waits for calls that are under way: they would never end by themselves."""

        async def shutdown(self, sockets: Any = None) -> None:
            server.closing.set()
            await super().shutdown(sockets)

    await Graceful(config).serve(sockets=[listening])


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens. Its protocol is named, because asyncio sets TCP_NODELAY only where it is: without that
    every answer waits 40 ms for an acknowledgement."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(2048)
    except (OSError, OverflowError) as error:
        listening.close()
        raise EngineUnavailable(f"cannot listen on {host}:{port}: {error}. Choose another --port") from error
    return listening


class Admitting:
    """Who has a token: the one of this run of the server, or one of the book's."""

    def __init__(self, book: Book, token: str) -> None:
        self._book, self._token = book, token.encode()

    def admit(self, text: str) -> Any:
        from .http.app import Admission
        from .network import Caller

        if hmac.compare_digest(text.encode(), self._token):
            return Admission(Caller(), "server", lambda _path: True)
        grant = self._book.access.tokens.authenticate(text)
        return Admission(Caller(grant.actor, grant.scope, tuple(grant.reads)), grant.id, grant.allows)


def _raise_limit_of_files() -> None:
    """Each connection is a file: as many as this user may have."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _log_to_stderr() -> None:
    """One line for each request, without content."""
    log = logging.getLogger("commonplace.http")
    if not log.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        log.propagate = False
