"""Echoes, corrections, and keys and values that are spelled in other ways."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import commonplace
from commonplace import Actor, Book
from commonplace.memory.claims import claim_of, corrects, covered, is_part, key_form
from commonplace.surfaces.tools import Tools

SAID = "The cache of Orion is flushed every night at three. It uses port 8080."
DRESSED = (
    f"I recall that {SAID}",
    f"As noted: {SAID}",
    f"According to memory, {SAID}",
    f"According to our notes the{SAID[3:]}",
    f"It is worth noting that {SAID}",
    f"Just to confirm: {SAID}",
    f"FYI, {SAID.upper()}",
    f"“{SAID}”",
    f"> {SAID}",
    f"**{SAID}**",
    SAID.replace("cache", "ca\u200bche").replace("port", "po\u00adrt"),  # what cannot be seen
    f"{SAID[:-1]}, as noted earlier.",
    f"{SAID[:-1]} (from memory).",
    "- The cache of Orion is flushed every night at three\n- It uses port 8080",
    "We remember the following:\n1. It uses port 8,080.\n2. Every night at 3, the cache of Orion is flushed.",
)
CORRECTED = (
    SAID.replace("8080", "8081"),
    SAID.replace("Orion", "Vega"),
    SAID.replace("three", "four"),
    SAID.replace("is flushed", "is not flushed"),
    SAID.replace("flushed", "warmed"),
    SAID.replace("It uses", "It never uses"),
    f"It is false that {SAID}",
    f"On staging, {SAID}",
    f"I recall that {SAID.replace('8080', '8081')}",
)


@pytest.fixture
def shown(book: Book) -> Actor:
    """Somebody to whom a search has shown the item."""
    book.remember(SAID)
    ada = book.as_actor("ada")
    assert [result.text for result in ada.search("cache of Orion").results] == [SAID]
    return ada


@pytest.mark.spec("L9")
def test_what_was_shown_is_an_echo_however_it_is_dressed(book: Book, shown: Actor) -> None:
    for text in DRESSED:
        kept = shown.remember(text, shared=True, override="x")
        assert (kept.outcome, kept.reason[:7]) == ("rejected", "an echo"), text
    (item,) = book.memory.list(status=None)
    assert item.corroborated == ()


@pytest.mark.spec("L9", "3.5")
@pytest.mark.parametrize("text", CORRECTED)
def test_a_correction_is_never_an_echo(book: Book, shown: Actor, text: str) -> None:
    kept = shown.remember(text, shared=True, override="x")
    assert kept.outcome in ("stored", "flagged")
    assert kept.item_id != book.memory.list()[0].id


@pytest.mark.spec("L9")
def test_several_things_in_one_list_are_echoes_and_parts_of_several_are_not(book: Book) -> None:
    book.remember("Staging runs on Alpha. It uses port 1001.")
    book.remember("Production runs on Beta. It uses port 1002.")
    me = book.run(run_id="r").agent("ada")
    me.search("runs on Alpha Beta")
    both = "- Production runs on Beta. It uses port 1002.\n- Staging runs on Alpha. It uses port 1001."
    assert me.remember(both).reason.startswith("an echo")
    assert me.remember("Staging runs on Alpha.").reason.startswith("an echo")
    assert me.remember("Staging runs on Alpha. It uses port 1002.").outcome in ("stored", "flagged")


@pytest.mark.spec("L9")
def test_lines_of_a_digest_and_of_memory_md_are_echoes(book: Book) -> None:
    book.remember("Orion is rebooted on the first of May.", title="reboots", tags=["ops"])
    book.remember(key="orion.port", value=8080, confidence=0.9)
    me = book.run(run_id="r").agent("ada")
    digest = me.digest("when is Orion rebooted, and which port has it?")
    page = Tools(book).call("memory.read", {"target": "long_term"}, actor="ada", run_id="r")["data"][
        "content"
    ]
    lines = [line for line in (*digest.text.splitlines(), *page.splitlines()) if "rion" in line]
    assert len(lines) == 4
    for line in [*lines, "orion.port is 8080", "I recall that orion.port = 8080"]:
        assert me.remember(line, override="x").reason.startswith("an echo"), line


@pytest.mark.spec("L9")
def test_only_a_new_origin_that_was_not_shown_it_corroborates(book: Book) -> None:
    kept = book.as_actor("ada").remember(SAID, shared=True)
    ben, cem = book.as_actor("ben"), book.as_actor("cem")
    assert (
        ben.remember(f"I recall that {SAID}").outcome == "merged"
    )  # it says itself that it repeats something
    assert book.memory.get(str(kept.item_id)).corroborated == ()
    assert (
        cem.remember("it uses port 8080; every night at three, the cache of Orion is flushed").outcome
        == "merged"
    )
    assert [one.actor for one in book.memory.get(str(kept.item_id)).corroborated] == ["cem"]


@pytest.mark.spec("L9")
def test_reading_writes_nothing_and_the_next_write_notes_what_was_shown(tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "team.db") as book:
        kept = book.as_actor("ada").remember(SAID, shared=True)
        ben = book.as_actor("ben")
        before = book.head
        assert [item.id for item in ben.memory.list()] == [
            result.id for result in ben.search("cache").results
        ]
        assert book.head == before
        assert ben.remember(SAID).reason.startswith("an echo")
        assert [event.payload for event in book.events(before)] == [{"shown": [kept.item_id]}]
        ben.memory.list()
        assert ben.remember(SAID).reason.startswith("an echo")
        assert book.head == before + 1
        book.as_actor("cem").memory.list()
    with commonplace.open(
        tmp_path / "team.db"
    ) as book:  # what another process was shown was noted when it ended
        assert book.as_actor("cem").remember(SAID).reason.startswith("an echo")
        assert book.as_actor("dan").remember(SAID).reason.endswith("this corroborates it")
        again = book.as_actor("ada").remember(f"I recall: {SAID}")
        assert (again.outcome, again.item_id) == ("merged", kept.item_id)


@pytest.mark.spec("L9", "L10")
def test_what_was_erased_since_it_was_shown_is_noted_nowhere(tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "team.db") as here, commonplace.open(tmp_path / "team.db") as there:
        kept = str(there.as_actor("ada").remember(SAID, shared=True).item_id)
        stays = str(there.as_actor("ada").remember("Orion has three disks.", shared=True).item_id)
        assert {item.id for item in here.as_actor("ben").memory.list()} == {kept, stays}
        there.forget(kept, erase=True, confirm="FORGET")
        erased = there.head
        here.as_actor("ben").remember("Vega has two.")
        (noted,) = there.events(erased, kinds=("memory.recalled",))
        assert (noted.payload, noted.parents) == ({"shown": [stays]}, (stays,))
        assert there.verify().ok


@pytest.mark.spec("L9", "3.5")
@pytest.mark.parametrize("end", ["forget", "supersede", "archive", "erase", "unshare"])
def test_what_stands_no_more_keeps_nothing_out(book: Book, end: str) -> None:
    ada, ben = book.as_actor("ada"), book.run(run_id="r").agent("ben")
    old = str(ada.remember(SAID, shared=True).item_id)
    ben.search("cache of Orion")
    assert ben.remember(SAID).outcome == "rejected"
    match end:
        case "forget" | "erase":
            ada.forget(old, confirm="FORGET", erase=end == "erase")
        case "supersede":
            ada.remember("The cache of Orion is gone for good.", supersedes=old)
        case "archive":
            ada.memory.archive(old)
        case "unshare":
            ada.memory.unshare(old)
    assert ben.remember(SAID, shared=True).outcome == "stored"


@pytest.mark.spec("L9", "3.3")
def test_another_value_is_a_dispute_also_after_it_was_shown_or_derived_from_a_receipt(book: Book) -> None:
    book.remember(key="api.limit", value=60)
    book.remember("Deploys of Orion do not start on Fridays.")
    me = book.run(run_id="r").agent("ada")
    me.search("api.limit")
    digest = me.digest("the limit of the api, and deploys of Orion")
    for parents in ([], [str(digest.receipt_id)]):
        kept = me.remember(key="API limit", value=90, parents=parents, shared=True)
        assert (kept.outcome, kept.held and kept.held.why) == ("flagged", "dispute")
    assert me.remember(key="api-limit", value=60.0).reason.startswith("an echo")
    derived: dict[str, Any] = {"parents": [digest.receipt_id]}
    assert me.remember("We do not deploy anything on Fridays.", **derived).reason.startswith("an echo")
    assert me.remember("Deploys of Orion start on Fridays.", **derived).outcome != "rejected"
    assert me.remember("Deploys of Vega stop on some days.", **derived).outcome != "rejected"


@pytest.mark.spec("3.3", "3.5")
def test_a_key_is_one_key_however_it_is_spelled(book: Book) -> None:
    ada, ben = book.as_actor("ada"), book.as_actor("ben")
    first = ada.remember(key="API.limit", value=60, shared=True)
    assert ben.remember(key="api limit", value=60.0, run_id="other").item_id == first.item_id
    assert [one.actor for one in book.memory.get(str(first.item_id)).corroborated] == ["ben"]
    other = ben.remember(key="api_limit", value=90, shared=True)
    assert (other.outcome, other.held and other.held.why) == ("flagged", "dispute")
    again = ada.remember(key="api/limit", value=120, supersedes=True, id="again")
    assert (again.outcome, again.superseded) == ("stored", (first.item_id,))
    assert ada.remember(key="api/limit", value=120, supersedes=True, id="again").reason == "as the first time"
    assert ada.memory.get("again").key == "API.limit"  # as it was first written
    assert [item.value for item in ada.memory.list(key="api-limit")] == [120]
    book.memory.configure(v1={"structured": {"fact_keys": ["Api Limit"]}})
    assert "again" in ada.digest("something else").text
    assert ada.forget(key="ＡＰＩ．limit", confirm="FORGET").items == (first.item_id, "again")


@pytest.mark.spec("3.3")
@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        (60, 60.0, True),
        ([60, {"a": 1.0}], [60.0, {"a": 1}], True),
        (-0.0, 0, True),
        (True, 1, False),
        ("60", 60, False),
        ("Prod", "prod", False),
        ("retry twice, then give up", "I recall that: retry twice, then give up", True),
        ("retry twice, then give up", "retry thrice, then give up", False),
    ],
)
def test_values_are_compared_as_json_and_sentences_as_claims(one: Any, two: Any, same: bool) -> None:
    with commonplace.open("memory:") as book:
        book.remember(key="k", value=one)
        assert book.remember(key="K", value=two).outcome == ("merged" if same else "flagged")


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("staging uses 5432, production uses 5433", "staging uses 5433, production uses 5432"),
        ("Alpha calls Beta", "Beta calls Alpha"),
        ("Memory: 16 GB", "Log: 16 GB"),
        ("run *.py", "run .py"),
        ("the offset is -5", "the offset is 5"),
        ("migrate from MySQL to Postgres", "migrate to MySQL from Postgres"),
        ("known-good builds are kept", "good builds are kept"),
        ("we no longer know that Orion runs", "Orion runs"),
        ("nobody said that Orion runs", "Orion runs"),
        ("a < b", "a > b"),
        ("it was in Paris", "it is in Paris"),
        ("see src/a.py", "see src/b.py"),
        ("written in C", "written in C++"),
        ("the limit is 60%", "the limit is 60"),
        ("version 1.10", "version 1.1"),
        ("!!!", "???"),
    ],
)
def test_other_claims_are_other_claims(one: str, two: str) -> None:
    assert claim_of(one) != claim_of(two)


def test_a_part_is_long_and_leaves_out_no_denial() -> None:
    words = " ".join(f"word{n}" for n in range(30))
    assert is_part(words, f"before {words} after")
    assert not is_part(words, f"do not {words}")
    assert not is_part("word1 word2", words)
    assert not covered(frozenset(), [claim_of(words)])
    assert corrects("Orion has 3 disks", ["Orion has disks"])
    assert not corrects("Orion has disks", ["Orion has 3 disks"])


def test_keys_that_are_odd_have_a_form_too() -> None:
    assert key_form("...") == "..."
    assert len(key_form("ﷺ" * 200)) <= 200
    assert key_form("a.b") != key_form("ab")


@pytest.mark.parametrize(
    "piece", ["*", "(", "a ", "- ", "1. ", "note that ", "i recall, ", "..", ".'", "\n", " -", "’"]
)
def test_claims_take_time_in_proportion_to_their_text(piece: str) -> None:
    def seconds(size: int) -> float:
        text = piece * (size // len(piece))
        began = time.process_time()
        claim_of(text)
        is_part(text, f"{text}x")
        corrects(text, [f"{text}x"])
        return time.process_time() - began

    assert seconds(100_000) <= 40 * max(seconds(10_000), 0.002)


@pytest.mark.spec("L9")
def test_a_reader_that_never_writes_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was shown waits for the next write; of very much, the newest is noted."""
    monkeypatch.setattr("commonplace.memory.showing.MOST_WAITING", 3)
    with commonplace.open("memory:") as book:
        ids = [book.remember(f"node{n} listens on port {n + 3000}").item_id or "" for n in range(6)]
        ada = book.as_actor("ada")
        for id in ids:
            ada.memory.get(id)
        ada.remember("the harbour is closed on sundays")
        noted = [event.payload["shown"] for event in book.events(kinds=["memory.recalled"])]
        assert noted == [ids[-3:]]


