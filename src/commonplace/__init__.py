"""commonplace: one memory for a team of AI agents.

Every act is an event in one append-only ledger; everything anyone reads is a view of it that can be
rebuilt, dated and explained.

    import commonplace

    with commonplace.open("team.db") as book:
        book.record("agent.spoke", actor="ada", payload={"text": "hello"})
        for event in book.events():
            print(event.position, event.actor, event.payload)
"""

from .book import Book, Run, Status, open
from .engines.contract import Facts, PurgeReport
from .erase import Erasure
from .errors import (
    BadInput,
    BeforeHorizon,
    BookClosed,
    BookNotFound,
    BookTooNew,
    Busy,
    CommonplaceError,
    Conflict,
    Corrupt,
    EngineUnavailable,
    Erased,
    ForkedBook,
    MissingExtra,
    NotABook,
    NotFound,
    OutcomeUnknown,
    OwnedKind,
    StorageFailed,
    TooLarge,
    UnknownEngine,
)
from .events import Blob, Event
from .ledger import Rebuilt, Verification
from .views import Capability, Kind, View

__version__ = "0.1.0"

__all__ = [
    "BadInput",
    "BeforeHorizon",
    "Blob",
    "Book",
    "BookClosed",
    "BookNotFound",
    "BookTooNew",
    "Busy",
    "Capability",
    "CommonplaceError",
    "Conflict",
    "Corrupt",
    "EngineUnavailable",
    "Erased",
    "Erasure",
    "Event",
    "Facts",
    "ForkedBook",
    "Kind",
    "MissingExtra",
    "NotABook",
    "NotFound",
    "OutcomeUnknown",
    "OwnedKind",
    "PurgeReport",
    "Rebuilt",
    "Run",
    "Status",
    "StorageFailed",
    "TooLarge",
    "UnknownEngine",
    "Verification",
    "View",
    "open",
]
