"""A workflow's files, in any dialect they are written in, as the one model that everything else sees.

Reading goes on after a mistake, so that all of them are told at once. What no part of the model has a place
for is kept as it was written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from msgspec.structs import replace

from ..access.patterns import bad_pattern
from ..access.rights import EVERYBODY, TIERS, Permission
from ..errors import BadInput, shown
from ..memory.portions import DigestRules, merged, rules_with
from ..plain_yaml import kind_of
from ..state.policy import AgentMemory, AgentPolicy, Limits, Model, Persistence, Policy, Rule, Start, Strategy
from . import model
from .check import ancestors, check, mapping, parts
from .model import AGENT_FILE, WORKFLOW_FILE, BadWorkflow, Node, Problem, Workflow
from .yaml import Notes, Reader, Texts, read_yaml

MAX_NODES = 1_000
MAX_NESTED = 8
AGENT_FILES = (AGENT_FILE, "agent.yml")

_NUMERIC, _LABEL = r"(0|[1-9][0-9]*)", r"[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*"
_VERSION = rf"{_NUMERIC}\.{_NUMERIC}\.{_NUMERIC}(-{_LABEL})?(\+{_LABEL})?"
VERSION = (_VERSION, 'a full version in quotes, such as "1.0.0",')
_A_NAME = "a name of 2 to 64 characters (a-z, 0-9, _ and -, a letter first, no _ or - last)"
NAME = ("[a-z][a-z0-9_-]{0,62}[a-z0-9]", _A_NAME)
_AN_ID = "an id of 2 to 48 characters (a-z, 0-9 and _, a letter first, no _ last)"
ID = ("[a-z][a-z0-9_]{0,46}[a-z0-9]", _AN_ID)

# The types of a flat contract that JSON Schema calls otherwise, and what only a JSON Schema can hold.
_TYPES = {"str": "string", "text": "string", "int": "integer", "float": "number", "bool": "boolean"}
_TYPES |= {"list": "array", "dict": "object", "map": "object"}
_SCHEMA_WORDS = {"$schema", "$ref", "$defs", "allOf", "anyOf", "oneOf"}


def load(place: str | os.PathLike[str]) -> Workflow:
    """The workflow in this folder, or in this file, to be run. BadWorkflow lists all that keeps it from running;
    `examine` tells what else there is to say."""
    workflow, problems = _found(Path(place), to_run=True)
    if workflow is None:
        raise BadWorkflow(os.fspath(place), tuple(one for one in problems if one.level == "error"))
    return workflow


def examine(place: str | os.PathLike[str]) -> tuple[Workflow | None, list[Problem]]:
    """The workflow, or None when there is an error, and all problems in the order of the files.

    Whatever the files hold, it is told as problems. What a run does without, and a file should not, is an error
    here; a file that lies alone is examined without its agents.
    """
    return _found(Path(place), to_run=False)


def _found(place: Path, to_run: bool) -> tuple[Workflow | None, list[Problem]]:
    if not _is_file(place):
        return _examine(place, 0, {}, place, to_run)
    workflow, problems = _examine(place.parent, 0, {}, place.parent, to_run, place.name)
    return workflow, [replace(one, file=place.name) if one.file == WORKFLOW_FILE else one for one in problems]


def _examine(
    folder: Path,
    level: int,
    done: dict[str, Workflow | None],
    top: Path,
    to_run: bool,
    name: str = WORKFLOW_FILE,
) -> tuple[Workflow | None, list[Problem]]:
    """`done` has the subworkflows that were examined, so that many ways to a folder cost no more than one."""
    notes = Notes(folder, top)
    document = _document(notes, WORKFLOW_FILE, name)
    if level > MAX_NESTED:
        deep = f"more than {MAX_NESTED} subworkflows deep; write it flatter"
        notes.problems.append(Problem("error", WORKFLOW_FILE, "", "", deep))
    if document is None or notes.problems:
        return None, notes.problems
    agents = _Agents(notes)
    workflow = _workflow(Reader(notes, WORKFLOW_FILE, "", document), agents)
    notes.problems += agents.missing if to_run or agents.files or not agents.missing else [_ALONE]
    notes.problems += check(workflow, agents.files, to_run)
    problems, inner = _in_file_order(notes), {}
    for path in dict.fromkeys(node.subworkflow for node in workflow.nodes if node.subworkflow):
        real = os.path.realpath(folder / path)
        if real not in done:
            done[real], found = _examine(folder / path, level + 1, done, top, to_run)
            problems += [replace(one, file=f"{path}/{one.file}") for one in found]
        inner[path] = done[real]
    if None in inner.values() or any(one.level == "error" for one in problems):
        return None, problems
    return replace(workflow, subworkflows=inner, folder=os.fspath(folder)), problems


_ALONE = Problem(
    "warning", WORKFLOW_FILE, "orchestration.graph", "R8",
    "no agent's folder lies beside this file: agents were not looked at, and it cannot run without them",
)  # fmt: skip


def _document(notes: Notes, file: str, name: str = "") -> object:
    """What a file holds, which may have another name; None, and a problem noted, when that cannot be said."""
    name = name or file
    reason, document = notes.escape(name), None
    if reason is None:
        try:
            document = read_yaml(notes.root / name, within=notes.top or notes.root)
            reason = "the file is empty; write the document" if document is None else None
        except BadInput as error:
            reason = str(error)
    notes.documents[file] = document
    if reason is not None:
        notes.problems.append(Problem("error", file, "", "", reason))
    return document


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


def _paths(value: object, path: str) -> Iterator[str]:
    yield path
    for name, inner in value.items() if isinstance(value, dict) else ():
        yield from _paths(inner, f"{path}.{name}" if path else name)
    for index, inner in enumerate(value if isinstance(value, list) else ()):
        yield from _paths(inner, f"{path}[{index}]")


def _workflow(root: Reader, agents: _Agents) -> Workflow:
    about, orchestration, state = (root.mapping(name) for name in ("workflow", "orchestration", "state"))
    engine, settings = orchestration.peek("engine"), root.look("settings")
    if engine not in (None, "dag", "delegation_loop"):
        orchestration.tell("engine", f"{kind_of(engine)} is not known here; write dag or delegation_loop")
    nodes = _nodes(orchestration, agents)
    max_depth, delegation = _delegation((root, orchestration, root.mapping("settings")))
    persistence = state.mapping("persistence", short="enabled")
    memory = _memory(root.mapping("memory", short="enabled"))
    workflow = Workflow(
        awp=root.read("awp", VERSION, "", "R1"),
        name=about.read("name", NAME, "", "R2"),
        version=about.read("version", str, "1.0.0"),
        description=about.read("description", str, ""),
        nodes=nodes,
        execution=_execution(orchestration.mapping("execution"), settings),
        degradation=tuple(_degradation(one, agents) for one in orchestration.items("degradation")),
        policy=_policy(root, state, nodes, agents.by_id, memory),
        start=state.struct(Start),
        persistence=persistence.struct(Persistence, path=persistence.folder("path", Persistence().path)),
        memory=memory,
        agents=agents.by_id,
        max_depth=max_depth,
    )
    loop = {} if delegation is None else {"delegation_loop": delegation}
    return replace(workflow, kept=root.rest() | loop)


def _nodes(orchestration: Reader, agents: _Agents) -> tuple[Node, ...]:
    readers = orchestration.items("graph")
    if len(readers) > MAX_NODES:
        many = f"{len(readers):,} nodes; at most {MAX_NODES:,}: move some into a subworkflow"
        orchestration.tell("graph", many)
    ids = frozenset(id for one in readers if isinstance(id := one.peek("id"), str))
    return tuple(_node(one, ids, agents) for one in readers[:MAX_NODES])


def _node(r: Reader, ids: frozenset[str], agents: _Agents) -> Node:
    id, sub, retry = r.read("id", ID, "", "R12"), r.mapping("subworkflow", short="path"), r.mapping("retry")
    inner = sub.folder("path|folder", "")
    inner = PurePosixPath(inner).as_posix() if inner else ""
    if sub.given and not (inner and _is_file(r.notes.root / inner / WORKFLOW_FILE)):
        want = f"write a folder below this one that has a {WORKFLOW_FILE}"
        agents.missing.append(Problem("error", r.file, r.at("subworkflow"), "R8", want))
    elif inner and os.path.realpath(r.notes.root / inner) == os.path.realpath(r.notes.root):
        r.tell("subworkflow", "this is the workflow itself; write a folder below it", "R6")
    agent = r.read("agent", str, "" if sub.given else id)
    return r.struct(
        Node,
        id=id,
        agent=agents.named(r, "agent", agent, id) if agent else "",
        depends_on=tuple(_dependency(one) for one in r.items("depends_on", short="id")),
        share_input=_share_input(r, ids),
        timeout=r.mapping("timeout", short="per_agent").read("per_agent", float),
        retry=_retry(retry, None) if retry.given else None,
        subworkflow=inner,
        max_depth=_own_depth(r),
    )


def _dependency(r: Reader) -> model.Dependency:
    id, condition, when = (r.read(names, str, "") for names in ("id|agent", "condition|expr", "when"))
    if not id:
        r.tell("id", "write the id of the node to wait for", "R7")
    if when and condition not in ("", "success", "expression"):
        r.tell("when", "condition says something else already; keep one of them")
    return model.Dependency(id, when or ("success" if condition in ("", "expression") else condition))


def _share_input(r: Reader, ids: frozenset[str]) -> dict[str, Texts]:
    """State fields under "", an agent's fields under its id, all of them as "*"."""
    if isinstance(r.peek("share_input"), dict):
        inner = r.mapping("share_input")
        return {producer: inner.read(producer, Texts, ()) for producer in list(inner.peek())}
    found: dict[str, Texts] = {}
    for entry in r.read("share_input", Texts, ()):
        producer, dot, name = entry.partition(".")
        if producer not in ids:
            producer, name = "", entry
        found[producer] = (*found.get(producer, ()), name if dot or not producer else "*")
    return found


