"""Durable memory: items, what becomes of something to remember, disputes, rights, forgetting. On every engine."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import commonplace
from commonplace import Actor, Book
from commonplace.errors import BadInput, Conflict, Denied, Erased, NotFound
from commonplace.index.words import jaccard
from commonplace.memory.likeness import alike_places, marks, words_of

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.fixture
def ada(book: Book) -> Actor:
    return book.as_actor("ada", role="developer")


def texts(of: Book | Actor, **which: Any) -> list[str]:
    return [item.text for item in of.memory.list(**which)]


@pytest.mark.spec("3.3", "L5")
def test_each_kind_of_item_is_kept_with_what_was_said_of_it(ada: Actor) -> None:
    then = datetime(2026, 3, 1, tzinfo=UTC)
    note = ada.remember("Postgres listens on 5433", title="db port", tags=[" infra", "infra", "db"])
    fact = ada.remember(key="db.port", value=5433, confidence=0.9, observed_at=then, category="reference")
    how = ada.remember("Start the server, then run the migrations.", kind="procedure", title="set up")
    what = ada.remember("The database moved to another host.", kind="episode", occurred_at=then)
    assert {one.outcome for one in (note, fact, how, what)} == {"stored"}
    kept = ada.memory.get(str(note.item_id))
    assert (kept.body, kept.title, kept.tags, kept.sensitivity) == (
        "Postgres listens on 5433",
        "db port",
        ("db", "infra"),
        "private",
    )
    assert ada.memory.get(str(fact.item_id)).value == 5433
    assert ada.memory.get(str(fact.item_id)).observed_at == then
    assert ada.memory.get(str(what.item_id)).summary == "The database moved to another host."
    assert texts(ada, kind="procedure") == ["set up: Start the server, then run the migrations."]
    assert (
        texts(ada, tags=["infra"])
        == texts(ada, key=None, tags=["db"])
        == ["db port: Postgres listens on 5433"]
    )


@pytest.mark.spec("3.3")
@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "rumour", "text": "x"},
        {"kind": "fact", "text": "a value without a key"},
        {"kind": "fact", "key": "k"},
        {"kind": "note"},
        {"kind": "note", "text": "   "},
        {"kind": "note", "text": "x", "key": "k"},
        {"kind": "episode", "text": "when was it?"},
        {"kind": "note", "text": "x", "confidence": 1.5},
        {"kind": "note", "text": "x", "confidence": True},
        {"kind": "note", "text": "x", "category": "gossip"},
        {"kind": "note", "text": "x", "sensitivity": "secret"},
        {"kind": "note", "text": "x", "provenance": {"source_kind": "hearsay"}},
        {"kind": "note", "text": "x", "provenance": {"colour": "red"}},
        {"kind": "note", "text": "x", "tags": "infra"},
        {"kind": "note", "text": "x", "links": ["there"]},
        {"kind": "note", "text": "x" * 100_001},
        {"kind": "note", "text": "x", "supersedes": "no-such-item"},
        {"kind": "note", "text": "x", "parents": ["no-such-event"]},
        {"kind": "note", "text": "x", "core": "no-such-core"},
        {"kind": "note", "text": "x", "valid_from": datetime(2026, 1, 2, tzinfo=UTC),
         "valid_until": datetime(2026, 1, 1, tzinfo=UTC)},
    ],
)  # fmt: skip
def test_what_is_not_an_item_is_refused_with_what_to_write_instead(wrong: dict[str, Any]) -> None:
    with commonplace.open("memory:") as book:
        ada = book.as_actor("ada")
        with pytest.raises((BadInput, NotFound)) as refused:
            ada.remember(**wrong)
        assert len(str(refused.value)) > 30
        assert ada.memory.list(status=None) == []


@pytest.mark.spec("3.5", "L5")
def test_a_near_duplicate_waits_for_a_choice_and_each_choice_does_what_it_says(
    ada: Actor, book: Book
) -> None:
    words = "the nightly build of the payments service starts at two in the morning on host seven"
    first = ada.remember(words, citations=["ops.md:4"], reason="seen in the crontab")

    def again(cited: str) -> Any:
        kept = ada.remember(f"{words} again", citations=[cited], reason="asked ops")
        assert kept.held is not None
        assert (kept.outcome, kept.held.why, kept.held.items) == (
            "flagged",
            "near_duplicate",
            (first.item_id,),
        )
        assert "only the first: again" in kept.held.comparison
        assert kept.item_id not in [item.id for item in ada.memory.list()]  # held: nobody is told it
        return kept

    skipped = again("a.md:1")
    assert ada.memory.resolve(skipped, "skip").id == first.item_id
    merged = again("b.md:2")
    stands = ada.memory.resolve(merged, "merge")
    assert (stands.id, stands.citations, stands.reason) == (
        first.item_id,
        ("ops.md:4", "b.md:2"),
        "seen in the crontab; asked ops",
    )
    assert stands.body == words
    created = again("c.md:3")
    with pytest.raises(BadInput, match="rationale"):
        ada.memory.resolve(created, "create")
    assert ada.memory.resolve(created, "create", rationale="it runs twice").id == created.item_id
    assert len(ada.memory.list()) == 2
    with pytest.raises(Conflict, match="nothing to resolve"):
        ada.memory.resolve(created, "skip")
    with pytest.raises(BadInput, match="skip, merge, create"):
        ada.memory.resolve(ada.remember(f"{words} thrice"), "maybe")
    assert {item.status for item in book.memory.list(status=None)} == {"live", "dropped", "held"}


@pytest.mark.spec("3.3", "3.5")
def test_the_same_again_is_merged_and_only_another_origin_corroborates(book: Book, ada: Actor) -> None:
    first = ada.remember("Invoices are sent in euros.", shared=True, run_id="monday")
    ben = book.as_actor("ben")
    same = ada.remember("invoices are  sent in Euros.", run_id="tuesday")
    assert (same.outcome, same.item_id, same.reason) == (
        "merged",
        first.item_id,
        "it is remembered already, from the same origin",
    )
    other = ben.remember("Invoices are sent in euros.", run_id="wednesday")
    assert (other.outcome, other.item_id) == ("merged", first.item_id)
    again = ben.remember("Invoices are sent in euros.", run_id="thursday")
    assert again.outcome == "merged"
    kept = ada.memory.get(str(first.item_id))
    assert [(one.actor, one.run) for one in kept.corroborated] == [("ben", "wednesday")]
    assert len(book.memory.list()) == 1


@pytest.mark.spec("3.3", "L5")
def test_a_contradiction_is_a_dispute_that_only_a_keeper_of_memory_settles(book: Book, ada: Actor) -> None:
    old = ada.remember(key="db.port", value=5432, shared=True)
    ben, lee = book.as_actor("ben"), book.as_actor("lee", role="librarian")
    new = ben.remember(key="db.port", value=5433, shared=True)
    assert (new.outcome, new.held and new.held.why) == ("flagged", "dispute")
    assert "5432" in str(new.held)
    assert ada.memory.get(str(old.item_id)).disputed == (new.item_id,)  # the one in doubt says so
    assert [item.id for item in lee.memory.disputes()] == [new.item_id]
    assert texts(ben) == ["db.port: 5432"]  # nothing was silently resolved
    for who in (ada, ben):
        with pytest.raises(Denied, match="keep_memory"):
            who.memory.resolve(new, "new", rationale="mine")
    settled = lee.memory.resolve(new, "new", rationale="the server moved")
    assert (settled.id, settled.supersedes) == (new.item_id, (old.item_id,))
    before = lee.memory.get(str(old.item_id))
    assert (before.status, before.superseded_by, before.disputed) == ("superseded", new.item_id, ())
    assert lee.memory.disputes() == []
    third = ben.remember(key="db.port", value=6000, shared=True)
    assert lee.memory.resolve(third, "old").id == new.item_id
    fourth = ben.remember(key="db.port", value=7000, shared=True)
    lee.memory.resolve(fourth, "both", rationale="two servers")
    assert texts(lee, key="db.port") == ["db.port: 5433", "db.port: 7000"]


@pytest.mark.spec("3.3")
def test_facts_that_hold_at_other_times_do_not_contradict(ada: Actor) -> None:
    moved = datetime(2026, 6, 1, tzinfo=UTC)
    assert ada.remember(key="db.host", value="alpha", valid_until=moved).outcome == "stored"
    assert ada.remember(key="db.host", value="beta", valid_from=moved).outcome == "stored"
    spring, summer = datetime(2026, 4, 1, tzinfo=UTC), datetime(2026, 7, 1, tzinfo=UTC)
    assert texts(ada, key="db.host", valid_at=spring) == ["db.host: alpha"]
    assert texts(ada, key="db.host", valid_at=summer) == ["db.host: beta"]


NOW = datetime.now(UTC)
LAST_WEEK, YESTERDAY = NOW - timedelta(days=7), NOW - timedelta(days=1)
TOMORROW, NEXT_WEEK = NOW + timedelta(days=1), NOW + timedelta(days=7)
LIFT = "The lift in the north wing is out of order"


@pytest.mark.spec("L5", "3.3", "3.5")
@pytest.mark.parametrize("again", [LIFT, f"{LIFT} again"], ids=["the same", "nearly the same"])
@pytest.mark.parametrize(
    "time", [{"valid_until": YESTERDAY}, {"valid_from": TOMORROW}], ids=["over", "not yet"]
)
@pytest.mark.parametrize("author", ["ada", "ben"])
def test_what_does_not_hold_now_keeps_nothing_out_that_is_said_now(
    book: Book, ada: Actor, author: str, time: dict[str, Any], again: str
) -> None:
    other = ada.remember(LIFT, shared=True, **time)
    assert not ada.search("lift").results
    said = book.as_actor(author).remember(again, shared=True)
    assert said.outcome == "stored", said.reason
    assert [one.id for one in ada.search("lift").results] == [said.item_id]
    assert ada.memory.get(str(other.item_id)).corroborated == ()
    repeated = book.as_actor(author).remember(again, shared=True)
    assert (repeated.outcome, repeated.item_id) == ("merged", said.item_id)


@pytest.mark.spec("L5", "3.3", "3.5")
def test_a_fact_that_has_expired_contradicts_nothing_that_is_said_now(book: Book, ada: Actor) -> None:
    over = ada.remember(key="Entry fee", value=10, valid_until=YESTERDAY, shared=True)
    said = book.as_actor("ben").remember(key="entry.fee", value=12, shared=True)
    assert said.outcome == "stored", said.reason
    assert texts(ada, key="entry fee", valid_at=NOW + timedelta(hours=1)) == ["Entry fee: 12"]
    assert ada.memory.get(str(over.item_id)).disputed == ()
    assert ada.remember(key="entry fee", value=13, shared=True).held is not None, "what holds is disputed"
    assert book.memory.revise(str(said.item_id), value=14).value == 14
    with pytest.raises(Conflict, match="something else stands"):
        ada.memory.revise(str(over.item_id), valid_until=TOMORROW)


@pytest.mark.spec("L5", "3.3", "3.5")
def test_a_fact_of_the_repository_that_has_expired_is_no_more_specific_one(ada: Actor) -> None:
    why: dict[str, Any] = {"citations": ["ci.yml:3"], "reason": "builds", "category": "reference"}
    ada.memory.repository_fact(
        "Build", "The build needs Python and a C compiler", valid_until=YESTERDAY, **why
    )
    assert ada.memory.repository_fact("Build", "The build needs Python", **why).outcome == "stored"


@pytest.mark.spec("L5", "3.3", "3.5")
def test_facts_meet_if_there_is_a_time_that_both_speak_of(ada: Actor) -> None:
    ada.remember(key="fee", value=10, valid_from=LAST_WEEK, valid_until=YESTERDAY)
    earlier = ada.remember(key="fee", value=11, valid_until=YESTERDAY)
    assert earlier.held is not None
    assert earlier.held.why == "dispute"
    ada.remember(key="rent", value=10, valid_from=TOMORROW)
    assert ada.remember(key="rent", value=9, valid_until=TOMORROW).outcome == "stored"
    for_ever = ada.remember(key="rent", value=8)
    assert for_ever.held is not None
    assert len(for_ever.held.items) == 2


@pytest.mark.spec("L5", "3.3")
@pytest.mark.parametrize("author", ["ada", "ben"])
@pytest.mark.parametrize(
    ("known", "said", "left"),
    [
        ({"valid_until": TOMORROW}, {}, "valid_until"),
        ({"valid_until": TOMORROW}, {"valid_until": NEXT_WEEK}, "valid_until"),
        ({}, {"valid_until": TOMORROW}, "valid_until"),
        ({}, {"valid_from": TOMORROW, "valid_until": NEXT_WEEK}, "valid_from, valid_until"),
        ({"valid_from": LAST_WEEK}, {"valid_from": YESTERDAY}, "valid_from"),
        ({"valid_from": YESTERDAY}, {"valid_from": LAST_WEEK}, "valid_from"),
        ({"valid_from": LAST_WEEK}, {}, ""),
        ({"valid_until": TOMORROW}, {"valid_until": TOMORROW}, ""),
    ],
)
def test_a_merge_says_which_time_was_not_taken_over(
    book: Book,
    ada: Actor,
    author: str,
    known: dict[str, Any],
    said: dict[str, Any],
    left: str,
) -> None:
    first = ada.remember(LIFT, shared=True, **known)
    again = book.as_actor(author).remember(LIFT, shared=True, **said)
    assert (again.outcome, again.item_id) == ("merged", first.item_id)
    told = again.reason.partition("; not taken over: ")[2].partition(" (")[0]
    assert told == left, again.reason


@pytest.mark.spec("L5", "3.3")
@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.none() | st.integers(-3, 3), st.none() | st.integers(-3, 3)), min_size=2, max_size=4
    )
)
def test_whatever_is_said_holds_from_then_on_or_the_answer_says_what_was_left(
    spans: list[tuple[int | None, int | None]],
) -> None:
    with commonplace.open("memory:") as book:
        now = datetime.now(UTC)
        for begins, ends in spans:
            if begins is not None and ends is not None and begins >= ends:
                continue
            given = {"valid_from": begins, "valid_until": ends}
            time: dict[str, Any] = {
                name: now + timedelta(days=day) for name, day in given.items() if day is not None
            }
            kept = book.remember(LIFT, **time)
            assert kept.outcome in ("stored", "merged", "flagged")
            if kept.outcome == "merged":
                stands = book.memory.get(str(kept.item_id))
                wanted = None if ends is None else int(time["valid_until"].timestamp() * 1e6)
                assert stands.valid_until_us == wanted or "valid_until" in kept.reason
                starts = max(datetime.now(UTC), time.get("valid_from", now))
                if ends is None or ends > 0:
                    assert stands.valid(int(starts.timestamp() * 1e6))


@pytest.mark.spec("3.3", "L7")
def test_superseding_says_which_and_as_of_before_it_is_as_it_was(book: Book, ada: Actor) -> None:
    first = ada.remember(key="api.limit", value=100)
    then = book.head
    second = ada.remember(key="api.limit", value=200, supersedes=True)
    assert second.superseded == (first.item_id,)
    third = ada.remember(key="api.limit", value=300, supersedes=str(second.item_id))
    assert texts(ada, key="api.limit") == ["api.limit: 300"]
    assert texts(ada, key="api.limit", at=then) == ["api.limit: 100"]
    chain = [ada.memory.get(str(one.item_id)) for one in (first, second, third)]
    assert [one.superseded_by for one in chain] == [second.item_id, third.item_id, None]
    with pytest.raises(Conflict, match="superseded already"):
        ada.remember(key="api.limit", value=400, supersedes=str(first.item_id))


@pytest.mark.spec("3.3", "3.9", "L7")
def test_an_item_is_its_authors_own_until_it_is_shared(book: Book, ada: Actor) -> None:
    ben = book.as_actor("ben")
    mine = str(ada.remember("Ada prefers short names for variables.").item_id)
    assert texts(ben) == []
    with pytest.raises(NotFound):
        ben.memory.get(mine)
    before = book.head
    ada.memory.share(mine)
    assert texts(ben) == ["Ada prefers short names for variables."]
    assert texts(ben, at=before) == []
    shared = book.head
    ada.memory.unshare(mine)
    assert texts(ben) == texts(ben, at=shared) == []  # allowed then and not allowed now
    assert ben.remember("Ada prefers short names for variables.").outcome == "stored"  # not even a hint
    public = ada.remember("The office is closed on Fridays.", sensitivity="public")
    delicate = ada.remember("The offer is below market.", sensitivity="sensitive", shared=True)
    assert public.item_id in [item.id for item in ben.memory.list()]
    assert delicate.item_id not in [item.id for item in ben.memory.list()]
    book.access.grant("ben", ceiling="sensitive")
    assert delicate.item_id in [item.id for item in ben.memory.list()]
    assert ben.memory.list() == book.as_actor("ben").memory.list()
    assert {event.id for event in ben.events(kinds=("memory.item.created",))} >= {public.item_id}
    assert mine not in {event.id for event in ben.events()}


@pytest.mark.spec("3.9")
def test_without_the_tier_nothing_is_written_or_read_and_the_denial_is_on_record(
    book: Book, ada: Actor
) -> None:
    book.remember("The team ships on Tuesdays.")
    book.access.grant("ada", tiers={"long_term": "read"})
    with pytest.raises(Denied, match="long_term"):
        ada.remember("I wish to keep this.")
    assert len(ada.memory.list()) == 1
    book.access.grant("ada", tiers={"long_term": "none"})
    with pytest.raises(Denied):
        ada.memory.list()
    denied = [event.payload for event in book.events(kinds=("access.denied",))]
    assert [(one["actor"], one["act"], one["what"]) for one in denied] == [
        ("ada", "memory.write", "long_term"),
        ("ada", "memory.read", "long_term"),
    ]


@pytest.mark.spec("3.5", "2.7")
def test_a_secret_is_kept_out_of_sight_or_out_of_the_book_as_the_settings_say(book: Book, ada: Actor) -> None:
    kept = ada.remember(f"Deploy with the token {SECRET} of the release account", shared=True)
    assert (kept.outcome, kept.redacted) == ("stored", ("github",))
    item = ada.memory.get(str(kept.item_id))
    assert item.sensitivity == "sensitive"
    assert item.body == "Deploy with the token [REDACTED] of the release account"
    assert SECRET not in str(book.memory.list())
    book.memory.configure(secrets="mask")
    masked = ada.remember(f"Upload with {SECRET} to the mirror", sensitivity="public")
    assert SECRET not in str([event.payload for event in book.events() if event.id == masked.item_id])
    book.memory.configure(secrets="reject")
    assert ada.remember(f"The other token is {SECRET} here").outcome == "rejected"
    with pytest.raises(Denied):
        ada.memory.configure(secrets="label")
    with pytest.raises(BadInput, match="max_size_kb"):
        book.memory.configure(colour="red")


@pytest.mark.spec("3.5")
def test_what_is_told_elsewhere_is_kept_with_an_advice_and_refused_where_somebody_says_so(
    book: Book, ada: Actor
) -> None:
    told = "commit 4f2a9c1 merged branch feature/login into main yesterday"
    kept = ada.remember(told)
    assert kept.outcome == "stored"
    assert "git_history" in kept.advice
    assert ada.remember("Postgres listens on 5433").advice == ""
    book.memory.configure(exclusions="refuse")
    other = "commit 5a6b7c8 merged branch feature/export into main on Monday"
    refused = ada.remember(other)
    assert (refused.outcome, refused.advice) == ("rejected", "")
    assert "git_history" in refused.reason
    assert "override" in refused.reason
    assert ada.remember(other, override="the audit asks for it").outcome == "stored"
    lib = book.as_actor("lib", role="librarian")
    lib.memory.set_core("history", config={"exclusions": "off"})
    assert lib.remember("commit 9d8e7f6 merged branch fix/tax into main", core="history").outcome == "stored"


@pytest.mark.spec("3.5")
def test_the_memory_of_the_repository_takes_nothing_that_the_repository_tells(book: Book) -> None:
    def remembered(fact: str) -> str:
        return book.memory.repository_fact(
            "login", fact, citations=["src/login.py:3"], reason="so", category="project"
        ).outcome

    assert remembered("commit 4f2a9c1 merged branch feature/login into main.") == "rejected"
    assert (
        remembered("The login service must never log the whole request, because it holds passwords.")
        == "stored"
    )


@pytest.mark.spec("L9")
def test_what_memory_has_shown_is_no_new_evidence_when_it_comes_back(book: Book, ada: Actor) -> None:
    book.remember("The cache is flushed every night at three.")
    spoken = book.record(
        "agent.spoke", actor="ben", payload={"text": "the harbour freezes in January"}, run_id="r"
    )
    me = book.run(run_id="r").agent("ada")
    assert {one.id for one in me.search("cache harbour").results} == {book.memory.list()[0].id, spoken.id}
    events = book.head + 1  # the first write notes what was shown
    for _ in range(3):
        for told in ("The cache is flushed every night at three.", "The harbour freezes in January!"):
            answer = ada.remember(told, run_id="r")
            assert (answer.outcome, answer.item_id) == ("rejected", None)
            assert answer.reason.startswith("an echo")
    assert book.head == events
    elsewhere = ada.remember("The cache is flushed every night at three.", run_id="other")
    assert elsewhere.outcome == "merged"


@pytest.mark.spec("3.6", "L10")
def test_forgetting_takes_confirmation_leaves_a_tombstone_and_can_be_undone_until_erased(
    book: Book, ada: Actor
) -> None:
    ids = [
        str(ada.remember(f"The code of door {n} is written on its frame", tags=["doors"]).item_id)
        for n in range(3)
    ]
    other = ada.remember(key="colour", value="blue", provenance={"source_kind": "tool", "channel": "chat"})
    with pytest.raises(BadInput, match="FORGET"):
        ada.forget(ids[0])
    with pytest.raises(BadInput, match="say what to forget"):
        ada.forget(confirm="FORGET")
    with pytest.raises(NotFound):
        book.as_actor("ben").forget(ids[0], confirm="FORGET")
    assert ada.forget(tags=["doors"], dry_run=True).items == tuple(ids)
    assert len(ada.memory.list()) == 4
    ada.forget(ids[0], confirm="FORGET", reason="wrong")
    assert len(ada.memory.list()) == 3
    (stone,) = ada.memory.tombstones()
    assert (stone.id, stone.agent, stone.deleted_by, stone.reason, stone.erased) == (
        ids[0],
        "ada",
        "user",
        "wrong",
        False,
    )
    ada.memory.restore(ids[0])
    assert len(ada.memory.list()) == 4
    assert ada.memory.tombstones() == []
    assert set(ada.forget(tags=["doors"], erase=True, confirm="FORGET").erased) >= set(ids)
    assert texts(ada) == ["colour: blue"]
    assert {one.id for one in ada.memory.tombstones()} == set(ids)
    assert all(one.erased for one in ada.memory.tombstones())
    assert all(book.event(id).erased for id in ids)
    assert not any("frame" in str(book.event(event.id).payload) for event in book.events())
    with pytest.raises(NotFound):
        ada.memory.restore(ids[0])
    with pytest.raises(Erased):
        ada.remember("The code of door 0 is written on its frame", id=ids[0])
    assert ada.forget(provenance={"channel": "chat"}, confirm="FORGET").items == (other.item_id,)
    assert book.verify().ok


@pytest.mark.spec("3.3")
def test_what_is_not_known_of_an_origin_is_no_part_of_it(ada: Actor) -> None:
    origin: dict[str, Any] = {
        "source_kind": "tool",
        "channel": "chat",
        "thread": None,
        "refs": [],
        "metadata": {},
    }
    kept = ada.remember("The bell is broken.", provenance=origin)
    assert ada.memory.get(str(kept.item_id)).provenance == {"source_kind": "tool", "channel": "chat"}


@pytest.mark.spec("1.1", "3.3")
def test_an_item_keeps_its_session_and_tags_that_say_something(book: Book, ada: Actor) -> None:
    kept = ada.remember("The bell is broken.", session_id="monday", tags=["bell", " ", ""])
    assert book.event(str(kept.item_id)).session_id == "monday"
    assert ada.memory.get(str(kept.item_id)).tags == ("bell",)


@pytest.mark.spec("3.6", "L5")
def test_only_what_matches_everything_that_is_said_is_forgotten(ada: Actor) -> None:
    chat = {"source_kind": "tool", "channel": "chat"}
    ada.remember(key="door.code", value="four", tags=["doors"], provenance=chat)
    ada.remember(key="door.colour", value="blue", tags=["doors"])
    ada.remember("The bell is broken.", tags=["bell"], provenance=chat)
    assert ada.forget(key="door.code", tags=["bell"], confirm="FORGET").items == ()
    assert ada.forget(tags=["doors"], provenance={"channel": "mail"}, confirm="FORGET").items == ()
    assert len(ada.memory.list()) == 3
    ada.forget(key="door.code", confirm="FORGET")
    assert texts(ada) == ["door.colour: blue", "The bell is broken."]
    ada.forget(tags=["bell"], provenance={"channel": "chat"}, confirm="FORGET")
    assert texts(ada) == ["door.colour: blue"]


@pytest.mark.spec("3.3", "3.6", "L5")
def test_a_contradiction_that_is_forgotten_leaves_nothing_in_doubt(book: Book, ada: Actor) -> None:
    old = str(ada.remember(key="db.port", value=5432, shared=True).item_id)
    ben = book.as_actor("ben")
    new = str(ben.remember(key="db.port", value=5433, shared=True).item_id)
    assert ada.memory.get(old).disputed == (new,)
    ben.forget(new, confirm="FORGET", reason="I misread it")
    assert (ada.memory.get(old).disputed, book.memory.get(old).disputed) == ((), ())
    assert book.memory.disputes() == []


@pytest.mark.spec("L10", "3.6")
def test_erasing_reaches_what_was_derived_and_leaves_what_was_superseded_as_it_was(
    book: Book, ada: Actor
) -> None:
    first = str(ada.remember(key="codename", value="heron").item_id)
    second = str(ada.remember(key="codename", value="kingfisher", supersedes=True).item_id)
    derived = str(ada.remember("Birds are a theme of the project names", parents=[second]).item_id)
    gone = ada.forget(second, erase=True, confirm="FORGET")
    assert set(gone.erased) >= {second, derived}
    assert gone.derived == (derived,)
    assert (
        ada.memory.get(first).status == "superseded"
    )  # its successor is gone, and it does not come back to life
    before = [(row.id, row.status) for row in book.memory.list(status=None)]
    book.rebuild()
    assert [(row.id, row.status) for row in book.memory.list(status=None)] == before
    assert "kingfisher" not in str([event.payload for event in book.events()])


@pytest.mark.spec("L4", "3.5")
def test_the_same_call_again_answers_as_the_first_time(book: Book, ada: Actor) -> None:
    first = ada.remember("Tea is served at four.", id="tea")
    again = ada.remember("Tea is served at four.", id="tea")
    assert (first.item_id, again.item_id, again.outcome) == ("tea", "tea", "stored")
    with pytest.raises(Conflict):
        ada.remember("Tea is served at five.", id="tea")
    with ThreadPoolExecutor(8) as pool:
        kept = list(pool.map(lambda _: ada.remember("Coffee is served at nine."), range(8)))
    assert sorted({one.outcome for one in kept}) == ["merged", "stored"]
    assert len({one.item_id for one in kept}) == 1
    assert len(book.memory.list()) == 2


@pytest.mark.spec("3.3", "2.9")
def test_an_item_is_revised_with_its_history_and_a_stale_reader_is_told(book: Book, ada: Actor) -> None:
    id = str(ada.remember("The meeting is in room 4.", title="meeting").item_id)
    read = ada.memory.get(id).position
    revised = ada.memory.revise(id, text="The meeting is in room 5.", tags=["rooms"], why="it moved")
    assert (revised.body, revised.title, revised.tags) == ("The meeting is in room 5.", "meeting", ("rooms",))
    assert ada.memory.get(id, at=read).body == "The meeting is in room 4."
    with pytest.raises(Conflict, match="read it again"):
        ada.memory.revise(id, text="The meeting is off.", if_position=read)
    with pytest.raises(BadInput, match="no key"):
        ada.memory.revise(id, key="k")
    with pytest.raises(NotFound):
        book.as_actor("ben").memory.revise(id, text="mine")
    assert ada.remember("The meeting is in room 5.", title="meeting").item_id == id
    secret = ada.memory.revise(id, text=f"Ask with {SECRET} for the room")
    assert SECRET not in str(secret)
    assert secret.sensitivity == "sensitive"


@pytest.mark.spec("3.10")
@pytest.mark.parametrize("engine_name", ["postgres", "redis"], indirect=True)
def test_two_books_in_one_server_never_see_each_other(book_url: str) -> None:
    with commonplace.open(book_url) as one, commonplace.open(f"{book_url}-2") as two:
        kept = one.remember("The first team ships on Mondays.")
        assert two.remember("The first team ships on Mondays.").outcome == "stored"
        assert len(one.memory.list()) == len(two.memory.list()) == 1
        with pytest.raises(NotFound):
            two.memory.get(str(kept.item_id))


@given(
    st.lists(st.sampled_from("abcdefghijklmnopqrstuvwxyz0123"), min_size=1, max_size=40, unique=True),
    st.data(),
)
@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
def test_alike_texts_always_meet_under_a_mark(letters: list[str], data: st.DataObject) -> None:
    """Sets of words that are alike share a mark, in a place that is looked at."""
    left = data.draw(st.sets(st.sampled_from(letters)))
    more = data.draw(st.sets(st.sampled_from("ABCDEFGH"), max_size=5))
    a, b = frozenset(letters), frozenset({*letters} - left | more)
    if b and jaccard(a, b) >= 0.85:
        theirs = {mark.word: mark for mark in marks(b)}
        meeting = [
            (size, last)
            for mark in marks(a)
            for size, last in alike_places(mark)
            if mark.word in theirs and size == len(b) and theirs[mark.word].place <= last
        ]
        assert meeting


def test_the_words_of_an_item_are_its_subject_and_what_it_says() -> None:
    assert words_of({"kind": "fact", "key": "db.port", "value": 5433}) == {"dbport", "5433"}
    assert words_of({"kind": "note", "title": "a|b", "body": "c"}) == {"a", "b", "c"}


@pytest.mark.spec("3.9")
def test_every_write_to_memory_is_in_the_audit_without_its_content(book: Book, ada: Actor) -> None:
    kept = ada.remember("The heron nests by the mill.", run_id="r1")
    ada.remember("The heron came back.", kind="episode", occurred_at=datetime(2026, 3, 1, tzinfo=UTC))
    ada.documents.log("a heron was seen")
    ada.forget(str(kept.item_id), confirm="FORGET")
    written = [one for one in book.access.audit() if one.event_type == "memory.write"]
    assert [
        (one.agent_id, one.details["tier"], one.details["act"], one.details["run_id"]) for one in written
    ] == [
        ("ada", "long_term", "created", "r1"),
        ("ada", "episodic", "created", None),
        ("ada", "working", "logged", None),
        ("ada", "long_term", "forgotten", None),
    ]
    assert "heron" not in str(written)


@pytest.mark.spec("L5", "3.5", "7.1")
def test_the_answer_says_in_one_sentence_what_happened_and_what_settles_it(book: Book, ada: Actor) -> None:
    stored = ada.remember("The stock room is locked at six each evening", shared=True)
    assert (stored.id, str(stored)) == (stored.item_id, f"stored as {stored.id}")
    merged = ada.remember("the stock room is locked at six, each evening")
    assert str(merged) == f"merged with {stored.id}: it is remembered already, from the same origin"
    near = ada.remember("The stock room is locked at six each each evening!! evenings", shared=True)
    assert str(near) == (
        f"flagged and held as {near.id} because it is nearly the same as {stored.id}; settle it with "
        f"book.memory.resolve('{near.id}', CHOICE, rationale=WHY), where CHOICE is one of skip, merge, create; "
        f"or, for it to take the place of what is there, remember it again with supersedes='{stored.id}'"
    )
    book.memory.resolve(str(near.id), "skip")
    limit = ada.remember(key="room.limit", value=12, shared=True)
    dispute = ada.remember(key="room.limit", value=14, shared=True)
    assert str(dispute) == (
        f"flagged and held as {dispute.id} because it contradicts {limit.id}; a librarian or person settles it with "
        f"book.memory.resolve('{dispute.id}', CHOICE, rationale=WHY), where CHOICE is one of new, old, both; "
        f"or, for it to take the place of what is there, remember it again with supersedes='{limit.id}'"
    )
    book.memory.resolve(str(dispute.id), "new", rationale="counted again")
    newest = ada.remember(key="room.limit", value=15, supersedes=True)
    assert str(newest) == f"stored as {newest.id} in place of {dispute.id}, shared, as what it replaces was"
    replacing = book.as_actor("ben").remember("No room is locked", supersedes=str(stored.id), shared=True)
    assert f"because it would take the place of {stored.id}, which is not its author's own" in str(replacing)
    advised = ada.remember("commit 4f2a9c1 merged branch feature/login into main")
    assert str(advised) == f"stored as {advised.id}; advice: {advised.advice}"
    assert str(ada.remember(f"sign in with {SECRET}, says the manual")).endswith(
        "; it holds a secret (github), which nobody is shown"
    )
    ben = book.as_actor("ben")
    ben.search("stock room")
    echo = ben.remember("The stock room is locked at six each evening")
    assert (echo.id, str(echo)) == (None, f"rejected: {echo.reason}")


@pytest.mark.spec("3.5")
def test_a_correction_that_is_held_says_how_it_takes_the_place_of_what_it_corrects(ada: Actor) -> None:
    old = ada.remember("Backups of the main database are kept for 35 days")
    new = "Backups of the main database are not kept for 35 days"
    held = ada.remember(new)
    assert f"remember it again with supersedes='{old.id}'" in str(held)
    kept = ada.remember(new, supersedes=str(old.id))
    assert str(kept) == f"stored as {kept.id} in place of {old.id} and {held.id}"
    assert [item.text for item in ada.memory.list()] == [new]
    assert ada.memory.held() == []


@pytest.mark.spec("3.3", "L5")
@pytest.mark.parametrize("by_id", [False, True])
def test_an_author_that_was_held_corrects_its_own_fact_by_saying_so(
    book: Book, ada: Actor, by_id: bool
) -> None:
    old = ada.remember(key="queue.kind", value="RabbitMQ", shared=True)
    held = ada.remember(key="queue.kind", value="Kafka", shared=True)
    assert (held.outcome, held.reason) == (
        "flagged",
        f"it contradicts {old.id}: a person or librarian settles it; or remember it again with supersedes=True to "
        "correct your own fact",
    )
    assert ada.remember(key="queue.kind", value="Kafka", shared=True).reason == (
        f"the same is held already (it contradicts {old.id}): a person or librarian settles it; or remember it again "
        "with supersedes=True to correct your own fact"
    )
    new = ada.remember(
        key="queue.kind", value="Kafka", shared=True, supersedes=[str(old.id)] if by_id else True
    )
    assert (new.outcome, new.superseded) == ("stored", (old.id, held.id))
    assert texts(book.as_actor("ben")) == ["queue.kind: Kafka"]
    current = ada.memory.get(str(new.id))
    assert (current.supersedes, current.disputed) == ((old.id, held.id), ())
    assert (book.memory.held(), len(book.inbox())) == ([], 0)
    assert [change.act for change in ada.memory.history(str(held.id))] == ["created", "superseded"]
    assert ada.memory.history(str(held.id))[-1].other == new.id
    ada.forget(str(held.id), confirm="FORGET")
    assert ada.memory.restore(str(held.id)).status == "superseded", "it does not wait again"
    again = ada.remember(key="queue.kind", value="Kafka", shared=True, supersedes=True)
    assert (again.outcome, again.id) == ("merged", new.id)


@pytest.mark.spec("3.3", "3.9", "L5")
def test_what_somebody_else_has_waiting_neither_stops_a_correction_nor_ends_with_it(
    book: Book, ada: Actor
) -> None:
    ben, cem = book.as_actor("ben"), book.as_actor("cem")
    old = ada.remember(key="queue.kind", value="RabbitMQ", shared=True)
    theirs = ben.remember(key="queue.kind", value="Kafka", shared=True)
    told = cem.remember(key="queue.kind", value="Kafka", shared=True, supersedes=str(old.id))
    assert (told.outcome, told.id) == ("flagged", theirs.id)
    assert told.reason == (
        f"the same is held already (it contradicts {old.id}): a person or librarian settles it"
    )
    assert "resolve it with old, or with new or both" in book.remember(key="queue.kind", value="Kafka").reason
    new = ada.remember(key="queue.kind", value="Kafka", shared=True, supersedes=True)
    assert (new.outcome, new.superseded) == ("stored", (old.id,))
    assert [item.id for item in book.memory.held()] == [theirs.id]
    assert ada.memory.get(str(new.id)).disputed == ()


@pytest.mark.spec("3.3", "3.5", "L5")
def test_a_correction_of_what_is_not_ones_own_waits_in_place_of_what_waited_before(
    book: Book, ada: Actor
) -> None:
    lee = book.as_actor("lee", role="librarian")
    known = "Backups of the main database are kept for 35 days"
    text = "Backups of the main database are not kept for 35 days"
    old = lee.remember(known, shared=True)
    held = ada.remember(text, shared=True)
    assert "resolve it with skip, merge, or create and a rationale; or remember it again" in held.reason
    again = ada.remember(text, shared=True, supersedes=str(old.id))
    assert (again.outcome, again.held and again.held.why) == ("flagged", "dispute")
    assert again.superseded == (held.id,)
    assert f"flagged and held as {again.id} in place of {held.id} because it would take the place" in str(
        again
    )
    assert texts(ada) == [known]
    assert [item.id for item in book.memory.held()] == [again.id]
    same = ada.remember(text, shared=True, supersedes=str(old.id))
    assert (same.outcome, same.id, same.superseded) == ("flagged", again.id, ())
    settled = lee.memory.resolve(again, "new", rationale="asked ops")
    assert settled.supersedes == (held.id, old.id)
    assert texts(ada) == [text]
    assert book.memory.held() == []
    every = book.memory.list(status=None)
    book.rebuild()
    assert book.memory.list(status=None) == every


@pytest.mark.spec("3.4", "3.3")
def test_what_waits_as_a_proposal_is_decided_whatever_its_author_says_it_replaces(
    book: Book, ada: Actor
) -> None:
    book.memory.set_core("ops", name="Operations")
    entry = book.remember("Deploys need one approval", core="ops")
    proposed = ada.remember("Every release waits for two colleagues", core="ops")
    assert proposed.reason == "it is a proposal: a librarian or person decides"
    again = ada.remember("Every release waits for two colleagues", core="ops", supersedes=str(entry.id))
    assert (again.outcome, again.id) == ("flagged", proposed.id)
    assert [item.id for item in book.inbox().proposals] == [proposed.id]


@pytest.mark.spec("3.3")
def test_what_is_shared_because_of_what_it_replaces_says_so(book: Book, ada: Actor) -> None:
    old = ada.remember("The stock room is locked at six", shared=True)
    mine = ada.remember("Deliveries come on Mondays")
    new = ada.remember("Nobody locks the rooms any more", supersedes=str(old.id))
    assert str(new) == f"stored as {new.id} in place of {old.id}, shared, as what it replaces was"
    assert [item.id for item in book.as_actor("ben").memory.list()] == [new.id]
    told = ada.remember("All doors stay open", supersedes=str(new.id), shared=True)
    own = ada.remember("Parcels arrive each day", supersedes=str(mine.id))
    for kept in (told, own):
        assert "as what it replaces was" not in str(kept), "its author said so, or it is not shared"


@pytest.mark.spec("3.3", "L5")
def test_superseding_a_disputed_fact_keeps_the_mark_until_somebody_settles_it(book: Book, ada: Actor) -> None:
    ben, cem = book.as_actor("ben"), book.as_actor("cem")
    ada.remember(key="room.limit", value=60, shared=True)
    rival = str(ben.remember(key="room.limit", value=90, shared=True).id)
    other = str(cem.remember(key="room.limit", value=95, shared=True).id)
    newer = ada.remember(key="room.limit", value=70, supersedes=True)
    assert newer.outcome == "stored"
    assert ada.memory.get(str(newer.id)).disputed == (rival, other)
    assert "disputed=2" in ada.digest("room limit").text
    waiting = {item.id: item for item in book.memory.disputes()}
    assert f"room.limit | 70 ({newer.id})" in waiting[rival].held.comparison  # type: ignore[union-attr]
    assert book.memory.resolve(rival, "new", rationale="counted").disputed == (
        other,
    )  # cem still says otherwise
    assert book.memory.resolve(other, "old").disputed == ()
    assert [(item.value, item.disputed) for item in book.memory.list(key="room.limit")] == [(90, ())]
    assert book.memory.disputes() == []


@pytest.mark.spec("3.3", "L5")
def test_a_mark_goes_when_what_disputes_it_goes_and_comes_back_with_it(book: Book, ada: Actor) -> None:
    ben = book.as_actor("ben")
    ada.remember(key="room.limit", value=60, shared=True)
    rival = str(ben.remember(key="room.limit", value=90, shared=True).id)
    newer = str(ada.remember(key="room.limit", value=70, supersedes=True).id)
    ben.forget(rival, confirm="FORGET")
    assert ada.memory.get(newer).disputed == ()
    ben.memory.restore(rival)
    assert ada.memory.get(newer).disputed == (rival,)
    ben.remember("The limit of the room is nobody's business", supersedes=rival, shared=True)
    assert ada.memory.get(newer).disputed == ()
    again = str(ben.remember(key="room.limit", value=95, shared=True).id)
    assert ada.memory.get(newer).disputed == (again,)
    book.erase(again, reason="not ours to say")
    assert (book.memory.get(newer).disputed, book.memory.disputes()) == ((), [])
    assert book.verify().ok


@pytest.mark.spec("3.3", "L5")
def test_a_rival_that_one_may_not_see_leaves_its_mark_unseen(book: Book, ada: Actor) -> None:
    ben = book.as_actor("ben")
    ada.remember(key="room.limit", value=60, shared=True)
    rival = str(ben.remember(key="room.limit", value=90).id)
    newer = str(ada.remember(key="room.limit", value=70, supersedes=True).id)
    assert (ada.memory.get(newer).disputed, ben.memory.get(newer).disputed) == ((), (rival,))
    assert rival not in str([event.payload for event in ada.events()])


@pytest.mark.spec("3.6", "3.11", "L5")
@pytest.mark.parametrize(
    ("wrong", "known"),
    [
        ({"provenance": {"chanel": "chat"}}, "source_kind, channel, thread, session, message, tool_call"),
        ({"provenance": {"source_kind": "rumour"}}, "user, operator, tool, system, import"),
        ({"provenance": {"channel": ""}}, "give a value"),
        ({"provenance": "chat"}, "source_kind, channel"),
        ({"channel": "chat"}, "key, tags"),
        ({"tag": "doors"}, "key, tags"),
    ],
)
def test_a_filter_that_there_is_not_is_an_error_that_names_those_there_are(
    ada: Actor, wrong: dict[str, Any], known: str
) -> None:
    ada.remember("The bell is broken.", tags=["doors"], provenance={"channel": "chat"})
    with pytest.raises(BadInput, match=known):
        ada.memory.list(**wrong)
    with pytest.raises(BadInput, match=known):
        ada.forget(**wrong, confirm="FORGET")
    with pytest.raises(BadInput, match="user, feedback, project, reference"):
        ada.memory.list(category="misc")
    assert len(ada.memory.list(provenance={"channel": "chat"})) == 1


@pytest.mark.spec("3.3", "7.1")
def test_the_text_of_an_item_is_what_it_says_whatever_its_kind(ada: Actor) -> None:
    then = datetime(2026, 3, 1, tzinfo=UTC)
    kept = {
        "db.port: 5433": ada.remember(key="db.port", value=5433),
        'db.hosts: ["a", "b"]': ada.remember(key="db.hosts", value=["a", "b"]),
        "set up: Start the server.": ada.remember("Start the server.", kind="procedure", title="set up"),
        "Tea is at four.": ada.remember("Tea is at four."),
        "The lift stood still.": ada.remember("The lift stood still.", kind="episode", occurred_at=then),
    }
    items = {text: ada.memory.get(str(one.id)) for text, one in kept.items()}
    assert [item.text for item in items.values()] == [str(item) for item in items.values()] == list(items)
    of_its_kind = [(item.value, item.body, item.summary) for item in items.values()]
    assert of_its_kind == [
        (5433, None, None),
        (["a", "b"], None, None),
        (None, "Start the server.", None),
        (None, "Tea is at four.", None),
        (None, None, "The lift stood still."),
    ]


@pytest.mark.spec("7.1")
def test_an_item_tells_its_times_as_datetimes_and_prints_as_a_line(book: Book, ada: Actor) -> None:
    begins = datetime(2026, 3, 1, tzinfo=UTC)
    ends = begins + timedelta(days=3_000)
    result = ada.remember(key="db.port", value=5433, valid_from=begins, valid_until=ends, observed_at=begins)
    item = ada.memory.get(result)
    assert (item.valid_from, item.valid_until, item.observed_at) == (begins, ends, begins)
    assert (item.occurred_at, item.verified_at) == (None, None)
    assert item.recorded_at == item.updated_at <= datetime.now(UTC)
    assert str(item) == "db.port: 5433"
    assert repr(item) == f"<live fact {item.id}: db.port: 5433>"
    assert repr(result) == f"<stored {item.id}>"
    revised = ada.memory.revise(item, value=5434)
    assert revised.updated_at >= item.updated_at
    assert revised.recorded_at == item.recorded_at
    assert book.memory.verify(revised).verified_at is not None
    ada.forget(revised, confirm="FORGET", reason="moved")
    (stone,) = ada.memory.tombstones()
    assert stone.deleted_at >= revised.updated_at
    assert str(stone).startswith(f"{item.id} of ada, forgotten by user at 20")


@pytest.mark.spec("7.1")
def test_a_verb_that_takes_an_id_takes_the_item_or_the_answer_too(book: Book, ada: Actor) -> None:
    first, second = ada.remember("The roof is made of slate"), ada.remember("The cellar floods every spring")
    assert ada.memory.link(first, "related", ada.memory.get(second)).links == (("related", second.id),)
    third = ada.remember("A pump stands in the cellar", links=[("about", second)], supersedes=first)
    assert third.superseded == (first.id,)
    assert [step.item.id for step in ada.memory.traverse(third, relations=["about"])] == [second.id]
    for verb in (ada.memory.share, ada.memory.unshare, ada.memory.archive, ada.memory.restore):
        assert verb(third).id == third.id
    core = book.memory.set_core("tools")
    assert book.memory.core(core) == core
    assert str(core) == "core tools (project, team)"
    assert set(ada.forget([second, third], confirm="FORGET").items) == {second.id, third.id}
    book.memory.configure(secrets="reject")
    rejected = ada.remember(f"the token is {SECRET}")
    with pytest.raises(BadInput, match="nothing was stored, so it has no id: it holds a secret"):
        ada.memory.get(rejected)


@pytest.mark.spec("L5", "3.5")
def test_what_is_merged_says_that_it_superseded_nothing(ada: Actor) -> None:
    old = ada.remember("Cats sleep twelve hours a day")
    ada.remember("Dogs bark loudly at night")
    again = ada.remember("Dogs bark loudly at night", supersedes=old)
    assert again.outcome == "merged"
    assert f"{old.id} was not superseded (forget or archive it)" in again.reason
    assert ada.memory.get(old).status == "live"
