"""A delegation from the shell: manager and workers are commands, JSON in, JSON out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.shells import Cli
from tests.test_delegation import loop
from tests.workflows import agent_file, write

MANAGER = """
import json, sys
turn = json.load(sys.stdin)
assert turn["prompt"].startswith("# TASK")
if turn["iteration"] < 3:
    words = f"look {turn['iteration']}"
    print(json.dumps({"decision": "DELEGATE", "workers": [{"worker_id": "scout", "instructions": words}]}))
else:
    output = turn["history"][0]["workers"][0]["output"]
    print(json.dumps({"decision": "COMPLETE", "result": {"answer": output["answer"], "confidence": 1}}))
"""
WORKER = """
import json, sys
task = json.load(sys.stdin)
print(json.dumps({"answer": task["instructions"].upper(), "confidence": 0.9}))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    contract = {"answer": "string", "confidence": {"type": "number", "minimum": 0, "maximum": 1}}
    documents = loop(worker="agents/worker")
    for id, program in (("manager", MANAGER), ("worker", WORKER)):
        (tmp_path / f"{id}.py").write_text(program)
        command = [sys.executable, str(tmp_path / f"{id}.py")]
        documents[agent_file(id)] = {
            "identity": {"id": id}, "runtime": {"command": command}, "output": {"contract": contract},
        }  # fmt: skip
    return write(tmp_path / "flow", documents)


@pytest.mark.spec("6.0", "6.3", "7.2")
@pytest.mark.parametrize("engine_name", ["files", "sqlite", "postgres", "redis"], indirect=True)
def test_a_delegation_is_run_and_what_it_leaves_is_shown(cli: Cli, book_url: str, folder: Path) -> None:
    def ask(*args: object) -> Any:
        ran = cli(*args, "--json", "--book", book_url)
        assert ran.code == 0, ran
        return ran.json

    ask("init")
    ran = ask("run", folder, "--run", "r")
    assert (ran["status"], ran["steps"]) == ("completed", {"scout#1.1": "finished", "scout#2.1": "finished"})
    assert ask("runs", "state", "r")["state"]["manager"]["answer"] == "LOOK 1"
    assert ran["curation"]["facts_added"] == ["scout: LOOK 1"]
    assert ask("learn", "curate-run", "r")["facts_added"] == []
    assert "- scout: LOOK 1" in ask("learn", "prior-runs", "gates")["text"]
    told = cli("learn", "prior-runs", "gates", "--book", book_url).out
    assert told.startswith("## PRIOR RUN MEMORY")
    assert "posted" not in cli("log", "--book", book_url).out
