"""Actors, rights, labels and redaction, on every engine."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import commonplace
from commonplace import Book
from commonplace.access.audit import FIRST, AuditEntry, first_bad
from commonplace.access.redact import TOKEN, Redactor
from commonplace.access.rights import PUBLIC_KINDS, ROLES, TIERS
from commonplace.ledger.events import draft
from commonplace.ledger.labels import FLOWING, flow, strictness


def kinds(events: Iterator[commonplace.Event]) -> list[str]:
    return [event.kind for event in events]


def denials(book: Book) -> list[tuple[str, str, str]]:
    return [
        (event.payload["actor"], event.payload["act"], event.payload["what"])
        for event in book.events(kinds=["access.denied"])
    ]


@pytest.mark.spec("4.3", "L5")
def test_an_actor_sees_its_own_events_and_the_public_kinds_and_nothing_of_the_rest(book: Book) -> None:
    ada, ben = book.as_actor("ada", role="developer"), book.as_actor("ben", role="qa")
    ada.record("agent.thought", payload={"text": "ben is slow"}, id="thought")
    ada.record("agent.spoke", payload={"text": "hello ben"})
    ben.record("tool.ran", payload={"name": "ls"}, id="tool")
    assert kinds(ada.events()) == ["agent.thought", "agent.spoke"]
    assert kinds(ben.events()) == ["agent.spoke", "tool.ran"]
    assert len(list(book.events())) == 5  # the owner: both roles, too
    with pytest.raises(commonplace.NotFound) as hidden:
        ben.event("thought")
    with pytest.raises(commonplace.NotFound) as absent:
        ben.event("no such")
    assert str(hidden.value).replace("thought", "no such") == str(absent.value)
    # one answer and one event for both, so that not even their number tells
    assert denials(book) == [("ben", "event", "thought"), ("ben", "event", "no such")]
    assert "access.denied" not in kinds(ben.events())  # who was denied does not even see that


@pytest.mark.spec("4.3", "L3")
def test_watching_is_limited_like_reading(book: Book) -> None:
    ada, ben = book.as_actor("ada"), book.as_actor("ben")
    ada.record("agent.thought", payload={"text": "secret"})
    ada.record("agent.spoke", payload={"text": "hello"})
    assert [event.kind for event in ben.watch(after=0, timeout=0)] == ["agent.spoke"]


@pytest.mark.spec("1.5", "L5")
def test_who_may_emit_what_is_a_rule_and_a_denial_is_an_error_and_an_event(book: Book) -> None:
    book.access.grant("*", may_emit=["agent.*"])
    book.access.grant("role:qa", may_emit=["judge.verdict", "agent.spoke"])
    ada, ben = book.as_actor("ada"), book.as_actor("ben", role="qa")
    ada.record("agent.spoke")
    ben.record("judge.verdict")
    with pytest.raises(
        commonplace.Denied, match=r"'ada' may not record 'judge.verdict': it may record agent\.\*"
    ):
        ada.record("judge.verdict", payload={"text": "guilty"})
    with pytest.raises(commonplace.Denied):
        book.record_all([{"kind": "agent.spoke", "actor": "ben"}, {"kind": "agent.thought", "actor": "ben"}])
    assert denials(book) == [("ada", "emit", "judge.verdict"), ("ben", "emit", "agent.thought")]
    assert kinds(book.events(actor="ada")) == ["agent.spoke"]
    assert kinds(book.events(actor="ben")) == ["judge.verdict"]  # of the batch, nothing
    book.record("anything.goes")  # the owner
    book.access.grant("ada", may_emit=["judge.*"])
    ada.record("judge.verdict")


@pytest.mark.spec("1.5")
def test_nobody_forges_rights(book: Book) -> None:
    ada = book.as_actor("ada")
    for kind in ("access.granted", "access.denied", "state.changed", "state.anything"):
        with pytest.raises(commonplace.OwnedKind):
            ada.record(kind, payload={})
    with pytest.raises(commonplace.Denied, match="change the rights"):
        ada.access.grant("ada", acts=["grant"])
    with pytest.raises(commonplace.Denied, match="in the name of others"):
        ada.record("agent.spoke", actor="ben")
    assert [act for _, act, _ in denials(book)] == ["grant", "record as"]
    assert ada.access.rights().acts == frozenset()
    book.access.grant("ada", acts=["grant"])
    ada.access.grant("ben", acts=["see_as"])
    assert book.as_actor("ben").access.rights().may("see_as")


@pytest.mark.spec("L7")
def test_reading_as_of_then_needs_the_right_then_and_now(book: Book) -> None:
    ada = book.as_actor("ada")
    book.record("clue.found", actor="ben", payload={"text": "a hat"})
    early = book.head
    assert kinds(ada.events()) == []
    book.access.grant("ada", sees=["clue.*"])
    granted = book.head
    assert kinds(ada.events()) == ["clue.found"]
    assert kinds(ada.events(at=early)) == []  # then she could not
    assert kinds(ada.events(at=granted)) == ["clue.found"]
    book.access.grant("ada", sees=[])
    assert kinds(ada.events(at=granted)) == []  # now she may not
    assert ada.access.rights(at=granted).sees == ("clue.*",)
    assert ada.access.rights().sees == ()


@pytest.mark.spec("L7")
def test_an_actor_forges_nothing_with_a_draft(book: Book) -> None:
    ben = book.as_actor("ben")
    for forged in (draft("agent.spoke", actor="owner"), draft("agent.spoke", actor="ben")):
        with pytest.raises(commonplace.BadInput, match="mapping of fields"):
            ben.record_all([forged])  # type: ignore[list-item, unused-ignore]
    assert book.record_all([draft("agent.spoke", actor="ada")])[0].actor == "ada"


@pytest.mark.spec("L7")
def test_asking_for_another_ones_view_is_a_right_and_is_recorded(book: Book) -> None:
    ada, lead = book.as_actor("ada", role="developer"), book.as_actor("lead", role="orchestrator")
    ada.record("agent.thought", payload={"text": "hm"})
    with pytest.raises(commonplace.Denied, match="what another actor sees"):
        ada.access.look_as("lead")
    through = lead.access.look_as("ada")
    assert kinds(through.events()) == ["agent.thought"]
    with pytest.raises(commonplace.Denied, match="may not act"):
        through.record("agent.spoke")
    viewed = [event.payload for event in book.events(kinds=["access.viewed"])]
    assert viewed == [{"actor": "lead", "of": "ada"}]
    assert denials(book) == [("ada", "see_as", "lead"), ("lead", "act as", "agent.spoke")]


@pytest.mark.spec("3.9")
def test_tiers_default_to_read_write_and_the_history_of_runs_to_read(book: Book) -> None:
    book.access.grant("*", tiers={"long_term": "read"})
    book.access.grant("role:librarian", tiers={"long_term": "read_write"})
    ada, lib = book.as_actor("ada"), book.as_actor("lib", role="librarian")
    assert {tier: ada.access.rights().tier(tier) for tier in TIERS} == {
        "long_term": "read",
        "working": "read_write",
        "episodic": "read",
        "semantic": "read_write",
    }
    assert lib.access.rights().tier("long_term") == "read_write"
    book.access.grant("lib", tiers={"episodic": "none"})
    assert (lib.access.rights().tier("episodic"), lib.access.rights().tier("long_term")) == (
        "none",
        "read_write",
    )


@pytest.mark.parametrize(
    "rule",
    [
        {"role": "king"},
        {"tiers": {"attic": "read"}},
        {"tiers": {"working": "write"}},
        {"acts": ["fly"]},
        {"ceiling": "secret"},
        {"may_emit": [""]},
    ],
)
def test_a_bad_rule_says_what_is_allowed_and_changes_nothing(rule: dict[str, Any]) -> None:
    with commonplace.open("memory:") as book:
        with pytest.raises(commonplace.BadInput):
            book.access.grant("ada", **rule)
        with pytest.raises(commonplace.BadInput, match="roles are orchestrator"):
            book.access.grant("role:king", tiers={"working": "none"})
        assert book.head == 0


def test_the_same_role_again_is_no_event(book: Book) -> None:
    for _ in range(3):
        book.as_actor("ada", role="developer")
    assert book.head == 1
    assert {*ROLES} == {"orchestrator", "developer", "qa", "researcher", "librarian", "analyst", "person"}
    rule: dict[str, Any] = {
        "sees": ["tool.*"],
        "may_emit": ["agent.*"],
        "acts": ["nudge"],
        "ceiling": "public",
    }
    book.access.grant("ben", **rule)
    before = book.head
    for replace in (False, True):
        book.access.grant("ben", **rule, replace=replace)
    assert book.head == before


@pytest.mark.spec("1.5", "3.9")
def test_a_rule_that_says_something_new_holds_whatever_else_it_repeats(book: Book) -> None:
    book.access.grant("ada", role="qa", sees=["tool.*"], ceiling="private")
    book.record("tool.ran", actor="ben", labels={"sensitivity": "sensitive"}, id="hidden")
    book.access.grant("ada", role="qa", sees=["tool.*"], ceiling="sensitive")
    assert book.as_actor("ada").event("hidden").kind == "tool.ran"
    book.access.grant("ada", role="qa", sees=["tool.*"], ceiling="public")
    assert list(book.as_actor("ada").events()) == []


@pytest.mark.spec("L8")
def test_what_is_derived_is_as_sensitive_as_its_sources_and_only_a_person_lowers_that(book: Book) -> None:
    source = book.record("agent.spoke", labels={"sensitivity": "sensitive", "trust": "high", "mine": "x"})
    other = book.record("agent.spoke", labels={"trust": "low"})
    summary = book.record(
        "agent.reflected",
        actor="ada",
        parents=[source.id, other.id],
        labels={"sensitivity": "public"},
        id="s",
    )
    assert summary.labels == {"sensitivity": "sensitive", "trust": "low"}
    again = book.record(
        "agent.reflected",
        actor="ada",
        parents=[source.id, other.id],
        labels={"sensitivity": "public"},
        id="s",
    )
    assert again.position == summary.position
    ben = book.as_actor("ben")
    assert kinds(ben.events()) == ["agent.spoke"]  # the other one; not what is sensitive
    dev, person = book.as_actor("dev", role="developer"), book.as_actor("pat", role="person")
    book.access.grant("dev", ceiling="sensitive")
    book.access.grant("pat", ceiling="sensitive")
    with pytest.raises(commonplace.Denied, match="lower a label"):
        dev.access.relabel(source.id, sensitivity="public", reason="why not")
    person.access.relabel(source.id, sensitivity="public", reason="published last week")
    derived = book.record("agent.reflected", parents=[source.id])
    assert derived.labels == {"sensitivity": "public", "trust": "high"}
    assert [event.id for event in ben.events(kinds=["agent.spoke"])] == [source.id, other.id]
    assert [event.id for event in ben.events(kinds=["agent.spoke"], at=summary.position)] == [other.id]
    with pytest.raises(commonplace.NotFound):
        ben.access.relabel(summary.id, sensitivity="sensitive", reason="he cannot see it")


@pytest.mark.spec("L8", "L10")
def test_a_label_outlives_the_event_that_set_it(book: Book) -> None:
    ada, ben = book.as_actor("ada"), book.as_actor("ben")
    said = ada.record("agent.spoke", payload={"text": "the vault moves on Monday"})
    assert [event.id for event in ben.events()] == [said.id]
    relabelled = book.access.relabel(said.id, sensitivity="sensitive", reason="the vault is a secret")
    book.erase(relabelled.id)
    assert list(ben.events()) == []
    book.rebuild()
    assert list(ben.events()) == []
    assert "the vault is a secret" not in str([event.payload for event in book.events()])


@pytest.mark.spec("L10", "L7")
def test_what_was_erased_still_shows_that_it_was_there_and_nothing_more(book: Book) -> None:
    ada, ben = book.as_actor("ada"), book.as_actor("ben")
    kept = str(ada.remember("the vault moves on Monday", shared=True).item_id)
    before = book.head
    ada.forget(kept, erase=True, confirm="FORGET")
    for reader in (ada, ben):
        assert (reader.event(kept).erased, reader.event(kept).payload) == (True, {})
        assert [event.erased for event in reader.events(at=before)] == [True]


@pytest.mark.spec("L8")
@given(
    own=st.dictionaries(st.sampled_from(sorted(FLOWING)), st.sampled_from(["public", "low", "sensitive"])),
    sources=st.lists(
        st.dictionaries(
            st.sampled_from(sorted(FLOWING)), st.sampled_from(["public", "private", "high", "low", "?"])
        )
    ),
)
def test_labels_only_ever_flow_towards_the_stricter(
    own: dict[str, str], sources: list[dict[str, str]]
) -> None:
    flowed = flow(own, sources)
    for label in FLOWING:
        said = [strictness(label, one[label]) for one in (own, *sources) if label in one]
        assert (label in flowed) == bool(said)
        if said:
            assert strictness(label, flowed[label]) == max(said)
    assert flow(flowed, sources) == flowed


@pytest.mark.spec("1.4", "L5")
def test_an_actors_export_holds_what_it_may_see_and_can_be_taken_in(book: Book, tmp_path: Path) -> None:
    ada, ben = book.as_actor("ada"), book.as_actor("ben")
    thought = ada.record("agent.thought", payload={"text": "PRIVATE-THOUGHT"})
    ada.record("agent.spoke", payload={"text": "hello"}, parents=[thought.id])
    ben.record("tool.ran", payload={"name": "ls"})
    assert ben.export(tmp_path / "ben.jsonl") == 2
    text = (tmp_path / "ben.jsonl").read_text()
    assert "PRIVATE-THOUGHT" not in text
    assert thought.id not in text
    with commonplace.open(tmp_path / "new.db") as fresh:
        assert fresh.admin.import_(tmp_path / "ben.jsonl").events == 2
        assert kinds(fresh.events()) == ["agent.spoke", "tool.ran"]
        assert fresh.verify().ok
    assert ada.export(tmp_path / "ada.jsonl") == 2


@pytest.mark.spec("2.7")
def test_the_audit_is_a_chain_without_content(book: Book) -> None:
    book.access.grant("ada", role="qa")
    with book.run(run_id="r") as run, run.agent("ada") as me:
        me.write({"finding": "CONTENT"})
    chain = list(book.access.audit())
    assert [entry.event_type for entry in chain] == [
        "access.granted",
        "run.start",
        "state.change",
        "memory.write",
        "run.end",
    ]
    change = chain[2]
    assert (change.agent_id, change.details["run_id"], change.details["fields_changed"]) == (
        "ada",
        "r",
        ["finding"],
    )
    assert chain[0].prev_hash == FIRST
    assert first_bad(chain) is None
    forged = [*chain[:2], msgspec.structs.replace(change, agent_id="ben"), *chain[3:]]
    assert first_bad(forged) == 3
    assert first_bad(chain[1:]) == 1
    stored = [json.loads(json.dumps(msgspec.to_builtins(entry), sort_keys=True)) for entry in chain]
    assert (
        first_bad(msgspec.convert(stored, list[AuditEntry])) is None
    )  # the order of its fields is no part of it
    assert "CONTENT" not in json.dumps([msgspec.to_builtins(entry) for entry in chain])


# redaction

SECRET = "hunter2-xyzzy"


@pytest.mark.spec("2.7")
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.text(max_size=8)
        | st.just(SECRET)
        | st.just(f"key={SECRET}!"),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.sampled_from(["a", "api_key", "text", SECRET]), inner, max_size=4)
        ),
        max_leaves=12,
    )
)
@settings(max_examples=300)
def test_no_secret_survives_redaction_wherever_it_is_planted(value: Any) -> None:
    hide = Redactor(fields=["api_key"], patterns=["hunter2-[a-z]+"])
    assert SECRET not in json.dumps(hide(value))
    known = knowing("api_key", {"api_key": {"deep": [SECRET]}})
    shown = known(value)
    assert SECRET not in json.dumps(shown)
    assert known(shown) == shown
    assert Redactor()(value) == value


def knowing(field: str, value: object) -> Redactor:
    """A redactor of this field that has learned the field's texts from the value."""
    return Redactor([field], secrets=Redactor([field]).secrets_in(value))


