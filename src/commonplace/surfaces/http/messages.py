"""What comes in and goes out: from a request to the arguments of a verb, and from an answer or an error to a response.

Two forms of JSON are spoken. Any program sends plain JSON and gets what the command line prints with `--json`. The
Python client sends and gets `application/vnd.commonplace+json`, which keeps bytes, times and the types of answers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import cache, partial
from hashlib import sha256
from typing import Any, BinaryIO, NamedTuple, get_origin
from urllib.parse import unquote

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ...errors import BadInput, BadMethod, CommonplaceError, shown
from ...ledger.encoding import convert, decode
from ...ledger.events import Event
from ...verbs import Parameter, Verb, members, sent_as
from ...wire import TYPED, incoming, outgoing
from ..data import data_of
from ..network import served
from ..wording import misfit, parameters_of

PLAIN = "application/json"
PROBLEM = "application/problem+json"
FILE = "application/octet-stream"
PART_OF_FILE = 1 << 18


def is_typed(request: Request) -> bool:
    return TYPED in request.headers.get("accept", "")


def from_body(request: Request, verb: Verb, body: bytes) -> dict[str, Any]:
    """The arguments of a verb in a body. Raises BadInput."""
    kind = request.headers.get("content-type", PLAIN).partition(";")[0].strip().lower()
    if kind not in (PLAIN, TYPED):
        raise BadInput(f"the body is {shown(kind)}: send it as {PLAIN}")
    try:
        given = decode(body) if body else {}
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise BadInput(f"the body is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise BadInput(f"the body is not an object of arguments: {parameters_of(verb)}")
    if kind == TYPED:
        arguments: dict[str, Any] = incoming(given)
        _check_names(verb, arguments)
        return arguments
    return checked(verb, given)


def from_query(verb: Verb, query: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """The arguments of a verb in the query of a URL: a list repeats its name, an object is JSON."""
    parameters = {parameter.name: parameter for parameter in verb.parameters}
    given: dict[str, Any] = {}
    for name, text in query:
        if name not in parameters:
            raise BadInput(f"{verb.dotted} takes {parameters_of(verb)}, and not {shown(name)}")
        value = _from_text(parameters[name], text)
        if isinstance(given.get(name), list) and isinstance(value, list):
            given[name] += value
        elif name in given:
            raise BadInput(f"{name} is given twice")
        else:
            given[name] = value
    return checked(verb, given)


def from_query_of_page(verb: Verb, query: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """The arguments of a page of events, which has a limit, too."""
    pairs = list(query)
    limits = [text for name, text in pairs if name == "limit"]
    given = from_query(verb, [(name, text) for name, text in pairs if name != "limit"])
    if limits:
        if len(limits) > 1 or not re.fullmatch("[1-9][0-9]{0,8}", limits[0], re.ASCII):
            raise BadInput("limit is a whole number from 1 to 999,999,999")
        given["limit"] = int(limits[0])
    return given


def _from_text(parameter: Parameter, text: str) -> Any:
    kinds = {get_origin(kind) or kind for kind in members(sent_as(parameter.type))}
    if text == "null" and type(None) in kinds:
        return None
    if list in kinds:
        return [text]
    if dict in kinds or Any in kinds:
        try:
            return decode(text.encode())
        except (msgspec.MsgspecError, RecursionError):
            if Any in kinds:
                return text
            raise BadInput(f"{parameter.name} is not JSON: write an object") from None
    if bool in kinds and text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        if kind in kinds:
            try:
                return kind(text)
            except ValueError:
                continue
    return text


def checked(verb: Verb, given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments in plain JSON as the verb takes them. Raises BadInput."""
    own = {name: value for name, value in given.items() if not verb.fields or name in _names(verb)}
    further = {name: value for name, value in given.items() if name not in own}
    try:
        request = convert(own, _request(verb.path), strict=True)
    except msgspec.ValidationError as error:
        raise misfit(verb.dotted, verb, error) from None
    _check_names(verb, further)
    return {name: getattr(request, name) for name in own} | further


@cache
def _request(path: tuple[str, ...]) -> type[msgspec.Struct]:
    """The type of a served verb's arguments. It is made once: that takes a millisecond."""
    return served()[".".join(path)].request


def _check_names(verb: Verb, given: Mapping[str, Any]) -> None:
    for name in given:
        if (
            not isinstance(name, str)
            or name.startswith("_")
            or (not verb.fields and name not in _names(verb))
        ):
            raise BadInput(f"{verb.dotted} takes {parameters_of(verb)}, and not {shown(name)}")


def _names(verb: Verb) -> set[str]:
    return {parameter.name for parameter in verb.parameters if parameter.is_data}


class Rendered(NamedTuple):
    """An answer as it is sent."""

    content: bytes
    kind: str = PLAIN
    etag: str | None = None

    def response(self, if_none_match: str = "") -> Response:
        """The response with it; 304 for a client that has it already."""
        headers = {"Vary": "Accept"}
        if self.etag is not None:
            headers["ETag"] = self.etag
            if has_tag(if_none_match, self.etag):
                return Response(status_code=304, headers=headers)
        return Response(self.content, 200, headers, self.kind)


