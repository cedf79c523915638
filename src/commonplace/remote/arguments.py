"""The arguments of a call as they travel: plain values, and ids in place of objects that have one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import date
from inspect import Parameter as Described
from inspect import signature, unwrap
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec

from ..errors import BadInput, NotEnabled, shown
from ..ledger.checks import check_text
from ..ledger.printing import Readable
from ..registry import ids_of
from ..run import Run, Turn, plain_text
from ..threads.verbs import Thread
from ..work.artifacts import made
from ..work.holding import Claim
from ..work.records import Artifact
from ..work.verbs import Work

HOLD_OBJECTS = ("tasks", "subtasks", "options")
"""Parameters that are mappings in which objects may stand in place of their ids. Elsewhere a mapping is the caller's
data, and travels as it is."""
LONGEST_QUERY = 16_000
LARGEST_FILE = 16 << 20
"""A larger file that is not stored is named without its checksum."""


def arguments(
    function: Callable[..., Any], holder: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of a call by their names, as the verb's own signature has them. What is for this side of the wire
    alone is left out."""
    described = signature(unwrap(function))
    bound = described.bind(holder, *args, **kwargs)
    _holder, *rest = described.parameters.values()
    given: dict[str, Any] = {}
    for parameter in rest:
        if parameter.name not in bound.arguments:
            continue
        value = bound.arguments[parameter.name]
        if parameter.kind is Described.VAR_KEYWORD:
            given |= value
        elif parameter.name != "progress" and parameter.name not in ("_token", "_read"):
            given[parameter.name] = value
    return given


def sent(path: str, name: str, value: Any) -> Any:
    """An argument as it is sent: an object that has an id is sent as that."""
    if callable(value) and not isinstance(value, type):
        raise NotEnabled(
            f"{name} of {path} is a function, and {path} runs on the server: leave it out, or open the book on its host"
        )
    match value:
        case Claim():
            return ids_of(value)
        case Turn():
            return value.own_run.id
        case Run() | Work():
            return value.id
        case Thread():
            return value.name
        case BaseException():
            return {"type": type(value).__name__, "message": plain_text(value)}
        case Path():
            return str(value)
        case msgspec.Struct() if name == "messages" and hasattr(value, "as_dict"):
            return value.as_dict()
        case Readable() if hasattr(value, "ids"):
            return list(value.ids)
        case msgspec.Struct() if hasattr(value, "id"):
            if value.id is None:
                raise BadInput(f"nothing was stored, so it has no id: {getattr(value, 'reason', '')}")
            return value.id
    if type(value) in (list, tuple):
        return type(value)(sent(path, name, each) for each in value)
    if isinstance(value, Iterator):
        return [sent(path, name, each) for each in value]
    if type(value) is dict and name in HOLD_OBJECTS:
        return {key: sent(path, name, each) for key, each in value.items()}
    return value


def with_content(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What is said of an artifact, with the content of the file of this host that its path names: the whole of what is
    small or is to be stored; of a larger file so that the server can tell its checksum."""
    given = dict(fields)
    path, store = given.get("path"), given.get("store")
    if given.get("content") is not None or not isinstance(path, str | Path):
        return given
    found = made(path, store=store)
    if "content" in found.said:
        given["content"] = found.said["content"].data
    elif 0 < found.more.get("size", 0) <= LARGEST_FILE:
        given |= {"content": Path(path).read_bytes(), "store": False}
    return given | {"path": str(path)}


def artifacts_sent(each: Any) -> Any:
    """The artifacts of a task that is completed: ids of those that were recorded, and the others with their content."""
    if not isinstance(each, list | tuple):
        return each
    return [
        {"id": one.id}
        if isinstance(one, Artifact)
        else with_content({"path": one})
        if isinstance(one, str | Path)
        else one
        for one in each
    ]


def query_of(given: Mapping[str, Any]) -> str:
    """Arguments as the query of a URL. What is not given is left out."""
    pairs: list[tuple[str, str]] = []
    for name, value in given.items():
        if value is None:
            continue
        each = value if isinstance(value, list | tuple | set | frozenset) else [value]
        pairs += [(name, _in_query(name, one)) for one in each]
        if value is not each and not isinstance(value, str | int | float | date):
            raise BadInput(f"{name} {shown(value)} cannot be sent to a server")
    query = urlencode(pairs)
    if len(query) > LONGEST_QUERY:
        raise BadInput(
            f"what is asked for has {len(query):,} characters, and at most {LONGEST_QUERY:,} are sent"
        )
    return query


def _in_query(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, date):
        return value.isoformat()
    return check_text(name, value) if isinstance(value, str) else str(value)