def test_redaction_keeps_the_shape_and_masks_the_longest_secret_first() -> None:
    hide = knowing("key", {"key": ["abcd", "abcdefgh"], "rest": 1})
    assert hide({"key": {"x": 1}, "text": "abcdefgh and abcd", "n": [1, "abcd"]}) == {
        "key": TOKEN,
        "text": f"{TOKEN} and {TOKEN}",
        "n": [1, TOKEN],
    }
    assert knowing("pin", {"pin": 123456})({"number": 123456, "ok": True}) == {
        "number": TOKEN,
        "ok": True,
    }
    lines = knowing("key", {"key": "the first line of it\nline\n"})
    assert lines("no line, or the first line of it") == f"no line, or {TOKEN}"


def test_the_public_kinds_are_those_of_the_seed() -> None:
    assert "agent.thought" not in PUBLIC_KINDS
    assert {
        "world.observed",
        "judge.verdict",
        "user.injected",
        "run.started",
        "agent.reflected",
    } <= PUBLIC_KINDS


class Cost:
    """Counts what is read of a store: snapshots, records and rows."""

    def __init__(self, book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
        self.snapshots = self.records = self.rows = 0
        store = book.ledger.store
        read = store.read

        @contextmanager
        def counted(*args: Any, **more: Any) -> Iterator[Any]:
            with read(*args, **more) as reads:
                self.snapshots += 1
                yield _CountedReads(reads, self)

        monkeypatch.setattr(store, "read", counted)

    def of(self, call: Callable[[], object]) -> tuple[int, int, int]:
        self.snapshots = self.records = self.rows = 0
        call()
        return self.snapshots, self.records, self.rows


class _CountedReads:
    def __init__(self, reads: Any, cost: Cost) -> None:
        self._reads, self._cost = reads, cost

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._reads, name)
        if name not in ("records", "by_id", "get", "get_all", "scan"):
            return found

        def counted(*args: Any, **more: Any) -> Any:
            answer = found(*args, **more)
            asked = len(args[1]) if name == "get" else len(answer)
            if name in ("records", "by_id"):
                self._cost.records += asked
            else:
                self._cost.rows += asked
            return answer

        return counted


