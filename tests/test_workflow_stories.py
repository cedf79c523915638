"""What running a workflow does to the book around it, and what its files switch off: told as stories."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import commonplace
from commonplace import BadInput, Book, Denied, NotEnabled
from commonplace.state.policy import AgentPolicy, Policy
from commonplace.surfaces.tools import Tools
from commonplace.workflow.agents import AgentTask
from commonplace.workflow.expressions import check_expression, evaluate
from commonplace.workflow.load import examine, load
from commonplace.workflow.model import WORKFLOW_FILE, BadWorkflow
from tests.shells import Cli
from tests.workflows import Documents, agent_file, changed, example, small, write

Work = Callable[[AgentTask], Any]


@pytest.fixture
def local() -> Iterator[Book]:
    with commonplace.open("memory:") as opened:
        yield opened


def told(**outputs: Any) -> dict[str, Work]:
    """Agents that answer what is given for each."""
    return {name: lambda _task, output=output: output for name, output in outputs.items()}  # type: ignore[misc]


def run_one(book: Book, folder: Path, documents: Documents, work: Work, **more: Any) -> Any:
    """Run a workflow of one agent, `scout`, that does this."""
    return book.runs.execute(write(folder, documents), agents={"scout": work}, **more)


def with_(documents: Documents, changes: Mapping[str, object], file: str = WORKFLOW_FILE) -> Documents:
    for path, value in changes.items():
        documents = changed(documents, file, path, value)
    return documents


def refusals(book: Book, run_id: str | None = None) -> list[tuple[str, str]]:
    found = book.events(run_id=run_id, kinds=("access.denied",))
    return [(event.payload["actor"], event.payload["act"]) for event in found]


# What a run changes in its book.


@pytest.mark.spec("3.8", "7.6")
def test_a_workflow_leaves_the_settings_that_its_files_do_not_name(local: Book, tmp_path: Path) -> None:
    """An owner keeps logs for a year. A workflow that says nothing of retention changes nothing of it."""
    local.memory.configure(retention_days=365, max_size_kb=7, stale="leave_out")
    run_one(local, tmp_path / "silent", small("scout"), lambda _me: {"answer": "done", "confidence": 0.9})
    assert (local.memory.settings().retention_days, local.memory.settings().max_size_kb) == (365, 7)

    named = with_(small("scout"), {"memory.tiers.working.retention_days": 90})
    run_one(local, tmp_path / "named", named, lambda _me: {"answer": "done", "confidence": 0.9})
    settings = local.memory.settings()
    assert (settings.retention_days, settings.max_size_kb, settings.stale) == (90, 7, "leave_out")


@pytest.mark.spec("3.8", "7.6")
def test_a_size_below_one_kilobyte_is_told_before_the_run_begins(local: Book, tmp_path: Path) -> None:
    documents = with_(small("scout"), {"memory.tiers.long_term.max_size_kb": 0.2})
    with pytest.raises(BadWorkflow, match="max_size_kb"):
        run_one(local, tmp_path, documents, lambda _me: {})
    assert local.head == 0


@pytest.mark.spec("3.9", "1.5")
def test_the_rights_of_one_workflow_bind_its_own_runs_and_nothing_else(book: Book, tmp_path: Path) -> None:
    """The first workflow lets its scout read the long-term tier and record what it says. The second says nothing."""
    outcomes: list[str] = []

    def work(me: AgentTask) -> dict[str, Any]:
        try:
            kept = me.remember(f"The gate of {me.own_run.id} closes at nine.", shared=True)
            outcomes.append(kept.outcome)
        except Denied:
            outcomes.append("denied")
        return {"answer": "done", "confidence": 0.9}

    first = with_(small("scout"), {"memory.access_control.scout": {"long_term": "read", "working": "none"}})
    first = changed(first, agent_file("scout"), "may_emit", ["agent.spoke"])
    run_one(book, tmp_path / "first", first, work, run_id="first")
    assert refusals(book, "first") == [("scout", "memory.write")]
    scout = book.as_actor("scout")
    with pytest.raises(Denied, match=r"agent\.thought"):
        scout.record("agent.thought", run_id="first", payload={"text": "hm"})
    scout.record("agent.spoke", run_id="first", payload={"text": "hm"})

    run_one(book, tmp_path / "second", small("scout"), work, run_id="second")
    scout.record("agent.thought", run_id="second", payload={"text": "hm"})
    scout.record("agent.thought", payload={"text": "hm"})
    assert scout.remember("Nobody limits what the scout does outside.").outcome == "stored"
    assert scout.access.rights().tier("long_term") == "read_write"
    assert outcomes == ["denied", "stored"]

    turn = book.run(run_id="first").agent("scout")  # the first run's rules still hold in the first run
    with pytest.raises(Denied):
        turn.remember("The gate is made of oak.")
    with pytest.raises(Denied):
        turn.documents.days()
    fork = book.fork("first", new_id="fork")
    with pytest.raises(Denied):
        fork.agent("scout").remember("The gate is made of oak.")


@pytest.mark.spec("3.9")
def test_a_workflow_gives_nobody_more_than_the_owner_has_given(local: Book, tmp_path: Path) -> None:
    local.access.grant("scout", tiers={"long_term": "read"}, may_emit=["agent.spoke"])
    documents = with_(small("scout"), {"memory.access_control.scout": {"long_term": "read_write"}})
    documents = changed(documents, agent_file("scout"), "may_emit", ["agent.*"])
    outcomes = list[str]()

    def work(me: AgentTask) -> dict[str, Any]:
        with pytest.raises(Denied):
            me.remember("The gate closes at nine.")
        outcomes.append("denied")
        return {"answer": "done", "confidence": 0.9}

    run_one(local, tmp_path, documents, work, run_id="r")
    assert outcomes == ["denied"]
    with pytest.raises(Denied):
        local.as_actor("scout").record("agent.thought", run_id="r", payload={"text": "hm"})


@pytest.mark.spec("3.9")
def test_what_may_only_be_read_is_not_changed_either(local: Book, tmp_path: Path) -> None:
    """Reading alone is no right to revise, share or forget, also what one has written oneself before."""
    own = str(local.as_actor("scout").remember("The gate closes at nine.").item_id)
    documents = with_(small("scout"), {"memory.access_control.scout": {"long_term": "read"}})
    run = local.run(write(tmp_path, documents))
    me = run.agent("scout")
    assert me.memory.get(own).body == "The gate closes at nine."
    for act in (
        lambda: me.memory.revise(own, text="The gate closes at ten."),
        lambda: me.memory.share(own),
        lambda: me.forget(own, confirm="FORGET"),
        lambda: me.remember("Another gate."),
        lambda: me.remember("Another gate.", run_id="elsewhere"),
    ):
        with pytest.raises((Denied, BadInput)):
            act()
    assert local.memory.get(own).position == me.memory.get(own).position


# Tiers, and memory as a whole.

OFF = {"memory.tiers.long_term.enabled": False, "memory.tiers.working.enabled": False}


@pytest.mark.spec("3.9", "L5")
@pytest.mark.parametrize(("listed", "status", "error"), [(False, 503, NotEnabled), (True, 403, Denied)])
def test_a_tier_that_is_off_or_not_listed_is_neither_read_nor_written(
    local: Book, tmp_path: Path, listed: bool, status: int, error: type[Exception]
) -> None:
    """503 for what the workflow has switched off, 403 for what an agent's file does not list; the same for the tools
    and for the agent's own calls."""
    local.remember("The gate closes at nine.")
    local.documents.log("The gate was painted.")
    documents = small("scout")
    if listed:
        documents = changed(documents, agent_file("scout"), "memory.tiers", ["episodic"])
    else:
        documents = with_(documents, OFF)
    run = local.run(write(tmp_path, documents), run_id="r")
    me, tools = run.agent("scout"), Tools(local)
    for tool, arguments in (
        ("memory.read", {"target": "long_term"}),
        ("memory.read", {"target": "daily"}),
        ("memory.read", {"target": "dates"}),
        ("memory.write", {"target": "long_term", "content": "The lock is new."}),
        ("memory.write", {"target": "daily", "content": "The lock is new."}),
        ("memory.search", {"query": "gate", "tiers": ["long_term", "working"]}),
        ("memory.curate", {}),
    ):
        answer = tools.call(tool, arguments, actor="scout", run_id="r")
        assert (answer["status"], answer["data"]) == (status, {}), (tool, arguments, answer)
    before = len(refusals(local))
    for call in (
        lambda: me.remember("The lock is new."),
        lambda: me.documents.log("The lock is new."),
        lambda: me.documents.add_to_session("gate", "The lock is new."),
        lambda: me.memory.list(),
        lambda: me.memory.long_term(),
        lambda: me.documents.days(),
        lambda: me.search("gate", tiers=["long_term"]),
        lambda: me.search("gate", mode="keyword"),
    ):
        with pytest.raises(error):
            call()
    assert len(refusals(local)) == before + 8  # each leaves a trace for the owner
    found = me.search("gate")
    assert found.results == ()
    assert {one.what for one in found.left_out} >= {"long_term", "working"}
    assert me.digest("gate").item_ids == ()
    prompt = me.prompt("Look after the gate.")
    assert "nine" not in prompt
    assert "painted" not in prompt
    assert [one.body for one in local.memory.list()] == ["The gate closes at nine."]
    with run.agent("scout") as again:
        again.write({"answer": "ok", "confidence": 0.9})
    assert len(local.documents.day(local.documents.days()[-1])) == 1  # nothing was logged for it either


