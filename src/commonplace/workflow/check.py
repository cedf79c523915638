"""The rules that a workflow keeps, each a function from the model to what breaks it.

Rules that concern how a file is written are kept where it is read; here is what holds between the parts.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Any, Literal

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from ..errors import shown
from ..state.policy import RESERVED
from .model import AGENT_FILE, WORKFLOW_FILE, Agent, Node, Problem, Workflow

CheckExpression = Callable[[str], str | None]
Level = Literal["error", "warning"]

NAMESPACES = {"web", "http", "file", "shell", "terminal", "agent", "memory", "arithmetic"}
NAMESPACES |= {"numpy", "matplot", "pandas", "doc", "sklearn"}
WORDS = ("success", "failure", "always")
FLAGS = ("x-awp-shareable", "x-awp-sensitive", "x-awp-required")
NEVER_RETRIED = ("validation_error", "auth_error")


def check(workflow: Workflow, check_expression: CheckExpression | None = None) -> list[Problem]:
    """What is wrong between the parts of a workflow. With `check_expression`, conditions are checked too."""
    problems = [problem for rule in RULES for problem in rule(workflow)]
    if check_expression is not None:
        for path, expression in _expressions(workflow):
            if (reason := check_expression(expression)) is not None:
                problems.append(_of("", path, reason))
    return problems


def ancestors(nodes: tuple[Node, ...]) -> dict[str, tuple[str, ...]]:
    """For each node all that it depends on, directly or not, in the order of the graph; {} with a cycle."""
    waits = {node.id: [one.id for one in node.depends_on] for node in nodes}
    above: dict[str, set[str]] = {}
    try:
        for id in TopologicalSorter(waits).static_order():
            direct = [one for one in waits.get(id, ()) if one in waits]
            above[id] = set(direct).union(*(above[one] for one in direct))
    except CycleError:
        return {}
    return {id: tuple(one for one in waits if one in above[id]) for id in waits}


def bad_pattern(pattern: object) -> str | None:
    """Why this is not a regular expression, or None."""
    if not isinstance(pattern, str):
        return "it is not text"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return str(error)
    return None


def _of(rule: str, path: str, message: str, level: Level = "error", file: str = WORKFLOW_FILE) -> Problem:
    return Problem(level, file, path, rule, message)


def mapping(value: object) -> dict[str, Any]:
    """The value if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def _file(agent: Agent) -> str:
    return f"{agent.place}/{AGENT_FILE}"


def _at(index: int, rest: str = "") -> str:
    return f"orchestration.graph[{index}]{rest}"


def _fields(agent: Agent | None) -> dict[str, Any]:
    """The fields that an agent's contract declares."""
    return mapping(mapping(agent.contract if agent else None).get("properties"))


def _unique_ids(workflow: Workflow) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, node in enumerate(workflow.nodes):
        if node.id and node.id in seen:
            yield _of("R5", _at(index, ".id"), f"{node.id!r} is another node's id too; write one of its own")
        seen.add(node.id)


def _acyclic(workflow: Workflow) -> Iterator[Problem]:
    try:
        TopologicalSorter({node.id: [d.id for d in node.depends_on] for node in workflow.nodes}).prepare()
    except CycleError as error:
        cycle: list[str] = error.args[1]
        index = next(i for i, node in enumerate(workflow.nodes) if node.id in cycle)
        path = _at(index, ".depends_on")
        yield _of("R6", path, f"the cycle {' → '.join(cycle)} can never start; take one dependency out")


def _dependencies(workflow: Workflow) -> Iterator[Problem]:
    ids = {node.id for node in workflow.nodes}
    for index, node in enumerate(workflow.nodes):
        for at, one in enumerate(node.depends_on):
            if one.id and one.id not in ids:
                path = _at(index, f".depends_on[{at}]")
                yield _of("R7", path, f"there is no node {shown(one.id)}; write the id of one in the graph")
    for at, degraded in enumerate(workflow.degradation):
        if degraded.node and degraded.node not in ids:
            path = f"orchestration.degradation[{at}].node"
            yield _of(
                "R7", path, f"there is no node {shown(degraded.node)}; write the id of one in the graph"
            )


def _retries(workflow: Workflow) -> Iterator[Problem]:
    places = [("orchestration.execution.retry.retryable", workflow.execution.retry)]
    places += [
        (_at(i, ".retry.retryable"), node.retry) for i, node in enumerate(workflow.nodes) if node.retry
    ]
    for path, retry in places:
        for word in set(retry.retryable).intersection(NEVER_RETRIED):
            yield _of("", path, f"{word} is never retried, for it would fail again; leave it out")


