"""The HTTP API as any program meets it: routes, tokens, versions, repeats, pages, streams and limits."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import re
import socket
import tempfile
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest
import urllib3
from starlette.routing import Route

import commonplace
from commonplace import Book
from commonplace.surfaces.http.limits import ServerLimits
from commonplace.surfaces.http.messages import Rendered
from commonplace.surfaces.http.repeats import Repeats
from commonplace.surfaces.network import served as served_verbs

from .serving import Served
from .serving import served as serving

LONG = 60.0


class Answer(NamedTuple):
    status: int
    headers: Any
    body: Any


class Api:
    """A program that speaks plain HTTP and JSON."""

    def __init__(self, url: str, token: str | None) -> None:
        self.url, self.token = url, token
        self._http = urllib3.PoolManager(retries=False, timeout=LONG)

    def __call__(
        self, method: str, path: str, body: Any = None, /, *, query: Any = None, **headers: str
    ) -> Answer:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token is not None and "Authorization" not in given:
            given["Authorization"] = f"Bearer {self.token}"
        data = body
        if body is not None and not isinstance(body, bytes):
            given.setdefault("Content-Type", "application/json")
            data = json.dumps(body).encode()
        if query:
            path = f"{path}?{urlencode(query)}"
        got = self._http.request(method, self.url + path, body=data, headers=given)
        is_json = "json" in got.headers.get("content-type", "")
        return Answer(got.status, got.headers, json.loads(got.data) if is_json and got.data else got.data)

    def with_token(self, token: str | None) -> Api:
        return Api(self.url, token)


@pytest.fixture
def book() -> Iterator[Book]:
    with commonplace.open("memory:") as opened:
        yield opened


@pytest.fixture
def api(book: Book) -> Iterator[Api]:
    with serving(book) as server:
        yield Api(server.url, server.token)


def check_problem(answer: Answer, status: int, code: str) -> None:
    assert answer.status == status, answer
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.body["code"] == code
    assert answer.body["status"] == status
    assert answer.body["type"] == f"urn:commonplace:{code}"
    assert answer.body["detail"]
    assert answer.body["request_id"] == answer.headers["x-request-id"]


# verbs


@pytest.mark.spec("7.4")
def test_every_verb_is_a_route(book: Book, api: Api) -> None:
    kept = api("POST", "/v1/remember", {"text": "The lift stops at the fourth floor.", "shared": True})
    assert (kept.status, kept.body["outcome"]) == (200, "stored")
    id = kept.body["item_id"]
    found = api("GET", "/v1/search", query={"query": "where does the lift stop"})
    assert [hit["id"] for hit in found.body["results"]] == [id]
    assert api("POST", "/v1/memory/get", {"id": id}).body["body"] == "The lift stops at the fourth floor."
    as_ben = api("GET", "/v1/memory/list", query=[("tags", "a"), ("tags", "b")], Commonplace_Actor="ben")
    assert as_ben.body["items"] == []
    assert api("GET", "/v1/book").body == {
        "id": book.id, "name": book.name, "head": book.head, "version": commonplace.__version__,
        "actor": "owner", "scope": None, "reads": [],
    }  # fmt: skip
    assert api("GET", "/v1/memory/get", query={"id": id, "at": "0"}).status == 404


@pytest.mark.spec("7.4")
@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/v1/remember", None, 405, "bad_method"),
        ("PUT", "/v1/remember", None, 405, "bad_method"),
        ("DELETE", "/healthz", None, 405, "bad_method"),
        ("POST", "/v1/dance", {}, 404, "not_found"),
        ("GET", "/", None, 404, "not_found"),
        ("POST", "/v1/admin/copy", {}, 404, "not_found"),
        ("POST", "/v1/runs/execute", {}, 404, "not_found"),
        ("POST", "/v1/remember", {"text": 5}, 400, "bad_input"),
        ("POST", "/v1/remember", {"text": "x", "_session": 1}, 400, "bad_input"),
        ("POST", "/v1/remember", {"text": "x", "self": 1}, 400, "bad_input"),
        ("POST", "/v1/remember", [1], 400, "bad_input"),
        ("POST", "/v1/remember", b"{", 400, "bad_input"),
        ("POST", "/v1/remember", b"\xff\xfe", 400, "bad_input"),
        ("POST", "/v1/remember", b"[" * 100_000, 400, "bad_input"),
        ("GET", "/v1/search?query=a&query=b", None, 400, "bad_input"),
        ("GET", "/v1/search?query=a&limit=many", None, 400, "bad_input"),
        ("GET", "/v1/memory/get?id=nobody", None, 404, "not_found"),
        ("GET", "/v1/events?limit=0", None, 400, "bad_input"),
        ("GET", "/v1/head?beyond=x", None, 400, "bad_input"),
    ],
)
def test_what_is_wrong_is_told_as_a_problem(
    api: Api, method: str, path: str, body: Any, status: int, code: str
) -> None:
    answer = api(method, path, body)
    check_problem(answer, status, code)
    assert (answer.status == 405) == ("allow" in answer.headers)


@pytest.mark.spec("7.4")
@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/v1/remember", "POST"), ("GET", "/v1/remember", "POST"), ("PUT", "/v1/memory/list", "GET, POST"),
        ("POST", "/v1/watch", "GET"), ("PUT", "/v1/watch", "GET"), ("DELETE", "/v1/work/watch", "GET"),
    ],
)  # fmt: skip
def test_a_wrong_method_is_told_the_right_ones(method: str, path: str, allowed: str, api: Api) -> None:
    refused = api(method, path)
    check_problem(refused, 405, "bad_method")
    assert refused.headers["allow"] == allowed


@pytest.mark.spec("7.4")
def test_a_body_is_json(api: Api) -> None:
    refused = api("POST", "/v1/remember", b"text=x", Content_Type="application/x-www-form-urlencoded")
    check_problem(refused, 400, "bad_input")
    assert "application/json" in refused.body["detail"]
    check_problem(api("POST", "/v1/inbox", b"\r\n"), 400, "bad_input")
    assert api("POST", "/v1/inbox", b"").status == 200


@pytest.mark.spec("7.4", "5.3", "5.7")
def test_a_program_leads_a_work_until_another_takes_over(book: Book, api: Api) -> None:
    work = book.work(name="release", id="release")
    task = work.add_task("Tag it")
    work.nudge("hurry", target="orchestrator", by="eve")
    lead = api("POST", "/v1/work/lead", {"work": work.id, "agent": "chief-1", "lease": 60}).body
    assert (lead["work"], lead["agent"], lead["lease"]) == ("release", "chief-1", 60)
    nudge = api("POST", "/v1/lead/look", lead).body
    assert nudge["nudge"]["text"] == "hurry"
    assert api("POST", "/v1/lead/finish_step", {**lead, "place": nudge["place"]}).status == 200
    ready = api("POST", "/v1/lead/look", lead).body
    assert (ready["kind"], ready["task"]["id"]) == ("ready", task.id)
    assert api("POST", "/v1/lead/look", {**lead, "offered": [ready["id"]]}).body is None
    under = {"Commonplace_Lead": str(lead["fence"])}
    assign = {"task": task.id, "agent": "dev-1"}
    assert api("POST", "/v1/task/assign", assign, **under).status == 200
    assert api("POST", "/v1/lead/heartbeat", lead).status == 200
    for wrong in ({**lead, "place": [1]}, {**lead, "place": "x"}, {**lead, "fence": -1}):
        path = "look" if "place" not in wrong else "finish_step"
        check_problem(api("POST", f"/v1/lead/{path}", wrong), 400, "bad_input")
    check_problem(api("POST", "/v1/task/assign", assign, Commonplace_Lead="x"), 400, "bad_input")
    ada = api.with_token(book.access.tokens.create("ada").secret)
    check_problem(ada("POST", "/v1/lead/look", lead), 403, "denied")  # she leads under no other name

    for fence in (0, 1, 10**15):  # of no lead, of another event, of none
        made_up = api("POST", "/v1/task/assign", assign, Commonplace_Lead=str(fence))
        check_problem(made_up, 409, "fenced")
    assert api("POST", "/v1/lead/resign", lead).status == 200
    work.lead("chief-2")
    check_problem(api("POST", "/v1/task/assign", assign, **under), 409, "fenced")
    for path in ("look", "heartbeat"):
        check_problem(api("POST", f"/v1/lead/{path}", lead), 409, "fenced")


@pytest.mark.spec("7.4", "5.6", "5.7")
def test_the_fence_of_a_leader_is_worth_nothing_in_the_hands_of_another(book: Book, api: Api) -> None:
    work = book.work(name="release", id="release")
    for name in ("ada", "bob"):
        book.access.grant(name, acts=["orchestrate"])
    ada, bob, mia = (api.with_token(book.access.tokens.create(name).secret) for name in ("ada", "bob", "mia"))
    lead = ada("POST", "/v1/work/lead", {"work": work.id, "lease": 60}).body
    work.nudge("the supplier is bankrupt", target="orchestrator")
    step = ada("POST", "/v1/lead/look", lead).body
    by_bob, by_mia = {**lead, "agent": "bob"}, {**lead, "agent": "mia"}
    # Everybody may read the fence, with the work; who may lead, and who does, is another matter.
    assert mia("GET", "/v1/work/info", query={"work": work.id}).body["led"] == lead["fence"]
    check_problem(mia("POST", "/v1/lead/look", by_mia), 409, "fenced")
    for verb in ("heartbeat", "resign"):
        check_problem(mia("POST", f"/v1/lead/{verb}", by_mia), 409, "fenced")
        check_problem(bob("POST", f"/v1/lead/{verb}", by_bob), 409, "fenced")
    check_problem(bob("POST", "/v1/lead/finish_step", {**by_bob, "place": step["place"]}), 409, "fenced")
    under = {"Commonplace_Lead": str(lead["fence"])}
    check_problem(
        bob("POST", "/v1/work/add_task", {"work": work.id, "title": "Mine"}, **under), 409, "fenced"
    )
    assert ada("POST", "/v1/lead/look", lead).body == step

    # Nor does anybody take over because the lease of the leader has run out, but by leading.
    assert (
        ada("POST", "/v1/lead/resign", {"work": work.id, "agent": "ada", "fence": lead["fence"]}).status
        == 200
    )
    check_problem(bob("POST", "/v1/lead/heartbeat", by_bob), 409, "fenced")
    assert bob("POST", "/v1/work/lead", {"work": work.id}).status == 200
    check_problem(ada("POST", "/v1/lead/heartbeat", lead), 409, "fenced")


@pytest.mark.spec("7.4", "L7", "5.3")
def test_who_looks_through_other_eyes_holds_nothing_for_them(book: Book, api: Api) -> None:
    book.access.grant("ada", acts=["orchestrate"])
    book.access.grant("eve", acts=["see_as"])
    ada, eve = (api.with_token(book.access.tokens.create(name).secret) for name in ("ada", "eve"))
    work = book.work(name="release", id="release")
    lead = ada("POST", "/v1/work/lead", {"work": work.id}).body
    task = work.add_task("Tag it")
    claim = ada("POST", "/v1/work/claim", {"work": work.id, "task": task.id}).body
    look = {"Commonplace_Look": eve("POST", "/v1/access/look_as", {"actor": "ada"}).body}
    for verb in ("heartbeat", "resign"):
        check_problem(eve("POST", f"/v1/lead/{verb}", lead, **look), 403, "denied")
    held = {"task": task.id, "token": claim["token"]}
    check_problem(eve("POST", "/v1/claim/heartbeat", held, **look), 403, "denied")
    assert ada("POST", "/v1/claim/heartbeat", held).status == 200
    assert ada("POST", "/v1/lead/heartbeat", lead).status == 200


@pytest.mark.spec("7.4")
def test_what_reads_files_of_the_server_is_not_served(book: Book, api: Api, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("a file of the server")
    work = book.work(name="the lift")
    made = api("POST", "/v1/work/artifact", {"work": work.id, "path": str(secret)})
    assert (made.status, made.body["path"]) == (200, str(secret))  # a path is a name
    assert "a file of the server" not in json.dumps(made.body)
    content = api("GET", "/v1/work/content", query={"artifact": made.body["id"]})
    assert content.status == 404
    assert not any("a file of the server" in str(event.payload) for event in book.events())


# who may


def foreign_token() -> str:
    with commonplace.open("memory:") as other:
        return other.access.tokens.create("owner").secret


def expired_token(book: Book) -> str:
    made = book.access.tokens.create("owner", expires_in=0.01)
    time.sleep(0.02)
    return made.secret


def revoked_token(book: Book) -> str:
    made = book.access.tokens.create("owner")
    book.access.tokens.revoke(made.id)
    return made.secret


def routes(server: Served) -> list[tuple[str, str]]:
    """Every address of a server with both methods, whether it has them or not."""
    paths = [route.path for route in server.app.app.routes if isinstance(route, Route)]
    generic = "/v1/{path:path}"
    assert paths[-1] == generic
    paths = [path for path in paths if path not in (generic, *NEED_NO_TOKEN)]
    paths += [f"/v1/{path.replace('.', '/')}" for path in served_verbs()] + ["/mcp"]
    return [(method, path) for path in dict.fromkeys(paths) for method in ("GET", "POST")]


NEED_NO_TOKEN = ("/healthz", "/readyz")


@pytest.mark.spec("7.4", "L12")
def test_every_route_needs_a_right_token_host_and_origin(
    book: Book, caplog: pytest.LogCaptureFixture
) -> None:
    narrow = book.access.tokens.create("owner", verbs=["memory.configure"]).secret
    scoped = book.access.tokens.create("bot", scope="users/alice").secret
    with limited(book, unknown_rate=1e6) as (server, api):
        assert api.token is not None
        own = {"Authorization": f"Bearer {api.token}"}
        in_scope = {"Authorization": f"Bearer {scoped}"}
        wrong: dict[str, tuple[dict[str, str], int]] = {
            "no token": ({}, 401),
            "no bearer": ({"Authorization": f"Basic {api.token}"}, 401),
            "nonsense": ({"Authorization": "Bearer cpl_nonsense"}, 401),
            "not ASCII": ({"Authorization": "Bearer t\xe9l\xe9"}, 401),
            "a foreign token": ({"Authorization": f"Bearer {foreign_token()}"}, 401),
            "an expired token": ({"Authorization": f"Bearer {expired_token(book)}"}, 401),
            "a revoked token": ({"Authorization": f"Bearer {revoked_token(book)}"}, 401),
            "a token for other verbs": ({"Authorization": f"Bearer {narrow}"}, 403),
            "a foreign host": ({**own, "Host": "example.org"}, 403),
            "a foreign origin": ({**own, "Origin": "https://example.org"}, 403),
            "an opaque origin": ({**own, "Origin": "null"}, 403),
            "a token for a scope, as another actor": ({**in_scope, "Commonplace-Actor": "owner"}, 403),
            "a token for a scope, in another one": ({**in_scope, "Commonplace-Scope": "users/bob"}, 403),
            "a token for a scope, above it": ({**in_scope, "Commonplace-Scope": "users"}, 403),
            "a token for a scope, reading another": ({**in_scope, "Commonplace-Reads": "users/bob"}, 403),
            "a token for a scope, reading all": ({**in_scope, "Commonplace-Reads": "/"}, 403),
        }
        every = routes(server)
        assert len(every) > 2 * 190
        of_no_verb = {"/openapi.json", "/v1/book", "/v1/head"}
        # (Which tools such a token has at /mcp is shown by the tests of MCP over HTTP.)
        allowed = {"a token for other verbs": {*of_no_verb, "/v1/memory/configure", "/mcp"}}
        before = book.head
        http = HTTPConnection("127.0.0.1", int(server.url.rpartition(":")[2]), timeout=LONG)
        requests = 0
        with caplog.at_level(logging.INFO, "commonplace.http"):
            for method, path in every:
                for name, (headers, status) in wrong.items():
                    if path in allowed.get(name, ()) or (path == "/openapi.json" and "for a scope" in name):
                        continue
                    body = b"{}" if method == "POST" else None
                    http.request(method, path, body, {"Content-Type": "application/json", **headers})
                    answer = http.getresponse()
                    told = json.loads(answer.read())
                    requests += 1
                    by_method = (405,) if name.startswith("a token for a scope") else ()
                    if path in of_no_verb | {"/v1/watch", "/v1/work/watch"} and method == "POST":
                        by_method = (405,)
                    assert answer.status in (status, *by_method), (name, method, path, answer.status, told)
                    assert answer.headers["content-type"] == "application/problem+json"
                    assert (answer.headers["www-authenticate"] == "Bearer") == (answer.status == 401)
        http.close()
        assert {event.kind for event in book.events(after=before)} <= {"access.denied"}
        logged = [record.getMessage() for record in caplog.records]
        assert len(logged) == requests
        assert all(re.search(r" status=40[135] ", line) for line in logged)
        for secret in (
            api.token,
            *(headers["Authorization"].partition(" ")[2] for headers, _ in wrong.values() if headers),
        ):
            assert secret not in caplog.text


@pytest.mark.spec("7.4")
def test_only_an_owners_token_may_name_another_actor(book: Book, api: Api) -> None:
    ada = api.with_token(book.access.tokens.create("ada").secret)
    assert ada("GET", "/v1/book").body["actor"] == "ada"
    check_problem(ada("GET", "/v1/memory/list", Commonplace_Actor="ben"), 403, "denied")
    check_problem(ada("POST", "/v1/admin/status", {}), 403, "denied")
    assert api("GET", "/v1/memory/list", Commonplace_Actor="ben").status == 200


@pytest.mark.spec("7.4", "L12")
def test_a_token_for_a_scope_does_not_leave_it(book: Book, api: Api) -> None:
    alice = api.with_token(book.access.tokens.create("bot", scope="users/alice").secret)
    bob = api.with_token(book.access.tokens.create("bot", scope="users/bob").secret)
    assert alice("POST", "/v1/remember", {"text": "Alice takes the stairs."}).status == 200
    assert bob("POST", "/v1/remember", {"text": "Bob takes the lift."}).status == 200
    texts = [item["body"] for item in alice("GET", "/v1/memory/list").body["items"]]
    assert texts == ["Alice takes the stairs."]
    for scope in ("users/bob", "users"):
        refused = alice("GET", "/v1/memory/list", Commonplace_Scope=scope)
        check_problem(refused, 403, "denied")
        check_problem(alice("GET", "/v1/memory/list", Commonplace_Reads=scope), 403, "denied")
    assert alice("GET", "/v1/memory/list", Commonplace_Scope="users/alice/work").status == 200


# versions, repeats, pages


@pytest.mark.spec("7.4", "L7")
def test_looking_through_other_eyes_begins_with_a_look_that_is_recorded(book: Book, api: Api) -> None:
    book.as_actor("ada").remember("Ada plans a surprise")
    book.access.grant("lead", acts=["see_as"])
    lead = api.with_token(book.access.tokens.create("lead").secret)
    look = lead("POST", "/v1/access/look_as", {"actor": "ada"}).body
    assert [event.payload["of"] for event in book.events(kinds=["access.viewed"])] == ["ada"]
    assert len(lead("GET", "/v1/memory/list", Commonplace_Look=look).body["items"]) == 1
    check_problem(lead("GET", "/v1/memory/list", Commonplace_Look="made-up"), 403, "denied")
    # What lead has looked at is no pass for others, nor for a token that may not look.
    ben = api.with_token(book.access.tokens.create("ben").secret)
    check_problem(ben("GET", "/v1/memory/list", Commonplace_Look=look), 403, "denied")
    narrow = api.with_token(book.access.tokens.create("lead", verbs=["memory.list"]).secret)
    check_problem(narrow("GET", "/v1/memory/list", Commonplace_Look=look), 403, "denied")


@pytest.mark.spec("7.4", "L11")
def test_no_client_makes_the_server_ask_another_host(book: Book, api: Api) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        embedder = f"openai:m@http://127.0.0.1:{other.getsockname()[1]}/internal"
        for path in ("/v1/admin/migrate_index", "/v1/memory/configure"):
            check_problem(api("POST", path, {"embedder": embedder}), 403, "denied")
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.accept()


@pytest.mark.spec("7.4")
def test_one_call_names_a_bounded_number_of_events(book: Book, api: Api) -> None:
    id = book.record("agent.spoke", payload={"text": "hello"}).id
    assert len(api("POST", "/v1/access/redacted", {"events": [id] * 3}).body) == 1
    typed = {"Content_Type": "application/vnd.commonplace+json"}
    for wrong in (5, [5], [str(number) for number in range(1_001)]):
        check_problem(api("POST", "/v1/access/redacted", {"events": wrong}, **typed), 400, "bad_input")


@pytest.mark.spec("7.4")
def test_a_version_that_was_read_guards_the_change(book: Book, api: Api) -> None:
    id = str(book.remember("The lift stops at four.").item_id)
    read = api("GET", "/v1/memory/get", query={"id": id})
    tag = read.headers["etag"]
    assert tag.startswith(f'"{read.body["position"]}-')
    again = api("GET", "/v1/memory/get", query={"id": id}, If_None_Match=tag)
    assert (again.status, again.body) == (304, b"")

    change = {"id": id, "text": "The lift stops at five."}
    assert api("POST", "/v1/memory/revise", change, If_Match=tag).status == 200
    late = api("POST", "/v1/memory/revise", {"id": id, "text": "At six."}, If_Match=tag)
    check_problem(late, 412, "stale")
    assert late.body["details"]
    assert api("GET", "/v1/memory/get", query={"id": id}, If_None_Match=tag).status == 200
    assert book.memory.get(id).text == "The lift stops at five."
    check_problem(api("POST", "/v1/memory/revise", change, If_Match='"abc"'), 400, "bad_input")
    check_problem(api("POST", "/v1/memory/share", {"id": id}, If_Match=tag), 400, "bad_input")
    assert api("POST", "/v1/memory/revise", {"id": id, "text": "At six."}, If_Match="*").status == 200
    both = api("POST", "/v1/memory/revise", {**change, "if_position": 10**6}, If_Match=tag)
    check_problem(both, 400, "bad_input")  # which of the two would count?


@pytest.mark.spec("7.4", "2.9")
@pytest.mark.parametrize("path", ["documents/notes", "documents/get?path=NOTES.md"])
def test_what_has_no_version_of_its_own_is_read_changed_and_written_back(
    path: str, book: Book, api: Api
) -> None:
    text = "# Notes\n\nObjective: "
    for objective in ("move the shop", "open the shop"):
        read = api("GET", f"/v1/{path}")
        tag = read.headers["etag"]
        book.record("agent.spoke")  # what else happens is no change of it
        assert api("GET", f"/v1/{path}", If_None_Match=tag).status == 304
        write = {"text": text + objective}
        assert api("POST", "/v1/documents/write_notes", write, If_Match=tag).status == 200
        late = api("POST", "/v1/documents/write_notes", {"text": text + "close it"}, If_Match=tag)
        check_problem(late, 412, "stale")
    past = api("GET", f"/v1/documents/notes?at={book.head - 1}")
    late = api("POST", "/v1/documents/write_notes", write, If_Match=past.headers["etag"])
    check_problem(late, 412, "stale")
    assert book.documents.notes().rstrip().endswith("open the shop")


@pytest.mark.spec("7.4")
def test_the_book_says_as_whom_a_request_acts(api: Api) -> None:
    about = api("GET", "/v1/book", Commonplace_Actor="ben", Commonplace_Scope="users/alice").body
    assert (about["actor"], about["scope"]) == ("ben", "users/alice")


@pytest.mark.spec("7.4")
def test_a_call_that_is_sent_again_is_made_once(book: Book, api: Api) -> None:
    note = {"text": "The lift stops at four."}
    first = api("POST", "/v1/remember", note, Idempotency_Key="k1")
    again = api("POST", "/v1/remember", note, Idempotency_Key="k1")
    assert first.body == again.body
    assert again.headers["commonplace-key"] == "seen"
    stranger = api.with_token("cpl_0_x")("POST", "/v1/remember", note, Idempotency_Key="k1")
    assert "commonplace-key" not in stranger.headers  # it says nothing of the first call
    assert first.body["outcome"] == "stored"
    position = book.head
    other = api("POST", "/v1/remember", {"text": "Something else."}, Idempotency_Key="k1")
    check_problem(other, 409, "conflict")
    check_problem(api("POST", "/v1/remember", note, Idempotency_Key=""), 400, "bad_input")
    check_problem(api("POST", "/v1/remember", note, Idempotency_Key="k" * 201), 400, "bad_input")
    assert book.head == position
    # Keys of two actors are two keys.
    ada = api.with_token(book.access.tokens.create("ada").secret)
    stairs = {"text": "The stairs are steep."}
    assert ada("POST", "/v1/remember", stairs, Idempotency_Key="k1").body["outcome"] == "stored"


@pytest.mark.spec("7.4")
def test_what_was_refused_may_be_sent_again_with_its_key(book: Book, api: Api) -> None:
    call = {"name": "the lift", "id": "lift"}
    ada = api.with_token(book.access.tokens.create("ada").secret)
    check_problem(ada("POST", "/v1/admin/rebuild", {}, Idempotency_Key="a"), 403, "denied")
    check_problem(api("POST", "/v1/memory/get", {"id": "x"}, Idempotency_Key="b"), 404, "not_found")
    assert api("POST", "/v1/work", call, Idempotency_Key="c").status == 200
    assert api("POST", "/v1/work", call, Idempotency_Key="c").status == 200
    assert len(book.works.list()) == 1


@pytest.mark.spec("7.4")
def test_a_task_is_claimed_and_completed_with_what_the_claim_has_answered(book: Book, api: Api) -> None:
    book.work(name="lift", id="lift").add_tasks([{"title": "measure the shaft"}, {"title": "order the rope"}])
    ada = api.with_token(book.access.tokens.create("ada").secret)
    claim = ada("POST", "/v1/work/claim", {"work": "lift"}).body
    assert (claim["agent"], claim["task"]["title"]) == ("ada", "measure the shaft")
    ids = {"task": claim["task"]["id"], "token": claim["token"]}
    assert ada("POST", "/v1/claim/complete", ids).body["status"] == "completed"
    following = ada("POST", "/v1/work/claim_many", {"work": "lift", "count": 5}).body
    assert [each["task"]["title"] for each in following] == ["order the rope"]
    assert ada("POST", "/v1/work/claim", {"work": "lift"}).body is None


@pytest.mark.spec("7.4")
def test_a_call_that_was_sent_to_an_earlier_process(book: Book, api: Api) -> None:
    """Its outcome is known where the id comes from the key, and otherwise the answer says that it is not."""
    with serving(book) as earlier:
        before = Api(earlier.url, book.access.tokens.create("owner").secret)
        sent_to = before("GET", "/v1/head").headers["commonplace-instance"]
        note = {"text": "The lift stops at four."}
        first = before("POST", "/v1/remember", note, Idempotency_Key="k1")
        work = book.work(name="lift")
        begun = {"work": work.id, "title": "measure the shaft"}
        assert before("POST", "/v1/work/add_task", begun, Idempotency_Key="k2").status == 200
    after = Api(api.url, before.token)
    again = after("POST", "/v1/remember", note, Idempotency_Key="k1", Commonplace_Sent_To=sent_to)
    assert again.body["item_id"] == first.body["item_id"]
    assert len(book.memory.list(agent="owner")) == 1
    assert len(work.tasks()) == 1
    task = after("POST", "/v1/work/add_task", begun, Idempotency_Key="k2", Commonplace_Sent_To=sent_to)
    assert task.status == 200
    assert len(work.tasks()) == 1
    nudge = {"work": work.id, "text": "look", "target": "dev"}
    unknown = after("POST", "/v1/work/nudge", nudge, Idempotency_Key="k3", Commonplace_Sent_To=sent_to)
    check_problem(unknown, 504, "outcome_unknown")
    assert list(book.events(kinds=["work.nudged"])) == []


@pytest.mark.spec("7.4", "L4")
def test_an_id_that_is_null_is_none(book: Book, api: Api) -> None:
    event = {"kind": "agent.spoke", "payload": {"text": "hello"}, "id": None}
    token = book.access.tokens.create("owner").secret
    with serving(book) as earlier:
        before = Api(earlier.url, token)
        sent_to = before("GET", "/v1/head").headers["commonplace-instance"]
        first = before("POST", "/v1/record", event, Idempotency_Key="k").body
    after = api.with_token(token)(
        "POST", "/v1/record", event, Idempotency_Key="k", Commonplace_Sent_To=sent_to
    )
    assert after.body["id"] == first["id"]
    assert len(list(book.events(kinds=["agent.spoke"]))) == 1


@pytest.mark.spec("7.4", "5.3", "L4")
def test_a_claim_is_answered_again_by_the_next_server_and_no_other_claim_is(book: Book, api: Api) -> None:
    work = book.work(name="lift")
    shaft, rope = (work.add_task(title) for title in ("measure the shaft", "order the rope"))
    token = book.access.tokens.create("ada").secret
    claim = {"work": work.id, "task": shaft.id}
    with serving(book) as earlier:
        first = Api(earlier.url, token)("POST", "/v1/work/claim", claim, Idempotency_Key="k").body
    ada = api.with_token(token)
    assert ada("POST", "/v1/work/claim", claim, Idempotency_Key="k").body["token"] == first["token"]
    for other in ({**claim, "task": rope.id}, {**claim, "agent": "bob"}):
        check_problem(ada("POST", "/v1/work/claim", other, Idempotency_Key="k"), 409, "conflict")
    assert list(book.events(kinds=["access.denied"])) == []
    assert work.task(rope).info().status == "pending"
    done = {"task": shaft.id, "token": first["token"]}
    following = ada("POST", "/v1/claim/next", done, Idempotency_Key="n").body
    with serving(book) as later:
        again = Api(later.url, token)
        assert again("POST", "/v1/claim/next", done, Idempotency_Key="n").body["token"] == following["token"]
        other = {"task": rope.id, "token": following["token"]}
        check_problem(again("POST", "/v1/claim/next", other, Idempotency_Key="n"), 409, "conflict")
    assert work.task(rope).info().status == "in_progress"


@pytest.mark.spec("7.4", "5.3")
def test_a_gate_with_a_key_lies_with_its_task(api: Api) -> None:
    """The id that a gate takes is its task's: no key stands for that."""
    gate = {"task": "Login", "gate": "PLAN", "decision": "GO"}
    assert api("POST", "/v1/documents/record_gate", gate, Idempotency_Key="g").status == 200
    assert '"GO"' in str(api("GET", "/v1/documents/gates", query={"task": "Login"}).body)


