"""What is told elsewhere: code that can be read again, history that git keeps, states that pass."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commonplace.memory.exclusions import excluded
from tests.exclusion_texts import HELD_OUT, KEPT, LEARNED

CODE, GIT, TASK = "derivable_code_state", "git_history", "ephemeral_task_state"


@pytest.mark.spec("3.5")
def test_hardly_any_ordinary_sentence_is_touched() -> None:
    """Two thousand sentences about software, people and decisions, written by several people."""
    ordinary = [text for text, label in (*HELD_OUT, *LEARNED) if label == KEPT]
    assert len(ordinary) >= 2_000
    touched = [text for text in ordinary if excluded(text)]
    assert len(touched) <= len(ordinary) // 200, touched


@pytest.mark.spec("3.5")
@pytest.mark.parametrize(
    "text",
    [
        "The author of Dune is Frank Herbert",
        "Currently we use Slack",
        "There is nothing to do",
        "The lobby has two doors",
        "Remember to run the migrations before the deploy",
        "We commit to main only after review",
        "The function of the committee is to advise the board",
        "Never force-push to a shared branch",
        "Migrations live in db/migrate and are never edited after merge",
        "I'm trying to eat less sugar these days",
        "Running costs are shared by both teams",
        "The head of sales is Tom",
    ],
)
def test_what_people_tell_is_no_state_of_code_or_task(text: str) -> None:
    assert excluded(text) is None


@pytest.mark.spec("3.5")
@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("commit 4f2a9c1 merged branch feature/login into main", GIT),
        ("4f2a9c1 (HEAD -> main) Fix rounding in totals", GIT),
        ("Merge branch 'hotfix/tax'", GIT),
        ("fix(api): return 404 for unknown users", GIT),
        ("Rosa opened PR 14 against main.", GIT),
        ("def load(path: str) -> Config:", CODE),
        ("import os\nfrom pathlib import Path\nclass Reader:", CODE),
        ("parse_header() is defined in src/http/parser.py", CODE),
        ("utils.js exports debounce, throttle and deepMerge.", CODE),
        ("The class OrderRepository extends BaseRepository", CODE),
        ("[x] write the tests\n[ ] deploy", TASK),
        ("[14:02:11] INFO worker 3 finished job 8812 in 412 ms", TASK),
        ("I'm currently refactoring the parser", TASK),
        ("The tests are still failing", TASK),
        ("Loaded 3 of 12 files", TASK),
    ],
)
def test_what_is_told_elsewhere_is_named_by_class(text: str, rule: str) -> None:
    told = excluded(text)
    assert told is not None
    assert told.rule == rule
    assert told.evidence


@pytest.mark.spec("3.5")
def test_one_line_of_a_log_does_not_spoil_a_procedure() -> None:
    line = "[14:02:11] INFO worker 3 finished job 8812 in 412 ms\n"
    procedure = (
        "To restore a book, stop the writer first. Copy the newest snapshot over the data folder and replay the log.\n"
        "Compare the number of events with the checkpoint; if the two differ, take the snapshot before it.\n"
        "Never start the writer before the numbers agree. Tell support when it is done, customers wait for it.\n"
    )
    assert excluded(line) is not None
    assert excluded(procedure + line) is None


@pytest.mark.spec("3.5", "L6")
@given(st.text(max_size=300))
@settings(max_examples=100, deadline=None)
def test_any_text_gets_the_same_answer_twice(text: str) -> None:
    assert excluded(text) == excluded(text)


@pytest.mark.parametrize(
    "text", ["", "   ", "x" * 100_000, "commit a1b2c3d " * 7_000, "(" * 50_000, "a: " * 30_000]
)
def test_nothing_is_too_short_or_too_long(text: str) -> None:
    answer = excluded(text)
    assert answer is None or answer.rule
