"""What is taken away is gone from every read, now and as of before; what is hidden shapes nothing that is shown."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

import commonplace
from commonplace import Blob, Book, Conflict, Denied, NotFound
from commonplace.run import Run
from commonplace.state.policy import Policy, Start
from commonplace.state.requests import Open
from commonplace.work.prompting import WorkFocus
from tests.serving import ledger_below

WORD = "quartzfjord"


def said(book: Book, actor: str, **how: Any) -> str:
    """All that an actor reads of the ledger, as text."""
    return "\n".join(repr(event) for event in book.as_actor(actor).events(**how))


@pytest.mark.spec("L5", "L7", "L8")
class TestTakingSomethingBack:
    def test_an_unshared_item_takes_every_event_about_it_along(self, book: Book) -> None:
        ada = book.as_actor("ada")
        kept = ada.remember(f"the port is {WORD}", shared=True)
        ada.memory.revise(kept.item_id or "", text=f"the port was {WORD}")
        before = book.head
        assert WORD in said(book, "bob")
        ada.memory.unshare(kept.item_id or "", why="it was meant for me")
        assert WORD not in said(book, "bob")
        assert WORD not in said(book, "bob", at=before)
        assert WORD in said(book, "ada")

    def test_the_event_that_takes_it_back_holds_ids_only(self, book: Book) -> None:
        ada = book.as_actor("ada")
        kept = ada.remember(f"the port is {WORD}", shared=True)
        ada.memory.unshare(kept.item_id or "")
        *_, last = book.events(kinds=["memory.item.updated"])
        assert WORD not in str(last.payload)
        assert last.labels.get("audience") != "team"

    def test_an_unshared_item_still_meets_its_twin(self, book: Book) -> None:
        ada = book.as_actor("ada")
        kept = ada.remember(f"the port is {WORD}", shared=True)
        ada.memory.unshare(kept.item_id or "")
        assert ada.remember(f"the port is {WORD}").item_id == kept.item_id
        assert book.as_actor("bob").remember(f"the port is {WORD}").outcome == "stored"

    def test_a_core_that_becomes_private_takes_its_entries_and_its_description_along(
        self, book: Book
    ) -> None:
        lib = book.as_actor("lib", role="librarian")
        lib.memory.set_core("handbook", description=f"all about {WORD}")
        lib.remember(f"the port is {WORD}", core="handbook")
        before = book.head
        lib.memory.set_core("handbook", visibility="private")
        for moment in (None, before):
            assert WORD not in said(book, "bob", at=moment)
            assert book.as_actor("bob").memory.cores(moment) == []
        assert [core.id for core in lib.memory.cores()] == ["handbook"]

    def test_a_forgotten_item_is_its_authors_and_the_owners_then_as_now(self, book: Book) -> None:
        ada, bob = book.as_actor("ada"), book.as_actor("bob")
        kept = ada.remember(f"the port is {WORD}", shared=True)
        before = book.head
        ada.forget(kept.item_id, confirm="FORGET")
        for moment in (None, before):
            assert WORD not in said(book, "bob", at=moment)
            assert bob.memory.list(status=None, at=moment) == []
            assert bob.search(WORD, at=moment).results == ()
            with pytest.raises(NotFound):
                bob.event(kept.item_id or "", at=moment)
        assert [one.id for one in ada.memory.list(at=before)] == [kept.item_id]
        assert [one.id for one in book.search(WORD, at=before).results] == [kept.item_id]

    def test_what_no_longer_stands_follows_its_labels_too(self, book: Book) -> None:
        ada, bob = book.as_actor("ada"), book.as_actor("bob")
        old = ada.remember(f"the port is {WORD}", shared=True)
        before = book.head
        ada.remember("the port is another one", supersedes=old.item_id or "", shared=True)
        assert [one.id for one in bob.search(WORD, at=before).results] == [old.item_id]
        ada.memory.unshare(old.item_id or "")
        assert bob.search(WORD, at=before).results == ()

    def test_a_log_or_document_that_is_made_sensitive_is_not_read_as_of_before(self, book: Book) -> None:
        ada, bob = book.as_actor("ada"), book.as_actor("bob")
        logged = ada.documents.log(f"the port is {WORD}")
        noted = ada.documents.add_to_task("Auth", "decisions", f"the port is {WORD}")
        before = book.head
        for event in (logged, noted):
            book.access.relabel(event.id, sensitivity="sensitive", reason="a customer's")
        for moment in (None, before):
            assert bob.documents.days(moment) == []
            assert bob.documents.list(moment) == []
            assert bob.documents.task("Auth", moment) == {}
            assert ada.documents.list(moment) == ["plans/artifacts/auth/decisions.md"]


@pytest.mark.spec("4.8", "L7")
class TestWhatWasToldAndHasChanged:
    @pytest.mark.parametrize(
        "take_away",
        [
            lambda book, id: book.as_actor("ada").memory.unshare(id),
            lambda book, id: book.access.relabel(id, sensitivity="sensitive", reason="a customer's"),
            lambda book, id: book.access.grant("bob", ceiling="public"),
            lambda book, id: book.access.grant("bob", tiers={"long_term": "none"}),
            lambda book, id: book.as_actor("ada").forget(id, confirm="FORGET"),
        ],
        ids=["unshare", "relabel", "ceiling", "tier", "forget"],
    )
    def test_the_line_is_not_quoted_once_its_reader_may_not_read_it(self, book: Book, take_away: Any) -> None:
        ada, bob = book.as_actor("ada", role="orchestrator"), book.as_actor("bob")
        work = ada.work("w1", name="ports")
        work.add_task("Open the port", id="t1", assigned_to="bob")
        bob.work("w1").claim()
        id = ada.remember(f"the open port is {WORD}", shared=True).item_id or ""
        assert WORD in bob.digest("which port is open").text
        ada.memory.revise(id, text="the open port is another one")
        assert WORD in bob.receipts.changed_facts()[0].payload["text"]
        assert WORD in WorkFocus(bob.work("w1")).nudges(changes=True)[0].text
        take_away(book, id)
        assert WORD not in str([event.payload for event in bob.receipts.changed_facts()])
        assert WORD not in said(book, "bob")
        if bob.works.list():
            assert WORD not in str(bob.work("w1").records("nudge"))
            assert WORD not in str(bob.work("w1").read_messages())
        assert WORD not in bob.prompt("go on")


@pytest.mark.spec("L5", "5.11", "5.5")
class TestHiddenThingsShapeNothing:
    def test_hidden_discoveries_neither_confirm_words_nor_crowd_out_others(self, book: Book) -> None:
        """Two works that differ in 100 discoveries which bob may not see give him the same radar and context."""
        answers = []
        for hidden in (0, 100):
            name = f"w{hidden}"
            work = book.work(name, name="ports", by="ada")
            work.add_task("Measure the depth of the harbour port", id=f"{name}-open")
            work.add_task("Measure how deep the harbour port is", id=f"{name}-same")
            found = work.discover("the harbour port is nine metres deep", by="ada", affects=[f"{name}-open"])
            for n in range(hidden):
                secret = f"harbour port {n} opens with code {WORD}"
                work.discover(secret, by="ada", sensitivity="sensitive", affects=[f"{name}-open"])
                work.decide(question="open?", choice=secret, by="ada", sensitivity="sensitive")
            bob = book.as_actor("bob").work(name)
            radar = [(one.text, one.score, one.why) for one in bob.task(f"{name}-open").radar()]
            context = bob.context_for(f"{name}-open")
            text = context.text.replace(name, "w").replace(found.id, "found")
            answers.append((radar, text, len(context.left_out)))
        assert answers[0] == answers[1]
        assert len(answers[0][0]) == 2

    @pytest.mark.spec("2.6", "3.9")
    def test_a_ceiling_of_public_holds_for_works(self, book: Book) -> None:
        book.access.grant("eve", ceiling="public")
        work = book.work("w1", name="ports", goal=WORD)
        work.add_task(f"Open {WORD}", id="t1")
        eve = book.as_actor("eve")
        assert eve.works.list() == []
        for read in (
            lambda: eve.work("w1"),
            lambda: eve.works.containing("t1"),
            lambda: eve.prompt("go on", work="w1"),
        ):
            with pytest.raises(NotFound):
                read()
        with pytest.raises(commonplace.BadInput, match="ceiling"):
            work.task("t1").assign("eve")

    def test_rights_given_later_do_not_open_the_past_of_works(self, book: Book) -> None:
        book.access.grant("eve", ceiling="public")
        book.work("w1", name="ports")
        before = book.head
        book.access.grant("eve", ceiling="private")
        assert [work.id for work in book.as_actor("eve").works.list()] == ["w1"]
        assert book.as_actor("eve").works.list(at=before) == []
        with pytest.raises(NotFound):
            book.as_actor("eve").work("w1").tasks(at=before)

    def test_parents_do_not_tell_whether_a_hidden_event_exists(self, book: Book) -> None:
        ada, bob = book.as_actor("ada"), book.as_actor("bob")
        ada.record("agent.thought", payload={"text": WORD}, id="hidden", labels={"sensitivity": "sensitive"})
        ada.record("agent.spoke", payload={"text": "hello"}, id="seen")
        for id in ("hidden", "missing"):
            with pytest.raises(NotFound) as error:
                bob.record("agent.spoke", payload={"text": "so"}, parents=[id])
            assert str(error.value).replace(id, "X") == (
                "there is no event 'X' to derive from: leave it out of parents"
            )
            with pytest.raises(NotFound):
                bob.remember("the port is open", parents=[id])
        both = bob.record_all(
            [
                {"kind": "agent.spoke", "payload": {"text": "one"}, "id": "one", "parents": ["seen"]},
                {"kind": "agent.spoke", "payload": {"text": "two"}, "parents": ["one"]},
            ]
        )
        assert both[1].parents == ("one",)

    def test_an_id_that_is_taken_says_so_and_nothing_more(self, book: Book) -> None:
        ada, bob = book.as_actor("ada"), book.as_actor("bob")
        told = set()
        for id, labels in (("a", {}), ("b", {"sensitivity": "sensitive"}), ("c", {})):
            ada.record("agent.thought", payload={"text": WORD}, id=id, labels=labels)
        book.erase("c", reason="a customer's")
        for id in "abc":
            with pytest.raises(Conflict) as error:
                bob.record("agent.spoke", payload={"text": "so"}, id=id)
            told.add(str(error.value).replace(f"'{id}'", "X"))
            with pytest.raises(Conflict):
                bob.remember("the port is open", id=id)
        assert len(told) == 1

    def test_an_agent_does_not_record_high_trust(self, book: Book) -> None:
        with pytest.raises(Denied, match="trust"):
            book.as_actor("ada").record("agent.spoke", payload={}, labels={"trust": "high"})
        person = book.as_actor("pat", role="person")
        assert person.record("agent.spoke", payload={}, labels={"trust": "high"}).labels["trust"] == "high"

    def test_a_reversed_decision_does_not_name_a_hidden_one(self, book: Book) -> None:
        work = book.work("w1", name="ports")
        old = work.decide(question="Which port?", choice="5433", by="ada")
        new = work.decide(
            question="Which port?", choice=WORD, by="ada", reverses=old.id, sensitivity="sensitive"
        )
        bob = book.as_actor("bob").work("w1")
        assert [one.reversed_by for one in bob.records("decision")] == [""]
        with pytest.raises(Conflict) as error:
            bob.decide(question="Which port?", choice="1", reverses=old.id)
        assert new.id not in str(error.value)
        assert new.id in [one.reversed_by for one in work.records("decision")]

    def test_a_held_twin_does_not_name_hidden_items(self, book: Book) -> None:
        ada, bob = book.as_actor("ada"), book.as_actor("bob")
        known = ada.remember(key="api.limit", value=60, shared=True)
        held = book.as_actor("eve").remember(key="api.limit", value=90, shared=True)
        assert held.held is not None
        ada.memory.unshare(known.item_id or "")
        again = bob.remember(key="api.limit", value=90)
        assert again.item_id == held.item_id
        assert again.held is not None
        assert again.held.items == ()


def with_a_pin(book: Book, id: str) -> Run:
    """A run in which nobody but its holder sees a field called pin."""
    ledger_below(book).submit("state.open", Open(id, "owner", Policy(never_share=("pin",)), Start(), {}))
    return book.run(run_id=id)


@pytest.mark.spec("2.7")
class TestGuessingASecret:
    def test_a_guess_looks_the_same_whether_it_is_right_or_wrong(self, book: Book) -> None:
        """Another agent's secret is taken out of what those say who could know it, and of nobody's guesses."""
        shown = []
        for n, secret in enumerate(("4711-0815", "something else")):
            run = with_a_pin(book, f"r{n}")
            start = f"{run.id}@{book.head}"
            with run.agent("ada") as ada:
                ada.write({"pin": secret, "confidence": 0.9})
            bob = book.as_actor("bob")
            event = bob.record("agent.spoke", payload={"text": "is it 4711-0815?"}, run_id=run.id)
            with run.agent("bob") as turn:
                turn.write({"guess": "4711-0815", "confidence": 0.9})
            seen = [
                bob.event(event.id).payload,
                [one.content for one in bob.search("4711-0815").results if one.id == event.id],
                [one.content for one in book.search("4711-0815").results if one.id == event.id],
                [one.after for one in bob.runs.diff(start, run.id, redacted=True) if "guess" in one.path],
            ]
            shown.append(seen)
        assert shown[0] == shown[1]
        assert "4711-0815" in str(shown[0][0])

    def test_what_its_holder_says_is_taken_out_everywhere(self, book: Book) -> None:
        run = with_a_pin(book, "r1")
        with run.agent("ada") as ada:
            ada.write({"pin": "4711-0815", "confidence": 0.9})
        book.as_actor("ada").record("agent.spoke", payload={"text": "it is 4711-0815"}, run_id="r1")
        assert "4711-0815" not in said(book, "bob")
        assert "4711-0815" not in str(book.search("it is").results)


@pytest.mark.spec("L10", "1.4", "L5")
class TestBlobs:
    def test_an_export_holds_no_trace_of_what_was_taken_away(self, book: Book, tmp_path: Path) -> None:
        """What a digest showed lies in a blob: an actor's export leaves it out."""
        ada, bob = book.as_actor("ada"), book.as_actor("bob")
        id = ada.remember(f"the port is {WORD}", shared=True).item_id or ""
        assert WORD in bob.digest("which port").text
        ada.memory.unshare(id)
        bob.export(tmp_path / "bob.jsonl")
        lines = [json.loads(line) for line in (tmp_path / "bob.jsonl").read_text().splitlines()]
        blobs = [b64decode(line["data"]) for line in lines if "data" in line]
        assert not any(WORD.encode() in blob for blob in blobs)

    def test_nobody_refers_to_a_blob_that_they_may_not_see(self, book: Book) -> None:
        ada, bob = book.as_actor("ada"), book.as_actor("bob")
        data = f"the port is {WORD}".encode()
        hidden = ada.record("agent.thought", payload={"file": Blob(data)}).payload["file"]
        missing = {"$blob": "0" * 64, "size": 3}
        for reference in (hidden, missing):
            with pytest.raises(NotFound, match="there is no blob"):
                bob.record("agent.spoke", payload={"file": reference})
            with pytest.raises(commonplace.BadInput, match="holds no blob"):
                bob.remember(key="file", value=reference)
        assert ada.record("agent.spoke", payload={"file": hidden}).parents

    def test_what_refers_to_a_blob_is_erased_with_it(self, book: Book) -> None:
        ada, bob = book.as_actor("ada"), book.as_actor("bob")
        said = ada.record("agent.spoke", payload={"file": Blob(WORD.encode())})
        referring = bob.record("agent.spoke", payload={"see": said.payload["file"]})
        book.erase(said.id, reason="a customer's")
        assert book.event(referring.id).erased
        with pytest.raises(NotFound):
            book.blob(said.payload["file"]["$blob"])
