"""A run as its rows tell it: how it was opened, how it stands, how far each node has come, what is secret in it."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from typing import Any

import msgspec

from ..access.redact import Redactor
from ..errors import NotFound
from ..ledger.checks import iso
from ..ledger.encoding import convert
from ..ledger.events import Event
from ..ledger.keys import Key
from ..ledger.reader import ViewReader
from ..ledger.scopes import scope_of
from ..ledger.views import View
from .events import CHANGED, CLOSED, MERGED, OPENED, STEPPED
from .policy import Policy
from .requests import Fork

WRITING = frozenset({OPENED, CHANGED, STEPPED})
"""The kinds of events that write to a run's state."""

PROJECTION = "state.projection"


class OpenedRun(msgspec.Struct, frozen=True):
    """How a run was opened, and by whom. `parent` is the run that delegated to it, `depth` how deep."""

    policy: Policy
    workflow: dict[str, str]
    started_us: int
    by: str
    parent: str | None = None
    depth: int = 0
    fork: Fork | None = None
    scope: str = ""
    """The scope that it belongs to, by its key."""


class Totals(msgspec.Struct, frozen=True):
    """What changes with every write: sizes for the limits, and how the run stands."""

    size: int = 0
    fields: int = 0
    status: str = "running"
    updated_us: int = 0
    erased: int = 0
    """How many of the run's changes were erased."""
    corrected: int = 0
    """For how many of the erasures `size` and `fields` were counted anew."""


def opened_run(views: ViewReader, run: str) -> OpenedRun:
    """Raises NotFound for a run that has no state."""
    opened = find_run(views, run)
    if opened is None:
        raise NotFound(no_run(run))
    return opened


def find_run(views: ViewReader, run: str) -> OpenedRun | None:
    """The same; None for a run that has no state, or that lies in a scope which the reader is not told of."""
    opened = views.get_as(_read_opened, "state.runs", run)
    hidden = opened is not None and views.readable is not None and opened.scope not in views.readable
    return None if hidden else opened


# A run's policy is read with every write and never changes.
_read_opened = lru_cache(256)(msgspec.json.Decoder(OpenedRun).decode)


def no_run(run: str) -> str:
    return f"there is no run {run!r} with a state in this book; `commonplace runs list` lists the runs"


def totals_of(views: ViewReader, run: str) -> Totals:
    return views.get_as(_read_totals, "state.totals", run) or Totals()


_read_totals = msgspec.json.Decoder(Totals).decode


def lineage(views: ViewReader, run: str, fork: Fork | None) -> list[tuple[ViewReader, str]]:
    """A run that branched off there, and the runs it comes from, each as of where it was left; itself last."""
    before: list[tuple[ViewReader, str]] = []
    if fork is not None:
        then = views.at(fork.at)
        before = lineage(then, fork.run, opened_run(then, fork.run).fork)
    return [*before, (views, run)]


def steps_of(views: ViewReader, run: str, fork: Fork | None) -> dict[str, dict[str, Any]]:
    """How far each node of the run's graph has come."""
    steps: dict[str, dict[str, Any]] = {}
    for reader, id in lineage(views, run, fork):
        steps |= {str(key[1]): row for key, row in reader.scan("state.steps", id)}
    return steps


def done_by(views: ViewReader, run: str, node: str) -> str:
    """The agent that does a node's work at present in place of its own, or ""."""
    row = views.get("state.steps", run, node)
    return "" if row is None else str(row.get("done_by", ""))


def runtime_keys(views: ViewReader, run: str, opened: OpenedRun) -> dict[str, Any]:
    """The reserved keys that are not cells but follow from the run's rows."""
    totals = totals_of(views, run)
    meta: dict[str, Any] = {
        "run_id": run,
        "status": totals.status,
        "started_at": iso(opened.started_us),
        "updated_at": iso(totals.updated_us),
        "depth": opened.depth,
        "parent": opened.parent,
    }
    root, above = run, opened.parent
    while above is not None:  # all runs of one delegation belong to one trace
        root, above = above, opened_run(views, above).parent
    return {
        "_errors": [],
        "_meta": meta,
        "_trace": {"trace_id": _digest(root)[:32], "span_id": _digest(run)[32:48]},
        "_workflow": dict(opened.workflow),
    }


