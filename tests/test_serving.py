"""`commonplace serve` as a real process: how it starts, ends, and what its connections may leave undone."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import commonplace
from commonplace import Book
from commonplace.surfaces.http.limits import FairThreads, ServerLimits

from .serving import Served
from .shells import Cli

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the faults are beside the tests, not installed

from faults.servers import ServeProcess

LONG = 60.0


@pytest.fixture
def place(tmp_path: Path) -> str:
    path = str(tmp_path / "team.db")
    commonplace.open(path).close()
    return path


def call(port: int, token: str, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """One request on a connection of its own."""
    with closing(HTTPConnection("127.0.0.1", port, timeout=LONG)) as http:
        return ask(http, token, method, path, body, **headers)


def ask(
    http: HTTPConnection, token: str, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, Any]:
    given = {
        "Authorization": f"Bearer {token}",
        **{name.replace("_", "-"): text for name, text in headers.items()},
    }
    http.request(method, path, None if body is None else json.dumps(body), given)
    answer = http.getresponse()
    return answer.status, json.loads(answer.read() or b"null")


def ask_head(server: ServeProcess) -> int:
    return int(call(server.port, server.token, "GET", "/v1/head")[1]["head"])


# beginning and ending


@pytest.mark.spec("7.4", "L2")
def test_a_server_that_is_ended_finishes_what_is_being_written(place: str, tmp_path: Path) -> None:
    """Twenty clients write while the server gets SIGTERM: what was acknowledged is there, what was refused is not."""
    with ServeProcess(place, tmp_path / "server") as server:
        acknowledged, refused, unknown = list[str](), list[str](), list[str]()
        first, over = threading.Semaphore(0), threading.Event()

        def write(client: int) -> None:
            http = HTTPConnection("127.0.0.1", server.port, timeout=LONG)
            for number in range(10_000):
                id = f"c{client}-{number}"
                try:
                    status, _ = ask(
                        http, server.token, "POST", "/v1/record", {"kind": "agent.spoke", "id": id}
                    )
                except ConnectionRefusedError:
                    refused.append(id)
                    return
                except (OSError, HTTPException):
                    unknown.append(id)  # closed while the request was on its way
                    http.close()
                    continue
                (acknowledged if status == 200 else refused).append(id)
                if status != 200:
                    assert status == 503
                if number == 2:
                    first.release()
                if over.is_set() and status != 200:
                    return
            http.close()

        clients = [threading.Thread(target=write, args=(client,), daemon=True) for client in range(20)]
        for client in clients:
            client.start()
        for _ in clients:
            assert first.acquire(timeout=LONG)
        over.set()
        assert server.end() == 0
        for client in clients:
            client.join(LONG)
            assert not client.is_alive()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", server.port))
        with commonplace.open(place) as book:
            there = {event.id for event in book.events(kinds=["agent.spoke"])}
            assert book.verify().ok
        assert len(acknowledged) >= 60
        assert set(acknowledged) <= there
        assert not set(refused) & there
        assert there <= {*acknowledged, *unknown}
        log = server.log.read_text()
        assert "Traceback" not in log
        assert "server=ended" in log
        assert server.token not in log


@pytest.mark.spec("7.3", "7.4", "L2")
def test_a_tool_that_is_under_way_is_answered_before_the_server_ends(place: str, tmp_path: Path) -> None:
    """Also one of a session, whose answer is a stream of events."""
    items = [{"text": f"Locker {number} holds the tools of hall {number * 7}"} for number in range(3_000)]
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    accept = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    answers = list[str]()
    with ServeProcess(place, tmp_path / "server", "--tools", "memory") as server:

        def message(method: str, params: Any, session: str = "") -> tuple[str, str]:
            with closing(HTTPConnection("127.0.0.1", server.port, timeout=LONG)) as http:
                headers = {**accept, "Authorization": f"Bearer {server.token}"}
                headers |= {"Mcp-Session-Id": session} if session else {}
                body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
                http.request("POST", "/mcp", json.dumps(body), headers)
                answer = http.getresponse()
                return answer.headers["Mcp-Session-Id"], answer.read().decode()

        session, _ = message("initialize", about)
        tool = {"name": "memory_add_many", "arguments": {"items": items}}
        calling = threading.Thread(target=lambda: answers.append(message("tools/call", tool, session)[1]))
        calling.start()
        while ask_head(server) == 0:  # until a part of it is written
            time.sleep(0.01)
        assert server.end() == 0
        calling.join(LONG)
    assert '"isError":false' in answers[0]
    with commonplace.open(place) as book:
        assert len(book.memory.list(limit=None)) == len(items)


@pytest.mark.spec("7.4", "L2")
def test_a_backup_is_restored_as_the_page_says_also_after_a_kill(tmp_path: Path) -> None:
    place, backup, before = tmp_path / "team.db", tmp_path / "backup.db", tmp_path / "before"
    with commonplace.open(place, mirror=False) as book:
        book.remember("The mill grinds at six")
        book.admin.backup(backup)
        head = book.head
    with ServeProcess(str(place), tmp_path / "server") as server:
        for number in range(300):
            call(server.port, server.token, "POST", "/v1/record", {"kind": "agent.spoke", "id": f"e{number}"})
        server.kill()
    before.mkdir()
    for path in tmp_path.glob("team.db*"):
        path.rename(before / path.name)
    shutil.copy(backup, place)
    with ServeProcess(str(place), tmp_path / "server") as server:
        assert ask_head(server) == head
        status, found = call(server.port, server.token, "GET", "/v1/search?query=when+does+the+mill+grind")
        assert (status, len(found["results"])) == (200, 1)
        assert call(server.port, server.token, "POST", "/v1/admin/verify", {})[1]["ok"]


@pytest.mark.spec("7.4")
@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_a_server_ends_with_streams_and_idle_connections_open(
    place: str, tmp_path: Path, by: signal.Signals
) -> None:
    with ServeProcess(place, tmp_path / "server") as server:
        idle = socket.create_connection(("127.0.0.1", server.port))
        http = HTTPConnection("127.0.0.1", server.port, timeout=LONG)
        http.request("GET", "/v1/watch?after=0", headers={"Authorization": f"Bearer {server.token}"})
        stream = http.getresponse()
        assert stream.status == 200
        assert server.end(by) == 0
        stream.read()  # which has ended
        http.close()
        idle.close()


@pytest.mark.spec("7.4")
def test_what_made_an_id_of_its_own_is_made_once_also_by_the_next_server(place: str, tmp_path: Path) -> None:
    note = {"text": "The lift stops at four."}
    with ServeProcess(place, tmp_path / "server") as server:
        with commonplace.open(place) as book:
            token = book.access.tokens.create("ada").secret
        status, first = call(server.port, token, "POST", "/v1/remember", note, Idempotency_Key="k1")
        assert status == 200
        server.kill()
        server.start()
        status, again = call(server.port, token, "POST", "/v1/remember", note, Idempotency_Key="k1")
        assert (status, again["item_id"]) == (200, first["item_id"])
        change = {"kind": "agent.spoke", "payload": {"n": 1}}
        events = [
            call(server.port, token, "POST", "/v1/record", change, Idempotency_Key="k2")[1]["position"]
            for _ in "ab"
        ]
        assert events[0] == events[1]


# addresses, TLS and proxies


@pytest.mark.spec("7.4")
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--host", "0.0.0.0"], "--tls-cert"),
        (["--host", "::"], "--behind-proxy"),
        (["--host", "192.0.2.1"], "can be reached from other hosts"),
        (["--tls-cert", "cert.pem"], "go together"),
        (["--tls-cert", "none.pem", "--tls-key", "none.pem"], "none.pem"),
        (["--limits", "speed=3"], "there is no limit"),
        (["--limits", "rate=0"], "above 0"),
        (["--limits", "streams=1.5"], "streams"),
    ],
)
def test_a_server_that_would_not_be_safe_does_not_start(
    cli: Cli, place: str, words: list[str], why: str
) -> None:
    ran = cli("--book", place, "serve", "--port", "0", *words)
    assert ran.code == 1, ran
    assert why in ran.err
    assert "Traceback" not in ran.err


@contextmanager
def certificate(folder: Path) -> Iterator[tuple[Path, Path]]:
    """A certificate for this host, made for the test, with its key."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    own = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(own.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(own, hashes.SHA256())
    )
    cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    key.write_bytes(own.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    yield cert, key


@pytest.mark.spec("7.4")
def test_a_book_is_served_over_tls(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        certificate(tmp_path) as (cert, key),
        ServeProcess(
            place, tmp_path / "server", "--host", "0.0.0.0", "--tls-cert", str(cert), "--tls-key", str(key)
        ) as server,
    ):
        url = f"https://localhost:{server.port}"
        assert server.url.startswith("https://")
        with pytest.raises(commonplace.EngineUnavailable, match="certificate"):
            commonplace.open(url, token=server.token, timeout=0.5)
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
        with commonplace.open(url, token=server.token) as book:
            book.remember("The lift stops at four.")
            assert len(book.search("lift")) == 1
        with socket.create_connection(("127.0.0.1", server.port), LONG) as raw:  # no plain HTTP on this port
            raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert raw.recv(100)[:5] != b"HTTP/"
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.load_verify_locations(cert)
        with (
            socket.create_connection(("127.0.0.1", server.port), LONG) as raw,
            old.wrap_socket(raw, server_hostname="localhost") as spoken,
        ):
            assert spoken.version() in ("TLSv1.2", "TLSv1.3")


@pytest.mark.spec("7.4")
def test_what_a_client_says_of_itself_is_believed_only_behind_a_proxy(place: str, tmp_path: Path) -> None:
    """The address of a client is for the log. What else a forwarded header says is never looked at."""
    spoofed = {
        "X_Forwarded_For": "203.0.113.9, 198.51.100.7", "Forwarded": "for=203.0.113.9;host=example.org;proto=https",
        "X_Forwarded_Host": "example.org", "X_Forwarded_Proto": "https", "X_Real_IP": "203.0.113.9",
    }  # fmt: skip
    for words, seen in (((), "127.0.0.1"), (("--behind-proxy",), "198.51.100.7")):
        with ServeProcess(place, tmp_path / f"server{len(words)}", *words) as server:
            status, about = call(server.port, server.token, "GET", "/v1/book", **spoofed)
            assert (status, about["actor"]) == (200, "owner")
            status, refused = call(server.port, "nonsense", "GET", "/v1/book", **spoofed)
            assert (status, refused["code"]) == (401, "unauthorized")
            status, _ = call(server.port, server.token, "GET", "/v1/book", Host="example.org", **spoofed)
            assert status == 403
            server.end()
            lines = [line for line in server.log.read_text().splitlines() if "path=/v1/book" in line]
            assert len(lines) == 3
            assert all(f"client={seen} " in line for line in lines)
            assert "203.0.113.9" not in server.log.read_text()


# what clients leave undone


def connect(server: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), LONG)


