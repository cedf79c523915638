"""A book behind a server, over a network that loses, doubles, delays and cuts what is sent, and servers that end."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

import commonplace
from commonplace import Book, BookClosed, EngineUnavailable, NotFound, OutcomeUnknown, TooLarge
from commonplace.errors import CommonplaceError

from .proxies import at_random, full, proxied, saying, scripted
from .serving import Served, served

LONG = 60.0


@pytest.fixture
def book() -> Iterator[Book]:
    with commonplace.open("memory:") as opened:
        yield opened


@pytest.fixture
def server(book: Book) -> Iterator[Served]:
    with served(book) as running:
        yield running


def ended(call: Callable[[], Any]) -> CommonplaceError:
    """The error that a call ends with, on a thread of its own, so that one without an end is noticed."""
    met: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            met.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LONG)
    assert not thread.is_alive(), "the call did not end"
    assert len(met) == 1
    assert isinstance(met[0], CommonplaceError), repr(met[0])
    return met[0]


# retries


def busy(there: Book, count: int) -> None:
    """Many writes of many kinds, twelve in each round."""
    work = there.work(name="w", id="w")
    thread, run = there.thread("t"), there.run(run_id="r")
    me = run.agent("ada")
    for number in range(count):
        there.record("agent.spoke", payload={"n": number})
        there.record_all([{"kind": "agent.listed", "payload": {"n": number}}] * 2)
        kept = there.remember(f"Note {number}: {number**3 + 17} boxes stand in hall {number * 7}.")
        assert kept.outcome == "stored"
        there.documents.log(f"line {number}")
        work.add_task(f"task {number}")
        claim = work.claim("dev")
        assert claim is not None
        claim.discover(f"found {number}")
        assert claim.complete(f"done {number}").status == "completed"
        me.emit("increment", {"count": 1})
        assert thread.add({"role": "user", "content": f"say {number}"}).added == 1
        there.forget(kept.id, confirm="FORGET")
        work.nudge(f"look at {number}", target="dev")
    assert me.state["ada"]["count"] == count
    assert len(thread.messages().messages) == count
    assert len(work.tasks("completed")) == count
    assert len(work.records("discovery")) == count


@pytest.mark.spec("7.4", "L2")
@pytest.mark.parametrize("seed", [1, 2])
def test_each_write_lands_once_however_the_network_behaves(book: Book, server: Served, seed: int) -> None:
    with (
        proxied(server.url, at_random(seed)) as proxy,
        commonplace.open(proxy.url, token=server.token, timeout=LONG) as there,
    ):
        busy(there, 20)  # 240 writes
        met = proxy.met
    kinds = Counter(event.kind for event in book.events())
    with commonplace.open("memory:") as quiet:
        busy(quiet, 20)
        expected = Counter(event.kind for event in quiet.events())
    assert kinds == expected
    assert (kinds["agent.spoke"], kinds["agent.listed"], kinds["task.completed"]) == (20, 40, 20)
    assert {"lost", "unanswered", "doubled", "cut", "502 before", "502 after"} <= met.keys()
    assert book.verify().ok


@pytest.mark.spec("7.4", "L2")
@pytest.mark.parametrize("fate", ["unanswered", "cut", "502 after", "lost", "502 before"])
def test_an_unknown_outcome_names_what_can_be_looked_up(book: Book, server: Served, fate: str) -> None:
    with (
        proxied(server.url, lambda path: fate if path == "/v1/record" else "pass") as proxy,
        commonplace.open(proxy.url, token=server.token, timeout=0.4) as there,
    ):
        unknown = ended(lambda: there.record("agent.spoke", payload={"n": 1}))
        assert isinstance(unknown, OutcomeUnknown)
        (id,) = unknown.ids
        if fate in ("lost", "502 before"):
            with pytest.raises(NotFound):
                there.event(id)
        else:
            assert there.event(id).payload == {"n": 1}
        assert id in str(unknown)
        assert proxy.met[fate] > 1  # it was sent again
        proxy.fate = lambda _path: "pass"
        assert there.record("agent.spoke", payload={"n": 1}, id=id).id == id
    assert book.head == 1


@pytest.mark.spec("7.4")
def test_what_was_refused_is_not_sent_again(book: Book, server: Served) -> None:
    with (
        proxied(server.url, lambda _path: "pass") as proxy,
        commonplace.open(proxy.url, token=server.token) as there,
    ):
        proxy.seen.clear()
        for refused in (
            lambda: there.event("none"),
            lambda: there.record("bad kind"),
            lambda: there.record("agent.spoke", payload={"x": "x" * 9_000_000}),
        ):
            assert isinstance(ended(refused), NotFound | commonplace.BadInput | TooLarge)
        assert len(proxy.seen) == 3


# a server that is started anew


@pytest.mark.spec("7.4", "5.3", "L2")
def test_calls_go_on_with_a_new_process_of_the_server_and_nothing_is_made_twice(book: Book) -> None:
    """The first server does what it is asked for and ends before it has answered."""
    work = book.work(name="w", id="w")
    work.add_tasks([{"title": str(number)} for number in range(4)])
    with served(book) as first, served(book) as second:
        lost: set[str] = set()
        with proxied(first.url, lambda path: "unanswered" if path in lost else "pass") as proxy:

            def dies_at(path: str) -> None:
                proxy.fate, proxy.upstream = (lambda _path: "pass"), first.url
                there.head  # noqa: B018  says which process it is now
                lost.add(path)

                def fate(asked: str) -> str:
                    if asked in lost:
                        lost.discard(asked)
                        return "unanswered"
                    proxy.upstream = second.url
                    return "pass"

                proxy.fate = fate

            second.token = first.token
            with commonplace.open(proxy.url, token=first.token, timeout=20) as there:
                work = there.work(id="w")
                dies_at("/v1/record")
                assert there.record("agent.spoke", payload={"n": 1}).payload == {"n": 1}
                dies_at("/v1/work/claim")
                claim = work.claim("dev")
                assert claim is not None
                assert len(book.work(id="w").tasks("in_progress")) == 1
                dies_at("/v1/claim/next")
                following = claim.next("one")
                assert following is not None
                assert claim.task.status == "completed"
                assert len(book.work(id="w").tasks("in_progress")) == 1
                dies_at("/v1/claim/complete")
                assert following.complete("two").status == "completed"
                dies_at("/v1/work/add_task")
                assert work.add_task("five").title == "five"
                dies_at("/v1/memory/configure")
                unknown = ended(lambda: there.memory.configure(max_size_kb=30))
                assert isinstance(unknown, OutcomeUnknown)
    assert len(book.work(id="w").tasks()) == 5
    assert len(list(book.events(kinds=["agent.spoke"]))) == 1
    assert len(list(book.events(kinds=["task.completed"]))) == 2


@pytest.mark.spec("7.4")
def test_watchers_workers_and_calls_outlive_a_restart(book: Book) -> None:
    seen: list[int] = []
    begun, all_seen = threading.Event(), threading.Event()
    server = Served(book)
    port = int(server.url.rpartition(":")[2])
    with closing(commonplace.open(server.url, token=server.token, timeout=LONG)) as there:

        def follow() -> None:
            for event in there.watch(after=0, kinds=["agent.spoke"]):
                seen.append(event.payload["n"])
                begun.set()
                if len(seen) == 40:
                    all_seen.set()

        watcher = threading.Thread(target=follow)
        watcher.start()
        there.record("agent.spoke", payload={"n": 0})
        assert begun.wait(LONG)
        work = there.work(name="w", id="w")
        work.add_tasks([{"title": str(number)} for number in range(20)])
        worked: list[Any] = []
        worker = threading.Thread(target=lambda: worked.append(work.worker("dev", lambda claim: "fine")))
        worker.start()
        for number in range(1, 40):
            if number in (10, 25):
                server.stop()
                server = Served(book, port=port)
            there.record("agent.spoke", payload={"n": number})
        worker.join(LONG)
        assert all_seen.wait(LONG)
    watcher.join(LONG)
    server.stop()
    assert not watcher.is_alive()
    assert seen == list(range(40))
    assert worked[0].completed == 20
    assert len(list(book.events(kinds=["task.completed"]))) == 20
    assert len(list(book.events(kinds=["task.claimed"]))) == 20


@pytest.mark.spec("7.4")
def test_a_watcher_does_not_mind_connections_that_are_closed_after_each_answer(
    book: Book, server: Served
) -> None:
    made = [book.record("agent.spoke", payload={"n": number}) for number in range(3)]
    with proxied(server.url, lambda _path: "closing") as proxy:
        with commonplace.open(proxy.url, token=server.token) as there:
            assert list(there.watch(after=0, timeout=0.1)) == made
            assert there.head == 3


# deadlines

BEGUN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.mark.spec("7.4")
@pytest.mark.parametrize(
    ("said", "again"),
    [
        ((), b""),
        ((BEGUN,), b""),
        ((BEGUN, b"Content-Length: 1000\r\n\r\n{"), b""),
        ((BEGUN, b"Content-Length: 100000\r\n\r\n{"), b" "),
        ((), b"H"),
        ((BEGUN,), b"X: y\r\n"),
        ((b"what is this?\r\n\r\n",), b""),
        ((b"HTTP/1.1 429 Slow\r\nRetry-After: 3600\r\nContent-Length: 2\r\n\r\n{}",), b""),
    ],
    ids=[
        "nothing",
        "a header",
        "half an answer",
        "byte by byte",
        "an endless line",
        "endless headers",
        "noise",
        "later",
    ],
)
def test_every_call_ends_in_time_whatever_the_server_says(said: tuple[bytes, ...], again: bytes) -> None:
    with saying(*said, again=again) as url:
        error = ended(lambda: commonplace.open(url, token="x", timeout=0.4))
        assert isinstance(error, EngineUnavailable)


@pytest.mark.spec("7.4")
def test_a_write_that_is_not_answered_in_time_has_an_unknown_outcome(book: Book, server: Served) -> None:
    with (
        saying() as nowhere,
        proxied(server.url, lambda _path: "pass") as proxy,
        commonplace.open(proxy.url, token=server.token, timeout=0.5) as there,
    ):
        work = there.work(name="w", id="w")
        work.add_task("t")
        with commonplace.open(proxy.url, token=server.token, timeout=0.5) as other:
            proxy.upstream = nowhere
            proxy.http.connection_pool_kw["timeout"] = LONG
            for write in (
                lambda: other.record("a.b"),
                lambda: work.claim("dev"),
                lambda: other.access.grant("ada"),
            ):
                assert isinstance(ended(write), OutcomeUnknown)
            for read in (other.memory.list, lambda: list(other.events()), lambda: other.head):
                assert isinstance(ended(read), EngineUnavailable)
            assert isinstance(ended(lambda: list(other.watch(after=0, timeout=0.2))), EngineUnavailable)
            proxy.upstream = server.url
    assert book.head < 10


@pytest.mark.spec("7.4")
def test_a_place_that_takes_no_connection_is_told_in_time() -> None:
    with full() as url:
        error = ended(lambda: commonplace.open(url, token="x", timeout=0.4))
    assert isinstance(error, EngineUnavailable)


def test_what_is_no_server_of_ours_says_so() -> None:
    for said, words in (
        (b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>", "no commonplace server"),
        (b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", "HTTP status 404"),
        (b"HTTP/1.1 302 Go\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", "sends on to"),
    ):
        with saying(said) as url:
            error = ended(lambda: commonplace.open(url, token="x", timeout=5))
            assert isinstance(error, EngineUnavailable)
            assert words in str(error)


@pytest.mark.spec("7.4", "L2")
@pytest.mark.parametrize(
    "code", ["unauthorized", "denied", "too_large", "server_failed", "engine_unavailable"]
)
def test_a_refusal_of_the_second_try_does_not_hide_what_the_first_may_have_done(code: str) -> None:
    """The server has read the call and the connection broke; then it refuses the client, or has trouble of its own."""
    status = {
        "unauthorized": 401,
        "denied": 403,
        "too_large": 413,
        "server_failed": 500,
        "engine_unavailable": 503,
    }
    problem = json.dumps({"code": code, "status": status[code], "detail": "no"}).encode()
    with scripted(lambda _path, n: None if n == 1 else (status[code], problem)) as url:
        with commonplace.open(url, token="x", timeout=5) as there:
            error = ended(lambda: there.remember("The lift stops at four", id="n1"))
            assert isinstance(error, OutcomeUnknown)
            assert (error.ids, "no" in str(error)) == (("n1",), True)


@pytest.mark.spec("7.4", "L4")
def test_a_refusal_of_the_second_try_counts_if_the_server_has_looked_at_the_key() -> None:
    conflict = json.dumps({"code": "conflict", "status": 409, "detail": "other content"}).encode()
    for seen, expected in ((True, commonplace.Conflict), (False, OutcomeUnknown)):
        with scripted(lambda _path, n: None if n == 1 else (409, conflict), seen=seen) as url:
            with commonplace.open(url, token="x", timeout=5) as there:
                assert isinstance(ended(lambda: there.remember("x")), expected)


ODD = [b"[]", b"{}", b'"x"', b"<html>", b'{"$": "nonsense:X"}', b'{"$": []}', b'{"head": null}', b"[" * 5_000]


@pytest.mark.spec("7.4")
@pytest.mark.parametrize("body", ODD, ids=range(len(ODD)))
def test_an_answer_that_no_server_of_ours_would_give_is_a_typed_error(body: bytes) -> None:
    def answer(path: str, _n: int) -> tuple[int, bytes]:
        return 200, b"id: 1\nevent: x\ndata: " + body + b"\n\n" if path == "/v1/watch" else body

    with scripted(answer) as url, commonplace.open(url, token="x", timeout=0.3) as there:
        for read in (lambda: there.head, lambda: list(there.events()), lambda: next(there.watch(after=0))):
            assert isinstance(ended(read), EngineUnavailable)


@pytest.mark.spec("7.4", "L2")
@pytest.mark.parametrize(
    "body", [b"<html>", b'{"$": "nonsense:X"}', b'{"$": []}', b"[" * 5_000], ids=range(4)
)
def test_a_write_with_an_answer_that_cannot_be_read_has_an_unknown_outcome(body: bytes) -> None:
    with scripted(lambda _path, _n: (200, body)) as url, commonplace.open(url, token="x", timeout=5) as there:
        error = ended(lambda: there.remember("The lift stops at four", id="n1"))
        assert isinstance(error, OutcomeUnknown)
        assert error.ids == ("n1",)


@pytest.mark.spec("7.4")
def test_a_stream_that_cannot_be_read_is_not_asked_for_without_end() -> None:
    asked = list[str]()

    def answer(path: str, _n: int) -> tuple[int, bytes]:
        asked.append(path)
        return 200, b': connected\n\nid: 2\nevent: x\ndata: {"x": 1}\n\n'

    with scripted(answer) as url, commonplace.open(url, token="x", timeout=1) as there:
        assert isinstance(ended(lambda: next(there.watch(after=0))), EngineUnavailable)
    assert len(asked) < 10  # it waits longer each time


@pytest.mark.spec("7.4")
@pytest.mark.parametrize("frame", [b"id: abc", b"event: error\ndata: {}", b"event: error\ndata: []"])
def test_a_stream_that_cannot_be_read_is_a_typed_error(frame: bytes) -> None:
    with scripted(lambda _path, _n: (200, frame + b"\n\n")) as url:
        with commonplace.open(url, token="x", timeout=0.3) as there:
            assert isinstance(ended(lambda: next(there.watch(after=0))), EngineUnavailable)


def test_closing_ends_what_waits_to_be_sent_again(book: Book, server: Served) -> None:
    with proxied(server.url, lambda _path: "pass") as proxy:
        there = commonplace.open(proxy.url, token=server.token, timeout=LONG)
        sent = threading.Event()

        def fate(_path: str) -> str:
            sent.set()
            return "unanswered"

        proxy.fate = fate

        def close() -> None:
            sent.wait(LONG)
            there.close()

        closer = threading.Thread(target=close)
        closer.start()
        unknown = ended(lambda: there.record("agent.spoke"))
        closer.join(LONG)
        assert isinstance(unknown, OutcomeUnknown)
        assert isinstance(ended(lambda: there.record("agent.spoke")), BookClosed)
    assert book.head == 1


# TLS


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 that nobody has signed but itself, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name, now = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a test")]), datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = folder / "cert.pem", folder / "key.pem"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return files


@pytest.mark.spec("7.4")
def test_a_server_with_tls_is_checked_against_the_authorities_of_this_host(
    book: Book, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = certificate(tmp_path)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with served(book, ssl_certfile=str(cert), ssl_keyfile=str(key)) as server:
        assert server.url.startswith("https://")
        error = ended(lambda: commonplace.open(server.url, token=server.token, timeout=10))
        assert isinstance(error, EngineUnavailable)
        assert "SSL_CERT_FILE" in str(error)
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
        with commonplace.open(server.url, token=server.token) as there:
            assert there.record("agent.spoke").position == 1
            assert next(there.watch(after=0)).position == 1
