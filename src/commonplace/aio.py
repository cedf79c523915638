"""The verbs of a book for asyncio: the same synchronous core, on threads of its own.

There is one implementation. Each verb here runs the one of the same name on an executor that belongs to the
book (the loop's default pool is small, and a few long calls would starve everyone else's). All async
watchers of a book share one waiting thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial, wraps
from itertools import islice
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from .access.rights import OWNER
from .actor import Actor
from .book import At, Book
from .errors import BookClosed, CommonplaceError
from .events import Draft, Event, draft_from, new_id
from .mirroring import BookMirror
from .state.run import Run, Turn
from .work.handles import Approvals, TaskHandle, WorkManagement
from .work.leading import Lead
from .work.verbs import Claim, Work
from .work.worker import work_off_async

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .access.audit import Entry
    from .work.worker import Worked

P = ParamSpec("P")
R = TypeVar("R")

THREADS = 16
PAGE = 200


def lifted(
    verb: Callable[Concatenate[Book, P], R],
) -> Callable[Concatenate[AsyncBook, P], Awaitable[R]]:
    """A verb of Book as a coroutine with the same signature."""

    @wraps(verb)
    async def call(self: AsyncBook, *args: P.args, **kwargs: P.kwargs) -> Any:
        return _awaitable(self, await self._run(partial(verb, self._book, *args, **kwargs)))

    return call  # type: ignore[return-value]


def _awaitable(aio: AsyncBook, answer: Any) -> Any:
    """Actors, runs, works and the like answer with awaitable verbs, too; anything else stays what it is."""
    if isinstance(answer, list) and answer and isinstance(answer[0], Claim):
        return [Lifted(aio, one) for one in answer]
    return Lifted(aio, answer) if isinstance(answer, VERBS) else answer


VERBS = Actor | Run | Turn | BookMirror | Work | TaskHandle | WorkManagement | Approvals | Claim | Lead


class Lifted:
    """An actor, a run, a turn, a work or a claim for asyncio: the same verbs, awaitable, and `async with` for `with`.
    What is plain data (an id, a name) is there at once; properties that read the book are awaited as verbs: call
    `await me.state()`."""

    def __init__(self, aio: AsyncBook, of: VERBS) -> None:
        self._aio = aio
        self._of = of

    def __getattr__(self, name: str) -> Any:
        known = getattr(type(self._of), name, None)
        if name.startswith("_") or (known is None and name not in vars(self._of)):
            raise AttributeError(f"{type(self._of).__name__} has no {name!r}")
        if known is None:
            return getattr(self._of, name)
        if name in ("events", "watch"):
            return self._watched if name == "watch" else partial(self._paged, known)
        if name == "worker":
            return partial(self._worker)

        async def call(*args: Any, **kwargs: Any) -> Any:
            def verb() -> Any:
                found = getattr(self._of, name)
                answer = (
                    found(*args, **kwargs) if callable(found) and not isinstance(known, property) else found
                )
                return list(answer) if isinstance(answer, Iterator) else answer

            return _awaitable(self._aio, await self._aio._run(verb))

        return call

    async def _paged(
        self, verb: Callable[..., Iterator[Event]], *args: Any, **kwargs: Any
    ) -> AsyncIterator[Event]:
        async for event in self._aio._pages(partial(verb, self._of, *args, **kwargs)):
            yield event

    async def _watched(self, after: int | None = None, **chosen: Any) -> AsyncIterator[Event]:
        """What the book's own watchers hear of, as far as the actor may see it."""
        assert isinstance(self._of, Actor | Work)
        async for event in self._aio.watch(after, **chosen):
            for one in await self._aio._run(partial(self._of._shown, event)):
                yield one

    async def _worker(self, agent: str, handler: Callable[[Any], Any], **how: Any) -> Worked:
        """As `Work.worker`; the handler may be a coroutine function, and is given a claim with awaitable verbs."""
        assert isinstance(self._of, Work)
        return await work_off_async(
            self._aio, partial(Lifted, self._aio), self._of, self._of._agent(agent), handler, **how
        )

    async def __aenter__(self) -> Self:
        await self._aio._run(self._of.__enter__)  # type: ignore[union-attr]
        return self

    async def __aexit__(self, *left: Any) -> None:
        await self._aio._run(partial(self._of.__exit__, *left))  # type: ignore[union-attr]


