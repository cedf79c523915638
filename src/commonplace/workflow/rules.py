"""The rules that a workflow keeps, each a function from the model to the problems that break it.

What a file may hold is in its schema; here are the rules between its parts. `RULES` lists those of a workflow.
"""

from __future__ import annotations

import fnmatch
import warnings
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from msgspec.structs import replace

from ..access.rights import RESERVED_ACTORS
from ..errors import shown
from ..ledger.checks import is_name
from ..state.contract import bad_pattern_in
from ..state.policy import RESERVED_KEYS, Strictness
from .expressions import check_expression
from .files import mapping
from .model import AGENT_FILE, WORKFLOW_FILE, Agent, Node, Problem, Workflow

NAMESPACES = {"web", "http", "file", "shell", "terminal", "agent", "memory", "arithmetic"}
NAMESPACES |= {"numpy", "matplot", "pandas", "doc", "sklearn"}
BRINGING = ("custom_tools", "custom", "define", "defined", "definitions")
"""Sections in which a file brings tools along."""
MEMORY_TOOLS = ("memory.read", "memory.write", "memory.search", "memory.curate")
FLAGS = ("x-awp-shareable", "x-awp-sensitive", "x-awp-required")
NEVER_RETRIED = {"validation_error", "auth_error"}

Problems = Iterator[Problem]


def check(workflow: Workflow, files: Mapping[str, str], to_run: bool) -> list[Problem]:
    """The problems between the parts of a workflow; with `to_run`, those that keep it from running. `files` has the
    agents' files by id."""
    problems = [problem for rule in RULES for problem in rule(workflow)]
    for agent in workflow.agents.values():
        file = files.get(agent.id) or f"{agent.place}/{AGENT_FILE}"
        own = (*_contract(agent, workflow.policy.validation, to_run), *_namespaces(agent.document))
        problems += [replace(problem, file=file) for problem in own]
    return problems


def ancestors(nodes: tuple[Node, ...]) -> dict[str, tuple[str, ...]]:
    """For each node all that it depends on, directly or not, in the order of the graph; {} with a cycle."""
    waits_for = {node.id: [dependency.id for dependency in node.depends_on] for node in nodes}
    above: dict[str, set[str]] = {}
    try:
        for id in TopologicalSorter(waits_for).static_order():
            direct = [other for other in waits_for.get(id, ()) if other in waits_for]
            above[id] = set(direct).union(*(above[other] for other in direct))
    except CycleError:
        return {}
    return {id: tuple(other for other in waits_for if other in above[id]) for id in waits_for}


def parts(schema: object) -> Iterator[dict[str, Any]]:
    """Every mapping in a schema, itself first."""
    if isinstance(schema, dict):
        yield schema
    for inner in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from parts(inner)


def _error(rule: str, path: str, message: str) -> Problem:
    return Problem("error", WORKFLOW_FILE, path, rule, message)


def _warning(rule: str, path: str, message: str, strict: bool = False) -> Problem:
    """A warning, but an error where validation is strict."""
    return Problem("error" if strict else "warning", WORKFLOW_FILE, path, rule, message)


def _fields(agent: Agent | None) -> dict[str, Any]:
    """The fields that an agent's contract declares."""
    return mapping(mapping(agent.contract if agent else None).get("properties"))


def _nodes(workflow: Workflow) -> Iterator[tuple[str, Node]]:
    return ((f"orchestration.graph[{index}]", node) for index, node in enumerate(workflow.nodes))


def _reserved_names(workflow: Workflow) -> Problems:
    for path, node in _nodes(workflow):
        if node.id in (*RESERVED_ACTORS, "person"):
            yield _error("R12", f"{path}.id", f"{node.id!r} is the book's own name; write another one")
        elif node.id and not is_name(node.id):
            message = (
                f"{shown(node.id)} is not a name; write it without what cannot be seen, in Unicode's NFC"
            )
            yield _error("R12", f"{path}.id", message)


