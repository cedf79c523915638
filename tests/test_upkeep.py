"""Keeping memory small: retention, archives, budgets in a fixed order, and what erasing does to summaries."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commonplace import Book
from commonplace.errors import Denied
from commonplace.memory.items import Item
from commonplace.memory.settings import Budget, Settings
from commonplace.memory.tidy import Holdings, plan

NOW = datetime(2026, 6, 1, tzinfo=UTC)
LATER = timedelta(days=40)


def acts(of: object) -> list[str]:
    return [chore.act for chore in of.chores]  # type: ignore[attr-defined]


@pytest.mark.spec("3.8")
def test_old_logs_and_ended_tasks_go_to_the_archive_and_come_back(book: Book) -> None:
    ada = book.as_actor("ada")
    ada.documents.log("a day like any other")
    ada.documents.add_to_task("Login", "report", "Status: DONE\nAll phases are through.")
    ada.documents.add_to_task("Logout", "report", "Status: in progress")
    ada.documents.add_to_task("Later", "decisions", "We wait.")
    later = datetime.now(UTC) + LATER
    seen = book.memory.tidy(dry_run=True, now=later)
    assert acts(seen) == ["archive days", "archive tasks"]
    assert seen.chores[1].names == ("login",)
    assert [line.split(":")[0] for line in seen.left_alone] == ["the task later", "the task logout"]
    assert len(book.documents.days()) == 1  # it was only a look
    with pytest.raises(Denied, match="keep_memory"):
        ada.memory.tidy(now=later)
    assert book.memory.tidy(now=later).done
    assert (book.documents.days(), len(book.documents.days(archived=True))) == ([], 1)
    assert acts(book.memory.tidy(dry_run=True, now=later)) == []
    book.documents.restore(days=book.documents.days(archived=True), tasks=["login"])
    assert len(book.documents.days()) == 1
    book.memory.configure(retention_days=60, archive_days=60)
    assert acts(book.memory.tidy(dry_run=True, now=later)) == []


@pytest.mark.spec("3.4", "3.8")
def test_entries_of_a_core_grow_old_unless_they_are_verified(book: Book) -> None:
    lee = book.as_actor("lee", role="librarian")
    lee.memory.set_core("tools", config={"archive_after_days": 30})
    old = str(lee.remember("The linter is called twice.", core="tools").item_id)
    later = datetime.now(UTC) + LATER
    assert book.memory.tidy(dry_run=True, now=datetime.now(UTC)).chores == ()
    assert book.memory.tidy(now=later).chores[0].names == (old,)
    assert lee.memory.list(core="tools") == []
    assert lee.memory.restore(old).status == "live"


@pytest.mark.spec("3.8")
def test_a_budget_is_kept_in_the_fixed_order_and_no_further_than_needed(book: Book) -> None:
    ada = book.as_actor("ada")
    book.memory.set_core("hosts", name="hosts")
    book.remember(key="port", value=1, confidence=0.9, core="hosts")
    book.remember(key="port", value=2, confidence=0.5, sensitivity="sensitive", core="hosts")
    for n in range(4):
        ada.remember(f"the {n}. thing that came to pass", kind="episode", occurred_at=NOW + timedelta(days=n))
    ada.remember("A note that stays.")
    book.memory.configure(budget={"max_items": 6})
    (chore,) = book.memory.tidy(dry_run=True).chores
    assert (chore.act, len(chore.names)) == ("consolidate facts", 1)
    book.memory.configure(budget={"max_items": 5})
    done = book.memory.tidy()
    assert acts(done) == ["consolidate facts", "consolidate episodes"]
    assert done.items == 5
    (fact,) = book.memory.list(kind="fact")
    assert fact.value == 2  # the strictest stays
    (told,) = [item for item in book.memory.list(kind="note") if item.title == "Earlier episodes"]
    assert (
        told.body == "2026-06-01: the 0. thing that came to pass\n2026-06-02: the 1. thing that came to pass"
    )
    assert (told.agent, told.summarizes) == ("ada", done.chores[1].names)
    assert told.text in [item.text for item in ada.memory.list()]
    stones = {stone.deleted_by for stone in book.memory.tombstones()}
    assert stones == {"consolidation"}
    book.memory.configure(budget={"max_items": 2})
    assert acts(book.memory.tidy()) == ["consolidate episodes", "drop index", "evict notes"]
    assert {stone.deleted_by for stone in book.memory.tombstones()} == {"consolidation", "budget"}
    assert len(book.memory.list()) == 2
    assert book.memory.restore(done.chores[1].names[0]).summary == "the 0. thing that came to pass"


@pytest.mark.spec("3.2", "3.8", "L5")
def test_facts_that_were_settled_to_hold_both_do_not_give_way_to_each_other(book: Book) -> None:
    book.remember(key="port", value=1, confidence=0.9)
    second = book.remember(key="port", value=2, confidence=0.5)
    book.memory.resolve(second, "both", rationale="two hosts")
    book.remember("A note that is longer and not needed any more.")
    book.memory.configure(budget={"max_items": 2})
    assert acts(book.memory.tidy()) == ["drop index", "evict notes"]
    assert {item.value for item in book.memory.list(kind="fact")} == {1, 2}


@pytest.mark.spec("3.4", "3.8", "L5")
def test_a_key_of_one_core_does_not_give_way_to_the_same_key_of_another(book: Book) -> None:
    for number, core in enumerate(("tools", "house")):
        book.memory.set_core(core, name=core)
        assert book.remember(key="port", value=number, core=core).outcome == "stored"
    assert book.remember(key="port", value=2, shared=True).outcome == "stored"
    book.memory.configure(budget={"max_items": 2})
    assert "consolidate facts" not in acts(book.memory.tidy(dry_run=True))


@pytest.mark.spec("L8", "L10")
def test_erasing_an_episode_tells_its_summary_again_without_it(book: Book) -> None:
    ada = book.as_actor("ada")
    ids = [
        str(ada.remember(text, kind="episode", occurred_at=NOW, sensitivity=level).item_id)
        for text, level in (("the vault was moved", "sensitive"), ("the roof was mended", "private"))
    ]
    book.memory.configure(budget={"max_items": 1})
    ada.remember("the last one of all", kind="episode", occurred_at=NOW + timedelta(days=9))
    ada.remember("and one after that", kind="episode", occurred_at=NOW + timedelta(days=10))
    book.memory.tidy()
    (told,) = [item for item in book.memory.list(status=None) if item.summarizes]
    assert told.sensitivity == "sensitive"  # as its strictest source
    assert "vault" in str(told.body)
    gone = book.forget(ids[0], erase=True, confirm="FORGET")
    assert told.id in gone.derived
    (again,) = (book.memory.get(id) for id in gone.rederived)
    assert again.body == "2026-06-01: the roof was mended"
    assert again.sensitivity == "private"
    assert not any("vault" in str(event.payload) for event in book.events())
    book.erase(ids[1])
    assert not any("roof" in str(event.payload) for event in book.events())
    assert [item for item in book.memory.list(status=None) if item.summarizes] == []
    assert book.verify().ok


ITEMS = st.lists(
    st.builds(
        Item,
        id=st.uuids().map(str),
        kind=st.sampled_from(["fact", "note", "procedure", "episode"]),
        agent=st.sampled_from(["ada", "ben"]),
        key=st.sampled_from(["a", "b"]),
        body=st.text(max_size=20),
        summary=st.text(max_size=20),
        sensitivity=st.sampled_from(["public", "private", "sensitive"]),
        confidence=st.none() | st.floats(0, 1),
        recorded_us=st.integers(0, 100),
        occurred_us=st.integers(0, 100),
    ),
    max_size=20,
    unique_by=lambda item: item.id,
)


@pytest.mark.spec("3.8", "L6")
@given(ITEMS, st.integers(0, 20), st.none() | st.integers(0, 200))
@settings(max_examples=200)
def test_whatever_there_is_the_plan_fits_the_budget_and_says_each_step_once(
    items: list[Item], most: int, chars: int | None
) -> None:
    wanted = Settings(budget=Budget(max_items=most, max_chars=chars))
    chores, _ = plan(Holdings(tuple(items), (), {}, {}), wanted, 0)
    named = [name for chore in chores for name in chore.names]
    assert len(named) == len(set(named))
    left = [item for item in items if item.id not in named]
    retold = any(chore.act == "consolidate episodes" for chore in chores)
    evicted = {chore.act for chore in chores if chore.act.startswith("evict")}
    assert len(left) + retold <= most or (retold and most == 0)
    if chars is not None and not retold:
        assert sum(len(item.text) for item in left) <= chars
    order = ["consolidate facts", "consolidate episodes", "drop index"]
    order += [f"evict {kind}s" for kind in ("episode", "note", "procedure", "fact")]
    places = [order.index(chore.act) for chore in chores]
    assert places == sorted(places)
    assert not evicted or "drop index" in [chore.act for chore in chores]
