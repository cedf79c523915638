"""Setting up the programs that talk to a book over MCP: what their configuration says, and writing it for some of them.

A client's file belongs to its user. So only our own entry in it changes, a backup is written first, and a file that we
could not write back as it was (comments in JSON, damaged text) is refused and stays as it is.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from ..access.rights import OWNER
from ..errors import BadInput, shown
from ..files.safe import PRIVATE, SHARED, Folder
from . import health
from .draw import clean
from .places import public
from .shell import Output, Shell

BOOK = "COMMONPLACE_BOOK"
"""The variable that names a book whose URL holds a password."""
TOKEN_FILE = "COMMONPLACE_TOKEN_FILE"  # noqa: S105
"""The variable that names the file with the token of a served book."""
HOOK_SECONDS = 10
"""How long a host waits for a hook, which ends by itself after half of that."""


class ConfigFile(NamedTuple):
    """A client's configuration file: a folder that is trusted, and the file's path below it."""

    folder: Path
    path: str
    mode: int = SHARED

    def __str__(self) -> str:
        return str(self.folder / self.path)


class Client(NamedTuple):
    """How one client is configured."""

    file: Callable[[], ConfigFile]
    key: str
    """Under which name the file lists MCP servers."""
    variable: str | None
    """How the file refers to an environment variable; None: it cannot."""
    writes: bool = False
    fixed: Mapping[str, Any] = {}
    """What an entry says besides the command."""


def _project(path: str) -> Callable[[], ConfigFile]:
    def place() -> ConfigFile:
        here = Path.cwd()
        return ConfigFile(next((up for up in (here, *here.parents) if (up / ".git").exists()), here), path)

    return place


def _desktop() -> ConfigFile:
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    else:
        base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return ConfigFile(base, "Claude/claude_desktop_config.json", PRIVATE)


def _codex() -> ConfigFile:
    return ConfigFile(Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex"), "config.toml", PRIVATE)


def _zed() -> ConfigFile:
    base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return ConfigFile(base / "zed", "settings.json", PRIVATE)


class Hooks(NamedTuple):
    """Where a client lists its hooks, our command for each of its events, and the deadline in the client's own unit."""

    file: Callable[[], ConfigFile]
    events: Mapping[str, str]
    timeout: int = HOOK_SECONDS
    grouped: bool = True
    """Whether an event lists groups of handlers, and not the handlers themselves."""
    fixed: Mapping[str, Any] = {}
    """What the file says besides the hooks."""


MOMENTS = {"SessionStart": "session-start", "PreCompact": "pre-compact", "Stop": "stop"}

HOOKS = {
    "claude-code": Hooks(_project(".claude/settings.json"), MOMENTS),
    "codex": Hooks(_project(".codex/hooks.json"), MOMENTS),
    "cursor": Hooks(
        _project(".cursor/hooks.json"), {name[0].lower() + name[1:]: moment for name, moment in MOMENTS.items()},
        grouped=False, fixed={"version": 1},
    ),
    # It does not document its transcripts, so nothing is saved before a compaction.
    "gemini": Hooks(
        _project(".gemini/settings.json"), {"SessionStart": "session-start", "AfterAgent": "stop"},
        HOOK_SECONDS * 1000,
    ),
}  # fmt: skip
"""The clients whose hooks we answer."""

CLIENTS = {
    "claude-code": Client(_project(".mcp.json"), "mcpServers", f"${{{BOOK}}}", True, {"type": "stdio"}),
    "claude-desktop": Client(_desktop, "mcpServers", None, True),
    "cursor": Client(_project(".cursor/mcp.json"), "mcpServers", f"${{env:{BOOK}}}", True),
    "codex": Client(_codex, "mcp_servers", BOOK, True),
    "vscode": Client(_project(".vscode/mcp.json"), "servers", f"${{env:{BOOK}}}", fixed={"type": "stdio"}),
    "gemini": Client(_project(".gemini/settings.json"), "mcpServers", f"${BOOK}"),
    "zed": Client(_zed, "context_servers", None),
}


