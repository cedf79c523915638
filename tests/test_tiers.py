"""The tiers and lifetimes of memory: daily logs, notes of sessions and tasks, gates, facts. On every engine."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import commonplace
from commonplace import Actor, Book
from commonplace.errors import BadInput, Conflict, Denied
from commonplace.memory.markdown import block, fields
from commonplace.memory.repository_facts import lasting_subject
from commonplace.state.policy import AgentMemory, AgentPolicy, Policy, SharingRule
from commonplace.state.requests import Open
from tests.serving import ledger_below

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.fixture
def ada(book: Book) -> Actor:
    return book.as_actor("ada", role="developer")


def log_of(book: Book | Actor) -> str:
    return "\n".join(one.markdown for day in book.documents.days() for one in book.documents.day(day))


@pytest.mark.spec("3.1")
def test_an_agents_result_is_logged_when_its_turn_ends(book: Book) -> None:
    with book.run(run_id="r") as run:
        with run.agent("ada") as me:
            me.write({"summary": "tea is green\nmostly", "confidence": 0.9, "error": "none"})
            me.write({"parts": ["leaf", "stem"], "long": "x" * 201})
        with run.agent("ben"):
            pass
    (ada, ben) = [one for day in book.documents.days() for one in book.documents.day(day)]
    heading, *lines = ada.markdown.split("\n")
    assert heading.startswith("### ")
    assert heading.endswith(" -- ada (confidence: 0.9)")
    assert lines == [
        f"- **long**: {'x' * 200}...",
        '- **parts**: ["leaf","stem"]',
        "- **summary**: tea is green mostly",
    ]
    assert (ben.about, ben.text, ben.run) == ("ben", "", "r")


@pytest.mark.spec("3.1", "2.6", "2.7")
def test_the_log_holds_only_what_every_agent_may_see(book: Book) -> None:
    agents = {
        "ada": AgentPolicy(share_output=("open",), not_shareable=("inner",)),
        "ben": AgentPolicy(memory=AgentMemory(log=False)),
        "cem": AgentPolicy(share_output=("open",)),
    }
    rules = (SharingRule("cem", ("ben",), ("whispered",)),)
    policy = Policy(
        strategy="selective", rules=rules, never_share=("never",), sensitive_fields=("hush",), agents=agents
    )
    ledger_below(book).submit("state.open", Open("r", "owner", policy))
    run = book.run(run_id="r")
    said = {
        "open": "told",
        "inner": "mine",
        "never": "no",
        "hush": "quiet-word",
        "whispered": "psst",
        "free": "quiet-word",
    }
    for agent in agents:
        run.agent(agent).finish(said)
    log = log_of(book)
    assert log.count("- **open**: told") == 2
    assert not any(word in log for word in ("mine", "no\n", "quiet-word", "psst", "ben"))
    for word in ("told", "quiet-word", "psst"):
        assert word not in log_of(book) or word == "told"
    isolated = Policy(strategy="isolated", agents={"ada": AgentPolicy()})
    ledger_below(book).submit("state.open", Open("i", "owner", isolated))
    book.run(run_id="i").agent("ada").finish({"open": "alone"})
    assert "alone" not in log_of(book)


@pytest.mark.spec("L10", "3.1")
def test_erasing_what_an_agent_wrote_takes_its_line_out_of_the_log(book: Book) -> None:
    run = book.run(run_id="r")
    run.agent("ada").finish({"found": "the hidden spring"})
    assert "hidden spring" in log_of(book)
    (change,) = book.events(kinds=("state.changed",))
    book.erase(change.id)
    assert "hidden spring" not in log_of(book)
    assert "hidden spring" not in str([event.payload for event in book.events()])


@pytest.mark.spec("3.1", "3.9")
def test_anybody_with_the_right_to_may_write_to_the_days_log(book: Book, ada: Actor) -> None:
    ada.documents.log("The build is red since noon.")
    ada.documents.log(f"the token was {SECRET} until today")
    lines = [one.text for day in ada.documents.days() for one in ada.documents.day(day)]
    assert lines == ["The build is red since noon.", "the token was [REDACTED] until today"]
    ben = book.as_actor("ben")
    assert [one.text for one in ben.documents.day(ben.documents.days()[0])] == [
        "The build is red since noon."
    ]
    book.access.grant("ben", tiers={"working": "read"})
    with pytest.raises(Denied, match="working"):
        ben.documents.log("me too")
    book.access.grant("ben", tiers={"working": "none"})
    with pytest.raises(Denied):
        ben.documents.days()
    for wrong in ("", "  ", "x" * 100_001):
        with pytest.raises(BadInput):
            ada.documents.log(wrong)
    for day in ("yesterday", "2026-02-30", 7):
        with pytest.raises(BadInput, match="2026-03-23"):
            ada.documents.day(day)  # type: ignore[arg-type]


@pytest.mark.spec("3.9", "L5")
def test_who_may_not_read_the_working_tier_is_refused_every_day_of_it(ada: Actor, book: Book) -> None:
    ada.documents.log("a day like any other")
    (day,) = ada.documents.days()
    book.access.grant("ada", tiers={"working": "none"})
    for read in (ada.documents.days, lambda: ada.documents.day(day)):
        with pytest.raises(Denied, match="working"):
            read()


@pytest.mark.spec("L4")
def test_what_is_written_again_under_its_id_is_written_once(ada: Actor, book: Book) -> None:
    notes = "# Active objective\n\nMend the boat.\n"
    first = ada.documents.write_notes(notes, id="notes-1")
    assert ada.documents.write_notes(notes, id="notes-1").position == first.position == book.head
    assert book.event("notes-1").payload["text"] == notes
    with pytest.raises(Conflict):
        ada.documents.write_notes("# Active objective\n\nSail.\n", id="notes-1")


@pytest.mark.spec("3.2")
def test_session_notes_have_five_sections_and_are_cleared_at_the_end(book: Book, ada: Actor) -> None:
    ada.documents.add_to_session("Add JWT auth", "reading the router", "Current State")
    ada.documents.add_to_session("Add JWT auth", "chose HS256\nfor now")
    notes = ada.documents.session("add-jwt-auth")
    assert notes == (
        "# Add jwt auth notes\n\n## Current State\n\n- reading the router\n\n## Files and Functions\n\n"
        "## Errors & Corrections\n\n## Key Results\n\n## Worklog\n\n- chose HS256\n  for now\n"
    )
    before = book.head
    ada.documents.clear_session("Add JWT auth")
    assert ada.documents.session("Add JWT auth") == ada.documents.session("Add JWT auth", at=before) == ""
    assert book.documents.session("Add JWT auth", at=before) == notes  # the owner can still audit it
    ada.documents.add_to_session("Add JWT auth", "a new day")
    assert "a new day" in ada.documents.session("Add JWT auth")
    assert "HS256" not in ada.documents.session("Add JWT auth")
    with pytest.raises(BadInput, match="Worklog"):
        ada.documents.add_to_session("x", "y", "Gossip")
    with pytest.raises(BadInput, match="letters or digits"):
        ada.documents.add_to_session("…", "y")


@pytest.mark.spec("3.2")
def test_a_task_has_a_folder_of_papers_and_its_gates(ada: Actor, book: Book) -> None:
    ada.documents.add_to_task("Feature X!", "decisions", "We use HS256.")
    ada.documents.add_to_task("Feature X!", "decisions", "We rotate keys monthly.")
    ada.documents.add_to_task("Feature X!", "report.md", "Phase one is done.", replace=True)
    ada.documents.add_to_task("Feature X!", "report.md", "Phase two is done.", replace=True)
    assert ada.documents.task("feature x") == {
        "decisions.md": "# Decisions\n\nWe use HS256.\n\nWe rotate keys monthly.\n",
        "report.md": "# Report\n\nPhase two is done.\n",
    }
    ada.documents.record_gate("Feature X!", "PLAN", "GO", phase=1, confidence=0.8, reason="clear", id="t-1")
    ada.documents.record_gate(
        "Feature X!", "COMPLETION", "BLOCKED", iteration_index=2, max_iterations=5, id="t-1"
    )
    first, second = (json.loads(line) for line in ada.documents.gates("Feature X!", "t-1").splitlines())
    assert (first["agent"], first["phase"], first["event_type"]) == ("ada", 1, "PLAN")
    assert first["payload"] == {"decision": "GO", "confidence": 0.8, "reason": "clear"}
    assert (second["phase"], len(second["trace_id"]), second["ts"][-1], len(second["ts"])) == (
        None,
        36,
        "Z",
        24,
    )
    assert "plans/artifacts/feature-x/observability/t-1.ndjson" in book.documents.list()
    with pytest.raises(BadInput, match="no letters or digits"):
        ada.documents.add_to_task("+++", "decisions", "Nobody finds this again.")
    for wrong in (
        {"gate": "MAYBE"},
        {"decision": "PERHAPS"},
        {"confidence": 2},
        {"iteration_index": 6},
        {"iteration_index": -1},
        {"max_iterations": 0},
        {"max_iterations": 6},
        {"mood": object()},
        {"mood": b"a blob"},
    ):
        with pytest.raises(BadInput):
            ada.documents.record_gate("x", **{"gate": "PLAN", "decision": "GO", **wrong})  # type: ignore[arg-type]
    for name in ("../escape", "a/b", "", ".hidden"):
        with pytest.raises(BadInput):
            ada.documents.add_to_task("x", name, "y")


@pytest.mark.spec("3.3", "L5")
def test_titles_that_differ_have_notes_of_their_own(book: Book) -> None:
    titles = ["C build", "C++ build", "C# build", "build v1.2", "build v1-2", "Café", "Cafe", "日本"]
    for title in titles:
        book.documents.add_to_session(title, f"of {title}", "Worklog")
        book.documents.add_to_task(title, "decisions", f"of {title}")
    for title in titles:
        assert book.documents.session(title).count("of ") == 1
        assert f"of {title}" in book.documents.session(title)
        assert book.documents.task(title)["decisions.md"].endswith(f"\n\nof {title}\n")
    assert (
        book.documents.session("c-build")
        == book.documents.session("C  build.")
        == book.documents.session("C build")
    )


@pytest.mark.spec("3.2")
def test_the_first_iteration_of_a_gate_is_0_and_further_fields_are_kept(ada: Actor) -> None:
    for index, most in ((0, 1), (1, 5), (5, 5)):
        ada.documents.record_gate(
            "Login", "PHASE_REVIEW", "REPLAN", iteration_index=index, max_iterations=most, mood="calm"
        )
    ada.documents.record_gate(
        "Login", "PLAN", "GO", findings=[{"file": "a.py", "count": 0}], note="", key=SECRET
    )
    *reviews, plan = (json.loads(line)["payload"] for line in ada.documents.gates("Login").splitlines())
    assert [one["iteration_index"] for one in reviews] == [0, 1, 5]
    assert {one["mood"] for one in reviews} == {"calm"}
    assert (plan["findings"], plan["note"]) == ([{"file": "a.py", "count": 0}], "")
    assert SECRET not in ada.documents.gates("Login")


@pytest.mark.spec("3.2")
def test_notes_hold_the_active_objective_and_nothing_else(ada: Actor, book: Book) -> None:
    good = "# Objective\n- Ship the login (phase: build, until the API is frozen)\n- Blockers: none\n"
    ada.documents.write_notes(good)
    assert ada.documents.notes() == good
    with pytest.raises(BadInput, match=r"line 2: .*verdict"):
        ada.documents.write_notes("# Objective\nverdict: fine")
    assert ada.documents.notes() == good
    seen = book.head
    book.documents.write_notes("# Objective\n- Ship it\n- Blockers: none")
    with pytest.raises(Conflict, match="read it again"):
        ada.documents.write_notes(good, if_position=seen)


@pytest.mark.spec("3.2", "3.7")
def test_a_fact_of_the_repository_has_five_fields_and_is_only_ever_superseded(book: Book, ada: Actor) -> None:
    given = {"citations": ["evals/README.md:3"], "reason": "every change is tested", "category": "reference"}
    kept = ada.memory.repository_fact("test command", "Tests run with `make test` in evals.", **given)  # type: ignore[arg-type]
    assert kept.outcome == "stored"
    item = ada.memory.get(str(kept.item_id))
    assert (item.key, item.repository, item.shared, item.citations) == (
        "test command",
        True,
        True,
        ("evals/README.md:3",),
    )
    with pytest.raises(BadInput, match="a new one supersedes it"):
        ada.memory.revise(item.id, value="Tests run with npm.")
    changed = ada.memory.repository_fact(
        "test command",
        "Tests run with `npm test`.",
        supersedes=item.id,
        **given,  # type: ignore[arg-type]
    )
    assert changed.superseded == (item.id,)
    with pytest.raises(BadInput) as refused:
        ada.memory.repository_fact(
            "phase-2, 2026-03-01", "One. Two. Three.", citations=[], reason=" ", category="reference"
        )
    for word in ("plan or a day", "one or two sentences", "cite", "reason"):
        assert word in str(refused.value)
    with pytest.raises(BadInput, match="category"):
        ada.memory.repository_fact("x", "y", citations=["a.py:1"], reason="z", category="other")


@pytest.mark.spec("3.2")
def test_a_fact_of_the_repository_names_no_plan_and_says_nothing_that_is_known_better(ada: Actor) -> None:
    given: dict[str, Any] = {
        "citations": ["Makefile:3"],
        "reason": "every change is tested",
        "category": "reference",
    }
    kept = ada.memory.repository_fact(
        "phase-2: test command (2026-03-01)", "Tests run with make test, in evals.", **given
    )
    assert ada.memory.get(str(kept.item_id)).key == "test command"
    broader = ada.memory.repository_fact("test command", "Tests run with make.", **given)
    assert (broader.outcome, broader.item_id) == ("rejected", kept.item_id)
    assert "more specific" in broader.reason
    other = ada.memory.repository_fact("test command", "Tests run with npm.", **given)
    assert (other.outcome, other.held and other.held.why) == ("flagged", "dispute")


@pytest.mark.spec("L9", "3.1")
def test_what_was_read_and_logged_and_curated_corroborates_nothing(book: Book, ada: Actor) -> None:
    lee, bob = book.as_actor("lee", role="librarian"), book.as_actor("bob")
    kept = ada.remember("The gateway drops idle connections after a minute.", shared=True)
    for run_id in ("first", "second"):
        bob.search("gateway idle")
        with book.run(run_id=run_id) as run, run.agent("bob") as turn:
            turn.write({"learned": "The gateway drops idle connections after a minute."})
    told = lee.memory.curate()
    assert len(told) == 0
    assert "shown" in str(told.left_out)  # memory had shown it to whom logged it
    assert lee.memory.get(str(kept.item_id)).corroborated == ()


def test_an_item_reads_the_same_from_its_markdown() -> None:
    with commonplace.open("memory:") as book:
        then = datetime(2026, 3, 1, tzinfo=UTC)
        book.remember("first line\n\n  indented\nlast", title="many lines")
        book.remember("no title at all")
        book.remember(key="db.port", value={"a": [1, None]})
        book.remember(key="db.host", value="alpha: 5")
        book.remember("it moved", kind="episode", occurred_at=then)
        for item in book.memory.list():
            kind, said = fields(block(item), item.kind)
            assert kind == item.kind
            assert {name: getattr(item, name) for name in said} == said
    assert fields("- **db.port**: 5433") == ("fact", {"key": "db.port", "value": 5433})
    assert fields("- **db.share**: 0.25") == ("fact", {"key": "db.share", "value": 0.25})
    assert fields("- **db.most**: 1e999") == ("fact", {"key": "db.most", "value": "1e999"})  # no JSON has it
    assert fields("* just words") == ("note", {"body": "just words"})
    with pytest.raises(BadInput, match="empty"):
        fields("- ")
    with pytest.raises(BadInput, match="key"):
        fields("- no key", "fact")


SUBJECTS = """
Release 2024-05-01 notes format | Release notes format
Release - 2024-05-01 - notes format | Release - notes format
Release (2024-05-01) notes format | Release notes format
Notes (phase 2, 2024-05-01) format | Notes format
Notes (phase 2, draft) format | Notes (draft) format
2024-05-01: release notes | release notes
release-2024-05-01-notes format | release-notes format
Retry policy as of 2024-05-01 | Retry policy
Data from 2024-05-01 to 2024-06-01 in the lake | Data in the lake
The price list of 1 May 2024 | The price list
Prices since September 2024 | Prices
Marketing 2024 goals | Marketing 2024 goals
Backups, 2024-05-01, and restores | Backups, and restores
Login flow after phase 2 | Login flow
Phase 2 of the rollout | rollout
phase-2-login-fix rules | login-fix rules
Task 3's result | result
[ABC-123] retry policy | retry policy
issue 12 and 13 labels | labels
plans/artifacts/add-login/decisions.md layout | layout
Floor plan rendering | Floor plan rendering
Task scheduler | Task scheduler
Issue tracker labels | Issue tracker labels
Phase shift keying | Phase shift keying
plan-b fallback | plan-b fallback
UTF-8 file names | UTF-8 file names
sha-256 checksums | sha-256 checksums
Python 3.12 support | Python 3.12 support
May release | May release
API (v2) | API (v2)
the flag --dry-run | the flag --dry-run
"""


@pytest.mark.spec("3.2", "6.6")
@pytest.mark.parametrize("line", SUBJECTS.strip().splitlines())
def test_a_subject_reads_well_without_its_plan_and_day(line: str) -> None:
    subject, expected = line.split(" | ")
    more: dict[str, Any] = {"citations": ["a.py:1"], "reason": "it is needed later", "category": "project"}
    with commonplace.open("memory:") as book:
        kept = book.memory.repository_fact(subject, "It holds.", **more)
        assert book.memory.get(str(kept.id)).key == expected


@pytest.mark.spec("3.2")
@given(
    st.lists(
        st.sampled_from(
            [
                "phase 2",
                "2024-05-01",
                "ABC-123",
                "of",
                "the",
                "notes",
                "plan",
                "(",
                ")",
                ",",
                "-",
                ":",
                "task 3's",
            ]
        ),
        max_size=8,
    ).map(" ".join)
)
def test_what_is_left_of_a_subject_names_no_plan_and_no_day(subject: str) -> None:
    left = lasting_subject(subject)
    assert lasting_subject(left) == left
    assert "2024" not in left
    assert "ABC" not in left
    assert set(left) <= set(subject)
