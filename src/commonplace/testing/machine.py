"""Any engine against the reference: the same random story told to both, every answer compared.

Hypothesis makes up the stories and shrinks a failing one to the shortest that still fails.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable
from typing import TypeAlias, TypeVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ..engines.contract import Engine, Head, Lease, Reads, Row, Store, WriteConflict, WriteSet
from ..engines.memory import MemoryEngine
from .workers import MakeEngine, record

T = TypeVar("T")

SPACES = ["a", "a.1", "b"]
KEYS = [b"", b"\x00", b"k", b"k\x00", b"k\x00\xff", b"k\xff", b"\xff", b"\xff\xff"]
BLOBS = {f"{n:064x}": content for n, content in enumerate([b"", b"\x00", b"blob" * 1000])}
NAMES = ["lease", "lease2"]
RUNS = ["r", "s", ""]
AN_HOUR = 3600.0
FAR = 40
"""Beyond any position that a story reaches, most of the time."""

spaces = st.sampled_from(SPACES)
keys = st.sampled_from(KEYS)
starts = st.just(b"") | keys
ends = st.none() | keys
values = st.none() | st.sampled_from([b"", b"\x00\xff", b"value"]) | st.binary(max_size=8)
positions = st.integers(0, 12) | st.integers(0, FAR)
moments = st.none() | positions
limits = st.none() | st.integers(0, 5)
asked_leases = st.builds(
    Lease,
    st.sampled_from(NAMES),
    st.sampled_from(["me", "you"]),
    st.integers(0, 1),
    st.sampled_from([0.0, AN_HOUR]),
)


Version: TypeAlias = tuple[str, bytes, int]


@st.composite
def write_sets(draw: st.DrawFn, head: int, known: list[Version], least: int = 0) -> WriteSet:
    """A write set that fits on a ledger that ends at `head` and has rows of the `known` versions. No blob is
    both kept and dropped: the contract does not say which would win. With `least` it has at least so many records, and
    twice as many rows."""
    runs = draw(st.lists(st.none() | st.sampled_from(RUNS), min_size=least, max_size=least + 4))
    records = [
        record(head + i, run=run, body=draw(st.none() | st.binary(max_size=8)))
        for i, run in enumerate(runs, start=1)
    ]
    end = head + len(records)
    places = st.tuples(spaces, keys, st.integers(0, end))
    if known:  # else few rewrites and drops would ever meet anything
        places |= st.sampled_from(known)
    chosen = draw(st.lists(places, min_size=2 * least, max_size=2 * least + 8, unique=least > 0))
    rows = [Row(*place, draw(values)) for place in chosen]
    drops = draw(st.lists(places, max_size=4))
    blobs = draw(st.lists(st.sampled_from(sorted(BLOBS)), max_size=2, unique=True))
    others = [key for key in sorted(BLOBS) if key not in blobs]
    return WriteSet(
        records=records,
        rows=rows,
        drops=drops,
        erase=draw(st.lists(st.integers(1, end), max_size=2, unique=True)) if end else [],
        blobs={key: BLOBS[key] for key in blobs},
        blob_drops=draw(st.lists(st.sampled_from(others), max_size=1)) if others else [],
        leases=draw(st.lists(asked_leases, max_size=2)),
        meta=draw(st.none() | st.binary(max_size=8)),
    )


def without_time(lease: Lease) -> tuple[str, str, int, bool]:
    """A lease without the part that no two clocks agree on."""
    assert 0 <= lease.seconds < AN_HOUR + 0.01
    return (lease.name, lease.holder, lease.fence, lease.seconds > 0)


class Comparison(RuleBasedStateMachine):
    """One book in two engines. `make_engine` is set by a subclass, and `fixed_name` where a place names its
    book itself."""

    make_engine: Callable[[], Engine]
    fixed_name: str | None = None

    def __init__(self) -> None:
        super().__init__()
        self.book = self.fixed_name or f"machine-{uuid.uuid4().hex[:12]}"
        self.reference = MemoryEngine().open(self.book, create=True)
        self.handles: list[tuple[Engine, Store]] = []
        self.turn = 0
        self.open_handle()
        self.forgetful = self.handles[0][1].facts.views == "memory"
        # A second handle is as good as another process, except where rows live in the handle itself.
        if not self.forgetful:
            self.open_handle()

    @property
    def store(self) -> Store:
        """The handles take turns, so that each has to notice what the other did."""
        self.turn += 1
        return self.handles[self.turn % len(self.handles)][1]

    def open_handle(self) -> None:
        engine = type(self).make_engine()
        self.handles.append((engine, engine.open(self.book, create=True)))

    def close_handles(self) -> None:
        while self.handles:
            engine, store = self.handles.pop()
            store.close()
            engine.close()

    def same(self, ask: Callable[[Reads], T]) -> T:
        """Ask both for the same, in a snapshot each; answer what they agree on."""
        with self.reference.read() as reads:
            expected = ask(reads)
        with self.store.read() as reads:
            assert ask(reads) == expected
        return expected

    @property
    def head(self) -> Head:
        with self.reference.read() as reads:
            return reads.head

    @initialize(data=st.data())
    def write_much(self, data: st.DataObject) -> None:
        """A story in an empty book has little to tell."""
        self.write_to_both(data.draw(write_sets(0, [], least=6)))

    @rule(data=st.data())
    def write(self, data: st.DataObject) -> None:
        with self.reference.read() as reads:
            head = reads.head.position
            known = [row[:3] for space in SPACES for row in reads.versions(space)]
        self.write_to_both(data.draw(write_sets(head, known)))

    def write_to_both(self, write: WriteSet) -> None:
        head = self.head
        outcomes = []
        for store in (self.reference, self.store):
            with store.begin() as tx:
                assert tx.head == head
                try:
                    tx.apply(write)
                except WriteConflict:
                    outcomes.append("moved")
                else:
                    outcomes.append("landed")
        assert outcomes[0] == outcomes[1]

    @rule()
    def begin_and_leave(self) -> None:
        with self.store.begin() as tx:
            assert tx.head == self.head

    @rule(
        after=positions,
        upto=positions,
        limit=st.integers(0, 6),
        run=st.none() | st.sampled_from([*RUNS, "unknown"]),
        wanted=st.lists(positions, max_size=4),
    )
    def read_records(self, after: int, upto: int, limit: int, run: str | None, wanted: list[int]) -> None:
        self.same(lambda reads: reads.records(after, upto, limit, run))
        self.same(lambda reads: reads.by_id([f"id-{position}" for position in wanted]))

    @rule(space=spaces, start=starts, end=ends, at=moments, limit=limits, wanted=st.lists(keys, max_size=4))
    def read_rows(
        self,
        space: str,
        start: bytes,
        end: bytes | None,
        at: int | None,
        limit: int | None,
        wanted: list[bytes],
    ) -> None:
        self.same(lambda reads: reads.get(space, wanted, at))
        self.same(lambda reads: list(reads.versions(space, start, end)))
        self.same(
            lambda reads: [
                reads.scan(space, start, end, at, most, reverse)
                for most in (limit, None)
                for reverse in (False, True)
            ]
        )

    @rule()
    def read_blobs_and_leases(self) -> None:
        self.same(lambda reads: [reads.blob(key) for key in (*BLOBS, "f" * 64)])
        self.same(lambda reads: {name: without_time(lease) for name, lease in reads.leases(NAMES).items()})

    @rule(asked=asked_leases)
    def ask_for_lease(self, asked: Lease) -> None:
        answers = [
            without_time(store.lease(asked.name, asked.holder, asked.seconds, asked.fence))
            for store in (self.reference, self.store)
        ]
        assert answers[0] == answers[1]

    @rule(space=spaces, horizon=positions)
    def trim(self, space: str, horizon: int) -> None:
        expected = self.reference.trim(space, horizon)
        assert self.store.trim(space, horizon) == expected

    @rule(prefix=st.sampled_from(["a.", "a", "a%", "b", "unknown"]))
    def drop_spaces(self, prefix: str) -> None:
        self.reference.drop_spaces(prefix)
        self.store.drop_spaces(prefix)

    @rule(after=positions)
    def wait(self, after: int) -> None:
        assert self.store.wait(after, 0.0) == self.head.position

    @rule()
    def reopen(self) -> None:
        count = len(self.handles)
        self.close_handles()
        for _ in range(count):
            self.open_handle()
        if self.forgetful:
            self.fold_again()

    def fold_again(self) -> None:
        """Where rows live in the handle, a new one starts without them and says so; we bring them back."""
        with self.reference.read() as reads:
            rows = [row for space in SPACES for row in reads.versions(space)]
        with self.store.begin() as tx:
            assert tx.folded <= tx.head.position
            tx.apply(WriteSet(rows=rows, folded=tx.head.position))

    @invariant()
    @precondition(lambda self: self.handles)
    def heads_agree(self) -> None:
        self.same(lambda reads: (reads.head, reads.folded))

    def teardown(self) -> None:
        """The whole of both books, at every position, and then no book at all."""
        try:
            if sys.exc_info()[0] is None:  # else the story has already failed, and says where
                self.compare_all()
        finally:
            self.close_handles()
            engine = type(self).make_engine()
            engine.drop(self.book)
            assert self.book not in engine.books()
            engine.close()
            self.reference.close()

    def compare_all(self) -> None:
        end = self.head.position
        self.same(
            lambda reads: (
                reads.records(0, end, 10_000),
                [reads.records(0, end, 10_000, run) for run in RUNS],
                reads.by_id([f"id-{position}" for position in range(end + 2)]),
                [list(reads.versions(space)) for space in SPACES],
                [reads.scan(space, at=at) for space in SPACES for at in range(0, end + 1, 3)],
                [reads.scan(space, reverse=True, limit=most) for space in SPACES for most in (None, 2)],
                [reads.get(space, KEYS) for space in SPACES],
                [reads.blob(key) for key in BLOBS],
                {name: without_time(lease) for name, lease in reads.leases(NAMES).items()},
            )
        )


def check_against_reference(
    make_engine: MakeEngine,
    book: str | None = None,
    max_examples: int = 25,
    steps: int = 30,
    derandomize: bool = True,
    shrink: bool = True,
) -> None:
    """Tell `max_examples` random stories of up to `steps` steps each to the engine and to the reference, and
    fail at the first answer that differs.

    Each story has a book of its own, dropped at its end; `book` names it where the place holds only that one.
    The stories are the same each time unless `derandomize` is false; then a failure is printed with what
    Hypothesis needs to replay it. Without `shrink` the failing story is told as it was found, which is long but
    quick; looking for the shortest one can take minutes on a slow engine.
    """

    class OneComparison(Comparison):
        pass

    OneComparison.make_engine = staticmethod(make_engine)
    OneComparison.fixed_name = book
    run_state_machine_as_test(
        OneComparison,
        settings=settings(
            max_examples=max_examples,
            stateful_step_count=steps,
            derandomize=derandomize,
            database=None,
            deadline=None,
            phases=[Phase.explicit, Phase.generate, *([Phase.shrink] if shrink else [])],
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
