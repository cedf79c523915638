"""Every verb of a book by its path: what the commands of the shell and the tools for models are made from.

The verbs of a participant and of its namespaces have paths such as `remember` and `memory.list`. A handle (a work, a
task, a claim, a run, a turn, a thread) is a session and ids, so its verbs take those ids as their first parameters:
`work.add_task` takes `work`, `claim.complete` takes `task` and `token`. A verb of a work that begins with the id of
something in it, such as `work.review`, finds the work by that id, so `work` may be left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from .errors import BadInput, NotFound
from .ledger.checks import check_position
from .run import Run, Turn
from .threads.verbs import Thread
from .verbs import Parameter, RunId, TaskId, Verb, WorkId, name_of, parts_within, verb_of, verbs_of
from .work.checks import seconds
from .work.handles import TaskHandle
from .work.holding import Claim
from .work.leading import Lead
from .work.verbs import Work

if TYPE_CHECKING:
    from .participant import Participant


def open_work(me: Participant, work: WorkId) -> Work:
    """The work with an id. `work` is the id of the work."""
    return me.work(work)


def open_task(me: Participant, task: TaskId) -> TaskHandle:
    """One task. `task` is the id of the task."""
    return me.works.containing(task).task(task)


def open_claim(me: Participant, task: TaskId, token: int) -> Claim:
    """The last claim of a task. `task` is the id of the task; `token` is the number that claiming it has answered."""
    return me.works.containing(task)._with_token(task, token)


def open_run(me: Participant, run_id: RunId) -> Run:
    """A run that is there. `run_id` is the id of the run."""
    return me.runs.get(run_id)


def open_turn(me: Participant, run_id: RunId, agent: str) -> Turn:
    """An agent's turn in a run. `run_id` is the id of the run; `agent` is the agent whose turn it is."""
    return me.runs.get(run_id).agent(agent)


def open_thread(me: Participant, thread: str, scope: str | None = None) -> Thread:
    """A conversation. `thread` is the name of the conversation; `scope` is the scope that it is in."""
    return me.thread(thread, scope=scope)


def open_lead(me: Participant, work: WorkId, agent: str, fence: int, lease: float = 30.0) -> Lead:
    """The lead of a work. `work` is the id of the work; `agent` is the one that leads; `fence` is the number that
    taking the lead has answered."""
    opened = open_work(me, work)
    return Lead(opened, opened._agent(agent), check_position("fence", fence), seconds("lease", lease))


HANDLES: dict[str, tuple[type, Callable[..., Any]]] = {
    "work": (Work, open_work),
    "task": (TaskHandle, open_task),
    "claim": (Claim, open_claim),
    "lead": (Lead, open_lead),
    "run": (Run, open_run),
    "turn": (Turn, open_turn),
    "thread": (Thread, open_thread),
}
"""The class of each handle, and the function that opens one by its ids."""


def ids_of(handle: object) -> dict[str, Any]:
    """The ids that `HANDLES` opens this handle by."""
    match handle:
        case Work():
            return {"work": handle.id}
        case TaskHandle():
            return {"task": handle.id}
        case Claim():
            return {"task": handle.task.id, "token": handle.token}
        case Lead():
            return {
                "work": handle.work.id, "agent": handle.agent, "fence": handle.fence, "lease": handle.lease
            }  # fmt: skip
        case Run():
            return {"run_id": handle.id}
        case Turn():
            return {"run_id": handle.own_run.id, "agent": handle.agent}
        case Thread():
            return {"thread": handle.name}
        case _:
            raise TypeError(f"{type(handle).__name__} is no handle")


def every_verb(properties: bool = False) -> Iterator[Verb]:
    """Every verb of a book: those of its owner, most of which everybody has, and those of handles; with `properties`,
    also what is read without a call."""
    from .book import Book
    from .participant import Actor

    yield from verbs_of(Book, properties=properties)
    yield verb_of(("export",), Actor.export)  # the owner's is `admin.export`
    for name, (kind, _) in HANDLES.items():
        for verb in verbs_of(kind, name, properties=properties):
            # A turn has the verbs of an actor, too. They are asked for by an actor within a run.
            if kind is not Turn or not (hasattr(Book, verb.path[1]) or hasattr(Actor, verb.path[1])):
                yield _with_ids(verb)


FILES = "it reads or writes files of the host that the book is on: call it there"


def not_served(verb: Verb) -> str:
    """Why a verb is not served; "" if it is. One that takes a path has to say what becomes of it there: if it does not,
    no caller may name a file of the book's host."""
    facts = verb.facts
    takes_path = any(name_of(kind) == "Path" for each in verb.parameters for kind in each.kinds)
    explained = facts.reads_file or facts.writes_file or facts.of_host or "_read" in verb.inner
    return facts.not_served or (FILES if takes_path and not explained else "")