def _unique_ids(workflow: Workflow) -> Problems:
    ids: set[str] = set()
    for path, node in _nodes(workflow):
        if node.id and node.id in ids:
            yield _error("R5", f"{path}.id", f"{node.id!r} is another node's id too; write one of its own")
        ids.add(node.id)


def _acyclic(workflow: Workflow) -> Problems:
    try:
        TopologicalSorter({node.id: [d.id for d in node.depends_on] for node in workflow.nodes}).prepare()
    except CycleError as error:
        cycle: list[str] = error.args[1]
        path = next(path for path, node in _nodes(workflow) if node.id in cycle)
        message = f"the cycle {' → '.join(cycle)} can never start; take one dependency out"
        yield _error("R6", f"{path}.depends_on", message)


def _references(workflow: Workflow) -> Problems:
    """Whatever names a node names one that is there."""
    named = [
        ("R7", f"{path}.depends_on[{at}]", dependency.id)
        for path, node in _nodes(workflow)
        for at, dependency in enumerate(node.depends_on)
    ]
    named += [
        ("R7", f"orchestration.degradation[{at}].node", way.node)
        for at, way in enumerate(workflow.degradation)
    ]
    for index, rule in enumerate(workflow.policy.rules):
        sides = [("from", rule.source), *((f"to[{at}]", id) for at, id in enumerate(rule.to))]
        named += [("R16", f"state.sharing.rules[{index}].{side}", id) for side, id in sides]
    named += [
        ("R16", f"{path}.share_input", id) for path, node in _nodes(workflow) for id in node.share_input
    ]
    ids = {"", *(node.id for node in workflow.nodes)}
    for number, path, id in named:
        if id not in ids:
            yield _error(number, path, f"there is no node {shown(id)}; write the id of one in the graph")


def _retries(workflow: Workflow) -> Problems:
    places = [("orchestration.execution", workflow.execution.retry)]
    places += [(path, node.retry) for path, node in _nodes(workflow) if node.retry]
    for path, retry in places:
        for word in NEVER_RETRIED.intersection(retry.retryable):
            message = f"{word} is never retried, for it would fail again; leave it out"
            yield _error("", f"{path}.retry.retryable", message)


def _start(workflow: Workflow) -> Problems:
    """What a run's state begins with is not the runtime's, and what it must have is set by someone."""
    start, strict = workflow.start, workflow.policy.validation == "strict"
    set_here = {**start.initial, **start.auto_inject}
    answered = {name for agent in workflow.agents.values() for name in _fields(agent)}
    named = [(f"state.initial.{name}", name) for name in start.initial]
    named += [(f"state.auto_inject.{name}", name) for name in start.auto_inject]
    required = [(f"state.required_fields[{index}]", name) for index, name in enumerate(start.required_fields)]
    for path, name in named + required:
        if name in RESERVED_KEYS:
            yield _error("R13", path, f"{name} is the runtime's own key; give the field another name")
        elif name in answered and name not in set_here:
            message = "is an agent's answer, not there at the start; take it out, or give it in initial"
            yield _warning("R17", path, f"{name} {message}", strict)
        elif name not in set_here:
            yield _warning("", path, f"nothing here sets {shown(name)}; each caller must give it")


def _sharing(workflow: Workflow) -> Problems:
    policy, start = workflow.policy, workflow.start
    for index, rule in enumerate(policy.rules):
        yield from _shared(workflow, rule.source, rule.fields, f"state.sharing.rules[{index}].fields")
    if policy.rules and policy.strategy != "selective":
        message = f"rules do nothing under {policy.strategy}; write strategy: selective, or take them out"
        yield _warning("R16", "state.sharing.rules", message)
    at_start = {*start.initial, *start.auto_inject, *start.required_fields}
    for path, node in _nodes(workflow):
        yield from _shared(workflow, node.id, node.share_output or (), f"{path}.share_output")
        for producer, fields in node.share_input.items():
            if producer:
                names = tuple(name for name in fields if name != "*")
                yield from _shared(workflow, producer, names, f"{path}.share_input.{producer}")
            elif missing := [name for name in fields if name not in at_start]:
                message = f"nothing here sets {shown(missing[0])}; each caller must give it"
                yield _warning("R16", f"{path}.share_input", message)


