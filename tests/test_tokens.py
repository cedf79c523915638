"""Tokens: network clients act as one actor, in a scope, for some verbs, until a time."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import commonplace
from commonplace import BadInput, Book, Denied, NotFound, Unauthorized
from tests.shells import Cli

UNKNOWN = "0123456789"


@pytest.mark.spec("7.4")
def test_a_client_acts_as_the_actor_of_its_token(book: Book) -> None:
    made = book.access.tokens.create(
        "ada", scope="users/ada", reads=["shared", "/"], verbs=["memory.*", "search"], label="laptop"
    )
    assert made.secret.startswith(f"cpl_{made.id}_")
    assert made.secret not in repr(made) + str(made)

    grant = book.access.tokens.authenticate(made.secret)
    assert (grant.id, grant.actor, grant.scope, grant.reads) == (made.id, "ada", "users/ada", ("shared", "/"))
    assert grant.allows("memory.list")
    assert grant.allows("search")
    assert not grant.allows("memory")
    assert not grant.allows("searching")
    assert not grant.allows("memoryx.list")
    assert not grant.allows("access.grant")

    [info] = book.access.tokens.list()
    assert (info.id, info.actor, info.scope, info.label) == (made.id, "ada", "users/ada", "laptop")
    assert info.expires == made.expires
    assert timedelta(days=89) < info.expires - info.created <= timedelta(days=90, minutes=1)
    assert book.access.tokens.list(at=0) == []


@pytest.mark.spec("7.4")
def test_a_token_ends_when_it_expires_or_is_revoked(book: Book) -> None:
    made = book.access.tokens.create("ada", expires_in=60)
    authenticate = book.access.tokens.authenticate
    assert authenticate(made.secret, made.expires - timedelta(microseconds=1)).allows("anything")
    with pytest.raises(Unauthorized, match="expired"):
        authenticate(made.secret, made.expires)

    position = book.head
    book.access.tokens.revoke(made.id)
    with pytest.raises(Unauthorized, match="revoked"):
        authenticate(made.secret)
    head = book.head
    book.access.tokens.revoke(made.id)
    assert book.head == head  # again changes nothing
    assert book.access.tokens.list()[0].revoked is not None
    assert book.access.tokens.list(at=position)[0].revoked is None
    with pytest.raises(NotFound):
        book.access.tokens.revoke(UNKNOWN)


@pytest.mark.spec("7.4")
def test_nothing_tells_a_wrong_secret_from_an_unknown_token(book: Book) -> None:
    made, other = book.access.tokens.create("ada"), book.access.tokens.create("ben")
    book.access.tokens.revoke(other.id)
    with commonplace.open("memory:") as elsewhere:
        foreign = elsewhere.access.tokens.create("ada").secret
    wrong = [
        "", "x", made.id, foreign, f"cpl_{UNKNOWN}_{'A' * 43}", f"cpl_{made.id}_{'A' * 43}", made.secret + "\n",
        made.secret.upper(), f"cpl_{other.id}_{made.secret[-43:]}", made.secret[:-1], f"cpl_{made.id}_" + "\ud800" * 43,
    ]  # fmt: skip
    said = set()
    for text in wrong:
        with pytest.raises(Unauthorized) as refused:
            book.access.tokens.authenticate(text)
        said.add(str(refused.value))
        assert (refused.value.status, refused.value.code) == (401, "unauthorized")
    assert len(said) == 1


@pytest.mark.spec("7.4", "L10")
def test_the_secret_is_nowhere_but_with_its_client(tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "team.db") as book:
        made = book.access.tokens.create("ada")
        secret = made.secret.removeprefix(f"cpl_{made.id}_")
        book.admin.export(tmp_path / "out.jsonl")
        assert secret not in (tmp_path / "out.jsonl").read_text()
        assert book.admin.find_text([secret]) == []
        told = repr([*book.events(), *book.access.audit(), *book.access.tokens.list()])
        assert secret not in told
        [entry] = [entry for entry in book.access.audit() if entry.event_type == "access.token.created"]
        assert entry.details["token"] == made.id
        assert "hash" not in entry.details


@pytest.mark.spec("7.4")
def test_only_the_owner_of_the_whole_book_has_to_do_with_tokens(book: Book) -> None:
    made = book.access.tokens.create("ada")
    ada = book.as_actor("ada")
    book.access.grant("ada", acts=["grant"])
    for refused in (
        lambda: ada.access.tokens.create("ben"),
        lambda: ada.access.tokens.list(),
        lambda: ada.access.tokens.revoke(made.id),
        lambda: book.as_actor("ada", scope="users/ada").access.tokens.create("ada"),
    ):
        before = len(list(book.events(kinds=["access.denied"])))
        with pytest.raises(Denied):
            refused()
        assert len(list(book.events(kinds=["access.denied"]))) == before + 1
    assert len(book.access.tokens.list()) == 1


@pytest.mark.spec("7.4")
def test_an_erased_token_is_no_longer_valid_and_a_revoked_one_does_not_come_back(book: Book) -> None:
    gone, ended = book.access.tokens.create("ada"), book.access.tokens.create("ben", scope="users/ben")
    scoped = book.access.tokens.create("cleo", scope="users/cleo")
    book.access.tokens.revoke(ended.id)
    first = next(iter(book.events(kinds=["access.token.created"])))
    revoked = next(iter(book.events(kinds=["access.token.revoked"])))
    named = [e for e in book.events(kinds=["scope.named"]) if e.payload["path"] == ["users", "cleo"]]
    book.admin.erase([first.id, revoked.id, named[0].id], reason="asked to")
    for token in (gone, ended, scoped):
        with pytest.raises(Unauthorized):
            book.access.tokens.authenticate(token.secret)
    assert [info.id for info in book.access.tokens.list()] == [ended.id, scoped.id]


@pytest.mark.spec("L1")
def test_tokens_are_the_same_after_a_rebuild(book: Book) -> None:
    made = book.access.tokens.create("Zoë / née \"x\" 'y'", scope="users/zoë")
    book.access.tokens.revoke(book.access.tokens.create("ben").id)
    before = book.access.tokens.list()
    book.admin.rebuild()
    assert book.access.tokens.list() == before
    assert book.access.tokens.authenticate(made.secret).actor == "Zoë / née \"x\" 'y'"


@pytest.mark.spec("7.4")
@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"actor": "role:qa"}, "subject"),
        ({"scope": "/"}, "root"),
        ({"verbs": ["memory.lst"]}, "memory.list"),
        ({"verbs": ["work.*x"]}, "no verb"),
        ({"verbs": []}, "empty"),
        ({"expires_in": 0}, "lifetime"),
        ({"expires_in": float("nan")}, "lifetime"),
        ({"expires_in": "soon"}, "seconds"),
        ({"expires_in": timedelta(days=100_000)}, "lifetime"),
    ],
)
def test_what_cannot_be_a_token_is_refused(wrong: dict[str, object], why: str) -> None:
    with commonplace.open("memory:") as book:
        with pytest.raises(BadInput, match=why):
            book.access.tokens.create(**{"actor": "ada", **wrong})  # type: ignore[arg-type]
        assert book.access.tokens.list() == []


@pytest.mark.spec("7.4", "L10")
@given(place=st.integers(0, 56), char=st.characters(codec="utf-8"))
def test_a_tampered_token_is_never_valid(place: int, char: str) -> None:
    with commonplace.open("memory:") as book:
        text = book.access.tokens.create("ada").secret
        tampered = text[:place] + char + text[place + 1 :]
        if tampered != text:
            with pytest.raises(Unauthorized):
                book.access.tokens.authenticate(tampered, datetime.now(UTC))


@pytest.mark.spec("7.4", "7.2")
def test_tokens_on_the_command_line(cli: Cli) -> None:
    cli("init")
    assert "create-token" in cli("access", "tokens").out
    made = cli(
        "access", "create-token", "ada", "--scope", "users/ada", "--verb", "memory.*", "--label", "laptop"
    )
    (text,) = made.out.splitlines()  # the token alone, as a file should have it
    assert "cannot be shown again" in made.err
    data = json.loads(cli("access", "create-token", "ben", "--expires-in", "1h", "--json").out)
    assert data["secret"].startswith(f"cpl_{data['id']}_")
    listed = cli("access", "tokens").out
    assert "users/ada" in listed
    assert text.rpartition("_")[2] not in listed
    assert cli("access", "revoke-token", data["id"]).code == 0
    assert [token["revoked"] is None for token in json.loads(cli("access", "tokens", "--json").out)] == [
        True,
        False,
    ]
    assert f"created the token {data['id']} for ben" in cli("log").out
    assert cli("access", "tokens", "--as", "ada").code == 1
    assert "memory.list" in cli("access", "create-token", "ada", "--verb", "memory.lst").err
