"""What the standard environment of OpenTelemetry asks for, for commands that run for long: `serve` and `mcp`.

A program that uses the library configures OpenTelemetry itself. These commands are programs of ours, so they do what
the variables say: OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_TRACES_EXPORTER and OTEL_METRICS_EXPORTER. Without one of them
nothing is loaded and nothing is sent.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Any

from ..telemetry import has_provider
from ..version import install_hint

log = logging.getLogger("commonplace")

PROTOCOLS = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
"""The exporters of OTLP by the value of OTEL_EXPORTER_OTLP_PROTOCOL."""
SECONDS = 2
"""For how long one export is tried. A command waits so long for each signal when it ends, and the SDK's own default of
ten is longer than clients of MCP wait for a server that they have ended."""


def export_as_configured() -> None:
    """Set up the SDK as the environment says, if it says anything and nobody has done so. What is asked for and is not
    installed is a warning: a memory works without being watched."""
    if _says("OTEL_SDK_DISABLED") == "true":
        return
    traces, metrics = list(_asked_for("traces")), list(_asked_for("metrics"))
    if not traces and not metrics:
        return
    try:
        from opentelemetry.sdk.resources import Resource
    except ImportError:
        log.warning("OTEL_ variables ask for telemetry, which needs more packages: %s", install_hint("otel"))
        return
    named = os.environ.get("OTEL_SERVICE_NAME") or "service.name=" in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    resource = Resource.create({} if named else {"service.name": "commonplace"})
    _set_up_traces(traces, resource)
    _set_up_metrics(metrics, resource)


def _says(variable: str) -> str:
    return os.environ.get(variable, "").strip().lower()


def _asked_for(signal: str) -> Iterator[str]:
    """The names of the exporters that a signal is to go to."""
    endpoint = _says("OTEL_EXPORTER_OTLP_ENDPOINT") or _says(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
    names = _says(f"OTEL_{signal.upper()}_EXPORTER") or ("otlp" if endpoint else "")
    return (name.strip() for name in names.split(",") if name.strip() not in ("", "none"))


def _set_up_traces(names: list[str], resource: Any) -> None:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
    from opentelemetry.trace import get_tracer_provider, set_tracer_provider

    if not names or has_provider(get_tracer_provider()):
        return
    provider = TracerProvider(resource=resource)
    for name in names:
        # Standard output belongs to the protocol of a server over stdio.
        exporter = ConsoleSpanExporter(out=sys.stderr) if name == "console" else _exporter("traces", name)
        if exporter is not None:
            provider.add_span_processor(BatchSpanProcessor(exporter))
    set_tracer_provider(provider)


def _set_up_metrics(names: list[str], resource: Any) -> None:
    from opentelemetry.metrics import get_meter_provider, set_meter_provider
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import (
        ConsoleMetricExporter,
        MetricReader,
        PeriodicExportingMetricReader,
    )

    if not names or has_provider(get_meter_provider()):
        return
    readers: list[MetricReader] = []
    for name in names:
        exporter = ConsoleMetricExporter(out=sys.stderr) if name == "console" else _exporter("metrics", name)
        if isinstance(exporter, MetricReader):
            readers.append(exporter)
        elif exporter is not None:
            readers.append(PeriodicExportingMetricReader(exporter))
    set_meter_provider(MeterProvider(readers, resource))


def _exporter(signal: str, name: str) -> Any:
    """The exporter of a name, as the packages that are installed declare them; None if there is none."""
    if name == "otlp":
        said = _says(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL") or _says("OTEL_EXPORTER_OTLP_PROTOCOL")
        name = PROTOCOLS.get(said or "http/protobuf", said)
    for declared in entry_points(group=f"opentelemetry_{signal}_exporter", name=name):
        own = _says("OTEL_EXPORTER_OTLP_TIMEOUT") or _says(f"OTEL_EXPORTER_OTLP_{signal.upper()}_TIMEOUT")
        return declared.load()(**({"timeout": SECONDS} if name.startswith("otlp_") and not own else {}))
    log.warning(
        "no exporter %s for %s is installed: %s has otlp over HTTP, and opentelemetry-exporter-otlp-proto-grpc "
        "is the package for gRPC", name, signal, install_hint("otel"),
    )  # fmt: skip
    return None