@pytest.mark.spec("L9")
@pytest.mark.parametrize(
    ("known", "correction"),
    [
        ("Primary is db1, replica is db2.", "db1 is the replica, db2 is the primary."),
        ("Tuesday: Anna, Thursday: Bob", "Anna: Thursday, Bob: Tuesday"),
        ("Priority of the queues is A > B", "Priority of the queues is B > A"),
        ("Keep the samples at –18 degrees", "Keep the samples at 18 degrees"),
        ("The table has 10² rows of samples", "The table has 102 rows of samples"),
        ("Buckets of the web team begin with app-", "Buckets of the web team begin with app"),
        ("Deploy on Fridays. No, never deploy on Fridays.", "Deploy on Fridays."),
        (
            "Every engineer on the platform team may restart any service in the shared cluster after telling the "
            "channel about it and writing down the reason, except on the sandbox cluster",
            "Every engineer on the platform team may restart any service in the shared cluster after telling the "
            "channel about it and writing down the reason",
        ),
    ],
)
def test_a_correction_after_a_search_is_never_an_echo(known: str, correction: str) -> None:
    """Swapped roles, another sign, a power, an exception that is gone: each says something else."""
    with commonplace.open("memory:") as book:
        book.memory.configure(exclusions="off")
        book.remember(known)
        with book.run(run_id="r1") as run, run.agent("ada") as me:
            assert me.search(known).results
            kept = me.remember(correction)
            assert kept.outcome in ("stored", "flagged"), kept.reason


