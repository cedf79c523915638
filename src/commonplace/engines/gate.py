"""The gate: the lock between the processes of a host that write to one book, and the line of those who wait for it.

It hangs on a few small files. They are never the database itself: closing any other descriptor of a database file would
drop SQLite's own locks on it.

    door      a file that the kernel locks for one at a time, with word in it of the last commit
    line      a table of seats, one for each process that waits, with what it asks and what it is answered; a file for
              each seat, locked by whoever sits there; and a bell, which all of them hear

Whoever finds the door locked takes a seat and leaves there what it wants to have done. Whoever is inside does it along
with its own, in the same commit, and rings on leaving. So of many processes that write at once each does not have to
wait for the disk by itself, nor to read what the others have just written. Those who still wait try the door when it
rings. Who hears nothing, because somebody was killed, looks at it by itself now and then.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakSet

from ..errors import BookClosed, Busy, OutcomeUnknown, StorageFailed
from ..private import access_of, open_private
from .contract import Asked, Moved, Served, Tx, nothing
from .line import ANSWERED, ASKED, DONE, FREE, NAP, Line, lock

LOOK = 0.01
"""How often those in the line look at the door without having heard the bell, in seconds."""


class Gate:
    """Lets one thread of one process in at a time, however many wait.

    `only`: nothing else keeps writers apart, so whoever has entered makes sure that the file is still the one
    that others would lock, too.
    """

    def __init__(self, path: Path, only: bool = False, book: Path | None = None) -> None:
        self.path = path
        self._book = book
        """Whose mode its files follow; None: they are for nobody else."""
        self._only = only
        self._mutex = threading.Lock()
        self.folder = path.with_name(path.name.removesuffix("gate") + "line")
        """Where the line is."""
        self.promised = b""
        """What somebody inside has answered to what was asked for, and may have committed, or not, before it was gone.
        Whoever has looked which it was forgets it; until then every failure is an unknown outcome."""
        self._closed = False
        self._open()
        _gates.add(self)

    def _open(self) -> None:
        self._door = -1
        access = access_of(self._book).writers
        door = open_private(self.path, os.O_RDWR, access)
        try:
            self._line = Line(self.folder, access)
        except BaseException:
            os.close(door)
            raise
        self._door = door

    @staticmethod
    def remove(path: Path) -> None:
        """Remove its files."""
        path.unlink(missing_ok=True)
        shutil.rmtree(path.with_name(path.name.removesuffix("gate") + "line"), ignore_errors=True)

    def enter(self, timeout: float, asked: Asked = nothing) -> None:
        """Take the lock, or raise Busy after `timeout` seconds. If `asked` answers with something, whoever is inside
        may do that meanwhile: then Served is raised, and nothing is taken."""
        deadline, entered = time.monotonic() + timeout, False
        try:
            entered = self._mutex.acquire(timeout=max(timeout, 0))
            if not entered:
                raise TimeoutError
            self._line.begin_anew()
            if self._closed:
                raise BookClosed("this book is closed; open it again")
            if self._door < 0:  # it was removed, and could not be made anew at once
                self._open()
            self.promised = self._wait(deadline, asked)
            while self._only and not self._is_there():  # somebody removed the gate: lock the new one
                self._shut()
                self._open()
                self.promised = self._wait(deadline, nothing if self.promised else asked) or self.promised
        except BaseException as error:
            answer = None
            if entered:
                try:
                    if not isinstance(error, Served):  # else the door is not locked by us, or not any more
                        try:
                            answer = self._line.give_up()
                        finally:
                            self._unlock()
                finally:
                    self._mutex.release()
            if answer is not None:
                raise Served(answer, None if isinstance(error, TimeoutError) else error) from error
            if type(error) is TimeoutError:
                raise _busy(timeout) from None
            raise

    @contextmanager
    def inside(self, timeout: float, asked: Asked = nothing) -> Iterator[None]:
        """The same, and leave at the end."""
        error = None
        self.enter(timeout, asked)
        try:
            yield
        except BaseException as trouble:
            error = trouble
            raise
        finally:
            self.leave(error)

    def _wait(self, deadline: float, asked: Asked) -> bytes:
        """Until the door is locked for us, or it is done what we have asked for. Answers with what was promised."""
        line, since = self._line, time.monotonic_ns()
        if not line.look(since)[1] and self._lock():
            return b""
        sits = line.sit(asked(), since, deadline)
        while True:
            done, others_first = line.look(since)
            if sits and done:
                raise Served(line.rise()[1])
            if not others_first and self._lock():
                break
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            line.wait(min(left, NAP if others_first or not sits else LOOK), sits)
        state, answer = line.rise() if sits else (FREE, b"")
        if state == DONE:
            self._unlock()
            line.ring()
            raise Served(answer)
        return answer

    def _lock(self) -> bool:
        return lock(self._door)

    def _unlock(self) -> None:
        if self._door >= 0:
            fcntl.flock(self._door, fcntl.LOCK_UN)

    def _is_there(self) -> bool:
        """Whether the file that we hold is the one at its path."""
        try:
            here, there = os.fstat(self._door), self.path.stat()
        except FileNotFoundError:
            return False
        return (here.st_ino, here.st_dev) == (there.st_ino, there.st_dev)

    def others(self) -> list[tuple[int, bytes]]:
        """For whoever is inside: what others wait for and have asked for, each with its seat. From now on they wait for
        an answer, be it that it is given back."""
        return self._line.begin()

    def answer(self, seat: int, said: bytes) -> None:
        """Answer one of them, before it is committed; b"": it has to come in itself."""
        self._line.answer(seat, said)

    def hand_on(self, what: Callable[[], bytes]) -> bool:
        """For whoever is inside: if others wait or are being served, leave something for whoever is inside next. It may
        find something older, or nothing. Answers whether there is anybody."""
        try:
            company = self._line.company
            self._line.hand_on(what() if company else b"")  # what lies there is out of date
            return company
        except OSError:
            return True  # what lies there then is not whole, or out of date, and whoever takes it looks

    def handed(self) -> bytes:
        """What was left for whoever is inside, if anything."""
        try:
            return self._line.handed()
        except OSError:
            return b""

    def leave(self, error: BaseException | None = None) -> None:
        """Leave. What was answered holds if there was no error. If somebody moved, nothing has happened; else those who
        were answered see for themselves what has."""
        promised, self.promised = self.promised, b""
        line = self._line
        try:
            try:
                line.settle(DONE if error is None else ASKED if isinstance(error, Moved) else ANSWERED)
            except OSError:
                pass  # whoever is not told comes in, and sees for itself
            finally:
                self._unlock()
                line.ring()
        finally:
            self._mutex.release()
        if promised and error is not None and not isinstance(error, OutcomeUnknown):
            raise OutcomeUnknown([], f"another process had begun to write it, and then: {error}") from error

    def poke(self, position: int) -> None:
        """Leave word that this position is committed, and wake whoever watches the gate."""
        os.pwrite(self._door, b"%020d" % position, 0)

    def poke_again(self) -> None:
        """Wake whoever watches the gate, with nothing new to say."""
        with self._mutex:
            if self._door >= 0:
                os.pwrite(self._door, b"\n", 20)  # behind the word, which another process may be writing

    def last_word(self) -> int:
        """The position that word was last left of; 0 when nobody has left any."""
        word = os.pread(self._door, 20, 0)
        return int(word) if len(word) == 20 and word.isdigit() else 0

    def sweep(self) -> None:
        """Overwrite what was once asked for and answered in the line. Only for whoever is inside."""
        self._line.sweep()

    def close(self, last: Callable[[], None] = lambda: None) -> None:
        """Close it, once whoever of this process is inside has left. `last` is done before."""
        with self._mutex:
            last()
            self._closed = True
            self._shut()

    def drop(self) -> None:
        """Close it without a word: for a child process, in which it is of no use."""
        door, self._door, self._closed = self._door, -1, True
        if door >= 0:
            os.close(door)
            self._line.drop()

    def _shut(self) -> None:
        if self._door >= 0:
            self._unlock()  # closing would not do if a child has been forked
            door, self._door = self._door, -1
            os.close(door)
            self._line.close()


class GatedTx(Tx):
    """A transaction behind a gate, if there is one: what others ask for is asked there."""

    _gate: Gate | None = None

    @property
    def promised(self) -> bytes:
        return b"" if self._gate is None else self._gate.promised

    def forget_promise(self) -> None:
        if self._gate is not None:
            self._gate.promised = b""

    def others(self) -> list[tuple[int, bytes]]:
        return [] if self._gate is None else self._gate.others()

    def answer(self, number: int, said: bytes) -> None:
        assert self._gate is not None
        try:
            self._gate.answer(number, said)
        except OSError as error:
            raise StorageFailed(
                f"what another process asked for could not be answered ({error}); nothing was recorded. Free space or "
                "mend the disk, then try again"
            ) from error


_gates: WeakSet[Gate] = WeakSet()


def _let_go() -> None:
    """A child process must not keep locked what its parent has locked, should the parent die."""
    for gate in list(_gates):
        gate.drop()


os.register_at_fork(after_in_child=_let_go)


def _busy(timeout: float) -> Busy:
    return Busy(
        f"the book's lock was not free within {timeout:g} s: another process is writing. "
        "Try again, or look with `commonplace doctor` for one that hangs"
    )
