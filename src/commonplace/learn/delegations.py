"""What the ledger keeps of a delegation: what workers post for each other, what managers plan, the digests of their
iterations, and the tools that were made on the way.

A delegation is a manager's run with the runs of its sub-managers below it, and its name is the id of the first one. All
of it is recorded by the runtime, so that agents see it only through a board, a digest or a prompt, and only as long as
the run goes on. The owner can read the events afterwards.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..access.rights import RUNTIME
from ..errors import Conflict, NotFound
from ..ledger.checks import from_us, iso
from ..ledger.encoding import convert
from ..ledger.events import Event, draft
from ..ledger.keys import Key
from ..ledger.overlay import Overlay
from ..ledger.printing import Readable
from ..ledger.reader import ViewReader
from ..ledger.views import Capability, Kind, View
from ..state.redaction import redactor_of
from ..state.rows import find_run, opened_run, totals_of
from .context_digest import ContextDigest

POSTED, PLANNED, DIGESTED = "delegation.posted", "delegation.planned", "delegation.digested"
REGISTERED, CURATED = "delegation.registered", "delegation.curated"


class BoardEntry(Readable, msgspec.Struct, frozen=True):
    """What a worker has posted for the others. `ts` is later than that of every entry before it."""

    id: str
    ts: str
    topic: str
    worker_id: str
    payload: dict[str, Any]
    position: int = 0

    def __str__(self) -> str:
        return f"[{self.topic}] by {self.worker_id}: {msgspec.json.encode(self.payload).decode()}"


class Post(msgspec.Struct, frozen=True):
    """Post something on the board of a run."""

    run: str
    worker: str
    topic: str
    payload: dict[str, Any]
    id: str | None = None


class RecordPlan(msgspec.Struct, frozen=True):
    """Record what a manager decided in an iteration, having seen the board up to a position. `sources` are the
    positions of the results that it was told."""

    run: str
    iteration: int
    manager: str
    plan: dict[str, Any]
    seen: int = 0
    sources: tuple[int, ...] = ()


class Digested(msgspec.Struct, frozen=True):
    """Record the context digest of an iteration. `sources` are the positions of what it was made from."""

    run: str
    digest: ContextDigest
    sources: tuple[int, ...] = ()


class Register(msgspec.Struct, frozen=True):
    """Register a tool that was made in a run."""

    run: str
    worker: str
    name: str
    spec: dict[str, Any]


class RecordCuration(msgspec.Struct, frozen=True):
    """Record what the curator took over from a run: which items, and what went wrong."""

    run: str
    workflow: str
    items: tuple[str, ...]
    errors: tuple[str, ...] = ()


def delegation_of(views: ViewReader, run: str) -> str:
    """The outermost run of those that a run is within."""
    while (parent := opened_run(views, run).parent) is not None:
        run = parent
    return run


def check_running(views: ViewReader, run: str, what: str) -> None:
    """Raises NotFound if a run has ended, or is not there: what is scoped to it ends with it."""
    if find_run(views, run) is None or totals_of(views, run).status != "running":
        raise NotFound(f"the run {run!r} is not under way, and its {what} ended with it: start another run")


def decide_post(overlay: Overlay, request: Post) -> BoardEntry:
    check_running(overlay, request.run, "board")
    if request.id is not None and (known := overlay.event(request.id)) is not None:
        if known.kind == POSTED and known.run_id == request.run:
            return entry_of(known)
        raise Conflict(f"id {request.id!r} is taken by something else: choose another")
    last = overlay.scan("delegation.board", request.run, limit=1, reverse=True)
    time_us = max(overlay.now, int(last[0][1][1]) + 1 if last else 0)
    hide = redactor_of(overlay, request.run, request.worker)
    payload = {"topic": hide(request.topic), "worker": request.worker, "payload": hide(request.payload)}
    posted = draft(
        POSTED, actor=RUNTIME, payload=payload, run_id=request.run, id=request.id, occurred_at=from_us(time_us)
    )  # fmt: skip
    return entry_of(overlay.emit(posted))


def decide_plan(overlay: Overlay, request: RecordPlan) -> int:
    """Answers the position of the plan. The first plan of an iteration stands."""
    row = overlay.get("delegation.plans", request.run, request.iteration)
    if row is not None:
        return int(row["position"])
    check_running(overlay, request.run, "plans")
    payload = {
        "iteration": request.iteration, "manager": request.manager, "plan": request.plan, "seen": request.seen,
    }  # fmt: skip
    planned = draft(
        PLANNED, actor=RUNTIME, payload=payload, run_id=request.run, parents=_ids(overlay, request.sources)
    )
    return overlay.emit(planned).position


def decide_digest(overlay: Overlay, request: Digested) -> int:
    """Answers the position of the digest. One that is there already is not recorded again."""
    root = delegation_of(overlay, request.run)
    row = overlay.get("delegation.digests", root, request.digest.address)
    if row is not None:
        return int(row["position"])
    payload = {"delegation": root, "digest": msgspec.to_builtins(request.digest)}
    digested = draft(
        DIGESTED, actor=RUNTIME, payload=payload, run_id=request.run, parents=_ids(overlay, request.sources)
    )
    return overlay.emit(digested).position


def _ids(overlay: Overlay, positions: tuple[int, ...]) -> list[str]:
    return [overlay.event_at(position).id for position in dict.fromkeys(positions)]


def decide_register(overlay: Overlay, request: Register) -> None:
    check_running(overlay, request.run, "tools")
    root = delegation_of(overlay, request.run)
    hide = redactor_of(overlay, request.run, request.worker)
    name, spec = hide(request.name), hide(request.spec)
    row = overlay.get("delegation.tools", root, name)
    if row is None or row["spec"] != spec:
        payload = {"delegation": root, "name": name, "worker": request.worker, "spec": spec}
        overlay.emit(draft(REGISTERED, actor=RUNTIME, payload=payload, run_id=request.run))


def decide_curated(overlay: Overlay, request: RecordCuration) -> None:
    payload = {
        "workflow": request.workflow,
        "items": list(request.items),
        "errors": list(request.errors),
    }
    overlay.emit(draft(CURATED, actor=RUNTIME, payload=payload, run_id=request.run))


def entry_of(event: Event) -> BoardEntry:
    payload = event.payload
    time = iso(event.occurred_us or event.created_us)
    return BoardEntry(event.id, time, payload["topic"], payload["worker"], payload["payload"], event.position)


# reading


def posts(views: ViewReader, run: str, after: int = 0) -> list[tuple[int, str, int]]:
    """The position, id and time of what stands on the board of a run, after a position."""
    rows = views.between("delegation.board", (run,), after + 1, (1 << 62))
    return [(int(key[1]), str(row[0]), int(row[1])) for key, row in rows]


def plans(views: ViewReader, run: str) -> dict[int, dict[str, Any]]:
    """What the manager of a run decided, by iteration: `plan`, `seen` and `position`."""
    return {int(key[1]): row for key, row in views.scan("delegation.plans", run)}


def digests(views: ViewReader, delegation: str) -> list[tuple[str, int, ContextDigest]]:
    """The context digests of a delegation in the order in which they were made, each with its event and position."""
    rows = [row for _, row in views.scan("delegation.digests", delegation)]
    rows.sort(key=lambda row: row["position"])
    return [(row["id"], row["position"], convert(row["digest"], ContextDigest)) for row in rows]


def digest_at(views: ViewReader, delegation: str, address: str) -> ContextDigest | None:
    row = views.get("delegation.digests", delegation, address)
    return None if row is None else convert(row["digest"], ContextDigest)


def tools(views: ViewReader, delegation: str) -> dict[str, dict[str, Any]]:
    """The tools that were registered in a delegation, by name: the last `spec` of each, and the event."""
    return {str(key[1]): row for key, row in views.scan("delegation.tools", delegation)}


# views


def _address(event: Event) -> list[Key]:
    digest = convert(event.payload["digest"], ContextDigest)
    return [(event.payload["delegation"], digest.address)]


def _row(event: Event, *names: str) -> dict[str, Any]:
    return {
        "id": event.id,
        "position": event.position,
        **{name: event.payload[name] for name in names},
    }


DELEGATIONS = Capability(
    "delegations",
    kinds=(
        Kind(POSTED),
        Kind(PLANNED),
        Kind(DIGESTED),
        Kind(REGISTERED),
        Kind(CURATED),
    ),
    commands={
        "delegations.post": decide_post,
        "delegations.plan": decide_plan,
        "delegations.digest": decide_digest,
        "delegations.register": decide_register,
        "delegations.curated": decide_curated,
    },
    views=(
        View(
            "delegation.board", 1, lambda event: [(event.run_id or "", event.position)],
            lambda _key, _before, event: [event.id, event.occurred_us or event.created_us],
            kinds=frozenset({POSTED}), header_only=True, insert_only=True, overwrites=True,
        ),
        View(
            "delegation.plans", 1, lambda event: [(event.run_id or "", event.payload["iteration"])],
            lambda _key, _before, event: _row(event, "plan", "seen", "manager"), kinds=frozenset({PLANNED}),
            overwrites=True,
        ),
        View(
            "delegation.digests", 1, _address, lambda _key, _before, event: _row(event, "digest"),
            kinds=frozenset({DIGESTED}), overwrites=True,
        ),
        View(
            "delegation.tools", 1, lambda event: [(event.payload["delegation"], event.payload["name"])],
            lambda _key, _before, event: {**_row(event, "spec"), "run": event.run_id},
            kinds=frozenset({REGISTERED}), overwrites=True,
        ),
    ),
)  # fmt: skip
