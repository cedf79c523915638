"""Texts that are made to take long: one actor's text never stops another one."""

from __future__ import annotations

import random
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import commonplace
from commonplace import BadInput
from commonplace.access import masking
from commonplace.access.masking import LONGEST, TOO_LONG, beginning, find_secrets, masked
from commonplace.access.patterns import bad_pattern
from commonplace.access.redact import TOKEN, Redactor
from commonplace.index.words import MOST_READ, MOST_WORDS, counted, snippet
from commonplace.memory.items import Item
from commonplace.recall.verification import MOST_CLAIMS, claims
from commonplace.state.contract import violations
from commonplace.workflow.load import examine
from tests.test_state import open_run
from tests.workflows import agent_file, changed, example, write

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the faults are beside the tests, not installed

from faults import texts

SHARES = 8
KEY = "ghp_" + "a1B2" * 9


def repeated(unit: str, size: int) -> str:
    return (unit * (size // len(unit) + 1))[:size]


@pytest.mark.spec("2.7", "L5")
@pytest.mark.parametrize("share", range(SHARES))
def test_the_time_of_every_pattern_is_linear_in_the_length_of_the_worst_text(share: int) -> None:
    looks = list(texts.patterns().values())[share::SHARES]
    assert len(looks) > 10
    assert [why for look in looks for why in texts.slower(look, random.Random(share))] == []


@pytest.mark.spec("2.7", "L5")
@pytest.mark.parametrize("name", list(texts.functions()))
def test_so_is_that_of_every_parser_and_tokenizer(name: str) -> None:
    assert texts.slower(texts.functions()[name], random.Random(name)) == []


@pytest.mark.spec("2.7")
@pytest.mark.parametrize("unit", ["aa-", "ab1-", "M-", "MaB3-", "eyJaaaaaaaa-", "eyJ-", "a@", "-----BEGIN "])
def test_a_text_without_end_hides_no_secret_behind_it(unit: str) -> None:
    text = f"{repeated(unit, 100_000)} {KEY} the end"
    assert [found.kind for found in find_secrets(text)][-1:] == ["github"]
    assert masked(text).endswith(f" {TOKEN} the end")
    assert find_secrets(text) == find_secrets(text)


@pytest.mark.spec("2.7", "L5", "L6")
def test_a_text_that_is_too_long_to_look_through_is_masked_whole_with_the_reason() -> None:
    fits, long = repeated("word ", LONGEST // 20), repeated("word ", LONGEST + 1)
    assert masked(fits) == fits
    assert find_secrets(long) == [(0, len(long), TOO_LONG)]
    assert masked(long) == TOKEN


@pytest.mark.spec("2.7")
def test_the_beginning_of_a_text_never_ends_within_a_secret() -> None:
    for before in range(60, 110):
        text = f"{'x' * before} {KEY} {'y' * 50}"
        shown = beginning(text, 100)
        assert KEY[:8] not in shown
        assert shown.endswith("…")
    assert beginning(f"a {KEY}", 100) == f"a {TOKEN}"


@pytest.mark.spec("2.7", "L5")
def test_nobody_waits_for_a_search_because_of_what_somebody_else_recorded(tmp_path: Path) -> None:
    with commonplace.open(str(tmp_path / "book")) as book, book.run(run_id="r"):
        book.record("note.taken", actor="ada", payload={"text": "the quick needle"}, run_id="r")
        for unit in ("aa-", "M-", "eyJaaaaaaaa-", "a1@b2@", "漢字", "password is "):
            late = texts.delays(book, repeated(unit, 120_000))
            assert max(late.values()) < 5, (unit, late)  # it was 42 s
        hits = book.as_actor("ada").search("needle").results
        assert [hit.text for hit in hits if "needle" in hit.text] == ["the quick needle"]


@pytest.mark.spec("4.1", "L5")
def test_search_reads_the_first_pages_of_a_text_and_says_where_it_stops(tmp_path: Path) -> None:
    filler = repeated("word ", MOST_READ)
    with commonplace.open(str(tmp_path / "book")) as book:
        event = book.record("note.taken", payload={"text": f"early {filler} late {KEY}"})
        (hit,) = book.search("early").results
        assert (hit.id, hit.text[-1]) == (event.id, "…")
        assert not any("'late' matched" in one.why for one in book.search("late", explain=True).results)
        shown = book.event(event.id)
        assert shown is not None
        assert "late" in shown.payload["text"]  # the event itself is whole


def test_of_very_many_different_words_the_first_are_counted() -> None:
    text = " ".join(f"{n:x}" for n in range(40_000))[:MOST_READ]
    long = "".join(chr(0x4E00 + n // 300) + chr(0x4E00 + n % 300) for n in range(45_000))
    assert len(counted(text)[0]) < MOST_WORDS
    assert len(counted(long)[0]) == MOST_WORDS
    assert counted(long) == counted(long)


def test_a_snippet_stands_around_its_word_whatever_the_normal_form_does_to_the_length() -> None:
    for unit in ("\ufdfa ", "ﬁ ", "e\u0301 ", "ab "):
        text = repeated(unit, 3_000) + "needle" + repeated(" tail", 3_000)
        assert "needle" in snippet(text, {"needle"})


REFUSED = [
    r"(['\"]).*?\1",
    r"(?<![\w.+-])[\w.+-]+@[\w-]+\.\w+",
    r"(?=.*secret)\S+",
    r"(?:x{1,1000}){1,1000}y",
    "(",
    "a" * 3_000,
]
TAKEN = [
    r"(a+)+b",
    r"(?:a|aa)*c",
    r"(\w+\s?)*$",
    r"\S+@\S+",
    r"^(([a-z])+.)+[A-Z]([a-z])+$",
    r"\s+$",
    r".*secret.*x",
    r"sk-\w+",
    r"\bsk-[A-Za-z0-9]{20,}",
    r"(?i)password\s*[:=]\s*\S+",
    r"(?m)^token: .*$",
    r"\b\d{4}[ -]?\d{4}[ -]?\d{4}[ -]?\d{4}\b",
    r"\b[A-Z]{2}\d{2}(?: ?\d{4}){3,7}\b",
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    r"<[^<>]*>",
    r"(?:\d{1,3}\.){3}\d{1,3}",
]


@pytest.mark.parametrize("pattern", REFUSED, ids=str)
def test_a_pattern_that_cannot_be_matched_in_linear_time_is_refused_with_what_to_write(pattern: str) -> None:
    assert re.search(r"without look-around|write several", bad_pattern(pattern) or "")


@pytest.mark.parametrize("pattern", TAKEN, ids=str)
def test_patterns_as_people_write_them_are_taken_and_fast(pattern: str) -> None:
    """Also those for which Python's own engine takes longer than anybody waits."""
    assert bad_pattern(pattern) is None
    assert texts.slower(texts.user_look(pattern), random.Random(pattern)) == []


@pytest.mark.spec("2.7")
def test_a_workflow_with_a_bad_pattern_is_refused_before_it_runs(tmp_path: Path) -> None:
    patterns = ["(a+)+b", "(?=a)b"]
    documents = changed(example(), "workflow.awp.yaml", "security.redaction.patterns", patterns)
    workflow, problems = examine(write(tmp_path, documents))
    assert workflow is None or any(one.level == "error" for one in problems)
    (told,) = [one for one in problems if one.rule == "R14"]
    assert told.path == "security.redaction.patterns[1]"
    assert "'(?=a)b'" in told.message
    assert "without look-around" in told.message
    with commonplace.open("memory:") as book, pytest.raises(BadInput, match="without look-around"):
        open_run(book, patterns=("(?=a)b",))


@pytest.mark.spec("2.8")
def test_so_is_a_contract(tmp_path: Path) -> None:
    bad: dict[str, Any] = {"type": "string", "pattern": "^(?=a)b$"}
    contract = {"type": "object", "properties": {"inner": {"type": "array", "items": bad}}}
    for unusable in (contract, {"type": "object", "patternProperties": {"(?=a)": {}}}):
        with pytest.raises(BadInput, match="without look-around"):
            violations(unusable, {})
    writer = agent_file("report_writer")
    documents = changed(example(), writer, "output.contract.properties.draft.pattern", "^(?=a)b$")
    assert any("without look-around" in one.message for one in examine(write(tmp_path, documents))[1])


@pytest.mark.spec("2.8")
def test_what_agents_put_out_is_matched_in_linear_time() -> None:
    contract = {
        "type": "object",
        "properties": {"confidence": {"type": "number"}, "code": {"type": "string", "pattern": "^(a+)+$"}},
        "patternProperties": {"^(b+)+$": {"type": "integer"}},
        "additionalProperties": False,
    }
    assert violations(contract, {"code": "a" * 50, "bbb": 1}) == []
    long = "a" * 50_000
    wrong = violations(contract, {"code": f"{long}!", "b" * 100: "x", f"{'b' * 50_000}!": 1})
    assert [(one["field"][:3], one["rule"][:30]) for one in wrong] == [
        ("bbb", "must be of type integer"),
        ("bbb", "is not declared"),
        ("cod", "must meet pattern: '^(a+)+$'"),
    ]


@pytest.mark.spec("2.7", "L5", "L6")
def test_a_text_that_takes_too_many_steps_is_redacted_whole() -> None:
    assert Redactor(patterns=["(?=a)b"]).text("a" * 50) == TOKEN  # out of a book that somebody else made
    hide = Redactor(patterns=[r"\S+@\S+"])
    assert hide.text("ada@example.com wrote") == f"{TOKEN} wrote"
    assert hide.text("a" * 2_000_000) == "a" * 2_000_000
    assert hide.text("\ud800") == TOKEN
    many = [f"secret-{n:05}" for n in range(3_000)]
    known = Redactor(secrets=many)
    assert known.text("it is secret-00042!") == f"it is {TOKEN}!"
    assert known.text(" ".join(many)) == TOKEN
    assert known.text("nothing to hide " * 100) == "nothing to hide " * 100


def test_what_a_text_claims_is_counted_before_it_is_multiplied() -> None:
    body = "a.py " * 9_000 + "`f()` " * 9_000
    item = Item(id="i", kind="note", agent="ada", body=body)
    assert [claim.name for claim in claims(item)] == ["a.py", "a.py f"]
    many = " ".join(f"f{n}.py `g{n}()`" for n in range(4_000))
    assert len(claims(Item(id="i", kind="note", agent="ada", body=many))) == MOST_CLAIMS


def test_every_kind_of_secret_has_one_of_the_words_that_are_looked_for_first() -> None:
    for kind, (words, pattern) in masking.MAKERS.items():
        tree = import_module("re._parser").parse(pattern)
        for seed in range(5):
            example_of = texts._Examples(tree, random.Random(seed)).of(list(tree))
            if any(match.lastgroup != "no" for match in re.finditer(pattern, example_of)):
                assert any(word in example_of.casefold() for word in words.split("|")), (kind, example_of)


@pytest.mark.spec("2.7")
@pytest.mark.parametrize(
    ("pattern", "text", "shown"),
    [
        (r"\bAndré\b", "ask André today", "ask [REDACTED] today"),
        (r"token: \w+", "token: pässwörd!", "token: pässwörd!".replace("token: pässwörd", "[REDACTED]")),
        (r"pin \d{4}", "pin \u0664\u0667\u0661\u0661", "[REDACTED]"),
        (r"key\s=\s[^\s;]+", "key\u00a0=\u00a0geheim; rest", "[REDACTED]; rest"),
        (r"secret$", "the secret\n", "the [REDACTED]"),
        (r"end\Z", "the end", "the [REDACTED]"),
        (r"[]x]+", "a]x]b", "a[REDACTED]b"),
        (r"[^\W\d]+-", "abc-1", "[REDACTED]1"),
        (r"\$\d+", "costs $90", "costs [REDACTED]"),
    ],
)
def test_patterns_mean_what_they_mean_in_python(pattern: str, text: str, shown: str) -> None:
    assert Redactor(patterns=[pattern]).text(text) == shown
