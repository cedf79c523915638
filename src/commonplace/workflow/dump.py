"""A workflow as files again, in one dialect: what `load` reads back is the same workflow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from msgspec import to_builtins

from .load import patterns_in
from .model import AGENT_FILE, WORKFLOW_FILE, Agent, Dependency, Node, Workflow
from .yaml import Notes, Reader


def dump(workflow: Workflow) -> dict[str, str]:
    """The text of each file by its name below the workflow's folder, subworkflows included.

    Comments, aliases and the dialect of the files it was loaded from are gone; every section that was kept
    is there. Written to an empty folder, the files load as an equal workflow.
    """
    files = {WORKFLOW_FILE: _text(_workflow(workflow))}
    for agent in workflow.agents.values():
        files[f"{agent.place}/{AGENT_FILE}"] = _text(_agent(agent))
    for folder, inner in workflow.subworkflows.items():
        files |= {f"{folder}/{name}": text for name, text in dump(inner).items()}
    return files


def _workflow(workflow: Workflow) -> dict[str, Any]:
    policy, memory = workflow.policy, workflow.memory
    about = {"name": workflow.name, "version": workflow.version, "description": workflow.description}
    orchestration = {
        "graph": [_node(node, workflow.agents) for node in workflow.nodes],
        "execution": to_builtins(workflow.execution),
        "degradation": [_without_empty(to_builtins(one)) for one in workflow.degradation],
    }
    sharing = {
        "strategy": policy.strategy,
        "rules": [{"from": one.source, "to": one.to, "fields": one.fields} for one in policy.rules],
        "never_share": policy.never_share,
        "sensitive_fields": policy.sensitive_fields,
        "validation": policy.validation,
    }
    state = {
        "model": policy.model,
        **to_builtins(workflow.start),
        "persistence": to_builtins(workflow.persistence),
        "limits": to_builtins(policy.limits),
        "sharing": _without_empty(sharing),
    }
    plain = to_builtins(memory)
    tiers = {name: {"enabled": tier.enabled, **tier.settings} for name, tier in memory.tiers.items()}
    document = {
        "awp": workflow.awp,
        "workflow": about,
        "orchestration": _without_empty(orchestration),
        "state": _without_empty(state),
        "memory": _merged(_without_empty({**plain, "tiers": tiers, "kept": None}), plain["kept"]),
    }
    if policy.patterns != patterns_in(Reader(Notes(Path()), WORKFLOW_FILE, "", workflow.kept)):
        document["security"] = {"redaction": {"patterns": policy.patterns}}
    deep = workflow.max_depth != Workflow("", "").max_depth
    if deep or "delegation_loop" in workflow.kept or not workflow.nodes:
        document["delegation_loop"] = {"max_depth": workflow.max_depth}
    return _whole(document, workflow.kept)


def _node(node: Node, agents: dict[str, Agent]) -> dict[str, Any]:
    plain = {name: value for name, value in to_builtins(node).items() if name not in ("kept", "share_output")}
    kept = node.kept.get("depends_on", [{}] * len(node.depends_on))
    plain["agent"] = agents[node.agent].place if node.agent in agents else node.agent
    plain["depends_on"] = [_dependency(*pair) for pair in zip(node.depends_on, kept, strict=True)]
    plain["enabled"] = None if node.enabled is True else node.enabled
    for name, short in (("subworkflow", "path"), ("timeout", "per_agent")):
        if name in node.kept:
            plain[name] = {short: plain[name]}
    shares = {} if node.share_output is None else {"share_output": node.share_output}
    return _whole({**_without_empty(plain), **shares}, node.kept)


def _dependency(dependency: Dependency, kept: dict[str, Any]) -> object:
    plain = dependency.condition == "success" and not kept
    return dependency.id if plain else {"id": dependency.id, "condition": dependency.condition}


def _agent(agent: Agent) -> dict[str, Any]:
    memory = to_builtins(agent.memory)
    kept = memory.pop("kept")
    document = {
        "awp_agent": agent.awp_agent,
        "identity": _without_empty({"id": agent.id, "role": agent.role, "description": agent.description}),
        "runtime": agent.runtime,
        "output": {"format": agent.output_format, "contract": agent.contract},
        "memory": _merged(memory, kept),
    }
    return _whole(_without_empty(document), agent.kept)


def _without_empty(section: dict[str, Any]) -> dict[str, Any]:
    """Without what is not there: nothing, no text, no entries. False and 0 say something and stay."""
    return {
        name: value for name, value in section.items() if value is not None and value not in ("", (), [], {})
    }


def _whole(ours: dict[str, Any], kept: dict[str, Any]) -> dict[str, Any]:
    """What the model says and what was kept beside it, put together at every depth."""
    return {name: _merged(ours.get(name), kept.get(name)) for name in {**ours, **kept}}


def _merged(ours: Any, kept: Any) -> Any:
    if isinstance(ours, dict) and isinstance(kept, dict):
        return _whole(ours, kept)
    if isinstance(ours, list) and isinstance(kept, list) and len(ours) == len(kept):
        return [_merged(*pair) for pair in zip(ours, kept, strict=True)]
    return kept if ours is None else ours


class _Dumper(yaml.SafeDumper):
    """Every value written out, and text that an editor or another parser might change, in quotes."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, data: str) -> yaml.ScalarNode:
        style = None if data.isprintable() else "|" if data.replace("\n", "").isprintable() else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", data, style)


_Dumper.add_representer(str, _Dumper.represent_text)
_Dumper.add_representer(tuple, _Dumper.represent_list)


def _text(document: dict[str, Any]) -> str:
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return text
