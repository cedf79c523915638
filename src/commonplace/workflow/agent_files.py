"""Agents' files as the model sees them: found by the names that nodes give them, read once each."""

from __future__ import annotations

import os
from pathlib import PurePosixPath
from typing import Any

from ..errors import BadInput
from ..files.plain_yaml import kind_of
from ..ledger.encoding import convert
from ..memory.portions import DigestRules, rules_with
from .files import Files, Section, gathered_from, is_file, mapping
from .model import AGENT_FILE, WORKFLOW_FILE, Agent, AgentMemorySettings, Problem

AGENT_FILES = (AGENT_FILE, "agent.yml")

# The types of a flat contract that JSON Schema calls otherwise, and what only a JSON Schema can hold.
_TYPES = {"str": "string", "text": "string", "int": "integer", "float": "number", "bool": "boolean"}
_TYPES |= {"list": "array", "dict": "object", "map": "object"}
_SCHEMA_WORDS = {"$schema", "$ref", "$defs", "allOf", "anyOf", "oneOf"}


class AgentFiles:
    """The agents that were named so far, by their ids and by the folders of their files."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.by_id: dict[str, Agent] = {}
        self._by_folder: dict[str, Agent | None] = {}
        self.paths: dict[str, str] = {}
        """The file of each agent."""
        self.missing: list[Problem] = []
        """Agents and subworkflows that are named, and have no files."""

    def id_of(self, at: str, name: str, node: str) -> str:
        """The id of the agent that is named by its folder, or by a folder's name below agents/. `node` is the id that
        it must have, if it must."""
        if not node and name in self.by_id:
            return name
        path = PurePosixPath(name if "/" in name else f"agents/{name}")
        folder = (path.parent if path.name in AGENT_FILES else path).as_posix()
        paths = [f"{folder}/{file}" for file in AGENT_FILES if is_file(self._files.root / folder / file)]
        path_or_usual = paths[0] if paths else f"{folder}/{AGENT_FILE}"
        if reason := self._files.escape(name) or self._files.escape(path_or_usual):
            self._files.tell(WORKFLOW_FILE, at, reason)
            return ""
        if not paths:
            message = f"there is no {path_or_usual}; write it, or name a folder that has one"
            self.missing.append(Problem("error", WORKFLOW_FILE, at, "R8", message))
            return node
        if folder not in self._by_folder:
            self._by_folder[folder] = self._read(folder, paths[0])
        agent = self._by_folder[folder]
        if agent is None:
            return node
        if node and agent.id and agent.id != node:
            message = f"{paths[0]} is of the agent {agent.id!r}; give node and identity.id one id"
            self._files.tell(WORKFLOW_FILE, at, message, "R8")
        elif self.by_id.setdefault(agent.id, agent) is not agent:
            message = f"{agent.id!r} is also the id of another agent's file; give each its own"
            self._files.tell(WORKFLOW_FILE, at, message, "R5")
        return agent.id

    def read_all(self) -> None:
        """Read the files of all agents beside the workflow: a manager may dispatch to any of them."""
        try:
            names = sorted(os.listdir(self._files.root / "agents"))  # noqa: PTH208 (a link is told by id_of)
        except OSError:
            return
        for name in names:
            if any(is_file(self._files.root / "agents" / name / file) for file in AGENT_FILES):
                self.id_of("orchestration", name, "")

    def _read(self, folder: str, file: str) -> Agent | None:
        document = self._files.read(file)
        if document is None:
            return None
        id = document.get("identity", {}).get("id", "")
        self.paths.setdefault(id, file)
        more = {
            "id": id,
            "contract": self._contract(file, document.get("output", {}).get("contract")),
            "memory": self._memory(file, document.get("memory", {})),
            "document": self._files.documents[file],
            "folder": "" if folder == f"agents/{id}" else folder,
        }
        return convert({**document, **more}, Agent)

    def _memory(self, file: str, section: Section) -> AgentMemorySettings:
        settings = gathered_from(
            section,
            daily_log_enabled="daily_log.enabled",
            daily_log_auto_write="daily_log.auto_write tiers.working.auto_write",
            long_term_inject="tiers.long_term.inject long_term.inject",
            long_term_max_tokens="tiers.long_term.max_tokens long_term.max_tokens",
        )
        settings |= section
        tiers = settings.pop("tiers", None)
        if tiers:
            named = tiers if isinstance(tiers, dict) else {tier: {} for tier in tiers}
            settings["tiers"] = [tier for tier, switches in named.items() if switches.get("enabled", True)]
        memory = convert(settings, AgentMemorySettings)
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
            isinstance(field, dict | bool) for field in properties.values()
        )
        if nested or isinstance(contract.get("type"), str | list) or not _SCHEMA_WORDS.isdisjoint(contract):
            fields = mapping(properties).items()
            required = [name for name, field in fields if mapping(field).get("x-awp-required") is True]
            return {"type": "object", **contract, **_required(contract, required)}
        for name, field in contract.items():
            if not isinstance(field, dict | str | None):
                message = f"write {{type: …}} here, not {kind_of(field)}"
                self._files.tell(file, f"output.contract.{name}", message, "R9")
        return {"type": "object", **_as_schema(contract)}


def _required(schema: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """The keyword `required` with these names too, where there is anything to say."""
    listed = schema.get("required", [])
    if not names or not isinstance(listed, list):
        return {}
    return {"required": [*listed, *(name for name in names if name not in listed)]}


def _as_schema(fields: dict[str, Any]) -> dict[str, Any]:
    """`properties` and `required` of a flat map, whose fields may be maps of fields again."""
    properties, required = {}, []
    for name, written in fields.items():
        field: dict[str, Any] = {"type": written} if isinstance(written, str) else dict(mapping(written))
        if isinstance(field.get("required"), bool) and field.pop("required"):
            required.append(name)
        for flag in ("shareable", "sensitive"):
            if flag in field:
                field[f"x-awp-{flag}"] = field.pop(flag)
        if isinstance(kind := field.get("type"), str):
            field["type"] = _TYPES.get(kind, kind)
            if kind == "any":
                del field["type"]
        if isinstance(field.get("properties"), dict):
            below = _as_schema(field["properties"])
            field |= {"properties": below["properties"], **_required(field, below.get("required", []))}
        if isinstance(field.get("items"), dict | str):
            field["items"] = _as_schema({"items": field["items"]})["properties"]["items"]
        properties[name] = field
    return {"properties": properties, **_required({}, required)}
