"""The recall capability: which events digests leave behind, and what is folded from them."""

from __future__ import annotations

from typing import Any

from ..ledger.events import Event
from ..ledger.keys import Key
from ..ledger.scopes import scope_of
from ..ledger.views import Capability, Kind, View
from ..memory.requests import RECEIPT
from .changed_facts import CHANGED, decide_changed
from .receipts import decide_receipt, without_words
from .verification import CHECKED, checked_items, decide_checked, fold_check


def _relied(event: Event) -> list[Key]:
    """The actors that rely on an item, in a scope and a run, until they are told that the item has changed."""
    who, payload = (event.actor, scope_of(event), event.run_id or ""), event.payload
    if event.kind == CHANGED:
        return [(payload["item"], *who)]
    if payload.get("past"):
        return []
    shown = [*(id for id, _, _ in payload["included"]), *(id for id, _ in payload["block"])]
    return [(id, *who) for id in dict.fromkeys(shown)]


def _fold_relied(key: Key, _before: Any, event: Event) -> Any:
    if event.kind == CHANGED:
        return None
    lines = {id: line for id, _, line in event.payload["included"]}
    return {"receipt": event.id, "line": lines.get(key[0], 0), "as_of": event.payload["as_of"]}


def _news(event: Event) -> list[Key]:
    """What an actor has not been told yet."""
    ids = [event.id] if event.kind == CHANGED else event.payload.get("told", ())
    return [(event.actor, scope_of(event), id) for id in ids]


def _ignoring(event: Event) -> list[Key]:
    return [(event.run_id or "", event.actor)] if event.payload.get("ignored") else []


def _stable(event: Event) -> list[Key]:
    stable = event.payload.get("stable")
    return [(scope_of(event), event.actor, stable)] if stable else []


def _without_words(payload: dict[str, Any]) -> dict[str, Any]:
    return {**payload, "text": ""}


def _fold_swept(_key: Key, before: Any, event: Event) -> Any:
    """How far changed facts were looked for: as far as the maker of the last receipt has looked, unless it did not know
    the receipt before, whose maker may have looked less far."""
    reached = event.payload["reached"]
    if before is not None and before["receipt"] > reached:
        reached = min(reached, before["reached"])
    return {"reached": reached, "receipt": event.position}


RECALL = Capability(
    "recall",
    kinds=(
        Kind(RECEIPT, residue=without_words),
        Kind(CHANGED, residue=_without_words),
        Kind(CHECKED),
    ),
    commands={
        "recall.receipt": decide_receipt,
        "recall.changed": decide_changed,
        "recall.checked": decide_checked,
    },
    views=(
        View("recall.relied", 1, _relied, _fold_relied, kinds=frozenset({RECEIPT, CHANGED}), present=True),
        View(
            "recall.news", 1, _news, lambda _key, _before, event: event.position if event.kind == CHANGED else None,
            kinds=frozenset({RECEIPT, CHANGED}),
        ),
        View(
            "recall.ignoring", 1, _ignoring, lambda _key, _before, event: event.position,
            kinds=frozenset({RECEIPT}), present=True,
        ),
        View(
            "recall.stable", 1, _stable, lambda _key, _before, event: event.id, kinds=frozenset({RECEIPT}),
            present=True,
        ),
        View("recall.checks", 1, checked_items, fold_check, kinds=frozenset({CHECKED, RECEIPT})),
        View("recall.swept", 1, lambda _: [("",)], _fold_swept, kinds=frozenset({RECEIPT}), present=True),
    ),
)  # fmt: skip
