"""The tools that a model is offered: two dozen by default, and the other verbs of a book by groups.

Every tool is a verb, or a short function over verbs that is read as a verb is. A tool has no parameter that names who
acts, or in which scope: the one that started the server has said so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ..access.rights import OWNER
from ..errors import BadInput, Denied, shown
from ..registry import call, names_under, not_served, verb_at
from ..verbs import TaskId, Verb, WorkId, verb_of
from .data import data_of
from .network import without_files
from .tools import schema, tools

if TYPE_CHECKING:
    from ..participant import Participant

AGENT_OF_OWNER = "mcp"
"""The agent that claims tasks when the book's owner has started the server: an owner claims nothing itself."""

WHO_ACTS = ("by", "scope", "actor")
"""Parameters that say for whom, or where, something is done. No tool has them."""

OWN_AGENT = (
    "work.claim", "work.claim_many", "work.lead", "work.read_messages", "work.acknowledge", "work.ready",
)  # fmt: skip
"""Verbs whose `agent` is the one that acts. With a tool it is the actor of the server."""


class Offered(NamedTuple):
    """What a model reads about a tool. `verb` is its path, or a function; `keeps` are the parameters that it has here,
    by default all of them; `fix` is what to do when a call has ended with one of the statuses `fixed`, by default that
    it named something that does not exist; `needs` are the verbs that a token has to allow, by default the one that it
    is."""

    about: str
    verb: str | Callable[..., Any]
    keeps: str = ""
    fix: str = ""
    fixed: tuple[int, ...] = (404,)
    reads: bool = False
    needs: str = ""

    def allowed(self, allows: Callable[[str], bool]) -> bool:
        """Whether a token that allows these verbs allows the tool."""
        return all(map(allows, (self.needs or str(self.verb)).split()))


def _claim(me: Participant, work: WorkId, task: TaskId | None = None, lease: float = 300) -> dict[str, Any]:
    """Claim a task.

    `work` is the id of the work. `task` is the id of a task, or the best one that is ready. `lease` is for how many
    seconds it is yours without a heartbeat."""
    claim = me.work(work).claim(agent_of(me), lease=lease, task=task)
    if claim is None:
        return {"task": None}
    context = claim.context()
    return {
        "task": _brief(data_of(claim.task)),
        "token": claim.token,
        "agent": claim.agent,
        "context": str(context),
    }


def _begin(
    me: Participant, name: str, goal: str = "", constraints: list[str] | None = None
) -> dict[str, Any]:
    """Begin a work.

    `name` is what to call it. `goal` is what is to be reached. `constraints` are what has to hold."""
    work = me.work(name=name, goal=goal, constraints=constraints or ())
    return dict(_brief(_as_data(work.info())))


def _resume(me: Participant, task: str, max_chars: int = 8000) -> dict[str, Any]:
    """Go on with a task.

    `task` is the name of the task. `max_chars` is how many characters at most."""
    return {"text": str(me.learn.resume(task, max_chars=max_chars))}


def _heartbeat(me: Participant, task: TaskId, token: int, lease: float | None = None) -> dict[str, Any]:
    """Say that you are still working on a task.

    `task` is the id of the task. `token` is the number that claiming it has answered. `lease` is for how many seconds
    it is yours from now on; by default as many as before."""
    claim = me.works.containing(task)._with_token(task, token)
    urgent = claim.heartbeat(lease)
    return {"items": [data_of(nudge) for nudge in (*urgent, *claim.nudges())]}


def _context(me: Participant, thread: str, query: str | None = None, max_chars: int = 4000) -> dict[str, Any]:
    """The context of a conversation.

    `thread` is the name of the conversation. `query` is what the next turn is about. `max_chars` is how many
    characters at most."""
    context = me.thread(thread).context(query, max_chars=max_chars)
    return {"text": str(context), "receipt_id": context.receipt_id}


