"""Verified items of a task: what was checked, whether it still holds, and since when it does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import commonplace
from commonplace import BadInput, Book, Conflict, NotFound, TooLarge
from commonplace.documents.verified import ItemReport, RecordedReport, standing

TASK = "Add login"
EVENT = "memory.verified"


@pytest.fixture
def local() -> Iterator[Book]:
    with commonplace.open("memory:") as book:
        yield book


@pytest.mark.spec("6.8")
def test_an_item_is_verified_regresses_and_is_verified_again(book: Book) -> None:
    ada, ben = book.as_actor("ada"), book.as_actor("ben")
    first = ada.learn.verify_item(TASK, "login", description="POST /login answers 200", iteration=1)
    assert (first.status, first.regressed_since) == ("VERIFIED", None)
    assert first.first_verified == first.last_verified
    ada.learn.verify_item(TASK, "logout", iteration=1)
    then = book.head
    broken = ben.learn.verify_item(TASK, "login", holds=False, evidence="it answers 500", iteration=2)
    ben.learn.verify_item(TASK, "login", holds=False, evidence="still 500", iteration=3)

    listed = ada.learn.verified(TASK)
    assert [(item.id, item.status) for item in listed] == [("login", "REGRESSED"), ("logout", "VERIFIED")]
    assert [item.id for item in listed.regressed] == ["login"]
    login = listed[0]
    assert login.description == "POST /login answers 200"  # as it was said once
    assert login.regressed_since == broken.regressed_since  # since it was found first
    assert login.broke is not None
    assert login.broke.iteration == 2
    assert "REGRESSED" in str(login)
    assert "iteration 2" in str(login)

    again = ben.learn.verify_item(TASK, "login", evidence="tests pass", iteration=4)
    assert (again.status, again.regressed_since, again.last.iteration) == ("VERIFIED", None, 4)
    assert again.first_verified == first.first_verified
    assert [(each.holds, each.by, each.iteration) for each in again.history] == [
        (True, "ada", 1), (False, "ben", 2), (False, "ben", 3), (True, "ben", 4),
    ]  # fmt: skip
    assert [item.status for item in ada.learn.verified(TASK, at=then)] == ["VERIFIED", "VERIFIED"]
    assert len(ada.learn.verified("Another task")) == 0


@pytest.mark.spec("6.8")
def test_a_report_repeated_in_its_iteration_is_recorded_once(local: Book) -> None:
    for _ in range(3):
        local.learn.verify_item(TASK, "login", evidence="tests pass", iteration=1)
    assert len(local.learn.verified(TASK)[0].history) == 1
    local.learn.verify_item(TASK, "login", evidence="tests pass", iteration=2)
    for _ in range(2):  # without an iteration, each is a check of its own
        local.learn.verify_item(TASK, "login")
    assert len(local.learn.verified(TASK)[0].history) == 4
    for holds in (False, True, False):  # changes within one iteration all count
        local.learn.verify_item(TASK, "login", holds=holds, iteration=9)
    assert local.learn.verified(TASK)[0].status == "REGRESSED"


@pytest.mark.spec("6.8")
def test_what_was_never_verified_cannot_regress(local: Book) -> None:
    with pytest.raises(NotFound, match="never verified.*nothing was verified"):
        local.learn.verify_item(TASK, "login", holds=False)
    local.learn.verify_item(TASK, "logout")
    with pytest.raises(NotFound, match="there are logout"):
        local.learn.verify_item(TASK, "login", holds=False)
    for wrong in ("", " login", "two\nlines", "x" * 201):
        with pytest.raises(BadInput, match="item"):
            local.learn.verify_item(TASK, wrong)
    with pytest.raises(BadInput, match="iteration"):
        local.learn.verify_item(TASK, "login", iteration=-1)
    with pytest.raises(TooLarge, match="evidence"):
        local.learn.verify_item(TASK, "login", evidence="x" * 2001)
    assert [item.id for item in local.learn.verified(TASK)] == ["logout"]


@pytest.mark.spec("6.8", "3.2", "3.7")
def test_they_are_a_file_of_the_tasks_folder_and_of_the_mirror(tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "team.db", mirror=tmp_path / "notes") as book:
        book.documents.add_to_task(TASK, "verified_items", "Checked by hand, on a phone.")
        book.learn.verify_item(TASK, "a|b", description="pipes | and \\ slashes", iteration=1)
        book.learn.verify_item(TASK, "a|b", holds=False, evidence="AKIAIOSFODNN7EXAMPLE", iteration=2)
        text = book.documents.task(TASK)["verified_items.md"]
        book.mirror.sync()
        page = (tmp_path / "notes" / "plans/artifacts/add-login/verified_items.md").read_text()
        for shown in (text, page):
            row = next(line for line in shown.splitlines() if line.startswith("| a"))
            assert row.startswith(r"| a\|b | pipes \| and \\ slashes | ")
            assert row.endswith(" | REGRESSED |")
            assert "Checked by hand" in shown
            assert "## Regressions" in shown
            assert "AKIAIOSFODNN7EXAMPLE" not in shown
        with pytest.raises(Conflict, match="verified items"):
            book.documents.add_to_task(TASK, "verified_items", "All is well.", replace=True)
        book.rebuild()
        assert book.documents.task(TASK)["verified_items.md"] == text


@pytest.mark.spec("6.8", "L10")
def test_erasing_what_was_found_leaves_how_it_stands(tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "team.db", mirror=tmp_path / "notes") as book:
        book.learn.verify_item(TASK, "login", description="the keeper's name is Quill")
        book.learn.verify_item(TASK, "login", holds=False, evidence="Quill left")
        book.mirror.sync()
        book.erase([event.id for event in book.events(kinds=[EVENT])])
        item = book.learn.verified(TASK)[0]
        assert (item.id, item.description, item.status) == ("login", "", "REGRESSED")
        page = tmp_path / "notes" / "plans/artifacts/add-login/verified_items.md"
        texts = (
            str(book.learn.verified(TASK)),
            book.documents.task(TASK)["verified_items.md"],
            page.read_text(),
        )
        assert all("Quill" not in text for text in texts)
        assert "REGRESSED" in texts[2]
        book.rebuild()
        assert book.learn.verified(TASK)[0] == item
        with pytest.raises(Conflict, match="login REGRESSED"):
            book.learn.task_complete(TASK)


@pytest.mark.spec("6.8", "3.11", "L7")
def test_a_scope_has_its_own_and_what_somebody_may_not_see_is_not_named(local: Book) -> None:
    alice = local.as_actor("ada", scope="users/alice")
    alice.learn.verify_item(TASK, "login")
    alice.learn.verify_item(TASK, "login", holds=False, evidence="the wallet is empty")
    assert len(local.as_actor("ben", scope="users/bob").learn.verified(TASK)) == 0
    local.as_actor("ben", scope="users/bob").learn.phase_end(TASK, 1, report="Done.")
    with pytest.raises(Conflict, match="login REGRESSED"):
        alice.learn.phase_end(TASK, 1, report="Done.")
    ben = local.as_actor("ben")
    ben.learn.verify_item("Pay", "wallet")
    hidden = ben.learn.verify_item("Pay", "wallet", holds=False, evidence="it is empty").history[-1]
    local.access.relabel(hidden.id, sensitivity="sensitive", reason="it tells too much")
    local.access.grant("eve", ceiling="private")
    eve = local.as_actor("eve")
    assert [item.status for item in eve.learn.verified("Pay")] == ["VERIFIED"]
    with pytest.raises(Conflict, match="an item that you may not see") as error:
        eve.learn.phase_end("Pay", 1, report="Done.")
    assert "empty" not in str(error.value)


@pytest.mark.spec("6.8")
@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.none() | st.integers(0, 5)), max_size=20))
def test_the_last_report_decides_and_the_first_failure_after_it_held_dates_it(
    told: list[tuple[str, bool, int | None]],
) -> None:
    reports = [
        (ItemReport(item, holds, iteration=number), RecordedReport(str(n), "ada", n, holds, iteration=number))
        for n, (item, holds, number) in enumerate(told)
    ]
    items = {item.id: item for item in standing(reports)}
    for id in "abc":
        own = [(n, holds) for n, (item, holds, _) in enumerate(told) if item == id]
        while own and not own[0][1]:
            own.pop(0)  # before it was ever verified
        if not own:
            assert id not in items
            continue
        item = items[id]
        assert [(each.at_us, each.holds) for each in item.history] == own
        assert (item.status == "VERIFIED") == own[-1][1]
        held = [n for n, holds in own if holds]
        assert (item.first_verified_us, item.last_verified_us) == (held[0], held[-1])
        later = [n for n, _ in own if n > held[-1]]
        assert item.regressed_us == (later[0] if later else None)


@pytest.mark.spec("6.8", "L5")
def test_what_an_actor_may_not_see_is_not_named_to_it(local: Book) -> None:
    ada, eve = local.as_actor("ada"), local.as_actor("eve")
    ada.learn.verify_item("T", "globex-merger", description="signed")
    (report,) = local.events(kinds=["memory.verified"])
    local.access.relabel(report.id, sensitivity="sensitive", reason="not for everybody")
    for item in ("nope", "globex-merger"):
        with pytest.raises(NotFound) as refused:
            eve.learn.verify_item("T", item, holds=False)
        assert ("globex" in str(refused.value)) == (item == "globex-merger")
    assert [item.status for item in local.learn.verified("T")] == ["VERIFIED"]
