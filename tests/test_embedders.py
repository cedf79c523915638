"""Embedders by configuration: what each makes, what is missing is said, and a change of it builds the index anew."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest

import commonplace
from commonplace import BadInput, Denied, NotEnabled
from commonplace.index import Doc, Erase, Index, Put, Who, embedder_of, static_words
from commonplace.index import embedders as module
from commonplace.index.fusion import Word, weights_of
from commonplace.index.minilm import MiniLM
from commonplace.index.score import UNIT
from commonplace.index.vectors import SCALE, TokenEmbedder, rounded

TEXTS = (
    "The ferry to the island leaves at nine.",
    "My sister got married in a small chapel by the lake.",
    "The car broke down on the motorway yesterday.",
    "We deploy on Tuesdays after the tests are green.",
)


class Server(ThreadingHTTPServer):
    """An endpoint whose vectors count letters."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.status = 200
        self.answer: bytes | None = None
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []

    @property
    def setting(self) -> str:
        return f"openai:letters@http://127.0.0.1:{self.server_port}/v1"


class _Answer(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body)
        self.server.keys.append(self.headers["Authorization"])
        letters = [[one.lower().count(chr(97 + n)) for n in range(26)] for one in body["input"]]
        data = [{"index": n, "embedding": one} for n, one in reversed(list(enumerate(letters)))]
        found = json.dumps({"data": data}).encode() if self.server.answer is None else self.server.answer
        self.send_response(self.server.status)
        self.send_header("Location", "http://127.0.0.1:9/elsewhere")
        self.send_header("Content-Length", str(len(found)))
        self.end_headers()
        self.wfile.write(found)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        thread = Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def minilm() -> MiniLM:
    made = embedder_of("minilm")
    assert isinstance(made, MiniLM)
    return made


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    return float(one.astype(int) @ other.astype(int)) / SCALE**2


def test_minilm_tells_what_texts_are_about(minilm: MiniLM) -> None:
    about = minilm.embed(
        ["A man is eating food.", "A man is eating a piece of bread.", "The girl carries a baby."]
    )
    assert about.shape == (3, 384)
    assert about.dtype == np.int8
    assert cosine(about[0], about[1]) == pytest.approx(0.755, abs=0.01)  # as its makers have it
    assert abs(cosine(about[0], about[2])) < 0.2


def test_minilm_gives_vectors_of_wordpieces_with_the_words_they_belong_to(minilm: MiniLM) -> None:
    assert isinstance(minilm, TokenEmbedder)
    text = "Reykjavík’s unferried?"
    (_,), (found,) = minilm.embed_tokens([text])
    assert found.vectors.shape == (len(found.words), 96)
    assert {text[start:end] for start, end in found.words} == {"", "Reykjavík", "’", "s", "unferried", "?"}
    assert (
        len([one for one in found.words if text[slice(*one)] == "unferried"]) > 1
    )  # several pieces, one word
    ferry, car = minilm.embed_tokens(["the ferry to the island", "the car on the road"])[1]
    near = [(found.vectors.astype(int) @ one.vectors.astype(int).T).max() for one in (ferry, car)]
    assert near[0] > near[1]


def test_what_stands_beside_a_text_never_shows_in_its_vectors(minilm: MiniLM) -> None:
    together, parts = minilm.embed_tokens(TEXTS)
    for at, text in enumerate(TEXTS):
        (alone,), (part,) = minilm.embed_tokens([text])
        assert (alone == together[at]).all()
        assert (part.vectors == parts[at].vectors).all()


def test_any_text_has_vectors(minilm: MiniLM) -> None:
    odd = ["", "\ud800 broken", "🦜" * 500, "word " * 5_000, "\0"]
    about, parts = minilm.embed_tokens(odd)
    assert about.shape == (5, 384)
    assert 256 < max(len(one.words) for one in parts) < 1_300, (
        "a long text is read piece by piece, up to a length"
    )


def test_vectors_of_any_length_become_whole_numbers() -> None:
    for vector in ([3.0, 4.0], [1e-30, 0.0, 2e-30], [1e30] * 5, [0.0, 0.0]):
        (made,) = rounded(np.array([vector]))
        assert made.dtype == np.int8
        assert made.any() == any(vector)
    assert not rounded(np.array([[np.nan, np.inf]])).any()


