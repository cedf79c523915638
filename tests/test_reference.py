"""The reference of every public name, made from the code; and what the registry of verbs reads from a signature."""

from __future__ import annotations

import inspect
import os
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import pytest

import commonplace
from commonplace.book import Book
from commonplace.errors import CommonplaceError
from commonplace.registry import call, every_verb, verb_at
from commonplace.surfaces.cli import Command, commands
from commonplace.verbs import COMMON, Verb, explained, name_of, namespace

DOCS = Path(__file__).parents[1] / "docs" / "reference.md"
REGENERATE = "UPDATE_DOCS=1 python -m pytest tests/test_reference.py -k docs"


def registry() -> dict[str, Verb]:
    return {verb.dotted: verb for verb in every_verb()}


def explained_by_themselves() -> dict[str, Verb]:
    """Every verb, and every function of the shell that stands in for one."""
    own = [command.verb for _, command in commands() if isinstance(command, Command)]
    return registry() | {verb.path[0]: verb for verb in own if ":" in verb.path[0]}


# the registry


@pytest.mark.spec("7.1")
def test_a_verb_is_read_from_its_signature_and_docstring() -> None:
    verb = registry()["memory.list"]
    assert verb.summary.startswith("The items that match every filter, oldest first")
    assert [one.name for one in verb.parameters][:3] == ["kind", "key", "tags"]
    parameters = {one.name: one for one in registry()["access.grant"].parameters}
    assert parameters["subject"].required
    assert parameters["tiers"].help == "maps memory tiers to none, read or read_write"
    assert (parameters["replace"].default, parameters["replace"].positional) == (False, False)


@pytest.mark.spec("7.1")
def test_a_request_carries_the_data_of_a_call_and_refuses_what_the_verb_does_not_take() -> None:
    request = registry()["digest"].request
    assert "count_tokens" not in request.__struct_fields__
    sent = msgspec.json.encode(request(query="tea", at=datetime(2026, 1, 2, tzinfo=UTC)))
    back: Any = msgspec.json.decode(sent, type=request)
    assert (back.query, back.at.year, back.max_chars) == ("tea", 2026, None)
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.json.decode(b'{"quarry": "tea"}', type=request)


@pytest.mark.spec("7.1")
def test_every_verb_can_be_sent_and_explains_itself() -> None:
    verbs = registry()
    assert {"remember", "search", "memory.get", "documents.notes", "receipts.bisect", "runs.fork", "works.list",
            "access.grant", "admin.verify", "mirror.sync"} <= verbs.keys()  # fmt: skip
    for path, verb in verbs.items():
        assert verb.about, path
        assert verb.request.__struct_fields__ is not None, path
        msgspec.json.schema(verb.request)


@pytest.mark.spec("7.1")
def test_every_parameter_is_explained() -> None:
    missing = [
        f"{path} {parameter.name}"
        for path, verb in explained_by_themselves().items()
        for parameter in verb.parameters
        if parameter.is_data and not parameter.help
    ]
    assert missing == []


@pytest.mark.spec("7.1")
def test_a_common_explanation_is_true_of_every_parameter_of_that_name() -> None:
    """What is common is explained once, for parameters of one type in several verbs; all else by each verb itself."""
    alike = {"At": "moment", "int datetime": "moment", "dict": "Mapping"}
    alike |= dict.fromkeys(("Sequence", "Collection", "list"), "list")
    uses: dict[str, list[str]] = {name: [] for name in COMMON}
    for path, verb in explained_by_themselves().items():
        for parameter in verb.parameters:
            if (path, parameter.name) == ("learn.board.read", "since"):
                continue  # as the format that boards come from has it: an entry, or a time
            if parameter.name in COMMON:
                assert not explained(parameter.name, verb.about), f"{path} explains {parameter.name} anew"
                kinds = " ".join(name_of(kind) for kind in parameter.kinds)
                uses[parameter.name].append(alike.get(kinds, kinds))
    assert {name for name, kinds in uses.items() if len(kinds) < 2} == set(), "explain it in the one verb"
    assert {name: kinds for name, kinds in uses.items() if len(set(kinds)) > 1} == {}