@pytest.mark.spec("L9", "L5")
def test_what_was_relabelled_since_confirms_no_guess(book: Book) -> None:
    """A right guess and a wrong one about an item that one may not see any more are answered alike."""
    ada, bob = book.as_actor("ada"), book.as_actor("bob")
    id = ada.remember("Zebraphone costs 900 dollars", shared=True).item_id or ""
    assert bob.search("zebraphone").results
    book.access.relabel(id, sensitivity="sensitive", reason="not announced")
    for guess in ("Zebraphone costs 800 dollars", "Zebraphone costs 900 dollars"):
        kept = bob.remember(guess)
        assert (kept.outcome, kept.reason) == ("stored", ""), guess


@pytest.mark.spec("L9", "L5")
def test_a_receipt_of_what_was_relabelled_since_confirms_no_guess(book: Book) -> None:
    ada, bob = book.as_actor("ada"), book.as_actor("bob")
    ada.remember("The lift in the hall is slow", shared=True)
    id = ada.remember("Zebraphone is dear", shared=True).item_id or ""
    receipt = str(bob.digest("zebraphone and the lift").receipt_id)
    book.access.relabel(id, sensitivity="sensitive", reason="not announced")
    answers = [bob.remember(f"Zebraphone is {guess}", parents=[receipt]) for guess in ("cheap", "dear")]
    assert len({(kept.outcome, kept.reason) for kept in answers}) == 1


