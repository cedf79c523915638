"""Documents that cannot rot: every Python example runs, every link leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


RUN = ("README.md", "docs/guide.md", "docs/runs.md", "docs/access.md")


@pytest.mark.parametrize("page", [ROOT / page for page in RUN], ids=lambda page: page.name)
def test_the_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    assert examples
    names: dict[str, object] = {"__name__": "example"}
    for example in examples:
        exec(compile(example, str(page), "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_within_the_project_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


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
    ):
        assert f"**{word}**" in glossary


def test_make_help_names_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in ("help", "setup", "demo", "serve", "test", "lint", "bench", "faults", "soak"):
        assert re.search(rf"^{target}:.*## ", makefile, re.MULTILINE)
