"""A workflow's files, in any dialect they are written in, as the one model that everything else sees.

Reading goes on after a mistake, so that all of them are told at once. What no part of the model has a place
for is kept as it was written.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any, cast, get_args

from msgspec.structs import replace

from ..errors import BadInput, shown
from ..state.policy import AgentPolicy, Limits, Model, Persistence, Policy, Rule, Start, Strategy, Strictness
from .check import CheckExpression, ancestors, bad_pattern, check, mapping, parts
from .model import (
    AGENT_FILE,
    TIERS,
    WORKFLOW_FILE,
    Agent,
    AgentMemory,
    BadWorkflow,
    Degradation,
    Dependency,
    Execution,
    FanIn,
    FanOut,
    Loop,
    Memory,
    Node,
    OnFailure,
    Permission,
    Problem,
    Retry,
    Tier,
    Workflow,
)
from .yaml import Notes, Reader, kind_of, read_yaml

MAX_NODES = 1_000
MAX_NESTED = 8

_NUMERIC, _LABEL = r"(0|[1-9]\d*)", r"[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*"
_VERSION = re.compile(rf"{_NUMERIC}\.{_NUMERIC}\.{_NUMERIC}(-{_LABEL})?(\+{_LABEL})?", re.ASCII)
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}[a-z0-9]")
_ID = re.compile(r"[a-z][a-z0-9_]{0,46}[a-z0-9]")
_A_VERSION = 'a full version in quotes, such as "1.0.0"'
_A_NAME = "a name of 2 to 64 characters: a-z, 0-9, _ and -, a letter first, no _ or - last"
_AN_ID = "an id of 2 to 48 characters: a-z, 0-9 and _, a letter first, no _ last"

_TYPES = {"str": "string", "text": "string", "int": "integer", "float": "number", "bool": "boolean"}
_TYPES |= {"list": "array", "dict": "object", "map": "object"}
_SCHEMA_WORDS = {"$schema", "$ref", "$defs", "allOf", "anyOf", "oneOf"}


def load(folder: str | os.PathLike[str], check_expression: CheckExpression | None = None) -> Workflow:
    """The workflow in this folder. BadWorkflow lists all errors; warnings are for `examine` to tell."""
    workflow, problems = examine(folder, check_expression)
    if workflow is None:
        raise BadWorkflow(os.fspath(folder), tuple(one for one in problems if one.level == "error"))
    return workflow


def examine(
    folder: str | os.PathLike[str], check_expression: CheckExpression | None = None
) -> tuple[Workflow | None, list[Problem]]:
    """The workflow, or None when there is an error, and all problems in the order of the files.

    Whatever the files hold, it is told as problems. `check_expression` says what is wrong with a condition,
    or None.
    """
    return _examine(Path(folder), check_expression, 0, {})


def _examine(
    folder: Path, check_expression: CheckExpression | None, level: int, done: dict[str, Workflow | None]
) -> tuple[Workflow | None, list[Problem]]:
    """`done` has the subworkflows that were examined, so that many ways to a folder cost no more than one."""
    notes = Notes(folder)
    document = _document(notes, WORKFLOW_FILE)
    if level > MAX_NESTED:
        deep = f"more than {MAX_NESTED} subworkflows deep; write it flatter"
        notes.add("error", WORKFLOW_FILE, "", "", deep)
    if document is None or notes.problems:
        return None, notes.problems
    workflow = _workflow(Reader(notes, WORKFLOW_FILE, "", document), _Agents(notes))
    notes.problems += check(workflow, check_expression)
    problems, inner = _in_file_order(notes), {}
    for path in dict.fromkeys(node.subworkflow for node in workflow.nodes if node.subworkflow):
        real = os.path.realpath(folder / path)
        if real not in done:
            done[real], found = _examine(folder / path, check_expression, level + 1, done)
            problems += [replace(one, file=f"{path}/{one.file}") for one in found]
        inner[path] = done[real]
    if None in inner.values() or any(one.level == "error" for one in problems):
        return None, problems
    return replace(workflow, subworkflows=inner, folder=os.fspath(folder)), problems


def _document(notes: Notes, file: str) -> object:
    """What a file holds; None, and a problem noted, when that cannot be said."""
    reason = notes.escape(file)
    notes.documents[file] = None
    if reason is None:
        try:
            notes.documents[file] = read_yaml(notes.root / file)
            reason = "the file is empty; write the document" if notes.documents[file] is None else None
        except BadInput as error:
            reason = str(error)
    if reason is not None:
        notes.add("error", file, "", "", reason)
    return notes.documents[file]


def _is_file(path: Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113 (Path.is_file raises for some names)


def _in_file_order(notes: Notes) -> list[Problem]:
    """Problems sorted by file and by where in it their path stands, or else the nearest path above."""
    places = {
        (file, path): (index, line)
        for index, (file, document) in enumerate(notes.documents.items() if notes.problems else ())
        for line, path in enumerate(_paths(document, ""))
    }

    def place(problem: Problem) -> tuple[int, int]:
        path = problem.path
        while path and (problem.file, path) not in places:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return places.get((problem.file, path), (len(notes.documents), 0))

    return sorted(dict.fromkeys(notes.problems), key=place)


def _paths(value: object, path: str) -> Iterable[str]:
    yield path
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _paths(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _paths(inner, f"{path}[{index}]")


def _workflow(root: Reader, agents: _Agents) -> Workflow:
    about, orchestration, state = (root.mapping(name) for name in ("workflow", "orchestration", "state"))
    engine = orchestration.peek("engine")
    if engine not in (None, "dag", "delegation_loop"):
        orchestration.error("engine", f"{kind_of(engine)} is not known here; write dag or delegation_loop")
    delegating = engine == "delegation_loop" or any(
        place.peek("delegation_loop") for place in (root, orchestration, root.look("settings"))
    )
    nodes = _nodes(orchestration, agents)
    if not nodes and not delegating:
        orchestration.error("graph", "write at least one node: {id: …, agent: …}")
    execution = _execution(orchestration.mapping("execution"), root.look("settings"))
    degradation = tuple(_degradation(one, agents) for one in orchestration.items("degradation"))
    max_depth, delegation = _delegation((root, orchestration, root.mapping("settings")))
    start = [state.value(name, dict, "a mapping", {}) for name in ("initial", "auto_inject")]
    workflow = Workflow(
        awp=root.matching("awp", _VERSION, "R1", _A_VERSION),
        name=about.matching("name", _NAME, "R2", _A_NAME),
        version=about.text("version", "1.0.0"),
        description=about.text("description"),
        nodes=nodes,
        execution=execution,
        degradation=degradation,
        policy=_policy(root, state, state.mapping("sharing"), nodes, agents.by_id),
        start=Start(start[0], start[1], state.texts("required_fields")),
        persistence=_persistence(state.mapping("persistence", short="enabled")),
        memory=_memory(root.mapping("memory", short="enabled")),
        agents=agents.by_id,
        max_depth=max_depth,
    )
    return replace(workflow, kept=root.rest() | ({"delegation_loop": delegation} if delegation else {}))


def _nodes(orchestration: Reader, agents: _Agents) -> tuple[Node, ...]:
    readers = orchestration.items("graph")
    if len(readers) > MAX_NODES:
        many = f"{len(readers):,} nodes; at most {MAX_NODES:,}: move some into a subworkflow"
        orchestration.error("graph", many)
    ids = frozenset(id for one in readers if isinstance(id := one.peek("id"), str))
    return tuple(_node(one, ids, agents) for one in readers[:MAX_NODES])


def _node(r: Reader, ids: frozenset[str], agents: _Agents) -> Node:
    id = r.matching("id", _ID, "R12", _AN_ID)
    sub = r.mapping("subworkflow", short="path")
    inner = sub.folder("path|folder", "")
    inner = PurePosixPath(inner).as_posix() if inner else ""
    if sub.given and not (inner and _is_file(r.notes.root / inner / WORKFLOW_FILE)):
        r.error("subworkflow", f"write a folder below this one that has a {WORKFLOW_FILE}", "R8")
    elif inner and os.path.realpath(r.notes.root / inner) == os.path.realpath(r.notes.root):
        r.error("subworkflow", "this is the workflow itself; write a folder below it", "R6")
    agent = r.text("agent", "" if sub.given else id)
    retry, loop, fan_out, fan_in = (r.mapping(name) for name in ("retry", "loop", "fan_out", "fan_in"))
    enabled = r.take("enabled")[1]
    if not isinstance(enabled, bool | str | None):
        r.error("enabled", f"write true, false or an expression here, not {kind_of(enabled)}")
    return Node(
        id=id,
        agent=agents.named(r, "agent", agent, id) if agent else "",
        depends_on=tuple(_dependency(one) for one in r.items("depends_on", short="id")),
        share_output=r.texts("share_output") if r.peek("share_output") is not None else None,
        share_input=_share_input(r, ids),
        enabled=True if enabled is None else enabled,
        on_failure=_failure(r, "on_failure", None),
        timeout=r.mapping("timeout", short="per_agent").number("per_agent", None, low=0.001),
        retry=_retry(retry, None) if retry.given else None,
        loop=loop.struct(Loop) if loop.given else None,
        fan_out=fan_out.struct(FanOut) if fan_out.given else None,
        fan_in=fan_in.struct(FanIn) if fan_in.given else None,
        subworkflow=inner,
        kept=r.rest(),
    )


def _dependency(r: Reader) -> Dependency:
    id, condition, when = r.text("id|agent"), r.text("condition|expr"), r.text("when")
    if not id:
        r.error("id", "write the id of the node to wait for", "R7")
    if when and condition not in ("", "success", "expression"):
        r.error("when", "condition says something else already; keep one of them")
    return Dependency(id, when or ("success" if condition in ("", "expression") else condition))


def _share_input(r: Reader, ids: frozenset[str]) -> dict[str, tuple[str, ...]]:
    """State fields under "", an agent's fields under its id, all of them as "*"."""
    if isinstance(r.peek("share_input"), dict):
        inner = r.mapping("share_input")
        return {producer: inner.texts(producer) for producer in inner.names()}
    found: dict[str, tuple[str, ...]] = {}
    for entry in r.texts("share_input"):
        producer, dot, name = entry.partition(".")
        if producer not in ids:
            producer, name = "", entry
        found[producer] = (*found.get(producer, ()), name if dot or not producer else "*")
    return found


