"""The example programs, each in a process of its own, in an empty folder, and again on the book that it left."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SHOWN = {
    "two_agents": [
        "ben works on: Announce the release",
        "Which version number?",
        "ben finds: The changelog is in",
    ],
    "take_over": ["slow is killed", "quick claims cat.png", "was completed by quick"],
    "asyncio_team": [
        "ada explains the database",
        "cy reads about the cache",
        "found: ben has explained the queue",
    ],
    "agent_loop": ["(the price list is read for unit.price)", "The order costs 360 euros."],
    "erase_a_customer": [
        "so does a digest: True",
        "purged: True",
        "after: 0 files",
        "the chain verifies: True",
    ],
}


def run(name: str, folder: Path) -> str:
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), str(folder / "team.db")]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=120)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


@pytest.mark.spec("7.1")
@pytest.mark.parametrize("name", SHOWN)
def test_an_example_runs_and_shows_what_it_says(name: str, tmp_path: Path) -> None:
    told = run(name, tmp_path)
    for text in SHOWN[name]:
        assert text in told


@pytest.mark.spec("7.1", "4.5")
def test_the_agent_of_the_example_remembers_what_it_looked_up(tmp_path: Path) -> None:
    run("agent_loop", tmp_path)
    again = run("agent_loop", tmp_path)
    assert "price list is read" not in again
    assert "The order costs 360 euros." in again


def test_the_examples_are_short_and_all_of_them_are_run() -> None:
    programs = {path.stem: path for path in EXAMPLES.glob("*.py")}
    assert programs.keys() == {*SHOWN, "demo"}
    for name in SHOWN:
        assert len(programs[name].read_text().splitlines()) <= 60
