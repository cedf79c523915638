"""Group commit: who leads, who follows, and what everyone is told when something breaks."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import commonplace
from commonplace import Book
from commonplace.engines.contract import WriteConflict, WriteSet
from commonplace.engines.memory import MemoryStore
from commonplace.testing.transactions import Apply, each_apply
from tests.toy import TOY, Put


class Interruptible:
    """Stands between the committer and a store's transactions, counts commits and can break one."""

    def __init__(self, book: Book) -> None:
        self.commits = 0
        self.batches: list[int] = []
        self.before: Callable[[WriteSet], None] = lambda write: None
        self.after: Callable[[WriteSet], None] = lambda write: None
        self._watching = each_apply(book.ledger.store, self._instead)
        self._watching.__enter__()

    def _instead(self, apply: Apply, write: WriteSet) -> None:
        self.before(write)
        apply(write)
        self.commits += 1
        self.batches.append(len(write.records))
        self.after(write)


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    with commonplace.open(tmp_path / "b.db", capabilities=[TOY]) as opened:
        yield opened


def in_threads(*calls: Callable[[], object]) -> list[object]:
    """Run the calls at once; their answers or errors, in order."""
    answers: list[object] = [None] * len(calls)

    def run(i: int, call: Callable[[], object]) -> None:
        try:
            answers[i] = call()
        except Exception as error:
            answers[i] = error

    threads = [threading.Thread(target=run, args=(i, call)) for i, call in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return answers


def held_up(book: Book, middle: Interruptible, followers: int) -> threading.Event:
    """Keep the first commit waiting until as many followers have queued behind it."""
    committer, led = book.ledger._committer, threading.Event()

    def wait_for_followers(_: WriteSet) -> None:
        if not led.is_set():
            led.set()
            while len(committer._queue) < followers:
                threading.Event().wait(0.001)

    middle.before = wait_for_followers
    return led


@pytest.mark.spec("L2", "L4")
def test_whoever_leads_commits_for_everyone_who_waits(book: Book) -> None:
    middle = Interruptible(book)
    led = held_up(book, middle, followers=20)

    def follower(i: int) -> Callable[[], object]:
        def call() -> object:
            led.wait(30)
            return book.record("agent.spoke", actor=f"a{i}", payload={"i": i})

        return call

    events = in_threads(lambda: book.record("agent.spoke"), *(follower(i) for i in range(20)))
    assert sorted(event.position for event in events) == list(range(1, 22))  # type: ignore[attr-defined]
    assert middle.batches[0] == 1
    assert middle.commits <= 3
    assert book.verify().ok


@pytest.mark.spec("L4", "5.8")
def test_commands_are_decided_in_the_order_in_which_they_came(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits behind those who came later, whoever leads."""
    committer, came, decided = book.ledger._committer, list[str](), list[str]()
    decide = committer._decide

    class Queue(deque[Any]):
        together = threading.Lock()

        def append(self, ticket: Any) -> None:
            with self.together:
                came.append(ticket.request[0].id)
                super().append(ticket)

    def noted(overlay: Any, own: Any) -> Any:
        tickets = decide(overlay, own)
        decided.extend(ticket.request[0].id for ticket in tickets)
        return tickets

    monkeypatch.setattr(committer, "_queue", Queue())
    monkeypatch.setattr(committer, "_decide", noted)

    def write(name: str) -> None:
        for i in range(40):
            book.record("agent.spoke", id=f"{name}{i}")

    in_threads(*(lambda name=name: write(name) for name in "abcdefgh"))
    assert len(came) == 320
    assert decided == came == [event.id for event in book.events()]


@pytest.mark.spec("L2", "5.8")
def test_a_leader_whose_turn_has_not_come_goes_on_after_a_lost_answer(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One batch takes one command. It leads for the one before it, whose commit is not answered."""
    monkeypatch.setattr("commonplace.ledger.committer.MAX_BATCH", 1)
    middle, committer = Interruptible(book), book.ledger._committer
    led = held_up(book, middle, followers=2)

    def lose_one(write: WriteSet) -> None:
        if write.records[0].id == "f0":
            raise commonplace.OutcomeUnknown(["f0"], "the line went dead")

    def follower(i: int) -> object:
        led.wait(30)
        while len(committer._queue) < i:
            threading.Event().wait(0.001)
        return book.record("agent.spoke", id=f"f{i}")

    middle.after = lose_one
    monkeypatch.setattr(
        "commonplace.ledger.committer.wake", lambda lock: None
    )  # so that any of them may lead
    _, lost, kept = in_threads(
        lambda: book.record("agent.spoke"), *(lambda i=i: follower(i) for i in range(2))
    )
    assert isinstance(lost, commonplace.OutcomeUnknown)
    assert isinstance(kept, commonplace.Event)
    assert [event.id for event in book.events()][1:] == ["f0", "f1"]


@pytest.mark.spec("L2")
def test_those_whose_commands_were_not_decided_go_again_after_a_lost_answer(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch has three commands, and time for one of them. Nothing of the other two can have been written."""
    monkeypatch.setattr("commonplace.ledger.committer.MAX_BATCH_SECONDS", 0)
    middle = Interruptible(book)
    led, lost = held_up(book, middle, followers=3), list[str]()

    def lose_one(write: WriteSet) -> None:
        if write.records[0].id != "leader" and not lost:
            lost.extend(record.id for record in write.records)
            raise commonplace.OutcomeUnknown(lost, "the line went dead")

    middle.after = lose_one
    answers = in_threads(
        lambda: book.record("agent.spoke", id="leader"),
        *(lambda i=i: led.wait(30) and book.record("agent.spoke", id=f"f{i}") for i in range(3)),
    )
    (unknown,) = [answer for answer in answers if isinstance(answer, commonplace.OutcomeUnknown)]
    assert len(unknown.ids) == 1
    assert list(unknown.ids) == lost
    assert {answer.id for answer in answers if isinstance(answer, commonplace.Event)} == {
        "leader", "f0", "f1", "f2"
    } - {*lost}  # fmt: skip
    assert book.head == 4


@pytest.mark.spec("L4")
def test_one_bad_command_does_not_hurt_the_others_of_its_batch(book: Book) -> None:
    middle = Interruptible(book)
    led = held_up(book, middle, followers=4)

    def later(call: Callable[[], object]) -> Callable[[], object]:
        return lambda: led.wait(30) and call()

    submit = book.ledger.submit
    answers = in_threads(
        lambda: book.record("agent.spoke", id="first"),
        later(lambda: submit("put", Put("tea", 3))),
        later(lambda: submit("crash", "tea")),
        later(lambda: submit("put", Put("tea", -9))),
        later(lambda: book.record("agent.spoke", id="first", payload={"other": 1})),
    )
    assert answers[1] == 3
    assert [type(answer).__name__ for answer in answers[2:]] == ["ZeroDivisionError", "Conflict", "Conflict"]
    assert book.head == 2
    with book.ledger.snapshot() as snapshot:
        assert snapshot.get("jars", "tea")["coins"] == 3


@pytest.mark.spec("L2")
def test_trouble_before_the_commit_fails_the_leader_and_the_others_go_again(book: Book) -> None:
    middle = Interruptible(book)
    led = held_up(book, middle, followers=5)
    queue_up = middle.before

    def break_once(write: WriteSet) -> None:
        queue_up(write)
        middle.before = lambda _: None
        raise commonplace.StorageFailed("the disk is full")

    middle.before = break_once
    answers = in_threads(
        lambda: book.record("agent.spoke", id="leader"),
        *(lambda i=i: led.wait(30) and book.record("agent.spoke", id=f"f{i}") for i in range(5)),
    )
    assert isinstance(answers[0], commonplace.StorageFailed)
    assert all(isinstance(answer, commonplace.Event) for answer in answers[1:])
    assert {event.id for event in book.events()} == {f"f{i}" for i in range(5)}


@pytest.mark.spec("L2")
def test_trouble_between_apply_and_answer_is_reported_as_unknown_and_can_be_looked_up(book: Book) -> None:
    middle = Interruptible(book)
    led = held_up(book, middle, followers=4)

    def lose_the_answer(write: WriteSet) -> None:
        if len(write.records) > 1:
            middle.after = lambda _: None
            raise commonplace.OutcomeUnknown([record.id for record in write.records], "the line went dead")

    middle.after = lose_the_answer
    answers = in_threads(
        lambda: book.record("agent.spoke", id="leader"),
        *(lambda i=i: led.wait(30) and book.record("agent.spoke", id=f"f{i}") for i in range(3)),
        lambda: led.wait(30) and book.record("agent.spoke", id="leader", payload={"other": 1}),
    )
    assert isinstance(answers[0], commonplace.Event)
    assert isinstance(answers[4], commonplace.Conflict)  # of what was refused nothing is unknown
    for i, answer in enumerate(answers[1:4]):
        assert isinstance(answer, commonplace.OutcomeUnknown)
        assert answer.ids == (f"f{i}",)
        assert book.event(f"f{i}").id == f"f{i}"
        assert book.record("agent.spoke", id=f"f{i}") == book.event(f"f{i}")
    assert book.head == 4


@pytest.mark.spec("L2")
def test_a_commit_that_fails_leaves_a_book_that_goes_on(tmp_path: Path) -> None:
    """SQLite itself reports the failed commit; the connection is dropped and the next write uses a new one."""
    with commonplace.open(tmp_path / "b.db") as book:
        book.record("agent.spoke", id="before")
        store = book.ledger.store
        writer = store._writer  # type: ignore[attr-defined]
        writer.set_commit_hook(lambda: True)  # turns COMMIT into an error
        with pytest.raises(commonplace.OutcomeUnknown) as unknown:
            book.record("agent.spoke", id="lost")
        assert unknown.value.ids == ("lost",)
        with pytest.raises(commonplace.NotFound):
            book.event("lost")
        assert book.record("agent.spoke", id="lost").position == 2
        assert book.verify().ok


@pytest.mark.spec("L2")
@pytest.mark.parametrize("applied", [False, True], ids=["before it is written", "after it was written"])
def test_those_who_follow_an_interrupted_leader_go_on_or_are_told(
    book: Book, applied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C reaches the leader in the middle of a commit for three."""
    middle, committer = Interruptible(book), book.ledger._committer
    led, decide, due = held_up(book, middle, followers=3), committer._decide, [KeyboardInterrupt()]

    def decided(overlay: Any, own: Any) -> Any:
        answer = decide(overlay, own)
        if not applied and len(own.batch) == 3:
            raise due.pop() if due else AssertionError("twice")
        return answer

    def after(write: WriteSet) -> None:
        if applied and len(write.records) == 3:
            raise due.pop()

    monkeypatch.setattr(committer, "_decide", decided)
    middle.after = after

    def follower(i: int) -> object:
        led.wait(30)
        try:
            return book.record("agent.spoke", id=f"f{i}")
        except KeyboardInterrupt:
            return "interrupted"

    answers = in_threads(lambda: book.record("agent.spoke"), *(lambda i=i: follower(i) for i in range(3)))
    told = sorted(type(answer).__name__ for answer in answers[1:])
    assert told == (["OutcomeUnknown"] * 2 + ["str"] if applied else ["Event"] * 2 + ["str"])
    assert len([event for event in book.events() if event.id.startswith("f")]) == (3 if applied else 2)
    assert book.record("agent.spoke").position == book.head


@pytest.mark.spec("L2")
def test_who_is_put_back_by_a_leader_that_is_interrupted_then_goes_on(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C reaches the leader while it puts the commands of others back into the queue."""
    middle, committer = Interruptible(book), book.ledger._committer
    led, withdraw, due = held_up(book, middle, followers=2), committer._withdraw, [KeyboardInterrupt()]
    wait = middle.before

    def conflict_once(write: WriteSet) -> None:
        wait(write)
        if len(write.records) == 2:
            middle.before = wait
            raise WriteConflict

    def interrupted(ticket: Any) -> None:
        if due and ticket.leader is not None and ticket.leader is not ticket:
            raise due.pop()
        withdraw(ticket)

    def follower(i: int) -> object:
        led.wait(30)
        try:
            return book.record("agent.spoke", id=f"f{i}")
        except KeyboardInterrupt:
            return "interrupted"

    middle.before = conflict_once
    monkeypatch.setattr(committer, "_withdraw", interrupted)
    began = time.monotonic()
    answers = in_threads(
        lambda: book.record("agent.spoke", id="first"), *(lambda i=i: follower(i) for i in range(2))
    )
    assert not due
    assert sorted(type(answer).__name__ for answer in answers) == ["Event", "Event", "str"]
    assert book.record("agent.spoke").position == book.head
    assert time.monotonic() - began < 5  # nobody has waited until its deadline


@pytest.mark.spec("L2", "5.8")
def test_a_timeout_is_the_callers_own_however_many_wait(tmp_path: Path) -> None:
    """Another process has the lock. Each of eight threads waits its half second, not that of those before it."""
    path, waited = tmp_path / "b.db", list[float]()
    with commonplace.open(path, timeout=0.5) as book, commonplace.open(path) as other:

        def write(i: int) -> object:
            began = time.monotonic()
            try:
                return book.record("agent.spoke", id=f"w{i}")
            finally:
                waited.append(time.monotonic() - began)

        with other.ledger.store.begin():
            answers = in_threads(*(lambda i=i: write(i) for i in range(8)))
        assert [type(answer) for answer in answers] == [commonplace.Busy] * 8
        assert 0.5 <= min(waited) <= max(waited) < 1.5
        assert [book.record("agent.spoke", id=f"w{i}").position for i in range(8)] == list(range(1, 9))


@pytest.mark.spec("L2", "5.8")
def test_a_caller_whose_time_is_up_leaves_the_queue_and_nothing_of_it_is_written(book: Book) -> None:
    committer, began, go = book.ledger._committer, threading.Event(), threading.Event()

    def hold_up(_: WriteSet) -> None:
        began.set()
        go.wait(30)

    middle = Interruptible(book)
    middle.before = hold_up

    def late() -> object:
        began.wait(30)
        committer._timeout = 0.1
        try:
            return book.record("agent.spoke", id="late")
        finally:
            committer._timeout = 30.0
            go.set()

    first, second = in_threads(lambda: book.record("agent.spoke", id="first"), late)
    assert isinstance(first, commonplace.Event)
    assert isinstance(second, commonplace.Busy)
    assert [event.id for event in book.events()] == ["first"]


def test_a_lock_that_is_not_free_in_time_is_an_error_not_a_hang(tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "b.db") as one, commonplace.open(tmp_path / "b.db") as two:
        two.ledger._committer._timeout = 0.05
        with one.ledger.store.begin(), pytest.raises(commonplace.Busy, match="lock was not free"):
            two.record("agent.spoke")
        assert two.record("agent.spoke").position == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork is a POSIX call")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_book_is_not_used_across_a_fork(book_url: str) -> None:
    with commonplace.open(book_url) as book:
        book.record("agent.spoke")
        reads, writes = os.pipe()
        child = os.fork()
        if child == 0:
            told = []
            for use in (lambda: book.record("agent.spoke"), lambda: book.head, lambda: list(book.events())):
                try:
                    use()
                    told.append("nothing")
                except BaseException as error:
                    told.append(type(error).__name__)
            os.write(writes, " ".join(told).encode())
            os._exit(0)
        os.waitpid(child, 0)
        os.close(writes)
        with os.fdopen(reads) as said:
            assert said.read() == "ForkedBook ForkedBook ForkedBook"
        assert book.record("agent.spoke").position == 2
        assert book.verify().ok


def test_a_single_writer_needs_no_other_thread() -> None:
    with commonplace.open("memory:") as book:
        threads = threading.active_count()
        for _ in range(50):
            book.record("agent.spoke")
        assert threading.active_count() == threads
        assert isinstance(book.ledger.store, MemoryStore)
