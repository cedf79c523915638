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
from ...verbs import Parameter, Verb, members, name_of
from ..data import FORMS
from ..network import served
from .messages import FILE, PLAIN, PROBLEM

PROBLEMS = {
    "400": "An argument is wrong.",
    "401": "There is no valid token.",
    "403": "The actor has no right to it, or the token does not allow it.",
    "404": "There is no such thing, as far as the actor may know.",
    "409": "Somebody else was first: a conflict, a stale version, a lost claim.",
    "410": "The content was erased, or lies before the versions that are kept.",
    "412": "It was changed since the version of If-Match.",
    "413": "Something is larger than its limit.",
    "422": "An output breaks its contract.",
    "429": "Too many requests: wait as long as Retry-After says.",
    "500": "The server failed, or stored bytes are not what was written.",
    "501": "The book was written by a newer version.",
    "502": "A model did not answer.",
    "503": "Something is switched off, closed, busy or cannot be reached.",
    "504": "The outcome of a write is unknown: look before you repeat it.",
    "507": "The disk is full, or failed.",
}
"""The statuses of problems."""
ALWAYS = ("400", "401", "403", "404", "413", "429", "500", "501", "503")
READING = ("409", "410")
WRITING = ("409", "410", "504", "507")

NAME = {"type": "string", "description": "percent-encoded UTF-8"}
OF_EVERY_REQUEST = {
    "Commonplace-Actor": ("Who acts. Only an owner's token may name another actor than its own.", NAME),
    "Commonplace-Scope": ("The scope to act in, within that of the token, such as users/alice.", NAME),
    "Commonplace-Reads": ("Other scopes to read, with commas between them.", NAME),
    "Commonplace-Run": ("The run that the call belongs to.", NAME),
    "Commonplace-Lead": (
        "The fence of the lead under which something is done to a work: it is refused once somebody else leads.",
        {"type": "string", "pattern": "^[0-9]{1,18}$"},
    ),
    "Commonplace-Look": ("What access.look_as has answered: the call sees what that actor sees.", NAME),
    "X-Request-Id": (
        "An id of the request, which the answer and the log have.",
        {"type": "string"},
    ),
}
TAG = {"type": "string", "pattern": '^("[0-9]+(-[0-9a-f]{16})?"|[*])$'}
CONDITIONS = {
    "Idempotency-Key": (
        "The same key with the same call is done once.", {"type": "string", "minLength": 1, "maxLength": 200}
    ),
    "Commonplace-Sent-To": (
        "For a call that is sent again: the Commonplace-Instance of the last answer that the client had received when "
        "it first sent the call. If what came of it is no longer known, the answer is 504, and it is not made again.",
        {"type": "string"},
    ),
    "If-Match": ("The ETag of the version that is to be changed; without it any version is.", TAG),
    "If-None-Match": ("The ETag of an answer that the client has: 304 if it is still the same.", {"type": "string"}),
    "Commonplace-File": ("The name of the file, without its folder. It may tell how the content is read.", NAME),
    "Last-Event-ID": ("The position of the last event that was seen.", {"type": "string", "pattern": "^[0-9]{1,18}$"}),
}  # fmt: skip
OF_EVERY_ANSWER = {
    "X-Request-Id": "The id of the request in the log.",
    "Commonplace-Instance": "Which process of the server has answered, and when.",
}

CONTENT_OF_FILE: dict[str, Any] = {"type": "string", "format": "binary"}
SCALARS: dict[Any, dict[str, Any]] = {
    str: {"type": "string"}, int: {"type": "integer"}, float: {"type": "number"}, bool: {"type": "boolean"},
    bytes: {"type": "string"}, datetime: {"type": "string"}, date: {"type": "string"},
    timedelta: {"type": "string"}, type(None): {"type": "null"}, None: {"type": "null"},
}  # fmt: skip


def document() -> dict[str, Any]:
    """The whole document."""
    read: dict[str, Any] = msgspec.json.decode(written())
    return read


