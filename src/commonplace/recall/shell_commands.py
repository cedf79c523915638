"""What a shell command in a text names that can be looked up in a repository: a target, a script of a package, a file.

make deploy            the target deploy of the Makefile
npm run build          the script build of package.json
python scripts/x.py    the file scripts/x.py, and so for ./run.sh
cd web && make site    the target site of web/Makefile
npm run dev -w web     the script dev of web/package.json, if there is such a folder

What cannot be known for certain (variables, globs, folders elsewhere) names nothing: to call a command stale that is
right is worse than to miss one that is not.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from posixpath import join, normpath
from typing import NamedTuple

MANIFESTS = {
    "make": ("GNUmakefile", "makefile", "Makefile"),
    "npm": ("package.json",), "pnpm": ("package.json",), "yarn": ("package.json",), "bun": ("package.json",),
}  # fmt: skip
"""Where the targets of a program are written down, in the order in which it looks."""

_INTERPRETERS = re.compile(r"(?:python|python3|bash|sh|zsh|node|ruby|perl|php)(?:\.\d+)?")
_BEFORE = frozenset({"$", "sudo", "env", "time", "exec", "nohup"})
_NAME = r"[\w@][\w.@:/+-]*"
_PROGRAM = re.compile(r"[a-z][\w.-]{0,30}")
_FOLDER = re.compile(r"[\w.@][\w.@/+-]*")
_OPERATOR = re.compile(r"&&|\|\||[;&|()]")
_MAKES_ELSEWHERE = re.compile(r"-[A-Za-z]*[CfIoWE]|--(?:[defimow]|assume|new)")
"""Options of make that name another place, or that take the next word."""
_MEMBER_OPTIONS = ("-w", "--workspace", "-F", "--filter")
_FOLDER_OPTIONS = ("--prefix", "-C", "--dir", "--cwd")
_QUIET_OPTIONS = ("-s", "--silent", "-q", "--quiet")
_SPOKEN = re.compile(rf"(?<![\w/.-])(?<!&& )(make|(?:npm|pnpm|yarn|bun)(?= run )) (?:run )?({_NAME})")
_SPOKEN_SCRIPT = re.compile(r"(?<![\w/.])\./([\w-][\w./-]*)")
_RULE = re.compile(r"^ *+([^\s#:=][^:=#\n]*+)::?(?![:=])", re.M)
_ELSEWHERE = re.compile(r"^[ \t]*-?s?include\b|\$\((?:eval|call)\b", re.M)


class NamedCommand(NamedTuple):
    """What a command names: a program, with or without one of its targets, or a file."""

    program: str = ""
    target: str = ""
    file: str = ""
    folder: str = ""
    """Where the target is looked for, if not in the repository's own folder."""
    if_there: bool = False
    """Whether nothing is said where that folder has no list of targets: the folder may be another one."""


class _Place(NamedTuple):
    """Where a command is run."""

    folder: str | None = ""
    """None if it is not known."""
    if_there: bool = False

    def within(self, folder: str, if_there: bool = False) -> _Place:
        """Where a folder leads that is named here."""
        path = normpath(join(self.folder or "", folder))
        if self.folder is None or not _FOLDER.fullmatch(folder) or path.split("/")[0] == "..":
            return _Place(None)
        return _Place("" if path == "." else path, self.if_there or if_there)


def named_by(line: str) -> Iterator[NamedCommand]:
    """What a line of shell names. A `cd` holds for what follows it, up to the end of its brackets."""
    try:
        parts = [] if "$(" in line else _parts(line)
    except ValueError:  # a quotation mark without its other one: no line of shell
        return
    place, outer, others = _Place(), list[_Place](), False
    for before, words, after in parts:
        while words and (words[0] in _BEFORE or re.match(r"\w+=", words[0])):
            words.pop(0)
        program = words[0] if words else ""
        if program == "cd" and len(words) == 2 and before in ("", "&&", ";", "(") and after not in ("|", "&"):
            place = place.within(words[1], if_there=others)  # what was run before may have made it
        elif program in ("cd", "pushd", "popd"):
            place = _Place(None)
        elif program:
            others = True
            yield from _of_words(program, words[1:], place)
        if after == "(":
            outer.append(place)
        elif after == ")":
            place = outer.pop() if outer else _Place(None)