@pytest.mark.spec("7.4")
def test_a_fork_is_a_write(book: Book, api: Api) -> None:
    book.run(run_id="r")
    assert api("GET", "/v1/runs/fork", query={"run_id": "r"}).status == 405
    made = [
        api("POST", "/v1/runs/fork", {"run_id": "r"}, Idempotency_Key="f").body["run_id"] for _ in range(2)
    ]
    assert made[0] == made[1]
    assert len(book.runs.list()) == 2


@pytest.mark.spec("7.4")
def test_events_come_in_pages(book: Book, api: Api) -> None:
    book.record_all([{"kind": "agent.spoke", "payload": {"n": n}} for n in range(25)])
    seen, after = [], 0
    while True:
        page = api("GET", "/v1/events", query={"limit": 10, "after": after}).body
        seen += [event["payload"]["n"] for event in page["events"] if event["kind"] == "agent.spoke"]
        if page["next"] is None:
            break
        after = page["next"]
    assert seen == list(range(25))
    for n in range(25):
        book.remember(f"Room {n} has {n + 3} windows, and a door of its own.", key=f"room.{n}")
    keys: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        listed = api("GET", "/v1/memory/list", query={"limit": 10, **cursor}).body
        keys += [item["key"] for item in listed["items"]]
        if not listed["cursor"]:
            break
        cursor = {"after": listed["cursor"]}
    assert keys == [f"room.{n}" for n in range(25)]