class AsyncBook:
    """`book.aio`: every verb of the book, awaitable; `events` and `watch` are async iterators.

    A write that is cancelled while it is on its way may still land: the CancelledError carries a note with
    the ids to look up.
    """

    def __init__(self, book: Book) -> None:
        self._book = book
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="commonplace-aio")
        self._news = _News(book)

    async def record(self, kind: str, **fields: Any) -> Event:
        """As `Book.record`; the id is made here, so that a cancelled call can be looked up."""
        if fields.get("id") is None:
            fields["id"] = new_id()
        return await self._write([fields["id"]], partial(self._book.record, kind, **fields))

    async def record_all(self, events: Iterable[Mapping[str, Any] | Draft]) -> list[Event]:
        drafts = [draft_from(fields, actor=OWNER) for fields in events]
        return await self._write([one.id for one in drafts], partial(self._book.record_all, drafts))

    submit = lifted(Book.submit)
    erase = lifted(Book.erase)
    purge = lifted(Book.purge)
    event = lifted(Book.event)
    runs = lifted(Book.runs)
    blob = lifted(Book.blob)
    position = lifted(Book.position)
    status = lifted(Book.status)
    verify = lifted(Book.verify)
    rebuild = lifted(Book.rebuild)
    export = lifted(Book.export)
    import_ = lifted(Book.import_)
    copy = lifted(Book.copy)
    backup = lifted(Book.backup)
    grant = lifted(Book.grant)
    relabel = lifted(Book.relabel)
    execute = lifted(Book.execute)
    diff = lifted(Book.diff)
    merge = lifted(Book.merge)
    remember = lifted(Book.remember)
    resolve = lifted(Book.resolve)
    revise: Callable[..., Awaitable[Any]] = lifted(Book.revise)
    share = lifted(Book.share)
    unshare = lifted(Book.unshare)
    verify_item = lifted(Book.verify_item)
    archive = lifted(Book.archive)
    restore = lifted(Book.restore)
    link = lifted(Book.link)
    item = lifted(Book.item)
    items = lifted(Book.items)
    long_term = lifted(Book.long_term)
    disputes = lifted(Book.disputes)
    forget = lifted(Book.forget)
    tombstones = lifted(Book.tombstones)
    curate = lifted(Book.curate)
    adopt = lifted(Book.adopt)
    export_items = lifted(Book.export_items)
    gc = lifted(Book.gc)
    unarchive = lifted(Book.unarchive)
    memory_settings = lifted(Book.memory_settings)
    configure_memory: Callable[..., Awaitable[Any]] = lifted(Book.configure_memory)
    core: Callable[..., Awaitable[Any]] = lifted(Book.core)
    cores = lifted(Book.cores)
    proposals = lifted(Book.proposals)
    suggestions = lifted(Book.suggestions)
    traverse = lifted(Book.traverse)
    log = lifted(Book.log)
    days = lifted(Book.days)
    day = lifted(Book.day)
    notes = lifted(Book.notes)
    write_notes = lifted(Book.write_notes)
    session_note = lifted(Book.session_note)
    session = lifted(Book.session)
    clear_session = lifted(Book.clear_session)
    task_note = lifted(Book.task_note)
    task_papers = lifted(Book.task_papers)
    gate: Callable[..., Awaitable[Any]] = lifted(Book.gate)
    gates = lifted(Book.gates)
    papers = lifted(Book.papers)
    paper = lifted(Book.paper)
    repository_fact: Callable[..., Awaitable[Any]] = lifted(Book.repository_fact)
    search = lifted(Book.search)
    reindex = lifted(Book.reindex)
    index_size = lifted(Book.index_size)
    migrate_index = lifted(Book.migrate_index)
    digest = lifted(Book.digest)
    prompt = lifted(Book.prompt)
    premises = lifted(Book.premises)
    receipt = lifted(Book.receipt)
    receipts = lifted(Book.receipts)
    bisect = lifted(Book.bisect)
    window = lifted(Book.window)
    salient = lifted(Book.salient)
    look_for = lifted(Book.look_for)
    mirror: Callable[..., Awaitable[Any]] = lifted(Book.mirror)
    as_actor: Callable[..., Awaitable[Any]] = lifted(Book.as_actor)
    run: Callable[..., Awaitable[Any]] = lifted(Book.run)
    fork: Callable[..., Awaitable[Any]] = lifted(Book.fork)
    work: Callable[..., Awaitable[Any]] = lifted(Book.work)
    work_of: Callable[..., Awaitable[Any]] = lifted(Book.work_of)
    works = lifted(Book.works)
    archive_works = lifted(Book.archive_works)

    async def redacted(self, events: Iterable[Event]) -> list[Event]:
        return await self._run(lambda: list(self._book.redacted(events)))

    async def audit(self, run_id: str | None = None, at: At = None) -> list[Entry]:
        return await self._run(lambda: list(self._book.audit(run_id, at)))

    async def head(self) -> int:
        return await self._run(lambda: self._book.head)

    async def events(
        self,
        after: int = 0,
        run_id: str | None = None,
        kinds: Collection[str] | None = None,
        actor: str | None = None,
        at: At = None,
    ) -> AsyncIterator[Event]:
        """As `Book.events`, a page at a time."""
        async for event in self._pages(partial(self._book.events, after, run_id, kinds, actor, at)):
            yield event

    async def _pages(self, read: Callable[[], Iterator[Event]]) -> AsyncIterator[Event]:
        found = await self._run(read)
        while page := await self._run(lambda: list(islice(found, PAGE))):
            for event in page:
                yield event

    async def watch(
        self,
        after: int | None = None,
        run_id: str | None = None,
        kinds: Collection[str] | None = None,
        actor: str | None = None,
    ) -> AsyncIterator[Event]:
        """As `Book.watch`. Any number of watchers share one thread."""
        reached = await self.head() if after is None else after
        with suppress(BookClosed):
            while (head := await self._news.beyond(reached)) is not None:
                async for event in self.events(reached, run_id, kinds, actor, head):
                    yield event
                reached = head

    async def close(self) -> None:
        """Close the book itself."""
        await asyncio.to_thread(self._book.close)

    def shut_down(self) -> None:
        self._news.stop()
        self._threads.shutdown(wait=False)

    async def _run(self, call: Callable[[], R]) -> R:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except RuntimeError as error:
            if "shutdown" in str(error):
                raise BookClosed("this book is closed; open it again") from None
            raise

    async def _write(self, ids: list[str], call: Callable[[], R]) -> R:
        try:
            return await self._run(call)
        except asyncio.CancelledError as cancelled:
            cancelled.add_note(f"the write may have landed: look up {', '.join(ids[:3])} with book.event(id)")
            raise


