"""Every error a caller can meet, in one tree.

    CommonplaceError
    ├── BadInput             400  the call's own words are off
    │   ├── BadMethod        405  the address has another method: `Allow` names it
    │   ├── TooLarge         413  a payload, batch or name over its limit
    │   ├── UnknownEngine    400  a URL that names no engine
    │   └── UnsafePath       400  a path that leaves its folder, or a link or pipe in the way
    ├── Unauthorized         401  a token that is unknown, wrong, expired or revoked
    ├── Denied               403  the actor has no right to it
    │   └── OwnedKind        403  a kind that only its capability may record
    ├── ReadOnly             403  a book that this user may read and not write
    ├── NotTrusted           403  a folder that somebody else has prepared, and this user has not said to trust
    ├── NotFound             404  no such event, blob or view
    │   └── BookNotFound     404  no such book, and create was not asked for
    ├── Conflict             409  the same id with other content, or a diverged copy
    │   ├── Stale            409  changed by somebody else after it was read
    │   ├── BadMove          409  a task cannot go from its status to that one
    │   ├── Cycle            409  tasks that would wait for each other
    │   └── Fenced           409  a claim whose lease was lost
    ├── Erased               410  the content was erased; nothing brings it back
    ├── BeforeHorizon        410  `at=` lies below the versions that are kept
    ├── ContractViolation    422  an agent's output is not what its contract declares
    ├── NotABook             422  a file or server that holds something else
    ├── TooManyRequests      429  more than a server allows at once, or in a second
    ├── Corrupt              500  stored bytes are not what was written
    ├── ServerFailed         500  a server met an error that it did not expect: its log says more
    ├── BookTooNew           501  written by a newer library
    ├── BookClosed           503  used after close
    │   └── ForkedBook       503  used in a child process after fork
    ├── MissingExtra         503  an optional dependency is not installed
    ├── NotEnabled           503  switched off in the files or settings
    ├── EngineUnavailable    503  the store cannot be reached, or refused
    │   └── StorageFailed    507  a write or fsync failed (disk full, I/O error)
    ├── Busy                 503  the book's lock was not free in time
    ├── ModelFailed          502  a model did not answer, or not with what it was asked for
    ├── RunFailed            500  a workflow's run came to its end without success
    └── OutcomeUnknown       504  the write may or may not have landed: look the ids up

Each class has a `code` (stable, for programs) and a `status` (for HTTP). The message says what was wrong,
what was given, what is allowed and what to do next. Engines translate their drivers' errors into these in
one place each, so that a caller never meets a driver's exception.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def shown(value: object) -> str:
    """What was given, as a message can show it: short, printable, and never an error of its own."""
    if value is not None and not isinstance(value, str | int | float | bytes):
        return f"of type {type(value).__name__}"
    try:
        text = ascii(value[:60] if isinstance(value, str | bytes) else value)
    except ValueError:
        return "an integer of too many digits"
    return text if len(text) <= 60 else f"{text[:57]}…"


class HiddenText(str):
    """A text that does not show where values are shown, such as in a traceback with local variables."""

    def __repr__(self) -> str:
        return "'(hidden)'"


class CommonplaceError(Exception):
    """The root: catch this to catch everything that commonplace raises on purpose."""

    code = "error"
    status = 500

    def as_dict(self) -> dict[str, object]:
        """The error as every surface shows it: code, status, message and what else it knows."""
        return {"code": self.code, "status": self.status, "message": str(self)}


class BadInput(CommonplaceError, ValueError):
    code = "bad_input"
    status = 400


class BadMethod(BadInput):
    """A verb that writes was asked for with GET, or an address with a method that it does not have. `allowed` names the
    one that it has."""

    code = "bad_method"
    status = 405

    def __init__(self, message: str, allowed: str = "POST") -> None:
        super().__init__(message)
        self.allowed = allowed

    def as_dict(self) -> dict[str, object]:
        return {**super().as_dict(), "allowed": self.allowed}


class TooLarge(BadInput):
    code = "too_large"
    status = 413


class UnknownEngine(BadInput):
    code = "unknown_engine"


class UnsafePath(BadInput):
    """A path that leaves the folder it belongs to, or one that meets a symbolic link, a pipe or a device."""

    code = "unsafe_path"


class ReadOnly(CommonplaceError, PermissionError):
    """This user may read the book's file, and may not write it or its folder."""

    code = "read_only"
    status = 403


class NotTrusted(CommonplaceError):
    """A book or a folder of markdown that was not made by this user, who has not said to trust it either."""

    code = "not_trusted"
    status = 403


class Unauthorized(CommonplaceError, PermissionError):
    """A network client without a valid token."""

    code = "unauthorized"
    status = 401


class Denied(CommonplaceError, PermissionError):
    """The actor may not do this. Every denial is also an event, which the book's owner can read."""

    code = "denied"
    status = 403


class OwnedKind(Denied):
    code = "owned_kind"


class NotFound(CommonplaceError, LookupError):
    code = "not_found"
    status = 404


class BookNotFound(NotFound):
    code = "book_not_found"


class Conflict(CommonplaceError):
    """Somebody else was first. `details` holds both sides, where there are two."""

    code = "conflict"
    status = 409
    details: tuple[Mapping[str, object], ...] = ()

    def __init__(self, message: str, details: Sequence[Mapping[str, object]] = ()) -> None:
        super().__init__(message)
        self.details = tuple(details)

    def as_dict(self) -> dict[str, object]:
        return {**super().as_dict(), **({"details": list(self.details)} if self.details else {})}


