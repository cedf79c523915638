"""The board of a run, on which its workers post what the others should know, and the context digests of a delegation:
`book.learn.board` and `book.learn.digests`.

Both belong to a run and end with it. They are found by the run that the caller acts in. Code that has only the book at
hand, such as a tool that a model calls, finds them by a context variable, which the runner sets around every call of a
manager or a worker. So runs that go on side by side never mix.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from hashlib import sha256
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import BadInput, NotFound, shown
from ..ledger.checks import check_name, check_text, iso, to_us
from ..ledger.encoding import blobs_of, encode_payload
from ..ledger.printing import Listing
from ..ledger.reader import Snapshot
from ..recall.escaping import as_data, as_name
from ..state.rows import find_run
from ..state.sharing import takes_part
from ..verbs import verb
from .context_digest import ContextDigest
from .delegations import (
    BoardEntry,
    Post,
    Register,
    check_running,
    delegation_of,
    digest_at,
    digests,
    entry_of,
    posts,
)

if TYPE_CHECKING:
    from ..session import Session

LONGEST_PAYLOAD = 400
"""How many characters of a payload a prompt shows."""
MOST_SIGNALS = 20


class Dispatch:
    """The call of a manager or a worker that is under way: for which session, and under which name. What it posts twice
    because it was killed and called again is posted once."""

    def __init__(self, session: Session, name: str, hide: Callable[[Any], Any]) -> None:
        self.session, self.name, self.hide = session, name, hide
        self._posted, self._lock = Counter[str](), Lock()

    def id_of(self, topic: str, payload: Mapping[str, Any]) -> str:
        """The id of what is posted: the same whenever this call posts the same for the same time."""
        text = json.dumps([self.session.run, self.name, topic, payload], sort_keys=True)
        with self._lock:
            self._posted[text] += 1
            count = self._posted[text]
        return f"post-{sha256(f'{text}{count}'.encode()).hexdigest()[:32]}"


_CURRENT: ContextVar[Dispatch | None] = ContextVar("commonplace_dispatch", default=None)


@contextmanager
def dispatched(session: Session, name: str, hide: Callable[[Any], Any]) -> Iterator[None]:
    """Bind the board and the digests to a session, for what runs in this context. `hide` takes secrets out of what is
    posted."""
    token = _CURRENT.set(Dispatch(session, name, hide))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current_dispatch(session: Session) -> Dispatch | None:
    """The call that is under way in this context, if it is one of this book, of the run that the session is in, and of
    its actor. The owner, who has only the book at hand, acts as the one that was called."""
    current = _CURRENT.get()
    if current is None or current.session.ledger is not session.ledger:
        return None
    same_run = session.run in (None, current.session.run)
    same_actor = session.actor == current.session.actor or (session.is_owner and session.run is None)
    return current if same_run and same_actor else None


def acting_in_a_run(session: Session) -> Session:
    """The session of the run that the caller acts in. Raises BadInput outside every run."""
    if session.run is not None:
        return session
    current = current_dispatch(session)
    if current is None:
        raise BadInput(
            "this belongs to a run, and the call is in none: call it on a turn (run.agent(name)), or in a worker of "
            "a delegation loop"
        )
    return current.session


class BoardEntries(Listing[BoardEntry], msgspec.Struct, frozen=True):
    """What stands on a board, oldest first."""

    ENTRIES = "entries"

    entries: tuple[BoardEntry, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.entries)) or "nothing was posted"


class RunBoard:
    """The board of the run that the caller acts in: `book.learn.board`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @verb
    def post(self, topic: str, payload: Mapping[str, Any]) -> BoardEntry:
        """Post something on the run's board, for its manager and the other workers. Raises NotFound if the run has
        ended.

        `topic` is a word to find it by. `payload` are the fields to post."""
        session = acting_in_a_run(self._session)
        topic = check_name("topic", check_text("topic", topic).strip())
        _, values, blobs = encode_payload(payload)
        if blobs or blobs_of(values):
            raise BadInput("payload holds a blob: name the file instead, or write it to the run's state")
        _check_takes_part(session)
        dispatch = current_dispatch(session)
        if dispatch is not None:
            topic, values = dispatch.hide(topic), dispatch.hide(values)
        id = None if dispatch is None else dispatch.id_of(topic, values)
        request = Post(_run_of(session), session.actor, topic, values, id)
        entry: BoardEntry = session.submit("delegations.post", request, "post")
        return entry

    @verb
    def read(self, topic: str | None = None, since: str | None = None) -> BoardEntries:
        """What stands on the run's board, oldest first. Raises NotFound if the run has ended: the owner still finds the
        events in the ledger.

        `topic` is the topic to read alone. `since` is the id of an entry, or a time such as
        its `ts`: only what was posted after it."""
        session = acting_in_a_run(self._session)
        with session.snapshot() as now:
            _check_readable(now, session, "board")
            entries = board_entries(session, now)
        if since is not None:
            entries = _after(entries, since)
        return BoardEntries(tuple(entry for entry in entries if topic is None or entry.topic == topic))