def _retry(r: Reader, max_retries: int | None) -> model.Retry:
    again = r.read("max_retries", int, max_retries)
    return r.struct(model.Retry, {"max_attempts": 1 if again is None else again + 1})


def _execution(r: Reader, settings: Reader) -> model.Execution:
    default = model.Execution()
    nested, handling = r.mapping("timeout"), r.mapping("error_handling")
    usual = handling.read("default", model.OnFailure, default.on_error)
    final = handling.read("on_final_failure", model.OnFailure, usual)
    defaults = {
        f"timeout_{name}": nested.read(name, float, getattr(default, f"timeout_{name}"))
        for name in ("per_agent", "total", "idle")
    }
    defaults["on_error"] = final if usual == "retry" else usual
    defaults["max_concurrent"] = settings.read("max_concurrent", int, default.max_concurrent)
    retry = _retry(r.mapping("retry"), handling.read("max_retries", int))
    return r.struct(model.Execution, defaults, retry=retry)


def _degradation(r: Reader, agents: _Agents) -> model.Degradation:
    fallback = r.read("fallback|fallback_agent", str, "")
    implied = "fallback" if fallback else "cached_results" if r.peek("max_staleness") is not None else "skip"
    id = agents.named(r, "fallback", fallback, "") if fallback else ""
    found = r.struct(model.Degradation, {"action": implied}, fallback=id)
    if found.action == "fallback" and not fallback:
        r.tell("fallback", "write the agent to run instead")
    return found


