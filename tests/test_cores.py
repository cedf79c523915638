"""Memory cores: settings, proposals, verification, links and where they lead. On every engine."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from commonplace import Book
from commonplace.errors import BadInput, Denied, NotFound


@pytest.mark.spec("3.4")
def test_a_librarian_keeps_a_core_and_others_propose(book: Book) -> None:
    lee, ada = book.as_actor("lee", role="librarian"), book.as_actor("ada", role="developer")
    core = lee.memory.set_core(
        "auth-jwt", name="JWT auth", type="technology", tags=["auth"], config={"min_confidence": 0.5}
    )
    assert (core.owner, core.config.auto_dedupe, core.config.min_confidence) == ("lee", True, 0.5)
    with pytest.raises(Denied, match="keep_memory"):
        ada.memory.set_core("mine", name="Mine")
    with pytest.raises(BadInput, match="technology"):
        lee.memory.set_core("auth-jwt", type="religion")
    assert (
        lee.memory.set_core("auth-jwt", description="tokens").config.min_confidence == 0.5
    )  # the rest stays
    kept = lee.remember("Tokens expire after an hour.", core="auth-jwt", type="convention", confidence=0.9)
    assert kept.outcome == "stored"
    low = ada.remember("Tokens may never expire, somebody said.", core="auth-jwt", confidence=0.3)
    assert (low.outcome, "asks for 0.5" in low.reason) == ("rejected", True)
    proposed = ada.remember("Refresh tokens are rotated.", core="auth-jwt", type="lesson", confidence=0.8)
    assert (proposed.outcome, proposed.held and proposed.held.why) == ("flagged", "proposal")
    assert [item.text for item in ada.memory.list(core="auth-jwt")] == ["Tokens expire after an hour."]
    assert [item.id for item in lee.memory.held("proposal")] == [proposed.item_id]
    with pytest.raises(Denied):
        ada.memory.resolve(proposed, "create", rationale="I like it")
    lee.memory.resolve(proposed, "create")
    assert len(ada.memory.list(core="auth-jwt")) == 2
    verified = lee.memory.verify(str(proposed.item_id), why="read the code")
    assert verified.verified_by == "lee"
    assert verified.verified_at is not None
    with pytest.raises(Denied):
        ada.memory.verify(str(kept.item_id))


@pytest.mark.spec("3.4", "3.10")
def test_a_private_core_is_its_owners_alone(book: Book) -> None:
    lee, ada = book.as_actor("lee", role="librarian"), book.as_actor("ada")
    lee.memory.set_core("diary", type="personal", visibility="private")
    lee.memory.set_core("tools", name="Tools")
    lee.remember("I keep forgetting the flags of tar.", core="diary")
    assert [core.id for core in ada.memory.cores()] == ["tools"]
    assert (
        [core.id for core in lee.memory.cores()]
        == [core.id for core in book.memory.cores()]
        == ["diary", "tools"]
    )
    assert ada.memory.list(core="diary") == []
    with pytest.raises(NotFound) as hidden:
        ada.memory.core("diary")
    with pytest.raises(NotFound) as missing:
        ada.memory.core("no-such")
    assert str(hidden.value).replace("diary", "") == str(missing.value).replace("no-such", "")


@pytest.mark.spec("3.4")
def test_entries_are_linked_by_hand_or_by_their_tags_and_links_can_be_followed(book: Book) -> None:
    lee = book.as_actor("lee", role="librarian")
    lee.memory.set_core("patterns", type="pattern", config={"auto_link": True})
    first = str(lee.remember("Retry with back-off.", core="patterns", tags=["network"]).item_id)
    second = str(
        lee.remember("Give every call a timeout.", core="patterns", tags=["network", "time"]).item_id
    )
    third = str(lee.remember("Clocks of two machines differ.", core="patterns", tags=["time"]).item_id)
    apart = str(lee.remember("Name things for what they are.", core="patterns").item_id)
    assert lee.memory.get(second).links == (("related", first),)
    lee.memory.link(third, "depends_on", apart)
    ways = [(step.depth, step.relation, step.item.id) for step in lee.memory.traverse(first, depth=3)]
    assert ways == [(1, "^related", second), (2, "^related", third), (3, "depends_on", apart)]
    assert [step.item.id for step in lee.memory.traverse(third, relations=["depends_on"])] == [apart]
    assert [step.item.id for step in lee.memory.traverse(first, depth=3, relations=["related"])] == [
        second,
        third,
    ]
    newer = str(lee.remember("Retry with back-off and jitter.", core="patterns", supersedes=first).item_id)
    assert (1, "^supersedes", newer) in [(s.depth, s.relation, s.item.id) for s in lee.memory.traverse(first)]
    hidden = lee.remember("My own view of it.", links=[("related", apart)])
    ada = book.as_actor("ada")
    assert hidden.item_id not in [step.item.id for step in ada.memory.traverse(apart, depth=2)]
    for wrong in (0, 11, True):
        with pytest.raises(BadInput):
            lee.memory.traverse(first, depth=wrong)
    with pytest.raises(NotFound):
        lee.memory.link(first, "related", "no-such-item")
    relations = [
        ("cites", third),
        ("explains", second),
        ("follows", apart),
        ("blocks", second),
        ("adds", third),
    ]
    for relation, to in relations:
        lee.memory.link(newer, relation, to)
    assert lee.memory.get(newer).links == tuple(sorted(relations))  # the same order, whatever came first
    steps = [(step.relation, step.item.id) for step in lee.memory.traverse(newer, depth=1)]
    assert steps == sorted(steps)


@pytest.mark.spec("3.4", "3.5")
def test_a_core_that_does_not_dedupe_takes_what_is_nearly_the_same(book: Book) -> None:
    lee = book.as_actor("lee", role="librarian")
    lee.memory.set_core("raw", config={"auto_dedupe": False})
    words = "the service answers within two hundred milliseconds on an ordinary day in the week"
    assert lee.remember(words, core="raw").outcome == "stored"
    assert lee.remember(f"{words} always", core="raw").outcome == "stored"
    assert lee.remember(words).outcome == "stored"  # outside the core it is new


@pytest.mark.spec("3.4")
def test_a_librarian_is_told_what_could_be_done_and_nothing_is_changed(book: Book) -> None:
    lee = book.as_actor("lee", role="librarian")
    lee.memory.set_core("ops", name="Operations", config={"auto_dedupe": False, "archive_after_days": 90})
    said = {
        name: str(lee.remember(text, core="ops", tags=tags).item_id)
        for name, text, tags in (
            ("one", "Deploys wait for a green pipeline and two approvals.", ["deploy", "pipeline"]),
            ("two", "Deploys wait for a green pipeline and two approvals always.", ["deploy", "pipeline"]),
            ("three", "Rotate certificates before the summer.", ["Deploys", "certificate"]),
            ("four", "A deploy needs the certificate of the gateway.", []),
        )
    }
    old = lee.remember("The office closes at six.", valid_until=datetime(2026, 1, 1, tzinfo=UTC))
    before = book.head
    found = lee.memory.suggestions()
    told = {(one.act, one.items): one for one in found}
    assert [one.act for one in found] == sorted(
        (one.act for one in found), key=["merge", "link", "refresh", "tag"].index
    )
    assert ("merge", (said["one"], said["two"])) in told
    assert told["link", (said["one"], said["two"])].why == "both are about deploy, pipeline"
    assert "over" in told["refresh", (str(old.item_id),)].why
    assert told["tag", (said["three"],)].tags == ("certificate", "deploy")
    assert told["tag", (said["four"],)].tags == ("certificate", "deploy")
    later = lee.memory.suggestions("ops", now=datetime.now(UTC) + timedelta(days=91))
    assert {one.items[0] for one in later if one.act == "refresh"} == {*said.values()}
    lee.memory.link(said["one"], "related", said["two"])
    lee.memory.verify(said["one"])
    assert ("link", (said["one"], said["two"])) not in {
        (one.act, one.items) for one in lee.memory.suggestions("ops")
    }
    assert [event.kind for event in book.events(before)].count("memory.item.updated") == 2
    assert book.as_actor("ada", role="developer").memory.suggestions("ops")
    with pytest.raises(NotFound, match="no core"):
        lee.memory.suggestions("nowhere")
