"""What the words of a text are, for everybody who needs them: the index, likeness, salience.

For the index, the words are the same for what is stored and for what is asked.

A *chunk* is what stands between spaces and punctuation, code-like words held together: `src/db.py`,
`--no-verify`, `max_size`, `OpenBook`. It stands for several *words*: itself, its parts, and each of them
without its accents. Scripts that put no spaces between words are cut into pairs of characters. Everything
here is a function of its arguments and of the versions named in `version`.

Two rules are simpler: near-duplicates are compared by their `tokens`, and salience by what is `spaced`.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Set
from functools import cache, lru_cache
from itertools import islice
from typing import Any

LONGEST = 64
"""Words are cut to this many characters, those of documents as well as those of queries."""
MOST_READ, MOST_WORDS = 100_000, 30_000
"""How many characters of a text are read, about 40 pages, and how many different words in them: more than people write
on 40 pages. A text of one actor must not delay what others look for."""

_STOPWORDS = """
a about above after again against all am an and any are aren as at be because been before being below between
both but by can could couldn d did didn do does doesn doing don down during each few for from further had hadn
has hasn have haven having he her here hers herself him himself his how i if in into is isn it its itself just
ll m me more most my myself no nor not now of off on once only or other our ours ourselves out over own re s
same shan she should shouldn so some such t than that the their theirs them themselves then there these they
this those through to too under until up ve very was wasn we were weren what when where which while who whom
why will with won would wouldn you your yours yourself yourselves
"""
STOPWORDS = frozenset(_STOPWORDS.split())

UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Thai, Lao, Burmese, Khmer, kana, Han and Hangul, as ranges for a class of characters: scripts that are
written without spaces, or with particles that cling to the word."""

_LETTER = re.compile(r"[^\W_]")
_UNSPACED = re.compile(f"[{UNSPACED}]+")
_RUNS = re.compile(f"[{UNSPACED}]+|[^{UNSPACED}]+")
_SEGMENTS = re.compile(r"[/\\:@]+")
_PARTS = re.compile(r"[/\\:@._-]+")
_HUMPS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[a-z][0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_IGNORED = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]")
_BEYOND_LATIN = re.compile("[^\0-\u02ff\u2010-\u2044]")
_ACCENTS = dict.fromkeys(range(0x300, 0x370)) | str.maketrans(
    {"æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "ħ": "h", "ŧ": "t", "þ": "th", "ı": "i"}
)


def _chunk_pattern(letter: str) -> re.Pattern[str]:
    # The apostrophe and the s of a possessive belong to no word.
    return re.compile(rf"((?:(?<![\w-])--)?{letter}+(?:[./\\:@-]{{1,3}}{letter}+)*)(?:['’]s(?!{letter}))?")


_LATIN_CHUNKS = _chunk_pattern(r"\w")


@cache
def marks() -> str:
    """Every combining mark, as ranges for a class of characters: to `re` they are no letters, though in many
    scripts they are the vowels. Looked up once, when the first text comes that may have some."""
    ranges: list[list[int]] = []
    for code in (*range(0x300, 0x1F000), *range(0xE0100, 0xE01F0)):
        if unicodedata.category(chr(code))[0] == "M":
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)


@cache
def _all_chunks() -> re.Pattern[str]:
    return _chunk_pattern(rf"[\w{marks()}]")


def normal(text: str) -> str:
    """Compatibility forms made plain (NFKC) and invisible characters dropped; case is kept."""
    return text if text.isascii() else unicodedata.normalize("NFKC", _IGNORED.sub("", text))


def folded(text: str) -> str:
    """Without accents. What is left of scripts in which marks are letters stays as it is."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).translate(_ACCENTS))


def lowered(text: str) -> str:
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", text.casefold())


def chunks(text: str) -> Iterator[re.Match[str]]:
    """The chunks of a normal text in order, each as group 1."""
    return (_all_chunks() if _BEYOND_LATIN.search(text) else _LATIN_CHUNKS).finditer(text)


def spelled(chunk: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words of a chunk: its smallest parts in order, which make up a document's length, and beside them
    the wholes and pieces that can be searched for, too. The last character of an unspaced run is a word of
    its own, so that every character begins one."""
    if chunk.isascii() and chunk.isalnum() and not _HUMPS.search(chunk):
        return (chunk.lower()[:LONGEST],), ()
    parts: list[str] = []
    wholes = [chunk, chunk.lstrip("-")]
    for segment in _SEGMENTS.split(chunk):
        wholes.append(segment)
        for part in filter(None, _PARTS.split(segment)):
            wholes.append(part)
            for run in _RUNS.findall(part):
                if unspaced(run):
                    parts += [run[at : at + 2] for at in range(len(run))]
                else:
                    parts.append(run)
                    wholes += _HUMPS.split(run)
    leaves = _lettered(parts)
    beside = dict.fromkeys(_lettered(whole for whole in wholes if not unspaced(whole)))
    known = frozenset(leaves)
    return leaves, tuple(word for word in beside if leaves and word not in known)


def _lettered(written: Iterable[str]) -> tuple[str, ...]:
    """In lower case and cut to length; marks without a letter are no words."""
    lower = (lowered(word)[:LONGEST] for word in written)
    return tuple(word for word in lower if has_letter(word))


