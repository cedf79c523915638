"""Works and tasks as people, agents and scripts meet them in the shell."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import commonplace
from tests.shells import COMMAND, Cli, in_process

Ask = Callable[..., Any]


@pytest.fixture
def ask(cli: Cli) -> Ask:
    """Ask for one JSON document."""

    def run(*args: object) -> Any:
        ran = cli(*args, "--json")
        assert (ran.code, ran.err) == (0, ""), ran
        return ran.json

    return run


@pytest.fixture
def team(ask: Ask) -> Ask:
    """A book with a team: who orchestrates, who reviews, a person, a librarian."""
    ask("init")
    for actor, role in {"orc": "orchestrator", "qa": "qa", "pat": "person", "lib": "librarian"}.items():
        assert ask("access", "grant", actor, "--role", role) == {"ok": True}
    return ask


# one story on every engine that outlives a process


@pytest.mark.spec("7.2", "5.1", "5.2", "5.3", "5.4", "5.5", "5.6", "5.9")
@pytest.mark.parametrize("engine_name", ["files", "sqlite", "postgres", "redis"], indirect=True)
def test_a_team_builds_something_through_the_shell(
    cli: Cli, book_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMMONPLACE_BOOK", book_url)

    def ask(*args: object) -> Any:
        ran = cli(*args, "--json")
        assert (ran.code, ran.err) == (0, ""), ran
        return ran.json

    ask("init")
    ask("access", "grant", "orc", "--role", "orchestrator")
    ask("access", "grant", "qa", "--role", "qa")
    ask("memory", "set-core", "auth", "name=auth")
    made = ask(
        "work", "new", "auth", "--goal", "Add JWT", "--constraint", "No breaking changes", "--core", "auth",
        "--on-failure", '{"policy": "retry", "retries": 1, "backoff": 0}', "--max-tasks", 50, "--as", "orc",
    )  # fmt: skip
    work = made["id"]
    assert (made["status"], made["by"], made["limits"]["max_tasks"]) == ("active", "orc", 50)
    assert made["on_failure"]["policy"] == "retry"
    assert made["created_at"].endswith("Z")
    design = ask("task", "add", work, "Design token schema", "--needs-review", "--priority", 5, "--id", "t1")
    assert (design["status"], design["needs_review"]) == ("pending", True)
    ask("task", "add", work, "Write the token service", "--id", "t2", "--depends-on", "t1", "--as", "orc")
    assert [one["id"] for one in ask("task", "list", work, "--ready")] == ["t1"]
    assert [one["id"] for one in ask("task", "list", work, "--blocked")] == ["t2"]

    claimed = ask("task", "claim", work, "--as", "dev-1")
    token = claimed["token"]
    assert (claimed["task"]["id"], claimed["agent"], claimed["task"]["token"]) == ("t1", "dev-1", token)
    assert claimed["radar"] == []
    assert ask("task", "claim", work, "--agent", "dev-2")["task"] is None
    found = ask("discover", work, "The table has no refresh column", "--type", "constraint", "--task", "t1")
    assert ask("work", "discoveries", work, "--task", "t1") == [found]
    first = ask(
        "decide", work, "Where do tokens go?", "users table", "--alternative", "own table",
        "--rationale", "it is there", "--task", "t1", "--as", "dev-1",
    )  # fmt: skip
    nudge = ask("nudge", work, "Use an own table", "--target", "dev-1", "--delivery", "immediate")
    assert ask("work", "nudges", work, "--peek", "--agent", "dev-1") == [nudge]
    beat = ask("task", "heartbeat", "t1", token, "--lease", 90, "--as", "dev-1")
    assert [one["text"] for one in beat] == ["Use an own table"]
    assert ask("work", "nudges", work, "--as", "dev-1") == []  # it has been told
    assert ask("work", "nudges", work, "--as", "dev-1") == []
    assert ask("work", "acknowledge", nudge["id"], "--as", "dev-1")["ok"] is True
    second = ask(
        "decide", work, "Where do tokens go?", "own table", "--alternative", "users table",
        "--rationale", "a person said so", "--reverses", first["id"], "--affects", "t1", "--as", "dev-1",
    )  # fmt: skip
    assert [one["choice"] for one in ask("work", "decisions", work)] == ["users table", "own table"]
    Path("tokens.sql").write_text("create table tokens;")
    artifact = ask("artifact", work, "tokens.sql", "--type", "schema", "--task", "t1", "--as", "dev-1")
    assert (artifact["version"], artifact["size"]) == (1, 20)
    done = ask(
        "task", "complete", "t1", token, "--summary", "designed", "--next-step", "build it",
        "--learning", "ask early", "--artifact", "notes.md", "--as", "dev-1",
    )  # fmt: skip
    assert (done["status"], done["result"]["summary"]) == ("review", "designed")
    assert [one["path"] for one in ask("work", "artifacts", work)] == ["tokens.sql", "notes.md"]
    (waits,) = ask("inbox", work)["works"]
    waiting = waits["inbox"]
    assert [one["id"] for one in waiting["reviews"]] == ["t1"]
    assert [one["id"] for one in waiting["candidates"]] == [second["id"]]
    assert ask("inbox")["works"] == [waits]
    assert (
        ask("task", "review", "t1", "approved", "--comments", "fine", "--as", "qa")["status"] == "completed"
    )

    context = ask("task", "context", "t2", "--max-tokens", 2000)
    assert "own table" in context["text"]
    assert "users table" not in [one["choice"] for one in context["decisions"]]
    assert len(ask("task", "context", "t2", "--max-chars", 60)["text"]) <= 60
    assert ask("task", "context", "t2", "--at", design["position"] + 1)["decisions"] == []
    held = ask("task", "claim", work, "--agent", "dev-2")
    again = ask("task", "fail", "t2", held["token"], "the build is red")
    assert (again["status"], again["failures"]) == ("pending", 1)  # it is tried once more
    held = ask("task", "claim", work, "--agent", "dev-2", "--task", "t2", "--lease", 30)
    failed = ask("task", "fail", "t2", held["token"], "still red")
    assert (failed["status"], failed["reason"]) == ("failed", "still red")
    (escalated,) = ask("work", "escalations", work)
    settled = ask("work", "answer", escalated["id"], "the runner was full")
    assert (settled["status"], settled["answer"]) == ("resolved", "the runner was full")
    assert ask("task", "retry", "t2")["status"] == "pending"
    held = ask("task", "claim", work, "--agent", "dev-2")
    for _ in range(2):  # the call can be repeated
        assert ask("task", "complete", "t2", held["token"])["status"] == "completed"

    board = ask("work", "show", work)
    assert (board["progress"], board["counts"]["completed"]) == (1.0, 2)
    assert [one["id"] for one in board["tasks"]["completed"]] == ["t2", "t1"]
    assert [one["id"] for one in board["decisions"]] == [second["id"]]
    assert ask("work", "show", work, "--at", design["position"])["totals"]["ready"] == 1
    agents = {one["agent"]: one for one in ask("work", "contributions", work)}
    assert (agents["dev-1"]["tasks"], agents["qa"]["reviews"]) == (["t1"], ["t1"])
    kept = ask("promote", second["id"])
    assert kept["outcome"] == "stored"
    assert "own table" in ask("memory", "list", "--core", "auth")["items"][0]["text"]
    assert ask("work", "candidates", work) == []
    assert [one["verdict"] for one in ask("work", "candidates", work, "--judged")] == ["promoted"]
    assert ask("work", "complete", work, "--summary", "shipped", "--as", "orc")["status"] == "completed"
    assert [one["id"] for one in ask("work", "list", "--status", "completed")] == [work]
    assert ask("work", "archive", work)["status"] == "archived"
    assert ask("work", "export", work, "auth.json") == 2
    assert json.loads(Path("auth.json").read_text())["work"]["name"] == "auth"
    assert cli("work", "discard", work).code == 1
    assert ask("work", "discard", work, "--yes", "--reason", "asked")["erased"] > 10
    assert ask("work", "show", work)["tasks"]["completed"][0]["title"] == ""
    assert ask("book", "verify")["ok"] is True


@pytest.mark.spec("7.2", "5.2")
def test_tasks_are_linked_moved_and_cancelled(team: Ask, cli: Cli) -> None:
    ask = team
    work = ask("work", "new", "site", "--id", "w")["id"]
    for id, title in {"a": "draw", "b": "paint", "c": "frame", "d": "sell"}.items():
        ask("task", "add", work, title, "--id", id)
    assert ask("task", "link", "b", "--on", "a")["depends_on"] == ["a"]
    assert ask("task", "link", "c", "--on", "a", "--on", "b")["waits"] == 2
    assert [one["id"] for one in ask("work", "path", work)] == ["a", "b", "c"]
    assert ask("task", "unlink", "c", "--on", "a")["depends_on"] == ["b"]
    graph = ask("work", "graph", work, "--format", "dot")
    assert "t0 -> t1;" in graph["text"]
    assert ask("work", "graph", work)["text"].startswith("%% site\nflowchart LR\n")
    assert ask("task", "assign", "d", "dev-1")["assigned_to"] == "dev-1"
    assert ask("task", "unassign", "d")["status"] == "pending"
    edited = ask("task", "edit", "d", "title=sell it", "priority=3", "needs_review=true")
    assert (edited["title"], edited["priority"], edited["needs_review"]) == ("sell it", 3, True)
    assert ask("task", "edit", "d", "needs_review=false")["needs_review"] is False
    assert ask("task", "block", "d", "--reason", "nobody buys")["status"] == "blocked"
    assert ask("task", "unblock", "d")["status"] == "pending"
    assert ask("task", "show", "d")["title"] == "sell it"
    claim = ask("task", "claim", work, "--agent", "dev-1")
    assert ask("task", "release", "d", claim["token"], "--reason", "tired")["status"] == "pending"
    claim = ask("task", "claim", work, "--agent", "dev-1", "--task", "d")
    waits = ask("task", "block", "d", "--token", claim["token"], "--on", "a")
    assert (waits["status"], waits["depends_on"]) == ("blocked", ["a"])
    claim = ask("task", "claim", work, "--agent", "dev-1")
    split = ask("task", "split", "a", claim["token"], "sketch", "trace")
    assert (split["status"], split["waits"]) == ("blocked", 2)
    assert [one["title"] for one in ask("task", "list", work, "--ready")] == ["sketch", "trace"]
    assert [one["id"] for one in ask("task", "radar", "a")] == []
    ask("task", "add", work, "sketch", "--id", "e")
    assert [one["kind"] for one in ask("task", "radar", "e")] == ["task"]
    assert (
        ask("task", "cancel", "b", "--reason", "no paint", "--dependents", "cancel")["status"] == "cancelled"
    )
    assert {one["id"] for one in ask("task", "list", work, "--status", "cancelled")} == {"b", "c"}
    several = [
        {"title": "wax", "depends_on": ["m1", "m2"]},
        {"id": "m1", "title": "sand", "priority": 9},
        {"id": "m2", "title": "oil", "priority": 8},
    ]
    added = ask("task", "add-many", work, json.dumps(several))
    assert [(one["title"], one["waits"]) for one in added] == [("wax", 2), ("sand", 0), ("oil", 0)]
    claims = ask("task", "claim-many", work, 2, "--agent", "dev-2", "--lease", 30)
    assert [one["task"]["id"] for one in claims] == ["m1", "m2"]
    held = [f"{one['task']['id']}={one['token']}" for one in claims]
    done = ask("task", "complete-many", work, *held, "--summary", "both", "--as", "dev-2")
    assert [(one["status"], one["result"]["summary"]) for one in done] == [("completed", "both")] * 2
    assert cli("task", "complete-many", work, "m1").code == 2
    assert cli("task", "complete-many", work, "m1=" + "9" * 5000).code == 2
    assert cli("task", "complete-many", work, *held).code == 1, "they are done already"
    assert cli("task", "add-many", work, "[").code == 2
    assert ask("work", "pause", work, "--reason", "lunch")["status"] == "paused"
    assert ask("task", "claim", work, "--agent", "dev-1")["task"] is None
    assert ask("task", "claim-many", work, 3, "--agent", "dev-1") == []
    assert ask("work", "resume", work)["status"] == "active"
    assert ask("work", "abandon", work, "no money")["reason"] == "no money"
    assert ask("work", "archive", "--older-than", "24h")["archived"] == []
    planned = ask("work", "archive", "--older-than", 0, "--dry-run")
    assert ([one["id"] for one in planned["archived"]], planned["dry_run"]) == (["w"], True)
    assert ask("work", "list")[0]["status"] == "cancelled"
    assert len(ask("work", "archive", "--older-than", 0)["archived"]) == 1
    assert ask("work", "list")[0]["status"] == "archived"


@pytest.mark.spec("7.2", "5.6", "5.9", "5.10")
def test_people_allow_choose_review_and_judge(team: Ask) -> None:
    ask = team
    work = ask("work", "new", "move", "--as", "orc")["id"]
    for id in ("lorry", "train", "pack"):
        ask("task", "add", work, f"by {id}", "--id", id)
    ask("task", "add", work, "sell the flat", "--id", "sell", "--risk", "for good")
    (gate,) = ask("work", "approvals", work)
    assert ask("approve", gate["id"], "--why", "go", "--as", "pat")["answered_by"] == "pat"
    asked = ask("work", "request-approval", work, "spend 500", "--risk", "money", "--task", "pack")
    assert ask("work", "disapprove", asked["id"], "--as", "pat")["status"] == "rejected"
    assert ask("task", "show", "pack")["status"] == "cancelled"
    branch = ask("work", "branch", work, "How?", "--option", "road=lorry", "--option", "rail=train")
    assert ask("work", "branches", work) == [branch]
    assert (
        ask("work", "choose", branch["id"], "rail", "--rationale", "greener", "--as", "orc")["choice"]
        == "rail"
    )
    assert ask("task", "show", "lorry")["status"] == "cancelled"
    assert ask("decide", work, "When?", "in May", "--no-reversible")["reversible"] is False
    stuck = ask("work", "escalate", work, "which station?", "--type", "needs_decision", "--as", "dev-1")
    assert [one["id"] for one in ask("inbox", work)["works"][0]["inbox"]["escalations"]] == [stuck["id"]]
    insight = ask("discover", work, "Trains are late on Mondays", "--as", "dev-1")
    assert ask("work", "reject", insight["id"], "--reason", "not ours", "--as", "lib")["ok"] is True
    for number in range(3):
        ask("task", "add", work, f"carry box {number}", "--needs-review", "--priority", 9)
        claim = ask("task", "claim", work, "--agent", "dev-1")
        ask("task", "complete", claim["task"]["id"], claim["token"])
        ask("task", "assign-review", claim["task"]["id"], "dev-2")
        ask("task", "review", claim["task"]["id"], "approved", "--as", "dev-2")
    (pattern,) = [one for one in ask("work", "candidates", work) if one["kind"] == "pattern"]
    ask("memory", "set-core", "moving", "name=moving")
    kept = ask("promote", pattern["id"], "--core", "moving", "--work", work, "--as", "lib")
    assert kept["outcome"] == "stored"


@pytest.mark.spec("7.2", "5.7")
def test_whoever_leads_is_told_step_by_step_and_the_next_one_goes_on(team: Ask, cli: Cli) -> None:
    ask = team
    work = ask("work", "new", "move", "--as", "orc")["id"]
    led = ask("work", "lead", work, "--as", "orc")
    assert (led["agent"], led["step"]) == ("orc", None)
    nudge = ask("nudge", work, "hurry", "--target", "orchestrator")
    ask("task", "add", work, "pack", "--id", "pack")
    assert cli("work", "lead", work, "--agent", "pat").code == 1  # somebody leads it
    assert ask("work", "lead", work, "--as", "orc")["step"]["id"] == nudge["id"]
    assert ask("work", "lead", work, "--as", "orc", "--resign")["resigned"] is True
    second = ask("work", "lead", work, "--agent", "pat", "--lease", 5)
    assert (second["step"]["kind"], second["fence"] > led["fence"]) == ("nudge", True)
    third = ask("work", "lead", work, "--agent", "pat", "--handled", nudge["id"])
    assert (third["step"]["kind"], third["step"]["task"]["id"]) == ("ready", "pack")
    assert ask("work", "lead", work, "--agent", "pat", "--handled", third["step"]["id"])["step"] is None


# people


@pytest.mark.spec("7.2", "5.10")
def test_the_same_for_people(team: Ask, cli: Cli) -> None:
    assert (
        cli("work", "new", "auth", "--id", "w", "--goal", "Add\x1b[31m JWT", "--constraint", "soon").code == 0
    )
    team("task", "add", "w", "design the token schema", "--id", "t1", "--priority", 5)
    team("task", "add", "w", "build \x1b[2J", "--id", "t2", "--depends-on", "t1")
    team("task", "add", "w", "deploy", "--id", "t3", "--risk", "downtime")
    team("task", "add", "w", "design the token schema", "--id", "t4")
    claimed = cli("task", "claim", "w", "--agent", "dev-1").out.splitlines()
    id, token = claimed[0].split()
    assert id == "t1"
    assert "maybe needless: design the token schema (task t4, pending)" in claimed
    decided = team("decide", "w", "Which library?", "jose", "--rationale", "newer", "--alternative", "jwt")
    board = cli("work", "show", "w").out
    for told in (
        "auth  active  w", "Add\\x1b[31m JWT", "- soon", "0% of 4 tasks: 1 in progress, 3 pending",
        "in progress", "dev-1", "ready", "blocked", "waits for people", "  approve ", "deploy downtime",
        "latest decisions", "  Which library? jose (owner)",
    ):  # fmt: skip
        assert told in board, told
    assert "… and 1 more" in cli("work", "show", "w", "--limit", 1).out
    for args, told in {
        ("work", "list"): "active  auth",
        ("work", "graph", "w"): '    t0["design',
        ("work", "path", "w"): "build",
        ("work", "archive", "--older-than", "1h", "--dry-run"): "no work has been finished",
        ("task", "list", "w"): "in progress  5",
        ("task", "show", "t2"): "depends on",
        ("task", "heartbeat", "t1", token): "still held",
        ("task", "complete", "t1", token): "t1 is completed: design",
        ("work", "contributions", "w"): "commonplace log --actor dev-1",
        ("work", "decisions", "w"): "    because newer",
        ("work", "discoveries", "w"): "none yet",
        ("inbox",): "deploy, downtime",
        ("task", "context", "t2"): "## Goal",
        ("task", "radar", "t4"): "1.00",
        ("work", "nudges", "w", "--agent", "dev-1"): "nothing to be told",
        ("work", "lead", "w", "--agent", "dev-1"): "(step ready-t2-",
        ("work", "reject", decided["id"]): "done",
        ("access", "grant", "ann", "--role", "qa"): "done",
        ("task", "claim", "w", "--agent", "dev-1", "--task", "t2"): "t2 ",
        ("work", "pause", "w"): "w is paused: auth",
        ("task", "claim", "w", "--agent", "dev-2"): "nothing to do now",
    }.items():  # fmt: skip
        ran = cli(*args)
        assert (ran.code, ran.err) == (0, ""), ran
        assert told in ran.out, ran.out
        assert "\x1b" not in ran.out
    said = cli("nudge", "w", "look up", "--target", "dev-1").out.partition(":")[0]
    assert "look up" in cli("work", "nudges", "w", "--agent", "dev-1").out
    assert cli("work", "acknowledge", said, "--agent", "dev-1").code == 0


@pytest.mark.spec("7.2", "5.10")
def test_a_graph_is_piped_on_as_it_is(team: Ask, cli: Cli) -> None:
    team("work", "new", "w", "--id", "w")
    team("task", "add", "w", "long " * 20, "--assign", "an-agent-with-a-name-" + "x" * 80)
    for format in ("mermaid", "dot"):
        drawn = team("work", "graph", "w", "--format", format)["text"]
        assert max(map(len, drawn.splitlines())) > 160
        assert cli("work", "graph", "w", "--format", format).out == drawn


# refusals


@pytest.mark.spec("7.2", "5.2", "5.3")
def test_what_is_refused_says_why_with_exit_code_1(team: Ask, cli: Cli) -> None:
    team("work", "new", "auth", "--id", "w")
    team("work", "new", "hidden", "--id", "h", "--member", "dev-1")
    for id in ("t1", "t2", "t3"):
        team("task", "add", "w", f"task {id}", "--id", id)
    team("task", "add", "h", "secret", "--id", "s")
    team("task", "link", "t2", "--on", "t1")
    team("task", "link", "t3", "--on", "t2")
    token = team("task", "claim", "w", "--agent", "dev-1")["token"]
    for args, code in {
        ("work", "show", "nothing"): "not_found",
        ("work", "show", "h", "--as", "eve"): "not_found",
        ("task", "show", "s", "--as", "eve"): "not_found",
        ("task", "show", "nothing"): "not_found",
        ("approve", "nothing"): "not_found",
        ("work", "new", "mine", "--as", "dev-1"): "denied",
        ("task", "add", "w", "more", "--as", "dev-1"): "denied",
        ("task", "complete", "t1", token, "--as", "eve"): "denied",
        ("task", "complete", "t1", token + 1, "--as", "dev-1"): "fenced",
        ("task", "heartbeat", "t2", token): "fenced",
        ("task", "claim", "w", "--agent", "dev-1", "--as", "dev-2"): "denied",
        ("task", "claim", "w"): "bad_input",
        ("task", "claim", "w", "--agent", "dev-2", "--task", "t2"): "conflict",
        ("task", "claim", "w", "--agent", "dev-2", "--lease", "0"): "bad_input",
        ("task", "link", "t2", "--on", "t3"): "cycle",
        ("task", "review", "t1", "approved"): "conflict",
        ("task", "review", "t2", "approved"): "bad_move",
        ("task", "review", "t1", "lovely"): "bad_input",
        ("task", "block", "t3"): "bad_input",
        ("task", "cancel", "t3", "--reason", "why", "--dependents", "eat"): "bad_input",
        ("task", "add", "w", "x", "--on-failure", "shrug"): "bad_input",
        ("work", "complete", "w"): "conflict",
        ("work", "archive", "w"): "conflict",
        ("discover", "w", "x", "--type", "rumour"): "bad_input",
        ("work", "nudges", "w"): "bad_input",
        ("promote", "pattern-1"): "not_found",
        ("work", "reject", "nothing", "--work", "w"): "not_found",
        ("task", "context", "t1", "--max-chars", "0"): "bad_input",
        ("work", "lead", "w", "--as", "dev-1"): "denied",
        ("access", "grant", "eve", "--role", "king"): "bad_input",
        ("access", "grant", "eve", "--role", "person", "--as", "eve"): "denied",
    }.items():
        ran = cli(*args, "--json")
        assert (ran.code, ran.out, ran.error["code"]) == (1, "", code), ran
    assert "t3" in cli("task", "link", "t2", "--on", "t3").err  # the cycle is named


@pytest.mark.spec("7.2")
@pytest.mark.parametrize(
    "args",
    [
        ["work"],
        ["work", "dance"],
        ["work", "new"],
        ["work", "abandon", "w"],
        ["work", "show", "w", "--follow", "--at", "1"],
        ["work", "show", "w", "--limit", "0"],
        ["work", "archive", "w", "--dry-run"],
        ["task", "list", "w", "--ready", "--blocked"],
        ["task", "complete", "t1", "soon"],
        ["task", "block", "t1", "--reason", "why", "--on", "t2"],
        ["task", "split", "t1", "3"],
        ["work", "branch", "w", "which?", "--option", "nothing"],
        ["decide", "w", "which?"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_exit_code_2(team: Ask, cli: Cli, args: list[str]) -> None:
    team("work", "new", "w", "--id", "w")
    ran = cli(*args)
    assert ran.code == 2, ran
    assert len(args) == 1 or "Error: " in ran.err


# following


@pytest.fixture
def following() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start `work show --follow` in a process of its own, and never leave it behind."""
    started: list[subprocess.Popen[str]] = []

    def follow(*args: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        command = [*COMMAND, "work", "show", "w", "--follow", *args]
        wide = {**os.environ, "COLUMNS": "120"}
        started.append(subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=wide))
        return started[-1]

    yield follow
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.spec("7.2", "5.10", "L3")
def test_follow_tells_what_others_do_a_line_each_until_it_is_interrupted(
    team: Ask, following: Callable[..., subprocess.Popen[str]]
) -> None:
    team("work", "new", "auth", "--id", "w")
    team("work", "new", "another", "--id", "x")
    team("task", "add", "w", "design it", "--id", "t1")
    people, script = following(), following("--json", "--as", "dev-1")
    assert people.stdout is not None
    assert script.stdout is not None
    assert people.stdout.readline().startswith("auth  active")
    while "design it" not in people.stdout.readline():
        pass
    assert json.loads(script.stdout.readline())["tasks"]["ready"][0]["id"] == "t1"
    team("task", "add", "x", "not here")
    claim = json.loads(in_process("task", "claim", "w", "--agent", "dev-1", "--json").out)
    team("task", "fail", "t1", claim["token"], "it \x1b[2J burned")
    lines = [people.stdout.readline() for _ in range(3)]
    assert "dev-1 claimed “design it”" in lines[0]
    assert "dev-1 failed at “design it”: it \\x1b[2J burned" in lines[1]
    assert "asked for help" in lines[2]
    kinds = [json.loads(script.stdout.readline())["kind"] for _ in range(3)]
    assert kinds == ["task.claimed", "task.failed", "work.escalated"]
    for process in (people, script):
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30) == ("", "")
        assert process.returncode == 130