def _delegation(places: tuple[Reader, ...]) -> tuple[int, dict[str, Any] | None]:
    """How deep managers may delegate, and what else the section says, wherever it stands; None: there is none."""
    depth, rest = Workflow("", "").max_depth, None
    for section in filter(lambda one: one.given, [place.mapping("delegation_loop") for place in places]):
        said = [_depth(one) for one in (section.mapping("budget"), section)]
        depth = next((one for one in said if one is not None), depth)
        section.look().read("auto_curation_enabled", bool)
        rest = section.rest()
    return depth, rest


def _depth(r: Reader) -> int | None:
    """How deep this section lets runs delegate, if it says so."""
    depth: int | None = r.read("max_depth", int, None, "R32")
    if depth is not None and depth > 5:
        deep = f"{depth} levels deep is a lot; write 5 or less unless you must"
        r.tell("max_depth", deep, "R32", "warning")
    return depth


def _own_depth(node: Reader) -> int | None:
    """How deep a node says that runs below it may delegate, in one of the places where it may say so."""
    inside = (("budget",), ("delegation_loop", "budget"), ("delegation_loop",))
    places = [node, *(node.look(*path) for path in inside if isinstance(node.peek(*path), dict))]
    return next((one for one in map(_depth, places) if one is not None), None)


