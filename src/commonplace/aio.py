"""A book for asyncio: the same objects, whose methods run on threads and are awaited.

There is one implementation. `AsyncHandle` wraps a book, an actor, a run or any other handle; nothing here names its
methods. They run on an executor that belongs to the book: the loop's default pool is small, and a few long calls
would starve all others. All async watchers of a book share one waiting thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import is_dataclass
from functools import cached_property, partial, wraps
from inspect import getattr_static, isawaitable, isclass, signature
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec

from .errors import BookClosed, CommonplaceError
from .ledger.checks import check_seconds
from .ledger.events import Event, new_id
from .ledger.reader import pages

if TYPE_CHECKING:
    from .book import Book

T = TypeVar("T")

THREADS = 16
VALUES = (msgspec.Struct, BaseException, str, dict, list, tuple)
"""What the package answers as data. Everything else of it is a handle, with methods that read or write the book."""


class AsyncHandle:
    """A book, an actor, a run, a work, a claim … for asyncio, with the same methods, awaitable.

    What it holds (an id, a name, another handle) is there at once. A property that reads the book is called:
    `await run.status()`. `async with` takes the place of `with`. Functions given to a method (a handler, `progress`)
    may be coroutine functions; they run on the loop, and are given handles for asyncio.
    """

    def __init__(self, bridge: Bridge, handle: Any) -> None:
        self._bridge = bridge
        self._handle = handle

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no {name!r}")
        if isinstance(getattr_static(type(self._handle), name, None), property):
            return lambda: Call(self._bridge, self._bridge.run(lambda: getattr(self._handle, name)))
        method = getattr(self._handle, name)
        if not callable(method):
            return self._bridge.wrapped(method)

        @wraps(method)
        def call(*args: Any, **kwargs: Any) -> Call:
            return Call(self._bridge, self._bridge.answer(name, method, args, kwargs))

        return call

    def __dir__(self) -> Iterable[str]:
        return [name for name in dir(self._handle) if not name.startswith("_")]

    async def __aenter__(self) -> Self:
        await self._bridge.run(self._handle.__enter__)
        return self

    async def __aexit__(self, *raised: Any) -> Any:
        return await self._bridge.run(partial(self._handle.__exit__, *raised))

    def __repr__(self) -> str:
        return f"<asyncio {self._handle!r}>"


class Call(Coroutine[Any, Any, Any]):
    """A call of a method. Await it for the answer.

    Where the answer is a list or an iterator, `async for` reads it a page at a time. Where it is a handle or another
    context manager, `async with` enters it, and its methods can be called without awaiting it first:
    `await book.aio.as_actor("ada").record(…)`.
    """

    def __init__(self, bridge: Bridge, answer: Coroutine[Any, Any, Any]) -> None:
        self._bridge = bridge
        self._answer = answer
        self._task: asyncio.Task[Any] | None = None

    async def _awaited(self) -> Any:
        answer = await self._answer
        if isinstance(answer, AsyncIterator):
            return [item async for item in answer]
        if isinstance(answer, Iterator):
            return await self._bridge.run(lambda: list(answer))
        return self._bridge.wrapped(answer)

    async def _once(self) -> Any:
        """The answer, for many calls of its methods."""
        if self._task is None:
            self._task = asyncio.ensure_future(self._coroutine)
        return await asyncio.shield(self._task)

    @cached_property
    def _coroutine(self) -> Coroutine[Any, Any, Any]:
        return self._awaited()

    def __await__(self) -> Generator[Any, Any, Any]:
        return (self._coroutine if self._task is None else self._once()).__await__()

    def send(self, value: Any) -> Any:
        return self._coroutine.send(value)

    def throw(self, *raised: Any) -> Any:
        return self._coroutine.throw(*raised)

    def close(self) -> None:
        self._coroutine.close()
        self._answer.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith(
            ("_", "cr_", "gi_")
        ):  # asyncio asks for these of its own coroutines and generators
            raise AttributeError(f"{type(self).__name__} has no {name!r}")

        return _Attribute(self, (name,))

    async def __aiter__(self) -> AsyncIterator[Any]:
        answer = await self._answer
        async for item in answer if isinstance(answer, AsyncIterator) else self._bridge.pages(answer):
            yield self._bridge.wrapped(item)

    async def __aenter__(self) -> Any:
        self._entered = await self._answer
        return self._bridge.wrapped(await self._bridge.run(self._entered.__enter__))

    async def __aexit__(self, *raised: Any) -> Any:
        return await self._bridge.run(partial(self._entered.__exit__, *raised))


class _Attribute:
    """A method of an answer that is still to come, or a namespace of it: `as_actor("ada").memory.list()`."""

    def __init__(self, call: Call, names: tuple[str, ...]) -> None:
        self._call, self._names = call, names

    def __getattr__(self, name: str) -> _Attribute:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no {name!r}")
        return _Attribute(self._call, (*self._names, name))

    def __call__(self, *args: Any, **kwargs: Any) -> Call:
        async def answer() -> Any:
            method = await self._call._once()
            for name in self._names:
                method = getattr(method, name)
            return await method(*args, **kwargs)._answer

        return Call(self._call._bridge, answer())


class Bridge:
    """Between the event loop and the threads that do what a book is asked for."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="commonplace-aio")
        self._closed = False
        self.news = _AsyncNews(book)

    def wrapped(self, answer: Any) -> Any:
        """Handles of this package as handles for asyncio; anything else stays what it is."""
        if isinstance(answer, list):
            return [self.wrapped(item) for item in answer] if answer and _is_handle(answer[0]) else answer
        return AsyncHandle(self, answer) if _is_handle(answer) else answer

    async def run(self, call: Callable[[], T]) -> T:
        try:
            future = self._threads.submit(copy_context().run, call)
        except RuntimeError:
            if not self._closed:
                raise
            return await asyncio.to_thread(call)  # which says itself that the book is closed
        return await asyncio.wrap_future(future)

    async def answer(
        self, name: str, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """What a method answers. If the caller is cancelled meanwhile, the call may take effect, and the
        CancelledError says so."""
        args, kwargs = _plain(args), {key: _plain(value) for key, value in kwargs.items()}
        if name == "watch" and "after" in signature(method).parameters:
            return self._watched(method, *args, **kwargs)
        if any(_is_function(value) for value in (*args, *kwargs.values())):
            return await _CallBack(self).run(method, args, kwargs)
        args, ids = _identified(name, args, kwargs)
        try:
            return await self.run(partial(method, *args, **kwargs))
        except asyncio.CancelledError as cancelled:
            look = f"look up {', '.join(ids[:3])} with book.event(id)" if ids else "look before you repeat it"
            cancelled.add_note(f"{name} may have taken effect: {look}")
            raise

    async def pages(self, items: Iterable[Any]) -> AsyncIterator[Any]:
        each = pages(items)
        while page := await self.run(lambda: next(each, None)):
            for item in page:
                yield item

    async def _watched(
        self, watch: Callable[..., Iterator[Event]], *args: Any, **kwargs: Any
    ) -> AsyncIterator[Event]:
        """Asks for what is there whenever the book has grown, so that no thread waits for one watcher alone."""
        asked = signature(watch).bind(*args, **kwargs)
        after, timeout = (
            asked.arguments.get("after"),
            check_seconds("timeout", asked.arguments.get("timeout")),
        )
        clock = asyncio.get_running_loop().time
        head: int | None = await self.run(lambda: self._book.head)
        reached: Any = head if after is None else after
        quiet_since = clock()
        with suppress(BookClosed, TimeoutError):
            while head is not None:
                asked.arguments |= {"after": reached, "timeout": 0}
                async for event in self.pages(await self.run(lambda: watch(*asked.args, **asked.kwargs))):
                    yield event
                    reached, quiet_since = event.position, clock()
                reached = max(reached, head)
                async with asyncio.timeout_at(None if timeout is None else quiet_since + timeout):
                    head = await self.news.beyond(reached)

    def close(self) -> None:
        self._closed = True
        self.news.stop()
        self._threads.shutdown(wait=False)


class _CallBack:
    """Runs a method that calls functions of the caller. Those run on the loop; the method has a thread of its own, so
    that it can wait for them although every thread of the pool is taken. If the caller is cancelled, the function under
    way is cancelled, the method is told to stop, and the caller waits until it has."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._cancelled = False
        self._under_way: set[asyncio.Task[Any] | None] = set()

    async def run(self, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        parameters = signature(method)
        given = parameters.bind_partial(
            *(self._callable(value) for value in args),
            **{key: self._callable(value) for key, value in kwargs.items()},
        )
        heard: asyncio.Task[None] | None = None
        if "stop" in parameters.parameters:
            stop = given.arguments.get("stop")
            if isinstance(stop, asyncio.Event):
                heard = asyncio.ensure_future(self._stop_with(stop))
            elif stop is not None:
                self._stop = stop
            given.arguments["stop"] = self._stop
        # The thread's context is the caller's, so the functions have it, too.
        thread = ThreadPoolExecutor(1, thread_name_prefix="commonplace-aio-call")
        done = thread.submit(copy_context().run, partial(method, *given.args, **given.kwargs))
        thread.shutdown(wait=False)
        answer = asyncio.wrap_future(done)
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError as cancelled:
            self._cancelled = True
            self._stop.set()
            for task in filter(None, self._under_way):
                task.cancel()
            await asyncio.wait([answer])
            error = None if answer.cancelled() else answer.exception()
            if isinstance(error, Exception) and not isinstance(error, CancelledError):
                cancelled.add_note(f"and the call ended with {error!r}")
            raise
        finally:
            if heard is not None:
                heard.cancel()

    async def _stop_with(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._stop.set()

    def _callable(self, value: Any) -> Any:
        if not _is_function(value):
            return value

        @wraps(value)
        def call(*args: Any, **kwargs: Any) -> Any:
            answer = asyncio.run_coroutine_threadsafe(self._on_loop(value, args, kwargs), self._loop)
            try:
                return answer.result()
            except CancelledError:
                raise asyncio.CancelledError from None  # as an interrupt, not as a failure of the function

        return call

    async def _on_loop(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if self._cancelled:
            raise asyncio.CancelledError
        task = asyncio.current_task()
        self._under_way.add(task)
        try:
            answer = function(*map(self._bridge.wrapped, args), **kwargs)
            return _plain(await answer if isawaitable(answer) else answer)
        finally:
            self._under_way.discard(task)


def _is_handle(answer: object) -> bool:
    of_this_package = type(answer).__module__.partition(".")[0] == __package__
    return of_this_package and not isinstance(answer, (AsyncHandle, *VALUES)) and not is_dataclass(answer)


def _is_function(value: object) -> bool:
    return callable(value) and not isclass(value)


def _plain(value: Any) -> Any:
    """A handle of asyncio as the handle that it wraps, also in a list."""
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value)) if type(value) in (list, tuple) else value
    return value._handle if isinstance(value, AsyncHandle) else value


def _identified(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], list[str]]:
    """The arguments with an id for each event that is to be recorded, and the ids."""
    if name == "record":
        kwargs["id"] = new_id() if kwargs.get("id") is None else kwargs["id"]
        return args, [str(kwargs["id"])]
    if name == "record_all" and len(args) == 1 and isinstance(args[0], Iterable):
        events = [
            {**fields, "id": new_id() if fields.get("id") is None else fields["id"]}
            if isinstance(fields, Mapping)
            else fields
            for fields in args[0]
        ]
        return (events,), [str(fields["id"]) for fields in events if isinstance(fields, Mapping)]
    return args, []


class _AsyncNews:
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
                self._tell(self._book.ledger.store.wait(self._head, 3600.0))
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