def install(
    shell: Shell,
    client: str,
    options: Sequence[str] = (),
    *,
    print_only: bool = False,
    hooks: bool = False,
    name: str = "commonplace",
) -> Output:
    """Set up a client so that it starts `commonplace mcp` with these options for the book."""
    how = CLIENTS.get(client)
    if how is None:
        raise BadInput(f"--install {shown(client)} is not known: name one of {', '.join(CLIENTS)}")
    if hooks and client not in HOOKS:
        raise BadInput(f"--hooks are for {', '.join(HOOKS)}, and not for {client}: leave --hooks out")
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        raise BadInput(f"--name {shown(name)} is no name of a server: use up to 64 letters, digits, - and _")
    secret = public(shell.url) != shell.url
    if secret and how.variable is None:
        raise BadInput(
            f"the URL of the book holds a password, which {client} would keep in a plain file: leave it out of the URL "
            "(PostgreSQL reads it from ~/.pgpass)"
        )
    command = program(shell, client, secret)
    entry = {**how.fixed, "command": command[0], "args": [*command[1:], "mcp", *options]}
    if secret and client == "codex":
        entry["env_vars"] = [BOOK]
    elif secret:
        entry["env"] = {BOOK: how.variable}
    hook_command = command
    # Clients pass on few of their own variables. The path of a token's file is no secret, so it is written down.
    token_file = os.environ.get(TOKEN_FILE) if served(shell) else None
    if token_file:
        variable = {TOKEN_FILE: str(Path(token_file).absolute())}
        entry["env"] = {**entry.get("env", {}), **variable}
        hook_command = ["env", *(f"{name}={value}" for name, value in variable.items()), *command]
    place, writes = how.file(), how.writes and not print_only
    for_all_projects = place.mode == PRIVATE
    text = _in_toml(name, entry) if client == "codex" else _as_json({how.key: {name: entry}})
    with_entry = _toml_with if client == "codex" else _json_with
    changes = [
        (place, text, partial(with_entry, key=how.key, name=name, entry=entry, keeps_book=for_all_projects))
    ]
    if hooks:
        hooked = partial(_hooks_with, hooks=HOOKS[client], command=hook_command)
        changes.append((HOOKS[client].file(), hooked(""), hooked))
    # All of them are worked out before the first is written: a file that is refused leaves the others as they are.
    planned = [
        (place, text, *(_planned(place, change) if writes else ("", ""))) for place, text, change in changes
    ]
    report, human = [], list[str]()
    for place, text, before, after in planned:
        backup = None
        if writes and after != before:
            try:
                backup = _write(place, before, after)
            except OSError as error:
                raise BadInput(
                    f"{place} cannot be written ({error.strerror}): add what --print-only prints by hand"
                ) from None
            human += [f"wrote {place}", *([f"what was there is in {backup}"] if backup else [])]
        elif writes:
            human += [f"{place} is set up already: nothing was changed"]
        else:  # to be copied, so no line of it is wrapped
            human += [f"add this to {place}:", *map(_unwrapped, text.rstrip().split("\n"))]
        report.append({"file": str(place), "changed": after != before, "backup": backup, "config": text})
    if secret:
        human += [f"the URL has a password, so it is not in the file: set {BOOK} where you start {client}"]
    local = health.place_of(shell.url)
    if local is not None and not local.exists():
        human += [f"there is no book at {local} yet: `{shell.next_command('init')}` creates it"]
    if served(shell) and not token_file:
        human += [
            "the book is served, and nothing here says with which token: put one into a file that only you can read, "
            f"set {TOKEN_FILE} to its path, and run this again"
        ]
    elif not served(shell):
        actor = actor_of(shell, client)
        grant = shell.next_command("access", "grant", actor, "--acts", "orchestrate")
        human += [
            f"{actor} remembers, searches and does tasks; to let it begin works and add tasks, too: `{grant}`"
        ]
    return Output({"client": client, "name": name, "written": writes, "files": report}, human)


def _unwrapped(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" "))] + clean(line)


def served(shell: Shell) -> bool:
    return shell.url.startswith(("http://", "https://"))


def actor_of(shell: Shell, client: str) -> str:
    return client if shell.actor == OWNER else shell.actor