def _policy(
    root: Reader,
    state: Reader,
    nodes: tuple[Node, ...],
    agents: dict[str, model.Agent],
    memory: model.Memory,
) -> Policy:
    sharing = state.mapping("sharing")
    if sharing.given and sharing.peek("strategy") is None:
        sharing.tell("strategy", "write full, selective or isolated", "R16")
    above = ancestors(nodes)
    secret = (one.read("sensitive_fields", Texts, ()) for one in (sharing, root.look("security")))
    return sharing.struct(
        Policy,
        model=state.read("model", Model, "shared_dict"),
        strategy=sharing.read("strategy", Strategy, "full", "R16"),
        rules=tuple(_rule(one) for one in sharing.items("rules")),
        sensitive_fields=tuple(dict.fromkeys(name for names in secret for name in names)),
        patterns=patterns_in(root),
        limits=state.read("limits", Limits, Limits()),
        max_depth=Policy().max_depth,
        agents={node.id: _agent_policy(node, agents.get(node.agent), above, memory) for node in nodes}
        or None,
        others=_others({node.id for node in nodes}, agents, memory),
    )


def _others(nodes: set[str], agents: dict[str, model.Agent], memory: model.Memory) -> dict[str, AgentPolicy]:
    """What holds for agents that are no nodes: fallbacks, those that access_control names, and everybody else."""
    anybody = AgentPolicy(memory=_memory_policy(model.AgentMemory(tiers=TIERS), memory))
    found = {EVERYBODY: anybody}
    for name in sorted({*agents, *memory.access_control} - nodes):
        agent = agents.get(name)
        found[name] = replace(
            anybody,
            memory=anybody.memory if agent is None else _memory_policy(agent.memory, memory),
            access=memory.access_control.get(name, {}),
            may_emit=None if agent is None else agent.may_emit,
        )
    return found


def _rule(r: Reader) -> Rule:
    to, fields = r.read("to|to_agents", Texts, ()), r.read("fields", Texts, ())
    source = r.read("from|from_agent", str, "")
    if not source or not fields:
        r.tell("" if source else "from", "write from: agent, to: [agents] and fields: [names]", "R16")
    return Rule(source, tuple(id for id in to if id not in ("*", "all")), fields)


def _agent_policy(
    node: Node, agent: model.Agent | None, above: dict[str, Texts], memory: model.Memory
) -> AgentPolicy:
    contract = agent.contract if agent else None
    own = model.AgentMemory() if agent is None else agent.memory
    return AgentPolicy(
        contract=contract,
        share_output=node.share_output or (),
        takes=node.share_input,
        depends_on=above.get(node.id, ()),
        not_shareable=_flagged(contract, "x-awp-shareable", False),
        sensitive=_flagged(contract, "x-awp-sensitive", True),
        memory=_memory_policy(own, memory),
        access=memory.access_control.get(node.id, {}),
        may_emit=agent.may_emit if agent else None,
    )


