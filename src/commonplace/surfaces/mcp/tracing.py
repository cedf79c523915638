"""A span for each message of a client of MCP, in place of the one that the SDK would make of it.

The SDK's own spans carry what a client has sent: names of tools and methods that there are not, and messages of errors,
which quote keys, tags and texts. Ours name only what is known here.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolResult
from mcp_types.methods import SPEC_CLIENT_METHODS, SPEC_CLIENT_NOTIFICATION_METHODS
from pydantic import ValidationError

from ...telemetry import answering_mcp

THE_CLIENTS_OWN = {-32700, -32600, -32601, -32602, -32002}
"""Codes of answers to what cannot be served. The conventions do not count them as errors of the server."""


def traced(server: Server[Any], tools: Collection[str], prompts: Collection[str] = ()) -> Server[Any]:
    """The server, with a span for each message. `tools` and `prompts` are the names that it knows."""
    named = {"tools/call": ("gen_ai.tool.name", tools), "prompts/get": ("gen_ai.prompt.name", prompts)}

    async def answer(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        attribute, known = named.get(ctx.method, ("", ()))
        name = (ctx.params or {}).get("name")
        target = {attribute: name} if isinstance(name, str) and name in known else {}
        method = ctx.method if ctx.method in SPEC_CLIENT_METHODS | SPEC_CLIENT_NOTIFICATION_METHODS else None
        trouble: MCPError | ValidationError | None = None
        with answering_mcp(method, target, _attributes(ctx), ctx.meta, ctx.request) as current:
            try:
                result = await call_next(ctx)
            except (MCPError, ValidationError) as error:
                code = error.code if isinstance(error, MCPError) else INVALID_PARAMS
                trouble, result = error, None
                if current is not None:
                    current.tell("rpc.response.status_code", str(code))
                    if code not in THE_CLIENTS_OWN:
                        current.fail(str(code))
            else:
                if current is not None and _has_failed(result):
                    current.fail("tool_error")
        if trouble is not None:  # outside the span, which would take it for an error of the server
            raise trouble
        return result

    others = [each for each in server.middleware if type(each).__name__ != "OpenTelemetryMiddleware"]
    server.middleware[:] = [answer, *others]
    return server


def _attributes(ctx: ServerRequestContext[Any, Any]) -> dict[str, str]:
    """The version of the protocol, and the number of a request. An id that is a text is the client's own words."""
    attributes = {}
    if re.fullmatch(r"\d{4}-\d\d-\d\d", ctx.protocol_version or ""):
        attributes["mcp.protocol.version"] = ctx.protocol_version
    if isinstance(ctx.request_id, int):
        attributes["jsonrpc.request.id"] = str(ctx.request_id)
    return attributes


def _has_failed(result: object) -> bool:
    """Whether a tool has answered with an error."""
    if isinstance(result, CallToolResult):
        return bool(result.is_error)
    return isinstance(result, dict) and result.get("isError") is True
