"""The shapes of messages: plain role and content, OpenAI (chat and responses) and Anthropic.

A message is kept in the shape in which it came, so that it can be sent to the same API again. What is asked about it
(its role, who spoke, its words) is read from that shape. Bytes that are written in base64 (images, sounds, files)
become blobs, so that they stand in no payload, no index and no prompt.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from itertools import takewhile
from typing import Any, TypeGuard

import msgspec

from ..errors import BadInput, CommonplaceError, shown
from ..ledger.checks import check_name, check_text, from_us, to_us
from ..ledger.encoding import BLOB_REF, Blob, blobs_of, canonical, encode_payload
from ..ledger.events import Event
from ..ledger.printing import Readable

ROLES = ("user", "assistant", "system", "developer", "tool", "function")
INSTRUCTIONS = ("system", "developer")
"""The roles of messages that instruct the model. Callers send them anew with every request, often changed."""
ITEMS = (
    "reasoning",
    "compaction",
    "item_reference",
    "mcp_list_tools",
    "mcp_approval_request",
    "mcp_approval_response",
)
"""Items of OpenAI's responses that are no messages and yet part of the conversation, besides calls and outputs."""
TEXTS = ("text", "input_text", "output_text")
"""The types of parts that are words."""
TIMES = ("time", "created_at", "timestamp")
BESIDE = ("id", "metadata", *TIMES)
"""What a message says about itself. It is kept beside its shape, because APIs do not take it back."""
WITHOUT_CONTENT = ("tool_calls", "function_call", "refusal", "audio")
"""A message with one of these may have no content."""
WORDS = ("content", "text", "arguments", "refusal", "thinking", "transcript", "output")
"""Fields that hold words, whatever these look like."""
BY_ID = "id "
"""How the token of a message begins that is known by its id; all others are fingerprints."""
LONGEST_CALL = 500
"""How many characters of a tool's arguments are words of a message."""

_DATA_URL = re.compile(r"data:[\w.+/;=-]{0,200};base64,")
_BLOB = {"blob", "prefix"}


class NewMessage(msgspec.Struct, frozen=True):
    """A message that was checked and is not recorded yet."""

    shape: dict[str, Any]
    id: str | None = None
    time_us: int | None = None
    metadata: dict[str, Any] = {}

    @property
    def payload(self) -> dict[str, Any]:
        """What its event holds."""
        name = None if _is_item(self.shape) else self.shape.get("name")
        fields = {"id": self.id, "metadata": self.metadata, "name": name if isinstance(name, str) else None}
        return {"message": self.shape, **{field: value for field, value in fields.items() if value}}


class Message(Readable, msgspec.Struct, frozen=True, kw_only=True):
    """One message of a thread. `id` is the id that it came with, or else that of its event. `as_dict` gives it back
    in the shape in which it came."""

    id: str
    number: int
    """Its place in the thread, from 1."""
    role: str
    text: str
    """Its words. Tool calls and results are described; images, sounds and files are named."""
    name: str | None = None
    time: datetime
    """When it was said, as far as that is known, or else when it was added."""
    event_id: str
    metadata: dict[str, Any] = {}
    shape: dict[str, Any] = {}

    @property
    def speaker(self) -> str:
        return self.name or self.role

    def as_dict(self) -> dict[str, Any]:
        """The message as an API takes it. What is kept as a blob stands there as a reference."""
        return dict(self.shape)

    def __str__(self) -> str:
        return f"#{self.number} {self.speaker}: {self.text}"


def message_of(event: Event) -> Message:
    """The message that an event holds."""
    payload = event.payload
    shape = payload["message"]
    return Message(
        id=payload.get("id") or event.id,
        number=event.turn,
        role=role_of(shape),
        text=words_of_message(shape),
        name=payload.get("name"),
        time=from_us(event.created_us if event.occurred_us is None else event.occurred_us),
        event_id=event.id,
        metadata=payload.get("metadata", {}),
        shape=shape,
    )


# what comes in


def checked_messages(messages: object) -> list[NewMessage]:
    """One message or a list of them. Raises BadInput that names the place in the list and what is allowed."""
    if isinstance(messages, Mapping | Message) or hasattr(messages, "model_dump"):
        return [_checked("the message", messages)]
    if isinstance(messages, str | bytes) or not isinstance(messages, Iterable):
        raise BadInput(
            f"messages {shown(messages)} is not a message: give one, such as {{'role': 'user', 'content': 'Hello'}}, "
            "or a list of them"
        )
    return [_checked(f"messages[{place}]", message) for place, message in enumerate(messages)]


