"""Whether two texts ask for the same work: by the words and vectors that recall uses, and no list of words.

Two tasks of one project share words whether they are the same or not: "translate the checkout into French" and "… into
Polish" share nearly all. The words that only one of the texts has tell more. Where the same is said in other words,
these rests are about the same; where something else is meant, they are not. So the nearness of two texts is weighed
against the words that they merely share. Everything here is a function of its arguments.
"""

from __future__ import annotations

from functools import lru_cache
from math import exp, sqrt
from operator import mul
from typing import TYPE_CHECKING, NamedTuple

from ..errors import NotEnabled
from ..index.words import STOPWORDS, chunks, jaccard, normal, spelled, stem

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Whole = NDArray[np.int64]

REMEMBERED = 4_096
"""How many texts and vectors are kept in memory, because tasks are compared again and again."""
SAME = 0.5
"""Texts that are more likely than this to ask for the same are said to."""


class TaskSignals(NamedTuple):
    """What tells whether two texts are the same, or how much each signal weighs."""

    whole: float
    """How near the texts are, by their vectors."""
    rest: float
    """How near the words are that only one of them has."""
    common: float
    """The share of all words that both have, stopwords included."""


WEIGHTS = {
    "static": (TaskSignals(6.0, 6.7, -5.9), 3.25),
    "minilm": (TaskSignals(9.6, 5.1, -8.1), 5.2),
}
"""For each embedder that may compare whole texts, how much each signal weighs, and how much all of them must weigh.
Fitted by logistic regression to pairs in benchmarks/labelled, so that one in twenty near misses is an alarm."""


class TaskText:
    """A text as it is compared. `more` is a description: it may have the words of another title, and no other text has
    to have its words."""

    def __init__(self, title: str, more: str) -> None:
        from ..memory.claims import critical

        words = _words(title)
        self.whole = f"{title}. {more}" if more else title
        self.names, self.all_names = critical(title), critical(self.whole)
        self.stems = frozenset(map(stem, words))
        self.telling = {stem(word): word for word in words if word not in STOPWORDS}
        self.covers = self.stems.union(map(stem, _words(more)))

    def rest(self, other: TaskText) -> tuple[str, ...]:
        """The words that another text does not have."""
        return tuple(word for form, word in self.telling.items() if form not in other.covers)


@lru_cache(REMEMBERED)
def text_of(title: str, more: str = "") -> TaskText:
    return TaskText(title, more)


def embedder_for(setting: str) -> str:
    """What compares whole texts in a book with this embedder: static vectors, unless it is one that has weights here
    and is installed."""
    from ..index import embedder_of

    try:
        return setting if setting in WEIGHTS and embedder_of(setting) else "static"
    except NotEnabled:
        return "static"


def likelihood(task: TaskText, other: TaskText, embedder: str) -> float:
    """How likely it is that two texts ask for the same, from 0 to 1."""
    if _set_apart(task, other) or (_short(task, other) and task.telling.keys().isdisjoint(other.telling)):
        return 0.0
    if not task.rest(other) and not other.rest(task):
        return 1.0
    weights, least = WEIGHTS[embedder]
    total = sum(map(mul, weights, signals(task, other, embedder)))
    return 1 / (1 + exp(least - total))


def signals(task: TaskText, other: TaskText, embedder: str) -> TaskSignals:
    ours, theirs = task.rest(other), other.rest(task)
    # Where one has every word of the other, the rest of it is compared with all of the other.
    rests = (
        _meaning(ours or tuple(task.telling.values())),
        _meaning(theirs or tuple(other.telling.values())),
    )
    return TaskSignals(
        whole=_near(_vector(task.whole, embedder), _vector(other.whole, embedder)),
        rest=_near(*rests),
        common=jaccard(task.stems, other.stems),
    )


def reason(task: TaskText, other: TaskText) -> str:
    """Which words both have, and which stand for each other."""
    both = [word for form, word in task.telling.items() if form in other.covers]
    ours, theirs = task.rest(other), other.rest(task)
    parts = [f"both say {', '.join(both)}"] if both else []
    return "; ".join([*parts, f"{' '.join(ours)} ≈ {' '.join(theirs)}"] if ours and theirs else parts)


def _short(task: TaskText, other: TaskText) -> bool:
    """Whether one has no more than a word to go by: "good" is near "bad"."""
    return min(len(task.telling), len(other.telling)) <= 1


def _set_apart(task: TaskText, other: TaskText) -> bool:
    """Whether each names something that the other does not."""
    return all(
        any(word not in against.whole.casefold() for word in text.names - against.all_names)
        for text, against in ((task, other), (other, task))
    )


def _words(text: str) -> list[str]:
    return [word for chunk in chunks(normal(text)) for word in spelled(chunk[1])[0]]


@lru_cache(REMEMBERED)
def _vector(text: str, embedder: str) -> Whole:
    from ..index import embedder_of

    made: Whole = embedder_of(embedder).embed([text])[0].astype("int64")
    return made


def _meaning(words: tuple[str, ...]) -> Whole:
    """What words are about together. Each counts as much as any other."""
    total = _vector(words[0], "static")
    for word in words[1:]:
        total = total + _vector(word, "static")
    return total


def _near(vector: Whole, other: Whole) -> float:
    """The cosine of two vectors. Sums of whole numbers are exact, so every processor gives the same."""
    lengths = int(vector @ vector) * int(other @ other)
    return int(vector @ other) / sqrt(lengths) if lengths else 0.0
