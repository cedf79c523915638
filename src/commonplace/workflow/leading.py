"""One runner at a time for each run: a lease that the runner renews, and that a dead runner's successor takes."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from ..engines.clock import boot_clock
from ..engines.contract import Store
from ..errors import Busy, CommonplaceError
from ..ledger.events import new_id

SECONDS = 30.0


class RunLead:
    """The right to run a run. `check` raises Busy when another process has taken it meanwhile."""

    def __init__(self, run: str) -> None:
        self._run = run
        self.lost = False

    def check(self) -> None:
        if self.lost:
            raise Busy(f"another process has taken over the run {self._run!r}; this one stops")


@contextmanager
def leading(store: Store, run: str) -> Iterator[RunLead]:
    """Hold the lease of a run for the length of a `with` block. Raises Busy when another process holds it."""
    name, me = f"run/{sha256(run.encode()).hexdigest()}", f"{_self()} {new_id()}"
    lease = store.lease(name, me, SECONDS)
    if lease.holder != me and _is_dead(lease.holder):
        store.lease(name, lease.holder, 0, lease.fence)
        lease = store.lease(name, me, SECONDS)
    if lease.holder != me:
        raise Busy(
            f"the run {run!r} is being run by {' '.join(lease.holder.split()[:3])}: wait for it, or if that process is "
            f"gone try again in {lease.seconds:.0f} s"
        )
    lead, done = RunLead(run), threading.Event()
    renewing = threading.Thread(target=_renew, args=(store, name, me, lead, done), daemon=True)
    renewing.start()
    try:
        yield lead
    finally:
        done.set()
        renewing.join()
        store.lease(name, me, 0)


def _renew(store: Store, name: str, me: str, lead: RunLead, done: threading.Event) -> None:
    renewed = time.monotonic()
    while not done.wait(SECONDS / 3):
        try:
            lead.lost = store.lease(name, me, SECONDS).holder != me
            renewed = time.monotonic()
        except CommonplaceError:  # the next round may succeed; until then the lease runs
            lead.lost = time.monotonic() - renewed > SECONDS


def _self() -> str:
    pid = os.getpid()
    return f"{socket.gethostname()} pid {pid} {_started(pid)} {_machine()}"


def _started(pid: int) -> str:
    """When a process was started, by the kernel's count: its id alone may have been given to another one."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _machine() -> str:
    """Where process ids mean the same as here: this boot and this namespace of process ids. Host names do not tell
    machines apart, and containers share the boot of their host. "" where the system does not say."""
    try:
        return f"{boot_clock()[0]}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


def _is_dead(holder: str) -> bool:
    """Whether a holder was a process of this machine that is no longer there."""
    words = holder.split()
    return len(words) == 6 and words[4] == _machine() and _started(int(words[2])) != words[3]