def _shared(workflow: Workflow, id: str, fields: tuple[str, ...], path: str) -> Problems:
    """Whether one agent's fields can be shared: declared, and not withheld."""
    agent = next((workflow.agents.get(node.agent) for node in workflow.nodes if node.id == id), None)
    withheld = {*workflow.policy.never_share, *workflow.policy.agent(id).not_shareable}
    for index, name in enumerate(fields):
        if agent is not None and agent.contract is not None and name not in _fields(agent):
            message = f"{id} declares no field {shown(name)}; declare it in the contract, or take it out"
            yield _error("R17", f"{path}[{index}]", message)
        elif name in withheld:
            yield _warning("R16", f"{path}[{index}]", f"{name} is never shared; take it out")


def _access(workflow: Workflow) -> Problems:
    granted, path = workflow.memory.access_control, "memory.access_control"
    default = "it keeps the default, read_write and read for episodic"
    tiers = [name for name, tier in workflow.memory.tiers.items() if tier.enabled]
    for id in workflow.agents if granted else ():
        if id not in granted:
            yield _warning("", path, f"{id} is not listed: {default}; list it to be sure")
        elif missing := [tier for tier in tiers if tier not in granted[id]]:
            message = f"{', '.join(missing)} not listed: {default}; list each tier to be sure"
            yield _warning("", f"{path}.{id}", message)
    named = {*workflow.agents, *(node.agent for node in workflow.nodes)}
    for id, permissions in granted.items():
        if id not in named:
            message = f"there is no agent {shown(id)} in the graph; write the id of one"
            yield _warning("", f"{path}.{id}", message)
        if permissions.get("episodic") == "read_write":
            yield _warning("", f"{path}.{id}.episodic", "agents only read the episodic tier; write read")


def _graph(workflow: Workflow) -> Problems:
    if not workflow.nodes and workflow.delegation is None:
        message = "there is no graph, so running this does nothing; write nodes as {id: …, agent: …}"
        yield _warning("", "orchestration.graph", message)


def _tools_of_workflow(workflow: Workflow) -> Problems:
    return _namespaces(workflow.document)


def _audit(workflow: Workflow) -> Problems:
    for section in ("security", "observability"):
        for word, value in mapping(mapping(workflow.document.get(section)).get("audit")).items():
            path = f"{section}.audit.{word}"
            if word in ("hash_chain", "chain", "tamper_evident") and value is False:
                yield _warning("R18", path, "the audit chain is always kept; take this out")
            elif word in ("algorithm", "hash") and value not in (None, "sha256", "sha-256"):
                yield _error("R18", path, "the audit chain is made with sha256; write that, or leave it out")


def _conditions(workflow: Workflow) -> Problems:
    for path, node in _nodes(workflow):
        texts = {f"depends_on[{at}]": dependency.condition for at, dependency in enumerate(node.depends_on)}
        texts |= {"enabled": node.enabled} if isinstance(node.enabled, str) else {}
        texts |= {"loop.condition": node.loop.condition} if node.loop and node.loop.condition else {}
        for place, text in texts.items():
            if text not in ("success", "failure", "always") and (reason := check_expression(text)):
                yield _error("", f"{path}.{place}", reason)


