"""A workflow's files, in any dialect they are written in, as the one model that everything else sees.

The files fit their schema, and what a schema can say of dialects is in one form. Here comes the rest: what may stand in
more than one place is brought together, and what the files name (agents, folders, subworkflows) is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import convert
from msgspec.structs import replace

from ..access.patterns import bad_pattern
from ..access.rights import EVERYBODY, TIERS
from ..errors import BadInput, shown
from ..files.plain_yaml import kind_of
from ..memory.portions import DigestRules, merged, rules_with
from ..state.policy import AgentMemory, AgentPolicy, Persistence, Policy, SharingRule, Start
from . import model
from .files import Files, Level
from .model import AGENT_FILE, WORKFLOW_FILE, BadWorkflow, Node, Problem, Workflow
from .rules import ancestors, check, mapping, parts

MAX_NODES = 1_000
MAX_NESTED = 8
AGENT_FILES = (AGENT_FILE, "agent.yml")
DEEP = 5
"""How deep managers may delegate without a warning."""

# The types of a flat contract that JSON Schema calls otherwise, and what only a JSON Schema can hold.
_TYPES = {"str": "string", "text": "string", "int": "integer", "float": "number", "bool": "boolean"}
_TYPES |= {"list": "array", "dict": "object", "map": "object"}
_SCHEMA_WORDS = {"$schema", "$ref", "$defs", "allOf", "anyOf", "oneOf"}

# Of each tier: whether it is on by default, the setting that says where its files are, and its defaults. How large
# MEMORY.md may be and how long logs are kept are the book's settings, unless a file says otherwise.
_TIERS: dict[str, tuple[bool, str, dict[str, Any]]] = {
    "long_term": (True, "file", {"file": "MEMORY.md"}),
    "working": (True, "directory", {"directory": "memory"}),
    "episodic": (True, "path", {}),
    "semantic": (False, "index_path", {"index_path": "data/embeddings", "similarity_metric": "cosine"}),
}
_NOT_SETTINGS = {
    "enabled",
    "path",
    "file",
    "directory",
    "index_path",
    "daily_log",
    "auto_curate",
    "curate_interval",
}

Texts = tuple[str, ...]
Section = dict[str, Any]


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
    files = Files(folder, top)
    document = files.read(WORKFLOW_FILE, name)
    if level > MAX_NESTED:
        files.tell(WORKFLOW_FILE, "", f"more than {MAX_NESTED} subworkflows deep; write it flatter")
        document = None
    if document is None:
        return None, files.problems
    agents = _Agents(files)
    workflow = _Loader(files, agents, document).workflow()
    files.problems += agents.missing if to_run or agents.files or not agents.missing else [_ALONE]
    files.problems += check(workflow, agents.files, to_run)
    problems, inner = _in_file_order(files), {}
    for path in dict.fromkeys(node.subworkflow for node in workflow.nodes if node.subworkflow):
        real = os.path.realpath(folder / path)
        if real not in done:
            done[real], found = _examine(folder / path, level + 1, done, top, to_run)
            problems += [replace(problem, file=f"{path}/{problem.file}") for problem in found]
        inner[path] = done[real]
    if None in inner.values() or any(problem.level == "error" for problem in problems):
        return None, problems
    return replace(workflow, subworkflows=inner, folder=os.fspath(folder)), problems


_ALONE = Problem(
    "warning", WORKFLOW_FILE, "orchestration.graph", "R8",
    "no agent's folder lies beside this file: agents were not looked at, and it cannot run without them",
)  # fmt: skip


def _is_file(path: Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113 (Path.is_file raises for some names)


def _in_file_order(files: Files) -> list[Problem]:
    """Problems sorted by file and by where in it their path stands, or else the nearest path above."""
    places = {
        (file, path): (index, line)
        for index, (file, document) in enumerate(files.documents.items() if files.problems else ())
        for line, path in enumerate(_paths(document, ""))
    }

    def place(problem: Problem) -> tuple[int, int]:
        path = problem.path
        while path and (problem.file, path) not in places:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return places.get((problem.file, path), (len(files.documents), 0))

    return sorted(dict.fromkeys(files.problems), key=place)


def _paths(value: object, path: str) -> Iterator[str]:
    yield path
    for name, inner in value.items() if isinstance(value, dict) else ():
        yield from _paths(inner, f"{path}.{name}" if path else name)
    for index, inner in enumerate(value if isinstance(value, list) else ()):
        yield from _paths(inner, f"{path}[{index}]")


class _Loader:
    """The model of one workflow's file."""

    def __init__(self, files: Files, agents: _Agents, document: Section) -> None:
        self._files, self._agents, self._document = files, agents, document

    def _tell(self, path: str, message: str, rule: str = "", level: Level = "error") -> None:
        self._files.tell(WORKFLOW_FILE, path, message, rule, level)

    def workflow(self) -> Workflow:
        root, written = self._document, mapping(self._files.documents[WORKFLOW_FILE])
        orchestration, state = root.get("orchestration", {}), root.get("state", {})
        graph = mapping(written.get("orchestration")).get("graph")
        nodes = self._nodes(orchestration.get("graph", []), graph)
        max_depth, delegation = self._delegation()
        memory = self._memory(root.get("memory", {}))
        persistence = state.get("persistence", {})
        path = self._folder(persistence, "state.persistence", "path")
        more = {
            "awp": root.get("awp", ""),
            "nodes": nodes,
            "execution": self._execution(orchestration.get("execution", {})),
            "degradation": [
                self._degradation(*one) for one in enumerate(orchestration.get("degradation", []))
            ],
            "policy": self._policy(state, nodes, memory),
            "start": convert(state, Start),
            "persistence": convert(persistence | ({"path": path} if path else {}), Persistence),
            "memory": memory,
            "agents": self._agents.by_id,
            "max_depth": max_depth,
            "delegation": delegation,
            "document": written,
        }
        return convert({"name": "", **root.get("workflow", {}), **more}, Workflow)

    def _folder(self, section: Section, at: str, name: str, below: str = "") -> str:
        """A path that stays inside the workflow's folder, or inside the folder `below` in it; "" when it does not."""
        path: str | None = section.get(name)
        if path is None:
            return ""
        if reason := self._files.escape(path) or (below and self._files.escape(f"{below}/{path}")):
            self._tell(f"{at}.{name}", reason)
            return ""
        return path

    # the graph

    def _nodes(self, graph: list[Section], written: Any) -> tuple[Node, ...]:
        if len(graph) > MAX_NODES:
            many = f"{len(graph):,} nodes; at most {MAX_NODES:,}: move some into a subworkflow"
            self._tell("orchestration.graph", many)
        ids = frozenset(node.get("id", "") for node in graph)
        return tuple(
            self._node(f"orchestration.graph[{at}]", node, mapping(written[at]), ids)
            for at, node in enumerate(graph[:MAX_NODES])
        )

    def _node(self, at: str, node: Section, written: Section, ids: frozenset[str]) -> Node:
        id, is_sub = node.get("id", ""), "subworkflow" in node
        agent = node.get("agent", "" if is_sub else id)
        waits = enumerate(node.get("depends_on", []))
        more = {
            "id": id,
            "agent": self._agents.named(f"{at}.agent", agent, id) if agent else "",
            "depends_on": [self._dependency(f"{at}.depends_on[{index}]", one) for index, one in waits],
            "share_input": _share_input(node.get("share_input", []), ids),
            "timeout": node.get("timeout", {}).get("per_agent"),
            "retry": _retry(node["retry"]) if "retry" in node else None,
            "subworkflow": self._subworkflow(at, node["subworkflow"]) if is_sub else "",
            "max_depth": self._depth_of_node(at, node),
            "document": written,
        }
        return convert({**node, **more}, Node)

    def _subworkflow(self, at: str, section: Section) -> str:
        root, place = self._files.root, f"{at}.subworkflow"
        path = self._folder({"subworkflow": section.get("path")}, at, "subworkflow")
        path = PurePosixPath(path).as_posix() if path else ""
        if not path or not _is_file(root / path / WORKFLOW_FILE):
            want = f"write a folder below this one that has a {WORKFLOW_FILE}"
            self._agents.missing.append(Problem("error", WORKFLOW_FILE, place, "R8", want))
        elif os.path.realpath(root / path) == os.path.realpath(root):
            self._tell(place, "this is the workflow itself; write a folder below it", "R6")
        return path

    def _dependency(self, at: str, section: Section) -> model.Dependency:
        id, condition, when = (section.get(name, "") for name in ("id", "condition", "when"))
        if not id:
            self._tell(f"{at}.id", "write the id of the node to wait for", "R7")
        if when and condition not in ("", "success", "expression"):
            self._tell(f"{at}.when", "condition says something else already; keep one of them")
        return model.Dependency(id, when or ("success" if condition in ("", "expression") else condition))

    def _execution(self, section: Section) -> model.Execution:
        handling, usual = section.get("error_handling", {}), model.Execution().on_error
        usual = handling.get("default", usual)
        defaults = {f"timeout_{name}": seconds for name, seconds in section.get("timeout", {}).items()}
        defaults["on_error"] = handling.get("on_final_failure", usual) if usual == "retry" else usual
        settings = self._document.get("settings", {})
        defaults |= {name: settings[name] for name in ("max_concurrent",) if name in settings}
        retry = _retry(section.get("retry", {}), handling.get("max_retries"))
        return convert({**defaults, **section, "retry": retry}, model.Execution)

    def _degradation(self, index: int, section: Section) -> model.Degradation:
        at, fallback = f"orchestration.degradation[{index}]", section.get("fallback", "")
        implied = "fallback" if fallback else "cached_results" if "max_staleness" in section else "skip"
        section = {"node": "", "action": implied, **section}
        if not section["node"]:
            self._tell(f"{at}.node", "write it; there is no default")
        if section["action"] == "fallback" and not fallback:
            self._tell(f"{at}.fallback", "write the agent to run instead")
        id = self._agents.named(f"{at}.fallback", fallback, "") if fallback else ""
        return convert({**section, "fallback": id}, model.Degradation)

    def _delegation(self) -> tuple[int, Section | None]:
        """How deep managers may delegate, and the whole section, wherever it stands; None: there is none."""
        depth, whole = Workflow("", "").max_depth, None
        for above in ("", "orchestration.", "settings."):
            section = (self._document.get(above[:-1], {}) if above else self._document).get("delegation_loop")
            if section is not None:
                whole, at = section, f"{above}delegation_loop"
                said = self._depth((f"{at}.budget", section.get("budget")), (at, section))
                depth = depth if said is None else said
        return depth, whole

    def _depth(self, *places: tuple[str, object]) -> int | None:
        """How deep the first of these sections that says so lets runs delegate."""
        said = [(at, mapping(section).get("max_depth")) for at, section in places]
        for at, depth in said:
            if depth is not None and depth > DEEP:
                message = f"{depth} levels deep is a lot; write {DEEP} or less unless you must"
                self._tell(f"{at}.max_depth", message, "R32", "warning")
        return next((depth for _, depth in said if depth is not None), None)

    def _depth_of_node(self, at: str, node: Section) -> int | None:
        loop = mapping(node.get("delegation_loop"))
        inner = f"{at}.delegation_loop"
        return self._depth(
            (at, node),
            (f"{at}.budget", node.get("budget")),
            (f"{inner}.budget", loop.get("budget")),
            (inner, loop),
        )

    # rules for state and memory

    def _policy(self, state: Section, nodes: tuple[Node, ...], memory: model.MemorySettings) -> Policy:
        sharing, security = state.get("sharing", {}), self._document.get("security", {})
        above, agents = ancestors(nodes), self._agents.by_id
        secret = (*sharing.get("sensitive_fields", ()), *security.get("sensitive_fields", ()))
        more = {
            "model": state.get("model", Policy().model),
            "rules": [self._rule(*one) for one in enumerate(sharing.get("rules", []))],
            "sensitive_fields": list(dict.fromkeys(secret)),
            "patterns": self._patterns(),
            "limits": state.get("limits", {}),
            "agents": {node.id: _agent_policy(node, agents.get(node.agent), above, memory) for node in nodes}
            or None,
            "others": _others({node.id for node in nodes}, agents, memory),
        }
        named = {name: sharing[name] for name in ("strategy", "never_share", "validation") if name in sharing}
        return convert({**named, **more}, Policy)

    def _rule(self, index: int, section: Section) -> SharingRule:
        at, source, names = (
            f"state.sharing.rules[{index}]",
            section.get("from", ""),
            section.get("fields", ()),
        )
        if not source or not names:
            want = "write from: agent, to: [agents] and fields: [names]"
            self._tell(at if source else f"{at}.from", want, "R16")
        return SharingRule(
            source, tuple(id for id in section.get("to", ()) if id not in ("*", "all")), tuple(names)
        )

    def _patterns(self) -> list[str]:
        """The regular expressions that are redacted, from all the places that may hold them."""
        good: dict[str, None] = {}
        for place in (
            "security.redaction.patterns",
            "observability.redaction.patterns",
            "security.redact_patterns",
        ):
            section, *above, name = self._document, *place.split(".")
            for word in above:
                section = section.get(word, {})
            for index, item in enumerate(section.get(name, ())):
                pattern: Any = item.get("pattern", item.get("regex")) if isinstance(item, dict) else item
                if (reason := bad_pattern(pattern)) is None:
                    good[pattern] = None
                else:
                    message = f"{shown(pattern)} is not a pattern that can be used: {reason}"
                    self._tell(f"{place}[{index}]", message, "R14")
        return list(good)

    def _memory(self, section: Section) -> model.MemorySettings:
        workspace = self._folder(section, "memory", "workspace_dir") or "workspace"
        places = [("memory", section), ("memory.tiers", section.get("tiers", {}))]
        sources = {tier: [(f"{at}.{tier}", one.get(tier, {})) for at, one in places] for tier in TIERS}
        beside = [*places, *sources["working"]]
        sources["working"] += [(f"{at}.daily_log", one.get("daily_log", {})) for at, one in beside]
        curation: Section = {}
        for _, one in sources["long_term"]:
            other_names = (("auto_curate", "enabled"), ("curate_interval", "schedule"))
            curation |= {name: one[written] for written, name in other_names if written in one}
        more = {
            "access_control": section.get("access_control", {}),
            "curation": {**curation, **section.get("curation", {})},
            "tiers": {tier: self._tier(tier, found, workspace) for tier, found in sources.items()},
        }
        return convert({**section, **more}, model.MemorySettings)

    def _tier(self, name: str, sources: list[tuple[str, Section]], workspace: str) -> model.Tier:
        """One tier from all the places that speak of it; what a daily log says is the working tier's."""
        on, place, defaults = _TIERS[name]
        settings, below = dict(defaults), workspace if place in ("file", "directory") else ""
        for at, section in sources:
            named = place if place in section else "path"
            path = self._folder(section, at, named, below)
            if named == "path" and below:  # it is seen from the workflow's folder
                path = path.removeprefix(f"{below}/")
            settings |= {key: value for key, value in section.items() if key not in _NOT_SETTINGS}
            settings |= {place: path} if path else {}
        switches = [section["enabled"] for _, section in sources if "enabled" in section]
        return model.Tier(all(switches) if switches else on, settings)