class Model:
    """What fastembed and sentence-transformers offer, as far as it is used."""

    made: ClassVar[list[str]] = []

    def __init__(self, name: str, **_: Any) -> None:
        if name == "missing/model":
            raise ValueError("no such model")
        self.made.append(name)

    def _numbers(self, texts: Sequence[str], first: int) -> list[np.ndarray]:
        if "break" in texts:
            raise RuntimeError("it broke")
        return [np.array([first, len(one), 1], np.float32) for one in texts]

    def passage_embed(self, texts: Sequence[str]) -> Iterator[np.ndarray]:
        yield from self._numbers(texts, 0)

    def query_embed(self, texts: Sequence[str]) -> Iterator[np.ndarray]:
        yield from self._numbers(texts, 9)

    def encode_document(self, texts: Sequence[str], show_progress_bar: bool) -> np.ndarray:
        return np.array(self._numbers(texts, 0))

    def encode_query(self, texts: Sequence[str], show_progress_bar: bool) -> np.ndarray:
        return np.array(self._numbers(texts, 9))


@pytest.mark.parametrize(
    ("kind", "package", "name"),
    [
        ("fastembed", "fastembed", "TextEmbedding"),
        ("sentence-transformers", "sentence_transformers", "SentenceTransformer"),
    ],
)
def test_a_library_makes_other_vectors_of_questions(
    kind: str, package: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = ModuleType(package)
    setattr(fake, name, Model)
    monkeypatch.setitem(sys.modules, package, fake)
    monkeypatch.setattr(module, "version", lambda _: "1.0")
    embedder = embedder_of.__wrapped__(f"{kind}:some/model")
    assert embedder.name == f"{kind} 1.0 some/model"
    assert not isinstance(embedder, TokenEmbedder)
    documents, questions = embedder.embed(["a", "bcd"]), embedder.embed(["a", "bcd"], asking=True)
    assert documents.shape == questions.shape == (2, 3)
    assert (documents[:, 0] == 0).all()
    assert (questions[:, 0] > 0).all()
    with pytest.raises(NotEnabled, match="it broke"):
        embedder.embed(["break"])
    with pytest.raises(NotEnabled, match="missing/model"):
        embedder_of.__wrapped__(f"{kind}:missing/model")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(NotEnabled, match=f"pip install {kind}"):
        embedder_of.__wrapped__(f"{kind}:some/model")


def test_an_endpoint_is_asked_in_batches_and_with_its_key(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder = embedder_of(server.setting)
    assert embedder.name == f"openai letters at {server.setting.partition('@')[2]}"
    made = embedder.embed(["abcdefgha", "", *["x"] * 100])
    assert made.shape == (102, 26)
    assert made[0, 0] > made[0, 1] > made[0, 25] == 0  # each text has its own, in whatever order they came
    assert [len(body["input"]) for body in server.asked] == [64, 38]
    assert {body["model"] for body in server.asked} == {"letters"}
    assert all(text for body in server.asked for text in body["input"])
    assert server.keys == [None, None]
    monkeypatch.setenv("COMMONPLACE_EMBEDDER_KEY", "k1")
    embedder.embed(["a"], asking=True)
    assert server.keys[-1] == "Bearer k1"


def test_what_an_endpoint_gets_wrong_is_told_with_what_to_do(server: Server) -> None:
    embedder = embedder_of(server.setting)
    for status, told in ((401, "COMMONPLACE_EMBEDDER_KEY"), (500, "try again"), (302, "answered 302")):
        server.status = status
        with pytest.raises(NotEnabled, match=told):
            embedder.embed(["a"])
    server.status = 200
    for answer in (
        b"<html>",
        b"{}",
        b'{"data": []}',
        b'{"data": [{"index": 0, "embedding": ["x"]}]}',
        b"[1]",
    ):
        server.answer = answer
        with pytest.raises(NotEnabled, match="something else than embeddings"):
            embedder.embed(["a"])
    assert len(server.asked) == 8  # nobody was asked elsewhere, and nothing twice
    with pytest.raises(NotEnabled, match="cannot be reached"):
        embedder_of("openai:m@http://127.0.0.1:9/v1").embed(["a"])


@pytest.mark.parametrize(
    "wrong",
    ["", "nope", "static ", "fastembed:", "openai:model", "openai:m@ftp://x", "openai:m@http://u:p@x"],
)
def test_an_embedder_that_there_is_not_is_refused(wrong: str) -> None:
    with commonplace.open("memory:") as book:
        with pytest.raises(BadInput, match="sentence-transformers:MODEL"):
            book.memory.configure(embedder=wrong)
        assert book.memory.settings().embedder == "static"


def test_only_the_owner_chooses_who_is_given_all_texts(server: Server) -> None:
    with commonplace.open("memory:") as book:
        lee = book.as_actor("lee", role="librarian")
        lee.memory.configure(retention_days=9)
        with pytest.raises(Denied, match="everybody's texts"):
            lee.memory.configure(embedder=server.setting)
        assert book.memory.settings().embedder == "static"


def test_another_embedder_builds_the_index_anew_in_every_process(server: Server, tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "book.db") as book, commonplace.open(tmp_path / "book.db") as other:
        for text in TEXTS:
            book.record("agent.spoke", actor="ada", payload={"text": text})
        (before,) = other.search("ferry", mode="semantic", max_results=1).results
        assert before.content == TEXTS[0]
        book.memory.configure(embedder=server.setting)
        for one in (other, book):
            (found,) = one.search("yesterday motorway", mode="semantic", max_results=1).results
            assert found.content == TEXTS[2]
        texts = [text for body in server.asked for text in body["input"]]
        assert all(sum(text in sent for sent in texts) == 1 for text in TEXTS)  # each was embedded once


@pytest.mark.spec("4.13")
def test_a_prompt_without_a_task_does_not_build_the_index_again(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with commonplace.open(tmp_path / "team.db") as book:
        book.memory.configure(embedder=server.setting)
        book.remember("The ferry leaves at nine", shared=True)
        book.search("ferry")
    with commonplace.open(tmp_path / "team.db") as book:
        book.prompt("")
        book.search("ferry")
    assert "memory.index.rebuilt" not in caplog.text


@pytest.mark.spec("3.7", "L11")
def test_a_book_from_somebody_else_sends_no_text_anywhere(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cloned book may name any endpoint and any model: until its user trusts it, it is searched without them."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "theirs"))
    with commonplace.open(tmp_path / "book.db") as book:
        book.remember("The ferry leaves at nine")
        book.memory.configure(embedder=server.setting)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mine"))
    with commonplace.open(tmp_path / "book.db") as book:
        answer = book.search("ferry")
        assert [one.content for one in answer.results] == ["The ferry leaves at nine"]
        assert "trust=True" in str(answer.left_out)
        assert server.asked == []
    with commonplace.open(tmp_path / "book.db", trust=True) as book:
        book.search("ferry")
        assert server.asked
    with commonplace.open(tmp_path / "book.db") as book:  # it was said once
        assert "trust" not in str(book.search("ferry").left_out)


def test_an_endpoint_that_is_down_costs_the_vectors_and_not_the_search(
    server: Server, tmp_path: Path
) -> None:
    with commonplace.open(tmp_path / "book.db") as book:
        book.memory.configure(embedder=server.setting)
        for text in TEXTS:
            book.record("agent.spoke", actor="ada", payload={"text": text})
        assert book.search("ferry").left_out == ()
        server.status = 500
        answer = book.search("ferry")
        assert answer.results[0].content == TEXTS[0]
        assert "answered 500" in next(one.why for one in answer.left_out if one.what == "semantic")
    server.status, asked = 200, len(server.asked)
    with commonplace.open(tmp_path / "book.db") as book:
        assert book.search("ferry").left_out == ()
    assert len(server.asked) == asked + 1  # the question alone: what was embedded is still there


def test_what_was_erased_while_the_embedder_is_missing_is_not_left_in_the_file(
    server: Server, tmp_path: Path
) -> None:
    with commonplace.open(tmp_path / "book.db") as book:
        book.memory.configure(embedder=server.setting)
        event = book.record("agent.spoke", actor="ada", payload={"text": "a very telling secret text"})
        book.search("telling")
        server.status = 500
        book.record("agent.spoke", actor="ada", payload={"text": "what the index cannot take in now"})
        book.erase([event.id], reason="asked for")
        book.purge()
        assert book.admin.find_text("a very telling secret text") == []


def puts(texts: Sequence[tuple[str, str]], hidden: str = "") -> list[tuple[int, Put]]:
    """Documents of these speakers in one conversation; what one of them says is hidden."""
    made = []
    for n, (speaker, text) in enumerate(texts):
        level = "private" if speaker == hidden else "public"
        who = Who(speaker, "agent.spoke", False, level, "episodic")
        made.append((n + 1, Put(Doc(f"d{n}", text, who, "episodic", "x", 0, "", "s1"))))
    return made


TALK = (
    ("mira", "What does the vet say about the puppy?"),
    ("jon", "He has to rest for a week."),
    ("mira", "My sister got married by the lake."),
    ("jon", "The car broke down on the motorway."),
)


def kept(minilm: MiniLM, said: Sequence[tuple[str, str]], hidden: str = "") -> Index:
    index = Index.open(None, minilm, static_words())
    index.apply(0, len(said), puts(said, hidden))
    return index


def everything(_: Who) -> bool:
    return True


def test_vectors_of_wordpieces_are_kept_and_erased_with_their_document(
    minilm: MiniLM, tmp_path: Path
) -> None:
    index = Index.open(tmp_path / "i.db", minilm, static_words())
    index.apply(0, 4, puts(TALK))
    rows = "SELECT num, length(vectors) FROM tokens"
    found = dict(index._file.connection.execute(rows))
    assert {size % 96 for size in found.values()} == {0}
    assert min(found.values()) > 5 * 96
    index.apply(4, 5, [(5, Erase(("d1",)))])
    assert dict(index._file.connection.execute(rows)) == {
        num: size for num, size in found.items() if num != 1
    }
    assert "d1" not in [hit.id for hit in index.search("rest", allowed=everything, how="hybrid").hits]


@pytest.mark.spec("4.2", "4.11")
def test_parts_are_matched_with_those_of_what_was_said_before(minilm: MiniLM) -> None:
    found = kept(minilm, TALK).search("How long must the dog take it easy?", allowed=everything, how="hybrid")
    assert found.hits[0].id == "d1"  # it has no word of the question, but follows one about a puppy
    gave = {hit.id: dict(hit.signals) for hit in found.hits}
    assert gave["d0"]["parts"] > gave["d3"]["parts"]
    with_before = {id: of["parts"] + of["parts_pc"] for id, of in gave.items()}
    assert with_before["d1"] > with_before["d3"]


@pytest.mark.spec("4.3", "L7")
def test_what_is_hidden_shapes_no_match_of_its_neighbours(minilm: MiniLM) -> None:
    between = (TALK[0], ("bob", "The puppy frightens me, and the vet, too."), *TALK[1:])

    def answers(index: Index) -> list[tuple[str, float, object]]:
        found = index.search(
            "vet and puppy", allowed=lambda who: who.sensitivity == "public", how="hybrid", limit=9
        )
        return [(hit.text, hit.score, hit.signals) for hit in found.hits]

    assert answers(kept(minilm, between, hidden="bob")) == answers(kept(minilm, TALK))


@pytest.mark.spec("L6")
def test_the_same_answers_come_from_a_new_index_and_page_by_page(minilm: MiniLM) -> None:
    whole, bit_by_bit = kept(minilm, TALK), Index.open(None, minilm, static_words())
    for at, put in puts(TALK):
        assert bit_by_bit.apply(at - 1, at, [(at, put)])
    for query in ("vet", "where did mira's sister marry?", "?!", "", "automobile trouble"):
        one, other = (index.search(query, allowed=everything, how="hybrid") for index in (whole, bit_by_bit))
        assert one.hits == other.hits


def test_a_book_finds_with_minilm_and_says_what_its_parts_gave(book_url: str) -> None:
    with commonplace.open(book_url) as book:
        book.memory.configure(embedder="minilm")
        for text in TEXTS:
            book.remember(text)
        (first,) = book.search("How do I get to the isle by boat?", max_results=1, explain=True).results
        assert first.content == TEXTS[0]
        assert "the meaning of its parts gave" in first.why
        assert book.search("wedding", mode="semantic", max_results=1).results[0].content == TEXTS[1]


@pytest.mark.spec("4.3")
def test_parts_of_a_query_weigh_as_much_as_their_words_tell(minilm: MiniLM) -> None:
    query = "What is wrong with Jon’s dog?"
    ((_,), (tokens,)) = minilm.embed_tokens([query])
    dog = Word(np.zeros(0, np.int64), np.zeros(0), 5 * UNIT, "dog")
    found = dict(
        zip((query[slice(*one)] for one in tokens.words), weights_of(tokens, query, [dog]), strict=True)
    )
    assert found["dog"] == 5 * UNIT
    assert found["What"] == found["Jon"] == UNIT // 2
    assert found["?"] == found[""] == found["’"] == 0