def _checked(place: str, message: object) -> NewMessage:
    if isinstance(message, Message):
        own_id = None if message.id == message.event_id else message.id
        message = {**message.shape, "id": own_id, "metadata": message.metadata}
    if hasattr(message, "model_dump"):  # an object of the OpenAI or Anthropic client
        try:
            message = message.model_dump(mode="json", exclude_none=True)
        except TypeError as error:
            raise BadInput(f"{place} cannot be read as a message ({error}): give a mapping") from error
    if not isinstance(message, Mapping):
        raise BadInput(f"{place} is {shown(message)}: a message is a mapping with a role and content")
    fields = _plain(place, {field: value for field, value in message.items() if field not in TIMES})
    shape = {field: value for field, value in fields.items() if field not in BESIDE}
    if _is_item(shape):
        _check_item(place, shape)
    else:
        _check_message(place, shape)
    metadata = fields.get("metadata")
    if metadata is not None and not isinstance(metadata, Mapping):
        raise BadInput(f"{place}.metadata {shown(metadata)} is not a mapping")
    return NewMessage(
        {field: _with_blobs(f"{place}.{field}", field, value, shape) for field, value in shape.items()},
        None if fields.get("id") is None else check_name(f"{place}.id", fields["id"]),
        _time(place, message),
        dict(metadata or {}),
    )


def _plain(place: str, fields: Mapping[Any, Any]) -> dict[str, Any]:
    """A message as JSON can hold it. Raises BadInput, also if it is nested too deeply or refers to a blob of the book,
    which would show what others keep to those who know its digest, and keep it from being erased."""
    try:
        plain = encode_payload(fields)[1]
    except CommonplaceError as error:
        error.args = (str(error).replace("payload", place),)
        raise
    if blobs_of(plain):
        raise BadInput(
            f"{place} refers to a blob of the book: send the bytes themselves in base64, as "
            "messages(inline=True) gives them"
        )
    return plain


def _check_message(place: str, shape: Mapping[str, Any]) -> None:
    role = shape.get("role")
    if role is None and "type" in shape:
        known = ", ".join(ITEMS)
        raise BadInput(
            f"{place}.type {shown(shape['type'])} is taken only with a role: items without one are calls (…_call), "
            f"their outputs (…_output), {known}"
        )
    if role not in ROLES:
        raise BadInput(f"{place}.role {shown(role)} is not a role: it is one of {', '.join(ROLES)}")
    if shape.get("name") is not None:
        check_name(f"{place}.name", shape["name"])
    content = shape.get("content")
    if isinstance(content, str):
        check_text(f"{place}.content", content)
    elif isinstance(content, list | tuple):
        for number, part in enumerate(content):
            _check_part(f"{place}.content[{number}]", part)
    elif content is not None or not any(shape.get(field) for field in WITHOUT_CONTENT):
        raise BadInput(
            f"{place}.content {shown(content)} is neither text nor a list of parts; only a message with "
            f"{', '.join(WITHOUT_CONTENT)} has none"
        )
    for number, call in enumerate(_each(f"{place}.tool_calls", shape.get("tool_calls"))):
        if not isinstance(call, Mapping) or not isinstance(call.get("type", "function"), str):
            raise BadInput(f"{place}.tool_calls[{number}] is not a call: give id, type and function")


def _is_item(shape: Mapping[str, Any]) -> bool:
    """Whether this is an item of OpenAI's responses that has no role."""
    kind = shape.get("type")
    return (
        "role" not in shape
        and isinstance(kind, str)
        and (kind in ITEMS or kind.endswith(("_call", "_output")))
    )


def _check_item(place: str, shape: Mapping[str, Any]) -> None:
    kind = shape["type"]
    needed = {"function_call": ("call_id", "name"), "function_call_output": ("call_id",)}
    for field in needed.get(kind, ()):
        if not isinstance(shape.get(field), str):
            raise BadInput(f"{place}.{field} {shown(shape.get(field))} is not text: a {kind} needs it")


def _check_part(place: str, part: object) -> None:
    if isinstance(part, str):
        check_text(place, part)
        return
    kind = part.get("type") if isinstance(part, Mapping) else None
    if not isinstance(part, Mapping) or not isinstance(kind, str):
        raise BadInput(
            f"{place} is not a part: give text, or a mapping with a type such as text, image_url, image, input_audio, "
            "file, tool_use or tool_result"
        )
    needed = {"tool_use": "name", "tool_result": "tool_use_id"} | dict.fromkeys(TEXTS, "text")
    if kind in needed and not isinstance(part.get(needed[kind]), str):
        raise BadInput(
            f"{place}.{needed[kind]} {shown(part.get(needed[kind]))} is not text: a {kind} needs it"
        )


