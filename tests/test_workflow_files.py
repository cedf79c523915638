"""Workflow files: read in every dialect, refused with all that is wrong."""

from __future__ import annotations

import os
import string
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from commonplace.errors import BadInput, CommonplaceError, TooLarge
from commonplace.workflow import schema
from commonplace.workflow.files import Files, read_yaml
from commonplace.workflow.load import examine, load
from commonplace.workflow.model import (
    WORKFLOW_FILE,
    AgentMemorySettings,
    BadWorkflow,
    Dependency,
    Execution,
    FanIn,
    FanOut,
    Loop,
    Problem,
    Retry,
    Tier,
)
from tests.workflows import Documents, agent_file, changed, example, placeless, small, write

WRITER, ANALYST = agent_file("report_writer"), agent_file("research_analyst")


def problems_of(folder: Path, documents: Documents) -> list[Problem]:
    return examine(write(folder, documents))[1]


# The good path.


@pytest.mark.spec("7.6", "2.6")
def test_the_complete_example_loads(tmp_path: Path) -> None:
    workflow, problems = examine(write(tmp_path, example()))
    assert workflow is not None
    assert [(one.level, one.path) for one in problems] == [("warning", "memory.access_control")]
    assert "quality_reviewer" in problems[0].message

    assert workflow.name == "research-and-write"
    assert [node.id for node in workflow.nodes] == ["research_analyst", "report_writer", "quality_reviewer"]
    assert workflow.node("report_writer").depends_on == (Dependency("research_analyst"),)
    assert workflow.start.initial == {"context": {"topic": "quantum computing"}}
    assert workflow.start.auto_inject["run_timestamp"] == "${now}"
    assert workflow.memory.tiers["long_term"] == Tier(True, {"file": "MEMORY.md", "max_size_kb": 100})
    assert workflow.memory.tiers["semantic"].enabled is False
    assert workflow.memory.access_control["report_writer"]["long_term"] == "read"
    assert workflow.agents["report_writer"].memory == AgentMemorySettings()
    assert workflow.agents["report_writer"].document["model"] == {"name": "some-model", "temperature": 0.2}
    assert workflow.folder == str(tmp_path)

    policy = workflow.policy
    assert policy.strategy == "selective"
    assert [(rule.source, rule.to, rule.fields) for rule in policy.rules] == [
        ("research_analyst", ("report_writer",), ("findings", "summary")),
        ("report_writer", ("quality_reviewer",), ("draft", "metadata")),
    ]
    assert policy.agent("quality_reviewer").depends_on == ("research_analyst", "report_writer")
    assert policy.agent("research_analyst").not_shareable == ("raw_api_responses",)
    assert policy.agent("report_writer").sensitive == ("author_mail",)
    assert policy.secret_fields == {"api_credentials", "raw_api_responses", "author_mail"}


@pytest.mark.spec("7.6")
def test_a_small_workflow_gets_every_default(tmp_path: Path) -> None:
    workflow = load(write(tmp_path, small("scout")))
    assert workflow.execution == Execution()
    assert workflow.policy.strategy == "full"
    assert workflow.policy.validation == "warn"
    assert workflow.persistence.path == "data/state"
    assert {name: tier.enabled for name, tier in workflow.memory.tiers.items()} == {
        "long_term": True,
        "working": True,
        "episodic": True,
        "semantic": False,
    }
    assert workflow.memory.tiers["working"].settings == {"directory": "memory"}
    assert workflow.memory.tiers["semantic"].settings["index_path"] == "data/embeddings"
    assert workflow.max_depth == 4
    assert workflow.delegation is None


FLAT = {
    "findings": {"type": "list"},
    "summary": "str",
    "raw_api_responses": {"type": "object", "shareable": False},
    "confidence": {"type": "float", "minimum": 0, "maximum": 1, "required": True},
}
FLAT_MEMORY = {
    "workspace_dir": "workspace",
    "long_term": {"enabled": True, "max_size_kb": 100},
    "daily_log": {"enabled": True, "retention_days": 30},
    "episodic": True,
    "semantic": {"enabled": False},
}
FILE_TIERS = {
    "long_term": {"file": "MEMORY.md", "max_size_kb": 100},
    "working": {"directory": "memory", "daily_log": {"retention_days": 30}},
}
GRAPH = "orchestration.graph[1]"
EXECUTION = "orchestration.execution"

SAME: dict[str, list[tuple[str, str, object]]] = {
    "the agent by its id": [(WORKFLOW_FILE, f"{GRAPH}.agent", "report_writer")],
    "no agent named": [(WORKFLOW_FILE, f"{GRAPH}.agent", ...)],
    "the agent's folder with a slash": [(WORKFLOW_FILE, f"{GRAPH}.agent", "./agents/report_writer/")],
    "the agent's file": [(WORKFLOW_FILE, f"{GRAPH}.agent", "agents/report_writer/agent.awp.yaml")],
    "one dependency": [(WORKFLOW_FILE, f"{GRAPH}.depends_on", "research_analyst")],
    "dependency as id": [(WORKFLOW_FILE, f"{GRAPH}.depends_on[0]", {"id": "research_analyst"})],
    "dependency as agent": [
        (WORKFLOW_FILE, f"{GRAPH}.depends_on[0]", {"agent": "research_analyst", "condition": "success"})
    ],
    "rules with from_agent": [
        (
            WORKFLOW_FILE,
            "state.sharing.rules[0]",
            {
                "from_agent": "research_analyst",
                "to_agents": ["report_writer"],
                "fields": ["findings", "summary"],
            },
        )
    ],
    "nested timeouts": [
        (WORKFLOW_FILE, EXECUTION, {"timeout": {"per_agent": 120, "total": 300}, "on_error": "abort"})
    ],
    "error handling": [
        (WORKFLOW_FILE, EXECUTION, {"mode": "sequential", "error_handling": {"default": "stop"}})
    ],
    "all defaults": [(WORKFLOW_FILE, EXECUTION, ...), (WORKFLOW_FILE, "state.limits", ...)],
    "persistence as a switch": [(WORKFLOW_FILE, "state.persistence", True)],
    "flat contract": [(ANALYST, "output.contract", FLAT)],
    "flat memory": [
        (WORKFLOW_FILE, "memory.tiers", ...),
        *((WORKFLOW_FILE, f"memory.{name}", value) for name, value in FLAT_MEMORY.items()),
    ],
    "file tiers": [(WORKFLOW_FILE, "memory.tiers", FILE_TIERS)],
    "path with the workspace": [
        (WORKFLOW_FILE, "memory.tiers.long_term", {"path": "workspace/MEMORY.md", "max_size_kb": 100}),
        (WORKFLOW_FILE, "memory.tiers.working", {"path": "workspace/memory", "retention": 30}),
    ],
    "daily log beside working": [(WORKFLOW_FILE, "memory.tiers.daily_log", {"retention_days": 30})],
    "agent's daily log nested": [
        (
            WRITER,
            "memory",
            {"daily_log": {"enabled": True, "auto_write": True}, "long_term": {"inject": True}},
        )
    ],
    "agent's memory as a switch": [(WRITER, "memory", True)],
    "nothing said of an agent's memory": [(WRITER, "memory", ...)],
}


