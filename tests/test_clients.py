"""Setting up MCP clients: their files keep all that is not ours, and what cannot be written back is refused."""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from commonplace.surfaces.clients import CLIENTS
from commonplace.surfaces.clients import HOOKS as WITH_HOOKS
from tests.shells import Ran, in_process

pytestmark = pytest.mark.spec("7.3")

SECRET = "postgresql://team:hunter2@db.example/book"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home with a project in it, and nothing of the user who runs the tests."""
    for name in ("CODEX_HOME", "COMMONPLACE_BOOK", "COMMONPLACE_TOKEN_FILE", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "project" / ".git").mkdir(parents=True)
    return tmp_path


def install(home: Path, *words: str) -> Ran:
    return in_process("mcp", "--install", *words, cwd=home / "project")


FILES = {
    "claude-code": "project/.mcp.json",
    "claude-desktop": "config/Claude/claude_desktop_config.json",
    "cursor": "project/.cursor/mcp.json",
    "codex": ".codex/config.toml",
}


def server(file: Path, name: str = "commonplace") -> dict[str, object]:
    text = file.read_text()
    found = tomllib.loads(text)["mcp_servers"] if file.suffix == ".toml" else json.loads(text)["mcpServers"]
    entry: dict[str, object] = found[name]
    return entry


@pytest.mark.parametrize("client", FILES)
def test_a_client_is_set_up_once(home: Path, client: str) -> None:
    if client == "claude-desktop" and sys.platform == "darwin":
        pytest.skip("its folder is another one there")
    file = home / FILES[client]
    first = install(home, client, "--scope", "users/alice")
    assert (first.code, first.err) == (0, "")
    entry, written = server(file), file.read_bytes()
    assert Path(str(entry["command"])).is_absolute()
    book = str(home / "project" / ".commonplace" / "book.db")
    expected = ["--book", book, "--as", client, "--scope", "users/alice", "mcp"]
    assert isinstance(entry["args"], list)
    assert entry["args"][-7:] == expected
    again = install(home, client, "--scope", "users/alice")
    assert "nothing was changed" in " ".join(again.out.split())
    assert file.read_bytes() == written
    assert not list(file.parent.glob("*backup*"))
    assert not Path(book).exists()  # setting up a client creates no book


@pytest.mark.parametrize("client", ["vscode", "gemini", "zed"])
def test_other_clients_are_printed(home: Path, client: str) -> None:
    report = install(home, client, "--json").json
    assert (report["written"], len(report["files"])) == (False, 1)
    (servers,) = json.loads(report["files"][0]["config"]).values()
    assert servers["commonplace"]["args"][-1] == "mcp"
    shown = install(home, client).out
    assert json.loads(shown[shown.index("{") : shown.rindex("}") + 1])  # it can be copied
    assert not (home / "project" / ".vscode").exists()


def test_print_only_writes_nothing(home: Path) -> None:
    assert '"mcpServers"' in install(home, "claude-code", "--print-only", "--hooks").out
    assert [path.name for path in (home / "project").iterdir()] == [".git"]


def test_what_others_wrote_stays_and_a_backup_has_the_file_before(home: Path) -> None:
    file = home / "project" / ".mcp.json"
    before = (
        '{\n\t"theme": "dark\\u00e9",\n\t"mcpServers": {"other": {"command": "x"},'
        ' "commonplace": {"command": "old", "timeout": 7}}\n}'
    )
    file.write_text(before)
    file.chmod(0o640)
    ran = install(home, "claude-code")
    document = json.loads(file.read_text())
    assert document["theme"] == "darké"
    assert document["mcpServers"]["other"] == {"command": "x"}
    assert document["mcpServers"]["commonplace"]["timeout"] == 7
    assert document["mcpServers"]["commonplace"]["command"] != "old"
    assert "\n\t" in file.read_text()
    backup = file.with_name(".mcp.json.backup-1")
    assert backup.read_text() == before
    assert "backup-1" in ran.out
    assert [oct(path.stat().st_mode & 0o777) for path in (file, backup)] == ["0o640", "0o640"]
    install(home, "claude-code", "--as", "ada")
    assert file.with_name(".mcp.json.backup-2").exists()


@pytest.mark.parametrize(
    "text",
    [
        '{// mine\n "mcpServers": {}}',
        '{"mcpServers": {}',
        "[]",
        '{"mcpServers": []}',
        '{"mcpServers": {"commonplace": 1}}',
        '{"a": 1, "a": 2}',
        '{"a": 1e999}',
        "[" * 100_000,
        b"\xff\xfe",
    ],
    ids=["comment", "cut", "list", "servers", "entry", "twice", "infinite", "deep", "bytes"],
)
def test_a_file_that_cannot_be_written_back_is_refused(home: Path, text: str | bytes) -> None:
    file = home / "project" / ".mcp.json"
    raw = text if isinstance(text, bytes) else text.encode()
    file.write_bytes(raw)
    refused = install(home, "claude-code", "--hooks", "--json")
    assert (refused.code, refused.error["code"]) == (1, "bad_input")
    assert "--print-only" in refused.error["message"]
    assert file.read_bytes() == raw
    assert not (home / "project" / ".claude").exists()  # nothing is written by halves


def test_a_link_is_not_followed(home: Path) -> None:
    (home / "theirs.json").write_text("{}")
    (home / "project" / ".mcp.json").symlink_to(home / "theirs.json")
    assert install(home, "claude-code", "--json").error["code"] in ("bad_input", "unsafe_path")
    assert (home / "theirs.json").read_text() == "{}"


CODEX = """# my settings
model = "o9"   # the big one

