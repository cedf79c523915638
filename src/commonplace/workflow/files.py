"""A workflow's files as plain data that fits their schema, in one form for all dialects.

Reading continues after a mistake, so that all of them are told at once: what does not fit counts as not written.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from jsonschema import Draft202012Validator
from jsonschema.validators import extend

from ..errors import BadInput, TooLarge, UnsafePath, shown
from ..files.plain_yaml import kind_of, parse_yaml
from ..files.safe import Folder
from . import schema
from .model import WORKFLOW_FILE, Problem

_SCHEMAS = {True: schema.WORKFLOW, False: schema.AGENT}
Place = tuple[str | int, ...]
Level = Literal["error", "warning"]
Section = dict[str, Any]


def mapping(value: object) -> Section:
    """The value if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def at_path(section: object, path: str) -> Any:
    """What stands at a dotted path in a section, or None."""
    for name in path.split("."):
        section = mapping(section).get(name)
    return section


def gathered_from(section: Section, **paths: str) -> Section:
    """Values from other places of a section, each from the first of its dotted paths (separated by spaces) that has
    one; a switch is off if any of them says so."""
    values = {name: [at_path(section, path) for path in listed.split()] for name, listed in paths.items()}
    stated = {name: [each for each in several if each is not None] for name, several in values.items()}
    return {
        name: False if any(each is False for each in several) else several[0]
        for name, several in stated.items()
        if several
    }


def is_file(path: Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113 (Path.is_file raises for some names)


def read_yaml(path: Path, max_bytes: int = 1_000_000, within: Path | None = None) -> object:
    """What the one document in the file says, or None when there is none. Dates stay text. From the folder `within`, or
    else the one that the file is in, no link is followed.

    Refused, with the file's name and the line: more than `max_bytes`, also once aliases are written out;
    anything that is not UTF-8; tags; keys that are not text or come twice; numbers that JSON cannot hold;
    more than one document; too deep nesting.
    """
    root = within or path.parent
    try:
        fd = Folder(root.resolve()).open(path.relative_to(root).as_posix())
        if fd is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        with open(fd, "rb") as file:
            status = os.fstat(fd)
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise BadInput(
            f"{path.name} cannot be read ({error.strerror}): it belongs into {path.parent}"
        ) from error
    if (size := max(status.st_size, len(data))) > max_bytes:
        raise TooLarge(f"{path.name} has {size:,} bytes; at most {max_bytes:,} are read")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{path.name}, line {line}: not UTF-8; save the file as UTF-8") from error
    return parse_yaml(text, path.name, max_bytes)


@dataclass(slots=True)
class Files:
    """What is known of a workflow's files while they are read: the documents and what is wrong with them."""

    root: Path
    top: Path | None = None
    """The folder of the outermost workflow, if this one is inside another."""
    documents: dict[str, object] = field(default_factory=dict)
    """What each file says, as it is written."""
    problems: list[Problem] = field(default_factory=list)

    def tell(self, file: str, path: str, message: str, rule: str = "", level: Level = "error") -> None:
        self.problems.append(Problem(level, file, path, rule, message))

    def read(self, file: str, name: str = "") -> dict[str, Any] | None:
        """What a file says as far as it fits the schema; it may have another name. None, and a problem told, when it
        cannot be read."""
        name = name or file
        reason, document = self.escape(name), None
        if reason is None:
            try:
                document = read_yaml(self.root / name, within=self.top or self.root)
                reason = "the file is empty; write the document" if document is None else None
            except BadInput as error:
                reason = str(error)
        self.documents[file] = document
        if reason is None and not isinstance(document, dict):
            reason = f"write a mapping (name: value) here, not {kind_of(document)}"
        if reason is not None:
            self.tell(file, "", reason)
        return self._fitting(file, document) if isinstance(document, dict) and reason is None else None

    def _fitting(self, file: str, document: dict[str, Any]) -> dict[str, Any]:
        of_workflow = file == WORKFLOW_FILE
        wrong: set[Place] = set()
        for error in _validator(of_workflow).iter_errors(document):
            for place, message, rule in _mistakes(error):
                if place not in wrong:
                    self.tell(file, path_of(place), message, rule)
                wrong.add(place)
        for place, key, meant in _misspelt(document, _SCHEMAS[of_workflow], ()):
            message = f"nobody reads {key!r}; did you mean {meant!r}?"
            self.tell(file, path_of(place), message, level="warning")
        fitting: dict[str, Any] = normal(document, _SCHEMAS[of_workflow], wrong)
        return fitting

    def escape(self, path: str) -> str | None:
        """Why this path may not stand in a workflow's file, or None when it stays in the workflow's folder and meets no
        link."""
        if not path.isprintable() or "\\" in path or re.match("[/~]|[A-Za-z]:", path):
            return f"{shown(path)} is not a path inside the workflow's folder; write folder/name"
        if ".." in path.split("/") or not path.strip():
            return f"{shown(path)} leaves the workflow's folder; write a path below it, such as folder/name"
        plain = PurePosixPath(path).as_posix()
        try:
            there = None if plain == "." else Folder(self.root.resolve()).stat(plain)
        except UnsafePath:
            return f"{shown(path)} lies behind a link, or a file; put the files themselves there"
        except (OSError, ValueError):
            return f"{shown(path)} cannot be a path; write a shorter or simpler one"
        if there is not None and stat.S_ISLNK(there.st_mode):
            return f"{shown(path)} is a link; put the files themselves there"
        return None


def path_of(place: Place) -> str:
    """A place in a document as people write it: state.sharing.rules[0].to"""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")


@cache
def _validator(of_workflow: bool) -> Any:
    checker = Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool)
    )
    return extend(Draft202012Validator, type_checker=checker)(_SCHEMAS[of_workflow])  # type: ignore[no-untyped-call]


