"""Who takes part in a book: its owner, an actor, an agent in its turn. They have the same verbs and namespaces, each
under its own rights."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .access.commands import VIEWED
from .access.rights import OWNER, check_actor
from .access_verbs import Access, record_look
from .documents.verbs import Documents
from .errors import Denied
from .event_verbs import event, events, record, record_all, watch
from .inbox import inbox
from .ledger.checks import check_call, check_path
from .memory.remember import remember
from .memory.verbs import Memory, forget
from .prompts import prompt
from .recall.digest import digest
from .recall.search import search
from .receipts import Receipts
from .runs import Runs, run
from .session import Session
from .threads.verbs import Threads, thread
from .verbs import method, namespace, verb
from .work.opening import Works, work

if TYPE_CHECKING:
    from .admin import Admin
    from .engines.contract import PurgeReport
    from .finding import Found
    from .learn.verbs import Learn
    from .ledger.erase import Erasure
    from .ledger.ledger import At, Progress
    from .ledger.upkeep import Rebuilt, Verification
    from .recall.receipts import Receipt
    from .run import Run
    from .runs import RunInfo
    from .state.diff import Difference


class Participant:
    """The verbs that everybody needs; everything else is in a namespace that says what it is about."""

    def __init__(self, session: Session) -> None:
        self._session = session

    record = method(record, own_id=True)
    record_all = method(record_all, repeatable=True)
    event = method(event)
    events = method(events)
    watch = method(watch)
    remember = method(remember, own_id=True)
    search = method(search)
    digest = method(digest, reads=False)
    prompt = method(prompt, reads=False)
    forget = method(forget)
    run = method(run, of_host=("workflow",))
    work = method(work)
    thread = method(thread)
    inbox = method(inbox)

    memory = namespace(Memory)
    documents = namespace(Documents)
    learn: namespace[Learn] = namespace("learn.verbs:Learn")
    receipts = namespace(Receipts)
    runs = namespace(Runs)
    works = namespace(Works)
    threads = namespace(Threads)
    access = namespace(Access)


class Owner(Participant):
    """The owner of a book, opened here or behind a server, with short cuts to what an owner often needs."""

    admin: namespace[Admin]

    def blob(self, digest: str) -> bytes:
        """As `admin.blob`."""
        return self.admin.blob(digest)

    def erase(self, ids: str | Iterable[str] | Found, *, reason: str = "", dry_run: bool = False) -> Erasure:
        """As `admin.erase`."""
        return self.admin.erase(ids, reason=reason, dry_run=dry_run)

    def purge(self) -> PurgeReport:
        """As `admin.purge`."""
        return self.admin.purge()

    def verify(self, progress: Progress | None = None) -> Verification:
        """As `admin.verify`."""
        return self.admin.verify(progress)

    def rebuild(self, progress: Progress | None = None) -> Rebuilt:
        """As `admin.rebuild`."""
        return self.admin.rebuild(progress)

    def receipt(self, id: str, at: At = None) -> Receipt:
        """As `receipts.get`."""
        return self.receipts.get(id, at)

    def fork(self, run_id: str | Run | RunInfo, at: At = None, new_id: str | None = None) -> Run:
        """As `runs.fork`."""
        return self.runs.fork(run_id, at, new_id)

    def diff(
        self, a: str | Run | RunInfo, b: str | Run | RunInfo, *, redacted: bool = False
    ) -> list[Difference]:
        """As `runs.diff`."""
        return self.runs.diff(a, b, redacted=redacted)


class Actor(Participant):
    """One actor of a book. `book.as_actor(name)` makes one.

    Everything it does is recorded under its name and checked against its rights; everything it reads is limited to what
    it may see. A refusal is `Denied`, and an event that the owner can read.
    """

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.name = session.actor

    @verb(reads=True, writes_file="to")
    def export(self, to: str | Path, *, at: At = None, progress: Progress | None = None) -> int:
        """Write the events that this actor may see as JSONL, without secrets. Returns how many.

        `to` is the file to write."""
        from .ledger.transfer import excerpt_lines, write_export

        session, path = self._session, check_path("to", to)
        check_call("progress", progress)
        lines = excerpt_lines(session.ledger, events(session, at=at))
        return write_export(lines, path, session.ledger.position(at), progress, session.services.beside)

    def __repr__(self) -> str:
        return f"<Actor {self.name!r}>"


def acting(
    owner: Participant, actor: str, run_id: str | None = None, scope: str | None = None
) -> Participant:
    """An actor of the book of `owner`, or the owner itself; with a run, an agent in its turn; with a scope, bound to
    it. Raises NotFound for a run of another scope."""
    if run_id is not None:
        return owner.run(run_id=run_id, create=False, scope=scope).agent(actor)
    if actor == OWNER:
        return owner if scope is None else Actor(owner._session.in_scope(scope))
    return Actor(owner._session.acting_as(check_actor(actor)).in_scope(scope))


def begin_look(me: Participant, actor: str) -> str:
    """Record that somebody looks through the eyes of another actor. Answers the id of the event. Raises Denied."""
    return record_look(me._session, actor).id


def looking(me: Participant, look: str) -> Actor:
    """The book through another actor's eyes, for somebody whose look was recorded as this event, and who may still do
    so. Raises Denied."""
    session, event = me._session, me._session.ledger.event(look)
    if event is None or event.kind != VIEWED or event.payload.get("actor") != session.actor:
        raise Denied("looking through another actor's eyes begins with access.look_as, which is recorded")
    actor = str(event.payload["of"])
    if not session.rights().may("see_as"):
        raise Denied(f"{session.actor!r} may not look through the eyes of {actor!r}")
    return Actor(session.seen_by(session.actor, actor))


def acting_within(
    owner: Participant,
    actor: str,
    bounds: Iterable[tuple[str | None, Sequence[str]]],
    run_id: str | None = None,
    *,
    by_owner: bool = True,
) -> Participant:
    """An actor of the book of `owner`, bound to one scope after the other, each within the one before; the owner
    itself, if it is that and nothing bounds it. With a run, an agent in its turn: taken by itself, or, with
    `by_owner`, in the name of the owner, who may take anybody's."""
    session = owner._session if actor == OWNER else owner._session.acting_as(check_actor(actor))
    for scope, reads in bounds:
        session = session.in_scope(scope, reads)
    if run_id is not None:
        viewer = owner if by_owner else Actor(session)
        return viewer.runs.get(run_id).agent(actor)
    return owner if session is owner._session else Actor(session)
