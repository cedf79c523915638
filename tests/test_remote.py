"""A book behind a server, as the one who opens it meets it: the same verbs, types and errors as of the book itself."""

from __future__ import annotations

import asyncio
import os
import pickle
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

import commonplace
from commonplace import Book, errors
from commonplace.errors import CommonplaceError, HiddenText
from commonplace.registry import every_verb, not_served
from commonplace.surfaces.http.messages import problem
from commonplace.surfaces.network import served as verbs_served
from commonplace.wire import incoming

from .served_stories import EXCLUDED
from .serving import Served, served

LONG = 60.0


class Both(NamedTuple):
    """A book, and the same book as it is behind a server."""

    here: Book
    there: Book
    server: Served


@pytest.fixture
def both() -> Iterator[Both]:
    with (
        commonplace.open("memory:") as here,
        served(here) as server,
        commonplace.open(server.url, token=server.token) as there,
    ):
        yield Both(here, there, server)


# the same answers


def _fill(book: Book) -> None:
    """Something of everything that can be asked for."""
    book.record(
        "agent.spoke", actor="ada", payload={"text": "the lift", "n": 2**70, "x": 0.1}, run_id="r0", turn=1
    )
    book.remember("The lift stops at the fourth floor.", tags=["lift"], pinned=True)
    book.remember(
        kind="fact", key="port", value={"of": ["database", 5433, None, 2**60]}, sensitivity="private"
    )
    book.remember("Held for a person.", trust="low")
    book.forget(book.remember("Nobody needs this.").id, confirm="FORGET")
    book.access.grant("ada", role="developer")
    book.access.tokens.create("ada", label="laptop")
    book.documents.log("The build is green.")
    book.documents.write_notes("# Doors\n\n- Close them.\n")
    book.digest("the lift")
    book.prompt("the lift")
    with book.run(run_id="r1", initial={"topic": "tea"}) as run, run.agent("ada") as me:
        me.write({"answer": 42})
    work = book.work(name="auth", goal="Add JWT", id="auth")
    work.add_tasks([{"title": "one", "id": "t1"}, {"title": "two", "id": "t2", "depends_on": ["t1"]}])
    claim = work.claim("dev")
    assert claim is not None
    claim.decide(question="Which?", choice="HS256", alternatives=["RS256"], rationale="short")
    claim.discover("Tokens end.")
    claim.artifact("a.txt", content="made")
    claim.complete("done", learnings=["be quick"])
    work.nudge("look", target="dev")
    book.thread("t").add([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}])


