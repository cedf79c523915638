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
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from ..errors import BookClosed, Busy, OutcomeUnknown
from .clock import boot_clock
from .contract import ROOM, Asked, Moved, Served, Tx, nothing
from .watch import Watch

LOOK = 0.01
"""How often those in the line look at the door without having heard the bell, in seconds."""
NAP = 0.001
"""The same for whoever found no seat, and while somebody else goes first."""
TURN, PATIENCE = 0.003, 0.25
"""Everybody lets those go first who came before and have waited longer than that for what only they can do. Who then
does not come for so long (a debugger has stopped it) is not waited for."""
CLOSE = 1.0
"""How long whoever gives up waits for the outcome of what somebody else has begun for it."""
FRESH = 0.05
"""For so long whoever has asked for something is taken to be alive."""

SEATS = 64
FREE, WAITING, ASKED, BEGUN, ANSWERED, DONE = range(6)
"""What a seat says. Its owner waits to get in; or has asked for something; whoever is inside has begun with that; has
left an answer, which holds if the commit succeeds; the commit has succeeded."""
_SEAT = struct.Struct("<BxxxIIIQQ")
_TABLE = SEATS * _SEAT.size
_EMPTY = bytes(_TABLE)


class Gate:
    """Lets one thread of one process in at a time, however many wait.

    `only`: nothing else keeps writers apart, so whoever has entered makes sure that the file is still the one
    that others would lock, too.
    """

    def __init__(self, path: Path, only: bool = False) -> None:
        self.path = path
        self._only = only
        self._mutex = threading.Lock()
        self._line_at = path.with_name(path.name.removesuffix("gate") + "line")
        self._open()

    def _open(self) -> None:
        self._door, self._line = _opened(self.path), Line(self._line_at)

    @staticmethod
    def remove(path: Path) -> None:
        """Remove its files."""
        path.unlink(missing_ok=True)
        shutil.rmtree(path.with_name(path.name.removesuffix("gate") + "line"), ignore_errors=True)

    def enter(self, timeout: float, asked: Asked = nothing) -> bytes:
        """Take the lock, or raise Busy after `timeout` seconds. If `asked` answers with something, whoever is inside
        may do that meanwhile: then Served is raised, and nothing is taken. Answers with what somebody inside has
        answered to it, and may have committed, or not, before it was gone."""
        deadline, entered = time.monotonic() + timeout, False
        try:
            entered = self._mutex.acquire(timeout=max(timeout, 0))
            if not entered:
                raise TimeoutError
            if self._door < 0:
                raise BookClosed("this book is closed; open it again")
            promised = self._wait(deadline, asked)
            while self._only and not self._is_there():  # somebody removed the gate: lock the new one
                self._shut()
                self._open()
                promised = self._wait(deadline, nothing if promised else asked) or promised
        except BaseException as error:
            answer = None
            if entered:
                try:
                    answer = self._line.give_up()
                finally:
                    self._unlock()
                    self._mutex.release()
            if answer is not None:
                raise Served(answer, None if isinstance(error, TimeoutError) else error) from error
            if type(error) is TimeoutError:
                raise _busy(timeout) from None
            raise
        return promised

    @contextmanager
    def inside(self, timeout: float, asked: Asked = nothing) -> Iterator[bytes]:
        """The same, and leave at the end."""
        promised, error = self.enter(timeout, asked), None
        try:
            yield promised
        except BaseException as trouble:
            error = trouble
            raise
        finally:
            self.leave(error)

    def _wait(self, deadline: float, asked: Asked) -> bytes:
        """Until the door is locked for us, or it is done what we have asked for."""
        line, since = self._line, time.monotonic_ns()
        if not line.somebody_goes_first(since) and self._lock():
            return b""
        sits = line.sit(asked(), since, deadline)
        while True:
            if sits and line.done():
                raise Served(line.rise()[1])
            others_first = line.somebody_goes_first(since)
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
        return _lock(self._door)

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

    def leave(self, error: BaseException | None = None) -> None:
        """Leave. What was answered holds if there was no error. If somebody moved, nothing has happened; else those who
        were answered see for themselves what has."""
        try:
            self._line.settle(DONE if error is None else ASKED if isinstance(error, Moved) else ANSWERED)
        finally:
            self._unlock()
            self._line.ring()
            self._mutex.release()

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
            self._shut()

    def _shut(self) -> None:
        if self._door >= 0:
            self._unlock()  # closing would not do if a child has been forked
            os.close(self._door)
            self._door = -1
            self._line.close()


class GatedTx(Tx):
    """A transaction behind a gate, if there is one: what others ask for is asked there."""

    _gate: Gate | None = None

    def others(self) -> list[tuple[int, bytes]]:
        return [] if self._gate is None else self._gate.others()

    def answer(self, number: int, said: bytes) -> None:
        assert self._gate is not None
        self._gate.answer(number, said)


