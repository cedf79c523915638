"""Promotion at a phase boundary: the checklist, the inbox, and no recorded digest gets worse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import commonplace
from commonplace import Book
from commonplace.errors import BadInput, Denied

CONVENTION: dict[str, Any] = {
    "subject": "API versions",
    "fact": "Every route begins with the version of the API, such as /v2/users.",
    "citations": ["src/routes.py:3"],
    "reason": "Clients pin a version, so a route without one breaks them.",
    "category": "project",
}
MAKE_TEST = {
    **CONVENTION,
    "subject": "Run the tests",
    "fact": "Run the tests with make test, which runs the tests of every package.",
}


@pytest.fixture
def local() -> Iterator[Book]:
    with commonplace.open("memory:") as opened:
        yield opened


def from_two_runs(book: Book, fact: dict[str, Any]) -> dict[str, Any]:
    """The fact with sources in two runs."""
    sources = []
    for name in ("r1", "r2"):
        with book.run(run_id=name).agent("dev-1") as turn:
            sources.append(turn.record("agent.spoke", payload={"text": f"I see: {fact['fact']}"}).id)
    return {**fact, "sources": sources}


# the checklist


@pytest.mark.spec("6.6")
def test_a_convention_found_in_phase_2_walks_through_the_checklist(local: Book) -> None:
    fact = from_two_runs(local, {**CONVENTION, "subject": "Phase 2: API versions"})
    ada = local.as_actor("ada")
    before = local.head
    (record,) = looked = ada.learn.promote([fact], task="Add user routes", dry_run=True)
    assert local.head == before
    assert "nothing was written" in str(looked)
    assert (record.subject, record.classification, record.promote) == ("API versions", "project", "yes")
    assert record.evidence == ("src/routes.py:3",)
    assert record.origins == ("run r1", "run r2")
    assert record.confidence == 0.65
    assert record.item == ""

    (record,) = ada.learn.promote([fact], task="Add user routes")
    (kept,) = local.memory.list(repository=True)
    assert (record.promote, record.item) == ("yes", kept.id)
    assert (kept.key, kept.value, kept.citations) == (
        "API versions",
        CONVENTION["fact"],
        ("src/routes.py:3",),
    )


@pytest.mark.spec("6.6")
def test_what_is_about_one_task_stays_with_the_task(local: Book) -> None:
    ada = local.as_actor("ada")
    facts = [
        {**CONVENTION, "subject": "phase 2"},
        {**CONVENTION, "subject": "Add-user-routes"},
        {**CONVENTION, "fact": "In phase 2 the routes are renamed."},
        {**CONVENTION, "fact": "The report lies in add-user-routes beside the plan."},
    ]
    before = local.head
    report = ada.learn.promote(facts, task="Add user routes")
    assert {(record.promote, record.classification) for record in report} == {("no", "task")}
    assert all("in the folder of the task 'Add user routes'" in record.reason for record in report)
    assert local.head == before
    assert len(report.of("no")) == 4


@pytest.mark.spec("6.6", "3.5")
def test_all_five_fields_are_needed_and_what_is_told_elsewhere_is_refused(local: Book) -> None:
    ada = local.as_actor("ada")
    told_by_git = "Merge branch 'routes' into main was reverted by Kim."
    reasons = [
        record.reason
        for record in ada.learn.promote(
            [
                {**CONVENTION, "category": None},
                {**CONVENTION, "category": "gossip"},
                {**CONVENTION, "citations": []},
                {**CONVENTION, "citations": ["routes"], "reason": ""},
                {**CONVENTION, "fact": told_by_git},
                {},
            ]
        )
    ]
    assert len(local.memory.list(status=None)) == 0
    assert reasons[0] == reasons[1] == reasons[5]
    assert reasons[0].startswith("unclassified: say which category it is: user, feedback, project, reference")
    assert "cite where it can be seen" in reasons[2]
    assert "is no citation: write file:line; say in reason" in reasons[3]
    assert "git_history" in reasons[4]


@pytest.mark.spec("6.6")
def test_a_call_that_cannot_be_understood_is_refused_with_the_place(local: Book) -> None:
    for facts, why in (
        ("one", "is not a list"),
        ([CONVENTION, "two"], "fact 2: 'two' is not a mapping"),
        (
            [CONVENTION, {**CONVENTION, "subjct": ""}],
            "fact 2 has an unknown field 'subjct': its fields are subject",
        ),
    ):
        with pytest.raises(BadInput, match=why):
            local.learn.promote(facts)  # type: ignore[arg-type]
    (record,) = local.learn.promote([{**CONVENTION, "sources": "abc"}])
    assert record.promote == "no"
    assert str(local.learn.promote([])) == "no facts were given"
    many = [local.record("agent.spoke", payload={"text": "x"}).id for _ in range(1_001)]
    (record,) = local.learn.promote({**CONVENTION, "sources": many})  # one fact alone will do
    assert record.promote == "no"
    assert record.reason == "sources are at most 1,000 events, not 1,001: name those that say it"
    (record,) = local.learn.promote({**CONVENTION, "category": "PROJECT"}, dry_run=True)
    assert (record.promote, record.classification) == ("defer", "project")


@pytest.mark.spec("6.6", "6.11")
def test_what_a_person_has_declined_does_not_come_back(local: Book) -> None:
    ada = local.as_actor("ada")
    (record,) = ada.learn.promote([CONVENTION])
    local.memory.resolve(record.item, "skip", "it is wrong")
    head = local.head
    for actor in (ada, local.as_actor("ben"), local):
        (again,) = actor.learn.promote([from_two_runs(local, CONVENTION)] if actor is ada else [CONVENTION])
        assert (again.promote, again.reason) == ("no", f"declined before: {record.item} said the same")
    assert [event.kind for event in local.events(after=head) if event.kind.startswith("memory.item")] == []
    (again,) = ada.learn.promote([{**CONVENTION, "override": "the routes were renamed since"}])
    assert again.promote == "defer"


@pytest.mark.spec("6.6")
def test_a_near_duplicate_waits_with_the_comparison_and_the_choices(local: Book) -> None:
    known = local.memory.repository_fact(**CONVENTION)
    fact = from_two_runs(local, {**CONVENTION, "subject": "API versions of routes"})
    local.access.grant("lib", role="librarian")
    (record,) = local.as_actor("ada").learn.promote([fact])
    assert (record.promote, record.choices) == ("defer", ("skip", "merge", "create"))
    assert f"it is nearly the same as {known.id}" in record.reason
    assert f"known: API versions | {CONVENTION['fact']} ({known.id})" in record.comparison
    assert "only the first: routes" in record.comparison
    assert [item.id for item in local.inbox().held] == [record.item]
    assert local.as_actor("lib").memory.resolve(record.item, "skip").id == known.id


@pytest.mark.spec("6.6")
def test_facts_of_one_call_are_compared_with_each_other(local: Book) -> None:
    fact = from_two_runs(local, CONVENTION)
    facts = [fact, {**fact, "subject": "API versions of routes"}]
    ada = local.as_actor("ada")
    looked = [record.promote for record in ada.learn.promote(facts, dry_run=True)]
    assert looked == ["yes", "defer"]
    assert [record.promote for record in ada.learn.promote(facts)] == looked


@pytest.mark.spec("6.6")
def test_repeating_a_promotion_changes_nothing(local: Book) -> None:
    ada = local.as_actor("ada")
    near = {**from_two_runs(local, CONVENTION), "subject": "API versions of routes"}
    facts = [from_two_runs(local, CONVENTION), {**MAKE_TEST, "sources": []}, near]
    first = ada.learn.promote(facts)
    assert [record.promote for record in first] == ["yes", "defer", "defer"]
    head = local.head
    again = ada.learn.promote(facts)
    assert local.head == head
    assert [record.promote for record in again] == ["no", "defer", "defer"]
    assert "remembered already" in again[0].reason
    assert [record.item for record in again] == [record.item for record in first]


@pytest.mark.spec("6.6", "L8")
def test_labels_scope_and_erasure_follow_the_sources(local: Book) -> None:
    bot = local.as_actor("bot", scope="users/alice")
    secret = bot.remember("Routes of Alice begin with the version of her API.", sensitivity="sensitive")
    (record,) = bot.learn.promote([{**CONVENTION, "sources": [secret.id]}])
    assert record.promote == "defer"
    waiting = bot.memory.get(record.item)
    assert (waiting.sensitivity, waiting.scope) == ("sensitive", "users/alice")
    assert local.as_actor("bot", scope="users/bob").inbox().held == ()
    assert bot.memory.resolve(record.item, "skip").status == "dropped"

    source = local.as_actor("dev-1").remember("A route begins with the version of the API.", trust="low")
    (record,) = local.as_actor("dev-1").learn.promote([{**CONVENTION, "sources": [source.id]}])
    assert local.memory.get(record.item).trust == "low"
    gone = local.forget(source.id, erase=True, confirm="FORGET")
    assert record.item in gone.derived


@pytest.mark.spec("6.6")
def test_sources_can_be_documents(local: Book) -> None:
    ada = local.as_actor("ada")
    ada.documents.add_to_task("Add user routes", "decisions", "Routes begin with the version of the API.")
    path = "plans/artifacts/add-user-routes/decisions.md"
    (record,) = ada.learn.promote([{**CONVENTION, "sources": [path]}])
    assert record.promote == "defer"
    (entry,) = local.documents.get(path)
    assert [event.parents for event in local.events() if event.id == record.item] == [(entry.id,)]


@pytest.mark.spec("6.6", "3.9")
def test_who_may_not_write_may_not_promote(local: Book) -> None:
    local.access.grant("guest", tiers={"long_term": "read"})
    with pytest.raises(Denied):
        local.as_actor("guest").learn.promote([CONVENTION])
    assert any(event.kind == "access.denied" for event in local.events())


# recorded digests


def taught(book: Book) -> list[str]:
    """Facts about tests and about others things."""
    facts = {
        "test data": "Run the tests with the data of the folder fixtures.",
        "test time": "Run the tests before every push, they take a minute.",
        "lunch": "Lunch is served at noon in the canteen.",
    }
    ids = [book.remember(key=key, value=value).id for key, value in facts.items()]
    return [id for id in ids if id is not None]


@pytest.mark.spec("6.11")
def test_a_lesson_that_makes_three_recorded_digests_worse_is_held_back_and_names_them(local: Book) -> None:
    data, time, _ = taught(local)
    worse = [
        local.as_actor(agent).digest("run the tests", max_items=2, rules={"semantic": {"enabled": False}})
        for agent in ("dev-1", "dev-2", "dev-3")
    ]
    assert all({data, time} == {*digest.item_ids} for digest in worse)
    better = [local.digest("where is lunch served", max_items=2), local.digest("run the tests", max_items=12)]
    receipts = {digest.receipt_id for digest in worse}

    fact = from_two_runs(local, MAKE_TEST)
    (record,) = report = local.learn.promote([fact])
    assert record.promote == "defer"
    assert {digest.receipt for digest in record.trial} == receipts
    assert not receipts & {digest.receipt_id for digest in better}
    assert record.trial.tried == 5
    assert record.trial.lost in ((data,), (time,), (data, time), (time, data))
    pushed = " and ".join(record.trial.lost)
    assert record.reason.startswith(f"it would push {pushed} out of 3 recorded digests: receipt ")
    assert all(str(id) in record.reason for id in (*receipts, *record.trial.lost))
    assert "would lose" in str(report)
    (waiting,) = local.inbox().held
    assert waiting.held is not None
    assert ({*waiting.held.receipts}, waiting.held.items) == (receipts, record.trial.lost)

    head = local.head
    assert local.learn.promote([fact])[0].promote == "defer"
    assert local.head == head
    local.access.grant("kim", role="person")
    kim = local.as_actor("kim")
    seen = kim.memory.get(waiting.id).held
    assert seen is not None
    assert seen.receipts == ()  # digests of others are none of Kim's business
    assert seen.because == "recorded digests would be worse with it"
    assert kim.memory.resolve(waiting.id, "create", "it matters more than what it pushes out").current


@pytest.mark.spec("6.11")
def test_a_lesson_that_only_adds_is_promoted(local: Book) -> None:
    taught(local)
    for query in ("run the tests", "where is lunch served"):
        assert local.digest(query).receipt_id
    (record,) = local.learn.promote([from_two_runs(local, MAKE_TEST)])
    assert (record.promote, record.trial.tried, record.trial.worse) == ("yes", 2, ())
    assert record.item in local.digest("run the tests").item_ids


@pytest.mark.spec("6.11")
def test_what_only_filled_a_digest_up_may_go(local: Book) -> None:
    """With nothing better to show, a digest shows what is faintly related."""
    _, _, lunch = taught(local)
    digest = local.digest("run the tests", max_items=3)
    assert lunch in digest.item_ids
    (record,) = local.learn.promote([from_two_runs(local, MAKE_TEST)])
    assert (record.promote, record.trial.tried) == ("yes", 1)


@pytest.mark.spec("6.11")
def test_a_lesson_may_push_out_what_it_takes_the_place_of(local: Book) -> None:
    old = local.memory.repository_fact(**{**MAKE_TEST, "fact": "Run the tests with npm test."})
    other = local.memory.repository_fact(**{**CONVENTION, "subject": "tests", "fact": "Run the tests twice."})
    digest = local.digest("run the tests", max_items=2)
    assert {*digest.item_ids} == {old.id, other.id}
    (record,) = local.learn.promote([{**from_two_runs(local, MAKE_TEST), "supersedes": [old.id]}])
    assert (record.promote, record.trial.tried, record.trial.worse) == ("yes", 1, ())
    assert local.memory.get(str(old.id)).superseded_by == record.item


@pytest.mark.spec("6.11", "3.11")
def test_digests_of_others_and_of_other_scopes_are_not_tried(local: Book) -> None:
    taught(local)
    rules = {"semantic": {"enabled": False}}
    local.as_actor("dev-1").digest("run the tests", max_items=2, rules=rules)
    alice = local.as_actor("bot", scope="users/alice")
    alice.remember(key="test of alice", value="Run the tests of Alice.")
    alice.digest("run the tests", max_items=1, rules=rules)
    fact = from_two_runs(local, MAKE_TEST)
    assert local.as_actor("dev-2").learn.promote([fact], dry_run=True)[0].trial.tried == 0
    (record,) = local.learn.promote([fact], dry_run=True)  # Alice's digest could not have held it
    assert (record.trial.tried, len(record.trial.worse)) == (1, 1)


@pytest.mark.spec("6.11", "3.9")
def test_digests_of_readers_who_may_not_read_the_lesson_are_not_tried(local: Book) -> None:
    taught(local)
    local.as_actor("dev-3").digest("run the tests", max_items=2, rules={"semantic": {"enabled": False}})
    fact = from_two_runs(local, MAKE_TEST)
    assert len(local.learn.promote([fact], dry_run=True)[0].trial.worse) == 1
    local.access.grant("dev-3", tiers={"long_term": "none"})
    (record,) = local.learn.promote([fact], dry_run=True)
    assert (record.promote, record.trial.tried) == ("yes", 0)


@pytest.mark.spec("6.11")
def test_the_inbox_says_why_a_lesson_waits_by_now(local: Book) -> None:
    taught(local)
    first, second = from_two_runs(local, MAKE_TEST)["sources"]
    local.learn.promote([{**MAKE_TEST, "sources": [first]}])
    assert [item.held.reason for item in local.inbox().held if item.held] == ["one source"]
    digest = local.digest("run the tests", max_items=2, rules={"semantic": {"enabled": False}})
    (record,) = local.learn.promote([{**MAKE_TEST, "sources": [second]}])
    assert record.promote == "defer"
    (waiting,) = local.inbox().held
    assert waiting.held is not None
    assert (waiting.held.receipts, waiting.held.items) == ((digest.receipt_id,), record.trial.lost)
    head = local.head
    local.learn.promote([{**MAKE_TEST, "sources": [second]}])
    assert local.head == head


@pytest.mark.spec("6.11", "L10")
def test_a_digest_of_which_something_was_erased_cannot_be_tried_and_is_counted(local: Book) -> None:
    data, _, _ = taught(local)
    local.digest("run the tests", max_items=2)
    local.forget(data, erase=True, confirm="FORGET")
    (record,) = local.learn.promote([from_two_runs(local, MAKE_TEST)])
    assert (record.promote, record.trial.tried, record.trial.unread) == ("yes", 0, 1)


@pytest.mark.spec("5.9", "6.11")
def test_promotion_into_a_core_is_tried_too_and_can_be_overridden(local: Book) -> None:
    local.memory.set_core("testing", type="pattern", name="Testing")
    for text in ("Run the tests with fixtures.", "Run the tests before a push."):
        local.remember(text)
    digest = local.digest("run the tests", max_items=2)
    work = local.work(name="ci", goal="Faster tests", cores=["testing"], id="ci")
    found = work.discover(text="Run the tests in four shards, run the tests in parallel.", type="insight")
    (candidate,) = work.candidates()
    assert candidate.id == found.id
    held = work.promote(candidate)
    assert held.outcome == "flagged"
    assert held.held is not None
    assert held.held.receipts == (digest.receipt_id,)
    assert work.promote(candidate).outcome == "flagged"
    assert [each.id for each in work.candidates()] == [candidate.id]
    kept = work.promote(candidate, override="shards matter more")
    assert (kept.outcome, kept.item_id) == ("stored", held.item_id)
    assert local.memory.get(str(kept.item_id)).current
    assert work.candidates() == []


WORDS = st.text("bcdfghjkl", min_size=4, max_size=8)


@pytest.mark.spec("6.11")
@settings(max_examples=20, deadline=None)
@given(st.lists(WORDS, min_size=3, max_size=12, unique=True), st.integers(1, 3))
def test_a_lesson_that_shares_no_word_with_any_request_makes_none_worse(words: list[str], items: int) -> None:
    with commonplace.open("memory:") as book:
        taught(book)
        for query in ("run the tests", "where is lunch served"):
            book.digest(query, max_items=items, rules={"semantic": {"enabled": False}})
        fact = {**CONVENTION, "subject": words[0], "fact": f"{' '.join(words[1:])}."}
        (record,) = book.learn.promote([from_two_runs(book, fact)], dry_run=True)
        assert (record.promote, record.trial.tried, record.trial.worse) == ("yes", 2, ())
