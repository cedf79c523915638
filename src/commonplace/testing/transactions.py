"""A place between a store and whoever writes to it: to count what is written, to date it, or to break it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from ..engines.contract import Asked, Store, Tx, WriteSet, nothing

Apply = Callable[[WriteSet], None]


@contextmanager
def each_transaction(store: Store, begun: Callable[[Tx], object]) -> Iterator[None]:
    """Meanwhile every transaction of this store is shown when it has begun; whoever sees it may change it."""
    every: dict[str, Any] = {"begin": store.begin}
    if type(store).attempt is not Store.attempt:  # else it is a `begin` already
        every["attempt"] = store.attempt

    def shown(begin: Callable[[float, Asked], AbstractContextManager[Tx]]) -> Any:
        @contextmanager
        def beginning(timeout: float = 30.0, asked: Asked = nothing) -> Iterator[Tx]:
            with begin(timeout, asked) as tx:
                begun(tx)
                yield tx

        return beginning

    for name, begin in every.items():
        setattr(store, name, shown(begin))
    try:
        yield
    finally:
        for name, begin in every.items():
            setattr(store, name, begin)


@contextmanager
def each_apply(store: Store, instead: Callable[[Apply, WriteSet], object]) -> Iterator[None]:
    """Meanwhile `instead` is called for every `apply`, with what would be called and what is to be written."""

    def begun(tx: Tx) -> None:
        apply = tx.apply
        tx.apply = lambda write: instead(apply, write)  # type: ignore[method-assign,assignment]

    with each_transaction(store, begun):
        yield