def verb_at(path: str) -> Verb:
    """The verb with this path, a text with dots."""
    names = path.split(".")
    return _with_ids(verb_of(names, getattr(_holder(names[:-1]), names[-1])))


def names_under(path: str) -> list[str]:
    """The names of the verbs of a namespace or of a handle, in the order in which they are written."""
    members = vars(_holder(path.split("."))).items()
    return [name for name, member in members if getattr(member, "is_verb", False) and member.__name__ == name]


def call(me: Participant, verb: Verb, arguments: Mapping[str, Any], lead: int | None = None) -> Any:
    """Call a verb for a participant. Where the verb takes a handle, its ids stand for it. `lead` is the fence under
    which the participant leads the work: it is refused once somebody else does."""
    given = {
        name: _with_handles(me, parameter, arguments[name])
        for parameter in verb.parameters
        if (name := parameter.name) in arguments
    }
    given |= {name: value for name, value in arguments.items() if name not in given}
    holder: Any = me
    path = verb.path[:-1]
    if _is_of_handle(verb):
        path = path[1:]
        holder = _opened(me, verb, given)
        holder = holder if lead is None else _under(lead, holder)
    for name in path:
        holder = getattr(holder, name)
    return verb.function(holder, **given)


def _holder(path: Sequence[str]) -> type:
    """The class that has the verbs below a path."""
    from .book import Book

    kind: type = Book
    if path and path[0] in HANDLES:
        kind, path = HANDLES[path[0]][0], path[1:]
    for name in path:
        kind = getattr(kind, name).kind
    return kind


def _is_of_handle(verb: Verb) -> bool:
    return len(verb.path) > 1 and verb.path[0] in HANDLES


@cache
def _ids(handle: str) -> tuple[Parameter, ...]:
    """The ids that a handle is opened by."""
    return verb_of((handle,), HANDLES[handle][1]).parameters


def _with_ids(verb: Verb) -> Verb:
    """The verb of a handle, with the ids of the handle before its own parameters."""
    if not _is_of_handle(verb):
        return verb
    ids = _ids(verb.path[0])
    if verb.path[0] == "work" and _names_its_work(verb.parameters):
        found = f"the id of the work, if {verb.parameters[0].name} does not tell"
        work = ids[0]._replace(type=ids[0].type | None, default=None, help=found, positional=False)
        return verb._replace(parameters=(*verb.parameters, work))
    return verb._replace(parameters=(*ids, *verb.parameters))


def _names_its_work(parameters: Sequence[Parameter]) -> bool:
    """Whether the verb of a work begins with the id of something in that work."""
    return (
        bool(parameters) and parameters[0].required and parameters[0].positional and bool(parameters[0].id_of)
    )


def _opened(me: Participant, verb: Verb, given: dict[str, Any]) -> Any:
    """The handle that a verb is called on. Its ids are taken out of the arguments."""
    handle = verb.path[0]
    ids = {
        name: given.pop(name, None)
        for parameter in _ids(handle)
        if (name := parameter.name) in given or parameter.required
    }
    first = verb.parameters[0].name
    if handle == "work" and ids.get("work") is None:
        if first not in given:
            raise BadInput(f"{verb.dotted} needs the id of a work: give work")
        try:
            return me.works.containing(given[first])
        except NotFound as error:
            raise NotFound(f"{error}, or name its work") from None
    return HANDLES[handle][1](me, **ids)


def _under(lead: int, handle: Any) -> Any:
    """A work or a task in the hands of who leads the work. Raises BadInput for anything else."""
    match handle:
        case Work():
            return Work(handle._session, handle.id, lead)
        case TaskHandle():
            return TaskHandle(_under(lead, handle._work), handle.id)
        case _:
            raise BadInput("only what is done to a work and to its tasks is done by its leader")


def _with_handles(me: Participant, parameter: Parameter, value: Any) -> Any:
    """A handle among the arguments of a verb, or a list of them, by the ids that were given for it."""
    if isinstance(value, list):
        return [_with_handles(me, parameter, each) for each in value]
    if isinstance(value, Mapping):
        parts = set(parts_within(parameter.type))
        for name, (kind, opened) in HANDLES.items():
            if kind in parts:
                return opened(me, **_checked_ids(parameter.name, name, value))
    return value


def _checked_ids(parameter: str, handle: str, value: Mapping[str, Any]) -> Mapping[str, Any]:
    """The ids of a handle. Raises BadInput for others."""
    ids = {each.name: each.required for each in _ids(handle)}
    if not {name for name, required in ids.items() if required} <= value.keys() <= ids.keys():
        raise BadInput(f"{parameter} takes the ids of a {handle}: {', '.join(ids)}")
    return value
