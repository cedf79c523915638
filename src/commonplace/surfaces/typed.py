"""What is typed: how a parameter of a verb becomes an argument or an option, and text becomes a value.

What a verb takes by its place and has to be given is an argument, as is a text that it begins with; all else is an
option. A list is an option that may be repeated, a mapping is NAME=VALUE, repeated, or one JSON object.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, get_args, get_origin

import click
import msgspec

from ..ledger.encoding import decode
from ..verbs import Parameter, Verb, members, name_of

SHIELD = "\0"
"""Stands before a word that begins with a dash and is a text. No argument of a process can hold this character."""

UNTYPED = {
    "by", "confirm", "now", "progress", "count_tokens", "schema_version", "max_results", "matters", "stop", "handler",
    "shown", "capabilities", "redacted", "content", "scope",
}  # fmt: skip
"""Parameters that a command has no option for: who acts is --as, where --scope, and functions cannot be typed."""

FIRST = ("text", "query", "id", "actor", "core", "day", "work_id", "path", "task")
"""Arguments that may be left out, where a verb begins with one."""

ALWAYS_FIRST = ("payload", "question", "choice")
"""Arguments that a verb takes by their names."""

SPELLED = {
    "scopes": "in-scope",
    "run_id": "run", "work_id": "work", "session_id": "session", "new_id": "new", "queries": "query",
    "assigned_to": "assign", "promote_to_core": "core", "texts": "text", "ids": "id",
}  # fmt: skip
AS_THEY_ARE = ("affects", "supersedes", "depends_on", "blocks", "sees", "acts", "on", "limits", "rules")

STREAMED = ("text", "payload", "initial", "texts", "tasks", "fact", "value", "summary", "report", "notes")
"""Values that `-` reads from standard input."""


TEXTS = ("text", "reason", "why", "rationale", "goal", "title", "summary", "description", "risk")
"""What people write in their own words."""


def spelled(parameter: Parameter) -> str:
    """What an option is called: one of a list is named one by one."""
    name = SPELLED.get(parameter.name, parameter.name.rstrip("_"))
    if parameter.name not in (*SPELLED, *AS_THEY_ARE) and (is_list(parameter) or is_mapping(parameter)):
        name = name.removesuffix("s")
    return name.replace("_", "-")


def is_list(parameter: Parameter) -> bool:
    return not is_mapping(parameter) and any(_is_kind_of(kind, Iterable) for kind in parameter.kinds)


def is_mapping(parameter: Parameter) -> bool:
    return any(_is_kind_of(kind, Mapping) for kind in parameter.kinds)


def _is_kind_of(kind: Any, base: type) -> bool:
    origin = get_origin(kind)
    return isinstance(origin, type) and issubclass(origin, base)


def _value_kind(parameter: Parameter) -> Any:
    """The type of the values of a mapping."""
    return next(get_args(kind)[-1] for kind in parameter.kinds if _is_kind_of(kind, Mapping))


def is_moment(parameter: Parameter) -> bool:
    """Whether it is a position or a time."""
    return "At" in names(parameter) or {"int", "datetime"} <= names(parameter)


def names(parameter: Parameter) -> set[str]:
    return {name_of(kind) for kind in parameter.kinds}


class Typed(click.ParamType[Any]):
    """Makes of what was typed what the verb takes."""

    def __init__(self, parameter: Parameter) -> None:
        self.parameter = parameter
        self.name = parameter.name

    def convert(self, typed: Any, _param: object, _context: object) -> Any:
        if not isinstance(typed, str):
            return typed
        text = typed.removeprefix(SHIELD)
        kinds, name = names(self.parameter), self.parameter.name
        if is_mapping(self.parameter):
            return text
        if name in STREAMED and text == "-":
            text = standard_input(name)
        if is_moment(self.parameter):
            return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else moment(text)
        if "datetime" in kinds:
            return moment(text)
        if "timedelta" in kinds:
            return duration(text)
        if is_list(self.parameter):
            return _one_of_many(self.parameter, text)
        if "str" in kinds or "Path" in kinds:
            return text
        if "int" in kinds:
            return number(text, int)
        if "float" in kinds:
            return number(text, float)
        return json_or_text(text)


def _members(parameter: Parameter) -> list[Any]:
    """The types of the values of a list."""
    return [member for kind in parameter.kinds for part in get_args(kind) for member in members(part)]


def _holds_mappings(parameter: Parameter) -> bool:
    """Whether it is a list of nothing but objects."""
    inner = _members(parameter) if is_list(parameter) else []
    return str not in inner and any(_is_kind_of(member, Mapping) for member in inner)


def _one_of_many(parameter: Parameter, text: str) -> Any:
    """One value of a list: text, a pair, or an object as JSON."""
    inner = _members(parameter)
    if any(get_origin(member) is tuple for member in inner):
        return split(text)
    if not any(_is_kind_of(member, Mapping) for member in inner):
        return text
    value = json_or_text(text)
    if isinstance(value, list | dict):
        return value
    if str in inner:
        return text
    return json_value(text, parameter.name)


def metavar(parameter: Parameter) -> str:
    kinds, name = names(parameter), parameter.name
    if is_moment(parameter):
        return "POSITION|TIME"
    if "datetime" in kinds:
        return "TIME"
    if "timedelta" in kinds:
        return "DURATION"
    if is_mapping(parameter):
        lists = _is_kind_of(_value_kind(parameter), Collection)
        return "JSON" if name in ("initial", "payload") else "NAME=VALUE,…" if lists else "NAME=VALUE"
    if _holds_mappings(parameter):
        return "JSON"
    if kinds & {"int", "float"} and "str" not in kinds and not parameter.required:
        return "N"
    return "TEXT" if name in TEXTS else spelled(parameter).upper()


def option(parameter: Parameter) -> click.Parameter:
    """A parameter of a verb as something to type."""
    first = (parameter.positional and parameter.name in FIRST) or parameter.name in ALWAYS_FIRST
    shown = metavar(parameter)
    pairs = shown.startswith("NAME=")
    many = is_list(parameter) or pairs
    if (parameter.required and parameter.positional and not pairs) or first:
        return click.Argument(
            [parameter.name], type=Typed(parameter), required=parameter.required, nargs=-1 if many else 1,
            metavar=(shown if parameter.required else f"[{shown}]") + ("…" if many else ""),
            help=sentence(parameter.help),
        )  # fmt: skip
    flag, help = f"--{spelled(parameter)}", sentence(parameter.help) + (" May be repeated." if many else "")
    if "bool" in names(parameter) and not many:
        both = f"{flag}/--no-{spelled(parameter)}" if parameter.default in (None, True) else flag
        return click.Option([parameter.name, both], is_flag=True, default=None, help=help)
    return click.Option(
        [parameter.name, flag], type=Typed(parameter), multiple=many, metavar=shown, help=help,
        required=parameter.required,
    )  # fmt: skip


def sentence(help: str) -> str:
    return help and help[0].upper() + help[1:].rstrip(".") + "."


def options(verb: Verb) -> list[click.Parameter]:
    typed = (
        parameter for parameter in verb.parameters if parameter.is_data and parameter.name not in UNTYPED
    )
    made = [option(parameter) for parameter in typed]
    if verb.fields:
        help = "Further fields; a value is JSON, or else text."
        made.append(click.Argument([FIELDS], nargs=-1, metavar="[FIELD=VALUE…]", type=Shielded(), help=help))
    return made


FIELDS = "further_fields"


class Shielded(click.ParamType[Any]):
    name = "text"

    def convert(self, typed: Any, _param: object, _context: object) -> Any:
        return typed.removeprefix(SHIELD) if isinstance(typed, str) else typed


def values(verb: Verb, typed: Mapping[str, Any]) -> dict[str, Any]:
    """What was typed as the verb takes it; the rest is as the verb has it."""
    given = dict[str, Any]()
    for parameter in verb.parameters:
        value = typed.get(parameter.name)
        if value is None or value == ():
            continue
        if is_mapping(parameter):
            value = mapping(value, parameter)
        elif is_list(parameter):
            value = [one for many in value for one in (many if isinstance(many, list) else [many])]
            if parameter.name == "texts":
                value = [line for text in value for line in text.splitlines() if line]
        elif value == "all" and parameter.default and type(None) in members(parameter.type):
            value = None  # no filter
        given[parameter.name] = value
    for pair in typed.get(FIELDS) or ():
        name, value = split(pair)
        given[name] = json_or_text(value)
    return given


def mapping(typed: Any, parameter: Parameter) -> dict[str, Any]:
    if isinstance(typed, str):
        text = standard_input(parameter.name) if typed == "-" else typed
        value = json_value(text, parameter.name)
        if parameter.name != "payload" and not isinstance(value, dict):
            raise click.BadParameter(
                f'{parameter.name} is not an object: write one such as {{"text": "hello"}}'
            )
        return value  # type: ignore[no-any-return]
    texts = [text for text in typed if not text.startswith("{")]
    whole = [json_value(text, parameter.name) for text in typed if text.startswith("{")]
    kind = _value_kind(parameter)
    pairs = {
        name: value
        if kind is str
        else value.split(",")
        if _is_kind_of(kind, Collection)
        else json_or_text(value)
        for name, value in map(split, texts)
    }
    return {name: value for object in whole for name, value in object.items()} | pairs


def split(pair: str) -> tuple[str, str]:
    name, equals, value = pair.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{pair!r} is not NAME=VALUE, such as channel=chat")
    return name.replace("-", "_"), value


def standard_input(name: str) -> str:
    if sys.stdin is None:
        raise click.BadParameter(f"there is no standard input to read {name} from")
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"standard input is not UTF-8 text ({error})") from None


def moment(typed: str) -> datetime:
    try:
        return datetime.fromisoformat(typed).astimezone()
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{typed!r} is not a time such as 2026-01-31T09:30:00Z") from None


UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}


def duration(typed: str) -> timedelta:
    """A number with a unit. A bare number is refused, because it could mean hours or seconds."""
    amount, unit = (typed, "s") if typed == "0" else (typed[:-1], typed[-1:])
    try:
        length = timedelta(**{UNITS[unit]: float(amount)})
        if length < timedelta(0):
            raise ValueError
        return length
    except (KeyError, ValueError, OverflowError):
        raise click.BadParameter(
            f"{typed!r} is no duration: write one such as 30d, 12h, 45m or 90s"
        ) from None


def number(typed: str, kind: type[int] | type[float]) -> Any:
    try:
        return kind(typed)
    except ValueError:
        raise click.BadParameter(f"{typed!r} is not a {'whole ' if kind is int else ''}number") from None


EXAMPLES = {
    "facts": """'{"subject": "…", "fact": "…", "citations": ["file:line"], "reason": "…", "category": "project"}'"""
}
"""What a value looks like that is typed as JSON."""


def json_value(typed: str, name: str) -> Any:
    try:
        return decode(typed)
    except (msgspec.MsgspecError, RecursionError) as error:
        example = EXAMPLES.get(name, """'{"text": "hello"}'""")
        raise click.BadParameter(f"{name} is not JSON ({error}): write an object such as {example}") from None


def json_or_text(typed: str) -> Any:
    try:
        return decode(typed)
    except (msgspec.MsgspecError, RecursionError):
        return typed


def shielded(args: Sequence[str]) -> list[str]:
    """The words of a command, with those marked that begin with a dash and are a text: an option has no space in its
    name, and a line of markdown has."""
    found, after = list[str](), False
    for word in args:
        is_text = word.startswith("-") and len(word) > 1 and " " in word.partition("=")[0]
        found.append(SHIELD + word if is_text and not after else word)
        after = after or word == "--"
    return found
