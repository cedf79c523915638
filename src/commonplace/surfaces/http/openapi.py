"""The OpenAPI 3.1 document of the server, made from the verbs: a path for each, with its arguments and its answer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, timedelta
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from ... import __version__
from ...ledger.events import Event
from ...registry import only_reads
from ...verbs import Parameter, Verb, members, name_of
from ..data import FORMS
from ..network import served
from .messages import PLAIN, PROBLEM

PROBLEMS = {
    "400": "An argument is wrong.",
    "401": "There is no valid token.",
    "403": "The actor has no right to it, or the token does not allow it.",
    "404": "There is no such thing, as far as the actor may know.",
    "405": "The verb writes, and was asked for with GET.",
    "409": "Somebody else was first: a conflict, a stale version, a lost claim.",
    "410": "The content was erased, or lies before the versions that are kept.",
    "412": "It was changed since the version of If-Match.",
    "413": "Something is larger than its limit.",
    "422": "An output breaks its contract, or the store holds something else.",
    "429": "Too many requests: wait as long as Retry-After says.",
    "500": "The server failed.",
    "501": "The book was written by a newer version.",
    "502": "A model did not answer.",
    "503": "Something is switched off, closed, busy or cannot be reached.",
    "504": "The outcome of a write is unknown: look before you repeat it.",
    "507": "The disk is full, or failed.",
}

NUMBERS: dict[Any, dict[str, Any]] = {
    str: {"type": "string"}, int: {"type": "integer"}, float: {"type": "number"}, bool: {"type": "boolean"},
    bytes: {"type": "string"}, datetime: {"type": "string"}, date: {"type": "string"},
    timedelta: {"type": "string"}, type(None): {"type": "null"}, None: {"type": "null"},
}  # fmt: skip


@cache
def document() -> dict[str, Any]:
    """The whole document."""
    answers = _Answers()
    verbs = [verb for verb in served().values() if verb.path != ("watch",)]
    requests, parts = msgspec.json.schema_components(
        [verb.request for verb in verbs], ref_template="#/components/schemas/{name}"
    )
    paths: dict[str, Any] = {}
    for verb, request in zip(verbs, requests, strict=True):
        if verb.fields:
            parts[request["$ref"].rpartition("/")[2]].pop("additionalProperties", None)
        paths[f"/v1/{'/'.join(verb.path)}"] = _path(verb, request, answers)
    paths |= {
        "/v1/watch": {"get": _watch()},
        "/v1/book": {
            "get": _plain_get("book", "Which book this is, and who the caller is.", {"type": "object"})
        },
        "/v1/head": {
            "get": {
                **_plain_get("head", "The last position.", {"type": "object"}),
                "parameters": [
                    _query("beyond", {"type": "integer"}, "Answer once the head is beyond this position."),
                    _query(
                        "timeout", {"type": "number"}, "After how many seconds to answer anyway; at most 30."
                    ),
                ],
            }
        },
    }
    problem = {
        "type": "object",
        "required": ["type", "title", "status", "code", "detail", "request_id"],
        "properties": {
            "type": {"type": "string"}, "title": {"type": "string"}, "status": {"type": "integer"},
            "code": {"type": "string"}, "detail": {"type": "string"}, "request_id": {"type": "string"},
        },
    }  # fmt: skip
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "commonplace",
            "version": __version__,
            "description": "One memory for a team of AI agents. Every verb of a book has one path.",
        },
        "paths": paths,
        "components": {
            "schemas": {**parts, **answers.schemas, "Problem": problem},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _path(verb: Verb, request: Mapping[str, Any], answers: _Answers) -> dict[str, Any]:
    about = {
        "summary": verb.summary.replace("`", ""),
        "description": verb.about,
        "tags": [verb.path[0] if len(verb.path) > 1 else "book"],
    }
    paged = verb.path == ("events",)
    answer = _page(answers) if paged else answers.of(verb.answer)
    name = "_".join(verb.path)
    path: dict[str, Any] = {
        "post": {
            **about,
            "operationId": name,
            "requestBody": {"content": {PLAIN: {"schema": dict(request)}}},
            "responses": _responses(answer, etag=False),
            "parameters": [] if only_reads(verb) else [_idempotency(), *_if_match(verb)],
        }
    }
    if only_reads(verb):
        path["get"] = {
            **about,
            "operationId": f"get_{name}",
            "parameters": [_in_query(each) for each in verb.parameters if each.is_data]
            + (
                [_query("limit", {"type": "integer", "minimum": 1}, "How many events a page has.")]
                if paged
                else []
            ),
            "responses": _responses(answer, etag=True),
        }
    return path


def _responses(answer: Mapping[str, Any], *, etag: bool) -> dict[str, Any]:
    problems = {
        status: {
            "description": about,
            "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status, about in PROBLEMS.items()
    }
    unchanged = {"304": {"description": "It has not changed since If-None-Match."}} if etag else {}
    return {
        "200": {"description": "The answer.", "content": {PLAIN: {"schema": dict(answer)}}},
        **unchanged,
        **problems,
    }


def _plain_get(name: str, about: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    return {"operationId": name, "summary": about, "responses": _responses(answer, etag=False)}


def _watch() -> dict[str, Any]:
    verb = served()["watch"]
    stream = {
        "description": "Events as they are committed.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
    return {
        "operationId": "watch",
        "summary": verb.summary.replace("`", ""),
        "description": f"{verb.about}\n\nThe id of each event is its position: Last-Event-ID resumes after it.",
        "parameters": [_in_query(each) for each in verb.parameters if each.is_data],
        "responses": {**_responses({}, etag=False), "200": stream},
    }


def _idempotency() -> dict[str, Any]:
    about = "The same key with the same call is done once."
    return {
        "name": "Idempotency-Key", "in": "header", "description": about,
        "schema": {"type": "string", "minLength": 1, "maxLength": 200},
    }  # fmt: skip


def _if_match(verb: Verb) -> list[dict[str, Any]]:
    if all(parameter.name != "if_position" for parameter in verb.parameters):
        return []
    about = "The ETag of the version that is to be changed."
    return [{"name": "If-Match", "in": "header", "description": about, "schema": {"type": "string"}}]


def _query(name: str, schema: Mapping[str, Any], about: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": about, "schema": dict(schema)}


def _in_query(parameter: Parameter) -> dict[str, Any]:
    kinds = {get_origin(kind) or kind for kind in parameter.kinds}
    is_list = any(
        isinstance(kind, type) and issubclass(kind, Collection) and kind is not str for kind in kinds
    )
    schema: dict[str, Any] = {"type": "string"}
    if is_list and not any(isinstance(kind, type) and issubclass(kind, Mapping) for kind in kinds):
        schema = {"type": "array", "items": {"type": "string"}}
    elif kinds <= {int}:
        schema = {"type": "integer"}
    elif kinds <= {int, float}:
        schema = {"type": "number"}
    elif kinds <= {bool}:
        schema = {"type": "boolean"}
    return {**_query(parameter.name, schema, parameter.help), "required": parameter.required}


def _page(answers: _Answers) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["events", "next", "as_of"],
        "properties": {
            "events": {"type": "array", "items": answers.of(Event)},
            "next": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "as_of": {"type": "integer"},
        },
    }


class _Answers:
    """Schemas of answers, in the shape that the command line prints with `--json`."""

    def __init__(self) -> None:
        self.schemas: dict[str, Any] = {}

    def of(self, kind: Any) -> dict[str, Any]:
        parts = members(kind)
        if len(parts) > 1:
            return {"anyOf": [self.of(part) for part in parts]}
        (part,) = parts
        origin, inner = get_origin(part), get_args(part)
        if part in NUMBERS:
            return NUMBERS[part]
        if origin is Literal:
            return {"enum": list(inner)}
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return {"type": "object"}
        if isinstance(origin, type) and issubclass(origin, Iterable):
            one = self.of(inner[0]) if inner and (origin is not tuple or inner[-1] is ...) else {}
            return {"type": "array", "items": one}
        if (isinstance(part, type) and issubclass(part, msgspec.Struct)) or is_dataclass(part):
            return self._object(part)
        return {}

    def _object(self, kind: Any) -> dict[str, Any]:
        name = f"{name_of(kind)}Answer"
        if name not in self.schemas:
            self.schemas[name] = {"type": "object"}  # it may hold others of its own kind
            if not hasattr(kind, "as_dict") and name_of(kind) not in FORMS:
                self.schemas[name] = self._fields(kind)
        return {"$ref": f"#/components/schemas/{name}"}

    def _fields(self, kind: Any) -> dict[str, Any]:
        try:
            hints = get_type_hints(kind)
        except NameError:  # a class that only type checkers know
            hints = {}
        names = (
            kind.__struct_fields__
            if issubclass(kind, msgspec.Struct)
            else [field.name for field in fields(kind)]
        )
        properties: dict[str, Any] = {}
        for name in names:
            stem = name.removesuffix("_us")
            shown = name if stem == name else "at" if stem == "at" else f"{stem}_at"
            a_time = {"anyOf": [{"type": "string"}, {"type": "null"}]}
            properties[shown] = self.of(hints.get(name, Any)) if stem == name else a_time
        return {"type": "object", "properties": properties, "required": list(properties)}
