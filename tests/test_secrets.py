"""Secrets in text: nearly all are found, and hardly anything else."""

from __future__ import annotations

import json

import pytest

import commonplace
from commonplace.access.masking import find_secrets, masked
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


KEY = """\
-----BEGIN RSA PRIVATE KEY-----
Proc-Type: 4,ENCRYPTED
DEK-Info: AES-128-CBC,0A1B2C3D

MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj
MzEfYyjiWA4R4/M2bS1GB4t7NXp98C3SC6dVMvDuictGeurT8jNbvJZHtCSuYEvu
q9Nb=
-----END RSA PRIVATE KEY-----"""


@pytest.mark.spec("2.7")
def test_a_private_key_is_taken_out_whole() -> None:
    assert masked(f"it is:\n{KEY}\nkeep it") == "it is:\n[REDACTED]\nkeep it"
    assert masked(json.dumps({"key": KEY})) == '{"key": "[REDACTED]"}'
    cut = KEY.replace("Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0A1B2C3D\n\n", "")[:150]
    assert masked(f"{cut}\n… and so on") == "[REDACTED]\n… and so on"
    assert (
        masked("it begins with -----BEGIN PRIVATE KEY----- and a line")
        == "it begins with [REDACTED] and a line"
    )
    assert masked(f"{KEY}ghp_{'a1B2' * 9}") == "[REDACTED][REDACTED]"
    with commonplace.open("memory:") as book:
        kept = book.remember(f"the key of the gateway is {KEY}", override="it shall be tried")
        assert "MIIEvQIB" not in str(book.as_actor("ada").memory.list()) + str(book.memory.list())
        assert kept.redacted


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