V1_OF_FILES = {"semantic": {"enabled": False}}
"""What a memory.v1 section of a file means where it says nothing else: there, meaning is looked for on request."""


def _memory_policy(own: model.AgentMemory, all: model.Memory) -> AgentMemory:
    """What holds for one agent: its own file within the workflow's."""
    long_term, working = (all.tiers[tier].settings for tier in ("long_term", "working"))
    return AgentMemory(
        enabled=own.enabled and all.enabled,
        inject=own.long_term_inject and long_term.get("inject", True),
        max_chars=own.long_term_max_tokens,
        log=own.daily_log_enabled and own.daily_log_auto_write and working.get("auto_write", True),
        search=own.search_enabled and all.search_enabled,
        tiers=own.tiers,
        off=tuple(name for name, tier in all.tiers.items() if not tier.enabled),
        v1=merged(V1_OF_FILES, own.v1) if own.v1 else {},
        window=own.window,
        use_salience=own.use_salience,
        salience_top_k=own.salience_top_k,
    )


def _flagged(schema: object, flag: str, value: bool) -> Texts:
    """The names of the properties, at any depth of a schema, that carry this flag."""
    named = (pair for part in parts(schema) for pair in mapping(part.get("properties")).items())
    return tuple(dict.fromkeys(name for name, one in named if mapping(one).get(flag) is value))


def patterns_in(root: Reader) -> Texts:
    """The regular expressions that are redacted, from all the places that may hold them."""
    places = (("security", "redaction", "patterns"), ("observability", "redaction", "patterns"))
    found: list[str] = []
    for *section, name in (*places, ("security", "redact_patterns")):
        r = root.look(*section)
        for index, item in enumerate(r.read(name, list, [], "R14")):
            pattern: Any = item.get("pattern", item.get("regex")) if isinstance(item, dict) else item
            if (reason := bad_pattern(pattern)) is not None:
                r.tell(
                    f"{name}[{index}]", f"{shown(pattern)} is not a pattern that can be used: {reason}", "R14"
                )
            else:
                found.append(pattern)
    return tuple(dict.fromkeys(found))


# Of each tier: whether it is on by default, the setting that says where its files are, and its defaults. How large
# MEMORY.md may be and how long logs are kept are the book's settings, unless a file says otherwise.
_TIERS: dict[str, tuple[bool, str, dict[str, Any]]] = {
    "long_term": (True, "file", {"file": "MEMORY.md"}),
    "working": (True, "directory", {"directory": "memory"}),
    "episodic": (True, "path", {}),
    "semantic": (False, "index_path", {"index_path": "data/embeddings", "similarity_metric": "cosine"}),
}
# The names of settings, as they may be written, and their types; the first name is the usual one.
_Settings = dict[str, Any]
_OF_TIERS: _Settings = {"max_size_kb": float, "retention_days|retention": int}
_OF_TIERS |= dict.fromkeys(("enabled", "inject|inject_into_prompt", "auto_write"), bool)
_OF_TIERS |= dict.fromkeys(("max_tokens", "max_entries"), int)
_OF_TIERS |= dict.fromkeys(("backend|type", "similarity_metric", "embedding_model"), str)
_SCHEDULE = Literal["after_run", "daily"]
_OF_CURATION: _Settings = {"enabled": bool, "schedule": _SCHEDULE, "days": int}


