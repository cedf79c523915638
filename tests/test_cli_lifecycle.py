"""The lifecycle of a task and `resume` in a shell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.lifecycle_story import FACT
from tests.shells import Cli

TASK = "Add login"


@pytest.mark.spec("7.2", "6.8", "6.9", "6.10")
@pytest.mark.parametrize("engine_name", ["files", "sqlite", "postgres", "redis"], indirect=True)
def test_every_command_of_the_lifecycle_answers_in_json(cli: Cli, book_url: str) -> None:
    def ask(*args: object, code: int = 0) -> Any:
        ran = cli(*args, "--json", "--book", book_url, "--as", "ada")
        assert ran.code == code, ran
        return ran.json if code == 0 else ran.error

    cli("init", "--book", book_url)
    assert ask("learn", "context-start")["read"] == []
    started = ask("learn", "phase-start", TASK, "build", "--note", "the router", "--fact", json.dumps(FACT))
    assert started["wrote"][0]["path"] == "memories/session/add-login-notes.md"
    assert started["promotion"]["records"][0]["promote"] == "defer"  # nobody can see what it cites from here
    item = ask("learn", "verify-item", TASK, "login", "--description", "it answers 200", "--iteration", 1)
    assert (item["status"], item["regressed_at"]) == ("VERIFIED", None)
    ask("learn", "verify-item", TASK, "login", "--no-holds", "--evidence", "it answers 500")
    assert ask("learn", "verified", TASK)["items"][0]["status"] == "REGRESSED"
    refused = ask("learn", "phase-end", TASK, "build", "--report", "Done.", code=1)
    assert refused["code"] == "conflict"
    assert "login REGRESSED" in refused["message"]
    more = ("--report", "Done.", "--despite", "the fix is in review", "--next-phase", "test")
    assert len(ask("learn", "phase-end", TASK, "build", *more)["wrote"]) == 2
    known = ask("resume", TASK)
    assert (known["completed"], known["regressed"]) == (["build"], ["login"])
    assert "## Open blockers" in known["text"]
    ask("learn", "verify-item", TASK, "login")
    assert ask("learn", "task-complete", TASK, "--report", "It works.")["wrote"]
    assert ask("learn", "conversation-end", TASK)["wrote"]
    assert ask("learn", "context-start", TASK, "--file", "completion.md")["read"][-1].endswith(
        "completion.md"
    )


@pytest.mark.spec("7.2", "6.10")
def test_people_read_it_as_it_is_and_the_files_follow(cli: Cli, tmp_path: Path) -> None:
    given = ("--book", tmp_path / "team.db", "--mirror", tmp_path / "notes")
    cli("init", *given)
    told = cli("learn", "phase-end", TASK, "build", "--report", "The router answers.", *given).out
    assert "wrote plans/artifacts/add-login/phase-build-report.md" in told
    assert (
        "The router answers."
        in (tmp_path / "notes/plans/artifacts/add-login/phase-build-report.md").read_text()
    )
    cli("learn", "verify-item", TASK, "login", *given)
    assert "| login |" in (tmp_path / "notes/plans/artifacts/add-login/verified_items.md").read_text()
    text = cli("resume", TASK, *given).out
    assert text.startswith("Resume of Add login")
    assert "## NOTES.md\n" in text
    small = cli("resume", TASK, "--max-chars", 250, *given).out
    assert "left out: " in small
    assert "login VERIFIED" in cli("learn", "verified", TASK, *given).out
    assert cli("learn", "resume", TASK, *given).code == 2  # it stands at the top


@pytest.mark.spec("3.2", "7.2")
def test_notes_are_checked_in_the_book_in_a_file_and_from_a_pipe(cli: Cli, tmp_path: Path) -> None:
    given = ("--book", tmp_path / "team.db")
    cli("init", *given)
    cli("documents", "write-notes", "- Objective: login", *given)
    assert cli("documents", "check-notes", *given).out == "all of it belongs there\n"
    (tmp_path / "bad.md").write_text("- Objective: login\n\niteration 3 passed\n")
    wrong = cli("documents", "check-notes", tmp_path / "bad.md", *given)
    assert (wrong.code, wrong.out.split(":")[0]) == (1, "line 3")
    assert cli("documents", "check-notes", "-", *given, stdin="```\ncode\n```\n").code == 1
    Path("NOTES.md").write_text("verdict: fine\n")  # the file of this folder comes first
    assert cli("documents", "check-notes").code == 1


@pytest.mark.spec("7.2", "6.9")
def test_the_help_says_what_is_a_name_and_what_is_json(cli: Cli, tmp_path: Path) -> None:
    given = ("--book", tmp_path / "team.db")
    cli("init", *given)
    ended = " ".join(cli("learn", "phase-end", "--help").out.split())
    assert "--next-phase NEXT-PHASE The name or number of the phase that comes next" in ended
    done = " ".join(cli("learn", "task-complete", "--help").out.split())
    assert "--fact JSON" in done
    assert "a JSON object) with subject, fact, citations, reason and category" in done
    wrong = cli("learn", "task-complete", TASK, "--fact", "prices are rounded", *given)
    assert wrong.code == 2
    assert '"subject": ' in wrong.err
