"""The `commonplace` command: what a person or a script sees of it.

Most tests call `main` in this process, because it is quick; what depends on a real process (pipes, signals,
terminals, what gets imported) runs in one.
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import apsw
import pytest

import commonplace
from commonplace.surfaces import cli as module
from commonplace.surfaces import health, shell
from commonplace.surfaces.places import public
from tests.shells import COMMAND, Cli, Ran, in_process, on_a_terminal

DOCS = Path(__file__).parents[1] / "docs" / "cli.md"
REGENERATE = "UPDATE_DOCS=1 python -m pytest tests/test_cli.py -k docs"

HOSTILE = "a\x1b[2J\x1b]0;owned\x07b\x9b31m\u202ec\r\nd\x00e\x7f"


@pytest.fixture(autouse=True)
def _here(plain_shell: None) -> None:
    """Every test here runs in a shell without settings, in an empty folder."""


def fill(url: str | Path, count: int = 3) -> list[str]:
    """A book with events of two actors in two runs; answers their ids."""
    with commonplace.open(url) as book:
        return [
            book.record(
                "agent.spoke" if number % 2 else "tool.called",
                actor="ada" if number % 2 else "ben",
                run_id="r1" if number % 2 else "r2",
                payload={"text": f"word {number}"},
            ).id
            for number in range(1, count + 1)
        ]


# the command itself


@pytest.mark.spec("7.2")
def test_the_script_is_registered_and_tells_its_version() -> None:
    (script,) = entry_points(group="console_scripts", name="commonplace")
    assert script.load() is module.main
    ran = in_process("--version")
    assert ran == Ran(0, f"commonplace {commonplace.__version__}\n", "")


@pytest.mark.spec("7.2")
def test_the_library_does_without_click_and_rich_and_a_command_without_rich(tmp_path: Path) -> None:
    fill(tmp_path / "team.db")
    script = """
import sys
import commonplace
assert not {"click", "rich"} & set(sys.modules), "the library imports them"
sys.argv = ["commonplace", *sys.argv[1:]]
from commonplace.surfaces.cli import main
try:
    main()
finally:
    assert "rich" not in sys.modules, "rich is imported"
