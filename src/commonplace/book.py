"""A book: one ledger with its views, and the verbs that people use."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

from .access.commands import ACCESS
from .access.rights import check_actor
from .access.tokens import TOKENS
from .admin import Admin
from .documents.writing import DOCUMENTS
from .engines import locate
from .engines.contract import TIMEOUT, Engine
from .errors import (
    BadInput,
    CommonplaceError,
    Conflict,
    HiddenText,
    shown,
)
from .files.trust import is_ours, trust_book
from .index.names import best_embedder
from .learn.compaction_capability import COMPACTION
from .learn.delegations import DELEGATIONS
from .learn.lifecycle_capability import LIFECYCLE
from .learn.reflection_capability import REFLECTION
from .ledger.checks import check_each
from .ledger.clocks import clock_trouble, now_us
from .ledger.events import A_DAY
from .ledger.ledger import LEDGER, Ledger
from .ledger.scopes import SCOPES
from .ledger.views import Capability, Registry
from .memory.capability import MEMORY
from .memory.showing import Showing
from .mirror.outside import OutsideFiles
from .mirror.verbs import Mirrors
from .participant import Actor, Owner
from .recall.book_index import BookIndex, place_for
from .recall.capability import RECALL
from .recall.changed_facts import FactWatch
from .recall.verification import repository_around
from .session import Services, Session
from .state.capability import STATE
from .state.redaction import as_logged, runs_affected
from .telemetry import made_store
from .threads.capability import THREADS
from .verbs import namespace
from .work.capability import WORK

if TYPE_CHECKING:
    from .aio import AsyncHandle

BUILT_IN = (
    LEDGER, SCOPES, ACCESS, STATE, DOCUMENTS, MEMORY, RECALL, WORK, THREADS, DELEGATIONS, COMPACTION, REFLECTION,
    LIFECYCLE, TOKENS,
)  # fmt: skip
"""The capabilities that every book has."""

log = logging.getLogger("commonplace")


def open(
    url: str | Path,
    *,
    name: str | None = None,
    create: bool = True,
    durability: str = "full",
    capabilities: Sequence[Capability] = (),
    mirror: str | Path | bool | None = None,
    trust: bool = False,
    repository: str | Path | None = None,
    count_tokens: Callable[[str], int] | None = None,
    timeout: float = TIMEOUT,
    token: str | None = None,
    insecure: bool = False,
) -> Book:
    """Open a book, and create it if it is not there (`create=False`: raise BookNotFound instead).

    `url` is a path (SQLite), `memory:`, `file:FOLDER`, `postgresql://…`, `redis://…` or `unix://SOCKET`; or `http://…`,
    a book behind `commonplace serve`, which `token` (or the variable COMMONPLACE_TOKEN, or the file that
    COMMONPLACE_TOKEN_FILE names) gives access to; over http:// a token goes to this host alone, unless `insecure` says
    that the network is trusted. A database server holds many books, told apart by `name` or `?book=NAME`.
    `durability="process"` is SQLite's faster mode, which may lose the last commits in a power cut. `capabilities` add
    kinds, commands and views of your own; a book that holds them opens only with them. `mirror` is the folder that
    shows the book's memory as markdown, True for the one that the book lies in; if there is one already, it is found.
    Hand edits in it are taken in now, and it is written when the book is closed. A book or folder that this user did
    not make is not synced, and an embedder that it names is not used if it sends texts elsewhere or loads a model by
    name, until they say `trust=True` once: with `mirror` given NotTrusted is raised, else a warning says so.
    `repository` is the folder of files that what is remembered is checked against; unless it is named, the git
    repository that a local book lies in. `count_tokens` counts the tokens of a text for budgets, in place of one for
    every four characters. `timeout` is how many seconds a call waits for the book's lock, or for a server's answer,
    before it raises Busy or EngineUnavailable, or OutcomeUnknown where a write may have landed.
    """
    if not isinstance(timeout, int | float) or not 0 < timeout < 1e6:
        raise BadInput(f"timeout {shown(timeout)} is not a number of seconds above 0")
    if isinstance(token, str):
        token = HiddenText(token)  # in a traceback with the values of variables, too
    if str(url).startswith(("http://", "https://")):
        from .remote import connect

        others = {
            "name": name, "capabilities": capabilities, "mirror": mirror, "trust": trust, "repository": repository,
            "count_tokens": count_tokens, "durability": "" if durability == "full" else durability,
        }  # fmt: skip
        return cast(Book, connect(str(url), token, timeout, insecure=insecure, others=others))
    if token is not None or insecure:
        raise BadInput("token and insecure go with the URL of a server: http://… or https://…")
    registry, begun_ns = Registry((*BUILT_IN, *capabilities)), time.time_ns()
    engine, book = locate(url, name, durability)
    engine.timeout = timeout
    store = engine.open(book, create)
    try:
        store.timeout = timeout  # before anybody waits for it
        ledger = Ledger(store, registry, book, best_embedder)
        if name is not None and ledger.meta.name != name:
            raise Conflict(f"{url} holds the book {ledger.meta.name!r}, not {name!r}: leave the name out")
        if trust or ledger.created:
            trust_book(ledger, engine.beside)
        session = owner_session(engine, ledger, repository_around(engine.beside, repository), count_tokens)
    except BaseException:
        store.close()
        engine.close()
        raise
    made_store(session, begun_ns)
    opened = Book(engine, session)
    try:
        opened.mirror.use(mirror, trust=trust)
    except BaseException:
        opened.close()
        raise
    return opened


def owner_session(
    engine: Engine,
    ledger: Ledger,
    repository: Path | None = None,
    count_tokens: Callable[[str], int] | None = None,
) -> Session:
    """The session of a book's owner, with all that the sessions of this book share."""
    facts, beside = ledger.store.facts, engine.beside
    place = place_for(None if facts.read_only else beside, facts.engine, ledger.meta.book)
    services = Services(
        BookIndex(
            ledger,
            place,
            lambda: as_logged(ledger.snapshot),
            runs_affected,
            lambda: is_ours(ledger, beside),
            in_cache=beside is None,
        ),
        FactWatch(ledger),
        Showing(ledger),
        beside=beside,
        repository=repository,
        count_tokens=count_tokens,
    )
    session = Session(ledger, services)
    services.outside = OutsideFiles(session, place, remembered=facts.engine != "memory")
    ledger.after_erasure = services.outside.erased
    return session