def _each(place: str, values: object) -> Iterable[Any]:
    if values is None or isinstance(values, list | tuple):
        return values or ()
    raise BadInput(f"{place} {shown(values)} is not a list")


def _time(place: str, message: Mapping[str, Any]) -> int | None:
    """When a message was said: a datetime, a time in ISO 8601, or seconds since 1970."""
    field = next((field for field in TIMES if message.get(field) is not None), None)
    if field is None:
        return None
    value = message[field]
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = datetime.fromtimestamp(value, UTC)
        elif isinstance(value, str):
            value = datetime.fromisoformat(value)
            value = value.replace(tzinfo=value.tzinfo or UTC)
    except (ValueError, OverflowError, OSError):
        pass  # to_us says what is wrong with it
    return to_us(f"{place}.{field}", value)


# bytes in base64


def _with_blobs(place: str, field: str, value: Any, around: Mapping[str, Any]) -> Any:
    """A value of a message in which bytes that are written in base64 are blobs."""
    if isinstance(value, Mapping):
        return {
            str(name): _with_blobs(f"{place}.{name}", str(name), inner, value)
            for name, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_with_blobs(f"{place}[{number}]", "", inner, {}) for number, inner in enumerate(value)]
    if not isinstance(value, str) or field in WORDS:
        return value
    url = _DATA_URL.match(value)
    encoded = field == "data" and ("format" in around or around.get("type") == "base64")
    if url is None and not encoded:
        return value
    prefix = "" if url is None else url[0]
    try:
        return {"blob": Blob(base64.b64decode(value[len(prefix) :], validate=True)), "prefix": prefix}
    except (binascii.Error, ValueError):
        raise BadInput(
            f"{place} is not base64: give the bytes of the file in base64, or a URL that it is found at"
        ) from None


def with_data(value: Any, blob: Callable[[str], bytes | None]) -> Any:
    """A message's shape with its blobs as base64 again, as it came."""
    if isinstance(value, dict):
        if value.keys() == _BLOB and isinstance(value["blob"], dict) and BLOB_REF in value["blob"]:
            data = blob(value["blob"][BLOB_REF])
            return None if data is None else value["prefix"] + base64.b64encode(data).decode()
        return {name: with_data(inner, blob) for name, inner in value.items()}
    return [with_data(inner, blob) for inner in value] if isinstance(value, list) else value


# what a message says


def role_of(shape: Mapping[str, Any]) -> str:
    if _is_item(shape):
        return "tool" if shape["type"].endswith("_output") else "assistant"
    return str(shape.get("role") or "user")


def instructs(shape: Mapping[str, Any]) -> bool:
    """Whether a message is an instruction for the model, and not a turn of the conversation."""
    return role_of(shape) in INSTRUCTIONS


def words_of_message(shape: Mapping[str, Any]) -> str:
    """The words of a message, for people, prompts and the index."""
    return "\n".join(part for part in _words(shape) if part.strip())


def spoken(shape: Mapping[str, Any]) -> str:
    """What the speaker says in words of its own: the text of a message without calls, documents and what tools
    returned, which anybody may have written."""
    returned = str(shape.get("type")).endswith("_output") or shape.get("tool_call_id") or shape.get("call_id")
    if returned or _is_item(shape) or role_of(shape) in ("tool", "function"):
        return ""
    content = shape.get("content")
    parts = content if isinstance(content, list | tuple) else [content]
    texts = (part.get("text") if _is_text(part) else part for part in parts)
    return "\n".join(text for text in texts if isinstance(text, str) and text.strip())


def results_in(shape: Mapping[str, Any]) -> list[str]:
    """The ids of the calls whose results a message brings."""
    ids = [shape.get("tool_call_id")]
    ids += [shape.get("call_id")] if str(shape.get("type")).endswith("_output") else []
    content = shape.get("content")
    for part in content if isinstance(content, list | tuple) else ():
        ids += [part.get("tool_use_id")] if isinstance(part, Mapping) else []
    return [id for id in ids if isinstance(id, str)]


