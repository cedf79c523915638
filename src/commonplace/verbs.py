"""A verb is defined once: a typed function with a docstring. From it come the method that people call, the request that
a wire carries, the command of the shell and the page of the reference.

A verb is a function whose first parameter is the session of the actor that asks, and `method` makes a method of it; or
it is a method of a namespace or of a handle, marked with `verb`. A verb takes data and answers data: a parameter that
is a function (a progress bar, a counter of tokens) stays with the caller. `registry` lists every verb of a book.
"""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial, wraps
from importlib import import_module
from inspect import Parameter as Described
from inspect import getdoc, signature, unwrap
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Concatenate,
    Generic,
    Literal,
    NamedTuple,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    overload,
)

from .ledger.checks import check_flag
from .telemetry import SDK, in_span

if TYPE_CHECKING:
    import msgspec

    from .session import Session

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
N = TypeVar("N")


class HasSession(Protocol):
    """What acts for one session."""

    _session: Session


class VerbFacts(NamedTuple):
    """What a verb says of itself that its signature does not."""

    reads: bool | None = None
    """Whether it writes nothing. If it does not say so, it is one that reads if it takes `at`."""
    own_id: bool = False
    """Whether what it makes may be given an `id`: the same call with the same id again answers as the first time."""
    repeatable: bool = False
    """Whether the same call again answers as the first time without an id of the caller's."""
    reads_file: str = ""
    """The parameter that names the file which it reads. Where the verb is served, the content of the file travels."""
    writes_file: str = ""
    """The parameter that names the file which it writes, whose content travels in the same way."""
    of_host: tuple[str, ...] = ()
    """Parameters that are about files of the book's host. They are left out where the verb is served."""
    not_served: str = ""
    """Why it is not served."""


