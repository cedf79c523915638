"""Many processes at once: no gap, no duplicate, nobody starved, nothing missed by a reader, one event an id."""

from __future__ import annotations

import os
import time
from multiprocessing.connection import Connection
from pathlib import Path

from . import Result, fault
from .places import DURABLE, SERVED, Place, Worker, place

PROCESSES = 8


def write_many(say: Connection, home: Place, writer: int, count: int) -> None:
    """Record `count` events, then tell their positions and how long each took."""
    positions, seconds = [], []
    with home.open() as book:
        say.send("open")
        for n in range(count):
            start = time.perf_counter()
            event = book.record("agent.spoke", id=f"{writer}/{n}", run_id=f"run-{writer}", payload={"n": n})
            seconds.append(time.perf_counter() - start)
            positions.append(event.position)
    say.send((positions, seconds))


class Writers:
    """Processes that write at once, all with their book open before anything is measured."""

    def __init__(self, home: Place, processes: int, count: int) -> None:
        self.workers = [Worker(write_many, home, writer, count) for writer in range(processes)]
        for worker in self.workers:
            said = worker.listen(60.0)
            assert said == "open", said

    def done(self) -> tuple[list[list[int]], list[list[float]], list[str]]:
        """Each writer's positions and times, and what went wrong."""
        said = [worker.rest()[-1:] for worker in self.workers]
        wrong = [
            f"writer {n} {one[0] if one else 'said nothing'}"
            for n, one in enumerate(said)
            if not one or isinstance(one[0], str)
        ]
        good = [one[0] for one in said if one and not isinstance(one[0], str)]
        return [positions for positions, _ in good], [seconds for _, seconds in good], wrong

    def stop(self) -> None:
        for worker in self.workers:
            worker.kill()


def bare_sync(folder: Path, count: int = 300) -> float:
    """The p50 of a bare write and fdatasync, in seconds."""
    fd = os.open(folder / "bare", os.O_RDWR | os.O_CREAT)
    taken = []
    for n in range(count):
        start = time.perf_counter()
        os.pwrite(fd, bytes(4096), n * 4096)
        os.fdatasync(fd)
        taken.append(time.perf_counter() - start)
    os.close(fd)
    return sorted(taken)[count // 2]


@fault(8, "race", 10_000, 60)
def fault_08(count: int, _seed: int, tmp: Path) -> Result:
    """8 processes, `count` appends each on SQLite and a fifth of it on the servers."""
    result = Result()
    for kind in SERVED:
        home, each = place(kind, tmp), count if kind == "sqlite" else max(1, count // 5)
        with home.open() as book:
            alone = bare_sync(tmp)
            writers = Writers(home, PROCESSES, each)
            bare = bare_sync(tmp)  # while the others write, so under the same load
            positions, seconds, wrong = writers.done()
            all_positions = sorted(position for one in positions for position in one)
            if all_positions != list(range(1, PROCESSES * each + 1)):
                wrong.append("positions have gaps or stand twice")
            if any(one != sorted(one) for one in positions):
                wrong.append("a writer's own events are out of order")
            checked = book.verify()
            if not checked.ok or checked.head != PROCESSES * each:
                wrong.append(f"verify: {checked}")
            if len(book.runs.list()) != PROCESSES:
                wrong.append(f"runs: {book.runs.list()}")
            times = sorted(second for one in seconds for second in one)
            if times:
                p99 = times[len(times) * 99 // 100]
                result.figures[f"{kind} p99 ms"] = round(p99 * 1000, 2)
                result.figures[f"{kind} longest ms"] = round(times[-1] * 1000, 1)
                result.figures[f"{kind} p99 in bare fsyncs"] = round(p99 / bare, 1)
                result.figures[f"{kind} p99 in bare fsyncs of an idle disk"] = round(p99 / alone, 1)
                slowest = max(sorted(one)[len(one) // 2] for one in seconds)
                result.figures[f"{kind} slowest process's p50 ms"] = round(slowest * 1000, 2)
                # Where a sync takes less than a millisecond, eight processes wait for processors, not for the disk.
                if kind == "sqlite" and each >= 1000 and p99 > 40 * max(bare, 0.001):
                    wrong.append(f"p99 is {p99 * 1000:.1f} ms, over 40 bare fsyncs of {bare * 1000:.2f} ms")
        result.problem(kind, *wrong)
        result.cases += PROCESSES * each
        result.outcomes[f"{kind} appends"] = len(all_positions)
        home.drop()
    return result


@fault(9, "live", 1000, 40)
def fault_09(count: int, _seed: int, tmp: Path) -> Result:
    """A reader follows while 8 processes record `count` events each: all of them, in order, once."""
    result = Result()
    for kind in SERVED:
        home = place(kind, tmp)
        with home.open() as book:
            writers = Writers(home, PROCESSES, count)
            seen: list[int] = []
            for event in book.watch(after=0, timeout=30.0):
                seen.append(event.position)
                if len(seen) == PROCESSES * count:
                    break
            _, _, wrong = writers.done()
            if seen != list(range(1, PROCESSES * count + 1)):
                missed = PROCESSES * count - len(set(seen))
                wrong.append(f"the reader missed {missed}, saw {len(seen) - len(set(seen))} twice")
        result.problem(kind, *wrong)
        result.cases += PROCESSES * count
        result.outcomes[f"{kind} seen"] = len(seen)
        home.drop()
    return result


def send_again(say: Connection, home: Place, count: int) -> None:
    with home.open() as book:
        say.send("open")
        found = {
            (event.position, event.hash)
            for event in (book.record("agent.spoke", id="one", payload={"n": 1}) for _ in range(count))
        }
    say.send(found)


@fault(13, "retries", 1000, 64)
def fault_13(count: int, _seed: int, tmp: Path) -> Result:
    """One id sent `count` times by 8 processes: one event, and everybody gets that one."""
    result = Result()
    for kind in DURABLE:
        home = place(kind, tmp)
        with home.open() as book:
            workers = [Worker(send_again, home, count // PROCESSES) for _ in range(PROCESSES)]
            answers = [worker.rest()[-1] for worker in workers]
            events = [(event.position, event.hash) for event in book.events()]
            if len(events) != 1 or any(answer != set(events) for answer in answers):
                result.problem(kind, f"{len(events)} events; answers {answers[:3]}")
        result.cases += count
        result.outcomes[f"{kind} events"] = len(events)
        home.drop()
    return result