OLD_AND_NEW = """
A day ticket costs 12 euros | A day ticket costs 14 euros
A day ticket costs 12 euros | Day tickets are 14 euros now, not 12
The licence is $40 per seat | The licence is €40 per seat
Shipping is free above 50 euros | Shipping is never free
The discount is 10% | The discount is 10.5%
Postgres listens on 5433 | As noted, Postgres listens on 5432
Postgres listens on port 5433 and Redis on 6379 | Postgres listens on port 6379 and Redis on 5433
The proxy binds to 127.0.0.1 | The proxy binds to 127.0.0.2
Deborah leads design | Samir leads design
Deborah reports to Samir | Samir reports to Deborah
Ask Ana about invoices | Ask Anna about invoices
The head of sales is Tom | Tom is no longer the head of sales
The head of sales is Tom | The head of sales was Tom
Maria approves leave | Maria's deputy approves leave
Call him about refunds | Call her about refunds
The board meets on Monday | The board meets on Tuesday
The contract ends on 2026-03-01 | The contract ends on 2026-03-31
Deploys happen on Fridays | Deploys happen on Fridays, but not in December
Deploys don't happen on Fridays | Deploys happen on Fridays
The shop opens at 9 am | The shop opens at 9 pm
Rent is due on the first | Rent is due on the fifth
The museum is open in summer | The museum is open in winter
We use Slack for incidents | We no longer use Slack for incidents
We use Slack for incidents | We used Slack for incidents
We use Slack for incidents | We stopped using Slack for incidents
The VPN is required | The VPN is optional
The VPN is required. It runs on Alpha. | The VPN is required no more. It runs on Alpha.
The tank holds 40 litres | The tank holds 40 gallons
The timeout is 30 ms | The timeout is 30 s
The fridge stays at 4 degrees | The fridge stays at -4 degrees
The room has 20 °C | The room has 20 °F
The area is 10 m² | The area is 10 m³
We run Python 3.11 | We run Python 3.12
We run Python 3.1 | We run Python 3.10
Pin numpy to >=2.1 | Pin numpy to <=2.1
Pin numpy to >=2.1 | Pin numpy to ==2.1
It needs node 18+ | It needs node 18
Backups are encrypted | Backups are unencrypted
Backups are encrypted | Backups aren't encrypted
Backups are encrypted | Backups are hardly encrypted
Never restart the writer first | Restart the writer first
Everybody may merge | Nobody may merge
All tests run on Linux | Some tests run on Linux
The cache is on | The cache is off
I believe that the cache is warm | I doubt that the cache is warm
Retry if it fails | Retry unless it fails
Lock the door before lunch | Lock the door after lunch
At least 5 users may log in | At most 5 users may log in
The client sends and the server waits | The server sends and the client waits
Prefer tabs over spaces | Prefer spaces over tabs
Move files from A to B | Move files from B to A
Settings are in etc/app.toml | Settings are in etc/app.yaml
The flag is --dry-run | The flag is --no-dry-run
The ratio is 1:2 | The ratio is 2:1
The state is x = 5 | The state is x != 5
Users is > 5 | Users is >= 5
It must be signed | It may be signed
Ship it with tests | Ship it without tests
The port is 8080 | The port is 8080 in staging
The port is 8080 (only in staging) | The port is 8080
We deploy weekly. Except in August. | We deploy weekly.
"""


