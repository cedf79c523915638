"""Which tests run a second time with the book behind a server: those that use only the public API.

`make test` runs a share of them, `make faults` all: `COMMONPLACE_TEST_SERVED=all`.
"""

from __future__ import annotations

import os
from typing import cast

import pytest

BEHIND_A_SERVER = "served"

SHARE = ("test_work_story", "test_threads", "test_scopes", "test_events", "test_history")
MORE = (
    "test_memory", "test_items", "test_access", "test_work", "test_claims", "test_prompts", "test_digest", "test_state",
    "test_search", "test_resume", "test_lifecycle", "test_checklists", "test_hygiene", "test_verified",
    "test_work_context", "test_work_reads", "test_work_board", "test_work_roles", "test_reflection", "test_curation",
)  # fmt: skip

EXCLUDED: dict[str, tuple[str, ...]] = {}
"""Tests of these modules that do not run so, by the reason."""


def is_behind_a_server(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    return call is not None and call.params.get("engine_name") == BEHIND_A_SERVER


def is_served_story(item: pytest.Item) -> bool:
    function = cast(pytest.Function, item)
    uses = set(function.fixturenames)
    if "book" not in uses or "any_engine" in uses:
        return False
    every = os.environ.get("COMMONPLACE_TEST_SERVED") == "all"
    chosen = (*SHARE, *MORE) if every else SHARE
    module = function.module.__name__.rpartition(".")[2]
    return module in chosen and not any(function.originalname in names for names in EXCLUDED.values())