[mcp_servers.commonplace]  # set up by hand
startup_timeout_sec = 30
args = [
  "--old",  # a comment of an old value
]
# keep this
command = "old"

[mcp_servers.commonplace.env]
LANG = "C"

# about the other
[mcp_servers.other]
command = "x"
"""


def test_toml_keeps_comments_order_and_other_keys(home: Path) -> None:
    file = home / ".codex" / "config.toml"
    file.parent.mkdir()
    file.write_text(CODEX)
    assert install(home, "codex").code == 0
    after = file.read_text()
    entry = server(file)
    assert (entry["startup_timeout_sec"], entry["env"]) == (30, {"LANG": "C"})
    assert "--old" not in after
    kept = ["# my settings", "# the big one", "# set up by hand", "# keep this", "# about the other"]
    assert [after.index(comment) for comment in kept] == sorted(after.index(comment) for comment in kept)
    assert tomllib.loads(after)["mcp_servers"]["other"] == {"command": "x"}
    assert file.with_name("config.toml.backup-1").read_text() == CODEX
    assert "nothing was changed" in " ".join(install(home, "codex").out.split())


@pytest.mark.parametrize(
    "text",
    [
        "model = ",
        'mcp_servers = { commonplace = { command = "x" } }\n',
        'mcp_servers = { other = { command = "x" } }\n',
        '[mcp_servers]\ncommonplace = { command = "x" }\n',
        'a = """\n[mcp_servers.commonplace]\n"""\n[mcp_servers."commonplace"]\ncommand = "x"\n',
    ],
)
def test_toml_that_cannot_be_changed_safely_is_refused(home: Path, text: str) -> None:
    file = home / ".codex" / "config.toml"
    file.parent.mkdir()
    file.write_text(text)
    assert install(home, "codex", "--json").error["code"] == "bad_input"
    assert file.read_text() == text


@pytest.mark.parametrize("client", ["claude-code", "cursor", "codex", "vscode", "gemini"])
def test_a_password_is_never_shown_or_written(home: Path, client: str) -> None:
    ran = install(home, client, "--book", SECRET, "--json")
    assert ran.code == 0, ran.err
    assert "hunter2" not in ran.out + ran.err
    assert "COMMONPLACE_BOOK" in ran.json["files"][0]["config"]
    texts = [path.read_text() for path in home.rglob("*") if path.is_file()]
    assert not any("hunter2" in text for text in texts)


@pytest.mark.parametrize("client", ["claude-desktop", "zed"])
def test_a_client_without_variables_refuses_a_password(home: Path, client: str) -> None:
    refused = install(home, client, "--book", SECRET, "--json")
    assert refused.error["code"] == "bad_input"
    assert "hunter2" not in refused.err


HOOKS = {
    "claude-code": ("project/.claude/settings.json", ("SessionStart", "PreCompact", "Stop")),
    "codex": ("project/.codex/hooks.json", ("SessionStart", "PreCompact", "Stop")),
    "cursor": ("project/.cursor/hooks.json", ("sessionStart", "preCompact", "stop")),
}


def handlers_of(client: str, listed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The handlers of an event. Cursor lists them without groups."""
    return listed if client == "cursor" else [each for group in listed for each in group["hooks"]]


@pytest.mark.parametrize("client", HOOKS)
def test_hooks_are_added_beside_those_of_others(home: Path, client: str) -> None:
    file, events = HOOKS[client]
    settings = home / file
    settings.parent.mkdir()
    own = {"type": "command", "command": "date"}
    theirs = own if client == "cursor" else {"matcher": "startup", "hooks": [own]}
    settings.write_text(json.dumps({"description": "ours", "hooks": {events[0]: [theirs]}}))
    assert install(home, client, "--hooks").code == 0
    document = json.loads(settings.read_text())
    assert document["description"] == "ours"
    assert document.get("version") == (1 if client == "cursor" else None)
    assert document["hooks"][events[0]][0] == theirs
    for event, name in zip(events, ("session-start", "pre-compact", "stop"), strict=True):
        handler = handlers_of(client, document["hooks"][event])[-1]
        assert handler["command"].endswith(f" --as {client} learn hook {name}")
        assert handler["timeout"] == 10
    written = settings.read_text()
    install(home, client, "--hooks")
    assert settings.read_text() == written
    install(home, client, "--hooks", "--as", "ada")  # replaced, not added
    changed = json.loads(settings.read_text())["hooks"]
    assert [len(listed) for listed in changed.values()] == [2, 1, 1]
    assert "--as ada" in handlers_of(client, changed[events[2]])[0]["command"]