def rest(raw: socket.socket) -> bytes:
    """What still comes until the server closes."""
    parts = []
    while part := raw.recv(65536):
        parts.append(part)
    return b"".join(parts)


@contextmanager
def limited(**limits: Any) -> Iterator[tuple[Book, Served]]:
    with commonplace.open("memory:") as book:
        server = Served(book, ServerLimits(**limits))
        try:
            yield book, server
        finally:
            server.stop()


def asked(
    server: Served, method: str, path: str, body: Any = None, token: str | None = None
) -> tuple[int, Any]:
    return call(int(server.url.rpartition(":")[2]), token or server.token, method, path, body)


BEGUN = b"POST /v1/record HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.spec("7.4")
def test_requests_that_do_not_arrive_are_given_up() -> None:
    with limited(head_seconds=0.2, body_seconds=0.2, idle_seconds=0.2) as (_, server):
        with connect(server) as silent, connect(server) as slow:
            assert rest(silent) == b""
            for byte in BEGUN:  # a byte now and then keeps nothing open
                try:
                    slow.sendall(bytes([byte]))
                except OSError:
                    break
                if _closed_within(slow, 0.05):
                    break
            else:
                pytest.fail("a head that came byte by byte was waited for")
        with connect(server) as again:  # neither the second request on a connection
            again.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert again.recv(65536).startswith(b"HTTP/1.1 200")
            again.sendall(b"GET /hea")
            assert b"HTTP/1.1" not in rest(again)
        with connect(server) as idle:
            idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert rest(idle).startswith(b"HTTP/1.1 200")  # and then closed
        with connect(server) as refused:  # one that was answered already may not go on sending for ever
            refused.sendall(BEGUN + b"Content-Length: 1000000\r\n\r\n")
            assert refused.recv(65536).startswith(b"HTTP/1.1 401")
            assert b"HTTP/1.1" not in rest(refused)
        assert asked(server, "POST", "/v1/record", {"kind": "agent.spoke"})[0] == 200