@pytest.mark.spec("3.9")
def test_an_episode_needs_the_episodic_tier(local: Book, tmp_path: Path) -> None:
    documents = with_(small("scout"), {"memory.tiers.episodic.enabled": False})
    me = local.run(write(tmp_path, documents), run_id="r").agent("scout")
    with pytest.raises(NotEnabled, match="episodic"):
        me.remember("The gate fell.", kind="episode", occurred_at=datetime.now(UTC))
    with pytest.raises(NotEnabled, match="episodic"):
        me.receipts.window()
    local.record("agent.spoke", actor="scout", run_id="r", payload={"text": "The gate squeaks."})
    assert "squeaks" not in me.prompt("Look after the gate.")
    assert me.remember("The gate squeaks.").outcome == "stored"


@pytest.mark.spec("3.1", "3.9", "4.5")
@pytest.mark.parametrize(
    "place", [(WORKFLOW_FILE, "memory.enabled"), (agent_file("scout"), "memory.enabled")]
)
def test_memory_that_is_switched_off_logs_nothing_and_shows_nothing(
    local: Book, tmp_path: Path, place: tuple[str, str]
) -> None:
    local.remember("The gate closes at nine.")
    seen = list[str]()

    def work(me: AgentTask) -> dict[str, Any]:
        seen.append(str(me.prompt("When does the gate close?")))
        for call in (
            lambda: me.search("gate"),
            lambda: me.remember("The lock is new."),
            lambda: me.documents.log("The lock is new."),
            lambda: me.memory.list(),
            lambda: me.documents.day(local.documents.days()[-1] if local.documents.days() else "2026-01-01"),
            lambda: me.receipts.changed_facts(),
        ):
            with pytest.raises(NotEnabled):
                call()
        return {"answer": "done", "confidence": 0.9}

    run_one(local, tmp_path, changed(small("scout"), *place, False), work, run_id="r")
    assert "nine" not in seen[0]
    assert "Memory" not in seen[0]
    assert local.documents.days() == []
    assert list(local.events(run_id="r", kinds=("memory.logged", "memory.item.created"))) == []
    for tool, arguments in (("memory.read", {"target": "dates"}), ("memory.search", {"query": "gate"})):
        assert Tools(local).call(tool, arguments, actor="scout", run_id="r")["status"] == 503


