"""`commonplace serve`: the book behind an HTTP server."""

from __future__ import annotations

import hmac
import logging
import os
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import BadInput, MissingExtra
from ..files.safe import new_file
from ..version import install_hint
from .exporting import export_as_configured
from .shell import Output, Shell, dump

if TYPE_CHECKING:
    from ..book import Book
    from .http.app import BookServer

LOOPBACK = ("127.0.0.1", "localhost", "::1")
MCP = "/mcp"
OTHER_FILES = 128
"""How many files a server has open that are no connections, at most."""


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
    limits: Mapping[str, float] | None = None,
    tools: str | None = None,
) -> Output:
    """Serve the book over HTTP, and MCP at /mcp, until it is stopped. Clients need a token: `commonplace access
    create-token` makes one; an owner's token for as long as this server runs is shown on a terminal, or written to a
    file. Any address but this host's own needs TLS, or a proxy that has it.

    `host` is the address to listen on. `port` is the port; 0 takes a free one. `tls_cert` is the file with the
    certificate. `tls_key` is the file with its key. `behind_proxy` is whether a proxy in front of it has TLS.
    `allow_hosts` are names of this server that clients use. `allow_origins` are web pages that may call it, such as
    https://example.org. `token_file` is where an owner's token for this run of the server is written, readable by you
    alone. `limits` are limits of the server that are to be others, such as rate=100 for a hundred requests a second
    by one token. `tools` are groups of further tools at /mcp, with commas: memory, work, documents, learn, admin."""
    try:
        from .http.app import LOCAL
        from .http.connections import HttpServer, listen
        from .http.limits import server_limits
    except ImportError as error:
        raise MissingExtra(f"serving a book needs more packages: {install_hint('server')}") from error
    if (tls_cert is None) != (tls_key is None):
        raise BadInput("--tls-cert and --tls-key go together: name both files")
    if host not in LOOPBACK and tls_cert is None and not behind_proxy:
        raise BadInput(
            f"{host} can be reached from other hosts: give --tls-cert and --tls-key, or say --behind-proxy if a proxy "
            "on this network has TLS"
        )
    kept = server_limits(limits or {})
    export_as_configured()
    if shell.url.startswith(("http://", "https://")):
        raise BadInput(f"{shell.url} is served already: serve the book itself, on its own host")
    book = shell.owned()
    token = secrets.token_urlsafe(32)
    room = max(_most_files() - OTHER_FILES, 1)
    kept = msgspec.structs.replace(kept, connections=min(kept.connections, room))
    names = {*LOCAL, *allow_hosts, *((host,) if host not in ("0.0.0.0", "::") else ())}  # noqa: S104
    server = book_server(
        book, token, groups=tools.split(",") if tools else (), limits=kept, hosts=tuple(names),
        origins=tuple(allow_origins),
    )  # fmt: skip
    try:
        running = HttpServer(
            server,
            behind_proxy=behind_proxy,
            started=lambda: tell(),
            ssl_certfile=tls_cert,
            ssl_keyfile=tls_key,
        )
    except OSError as error:  # ssl's errors are among them
        raise BadInput(f"--tls-cert {tls_cert} and --tls-key {tls_key} cannot be used: {error}") from error
    listening = listen(host, port)
    scheme = "http" if tls_cert is None else "https"
    at = listening.getsockname()
    url = f"{scheme}://{f'[{at[0]}]' if ':' in at[0] else at[0]}:{at[1]}"
    if token_file is not None:
        with new_file(Path(token_file), book._session.services.beside) as file:
            file.write(token.encode())

    def told() -> Iterator[str]:
        yield f"serving {book.name} at {url}"
        if token_file is not None:
            yield f"the owner's token until the server ends is in {token_file}"
        elif sys.stderr.isatty():
            yield f"the owner's token until the server ends: {token}"
        yield "other tokens: commonplace access create-token ACTOR"

    def tell() -> None:
        if shell.json:
            print(dump({"url": url, "pid": os.getpid()}), flush=True)
        else:
            print("\n".join(told()), file=sys.stderr, flush=True)

    _log_to_stderr()
    running.run(sockets=[listening])
    return Output({"served": url} if not shell.json else None, ())


def book_server(book: Book, token: str, *, groups: Sequence[str] = (), **how: Any) -> BookServer:
    """A server of a book with MCP at /mcp, as the actor of each request's token. `token` is the owner's for as long as
    it runs. `groups` are groups of further tools."""
    from mcp.server.transport_security import TransportSecuritySettings
    from sse_starlette.sse import AppStatus

    from .http.app import BookServer
    from .mcp.server import build_server

    server = BookServer(book, Admitting(book, token).admit, **how)
    tools = build_server(server.mcp, groups=groups)
    # Host, Origin and the size of a body are checked in front of it, and streams that only listen are ended there: what
    # answers a call goes on until it has.
    AppStatus.disable_automatic_graceful_drain()  # type: ignore[no-untyped-call]
    security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    app = tools.streamable_http_app(
        streamable_http_path=MCP, transport_security=security, max_request_body_size=server.limits.body
    )
    server.mount(MCP, app, tools.session_manager.run)
    return server


class Admitting:
    """Who has a token: the one of this run of the server, or one of the book's."""

    def __init__(self, book: Book, token: str) -> None:
        self._book, self._token = book, token.encode()

    def admit(self, text: str) -> Any:
        from .http.admission import Admission
        from .network import Caller

        if hmac.compare_digest(text.encode(), self._token):
            return Admission(Caller(), "server", lambda _path: True)
        grant = self._book.access.tokens.authenticate(text)
        return Admission(Caller(grant.actor, grant.scope, tuple(grant.reads)), grant.id, grant.allows)


def _most_files() -> int:
    """Each connection is a file: as many as this user may have. Answers how many."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def _log_to_stderr() -> None:
    """One line for each request, without content, and what uvicorn warns of."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    for name, level in (("commonplace.http", logging.INFO), ("uvicorn.error", logging.ERROR)):
        log = logging.getLogger(name)
        if not log.handlers:
            log.addHandler(handler)
            log.setLevel(level)
            log.propagate = False
