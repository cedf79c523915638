"""The command of the lifecycle. Its decider is loaded when it is first needed: opening a book stays quick."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..ledger.views import Capability

if TYPE_CHECKING:
    from ..ledger.overlay import Overlay


def _decide(overlay: Overlay, moment: Any) -> Any:
    from .lifecycle import decide_moment

    return decide_moment(overlay, moment)


LIFECYCLE = Capability("lifecycle", commands={"lifecycle.write": _decide})
