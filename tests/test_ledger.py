"""Stories of the ledger, told on every engine."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

import commonplace
from commonplace import Blob, Book
from commonplace.access.rights import rights_of


def say(book: Book, text: str, actor: str = "ada", **more: object) -> commonplace.Event:
    return book.record("agent.spoke", actor=actor, payload={"text": text}, **more)  # type: ignore[arg-type]


@pytest.mark.spec("1.1", "L2", "L3")
def test_what_an_agent_records_is_there_for_the_next_one(book: Book) -> None:
    happened = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
    first = book.record(
        "agent.spoke",
        actor="ada",
        payload={"text": "hello", "n": [1, 2.5, None, True, {"deep": "ü 🙂 \x00 end"}]},
        run_id="r1",
        session_id="s-1",
        turn=3,
        occurred_at=happened,
        parents=["something earlier"],
        labels={"sensitivity": "private"},
        schema_version=4,
    )
    second = say(book, "and bye", actor="bob")

    assert [event.position for event in book.events()] == [1, 2]
    assert next(iter(book.events())) == first
    assert (first.position, first.turn, first.session_id, first.run_id) == (1, 3, "s-1", "r1")
    assert first.payload["n"][4]["deep"] == "ü 🙂 \x00 end"
    assert first.occurred_at == happened
    assert second.occurred_at == second.created_at
    assert second.created_at >= first.created_at
    assert book.event(second.id) == second
    assert book.head == 2
    assert len({first.hash, second.hash}) == 2


@pytest.mark.spec("1.2", "L4")
def test_sending_an_event_again_changes_nothing(book: Book) -> None:
    first = say(book, "once", id="my own id / with ünïcode")
    assert say(book, "once", id="my own id / with ünïcode") == first
    with pytest.raises(commonplace.Conflict, match="other content"):
        say(book, "something else", id="my own id / with ünïcode")
    with pytest.raises(commonplace.Conflict):
        say(book, "once", actor="eve", id="my own id / with ünïcode")
    assert book.head == 1


@pytest.mark.spec("1.2", "L4")
def test_a_batch_lands_whole_or_not_at_all(book: Book) -> None:
    say(book, "taken", id="taken")
    good = {"kind": "agent.spoke", "actor": "ada", "payload": {"text": "x"}}
    for bad in (
        {**good, "id": "taken"},
        {**good, "kind": "task.completed"},
        {**good, "payload": {"x": float("nan")}},
        {**good, "colour": "red"},
    ):
        with pytest.raises(commonplace.CommonplaceError):
            book.record_all([good, good, bad])
    assert book.head == 1

    stored = book.record_all([good, {**good, "id": "twice"}, {**good, "id": "twice"}])
    assert [event.position for event in stored] == [2, 3, 3]
    assert book.record_all([]) == []
    assert book.head == 3


@pytest.mark.spec("1.2")
def test_runs_stand_in_the_order_they_were_first_seen_and_can_be_read_alone(book: Book) -> None:
    for run, text in [("r2", "a"), ("r1", "b"), (None, "c"), ("r2", "d"), ("r1.", "e")]:
        say(book, text, run_id=run)
    assert [(run.id, run.first) for run in book.runs.list()] == [("r2", 1), ("r1", 2), ("r1.", 5)]
    assert [event.payload["text"] for event in book.events(run_id="r2")] == ["a", "d"]
    assert [event.position for event in book.events(run_id="r2", after=1)] == [4]
    assert list(book.events(run_id="r%")) == []


@pytest.mark.spec("1.2")
def test_events_are_chosen_by_kind_and_actor(book: Book) -> None:
    say(book, "a")
    book.record("world.observed", actor="runtime")
    say(book, "b", actor="bob")
    assert [event.position for event in book.events(kinds=["world.observed"])] == [2]
    assert [event.position for event in book.events(kinds="agent.spoke")] == [1, 3]
    assert [event.position for event in book.events(actor="bob")] == [3]


@pytest.mark.spec("L7")
def test_every_read_can_be_asked_as_of_then(book: Book) -> None:
    first = say(book, "one", run_id="r")
    second = say(book, "two", run_id="r")
    say(book, "three", run_id="s")

    assert [event.position for event in book.events(at=2)] == [1, 2]
    assert [run.id for run in book.runs.list(at=2)] == ["r"]
    assert book.runs.list(at=0) == []
    assert next(run.id for run in book.runs.list(at=second.created_at)) == "r"
    assert book.runs.list(at=first.created_at - timedelta(seconds=1)) == []
    assert book.ledger.position(datetime.now(UTC) + timedelta(days=1)) == 3
    with pytest.raises(commonplace.NotFound, match="as of then"):
        book.event(second.id, at=1)
    for nonsense in (4, -1, 1.5, "now", datetime(2026, 1, 1)):
        with pytest.raises(commonplace.BadInput):
            book.runs.list(at=nonsense)  # type: ignore[arg-type]


@pytest.mark.spec("1.2", "L3")
def test_a_watcher_sees_everything_in_order_and_ends_when_the_book_closes(book: Book) -> None:
    say(book, "0")
    seen: list[str] = []
    all_there = threading.Event()

    def follow() -> None:
        for event in book.watch(after=0):
            seen.append(event.payload["text"])
            if len(seen) == 21:
                all_there.set()

    thread = threading.Thread(target=follow)
    thread.start()
    for i in range(1, 21):
        say(book, str(i))
    assert all_there.wait(30)
    book.close()
    thread.join(30)
    assert not thread.is_alive()
    assert seen == [str(i) for i in range(21)]


@pytest.mark.spec("1.2")
def test_a_watcher_with_a_timeout_ends_when_nothing_comes(book: Book) -> None:
    say(book, "old")
    assert list(book.watch(timeout=0.05)) == []
    assert [event.position for event in book.watch(after=0, timeout=0.05)] == [1]


@pytest.mark.spec("1.3")
def test_the_chain_verifies(book: Book) -> None:
    assert book.verify().ok
    for i in range(10):
        say(book, str(i))
    result = book.verify()
    assert (result.ok, result.first_bad, result.events, result.head) == (True, None, 10, 10)
    assert result.hash == list(book.events())[-1].hash


@pytest.mark.spec("L10")
def test_erased_content_is_gone_from_every_read_and_so_is_what_was_derived(book: Book) -> None:
    secret = book.record("user.injected", payload={"text": "hunter2"}, id="secret", run_id="r")
    quote = say(book, "she said hunter2", parents=[secret.id], run_id="r")
    say(book, "reply to the quote: hunter2", parents=[quote.id])
    bystander = say(book, "unrelated", run_id="r")

    plan = book.erase("secret", dry_run=True)
    assert (len(plan.erased), plan.gone, book.event("secret").payload) == (3, False, {"text": "hunter2"})

    erasure = book.erase("secret", reason="asked to")
    assert erasure.gone
    assert set(erasure.erased) == {"secret", quote.id, list(book.events())[2].id}
    assert "hunter2" not in str([event.as_dict() for event in book.events()])
    assert [event.erased for event in book.events()] == [True, True, True, False, False]
    assert book.event(bystander.id).payload == {"text": "unrelated"}
    result = book.verify()
    assert (result.ok, result.erased) == (True, 3)
    assert [(run.id, run.first) for run in book.runs.list()] == [("r", 1)]
    assert len(list(book.events(run_id="r"))) == 3
    assert list(book.events())[4].payload["reason"] == "asked to"

    with pytest.raises(commonplace.Erased):
        book.record("user.injected", payload={"text": "hunter2"}, id="secret", run_id="r")
    assert book.erase("secret").already
    assert book.head == 5
    with pytest.raises(commonplace.NotFound):
        book.erase(["secret", "no such event"])
    with pytest.raises(commonplace.BadInput, match="cannot be erased"):
        book.erase(list(book.events())[4].id)


@pytest.mark.spec("L7", "L10")
def test_a_snapshot_goes_on_showing_its_moment_while_another_process_erases(
    book: Book, book_url: str
) -> None:
    if book.admin.facts.engine == "memory":
        pytest.skip("such a book has no second handle")
    book.access.grant("ada", may_emit=["agent.spoke"])
    say(book, "hunter2", id="secret")
    with commonplace.open(book_url) as other, book.ledger.snapshot() as before:
        rights = rights_of(before, "ada")
        other.erase("secret")
        assert book.event("secret").erased
        assert rights_of(before, "ada") == rights
        assert rights.may_emit == ("agent.spoke",)
        assert before.position == 2


@pytest.mark.spec("L10")
def test_a_blob_lives_as_long_as_an_event_refers_to_it(book: Book) -> None:
    one = book.record("agent.made", payload={"file": Blob(b"content"), "same": [Blob(b"content")]})
    two = book.record("agent.made", payload={"copy": one.payload["file"]})
    digest = one.payload["file"]["$blob"]
    assert book.blob(digest) == b"content"
    book.erase(one.id)
    assert book.blob(digest) == b"content"
    book.erase(two.id)
    with pytest.raises(commonplace.NotFound, match="erased"):
        book.blob(digest)
    for path in ("../../etc/passwd", "", "x" * 64, digest.upper()):
        with pytest.raises(commonplace.NotFound):
            book.blob(path)


@pytest.mark.spec("1.5")
def test_kinds_with_an_owner_cannot_be_forged(book: Book) -> None:
    for kind in ("event.erased", "event.imported", "task.completed", "memory.item.created", "access.granted"):
        with pytest.raises(commonplace.OwnedKind, match="own"):
            book.record(kind, actor="mallory", payload={"task_id": "t1"})
    assert book.head == 0


@pytest.mark.spec("L1")
def test_views_deleted_and_rebuilt_answer_the_same(book: Book) -> None:
    for i in range(30):
        say(book, str(i), run_id=f"r{i % 3}", parents=["x"] if i % 5 == 0 else [])
    book.erase(list(book.events())[7].id)
    before = (book.runs.list(), book.runs.list(at=11))
    book.ledger.store.drop_spaces("")
    book.ledger.store.drop_spaces("no such space")
    rebuilt = book.rebuild()
    assert set(rebuilt.views) == set(book.admin.status().views) >= {"runs", "children", "blobs"}
    assert (book.runs.list(), book.runs.list(at=11)) == before
    say(book, "more", run_id="another")
    assert [run.id for run in book.runs.list()] == ["r0", "r1", "r2", "another"]


@pytest.mark.spec("1.2", "L3", "L4")
def test_many_threads_write_at_once(book: Book) -> None:
    def work(name: str) -> None:
        for i in range(25):
            book.record("agent.spoke", actor=name, payload={"i": i}, run_id="shared")

    threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = list(book.events())
    assert [event.position for event in events] == list(range(1, 201))
    for n in range(8):
        assert [event.payload["i"] for event in events if event.actor == f"t{n}"] == list(range(25))
    assert [event.position for event in book.events(run_id="shared")] == list(range(1, 201))
    assert book.verify().ok


def test_a_closed_book_says_so(book: Book) -> None:
    book.close()
    book.close()
    for use in (lambda: say(book, "x"), lambda: book.head, lambda: list(book.events()), book.verify):
        with pytest.raises(commonplace.BookClosed):
            use()


@pytest.mark.spec("5.8", "7.4")
def test_threads_that_read_while_they_read_do_not_wait_for_each_other(book_url: str) -> None:
    """However many they are: an engine on a server has fewer connections than a busy process has threads."""
    count = 20
    with commonplace.open(book_url, timeout=5) as book, ThreadPoolExecutor(count) as threads:
        say(book, "hello")
        begun = threading.Barrier(10)

        def read_twice(_: int) -> list[str]:
            with book.ledger.snapshot():
                begun.wait(30)  # for ten of them; the other ten begin when these have ended, or with them
                return [event.payload["text"] for event in book.events()]

        assert list(threads.map(read_twice, range(count))) == [["hello"]] * count


@pytest.mark.spec("L2")
def test_a_book_that_is_opened_again_holds_what_it_held(book_url: str) -> None:
    if book_url == "memory:":
        with commonplace.open(book_url) as book:
            assert book.admin.facts.durable == "no"
        return
    with commonplace.open(book_url, name="named" if "book=" not in book_url else None) as book:
        written = [say(book, str(i), run_id="r", id=f"id-{i}") for i in range(3)]
        identity = (book.id, book.name)
        book.erase("id-1")
    with commonplace.open(book_url, create=False) as book:
        assert (book.id, book.name) == identity
        assert book.event("id-2") == written[2]
        assert book.event("id-1").erased
        assert book.verify().ok
        assert len(list(book.events(run_id="r"))) == 3
        assert say(book, "2", run_id="r", id="id-2") == written[2]


def test_a_missing_book_is_only_made_when_asked_for(book_url: str) -> None:
    with pytest.raises(commonplace.BookNotFound):
        commonplace.open(book_url, create=False)
    commonplace.open(book_url).close()
