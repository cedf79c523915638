"""The line of those who wait at a gate: a table of seats, one for each process, and a bell that all of them hear.

A seat says what its owner asks for and what it is answered. Beside the table lies a file for each seat, which its owner
keeps locked: a seat that nobody has locked belongs to somebody who is dead.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Iterable
from errno import ENOSPC
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from ..errors import OutcomeUnknown
from ..private import Access, make_folder, open_folder, open_private
from .clock import boot_clock
from .contract import ROOM
from .watch import Watch

NAP = 0.001
"""How often whoever found no seat looks at the door, and everybody while somebody else goes first, in seconds."""
TRIES = 20
"""How often whoever wants a seat tries to get at the table, before it waits without."""
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
_SEAT, _LENGTH, _ANSWERED_AT = struct.Struct("<BxxxIIIQQ"), struct.Struct("<I"), 8
"""A seat; and of its fields, how long an answer is."""
_TABLE = SEATS * _SEAT.size
_DONE = bytes((DONE,))
MOST_HANDED = 64 * 1024
"""How many bytes are handed on at most."""
_BATON = struct.Struct("<III")
"""What stands before what is handed on: its length, its checksum, and of which run of the machine it is."""


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

    def __init__(self, folder: Path, access: Access) -> None:
        make_folder(folder, access)
        self._access = access
        self._bell_at = folder / "bell"
        self._watch: Watch | None = None
        self._own: int | None = None
        self._opened = list[int]()
        """Every descriptor, the folder's first: what lies in it is opened by way of that, and no link is followed."""
        try:
            self._opened.append(open_folder(folder, access))
            self._table, self._bell = self._open("table"), self._open("bell")
        except BaseException:
            self.close()
            raise
        self._baton: int | None = None
        self._locks: dict[int, int] = {}
        self._begun: dict[int, int] = {}
        """The seats that we are at, and what we have made of each."""
        self._sits = False
        self._risen: tuple[int, bytes] = (FREE, b"")
        """What the seat said when we last left it."""
        self._boot = crc32(boot_clock()[0].encode())

    def _open(self, name: str, create: bool = True) -> int:
        folder = self._opened[0]
        if create:
            self._opened.append(open_private(name, os.O_RDWR, self._access, folder))
        else:
            self._opened.append(os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder))
        return self._opened[-1]

    # for who waits

    def begin_anew(self) -> None:
        """Somebody comes who has not asked for anything yet: what was answered before is not for it."""
        self._risen = (FREE, b"")

    def look(self, since: int) -> tuple[bool, bool]:
        """Whether it is done what we have asked for; and whether somebody goes first, who was there before and has
        waited for long for what nobody else can do for it."""
        table = os.pread(self._table, _TABLE, 0)
        said, own = table[:: _SEAT.size], self._own
        done = own is not None and said[own : own + 1] == _DONE
        return done, WAITING in said and self._goes_first(_seats(table, WAITING), since)

    def _goes_first(self, waiting: Iterable[_Seat], since: int) -> bool:
        now = time.monotonic_ns()
        return any(
            one.since < since and TURN * 1e9 < now - one.since < PATIENCE * 1e9 and self._is_taken(one.number)
            for one in waiting
        )

    def sit(self, asked: bytes | None, since: int, deadline: float) -> bool:
        """Whether there was a seat to wait in. Without one, because all are taken or the disk is full, one waits all
        the same, and is not served."""
        if self._sits:
            self._abandon()  # what was left there at some interruption is not ours any more
        try:
            number = self._seat()
            if number is None:
                return False
            state, length = WAITING, 0
            if asked is not None and len(asked) <= ROOM:
                _put(self._table, asked, _place(number))
                state, length = ASKED, len(asked)
            self._sits = True
            self._write(_Seat(number, state, length, 0, self._boot, since, int(deadline * 1e9)))
        except OSError:
            self._abandon()
            return False
        return True

    def _seat(self) -> int | None:
        for _ in range(TRIES if self._own is None else 0):
            if lock(self._table):
                try:
                    self._own = next((number for number in range(SEATS) if self._taken_by_us(number)), None)
                finally:
                    fcntl.flock(self._table, fcntl.LOCK_UN)
                break
            time.sleep(NAP / 10)  # somebody else takes one at this moment
        return self._own

    def _taken_by_us(self, number: int) -> bool:
        own = self._lock_of(number)
        if not lock(own):
            return False
        try:
            if self._state(number) in (BEGUN, ANSWERED):  # somebody may still write to it
                fcntl.flock(own, fcntl.LOCK_UN)
                return False
            _put(self._table, bytes(2 * ROOM), _place(number))  # so that there is room on the disk
            self._free(number)
            if not os.fstat(self._bell).st_size:
                _put(self._bell, b"\n", 0)  # and for that
            self._watch = Watch(self._bell_at)
        except BaseException:
            fcntl.flock(own, fcntl.LOCK_UN)
            raise
        return True

    def wait(self, timeout: float, sits: bool) -> None:
        """Until it rings, or the time is over."""
        if sits and self._watch is not None:
            self._watch.wait(timeout)
        else:
            time.sleep(min(timeout, NAP))

    def rise(self) -> tuple[int, bytes]:
        """Leave the seat. Answers with what it said, and with the answer if there is one. Only for who is inside, or
        has seen that it is done."""
        assert self._own is not None
        seat, answer = self._read(self._own), b""
        if seat.state in (ANSWERED, DONE):
            answer = os.pread(self._table, seat.answered, _place(seat.number) + ROOM)
        if seat.state != FREE:  # else we were interrupted when we rose
            self._risen = seat.state, answer
            self._free(seat.number)
        self._sits = False
        return self._risen

    def give_up(self) -> bytes | None:
        """Leave the seat, if we still sit there, without having been inside. Answers with the answer if what was asked
        for has been done. Raises OutcomeUnknown if somebody has begun with it and does not end, or may have done it."""
        until = time.monotonic() + CLOSE
        try:
            while self._sits:
                if lock(self._table):
                    try:
                        if self._state(self._own or 0) not in (BEGUN, ANSWERED):
                            self.rise()
                            break
                    finally:
                        fcntl.flock(self._table, fcntl.LOCK_UN)
                if time.monotonic() > until:
                    raise OutcomeUnknown([], "another process had begun to write it, and does not end")
                self.wait(NAP, True)
        except (
            BaseException
        ) as error:  # whatever it is, nobody must take for ours what is answered there from now on
            self._abandon()
            if isinstance(error, OutcomeUnknown):
                raise
            raise OutcomeUnknown([], "another process had begun to write it") from error
        state, answer = self._risen
        if state == ANSWERED:
            raise OutcomeUnknown([], "another process had begun to write it, and was gone")
        return answer if state == DONE else None

    def _abandon(self) -> None:
        """Leave the seat to whoever may still write to it: nobody takes it before that is over."""
        self._sits = False
        if self._own is not None:
            fcntl.flock(self._locks[self._own], fcntl.LOCK_UN)
            self._own = None
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    # for who is inside

    def begin(self) -> list[tuple[int, bytes]]:
        """What others ask for, each with its seat. From now on they wait for an answer, be it that it is given back."""
        if not self._those(ASKED) or not lock(self._table):
            return []  # or somebody gives up at this moment, and cannot be waited for: it may have been stopped
        try:
            now, found = time.monotonic_ns(), list[_Seat]()
            for one in self._those(ASKED, BEGUN, ANSWERED):
                if one.state == ASKED:
                    if self._is_there(one, now):
                        self._begun[one.number] = BEGUN
                        self._say(one.number, BEGUN)
                        found.append(one)
                elif one.number not in self._begun and not self._is_taken(one.number):
                    self._free(one.number)  # somebody has left it behind who was inside and died
        finally:
            fcntl.flock(self._table, fcntl.LOCK_UN)
        found.sort(key=lambda one: one.since)
        return [(one.number, os.pread(self._table, one.asked, _place(one.number))) for one in found]

    def answer(self, number: int, said: bytes) -> None:
        """Answer one of them, before it is committed; b"": it has to come in itself."""
        assert len(said) <= ROOM
        if not said:
            self._begun[number] = WAITING
            return
        _put(self._table, said, _place(number) + ROOM)
        _put(self._table, _LENGTH.pack(len(said)), number * _SEAT.size + _ANSWERED_AT)
        self._begun[number] = ANSWERED
        self._say(number, ANSWERED)

    def settle(self, outcome: int) -> None:
        """Say what became of those that were begun: all that were answered, if it was applied."""
        begun, self._begun = self._begun, {}  # whatever happens, they are none of the next commit
        for number, made in begun.items():
            if made == BEGUN or (made == ANSWERED and outcome == ASKED):  # nothing has happened
                made = ASKED if self._is_taken(number) else FREE
            elif made == ANSWERED:
                made = outcome
            self._say(number, made)

    def ring(self) -> None:
        """Wake all who wait, if there are any. In one go: the first who is awake may take our processor."""
        try:
            if self._those(WAITING, ASKED, ANSWERED, DONE):
                _put(self._bell, b"\n", 0)
        except OSError:
            pass  # those who wait look by themselves soon

    @property
    def company(self) -> bool:
        """Whether somebody sits there. Who is dead does not."""
        now = time.monotonic_ns()
        return any(
            0 <= now - one.since < FRESH * 1e9 or self._is_taken(one.number)
            for one in self._those(WAITING, ASKED, BEGUN, ANSWERED, DONE)
        )

    def hand_on(self, what: bytes) -> None:
        """Leave something for whoever is inside next, if it is not too much."""
        what = what if len(what) <= MOST_HANDED else b""
        if self._baton is None:
            self._baton = self._open("baton")
        _put(self._baton, _BATON.pack(len(what), crc32(what), self._boot) + what, 0)

    def handed(self) -> bytes:
        """What was left there, if it is whole, and of this run of the machine."""
        baton = self._found_baton()
        raw = b"" if baton is None else os.pread(baton, _BATON.size + MOST_HANDED, 0)
        length, check, boot = _BATON.unpack_from(raw.ljust(_BATON.size, b"\0"))
        what = raw[_BATON.size : _BATON.size + length]
        return what if len(what) == length and crc32(what) == check and boot == self._boot else b""

    def _found_baton(self) -> int | None:
        """The file in which something is handed on, if anybody has made it."""
        if self._baton is None:
            try:
                self._baton = self._open("baton", create=False)
            except FileNotFoundError:
                return None
        return self._baton

    def sweep(self) -> None:
        """Overwrite what nobody asks for any more, and what was handed on. Only for whoever is inside."""
        baton = self._found_baton()
        if baton is not None:
            _put(baton, bytes(os.fstat(baton).st_size), 0)
        end = os.fstat(self._table).st_size
        for number in range(SEATS):
            place, asks = _place(number), self._state(number) in (ASKED, DONE)
            if place < end and not (asks and self._is_taken(number)):
                _put(self._table, bytes(min(2 * ROOM, end - place)), place)

    def _is_there(self, seat: _Seat, now: int) -> bool:
        """Whether somebody sits there who still wants what it asks for. Who has just asked is not looked after."""
        if seat.boot != self._boot or seat.until <= now:
            return False
        return 0 <= now - seat.since < FRESH * 1e9 or self._is_taken(seat.number)

    def _is_taken(self, number: int) -> bool:
        """Whether somebody sits there. Otherwise it is for whoever comes next."""
        if number == self._own:
            return True
        try:
            theirs = self._lock_of(number)
        except OSError:
            return False  # the folder is gone, or there are no descriptors left: nobody is known to be there
        if not lock(theirs):
            return True
        fcntl.flock(theirs, fcntl.LOCK_UN)
        return False

    # seats

    def _those(self, *states: int) -> list[_Seat]:
        """The seats that say this."""
        return _seats(os.pread(self._table, _TABLE, 0), *states)

    def _read(self, number: int) -> _Seat:
        raw = os.pread(self._table, _SEAT.size, number * _SEAT.size)
        return _Seat(number, *_SEAT.unpack(raw.ljust(_SEAT.size, b"\0")))

    def _state(self, number: int) -> int:
        return (os.pread(self._table, 1, number * _SEAT.size) or b"\0")[0]

    def _say(self, number: int, state: int) -> None:
        """Change what a seat says, and nothing else about it."""
        _put(self._table, bytes((state,)), number * _SEAT.size)

    def _write(self, seat: _Seat) -> None:
        _put(self._table, _SEAT.pack(*seat[1:]), seat.number * _SEAT.size)

    def _free(self, number: int) -> None:
        self._write(_Seat(number, FREE, 0, 0, 0, 0, 0))

    def _lock_of(self, number: int) -> int:
        if number not in self._locks:
            self._locks[number] = self._open(str(number))
        return self._locks[number]

    def close(self) -> None:
        self._abandon()
        self.drop()

    def drop(self) -> None:
        """Close what is open, and leave everything as it is."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        while self._opened:
            os.close(self._opened.pop())


def _seats(table: bytes, *states: int) -> list[_Seat]:
    """Mostly there is none, which their first bytes show."""
    found = [number for number, state in enumerate(table[:: _SEAT.size].rstrip(b"\0")) if state in states]
    table = table.ljust(_TABLE, b"\0") if found else b""
    return [_Seat(number, *_SEAT.unpack_from(table, number * _SEAT.size)) for number in found]


def _place(number: int) -> int:
    """Where in the table it stands what a seat asks; what it is answered stands behind."""
    return _TABLE + number * 2 * ROOM


def _put(fd: int, what: bytes, offset: int) -> None:
    """Write all of it, or raise OSError."""
    if os.pwrite(fd, what, offset) < len(what):
        raise OSError(ENOSPC, "there is no room for it")


def lock(fd: int) -> bool:
    """Whether the file was free, and is ours."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
