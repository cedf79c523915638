"""A verb is a function whose first parameter is the session of the actor that asks. Here such functions become methods
of what people hold: a book, an actor, a turn, or a namespace of one of these."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from .session import Session

P = ParamSpec("P")
R = TypeVar("R")


class HasSession(Protocol):
    """What acts for one session."""

    _session: Session


def method(verb: Callable[Concatenate[Session, P], R]) -> Callable[Concatenate[HasSession, P], R]:
    """The verb as a method with the same signature and docstring."""

    @wraps(verb)
    def call(self: HasSession, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return verb(self._session, *args, **kwargs)

    return call
