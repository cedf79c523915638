"""Knowing that this process is a child of the one that made something: without a system call each time."""

from __future__ import annotations

import os

from ..errors import ForkedBook

_generation = 0


def _in_child() -> None:
    global _generation
    _generation += 1


os.register_at_fork(after_in_child=_in_child)


class Born:
    """Remembers the process it was made in."""

    __slots__ = ("_in",)

    def __init__(self) -> None:
        self._in = _generation

    @property
    def elsewhere(self) -> bool:
        """Whether this is a child process of the one it was made in."""
        return self._in != _generation

    def check(self) -> None:
        if self._in != _generation:
            raise ForkedBook("this book was opened before a fork; open it again in the child process")