@pytest.mark.spec("4.1", "3.9")
@pytest.mark.parametrize(
    "place", [(WORKFLOW_FILE, "memory.search_enabled"), (agent_file("scout"), "memory.search_enabled")]
)
def test_search_that_is_switched_off_is_off_for_the_library_too(
    local: Book, tmp_path: Path, place: tuple[str, str]
) -> None:
    local.remember("The gate closes at nine.")
    me = local.run(write(tmp_path, changed(small("scout"), *place, False)), run_id="r").agent("scout")
    with pytest.raises(Denied, match="search_enabled"):
        me.search("gate")
    assert refusals(local) == [("scout", "memory.search")]
    assert Tools(local).call("memory.search", {"query": "gate"}, actor="scout", run_id="r")["status"] == 403
    assert [one.body for one in me.memory.long_term()] == ["The gate closes at nine."]


@pytest.mark.spec("3.1")
@pytest.mark.parametrize(
    "changes",
    [
        {"memory.tiers.working.auto_write": False},
        {"memory.daily_log": {"auto_write": False}},
        {"memory.tiers.long_term.inject": False, "memory.daily_log.auto_write": False},
    ],
)
def test_what_the_workflow_says_of_a_tier_holds_for_each_agent(
    local: Book, tmp_path: Path, changes: dict[str, object]
) -> None:
    local.remember("The gate closes at nine.")
    prompts = list[str]()

    def work(me: AgentTask) -> dict[str, Any]:
        prompts.append(str(me.prompt("Write the report.")))
        return {"answer": "done", "confidence": 0.9}

    run_one(local, tmp_path, with_(small("scout"), changes), work)
    assert local.documents.days() == []
    assert ("## Long-term Memory" in prompts[0]) is ("memory.tiers.long_term.inject" not in changes)


@pytest.mark.spec("4.2")
def test_a_run_without_files_searches_every_tier(local: Book) -> None:
    """No file has switched anything off, so a turn finds what the book finds: also by meaning."""
    local.remember("The automobile is in the garage.")
    me = local.run(run_id="r").agent("ada")
    assert [one.what for one in me.search("where is the car").left_out] == [
        one.what for one in local.search("where is the car").left_out
    ]


# What the files may say.


@pytest.mark.spec("2.2")
def test_a_required_field_that_an_agent_answers_is_a_warning_and_the_run_starts(
    local: Book, tmp_path: Path
) -> None:
    """Published files list `confidence`, which agents answer, among the fields that a run must begin with."""
    documents = with_(
        small("scout"), {"state.required_fields": ["confidence", "topic"], "state.initial.topic": "tea"}
    )
    _, problems = examine(write(tmp_path, documents))
    assert [(one.level, one.rule, one.path) for one in problems] == [
        ("warning", "R17", "state.required_fields[0]")
    ]
    outcome = run_one(local, tmp_path, documents, lambda _me: {"answer": "done", "confidence": 0.9})
    assert outcome.status == "completed"

    unknown = with_(documents, {"state.required_fields": ["confidence", "customer"]})
    with pytest.raises(BadInput, match="customer is required and missing"):
        run_one(local, tmp_path / "unknown", unknown, lambda _me: {})
    strict = with_(documents, {"state.sharing": {"strategy": "full", "validation": "strict"}})
    with pytest.raises(BadWorkflow, match="R17"):
        run_one(local, tmp_path / "strict", strict, lambda _me: {})


def levels(folder: Path) -> list[tuple[str, str, str]]:
    return [(one.level, one.rule, one.path) for one in examine(folder)[1]]


@pytest.mark.spec("6.0", "7.6")
@pytest.mark.parametrize("place", ["", "orchestration.", "settings."])
def test_how_deep_managers_may_delegate(place: str, tmp_path: Path) -> None:
    def depth(section: object) -> tuple[int, list[tuple[str, str, str]]]:
        documents = with_(small("scout"), {f"{place}delegation_loop": section})
        folder = write(tmp_path / str(len(list(tmp_path.iterdir()))), documents)
        workflow = load(folder)
        return workflow.max_depth, levels(folder)

    at = f"{place}delegation_loop.budget.max_depth"
    assert load(write(tmp_path / "none", small("scout"))).max_depth == 4
    assert depth({"auto_curation_enabled": False}) == (4, [])
    assert depth({"budget": {"max_depth": 2, "max_tokens": 9}}) == (2, [])
    assert depth({"budget": {"max_depth": 0}}) == (0, [])
    assert depth({"budget": {"max_depth": 6}}) == (6, [("warning", "R32", at)])
    assert depth({"max_depth": 3}) == (3, [])  # as older files say it
    for wrong in (11, -1, "deep", 1.5):
        with pytest.raises(BadWorkflow) as caught:
            depth({"budget": {"max_depth": wrong}})
        assert [(one.rule, one.path) for one in caught.value.problems] == [("R32", at)]


