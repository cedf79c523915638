"""A toy capability: jars of coins. Small, but it uses everything a real one does: an owned kind in its second
schema, a decider that reads, refuses and takes a lease, inline views, one of them present, a trailing one, and a
residue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from commonplace import BadInput, Capability, Conflict, Event, Kind, View
from commonplace.ledger.events import draft
from commonplace.ledger.keys import Key
from commonplace.ledger.overlay import Overlay


@dataclass(frozen=True)
class Put:
    jar: str
    coins: int
    note: str = ""
    by: str = "ada"
    id: str | None = None


def put(overlay: Overlay, request: Put) -> int:
    """Coins into a jar (or out of it); a jar cannot owe. Answers what the jar then holds."""
    if request.coins == 0:
        raise BadInput("put at least one coin, or take one")
    held = overlay.get("jars", request.jar) or {"coins": 0}
    if held["coins"] + request.coins < 0:
        raise Conflict(f"the jar {request.jar!r} holds {held['coins']} and cannot give {-request.coins}")
    overlay.emit(
        draft(
            "jar.changed",
            actor=request.by,
            payload={"jar": request.jar, "coins": request.coins, "note": request.note},
            id=request.id,
            schema_version=2,
        )
    )
    left = overlay.get("jars", request.jar)
    return 0 if left is None else int(left["coins"])


def hold(overlay: Overlay, request: tuple[str, str]) -> bool:
    """One holder at a time, with an event that says so and a lease that ends by itself."""
    jar, holder = request
    if overlay.lease(f"jar/{jar}") is not None:
        return False
    event = overlay.emit(draft("jar.held", actor=holder, payload={"jar": jar}))
    overlay.take_lease(f"jar/{jar}", holder, 60, event.position)
    return True


def crash(overlay: Overlay, request: str) -> None:
    """A decider with a bug: it writes, then falls over."""
    overlay.emit(draft("jar.changed", actor="bug", payload={"jar": request, "coins": 1}, schema_version=2))
    raise ZeroDivisionError(request)


def fold_jar(_key: Key, before: Any, event: Event) -> Any:
    held = before or {"coins": 0, "notes": []}
    notes = [*held["notes"], event.payload["note"]] if event.payload.get("note") else held["notes"]
    coins = held["coins"] + event.payload["coins"]
    return {"coins": coins, "notes": notes} if coins else None


def fold_total(_key: Key, before: Any, event: Event) -> Any:
    return (before or 0) + event.payload["coins"]


CHANGED = Kind(
    "jar.changed",
    version=2,
    upcast={1: lambda payload: {"jar": payload["name"], "coins": payload["amount"], "note": ""}},
    residue=lambda payload: {"jar": payload["jar"], "coins": payload["coins"]},
)
JARS = View("jars", 1, lambda event: [(event.payload["jar"],)], fold_jar, kinds=frozenset({"jar.changed"}))
TOTALS = View(
    "totals", 1, lambda event: [(event.actor,)], fold_total, kinds=frozenset({"jar.changed"}), trailing=True
)
DIARY = View(
    "diary",
    1,
    lambda event: [(event.actor, event.position)] if "text" in event.payload else [],
    lambda _key, _before, event: event.payload["text"],
)


def fold_purse(_key: Key, before: Any, event: Event) -> Any:
    coins = (before or {"coins": 0})["coins"] + event.payload["coins"]
    return {"coins": coins, "last": event.payload["jar"]} if coins else None


PURSE = View(
    "purse", 1, lambda _event: [("all",)], fold_purse, kinds=frozenset({"jar.changed"}), present=True
)

TOY = Capability(
    "jars",
    kinds=(CHANGED, Kind("jar.held")),
    commands={"put": put, "hold": hold, "crash": crash},
    views=(JARS, TOTALS, DIARY, PURSE),
)
