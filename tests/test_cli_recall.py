"""Digests, receipts and what has just happened, as a person or a script sees them in the shell."""

from __future__ import annotations

from typing import Any

import pytest

from tests.shells import Cli


@pytest.mark.spec("7.2", "4.5", "4.7", "4.12")
@pytest.mark.parametrize("engine_name", ["files", "sqlite", "postgres", "redis"], indirect=True)
def test_every_command_of_recall_answers_in_json(cli: Cli, book_url: str) -> None:
    def ask(*args: object, code: int = 0) -> Any:
        ran = cli(*args, "--json", "--book", book_url)
        assert ran.code == code, ran
        return ran.json

    ask("init")
    note = ask("remember", "Postgres listens on 5433", "--title", "db port", "--shared", "--as", "ada")
    other = ask("remember", "Postgres is backed up at night", "--shared")
    made = ask("digest", "where does postgres listen", "--max-items", 1, "--as", "ben")
    assert made["item_ids"] == [note["item_id"]]
    assert made["text"].startswith("Memory digest:\n<memory ")
    assert made["omitted"] == [[other["item_id"], "over the budget of 1 items"]]
    assert ask("receipts", "replay", made["receipt_id"], "--as", "ben")["text"] == made["text"]
    shown = ask("receipts", "show", made["receipt_id"])
    assert [one["id"] for one in ask("receipts", "list")] == [made["receipt_id"]]
    assert ask("receipts", "changed-facts") == []
    assert (shown["by"], shown["included"][0][0]) == ("ben", note["item_id"])
    denied = cli("receipts", "show", made["receipt_id"], "--as", "eve", "--json", "--book", book_url)
    assert denied.code == 1
    assert "not_found" in denied.err
    assert ask("digest", "postgres", "--ignore-memory")["item_ids"] == []
    stable = ask("digest", "postgres", "--stable", "t1")
    assert ask("digest", "postgres", "--stable", "t1")["kept"] == len(stable["text"])
    prompt = ask("prompt", "set up postgres", "--max-chars", 600, "--as", "ben")
    assert "## Long-term Memory" in prompt["text"]
    assert len(prompt["text"]) <= 600
    assert "Long-term" not in ask("prompt", "set up postgres", "--part", "digest")["text"]
    ask("record", "agent.spoke", '{"text": "hello"}', "--run", "r1", "--as", "ada")
    assert ask("receipts", "window", "--run", "r1")["text"] == "[turn 000][agent.spoke] hello"
    assert "[sal=" in ask("receipts", "salient", "hello", "--run", "r1", "--semantic")["text"]
    assert ask("receipts", "bisect", "r1")["receipts"] == 0


@pytest.mark.spec("7.2", "4.5", "4.7")
def test_the_same_for_people(cli: Cli) -> None:
    cli("init")
    id = cli("remember", "Postgres listens on 5433", "--json").json["item_id"]
    digest = cli("digest", "postgres", "--stable", "t")
    assert f"- [note] {id} (private) — Postgres listens on 5433 (prov=owner)" in digest.out
    receipt = digest.out.partition("receipt ")[2].partition(",")[0]
    assert "asked: postgres" in cli("receipts", "show", receipt).out
    assert cli("receipts", "replay", receipt).out.rstrip("\n") in digest.out
    assert cli("digest", "\x1b[31mpostgres", "--as", "ada").code == 0
    cli("record", "agent.spoke", '{"text": "a\\u001b[31mb"}', "--run", "r1")
    assert "\x1b" not in cli("receipts", "window", "--run", "r1").out
    assert "0 digests looked at" in cli("receipts", "bisect", "r1", "--without", id).out
    assert "## Task\nset up" in cli("prompt", "set up").out


@pytest.mark.spec("4.13", "7.2")
def test_the_shell_migrates_an_index(cli: Cli) -> None:
    def ask(*args: object) -> object:
        ran = cli(*args, "--json")
        assert ran.code == 0, ran
        return ran.json

    ask("init")
    ask("remember", "Cats like to sleep on warm keyboards")
    told = ask("book", "migrate-index", "static", "--query", "kittens")
    assert isinstance(told, dict)
    assert told["alike"] == 1.0
    assert ask("book", "reindex") == 1
    assert "nothing was changed" in cli("book", "migrate-index", "static").out
    assert "no embedder" in cli("book", "migrate-index", "magic").err
    assert cli("book", "migrate-index", "static", "--as", "ada").code == 1