class _News:
    """One thread that waits for commits and tells every asyncio watcher of them."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._lock = threading.Lock()
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Future[int | None], int]] = set()
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._head = 0

    async def beyond(self, position: int) -> int | None:
        """The head, once it is beyond `position`; None when the book is closed."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[int | None] = loop.create_future()
        entry = (loop, future, position)
        with self._lock:
            if self._stopped:
                return None
            if self._head > position:
                return self._head
            self._waiting.add(entry)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, daemon=True, name="commonplace-news")
                self._thread.start()
        try:
            return await future
        finally:
            with self._lock:
                self._waiting.discard(entry)

    def _serve(self) -> None:
        try:
            while not self._stopped:
                self._tell(self._book._ledger.store.wait(self._head, 3600.0))
        except BookClosed:
            self.stop()
        except CommonplaceError as error:  # every watcher is told; the next one to ask starts anew
            with self._lock:
                waiting, self._waiting, self._thread = self._waiting, set(), None
            for loop, future, _ in waiting:
                _settle(loop, future, error)

    def _tell(self, head: int) -> None:
        with self._lock:
            self._head = max(self._head, head)
            due = {entry for entry in self._waiting if self._head > entry[2]}
            self._waiting -= due
        for loop, future, _ in due:
            _settle(loop, future, self._head)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            waiting, self._waiting = self._waiting, set()
        for loop, future, _ in waiting:
            _settle(loop, future, None)


def _settle(
    loop: asyncio.AbstractEventLoop, future: asyncio.Future[int | None], news: int | CommonplaceError | None
) -> None:
    def settle() -> None:
        if not future.done():
            if isinstance(news, CommonplaceError):
                future.set_exception(news)
            else:
                future.set_result(news)

    if not loop.is_closed():
        loop.call_soon_threadsafe(settle)
