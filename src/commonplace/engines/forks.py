"""Knowing whether something that was opened may still be used: without a system call each time."""

from __future__ import annotations

import os

from ..errors import BookClosed, ForkedBook

_generation = 0


def _in_child() -> None:
    global _generation
    _generation += 1


os.register_at_fork(after_in_child=_in_child)


class Lifetime:
    """From opening to closing, in the process that opened it."""

    __slots__ = ("_generation", "ended")

    def __init__(self) -> None:
        self._generation = _generation
        self.ended = False

    @property
    def in_child(self) -> bool:
        """Whether this is a child process of the one that opened it."""
        return self._generation != _generation

    def check(self) -> None:
        """Raises ForkedBook in a child process, and BookClosed after the end."""
        self.check_process()
        if self.ended:
            raise BookClosed("this book is closed; open it again")

    def check_process(self) -> None:
        if self.in_child:
            raise ForkedBook("this book was opened before a fork; open it again in the child process")
