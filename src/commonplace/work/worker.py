"""A worker: claims tasks one after the other and does them, and is heard of as long as it lives."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, Self

import msgspec

from ..errors import BadInput, CommonplaceError, Conflict, Fenced, shown
from ..events import new_id
from .people import lead_lease
from .tasks import FINAL, Task, checked_flag
from .transaction import info_of
from .verbs import LEASE, Claim, seconds

if TYPE_CHECKING:
    import asyncio

    from .verbs import Work

log = logging.getLogger("commonplace")

Outcome = tuple[Any, Exception | None]
"""What a handler has answered, or what it has raised."""
Handler = Callable[[Claim], Any]
"""Does one task. What it returns is the result: nothing, a summary, or a mapping with the arguments of `complete`. It
may also complete, fail, block or release the claim itself. An exception fails the task."""

LONGEST_REASON = 2_000
UNTIL = ("done", "idle", "stopped")


class Worked(msgspec.Struct):
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

    @property
    def tasks(self) -> int:
        return self.completed + self.failed + self.lost + self.other


def work_off(
    work: Work,
    agent: str,
    handler: Handler,
    *,
    lease: float = LEASE,
    until: str = "done",
    most: int | None = None,
    poll: float | None = None,
    wait_for_tasks: bool = False,
    stop: threading.Event | None = None,
) -> Worked:
    """Do tasks until the work is over or nothing in it can go on ("done": every task is final, or has failed, or waits
    for one that has; it waits for people where something is to be reviewed or approved, and as long as somebody leads
    who may decide about what has failed), nothing is ready ("idle"), or only when `stop` is set ("stopped"); at most so
    many. With `wait_for_tasks`, a work that has no tasks yet is neither done nor idle. While the handler works,
    heartbeats go out by themselves. When nothing is ready it sleeps until something happens, and looks every `poll`
    seconds (half a lease) for tasks of workers that have died. Whoever interrupts it (Ctrl-C) gives its task back."""
    _check(handler, until, most, wait_for_tasks)
    length, told, stopped = seconds("lease", lease), Worked(agent), stop or threading.Event()
    pause = length / 2 if poll is None else seconds("poll", poll)
    claim, event = None, new_id()
    try:
        with Beats(agent, length) as beats:
            while not stopped.is_set() and (most is None or told.tasks < most):
                head = 0
                if claim is None:
                    head = work._asker._position()
                    event = new_id()
                    claim = claimed(work, agent, length, event)
                if claim is not None:
                    with beats.of(claim):
                        outcome = _done_by(handler, claim)
                        more, event = not stopped.is_set() and told.tasks + 1 != most, new_id()
                        claim = settle(claim, told, outcome, more, event)
                elif _ends(work, until, wait_for_tasks, told):
                    break
                else:
                    _say_what_it_waits_for(work, agent, told)
                    _wait(work, head, pause, stopped)
    except Exception:
        raise  # trouble with the book: the holder may still tell what came of its task
    except BaseException:
        give_back(claim)
        _give_back_unseen(work, agent, event)
        raise
    give_back(claim)
    return told


def _give_back_unseen(work: Work, agent: str, event: str) -> None:
    """What a worker holds and does not know of: an interrupt can come when a claim is in the book and before
    the call has answered. `event` is the id of the last claim that the worker has asked for."""
    try:
        work._do("reclaim")  # this is done when all that was being written is written, or will never be
        found = work._ledger.event(event)
        claim = None if found is None else work.reopen_claim(found.payload["task_id"], found.position)
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


def _say_what_it_waits_for(work: Work, agent: str, told: Worked) -> None:
    """Once, if nobody is at work: then only a person or whoever leads can bring it on."""
    counts = work.counts()
    if told.waited or counts.get("in_progress", 0) or not counts:
        return
    told.waited = True
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
    checked_flag("wait_for_tasks", wait_for_tasks)


def claimed(work: Work, agent: str, lease: float, event: str | None = None) -> Claim | None:
    """The next task, or None; also when the work has ended meanwhile."""
    try:
        return work.claim(agent, lease=lease, _event=event)
    except Conflict:
        if work.info().open:
            raise
        return None


def _ends(work: Work, until: str, wait_for_tasks: bool, told: Worked) -> bool:
    """Whether a worker for which nothing is ready has done its part."""
    if until == "stopped":
        return False
    if wait_for_tasks and not work.counts().get("tasks") and work.info().open:
        return False
    if until == "idle":
        return True
    is_open, is_over, counts = _standing(work)
    if not is_over:
        return False
    if not is_open or not counts.get("failed"):
        return True
    if _is_led(work):  # by somebody who may let it be tried again
        return False
    told.left = counts["tasks"] - sum(counts.get(status, 0) for status in FINAL)
    log.warning(
        "%s leaves %s tasks undone: they have failed, or wait for one that has", told.agent, told.left
    )
    return True


def over(work: Work) -> bool:
    """Whether nothing can go on in a work unless somebody decides: it has ended, or each of its tasks is final, has
    failed, or waits for one that has."""
    return _standing(work)[1]


def _standing(work: Work) -> tuple[bool, bool, dict[str, int]]:
    """Whether a work is open, whether it is over, and its counts: all as of one moment, because a leader may let a task
    be tried again between two looks."""
    with work._reading(None) as (reading, _):
        info, counts = info_of(reading.lens, work.id), dict(reading.counts)
        if info is None or not info.open:
            return False, True, counts
        if sum(counts.get(status, 0) for status in FINAL) >= counts.get("tasks", 0):
            return True, True, counts
        if not counts.get("failed") or counts.get("in_progress") or counts.get("review"):
            return True, False, counts
        if reading.first(("later", *reading.ready_for_somebody()), 1):
            return True, False, counts
        hanging = all_hang(list(reading.listed("failed", "blocked", "waiting", "assigned")))
        return True, hanging, counts


def all_hang(tasks: Sequence[Task]) -> bool:
    """Whether each of these tasks has failed, or waits for one that has, by way of others or not."""
    below = dict[str, list[str]]()
    for task in tasks:
        for id in task.depends_on:
            below.setdefault(id, []).append(task.id)
    ahead = [task.id for task in tasks if task.status == "failed"]
    found = set(ahead)
    while ahead:
        fresh = [id for id in below.get(ahead.pop(), ()) if id not in found]
        found.update(fresh)
        ahead += fresh
    return len(found) == len(tasks)


def _is_led(work: Work) -> bool:
    led = work.info().led
    if led is None:
        return False
    with work._ledger.reads() as reads:
        return bool(reads.leases([lead_lease(work.id, led)]))


def _wait(work: Work, head: int, pause: float, stopped: threading.Event) -> None:
    until = monotonic() + pause
    while not stopped.is_set() and (left := until - monotonic()) > 0:
        if work._ledger.store.wait(head, min(left, 0.5)) > head:
            return


def settle(
    claim: Claim, told: Worked, outcome: Outcome, more: bool, event: str | None = None
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
            told.failed += 1
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
            told.completed += 1
        elif claim.task.status == "failed" or claim.task.failures:
            told.failed += 1
        else:
            told.other += 1
    except Conflict as lost:  # somebody else has it, or the work was given up
        log.warning("%s lost task %s: %s", claim.agent, claim.task.id, lost)
        told.lost += 1
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


class Held(Protocol):
    """What is somebody's own for as long as it is heard of: a claim, or the lead of a work."""

    agent: str
    lease: float

    def heartbeat(self) -> Any: ...