@pytest.mark.spec("L9", "3.5")
@pytest.mark.parametrize("line", OLD_AND_NEW.strip().splitlines())
def test_sixty_corrections_in_varied_words_are_kept(line: str) -> None:
    """After a search, by the author and by somebody else, and when it is derived from a digest."""
    known, correction = line.split(" | ")
    for who, shown_by in (("ada", "search"), ("ben", "search"), ("ben", "digest")):
        with commonplace.open("memory:") as book:
            old = book.as_actor("ada").remember(known, shared=True)
            with book.run(run_id="r") as run, run.agent(who) as me:
                if shown_by == "search":
                    assert old.item_id in [hit.id for hit in me.search(known).results]
                    kept = me.remember(correction, shared=True)
                else:
                    receipt = str(me.digest(known).receipt_id)
                    kept = me.remember(correction, shared=True, parents=[receipt])
            assert kept.outcome in ("stored", "flagged"), (who, shown_by, kept.reason)
            assert kept.item_id != old.item_id


@pytest.mark.spec("L9", "3.5")
@pytest.mark.parametrize("end", ["forget", "supersede", "archive"])
def test_a_receipt_of_something_that_ended_keeps_nothing_out(book: Book, end: str) -> None:
    ada, ben = book.as_actor("ada"), book.run(run_id="r").agent("ben")
    ada.remember("The lift in the hall is slow", shared=True)
    old = str(ada.remember("The VPN is required", shared=True).item_id)
    receipt = str(ben.digest("is the VPN required, and is the lift slow?").receipt_id)
    assert ben.remember("The VPN is required", parents=[receipt]).outcome == "rejected"
    match end:
        case "forget":
            ada.forget(old, confirm="FORGET")
        case "supersede":
            ada.remember("Nobody needs a VPN", shared=True, supersedes=old)
        case "archive":
            ada.memory.archive(old)
    assert ben.remember("The VPN is required", parents=[receipt]).outcome == "stored"
    assert ben.remember("The lift in the hall is slow", parents=[receipt]).outcome == "rejected"


