"""Conversations as a person or a script sees them in the shell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.models import TURNS, ModelServer
from tests.shells import Cli


@pytest.mark.spec("7.2", "4.15")
@pytest.mark.parametrize("engine_name", ["files", "sqlite", "postgres", "redis"], indirect=True)
def test_every_command_of_threads_answers_in_json(
    cli: Cli, book_url: str, model_server: ModelServer, tmp_path: Path
) -> None:
    def ask(*args: object, **more: Any) -> Any:
        ran = cli(*args, "--json", "--book", book_url, **more)
        assert ran.code == 0, ran
        return ran.json

    ask("init")
    added = ask("thread", "add", "support-17", stdin=json.dumps(TURNS))
    assert (added["added"], added["repeated"]) == (3, 0)
    messages = ask("thread", "messages", "support-17", "--last", 1)
    assert [message["text"] for message in messages["messages"]] == ["And I like window seats"]
    context = ask("thread", "context", "support-17", "peanuts", "--max-chars", 900, "--as", "ben")
    assert "#1 Alice: I am allergic to peanuts" in context["text"]
    assert ask("receipts", "replay", context["receipt_id"], "--as", "ben")["text"] == context["text"]
    model = ("--url", model_server.url, "--model", "m")
    assert len(ask("thread", "learn", "support-17", *model)["proposals"]) == 2
    assert ask("thread", "summary", "support-17") == {}
    model_server.says = lambda _prompt: "Alice and her peanuts"
    assert ask("thread", "summary", "support-17", *model)["upto"] == 3
    assert ask("thread", "export", "support-17", tmp_path / "thread.json") == 3
    assert ask("learn", "compact", "--thread", "support-17")["thread"] == "support-17"
    assert [info["name"] for info in ask("thread", "list")["threads"]] == ["support-17"]


def test_a_thread_for_people(cli: Cli, model_server: ModelServer, tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text(json.dumps(TURNS))
    cli("init")
    assert cli("thread", "list").out.startswith("there are no conversations yet")
    assert "3 messages added" in cli("thread", "add", "support-17", "--file", tmp_path / "m.json").out
    assert "3 were there already" in cli("thread", "add", "support-17", "--file", tmp_path / "m.json").out
    assert cli("thread", "messages", "support-17", "--last", 2).out.splitlines() == [
        "(1 earlier)",
        "#2 assistant: Noted!",
        "#3 Alice: And I like window seats",
    ]
    assert "allergic" in cli("thread", "context", "support-17", "peanuts").out
    assert "support-17" in cli("thread", "list").out
    assert "added a message of Alice: I am allergic" in cli("log").out
    assert cli("thread", "summary", "support-17").out.strip() == "there is no summary yet"
    learned = cli("thread", "learn", "support-17", "--url", model_server.url, "--model", "m")
    assert "2 proposals in the inbox" in learned.out
    assert cli("thread", "summary", "support-17", "--url", model_server.url).code == 1
    cli("thread", "add", "support-17", stdin=json.dumps({"role": "user", "content": "more"}))
    model_server.status = 500
    failed = cli("thread", "learn", "support-17", "--url", model_server.url, "--model", "m")
    assert (failed.code, "answered 500" in failed.err) == (1, True)
    cli("thread", "add", "support-17", "--scope", "users/bob", stdin=json.dumps(TURNS[1]))
    assert (
        cli("thread", "messages", "support-17", "--scope", "users/bob").out.strip() == "#1 assistant: Noted!"
    )
    assert cli("thread", "messages", "other").out.strip() == "no messages yet"
    assert "that is not JSON" in cli("thread", "add", "support-17", stdin="hello").err
    assert "cannot be read" in cli("thread", "add", "support-17", "--file", "missing.json").err