"""
    for args in (
        ["--help"],
        ["log", "--book", str(tmp_path / "team.db")],
        ["runs", "list", "--book", str(tmp_path / "team.db")],
    ):
        ran = subprocess.run(
            [sys.executable, "-c", script, *args], capture_output=True, text=True, timeout=60
        )
        assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.spec("7.2")
def test_the_shell_completes_commands() -> None:
    env = {"_COMMONPLACE_COMPLETE": "bash_complete", "COMP_WORDS": "commonplace val", "COMP_CWORD": "1"}
    ran = in_process(env={**os.environ, **env})
    assert ran.out.split() == ["plain,validate"]


@pytest.mark.spec("7.2")
@pytest.mark.parametrize("args", [["--json", "--as", "ada", "--book", "b.db"], []])
def test_common_options_stand_before_the_command_or_after_it(cli: Cli, args: list[str]) -> None:
    after = [] if args else ["--as", "ada", "--json", "--book", "b.db"]
    assert cli("init", "--book", "b.db").code == 0
    event = cli(*args, "record", "agent.spoke", *after).json
    assert (event["position"], event["actor"]) == (1, "ada")


@pytest.mark.spec("7.2")
def test_the_book_is_the_option_or_the_environment_or_the_default(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("init", "--json").json["url"] == ".commonplace/book.db"
    assert Path(".commonplace/book.db").is_file()
    monkeypatch.setenv("COMMONPLACE_BOOK", "env.db")
    assert cli("init", "--json").json["url"] == "env.db"
    assert cli("init", "--json", "--book", "option.db").json["url"] == "option.db"


# one story on every engine that outlives a process


@pytest.mark.spec("7.2")
def test_the_book_of_a_project_stays_out_of_its_git(cli: Cli) -> None:
    subprocess.run(["git", "init", "--quiet"], check=True)
    cli("init")
    cli("remember", "Postgres listens on 5433")
    shown = subprocess.run(
        ["git", "status", "--short", "--untracked-files=all"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert ".commonplace/.gitignore" in shown
    assert "book.db" not in shown
    ignored = Path(".commonplace/.gitignore")
    ignored.write_text("# mine\n")
    cli("init")
    assert ignored.read_text() == "# mine\n"


@pytest.mark.spec("7.2", "1.2", "1.3", "1.4")
@pytest.mark.parametrize("engine_name", ["files", "sqlite", "postgres", "redis"], indirect=True)
def test_every_command_answers_with_one_json_document(
    cli: Cli, book_url: str, engine_name: str, tmp_path: Path
) -> None:
    def ask(*args: object) -> Any:
        ran = cli(*args, "--json", "--book", book_url)
        assert ran.code == 0, ran
        assert ran.err == "" or set(json.loads(ran.err)) == {"warnings"}
        return ran.json

    assert ask("init")["created"] is True
    assert ask("init")["created"] is False
    first = ask("record", "agent.spoke", '{"text": "hello"}', "--run", "r1", "--as", "ada")
    second = ask("record", "agent.reflected", '{"n": 1}', "--parent", first["id"])
    status = ask("status")
    assert (status["engine"], status["head"], status["hash"]) == (engine_name, 2, second["hash"])
    assert ask("doctor")["problems"] == []
    assert ask("log") == [first, second]
    assert [(run["id"], run["first"], run["status"]) for run in ask("runs", "list")] == [("r1", 1, None)]
    assert ask("book", "verify")["ok"] is True
    assert ask("book", "rebuild")["events"] == 2
    assert ask("book", "export", tmp_path / "out.jsonl") == {"events": 2, "file": str(tmp_path / "out.jsonl")}
    assert ask("import", tmp_path / "out.jsonl")["already"] == 2
    assert ask("book", "import", tmp_path / "out.jsonl")["already"] == 2
    assert ask("book", "copy", book_url, tmp_path / "copy.db")["exact"] is True
    assert ask("book", "backup", tmp_path / "backup.db") == 2
    found = ask("book", "find", "HELLO", "--actor", "ada")
    assert (found["counts"], found["entries"][0]["id"], found["derived"][0]["id"]) == (
        {"event": 1},
        first["id"],
        second["id"],
    )
    assert ask("book", "erase", "--text", "hello", "--dry-run")["counts"] == {"event": 2}
    erased = ask("book", "erase", first["id"], "--yes", "--reason", "asked")
    assert (erased["erased"], erased["derived"]) == ([first["id"], second["id"]], [second["id"]])
    assert erased["gone"] is True
    assert [event.get("erased", False) for event in ask("log")] == [True, True, False]
    assert "done" in ask("book", "purge")
    assert ask("book", "verify")["erased"] == 2


@pytest.mark.spec("7.2")
def test_every_command_has_been_asked_for_json() -> None:
    """Keeps the story above complete: whoever adds a command adds it there."""
    told = "".join(path.read_text() for path in Path(__file__).parent.glob("test_cli*.py"))
    asked = {name: 'ask("' + name.replace(" ", '", "') + '"' for name in commands()}
    assert [name for name, call in asked.items() if call not in told] == [
        "demo",
        "serve",
        "mcp",
        "learn hook",
        "mirror watch",
    ]


@pytest.mark.spec("7.2")
def test_the_same_story_for_people(cli: Cli, tmp_path: Path) -> None:
    """Every command says something readable, on stdout, in lines without styling."""
    assert "durable  proven" in cli("init", "--name", "team").out
    first, second, *_ = fill(".commonplace/book.db")
    for args, told in {
        ("init",): "already there: 'team'",
        ("init", "--quiet"): "",
        ("status",): "agent.spoke by ada",
        ("doctor",): "all is well",
        ("log",): "word 3",
        ("runs", "list"): "r2",
        ("runs", "list", "--at", 1): "r1",
        ("book", "verify"): "the chain holds: 3 events",
        ("book", "rebuild"): "from 3 events",
        ("book", "export", tmp_path / "e.jsonl"): "3 events written to",
        ("import", tmp_path / "e.jsonl"): "3 were here",
        (
            "book",
            "copy",
            ".commonplace/book.db",
            f"file:{tmp_path / 'copy'}",
        ): "with their positions and hashes",
        ("book", "backup", tmp_path / "backup.db"): "3",
        ("book", "erase", second, "--dry-run"): "to erase",
        ("book", "erase", second, "--yes"): "gone from every read",
        ("book", "erase", second, "--yes", "--reason", "again"): "erased before",
        ("book", "purge"): "done",
        ("record", "agent.spoke", "--id", "mine"): "5 mine",
    }.items():
        ran = cli(*args)
        assert (ran.code, ran.err) == (0, ""), ran
        assert told in ran.out
        assert "\x1b" not in ran.out
        assert bool(ran.out) == bool(told)
    assert first not in cli("book", "erase", second, "--dry-run").out


@pytest.mark.spec("7.2")
def test_a_memory_book_can_be_made_and_is_gone(cli: Cli) -> None:
    made = cli("init", "--book", "memory:", "--json")
    assert made.json["facts"]["durable"] == "no"
    assert cli("status", "--book", "memory:").code == 1


# refusals


@pytest.mark.spec("7.2")
@pytest.mark.parametrize(
    "args",
    [
        ["status"],
        ["record", "agent.spoke"],
        ["log"],
        ["log", "--follow"],
        ["runs", "list"],
        ["book", "verify"],
        ["book", "rebuild"],
        ["book", "export", "out"],
        ["import", "in"],
        ["book", "backup", "out"],
        ["book", "purge"],
        ["book", "erase", "x", "--yes"],
        ["book", "copy", "team.db", "to.db"],
        ["doctor"],
    ],
    ids=" ".join,
)
def test_without_a_book_a_command_names_the_one_that_makes_it(cli: Cli, args: list[str]) -> None:
    ran = cli(*args, "--book", "team.db")
    assert ran.code == 1
    assert "commonplace init --book team.db" in (ran.out if args == ["doctor"] else ran.err)
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.spec("7.2")
def test_a_refusal_is_one_line_on_stderr_and_exit_code_1(cli: Cli) -> None:
    ran = in_process("status")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "Error: there is no book at .commonplace/book.db: create it with `commonplace init`\n"
    ran = cli("status", "--json")
    assert (ran.code, ran.out) == (1, "")
    assert ran.error["code"] == "book_not_found"
    assert ran.error["status"] == 404


@pytest.mark.spec("7.2")
def test_what_the_book_refuses_is_refused(cli: Cli) -> None:
    cli("init")
    for args, code in {
        ("record", "nodots"): "bad_input",
        ("record", "task.completed"): "owned_kind",
        ("record", "agent.spoke", "[1]"): "bad_input",
        ("log", "--at", "7"): "bad_input",
        ("log", "--after", "-1"): "bad_input",
        ("book", "erase", "nobody", "--yes"): "not_found",
        ("import", "nothing"): "bad_input",
        ("book", "export", "no/such/folder/x"): "bad_input",
        ("status", "--book", "mystery:x"): "unknown_engine",
    }.items():
        ran = cli(*args, "--json")
        assert (ran.code, ran.out, ran.error["code"]) == (1, "", code), ran


@pytest.mark.spec("7.2")
@pytest.mark.parametrize(
    "args",
    [
        ["record"],
        ["record", "agent.spoke", "{not json"],
        ["record", "agent.spoke", "--turn", "soon"],
        ["record", "agent.spoke", "--label", "nothing"],
        ["record", "agent.spoke", "--occurred-at", "yesterday"],
        ["log", "--at", "yesterday"],
        ["log", "--at", "1", "--follow"],
        ["log", "--last", "0"],
        ["log", "--run", "\udcff"],
        ["book", "export", "."],
        ["dance"],
        ["status", "--dance"],
    ],
    ids=lambda args: ascii(" ".join(args)),
)
def test_wrong_usage_is_exit_code_2(cli: Cli, args: list[str]) -> None:
    cli("init")
    ran = cli(*args)
    assert (ran.code, ran.out) == (2, "")
    assert "Error: " in ran.err
    ran = cli("--json", *args)
    assert (ran.code, ran.out, ran.error["code"]) == (2, "", "usage")


@pytest.mark.spec("7.2")
def test_a_warning_waits_for_the_end_so_that_stderr_is_one_document(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("init")
    real = health.standing

    def uneasy(*args: Any) -> Any:
        logging.getLogger("commonplace").warning("the disk smells of %s", "smoke\x1b[0m")
        return real(*args)

    monkeypatch.setattr(health, "standing", uneasy)
    assert json.loads(cli("status", "--json").err) == {"warnings": ["the disk smells of smoke\x1b[0m"]}
    assert cli("status").err == "Warning: the disk smells of smoke\\x1b[0m\n"


@pytest.mark.spec("7.2")
def test_a_password_in_a_url_is_never_shown() -> None:
    for url in (
        "postgresql://me:hush@host/db?book=x",
        "redis://:hu/sh@hush@h",
        "postgresql:///db?password=hush&book=x",
    ):
        shown = public(url)
        assert "hush" not in shown
        assert "***" in shown
    assert public("a:b@c.db") == "a:b@c.db"


# recording


@pytest.mark.spec("7.2", "1.1")
def test_record_takes_every_field(cli: Cli) -> None:
    cli("init")
    parent = cli("record", "agent.spoke", "--json").json
    assert (parent["actor"], parent["payload"]) == ("owner", {})
    args = ["--run", "r", "--session", "s", "--turn", 3, "--occurred-at", "2026-01-02T03:04:05+01:00"]
    args += ["--id", "mine", "--parent", parent["id"], "--label", "sensitivity=private", "--label", "a=b=c"]
    event = cli("record", "agent.spoke", "-", *args, "--as", "ada", "--json", stdin='{"text": "ä"}').json
    wanted = {
        "position": 2,
        "id": "mine",
        "actor": "ada",
        "run_id": "r",
        "session_id": "s",
        "turn": 3,
        "occurred_at": "2026-01-02T02:04:05.000000Z",
        "parents": [parent["id"]],
        "labels": {"sensitivity": "private", "a": "b=c"},
        "payload": {"text": "ä"},
    }
    assert {name: event[name] for name in wanted} == wanted


@pytest.mark.spec("7.2", "L4")
def test_recording_again_under_the_same_id_answers_as_the_first_time(cli: Cli) -> None:
    cli("init")
    once = cli("record", "agent.spoke", '{"n": 1}', "--id", "mine")
    assert once.out == "1 mine\n"
    assert cli("record", "agent.spoke", '{"n": 1}', "--id", "mine") == once
    assert cli("record", "agent.spoke", '{"n": 2}', "--id", "mine", "--json").error["code"] == "conflict"


# the log


@pytest.mark.spec("7.2")
@pytest.mark.parametrize(
    ("args", "positions"),
    [
        ([], range(1, 301)),
        (["--last", 2], [299, 300]),
        (["--after", 298], [299, 300]),
        (["--at", 2], [1, 2]),
        (["--at", "2020-01-01"], []),
        (["--at", "2999-01-01T00:00:00Z", "--last", 1], [300]),
        (["--run", "r1", "--last", 2], [297, 299]),
        (["--actor", "ben", "--after", 297], [298, 300]),
        (["--kind", "agent.spoke", "--kind", "tool.called", "--last", 1], [300]),
        (["--kind", "rare.event", "--last", 3], [7]),
        (["--kind", "no.such"], []),
        (["--last", 10**30, "--after", 299], [300]),
    ],
)
def test_log_shows_what_is_asked_for(cli: Cli, args: list[Any], positions: Any) -> None:
    def made(number: int) -> dict[str, Any]:
        kind = "rare.event" if number == 7 else "agent.spoke" if number % 2 else "tool.called"
        who, run = ("ada", "r1") if number % 2 else ("ben", "r2")
        return {"kind": kind, "actor": who, "run_id": run}

    with commonplace.open("team.db") as book:
        book.record_all(made(number) for number in range(1, 301))
    shown = cli("log", "--json", "--book", "team.db", *args).json
    assert [event["position"] for event in shown] == list(positions)


@pytest.mark.spec("7.2")
def test_people_see_the_last_fifty_unless_they_say_where_to_begin(cli: Cli) -> None:
    fill("team.db", 60)
    lines = cli("log", "--book", "team.db").out.splitlines()
    assert len(lines) == 50
    assert re.fullmatch(r" +60  \d\d-\d\d \d\d:\d\d:\d\d  ben: tool.called: word 60  \[r2\]", lines[-1])
    assert len(cli("log", "--book", "team.db", "--after", 2).out.splitlines()) == 58


@pytest.mark.spec("7.2")
def test_log_tells_the_gist_of_a_payload_on_one_line(cli: Cli) -> None:
    said: list[dict[str, Any]] = [
        {"text": "a\n  b"},
        {"summary": "s", "x": 1},
        {"goal": "g"},
        {"text": 1, "n": [2]},
        {"text": "gone"},
    ]
    with commonplace.open("team.db") as book:
        ids = [book.record("agent.spoke", payload=payload).id for payload in said]
        book.erase(ids[-1])
    lines = cli("log", "--book", "team.db").out.splitlines()
    told = [line.split("owner", 1)[1].strip() for line in lines[:5]]
    assert told == [
        "said: a b",
        ": agent.spoke: s",
        ": agent.spoke: g",
        "said: 1",
        ": agent.spoke (erased)",
    ]


@pytest.mark.spec("7.2")
@pytest.mark.parametrize("width", [30, 40, 80, 200])
def test_output_fits_a_narrow_terminal(cli: Cli, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    with commonplace.open("team.db") as book:
        book.record("k.k" * 60, actor="界" * 90, run_id="r" * 150, payload={"text": "汉字 and words " * 60})
    for command in (["log"], ["status"], ["runs", "list"], ["doctor"], ["init"]):
        ran = cli(*command, "--book", "team.db")
        assert ran.code == 0
        assert max(map(len, ran.out.splitlines())) <= width
    assert "界" in cli("log", "--book", "team.db").out


@pytest.mark.spec("7.2")
def test_what_is_in_a_book_cannot_act_on_the_terminal(cli: Cli) -> None:
    with commonplace.open("team.db") as book:
        event = book.record("agent.spoke", actor="[blink]ada", payload={"text": HOSTILE})
        book.record(
            "agent.spoke", payload={HOSTILE: "[bold red]:smile:"}, run_id="[31mrun", parents=[event.id]
        )
    control = re.compile(r"[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f\u202e]")
    code, shown = on_a_terminal("log", "--book", "team.db", NO_COLOR="1", COLUMNS="200")
    assert code == 0
    assert "[bold red]:smile:" in shown
    assert not control.search(shown)
    code, shown = on_a_terminal("log", "--book", "team.db")
    assert code == 0
    assert not control.search(shown)
    code, shown = on_a_terminal("runs", "list", "--book", "team.db")
    assert set(re.findall(r"\x1b\S*?m", shown)) == {"\x1b[1m", "\x1b[0m"}  # the heading's style, ours
    assert not control.search(re.sub(r"\x1b\[[01]m", "", shown))
    for command in (["runs", "list"], ["status"], ["book", "erase", event.id, "--dry-run"]):
        ran = cli(*command, "--book", "team.db")
        assert ran.code == 0
        assert not control.search(ran.out)
    ran = cli("log", "--json", "--book", "team.db")
    assert ran.out.isascii()
    assert ran.json[0]["payload"]["text"] == HOSTILE
    assert "\x1b" not in cli("book", "erase", "\x1b[2J", "--yes", "--book", "team.db").err


@pytest.mark.spec("7.2")
def test_output_survives_a_terminal_that_cannot_write_unicode(cli: Cli) -> None:
    with commonplace.open("team.db") as book:
        book.record("agent.spoke", actor="ada", payload={"text": "naïve 🦉", "n": 2**70})
    ran = in_process("log", "--book", "team.db", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (ran.code, ran.err) == (0, "")
    assert "na\\xefve" in ran.out
    assert cli("log", "--json", "--book", "team.db").json[0]["payload"]["n"] == 2**70


@pytest.mark.spec("7.2")
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["people", "json"])
def test_a_closed_pipe_ends_it_quietly(form: list[str]) -> None:
    with commonplace.open("team.db") as book:
        book.record_all({"kind": "agent.spoke", "payload": {"text": "x" * 300}} for _ in range(2000))
    command = [*COMMAND, "log", "--after", "0", "--book", "team.db", *form]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0


@pytest.fixture
def following() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start `log --follow` in a process of its own, and never leave it behind."""
    started: list[subprocess.Popen[str]] = []

    def follow(*args: str) -> subprocess.Popen[str]:
        command = [*COMMAND, "log", "--follow", *args]
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True))
        return started[-1]

    yield follow
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.spec("7.2", "L3")
def test_follow_sees_what_another_process_records_until_it_is_interrupted(
    following: Callable[..., subprocess.Popen[str]],
) -> None:
    fill("team.db", 3)
    people = following("--book", "team.db", "--last", "1", "--actor", "ada")
    script = following("--book", "team.db", "--json")
    assert people.stdout is not None
    assert script.stdout is not None
    assert "word 3" in people.stdout.readline()
    assert [json.loads(script.stdout.readline())["position"] for _ in range(3)] == [1, 2, 3]
    assert in_process("record", "agent.spoke", "--as", "ben", "--book", "team.db").code == 0
    assert (
        in_process("record", "agent.spoke", '{"text": "news"}', "--as", "ada", "--book", "team.db").code == 0
    )
    assert "news" in people.stdout.readline()
    assert [json.loads(script.stdout.readline())["actor"] for _ in range(2)] == ["ben", "ada"]
    for process in (people, script):
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30) == ("", "")
        assert process.returncode == 130