def _closed_within(raw: socket.socket, seconds: float) -> bool:
    raw.settimeout(seconds)
    try:
        return raw.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


@pytest.mark.spec("7.4")
def test_a_client_that_takes_none_of_its_answer_is_left() -> None:
    with limited(stalled_seconds=0.3, streams=1) as (book, server):
        with connect(server) as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.sendall(
                b"GET /v1/watch?after=0 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
                + server.token.encode() + b"\r\n\r\n"
            )  # fmt: skip
            assert deaf.recv(12) == b"HTTP/1.1 200"
            for _ in range(10):
                book.record("agent.spoke", payload={"text": "x" * 1_000_000})
            deadline = time.monotonic() + LONG
            while server.app.streams.used and time.monotonic() < deadline:
                threading.Event().wait(0.02)
            assert server.app.streams.used == 0


@pytest.mark.spec("7.4")
def test_heads_have_a_limit_and_nonsense_is_refused_as_a_problem() -> None:
    with limited(head=4_096) as (_, server):
        for said in (
            BEGUN + b"X-Long: " + b"x" * 8_000,
            b"\x16\x03\x01 hello\r\n\r\n",
            b"GET / HTTP/9\r\n\r\n",
        ):
            with connect(server) as raw:
                raw.sendall(said)
                answer = rest(raw)
                assert answer.startswith(b"HTTP/1.1 400 Bad Request")
                assert b"application/problem+json" in answer
                assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "bad_input"