class Book(Owner):
    """One ledger with its views, for its owner. Safe to share between threads; open it anew in a child process.

    Every write returns when it is durable, as far as `admin.facts` promise. Every read takes `at=`.
    """

    def __init__(self, engine: Engine, session: Session) -> None:
        super().__init__(session)
        self._engine = engine
        self.ledger = session.ledger
        """The layer below: snapshots of views, positions, and the commands of your own capabilities."""
        self.name = session.ledger.meta.name
        self.id = session.ledger.meta.book
        """A name for this book that no other book has."""
        self._aio: AsyncHandle | None = None
        self._say_what_it_cannot_promise()

    def as_actor(
        self,
        name: str,
        role: str | None = None,
        *,
        scope: str | None = None,
        reads: Sequence[str] = (),
    ) -> Actor:
        """The verbs of this book under one actor's rights. A new `role` is recorded. With a `scope` such as
        "users/alice", it writes to that scope and reads it, what lies below it, and the scopes in `reads`."""
        name = check_actor(name)
        if scope is None and check_each("reads", reads):
            raise BadInput("reads goes with a scope: without one, an actor reads all that its rights allow")
        session = self._session.acting_as(name).in_scope(scope, reads)
        if role is not None:
            self.access.grant(name, role=role)
        return Actor(session)

    # the book itself

    mirror = namespace(Mirrors)
    admin = namespace(Admin, lambda book: Admin(book._session, book.mirror))

    @property
    def head(self) -> int:
        """The last position; 0 when nothing has been recorded."""
        return self.ledger.head

    # opening and closing

    @property
    def aio(self) -> AsyncHandle:
        """The same verbs for asyncio."""
        if self._aio is None:
            from .aio import AsyncHandle, Bridge

            self._aio = AsyncHandle(Bridge(self), self)
        return self._aio

    def close(self) -> None:
        """Close the book: watchers end, later calls raise BookClosed. Safe to call twice."""
        if self.ledger.closed:
            return
        try:
            self.mirror.sync_own()
        finally:
            try:
                self._session.services.showing.close()
            finally:
                self._close()

    def _close(self) -> None:
        self.ledger.closed = True
        self._session.services.index.close()
        self.ledger.store.close()
        self._engine.close()
        if self._aio is not None:
            self._aio._bridge.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        try:
            self.close()
        except (CommonplaceError, OSError) as trouble:
            if error is None:
                raise
            error.add_note(f"and the book's markdown could not be written: {trouble}")

    def __repr__(self) -> str:
        return f"<Book on {self.admin.facts.engine}{' (closed)' if self.ledger.closed else ''}>"

    def _say_what_it_cannot_promise(self) -> None:
        facts = self.ledger.store.facts
        if facts.durable != "proven":
            level = logging.INFO if facts.engine == "memory" else logging.WARNING
            log.log(level, "this %s book is not proven durable: %s", facts.engine, facts.durable_why)
        reached = self.ledger.store.acknowledged()  # before the head: others may write meanwhile
        with self.ledger.store.read() as reads:
            head = reads.head
            ahead = head.created_at - now_us() > A_DAY
            trouble = clock_trouble(reads, self.ledger.meta_of(head))[0] if ahead else None
        if reached > head.position:
            log.warning(
                "this book had reached position %d and now ends at %d: later events were lost. "
                "Restore from a copy, or go on if you put an earlier backup in place on purpose",
                reached,
                head.position,
            )
        if trouble:
            log.warning("%s", trouble)
