"""What has just happened in a run: the window, salience, and the lines that a prompt shows of it."""

from __future__ import annotations

import math
from typing import Any

import pytest

import commonplace
from commonplace import Book
from commonplace.errors import BadInput, StorageFailed
from commonplace.index import Index
from commonplace.recall import salience

from .telemetry_seen import Seen


def told(book: Book) -> dict[str, str]:
    """A run in which ada and ben talk, think and are interrupted, by a short name."""
    said: list[tuple[str, str, str, int, dict[str, Any]]] = [
        ("start", "run.started", "owner", 0, {"goal": "find the leak", "seed": 7}),
        ("world", "world.observed", "owner", 1, {"text": "water drips from the roof"}),
        ("thought", "agent.thought", "ben", 1, {"text": "ada did it"}),
        ("mine", "agent.thought", "ada", 2, {"text": "I should look at the roof"}),
        ("spoke", "agent.spoke", "ben", 2, {"text": "the roof looks fine to me"}),
        ("clue", "clue.found", "ben", 3, {"text": "a broken tile"}),
        ("verdict", "judge.verdict", "judge", 4, {"summary": "it is the roof"}),
        ("poke", "user.injected", "visitor", 5, {"text": "hurry up"}),
    ]
    ids = {}
    for name, kind, actor, turn, payload in said:
        event = book.record(kind, actor=actor, turn=turn, payload=payload, run_id="r1")
        ids[name] = event.id
    book.record("world.observed", payload={"text": "another run altogether"}, run_id="r2", turn=9)
    return ids


@pytest.mark.spec("4.3", "4.4")
def test_the_window_shows_the_last_events_that_an_actor_may_see(book: Book) -> None:
    ids = told(book)
    ada = book.as_actor("ada")
    found = ada.receipts.window("r1", k=4)
    assert [one.id for one in found.events] == [ids[one] for one in ("mine", "spoke", "verdict", "poke")]
    assert found.text == (
        "[turn 002][agent.thought] I should look at the roof\n"
        "[turn 002][agent.spoke] the roof looks fine to me\n"
        "[turn 004][judge.verdict] it is the roof\n"
        "[turn 005][user.injected] hurry up"
    )
    assert "find the leak" in ada.receipts.window("r1").text
    assert "seed" not in ada.receipts.window("r1").text
    assert "ada did it" not in ada.receipts.window("r1", k=100).text
    assert "tile" not in ada.receipts.window("r1", k=100).text
    assert "ada did it" in book.as_actor("ben").receipts.window("r1", k=100).text
    assert ada.receipts.window("r1", k=0).text == ada.receipts.window("nothing").text == "(no prior memory)"
    assert "hurry up" not in ada.receipts.window("r1", shown="HURRY up").text
    with pytest.raises(BadInput, match="which run"):
        ada.receipts.window()
    with pytest.raises(BadInput, match="whole number"):
        ada.receipts.window("r1", k=-1)


@pytest.mark.spec("4.4")
def test_salience_is_what_the_formula_says(book: Book) -> None:
    ids = told(book)
    event = book.event(ids["world"])
    overlap = len({"roof"}) / len({"water", "drips", "from", "the", "roof", "look", "at"})
    expected = 0.3 * (overlap * 2) + 0.4 * math.exp(-0.1 * 5) + 0.3 * 0.7
    assert salience(event, turn=6, query="look at the Roof") == pytest.approx(expected)
    assert salience(event, turn=0, query="") == pytest.approx(0.4 + 0.3 * 0.7)
    assert salience(book.event(ids["verdict"]), turn=4, query="roof") == pytest.approx(0.4 + 0.3 * 0.9)
    found = book.as_actor("ada").receipts.salient("look at the roof", "r1", turn=6, top_k=3)
    scores = {one: salience(book.event(ids[one]), turn=6, query="look at the roof") for one in ids}
    seen = [one for one in ids if one not in ("thought", "clue")]
    best = sorted(seen, key=lambda one: -scores[one])[:3]
    assert [one.id for one in found.events] == [ids[one] for one in ids if one in best]
    first = found.text.splitlines()[0]
    assert first.startswith("[turn 002][agent.thought][sal=0.")
    assert first.endswith("I should look at the roof")
    assert book.as_actor("ada").receipts.salient("x", "nothing").text == "(no salient memories)"


