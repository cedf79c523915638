"""Documents that cannot rot: every Python example runs, every link leads somewhere."""

from __future__ import annotations

import inspect
import json
import os
import re
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml
from opentelemetry import trace
from opentelemetry.util._once import Once

import commonplace
from commonplace.index.words import tokens
from commonplace.memory.cores import Core, CoreConfig
from commonplace.memory.portions import DigestRules, Portion, Salience, Structured
from commonplace.memory.settings import Settings
from commonplace.work.capability import EVERY
from commonplace.work.tasks import MOVES, OnFailure
from commonplace.workflow.load import examine
from commonplace.workflow.model import AgentMemorySettings

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def blocks(page: Path, *languages: str) -> list[tuple[str, str]]:
    """The code blocks of a page in order: language and content."""
    pattern = rf"^```({'|'.join(languages)})\n(.*?)^```"
    return re.findall(pattern, page.read_text(), re.MULTILINE | re.DOTALL)


WITH_EXAMPLES = [page for page in ROOT.glob("docs/*.md") if blocks(page, "python")]


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: page.name)
def test_the_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # An example may configure OpenTelemetry, which a process does once: later tests must not find it so.
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
    names: dict[str, object] = {"__name__": "example"}
    for _, example in blocks(page, "python"):
        exec(compile(example, str(page), "exec"), names)


def test_every_namespace_has_a_page_with_examples() -> None:
    pages = {page.stem for page in WITH_EXAMPLES}
    namespaces = {
        "memory",
        "documents",
        "recall",
        "runs",
        "work",
        "access",
        "admin",
        "mirror",
        "threads",
        "learning",
    }
    assert pages >= {*namespaces, "tutorial"}


@pytest.mark.spec("7.1")
def test_the_readme_runs_as_printed_and_again(tmp_path: Path) -> None:
    """Every program and every command, in order, each as a process of its own in one folder that is empty at first;
    then all of them a second time. What would install something is only checked."""
    environment = {**os.environ, "PYTHON": sys.executable}
    shell = 'commonplace() { "$PYTHON" -m commonplace "$@"; }; '
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    for _ in range(2):
        with ExitStack() as servers:
            for language, content in blocks(ROOT / "README.md", "python", "console"):
                for printed in (
                    [content] if language == "python" else re.findall(r"^\$ (.*)$", content, re.MULTILINE)
                ):
                    step = printed.replace("8787", port)
                    command, folder = ["bash", "-c", shell + step], tmp_path
                    if language == "python":
                        command = [sys.executable, "-c", step]
                    elif step.startswith("make "):
                        command, folder = ["make", "--dry-run", step.split()[1]], ROOT
                    elif step.startswith("pip install -e"):
                        named = re.search(r"\[(.*)\]", step)
                        assert set(named[1].split(",") if named else ()) <= set(extras)
                        continue
                    elif step.startswith("commonplace serve"):
                        servers.enter_context(_serving(step, tmp_path))
                        continue
                    ran = subprocess.run(
                        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
                    )
                    assert ran.returncode == 0, f"{step}\n{ran.stdout}\n{ran.stderr}"
                    assert language == "console" or ran.stderr == ""


@contextmanager
def _serving(step: str, folder: Path) -> Iterator[None]:
    """A server that a page starts, until the rest of the page has run."""
    command = [sys.executable, "-m", "commonplace", "--json", *step.split()[1:]]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            assert server.stdout is not None
            assert json.loads(server.stdout.readline())["url"]
            yield
        finally:
            server.terminate()
            assert server.wait(60) == 0


