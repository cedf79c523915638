"""Verify before use: what is remembered of files, symbols, lines and commands is checked before it is shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import commonplace
from commonplace import Book
from commonplace.memory.items import Item
from commonplace.recall.verification import check, claims

CODE = """import os

PORT = 5433


class Server:
    def start(self, port):
        return port


if os.name == "posix":
    def fork():
        return None
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    (root / "src").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / "src" / "server.py").write_text(CODE)
    (root / "src" / "page.ts").write_text("export function render(x: number) {}\n")
    return root


@pytest.fixture
def book(repository: Path) -> Iterator[Book]:
    with commonplace.open(repository / "team.db") as opened:
        yield opened


def found_of_files(book: Book, after: int = 0) -> list[dict[str, Any]]:
    """What was recorded of files: when something was kept, and in receipts."""
    recorded = book.events(after, kinds=["memory.checked", "receipt.written"])
    return [check for one in recorded for check in one.payload.get("checks", [one.payload])]


def stale(book: Book, asked: str = "server port") -> str:
    """What a digest says of the one item that it shows."""
    text = book.digest(asked).text
    return text.partition("stale=")[2].partition(")")[0]


@pytest.mark.spec("4.10")
def test_a_book_in_a_repository_checks_what_is_cited(book: Book, repository: Path) -> None:
    kept = book.remember("The server listens on the port in PORT", citations=["src/server.py:3"])
    assert stale(book) == ""
    (repository / "src" / "server.py").write_text("# moved down\n" + CODE)
    assert stale(book) == "", "the same line stands elsewhere in the file"
    (repository / "src" / "server.py").write_text(CODE.replace("5433", "5434"))
    assert stale(book) == "lines 3-3 of src/server.py have changed"
    book.memory.verify(kept.item_id or "")
    assert stale(book) == "", "somebody has looked, and it holds"
    (repository / "src" / "server.py").unlink()
    assert stale(book) == "src/server.py is gone"
    records = found_of_files(book)
    assert [bool(one.get("stale")) for one in records] == [False, False, True, False, True]
    assert len(records[0]["files"]["src/server.py"]) == 32
    before = book.head
    book.digest("server port")
    assert not found_of_files(book, before), "nothing new, nothing recorded"


@pytest.mark.spec("4.10")
@pytest.mark.parametrize("lines", ["3-9999", "9998-9999", "5-3"])
def test_lines_that_a_file_does_not_have_are_told(repository: Path, lines: str) -> None:
    refs = ({"file": "src/server.py", "lines": lines},)
    item = Item(id="x", kind="note", agent="a", body="see", code_refs=refs)
    assert check(repository, item, None).stale == f"src/server.py has no lines {lines}"


@pytest.mark.spec("4.10")
def test_symbols_are_looked_up_by_parsing_and_in_other_languages_by_text(
    book: Book, repository: Path
) -> None:
    refs = [
        {"file": "src/server.py", "symbol": "Server.start"},
        {"file": "src/server.py", "symbol": "PORT"},
        {"file": "src/server.py", "symbol": "fork"},
        {"file": "src/page.ts", "symbol": "render"},
    ]
    book.remember("The server port is bound when it starts", code_refs=refs)
    assert stale(book) == ""
    (repository / "src" / "server.py").write_text(CODE.replace("def start", "def begin") + "# start\n")
    assert stale(book) == "Server.start is no longer in src/server.py"
    (repository / "src" / "page.ts").write_text("export function renderAll() {}\n")
    assert "render is no longer in src/page.ts" in stale(book)


@pytest.mark.spec("4.10")
def test_what_a_text_only_names_counts_once_it_was_there(book: Book, repository: Path) -> None:
    said = "The server port is read by `load()` in src/settings.py, see docs/elsewhere.md"
    assert book.remember(said, kind="procedure", override="it is hard to find").outcome == "stored"
    assert stale(book) == "", "it may speak of another place"
    (repository / "src" / "settings.py").write_text("def load(): ...\n")
    assert stale(book) == ""
    (repository / "src" / "settings.py").write_text("def read(): ...\n")
    assert stale(book) == "load is no longer in src/settings.py"


