"""What the repository, its history or the running task already tell: advice against keeping it for long.

Few rules, each of which means what it says: a listing of code, a line out of git, a log line or a list of ticks, or a
sentence about what somebody is doing at this moment. In doubt a text is none of them. In the memory of the repository,
or where a book or core says so, such a text is refused; everywhere else it is kept, and the answer says what it looks
like.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

CODE, GIT, TASK = "derivable_code_state", "git_history", "ephemeral_task_state"

MOST_READ = 4_000
"""How many characters of a text are looked at."""

_REASONS = {
    CODE: "it lists code or files, which can be read again in the repository itself",
    GIT: "it is history that the version control keeps",
    TASK: "it is the state of a task under way, which belongs in the session's or the task's own notes",
}

_FILE = r"[\w./-]{1,80}\.(?:py|pyi|js|jsx|ts|tsx|go|rs|java|kt|rb|php|c|h|cc|cpp|cs|swift|scala|sql|sh|vue|css|html)\b"
_NAME = (
    r"(?-i:[`'\"]?(?:\w{1,40}_\w{1,40}|[a-z]{1,40}[A-Z]\w{0,40}|[A-Z]\w{0,20}[a-z][A-Z]\w{0,40}|\w{1,40}\(\))"
    r"[`'\"]?)"
)
_LEVEL = r"\[?(?:INFO|DEBUG|WARN(?:ING)?|ERROR|TRACE|FATAL)\b.*"
_HASH = r"\b(?=[a-f]{0,39}\d)(?=\d{0,39}[a-f])[0-9a-f]{7,40}\b"
_DOING = (
    r"working on|debugging|fixing|editing|refactoring|rebasing|waiting (?:for|on)|looking into|"
    r"running (?:the|all|npm|pytest|make)|investigating|reviewing|implementing|rewriting|deploying|rolling (?:out|back)"
)

_LINES = {
    CODE: (
        r"(?:async )?def \w+\(.*:$",
        r"class \w+(?:\(.*\))?:$",
        r"(?:from [\w.]+ )?import [\w.*, {}]+(?: from .+)?;?$",
        r"(?:export )?(?:default )?(?:async )?function\s*\*?\s*\w*\(.*\{?$",
        r"(?:export )?(?:const|let|var) \w+(?::[^=]+)? = .+[;{(\[]$",
        r"#include [<\"].+[>\"]$",
        r"(?:public|private|protected) (?:static )?[\w<>\[\]]+ \w+\(.*\{?$",
        r"func (?:\(\w+ \*?\w+\) )?\w+\(.*\{$",
        r"(?:pub )?fn \w+.*\{$",
        r"return\b.*;$",
        r"[{}\])]+[;,]?$",
        r"@@ -\d+,\d+ \+\d+,\d+ @@.*",
    ),
    GIT: (
        r"commit " + _HASH + r".*",
        _HASH + r"\)? (?:\([^)]*\) )?[A-Z\w].*",
        r"(?:Author|Date|Merge):\s+\S.*",
        r"\* " + _HASH + r".*",
    ),
    TASK: (
        r"\[[ xX]\] .*",
        r"\[?\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d+)?\]? " + _LEVEL,
        r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?Z?\]? " + _LEVEL,
    ),
}
"""What lines look like of which a text of each class consists: at least half of its lines."""

_SENTENCES = {
    CODE: (
        r"\b(?:is|are|was) (?:defined|declared|implemented) (?:in|at) [`'\"]?" + _FILE,
        r"[`'\"]?" + _FILE + r"[`'\"]?,? (?:has|contains|is) \d+ (?:lines|functions|classes|tests|imports)\b",
        r"\b" + _FILE + r":\d+ (?:defines|declares|imports|calls|returns)\b",
        r"^[`'\"]?" + _FILE + r"[`'\"]? (?:exports|imports|defines|declares|calls)\b",
        r"\b(?:function|method|class|struct|enum|interface|component) "
        + _NAME
        + r" (?:takes|returns|extends|inherits|overrides|implements|contains|has)\b",
        r"^" + _NAME + r" (?:in " + _FILE + r" )?(?:takes|returns|extends|inherits from|overrides|calls)\b",
        r"^" + _NAME + r" is called (?:from|by|in)\b",
        r"\b(?:is|are) (?:located|called|registered|exported) (?:in|from) [`'\"]?" + _FILE,
    ),
    GIT: (
        r"\bcommit " + _HASH,
        r"\b(?:committed|pushed|merged|reverted|cherry-picked|rebased|tagged)\b[^.\n]{0,60}" + _HASH,
        r"\bmerged (?:branch|pull request|PR|MR)\b[^.\n]{0,60}(?:\binto\b|[#!]\d+)",
        r"\b(?:PR|MR|pull request|merge request) [#!]?\d+ (?:was|got|has been) (?:merged|opened|closed|rebased)\b",
        r"^Merge branch '",
        r"^(?:feat|fix|chore|refactor|perf|ci|build)(?:\([\w./-]{1,40}\))?!?: [a-z]",
        r"\b(?:opened|merged|closed|reviewed|approved|rebased) (?:PR|MR|pull request|merge request) ?[#!]?\d+",
        r"\b(?:the )?(?:last|latest|most recent) (?:commit|merge)(?: \w+){0,4} (?:is|was|by)\b",
        r"\b(?:has|had|have|are) \d+ (?:new |open |unmerged )?commits\b",
        r"\bHEAD (?:is|points|moved)\b[^.\n]{0,40}\b(?:at|to)\b",
    ),
    TASK: (
        r"\b(?:I am|I'm|I’m|we are|we're|we’re) (?:now |still |just |currently )*(?:" + _DOING + r")\b",
        r"\b(?:currently|right now|at the moment) (?:I am |I'm |we are |we're )?(?:" + _DOING + r")\b",
        r"\b(?:the )?(?:tests?|builds?|pipeline|CI|deploy(?:ment)?)(?: \w+){0,3} (?:is|are) (?:now |still |currently )"
        r"(?:passing|failing|running|green|red|pending)\b",
        r"\b(?:step|phase|task) \d+ of \d+\b",
        r"^(?:next|next up|next step|todo|wip)\s*:",
        r"^(?:still )?(?:waiting for|working on|debugging|investigating|rewriting|refactoring)\b",
        r"\b\d+ (?:of|out of) \d+ (?:tests|files|records|rows|items|steps|tasks|chunks)\b",
        r"\b(?:just|temporarily) (?:fixed|pushed|committed|deployed|commented out|disabled|reverted|rebased)\b",
        r"\b(?:tests?|builds?|checks?) (?:is|are|fail|fails|pass|passes)\b[^.\n]{0,20}\b(?:at the moment|right now)\b",
    ),
}
"""What a sentence says of which one makes a short text belong to a class."""

SHORT = 240
"""Up to so many characters a single sentence tells what a text is; a longer one has to consist of such lines."""


@dataclass(frozen=True, slots=True)
class Exclusion:
    """What a text looks like: its class in `rule`, a sentence in `reason`, in `evidence` the words that tell."""

    rule: str
    reason: str
    evidence: str


def excluded(text: str) -> Exclusion | None:
    """The class of things that are told elsewhere which a text belongs to, or None. The same text always gets the same
    answer, in time that is linear in its length."""
    text = text[:MOST_READ]
    lines = [line.strip(" \t-*>`") for line in text.splitlines()]
    lines = [line for line in lines if line]
    for rule, pattern in _lines().items():
        telling = [line for line in lines if len(line) <= SHORT and pattern.fullmatch(line)]
        if telling and len(telling) * 2 >= len(lines):
            return Exclusion(rule, _REASONS[rule], telling[0][:80])
    if len(text.strip()) <= SHORT:
        for rule, pattern in _sentences().items():
            match = pattern.search(text)
            if match:
                return Exclusion(rule, _REASONS[rule], match[0].strip()[:80])
    return None


@cache
def _lines() -> dict[str, re.Pattern[str]]:
    """Compiled when the first text comes, not when this is imported."""
    return {rule: re.compile(_any(patterns)) for rule, patterns in _LINES.items()}


@cache
def _sentences() -> dict[str, re.Pattern[str]]:
    flags = re.IGNORECASE | re.MULTILINE
    return {rule: re.compile(_any(patterns), flags) for rule, patterns in _SENTENCES.items()}


def _any(patterns: tuple[str, ...]) -> str:
    return "|".join(f"(?:{pattern})" for pattern in patterns)