def _failure(r: Reader, name: str, default: Any) -> Any:
    given = r.text(name, among=(*get_args(OnFailure), "abort"))
    return "stop" if given == "abort" else given or default


def _retry(r: Reader, max_retries: int | None) -> Retry:
    again = r.number("max_retries", max_retries, high=99, whole=True)
    names = {"retryable": "retryable|retryable_errors|retry_on", "base": "base|backoff_base"}
    return r.struct(Retry, names | {"max": "max|max_delay"}, max_attempts=1 if again is None else again + 1)


def _execution(r: Reader, settings: Reader) -> Execution:
    default = Execution()
    nested, handling = r.mapping("timeout"), r.mapping("error_handling")
    usual = _failure(handling, "default", default.on_error)
    final = _failure(handling, "on_final_failure", usual)
    seconds = {
        f"timeout_{name}": nested.number(name, getattr(default, f"timeout_{name}"), low=0.001)
        for name in ("per_agent", "total", "idle")
    }
    return r.struct(
        Execution,
        on_error=_failure(r, "on_error", final if usual == "retry" else usual),
        retry=_retry(r.mapping("retry"), handling.number("max_retries", None, high=99, whole=True)),
        max_concurrent=settings.number("max_concurrent", default.max_concurrent, low=1, whole=True),
        **seconds,
    )


