"""What durable memory does not take in: what the repository, its history or the running task already tell.

Which texts these are was learned from labelled ones: `scripts/fit_exclusions` gives every trait of a text a weight
for each class, and the weights are shipped beside this module. A text that is judged wrongly is best added to the
labelled ones. Traits are words, pairs and parts of words, and the bare shape of a sentence, in which a content word
is only an ending and a file or a time only its kind: `never commit to main` and `grace committed it on Monday` share
words and differ in shape. Long texts are judged in pieces of a few sentences and refused only when most of them are:
one line of a log does not spoil a procedure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice, pairwise
from pathlib import Path
from zlib import crc32

CODE, GIT, TASK = CLASSES = "derivable_code_state", "git_history", "ephemeral_task_state"

PIECE = 240
"""From this length on a piece of text is closed at the next end of a sentence or line."""

PLACES = 1 << 15
"""How many weights a class has. Traits find theirs by checksum; the few that share one learned to live with it."""

DOUBT = 16
"""How much a class has to outweigh keeping, a quarter of what makes it e times as likely: in doubt a text is kept."""

WEIGHTS = Path(__file__).with_name("exclusions.bin")

_REASONS = {
    CODE: "This describes code or files, which can be read again in the repository itself",
    GIT: "This is history that the version control keeps",
    TASK: "This is the state of a task under way, which belongs in the session's or the task's own notes",
}


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Why a text is not kept: its class in `rule`, a sentence in `reason`, in `evidence` the words that tell."""

    rule: str
    reason: str
    evidence: str


def excluded(text: str) -> Exclusion | None:
    """The class of things not worth keeping that a text belongs to, or None: keep it.

    The same text always gets the same answer; an empty one is kept. The time taken is linear in the length.
    """
    pieces = [(piece, _judged(piece)) for piece in _pieces(text)]
    refused = [(piece, rule) for piece, rule in pieces if rule]
    if not refused or len(refused) * 2 < len(pieces):
        return None
    rule = Counter(rule for _, rule in refused).most_common(1)[0][0]
    reason = f"{_REASONS[rule]}; if it is worth keeping all the same, say why in `override`."
    return Exclusion(rule, reason, _evidence(next(piece for piece, one in refused if one == rule), rule))


def traits(piece: str) -> set[str]:
    """What a piece of text is judged by."""
    found, words, shape = set(), ["^"], ["^"]
    for token in _token().finditer(piece):
        kind, word = token.lastgroup or "", token[0].lower()
        if kind in {"word", "name"}:
            marked = f"<{word}>"
            found.add(marked)
            found.update(f"~{marked[start : start + 4]}" for start in range(len(marked) - 3))
            words.append(word)
            shape.append(word if word in _SMALL_WORDS else _ending(word) or kind)
        else:
            name = word if kind == "mark" else f"#{kind}"
            found.add(name)
            words.append(name)
            shape.append(name)
    words.append("$")
    shape.append("$")
    found.update(map(" ".join, pairwise(words)))
    found.update(map("&".join, pairwise(shape)))
    found.update(map("&".join, zip(shape, shape[1:], shape[2:], strict=False)))
    return found


def place(trait: str) -> int:
    """Where the weights of a trait stand."""
    return crc32(trait.encode("utf-8", "surrogatepass")) % PLACES


def _judged(piece: str) -> str:
    """The class that a piece belongs to, or the empty string: keep it, as what is too short to tell is kept."""
    if len(piece.split()) < 3:
        return ""
    places = {place(trait) for trait in traits(piece)}
    weight, rule = max((sum(map(weights.__getitem__, places)), rule) for rule, weights in _weights().items())
    return rule if weight > DOUBT else ""


def _evidence(piece: str, rule: str) -> str:
    """The few words of a piece that speak most for a class, as they stand there; its beginning if no word does."""
    weights = _weights()[rule]
    spoken = {
        word: weights[
            place(f"<{word.lower()}>" if token.lastgroup in {"word", "name"} else f"#{token.lastgroup}")
        ]
        for token in _token().finditer(piece)
        if token.lastgroup != "mark" and (word := " ".join(token[0].split()))
    }
    telling = sorted((word for word in spoken if spoken[word] > 0), key=lambda word: -spoken[word])
    return ", ".join(islice(telling, 5)) or piece.strip()[:40]


