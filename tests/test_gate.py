"""The gate between processes: one at a time is inside, and does for those who wait what they ask for.

Each `Gate` here stands for a process: it has descriptors of its own, and the kernel keeps them apart as it does those
of two processes. Where somebody has to die, it is a real one.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import commonplace
from commonplace import Book, Capability, Event, Kind
from commonplace.commit import _Ticket
from commonplace.engines import gate as gates_module
from commonplace.engines import line as lines
from commonplace.engines.contract import ROOM, Asked, Moved, Served, WriteSet, nothing
from commonplace.engines.gate import Gate
from commonplace.engines.line import ANSWERED, ASKED, BEGUN, DONE, SEATS, WAITING, Line
from commonplace.engines.meeting import meeting
from commonplace.errands import Errands
from commonplace.ledger import LEDGER
from commonplace.testing import Server
from commonplace.testing.transactions import Apply, each_apply
from commonplace.views import Registry

waiting_now: set[int] = set()
"""The lines, by their ids, of those who wait to be rung for."""


@pytest.fixture(autouse=True)
def who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    wait = Line.wait

    def waiting(self: Line, timeout: float, sits: bool) -> None:
        waiting_now.add(id(self))
        try:
            wait(self, timeout, sits)
        finally:
            waiting_now.discard(id(self))

    monkeypatch.setattr(Line, "wait", waiting)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks at the door by itself: whoever gets in was rung for."""
    monkeypatch.setattr(gates_module, "LOOK", 60.0)


@pytest.fixture
def in_order(monkeypatch: pytest.MonkeyPatch, patient: None) -> None:
    """And whoever came first goes first, so that a test knows who is inside."""

    def look(self: Line, since: int) -> tuple[bool, bool]:
        others_first = any(one.since < since for one in self._those(WAITING, ASKED, ANSWERED))
        return any(one.number == self._own for one in self._those(DONE)), others_first

    monkeypatch.setattr(Line, "look", look)


@pytest.fixture
def gates(tmp_path: Path) -> Iterator[list[Gate]]:
    """One gate, as three processes have it."""
    each = [Gate(tmp_path / "gate") for _ in range(3)]
    yield each
    for one in each:
        one.close()


def states(gate: Gate) -> list[int]:
    return [seat.state for seat in gate._line._those(*range(1, 6))]


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.0005)


class Caller(threading.Thread):
    """Somebody who wants to get in, and what became of that. It waits in its seat when this has been made."""

    def __init__(self, gate: Gate, asked: Asked = nothing, timeout: float = 30, inside: Any = None) -> None:
        super().__init__()
        self.gate, self.asked, self.timeout, self.inside = gate, asked, timeout, inside
        self.promised: bytes | None = None
        """What was promised, once it was inside."""
        self.answer: bytes | None = None
        self.error: BaseException | None = None
        self.interrupted: BaseException | None = None
        self.start()
        until(lambda: id(gate._line) in waiting_now or not self.is_alive())

    def run(self) -> None:
        try:
            with self.gate.inside(self.timeout, self.asked):
                self.promised = self.gate.promised
                if self.inside is not None:
                    self.inside()
        except Served as served:
            self.answer, self.interrupted = served.answer, served.error
        except BaseException as error:
            self.error = error

    def ended(self) -> Caller:
        self.join(30)
        assert not self.is_alive()
        return self


def test_whoever_waits_for_the_gate_gets_in_in_order(
    gates: list[Gate], patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "TURN", 0.0)
    one, two, three = gates
    order: list[str] = []
    with one.inside(5):
        second = Caller(two, inside=lambda: order.append("two"))
        third = Caller(three, inside=lambda: order.append("three"))
    second.ended()
    third.ended()
    assert order == ["two", "three"]