def _degradation(r: Reader, agents: _Agents) -> Degradation:
    fallback = r.text("fallback|fallback_agent")
    implied = "fallback" if fallback else "cached_results" if r.peek("max_staleness") is not None else "skip"
    found = r.struct(Degradation, {"node": "node|id|agent", "action": "action|strategy"}, action=implied)
    if found.action == "fallback" and not fallback:
        r.error("fallback", "write the agent to run instead")
    return replace(found, fallback=agents.named(r, "fallback", fallback, "") if fallback else "")


def _delegation(places: tuple[Reader, ...]) -> tuple[int, dict[str, Any]]:
    """How deep managers may delegate, and what else the section says, wherever it stands."""
    depth, rest = Workflow("", "").max_depth, {}
    for section in [place.mapping("delegation_loop") for place in places]:
        if not section.given:
            continue
        if section.peek("max_depth") is None:
            section.error("max_depth", "write how deep managers may delegate, from 0 to 10", "R31")
        depth = section.number("max_depth", depth, high=10, whole=True, rule="R32")
        if depth > 5:
            section.warn("max_depth", f"{depth} levels deep is a lot; write 5 or less unless you must", "R32")
        section.look().flag("auto_curation_enabled", True)
        rest = section.rest()
    return depth, rest


def _policy(
    root: Reader, state: Reader, sharing: Reader, nodes: tuple[Node, ...], agents: dict[str, Agent]
) -> Policy:
    if sharing.given and sharing.peek("strategy") is None:
        sharing.error("strategy", f"write one of {', '.join(get_args(Strategy))}", "R16")
    above = ancestors(nodes)
    secret = (*sharing.texts("sensitive_fields"), *root.look("security").texts("sensitive_fields"))
    return Policy(
        model=cast(Any, state.text("model", "shared_dict", among=get_args(Model))),
        strategy=cast(Any, sharing.text("strategy", "full", among=get_args(Strategy), rule="R16")),
        rules=tuple(_rule(one) for one in sharing.items("rules")),
        never_share=sharing.texts("never_share"),
        sensitive_fields=tuple(dict.fromkeys(secret)),
        patterns=patterns_in(root),
        validation=cast(Any, sharing.text("validation", "warn", among=get_args(Strictness))),
        limits=state.mapping("limits").struct(Limits),
        agents={node.id: _agent_policy(node, agents.get(node.agent), above) for node in nodes} or None,
    )