# upkeep


def _break(path: str, position: int) -> None:
    database = apsw.Connection(path)  # its pages keep their checksums
    database.execute("UPDATE events SET body = CAST(body || x'20' AS BLOB) WHERE position = ?", (position,))
    database.close()


@pytest.mark.spec("7.2", "1.3")
def test_verify_names_the_first_broken_position(cli: Cli) -> None:
    fill("team.db", 4)
    _break("team.db", 3)
    ran = cli("book", "verify", "--book", "team.db")
    assert ran.code == 1
    assert "broken at position 3" in ran.out
    ran = cli("book", "verify", "--book", "team.db", "--json")
    assert (ran.code, ran.json["ok"], ran.json["first_bad"]) == (1, False, 3)
    ran = cli("log", "--book", "team.db")
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert "event 3 is damaged" in ran.err


@pytest.mark.spec("7.2", "1.4")
def test_a_book_travels_by_export_copy_and_backup(cli: Cli) -> None:
    fill("team.db", 4)
    log = cli("log", "--json", "--book", "team.db").json
    assert cli("book", "export", "out.jsonl", "--at", "3", "--book", "team.db").code == 0
    cli("init", "--book", "imported.db", "--quiet")
    assert cli("import", "out.jsonl", "--book", "imported.db", "--json").json["exact"] is True
    assert cli("log", "--json", "--book", "imported.db").json == log[:3]
    assert cli("book", "copy", "team.db", "file:copied").code == 0
    assert cli("log", "--json", "--book", "file:copied").json == log
    assert cli("book", "backup", "kept.db", "--book", "team.db").code == 0
    assert cli("log", "--json", "--book", "kept.db").json == log
    refused = cli("book", "backup", "kept.db", "--book", "team.db")
    assert (refused.code, "exists" in refused.err) == (1, True)
    cli("init", "--book", "other.db", "--quiet")
    cli("record", "agent.spoke", "--book", "other.db")
    assert "recorded anew" in cli("import", "out.jsonl", "--book", "other.db").out


