"""The state capability: which events there are, who decides them, and what is folded from them."""

from __future__ import annotations

from ..ledger.views import Capability
from .cells import CELLS
from .changes import decide_change
from .events import KINDS
from .merge import decide_merge
from .opening import decide_open
from .rows import ROWS
from .steps import decide_close, decide_reopen, decide_step

STATE = Capability(
    "state",
    kinds=KINDS,
    commands={
        "state.open": decide_open,
        "state.change": decide_change,
        "state.step": decide_step,
        "state.close": decide_close,
        "state.reopen": decide_reopen,
        "state.merge": decide_merge,
    },
    views=(*ROWS, CELLS),
)
