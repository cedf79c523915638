"""Who takes part in a book: its owner, an actor, an agent in its turn. They have the same verbs and namespaces, each
under its own rights."""

from __future__ import annotations

from functools import cached_property

from .granting import Access
from .inbox import inbox
from .memory.documents import Documents
from .memory.remembering import remember
from .memory.verbs import Memory, forget
from .prompts import prompt
from .recall.digest import digest
from .recall.search import search
from .receipts import Receipts
from .recording import event, events, record, record_all, watch
from .runs import Runs, run
from .session import Session
from .verbs import method
from .work.opening import Works, work


class Participant:
    """The verbs that everybody needs; everything else is in a namespace that says what it is about."""

    def __init__(self, session: Session) -> None:
        self._session = session

    record = method(record)
    record_all = method(record_all)
    event = method(event)
    events = method(events)
    watch = method(watch)
    remember = method(remember)
    search = method(search)
    digest = method(digest)
    prompt = method(prompt)
    forget = method(forget)
    run = method(run)
    work = method(work)
    inbox = method(inbox)

    @cached_property
    def memory(self) -> Memory:
        return Memory(self._session)

    @cached_property
    def documents(self) -> Documents:
        return Documents(self._session)

    @cached_property
    def receipts(self) -> Receipts:
        return Receipts(self._session)

    @cached_property
    def runs(self) -> Runs:
        return Runs(self._session)

    @cached_property
    def works(self) -> Works:
        return Works(self._session)

    @cached_property
    def access(self) -> Access:
        return Access(self._session)
