"""What a text claims, so that the same claim is recognised however it is dressed.

    claim_of("I recall that: “The port is 8080.”")  ==  claim_of("- port is 8080")
    claim_of("The port is 8080")                    !=  claim_of("The port is 8081")

A claim is a set of sentences in a normal form: without frames ("I recall that …", "…, as noted earlier"), list marks,
quotes, case, punctuation and articles. Every other word counts, so a changed number, name, identifier, path, value or
"not" makes another claim, and so does another order of the words of a sentence: it is better to hold a reworded
repetition for somebody's choice than to refuse a correction. The order of sentences does not count, nor whether a
phrase such as "on port 8080" stands at the end of a sentence or, with a comma, at its beginning.

Everything here is a pure function, and takes time in proportion to the length of its text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from hashlib import sha256
from itertools import pairwise
from typing import Any

from ..ledger.checks import MAX_NAME
from ..ledger.encoding import canonical

Claim = frozenset[str]
Sentence = tuple[str, ...]
"""The words of a sentence."""

_REPORT_WORDS = """
    recall recalls recalled recollect remember remembers remembered remembering note noted notes noting mention
    mentioned mentions state stated states say said says tell told tells report reported reports record recorded records
    confirm confirmed confirms confirming observe observed learn learned learnt know known knows see seen saw read heard
    understand understood believe believed think thought establish established remind reminder reminded recap repeat
    repeated repeating quote quoted quotes quoting summary summarise summarize according per fyi nb indeed cite cited
    indicate indicates indicated show shows shown stored written wrote agree agreed discussed aware reiterate restate
"""
_REPORTS = frozenset(_REPORT_WORDS.split())
"""Words that say that something is being repeated. A frame has at least one of them."""

_FRAME_WORDS = """
    i we you they he she it my our your their the a an this that these as to from by in of on at for with and is was are
    were be been has have had do did can could would should must may might let me us just also again already still now
    once earlier previously before above so far here there well clearly worth important importantly please memory
    log logs digest book ledger team context knowledge base notebook history entry item fact facts following point key
    conversation session everyone everybody what which how
