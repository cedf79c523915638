"""The audit: who changed, was given or was denied what, as a hash chain of its own (R18).

It is derived from the ledger whenever it is asked for, and holds names, never content: an auditor can check
it without a right to what the run knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from json import dumps
from typing import Any

import msgspec

from ..ledger.checks import iso
from ..ledger.encoding import convert
from ..ledger.events import Event

FIRST = "0" * 64


class AuditEntry(msgspec.Struct, frozen=True):
    seq: int
    timestamp: str
    event_type: str
    agent_id: str
    details: dict[str, Any]
    prev_hash: str
    hash: str


def _changed(event: Event) -> dict[str, Any]:
    return {"fields_changed": sorted(event.payload.get("payload", {}))}


def _picked(*names: str) -> Callable[[Event], dict[str, Any]]:
    return lambda event: {name: event.payload[name] for name in names if name in event.payload}


def _wrote(tier: str, act: str = "") -> Callable[[Event], dict[str, Any]]:
    """A write to memory: which tier, what was done, and to how many items; never what they say."""

    def details(event: Event) -> dict[str, Any]:
        payload = event.payload
        item = payload.get("item")  # the item, or what a task has verified
        is_episode = isinstance(item, Mapping) and item.get("kind") == "episode"
        items = [item["id"] for item in payload.get("items", ())] or list(payload.get("changes", ()))
        written = {"tier": "episodic" if is_episode else tier, "act": act or payload.get("act", "")}
        return {**written, "items": items} if items else written

    return details


AUDITED: dict[str, tuple[str, str, Callable[[Event], dict[str, Any]]]] = {
    # kind of event: the type of the entry, which field names who did it ("": the actor), what to tell
    "state.changed": ("state.change", "agent", _changed),
    "state.opened": ("run.start", "", _picked("workflow", "parent", "depth", "fork")),
    "state.closed": ("run.end", "", _picked("status")),
    "state.merged": ("state.merge", "", _picked("fork", "fields", "prefer")),
    "state.violated": ("contract.violation", "agent", _picked("violations")),
    "access.denied": ("access.denied", "actor", _picked("act", "what")),
    "access.granted": ("access.granted", "", _picked("subject", "rule")),
    "access.relabelled": ("access.relabelled", "", _picked("changes")),
    "access.token.created": (
        "access.token.created",
        "",
        _picked("token", "actor", "scope", "reads", "verbs", "expires_us"),
    ),
    "access.token.revoked": ("access.token.revoked", "", _picked("token")),
    "access.viewed": ("access.viewed", "actor", _picked("of")),
    "memory.item.created": ("memory.write", "", _wrote("long_term", "created")),
    "memory.item.updated": ("memory.write", "", _wrote("long_term")),
    "memory.item.forgotten": ("memory.write", "", _wrote("long_term", "forgotten")),
    "memory.item.deleted": ("memory.write", "", _wrote("long_term", "deleted")),
    "memory.item.consolidated": ("memory.write", "", _wrote("long_term", "consolidated")),
    "memory.logged": ("memory.write", "", _wrote("working", "logged")),
    "memory.noted": ("memory.write", "", _wrote("working")),
    "memory.gated": ("memory.write", "", _wrote("working", "gate")),
    "memory.archived": ("memory.write", "", _wrote("working", "archived")),
    "memory.verified": ("memory.write", "", _wrote("working", "verified")),
    "memory.core.set": ("memory.write", "", _wrote("long_term", "core")),
    "memory.configured": ("memory.configured", "", lambda _event: {}),
    "event.erased": ("erasure", "", lambda event: {"events": len(event.payload.get("events", ()))}),
}


def entries(events: Iterable[Event]) -> Iterator[AuditEntry]:
    """The audit of these events, in order, each entry chained to the one before it."""
    seq, previous = 0, FIRST
    for event in events:
        if event.kind not in AUDITED:
            continue
        type, named, details = AUDITED[event.kind]
        seq += 1
        entry = {
            "seq": seq,
            "timestamp": iso(event.created_us),
            "event_type": type,
            "agent_id": (event.payload.get(named) if named else None) or event.actor,
            "details": {"run_id": event.run_id, "event_id": event.id, **details(event)},
            "prev_hash": previous,
        }
        previous = digest(entry)
        yield convert({**entry, "hash": previous}, AuditEntry)


def digest(entry: dict[str, Any]) -> str:
    return sha256(dumps(entry, sort_keys=True).encode()).hexdigest()


def first_bad(chain: Iterable[AuditEntry]) -> int | None:
    """The number of the first entry that is not what its hash says, or does not follow from the one before."""
    previous = FIRST
    for expected, entry in enumerate(chain, 1):
        plain = {name: value for name, value in msgspec.to_builtins(entry).items() if name != "hash"}
        if entry.seq != expected or entry.prev_hash != previous or digest(plain) != entry.hash:
            return expected
        previous = entry.hash
    return None
