"""Search where there are many documents, or come little by little: the same answers as from an index that was built at
once, and bounds on what is held in memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commonplace.index import Change, Doc, Erase, Index, Put, RemovedDoc, Who, columns, fusion, near
from commonplace.index.vectors import Vectors, apart, signs, whole

SUBJECTS = ["boats", "bread", "money", "music", "trees", "trains", "birds", "stars", "paint", "chess"]
VERBS = ["saw", "sold", "drew", "lost", "found", "fixed", "hid", "moved"]
HOW = ("keyword", "semantic", "hybrid")
WHO = Who("ada", "note", True, "private", "semantic")


class Subjects:
    """Vectors of texts that are about one of the subjects, each a little different."""

    name, dimensions = "subjects", 96

    def embed(self, texts: Sequence[str], asking: bool = False) -> Vectors:
        made = [self._vector(text.split()) for text in texts]
        return np.stack(made) if made else np.zeros((0, self.dimensions), np.int8)

    def _vector(self, words: list[str]) -> Vectors:
        parts = [self._word(word) for word in words] or [np.zeros(self.dimensions)]
        return whole(np.rint(256 * np.sum(parts, axis=0)))

    def _word(self, word: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        seed = [*word.encode()]
        own = np.random.default_rng(seed).normal(size=self.dimensions)
        alike = [
            np.random.default_rng([*one.encode()]).normal(size=self.dimensions)
            for one in SUBJECTS
            if one in word
        ]
        return own + 2 * np.sum(alike, axis=0) if alike else own


def notes(count: int) -> list[Change]:
    rng = np.random.default_rng(5)
    made: list[Change] = []
    for n in range(count):
        subject, other, verb = rng.choice(SUBJECTS), rng.choice(SUBJECTS), rng.choice(VERBS)
        text = f"{verb} {subject}{rng.integers(90)}x {other} number{n}"
        session = f"talk {n // 9}" if n % 3 else ""
        made.append(Put(Doc(f"note {n * 7 % count:05}", text, WHO, "semantic", "x", n, "", session)))
    return made


def opened(changes: list[Change], path: Path | None = None, cuts: Sequence[int] = ()) -> Index:
    """An index of these, with searches between its parts."""
    index = Index.open(path, Subjects())
    for start, end in pairwise([0, *cuts, len(changes)]):
        assert index.apply(start, end, [(n + 1, changes[n]) for n in range(start, end)])
        if end < len(changes):
            answers(index)
    return index


def answers(index: Index, count: int = 6) -> list[list[tuple[str, float]]]:
    rng, found = np.random.default_rng(9), []
    for _ in range(count):
        query = f"who {rng.choice(VERBS)} the {rng.choice(SUBJECTS)} and {rng.choice(SUBJECTS)}{rng.integers(90)}x"
        for how in HOW:
            hits = index.search(query, allowed=lambda _: True, how=how).hits  # type: ignore[arg-type]
            found.append([(hit.id, hit.score) for hit in hits])
    return found


@pytest.fixture
def by_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    lower_thresholds(monkeypatch)


def lower_thresholds(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(columns, "FEW", 8)
    patch.setattr(fusion, "BY_SIGNS", 100)
    patch.setattr(fusion, "SAMPLE", 512)


@pytest.fixture(scope="module")
def exact() -> list[list[tuple[str, float]]]:
    return answers(opened(notes(3_000)), 40)


@pytest.mark.spec("4.2")
def test_of_many_documents_nearly_all_of_the_exact_answer_is_found(
    by_signs: None, exact: list[list[tuple[str, float]]]
) -> None:
    found = answers(opened(notes(3_000)), 40)
    for at, how in enumerate(HOW):
        shares = [
            len({id for id, _ in one} & {id for id, _ in other}) / len(other)
            for one, other in zip(found[at::3], exact[at::3], strict=True)
        ]
        assert np.mean(shares) >= 0.95, (how, np.mean(shares))
    assert found != exact  # or the signs were not looked at


def test_signs_differ_as_much_as_vectors_do() -> None:
    made = Subjects().embed(["boats saw", "boats sold", "boats saw", "chess hid"])
    bits = signs(made)
    assert bits.shape == (2, 4)  # 96 parts fill one row of 64 and half of the next
    differ = apart(bits, bits[:, :1]).tolist()
    assert differ == [int(np.count_nonzero((one > 0) != (made[0] > 0))) for one in made]
    assert differ[2] == 0 < differ[1] < differ[3]


TOLD = """
import sys
from pathlib import Path
import pytest
from tests import test_scale
from commonplace.index import Index
with pytest.MonkeyPatch.context() as patch:
    test_scale.lower_thresholds(patch)
    print(test_scale.answers(Index.open(Path(sys.argv[1]), test_scale.Subjects())))
"""


@pytest.mark.spec("L6")
def test_every_process_gives_the_same_answers(by_signs: None, tmp_path: Path) -> None:
    changes = notes(400)
    index = opened(changes, tmp_path / "index", cuts=(100, 101, 399))
    command = [sys.executable, "-c", TOLD, str(tmp_path / "index")]
    root = Path(__file__).parent.parent
    other = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root).stdout.strip()
    assert other == repr(answers(index))


TEXTS = st.builds(
    lambda *words: " ".join(words), *[st.sampled_from([*SUBJECTS[:4], *VERBS[:3], "boats7x"])] * 3
)
NAMES = st.sampled_from("abcdefgh")
PUTS = st.builds(
    lambda id, text, session: Put(Doc(id, text, WHO, "semantic", "x", 0, "", session)),
    NAMES, TEXTS, st.sampled_from(["", "s", "t"]),
)  # fmt: skip
CHANGES = st.one_of(PUTS, PUTS, PUTS, NAMES.map(RemovedDoc), NAMES.map(lambda id: Erase((id,))))


@pytest.mark.spec("L6")
@pytest.mark.parametrize("few", [8, 1 << 16])
@settings(max_examples=25, deadline=None)
@given(st.lists(CHANGES, max_size=30), st.lists(st.integers(0, 30), max_size=4))
def test_what_comes_little_by_little_is_found_as_if_it_had_come_at_once(
    few: int, changes: list[Change], cuts: list[int]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if few == 8:
            lower_thresholds(patch)
        grown = opened(changes, cuts=sorted({min(cut, len(changes)) for cut in cuts}))
        assert answers(grown) == answers(opened(changes))


def test_what_is_remembered_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = notes(600)
    free = opened(changes)
    unbound = answers(free, 30)
    monkeypatch.setattr(columns, "LISTS", 3_000)
    monkeypatch.setattr(near, "REMEMBERED", 5)
    bound = opened(changes)
    assert answers(bound, 30) == unbound
    kept = bound._columns
    assert 0 < kept._lists_take <= 3_000
    assert kept._lists_take == sum(map(columns._takes, kept._lists.values()))
    assert len(kept.vocabulary._made) <= 5
    for at in range(1, 20):
        bound.search("boats", allowed=lambda _: True, at=at)
    assert len(kept._views) == columns.VIEWS
    assert 600 * (56 + 96) < bound.memory() < free.memory() < 2_000_000