def program(shell: Shell, client: str, secret: bool) -> list[str]:
    """This installation's command with the options that say which book, and who acts."""
    beside = Path(sys.executable).with_name("commonplace")
    found = str(beside) if beside.exists() else shutil.which("commonplace")
    words = [sys.executable, "-m", "commonplace"] if found is None else [str(Path(found).absolute())]
    if not secret:
        local = health.place_of(shell.url)
        prefix = "file:" if shell.url.startswith("file:") else ""
        words += ["--book", shell.url if local is None else f"{prefix}{local.absolute()}"]
    if shell.actor != OWNER or not served(shell):  # the token of a served book says who acts
        words += ["--as", actor_of(shell, client)]
    return words if shell.scope is None else [*words, "--scope", shell.scope]


# files


def _planned(place: ConfigFile, change: Callable[[str], str]) -> tuple[str, str]:
    """What a file says, and what it shall say."""
    try:
        raw = Folder(place.folder.resolve()).read(place.path)
        before = "" if raw is None else raw.decode()
        return before, change(before)
    except (ValueError, RecursionError) as error:  # a typed error that says why, or what a parser says
        raise BadInput(
            f"{place} was left as it is: {error}. Put it right, or add what --print-only prints by hand"
        ) from None


def _write(place: ConfigFile, before: str, after: str) -> str | None:
    """Put a file in place, and answer where the one before is, if there was one."""
    place.folder.mkdir(parents=True, exist_ok=True)
    folder, backup = Folder(place.folder.resolve()), None
    there = folder.stat(place.path)
    if there is not None:
        names = (f"{place.path}.backup-{number}" for number in range(1, 10_000))
        backup = next(name for name in names if folder.stat(name) is None)
        folder.write(backup, before.encode(), like=there)
    folder.write(place.path, after.encode(), place.mode, like=there)
    return None if backup is None else str(place.folder / backup)