def test_who_comes_later_lets_those_go_first_who_have_waited(
    gates: list[Gate], patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if it comes when the door is open, and the other one has yet to wake up."""
    monkeypatch.setattr(lines, "NAP", 30.0)
    monkeypatch.setattr(lines, "PATIENCE", 60.0)
    one, two, three = gates
    order: list[str] = []
    one.enter(5)
    second = Caller(two, inside=lambda: order.append("two"))
    time.sleep(2 * lines.TURN)
    monkeypatch.setattr(one._line, "ring", lambda: None)
    one.leave()
    third = Caller(three, inside=lambda: order.append("three"))
    assert order == []
    Line.ring(one._line)
    second.ended()
    third.ended()
    assert order == ["two", "three"]


def test_whoever_is_inside_does_what_the_others_ask_for(gates: list[Gate], patient: None) -> None:
    one, two, three = gates
    with one.inside(5):
        second = Caller(two, lambda: b"two, please")
        third = Caller(three, lambda: b"three, please")
        asked = one.others()
        assert [what for _, what in asked] == [b"two, please", b"three, please"]
        assert one.others() == []  # they are begun
        for seat, what in asked:
            one.answer(seat, b"yes: " + what)
        assert second.is_alive()  # nothing holds yet
    assert (second.ended().answer, third.ended().answer) == (b"yes: two, please", b"yes: three, please")
    assert second.promised is third.promised is None
    assert states(one) == []
    two.enter(0.1)  # nobody holds anything
    two.leave()


def test_what_nobody_else_can_do_is_not_asked_for(gates: list[Gate], patient: None) -> None:
    one, two, three = gates
    with one.inside(5):
        second = Caller(two)
        third = Caller(three, lambda: b"x" * (ROOM + 1))  # too much for a seat
        assert one.others() == []
        assert states(one) == [WAITING, WAITING]
    assert (second.ended().promised, third.ended().promised) == (b"", b"")


def test_who_is_told_to_come_in_itself_does(gates: list[Gate], patient: None) -> None:
    one, two, _ = gates
    with one.inside(5):
        second = Caller(two, lambda: b"please")
        one.answer(one.others()[0][0], b"")
    assert second.ended().promised == b""


def test_what_was_begun_and_not_answered_is_asked_for_again(
    gates: list[Gate], patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, three = gates
    with one.inside(5):
        second = Caller(two, lambda: b"please")
        assert one.others()
    assert second.ended().promised == b""  # and nobody had answered
    one.enter(5)
    third = Caller(three, lambda: b"please")
    one.answer(one.others()[0][0], b"done")
    with monkeypatch.context() as quietly:
        quietly.setattr(Line, "ring", lambda _: None)
        one.leave(Moved())  # the write was refused: nothing has happened
    with one.inside(5):
        one.answer(one.others()[0][0], b"done now")
    assert third.ended().answer == b"done now"


def test_an_answer_that_may_not_hold_is_told_to_whoever_comes_in(gates: list[Gate], patient: None) -> None:
    """It then looks whether it was committed."""
    one, two, _ = gates
    one.enter(5)
    second = Caller(two, lambda: b"please")
    one.answer(one.others()[0][0], b"perhaps")
    one.leave(commonplace.OutcomeUnknown([], "the disk was gone"))
    assert second.ended().promised == b"perhaps"
    assert second.answer is None


DIES_INSIDE = """
import os, sys, signal
from pathlib import Path
from commonplace.engines.gate import Gate
gate = Gate(Path(sys.argv[1]))
gate.enter(5)
print("inside", flush=True)
sys.stdin.readline()
asked = gate.others()
if sys.argv[2] == "answered":
    gate.answer(asked[0][0], b"perhaps")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.spec("L2")
@pytest.mark.parametrize(("how", "promised"), [("begun", b""), ("answered", b"perhaps")])
def test_who_dies_inside_leaves_nobody_waiting(
    gates: list[Gate], tmp_path: Path, how: str, promised: bytes
) -> None:
    _, two, _ = gates
    command = [sys.executable, "-c", DIES_INSIDE, str(tmp_path / "gate"), how]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == b"inside\n"
        second = Caller(two, lambda: b"please")
        other.stdin.write(b"\n")
        other.stdin.flush()
        assert second.ended().promised == promised
        assert other.wait(30) == -signal.SIGKILL


DIES_WAITING = """
import os, sys, signal
from pathlib import Path
from commonplace.engines.gate import Gate
from commonplace.engines.line import Line
sit = Line.sit
def sits(self, *given):
    sit(self, *given)
    os.kill(os.getpid(), signal.SIGKILL)
Line.sit = sits
Gate(Path(sys.argv[1])).enter(600, lambda: b"from the dead")
"""


def test_what_the_dead_have_asked_for_is_not_done(
    gates: list[Gate], tmp_path: Path, patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do their seats stay taken, whatever had become of what they asked for."""
    monkeypatch.setattr(lines, "FRESH", 0.0)
    one, two, _ = gates
    command = [sys.executable, "-c", DIES_WAITING, str(tmp_path / "gate")]
    with one.inside(5):
        subprocess.run(command, check=False)
        assert states(one) == [ASKED]
        assert one.others() == []
        second = Caller(two, lambda: b"please")  # in the same seat
        assert [what for _, what in one.others()] == [b"please"]
    second.ended()
    for left in (BEGUN, ANSWERED):
        with one.inside(5):
            subprocess.run(command, check=False)
            (seat,) = one._line._those(ASKED)
            one._line._write(seat._replace(state=left))  # as it was when whoever was inside died, too
        with one.inside(5):
            second = Caller(two, lambda: b"please")
            assert len(one.others()) == 1
            assert states(one) == [BEGUN]
        second.ended()


def test_seats_of_an_earlier_run_of_the_machine_are_empty(gates: list[Gate], patient: None) -> None:
    one, two, _ = gates
    with one.inside(5):
        second = Caller(two, lambda: b"please")
        (seat,) = one._line._those(ASKED)
        one._line._write(seat._replace(boot=seat.boot ^ 1))
        assert one.others() == []
        one._line._write(seat)
    second.ended()


def test_who_waits_in_vain_is_told_so_and_leaves_nothing_behind(gates: list[Gate]) -> None:
    one, two, three = gates
    with one.inside(5):
        second = Caller(two, lambda: b"please", timeout=0.05)
        assert isinstance(second.ended().error, commonplace.Busy)
        assert states(one) == []
        with pytest.raises(commonplace.Busy):
            three.enter(0)
    three.enter(5)
    three.leave()


def test_who_gives_up_while_it_is_being_done_waits_for_the_outcome(
    gates: list[Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, three = gates
    with one.inside(5):
        second = Caller(two, lambda: b"please", timeout=0.05)
        seat = one.others()[0][0]
        until(lambda: two._line._watch is not None)
        time.sleep(0.1)  # its time is over
        one.answer(seat, b"done")
    assert second.ended().answer == b"done"
    monkeypatch.setattr(lines, "CLOSE", 0.1)
    with one.inside(5):
        third = Caller(three, lambda: b"please", timeout=0.05)
        one.others()
        assert isinstance(
            third.ended().error, commonplace.OutcomeUnknown
        )  # as if whoever is inside had been stopped
    three.enter(5)
    three.leave()


def test_ctrl_c_in_the_line_lets_go_of_all_that_it_held(
    gates: list[Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it waits, and right after a lock was had, before anybody could say so."""
    one, two, _ = gates

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with one.inside(5), monkeypatch.context() as waiting:
        waiting.setattr(two._line, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            two.enter(5, lambda: b"please")
        assert states(one) == []
    lock = two._lock

    def had() -> bool:
        assert lock()
        raise KeyboardInterrupt

    with monkeypatch.context() as at_once:
        at_once.setattr(two, "_lock", had)
        with pytest.raises(KeyboardInterrupt):
            two.enter(5)
    for gate in (one, two, one):
        gate.enter(0.1)
        gate.leave()


def test_there_are_more_who_wait_than_seats(tmp_path: Path) -> None:
    crowd = [Gate(tmp_path / "gate") for _ in range(SEATS + 5)]
    with crowd[0].inside(5):
        callers = [Caller(gate) for gate in crowd[1 : SEATS + 1]]
        more = [
            threading.Thread(target=lambda gate=gate: (gate.enter(30), gate.leave()))
            for gate in crowd[SEATS + 1 :]
        ]
        for one in more:
            one.start()
        assert len(states(crowd[0])) == SEATS
    for caller in callers:
        assert caller.ended().promised == b""
    for one in more:
        one.join(30)
        assert not one.is_alive()
    for gate in crowd:
        gate.close()


def test_who_was_stopped_while_it_waited_holds_nobody_up(gates: list[Gate], tmp_path: Path) -> None:
    """As by a debugger: it has waited longest, and does not come. After a while nobody lets it go first any more."""
    one, two, _ = gates
    stopped = """
import os, sys, signal
from pathlib import Path
from commonplace.engines.gate import Gate
from commonplace.engines.line import Line
Line.wait = lambda *_: os.kill(os.getpid(), signal.SIGSTOP)
Gate(Path(sys.argv[1])).enter(600)
"""
    with one.inside(5):
        other = subprocess.Popen([sys.executable, "-c", stopped, str(tmp_path / "gate")])
        until(lambda: states(one) == [WAITING])
    try:
        for _ in range(5):
            two.enter(2)
            two.leave()
        time.sleep(lines.PATIENCE)
        began = time.monotonic()
        for _ in range(100):
            two.enter(0.5)
            two.leave()
        assert time.monotonic() - began < 10
    finally:
        other.kill()
        other.wait(30)


def test_files_that_are_removed_while_somebody_waits_are_made_anew(gates: list[Gate], tmp_path: Path) -> None:
    one, two, three = gates
    with one.inside(5):
        second = Caller(two, lambda: b"please")
        for file in (tmp_path / "line").iterdir():
            file.unlink()
        (tmp_path / "line").rmdir()
        (tmp_path / "gate").unlink()
        late = Gate(tmp_path / "gate")
        third = Caller(three, lambda: b"please")
    assert second.ended().promised == third.ended().promised == b""
    late.enter(5)
    late.leave()
    late.close()


def test_a_lock_that_was_given_up_is_free_though_a_child_was_forked(gates: list[Gate]) -> None:
    one, two, _ = gates
    one.enter(5)
    with pytest.raises(commonplace.Busy):
        two.enter(0.02, lambda: b"please")
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    try:
        one.leave()
        two.close()
        one.enter(5)
        one.leave()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_gate_that_was_deleted_is_noticed_by_those_who_rest_on_it(tmp_path: Path) -> None:
    path = tmp_path / "gate"
    one, two = Gate(path, only=True), Gate(path, only=True)
    path.unlink()
    one.enter(5)
    with pytest.raises(commonplace.Busy):
        two.enter(0.05)
    one.leave()
    two.enter(5)
    two.leave()
    one.close()
    two.close()

    url = f"file:{tmp_path / 'book'}"
    with commonplace.open(url) as book, commonplace.open(url) as other:
        for i in range(10):
            (book if i % 2 else other).record("agent.spoke")
            (tmp_path / "book" / "gate").unlink()
        assert [event.position for event in book.events()] == list(range(1, 11))
        assert other.verify().ok


@pytest.mark.spec("L2")
def test_what_fails_before_a_promise_was_looked_up_has_an_unknown_outcome(
    gates: list[Gate], patient: None
) -> None:
    """Nobody may be told that nothing has happened."""
    one, two, three = gates

    def fails() -> None:
        raise commonplace.Busy("the disk is asleep")

    one.enter(5)
    second = Caller(two, lambda: b"please", inside=fails)
    one.answer(one.others()[0][0], b"perhaps")
    one.leave(OSError("gone"))
    assert isinstance(second.ended().error, commonplace.OutcomeUnknown)
    one.enter(5)

    def looks() -> None:
        three.promised = b""
        fails()

    third = Caller(three, lambda: b"please", inside=looks)
    one.answer(one.others()[0][0], b"perhaps")
    one.leave(OSError("gone"))
    assert isinstance(third.ended().error, commonplace.Busy)
    assert two.promised == three.promised == b""


def test_trouble_on_leaving_locks_nobody_out(gates: list[Gate], monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, _ = gates

    def fails(*_: object) -> None:
        raise OSError("no descriptors left")

    for what in ("settle", "_those"):
        one.enter(5)
        with monkeypatch.context() as broken:
            broken.setattr(one._line, what, fails)
            one.leave()  # nobody is told or rung for, and everybody looks by itself
        for gate in (two, one):
            gate.enter(1)
            gate.leave()


@pytest.mark.spec("L2")
def test_what_was_not_told_is_not_taken_for_part_of_the_next_commit(
    gates: list[Gate], patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full: the commit fails, and so does telling those who were answered."""
    one, two, _ = gates

    def fails(*_: object) -> None:
        raise OSError("no room")

    with monkeypatch.context() as quietly:
        quietly.setattr(Line, "ring", lambda _: None)
        one.enter(5)
        second = Caller(two, lambda: b"please")
        one.answer(one.others()[0][0], b"done")
        with monkeypatch.context() as full:
            full.setattr(one._line, "_say", fails)
            one.leave(commonplace.StorageFailed("no room"))
        one.enter(5)
    one.leave()
    assert second.ended().answer is None
    assert second.promised == b"done"  # and it looks whether that holds


@pytest.mark.spec("L2")
@pytest.mark.parametrize("how", ["closed", "broken"])
def test_an_answer_is_not_given_to_whoever_comes_next(gates: list[Gate], patient: None, how: str) -> None:
    """It fails before it has asked for anything."""
    one, two, _ = gates
    with one.inside(5):
        second = Caller(two, lambda: b"first")
        one.answer(one.others()[0][0], b"to the first")
    assert second.ended().answer == b"to the first"
    if how == "closed":
        two.close()
        with pytest.raises(commonplace.BookClosed):
            two.enter(5, lambda: b"second")
    else:

        def fails(_since: int) -> tuple[bool, bool]:
            raise OSError("no such disk")

        two._line.look = fails  # type: ignore[method-assign,assignment]
        with pytest.raises(OSError, match="no such disk"):
            two.enter(5, lambda: b"second")


def test_a_gate_that_cannot_be_made_anew_at_once_is_made_later(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate", only=True)
    (tmp_path / "gate").unlink()
    for file in (tmp_path / "line").iterdir():
        file.unlink()
    (tmp_path / "line").rmdir()
    (tmp_path / "line").write_text("in the way")
    for _ in range(2):
        with pytest.raises(NotADirectoryError):
            gate.enter(1)
    (tmp_path / "line").unlink()
    gate.enter(1)
    gate.leave()
    gate.close()
    with pytest.raises(commonplace.BookClosed):
        gate.enter(1)


def test_who_is_interrupted_twice_never_takes_the_answer_to_something_else(
    gates: list[Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, _ = gates

    def interrupted(*_: object) -> None:
        one.others()  # it is begun
        raise KeyboardInterrupt

    with one.inside(5):
        with monkeypatch.context() as twice:
            twice.setattr(two._line, "wait", interrupted)
            with pytest.raises(commonplace.OutcomeUnknown):
                two.enter(5, lambda: b"first")
        second = Caller(two, lambda: b"second")
        for seat, asked in [(0, b"first"), *one.others()]:
            one.answer(seat, b"answer to the " + asked)
    assert second.ended().answer == b"answer to the second"


def test_who_is_interrupted_while_it_is_being_done_is_told_the_outcome(gates: list[Gate]) -> None:
    one, two, _ = gates
    begun, wait = threading.Event(), two._line.wait

    def interrupted(_timeout: float, _sits: bool) -> None:
        waiting_now.add(id(two._line))
        assert begun.wait(30)
        two._line.wait = wait  # type: ignore[method-assign]
        raise KeyboardInterrupt

    two._line.wait = interrupted  # type: ignore[method-assign,assignment]
    with one.inside(5):
        second = Caller(two, lambda: b"please")
        one.answer(one.others()[0][0], b"done")
        begun.set()
    assert second.ended().answer == b"done"
    assert isinstance(second.interrupted, KeyboardInterrupt)


def test_no_answer_is_longer_than_its_place(gates: list[Gate], patient: None) -> None:
    one, two, _ = gates
    with one.inside(5):
        second = Caller(two, lambda: b"please")
        seat = one.others()[0][0]
        with pytest.raises(AssertionError):
            one.answer(seat, b"x" * (ROOM + 1))
        one.answer(seat, b"x" * ROOM)
    assert second.ended().answer == b"x" * ROOM


def test_a_child_process_does_not_keep_what_its_parent_has_locked(tmp_path: Path) -> None:
    """The parent is killed inside, and the child lives on."""
    forks = """
import os, sys, signal, time
from pathlib import Path
from commonplace.engines.gate import Gate
gate = Gate(Path(sys.argv[1]))
gate.enter(5)
ready, told = os.pipe()
if os.fork() == 0:
    os.write(told, b"!")
    time.sleep(60)
    os._exit(0)
os.read(ready, 1)
os.kill(os.getpid(), signal.SIGKILL)
"""
    with subprocess.Popen(
        [sys.executable, "-c", forks, str(tmp_path / "gate")], start_new_session=True
    ) as parent:
        assert parent.wait(30) == -signal.SIGKILL
        gate = Gate(tmp_path / "gate")
        gate.enter(5)
        gate.leave()
        gate.close()
        os.killpg(parent.pid, signal.SIGKILL)


def test_only_its_user_can_read_the_line(gates: list[Gate], tmp_path: Path) -> None:
    """What is asked for there is as secret as the book."""
    one, two, _ = gates
    with one.inside(5):
        second = Caller(two, lambda: b"hunter2")
    second.ended()
    assert (tmp_path / "line").stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "line").iterdir()} == {0o600}


def test_a_line_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "b.db-line").symlink_to(elsewhere)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "line").symlink_to(elsewhere)
    with pytest.raises(commonplace.EngineUnavailable):
        commonplace.open(tmp_path / "b.db")
    with pytest.raises(commonplace.NotABook, match="is a link"):
        commonplace.open(f"file:{tmp_path / 'b'}")
    assert list(elsewhere.iterdir()) == []


# books whose writers meet at a gate


@pytest.fixture(params=["sqlite", "files", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        server: Server = request.getfixturevalue("postgres")
        return f"{server.url}{'&' if '?' in server.url else '?'}book=gate-{os.urandom(6).hex()}"
    return str(tmp_path / "b.db") if request.param == "sqlite" else f"file:{tmp_path / 'b'}"


@pytest.fixture
def books(url: str) -> Iterator[list[Book]]:
    """One book, as four processes have it."""
    each = [commonplace.open(url) for _ in range(4)]
    yield each
    for one in each:
        one.close()


def gate_of(book: Book) -> Gate:
    store: Any = book._ledger.store
    gate = store._met() if hasattr(store, "_met") else store._gate
    assert isinstance(gate, Gate)
    return gate


@contextmanager
def held_up(books: list[Book]) -> Iterator[None]:
    """Everybody knows what is in the book, and then nobody gets in but whoever waits meanwhile, in order."""
    for book in books:
        with book._ledger.reads():  # where views live in memory, they are folded now
            pass
    with gate_of(books[0]).inside(5):
        yield


def counting() -> tuple[list[int], Callable[[Apply, WriteSet], None]]:
    """How many events each commit has, and what counts them."""
    batches: list[int] = []

    def counted(apply: Apply, write: WriteSet) -> None:
        apply(write)
        if write.records:  # where views live in memory, they are written by themselves, too
            batches.append(len(write.records))

    return batches, counted


class Doing(threading.Thread):
    """Something that somebody does, and what came of it. It waits at the gate when this has been made."""

    def __init__(self, book: Book, do: Callable[[], Any]) -> None:
        super().__init__()
        self.do, self.answer, self.error = do, None, None
        self.start()
        until(lambda: id(gate_of(book)._line) in waiting_now or not self.is_alive())

    def run(self) -> None:
        try:
            self.answer = self.do()
        except BaseException as error:
            self.error = error  # type: ignore[assignment]

    def ended(self) -> Any:
        self.join(30)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error
        return self.answer


@pytest.mark.spec("L2", "L3", "L4")
def test_processes_that_write_at_once_share_a_commit(books: list[Book], in_order: None) -> None:
    """Whoever comes in first writes for all of them, each answered with its own events."""
    batches, counted = counting()
    first, *rest = books
    with each_apply(rest[0]._ledger.store, counted), held_up(books):
        waiting = [
            Doing(
                book,
                lambda book=book, n=n: book.record_all(  # type: ignore[misc]
                    [
                        {"kind": "agent.spoke", "actor": f"agent-{n}", "payload": {"n": [n, i]}}
                        for i in range(n + 1)
                    ]
                ),
            )
            for n, book in enumerate(rest)
        ]
    answers: list[list[Event]] = [one.ended() for one in waiting]
    assert [[event.payload["n"] for event in answer] for answer in answers] == [
        [[n, i] for i in range(n + 1)] for n in range(3)
    ]
    assert batches == [6]
    assert [event for answer in answers for event in answer] == list(first.events())
    assert first.verify().ok


@pytest.mark.spec("5.3")
def test_tasks_are_claimed_and_completed_for_those_who_wait(books: list[Book], in_order: None) -> None:
    first, *rest = books
    work = first.work(name="w", id="w")
    added = work.add_tasks([{"title": f"part {n}", "metadata": {"n": n}} for n in range(4)])
    works = [book.work(id="w") for book in rest]
    applied, counted = counting()
    with each_apply(rest[0]._ledger.store, counted), held_up(books):
        waiting = [
            Doing(book, lambda work=work, n=n: work.claim(f"agent-{n}"))  # type: ignore[misc]
            for n, (book, work) in enumerate(zip(rest, works, strict=True))
        ]
    claims = [one.ended() for one in waiting]
    assert applied == [3]
    assert [claim.task.id for claim in claims] == [task.id for task in added[:3]]
    assert [claim.task.assigned_to for claim in claims] == ["agent-0", "agent-1", "agent-2"]
    assert [claim.task.metadata for claim in claims] == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert [work.task(claim.task.id).info().token for claim in claims] == [claim.token for claim in claims]
    applied, counted = counting()
    with each_apply(rest[0]._ledger.store, counted), held_up(books):
        waiting = [
            Doing(
                book,
                lambda claim=claim, n=n: claim.next(
                    f"done {n}", learnings=[f"l{n}"], artifacts=[f"a{n}.txt"]
                ),  # type: ignore[misc]
            )
            for n, (book, claim) in enumerate(zip(rest, claims, strict=True))
        ]
    following = [one.ended() for one in waiting]
    assert max(applied) == 7  # three artifacts, three completions, one claim
    assert [claim.task.result.summary for claim in claims] == ["done 0", "done 1", "done 2"]
    assert [one.task.id for one in following if one is not None] == [added[3].id]
    assert sorted(one.path for one in work.records("artifact")) == ["a0.txt", "a1.txt", "a2.txt"]
    assert work.counts()["completed"] == 3


@pytest.mark.spec("5.3")
def test_many_tasks_at_once_are_done_for_those_who_wait(books: list[Book], in_order: None) -> None:
    first, *rest = books
    work = first.work(name="w", id="w")
    work.add_tasks([{"title": f"part {n}"} for n in range(12)])
    works = [book.work(id="w") for book in rest]
    held = [each.claim_many(4, f"agent-{n}") for n, each in enumerate(works)]
    applied, counted = counting()
    with each_apply(rest[0]._ledger.store, counted):
        with held_up(books):
            waiting = [
                Doing(book, lambda work=work, claims=claims: work.complete_many(claims, "done"))  # type: ignore[misc]
                for book, work, claims in zip(rest, works, held, strict=True)
            ]
        done = [one.ended() for one in waiting]
    assert applied == [12]
    assert [[task.id for task in each] for each in done] == [
        [claim.task.id for claim in each] for each in held
    ]
    assert {task.status for each in done for task in each} == {"completed"}
    assert work.counts()["completed"] == 12


@pytest.mark.spec("L5")
def test_what_is_refused_is_told_to_whoever_asked_for_it(books: list[Book], in_order: None) -> None:
    """And leaves nothing behind in what is written for the others."""
    first, two, three, four = books
    first.record("agent.spoke", id="known", payload={"text": "first"})
    with held_up(books):
        waiting = [
            Doing(two, lambda: two.record("agent.spoke", payload={"n": 1})),
            Doing(three, lambda: three.record("agent.spoke", id="known", payload={"text": "other"})),
            Doing(four, lambda: four.record("agent.spoke", payload={"n": 2})),
        ]
    assert waiting[0].ended().payload == {"n": 1}
    with pytest.raises(commonplace.Conflict, match="other content"):
        waiting[1].ended()
    assert waiting[2].ended().payload == {"n": 2}
    assert [event.payload for event in first.events()] == [{"text": "first"}, {"n": 1}, {"n": 2}]


def test_what_cannot_travel_is_done_at_home(books: list[Book], in_order: None) -> None:
    first, two, three, four = books
    huge, blob = 2**70, commonplace.Blob(b"bytes")
    with held_up(books):
        waiting = [
            Doing(two, lambda: two.record("agent.spoke", payload={"n": huge})),
            Doing(three, lambda: three.record("agent.spoke", payload={"file": blob})),
            Doing(four, lambda: four.record("agent.spoke", payload={"text": "x" * 100_000})),
        ]
    assert waiting[0].ended().payload == {"n": huge}
    assert first.blob(waiting[1].ended().payload["file"]["$blob"]) == b"bytes"
    assert len(waiting[2].ended().payload["text"]) == 100_000
    assert len(list(first.events())) == 3


@pytest.mark.spec("L2", "L4")
@pytest.mark.parametrize("committed", [True, False])
def test_what_was_promised_by_somebody_who_is_gone_is_looked_up(
    books: list[Book], in_order: None, committed: bool
) -> None:
    """Its commit had succeeded, or not: either way what was asked for happens once."""
    first, two, three, _ = books

    def dies(apply: Apply, write: WriteSet) -> None:
        if committed:
            apply(write)
        raise OSError("as if it had been killed")

    with each_apply(two._ledger.store, dies):
        with held_up(books):
            waiting = [
                Doing(two, lambda: two.record("agent.spoke", payload={"n": 1})),
                Doing(three, lambda: three.record("agent.spoke", payload={"n": 2})),
            ]
        with pytest.raises(OSError, match="killed"):
            waiting[0].ended()
    event = waiting[1].ended()
    assert event.payload == {"n": 2}
    found = [each.payload for each in first.events()]
    assert found == ([{"n": 1}, {"n": 2}] if committed else [{"n": 2}])
    assert first.event(event.id) == event
    assert first.verify().ok


def test_versions_that_know_other_things_do_nothing_for_each_other(books: list[Book], in_order: None) -> None:
    _, two, three, _ = books
    two._ledger._committer._errands.__dict__["_mark"] = b"of another version"
    batches, counted = counting()
    with each_apply(two._ledger.store, counted), each_apply(three._ledger.store, counted):
        with held_up(books):
            waiting = [
                Doing(book, lambda book=book: book.record("agent.spoke"))  # type: ignore[misc]
                for book in (two, three)
            ]
        assert sorted(one.ended().position for one in waiting) == [1, 2]
    assert batches == [1, 1]


def test_libraries_that_own_other_kinds_are_other_versions() -> None:
    mine, theirs = (
        Capability("mine", kinds=(Kind("my.thing"),)),
        Capability("mine", kinds=(Kind("my.thing", 2),)),
    )
    marks = [Errands(Registry(brought))._mark for brought in ([LEDGER], [LEDGER, mine], [LEDGER, theirs])]
    assert len(set(marks)) == 3
    assert Errands(Registry([LEDGER, mine]))._mark == marks[1]


@pytest.mark.spec("L2", "L4")
def test_an_id_that_somebody_else_has_used_keeps_no_promise(books: list[Book], in_order: None) -> None:
    """What was promised did not come about, and an event of the same name is there all the same."""
    _, two, three, four = books

    def dies(_apply: Apply, _write: WriteSet) -> None:
        raise OSError("as if it had been killed")

    with each_apply(two._ledger.store, dies):
        with held_up(books):
            waiting = [
                Doing(two, lambda: two.record("agent.spoke")),
                Doing(three, lambda: three.record("agent.spoke", id="order-1", payload={"by": "three"})),
                Doing(
                    four,
                    lambda: four.record_all(
                        [
                            {"kind": "agent.spoke", "id": "order-1", "payload": {"by": "four"}},
                            {"kind": "agent.spoke", "payload": {"text": "and more"}},
                        ]
                    ),
                ),
            ]
        with pytest.raises(OSError, match="killed"):
            waiting[0].ended()
    assert waiting[1].ended().payload == {"by": "three"}
    with pytest.raises(commonplace.Conflict, match="other content"):
        waiting[2].ended()
    assert [event.payload for event in three.events()] == [{"by": "three"}]


def test_an_answer_that_is_too_long_to_travel_is_made_at_home(books: list[Book], in_order: None) -> None:
    """And the answers to others beside it are whole."""
    first, two, three, four = books
    work = first.work(name="w", id="w")
    work.add_tasks([{"title": f"t{n}", "description": "x" * 5_000} for n in range(30)])
    works = [book.work(id="w") for book in books]
    with held_up(books):
        waiting = [
            Doing(two, lambda: two.record("agent.spoke", payload={"n": 1})),
            Doing(three, lambda: works[2].claim_many(30, "ada")),
            Doing(four, lambda: four.record("agent.spoke", payload={"n": 2})),
        ]
    assert (waiting[0].ended().payload, waiting[2].ended().payload) == ({"n": 1}, {"n": 2})
    assert {len(claim.task.description) for claim in waiting[1].ended()} == {5_000}
    assert work.counts()["in_progress"] == 30
    assert len([event for event in first.events() if event.kind == "task.claimed"]) == 30


def test_what_was_done_in_part_is_not_asked_for_again(books: list[Book]) -> None:
    committer = books[0]._ledger._committer
    capability, decide = committer._registry.command("record")
    done, other = (_Ticket(capability, decide, [], 1, (), "record", 0.0) for _ in range(2))
    assert committer._ask([done, other])
    done.done = True
    assert committer._ask([done, other]) is None


def test_ids_that_came_to_nothing_are_not_told(books: list[Book], monkeypatch: pytest.MonkeyPatch) -> None:
    """What was decided was refused, and then somebody else had begun with it."""
    book = books[0]
    work = book.work(name="w")
    work.add_task("one")
    store, tries = book._ledger.store, iter([Moved(), commonplace.OutcomeUnknown([], "it was gone")])

    def refused(_apply: Apply, _write: WriteSet) -> None:
        raise next(tries)

    with each_apply(store, refused), pytest.raises(commonplace.OutcomeUnknown) as unknown:
        work.claim("ada")
    assert len(unknown.value.ids) == 1  # of the second try
    tries = iter([Moved()])

    def unknown_outcome(*_: object) -> None:
        raise commonplace.OutcomeUnknown([], "another process had begun to write it")

    with each_apply(store, refused), monkeypatch.context() as then:
        attempt = store.attempt

        def once(timeout: float = 30.0, asked: Asked = nothing) -> Any:
            then.setattr(store, "begin", unknown_outcome)
            return attempt(timeout, asked)

        then.setattr(store, "attempt", once)
        with pytest.raises(commonplace.OutcomeUnknown) as unknown:
            work.claim("ada")
    assert unknown.value.ids == ()


def test_what_is_not_done_in_time_is_asked_for_again(
    books: list[Book], in_order: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commonplace.commit.MAX_BATCH_SECONDS", -1.0)
    rest, (batches, counted) = books[1:], counting()
    with ExitStack() as counts:
        for book in rest:
            counts.enter_context(each_apply(book._ledger.store, counted))
        with held_up(books):
            waiting = [Doing(book, lambda book=book: book.record("agent.spoke")) for book in rest]  # type: ignore[misc]
        assert sorted(one.ended().position for one in waiting) == [1, 2, 3]
    assert batches == [1, 1, 1]


def test_ctrl_c_while_somebody_else_did_it_is_raised_all_the_same(
    books: list[Book], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, two, *_ = books
    event = first.record("agent.spoke", payload={"n": 1})
    errands = first._ledger._committer._errands

    def served(_timeout: float, _asked: Asked) -> None:
        raise Served(errands.answer([errands.done([event], [], ROOM)]), KeyboardInterrupt())

    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(two._ledger.store, "attempt", served)
        with pytest.raises(KeyboardInterrupt):
            two.record("agent.spoke", payload={"n": 1})
    assert list(two.events()) == [event]


@pytest.mark.spec("L10")
def test_what_was_asked_for_does_not_stay_in_the_line_after_a_purge(
    books: list[Book], in_order: None, tmp_path: Path
) -> None:
    first, two, three, _ = books
    with held_up(books):
        waiting = [
            Doing(two, lambda: two.record("agent.spoke")),
            Doing(three, lambda: three.record("agent.spoke", id="s", payload={"text": "hunter2"})),
        ]
    for one in waiting:
        one.ended()
    table = gate_of(first).folder / "table"
    assert b"hunter2" in table.read_bytes()
    first.erase("s")
    first.purge()
    assert b"hunter2" not in table.read_bytes()
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and b"hunter2" in file.read_bytes()]


def test_roles_of_a_server_do_not_meet(postgres: Server) -> None:
    """What one of them may is not done for another."""
    name, role = f"gate-{os.urandom(6).hex()}", f"reader_{os.urandom(4).hex()}"
    with (
        commonplace.open(postgres.url, name=name) as book,
        psycopg.connect(postgres.url, autocommit=True) as server,
    ):
        server.execute(f"CREATE ROLE {role} LOGIN")
        server.execute(f"GRANT USAGE ON SCHEMA commonplace TO {role}")
        server.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA commonplace TO {role}")
        with commonplace.open(make_url(postgres.url, role), name=name) as theirs:
            assert gate_of(theirs).path != gate_of(book).path
        server.execute(f"DROP OWNED BY {role}")
        server.execute(f"DROP ROLE {role}")


def make_url(url: str, role: str) -> str:
    """The same server as somebody else."""
    return re.sub(r"//[^@/]*@", f"//{role}@", url)


def test_nobody_meets_in_a_folder_that_others_can_write_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who could write there could have things done in our name."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    one, other = meeting("server", 1), meeting("server", 2)
    assert one is not None
    assert other is not None
    assert one.path != other.path
    one.close()
    other.close()
    os.utime(one.path, (0, 0))  # nobody has come for years
    third = meeting("server", 3)
    assert third is not None
    third.close()
    (folder,) = tmp_path.iterdir()
    assert {path.name for path in folder.glob("*-gate")} == {other.path.name, third.path.name}
    assert not one.folder.exists()
    folder.chmod(0o777)
    assert meeting("server", 1) is None
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for inside in sorted(folder.rglob("*"), reverse=True):
        inside.rmdir() if inside.is_dir() else inside.unlink()
    folder.rmdir()
    folder.symlink_to(elsewhere)
    assert meeting("server", 1) is None
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "missing"))
    assert meeting("server", 1) is None
