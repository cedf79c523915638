"""A place between a store and whoever writes to it: to count what is written, to date it, or to break it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from ..engines.contract import Store, Tx, WriteSet

Apply = Callable[[WriteSet], None]


class _Shown(AbstractContextManager[Tx]):
    """A transaction that is shown to somebody when it has begun."""

    def __init__(self, manager: AbstractContextManager[Tx], begun: Callable[[Tx], object]) -> None:
        self._manager, self._begun = manager, begun

    def __enter__(self) -> Tx:
        tx = self._manager.__enter__()
        try:
            self._begun(tx)
        except BaseException:
            self._manager.__exit__(*sys.exc_info())
            raise
        return tx

    def __exit__(self, *error: Any) -> bool | None:
        return self._manager.__exit__(*error)


@contextmanager
def each_transaction(store: Store, begun: Callable[[Tx], object]) -> Iterator[None]:
    """Meanwhile every transaction of this store is shown to `begun`, which may change it."""
    begin = store.begin
    store.begin = lambda timeout=None: _Shown(begin(timeout), begun)  # type: ignore[method-assign]
    try:
        yield
    finally:
        store.begin = begin  # type: ignore[method-assign]


@contextmanager
def each_apply(store: Store, instead: Callable[[Apply, WriteSet], object]) -> Iterator[None]:
    """Meanwhile `instead` is called for every `apply`, with what would be called and what is to be written."""

    def begun(tx: Tx) -> None:
        apply = tx.apply
        tx.apply = lambda write: instead(apply, write)  # type: ignore[method-assign,assignment]

    with each_transaction(store, begun):
        yield