@pytest.mark.spec("7.2", "L10")
def test_erase_asks_first(cli: Cli) -> None:
    first, *_ = fill("team.db")
    with commonplace.open("team.db") as book:
        book.record("agent.reflected", parents=[first], id="derived")
    refused = cli("book", "erase", first, "--book", "team.db")
    assert (refused.code, refused.out) == (1, "")
    assert "--yes" in refused.err
    code, shown = on_a_terminal("book", "erase", first, "--book", "team.db", typed="n\n")
    assert code == 1
    assert "derived" in shown
    assert "Erase these for good?" in shown
    assert "nothing was erased" in shown
    planned = cli("book", "erase", first, "--book", "team.db", "--dry-run", "--json").json
    assert planned["erased"] == [first, "derived"]
    assert planned["dry_run"] is True
    with commonplace.open("team.db") as book:
        assert book.head == 4
    code, shown = on_a_terminal("book", "erase", first, "--reason", "asked", "--book", "team.db", typed="y\n")
    assert code == 0
    assert "gone from every read" in shown
    with commonplace.open("team.db") as book:
        assert book.event("derived").erased
        *_, tombstone = book.events()
        assert tombstone.payload["reason"] == "asked"


@pytest.mark.spec("7.2", "3.12")
def test_what_is_found_is_erased_after_a_confirmation_that_names_the_counts(cli: Cli) -> None:
    fill("team.db")
    with commonplace.open("team.db") as book:
        book.remember("Kim is allergic to peanuts")
        book.record("agent.spoke", actor="Kim", payload={"text": "it is Kim"})
    erase = ("book", "erase", "--text", "Kim", "--book", "team.db")
    shown = cli("book", "find", "kim", "--book", "team.db").out
    assert "1 event, 1 item found for 'kim'" in shown
    assert "remains: actor 'Kim' in 1 event" in shown
    refused = cli(*erase)
    assert (refused.code, "this would erase 1 event, 1 item" in refused.err, "--yes" in refused.err) == (
        1,
        True,
        True,
    )
    for wrong in (("book", "erase", "--book", "team.db"), (*erase, "some-id")):
        assert "name what to erase" in cli(*wrong).err
    assert "would erase 1 event, 1 item" in cli(*erase, "--dry-run").out
    code, shown = on_a_terminal(*erase, typed="y\n")
    assert (code, "Type ERASE to erase 1 event, 1 item" in shown, "nothing was erased" in shown) == (
        1,
        True,
        True,
    )
    code, shown = on_a_terminal(*erase, "--reason", "asked", "--proof", "proof.json", typed="ERASE\n")
    assert (code, "erased 1 event, 1 item" in shown, "the key of its digests is" in shown) == (0, True, True)
    assert json.loads(Path("proof.json").read_text())["gone"] is True
    again = cli(*erase, "--yes", "--proof", "again.json", "--json").json
    assert (again["erased"], again["proof"]["gone"]) == ([], True)
    assert "nothing found for 'kim'" in cli("book", "find", "kim", "--book", "team.db").out


