"""The periodic audit of memory: what pollutes it is found and named, and a clean book gives no alarm."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import commonplace
from commonplace import Book
from commonplace.documents.document import NOTES, slug
from commonplace.documents.writing import WriteDocument
from commonplace.learn.duplicates import command_form, commands_in, duplicates
from commonplace.learn.hygiene import SECTIONS, HygieneReport
from commonplace.learn.note_lines import note_lines, open_blockers
from commonplace.learn.notes_review import TaskState, reviewed
from commonplace.memory.items import Item
from tests.shells import Cli

WHY: dict[str, Any] = {"reason": "every change is tested with it", "category": "reference"}
SAME_COMMAND = {
    "Test command": "The test command is `cd evals && npm test`.",
    "Evals": "Run the evals with cd evals && npm test",
    "How tests are run": "Tests are executed via `cd evals/ && npm run test` from the repository root.",
    "Checks": "`cd evals && npm test` runs all of the eval checks.",
    "Verification": "Use (cd ./evals; npm test) before you open a pull request.",
    "Pipeline": "The pipeline calls `cd evals && npm test`.",
}

CLEAN = {
    "Test command": "The test command is `cd evals && npm test`.",
    "Lint command": "Linting runs with `cd evals && npm run lint`.",
    "Web tests": "The tests of the site run with `cd web && npm test`.",
    "Node version": "`cd evals && npm test` needs Node 20 or newer.",
    "Coverage": "`cd evals && npm test` writes its report to build/coverage.",
    "Slow tests": "`cd evals && npm test` takes 4 minutes on a laptop.",
    "Test database": "`cd evals && npm test` reads DATABASE_URL from the environment.",
    "payments.retry": "A payment is retried three times, with a pause that doubles.",
    "payments.timeout": "The payment provider is given ten seconds to answer.",
    "payments.currency": "Amounts are kept in the smallest unit of their currency.",
    "payments.refund": "A refund never exceeds what was captured.",
    "payments.webhook": "Webhooks of the provider are verified before they are parsed.",
    "payments.audit": "Every change of a payment leaves a line in the audit table.",
    "Agent files": "All agent files follow the P.A.R.T. section order.",
    "PlanAuditor": "PlanAuditor excludes the transient failure classification.",
    "Migrations": "Migrations run before the new release takes traffic.",
    "Migrations of tenants": "Each tenant is migrated by itself, the smallest first.",
    "Time zones": "Times are stored in UTC and shown in the zone of the user.",
    "Feature flags": "A flag that is older than a release is removed.",
    "Logging": "Log lines never hold the body of a request.",
    "Public API": "The public API never removes a field within a major version.",
    "Build cache": "The build cache is keyed by the lock file.",
    "Make targets": "We make sure that every target of the Makefile has a line of help.",
    "Go modules": "We use go modules, and vendor nothing.",
    "Docker image": "The image is built from a pinned base.",
    "Release branch": "Only the release manager writes to the release branch.",
    "Search index": "The search index is rebuilt when the analyser changes.",
    "Error messages": "An error message names the field and what to do about it.",
    "Accessibility": "Every dialog can be closed from the keyboard.",
    "Design tokens": "Colours come from the design tokens, not from components.",
    "On call": "Whoever is on call may roll back without asking.",
    "Secrets": "Secrets come from the vault at start, and are never on disk.",
    "Uploads": "An upload is scanned before it gets an address.",
    "Deploys and the network": "`make deploy` needs the tunnel.",
    "Deploys and days": "`make deploy` is never run on a Friday.",
    "Deploys and keys": "`make deploy` asks for a second key.",
    "Deploys and workers": "`make deploy` restarts the workers.",
    "Deploys and caches": "`make deploy` empties the caches.",
    "Rate limits": "Limits are counted for each customer, not for each key.",
}


def fact(book: Any, subject: str, text: str, **more: Any) -> str:
    citations = more.pop("citations", ["README.md:1"])
    kept = book.memory.repository_fact(subject, text, citations=citations, **{**WHY, **more})
    assert kept.outcome == "stored", str(kept)
    return str(kept.id)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    (root / "src").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / "README.md").write_text("# A project\n")
    (root / "src" / "server.py").write_text("PORT = 5433\n\n\ndef start() -> None: ...\n")
    (root / "evals").mkdir()
    (root / "evals" / "package.json").write_text('{"scripts": {"test": "node --test", "lint": "eslint ."}}\n')
    (root / "web").mkdir()
    (root / "web" / "package.json").write_text('{"scripts": {"test": "node --test"}}\n')
    return root


@pytest.fixture
def book(repository: Path) -> Iterator[Book]:
    with commonplace.open(repository / "team.db", mirror=False) as opened:
        yield opened


def sections(report: HygieneReport) -> dict[str, int]:
    """How many findings each section has that has any."""
    return {name: len(getattr(report, name)) for name in SECTIONS if getattr(report, name)}


@pytest.mark.spec("6.6")
def test_six_entries_about_one_command_have_a_keeper_and_the_next_commands_clean_up(
    repository: Path, book: Book, cli: Cli
) -> None:
    """Exercise 7 of the three layers: the same command, described six times."""
    ids = {subject: fact(book, subject, text) for subject, text in SAME_COMMAND.items()}
    book.memory.verify(ids["Evals"])
    (group,) = book.learn.hygiene().duplicates
    assert group.about == "the command `cd evals && npm test`"
    assert group.keeper == ids["Evals"], "it was verified last"
    assert sorted([group.keeper, *group.candidates]) == sorted(ids.values())
    assert "was verified last" in group.why
    assert len(group.next) == 5
    book.close()
    for command in group.next:
        program, *words = shlex.split(command)
        assert program == "commonplace"
        assert cli(*words, "--book", repository / "team.db").code == 0
    with commonplace.open(repository / "team.db") as again:
        assert again.learn.hygiene().ok
        assert [item.id for item in again.memory.list()] == [ids["Evals"]]


@pytest.mark.spec("6.6")
def test_plain_notes_about_one_command_count_as_well(book: Book) -> None:
    for text in SAME_COMMAND.values():
        assert book.remember(text).outcome == "stored"
    (group,) = book.learn.hygiene().duplicates
    assert len(group.candidates) == 5


@pytest.mark.spec("6.6")
def test_entries_that_wait_under_one_subject_are_candidates_and_what_stands_is_kept(book: Book) -> None:
    stands = fact(book, "Deploy window", "Deploys go out on Tuesdays.")
    for day in ("Mondays", "Wednesdays", "Thursdays", "Fridays"):
        held = book.memory.repository_fact(
            "deploy windows" if day == "Fridays" else "Deploy window",
            f"Deploys go out on {day}.",
            citations=["README.md:1"],
            **WHY,
        )
        assert (held.outcome == "stored") == (day == "Fridays")
    (group,) = book.learn.hygiene().duplicates
    assert group.about == "the subject 'deploy window'"
    assert stands in (group.keeper, *group.candidates)
    assert sum("memory resolve" in command for command in group.next) == 3
    assert book.memory.get(group.keeper).current


@pytest.mark.spec("6.6", "4.10")
def test_citations_of_files_symbols_and_lines_that_are_gone_are_named(repository: Path, book: Book) -> None:
    (repository / "src" / "old.py").write_text("x = 1\n")
    gone = fact(
        book, "Old module", "The old module stays until the last caller is gone.", citations=["src/old.py:1"]
    )
    line = fact(
        book, "Port", "The server listens on the port of the settings.", citations=["src/server.py:1"]
    )
    symbol = book.remember(
        "The server is started by hand.", code_refs=[{"file": "src/server.py", "symbol": "start"}]
    ).id
    fact(book, "Readme", "The readme names the project.")
    assert book.learn.hygiene().ok
    (repository / "src" / "old.py").unlink()
    (repository / "src" / "server.py").write_text("PORT = 9999\n\n\ndef begin() -> None: ...\n")
    before = book.head
    report = book.learn.hygiene()
    told = {finding.items[0]: finding for finding in report.stale_citations}
    assert sections(report) == {"stale_citations": 3}
    assert "src/old.py is gone" in told[gone].what
    assert "lines 1-1 of src/server.py have changed" in told[line].what
    assert "start is no longer in src/server.py" in told[str(symbol)].what
    assert any(f"supersedes={gone}" in command for command in told[gone].next)
    assert any("memory verify" in command for command in told[line].next)
    assert {event.kind for event in book.events(before)} == {"memory.checked"}
    again = book.head
    assert sections(book.learn.hygiene()) == {"stale_citations": 3}
    assert book.head == again, "what is recorded already is not recorded again"


@pytest.mark.spec("6.6", "L11")
def test_without_a_repository_it_says_that_citations_were_not_checked() -> None:
    with commonplace.open("memory:") as book:
        fact(book, "Port", "The server listens on the port of the settings.", citations=["nowhere.py:1"])
        report = book.learn.hygiene()
    assert report.ok
    assert [part.what for part in report.left_out] == ["citations"]
    assert "they were not checked" in str(report)


@pytest.mark.spec("6.6")
def test_a_fact_that_was_superseded_three_times_in_thirty_days_is_volatile(book: Book) -> None:
    ids = [fact(book, "Port", "The API listens on port 8000.")]
    for port in (8001, 8002):
        ids.append(fact(book, "Port", f"The API listens on port {port}.", supersedes=ids[-1]))
    assert book.learn.hygiene().ok, "twice is no alarm"
    ids.append(fact(book, "Port", "The API listens on port 8003.", supersedes=ids[-1]))
    (finding,) = book.learn.hygiene().volatile_facts
    assert finding.items[0] == ids[3]
    assert sorted(finding.items) == sorted(ids)
    assert "superseded 3 times" in finding.what
    later = book.learn.hygiene(now=datetime.now(UTC) + timedelta(days=31))
    assert later.volatile_facts == (), "it has been stable since"


@pytest.mark.spec("6.6", "3.8")
def test_notes_and_sessions_of_what_is_over_are_named_and_the_commands_exist(
    repository: Path, book: Book, cli: Cli
) -> None:
    documents = book.documents
    documents.write_notes(
        "- Objective: Add login (phase: build)\n- Blockers: waiting for token-schema\n- Pending: the changelog"
    )
    documents.add_to_session("Add login", "reading the router")
    documents.add_to_session("Token schema", "which columns?")
    documents.add_to_task("Token schema", "plan", "Status: in progress")
    assert book.learn.hygiene().ok
    documents.add_to_task("Token schema", "final_review", "Status: DONE")
    report = book.learn.hygiene()
    assert sections(report) == {"stale_notes": 1, "unused_sessions": 1}
    assert report.stale_notes[0].lines == (2,)
    assert "token-schema says DONE" in report.stale_notes[0].what
    assert report.unused_sessions[0].document == "memories/session/token-schema-notes.md"
    later = book.learn.hygiene(now=datetime.now(UTC) + timedelta(days=15))
    assert [each.what for each in later.unused_sessions if "add-login" in each.what] == [
        "memories/session/add-login-notes.md: nobody has written to it for 15 days"
    ]
    book.close()
    for finding in (*report.stale_notes, *report.unused_sessions):
        for command in finding.next:
            assert cli(*shlex.split(command)[1:], "--book", repository / "team.db").code == 0
    with commonplace.open(repository / "team.db", mirror=False) as again:
        assert again.learn.hygiene().ok
        assert again.documents.notes() == "- Objective: Add login (phase: build)\n- Pending: the changelog\n"


@pytest.mark.spec("6.6")
def test_lines_that_do_not_belong_into_the_notes_are_named(book: Book) -> None:
    text = "- Objective: ship\n- Blockers: none\n```\ncode\n```\nthe verdict was good"
    book._session.write("documents.write", WriteDocument("owner", NOTES, "append", text))
    report = book.learn.hygiene()
    assert sections(report) == {"style_violations": 2}
    assert [finding.lines for finding in report.style_violations] == [(3,), (6,)]


def fill(book: Book) -> None:
    """A book as a careful team keeps it."""
    for subject, text in CLEAN.items():
        fact(book, subject, text)
    first = fact(book, "Port", "The API listens on port 8000.")
    second = fact(book, "Port", "The API listens on port 8001.", supersedes=first)
    fact(book, "Port", "The API listens on port 8002.", supersedes=second)
    for number in range(8):
        book.remember(
            f"Standup {number}: {'the gate opens later' if number % 2 else 'quiet'} on pier {number}."
        )
        book.remember(key=f"berth.{number}.depth", value=number + 4)
        book.remember(kind="episode", text=f"Deploy {number} went out.", occurred_at=datetime.now(UTC))
        book.remember(f"Customer {number} asked for an export.", title="Interview")
    for text in (
        "Run `make deploy` on pier one.",
        "`make deploy` asks for the second key.",
        "Undo with `make undo`.",
    ):
        book.remember(text)
    book.documents.write_notes(
        "# Notes\n- Objective: Add login — phase 2: wire the form; boundary: all checks are green\n"
        "- Blockers: the provider has not answered; risk: the certificate ends in May\n- Pending: rotate the keys"
    )
    book.documents.add_to_task(
        "Add login", "plan", "Status: in progress\nPhase 2 is done when the form works."
    )
    book.documents.record_gate("Add login", "PHASE_REVIEW", "GO", phase=1)
    book.documents.add_to_task("Old login", "final_review", "Status: DONE")
    book.documents.add_to_task("Certificates", "plan", "Status: SUPERSEDED")
    book.documents.add_to_session("Add login", "reading the router", "Current State")
    book.documents.add_to_session("Rotate keys", "asked the vault team")
    for line in ("the build is red", "the build is green again", "cd evals && npm test passed"):
        book.documents.log(line)


@pytest.mark.spec("6.6")
def test_a_clean_book_gives_no_alarm(book: Book) -> None:
    fill(book)
    assert len(book.memory.list()) > 60
    report = book.learn.hygiene()
    assert sections(report) == {}, str(report)
    assert report.ok
    assert str(report) == f"memory is clean as of position {report.as_of}"
    assert book.learn.prune_notes().removed == ()


@pytest.mark.spec("6.6", "3.11", "4.3")
def test_an_audit_shows_nothing_that_its_actor_may_not_read(book: Book) -> None:
    ada, ben = book.as_actor("ada", role="developer"), book.as_actor("ben", role="developer")
    for text in SAME_COMMAND.values():
        assert ada.remember(text).outcome == "stored"  # her own, not shared
    assert len(ada.learn.hygiene().duplicates) == 1
    assert ben.learn.hygiene().ok
    for number, text in enumerate(SAME_COMMAND.values()):
        book.as_actor(f"agent-{number}").remember(text)
    assert len(book.learn.hygiene().duplicates) == 1, "what several keep for themselves does not meet"
    alice = book.as_actor("bot", scope="users/alice")
    alice.documents.add_to_session("Refund", "asked for the receipt")
    alice.documents.add_to_task("Refund", "final", "Status: DONE")
    for subject, text in SAME_COMMAND.items():
        fact(alice, subject, text)
    (group,) = alice.learn.hygiene().duplicates
    assert group.scope == "users/alice"
    assert [finding.scope for finding in book.learn.hygiene().unused_sessions] == ["users/alice"]
    assert "--scope users/alice" in book.learn.hygiene().unused_sessions[0].next[0]
    bob = book.as_actor("bot", scope="users/bob")
    assert bob.learn.hygiene().ok
    assert "alice" not in str(bob.learn.hygiene())


@pytest.mark.spec("6.6", "3.9")
def test_an_actor_that_may_only_read_gets_a_report_and_one_without_a_tier_is_told(
    repository: Path, book: Book
) -> None:
    (repository / "src" / "old.py").write_text("x = 1\n")
    fact(
        book, "Old module", "The old module stays until the last caller is gone.", citations=["src/old.py:1"]
    )
    (repository / "src" / "old.py").unlink()
    lead = book.as_actor("lead", role="orchestrator")
    before = book.head
    assert sections(lead.access.look_as("ada").learn.hygiene()) == {"stale_citations": 1}
    assert "memory.checked" not in [event.kind for event in book.events(before)]
    book.access.grant("reader", tiers={"long_term": "read", "working": "none"})
    report = book.as_actor("reader").learn.hygiene()
    assert sections(report) == {"stale_citations": 1}
    assert [part.what for part in report.left_out] == ["NOTES.md and session notes"]


@pytest.mark.spec("6.6", "5.8")
def test_a_book_that_may_only_be_read_is_audited(
    repository: Path, book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    fact(book, "Port", "The server listens on the port of the settings.", citations=["src/server.py:1"])
    book.close()
    (repository / "src" / "server.py").unlink()
    monkeypatch.setattr("commonplace.engines.sqlite.may_write", lambda _: False)
    with commonplace.open(repository / "team.db", mirror=False) as again:
        assert again.admin.facts.read_only
        assert sections(again.learn.hygiene()) == {"stale_citations": 1}
        assert sections(again.as_actor("ada").learn.hygiene()) == {"stale_citations": 1}


@pytest.mark.spec("6.6", "L7")
def test_as_of_then_and_from_the_shell(repository: Path, book: Book, cli: Cli) -> None:
    for subject, text in list(SAME_COMMAND.items())[:4]:
        fact(book, subject, text)
    then = book.head
    for subject, text in list(SAME_COMMAND.items())[4:]:
        fact(book, subject, text)
    assert book.learn.hygiene(at=then).ok
    assert len(book.learn.hygiene().duplicates) == 1
    book.close()
    where = ("--book", repository / "team.db")
    told = cli("learn", "hygiene", "--json", *where)
    assert told.code == 0
    assert told.json["ok"] is False
    assert len(told.json["duplicates"][0]["candidates"]) == 5
    assert {*SECTIONS, "ok", "left_out", "as_of"} == {*told.json}
    assert cli("learn", "hygiene", "--json", "--at", then, *where).json["ok"] is True
    shown = cli("learn", "hygiene", *where).out
    assert "6 entries about the command `cd evals && npm test`" in " ".join(shown.split())


@pytest.mark.spec("6.6", "7.2")
def test_the_report_fits_a_hundred_columns_and_its_commands_can_be_copied(
    repository: Path, book: Book, cli: Cli
) -> None:
    book.documents.write_notes(
        f"- Objective: ship it\n- Blockers: the key of {'very ' * 20}long names (resolved)"
    )
    fact(
        book,
        "Port of the server of payments",
        "The server listens on the port.",
        citations=["src/server.py:1"],
    )
    (repository / "src" / "server.py").unlink()
    commands = [command for finding in book.learn.hygiene().stale_citations for command in finding.next]
    book.close()
    shown = cli("learn", "hygiene", "--book", repository / "team.db").out
    assert max(map(len, shown.splitlines())) <= 100
    assert max(map(len, commands)) > 100
    lines = shown.replace(" \\\n", " ").splitlines()
    copied = [line.partition("next: ")[2] for line in lines if "next: " in line]
    assert {tuple(shlex.split(command)) for command in commands} <= {
        tuple(shlex.split(command)) for command in copied
    }


# the rules, by themselves

words = st.text(st.sampled_from("abcdefghijklmnopqrstuvwxyz"), min_size=2, max_size=9)
COMMANDS = [
    "cd evals && npm test",
    "make check",
    "cargo test --all",
    "python -m pytest -q",
    "docker compose up",
]
FRAMES = [
    "Run `{}`.", "The command is `{}`.", "Use `{}` for that.", "`{}` does it.", "To see it, run `{}` here.",
    "Everybody calls `{}` first.", "It is done with `{}`.", "Before a merge: `{}`.",
]  # fmt: skip


def entry(number: int, subject: str, text: str) -> Item:
    return Item(
        id=f"i{number:03}", kind="fact", agent="ada", shared=True, key=subject, value=text, repository=True,
        recorded_us=number,
    )  # fmt: skip


@pytest.mark.spec("6.6")
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(words, words, words), unique_by=lambda each: frozenset(each), max_size=40))
def test_facts_about_different_subjects_are_no_duplicates(subjects: list[tuple[str, ...]]) -> None:
    singular = {frozenset(word.rstrip("s") for word in each): each for each in subjects}
    items = [
        entry(number, " ".join(each), f"The {each[0]} of {each[1]} is {number}.")
        for number, each in enumerate(singular.values())
    ]
    plain = [item for item in items if len({*str(item.key).split()}) == 3]
    assert duplicates(plain, ()) == []


@pytest.mark.spec("6.6")
@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(COMMANDS), st.integers(1, 8), st.lists(words, min_size=8, max_size=8, unique=True), st.randoms()
)  # fmt: skip
def test_five_or_more_variants_of_one_command_are_found(
    command: str, count: int, subjects: list[str], random: Any
) -> None:
    frames = random.sample(FRAMES, count)
    items = [
        entry(number, f"{subject} {number}", frame.format(command))
        for number, (subject, frame) in enumerate(zip(subjects, frames, strict=False))
    ]
    items += [entry(100 + number, f"other {number}", f"Port {number} is open.") for number in range(9)]
    found = duplicates(items, ())
    assert len(found) == (count >= 5)
    for group in found:
        assert group.about == f"the command `{command_form(command)}`"
        assert len(group.candidates) == count - 1
        assert group.keeper == items[count - 1].id, "the newest, as nothing else tells them apart"


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("The test command is cd evals && npm test.", ["cd evals && npm test"]),
        ("Run `(cd ./evals/; npm run test)`", ["cd evals && npm test"]),
        ("We run make check, then we wait.", ["make check"]),
        ("Deploy with `kubectl apply -f deploy.yaml`", ["kubectl apply -f deploy.yaml"]),
        ("Always make sure that it is closed.", []),
        ("We use make for builds.", []),
        ("Go through the list with go modules.", []),
        ("The `retry policy` is strict, `PlanAuditor` as well.", []),
        ("Run the tests by task lists.", []),
    ],
)
def test_commands_in_a_text(text: str, commands: list[str]) -> None:
    assert [command for _, command in commands_in(text)] == commands


TASKS = {
    "add-login": TaskState("IN", frozenset({1, 2})),
    "token-schema": TaskState("DONE"),
    "old-login": TaskState("SUPERSEDED"),
    "search": TaskState("DONE"),
    "mobile-app": TaskState("DEFERRED"),
    slug("Fix: the parser (v2)"): TaskState("DONE"),
}


@pytest.mark.spec("6.6")
@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("- Objective: Token schema", "stale"),
        ("- **Objective**: Token schema — phase 3", "stale"),
        ("- Goal: ship it (plans/artifacts/old-login)", "stale"),
        ("- **Active objective:** Fix: the parser (v2) — phase 1 of 3", "stale"),
        ("- Objective: rebuild the token schema for tenants", "unclear"),
        ("- Objective: Mobile app", "unclear"),
        ("- Objective: Add login, phase 2", "rewrite"),
        ("- Objective: Add login, phase 3", None),
        ("- Objective: search for new tenants", None),
        ("- Blockers: none", None),
        ("- Blockers: waiting for Token schema to land", "stale"),
        ("- Blockers: token-schema", "stale"),
        ("- Blockers: token-schema left the table without an index", "unclear"),
        ("- Blockers: DB access (resolved)", "stale"),
        ("- Blockers: ~~DB access~~", "stale"),
        ("- [x] Blocker: DB access", "stale"),
        ("- Blockers: DB access — resolved on Monday", "stale"),
        ("- Blockers: DB access was resolved", "unclear"),
        ("- Blockers: DB access (resolved); the vault is down", "unclear"),
        ("- Blockers: DB access (partly resolved)", "unclear"),
        ("- Blockers: waiting for Lena (resolved?)", "unclear"),
        ("- Blockers: DB access (resolved once Lena answers)", "unclear"),
        ("- Blockers: DB access (resolved if the vault opens)", "unclear"),
        ("- Blockers: none (Priya sent the key)", None),
        ("- Blockers: none so far", None),
        ("- Blockers: none; the vault is down", None),
        ("- Blockers: none; DB access (resolved)", "stale"),
        ("- Blockers: SMTP password — resolved on Tuesday", "stale"),
        ("- ~~Blocked by the VPN outage~~", "stale"),
        ("- Waiting on: token-schema", "stale"),
        ("- Blocked by the VPN outage", None),
        ("- Blockers: unresolved merge of the schema", None),
        ("- Blockers: DB access is not resolved", None),
        ("- Blockers: blocked until the flaky test is fixed", None),
        ("- Risks: the launch date is fixed", "unclear"),
        ("- Risks: the registry is closed on weekends", None),
        ("- Pending: rotate keys (done)", "stale"),
        ("- Pending: token table", None),
        ("the verdict was good", "stale"),
        ("- Objective: Add login, iteration 4", "rewrite"),
    ],
)
def test_lines_of_notes_are_judged_with_care(line: str, verdict: str | None) -> None:
    assert [finding.verdict for finding in reviewed(line, TASKS)] == ([verdict] if verdict else [])


@pytest.mark.spec("6.6")
@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "says",
    ["none since " + "since " * 8000 + ";x", "-" * 50_000 + "x", "no " + "open " * 9000, "(" * 50_000 + "resolved"],
)  # fmt: skip
def test_a_long_line_of_notes_is_judged_at_once(says: str) -> None:
    assert [line.role for line in note_lines(f"- Blockers: {says}")] == ["blocker"]
    assert reviewed(f"- Blockers: {says}", TASKS) == [] or "resolved" in says
    assert len(open_blockers(f"- Blockers: {says}")) == ("open " not in says)


@pytest.mark.parametrize(("phase", "stale"), [(1, True), (2, True), (3, False)])
def test_a_phase_that_is_reported_complete_is_stale(phase: int, stale: bool) -> None:
    text = (
        f"# Objective\n- Add login\n# Phase\n- Phase {phase}: wire the form\n# Blockers\n- the vault is down"
    )
    assert [finding.line for finding in reviewed(text, TASKS)] == ([4] if stale else [])


@pytest.mark.spec("6.6", "6.9")
def test_a_task_that_keeps_to_its_lifecycle_gives_no_alarm() -> None:
    with commonplace.open("memory:") as book:
        ada = book.as_actor("ada", role="developer")
        ada.documents.write_notes("- Objective: Add login (phase: 1)\n- Blockers: none")
        for phase in (1, 2, 3):
            ada.learn.phase_start("Add login", phase, note="page by page")
            ada.learn.verify_item("Add login", f"page-{phase}", description="it loads")
            ada.learn.phase_end("Add login", phase, report=f"Page {phase} is moved.", next_phase=phase + 1)
            assert book.learn.hygiene().ok, str(book.learn.hygiene())
        ada.learn.task_complete("Add login", report="It works.")
        (stale,) = book.learn.hygiene().stale_notes  # nobody has written what comes next
        assert "says DONE" in str(stale)
        ada.learn.conversation_end("Add login")
        ada.documents.write_notes("- Objective: Add logout (phase: 1)\n- Blockers: none")
        assert book.learn.hygiene().ok
