"""Group commit: how a command becomes durable, the same for every engine.

A command is data: a name and a request. The thread that leads begins one transaction, runs the deciders of all that
wait, its own among them, in the order in which they came, and applies the one WriteSet that comes out of it. A leader
whose own turn does not come in one transaction begins another one.

    one writer          leads at once; no other thread is involved
    many threads        one leads, the others queue; the next leader takes all that have queued meanwhile
    a decider fails     its part of the overlay is undone; the rest of the batch goes on
    an error before     the leader gets the error, the others go again under a new leader
    an error at commit  who was decided gets OutcomeUnknown with the ids of its own events, the others go again
    the time is up      a caller that still queues leaves the queue and gets Busy; nothing of it is written
    an interrupt        a leader that has left is noticed by those who wait, and one of them leads

An interrupt can fall between any two steps, also into the code that cleans up. So nothing here relies on a step that
an interrupted thread has yet to take. Each caller holds the lock `inside` of its ticket for as long as it is in `run`:
the interpreter itself releases it, whatever ends the call. A leader whose lock is free is gone.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from ..engines.contract import Store, Tx, WriteConflict
from ..engines.interrupts import LOOK, run_inside, wake
from ..errors import Busy, CommonplaceError, OutcomeUnknown
from .events import ERASED, Draft, erased_by, unseal
from .overlay import Overlay, Residues
from .reader import PAGE
from .scopes import Guarded, InScope
from .views import Decider, Meta, Registry

if TYPE_CHECKING:
    from ..engines.contract import Head, Record

MAX_BATCH = 256
MAX_BATCH_BYTES = 16 * 1024 * 1024
MAX_BATCH_SECONDS = 0.05


def _held_lock() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


@dataclass(slots=True, eq=False)
class _Ticket:
    """One command on its way."""

    capability: str
    decide: Decider
    request: Any
    size: int
    deadline: float
    """When its caller has waited long enough."""
    inside: threading.Lock = field(default_factory=threading.Lock)
    """Held while its caller waits for it or leads."""
    wake: threading.Lock = field(default_factory=_held_lock)
    """What its caller waits on."""
    leader: _Ticket | None = None
    """The ticket whose caller has taken it out of the queue."""
    batch: list[_Ticket] = field(default_factory=list)
    """The tickets that it has taken, as a leader."""
    applying: bool = False
    """Whether its batch is being written just now."""
    decided: bool = False
    """Whether its decider has run in the transaction that is being written: if not, nothing of it can be stored."""
    done: bool = False
    answer: Any = None
    error: BaseException | None = None
    records: list[Record] = field(default_factory=list)
    """What its decider has recorded, once that has run."""
    erased: list[str] = field(default_factory=list)
    """The ids of the events whose content its decider has erased."""

    def settle(self, error: BaseException) -> None:
        self.error, self.done = error, True

    def unknown(self, cause: str) -> OutcomeUnknown:
        """The error if nobody knows whether it was written, with the ids under which it can be looked up."""
        request = self.request.request if isinstance(self.request, InScope | Guarded) else self.request
        drafts = request if isinstance(request, list) else []
        requested = [draft.id for draft in drafts if isinstance(draft, Draft)]
        return OutcomeUnknown([record.id for record in self.records] or requested, cause)


class Committer:
    """Group commit for one store."""

    def __init__(self, store: Store, registry: Registry, meta: Callable[[Head], Meta]) -> None:
        self._store = store
        self._registry = registry
        self._meta = meta
        self._timeout = store.timeout
        self._mutex = threading.Lock()
        self._queue: deque[_Ticket] = deque()
        self._leader: _Ticket | None = None
        self._residues = Residues()

    def run(self, capability: str, decide: Decider, request: Any, size: int = 1) -> tuple[Any, list[str]]:
        """Run a capability's decider, and return when what it wrote is durable: its answer, and the ids of the events
        that it erased. Safe from any thread."""
        ticket = _Ticket(capability, decide, request, size, time.monotonic() + self._timeout)
        with ticket.inside:
            self._queue.append(ticket)
            while not ticket.done:
                if self._takes_lead(ticket):
                    self._lead(ticket)
                else:
                    self._follow(ticket)
        if ticket.error is not None:
            raise ticket.error
        return ticket.answer, ticket.erased

    # who leads

    def _takes_lead(self, ticket: _Ticket) -> bool:
        with self._mutex:
            leads = ticket.leader is None and (self._leader is None or not self._leader.inside.locked())
            if leads:
                self._leader = ticket
        return leads

    def _lead(self, own: _Ticket) -> None:
        try:
            self._commit(own)
        finally:
            self._give_back(own)
            with self._mutex:
                self._withdraw(own)
                self._leader = None
                following = self._queue[0] if self._queue else None
            if following is not None:
                wake(following.wake)

    def _give_back(self, own: _Ticket) -> None:
        """Part with the batch: what is not done goes back to the queue, and who is done may go."""
        if not own.batch:
            return
        with self._mutex:
            batch, own.batch = own.batch, []
            for ticket in reversed(batch):
                if not ticket.done:
                    self._left_behind(ticket, own)
        for ticket in batch:
            if ticket.done and ticket is not own:
                wake(ticket.wake)

    def _follow(self, ticket: _Ticket) -> None:
        """Wait for news, a moment at most. Outside a batch, a caller whose time is up leaves; as part of one, it waits
        until that is written, which the leader does without waiting for anybody."""
        left = ticket.deadline - time.monotonic()
        if left <= 0:
            with self._mutex:
                if ticket.leader is None:
                    self._withdraw(ticket)
                    ticket.settle(self._too_busy())
                    return
            left = LOOK
        ticket.wake.acquire(timeout=min(left, LOOK))
        leader = ticket.leader
        if leader is not None and not leader.inside.locked():
            with self._mutex:
                if not ticket.done and ticket.leader is leader:
                    self._left_behind(ticket, leader)

    def _left_behind(self, ticket: _Ticket, leader: _Ticket) -> None:
        """What becomes of a ticket whose leader has left it: it goes again, unless it may have been written."""
        if leader.applying and ticket.decided:
            ticket.settle(ticket.error or ticket.unknown("the writing thread was interrupted"))
        else:
            ticket.records, ticket.decided = [], False
            self._withdraw(ticket)
            self._queue.appendleft(ticket)
            ticket.leader = (
                None  # last: until then its caller notices that the leader is gone, and does all this again
            )

    def _withdraw(self, ticket: _Ticket) -> None:
        if ticket in self._queue:
            self._queue.remove(ticket)

    def _take(self, own: _Ticket) -> None:
        """Take those who wait into the batch, apart from those whose callers have gone."""
        size = sum(ticket.size for ticket in own.batch)
        with self._mutex:
            while self._queue and len(own.batch) < MAX_BATCH and size < MAX_BATCH_BYTES:
                ticket = self._queue[0]
                if ticket.inside.locked():
                    ticket.leader = own
                    own.batch.append(ticket)
                    size += ticket.size
                self._queue.popleft()

    # what the leader does

    def _commit(self, own: _Ticket) -> None:
        """Decide and apply, again for as long as it ends in a write conflict."""
        attempt = 0
        try:
            while not own.done:
                left = own.deadline - time.monotonic()
                if left <= 0:
                    raise self._too_busy()
                try:
                    run_inside(self._store.begin(left), partial(self._write, own))
                    self._give_back(own)
                except WriteConflict:
                    own.applying = False
                    self._give_back(own)  # whose time is up may leave
                    attempt += 1
                    time.sleep(random.uniform(0, min(0.05, 0.0002 * 2 ** min(attempt, 8))))  # noqa: S311  jitter
                except OutcomeUnknown as unknown:
                    for ticket in own.batch:
                        if ticket.decided and not ticket.done:
                            ticket.settle(ticket.error or ticket.unknown(unknown.cause))
                    own.applying = False
                    self._give_back(own)
        except CommonplaceError as trouble:
            own.applying = False
            own.settle(trouble)

    def _write(self, own: _Ticket, tx: Tx) -> None:
        overlay = Overlay(tx, self._registry, self._meta(tx.head), self._residues)
        if tx.folded < tx.head.position:
            self._catch_up(overlay)
            return
        decided = self._decide(overlay, own)
        if overlay.dirty:
            overlay.write.folded = overlay.position
            own.applying = True
            tx.apply(overlay.write)
        for ticket in decided:
            ticket.done = True
        own.applying = False

    def _decide(self, overlay: Overlay, own: _Ticket) -> list[_Ticket]:
        """Run the deciders of the batch, as many as there is time for, and answer with those that ran."""
        until, records, decided = time.monotonic() + MAX_BATCH_SECONDS, overlay.write.records, list[_Ticket]()
        while True:
            if self._queue:
                self._take(own)
            waiting = own.batch[len(decided) :]
            if not waiting:
                return decided
            for ticket in waiting:
                before, blanked = len(records), len(overlay.write.erase)
                try:
                    ticket.answer = overlay.run(ticket.capability, ticket.decide, ticket.request)
                    ticket.error = None
                except Exception as error:  # noqa: BLE001  this command's alone: `run` raises it to its caller
                    ticket.answer, ticket.error = None, error
                ticket.records, ticket.decided = records[before:], True
                ticket.erased = overlay.erased_since(blanked) if overlay.write.erase else []
                decided.append(ticket)
                if time.monotonic() > until:
                    return decided

    def _too_busy(self) -> Busy:
        return Busy(f"the book was too busy to write to for {self._timeout:g} s; try again")

    def _catch_up(self, overlay: Overlay) -> None:
        """Fold a page of what the engine's rows lack, for engines that keep them in memory. If something was folded
        that had come erased and without its tombstone, as another process took it in, begin anew."""
        tx = overlay.tx
        for record in tx.records(tx.folded, tx.head.position, PAGE):
            event = self._registry.current(unseal(record))
            if event.kind == ERASED and not event.erased:
                unknown = [gone for gone in erased_by(event) if not self._residues.knows(gone.position)]
                self._residues.remember(event)
                if any(gone.position <= tx.folded for gone in unknown):
                    tx.forget()
                    return
            overlay.fold(event, self._registry.folding(event.kind, False), overlay.meta)
            overlay.write.folded = record.position
        tx.apply(overlay.write)