# streams


@contextmanager
def stream(api: Api, path: str = "/v1/watch", **headers: str) -> Iterator[Iterator[dict[str, str]]]:
    """The events of a stream, each as its fields."""
    http = urllib3.PoolManager(retries=False, timeout=LONG)
    given = {"Authorization": f"Bearer {api.token}", **{k.replace("_", "-"): v for k, v in headers.items()}}
    got = http.request("GET", api.url + path, headers=given, preload_content=False)
    assert (got.status, got.headers["content-type"]) == (200, "text/event-stream; charset=utf-8"), got.data

    def events() -> Iterator[dict[str, str]]:
        rest, one = b"", dict[str, str]()
        while chunk := got.read1(65536):
            *rows, rest = (rest + chunk).split(b"\n")
            for row in rows:
                if not row and one:
                    yield one
                    one = {}
                elif row and not row.startswith(b":"):
                    name, _, value = row.decode().partition(": ")
                    one[name] = value

    try:
        yield events()
    finally:
        got.close()


@pytest.mark.spec("7.4")
def test_a_stream_goes_on_after_the_last_event_that_came(book: Book, api: Api) -> None:
    for n in range(3):
        book.record("agent.spoke", payload={"n": n})
    with stream(api, "/v1/watch?after=0") as events:
        first = next(events)
        assert (first["id"], first["event"], json.loads(first["data"])["payload"]) == (
            "1",
            "agent.spoke",
            {"n": 0},
        )
    with stream(api, Last_Event_ID=first["id"]) as events:
        assert [next(events)["id"] for _ in range(2)] == ["2", "3"]
        book.record("agent.spoke", payload={"n": 3})  # as it happens
        assert json.loads(next(events)["data"])["payload"] == {"n": 3}
    check_problem(api("GET", "/v1/watch", Last_Event_ID="yesterday"), 400, "bad_input")
    check_problem(api("GET", "/v1/watch?after=-1"), 400, "bad_input")


