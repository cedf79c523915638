"""Reading does not write: what was shown is noted later, and a digest, a prompt and a context leave one event each."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import commonplace
from commonplace import BadInput, Book
from commonplace.engines.contract import WriteSet
from commonplace.memory.showing import Showing
from commonplace.run import Turn
from commonplace.testing.transactions import Apply, each_apply


def noted(book: Book, after: int = 0) -> list[tuple[str, list[str]]]:
    """To whom the ledger says that something was shown, and what."""
    return [(one.actor, one.payload["shown"]) for one in book.events(after, kinds=["memory.recalled"])]


def reads(me: Turn, id: str) -> dict[str, Callable[[], object]]:
    """Everything that only reads, by name."""
    work = me.work(id="auth")
    return {
        "search": lambda: me.search("harbour port"),
        "semantic search": lambda: me.search("harbour port", mode="semantic", explain=True),
        "a search of then": lambda: me.search("harbour port", at=me.memory.get(id).position),
        "memory.list": lambda: me.memory.list(),
        "memory.get": lambda: me.memory.get(id),
        "memory.history": lambda: me.memory.long_term(),
        "events": lambda: list(me.events()),
        "state": lambda: me.state,
        "watch": lambda: list(me.watch(0, timeout=0)),
        "documents": lambda: [me.documents.get(path) for path in me.documents.list()],
        "window": lambda: me.receipts.window(k=4),
        "salient": lambda: me.receipts.salient("harbour"),
        "receipts": lambda: [one.replay() for one in me.receipts.list()],
        "changed facts": lambda: me.receipts.changed_facts(),
        "tasks": lambda: (work.tasks(), work.ready(), work.read_messages("dev", peek=True)),
        "context_for": lambda: work.context_for(work.tasks()[0]),
        "digest without a receipt": lambda: me.digest("harbour port", receipt=False),
        "prompt without a receipt": lambda: me.prompt("harbour port", work=work, receipt=False),
    }


@pytest.mark.spec("L9", "4.1")
def test_reading_does_not_move_the_head(book: Book, tmp_path: Path) -> None:
    item = book.remember("The harbour is reached by port 5433", shared=True, citations=["gone.py:1"])
    book.work(name="auth", goal="Add tokens", id="auth").add_task("Open the harbour port")
    with book.run(run_id="r1", initial={"topic": "ports"}) as run, run.agent("dev") as me:
        me.digest("harbour port")
        id = item.item_id or ""
        for name, read in reads(me, id).items():
            before = book.head
            assert read() is not None
            assert book.head == before, name


@pytest.mark.spec("4.7")
def test_a_digest_a_prompt_and_a_context_leave_one_event_each(book: Book, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text("PORT = 5433\n")
    book._session.services.repository = tmp_path
    kept = book.remember("The harbour server has its port in PORT", shared=True, citations=["server.py:1"])
    work = book.work(name="auth", goal="Add tokens", id="auth")
    work.add_task("Open the port of the harbour server")
    claim = work.claim("dev", lease=60)
    assert claim is not None
    ada = book.as_actor("ada")
    makes: list[Callable[[], str | None]] = [
        lambda: ada.digest("harbour server").receipt_id,
        lambda: ada.prompt("harbour server", work=work).receipt_id,
        lambda: claim.context().receipt_id,
    ]
    for number, make in enumerate(makes):
        (tmp_path / "server.py").write_text(f"PORT = {number}\n")  # what is found of it goes into the receipt
        before = book.head
        id = make()
        (written,) = book.events(before)
        assert (written.id, written.kind) == (id, "receipt.written")
        assert len(written.blobs) == 1
        assert [one["stale"] for one in written.payload["checks"]] == ["lines 1-1 of server.py have changed"]
        assert kept.item_id in written.parents
        (hit,) = book.search("harbour server", tiers=["long_term"]).results
        assert hit.stale == "lines 1-1 of server.py have changed"


@pytest.mark.spec("4.7", "4.9")
def test_without_a_receipt_nothing_is_left_behind(book: Book) -> None:
    id = book.remember("The harbour is reached by port 5433", shared=True).item_id or ""
    ada = book.as_actor("ada")
    first = ada.digest("harbour port")
    book.memory.revise(id, text="The harbour is reached by port 5434")
    before = book.head
    silent = [ada.prompt("harbour port", receipt=False) for _ in range(2)]
    assert silent[0] == silent[1]
    assert silent[0].receipt_id is None
    assert "was revised" in silent[1], "what was not told for good is told again"
    assert ada.digest("harbour port", receipt=False).receipt_id is None
    assert ada.digest("harbour port", receipt=False, ignore_memory=True).item_ids == ()
    assert book.head == before
    with pytest.raises(BadInput, match="receipt"):
        ada.digest("harbour port", stable="t", receipt=False)
    with pytest.raises(BadInput, match="receipt"):
        ada.prompt("harbour port", stable="t", receipt=False)
    assert ada.remember("The harbour is reached by port 5434").outcome == "rejected", (
        "it was shown nevertheless"
    )
    assert first.receipt_id


@pytest.mark.spec("L9")
def test_what_was_shown_is_noted_with_the_next_write_of_any_kind(book: Book) -> None:
    id = book.remember("The harbour is closed on Sundays", shared=True).item_id or ""
    ada = book.as_actor("ada")
    writes: list[Callable[[], object]] = [
        lambda: book.record("agent.spoke", payload={"text": "hello"}),
        lambda: book.run(run_id="r1"),
        lambda: book.work(name="auth", goal="Add tokens", id="auth"),
        lambda: book.work(id="auth").add_task("Open the port"),
        lambda: book.as_actor("ben").documents.log("a line of the day"),
    ]
    for number, write in enumerate(writes):
        with book.run(run_id=f"shown-{number}") as run, run.agent("ada") as me:
            assert me.search("harbour").results
            before = book.head
            write()
            ((actor, shown),) = noted(book, before)
            assert actor == "ada"
            assert id in shown
    assert ada.search("harbour").results
    book.erase(id)
    before = book.head
    book.record("agent.spoke")
    assert noted(book, before) == [], "what was erased meanwhile is dropped"


@pytest.mark.spec("L9")
def test_what_was_shown_is_noted_when_nobody_writes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("commonplace.memory.showing.IDLE", 0.05)
    with commonplace.open(tmp_path / "team.db") as book:
        id = book.remember("The harbour is closed on Sundays", shared=True).item_id or ""
        before, threads = book.head, threading.active_count()
        assert book.as_actor("ada").search("harbour").results
        first = next(book.watch(before, timeout=30))
        assert (first.kind, first.actor, first.payload["shown"]) == ("memory.recalled", "ada", [id])
        waiting = [one for one in threading.enumerate() if one.name == Showing.THREAD]
        for one in waiting:
            one.join(30)
        assert threading.active_count() == threads, "the thread is there only while something waits"


@pytest.mark.spec("L9")
def test_a_writer_waits_for_what_another_thread_is_noting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else what an agent was shown and says again at that moment would be taken for new."""
    monkeypatch.setattr("commonplace.memory.showing.IDLE", 0.05)
    begun, may_end = threading.Event(), threading.Event()
    record_all = Showing._record_all

    def slowly(self: Showing, waiting: Any) -> None:
        if threading.current_thread().name == Showing.THREAD:
            begun.set()
            assert may_end.wait(30)
        record_all(self, waiting)

    monkeypatch.setattr(Showing, "_record_all", slowly)
    with commonplace.open(tmp_path / "team.db") as book:
        book.remember("The harbour is closed on Sundays", shared=True)
        ada = book.as_actor("ada")
        assert ada.search("harbour").results
        assert begun.wait(30)
        threading.Timer(0.2, may_end.set).start()
        assert ada.remember("As we know, the harbour is closed on Sundays").reason.startswith("an echo")