class ContextDigests:
    """The context digests of the delegation that the caller acts in: `book.learn.digests`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @verb
    def fetch(self, sha: str) -> ContextDigest:
        """A context digest by its address. Raises NotFound for one of another delegation, and if the run has ended.

        `sha` is the address, or its beginning, at least 12 characters."""
        session = acting_in_a_run(self._session)
        sha = check_text("sha", sha).strip().lower()
        with session.snapshot() as now:
            _check_readable(now, session, "context digests")
            root = delegation_of(now, _run_of(session))
            digest = digest_at(now, root, sha) if len(sha) == 64 else _by_beginning(now, root, sha)
        if digest is None:
            raise NotFound(
                f"there is no context digest {shown(sha)} in this delegation: a prompt lists their addresses"
            )
        return digest


def register_tool(session: Session, name: str, spec: Mapping[str, Any]) -> None:
    """Register a tool that this run has made, so that the next run of the workflow knows it.

    `name` is the full name of the tool. `spec` is what another run needs to make or use it."""
    session = acting_in_a_run(session)
    _check_takes_part(session)
    _, values, blobs = encode_payload(spec)
    if not values or blobs or blobs_of(values):
        raise BadInput("spec is empty or holds a blob: give plain fields, such as {'description': '…'}")
    dispatch, name = current_dispatch(session), check_name("name", name)
    if dispatch is not None:
        name, values = dispatch.hide(name), dispatch.hide(values)
    request = Register(_run_of(session), session.actor, name, values)
    session.submit("delegations.register", request, "register")


def board_entries(
    session: Session, now: Snapshot, run: str | None = None, after: int = 0
) -> list[BoardEntry]:
    """What stands on the board of a run, after a position, without what was erased."""
    ids = [id for _, id, _ in posts(now, run or _run_of(session), after)]
    events = {event.id: event for event in session.ledger.events_by_id(ids)}
    return [entry_of(events[id]) for id in ids if not events[id].erased]


def sibling_signals(entries: Sequence[BoardEntry]) -> str:
    """New entries of a board as a block of a prompt; "" if there are none."""
    lines = [
        f"- [{as_name(entry.topic)}] by {as_name(entry.worker_id)}: {_payload_text(entry)}"
        for entry in entries[-MOST_SIGNALS:]
    ]
    return "\n".join(["## SIBLING SIGNALS", *lines]) if lines else ""


def _payload_text(entry: BoardEntry) -> str:
    text = json.dumps(entry.payload, sort_keys=True, ensure_ascii=False)
    return as_data(text[:LONGEST_PAYLOAD])


def _run_of(session: Session) -> str:
    assert session.run is not None
    return session.run


def _check_takes_part(session: Session) -> None:
    """Raises NotFound if the actor takes no part in its run: a board of others looks as if it were not there."""
    with session.snapshot() as now:
        opened = find_run(now, _run_of(session))
        if opened is None or not takes_part(now, _run_of(session), opened, session.actor):
            raise NotFound(f"there is no run {session.run!r} that {session.actor!r} takes part in")


def _check_readable(now: Snapshot, session: Session, what: str) -> None:
    _check_takes_part(session)
    check_running(now, _run_of(session), what)


def _after(entries: list[BoardEntry], since: str) -> list[BoardEntry]:
    """Those after an entry or a time. Raises NotFound for an entry that is not there."""
    places = [place for place, entry in enumerate(entries) if entry.id == since]
    if places:
        return entries[places[0] + 1 :]
    try:
        moment = datetime.fromisoformat(check_text("since", since))
    except ValueError:
        known = f"there is no entry {shown(since)} on this board"
        raise NotFound(f"{known}: give an id of one, or a time with its offset") from None
    time = iso(to_us("since", moment))
    return [entry for entry in entries if entry.ts > time]


def _by_beginning(now: Snapshot, root: str, sha: str) -> ContextDigest | None:
    if len(sha) < 12:
        return None
    return next((digest for _, _, digest in digests(now, root) if digest.address.startswith(sha)), None)
