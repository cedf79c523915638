"""A workflow as everything else sees it: one shape, whichever dialect its files were written in."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from ..access.rights import Permission
from ..errors import BadInput
from ..state.policy import Persistence, Policy, Start

WORKFLOW_FILE = "workflow.awp.yaml"
AGENT_FILE = "agent.awp.yaml"

OnFailure = Literal["stop", "continue", "retry", "skip"]
Count = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(ge=0.001)]
Depth = Annotated[int, msgspec.Meta(ge=0, le=10)]


class Problem(msgspec.Struct, frozen=True):
    """Something wrong with a workflow: where, against which rule, and what to write instead."""

    level: Literal["error", "warning"]
    file: str
    path: str
    rule: str
    message: str

    def __str__(self) -> str:
        place = f"{self.file}: {self.path}" if self.path else self.file
        return f"{self.level}: {place}: {f'[{self.rule}] ' if self.rule else ''}{self.message}"


class BadWorkflow(BadInput):
    """A workflow's files are not fit to run. `problems` has every error, in the order of the files."""

    code = "bad_workflow"
    status = 422

    def __init__(self, folder: str, problems: tuple[Problem, ...]) -> None:
        many = f"{len(problems)} errors" if len(problems) != 1 else "one error"
        listed = "\n".join(f"  {problem}" for problem in problems)
        super().__init__(f"the workflow in {folder!r} has {many}:\n{listed}")
        self.problems = problems

    def as_dict(self) -> dict[str, object]:
        return {**super().as_dict(), "problems": [msgspec.to_builtins(problem) for problem in self.problems]}


class Retry(msgspec.Struct, frozen=True):
    max_attempts: Count = 1
    backoff: Literal["none", "linear", "exponential"] = "none"
    base: float = 2.0
    max: float = 60.0
    retryable: tuple[str, ...] = ("timeout", "rate_limit", "server_error")


class Loop(msgspec.Struct, frozen=True):
    type: Literal["standard", "interactive"] = "standard"
    max_iterations: Count = 1
    condition: str = ""
    prompt_field: str = ""
    input_channel: str = ""


class FanOut(msgspec.Struct, frozen=True):
    source: str = ""
    variable: str = "item"
    max_parallel: Count = 4


class FanIn(msgspec.Struct, frozen=True):
    strategy: Literal["merge", "reduce", "first", "majority"] = "merge"
    target_field: str = "results"


class Dependency(msgspec.Struct, frozen=True):
    """`condition`: success, failure, always, or an expression."""

    id: str
    condition: str = "success"


class Node(msgspec.Struct, frozen=True):
    """One step of the graph. `agent` is the id of the agent that does it, or "" for a subworkflow."""

    id: str
    agent: str = ""
    depends_on: tuple[Dependency, ...] = ()
    share_output: tuple[str, ...] | None = None
    share_input: dict[str, tuple[str, ...]] = {}
    enabled: bool | str = True
    on_failure: OnFailure | None = None
    timeout: Seconds | None = None
    retry: Retry | None = None
    loop: Loop | None = None
    fan_out: FanOut | None = None
    fan_in: FanIn | None = None
    subworkflow: str = ""
    max_depth: int | None = None
    """How deep runs below this node may delegate; None: as deep as the workflow's."""
    delegation: Delegation | None = None
    """The delegation loop that does this node's work, if one does."""
    document: dict[str, Any] = {}
    """The node as it is written."""


class DelegationBudget(msgspec.Struct, frozen=True):
    """What a delegation may use up at most: iterations of each manager, workers and characters of all of them together,
    and seconds. Sub-managers get a share of what is left."""

    max_loops: Count = 20
    max_total_workers: Count = 30
    max_workers_per_iteration: Count = 6
    max_total_chars: Count = 4_000_000
    """Characters that managers and workers answer with."""
    max_wall_time: Seconds | None = None
    """None: as long as the workflow may take."""


class Termination(msgspec.Struct, frozen=True):
    """When a manager makes no progress: its workers' confidence has not grown by `min_confidence_delta` over the last
    `window` iterations, and they have found nothing new. It is warned once; the next time the loop ends."""

    enabled: bool = True
    window: Count = 3
    min_confidence_delta: float = 0.05
    action: Literal["warn_then_stop", "stop", "warn"] = "warn_then_stop"


class HistoryWindow(msgspec.Struct, frozen=True):
    """Of how many iterations a manager is given the whole results; of earlier ones it is given a line each."""

    full_results_window: Count = 3


class ContextBudget(msgspec.Struct, frozen=True):
    """How many characters of results a manager is given: in all, of each at least, and of one that does not fit."""

    total_chars: Count = 64_000
    min_per_entry: Count = 4_000
    preview_chars: Count = 2_000


