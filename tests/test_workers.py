"""Workers: when they wait, when they have done their part, and what is left when somebody interrupts them."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, Self

import pytest

import commonplace
from commonplace import BadInput, Book, Claim, Task, Work
from commonplace.testing.servers import Server, postgres_server, valkey_server
from commonplace.work.worker import Worked
from tests.shells import COMMAND

LONG = 60.0


def fails(claim: Claim) -> str:
    if claim.task.title.startswith("bad"):
        raise ValueError("no way")
    return "fine"


def beside(run: Callable[[], Worked]) -> tuple[threading.Thread, list[Worked]]:
    """Let a worker work in a thread of its own."""
    told = list[Worked]()
    thread = threading.Thread(target=lambda: told.append(run()))
    thread.start()
    return thread, told


# before there are tasks


@pytest.mark.spec("5.3")
@pytest.mark.parametrize("until", ["done", "idle"])
def test_a_worker_that_is_started_first_waits_for_tasks_if_it_is_asked_to(work: Work, until: str) -> None:
    assert work.worker("dev-1", fails, until=until) == Worked("dev-1")
    waits, asked = threading.Event(), work.counts

    def counts(**how: Any) -> dict[str, int]:
        found = asked(**how)
        waits.set()  # it has seen that there are none
        return found

    work.counts = counts  # type: ignore[method-assign]
    thread, told = beside(lambda: work.worker("dev-1", fails, until=until, wait_for_tasks=True))
    assert waits.wait(LONG)
    work.add_tasks([{"title": "one"}, {"title": "two"}])
    thread.join(LONG)
    assert [one.completed for one in told] == [2]


@pytest.mark.spec("5.3")
def test_a_worker_that_waits_for_tasks_goes_when_the_work_is_given_up(book: Book, work: Work) -> None:
    thread, told = beside(lambda: work.worker("dev-1", fails, wait_for_tasks=True))
    book.work(id="auth").manage.abandon("nobody wants it")
    thread.join(LONG)
    assert [one.tasks for one in told] == [0]
    with pytest.raises(BadInput, match="wait_for_tasks"):
        work.worker("dev-1", fails, wait_for_tasks="yes")


@pytest.mark.spec("5.3", "7.1")
def test_so_does_a_worker_for_asyncio(book: Book) -> None:
    async def story() -> Worked:
        work = await book.aio.work(name="auth")

        async def handler(claim: Any) -> str:
            return "fine"

        working = asyncio.ensure_future(work.worker("dev-1", handler, wait_for_tasks=True))
        await asyncio.sleep(0)
        await work.add_task("one")
        found: Worked = await asyncio.wait_for(working, LONG)
        return found

    assert asyncio.run(story()).completed == 1


# what has failed


@pytest.mark.spec("5.3")
def test_a_failed_task_and_what_waits_for_it_do_not_keep_a_worker(work: Work) -> None:
    bad = work.add_task("bad")
    after = work.add_task("after it", depends_on=[bad])
    work.add_task("after both", depends_on=[after, work.add_task("good")])
    worked = work.worker("dev-1", fails, until="done")
    assert (worked.completed, worked.failed, worked.left) == (1, 1, 3)
    work.task(bad).retry()
    assert work.worker("dev-1", lambda claim: "fine", until="done") == Worked("dev-1", completed=3)


@pytest.mark.spec("5.3", "5.6")
@pytest.mark.parametrize("waits_for", ["an approval", "a review", "a reason", "somebody else"])
def test_what_somebody_can_still_bring_on_keeps_a_worker(work: Work, waits_for: str) -> None:
    work.add_task("bad", priority=9)
    task = work.add_task(
        "it", needs_review=waits_for == "a review", risk="all" if waits_for == "an approval" else ""
    )
    if waits_for == "a reason":
        work.task(task).block("the vendor")
    if waits_for == "somebody else":
        work.task(task).assign("dev-2")
    goes_on: dict[str, Callable[[], object]] = {
        "an approval": lambda: work.approvals.grant(task, by="pat"),
        "a review": lambda: work.review(task, "approved", by="qa"),
        "a reason": lambda: work.task(task).unblock(),
        "somebody else": lambda: work.worker("dev-2", fails, until="idle"),
    }
    stop = threading.Event()
    thread, told = beside(lambda: work.worker("dev-1", fails, stop=stop))
    for event in work.watch(after=0, timeout=LONG):
        if event.kind == "work.escalated":  # what has failed is with people now
            break
    if waits_for == "a review":
        for event in work.watch(after=0, timeout=LONG):
            if event.kind == "task.submitted":
                break
    assert thread.is_alive()
    goes_on[waits_for]()
    thread.join(LONG)
    stop.set()
    assert [(one.failed, one.left) for one in told] == [(1, 1)]
    assert work.task(task).info().status == "completed"


@pytest.mark.spec("5.3", "5.7")
def test_a_worker_waits_for_whoever_leads_to_decide_about_what_has_failed(work: Work) -> None:
    work.add_task("bad")
    tried = list[str]()

    def handler(claim: Claim) -> str:
        tried.append(claim.agent)
        return fails(claim) if len(tried) == 1 else "fine"

    with work.lead("chief") as lead:
        thread, told = beside(lambda: work.worker("dev-1", handler, poll=0.1))
        for event in work.watch(after=0, timeout=LONG):
            if event.kind == "task.failed":
                break
        step = lead.next()
        assert step is not None
        assert step.task is not None
        assert step.kind == "failed"
        lead.task(step.task).retry()
        thread.join(LONG)
    assert [(one.completed, one.failed, one.left) for one in told] == [(1, 1, 0)]


@pytest.mark.spec("5.3", "5.7")
def test_whoever_leads_ends_when_nothing_can_go_on(work: Work) -> None:
    work.add_task("after it", depends_on=[work.add_task("bad")])
    seen = list[str]()
    led, steps = beside(
        lambda: work.orchestrate("chief", lambda _lead, step: seen.append(step.kind))  # type: ignore[arg-type,return-value]
    )
    worked = work.worker("dev-1", fails, poll=0.1)
    led.join(LONG)
    assert (worked.failed, worked.left) == (1, 2)
    assert steps
    assert {"failed", "escalation", "stuck"} <= set(seen)


# interruptions


WORKS = """
import sys, commonplace, time
book = commonplace.open(sys.argv[1])

