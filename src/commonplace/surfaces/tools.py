"""The tools of memory that agents call, with their envelopes: one dispatch for every caller.

    Tools(book).call("memory.search", {"query": "which port"}, actor="ada", run_id="r1")
    → {"ok": true, "status": 200, "data": {…}, "error": null, "log": […]}

A tool is a verb, or a short function over verbs that is read as a verb is: its arguments and their JSON Schema come
from the signature. A tool never raises: what is wrong with a call is in its answer. 400 bad arguments, 403 denied, 404
unknown, 409 conflict, 422 contract, 503 not switched on, 500 otherwise.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ..access.rights import OWNER
from ..documents.document import check_day, day_of, log_path, rendered
from ..errors import BadInput, CommonplaceError, NotFound, shown
from ..ledger.encoding import convert, encode_payload
from ..memory.places import MEMORY_MD
from ..participant import acting
from ..recall.search import envelope
from ..registry import verb_at
from ..telemetry import executing, tell_of_call
from ..verbs import Verb, members, verb_of
from .wording import misfit

if TYPE_CHECKING:
    from ..participant import Participant

log = logging.getLogger("commonplace")


def _read(
    me: Participant, target: Literal["long_term", "daily", "dates"], date: str | None = None
) -> dict[str, Any]:
    """Read long-term memory, the log of a day, or the list of days that have a log.

    `target` is what to read. `date` is the day, as YYYY-MM-DD (UTC): today, if not said."""
    if target == "dates":
        return {"dates": me.documents.days()}
    if target == "long_term":
        text = me.memory.markdown()
        return {"content": text, "exists": bool(text), "file": MEMORY_MD}
    day = check_day("date", date or datetime.now(UTC).date())
    entries = me.documents.day(day)
    text = rendered(log_path(day), entries) if entries else ""
    return {"content": text, "exists": bool(text), "file": log_path(day)}


def _write(me: Participant, content: str, target: Literal["daily", "long_term"]) -> dict[str, Any]:
    """Add to the day's log, or keep something in long-term memory.

    `content` is what to write. `target` is where."""
    if target == "daily":
        event = me.documents.log(content)
        file = log_path(day_of(event.created_us))
        return {"target": target, "file": file, "outcome": "stored", "id": event.id}
    kept = me.remember(content, shared=True)
    return {
        "target": target, "file": MEMORY_MD, "outcome": kept.outcome, "reason": kept.reason, "id": kept.item_id,
        "redacted": list(kept.redacted), "overflow": kept.overflow,
    }  # fmt: skip


def _search(me: Participant, **arguments: Any) -> dict[str, Any]:
    if not arguments.get("query") and arguments.get("mode", "hybrid") not in ("date_range", "agent_filter"):
        raise BadInput("query is missing: say what to look for, or use the mode date_range or agent_filter")
    return envelope(me.search(**arguments))


def _curate(me: Participant, **arguments: Any) -> dict[str, Any]:
    curated: dict[str, Any] = msgspec.to_builtins(me.memory.curate(**arguments))
    return curated


def _post(me: Participant, topic: str, payload: dict[str, Any]) -> dict[str, Any]:
    """Post something on the board of this run, for its manager and the other workers.

    `topic` is a word to find it by. `payload` are the fields to post."""
    return {"entry_id": me.learn.board.post(topic, payload).id}


def _board(me: Participant, topic: str | None = None, since: str | None = None) -> dict[str, Any]:
    """Read what was posted on the board of this run, oldest first.

    `topic` is the topic to read alone. `since` is the id of an entry, or a time: only what was posted after it."""
    return {"entries": [msgspec.to_builtins(entry) for entry in me.learn.board.read(topic, since)]}


def _fetch(me: Participant, sha: str) -> dict[str, Any]:
    """Fetch a context digest of this delegation by its address.

    `sha` is the address, or its beginning, at least 12 characters."""
    return {"digest": msgspec.to_builtins(me.learn.digests.fetch(sha))}


SEARCHED_BY = {
    "query": "what to look for, in your own words",
    "mode": "hybrid (everything there is to go by), keyword, semantic, date_range or agent_filter",
    "tiers": "long_term, working (daily logs), episodic or semantic; by default all that the mode looks at",
    "date_range": "only results of these days: the first and the last, as YYYY-MM-DD",
    "agent_filter": "only what these agents said",
    "max_results": "how many results at most",
    "explain": "also say why each result was found",
}
"""The parameters of `search` that the tool has, and what a model is told about them."""


def tools() -> dict[str, Verb]:
    """Every tool by its name."""
    search, curate = verb_at("search"), verb_at("memory.curate")
    chosen = tuple(
        parameter._replace(help=SEARCHED_BY[parameter.name])
        for parameter in search.parameters
        if parameter.name in SEARCHED_BY
    )
    as_data = tuple(parameter for parameter in curate.parameters if parameter.is_data)
    return {
        "memory.read": verb_of(("memory", "read"), _read),
        "memory.write": verb_of(("memory", "write"), _write),
        "memory.search": search._replace(path=("memory", "search"), function=_search, parameters=chosen),
        "board.post": verb_of(("board", "post"), _post),
        "board.read": verb_of(("board", "read"), _board),
        "digest.fetch": verb_of(("digest", "fetch"), _fetch),
        "memory.curate": curate._replace(function=_curate, parameters=as_data),
    }


def schema(tool: Verb) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments."""
    (_,), parts = msgspec.json.schema_components([tool.request])
    return dict(parts[tool.request.__name__])


