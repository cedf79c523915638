"""What a command in a text names that a repository can be asked about: a target of make, a script of a package, a file.

make deploy            the target deploy of the Makefile
npm run build          the script build of package.json
python scripts/x.py    the file scripts/x.py, and so for ./run.sh
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
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
_SPOKEN = re.compile(rf"(?<![\w/.-])(make|(?:npm|pnpm|yarn|bun)(?= run )) (?:run )?({_NAME})")
_SPOKEN_SCRIPT = re.compile(r"(?<![\w/.])\./([\w-][\w./-]*)")
_RULE = re.compile(r"^([^\s#:=][^:=#\n]*+)::?(?![:=])", re.M)
_ELSEWHERE = re.compile(r"^[ \t]*-?s?include\b|\$\((?:eval|call)\b", re.M)


class Named(NamedTuple):
    """What a command names: a program, with or without one of its targets, or a file."""

    program: str = ""
    target: str = ""
    file: str = ""


def named_by(line: str) -> Iterator[Named]:
    """What a line of shell names."""
    for part in re.split(r"&&|\|\|?|;", line):
        words = re.split(r"\s[\d&]?[<>]", part)[0].split()
        while words and (words[0] in _BEFORE or re.match(r"\w+=", words[0])):
            words.pop(0)
        if words:
            yield from _of_words(words[0], words[1:])


def _of_words(program: str, arguments: list[str]) -> Iterator[Named]:
    if "/" in program:
        yield from _script(program)
    elif _PROGRAM.fullmatch(program):
        yield Named(program)
        plain = [word for word in arguments if not word.startswith("-") and "=" not in word]
        if program == "make" and not any(word.startswith(("-C", "-f", "--d", "--f")) for word in arguments):
            yield from (Named(program, word) for word in plain if re.fullmatch(_NAME, word))
        elif program in MANIFESTS and plain[:1] in (["run"], ["run-script"]):
            yield from (Named(program, word) for word in plain[1:2])
        elif program in MANIFESTS and plain[:1] == ["test"]:
            yield Named(program, "test")
        elif _INTERPRETERS.fullmatch(program) and "-m" not in arguments and "-c" not in arguments:
            yield from (named for word in plain[:1] for named in _script(word))


def _script(word: str) -> Iterator[Named]:
    """A file that is run, unless it lies elsewhere."""
    path = word.removeprefix("./")
    if re.fullmatch(r"[\w-][\w./-]*", path):
        yield Named(file=path)


def spoken_of(text: str) -> Iterator[Named]:
    """What a text may name without saying that it is a command: "make sure" names nothing, unless there is a target
    `sure`."""
    for match in _SPOKEN.finditer(text):
        yield Named(match[1], match[2].rstrip(".:/"))
    for match in _SPOKEN_SCRIPT.finditer(text):
        yield Named(file=match[1].rstrip("./"))


def manifest(root: Path, program: str) -> Path | None:
    """The file of the repository that lists the targets of a program, if there is one."""
    places = [(root / name).resolve() for name in MANIFESTS.get(program, ()) if (root / name).is_file()]
    return next((path for path in places if path.is_relative_to(root.resolve())), None)


def lacks(text: str, program: str, target: str) -> str:
    """What a manifest with this text lacks, if it has no such target. Raises ValueError if it cannot be read."""
    if program != "make":
        package = json.loads(text)
        scripts = package.get("scripts") if isinstance(package, dict) else None
        return (
            "" if isinstance(scripts, dict) and target in scripts else f"package.json has no script {target}"
        )
    rules = [name for rule in _RULE.finditer(text) for name in rule[1].split()]
    if (
        target in rules
        or _ELSEWHERE.search(text)
        or any(_fits(rule, target) for rule in rules if "%" in rule)
    ):
        return ""
    if any("$" in rule for rule in rules) and re.search(rf"(?<![\w-]){re.escape(target)}(?![\w-])", text):
        return ""  # a variable may hold it
    return f"the Makefile has no target {target}"


def _fits(rule: str, target: str) -> bool:
    start, _, end = rule.partition("%")
    return len(target) > len(start) + len(end) and target.startswith(start) and target.endswith(end)
