"""The stories of the tests, told to a book behind a server."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from tests.served_stories import SHARE

from . import Result, fault

ROOT = Path(__file__).resolve().parents[1]
MANY = 100
"""From so many stories on they run on all cores."""


@fault(23, "served", full=100_000, quick=5)
def served(count: int, seed: int, folder: Path) -> Result:
    """Every story that uses only the public API (see tests/served_stories.py), or `count` of them by chance."""
    result, report = Result(), folder / "report.xml"
    stories = _collected([] if count >= MANY else [f"tests/{module}.py" for module in SHARE])
    chosen = random.Random(seed).sample(stories, min(count, len(stories)))
    workers = ["-n", "auto"] if len(chosen) >= MANY else ["-n", "0"]
    named = folder / "stories.txt"
    named.write_text("\n".join(chosen))
    ran = _pytest(*workers, f"--junitxml={report}", f"@{named}")
    if not report.exists():
        result.problem("the stories", (ran.stdout + ran.stderr)[-450:])
        return result
    for case in ElementTree.parse(report).iter("testcase"):
        result.cases += 1
        wrong = [part.get("message", "") for part in case if part.tag in ("failure", "error")]
        result.outcomes["failed" if wrong else "told"] += 1
        if wrong:
            result.problem(f"{case.get('classname')}::{case.get('name')}", *wrong)
    return result


def _collected(files: list[str]) -> list[str]:
    """The ids of the stories of these files that run behind a server; of all, if none is named."""
    lines = _pytest("--collect-only", "--disable-warnings", "-n", "0", *files).stdout.splitlines()
    return [line for line in lines if "::" in line]


def _pytest(*options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COMMONPLACE_TEST_SERVED": "only"}
    command = [sys.executable, "-m", "pytest", "-p", "no:randomly", "-p", "no:cacheprovider", *options]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