@pytest.mark.spec("7.1", "4.2")
def test_the_first_program_is_about_memory_and_runs_twice(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    program = blocks(ROOT / "README.md", "python")[0][1]
    assert len(program.splitlines()) <= 20
    assert all(verb in program for verb in (".remember(", ".search(", ".prompt("))
    assert "An actor's memory is its own unless it is `shared=True`" in readme
    (note,) = re.findall(r'remember\("([^"]+)"', program)
    (question,) = re.findall(r'search\("([^"]+)"', program)
    assert not tokens(note) & tokens(question)  # it is found in other words
    printed = []
    for _ in range(2):
        ran = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (ran.returncode, ran.stderr) == (0, "")
        kept, hit, *prompt = ran.stdout.splitlines()
        printed.append(kept.split()[0])
        assert hit.endswith(note)
        assert any(note in line for line in prompt)
    assert printed == ["stored", "merged"]


def test_the_larger_workflow_in_the_guide_is_a_valid_one(tmp_path: Path) -> None:
    ((_, shown),) = blocks(ROOT / "docs" / "runs.md", "yaml")
    head = {"awp": "1.0.0", "workflow": {"name": "larger", "version": "1.0.0", "description": "Shown."}}
    inner = {"graph": [{"id": "pusher", "agent": "pusher", "share_output": ["url"]}]}
    confidence = {"type": "number", "minimum": 0, "maximum": 1}
    for folder, document, agents in (
        (
            tmp_path,
            yaml.safe_load(shown),
            {"planner": "questions", "searcher": "answers", "writer": "draft"},
        ),
        (tmp_path / "publish", {"orchestration": inner}, {"pusher": "url"}),
    ):
        if "memory" in document:
            agents["archive_searcher"] = "answers"
        for id, field in agents.items():
            agent = {
                "awp_agent": "1.0.0",
                "identity": {"id": id, "role": "worker", "description": "Works."},
                "output": {
                    "format": "json",
                    "contract": {field: {"type": "string"}, "confidence": confidence},
                },
            }
            (folder / "agents" / id).mkdir(parents=True)
            (folder / "agents" / id / "agent.awp.yaml").write_text(yaml.safe_dump(agent))
        (folder / "workflow.awp.yaml").write_text(yaml.safe_dump(head | document))
    workflow, problems = examine(tmp_path)
    assert [str(one) for one in problems if one.level == "error"] == []
    assert workflow is not None
    assert [node.id for node in workflow.nodes] == ["planner", "searcher", "writer", "publish"]
    assert [one.action for one in workflow.degradation] == ["fallback", "cached_results"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_within_the_project_lead_somewhere(page: Path) -> None:
    for target, place in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", page.read_text()):
        if "://" not in target:
            other = page.parent / target if target else page
            assert other.exists(), f"{page.name} links to {target}"
            assert not place or place in anchors(other), f"{page.name} links to {target}#{place}"


def anchors(page: Path) -> set[str]:
    """The places of a page that can be linked to: its headings, as they are written in an address."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [ROOT / "README.md", *ROOT.glob("docs/*.md")], ids=lambda page: page.name)
def test_pages_are_in_plain_words(page: Path) -> None:
    """Generated pages say what docstrings say; the benchmarks are a record of what was done."""
    riddles = re.findall(r"\b(?:whoever|whomever|be it)\b", page.read_text(), re.IGNORECASE)
    assert riddles == [] or page.name in ("cli.md", "reference.md", "benchmarks.md")


def test_the_glossary_names_what_the_code_is_made_of() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    for word in (
        "Book",
        "Event",
        "Overlay",
        "Write set",
        "Residue",
        "Capability",
        "Horizon",
        "Facts",
        "Lease",
        "Right",
        "State",
        "Turn",
        "Fork",
        "Work",
        "Task",
        "Claim",
        "Decision",
        "Nudge",
        "Radar",
        "Focus",
        "Candidate",
    ):
        assert f"**{word}**" in glossary
    every = re.findall(r"\*\*(.+?)\*\*", glossary)
    assert sorted(set(every)) == sorted(every)  # each is explained once


def test_the_architecture_names_modules_that_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    modules = set(re.findall(r"[\w/]*\w\.py\b", page)) - {"tests/test_architecture.py"}
    assert {name for name in modules if not (ROOT / "src" / "commonplace" / name).exists()} == set()


def work_page() -> str:
    return (ROOT / "docs" / "work.md").read_text()


@pytest.mark.spec("5.2")
def test_the_moves_of_tasks_are_drawn_as_they_are() -> None:
    drawn = re.search(r"^```mermaid\nstateDiagram-v2\n(.*?)^```", work_page(), re.MULTILINE | re.DOTALL)
    assert drawn is not None
    arrows = re.findall(r"^ +(\S+) --> (\S+)$", drawn[1], re.MULTILINE)
    inner = {(first, then) for first, then in arrows if "[*]" not in (first, then)}
    assert inner == {(first, then) for first, after in MOVES.items() for then in after}
    assert {first for first, then in arrows if then == "[*]"} == {one for one in MOVES if not MOVES[one]}
    table = {
        first: () if then == "–" else tuple(then.split(", "))
        for first, then in re.findall(r"^\| (\w+) \| ([^|]+) \| [^|]+ \|$", work_page(), re.MULTILINE)
        if first in MOVES
    }
    assert table == MOVES


@pytest.mark.spec("5.10")
def test_every_answer_names_tests_that_exist() -> None:
    answers = re.split(r"^\d+\. ", work_page().partition("## Twelve questions")[2], flags=re.MULTILINE)[1:]
    assert len(answers) == 12
    known = {
        name
        for file in (ROOT / "tests").glob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", file.read_text(), re.MULTILINE)
    }
    for answer in answers:
        named = re.findall(r"`(test_\w+)`", answer)
        assert named, answer
        assert set(named) <= known, set(named) - known


@pytest.mark.spec("5.4")
def test_every_kind_of_event_of_a_work_is_named() -> None:
    assert {f"`{kind}`" for kind in EVERY} <= set(re.findall(r"`(?:work|task)\.\w+`", work_page()))


def test_make_help_names_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in ("help", "setup", "demo", "serve", "test", "lint", "bench", "faults", "soak"):
        assert re.search(rf"^{target}:.*## ", makefile, re.MULTILINE)


def test_every_setting_is_documented() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    source = "\n".join(file.read_text() for file in (ROOT / "src").rglob("*.py"))
    opening = set(inspect.signature(commonplace.open).parameters) - {"url"}
    structs = (
        Settings,
        DigestRules,
        Structured,
        Portion,
        Salience,
        Core,
        CoreConfig,
        OnFailure,
        AgentMemorySettings,
    )
    fields = {name for struct in structs for name in struct.__struct_fields__} - {"id"}
    variables = set(re.findall(r"COMMONPLACE_[A-Z_]+", source))
    missing = [name for name in sorted(opening | fields | variables) if not re.search(rf"\b{name}\b", page)]
    assert missing == []