@pytest.mark.spec("7.6")
@pytest.mark.parametrize("dialect", SAME)
def test_the_same_workflow_in_another_dialect_is_the_same(dialect: str, tmp_path: Path) -> None:
    documents = example()
    for file, path, value in SAME[dialect]:
        documents = changed(documents, file, path, value)
    said = load(write(tmp_path / "a", documents))
    assert placeless(said) == placeless(load(write(tmp_path / "b", example())))


NODE: list[tuple[str, object, str, object]] = [
    ("share_input", ["context", "scout.answer"], "share_input", {"": ("context",), "scout": ("answer",)}),
    ("share_input", ["scout"], "share_input", {"scout": ("*",)}),
    ("share_input", {"scout": ["answer"]}, "share_input", {"scout": ("answer",)}),
    ("share_output", [], "share_output", ()),
    ("depends_on", [{"id": "scout", "expr": "x > 1"}], "depends_on", (Dependency("scout", "x > 1"),)),
    (
        "depends_on",
        [{"agent": "scout", "condition": "expression", "when": "x"}],
        "depends_on",
        (Dependency("scout", "x"),),
    ),
    (
        "depends_on",
        [{"agent": "scout", "condition": "always"}],
        "depends_on",
        (Dependency("scout", "always"),),
    ),
    ("enabled", False, "enabled", False),
    ("enabled", "state.scout.confidence > 0.5", "enabled", "state.scout.confidence > 0.5"),
    ("on_failure", "abort", "on_failure", "stop"),
    ("on_failure", "skip", "on_failure", "skip"),
    ("timeout", 5, "timeout", 5),
    ("timeout", {"per_agent": 5}, "timeout", 5),
    ("retry", {"max_retries": 2, "backoff": "linear"}, "retry", Retry(max_attempts=3, backoff="linear")),
    ("loop", {"max_iterations": 3, "condition": "x"}, "loop", Loop(max_iterations=3, condition="x")),
    ("loop", {"type": "interactive", "prompt_field": "q"}, "loop", Loop("interactive", prompt_field="q")),
    ("fan_out", {"source": "state.scout.answer"}, "fan_out", FanOut("state.scout.answer")),
    ("fan_in", {"strategy": "majority"}, "fan_in", FanIn("majority")),
    ("note", "kept", "document", {"id": "writer", "note": "kept"}),
]


@pytest.mark.spec("7.6", "2.6")
@pytest.mark.parametrize(("key", "value", "attribute", "expected"), NODE)
def test_what_a_node_may_say(
    key: str, value: object, attribute: str, expected: object, tmp_path: Path
) -> None:
    documents = changed(small("scout", "writer"), WORKFLOW_FILE, f"orchestration.graph[1].{key}", value)
    workflow = load(write(tmp_path, documents))
    assert getattr(workflow.node("writer"), attribute) == expected
    if attribute == "share_input":
        assert workflow.policy.agent("writer").takes == expected


@pytest.mark.spec("7.6")
def test_error_handling_says_what_happens_before_and_after_the_retries(tmp_path: Path) -> None:
    handling = {"default": "retry", "max_retries": 3, "on_final_failure": "continue"}
    documents = changed(small("scout"), WORKFLOW_FILE, f"{EXECUTION}.error_handling", handling)
    execution = load(write(tmp_path, documents)).execution
    assert (execution.retry.max_attempts, execution.on_error) == (4, "continue")


@pytest.mark.spec("2.8")
def test_flags_of_a_flat_contract_hold_at_every_depth(tmp_path: Path) -> None:
    contract = {
        "person": {
            "type": "dict",
            "properties": {"mail": {"type": "str", "sensitive": True, "required": True}},
        },
        "notes": {"type": "list", "items": {"type": "dict", "properties": {"raw": {"shareable": False}}}},
        "anything": {"type": "any", "required": True},
        "confidence": {"type": "number", "minimum": 0, "maximum": 1},
    }
    documents = changed(small("scout"), agent_file("scout"), "output.contract", contract)
    policy = load(write(tmp_path, documents)).policy.agent("scout")
    assert policy.sensitive == ("mail",)
    assert policy.not_shareable == ("raw",)
    assert policy.contract is not None
    assert policy.contract["required"] == ["anything"]
    assert policy.contract["properties"]["person"]["required"] == ["mail"]
    assert policy.contract["properties"]["anything"] == {}