@pytest.mark.spec("7.2", "3.12")
def test_a_proof_that_cannot_be_written_is_refused_before_anything_is_erased(cli: Cli) -> None:
    fill("team.db")
    with commonplace.open("team.db") as book:
        book.as_actor("bot", scope="users/kim").remember("Kim is allergic to peanuts")
    erase = ("book", "erase", "--scope", "users/kim", "--yes", "--book", "team.db")
    for wrong in ("nowhere/proof.json", "."):
        refused = cli(*erase, "--proof", wrong)
        assert refused.code != 0
        assert wrong in refused.err
    found = cli("book", "find", "--scope", "users/kim", "--book", "team.db", "--json").json
    assert found["counts"] == {"item": 1, "scope name": 1}
    assert [entry["snippet"] for entry in found["entries"]] == ["users/kim", "Kim is allergic to peanuts"]
    assert "samples" not in found
    done = cli(*erase, "--proof", "proof.json", "--json").json
    assert (done["counts"], done["proof"]["gone"], done["proof"]["purged"]) == (found["counts"], True, True)
    assert "peanuts" not in str(done)


@pytest.mark.spec("7.2")
def test_status_tells_where_the_book_stands(cli: Cli) -> None:
    cli("init", "--name", "team")
    empty = cli("status", "--json").json
    assert (empty["name"], empty["head"], empty["hash"], empty["last_event"]) == ("team", 0, None, None)
    fill(".commonplace/book.db")
    status = cli("status", "--json").json
    assert (status["head"], status["runs"], status["horizon"]) == (3, 2, 0)
    assert status["last_event"]["payload"] == {"text": "word 3"}
    assert status["size"] > 10_000
    assert status["id"] == empty["id"]


