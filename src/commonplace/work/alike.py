"""Whether two texts ask for the same work, and whether a text answers what a task asks: by words that they share or
that are near each other, and by what sets them apart.

Teams write tasks after one pattern, so most of those that look alike are not: the same is done with something else, or
something else is done with the same. What tells them apart decides first: another action ("remove" is not "add"), the
opposite, other names and numbers, another word in the same place. What is left is weighed by how much of each text the
other one covers. Everything here is a function of its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..index.vectors import Vectors

Rarity = Callable[[str], float]
"""How much a word tells, from 0 to 1: the rarer, the more."""

_ACTIONS = {
    "remove": "remove delete drop retire rid clean cleanup tear purge discard gone",
    "test": "test verify check cover coverage validate",
    "study": "investigate investigation find research evaluate evaluation compare choose decide pick explore analyse "
    "analyze determine check look clarify estimate reproduce assess select measure verify",
    "measure": "measure benchmark profile estimate",
    "watch": "monitor watch alert alarm observe",
    "document": "document documentation docs describe description explain guide manual readme tutorial handbook notes "
    "draw diagram",
    "review": "review audit approve inspect proofread",
    "deploy": "deploy deployment release launch ship publish rollout install run execute",
    "design": "design plan draft sketch specify spec",
    "translate": "translate translation localise localize",
    "revert": "revert undo rollback",
    "upgrade": "upgrade bump update",
    "move": "move migrate migration port convert",
    "replace": "replace swap exchange",
    "rename": "rename",
    "partition": "partition",
    "rewrite": "rewrite refactor redesign rework restructure",
    "split": "split extract separate",
    "announce": "announce inform notify notification",
    "back up": "backup",
    "merge": "merge deduplicate combine unify",
    "export": "export",
    "import": "import",
    "lock": "lock",
    "invalidate": "invalidate",
    "rotate": "rotate rotation",
    "compress": "compress compression",
    "highlight": "highlight",
    "sort": "sort",
    "fix": "fix repair correct solve resolve mend",
    "show": "show display tell",
    "chart": "chart plot visualise visualize",
    "record": "record log",
    "send": "send deliver",
    "collect": "collect gather",
    "generate": "generate",
    "compute": "compute calculate",
    "cache": "cache",
    "encrypt": "encrypt encryption",
    "parse": "parse",
    "retry": "retry",
}
"""What tasks do to something, and the words that say so."""
_SAME = """login signin sign log authentication|register registration signup|throttle rate limit cap maximum
fast quick slow speed performance duration latency|persist remember save store record|duplicate twice double deduplicate
resume continue pick|credential password secret|alert alarm warn warning notify notification remind reminder
reject refuse block deny forbid|picture image photo|crash die fail failure broken|shrink shorten reduce smaller size
cost bill price expense|bug error defect|timestamp time date|language locale|role permission right
bot captcha spam|switch switcher choose choice toggle|online presence|confirm confirmation ask
collaborative together shared|mail email|bill invoice|week weekly|day daily|night nightly overnight|month monthly
visitor guest|tidy clean improve polish|library package dependency|repository repo git|database db
config configuration setting|environment env|message text wording
"""
"""Words that teams use for one another and whose vectors do not say so."""
_MILD = frozenset({
    "move", "replace", "rename", "partition", "split", "merge", "export", "import", "lock", "rotate", "compress",
    "highlight", "sort", "fix", "show", "chart", "record", "send", "collect", "generate", "compute", "cache", "encrypt",
    "parse", "retry",
})  # fmt: skip
"""Actions that are another one only than those that are known: a title that names none may mean the same."""
_OPPOSITES = """
start stop|begin end|enable disable|show hide|open close|increase decrease|raise lower|grant revoke|add remove
create delete|create tear|subscribe unsubscribe|publish unpublish|import export|lock unlock|encrypt decrypt
incoming outgoing|upload download|install uninstall|allow forbid|connect disconnect|upgrade downgrade
send receive|push pull|expand collapse|attach detach
"""
_CARRY = """
write do make have set get let bring put take keep give create build add start run implement introduce provide
"""
"""Verbs that say little by themselves: what follows them tells."""
_LIGHT = """
flow feature page endpoint system way every new use screen form option support version simple proper automatic
automatically thing one need must cause reason issue problem question possibility alternative user people customer older
old sure work allow able want should also onto behind within without via
"""
"""Words that set little apart."""
_PLACES = frozenset({
    "for", "of", "in", "to", "on", "with", "at", "from", "into", "by", "when", "that", "so", "after", "before",
    "without", "as", "where", "until", "between", "per", "against",
})  # fmt: skip
"""Before these ends what a verb carries."""
_DONE = re.compile(
    r"(?i)\balready\b|\bsince\b|\bin place\b|\bgone\b|\b(?:not|no longer) needed\b|\bby itself\b|\bexists\b|\bis done\b"
    r"|\bhas been\b|\bhave been\b|\bsolved\b|\bfixed\b"
)
"""By what a discovery says that something is done."""
_HOW_MUCH = "rate limit maximum minimum number many much long often cost size time large big how "
"""What a discovery with a number in it may answer."""
_WHY = "why cause reason bug issue problem "
"""What one answers that says because."""
_BECAUSE = re.compile(r"(?i)\bbecause\b|\bsince\b|\bdue to\b|: ")
_ASKED = re.compile(r"(?i)\b(?:which|what|whose|how) (\w+)|^\w+ (?:the )?(?:\w+ )?(\w+) (?:of|for) ")
"""What a question asks for, such as "which browsers" and "the cause of": that need not stand in the answer."""
_DESCRIBES = re.compile(r"(?:ive|ous|able|ible|ed|ing|ic|less|ful)$")
"""How words end that are no verbs, mostly."""
_NAME = re.compile(r"[A-Z]{2}|\d|[A-Za-z_][_./][A-Za-z]|[a-z][A-Z]")

NEAR = 0.6
"""How near two words must be by their vectors to count as one."""
APART = 0.45
"""Words in the same place that are less near than this are something else."""
COVERED, COVERED_BY_ONE = 0.36, 0.5
"""How much of two texts must be covered, on average, for them to be the same; the second is for texts that have but one
word in common."""
MORE, MORE_THAN_SHORT, MORE_ALIKE = 2.0, 1.3, 0.5
"""How much more one text may say than the other before one is a part of the other; less if the other is short, or if
both begin with the same word."""
SHORT = 2
"""How many words a short text has that say something."""
ALIKE = 0.8
"""How near two words are that teams use for one another."""
ANSWERED, UNANSWERED = 0.5, 0.62
"""How much of a question a discovery must cover, and how much of it may be missing."""


class Verdict(NamedTuple):
    """How alike two texts are, from 0 to 1, and why; 0 if something sets them apart."""

    score: float
    why: str


class Words:
    """A text as it is compared. `more` is a description: it may cover words of others, and nobody has to cover it."""

    def __init__(self, text: str, more: str = "") -> None:
        self.text, self.more = text, more

    @cached_property
    def all(self) -> list[str]:
        return _leaves(self.text)

    @cached_property
    def stems(self) -> list[str]:
        return [_stem(word) for word in self.all]

    @cached_property
    def telling(self) -> list[str]:
        """The words that say what it is about, each once."""
        return [word for word in dict.fromkeys(self.all) if _tells(word)]

    @cached_property
    def saying(self) -> list[str]:
        """Those of them that say something in any task."""
        return [word for word in self.telling if not {_stem(word)} & (_stems(_LIGHT) | _stems(_CARRY))]

    @cached_property
    def covering(self) -> list[str]:
        """The words that may cover those of others."""
        return [word for word in dict.fromkeys([*self.all, *_leaves(self.more)]) if _tells(word)]

    @cached_property
    def known(self) -> frozenset[str]:
        """Everything that is said, word by word and name by name."""
        words = [*self.all, *_leaves(self.more), *_chunks(self.text), *_chunks(self.more)]
        return frozenset(_stem(word.lower()) for word in words)

    @cached_property
    def names(self) -> list[str]:
        """Numbers, identifiers, abbreviations and proper names."""
        return [
            one for one, first in _chunked(self.text) if _NAME.search(one) or (one[0].isupper() and not first)
        ]

    @cached_property
    def action(self) -> frozenset[str]:
        """What is to be done, if that is known: what the first word says, or what it carries."""
        if not self.all:
            return frozenset()
        table, first = _actions(), self.stems[0]
        if first in table or first not in _stems(_CARRY):
            return table.get(first, frozenset())
        head = ""
        for word in self.all[1:]:
            if word in _PLACES:
                break
            head = word
        return table.get(_stem(head), frozenset())

    @cached_property
    def actions(self) -> frozenset[str]:
        """All actions that are mentioned."""
        return frozenset(one for stem in self.stems for one in _actions().get(stem, ()))


def compared(task: Words, other: Words, rarity: Rarity) -> Verdict:
    """Whether another task asks for the same."""
    if apart := _set_apart(task, other):
        return Verdict(0.0, apart)
    ours, left = _cover(task.telling, other, rarity)
    theirs, right = _cover(other.telling, task, rarity)
    score = (ours + theirs) / 2
    if score < (COVERED if _in_common(task, other) > 1 else COVERED_BY_ONE):
        return Verdict(0.0, "they say too little of the same")
    short = min(len(task.saying), len(other.saying)) <= SHORT
    more = MORE_ALIKE if task.stems[0] == other.stems[0] else MORE_THAN_SHORT if short else MORE
    if abs(left - right) > more:
        return Verdict(0.0, "one is a part of the other")
    return Verdict(score, _shared(task, other))


def answered(task: Words, found: Words, rarity: Rarity) -> Verdict:
    """Whether something that was found tells what a task asks, or that it is done already."""
    asks = "study" in task.action or "test" in task.action
    if not asks and not _DONE.search(found.text):
        return Verdict(0.0, "it does not say that it is done")
    words = task.telling
    if asks:
        given = [word for groups in _ASKED.findall(task.text) for word in groups]
        given += [_HOW_MUCH] if re.search(r"\d", found.text) else []
        given += [_WHY] if _BECAUSE.search(found.text) else []
        told = _stems(" ".join(given).lower())
        words = [word for word in words if not _actions().get(_stem(word)) and _stem(word) not in told]
    covered, missing = _cover(words, found, rarity)
    if covered < ANSWERED or missing > UNANSWERED or _in_common(task, found) < 2:
        return Verdict(0.0, "they say too little of the same")
    return Verdict(covered, _shared(task, found))


def _set_apart(task: Words, other: Words) -> str:
    """What makes them different things, whatever else they share."""
    ours, theirs = (
        [one for one in side.names if _stem(one.lower()) not in against.known]
        for side, against in ((task, other), (other, task))
    )
    if ours and theirs:
        return f"one is about {ours[0]}, the other about {theirs[0]}"
    here, there = set(task.stems), set(other.stems)
    for first, second in _opposites():
        for one, opposite in ((first, second), (second, first)):
            if one in here - there and opposite in there - here:
                return "one is the opposite of the other"
    for side, against in ((task, other), (other, task)):
        strong = side.action - _MILD
        if side.action and not side.action & against.actions and (strong or against.action):
            return f"one is to {sorted(side.action)[0]}, the other is not"
    if "document" in task.actions ^ other.actions:
        return "one is about what is written of it"
    if verb := _other_verb(task, other):
        return f"one is to {verb}, the other is not"
    return _swapped(task, other)


def _swapped(task: Words, other: Words) -> str:
    """Where both are built alike and something else stands in the same place."""
    if not task.stems or not other.stems or task.stems[0] != other.stems[0]:
        return ""
    for kind, start, end, from_, to in SequenceMatcher(None, task.stems, other.stems, False).get_opcodes():
        if kind != "replace":
            continue
        ours = [one for one in task.all[start:end] if _tells(one) and _stem(one) not in other.known]
        theirs = [one for one in other.all[from_:to] if _tells(one) and _stem(one) not in task.known]
        if ours and theirs and max(near(one, two) for one in ours for two in theirs) < APART:
            return f"one is about {ours[0]}, the other about {theirs[0]}"
    return ""


def _other_verb(task: Words, other: Words) -> str:
    """What one begins with, if it does that to the very thing that the other names by the same words."""
    for one, against in ((task, other), (other, task)):
        ours, theirs = ([_stem(word) for word in side.all if _tells(word)] for side in (one, against))
        match = SequenceMatcher(None, ours, theirs, False).find_longest_match()
        if match.size < SHORT or match.a != 1 or match.b == 0 or ours[0] != one.stems[0]:
            continue
        says_little = ours[0] in _stems(_CARRY) | _stems(_LIGHT) or "fix" in one.action
        direct = all(word not in _PLACES for word in one.all[1 : one.stems.index(ours[1])])
        neither = _share(one.all[0], against) < APART and _share(against.all[0], one) < APART
        if direct and neither and not says_little and not _DESCRIBES.search(one.all[0]):
            return one.all[0]
    return ""


def _cover(words: Sequence[str], other: Words, rarity: Rarity) -> tuple[float, float]:
    """How much of these words another text has, or has something near to, and how much it does not have at all."""
    whole = covered = missing = 0.0
    for word in words:
        stem = _stem(word)
        weight = rarity(stem) * (0.3 if stem in _stems(_LIGHT) or stem in _stems(_CARRY) else 1.0)
        share = _share(word, other)
        whole += weight
        covered += weight * share
        if not _actions().get(stem, frozenset()) - _MILD:
            missing += weight * (1 - min(1.0, share / NEAR))
    return (covered / whole if whole else 0.0), missing


def _share(word: str, other: Words) -> float:
    """How much of a word another text has."""
    if _stem(word) in other.known or _actions().get(_stem(word), frozenset()) & other.actions:
        return 1.0
    return max((near(word, one) for one in other.covering), default=0.0)


def _in_common(task: Words, other: Words) -> int:
    """How many words of a task that say something another text has, each for one of its own."""
    found = set[str]()
    for word in task.saying:
        stem = _stem(word)
        actions = _actions().get(stem, frozenset()) & other.actions
        if stem in other.known or actions:
            found.add(min(actions) if actions else stem)
            continue
        best = max(other.covering, key=lambda one: near(word, one), default="")
        if best and near(word, best) >= APART:
            found.add(_stem(best))
    return len(found)


def _shared(task: Words, other: Words) -> str:
    """Which words both have, and which stand for each other."""
    found = list[str]()
    for word in task.telling:
        if _stem(word) in other.known:
            found.append(word)
        else:
            actions = _actions().get(_stem(word), frozenset())
            same = [one for one in other.all if actions & _actions().get(_stem(one), frozenset())]
            best = next(iter(same), "") or max(other.covering, key=lambda one: near(word, one), default="")
            if same or (best and near(word, best) >= APART):
                found.append(f"{word} ≈ {best}")
    return "both say " + ", ".join(found) if found else ""


# words


@lru_cache(65_536)
def near(word: str, other: str) -> float:
    """How near two words are by their vectors, from 0 to 1."""
    from ..index.vectors import likeness, shares

    if _stem(word) == _stem(other):
        return 1.0
    if _groups().get(_stem(word), frozenset()) & _groups().get(_stem(other), frozenset()):
        return ALIKE
    alike = shares(likeness(_vector(word)[None], _vector(other)[None]))
    return min(1.0, max(0.0, float(alike[0, 0])))


@lru_cache(8_192)
def _vector(word: str) -> Vectors:
    from ..index.vectors import static_words

    made: Vectors = static_words().embed([word])[0]
    return made


def _leaves(text: str) -> list[str]:
    from ..index.words import chunks, normal, spelled

    return [word for found in chunks(normal(text)) for word in spelled(found[1])[0]]


def _chunks(text: str) -> list[str]:
    return [one for one, _ in _chunked(text)]


def _chunked(text: str) -> list[tuple[str, bool]]:
    """Words and names as they are written, and whether a sentence begins with each."""
    from ..index.words import chunks, normal

    plain = normal(text)
    return [
        (found[1], plain[: found.start()].rstrip()[-1:] in ("", ".", ":", "!", "?"))
        for found in chunks(plain)
    ]


@lru_cache(16_384)
def _stem(word: str) -> str:
    from ..index.words import stem

    return stem(word)


def _tells(word: str) -> bool:
    from ..index.words import STOPWORDS

    return word not in STOPWORDS


@lru_cache
def _stems(words: str) -> frozenset[str]:
    return frozenset(_stem(word) for word in words.split())


@lru_cache
def _actions() -> dict[str, frozenset[str]]:
    """What each word says is to be done."""
    found = dict[str, frozenset[str]]()
    for action, words in _ACTIONS.items():
        for stem in _stems(words):
            found[stem] = found.get(stem, frozenset()) | {action}
    return found


@lru_cache
def _groups() -> dict[str, frozenset[int]]:
    """The groups of words that stand for one another, by each of them."""
    found = dict[str, frozenset[int]]()
    for number, words in enumerate(_SAME.strip().replace("\n", "|").split("|")):
        for stem in _stems(words):
            found[stem] = found.get(stem, frozenset()) | {number}
    return found


@lru_cache
def _opposites() -> tuple[tuple[str, str], ...]:
    pairs = (one.split() for line in _OPPOSITES.strip().splitlines() for one in line.split("|"))
    return tuple((_stem(first), _stem(second)) for first, second in pairs)