def has_letter(text: str) -> bool:
    """Whether there is a letter or a digit in it."""
    return _LETTER.search(text) is not None


def unspaced(text: str) -> bool:
    """Whether it is written in scripts without spaces, all of it."""
    return _UNSPACED.fullmatch(text) is not None


@lru_cache(50_000)
def _words(chunk: str) -> tuple[tuple[str, ...], int]:
    """All words that a chunk of a document is found by, and how long it is."""
    leaves, beside = spelled(chunk)
    plain = dict.fromkeys(folded(word) for word in (*leaves, *beside) if not word.isascii())
    known = {*leaves, *beside}
    return (
        (*leaves, *beside, *(word for word in plain if word not in known)),
        sum(leaf not in STOPWORDS for leaf in leaves),
    )


def _known(chunk: str) -> tuple[tuple[str, ...], int]:
    return _words(chunk) if len(chunk) <= 2 * LONGEST else _words.__wrapped__(chunk)  # not worth remembering


def counted(text: str) -> tuple[Counter[str], int]:
    """How often each word occurs in what is read of a text, and how many words that has that are not stopwords."""
    every: list[str] = []
    length = 0
    for found in chunks(normal(text[:MOST_READ])[:MOST_READ]):
        words, long = _known(found[1])
        every += words
        length += long
    counts = Counter(every)
    return counts if len(counts) <= MOST_WORDS else Counter(dict(islice(counts.items(), MOST_WORDS))), length


@cache
def version() -> str:
    import Stemmer  # type: ignore[import-not-found, unused-ignore]

    return f"words 2, Unicode {unicodedata.unidata_version}, Snowball English {Stemmer.version()}"


@cache
def _stemmer() -> Any:
    """Loaded when the first word is stemmed: importing the library stays quick."""
    import Stemmer  # type: ignore[import-not-found, unused-ignore]

    return Stemmer.Stemmer("english")


def stem(word: str) -> str:
    """What the forms of a word have in common; code-like words and other scripts stay as they are."""
    return str(_stemmer().stemWord(word)) if word.isalpha() else word


def near(word: str, other: str) -> bool:
    """Whether one letter more, less or changed, or two neighbours swapped, makes one word of the other.
    Digits are never taken for typing errors."""
    shared = 0
    while shared < min(len(word), len(other)) and word[shared] == other[shared]:
        shared += 1
    word, other = word[shared:], other[shared:]
    while word and other and word[-1] == other[-1]:
        word, other = word[:-1], other[:-1]
    if any(letter.isdigit() for letter in word + other):
        return False
    return max(len(word), len(other)) == 1 or (len(word) == 2 and word == other[::-1])


def correctable(word: str) -> bool:
    """Whether a word is long enough that a near one may be meant."""
    return sum(letter.isalpha() for letter in word) >= 5


def snippet(text: str, words: Collection[str], width: int = 240) -> str:
    """So many characters of a text around the first of these words in it; a short text whole."""
    if len(text) <= width:
        return text
    plain = normal(text[:MOST_READ])[:MOST_READ]
    start = 0
    for found in chunks(plain):
        here = [word for word in _known(found[1])[0] if word in words]
        if here:
            chunk = lowered(found[1])
            start = found.start() + min(max(chunk.find(word), 0) for word in here)
            break
    if not text.startswith(plain):
        start = _place(text, start)
    start = max(0, min(start - width // 4, len(text) - width))
    return text[start : start + width]


def _place(text: str, place: int) -> int:
    """Where in a text that stands, about, which has this place in its normal form. Piece by piece, because a prefix of
    every length would have to be made normal otherwise."""
    size, at = 256, 0
    while at < len(text) and (long := len(normal(text[at : at + size]))) <= place:
        place -= long
        at += size
    piece = text[at : at + size]
    return at + max(
        bisect_left(range(len(piece)), place + 1, key=lambda end: len(normal(piece[:end]))) - 1, 0
    )


_MARKS = {ord(mark): " " for mark in '?!.,;:()[]"'}


def names(text: str) -> set[str]:
    """The words of a text as names are compared."""
    return {
        word.removesuffix("'s") for word in folded(lowered(text)).replace("’", "'").translate(_MARKS).split()
    }


# likeness


class _Letters(dict[int, int | None]):
    """What becomes of each character: punctuation and symbols go. Filled as characters are met."""

    def __missing__(self, code: int) -> int | None:
        kept = None if unicodedata.category(chr(code)).startswith(("P", "S")) else code
        self[code] = kept
        return kept


_LETTERS = _Letters()


@lru_cache(1024)
def tokens(text: str) -> frozenset[str]:
    """The words of a text in lower case. Punctuation is deleted, not turned into a space: `don't` is one word."""
    return frozenset(unicodedata.normalize("NFC", text).translate(_LETTERS).lower().split())


def spaced(text: str) -> frozenset[str]:
    """What stands between spaces, in lower case."""
    return frozenset(text.lower().split())


def jaccard(a: Set[str], b: Set[str]) -> float:
    """The share of words that two sets have in common; two empty ones are the same."""
    return len(a & b) / len(a | b) if a or b else 1.0
