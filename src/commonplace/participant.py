"""Who takes part in a book: its owner, an actor, an agent in its turn. They have the same verbs and namespaces, each
under its own rights."""

from __future__ import annotations

from .granting import Access
from .inbox import inbox
from .memory.documents import Documents
from .memory.remembering import remember
from .memory.verbs import Memory, forget
from .prompts import Receipts, prompt
from .recall.digesting import digest
from .recall.searching import search
from .recording import event, events, record, record_all, watch
from .runs import Runs, run
from .session import Session
from .verbs import method, namespace
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

    memory = namespace(Memory)
    documents = namespace(Documents)
    receipts = namespace(Receipts)
    runs = namespace(Runs)
    works = namespace(Works)
    access = namespace(Access)
