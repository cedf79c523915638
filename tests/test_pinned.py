"""Pinned items: what should always be in front of a model. On every engine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import commonplace
from commonplace import Book
from commonplace.errors import BadInput
from tests.shells import Cli


@pytest.mark.spec("3.11")
def test_an_item_can_be_pinned_when_it_is_remembered_and_unpinned_later(book: Book) -> None:
    ada = book.as_actor("ada")
    rule = ada.remember("Never deploy on a Friday", pinned=True, shared=True).item_id or ""
    plain = ada.remember("The harbour has three cranes", shared=True).item_id or ""
    assert {one.id: one.pinned for one in ada.memory.list()} == {rule: True, plain: False}
    assert ada.memory.get(rule).pinned
    then = book.head
    assert not ada.memory.revise(rule, pinned=False).pinned
    assert ada.memory.revise(plain, pinned=True).pinned
    assert ada.memory.get(rule, at=then).pinned
    head = book.head
    ada.memory.revise(rule, pinned=False)
    assert book.head == head, "it was so already"
    assert not ada.memory.revise(plain, pinned=None).pinned
    for wrong in ("yes", 1):
        with pytest.raises(BadInput, match="pinned"):
            ada.remember("The mill is red", pinned=wrong)  # type: ignore[arg-type]
        with pytest.raises(BadInput, match="pinned"):
            ada.memory.revise(rule, pinned=wrong)


@pytest.mark.spec("3.11", "L1")
def test_a_pin_survives_rebuilding_exporting_and_copying(book: Book, tmp_path: Path) -> None:
    rule = book.remember("Never deploy on a Friday", pinned=True).item_id or ""
    book.rebuild()
    assert book.memory.get(rule).pinned
    assert book.memory.export(tmp_path / "items.jsonl") == 1
    assert json.loads((tmp_path / "items.jsonl").read_text())["pinned"] is True
    with commonplace.open(tmp_path / "copy.db") as copy:
        book.admin.copy(copy)
        assert copy.memory.get(rule).pinned


@pytest.mark.spec("3.11")
def test_what_takes_the_place_of_a_pinned_item_is_pinned_unless_somebody_says_otherwise(book: Book) -> None:
    ada = book.as_actor("ada")
    ada.remember(key="api.limit", value=60, pinned=True, shared=True)
    second = ada.remember(key="api.limit", value=70, supersedes=True)
    assert ada.memory.get(second.item_id or "").pinned
    claim = book.as_actor("ben").remember(key="api.limit", value=80, shared=True)
    assert claim.outcome == "flagged"
    assert book.memory.resolve(claim, "new", "measured again").pinned
    third = book.remember(key="api.limit", value=90, supersedes=claim.item_id or "", pinned=False)
    assert not book.memory.get(third.item_id or "").pinned


@pytest.mark.spec("3.11", "L5")
def test_remembering_a_known_item_again_says_that_it_was_not_pinned(book: Book) -> None:
    book.remember("Never deploy on a Friday")
    again = book.remember("Never deploy on a Friday", pinned=True)
    assert again.outcome == "merged"
    assert "not taken over: pinned" in again.reason


@pytest.mark.spec("3.11", "4.6")
def test_what_others_pin_does_not_push_the_readers_and_the_owners_pins_out_of_a_prompt(book: Book) -> None:
    ada, eve = book.as_actor("ada"), book.as_actor("eve")
    ada.remember("I write the release notes", pinned=True)
    book.remember("Never deploy on a Friday", pinned=True)
    for number in range(40):
        eve.remember(
            f"Eve holds that rule {number} matters more than rule {number + 50}", pinned=True, shared=True
        )
    prompt = ada.prompt("plan the week", max_chars=1_500)
    own, owners, others = map(prompt.index, ("release notes", "on a Friday", "Eve holds"))
    assert own < owners < others
    assert "on a Friday" in book.prompt("plan the week", max_chars=1_500)


@pytest.mark.spec("3.11", "7.2")
def test_the_command_line_pins_and_shows_it(cli: Cli, tmp_path: Path) -> None:
    book = ("--book", str(tmp_path / "team.db"))
    assert cli("init", *book).code == 0
    kept = cli("remember", "Never deploy on a Friday", "--pinned", "--json", *book).json
    shown = cli("memory", "show", kept["item_id"], "--json", *book).json
    assert shown["pinned"] is True
    assert "live, pinned" in " ".join(cli("memory", "list", *book).out.split())
    cli("memory", "revise", kept["item_id"], "pinned=false", *book)
    assert "pinned" not in cli("memory", "list", *book).out
    assert cli("memory", "revise", kept["item_id"], "pinned=true", "--json", *book).json["pinned"] is True
