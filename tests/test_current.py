"""What no longer holds stands nowhere as a fact, and what is disputed says so everywhere. On every engine."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import commonplace
from commonplace import Book
from commonplace.surfaces.tools import Tools
from tests.shells import Cli

NOW = datetime.now(UTC)
OVER = NOW - timedelta(hours=1)
LATER = NOW + timedelta(days=30)


def harbour(book: Book) -> dict[str, str]:
    """What a team knows of a harbour: of five things, one holds."""
    holds = book.remember("The harbour crane lifts nine tons", shared=True)
    over = book.remember("The harbour crane is closed for repair", shared=True, valid_until=OVER)
    not_yet = book.remember("The harbour crane lifts twelve tons, by contract", shared=True, valid_from=LATER)
    old = book.remember("The harbour crane stands on the old pier", shared=True)
    new = book.remember("The harbour crane stands on the new pier", shared=True, supersedes=old.item_id or "")
    gone = book.remember("The harbour crane belongs to a pirate", shared=True)
    book.forget(gone.item_id, confirm="FORGET")
    named = {"holds": holds, "over": over, "not_yet": not_yet, "old": old, "new": new, "gone": gone}
    return {name: kept.item_id or "" for name, kept in named.items()}


WRONG = ("closed for repair", "twelve tons", "old pier", "pirate")


@pytest.mark.spec("4.1", "4.10", "L5")
def test_a_search_leaves_out_what_has_expired_and_says_so(book: Book) -> None:
    ids = harbour(book)
    ada = book.as_actor("ada")
    for mode, most in (("hybrid", 10), ("keyword", 10), ("semantic", 10), ("hybrid", 1), ("keyword", 2)):
        answer = ada.search("harbour crane", mode=mode, max_results=most)
        found = {one.id for one in answer.results}
        assert found <= {ids["holds"], ids["new"]}, mode
        assert len(found) == min(2, most), "what is left out takes nobody's place"
        assert not any(wrong in one.text for one in answer.results for wrong in WRONG)
    answer = ada.search("harbour crane")
    told = {one.what: one.why for one in answer.left_out}
    assert told["1 expired"] == "expired: the time for which it holds is over"
    assert told["1 not yet valid"] == "the time for which it holds has not begun"
    assert answer.total == 2


@pytest.mark.spec("4.1", "L7")
def test_a_search_as_of_then_finds_what_held_then(book: Book) -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    kept = book.remember("The bridge is closed", shared=True, valid_until=soon)
    then = book.head
    assert [one.id for one in book.search("bridge").results] == [kept.item_id]
    book.memory.revise(kept.item_id or "", valid_until=OVER)
    assert not book.search("bridge").results
    assert [one.id for one in book.search("bridge", at=then).results] == [kept.item_id]
    assert not book.digest("bridge").item_ids
    assert book.digest("bridge", at=then).item_ids == (kept.item_id,)


def disputed(book: Book) -> tuple[str, str]:
    """A fact, and another claim that nobody has settled."""
    fact = book.as_actor("ada").remember(key="api.limit", value=60, shared=True)
    claim = book.as_actor("ben").remember(key="api.limit", value=90, shared=True)
    assert claim.outcome == "flagged"
    return fact.item_id or "", claim.item_id or ""


@pytest.mark.spec("4.1", "4.6")
def test_what_is_disputed_is_marked_wherever_it_is_shown(book: Book) -> None:
    fact, claim = disputed(book)
    cem = book.as_actor("cem")
    (hit,) = cem.search("api.limit").results
    assert (hit.id, hit.disputed) == (fact, (claim,))
    data = Tools(book).call("memory.search", {"query": "api.limit"}, actor="cem")["data"]
    assert data["results"][0]["disputed"] == [claim]
    assert "disputed=1" in cem.digest("api.limit").text
    page = Tools(book).call("memory.read", {"target": "long_term"}, actor="cem")["data"]["content"]
    assert "*(disputed)* **api.limit**: 60" in page
    book.memory.resolve(claim, "old")
    assert cem.search("api.limit").results[0].disputed == ()
    assert "disputed" not in cem.digest("api.limit").text


@pytest.mark.spec("4.1", "4.3")
def test_who_may_not_see_a_claim_is_not_told_that_there_is_one(book: Book) -> None:
    fact = book.as_actor("ada").remember(key="api.limit", value=60, shared=True).item_id
    own = book.as_actor("ben").remember(key="api.limit", value=90)
    assert own.outcome == "flagged"
    assert book.as_actor("ben").search("api.limit").results[0].disputed == (own.item_id,)
    (hit,) = book.as_actor("cem").search("api.limit").results
    assert (hit.id, hit.disputed) == (fact, ())


@pytest.mark.spec("4.1", "7.2")
def test_the_command_line_prints_the_mark(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "team.db"
    with commonplace.open(path) as book:
        disputed(book)
    assert "[disputed]" in cli("search", "api.limit", "--book", path).out
    assert "live, disputed" in " ".join(cli("memory", "list", "--book", path).out.split())


@pytest.mark.spec("4.1", "4.5")
def test_tags_stand_in_no_text_that_is_shown(book: Book) -> None:
    book.remember("Postgres listens on 5433", tags=["infra", "payments"], shared=True)
    (hit,) = book.search("infra").results
    assert (hit.content, hit.text) == ("Postgres listens on 5433",) * 2
    assert "payments" not in book.digest("infra").text
    assert "infra" not in book.prompt("where does Postgres listen")
    work = book.work(name="w", goal="g")
    context = work.context_for(work.add_task("Ask Postgres"))
    assert "Postgres listens on 5433" in context.text
    assert "infra" not in context.text


@pytest.mark.spec("4.1", "4.5", "L9")
@pytest.mark.parametrize("size", range(1, 8))
def test_what_is_shown_of_a_long_text_begins_and_ends_with_whole_words(size: int) -> None:
    text = f"{'w' * size} " + " ".join(f"word{n}" for n in range(200))
    with commonplace.open("memory:") as book:
        book.remember(f"{text} quartz {text}")
        me = book.as_actor("ada")
        hit = me.search("quartz").results[0]
        line = me.digest("quartz").text.splitlines()[2].partition("…")[2].rpartition("…")[0]
        for part in (hit.content, line):
            assert "quartz" in part
            assert {*part.split()} <= {*text.split(), "quartz"}
            assert me.remember(part, override="x").reason.startswith("an echo")


@pytest.mark.spec("4.1", "4.10")
def test_a_search_shows_the_last_check_and_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "app.py").write_text("PORT = 5433\n")
    with commonplace.open(tmp_path / "team.db") as book:
        book.remember("The port is in app.py", citations=["app.py:1"], shared=True)
        (tmp_path / "app.py").unlink()
        head = book.head
        assert book.search("port").results[0].stale == ""
        assert book.head == head
        assert "stale=app.py is gone" in book.digest("port").text
        assert book.search("port").results[0].stale == "app.py is gone"


@pytest.mark.spec("5.5", "4.10")
def test_a_task_s_context_marks_what_is_disputed_or_stale_and_leaves_out_what_is_over(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "app.py").write_text("PORT = 5433\n")
    with commonplace.open(tmp_path / "team.db") as book:
        harbour(book)
        fact, _ = disputed(book)
        cited = book.remember("The harbour crane is steered by app.py", citations=["app.py:1"], shared=True)
        (tmp_path / "app.py").unlink()
        work = book.work(name="w", goal="g")
        text = work.context_for(work.add_task("Move the harbour crane, mind the api.limit")).text
        lines = {line.split()[2]: line for line in text.partition("## Memory\n")[2].splitlines()}
        assert not any(wrong in text for wrong in WRONG)
        assert lines[fact].endswith("(prov=ada disputed=1)")
        assert lines[cited.item_id or ""].endswith("(prov=owner refs=1 stale=app.py is gone)")


@pytest.mark.spec("3.1", "3.7")
def test_memory_md_shows_what_holds_and_marks_what_is_in_doubt(book: Book, tmp_path: Path) -> None:
    ids = harbour(book)
    disputed(book)
    book.memory.revise(ids["holds"], pinned=True)
    book.mirror.folder(tmp_path / "md").sync()
    memory = (tmp_path / "md" / "MEMORY.md").read_text()
    archived = (tmp_path / "md" / "archive" / "MEMORY.md").read_text()
    assert "- *(pinned)* The harbour crane lifts nine tons" in memory
    assert "- *(disputed)* **api.limit**: 60" in memory
    assert f"- *(from {LATER:%Y-%m-%d %H:%M})* The harbour crane lifts twelve tons" in memory
    assert "- The harbour crane stands on the new pier" in memory
    assert not any(wrong in memory for wrong in ("closed for repair", "old pier", "pirate"))
    assert "- *(expired)* The harbour crane is closed for repair" in archived
    assert {one.id for one in book.memory.long_term()} >= {ids["holds"], ids["new"]}
    assert ids["over"] not in {one.id for one in book.memory.long_term()}


@pytest.mark.spec("3.7")
def test_a_remark_is_no_part_of_what_a_person_edits(book: Book, tmp_path: Path) -> None:
    kept = book.remember("The crane lifts nine tons", shared=True, pinned=True).item_id or ""
    episode = book.remember(
        "The crane fell",
        kind="episode",
        occurred_at=datetime(2026, 3, 1, tzinfo=UTC),
        pinned=True,
        shared=True,
    ).item_id
    mirror = book.mirror.folder(tmp_path)
    mirror.sync()
    page = tmp_path / "MEMORY.md"
    page.write_text(page.read_text().replace("nine", "ten").replace("2026-03-01", "2026-03-02"))
    mirror.sync()
    assert (book.memory.get(kept).body, book.memory.get(kept).pinned) == ("The crane lifts ten tons", True)
    assert book.memory.get(episode or "").occurred_at == datetime(2026, 3, 2, tzinfo=UTC)
    page.write_text(page.read_text().replace("- *(pinned)* The crane lifts", "- The crane lifts"))
    mirror.sync()
    assert (book.memory.get(kept).body, book.memory.get(kept).pinned) == ("The crane lifts ten tons", True)
    assert "- *(pinned)* The crane lifts ten tons" in page.read_text(), "revise takes a pin away"


@pytest.mark.spec("3.1")
def test_what_is_pinned_stays_in_memory_md_when_it_is_full(book: Book, tmp_path: Path) -> None:
    book.memory.configure(max_size_kb=2)
    rule = book.remember("Never deploy on a Friday", shared=True, pinned=True).item_id
    for number in range(9):
        book.remember(f"The crane number {number} stands in dock {number} " + "x" * 200, shared=True)
    book.mirror.folder(tmp_path).sync()
    page = (tmp_path / "MEMORY.md").read_text()
    assert "Never deploy" in page
    assert len(page.encode()) <= 2048
    assert rule in {one.id for one in book.memory.long_term()}


@pytest.mark.spec("4.10", "3.7")
def test_memory_md_marks_what_is_stale(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    with commonplace.open(tmp_path / "team.db") as book:
        book.remember("The port is in app.py", citations=["app.py:1"], shared=True)
        book.mirror.folder(tmp_path).sync()
        assert "- *(stale)* The port is in app.py" in (tmp_path / "MEMORY.md").read_text()
        page = Tools(book).call("memory.read", {"target": "long_term"})["data"]["content"]
        assert "- *(stale)* The port is in app.py" in page