@pytest.mark.spec("2.7")
def test_what_is_redacted_comes_from_every_section_that_names_it(tmp_path: Path) -> None:
    documents = small("scout") | {}
    for path, value in {
        "security.redaction.patterns": [r"sk-\w+"],
        "observability.redaction.patterns": [{"name": "mail", "pattern": r"\S{1,100}@\S{1,100}"}, r"sk-\w+"],
        "security.redact_patterns": [r"\d{16}"],
        "security.sensitive_fields": ["token"],
        "state.sharing": {"strategy": "full", "sensitive_fields": ["password"]},
    }.items():
        documents = changed(documents, WORKFLOW_FILE, path, value)
    workflow = load(write(tmp_path, documents))
    assert workflow.policy.patterns == (r"sk-\w+", r"\S{1,100}@\S{1,100}", r"\d{16}")
    assert workflow.policy.sensitive_fields == ("password", "token")
    assert workflow.document["security"] == documents[WORKFLOW_FILE]["security"]


@pytest.mark.spec("6.3")
@pytest.mark.parametrize("place", ["", "orchestration.", "settings."])
def test_the_delegation_loop_may_stand_in_three_places(place: str, tmp_path: Path) -> None:
    section = {"max_depth": 2, "auto_curation_enabled": False}
    documents = changed(small("scout"), WORKFLOW_FILE, f"{place}delegation_loop", section)
    graph = load(write(tmp_path / "graph", documents))
    assert (graph.max_depth, graph.delegation) == (2, None)  # the graph is run
    documents = changed(documents, WORKFLOW_FILE, "orchestration.engine", "delegation_loop")
    workflow = load(write(tmp_path / "loop", documents))
    assert workflow.max_depth == 2
    assert workflow.delegation is not None
    assert not workflow.delegation.auto_curation_enabled


@pytest.mark.spec("7.6")
def test_a_subworkflow_is_loaded_with_the_workflow_and_its_problems_are_told(tmp_path: Path) -> None:
    documents = small("scout", "inner")
    documents = changed(documents, WORKFLOW_FILE, "orchestration.graph[1].subworkflow", "parts/inner")
    del documents[agent_file("inner")]
    documents |= {f"parts/inner/{name}": document for name, document in small("digger").items()}
    workflow = load(write(tmp_path / "good", documents))
    assert workflow.node("inner").agent == ""
    assert [node.id for node in workflow.subworkflows["parts/inner"].nodes] == ["digger"]

    documents = changed(documents, f"parts/inner/{WORKFLOW_FILE}", "workflow.name", "Not Good")
    [problem] = problems_of(tmp_path / "bad", documents)
    assert (problem.file, problem.rule) == (f"parts/inner/{WORKFLOW_FILE}", "R2")


@pytest.mark.spec("7.6")
def test_an_agent_may_live_in_a_folder_of_another_name(tmp_path: Path) -> None:
    documents = small("scout")
    documents["people/the-scout/agent.awp.yaml"] = documents.pop(agent_file("scout"))
    documents = changed(documents, WORKFLOW_FILE, "orchestration.graph[0].agent", "people/the-scout")
    workflow = load(write(tmp_path, documents))
    assert workflow.agents["scout"].place == "people/the-scout"


@pytest.mark.spec("7.6")
def test_an_agents_file_may_have_its_short_name(tmp_path: Path) -> None:
    documents = small("scout", "writer")
    documents["agents/scout/agent.yml"] = documents.pop(agent_file("scout"))
    documents["agents/writer/agent.yml"] = "not: read"
    workflow = load(write(tmp_path / "good", documents))
    assert placeless(workflow) == placeless(load(write(tmp_path / "usual", small("scout", "writer"))))
    named = changed(documents, W, "orchestration.graph[0].agent", "agents/scout/agent.yml")
    assert placeless(load(write(tmp_path / "named", named))) == placeless(workflow)

    documents = changed(documents, "agents/scout/agent.yml", "output.contract", {"_meta": "str"})
    problems = problems_of(tmp_path / "bad", documents)
    assert {one.file for one in problems} == {"agents/scout/agent.yml"}
    assert {one.rule for one in problems} == {"R13", "R17"}


@pytest.mark.spec("7.6")
def test_conditions_are_shown_to_the_one_who_can_judge_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def judge(expression: str) -> str | None:
        seen.append(expression)
        return "ends too early" if expression.endswith("(") else None

    node = {"id": "writer", "depends_on": [{"id": "scout", "expr": "f("}], "enabled": "ok"}
    documents = changed(small("scout", "writer"), WORKFLOW_FILE, "orchestration.graph[1]", node)
    [problem] = problems_of(tmp_path, documents)
    assert problem.path == "orchestration.graph[1].depends_on[0]"
    assert "'f(' is not an expression" in problem.message

    monkeypatch.setattr("commonplace.workflow.rules.check_expression", judge)
    _, problems = examine(tmp_path)
    assert seen == ["f(", "ok"]
    assert [(one.path, one.message) for one in problems] == [
        ("orchestration.graph[1].depends_on[0]", "ends too early")
    ]


# What is wrong.