@pytest.mark.spec("7.4", "L12")
def test_a_stream_shows_what_the_actor_may_see_and_ends_with_its_token(book: Book, api: Api) -> None:
    made = book.access.tokens.create("ada")
    ada = api.with_token(made.secret)
    book.as_actor("ben").remember("Ben keeps this to himself.")
    book.remember("All may know this.", shared=True)
    with stream(ada, "/v1/watch?after=0") as events:
        book.record("agent.spoke", actor="ada", payload={"text": "hello"})
        seen: list[dict[str, str]] = []
        while not seen or seen[-1].get("event") != "agent.spoke":
            seen.append(next(events))
        assert "Ben keeps" not in json.dumps(seen)
        assert "All may know" in json.dumps(seen)
        book.access.tokens.revoke(made.id)
        rest = list(events)  # which ends
        assert json.loads(rest[-1]["data"])["code"] == "unauthorized"
    with pytest.raises(AssertionError, match="401"), stream(ada):
        pass


# limits


@contextmanager
def limited(book: Book, **limits: Any) -> Iterator[tuple[Served, Api]]:
    with serving(book, ServerLimits(**limits)) as server:
        yield server, Api(server.url, server.token)


@pytest.mark.spec("7.4")
def test_a_body_has_a_limit_also_where_its_length_is_not_told(book: Book) -> None:
    with limited(book, body=1_000) as (server, api):
        large = json.dumps({"text": "x" * 2_000}).encode()
        check_problem(api("POST", "/v1/remember", large), 413, "too_large")
        with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), LONG) as raw:
            raw.sendall(
                b"POST /v1/remember HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
                b"Authorization: Bearer " + server.token.encode() + b"\r\n\r\n"
            )
            raw.sendall(b"".join(b"200\r\n" + b"x" * 512 + b"\r\n" for _ in range(4)) + b"0\r\n\r\n")
            assert raw.recv(1_000).startswith(b"HTTP/1.1 413")
        assert api("POST", "/v1/remember", {"text": "short"}).status == 200