def _memory(r: Reader) -> model.Memory:
    tiers, workspace = r.mapping("tiers"), r.folder("workspace_dir", model.Memory().workspace_dir)
    sources = {name: [one.mapping(name, short="enabled") for one in (r, tiers)] for name in TIERS}
    beside = (r, tiers, *sources["working"])
    sources["working"] += [one.mapping("daily_log", short="enabled") for one in beside]
    curation: dict[str, Any] = {"enabled": False, "schedule": "after_run", "days": 7}
    for one in sources["long_term"]:
        said = {"enabled": one.read("auto_curate", bool), "schedule": one.read("curate_interval", _SCHEDULE)}
        curation |= {name: value for name, value in said.items() if value is not None}
    section = r.mapping("curation", short="enabled")
    curation |= _settings(section, _OF_CURATION) | section.rest()
    return r.struct(
        model.Memory,
        workspace_dir=workspace,
        access_control=_access(r.mapping("access_control")),
        curation=curation,
        tiers={name: _tier(name, found, workspace) for name, found in sources.items()},
    )


def _tier(name: str, sources: list[Reader], workspace: str) -> model.Tier:
    """One tier from all the places that speak of it; what a daily log says is the working tier's."""
    on, place, defaults = _TIERS[name]
    settings, switches = dict(defaults), list[bool]()
    below = workspace if place in ("file", "directory") else ""
    for one in sources:
        prefix = f"{below}/" if below and one.peek(place) is None else ""  # `path` is seen from the root
        if path := one.folder(f"{place}|path", "", below).removeprefix(prefix):
            settings[place] = path
        said = _settings(one, _OF_TIERS)
        switches += [said.pop("enabled")] if "enabled" in said else []
        settings |= said
    for one in sources:
        settings |= one.rest()
    return model.Tier(all(switches) if switches else on, settings)


def _settings(r: Reader, kinds: _Settings) -> dict[str, Any]:
    """What is said of these settings, checked, by their usual names."""
    found = {names.partition("|")[0]: r.read(names, kind) for names, kind in kinds.items()}
    return {name: value for name, value in found.items() if value is not None}


def _access(r: Reader) -> dict[str, dict[str, Permission]]:
    """Who may do what with which tier."""
    granted: dict[str, dict[str, Permission]] = {}
    for agent in list(r.peek()):
        inner = r.mapping(agent)
        granted[agent] = _settings(inner, dict.fromkeys(TIERS, Permission))
        for tier in inner.rest():
            inner.tell(tier, f"{shown(tier)} is no tier; write one of {', '.join(TIERS)}")
    return granted


class _Agents:
    """The agents that were named so far, by their ids and by the folders of their files."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.by_id: dict[str, model.Agent] = {}
        self.by_folder: dict[str, model.Agent | None] = {}
        self.files: dict[str, str] = {}
        self.missing: list[Problem] = []
        """Agents and subworkflows that are named, and have no files."""

    def named(self, r: Reader, name: str, text: str, id: str) -> str:
        """The id of the agent that is named by its folder, or by a folder's name below agents/."""
        if not id and text in self.by_id:
            return text
        path = PurePosixPath(text if "/" in text else f"agents/{text}")
        folder = (path.parent if path.name in AGENT_FILES else path).as_posix()
        files = [file for one in AGENT_FILES if _is_file(self.notes.root / (file := f"{folder}/{one}"))]
        file = files[0] if files else f"{folder}/{AGENT_FILE}"
        if reason := self.notes.escape(text) or self.notes.escape(file):
            r.tell(name, reason)
            return ""
        if folder not in self.by_folder:
            self.by_folder[folder] = self._read(folder, file) if files else None
        agent = self.by_folder[folder]
        if not files:
            want = f"there is no {file}; write it, or name a folder that has one"
            self.missing.append(Problem("error", r.file, r.at(name), "R8", want))
        elif agent is not None and id and agent.id and agent.id != id:
            r.tell(name, f"{file} is of the agent {agent.id!r}; give node and identity.id one id", "R8")
        elif agent is not None and self.by_id.setdefault(agent.id, agent) is not agent:
            r.tell(name, f"{agent.id!r} is also the id of another agent's file; give each its own", "R5")
        return agent.id if agent is not None else id

    def _read(self, folder: str, file: str) -> model.Agent | None:
        if (document := _document(self.notes, file)) is None:
            return None
        r = Reader(self.notes, file, "", document)
        identity, output, runtime = (r.mapping(name) for name in ("identity", "output", "runtime"))
        id = identity.read("id", ID, "", "R12")
        self.files.setdefault(id, file)
        return r.struct(
            model.Agent,
            id=id,
            awp_agent=r.read("awp_agent", VERSION, "1.0.0", "R1"),
            role=identity.read("role", str, ""),
            description=identity.read("description", str, ""),
            runtime=_runtime(runtime),
            contract=_contract(output),
            output_format=output.read("format", str, "json"),
            memory=_agent_memory(r.mapping("memory", short="enabled")),
            may_emit=r.read("may_emit", Texts),
            folder="" if folder == f"agents/{id}" else folder,
        )