class _Seat(NamedTuple):
    number: int
    state: int
    asked: int
    """How many bytes it asks with, and is answered with."""
    answered: int
    boot: int
    """Of which run of the machine the times are."""
    since: int
    until: int
    """From when on it waits, and how long, in nanoseconds of the clock that all processes of a host share."""


class Line:
    """Those who wait, each in a seat of the table.

    A seat's owner writes it until it is begun, whoever is inside from then on until it is done. All can be sure of that
    because whoever takes a seat, begins with what is asked there, or gives it up, locks the table for a moment; and
    whoever comes in finds nobody there. A seat that nobody has locked belongs to somebody who is dead.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._table, self._bell = _opened(folder / "table"), _opened(folder / "bell")
        self._locks: dict[int, int] = {}
        self._begun: dict[int, int] = {}
        """The seats that we are at, and what we have made of each."""
        self._own: int | None = None
        self._sits = False
        self._boot = crc32(boot_clock()[0].encode())
        self._watch: Watch | None = None

    # for who waits

    def somebody_goes_first(self, since: int) -> bool:
        """Whether somebody was there before, and has waited for long for what nobody else can do for it."""
        waiting = self._those(WAITING)
        if not waiting:
            return False
        now = time.monotonic_ns()
        return any(
            one.since < since and TURN * 1e9 < now - one.since < PATIENCE * 1e9 and self._is_taken(one.number)
            for one in waiting
        )

    def sit(self, asked: bytes | None, since: int, deadline: float) -> bool:
        """Whether there was a seat to wait in."""
        number = self._seat()
        if number is None:
            return False
        if asked is not None and len(asked) <= ROOM:
            os.pwrite(self._table, asked, _place(number))
            state, length = ASKED, len(asked)
        else:
            state, length = WAITING, 0
        self._sits = True
        self._write(_Seat(number, state, length, 0, self._boot, since, int(deadline * 1e9)))
        return True

    def _seat(self) -> int | None:
        if self._own is None and _lock(self._table):
            try:
                self._own = next((number for number in range(SEATS) if self._taken_by_us(number)), None)
            finally:
                fcntl.flock(self._table, fcntl.LOCK_UN)
        return self._own

    def _taken_by_us(self, number: int) -> bool:
        lock = self._lock_of(number)
        if not _lock(lock):
            return False
        if self._read(number).state in (BEGUN, ANSWERED):  # somebody may still write to it
            fcntl.flock(lock, fcntl.LOCK_UN)
            return False
        os.pwrite(self._table, bytes(2 * ROOM), _place(number))  # so that there is room on the disk
        self._free(number)
        if not os.fstat(self._bell).st_size:
            os.pwrite(self._bell, b"\n", 0)  # and for that
        self._watch = Watch(self._folder / "bell")
        return True

    def wait(self, timeout: float, sits: bool) -> None:
        """Until it rings, or the time is over."""
        if sits and self._watch is not None:
            self._watch.wait(timeout)
        else:
            time.sleep(min(timeout, NAP))

    def done(self) -> bool:
        assert self._own is not None
        return self._read(self._own).state == DONE

    def rise(self) -> tuple[int, bytes]:
        """Leave the seat. Answers with what it said, and with the answer if there is one. Only for who is inside, or
        has seen that it is done."""
        assert self._own is not None
        seat = self._read(self._own)
        answer = b""
        if seat.state in (ANSWERED, DONE):
            answer = os.pread(self._table, seat.answered, _place(seat.number) + ROOM)
        self._sits = False
        self._free(seat.number)
        return seat.state, answer

    def give_up(self) -> bytes | None:
        """Leave the seat without having been inside. Answers with the answer if what was asked for has been done.
        Raises OutcomeUnknown if somebody has begun with it, and does not end."""
        until = time.monotonic() + CLOSE
        while self._sits:
            if _lock(self._table):
                try:
                    seat = self._read(self._own or 0)
                    if seat.state not in (BEGUN, ANSWERED):
                        state, answer = self.rise()
                        return answer if state == DONE else None
                finally:
                    fcntl.flock(self._table, fcntl.LOCK_UN)
            if time.monotonic() > until:
                self._abandon()
                raise OutcomeUnknown([], "another process had begun to write it, and does not end")
            self.wait(NAP, True)
        return None

    def _abandon(self) -> None:
        """Leave the seat to whoever still writes to it: nobody takes it before that is over."""
        if self._own is not None:
            self._sits = False
            fcntl.flock(self._locks[self._own], fcntl.LOCK_UN)
            self._own = None
            if self._watch is not None:
                self._watch.close()

    # for who is inside

    def begin(self) -> list[tuple[int, bytes]]:
        if not self._those(ASKED) or not _lock(self._table):
            return []  # or somebody gives up at this moment, and cannot be waited for: it may have been stopped
        try:
            now = time.monotonic_ns()
            for one in self._those(BEGUN, ANSWERED):  # what somebody has left behind who was inside and died
                if one.number not in self._begun and not self._is_taken(one.number):
                    self._free(one.number)
            found = [one for one in self._those(ASKED) if self._is_there(one, now)]
            for one in found:
                self._begun[one.number] = BEGUN
                self._write(one._replace(state=BEGUN))
        finally:
            fcntl.flock(self._table, fcntl.LOCK_UN)
        found.sort(key=lambda one: one.since)
        return [(one.number, os.pread(self._table, one.asked, _place(one.number))) for one in found]

    def answer(self, number: int, said: bytes) -> None:
        seat = self._read(number)
        if said:
            os.pwrite(self._table, said, _place(number) + ROOM)
            self._begun[number] = ANSWERED
            self._write(seat._replace(state=ANSWERED, answered=len(said)))
        else:
            self._begun[number] = WAITING

    def settle(self, outcome: int) -> None:
        """Say what became of those that were begun: all that were answered, if it was applied."""
        while self._begun:
            number, made = self._begun.popitem()
            if made == BEGUN or (made == ANSWERED and outcome == ASKED):
                made = ASKED  # nothing has happened: it is asked for as before
            elif made == ANSWERED:
                made = outcome
            self._write(self._read(number)._replace(state=made))

    def ring(self) -> None:
        """Wake all who wait, if there are any. In one go: the first who is awake may take our processor."""
        if self._those(WAITING, ASKED, ANSWERED, DONE):
            os.pwrite(self._bell, b"\n", 0)

    def sweep(self) -> None:
        """Overwrite what nobody asks for any more. Only for whoever is inside."""
        with os.fdopen(os.dup(self._table), "rb+", buffering=0) as table:
            end = table.seek(0, os.SEEK_END)
        for number in range(SEATS):
            seat, place = self._read(number), _place(number)
            if place < end and (seat.state == FREE or not self._is_taken(number)):
                os.pwrite(self._table, bytes(min(2 * ROOM, end - place)), place)

    def _is_there(self, seat: _Seat, now: int) -> bool:
        """Whether somebody sits there who still wants what it asks for. Who has just asked is not looked after."""
        if seat.boot != self._boot or seat.until <= now:
            return False
        return 0 <= now - seat.since < FRESH * 1e9 or self._is_taken(seat.number)

    def _is_taken(self, number: int) -> bool:
        """Whether somebody sits there. Otherwise it is for whoever comes next."""
        lock = self._lock_of(number)
        if number == self._own or not _lock(lock):
            return True
        fcntl.flock(lock, fcntl.LOCK_UN)
        return False

    # seats

    def _those(self, *states: int) -> list[_Seat]:
        """The seats that say this. Most of the table is empty, and its end is not looked at."""
        table = os.pread(self._table, _TABLE, 0)
        if not table or table == _EMPTY:
            return []
        table = table.rstrip(b"\0")
        table = table.ljust(-(-len(table) // _SEAT.size) * _SEAT.size, b"\0")
        return [
            _Seat(number, *fields)
            for number, fields in enumerate(_SEAT.iter_unpack(table))
            if fields[0] in states
        ]

    def _read(self, number: int) -> _Seat:
        raw = os.pread(self._table, _SEAT.size, number * _SEAT.size)
        return _Seat(number, *_SEAT.unpack(raw.ljust(_SEAT.size, b"\0")))

    def _write(self, seat: _Seat) -> None:
        os.pwrite(self._table, _SEAT.pack(*seat[1:]), seat.number * _SEAT.size)

    def _free(self, number: int) -> None:
        self._write(_Seat(number, FREE, 0, 0, 0, 0, 0))

    def _lock_of(self, number: int) -> int:
        if number not in self._locks:
            self._locks[number] = _opened(self._folder / str(number))
        return self._locks[number]

    def close(self) -> None:
        self._abandon()
        while self._locks:
            os.close(self._locks.popitem()[1])
        os.close(self._table)
        os.close(self._bell)


def _place(number: int) -> int:
    """Where in the table it stands what a seat asks; what it is answered stands behind."""
    return _TABLE + number * 2 * ROOM


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)


def _lock(fd: int) -> bool:
    """Whether the file was free, and is ours."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _busy(timeout: float) -> Busy:
    return Busy(
        f"the book's lock was not free within {timeout:g} s: another process is writing. "
        "Try again, or look with `commonplace doctor` for one that hangs"
    )