def _calls(book: Book) -> dict[str, Callable[[Any], Any]]:
    """A call of every verb that only reads and writes no file, by its path. The ids are those of `_fill`."""
    item = book.memory.list().items[0].id
    receipt = book.receipts.list()[0].id
    artifact = book.work(id="auth").records("artifact")[0].id
    document = book.documents.list()[0]
    path = getattr(document, "path", document)

    def work(b: Any) -> Any:
        return b.work(id="auth")

    def run(b: Any) -> Any:
        return b.runs.get("r1")

    return {
        "event": lambda b: b.event(next(iter(book.events())).id),
        "events": lambda b: list(b.events(kinds=["agent.spoke", "memory.remembered"])),
        "search": lambda b: b.search("lift"),
        "inbox": lambda b: b.inbox(),
        "memory.get": lambda b: b.memory.get(item),
        "memory.history": lambda b: b.memory.history(item),
        "memory.list": lambda b: b.memory.list(),
        "memory.long_term": lambda b: b.memory.long_term(),
        "memory.markdown": lambda b: b.memory.markdown(),
        "memory.held": lambda b: b.memory.held(),
        "memory.disputes": lambda b: b.memory.disputes(),
        "memory.tombstones": lambda b: b.memory.tombstones(),
        "memory.settings": lambda b: b.memory.settings(),
        "memory.core": lambda b: b.memory.core("none"),
        "memory.cores": lambda b: b.memory.cores(),
        "memory.suggestions": lambda b: b.memory.suggestions(),
        "memory.traverse": lambda b: b.memory.traverse(item),
        "documents.days": lambda b: b.documents.days(),
        "documents.day": lambda b: b.documents.day(b.documents.days()[0]),
        "documents.notes": lambda b: b.documents.notes(),
        "documents.check_notes": lambda b: b.documents.check_notes(),
        "documents.session": lambda b: b.documents.session("t1"),
        "documents.task": lambda b: b.documents.task("t1"),
        "documents.gates": lambda b: b.documents.gates("t1"),
        "documents.list": lambda b: b.documents.list(),
        "documents.get": lambda b: b.documents.get(path),
        "learn.prior_runs": lambda b: b.learn.prior_runs("w"),
        "learn.reflection_due": lambda b: b.learn.reflection_due(),
        "learn.patterns": lambda b: b.learn.patterns(),
        "learn.hygiene": lambda b: b.learn.hygiene(),
        "learn.check_fact": lambda b: b.learn.check_fact("lift", "it stops"),
        "learn.context_start": lambda b: b.learn.context_start(),
        "learn.resume": lambda b: b.learn.resume("t1"),
        "learn.verified": lambda b: b.learn.verified("t1"),
        "receipts.get": lambda b: b.receipts.get(receipt),
        "receipts.list": lambda b: b.receipts.list(),
        "receipts.changed_facts": lambda b: b.receipts.changed_facts(),
        "receipts.window": lambda b: b.receipts.window(),
        "receipts.salient": lambda b: b.receipts.salient(),
        "runs.list": lambda b: b.runs.list(),
        "runs.state": lambda b: b.runs.state("r1"),
        "works.list": lambda b: b.works.list(),
        "threads.list": lambda b: b.threads.list(),
        "access.tokens.list": lambda b: b.access.tokens.list(),
        "access.rights": lambda b: b.access.rights("ada"),
        "access.audit": lambda b: list(b.access.audit()),
        "admin.status": lambda b: b.admin.status(),
        "work.info": lambda b: work(b).info(),
        "work.manage.outlook": lambda b: work(b).manage.outlook(),
        "work.counts": lambda b: work(b).counts(),
        "work.tasks": lambda b: work(b).tasks(),
        "work.ready": lambda b: work(b).ready("dev"),
        "work.board": lambda b: work(b).board(),
        "work.critical_path": lambda b: work(b).critical_path(),
        "work.graph": lambda b: work(b).graph(),
        "work.records": lambda b: work(b).records("decision"),
        "work.content": lambda b: work(b).content(artifact),
        "work.contributions": lambda b: work(b).contributions(),
        "work.inbox": lambda b: work(b).inbox(),
        "work.context_for": lambda b: work(b).context_for("t2"),
        "work.candidates": lambda b: work(b).candidates(),
        "task.info": lambda b: work(b).task("t1").info(),
        "task.radar": lambda b: work(b).task("t2").radar(),
        "run.state": lambda b: run(b).state(),
        "run.status": lambda b: run(b).status,
        "run.policy": lambda b: run(b).policy,
        "run.depth": lambda b: run(b).depth,
        "turn.state": lambda b: run(b).agent("ada").state,
        "thread.id": lambda b: b.thread("t").id,
        "thread.messages": lambda b: b.thread("t").messages(),
    }


def _outcome(call: Callable[[Any], Any], book: Any) -> Any:
    """What a call answers: its type, its value and how it prints; or the error it raises."""
    try:
        answer = call(book)
    except CommonplaceError as error:
        return type(error), str(error), vars(error)
    if isinstance(answer, str):
        return (
            type(answer),
            str(answer),
            dict(vars(answer)) if hasattr(answer, "__dict__") else {},
        )
    return type(answer), answer, str(answer)


