"""Promotion from a shell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.shells import Cli
from tests.test_promotion import CONVENTION


@pytest.mark.spec("6.6", "7.2")
def test_facts_are_promoted_from_a_file_or_from_standard_input(cli: Cli, tmp_path: Path) -> None:
    def ask(*args: object, stdin: str = "") -> Any:
        ran = cli(*args, "--json", stdin=stdin)
        assert ran.code == 0, ran
        return ran.json

    cli("init")
    file = tmp_path / "facts.json"
    file.write_text(json.dumps([CONVENTION, {**CONVENTION, "subject": "phase 2"}]))
    ran = cli("learn", "promote", "--file", file, "--task", "Add user routes", "--dry-run")
    assert ran.code == 0, ran
    assert "defer: API versions [project]: one source" in ran.out
    assert "no: phase 2 [task]: it is about one task" in ran.out
    assert "nothing was written" in ran.out

    (record,) = ask("learn", "promote", "--as", "ada", stdin=json.dumps(CONVENTION))["records"]
    assert (record["promote"], record["reason"]) == ("defer", "one source")
    (waiting,) = ask("inbox")["held"]
    assert (waiting["id"], waiting["held"]["reason"]) == (record["item"], "one source")
    assert "(one source)" in cli("inbox").out
    assert [item["id"] for item in ask("memory", "held", "--why", "evidence")] == [record["item"]]
    for wrong in ("no JSON", '["text"]'):
        assert cli("learn", "promote", stdin=wrong).code == 1

    assert ask("learn", "patterns") == {"patterns": []}
    assert ask("learn", "propose-skills")["results"] == []
    assert cli("learn", "patterns").out == "no step is shared by 3 or more completed tasks\n"