W = WORKFLOW_FILE
BROKEN: list[tuple[str, str, object, str, str]] = [
    # file, path, value, rule, where the problem is told ("" where the change was made)
    (W, "awp", "1.0", "R1", ""),
    (W, "awp", "v1.0.0", "R1", ""),
    (W, "awp", 1, "R1", ""),
    (W, "awp", ..., "R1", "awp"),
    (WRITER, "awp_agent", "1", "R1", ""),
    (W, "workflow.name", "Research", "R2", ""),
    (W, "workflow.name", "trailing-", "R2", ""),
    (W, "workflow.name", ..., "R2", "workflow.name"),
    (W, "orchestration.graph[1].id", "research_analyst", "R5", ""),
    (W, "orchestration.graph[0].depends_on", ["quality_reviewer"], "R6", ""),
    (W, "orchestration.graph[1].depends_on[0]", "nobody", "R7", ""),
    (
        W,
        "orchestration.graph[1].depends_on[0]",
        {"condition": "always"},
        "R7",
        "orchestration.graph[1].depends_on[0].id",
    ),
    (
        W,
        "orchestration.degradation",
        [{"node": "nobody", "action": "skip"}],
        "R7",
        "orchestration.degradation[0].node",
    ),
    (W, "orchestration.graph[1].agent", "agents/nobody", "R8", ""),
    (W, "orchestration.graph[1].agent", "agents/research_analyst", "R8", ""),
    (W, "orchestration.graph[1].subworkflow", "nowhere", "R8", ""),
    (W, "orchestration.graph[1].subworkflow", "./", "R6", ""),
    (W, "orchestration.graph[1].subworkflow", {}, "R8", ""),
    (
        W,
        "orchestration.graph[1].depends_on[0]",
        {"id": "research_analyst", "condition": "always", "when": "x"},
        "",
        "orchestration.graph[1].depends_on[0].when",
    ),
    (WRITER, "identity.id", "somebody_else", "R8", "@orchestration.graph[1].agent"),
    (WRITER, "output.contract", ..., "R9", "output.contract"),
    (WRITER, "output.contract", "a string", "R9", ""),
    (WRITER, "output.contract", {"draft": 5}, "R9", "output.contract.draft"),
    (WRITER, "output.contract.properties.draft.type", "no such type", "R9", "output.contract"),
    (WRITER, "output.contract.type", "array", "R9", "output.contract"),
    (WRITER, "output.contract.properties.draft.$ref", "http://example.com/x", "R9", "output.contract"),
    (WRITER, "output.contract.properties.draft.x-awp-sensitive", "maybe", "R9", "output.contract"),
    (WRITER, "tools.define", [{"name": "memory.forget_all"}], "R10", "tools.define[0]"),
    (WRITER, "tools.custom", {"web.spider": {}}, "R10", "tools.custom.web.spider"),
    (W, "orchestration.graph[2].id", "Q", "R12", ""),
    (WRITER, "identity.id", "x_", "R12", ""),
    (W, "state.initial._meta", {}, "R13", ""),
    (W, "state.auto_inject._trace", "x", "R13", ""),
    (W, "state.required_fields[1]", "_errors", "R13", ""),
    (WRITER, "output.contract.properties._workflow", {}, "R13", ""),
    (W, "security.redaction.patterns", ["(", "ok"], "R14", "security.redaction.patterns[0]"),
    (W, "observability.redaction.patterns", [5], "R14", "observability.redaction.patterns[0]"),
    (W, "security.redact_patterns", "x", "R14", ""),
    (W, "state.sharing.strategy", ..., "R16", "state.sharing.strategy"),
    (W, "state.sharing.strategy", "some", "R16", ""),
    (W, "state.sharing.rules[0].from", "nobody", "R16", ""),
    (W, "state.sharing.rules[1].to", ["nobody"], "R16", "state.sharing.rules[1].to[0]"),
    (W, "state.sharing.rules[1].fields", ..., "R16", "state.sharing.rules[1]"),
    (W, "state.sharing.rules[0].fields[1]", "sumary", "R17", ""),
    (W, "orchestration.graph[0].share_output[1]", "sumary", "R17", ""),
    (W, "orchestration.graph[1].share_input", {"nobody": ["x"]}, "R16", ""),
    (
        W,
        "orchestration.graph[1].share_input",
        {"research_analyst": ["x"]},
        "R17",
        "orchestration.graph[1].share_input.research_analyst[0]",
    ),
    (
        WRITER,
        "output.contract.properties.confidence.type",
        "string",
        "R17",
        "output.contract.properties.confidence",
    ),
    (
        WRITER,
        "output.contract.properties.confidence.maximum",
        100,
        "R17",
        "output.contract.properties.confidence",
    ),
    (W, "security.audit", {"algorithm": "md5"}, "R18", "security.audit.algorithm"),
    (W, "delegation_loop.budget.max_depth", 11, "R32", ""),
    (W, "delegation_loop.max_depth", 11, "R32", ""),
    (W, "settings.delegation_loop.max_depth", -1, "R32", ""),
    (W, "orchestration.engine", "magic", "", ""),
    (W, "orchestration.graph", "research_analyst", "", ""),
    (W, "orchestration.graph[2].depends_on[0]", 7, "", ""),
    (W, "orchestration.graph[2].enabled", 7, "", ""),
    (W, "orchestration.graph[2].on_failure", "explode", "", ""),
    (W, "orchestration.graph[2].timeout", "soon", "", ""),
    (W, "orchestration.graph[2].retry", {"backoff": "random"}, "", "orchestration.graph[2].retry.backoff"),
    (
        W,
        "orchestration.graph[2].retry",
        {"retryable": ["auth_error"]},
        "",
        "orchestration.graph[2].retry.retryable",
    ),
    (
        W,
        "orchestration.graph[2].loop",
        {"max_iterations": 0},
        "",
        "orchestration.graph[2].loop.max_iterations",
    ),
    (W, "orchestration.graph[2].fan_out", {"variable": "x"}, "", "orchestration.graph[2].fan_out.source"),
    (W, "orchestration.graph[2].fan_in", {"strategy": "best"}, "", "orchestration.graph[2].fan_in.strategy"),
    (W, "orchestration.execution.mode", "wild", "", ""),
    (W, "orchestration.execution.timeout_total", -5, "", ""),
    (W, "state.model", "blackboard", "", ""),
    (W, "state.initial", ["context"], "", ""),
    (W, "state.required_fields[0]", 5, "", ""),
    (W, "state.persistence.format", "pickle", "", ""),
    (W, "state.persistence.path", "/var/state", "", ""),
    (W, "state.limits.max_fields", "many", "", ""),
    (W, "state.limits.max_fields", True, "", ""),
    (W, "state.sharing.validation", "sometimes", "", ""),
    (W, "state", "full", "", ""),
    (W, "memory.workspace_dir", "../elsewhere", "", ""),
    (W, "memory.tiers.long_term.file", "../../MEMORY.md", "", ""),
    (W, "memory.tiers.long_term.max_size_kb", "big", "", ""),
    (W, "memory.tiers.semantic.enabled", "perhaps", "", ""),
    (W, "memory.access_control.report_writer.long_term", "write", "", ""),
    (W, "memory.access_control.report_writer.short_term", "read", "", ""),
    (W, "memory.curation", {"schedule": "hourly"}, "", "memory.curation.schedule"),
    (WRITER, "memory.tiers", ["dreams"], "", "memory.tiers[0]"),
    (WRITER, "memory.search_enabled", "yes please", "", ""),
    (WRITER, "runtime.callable", "no function", "", ""),
    (WRITER, "runtime.command", "rm -rf /", "", ""),
    (WRITER, "", "- a\n- list\n", "", ""),
    (WRITER, "", "a: [", "", ""),
    (WRITER, "", "", "", ""),
]


