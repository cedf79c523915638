"""Search by meaning, and by all signals together: what was said around it, days, speakers, words that are near."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

import commonplace
from commonplace import Book
from commonplace.index import Doc, Index, Put, Who, static_words
from commonplace.index.hints import ASKS, TELLS_TIME, NamedTime, asks_when, dates, flags, nearness
from commonplace.index.vectors import SCALE, likeness

TALK = (
    ("mira", "s1", 5, "Good to see you! What have you been up to?"),
    ("jon", "s1", 5, "I finally adopted a puppy from the shelter."),
    ("mira", "s1", 5, "How lovely! What is his name?"),
    ("jon", "s1", 5, "Biscuit. He sleeps all day."),
    ("mira", "s2", 20, "My sister got married last weekend."),
    ("jon", "s2", 20, "Congratulations! Where was it?"),
    ("mira", "s2", 20, "In a small chapel by the lake, with forty guests."),
    ("jon", "s3", 40, "The car broke down on the motorway yesterday."),
    ("mira", "s3", 40, "Oh no. Did you get home all right?"),
)
FIRST_DAY = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.fixture
def book(book_url: str) -> Iterator[Book]:
    with commonplace.open(book_url) as opened:
        for n, (actor, session, day, text) in enumerate(TALK):
            when = FIRST_DAY + timedelta(days=day, minutes=n)
            opened.record(
                "agent.spoke", actor=actor, session_id=session, occurred_at=when, payload={"text": text}
            )
        yield opened


def best(book: Book, query: str, **how: object) -> str:
    return book.search(query, **how).results[0].content  # type: ignore[arg-type]


@pytest.mark.spec("4.2")
def test_a_question_is_answered_by_what_follows_it(book: Book) -> None:
    found = [one.content for one in book.search("What is the name of Jon's dog?", max_results=2).results]
    assert "Biscuit. He sleeps all day." in found  # it has none of the words
    found = [one.content for one in book.search("where was the wedding of the sister", max_results=3).results]
    assert TALK[6][3] in found


@pytest.mark.spec("4.2")
def test_meaning_is_found_without_the_word(book: Book) -> None:
    assert best(book, "automobile trouble on the highway", mode="semantic") == TALK[7][3]
    assert book.search("automobile", mode="keyword", tiers=["episodic"]).results == ()
    assert best(book, "automobile trouble on the highway") == TALK[7][3]


@pytest.mark.spec("4.2")
def test_days_and_speakers_that_are_named_count(book: Book) -> None:
    first = book.search("what happened on 21 May 2026?").results[0]
    assert first.timestamp.date().isoformat() == "2026-05-21"
    assert {one.author for one in book.search("what did mira say about it", max_results=3).results} == {
        "mira"
    }


@pytest.mark.spec("4.11")
def test_every_signal_says_what_it_gave(book: Book) -> None:
    (first,) = book.search("When did the car break down?", max_results=1, explain=True).results
    for signal in ("its meaning", "its words", "when it was said", "words like those asked for"):
        assert f"{signal} gave" in first.why
    assert "'car' matched 'car'" in first.why


@pytest.mark.spec("L6", "4.2")
def test_the_same_answer_comes_from_every_engine_and_from_a_new_index(book: Book) -> None:
    queries = ["what is the name of the dog", "wedding", "21 May", "car trouble"]

    def answers(of: Book) -> list[list[tuple[str, float]]]:
        return [[(one.content, one.score) for one in of.search(query).results] for query in queries]

    before = answers(book)
    with commonplace.open("memory:") as other:
        for n, (actor, session, day, text) in enumerate(TALK):
            when = FIRST_DAY + timedelta(days=day, minutes=n)
            other.record(
                "agent.spoke", actor=actor, session_id=session, occurred_at=when, payload={"text": text}
            )
        assert answers(other) == before
        other._session.services.index.throw_away()
        assert answers(other) == before


@pytest.mark.spec("4.3", "L7")
def test_what_is_hidden_shapes_no_score_of_its_neighbours() -> None:
    public = Who("ada", "agent.spoke", False, "public", "episodic")
    hidden = Who("bob", "agent.thought", False, "private", "episodic")

    def index(with_hidden: bool) -> Index:
        made = Index.open(None, static_words())
        said = [
            (public, "the ferry leaves at nine"),
            (public, "bring the tickets"),
            (public, "see you at the pier"),
        ]
        between = [(hidden, "the ferry captain frightens me")] if with_hidden else []
        docs = [said[0], *between, *said[1:]]
        texts = {text: n for n, (_, text) in enumerate(docs)}
        puts = [Put(Doc(text, text, who, "episodic", "x", 0, "r", "r")) for who, text in docs]
        made.apply(0, len(puts), [(n + 1, one) for n, one in enumerate(puts)])
        assert len(texts) == len(docs)
        return made

    answers = []
    for with_hidden in (True, False):
        found = index(with_hidden).search(
            "captain of the ferry", allowed=lambda who: who == public, how="hybrid"
        )
        answers.append([(hit.id, hit.score, hit.signals) for hit in found.hits])
    assert answers[0] == answers[1]
    assert answers[0]


@pytest.mark.spec("4.1", "4.2")
def test_without_vectors_words_and_what_was_said_around_them_still_count(book: Book) -> None:
    book.access.grant("ada", tiers={"semantic": "none"})
    ada = book.as_actor("ada")
    answer = ada.search("puppy from the shelter", explain=True)
    assert answer.results[0].content == TALK[1][3]
    assert "its meaning gave" not in answer.results[0].why
    assert ("semantic", "you may not read it") in [(one.what, one.why) for one in answer.left_out]
    assert ada.search("puppy", mode="semantic").results == ()
    assert not any("broke down" in one.content for one in ada.search("automobile trouble").results)


@pytest.mark.spec("L10")
def test_an_erased_text_takes_its_vector_and_its_words_along(book: Book) -> None:
    said = next(event for event in book.events() if "puppy" in event.payload["text"])
    assert book.search("puppy").results[0].id == said.id
    book.erase(said.id)
    assert said.id not in [one.id for one in book.search("adopted a puppy", mode="semantic").results]
    file = book._session.services.index.catch_up()._file
    with file.using():
        assert file.rows("SELECT count(*) FROM vectors") == [(len(TALK) - 1,)]
        assert file.rows("SELECT count(*) FROM word_vectors WHERE num NOT IN (SELECT num FROM words)") == [
            (0,)
        ]
        assert file.rows("SELECT word FROM words WHERE word = 'puppy'") == []


@pytest.mark.spec("L10", "4.2")
def test_when_all_is_erased_nothing_is_found_and_what_comes_after_is() -> None:
    with commonplace.open("memory:") as book:
        for _ in range(2):
            said = book.record("agent.spoke", actor="mira", payload={"text": "the ferry leaves at nine"})
            for mode in ("hybrid", "semantic"):
                assert [one.id for one in book.search("ferry at nine", mode=mode).results] == [said.id]
            book.erase(said.id)
            for mode in ("hybrid", "semantic"):
                assert book.search("ferry at nine", mode=mode).total == 0


def test_vectors_are_whole_numbers_and_alike_texts_are_near() -> None:
    made = static_words().embed(
        ["the car broke down", "my automobile stopped working", "fresh bread and butter", ""]
    )
    assert made.dtype == np.int8
    alike = likeness(made, made[:1])[0]
    assert alike[0] == pytest.approx(SCALE**2, rel=0.02)
    assert alike[0] > alike[1] > alike[2]
    assert alike[3] == 0
    assert (alike == np.rint(alike)).all()


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("on 8 May 2023", [NamedTime(2023, 5, 8)]),
        ("on May 8th, 2023", [NamedTime(2023, 5, 8)]),
        ("in July", [NamedTime(0, 7, 0)]),
        ("since 2022", [NamedTime(2022, 0, 0)]),
        ("2023-06-01?", [NamedTime(2023, 6, 1)]),
        ("may I ask", []),
        ("in May", [NamedTime(0, 5, 0)]),
        ("on 2023-99-01", []),
    ],
)
def test_dates_in_a_question(query: str, named: list[NamedTime]) -> None:
    assert dates(query) == named


def test_hints() -> None:
    assert asks_when("How long did it take?")
    assert not asks_when("Who was it?")
    assert flags("Did you see her?") == ASKS
    assert flags("I saw her yesterday.") == TELLS_TIME
    day = 24 * 3600 * 1_000_000
    times = np.array([n * day for n in (0, 1, 5, 40, 400)])
    assert nearness([NamedTime(1970, 1, 1)], times).tolist() == [1.0, 0.8, 0.5, 0.0, 0.0]
    assert nearness([NamedTime(0, 2, 30)], times).tolist() == [0.0] * 5
    assert nearness([NamedTime(1971, 0, 0)], times).tolist() == [0.0, 0.0, 0.0, 0.0, 0.5]