def handler(claim):
    print("at work", flush=True)
    time.sleep(600)

work = book.work(id="auth")
if sys.argv[2] == "worker":
    work.worker("dev-1", handler, lease=600)
elif sys.argv[2] == "asyncio":
    import asyncio

    async def waits(claim):
        print("at work", flush=True)
        await asyncio.sleep(600)

    async def main():
        await (await book.aio.work(id="auth")).worker("dev-1", waits, lease=600)

    asyncio.run(main())
else:
    with work.claim("dev-1", lease=600) as claim:
        handler(claim)
"""


def interrupted(command: list[str], **more: Any) -> int:
    """The exit code of a process that is interrupted while it does a task."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, **more
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert "at work" in process.stdout.readline(), process.stderr.read()
        os.kill(process.pid, signal.SIGINT)
        process.communicate(timeout=LONG)
        return process.returncode


@pytest.mark.spec("5.3", "5.8")
@pytest.mark.parametrize("how", ["worker", "asyncio", "with"])
@pytest.mark.parametrize("engine_name", ["files", "sqlite", "postgres", "redis"], indirect=True)
def test_ctrl_c_gives_the_task_back_at_once(work: Work, book_url: str, how: str) -> None:
    task = work.add_task("it", assigned_to="dev-1")
    assert interrupted([sys.executable, "-c", WORKS, book_url, how]) == -signal.SIGINT
    found: Task = work.task(task).info(at=work._session.ledger.head)  # and nobody has looked after it
    assert (found.status, found.failures, found.for_agent) == ("assigned", 0, "dev-1")
    claim = work.claim("dev-1")
    assert claim is not None
    claim.complete()