@pytest.mark.spec("7.4")
def test_a_body_that_does_not_arrive_is_given_up(book: Book) -> None:
    with limited(book, body_seconds=0.1) as (server, api):
        with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), LONG) as raw:
            raw.sendall(
                b"POST /v1/remember HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n"
                b"Authorization: Bearer " + server.token.encode() + b"\r\n\r\n{"
            )
            assert raw.recv(1_000).startswith(b"HTTP/1.1 400")
        assert api("POST", "/v1/remember", {"text": "in time"}).status == 200


def begun(server: Served, method: str, path: str, body: bytes = b"", length: int = 0) -> socket.socket:
    """A connection on which a request was begun."""
    raw = socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), LONG)
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\n"
    raw.sendall(head.encode() + f"Content-Length: {length}\r\n\r\n".encode() + body)
    return raw


@pytest.mark.spec("7.4")
def test_the_bodies_of_one_token_take_so_much_room_and_no_more(book: Book) -> None:
    with limited(book, bodies_each=1_000) as (server, api):
        with begun(server, "POST", "/v1/remember", b"x" * 900, 5_000):
            while server.app._bodies.used < 900:
                time.sleep(0.01)
            check_problem(api("POST", "/v1/remember", {"text": "x" * 200}), 429, "too_many_requests")
            other = api.with_token(book.access.tokens.create("ada").secret)
            assert other("POST", "/v1/remember", {"text": "x" * 200}).status == 200
        while server.app._bodies.used:
            time.sleep(0.01)
        assert api("POST", "/v1/remember", {"text": "x" * 200}).status == 200