def test_the_hooks_of_gemini_are_printed_with_its_own_names(home: Path) -> None:
    _, settings = install(home, "gemini", "--hooks", "--json").json["files"]
    hooks = json.loads(settings["config"])["hooks"]
    assert [*hooks] == ["SessionStart", "AfterAgent"]
    assert hooks["AfterAgent"][0]["hooks"][0]["timeout"] == 10_000  # milliseconds
    assert not (home / "project" / ".gemini").exists()


PAGES = Path(__file__).parents[1] / "docs" / "clients"


@pytest.mark.parametrize("client", CLIENTS)
def test_its_page_has_the_configuration_that_is_printed(home: Path, client: str) -> None:
    """Blocks of JSON and TOML are what the command prints; `UPDATE_DOCS=1` writes them."""
    words = ["--hooks"] if client in WITH_HOOKS else []
    files = install(home, client, "--print-only", "--json", *words).json["files"]
    command = Path(sys.executable).with_name("commonplace")
    printed = [
        each["config"]
        .replace(str(command), "/path/to/commonplace")
        .replace(str(home / "project"), "/path/to/project")
        for each in files
    ]
    page = PAGES / f"{client}.md"
    block = re.compile(r"^(```(?:json|toml)\n)(.*?)^```$", re.MULTILINE | re.DOTALL)
    if os.environ.get("UPDATE_DOCS"):
        left = iter(printed)
        page.write_text(block.sub(lambda found: f"{found[1]}{next(left)}```", page.read_text()))
    assert [found[2] for found in block.finditer(page.read_text())] == printed
    assert f"mcp --install {client}" in page.read_text()


@pytest.mark.parametrize("words", [["emacs"], ["zed", "--hooks"], ["codex", "--name", "a.b"]])
def test_what_cannot_be_set_up_is_refused(home: Path, words: list[str]) -> None:
    assert install(home, *words, "--json").error["code"] == "bad_input"
    assert not (home / ".codex").exists()


def test_a_served_book_is_set_up_for_the_actor_of_the_token(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = in_process("--book", "http://127.0.0.1:8787", "mcp", "--install", "cursor", cwd=home / "project")
    assert ran.code == 0
    assert "COMMONPLACE_TOKEN_FILE" in " ".join(ran.out.split())
    args = server(home / FILES["cursor"])["args"]
    assert args == ["--book", "http://127.0.0.1:8787", "mcp"]
    token_file = str(home / "token of ada")
    monkeypatch.setenv("COMMONPLACE_TOKEN_FILE", token_file)  # clients pass it on to no server by themselves
    for client in ("cursor", "codex"):
        words = ("mcp", "--install", client, "--hooks")
        for changed in ("wrote", "nothing was changed"):
            ran = in_process("--book", "http://127.0.0.1:8787", *words, cwd=home / "project")
            assert (ran.code, changed in " ".join(ran.out.split())) == (0, True)
        assert server(home / FILES[client])["env"] == {"COMMONPLACE_TOKEN_FILE": token_file}
        hooks = json.loads((home / "project" / f".{client}" / "hooks.json").read_text())["hooks"]
        assert f"env 'COMMONPLACE_TOKEN_FILE={token_file}' " in json.dumps(hooks)
    refused = in_process("--book", "http://127.0.0.1:8787", "serve")
    assert refused.code != 0
    assert "served already" in " ".join(refused.err.split())


def test_one_file_for_all_projects_keeps_the_book_that_it_has(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second project must not lead the agents of the first one into its own book."""
    assert install(home, "codex").code == 0
    file = home / ".codex" / "config.toml"
    before = file.read_text()
    refused = install(home, "codex", "--book", str(home / "other.db"), "--json")
    assert refused.error["code"] == "bad_input"
    assert "--name" in refused.error["message"]
    assert file.read_text() == before
    assert install(home, "codex", "--book", str(home / "other.db"), "--name", "other").code == 0
    assert install(home, "codex", "--as", "ada").code == 0  # the same book
    # The file of a project is of one book.
    assert install(home, "claude-code").code == 0
    assert install(home, "claude-code", "--book", str(home / "other.db")).code == 0


@pytest.mark.parametrize(
    "theirs",
    ["/opt/commonplace-lint/run --then learn hook stop", "notify --commonplace hook stop", "echo 'x"],
)
def test_hooks_of_others_that_look_like_ours_stay(home: Path, theirs: str) -> None:
    settings = home / ".claude" / "settings.json"
    settings.parent.mkdir()
    own = {"hooks": [{"type": "command", "command": theirs}]}
    settings.write_text(json.dumps({"hooks": {"Stop": [own]}}))
    assert install(home, "claude-code", "--hooks").code == 0
    assert json.loads(settings.read_text())["hooks"]["Stop"][0] == own
