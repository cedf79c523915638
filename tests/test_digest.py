"""What a prompt is given of memory: budgets, order, labels, receipts and what becomes of them. On every engine."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import commonplace
from commonplace import Book
from commonplace.errors import BadInput, Denied, Erased, NotFound


def team(book: Book) -> dict[str, str]:
    """What a team keeps about its database, by a short name."""
    ada, ben = book.as_actor("ada"), book.as_actor("ben")
    kept = {
        "port": ada.remember(key="db.port", value=5433, confidence=0.9, shared=True),
        "host": ada.remember(key="db.host", value="harbour-1", shared=True, tags=["infra"]),
        "note": ben.remember(
            "The database is moved at night, when nobody uses it", title="moving the database", shared=True,
            provenance={"source_kind": "user", "channel": "chat", "thread": "t-1", "refs": ["a", "b"]},
        ),
        "howto": ada.remember(
            "To set up the database, create the roles first and the tables after that", kind="procedure", shared=True,
        ),
        "episode": ada.remember(
            "The database was down for an hour", kind="episode", shared=True,
            occurred_at=datetime(2026, 3, 1, 9, tzinfo=UTC),
        ),
        "own": ben.remember("I find the database frightening"),
        "secret": ada.remember("The database of the auditors is in the cellar", sensitivity="sensitive", shared=True),
    }  # fmt: skip
    assert all(one.outcome == "stored" for one in kept.values()), kept
    return {name: one.item_id or "" for name, one in kept.items()}


@pytest.mark.spec("4.5")
def test_a_digest_holds_what_is_remembered_about_a_task_each_line_attributed(book: Book) -> None:
    ids = team(book)
    digest = book.as_actor("ada").digest("set up the database")
    lines = digest.text.splitlines()
    assert lines[0] == "Memory digest:"
    assert lines[1].startswith("<memory ")
    assert lines[-1] == f"</memory {lines[1].split()[1].rstrip('>')}>"
    body = dict(zip(digest.item_ids, lines[2:-1], strict=True))
    assert set(digest.item_ids[:3]) == {ids["note"], ids["howto"], ids["episode"]}
    assert set(digest.item_ids[3:]) == {ids["host"], ids["port"]}, "what is only near comes last"
    assert body[ids["note"]] == (
        f"- [note] {ids['note']} (private) title=moving the database — The database is moved at night, when nobody "
        "uses it (prov=user channel=chat thread=t-1 refs=2)"
    )
    assert body[ids["episode"]].startswith(
        f"- [episode] {ids['episode']} (private) occurred_at=2026-03-01T09:00:00"
    )
    assert body[ids["howto"]].endswith("after that (prov=ada)")
    assert (ids["secret"], "it is sensitive, which is not allowed here") in digest.omitted
    assert ids["own"] not in digest.text
    assert "frightening" not in digest.text
    assert digest.sensitivity == "private"


@pytest.mark.spec("4.5")
def test_pinned_facts_come_first_then_tags_then_what_was_found(book: Book) -> None:
    ids = team(book)
    ada = book.as_actor("ada")
    book.memory.configure(v1={"structured": {"fact_keys": ["db.host", "db.port"], "tags": ["infra"]}})
    digest = ada.digest("set up the database")
    assert digest.item_ids[:2] == (ids["host"], ids["port"])
    assert f"- [fact] {ids['port']} (private) key=db.port value=5433 conf=0.90 (prov=ada)" in digest.text
    assert digest.why[ids["port"]] == "key"
    assert digest.why[ids["howto"]].startswith("hybrid (")
    newer = ada.remember(key="db.port", value=5434, supersedes=ids["port"], shared=True)
    assert ada.digest("").item_ids == (ids["host"], newer.item_id)


@pytest.mark.spec("4.5")
def test_a_digest_finds_by_meaning_unless_that_is_switched_off(book: Book) -> None:
    ada = book.as_actor("ada")
    kept = ada.remember("Cats like to sleep on warm keyboards")
    asked = "kitten naps on a laptop"
    digest = ada.digest(asked)
    assert digest.item_ids == (kept.item_id,)
    assert digest.why[kept.item_id or ""].startswith("hybrid")
    by_words = ada.digest(asked, rules={"semantic": {"enabled": False}})
    assert by_words.item_ids == ()
    assert by_words.text == "Memory digest: nothing that is remembered matches."
    by_meaning = ada.digest(asked, rules={"keyword": {"enabled": False}})
    assert by_meaning.why[kept.item_id or ""].startswith("semantic")


@pytest.mark.spec("4.5")
def test_budgets_are_strict_and_what_does_not_fit_is_told(book: Book) -> None:
    ada = book.as_actor("ada")
    for number in range(9):
        ada.remember(
            f"The harbour has {number} cranes in dock {number} " + f"and {number} sheds beside it " * 12
        )
    digest = ada.digest("harbour cranes", max_items=3)
    assert len(digest.item_ids) == 3
    assert [why for _, why in digest.omitted] == ["over the budget of 3 items"] * 6
    assert [why for _, why in ada.digest("harbour cranes").omitted][-1] == "over the budget of 4 notes"
    small = ada.digest("harbour cranes", max_chars=600)
    assert len(small.text) <= 600
    assert small.item_ids
    cut = [why for id, why in small.omitted if id in small.item_ids]
    assert cut
    assert cut[0].startswith("cut to ")
    assert cut[0].endswith("over the budget of 600 characters")
    tokens = ada.digest("harbour cranes", max_tokens=120)
    assert len(tokens.text) <= 480
    assert tokens.item_ids
    words = ada.digest("harbour cranes", max_tokens=40, count_tokens=lambda text: len(text.split()))
    assert len(words.text.split()) <= 40
    assert book.receipt(words.receipt_id or "").replay() == words.text
    assert ada.digest("harbour cranes", max_chars=20).text == ""
    none = ada.digest("harbour cranes", max_items=0)
    assert none.text == "Memory digest: what matches is left out, or shown elsewhere."
    with pytest.raises(BadInput, match="max_items"):
        ada.digest("harbour", rules={"budgets": {"total": {"max_items": -1}}})


@pytest.mark.spec("4.5", "4.2", "L5")
@pytest.mark.parametrize("barred", ["expired", "sensitive"])
def test_what_may_not_be_shown_takes_nobody_s_place(book: Book, barred: str) -> None:
    over = datetime.now(UTC) - timedelta(hours=1)
    for number in range(70):
        book.remember(
            f"The crane {number} of the harbour is red",
            shared=True,
            valid_until=over if barred == "expired" else None,
            sensitivity="sensitive" if barred == "sensitive" else None,
        )
    kept = book.remember(
        "Somebody has oiled a crane beside the long wall, before the storm came and the gates were shut",
        shared=True,
    ).item_id
    for number in range(30):
        book.remember(f"Mill {number} grinds corn", shared=True)
    query = "the crane of the harbour"
    digest = book.digest(query)
    assert digest.item_ids[0] == kept
    assert len(digest.omitted) >= 70
    prompt = book.prompt(query)
    assert str(kept) in prompt.parts["long_term"].splitlines()[1], (
        "it was found, so it comes before what is newer"
    )
    assert book.receipt(digest.receipt_id or "").replay() == digest.text


@pytest.mark.spec("4.5", "4.2", "L5")
def test_what_was_superseded_is_counted_as_search_counts_it(book: Book) -> None:
    old = book.remember("The crane stands on the old pier", shared=True).item_id or ""
    book.remember("The crane stands on the new pier", shared=True, supersedes=old)
    told = {"1 superseded": "another item has taken the place"}
    assert {one.what: one.why for one in book.search("crane pier").left_out} == told
    assert {one.what: one.why for one in book.digest("crane pier").left_out} == told
    assert dict(book.prompt("crane pier").left_out) == told
    assert book.digest("").left_out == ()


@pytest.mark.spec("4.5", "L6")
def test_the_same_request_gives_the_same_bytes_again_and_in_another_process(book_url: str) -> None:
    with commonplace.open(book_url) as book:
        team(book)
        once = book.as_actor("ada").digest("set up the database", rules={"semantic": {"enabled": True}})
        again = book.as_actor("ada").digest("set up the database", rules={"semantic": {"enabled": True}})
        assert once.text == again.text
        assert once.item_ids == again.item_ids
    if book_url == "memory:":
        return
    code = (
        "import sys, commonplace\n"
        "with commonplace.open(sys.argv[1]) as book:\n"
        "    found = book.as_actor('ada').digest('set up the database', rules={'semantic': {'enabled': True}})\n"
        "    sys.stdout.buffer.write(found.text.encode())"
    )
    ran = subprocess.run([sys.executable, "-c", code, book_url], capture_output=True, check=True)
    assert ran.stdout.decode() == once.text


@pytest.mark.spec("4.7")
def test_a_receipt_tells_how_a_digest_came_about_and_gives_it_again(book: Book) -> None:
    ids = team(book)
    ada = book.as_actor("ada")
    digest = ada.digest("set up the database", max_items=2)
    receipt = ada.receipts.get(digest.receipt_id or "")
    assert receipt.request["query"] == "set up the database"
    assert [(id, line) for id, _, line in receipt.included] == [
        (id, n) for n, id in enumerate(digest.item_ids, 1)
    ]
    assert receipt.as_of == digest.as_of
    assert "Snowball" in receipt.index
    assert receipt.omitted["over the budget of 2 items"] >= 1
    assert receipt.omitted["it is sensitive, which is not allowed here"] == 1
    assert receipt.replay() == digest.text == book.receipt(receipt.id).replay()
    ada.remember("A new note about the database set up, written after the receipt", shared=True)
    assert ada.receipts.get(receipt.id).replay() == digest.text
    with pytest.raises(NotFound):
        book.as_actor("ben").receipts.get(receipt.id)
    assert [one.id for one in book.as_actor("ben").receipts.list()] == []
    found = ada.search("set up the database", max_results=50)
    assert receipt.id not in {one.id for one in found.results}
    assert ids["secret"] not in str(book.event(receipt.id).payload["included"])


@pytest.mark.spec("4.7", "L10")
def test_erasing_an_item_takes_the_trace_and_the_receipt_names_it(book: Book) -> None:
    ids = team(book)
    ada = book.as_actor("ada")
    digest = ada.digest("set up the database")
    ada.forget(ids["howto"], erase=True, confirm="FORGET")
    receipt = ada.receipts.get(digest.receipt_id or "")
    assert receipt.trace is None
    assert len(receipt.included) == 5
    with pytest.raises(Erased, match=ids["howto"]):
        receipt.replay()
    kept = "create the roles first"
    assert not any(kept in str(one.payload) for one in book.events())


@pytest.mark.spec("4.7")
def test_receipts_can_be_switched_off_or_sampled(book: Book) -> None:
    team(book)
    ada = book.as_actor("ada")
    book.memory.configure(receipts=0)
    assert ada.digest("set up the database").receipt_id is None
    book.memory.configure(receipts=0.5)
    written = [ada.digest(f"the database {n}").receipt_id is not None for n in range(40)]
    assert 5 < sum(written) < 35


@pytest.mark.spec("4.7", "L9")
def test_what_a_digest_has_shown_is_no_new_evidence(book: Book) -> None:
    ids = team(book)
    cem = book.as_actor("cem")
    digest = cem.digest("moving the database")
    assert ids["note"] in digest.item_ids
    again = cem.remember("The database is moved at night, when nobody uses it")
    assert again.outcome == "rejected"
    assert "echo" in again.reason
    derived = cem.remember("We move things when it is dark", parents=[digest.receipt_id or ""])
    assert derived.outcome == "rejected"
    assert "echo" in derived.reason


@pytest.mark.spec("4.9")
def test_memory_is_left_out_when_somebody_asks_for_it(book: Book) -> None:
    team(book)
    ada = book.as_actor("ada")
    said = "Memory digest: memory was left out of this turn, as asked."
    for digest in (
        ada.digest("set up the database", ignore_memory=True),
        ada.digest("Ignore memory. Set up the database"),
        ada.digest("set up the database\nfresh context, please"),
    ):
        assert digest.text == said
        assert digest.item_ids == ()
        assert ada.receipts.get(digest.receipt_id or "").ignored
    assert ada.digest("set up the database").item_ids
    assert ada.digest("ignore memory leaks in the database").item_ids
    assert not ada.search("database", ignore_memory=True).results
    with book.run(run_id="r1") as run:
        with run.agent("dev") as me:
            prompt = me.prompt("Don't use memory. Set up the database")
            assert said in prompt
            assert "Long-term" not in prompt
            assert prompt.receipt_id
            answer = me.search("database")
            assert not answer.results
            assert answer.left_out[0].what == "memory"
            with pytest.raises(commonplace.NotEnabled):
                me.memory.list()
            assert not me.digest("database").item_ids
        with run.agent("dev") as me:
            assert me.digest("database").item_ids
            assert me.search("database").results


@pytest.mark.spec("4.6", "4.5")
def test_a_prompt_has_the_long_term_block_and_the_digest_leaves_out_what_that_shows(book: Book) -> None:
    ids = team(book)
    with book.run(run_id="r1") as run, run.agent("dev") as me:
        prompt = me.prompt("set up the database")
        assert prompt.startswith("## Task\nset up the database\n\n")
        assert (
            f"\n## Long-term Memory\n- [procedure] {ids['howto']} (private) — To set up the database"
            in prompt
        )
        assert f"- [fact] {ids['host']} (private) key=db.host value=harbour-1 (prov=ada)\n" in prompt
        assert ids["howto"] not in dict(prompt.left_out)
        assert "Memory digest" not in prompt
        plain = me.prompt("set up the database", parts=["task", "digest"])
        assert "Long-term" not in plain
        assert ids["howto"] in plain
        assert set(prompt.parts) >= {"task", "inputs", "long_term", "digest"}
        small = me.prompt("set up the database", max_chars=700)
        assert len(small) <= 700
        assert len(me.prompt("set up the database", max_tokens=200)) <= 800
    assert book.as_actor("ben").prompt("set up the database").count("Memory digest:") == 1
    book.memory.configure(v1={"enabled": False})
    without = book.as_actor("cem").prompt("set up the database")
    assert "Memory digest" not in without
    assert "## Long-term Memory" in without
    assert "## Task" in without
    with pytest.raises(BadInput, match="parts are"):
        book.as_actor("cem").prompt("x", parts=["poem"])


@pytest.mark.spec("4.5", "4.6", "L8")
def test_the_long_term_block_keeps_to_the_labels_that_a_digest_may_show(book: Book) -> None:
    book.remember("The gate is open on Mondays.", shared=True, sensitivity="public")
    book.remember("The vault is below the mill.", shared=True, sensitivity="private")
    book.remember("The key of the vault hangs in the attic.", shared=True, sensitivity="sensitive")
    book.access.grant("ada", ceiling="sensitive")
    ada = book.as_actor("ada")
    shown = ada.prompt("go on", parts=["long_term"])
    assert ("gate" in shown, "below the mill" in shown, "attic" in shown) == (True, True, False)
    book.memory.configure(v1={"allow_sensitivities": ["public"]})
    shown = ada.prompt("go on", parts=["long_term"])
    assert ("gate" in shown, "below the mill" in shown, "attic" in shown) == (True, False, False)


@pytest.mark.spec("4.6", "L5")
def test_a_long_text_in_a_short_prompt_shows_how_it_begins(book: Book) -> None:
    long = "The harbour has a mill, a gate and a crane. " * 5
    assert book.remember(long, shared=True, override="it is about a place").outcome == "stored"
    small = book.as_actor("ada").prompt("go on", parts=["long_term"], max_chars=160)
    assert len(small) <= 160
    assert " — The harbour has a mill" in small
    assert small.endswith("… (prov=owner)\n")
    ((_, why),) = small.omitted
    assert why.startswith("cut to ")


@pytest.mark.spec("4.8")
def test_who_relied_on_something_is_told_when_it_changes(book: Book) -> None:
    ids = team(book)
    ada = book.as_actor("ada")
    with book.run(run_id="r1") as run, run.agent("dev") as me:
        digest = me.digest("db.port", rules={"structured": {"fact_keys": ["db.port"]}})
        assert digest.item_ids[0] == ids["port"]
        assert me.receipts.changed_facts() == []
        new = ada.remember(key="db.port", value=5434, supersedes=ids["port"], shared=True)
        (premise,) = me.receipts.changed_facts()
        assert premise.kind == "premise.changed"
        assert premise.actor == "dev"
        assert premise.payload["line"] == 1
        assert premise.payload["why"] == "superseded"
        assert premise.payload["receipt"] == digest.receipt_id
        assert premise.payload["by"] == new.item_id
        assert "key=db.port value=5433" in premise.payload["text"]
        prompt = me.prompt("go on", parts=["task", "digest", "changed"])
        assert f"- {ids['port']} was superseded by {new.item_id}, line 1 of digest" in prompt
        assert "now: db.port: 5434" in prompt
        assert me.receipts.get(prompt.receipt_id or "").told == (premise.id,)
        assert "superseded" not in me.prompt("go on", parts=["task", "changed", "digest"])
        me.digest("moving the database")
        ada.forget(ids["howto"], confirm="FORGET")
    assert not book.as_actor("cem").receipts.changed_facts()
    told = [one.payload["item"] for one in book.events(kinds=["premise.changed"])]
    assert told.count(ids["port"]) == 1


@pytest.mark.spec("4.5", "L8")
def test_a_digest_carries_the_strictest_labels_of_what_it_shows(book: Book) -> None:
    book.remember("The gate is open on Mondays.", shared=True, sensitivity="public")
    assert book.digest("gate").sensitivity == "public"
    ids = [str(book.remember("A gate is guarded by dogs.", shared=True, sensitivity="private").item_id)]
    ids.append(str(book.remember("The gate was built by monks.", shared=True, sensitivity="public").item_id))
    book.access.relabel(ids[1], trust="low", reason="hearsay")
    digest = book.digest("gate")
    assert set(digest.item_ids) >= set(ids)
    assert (digest.sensitivity, digest.trust) == ("private", "low")


@pytest.mark.spec("4.8")
def test_who_relied_on_something_in_one_run_is_told_in_that_run(book: Book) -> None:
    id = str(book.remember("the mast is painted", shared=True).item_id)
    with book.run(run_id="r1") as run, run.agent("dev") as me, book.run(run_id="r2") as other:
        me.digest("mast")
        book.forget(id, confirm="FORGET")
        assert other.agent("dev").receipts.changed_facts() == []
        assert [one.payload["item"] for one in me.receipts.changed_facts()] == [id]


@pytest.mark.spec("4.8", "L5")
def test_changes_that_find_no_room_are_told_by_the_next_prompt(book: Book) -> None:
    ids = [str(book.remember(f"the {n}th mast is painted", shared=True).item_id) for n in range(3)]
    ada = book.as_actor("ada")
    assert len(ada.digest("mast").item_ids) == 3
    for id in ids:
        book.forget(id, confirm="FORGET")
    told: list[str] = []
    for left in (2, 1, 0):
        prompt = ada.prompt("go on", parts=["changed", "digest"], max_chars=240)
        told += [id for id in ids if id in prompt]
        assert [what for what, _ in prompt.left_out if "changes" in what] == (
            [f"{left} changes"] if left else []
        )
    assert told == ids


@pytest.mark.spec("4.8")
def test_what_is_forgotten_erased_disputed_or_revised_is_told_and_only_to_whom_it_was_shown(
    book: Book,
) -> None:
    ids = team(book)
    cem, ada = book.as_actor("cem"), book.as_actor("ada")
    cem.digest("database", rules={"structured": {"fact_keys": ["db.host"]}})
    ada.memory.revise(ids["host"], value="harbour-2")
    ada.forget(ids["howto"], confirm="FORGET")
    ada.forget(ids["episode"], erase=True, confirm="FORGET")
    why = {one.payload["item"]: one.payload["why"] for one in cem.receipts.changed_facts()}
    assert why == {ids["host"]: "revised", ids["howto"]: "forgotten", ids["episode"]: "forgotten"}
    text = book.as_actor("cem").prompt("go on", parts=["changed", "digest"])
    assert "down for an hour" not in text
    dee = book.as_actor("dee")
    dee.digest("moving the database")
    book.as_actor("ben").forget(ids["note"], confirm="FORGET")
    assert [one.payload["item"] for one in dee.receipts.changed_facts()] == [ids["note"]]
    assert [one.payload["item"] for one in cem.receipts.changed_facts()] == [ids["note"]]


@pytest.mark.spec("4.14")
def test_digests_of_one_task_keep_their_beginning_and_add_what_is_new(book: Book) -> None:
    ids = team(book)
    ada, ben = book.as_actor("ada"), book.as_actor("ben")
    first = ada.digest("set up the database", stable="task-1")
    assert first.kept == 0
    assert not first.rebased
    fresh = ben.remember("The database set up needs the new certificates", shared=True)
    second = ada.digest("set up the database", stable="task-1")
    beginning = first.text.rpartition("\n")[0]
    assert second.text.startswith(beginning)
    assert second.kept >= len(beginning)
    assert fresh.item_id in second.item_ids
    assert second.text.splitlines()[-2].split()[2] == fresh.item_id
    newer = ben.remember("The database is moved at noon by now", supersedes=ids["note"], shared=True)
    third = ada.digest("set up the database", stable="task-1")
    assert third.text.startswith(second.text.rpartition("\n")[0])
    assert f"- [correction] {ids['note']} was superseded by {newer.item_id}" in third.text
    assert ada.digest("set up the database", stable="task-1").text == third.text
    assert book.receipt(third.receipt_id or "").replay() == third.text
    other = ada.digest("set up the database", stable="task-2")
    assert ids["note"] not in other.item_ids
    assert other.kept == 0
    ada.forget(ids["howto"], confirm="FORGET")
    broken = ada.digest("set up the database", stable="task-1")
    assert ids["howto"] not in broken.text
    assert "forgotten" in broken.rebased
    ada.forget(ids["episode"], erase=True, confirm="FORGET")
    erased = ada.digest("set up the database", stable="task-1")
    assert "down for an hour" not in erased.text
    assert "erased" in erased.rebased
    full = ada.digest("db.port and db.host", stable="task-1", max_items=2)
    assert full.rebased == "the budget was full"
    assert len(full.item_ids) <= 2


@pytest.mark.spec("4.12")
def test_bisect_tells_what_a_run_would_have_been_told_without_one_memory(book: Book) -> None:
    ids = team(book)
    with book.run(run_id="r1") as run, run.agent("dev") as me:
        me.digest("set up the database", max_items=2)
        me.digest("moving the database", max_items=1)
    found = book.receipts.bisect("r1")
    assert found.receipts == 2
    assert not found.unread
    assert {one.item for one in found.effects} == {
        id for one in book.receipts.list("r1") for id, _, _ in one.included
    }
    effect = book.receipts.bisect("r1", without=ids["note"]).effects[0]
    second = effect.changed[-1]
    assert ids["note"] in second.lost[0]
    assert ids["note"] not in second.after
    assert len(second.gained) == 1
    (decisive,) = book.receipts.bisect("r1", matters=lambda text: "create the roles" in text).effects
    assert decisive.item == ids["howto"]
    assert not book.receipts.bisect("r1", without=ids["secret"]).effects[0].changed
    ids["derived"] = (
        book.remember("Roles come before tables", parents=[ids["howto"]], shared=True).item_id or ""
    )
    assert ids["derived"] in book.receipts.bisect("r1", without=ids["howto"]).effects[0].with_it
    with pytest.raises(BadInput, match="which run"):
        book.receipts.bisect()


@pytest.mark.spec("4.5", "L7")
def test_a_digest_as_of_then_shows_what_was_known_and_is_allowed_now(book: Book) -> None:
    ids = team(book)
    ada = book.as_actor("ada")
    then = book.head
    ada.remember("The database set up has a new step", shared=True)
    book.as_actor("ben").memory.unshare(ids["note"])
    past = ada.digest("set up the database", at=then)
    assert "new step" not in past.text
    assert past.as_of == then
    assert ids["note"] not in past.text
    assert ids["howto"] in past.text
    assert "new step" in ada.digest("set up the database").text


@pytest.mark.spec("4.5", "4.3")
def test_what_is_no_longer_allowed_is_not_shown_by_receipts_either(book: Book) -> None:
    ids = team(book)
    ada = book.as_actor("ada")
    digest = ada.digest("moving the database")
    assert ids["note"] in digest.item_ids
    book.as_actor("ben").memory.unshare(ids["note"])
    receipt = ada.receipts.get(digest.receipt_id or "")
    assert receipt.trace is None
    assert "not be shown" in receipt.missing
    with pytest.raises(Denied):
        receipt.replay()
    assert book.receipt(digest.receipt_id or "").replay() == digest.text


def test_views_of_recall_come_back_the_same_when_they_are_rebuilt(book: Book) -> None:
    ids = team(book)
    ada = book.as_actor("ada")
    digest = ada.digest("set up the database", stable="t")
    book.as_actor("ben").forget(ids["note"], confirm="FORGET")
    before = [one.id for one in ada.receipts.changed_facts()]
    book.rebuild()
    assert [one.id for one in ada.receipts.changed_facts()] == before
    assert book.receipt(digest.receipt_id or "").replay() == digest.text
    assert book.verify().ok


def test_a_repository_must_be_a_folder(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="not a folder"):
        commonplace.open("memory:", repository=tmp_path / "nowhere")