def _contracts(workflow: Workflow) -> Iterator[Problem]:
    for agent in workflow.agents.values():
        file, path = _file(agent), "output.contract"
        if agent.contract is None:
            yield _of("R9", path, "write what the agent answers, as {field: {type: …}}", file=file)
            continue
        if reason := _bad_schema(agent.contract):
            yield _of("R9", path, reason, file=file)
        for name in _fields(agent):
            if name in RESERVED:
                message = f"{name} is the runtime's own key; give the field another name"
                yield _of("R13", f"{path}.properties.{name}", message, file=file)
        level: Level = "error" if workflow.policy.validation == "strict" else "warning"
        if "confidence" not in _fields(agent):
            message = (
                "declare confidence: {type: number, minimum: 0, maximum: 1}; until then 0.5 is filled in"
            )
            yield _of("R17", path, message, level, file)
        else:
            yield from _confidence(_fields(agent)["confidence"], level, file)


def _confidence(declared: object, level: Level, file: str) -> Iterator[Problem]:
    path, want = "output.contract.properties.confidence", "{type: number, minimum: 0, maximum: 1}"
    field = mapping(declared)
    low, high = field.get("minimum"), field.get("maximum")
    numbers = all(isinstance(one, int | float) and 0 <= one <= 1 for one in (low, high) if one is not None)
    if field.get("type") != "number" or not numbers:
        yield _of("R17", path, f"confidence is a number from 0 to 1; write {want}", file=file)
    elif low is None or high is None:
        yield _of("R17", path, f"say the bounds of confidence too; write {want}", level, file)


def _bad_schema(schema: dict[str, Any]) -> str | None:
    """Why this is no schema of an answer, or None."""
    if schema.get("type") != "object":
        return "an answer is an object; write type: object and the fields under properties"
    for part in parts(schema):
        for word, value in part.items():
            if word in ("$ref", "$dynamicRef") and isinstance(value, str) and not value.startswith("#"):
                return f"the reference {shown(value)} is not followed; write what it stands for"
            if word in FLAGS and not isinstance(value, bool):
                return f"write {word}: true or {word}: false"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        return f"not a JSON Schema at {error.json_path}: {error.message[:200]}"
    except RecursionError:
        return "nested too deep to be checked; write it flatter"
    return None


def parts(schema: object) -> Iterator[dict[str, Any]]:
    """Every mapping in a schema, itself first."""
    if isinstance(schema, dict):
        yield schema
    for inner in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from parts(inner)


def _namespaces(workflow: Workflow) -> Iterator[Problem]:
    """Tools that an agent brings along; those it only uses may of course be the runtime's."""
    for agent in workflow.agents.values():
        for section in ("define", "defined", "definitions", "custom"):
            brought = mapping(agent.kept.get("tools")).get(section)
            for index, tool in enumerate(brought if isinstance(brought, list | dict) else ()):
                name = tool.get("name") if isinstance(tool, dict) else tool
                if isinstance(name, str) and name.partition(".")[0] in NAMESPACES:
                    place = f"[{index}]" if isinstance(brought, list) else f".{name}"
                    message = f"{shown(name)} is in a namespace of the runtime; write a name of your own"
                    yield _of("R10", f"tools.{section}{place}", message, file=_file(agent))


def _reserved(workflow: Workflow) -> Iterator[Problem]:
    start = workflow.start
    named = [(f"state.initial.{name}", name) for name in start.initial]
    named += [(f"state.auto_inject.{name}", name) for name in start.auto_inject]
    named += [(f"state.required_fields[{index}]", name) for index, name in enumerate(start.required_fields)]
    for path, name in named:
        if name in RESERVED:
            yield _of("R13", path, f"{name} is the runtime's own key; give the field another name")


def _required_fields(workflow: Workflow) -> Iterator[Problem]:
    start, strict = workflow.start, workflow.policy.validation == "strict"
    answered = {name for agent in workflow.agents.values() for name in _fields(agent)}
    for index, name in enumerate(start.required_fields):
        path = f"state.required_fields[{index}]"
        if name in start.initial or name in start.auto_inject or name in RESERVED:
            continue
        if name in answered:
            message = (
                f"{name} is an agent's answer, not there at the start; take it out, or give it in initial"
            )
            yield _of("R17", path, message, "error" if strict else "warning")
        else:
            yield _of("", path, f"nothing here sets {shown(name)}; each caller must give it", "warning")