@pytest.mark.spec("7.6", "2.3", "2.6", "2.7", "2.8")
@pytest.mark.parametrize(("file", "path", "value", "rule", "told"), BROKEN)
def test_what_is_wrong_is_told_with_its_rule_and_its_place(
    file: str, path: str, value: object, rule: str, told: str, tmp_path: Path
) -> None:
    documents = changed(example(), file, path, value)
    with pytest.raises(BadWorkflow) as caught:
        load(write(tmp_path, documents))
    place = (W, told[1:]) if told.startswith("@") else (file, told or path)
    found = [(one.file, one.path, one.rule) for one in caught.value.problems]
    assert (*place, rule) in found, found
    assert caught.value.status == 422
    assert caught.value.as_dict()["problems"]


@pytest.mark.spec("7.6")
def test_all_problems_are_told_at_once_in_the_order_of_the_files(tmp_path: Path) -> None:
    documents = example()
    for file, path, value in (
        (WRITER, "output.contract.properties.confidence.type", "string"),
        (W, "state.sharing.strategy", "some"),
        (W, "orchestration.graph[1].depends_on[0]", "nobody"),
        (W, "workflow.name", "X"),
        (W, "awp", "1"),
        (ANALYST, "identity.id", "X"),
    ):
        documents = changed(documents, file, path, value)
    with pytest.raises(BadWorkflow) as caught:
        load(write(tmp_path, documents))
    assert [(one.file, one.rule) for one in caught.value.problems] == [
        (W, "R1"),
        (W, "R2"),
        (W, "R7"),
        (W, "R16"),
        (ANALYST, "R12"),
        (WRITER, "R17"),
    ]
    assert all(str(one) in str(caught.value) for one in caught.value.problems)


@pytest.mark.spec("7.6")
def test_a_cycle_is_named_in_full(tmp_path: Path) -> None:
    documents = changed(example(), W, "orchestration.graph[0].depends_on", ["quality_reviewer"])
    [problem] = [one for one in problems_of(tmp_path, documents) if one.rule == "R6"]
    cycle = problem.message.split(" ")[2::2][:4]
    assert cycle[0] == cycle[-1]
    assert set(cycle) == {"research_analyst", "report_writer", "quality_reviewer"}


@pytest.mark.spec("7.6")
@pytest.mark.parametrize("validation", ["warn", "strict"])
def test_a_confidence_is_said_to_be_filled_in_only_where_it_is(tmp_path: Path, validation: str) -> None:
    documents = changed(example(), WRITER, "output.contract.properties.confidence", ...)
    documents = changed(documents, W, "state.sharing.validation", validation)
    [problem] = [one for one in problems_of(tmp_path, documents) if one.path == "output.contract"]
    assert problem.message.startswith("declare confidence: {type: number")
    assert ("until then 0.5 is filled in" in problem.message) is (validation == "warn")


WARNED: list[tuple[str, str, object, str, str, bool]] = [
    # file, path, value, rule, where it is told, whether it is an error under strict validation
    (
        WRITER,
        "output.contract.properties.confidence.maximum",
        ...,
        "R17",
        "output.contract.properties.confidence",
        True,
    ),
    (W, "state.required_fields[1]", "confidence", "R17", "state.required_fields[1]", True),
    (W, "state.required_fields[1]", "customer", "", "state.required_fields[1]", False),
    (W, "state.sharing.never_share[1]", "summary", "R16", "state.sharing.rules[0].fields[1]", False),
    (W, "state.sharing.strategy", "full", "R16", "state.sharing.rules", False),
    (
        W,
        "orchestration.graph[1].share_input",
        ["customer"],
        "R16",
        "orchestration.graph[1].share_input",
        False,
    ),
    (W, "memory.access_control.report_writer.working", ..., "", "memory.access_control.report_writer", False),
    (W, "memory.access_control.nobody", {}, "", "memory.access_control.nobody", False),
    (
        W,
        "memory.access_control.report_writer.episodic",
        "read_write",
        "",
        "memory.access_control.report_writer.episodic",
        False,
    ),
    (W, "observability.audit", {"hash_chain": False}, "R18", "observability.audit.hash_chain", False),
    (W, "delegation_loop.max_depth", 6, "R32", "delegation_loop.max_depth", False),
]


@pytest.mark.spec("7.6", "3.9")
@pytest.mark.parametrize(("file", "path", "value", "rule", "told", "strictly"), WARNED)
def test_what_may_be_a_mistake_is_a_warning(
    file: str, path: str, value: object, rule: str, told: str, strictly: bool, tmp_path: Path
) -> None:
    documents = changed(example(), file, path, value)
    workflow, problems = examine(write(tmp_path / "lenient", documents))
    assert workflow is not None, problems
    assert ("warning", file, told, rule) in [(one.level, one.file, one.path, one.rule) for one in problems]
    documents = changed(documents, W, "state.sharing.validation", "strict")
    workflow, _ = examine(write(tmp_path / "strict", documents))
    assert (workflow is None) is strictly


@pytest.mark.spec("7.6")
@pytest.mark.parametrize("documents", [{}, {W: ""}, {W: "just text"}, {W: "[]"}])
def test_a_folder_without_a_workflow_says_so(documents: Documents, tmp_path: Path) -> None:
    with pytest.raises(BadWorkflow, match=W):
        load(write(tmp_path, documents))
    assert examine(tmp_path / "nowhere")[0] is None


