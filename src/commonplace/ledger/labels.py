"""Two labels that flow: how sensitive something is, and how far it can be trusted.

Whatever is derived from others is at least as sensitive as each of them, and at most as trusted. Other
labels are the caller's own and stay where they were put.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

SENSITIVITY = ("public", "private", "sensitive")
TRUST = ("high", "normal", "low")

FLOWING = {"sensitivity": SENSITIVITY, "trust": TRUST}
"""Each label that flows, and its values, the least strict first."""

Labels = Mapping[str, str]


def strictness(label: str, value: str) -> int:
    """How strict a value is; one that this library does not know counts as the strictest."""
    values = FLOWING[label]
    return values.index(value) if value in values else len(values)


def flow(own: Labels, sources: Iterable[Labels]) -> dict[str, str]:
    """The labels of something derived from these sources. A source without a label says nothing of it."""
    labels = dict(own)
    for source in sources:
        for label in FLOWING:
            theirs = source.get(label)
            if theirs is not None and (
                label not in labels or strictness(label, theirs) > strictness(label, labels[label])
            ):
                labels[label] = theirs
    return labels


USUAL = {"sensitivity": "public", "trust": "normal"}
"""What an event without a label counts as."""


def lowers(before: Labels, after: Labels) -> list[str]:
    """The labels that a change makes less strict; only a person may decide that."""
    return [
        label
        for label in FLOWING
        if label in after
        and strictness(label, after[label]) < strictness(label, before.get(label, USUAL[label]))
    ]
