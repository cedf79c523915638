"""A verb is defined once: a typed function with a docstring. From it come the method that people call, the request that
a wire carries, the command of the shell and the page of the reference.

A verb is a function whose first parameter is the session of the actor that asks, and `method` makes a method of it; or
it is a method of a namespace or of a handle, marked with `verb`. A verb takes data and answers data: a parameter that
is a function (a progress bar, a counter of tokens) stays with the caller.
"""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property, wraps
from inspect import Parameter as Described
from inspect import getdoc, signature, unwrap
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
)

if TYPE_CHECKING:
    import msgspec

    from .session import Session

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


class HasSession(Protocol):
    """What acts for one session."""

    _session: Session


def method(function: Callable[Concatenate[Session, P], R]) -> Callable[Concatenate[HasSession, P], R]:
    """A function of a session as a method with the same signature and docstring."""

    @verb
    @wraps(function)
    def call(self: HasSession, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return function(self._session, *args, **kwargs)

    return call


def verb(function: F) -> F:
    """Mark a method as a verb."""
    vars(function)["is_verb"] = True
    return function


NOTHING: Any = Described.empty
"""The default of a parameter that has to be given."""

COMMON = {
    "at": "as of a position or a time; now, if it is not given",
    "limit": "how many at most",
    "max_chars": "how many characters at most",
    "max_tokens": "how many tokens at most",
    "max_items": "how many items at most",
    "dry_run": "only show what would be done",
    "id": "its id",
    "run_id": "the run that it belongs to",
    "session_id": "the session that it belongs to",
    "reason": "why",
    "why": "why",
    "rationale": "why",
    "kind": "which kind",
    "kinds": "only these kinds",
    "tags": "words that it is found by",
    "tag": "only what has this tag",
    "key": "the key of a fact",
    "value": "the value of a fact",
    "title": "its title",
    "core": "the core that it belongs to",
    "cores": "the cores that it is about",
    "agent": "which agent; who acts, if it is not given",
    "task": "the task that it is about",
    "status": "only those of this status",
    "after": "only what comes after this position",
    "if_position": "its position when it was read: a Conflict if it has changed since",
    "idempotency_key": "a key of your own: a second call with it changes nothing",
    "explain": "say why each is there",
    "ignore_memory": "leave memory out",
    "stable": "go on with the last one of this name: its beginning stays as it was",
    "sensitivity": "public, private or sensitive",
    "confidence": "how sure it is, from 0 to 1",
    "category": "user, feedback, project or reference",
    "provenance": "where it comes from, such as channel=chat",
    "repository": "a fact of the repository",
    "lease": "for how many seconds",
    "actor": "who",
    "role": "orchestrator, developer, qa, researcher, librarian, analyst or person",
    "description": "more about it",
    "affects": "the tasks that it affects",
    "path": "where it is",
    "to": "where to write it",
    "source": "where to read it from",
    "text": "what to say",
    "query": "what to look for",
    "timeout": "after how many seconds without news to stop",
    "payload": "what happened, as an object",
    "turn": "the turn within the run",
    "occurred_at": "when it happened, if that is not now",
    "observed_at": "when it was observed",
    "parents": "the events that it derives from",
    "labels": "names and values, such as sensitivity=private",
    "trust": "how far it is trusted: high, normal or low",
    "shared": "for the whole team, or for its author alone",
    "pinned": "prompts show it before all else",
    "citations": "where it can be seen, such as file:line",
    "links": "other items that it is connected to",
    "valid_from": "from when on it holds",
    "valid_until": "until when it holds",
    "valid_at": "only what holds at this time",
    "type": "which type",
    "source_type": "which kind of source it comes from",
    "code_refs": "places in code that it is about",
    "tiers": "only these tiers of memory",
    "agent_filter": "only what these agents said",
    "work": "the id of the work",
    "erase": "also erase the content, and all that is derived from it",
    "name": "what to call it",
    "goal": "what is to be reached",
    "constraints": "what has to hold",
    "limits": "max_tasks, max_agents and the like",
    "choice": "skip, merge or create; of a dispute old, new or both",
    "relation": "related, depends_on or one of your own",
    "relations": "only these relations",
    "subject": "an actor, a role (role:qa) or everybody (*)",
    "fact": "one or two sentences",
    "days": "how many days",
    "tasks": "which tasks",
    "start": "the item to begin with",
    "depth": "how many links away",
    "archived": "those that were put aside",
    "day": "a day, such as 2026-01-31",
    "section": "which section",
    "document": "decisions, revisions, verified_items or a report",
    "replace": "replace what was there",
    "gate": "PLAN, PREFLECT, PHASE_REVIEW or the like",
    "decision": "GO, REPLAN, ABSTAIN or BLOCKED",
    "without": "leave out this item",
    "k": "how many events",
    "top_k": "how many events",
    "semantic": "by meaning as well as by words",
    "workflow": "the folder with workflow.awp.yaml, or that file",
    "initial": "values to start with",
    "new_id": "an id for the new run",
    "a": "a run, or RUN@POSITION",
    "b": "the other one",
    "fork": "the id of the fork",
    "prefer": "which side wins where both have written: fork or target",
    "older_than": "how long ago they ended",
    "sees": "the kinds of others that it may see",
    "ids": "which events",
    "texts": "the texts to look for",
    "embedder": "auto, static, minilm, fastembed:MODEL, sentence-transformers:MODEL or openai:MODEL@URL",
    "queries": "compare by these queries, not by recorded ones",
    "switch": "use it from now on",
    "question": "what is to be decided",
    "reversible": "whether it can be reversed",
    "promote_to_core": "a core that it may belong to",
    "store": "whether its content is stored",
    "commit": "the commit that it is in",
    "branch": "the branch that it is on",
    "target": "an agent, orchestrator, or all",
    "delivery": "next_turn, immediate or when_idle",
    "priority": "the highest comes first; of a nudge low, normal, high or critical",
    "what": "the id of what was asked for, or of a decision",
    "nudge": "the id of the nudge",
    "escalation": "the id of the escalation",
    "answer": "what to answer",
    "work_id": "the id of the work",
    "peek": "only look: nothing counts as told",
    "receipt": "leave a receipt that tells how it came about",
    "format": "mermaid, or dot for Graphviz",
    "judged": "those, too, that were judged",
    "option": "the name of the alternative",
    "summary": "what came of it",
    "action": "what is to be allowed",
    "risk": "what may go wrong, so that a person has to allow it",
    "needs_review": "it is completed only when somebody has approved it",
    "for_role": "only agents of this role may claim it",
    "assigned_to": "who is to do it",
    "parent": "the task that it is a part of",
    "reviewer": "who is to review it",
    "dependents": "what becomes of what waits for it: block, cancel or free",
    "verdict": "approved, needs_rework or rejected",
    "comments": "what to say of it",
    "subtasks": "what is to be done",
}
"""What a parameter means wherever its name occurs, unless a verb's docstring says it. A clause of a docstring that
begins with the name in backticks says it."""


OWN_ID = "an id of your own, so that the call can be repeated safely"


class Parameter(NamedTuple):
    """What a verb is told. `type` is its annotation; a name that only type checkers know is a class of that name."""

    name: str
    type: Any
    default: Any
    help: str
    positional: bool

    @property
    def required(self) -> bool:
        return self.default is NOTHING

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The types that it may have, without None."""
        return tuple(one for one in members(self.type) if one is not type(None))

    @property
    def is_data(self) -> bool:
        """Whether it can be written down: a function cannot."""
        return not any(
            one is Callable or get_origin(one) is Callable or name_of(one) in ("Progress", "CountTokens")
            for one in (*self.kinds, *map(get_origin, self.kinds))
        )


class Verb(NamedTuple):
    """One verb: where it is found (`("memory", "list")`), what it is told and what it answers."""

    path: tuple[str, ...]
    function: Callable[..., Any]
    about: str
    parameters: tuple[Parameter, ...]
    answer: Any
    fields: bool = False
    """Whether it takes further fields by their names."""

    @property
    def name(self) -> str:
        return self.path[-1]

    @property
    def summary(self) -> str:
        """The first sentence of what is said about it."""
        return (
            re.split(r"(?<=[.:]) |: ", self.about.partition("\n\n")[0].replace("\n", " "))[0].rstrip(".:")
            + "."
        )

    @property
    def request(self) -> type[msgspec.Struct]:
        """The type of a message that asks for it. Parameters that are functions are not part of it."""
        import msgspec

        fields: list[Any] = []
        for parameter in self.parameters:
            if parameter.is_data:
                default = msgspec.NODEFAULT if parameter.required else parameter.default
                sent = msgspec.UNSET if default is ... else default
                kind = sent_as(parameter.type)
                fields.append((parameter.name, kind | msgspec.UnsetType if default is ... else kind, sent))
        name = "".join(word.title().replace("_", "") for word in self.path)
        return msgspec.defstruct(name, fields, frozen=True, kw_only=True, forbid_unknown_fields=True)


def verb_of(path: Iterable[str], function: Callable[..., Any]) -> Verb:
    """What a function says of itself. Its first parameter is who is asked."""
    inner = unwrap(function)
    about, known = getdoc(inner) or "", _Names(vars(sys.modules[inner.__module__]))
    _, *told = signature(inner).parameters.values()
    fixed = [one for one in told if one.kind not in (Described.VAR_POSITIONAL, Described.VAR_KEYWORD)]
    return Verb(
        tuple(path),
        function,
        about,
        tuple(
            Parameter(
                one.name,
                _evaluated(one.annotation, known),
                one.default,
                _help(one.name, about) if one.name != "id" or one.default is not None else OWN_ID,
                one.kind is not Described.KEYWORD_ONLY,
            )
            for one in fixed
        ),
        _evaluated(signature(inner).return_annotation, known),
        any(one.kind is Described.VAR_KEYWORD and one.annotation != "Never" for one in told),
    )


def verbs_of(holder: type, *path: str) -> Iterator[Verb]:
    """The verbs of a class and of its namespaces, in the order in which they are written."""
    for name in dict.fromkeys(name for base in reversed(holder.__mro__) for name in vars(base)):
        member = getattr(holder, name)
        if isinstance(member, cached_property) and not name.startswith("_"):
            yield from verbs_of(namespace_of(holder, name), *path, name)
        elif getattr(member, "is_verb", False):
            yield verb_of((*path, name), member)


def namespace_of(holder: type, name: str) -> type:
    """The class of a namespace."""
    function = getattr(holder, name).func
    return cast(
        type,
        _evaluated(signature(function).return_annotation, _Names(vars(sys.modules[function.__module__]))),
    )


def members(kind: Any) -> tuple[Any, ...]:
    """The types of a union, or the one type."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def name_of(kind: Any) -> str:
    return str(getattr(kind, "__name__", kind))


def sent_as(kind: Any) -> Any:
    """The type that a value of another one travels as: a path is text, a position or a time is either."""
    from datetime import datetime

    sent: Any = None
    for one in members(kind):
        origin, inner = get_origin(one), get_args(one)
        if name_of(one) == "At":
            plain: Any = int | datetime | None
        elif one in (str, int, float, bool, bytes, datetime, type(None)):
            plain = one
        elif name_of(one) in ("Path", "date"):
            plain = str
        elif origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
            plain = dict[str, Any]
        elif origin is not None and isinstance(origin, type) and issubclass(origin, Collection):
            plain = list[sent_as(inner[0])] if inner else list[Any]  # type: ignore[misc]
        else:
            plain = Any
        sent = plain if sent is None else sent | plain
    return sent


class _Names(dict[str, Any]):
    """The names of a module. One that only type checkers know stands for a class of that name."""

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name) if hasattr(builtins, name) else type(name, (), {})


def _evaluated(annotation: Any, names: _Names) -> Any:
    return eval(annotation, {}, names) if isinstance(annotation, str) else annotation  # noqa: S307  our own source


def _help(name: str, about: str) -> str:
    flat = " ".join(about.split())
    clause = re.search(
        rf"(?:^|[.;:,] (?:and )?)`{name}`(?: \([^)]*\))? (.*?)(?=[.;] |\.$|, and `|; |$)", flat
    )
    if clause is None:
        return COMMON.get(name, "")
    return re.sub(r"^(?:is|are) ", "", clause[1]).replace("`", "")