@pytest.mark.spec("6.0", "7.6")
def test_a_node_may_say_how_deep_it_delegates(local: Book, tmp_path: Path) -> None:
    def flow(name: str, **more: object) -> Path:
        documents = small("scout", "inner")
        del documents[agent_file("inner")]
        node = {"id": "inner", "subworkflow": "inner", **more}
        documents = with_(documents, {"orchestration.graph[1]": node})
        documents |= {f"inner/{file}": document for file, document in small("digger").items()}
        return write(tmp_path / name, documents)

    agents = told(scout={"answer": "a", "confidence": 1}, digger={"answer": "b", "confidence": 1})
    for folder in (flow("own", max_depth=0), flow("budget", budget={"max_depth": 0})):
        assert load(folder).node("inner").max_depth == 0
        with pytest.raises(commonplace.RunFailed, match="max_depth"):
            local.runs.execute(folder, agents=agents)
    assert local.runs.execute(flow("one", max_depth=1), agents=agents).status == "completed"
    assert levels(flow("deep", max_depth=7)) == [("warning", "R32", "orchestration.graph[1].max_depth")]
    assert ("error", "R32", "orchestration.graph[1].max_depth") in levels(flow("deeper", max_depth=11))


LOWEST: Documents = {WORKFLOW_FILE: {"awp": "1.0.0", "workflow": {"name": "lowest", "version": "1.0.0"}}}


@pytest.mark.spec("7.6", "L5")
@pytest.mark.parametrize("graph", [..., []])
def test_a_file_without_a_graph_is_valid_and_says_that_it_runs_nothing(
    cli: Cli, local: Book, tmp_path: Path, graph: object
) -> None:
    documents = LOWEST if graph is ... else with_(LOWEST, {"orchestration.graph": graph})
    folder = write(tmp_path / "flow", documents)
    validated = cli("--json", "validate", folder)
    assert (validated.code, json.loads(validated.out)["ok"]) == (0, True)
    assert "no graph" in validated.out
    outcome = local.runs.execute(folder)
    assert (outcome.status, outcome.steps) == ("completed", {})
    assert "no graph" in outcome.reason
    cli("init")
    ran = cli("run", folder)
    assert ran.code == 0
    assert "no graph" in ran.out


RESERVED = ["memory.forget_all", "web.spider"]


@pytest.mark.spec("7.6")
@pytest.mark.parametrize(
    ("file", "path", "value", "at"),
    [
        (WORKFLOW_FILE, "custom_tools", RESERVED[:1], "custom_tools[0]"),
        (WORKFLOW_FILE, "custom_tools", {"web.spider": {}}, "custom_tools.web.spider"),
        (WORKFLOW_FILE, "custom_tools", [{"name": "web.spider"}], "custom_tools[0]"),
        (
            WORKFLOW_FILE,
            "capabilities.custom_tools.declarations",
            [{"module": "mine", "tools": ["mine.fine", "file.eat"]}],
            "capabilities.custom_tools.declarations[0].tools[1]",
        ),
        (WORKFLOW_FILE, "tools.custom_tools", ["shell.sing"], "tools.custom_tools[0]"),
        (WORKFLOW_FILE, "tools.allowed", ["memory.levitate"], "tools.allowed[0]"),
        (agent_file("scout"), "custom_tools", ["numpy.mine"], "custom_tools[0]"),
        (agent_file("scout"), "tools.custom_tools", ["doc.mine"], "tools.custom_tools[0]"),
        (agent_file("scout"), "capabilities.tools.custom", ["doc.mine"], "capabilities.tools.custom[0]"),
        (agent_file("scout"), "tools.allowed", ["web.search", "memory.levitate"], "tools.allowed[1]"),
        (
            agent_file("scout"),
            "tools.allowed",
            [{"name": "web.spider", "module": "mine"}],
            "tools.allowed[0]",
        ),
        (
            agent_file("scout"),
            "capabilities.tools.allowed",
            ["memory.levitate"],
            "capabilities.tools.allowed[0]",
        ),
    ],
)
def test_no_tool_of_ones_own_is_in_a_namespace_of_the_runtime(
    file: str, path: str, value: object, at: str, tmp_path: Path
) -> None:
    folder = write(tmp_path, changed(small("scout"), file, path, value))
    with pytest.raises(BadWorkflow) as caught:
        load(folder)
    assert [(one.file, one.path, one.rule) for one in caught.value.problems] == [(file, at, "R10")]


@pytest.mark.spec("7.6")
@pytest.mark.parametrize("path", ["tools.allowed", "capabilities.tools.allowed", "tools.enabled"])
def test_tools_of_the_runtime_may_be_used(path: str, tmp_path: Path) -> None:
    used = ["web.*", "memory.search", "memory.*", "*", "*.*", "mine.tool", "file.read", "pandas.describe"]
    assert levels(write(tmp_path, changed(small("scout"), agent_file("scout"), path, used))) == []