@pytest.mark.spec("7.1", "5.1")
def test_a_handle_is_its_ids_so_its_verbs_are_called_with_plain_data() -> None:
    names = [parameter.name for parameter in verb_at("claim.complete").parameters]
    assert names[:3] == ["task", "token", "summary"]
    assert [parameter.name for parameter in verb_at("work.add_task").parameters][:2] == ["work", "title"]
    ids = {parameter.name: parameter.id_of for parameter in verb_at("work.approvals.request").parameters}
    assert ids == {"work": "work", "action": "", "risk": "", "task": "task", "decision": "decision", "by": ""}

    with commonplace.open("memory:") as book:
        work = book.work(name="site").id
        ada = book.as_actor("ada")
        for id in ("a", "b"):
            call(book, verb_at("work.add_task"), {"work": work, "title": id, "id": id})
        first, second = call(ada, verb_at("work.claim_many"), {"work": work, "count": 2})
        claims = [{"task": claim.task.id, "token": claim.token} for claim in (first, second)]
        assert call(ada, verb_at("claim.heartbeat"), claims[0]) == []
        done = call(ada, verb_at("work.complete_many"), {"work": work, "claims": claims})
        assert [task.status for task in done] == ["completed", "completed"]
        found = call(ada, verb_at("work.escalate"), {"work": work, "text": "what next?"})
        answered = call(book, verb_at("work.answer"), {"escalation": found.id, "answer": "rest"})
        assert answered.status == "resolved"  # the work was found by the escalation
        with pytest.raises(commonplace.NotFound, match="or name its work"):
            call(book, verb_at("work.answer"), {"escalation": "none", "answer": "rest"})
        run = book.run(initial={"topic": "tea"})
        call(book, verb_at("turn.write"), {"run_id": run.id, "agent": "ada", "output": {"cups": 2}})
        assert call(book, verb_at("run.state"), {"run_id": run.id})["ada"] == {"cups": 2}


# the page


class Plain(str):
    """An annotation as it is written in the code."""

    def __repr__(self) -> str:
        return str(self)


def _text(thing: object) -> str:
    return " ".join(inspect.cleandoc(thing.__doc__ or "").split())


def _signature(path: str, function: Any, first: int = 1) -> str:
    shown = inspect.signature(inspect.unwrap(function))
    kept = [
        one.replace(annotation=Plain(one.annotation))
        for one in shown.parameters.values()
        if one.name != "unknown"
    ]
    return f"{path}{shown.replace(parameters=kept[first:], return_annotation=Plain(shown.return_annotation))}"


def _members(path: str, kind: type) -> list[str]:
    """The public methods and properties of a class, and of its namespaces."""
    text = []
    inherited = [base for base in kind.__mro__ if base.__module__.startswith("commonplace")]
    for name in dict.fromkeys(name for base in reversed(inherited) for name in vars(base)):
        member = inspect.getattr_static(kind, name)
        is_property = isinstance(member, property | cached_property)
        if name.startswith("_") or (not callable(member) and not is_property):
            continue
        if is_property:
            text.append(f"- `{path}{name}`: {_text(member) or name}")
        elif isinstance(member, staticmethod | classmethod | type):
            continue
        else:
            text.append(f"- `{_signature(path + name, member)}`: {_text(inspect.unwrap(member)) or name}")
    return text


def _namespaces(path: str, kind: type) -> list[str]:
    """Each namespace of a class under a heading of its own, and those within it."""
    text = []
    for base in reversed(kind.__mro__):
        for name, member in vars(base).items():
            if isinstance(member, namespace):
                below = f"{path}.{name}"
                text += [f"## {below}", _text(member.kind), "\n".join(_members(f"{below}.", member.kind))]
                text += _namespaces(below, member.kind)
    return text


def document() -> str:
    """docs/reference.md, from what the code says about itself."""
    text = [
        "# Reference",
        f"<!-- Written from the code: {REGENERATE} -->",
        "Every public name. The verbs of a book are those of an actor (`book.as_actor(name)`) and of a turn "
        "(`run.agent(name)`), too, each under its own rights; `book.aio` has them for asyncio. What a parameter means "
        "is the same wherever its name occurs.",
        "## commonplace.open",
        f"```\n{_signature('commonplace.open', commonplace.open, 0)}\n```",
        _text(commonplace.open),
        "## Book",
        _text(Book),
        "\n".join(_members("book.", Book)),
    ]
    text += _namespaces("book", Book)
    for name in commonplace.__all__:
        kind = getattr(commonplace, name)
        if not isinstance(kind, type) or kind is Book or issubclass(kind, CommonplaceError):
            continue
        fields = getattr(kind, "__struct_fields__", ())
        text += [f"## {name}", _text(kind)]
        if fields:
            text.append("Fields: " + ", ".join(f"`{field}`" for field in fields) + ".")
        members = _members("", kind)
        text += ["\n".join(members)] if members else []
    errors = [getattr(commonplace, name) for name in commonplace.__all__]
    errors = [one for one in errors if isinstance(one, type) and issubclass(one, CommonplaceError)]
    text += ["## Errors", "\n".join(f"- `{one.__name__}` ({one.status}): {_text(one)}" for one in errors)]
    return "\n\n".join(filter(None, text)) + "\n"


@pytest.mark.spec("7.1")
def test_the_docs_name_every_public_name_as_it_is() -> None:
    if os.environ.get("UPDATE_DOCS"):
        DOCS.write_text(document(), encoding="utf-8")
    assert DOCS.exists(), f"docs/reference.md is missing: {REGENERATE}"
    assert DOCS.read_text(encoding="utf-8") == document(), f"docs/reference.md is stale: {REGENERATE}"