@pytest.mark.spec("4.10")
def test_commands_are_looked_for_on_the_path(
    book: Book, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "bin" / "harbourctl"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent))
    book.remember("To free the server port run `harbourctl stop --now`", kind="procedure")
    assert stale(book) == ""
    tool.unlink()
    assert stale(book) == "harbourctl is not on the PATH"


@pytest.mark.spec("4.10")
def test_stale_items_are_left_out_if_the_book_says_so_and_search_marks_them(
    book: Book, repository: Path
) -> None:
    kept = book.remember("The server listens on the port in PORT", citations=["src/gone.py:3"])
    (result,) = book.search("server port").results
    assert result.stale == "src/gone.py is gone"
    book.memory.configure(stale="leave_out")
    digest = book.digest("server port")
    assert (kept.item_id, "stale: src/gone.py is gone") in digest.omitted
    assert not digest.item_ids
    answer = book.search("server port")
    assert not answer.results
    assert ("1 stale", "src/gone.py is gone") in [(one.what, one.why) for one in answer.left_out]


@pytest.mark.spec("4.10", "L6")
def test_the_past_reads_the_record_and_not_the_files(book: Book, repository: Path) -> None:
    book.remember("The server listens on the port in PORT", citations=["src/server.py:3"])
    then = book.head
    digest = book.digest("server port")
    (repository / "src" / "server.py").unlink()
    assert "stale" not in book.digest("server port", at=then).text
    assert "stale" in book.digest("server port").text
    assert "stale" not in book.digest("server port", at=then).text
    receipt = book.receipt(digest.receipt_id or "")
    assert receipt.replay() == digest.text
    ((item, position),) = receipt.outside
    assert book.event(next(book.events(position - 1)).id).payload["item"] == item


def test_nothing_outside_the_repository_is_read(repository: Path) -> None:
    (repository.parent / "secret.txt").write_text("hidden")
    (repository / "link.txt").symlink_to(repository.parent / "secret.txt")
    item = Item(
        id="x",
        kind="note",
        agent="a",
        body="see",
        code_refs=({"file": "../secret.txt"}, {"file": "link.txt"}),
    )
    (repository.parent / "Makefile").write_text("deploy:\n")
    (repository / "Makefile").symlink_to(repository.parent / "Makefile")
    item = replace(item, body="see `make deploy`")
    found = check(repository, item, None)
    assert found.files == {}
    assert found.stale == "../secret.txt lies outside the repository; link.txt lies outside the repository"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("see src/a.py:3-5 for it", {"src/a.py:3-5"}),
        ("read https://example.com/a.html first", set()),
        ("version 1.2.3 of node.js", {"node.js"}),
        ("`make test` and `helper()` in lib/b.go", {"lib/b.go", "$ make", "$ make test", "lib/b.go helper"}),
        ("mail me at a@b.com", set()),
        ("`src/a.py`", {"src/a.py"}),
    ],
)
def test_what_can_be_looked_up_in_a_text(text: str, names: set[str]) -> None:
    assert {one.name for one in claims(Item(id="x", kind="note", agent="a", body=text))} == names


def test_without_a_repository_nothing_is_checked() -> None:
    with commonplace.open("memory:") as book:
        book.remember("The server listens on the port in PORT", citations=["src/server.py:3"])
        assert "stale" not in book.digest("server port").text
        assert not found_of_files(book)


@pytest.mark.spec("4.10")
@pytest.mark.parametrize(
    "said", ["Ship it with `make deploy`", "Run make deploy to ship it", "`cd . && make -s deploy ENV=live`"]
)
def test_a_target_of_make_is_looked_for_in_the_makefile(book: Book, repository: Path, said: str) -> None:
    makefile = repository / "Makefile"
    makefile.write_text("VERSION := 1\n\nbuild:\n\techo build\ndeploy test: build ## ship it\n\t./ship\n")
    book.remember(f"The server port is free then. {said}", kind="procedure")
    assert stale(book) == ""
    makefile.write_text("VERSION := 1\n\nbuild:\n\techo deploy: now\n")
    assert stale(book) == "the Makefile has no target deploy"
    makefile.write_text("VERSION := 1\ninclude more.mk\n\nbuild:\n\techo build\n")
    assert stale(book) == "", "it may be in the other file"
    makefile.unlink()
    assert stale(book) == "there is no Makefile for make deploy"