def _pieces(text: str) -> Iterator[str]:
    """A text in pieces of a few sentences or lines, none longer than twice PIECE however the text is built."""
    held = ""
    for sentence in re.split(r"(?<=[.!?;]\s)|(?<=\n)", text):
        for start in range(0, len(sentence), PIECE):
            held += sentence[start : start + PIECE]
            if len(held) >= PIECE:
                yield held
                held = ""
    if held.strip():
        yield held


def _ending(word: str) -> str:
    return next(
        (f"-{end}" for end in ("ing", "ed", "ly", "s") if word.endswith(end) and len(word) > len(end) + 2), ""
    )


@cache
def _token() -> re.Pattern[str]:
    """Compiled when the first text comes, not when this is imported."""
    return re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in _KINDS.items()), re.MULTILINE)


@cache
def _weights() -> dict[str, memoryview]:
    table = memoryview(WEIGHTS.read_bytes()).cast("b")
    return {rule: table[at * PLACES : (at + 1) * PLACES] for at, rule in enumerate(CLASSES)}


_SMALL_WORDS = frozenset(
    """
    a an the this that these those is are was were be been has have had do does did will would can could should must
    may might not no never always to of in on at for from with by as into onto after before until since while when
    if then so because but and or than it its i we you he she they user our my your his her their there here now
    still yet just only also again already all any each every some more most
    """.split()  # noqa: SIM905  a page of quotes reads worse
)

_EXTENSIONS = (
    "py pyi ipynb js jsx cjs mjs ts tsx json yml yaml toml md rst txt sql lock css scss html vue svelte rb go rs "
    "java kt kts php sh proto prisma xml ini cfg conf env c h cc cpp hpp cs swift scala ex exs tf gradle mod sum "
    "csproj lua dart"
)

_KINDS = {
    "box": r"^\W{0,4}\[[ xX]\]",
    "address": (
        r"https?://\S*|\blocalhost(?::\d+)?|\b[\w.-]{1,80}@[\w.-]+|"
        r"\b[\w-]{1,40}(?:\.[\w-]{1,40}){0,4}\.(?:com|org|io|internal|eu|net)\b[\w/:.-]*"
    ),
    "hash": r"\b(?=[0-9a-f]{0,39}\d)(?=[0-9a-f]{0,39}[a-f])[0-9a-f]{7,40}\b",
    "ticket": r"(?<!\w)[#!]\d+",
    "version": r"\bv\d+(?:\.\d+)+[\w.-]*|\b\d+\.\d+\.\d+[\w-]*",
    "file": (
        rf"(?<![\w/~.])[\w()./*-]{{0,80}}[\w*]\.(?:{'|'.join(_EXTENSIONS.split())})\b(?![\w/])|(?<!\S)\.\w+\b"
    ),
    "path": r"(?<![\w~.:])[\w.*-]{0,80}/[\w.*/{}:<>-]*",
    "call": r"\b\w{1,80}(?:\.\w{1,80}){0,4}\([^()\n]{0,120}\)",
    "symbol": (
        r"\b(?:[^\W_]{0,80}_\w+|[a-z]{1,80}[A-Z]\w*|[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+|[a-z]{2,80}\.[a-z_]{2,})\b"
    ),
    "acronym": r"\b[A-Z][A-Z0-9]+s?\b",
    "clock": r"\b\d{1,2}:\d\d(?::\d\d)?\b",
    "date": r"\b\d{4}-\d\d-\d\d\b",
    "fraction": r"\b\d+/\d+\b",
    "percent": r"\b\d[\d.]* ?%",
    "unit": r"\b\d[\d.]* ?(?:ms|s|min|[GMk]B|h)\b",
    "year": r"\b(?:19|20)\d\d\b",
    "number": r"\b\d[\d,.]*\w*\b",
    "name": r"(?<=[a-z,;] )[A-Z][a-z]+\b",
    "word": r"[^\W\d_]+(?:['’-][^\W\d_]+)*",
    "mark": r"[-+=><→]+|[^\w\s]",
}
"""What the tokens of a text look like, the first that fits counts."""
