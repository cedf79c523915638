"""A workflow as files again, in one dialect: what `load` reads back is the same workflow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from msgspec import to_builtins

from .load import patterns_in
from .model import AGENT_FILE, WORKFLOW_FILE, Agent, Node, Workflow
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


def _workflow(workflow: Workflow) -> Any:
    plain = to_builtins(workflow)
    policy, memory, kept = plain["policy"], plain["memory"], workflow.kept
    rules = [{"from": one["source"], "to": one["to"], "fields": one["fields"]} for one in policy["rules"]]
    sharing = _some(policy, "strategy", "never_share", "sensitive_fields", "validation") | {"rules": rules}
    tiers = {name: {"enabled": one["enabled"], **one["settings"]} for name, one in memory["tiers"].items()}
    graph = [_node(node, workflow.agents) for node in workflow.nodes]
    degradation = [_some(one) for one in plain["degradation"]]
    document = {
        "awp": workflow.awp,
        "workflow": {name: plain[name] for name in ("name", "version", "description")},
        "orchestration": _some({"graph": graph, "execution": plain["execution"], "degradation": degradation}),
        "state": _some(policy, "model", "limits")
        | _some(plain["start"])
        | {"persistence": plain["persistence"], "sharing": _some(sharing)},
        "memory": _whole(_some({**memory, "tiers": tiers, "kept": None}), memory["kept"]),
    }
    if workflow.policy.patterns != patterns_in(Reader(Notes(Path()), WORKFLOW_FILE, "", kept)):
        document["security"] = {"redaction": {"patterns": policy["patterns"]}}
    if workflow.max_depth != Workflow("", "").max_depth:
        document["delegation_loop"] = {"budget": {"max_depth": workflow.max_depth}}
    return _whole(document, kept)


def _node(node: Node, agents: dict[str, Agent]) -> Any:
    plain = {**to_builtins(node), "kept": None}
    plain["agent"] = agents[node.agent].place if node.agent in agents else node.agent
    plain["enabled"] = None if node.enabled is True else node.enabled
    for name, short in (("subworkflow", "path"), ("timeout", "per_agent")):
        if name in node.kept:
            plain[name] = {short: plain[name]}
    whole = "depends_on" in node.kept
    plain["depends_on"] = [
        one if whole or one["condition"] != "success" else one["id"] for one in plain["depends_on"]
    ]
    shares = {} if node.share_output is None else {"share_output": node.share_output}
    return _whole(_some(plain) | shares, node.kept)


def _agent(agent: Agent) -> Any:
    plain = to_builtins(agent)
    memory, kept = plain["memory"], plain["memory"].pop("kept")
    if "tiers" in kept:  # settings were written beside some of them
        memory["tiers"] = {
            tier: {"enabled": tier in agent.memory.tiers} for tier in (*memory["tiers"], *kept["tiers"])
        }
    document = {
        **_some(plain, "awp_agent", "runtime"),
        **({} if agent.may_emit is None else {"may_emit": plain["may_emit"]}),
        "identity": _some(plain, "id", "role", "description"),
        "output": {"format": agent.output_format, "contract": agent.contract},
        "memory": _whole(memory, kept),
    }
    return _whole(document, agent.kept)


def _some(section: dict[str, Any], *names: str) -> dict[str, Any]:
    """What these fields say, or all of them, without nothing, no text and no entries; False and 0 stay."""
    return {name: section[name] for name in names or section if section[name] not in (None, "", (), [], {})}


def _whole(ours: Any, kept: Any) -> Any:
    """What the model says and what was kept beside it, put together at every depth."""
    if isinstance(ours, dict) and isinstance(kept, dict):
        return {name: _whole(ours.get(name), kept.get(name)) for name in {**ours, **kept}}
    if isinstance(ours, list) and isinstance(kept, list) and len(ours) == len(kept):
        return [_whole(*pair) for pair in zip(ours, kept, strict=True)]
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
