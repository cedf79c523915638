"""What somebody who looks after memory could do next: duplicates to merge, links to make, what has grown stale, tags.

A pure function of the items and the time. It changes nothing; each suggestion names the items and says why.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Literal

import msgspec

from ..index.words import jaccard, tokens
from .cores import CoreConfig
from .items import Item
from .likeness import FLAGGED, marks, words_of
from .tidy import DAY_US

ENOUGH_TAGS = 2
"""How many tags two entries must share to be worth a link."""


class Suggestion(msgspec.Struct, frozen=True):
    """`merge` items that say the same, `link` related ones, `refresh` a stale one, or `tag` one with `tags`."""

    act: Literal["merge", "link", "refresh", "tag"]
    items: tuple[str, ...]
    why: str
    tags: tuple[str, ...] = ()


def suggested(
    items: Sequence[Item], rules: Mapping[tuple[str, str], CoreConfig], now_us: int
) -> list[Suggestion]:
    """Suggestions for these items, each core's own rules in `rules` by its scope and id: duplicates first, then links,
    stale ones, tags. Items of different scopes do not meet."""
    places = defaultdict[tuple[str, str, bool], list[Item]](list)
    for item in items:
        places[item.scope, item.core or "", item.repository].append(item)
    suggestions: list[Suggestion] = []
    for entries in places.values():
        suggestions += [*_merges(entries), *_links(entries), *_stale(entries, rules, now_us), *_tags(entries)]
    order = ("merge", "link", "refresh", "tag")
    return sorted(suggestions, key=lambda each: (order.index(each.act), each.items))


def _merges(items: Iterable[Item]) -> Iterator[Suggestion]:
    """Items that are alike enough that one of them would have been held beside the other."""
    under = defaultdict[str, list[tuple[Item, frozenset[str]]]](list)
    for item in items:
        mine, compared = words_of(item.as_content()), set[str]()
        for mark in marks(mine):
            for other, theirs in under[mark.word]:
                score = jaccard(mine, theirs)
                if score >= FLAGGED and other.id not in compared:
                    compared.add(other.id)
                    yield Suggestion("merge", (other.id, item.id), f"they are {score:.2f} alike")
            under[mark.word].append((item, mine))


def _links(items: Sequence[Item]) -> Iterator[Suggestion]:
    """Entries of a core that share tags with the one before and are not linked to it yet: a chain, not a tangle."""
    linked = {frozenset((item.id, to)) for item in items for _, to in item.links}
    last: dict[tuple[str, ...], Item] = {}
    for item in items:
        near = dict[str, set[str]]()
        for shared in combinations(sorted(item.tags), ENOUGH_TAGS) if item.core is not None else ():
            if (other := last.get(shared)) is not None:
                near.setdefault(other.id, set()).update(shared)
            last[shared] = item
        for id, tags in near.items():
            if frozenset((item.id, id)) not in linked:
                yield Suggestion("link", (id, item.id), f"both are about {', '.join(sorted(tags))}")


def _stale(
    items: Iterable[Item], rules: Mapping[tuple[str, str], CoreConfig], now_us: int
) -> Iterator[Suggestion]:
    for item in items:
        rule = rules.get((item.scope, item.core or ""), CoreConfig())
        age = (now_us - (item.verified_us or item.recorded_us)) // DAY_US
        if item.valid_until_us is not None and item.valid_until_us <= now_us:
            yield Suggestion("refresh", (item.id,), "the time for which it holds is over")
        elif rule.archive_after_days is not None and age >= rule.archive_after_days:
            yield Suggestion("refresh", (item.id,), f"nobody has verified it for {age} days")
        elif item.core is not None and (item.confidence or 0.0) < rule.min_confidence:
            yield Suggestion(
                "refresh", (item.id,), f"the core asks for a confidence of {rule.min_confidence:g}"
            )


def _tags(items: Sequence[Item]) -> Iterator[Suggestion]:
    """Tags that are spelled in several ways, and tags that others have and whose words an untagged item uses."""
    used = Counter(tag for item in items for tag in item.tags)
    spelled: dict[str, str] = {}
    for tag, _ in sorted(used.items(), key=lambda count: (-count[1], count[0])):
        spelled.setdefault(_plain(tag), tag)
    for item in items:
        better = tuple(sorted({spelled[_plain(tag)] for tag in item.tags}))
        if better != tuple(sorted(item.tags)):
            others = ", ".join(sorted({*item.tags} - {*better}))
            yield Suggestion("tag", (item.id,), f"{others}: others spell it differently", better)
        if not item.tags:
            mine = {_plain(word) for word in tokens(item.text)}
            fitting = tuple(sorted(tag for plain, tag in spelled.items() if plain in mine))
            if fitting:
                yield Suggestion("tag", (item.id,), "it uses the words of these tags", fitting)


def _plain(tag: str) -> str:
    """A tag without what people spell differently: case, hyphens, a plural."""
    plain = "".join(tag.casefold().replace("-", " ").replace("_", " ").split())
    return plain.removesuffix("s") if len(plain) > 3 else plain
