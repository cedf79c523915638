"""A book: one ledger with its views, and the verbs that people use."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import datetime
from pathlib import Path
from time import monotonic, time_ns
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec
from msgspec.structs import replace

from .access.commands import ACCESS, Denial, Grant, Relabel
from .access.redact import Redactor
from .access.rights import OWNER, check_actor, subject_of
from .actor import Actor
from .embedders import best_embedder, named_embedder
from .engines import locate
from .engines.contract import TIMEOUT, Engine, Facts, FilePurged, PurgeReport
from .erase import EraseRequest, Erasure
from .errors import (
    BadInput,
    BookClosed,
    Busy,
    CommonplaceError,
    Conflict,
    EngineUnavailable,
    NotFound,
    NotTrusted,
    OutcomeUnknown,
    StorageFailed,
    TooLarge,
    UnsafePath,
    shown,
)
from .events import (
    A_DAY,
    MAX_BATCH,
    MAX_BATCH_BYTES,
    Draft,
    Event,
    check_call,
    check_name,
    check_path,
    check_seconds,
    check_text,
    draft,
    draft_from,
    encode_payload,
)
from .events import new_id as new_event_id
from .folders import Folder
from .ledger import LEDGER, Ledger, Progress, Rebuilt, Verification
from .memory.capability import MEMORY
from .memory.showing import Showing
from .private import access_of, create_private
from .reader import Snapshot
from .recall.capability import RECALL
from .recall.checking import repository_around
from .recall.indexing import Indexing, place_for
from .recall.premises import PremiseWatch
from .state.capability import STATE
from .state.cells import About, about, no_run, run_at, sums
from .state.diff import Difference, differences
from .state.diff import redacted as redacted_differences
from .state.opening import takes_part
from .state.policy import Policy, Start
from .state.redaction import as_logged, redactor_of, runs_affected, with_those_below
from .state.requests import OPENED, Merged, Open
from .state.run import Run
from .views import Capability, Registry
from .work.capability import WORK
from .work.opening import Prompting, Working

if TYPE_CHECKING:
    from .access.audit import Entry
    from .aio import AsyncBook
    from .mirror import Report
    from .mirroring import BookMirror
    from .recall.migrating import Migrated
    from .scan import Trace
    from .transfer import Imported
    from .trust import StateFile
    from .workflow.agents import AgentFunction, Ask
    from .workflow.model import Workflow
    from .workflow.runner import Outcome, Tell

BUILT_IN = (LEDGER, ACCESS, STATE, MEMORY, RECALL, WORK)
"""The capabilities that every book has."""

log = logging.getLogger("commonplace")

T = TypeVar("T")

SHORTEST = 4
"""Bytes of a text that can be looked for in raw files."""

GUARDS = ("rights", "memory.settings")
"""The small views that say who may do what."""

DIGEST = re.compile(r"[0-9a-f]{64}")

At = int | datetime | None
"""As of when: a position, a time with a timezone, or None for now."""


class Status(msgspec.Struct, frozen=True):
    """Where a book stands. `views` maps each view to the version of the fold that built it; `acknowledged` is
    the last position that this host remembers as durable, 0 where nobody remembers. `damage` names a row of rights
    or settings that is not as it was written; `verify` looks at all others, too. `clock` says from which event on the
    ledger is more than a day ahead of this clock, `slow_clock` which event came from a clock that was behind."""

    name: str
    id: str
    head: int
    hash: str
    horizon: int
    views: dict[str, int]
    acknowledged: int
    facts: Facts
    damage: str | None = None
    clock: str | None = None
    slow_clock: str | None = None


class RunInfo(msgspec.Struct, frozen=True):
    """A run as the ledger knows it: its id, the position of its first event, and if it has a state, how it
    stands and what it belongs to."""

    id: str
    first: int
    status: str | None = None
    workflow: str | None = None
    parent: str | None = None
    forked_from: str | None = None
    by: str | None = None


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
) -> Book:
    """Open a book, and create it if it is not there (`create=False`: raise BookNotFound instead).

    `url` is a path (SQLite), `memory:`, `file:FOLDER`, `postgresql://…`, `redis://…` or `unix://SOCKET`. A
    server holds many books, told apart by `name` or `?book=NAME`. `durability="process"` is SQLite's faster
    mode, which may lose the last commits in a power cut. `capabilities` add kinds, commands and views of
    your own; a book that holds them opens only with them. `mirror` is the folder that shows the book's memory as
    markdown, True for the one that the book lies in; if there is one already, it is found. Hand edits in it are taken
    in now, and it is written when the book is closed. A book or folder that this user did not make is not synced, and
    an embedder that it names is not used if it sends texts elsewhere or loads a model by name, until they say
    `trust=True` once: with `mirror` given NotTrusted is raised, else a warning says so. `repository` is
    the folder of files that what is remembered is checked against; unless it is named, the git repository that a local
    book lies in. `count_tokens` counts the tokens of a text for budgets, in place of one for every four characters.
    `timeout` is how many seconds a call waits for the book's lock, or for a server's answer, before it raises Busy or
    EngineUnavailable, or OutcomeUnknown where a write may have landed.
    """
    if not isinstance(timeout, int | float) or not 0 < timeout < 1e6:
        raise BadInput(f"timeout {shown(timeout)} is not a number of seconds above 0")
    registry = Registry((*BUILT_IN, *capabilities))
    engine, book = locate(url, name, durability)
    engine.timeout = timeout
    store = engine.open(book, create)
    try:
        store.timeout = timeout  # before anybody waits for it
        ledger = Ledger(store, registry, book, best_embedder)
        if name is not None and ledger.meta.name != name:
            raise Conflict(f"{url} holds the book {ledger.meta.name!r}, not {name!r}: leave the name out")
    except BaseException:
        store.close()
        engine.close()
        raise
    opened = Book(engine, ledger)
    try:
        ledger.beside = engine.beside
        ledger.count_tokens = count_tokens
        ledger.repository = repository_around(engine.beside, repository)
        if trust:
            opened._remember_trust(engine.beside)
        opened._use_mirror(mirror, trust)
    except BaseException:
        opened.close()
        raise
    return opened


class Book(Working):
    """One ledger with its views. Safe to share between threads; open it anew in a child process.

    Every write answers when it is durable, as far as `facts` promise. Every read takes `at=`.
    """

    def __init__(self, engine: Engine, ledger: Ledger) -> None:
        self._engine = engine
        self._ledger = ledger
        self._closed = False
        self._aio: AsyncBook | None = None
        self._mirror: BookMirror | None = None
        self._mirrors: dict[Path, BookMirror] = {}
        ledger.erased = self._erased
        ledger.saved = self._saved
        self._state_files: set[StateFile] = set()
        beside = None if self.facts.read_only else engine.beside
        self._place = place_for(beside, self.facts.engine, ledger.meta.book)
        if ledger.created:
            self._remember_trust(engine.beside)
        ledger.indexing = Indexing(
            ledger, self._place, lambda: as_logged(self.snapshot), runs_affected, self._is_ours
        )
        ledger.premises = PremiseWatch(ledger)
        ledger.working = Prompting(ledger)
        ledger.showing = Showing()
        self._say_what_it_cannot_promise()

    # writing

    def record(
        self,
        kind: str,
        *,
        actor: str = OWNER,
        payload: Mapping[str, Any] | None = None,
        run_id: str | None = None,
        session_id: str | None = None,
        turn: int = 0,
        occurred_at: datetime | None = None,
        id: str | None = None,
        parents: Sequence[str] = (),
        labels: Mapping[str, str] | None = None,
        schema_version: int = 1,
    ) -> Event:
        """Record one event and answer with it as it stands in the ledger.

        With an `id` of your own (1 to 200 characters) the call can be repeated safely: the same content
        answers with the event of the first time, other content is a Conflict.
        """
        one = draft(
            kind,
            actor=actor,
            payload=payload,
            run_id=run_id,
            session_id=session_id,
            turn=turn,
            occurred_at=occurred_at,
            id=id,
            parents=parents,
            labels=labels,
            schema_version=schema_version,
        )
        stored: list[Event] = self._ledger.submit("record", [one], one.size)
        return stored[0]

    def record_all(self, events: Iterable[Mapping[str, Any] | Draft]) -> list[Event]:
        """Record a batch, all or nothing. Each event is a mapping with the fields of `record`."""
        drafts = [draft_from(fields, actor=OWNER) for fields in _each("events", events)]
        size = sum(one.size for one in drafts)
        if len(drafts) > MAX_BATCH or size > MAX_BATCH_BYTES:
            raise TooLarge(
                f"a batch of {len(drafts):,} events and {size:,} bytes is over the limit of {MAX_BATCH:,} events or "
                f"{MAX_BATCH_BYTES:,} bytes: record it in parts"
            )
        stored: list[Event] = self._ledger.submit("record", drafts, size)
        return stored

    def erase(
        self, ids: str | Iterable[str], *, actor: str = OWNER, reason: str = "", dry_run: bool = False
    ) -> Erasure:
        """Erase the content of events, and of everything derived from them by `parents`: gone at once from
        every read. The chain still verifies. Call `purge` to clear the store's own files too."""
        wanted = tuple(check_name("id", id) for id in ([ids] if isinstance(ids, str) else _each("ids", ids)))
        check_text("reason", reason)
        erasure: Erasure = self._ledger.submit("memory.erase", EraseRequest(wanted, actor, reason, dry_run))
        if erasure.position is not None:
            self._ledger.erased(erasure.erased)
        return erasure

    def submit(self, command: str, request: Any) -> Any:
        """Run a command of one of the book's capabilities, and answer what its decider answers once the
        events are durable. Raises NotFound for a command that nobody brings."""
        return self._ledger.submit(command, request)

    def purge(self) -> PurgeReport:
        """Remove what was erased from the files of the store, of the index and of the markdown, and remove the files
        that runs' states were written to: `run.save` writes them again. The report names each file, and says what it
        may still hold, and why."""
        report = self._ledger.store.purge()
        why = "; ".join(report.remaining)
        for mirror in self._all_mirrors():
            if mirror.trusted:
                mirror.erase(())  # what was swapped out of its files may hold what is gone
        files = [FilePurged(str(path), why) for path in self._ledger.store.files() if path.exists()]
        files += self._ledger.indexing.purge()
        files += [
            FilePurged(
                str(path), "" if mirror.trusted else "not trusted, so not reached: sync it with --trust"
            )
            for mirror in self._all_mirrors()
            for path in mirror.files()
            if path.exists()
        ]
        states = [one for one in self._known_state_files() if os.path.lexists(one.place)]
        unreached = self._remove_state_files(states)  # all: which of them hold what was erased is not known
        files += [FilePurged(one.place, unreached.get(one, "")) for one in states]
        files += [
            FilePurged(
                str(folder), "it has shown this book and does not any more: look at what it still holds"
            )
            for folder in self._left_folders()
        ]
        more = [f"{file.path}: {file.remains}" for file in files if file.remains not in ("", why)]
        return PurgeReport(report.done, (*report.remaining, *more), tuple(files))

    def migrate_index(
        self,
        embedder: str,
        *,
        queries: Sequence[str] | None = None,
        switch: bool = False,
        progress: Progress | None = None,
    ) -> Migrated:
        """Build the index with another embedder beside the one in use, and compare what both find for the queries
        given, or for those that were recorded with digests, each under the rights of whoever asked. With `switch` it
        then takes the other's place, for every process at once; without, it is removed again."""
        from .recall.migrating import Migrated, built_beside, compared, given_queries, recorded_queries

        embedder = named_embedder(check_text("embedder", embedder))
        indexing: Indexing = self._ledger.indexing
        asked = recorded_queries(self._ledger, self.head) if queries is None else given_queries(list(queries))
        old, beside = indexing.catch_up(), built_beside(indexing, embedder, progress)
        try:
            found = compared(self._ledger, old, beside.catch_up(), asked)
            told = Migrated(embedder, old.fingerprint, beside.fingerprint, found, switch)
            if switch:
                indexing.give_way_to(beside)
                self.configure_memory(embedder=embedder)
        finally:
            beside.throw_away()
        return told

    def look_for(self, texts: str | Sequence[str]) -> list[Trace]:
        """Where these texts still are in the raw files of the book, its index and its markdown: nowhere, if they
        were erased and purged. Another process looks. Raises BadInput if nobody can look, because a server does
        not tell where its files are."""
        from .scan import look_for

        several = [texts] if isinstance(texts, str) else _each("texts", texts)
        wanted = [check_text("a text", text) for text in several]
        if any(len(one.encode()) < SHORTEST for one in wanted):
            raise BadInput(f"a text of less than {SHORTEST} bytes is found everywhere: give a longer one")
        return look_for(wanted, self._raw_files())

    def _raw_files(self) -> list[Path]:
        files = self._ledger.store.files()
        if not files:
            raise BadInput(
                f"the raw files of this {self.facts.engine} book are not on this host, or it does not say where"
            )
        states = [Path(one.place) for one in self._known_state_files()]
        return [*files, *self._ledger.indexing.files(), *self._mirror_files(), *self._left_folders(), *states]

    def _mirror_files(self) -> list[Path]:
        return [file for mirror in self._all_mirrors() for file in mirror.files()]

    def _left_folders(self) -> list[Path]:
        """Folders of this host that this user once had show this book, and that are not kept up with it any more."""
        from .mirror import shows
        from .mirroring import known_folders
        from .trust import trusted_places

        ours = trusted_places(
            self.id
        )  # the list beside the book may have come with it, and may name any folder
        known = [folder for folder in known_folders(self._place) if folder in ours and folder.exists()]
        return [folder for folder in known if shows(folder) != self.id]

    # reading

    @property
    def head(self) -> int:
        """The last position; 0 when nothing has been recorded."""
        with self._ledger.store.read() as reads:
            return reads.head.position

    def events(
        self,
        after: int = 0,
        run_id: str | None = None,
        kinds: Collection[str] | None = None,
        actor: str | None = None,
        at: At = None,
    ) -> Iterator[Event]:
        """The events after a position, in order, up to `at` (now, when the call is made)."""
        chosen = _filters(run_id, kinds, actor)
        return self._ledger.events(_position(after), self.position(at), *chosen)

    def event(self, id: str, at: At = None) -> Event:
        """One event by its id. Raises NotFound."""
        found = self._ledger.event(check_name("id", id))
        if found is None or (at is not None and found.position > self.position(at)):
            raise NotFound(f"there is no event {id!r} in this book" + ("" if at is None else " as of then"))
        return found

    def watch(
        self,
        after: int | None = None,
        run_id: str | None = None,
        kinds: Collection[str] | None = None,
        actor: str | None = None,
        timeout: float | None = None,
    ) -> Iterator[Event]:
        """Events as they are committed, by whatever process; first those after `after` (None: only new ones)
        that are already there. Blocks in between. Ends when the book is closed, or when `timeout` seconds
        have brought nothing."""
        head = self.head
        timeout = check_seconds("timeout", timeout)
        reached = head if after is None else _position(after)
        return self._watch(reached, _filters(run_id, kinds, actor), timeout)

    def _watch_all(self, after: int | None, timeout: float | None) -> Iterator[Event]:
        return self.watch(after, timeout=timeout)

    def _watch(self, reached: int, chosen: Filters, timeout: float | None) -> Iterator[Event]:
        quiet_since = monotonic()
        with suppress(BookClosed):
            self._ledger.premises.look()
            while not self._closed:
                left = 3600.0 if timeout is None else quiet_since + timeout - monotonic()
                head = self._ledger.store.wait(reached, max(left, 0))
                if self._closed or (head <= reached and left <= 0):
                    return
                self._ledger.premises.look()
                for event in self._ledger.events(reached, head, *chosen):
                    yield event
                    quiet_since = monotonic()
                reached = max(reached, head)
                if timeout is not None and monotonic() - quiet_since > timeout:
                    return

    def _events_of(self, run: str, after: int, upto: int) -> Iterable[Event]:
        return self.redacted(self.events(after, run_id=run, at=upto))

    def runs(self, at: At = None) -> list[RunInfo]:
        """The runs in the order in which they were first seen."""
        with self._ledger.snapshot(at) as snapshot:
            found = [_run_info(snapshot, str(key[0]), first) for key, first in snapshot.scan("runs")]
        return sorted(found, key=lambda run: run.first)

    def snapshot(self, at: At = None) -> AbstractContextManager[Snapshot]:
        """The views of the book's capabilities as of `at`, for the length of a `with` block. Raises
        BeforeHorizon when the versions of that time are no longer kept."""
        return self._ledger.snapshot(at)

    def blob(self, digest: str) -> bytes:
        """The bytes behind a `{"$blob": digest}` in a payload. Raises NotFound."""
        data = None
        if isinstance(digest, str) and DIGEST.fullmatch(digest):
            data = self._ledger.blob(digest)
        if data is None:
            raise NotFound(f"there is no blob {shown(digest)} in this book; it may have been erased")
        return data

    def position(self, at: At = None) -> int:
        """The position that `at` means now."""
        if at is not None:
            return self._ledger.position(at)
        with self._ledger.store.read() as reads:
            return reads.head.position

    # acting as somebody

    def as_actor(self, name: str, role: str | None = None) -> Actor:
        """The verbs of this book under one actor's rights. A role that is new to it is recorded."""
        name = check_actor(name)
        if role is not None:
            self.grant(name, role=role)
        return Actor(self, name)

    def _speaking_for(self, agent: str) -> Working:
        return self if agent == OWNER else self.as_actor(agent)

    def grant(
        self,
        subject: str,
        *,
        role: str | None = None,
        tiers: Mapping[str, str] | None = None,
        may_emit: Sequence[str] | None = None,
        sees: Sequence[str] | None = None,
        acts: Sequence[str] | None = None,
        ceiling: str | None = None,
        anew: bool = False,
    ) -> None:
        """Say what an actor, a role ("role:qa") or everybody ("*") may do. What is not named stays as it was;
        with `anew` it is forgotten.

        `tiers` maps memory tiers to none, read or read_write; `may_emit` lists the kinds it may record and
        `sees` kinds of others that it may see, with `*` for any ending; `acts` are rights to do something out
        of the ordinary; `ceiling` is the highest sensitivity of others' events that it may see.
        """
        rule = _given(role=role, tiers=tiers, may_emit=may_emit, sees=sees, acts=acts, ceiling=ceiling)
        self.submit("access.grant", Grant(OWNER, subject_of(subject), rule, anew))

    def relabel(
        self, id: str, *, reason: str, sensitivity: str | None = None, trust: str | None = None
    ) -> Event:
        """Change how sensitive or trusted an event counts, from now on, for whoever reads it or derives from
        it."""
        labels = _given(sensitivity=sensitivity, trust=trust)
        request = Relabel(OWNER, check_name("id", id), labels, check_text("reason", reason))
        event: Event = self.submit("access.relabel", request)
        return event

    def redacted(self, events: Iterable[Event]) -> Iterator[Event]:
        """The same events as a log or a page may show them: without the secrets of their runs."""
        hide = as_logged(self.snapshot)
        return (hide(_an_event(event)) for event in _each("events", events))

    def audit(self, run_id: str | None = None, at: At = None) -> Iterator[Entry]:
        """Who changed, was given and was denied what, as a chain of entries without secrets or content."""
        from .access.audit import entries

        return entries(self.redacted(self.events(run_id=run_id, at=at)))

    # runs

    def run(
        self,
        workflow: str | Path | Workflow | None = None,
        run_id: str | None = None,
        initial: Mapping[str, Any] | None = None,
        create: bool = True,
    ) -> Run:
        """A run with a state: a new one, or with the id of one that is there, that one, to go on with
        (`create=False`: only that, else NotFound).

        `workflow` is a folder with a workflow.awp.yaml, whose rules then hold; without one every agent may
        take part and sees everything. `initial` are values to start with.
        """
        return self._run(OWNER, workflow, run_id, initial, create)

    def execute(
        self,
        workflow: str | Path | Workflow,
        *,
        agents: Mapping[str, AgentFunction | str | list[str]] | None = None,
        run_id: str | None = None,
        initial: Mapping[str, Any] | None = None,
        ask: Ask | None = None,
        tell: Tell | None = None,
    ) -> Outcome:
        """Run a workflow's graph to its end. With the id of a run that did not come to its end, go on with it:
        agents that have finished are not run again.

        `agents` maps agents to functions (sync or async, called with their turn, answering their output),
        `"module:function"` or commands; agents that are not named are run as their files say. `ask` answers
        for people in interactive loops; `tell` hears of every step. Raises RunFailed, or BadWorkflow with
        everything that is wrong with the files.
        """
        from .workflow.runner import run_workflow

        plan = _plan(workflow)
        if plan is None:
            raise BadInput("give the folder with workflow.awp.yaml")
        return run_workflow(
            self,
            plan,
            agents=agents,
            run_id=run_id,
            initial=initial,
            ask=ask,
            tell=tell or (lambda _news: None),
        )

    def fork(self, run_id: str, at: At = None, new_id: str | None = None) -> Run:
        """A new run that begins as another one was at `at`."""
        return self._known_run(OWNER, run_id).fork(at, new_id)

    def diff(self, a: str, b: str, *, redacted: bool = False) -> list[Difference]:
        """What differs between two states, each a run's id, or `id@position` for an earlier one; with
        `redacted`, as a log or a page may show it."""
        return self._diff(OWNER, a, b, redacted)

    def merge(self, fork: str, prefer: str | None = None) -> Merged:
        """Bring what a fork has written back into the run it came from: see `Run.merge`."""
        return self._known_run(OWNER, fork).merge(prefer)

    def _run(
        self,
        by: str,
        workflow: str | Path | Workflow | None,
        run_id: str | None,
        initial: Mapping[str, Any] | None,
        create: bool,
    ) -> Run:
        if not create:
            return self._known_run(by, "" if run_id is None else run_id)
        id = new_event_id() if run_id is None else check_name("run_id", run_id)
        plan = _plan(workflow)
        policy = Policy() if plan is None else replace(plan.policy, max_depth=plan.max_depth)
        folder = None if plan is None else Path(plan.folder)
        run = Run(self._ledger, id, by, folder, None if plan is None else plan.persistence)
        given = encode_payload(initial or {})[1]
        if run_id is None or not self._has_state(id):
            named = {} if plan is None else {"name": plan.name, "version": plan.version}
            start = Start() if plan is None else plan.start
            try:
                self.submit("state.open", Open(id, by, policy, start, given, named))
                if plan is not None and by == OWNER:
                    self._configure_as_planned(plan)
                run._begun()
                return run
            except Conflict:
                if not self._has_state(id):
                    raise
        self._go_on(run, None if plan is None else (plan.name, policy), given)
        return run

    def _go_on(self, run: Run, plan: tuple[str, Policy] | None, given: Mapping[str, Any]) -> None:
        """Check that a run that is there is the one that was meant. Raises Conflict; NotFound for somebody whose
        business it is not."""
        known = self._about(run.id, run.viewer)
        if plan is not None and plan != (known.workflow.get("name", ""), known.policy):
            raise Conflict(
                f"the run {run.id!r} was started under other rules than this workflow's: go on with the files it "
                "was started from, or choose another run_id"
            )
        if given and run.viewer not in (OWNER, known.by):
            raise Conflict(f"the run {run.id!r} is there already: leave initial out to take part in it")
        if given:
            _check_same_start(self.events(run_id=run.id, kinds=(OPENED,)), given, run.id)

    def _about(self, run_id: str, viewer: str) -> About:
        run_id = check_name("run_id", run_id)
        with self.snapshot() as snapshot:
            known = about(snapshot, run_id) if snapshot.get("state.runs", run_id) is not None else None
        if known is None or not takes_part(known, viewer):
            if viewer != OWNER:  # in both cases, so that not even the book's length tells which it was
                self.submit("access.deny", Denial(viewer, "run", run_id, run_id))
            raise NotFound(no_run(run_id))
        return known

    def _configure_as_planned(self, plan: Workflow) -> None:
        """Take over the settings of memory that a workflow's files name. What they do not name stays as it is."""
        named: dict[str, Any] = {}
        for tier, name in (("long_term", "max_size_kb"), ("working", "retention_days")):
            if tier in plan.memory.tiers and name in plan.memory.tiers[tier].settings:
                named[name] = int(plan.memory.tiers[tier].settings[name])
        if named:
            self.configure_memory(**named)

    def _has_state(self, run_id: str) -> bool:
        with self.snapshot() as snapshot:
            return snapshot.get("state.runs", run_id) is not None

    def _parent_of(self, run_id: str) -> str | None:
        with self.snapshot() as snapshot:
            return about(snapshot, run_id).parent

    def _known_run(self, viewer: str, run_id: str) -> Run:
        self._about(run_id, viewer)
        return Run(self._ledger, run_id, viewer)

    def _diff(self, viewer: str, a: str, b: str, redacted: bool) -> list[Difference]:
        states, hide = [], Redactor()
        for named in (a, b):
            id, at = run_at(check_text("a run to compare", named))
            states.append(self._known_run(viewer, id).state(at))
            with self.snapshot() as snapshot:
                hide |= redactor_of(snapshot, id, viewer)
        found = differences(*states)
        return redacted_differences(found, hide) if redacted else found

    # the markdown beside it

    def mirror(
        self, folder: str | Path | None = None, person: str | None = None, *, trust: bool = False
    ) -> BookMirror:
        """The book's memory as markdown files that people edit: `.sync()` takes in their edits and writes what
        changed, `.watch(…)` goes on doing so. `folder` is where the book is, unless you say otherwise, and
        `person` who edits. With `trust` a folder is synced, now and later, that this user did not make."""
        from .mirroring import BookMirror

        where = (
            check_path("a folder", folder)
            if folder is not None
            else self._engine.beside and self._engine.beside.parent
        )
        if where is None:
            raise BadInput(
                "this book is not in a folder of this host: say in which one its markdown shall lie"
            )
        made = BookMirror(self, where, person, trust=trust)
        self._mirrors[where.absolute()] = made
        return made

    def _remember_trust(self, beside: Path | None) -> None:
        """This user has made the book that lies here, or says to trust it."""
        from .trust import trust

        if beside is not None:
            try:
                trust(self.id, beside)
            except StorageFailed as error:  # it only matters once its markdown is synced, and is said then
                log.info("%s", error)

    def _is_ours(self) -> bool:
        """Whether this user made the book, or trusts it: a server's is as trusted as the server."""
        from .trust import is_trusted

        beside = self._engine.beside
        return beside is None or self._ledger.created or is_trusted(self.id, beside)

    def _use_mirror(self, asked: str | Path | bool | None, trust: bool) -> None:
        from .mirror import shows

        beside = self._engine.beside
        if asked is None and self.facts.read_only:
            return
        if asked is None and beside is not None and shows(beside.parent) == self.id:
            try:
                self._mirror = self.mirror(trust=trust)
                self._sync_mirror()
            except (CommonplaceError, OSError) as error:  # nobody asked for it: the book itself is well
                self._mirror = None
                log.warning("the markdown beside this book could not be taken in: %s", error)
        elif asked not in (None, False):
            mirror = self.mirror(None if asked is True else asked, trust=trust)  # type: ignore[arg-type]
            mirror.check_trust()  # before it counts as the book's: closing would try to sync it again
            self._mirror = mirror
            self._sync_mirror()

    def _sync_mirror(self) -> None:
        if self._mirror is not None:
            _tell_refused(self._mirror.sync())

    def _erased(self, ids: Collection[str]) -> None:
        """What was erased is gone from the index, the markdown and the state files at once."""
        self._ledger.indexing.forget()
        self._forget_states(ids)
        for mirror in self._all_mirrors():
            try:
                _tell_refused(mirror.erase(ids))
            except (NotTrusted, UnsafePath) as error:
                log.warning("what was erased may still stand in %s: %s", mirror.folder, error)

    def _saved(self, run: str, folder: Path, path: str) -> None:
        """Keep in mind where a run's state is written, so that erasing finds it, also from another process."""
        from .trust import StateFile, note_state_file

        file = StateFile(self.id, run, str(folder), path)
        if file in self._state_files:
            return
        self._state_files.add(file)
        if self.facts.engine != "memory":  # such a book ends with its process
            try:
                note_state_file(file)
            except StorageFailed as error:
                log.warning("erasing will not find this file from another process: %s", error)

    def _forget_states(self, ids: Collection[str]) -> None:
        """Remove the state files of the runs that these events belong to, and of those below them."""
        known = self._known_state_files()
        if known:
            erased = self._ledger.events_by_id(list(ids))
            with self.snapshot() as now:
                runs = with_those_below(now, {event.run_id for event in erased if event.run_id})
            self._remove_state_files([one for one in known if one.run in runs])

    def _known_state_files(self) -> list[StateFile]:
        from .trust import state_files

        return sorted({*self._state_files, *state_files(self.id)})

    def _remove_state_files(self, files: Collection[StateFile]) -> dict[StateFile, str]:
        """Remove files that hold the state of runs; `run.save` writes them again, with what is left. Answers
        which could not be reached, and why."""
        unreached = {}
        for file in files:
            try:
                Folder(file.folder).unlink(file.path)
            except (OSError, UnsafePath) as error:
                log.warning("what was erased may still stand in %s: %s", file.place, error)
                unreached[file] = f"it may hold what was erased, and could not be removed: {error}"
        return unreached

    def _all_mirrors(self) -> list[BookMirror]:
        """Every folder of this host that is known to show this book."""
        from .mirror import shows
        from .mirroring import BookMirror, known_folders
        from .trust import trusted_places

        for folder in (*known_folders(self._place), *trusted_places(self.id)):
            if folder not in self._mirrors and shows(folder) == self.id:
                self._mirrors[folder] = BookMirror(self, folder)
        return [one for folder, one in self._mirrors.items() if shows(folder) == self.id]

    # upkeep

    def verify(self, progress: Progress | None = None) -> Verification:
        """Check the whole hash chain. `.ok`, `.first_bad` (a position) and `.problem`."""
        return self._ledger.verify(check_call("progress", progress))

    def rebuild(self, progress: Progress | None = None) -> Rebuilt:
        """Fold every view from the ledger again, beside the ones in use, and switch at once. Hand edits in the
        markdown are taken in first."""
        check_call("progress", progress)
        self._sync_mirror()
        self._ledger.indexing.throw_away()
        return self._ledger.rebuild(progress=progress)

    def export(self, to: str | Path, *, at: At = None, progress: Progress | None = None) -> int:
        """Write every event up to `at` as JSONL, with its hash, and the blobs. Answers how many events."""
        from .transfer import export_file

        path = check_path("to", to)
        return export_file(self._ledger, path, self.position(at), check_call("progress", progress))

    def import_(self, source: str | Path, *, progress: Progress | None = None) -> Imported:
        """Take in an export. Into an empty book, or one that holds a beginning of it, positions and hashes
        are kept; otherwise events are recorded anew with their origin named."""
        from .transfer import import_file

        return import_file(self._ledger, check_path("source", source), check_call("progress", progress))

    def copy(self, to: Book, *, progress: Progress | None = None) -> Imported:
        """Copy everything to another book, on whatever engine, as `export` and `import_` would."""
        from .transfer import copy_book

        if not isinstance(to, Book):
            raise BadInput(f"to {shown(to)} is not a book: open it first, with commonplace.open(…)")
        return copy_book(self._ledger, to._ledger, check_call("progress", progress))

    def backup(self, to: str | Path, *, progress: Progress | None = None) -> int:
        """Write a consistent copy of the book, as it is now, to a new SQLite file. Answers its head."""
        from .transfer import copy_book

        target = check_path("to", to)
        check_call("progress", progress)
        if os.path.lexists(target):
            raise BadInput(f"{target} exists: choose a file that does not, so that nothing is overwritten")
        head = self._ledger.store.backup(target)
        if head is not None:
            if self._is_ours():
                self._remember_trust(target)
            return head.position
        try:
            create_private(target, access_of(self._ledger.beside))
            with open(target, name=self.name) as book:
                copy_book(self._ledger, book._ledger, progress)
                return book.head
        except BaseException as error:
            engine, _ = locate(target)  # a part of a copy is none
            engine.drop(target.stem)
            if isinstance(error, OSError) and not isinstance(error, CommonplaceError):
                raise StorageFailed(f"cannot write {target} ({error}); choose another place") from error
            raise

    # the book itself

    def status(self) -> Status:
        """Where the book stands, and what its engine promises."""
        reached = self._ledger.store.acknowledged()  # before the head: others may write meanwhile
        with self._ledger.store.read() as reads:
            head, meta = reads.head, self._ledger.meta_of(reads.head)
        views = {name: version for name, (version, _) in sorted(meta.views.items())}
        hash, horizon = head.hash.hex(), meta.horizon
        damage = self._ledger.damaged_row(GUARDS)
        clock = self._ledger.clock_trouble()
        return Status(
            meta.name, meta.book, head.position, hash, horizon, views, reached, self.facts, damage, *clock
        )

    @property
    def name(self) -> str:
        return self._ledger.meta.name

    @property
    def id(self) -> str:
        """A name for this book that no other book has."""
        return self._ledger.meta.book

    @property
    def facts(self) -> Facts:
        """What the engine under this book promises."""
        return self._ledger.store.facts

    @property
    def aio(self) -> AsyncBook:
        """The same verbs for asyncio."""
        if self._aio is None:
            from .aio import AsyncBook

            self._aio = AsyncBook(self)
        return self._aio

    def close(self) -> None:
        """Let everything go: watchers end, later calls raise BookClosed. Safe to call twice."""
        if self._closed:
            return
        try:
            self._sync_mirror()
            self._note_shown()
        finally:
            self._close()

    def _note_shown(self) -> None:
        """What was shown and not noted yet: without it, a later process could take it for new evidence."""
        if self.facts.read_only:
            return
        try:
            self._ledger.showing.note(self._ledger)
        except (EngineUnavailable, Busy, OutcomeUnknown) as error:
            log.warning("what was shown last could not be noted: %s", error)

    def _close(self) -> None:
        self._closed = True
        self._ledger.indexing.close()
        self._ledger.store.close()
        self._engine.close()
        if self._aio is not None:
            self._aio.shut_down()

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
        return f"<Book on {self.facts.engine}{' (closed)' if self._closed else ''}>"

    def _say_what_it_cannot_promise(self) -> None:
        facts = self.facts
        if facts.durable != "proven":
            level = logging.INFO if facts.engine == "memory" else logging.WARNING
            log.log(level, "this %s book is not proven durable: %s", facts.engine, facts.durable_why)
        reached = self._ledger.store.acknowledged()  # before the head: others may write meanwhile
        with self._ledger.store.read() as reads:
            head = reads.head
        if reached > head.position:
            log.warning(
                "this book had reached position %d and now ends at %d: later events were lost. "
                "Restore from a copy, or go on if you put an earlier backup in place on purpose",
                reached,
                head.position,
            )
        if head.created_at - time_ns() // 1000 > A_DAY:
            log.warning("%s", self._ledger.clock_trouble()[0])