def _parts(line: str) -> list[tuple[str, list[str], str]]:
    """The commands of a line as words, each with what stands before and after it. Raises ValueError if it has a
    quotation mark without its other one."""
    reader = shlex.shlex(line, posix=True, punctuation_chars=True)
    reader.whitespace_split, reader.commenters = True, ""
    parts, before, words, redirected = list[tuple[str, list[str], str]](), "", list[str](), False
    for token in reader:
        if token.startswith("#"):
            break  # a remark
        if not token or token.strip("();<>|&"):
            if not redirected:
                words.append(token)
        elif "<" in token or ">" in token:
            redirected = True
        else:
            for operator in _OPERATOR.findall(token):
                parts.append((before, words, operator))
                before, words, redirected = operator, [], False
    return [*parts, (before, words, "")]


def _of_words(program: str, arguments: list[str], place: _Place) -> Iterator[NamedCommand]:
    if "/" in program:
        yield from _script(program, place)
    elif _PROGRAM.fullmatch(program):
        yield NamedCommand(program)
        plain = [word for word in arguments if not word.startswith("-") and "=" not in word]
        if program == "make" and not any(map(_MAKES_ELSEWHERE.match, arguments)):
            yield from _targets(program, [word for word in plain if not word.isdecimal()], place)
        elif program in MANIFESTS:
            yield from _package_script(program, arguments, place)
        elif _INTERPRETERS.fullmatch(program) and "-m" not in arguments and "-c" not in arguments:
            yield from (named for word in plain[:1] for named in _script(word, place))


def _package_script(program: str, arguments: list[str], place: _Place) -> Iterator[NamedCommand]:
    """The script of a package that is run, in the member of the workspace that is named, if one is."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    words, rest = list[str](), iter(own)
    for word in rest:
        option, equals, value = word.partition("=")
        if option in (*_MEMBER_OPTIONS, *_FOLDER_OPTIONS):
            place = place.within(value if equals else next(rest, ""), option in _MEMBER_OPTIONS)
        elif not word.startswith("-"):
            words.append(word)
        elif word not in _QUIET_OPTIONS and (
            len(words) < 2 or word in ("-ws", "--workspaces", "--if-present")
        ):
            return  # it may take the next word, or mean all members
    if program == "yarn" and words[:1] == ["workspace"]:
        place, words = place.within("".join(words[1:2]), if_there=True), words[2:]
    if words[:1] in (["run"], ["run-script"]):
        yield from _targets(program, words[1:2], place)
    elif words[:1] == ["test"]:
        yield from _targets(program, ["test"], place)


def _targets(program: str, words: list[str], place: _Place) -> Iterator[NamedCommand]:
    if place.folder is not None:
        for word in words:
            if re.fullmatch(_NAME, word):
                yield NamedCommand(program, word, "", place.folder, place.if_there)


def _script(word: str, place: _Place) -> Iterator[NamedCommand]:
    """A file that is run, unless it lies elsewhere."""
    path = word.removeprefix("./")
    if place.folder is not None and not place.if_there and re.fullmatch(r"[\w-][\w./-]*", path):
        yield NamedCommand(file=join(place.folder, path))


def spoken_of(text: str) -> Iterator[NamedCommand]:
    """What a text may name without saying that it is a command: "make sure" names nothing, unless there is a target
    `sure`."""
    for match in _SPOKEN.finditer(text):
        yield NamedCommand(match[1], match[2].rstrip(".:/"))
    for match in _SPOKEN_SCRIPT.finditer(text):
        yield NamedCommand(file=match[1].rstrip("./"))


def manifest(root: Path, program: str, folder: str = "") -> Path | None:
    """The file of the repository that lists the targets of a program in a folder, if there is one."""
    names = [root / folder / name for name in MANIFESTS.get(program, ())]
    places = [path.resolve() for path in names if path.is_file()]
    return next((path for path in places if path.is_relative_to(root.resolve())), None)


def lacks(text: str, program: str, target: str, folder: str = "") -> str:
    """What a manifest with this text lacks, if it has no such target. Raises ValueError if it cannot be read."""
    if program != "make":
        package = json.loads(text)
        scripts = package.get("scripts") if isinstance(package, dict) else None
        there = isinstance(scripts, dict) and target in scripts
        return "" if there else f"{join(folder, 'package.json')} has no script {target}"
    rules = [name for rule in _RULE.finditer(text.replace("\\\n", " ")) for name in rule[1].split()]
    if (
        target in rules
        or ".DEFAULT" in rules
        or _ELSEWHERE.search(text)
        or any("$" in rule or ("%" in rule and _fits(rule, target)) for rule in rules)
    ):
        return ""  # it is there, or may be made by a variable or a rule for many
    return f"{join(folder, 'Makefile') if folder else 'the Makefile'} has no target {target}"


def _fits(rule: str, target: str) -> bool:
    start, _, end = rule.partition("%")
    return len(target) > len(start) + len(end) and target.startswith(start) and target.endswith(end)
