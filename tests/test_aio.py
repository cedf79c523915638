"""The same verbs for asyncio."""

from __future__ import annotations

import asyncio

import pytest

import commonplace
from commonplace import Book


@pytest.mark.spec("7.1")
def test_every_verb_is_there_and_answers_the_same(book: Book) -> None:
    verbs = {name for name in dir(Book) if not name.startswith("_")}
    here = {name for name in dir(book.aio) if not name.startswith("_")}
    assert verbs - here <= {"aio", "facts", "id", "name", "snapshot"}

    async def story() -> None:
        event = await book.aio.record("agent.spoke", actor="ada", payload={"text": "hi"}, run_id="r")
        more = await book.aio.record_all([{"kind": "agent.spoke", "id": f"b{i}"} for i in range(300)])
        assert (event.position, more[-1].position, await book.aio.head()) == (1, 301, 301)
        assert [one.position async for one in book.aio.events(after=2)] == list(range(3, 302))
        assert await book.aio.event(event.id) == event
        assert (await book.aio.runs())[0].id == "r"
        assert (await book.aio.erase("b0")).gone
        assert (await book.aio.verify()).ok
        with pytest.raises(commonplace.BadInput):
            await book.aio.record("bad kind")
        with pytest.raises(commonplace.NotFound):
            await book.aio.event("nobody")

    asyncio.run(story())


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
            with book._ledger.store.begin():  # nobody can write now
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
        assert (await book.aio.audit("r"))[0].event_type == "run.start"

    asyncio.run(asyncio.wait_for(story(), 60))
