"""The packer: never over a budget, and everything is either shown or named as left out."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import commonplace
from commonplace.memory.portions import PerKind, Portion, Portions
from commonplace.recall.packing import PackLine, estimated, long_term_block, over, pack, pack_digest

KINDS = ["fact", "note", "procedure", "episode", "Nudges"]

limits = st.one_of(st.none(), st.integers(0, 400))
portions = st.builds(Portion, st.one_of(st.none(), st.integers(0, 6)), limits, limits)
budgets = st.builds(Portions, portions, st.builds(PerKind, portions, portions, portions, portions))
texts = st.text("abc é\n", max_size=120)
parts = st.tuples(st.sampled_from(KINDS), texts, texts, texts, st.sampled_from(["", "", "it is stale"]))
lines = st.lists(parts, max_size=12).map(
    lambda found: [PackLine(f"id{n}", *one) for n, one in enumerate(found)]
)


def plain(lines: Sequence[PackLine]) -> str:
    return "\n".join(line.line for line in lines)


def words(text: str) -> int:
    return len(text.split())


@pytest.mark.spec("4.5", "L5")
@settings(max_examples=300, deadline=None)
@given(lines, budgets, st.booleans(), st.booleans())
def test_nothing_is_over_a_budget_and_nothing_is_lost(
    given_lines: list[PackLine], budget: Portions, in_words: bool, digest: bool
) -> None:
    counts = words if in_words else estimated
    if digest:
        packed = pack_digest(given_lines, budget, counts, nothing="nothing matches.")
    else:
        packed = pack(given_lines, budget, counts, plain, uncut="Nudges")
    assert not over(budget.total, packed.text, counts)
    assert budget.total.max_items is None or len(packed.taken) <= budget.total.max_items
    for kind in KINDS[:4]:
        own: Portion = getattr(budget.per_kind, kind)
        taken = [line for line in packed.taken if line.kind == kind]
        assert own.max_items is None or len(taken) <= own.max_items
        assert not taken or not over(own, plain(taken), counts)
    omitted, whole = dict(packed.omitted), {line.id: line for line in given_lines}
    for line in packed.taken:
        assert line.line in packed.text
        assert (line == whole[line.id]) != omitted.get(line.id, "").startswith("cut to ")
    assert set(packed.ids) | omitted.keys() == whole.keys()
    assert all(why.startswith(("cut to ", "over the budget of ", "it is stale")) for why in omitted.values())
    if not digest:
        assert all(line == whole[line.id] for line in packed.taken if line.kind == "Nudges")


@pytest.mark.spec("4.6", "L5")
@settings(max_examples=100, deadline=None)
@given(lines, st.integers(0, 600))
def test_the_long_term_block_keeps_to_its_characters(given_lines: list[PackLine], most: int) -> None:
    packed = long_term_block(given_lines, most)
    assert len(packed.text) <= most
    assert set(packed.ids) | dict(packed.omitted).keys() == {line.id for line in given_lines}


@pytest.mark.spec("4.5", "4.6", "5.5", "L5")
@settings(max_examples=25, deadline=None)
@given(st.integers(60, 3_000), st.booleans())
def test_prompts_and_contexts_keep_to_their_budgets(most: int, in_tokens: bool) -> None:
    with commonplace.open("memory:") as book:
        texts = [f"crane {n} of the harbour is oiled " * (1 + n) for n in range(8)]
        ids = [str(book.remember(text, shared=True, pinned=len(text) < 120).item_id) for text in texts]
        work = book.work(name="oil", goal="Oil the cranes", constraints=["Not on Sundays"])
        task = work.add_task("Oil the crane of the harbour", description="with care " * 20)
        for n in range(4):
            work.discover(f"The harbour has a crane that rusts {n}", type="risk", by="ada")
        chars, tokens = (None, most // 4) if in_tokens else (most, None)
        prompt = book.prompt("oil the cranes of the harbour", work=work, max_chars=chars, max_tokens=tokens)
        context = work.context_for(task, max_chars=chars, max_tokens=tokens)
        for text in (str(prompt), str(context)):
            assert (estimated(text) <= most // 4) if in_tokens else (len(text) <= most)
        said = dict(prompt.left_out)
        missing = [id for id in ids if id not in prompt and id not in said]
        assert not missing or "long-term memory" in said
        assert all(id in context.text or id in dict(context.left_out) for id in context.memory)
