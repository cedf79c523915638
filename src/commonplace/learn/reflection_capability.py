"""Recording a reflection: what is decided under the book's lock."""

from __future__ import annotations

import msgspec

from ..access.commands import check_emits, scope_of_run
from ..access.rights import AUTHOR
from ..errors import Denied
from ..ledger.events import Event, draft
from ..ledger.keys import Key
from ..ledger.overlay import Overlay
from ..ledger.views import Capability, View

REFLECTED = "agent.reflected"


class Reflect(msgspec.Struct, frozen=True):
    """Record a reflection, unless its author has reflected in this run after the position `last`."""

    by: str
    run: str
    turn: int
    text: str
    cites: tuple[str, ...]
    """The events that the text rests on."""
    sources: tuple[str, ...]
    """All events that were looked at: labels and erasure follow them."""
    last: int = 0
    private: bool = False


def decide_reflect(overlay: Overlay, request: Reflect) -> Event | Denied | None:
    """Answers None if somebody else has recorded a reflection of this agent meanwhile: of two that find one due, one
    writes it."""
    if (overlay.get("learn.reflections", request.run, request.by) or 0) > request.last:
        return None
    reflection = draft(
        REFLECTED, actor=request.by, run_id=request.run, turn=request.turn, parents=request.sources,
        payload={"text": request.text, "cites": list(request.cites)},
        labels={"audience": AUTHOR} if request.private else None,
    )  # fmt: skip
    refused = check_emits(overlay, [reflection])
    return refused or overlay.emit(reflection, scope=scope_of_run(overlay, request.by, request.run))


def _whose(event: Event) -> list[Key]:
    return [] if event.run_id is None else [(event.run_id, event.actor)]


REFLECTION = Capability(
    "reflection",
    commands={"learn.reflect": decide_reflect},
    views=(
        View(
            "learn.reflections", 1, _whose, lambda _key, _before, event: event.position,
            kinds=frozenset({REFLECTED}), header_only=True, overwrites=True,
        ),
    ),
)  # fmt: skip
"""The last reflection of each agent in each run. The kind is open: an agent may also record one itself, and that counts
as well."""
