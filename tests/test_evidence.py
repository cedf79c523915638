"""Evidence before promotion: what counts as a second origin, what does not, and what a pattern is worth."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import commonplace
from commonplace import Book
from commonplace.errors import Denied, NotFound
from commonplace.learn.evidence import confidence
from commonplace.learn.skills import SKILL

FACT: dict[str, Any] = {
    "subject": "Error answers",
    "fact": "Every handler answers errors as problem JSON with a code field.",
    "citations": ["src/api.py:12"],
    "reason": "New handlers have to do the same.",
    "category": "project",
}
SAID = "Handlers answer errors as problem JSON with a code field"


@pytest.fixture
def local() -> Iterator[Book]:
    with commonplace.open("memory:") as opened:
        yield opened


def said(book: Book, run: str, agent: str, text: str = SAID, **more: Any) -> str:
    with book.run(run_id=run).agent(agent) as turn:
        return turn.record("agent.spoke", payload={"text": text}, **more).id


def facts(book: Book) -> list[str]:
    return [item.text for item in book.memory.list(repository=True)]


@pytest.mark.spec("6.11")
def test_one_source_waits_and_a_second_run_promotes(local: Book) -> None:
    first = said(local, "r1", "dev-1")
    report = local.as_actor("dev-1").learn.promote([{**FACT, "sources": [first]}])
    assert [(record.promote, record.reason) for record in report] == [("defer", "one source")]
    assert facts(local) == []
    (waiting,) = local.inbox().held
    assert waiting.id == report[0].item
    assert "(one source)" in str(local.inbox())

    second = said(local, "r2", "dev-2")
    report = local.as_actor("dev-2").learn.promote([{**FACT, "sources": [second]}])
    assert (report[0].promote, report[0].origins) == ("yes", ("run r1", "run r2"))
    assert report[0].item == waiting.id
    assert facts(local) == [f"Error answers: {FACT['fact']}"]
    assert not local.inbox().held


@pytest.mark.spec("6.11")
def test_two_sources_at_once_promote_and_what_one_run_says_twice_is_one(local: Book) -> None:
    sources = [said(local, "r1", "dev-1"), said(local, "r1", "dev-2")]
    (record,) = local.as_actor("dev-1").learn.promote([{**FACT, "sources": sources}], dry_run=True)
    assert (record.promote, record.origins) == ("defer", ("run r1",))
    sources.append(said(local, "r2", "dev-1"))
    (record,) = local.as_actor("dev-1").learn.promote([{**FACT, "sources": sources}])
    assert (record.promote, record.origins) == ("yes", ("run r1", "run r2"))
    kept = local.memory.get(record.item)
    assert kept.repository
    assert kept.shared
    assert kept.provenance["metadata"]["evidence"] == "2 independent origins"
    assert [event.parents for event in local.events() if event.id == kept.id] == [tuple(sources)]


@pytest.mark.spec("6.11", "L9")
def test_an_echo_is_no_second_source(local: Book) -> None:
    note = local.as_actor("dev-1").remember(f"{SAID}.", shared=True)
    with local.run(run_id="r2").agent("dev-2") as turn:
        assert note.id in turn.digest("how are errors answered").item_ids
        repeated = turn.record("agent.spoke", payload={"text": f"{SAID}."}).id
        derived = turn.record("agent.spoke", payload={"text": SAID}, parents=[_receipt(local)]).id
    report = local.as_actor("dev-1").learn.promote([{**FACT, "sources": [note.id, repeated, derived]}])
    assert (report[0].promote, report[0].reason) == ("defer", "one source")
    assert {id: why.partition(":")[0] for id, why in report[0].not_counted} == dict.fromkeys(
        (repeated, derived), "an echo"
    )
    assert f"not counted: {repeated} (an echo" in str(report)


def _receipt(book: Book) -> str:
    return book.receipts.list()[-1].id


@pytest.mark.spec("6.11", "L9")
def test_the_run_that_was_shown_the_waiting_lesson_does_not_confirm_it(local: Book) -> None:
    (waiting,) = local.as_actor("dev-1").learn.promote([{**FACT, "sources": [said(local, "r1", "dev-1")]}])
    with local.run(run_id="r2").agent("dev-2") as turn:
        turn.memory.get(waiting.item)
        again = turn.record("agent.spoke", payload={"text": FACT["fact"]}).id
        (record,) = turn.learn.promote([{**FACT, "sources": [again]}])
    assert record.promote == "no"
    assert "an echo" in record.reason
    assert facts(local) == []


@pytest.mark.spec("6.11", "L9")
def test_what_is_derived_has_the_origins_of_what_it_is_derived_from(local: Book) -> None:
    source = said(local, "r1", "dev-1")
    summary = local.as_actor("dev-2").remember(
        "Summary: handlers answer errors as problem JSON.", shared=True, parents=[source]
    )
    (record,) = local.as_actor("dev-3").learn.promote([{**FACT, "sources": [source, summary.id]}])
    assert (record.promote, record.origins) == ("defer", ("run r1",))


@pytest.mark.spec("6.11")
def test_a_source_that_says_nothing_of_it_does_not_count(local: Book) -> None:
    sources = [said(local, "r1", "dev-1"), said(local, "r2", "dev-2", "Lunch is at noon")]
    (record,) = local.as_actor("dev-1").learn.promote([{**FACT, "sources": sources}], dry_run=True)
    assert record.promote == "defer"
    assert record.not_counted == ((sources[1], "it says nothing of this"),)


@pytest.mark.spec("6.11", "4.10")
def test_a_citation_that_holds_is_enough_and_one_that_does_not_is_not(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "api.py").write_text("\n".join(f"line = {n}" for n in range(1, 13)))
    with commonplace.open("memory:", repository=tmp_path) as book:
        dev = book.as_actor("dev-1")
        (record,) = dev.learn.promote([{**FACT, "citations": ["src/api.py:99"]}])
        assert (record.promote, record.reason) == ("defer", "one source")
        fact = {**FACT, "subject": "Answers of handlers", "fact": "Handlers never answer with plain text."}
        (record,) = dev.learn.promote([fact])
        assert record.promote == "yes"
        assert record.reason == "src/api.py:12-12 can be seen"


@pytest.mark.spec("6.11")
def test_the_word_of_a_person_is_enough(local: Book) -> None:
    word = local.record(
        "user.injected", payload={"text": "All errors are problem JSON, always."}, actor="kim"
    )
    (record,) = local.as_actor("dev-1").learn.promote([{**FACT, "sources": [word.id]}])
    assert (record.promote, record.reason) == ("yes", "kim said so")
    assert local.memory.get(record.item).provenance["metadata"]["evidence"] == "a person's word"


@pytest.mark.spec("6.11")
def test_only_a_keeper_creates_what_waits_and_says_why(local: Book) -> None:
    dev = local.as_actor("dev-1")
    (record,) = dev.learn.promote([FACT])
    with pytest.raises(Denied):
        dev.memory.resolve(record.item, "create", "I am sure")
    local.access.grant("kim", role="person")
    kim = local.as_actor("kim")
    with pytest.raises(commonplace.BadInput, match="takes a rationale"):
        kim.memory.resolve(record.item, "create")
    assert kim.memory.resolve(record.item, "create", "I wrote the handlers").current
    assert facts(local) == [f"Error answers: {FACT['fact']}"]


@pytest.mark.spec("6.11")
def test_a_near_duplicate_without_evidence_waits_for_both(local: Book) -> None:
    known = local.memory.repository_fact(**FACT)
    dev = local.as_actor("dev-1")
    near = {**FACT, "subject": "Error answers of handlers"}
    (record,) = dev.learn.promote([near])
    assert (record.promote, record.choices) == ("defer", ("skip", "merge", "create"))
    assert f"it is nearly the same as {known.id}" in record.reason
    assert "only the first: of" in record.comparison or "handlers" in record.comparison
    dev.memory.resolve(record.item, "create", "the subject is wider")
    held = local.memory.get(record.item).held
    assert held is not None
    assert held.why == "evidence"


@pytest.mark.spec("6.11", "3.11")
def test_nothing_of_another_scope_counts_or_is_named(local: Book) -> None:
    alice = local.as_actor("bot", scope="users/alice")
    hidden = alice.record("agent.spoke", payload={"text": SAID}).id
    bob = local.as_actor("bot", scope="users/bob")
    own = bob.record("agent.spoke", payload={"text": SAID}).id
    (record,) = bob.learn.promote([{**FACT, "sources": [own, hidden]}])
    assert record.promote == "no"
    assert f"there is no source {hidden!r}" in record.reason  # as for an id that was never given to anything
    (unknown,) = bob.learn.promote([{**FACT, "sources": [own, "nothing"]}])
    assert unknown.reason == record.reason.replace(hidden, "nothing")
    (record,) = bob.learn.promote([{**FACT, "sources": [own]}])
    assert record.promote == "defer"
    assert len(local.as_actor("bot", scope="users/alice").inbox()) == 0
    (mine,) = alice.learn.promote([{**FACT, "sources": [hidden]}])
    assert (mine.promote, len(mine.origins)) == ("defer", 1)  # what waits with bob is no evidence here


# the confidence of a pattern

COUNTS = st.integers(-2, 50)


@pytest.mark.spec("6.11")
@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_confidence_is_between_0_and_1_and_grows_with_what_speaks_for_it(
    sources: int, occurrences: int, roles: int, against: int
) -> None:
    sure = confidence(sources, occurrences, roles, against)
    assert 0 <= sure <= 1
    assert confidence(sources + 1, occurrences, roles, against) >= sure
    assert confidence(sources, occurrences + 1, roles, against) >= sure
    assert confidence(sources, occurrences, roles + 1, against) >= sure
    assert confidence(sources, occurrences, roles, against + 1) <= sure


@pytest.mark.spec("6.11")
def test_the_steps_of_confidence() -> None:
    assert confidence(1, 1, 1, 1) == 0.0
    assert confidence(1, 1, 1, 0) == 0.15
    assert confidence(2, 1, 1, 0) == 0.35
    assert confidence(2, 2, 1, 0) == 0.65
    assert confidence(2, 2, 3, 0) == 0.85 >= SKILL
    assert confidence(0, 3, 3, 0) == 0.0


def completed(book: Book, name: str, agent: str, titles: list[str]) -> None:
    work = book.work(name=name, goal=name, id=name)
    for title in titles:
        work.add_task(title)
    while claim := work.claim(agent):
        claim.complete("done", learnings=["Write the failing test first"])


@pytest.mark.spec("5.9", "6.11")
def test_a_pattern_over_several_works_is_proposed_as_a_skill(local: Book) -> None:
    completed(local, "auth", "dev-1", ["Token schema", "Login form"])
    assert len(local.learn.patterns()) == 0
    completed(local, "billing", "dev-2", ["Invoice layout"])
    (pattern,) = local.learn.patterns()
    assert (pattern.text, pattern.occurrences) == ("Write the failing test first", 3)
    assert pattern.origins == ("dev-1 in auth", "dev-2 in billing")
    assert pattern.confidence == confidence(2, 3, 0, 0) == 0.95
    assert str(local.learn.patterns()) == "0.95  Write the failing test first (3 completed tasks, 2 origins)"

    assert [each.text for each in local.learn.propose_skills(dry_run=True)] == [pattern.text]
    assert not local.inbox().proposals
    local.learn.propose_skills()
    head = local.head
    local.learn.propose_skills()
    assert local.head == head
    (skill,) = local.inbox().proposals
    assert (skill.kind, skill.text) == ("procedure", pattern.text)
    assert local.memory.resolve(skill.id, "create").current


@pytest.mark.spec("5.9", "6.11")
def test_a_pattern_of_one_work_is_less_sure_and_failures_speak_against_it(local: Book) -> None:
    titles = ["Migrate table 1", "Migrate table 2", "Migrate table 3"]
    completed(local, "tables", "dev-1", titles)
    (migrate, _) = sorted(local.learn.patterns("tables"), key=lambda pattern: pattern.text)
    assert (migrate.text, migrate.confidence) == ("Migrate table 1", 0.75)
    assert not migrate.is_skill
    work = local.work("tables")
    work.add_task("Migrate table 4")
    claim = work.claim("dev-1")
    assert claim is not None
    claim.fail("no room")
    (migrate, _) = sorted(local.learn.patterns("tables"), key=lambda pattern: pattern.text)
    assert (len(migrate.against), migrate.confidence) == (1, 0.6)
    with pytest.raises(NotFound):
        local.learn.patterns("nothing")


@pytest.mark.spec("5.9", "3.9")
def test_what_only_members_may_know_becomes_no_skill_for_all(local: Book) -> None:
    for name, agent in (("one", "dev-1"), ("two", "dev-2")):
        work = local.work(name=name, goal=name, id=name, members=["dev-1", "dev-2"])
        for number in range(2):
            work.add_task(f"Rotate key {number}")
        while claim := work.claim(agent):
            claim.complete("done")
    assert len(local.as_actor("eve").learn.patterns()) == 0
    proposed = local.learn.propose_skills()
    assert (len(proposed), proposed.left_out) == (0, ("Rotate key 0",))
    assert not local.inbox().proposals
