"""Choosing items: by kind, tags, author, time, metadata and scope, on every verb that takes filters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import commonplace
from commonplace import Actor, BadInput, Book
from commonplace.documents.writing import DOCUMENTS
from commonplace.memory.capability import MEMORY
from commonplace.session import WRITES


@pytest.fixture
def book(book_url: str) -> Iterator[Book]:
    with commonplace.open(book_url) as book:
        yield book


PLANS: list[dict[str, Any]] = [
    {"text": "Acme is a customer in Oslo.", "metadata": {"plan": "pro", "seats": 5}, "tags": ["customer", "north"]},
    {"text": "Birch is a customer in Rome.", "tags": ["customer"],
     "metadata": {"plan": "free", "seats": 1, "trial": True}},
    {"text": "Cedar is a customer in Bonn.", "metadata": {"plan": "pro", "seats": 50, "regions": ["eu", "us"]}},
    {"text": "Dahlia is a customer in Kyiv.", "metadata": {"seats": "many", "trial": False}},
    {"text": "Elm was a customer once, in Lima."},
]  # fmt: skip


@pytest.fixture
def ada(book: Book) -> Actor:
    ada = book.as_actor("ada")
    ada.memory.add_many(PLANS)
    return ada


def names(items: Any) -> str:
    return "".join(sorted(item.text[0] for item in items))


@pytest.mark.spec("3.11")
@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"plan": "pro"}, "AC"),
        ({"plan": "pro", "seats": 5}, "A"),
        ({"seats": 1}, "B"),
        ({"seats": "1"}, ""),
        ({"seats": True}, ""),
        ({"trial": True}, "B"),
        ({"trial": 1}, ""),
        ({"seats": {"gte": 5}}, "AC"),
        ({"seats": {"gt": 1, "lt": 50}}, "A"),
        ({"seats": {"lte": 5.0}}, "AB"),
        ({"plan": {"gt": "free"}}, "AC"),
        ({"plan": {"ne": "pro"}}, "B"),
        ({"plan": {"in": ["free", "team"]}}, "B"),
        ({"plan": {"exists": False}}, "DE"),
        ({"plan": {"exists": True}}, "ABC"),
        ({"regions": "eu"}, "C"),
        ({"regions": ["eu", "us"]}, "C"),
        ({"regions": {"in": ["asia", "us"]}}, "C"),
    ],
)
def test_metadata_is_compared_by_type_wherever_items_are_chosen(
    ada: Actor, tmp_path: Path, metadata: dict[str, Any], expected: str
) -> None:
    assert names(ada.memory.list(metadata=metadata)) == expected
    assert names(ada.search("customer", metadata=metadata, limit=20)) == expected
    planned = ada.forget(metadata=metadata, dry_run=True).items
    assert names(map(ada.memory.get, planned)) == expected
    digest = ada.digest("which customer", metadata=metadata)
    assert names(map(ada.memory.get, digest.item_ids)) == expected
    assert ada.memory.export(tmp_path / "out.jsonl", metadata=metadata) == len(expected)


@pytest.mark.spec("3.11", "L5")
def test_a_filter_on_what_does_not_exist_is_an_error_with_the_names_that_do(book: Book, ada: Actor) -> None:
    verbs: list[Any] = [
        ada.memory.list,
        lambda **filters: ada.search("customer", **filters),
        lambda **filters: ada.digest("customer", **filters),
        lambda **filters: ada.forget(**filters, dry_run=True),
    ]
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"seat": 5}, "no item that you may see has a metadata field 'seat'.*plan, regions, seats, trial"),
        ({"seat": {"exists": False}}, "plan, regions, seats, trial"),
        ({"seats": {"above": 5}}, "no operator: the operators are gt, gte, lt, lte, ne, in, exists"),
        ({"plan": {"gte": 5}}, "'plan' is a text and gte compares it with 5, which is a number"),
        ({"seats": {"gte": True}}, "takes a number or a text"),
        ({"plan": {"in": "pro"}}, "takes a list"),
        ({"plan": {}}, "has no operator"),
        ({"plan": {"exists": "yes"}}, "exists"),
    ]
    for metadata, message in wrong:
        for verb in verbs:
            with pytest.raises(BadInput, match=message):
                verb(metadata=metadata)
    for verb in verbs[1:2] + verbs[:1]:
        with pytest.raises(BadInput, match="not a list"):
            verb(tags="customer")
    ben = book.as_actor("ben")
    with pytest.raises(BadInput) as refused:  # nothing of what ada keeps for itself
        ben.memory.list(metadata={"seat": 5})
    assert "plan" not in str(refused.value)


@pytest.mark.spec("3.11", "L5")
def test_an_unknown_tag_gives_nothing_and_a_word_about_it(ada: Actor) -> None:
    assert names(ada.memory.list(tags=["customer"])) == "AB"
    assert names(ada.memory.list(tags=["customer", "north"])) == "A"
    assert names(ada.search("customer", tags=["customer"])) == "AB"
    for answer in (ada.memory.list(tags=["customers"]), ada.search("customer", tags=["customers"])):
        assert not len(answer)
        assert any("'customers'" in part.what for part in answer.left_out)
    assert ada.memory.list(tags=["customers"]) == []
    differs = ada.memory.list(tags=["customers"]) != []
    assert not differs
    assert ada.memory.list(tags=["customer"]) != []


@pytest.mark.spec("3.11", "4.1")
def test_kind_author_and_time_narrow_every_read(book: Book, ada: Actor) -> None:
    ben = book.as_actor("ben")
    ben.remember(key="customer.limit", value=60, shared=True)
    ben.remember("Call every customer twice.", kind="procedure", shared=True)
    later = datetime.now(UTC) + timedelta(hours=1)
    assert [item.key for item in ada.memory.list(kind="fact")] == ["customer.limit"]
    assert len(ada.search("customer", kind="fact", limit=20)) == 1
    assert len(ada.memory.list(agent="ben")) == len(ada.search("customer", agent="ben", limit=20)) == 2
    assert len(ada.digest("customer", agent="ben").item_ids) == 2
    for since, until, expected in (
        (later, None, 0),
        (None, later, 7),
        (later - timedelta(hours=2), later, 7),
    ):
        assert len(ada.memory.list(since=since, until=until)) == expected
        assert len(ada.search("customer", since=since, until=until, limit=20)) == expected
        assert bool(ada.digest("customer", since=since, until=until).item_ids) == bool(expected)
    with pytest.raises(BadInput, match="lies after until"):
        ada.memory.list(since=later, until=later - timedelta(hours=1))


@pytest.mark.spec("3.11", "4.1")
def test_a_filter_is_applied_before_the_limit(book: Book) -> None:
    ada = book.as_actor("ada")
    entries: list[Any] = [f"The harbour lamp number {n} was lit again at dusk." for n in range(60)]
    ada.memory.add_many(
        [*entries, {"text": "One lamp near a harbour is dark.", "metadata": {"broken": True}}]
    )
    found = ada.search("harbour lamp", metadata={"broken": True}, limit=1)
    assert [result.text for result in found] == ["One lamp near a harbour is dark."]
    assert len(ada.digest("harbour lamp", metadata={"broken": True}, max_items=1).item_ids) == 1


@pytest.mark.spec("3.11", "L5")
def test_a_list_comes_page_by_page_while_others_write(book: Book) -> None:
    ada = book.as_actor("ada")
    kept = [result.id for result in ada.memory.add_many([f"Shelf {n} has box {n}." for n in range(25)])]
    pages, cursor = list[list[str]](), None
    while True:
        page = ada.memory.list(limit=10, after=cursor)
        pages.append([item.id for item in page])
        cursor = page.cursor
        if cursor is None:
            break
        assert page.left_out[0].what == "more items"
        ada.remember(f"Written meanwhile, after page {len(pages)}: a crate of pears.", override="a test")
        ada.forget(page[0], confirm="FORGET")
    assert [id for page_ids in pages for id in page_ids][:25] == kept
    assert [len(page_ids) for page_ids in pages] == [10, 10, 7]
    for wrong in ("x", "", "bWVtb3J5", 3):
        with pytest.raises(BadInput, match="is no cursor"):
            ada.memory.list(after=wrong)  # type: ignore[arg-type]


@pytest.mark.spec("3.11", "3.6", "L10")
def test_metadata_is_shown_revised_exported_and_erased_with_the_content(book: Book, tmp_path: Path) -> None:
    kept = book.remember("Birch pays by card.", metadata={"customer": "K-1187"}, tags=["billing"])
    book.memory.revise(kept, metadata={"customer": "K-1187", "paid": 3})
    assert book.memory.get(kept).metadata == {"customer": "K-1187", "paid": 3}
    assert book.memory.export(tmp_path / "all.jsonl") == 1
    assert json.loads((tmp_path / "all.jsonl").read_text())["metadata"] == {"customer": "K-1187", "paid": 3}
    assert book.memory.export(tmp_path / "all.md", format="markdown", tags=["billing"]) == 1
    page = (tmp_path / "all.md").read_text()
    assert page == "# Memory\n\n## Notes\n\n- *(#billing, customer=K-1187, paid=3)* Birch pays by card.\n"
    with pytest.raises(BadInput, match="json, markdown"):
        book.memory.export(tmp_path / "all.xml", format="xml")
    book.forget(metadata={"customer": "K-1187"}, erase=True, confirm="FORGET")
    assert not book.memory.list(status=None)
    assert "K-1187" not in str([event.payload for event in book.events()])


@pytest.mark.spec("3.11")
def test_the_same_filters_in_two_scopes_choose_among_their_own(book: Book, tmp_path: Path) -> None:
    bots = {name: book.as_actor("bot", scope=f"users/{name}") for name in ("al", "alice")}
    for name, bot in bots.items():
        results = bot.memory.add_many(
            [
                {"text": f"{name} likes tea number {n}.", "metadata": {name: n}, "tags": ["tea"]}
                for n in range(3)
            ]
        )
        assert {result.outcome for result in results} == {"stored"}
    for name, bot in bots.items():
        other = bots["al" if name == "alice" else "alice"]
        assert [item.metadata for item in bot.memory.list(tags=["tea"])] == [{name: n} for n in range(3)]
        assert len(bot.search("tea", tags=["tea"], limit=20)) == 3
        assert len(bot.digest("tea", metadata={name: {"gte": 1}}).item_ids) == 2
        assert bot.memory.export(tmp_path / f"{name}.jsonl") == 3
        with pytest.raises(BadInput) as refused:
            other.memory.list(metadata={name: 1})
        assert f"the fields there are: {'al' if name == 'alice' else 'alice'}" in str(refused.value)
        with pytest.raises(commonplace.NotFound):
            other.memory.history(bot.memory.list()[0])
    page = bots["al"].memory.list(limit=2)
    assert len(bots["al"].memory.list(after=page.cursor)) == 1
    assert len(book.memory.list(scope="users/al")) == 3
    assert len(book.search("tea", scope="users/al", tags=["tea"])) == 3
    assert len(book.memory.list()) == 6
    mixed: list[Any] = [
        {"text": "al has a new kettle.", "scope": "users/al"},
        {"text": "alice has an old pot.", "scope": "users/alice"},
        "Kettles are on the second shelf.",
    ]
    scopes = [book.memory.get(result).scope for result in book.memory.add_many(mixed)]
    assert scopes == ["users/al", "users/alice", ""]
    assert len(book.forget(scope="users/al", tags=["tea"], dry_run=True).items) == 3


EXEMPT = {"memory.shown", "memory.keeper", "memory.configure", "memory.erase"}
"""Commands about memory as a whole: what was shown, who keeps it, its settings, and what the owner erases."""


@pytest.mark.spec("3.9")
def test_every_command_of_memory_says_which_tier_it_writes_to() -> None:
    """Else a run's file that switches a tier off would not stop it."""
    assert {*MEMORY.commands, *DOCUMENTS.commands} == {*WRITES, *EXEMPT}


