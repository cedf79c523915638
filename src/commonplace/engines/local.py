"""What the engines on local disks share: a fair lock between processes, news of commits, and a clock.

All of it hangs on one small file beside the book, the *gate*. It is never the database itself: closing any
other descriptor of a database file would drop SQLite's own locks on it.
"""

from __future__ import annotations

import fcntl
import os
import select
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ..errors import BookClosed, Busy
from ..forks import Born
from .contract import Store

SLOW_CHECK = 0.5
"""How long a waiter trusts silence before it looks for itself, in seconds."""
TURN = 0.003
"""How long a process may come back to the gate while others wait, in seconds."""
NAP = 0.001
"""How often the first in the queue looks whether the one whose turn it is still comes back."""
PATIENCE = 0.25
"""How long the others in the queue trust that the first one is awake."""


class Gate:
    """A lock that processes get in the order they asked for it, each for a turn, and a place to leave word of a commit.

    Whoever has entered may come back for as long as its turn lasts, however many wait: a process that goes on
    knows what it has just written, and one that has to be woken for each commit does not. There are two locks for
    that. The *door* is the lock itself. Those who find it taken stand in a *queue*, in which the kernel keeps
    them in order, and only the first of them waits at the door.

    `only`: nothing else keeps writers apart, so whoever has entered makes sure that the file is still the one
    that others would lock, too.
    """

    def __init__(self, path: Path, only: bool = False) -> None:
        self.path = path
        self._only = only
        self._mutex = threading.Lock()
        self._door = _Lock(path)
        self._queue = _Lock(path.with_name(path.name.removesuffix("gate") + "queue"))
        self._turn_ends = 0.0

    def enter(self, timeout: float) -> None:
        """Take the lock, or raise Busy after `timeout` seconds."""
        deadline, entered = time.monotonic() + timeout, False
        try:
            entered = self._mutex.acquire(timeout=max(timeout, 0))
            if not entered:
                raise _busy(timeout)
            if self._door.fd < 0:
                raise BookClosed("this book is closed; open it again")
            while not self._entered(deadline):
                self._door.open()  # somebody removed the gate: lock the new one
        except BaseException as error:
            if entered:
                if self._door.fd >= 0:
                    self._door.leave()
                    self._queue.leave()
                self._mutex.release()
            if type(error) is TimeoutError:
                raise _busy(timeout) from None
            raise

    def _entered(self, deadline: float) -> bool:
        """Lock the door; False if its file is no longer the one at our path."""
        if time.monotonic() >= self._turn_ends or not self._door.take():
            try:
                self._take_turns(deadline)
            finally:
                self._queue.leave()
            self._turn_ends = time.monotonic() + TURN
        if not self._only or self._door.is_there():
            return True
        self._door.leave()
        self._door.close()
        return False

    def _take_turns(self, deadline: float) -> None:
        """Stand in the queue until it is our turn at the door. Whoever is first in it and does not move (a debugger has
        stopped it) holds nobody up: the others look at the door themselves after a while, and soon from then on."""
        patience = NAP if self._queue.awaited else PATIENCE
        first = self._queue.take()
        while not first:
            left = deadline - time.monotonic()
            first = self._queue.wait(min(left, patience))
            if not first and self._door.take():
                return
            if not first and left <= patience:
                raise TimeoutError
        if not self._door.take():
            self._wait_at_the_door(deadline)
        self._queue.write(b"%020d" % int((time.monotonic() + TURN) * 1e9))

    def _wait_at_the_door(self, deadline: float) -> None:
        """First in the queue: until the turn of the one inside is over, or it has nothing more to do."""
        now = time.monotonic()
        ends = min(self._queue.read() / 1e9, now + TURN, deadline)
        word = self.last_word()
        while now < ends:
            time.sleep(NAP)
            if (latest := self.last_word()) == word and self._door.take():
                return
            now, word = time.monotonic(), latest
        if not self._door.wait(deadline - now):
            raise TimeoutError

    def leave(self) -> None:
        self._door.leave()
        self._mutex.release()

    def poke(self, position: int) -> None:
        """Leave word that this position is committed, and wake whoever watches the gate."""
        self._door.write(b"%020d" % position)

    def poke_again(self) -> None:
        """Wake whoever watches the gate, with nothing new to say."""
        with self._mutex:
            if self._door.fd >= 0:
                self._door.write(b"\n", 20)  # behind the word, which another process may be writing

    def last_word(self) -> int:
        """The position that word was last left of; 0 when nobody has left any."""
        return self._door.read()

    def close(self, last: Callable[[], None] = lambda: None) -> None:
        """Close it, once whoever of this process is inside has left. `last` is done before."""
        with self._mutex:
            last()
            self._door.close()
            self._queue.close()


