"""Events: what may be in one, how it is sealed, and that nothing else gets in."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import commonplace
from commonplace.ledger.checks import from_us, is_name, to_us
from commonplace.ledger.encoding import MAX_DEPTH, MAX_PAYLOAD, encode_payload
from commonplace.ledger.events import draft, new_id, same_content, seal, unseal
from commonplace.ledger.keys import below, pack, unpack

text = st.text(st.characters(exclude_categories=["Cs"]))
names = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=200).filter(is_name)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner) | st.dictionaries(text, inner),
    max_leaves=20,
)
payloads = st.dictionaries(text, json_values)


@pytest.mark.spec("1.1", "L6")
@given(payload=payloads)
def test_a_payload_comes_back_as_it_was_and_its_bytes_are_canonical(payload: dict[str, Any]) -> None:
    raw, copy, blobs = encode_payload(payload)
    assert copy == payload
    assert json.loads(raw) == payload
    assert encode_payload(dict(reversed(list(copy.items()))))[0] == raw
    assert encode_payload(json.loads(raw))[0] == raw
    assert not blobs


@pytest.mark.spec("1.3", "L10")
@given(payload=payloads, actor=names, id=names, run=st.none() | names, turn=st.integers(0, 2**53 - 1))
def test_a_sealed_event_reads_back_and_any_change_is_noticed(
    payload: dict[str, Any], actor: str, id: str, run: str | None, turn: int
) -> None:
    one = draft("a.b", actor=actor, payload=payload, id=id, run_id=run, turn=turn)
    record, sealed = seal(one, 7, b"\x11" * 32, 1_700_000_000_000_000)
    event = unseal(record)
    assert event == sealed
    assert same_content(one, record)
    assert not same_content(draft("a.b", actor=actor, payload={**payload, "+": 1}, id=id), record)
    assert record.body is not None
    for damaged in (
        record._replace(body=record.body[:-1] + bytes([record.body[-1] ^ 1])),
        record._replace(header=record.header.replace(b"a.b", b"a.c", 1)),
        record._replace(hash=bytes(32)),
        record._replace(position=8),
        record._replace(id=id + "x"),
        record._replace(run="another run"),
        record._replace(created_at=0),
    ):
        with pytest.raises(commonplace.Corrupt) as found:
            unseal(damaged)
        assert found.value.position == damaged.position
    erased = unseal(record._replace(body=None))
    assert (erased.erased, erased.payload, erased.hash) == (True, {}, event.hash)


@pytest.mark.spec("L10")
def test_equal_payloads_have_unequal_digests_so_that_nothing_can_be_guessed() -> None:
    one = draft("a.b", actor="a", payload={"pin": "1234"}, id="x")
    headers = {seal(one, 1, bytes(32), 1)[0].header for _ in range(20)}
    assert len(headers) == 20


@pytest.mark.spec("1.1")
def test_ids_made_later_sort_later() -> None:
    ids = [new_id() for _ in range(2000)]
    assert len(set(ids)) == 2000
    stamps = [id[:18] for id in ids]
    assert stamps == sorted(stamps)
    assert all(len(id) == 36 and id[14] == "7" and id[19] in "89ab" for id in ids)


@given(moment=st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))])))
def test_times_survive_to_the_microsecond(moment: datetime) -> None:
    assert from_us(to_us("t", moment)) == moment


keys = st.lists(text | st.integers(-(2**63), 2**63 - 1), max_size=4).map(tuple)


@given(one=keys, other=keys)
def test_row_keys_sort_like_their_parts_and_prefixes_are_exact(one: Any, other: Any) -> None:
    assert unpack(pack(one)) == one
    assert (pack(one) == pack(other)) == (one == other)
    start, end = below(one)
    inside = pack(other) >= start and (end is None or pack(other) < end)
    assert inside == (other[: len(one)] == one)
    if all(type(a) is type(b) for a, b in zip(one, other, strict=False)):
        encoded = [tuple(p.encode() if isinstance(p, str) else p for p in key) for key in (one, other)]
        assert (pack(one) < pack(other)) == (encoded[0] < encoded[1])


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


class Unknown:
    pass


cyclic: dict[str, Any] = {}
cyclic["self"] = cyclic

BAD_PAYLOADS = {
    "not a number": {"x": math.nan},
    "infinity": {"x": [1, -math.inf]},
    "lone surrogate": {"x": "\ud800"},
    "lone surrogate in a key": {"\udfff": 1},
    "number as key": {1: "x"},
    "bytes": {"x": b"bytes"},
    "date": {"x": datetime(2026, 1, 1, tzinfo=UTC)},
    "set": {"x": {1, 2}},
    "object": {"x": Unknown()},
    "too large": {"x": "y" * MAX_PAYLOAD},
    "ten megabytes": {"x": "y" * 10_000_000},
    "too deep": nested(MAX_DEPTH + 1),
    "far too deep": nested(10_000),
    "cycle": cyclic,
    "huge integer": {"x": 10**5000},
    "a list": [1],
    "a string": "text",
    "a number": 7,
}
BAD_FIELDS: dict[str, dict[str, Any]] = {
    "kind with one word": {"kind": "spoke"},
    "kind in capitals": {"kind": "Agent.spoke"},
    "kind with a digit first": {"kind": "agent.1"},
    "kind with a newline": {"kind": "agent.spoke\n"},
    "kind that is no string": {"kind": 7},
    "empty actor": {"actor": ""},
    "actor with NUL": {"actor": "a\0b"},
    "actor with a lone surrogate": {"actor": "a\ud800"},
    "actor too long": {"actor": "a" * 201},
    "actor that is no string": {"actor": 7},
    "empty id": {"id": ""},
    "id with NUL": {"id": "\0"},
    "id too long": {"id": "x" * 201},
    "run with NUL": {"run_id": "r\0"},
    "session with a space": {"session_id": "a b"},
    "session too long": {"session_id": "s" * 65},
    "turn below zero": {"turn": -1},
    "turn that is a boolean": {"turn": True},
    "turn that is a float": {"turn": 1.0},
    "time without a zone": {"occurred_at": datetime(2026, 1, 1)},
    "time as text": {"occurred_at": "2026-01-01"},
    "parents as one string": {"parents": "id"},
    "parent with NUL": {"parents": ["a\0"]},
    "labels as a list": {"labels": ["private"]},
    "label in capitals": {"labels": {"Trust": "low"}},
    "label that is no string": {"labels": {"trust": 1}},
    "schema version zero": {"schema_version": 0},
}


@pytest.mark.spec("1.1", "L4")
def test_bad_input_is_the_same_typed_error_everywhere_and_leaves_nothing(book_url: str) -> None:
    with commonplace.open(book_url) as book:
        book.record("agent.spoke", id="first")
        for name, payload in BAD_PAYLOADS.items():
            with pytest.raises(commonplace.BadInput) as found:
                book.record("agent.spoke", payload=payload)  # type: ignore[arg-type]
            assert ":" in str(found.value), f"{name}: say what to do"
            assert len(str(found.value)) < 400, name
            with pytest.raises(commonplace.BadInput):
                book.record_all([{"kind": "agent.spoke"}, {"kind": "agent.spoke", "payload": payload}])
        for fields in BAD_FIELDS.values():
            with pytest.raises(commonplace.BadInput):
                book.record(**{"kind": "agent.spoke", **fields})
            with pytest.raises(commonplace.BadInput):
                book.record_all([{"kind": "agent.spoke"}, {"kind": "agent.spoke", **fields}])
        batches: list[Any] = [
            [7],
            [{"actor": "no kind"}],
            [{"kind": "a.b", "unknown": 1}],
            [{"kind": "a.b"}] * 10_001,
        ]
        for batch in batches:
            with pytest.raises(commonplace.BadInput):
                book.record_all(batch)
        for after in (-1, "1", None, 1.5):
            with pytest.raises(commonplace.BadInput):
                list(book.events(after=after))  # type: ignore[arg-type]
        assert book.head == 1
        assert book.verify().ok


@pytest.mark.spec("1.1")
def test_what_looks_odd_and_is_fine_is_kept(book_url: str) -> None:
    with commonplace.open(book_url) as book:
        payload = {"nul": "a\0b", "": "", "tuple": (1, (2,)), "deep": nested(MAX_DEPTH - 1), "big": 2**200}
        stored = book.record("agent.spoke", actor="a" * 200, id="'; DROP TABLE events; --", payload=payload)
        assert stored.payload == {**payload, "tuple": [1, [2]]}
        assert book.event("'; DROP TABLE events; --") == stored
        payload["nul"] = "changed afterwards"
        assert book.event(stored.id).payload["nul"] == "a\0b"
        large = book.record("agent.spoke", payload={"x": "y" * (MAX_PAYLOAD - 8)})
        assert len(book.event(large.id).payload["x"]) == MAX_PAYLOAD - 8


@settings(max_examples=30)
@given(ids=st.lists(names, min_size=1, max_size=20))
def test_any_name_is_an_id_and_no_two_are_confused(ids: list[str]) -> None:
    with commonplace.open("memory:") as book:
        for id in ids:
            book.record("a.b", id=id, payload={"id": id})
        for id in ids:
            assert book.event(id).payload == {"id": id}
        assert book.head == len(set(ids))