def rendered(answer: Any, *, typed: bool = False, as_of: int | None = None) -> Rendered:
    """An answer in the form that the client asks for. It has an ETag if it says when it was last written, or if the
    position is known that it was read as of."""
    content, written = encoded(answer, typed=typed), getattr(answer, "position", None)
    position = written if type(written) is int else as_of
    etag = None if position is None else etag_of(position, content)
    return Rendered(content, TYPED if typed else PLAIN, etag)


def encoded(answer: Any, *, typed: bool) -> bytes:
    return msgspec.json.encode(outgoing(answer) if typed else shown_plain(answer))


class EventPage(NamedTuple):
    """Some events as they are sent, and whether there are more."""

    events: list[tuple[Event, bytes]]
    more: bool

    def rendered(self, as_of: int, typed: bool) -> Rendered:
        """The page as an answer of its own."""
        events = [msgspec.Raw(data) for _, data in self.events]
        following = self.events[-1][0].position if self.more else None
        content = msgspec.json.encode({"events": events, "next": following, "as_of": as_of})
        return Rendered(content, TYPED if typed else PLAIN, etag_of(as_of, content))


def page_of(events: Iterator[Event], typed: bool, most: int, most_bytes: int) -> EventPage:
    """The next events, until there are `most`, or until they fill `most_bytes`."""
    page, size = list[tuple[Event, bytes]](), 0
    for event in events:
        if len(page) >= most or size >= most_bytes:
            return EventPage(page, True)
        data = encoded(event, typed=typed)
        page.append((event, data))
        size += len(data)
    return EventPage(page, False)


class FileResponse(StreamingResponse):
    """A file, with what the verb that wrote it has answered. What is `held` for it is given back when it was sent."""

    def __init__(self, content: BinaryIO, answer: Any, held: ExitStack) -> None:
        size = os.fstat(content.fileno()).st_size
        told = {"Content-Length": str(size), "Commonplace-Answer": encoded(answer, typed=False).decode()}
        super().__init__(iter(partial(content.read, PART_OF_FILE), b""), 200, told, FILE)
        self._held = held
        held.enter_context(content)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        with self._held:
            await super().__call__(scope, receive, send)


def shown_plain(answer: Any) -> Any:
    """An answer as the command line prints it with `--json`."""
    return msgspec.to_builtins(data_of(answer), str_keys=True, enc_hook=str)


def problem_body(error: CommonplaceError, request_id: str) -> bytes:
    """An error as problem+json (RFC 9457), with the fields that the error has."""
    told = error.as_dict()
    body = {
        "type": f"urn:commonplace:{error.code}",
        "title": type(error).__name__,
        "detail": told.pop("message"),
        "request_id": request_id,
        **told,
    }
    return msgspec.json.encode(msgspec.to_builtins(body, str_keys=True, enc_hook=str))


def problem(error: CommonplaceError, request_id: str) -> Response:
    """An error as an answer."""
    headers = {"Retry-After": str(getattr(error, "retry_after", 1))} if error.status in (429, 503) else {}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, BadMethod):
        headers["Allow"] = error.allowed
    return Response(problem_body(error, request_id), error.status, headers, PROBLEM)


def header(request: Request, name: str) -> str | None:
    """A header of ours: text that is percent-encoded, because a name may hold any character. Raises BadInput."""
    value = request.headers.get(f"commonplace-{name}")
    return None if value is None else _decoded(name, value)


def header_list(request: Request, name: str) -> tuple[str, ...]:
    """A header of ours that is a list of names with commas between them. Raises BadInput."""
    parts = request.headers.get(f"commonplace-{name}", "").split(",")
    return tuple(_decoded(name, part) for part in parts if part)


def _decoded(name: str, value: str) -> str:
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        raise BadInput(f"Commonplace-{name.title()} is not percent-encoded UTF-8") from None


def etag_of(position: int, content: bytes) -> str:
    """What tells versions of an answer apart: a position at which it was as it is shown, and a hash of what is shown.
    If-Match goes by the position: was it written since? If-None-Match goes by the hash: what is shown may change by the
    clock, by rights or by an erasure, and stays the same while other things are written."""
    return f'"{position}-{sha256(content).hexdigest()[:16]}"'


def has_tag(header: str, etag: str) -> bool:
    """Whether If-None-Match names a tag of the same content."""
    tags = [tag.strip() for tag in header.split(",")]
    return "*" in tags or any(tag.rpartition("-")[2] == etag.rpartition("-")[2] for tag in tags)


def position_in(tag: str) -> int | None:
    """The position in an entity tag; None for `*`, which any version matches. Raises BadInput."""
    if tag.strip() == "*":
        return None
    position = re.fullmatch(r'"(\d{1,18})(?:-[0-9a-f]{16})?"', tag.strip(), re.ASCII)
    if position is None:
        raise BadInput(
            f"If-Match {shown(tag)} is no tag of a version: send one ETag that this server gave for what is to be "
            'changed, such as "12-0123456789abcdef"'
        )
    return int(position[1])
