"""The audit, the checklists and the chores from the shell, on every engine that a shell can open."""

from __future__ import annotations

from typing import Any

import pytest

from tests.shells import Cli


@pytest.mark.spec("6.6", "7.2")
@pytest.mark.parametrize("engine_name", ["files", "sqlite", "postgres", "redis"], indirect=True)
def test_the_audit_the_checklists_and_the_chores_answer_in_json(cli: Cli, book_url: str) -> None:
    def ask(*args: object, code: int = 0) -> Any:
        ran = cli(*args, "--json", "--book", book_url)
        assert ran.code == code, ran
        return ran.json

    ask("init")
    assert ask("learn", "hygiene")["ok"] is True
    fact = ("--citation", "evals/package.json:7", "--reason", "tests", "--category", "reference")
    told = "The test command is `cd evals && npm test`."
    assert ask("learn", "check-fact", "Test command", told, *fact)["ok"] is True
    ask("memory", "fact", "Test command", told, *fact)
    known = ask("learn", "check-fact", "Test command", told, *fact, code=1)
    assert [step["name"] for step in known["steps"] if step["outcome"] == "fail"] == ["same fact"]
    ask("documents", "write-notes", "- Objective: Add login\n- Blockers: the vault (resolved)")
    assert [finding["lines"] for finding in ask("learn", "hygiene")["stale_notes"]] == [[2]]
    assert ask("learn", "prune-notes", "--dry-run")["done"] is False
    assert ask("learn", "prune-notes")["moved"] == ["plans/artifacts/add-login/notes_history.md"]
    assert ask("documents", "notes")["text"] == "- Objective: Add login\n"
    assert ask("learn", "hygiene")["ok"] is True
    ask("memory", "set-core", "ops", "name=Ops")
    tags = ("--tag", "deploy", "--tag", "pipeline", "--core", "ops")
    first = ask("remember", "A deploy waits for two approvals.", *tags)["item_id"]
    second = ask("remember", "A pipeline that fails is mended first.", *tags)["item_id"]
    (chore,) = ask("learn", "chores", "ops")["chores"]
    assert (chore["act"], chore["items"], chore["outcome"]) == ("link", [first, second], "done")
    assert ask("learn", "chores", "ops", "--acts", "merge")["chores"] == []
