"""One runner at a time for each run: a lease that the runner renews, and that a dead runner's successor takes."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..engines.contract import Store
from ..errors import Busy, CommonplaceError
from ..events import new_id

SECONDS = 30.0


@contextmanager
def leading(store: Store, run: str) -> Iterator[None]:
    """Hold the lease of a run for the length of a `with` block. Raises Busy when somebody else holds it."""
    name, me = f"run/{run}"[:200], f"{_self()} {new_id()}"
    lease = store.lease(name, me, SECONDS)
    if lease.holder != me and _is_dead(lease.holder):
        store.lease(name, lease.holder, 0, lease.fence)
        lease = store.lease(name, me, SECONDS)
    if lease.holder != me:
        raise Busy(
            f"the run {run!r} is being run by {lease.holder.rpartition(' ')[0]}: wait for it, or if that process is "
            f"gone try again in {lease.seconds:.0f} s"
        )
    done = threading.Event()
    renewing = threading.Thread(target=_renew, args=(store, name, me, done), daemon=True)
    renewing.start()
    try:
        yield
    finally:
        done.set()
        renewing.join()
        store.lease(name, me, 0)


def _renew(store: Store, name: str, me: str, done: threading.Event) -> None:
    while not done.wait(SECONDS / 3):
        try:
            store.lease(name, me, SECONDS)
        except CommonplaceError:
            continue  # the next round may succeed; if none does the lease ends, which is what it is for


def _self() -> str:
    pid = os.getpid()
    return f"{socket.gethostname()} pid {pid} {_started(pid)}"


def _started(pid: int) -> str:
    """When a process was started, by the kernel's count: its id alone may have been given to another one."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _is_dead(holder: str) -> bool:
    """Whether a holder was a process of this host that is no longer there."""
    words = holder.split()
    if len(words) != 5 or words[0] != socket.gethostname() or not Path("/proc/self/stat").exists():
        return False
    return _started(int(words[2])) != words[3]
