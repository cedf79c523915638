"""What has expired stands nowhere as a current fact: one table of every way to read memory."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import commonplace
from commonplace import Book

NOW = datetime.now(UTC)
OVER = NOW - timedelta(hours=1)
RULES = {"structured": {"tags": ["ferry"]}}


@pytest.fixture
def book(tmp_path: Path) -> Book:
    """A team that knows two things of a ferry which hold, and two, one of them pinned, which have expired."""
    book = commonplace.open(tmp_path / "team.db", mirror=tmp_path / "mirror")
    book.remember(key="ferry.pier", value="seven", shared=True, tags=["ferry"], valid_from=OVER)
    book.remember("The ferry carries forty cars", shared=True, tags=["ferry"])
    earlier = book.remember(key="ferry.pier", value="nine", shared=True, tags=["ferry"], valid_until=OVER)
    assert earlier.outcome == "stored"
    book.remember("The ferry is out for repair", shared=True, tags=["ferry"], pinned=True, valid_until=OVER)
    return book


def task_context(book: Book) -> str:
    work = book.work(name="crossing", goal="take the ferry")
    task = work.add_task("Find out where the ferry leaves and what the pier is")
    return str(work.context_for(task))


def claimed_context(book: Book) -> str:
    work = book.work(name="crossing", goal="take the ferry")
    work.add_task("Find out where the ferry leaves and what the pier is")
    claim = work.claim("dev-1")
    assert claim is not None
    return str(claim.context())


READS: dict[str, Callable[[Book], str]] = {
    "search": lambda book: "\n".join(hit.text for hit in book.search("ferry pier repair", limit=50)),
    "keyword search": lambda book: "\n".join(hit.text for hit in book.search("ferry", mode="keyword", limit=50)),
    "semantic search": lambda book: "\n".join(hit.text for hit in book.search("ferry", mode="semantic", limit=50)),
    "search by tag": lambda book: "\n".join(hit.text for hit in book.search("ferry", tags=["ferry"], limit=50)),
    "digest": lambda book: str(book.digest("where does the ferry leave")),
    "digest by rules": lambda book: str(book.digest("", rules=RULES)),
    "digest by key": lambda book: str(book.digest("", rules={"structured": {"fact_keys": ["ferry.pier"]}})),
    "digest by tag": lambda book: str(book.digest("ferry", tags=["ferry"])),
    "stable digest": lambda book: str(book.digest("ferry", stable="s")),
    "prompt": lambda book: str(book.prompt("where does the ferry leave")),
    "prompt without a task": lambda book: str(book.prompt("")),
    "long-term memory": lambda book: "\n".join(item.text for item in book.memory.long_term()),
    "list of what holds": lambda book: str(book.memory.list(valid_at=NOW)),
    "task context": task_context,
    "claim's context": claimed_context,
}  # fmt: skip


@pytest.mark.spec("3.11", "4.6", "L6")
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_what_has_expired_is_nowhere_a_current_fact(book: Book, read: Callable[[Book], str]) -> None:
    with book:
        text = read(book)
        assert "seven" in text or "forty cars" in text
        assert "nine" not in text
        assert "out for repair" not in text


@pytest.mark.spec("3.11", "3.7")
def test_the_page_of_memory_shows_it_among_the_archived_ones(book: Book, tmp_path: Path) -> None:
    with book:
        book.mirror.sync()
        folder = tmp_path / "mirror"
        pages = {str(page.relative_to(folder)): page.read_text() for page in folder.rglob("*.md")}
    assert "seven" in pages["MEMORY.md"]
    assert "repair" not in pages["MEMORY.md"]
    assert any("*(pinned, expired)* The ferry is out for repair" in page for page in pages.values())


@pytest.mark.spec("3.11")
def test_a_list_tells_what_is_recorded_and_marks_what_has_expired(book: Book) -> None:
    with book:
        listed = book.memory.list(tags=["ferry"])
        assert len(listed) == 4
        assert "The ferry is out for repair [pinned] [expired]" in str(listed)
        assert "The ferry carries forty cars\n" in str(listed)


@pytest.mark.spec("3.11", "3.5", "L9")
def test_what_has_expired_judges_nothing_that_is_said_now(book: Book) -> None:
    with book:
        ada = book.as_actor("ada")
        ada.memory.list()
        assert ada.remember("The ferry is out for repair").outcome == "stored"  # neither twin nor echo
        assert (
            ada.remember(key="ferry.pier", value="seven").outcome != "flagged"
        )  # no dispute with what is over
        over = ada.remember("The harbour master speaks Greek, Dutch and Welsh fluently", valid_until=OVER)
        again = ada.remember("The harbour master speaks Greek, Dutch and Welsh fluently now")
        assert (over.outcome, again.outcome) == ("stored", "stored")  # no near-duplicate
