"""Reflection and curation as a person or a script sees them in the shell."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.models import ModelServer
from tests.shells import Cli

BELIEFS = {"beliefs": [{"text": "The harbour stays closed", "events": [1, 2]}]}
FACTS = {"facts": [{"text": "Warm the cache first.", "lines": [1, 2]}]}


@pytest.mark.spec("7.2", "6.4", "6.5")
@pytest.mark.parametrize("engine_name", ["files", "sqlite", "postgres", "redis"], indirect=True)
def test_reflecting_and_curating_answer_in_json(cli: Cli, book_url: str, model_server: ModelServer) -> None:
    def ask(*args: object, **more: Any) -> Any:
        ran = cli(*args, "--json", "--book", book_url, **more)
        assert ran.code == 0, ran
        return ran.json

    ask("init")
    for text in ("The harbour is closed.", "The storm goes on."):
        ask("record", "world.observed", json.dumps({"text": text}), "--run", "voyage")
    about = ("--run", "voyage", "--as", "ada")
    due = ask("learn", "reflection-due", *about, "--threshold", 2)
    assert (due["due"], due["count"]) == (True, 2)
    made = ask("learn", "reflect", *about, "--threshold", 2)
    assert made["text"].endswith("- world.observed by owner: The storm goes on.")
    assert len(made["sources"]) == 2
    assert ask("learn", "reflect", *about, "--threshold", 2)["id"] is None
    model = ("--url", model_server.url, "--model", "m")
    model_server.says = lambda _prompt: json.dumps(BELIEFS)
    answer = ask("learn", "reflect", *about, "--force", "--private", *model)
    assert (answer["text"], answer["by_model"], answer["private"]) == (
        "- The harbour stays closed",
        True,
        True,
    )
    ask("documents", "log", "- cache was cold, release slow\n- warmed the cache, release was fine")
    model_server.says = lambda _prompt: json.dumps(FACTS)
    shown = ask("memory", "curate", "--dry-run", *model)
    assert [(fact["outcome"], len(fact["citations"])) for fact in shown["found"]] == [("flagged", 2)]
    assert ask("memory", "list", "--status", "held")["items"] == []
    (fact,) = ask("memory", "curate", "--days", 2, *model)["found"]
    assert [item["id"] for item in ask("memory", "list", "--status", "held")["items"]] == [fact["id"]]


def test_reflecting_and_curating_for_people(cli: Cli, model_server: ModelServer) -> None:
    cli("init")
    for text in ("The harbour is closed.", "The storm goes on."):
        cli("record", "world.observed", json.dumps({"text": text}), "--run", "voyage")
    about = ("--run", "voyage", "--as", "ada")
    assert "next reflection is due at 3" in cli("learn", "reflect", *about, "--threshold", 3).out
    assert "due: 2 events counted" in cli("learn", "reflection-due", *about, "--threshold", 2).out
    made = cli("learn", "reflect", *about, "--threshold", 2).out.splitlines()
    assert made == [
        "What ada has seen, in 2 events (2 world.observed):",
        "- world.observed by owner: The harbour is closed.",
        "- world.observed by owner: The storm goes on.",
    ]
    model = ("--url", model_server.url, "--model", "m")
    model_server.says = lambda _prompt: "no"
    assert "the model's answer was not used: " in cli("learn", "reflect", *about, "--force", *model).out
    cli("documents", "log", "- cache was cold, release slow\n- warmed the cache, release was fine")
    model_server.says = lambda _prompt: json.dumps(FACTS)
    done = cli("memory", "curate", *model).out
    assert "flagged: it is a proposal" in done
    assert "  Warm the cache first." in done
    assert done.splitlines()[-1] == "2 lines of the last 7 days looked at, 1 fact found"
    log = cli("log").out
    assert "ada reflected: What ada has seen" in log
    assert "curated 1 fact from the daily logs" in log
    assert "--url needs --model" in cli("memory", "curate", "--url", model_server.url).err
    assert "--model needs --url" in cli("learn", "reflect", *about, "--model", "m").err
