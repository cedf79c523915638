"""What durable memory does not take in: code that can be read again, history that git keeps, states that pass."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commonplace.memory.exclusions import excluded
from tests.exclusion_texts import DEV, HELD_OUT, KEPT

Labelled = list[tuple[str, str]]

KEPT_LATER = """
The staging database is refreshed from production every Sunday night.
Customers in Japan expect invoices with the consumption tax shown separately.
We decided to keep the monolith until the team has more than twelve engineers.
Never send marketing mail to addresses that end in .gov.
Deploys need two approvals, one of them from the platform group.
The printer on the second floor only takes A4.
Ben is allergic to peanuts.
Use feature flags for every change that touches billing.
The VPN must be on before the integration tests can reach the queue.
Our API returns 429 after 100 requests a minute per key.
Grandmother's recipe needs two eggs and no sugar.
The user wants answers in bullet points.
Please do not touch the legacy importer without asking Maria first.
Kubernetes manifests live in a repository of their own because audits need it.
To release: bump the version, tag it, and let the pipeline publish.
The quarterly report is due on the 5th working day.
Caroline moved to Berlin in 2021 and works as a nurse.
Retries use exponential back-off because the gateway punishes bursts.
Passwords rotate every 90 days for service accounts.
Backups are kept for 35 days in two regions.
"""
REFUSED_LATER = """
Function load_config in settings.py takes two arguments.
The class OrderService inherits from BaseService and has 14 methods.
src/api/routes.ts exports a default router.
README.md mentions Python 3.11.
requirements.txt pins flask==2.3.1
The Dockerfile uses node:18-alpine as base image.
There are 42 test files under tests/.
Line 88 of main.go calls os.Exit(1).
Commit a81bc3f fixed the flaky test.
Branch release/2.4 was merged yesterday by Tom.
PR #512 got two approvals and was squashed.
git log shows the last change to auth.py was on 3 May.
The tag v1.9.0 points at 77ad01c.
Tests passed on the second try at 10:12.
Currently refactoring the parser, about half done.
Next: rerun the migration and check the logs.
I just opened the file and will read it now.
Step 4 of 7 complete.
Build is running, waiting for it to finish.
Got a timeout from the API, retrying in a minute.
"""
"""Written by somebody who had not seen the rules, after they were made."""


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
@pytest.mark.parametrize("texts", [DEV, HELD_OUT, [*DEV, *HELD_OUT]], ids=["made on", "held out", "all"])
def test_nearly_every_text_is_judged_as_a_person_would(texts: Labelled) -> None:
    assert len(texts) >= 200
    kept, refused, named = right(texts)
    assert kept >= 0.95
    assert refused >= 0.95
    assert named >= 0.9


@pytest.mark.spec("3.5")
def test_texts_that_were_written_later_are_judged_as_well() -> None:
    wrong = [text for text in KEPT_LATER.strip().splitlines() if excluded(text) is not None]
    wrong += [text for text in REFUSED_LATER.strip().splitlines() if excluded(text) is None]
    assert len(wrong) <= 2, wrong


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
