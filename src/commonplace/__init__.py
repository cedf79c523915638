"""commonplace: one memory for a team of AI agents.

Every act is an event in one append-only ledger; everything anyone reads is a view of it that can be
rebuilt, dated and explained.

    import commonplace

    with commonplace.open("team.db") as book:
        book.record("agent.spoke", actor="ada", payload={"text": "hello"})
        for event in book.events():
            print(event.position, event.actor, event.payload)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import __version__ as __version__

if TYPE_CHECKING:
    from .access.rights import Rights
    from .admin import Status
    from .book import Book, open
    from .engines.contract import Facts, FilePurged, PurgeReport
    from .errors import (
        BadInput,
        BadMethod,
        BadMove,
        BeforeHorizon,
        BookClosed,
        BookNotFound,
        BookTooNew,
        Busy,
        CommonplaceError,
        Conflict,
        ContractViolation,
        Corrupt,
        Cycle,
        Denied,
        EngineUnavailable,
        Erased,
        Fenced,
        ForkedBook,
        MissingExtra,
        ModelFailed,
        NotABook,
        NotEnabled,
        NotFound,
        NotTrusted,
        OutcomeUnknown,
        OwnedKind,
        ReadOnly,
        RunFailed,
        ServerFailed,
        Stale,
        StorageFailed,
        TooLarge,
        TooManyRequests,
        Unauthorized,
        UnknownEngine,
        UnsafePath,
    )
    from .finding import Found
    from .ledger.encoding import Blob
    from .ledger.erase import Erasure
    from .ledger.events import Event
    from .ledger.upkeep import Rebuilt, Verification
    from .ledger.views import Capability, Kind, View
    from .participant import Actor
    from .proof import Proof
    from .run import Run, Turn
    from .runs import RunInfo
    from .state.cells import State
    from .state.diff import Difference
    from .state.requests import Merged, Written
    from .threads.verbs import Thread
    from .work.holding import Claim
    from .work.tasks import Task
    from .work.verbs import Work


__all__ = [
    "Actor",
    "BadInput",
    "BadMethod",
    "BadMove",
    "BeforeHorizon",
    "Blob",
    "Book",
    "BookClosed",
    "BookNotFound",
    "BookTooNew",
    "Busy",
    "Capability",
    "Claim",
    "CommonplaceError",
    "Conflict",
    "ContractViolation",
    "Corrupt",
    "Cycle",
    "Denied",
    "Difference",
    "EngineUnavailable",
    "Erased",
    "Erasure",
    "Event",
    "Facts",
    "Fenced",
    "FilePurged",
    "ForkedBook",
    "Found",
    "Kind",
    "Merged",
    "MissingExtra",
    "ModelFailed",
    "NotABook",
    "NotEnabled",
    "NotFound",
    "NotTrusted",
    "OutcomeUnknown",
    "OwnedKind",
    "Proof",
    "PurgeReport",
    "ReadOnly",
    "Rebuilt",
    "Rights",
    "Run",
    "RunFailed",
    "RunInfo",
    "ServerFailed",
    "Stale",
    "State",
    "Status",
    "StorageFailed",
    "Task",
    "Thread",
    "TooLarge",
    "TooManyRequests",
    "Turn",
    "Unauthorized",
    "UnknownEngine",
    "UnsafePath",
    "Verification",
    "View",
    "Work",
    "Written",
    "open",
]

_HOMES = {
    "access.rights": "Rights",
    "admin": "Status",
    "finding": "Found",
    "proof": "Proof",
    "book": "Book open",
    "engines.contract": "Facts FilePurged PurgeReport",
    "ledger.erase": "Erasure",
    "errors": "BadInput BadMethod BadMove BeforeHorizon BookClosed BookNotFound BookTooNew Busy "
    "CommonplaceError Conflict ContractViolation Corrupt Cycle Denied EngineUnavailable Erased "
    "Fenced ForkedBook MissingExtra ModelFailed NotABook NotEnabled NotFound NotTrusted "
    "OutcomeUnknown OwnedKind ReadOnly RunFailed ServerFailed Stale StorageFailed TooLarge "
    "TooManyRequests Unauthorized UnknownEngine UnsafePath",
    "ledger.encoding": "Blob",
    "ledger.events": "Event",
    "ledger.upkeep": "Rebuilt Verification",
    "participant": "Actor",
    "run": "Run Turn",
    "runs": "RunInfo",
    "state.cells": "State",
    "state.diff": "Difference",
    "state.requests": "Merged Written",
    "threads.verbs": "Thread",
    "ledger.views": "Capability Kind View",
    "work.holding": "Claim",
    "work.tasks": "Task",
    "work.verbs": "Work",
}
"""Where each public name lives. A module is loaded when one of its names is first asked for, so that importing
the library costs next to nothing."""


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names.split():
            value = getattr(import_module(f"{__name__}.{home}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