def _runtime(r: Reader) -> dict[str, Any]:
    function, command = r.peek("callable"), r.peek("command")
    if function is not None and not re.fullmatch(r"[\w.]+:[\w.]+", str(function)):
        r.tell("callable", f"write module:function, not {kind_of(function)}")
    listed = command if isinstance(command, list) else []
    if command is not None and not (listed and all(isinstance(one, str) for one in listed)):
        r.tell("command", f"write a list, [program, argument, …], not {kind_of(command)}")
    return r.rest()


def _settings_of_tiers(r: Reader) -> dict[str, Reader]:
    """What an agent's file says of each of its tiers, if it maps them to settings; {} if it lists them."""
    written = r.peek("tiers")
    if not isinstance(written, dict):
        return {}
    section = r.mapping("tiers")
    return {tier: section.mapping(tier, short="enabled") for tier in written}


def _agent_memory(r: Reader) -> model.AgentMemory:
    daily, long_term = r.mapping("daily_log", short="enabled"), r.mapping("long_term", short="inject")
    settings = _settings_of_tiers(r)
    said = [settings.get("long_term", long_term), long_term]
    inject = [one.read("inject|inject_into_prompt", bool) for one in said]
    most = [one.read("max_tokens", int) for one in said]
    defaults = {
        "daily_log_enabled": daily.read("enabled", bool, True),
        "daily_log_auto_write": all(
            one.read("auto_write", bool, True) for one in (daily, settings.get("working", daily))
        ),
        "long_term_inject": False not in inject,
        "long_term_max_tokens": next((one for one in most if one is not None), 2000),
    }
    listed = {name: one.read("enabled", bool, True) for name, one in settings.items()}
    given = {"tiers": tuple(name for name, on in listed.items() if on)} if settings else {}
    found = r.struct(model.AgentMemory, defaults, **given)
    for index, tier in enumerate(found.tiers):
        if tier not in TIERS:
            place = f"tiers.{tier}" if settings else f"tiers[{index}]"
            r.tell(place, f"{shown(tier)} is no tier; write one of {', '.join(TIERS)}")
    for name in ("window", "salience_top_k"):
        if getattr(found, name) < 0:
            r.tell(name, "write how many events, from 0")
    try:
        rules_with(DigestRules(), found.v1)
    except BadInput as error:
        r.tell("v1", str(error))
    return found


def _contract(output: Reader) -> dict[str, Any] | None:
    """The contract as a JSON Schema, also when it was written as a flat map of fields."""
    given: dict[str, Any] = output.read("contract", dict, {}, "R9")
    if not given:
        return None
    fields = given.get("properties")
    nested = isinstance(fields, dict) and all(isinstance(one, dict | bool) for one in fields.values())
    if nested or isinstance(given.get("type"), str | list) or not _SCHEMA_WORDS.isdisjoint(given):
        needed = [name for name, one in mapping(fields).items() if mapping(one).get("x-awp-required") is True]
        return {"type": "object", **given, **_required(given, needed)}
    for name, one in given.items():
        if not isinstance(one, dict | str | None):
            output.tell(f"contract.{name}", f"write {{type: …}} here, not {kind_of(one)}", "R9")
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