@pytest.mark.spec("7.6")
def test_a_graph_of_more_nodes_than_anyone_draws_is_refused_quickly(tmp_path: Path) -> None:
    graph = [{"id": f"n{i}", "subworkflow": "s", "depends_on": [f"n{i - 1}"] * (i > 0)} for i in range(1_500)]
    start = time.monotonic()
    problems = problems_of(tmp_path, changed(small("scout"), W, "orchestration.graph", graph))
    assert any("1,500 nodes" in one.message for one in problems)
    assert time.monotonic() - start < 10


# Hostile files.

BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 10)}]\n"
    for old, new in zip(string.ascii_lowercase, string.ascii_lowercase[1:10], strict=False)
)
HOSTILE: dict[str, str | bytes] = {
    "bomb of aliases": BOMB,
    "bomb of text": f"a: &a {'x' * 100_000}\nb: [{','.join(['*a'] * 20)}]",
    "bomb of depth": "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 90)),
    "many aliases": f"a: &a x\nb: [{','.join(['*a'] * 101)}]",
    "alias of itself": "a: &a [*a]",
    "alias of nothing": "a: *b",
    "python object": "a: !!python/object/apply:os.system ['touch hacked']",
    "python name": "a: !!python/name:os.system",
    "python module": "a: !!python/module:antigravity",
    "own tag": "a: !secret x",
    "string tag": "a: !!str 5",
    "binary tag": "a: !!binary aGk=",
    "tag on a key": "!!str a: 1",
    "twice the same key": "a: 1\nb: 2\na: 3",
    "twice, deeper": "x:\n  a: 1\n  'a': 2",
    "merged twice": "a: &a {x: 1}\nb:\n  <<: *a\n  <<: *a",
    "merge of text": "a:\n  <<: text",
    "10 MB": "a: " + "x" * 10_000_000,
    "many values": "[" + "1," * 200_000 + "1]",
    "deep lists": "[" * 10_000,
    "deep lists, closed": "[" * 70 + "]" * 70,
    "deep mappings": "{a: " * 70 + "1" + "}" * 70,
    "deep blocks": "".join(" " * i + f"a{i}:\n" for i in range(500)),
    "two documents": "a: 1\n---\nb: 2",
    "NaN": "a: .nan",
    "infinity": "a: -.inf",
    "too large a float": "a: 1.0e+999",
    "too large an integer": "a: 99999999999999999999",
    "an integer of 100,000 digits": "a: " + "9" * 100_000,
    "an integer of no digits": "a: 0x_",
    "number as a key": "1: a",
    "null as a key": "~: a",
    "list as a key": "[a]: b",
    "mapping as a key": "? {a: b}\n: c",
    "true as a key": "yes: a",
    "NUL": b"a: \0",
    "control characters": b"a: \x07",
    "not UTF-8": b"a: \xff\xfe",
    "UTF-16": "a: 1".encode("utf-16"),
    "binary junk": bytes(range(256)) * 20,
    "half a character": 'a: "\\ud800"',
    "unclosed": "a: [1, 2",
    "tabs": "a:\n\t- b",
    "a version that is not known": "%YAML 9.9\n---\na: 1",
}


@pytest.mark.spec("7.6")
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_yaml_is_refused_quickly_and_nothing_is_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "system", lambda _: pytest.fail("it was run"))
    content = HOSTILE[name]
    path = tmp_path / "hostile.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    before, start = set(sys.modules), time.monotonic()
    with pytest.raises(BadInput, match=r"hostile\.yaml") as caught:
        read_yaml(path)
    assert time.monotonic() - start < 30
    assert {module for module in set(sys.modules) - before if not module.startswith("encodings")} == set()
    assert [one.name for one in tmp_path.iterdir()] == ["hostile.yaml"]
    assert len(str(caught.value)) < 400
    if name != "10 MB":
        assert "line " in str(caught.value)


@pytest.mark.spec("7.6")
def test_a_file_over_the_limit_is_not_read_and_odd_places_are_refused(tmp_path: Path) -> None:
    (tmp_path / "big.yaml").write_text("a: " + "x" * 100)
    with pytest.raises(TooLarge, match="103 bytes; at most 50"):
        read_yaml(tmp_path / "big.yaml", max_bytes=50)
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(BadInput, match="no plain file"):
        read_yaml(tmp_path / "pipe.yaml")
    for name in (".", "missing.yaml"):
        with pytest.raises(BadInput):
            read_yaml(tmp_path / name)


@pytest.mark.spec("7.6")
def test_ordinary_yaml_reads_as_plain_data(tmp_path: Path) -> None:
    path = tmp_path / "fine.yaml"
    path.write_text(
        "\ufeff# a comment\ndate: 2026-03-23\ntime: 12:30\nat: 2026-03-23T10:00:00Z\non_: yes\nempty:\n"
        "number: 1_000\nhex: 0x1F\nreal: 2.50\nbase: &base {a: 1, b: 2}\nuse: {<<: *base, b: 3}\n"
        "again: *base\ntext: |\n  two\n  lines\n'<<': quoted\n"
    )
    assert read_yaml(path) == {
        "date": "2026-03-23",
        "time": "12:30",
        "at": "2026-03-23T10:00:00Z",
        "on_": True,
        "empty": None,
        "number": 1000,
        "hex": 31,
        "real": 2.5,
        "base": {"a": 1, "b": 2},
        "use": {"a": 1, "b": 3},
        "again": {"a": 1, "b": 2},
        "text": "two\nlines\n",
        "<<": "quoted",
    }


# Paths.

PATHS = [
    (W, "orchestration.graph[1].agent"),
    (W, "orchestration.graph[1].subworkflow"),
    (W, "state.persistence.path"),
    (W, "memory.workspace_dir"),
    (W, "memory.tiers.long_term.file"),
    (W, "memory.tiers.working.directory"),
    (W, "memory.tiers.semantic.index_path"),
]
ESCAPES = [
    "../x",
    "a/../../x",
    "/etc/passwd",
    "C:\\x",
    "c:/x",
    "a\\..\\x",
    "~/x",
    "x\0y",
    "..",
    "a/..",
    "  ",
    "//x",
]


