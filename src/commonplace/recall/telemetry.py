"""What recall reports to those who watch a process: a span and a metric of OpenTelemetry where that is installed, and
the exact text in the log at the level of debugging."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any

log = logging.getLogger("commonplace")


@contextmanager
def recalling(agent: str, mode: str, **more: Any) -> Iterator[dict[str, Any]]:
    """A span `memory.recall` around a recall. What the caller puts into the mapping becomes its attributes; `text` is
    what was recalled, and goes to the log alone."""
    attributes: dict[str, Any] = {"agent": agent, "memory.mode": mode, **more}
    meters = _meters()
    if meters is None:
        yield attributes
        _log(attributes)
        return
    tracer, counts = meters
    with tracer.start_as_current_span("memory.recall") as span:
        yield attributes
        _log(attributes)
        span.set_attributes(
            {name: value for name, value in attributes.items() if value is not None and name != "text"}
        )
        counts.record(attributes.get("memory.visible_count", 0), {"agent": agent})


def _log(attributes: dict[str, Any]) -> None:
    if log.isEnabledFor(logging.DEBUG):
        log.debug("memory.recall %s", attributes)


@cache
def _meters() -> tuple[Any, Any] | None:
    if find_spec("opentelemetry") is None:
        return None
    from opentelemetry import metrics, trace

    counts = metrics.get_meter("commonplace").create_histogram("memory.visible_count")
    return trace.get_tracer("commonplace"), counts
