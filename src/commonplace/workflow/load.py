"""A workflow's files, in any dialect they are written in, as the one model that everything else sees.

The files fit their schema, and what a schema can say of dialects is in one form (`files.py`). Here, what may stand in
more than one place is brought together, and what the files name (agents, folders, subworkflows) is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec.structs import replace

from ..access.patterns import bad_pattern
from ..access.rights import EVERYBODY, TIERS
from ..errors import shown
from ..ledger.encoding import convert
from ..memory.portions import merged
from ..state.policy import AgentMemory, AgentPolicy, Persistence, Policy, SharingRule, Start
from . import model
from .agent_files import AgentFiles
from .files import Files, Level, Section, at_path, gathered_from, is_file, mapping
from .model import WORKFLOW_FILE, BadWorkflow, Node, Problem, Workflow
from .rules import ancestors, check, parts

MAX_NODES = 1_000
MAX_NESTED = 8
DEEP = 5
"""How deep managers may delegate without a warning."""
CHARS_A_TOKEN = 4

# Of each tier: whether it is on by default, the setting that says where its files are, and its defaults. How large
# MEMORY.md may be and how long logs are kept are the book's settings, unless a file says otherwise.
_TIERS: dict[str, tuple[bool, str, dict[str, Any]]] = {
    "long_term": (True, "file", {"file": "MEMORY.md"}),
    "working": (True, "directory", {"directory": "memory"}),
    "episodic": (True, "path", {}),
    "semantic": (False, "index_path", {"index_path": "data/embeddings", "similarity_metric": "cosine"}),
}
_NOT_SETTINGS = {"enabled", "path", "file", "directory", "index_path", "daily_log"}
_NOT_SETTINGS |= {"auto_curate", "curate_interval"}
_PATTERNS = ("security.redaction.patterns", "observability.redaction.patterns", "security.redact_patterns")

Texts = tuple[str, ...]


def load(place: str | os.PathLike[str]) -> Workflow:
    """The workflow in this folder, or in this file, to be run. BadWorkflow lists all that keeps it from running;
    `examine` tells what else there is to say."""
    workflow, problems = _read(Path(place), to_run=True)
    if workflow is None:
        raise BadWorkflow(os.fspath(place), tuple(each for each in problems if each.level == "error"))
    return workflow


def examine(place: str | os.PathLike[str]) -> tuple[Workflow | None, list[Problem]]:
    """The workflow, or None when there is an error, and all problems in the order of the files.

    Whatever the files hold, it is told as problems. What a run does without, and a file should not, is an error
    here; a file that lies alone is examined without its agents.
    """
    return _read(Path(place), to_run=False)


def _read(place: Path, to_run: bool) -> tuple[Workflow | None, list[Problem]]:
    if not is_file(place):
        return _examine(place, 0, {}, place, to_run)
    workflow, problems = _examine(place.parent, 0, {}, place.parent, to_run, place.name)
    return workflow, [
        replace(problem, file=place.name) if problem.file == WORKFLOW_FILE else problem
        for problem in problems
    ]


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
    agents = AgentFiles(files)
    workflow = _Loader(files, agents, document).workflow()
    files.problems += agents.missing if to_run or agents.paths or not agents.missing else [_ALONE]
    files.problems += check(workflow, agents.paths, to_run)
    problems, inner = _in_file_order(files), {}
    for path in dict.fromkeys(node.subworkflow for node in workflow.nodes if node.subworkflow):
        real = os.path.realpath(folder / path)
        if real not in done:
            done[real], more = _examine(folder / path, level + 1, done, top, to_run)
            problems += [replace(problem, file=f"{path}/{problem.file}") for problem in more]
        inner[path] = done[real]
    if None in inner.values() or any(problem.level == "error" for problem in problems):
        return None, problems
    return replace(workflow, subworkflows=inner, folder=os.fspath(folder)), problems


_ALONE = Problem(
    "warning", WORKFLOW_FILE, "orchestration.graph", "R8",
    "no agent's folder lies beside this file: agents were not looked at, and it cannot run without them",
)  # fmt: skip


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

    def __init__(self, files: Files, agents: AgentFiles, document: Section) -> None:
        self._files, self._agents, self._document = files, agents, document

    def _tell(self, path: str, message: str, rule: str = "", level: Level = "error") -> None:
        self._files.tell(WORKFLOW_FILE, path, message, rule, level)

    def _section(self, path: str) -> Section:
        return mapping(at_path(self._document, path))

    def workflow(self) -> Workflow:
        written = mapping(self._files.documents[WORKFLOW_FILE])
        orchestration, state = self._section("orchestration"), self._section("state")
        nodes = self._nodes(orchestration.get("graph", []), at_path(written, "orchestration.graph"))
        max_depth, delegation = self._delegation(orchestration.get("engine"), nodes)
        memory = self._memory(self._section("memory"))
        persistence = {**state.get("persistence", {})}
        if not self._path(persistence, "state.persistence", "path"):
            persistence.pop("path", None)
        more = {
            "awp": self._document.get("awp", ""),
            "nodes": nodes,
            "execution": self._execution(orchestration.get("execution", {})),
            "degradation": [
                self._degradation(f"orchestration.degradation[{index}]", section)
                for index, section in enumerate(orchestration.get("degradation", []))
            ],
            "policy": self._policy(state, nodes, memory, delegation is not None),
            "start": convert(state, Start),
            "persistence": convert(persistence, Persistence),
            "memory": memory,
            "agents": self._agents.by_id,
            "max_depth": max_depth,
            "delegation": delegation,
            "document": written,
        }
        return convert({"name": "", **self._section("workflow"), **more}, Workflow)

    def _path(self, section: Section, at: str, name: str, below: str = "") -> str:
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
            self._node(f"orchestration.graph[{index}]", node, mapping(written[index]), ids)
            for index, node in enumerate(graph[:MAX_NODES])
        )

    def _node(self, at: str, node: Section, written: Section, ids: frozenset[str]) -> Node:
        id, is_sub = node.get("id", ""), "subworkflow" in node
        waits_for = enumerate(node.get("depends_on", []))
        inner = "config" if node.get("type") == "delegation_loop" else "delegation_loop"
        delegation = self._node_delegation(at, inner, node)
        agent = node.get("agent", "" if is_sub else id)
        more = {
            "id": id,
            "agent": delegation.manager
            if delegation is not None
            else self._agents.id_of(f"{at}.agent", agent, id)
            if agent
            else "",
            "delegation": delegation,
            "depends_on": [
                self._dependency(f"{at}.depends_on[{index}]", other) for index, other in waits_for
            ],
            "share_input": _share_input(node.get("share_input", []), ids),
            "timeout": at_path(node, "timeout.per_agent"),
            "retry": _retry(node["retry"]) if "retry" in node else None,
            "subworkflow": self._subworkflow(at, node["subworkflow"]) if is_sub else "",
            "max_depth": self._depth(
                (at, node),
                (f"{at}.budget", at_path(node, "budget")),
                (f"{at}.{inner}.budget", at_path(node, f"{inner}.budget")),
                (f"{at}.{inner}", at_path(node, inner)),
            ),
            "document": written,
        }
        return convert({**node, **more}, Node)

    def _subworkflow(self, at: str, section: Section) -> str:
        root, place = self._files.root, f"{at}.subworkflow"
        path = self._path({"subworkflow": section.get("path")}, at, "subworkflow")
        path = PurePosixPath(path).as_posix() if path else ""
        if not path or not is_file(root / path / WORKFLOW_FILE):
            message = f"write a folder below this one that has a {WORKFLOW_FILE}"
            self._agents.missing.append(Problem("error", WORKFLOW_FILE, place, "R8", message))
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
        names = ("per_agent", "total", "idle")
        other = gathered_from(section, **{f"timeout_{name}": f"timeout.{name}" for name in names})
        other |= gathered_from(self._section("settings"), max_concurrent="max_concurrent")
        handling = section.get("error_handling", {})
        if "default" in handling:
            default = handling["default"]
            other["on_error"] = handling.get("on_final_failure", default) if default == "retry" else default
        retry = _retry(section.get("retry", {}), handling.get("max_retries"))
        return convert({**other, **section, "retry": retry}, model.Execution)

    def _degradation(self, at: str, section: Section) -> model.Degradation:
        fallback = section.get("fallback", "")
        implied = "fallback" if fallback else "cached_results" if "max_staleness" in section else "skip"
        section = {"node": "", "action": implied, **section}
        if not section["node"]:
            self._tell(f"{at}.node", "write it; there is no default")
        if section["action"] == "fallback" and not fallback:
            self._tell(f"{at}.fallback", "write the agent to run instead")
        id = self._agents.id_of(f"{at}.fallback", fallback, "") if fallback else ""
        return convert({**section, "fallback": id}, model.Degradation)

    def _delegation(self, engine: str | None, nodes: tuple[Node, ...]) -> tuple[int, model.Delegation | None]:
        """How deep managers may delegate, and the loop that is run in place of a graph, if one is, wherever the files
        speak of it."""
        max_depth, section = Workflow("", "").max_depth, None
        for path in ("delegation_loop", "orchestration.delegation_loop", "settings.delegation_loop"):
            written = at_path(self._document, path)
            if written is not None:
                place, section = path, written
                depth = self._depth((f"{path}.budget", section.get("budget")), (path, section))
                max_depth = max_depth if depth is None else depth
        if engine != "delegation_loop" and (engine is not None or nodes or section is None):
            return max_depth, None
        place = "delegation_loop" if section is None else place
        return max_depth, self._loop(place, {} if section is None else section, "manager")

    def _node_delegation(self, at: str, inner: str, node: Section) -> model.Delegation | None:
        """The delegation loop that does a node's work, if one does. The node's own agent is its manager, unless the
        loop names another."""
        if inner not in node and node.get("type") != "delegation_loop":
            return None
        return self._loop(
            f"{at}.{inner}", node.get(inner, {}), node.get("agent") or node.get("id") or "manager"
        )

    def _loop(self, at: str, section: Section, manager: str) -> model.Delegation:
        budget = dict(section.get("budget", {}))
        if "max_total_tokens" in budget:
            budget.setdefault("max_total_chars", budget["max_total_tokens"] * CHARS_A_TOKEN)
        around = self._section("orchestration").get("context_budget", {})
        more = {
            "manager": self._of_a_loop(f"{at}.manager", section.get("manager", manager)),
            "worker": self._of_a_loop(f"{at}.worker", section.get("worker", "")),
            "budget": budget,
            "context_budget": {**around, **section.get("context_budget", {})},
        }
        self._agents.read_all()
        return convert({**section, **more}, model.Delegation)

    def _of_a_loop(self, at: str, name: str) -> str:
        """The id of an agent of a loop. It needs no file: the caller may give a function for it."""
        if not name:
            return ""
        missing = len(self._agents.missing)
        id = self._agents.id_of(at, name, "")
        if len(self._agents.missing) > missing:
            problem = self._agents.missing.pop()
            message = f"{problem.message.partition(';')[0]}: it can be run only with a function that is given for it"
            self._tell(at, message, "R8", "warning")
        return id or PurePosixPath(name).name

    def _depth(self, *places: tuple[str, object]) -> int | None:
        """How deep the first of these sections that says so lets runs delegate."""
        depths = [(at, at_path(section, "max_depth")) for at, section in places]
        for at, depth in depths:
            if depth is not None and depth > DEEP:
                message = f"{depth} levels deep is a lot; write {DEEP} or less unless you must"
                self._tell(f"{at}.max_depth", message, "R32", "warning")
        return next((depth for _, depth in depths if depth is not None), None)

    # rules for state and memory

    def _policy(
        self, state: Section, nodes: tuple[Node, ...], memory: model.MemorySettings, loops: bool
    ) -> Policy:
        """In a delegation loop any agent may take part; what the files say of agents holds for those of that name."""
        sharing = state.get("sharing", {})
        above, agents = ancestors(nodes), self._agents.by_id
        secret = (
            *sharing.get("sensitive_fields", ()),
            *self._section("security").get("sensitive_fields", ()),
        )
        policies = {node.id: _agent_policy(node, agents.get(node.agent), above, memory) for node in nodes}
        more = {
            "rules": [
                self._rule(f"state.sharing.rules[{index}]", rule)
                for index, rule in enumerate(sharing.get("rules", []))
            ],
            "sensitive_fields": list(dict.fromkeys(secret)),
            "patterns": self._patterns(),
            "agents": None if loops else policies or None,
            "others": _of_workers(policies, agents, memory)
            if loops
            else _others({node.id for node in nodes}, agents, memory),
        }
        names = ("model", "limits", "sharing.strategy", "sharing.never_share", "sharing.validation")
        own = gathered_from(state, **{name.rpartition(".")[2]: name for name in names})
        return convert({**own, **more}, Policy)

    def _rule(self, at: str, section: Section) -> SharingRule:
        source, fields = section.get("from", ""), tuple(section.get("fields", ()))
        if not source or not fields:
            message = "write from: agent, to: [agents] and fields: [names]"
            self._tell(at if source else f"{at}.from", message, "R16")
        return SharingRule(
            source, tuple(id for id in section.get("to", ()) if id not in ("*", "all")), fields
        )

    def _patterns(self) -> list[str]:
        """The regular expressions that are redacted, from all the places that may hold them."""
        patterns: dict[str, None] = {}
        for place in _PATTERNS:
            for index, item in enumerate(at_path(self._document, place) or ()):
                pattern: Any = item.get("pattern", item.get("regex")) if isinstance(item, dict) else item
                if (reason := bad_pattern(pattern)) is None:
                    patterns[pattern] = None
                else:
                    message = f"{shown(pattern)} is not a pattern that can be used: {reason}"
                    self._tell(f"{place}[{index}]", message, "R14")
        return list(patterns)

    def _memory(self, section: Section) -> model.MemorySettings:
        workspace = self._path(section, "memory", "workspace_dir") or "workspace"
        curation = gathered_from(
            section,
            enabled="tiers.long_term.auto_curate long_term.auto_curate",
            schedule="tiers.long_term.curate_interval long_term.curate_interval",
        )
        more = {
            "curation": {**curation, **section.get("curation", {})},
            "tiers": {tier: self._tier(tier, section, workspace) for tier in TIERS},
        }
        return convert({**section, **more}, model.MemorySettings)

    def _tier(self, name: str, memory: Section, workspace: str) -> model.Tier:
        """One tier from all the places that speak of it; what a daily log says is the working tier's."""
        on, place, defaults = _TIERS[name]
        paths = [name, f"tiers.{name}"]
        if name == "working":
            paths += ["daily_log", "tiers.daily_log", "working.daily_log", "tiers.working.daily_log"]
        settings, below = dict(defaults), workspace if place in ("file", "directory") else ""
        switches = []
        for at in paths:
            section = mapping(at_path(memory, at))
            named = place if place in section else "path"
            path = self._path(section, f"memory.{at}", named, below)
            if named == "path" and below:  # it is seen from the workflow's folder
                path = path.removeprefix(f"{below}/")
            settings |= {key: value for key, value in section.items() if key not in _NOT_SETTINGS}
            settings |= {place: path} if path else {}
            switches += [section["enabled"]] if "enabled" in section else []
        return model.Tier(all(switches) if switches else on, settings)