class Delegation(msgspec.Struct, frozen=True):
    """A delegation loop: `manager` is the agent that decides, `worker` the one that does what is dispatched to workers
    that have no file and no function of their own."""

    manager: str = "manager"
    worker: str = ""
    budget: DelegationBudget = DelegationBudget()
    termination: Termination = Termination()
    history: HistoryWindow = HistoryWindow()
    context_budget: ContextBudget = ContextBudget()
    inherited_state_keys: tuple[str, ...] | None = None
    forbidden_inheritance_keys: tuple[str, ...] = ()
    auto_curation_enabled: bool = True
    blackboard_enabled: bool = True
    digest_enabled: bool = True


class Degradation(msgspec.Struct, frozen=True):
    """What to do when a node has failed for good: run `fallback` in its place, take `cached_results` of an
    earlier run no older than `max_staleness` seconds, or skip."""

    node: str
    action: Literal["fallback", "cached_results", "skip"]
    fallback: str = ""
    max_staleness: float = 3600.0


class Execution(msgspec.Struct, frozen=True):
    mode: Literal["sequential", "parallel", "conditional", "adaptive"] = "sequential"
    timeout_per_agent: Seconds = 120.0
    timeout_total: Seconds = 300.0
    timeout_idle: Seconds = 60.0
    on_error: OnFailure = "stop"
    retry: Retry = Retry()
    max_concurrent: Count = 4


class AgentMemorySettings(msgspec.Struct, frozen=True):
    enabled: bool = True
    long_term_inject: bool = True
    long_term_max_tokens: int = 2000
    daily_log_enabled: bool = True
    daily_log_auto_write: bool = True
    search_enabled: bool = True
    tiers: tuple[str, ...] = ("long_term", "working", "episodic")
    v1: dict[str, Any] = {}
    window: int = 8
    use_salience: bool = False
    salience_top_k: int = 8
    reflection_threshold: Count | None = None


class Curation(msgspec.Struct, frozen=True):
    """Whether, when and over how many days stable facts go from the daily logs into long-term memory."""

    enabled: bool = False
    schedule: Literal["after_run", "daily", "manual"] = "after_run"
    days: int = 7


class Tier(msgspec.Struct, frozen=True):
    enabled: bool = True
    settings: dict[str, Any] = {}


class MemorySettings(msgspec.Struct, frozen=True):
    """`tiers` always has the four of them. Settings have the names of the seed: file, max_size_kb,
    directory, retention_days, index_path, embedding_model, similarity_metric, and what else was written.
    `max_size_kb` and `retention_days` are there only if the file names them: without, the book's settings hold."""

    enabled: bool = True
    tiers: dict[str, Tier] = {}
    access_control: dict[str, dict[str, Permission]] = {}
    curation: Curation = Curation()
    search_enabled: bool = True


class Agent(msgspec.Struct, frozen=True):
    """One agent's file. `contract` is a JSON Schema, also when the file had a flat map. `runtime` says how to
    run it: `callable: module:function` or `command: [program, argument, …]`. `folder` is where its file is,
    seen from the workflow's folder, and "" for the usual place, agents/<id>."""

    id: str
    runtime: dict[str, Any] = {}
    contract: dict[str, Any] | None = None
    memory: AgentMemorySettings = AgentMemorySettings()
    may_emit: tuple[str, ...] | None = None
    """The kinds of events that it may record in a run, `*` for any ending; None: as the book says."""
    document: dict[str, Any] = {}
    """The file as it is written."""
    folder: str = ""

    @property
    def place(self) -> str:
        return self.folder or f"agents/{self.id}"


class Workflow(msgspec.Struct, frozen=True):
    """`document` is the file as it is written, with the sections that have no place here (communication, observability,
    security, env, settings, delegation_loop and any other). `subworkflows` has, by the folder that a node names, the
    workflows to run as one node. `folder` is where the files are."""

    awp: str
    name: str
    version: str = "1.0.0"
    description: str = ""
    nodes: tuple[Node, ...] = ()
    execution: Execution = Execution()
    degradation: tuple[Degradation, ...] = ()
    policy: Policy = Policy()
    start: Start = Start()
    persistence: Persistence = Persistence()
    memory: MemorySettings = MemorySettings()
    agents: dict[str, Agent] = {}
    max_depth: int = 4
    delegation: Delegation | None = None
    """The delegation loop that is run in place of a graph, if the engine is one."""
    document: dict[str, Any] = {}
    subworkflows: dict[str, Workflow] = {}
    folder: str = ""

    def node(self, id: str) -> Node:
        return next(node for node in self.nodes if node.id == id)
