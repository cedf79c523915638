"""A server that takes everything and answers nothing: every call ends within its time, with a typed error."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import commonplace
from commonplace import Book, Busy, CommonplaceError, EngineUnavailable, OutcomeUnknown

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the faults are beside the tests, not installed

from faults.places import Place
from faults.silence import Proxy, behind_a_proxy, quicker

TIMEOUT = 0.5
ROOM = 15.0
"""Far more than a call needs on the busiest machine, and far less than the half minute that it takes by default."""


@pytest.fixture(autouse=True)
def little_room() -> Iterator[None]:
    with quicker():
        yield


@pytest.fixture(params=["postgres", "redis"])
def far(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Proxy, Place]]:
    """A place on a server that is reached through a proxy."""
    server = request.getfixturevalue("postgres" if request.param == "postgres" else "valkey")
    with behind_a_proxy(
        Place(request.param, server.url, f"silent-{tmp_path.name}-{time.time_ns()}", None)
    ) as both:
        yield both


def ended(call: Callable[[], Any]) -> CommonplaceError | None:
    """How a call ended, which it must have in time."""
    began, error = time.monotonic(), None
    try:
        call()
    except CommonplaceError as raised:
        error = raised
    assert time.monotonic() - began < ROOM
    return error


def working(book: Book) -> None:
    book.record("agent.spoke", id="first", run_id="run-1", payload={"text": "hello"})
    book.work(name="w", id="w").add_tasks([{"title": "one"}])


@pytest.mark.spec("L2", "5.8")
def test_opening_a_book_on_a_silent_server_ends(far: tuple[Proxy, Place]) -> None:
    proxy, there = far
    proxy.silent = True
    assert isinstance(ended(lambda: there.open(timeout=TIMEOUT)), EngineUnavailable)


@pytest.mark.spec("L2", "5.8")
def test_every_call_to_a_silent_server_ends_and_the_book_goes_on_afterwards(far: tuple[Proxy, Place]) -> None:
    proxy, there = far
    with there.open(timeout=TIMEOUT) as book:
        working(book)
        calls: list[Callable[[], Any]] = [
            lambda: book.head,
            lambda: list(book.events()),
            lambda: book.record("agent.spoke"),
            lambda: book.work(id="w").claim("dev"),
            lambda: list(book.watch(timeout=TIMEOUT)),
            lambda: book.ledger.store.lease("a lease", "somebody", 5),
        ]
        for call in calls:
            proxy.silent = True
            assert isinstance(ended(call), EngineUnavailable | Busy | OutcomeUnknown)
            proxy.silent = False
            deadline = time.monotonic() + ROOM
            while isinstance(ended(lambda: book.head), EngineUnavailable) and time.monotonic() < deadline:
                pass  # the connections that fell silent are given up one after the other
        assert book.record("agent.spoke", id="again").position == book.head
        assert book.verify().ok
        proxy.silent = True
        assert ended(book.close) is None


@pytest.mark.spec("L2", "L4")
def test_a_commit_whose_answer_is_lost_is_unknown_and_can_be_repeated(far: tuple[Proxy, Place]) -> None:
    proxy, there = far
    with there.open(timeout=TIMEOUT) as book:
        for n in range(3):
            proxy.until_sent = f"lost {n}".encode()
            error = ended(lambda n=n: book.record("agent.spoke", id=f"e{n}", payload={"text": f"lost {n}"}))  # type: ignore[misc]
            proxy.until_sent, proxy.silent = b"", False
            assert isinstance(error, OutcomeUnknown)
            assert error.ids == (f"e{n}",)
            again = book.record("agent.spoke", id=f"e{n}", payload={"text": f"lost {n}"})
            for other in range(10 if n == 1 else 0):
                book.record("agent.spoke", id=f"other {other}")
            assert book.event(f"e{n}") == again
        assert len(list(book.events())) == 13
        assert book.verify().ok


@pytest.mark.spec("L2")
def test_threads_that_queue_behind_a_silent_commit_wait_no_longer_than_they_would_alone(
    far: tuple[Proxy, Place],
) -> None:
    proxy, there = far
    with there.open(timeout=TIMEOUT) as book:
        book.record("agent.spoke")
        proxy.silent = True
        ends: list[CommonplaceError | None] = []
        threads = [
            threading.Thread(target=lambda: ends.append(ended(lambda: book.record("agent.spoke"))))
            for _ in range(24)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(ends) == 24
        assert all(isinstance(error, EngineUnavailable | Busy | OutcomeUnknown) for error in ends)


@pytest.mark.spec("5.8")
@pytest.mark.parametrize("timeout", [0, -1, "soon", float("nan")])
def test_a_timeout_is_a_number_of_seconds(timeout: Any) -> None:
    with pytest.raises(commonplace.BadInput, match="timeout"):
        commonplace.open("memory:", timeout=timeout)


@pytest.mark.spec("5.8", "L2")
def test_a_server_that_drips_gets_no_more_time_than_a_silent_one() -> None:
    """Every byte that comes in begins a wait of its own, and all of them together end in time."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        stop = threading.Event()

        def drip() -> None:
            peer, _ = listening.accept()
            with peer, suppress(OSError):
                while not stop.wait(0.05):
                    peer.send(b"+")

        dripping = threading.Thread(target=drip, daemon=True)
        dripping.start()
        url = f"redis://127.0.0.1:{listening.getsockname()[1]}?book=drip"
        error = ended(lambda: commonplace.open(url, timeout=TIMEOUT))
        stop.set()
        dripping.join()
    assert isinstance(error, EngineUnavailable)