def method(
    function: Callable[Concatenate[Session, P], R], **facts: Any
) -> Callable[Concatenate[HasSession, P], R]:
    """A function of a session as a method with the same signature and docstring. `facts` are those of `VerbFacts`."""

    @verb(**facts)
    @wraps(function)
    def call(self: HasSession, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return function(self._session, *args, **kwargs)

    return call


@overload
def verb(function: F, /) -> F: ...
@overload
def verb(**facts: Any) -> Callable[[F], F]: ...
def verb(function: Any = None, /, **facts: Any) -> Any:
    """Mark a method as a verb: `@verb`, or `@verb(repeatable=True)` with some of the facts of `VerbFacts`.

    A parameter that is a flag takes True or False and nothing else: `erase="no"` is
    refused, not taken for True. Where the book of the holder is behind a server, the verb is called there.
    OpenTelemetry is told of the call, if the process has configured it."""
    return partial(_marked, VerbFacts(**facts)) if function is None else _marked(VerbFacts(), function)


def _marked(facts: VerbFacts, function: F) -> F:
    inner = unwrap(function)
    kinds = {"bool": (bool,), "bool | None": (bool, type(None))}
    names = inner.__code__.co_varnames
    flags = [
        (name, names.index(name) - 1, kinds[kind])
        for name, kind in inner.__annotations__.items()
        if kind in kinds and name != "return"
    ]

    def ask(holder: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        for name, place, allowed in flags:
            value = kwargs.get(name, args[place] if place < len(args) else False)
            if not isinstance(value, allowed):
                check_flag(name, value)
        remote = holder._session.remote
        if remote is not None:
            return remote.call(marked, holder, args, kwargs)
        return function(holder, *args, **kwargs)

    @wraps(function)
    def marked(holder: Any, /, *args: Any, **kwargs: Any) -> Any:
        if SDK in sys.modules:
            return in_span(marked, ask, holder, args, kwargs)
        return ask(holder, args, kwargs)

    vars(marked)["is_verb"], vars(marked)["facts"] = True, facts
    return cast(F, marked)


class namespace(Generic[N]):
    """An attribute that holds verbs about one thing, such as `book.memory`. It is made when it is first used, of the
    session of its holder, or as `make` says. A class that is named as `module:Class` is imported then, too."""

    def __init__(self, kind: type[N] | str, make: Callable[[Any], N] | None = None) -> None:
        self._kind, self._make = kind, make

    @property
    def kind(self) -> type[N]:
        if isinstance(self._kind, str):
            module, _, name = self._kind.partition(":")
            self._kind = cast(type[N], getattr(import_module(f".{module}", __package__), name))
        return self._kind

    def __set_name__(self, _holder: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, holder: None, _type: type) -> Self: ...
    @overload
    def __get__(self, holder: object, _type: type) -> N: ...
    def __get__(self, holder: Any, _type: type) -> Self | N:
        if holder is None:
            return self
        made = self.kind(holder._session) if self._make is None else self._make(holder)  # type: ignore[call-arg]
        holder.__dict__[self._name] = made
        return made


class Id(str):
    """Marks the annotation of a parameter: the text is the id of a thing of this kind. Where a parameter takes an
    object or its id (`str | Task`), the class says it."""


EventId = Annotated[str, Id("event")]
ItemId = Annotated[str, Id("item")]
ReceiptId = Annotated[str, Id("receipt")]
RunId = Annotated[str, Id("run")]
WorkId = Annotated[str, Id("work")]
TaskId = Annotated[str, Id("task")]


NOTHING: Any = Described.empty
"""The default of a parameter that has to be given."""

COMMON = {
    "affects": "the ids of tasks that it affects",
    "agent": "which agent",
    "at": "as of a position or a time; by default now",
    "by": "the agent for whom the owner speaks",
    "category": "user, feedback, project or reference",
    "citations": "where it can be seen, such as file:line",
    "confidence": "how sure it is, from 0 to 1",
    "dry_run": "only show what would be done",
    "constraints": "what has to hold",
    "goal": "what is to be reached",
    "if_position": "its position when it was read: a Conflict if it has changed since",
    "ignore_memory": "leave memory out",
    "initial": "values that the state begins with",
    "key": "the key of a fact",
    "kinds": "only events of these kinds",
    "lease": "for how many seconds it is held",
    "limit": "how many at most",
    "metadata": "fields of your own that it has, such as plan=pro",
    "max_chars": "how many characters at most",
    "max_tokens": "how many tokens at most",
    "learnings": "what was learned",
    "next_steps": "what should be done next",
    "now": "the time to reckon from, in place of the clock's",
    "occurred_at": "when it happened, if that is not now",
    "older_than": "how long ago they ended",
    "prefer": "which side wins where both have written: fork or target",
    "provenance": "where it comes from, such as channel=chat",
    "query": "what to look for",
    "rationale": "why",
    "reason": "why",
    "scope": "the scope to act in, such as users/alice; by default the actor's own",
    "sensitivity": "public, private or sensitive",
    "session_id": "the session that it belongs to",
    "stable": "the name of a series: the text begins as the last one of this name did",
    "summary": "what came of it",
    "since": "only what was recorded then or later",
    "tags": "tags that it has",
    "timeout": "after how many seconds without news to stop",
    "turn": "the turn within the run",
}
"""What a parameter means in every verb that has one of this name. A verb explains its other parameters itself: a clause
of its docstring that begins with the name in backticks does."""


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
        return tuple(kind for kind in members(self.type) if kind is not type(None))

    @property
    def id_of(self) -> str:
        """The kind of thing that it is an id of, or a list of ids of; "" if it is none."""
        return _id_of(self.type)

    @property
    def is_data(self) -> bool:
        """Whether it can be written down: a function cannot."""
        return not any(
            kind is Callable or name_of(kind) in ("Progress", "CountTokens")
            for kind in (*self.kinds, *map(get_origin, self.kinds))
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
    facts: VerbFacts = VerbFacts()
    inner: frozenset[str] = frozenset()
    """Its parameters for other verbs alone."""

    @property
    def name(self) -> str:
        return self.path[-1]

    @property
    def dotted(self) -> str:
        """Its path as a text: `memory.list`."""
        return ".".join(self.path)

    @property
    def reads(self) -> bool:
        """Whether it writes nothing."""
        if self.facts.reads is None:
            return any(parameter.name == "at" for parameter in self.parameters)
        return self.facts.reads

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
                sent_kind: Any = kind | msgspec.UnsetType if default is ... else kind
                described = Annotated[sent_kind, msgspec.Meta(description=parameter.help)]
                fields.append((parameter.name, described, sent))
        name = "".join(word.title().replace("_", "") for word in self.path)
        return msgspec.defstruct(name, fields, frozen=True, kw_only=True, forbid_unknown_fields=True)


def verb_of(path: Iterable[str], function: Callable[..., Any]) -> Verb:
    """What a function says about itself. Its first parameter is who is asked. A parameter whose name begins with `_` is
    for other verbs alone."""
    inner = unwrap(function)
    about, names = getdoc(inner) or "", _Names(vars(sys.modules[inner.__module__]))
    _, *described = signature(inner).parameters.values()
    variable = (Described.VAR_POSITIONAL, Described.VAR_KEYWORD)
    return Verb(
        tuple(path),
        function,
        about,
        tuple(
            _parameter(parameter, about, names)
            for parameter in described
            if parameter.kind not in variable and not parameter.name.startswith("_")
        ),
        _evaluated(signature(inner).return_annotation, names),
        any(
            parameter.kind is Described.VAR_KEYWORD and parameter.annotation != "Never"
            for parameter in described
        ),
        getattr(function, "facts", VerbFacts()),
        frozenset(parameter.name for parameter in described if parameter.name.startswith("_")),
    )


def verbs_of(holder: type, *path: str, properties: bool = False) -> Iterator[Verb]:
    """The verbs of a class and of its namespaces, in the order in which they are written; with `properties`, also what
    is read without a call, such as `run.status`."""
    for name in dict.fromkeys(name for base in reversed(holder.__mro__) for name in vars(base)):
        member = getattr(holder, name)
        if isinstance(member, namespace):
            yield from verbs_of(member.kind, *path, name, properties=properties)
        elif isinstance(member, property):
            if properties and getattr(member.fget, "is_verb", False):
                yield verb_of((*path, name), cast(Callable[..., Any], member.fget))
        elif getattr(member, "is_verb", False) and member.__name__ == name:  # not another name of a verb
            yield verb_of((*path, name), member)


def members(kind: Any) -> tuple[Any, ...]:
    """The types of a union, or the one type, without what annotations say about them."""
    return tuple(get_args(part)[0] if get_origin(part) is Annotated else part for part in _parts(kind))


def parts_within(kind: Any) -> Iterator[Any]:
    """The types that a type is made of: those of a union, of a list, of a mapping's values."""
    for part in _parts(kind):
        yield part
        if get_origin(part) is not Annotated:
            for inner in get_args(part):
                yield from parts_within(inner)


def _parts(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def name_of(kind: Any) -> str:
    return str(getattr(kind, "__name__", kind))


def _id_of(kind: Any) -> str:
    parts, package = _parts(kind), __name__.partition(".")[0]
    for part in parts:
        if get_origin(part) is Annotated:
            return next((str(mark) for mark in get_args(part)[1:] if isinstance(mark, Id)), "")
        if inner := next(filter(None, map(_id_of, get_args(part))), ""):
            return inner
    classes = [part for part in parts if isinstance(part, type) and part.__module__.startswith(package)]
    a_file = any(name_of(part) == "Path" for part in parts)
    return name_of(classes[0]).lower() if classes and str in parts and not a_file else ""


def sent_as(kind: Any) -> Any:
    """The type that a value of another one travels as: a path is text, content is bytes, a position or a time is
    either."""
    from datetime import datetime

    sent: Any = None
    parts = members(kind)
    for part in parts if bytes not in parts else [part for part in parts if part is not str]:
        origin, inner = get_origin(part), get_args(part)
        if name_of(part) == "At":
            plain: Any = int | datetime | None
        elif part in (str, int, float, bool, bytes, datetime, type(None)) or origin is Literal:
            plain = part
        elif name_of(part) in ("Path", "date"):
            plain = str
        elif isinstance(origin, type) and issubclass(origin, Mapping):
            plain = dict[str, Any]
        elif isinstance(origin, type) and issubclass(origin, Collection):
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


def _parameter(described: Described, about: str, names: _Names) -> Parameter:
    kind = _evaluated(described.annotation, names)
    help = explained(described.name, about) or _usual_help(described.name, _id_of(kind))
    positional = described.kind is not Described.KEYWORD_ONLY
    return Parameter(described.name, kind, described.default, help, positional)


def explained(name: str, about: str) -> str:
    """What a docstring says about a parameter: a clause that begins with its name in backticks; "" if there is none."""
    flat = " ".join(about.split())
    clause = re.search(
        rf"(?:^|[.;:,] (?:and )?)`{name}`(?: \([^)]*\))? (.*?)(?=[.;] |\.$|, and `|; |$)", flat
    )
    return "" if clause is None else re.sub(r"^(?:is|are) ", "", clause[1]).replace("`", "")


def _usual_help(name: str, kind: str) -> str:
    """What a parameter means that no clause explains: by the kind of thing that it is an id of, or by its name."""
    if kind and name in ("id", "ids", kind, f"{kind}_id"):
        return f"the ids of {kind}s" if name == "ids" else f"the id of the {kind}"
    return OWN_ID if name == "id" else COMMON.get(name, "")