"""
_FRAMES = _REPORTS | frozenset(_FRAME_WORDS.split())
"""Words of which a frame is made. None of them turns a claim around or narrows it."""

_OURS = ("recall", "remember", "know", "believe")
_ENDS = {
    "i": _OURS,
    "we": _OURS,
    "according": ("memory", "notes", "logs", "records", "digest", "ledger", "team"),
}
"""With which words a frame ends that has no "that" and no comma, by its first word."""

_NOISE_WORDS = "a an the is are that also just really actually simply indeed"
_NOISE = frozenset(_NOISE_WORDS.split())
_DIGITS = "zero one two three four five six seven eight nine ten eleven twelve"
_NUMBERS = {word: str(number) for number, word in enumerate(_DIGITS.split())}
_DENIALS = "not no never none nobody nothing nor neither without cannot except unless false wrong"
_NEGATIONS = frozenset(_DENIALS.split())
_LIMIT_WORDS = "but only if when until though although however instead otherwise longer < > ≤ ≥"
_LIMITS = frozenset(_LIMIT_WORDS.split())
"""Words and signs that say when something does not hold."""
_MOST_CHANGED = 2
"""Words of a sentence that another one replaces, so that it is the same sentence with another value."""
_MOST_ALIKE = 64
"""Sentences that one is compared with which begin or end alike: enough, and the time stays in proportion."""
_FEWEST_OF_A_PART = 20
"""Words that a part of a text has at least: fewer can say something else than the whole."""

_LIST_MARK = re.compile(r"[ \t]*+[\"'“«‘]*+(?:(?:[-*+•‣◦>#–—]++|\(?\d{1,3}[.)]|\[[ xX]?\])[ \t]++)++")
_DIGEST_LINE = re.compile(r"(?m)^(?:- )?\[[a-z]++\] \S++ \((?:public|private|sensitive)\) ")
_DIGEST_FIELD = re.compile(
    r"\b(?:key|value|title)=|\b(?:conf|occurred_at)=\S++|\((?:prov|channel|thread)=[^()]*+\)\s*+$"
)
_WORK_LINE = re.compile(
    r"(?m)^(?:- )?(?:(?:Goal|Decided|Reviewer|Blocker): |\[(?:low|normal|high|critical)\] )"
    r"(.*?)(?: \((?:from )?[^\s()]++\))?$"
)
_SENTENCE_END = re.compile(r"(?<![.!?;…])[.!?;…]++[\"'”’»)\]*`]*+(?=\s|$)|,? because(?=\s)")
_LINE_END = re.compile(r"[\r\n⏎]++")
_WORD = re.compile(r"[^\W_]++(?:['’][^\W_]++)*+")
_CLOSING = re.compile(r"[:,;–—\"“”«]|\s-\s|\s['‘]")
_TAIL = re.compile(r"[,;(–—]|\s-\s")
_MINUS = re.compile(r"(?<![^\s(\[=:])[–—−‒](?=\d)")
_POWERS = {
    ord(sign): f"^{digit}" for digits in ("⁰¹²³⁴⁵⁶⁷⁸⁹", "₀₁₂₃₄₅₆₇₈₉") for digit, sign in enumerate(digits)
}
"""10² is not 102."""
_COMPARISONS = {"!=": "not", "≠": "not", "<=": "≤", "≤": "≤", ">=": "≥", "≥": "≥"}
_COMPARED = re.compile("|".join(_COMPARISONS))
"""An equals sign stands between words like a colon; with a sign before it, it says something else."""
_PHRASE = re.compile(r"(?:on|at|in|by|for|from|with|via|under|during|since|after|before|every|each)\b")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_BETWEEN_WORDS = re.compile(r"[\s,:=–—\"“”«»()\[\]{}|]++")


MOST_KEPT = 2_000
"""Characters of a text whose claim is kept for the next comparison: what was shown is compared with each text that
comes in. Longer texts are rare, and would take much room."""


def claim_of(text: str, subject: str = "") -> Claim:
    """The sentences of a text in their normal form, each together with its subject (a title or a key)."""
    return (_kept_claim if len(text) + len(subject) <= MOST_KEPT else _claim)(text, subject)


def _claim(text: str, subject: str) -> Claim:
    about = _words(_plain(subject)) if subject else ()
    sentences = _sentences(text) or (
        tuple(_plain(text).split()),
    )  # nothing but punctuation is compared as it is
    return frozenset(" ".join((*about, *sentence)) for sentence in sentences)


_kept_claim = lru_cache(4096)(_claim)


def repeats(new: Claim, known: Claim) -> bool:
    """Whether a claim repeats all or a part of a known one. A part repeats nothing if the rest takes something back:
    "deploy on Fridays" is the contrary of "deploy on Fridays. No, never deploy on Fridays"."""
    rest = " ".join(known - new).split()
    return bool(new) and new <= known and not _limits(rest)


def covered(new: Claim, known: Collection[Claim]) -> bool:
    """Whether a claim says nothing beyond known ones: it repeats one of them, or several in whole. Parts of several are
    not enough: "it uses port 2" says something else after another sentence."""
    if not new:
        return False
    if any(repeats(new, claim) for claim in known):
        return True
    return new == frozenset().union(*(claim for claim in known if claim and claim <= new))


def is_part(text: str, whole: str) -> bool:
    """Whether a text is a long enough piece of another one, such as an excerpt that a search has shown, and nothing of
    the rest takes it back or limits it."""
    part = _flat(text)
    if len(part) < _FEWEST_OF_A_PART or len(part) > len(words := _flat(whole)):
        return False
    before, found, after = f" {' '.join(words)} ".partition(f" {' '.join(part)} ")
    return bool(found) and not _limits([*before.split(), *after.split()])


def corrects(text: str, known: Iterable[str]) -> bool:
    """Whether a text that is derived from others says something critical that none of them does (a number, a name, an
    identifier, a path, a "not"), leaves out a "not" or a limit of theirs, or repeats a sentence of theirs with one or
    two words changed, with words added, or with its words in another order."""
    others = list(known)
    theirs = frozenset(word for other in others for word in _flat(other))
    if critical(text) - theirs:
        return True
    mine = frozenset(_flat(text))
    denied = {word for other in others for word in _denied(other)}
    if (denied & mine) - _denied(text):
        return True
    own_sentences = dict.fromkeys(_sentences(text))
    shown = [dict.fromkeys(_sentences(other)) for other in others]
    for sentences in shown:
        left_out = [word for sentence in sentences if sentence not in own_sentences for word in sentence]
        if any(sentence in sentences for sentence in own_sentences) and _limits(left_out):
            return True
    return _alters_one(
        own_sentences, dict.fromkeys(sentence for sentences in shown for sentence in sentences)
    )


def _alters_one(new: Mapping[Sentence, None], known: Mapping[Sentence, None]) -> bool:
    """Whether one of these sentences is a known one, altered. An altered sentence has its words, its first or its last
    word in common with the known one, so only those are compared."""
    by_trait = dict[Any, list[Sentence]]()
    for sentence in known:
        for trait in _traits(sentence):
            by_trait.setdefault(trait, []).append(sentence)
    return any(
        _alters(sentence, other)
        for sentence in new
        if sentence not in known
        for trait in _traits(sentence)
        for other in by_trait.get(trait, ())[:_MOST_ALIKE]
    )


def _traits(sentence: Sentence) -> tuple[Any, ...]:
    return frozenset(sentence), ("first", sentence[0]), ("last", sentence[-1])


def _alters(new: Sentence, old: Sentence) -> bool:
    """Whether a sentence is another one with its words in another order, with one or two of them changed, or with
    words added. Words that are left out alter it if they limit it."""
    if sorted(new) == sorted(old):
        return True
    shorter = min(len(new), len(old))
    begin = next((at for at in range(shorter) if new[at] != old[at]), shorter)
    end = next((at for at in range(shorter - begin) if new[-1 - at] != old[-1 - at]), shorter - begin)
    added, gone = new[begin : len(new) - end], old[begin : len(old) - end]
    if not added:
        return _limits(gone)
    changed_few = len(gone) <= _MOST_CHANGED and len(added) <= _MOST_CHANGED
    return (changed_few or not gone) and begin + end >= max(len(added), len(gone))


def sentences(text: str) -> tuple[Sentence, ...]:
    """The words of each sentence of a text in their normal form."""
    return _sentences(text)


def negates(word: str) -> bool:
    """Whether a word in its normal form turns a sentence around."""
    return word in _NEGATIONS or word.endswith("n't")


def framed(text: str) -> bool:
    """Whether a text says of itself that it repeats something."""
    return any(_unframed(line) != line for line in _lines(text))


def key_form(key: str) -> str:
    """The form under which keys are compared: `API.limit`, `api limit` and `api.limit` are one key."""
    plain = unicodedata.normalize("NFKC", key).casefold()
    form = ".".join(re.split(r"[\s._/-]+", plain)).strip(".") or plain
    return form if len(form) <= MAX_NAME else sha256(form.encode()).hexdigest()


def value_form(value: Any) -> bytes:
    """The form under which values of facts are compared: as JSON, and 60.0 is 60. A sentence is compared as a claim."""
    if isinstance(value, str) and len(value.split()) >= 4 and (claim := claim_of(value)):
        return canonical(["claim", *sorted(claim)])
    return canonical(_numbers_plain(value))


def _numbers_plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, dict):
        return {name: _numbers_plain(inner) for name, inner in value.items()}
    return [_numbers_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


# from a text to its words


def _plain(text: str) -> str:
    """A text without its case and what cannot be seen. Markdown's emphasis goes; a single `*` may be a pattern's."""
    text = _MINUS.sub("-", text.translate(_POWERS))
    if not text.isascii():
        composed = unicodedata.normalize("NFKC", text)
        text = "".join(char for char in composed if unicodedata.category(char) != "Cf")
    folded = _THOUSANDS.sub("", text.casefold()).replace("**", "").replace("`", "")
    folded = _COMPARED.sub(lambda match: f" {_COMPARISONS[match[0]]} ", folded)
    folded = folded.replace("from memory", "recalled")
    return folded.replace("*", "") if folded.count("*") == 2 else folded


def _lines(text: str) -> list[str]:
    """The lines of a text, without list marks and what a prompt writes around an item or a line of a work."""
    if "] " in text and _DIGEST_LINE.search(text):
        text = _DIGEST_FIELD.sub("", _DIGEST_LINE.sub("", text))
    text = _WORK_LINE.sub(r"\1", text)
    return [_unmarked(line) for line in _LINE_END.split(_plain(text))]


def _unmarked(line: str) -> str:
    mark = _LIST_MARK.match(line)
    return line if mark is None else line[mark.end() :]


@lru_cache(1024)
def _sentences(text: str) -> tuple[Sentence, ...]:
    """The words of each sentence, its frames left out. A text that is nothing but a frame keeps its words."""
    lines = _lines(text)
    bare = [_unmarked(_without_head(line)) for line in lines]  # a list may begin right after a frame
    parts = (_unframed(part) for line in bare for part in _SENTENCE_END.split(line))
    return _worded(map(_phrase_last, parts)) or _worded(lines)


def _phrase_last(sentence: str) -> str:
    """The sentence with a phrase that stands before its only comma at the end."""
    phrase, comma, rest = sentence.strip(" \"'“”«»‘’*").partition(", ")
    leads = comma and "," not in rest and _PHRASE.match(phrase)
    return f"{rest.rstrip(' .')} {phrase}" if leads else sentence


def _worded(parts: Iterable[str]) -> tuple[Sentence, ...]:
    return tuple(words for part in parts if (words := _words(part)))


def _flat(text: str) -> list[str]:
    return [word for sentence in _sentences(text) for word in sentence]


def _words(text: str) -> Sentence:
    """What is between the punctuation. What is inside of a word (`api.limit`, `src/a.py`, `don't`) is part of it."""
    words = (word.lstrip("'‘’").rstrip(".!?'’…") for word in _BETWEEN_WORDS.split(text))
    return tuple(_NUMBERS.get(word, word) for word in words if word.strip("-") and word not in _NOISE)


def _unframed(sentence: str) -> str:
    """A sentence without the words around it that say that it is repeated."""
    return _without_tail(_without_head(sentence))


def _without_head(sentence: str) -> str:
    """What follows the last "that", comma, colon or quote within the leading words of a frame."""
    end = start = 0
    reported = False
    first = ""
    for number, match in enumerate(_WORD.finditer(sentence)):
        if reported and _CLOSING.search(sentence, end, match.start()):
            start = match.start()
        word, end = match[0], match.end()
        if word not in _FRAMES:
            return sentence[start:]
        first = first or word
        reported = reported or word in _REPORTS
        if (reported and word == "that") or (number < 4 and word in _ENDS.get(first, ())):
            start = end
    return "" if reported and sentence.rstrip(" \"'").endswith((":", ",", " that")) else sentence[start:]


def _without_tail(sentence: str) -> str:
    """What stands before the last comma, bracket or dash, if only words of a frame follow it."""
    closing = 0
    for match in _TAIL.finditer(sentence):
        closing = match.start()
    words = _WORD.findall(sentence[closing:]) if closing else []
    is_frame = bool(words) and _FRAMES.issuperset(words) and not _REPORTS.isdisjoint(words)
    return sentence[:closing] if is_frame else sentence


# what may not change


def _limits(words: Iterable[str]) -> bool:
    """Whether words take back or limit what stands beside them."""
    return any(word in _NEGATIONS or word in _LIMITS or word.endswith("n't") for word in words)


def critical(text: str) -> frozenset[str]:
    """The numbers, names, identifiers, paths and negations of a text."""
    names = set[str]()
    for line in _LINE_END.split(text):
        for sentence in _SENTENCE_END.split(_unmarked(line)):
            names.update(word.casefold() for word in _WORD.findall(sentence)[1:] if word != word.lower())
    return frozenset(
        word
        for word in _flat(text)
        if word in names or word in _NEGATIONS or word.endswith("n't") or not word.isalpha()
    )


def _denied(text: str) -> frozenset[str]:
    """The words that stand right after a negation."""
    denied = set[str]()
    for sentence in _sentences(text):
        for word, following in pairwise(sentence):
            if word in _NEGATIONS or word.endswith("n't"):
                denied.add(following)
    return frozenset(denied)
