"""Whose eyes see what of a work: nobody is shown, told or can act on what it may not see, on every engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import commonplace
from commonplace import Book, Conflict, NotFound, Work

SECRET = "the token vault opens with a paper key"


@pytest.fixture
def book(book_url: str) -> Iterator[Book]:
    with commonplace.open(book_url) as opened:
        for name in ("d1", "d2", "m2"):
            opened.as_actor(name, role="developer")
        yield opened


@pytest.fixture
def work(book: Book) -> Work:
    work = book.work(name="auth", goal="Add tokens", id="w")
    work.add_task("Build the token vault", id="t")
    return work


def seen_by(book: Book, actor: str) -> Work:
    return book.as_actor(actor).work(id="w")


# a context is made for its reader


@pytest.mark.spec("5.4")
@pytest.mark.parametrize("through", ["owner", "agent"])
def test_a_context_tells_the_nudges_that_it_shows_and_the_others_wait_on(
    book: Book, work: Work, through: str
) -> None:
    short = work.nudge("short", target="d2", priority="high")
    long = work.nudge("long " * 200, target="d2")
    claim = (work if through == "owner" else seen_by(book, "d2")).claim("d2")
    assert claim is not None
    tiny = claim.context(max_chars=40)
    assert not tiny.nudges
    first = claim.context(max_chars=400)
    assert [one.id for one in first.nudges] == [short.id]
    assert long.id in dict(first.left_out)
    assert len(first.text) <= 400
    assert [one.id for one in claim.context().nudges] == [long.id]
    assert claim.context().nudges == ()
    assert claim.nudges() == []
    work.acknowledge(long, "d2")


@pytest.mark.spec("5.4")
def test_a_context_that_the_owner_asks_for_an_agent_is_made_for_the_agents_eyes(
    book: Book, work: Work
) -> None:
    book.as_actor("d1").remember("the token vault code of d1 is kept at home")
    work.discover(SECRET, affects=["t"], sensitivity="sensitive", by="d1")
    work.discover("the token vault is built already", affects=["t"], sensitivity="sensitive", by="d1")
    book.remember("Ada wants vault tokens rotated every hour", shared=True)
    mine = work.context_for("t")
    assert SECRET in mine.text
    assert "kept at home" in mine.text
    assert "every hour" in mine.text
    claim = work.claim("d2")
    assert claim is not None
    found = claim.context()
    assert "every hour" in found.text
    assert SECRET not in found.text
    assert "kept at home" not in found.text
    assert "built already" not in found.text
    assert not any("built already" in one.text for one in claim.radar())
    texts = list[str]()
    claim.release()
    work.worker("d2", lambda one: texts.append(one.context().text))
    assert texts == [found.text]


@pytest.mark.spec("5.4")
def test_what_a_context_remembers_is_told_and_a_change_of_it_becomes_a_nudge(book: Book, work: Work) -> None:
    kept = book.remember("Ada wants vault tokens rotated every hour", shared=True)
    claim = work.claim("d2")
    assert claim is not None
    assert kept.item_id is not None
    assert kept.item_id in claim.context().memory
    assert claim.context().nudges == ()
    book.forget(kept.item_id, confirm="FORGET", reason="every day now")
    (told,) = claim.context().nudges
    assert told.premise is not None
    assert kept.item_id in told.text
    assert claim.context().nudges == ()


# nudges of others


@pytest.mark.spec("5.5")
def test_a_nudge_is_seen_by_its_sender_its_target_whoever_leads_and_the_owner(book: Book, work: Work) -> None:
    work.claim("d1")
    private = work.nudge("only for d1", target="d1")
    lead = work.nudge("only for the lead", target="orchestrator")
    everybody = work.nudge("for all", target="all")
    other = seen_by(book, "m2")
    assert [one.id for one in other.records("nudge")] == [everybody.id]
    assert [one.id for one in other.context_for("t").nudges] == [everybody.id]
    assert [one.id for one in seen_by(book, "d1").context_for("t").nudges] == [private.id, everybody.id]
    assert [one.id for one in work.context_for("t").nudges] == [private.id, everybody.id]
    book.as_actor("chief", role="orchestrator")
    chief = seen_by(book, "chief")
    assert lead.id not in [one.id for one in chief.records("nudge")]
    chief.lead()
    assert [one.id for one in chief.records("nudge")] == [lead.id, everybody.id]
    assert len(work.records("nudge")) == 3


# what is hidden is not counted, and was not seen before either


@pytest.mark.spec("4.3", "L5")
def test_who_reads_what_was_said_of_a_task_is_not_told_whether_its_agent_is_new(
    book: Book, work: Work
) -> None:
    work.add_task("Paint the mast", assigned_to="zoe")
    (event,) = [one for one in book.events(kinds=["task.added"]) if one.payload.get("joins") == "zoe"]
    shown = book.as_actor("ada").event(event.id)
    assert shown.payload["work"] == work.id
    assert "joins" not in shown.payload


@pytest.mark.spec("5.3")
def test_contributions_leave_out_what_the_reader_may_not_see(book: Book, work: Work) -> None:
    open_ = work.discover("the vault is cold", by="d1")
    work.discover(SECRET, sensitivity="sensitive", by="d1")
    work.decide(question="Which key?", choice="paper", sensitivity="sensitive", by="d1")
    work.decide(question="Which lock?", choice="brass", sensitivity="sensitive", by="d3")
    (mine,) = seen_by(book, "m2").contributions()
    assert (mine.agent, mine.discoveries, mine.decisions) == ("d1", (open_.id,), ())
    assert mine.first_us == mine.last_us
    assert [len(one.decisions) for one in work.contributions()] == [1, 1]
    assert len(seen_by(book, "d1").contributions()[0].discoveries) == 2


@pytest.mark.spec("5.3")
def test_what_has_become_sensitive_is_not_shown_as_of_before_either(book: Book, work: Work) -> None:
    found = work.discover(SECRET, by="d1")
    before = book.head
    assert [one.id for one in seen_by(book, "m2").records("discovery", at=before)] == [found.id]
    book.access.relabel(found.id, sensitivity="sensitive", reason="it tells too much")
    assert seen_by(book, "m2").records("discovery") == []
    assert seen_by(book, "m2").records("discovery", at=before) == []
    assert [one.id for one in work.records("discovery", at=before)] == [found.id]


@pytest.mark.spec("5.1")
def test_an_id_of_a_hidden_work_is_refused_in_the_same_words_whatever_it_is_called(book: Book) -> None:
    book.work(name="hidden", goal="g", id="p", members=["d1"]).add_task("secret", id="pt")
    chief = book.as_actor("chief", role="orchestrator")
    told = set()
    for name, goal in (("hidden", "g"), ("hidden", ""), ("other", "g")):
        with pytest.raises(Conflict) as refused:
            chief.work(id="p", name=name, goal=goal)
        told.add(str(refused.value))
    assert len(told) == 1
    assert "cannot be used here" in told.pop()
    own = chief.work(name="own", goal="g")
    for title in ("secret", "other"):
        with pytest.raises(Conflict, match="cannot be used here"):
            own.add_task(title, id="pt")
    assert own.tasks() == []


# acting on what is hidden


@pytest.mark.spec("5.3")
def test_nobody_acts_on_a_decision_that_it_may_not_see(book: Book, work: Work) -> None:
    hidden = work.decide(question="Which key?", choice="paper", sensitivity="sensitive", by="d1")
    relabelled = work.decide(question="Which lock?", choice="brass", by="d1")
    book.access.relabel(relabelled.id, sensitivity="sensitive", reason="it tells too much")
    book.as_actor("kim", role="person")
    book.access.grant("kim", ceiling="private")
    position = book.head
    for decision in (hidden.id, relabelled.id):
        with pytest.raises(NotFound) as refused:
            seen_by(book, "m2").decide(question="Which?", choice="steel", reverses=decision)
        with pytest.raises(NotFound) as missing:
            seen_by(book, "m2").decide(question="Which?", choice="steel", reverses="nothing")
        assert str(refused.value).replace(decision, "nothing") == str(missing.value)
        with pytest.raises(NotFound):
            seen_by(book, "kim").approvals.grant(decision)
        with pytest.raises(NotFound):
            seen_by(book, "m2").approvals.request("Do it", decision=decision)
    assert book.head == position
    assert (
        seen_by(book, "d1").decide(question="Which?", choice="steel", reverses=hidden).reverses == hidden.id
    )