@pytest.mark.spec("3.9", "7.6")
def test_an_agents_tiers_are_a_list_or_a_mapping(local: Book, tmp_path: Path) -> None:
    written: dict[str, object] = {
        "long_term": {"enabled": True, "inject": False, "color": "blue"},
        "working": {"enabled": False},
        "episodic": None,
    }
    documents = changed(small("scout"), agent_file("scout"), "memory.tiers", written)
    folder = write(tmp_path / "flow", documents)
    workflow = load(folder)
    memory = workflow.agents["scout"].memory
    assert (memory.tiers, memory.long_term_inject) == (("long_term", "episodic"), False)
    me = local.run(folder).agent("scout")
    assert me.remember("The gate closes at nine.").outcome == "stored"
    with pytest.raises(Denied, match="working"):
        me.documents.log("The gate was painted.")
    wrong = changed(small("scout"), agent_file("scout"), "memory.tiers", {"dreams": {}, "working": 5})
    assert [one[2] for one in levels(write(tmp_path / "wrong", wrong))] == [
        "memory.tiers.dreams",
        "memory.tiers.working",
    ]


@pytest.mark.spec("7.6")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("state.get('qa', {}).get('confidence') > 0.5", True),
        ("state.get('nobody', {}).get('confidence', 0) > 0.5", False),
        ("state.get('nobody', {'confidence': 0.9}).get('confidence') > 0.5", True),
        ("state.get('qa').get('nothing') == None", True),
        ("state.nobody.get('x') is None", True),
        ("state.qa.get('get') == 'got'", True),
        ("${{ state.get('qa', {}).get('confidence') == 0.9 }}", True),
        ("{{ state.qa.confidence }} >= 0.9", True),
        ("${state.qa.confidence} >= 0.9", True),
        ("'{' in '{x}' and state.get('qa', {}) != {}", True),
    ],
)
def test_conditions_may_ask_as_python_asks(text: str, value: object) -> None:
    assert check_expression(text) is None
    assert evaluate(text, {"qa": {"confidence": 0.9, "get": "got"}}) == value


@pytest.mark.parametrize(
    "text",
    ["state.pop('a')", "state.get", "state.get()", "state.get('a', 1, 2)", "state.get(key='a')", "{**state}"],
)
def test_nothing_else_can_be_called(text: str) -> None:
    assert check_expression(text) is not None or evaluate(text, {"a": 1}) is None


@pytest.mark.spec("2.8")
@pytest.mark.parametrize(
    ("validation", "code", "filled"),
    [("", 1, True), ("warn", 1, True), ("none", 0, False), ("strict", 1, None)],
)
def test_a_contract_without_confidence(
    cli: Cli, local: Book, tmp_path: Path, validation: str, code: int, filled: bool | None
) -> None:
    """An error of the file. A run that only warns starts all the same and fills in 0.5; `none` asks for nothing."""
    documents = changed(small("scout"), agent_file("scout"), "output.contract", {"answer": "string"})
    if validation:
        documents = with_(documents, {"state.sharing": {"strategy": "full", "validation": validation}})
    folder = write(tmp_path / "flow", documents)
    assert cli("validate", folder).code == code
    if filled is None:
        with pytest.raises(BadWorkflow, match="R17"):
            local.runs.execute(folder, agents=told(scout={"answer": "tea"}))
        return
    local.runs.execute(folder, agents=told(scout={"answer": "tea"}), run_id="r")
    assert local.run(run_id="r").state()["scout"] == {"answer": "tea"} | (
        {"confidence": 0.5} if filled else {}
    )


@pytest.mark.spec("7.6")
def test_a_lone_file_is_validated_without_its_agents(cli: Cli, local: Book, tmp_path: Path) -> None:
    write(tmp_path, {WORKFLOW_FILE: example()[WORKFLOW_FILE]})
    (tmp_path / "lone.yaml").write_text((tmp_path / WORKFLOW_FILE).read_text())
    for path, name in (
        (tmp_path, WORKFLOW_FILE),
        (tmp_path / WORKFLOW_FILE, WORKFLOW_FILE),
        (tmp_path / "lone.yaml", "lone.yaml"),
    ):
        ran = cli("--json", "validate", path)
        answer = json.loads(ran.out)
        assert (ran.code, answer["ok"]) == (0, True), answer
        notices = [one for one in answer["problems"] if "agents were not looked at" in one["message"]]
        assert [one["file"] for one in notices] == [name]
        assert {one["file"] for one in answer["problems"]} == {name}
    with pytest.raises(BadWorkflow, match="R8"):  # it cannot run without them
        local.runs.execute(tmp_path)
    (tmp_path / "lone.yaml").write_text((tmp_path / WORKFLOW_FILE).read_text().replace("1.0.0", "1", 1))
    assert cli("validate", tmp_path / "lone.yaml").code == 1
    write(tmp_path, {agent_file("research_analyst"): example()[agent_file("research_analyst")]})
    assert [one[1] for one in levels(tmp_path) if one[0] == "error"] == [
        "R8",
        "R8",
    ]  # one is there: two are missing


# What cannot run yet.


@pytest.mark.spec("6.0", "L5")
@pytest.mark.parametrize(
    "documents",
    [
        with_(LOWEST, {"orchestration.engine": "delegation_loop"}),
        with_(LOWEST, {"delegation_loop": {"budget": {"max_depth": 2}}}),
        with_(small("scout"), {"orchestration.engine": "delegation_loop"}),
        with_(small("scout"), {"orchestration.graph[0].delegation_loop": {"budget": {"max_depth": 2}}}),
    ],
)
def test_a_delegation_loop_without_a_manager_to_call_is_told_before_anything_runs(
    cli: Cli, local: Book, tmp_path: Path, documents: Documents
) -> None:
    folder = write(tmp_path / "flow", documents)
    assert cli("validate", folder).code == 0  # its files are well written
    with pytest.raises(BadInput, match="nobody says how to run the manager"):
        local.runs.execute(folder)
    assert local.runs.list() == []
    cli("init")
    ran = cli("run", folder)
    assert ran.code == 1
    assert "the manager" in ran.err
    with local.run(folder) as run:  # its rules can be used by a loop of one's own
        assert run.status == "running"