def _check_book(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Raises ValueError if an entry in a file that serves all projects of a user is that of another book."""
    before, after = _book_of(old), _book_of(new)
    if before not in (None, after):
        raise ValueError(
            f"its server {name} has the book {before}, which other projects may use: give --name for another entry"
        )


def _book_of(entry: Mapping[str, Any]) -> str | None:
    args = entry.get("args")
    words = args if isinstance(args, list) else []
    return next((str(value) for option, value in pairwise(words) if option == "--book"), None)


# JSON


def _as_json(document: object, like: str = "") -> str:
    """JSON in the manner of the text that it replaces: its indent, its ends of lines, whether it is ASCII."""
    indent = re.search(r'\n([ \t]+)"', like)
    text = json.dumps(
        document,
        indent=indent[1] if indent else 2,
        ensure_ascii=bool(like) and like.isascii(),
        allow_nan=False,
    )
    text += "\n" if not like or like.endswith("\n") else ""
    return text.replace("\n", "\r\n") if "\r\n" in like else text


def _read_json(text: str) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("it has a key twice, and one of the two would be lost")
        return dict(pairs)

    try:
        document = json.loads(text, object_pairs_hook=once) if text.strip() else {}
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not plain JSON ({error}); comments would be lost") from None
    return _table(document, "the file")


def _table(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not an object")  # noqa: TRY004  about a file
    return value


def _json_with(before: str, key: str, name: str, entry: Mapping[str, Any], keeps_book: bool) -> str:
    document = _read_json(before)
    servers = _table(document.get(key, {}), key)
    old = _table(servers.get(name, {}), f"{key}.{name}")
    if keeps_book:
        _check_book(name, old, entry)
    new = {**old, **entry}
    if "env" in entry:
        new["env"] = {**_table(old.get("env", {}), "env"), **entry["env"]}
    return before if new == old else _as_json({**document, key: {**servers, name: new}}, before)


def _hooks_with(before: str, hooks: Hooks, command: Sequence[str]) -> str:
    """Settings with our hooks: each is added once, and replaced where an earlier one is."""
    document = {**hooks.fixed, **_read_json(before)}
    listed = dict(_table(document.get("hooks", {}), "hooks"))
    changed = False
    for event, moment in hooks.events.items():
        words = shlex.join([*command, "learn", "hook", moment])
        handler = {"type": "command", "command": words, "timeout": hooks.timeout}
        listed_here = listed.get(event, [])
        if not isinstance(listed_here, list):
            raise ValueError(f"hooks.{event} is not a list")  # noqa: TRY004  about a file
        found = [
            (handlers, place)
            for handlers in (_grouped(listed_here) if hooks.grouped else [listed_here])
            for place, each in enumerate(handlers)
            if isinstance(each, dict) and _is_ours(str(each.get("command")), moment)
        ]
        for handlers, place in found[:1]:
            changed |= handlers[place].get("command") != words
            handlers[place] = {**handler, **handlers[place], "command": words}
        if not found:
            listed[event] = [*listed_here, {"hooks": [handler]} if hooks.grouped else handler]
            changed = True
    return _as_json({**document, "hooks": listed}, before) if changed else before


def _is_ours(command: str, moment: str) -> bool:
    """Whether a command calls our hook of a moment."""
    try:
        words = shlex.split(command)
    except ValueError:
        return False
    ours = any(Path(word).name == "commonplace" for word in words)
    return ours and words[-3:] == ["learn", "hook", moment]


def _grouped(groups: list[Any]) -> Iterator[list[Any]]:
    """The lists of handlers in the groups of an event."""
    for group in groups:
        if isinstance(group, dict) and isinstance(group.get("hooks"), list):
            yield group["hooks"]


# TOML: our own table is changed as text, because no parser of the standard library keeps comments


def _in_toml(name: str, entry: Mapping[str, Any]) -> str:
    return "\n".join([f"[mcp_servers.{name}]", *_toml_lines(entry), ""])


def _toml_lines(entry: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {_toml_value(value)}" for key, value in entry.items()]


def _toml_value(value: Any) -> str:
    """Strings and lists of strings are the same in JSON and in TOML."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{key} = {_toml_value(inner)}' for key, inner in value.items())} }}"
    return json.dumps(value, ensure_ascii=False)


def _toml_with(before: str, key: str, name: str, entry: Mapping[str, Any], keeps_book: bool) -> str:
    document = tomllib.loads(before)
    servers = _table(document.get(key, {}), key)
    old = _table(servers.get(name, {}), f"{key}.{name}")
    if keeps_book:
        _check_book(name, old, entry)
    if "env_vars" in entry:
        entry = {**entry, "env_vars": list(dict.fromkeys([*old.get("env_vars", ()), *entry["env_vars"]]))}
    if "env" in entry:
        entry = {**entry, "env": {**_table(old.get("env", {}), "env"), **entry["env"]}}
    new = {**old, **entry}
    if new == old:
        return before
    rows = before.splitlines(keepends=True)
    end = "\r\n" if "\r\n" in before else "\n"
    written = [line + end for line in _toml_lines(entry)]
    header = re.compile(rf"""\s*\[\s*{key}\s*\.\s*["']?{name}["']?\s*\]\s*(#.*)?$""")
    start = next((number for number, row in enumerate(rows) if header.match(row)), None)
    if start is None:
        gap = [] if not rows else [end] if rows[-1].endswith("\n") else [end, end]
        after = "".join([*rows, *gap, f"[{key}.{name}]{end}", *written])
    else:
        after = "".join([*rows[: start + 1], *written, *_without(rows[start + 1 :], entry)])
    # What was meant, and nothing else, must be what a parser reads: a text that only looks like our table (inside a
    # string of several lines, as an inline table) is not changed.
    try:
        right = tomllib.loads(after) == {**document, key: {**servers, name: new}}
    except tomllib.TOMLDecodeError:
        right = False
    if not right:
        raise ValueError(f"the table {key}.{name} is written in a way that cannot be changed safely")
    return after


def _without(rows: list[str], keys: Mapping[str, Any]) -> list[str]:
    """The lines after the header of a table, without those of some of its keys, which may take several lines."""
    kept, number = list[str](), 0
    while number < len(rows) and not re.match(r"\s*\[", rows[number]):
        key = re.match(r"""\s*["']?(\w+)["']?\s*=""", rows[number])
        length = _lines_of_value(rows[number:]) if key and key[1] in keys else 0
        kept += [] if length else rows[number : number + 1]
        number += length or 1
    return kept + rows[number:]


def _lines_of_value(rows: list[str]) -> int:
    """How many lines the key and value take that begin here."""
    for count in range(1, len(rows) + 1):
        try:
            tomllib.loads("".join(rows[:count]))
            return count
        except tomllib.TOMLDecodeError:
            continue
    return 1