def _retry(section: Section, max_retries: int | None = None) -> model.Retry:
    again = section.get("max_retries", max_retries)
    return convert({**({} if again is None else {"max_attempts": again + 1}), **section}, model.Retry)


def _share_input(written: list[str] | dict[str, list[str]], ids: frozenset[str]) -> dict[str, Texts]:
    """State fields under "", an agent's fields under its id, all of them as "*"."""
    if isinstance(written, dict):
        return {producer: tuple(names) for producer, names in written.items()}
    inputs: dict[str, Texts] = {}
    for entry in written:
        producer, dot, name = entry.partition(".")
        if producer not in ids:
            producer, name = "", entry
        inputs[producer] = (*inputs.get(producer, ()), name if dot or not producer else "*")
    return inputs


def _others(
    nodes: set[str], agents: dict[str, model.Agent], memory: model.MemorySettings
) -> dict[str, AgentPolicy]:
    """What holds for agents that are no nodes: fallbacks, those that access_control names, and everybody else."""
    anybody = AgentPolicy(memory=_memory_policy(model.AgentMemorySettings(tiers=TIERS), memory))
    policies = {EVERYBODY: anybody}
    for name in sorted({*agents, *memory.access_control} - nodes):
        agent = agents.get(name)
        policies[name] = replace(
            anybody,
            memory=anybody.memory if agent is None else _memory_policy(agent.memory, memory),
            access=memory.access_control.get(name, {}),
            may_emit=None if agent is None else agent.may_emit,
        )
    return policies


