"""What is told elsewhere: code that can be read again, history that git keeps, states that pass."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import commonplace
from commonplace import Book
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


ORDINARY = """
The kitchen at Hill Street closes at 22:30 on weekdays
Marta prefers oat milk and no sugar in her coffee
Rye bread needs eighteen hours of proofing in our cellar
The supplier delivers flour on Tuesdays before seven
Dr. Weber sees children only on Thursday afternoons
Mr. Okafor is allergic to penicillin and tolerates ibuprofen
Blood samples are sent to the lab in Essen, not to the one in Bonn
A patient's second appointment is always at least a week after the first
The ward's refrigerator must stay between 2 and 8 degrees
The museum lends nothing for longer than six months
Visitors with a school pass pay half on Sundays
The class of 1998 donated the piano in the hall
Professor Lindgren returns essays within two weeks
The function of the student council is to advise the dean
Flat 4B pays rent on the fifth, every other flat on the first
The landlord's agent is Priya Nair, reachable at the office in Leeds
Tenants may keep a cat but not a dog
The boiler in the basement was replaced in 2019 and has ten years of warranty
Invoices above 10,000 euros need two signatures
Expenses are reimbursed with the salary of the following month
Our fiscal year begins in July
The bank rejects transfers with a reference longer than 140 characters
Kowalski GmbH always pays late, so we ask them for a deposit
The ferry to Texel takes cars only with a reservation
Anna gets sick in buses and books trains instead
The tour guide speaks Dutch, German and some Polish
Luggage over 23 kilos costs 40 euros on the way back
Use the staging database for demos, never production
Deploys to production happen from the release branch only
The API answers 429 after sixty calls in a minute
We chose Postgres over MySQL because the team knows it
Feature flags are removed within two releases
Timestamps are stored in UTC and shown in the user's zone
The test command is cd evals && npm test
Logs are kept for thirty days, then they are deleted
The frontend talks to the backend through a gateway
Retries use exponential backoff with a cap of one minute
Merge requests need two approvals, one of them from the platform team
The nightly build takes about forty minutes
Commits are signed with the key on the hardware token
Database migrations must be reversible
The word "task" means something else for the accounting team
Secrets live in the vault and are rotated each quarter
New classes get a docstring that says what a caller may rely on
Deborah leads design and reports to Samir
The board meets on the second Monday of each month
Interns get a mentor from another team
We agreed to answer every applicant within five days
The contract with the print shop ends in March
Customers in Japan expect an answer on the same day
The orchard is sprayed only when no wind blows
Bees are moved to the lower field after the rape has flowered
The tractor needs the thick oil in winter
Lambs are weaned at twelve weeks
The chorus rehearses in the church hall at half past seven
Nadia sings alto but can help out as a tenor
The second movement is played slower than the score says
The orchestra tunes to 442 hertz
Phase two of the renovation starts after the festival
The plan is to buy a new harpsichord next year
Her favourite film is Stalker, and she has seen it nine times
The keeper of the keys is Mr. Aydin; the spare set is with the porter
"""


@pytest.mark.spec("3.5", "L5")
def test_sixty_ordinary_sentences_of_ten_domains_are_stored_without_a_word(book: Book) -> None:
    """Also where such things are refused: a kitchen, a clinic, a museum, a house, books, travel, software, an office, a
    farm and a choir."""
    book.memory.configure(exclusions="refuse")
    sentences = ORDINARY.strip().splitlines()
    assert len(sentences) >= 60
    for sentence in sentences:
        kept = book.remember(sentence)
        assert (kept.outcome, kept.advice) == ("stored", ""), sentence


@pytest.mark.spec("3.5", "3.2")
@pytest.mark.parametrize(
    "fact",
    [
        "The test command is cd evals && npm test",
        "PlanAuditor excludes the transient failure classification",
        "All agent files follow P.A.R.T. section order",
    ],
)
def test_good_facts_of_a_repository_are_kept_in_its_memory(fact: str) -> None:
    """There, what is told elsewhere is refused."""
    with commonplace.open("memory:") as book:
        kept = book.remember(fact)
        assert (kept.outcome, kept.advice) == ("stored", "")
    with commonplace.open("memory:") as book:
        kept = book.memory.repository_fact(
            "conventions",
            fact,
            citations=["docs/conventions.md:3"],
            reason="every task needs it",
            category="project",
        )
        assert (kept.outcome, kept.advice) == ("stored", ""), str(kept)
