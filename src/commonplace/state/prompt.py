"""An agent's view of a run's state as text for a model.

Large inputs are cut, never silently: the text says how much is missing and under which name the whole value
can be read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

MOST = 64_000
LEAST = 4_000
PREVIEW = 2_000
"""Characters for all inputs together, at least for each one, and of one that does not fit."""


def inputs(agent: str, state: Mapping[str, Any], most: int = MOST) -> str:
    """Each key of the state under its own heading, in a fixed order."""
    shown = {key: value for key, value in state.items() if key not in ("_meta", "_trace", "_workflow")}
    shown = {key: value for key, value in shown.items() if value != []}
    parts = []
    share = most // max(1, len(shown))
    room = share if most < MOST else max(LEAST, share)
    for key in sorted(shown, key=lambda key: (key == agent, key)):
        title = "Your own entry" if key == agent else f"Input: {' '.join(key.split())}"
        parts.append(f"## {title}\n{_fitted(key, shown[key], room)}")
    return "\n\n".join(parts)


def _fitted(key: str, value: Any, room: int) -> str:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, indent=1)
    if len(text) <= room:
        return text
    preview = min(PREVIEW, room)
    return (
        f"{text[:preview]}\n(cut: {preview:,} of {len(text):,} characters; the whole value is in the run's state "
        f"under {key!r})"
    )