def id_taken(id: str) -> Conflict:
    """Something has this id already that the caller need not know of: ids are unique in a book."""
    return Conflict(f"the id {id!r} cannot be used here: choose another one, or none")


class Stale(Conflict):
    """What was to be changed was changed by somebody else after it had been read: read it again."""

    code = "stale"


class BadMove(Conflict):
    """A task cannot go from the status it has to the one that was asked for. `allowed` are those it can go to."""

    code = "bad_move"

    def __init__(self, task: str, status: str, wanted: str, allowed: Sequence[str]) -> None:
        self.allowed = tuple(allowed)
        next_step = f"it can become {', '.join(self.allowed)}" if self.allowed else "that is final"
        super().__init__(f"task {task!r} is {status} and cannot become {wanted}: {next_step}")

    def as_dict(self) -> dict[str, object]:
        return {**super().as_dict(), "allowed": list(self.allowed)}


class Cycle(Conflict):
    """Tasks that would wait for each other. `cycle` names them in order; the last is the first again."""

    code = "cycle"

    def __init__(self, cycle: Sequence[str]) -> None:
        self.cycle = tuple(cycle)
        super().__init__(
            f"these tasks would wait for each other: {' → '.join(self.cycle)}. Leave one of these dependencies out"
        )

    def as_dict(self) -> dict[str, object]:
        return {**super().as_dict(), "cycle": list(self.cycle)}


class Fenced(Conflict):
    """A claim that is no longer in force: its lease was lost, and the task went on without it. Nothing was written."""

    code = "fenced"


class Erased(CommonplaceError):
    code = "erased"
    status = 410


class BeforeHorizon(CommonplaceError):
    code = "before_horizon"
    status = 410


class ContractViolation(CommonplaceError):
    """An output breaks its agent's contract. `violations` names field and rule of each, never a value."""

    code = "contract_violation"
    status = 422

    def __init__(self, agent: str, violations: Sequence[Mapping[str, str]]) -> None:
        broken = "; ".join(
            f"{violation['field'] or 'the output'} {violation['rule']}" for violation in violations
        )
        super().__init__(
            f"the output of {agent!r} breaks its contract: {broken}. Nothing was written; mend the output, or the "
            "contract in its agent file"
        )
        self.agent = agent
        self.violations = tuple(violations)

    def as_dict(self) -> dict[str, object]:
        return {**super().as_dict(), "agent": self.agent, "violations": list(self.violations)}


class NotABook(CommonplaceError):
    code = "not_a_book"
    status = 422


class TooManyRequests(CommonplaceError):
    """More than a server allows at the same time, or in a second. `retry_after` is how many seconds to wait."""

    code = "too_many_requests"
    status = 429
    retry_after = 1


class Corrupt(CommonplaceError):
    """Stored bytes fail their check. `position` is the first event known to be affected, if any."""

    code = "corrupt"

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position

    def as_dict(self) -> dict[str, object]:
        return {**super().as_dict(), "position": self.position}


class ServerFailed(CommonplaceError):
    """A server met an error that it did not expect. Its log says more."""

    code = "server_failed"
    status = 500


class BookTooNew(CommonplaceError):
    code = "book_too_new"
    status = 501


class BookClosed(CommonplaceError):
    code = "closed"
    status = 503


class ForkedBook(BookClosed):
    code = "forked"


class MissingExtra(CommonplaceError, ImportError):
    code = "missing_extra"
    status = 503


class NotEnabled(CommonplaceError):
    code = "not_enabled"
    status = 503


class EngineUnavailable(CommonplaceError, ConnectionError):
    code = "engine_unavailable"
    status = 503


class StorageFailed(EngineUnavailable):
    code = "storage_failed"
    status = 507


class Busy(CommonplaceError, TimeoutError):
    code = "busy"
    status = 503


class ModelFailed(CommonplaceError):
    """A model that was given did not answer, or not with what it was asked for. Nothing was kept."""

    code = "model_failed"
    status = 502


class RunFailed(CommonplaceError):
    """A run ended without success. `errors` are what its state holds under `_errors`."""

    code = "run_failed"

    def __init__(self, message: str, run_id: str, errors: Sequence[Mapping[str, object]] = ()) -> None:
        super().__init__(message)
        self.run_id = run_id
        self.errors = tuple(errors)

    def as_dict(self) -> dict[str, object]:
        return {**super().as_dict(), "run_id": self.run_id, "errors": list(self.errors)}


class OutcomeUnknown(CommonplaceError):
    """A write may or may not have taken effect: the store failed while committing, or a server did not answer. `ids`
    are the events in question, if they are known.

    Ask `book.event(id)` after the trouble has passed, or send the same ids again: what had landed
    answers as the first time, what had not is recorded now.
    """

    code = "outcome_unknown"
    status = 504

    def __init__(self, ids: Sequence[str], cause: str) -> None:
        shown = ", ".join(ids[:3]) + (f" and {len(ids) - 3} more" if len(ids) > 3 else "")
        look = (
            f"Look the event up with book.event(id), or record it again with the same id: {shown}"
            if ids
            else "Look whether it did before you repeat it"
        )
        super().__init__(f"the write may or may not have taken effect ({cause}). {look}")
        self.ids = tuple(ids)
        self.cause = cause

    def as_dict(self) -> dict[str, object]:
        return {**super().as_dict(), "ids": list(self.ids), "cause": self.cause}
