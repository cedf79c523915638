"""The state capability: which events there are, who decides them, and what is folded from them."""

from __future__ import annotations

from typing import Any

import msgspec

from ..access.redact import Redactor
from ..ledger.events import Event
from ..ledger.keys import Key
from ..ledger.views import Capability, Kind, View
from .cells import About, Fork, fold_cell, touched
from .changes import decide_change
from .merge import decide_merge
from .opening import decide_open
from .policy import Policy
from .requests import CHANGED, CLOSED, FINISHED, MERGED, OPENED, STEPPED, VIOLATED
from .steps import decide_close, decide_reopen, decide_step


def _of_run(event: Event) -> list[Key]:
    return [(event.run_id or "",)]


def _fold_about(_key: Key, _before: Any, event: Event) -> Any:
    payload = event.payload
    return msgspec.to_builtins(
        About(
            policy=msgspec.convert(payload["policy"], Policy),
            workflow=payload["workflow"],
            started_us=event.created_us,
            by=event.actor,
            parent=payload["parent"],
            depth=payload["depth"],
            fork=msgspec.convert(payload["fork"], Fork | None),
        )
    )


def _limited(event: Event) -> list[Key]:
    """Those whom a run that narrows rights speaks of, and a node whose rights change with the agent that does it."""
    if event.kind == STEPPED:
        return [(event.run_id or "", event.payload["node"])] if "rule" in event.payload else []
    named = msgspec.convert(event.payload["policy"], Policy).rules_of_agents
    return [(event.run_id or "", name) for name in named]


def _fold_rights(key: Key, _before: Any, event: Event) -> Any:
    if event.kind == STEPPED:
        return event.payload["rule"]
    return msgspec.to_builtins(msgspec.convert(event.payload["policy"], Policy).agent(str(key[1])).rule)


def _fold_sums(_key: Key, before: Any, event: Event) -> Any:
    payload = event.payload
    known = before or {"size": 0, "fields": 0, "status": "running"}
    return {
        "size": known["size"] + payload.get("size", 0),
        "fields": known["fields"] + payload.get("fields", 0),
        "status": payload["status"] if event.kind == CLOSED else known["status"],
        "updated_us": event.created_us,
        "erased": known.get("erased", 0) + bool(payload.get("erased")),
        "righted": payload.get("righted", known.get("righted", 0)),
    }


def _fold_step(_key: Key, before: Any, event: Event) -> Any:
    payload = event.payload
    kept = {name: payload[name] for name in ("status", "attempt", "iteration", "reason", "result", "of")}
    done = payload["status"] == FINISHED or bool(before and before["done"])
    kept |= {"done_by": payload["done_by"]} if "done_by" in payload else {}
    return {**kept, "done": done, "position": event.position}


def _secrets_of(event: Event) -> list[Key]:
    """One row for what each agent has said, and one for what the run was started with."""
    payload = event.payload
    who = payload.get("agent") or payload.get("of") or payload.get("node") or ""
    return [(event.run_id or "", who)] if payload.get("secret") else []


def _fold_secrets(_key: Key, before: Any, event: Event) -> Any:
    """Every text that a run's secret fields have ever held, with the field of the entry and the name under which it
    stood there, so that it is known wherever it turns up."""
    known, payload = before or {"fields": [], "texts": []}, event.payload
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
        "fields": sorted({*known["fields"], *payload["secret"]}),
        "texts": sorted({*map(tuple, known["texts"]), *texts}),
    }


# What must survive an erasure: names, statuses and sizes, so that whatever was built on it still stands.


def _start_without_values(payload: dict[str, Any]) -> dict[str, Any]:
    return {**payload, "initial": [], "secret": [], "erased": True}


def _change_without_values(payload: dict[str, Any]) -> dict[str, Any]:
    kept = {name: payload[name] for name in ("agent", "type", "size", "fields", "model")}
    return {**kept, "payload": {}, "erased": True}


def _step_without_result(payload: dict[str, Any]) -> dict[str, Any]:
    return {**payload, "reason": "", "result": {}, "secret": []}


STATE = Capability(
    "state",
    kinds=(
        Kind(OPENED, residue=_start_without_values),
        Kind(CHANGED, residue=_change_without_values),
        Kind(STEPPED, residue=_step_without_result),
        Kind(CLOSED, residue=lambda payload: {**payload, "reason": ""}),
        Kind(MERGED, residue=lambda payload: payload),
        Kind(VIOLATED),
    ),
    commands={
        "state.open": decide_open,
        "state.change": decide_change,
        "state.step": decide_step,
        "state.close": decide_close,
        "state.reopen": decide_reopen,
        "state.merge": decide_merge,
    },
    views=(
        View("state.runs", 1, _of_run, _fold_about, kinds=frozenset({OPENED})),
        View("state.rights", 1, _limited, _fold_rights, kinds=frozenset({OPENED, STEPPED})),
        View("state.sums", 1, _of_run, _fold_sums, kinds=frozenset({OPENED, CHANGED, STEPPED, CLOSED})),
        View("state.cells", 1, touched, fold_cell, kinds=frozenset({OPENED, CHANGED, STEPPED})),
        View(
            "state.steps",
            1,
            lambda event: [(event.run_id or "", event.payload["node"])],
            _fold_step,
            kinds=frozenset({STEPPED}),
        ),
        View(
            "state.secrets",
            1,
            _secrets_of,
            _fold_secrets,
            kinds=frozenset({OPENED, CHANGED, STEPPED}),
        ),
        View(
            "state.merges",
            1,
            lambda event: [(event.run_id or "", event.payload["fork"])],
            lambda _key, _before, event: event.position,
            kinds=frozenset({MERGED}),
        ),
        View(
            "state.projection",
            1,
            lambda event: touched(event) if event.payload["model"] == "cqrs" else [],
            fold_cell,
            kinds=frozenset({OPENED, CHANGED, STEPPED}),
            trailing=True,
        ),
    ),
)