@pytest.mark.spec("7.4")
def test_a_token_has_a_few_files_on_their_way(book: Book) -> None:
    for _ in range(4):
        book.record("agent.spoke", payload={"text": "x" * 4_000_000})
    with limited(book, files_each=1) as (server, api):
        with begun(server, "GET", "/v1/admin/export") as raw:
            assert raw.recv(17) == b"HTTP/1.1 200 OK\r\n"
            check_problem(api("GET", "/v1/admin/export"), 429, "too_many_requests")
            assert api("GET", "/v1/head").status == 200
        while server.app._files.used:
            time.sleep(0.01)
        assert len(api("GET", "/v1/admin/export").body) > 16_000_000


@pytest.mark.spec("7.4", "L2")
def test_a_long_import_is_given_up_when_the_server_has_to_end(book: Book) -> None:
    notes = {"results": [{"id": str(n), "memory": f"The gate number {n} is open"} for n in range(50)]}
    with limited(book) as (server, api):
        server.app.ends_at = time.monotonic()
        ended = api("POST", "/v1/memory/import_", json.dumps(notes).encode(), Commonplace_File="mem0.json")
        check_problem(ended, 503, "closed")
        server.app.ends_at = None
        again = api("POST", "/v1/memory/import_", json.dumps(notes).encode(), Commonplace_File="mem0.json")
        assert again.status == 200
    assert len(book.memory.list(limit=100).items) == 50


