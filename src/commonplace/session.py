"""Who asks: one open book, one actor, perhaps within a run. Every verb is a function of a session.

A session answers what every verb has to know: what the actor may read and write, whether memory is switched on for it,
and what it sees of the book. `Services` is what one open book has besides its ledger; both are made once, when a book
is opened, and passed down.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from .access.commands import (
    GUARD,
    NAMELESS,
    deny,
    outside,
    place_named,
    record_denial,
    refused_write,
    scope_of_run,
)
from .access.rights import OWNER, TIERS, Rights, rights_of
from .errors import NotEnabled, NotFound
from .ledger.checks import check_each
from .ledger.events import Event
from .ledger.scopes import NOWHERE, Bound, Path, lies_in, parsed, parsed_read, path_of, written
from .memory.requests import Remember, RememberMany
from .memory.settings import Settings, settings_of
from .memory.viewer import Viewer
from .recall.changed_facts import after_write
from .recall.search import IGNORED
from .state.policy import AgentMemory
from .state.requests import STARTED
from .state.rows import done_by, no_run, opened_run, steps_of
from .state.visibility import EventVisibility

if TYPE_CHECKING:
    from .ledger.ledger import At, Ledger
    from .ledger.reader import Snapshot
    from .memory.showing import Showing
    from .mirror.outside import OutsideFiles
    from .recall.book_index import BookIndex
    from .recall.changed_facts import FactWatch

WRITES = {
    "documents.log": "working", "documents.write": "working", "documents.gate": "working",
    "documents.write_many": "working", "documents.archive": "working", "documents.report": "working",
    "memory.remember": "long_term", "memory.remember_many": "long_term",
    "memory.preview": "long_term", "memory.prove": "long_term",
    "memory.resolve": "long_term", "memory.patch": "long_term",
    "memory.mark": "long_term", "memory.forget": "long_term", "memory.summarize": "long_term",
    "memory.core": "long_term", "memory.curate": "long_term",
}  # fmt: skip
"""The tier that a command writes to; other commands are about memory as a whole."""


class Services:
    """What one open book has besides its ledger, shared by all of its sessions."""

    def __init__(
        self,
        index: BookIndex,
        fact_watch: FactWatch,
        showing: Showing,
        *,
        beside: FilePath | None = None,
        repository: FilePath | None = None,
        count_tokens: Callable[[str], int] | None = None,
    ) -> None:
        self.index = index
        """Finds what the ledger says."""
        self.fact_watch = fact_watch
        """Tells actors when something changed that they relied on."""
        self.showing = showing
        """What was shown to whom, and is not noted yet."""
        self.outside: OutsideFiles
        """The markdown and the state files that were made from this book: erasing reaches them."""
        self.beside = beside
        """The file or folder that the book is, on this host: files that are made from it follow its mode."""
        self.repository = repository
        """The files that items are checked against."""
        self.count_tokens = count_tokens
        """Counts the tokens of a text; None: they are estimated."""


BOOK_WIDE = frozenset(
    {"access.grant", "access.tokens.create", "access.tokens.revoke", "memory.configure", "memory.keeper"}
)
"""Commands about the whole book: a session that is bound to a scope may not give them."""


class Session:
    """One actor of one open book. `run` is the run whose turn it takes, if it does; `refusal` says why it may only
    read, if it may, `looker` is the actor that looks through its eyes, and `bound` is the part of the book that it
    writes to and reads, if that is not all of it."""

    remote: None = None
    """A session of a book behind a server has the connection here: see `remote.RemoteSession`."""

    def __init__(
        self,
        ledger: Ledger,
        services: Services,
        actor: str = OWNER,
        run: str | None = None,
        *,
        refusal: str = "",
        looker: str | None = None,
        bound: Bound | None = None,
    ) -> None:
        self.ledger = ledger
        self.services = services
        self.actor = actor
        self.run = run
        self.refusal = refusal
        self.looker = looker
        self.bound = bound

    def acting_as(self, actor: str, run: str | None = None) -> Session:
        """The same book for another actor, or for this one within a run."""
        return self._but(actor=actor, run=run)

    def seen_by(self, looker: str, actor: str) -> Session:
        """The book through another actor's eyes, to read and not to write."""
        refusal = f"{looker!r} is looking through the eyes of {actor!r} and may not act as it"
        return self._but(actor=actor, run=None, refusal=refusal, looker=looker)

    def _but(self, **others: Any) -> Session:
        """The same session, but for these fields."""
        names = ("actor", "run", "refusal", "looker", "bound")
        return Session(self.ledger, self.services, **{name: getattr(self, name) for name in names} | others)

    def speaking_for(self, agent: str) -> Session:
        """The owner speaks for any agent; everybody else for itself."""
        return self.acting_as(agent) if self.is_owner else self

    @property
    def is_owner(self) -> bool:
        return self.actor == OWNER

    @property
    def is_unbound_owner(self) -> bool:
        """Whether nothing in the book is hidden from it."""
        return self.is_owner and self.bound is None

    # scopes

    @property
    def scope(self) -> Path:
        """The scope that it writes to; the root is the empty path."""
        return () if self.bound is None else self.bound.scope

    def in_scope(self, scope: str | None, reads: Iterable[str] = ()) -> Session:
        """The same session, writing to a scope at or below its own, and reading that and what it reads besides. Raises
        Denied for any other scope."""
        more = tuple(parsed_read(path) for path in check_each("reads", reads))
        if scope is None and not more:
            return self
        path = self.scope if scope is None else parsed(scope)
        if not lies_in(path, self.scope):
            deny(self, "act in", written(path), outside(self.actor, self.scope, path, "acts in"))
        for extra in more:
            self._check_reads(extra)
        return self._but(bound=Bound(path, (path, *self._also_reads, *more)))

    def narrowed(self, scope: str | None) -> Session:
        """The same session, reading one scope of those that it reads, and what lies below it. Raises Denied for any
        other scope."""
        if scope is None:
            return self
        path = parsed_read(scope)
        self._check_reads(path)
        return self._but(bound=Bound(self.scope, (path,)))

    def to_change(self, scope: str | None) -> Session:
        """The same as `narrowed`, to change what lies there. Raises Denied also for a scope that is only read."""
        session = self.narrowed(scope)
        if scope is not None:
            session.check_writes(parsed_read(scope))
        return session

    def within(self, key: str) -> Session:
        """The session for something that belongs to the scope with this key. What lies in a scope that is only read,
        or whose name was erased, can only be read."""
        with self.snapshot() as now:
            path = path_of(now, key)
        if path is None:
            return self._but(refusal=self.refusal or NAMELESS)
        if path == self.scope:
            return self
        if lies_in(path, self.scope):
            return self._but(bound=Bound(path, (path, *self._also_reads)))
        refusal = self.refusal or outside(self.actor, self.scope, path)
        return self._but(bound=Bound(path, (path,)), refusal=refusal)

    def for_run(self, run: str | None) -> Session:
        """The session for something that is recorded for a run: it belongs to the scope of the run. Raises Conflict for
        a run of a scope that this session does not write to."""
        if run is None or run == self.run:
            return self
        with self.snapshot() as now:
            scope = scope_of_run(now, self.actor, run)
            if scope == now.scope:
                return self
        return self.within(scope)

    def alone_in(self, key: str) -> Session:
        """The session for the scope with this key alone, without those below it."""
        with self.snapshot() as now:
            path = path_of(now, key)
        if path is None:
            nowhere = Bound((NOWHERE,), ((NOWHERE,),), below=False)
            return self._but(bound=nowhere, refusal=self.refusal or NAMELESS)
        return self._but(bound=Bound(path, (path,), below=False))

    @property
    def _also_reads(self) -> tuple[Path, ...]:
        """The scopes that it reads besides its own."""
        return () if self.bound is None else tuple(path for path in self.bound.reads if path != self.scope)

    def _check_reads(self, path: Path) -> None:
        allowed = ((),) if self.bound is None else self.bound.reads
        if not any(lies_in(path, above) for above in allowed):
            own = " and ".join(map(written, allowed))
            deny(
                self,
                "read",
                written(path),
                f"{self.actor!r} is bound to a scope and reads {own}, not {written(path)}",
            )

    # writing

    def submit(self, command: str, request: Any, act: str) -> Any:
        """Run a command for this actor. Raises Denied if it may only look, and NotEnabled if its run's files switch off
        the tier that the command writes to. Whether it may write there is decided with the command."""
        self.check_may_act(act)
        if command.startswith(("memory.", "documents.")):
            self.check_enabled("memory.write", WRITES.get(command, ""))
        kept = request.requests if isinstance(request, RememberMany) else (request,)
        if any(isinstance(each, Remember) and each.content["kind"] == "episode" for each in kept):
            self.check_enabled("memory.write", "episodic")
        if self.scope and command in BOOK_WIDE:
            why = f"it is about the whole book, and {self.actor!r} is bound to {written(self.scope)}"
            deny(self, act, written(self.scope), why)
        return self.write(command, request)

    def write(self, command: str, request: Any, size: int = 1) -> Any:
        """Run a command. What was shown and is not noted yet is noted first; afterwards, `after_write` follows up."""
        guard = None
        if (
            self.bound is None and not self.is_owner
        ):  # decided with the command: most actors write so, and often
            guard = (GUARD, self.actor, self.run)
        else:
            self.check_writes(self.scope)
        self.services.showing.note()
        answer = self.ledger.submit(command, request, size, self.bound, guard)
        if command.startswith(("memory.", "documents.")):
            after_write(self, command, answer)
        return answer

    def check_writes(self, path: Path) -> None:
        """Raises Denied, and records it, if it may not write to a scope."""
        if self.is_owner and path == self.scope:
            return
        with self.snapshot() as now:
            why = refused_write(now, self.actor, path)
        if why:
            deny(self, "write to", place_named(path), why)

    def check_may_act(self, act: str) -> None:
        """Raises Denied, and records it, if this session only reads."""
        if self.refusal:
            deny(self, "act as", act, self.refusal)

    # what it may read

    def snapshot(self, at: At = None) -> AbstractContextManager[Snapshot]:
        return self.ledger.snapshot(at, self.bound)

    def rights(self, at: At = None) -> Rights:
        """What this actor may do and see, as of `at`."""
        with self.snapshot(at) as snapshot:
            return rights_of(snapshot, self.actor, self.run)

    @cached_property
    def rules(self) -> AgentMemory:
        """What the files of its run's workflow say of this agent's memory; outside a run, all of it is on."""
        if self.run is None:
            return AgentMemory()
        with self.ledger.snapshot() as now:  # its run may lie above the scope that it is bound to
            opened, doer = opened_run(now, self.run), done_by(now, self.run, self.actor)
            path = path_of(now, opened.scope)
        if path is None or not lies_in(self.scope, path):
            raise NotFound(no_run(self.run))
        return opened.policy.doing(self.actor, doer).memory

    @property
    def tiers(self) -> Collection[str]:
        """The tiers that are switched on for this actor."""
        return [tier for tier in TIERS if tier not in self.rules.off]

    def check_enabled(self, act: str, tier: str = "") -> None:
        """Raises NotEnabled, and records it, if memory or this tier of it is switched off for this agent."""
        if not self.rules.enabled:
            record_denial(self, act, "memory is switched off")
            raise NotEnabled(
                f"memory is switched off for {self.actor!r}: its agent file or the workflow's says enabled: false"
            )
        if tier in self.rules.off:
            record_denial(self, act, tier)
            raise NotEnabled(
                f"the {tier} tier is switched off: the workflow's file says memory.tiers.{tier}.enabled: false"
            )

    def check_memory_is_on(self) -> None:
        """Raises NotEnabled if memory is left out of this turn, or switched off for this agent."""
        if self.ignores_memory():
            raise NotEnabled(IGNORED)
        self.check_enabled("memory.read")

    def check_reads(self, tier: str) -> None:
        """Raises Denied or NotEnabled, and records it, if this actor may not read a tier of memory."""
        self.check_memory_is_on()
        self.check_enabled("memory.read", tier)
        if self.rights().tier(tier) == "none":
            deny(self, "memory.read", tier, f"{self.actor!r} may not read the {tier} tier of memory")

    def reads(self, tier: str, at: At = None) -> bool:
        """Whether this actor may read a tier, now and as of `at`."""
        rights = [self.rights()] if at is None else [self.rights(), self.rights(at)]
        return tier in self.tiers and all(each.tier(tier) != "none" for each in rights)

    def ignores_memory(self) -> str:
        """Why memory is left out of the turn that is being taken, if it is: from the request to the turn's end."""
        if self.run is None:
            return ""
        with self.snapshot() as now:
            requested = now.get("recall.ignoring", self.run, self.actor)
            step = None if requested is None else steps_of(now, self.run, None).get(self.actor)
        running = step is not None and step["status"] == STARTED and step["position"] < requested
        return "asked to, earlier in this turn" if running else ""

    # how it sees the book

    @contextmanager
    def viewer(self, at: At = None) -> Iterator[Viewer]:
        """This actor as a reader of the book as of `at`."""
        with self.snapshot() as now:
            rights = rights_of(now, self.actor, self.run)
            if at is None:
                yield Viewer(((now, rights),))
            else:
                with self.snapshot(at) as then:
                    yield Viewer(((then, rights_of(then, self.actor, self.run)), (now, rights)))

    def settings(self, at: At = None) -> Settings:
        """How the book's memory is kept, as of `at`."""
        with self.snapshot(at) as snapshot:
            return settings_of(snapshot)

    @property
    def visibility(self) -> EventVisibility:
        return EventVisibility(self.actor, self.snapshot, self.run)

    def visible(self, events: Iterable[Event], upto: int | None = None) -> Iterator[Event]:
        """Those of these events that this actor may see, without secrets; the owner sees all of its scope, as they
        are."""
        if self.is_unbound_owner:
            return iter(events)
        return self.visibility.events(events, upto, self.ledger.events_by_id)

    def was_shown(self, ids: Sequence[str]) -> None:
        """Note what an agent was shown, so that it does not come back as new evidence. The next write records it; a
        book that may only be read has none."""
        if ids and not self.is_owner and not self.refusal and not self.ledger.store.facts.read_only:
            self.services.showing.add(self.actor, self.run, self.bound, ids)