def _sharing(workflow: Workflow) -> Iterator[Problem]:
    ids, policy = {node.id for node in workflow.nodes}, workflow.policy
    for index, rule in enumerate(policy.rules):
        path = f"state.sharing.rules[{index}]"
        for side, id in (("from", rule.source), *((f"to[{at}]", id) for at, id in enumerate(rule.to))):
            if id and id not in ids:
                yield _of("R16", f"{path}.{side}", f"there is no agent {shown(id)}; write the id of a node")
        yield from _shared(workflow, rule.source, rule.fields, f"{path}.fields")
    if policy.rules and policy.strategy != "selective":
        message = f"rules do nothing under {policy.strategy}; write strategy: selective, or take them out"
        yield _of("R16", "state.sharing.rules", message, "warning")
    known = {*workflow.start.initial, *workflow.start.auto_inject, *workflow.start.required_fields}
    for index, node in enumerate(workflow.nodes):
        yield from _shared(workflow, node.id, node.share_output or (), _at(index, ".share_output"))
        for producer, fields in node.share_input.items():
            path = _at(index, ".share_input")
            if producer:
                if producer not in ids:
                    yield _of("R16", path, f"there is no agent {shown(producer)}; write the id of a node")
                wanted = tuple(name for name in fields if name != "*")
                yield from _shared(workflow, producer, wanted, f"{path}.{producer}")
            elif missing := [name for name in fields if name not in known]:
                message = f"nothing here sets {shown(missing[0])}; each caller must give it"
                yield _of("R16", path, message, "warning")


def _shared(workflow: Workflow, id: str, fields: tuple[str, ...], path: str) -> Iterator[Problem]:
    """Whether one agent's fields can be shared: declared, and not withheld."""
    declared = _declared_by(workflow, id)
    withheld = {*workflow.policy.never_share, *workflow.policy.agent(id).not_shareable}
    for index, name in enumerate(fields):
        if declared is not None and name not in declared:
            message = f"{id} declares no field {shown(name)}; declare it in the contract, or take it out"
            yield _of("R17", f"{path}[{index}]", message)
        elif name in withheld:
            yield _of("R16", f"{path}[{index}]", f"{name} is never shared; take it out", "warning")


def _declared_by(workflow: Workflow, id: str) -> dict[str, Any] | None:
    agent = next((workflow.agents.get(node.agent) for node in workflow.nodes if node.id == id), None)
    return _fields(agent) if agent is not None and agent.contract is not None else None


def _access(workflow: Workflow) -> Iterator[Problem]:
    granted, default = (
        workflow.memory.access_control,
        "it keeps the default, read_write and read for episodic",
    )
    tiers = [name for name, tier in workflow.memory.tiers.items() if tier.enabled]
    path = "memory.access_control"
    for id in workflow.agents if granted else ():
        if id not in granted:
            yield _of("", path, f"{id} is not listed: {default}; list it to be sure", "warning")
        elif missing := [tier for tier in tiers if tier not in granted[id]]:
            message = f"{', '.join(missing)} not listed: {default}; list each tier to be sure"
            yield _of("", f"{path}.{id}", message, "warning")
    for id, permissions in granted.items():
        if id not in workflow.agents:
            message = f"there is no agent {shown(id)} in the graph; write the id of one"
            yield _of("", f"{path}.{id}", message, "warning")
        if permissions.get("episodic") == "read_write":
            message = "agents only read the episodic tier; write read"
            yield _of("", f"{path}.{id}.episodic", message, "warning")


def _audit(workflow: Workflow) -> Iterator[Problem]:
    for section in ("security", "observability"):
        for word, value in mapping(mapping(workflow.kept.get(section)).get("audit")).items():
            path = f"{section}.audit.{word}"
            if word in ("hash_chain", "chain", "tamper_evident") and value is False:
                yield _of("R18", path, "the audit chain is always kept; take this out", "warning")
            elif word in ("algorithm", "hash") and value not in (None, "sha256", "sha-256"):
                yield _of("R18", path, "the audit chain is made with sha256; write that, or leave it out")


def _expressions(workflow: Workflow) -> Iterator[tuple[str, str]]:
    for index, node in enumerate(workflow.nodes):
        for at, one in enumerate(node.depends_on):
            if one.condition not in WORDS:
                yield _at(index, f".depends_on[{at}]"), one.condition
        if isinstance(node.enabled, str):
            yield _at(index, ".enabled"), node.enabled
        if node.loop is not None and node.loop.condition:
            yield _at(index, ".loop.condition"), node.loop.condition


RULES: tuple[Callable[[Workflow], Iterator[Problem]], ...] = (
    _unique_ids,
    _acyclic,
    _dependencies,
    _retries,
    _contracts,
    _namespaces,
    _reserved,
    _required_fields,
    _sharing,
    _access,
    _audit,
)