def _rule(r: Reader) -> Rule:
    source, to, fields = r.text("from|from_agent"), r.texts("to|to_agents"), r.texts("fields")
    if not source or not fields:
        r.error("" if source else "from", "write from: agent, to: [agents] and fields: [names]", "R16")
    return Rule(source, tuple(id for id in to if id not in ("*", "all")), fields)


def _agent_policy(node: Node, agent: Agent | None, above: dict[str, tuple[str, ...]]) -> AgentPolicy:
    contract = agent.contract if agent else None
    return AgentPolicy(
        contract=contract,
        share_output=node.share_output or (),
        takes=node.share_input,
        depends_on=above.get(node.id, ()),
        not_shareable=_flagged(contract, "x-awp-shareable", False),
        sensitive=_flagged(contract, "x-awp-sensitive", True),
    )


def _flagged(schema: object, flag: str, value: bool) -> tuple[str, ...]:
    """The names of the properties, at any depth of a schema, that carry this flag."""
    named = (pair for part in parts(schema) for pair in mapping(part.get("properties")).items())
    return tuple(dict.fromkeys(name for name, one in named if mapping(one).get(flag) is value))


def patterns_in(root: Reader) -> tuple[str, ...]:
    """The regular expressions that are redacted, from all the places that may hold them."""
    places = (("security", "redaction", "patterns"), ("observability", "redaction", "patterns"))
    found: list[str] = []
    for *section, name in (*places, ("security", "redact_patterns")):
        r = root.look(*section)
        for index, item in enumerate(r.value(name, list, "a list of regular expressions", [], "R14")):
            pattern: Any = item.get("pattern", item.get("regex")) if isinstance(item, dict) else item
            reason = bad_pattern(pattern)
            if reason is None:
                found.append(pattern)
            else:
                r.error(f"{name}[{index}]", f"write a regular expression here: {reason}", "R14")
    return tuple(dict.fromkeys(found))


def _persistence(r: Reader) -> Persistence:
    return r.struct(Persistence, path=r.folder("path", Persistence().path))


# Of each tier: whether it is on by default, the setting that says where its files are, and its defaults.
_TIERS: dict[str, tuple[bool, str, dict[str, Any]]] = {
    "long_term": (True, "file", {"file": "MEMORY.md", "max_size_kb": 100}),
    "working": (True, "directory", {"directory": "memory", "retention_days": 30}),
    "episodic": (True, "path", {}),
    "semantic": (False, "index_path", {"index_path": "data/embeddings", "similarity_metric": "cosine"}),
}
_SAME = ("enabled", "max_size_kb", "max_tokens", "max_entries", "auto_write", "similarity_metric")
_NAMES = {name: name for name in (*_SAME, "embedding_model")}
_NAMES |= {"retention_days": "retention_days|retention", "inject": "inject|inject_into_prompt"}
_NAMES |= {"backend": "backend|type"}