@pytest.mark.spec("7.4")
def test_only_post_writes(book: Book, api: Api) -> None:
    for method in ("GET", "HEAD"):
        assert api(method, "/v1/remember", query={"text": "no"}).status == 405
    assert book.memory.list().items == ()
    assert api("HEAD", "/v1/memory/list").status == 200


@pytest.mark.spec("7.4")
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("work/board", {"work": None}),
        ("work/add_task", {"work": None, "title": "x"}),
        ("admin/find", {"metadata": {"$": "dict", "pairs": [[1, 2], [{"$": "tuple", "of": [1]}, 3]]}}),
        ("learn/phase_start", {"task": "t", "phase": {"$": "int", "hex": "f" * 9_000}}),
    ],
)
def test_bad_input_in_the_form_of_our_client_is_bad_input(api: Api, path: str, body: Any) -> None:
    typed = {"Content_Type": "application/vnd.commonplace+json"}
    check_problem(api("POST", f"/v1/{path}", body, **typed), 400, "bad_input")


@pytest.mark.spec("7.4", "L5")
def test_the_servers_own_files_are_not_named_and_their_trouble_is_told(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for verb in ("memory", "admin"):
        wrong = api("POST", f"/v1/{verb}/import_", b"no JSON", Commonplace_File="x.json")
        assert wrong.status == 400
        assert "x.json" in wrong.body["detail"]
        assert str(tmp_path) not in str(wrong.body)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    check_problem(api("POST", "/v1/memory/import_", b"{}", Commonplace_File="x.json"), 507, "storage_failed")
    check_problem(api("GET", "/v1/admin/export"), 507, "storage_failed")


@pytest.mark.spec("7.4")
def test_a_client_that_asks_too_often_is_told_when_to_come_again(
    book: Book, caplog: pytest.LogCaptureFixture
) -> None:
    with limited(book, rate=5) as (_, api), caplog.at_level(logging.INFO, "commonplace.http"):
        answers = [api("GET", "/v1/head") for _ in range(20)]
        refused = [answer for answer in answers if answer.status == 429]
        assert 0 < len(refused) <= 15
        check_problem(refused[0], 429, "too_many_requests")
        assert int(refused[0].headers["retry-after"]) >= 1
        (line,) = [each for each in caplog.messages if refused[0].headers["x-request-id"] in each]
        assert line.endswith(" actor=owner token=server")  # whose limit it is can be seen
        other = api.with_token(book.access.tokens.create("ada").secret)
        assert other("GET", "/v1/head").status == 200


class Calls:
    """Calls of some clients, and the answers of a server that remembers a few of them."""

    def __init__(self, **room: Any) -> None:
        self.repeats, self.made = Repeats[Rendered](**room), list[str]()
        self.gates: dict[str, asyncio.Event] = {}

    async def make(self, name: str, size: int) -> Rendered:
        self.made.append(name)
        if name in self.gates:
            await self.gates[name].wait()
        return Rendered(b"x" * size)

    async def __call__(
        self, client: str, name: str, *, size: int = 60, sent_after: float | None = None
    ) -> Rendered | None:
        make = partial(self.make, name, size)
        return await self.repeats.once(client, name, b"", make, sent_after=sent_after)


@pytest.mark.spec("7.4", "L4")
def test_a_call_that_has_failed_is_not_made_again_and_keeps_nothing_of_what_it_was_about() -> None:
    class Body:
        pass

    bodies = list[weakref.ref[Body]]()

    def work() -> Rendered:
        body = Body()
        bodies.append(weakref.ref(body))
        raise ZeroDivisionError("the server failed")

    async def play() -> None:
        repeats = Repeats[Rendered]()
        for error in (ZeroDivisionError, commonplace.OutcomeUnknown, commonplace.OutcomeUnknown):
            try:  # `pytest.raises` clears the frames of a traceback
                await repeats.once("a", "k", b"same", lambda: asyncio.to_thread(work))
                raise AssertionError
            except error as raised:
                assert "failed" in str(raised)  # noqa: PT017
            await asyncio.sleep(0)  # the step of the loop that has raised it holds it
            gc.collect()
            assert [body() for body in bodies] == [None]  # it was made once

    asyncio.run(play())


@pytest.mark.spec("7.4", "L4")
def test_one_client_does_not_push_out_what_another_may_repeat() -> None:
    async def play() -> None:
        once, before = Calls(most=2, most_bytes=100), time.monotonic()
        await once("ada", "a")
        for number in range(5):
            await once("ben", f"b{number}")
        await once("ada", "a", sent_after=before)
        assert once.made.count("a") == 1
        with pytest.raises(commonplace.OutcomeUnknown):
            await once("ben", "b0", sent_after=before)  # forgotten: it may have been made
        assert once.made.count("b0") == 1
        # What was sent after all that was forgotten is not among it: it never arrived.
        await once("ben", "b5", sent_after=time.monotonic())
        assert once.made.count("b5") == 1

    asyncio.run(play())


@pytest.mark.spec("7.4", "L4")
def test_a_call_under_way_is_never_forgotten_however_much_is_answered_meanwhile() -> None:
    async def play() -> None:
        once = Calls(most=3, most_bytes=100)
        once.gates["long"] = asyncio.Event()
        tries = [asyncio.create_task(once("ada", "long", size=500))]
        for number in range(20):
            await once("ada", f"a{number}")
        tries.append(asyncio.create_task(once("ada", "long", size=500)))
        await asyncio.sleep(0)
        once.gates["long"].set()
        assert [answer and len(answer.content) for answer in await asyncio.gather(*tries)] == [500, 500]
        # It took more room than there is, and its end has given all of that back.
        await asyncio.gather(*(once("ada", "again", size=10) for _ in range(5)))
        assert (once.made.count("long"), once.made.count("again")) == (1, 1)

    asyncio.run(play())


@pytest.mark.spec("7.4", "L4")
def test_what_was_forgotten_because_it_is_old_is_not_made_again() -> None:
    async def play() -> None:
        once, before = Calls(seconds=0.01), time.monotonic()
        once.gates["slow"] = asyncio.Event()
        slow = [asyncio.create_task(once("ada", "slow"))]
        await once("ada", "a")
        await once("ben", "b")
        while time.monotonic() < before + 0.05:
            await once("carl", "c")
        slow.append(asyncio.create_task(once("ada", "slow", sent_after=before)))
        for client, name in (("ada", "a"), ("ben", "b")):
            with pytest.raises(commonplace.OutcomeUnknown):
                await once(client, name, sent_after=before)
        once.gates["slow"].set()
        await asyncio.gather(*slow)
        assert [once.made.count(name) for name in ("a", "b", "slow")] == [1, 1, 1]

    asyncio.run(play())


@pytest.mark.spec("7.4")
def test_a_page_of_large_events_ends_early_and_nothing_is_left_out(book: Book) -> None:
    for number in range(10):
        book.record("agent.spoke", payload={"text": str(number) * 3_000})
    with limited(book, page_bytes=7_000) as (_, api):
        after, pages = 0, list[list[int]]()
        while after is not None:
            page = api("GET", f"/v1/events?after={after}").body
            pages.append([event["position"] for event in page["events"]])
            after = page["next"]
        assert [len(page) for page in pages] == [3, 3, 3, 1]
        assert [position for page in pages for position in page] == list(range(1, 11))
        with stream(api, "/v1/watch?after=0") as events:
            assert [next(events)["id"] for _ in range(10)] == [str(position) for position in range(1, 11)]
    with limited(book, page_bytes=1) as (_, api):
        assert len(api("GET", "/v1/events").body["events"]) == 1


@pytest.mark.spec("7.4")
def test_streams_and_calls_have_a_limit(book: Book) -> None:
    with limited(book, streams=1) as (_, api):
        with stream(api, "/v1/watch?after=0") as events:
            book.record("agent.spoke")
            next(events)
            check_problem(api("GET", "/v1/watch"), 429, "too_many_requests")
            assert api("GET", "/v1/head").status == 200
        book.record("agent.spoke")  # the server sees that the client is gone when it writes
        for _ in range(200):
            if api("GET", "/v1/watch?timeout=0").status == 200:
                break
            time.sleep(0.05)
        assert api("GET", "/v1/watch?timeout=0").status == 200
    with limited(book, at_once=0) as (_, api):
        busy = api("GET", "/v1/head")
        check_problem(busy, 429, "too_many_requests")
        assert busy.headers["retry-after"]
        assert api("GET", "/healthz").status == 200
        assert api("GET", "/readyz").status == 200


# the server itself


@pytest.mark.spec("7.4", "L5")
@pytest.mark.parametrize("path", ["/v1/head", "/mcp"])
def test_a_failure_of_the_server_is_a_problem_and_is_logged(
    path: str, book: Book, api: Api, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_token: str) -> None:
        raise ZeroDivisionError("the secret of the house")

    monkeypatch.setattr(book.access.tokens, "authenticate", fail)
    with caplog.at_level(logging.INFO, "commonplace.http"):
        failed = api.with_token("cpl_any")("GET", path)
    check_problem(failed, 500, "server_failed")
    assert "secret" not in str(failed.body)
    assert {"commonplace-instance", "cache-control", "x-content-type-options"} <= {*failed.headers}
    request = failed.headers["x-request-id"]
    failure, line = [record for record in caplog.records if request in record.getMessage()]
    assert failure.exc_info is not None
    assert "status=500" in line.getMessage()


@pytest.mark.spec("7.4")
def test_health_and_readiness_need_no_token(book: Book, api: Api) -> None:
    anybody = api.with_token(None)
    assert anybody("GET", "/healthz").body == {"status": "ok"}
    assert anybody("GET", "/readyz").body == {"status": "ready"}
    book.close()
    assert anybody("GET", "/healthz").status == 200
    closed = anybody("GET", "/readyz")
    assert (closed.status, closed.body["code"]) == (503, "closed")


@pytest.mark.spec("7.4")
def test_a_server_whose_threads_all_wait_for_the_book_is_ready(tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "team.db") as book, limited(book, threads=1, threads_each=1) as (_, api):
        calls = ThreadPoolExecutor(2)
        with book.ledger.store.begin():  # somebody else writes
            waiting = [calls.submit(api, "POST", "/v1/record", {"kind": "agent.spoke"}) for _ in range(2)]
            assert api.with_token(None)("GET", "/readyz").body == {"status": "ready"}
            assert not any(each.done() for each in waiting)
        assert [each.result().status for each in waiting] == [200, 200]


@pytest.mark.spec("7.4")
def test_a_request_has_an_id_and_a_line_in_the_log_without_content(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "commonplace.http"):
        api("POST", "/v1/remember", {"text": "a secret of the house"}, X_Request_Id="r-17")
        api("GET", "/v1/search", query={"query": "a secret of the house"}, Commonplace_Actor="ben")
        api("GET", "/v1/%0Aforged", X_Request_Id="bad\tid")
    first, second, third = [record.getMessage() for record in caplog.records]
    assert first.startswith("request=r-17 client=127.0.0.1 method=POST path=/v1/remember status=200 ms=")
    assert first.endswith(" actor=owner token=server")
    assert "path=/v1/search status=200" in second
    assert r'path="/v1/\nforged" status=404' in third
    assert "tid" not in third
    assert "secret of the house" not in caplog.text
    assert api("GET", "/v1/head", X_Request_Id="r-18").headers["x-request-id"] == "r-18"
