"""What a client can read by its address, and which addresses an event changes.

memory://long_term, memory://daily/{date}, memory://item/{id}, memory://key/{key}, memory://tag/{tag}, work://{work},
work://{work}/task/{id}. A participant reads what it may see; anything else is not found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from ...documents.document import day_of
from ...errors import NotFound, shown
from ..data import data_of
from ..tools import tools

if TYPE_CHECKING:
    from ...ledger.events import Event
    from ...participant import Participant

LONG_TERM = "memory://long_term"
DAILY = "memory://daily/{date}"
ITEM = "memory://item/{id}"
KEY = "memory://key/{key}"
TAG = "memory://tag/{tag}"
WORK = "work://{work}"
TASK = "work://{work}/task/{id}"

ABOUT = {
    DAILY: "The log of a day (YYYY-MM-DD, UTC).",
    ITEM: "One item of memory.",
    KEY: "The items with a key.",
    TAG: "The items with a tag.",
    WORK: "A work at a glance: goal, tasks, decisions.",
    TASK: "One task of a work.",
}
"""What a client is told about each template."""

VERBS = {
    LONG_TERM: "memory.markdown", DAILY: "documents.day", ITEM: "memory.get", KEY: "memory.list",
    TAG: "memory.list", WORK: "work.info work.board", TASK: "task.info",
}  # fmt: skip
"""The verbs that read what stands at the addresses."""

MARKDOWN, JSON = "text/markdown", "application/json"


def address(template: str, **names: str) -> str:
    """The address of one thing. Names are quoted: a key may hold a slash."""
    return template.format(**{name: quote(value, safe="") for name, value in names.items()})


def matched(uri: str) -> tuple[str, dict[str, str]]:
    """The template of an address and its names. Raises NotFound."""
    if uri == LONG_TERM:
        return LONG_TERM, {}
    for template in ABOUT:
        pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", template)
        if found := re.fullmatch(pattern, uri):
            return template, {name: unquote(value) for name, value in found.groupdict().items()}
    raise NotFound(f"there is no resource {shown(uri)}: there are {LONG_TERM}, {', '.join(ABOUT)}")


def verbs_of_address(uri: str) -> str:
    """The verbs that read what stands at an address, which a token has to allow. Raises NotFound."""
    return VERBS[matched(uri)[0]]


def read(me: Participant, uri: str) -> tuple[str, Any]:
    """What stands at an address: its media type, and text or data. Raises NotFound."""
    template, names = matched(uri)
    if template in (LONG_TERM, DAILY):
        document = tools()["memory.read"].function
        content = document(me, "daily", names["date"]) if names else document(me, "long_term")
        return MARKDOWN, content["content"]
    return JSON, _READ[template](me, **names)


def _items(me: Participant, **chosen: Any) -> Any:
    return data_of(me.memory.list(**chosen))


def _work(me: Participant, work: str) -> Any:
    opened = me.work(work)
    return {**data_of(opened.info()), "board": data_of(opened.board())}


_READ: Mapping[str, Callable[..., Any]] = {
    ITEM: lambda me, id: data_of(me.memory.get(id)),
    KEY: lambda me, key: _items(me, key=key),
    TAG: lambda me, tag: _items(me, tags=[tag]),
    WORK: _work,
    TASK: lambda me, work, id: data_of(me.work(work).task(id).info()),
}


def listed(me: Participant, allows: Callable[[str], bool]) -> Iterator[tuple[str, str, str]]:
    """The addresses that a client can begin with: address, name and media type."""
    if allows(VERBS[LONG_TERM]):
        yield LONG_TERM, "Long-term memory", MARKDOWN
    if allows(VERBS[DAILY]) and allows("documents.days"):
        for day in me.documents.days():
            yield address(DAILY, date=day), f"Log of {day}", MARKDOWN
    if allows("works.list"):
        for work in me.works.list():
            yield address(WORK, work=work.id), work.name, JSON


def changed(event: Event) -> set[str]:
    """The addresses of what an event may have changed."""
    uris, payload = set[str](), event.payload
    if event.kind == "memory.logged":
        uris.add(address(DAILY, date=day_of(event.created_us)))
    elif event.kind.startswith("memory.item."):
        uris.add(LONG_TERM)
        created = payload.get("item")
        content = created if isinstance(created, dict) else {}
        uris |= {address(KEY, key=key) for key in _texts(content.get("key"))}
        uris |= {address(TAG, tag=tag) for tag in _texts(*(content.get("tags") or ()))}
        changes, ids = payload.get("changes"), payload.get("ids")
        for id in _texts(event.id, *(changes or ()), *(ids if isinstance(ids, list | tuple) else ())):
            uris.add(address(ITEM, id=id))
    elif event.kind.startswith(("work.", "task.")):
        for work in _texts(payload.get("work")):
            uris.add(address(WORK, work=work))
            uris |= {address(TASK, work=work, id=id) for id in _texts(payload.get("task_id"))}
    return uris


def _texts(*values: Any) -> Iterator[str]:
    return (value for value in values if isinstance(value, str) and value)
