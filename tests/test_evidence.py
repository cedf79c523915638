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
from commonplace.documents.writing import WriteDocument
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


@pytest.mark.spec("6.11", "L9")
@pytest.mark.parametrize("copied", ["spoke", "document", "note"])
def test_a_copy_of_any_kind_is_no_new_origin(local: Book, copied: str) -> None:
    source = said(local, "r1", "dev-1")
    with local.run(run_id="r2").agent("dev-2") as turn:
        if copied == "spoke":
            copy = turn.record("agent.spoke", payload={"text": SAID}, parents=[source]).id
        elif copied == "note":
            copy = str(turn.remember(f"{SAID}.", parents=[source], shared=True).id)
        else:
            noted = WriteDocument("dev-2", "sessions/x/y.md", "append", SAID, run="r2", parents=(source,))
            copy = turn._session.write("documents.write", noted).id
    (record,) = local.learn.promote([{**FACT, "sources": [source, copy]}], dry_run=True)
    assert (record.promote, record.origins) == ("defer", ("run r1",))


@pytest.mark.spec("6.11")
def test_what_is_concluded_from_other_things_has_its_author_as_origin(local: Book) -> None:
    others = [said(local, run, "dev-2", "Lunch is at noon") for run in ("r1", "r2")]
    dev = local.as_actor("dev-1")
    notes = [
        str(dev.remember(text, parents=[parent]).id)
        for text, parent in zip(
            (SAID, f"{SAID}, as a rule, in the whole of the service"), others, strict=True
        )
    ]
    (record,) = dev.learn.promote([{**FACT, "sources": notes}], dry_run=True)
    assert (record.promote, len(record.origins)) == ("defer", 1)


@pytest.mark.spec("6.11", "L9")
@pytest.mark.parametrize(
    "text",
    [
        "Handlers do not answer errors as problem JSON with a code field.",
        "It is false that every handler answers errors as problem JSON with a code field.",
        "Every handler answers errors as problem JSON with a code field? No.",
        "Every handler answers errors as problem XML with a code field.",
    ],
)
def test_what_says_otherwise_speaks_against_it(local: Book, text: str) -> None:
    sources = [said(local, "r1", "dev-1"), said(local, "r2", "dev-2"), said(local, "r3", "dev-3", text)]
    (record,) = local.as_actor("dev-1").learn.promote([{**FACT, "sources": sources}])
    assert (record.promote, record.reason) == ("defer", "a source says otherwise")
    assert record.against == (sources[2],)
    assert record.confidence == confidence(2, 2, 0, 1)
    assert f"against it: {sources[2]}" in str(record)


@pytest.mark.spec("6.11", "L9")
def test_another_number_speaks_against_it_and_one_that_is_missing_does_not_count(local: Book) -> None:
    fact = {**FACT, "subject": "Retries", "fact": "The client retries a request 5 times."}
    texts = [
        "The client retries a request five times",
        "The client retries a request 3 times",
        "It retries requests",
    ]
    five, three, none = (said(local, f"r{n}", "dev-1", text) for n, text in enumerate(texts))
    (record,) = local.learn.promote([{**fact, "sources": [five, three, none]}], dry_run=True)
    assert (record.origins, record.against) == (("run r0",), (three,))
    assert [id for id, _ in record.not_counted] == [none]


@pytest.mark.spec("6.11")
def test_sources_that_have_ended_do_not_count(local: Book) -> None:
    first, second = said(local, "r1", "dev-1"), local.as_actor("dev-2").remember(f"{SAID}.", shared=True)
    local.memory.archive(str(second.id), why="old")
    (record,) = local.learn.promote([{**FACT, "sources": [first, str(second.id)]}], dry_run=True)
    assert (record.promote, record.not_counted) == ("defer", ((second.id, "it is archived"),))


@pytest.mark.spec("6.11", "L9")
def test_three_agents_that_say_so_are_three_origins_and_one_that_says_it_twice_is_one(local: Book) -> None:
    with local.run(run_id="r1").agent("dev-1") as turn:
        (waiting,) = turn.learn.promote([FACT])
    with local.run(run_id="r2").agent("dev-1") as turn:
        assert turn.learn.promote([FACT])[0].promote == "defer"  # the same author
    own = said(local, "r3", "dev-1")
    assert local.as_actor("dev-1").learn.promote([{**FACT, "sources": [own]}])[0].origins == ("run r3",)
    with local.run(run_id="r4").agent("dev-2") as turn:
        assert turn.learn.promote([FACT], dry_run=True)[0].promote == "yes"
        assert facts(local) == []  # a dry run proves nothing
        (record,) = turn.learn.promote([FACT])
    assert (record.promote, record.item) == ("yes", waiting.item)
    assert [other.actor for other in local.memory.get(waiting.item).corroborated] == ["dev-2"]


@pytest.mark.spec("6.11", "L8", "L10")
def test_what_is_brought_later_gives_its_labels_and_takes_the_fact_with_it(local: Book) -> None:
    first = said(local, "r1", "dev-1")
    second = said(local, "r2", "dev-1", labels={"sensitivity": "sensitive", "trust": "low"})
    dev = local.as_actor("dev-1")
    dev.learn.promote([{**FACT, "sources": [first]}])
    (record,) = dev.learn.promote([{**FACT, "sources": [second]}])
    kept = local.memory.get(record.item)
    assert (record.promote, kept.sensitivity, kept.trust) == ("yes", "sensitive", "low")
    assert kept.id in local.erase(second).erased
    assert facts(local) == []