@pytest.mark.spec("6.0", "L5")
def test_a_delegation_loop_inside_a_workflow_runs_with_it(local: Book, tmp_path: Path) -> None:
    documents = small("scout", "inner")
    del documents[agent_file("inner")]
    node = {"id": "inner", "subworkflow": "inner", "share_output": ["answer"]}
    documents = with_(documents, {"orchestration.graph[1]": node})
    documents |= {
        f"inner/{file}": one
        for file, one in with_(LOWEST, {"orchestration.engine": "delegation_loop"}).items()
    }
    folder = write(tmp_path, documents)
    agents = told(scout={"answer": "a", "confidence": 1})
    with pytest.raises(BadInput, match="nobody says how to run the manager"):
        local.runs.execute(folder, agents=agents)
    assert local.runs.list() == []
    decided = {"decision": "COMPLETE", "result": {"answer": "deep"}}
    outcome = local.runs.execute(folder, agents={**agents, "manager": lambda _turn: decided})
    assert outcome.steps == {"scout": "finished", "inner": "finished"}
    assert local.runs.state(outcome.run_id)["inner"] == {"answer": "deep"}


# Agents that are no nodes, and runs within runs.

CLOSED = {"long_term": "none", "working": "none", "episodic": "none", "semantic": "none"}


def attempt(call: Callable[[], object]) -> str:
    """What the library answers: "ok", or the class of the refusal."""
    try:
        call()
    except (Denied, NotEnabled) as error:
        return type(error).__name__
    return "ok"


@pytest.mark.spec("3.9", "7.6", "L5")
@pytest.mark.parametrize(
    ("memory", "search", "writing", "status"),
    [
        ({"enabled": False}, "NotEnabled", "NotEnabled", 503),
        ({"tiers": {tier: {"enabled": False} for tier in CLOSED}}, "NotEnabled", "NotEnabled", 503),
        ({"search_enabled": False}, "Denied", "ok", 403),
        ({"access_control": {"boss": CLOSED}}, "Denied", "Denied", 403),
    ],
)
@pytest.mark.parametrize("graph", [False, True], ids=["loop", "no node of the graph"])
def test_the_memory_section_holds_for_agents_that_are_no_nodes(
    local: Book, tmp_path: Path, memory: dict[str, Any], search: str, writing: str, status: int, graph: bool
) -> None:
    """A manager of one's own takes turns in a run of a loop's files, or beside a graph. The files bind it."""
    local.remember("The gate closes at nine.", shared=True)
    documents = small("scout") if graph else with_(LOWEST, {"orchestration.engine": "delegation_loop"})
    folder = write(tmp_path, with_(documents, {"memory": memory}))
    run = local.run(folder, run_id="r")
    for turn in (run.agent("boss"), run.child("child").agent("boss")):
        assert attempt(lambda turn=turn: turn.search("gate", tiers=["long_term"])) == search  # type: ignore[misc]
        assert attempt(lambda turn=turn: turn.remember(f"Lock {turn.own_run.id} is new.")) == writing  # type: ignore[misc]
    for run_id in ("r", "child"):
        answer = Tools(local).call("memory.search", {"query": "gate"}, actor="boss", run_id=run_id)
        assert answer["status"] == status
    if not graph:
        with run.agent("boss") as boss:
            boss.write({"plan": "ask the scout"})
    if status == 503:
        assert list(local.events(run_id="r", kinds=("memory.logged",))) == []
    assert local.as_actor("boss").search("gate").results  # outside of the run nothing is narrowed


@pytest.mark.spec("3.9", "4.5", "L5")
def test_a_digest_says_that_its_tiers_are_closed(local: Book, tmp_path: Path) -> None:
    local.remember("The gate closes at nine.", shared=True)
    folder = write(tmp_path, with_(small("scout"), {"memory.access_control.scout": CLOSED}))
    local.access.grant("ada", tiers=CLOSED)
    for reader in (local.run(folder).agent("scout"), local.as_actor("ada")):
        digest, prompt = reader.digest("gate"), reader.prompt("gate")
        assert "nothing is remembered" not in digest.text
        assert [one.what for one in digest.left_out] == ["long_term", "episodic"]
        assert {"long_term", "episodic"} <= {what for what, _ in prompt.left_out}
        assert local.receipt(str(digest.receipt_id)).replay() == digest.text
    open_to_all = local.as_actor("bob").digest("gate")
    assert open_to_all.left_out == ()


@pytest.mark.spec("3.9", "6.0")
def test_a_run_within_a_run_gives_nobody_more_than_the_outer_one(local: Book, tmp_path: Path) -> None:
    local.remember("The gate closes at nine.", shared=True)
    documents = with_(small("scout"), {"memory.access_control.scout": CLOSED})
    documents = changed(documents, agent_file("scout"), "may_emit", ["agent.spoke", "run.*"])
    answers = list[str]()

    def work(me: AgentTask) -> dict[str, Any]:
        wide = Policy(agents={"scout": AgentPolicy(may_emit=("agent.*",))})
        for policy in (Policy(), wide):
            inner = me.own_run.child(policy=policy)
            for within in (inner, inner.child(policy=Policy())):
                answers.append(attempt(lambda turn=within.agent("scout"): turn.search("gate")))  # type: ignore[misc]
                answers.append(attempt(lambda turn=within.agent("scout"): turn.remember("It squeaks.")))  # type: ignore[misc]
                scout = local.as_actor("scout")
                scout.record("agent.spoke", run_id=within.id, payload={"text": "hm"})
                with pytest.raises(Denied, match=r"agent\.thought"):
                    scout.record("agent.thought", run_id=within.id, payload={"text": "hm"})
        return {"answer": "done", "confidence": 0.9}

    run_one(local, tmp_path, documents, work)
    assert answers == ["Denied"] * 8