@pytest.mark.spec("4.10")
def test_a_target_that_the_makefile_never_had_is_told_at_once(book: Book, repository: Path) -> None:
    said = "The server port is freed by `make release`"
    book.remember(said, kind="procedure")
    assert stale(book) == "", "without a Makefile it may speak of another place"
    (repository / "Makefile").write_text("build:\n\techo build\n")
    assert stale(book) == "the Makefile has no target release"


@pytest.mark.spec("4.10")
def test_what_only_sounds_like_a_target_is_none(book: Book, repository: Path) -> None:
    (repository / "Makefile").write_text("build:\n\techo build\n")
    book.remember("Make sure that the server port is free, and make it known")
    assert stale(book) == ""


@pytest.mark.spec("4.10")
def test_a_script_of_npm_is_looked_for_in_the_package(
    book: Book, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npm = tmp_path / "bin" / "npm"
    npm.parent.mkdir()
    npm.write_text("#!/bin/sh\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", str(npm.parent))
    package = repository / "package.json"
    package.write_text('{"scripts": {"build": "tsc", "test": "vitest"}}')
    book.remember("The server port is set by `npm run build`; check it with `npm test`", kind="procedure")
    assert stale(book) == ""
    package.write_text('{"scripts": {"test": "vitest"}}')
    assert stale(book) == "package.json has no script build"
    package.write_text("{")
    assert stale(book) == "$ npm build cannot be read (JSONDecodeError"


@pytest.mark.spec("4.10")
@pytest.mark.parametrize(
    ("said", "script"),
    [
        ("`python scripts/x.py --fast`", "scripts/x.py"),
        ("`python3 -u scripts/free`", "scripts/free"),
        ("`./run.sh`", "run.sh"),
        ("then ./run.sh", "run.sh"),
        ("`$ bash tools/free stop`", "tools/free"),
        ("`tools/free`", "tools/free"),
        ("`PORT=1 ./bin/free now | tee log`", "bin/free"),
    ],
)
def test_a_script_that_a_command_names_is_looked_for(
    book: Book, repository: Path, said: str, script: str
) -> None:
    path = repository / script
    path.parent.mkdir(exist_ok=True)
    path.write_text("echo\n")
    book.remember(f"To free the server port: {said}", kind="procedure")
    assert stale(book) == ""
    path.unlink()
    assert stale(book) == f"{script} is gone"


@pytest.mark.spec("4.10")
def test_the_value_of_a_fact_can_be_a_command(book: Book, repository: Path) -> None:
    (repository / "Makefile").write_text("ship:\n\techo\n")
    book.remember(key="server.port.command", value="make ship")
    assert stale(book) == ""
    (repository / "Makefile").write_text("build:\n\techo\n")
    assert stale(book) == "the Makefile has no target ship"


@pytest.fixture
def site(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder `web` of the repository, which has a Makefile and a package of its own; the tools are installed."""
    for name in ("make", "npm", "yarn", "pnpm"):
        tool = tmp_path / "bin" / name
        tool.parent.mkdir(exist_ok=True)
        tool.write_text("#!/bin/sh\n")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (repository / "Makefile").write_text("build:\n\techo build\n")
    (repository / "package.json").write_text('{"scripts": {"lint": "eslint"}}')
    web = repository / "web"
    web.mkdir()
    (web / "Makefile").write_text("site:\n\techo site\n")
    (web / "package.json").write_text('{"scripts": {"dev": "vite"}}')
    return web


@pytest.mark.spec("4.10")
@pytest.mark.parametrize(
    ("command", "wrong"),
    [
        ("cd web && make site", "web/Makefile has no target site"),
        ("(cd web; make -j 4 site) && make build", "web/Makefile has no target site"),
        ("cd ./web/ && PORT=1 make site 2>&1 | tee log", "web/Makefile has no target site"),
        ("cd web || exit 1; make site", "web/Makefile has no target site"),
        ("cd src && cd ../web && make site", "web/Makefile has no target site"),
        ("cd web && npm run dev", "web/package.json has no script dev"),
        ("npm install && cd web && npm run dev", "web/package.json has no script dev"),
        ("npm run dev -w web", "web/package.json has no script dev"),
        ("npm --workspace=web run dev -- --port 3", "web/package.json has no script dev"),
        ("npm --prefix web run dev", "web/package.json has no script dev"),
        ("yarn workspace web run dev", "web/package.json has no script dev"),
        ("pnpm --filter web run dev", "web/package.json has no script dev"),
    ],
)
def test_a_command_in_a_folder_is_looked_for_there(book: Book, site: Path, command: str, wrong: str) -> None:
    book.remember(f"The server port is free then: `{command}`", kind="procedure")
    assert stale(book) == ""
    (site / "Makefile").write_text("page:\n\techo page\n")
    (site / "package.json").write_text('{"scripts": {"build": "vite build"}}')
    assert stale(book) == wrong


@pytest.mark.spec("4.10")
def test_a_folder_that_is_gone_is_told_unless_it_may_be_another_one(book: Book, site: Path) -> None:
    book.remember(
        "The server port is free then: `cd web && make site`, `npm run dev -w web`", kind="procedure"
    )
    assert stale(book) == ""
    site.rename(site.parent / "pages")
    assert stale(book) == "there is no web/Makefile for make site"


@pytest.mark.spec("4.10")
@pytest.mark.parametrize(
    "command",
    [
        "yarn workspace web dev",
        "pnpm --filter web dev",
        "pnpm -r run dev",
        "npm run dev -w shop",
        "npm run dev -w @team/web",
        "npm run dev --workspaces",
        "npm run deploy --if-present",
        "npm run --loglevel silent lint",
        "npm run $SCRIPT",
        "cd $HOME/web && make deploy",
        "cd ../other && make deploy",
        "cd /srv/web && make deploy",
        "cd ~ && make deploy",
        "cd && make deploy",
        "cd w* && make deploy",
        "cd elsewhere && make deploy",
        "pushd web && make site && popd && make build",
        "cd web || cd www; make deploy",
        "mkdir -p out && cd out && make deploy",
        "make $(cat targets) deploy",
        "make deploy-*",
        "make -j 4 build",
        "make build NOTE='all of it'",
        "make build & make build",
        "make build # deploy",
        "make -sC web site",
        "make --directory web site",
        "it's make deploy",
    ],
)
def test_a_command_that_cannot_be_judged_is_not_called_stale(book: Book, site: Path, command: str) -> None:
    book.remember(f"The server port is free then: `{command}`", kind="procedure")
    assert stale(book) == ""
    for name in ("elsewhere", "out"):
        (site.parent / name).mkdir()
    assert stale(book) == ""


@pytest.mark.spec("4.10")
@pytest.mark.parametrize(
    "rules",
    [
        "include more.mk\nbuild:\n\techo\n",
        "run-%:\n\techo\n",
        "NAMES = a b\n$(addprefix run-,$(NAMES)):\n\techo\n",
        "build \\\n  run-a: build.c\n\techo\n",
        "ifdef CI\n  run-a: build\n\techo\nendif\n",
        ".DEFAULT:\n\techo $@\n",
    ],
)
def test_a_makefile_that_may_have_a_target_has_it(book: Book, repository: Path, rules: str) -> None:
    (repository / "Makefile").write_text(rules)
    book.remember("The server port is freed by `make run-a`", kind="procedure")
    assert stale(book) == ""


@pytest.mark.spec("4.10")
def test_a_target_that_moved_into_a_folder_is_not_missed_where_it_was(book: Book, site: Path) -> None:
    (site.parent / "Makefile").write_text("site:\n\tmake -C web site\n")
    book.remember("The server port is free then: `cd web && make site`", kind="procedure")
    assert stale(book) == ""
    (site.parent / "Makefile").write_text("build:\n\techo build\n")
    assert stale(book) == ""