@pytest.mark.spec("7.6")
@pytest.mark.parametrize(("file", "path"), PATHS)
@pytest.mark.parametrize("escape", ESCAPES)
def test_no_path_leaves_the_folder(file: str, path: str, escape: str, tmp_path: Path) -> None:
    _, problems = examine(write(tmp_path, changed(example(), file, path, escape)))
    assert (file, path, "") in [(one.file, one.path, one.rule) for one in problems if one.level == "error"]


@pytest.mark.spec("7.6")
@pytest.mark.parametrize(("file", "path"), PATHS)
def test_no_link_leads_out_of_the_folder(file: str, path: str, tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    write(outside, example())
    write(inside, changed(example(), file, path, "link"))
    for place in ("", "agents", "workspace"):
        (inside / place).mkdir(exist_ok=True)
        (inside / place / "link").symlink_to(outside)
    _, problems = examine(inside)
    assert any(one.level == "error" and "link" in one.message for one in problems)


@pytest.mark.spec("7.6")
def test_a_link_in_the_place_of_a_file_is_not_followed_out(tmp_path: Path) -> None:
    write(tmp_path / "outside", example())
    write(tmp_path / "inside", changed(example(), WRITER, "", None))
    (tmp_path / "inside" / WRITER).parent.mkdir()
    (tmp_path / "inside" / WRITER).symlink_to(tmp_path / "outside" / WRITER)
    _, problems = examine(tmp_path / "inside")
    assert ["is a link" in one.message for one in problems if one.level == "error"] == [True]


@given(st.text(alphabet="ab./\\~:C \0\u202e", max_size=12))
@settings(max_examples=200, deadline=None)
def test_a_path_that_is_let_through_stays_inside(path: str) -> None:
    root = Path("/srv/team/flow")
    if Files(root).escape(path) is None:
        assert Path(os.path.normpath(root / path)).is_relative_to(root)
        assert "\\" not in path
        assert path.isprintable()


# What may stand in a good file.


names = st.from_regex(r"[a-z][a-z0-9_]{0,8}[a-z0-9]", fullmatch=True)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
plain = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
extras = st.dictionaries(texts.map(lambda text: f"x-{text}"), plain, max_size=2)
seconds = st.floats(0.1, 1000)
retries = st.fixed_dictionaries(
    {},
    optional={
        "max_attempts": st.integers(1, 9),
        "backoff": st.sampled_from(["none", "linear", "exponential"]),
        "base": seconds,
        "retryable": st.lists(st.sampled_from(["timeout", "rate_limit", "odd"]), max_size=2),
    },
)


@st.composite
def nodes(draw: st.DrawFn, id: str, before: list[str]) -> dict[str, Any]:
    words = st.sampled_from(["success", "failure", "always", "state.a.b > 1"])
    conditions = words | texts.map(lambda text: f"state.a.b != {text!r}")
    drawn = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "enabled": st.booleans() | st.just("state.a.b"),
                "on_failure": st.sampled_from(["stop", "abort", "continue", "retry", "skip"]),
                "timeout": seconds | st.fixed_dictionaries({"per_agent": seconds, "x-more": plain}),
                "share_output": st.just(["answer"]) | st.just([]),
                "share_input": st.lists(
                    st.sampled_from([*before, "topic", *(f"{one}.answer" for one in before)])
                ),
                "retry": retries.map(lambda retry: retry | {"x-more": 1}),
                "loop": st.fixed_dictionaries({"max_iterations": st.integers(1, 9), "condition": conditions}),
                "fan_out": st.fixed_dictionaries({"source": st.just("state.a.b")} | {"x-more": plain}),
                "fan_in": st.fixed_dictionaries({"target_field": texts}),
            },
        )
    )
    if before:
        depends_on: list[Any] = [
            draw(
                st.just(one)
                | st.fixed_dictionaries(
                    {"agent": st.just(one), "condition": conditions}, optional={"x-note": plain}
                )
            )
            for one in draw(st.lists(st.sampled_from(before), unique=True, max_size=3))
        ]
        drawn["depends_on"] = depends_on
    return {**drawn, **draw(extras), "id": id}


@st.composite
def workflows(draw: st.DrawFn) -> Documents:
    ids = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    documents = small(*ids)
    for id in ids:
        agent = documents[agent_file(id)]
        agent |= draw(extras)
        agent["identity"] |= {"role": draw(texts), **draw(extras)}
        agent["memory"] = draw(extras) | {"daily_log": draw(st.booleans())}
        agent["output"]["contract"] |= draw(
            st.dictionaries(names, st.just({"type": "str", "shareable": False}))
        )
        agent["output"]["format"] = draw(texts)
    root = documents[WORKFLOW_FILE]
    root |= draw(extras)
    root["workflow"] |= {"version": draw(texts), "description": draw(texts)} | draw(extras)
    root["orchestration"] |= {
        "graph": [draw(nodes(id, ids[:index])) for index, id in enumerate(ids)],
        "execution": {"timeout": {"total": draw(seconds)}, "retry": draw(retries), **draw(extras)},
        "degradation": [{"node": ids[0], "fallback": ids[-1], **draw(extras)}] * draw(st.integers(0, 2)),
    }
    rule = {"from": ids[0], "to": draw(st.sampled_from([[], ids[-1], ids])), "fields": ["answer"]}
    root["state"] = {
        "initial": draw(st.dictionaries(texts, plain, max_size=2)),
        "sharing": {
            "strategy": draw(st.sampled_from(["full", "selective", "isolated"])),
            "rules": [{**rule, **draw(extras)} for _ in range(draw(st.integers(0, 2)))],
            "never_share": draw(st.lists(texts, max_size=2)),
        },
        **draw(extras),
    }
    tier = st.booleans() | extras.map(lambda more: {"path": "here", "inject": True, **more})
    root["memory"] = {
        draw(st.sampled_from(["tiers", "x-tiers"])): draw(
            st.dictionaries(st.sampled_from(["long_term", "working", "daily_log", "episodic"]), tier)
        ),
        "daily_log": draw(tier),
        "semantic": draw(tier),
        "curation": draw(extras),
        **draw(extras),
    }
    root["security"] = {"redact_patterns": ["x+"], "sensitive_fields": draw(st.lists(texts, max_size=2))}
    root["settings"] = draw(extras) | {
        "delegation_loop": {"max_depth": draw(st.integers(0, 10)), **draw(extras)}
    }
    return documents


