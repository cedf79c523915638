"""The tools that agents call, with their envelopes: one dispatch for MCP, HTTP and whoever else brings calls.

    Tools(book).call("memory.search", {"query": "which port"}, actor="ada", run_id="r1")
    → {"ok": true, "status": 200, "data": {…}, "error": null, "log": […]}

A tool never raises: what is wrong with a call is in its answer. 400 bad arguments, 403 denied, 404 unknown, 409
conflict, 422 contract, 503 not switched on, 500 otherwise.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from .access.rights import OWNER, check_actor
from .actor import Actor
from .errors import BadInput, CommonplaceError, NotFound, shown
from .ledger.events import encode_payload
from .memory import daily
from .memory.items import remarks
from .memory.markdown import document
from .memory.reading import MEMORY_MD
from .recall.search import envelope
from .recall.verification import recorded
from .state.contract import violations

if TYPE_CHECKING:
    from .participant import Participant

log = logging.getLogger("commonplace")


class Tool(NamedTuple):
    run: Callable[[Participant, Mapping[str, Any]], dict[str, Any]]
    description: str
    arguments: dict[str, dict[str, Any]]
    """A JSON Schema of each argument."""
    required: tuple[str, ...] = ()

    @property
    def schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": self.arguments,
            "required": list(self.required),
            "additionalProperties": False,
        }


def _read(me: Participant, given: Mapping[str, Any]) -> dict[str, Any]:
    target = given["target"]
    if target == "dates":
        return {"dates": me.documents.days()}
    if target == "long_term":
        shown, ledger = me.memory.long_term(), me._session.ledger
        me._session.was_shown([item.id for item in shown])
        now_us = ledger.moment()
        with ledger.snapshot() as now:
            checks = recorded(now, shown)
        stale = {id for id, known in checks.items() if known.check.stale}
        page = document("Memory", shown, lambda item: remarks(item, now_us, item.id in stale))
        return {
            "content": page if shown else "",
            "exists": bool(shown),
            "file": MEMORY_MD,
        }
    day = daily.check_day("date", given.get("date") or datetime.now(UTC).date())
    found = me.documents.day(day)
    me._session.was_shown([one.id for one in found])
    return {
        "content": daily.page(day, found) if found else "",
        "exists": bool(found),
        "file": f"memory/{day}.md",
    }


def _write(me: Participant, given: Mapping[str, Any]) -> dict[str, Any]:
    if given["target"] == "daily":
        event = me.documents.log(given["content"])
        return {
            "target": "daily",
            "file": f"memory/{daily.day_of(event.created_us)}.md",
            "outcome": "stored",
            "id": event.id,
        }
    kept = me.remember(given["content"], shared=True)
    return {
        "target": "long_term", "file": MEMORY_MD, "outcome": kept.outcome, "reason": kept.reason, "id": kept.item_id,
        "redacted": list(kept.redacted), "overflow": kept.overflow,
    }  # fmt: skip


def _search(me: Participant, given: Mapping[str, Any]) -> dict[str, Any]:
    return envelope(me.search(**given))


def _curate(me: Participant, given: Mapping[str, Any]) -> dict[str, Any]:
    return me.memory.curate(given.get("days", 7), dry_run=given.get("dry_run", False))


_TIERS = {
    "type": "array",
    "items": {"type": "string", "enum": ["long_term", "working", "episodic", "semantic"]},
}
_DAY = {"type": "string", "description": "YYYY-MM-DD, UTC"}

TOOLS = {
    "memory.read": Tool(
        _read,
        "Read long-term memory, the log of a day, or the list of days that have a log.",
        {"target": {"type": "string", "enum": ["long_term", "daily", "dates"]}, "date": _DAY},
        ("target",),
    ),
    "memory.write": Tool(
        _write,
        "Add to the day's log, or keep something in long-term memory.",
        {"content": {"type": "string"}, "target": {"type": "string", "enum": ["daily", "long_term"]}},
        ("content", "target"),
    ),
    "memory.search": Tool(
        _search,
        "Search memory by words, meaning, days or agents.",
        {
            "query": {"type": "string"},
            "mode": {
                "type": "string",
                "enum": ["keyword", "semantic", "date_range", "agent_filter", "hybrid"],
            },
            "tiers": _TIERS,
            "date_range": {
                "type": "object",
                "properties": {"start": _DAY, "end": _DAY},
                "additionalProperties": False,
            },
            "agent_filter": {"type": "array", "items": {"type": "string"}},
            "max_results": {"type": "integer", "minimum": 1, "maximum": 200},
            "explain": {"type": "boolean"},
        },
    ),
    "memory.curate": Tool(
        _curate,
        "Take what recurs in the daily logs into long-term memory, with the lines it comes from cited.",
        {"days": {"type": "integer", "minimum": 1, "maximum": 365}, "dry_run": {"type": "boolean"}},
    ),
}


class Tools:
    """Every tool of a book, for callers that bring a name and arguments."""

    def __init__(self, owner: Participant) -> None:
        self._owner = owner

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        actor: str = OWNER,
        run_id: str | None = None,
    ) -> dict[str, Any]:
        """Call a tool by its dotted name, or the same with `_` for the dots, and answer its envelope."""
        try:
            found, tool = self._tool(name)
            given = _checked(found, tool, {} if arguments is None else arguments)
            return _envelope(200, tool.run(self._acting(actor, run_id), given), None)
        except CommonplaceError as error:
            return _envelope(
                error.status, {}, {**error.as_dict(), "tool": _called(name), "agent": _called(actor)}
            )
        except Exception as error:
            log.exception("the tool %s failed", name)
            told = {"code": "error", "status": 500, "message": f"the tool failed: {type(error).__name__}"}
            return _envelope(500, {}, {**told, "tool": _called(name), "agent": _called(actor)})

    def _tool(self, name: object) -> tuple[str, Tool]:
        dotted = {one.replace(".", "_"): one for one in TOOLS}
        found = dotted.get(name.replace(".", "_")) if isinstance(name, str) else None
        if found is None:
            raise NotFound(f"there is no tool {shown(name)}: the tools are {', '.join(TOOLS)}")
        return found, TOOLS[found]

    def _acting(self, actor: str, run_id: str | None) -> Participant:
        if run_id is not None:
            return self._owner.run(run_id=run_id, create=False).agent(actor)
        session = self._owner._session
        return self._owner if actor == OWNER else Actor(session.acting_as(check_actor(actor)))


def _checked(name: str, tool: Tool, given: object) -> dict[str, Any]:
    """The arguments of a call as plain JSON that the tool's schema allows. Raises BadInput."""
    if not isinstance(given, Mapping):
        raise BadInput(f"{name} takes an object of arguments, not {shown(given)}")
    plain = encode_payload(given)[1]
    wrong = violations(tool.schema, plain, False)
    if wrong:
        told = "; ".join(f"{one['field'] or 'it'} {one['rule']}" for one in wrong)
        raise BadInput(f"{name} takes {', '.join(tool.arguments)}: {told}")
    return plain


def _called(name: object) -> str:
    """A name as an answer can hold it."""
    return name[:200] if isinstance(name, str) and name.isprintable() else shown(name)


def _envelope(status: int, data: dict[str, Any], error: dict[str, Any] | None) -> dict[str, Any]:
    told = data.pop("log", []) if error is None else []
    return {"ok": error is None, "status": status, "data": data, "error": error, "log": told}