@pytest.mark.spec("4.4")
def test_weights_decay_and_importance_can_be_set(book: Book) -> None:
    ids = told(book)
    ada = book.as_actor("ada")
    book.memory.configure(
        salience={"w_rel": 0, "w_rec": 0, "w_imp": 1, "importance": {"world.observed": 1.0}}
    )
    assert [one.id for one in ada.receipts.salient("", "r1", top_k=1).events] == [ids["world"]]
    newest = ada.receipts.salient("", "r1", top_k=1, rules={"w_rec": 1, "w_imp": 0})
    assert [one.id for one in newest.events] == [ids["poke"]]
    with pytest.raises(BadInput, match="w_rel"):
        ada.receipts.salient("", "r1", rules={"w_rel": "much"})


@pytest.mark.spec("4.4")
def test_with_the_index_relevance_is_by_rank_and_a_broken_index_is_told(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = told(book)
    ada = book.as_actor("ada")
    rules = {"w_rel": 1, "w_rec": 0, "w_imp": 0}
    found = ada.receipts.salient("rain comes through the ceiling", "r1", top_k=1, semantic=True, rules=rules)
    assert [one.id for one in found.events] == [ids["world"]]
    assert found.semantic
    assert not found.fallback
    assert list(found.scores.values()) == [1.0]
    plain = ada.receipts.salient("", "r1", semantic=True)
    assert not plain.semantic

    def broken(*_: object) -> None:
        raise StorageFailed("the disk is gone")

    monkeypatch.setattr(Index, "ranked", broken)
    found = ada.receipts.salient("the roof looks fine", "r1", top_k=1, semantic=True, rules=rules)
    assert [one.id for one in found.events] == [ids["spoke"]]
    assert not found.semantic
    assert "the disk is gone" in found.fallback


@pytest.mark.spec("4.4")
def test_every_recall_is_a_span_and_a_figure_and_its_text_is_in_the_log(
    seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    with commonplace.open("memory:") as book:
        told(book)
        ada = book.as_actor("ada")
        with caplog.at_level("DEBUG", "commonplace"):
            ada.receipts.window("r1", k=3)
            ada.receipts.salient("the roof", "r1", top_k=2, semantic=True)
            ada.digest("the roof")
    spans = [dict(one.attributes or {}) for one in seen.spans if one.name == "memory.recall"]
    assert spans[0] == {"agent": "ada", "memory.mode": "episodic", "memory.visible_count": 3}
    assert spans[1] == {
        "agent": "ada", "memory.mode": "salience", "memory.top_k": 2, "memory.visible_count": 2,
        "memory.semantic": True,
    }  # fmt: skip
    assert spans[2]["memory.mode"] == "digest"
    assert "roof" not in seen.everything, "what was asked and recalled is not in a span"
    assert "the roof looks fine to me" in caplog.text
    assert [each["memory.mode"] for each in seen.durations()["memory.visible_count"]] == [
        "episodic", "salience", "digest",
    ]  # fmt: skip


@pytest.mark.spec("4.4", "4.5")
def test_a_prompt_shows_what_has_just_happened_unless_it_is_shown_already(book: Book) -> None:
    with book.run(run_id="r1") as run, run.agent("ada") as me:
        assert "## Recent Memory" not in me.prompt("look at the roof")
        told(book)
        prompt = me.prompt("hurry up")
        assert "## Recent Memory\n[turn 000][run.started] find the leak\n" in prompt
        assert "[turn 005]" not in prompt
        assert "ada did it" not in prompt


@pytest.mark.spec("4.4")
def test_ties_keep_the_order_of_the_ledger_and_long_runs_are_read_from_their_end(book: Book) -> None:
    events = [
        {"kind": "world.observed", "payload": {"text": f"drop {n}"}, "run_id": "r"} for n in range(2_600)
    ]
    book.record_all(events)
    book.record("agent.thought", actor="ada", payload={"text": "early"}, run_id="s")
    book.record_all(events)
    ada = book.as_actor("ada")
    assert ada.receipts.window("r", k=2).text.splitlines() == [
        "[turn 000][world.observed] drop 2598",
        "[turn 000][world.observed] drop 2599",
    ]
    assert ada.receipts.window("s", k=2).text == "[turn 000][agent.thought] early"
    assert ada.receipts.salient("", "r", top_k=1).events[0].payload["text"] == "drop 0"