def _add(me: Participant, thread: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Add messages to a conversation.

    `thread` is the name of the conversation. `messages` are objects with role and content."""
    return _as_data(me.thread(thread).add(messages))


def _forget(me: Participant, id: str, reason: str = "") -> dict[str, Any]:
    """Forget one item.

    `id` is the id of the item. `reason` is why."""
    return _as_data(me.forget(id, reason=reason, confirm="FORGET"))


def agent_of(me: Participant) -> str:
    """The agent that a participant is: itself; of an owner, one agent of that name."""
    actor = me._session.actor
    return AGENT_OF_OWNER if actor == OWNER else actor


FOUND_BY_SEARCH = "memory_search finds items and their ids"
FOUND_BY_LIST = "work_list shows the works and their ids"
FOUND_ON_BOARD = "work_board shows the tasks of a work and their ids"
NEEDS_RUN = "the server has to be started with --run for this tool"

DEFAULT = {
    "memory_search": Offered(
        "Search memory before you answer or decide anything that earlier work may have settled: facts, notes, daily "
        "logs, what agents said. Answers ranked results, each with its id, text and source. Next: use the text, or "
        "`forget` an item that is wrong.",
        "memory.search", reads=True, needs="search",
    ),
    "memory_write": Offered(
        "Write one thing down. target=daily adds to today's log: progress, events. target=long_term keeps a lasting "
        "truth for the whole team. Answers the outcome: stored, merged or held. For a key, tags or something private "
        "call `remember`.",
        "memory.write", needs="remember documents.log",
    ),
    "memory_read": Offered(
        "Read a whole document: long-term memory, the log of one day, or the list of days that have logs. For one "
        "question call `memory_search`: it is shorter.",
        "memory.read", reads=True, needs="memory.markdown documents.day documents.days",
    ),
    "memory_curate": Offered(
        "Take stable facts from the daily logs into long-term memory. Call it at the end of a day's work, first with "
        "dry_run=true. Answers what was taken and why.",
        "memory.curate",
    ),
    "remember": Offered(
        "Keep a fact (key and value) or a note (text) so that later sessions find it. It is yours alone unless "
        "shared=true. Do not keep what the code or the logs say already. To correct a fact of yours give "
        "supersedes=true, or the ids of the items that it replaces. Answers the id and the outcome; `flagged` means "
        "that it contradicts another item and waits, and `reason` says what you can do.",
        "remember", "text key value title tags category shared pinned reason citations supersedes",
    ),
    "forget": Offered(
        "Forget one item that is wrong or no longer wanted. Get its id from `memory_search` first. A person can "
        "restore it.",
        _forget, fix=FOUND_BY_SEARCH, needs="forget",
    ),
    "board_post": Offered(
        "Within a run: tell the manager and the other workers something at once, such as a finding or a blocker.",
        "board.post", fix=NEEDS_RUN, fixed=(400,), needs="learn.board.post",
    ),
    "board_read": Offered(
        "Within a run: read what the other workers posted. Call it before a new step; give `since` the last id that "
        "you have read.",
        "board.read", fix=NEEDS_RUN, fixed=(400,), reads=True, needs="learn.board.read",
    ),
    "digest_fetch": Offered(
        "Within a run: fetch the whole context digest whose short hash a prompt has named.",
        "digest.fetch", fix=NEEDS_RUN, fixed=(400,), reads=True, needs="learn.digests.fetch",
    ),
    "resume": Offered(
        "Call it first when you go on after a break or in a new context. `task` is the name of what you were doing, as "
        "your notes say it, or the title or id of a task of a work. Answers one text: notes, decisions, verified "
        "items, results and next steps.",
        _resume, reads=True, needs="learn.resume",
    ),
    "work_list": Offered(
        "List the works (projects of a team) with their ids and status. Next: `work_board` with an id, or "
        "`work_begin`.",
        "works.list", "status", reads=True,
    ),
    "work_begin": Offered(
        "Begin a work for a goal that needs several tasks. Answers its id. Next: `task_add` for each task.",
        _begin, needs="work",
    ),
    "work_board": Offered(
        "See one work at a glance: its tasks by status with their ids, who does what, decisions and what waits. Call "
        "it before you add or claim tasks.",
        "work.board", "work limit", FOUND_BY_LIST, reads=True,
    ),
    "task_add": Offered(
        "Add a task to a work. Name in depends_on the ids of tasks that must be done before. Answers the task with "
        "its id.",
        "work.add_task", "work title description depends_on priority needs_review for_role assigned_to", FOUND_BY_LIST,
    ),
    "task_claim": Offered(
        "Take a task to do it yourself: the best one that is ready, or the one you name. Answers the task, a token "
        "and the context that you need; task=null means that nothing is ready. Keep the token for `task_heartbeat`, "
        "then `task_complete` or `task_fail`.",
        _claim, fix=FOUND_BY_LIST, needs="work.claim claim.context",
    ),
    "task_heartbeat": Offered(
        "Say that you still work on a claimed task, before its lease ends. Answers messages for you, each once. After "
        "`fenced` stop: somebody else has the task.",
        _heartbeat, fix=FOUND_ON_BOARD, needs="claim.heartbeat claim.nudges",
    ),
    "task_complete": Offered(
        "Finish a task that you have claimed. Say what came of it in summary, and what others should know in "
        "learnings. Next: `task_claim`.",
        "claim.complete", fix=FOUND_ON_BOARD,
    ),
    "task_fail": Offered(
        "Say that you cannot do a task that you have claimed, and why. The task's policy decides what happens next.",
        "claim.fail", fix=FOUND_ON_BOARD,
    ),
    "decide": Offered(
        "Record a choice that binds others, with alternatives and rationale, when you make it. Look with "
        "`memory_search` first whether it was decided already.",
        "work.decide", "work question choice alternatives rationale affects task reverses", FOUND_BY_LIST,
    ),
    "discover": Offered(
        "Record something learned about a work that affects its tasks: a constraint, risk, opportunity or insight. "
        "The agents of these tasks are told.",
        "work.discover", "work text type affects task", FOUND_BY_LIST,
    ),
    "nudge": Offered(
        "Say something to one agent of a work, to its leader (orchestrator) or to all. They read it with their next "
        "heartbeat.",
        "work.nudge", "work text target priority task", FOUND_BY_LIST,
    ),
    "inbox": Offered(
        "See what waits for a person: held and disputed items, approvals, reviews, escalations. Call it when a person "
        "asks what needs them.",
        "inbox", "work_id", FOUND_BY_LIST, reads=True,
    ),
    "thread_add": Offered(
        "Store new messages of a conversation, in order. Call it once for each turn; a message with an id of its own "
        "can be sent again safely.",
        _add, needs="thread.add",
    ),
    "thread_context": Offered(
        "Get what the next turn of a conversation needs: recent messages and what memory knows, in one text. Call it "
        "before you answer.",
        _context, needs="thread.context",
    ),
}  # fmt: skip
"""The tools that every client sees."""

GROUPS = {
    "memory": ("memory", "receipts", "threads", "thread"),
    "work": ("works", "work", "work.manage", "work.approvals", "task", "claim"),
    "documents": ("documents",),
    "learn": ("learn", "runs"),
    "admin": ("admin", "access"),
}
"""The namespaces whose verbs a group adds."""

TOP_OF = {"memory": ("record", "event", "digest", "prompt")}
"""Verbs of a book itself that a group adds."""

NAMED = {"claim.release": "task_release", "claim.split": "task_split"}
"""Tools that have another name than their verb."""

COVERED = {
    "memory.curate", "learn.resume", "works.list", "work.board", "work.add_task", "work.claim", "claim.heartbeat",
    "claim.complete", "claim.fail", "work.decide", "work.discover", "work.nudge", "thread.add", "thread.context",
    "documents.log", "documents.day", "documents.days", "memory.long_term", "memory.markdown", "work.inbox",
    # As a tool of the default list with the task that it is about:
    "claim.next", "claim.block", "claim.nudges", "claim.context", "claim.radar", "claim.decide", "claim.discover",
    "claim.artifact",
    # These block until something happens, or answer what only a program can hold:
    "work.watch", "work.lead", "work.reopen_claim", "access.look_as", "works.containing", "works.archive_finished",
    "work.complete_many", "runs.execute", "admin.copy",
    "runs.get", "access.redacted", "admin.proof", "admin.index_size", "thread.learn", "learn.register_tool",
}  # fmt: skip
"""Verbs that no group adds."""

WRITTEN = {"value", "payload"}
"""Fields that hold what somebody wrote, in which an empty value says something."""


def offered(groups: Iterable[str] = (), *, remote: bool = False) -> dict[str, Offered]:
    """The tools of the default list, and those of these groups. A model that is `remote` is offered nothing that reads
    or writes files of this host."""
    chosen = dict(DEFAULT)
    for group in groups:
        if group not in GROUPS:
            raise BadInput(f"there is no group of tools {shown(group)}: the groups are {', '.join(GROUPS)}")
        chosen |= dict(_tools_of(group, remote))
    return chosen


def _tools_of(group: str, remote: bool) -> Iterator[tuple[str, Offered]]:
    inner = (f"{namespace}.{name}" for namespace in GROUPS[group] for name in names_under(namespace))
    for path in (*TOP_OF.get(group, ()), *inner):
        verb = verb_at(path)
        takes_file = verb.facts.reads_file or verb.facts.writes_file  # of this machine: not for a model
        needs_function = any(each.required and not each.is_data for each in verb.parameters)
        if path in COVERED or takes_file or needs_function or (remote and not_served(verb)):
            continue
        about = verb.about.partition("\n\n")[0].replace("\n", " ").replace("`", "")
        yield NAMED.get(path, path.replace(".", "_")), Offered(about, path, reads=verb.reads)


def table(chosen: Mapping[str, Offered], *, remote: bool = False) -> dict[str, Verb]:
    """The tools as the dispatch calls them."""
    seed = {name.replace(".", "_"): tool for name, tool in tools().items()}
    return {
        name: seed[name] if name in seed else _tool(name, offer, remote) for name, offer in chosen.items()
    }


def _tool(name: str, offer: Offered, remote: bool) -> Verb:
    if not isinstance(offer.verb, str):
        return verb_of((name,), offer.verb)
    verb = verb_at(offer.verb)
    files = ("artifacts",) if remote and verb.path[0] == "claim" else ()
    dropped = {*WHO_ACTS, *(("agent",) if offer.verb in OWN_AGENT else ()), *files}
    kept = [
        parameter
        for parameter in verb.parameters
        if parameter.name not in dropped
        and (not offer.keeps or parameter.name in offer.keeps.split())
        and (parameter.is_data or parameter.name == "progress")
    ]
    ordered = [*(each for each in kept if each.required), *(each for each in kept if not each.required)]
    if verb.fields:
        ordered.append(verb_of((name,), _with_fields).parameters[0])
    return verb._replace(
        path=(name,),
        function=partial(_call, verb, offer.verb, remote, name in DEFAULT),
        parameters=tuple(ordered),
    )


def _with_fields(me: Participant, fields: dict[str, Any] | None = None) -> None:
    """`fields` are further fields to set, by their names."""


def _call(
    verb: Verb, path: str, remote: bool, brief: bool, me: Participant, /, **given: Any
) -> dict[str, Any]:
    """Call a verb and answer plain data."""
    if path.startswith("admin.") and not hasattr(me, "admin"):
        raise Denied(
            f"only the book's owner may do this, not {agent_of(me)!r}: start the server without --as and --scope"
        )
    more = (given.pop("fields", None) or {}) if verb.fields else {}
    for name in more:
        if name in (*WHO_ACTS, *given) or name.startswith("_"):
            raise BadInput(f"fields may not hold {shown(name)}: the server says who acts, and where")
    given |= more
    if remote:
        given = without_files(verb, given)
    if path in OWN_AGENT:
        given["agent"] = agent_of(me)
    data = _as_data(call(me, verb, given))
    if not brief:
        return data
    one = {"id", "item_id"} & data.keys()  # a thing: a list that is empty is an answer by itself
    return dict(_brief(data)) if one else {name: _brief(value) for name, value in data.items()}


def _as_data(answer: Any) -> dict[str, Any]:
    """An answer as the data of an envelope, which is an object."""
    if answer is None:
        return {}
    if isinstance(answer, str):
        return {"text": str(answer)}
    if isinstance(answer, Iterator):
        answer = list(answer)
    data = data_of(answer)
    if isinstance(data, list):
        return {"items": data}
    return dict(data) if isinstance(data, Mapping) else {"value": data}


def _brief(value: Any) -> Any:
    """Data without the fields that say nothing, which cost a model more than those that do. What somebody wrote stays
    as it is."""
    if isinstance(value, list | tuple):
        return [_brief(each) for each in value]
    if not isinstance(value, Mapping):
        return value
    return {
        name: inner if name in WRITTEN else _brief(inner)
        for name, inner in value.items()
        if name in WRITTEN or inner not in (None, "", [], {}, ())
    }


def input_schema(tool: Verb) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments, as short as it can be said: an argument that may be left out is not also
    null, and what takes an object of Python or its id takes the id."""
    whole = schema(tool)
    properties = {name: _short(value) for name, value in whole.get("properties", {}).items()}
    required = {"required": whole["required"]} if whole.get("required") else {}
    return {"type": "object", "properties": properties, **required, "additionalProperties": False}


def _short(value: dict[str, Any]) -> dict[str, Any]:
    value = {
        name: part
        for name, part in value.items()
        if (name, part) != ("default", None) and part not in ([], "")
    }
    if "items" in value:
        value["items"] = _short(value["items"])
    kinds = [kind for kind in value.pop("anyOf", ()) if kind and kind != {"type": "null"}]
    if len(kinds) == 1:
        value |= _short(kinds[0])
    elif kinds:
        value["anyOf"] = [_short(kind) for kind in kinds]
    return value