def _contract(agent: Agent, validation: Strictness, to_run: bool) -> Problems:
    path, strict = "output.contract", validation == "strict"
    if agent.contract is None:
        yield _error("R9", path, "write what the agent answers, as {field: {type: …}}")
        return
    if reason := _bad_schema(agent.contract):
        yield _error("R9", path, reason)
    for name in RESERVED_KEYS:
        if name in _fields(agent):
            message = f"{name} is the runtime's own key; give the field another name"
            yield _error("R13", f"{path}.properties.{name}", message)
    want, place = "{type: number, minimum: 0, maximum: 1}", f"{path}.properties.confidence"
    if "confidence" not in _fields(agent):
        if validation != "none":
            message = f"declare confidence: {want}" + ("" if strict else "; until then 0.5 is filled in")
            yield _warning("R17", path, message, strict or not to_run)
        return
    declared = mapping(_fields(agent)["confidence"])
    bounds = [declared[word] for word in ("minimum", "maximum") if declared.get(word) is not None]
    if declared.get("type") != "number" or not all(
        isinstance(bound, int | float) and 0 <= bound <= 1 for bound in bounds
    ):
        yield _error("R17", place, f"confidence is a number from 0 to 1; write {want}")
    elif len(bounds) < 2:
        yield _warning("R17", place, f"say the bounds of confidence too; write {want}", strict)


def _bad_schema(schema: dict[str, Any]) -> str | None:
    """Why this is no schema of an answer, or None."""
    if schema.get("type") != "object":
        return "an answer is an object; write type: object and the fields under properties"
    for word, value in (pair for part in parts(schema) for pair in part.items()):
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
    return bad_pattern_in(schema)


def _namespaces(document: dict[str, Any]) -> Problems:
    """Tools that a file brings along have namespaces of their own. Those that it only uses may of course be the
    runtime's; of memory's, which are ours, the names are known."""
    capabilities = mapping(document.get("capabilities"))
    for prefix, section in (("", document), ("capabilities.", capabilities)):
        tools, at = mapping(section.get("tools")), f"{prefix}tools"
        brought = [*_tools(section.get("custom_tools"), f"{prefix}custom_tools")]
        brought += [tool for word in BRINGING for tool in _tools(tools.get(word), f"{at}.{word}")]
        listed = enumerate(_listed(tools.get("allowed")))
        allowed = [(f"{at}.allowed[{index}]", tool) for index, tool in listed]
        brought += [(place, str(tool.get("name"))) for place, tool in allowed if isinstance(tool, dict)]
        for place, name in brought:
            if name.partition(".")[0] in NAMESPACES:
                message = f"{shown(name)} is in a namespace of the runtime; write a name of your own"
                yield _error("R10", place, message)
        for place, name in allowed:
            if (
                isinstance(name, str)
                and name.startswith("memory.")
                and not fnmatch.filter(MEMORY_TOOLS, name)
            ):
                message = f"the runtime's tools of memory are {', '.join(MEMORY_TOOLS)}; {shown(name)} is none of them"
                yield _error("R10", place, message)


def _tools(brought: object, path: str) -> Iterator[tuple[str, str]]:
    """The names of tools in a section that brings some, and where each stands: a list of names or of mappings, a
    mapping by names, or one of these under `declarations` or `tools`."""
    inner = [word for word in ("declarations", "tools") if word in mapping(brought)]
    if isinstance(brought, dict) and inner:
        for word in inner:
            yield from _tools(brought[word], f"{path}.{word}")
    elif isinstance(brought, dict):
        yield from ((f"{path}.{name}", name) for name in brought if "." in name)
    for index, tool in enumerate(_listed(brought)):
        name = tool.get("name") if isinstance(tool, dict) else tool
        if isinstance(name, str):
            yield f"{path}[{index}]", name
        elif isinstance(tool, dict):
            yield from _tools(tool, f"{path}[{index}]")


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


RULES = (
    _reserved_names,
    _unique_ids,
    _acyclic,
    _references,
    _retries,
    _start,
    _sharing,
    _access,
    _graph,
    _tools_of_workflow,
    _audit,
    _conditions,
)