class Beats:
    """Heartbeats from a thread of their own, three in each lease, for what an agent holds at the time. What they bring
    for it to be told at once is kept for its next look."""

    def __init__(self, agent: str, lease: float) -> None:
        self._every = lease / 3
        self._held: Held | None = None
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
    def of(self, held: Held) -> Iterator[None]:
        self.begin(held)
        try:
            yield
        finally:
            self.end()

    def begin(self, held: Held) -> None:
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

    def _heartbeat(self, held: Held) -> None:
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
def beating(held: Held) -> Iterator[None]:
    """Heartbeats for one thing, until the block ends."""
    with Beats(held.agent, held.lease) as beats, beats.of(held):
        yield


AsyncHandler = Callable[[Any], Awaitable[Any] | Any]


async def work_off_async(
    aio: Any,
    lift: Callable[[Claim], Any],
    work: Work,
    agent: str,
    handler: AsyncHandler,
    *,
    lease: float = LEASE,
    until: str = "done",
    most: int | None = None,
    poll: float | None = None,
    wait_for_tasks: bool = False,
    stop: asyncio.Event | None = None,
) -> Worked:
    """The same with a handler that is awaited: it is given the claim with awaitable verbs."""
    import asyncio

    told, length = Worked(agent), seconds("lease", lease)
    _check(handler, until, most, wait_for_tasks)
    pause = length / 2 if poll is None else seconds("poll", poll)
    stopped = stop or asyncio.Event()
    claim: Claim | None = None
    try:
        with Beats(agent, length) as beats:
            while not stopped.is_set() and (most is None or told.tasks < most):
                head = 0
                if claim is None:
                    head = await aio._run(work._asker._position)
                    claim = await _to_its_end(aio, lambda: claimed(work, agent, length))
                if claim is not None:
                    beats.begin(claim)
                    try:
                        outcome = await _awaited(handler, lift(claim))
                        more = not stopped.is_set() and told.tasks + 1 != most
                        settling = partial(settle, claim, told, outcome, more)
                        claim = await _to_its_end(aio, settling)
                    finally:
                        await aio._run(beats.end)
                elif await aio._run(lambda: _ends(work, until, wait_for_tasks, told)):
                    break
                else:
                    news = asyncio.ensure_future(aio._news.beyond(head))
                    await asyncio.wait([news], timeout=pause)
                    news.cancel()
    except Exception:
        raise  # as in `work_off`
    except BaseException:
        await aio._run(lambda: give_back(claim))
        raise
    await aio._run(lambda: give_back(claim))
    return told


async def _to_its_end(aio: Any, call: Callable[[], Claim | None]) -> Claim | None:
    """What a call in a thread has claimed. If its caller is cancelled meanwhile, the call comes to its end all the
    same, and what it has claimed is given back."""
    import asyncio

    calling = asyncio.ensure_future(aio._run(call))
    try:
        found: Claim | None = await asyncio.shield(calling)
    except asyncio.CancelledError:
        found = await calling
        await aio._run(lambda: give_back(found))
        raise
    return found


async def _awaited(handler: AsyncHandler, claim: Any) -> Outcome:
    try:
        answer = handler(claim)
        return (await answer if inspect.isawaitable(answer) else answer), None
    except Exception as error:  # noqa: BLE001  it is told as the task's failure
        return None, error
