"""Every number of the specification that is built has a test that names it."""

from __future__ import annotations

import re
from pathlib import Path

LAWS = [f"L{number}" for number in range(1, 13)]
SECTIONS = {1: 5, 2: 10, 3: 12, 4: 15, 5: 11, 6: 12}
"""How many requirements each section has."""
NUMBERS = [
    *LAWS,
    *(f"{section}.{number}" for section, most in SECTIONS.items() for number in range(1, most + 1)),
    "6.0",
    *("7.1", "7.2", "7.3", "7.4", "7.6", "7.8"),
]


def test_every_number_is_named_by_a_test() -> None:
    named = set[str]()
    for path in Path(__file__).parent.glob("test_*.py"):
        for mark in re.findall(r"@pytest\.mark\.spec\(([^)]*)\)", path.read_text()):
            named.update(re.findall(r'"([^"]+)"', mark))
    assert [number for number in NUMBERS if number not in named] == []
