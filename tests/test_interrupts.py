"""Ctrl-C at any moment: the write under way may land or not, and every later write goes on."""

from __future__ import annotations

import linecache
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import commonplace
from commonplace import Book

TRACED = (
    "committer.py",
    "interrupts.py",
    "overlay.py",
    "lock_file.py",
    "local.py",
    "sqlite.py",
    "files.py",
    "memory.py",
)
STEPS = {"memory": 1, "sqlite": 1, "files": 3}
"""Every how many-th line is tried: that of files has many."""
FORMS = {"memory": "memory:", "sqlite": "{}/b.db", "files": "file:{}/b"}


class InterruptAt:
    """Raises KeyboardInterrupt before a line of the way of a write, the so many-th that is reached."""

    def __init__(self, number: int) -> None:
        self.number, self.reached = number, 0

    def __call__(self, frame: FrameType, event: str, _arg: Any) -> Any:
        path = Path(frame.f_code.co_filename)
        if "commonplace" not in path.parts or path.name not in TRACED:
            return None
        if event == "line" and not self._is_with(frame):
            self.reached += 1
            if self.reached == self.number:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self

    def _is_with(self, frame: FrameType) -> bool:
        """A line that takes or releases a lock of the interpreter in one step, which no interrupt can split."""
        return linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip().startswith("with ")


def write_in_thread(book: Book) -> object:
    answers = list[object]()

    def write() -> None:
        try:
            answers.append(book.record("agent.spoke", actor="another"))
        except Exception as error:
            answers.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    thread.join(30)
    assert not thread.is_alive(), "it hangs"
    return answers[0]


@pytest.mark.spec("L2")
@pytest.mark.parametrize("engine", FORMS)
def test_an_interrupt_before_any_line_of_a_write_hangs_nobody(engine: str, tmp_path: Path) -> None:
    """As in a process that goes on: the thread that was interrupted, another thread and another handle write."""
    url, number, before = FORMS[engine].format(tmp_path), 0, sys.gettrace()
    with commonplace.open(url, timeout=5) as book:
        other = book if engine == "memory" else commonplace.open(url, timeout=5)
        while True:
            number += STEPS[engine]
            interrupt, landed = InterruptAt(number), True
            sys.settrace(interrupt)
            try:
                book.record("agent.spoke", id=f"w{number}")
            except KeyboardInterrupt:
                landed = False
            finally:
                sys.settrace(before)
            for answer in (write_in_thread(book), write_in_thread(other)):
                assert isinstance(answer, commonplace.Event), (number, answer)
            assert book.record("agent.spoke", id=f"w{number}").id == f"w{number}"
            if landed:
                break
        ids = [event.id for event in book.events() if event.actor != "another"]
        assert len(ids) == len(set(ids)) == number // STEPS[engine] > 50
        assert book.verify().ok
        if other is not book:
            other.close()


SIGNALS = """
import random, signal, sys, threading, time
import commonplace

url, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng, armed = random.Random(seed), False

def interrupt(*_):
    if armed:
        raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
interrupted, errors, stop = 0, [], threading.Event()

def others(book):
    while not stop.is_set():
        try:
            book.record("agent.spoke", actor="another")
        except commonplace.OutcomeUnknown:
            pass
        except Exception as error:
            errors.append(repr(error))

with commonplace.open(url, timeout=10) as book:
    began = time.perf_counter()
    for _ in range(20):
        book.record("agent.spoke")
    usual = (time.perf_counter() - began) / 20
    thread = threading.Thread(target=others, args=(book,))
    thread.start()
    for n in range(count):
        try:
            armed = True
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-6, 3 * usual))
            book.record("agent.spoke", id=f"n{n}")
            armed = False
        except KeyboardInterrupt:
            armed = False
            interrupted += 1
        except commonplace.OutcomeUnknown:
            armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
    stop.set()
    thread.join(30)
    assert not thread.is_alive(), "it hangs"
    assert not errors, errors
    began = time.monotonic()
    book.record("agent.spoke")
    assert time.monotonic() - began < 5
    assert book.verify().ok
print(interrupted)
"""


@pytest.mark.spec("L2")
@pytest.mark.parametrize("engine", FORMS)
def test_signals_at_random_moments_hang_nobody(engine: str, tmp_path: Path) -> None:
    url = FORMS[engine].format(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", SIGNALS, url, "1000", "7"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 10  # on a busy machine most come when nothing is under way