@pytest.mark.spec("3.11", "1.4")
def test_what_was_exported_can_be_taken_in_by_another_book(book: Book, tmp_path: Path) -> None:
    until = datetime(2040, 1, 1, tzinfo=UTC)
    book.remember(
        "Alice likes tea", metadata={"plan": "pro", "seats": 3}, tags=["tea"], pinned=True, valid_until=until
    )
    book.remember(key="port", value={"http": [80, 8080]}, citations=["a.py:1"], reason="it was free")
    book.remember("We met in Rome", kind="episode", occurred_at=datetime(2026, 1, 1, tzinfo=UTC))
    gone = book.remember("Alice lives in Oslo")
    book.forget(gone, confirm="FORGET")
    assert book.memory.export(tmp_path / "items.jsonl") == 4
    with (tmp_path / "items.jsonl").open("a") as file:
        file.write('{"kind": "note", "id": 1, "agent": "x", "position": 1, "recorded_us": "soon"}\n')
    with commonplace.open("memory:") as other:
        report = other.memory.import_(tmp_path / "items.jsonl")
        assert (report.format, report.counts) == ("commonplace", {"stored": 3})
        assert [skipped.why[:20] for skipped in report.skipped] == ["it is forgotten", "no item as `memory.e"]
        fields = (
            "kind",
            "text",
            "metadata",
            "tags",
            "pinned",
            "valid_until",
            "citations",
            "reason",
            "occurred_at",
        )
        same = [[getattr(item, name) for name in fields] for item in book.memory.list()]
        assert [[getattr(item, name) for name in fields] for item in other.memory.list()] == same
        assert {item.trust for item in other.memory.list()} == {"low"}  # until a person says otherwise