@pytest.mark.spec("7.4")
def test_every_verb_that_reads_answers_the_same_as_the_book_itself(both: Both) -> None:
    _fill(both.here)
    calls = _calls(both.here)
    reading = {path for path, verb in verbs_served().items() if verb.reads and not verb.facts.writes_file}
    assert set(calls) == reading
    head = both.here.head
    for path, call in calls.items():
        expected, answered = _outcome(call, both.here), _outcome(call, both.there)
        if path == "search":  # when it was asked differs
            assert [hit.id for hit in answered[1]] == [hit.id for hit in expected[1]]
            assert answered[0] is expected[0]
            continue
        assert answered == expected, path
    assert both.here.head == head  # and nothing was written by any of them


HOSTILE: dict[str, Any] = {
    "NUL": {"text": "a\0b"},
    "a lone surrogate": {"text": "a\ud800b"},
    "NaN": {"x": float("nan")},
    "infinity": {"x": -float("inf")},
    "a huge integer": {"n": 10**400},
    "an integer of too many digits": {"n": 10**5_000},
    "10 MB": {"text": "x" * 10_000_000},
    "a key that is no text": {1: 2},
    "an object": {"x": object()},
    "bytes": {"x": b"\xff"},
    "no mapping": ["x"],
    "the mark of a type": {"$": "int", "hex": "zz"},
    "the mark of a handle": {"$": "handle", "kind": "work", "ids": {}},
    "a set": {"x": {1}},
}


def _deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"x": value}
    return value


@pytest.mark.spec("7.4", "L12")
@pytest.mark.parametrize("what", [*HOSTILE, "depth 127", "depth 129", "depth 10,000"])
def test_hostile_values_have_the_same_outcome(both: Both, what: str) -> None:
    levels = {"depth 127": 127, "depth 129": 129, "depth 10,000": 10_000}
    payload = _deep(levels[what]) if what in levels else HOSTILE[what]
    outcomes: list[object] = []
    for number, book in enumerate((both.here, both.there)):
        try:
            made = book.record("agent.spoke", payload=payload, id=f"e{number}")
            outcomes.append(made.payload)
        except CommonplaceError as error:
            outcomes.append(type(error))
    assert outcomes[0] == outcomes[1]


@pytest.mark.spec("7.4", "L12")
@pytest.mark.parametrize("name", ["a\0b", "a\ud800", "x" * 100_000, "", "ä/ö %2f", "a\nb"])
def test_hostile_names_have_the_same_outcome(both: Both, name: str) -> None:
    calls: list[Callable[[Any], Any]] = [
        lambda b: b.as_actor(name).record("a.b").actor,
        lambda b: b.as_actor("bot", scope=name).memory.list().items,
        lambda b: list(b.events(run_id=name)),
        lambda b: b.thread(name).messages(),
        lambda b: b.run(run_id=name, create=False),
        lambda b: b.work(id=name).info(),
    ]
    for call in calls:
        outcomes = []
        for book in (both.here, both.there):
            try:
                outcomes.append(call(book))
            except CommonplaceError as error:
                outcomes.append(type(error))
        assert outcomes[0] == outcomes[1]


# the same errors


def _made() -> list[CommonplaceError]:
    """One of every class of errors, with all that it can hold."""
    special: dict[str, CommonplaceError] = {
        "Conflict": errors.Conflict("both", [{"base": 1, "fork": "x"}, {"base": None}]),
        "BadMove": errors.BadMove("t1", "completed", "pending", ["archived"]),
        "Cycle": errors.Cycle(["a", "b", "a"]),
        "ContractViolation": errors.ContractViolation("ada", [{"field": "x", "rule": "is required"}]),
        "Corrupt": errors.Corrupt("bad bytes", 7),
        "RunFailed": errors.RunFailed("it failed", "r1", [{"node": "a"}]),
        "OutcomeUnknown": errors.OutcomeUnknown(["e1", "e2"], "the power went"),
    }
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, CommonplaceError)
    ]
    return [special.get(kind.__name__) or kind(f"what {kind.__name__} says: ä") for kind in kinds]


