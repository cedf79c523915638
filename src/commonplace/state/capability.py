"""The state capability: which events there are, who decides them, and what is folded from them."""

from __future__ import annotations

from ..ledger.views import Capability, Kind, View
from .cells import cell_keys, fold_cell
from .changes import decide_change
from .events import (
    CHANGED,
    CLOSED,
    MERGED,
    OPENED,
    STEPPED,
    VIOLATED,
    change_without_values,
    end_without_reason,
    start_without_values,
    step_without_result,
)
from .merge import decide_merge
from .opening import decide_open
from .rows import (
    fold_opened,
    fold_rights,
    fold_secrets,
    fold_step,
    fold_totals,
    rights_keys,
    run_key,
    secret_keys,
    step_key,
)
from .steps import decide_close, decide_reopen, decide_step

WRITING = frozenset({OPENED, CHANGED, STEPPED})

STATE = Capability(
    "state",
    kinds=(
        Kind(OPENED, residue=start_without_values),
        Kind(CHANGED, residue=change_without_values),
        Kind(STEPPED, residue=step_without_result),
        Kind(CLOSED, residue=end_without_reason),
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
        View("state.runs", 1, run_key, fold_opened, kinds=frozenset({OPENED})),
        View("state.rights", 1, rights_keys, fold_rights, kinds=frozenset({OPENED, STEPPED})),
        View("state.totals", 1, run_key, fold_totals, kinds=WRITING | {CLOSED}),
        View("state.cells", 1, cell_keys, fold_cell, kinds=WRITING),
        View("state.steps", 1, step_key, fold_step, kinds=frozenset({STEPPED})),
        View("state.secrets", 1, secret_keys, fold_secrets, kinds=WRITING),
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
            lambda event: cell_keys(event) if event.payload["model"] == "cqrs" else [],
            fold_cell,
            kinds=WRITING,
            trailing=True,
        ),
    ),
)
