"""Durable memory from the shell, as a person or a script sees it."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from commonplace import StorageFailed
from commonplace.mirror.verbs import Mirrors
from tests.shells import Cli, in_process

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.mark.spec("7.2", "3.3", "3.6")
@pytest.mark.parametrize("engine_name", ["files", "sqlite", "postgres", "redis"], indirect=True)
def test_every_command_of_memory_answers_in_json(cli: Cli, book_url: str, tmp_path: Path) -> None:
    def ask(*args: object, code: int = 0) -> Any:
        ran = cli(*args, "--json", "--book", book_url)
        assert ran.code == code, ran
        return ran.json

    ask("init")
    note = ask(
        "remember",
        "Postgres listens on 5433",
        "--title",
        "db port",
        "--tag",
        "infra",
        "--as",
        "ada",
        "--shared",
    )
    assert (note["outcome"], note["redacted"]) == ("stored", [])
    fact = ask("remember", "--key", "db.port", "--value", "5433", "--confidence", "0.9")
    assert ask("memory", "show", fact["item_id"])["value"] == 5433
    assert [one["text"] for one in ask("memory", "list")["items"]] == [
        "db port: Postgres listens on 5433",
        "db.port: 5433",
    ]
    other = ask("remember", "--key", "db.port", "--value", "6000")
    assert [one["id"] for one in ask("memory", "disputes")] == [other["item_id"]]
    assert ask("memory", "resolve", other["item_id"], "new", "--rationale", "it moved")["value"] == 6000
    assert (
        ask("memory", "revise", note["item_id"], "text=Postgres listens on 6000", "--why", "it moved")[
            "title"
        ]
        == "db port"
    )
    found = ask("search", "postgres listens", "--mode", "keyword", "--explain")
    assert [one["id"] for one in found["results"]] == [note["item_id"]]
    assert found["results"][0]["why"]
    assert ask("memory", "unshare", note["item_id"])["shared"] is False
    assert ask("memory", "share", note["item_id"])["shared"] is True
    assert ask("memory", "verify", note["item_id"])["verified_by"] == "owner"
    assert ask("memory", "archive", note["item_id"])["status"] == "archived"
    assert ask("memory", "restore", note["item_id"])["status"] == "live"
    ask("memory", "set-core", "tools", "name=Tools")
    assert [one["id"] for one in ask("memory", "cores")] == ["tools"]
    proposal = ask("remember", "Call the linter once.", "--core", "tools", "--as", "ada")
    assert [one["id"] for one in ask("memory", "held", "--why", "proposal")] == [proposal["item_id"]]
    assert ask("memory", "suggestions", "tools") == []
    ask("memory", "resolve", proposal["item_id"], "create")
    assert ask("memory", "core", "tools")["name"] == "Tools"
    assert len(ask("memory", "list", "--core", "tools")["items"]) == 1
    ask("memory", "link", proposal["item_id"], "related", note["item_id"])
    assert ask("memory", "traverse", proposal["item_id"])[0]["item"]["id"] == note["item_id"]
    ask("documents", "write-notes", "# Now\n- Ship it\n- Blockers: none")
    assert ask("documents", "notes")["text"] == "# Now\n- Ship it\n- Blockers: none\n"
    (tmp_path / "NOTES.md").write_text("verdict: fine\n")
    assert ask("documents", "check-notes", tmp_path / "NOTES.md", code=1)[0]["rule"] == "journal"
    more = ("--citation", "Makefile:3", "--reason", "every change is tested", "--category", "reference")
    told = ask("memory", "fact", "test command", "Run make test.", *more)
    assert told["outcome"] == "stored"
    assert ask("documents", "restore", "--day", "2020-01-01") == {"ok": True}
    ask("documents", "add-to-session", "Login", "it works", "--section", "Key Results")
    assert "- it works" in ask("documents", "session", "Login")["text"]
    ask("documents", "clear-session", "Login")
    ask("documents", "add-to-task", "Login", "decisions", "We use HS256.")
    said = ("phase=1", "iteration_index=0", "mood=calm")
    gate = ask("documents", "record-gate", "Login", "PLAN", "GO", *said)
    assert gate["payload"]["event"]["payload"] == {"decision": "GO", "iteration_index": 0, "mood": "calm"}
    assert sorted(ask("documents", "task", "Login")) == ["decisions.md", "observability/login.ndjson"]
    ask("documents", "log", "The cache must be warmed before the release.")
    (day,) = ask("documents", "days")
    assert ask("documents", "daily", day)[0]["text"] == "The cache must be warmed before the release."
    assert "NOTES.md" in ask("documents", "list")
    assert "Ship it" in ask("documents", "get", "NOTES.md")[0]["text"]
    assert "PLAN" in ask("documents", "gates", "Login")["text"]
    assert len(ask("memory", "long-term")) == 2
    assert ask("memory", "markdown")["text"].startswith("# Memory")
    assert ask("memory", "export", tmp_path / "items.jsonl") == 5
    assert ask("memory", "curate", "--dry-run")["found"] == []
    assert ask("memory", "tidy", "--dry-run")["chores"] == []
    assert ask("memory", "configure", "retention_days=7")["retention_days"] == 7
    assert ask("memory", "settings")["retention_days"] == 7
    assert ask("forget", note["item_id"], "--dry-run")["items"] == [note["item_id"]]
    gone = ask("forget", note["item_id"], "--yes", "--erase", "--reason", "asked")
    assert note["item_id"] in gone["erased"]
    assert [(one["id"], one["erased"]) for one in ask("memory", "tombstones")] == [(note["item_id"], True)]
    where = ("--mirror", tmp_path / "mirror")
    assert "MEMORY.md" in ask("mirror", "sync", *where)["written"]
    assert ask("mirror", "status", *where) == []
    (tmp_path / "AGENTS.md").write_text("# Rules\n\n- Always run the tests before a release.\n")
    assert ask("import", tmp_path / "AGENTS.md")["counts"] == {"stored": 1}
    ask("access", "grant", "ben", "--role", "qa", "--tier", "long_term=read", "--may-emit", "agent.*")
    assert ask("access", "rights", "ben")["role"] == "qa"
    assert ask("access", "relabel", fact["item_id"], "--sensitivity", "public", "--reason", "agreed")["id"]
    assert ask("access", "audit")[-1]
    token = ask("access", "create-token", "ben", "--verb", "memory.*")["id"]
    assert ask("access", "revoke-token", token) == {"ok": True}
    assert [entry["id"] for entry in ask("access", "tokens")] == [token]
    assert ask("book", "find-text", "a text that nobody wrote") == []
    assert ask("book", "verify")["ok"] is True


@pytest.mark.spec("7.2", "L10")
def test_what_was_erased_is_looked_for_in_the_raw_files(cli: Cli, tmp_path: Path) -> None:
    book = ("--book", tmp_path / "team.db")
    cli("init", *book)
    kept = cli("remember", "The vault is behind the second painting", "--json", *book).json
    cli("search", "vault", *book)
    cli("mirror", "sync", *book)
    asked = ("book", "find-text", "behind the second painting", *book)
    held = cli(*asked, "--json")
    assert held.code == 1
    assert {Path(one["path"]).name for one in held.json} >= {"team.db.index", "MEMORY.md"}
    assert cli("forget", kept["item_id"], "--erase", "--yes", *book).code == 0
    assert cli("book", "purge", *book).code == 0
    clean = cli(*asked)
    assert (clean.code, clean.out) == (0, "none of the texts is anywhere in the raw files\n")
    assert cli("book", "find-text", "x", *book).code == 1


@pytest.mark.spec("7.2")
def test_the_same_for_people(cli: Cli, tmp_path: Path) -> None:
    book = ("--book", tmp_path / "team.db")
    cli("init", *book)
    assert cli("remember", "Tea is served at four.", *book).out.startswith("stored ")
    nearly = cli("remember", "Tea is served at four, at FOUR!", *book).out
    assert nearly.startswith("flagged ")
    assert "known: " in nearly
    assert (
        "it holds a secret (github)"
        in cli("remember", f"Releases are signed with {SECRET} by the robot", *book).out
    )
    refused = cli("remember", "x", "--kind", "rumour", *book)
    assert (refused.code, "fact, note, procedure, episode" in refused.err) == (1, True)
    assert "Tea is served at four." in cli("memory", "list", *book).out
    assert SECRET not in cli("memory", "list", "--status", "all", *book).out
    assert "Tea is served" in cli("search", "tea", *book).out
    told = cli("search", "tea", "--mode", "keyword", "--tier", "episodic", *book).out
    assert "left out: episodic" in told
    assert cli("forget", "--key", "nothing", *book).out.startswith("nothing matches")
    asks = cli("forget", "--kind", "note", *book)
    assert (asks.code, "--yes" in asks.err) == (1, True)
    assert cli("memory", "core", "none", *book).code == 1
    assert "no section" in cli("documents", "add-to-session", "x", "y", "--section", "z", *book).err
    assert "wrote MEMORY.md" in cli("mirror", "sync", *book).out
    text = (tmp_path / "MEMORY.md").read_text()
    (tmp_path / "MEMORY.md").write_text(text.replace("at four", "at five"))
    assert (
        "Tea is served at four." in cli("memory", "list", *book).out
    )  # a command that reads leaves the files alone
    assert (
        cli("documents", "log", "Tea was late.", *book).code == 0
    )  # one that writes takes hand edits in first
    assert "Tea is served at five." in cli("memory", "list", *book).out
    assert (
        json.loads(cli("memory", "list", "--json", *book).out)["items"][0]["text"] == "Tea is served at five."
    )


@pytest.mark.spec("3.5", "7.2")
def test_what_is_told_elsewhere_comes_with_an_advice(cli: Cli) -> None:
    cli("init")
    shown = cli("remember", "commit 4f2a9c1 merged branch feature/login into main")
    assert shown.code == 0
    assert "advice: it was kept, though" in shown.out
    assert "advice" not in cli("remember", "Postgres listens on 5433").out


@pytest.mark.spec("3.5", "L5", "7.2")
def test_what_is_held_names_the_command_that_settles_it(cli: Cli, tmp_path: Path) -> None:
    book = ("--book", tmp_path / "team.db")
    cli("init", *book)
    cli("remember", "Tea is served at four.", *book)
    near, dispute = (
        ("remember", "Tea is served at four, at FOUR!"),
        ("remember", "--key", "tea.time", "--value", "5"),
    )
    cli("remember", "--key", "tea.time", "--value", "4", *book)
    for asked, choices, choice in ((near, "skip, merge, create", "skip"), (dispute, "new, old, both", "new")):
        told = cli(*asked, *book).out.splitlines()[0]
        command = re.search(
            r"with commonplace (memory resolve \S+ CHOICE --rationale WHY --book \S+), where", told
        )
        assert command, told
        assert f"CHOICE is one of {choices}" in told
        words = shlex.split(command[1].replace("CHOICE", choice).replace("WHY", "agreed"))
        assert cli(*words).code == 0
    assert cli("memory", "list", "--status", "held", "--json", *book).json["items"] == []


@pytest.mark.spec("3.3", "3.5", "7.2")
def test_what_is_held_names_the_option_with_which_it_takes_the_place_of_what_is_there(
    cli: Cli, tmp_path: Path
) -> None:
    book = ("--book", tmp_path / "team.db")
    cli("init", *book)
    for known, asked in (
        (("Tea is served at four.",), ("Tea is served at four, at FOUR!",)),
        (("--key", "tea.time", "--value", "4"), ("--key", "tea.time", "--value", "5")),
    ):
        cli("remember", *known, *book)
        told = cli("remember", *asked, *book).out.splitlines()[0]
        again = re.search(r"remember it again with (--supersedes \S+)$", told)
        assert again, told
        assert " in place of " in cli("remember", *asked, *again[1].split(), *book).out
    assert cli("inbox", *book).out == "nothing waits for a person\n"


@pytest.mark.spec("7.2")
def test_importing_a_file_that_is_not_there_says_so(cli: Cli) -> None:
    cli("init", "--book", "team.db")
    ran = cli("import", "CLAUDE.md", "--book", "team.db")
    assert (ran.code, ran.err) == (1, "Error: there is no file CLAUDE.md: check the path\n")


@pytest.mark.spec("7.2", "3.7", "L5")
def test_a_warning_that_comes_as_the_book_closes_is_part_of_the_one_document(cli: Cli) -> None:
    cli("init", "--book", "team.db")
    cli("mirror", "sync", "--mirror", "notes", "--book", "team.db")
    Path("notes/MEMORY.md").unlink()
    Path("notes/MEMORY.md").mkdir()
    given = ["--mirror", "notes", "--book", "team.db", "--json"]
    ran = in_process("remember", "The queue is called jobs", *given)
    assert (ran.code, ran.json["outcome"]) == (0, "stored")
    assert "MEMORY.md was left alone" in json.loads(ran.err)["warnings"][-1]


@pytest.mark.spec("7.2", "L5")
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["people", "json"])
def test_an_error_that_comes_as_the_book_closes_is_told_like_any_other(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, form: list[str]
) -> None:
    cli("init", "--book", "team.db")

    def full(_: Mirrors) -> None:
        raise StorageFailed("the disk is full: free space")

    monkeypatch.setattr(Mirrors, "sync_own", full)
    ran = cli("remember", "The queue is called jobs", "--book", "team.db", *form)
    assert ran.code == 1
    assert "stored" in ran.out
    assert (ran.error["message"] if form else ran.err.strip()).endswith("the disk is full: free space")
    ran = cli("memory", "show", "no-such-item", "--book", "team.db", *form)
    assert ran.code == 1
    assert "no-such-item" in (ran.error["message"] if form else ran.err)
    assert "the disk is full" in ran.err


@pytest.mark.spec("7.2", "3.11")
def test_many_entries_come_from_a_file_and_are_chosen_by_options(cli: Cli, tmp_path: Path) -> None:
    book = ("--book", tmp_path / "team.db")

    def ask(*args: object) -> Any:
        ran = cli(*args, "--json", *book)
        assert ran.code == 0, ran
        return ran.json

    ask("init")
    many = tmp_path / "many.jsonl"
    entry = {"text": "The attic is dry.", "metadata": {"floor": 4}, "tags": ["house"]}
    many.write_text(f"{json.dumps(entry)}\nThe cellar is damp.\nThe roof leaks in May.\n")
    assert [kept["outcome"] for kept in ask("memory", "add-many", many)] == ["stored"] * 3
    (attic,) = ask("memory", "list", "--metadata", "floor=4", "--tag", "house")["items"]
    page = ask("memory", "list", "--limit", "2")
    assert len(ask("memory", "list", "--after", page["cursor"])["items"]) == 1
    assert "the next page: --after" in cli("memory", "list", "--limit", "2", *book).out
    ask("memory", "revise", attic["id"], "text=The attic is damp.", "--why", "it rained")
    assert [change["act"] for change in ask("memory", "history", attic["id"])] == ["created", "revised"]
    told = cli("memory", "history", attic["id"], *book).out
    assert "owner: revised: text 'The attic is dry.' → 'The attic is damp.' (because it rained)" in told
    assert len(ask("search", "damp attic", "--metadata", '{"floor": {"gte": 4}}')["results"]) == 1
    assert ask("memory", "export", tmp_path / "some.md", "--format", "markdown", "--tag", "house") == 1
    assert len(ask("forget", "--metadata", "floor=4", "--yes")["items"]) == 1
    assert "2 merged" in cli("memory", "add-many", many, *book).out
    many.write_text('["A list is good, too: the shed is locked.", {"text": "x", "tag": "y"}]')
    refused = cli("memory", "add-many", many, *book)
    assert (refused.code, "entry 2: remember has no tag" in refused.err) == (1, True)
    many.write_text("The gate creaks.\n{oops\n")
    assert "line 2 is not JSON" in cli("memory", "add-many", many, *book).err
