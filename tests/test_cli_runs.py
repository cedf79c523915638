"""Workflows and runs from the shell, as a person or a script sees them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import commonplace
from tests.shells import COMMAND, Cli, in_process, on_a_terminal

AGENT = """
import json, os, sys, time
given = json.load(sys.stdin)
agent, state = given["agent"], given["state"]
with open("calls", "a") as calls:
    calls.write(agent + "\\n")
if agent == "writer" and os.path.exists("slow"):
    time.sleep(60)
if agent == "writer" and os.path.exists("broken"):
    sys.exit("cannot write with SECRET-KEY-1 today")
said = {
    "researcher": {"findings": "tea is " + state["topic"], "api_key": "SECRET-KEY-1", "raw": "SECRET-RAW-2"},
    "writer": {"draft": "on " + str(sorted(state.get("researcher", {})))},
}
print(json.dumps({**said[agent], "confidence": 0.9}))
"""

WORKFLOW = """
awp: 1.0.0
workflow: {name: tea-report, version: 1.0.0, description: About tea.}
orchestration:
  engine: dag
  graph:
    - {id: researcher, agent: researcher, share_output: [findings]}
    - {id: writer, agent: writer, depends_on: [researcher]}
state:
  initial: {topic: hot}
  persistence: {enabled: false}
  sharing: {strategy: selective, never_share: [raw], sensitive_fields: [api_key]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A workflow whose agents are commands."""
    made = tmp_path / "flow"
    (made / "agent.py").parent.mkdir()
    (made / "agent.py").write_text(AGENT)
    (made / "workflow.awp.yaml").write_text(WORKFLOW)
    for name, fields in {"researcher": ("findings", "api_key", "raw"), "writer": ("draft",)}.items():
        agent = {
            "awp_agent": "1.0.0",
            "identity": {"id": name, "role": "worker", "description": "Works."},
            "runtime": {"command": [sys.executable, "agent.py"]},
            "output": {
                "format": "json",
                "contract": {field: {"type": "string"} for field in fields}
                | {"confidence": {"type": "number", "minimum": 0, "maximum": 1}},
            },
        }
        (made / "agents" / name).mkdir(parents=True)
        (made / "agents" / name / "agent.awp.yaml").write_text(json.dumps(agent))
    return made


def calls(folder: Path) -> list[str]:
    path = folder / "calls"
    return path.read_text().split() if path.exists() else []


@pytest.mark.spec("7.2", "7.6", "2.10")
@pytest.mark.parametrize("engine_name", ["files", "sqlite", "postgres", "redis"], indirect=True)
def test_a_workflow_from_validation_to_merge(cli: Cli, book_url: str, folder: Path) -> None:
    def ask(*args: object) -> Any:
        ran = cli(*args, "--json", "--book", book_url)
        assert ran.code == 0, ran
        return ran.json

    ask("init")
    assert ask("validate", folder) == {"ok": True, "errors": 0, "warnings": 0, "problems": []}
    done = ask("run", folder, "--run", "r1", "--initial", '{"topic": "green"}')
    assert (done["status"], done["steps"]) == ("completed", {"researcher": "finished", "writer": "finished"})
    found = ask("runs", "state", "r1")
    assert found["state"]["researcher"] == {
        "api_key": "[REDACTED]",
        "confidence": 0.9,
        "findings": "tea is green",
        "raw": "[REDACTED]",
    }
    assert found["state"]["writer"]["draft"] == "on ['findings']"  # what it was shown, no more
    assert "researcher" not in ask("runs", "state", "r1", "--at", 1)["state"]
    seen = ask("runs", "state", "r1", "--as", "writer")["state"]
    assert set(seen["researcher"]) == {"findings"}
    fork = ask("runs", "fork", "r1", "--at", found["as_of"], "--new", "r2")
    assert fork == {"run_id": "r2"}
    with commonplace.open(book_url) as book:
        book.run(run_id="r2").agent("writer").write({"draft": "SECRET-KEY-1 is the key", "confidence": 1})
    (changed, _) = ask("runs", "diff", "r1", "r2")[::-1]
    assert (changed["path"], changed["after"]) == ("writer.draft", "[REDACTED] is the key")
    assert [(run["id"], run["status"], run["forked_from"]) for run in ask("runs", "list")] == [
        ("r1", "completed", None),
        ("r2", "running", "r1"),
    ]
    refused = cli("runs", "merge", "r2", "--json", "--book", book_url)
    assert (refused.code, refused.error["code"]) == (1, "conflict")  # r1 has completed
    ask("runs", "fork", "r2", "--new", "r3")
    with commonplace.open(book_url) as book:
        book.run(run_id="r2").agent("writer").write({"draft": "mine", "confidence": 1})
        book.run(run_id="r3").agent("writer").write({"draft": "theirs SECRET-RAW-2", "confidence": 1})
    clash = cli("runs", "merge", "r3", "--json", "--book", book_url)
    assert clash.error["details"] == [
        {
            "field": "writer.draft",
            "base": "[REDACTED] is the key",
            "fork": "theirs [REDACTED]",
            "target": "mine",
        }
    ]
    told = cli("runs", "merge", "r3", "--book", book_url).err
    assert "writer.draft" in told
    assert "mine" in told
    assert ask("runs", "merge", "r3", "--prefer", "fork")["fields"] == ["writer.draft"]


@pytest.mark.spec("7.2", "7.6")
def test_the_same_for_people(cli: Cli, folder: Path) -> None:
    cli("init")
    ran = cli("run", folder, "--run", "r1")
    assert "completed in" in ran.out
    assert "researcher: finished" in ran.err
    for args, told in {
        ("validate", folder): "all is well",
        ("runs", "state", "r1"): "tea is hot",
        ("runs", "state", "r1", "--as", "writer"): "writer.draft",
        ("runs", "fork", "r1", "--new", "r2"): "r2 begins as it was",
        ("runs", "diff", "r1", "r2"): "no difference",
        ("runs", "diff", "r1@1", "r1"): "+",
        ("runs", "list"): "tea-report",
    }.items():
        shown = cli(*args)
        assert (shown.code, told in shown.out) == (0, True), (args, shown)
        assert "SECRET" not in shown.out + shown.err


@pytest.mark.spec("7.6")
def test_validate_lists_every_problem_with_file_place_rule_and_remedy(cli: Cli, folder: Path) -> None:
    text = WORKFLOW.replace("awp: 1.0.0", "awp: v1").replace(
        "depends_on: [researcher]", "depends_on: [nobody]"
    )
    (folder / "workflow.awp.yaml").write_text(text.replace("topic: hot", "_meta: 1"))
    ran = cli("validate", folder, "--json")
    assert ran.code == 1
    problems = ran.json["problems"]
    assert {"R1", "R7", "R13"} <= {one["rule"] for one in problems}
    assert all(one["file"] and one["message"] for one in problems)
    shown = cli("validate", folder)
    assert shown.code == 1
    assert "workflow.awp.yaml: awp: [R1]" in shown.out
    (folder / "workflow.awp.yaml").write_text(
        WORKFLOW.replace("agent: writer,", "agent: writer, enabled: 'x(',")
    )
    assert "is not an expression" in cli("validate", folder).out
    cli("init")
    refused = cli("run", folder, "--json")
    assert (refused.code, refused.error["code"]) == (1, "bad_workflow")
    assert "workflow.awp.yaml cannot be read" in cli("validate", folder.parent).out


@pytest.mark.spec("2.4", "7.6", "2.7")
def test_a_failed_or_killed_run_is_resumed_and_what_had_finished_is_not_run_again(
    cli: Cli, folder: Path
) -> None:
    cli("init")
    (folder / "broken").touch()
    failed = cli("run", folder, "--run", "r1")
    assert failed.code == 1
    assert "cannot write with [REDACTED] today" in failed.err
    assert "SECRET" not in failed.err + failed.out
    (folder / "broken").unlink()
    (folder / "slow").touch()
    with subprocess.Popen([*COMMAND, "run", str(folder), "--resume"], stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 30
        while calls(folder).count("writer") < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    (folder / "slow").unlink()
    done = cli("run", folder, "--resume", "--json")
    assert (done.code, done.json["run_id"], done.json["status"]) == (0, "r1", "completed")
    assert calls(folder) == ["researcher", "writer", "writer", "writer"]
    assert "no run of 'tea-report' waits" in cli("run", folder, "--resume").err


@pytest.mark.spec("7.2")
def test_bad_calls_say_what_to_do(cli: Cli, folder: Path) -> None:
    cli("init")
    for args, code, told in (
        (("runs", "state", "nobody"), 1, "`commonplace runs list` lists the runs"),
        (("runs", "diff", "a", "b"), 1, "there is no run"),
        (("runs", "merge", "nobody"), 1, "there is no run"),
        (("runs", "fork", "nobody"), 1, "there is no run"),
        (("run", folder, "--initial", "[1]"), 2, "not an object"),
        (("run", folder, "--initial", "{"), 2, "not JSON"),
        (("run", folder, "--as", "ada"), 1, "only the book's owner"),
        (("book", "backup", "x.db", "--as", "ada"), 1, "only the book's owner"),
        (("book", "purge", "--as", "ada"), 1, "only the book's owner"),
        (("record", "access.granted", "{}", "--as", "ada"), 1, "belongs to"),
    ):
        ran = cli(*args)
        assert (ran.code, told in ran.err) == (code, True), (args, ran)


@pytest.mark.spec("4.3", "L12")
def test_acting_as_somebody_shows_what_they_may_see(cli: Cli) -> None:
    cli("init")
    cli("record", "agent.thought", '{"text": "PRIVATE"}', "--as", "ada")
    cli("record", "agent.spoke", '{"text": "hello"}', "--as", "ada")
    assert [event["kind"] for event in cli("log", "--json", "--as", "ben").json] == ["agent.spoke"]
    assert len(cli("log", "--json", "--as", "ada").json) == len(cli("log", "--json").json) == 2
    cli("book", "export", "ben.jsonl", "--as", "ben")
    assert "PRIVATE" not in Path("ben.jsonl").read_text()
    cli("book", "export", "all.jsonl")
    assert "PRIVATE" in Path("all.jsonl").read_text()


def test_progress_is_drawn_live_on_a_terminal(cli: Cli, folder: Path) -> None:
    cli("init")
    code, shown = on_a_terminal("run", str(folder))
    assert code == 0
    assert "waiting" in shown
    assert "completed in" in shown


@pytest.mark.spec("7.6")
def test_a_person_answers_an_interactive_loop_on_the_terminal(cli: Cli, folder: Path) -> None:
    (folder / "agent.py").write_text(
        textwrap.dedent("""
        import json, sys
        given = json.load(sys.stdin)
        print(json.dumps({"draft": "draft %s" % given["iteration"], "heard": given["answer"] or "", "confidence": 1}))
        """)
    )
    text = WORKFLOW[: WORKFLOW.index("    - {id: researcher")] + textwrap.indent(
        "- {id: writer, agent: writer, loop: {type: interactive, prompt_field: draft, input_channel: desk}}\n",
        "    ",
    )
    (folder / "workflow.awp.yaml").write_text(text)
    contract = json.loads((folder / "agents/writer/agent.awp.yaml").read_text())
    contract["output"]["contract"]["heard"] = {"type": "string"}
    (folder / "agents/writer/agent.awp.yaml").write_text(json.dumps(contract))
    cli("init")
    code, shown = on_a_terminal("run", str(folder), "--run", "r1", typed="shorter\n\n")
    assert (code, "draft 1" in shown) == (0, True), shown
    assert cli("runs", "state", "r1", "--json").json["state"]["writer"] == {
        "confidence": 1,
        "draft": "draft 2",
        "heard": "shorter",
    }
    refused = in_process("run", str(folder), "--run", "r2", stdin=subprocess.DEVNULL)
    assert "no terminal to ask on" in refused.err


SECRETS = st.text("abcdefghijk0123456789-_!$%&/=?", min_size=6, max_size=20).filter(
    lambda text: not text.isalpha() and any(one.isdigit() for one in text)
)


@pytest.mark.spec("2.7")
@given(secret=SECRETS, where=st.sampled_from(["value", "nested", "list", "text", "error", "initial", "key"]))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_planted_secret_is_in_no_output_of_any_command(
    cli: Cli, tmp_path: Path, secret: str, where: str
) -> None:
    from commonplace.state.policy import Policy
    from commonplace.state.requests import Open

    secret = f"s3cret-{secret}"
    name = f"{len(list(tmp_path.glob('*.db')))}.db"
    url = tmp_path / name
    with commonplace.open(url) as book:
        given: dict[str, Any] = {"api_key": secret} if where == "initial" else {}
        opening = Open(
            "r", "owner", Policy(sensitive_fields=("api_key",), never_share=("raw",)), initial=given
        )
        book.ledger.submit("state.open", opening)
        run = book.run(run_id="r")
        me = run.agent("ada")
        me.write({"api_key": {"deep": [secret]} if where == "nested" else secret})
        planted: dict[str, Any] = {
            "text": {"text": f"the key is {secret}, keep it"},
            "list": {"items": ["x", {"y": secret}]},
            "key": {"map": {secret: 1}},
        }
        me.write(planted.get(where, {"raw": [1, secret]}))
        me.fail(ValueError(f"refused {secret}") if where == "error" else "no")
        run.fork(new_id="f").agent("ada").write({"text": f"again {secret}"})
    shown = ""
    for args in (
        ("log",), ("log", "--json"), ("log", "--as", "ada", "--json"), ("runs", "state", "r"),
        ("runs", "state", "r", "--json"), ("runs", "state", "f", "--json"),
        ("runs", "state", "r", "--as", "ben", "--json"), ("runs", "diff", "r", "f"),
        ("runs", "diff", "r", "f", "--json"), ("runs", "diff", "r@1", "r", "--json"), ("runs", "merge", "f"),
        ("runs", "merge", "f", "--json"), ("runs", "list", "--json"), ("status", "--json"), ("doctor", "--json"),
        ("book", "verify", "--json"),
    ):  # fmt: skip
        ran = cli(*args, "--book", url)
        shown += ran.out + ran.err
    with commonplace.open(url) as book:
        shown += str(list(book.access.audit()))
    assert secret not in shown
    assert json.dumps(secret)[1:-1] not in shown


@pytest.mark.spec("7.2")
def test_what_an_agent_prints_does_not_spoil_the_answer(cli: Cli, folder: Path) -> None:
    (folder / "loud.py").write_text(
        "def work(task):\n    print('chatter')\n    return {'draft': 'x', 'confidence': 1}\n"
    )
    for name in ("researcher", "writer"):
        path = folder / "agents" / name / "agent.awp.yaml"
        agent = json.loads(path.read_text())
        agent["runtime"] = {"callable": "loud:work"}
        agent["output"]["contract"]["draft"] = {"type": "string"}
        path.write_text(json.dumps(agent))
    cli("init")
    ran = cli("run", folder, "--json")
    assert ran.json["status"] == "completed"
    assert "chatter" in ran.err


@pytest.mark.spec("4.3")
def test_a_stranger_learns_nothing_from_status_runs_or_what_is_missing(cli: Cli, folder: Path) -> None:
    cli("init")
    cli("run", folder, "--run", "r1")
    cli("record", "agent.thought", '{"text": "PRIVATE"}', "--as", "ada")
    shown = cli("status", "--json", "--as", "stranger").json
    assert (shown["hash"], "PRIVATE" in json.dumps(shown)) == (None, False)
    assert "PRIVATE" in json.dumps(cli("status", "--json").json)
    told = [
        cli("runs", "state", name, "--as", "stranger").err.replace(name, "RUN") for name in ("r1", "nope")
    ]
    assert told[0] == told[1]
    assert [event["kind"] for event in cli("log", "--json").json][-2:] == ["access.denied"] * 2
