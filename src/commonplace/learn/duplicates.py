"""Entries that are about one subject or one command, and which of them to keep.

An entry is about a command if it says that the command is run, what for, and nothing else in particular: no number,
identifier, path or "not", and only a few words. "Run the evals with `cd evals && npm test`" is about the command;
"`npm test` needs Node 20" and "`npm test` restarts the workers" are facts of their own.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

import msgspec

from ..index.words import STOPWORDS, tokens
from ..ledger.printing import Readable
from ..memory.claims import key_form
from ..memory.items import Item, subject_and_fact

TOO_MANY = 5
"""From so many entries about one subject or command on, all but one are candidates for decay."""

MOST_WORDS = 8
"""Words that an entry about a command has besides the command, without those that every sentence has."""

MOST_READ = 2_000
"""Characters of an entry in which commands are looked for: what describes a command is short."""

KEEPER = (
    "the keeper stands, cites what is still there, was verified last, was corroborated most, "
    "has the most citations, and is the newest, in this order"
)

# Every part is of bounded length and never tried twice, so that a text is looked through in linear time.
_PATH = r"[\w.@~][\w.@~/+-]{0,80}+"
_FLAG = r"--?[A-Za-z][\w-]{0,40}+(?:=[\w./,:@+-]{1,80}+)?+"
_ARGUMENT = rf"(?: (?:{_FLAG}|(?=[\w@~+-]{{1,40}}+(?:/|\.\w))[\w.@~/+:-]{{1,80}}+))"
_PLAIN = (
    r"(?:(?:npm|pnpm|yarn|bun) (?:run [\w:.-]{1,40}+|test|start|ci|install|build|lint)"
    r"|go (?:test|build|run|vet|generate)|cargo (?:test|build|run|clippy|fmt|bench)"
    r"|docker(?: compose|-compose) (?:up|down|build|run|exec)|docker (?:build|run|push|exec)"
    r"|(?:pip|pip3|poetry|uv|bundle|composer) (?:install|sync|run [\w.-]{1,40}+)"
    r"|make (?!(?:sure|sense|use|an?|the|for|it|to|that|and|or|is|in|on)\b)\w[\w-]{0,40}+"
    r"|npx [\w@./-]{1,80}+|(?:python|python3|node|ruby|bash|sh) (?:-m [\w.]{1,40}+|[\w/-]{1,80}+\.\w{1,5}+)"
    r"|\./\w[\w./-]{0,80}+)(?![\w-])"
)
"""Commands that prose names so that nothing else can be meant."""
_TOOLS = r"(?:pytest|ruff|mypy|eslint|jest|vitest|black|tsc)"
_SIMPLE = rf"(?>cd {_PATH}|{_PLAIN}{_ARGUMENT}{{0,6}}+|{_TOOLS}{_ARGUMENT}{{0,6}}+)"
_CHAIN = rf"{_SIMPLE}(?: ?(?:&&|;) ?{_SIMPLE}){{1,4}}+"
_OTHERS = (
    r"(?:git|kubectl|helm|terraform|just|task|rake|mix|mvn|gradle|dotnet|tox|nox|psql|curl|ssh|aws|gcloud|brew|rails"
    r"|systemctl|alembic|uvicorn|gunicorn|deno|java|php|pytest|ruff|mypy|eslint|jest) \S.*+"
)
"""Commands that are only certain in backticks: "just run it" is none."""
_LED = "|".join(
    rf"(?<={word})"
    for word in (
        "run ", "runs ", "running ", "use ", "uses ", "using ", "with ", "via ", "by ", "through ", "execute ",
        "call ", "is ", "are ", ": ", "^",
    )
)  # fmt: skip
_QUOTED = re.compile(r"`([^`\n]{1,200})`")
_SPOKEN = re.compile(
    rf"(?<![\w/.-])(?:{_CHAIN}|(?:{_LED})(?:{_PLAIN}{_ARGUMENT}{{0,6}}+|{_TOOLS}{_ARGUMENT}{{1,6}}+))",
    re.IGNORECASE,
)
_IN_QUOTES = re.compile(rf"\(?(?:\$ )?(?:{_CHAIN}|{_SIMPLE}|{_OTHERS})(?: .*+)?\)?")
_PARTICULAR = re.compile(
    r"\d|\w[_/]\w|\w\.\w|[a-z][A-Z]|(?i:\b(?:not|never|no|only|cannot|without|unless)\b|n't\b)"
)
_BEFORE = re.compile(
    r"(?i)(?:\b(?:runs?|running|uses?|using|with|via|by|through|execut(?:e|es|ed|ing)|calls?|calling|invokes?|is|are|be"
    r"|command|type|do|call)|[:=(\"'“‘—–])\s*[(\"'“‘]?$"
)
"""What stands before a command that is run."""
_AFTER = re.compile(
    r"(?i)[)\"'”’.:;,\s—–-]*(?:$|\(|(?:runs?|executes?|starts?|launches|performs?|does|tests?|checks?|builds?|lints?"
    r"|deploys?|brings|verifies|validates|covers|from|in|for|before|to|as|will run|is (?:the|how|our|what|used|an?))\b)"
)
"""What stands after a command that the entry begins with, if it says what the command is for."""


class DuplicateEntries(Readable, msgspec.Struct, frozen=True):
    """Five or more entries about one subject or command: the one to keep, and the candidates for decay."""

    about: str
    keeper: str
    candidates: tuple[str, ...]
    next: tuple[str, ...]
    """The commands that set the candidates aside."""
    scope: str = ""
    why: str = KEEPER

    def __str__(self) -> str:
        count = f"{len(self.candidates) + 1} entries"
        candidates = ", ".join(self.candidates)
        return f"{count} about {self.about}: keep {self.keeper}; candidates for decay: {candidates}"


def duplicates(items: Iterable[Item], stale: Collection[str]) -> list[DuplicateEntries]:
    """The groups of entries about one subject or command, among those that stand or wait for a choice. Entries meet in
    one scope, core and audience, and facts of the repository only with each other. `stale` are the ids of those whose
    citations do not hold. A group that is part of a larger one is not repeated."""
    groups = defaultdict[tuple[str | bool, ...], list[Item]](list)
    for item in items:
        place = (item.scope, item.core or "", "" if item.shared else item.agent, item.repository)
        for about in abouts(item):
            groups[*place, about].append(item)
    many = [(str(key[-1]), group) for key, group in groups.items() if len(group) >= TOO_MANY]
    reported = list[frozenset[str]]()
    found = list[DuplicateEntries]()
    for about, group in sorted(many, key=lambda pair: (-len(pair[1]), pair[0])):
        ids = frozenset(item.id for item in group)
        if not any(ids <= other for other in reported):
            reported.append(ids)
            found.append(_reported(about, group, stale))
    return found


def _reported(about: str, group: Sequence[Item], stale: Collection[str]) -> DuplicateEntries:
    keeper = kept_of(group, stale)
    others = sorted(
        (item for item in group if item is not keeper), key=lambda item: (item.recorded_us, item.id)
    )
    return DuplicateEntries(
        about, keeper.id, tuple(item.id for item in others), tuple(_setting_aside(item, keeper) for item in others),
        keeper.scope,
    )  # fmt: skip


def kept_of(group: Iterable[Item], stale: Collection[str] = ()) -> Item:
    """The entry to keep, as `KEEPER` says."""
    return max(
        group,
        key=lambda item: (
            item.current, item.id not in stale, item.verified_us or 0, len(item.corroborated), len(item.citations),
            item.recorded_us, item.id,
        ),
    )  # fmt: skip


def _setting_aside(item: Item, keeper: Item) -> str:
    if item.held is not None and item.status == "held":
        return f"commonplace memory resolve {item.id} {'old' if item.held.why == 'dispute' else 'skip'}"
    return f"commonplace memory archive {item.id} --why 'duplicate of {keeper.id}'"


def abouts(item: Item) -> Iterator[str]:
    """What an entry is about: the key of a fact as its subject, and the command that it describes."""
    subject, fact = subject_and_fact(item.as_content())
    if item.kind == "fact":
        yield f"the subject {subject_form(subject)!r}"
    commands = {command for text in (subject, fact) for _, command in commands_in(text)}
    if len(commands) == 1 and _describes(fact):
        yield f"the command `{commands.pop()}`"


def subject_form(subject: str) -> str:
    """The form under which subjects are the same: its words but for articles and the like, in any order, a plural as a
    singular."""
    words = {_singular(word) for word in key_form(subject).split(".") if word not in STOPWORDS}
    return " ".join(sorted(filter(None, words))) or key_form(subject)


def _singular(word: str) -> str:
    return word.removesuffix("s") if len(word) > 3 and word.isalpha() and not word.endswith("ss") else word


def commands_in(text: str) -> Iterator[tuple[re.Match[str], str]]:
    """The shell commands that a text names, each with its place, in one spelling: in backticks, or after "run", "use"
    and the like, or several that are joined with `&&`."""
    text = text[:MOST_READ]
    quoted = [match for match in _QUOTED.finditer(text) if _IN_QUOTES.fullmatch(" ".join(match[1].split()))]
    for match in quoted:
        yield match, command_form(match[1])
    rest = _QUOTED.sub(lambda match: " " * len(match[0]), text)
    for match in _SPOKEN.finditer(rest):
        yield match, command_form(match[0])


def command_form(command: str) -> str:
    """One spelling of a command: `(cd ./evals/; npm run test)` is `cd evals && npm test`."""
    plain = " ".join(command.replace("&&", ";").split()).removeprefix("$ ").strip("() ").rstrip(".,:;")
    return " && ".join(_simple_form(part.split()) for part in plain.split(";") if part.strip())


def _simple_form(words: list[str]) -> str:
    if words[0] == "cd":
        words = [words[0], *(word.removeprefix("./").rstrip("/") for word in words[1:])]
    if words[1:3] == ["run", "test"] and words[0] in ("npm", "pnpm", "yarn", "bun"):
        words = [words[0], *words[2:]]
    return " ".join(words)


def _describes(fact: str) -> bool:
    """Whether an entry says only that a command is run, and what for, and nothing else in particular."""
    rest, placed = fact, True
    for match, _ in commands_in(fact):
        placed &= bool(_BEFORE.search(fact[: match.start()]) or _AFTER.match(fact[match.end() :]))
        rest = rest[: match.start()] + " " * (match.end() - match.start()) + rest[match.end() :]
    few = len(tokens(rest) - STOPWORDS) <= MOST_WORDS
    return placed and few and not _PARTICULAR.search(rest)