@pytest.mark.spec("7.4")
def test_connections_without_a_request_make_room_for_others() -> None:
    with limited(connections=20) as (_, server):
        port = int(server.url.rpartition(":")[2])
        with closing(HTTPConnection("127.0.0.1", port, timeout=LONG)) as served:
            assert ask(served, server.token, "GET", "/v1/head")[0] == 200
            idle = [connect(server) for _ in range(100)]
            known = served.sock
            for _ in range(5):  # on the connection that it has, and on a new one
                assert ask(served, server.token, "GET", "/v1/head")[0] == 200
                assert call(port, server.token, "GET", "/v1/head")[0] == 200
            assert served.sock is known
            assert sum(_closed_within(raw, 0.5 if n < 70 else 0.01) for n, raw in enumerate(idle)) >= 79
            for raw in idle:
                raw.close()


@pytest.mark.spec("7.4")
def test_a_flood_of_invalid_tokens_leaves_room_for_valid_ones() -> None:
    with limited(unknown_rate=20) as (book, server):
        ada = book.access.tokens.create("ada").secret
        assert asked(server, "GET", "/v1/head", token=ada)[0] == 200
        guesses = [asked(server, "GET", "/v1/head", token=f"cpl_{n:010x}_{'A' * 43}") for n in range(60)]
        assert {status for status, _ in guesses} == {401, 429}
        assert asked(server, "GET", "/v1/head", token=ada)[0] == 200
        book.access.tokens.revoke(ada.split("_")[1])
        assert asked(server, "GET", "/v1/head", token=ada)[0] in (401, 429)


@pytest.mark.spec("7.4")
def test_one_token_cannot_take_the_places_of_the_others() -> None:
    with limited(streams=4, streams_each=2, at_once=8, at_once_each=4, threads=2) as (book, server):
        greedy, other = book.access.tokens.create("ada").secret, book.access.tokens.create("ben").secret
        port = int(server.url.rpartition(":")[2])
        streams = []
        for token, status in ((greedy, 200), (greedy, 200), (greedy, 429), (other, 200)):
            http = HTTPConnection("127.0.0.1", port, timeout=LONG)
            http.request("GET", "/v1/watch", headers={"Authorization": f"Bearer {token}"})
            answer = http.getresponse()
            assert answer.status == status
            assert (answer.headers["retry-after"] == "1") == (status == 429)
            streams.append(http)
        for http in streams:
            http.close()
        assert asked(server, "GET", "/v1/head", token=other)[0] == 200


@pytest.mark.spec("7.4")
def test_the_one_call_of_a_client_does_not_wait_for_all_calls_of_another() -> None:
    threads, hold, order = FairThreads(3, 2), threading.Event(), list[str]()

    def work(client: str) -> None:
        if client == "greedy":
            assert hold.wait(LONG)
        order.append(client)

    async def crowd() -> None:
        clients = ["greedy"] * 20 + ["other"]
        calls = [asyncio.ensure_future(threads.run(client, partial(work, client))) for client in clients]
        given_up = asyncio.ensure_future(threads.run("gone", partial(work, "gone")))
        await asyncio.sleep(0)
        given_up.cancel()
        await calls[-1]  # while the greedy client still has all that it may have
        hold.set()
        await asyncio.gather(*calls)
        await threads.run("later", partial(work, "later"))  # no thread was lost

    asyncio.run(crowd())
    threads.finish()
    assert len(order) == 22
    assert order[0] == "other"
    assert "gone" not in order


@pytest.mark.spec("7.4")
def test_a_client_has_no_more_threads_for_having_calls_of_two_kinds() -> None:
    threads, hold, lock, running, most = FairThreads(4, 2), threading.Event(), threading.Lock(), 0, 0
    begun = threading.Semaphore(0)

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        begun.release()
        assert hold.wait(LONG)
        with lock:
            running -= 1

    async def crowd() -> None:
        kinds = ["calls"] * 3 + ["streams"] * 3
        calls = [asyncio.ensure_future(threads.run("greedy", work, kind)) for kind in kinds]
        await threads.run("other", lambda: None)
        for _ in range(2):
            assert await asyncio.to_thread(begun.acquire, timeout=LONG)
        hold.set()
        await asyncio.gather(*calls)

    asyncio.run(crowd())
    threads.finish()
    assert (running, most) == (0, 2)


@pytest.mark.spec("7.2")
def test_make_serve_starts_a_server_on_loopback() -> None:
    makefile = (Path(__file__).parent.parent / "Makefile").read_text()
    (recipe,) = re.findall(r"^serve:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert "commonplace serve" in recipe
    assert "--host" not in recipe
