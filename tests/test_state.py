"""Run state: three models, limits, contracts, versions, forks and merges, on every engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

import commonplace
from commonplace import Book, Run
from commonplace.state.policy import AgentPolicy, Persistence, Policy, Start, StateLimits
from commonplace.state.requests import Open
from tests.serving import ledger_below

CONTRACT = {
    "type": "object",
    "properties": {
        "findings": {"type": "array", "items": {"type": "string"}},
        "confidence": {"type": "number", "minimum": 0, "maximum": 1},
        "mood": {"type": "string", "enum": ["calm", "tense"]},
    },
    "required": ["findings"],
    "additionalProperties": False,
}


def open_run(book: Book, id: str = "r", given: Mapping[str, Any] | None = None, **rules: Any) -> Run:
    start = rules.pop("start", Start())
    ledger_below(book).submit("state.open", Open(id, "owner", Policy(**rules), start, dict(given or {})))
    return book.run(run_id=id)


def known(state: Mapping[str, Any]) -> dict[str, Any]:
    """The state without what the runtime keeps."""
    return {key: value for key, value in state.items() if not key.startswith("_")}


@pytest.mark.spec("2.1", "2.3")
def test_agents_take_turns_and_each_writes_its_own_entry(book: Book) -> None:
    with book.run(run_id="r", initial={"topic": "tea"}) as run:
        with run.agent("ada") as me:
            assert known(me.state) == {"topic": "tea"}
            written = me.write({"findings": ["green"], "confidence": 0.9})
            assert (written.outcome, written.fields) == ("stored", ("confidence", "findings"))
            assert known(run.agent("ben").state) == {"topic": "tea"}  # ada is not done yet
        with run.agent("ben") as me:
            assert known(me.state)["ada"] == {"findings": ["green"], "confidence": 0.9}
            me.write({"draft": "on tea"})
        assert run.status == "running"
    state = run.state()
    assert known(state) == {
        "topic": "tea",
        "ada": {"findings": ["green"], "confidence": 0.9},
        "ben": {"draft": "on tea"},
    }
    assert state["_meta"]["run_id"] == "r"
    assert state["_meta"]["status"] == run.status == "completed"
    assert (state["_errors"], set(state["_trace"])) == ([], {"trace_id", "span_id"})
    with pytest.raises(commonplace.Conflict, match="completed"):
        run.agent("ada").write({"late": 1})


@pytest.mark.spec("2.1")
def test_event_sourced_state_is_what_its_events_say(book: Book) -> None:
    run = open_run(book, model="event_sourced")
    me = run.agent("ada")
    me.emit("set", {"count": 1, "log": ["a"]})
    me.emit("increment", {"count": 4})
    middle = book.head
    me.emit("append", {"log": "b"})
    me.emit("finding.added", {"latest": "x"})
    me.emit("remove", {"count": True})
    assert run.state()["ada"] == {"log": ["a", "b"], "latest": "x"}
    assert run.state(at=middle)["ada"] == {"count": 5, "log": ["a"]}
    events = list(book.events(run_id="r", kinds=["state.changed"]))
    assert [event.payload["type"] for event in events] == [
        "set",
        "increment",
        "append",
        "finding.added",
        "remove",
    ]
    assert all(event.id and event.created_at and event.actor == "ada" for event in events)
    for type, payload in (("append", {"latest": 1}), ("increment", {"log": 1}), ("increment", {"n": "x"})):
        with pytest.raises(commonplace.BadInput):
            me.emit(type, payload)
    assert book.head == events[-1].position


@pytest.mark.spec("2.1")
def test_cqrs_reads_a_projection_that_lags_and_says_as_of_where(book: Book) -> None:
    run = open_run(book, model="cqrs", given={"topic": "tea"})
    me = run.agent("ada")
    assert (known(run.state()), run.state().as_of) == ({}, 0)
    me.command("set", {"n": 1})
    as_of = run.catch_up()
    me.command("set", {"n": 2})
    assert (known(run.state()), run.state().as_of) == ({"topic": "tea", "ada": {"n": 1}}, as_of)
    assert run.state(at=book.head)["ada"] == {"n": 2}  # the write side has it
    me.finish()  # the runtime lets the projection catch up after each turn
    assert (run.state()["ada"], run.state().as_of) == ({"n": 2}, book.head)
    book.rebuild()
    assert run.state()["ada"] == {"n": 2}


@pytest.mark.spec("2.2")
def test_start_values_come_from_the_caller_then_auto_inject_then_the_file(book: Book) -> None:
    start = Start(
        initial={"a": "file", "b": "file", "c": "file"},
        auto_inject={
            "b": "auto",
            "c": "auto",
            "when": "${now}",
            "nested": {"id": ["run {{RUN_ID}}", "{{TIMESTAMP}}"]},
        },
        required_fields=("a", "when"),
    )
    state = open_run(book, given={"c": "caller"}, start=start).state()
    assert (state["a"], state["b"], state["c"]) == ("file", "auto", "caller")
    assert state["when"] == state["nested"]["id"][1] == state["_meta"]["started_at"]
    assert state["nested"]["id"][0] == "run r"
    assert (
        open_run(book, "r2", {"c": "${now}"}, start=start).state()["c"] == "${now}"
    )  # the caller's own words
    with pytest.raises(commonplace.BadInput) as refused:
        open_run(book, "r3", {"_meta": 1, "x": 1}, start=Start(required_fields=("y", "z")))
    for told in ("_meta", "R13", "y is required", "z is required"):
        assert told in str(refused.value)
    assert "r3" not in [run.id for run in book.runs.list()]


@pytest.mark.spec("2.3", "L5")
@pytest.mark.parametrize("key", ["_meta", "_errors", "_trace", "_workflow"])
def test_reserved_keys_are_the_runtimes(key: str) -> None:
    with commonplace.open("memory:") as book:
        run = open_run(book)
        before = run.state()
        with pytest.raises(commonplace.Denied, match="R13"):
            run.agent("ada").write({key: {"status": "mine"}, "fine": 1})
        assert known(run.state()) == known(before) == {}
        (denied,) = book.events(kinds=["access.denied"])
        assert denied.payload == {"actor": "ada", "act": "state.write", "what": key}


@pytest.mark.spec("2.5")
def test_limits_refuse_the_write_that_would_pass_them_and_keep_the_state(book: Book) -> None:
    run = open_run(
        book,
        limits=StateLimits(max_state_size_mb=0.01, max_field_size_mb=0.005, max_fields=4),
        given={"a": 1},
    )
    ada, ben, cem = (run.agent(name) for name in ("ada", "ben", "cem"))
    ada.write({"x": "y" * 5_000})
    ben.write({"x": "y" * 5_000})
    head, state = book.head, run.state()
    for agent, output, told in (
        (ada, {"big": "y" * 6_000, "small": 1}, "a field may have"),
        (ben, {"more": "y" * 3_000}, "the state would be"),
        (cem, {"n": 1}, None),
    ):
        if told is None:
            agent.write(output)
        else:
            with pytest.raises(commonplace.TooLarge, match=told):
                agent.write(output)
            assert (book.head, run.state()) == (head, state)
    with pytest.raises(commonplace.TooLarge, match="would have 5 keys"):
        run.agent("dan").write({"n": 1})
    ben.write({"x": "small"})  # shrinking makes room again
    ben.write({"more": "y" * 3_000})
    with pytest.raises(commonplace.TooLarge):
        open_run(book, "big", {"a": "x" * 6_000}, limits=StateLimits(max_field_size_mb=0.005))


@pytest.mark.spec("2.8", "L5")
def test_an_output_that_breaks_its_contract_is_refused_by_field_and_rule(book: Book) -> None:
    run = open_run(book, agents={"ada": AgentPolicy(contract=CONTRACT)})
    me = run.agent("ada")
    with pytest.raises(commonplace.ContractViolation) as broken:
        me.write({"findings": ["ok", 7], "confidence": 1.7, "mood": "SECRET-MOOD", "extra": 1})
    told = {(one["field"], one["rule"]) for one in broken.value.violations}
    assert {field for field, _ in told} == {"findings.1", "confidence", "mood", "extra"}
    assert ("confidence", "must be a number from 0 to 1") in told
    assert "SECRET-MOOD" not in str(broken.value)
    assert (broken.value.agent, broken.value.as_dict()["status"]) == ("ada", 422)
    (event,) = book.events(kinds=["state.violated"])
    assert event.payload["agent"] == "ada"
    assert "SECRET-MOOD" not in json.dumps(event.payload)
    assert "ada" not in run.state()
    with pytest.raises(commonplace.ContractViolation, match="findings is required"):
        me.write({"confidence": 0.5})
    for wrong in (True, "high", -0.1, None):
        with pytest.raises(commonplace.ContractViolation, match="confidence must be a number from 0 to 1"):
            me.write({"findings": [], "confidence": wrong})
    written = me.write({"findings": ["x"]})
    assert run.state()["ada"] == {"findings": ["x"], "confidence": 0.5}
    assert "filled in" in written.warnings[0]
    with pytest.raises(commonplace.BadInput, match="its agents are ada"):
        run.agent("stranger").write({})


@pytest.mark.spec("2.8")
def test_a_strict_contract_asks_for_confidence_and_a_partial_write_may_wait_with_the_rest(book: Book) -> None:
    strict = {**CONTRACT, "required": ["findings", "confidence"]}
    run = open_run(book, validation="strict", agents={"ada": AgentPolicy(contract=strict)})
    with pytest.raises(commonplace.ContractViolation, match="confidence is required"):
        run.agent("ada").write({"findings": []})
    with pytest.raises(commonplace.ContractViolation, match="findings is required"), run.agent("ada") as me:
        me.write({"confidence": 0.4}, partial=True)
    assert run.steps()["ada"]["status"] == "failed"
    with run.agent("ada") as me:
        me.write({"findings": ["late"]})
    assert run.steps()["ada"]["status"] == "finished"
    assert run.state()["_errors"][0]["type"] == "ContractViolation"


@pytest.mark.spec("2.9", "L5")
def test_a_stale_writer_gets_both_versions_and_other_keys_never_conflict(book: Book) -> None:
    run = open_run(book)
    ada, ben = run.agent("ada"), run.agent("ben")
    ada.write({"n": 1, "other": 1})
    seen = run.state().as_of
    ben.write({"n": 5})
    ada.write({"other": 2}, if_position=seen)
    first = ada.write({"n": 2}, if_position=seen)
    with pytest.raises(commonplace.Conflict, match=f"you saw {seen}, it is at {first.position}") as stale:
        ada.write({"n": 3}, if_position=seen)
    assert stale.value.details == ({"field": "n", "seen": seen, "current": first.position, "value": 2},)
    assert run.state()["ada"] == {"n": 2, "other": 2}
    ada.write({"n": 3}, if_position=run.state().as_of)
    seen = run.state().as_of
    ada.emit("remove", {"n": True})
    with pytest.raises(commonplace.Conflict):  # taken away is written, too
        ada.write({"n": 4}, if_position=seen)


@pytest.mark.spec("2.5")
def test_the_limits_are_kept_count_of_through_removals_erasures_forks_and_merges(book: Book) -> None:
    run = open_run(book, limits=StateLimits(max_fields=2, max_state_size_mb=0.001), given={"a": "x" * 100})
    ada = run.agent("ada")
    for _ in range(20):
        written = ada.write({"big": "y" * 800})
        ada.emit("remove", {"big": True})
    with pytest.raises(commonplace.TooLarge, match="the state would be"):
        ada.write({"big": "y" * 1000})
    run.agent("ben").write({"n": 1})  # ada's entry is empty, so there is room for one more key
    with pytest.raises(commonplace.TooLarge, match="3 keys"):
        ada.write({"n": 1})
    fork = book.fork("r")
    fork.agent("ben").emit("remove", {"n": True})
    fork.agent("ada").write({"big": "z" * 800})
    assert book.runs.merge(fork.id).fields == ("ada.big", "ben.n")
    event = next(book.events(after=written.position - 1))
    book.erase([event.id, next(book.events(kinds=["state.opened"])).id])
    book.rebuild()
    assert known(run.state()) == {"ada": {"big": "z" * 800}}
    run.agent("ada").write({"big": "z" * 900})


@pytest.mark.spec("2.4", "2.10", "L1", "L7")
def test_any_past_position_can_be_read_forked_compared_and_rebuilt(book: Book) -> None:
    run = open_run(book, given={"topic": "tea"})
    states = {}
    for n in range(6):
        run.agent(("ada", "ben")[n % 2]).write({f"f{n % 3}": n})
        states[book.head] = run.state()
    for at, state in states.items():
        assert known(run.state(at=at)) == known(state)
    book.rebuild()
    for at, state in states.items():
        assert known(run.state(at=at)) == known(state)
        fork = book.fork("r", at=at)
        assert known(fork.state()) == known(state)
    third = list(states)[2]
    found = book.diff(f"r@{third}", "r")
    assert [(one.path, one.change, one.before, one.after) for one in found] == [
        ("ada.f1", "added", None, 4),
        ("ben.f0", "added", None, 3),
        ("ben.f2", "added", None, 5),
    ]
    assert book.diff("r", "r") == []
    with pytest.raises(commonplace.NotFound, match="no run 'nobody'"):
        book.diff("r", "nobody")
    with pytest.raises(commonplace.BadInput):
        book.fork("r", at=book.head + 1)


@pytest.mark.spec("2.10")
def test_a_fork_goes_its_own_way_and_is_merged_back_with_conflicts_shown(book: Book) -> None:
    run = open_run(book, given={"topic": "tea"})
    ada = run.agent("ada")
    ada.write({"a": 1, "b": 1, "list": [1]})
    fork = book.fork("r")
    ada.write({"a": 2})
    theirs = fork.agent("ada")
    theirs.write({"a": 3, "c": 3})
    theirs.emit("append", {"list": 2})
    theirs.emit("remove", {"b": True})
    fork.agent("ben").write({"new": 1})
    assert fork.state()["ada"] == {"a": 3, "c": 3, "list": [1, 2]}
    assert run.state()["ada"] == {"a": 2, "b": 1, "list": [1]}
    deeper = fork.fork()
    deeper.agent("ada").emit("append", {"list": 3})
    assert (deeper.state()["ada"]["list"], fork.state()["ada"]["list"]) == ([1, 2, 3], [1, 2])
    head = book.head
    with pytest.raises(commonplace.Conflict, match="ada.a") as both:
        book.runs.merge(fork.id)
    assert both.value.details == ({"field": "ada.a", "base": 1, "fork": 3, "target": 2},)
    assert book.head == head
    merged = book.runs.merge(fork.id, prefer="target")
    assert merged.fields == ("ada.b", "ada.c", "ada.list", "ben.new")
    assert run.state()["ada"] == {"a": 2, "c": 3, "list": [1, 2]}
    assert book.runs.merge(fork.id, prefer="fork").fields == ()  # that was settled
    theirs.write({"a": 4})
    assert book.runs.merge(fork.id).fields == ("ada.a",)  # no conflict: nobody has written it here since
    assert known(run.state()) == known(fork.state())
    theirs.write({"a": True, "c": None})
    run.agent("ada").write({"a": 1})
    with pytest.raises(commonplace.Conflict, match="ada.a"):  # true is not 1
        book.runs.merge(fork.id)
    book.runs.merge(fork.id, prefer="fork")
    assert run.state()["ada"] == {"a": True, "c": None, "list": [1, 2]}
    with pytest.raises(commonplace.BadInput, match="no fork"):
        book.runs.merge("r")
    before = {id: known(book.run(run_id=id).state()) for id in ("r", fork.id, deeper.id)}
    book.rebuild()
    assert {id: known(book.run(run_id=id).state()) for id in before} == before


@pytest.mark.spec("L10")
def test_what_is_erased_is_gone_from_state_and_from_every_fork(book: Book) -> None:
    run = open_run(book)
    run.agent("ada").write({"note": "keep"})
    secret = run.agent("ada").write({"note": "SECRET", "n": 1})
    fork = book.fork("r")
    event = next(book.events(after=secret.position - 1))
    book.erase(event.id)
    for one in (run, fork):
        assert one.state()["ada"] == {"note": "keep"}
        assert "SECRET" not in json.dumps(one.state(at=book.head))
    book.rebuild()
    assert fork.state()["ada"] == {"note": "keep"}
    run.agent("ada").write({"note": "new"})
    assert run.state()["ada"] == {"note": "new"}


@pytest.mark.spec("L10", "L8")
def test_erasing_reaches_what_forks_and_merges_have_carried_on(book: Book) -> None:
    run = open_run(book, sensitive_fields=("key",))
    secret = run.agent("ada").write({"list": ["SECRET"], "key": "k-1"})
    fork = book.fork("r")
    fork.agent("ada").emit("append", {"list": 2})
    fork.agent("ben").write({"n": 1})
    assert book.runs.merge(fork.id).fields == ("ada.list", "ben.n")
    merged = [event for event in book.events(run_id="r", kinds=["state.changed"]) if event.parents]
    assert merged[0].labels == {"sensitivity": "sensitive"}  # so was what it comes from
    book.erase(next(book.events(after=secret.position - 1)).id)
    assert "SECRET" not in json.dumps([event.as_dict() for event in book.events()])
    assert known(run.state()) == known(fork.state()) == {"ben": {"n": 1}}
    book.rebuild()
    assert known(run.state()) == known(fork.state()) == {"ben": {"n": 1}}


@pytest.mark.spec("2.4")
def test_going_on_with_a_run_needs_only_its_id(book_url: str, engine_name: str) -> None:
    with commonplace.open(book_url) as book:
        run = book.run(run_id="r", initial={"topic": "tea"})
        run.agent("ada").write({"n": 1})
        if engine_name == "memory":
            return
    with commonplace.open(book_url) as book:
        run = book.run(run_id="r", initial={"topic": "tea"})
        assert known(run.state()) == {"topic": "tea", "ada": {"n": 1}}
        with pytest.raises(commonplace.Conflict, match="other values of topic"):
            book.run(run_id="r", initial={"topic": "coffee"})
        run.close()
        run.close()
        with pytest.raises(commonplace.Conflict):
            run.close("failed")
        assert [(one.id, one.status) for one in book.runs.list()] == [("r", "completed")]


@pytest.mark.spec("2.4")
@pytest.mark.parametrize("format", ["json", "msgpack"])
@pytest.mark.parametrize("interval", ["per_agent", "per_run", "manual"])
def test_state_is_also_written_to_files(tmp_path: Path, format: Any, interval: Any) -> None:
    with commonplace.open("memory:") as book:
        open_run(book, "a/../b")
        persistence = Persistence(path="data/state", format=format, interval=interval)
        run = Run(book._session, "a/../b", folder=tmp_path, persistence=persistence)
        with run.agent("ada") as me:
            me.write({"n": 1})
        files = list((tmp_path / "data/state").glob("*"))
        assert bool(files) == (interval == "per_agent")
        run.close()
        assert bool(list((tmp_path / "data/state").glob("*"))) == (interval != "manual")
        path = run.save()
        assert path.parent == tmp_path / "data/state"
        assert list(path.parent.iterdir()) == [path]
        read = json.loads if format == "json" else msgspec.msgpack.decode
        assert read(path.read_bytes()) == run.state()
        assert path.stat().st_mode & 0o077 == 0


@pytest.mark.spec("2.7")
def test_secret_fields_are_redacted_in_event_views_errors_and_audit(book: Book) -> None:
    run = open_run(book, sensitive_fields=("api_key",), never_share=("raw",), patterns=("tok-[0-9]+",))
    ada = run.agent("ada")
    ada.write({"api_key": "KEY-12345", "raw": {"deep": ["RAW-67890"]}, "text": "uses KEY-12345 and tok-42"})
    ada.fail(ValueError("KEY-12345 was refused with tok-42"))
    shown = json.dumps([event.as_dict() for event in book.access.redacted(book.events())])
    shown += json.dumps([msgspec.to_builtins(entry) for entry in book.access.audit()])
    shown += json.dumps(run.state()["_errors"]) + json.dumps(run.steps())
    shown += json.dumps([event.as_dict() for event in book.as_actor("ada").events()])
    snippets = [mention.snippet for mention in book.admin.find(actor="ada")]
    shown += json.dumps(snippets)
    assert "uses [REDACTED] and [REDACTED]" in snippets
    for secret in ("KEY-12345", "RAW-67890", "tok-42"):
        assert secret not in shown
    assert "[REDACTED]" in shown
    event = next(book.events(kinds=["state.changed"]))
    assert event.payload["payload"]["api_key"] == "KEY-12345"  # the owner's ledger is whole
    assert event.labels == {"sensitivity": "sensitive"}


@pytest.mark.spec("2.6")
def test_an_actor_reads_the_run_as_itself_and_cannot_take_anothers_turn(book: Book) -> None:
    run = open_run(book, strategy="isolated", given={"topic": "tea"})
    with run.agent("ada") as me:
        me.write({"n": 1})
    ben = book.as_actor("ben").run(run_id="r")
    assert ben.state() == {}
    with pytest.raises(commonplace.Denied, match="may not act as 'ada'"):
        ben.agent("ada")
    ben.agent("ben").write({"mine": 1})
    assert ben.state() == {"ben": {"mine": 1}}
    fork = ben.fork()
    run.agent("ada").write({"n": 2})
    fork.agent("ben").write({"mine": 2})
    for forbidden in (
        lambda: ben.close(),
        lambda: ben.step("ada", "failed"),
        lambda: fork.merge(),
        ben.reopen,
    ):
        with pytest.raises(commonplace.Denied, match="the actor that opened it|marks its own turns"):
            forbidden()
    assert (run.status, run.steps()["ada"]["status"]) == ("running", "finished")
    fork.close()  # his own
    told = [event.payload["act"] for event in book.events(kinds=["access.denied"])]
    assert told == ["run.agent", "run.close", "run.step", "run.merge into", "run.reopen"]


@pytest.mark.spec("2.4")
def test_a_child_run_goes_one_level_deeper_within_the_limit(book: Book) -> None:
    run = open_run(book, max_depth=1, given={"topic": "tea"})
    child = run.child("r/sub", inherit={"topic": "tea"})
    assert (child.depth, known(child.state())) == (1, {"topic": "tea"})
    traces = [one.state()["_trace"] for one in (run, child)]
    assert traces[0]["trace_id"] == traces[1]["trace_id"]
    assert traces[0]["span_id"] != traces[1]["span_id"]
    with pytest.raises(commonplace.BadInput, match=r"R31"):
        run.child("x", inherit={}).child("y")
    assert [(one.id, one.parent) for one in book.runs.list()] == [("r", None), ("r/sub", "r"), ("x", "r")]


@pytest.mark.spec("2.4", "7.1")
def test_verbs_on_runs_take_the_run_itself_and_their_answers_read_as_sentences(book: Book) -> None:
    run = open_run(book, given={"topic": "tea"})
    written = run.agent("ada").write({"n": 1})
    assert str(written) == f"wrote n at position {written.position}"
    fork = book.fork(run, new_id="f")
    fork.agent("ada").write({"n": 2})
    assert [str(difference) for difference in book.diff(run, fork)] == ["changed ada.n: 1 → 2"]
    assert str(book.runs.merge(fork)) == "merged ada.n into r"
    infos = book.runs.list()
    assert [str(info) for info in infos] == ["r: running", "f: running, forked from r"]
    assert [book.runs.state(info)["ada"] for info in infos] == [{"n": 2}, {"n": 2}]
    assert book.runs.get(infos[0]).id == book.runs.get(run).id == "r"


def test_a_turn_has_all_that_an_actor_has(book: Book, tmp_path: Path) -> None:
    book.record("agent.spoke", actor="ada", payload={"text": "outside the run"})
    run = open_run(book)
    with run.agent("ada") as me:
        me.record("agent.spoke", payload={"text": "in the run"})
        assert isinstance(me, commonplace.Actor)
        assert repr(me) == "<Turn of 'ada' in the run 'r'>"
        me.export(tmp_path / "turn.jsonl")
    exported = (tmp_path / "turn.jsonl").read_text()
    assert "in the run" in exported
    assert "outside the run" not in exported