@pytest.mark.spec("3.9", "7.6")
def test_what_a_workflow_switches_off_is_off_in_its_subworkflows(local: Book, tmp_path: Path) -> None:
    inner = {f"inner/{file}": one for file, one in small("helper", "scout").items()}
    documents = with_(small("scout"), {"orchestration.graph[1]": {"id": "inner", "subworkflow": "inner"}})
    documents = with_(documents, {"memory.enabled": False}) | inner
    answers = list[str]()

    def work(me: AgentTask) -> dict[str, Any]:
        answers.append(attempt(lambda: me.remember("The lock is new.")))
        return {"answer": "done", "confidence": 0.9}

    folder = write(tmp_path, documents)
    local.runs.execute(folder, agents={"scout": work, "helper": work})
    assert answers == ["NotEnabled"] * 3
    assert local.memory.list() == []
    assert local.documents.days() == []


@pytest.mark.spec("3.9", "7.6")
@pytest.mark.parametrize(
    ("changes", "refusal", "status"),
    [
        ([(agent_file("deputy"), "memory.enabled", False)], "NotEnabled", 503),
        ([(WORKFLOW_FILE, "memory.access_control.deputy", CLOSED)], "Denied", 403),
    ],
)
def test_a_fallback_has_no_more_rights_than_its_own_files_leave_it(
    local: Book, tmp_path: Path, changes: list[tuple[str, str, object]], refusal: str, status: int
) -> None:
    """The scout may use memory, its deputy may not. While the deputy does the scout's work, nobody does."""
    local.remember("The gate closes at nine.", shared=True)
    documents = small("scout", "deputy")
    documents = with_(documents, {"orchestration.graph": [{"id": "scout"}]})
    documents = with_(documents, {"orchestration.degradation": [{"node": "scout", "fallback": "deputy"}]})
    for change in changes:
        documents = changed(documents, *change)
    documents = changed(documents, agent_file("deputy"), "may_emit", ["agent.spoke"])
    answers = list[object]()

    def fails(me: AgentTask) -> dict[str, Any]:
        answers.append(attempt(lambda: me.search("gate")))
        raise RuntimeError("the scout has a cold")

    def stands_in(me: AgentTask) -> dict[str, Any]:
        answers.append(attempt(lambda: me.search("gate")))
        answers.append(attempt(lambda: me.remember("The lock is new.")))
        answers.append("nine" in str(me.prompt("When does the gate close?")))
        tool = Tools(local).call("memory.search", {"query": "gate"}, actor="scout", run_id=me.own_run.id)
        answers.append(tool["status"])
        attempt(lambda: me.own_run.step("scout", "started"))  # saying that one is the scout changes nothing
        with pytest.raises(Denied, match=r"agent\.thought"):
            local.as_actor("scout").record("agent.thought", run_id=me.own_run.id, payload={"text": "hm"})
        return {"answer": "done", "confidence": 0.9}

    folder = write(tmp_path, documents)
    local.runs.execute(folder, agents={"scout": fails, "deputy": stands_in}, run_id="r")
    assert answers == ["ok", refusal, refusal, False, status]
    assert bool(local.documents.days()) is (status == 403)
    assert attempt(lambda: local.run(run_id="r").agent("scout").search("gate")) == "ok"  # its own again


# State files.


def where(book: Book, text: str) -> list[str]:
    return [Path(one.path).name for one in book.admin.find_text(text)]


@pytest.mark.spec("L10", "2.4", "3.12")
@pytest.mark.parametrize("format", ["json", "msgpack"])
def test_erasing_reaches_the_state_files_that_a_workflow_asks_for(tmp_path: Path, format: str) -> None:
    """A customer asks to be erased. The state that was also written to a file goes, too, in whatever process."""
    documents = with_(small("scout"), {"state.persistence": {"enabled": True, "format": format}})
    folder = write(tmp_path / "flow", documents)
    answer: Work = lambda me: {"answer": me.state["topic"], "confidence": 0.9}  # noqa: E731
    with commonplace.open(tmp_path / "team.db") as book:
        for run_id, topic in (("kim", "Kim lives at Quartz Lane 7"), ("tea", "Tea is hot")):
            book.runs.execute(folder, agents={"scout": answer}, run_id=run_id, initial={"topic": topic})
        (opened,) = book.events(run_id="kim", kinds=("state.opened",))
        (changed_at,) = book.events(run_id="kim", kinds=("state.changed",))
    files = {name: folder / "data/state" / f"{name}.{format}" for name in ("kim", "tea")}
    assert all(path.exists() for path in files.values())

    with commonplace.open(tmp_path / "team.db") as book:  # another process, which has not written the files
        assert files["kim"].name in where(book, "Quartz Lane")
        book.erase([opened.id, changed_at.id])
        assert not files["kim"].exists()
        assert files["tea"].exists()
        assert files["tea"].name in where(book, "Tea is hot")
        report = book.purge()
        assert report.purged
        assert where(book, "Quartz Lane") == []
        assert str(files["tea"]) in [one.path for one in report.files]
        assert not files["tea"].exists()  # a purge removes what can be written again
        assert files["tea"] == book.run(folder, run_id="tea").save()
        assert files["tea"].exists()


