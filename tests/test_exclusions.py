"""What durable memory does not take in: code that can be read again, history that git keeps, states that pass."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commonplace.memory.exclusions import excluded
from tests.exclusion_texts import HELD_OUT, KEPT, LEARNED

Labelled = list[tuple[str, str]]


def right(texts: Labelled) -> tuple[float, float, float]:
    """Which share of those to keep was kept, of those to refuse refused, and of these under the right class."""
    keep = [text for text, label in texts if label == KEPT]
    refuse = [(text, label) for text, label in texts if label != KEPT]
    kept = sum(excluded(text) is None for text in keep)
    found = [(excluded(text), label) for text, label in refuse]
    refused = sum(one is not None for one, _ in found)
    named = sum(one is not None and one.rule == label for one, label in found)
    return kept / len(keep), refused / len(refuse), named / len(refuse)


@pytest.mark.spec("3.5")
def test_nearly_every_text_not_seen_before_is_judged_as_a_person_would() -> None:
    assert len(HELD_OUT) >= 200
    assert 2 * sum(label == KEPT for _, label in HELD_OUT) == len(HELD_OUT)
    assert not {text for text, _ in HELD_OUT} & {text for text, _ in LEARNED}
    kept, refused, named = right(HELD_OUT)
    assert kept >= 0.95
    assert refused >= 0.95
    assert named >= 0.95


@pytest.mark.spec("3.5")
def test_the_weights_are_those_of_the_texts_they_were_learned_from() -> None:
    kept, refused, named = right(LEARNED)
    assert min(kept, refused, named) >= 0.99


@pytest.mark.spec("3.5")
def test_one_line_of_a_log_does_not_spoil_a_procedure() -> None:
    line = "[14:02:11] INFO worker 3 finished job 8812 in 412 ms\n"
    procedure = (
        "To restore a book, stop the writer first. Copy the newest snapshot over the data folder and replay the log. "
        "Compare the number of events with the checkpoint; if the two differ, take the snapshot before it. "
        "Never start the writer before the numbers agree. Tell support when it is done, customers wait for it. "
        "The procedure takes about an hour and needs no downtime of the readers.\n"
    )
    assert excluded(line) is not None
    assert excluded(procedure + line) is None


@pytest.mark.spec("3.5")
def test_a_refusal_names_its_class_its_evidence_and_the_way_round_it() -> None:
    refused = excluded("commit 4f2a9c1 merged branch feature/login into main")
    assert refused is not None
    assert refused.rule == "git_history"
    assert refused.evidence
    assert "override" in refused.reason


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
