"""What OpenTelemetry was told, for tests: the real SDK with its exporters in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.metrics import _internal as meters
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from commonplace.telemetry import CAPTURE


class Seen:
    """The spans and metrics of this process, of every library."""

    def __init__(self) -> None:
        self._exporter, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meters = MeterProvider([self._reader], shutdown_on_exit=False)

    @property
    def spans(self) -> list[ReadableSpan]:
        """Every span of ours that has ended."""
        every = self._exporter.get_finished_spans()
        return [span for span in every if span.instrumentation_scope.name == "commonplace"]  # type: ignore[union-attr]

    @property
    def roots(self) -> list[ReadableSpan]:
        return [span for span in self.spans if span.parent is None]

    def only(self, name: str) -> ReadableSpan:
        (span,) = (span for span in self.spans if span.name == name)
        return span

    def forget(self) -> None:
        self._exporter.clear()

    @property
    def everything(self) -> str:
        """All that would be exported, as one text."""
        data = self._reader.get_metrics_data()
        spans = [span.to_json() for span in self._exporter.get_finished_spans()]
        return "\n".join([*spans, "" if data is None else data.to_json()])

    def durations(self) -> dict[str, list[dict[str, Any]]]:
        """What each histogram has counted: the attributes of its points."""
        data = self._reader.get_metrics_data()
        return {
            metric.name: [dict(point.attributes or {}) for point in metric.data.data_points]
            for resource in ([] if data is None else data.resource_metrics)
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@contextmanager
def watching() -> Iterator[Seen]:
    """Providers for the time of a block. A process sets its providers once; a test has to give them back."""
    watched = Seen()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(CAPTURE, raising=False)
        patch.setattr(trace, "_TRACER_PROVIDER", watched.tracers)
        patch.setattr(meters, "_METER_PROVIDER", watched.meters)
        yield watched