@pytest.mark.spec("L10", "2.10")
def test_the_state_file_of_a_fork_goes_with_what_it_began_with(local: Book, tmp_path: Path) -> None:
    folder = write(tmp_path, with_(small("scout"), {"state.persistence": True}))
    run = local.run(folder, run_id="r")
    with run.agent("scout") as me:
        secret = me.write({"answer": "Kim lives at Quartz Lane 7", "confidence": 0.9})
    fork = run.fork(new_id="fork")
    files = [run.save(), fork.save()]
    assert all("Quartz" in path.read_text() for path in files)
    (written,) = [event for event in local.events(run_id="r") if event.position == secret.position]
    local.erase(written.id)
    assert not any(path.exists() for path in files)
    assert "Quartz" not in fork.save().read_text()  # written again, it holds what is left


@pytest.mark.spec("L10")
def test_a_state_file_that_cannot_be_removed_is_told_by_the_purge(local: Book, tmp_path: Path) -> None:
    folder = write(tmp_path / "flow", with_(small("scout"), {"state.persistence": True}))
    run = local.run(folder, run_id="r")
    secret = run.agent("scout").write({"answer": "Kim lives at Quartz Lane 7", "confidence": 0.9})
    run.save()
    (folder / "data").rename(tmp_path / "elsewhere")
    (folder / "data").symlink_to(tmp_path / "elsewhere")
    (written,) = [event for event in local.events(run_id="r") if event.position == secret.position]
    local.erase(written.id)
    report = local.purge()
    assert not report.purged
    assert any("r.json" in line for line in report.remaining)
    (folder / "data").unlink()
    (tmp_path / "elsewhere").rename(folder / "data")
    assert local.purge().purged
    assert not (folder / "data/state/r.json").exists()


@pytest.mark.spec("L10")
def test_a_save_during_an_erasure_does_not_bring_back_what_was_erased(
    local: Book, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state was read before the erasure, and is written after the erasure has removed the file."""
    run = local.run(write(tmp_path, small("scout")), run_id="r")
    secret = run.agent("scout").write({"answer": "Kim lives at Quartz Lane 7", "confidence": 0.9})
    (written,) = [event for event in local.events(run_id="r") if event.position == secret.position]
    saved = local._session.services.outside.saved

    def erased_meanwhile(*file: Any) -> None:
        saved(*file)
        local.erase(written.id)

    monkeypatch.setattr(local._session.services.outside, "saved", erased_meanwhile)
    assert "Quartz" not in run.save().read_text()


@pytest.mark.spec("L10")
def test_a_purge_in_another_process_removes_a_state_file_that_erasing_did_not_reach(tmp_path: Path) -> None:
    folder = write(tmp_path / "flow", with_(small("scout"), {"state.persistence": True}))
    file = folder / "data/state/r.json"
    with commonplace.open(tmp_path / "team.db") as book:
        book.runs.execute(
            folder, agents=told(scout={"answer": "Quartz Lane 7", "confidence": 0.9}), run_id="r"
        )
        (written,) = book.events(run_id="r", kinds=("state.changed",))
        (folder / "data").rename(tmp_path / "elsewhere")
        book.erase(written.id)
    (tmp_path / "elsewhere").rename(folder / "data")  # the place was not there when it was erased
    assert "Quartz" in file.read_text()
    with commonplace.open(tmp_path / "team.db") as book:
        assert "r.json" in where(book, "Quartz Lane")
        report = book.purge()
        assert (report.purged, where(book, "Quartz Lane"), file.exists()) == (True, [], False)


@pytest.mark.spec("2.7", "7.6")
@pytest.mark.parametrize(
    "env",
    [
        {"DOOR_TOKEN": {"sensitive": True}},
        {
            "required": [
                {"name": "DOOR_TOKEN", "sensitive": True},
                "OTHER",
                {"name": "OPEN_WORD", "sensitive": False},
            ]
        },
        {"optional": [{"name": "DOOR_TOKEN", "sensitive": True}]},
        [{"name": "DOOR_TOKEN", "sensitive": True}, "OTHER", {"name": "OPEN_WORD"}],
        {"variables": {"DOOR_TOKEN": {"sensitive": True}, "OPEN_WORD": {"sensitive": False}}},
    ],
)
def test_a_sensitive_variable_of_the_environment_is_in_no_output(
    local: Book, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, env: object
) -> None:
    monkeypatch.setenv("DOOR_TOKEN", "quartz-4711-lane")
    monkeypatch.setenv("OPEN_WORD", "sesame-for-all")
    said = {"answer": "quartz-4711-lane sesame-for-all", "confidence": 0.9}
    run_one(local, tmp_path, with_(small("scout"), {"env": env}), lambda _me: said, run_id="r")
    assert local.run(run_id="r").state()["scout"]["answer"] == "[REDACTED] sesame-for-all"


@pytest.mark.spec("2.7", "7.6")
@pytest.mark.parametrize("names", ["DOOR_TOKEN", ["DOOR_TOKEN"]])
def test_sensitive_variables_are_named_in_a_list_or_alone(
    local: Book, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: object
) -> None:
    monkeypatch.setenv("DOOR_TOKEN", "quartz-4711-lane")
    documents = with_(small("scout"), {"security.sensitive_env": names})
    said = {"answer": "quartz-4711-lane", "confidence": 0.9}
    run_one(local, tmp_path, documents, lambda _me: said, run_id="r")
    assert local.run(run_id="r").state()["scout"]["answer"] == "[REDACTED]"