class Tools:
    """Every tool of a book, for callers that bring a name and arguments."""

    def __init__(self, owner: Participant) -> None:
        self._owner = owner
        self._tools = tools()

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        actor: str = OWNER,
        run_id: str | None = None,
    ) -> dict[str, Any]:
        """Call a tool by its dotted name, or the same with `_` for the dots, and answer its envelope."""

        def find() -> Participant:
            me = acting(self._owner, actor, run_id)
            tell_of_call(me._session, arguments)
            return me

        with executing(_known(self._tools, name)) as failed:
            envelope = answered(self._tools, name, arguments, find, actor)
            if envelope["error"]:
                failed(envelope["error"]["code"])
        return envelope


def answered(
    table: Mapping[str, Verb],
    name: object,
    arguments: Mapping[str, Any] | None,
    find: Callable[[], Participant],
    actor: str,
    **more: Any,
) -> dict[str, Any]:
    """Call a tool of a table for the participant that `find` finds, and answer its envelope. `more` is for the tool's
    function alone, such as a callback for progress."""
    try:
        tool = _named(table, name)
        given = _checked(_called(name), tool, {} if arguments is None else arguments)
        return _envelope(200, tool.function(find(), **given, **more), None)
    except CommonplaceError as error:
        return _envelope(
            error.status, {}, {**error.as_dict(), "tool": _called(name), "agent": _called(actor)}
        )
    except Exception as error:
        log.exception("the tool %s failed", name)
        failure = {"code": "error", "status": 500, "message": f"the tool failed: {type(error).__name__}"}
        return _envelope(500, {}, {**failure, "tool": _called(name), "agent": _called(actor)})


def _named(table: Mapping[str, Verb], name: object) -> Verb:
    known = _known(table, name)
    if known is None:
        raise NotFound(f"there is no tool {shown(name)}: the tools are {', '.join(table)}")
    return table[known]


def _known(table: Mapping[str, Verb], name: object) -> str | None:
    """The tool of this name, with dots or with `_` for them; None if there is none."""
    wanted = name.replace(".", "_") if isinstance(name, str) else None
    return next((known for known in table if known.replace(".", "_") == wanted), None)


def _checked(name: str, tool: Verb, given: object) -> dict[str, Any]:
    """The arguments of a call as the tool takes them. Raises BadInput."""
    if not isinstance(given, Mapping):
        raise BadInput(f"{name} takes an object of arguments, not {shown(given)}")
    plain = _without_nulls(tool, encode_payload(given)[1])
    try:
        request = convert(plain, tool.request, strict=False)  # models write numbers as texts
    except msgspec.ValidationError as error:
        raise misfit(name, tool, error) from None
    return {field: getattr(request, field) for field in plain}


def _without_nulls(tool: Verb, given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments without those that are null where null says nothing: models write it for what they leave out."""
    never_null = {
        parameter.name
        for parameter in tool.parameters
        if not parameter.required and type(None) not in members(parameter.type)
    }
    return {name: value for name, value in given.items() if value is not None or name not in never_null}


def _called(name: object) -> str:
    """A name as an answer can hold it."""
    return name[:200] if isinstance(name, str) and name.isprintable() else shown(name)


def _envelope(status: int, data: dict[str, Any], error: dict[str, Any] | None) -> dict[str, Any]:
    lines = data.pop("log", []) if error is None else []
    return {"ok": error is None, "status": status, "data": data, "error": error, "log": lines}