class _Lock:
    """A file with a lock on it that the kernel gives to one at a time, and with a number written in it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._proxy: _Proxy | None = None
        self.open()

    def open(self) -> None:
        self.fd = _opened(self._path)

    @property
    def awaited(self) -> bool:
        """Whether somebody has waited for it in vain, and it still has not come."""
        return self._proxy is not None and self._proxy.asked

    def take(self) -> bool:
        """Whether it was free, and is ours."""
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def wait(self, timeout: float) -> bool:
        """Whether it became ours within so many seconds. Whoever asks again before it leaves keeps its place among
        those who wait."""
        if self._proxy is None:
            self._proxy = _Proxy(self._path)
        return self._proxy.enter(timeout)

    def leave(self) -> None:
        """Let go of it, if it is ours, and of our place among those who wait for it."""
        fcntl.flock(self.fd, fcntl.LOCK_UN)
        if self._proxy is not None:
            self._proxy.leave()

    def is_there(self) -> bool:
        """Whether the file that we hold is the one at its path."""
        held = self.fd if self._proxy is None or not self._proxy.holding else self._proxy.fd
        try:
            here, there = os.fstat(held), self._path.stat()
        except FileNotFoundError:
            return False
        return (here.st_ino, here.st_dev) == (there.st_ino, there.st_dev)

    def write(self, what: bytes, offset: int = 0) -> None:
        os.pwrite(self.fd, what, offset)

    def read(self) -> int:
        word = os.pread(self.fd, 20, 0)
        return int(word) if len(word) == 20 and word.isdigit() else 0

    def close(self) -> None:
        if self._proxy is not None:
            self._proxy.dismiss()
            self._proxy = None
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class _Proxy:
    """A thread that queues for a lock in a caller's place.

    The kernel serves blocked callers in turn, which polling would not, but it cannot be told to give up
    after a while. So the thread blocks, on a descriptor of its own, and the caller waits for the thread.
    If the caller gives up, the thread lets go of the lock as soon as it gets it.
    """

    def __init__(self, path: Path) -> None:
        self.fd = _opened(path)
        self.asked = False
        """Whether the thread is after the lock."""
        self.holding = False
        """Whether the lock is there for the caller, heard of or not."""
        self._wanted = self._dismissed = False
        self._state = threading.Lock()
        self._go, self._got = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._got.acquire()
        threading.Thread(target=self._serve, daemon=True, name="commonplace-gate").start()

    def enter(self, timeout: float) -> bool:
        """Whether the lock is there within so many seconds. If not, the thread goes on waiting for it."""
        with self._state:
            self._wanted = True
            if not self.asked:
                self.asked = True
                self._go.release()
        return self._got.acquire(timeout=max(timeout, 0)) or self._got.acquire(blocking=False)

    def leave(self) -> None:
        """Let go of the lock, or of what the thread is about to get."""
        with self._state:
            self._wanted = False
            if self.holding:
                self.holding = False
                self._got.acquire(blocking=False)  # not yet heard of
                fcntl.flock(self.fd, fcntl.LOCK_UN)

    def dismiss(self) -> None:
        """The same, and the thread ends."""
        self.leave()
        with self._state:
            self._dismissed = True
            if self._go.locked():
                self._go.release()

    def _serve(self) -> None:
        while True:
            self._go.acquire()
            if not self._dismissed:
                fcntl.flock(self.fd, fcntl.LOCK_EX)
            with self._state:
                self.asked = False
                if self._wanted and not self._dismissed:
                    self.holding = True
                    self._got.release()
                    continue
                fcntl.flock(self.fd, fcntl.LOCK_UN)  # closing would not do if a child has been forked
                if self._dismissed:
                    os.close(self.fd)
                    return


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)


def _busy(timeout: float) -> Busy:
    return Busy(
        f"the book's lock was not free within {timeout:g} s: another process is writing. "
        "Try again, or look with `commonplace doctor` for one that hangs"
    )


class Disk:
    """The few calls that durability rests on, in one place, so that tests can make each of them fail."""

    def write(self, fd: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]

    def sync(self, fd: int) -> None:
        os.fsync(fd)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def replace(self, source: Path, target: Path) -> None:
        source.replace(target)
        self.sync_folder(target.parent)

    def sync_folder(self, folder: Path) -> None:
        fd = os.open(folder, os.O_RDONLY)
        try:
            self.sync(fd)
        finally:
            os.close(fd)

    def write_file(self, path: Path, data: bytes) -> None:
        """Put a whole file in place: after a crash there is the old one or the new one."""
        self.replace(self.write_beside(path, data), path)

    def write_beside(self, path: Path, data: bytes) -> Path:
        """Write the file that is to take this one's place, and see it on disk."""
        fresh = path.with_name(f"{path.name}.new")
        fresh.unlink(missing_ok=True)  # left by a crash, or a link that leads elsewhere
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            self.write(fd, data)
            self.sync(fd)
        finally:
            os.close(fd)
        return fresh