def _is_text(part: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(part, Mapping) and part.get("type") in TEXTS


def _words(shape: Mapping[str, Any]) -> Iterator[str]:
    kind, content = shape.get("type"), shape.get("content")
    if kind == "function_call":
        yield _call(shape.get("name"), shape.get("arguments"))
    elif _is_item(shape):
        said = shape.get("output")
        yield from _words_of_parts(said) if said else () if kind == "reasoning" else (f"[{kind}]",)
    yield from _words_of_parts(content)
    if isinstance(shape.get("refusal"), str):
        yield shape["refusal"]
    audio = shape.get("audio")
    if isinstance(audio, Mapping) and isinstance(audio.get("transcript"), str):
        yield audio["transcript"]
    for call in shape.get("tool_calls") or ():
        about = call.get("function") or call.get("custom") or call
        if isinstance(about, Mapping):
            yield _call(about.get("name"), about.get("arguments", about.get("input")))
    old = shape.get("function_call")
    if isinstance(old, Mapping):
        yield _call(old.get("name"), old.get("arguments"))


def _words_of_parts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    for part in content if isinstance(content, list | tuple) else ():
        if isinstance(part, str):
            yield part
        elif isinstance(part, Mapping):
            yield from _words_of_part(part)


def _words_of_part(part: Mapping[str, Any]) -> Iterator[str]:
    kind = str(part.get("type"))
    if kind in TEXTS:
        yield str(part.get("text", ""))
    elif kind == "refusal":
        yield str(part.get("refusal", ""))
    elif kind.endswith("tool_use"):
        yield _call(part.get("name"), part.get("input"))
    elif kind == "tool_result":
        yield from _words_of_parts(part.get("content"))
    elif kind == "document" and isinstance(text := _text_of_document(part), str):
        yield text
    elif "thinking" not in kind:  # what a model thought is kept, and nobody's words
        yield f"[{kind.removesuffix('_url')}]"


def _text_of_document(part: Mapping[str, Any]) -> object:
    """The words of a document that was given as plain text; None of any other."""
    source = part.get("source")
    return source.get("data") if isinstance(source, Mapping) and source.get("type") == "text" else None


def _call(name: object, arguments: object) -> str:
    plain = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
    cut = plain if len(plain) <= LONGEST_CALL else f"{plain[:LONGEST_CALL]}…"
    return f"[calls {name}({'' if arguments is None else cut})]"


# which message is which


def fingerprint_of(shape: Mapping[str, Any], time_us: int | None) -> str:
    """What is the same for two messages that say the same at the same time, if one is known. Blobs count by their
    content; fields that are None or an empty list do not count, and one part of text counts as the text."""
    return sha256(canonical([_comparable(shape), time_us])).hexdigest()[:24]


def _without_empty(value: Any) -> Any:
    """A value without the fields in it, at any depth, that are None or an empty list."""
    if isinstance(value, dict):
        return {
            name: _without_empty(inner) for name, inner in value.items() if inner is not None and inner != []
        }
    return [_without_empty(inner) for inner in value] if isinstance(value, list) else value


def _comparable(shape: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = _without_empty(shape)
    parts = fields.get("content")
    if isinstance(parts, list | tuple) and len(parts) == 1:
        part = parts[0]
        if isinstance(part, Mapping) and part.get("type") in TEXTS and part.keys() == {"type", "text"}:
            fields["content"] = part["text"]
    return fields


Known = tuple[str, str]
"""By what a message is known: its token (its id or fingerprint, empty if it was erased and had no id), and its role."""


def overlap(there: list[Known], incoming: list[Known]) -> tuple[int, int]:
    """Where the thread holds the beginning of a list of messages: from which place on, and how many of them. It is the
    longest beginning that the thread ends with. A message without an id that was erased may be any message of its role
    without one, so at least one other has to be there in full; and erased messages at the very end may be missing from
    the list."""
    end = len(there)
    while True:
        for length in range(min(end, len(incoming)), 0, -1):
            pairs = list(zip(there[end - length : end], incoming[:length], strict=True))
            if all(_may_be(old, new) for old, new in pairs) and any(token for (token, _), _ in pairs):
                return end - length, length
        if not end or there[end - 1][0]:
            return len(there), 0
        end -= 1


def beginning(there: list[Known], incoming: list[Known]) -> int:
    """How many messages both lists begin with. As above, those that were erased do not count alone."""
    pairs = list(takewhile(lambda pair: _may_be(*pair), zip(there, incoming, strict=False)))
    return len(pairs) if any(token for (token, _), _ in pairs) else 0


def _may_be(old: Known, new: Known) -> bool:
    return old == new if old[0] else old[1] == new[1] and not new[0].startswith(BY_ID)


# a conversation in a file


def as_json(name: str, messages: Iterable[Message]) -> bytes:
    rows = [
        {
            "number": message.number,
            "id": message.id,
            "time": message.time,
            "metadata": message.metadata,
            "message": message.shape,
        }
        for message in messages
    ]
    plain = msgspec.json.encode({"name": name, "messages": rows})
    return msgspec.json.format(plain, indent=2) + b"\n"


def as_markdown(name: str, messages: Iterable[Message]) -> bytes:
    parts = [f"# {name}"]
    parts += [
        f"**{message.speaker}** ({message.time:%Y-%m-%d %H:%M}):\n\n{message.text}" for message in messages
    ]
    return ("\n\n".join(parts) + "\n").encode()