def _retry(section: Section, max_retries: int | None = None) -> model.Retry:
    again = section.get("max_retries", max_retries)
    return convert({**({} if again is None else {"max_attempts": again + 1}), **section}, model.Retry)


def _share_input(written: list[str] | dict[str, list[str]], ids: frozenset[str]) -> dict[str, Texts]:
    """State fields under "", an agent's fields under its id, all of them as "*"."""
    if isinstance(written, dict):
        return {producer: tuple(names) for producer, names in written.items()}
    found: dict[str, Texts] = {}
    for entry in written:
        producer, dot, name = entry.partition(".")
        if producer not in ids:
            producer, name = "", entry
        found[producer] = (*found.get(producer, ()), name if dot or not producer else "*")
    return found


def _others(
    nodes: set[str], agents: dict[str, model.Agent], memory: model.MemorySettings
) -> dict[str, AgentPolicy]:
    """What holds for agents that are no nodes: fallbacks, those that access_control names, and everybody else."""
    anybody = AgentPolicy(memory=_memory_policy(model.AgentMemorySettings(tiers=TIERS), memory))
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


def _agent_policy(
    node: Node, agent: model.Agent | None, above: dict[str, Texts], memory: model.MemorySettings
) -> AgentPolicy:
    contract = agent.contract if agent else None
    own = model.AgentMemorySettings() if agent is None else agent.memory
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


