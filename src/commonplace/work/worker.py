"""A worker: claims tasks one after the other and does them, and is heard of as long as it lives."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import msgspec

from ..errors import (
    BadInput,
    Busy,
    CommonplaceError,
    Conflict,
    EngineUnavailable,
    Fenced,
    OutcomeUnknown,
    StorageFailed,
    shown,
)
from ..ledger.checks import check_flag
from ..ledger.events import new_id
from ..ledger.printing import Readable
from .checks import seconds
from .holding import Claim
from .tasks import FINAL
from .verbs import LEASE

if TYPE_CHECKING:
    from .verbs import Work

log = logging.getLogger("commonplace")

Outcome = tuple[Any, Exception | None]
"""What a handler has answered, or what it has raised."""
Handler = Callable[[Claim], Any]
"""Does one task. What it returns is the result: nothing, a summary, or a mapping with the arguments of `complete`. It
may also complete, fail, block or release the claim itself. An exception fails the task."""

T = TypeVar("T")

LONGEST_REASON = 2_000
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 8.0
"""How many seconds a worker waits before it tries again to reach the book."""
OUTAGE = 300.0
"""After how many seconds it gives up."""
UNTIL = ("done", "idle", "stopped")


class Worked(Readable, msgspec.Struct):
    """What a worker has done until it stopped."""

    agent: str
    completed: int = 0
    failed: int = 0
    lost: int = 0
    """Tasks that went on without it because it was not heard of in time."""
    other: int = 0
    """Tasks that it released or blocked itself."""
    waited: bool = False
    """Whether it had nothing to do for a while, with nobody else at work."""
    left: int = 0
    """Tasks that were left undone when it stopped because nobody could go on: those that had failed, and those that
    wait for them."""

    def __str__(self) -> str:
        left = f", {self.left:,} left undone" if self.left else ""
        return f"{self.agent}: {self.completed:,} completed, {self.failed:,} failed, {self.lost:,} lost{left}"

    @property
    def tasks(self) -> int:
        return self.completed + self.failed + self.lost + self.other


class _Worker:
    """Does the tasks of one work, one after the other, until it is stopped or has done its part."""

    def __init__(
        self,
        work: Work,
        agent: str,
        handler: Handler,
        stopped: threading.Event,
        lease: float = LEASE,
        until: str = "done",
        most: int | None = None,
        poll: float | None = None,
        wait_for_tasks: bool = False,
    ) -> None:
        _check(handler, until, most, wait_for_tasks)
        self._work, self._agent, self._handler, self._stopped = work, agent, handler, stopped
        self._done = Worked(agent)
        self._lease = seconds("lease", lease)
        self._poll = self._lease / 2 if poll is None else seconds("poll", poll)
        self._most, self._ends = most, partial(_ends, work, until, wait_for_tasks, self._done)
        self._claim: Claim | None = None
        self._event = new_id()
        """The id of the last claim that it has asked for."""
        self._is_unsure = False
        """Whether that claim may be in the book although the call has failed."""

    def run(self) -> Worked:
        """Interrupted, it gives back what it holds. After other errors it keeps it, to say later what came of it."""
        try:
            with Beats(self._agent, self._lease) as beats:
                while self._goes_on():
                    if self._claim is None and self._patiently(self._look) is not True:
                        break
                    if self._claim is not None:
                        with beats.of(self._claim):
                            self._do(self._claim)
        except BaseException as error:
            if not isinstance(error, Exception):
                give_back(self._claim)
                _give_back_unseen(self._work, self._agent, self._event)
            raise
        give_back(self._claim)
        return self._done

    def _goes_on(self, more: int = 0) -> bool:
        return not self._stopped.is_set() and (self._most is None or self._done.tasks + more < self._most)

    def _look(self) -> bool:
        """Claim a task, or wait until there may be one. False if nothing is ready and the worker has done its part."""
        head = self._work._session.ledger.head
        if self._is_unsure:
            with suppress(Conflict):  # it is no longer held
                self._claim = self._claimed_again()
            self._is_unsure = False
        if self._claim is None:
            self._event = new_id()
            self._claim = claimed(self._work, self._agent, self._lease, self._event)
        if self._claim is None:
            if self._ends():
                return False
            _say_what_it_waits_for(self._work, self._agent, self._done)
            pause = self._work.manage.outlook().changes_in
            _wait(self._work, head, min(self._poll, pause or self._poll), self._stopped)
        return True

    def _claimed_again(self) -> Claim | None:
        """The claim whose answer was lost. A server answers the same call again as the first time."""
        if self._work._session.remote is not None:
            return claimed(self._work, self._agent, self._lease, self._event)
        return _held_under(self._work, self._event)

    def _do(self, claim: Claim) -> None:
        """Do a task and say what came of it; the next one may come with the answer."""
        outcome = _done_by(self._handler, claim)
        self._event = new_id()
        self._claim = self._patiently(
            partial(settle, claim, self._done, outcome, self._goes_on(1), self._event)
        )

    def _patiently(self, call: Callable[[], T]) -> T | None:
        """What a call of the book answers. While the book cannot be reached it is made again after longer and longer
        pauses; None if the worker is stopped meanwhile. Raises the last error after OUTAGE seconds."""
        begun, pause = monotonic(), FIRST_PAUSE
        while True:
            try:
                answer = call()
            except (EngineUnavailable, Busy, OutcomeUnknown) as error:
                self._is_unsure |= isinstance(error, OutcomeUnknown)
                if isinstance(error, StorageFailed) or monotonic() - begun > OUTAGE:
                    raise
                if self._stopped.is_set():
                    log.warning("%s stops while the book cannot be reached: %s", self._agent, error)
                    return None
                log.warning("%s tries again in %g s: %s", self._agent, pause, error)
            else:
                if pause > FIRST_PAUSE:
                    log.warning("%s has reached the book again", self._agent)
                return answer
            self._stopped.wait(pause)
            pause = min(pause * 2, LONGEST_PAUSE)


def work_off(
    work: Work, agent: str, handler: Handler, *, stop: threading.Event | None = None, **how: Any
) -> Worked:
    """Do tasks until the work is over or nothing in it can go on (`until="done"`: every task is final, or has failed,
    or waits for one that has; it waits for people where something is to be reviewed or approved, and as long as
    somebody leads who may decide about what has failed), nothing is ready ("idle"), or only when `stop` is set
    ("stopped"); at most `most` tasks. With `wait_for_tasks`, a work that has no tasks yet is neither done nor idle.
    While the handler works, heartbeats go out by themselves. When nothing is ready it sleeps until something happens,
    the lease of a task ends, or `poll` seconds (half a `lease`) have passed. While the book cannot be reached, it tries
    again for five minutes. An interrupt (Ctrl-C) gives its task back."""
    return _Worker(work, agent, handler, stop or threading.Event(), **how).run()


def _held_under(work: Work, event: str) -> Claim | None:
    """The claim that was recorded under this id, if it was. Raises Conflict if it is no longer held."""
    claim = work._ledger.event(event)
    return None if claim is None else work.reopen_claim(claim.payload["task_id"], claim.position)


def _give_back_unseen(work: Work, agent: str, event: str) -> None:
    """What a worker holds and does not know of: an interrupt can come when a claim is in the book and before
    the call has answered. `event` is the id of the last claim that the worker has asked for."""
    if work._session.remote is not None:
        return  # the lease of such a claim ends by itself
    try:
        work._do("reclaim")  # this is done when all that was being written is written, or will never be
        claim = _held_under(work, event)
    except Conflict as gone:  # it was given back already, or settled
        log.info("%s had nothing more to give back: %s", agent, gone)
    except CommonplaceError as error:
        log.warning("%s cannot tell whether it still holds a task: %s", agent, error)
    else:
        give_back(claim)


def _done_by(handler: Handler, claim: Claim) -> Outcome:
    try:
        return handler(claim), None
    except Exception as error:  # noqa: BLE001  it is told as the task's failure
        return None, error


def give_back(claim: Claim | None) -> None:
    """What a worker has in hand when it is stopped or interrupted, or what came with the end of another task."""
    if claim is None or claim._done:
        return
    try:
        claim.release("its worker was stopped")
    except Conflict as gone:  # it was settled, or the work ended, in the same moment
        log.info("%s had nothing to give back: %s", claim.agent, gone)
    except CommonplaceError as error:  # then it goes back when its lease has run out
        log.warning("%s could not give back task %s: %s", claim.agent, claim.task.id, error)


def _say_what_it_waits_for(work: Work, agent: str, worked: Worked) -> None:
    """Once, if nobody is at work: then only a person or the leader can bring it on."""
    counts = work.counts()
    if worked.waited or counts.get("in_progress", 0) or not counts:
        return
    worked.waited = True
    left = [
        f"{counts[name]:,} {name}" for name in ("failed", "blocked", "review", "assigned") if counts.get(name)
    ]
    log.warning("%s waits for somebody to decide: of the tasks %s", agent, ", ".join(left) or "none is ready")


def _check(handler: object, until: object, most: object, wait_for_tasks: object) -> None:
    if not callable(handler):
        raise BadInput(f"handler {shown(handler)} cannot be called: give a function of a claim")
    if until not in UNTIL:
        raise BadInput(f"until {shown(until)} is not one of {', '.join(UNTIL)}")
    if most is not None and (type(most) is not int or most < 1):
        raise BadInput(f"most {shown(most)} is not a number of tasks: give a whole number from 1, or None")
    check_flag("wait_for_tasks", wait_for_tasks)


def claimed(work: Work, agent: str, lease: float, event: str | None = None) -> Claim | None:
    """The next task, or None; also when the work has ended meanwhile."""
    try:
        return work.claim(agent, lease=lease, _event=event)
    except Conflict:
        if work.info().open:
            raise
        return None


def _ends(work: Work, until: str, wait_for_tasks: bool, worked: Worked) -> bool:
    """Whether a worker for which nothing is ready has done its part."""
    if until == "stopped":
        return False
    if wait_for_tasks and not work.counts().get("tasks") and work.info().open:
        return False
    if until == "idle":
        return True
    outlook = work.manage.outlook()
    counts = outlook.counts
    if not outlook.over:
        return False
    if not outlook.open or not counts.get("failed"):
        return True
    if outlook.led:  # by somebody who may let it be tried again
        return False
    worked.left = counts["tasks"] - sum(counts.get(status, 0) for status in FINAL)
    log.warning(
        "%s leaves %s tasks undone: they have failed, or wait for one that has", worked.agent, worked.left
    )
    return True


def over(work: Work) -> bool:
    """Whether nothing can go on in a work unless somebody decides: it has ended, or each of its tasks is final, has
    failed, or waits for one that has."""
    return work.manage.outlook().over


def _wait(work: Work, head: int, pause: float, stopped: threading.Event) -> None:
    until = monotonic() + pause
    while not stopped.is_set() and (left := until - monotonic()) > 0:
        if work._session.ledger.store.wait(head, min(left, 0.5)) > head:
            return


def settle(
    claim: Claim, worked: Worked, outcome: Outcome, more: bool, event: str | None = None
) -> Claim | None:
    """Say what came of a task. If there is to be `more`, answers the next one where it comes with that; its claim is
    the `event` with that id."""
    answer, error = outcome
    following = None
    try:
        if isinstance(error, Fenced):
            raise error
        if error is not None:
            log.warning("task %s failed in the hands of %s", claim.task.id, claim.agent, exc_info=error)
            if not claim._done:
                claim.fail(_cut(f"{type(error).__name__}: {error}"))
            worked.failed += 1
            return None
        try:
            following = finish(claim, answer, more, event)
        except Conflict:
            raise
        except Exception as wrong:
            if isinstance(wrong, CommonplaceError) and wrong.status >= 500:
                raise  # trouble with the book, of which the handler knows nothing
            log.warning("what came of task %s cannot be told", claim.task.id, exc_info=True)
            claim.fail(_cut(f"its handler returned what is no result ({wrong})"))
        if claim.task.status in ("completed", "review"):
            worked.completed += 1
        elif claim.task.status == "failed" or claim.task.failures:
            worked.failed += 1
        else:
            worked.other += 1
    except Conflict as lost:  # somebody else has it, or the work was given up
        log.warning("%s lost task %s: %s", claim.agent, claim.task.id, lost)
        worked.lost += 1
    return following


def _cut(reason: str) -> str:
    """A reason of a length that people read. The whole of it is in the log."""
    left = len(reason) - LONGEST_REASON
    return (
        reason
        if left <= 0
        else f"{reason[:LONGEST_REASON]} … ({left:,} characters more, in the worker's log)"
    )


def finish(claim: Claim, answer: Any, more: bool = False, event: str | None = None) -> Claim | None:
    """Complete a task with what its handler returned, unless the handler did so itself."""
    if claim._done:
        return None
    result = answer if isinstance(answer, Mapping) else {"summary": "" if answer is None else str(answer)}
    if more:
        return claim.next(**result, _event=event)
    claim.complete(**result)
    return None


class Leased(Protocol):
    """What is somebody's own for as long as it is heard of: a claim, or the lead of a work."""

    agent: str
    lease: float

    def heartbeat(self) -> Any: ...