@pytest.mark.spec("L9", "L5", "3.5")
@pytest.mark.parametrize("by_receipt", [False, True])
@pytest.mark.parametrize("again", ["The VPN is required", "As noted earlier, the VPN is required."])
def test_what_has_expired_since_it_was_shown_is_said_again_without_being_an_echo(
    book: Book, again: str, by_receipt: bool
) -> None:
    ada, ben = book.as_actor("ada"), book.run(run_id="r").agent("ben")
    now = datetime.now(UTC)
    ada.remember("The lift in the hall is slow", shared=True)
    old = str(ada.remember("The VPN is required", shared=True, valid_until=now + timedelta(hours=1)).item_id)
    receipt = str(ben.digest("is the VPN required, and is the lift slow?").receipt_id)
    parents = [receipt] if by_receipt else []
    assert ben.remember(again, parents=parents).outcome == "rejected", "it holds, and was shown"
    ada.memory.revise(old, valid_until=now - timedelta(hours=1))
    kept = ben.remember(again, shared=True, parents=parents)
    assert kept.outcome == "stored", kept.reason
    assert ben.remember("The lift in the hall is slow", parents=parents).outcome == "rejected"
    past = ben.remember(again, valid_until=now - timedelta(hours=2), parents=parents)
    assert past.outcome in ("rejected", "merged"), "said of a time for which it was shown"


@pytest.mark.spec("L9", "3.5")
def test_an_echo_with_another_time_is_an_echo(book: Book) -> None:
    ada, ben = book.as_actor("ada"), book.run(run_id="r").agent("ben")
    now, day = datetime.now(UTC), timedelta(days=1)
    ada.remember(SAID, shared=True, valid_from=now - day, valid_until=now + 3 * day)
    ben.search("cache of Orion")
    times = [
        {"valid_from": now - 2 * day},
        {"valid_from": now + day},
        {"valid_until": now + 9 * day},
        {"valid_from": now - 9 * day, "valid_until": now - day / 2},
    ]
    for time_given in times:
        assert ben.remember(SAID, **time_given).outcome == "rejected", time_given  # type: ignore[arg-type]
    assert ben.remember(SAID, valid_from=now + 4 * day).outcome == "stored", (
        "of a time that nothing was said of"
    )