def _memory_policy(own: model.AgentMemorySettings, all: model.MemorySettings) -> AgentMemory:
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


class _Agents:
    """The agents that were named so far, by their ids and by the folders of their files."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.by_id: dict[str, model.Agent] = {}
        self.by_folder: dict[str, model.Agent | None] = {}
        self.files: dict[str, str] = {}
        self.missing: list[Problem] = []
        """Agents and subworkflows that are named, and have no files."""

    def named(self, at: str, text: str, id: str) -> str:
        """The id of the agent that is named by its folder, or by a folder's name below agents/."""
        if not id and text in self.by_id:
            return text
        path = PurePosixPath(text if "/" in text else f"agents/{text}")
        folder = (path.parent if path.name in AGENT_FILES else path).as_posix()
        files = [file for name in AGENT_FILES if _is_file(self._files.root / (file := f"{folder}/{name}"))]
        file = files[0] if files else f"{folder}/{AGENT_FILE}"
        if reason := self._files.escape(text) or self._files.escape(file):
            self._files.tell(WORKFLOW_FILE, at, reason)
            return ""
        if folder not in self.by_folder:
            self.by_folder[folder] = self._read(folder, file) if files else None
        agent = self.by_folder[folder]
        if not files:
            want = f"there is no {file}; write it, or name a folder that has one"
            self.missing.append(Problem("error", WORKFLOW_FILE, at, "R8", want))
        elif agent is not None and id and agent.id and agent.id != id:
            message = f"{file} is of the agent {agent.id!r}; give node and identity.id one id"
            self._files.tell(WORKFLOW_FILE, at, message, "R8")
        elif agent is not None and self.by_id.setdefault(agent.id, agent) is not agent:
            message = f"{agent.id!r} is also the id of another agent's file; give each its own"
            self._files.tell(WORKFLOW_FILE, at, message, "R5")
        return agent.id if agent is not None else id

    def _read(self, folder: str, file: str) -> model.Agent | None:
        document = self._files.read(file)
        if document is None:
            return None
        id = document.get("identity", {}).get("id", "")
        self.files.setdefault(id, file)
        more = {
            "id": id,
            "contract": self._contract(file, document.get("output", {}).get("contract")),
            "memory": self._memory(file, document.get("memory", {})),
            "document": self._files.documents[file],
            "folder": "" if folder == f"agents/{id}" else folder,
        }
        return convert({**document, **more}, model.Agent)

    def _memory(self, file: str, section: Section) -> model.AgentMemorySettings:
        tiers = section.get("tiers")
        settings: Section = tiers if isinstance(tiers, dict) else {}
        daily, long_term = section.get("daily_log", {}), section.get("long_term", {})
        of_tier, working = settings.get("long_term", {}), settings.get("working", {})
        most = {**long_term, **of_tier}.get("max_tokens")
        said: Section = {
            "daily_log_enabled": daily.get("enabled", True),
            "daily_log_auto_write": False not in (daily.get("auto_write"), working.get("auto_write")),
            "long_term_inject": False not in (of_tier.get("inject"), long_term.get("inject")),
            **({} if most is None else {"long_term_max_tokens": most}),
            **{name: value for name, value in section.items() if name != "tiers"},
        }
        if tiers:
            said["tiers"] = [tier for tier in tiers if settings.get(tier, {}).get("enabled", True)]
        memory = convert(said, model.AgentMemorySettings)
        try:
            rules_with(DigestRules(), memory.v1)
        except BadInput as error:
            self._files.tell(file, "memory.v1", str(error))
        return memory

    def _contract(self, file: str, contract: Section | None) -> Section | None:
        """The contract as a JSON Schema, also when it was written as a flat map of fields."""
        if not contract:
            return None
        properties = contract.get("properties")
        nested = isinstance(properties, dict) and all(
            isinstance(one, dict | bool) for one in properties.values()
        )
        if nested or isinstance(contract.get("type"), str | list) or not _SCHEMA_WORDS.isdisjoint(contract):
            fields = mapping(properties).items()
            needed = [name for name, field in fields if mapping(field).get("x-awp-required") is True]
            return {"type": "object", **contract, **_required(contract, needed)}
        for name, field in contract.items():
            if not isinstance(field, dict | str | None):
                message = f"write {{type: …}} here, not {kind_of(field)}"
                self._files.tell(file, f"output.contract.{name}", message, "R9")
        return {"type": "object", **_fields(contract)}


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
