"""Checklists of memory: before a fact is written, pruning the notes; and the chores of a librarian."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import commonplace
from commonplace import Book
from commonplace.documents.document import NOTES
from commonplace.documents.writing import WriteDocument
from commonplace.errors import BadInput, Conflict, Denied
from commonplace.learn import checklists
from commonplace.learn.checklists import FactChecklist
from commonplace.learn.notes_review import TaskState, reviewed
from tests.shells import Cli

GOOD: dict[str, Any] = {
    "citations": ["evals/package.json:1"],
    "reason": "every change is tested with it",
    "category": "reference",
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    (root / ".git").mkdir(parents=True)
    (root / "evals").mkdir()
    (root / "evals" / "package.json").write_text('{"scripts": {"test": "node --test"}}\n')
    return root


@pytest.fixture
def book(repository: Path) -> Iterator[Book]:
    with commonplace.open(repository / "team.db", mirror=False) as opened:
        yield opened


def outcomes(checked: FactChecklist) -> dict[str, str]:
    """The steps that do not pass, with their outcomes."""
    return {step.name: step.outcome for step in checked if step.outcome != "pass"}


def says(checked: FactChecklist, name: str) -> str:
    return next(step.says for step in checked if step.name == name)


# A: before a fact is written


@pytest.mark.spec("6.6", "3.5")
def test_a_good_fact_passes_every_step_and_is_then_stored(book: Book) -> None:
    ada = book.as_actor("ada", role="developer")
    before = book.head
    checked = ada.learn.check_fact("Test command", "The test command is `cd evals && npm test`.", **GOOD)
    assert checked.ok, str(checked)
    assert outcomes(checked) == {}
    assert len(checked) == 10
    assert book.head == before, "it only reads"
    kept = ada.memory.repository_fact("Test command", "The test command is `cd evals && npm test`.", **GOOD)
    assert kept.outcome == "stored"


@pytest.mark.spec("6.6", "3.5")
def test_what_is_missing_or_does_not_belong_fails_with_what_to_do(book: Book) -> None:
    empty = book.learn.check_fact("Login", "")
    assert outcomes(empty)["classified"] == outcomes(empty)["five fields"] == "fail"
    assert "say in reason why it will matter later" in says(empty, "five fields")
    assert outcomes(empty)["same fact"] == "skipped"
    git = book.learn.check_fact("Login", "commit 4f2a9c1 merged branch feature/login into main.", **GOOD)
    assert outcomes(git)["exclusions"] == "fail"
    assert "git_history" in says(git, "exclusions")
    secret = book.learn.check_fact("Login", "The token is ghp_" + "a1B2" * 9 + ".", **GOOD)
    assert "holds a secret" in says(secret, "exclusions")
    assert "a1B2" not in str(secret)
    wrong = book.learn.check_fact("Login", "It works.", **{**GOOD, "category": "other"})
    assert outcomes(wrong)["classified"] == "fail"
    plan = book.learn.check_fact("phase 3 of plan 7", "The login takes an email address.", **GOOD)
    assert outcomes(plan)["plan names and days"] == "fail"
    assert "task's folder" in says(plan, "plan names and days")
    for checked in (empty, git, secret, wrong, plan):
        assert not checked.ok
    with pytest.raises(BadInput, match="subject"):
        book.learn.check_fact(7, "It works.", **GOOD)  # type: ignore[arg-type]


@pytest.mark.spec("6.6")
def test_plans_days_and_tasks_are_taken_out_of_the_subject_and_asked_about_in_the_fact(book: Book) -> None:
    book.documents.add_to_task("Feature X", "plan", "Status: in progress")
    dated = book.learn.check_fact("Test command in phase 3", "The test command is `npm test`.", **GOOD)
    assert dated.subject == "Test command"
    assert dated.ok
    named = book.learn.check_fact("feature-x naming", "Handlers are named after their route.", **GOOD)
    assert outcomes(named)["task names"] == "fail"
    beyond = book.learn.check_fact("Naming", "Handlers are named after their route in feature-x.", **GOOD)
    assert outcomes(beyond)["beyond one plan"] == "fail"
    assert not beyond.ok
    day = book.learn.check_fact("Naming", "Handlers are named after their route since 2026-03-01.", **GOOD)
    assert outcomes(day) == {"beyond one plan": "ask"}


@pytest.mark.spec("6.6")
@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, "yes"),
        ({"category": "Reference"}, "yes"),
        ({"subject": "Phase 2: test command"}, "yes"),
        ({"subject": "phase 2"}, "no"),
        ({"subject": "feature-x: test command"}, "no"),
        ({"fact": "In phase 2 the test command is renamed."}, "no"),
        ({"fact": "See feature-x for how the test command is named."}, "no"),
        ({"reason": "It was found in feature-x."}, "defer"),
        ({"fact": "On 2026-03-04 the test command got a name."}, "defer"),
        ({"fact": "On 2026-03-04 the test command got a name.", "override": "the name holds since"}, "yes"),
        ({"fact": "The test key is ghp_" + "a1B2" * 9 + "."}, "no"),
        ({"reason": "The test key is ghp_" + "a1B2" * 9 + "."}, "no"),
        ({"fact": "The test branch feature/x was merged in commit 3fa9c21."}, "no"),
        (
            {"fact": "The test branch feature/x was merged in commit 3fa9c21.", "override": "it is a trap"},
            "yes",
        ),
        ({"fact": "One. Two is here. Three is there. Four is a test."}, "no"),
        ({"category": "gossip"}, "no"),
    ],
)
def test_a_check_and_a_promotion_say_the_same(book: Book, changed: dict[str, Any], verdict: str) -> None:
    book.documents.add_to_task("Feature X", "plan", "Status: in progress")
    fact = {"subject": "Test command", "fact": "The test command is `npm test`.", **GOOD, **changed}
    ada = book.as_actor("ada", role="developer")
    checked = ada.learn.check_fact(**fact)
    (record,) = ada.learn.promote(fact, dry_run=True)
    assert record.promote == verdict, str(record)
    found = {step.outcome for step in checked}
    assert ("no" if "fail" in found else "defer" if "ask" in found else "yes") == verdict, str(checked)
    assert "a1B2" not in f"{checked} {record}"


@pytest.mark.spec("6.6", "6.11")
def test_a_fact_that_waits_or_was_declined_is_not_called_known(book: Book) -> None:
    fact = {"subject": "Login", "fact": "A login takes an email address.", **GOOD}
    ada = book.as_actor("ada", role="developer")
    (record,) = ada.learn.promote(fact)
    assert record.promote == "defer"
    checked = book.as_actor("ben").learn.check_fact(**fact)
    assert outcomes(checked) == {"same fact": "ask"}
    assert "waits already" in says(checked, "same fact")
    book.memory.resolve(record.item, "skip", "it is wrong")
    checked = book.as_actor("ben").learn.check_fact(**fact)
    assert outcomes(checked) == {"same fact": "fail"}
    assert "declined before" in says(checked, "same fact")


@pytest.mark.spec("6.6", "3.5", "L9")
def test_what_is_known_nearly_known_or_out_of_date_is_named(book: Book) -> None:
    ada = book.as_actor("ada", role="developer")
    text = "The nightly build of the payments service starts at two in the morning on host seven."
    known = book.memory.repository_fact("Nightly build", text, **GOOD).id
    same = ada.learn.check_fact("nightly build", text, **GOOD)
    assert outcomes(same) == {"same fact": "fail"}
    assert str(known) in says(same, "same fact")
    less = ada.learn.check_fact("Nightly build", "The nightly build starts on host seven.", **GOOD)
    assert outcomes(less) == {"same fact": "fail"}
    assert "more specific" in says(less, "same fact")
    near = ada.learn.check_fact("Nightly build again", text, **GOOD)
    assert outcomes(near) == {"near-duplicates": "ask"}
    told = says(near, "near-duplicates")
    assert "only the first: again" in told
    assert all(choice in told for choice in ("skip", "merge", "create"))
    written = ada.memory.repository_fact("Nightly build again", text, **GOOD)
    assert (written.outcome, written.held and written.held.why) == ("flagged", "near_duplicate")
    other = ada.learn.check_fact("Nightly build", "The nightly build starts at noon.", **GOOD)
    assert outcomes(other) == {"outdated fact": "ask"}
    assert f"supersedes='{known}'" in says(other, "outdated fact")
    assert ada.learn.check_fact("Nightly build", text, **GOOD, at=0).ok, "as of then nothing was known"


@pytest.mark.spec("6.6", "4.10")
def test_citations_are_looked_up_before_they_are_written(book: Book) -> None:
    gone = book.learn.check_fact(
        "Login", "A login takes an email address.", **{**GOOD, "citations": ["a.py:3"]}
    )
    assert outcomes(gone) == {"citations": "fail"}
    assert "a.py:3: there is no such file" in says(gone, "citations")
    beyond = {**GOOD, "citations": ["evals/package.json:99"]}
    assert "no lines 99-99" in says(
        book.learn.check_fact("Login", "A login is short.", **beyond), "citations"
    )
    with commonplace.open("memory:") as other:
        unchecked = other.learn.check_fact("Login", "A login takes an email address.", **GOOD)
    assert outcomes(unchecked) == {"citations": "skipped"}
    assert unchecked.ok


@pytest.mark.spec("6.6", "3.11")
def test_a_checklist_tells_nothing_of_what_its_actor_may_not_read(book: Book) -> None:
    text = "The nightly build of the payments service starts at two in the morning on host seven."
    book.as_actor("bot", scope="users/alice").memory.repository_fact("Nightly build", text, **GOOD)
    book.as_actor("ada").remember(key="Nightly build", value="never")  # her own
    assert book.as_actor("bot", scope="users/bob").learn.check_fact("Nightly build", text, **GOOD).ok
    assert book.as_actor("ben").learn.check_fact("Nightly build", text, **GOOD).ok
    book.access.grant("blind", tiers={"long_term": "none"})
    with pytest.raises(Denied):
        book.as_actor("blind").learn.check_fact("Nightly build", text, **GOOD)


@pytest.mark.spec("6.6", "7.2")
def test_the_shell_checks_a_fact_and_says_by_its_exit_code_whether_it_can_be_written(
    repository: Path, book: Book, cli: Cli
) -> None:
    book.close()
    command = ("learn", "check-fact", "Test command", "The test command is `npm test`.", "--reason", "tests")
    where = ("--citation", "evals/package.json:1", "--book", repository / "team.db")
    assert cli(*command, "--category", "reference", *where).code == 0
    refused = cli(*command, *where, "--json")
    assert refused.code == 1
    assert refused.json["steps"][0] == {
        "name": "classified",
        "outcome": "fail",
        "says": "say which category it is: user, feedback, project, reference",
    }


# B: pruning the notes


def write_anyway(book: Book, text: str) -> None:
    """Notes as they were before there were rules."""
    book._session.write("documents.write", WriteDocument("owner", NOTES, "clear"))
    book._session.write("documents.write", WriteDocument("owner", NOTES, "append", text))


@pytest.mark.spec("6.6")
def test_stale_lines_move_to_the_folders_of_their_tasks_and_nothing_else_changes(book: Book) -> None:
    ada = book.as_actor("ada", role="developer")
    before = (
        "# Notes\n- Objective: Add login\n- Phase: 2, wire the form\n\n"
        "## Blockers\n- waiting for token-schema\n- DB access (resolved)\n- the vault is down\n"
    )
    ada.documents.write_notes(before)
    ada.documents.add_to_task("Token schema", "final_review", "Status: DONE")
    ada.documents.record_gate("Add login", "PHASE_REVIEW", "GO", phase=2)
    planned = ada.learn.prune_notes(dry_run=True)
    assert not planned.done
    assert "would be removed" in str(planned)
    assert ada.documents.notes() == before
    pruned = ada.learn.prune_notes()
    assert [finding.line for finding in pruned.removed] == [3, 6, 7]
    assert pruned.done
    assert pruned.diff == planned.diff
    assert [line for line in pruned.diff.splitlines() if line[:1] in "+-"][2:] == [
        "-- Phase: 2, wire the form",
        "-- waiting for token-schema",
        "-- DB access (resolved)",
    ]
    assert ada.documents.notes() == "# Notes\n- Objective: Add login\n\n## Blockers\n- the vault is down\n"
    history = ada.documents.task("Add login")["notes_history.md"]
    assert "- Phase: 2, wire the form" in history
    assert "- DB access (resolved)" in history
    assert "- waiting for token-schema" in ada.documents.task("Token schema")["notes_history.md"]
    assert ada.learn.prune_notes().removed == ()
    assert str(ada.learn.prune_notes()) == "nothing in NOTES.md is stale"


@pytest.mark.spec("6.6")
def test_an_objective_that_is_over_goes_with_its_phase_and_what_is_unclear_stays_and_is_named(
    book: Book,
) -> None:
    book.documents.write_notes(
        "- Objective: Add login\n- Phase: 4\n- Blockers: the login of tenants was fixed by somebody"
    )
    book.documents.add_to_task("Add login", "final_review", "Status: SUPERSEDED")
    pruned = book.learn.prune_notes()
    assert [finding.line for finding in pruned.removed] == [1, 2]
    assert [finding.line for finding in pruned.left] == [3]
    assert "for a person: line 3" in str(pruned)
    assert book.documents.notes() == "- Blockers: the login of tenants was fixed by somebody\n"
    book.documents.write_notes("- Objective: Add login")
    assert book.learn.prune_notes().done
    assert book.documents.notes() == ""
    assert book.documents.task("Add login")["notes_history.md"].count("- Objective: Add login") == 2


@pytest.mark.spec("6.6")
def test_lines_that_break_the_rules_move_and_an_objective_that_does_is_rewritten_first(book: Book) -> None:
    kept = "- Objective: ship the login\n- Blockers: none\n- Pending: the changelog\n"
    write_anyway(book, kept + "- a fourth\n- a fifth\n```\ncode\n```\nthe verdict was good\n")
    pruned = book.learn.prune_notes()
    assert [finding.line for finding in pruned.removed] == [4, 5, 6, 7, 8, 9]
    assert book.documents.notes() == kept
    history = book.documents.task("ship the login")["notes_history.md"]
    assert all(line in history for line in ("a fourth", "a fifth", "code", "the verdict was good"))
    write_anyway(book, "- Objective: ship the login, iteration 3\n- Blockers: DB access (resolved)\n")
    blocked = book.learn.prune_notes()
    assert not blocked.done
    assert "first rewrite" in blocked.blocked
    assert [finding.line for finding in blocked.left] == [1]
    assert "DB access" in book.documents.notes()


@pytest.mark.spec("6.6", "2.9")
def test_notes_that_somebody_writes_meanwhile_are_a_conflict_and_nothing_moves(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    book.documents.write_notes("- Objective: Add login\n- Blockers: DB access (resolved)")

    def meanwhile(text: str, tasks: Any) -> Any:
        ben = threading.Thread(
            target=book.as_actor("ben").documents.write_notes,
            args=("- Objective: Add login\n- Blockers: none",),
        )
        ben.start()
        ben.join()
        return reviewed(text, tasks)

    monkeypatch.setattr(checklists, "reviewed", meanwhile)
    with pytest.raises(Conflict, match="read it again"):
        book.learn.prune_notes()
    assert book.documents.notes() == "- Objective: Add login\n- Blockers: none\n"
    assert book.documents.task("Add login") == {}


@pytest.mark.spec("6.6", "3.9", "3.11", "L8", "L10")
def test_pruning_needs_the_right_to_write_stays_in_its_scope_and_follows_an_erasure(book: Book) -> None:
    book.access.grant("reader", tiers={"working": "read"})
    reader = book.as_actor("reader")
    book.documents.write_notes("- Objective: Add login\n- Blockers: Mr Miller's access (resolved)")
    assert reader.learn.prune_notes(dry_run=True).removed
    with pytest.raises(Denied):
        reader.learn.prune_notes()
    assert "Miller" in book.documents.notes()
    alice = book.as_actor("bot", scope="users/alice")
    alice.documents.write_notes("- Objective: Refund\n- Blockers: the receipt (resolved)")
    assert alice.learn.prune_notes().done
    assert book.documents.task("Refund") == {}
    assert "Miller" in book.documents.notes()
    (written,) = book.documents.get(NOTES)
    book.learn.prune_notes()
    assert "Miller" in book.documents.task("Add login")["notes_history.md"]
    book.erase(written.id)
    assert "Miller" not in str(book.documents.task("Add login"))
    assert "Miller" not in book.documents.notes()


@pytest.mark.spec("6.6", "2.7", "4.3")
def test_a_secret_in_the_notes_is_shown_nowhere_and_hidden_notes_are_not_pruned(book: Book) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    ada, ben = book.as_actor("ada"), book.as_actor("ben")
    ada.documents.write_notes(f"- Objective: Add {secret}\n- Blockers: token {secret} (resolved)")
    assert ben.learn.prune_notes().removed == (), "it is sensitive, so he does not see it"
    pruned = ada.learn.prune_notes()
    assert pruned.done
    shown = [
        str(pruned),
        ada.documents.notes(),
        *ada.documents.list(),
        *map(str, ada.documents.get(pruned.moved[0])),
    ]
    assert not [text for text in shown if secret.lower() in text.lower().replace("-", "_")]
    assert ben.documents.get(pruned.moved[0]) == [], "what is derived is as sensitive"


@pytest.mark.spec("6.6", "7.2")
def test_the_shell_takes_in_a_hand_edit_first_and_prunes_the_file(
    repository: Path, book: Book, cli: Cli
) -> None:
    book.documents.write_notes("- Objective: Add login\n- Blockers: none")
    book.close()
    where = ("--book", repository / "team.db", "--mirror", repository)
    assert cli("mirror", "sync", *where).code == 0
    notes = repository / "NOTES.md"
    notes.write_text(notes.read_text().replace("Blockers: none", "Blockers: DB access (resolved)"))
    done = cli("learn", "prune-notes", *where)
    assert done.code == 0, done.err
    assert "1 line removed" in done.out
    assert "DB access" not in notes.read_text()
    assert "DB access" in (repository / "plans" / "artifacts" / "add-login" / "notes_history.md").read_text()


@pytest.mark.spec("6.6")
@pytest.mark.parametrize("line", ["waiting for Lena (resolved?)", "access (resolved once Lena answers)"])
def test_what_may_be_resolved_is_left_for_a_person(book: Book, line: str) -> None:
    book.documents.write_notes(f"- Objective: Add login\n- Blockers: {line}")
    pruned = book.learn.prune_notes()
    assert (pruned.removed, [finding.line for finding in pruned.left]) == ((), [2])
    assert line in book.documents.notes()


lines = st.lists(
    st.sampled_from([
        "# Notes", "", "- Objective: Token schema", "- Objective: Add login", "- Phase: 1", "- Phase: 7",
        "- Blockers: none", "- Blockers: DB access (resolved)", "- Blockers: the vault is down", "- a bullet",
        "plain", "```", "the verdict was good", "- phase-2-build", "- waiting for token-schema", "## Blockers",
    ]),
    max_size=26,
)  # fmt: skip


@pytest.mark.spec("6.6")
@settings(max_examples=150, deadline=None)
@given(lines)
def test_every_line_is_judged_once_and_what_is_left_is_judged_as_before(text: list[str]) -> None:
    tasks = {"token-schema": TaskState("DONE"), "add-login": TaskState("", frozenset({1}))}
    findings = reviewed("\n".join(text), tasks)
    numbers = [finding.line for finding in findings]
    assert numbers == sorted(set(numbers))
    assert all(finding.text == text[finding.line - 1] for finding in findings)
    assert not [
        finding
        for finding in findings
        if finding.text == "- Blockers: the vault is down" and not finding.style
    ]
    assert not [
        finding
        for finding in findings
        if finding.verdict == "stale" and finding.text.startswith("- Objective: A") and not finding.style
    ]


# the chores of a librarian


@pytest.fixture
def core(book: Book) -> dict[str, str]:
    lee = book.as_actor("lee", role="librarian")
    lee.memory.set_core("ops", config={"archive_after_days": 90, "auto_dedupe": False})
    texts = {
        "one": ("Deploys wait for a green pipeline and two approvals.", ["deploy", "pipeline"]),
        "two": ("A pipeline that fails is mended before anything else.", ["deploy", "pipeline"]),
        "three": ("Rotate certificates before the summer.", ["Deploys", "certificate"]),
    }
    return {
        name: str(lee.remember(text, core="ops", tags=tags, citations=[f"ops.md:{number}"]).id)
        for number, (name, (text, tags)) in enumerate(texts.items(), 1)
    }


@pytest.mark.spec("3.4", "6.6")
def test_a_librarian_links_and_tags_and_what_is_stale_is_only_listed(
    book: Book, core: dict[str, str]
) -> None:
    lee = book.as_actor("lee", role="librarian")
    planned = lee.learn.chores("ops", dry_run=True)
    assert {(chore.act, chore.outcome) for chore in planned} == {("link", "planned"), ("tag", "planned")}
    assert lee.memory.get(core["one"]).links == ()
    done = lee.learn.chores("ops", now=datetime.now(UTC) + timedelta(days=91))
    assert {(chore.act, chore.outcome) for chore in done} == {
        ("link", "done"), ("tag", "done"), ("refresh", "listed")
    }  # fmt: skip
    assert ("related", core["two"]) in lee.memory.get(core["one"]).links
    assert lee.memory.get(core["three"]).tags == ("certificate", "deploy")
    assert "memory verify" in next(chore.why for chore in done if chore.act == "refresh")
    assert str(lee.learn.chores("ops")) == "nothing to do"


@pytest.mark.spec("3.4", "3.9")
def test_others_are_told_what_a_librarian_may_do_and_change_nothing(book: Book, core: dict[str, str]) -> None:
    ben, before = book.as_actor("ben", role="developer"), book.head
    assert {chore.outcome for chore in ben.learn.chores("ops", acts=["link", "tag", "merge"])} == {"listed"}
    assert "a librarian or person may do it" in str(ben.learn.chores("ops"))
    assert [
        event.kind for event in book.events(before) if "denied" in event.kind or "item" in event.kind
    ] == []
    with pytest.raises(BadInput, match="acts"):
        ben.learn.chores(acts=["refresh"])


@pytest.mark.spec("3.4", "6.6", "L5")
def test_merging_keeps_the_citations_of_both_and_leaves_a_correction_to_a_person(book: Book) -> None:
    lee = book.as_actor("lee", role="librarian")
    words = "the nightly build of the payments service starts at two in the morning on the seventh host"
    first = lee.remember(words, shared=True, citations=["ops.md:4"], reason="seen in the crontab")
    again = lee.remember(f"{words} every night", shared=True, citations=["b.md:2"], reason="asked ops")
    lee.memory.resolve(again, "create", rationale="to see")
    assert [chore.outcome for chore in lee.learn.chores()] == ["listed"], "merging has to be named"
    (chore,) = lee.learn.chores(acts=["merge"])
    assert chore.outcome == "done", str(chore)
    (item,) = lee.memory.list()
    assert sorted(item.citations) == ["b.md:2", "ops.md:4"]
    assert {"seen in the crontab", "asked ops"} == {*item.reason.split("; ")}
    assert {first.id, again.id} == {item.id, *(other.id for other in lee.memory.list(status="archived"))}
    other = lee.remember(f"{words} every night".replace("two", "three"), shared=True)
    lee.memory.resolve(other, "create", rationale="to see")
    (chore,) = lee.learn.chores(acts=["merge"])
    assert chore.outcome == "listed"
    assert "may correct the other" in chore.why
    assert len(lee.memory.list()) == 2


@pytest.mark.spec("3.4", "3.9", "6.6")
def test_facts_of_the_repository_are_merged_by_a_new_one_or_proposed(book: Book) -> None:
    lee, ben = book.as_actor("lee", role="librarian"), book.as_actor("ben", role="developer")
    text = "The nightly build of the payments service starts at two in the morning on the seventh host"
    for subject, cited in (("Nightly build", "evals/package.json:1"), ("The nightly build", "NOTES.md:1")):
        kept = lee.memory.repository_fact(subject, text, **{**GOOD, "citations": [cited]})
        if kept.held is not None:
            lee.memory.resolve(kept, "create", rationale="to see")
    assert len(lee.memory.list(repository=True)) == 2
    (chore,) = ben.learn.chores(acts=["merge"])
    assert chore.outcome == "proposed"
    assert len(lee.memory.held()) == 1
    lee.memory.resolve(lee.memory.held()[0], "new", rationale="one is enough")
    (fact,) = lee.memory.list(repository=True)
    assert sorted(fact.citations) == ["NOTES.md:1", "evals/package.json:1"]
    assert len(fact.supersedes) == 2


@pytest.mark.spec("6.6")
@pytest.mark.parametrize(
    "line",
    [
        "- Blockers: DNS names are resolved by the old server",
        "- Blockers: how conflicts are resolved",
        "- Blockers: users see 'done' ✅ in the UI although it failed",
        "- Risks: Fixed - price contracts may break us",
    ],
)
def test_words_that_only_sound_like_an_end_do_not_remove_a_blocker(line: str) -> None:
    with commonplace.open("memory:") as book:
        notes = f"- Objective: Move the shop\n{line}"
        book.documents.write_notes(notes)
        assert book.learn.prune_notes().removed == ()
        assert line in book.documents.notes()


@pytest.mark.spec("6.6")
@pytest.mark.parametrize(
    "text",
    [
        "Status: DONE is what the folder says when it is over",
        "> status: done",
        "Phase 4 cannot be completed before the audit",
        "Phase 4 was done badly, redo it",
        "Phase 4 is half done",
    ],
)
def test_a_sentence_about_an_end_is_none(text: str) -> None:
    with commonplace.open("memory:") as book:
        book.documents.add_to_task("Move the shop", "plan", text)
        book.documents.write_notes("- Objective: Move the shop (phase: 4)\n- Blockers: none")
        assert book.learn.prune_notes().removed == ()