def _memory(r: Reader) -> Memory:
    tiers, workspace = r.mapping("tiers"), r.folder("workspace_dir", Memory().workspace_dir)
    sources = {name: [one.mapping(name, short="enabled") for one in (r, tiers)] for name in TIERS}
    beside = (r, tiers, *sources["working"])
    sources["working"] += [one.mapping("daily_log", short="enabled") for one in beside]
    curation: dict[str, Any] = {"enabled": False, "schedule": "after_run", "days": 7}
    for one in sources["long_term"]:
        curation |= _settings(one, {"enabled": "auto_curate", "schedule": "curate_interval"})
    section = r.mapping("curation", short="enabled")
    curation |= _settings(section, {name: name for name in curation}) | section.rest()
    return Memory(
        enabled=r.flag("enabled", True),
        workspace_dir=workspace,
        access_control=_access(r.mapping("access_control")),
        curation=curation,
        search_enabled=r.flag("search_enabled", True),
        tiers={name: _tier(name, found, workspace) for name, found in sources.items()},
        kept=r.rest(),
    )


def _tier(name: str, sources: list[Reader], workspace: str) -> Tier:
    """One tier from all the places that speak of it; what a daily log says is the working tier's."""
    on, place, settings = _TIERS[name]
    settings = dict(settings)
    switches: list[bool] = []
    for one in sources:
        below = workspace if place in ("file", "directory") else ""
        prefix = f"{below}/" if below and one.peek(place) is None else ""  # `path` is seen from the root
        if path := one.folder(f"{place}|path", "", below).removeprefix(prefix):
            settings[place] = path
        said = _settings(one, _NAMES)
        switches += [said.pop("enabled")] if "enabled" in said else []
        settings |= said
    for one in sources:
        settings |= one.rest()
    return Tier(all(switches) if switches else on, settings)


def _settings(r: Reader, names: dict[str, str]) -> dict[str, Any]:
    """What is said of these settings, checked, by their usual names."""
    found: dict[str, Any] = {}
    for setting, spelled in names.items():
        if all(r.peek(one) is None for one in spelled.split("|")):
            r.take(spelled)
        elif setting in ("enabled", "inject", "auto_write"):
            found[setting] = r.flag(spelled, False)
        elif setting == "schedule":
            found[setting] = r.text(spelled, "after_run", among=("after_run", "daily"))
        elif setting in ("backend", "similarity_metric", "embedding_model"):
            found[setting] = r.text(spelled)
        else:
            found[setting] = r.number(spelled, 0, whole=setting != "max_size_kb")
    return found


def _access(r: Reader) -> dict[str, dict[str, Permission]]:
    """Who may do what with which tier."""
    granted: dict[str, dict[str, Permission]] = {}
    for agent in r.names():
        inner = r.mapping(agent)
        words = {tier: inner.text(tier, among=get_args(Permission)) for tier in TIERS}
        granted[agent] = {tier: cast(Any, word) for tier, word in words.items() if word}
        for tier in inner.rest():
            inner.error(tier, f"{shown(tier)} is no tier; write one of {', '.join(TIERS)}")
    return granted


@dataclasses.dataclass(slots=True)
class _Agents:
    """The agents that were named so far, by their ids and by the folders of their files."""

    notes: Notes
    by_id: dict[str, Agent] = dataclasses.field(default_factory=dict)
    by_folder: dict[str, Agent | None] = dataclasses.field(default_factory=dict)

    def named(self, r: Reader, name: str, text: str, id: str) -> str:
        """The id of the agent that is named by its folder, or by a folder's name below agents/."""
        if not id and text in self.by_id:
            return text
        path = PurePosixPath(text if "/" in text else f"agents/{text}")
        folder = (path.parent if path.name == AGENT_FILE else path).as_posix()
        file = f"{folder}/{AGENT_FILE}"
        if reason := self.notes.escape(text) or self.notes.escape(file):
            r.error(name, reason)
            return ""
        if folder not in self.by_folder:
            self.by_folder[folder] = self._read(folder, file)
        agent = self.by_folder[folder]
        if not _is_file(self.notes.root / file):
            r.error(name, f"there is no {file}; write it, or name a folder that has one", "R8")
        elif agent is not None and id and agent.id and agent.id != id:
            r.error(name, f"{file} is of the agent {agent.id!r}; give node and identity.id one id", "R8")
        elif agent is not None and self.by_id.setdefault(agent.id, agent) is not agent:
            r.error(name, f"{agent.id!r} is also the id of another agent's file; give each its own", "R5")
        return agent.id if agent is not None else id

    def _read(self, folder: str, file: str) -> Agent | None:
        if not _is_file(self.notes.root / file) or _document(self.notes, file) is None:
            return None
        r = Reader(self.notes, file, "", self.notes.documents[file])
        identity, output, runtime = (r.mapping(name) for name in ("identity", "output", "runtime"))
        id = identity.matching("id", _ID, "R12", _AN_ID)
        return Agent(
            id=id,
            awp_agent=r.matching("awp_agent", _VERSION, "R1", _A_VERSION, "1.0.0"),
            role=identity.text("role"),
            description=identity.text("description"),
            runtime=_runtime(runtime),
            contract=_contract(output),
            output_format=output.text("format", "json"),
            memory=_agent_memory(r.mapping("memory", short="enabled")),
            kept=r.rest(),
            folder="" if folder == f"agents/{id}" else folder,
        )