def _mistakes(error: Any) -> Iterator[tuple[Place, str, str]]:
    """Where something does not fit, what to write there, and against which rule it is."""
    place, words = (*error.absolute_path,), error.schema
    if error.validator == "required":
        for name in words["required"]:
            if name not in error.instance:
                missing = words["properties"][name]
                yield (*place, name), f"write {missing['want'].rstrip(',')}", missing.get("rule", "")
    elif error.validator == "additionalProperties":
        for name in error.instance.keys() - words["properties"].keys():
            allowed = ", ".join(words["properties"])
            yield (*place, name), f"{shown(name)} is not known here; write one of {allowed}", ""
    else:
        yield place, f"write {words['want']} here, not {kind_of(error.instance)}", words.get("rule", "")


def normal(value: Any, words: schema.Schema, wrong: Set[Place] = frozenset(), place: Place = ()) -> Any:
    """A value in the one form that its schema has for all dialects, without what is wrong and what says nothing."""
    value = None if place in wrong else value
    if isinstance(value, str):
        value = words.get("synonyms", {}).get(value, value)
    if "short" in words and value is not None and not isinstance(value, dict):
        return {words["short"]: value}
    if "items" in words and isinstance(value, list):
        inner = [normal(item, words["items"], wrong, (*place, index)) for index, item in enumerate(value)]
        mappings = "properties" in words["items"]
        return [{} if item is None else item for item in inner if mappings or item is not None]
    if (
        words.get("listed")
        and value is not None
        and not ("additionalProperties" in words and isinstance(value, dict))
    ):
        return [normal(value, words["items"], wrong, place)]
    if not isinstance(value, dict) or not ("properties" in words or "additionalProperties" in words):
        return value
    properties, others = words.get("properties", {}), words.get("additionalProperties") or {}
    usual: dict[str, Any] = {}
    for key, inner in sorted(value.items(), key=lambda pair: "stands_for" in properties.get(pair[0], {})):
        of_key = properties.get(key, others)
        plain = normal(inner, of_key, wrong, (*place, key))
        if plain is not None or words.get("listed"):
            usual.setdefault(of_key.get("stands_for", key), {} if plain is None else plain)
    return usual


def _misspelt(value: object, words: schema.Schema, place: Place) -> Iterator[tuple[Place, str, str]]:
    """Keys that are not read and look like ones that are: what such a key was meant to protect is unprotected."""
    properties, others = words.get("properties", {}), words.get("additionalProperties")
    for key, inner in value.items() if isinstance(value, dict) else ():
        meant = get_close_matches(key, properties, 1, 0.8) if key not in properties else []
        if meant and others is None:
            yield (*place, key), key, meant[0]
        yield from _misspelt(inner, properties.get(key, others or {}), (*place, key))
    for index, inner in enumerate(value if isinstance(value, list) else ()):
        yield from _misspelt(inner, words.get("items", {}), (*place, index))