def _digest(id: str) -> str:
    return sha256(id.encode()).hexdigest()


# How the rows are folded


def _run_key(event: Event) -> list[Key]:
    return [(event.run_id or "",)]


def _fold_opened(_key: Key, _before: Any, event: Event) -> Any:
    payload = event.payload
    return msgspec.to_builtins(
        OpenedRun(
            policy=convert(payload["policy"], Policy),
            workflow=payload["workflow"],
            started_us=event.created_us,
            by=event.actor,
            parent=payload["parent"],
            depth=payload["depth"],
            fork=convert(payload["fork"], Fork | None),
            scope=scope_of(event),
        )
    )


def _fold_totals(_key: Key, before: Any, event: Event) -> Any:
    payload = event.payload
    totals = before or {"size": 0, "fields": 0, "status": "running", "erased": 0, "corrected": 0}
    return {
        "size": totals["size"] + payload.get("size", 0),
        "fields": totals["fields"] + payload.get("fields", 0),
        "status": payload["status"] if event.kind == CLOSED else totals["status"],
        "updated_us": event.created_us,
        "erased": totals["erased"] + bool(payload.get("erased")),
        "corrected": payload.get("corrected", totals["corrected"]),
    }


def _step_key(event: Event) -> list[Key]:
    return [(event.run_id or "", event.payload["node"])]


def _fold_step(_key: Key, _before: Any, event: Event) -> Any:
    names = ("status", "attempt", "iteration", "reason", "result", "of", "done_by")
    row = {name: event.payload[name] for name in names if name in event.payload}
    return {**row, "position": event.position}


def _rights_keys(event: Event) -> list[Key]:
    """The actors whose rights a run narrows, and a node whose rights change with the agent that does it."""
    if event.kind == STEPPED:
        return _step_key(event) if "rule" in event.payload else []
    policy = convert(event.payload["policy"], Policy)
    return [(event.run_id or "", name) for name in policy.rules_of_agents]


def _fold_rights(key: Key, _before: Any, event: Event) -> Any:
    if event.kind == STEPPED:
        return event.payload["rule"]
    return msgspec.to_builtins(convert(event.payload["policy"], Policy).agent(str(key[1])).rule)


def _secret_keys(event: Event) -> list[Key]:
    """One row for what each agent has said, and one for what the run was started with."""
    payload = event.payload
    holder = payload.get("agent") or payload.get("of") or payload.get("node") or ""
    return [(event.run_id or "", holder)] if payload.get("secret") else []


def _fold_secrets(_key: Key, before: Any, event: Event) -> Any:
    """Every text that a run's secret fields have ever held, with the field of the entry and the name under which it
    stood there, so that it is recognised elsewhere."""
    held, payload = before or {"fields": [], "texts": []}, event.payload
    content = (payload.get("payload") or payload.get("result") or {}).items()
    if event.kind == OPENED:
        content = [(field, value) for _, field, value in payload["initial"]]
    texts = {
        (field, name, text)
        for field, value in content
        for name in payload["secret"]
        for text in Redactor([name]).secrets_in({field: value})
    }
    return {
        "fields": sorted({*held["fields"], *payload["secret"]}),
        "texts": sorted({*map(tuple, held["texts"]), *texts}),
    }


ROWS = (
    View("state.runs", 1, _run_key, _fold_opened, kinds=frozenset({OPENED})),
    View("state.rights", 1, _rights_keys, _fold_rights, kinds=frozenset({OPENED, STEPPED})),
    View("state.totals", 1, _run_key, _fold_totals, kinds=WRITING | {CLOSED}),
    View("state.steps", 1, _step_key, _fold_step, kinds=frozenset({STEPPED})),
    View("state.secrets", 1, _secret_keys, _fold_secrets, kinds=WRITING),
    View(
        "state.merges",
        1,
        lambda event: [(event.run_id or "", event.payload["fork"])],
        lambda _key, _before, event: event.position,
        kinds=frozenset({MERGED}),
    ),
    # The projection of the cqrs model is the state as of this view's checkpoint, so it needs no rows of its own.
    View(
        PROJECTION,
        1,
        lambda _event: (),
        lambda _key, before, _event: before,
        kinds=frozenset(),
        trailing=True,
    ),
)