class Watch:
    """Waits for somebody to write to a file: by inotify or kqueue, or where there is neither by a short sleep.

    Made before the state is looked at, it cannot miss a write that comes after the look.
    """

    def __init__(self, path: Path) -> None:
        self._close: Callable[[], None] = lambda: None
        if sys.platform == "linux":
            self._by_inotify(path)
        elif hasattr(select, "kqueue"):
            self._by_kqueue(path)
        else:
            self.wait = lambda timeout: time.sleep(min(timeout, 0.05))

    def wait(self, timeout: float) -> None:
        """Return when the file was written to since the last call, or after `timeout` seconds at most."""
        raise AssertionError("chosen by the platform when the watch is made")

    def close(self) -> None:
        self._close()

    def _by_inotify(self, path: Path) -> None:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        in_modify = 0x2
        if fd < 0 or libc.inotify_add_watch(fd, os.fsencode(path), in_modify) < 0:
            if fd >= 0:
                os.close(fd)
            # The user's limit of watches is reached; the slow check still brings every event.
            self.wait = lambda timeout: time.sleep(min(timeout, 0.05))  # type: ignore[method-assign]
            return
        poll = select.poll()
        poll.register(fd, select.POLLIN)

        def wait(timeout: float) -> None:
            if poll.poll(max(0, timeout * 1000)):
                os.read(fd, 65536)

        self.wait = wait  # type: ignore[method-assign]
        self._close = lambda: os.close(fd)

    def _by_kqueue(self, path: Path) -> None:
        queue = select.kqueue()  # type: ignore[attr-defined,unused-ignore]
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        written = select.kevent(  # type: ignore[attr-defined,unused-ignore]
            fd,
            filter=select.KQ_FILTER_VNODE,  # type: ignore[attr-defined,unused-ignore]
            flags=select.KQ_EV_ADD | select.KQ_EV_CLEAR,  # type: ignore[attr-defined,unused-ignore]
            fflags=select.KQ_NOTE_WRITE,  # type: ignore[attr-defined,unused-ignore]
        )
        queue.control([written], 0)

        def close() -> None:
            os.close(fd)
            queue.close()

        self.wait = lambda timeout: queue.control(None, 1, timeout)  # type: ignore[method-assign]
        self._close = close


def boot_clock() -> tuple[str, float]:
    """This boot's name and the seconds it has run, sleep included: a clock that nobody can set back, shared
    by every process of the host."""
    if sys.platform != "linux":
        return "", time.monotonic()
    return _boot_id(), time.clock_gettime(time.CLOCK_BOOTTIME)


def _boot_id() -> str:
    global _boot
    if _boot is None:
        _boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return _boot


_boot: str | None = None


def filesystem(path: Path) -> str:
    """The type of the file system a path lies on, or "" where the platform does not say."""
    mounts = Path("/proc/self/mountinfo")
    if not mounts.exists():
        return ""
    place, found, kind = path.resolve(), -1, ""
    for line in mounts.read_text().splitlines():
        left, _, right = line.partition(" - ")
        mount = Path(left.split()[4].replace("\\040", " "))
        if place.is_relative_to(mount) and len(mount.parts) > found:
            found, kind = len(mount.parts), right.split()[0]
    return kind


def disk_notes(path: Path) -> tuple[str, ...]:
    """What the file system under a book means for its promises."""
    kind = filesystem(path)
    if kind in ("tmpfs", "ramfs"):
        return (f"it lies on {kind}, so it ends with the machine's power",)
    if kind.startswith(("nfs", "cifs", "smb", "fuse.sshfs", "9p", "afs")):
        return (
            f"it lies on {kind}: locks there are not reliable. Use a local disk, or PostgreSQL for many hosts",
        )
    return ()


class LocalStore(Store):
    """What a store behind a gate does the same whatever it keeps: waiting, waking, closing."""

    def __init__(self, gate: Path, only: bool = False) -> None:
        self._gate = Gate(gate, only)
        self._born = Born()
        self._closed = False
        self._watches: list[Watch] = []

    def _check(self) -> None:
        self._born.check()
        if self._closed:
            raise BookClosed("this book is closed; open it again")

    def wait(self, after: int, timeout: float) -> int:
        self._check()
        deadline = time.monotonic() + timeout
        watch = self._watches.pop() if self._watches else Watch(self._gate.path)
        position = 0
        try:
            while not self._closed:
                with self.read() as reads:
                    position = reads.head.position
                left = deadline - time.monotonic()
                if position > after or left <= 0:
                    break
                watch.wait(min(left, SLOW_CHECK))
        except BookClosed:
            pass  # between two looks: this wait ends like any other
        finally:
            if self._closed:
                watch.close()
            else:
                self._watches.append(watch)
        return position

    def wake(self) -> None:
        self._born.check()
        self._closed = True
        self._gate.poke_again()

    def acknowledged(self) -> int:
        self._check()
        return self._gate.last_word()

    def close(self) -> None:
        if self._born.elsewhere:
            return
        if not self._closed:
            self.wake()
        while self._watches:
            self._watches.pop().close()
        self._gate.close(self._let_go)

    def _let_go(self) -> None:
        """Release what only writers use; none is inside."""
