"""What people and agents do to memory that it must withstand: rights, contradictions, echoes, erasure, hand edits."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import commonplace
from commonplace import Book
from commonplace.errors import BadInput, CommonplaceError, Conflict, Denied, NotFound
from commonplace.files.scan import look_for
from commonplace.surfaces.tools import Tools

KEY = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
TEN = "one two three four five six seven eight nine ten"


@pytest.fixture
def book() -> Iterator[Book]:
    with commonplace.open("memory:") as opened:
        yield opened


@pytest.fixture
def team(book: Book) -> dict[str, Any]:
    roles = {"ada": "developer", "bob": "qa", "lee": "librarian"}
    return {name: book.as_actor(name, role=role) for name, role in roles.items()}


def live(of: Any, **which: Any) -> list[str]:
    return [item.text for item in of.memory.list(**which)]


# cores are for keepers of memory


@pytest.mark.spec("3.4")
def test_no_way_leads_into_a_core_but_a_keepers_choice(team: dict[str, Any]) -> None:
    ada, lee = team["ada"], team["lee"]
    lee.memory.set_core("auth", name="Auth")
    lee.remember(TEN, core="auth")
    skipped = ada.remember("Refresh tokens never rotate", core="auth")
    ada.memory.resolve(skipped, "skip")
    with pytest.raises(Denied):
        ada.memory.restore(skipped.item_id)
    forgotten = ada.remember("Cookies are always secure", core="auth")
    ada.forget(forgotten.item_id, confirm="FORGET")
    with pytest.raises(Denied):
        ada.memory.restore(forgotten.item_id)
    near = ada.remember(f"{TEN} eleven", core="auth")
    assert near.held.why == "near_duplicate"
    ada.memory.resolve(near, "create", "because")
    assert ada.memory.get(near.item_id).held.why == "proposal"
    entry = ada.remember("Sessions live in redis", core="auth")
    lee.memory.resolve(entry, "create")
    acts: list[Any] = [
        lambda: ada.memory.revise(entry.item_id, text="Sessions live nowhere"),
        lambda: ada.memory.verify(entry.item_id),
    ]
    for act in acts:
        with pytest.raises(Denied):
            act()
    assert live(ada, core="auth") == [TEN, "Sessions live in redis"]


@pytest.mark.spec("3.4")
def test_a_core_that_requires_verification_shows_only_what_was_verified(team: dict[str, Any]) -> None:
    lee = team["lee"]
    lee.memory.set_core("checked", config={"require_verification": True, "min_confidence": 0.5})
    assert lee.remember("No confidence is none.", core="checked").outcome == "rejected"
    kept = lee.remember("The checksum is sha256.", core="checked", confidence="high", source_type="manual",
                        code_refs=[{"file": "a.py", "symbol": "digest"}])  # fmt: skip
    assert (kept.outcome, live(lee, core="checked")) == ("flagged", [])
    lee.memory.verify(kept.item_id)
    (item,) = lee.memory.list(core="checked")
    assert (item.verified_by, item.confidence, item.source_type) == ("lee", 0.9, "manual")


@pytest.mark.spec("3.4", "L5")
def test_a_private_core_is_as_if_it_were_not_there(book: Book, team: dict[str, Any]) -> None:
    ada, lee = team["ada"], team["lee"]
    book.memory.set_core("hush", visibility="private", config={"min_confidence": 0.7})
    for who in (ada, lee):
        with pytest.raises(NotFound):
            who.remember("anything", core="hush", confidence=0.1)
    with pytest.raises(NotFound):
        lee.memory.set_core("hush", visibility="team", owner="lee")
    assert book.remember("mine alone", core="hush", confidence=0.9, shared=True).outcome == "stored"
    assert live(ada) == []


# contradictions


@pytest.mark.spec("3.3", "L5")
def test_nothing_contradicts_silently_however_it_comes_to_stand(book: Book, team: dict[str, Any]) -> None:
    ada, bob, lee = team["ada"], team["bob"], team["lee"]
    first = ada.remember(key="limit", value=60, shared=True)
    other = bob.remember(key="limit", value=90, shared=True)
    lee.memory.resolve(other, "old")
    bob.memory.restore(other.item_id)
    assert bob.memory.get(other.item_id).status == "held"  # it waits again
    mine = ada.remember(key="mine", value=1)
    book.remember(key="mine", value=2)
    with pytest.raises(Conflict, match="mine"):
        ada.memory.share(mine.item_id)
    gone = ada.remember(key="back", value=1, shared=True)
    ada.forget(gone.item_id, confirm="FORGET")
    bob.remember(key="back", value=2, shared=True)
    with pytest.raises(Conflict):
        ada.memory.restore(gone.item_id)
    then = datetime(2026, 1, 1, tzinfo=UTC)
    early = ada.remember(key="ceo", value="A", valid_until=then, shared=True)
    ada.remember(key="ceo", value="B", valid_from=then, shared=True)
    with pytest.raises(Conflict):
        ada.memory.revise(early.item_id, valid_until=then + timedelta(days=9))
    with pytest.raises(BadInput):
        ada.memory.revise(early.item_id, valid_from=then)
    assert ada.memory.get(first.item_id).value == 60


@pytest.mark.spec("3.3")
@pytest.mark.parametrize(
    ("one", "two"), [("Prod", "prod"), ("5433", 5433), (True, 1), (None, "null"), (1.5, 1), ([1], [True])]
)
def test_values_are_the_same_only_if_they_are_the_very_same(team: dict[str, Any], one: Any, two: Any) -> None:
    team["ada"].remember(key="k", value=one)
    assert team["ada"].remember(key="k", value=one).outcome == "merged"
    assert team["ada"].remember(key="k", value=two).held.why == "dispute"


@pytest.mark.spec("3.3", "3.4")
def test_only_ones_own_is_superseded_without_a_choice(book: Book, team: dict[str, Any]) -> None:
    ada, bob, lee = team["ada"], team["bob"], team["lee"]
    fact = book.remember(key="db.port", value=5433)
    taken = ada.remember(key="db.port", value=1, supersedes=fact.item_id)
    assert (taken.outcome, taken.held.why, taken.superseded) == ("flagged", "dispute", ())
    assert live(bob, key="db.port") == ["db.port: 5433"]
    book.memory.resolve(taken, "new", rationale="it moved")
    assert book.memory.get(str(fact.item_id)).superseded_by == taken.item_id
    lee.memory.set_core("auth", name="Auth")
    entry = lee.remember("Tokens expire after an hour", core="auth")
    proposal = ada.remember("Tokens never expire at all", core="auth", supersedes=entry.item_id)
    assert live(bob, core="auth") == ["Tokens expire after an hour"]
    lee.memory.resolve(proposal, "create")
    assert live(bob, core="auth") == ["Tokens never expire at all"]
    for wrong in ({"supersedes": proposal.item_id}, {"repository": True, "key": "k", "value": "v"}):
        with pytest.raises(BadInput):
            ada.remember(None if "key" in wrong else "Tea is served at four.", **wrong)


@pytest.mark.spec("3.5", "L5")
def test_the_same_words_are_not_merged_into_what_says_something_else_by_now(team: dict[str, Any]) -> None:
    ada = team["ada"]
    kept = ada.remember("The build uses gcc twelve")
    ada.memory.revise(kept.item_id, text="The deploy goes through argo only")
    again = ada.remember("The build uses gcc twelve")
    assert (again.outcome, again.item_id != kept.item_id) == ("stored", True)


@pytest.mark.spec("L8")
def test_merging_and_trust_lower_no_label(team: dict[str, Any]) -> None:
    ada = team["ada"]
    ada.remember(TEN, shared=True)
    held = ada.remember(f"{TEN} eleven", sensitivity="sensitive", reason="a secret reason")
    with pytest.raises(Conflict, match="more sensitive"):
        ada.memory.resolve(held, "merge")
    with pytest.raises(BadInput, match="trust"):
        ada.remember("brought from elsewhere", trust="high", provenance={"source_kind": "import"})
    assert (
        ada.memory.get(ada.remember("brought along", provenance={"source_kind": "import"}).item_id).trust
        == "low"
    )


# who sees what


@pytest.mark.spec("L5", "3.9")
def test_nothing_names_what_its_reader_may_not_see(book: Book, team: dict[str, Any]) -> None:
    ada, bob, lee = team["ada"], team["bob"], team["lee"]
    shared = str(bob.remember(key="x.y", value=1, shared=True).item_id)
    ada.remember(key="x.y", value=2)  # a dispute that bob may not know
    assert bob.memory.get(shared).disputed == ()
    secret = str(bob.remember("my private doubts about alpha", parents=[shared]).item_id)
    assert secret not in str(lee.forget(shared, erase=True, dry_run=True))
    open_ = str(ada.remember("alpha owns the queue", shared=True).item_id)
    derived = str(bob.remember("bob thinks of alpha in private", parents=[open_]).item_id)
    ada.memory.unshare(open_)
    ada.memory.share(open_)
    with pytest.raises(NotFound):
        book.as_actor("carol").event(derived)
    ada.forget(open_, confirm="FORGET")
    with pytest.raises(NotFound):
        bob.memory.get(open_)
    assert open_ not in [item.id for item in bob.memory.list(status=None)]
    with pytest.raises(Denied):
        bob.memory.tidy(dry_run=True)
    book.access.relabel(shared, sensitivity="sensitive", reason="r")
    with pytest.raises(NotFound):
        ada.memory.link(str(ada.remember("mine to link").item_id), "related", shared)
    with pytest.raises(NotFound):
        lee.forget(shared, confirm="FORGET")


@pytest.mark.spec("3.9")
def test_a_tier_that_is_closed_is_closed_on_every_path(book: Book, team: dict[str, Any]) -> None:
    book.remember("a crimson fact for all")
    book.documents.log("a crimson day")
    book.access.grant("bob", tiers={"long_term": "none", "working": "none", "episodic": "none"})
    bob = team["bob"]
    assert not any(event.kind.startswith("memory.") for event in bob.events())
    assert bob.search("crimson").results == ()
    with pytest.raises(Denied):
        bob.remember("x happened", kind="episode", occurred_at=datetime.now(UTC))


@pytest.mark.spec("3.2", "6.12", "L7")
def test_papers_follow_their_labels_and_cleared_sessions_are_gone(book: Book, team: dict[str, Any]) -> None:
    ada, bob = team["ada"], team["bob"]
    noted = ada.documents.add_to_task("T two", "decisions", "the pelican is confidential")
    book.access.relabel(noted.id, sensitivity="sensitive", reason="r")
    assert "pelican" not in str(bob.documents.task("T two"))
    assert bob.search("pelican").results == ()
    ada.documents.add_to_session("Bird", "a falcon was seen")
    before = book.head
    assert bob.search("falcon").total == 1
    ada.documents.clear_session("Bird")
    assert bob.search("falcon", at=before).results == ()
    assert "falcon" not in str([event.payload for event in bob.events()])
    assert "falcon" in book.documents.session("Bird", at=before)
    ada.documents.add_to_session("修复 bug", "one")
    ada.documents.add_to_session("添加 bug", "two")
    assert "two" not in ada.documents.session("修复 bug")


@pytest.mark.spec("3.5", "2.7")
def test_a_secret_hides_nowhere(book: Book, team: dict[str, Any]) -> None:
    ada, bob = team["ada"], team["bob"]
    ada.documents.record_gate("T", "PLAN", "GO", reason=f"use {KEY}")
    ada.remember("a note with a tag", tags=[KEY], provenance={"channel": KEY}, shared=True)
    book.access.grant("bob", ceiling="sensitive")
    for shown in (bob.documents.gates("T"), bob.memory.list(), bob.search("note").results):
        assert KEY not in str(shown)
    kept = str(ada.remember("harmless", shared=True).item_id)
    ada.memory.revise(kept, text=f"now with {KEY} inside")
    assert book.memory.get(kept).sensitivity == "sensitive"
    book.memory.configure(secrets="reject")
    acts: list[Any] = [
        lambda: ada.memory.revise(kept, text=f"again {KEY}"),
        lambda: ada.documents.log(KEY),
        lambda: ada.documents.write_notes(KEY),
    ]
    for act in acts:
        with pytest.raises(BadInput, match="secret"):
            act()
    book.memory.configure(secrets="mask")
    assert KEY not in str(ada.documents.log(f"the key is {KEY}").payload)


# recall is no evidence


@pytest.mark.spec("L9")
def test_no_part_of_what_was_delivered_comes_back_as_evidence(book: Book, team: dict[str, Any]) -> None:
    words = " ".join(f"word{n}" for n in range(120))
    book.remember(f"{words} quartz", tags=["alpha", "beta", "gamma"])
    book.remember(
        "the deploy broke on the first try", kind="episode", occurred_at=datetime(2026, 3, 1, tzinfo=UTC)
    )
    me = book.run(run_id="r").agent("ada")
    hit = me.search("quartz").results[0]
    for text in (hit.content, hit.text):
        assert me.remember(text, override="x").reason.startswith("an echo")
    read = Tools(book).call("memory.read", {"target": "long_term"}, actor="ada", run_id="r")["data"][
        "content"
    ]
    for line in read.splitlines():
        if "deploy broke" in line:
            assert (
                Tools(book).call(
                    "memory.write", {"target": "long_term", "content": line}, actor="ada", run_id="r"
                )["data"]["outcome"]
                == "rejected"
            )
    assert [item.text for item in me.memory.list(kind="episode")] == ["the deploy broke on the first try"]
    assert me.remember("the deploy broke on the first try").outcome == "rejected"
    bob = team["bob"]
    bob.search("quartz")
    assert bob.remember(f"{words} quartz", run_id="made-up", override="x").outcome == "rejected"


@pytest.mark.spec("L9")
def test_an_origin_counts_once(book: Book, team: dict[str, Any]) -> None:
    ada, bob = team["ada"], team["bob"]
    kept = ada.remember("the tide is high at noon", shared=True, provenance={"channel": "mail"})
    for n in range(5):
        bob.remember("the tide is high at noon", provenance={"channel": f"chat {n}"}, run_id=f"r{n}")
        ada.remember("the tide is high at noon", provenance={"channel": f"chat {n}"}, run_id=f"s{n}")
    assert len(book.memory.get(str(kept.item_id)).corroborated) == 1
    corrected = ada.search("tide").results[0]
    assert ada.remember("the tide is high at nine", supersedes=corrected.id, shared=True).outcome == "stored"


# what is off


@pytest.mark.spec("L5")
def test_what_cannot_be_meant_is_refused_and_nothing_is_dropped(book: Book, team: dict[str, Any]) -> None:
    ada = team["ada"]
    id = str(ada.remember("Tea is served at four.").item_id)
    for act in (
        lambda: ada.forget(provenance={}, confirm="FORGET"),
        lambda: ada.forget(5, confirm="FORGET"),
        lambda: ada.remember("abc", key="kk", value=5),
        lambda: ada.remember("abc", observed_at=datetime.now(UTC)),
        lambda: ada.remember("abc", title="t" * 1001),
        lambda: ada.remember("abc", links=[("related", "nope")]),
        lambda: ada.memory.list(status="bogus"),
        lambda: ada.memory.list(kind="bogus"),
        lambda: ada.memory.list(provenance="x"),
        lambda: ada.memory.revise(id, text="other", if_position="x"),
        lambda: ada.memory.export("/nonexistent/folder/x"),
        lambda: ada.memory.resolve(id, "skip"),
        lambda: ada.documents.record_gate("T", "PLAN", "GO", trace_id="no"),
        lambda: ada.documents.record_gate("T", "PLAN", "GO", iteration_index=3, max_iterations=2),
        lambda: book.memory.configure(retention_days=-1),
        lambda: book.memory.configure(retention_days=10**12),
        lambda: book.memory.configure(budget={"max_items": -3}),
        lambda: book.memory.configure(person="owner"),
        lambda: book.memory.configure(person={"a": 1}),
        lambda: book.memory.set_core("c", config={"min_confidence": 7}),
    ):
        with pytest.raises(CommonplaceError):
            act()
    assert live(ada) == ["Tea is served at four."]
    with pytest.raises(Denied):
        team["lee"].memory.configure(person="ada")


# files


@pytest.mark.spec("L10", "3.7")
def test_erasing_reaches_every_folder_that_shows_the_book(tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "team.db") as book:
        ada = book.as_actor("ada")
        kept = ada.remember("Postgres listens on quokkaport", shared=True)
        mirror = book.mirror.folder(tmp_path / "notes", person="kim")
        gate = ada.documents.record_gate("Task A", "PLAN", "GO", reason="customer wombatcorp agreed")
        ada.documents.record_gate("Task A", "COMPLETION", "GO")
        note = ada.documents.add_to_session("Task A", "the numbat sleeps")
        mirror.sync()
        session = tmp_path / "notes" / "memories" / "session" / "task-a-notes.md"
        session.write_text(session.read_text() + "\nby hand\n")
        mirror.sync()
    with commonplace.open(
        tmp_path / "team.db"
    ) as book:  # another process would not know of the folder, either
        book.forget(str(kept.item_id), confirm="FORGET", erase=True)
        book.erase([gate.id, note.id])
        assert [stone.id for stone in book.memory.tombstones()] == [kept.item_id]
        book.purge()
        words = ["quokkaport", "wombatcorp", "numbat"]
        assert book.admin.find_text(words) == []
        assert look_for(words, [tmp_path]) == []


def _open_and_close(path: str, queue: Any) -> None:
    try:
        with commonplace.open(path, mirror=True) as book:
            book.remember("the same thing by everybody")
        queue.put("")
    except Exception as error:
        queue.put(repr(error))


@pytest.mark.spec("3.7")
def test_many_processes_open_a_book_with_its_markdown_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    path = str(tmp_path / "team.db")
    commonplace.open(path).close()
    workers = [context.Process(target=_open_and_close, args=(path, queue)) for _ in range(6)]
    for worker in workers:
        worker.start()
    said = [queue.get(timeout=100) for _ in workers]
    for worker in workers:
        worker.join()
    assert said == [""] * 6
    assert (tmp_path / "MEMORY.md").read_text().count("the same thing") == 1


@pytest.mark.spec("3.7", "L5")
def test_trouble_with_the_markdown_is_told_and_hides_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def break_it() -> None:
        with commonplace.open(tmp_path / "team.db", mirror=True) as book:
            book.remember("kept all the same")
            (tmp_path / "MEMORY.md").unlink()
            (tmp_path / ".mirror" / "base").rename(tmp_path / "elsewhere")
            (tmp_path / ".mirror" / "base").write_text("in the way")
            raise KeyError("original")

    with pytest.raises(KeyError, match="original") as raised:
        break_it()
    assert "markdown could not be written" in str(raised.value.__notes__)
    with commonplace.open(tmp_path / "team.db") as book:
        assert live(book) == ["kept all the same"]
    assert "could not be taken in" in caplog.text


@pytest.mark.spec("3.7")
def test_hand_edits_change_only_what_was_edited(tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "team.db", mirror=True) as book:
        book.remember(key="ignore.*", value="1.10")
        lee = book.as_actor("kim", role="librarian")
        assert lee.access.rights().role == "librarian"
        mirror = book.mirror.folder(person="kim")
        mirror.sync()
        page = tmp_path / "MEMORY.md"
        page.write_text(page.read_text().replace("1.10", "1.20"))
        mirror.sync()
        (item,) = book.memory.list()
        assert (item.key, item.value) == ("ignore.*", "1.20")
        assert lee.access.rights().role == "librarian"  # a hand edit gives nobody another role
        (tmp_path / "NOTES.md").write_text(f"- Objective: hide {KEY}\n- Blockers: none\n")
        mirror.sync()
        assert KEY not in book.documents.notes()
        text = page.read_text()
        page.write_text(text[:60])
        mirror.sync()
        assert [one.text for one in book.memory.list()] == ["ignore.*: 1.20"]


@pytest.mark.spec("3.1")
def test_memory_md_keeps_to_its_size_marks_and_all(tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "team.db", mirror=True) as book:
        book.memory.configure(max_size_kb=10)
        told = [book.remember(key=f"fact.{n}", value=n).overflow for n in range(160)]
        book.mirror.folder().sync()
        assert (tmp_path / "MEMORY.md").stat().st_size <= 10 * 1024
        assert told[0] == ""
        assert "full" in told[-1]
        book.memory.configure(max_size_kb=100)
        long = [book.remember(f"number {n} " + f"w{n} " * 15_000).overflow for n in range(3)]
        assert "full" in long[-1]


# what a third look found

ALIKE = "Postgres listens on port 5433 at host alpha in the second rack"


@pytest.mark.spec("3.7", "L5")
def test_a_hand_edit_that_contradicts_is_told_and_stops_nothing_else(tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "team.db", mirror=True) as book:
        book.remember(key="a.port", value=1)
        book.remember(key="b.port", value=2)
        book.mirror.folder().sync()
        page = tmp_path / "MEMORY.md"
        page.write_text(page.read_text().replace("**b.port**", "**a.port**") + "\n- **c.port**: 3\n")
        report = book.mirror.folder().sync()
        assert sorted(taken.ok for taken in report.taken) == [False, True]
        assert any("stands already" in taken.note for taken in report.taken)
        assert [one.value for one in book.memory.list(key="c.port")] == [3]
        other = book.remember("The lift is slow on Mondays.")
        assert book.forget(str(other.item_id), erase=True, confirm="FORGET").items
    with commonplace.open(tmp_path / "team.db", mirror=True) as book:
        assert len(book.memory.list()) == 3


@pytest.mark.spec("3.5", "L5")
def test_nothing_is_merged_into_what_is_gone_or_hidden(book: Book, team: dict[str, Any]) -> None:
    ada, bob = team["ada"], team["bob"]
    first = str(ada.remember(ALIKE, shared=True).item_id)
    held = bob.remember(f"{ALIKE} today", shared=True, reason="seen in the rack")
    assert held.outcome == "flagged"
    ada.memory.unshare(first)
    ada.memory.revise(first, reason="NEVER SHARED", citations=["private/path:3"])
    with pytest.raises(Conflict, match="does not stand any more"):
        bob.memory.resolve(held, "merge")
    assert not any("NEVER SHARED" in str(event.payload) for event in bob.events())
    ada.memory.share(first)
    ada.forget(first, confirm="FORGET")
    with pytest.raises(Conflict, match="create it, or skip it"):
        bob.memory.resolve(held, "merge")
    assert bob.memory.resolve(held, "create", rationale="it stands alone now").status == "live"


@pytest.mark.spec("3.3", "L5")
def test_settling_makes_no_silent_contradiction(book: Book, team: dict[str, Any]) -> None:
    ada, bob, lee = team["ada"], team["bob"], team["lee"]
    first = ada.remember(key="limit", value=60, shared=True)
    other = bob.remember(key="limit", value=90, shared=True)
    assert other.outcome == "flagged"
    third = ada.remember(key="limit", value=120, supersedes=True)
    assert book.memory.get(str(third.item_id)).shared  # a correction is for those who know what it corrects
    lee.memory.resolve(other, "new", rationale="measured")
    assert [one.value for one in book.memory.list(key="limit")] == [90]
    assert book.memory.get(str(first.item_id)).superseded_by == third.item_id
    both = ada.remember(key="limit", value=130, shared=True)
    lee.memory.resolve(both, "both", rationale="one each for the two regions")
    kept = str(both.item_id)
    assert ada.memory.revise(kept, tags=["regions"]).tags == ("regions",)
    assert lee.memory.verify(kept).verified_by == "lee"
    assert ada.memory.archive(kept).status == "archived"
    assert ada.memory.restore(kept).status == "live"


@pytest.mark.spec("3.3", "L5")
def test_settling_one_dispute_says_nothing_against_what_another_one_has_let_stand(
    team: dict[str, Any],
) -> None:
    ada, bob, lee = team["ada"], team["bob"], team["lee"]
    ada.remember(key="limit", value=60, shared=True)
    other = bob.remember(key="limit", value=90, shared=True)
    beside = ada.remember(key="limit", value=130, shared=True)
    lee.memory.resolve(beside, "both", rationale="one each for the two regions")
    with pytest.raises(Conflict, match="130"):
        lee.memory.resolve(other, "new", rationale="measured")
    assert [one.value for one in lee.memory.list(key="limit")] == [60, 130]


@pytest.mark.spec("3.3")
def test_a_contradiction_within_an_earlier_time_is_seen(team: dict[str, Any]) -> None:
    ada, bob = team["ada"], team["bob"]
    year = {n: datetime(n, 1, 1, tzinfo=UTC) for n in range(2020, 2024)}
    for value, start in ((1, 2020), (2, 2022)):
        kept = ada.remember(
            key="k", value=value, valid_from=year[start], valid_until=year[start + 1], shared=True
        )
        assert kept.outcome == "stored"
    against = bob.remember(key="k", value=9, valid_from=year[2020], valid_until=year[2021], shared=True)
    assert (against.outcome, against.held and against.held.why) == ("flagged", "dispute")


@pytest.mark.spec("3.4")
def test_verifying_is_no_way_round_what_was_decided(team: dict[str, Any]) -> None:
    ada, lee = team["ada"], team["lee"]
    lee.memory.set_core("ops", name="Operations")
    old = lee.remember("Deploys need one approval.", core="ops")
    dropped = ada.remember("Deploys need no approval at all, as far as I know.", core="ops")
    lee.memory.resolve(dropped, "skip")
    with pytest.raises(Conflict, match="dropped"):
        lee.memory.verify(str(dropped.item_id))
    better = ada.remember(
        "Deploys need two approvals of other teams.", core="ops", supersedes=str(old.item_id)
    )
    assert better.outcome == "flagged"
    assert lee.memory.verify(str(better.item_id)).status == "live"
    assert [one.id for one in lee.memory.list(core="ops")] == [better.item_id]


@pytest.mark.spec("L5", "L4")
def test_what_is_not_taken_over_is_told(team: dict[str, Any]) -> None:
    ada = team["ada"]
    ada.remember("The lift is slow on Mondays.", id="lift")
    again = ada.remember("The lift is slow on Mondays.", shared=True, tags=["lift"], sensitivity="sensitive")
    assert again.outcome == "merged"
    assert "not taken over: tags, shared, sensitivity" in again.reason
    with pytest.raises(Conflict, match="other content"):
        ada.remember("The lift is slow on Mondays.", shared=True, id="lift")


@pytest.mark.spec("3.4", "3.7")
def test_a_core_that_becomes_private_takes_its_entries_along(tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "team.db", mirror=True) as book:
        lee, ada = book.as_actor("lee", role="librarian"), book.as_actor("ada", role="developer")
        lee.memory.set_core("ops", name="Operations")
        lee.remember("Deploys need two approvals.", core="ops")
        assert len(ada.memory.list(core="ops")) == len(ada.search("approvals").results) == 1
        lee.memory.set_core("ops", visibility="private")
        assert ada.memory.list(core="ops") == []
        assert ada.search("approvals").results == ()
        book.mirror.folder().sync()
        assert not (tmp_path / "memories" / "cores").exists()
        lee.memory.set_core("ops", visibility="team")
        assert len(ada.memory.list(core="ops")) == 1


@pytest.mark.spec("3.3", "L10")
def test_secrets_said_beside_an_item_are_taken_out(book: Book, team: dict[str, Any]) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    ada, lee = team["ada"], team["lee"]
    one = str(ada.remember("The lift is slow on Mondays.", shared=True, override=secret).item_id)
    two = str(ada.remember("The stairs are steep.", shared=True).item_id)
    ada.memory.revise(one, tags=["lift"], why=f"as {secret} says")
    ada.memory.link(one, f"like {secret}", two)
    lee.memory.set_core("ops", name=secret, description=f"of {secret}")
    ada.forget(two, confirm="FORGET", reason=secret)
    said = [str(event.payload) for event in book.events()]
    assert len(said) > 5
    assert not any(secret in one for one in said)


@pytest.mark.spec("L10", "3.2")
def test_an_erased_gate_leaves_the_copies_that_people_made(tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "team.db", mirror=True) as book:
        gate = book.documents.record_gate("Login", "PLAN", "GO", reason="quokka words")
        book.mirror.folder().sync()
        (log,) = tmp_path.rglob("*.ndjson")
        log.write_text(log.read_text() + '{"mine": true}\n')
        book.documents.record_gate("Login", "COMPLETION", "GO")
        book.mirror.folder().sync()
        book.erase(gate.id)
        texts = [path.read_text() for path in log.parent.iterdir()]
        assert len(texts) == 2
        assert not any("quokka" in text for text in texts)
        assert any('{"mine": true}' in text for text in texts)


@pytest.mark.spec("L9")
def test_what_a_comparison_shows_is_no_new_evidence(team: dict[str, Any]) -> None:
    ada, bob = team["ada"], team["bob"]
    first = str(ada.remember(ALIKE, shared=True).item_id)
    assert bob.remember(f"{ALIKE} today", shared=True).held is not None
    assert bob.remember(ALIKE, shared=True).outcome == "rejected"
    assert ada.memory.get(first).corroborated == ()


@pytest.mark.spec("3.7", "3.8")
def test_days_places_and_ends_can_be_changed_back(tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "team.db", mirror=True) as book:
        when = datetime(2026, 3, 1, tzinfo=UTC)
        told = str(book.remember("We moved offices.", kind="episode", occurred_at=when).item_id)
        fact = str(book.remember(key="k", value=1, valid_until=when).item_id)
        assert book.memory.revise(fact, valid_until=None).valid_until is None
        book.mirror.folder().sync()
        page = tmp_path / "MEMORY.md"
        page.write_text(page.read_text().replace("2026-03-01", "2026-03-02"))
        book.mirror.folder().sync()
        assert (book.memory.get(told).occurred_at or datetime.now(UTC)).day == 2
        book.memory.configure(places={"MEMORY.md": "TEAM.md"})
        assert book.memory.configure(places={}).places == {}
        lee = book.as_actor("lee", role="librarian")
        lee.forget(told, confirm="FORGET")
        assert lee.memory.restore(told).status == "live"


@pytest.mark.spec("3.9")
def test_who_may_not_read_a_tier_is_denied_and_it_is_written_down(book: Book, team: dict[str, Any]) -> None:
    kept = str(book.remember("The lift is slow on Mondays.").item_id)
    book.access.grant("ada", tiers={"long_term": "none"})
    for id in (kept, "nowhere"):
        before = book.head
        with pytest.raises(Denied, match="long_term"):
            team["ada"].memory.get(id)
        assert [event.kind for event in book.events(before)] == ["access.denied"]
    before = book.head
    assert team["ada"].search("lift", tiers=["long_term"]).results == ()
    assert [event.kind for event in book.events(before)] == ["access.denied"]


@pytest.mark.parametrize(
    "call",
    [
        lambda book: book.remember("x y z", kind=[]),
        lambda book: book.remember("x y z", kind=[1]),
        lambda book: book.remember("x y z", parents=None),
        lambda book: book.memory.list(kind=[]),
        lambda book: book.search("x", mode=[]),
        lambda book: book.search("x", tiers=5),
        lambda book: book.search("x", cores=5),
        lambda book: book.search("x", agent_filter=5),
        lambda book: book.documents.add_to_task("a", None, "t"),
        lambda book: book.documents.write_notes("- Objective: x", if_position=""),
        lambda book: book.memory.repository_fact("a", "b", citations=5, reason="c", category="user"),
        lambda book: book.memory.suggestions([]),
        lambda book: book.memory.traverse(book.memory.list()[0].id, relations=5),
        lambda book: book.documents.restore(tasks=5),
        lambda book: book.documents.restore(tasks=[[]]),
        lambda book: book.documents.restore(days=["\ud800"]),
        lambda book: book.memory.import_("\ud800"),
        lambda book: book.admin.export(["x"]),
        lambda book: book.admin.import_(5),
        lambda book: book.admin.backup(None),
        lambda book: book.admin.copy("elsewhere"),
        lambda book: book.verify(progress=[]),
        lambda book: book.admin.find_text(5),
        lambda book: list(book.watch(timeout=float("nan"))),
        lambda book: list(book.watch(timeout=10**400)),
        lambda book: book.digest("x", max_tokens="\ud800"),
        lambda book: book.digest("x", max_tokens=10**10),
        lambda book: book.prompt("x", parts=[[]]),
        lambda book: book.prompt("x", max_tokens=10**400),
        lambda book: book.run(run_id="r").agent("ada").receipts.salient([]),
        lambda book: book.run(run_id="r").agent("ada").receipts.salient("x", rules=[1]),
        lambda book: book.run(run_id="r").agent("ada").receipts.salient("x", shown=5),
        lambda book: book.run(run_id="r").agent("ada").receipts.window(shown=b"x"),
        lambda book: book.run(run_id="r").agent("ada").fail([[]]),
        lambda book: book.run(run_id="r").child(sources=[[]]),
        lambda book: book.work(name="it", id="w").board(limit=[]),
        lambda book: book.work(name="it", id="w").board(limit=-1),
        lambda book: book.work(name="it", id="w").complete_many(5),
        lambda book: book.work(name="it", id="w").orchestrate("ada", "x"),
        lambda book: book.memory.import_(5),
        lambda book: book.mirror.folder(5),
        lambda book: book.memory.revise(book.memory.list()[0].id, value="\ud800"),
        lambda book: book.memory.revise(book.memory.list()[0].id, idempotency_key=1.5, tags=["x"]),
    ],
)
def test_what_has_the_wrong_type_is_bad_input(call: Any) -> None:
    with commonplace.open("memory:") as book:
        book.remember(key="a", value="b")
        with pytest.raises(BadInput):
            call(book)
        assert len(book.memory.list()) == 1
        assert len(book.receipts.list()) == 0  # and what was refused has left none that cannot be read


@pytest.mark.spec("3.3")
def test_what_is_taken_away_from_an_item_is_gone(team: dict[str, Any]) -> None:
    ada = team["ada"]
    kept = ada.remember("Tea is served.", tags=["tea"], citations=["a.md:1"], reason="said so", title="tea")
    ada.memory.revise(kept.item_id, tags=None, citations=[], reason=None, title=None)
    item = ada.memory.get(kept.item_id)
    assert (item.tags, item.citations, item.reason, item.title) == ((), (), "", None)


@pytest.mark.spec("1.1", "1.5", "L5")
def test_an_event_that_only_looks_like_memory_s_changes_nothing_of_memory(book: Book) -> None:
    book.memory.configure(max_size_kb=1)
    ada = book.as_actor("ada")
    before = book.memory.get(str(book.remember("the mast is painted", shared=True).item_id))
    change = {"links": [["related", before.id]], "status": "forgotten"}
    for weight in (10**6, "much", [1]):
        ada.record(
            "sail.weighed",
            payload={
                "weight": weight, "changes": {before.id: change}, "placed": [[before.id, "ada", True, {"tags": ["x"]}]],
                "act": "restored", "key": "k", "shown": [before.id], "items": [{"id": before.id, "agent": "ada"}],
            },
        )  # fmt: skip
    kept = book.remember("The sails are of linen.", shared=True)
    assert (kept.outcome, kept.overflow) == ("stored", "")
    assert book.memory.get(before.id) == before
    assert ([*book.memory.list(tags=["x"])], book.memory.tombstones()) == ([], [])


@pytest.mark.spec("L5")
def test_a_tool_answers_whatever_it_is_called_with(book: Book) -> None:
    deep: Any = []
    for _ in range(10_000):
        deep = [deep]
    tools = Tools(book)
    for answer in (
        tools.call("memory.search", {"query": deep}),
        tools.call("memory.search", {"agent_filter": deep}),
        tools.call("memory.search", deep),
        tools.call(deep),
        tools.call("memory.search", {"query": "x"}, actor=deep),
        tools.call("memory.search", {"query": float("nan")}),
    ):
        assert answer["status"] in (400, 404), answer


@pytest.mark.spec("L5", "L10")
def test_a_flag_is_true_or_false_and_no_word_is_taken_for_true() -> None:
    with commonplace.open("memory:") as book:
        ada = book.as_actor("ada")
        kept = ada.remember("The diary is in the drawer", tags=["diary"])
        for call in (
            lambda: book.forget(tags=["diary"], erase="no", confirm="FORGET"),  # type: ignore[arg-type]
            lambda: book.forget(tags=["diary"], dry_run="no", confirm="FORGET"),  # type: ignore[arg-type]
            lambda: ada.remember("A secret plum", shared="no"),  # type: ignore[arg-type]
            lambda: ada.prompt("x", ignore_memory="no"),  # type: ignore[arg-type]
            lambda: ada.search("diary", explain=1),  # type: ignore[arg-type]
            lambda: book.access.grant("ada", role="qa", replace="no"),  # type: ignore[arg-type]
            lambda: book.erase(str(kept.id), dry_run="no"),  # type: ignore[arg-type]
        ):
            with pytest.raises(commonplace.BadInput, match="is neither True nor False"):
                call()
        assert [item.id for item in ada.memory.list()] == [kept.id]
