"""A book behind a server, as the actor of a token."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self, cast

import msgspec

from ..access.rights import check_actor
from ..admin import Admin
from ..engines.contract import Facts
from ..errors import BadInput, HiddenText, NotEnabled
from ..ledger.checks import check_each
from ..ledger.encoding import convert
from ..participant import Actor, Owner
from ..session import Session
from ..verbs import namespace
from .connection import ServerCall, ServerConnection
from .session import RemoteSession

if TYPE_CHECKING:
    from ..aio import AsyncHandle
    from ..book import Book


class RemoteAdmin(Admin):
    """The upkeep of a book behind a server: no file of it is here."""

    has_files_here = False

    @property
    def facts(self) -> Facts:
        """What the engine under this book promises, as the server says."""
        return self.status().facts


class AboutBook(msgspec.Struct, frozen=True):
    """What a server says of its book, and of the caller in it."""

    id: str
    name: str
    actor: str


class RemoteBook(Owner):
    """A book behind a server, as the actor of the token. An owner's token may name other actors. Safe to share between
    threads; open it anew in a child process."""

    def __init__(self, connection: ServerConnection) -> None:
        about: AboutBook = connection.ask(
            ServerCall("GET", "/v1/book", read=partial(convert, type=AboutBook))
        )
        session = RemoteSession(connection, about.actor)
        super().__init__(cast(Session, session))
        self.id, self.name, self._connection = about.id, about.name, connection
        connection.book = self.id
        self.actor = about.actor
        """Who acts: the actor of the token."""
        self.ledger = session.ledger
        self._aio: AsyncHandle | None = None

    admin = namespace(RemoteAdmin, lambda book: RemoteAdmin(book._session, cast(Any, None)))

    @property
    def mirror(self) -> NoReturn:
        raise NotEnabled("the markdown of a book lies on the host that serves it: sync it there")

    def as_actor(
        self, name: str, role: str | None = None, *, scope: str | None = None, reads: Sequence[str] = ()
    ) -> Actor:
        """The verbs of this book under one actor's rights; another actor than the token's needs an owner's token."""
        name = check_actor(name)
        if scope is None and check_each("reads", reads):
            raise BadInput("reads goes with a scope: without one, an actor reads all that its rights allow")
        session = cast(RemoteSession, self._session).acting_as(name).in_scope(scope, reads)
        if role is not None:
            self.access.grant(name, role=role)
        return Actor(cast(Session, session))

    @property
    def head(self) -> int:
        """The last position; 0 when nothing has been recorded."""
        return self.ledger.head

    @property
    def aio(self) -> AsyncHandle:
        """The same verbs for asyncio."""
        if self._aio is None:
            from ..aio import AsyncHandle, Bridge

            self._aio = AsyncHandle(Bridge(cast("Book", self)), self)
        return self._aio

    def close(self) -> None:
        """Close the connections: watchers end, later calls raise BookClosed, and what is under way gets its answer.
        Safe to call twice."""
        self._connection.close()
        if self._aio is not None:
            self._aio._bridge.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if "_connection" not in vars(self):
            return "<RemoteBook (not open)>"
        return f"<RemoteBook {self._connection.url} as {self.actor!r}{' (closed)' if self._connection.closed else ''}>"


def connect(
    url: str,
    token: str | None,
    timeout: float,
    *,
    insecure: bool = False,
    others: Mapping[str, Any] | None = None,
) -> RemoteBook:
    """The book that is served at a URL, with the token that was given or that the environment has. `others` are options
    of `open` that are decided where the book is served. Raises EngineUnavailable and Unauthorized."""
    for name, value in (others or {}).items():
        if value:
            raise BadInput(
                f"{name} is said where the book is opened, and this one is behind a server: leave it out"
            )
    insecure = insecure or os.environ.get("COMMONPLACE_INSECURE") == "1"
    connection = ServerConnection(url, token or token_of_environment(), timeout, insecure=insecure)
    try:
        return RemoteBook(connection)
    except BaseException:
        connection.close()
        raise


def token_of_environment() -> str | None:
    """The token in the variable COMMONPLACE_TOKEN, or in the file that COMMONPLACE_TOKEN_FILE names. Raises BadInput
    for a file that others than its owner may read."""
    if token := os.environ.get("COMMONPLACE_TOKEN"):
        return HiddenText(token)
    named = os.environ.get("COMMONPLACE_TOKEN_FILE")
    if not named:
        return None
    try:
        with Path(named).open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode) or mode & 0o077:
                raise BadInput(f"others may read the token in {named}: chmod 600 {named}")
            text = file.read(10_000)
    except OSError as error:
        raise BadInput(
            f"COMMONPLACE_TOKEN_FILE names {named}, which cannot be read ({error.strerror})"
        ) from None
    return HiddenText(text.decode("utf-8", "replace").strip())