@pytest.mark.spec("7.2", "L2")
def test_doctor_tells_what_is_promised_and_what_is_wrong(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    fill("team.db", 1)
    assert cli("book", "backup", "earlier.db", "--book", "team.db").code == 0
    fill("team.db", 2)
    report = cli("doctor", "--book", "team.db", "--json").json
    assert (report["ok"], report["head"], report["acknowledged"]) == (True, 3, 3)
    assert report["facts"]["durable"] == "proven"
    assert report["views"]["runs"] >= 1
    assert set(report["versions"]) == {"commonplace", "python", "apsw", "sqlite", "msgspec"}
    assert set(report["extras"]) == {"postgres", "redis", "server"}
    assert report["free"] > 0
    assert report["index"] == {"file": 0, "memory": 0}
    assert cli("search", "word", "--book", "team.db").code == 0
    index = cli("doctor", "--book", "team.db", "--json").json["index"]
    assert index["file"] > 10_000
    assert 0 < index["memory"] < 1_000_000

    for name in ("team.db", "team.db-wal", "team.db-shm"):
        Path(name).unlink(missing_ok=True)
    shutil.copy("earlier.db", "team.db")
    ran = cli("doctor", "--book", "team.db")
    assert ran.code == 1
    assert "events up to 3 had been acknowledged and the book ends at 1" in " ".join(ran.out.split())

    free = shutil.disk_usage(".")._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: free)
    (problem,) = cli("doctor", "--book", "earlier.db", "--json").json["problems"]
    assert "1,000 bytes are free" in problem

    ran = cli("doctor", "--book", "mystery:x", "--json")
    assert (ran.code, ran.json["ok"]) == (1, False)
    assert "mystery" in ran.json["problems"][0]


@pytest.mark.spec("7.2")
def test_long_work_shows_a_bar_on_a_terminal_and_only_there(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 1000, 2))
    monkeypatch.setattr(shell, "monotonic", lambda: float(next(now)))
    monkeypatch.setenv("COLUMNS", "80")

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for terminal, as_json, drawn in (
        (Terminal(), False, True),
        (Terminal(), True, False),
        (io.StringIO(), False, False),
    ):
        monkeypatch.setattr(sys, "stderr", terminal)
        with shell.Shell(as_json=as_json).progress("verifying") as progress:
            if progress:
                progress(1, 2)
        assert ("verifying" in terminal.getvalue()) is drawn
    quick = Terminal()
    monkeypatch.setattr(sys, "stderr", quick)
    monkeypatch.setattr(shell, "monotonic", lambda: 0.0)
    with shell.Shell().progress("verifying") as progress:
        assert progress is not None
        progress(1, 2)
    assert quick.getvalue() == ""


# the demo


@pytest.mark.spec("7.2", "5.3", "L10")
def test_the_demo_tells_its_story_and_proves_it(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(Path.cwd()))
    monkeypatch.setenv("COMMONPLACE_BOOK", "precious.db")
    ran = in_process("demo")
    assert (ran.code, ran.err) == (0, "")
    assert "NOT SO" not in ran.out
    assert ran.out.count("✓") >= 8
    for shown in ("kill -9", "value=1 hour", "has changed (superseded)", "now: token.lifetime: 15 minutes"):
        assert shown in ran.out
    (made,) = Path.cwd().iterdir()
    assert made.name.startswith("commonplace-demo-")
    for step in re.findall(r"^   .*commonplace (--book .*)$", ran.out, re.MULTILINE):
        followed = cli(*shlex.split(step))
        assert followed.code == 0
        assert "customer K-1187" not in followed.out


@pytest.mark.spec("7.2")
def test_the_demo_wants_a_new_sqlite_book(cli: Cli) -> None:
    with commonplace.open("team.db") as book:
        book.record("agent.spoke", actor="ada", payload={"text": "hello"})
    refused = cli("demo", "--book", "team.db", "--json")
    assert (refused.code, refused.json["ok"]) == (1, False)
    assert "give the demo a new path" in refused.json["story"][-1]
    assert cli("demo", "--book", "file:folder").code == 1
    assert not Path("folder").exists()


# reading it


@pytest.mark.spec("7.2")
def test_the_help_fits_one_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = in_process("--help", env={**os.environ, "COLUMNS": "80"})
    assert (ran.code, ran.err) == (0, "")
    assert len(ran.out.splitlines()) <= 46
    assert max(map(len, ran.out.splitlines())) <= 80
    for name in ("remember", "search", "inbox", "memory", "access", "book"):
        assert re.search(rf"^  {name} ", ran.out, re.MULTILINE)


