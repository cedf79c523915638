"""The laws, as properties of any history that a team of agents may produce."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import commonplace
from commonplace import Book
from tests.test_views import stored_rows
from tests.toy import TOY, Put

Step = tuple[str, Any]

steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"),
            st.tuples(st.sampled_from(["tea", "jam", "t"]), st.integers(-3, 5), st.text(max_size=3)),
        ),
        st.tuples(st.just("say"), st.tuples(st.sampled_from(["ada", "bob"]), st.text(max_size=5))),
        st.tuples(st.just("quote"), st.integers(0, 40)),
        st.tuples(st.just("erase"), st.integers(0, 40)),
        st.tuples(st.just("again"), st.integers(0, 40)),
        st.tuples(st.just("follow"), st.none()),
    ),
    max_size=30,
)


def play(book: Book, history: list[Step]) -> None:
    """Do what the steps say; what is refused is refused."""
    for kind, about in history:
        events = [event for event in book.events() if event.kind != "event.erased"]
        chosen = events[about % len(events)] if isinstance(about, int) and events else None
        try:
            if kind == "put":
                book.ledger.submit("put", Put(about[0], about[1], note=about[2]))
            elif kind == "say":
                book.record("agent.spoke", actor=about[0], payload={"text": about[1]}, run_id=about[0])
            elif kind == "quote" and chosen is not None:
                book.record("agent.spoke", payload={"text": "quoted"}, parents=[chosen.id])
            elif kind == "erase" and chosen is not None:
                book.erase(chosen.id)
            elif kind == "follow":
                book.ledger.follow("totals")
            elif kind == "again" and chosen is not None and chosen.kind == "agent.spoke":
                fields = {
                    name: getattr(chosen, name) for name in ("actor", "payload", "run_id", "parents", "id")
                }
                before = book.head
                assert book.record("agent.spoke", **fields) == chosen
                assert book.head == before
        except (commonplace.Conflict, commonplace.BadInput, commonplace.Erased):
            continue


def open_on(engine: str, folder: str) -> Book:
    urls = {"memory": "memory:", "sqlite": f"{folder}/b.db", "files": f"file:{folder}/b"}
    return commonplace.open(urls[engine], capabilities=[TOY])


@pytest.mark.spec("L1", "L10")
@pytest.mark.parametrize("engine", ["memory", "sqlite", "files"])
@settings(max_examples=25, deadline=None)
@given(history=steps)
def test_views_rebuilt_from_the_ledger_are_the_same_bytes(engine: str, history: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder, open_on(engine, folder) as book:
        play(book, history)
        book.ledger.follow("totals")
        before = stored_rows(book)
        book.ledger.store.drop_spaces("")
        book.rebuild()
        assert stored_rows(book) == before
        assert book.verify().ok


@pytest.mark.spec("L3", "1.3")
@settings(max_examples=25, deadline=None)
@given(history=steps)
def test_positions_have_no_gaps_and_time_never_runs_back(history: list[Step]) -> None:
    with open_on("memory", "") as book:
        play(book, history)
        events = list(book.events())
        assert [event.position for event in events] == list(range(1, len(events) + 1))
        assert [event.created_us for event in events] == sorted(event.created_us for event in events)


@pytest.mark.spec("L6", "1.4")
@settings(max_examples=20, deadline=None)
@given(history=steps)
def test_the_same_ledger_gives_the_same_bytes_on_any_engine(history: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder, open_on("memory", "") as book:
        play(book, history)
        for engine in ("sqlite", "files"):
            with open_on(engine, folder) as copy:
                assert book.admin.copy(copy).exact
                inline = {name: rows for name, rows in stored_rows(book).items() if name != "totals"}
                assert {name: rows for name, rows in stored_rows(copy).items() if name != "totals"} == inline
                assert copy.verify() == book.verify()


@pytest.mark.spec("L7")
@settings(max_examples=20, deadline=None)
@given(history=steps)
def test_as_of_then_is_what_a_book_that_ended_there_would_say(history: list[Step]) -> None:
    """Apart from what was erased since, which is shown at no time."""
    kept = [step for step in history if step[0] != "erase"]
    with tempfile.TemporaryDirectory() as folder, open_on("memory", "") as book:
        play(book, kept)
        for position in range(0, book.head + 1, 3):
            book.admin.export(Path(folder) / "prefix.jsonl", at=position)
            with open_on("memory", "") as prefix:
                prefix.admin.import_(Path(folder) / "prefix.jsonl")
                assert list(prefix.events()) == list(book.events(at=position))
                for view in ("jars", "diary", "runs", "children"):
                    with prefix.ledger.snapshot() as now, book.ledger.snapshot(at=position) as then:
                        assert then.scan(view) == now.scan(view)


@pytest.mark.spec("L10")
@settings(max_examples=25, deadline=None)
@given(history=steps, secret=st.text("0123456789abcdef", min_size=12, max_size=12))
def test_an_erased_secret_is_nowhere(history: list[Step], secret: str) -> None:
    with open_on("memory", "") as book:
        book.ledger.submit("put", Put("tea", 1, note=secret, id="in a jar"))
        book.record(
            "agent.spoke", id="said", payload={"text": secret, "b": commonplace.Blob(secret.encode())}
        )
        play(book, history)
        book.record("agent.spoke", payload={"text": f"she said {secret}"}, parents=["said"])
        book.ledger.follow("totals")
        book.erase(["in a jar", "said"])
        shown = str([event.as_dict() for event in book.events()]) + str(stored_rows(book))
        assert secret not in shown
        assert book.ledger.store.data.blobs == {}  # type: ignore[attr-defined]
        assert book.verify().ok


@pytest.mark.spec("L11")
def test_everything_works_with_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the library reached for the network")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    for url in ("memory:", str(tmp_path / "b.db"), f"file:{tmp_path / 'b'}"):
        with commonplace.open(url, capabilities=[TOY]) as book:
            play(book, [("say", ("ada", "hi")), ("put", ("tea", 2, "n")), ("quote", 0), ("erase", 0)])
            book.admin.export(tmp_path / "x.jsonl")
            assert book.verify().ok
            book.purge()
            book.rebuild()
