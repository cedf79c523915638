"""Workflow folders for tests: the complete example of the format's reference, and ways to change it."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import yaml

from commonplace.workflow.model import AGENT_FILE, WORKFLOW_FILE, Workflow

FAST: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
Documents = dict[str, Any]
"""Plain documents by the name of their file; a text is written as it is, None means no such file."""

EXAMPLE = """
awp: "1.0.0"
workflow:
  name: research-and-write
  version: "1.2.0"
  description: Find out, write it down, look it over.
orchestration:
  engine: dag
  graph:
    - id: research_analyst
      agent: agents/research_analyst
      share_output: [findings, summary]
    - id: report_writer
      agent: agents/report_writer
      depends_on: [research_analyst]
      share_output: [draft, metadata]
    - id: quality_reviewer
      agent: agents/quality_reviewer
      depends_on: [report_writer]
  execution:
    mode: sequential
    timeout_per_agent: 120
    timeout_total: 300
    on_error: stop
state:
  model: shared_dict
  initial:
    context:
      topic: "quantum computing"
  required_fields:
    - context
  auto_inject:
    workflow_name: research-and-write
    run_timestamp: "${now}"
  persistence:
    enabled: true
    path: "data/state"
    format: json
    interval: per_agent
  limits:
    max_state_size_mb: 10.0
    max_field_size_mb: 1.0
    max_fields: 1000
  sharing:
    strategy: selective
    rules:
      - from: research_analyst
        to: report_writer
        fields:
          - findings
          - summary
      - from: report_writer
        to: quality_reviewer
        fields:
          - draft
          - metadata
    never_share:
      - raw_api_responses
    sensitive_fields:
      - api_credentials

memory:
  enabled: true
  workspace_dir: "workspace"
  tiers:
    long_term:
      enabled: true
      file: "MEMORY.md"
      max_size_kb: 100
    working:
      enabled: true
      directory: "memory"
      retention_days: 30
    episodic:
      enabled: true
    semantic:
      enabled: false
  access_control:
    research_analyst:
      long_term: read_write
      working: read_write
      episodic: read
    report_writer:
      long_term: read
      working: read_write
      episodic: read
"""

AGENT = """
awp_agent: "1.0.0"
identity:
  id: {id}
  role: worker
  description: Does its part.
runtime:
  callable: "team:{id}"
model: {{name: some-model, temperature: 0.2}}
prompt: {{system: Be brief.}}
tools:
  enabled: [memory.search, web.search]
output:
  format: json
  contract:
    type: object
    properties:
{fields}
      confidence: {{type: number, minimum: 0, maximum: 1}}
    required: [confidence]
memory:
  enabled: true
  long_term_inject: true
  long_term_max_tokens: 2000
  daily_log_enabled: true
  daily_log_auto_write: true
  search_enabled: true
  tiers: [long_term, working, episodic]
"""

ANSWERS: dict[str, dict[str, Any]] = {
    "research_analyst": {
        "findings": {"type": "array"},
        "summary": {"type": "string"},
        "raw_api_responses": {"type": "object", "x-awp-shareable": False},
    },
    "report_writer": {
        "draft": {"type": "string"},
        "metadata": {
            "type": "object",
            "properties": {"author_mail": {"type": "string", "x-awp-sensitive": True}},
        },
    },
    "quality_reviewer": {"verdict": {"type": "string"}},
}


def agent_file(id: str) -> str:
    return f"agents/{id}/{AGENT_FILE}"


def example() -> Documents:
    """The complete example, with the three agents that it speaks of."""
    documents: Documents = {WORKFLOW_FILE: yaml.safe_load(EXAMPLE)}
    for id, answers in ANSWERS.items():
        fields = "\n".join(f"      {name}: {json.dumps(field)}" for name, field in answers.items())
        documents[agent_file(id)] = yaml.safe_load(AGENT.format(id=id, fields=fields))
    return documents


def small(*ids: str) -> Documents:
    """A workflow of these agents without dependencies, and nothing else said."""
    graph: list[dict[str, Any]] = [{"id": id} for id in ids]
    documents: Documents = {
        WORKFLOW_FILE: {"awp": "1.0.0", "workflow": {"name": "small"}, "orchestration": {"graph": graph}}
    }
    for id in ids:
        confidence = {"type": "number", "minimum": 0, "maximum": 1}
        documents[agent_file(id)] = {
            "identity": {"id": id},
            "output": {"contract": {"answer": "string", "confidence": confidence}},
        }
    return documents


def changed(documents: Documents, file: str, path: str, value: object) -> Documents:
    """The same documents with another value at this path; `...` takes what is there out."""
    documents = copy.deepcopy(documents)
    if not path:
        documents[file] = value
        return documents
    *above, last = [int(part) if part.isdigit() else part for part in re.findall(r"[^.\[\]]+", path)]
    place: Any = documents[file]
    for part in above:
        if isinstance(place, dict) and place.get(part) is None:
            place[part] = {}
        place = place[part]
    if value is ...:
        del place[last]
    elif isinstance(place, list) and last == len(place):
        place.append(value)
    else:
        place[last] = value
    return documents


def write(folder: Path, documents: Documents) -> Path:
    for name, document in documents.items():
        if document is not None:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(
                document if isinstance(document, str) else yaml.dump(document, Dumper=FAST, sort_keys=False)
            )
    return folder


def placeless(workflow: Workflow) -> Workflow:
    """The workflow without the folders that it was loaded from and without its files' own words, to be compared with
    another."""
    from msgspec.structs import replace

    return replace(
        workflow,
        folder="",
        document={},
        nodes=tuple(replace(node, document={}) for node in workflow.nodes),
        agents={name: replace(agent, document={}) for name, agent in workflow.agents.items()},
        subworkflows={name: placeless(inner) for name, inner in workflow.subworkflows.items()},
    )