@cache
def written() -> bytes:
    """The whole document as JSON."""
    answers = _Answers()
    verbs = [verb for verb in served().values() if verb.name != "watch"]
    requests, parts = msgspec.json.schema_components(
        [verb.request for verb in verbs], ref_template="#/components/schemas/{name}"
    )
    paths: dict[str, Any] = {}
    for verb, request in zip(verbs, requests, strict=True):
        if verb.fields:
            parts[request["$ref"].rpartition("/")[2]].pop("additionalProperties", None)
        paths[f"/v1/{'/'.join(verb.path)}"] = _path(verb, request, answers)
    paths |= {
        f"/v1/{name}": {"parameters": _everywhere(), "get": each} for name, each in _own_routes().items()
    }
    paths |= {
        "/mcp": _mcp(),
        "/healthz": _health("health", "Whether the server runs."),
        "/readyz": _readiness(),
    }
    made = {
        "openapi": "3.1.0",
        "info": {
            "title": "commonplace",
            "version": __version__,
            "description": "One memory for a team of AI agents. Every verb of a book has one path: POST with the "
            "arguments as JSON, and GET for what only reads.",
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": {**parts, **answers.schemas, "Problem": PROBLEM_SCHEMA},
            "responses": {status: _problem(status, about) for status, about in PROBLEMS.items()},
            "parameters": {
                name: {"name": name, "in": "header", "description": about, "schema": schema}
                for name, (about, schema) in (OF_EVERY_REQUEST | CONDITIONS).items()
            },
            "headers": {
                name: {"description": about, "schema": {"type": "string"}}
                for name, about in OF_EVERY_ANSWER.items()
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }
    return msgspec.json.encode(made)


PROBLEM_SCHEMA = {
    "description": "What is wrong (RFC 9457). `code` is for programs; an error may have more fields.",
    "type": "object",
    "required": ["type", "title", "status", "code", "detail", "request_id"],
    "properties": {
        "type": {"type": "string"}, "title": {"type": "string"}, "status": {"type": "integer"},
        "code": {"type": "string"}, "detail": {"type": "string"}, "request_id": {"type": "string"},
    },
}  # fmt: skip


def _problem(status: str, about: str) -> dict[str, Any]:
    headers: dict[str, Any] = {name: {"$ref": f"#/components/headers/{name}"} for name in OF_EVERY_ANSWER}
    if status == "401":
        headers["WWW-Authenticate"] = {"schema": {"type": "string"}, "required": True}
    if status == "429":
        headers["Retry-After"] = {"schema": {"type": "integer"}, "required": True}
    return {
        "description": about,
        "headers": headers,
        "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }


def statuses(verb: Verb) -> list[str]:
    """The statuses of problems that a verb may answer with."""
    names = {parameter.name for parameter in verb.parameters}
    found = {*ALWAYS, *(READING if verb.reads else WRITING)}
    if "if_position" in names:
        found.add("412")
    if verb.facts.reads_file or verb.facts.writes_file:
        found.add("507")
    if verb.path[0] in ("turn", "run", "runs") and not verb.reads:
        found.add("422")
    return sorted(found)


def _path(verb: Verb, request: Mapping[str, Any], answers: _Answers) -> dict[str, Any]:
    paged, reads = verb.path == ("events",), verb.reads
    reads_file, writes_file = bool(verb.facts.reads_file), bool(verb.facts.writes_file)
    about = {
        "summary": verb.summary.replace("`", ""),
        "description": verb.about,
        "tags": [verb.path[0] if len(verb.path) > 1 else "book"],
    }
    name, problems = "_".join(verb.path), statuses(verb)
    answer = _page(answers) if paged else answers.of(verb.answer)
    responses = _with_file(problems) if writes_file else _responses(answer, problems, tagged=reads)
    conditions = (
        ["Idempotency-Key", "Commonplace-Sent-To"] if not reads else [] if writes_file else ["If-None-Match"]
    )
    if "412" in problems:
        conditions.append("If-Match")
    in_query = [_in_query(each) for each in verb.parameters if each.is_data]
    required = any(parameter.required and parameter.is_data for parameter in verb.parameters)
    body = {"required": required, "content": {PLAIN: {"schema": dict(request)}}}
    in_post = list[dict[str, Any]]()
    if reads_file:
        conditions.append("Commonplace-File")
        body, in_post = {"required": True, "content": {FILE: {"schema": CONTENT_OF_FILE}}}, in_query
    path: dict[str, Any] = {
        "parameters": _everywhere(),
        "post": {
            **about,
            "operationId": name,
            "parameters": [*in_post, *map(_ref, conditions)],
            "requestBody": body,
            "responses": responses,
        },
    }
    if reads:
        of_page = [_query("limit", {"type": "integer", "minimum": 1}, "How many events a page has.")]
        path["get"] = {
            **about,
            "operationId": f"get_{name}",
            "parameters": [*in_query, *(of_page if paged else ()), *map(_ref, conditions)],
            "responses": responses,
        }
    return path


def _everywhere() -> list[dict[str, Any]]:
    return [_ref(name) for name in OF_EVERY_REQUEST]


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/parameters/{name}"}


def _responses(
    answer: Mapping[str, Any], problems: Iterable[str], *, tagged: bool = False, kind: str = PLAIN
) -> dict[str, Any]:
    headers: dict[str, Any] = {name: {"$ref": f"#/components/headers/{name}"} for name in OF_EVERY_ANSWER}
    if tagged:
        headers["ETag"] = {"description": "The version of the answer.", "schema": {"type": "string"}}
    unchanged = {"304": {"description": "It has not changed since If-None-Match."}} if tagged else {}
    return {
        "200": {
            "description": "The answer.",
            "headers": headers,
            "content": {kind: {"schema": dict(answer)}},
        },
        **unchanged,
        **{status: {"$ref": f"#/components/responses/{status}"} for status in problems},
    }


def _with_file(problems: Iterable[str]) -> dict[str, Any]:
    responses = _responses(CONTENT_OF_FILE, problems, kind=FILE)
    told = {
        "description": "What the verb has answered, as JSON.",
        "schema": {"type": "string"},
        "required": True,
    }
    responses["200"]["headers"] |= {"Commonplace-Answer": told}
    return responses


def _stream(verb: Verb) -> dict[str, Any]:
    return {
        "operationId": "_".join(verb.path),
        "tags": ["book" if len(verb.path) == 1 else verb.path[0]],
        "summary": verb.summary.replace("`", ""),
        "description": f"{verb.about}\n\nThe answer is a stream of server-sent events. The id of each is its "
        "position: Last-Event-ID resumes after it. The event `error` holds a problem, and is the last one.",
        "parameters": [
            *(_in_query(each) for each in verb.parameters if each.is_data),
            _ref("Last-Event-ID"),
        ],
        "responses": _responses({"type": "string"}, statuses(verb), kind="text/event-stream"),
    }


def _own_routes() -> dict[str, Any]:
    """What is no verb, or is answered in another form."""
    text, whole = {"type": "string"}, {"type": "integer"}
    book = {
        "id": text, "name": text, "head": whole, "version": text, "actor": text,
        "scope": {"type": ["string", "null"]}, "reads": {"type": "array", "items": text},
    }  # fmt: skip
    return {
        "watch": _stream(served()["watch"]),
        "work/watch": _stream(served()["work.watch"]),
        "book": {
            "operationId": "book",
            "tags": ["book"],
            "summary": "Which book this is, and who the caller is in it.",
            "responses": _responses(_object(book), ALWAYS),
        },
        "head": {
            "operationId": "head",
            "tags": ["book"],
            "summary": "The last position, or once it is beyond another.",
            "parameters": [
                _query(
                    "beyond",
                    {"type": "integer", "minimum": 0},
                    "Answer once the head is beyond this position.",
                ),
                _query(
                    "timeout",
                    {"type": "number", "minimum": 0},
                    "After how many seconds to answer anyway; at most 30.",
                ),
            ],
            "responses": _responses(_object({"head": whole}), ALWAYS),
        },
    }


def _mcp() -> dict[str, Any]:
    """The address of the Model Context Protocol, whose messages its own specification describes."""
    message = {"content": {PLAIN: {"schema": {"type": "object"}}}}
    answer = {
        "description": "As the Model Context Protocol says.",
        "content": {PLAIN: {"schema": {}}, "text/event-stream": {"schema": {"type": "string"}}},
    }
    both = {"tags": ["mcp"], "responses": {"default": answer}}
    post = {
        "operationId": "mcp",
        "summary": "A message of the Model Context Protocol.",
        "requestBody": message,
    }
    return {
        "post": {**both, **post},
        "get": {**both, "operationId": "get_mcp", "summary": "Messages of the server, as a stream."},
    }  # fmt: skip


def _health(name: str, about: str) -> dict[str, Any]:
    shown = {
        "description": "The answer.",
        "content": {PLAIN: {"schema": _object({"status": {"type": "string"}})}},
    }
    return {
        "get": {
            "operationId": name, "tags": ["server"], "summary": f"{about} Needs no token.", "security": [],
            "responses": {"200": shown},
        }
    }  # fmt: skip


def _readiness() -> dict[str, Any]:
    made = _health("ready", "Whether the book can be read: the server is ready.")
    body = {"type": "object", "required": ["status", "code"]}
    refused = {
        "description": "The book cannot be read, or the server ends.",
        "content": {PLAIN: {"schema": body}},
    }
    made["get"]["responses"] |= {"503": refused, "429": {"$ref": "#/components/responses/429"}}
    return made


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "required": list(properties)}


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
        if part in SCALARS:
            return SCALARS[part]
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
