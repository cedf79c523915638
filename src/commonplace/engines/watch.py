"""Waiting until somebody writes to a file."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path


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
                os.read(fd, 4096)

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
