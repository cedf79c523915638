"""Workers in processes of their own. One is killed with a task in its hands; another one takes the task over.

python examples/take_over.py team.db
"""

from __future__ import annotations

import subprocess
import sys
import time

import commonplace

LEASE = 1.0
"""Seconds that a task stays with a worker that does not answer any more."""


def worker(path: str, work_id: str, me: str, slow: bool) -> None:
    with commonplace.open(path) as book:
        work = book.work(id=work_id)
        while len(work.tasks(status="completed")) < 3:
            claim = work.claim(me, lease=LEASE)
            if claim is None:  # others hold what is left, or it waits for something
                time.sleep(0.05)
                continue
            print(f"{me} claims {claim.task.title}", flush=True)
            if slow:
                time.sleep(60)  # no heartbeat: after LEASE the task is anybody's
            claim.complete(f"resized by {me}")


def start(path: str, work_id: str, me: str, slow: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, __file__, path, work_id, me, slow]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def main(path: str) -> None:
    with commonplace.open(path) as book:
        work = book.work(name="pictures", goal="Resize every picture")
        for name in ("cat.png", "dog.png", "owl.png"):
            work.add_task(name)
        slow = start(path, work.id, "slow", "slow")
        assert slow.stdout is not None
        print(slow.stdout.readline().strip())
        slow.kill()
        print("slow is killed")
        print(start(path, work.id, "quick").communicate(timeout=60)[0].strip())
        for event in book.events(kinds=["task.completed"]):
            print(f"{event.payload['task_id'][-8:]} was completed by {event.actor}")


if len(sys.argv) > 2:
    worker(sys.argv[1], sys.argv[2], sys.argv[3], slow=bool(sys.argv[4]))
else:
    main(sys.argv[1] if sys.argv[1:] else "team.db")
