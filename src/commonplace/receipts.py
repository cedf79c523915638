"""The namespace `receipts`: what digests and prompts were made of, what would have changed without one memory, and what
has just happened in a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from .access.masking import masked
from .access.rights import OWNER
from .errors import BadInput, Erased, NotFound
from .ledger.checks import check_call, check_name
from .ledger.events import Event
from .ledger.scopes import scope_of
from .memory.requests import RECEIPT
from .recall.bisection import Bisected, bisected
from .recall.changed_facts import changed_facts
from .recall.prompt import WORK, Focused, headed
from .recall.receipts import Receipt, may_see_source, read_receipt
from .recall.recent import salient, window
from .verbs import ItemId, ReceiptId, RunId, method, verb
from .work.prompting import focus_of

if TYPE_CHECKING:
    from .ledger.ledger import At
    from .session import Session

ReceiptList = list[Receipt]
Events = list[Event]


class Receipts:
    """What digests and prompts were made of, and what has happened in a run since: `book.receipts`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @verb
    def get(self, id: ReceiptId, at: At = None) -> Receipt:
        """The receipt of a digest or prompt: what was asked, what went in and what did not. Its reader and the owner
        can see it; `.replay()` gives the text again."""
        event = self._session.ledger.event(check_name("a receipt", id))
        actor, upto = self._session.actor, None if at is None else self._session.ledger.position(at)
        exists = event is not None and event.kind == RECEIPT and (upto is None or event.position <= upto)
        readable = event is not None and self._session.rights().in_scope(scope_of(event))
        if event is None or not exists or not readable or actor not in (OWNER, event.actor):
            raise NotFound(f"there is no receipt {id!r} for {actor!r}: see the digest's receipt_id")
        self._session.check_memory_is_on()
        reader = self._session.speaking_for(event.actor)
        with self._session.viewer(at) as viewer:
            may_see = partial(may_see_source, self._session, viewer)
            return read_receipt(event, self._session.ledger, may_see, partial(_said_of_work, reader))

    @verb
    def list(self, run_id: RunId | None = None, at: At = None) -> ReceiptList:
        """The receipts that this actor may see, oldest first, as of `at`; those of one run, if it is named."""
        run = self._session.run if run_id is None else check_name("run_id", run_id)
        actor = None if self._session.is_owner else self._session.actor
        upto = None if at is None else self._session.ledger.position(at)
        receipts, rights = [], self._session.rights()
        for event in self._session.ledger.events(0, upto, run_id=run, kinds=(RECEIPT,), actor=actor):
            if not rights.in_scope(scope_of(event)):
                continue
            with suppress(Erased):  # it was erased itself, and not only something in it
                receipts.append(self.get(event.id, at))
        return receipts

    @verb
    def bisect(
        self,
        run_id: RunId | None = None,
        without: ItemId | None = None,
        matters: Callable[[str], bool] | None = None,
    ) -> Bisected:
        """What a past run's digests would have been without one memory, or without each of those that it was
        shown, the one that changes most first. `matters` narrows it to those without which its answer to a digest's
        text would have been another one. No model is asked.

        `without` is the id of the item to leave out."""
        run = self._session.run if run_id is None else check_name("run_id", run_id)
        if run is None:
            raise BadInput("say which run: run_id")
        item = None if without is None else check_name("an item", without)
        check_call("matters", matters)
        receipts = self.list(run)
        with self._session.snapshot() as now:
            if not receipts and (now.get("runs", run) is None or self._session.bound is not None):
                raise NotFound(f"there is no run {run!r} in this book")
        return bisected(run, receipts, self._derived, item, matters)

    def _derived(self, id: str) -> Iterator[str]:
        """The items that were derived from one, and so on down, as far as this actor may see them."""
        ahead, visited = [id], {id}
        with self._session.viewer() as viewer:
            while ahead:
                children = [str(child) for _, child in viewer.views.scan("children", ahead.pop())]
                new = [child for child in children if child not in visited and viewer.item(child) is not None]
                visited.update(new)
                ahead += new
                yield from new

    # what has just happened

    @verb
    def changed_facts(self, at: At = None) -> Events:
        """What this actor was told in digests and what has changed since, as far as no prompt has said so yet, as of
        `at`."""
        return changed_facts(self._session, at)

    window = method(window)
    salient = method(salient)


def _said_of_work(session: Session, focused: Focused) -> str:
    """What a prompt of this actor said of a work, as far as it may still know of that."""
    try:
        lines, _ = focus_of(session, focused.id).lines(focused.position)
    except NotFound:
        return ""
    return masked(headed(WORK, [line for _, line in lines[: focused.lines]]))