def _of_workers(
    nodes: dict[str, AgentPolicy], agents: dict[str, model.Agent], memory: model.MemorySettings
) -> dict[str, AgentPolicy]:
    """What holds for the agents of a delegation loop. Each one's contract is checked where it answers."""
    others = _others(set(), agents, memory)
    flagged = {
        id: replace(
            others[id],
            not_shareable=_flagged(agent.contract, "x-awp-shareable", False),
            sensitive=_flagged(agent.contract, "x-awp-sensitive", True),
        )
        for id, agent in agents.items()
    }
    return {**others, **flagged, **{id: replace(policy, contract=None) for id, policy in nodes.items()}}


def _agent_policy(
    node: Node, agent: model.Agent | None, above: dict[str, Texts], memory: model.MemorySettings
) -> AgentPolicy:
    contract = agent.contract if agent else None
    return AgentPolicy(
        contract=contract,
        share_output=node.share_output or (),
        takes=node.share_input,
        depends_on=above.get(node.id, ()),
        not_shareable=_flagged(contract, "x-awp-shareable", False),
        sensitive=_flagged(contract, "x-awp-sensitive", True),
        memory=_memory_policy(agent.memory if agent else model.AgentMemorySettings(), memory),
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
        reflection_threshold=own.reflection_threshold,
    )


def _flagged(schema: object, flag: str, value: bool) -> Texts:
    """The names of the properties, at any depth of a schema, that carry this flag."""
    properties = (pair for part in parts(schema) for pair in mapping(part.get("properties")).items())
    return tuple(dict.fromkeys(name for name, field in properties if mapping(field).get(flag) is value))