def _runtime(r: Reader) -> dict[str, Any]:
    function, command = r.peek("callable"), r.peek("command")
    if function is not None and not re.fullmatch(r"[\w.]+:[\w.]+", str(function)):
        r.error("callable", f"write module:function, not {kind_of(function)}")
    if command is not None and not (
        command and isinstance(command, list) and all(isinstance(one, str) for one in command)
    ):
        r.error("command", f"write a list, [program, argument, …], not {kind_of(command)}")
    return r.rest()


def _agent_memory(r: Reader) -> AgentMemory:
    daily, long_term = r.mapping("daily_log", short="enabled"), r.mapping("long_term", short="inject")
    found = r.struct(
        AgentMemory,
        daily_log_enabled=daily.flag("enabled", True),
        daily_log_auto_write=daily.flag("auto_write", True),
        long_term_inject=long_term.flag("inject|inject_into_prompt", True),
        long_term_max_tokens=long_term.number("max_tokens", 2000, whole=True),
    )
    for index, tier in enumerate(found.tiers):
        if tier not in TIERS:
            r.error(f"tiers[{index}]", f"{shown(tier)} is no tier; write one of {', '.join(TIERS)}")
    return replace(found, kept=r.rest())


def _contract(output: Reader) -> dict[str, Any] | None:
    """The contract as a JSON Schema, also when it was written as a flat map of fields."""
    given = output.value("contract", dict, "a mapping of fields, or a JSON Schema", {}, "R9")
    if not given:
        return None
    fields = given.get("properties")
    nested = isinstance(fields, dict) and all(isinstance(one, dict | bool) for one in fields.values())
    if nested or isinstance(given.get("type"), str | list) or not _SCHEMA_WORDS.isdisjoint(given):
        needed = [name for name, one in mapping(fields).items() if mapping(one).get("x-awp-required") is True]
        return {"type": "object", **given, **_required(given, needed)}
    for name, one in given.items():
        if not isinstance(one, dict | str | None):
            output.error(f"contract.{name}", f"write {{type: …}} here, not {kind_of(one)}", "R9")
    return {"type": "object", **_fields(given)}


def _required(schema: dict[str, Any], needed: list[str]) -> dict[str, Any]:
    """The keyword `required` with these names too, where there is anything to say."""
    listed = schema.get("required", [])
    if not needed or not isinstance(listed, list):
        return {}
    return {"required": [*listed, *(name for name in needed if name not in listed)]}


def _fields(given: dict[str, Any]) -> dict[str, Any]:
    """`properties` and `required` of a flat map, whose fields may be maps of fields again."""
    properties, needed = {}, []
    for name, one in given.items():
        field: dict[str, Any] = {"type": one} if isinstance(one, str) else dict(mapping(one))
        if isinstance(field.get("required"), bool) and field.pop("required"):
            needed.append(name)
        for flag in ("shareable", "sensitive"):
            if flag in field:
                field[f"x-awp-{flag}"] = field.pop(flag)
        if isinstance(kind := field.get("type"), str):
            field["type"] = _TYPES.get(kind, kind)
            if kind == "any":
                del field["type"]
        if isinstance(field.get("properties"), dict):
            below = _fields(field["properties"])
            field |= {"properties": below["properties"], **_required(field, below.get("required", []))}
        if isinstance(field.get("items"), dict | str):
            field["items"] = _fields({"items": field["items"]})["properties"]["items"]
        properties[name] = field
    return {"properties": properties, **_required({}, needed)}