@pytest.mark.spec("7.2")
def test_an_id_is_short_and_any_unique_end_of_one_is_accepted(cli: Cli) -> None:
    cli("init")
    first = cli("remember", "Tea is served at four.", "--json").json["item_id"]
    second = cli("remember", "The lift is out of order on Mondays.", "--json").json["item_id"]
    shown = cli("memory", "list").out
    assert first[-8:] in shown
    assert first not in shown
    assert cli("memory", "show", first[-8:], "--json").json["id"] == first
    assert first[-8:] in cli("search", "tea").out
    alike = [f"0000000{number}-0000-7000-8000-0000a11a11ae" for number in (1, 2)]
    with commonplace.open(".commonplace/book.db") as book:
        for id in (*alike, "production"):
            book.remember(f"Something about {id} and its colour", id=id)
    refused = cli("memory", "show", "a11a11ae")
    assert (refused.code, ", ".join(alike) in refused.err) == (1, True)
    assert cli("memory", "show", alike[1], "--json").json["id"] == alike[1]
    assert cli("memory", "show", "production", "--json").json["id"] == "production"
    for too_little in ("oduction", first[-5:], first[-1:]):  # the end of a chosen id, and too short an end
        assert cli("memory", "show", too_little, "--json").error["code"] == "not_found"
        assert cli("forget", too_little, "--yes", "--json").code == 1
    assert cli("forget", second[-8:], "--yes", "--json").json["items"] == [second]
    assert cli("book", "erase", first[-8:], "--yes", "--json").json["erased"] == [first]


@pytest.mark.spec("7.2", "L7")
def test_an_empty_option_is_not_taken_for_the_owner_or_for_this_folder(cli: Cli) -> None:
    cli("init")
    for option in ("--as", "--book"):
        refused = cli("memory", "list", option, "")
        assert (refused.code, "it is empty" in refused.err) == (2, True)
    for wrong in ("nan", "nanh", "24", "9" * 30 + "d", "h", "x"):
        refused = cli("work", "archive", "--older-than", wrong)
        assert (refused.code, "30d, 12h" in refused.err) == (2, True), wrong


@pytest.mark.spec("7.2")
def test_a_text_may_begin_with_a_dash(cli: Cli) -> None:
    cli("init")
    assert cli("documents", "write-notes", "- Objective: ship it").code == 0
    assert cli("documents", "notes").out == "- Objective: ship it\n"
    assert cli("remember", "-", "--json", stdin="- read from standard input\n").json["outcome"] == "stored"
    assert cli("remember", "--not-an-option").code == 2


