"""Messages: what is wrong with the arguments of a call, and a call that the library recommends as the command or the
tool that does it."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from ..errors import BadInput
from ..verbs import Verb, parts_within

COMMANDS = {
    "grant": "access grant", "access.grant": "access grant", "access.tokens.create": "access create-token",
    "access.tokens.list": "access tokens", "works.list": "work list", "work": "work new NAME",
    "event": "log", "events": "log", "admin.verify": "book verify", "memory.resolve": "memory resolve",
}  # fmt: skip
"""The command for each call that messages name."""

TOOLS = {
    "works.list": "work_list", "work": "work_begin", "work.tasks": "work_board", "work.inbox": "inbox",
    "work.candidates": "work_candidates", "memory.resolve": "memory_resolve", "memory.cores": "memory_cores",
    "memory.set_core": "memory_set_core",
}  # fmt: skip
"""The tool for each call that messages name and that a model makes itself."""

QUOTED = r"""(?<!\w)(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")(?!\w)"""
"""What somebody else has written, which is no hint of ours."""
HINT = re.compile(
    rf"{QUOTED}|\b(?:book\.(?=work\()|(?:book\.)?(?=[a-z]+\.))((?:works|work|memory)[a-z_.]{{0,40}})\([^()]{{0,200}}\)"
)
TRUE = re.compile(rf"{QUOTED}|\b([a-z_]+)=True\b")
CALL = re.compile(rf"{QUOTED}|\bbook\.([a-z_.]{{1,60}})(\([^()]{{0,200}}\))")


_PLACE = re.compile(r"`\$\.(\w+)")


def parameters_of(verb: Verb) -> str:
    """The names of what a verb takes from a client."""
    return ", ".join(parameter.name for parameter in verb.parameters if parameter.is_data) or "no arguments"


def misfit(called: str, verb: Verb, error: Exception) -> BadInput:
    """What to say of arguments of which msgspec says that they do not fit: what the verb takes, under the name that it
    was called by, what is wrong, and the values that are allowed if they are few."""
    place = _PLACE.search(str(error))
    kinds: list[Any] = [each.type for each in verb.parameters if place and each.name == place[1]]
    allowed = [
        value
        for kind in kinds
        for part in parts_within(kind)
        if get_origin(part) is Literal
        for value in get_args(part)
    ]
    among = f", which is one of {', '.join(map(str, allowed))}" if allowed else ""
    return BadInput(f"{called} takes {parameters_of(verb)}: {error}{among}")


def in_shell_words(message: str) -> str:
    """The message with commands in place of calls, and options in place of arguments."""
    message = CALL.sub(_command, message)
    message = message.replace('confirm="FORGET"', "--yes").replace("dry_run=True", "--dry-run")
    return re.sub(
        r"\bleave (at|initial|run_id) out\b",
        lambda found: f"leave --{found[1].removesuffix('_id')} out",
        message,
    )


def in_tool_words(message: str) -> str:
    """The message for a model: with tools in place of calls, and with commands in place of what only a person does.
    What is quoted stays as it is."""
    message = HINT.sub(lambda found: f"`{TOOLS[found[1]]}`" if found[1] in TOOLS else found[0], message)
    return TRUE.sub(lambda found: f"{found[1]}=true" if found[1] else found[0], in_shell_words(message))


def _command(found: re.Match[str]) -> str:
    command = COMMANDS.get(found[1] or "")
    if command is None:
        return found[0]
    try:
        call = ast.parse(f"call{found[2]}", mode="eval").body
    except SyntaxError:  # it only hints at its arguments
        return f"`commonplace {command}`"
    assert isinstance(call, ast.Call)
    try:
        words = [
            ast.unparse(word) if isinstance(word, ast.Name) else str(ast.literal_eval(word))
            for word in call.args
        ]
        for keyword in call.keywords:
            words += _option(str(keyword.arg), ast.literal_eval(keyword.value))
    except ValueError:  # somebody's own words, which read as a call
        return found[0]
    return f"`{shlex.join(['commonplace', *command.split(), *words])}`"


def _option(name: str, value: object) -> Iterator[str]:
    many = value if isinstance(value, list) else [value]
    if isinstance(value, dict):
        name = {"scopes": "in-scope"}.get(name, name.removesuffix("s"))
        many = [f"{key}={inner}" for key, inner in value.items()]
    for each in many:
        yield f"--{name.replace('_', '-')}"
        yield str(each)
