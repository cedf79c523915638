"""The same verbs for asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextvars import ContextVar
from inspect import isfunction
from pathlib import Path
from typing import Any

import pytest

import commonplace
from commonplace import Book
from commonplace.aio import THREADS, AsyncHandle
from commonplace.mirror.book import BookMirror
from commonplace.participant import Actor
from commonplace.run import Run, Turn
from commonplace.work.holding import Claim
from commonplace.work.leading import Lead
from commonplace.work.verbs import Work

LONG = 60.0


def played(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, LONG))


# the methods are those of the handles


def handles(book: Book, folder: Path) -> dict[type, object]:
    work, run = book.work(name="auth"), book.run()
    work.add_task("Design it")
    claim = work.claim("dev-1")
    return {
        Book: book, Actor: book.as_actor("ada"), Run: run, Turn: run.agent("ada"), Work: work, Claim: claim,
        Lead: work.lead("chief"), BookMirror: book.mirror.folder(folder),
    }  # fmt: skip


@pytest.mark.spec("7.1")
@pytest.mark.parametrize("kind", [Book, Actor, Run, Turn, Work, Claim, Lead, BookMirror])
def test_every_method_of_a_handle_runs_beside_the_loop(
    kind: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with commonplace.open("memory:") as book:
        handle = handles(book, tmp_path)[kind]
        names = [name for name in dir(handle) if not name.startswith("_") and name not in ("aio", "close")]
        for name in names:
            member = getattr(kind, name, None)
            ran = property(lambda _: threading.current_thread()) if isinstance(member, property) else None
            if ran is not None or isfunction(member):
                stands_in = ran or (lambda *_args, **_kwargs: threading.current_thread())
                monkeypatch.setattr(kind, name, stands_in)

        async def story() -> None:
            awaited = AsyncHandle(book.aio._bridge, handle)
            assert set(names) <= set(dir(awaited))
            for name in names:
                found = getattr(awaited, name)
                if isinstance(found, AsyncHandle):  # a namespace, whose methods run beside the loop, too
                    continue
                if getattr(kind, name, None) is None and name in vars(handle):
                    assert not isinstance(found, Actor | Run | Turn | Work | Claim | Lead)
                else:
                    thread = await found()
                    assert thread is not threading.current_thread(), name

        played(story())


@pytest.mark.spec("7.1")
def test_every_verb_answers_the_same(book: Book) -> None:
    async def story() -> None:
        event = await book.aio.record("agent.spoke", actor="ada", payload={"text": "hi"}, run_id="r")
        more = await book.aio.record_all([{"kind": "agent.spoke", "id": f"b{i}"} for i in range(300)])
        assert (event.position, more[-1].position, await book.aio.head()) == (1, 301, 301)
        assert [one.position async for one in book.aio.events(after=2)] == list(range(3, 302))
        assert await book.aio.event(event.id) == event
        assert (await book.aio.runs.list())[0].id == "r"
        assert (await book.aio.erase("b0")).gone
        assert (await book.aio.verify()).ok
        with pytest.raises(commonplace.BadInput):
            await book.aio.record("bad kind")
        with pytest.raises(commonplace.NotFound):
            await book.aio.event("nobody")
        assert (book.aio.name, book.aio.id, book.aio.admin.facts) == (book.name, book.id, book.admin.facts)
        async with book.aio.ledger.snapshot() as snapshot:
            assert snapshot.position == await book.aio.head()

    played(story())


@pytest.mark.spec("1.2", "L3", "7.1")
def test_many_watchers_share_a_thread_and_miss_nothing(book: Book) -> None:
    async def story() -> None:
        seen: dict[int, list[int]] = {n: [] for n in range(40)}

        async def follow(n: int) -> None:
            async for event in book.aio.watch(after=0):
                seen[n].append(event.position)
                if event.kind == "the.end":
                    return

        watchers = [asyncio.create_task(follow(n)) for n in seen]
        await asyncio.gather(*(book.aio.record("agent.spoke", payload={"i": i}) for i in range(30)))
        await book.aio.record("the.end")
        await asyncio.wait_for(asyncio.gather(*watchers), 60)
        assert all(positions == list(range(1, 32)) for positions in seen.values())

    asyncio.run(story())


def test_watchers_end_when_the_book_closes(book: Book) -> None:
    async def story() -> None:
        all_there, seen = asyncio.Event(), []

        async def follow() -> int:
            count = 0
            async for _ in book.aio.watch(after=0):
                count += 1
                seen.append(1)
                if len(seen) == 3:
                    all_there.set()
            return count

        watchers = [asyncio.create_task(follow()) for _ in range(3)]
        await book.aio.record("agent.spoke")
        await asyncio.wait_for(all_there.wait(), 30)
        await book.aio.close()
        assert await asyncio.wait_for(asyncio.gather(*watchers), 30) == [1, 1, 1]
        with pytest.raises(commonplace.BookClosed):
            await book.aio.record("agent.spoke")

    asyncio.run(story())


@pytest.mark.spec("L2")
def test_a_cancelled_write_says_that_it_may_have_landed() -> None:
    with commonplace.open("memory:") as book:

        async def story() -> None:
            with book.ledger.store.begin():  # nobody can write now
                write = asyncio.create_task(book.aio.record("agent.spoke", id="mine"))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                write.cancel()
                with pytest.raises(asyncio.CancelledError) as cancelled:
                    await write
                assert "mine" in cancelled.value.__notes__[0]
            async for event in book.aio.watch(after=0):
                assert event.id == "mine"
                return

        asyncio.run(story())


@pytest.mark.spec("7.1", "4.3")
def test_actors_runs_and_turns_are_awaitable_too(book: Book) -> None:
    async def story() -> None:
        ada, ben = await book.aio.as_actor("ada"), await book.aio.as_actor("ben", role="qa")
        await ada.record("agent.thought", payload={"text": "hm"})
        await ada.record("agent.spoke", payload={"text": "hello"})
        assert [event.kind async for event in ben.events()] == ["agent.spoke"]
        async for event in ben.watch(after=0):
            assert event.kind == "agent.spoke"
            break
        assert ben.name == "ben"
        async with await book.aio.run(run_id="r", initial={"topic": "tea"}) as run:
            async with await run.agent("ada") as me:
                assert (await me.state())["topic"] == "tea"
                await me.write({"n": 1})
        assert (await run.state())["ada"] == {"n": 1}
        assert await run.status() == "completed"
        fork = await book.aio.fork("r")
        assert await book.aio.diff("r", fork.id) == []
        with pytest.raises(AttributeError):
            run.no_such_verb  # noqa: B018
        assert (await book.aio.access.audit("r"))[0].event_type == "run.start"

    asyncio.run(asyncio.wait_for(story(), 60))


@pytest.mark.spec("7.1")
def test_a_handle_need_not_be_awaited_first(book: Book) -> None:
    async def story() -> None:
        ada = book.aio.as_actor("ada", role="developer")
        await asyncio.gather(ada.record("agent.spoke", id="a"), ada.record("agent.spoke", id="b"))
        assert {event.id async for event in ada.events(kinds=["agent.spoke"])} == {"a", "b"}
        assert (await ada).name == "ada"
        assert len([event async for event in book.aio.events(kinds=["access.granted"])]) == 1
        async with book.aio.run(run_id="r") as run, run.agent("ada") as me:
            await me.write({"n": 1})
        assert await run.status() == "completed"
        assert await book.aio.as_actor("ada").run(run_id="r").status() == "completed"
        assert await book.aio.as_actor("ada").memory.list() == []

    played(story())


@pytest.mark.spec("7.1")
def test_a_call_is_a_coroutine(book: Book) -> None:
    async def story() -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(book.aio.record("agent.spoke")) for _ in range(3)]
        assert sorted(task.result().position for task in tasks) == [1, 2, 3]
        with pytest.warns(RuntimeWarning, match="never awaited"):
            book.aio.record("agent.spoke")

    played(story())


@pytest.mark.spec("7.1")
def test_a_book_is_closed_by_async_with() -> None:
    async def story() -> None:
        async with commonplace.open("memory:").aio as book:
            await book.record("agent.spoke")
        with pytest.raises(commonplace.BookClosed):
            await book.record("agent.spoke")
        await book.close()

    played(story())


@pytest.mark.spec("7.1")
def test_an_error_that_speaks_of_a_shutdown_is_raised_as_it_is(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: Book) -> None:
        raise RuntimeError("the server is in shutdown mode")

    monkeypatch.setattr(Book, "verify", fails)

    async def story() -> None:
        with pytest.raises(RuntimeError, match="the server is in shutdown mode"):
            await book.aio.verify()

    played(story())


# watching


@pytest.mark.spec("1.2", "7.1")
def test_a_watch_ends_when_its_time_has_brought_nothing(book: Book) -> None:
    async def story() -> None:
        work = await book.aio.work(name="auth")
        await work.add_task("Design it")
        await book.aio.record("agent.spoke", actor="ada")
        after = [event.kind async for event in book.aio.watch(after=0, kinds=["agent.spoke"], timeout=0.01)]
        assert after == ["agent.spoke"]
        assert len(await book.aio.as_actor("ada").watch(after=0, timeout=0)) >= 1
        assert [event.kind for event in await work.watch(after=0, timeout=0)] == [
            "work.created",
            "task.added",
        ]
        with pytest.raises(commonplace.BadInput, match="timeout"):
            await book.aio.watch(timeout="soon")
        with pytest.raises(commonplace.BadInput, match="after"):
            await book.aio.watch("yesterday")

    played(story())


@pytest.mark.spec("3.6", "7.1")
def test_a_mirror_is_watched_until_its_task_is_cancelled(tmp_path: Path) -> None:
    async def story() -> None:
        async with commonplace.open(tmp_path / "team.db").aio as book:
            await book.remember("Postgres listens on 5433", shared=True)
            synced = asyncio.Event()

            async def on_report(report: Any) -> None:
                assert "MEMORY.md" in report.written
                synced.set()

            mirror = await book.mirror.folder(tmp_path / "notes")
            watching = asyncio.create_task(mirror.watch(on_report=on_report))
            await synced.wait()
            watching.cancel()
            with pytest.raises(asyncio.CancelledError):
                await watching
            assert "5433" in (mirror.folder / "MEMORY.md").read_text()

    played(story())


# functions that are called back


@pytest.mark.spec("5.6", "7.1")
def test_who_leads_awaits_its_handler_and_assigns_under_its_fence(book: Book) -> None:
    async def story() -> None:
        work = await book.aio.work(name="auth")
        await work.add_task("Design it", id="t1")
        steps: list[str] = []

        async def handler(lead: Any, step: Any) -> None:
            steps.append(step.kind)
            if step.kind != "ready":
                return
            await lead.task(step.task).assign("dev-1")
            claim = await work.claim("dev-1")
            assert claim.work.id == lead.work.id == work.id
            assert (await claim.work.task("t1").info()).assigned_to == "dev-1"
            await claim.complete("done")

        assert await work.orchestrate("chief", handler) == 2
        assert steps == ["ready", "completed"]
        assert await work.counts() == {"completed": 1, "tasks": 1}

    played(story())


@pytest.mark.spec("5.3", "7.1")
def test_more_workers_than_threads_do_not_wait_for_each_other(book: Book) -> None:
    async def story() -> None:
        work = await book.aio.work(name="auth")
        crew = THREADS + 4
        await work.add_tasks([{"title": f"t{number}"} for number in range(crew)])
        all_there = asyncio.Barrier(crew)

        async def handler(claim: Any) -> None:
            await all_there.wait()
            await claim.discover("found it")

        worked = await asyncio.gather(*(work.worker(f"dev-{number}", handler) for number in range(crew)))
        assert [one.completed for one in worked] == [1] * crew

    played(story())


@pytest.mark.spec("5.3", "7.1")
def test_a_worker_is_stopped_by_an_event_and_its_handler_knows_its_context(book: Book) -> None:
    request: ContextVar[str] = ContextVar("request", default="")

    async def story() -> None:
        work, stop, seen = await book.aio.work(name="auth"), asyncio.Event(), []
        await work.add_tasks([{"title": "one"}, {"title": "two"}])

        def handler(claim: Any) -> None:
            seen.append((request.get(), claim.task.title))
            stop.set()

        request.set("r-17")
        worked = await work.worker("dev-1", handler, until="stopped", stop=stop)
        assert (worked.completed, seen) == (1, [("r-17", "one")])
        claims = await work.claim_many(1, "dev-1")
        assert [task.status for task in await work.complete_many(claims)] == ["completed"]

    played(story())


@pytest.mark.spec("5.10", "7.1")
def test_progress_is_told_on_the_loop(book: Book) -> None:
    async def story() -> None:
        work, threads = await book.aio.work(name="auth"), set()
        await work.manage.abandon("nobody wants it")
        await work.manage.discard(
            confirm="DISCARD", progress=lambda *_: threads.add(threading.current_thread())
        )
        assert threads == {threading.current_thread()}

    played(story())