@pytest.mark.spec("7.2")
def test_the_book_is_looked_for_up_to_the_root_of_the_repository(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "repository" / "src" / "deep"
    inner.mkdir(parents=True)
    (tmp_path / "repository" / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    cli("init", "--name", "outside")
    monkeypatch.chdir(inner)
    assert cli("status").code == 1  # the book outside of the repository is none of it
    monkeypatch.chdir(tmp_path / "repository")
    cli("init", "--name", "project")
    monkeypatch.chdir(inner)
    assert cli("status", "--json").json["name"] == "project"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    assert cli("init", "--user", "--name", "mine").code == 0
    assert cli("status", "--user", "--json").json["name"] == "mine"
    assert (tmp_path / "home" / "commonplace" / "book.db").is_file()


@pytest.mark.spec("7.2")
def test_an_empty_list_says_so_and_what_to_do_next(cli: Cli) -> None:
    cli("init")
    assert (
        cli("memory", "list").out
        == "nothing that matches is remembered: `commonplace remember TEXT` keeps something\n"
    )
    for command in (
        ["runs", "list"],
        ["memory", "held"],
        ["memory", "cores"],
        ["receipts", "list"],
        ["inbox"],
        ["log"],
    ):
        ran = cli(*command)
        assert (ran.code, bool(ran.out.strip())) == (0, True)
        assert ran.out.startswith(("no", "there are no")), ran.out
        assert json.loads(cli(*command, "--json").out) is not None


@pytest.mark.spec("7.2", "4.1")
def test_why_something_was_found_is_told_in_words(cli: Cli) -> None:
    cli("init")
    cli("remember", "Postgres listens on 5433")
    told = " ".join(cli("search", "which port does postgres listen on", "--explain").out.split())
    assert "its words gave" in told
    assert not re.search(r"\b(cos|bm_s|soft|parts) gave", told)


@pytest.mark.spec("7.2", "3.5")
def test_the_inbox_holds_all_that_waits_for_a_person(cli: Cli) -> None:
    cli("init")
    cli("remember", "Tea is served at four.")
    near = cli("remember", "Tea is served at four, at FOUR!", "--json").json["item_id"]
    cli("remember", "--key", "tea.time", "--value", "4")
    dispute = cli("remember", "--key", "tea.time", "--value", "5", "--json").json["item_id"]
    cli("memory", "set-core", "tools", "name=Tools")
    proposal = cli("remember", "Call the linter once.", "--core", "tools", "--as", "ada", "--json").json[
        "item_id"
    ]
    waits = cli("inbox", "--json").json
    assert {name: [one["id"] for one in waits[name]] for name in ("held", "disputes", "proposals")} == {
        "held": [near], "disputes": [dispute], "proposals": [proposal],
    }  # fmt: skip
    shown = cli("inbox").out
    assert all(id[-8:] in shown for id in (near, dispute, proposal))


@pytest.mark.spec("7.2", "5.10")
def test_the_log_says_of_every_kind_who_did_what_to_what(cli: Cli) -> None:
    """Of every kind that a capability owns there is a sentence; none shows raw JSON."""
    from commonplace.book import BUILT_IN
    from commonplace.surfaces.sentences import SENTENCES

    owned = {kind.name for capability in BUILT_IN for kind in capability.kinds}
    assert owned - SENTENCES.keys() == {"event.imported"}
    with commonplace.open(".commonplace/book.db") as book:
        book.as_actor("orc", role="orchestrator")
        work = book.work(name="auth", goal="Add JWT", id="w")
        work.add_task("Design it", id="t1")
        claim = work.claim("dev-1")
        assert claim is not None
        work.decide(question="Which library?", choice="jose", rationale="newer", by="dev-1")
        claim.complete("done")
        book.remember("Tea is served at four.")
        book.forget(tags=["nothing"], confirm="FORGET")
    told = cli("log").out
    for sentence in (
        "owner gave orc role orchestrator", "owner began the work “auth”: Add JWT", "owner added the task “Design it”",
        "dev-1 claimed “Design it”", "dev-1 decided “Which library?”: jose (newer)", "dev-1 completed “Design it”",
        "owner remembered Tea is served at four.",
    ):  # fmt: skip
        assert sentence in told, sentence
    assert "{" not in told


@pytest.mark.spec("7.2", "5.4")
def test_decisions_tell_why_what_else_there_was_and_when(cli: Cli) -> None:
    cli("init")
    cli("work", "new", "auth", "--id", "w")
    cli("decide", "w", "Which library?", "jose", "--rationale", "it is newer", "--alternative", "jwt")
    first, *more = cli("work", "decisions", "w").out.splitlines()
    assert re.fullmatch(r"\w{8} Which library\? jose \(made by owner, 20\d\d-\d\d-\d\dT\d\d:\d\dZ\)", first)
    assert more == ["    because it is newer", "    not jwt"]


@pytest.mark.spec("7.2", "L12")
def test_a_refusal_names_a_command_and_no_call(cli: Cli) -> None:
    cli("init")
    refused = cli("access", "grant", "eve", "--role", "person", "--as", "eve").err
    command = re.search(r"`commonplace (access grant eve --acts \S+)`", refused)
    assert command, refused
    assert cli(*command[1].split()).code == 0
    assert cli("access", "grant", "eve", "--role", "person", "--as", "eve").code == 0
    for args in (
        ["work", "show", "nothing"],
        ["forget", "x"],
        ["task", "show", "nothing"],
        ["memory", "show", "nothing"],
    ):
        ran = cli(*args)
        assert ran.code == 1
        assert "book." not in ran.err
        assert "=" not in ran.err


# the docs


def commands() -> dict[str, Any]:
    """Every command by its name, those of a group as `group command`."""
    return dict(module.commands())


def _entry(parameter: Any) -> str:
    names = [*parameter.opts, *parameter.secondary_opts] if parameter.param_type_name == "option" else []
    shown = " ".join([", ".join(names), parameter.metavar or ""]).strip()
    return f"- `{shown}`: {' '.join(parameter.help.split())}"


def document() -> str:
    """docs/cli.md, from what the commands say about themselves."""
    app: Any = module.app
    common = {name for one in app.params for name in one.opts}
    text = [
        "# The `commonplace` command",
        f"<!-- Written from the command's own help: {REGENERATE} -->",
        app.help,
        "These options stand before the command or after it:",
        "\n".join(_entry(one) for one in app.params),
    ]
    for name, command in commands().items():
        own = [one for one in command.params if not common & set(one.opts)]
        words = [one.metavar for one in own if one.param_type_name == "argument"]
        text += [
            f"## {name}",
            f"```\n{' '.join(['commonplace', name, '[OPTIONS]', *words])}\n```",
            command.help,
        ]
        text += ["\n".join(map(_entry, own))] if own else []
    return "\n\n".join(text) + "\n"


@pytest.mark.spec("7.2")
def test_the_docs_say_what_the_commands_say() -> None:
    if os.environ.get("UPDATE_DOCS"):
        DOCS.write_text(document(), encoding="utf-8")
    assert DOCS.exists(), f"docs/cli.md is missing: {REGENERATE}"
    assert DOCS.read_text(encoding="utf-8") == document(), f"docs/cli.md is stale: {REGENERATE}"


@pytest.mark.spec("7.2")
def test_every_command_and_option_explains_itself() -> None:
    for name, command in commands().items():
        assert command.help, name
        assert [one.name for one in command.params if not one.help] == [], name


@pytest.mark.spec("7.2")
def test_a_table_fits_100_columns_and_breaks_no_id(cli: Cli) -> None:
    cli("init")
    run = "a-run-with-an-id-that-somebody-chose-and-that-takes-up-most-of-a-line-of-the-terminal"
    cli("record", "agent.spoke", '{"text": "hello"}', "--run", run)
    cli("access", "grant", "somebody-with-a-long-name", "--role", "developer")
    cli("memory", "list", "--as", "nobody")
    for command in (("runs", "list"), ("access", "audit")):
        shown = cli(*command).out.splitlines()
        assert max(map(len, shown)) <= 100
        if command == ("runs", "list"):
            assert run in shown
            assert shown[0].split()[:2] == ["run", "first"]
    made = cli("remember", "Tea is served at four.", "--json").json["item_id"]
    cli("forget", made, "--yes")
    audit = cli("access", "audit").out
    assert made[-8:] in audit
    assert made[:8] not in audit.replace(made[-8:], "")


@pytest.mark.spec("7.2")
def test_an_error_of_the_system_is_json_where_json_was_asked_for(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("init")

    def full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("commonplace.surfaces.shell.Shell._print", full)
    ran = cli("status", "--json")
    assert (ran.code, ran.error["code"]) == (1, "os_error")
    assert "No space left" in ran.error["message"]
    assert cli("status").err.startswith("Error: [Errno 28] No space left")