@pytest.mark.spec("L9")
def test_a_writer_who_is_not_judged_by_it_does_not_wait_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else all writers of a server would stand behind whoever notes what others were shown."""
    monkeypatch.setattr("commonplace.memory.showing.IDLE", 0.05)
    begun, may_end = threading.Event(), threading.Event()
    record_all = Showing._record_all

    def slowly(self: Showing, waiting: Any) -> None:
        if threading.current_thread().name == Showing.THREAD:
            begun.set()
            assert may_end.wait(30)
        record_all(self, waiting)

    monkeypatch.setattr(Showing, "_record_all", slowly)
    with commonplace.open(tmp_path / "team.db") as book:
        id = book.remember("The harbour is closed on Sundays", shared=True).item_id or ""
        assert book.as_actor("ada").search("harbour").results
        assert begun.wait(30)
        assert book.as_actor("ben").record("agent.spoke").position == book.head
        assert noted(book) == []
        may_end.set()
    with commonplace.open(tmp_path / "team.db") as book:
        assert noted(book) == [("ada", [id])]


@pytest.mark.spec("L9")
def test_what_readers_were_shown_is_noted_in_one_commit(tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "team.db") as book:
        id = book.remember("The harbour is closed on Sundays", shared=True).item_id or ""
        names = ["ada", "ben", "eve"]
        for name in names:
            assert book.as_actor(name).search("harbour").results
        sizes = list[int]()

        def counting(apply: Apply, write: WriteSet) -> None:
            apply(write)
            sizes.append(len(write.records))

        with each_apply(book.ledger.store, counting):
            book.record("agent.spoke")
        assert sizes == [len(names), 1]
        assert noted(book) == [(name, [id]) for name in names]


@pytest.mark.spec("L9")
def test_what_was_shown_is_noted_when_the_book_is_closed(tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "team.db") as book:
        id = book.remember("The harbour is closed on Sundays", shared=True).item_id or ""
        assert book.as_actor("ada").search("harbour").results
        assert [one.name for one in threading.enumerate()].count(Showing.THREAD) == 1
        assert noted(book) == []
    assert Showing.THREAD not in [one.name for one in threading.enumerate()]
    with commonplace.open(tmp_path / "team.db") as book:
        assert noted(book) == [("ada", [id])]


@pytest.mark.spec("L9", "5.8")
def test_a_book_that_may_only_be_read_can_be_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with commonplace.open(tmp_path / "team.db") as book:
        id = book.remember("The harbour is closed on Sundays", shared=True).item_id or ""
    monkeypatch.setattr("commonplace.engines.sqlite.may_write", lambda _: False)
    with commonplace.open(tmp_path / "team.db") as book:
        assert book.admin.facts.read_only
        ada = book.as_actor("ada")
        assert [one.id for one in ada.search("harbour").results] == [id]
        assert ada.memory.get(id).id == id
        assert ada.digest("harbour", receipt=False).item_ids == (id,)
        assert id in ada.prompt("harbour", receipt=False)
        assert Showing.THREAD not in [one.name for one in threading.enumerate()]


@pytest.mark.spec("4.8")
def test_the_write_that_changes_a_fact_tells_who_relied_on_it(book: Book) -> None:
    """Nobody has to read for it, so that watching is enough to hear of it."""
    for relied, kinds in ((False, []), (True, ["premise.changed"])):
        old = book.remember(key=f"port.{relied}", value=1, shared=True)
        ada = book.as_actor("ada")
        if relied:
            ada.digest("", rules={"structured": {"fact_keys": [f"port.{relied}"]}})
        before = book.head
        new = book.remember(key=f"port.{relied}", value=2, supersedes=old.item_id or "")
        assert [one.kind for one in ada.watch(before, timeout=0)][1:] == kinds
        assert [one.payload["by"] for one in book.events(before, kinds=["premise.changed"])] == [
            new.item_id
        ] * len(kinds)
