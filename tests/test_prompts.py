"""Prompts: the long-term block, what their receipts give again, and prompts as of before. On every engine."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import commonplace
from commonplace import Actor, Book
from commonplace.errors import BadInput, Denied, Erased, NotFound
from commonplace.memory.items import Item
from commonplace.memory.reading import of_memory
from commonplace.recall.digest import digest_request
from commonplace.recall.gathering import gather
from commonplace.recall.lines import candidate, text_of
from commonplace.recall.long_term import long_term
from commonplace.recall.packing import long_term_block
from commonplace.recall.verification import Checks
from tests.shells import Cli

OVER = datetime.now(UTC) - timedelta(hours=1)


def block(prompt: Any) -> list[str]:
    """The lines of the long-term block."""
    head, *lines = str(prompt.parts.get("long_term", "")).splitlines() or ["## Long-term Memory"]
    assert head == "## Long-term Memory"
    return lines


def ids_in(lines: list[str]) -> list[str]:
    """The ids of the items, from what each line is attributed with."""
    found = [
        re.fullmatch(r"- \[(?:fact|note|procedure|episode)\] (\S+) \(\w+\) .* \(prov=.*\)", line)
        for line in lines
    ]
    assert all(found), lines
    return [one[1] for one in found if one]


@pytest.mark.spec("4.6")
def test_the_block_begins_with_what_is_pinned_then_what_bears_on_the_task_then_the_newest(book: Book) -> None:
    ada = book.as_actor("ada")
    kept = {
        name: ada.remember(text, shared=True, pinned=name in ("pinned", "rule")).item_id
        for name, text in (
            ("pinned", "Never deploy on a Friday"),
            ("about", "The database is moved at night, when nobody uses it"),
            ("older", "The harbour has three cranes"),
            ("newer", "The mill is red"),
            ("rule", "Be polite to the customers"),
        )
    }
    own = ada.remember("I report to Kim", pinned=True).item_id
    prompt = ada.prompt("move the database")
    assert ids_in(block(prompt)) == [
        own,
        kept["rule"],
        kept["pinned"],
        kept["about"],
        kept["newer"],
        kept["older"],
    ]
    assert block(prompt)[3] == (
        f"- [note] {kept['about']} (private) — The database is moved at night, when nobody uses it (prov=ada)"
    )
    assert ids_in(block(book.as_actor("ben").prompt("paint the mill")))[:3] == [
        kept["rule"], kept["pinned"], kept["newer"],
    ]  # fmt: skip


def block_of_all(reader: Actor, query: str, max_chars: int, at: int | None) -> str:
    """The long-term block as it is when every item is read and put in order."""
    session = reader._session
    request = digest_request(session, query, at)
    found = {
        gathered.item.id: (place, gathered) for place, gathered in enumerate(gather(session, request).items)
    }
    with session.viewer(at) as viewer:
        items = [viewer.shown(item) for item in viewer.items() if item.current]

    def order(item: Item) -> tuple[Any, ...]:
        author = {"owner": 1, reader.name: 0}.get(item.agent, 2)
        place = author if item.pinned else found[item.id][0] if item.id in found else len(found)
        return not item.pinned, place, -item.recorded_us, item.id

    hold = [item for item in items if (of_memory(item) or item.pinned) and item.valid(request.now_us)]
    allowed = [item for item in hold if item.sensitivity in request.rules.allow_sensitivities]
    lines = []
    for item in sorted(allowed, key=order):
        gathered = None if item.pinned or item.id not in found else found[item.id][1]
        via = "pinned" if item.pinned else "newest"
        if gathered is None:
            lines.append(candidate(item, via, text_of(item)))
        else:
            lines.append(candidate(item, gathered.via, gathered.words, gathered.score, gathered.signals))
    return long_term_block(lines, max_chars).text


ACTS = (
    "keep",
    "pin",
    "unpin",
    "share",
    "unshare",
    "forget",
    "restore",
    "archive",
    "hide",
    "erase",
    "supersede",
)


@pytest.mark.spec("4.6", "L1", "L6")
@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 9), st.booleans()), min_size=4, max_size=14),
    st.sampled_from([200, 400, 2_000]),
    st.sampled_from(["", "oil the red crane"]),
)
@example([("share", 1, True), ("share", 3, True), ("unpin", 4, True)], 2_000, "")
def test_the_block_is_the_same_as_if_every_item_were_read(
    acts: list[tuple[str, int, bool]], max_chars: int, query: str
) -> None:
    with commonplace.open("memory:") as book:
        authors = [book, book.as_actor("ada"), book.as_actor("ben")]
        ids = list[str]()
        for number in range(6):
            shared = number % 2 == 0
            over = OVER if number == 5 else None
            text = ("A crane is red", "Oil the mill", "Sheds burn", "Docks flood", "Be polite", "Tar sticks")[
                number
            ]
            kept = authors[number % 3].remember(text, shared=shared, pinned=number == 4, valid_until=over)
            ids.append(kept.item_id or "")
        for number, (act, chosen, flag) in enumerate(acts):
            with suppress(commonplace.CommonplaceError):
                change_memory(book, authors[chosen % 3], act, ids, chosen % len(ids), flag, number)
        book.access.grant("ben", ceiling="public")
        for reader in (book.as_actor("ada"), book.as_actor("ben"), book.as_actor("cai")):
            for at in (None, book.head // 2, book.head - 2):
                with reader._session.viewer(at) as viewer:
                    request = digest_request(reader._session, query, at)
                    found = gather(reader._session, request).items
                    checks = Checks(reader._session, at)
                    lines = long_term(viewer, reader.name, request, found, checks, max_chars).lines
                block = long_term_block(lines, max_chars).text
                assert block == block_of_all(reader, query, max_chars, at)


def change_memory(
    book: Book, author: Any, act: str, ids: list[str], place: int, flag: bool, number: int
) -> None:
    id = ids[place]
    match act:
        case "keep":
            kept = author.remember(f"{number} gates, {place} cranes", shared=flag, pinned=place == 3)
            ids.append(kept.item_id or ids[0])
        case "pin" | "unpin":
            book.memory.revise(id, pinned=act == "pin")
        case "share" | "unshare":
            (book.memory.share if act == "share" else book.memory.unshare)(id)
        case "forget":
            book.forget(id)
        case "restore" | "archive":
            (book.memory.restore if act == "restore" else book.memory.archive)(id)
        case "hide":
            book.access.relabel(id, sensitivity="sensitive" if flag else "private", reason="a test")
        case "erase":
            book.erase(id)
        case "supersede":
            kept = book.remember(f"Crane {number} was painted again", supersedes=id, shared=flag)
            ids.append(kept.item_id or ids[0])


@pytest.mark.spec("4.6", "L5")
def test_the_block_is_cut_to_the_characters_that_an_agent_s_file_allows(book: Book) -> None:
    for number in range(60):
        book.remember(f"Dock {number} has {number} cranes, {number} sheds and {number} mills", shared=True)
    pin = book.remember("Never deploy on a Friday", shared=True, pinned=True).item_id
    with book.run(run_id="r1") as run, run.agent("dev") as me:
        prompt = me.prompt("which sheds are in dock 7")
    assert len(prompt.parts["long_term"]) <= 2_000
    shown = ids_in(block(prompt))
    assert shown[0] == pin
    assert "Dock 7 has" in block(prompt)[1]
    assert (
        "long-term memory",
        f"more than {51 - len(shown)} do not fit into 2,000 characters",
    ) in prompt.left_out
    small = book.as_actor("ada").prompt("which sheds are in dock 7", max_chars=600)
    assert len(small) <= 600
    assert ids_in(block(small))[0] == pin


@pytest.mark.spec("4.6", "4.10", "L5")
def test_what_does_not_hold_is_not_in_the_block_and_what_is_disputed_says_so(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    with commonplace.open(tmp_path / "team.db") as book:
        ada, ben = book.as_actor("ada"), book.as_actor("ben")
        fact = ada.remember(key="api.limit", value=60, shared=True, pinned=True).item_id
        claim = ben.remember(key="api.limit", value=90, shared=True)
        over = ada.remember(
            "The bridge is closed this week", shared=True, valid_until=OVER, pinned=True
        ).item_id
        old = ada.remember("The crane stands on the old pier", shared=True).item_id or ""
        new = ada.remember("The crane stands on the new pier", shared=True, supersedes=old).item_id
        gone = ada.remember("The harbour belongs to a pirate", shared=True).item_id or ""
        ada.forget(gone, confirm="FORGET")
        stale = ada.remember(
            "The port is in app.py", shared=True, citations=["app.py:1"], pinned=True
        ).item_id
        prompt = book.as_actor("cem").prompt("what is the api.limit")
        assert ids_in(block(prompt)) == [fact, new]
        assert block(prompt)[0].endswith("key=api.limit value=60 (prov=ada disputed=1)")
        assert prompt.count(str(fact)) == 1, "the digest leaves out what the block shows"
        left_out = dict(prompt.left_out)
        assert left_out[str(over)] == "it does not hold at this time"
        assert left_out[str(stale)] == "stale: app.py is gone"
        assert fact not in left_out, "the prompt shows it"
        assert f"{stale} (private) — The port is in app.py (prov=ada refs=1 stale=app.py is gone)" in (
            book.as_actor("cem").prompt("where is the port")
        )
        book.memory.resolve(claim, "new", "measured")
        changed = book.as_actor("cem").prompt("what is the api.limit")
        assert "value=90" in changed.parts["long_term"]
        assert "value=60" not in changed.parts["long_term"]


SHELVES = "".join(f"Shelf {number} holds the letters of {1700 + number}. " for number in range(70))


@pytest.mark.spec("4.6", "4.2")
@pytest.mark.parametrize("pinned", [False, True])
def test_of_a_long_note_the_block_shows_the_part_that_answers(book: Book, pinned: bool) -> None:
    long = f"{SHELVES}The spare key of the archive is under the third stone. {SHELVES}"
    kept = book.remember(long, shared=True, pinned=pinned, override="it is long").item_id or ""
    other = book.remember("The mill is red", shared=True).item_id or ""
    prompt = book.prompt("where is the spare key of the archive", max_chars=2_000)
    line, beside = block(prompt)
    assert "The spare key of the archive is under the third stone." in line
    assert len(line) < 400
    assert other in beside, "one long note does not take the room of the others"
    assert prompt.count(kept) == 1, "the digest has no more to say of it"
    assert book.receipt(prompt.receipt_id or "").replay() == prompt


@pytest.mark.spec("4.6", "L5")
def test_what_is_pinned_or_new_takes_its_share_of_the_block_and_no_more(book: Book) -> None:
    book.memory.configure(v1={"semantic": {"enabled": False}})  # so that nothing is found for the task
    rule = "Ask the master of the harbour before you move a crane. " * 7
    long = book.remember(SHELVES, shared=True, override="it is long").item_id or ""
    fact = book.remember(key="harbour.plan", value="quay " * 300, shared=True, pinned=True).item_id or ""
    short = book.remember(rule, shared=True, pinned=True, override="a rule").item_id or ""
    prompt = book.prompt("go on", parts=["task", "long_term"])
    assert ids_in(block(prompt)) == [short, fact, long]
    assert rule.strip() in block(prompt)[0]
    assert all(len(line) < 700 for line in block(prompt))
    told = dict(prompt.omitted)
    assert set(told) == {fact, long}
    assert told[long] == f"cut to 500 of {len(SHELVES.strip())} characters: one item has no more in the block"
    assert book.receipt(prompt.receipt_id or "").omitted == {"cut": 2}


@pytest.mark.spec("4.6", "4.10")
def test_when_much_has_grown_stale_the_block_shows_what_still_holds(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    with commonplace.open(tmp_path / "team.db") as book:
        kept = book.remember("The mill is red", shared=True).item_id
        for number in range(60):
            book.remember(f"Port {number} is in app.py", shared=True, citations=["app.py:1"], pinned=True)
        prompt = book.prompt("go on", parts=["task", "long_term"])
        assert ids_in(block(prompt)) == [kept]
        assert [why for _, why in prompt.omitted] == ["stale: app.py is gone"] * 60


@pytest.mark.spec("4.6", "4.7", "L5")
def test_what_finds_no_room_is_told_with_the_budget_that_there_is(book: Book) -> None:
    texts = [f"Dock {number} has a crane, a shed, a mill and a gate beside its wall" for number in range(5)]
    for text in texts:
        book.remember(text, shared=True)
    for chars, tokens in ((20, None), (60, None), (None, 15)):
        told = dict(book.prompt("look at the docks", max_chars=chars, max_tokens=tokens).left_out)
        assert told.pop("long-term memory") == "5 do not fit into the budget"
        told.pop("the budget", "")
        assert set(told.values()) == {"over the budget of the prompt"}
        assert len(told) == 5
    prompt = book.prompt("look at the docks", max_chars=160)
    (first,) = ids_in(block(prompt))
    cut = f"cut to 41 of {len(texts[0])} characters: over the budget of the prompt"
    assert dict(prompt.omitted)[first] == cut
    assert len(dict(prompt.omitted)) == len(prompt.omitted), "each is told once"
    receipt = book.receipt(prompt.receipt_id or "")
    assert receipt.omitted == {"cut": 1, "over the budget of the prompt": 4}
    assert receipt.replay() == prompt


@pytest.mark.spec("4.6", "4.5", "L5")
def test_what_is_left_out_is_told_to_the_caller_and_not_to_the_model(book: Book) -> None:
    kept = book.remember("The database is moved at night", shared=True).item_id
    prompt = book.as_actor("ada").prompt("move the database")
    assert "left out" not in prompt
    assert "Memory digest" not in prompt
    assert kept in ids_in(block(prompt))
    assert (prompt.omitted, prompt.left_out) == ([], []), "what the prompt shows is not left out of it"
    assert prompt.digest is not None
    assert prompt.digest.omitted == ()
    assert book.receipt(prompt.receipt_id or "").omitted == {}
    secret = book.remember(
        "The database of the auditors is in the cellar", sensitivity="sensitive", shared=True
    ).item_id
    book.access.grant("ada", ceiling="sensitive")
    without = book.as_actor("ada").prompt("auditors", parts=["task", "digest"])
    assert "left out" not in without
    assert (secret, "it is sensitive, which is not allowed here") in without.omitted


@pytest.mark.spec("4.5")
def test_of_items_that_fit_a_task_equally_well_the_newer_comes_first(book: Book) -> None:
    ids = [book.remember(f"crane {name} waits", shared=True).item_id for name in ("ada", "ben", "cem", "dee")]
    digest = book.digest("crane", rules={"semantic": {"enabled": False}})  # by its words each fits as well
    assert list(digest.item_ids) == ids[::-1]


# receipts


def busy(book: Book) -> tuple[Any, dict[str, str]]:
    """A prompt in which every part has something to say, and where its words come from."""
    ada = book.as_actor("ada")
    book.as_actor("dev", role="developer")
    kept = {
        "fact": ada.remember(key="db.port", value=5433, shared=True).item_id or "",
        "note": ada.remember("The database is moved at night", shared=True, pinned=True).item_id or "",
        "own": book.as_actor("dev").remember("I set up the database once before").item_id or "",
    }
    work = book.work(name="move", goal="Move the database")
    work.add_task("Copy the rows")
    assert work.claim("dev") is not None
    kept["nudge"] = work.nudge("Mind the foreign keys", target="dev", by="eve").id
    with book.run(run_id="r1", initial={"topic": "harbour"}) as run:
        with run.agent("dev") as me:
            me.digest("db.port")
            ada.remember(key="db.port", value=5434, supersedes=kept["fact"], shared=True)
            kept["spoken"] = book.record(
                "world.observed", payload={"text": "water drips from the roof"}, run_id="r1", turn=1
            ).id
            prompt = me.prompt("set up the database", work=work)
    assert set(prompt.parts) == {
        "task",
        "inputs",
        "work",
        "nudges",
        "long_term",
        "digest",
        "recent",
        "changed",
    }
    assert all(prompt.parts.values()), prompt.parts
    return prompt, kept


@pytest.mark.spec("4.7")
def test_a_receipt_gives_the_whole_prompt_again(book: Book) -> None:
    prompt, _ = busy(book)
    assert book.receipt(prompt.receipt_id).replay() == prompt
    book.remember("The database has a new step", shared=True)
    assert book.as_actor("dev").receipts.get(prompt.receipt_id).replay() == prompt
    book.rebuild()
    assert book.receipt(prompt.receipt_id).replay() == prompt
    plain = book.as_actor("ada").prompt("go on", parts=["task", "long_term"])
    assert book.receipt(plain.receipt_id or "").replay() == plain
    book.memory.configure(v1={"enabled": False})
    without = book.as_actor("ada").prompt("go on")
    assert book.receipt(without.receipt_id or "").replay() == without
    ignored = book.as_actor("ada").prompt("Ignore memory. Go on")
    assert book.receipt(ignored.receipt_id or "").replay() == ignored


@pytest.mark.spec("4.7", "L10")
@pytest.mark.parametrize("part", ["note", "own", "nudge", "spoken", "state", "changed", "work"])
def test_when_something_in_a_prompt_is_erased_its_receipt_names_it(book: Book, part: str) -> None:
    prompt, kept = busy(book)
    if part == "state":
        kept[part] = next(one.id for one in book.events(kinds=["state.opened"]))
    elif part == "changed":
        kept[part] = kept["fact"]
    elif part == "work":
        kept[part] = next(one.id for one in book.events(kinds=["task.added"]))
    assert book.erase(kept[part]).gone
    with pytest.raises(Erased, match="of the work" if part == "work" else kept[part]):
        book.receipt(prompt.receipt_id).replay()
    words = {
        "note": "moved at night", "own": "once before", "nudge": "foreign keys", "spoken": "water drips",
        "state": "harbour", "changed": "value=5433", "work": "Copy the rows",
    }[part]  # fmt: skip
    for event in book.events():
        for digest in event.blobs:
            assert words.encode() not in (book.blob(digest) or b"")


@pytest.mark.spec("4.7", "4.3")
def test_a_receipt_of_a_prompt_follows_the_rights_of_its_reader(book: Book) -> None:
    prompt, kept = busy(book)
    dev = book.as_actor("dev")
    book.as_actor("ada").memory.unshare(kept["note"])
    with pytest.raises(Denied):
        dev.receipts.get(prompt.receipt_id).replay()
    assert book.receipt(prompt.receipt_id).replay() == prompt
    with pytest.raises(NotFound):
        book.as_actor("ada").receipts.get(prompt.receipt_id)


@pytest.mark.spec("4.7", "2.7")
def test_secrets_of_a_task_and_of_a_run_are_not_in_the_receipt(book: Book) -> None:
    key = "AKIA" + "IOSFODNN7EXAMPLQ"
    prompt = book.as_actor("ada").prompt(f"use the key {key}")
    assert key in prompt
    assert key not in book.receipt(prompt.receipt_id or "").replay()
    assert not any(key.encode() in (book.blob(one) or b"") for event in book.events() for one in event.blobs)


@pytest.mark.spec("4.7", "4.12")
def test_bisect_tells_what_the_block_would_have_said(book: Book) -> None:
    kept = book.remember("The database is moved at night", shared=True).item_id or ""
    with book.run(run_id="r1") as run, run.agent("dev") as me:
        me.prompt("move the database")
    (effect,) = book.receipts.bisect("r1", without=kept).effects
    assert effect.changed[0].from_block
    assert kept in effect.changed[0].lost[0]


@pytest.mark.spec("4.8", "4.6")
def test_a_change_of_what_the_block_said_is_told_with_its_line(book: Book) -> None:
    kept = book.remember(key="db.port", value=5433, shared=True).item_id or ""
    with book.run(run_id="r1") as run, run.agent("dev") as me:
        assert kept in ids_in(block(me.prompt("go on", parts=["task", "long_term"])))
        book.remember(key="db.port", value=5434, supersedes=kept, shared=True)
        (premise,) = me.receipts.changed_facts()
        assert "key=db.port value=5433" in premise.payload["text"]


# as of before


@pytest.mark.spec("L7", "4.6", "4.7")
def test_a_prompt_as_of_then_says_what_was_known_then_and_may_be_said_now(book: Book) -> None:
    ada = book.as_actor("ada")
    ada.remember("The crane stands on the old pier", shared=True, pinned=True)
    secret = ada.remember("The crane is rusty", shared=True).item_id or ""
    erased = ada.remember("The crane is haunted", shared=True).item_id or ""
    then = book.head
    ada.remember("The crane was painted", shared=True)
    ada.memory.unshare(secret)
    ada.forget(erased, erase=True, confirm="FORGET")
    ben = book.as_actor("ben")
    prompt = ben.prompt("look at the crane", at=then)
    assert "old pier" in prompt
    assert "painted" not in prompt
    assert "rusty" not in prompt
    assert "haunted" not in prompt
    assert ben.receipts.get(prompt.receipt_id or "").replay() == prompt
    assert ben.receipts.get(prompt.receipt_id or "").as_of == then
    now = ben.prompt("look at the crane")
    assert "painted" in now
    with pytest.raises(BadInput, match="at"):
        ben.prompt("look at the crane", at=then, stable="t")


@pytest.mark.spec("L7", "5.6")
def test_a_prompt_as_of_then_tells_how_things_stood_and_delivers_nothing(book: Book) -> None:
    work = book.work(name="move", goal="Move the database")
    work.add_task("Copy the rows")
    assert work.claim("dev") is not None
    work.nudge("Mind the foreign keys", target="dev", by="eve")
    dev = book.as_actor("dev")
    with book.run(run_id="r1", initial={"topic": "harbour"}) as run, run.agent("dev") as me:
        book.record("world.observed", payload={"text": "water drips"}, run_id="r1", turn=1)
        then = book.head
        me.write({"answer": 42, "confidence": 1.0})
        book.record("world.observed", payload={"text": "the roof is dry"}, run_id="r1", turn=2)
        work.manage.change(goal="Leave it")
        prompt = me.prompt("go on", work=work, at=then)
        assert "Move the database" in prompt.parts["work"]
        assert "foreign keys" in prompt.parts["nudges"]
        assert "water drips" in prompt.parts["recent"]
        assert "roof is dry" not in prompt
        assert "harbour" in prompt.parts["inputs"]
        assert "42" not in prompt.parts["inputs"]
        assert me.receipts.get(prompt.receipt_id or "").replay() == prompt
    assert "foreign keys" in dev.prompt("go on", work=work), "it still waits"


@pytest.mark.spec("L7", "4.7")
def test_receipts_as_of_then_are_those_that_were_there(book: Book) -> None:
    book.remember("The crane is red", shared=True)
    ada = book.as_actor("ada")
    first = ada.digest("crane").receipt_id
    then = book.head
    second = ada.digest("crane").receipt_id
    assert [one.id for one in ada.receipts.list(at=then)] == [first]
    assert [one.id for one in book.receipts.list(at=then)] == [first]
    assert [one.id for one in ada.receipts.list()] == [first, second]
    assert book.as_actor("ben").receipts.list(at=then) == []


@pytest.mark.spec("L7", "3.4")
def test_proposals_and_suggestions_as_of_then(book: Book) -> None:
    book.memory.set_core("auth", name="Auth")
    proposed = book.as_actor("dev").remember("Tokens last an hour", core="auth")
    soon = datetime.now(UTC) + timedelta(days=1)
    kept = book.remember("The bridge is closed", shared=True, valid_until=soon).item_id or ""
    then = book.head
    book.memory.resolve(proposed, "create")
    book.memory.revise(kept, valid_until=OVER)
    assert [one.id for one in book.memory.held("proposal", at=then)] == [proposed.item_id]
    assert book.memory.held("proposal") == []
    assert [one.items for one in book.memory.suggestions() if one.act == "refresh"] == [(kept,)]
    assert [one.items for one in book.memory.suggestions(at=then) if one.act == "refresh"] == []


@pytest.mark.spec("7.2", "L7")
def test_the_command_line_makes_and_replays_a_prompt_as_of_then(cli: Cli, tmp_path: Path) -> None:
    path = ("--json", "--book", tmp_path / "team.db")
    cli("init", "--book", tmp_path / "team.db")
    then = cli("remember", "The crane is red", *path).json["position"]
    cli("remember", "The crane is blue by now", *path)
    made = cli("prompt", "look at the crane", "--at", then, *path).json
    assert "red" in made["text"]
    assert "blue" not in made["text"]
    assert cli("receipts", "replay", made["receipt_id"], *path).json["text"] == made["text"]


@pytest.mark.spec("4.5", "4.6", "4.7", "L6")
@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["crane", "mill", "dock", "pier"]),
            st.integers(1, 90),
            st.sampled_from(["shared", "own", "pinned", "expired", "fact"]),
        ),
        max_size=12,
    ),
    st.one_of(st.none(), st.integers(60, 3_000)),
    st.one_of(st.none(), st.integers(20, 700)),
)
def test_any_prompt_keeps_its_budget_repeats_nothing_and_can_be_given_again(
    things: list[tuple[str, int, str]], max_chars: int | None, max_tokens: int | None
) -> None:
    with commonplace.open("memory:") as book:
        ada = book.as_actor("ada")
        for number, (name, size, how) in enumerate(things):
            fact = {"key": f"{name}.{number}", "value": "x" * size} if how == "fact" else {}
            ada.remember(
                None if fact else f"The {name} {number} " + f"is {how} " * size,
                kind="fact" if fact else "note",
                **fact,  # type: ignore[arg-type]
                shared=how != "own",
                pinned=how == "pinned",
                valid_until=OVER if how == "expired" else None,
                override="as it is",
            )
        prompt = ada.prompt("look at the crane", max_chars=max_chars, max_tokens=max_tokens)
        assert max_chars is None or len(prompt) <= max_chars
        assert max_tokens is None or len(prompt) <= 4 * max_tokens
        assert "is expired" not in prompt
        shown = ids_in(block(prompt))
        cut = {id for id, why in prompt.omitted if why.startswith("cut")}
        assert prompt.digest is not None
        assert not {*shown} - cut & {*prompt.digest.item_ids}
        assert len({*shown}) == len(shown)
        assert book.receipt(prompt.receipt_id or "").replay() == prompt
