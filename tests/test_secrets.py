"""Secrets in text: nearly all are found, and hardly anything else."""

from __future__ import annotations

import json

import pytest

import commonplace
from commonplace.access.secrets import find_secrets, masked
from tests.secret_shapes import harmless, secrets


@pytest.mark.spec("2.7")
@pytest.mark.parametrize("seed", range(5))
def test_secrets_of_two_hundred_shapes_are_found(seed: int) -> None:
    lines = secrets(seed)
    missed = [line for line in lines if not find_secrets(line)]
    assert len(lines) >= 200
    assert len(missed) <= len(lines) * 0.01, missed


@pytest.mark.spec("2.7")
@pytest.mark.parametrize("seed", range(5))
def test_harmless_lines_raise_no_alarm(seed: int) -> None:
    lines = harmless(seed)
    alarms = [(line, find_secrets(line)) for line in lines if find_secrets(line)]
    assert len(lines) == 1000
    assert len(alarms) <= 10, alarms[:12]


def test_a_secret_is_told_with_its_place_and_kind() -> None:
    text = 'login: ada, password: "hunter2hunter2", key ghp_' + "a1B2" * 9
    found = find_secrets(text)
    assert [(one.kind, text[one.start : one.end]) for one in found] == [
        ("password", "hunter2hunter2"),
        ("github", "ghp_" + "a1B2" * 9),
    ]
    assert find_secrets("") == []


@pytest.mark.spec("2.7")
@pytest.mark.parametrize(
    ("value", "secret"), [("x7!q", True), ("Tree", True), ("window", True), ("tree", False), ("x7", False)]
)
def test_what_is_quoted_is_a_password_if_it_is_long_or_mixed(value: str, secret: bool) -> None:
    text = f'password = "{value}"'
    assert masked(text) == ('password = "[REDACTED]"' if secret else text)


@pytest.mark.spec("2.7")
def test_a_secret_that_can_be_recognised_is_in_no_error_whether_it_was_declared_or_not() -> None:
    key = "ghp_" + "a1B2" * 9
    with commonplace.open("memory:") as book:
        run = book.run(run_id="r")
        run.agent("ada").fail(ValueError(f"401 for {key}, password: hunter2hunter2"))
        run.close("failed", f"401 for {key}")
        shown = json.dumps([event.as_dict() for event in book.events()]) + json.dumps(run.state())
    assert key not in shown
    assert "hunter2" not in shown
    assert "401 for [REDACTED]" in shown
    assert masked("nothing to hide") == "nothing to hide"
