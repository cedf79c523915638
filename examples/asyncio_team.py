"""Agents as coroutines: each writes while another coroutine follows what all of them do.

python examples/asyncio_team.py team.db
"""

from __future__ import annotations

import asyncio
import sys

import commonplace
from commonplace import Book

TOPICS = {"ada": "the database", "ben": "the queue", "cy": "the cache"}


async def agent(book: Book, name: str, topic: str) -> None:
    for step in ("reads about", "measures", "explains"):
        # The call returns when the event is on disk; the other coroutines go on meanwhile.
        await book.aio.record("agent.spoke", actor=name, run_id="study", payload={"text": f"{step} {topic}"})
    await book.aio.remember(f"{name} has explained {topic}")


async def follow(book: Book, after: int, count: int) -> None:
    async for event in book.aio.watch(after=after):
        if event.kind == "agent.spoke":
            print(f"{event.position}: {event.actor} {event.payload['text']}")
            count -= 1
        if not count:
            return


async def main(path: str) -> None:
    with commonplace.open(path) as book:
        following = asyncio.create_task(follow(book, after=book.head, count=3 * len(TOPICS)))
        await asyncio.gather(*(agent(book, name, topic) for name, topic in TOPICS.items()))
        await asyncio.wait_for(following, timeout=60)
        for hit in await book.aio.search("who knows about the queue?", limit=1):
            print(f"found: {hit.content}")


asyncio.run(main(sys.argv[1] if sys.argv[1:] else "team.db"))