def _tell_refused(report: Report) -> None:
    for path, why in report.refused:
        log.warning("%s was left alone: %s", path, why)


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _run_info(snapshot: Snapshot, id: str, first: int) -> RunInfo:
    if snapshot.get("state.runs", id) is None:
        return RunInfo(id, first)
    known = about(snapshot, id)
    forked = None if known.fork is None else known.fork.run
    status, name = sums(snapshot, id).status, known.workflow.get("name")
    return RunInfo(id, first, status, name, known.parent, forked, known.by)


def _an_event(event: object) -> Event:
    if not isinstance(event, Event):
        raise BadInput(f"{shown(event)} is not an event: give what book.events() gives")
    return event


def _plan(workflow: str | Path | Workflow | None) -> Workflow | None:
    if workflow is None:
        return None
    from .workflow.load import load
    from .workflow.model import Workflow

    if isinstance(workflow, Workflow):
        return workflow
    if not isinstance(workflow, str | Path):
        raise BadInput(f"{shown(workflow)} is not a workflow: give the folder with workflow.awp.yaml")
    return load(Path(workflow))


def _check_same_start(opened: Iterator[Event], given: Mapping[str, Any], id: str) -> None:
    """Going on with a run under other start values than its own would lose them silently."""
    recorded: dict[str, Any] = {}
    first = next(opened)
    if first.erased:
        return
    for agent, field, value in first.payload["initial"]:
        if agent:
            recorded.setdefault(agent, {})[field] = value
        else:
            recorded[field] = value
    other = sorted(name for name, value in given.items() if recorded.get(name) != value)
    if other:
        raise Conflict(
            f"the run {id!r} was started with other values of {', '.join(other)}: leave initial out to go on with "
            "it, or choose another run_id"
        )


Filters = tuple[str | None, Collection[str] | None, str | None]


def _filters(run_id: str | None, kinds: Collection[str] | None, actor: str | None) -> Filters:
    """The run, kinds and actor that a read was asked to keep to, checked."""
    run_id = None if run_id is None else check_name("run_id", run_id)
    actor = None if actor is None else check_name("actor", actor)
    if kinds is not None:
        named = [kinds] if isinstance(kinds, str) else _each("kinds", kinds)
        kinds = frozenset(check_name("a kind", kind) for kind in named)
    return run_id, kinds, actor


def _each(field: str, values: Iterable[T]) -> Iterable[T]:
    if not isinstance(values, Iterable):
        raise BadInput(f"{field} {shown(values)} is not a list: give one, such as [...]")
    return values


def _position(after: object) -> int:
    if type(after) is not int or not 0 <= after < 2**63:
        raise BadInput(f"after={shown(after)} is not a position: give a whole number from 0")
    return after