class Beats:
    """Heartbeats from a thread of their own, three in each lease, for what an agent holds at the time. What they bring
    for it to be told at once is kept for its next look."""

    def __init__(self, agent: str, lease: float) -> None:
        self._every = lease / 3
        self._held: Leased | None = None
        self._since = 0.0
        self._mutex = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True, name=f"commonplace-heartbeat-{agent}")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @contextmanager
    def of(self, held: Leased) -> Iterator[None]:
        self.begin(held)
        try:
            yield
        finally:
            self.end()

    def begin(self, held: Leased) -> None:
        with self._mutex:
            self._held, self._since = held, monotonic()

    def end(self) -> None:
        with self._mutex:  # none is under way any more
            self._held = None

    def _beat(self) -> None:
        pause = self._every
        while not self._ended.wait(pause):
            with self._mutex:
                pause = self._every
                if self._held is None:
                    continue
                age = monotonic() - self._since
                if age < self._every:
                    pause -= age
                else:
                    self._heartbeat(self._held)

    def _heartbeat(self, held: Leased) -> None:
        try:
            urgent = held.heartbeat()
            if isinstance(held, Claim):
                held.urgent += urgent
        except Conflict as lost:
            if not (isinstance(held, Claim) and held._done):
                log.warning("%s", lost)
            self._held = None
        except Exception as error:  # noqa: BLE001  the store may be back before the lease ends
            log.warning("no heartbeat of %s for %r: %s: %s", held.agent, held, type(error).__name__, error)


@contextmanager
def beating(held: Leased) -> Iterator[None]:
    """Heartbeats for one thing, until the block ends."""
    with Beats(held.agent, held.lease) as beats, beats.of(held):
        yield