@pytest.mark.spec("4.3", "L7")
def test_what_an_actor_reads_costs_at_most_twice_what_the_owner_reads(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run in range(20):
        events = [
            {
                "kind": "agent.spoke" if n % 5 else "agent.thought",
                "actor": "ada" if n % 2 else "bob",
                "run_id": f"r{run}",
                "id": f"{run}-{n}",
                "parents": [f"{run - 1}-{n}"] if run and n % 8 == 0 else [],
            }
            for n in range(1, 51)
        ]
        book.record_all(events)
    book.access.relabel("3-3", sensitivity="sensitive", reason="a name")
    cost, ada, head = Cost(book, monkeypatch), book.as_actor("ada"), book.head

    owners = cost.of(lambda: list(book.events(at=head)))
    adas = cost.of(lambda: list(ada.events(at=head)))
    assert owners[:2] == (owners[0], head)
    assert (
        adas[0] <= 5 * owners[0]
    )  # for each page: one to read it, one of now, one of then, one of other pages' parents
    assert adas[1] <= 1.2 * owners[1]
    assert adas[2] <= 0.1 * head

    owners = cost.of(book.runs.list)
    adas = cost.of(ada.runs.list)
    assert len(ada.runs.list()) == 20
    assert adas[0] <= owners[0] + 2
    assert adas[1] <= 2 * 20
    assert adas[2] <= 2 * owners[2]


@pytest.mark.spec("4.3")
def test_a_run_that_shows_an_actor_only_a_late_event_is_among_its_runs(book: Book) -> None:
    for run, late in (("hidden", "agent.thought"), ("late", "agent.spoke")):
        book.record_all({"kind": "agent.thought", "actor": "bob", "run_id": run} for _ in range(40))
        book.record(late, actor="bob", run_id=run)
    ada = book.as_actor("ada")
    assert [run.id for run in ada.runs.list()] == ["late"]
    assert ada.runs.list(at=book.head - 1) == []


@pytest.mark.spec("4.8", "L5")
def test_the_audit_is_there_also_for_what_a_task_has_verified() -> None:
    with commonplace.open("memory:") as book:
        book.as_actor("ada").learn.phase_start("Move the shop", "checkout")
        book.as_actor("ada").learn.verify_item(
            "Move the shop", "cart", description="the cart keeps its items"
        )
        entries = list(book.access.audit())
        assert "memory.write" in {entry.event_type for entry in entries}


@pytest.mark.spec("L12")
def test_doing_what_a_refusal_says_takes_no_right_away(book: Book) -> None:
    work = book.work(name="Bakery", id="bakery")
    lena = book.as_actor("lena", role="orchestrator")
    acts = lena.access.rights().acts
    with pytest.raises(commonplace.Denied) as refused:
        lena.access.grant("ben", acts=["nudge"])
    hint = re.search(r"acts=(\[.*?\])", str(refused.value))
    assert hint is not None
    book.access.grant("lena", acts=ast.literal_eval(hint[1]))
    assert lena.access.rights().acts == {*acts, "grant"}
    assert lena.work(id=work.id).add_task("Heat the oven").title == "Heat the oven"