@pytest.mark.spec("5.3", "5.8")
@pytest.mark.parametrize("moment", ["work.claim", "work.complete"])
def test_ctrl_c_gives_back_what_the_book_has_just_claimed_for_a_worker(
    book: Book, work: Work, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    work.add_tasks([{"title": "one"}, {"title": "two"}, {"title": "three"}])
    namesake, submit = work.claim("dev-1", lease=600), book.ledger.submit
    assert namesake is not None

    def interrupted_after(command: str, *args: Any, **how: Any) -> Any:
        answer = submit(command, *args, **how)
        if command == moment:
            raise KeyboardInterrupt  # it is in the book, and nobody was told
        return answer

    monkeypatch.setattr(book.ledger, "submit", interrupted_after)
    with pytest.raises(KeyboardInterrupt):
        work.worker("dev-1", lambda _: "done", lease=600)
    monkeypatch.undo()
    done = "completed" if moment == "work.complete" else "pending"
    found = [(one.title, one.status, one.assigned_to) for one in work.tasks()]
    assert found[0] == ("one", "in_progress", "dev-1")  # which another worker of that name holds
    assert [status for _, status, _ in found[1:]] == [done, "pending"]
    namesake.complete("done")
    assert work.worker("dev-2", lambda _: "done").completed == (1 if done == "completed" else 2)


# in the shell


@pytest.mark.spec("5.3", "7.2")
@pytest.mark.parametrize("ends", [signal.SIGINT, signal.SIGTERM])
def test_a_command_in_the_shell_waits_for_tasks_and_gives_one_back_when_it_is_ended(
    tmp_path: Any, ends: signal.Signals
) -> None:
    where, pipe = str(tmp_path / "book.db"), str(tmp_path / "pipe")
    os.mkfifo(pipe)
    does = (
        "import os, sys, time; said = open(sys.argv[1], 'w', buffering=1); print(os.getpid(), file=said);"
        "time.sleep(600)"
    )
    command = ["work", "do", "auth", "--wait", "--as", "dev-1", "--", sys.executable, "-c", does, pipe]
    with commonplace.open(where) as book:
        work = book.work(name="auth", id="auth")
        with subprocess.Popen(
            [*COMMAND, "--book", where, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            work.add_task("it", id="t")
            with open(pipe) as said:
                assert said.readline().strip().isdecimal()  # it is at work
                process.send_signal(ends)
                assert process.communicate(timeout=LONG) == (b"", b"")
                assert said.read() == ""  # the command has ended, too: nobody has the pipe open any more
        assert process.returncode == 128 + ends
        assert work.task("t").info(at=book.head).status == "pending"


# a server that is away for a while


class Heard(logging.Handler):
    """Waits for a line of the log."""

    def __init__(self, text: str) -> None:
        super().__init__(logging.WARNING)
        self._text = text
        self._heard = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if self._text in record.getMessage():
            self._heard.set()

    def __enter__(self) -> Self:
        logging.getLogger("commonplace").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("commonplace").removeHandler(self)

    def wait(self) -> bool:
        return self._heard.wait(LONG)


def works_off(book: Book, how: str, handler: Callable[[Any], Any], stop: threading.Event) -> Worked:
    """With a thread, or with asyncio."""
    if how == "thread":
        return book.work(id="auth").worker("dev-1", handler, until="stopped", most=3, stop=stop)

    async def story() -> Worked:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def end() -> None:
            stop.wait(LONG)
            loop.call_soon_threadsafe(ended.set)

        loop.run_in_executor(None, end)
        work = await book.aio.work(id="auth")
        worked: Worked = await work.worker("dev-1", handler, until="stopped", most=3, stop=ended)
        stop.set()
        return worked

    return asyncio.run(story())


@pytest.mark.spec("5.3", "5.7")
@pytest.mark.parametrize("how", ["thread", "asyncio"])
@pytest.mark.parametrize("make", [valkey_server, postgres_server], ids=["valkey", "postgres"])
def test_a_worker_outlives_a_server_that_is_away_for_a_while(make: Callable[[], Server], how: str) -> None:
    with make() as server, commonplace.open(server.url, name="b", timeout=5) as book:
        work = book.work(name="auth", id="auth")
        work.add_tasks([{"title": title} for title in ("one", "two", "three")])

        def handler(claim: Any) -> str:
            if claim.task.title == "two":
                server.kill()  # what came of the task cannot be told now
            return "fine"

        stop = threading.Event()
        with Heard("dev-1 tries again in") as trouble, Heard("dev-1 has reached the book again") as back:
            thread, told = beside(lambda: works_off(book, how, handler, stop))
            assert trouble.wait()
            server.start()
            thread.join(LONG)
            assert back.wait()
        assert (told[0].completed, told[0].failed, told[0].lost) == (3, 0, 0)
        assert {task.status for task in work.tasks()} == {"completed"}
        assert [task.claims for task in work.tasks()] == [1, 1, 1]


@pytest.mark.spec("5.3", "5.7")
@pytest.mark.parametrize("how", ["thread", "asyncio"])
def test_a_worker_can_be_stopped_while_its_server_is_away(how: str) -> None:
    with valkey_server() as server, commonplace.open(server.url, name="b", timeout=5) as book:
        work = book.work(name="auth", id="auth")
        work.add_tasks([{"title": "one"}])
        stop = threading.Event()

        def handler(_claim: Any) -> str:
            server.kill()
            return "fine"

        with Heard("dev-1 tries again in") as trouble, Heard("dev-1 stops while the book") as stopped:
            thread, told = beside(lambda: works_off(book, how, handler, stop))
            assert trouble.wait()
            stop.set()
            thread.join(LONG)
            assert stopped.wait()
        assert told[0].tasks == 0
        server.start()


@pytest.mark.spec("L5")
def test_a_worker_whose_disk_is_full_says_so_at_once(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    work = book.work(name="auth", id="auth")
    work.add_tasks([{"title": "one"}])

    def full(*_: Any, **__: Any) -> None:
        raise commonplace.StorageFailed("the disk is full: free space")

    monkeypatch.setattr(Work, "claim", full)
    with pytest.raises(commonplace.StorageFailed):
        work.worker("dev-1", fails)


# what ends without news


@pytest.mark.spec("5.3", "5.8")
def test_a_waiting_worker_takes_over_when_the_lease_of_a_dead_one_ends(work: Work) -> None:
    work.add_task("it")
    dead = work.claim("dead", lease=0.3)
    assert dead is not None
    thread, told = beside(
        lambda: work.worker("dev-1", fails, lease=3600)
    )  # it would look by itself in half an hour
    thread.join(LONG)
    assert [one.completed for one in told] == [1]


@pytest.mark.spec("5.3", "5.8")
def test_a_waiting_worker_tries_again_when_the_pause_after_a_failure_is_over(work: Work) -> None:
    work.add_task("it", on_failure={"policy": "retry", "backoff": 0.3})
    tried = list[str]()

    def handler(claim: Claim) -> str:
        tried.append(claim.agent)
        if len(tried) == 1:
            raise ValueError("not yet")
        return "fine"

    thread, told = beside(lambda: work.worker("dev-1", handler, lease=3600))
    thread.join(LONG)
    assert [(one.completed, one.failed) for one in told] == [(1, 1)]


@pytest.mark.spec("5.3")
def test_a_worker_of_a_paused_work_sleeps_although_a_lease_has_ended(work: Work) -> None:
    work.add_task("it")
    assert work.claim("dead", lease=0.05) is not None
    work.manage.pause()
    assert work.manage.outlook().changes_in is None
    work.manage.resume()
    assert (work.manage.outlook().changes_in or 7.0) < 1


@pytest.mark.spec("5.3", "5.8")
@pytest.mark.parametrize("policy", ["retry", "reassign", "escalate", "skip", "abort"])
def test_a_failure_that_is_told_again_is_told_once(work: Work, policy: str) -> None:
    task = work.add_task("it", on_failure={"policy": policy, "backoff": 0})
    claim = work.claim("dev-1")
    assert claim is not None
    first, head = claim.fail("no way"), work._session.ledger.head
    assert claim.fail("no way") == first
    assert work._session.ledger.head == head
    assert work.task(task).info().failures == 1
    if policy in ("retry", "reassign"):
        after = work.claim("dev-2")
        assert after is not None
        after.fail("neither can I")
        with pytest.raises(commonplace.Fenced):
            claim.fail("no way")


@pytest.mark.spec("5.3", "5.8")
def test_a_worker_that_does_not_know_whether_its_failure_was_recorded_tells_it_once(
    book: Book, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commonplace.work.worker.FIRST_PAUSE", 0.01)
    task = work.add_task("bad", on_failure={"policy": "retry", "retries": 1, "backoff": 0})
    submit, told = book.ledger.submit, list[str]()

    def answer_is_lost(command: str, *args: Any, **how: Any) -> Any:
        answer = submit(command, *args, **how)
        told.append(command)
        if told.count("work.fail") == 1 and command == "work.fail":
            raise commonplace.OutcomeUnknown([], "the connection was lost")
        return answer

    monkeypatch.setattr(book.ledger, "submit", answer_is_lost)
    worked = work.worker("dev-1", fails)
    assert (worked.failed, worked.lost) == (2, 0)
    assert (work.task(task).info().failures, work.task(task).info().claims) == (2, 2)