@pytest.mark.spec("7.6")
@given(workflows())
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_workflow_of_good_parts_loads_and_keeps_what_it_does_not_know(documents: Documents) -> None:
    with TemporaryDirectory() as folder:
        workflow = load(write(Path(folder), documents))
    root = documents[WORKFLOW_FILE]
    assert [node.id for node in workflow.nodes] == [node["id"] for node in root["orchestration"]["graph"]]
    assert workflow.document == root
    assert [node.document for node in workflow.nodes] == root["orchestration"]["graph"]


@pytest.mark.spec("7.6")
def test_every_section_that_is_not_ours_is_kept(tmp_path: Path) -> None:
    documents = example()
    more = {
        "communication": {"bus": "local"},
        "env": {"A": "1"},
        "settings": {"deep": [1, {"x": None}]},
        "x": 1,
    }
    documents[W] |= more
    documents = changed(documents, W, "state.sharing.rules[1].reason", "they asked")
    documents = changed(documents, W, "orchestration.execution.color", "blue")
    documents = changed(documents, WRITER, "output.style", "terse")
    workflow = load(write(tmp_path, documents))
    assert workflow.document == documents[W]
    assert workflow.agents["report_writer"].document == documents[WRITER]


# Anything at all.

fragments = st.sampled_from(
    [
        ": ",
        "- ",
        "\n",
        "  ",
        "[",
        "]",
        "{",
        "}",
        "&a ",
        "*a",
        "!x ",
        "|",
        ">",
        "'",
        '"',
        "#",
        "?",
        "---\n",
        "\t",
        "0x",
    ]
)


@given(
    st.binary(max_size=200)
    | st.lists(fragments | texts, max_size=30).map(lambda parts: "".join(parts).encode())
)
@settings(max_examples=200, deadline=None)
def test_no_bytes_raise_anything_but_our_errors(content: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / WORKFLOW_FILE
        path.write_bytes(content)
        try:
            read_yaml(path)
        except CommonplaceError:
            pass
        assert examine(folder)[0] is None


def paths_of(value: object, path: str = "") -> list[str]:
    if isinstance(value, dict):
        return [path, *(p for name, one in value.items() for p in paths_of(one, f"{path}.{name}".strip(".")))]
    if isinstance(value, list):
        return [path, *(p for index, one in enumerate(value) for p in paths_of(one, f"{path}[{index}]"))]
    return [path]


EVERYWHERE = [(file, path) for file, one in example().items() for path in paths_of(one) if path]


@pytest.mark.spec("7.6")
@given(st.lists(st.tuples(st.sampled_from(EVERYWHERE), plain), min_size=1, max_size=3))
@settings(max_examples=60, deadline=None)
def test_any_value_anywhere_is_read_or_told(changes: list[tuple[tuple[str, str], object]]) -> None:
    documents = example()
    for (file, path), value in changes:
        try:
            documents = changed(documents, file, path, value)
        except (KeyError, IndexError, TypeError, AttributeError):
            continue  # an earlier change took the place away
    with TemporaryDirectory() as folder:
        workflow, problems = examine(write(Path(folder) / "a", documents))
        assert (workflow is None) == any(one.level == "error" for one in problems)


@pytest.mark.spec("7.6", "2.6")
def test_a_misspelt_key_is_told_because_what_it_meant_is_off(tmp_path: Path) -> None:
    documents = example()
    state, graph = documents[W]["state"], documents[W]["orchestration"]["graph"]
    state["sharing"]["never_shared"] = ["raw"]
    state["inital"] = {}
    graph[0]["share_imput"] = ["x"]
    graph[0]["retry"] = {"max_attempt": 3}
    graph[0]["colour"] = "red"  # like nothing that anybody reads
    workflow, problems = examine(write(tmp_path, documents))
    assert workflow is not None
    told = {one.path.rpartition(".")[2]: one.message for one in problems if "did you mean" in one.message}
    assert {key: text.split("'")[-2] for key, text in told.items()} == {
        "never_shared": "never_share",
        "inital": "initial",
        "share_imput": "share_input",
        "max_attempt": "max_attempts",
    }


@pytest.mark.spec("7.6", "3.9")
def test_so_is_one_in_memory_s_section_and_in_an_agent_s_file(tmp_path: Path) -> None:
    documents = changed(example(), W, "memory.tiers.long_term.max_size", 5)
    documents = changed(documents, WRITER, "memory.search_enable", False)
    problems = [one for one in problems_of(tmp_path, documents) if "did you mean" in one.message]
    assert sorted((one.file, one.path, one.message.split("'")[-2]) for one in problems) == [
        (WRITER, "memory.search_enable", "search_enabled"),
        (W, "memory.tiers.long_term.max_size", "max_size_kb"),
    ]


@pytest.mark.spec("7.6")
@pytest.mark.parametrize("words", [schema.WORKFLOW, schema.AGENT])
def test_the_files_schema_is_json_schema_itself(words: schema.Schema) -> None:
    Draft202012Validator.check_schema(words)


@pytest.mark.spec("7.6")
@pytest.mark.parametrize("id", ["owner", "runtime", "person"])
def test_no_agent_has_the_name_of_somebody_else(id: str, tmp_path: Path) -> None:
    _, problems = examine(write(tmp_path, small(id)))
    assert "R12" in [one.rule for one in problems if one.level == "error"]
