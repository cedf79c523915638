"""Locks and transactions that survive an interrupt.

Ctrl-C raises KeyboardInterrupt between two steps of any function: after a lock was taken and before that was noted, or
inside the very code that releases it. What is built here stays sound wherever that happens.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

LOOK = 0.05
"""How long a waiter relies on being woken, in seconds. An interrupted thread wakes nobody."""


class OwnedLock:
    """A lock that records its owner in the same step in which it is taken.

    So `release` may be called twice, or by a caller that does not know whether it got the lock: it releases the lock if
    this owner has it, and does nothing otherwise.
    """

    def __init__(self) -> None:
        self._owner: dict[None, object] = {}
        """Holds the owner, if there is one. `setdefault` tests and sets it in one step."""
        self._freed = threading.Lock()
        self._freed.acquire()

    def acquire(self, owner: object, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while self._owner.setdefault(None, owner) is not owner:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._freed.acquire(timeout=min(left, LOOK))
        return True

    def owned_by(self, owner: object) -> bool:
        return self._owner.get(None) is owner

    def release(self, owner: object) -> None:
        if self.owned_by(owner):
            del self._owner[None]
            wake(self._freed)


def wake(waiter: threading.Lock) -> None:
    """Release a lock on which a thread waits for news. It may have been released already."""
    if waiter.locked():
        try:
            waiter.release()
        except RuntimeError:  # another thread was quicker
            pass


def run_inside(manager: AbstractContextManager[T], body: Callable[[T], R]) -> R:
    """Run `body` inside a context manager that may be exited twice.

    An interrupt can fall into `__exit__` before it has done anything. Then it is called again.
    """
    try:
        with manager as entered:
            return body(entered)
    except BaseException:
        manager.__exit__(*sys.exc_info())
        raise