@pytest.mark.spec("6.11")
def test_sources_that_are_not_enough_are_kept_for_the_next_one(local: Book) -> None:
    dev = local.as_actor("dev-1")
    odd = said(local, "r0", "dev-3", "Lunch is at noon")
    dev.learn.promote([{**FACT, "sources": [odd]}])
    assert "(no source that counts)" in str(local.inbox())
    dev.learn.promote([{**FACT, "sources": [said(local, "r1", "dev-1")]}])
    assert "(one source)" in str(local.inbox())
    (record,) = dev.learn.promote([{**FACT, "sources": [said(local, "r2", "dev-2")]}])
    assert (record.promote, record.origins) == ("yes", ("run r1", "run r2"))


@pytest.mark.spec("6.11")
def test_a_source_that_says_nothing_of_it_does_not_count(local: Book) -> None:
    sources = [said(local, "r1", "dev-1"), said(local, "r2", "dev-2", "Lunch is at noon")]
    (record,) = local.as_actor("dev-1").learn.promote([{**FACT, "sources": sources}], dry_run=True)
    assert record.promote == "defer"
    assert record.not_counted == ((sources[1], "it says too little of this"),)


@pytest.mark.spec("6.11", "4.10")
def test_a_citation_that_holds_is_enough_and_one_that_does_not_is_not(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    lines = [f"line = {n}" for n in range(1, 12)]
    (tmp_path / "src" / "api.py").write_text("\n".join([*lines, "def answer_error(code):", "    ..."]))
    with commonplace.open("memory:", repository=tmp_path) as book:
        dev = book.as_actor("dev-1")
        for citation, why in (
            ("src/api.py:99", "the file has no lines 99-99"),
            ("src/web.py:1", "there is no such file in the repository"),
            ("../other.py:1", "it lies outside the repository"),
            ("https://example.org/api:1", "it cannot be looked up: write file:line"),
            ("src/api.py:3", "the cited lines have no word of this"),
        ):
            (record,) = dev.learn.promote([{**FACT, "citations": [citation]}], dry_run=True)
            assert (record.promote, record.reason) == ("defer", "one source")
            assert record.not_counted == ((citation, why),)
        fact = {**FACT, "citations": ["src/api.py:12", "src/api.py:99"]}
        assert dev.learn.promote([fact], dry_run=True)[0].promote == "defer"  # all of them must hold
        (record,) = dev.learn.promote([FACT])
        assert (record.promote, record.reason) == ("yes", "src/api.py:12 can be seen")


@pytest.mark.spec("6.11", "4.10")
def test_citations_name_files_in_any_usual_way(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    for name in ("Makefile", "Dockerfile", ".env.example", "src/http.py", "src/my handlers.py"):
        (tmp_path / name).write_text("# every handler answers errors\n")
    with commonplace.open("memory:", repository=tmp_path) as book:
        for citation in (
            "Makefile:1", "Dockerfile:1-1", ".env.example:1", "./src/http.py:1", f"{tmp_path}/src/http.py:1",
            "src/my handlers.py:1",
        ):  # fmt: skip
            (record,) = book.as_actor("dev-1").learn.promote(
                [{**FACT, "citations": [citation]}], dry_run=True
            )
            assert (record.promote, record.not_counted) == ("yes", ()), citation


@pytest.mark.spec("6.11")
def test_the_word_of_a_person_is_enough(local: Book) -> None:
    local.access.grant("kim", role="person")
    kim = local.as_actor("kim")
    words = [
        kim.record("user.injected", payload={"text": SAID}).id,
        str(kim.remember(f"{SAID}, I think.").id),
        *kim.thread("chat").add([{"role": "user", "content": SAID}]).ids,
    ]
    for word in words:
        (record,) = local.learn.promote([{**FACT, "sources": [word]}], dry_run=True)
        assert (record.promote, record.reason) == ("yes", "kim said so")
    (record,) = local.as_actor("dev-1").learn.promote([{**FACT, "sources": words[:1]}])
    assert local.memory.get(record.item).provenance["metadata"]["evidence"] == "a person's word"
    owners = local.record("user.injected", payload={"text": f"{SAID} always"}).id
    (record,) = local.learn.promote([{**FACT, "subject": "Errors", "sources": [owners]}], dry_run=True)
    assert record.basis == "a person's word"


@pytest.mark.spec("6.11", "L9")
def test_an_agent_is_no_person_whatever_it_says_of_itself(local: Book) -> None:
    dev = local.as_actor("dev-1")
    words = [
        dev.record("user.injected", payload={"text": SAID}).id,
        str(dev.remember(f"{SAID}, I think.", provenance={"source_kind": "user"}).id),
        *dev.thread("chat").add([{"role": "user", "content": SAID}]).ids,
        *local.thread("app").add([{"role": "assistant", "content": SAID}]).ids,
    ]
    for word in words:
        (record,) = dev.learn.promote([{**FACT, "sources": [word]}], dry_run=True)
        assert (record.promote, record.reason) == ("defer", "one source")


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
    local.as_actor("ben").learn.propose_skills()  # others propose nothing twice either
    (skill,) = local.inbox().proposals
    assert (skill.kind, skill.text) == ("procedure", pattern.text)
    local.memory.resolve(skill.id, "skip", "no")
    for actor in (local, local.as_actor("ben"), local.as_actor("cat")):
        proposed = actor.learn.propose_skills()
        assert proposed.results[0].reason == f"declined before: {skill.id} said the same"
        assert "not proposed: declined before" in str(proposed)
    assert not local.inbox().proposals
    local.memory.restore(skill.id)
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
