"""One process with a wrong clock: noticed, contained, told. Servers have a clock of their own; these have none."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

import pytest

import commonplace
from commonplace import Book
from tests.shells import Cli

YEARS = timedelta(days=3652)


@contextmanager
def clock_off(by: timedelta) -> Iterator[None]:
    """What happens meanwhile is done by a process whose clock is wrong."""
    real = time.time_ns
    with mock.patch("time.time_ns", side_effect=lambda: real() + int(by.total_seconds() * 1e9)):
        yield


def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture(params=["memory", "sqlite", "files"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {"memory": "memory:", "sqlite": str(tmp_path / "b.db"), "files": f"file:{tmp_path / 'b'}"}[
        request.param
    ]


@pytest.fixture
def local(url: str) -> Iterator[Book]:
    with commonplace.open(url) as book:
        yield book


def spoken(book: Book, at: int | datetime | None = None) -> list[str]:
    return [event.actor for event in book.events(kinds=["agent.spoke"], at=at)]


def rows(book: Book) -> list[object]:
    with book.ledger.snapshot() as snapshot:
        return list(snapshot.scan("clocks"))


@pytest.mark.spec("1.1", "L7")
def test_now_is_now_for_everybody_after_one_clock_was_ten_years_ahead(local: Book) -> None:
    local.record("agent.spoke", actor="before")
    with clock_off(YEARS):
        local.record("agent.spoke", actor="wrong")
        assert spoken(local, now() + YEARS) == ["before", "wrong"]
    assert spoken(local, now()) == ["before", "wrong"]
    between = []
    for n in range(3):
        local.record("agent.spoke", actor=f"right {n}")
        between.append(now())
        while now() == between[-1]:
            pass  # the next one is recorded at another time
    assert spoken(local, now()) == ["before", "wrong", "right 0", "right 1", "right 2"]
    with mock.patch("commonplace.ledger.clocks.A_MINUTE", -60_000_000):  # as if it had been some time ago
        for n, moment in enumerate(between):
            assert spoken(local, moment) == ["before", "wrong", *(f"right {one}" for one in range(n + 1))]
    before = rows(local)
    local.rebuild()
    assert rows(local) == before != []
    times = [event.created_at for event in local.events()]
    assert times == sorted(times)
    assert local.verify().ok


@pytest.mark.spec("1.1", "3.3", "3.8")
def test_what_has_an_end_keeps_it(local: Book) -> None:
    tomorrow = now() + timedelta(days=1)
    local.remember("the door code is blue, until tomorrow", valid_until=tomorrow)
    with clock_off(YEARS):
        local.record("agent.spoke", actor="wrong")
    local.remember("the printer is on the second floor")
    assert [item.valid(int(now().timestamp() * 1e6)) for item in local.memory.list()] == [True, True]
    assert not local.memory.tidy(dry_run=True).chores
    work = local.work(name="w", id="w")
    work.add_tasks([{"title": "one"}])
    with clock_off(YEARS):
        claim = work.claim("dev", lease=60)
    assert claim is not None
    assert work.claim("other") is None
    assert claim.complete("done").status == "completed"


@pytest.mark.spec("1.1", "7.2")
def test_doctor_and_opening_name_the_first_event_that_is_ahead_and_who_recorded_it(
    tmp_path: Path, cli: Cli, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "b.db"
    with commonplace.open(path) as book:
        for n in range(5):
            book.record("agent.spoke", actor=f"right {n}")
        assert book.admin.status().clock is None
        with clock_off(YEARS):
            book.record("agent.spoke", actor="mallory")
        book.record("agent.spoke", actor="right again")
        assert book.admin.status().clock is not None
    with caplog.at_level(logging.WARNING, "commonplace"):
        commonplace.open(path).close()
    assert "event 6, recorded by 'mallory'" in caplog.text
    ran = cli("doctor", "--book", path, "--json")
    assert ran.code == 1
    (problem,) = json.loads(ran.out)["problems"]
    assert "event 6, recorded by 'mallory'" in problem
    assert "10.0 years ahead" in problem


@pytest.mark.spec("1.1", "L7")
def test_a_clock_that_is_behind_moves_nothing_and_is_told(local: Book) -> None:
    local.record("agent.spoke", actor="before")
    earlier = now() - timedelta(days=365)
    with clock_off(-YEARS):
        local.record("agent.spoke", actor="slow")
        assert spoken(local, now() - YEARS) == ["before", "slow"]
    local.record("agent.spoke", actor="after")
    assert spoken(local, earlier) == []
    assert spoken(local, now()) == ["before", "slow", "after"]
    status = local.admin.status()
    assert status.clock is None
    assert "event 2, recorded by 'slow'" in str(status.slow_clock)


@pytest.mark.spec("1.1")
def test_a_book_that_nobody_has_used_for_months_is_nothing_to_talk_about(local: Book) -> None:
    with clock_off(timedelta(days=-120)):
        local.record("agent.spoke", actor="long ago")
    local.record("agent.spoke", actor="now")
    status = local.admin.status()
    assert (status.clock, status.slow_clock) == (None, None)
    assert spoken(local, now() - timedelta(days=60)) == ["long ago"]
    assert [event.clock_us for event in local.events()] == [None, None]


@pytest.mark.spec("1.4", "1.3")
def test_what_a_clock_said_travels_with_its_event(tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "a.db") as book, clock_off(YEARS):
        book.record("agent.spoke", actor="wrong")
    with commonplace.open(tmp_path / "a.db") as book:
        book.record("agent.spoke", id="right")
        assert book.record("agent.spoke", id="right") == book.event("right")
        book.admin.export(tmp_path / "export.jsonl")
        events = list(book.events())
        assert events[1].clock_us is not None
    with commonplace.open(f"file:{tmp_path / 'b'}") as copy:
        copy.admin.import_(tmp_path / "export.jsonl")
        assert list(copy.events()) == events
        assert spoken(copy, now()) == ["wrong", "owner"]
        assert copy.verify().ok