@pytest.mark.spec("7.4")
@pytest.mark.parametrize("raised", _made(), ids=lambda error: type(error).__name__)
def test_every_error_is_the_same_behind_a_server(
    both: Both, raised: CommonplaceError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr("commonplace.surfaces.network.call", fails)
    with commonplace.open(both.server.url, token=both.server.token, timeout=0.3) as there:
        with pytest.raises(CommonplaceError) as met:
            there.memory.settings()
    assert type(met.value) is type(raised)
    assert str(met.value) == str(raised)
    assert met.value.as_dict() == raised.as_dict()
    assert {name: getattr(met.value, name) for name in vars(raised)} == vars(raised)
    assert problem(raised, "").status_code == met.value.status


# who acts


@pytest.mark.spec("7.4", "3.8")
def test_it_acts_as_the_actor_of_its_token(both: Both) -> None:
    token = both.here.access.tokens.create("ada", scope="users/ada").secret
    with commonplace.open(both.server.url, token=token) as ada:
        assert ada.remember("mine alone").outcome == "stored"
        [event] = [event for event in both.here.events() if event.actor == "ada"]
        assert both.here.as_actor("bob", scope="users/bob").memory.list().items == ()
        for act in (
            lambda: ada.as_actor("bob").memory.list(),
            lambda: ada.admin.status(),
            lambda: ada.as_actor("ada", scope="users/bob").memory.list(),
        ):
            with pytest.raises(errors.Denied):
                act()
        assert ada.event(event.id).id == event.id
    with pytest.raises(errors.Unauthorized):
        commonplace.open(both.server.url, token="cpl_wrong")
    with pytest.raises(errors.Unauthorized, match="token=.*COMMONPLACE_TOKEN"):
        commonplace.open(both.server.url)


@pytest.mark.spec("3.8")
def test_looking_through_anothers_eyes_needs_the_right_at_every_call(both: Both) -> None:
    both.here.as_actor("ada").remember("only ada sees this")
    both.here.access.grant("lena", role="analyst")
    token = both.here.access.tokens.create("lena").secret
    with commonplace.open(both.server.url, token=token) as lena:
        eyes = lena.access.look_as("ada")
        assert len(eyes.memory.list().items) == 1
        assert len(lena.memory.list().items) == 0
        with pytest.raises(errors.Denied):
            eyes.remember("not by looking")
        assert len(list(both.here.events(kinds=["access.viewed"]))) == 1
        both.here.access.grant("lena", role="developer")
        with pytest.raises(errors.Denied, match="eyes"):
            eyes.memory.list()


# what differs


def test_what_is_not_served_says_so_before_anything_is_sent(both: Both, tmp_path: Any) -> None:
    _fill(both.here)
    for act in (
        lambda: both.there.memory.import_(tmp_path),
        lambda: both.there.admin.proof(both.there.admin.find("lift"), tmp_path / "x"),
        lambda: both.there.admin.copy(both.here),
        lambda: both.there.runs.execute(tmp_path),
        lambda: both.there.run(tmp_path),
        lambda: both.there.mirror,
        lambda: both.there.thread("t").learn(lambda _prompt: ""),
        lambda: both.there.digest("x", count_tokens=len),
        lambda: both.there.ledger.submit("x", None),
        lambda: both.there.access.tokens.authenticate("x"),
        lambda: both.there.runs.get("r1").save(),
    ):
        with pytest.raises(errors.NotEnabled):
            act()
    for option in ({"durability": "process"}, {"mirror": True}, {"count_tokens": len}, {"name": "x"}):
        with pytest.raises(errors.BadInput, match="behind a server"):
            commonplace.open(both.server.url, token=both.server.token, **option)


def test_every_verb_is_served_or_is_listed_with_its_reason() -> None:
    reasons = {verb.dotted: not_served(verb) for verb in every_verb(properties=True)}
    assert {path for path, why in reasons.items() if not why} == set(verbs_served())
    for verb in verbs_served().values():  # no caller names a file of the server's host
        facts = verb.facts
        of_files = {*facts.of_host, facts.reads_file, facts.writes_file}
        assert not of_files & {parameter.name for parameter in verb.parameters}, verb.path


# asyncio


@pytest.mark.spec("7.8")
def test_the_same_verbs_for_asyncio(both: Both) -> None:
    async def story() -> None:
        book = both.there.aio
        assert (await book.record("agent.spoke", payload={"n": 1})).position == 1
        ada = await book.as_actor("ada")
        assert (await ada.remember("tea")).outcome == "stored"
        async with await book.run(run_id="r") as run:
            async with await run.agent("ada") as me:
                await me.write({"answer": 42})
            assert (await run.state())["ada"]["answer"] == 42
        work = await book.work(name="w")
        await work.add_tasks([{"title": f"t{number}"} for number in range(3)])
        async with await work.claim("dev") as claim:
            await claim.complete("done")
        thread = await book.thread("t")
        assert (await thread.add({"role": "user", "content": "hi"})).added == 1

        async def handler(claim: Any) -> str:
            await claim.discover("found")
            return "fine"

        assert (await work.worker("dev", handler)).completed == 2
        with pytest.raises(errors.NotFound):
            await book.event("nothing")

    asyncio.run(asyncio.wait_for(story(), LONG))


@pytest.mark.spec("7.8")
def test_asyncio_watches_and_can_be_cancelled(both: Both) -> None:
    async def story() -> None:
        book, seen = both.there.aio, []

        async def follow() -> None:
            async for event in book.watch(after=0, kinds=["agent.spoke"]):
                seen.append(event.payload["n"])
                if len(seen) == 3:
                    return

        following = asyncio.ensure_future(follow())
        for number in range(3):
            await book.record("agent.spoke", payload={"n": number})
        await following
        assert seen == [0, 1, 2]
        waiting = asyncio.ensure_future(follow())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(follow(), 0.2)

    asyncio.run(asyncio.wait_for(story(), LONG))


# threads, forks, the end


@pytest.mark.spec("7.4")
def test_many_threads_share_one_book(both: Both) -> None:
    def write(number: int) -> list[int]:
        me = both.there.as_actor(f"bot-{number}")
        return [me.record("agent.spoke", payload={"n": number}).position for _ in range(20)]

    with ThreadPoolExecutor(12) as threads:
        positions = [position for each in threads.map(write, range(12)) for position in each]
    assert sorted(positions) == list(range(1, 241))


def test_closing_ends_watchers_and_lets_calls_under_way_finish(both: Both) -> None:
    seen: list[Any] = []
    begun = threading.Event()

    def follow() -> None:
        for event in both.there.watch(after=0):
            seen.append(event)
            begun.set()

    watcher = threading.Thread(target=follow)
    watcher.start()
    both.there.record("agent.spoke")
    assert begun.wait(LONG)
    both.there.close()
    watcher.join(LONG)
    assert not watcher.is_alive()
    assert len(seen) == 1
    for call in (both.there.memory.list, lambda: both.there.record("a.b"), lambda: next(both.there.watch())):
        with pytest.raises(errors.BookClosed):
            call()
    both.there.close()
    assert both.here.record("agent.spoke").position == 2


def test_a_child_process_has_to_open_it_anew(both: Both) -> None:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            both.there.record("agent.spoke")
        except errors.ForkedBook:
            os.write(write, b"ForkedBook")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    assert os.read(read, 100) == b"ForkedBook"
    os.close(read)
    assert both.there.record("agent.spoke").position == 1


def test_it_cannot_be_pickled(both: Both) -> None:
    for held in (both.there, both.there.as_actor("ada"), both.there.work(name="w")):
        with pytest.raises(TypeError, match="open it in each process"):
            pickle.dumps(held)


# the token


def test_the_token_shows_nowhere(both: Both) -> None:
    token = both.server.token
    shown = [
        repr(both.there),
        str(both.there),
        repr(both.there._session),
        repr(vars(vars(both.there)["_connection"])),
    ]
    with pytest.raises(errors.NotFound) as missing:
        both.there.event("none")
    trace, values = missing.tb.tb_next, []  # from the first frame of the library on
    while trace is not None:
        values += [repr(value) for value in trace.tb_frame.f_locals.values() if not isinstance(value, Both)]
        trace = trace.tb_next
    assert not [text for text in (*shown, str(missing.value), *values) if token in text]
    assert repr(HiddenText("secret")) == "'(hidden)'"


@pytest.mark.parametrize("token", ["", " ", "a b", "a\nb", "ä", "a\r\nX: y"])
def test_what_is_no_token_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(errors.CommonplaceError) as refused:
        commonplace.open("http://127.0.0.1:9", token=token or "\t", timeout=0.1)
    assert isinstance(refused.value, errors.BadInput)


@pytest.mark.spec("7.4")
def test_a_token_is_not_sent_in_the_clear_to_other_hosts() -> None:
    with pytest.raises(errors.BadInput, match="not encrypted.*insecure=True"):
        commonplace.open("http://memory.example:8787", token="cpl_x_y", timeout=0.1)
    for url in (
        "http://user:pass@127.0.0.1:9",
        "http://127.0.0.1:9/?x=1",
        "http://",
        "http://127.0.0.1:99999",
    ):
        with pytest.raises(errors.BadInput) as refused:
            commonplace.open(url, token="cpl_x_y", timeout=0.1)
        assert "user:pass" not in str(refused.value)


def test_the_token_may_come_from_the_environment_or_a_file_of_ones_own(
    both: Both, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text(f"{both.server.token}\n")
    monkeypatch.delenv("COMMONPLACE_TOKEN", raising=False)
    monkeypatch.setenv("COMMONPLACE_TOKEN_FILE", str(file))
    file.chmod(0o644)
    with pytest.raises(errors.BadInput, match="chmod 600"):
        commonplace.open(both.server.url)
    file.chmod(0o600)
    with commonplace.open(both.server.url) as book:
        assert book.head == 0
    monkeypatch.setenv("COMMONPLACE_TOKEN", both.server.token)
    monkeypatch.setenv("COMMONPLACE_TOKEN_FILE", str(tmp_path / "none"))
    with commonplace.open(both.server.url) as book:
        assert book.head == 0
    monkeypatch.delenv("COMMONPLACE_TOKEN")
    with pytest.raises(errors.BadInput, match="cannot be read"):
        commonplace.open(both.server.url)


def test_what_an_answer_is_made_of_is_checked(both: Both) -> None:
    """An event keeps its exact bytes: what came over the wire has the hash of the book's own."""
    both.here.record("agent.spoke", payload={"n": 2**64, "x": 1.5e300, "t": "ä\u2028"})
    assert msgspec.structs.asdict(next(both.there.events())) == msgspec.structs.asdict(
        next(both.here.events())
    )


@pytest.mark.spec("7.4")
def test_the_page_lists_what_is_not_served() -> None:
    page = (Path(__file__).parent.parent / "docs" / "remote.md").read_text()
    rows = re.findall(r"^\| (`.*`) \| (it .*) \|$", page, re.MULTILINE)
    listed = {name: why for names, why in rows for name in re.findall(r"`([\w.]+)`", names)}
    every = {verb.dotted: not_served(verb) for verb in every_verb(properties=True)}
    assert listed == {path: why for path, why in every.items() if why}


def test_every_story_that_is_left_out_is_there() -> None:
    """A test that was renamed or removed leaves no reason behind."""
    source = "\n".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    left_out = [name for names in EXCLUDED.values() for name in names]
    assert [name for name in left_out if f"def {name}(" not in source] == []
    assert len(left_out) == len(set(left_out))


@pytest.mark.spec("7.4")
@pytest.mark.parametrize(
    "mark", ["__main__:x", "surfaces.cli:main", "os:system", "book:Book", "ledger.events:draft", ":"]
)
def test_a_server_makes_a_client_import_and_make_data_alone(mark: str) -> None:
    with pytest.raises(commonplace.BadInput):
        incoming({"$": mark, "value": "x", "more": {}}, lambda kind, ids: (kind, ids))