@pytest.mark.spec("7.2", "5.10")
def test_on_a_terminal_the_board_is_drawn_again_with_the_news(team: Ask) -> None:
    team("work", "new", "auth", "--id", "w")
    team("task", "add", "w", "design it", "--id", "t1")
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    command = [*COMMAND, "work", "show", "w", "--follow"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        shown = ""

        def read_until(text: str) -> None:
            nonlocal shown
            while text not in shown:
                shown += os.read(ours, 65536).decode()

        try:
            read_until("design it")
            with commonplace.open(".commonplace/book.db") as book:
                book.work("w").claim("dev-1", lease=600)
            read_until("dev-1")
            assert "in progress" in shown
            process.send_signal(signal.SIGINT)
            with suppress(OSError):  # how Linux says that the other side has gone
                while piece := os.read(ours, 65536):
                    shown += piece.decode()
        finally:
            process.kill()
            os.close(ours)
    assert process.returncode == 130
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")  # the cursor is there again
    assert "Traceback" not in shown


@pytest.mark.spec("7.2", "5.1")
def test_a_charter_is_changed(cli: Cli, ask: Ask) -> None:
    ask("init")
    ask("work", "new", "auth", "--id", "w", "--max-tasks", 50, "--constraint", "No breaking changes")
    ask("work", "change", "w", "--goal", "Add JWT", "--constraint", "Keep the cookies")
    made = ask("work", "change", "w", "--on-failure", "retry", "--max-agents", 5)
    assert (made["goal"], made["constraints"]) == ("Add JWT", ["Keep the cookies"])
    assert (made["limits"]["max_tasks"], made["limits"]["max_agents"]) == (50, 5)
    assert made["on_failure"]["policy"] == "retry"
    assert cli("work", "change", "w").code == 2


@pytest.mark.spec("7.2", "5.4")
def test_what_was_made_is_read_again(cli: Cli, ask: Ask, tmp_path: Path) -> None:
    ask("init")
    ask("work", "new", "auth", "--id", "w")
    (tmp_path / "tokens.sql").write_text("create table tokens ()\n")
    (tmp_path / "key.bin").write_bytes(b"\xff\x00")
    made = ask("artifact", "w", tmp_path / "tokens.sql")["id"]
    assert ask("work", "content", made)["text"] == "create table tokens ()\n"
    assert "create table tokens ()" in cli("work", "content", made).out
    binary = ask("artifact", "w", tmp_path / "key.bin")["id"]
    assert "name a FILE" in cli("work", "content", binary).err
    assert ask("work", "content", binary, tmp_path / "copy.bin")["size"] == 2
    assert (tmp_path / "copy.bin").read_bytes() == b"\xff\x00"
    assert "no-such-folder" in cli("work", "content", binary, tmp_path / "no-such-folder" / "copy").err


# a command that does tasks


DOES = """
import os, sys
context = sys.stdin.read()
if "bad" in context:
    sys.exit("no way")
print(os.environ["COMMONPLACE_WORK"], os.environ["COMMONPLACE_TASK"], "JWT" in context)
"""


@pytest.mark.spec("5.3", "7.2")
def test_a_command_does_tasks(ask: Ask, cli: Cli) -> None:
    ask("init")
    ask("work", "new", "auth", "--id", "auth", "--goal", "Add JWT")
    for title in ("good", "bad"):
        ask("task", "add", "auth", title, "--id", title)
    does = ("--", sys.executable, "-c", DOES)
    ran = cli("work", "do", "auth", "--agent", "dev-1", *does)
    assert (ran.code, ran.out.splitlines()) == (
        1,
        [
            "dev-1 completed 1, failed at 1, and lost 0",
            "left undone, because they have failed or wait for what has: 1",
        ],
    )
    assert ask("task", "show", "good")["result"]["summary"] == "auth good True"
    assert ask("task", "show", "bad")["reason"] == "RuntimeError: exit code 1: no way"
    ask("task", "add", "auth", "good as well", "--id", "more")
    Path("does.py").write_text(DOES)
    how = ("--as", "dev-1", "--until", "idle", "--most", 1)
    worked = ask("work", "do", "auth", sys.executable, "does.py", *how)
    assert worked["completed"] == 1
    refused = cli("work", "do", "auth", *does)
    assert (refused.code, "say which agent" in refused.err) == (2, True)


@pytest.mark.spec("5.3", "7.2", "L5")
def test_a_command_that_is_not_there_fails_no_task(ask: Ask, cli: Cli) -> None:
    ask("init")
    ask("work", "new", "auth", "--id", "auth")
    for title in ("one", "two"):
        ask("task", "add", "auth", title)
    Path("notes.txt").write_text("cannot be run")
    for command in ("nosuchcommand", "./nosuchcommand", "./notes.txt", "."):
        ran = cli("work", "do", "auth", "--as", "dev-1", "--", command, "--fast")
        assert (ran.code, ran.out) == (1, "")
        assert f"there is no command {command!r} to run" in ran.err
    assert [(one["status"], one["claims"]) for one in ask("task", "list", "auth")] == [("pending", 0)] * 2
