"""What durable memory does not take in: what the repository, its history or the running task already tell.

A text is weighed, not matched. Cues speak for one of three classes or for keeping, each once however often it
occurs, and a class has to outweigh keeping clearly, the more so the longer the text is. So `never commit to main`
is a rule that mentions git, and `grace committed it on Monday` is history. Long texts are weighed in pieces of a
few sentences and refused only when most of the pieces are: one line of a log does not spoil a procedure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

CODE, GIT, TASK = "derivable_code_state", "git_history", "ephemeral_task_state"
KEEP = "keep"

PIECE = 240
"""From this length on a piece of text is closed at the next end of a sentence or line."""

_REASONS = {
    CODE: "This describes code or files, which can be read again in the repository itself",
    GIT: "This is history that the version control keeps",
    TASK: "This is the state of a task under way, which belongs in the session's or the task's own notes",
}


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Why a text is not kept: its class in `rule`, a sentence in `reason`, in `evidence` the words that decided."""

    rule: str
    reason: str
    evidence: str


def excluded(text: str) -> Exclusion | None:
    """The class of things not worth keeping that a text belongs to, or None: keep it.

    The same text gets the same answer always; an empty one is kept. The time taken is linear in the length.
    """
    pieces = [_weighed(piece) for piece in _pieces(text)]
    refused = [piece for piece in pieces if piece]
    if not refused or len(refused) * 2 < len(pieces):
        return None
    rule = Counter(rule for rule, _ in refused).most_common(1)[0][0]
    evidence = next(words for one, words in refused if one == rule)
    return Exclusion(
        rule, f"{_REASONS[rule]}; if it is worth keeping all the same, say why in `override`.", evidence
    )


def _pieces(text: str) -> Iterator[str]:
    """A text in pieces of a few sentences or lines, none longer than twice PIECE however the text is built."""
    held = ""
    for sentence in _compiled(r"(?<=[.!?;]\s)|(?<=\n)").split(text):
        for start in range(0, len(sentence), PIECE):
            held += sentence[start : start + PIECE]
            if len(held) >= PIECE:
                yield held
                held = ""
    if held.strip():
        yield held


def _weighed(piece: str) -> tuple[str, str] | None:
    """The class that one piece belongs to and the words that speak for it, or None."""
    weights = {
        rule: [
            (weight + more * (len(found) > 1), found)
            for weight, more, cue in cues
            if (found := _found(cue, piece))
        ]
        for rule, cues in _CUES.items()
    }
    totals = {rule: sum(weight for weight, _ in cues) for rule, cues in weights.items()}
    rule = max((GIT, TASK, CODE), key=totals.__getitem__)
    # Weak cues alone are what any text has; one of them has to be telling.
    if totals[rule] - totals[KEEP] < _enough(rule, piece) or max(weight for weight, _ in weights[rule]) < 1:
        return None
    return rule, ", ".join(
        dict.fromkeys(word for weight, words in weights[rule] if weight > 0 for word in words)
    )


def _enough(rule: str, piece: str) -> float:
    """By how much a class has to outweigh keeping: long pieces collect cues by chance."""
    length = len(piece.strip())
    return 2 if length >= 75 else 1.5 if length >= 45 or rule == CODE else 1


def _found(cue: str, piece: str) -> list[str]:
    """The first two different places where a cue occurs."""
    found: list[str] = []
    for match in _compiled(cue).finditer(piece):
        words = " ".join(match[0].split())
        if words.lower() not in (one.lower() for one in found):
            found.append(words)
        if len(found) == 2:
            break
    return found


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.MULTILINE | re.IGNORECASE)


# --- the cues: (weight, what a second and different place adds, pattern); (?-i:…) where case matters

_EXTENSION = (
    r"(?:pyi?|ipynb|[cm]?[jt]sx?|json|ya?ml|toml|md|rst|txt|sql|lock|s?css|html|vue|svelte|rb|go|rs|java|kts?|php|sh|proto|prisma|xml|"
    r"ini|cfg|conf|env|[ch](?:pp|c)?|cs|swift|scala|exs?|tf|gradle|mod|sum|csproj|lua|dart|prefab)"
)
_NUMBER = r"(?:\d[\d,.]*k?|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|several)"
_THING = (
    r"(?:functions?|subclass(?:es)?|superclass|(?:base|abstract) class|constructors?|param(?:eter)?s?|kwargs|enums?|structs?|dataclass(?:es)?|"
    r"decorators?|fixtures?|source (?:file|tree|code)s?|entry ?points?|middleware|monorepo|[gs]etters?|typedefs?|type (?:alias|hint)e?s?|"
    r"unit tests?|test (?:file|case)s?|mixins?|config(?:uration)? files?|(?:global|environment|env) var(?:iable)?s?|unused imports?|"
    r"(?:foreign|primary) key|singleton|(?:one|many)-to-many|regex|lines of code|docstrings?|return (?:type|value)s?|overloads?|props?|"
    r"reducers?|serializers?|subdirector(?:y|ies)|(?:while|for|main) loop|default value|json schema|todo comment|(?:project|directory|folder|file|class) (?:structure|layout|tree|hierarchy|diagram)|inheritance|subcommands?|type of (?:`|\w+\.\w))"
)
_PART = (
    r"(?:files?|folders?|director(?:y|ies)|endpoints?|routes|router|migrations?|repo(?:sitory)?|test suite|methods|scripts|dependenc(?:y|ies)|"
    r"workflows?|components?|hooks?|helpers?|controllers?|arguments?|variables?|constants?|attributes?|macros?|traits?|signature|"
    r"implementations?|tuples?|handlers?|plugins?|imports?|schema|wrappers?|adapters?|annotations?|namespaces?|interfaces?|config|database)"
)
_MAYBE_PART = (
    r"(?:tables?|columns?|fields?|models?|services?|script|targets?|sections?|jobs?|packages?|lines?|tests?|stages?|method|route|"
    r"class(?:es)?|modules?|propert(?:y|ies)|inputs?|views?|templates?|factory|loops?|keys|code)"
)
_TRUNK = r"(?-i:main|master|develop|trunk|dev)"
_WEEKDAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_WORK = (
    r"(?:tests?|test_\w+|builds?|suite|ci|pipeline|checks?|deploy(?:ment)?|lint(?:er)?|job|script|server|container|(?:sub)?agents?|task|subtask|"
    r"migration|import|run|process|workers?|iteration|step|phase|query|download|upload|mypy|pytest|types|install|loop|session|api|modal|"
    r"page|endpoint|bug|fix|refactor(?:ing)?|patch|ticket|issue|pr|draft|slides?|report|section|chapter|plan|simulation|command)"
)
_STATUS = (
    r"(?:pass(?:ed|ing|es)?|fail(?:ed|ing|ures?)?|green|red|running|done|finished|completed?|pending|blocked|stuck|started|idle|busy|hanging|"
    r"timed out|succeeded|skipped|paused|broken|clean|\w*starting|crashed|waiting|stopped|still going|hung|ok|worked|returned|approved|"
    r"in review|on hold|queued|retrying|missing|misaligned|responds|migrated|resolved|unresolved|ready|drafted|processed|stalled|"
    r"translated|collected|cleared|interrupted|incomplete|unfinished|outstanding|healthy|underway|saved|in progress)"
)
_DID = (
    r"(?:re)?ran|fixed|refactored|implemented|renamed|restarted|installed|killed|skipped|checked|verified|commented out|rebuilt|patched|"
    r"debugged|tested|updated|removed|deployed|rolled back|reproduced|converted|parsed|loaded|retried|looked|tried|paused|spawned|"
    r"kicked off|queued|launched|triggered|uploaded|downloaded|found|got|saved|cleared|stopped|resumed|switched|searched|grepped|"
    r"confirmed|done|applied|regenerated|left off|spent"
)
_DOING = (
    r"waiting|running|checking|retrying|debugging|investigating|fixing|editing|downloading|uploading|compiling|installing|pausing|resuming|"
    r"refactoring|verifying|re-?running|implementing|deploying|testing|working|looking|trying|opening|starting|stopping|comparing|calling|"
    r"searching|continuing|polishing|adding|updating|removing|reviewing|switching|processing|generating|collecting|writing a|asking|"
    r"moving on|reading (?:through|the|chapter)|polling|monitoring|tailing|profiling|drafting|exploring|digging|chasing|triaging|"
    r"cleaning up|wrapping up|syncing|pulling|fetching|parsing|indexing|loading|scanning|converting|translating|summari[sz]ing|"
    r"formatting|validating|reproducing|rewriting|preparing|rebuilding|migrating|iterating|finishing"
)

_Cues = tuple[tuple[float, float, str], ...]

_CODE: _Cues = (
    # source code, listings, signatures, settings
    (
        3,
        0,
        r"^\s*(?-i:(?:async )?def \w+\(|class \w+(?:\(|:$| extends| implements)|from [\w.]+ import |import [\w.]+(?: as \w+)?;?$"
        r"|import .{0,80} from ['\"]|(?:export )?(?:default )?(?:const|let|var|function|interface|struct|enum|type) \w+ ?[={(<:]"
        r"|(?:pub )?fn \w+|func \w+\(|#include|SELECT .{1,200} FROM |CREATE TABLE|(?:public|private) (?:static|class|void) |if __name__|for \()"
        r"|[├└]──|^[d-](?:[r-][w-][x-]){3}",
    ),
    (
        2,
        0,
        r"\w\([\w, :=*.|\[\]'\"]{0,200}\) ?[-=]> ?\w|\(\w+: ?\w+[,)]|: (?-i:string|number|boolean|Int|String)\b|\w [&|] \{|[;}]\s*\};?$|\w\(\w+, \w+\)",
    ),
    (1, 0, r"\b[a-z_][\w.]*`? ?[=:]=? ?(?:\d[\w.]*|['\"\[{]|true\b|false\b|null\b|none\b)|[\w-]+[=>]=\d"),
    (1, 0, r"\w`? ?(?:->|→|=>|<-) ?`?[a-z]"),
    # files, folders, symbols
    (
        1.5,
        0.5,
        rf"(?<![\w/~.])(?!/)[\w()./*-]{{0,80}}[\w*]\.{_EXTENSION}\b(?![\w/])|(?<!\S)\.(?:env|github|git|\w+rc)\b[\w./]*"
        r"|(?-i:\b(?:Dockerfile|Makefile|README|CHANGELOG|Gemfile|Procfile|Jenkinsfile|pyproject|docker-compose|lockfile)\b)",
    ),
    (
        1,
        1,
        r"(?<![\w/~.:])[\w.-]+/(?=[\s,.;:)]|$)|\b(?:src|lib|app|tests?|docs|packages|cmd|internal|pkg|services|sql|db)/[\w*]+",
    ),
    (
        1,
        0.5,
        r"(?-i:\b(?!GitHub|GitLab|JavaScript|TypeScript|YouTube|LinkedIn|PagerDuty|MacBook|WhatsApp|PowerPoint|SharePoint|eSports|LeBron)"
        r"(?:[a-z]+_[a-z_]+|[a-z]+[A-Z]\w+|[A-Z][a-z]+(?:[A-Z][a-z]+)+|[A-Z]+_[A-Z_]+)\b|`[\w.]+`|\b\w+\(\)|\b[A-Z]\w+[.#][a-z]\w+|\b[A-Z]\w+<\w+>|"
        rf"\b[a-z]{{2,}}\.(?!(?:com|org|io|internal|eu|net)\b|{_EXTENSION}\b)[a-z_]{{2,}}\b(?![.@]))",
    ),
    (0.5, 0, r"\b\w+\(\)|(?-i:\b[A-Z]\w+[.#][a-z]\w+)|(?<!\w)@\w+_\w+"),
    (1, 0, r"\blines? \d+|\bL\d+\b"),
    # what code is made of, and how it hangs together
    (1, 0.5, rf"\b{_THING}\b"),
    (0.5, 0.5, rf"\b(?:{_PART}|{_MAYBE_PART})\b"),
    (1, 0, rf"\b{_NUMBER}[ -](?:\w+ )?(?:{_THING}|{_PART})\b"),
    (0.5, 0, rf"\b{_NUMBER}[ -](?:\w+ )?{_MAYBE_PART}\b"),
    (1, 0, rf"\b(?:{_THING}|{_PART}|{_MAYBE_PART})\b[^.:\n]{{0,40}}: [\w.`/-]+(?:, [\w.`/ -]+)+$"),
    (
        1,
        0,
        r"\b(?:(?:is|are|was|were) (?:defined|declared|implemented|located|instantiated|initiali[sz]ed|invoked|mapped|typed|structured|called (?:by|from|in)|"
        r"handled|used in|found in|named|marked|stored|wrapped|deprecated|generated|exported|imported|registered|mounted|set)|declared|"
        r"imports?(?= \w)|exports (?=\w+,|\w+ and|an? |the )|extends|inherits|implements|subclasses|overrides|returns|yields|accepts|invokes|"
        r"delegates|wraps|raises|throws|catches|pins|declares|lives? (?:in|under|next)|resides?|sits in|set to|equals|defaults to|"
        r"consists of|contains|comprises|defines|defined in|depends on|hierarchy|parent of|belongs to|has many|re-exports|according to|renders|registers|dispatches|instantiates|specifies|"
        r"exposes|references|configures|applies|maps|definition|located|creates|module graph|the codebase is)\b",
    ),
    (
        0.5,
        0,
        r"\b(?:has|have|includes?|uses|takes|calls|lists|requires|expects|receives|emits|handles|parses|writes|loads|holds?|reads|points? to|sets|"
        r"assigns|enables|disables|says|there (?:is|are)|there's|(?:is|are) (?:in|at|under|an?|the|\d+|uuid|number|string)|resolves|enabled|"
        r"async|optional|kept in|is (?:true|false)|can be|as an?|describes|stores|keeps)\b",
    ),
)

_GIT: _Cues = (
    # messages, trailers, diffs, hashes, numbers of requests
    (
        3,
        0,
        r"(?:^|commit message: )(?-i:feat|fix|docs|chore|refactor|test|style|perf|build|ci|revert)(?:\([\w ,./-]+\)!?: |!?: (?-i:[a-z]))",
    ),
    (
        3,
        0,
        r"^diff --git|^(?:---|\+\+\+) [ab]/|^@@ |^author: |^(?:co-authored|signed-off|reviewed)-by:|^merge (?:branch|pull|remote)|^revert |"
        r"\binitial commit\b|stash@\{|(?-i:\bHEAD\b)|^(?:closes|fixes|refs) #\d|\(#\d+\)|^(?:fixup|squash)! |\binsertions?\(\+\)|\b(?:un)?staged changes",
    ),
    (
        2,
        0,
        r"(?-i:\b(?=[0-9a-f]{0,39}\d)(?=[0-9a-f]{0,39}[a-f])[0-9a-f]{7,40}\b)|\br(?:evision )?\d{3,}\b|\bchanged \d+ files|\+\d+ [-−]\d+\b|"
        r"\b(?:PRs?|MRs?|pull requests?|merge requests?) ?[#!]?\d+|(?<!\w)[#!]\d{2,}\b",
    ),
    (
        1.5,
        0,
        r"^(?:add|fix|update|remove|refactor|rename|improve|implement|handle|support|drop|extract|replace|introduce|clean up|move|switch) [^.:,]{3,60}$",
    ),
    # what there is
    (
        1.5,
        0.5,
        r"\b(?:commits?|committers?|uncommitted|unstaged|unpushed|unmerged|pull requests?|merge requests?|merges|merge (?:to|into|of|commit)|changesets?|"
        r"working tree|worktree|patchsets?|force.push|untracked|merge conflicts?|submodule|bisect|fast-forward|diff between|checked out branch|"
        r"cherry-pick(?:ed)?|git (?!lfs|hooks?|repo|clone|submodule)[a-z-]+|commit (?:message)?.{0,20}(?:: ?)?['\"“]|(?:per|in|to) git|git@\S+|"
        r"author of .{0,30}(?:changes|code|module)|(?:origin|upstream)/\w+)\b",
    ),
    (1, 0, r"\b(?:branch(?:es)?|tags?|(?-i:PRs?|MRs?)|revisions?|forks?|upstream|the remote)\b|\brelease \d"),
    (1, 0, rf"\b(?:(?:in)?to|onto|from|behind|with|on|between) {_TRUNK}\b(?! (?-i:[a-z]))|-> {_TRUNK}\b"),
    (
        1,
        0,
        r"\b(?:feature|feat|fix|bugfix|hotfix|release|chore|spike|origin|upstream)[/-][\w.-]+|\b(?:branch|tag)\w* ?\w*: |"
        r"\b(?:unmerged|stale|remote|current|hotfix|feature) branch|\bbranch \w+[/-]\w",
    ),
    (1, 0.5, r"\bv\d+(?:\.\d+)+\b|\b\d+\.\d+\.\d+\b(?!\.)"),
    (0.5, 0, rf"\b{_NUMBER} (?:\w+ )?(?:commits|tags|revisions|PRs|merges|branches|authors|contributors)\b"),
    # what was done, when, by whom
    (
        1,
        0,
        r"\b(?:merged|committed(?! to| \d| suicide| a (?:crime|murder|sin|mistake))|forked|force-pushed|pushed (?:to|a fix|\d|two|three|it|tag|the \w+ (?:fix|branch|tag))|(?:was|were) pushed|rebased|reverted|squash(?:ed|-merged)|"
        r"backported|tagged|authored|landed|bump(?:ed)?|rolled back|diverged|initial import)\b",
    ),
    (
        1,
        0,
        r"^(?:merged|committed|pushed|rebased|reverted|squashed|backported|tagged|bump(?:ed)?|created branch)\b",
    ),
    (
        0.5,
        0,
        r"\b(?:was|were|has been|have been|opened|closed|created|deleted|approved|introduced|modified|touched|changed|cut from|points? to|pinned|"
        r"went in|rewrote|removed|added|ahead|behind \w+ by|released|happened|history|dates from|got|lost)\b",
    ),
    (0.5, 0, r"\b(?:last|latest|previous|recent|newest|most|shows?|reads|says|old)\b"),
    (
        0.5,
        0,
        r"\b(?:fix|hotfix|patch|refactoring|rewrite|feature|typo|readme|history|log|author(?:ed)?|in draft)\b",
    ),
    (
        0.5,
        0,
        rf"\b(?:yesterday|today|(?:hours?|days?|weeks?) ago|last (?:{_WEEKDAY}|week|month|night|year)|this (?:week|morning|month)|on (?:\d|{_WEEKDAY})|"
        r"(?:on|in) (?-i:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\w*|by (?-i:[A-Z])\w+|by (?=\w+$))\b|^\d{4}-\d\d-\d\d",
    ),
    (
        -1.5,
        0,
        r"^(?:\w+ ){0,2}(?:commits|commit messages|pull requests|PRs|branches|merges|releases|hotfixes) (?!(?:\w+ ){0,2}(?:today|yesterday))(?:\w+ ){0,5}?"
        r"(?:are|need|get|go|start|have|use|follow|carry|live|stay)\b",
    ),
    (
        -1,
        0,
        r"\b(?:default branch|branch of|bank|office|library|olive|family|price|name|compan(?:y|ies)|firm|staff|city)\b",
    ),
)

_TASK: _Cues = (
    # now
    (
        1.5,
        0,
        r"\b(?:right now|at the moment|so far|for (?:now|the moment|the time being)|just now|as of (?:now|this|\d+)|at (?:this point|present)|as we speak|"
        r"in the meantime|in a (?:bit|moment)|eod|end of day|earlier today|since this morning|later today|next time:|continue (?:here|with)|"
        r"left to \w+|(?:this|last|current|the next) (?:session|run|turn|iteration|context|tool call|conversation|chat|thread|request|time|calculation|"
        r"test|query|round|command|call|output|response|attempt|step|error|task|goal|subgoal|file|state|status|focus|action)|"
        r"no (?:result|reply|response)|without success|not (?:answered|started|trained|finished|run)|(?:minutes?|moment|seconds?|hours?) (?:left|ago)|"
        r"in (?:\d+|ten|five|a few) (?:s|min|minutes|seconds|hours?))\b",
    ),
    (1, 0, r"\b(?:still|yet|again|already|current)\b"),
    (
        1,
        0,
        r"\b(?:currently|now|today|tonight|tomorrow|this (?:morning|afternoon|evening)|later|just|(?:after|before) (?:lunch|the meeting|dinner|the break)|"
        r"in an hour|temporar(?:il)?y|ongoing|meanwhile|in the background|shortly|overnight|afterwards|(?:dinner|lunch|coffee) break|"
        r"once the \w+ \w+s|stopping here)\b",
    ),
    # the voice of a work log: no subject, or the worker itself
    (
        1,
        0,
        r"^(?:ok,? |now |currently |still |also )?\w{2,}(?<!morn)(?<!even)ing (?:on|for|the|an?|to|at|with|through|up|this|that|it|my|our|all|[\w/]+\.\w+|here|approach|off)\b"
        r"(?!.*\b(?:is|are|was|were|requires?|takes?|needs?|must|should|can|breaks?|causes?|fails|does)\b)",
    ),
    (1, 0, rf"(?:^|[,;.:] |\bi'm |\bam |\bcurrently |\bnow |\bstill )(?:{_DOING})\b(?!.*\b(?:is|are) not\b)"),
    (1, 0, r"^(?!.*ing,).{3,80}[,;] (?:now )?\w{3,}ing(?: it| that| them| now| again| next)?\.?$"),
    (1, 0, r"\b(?:agent|assistant|model|bot|script|server|job|container|user) is (?:now |still )?\w+ing\b"),
    (1.5, 0, rf"^(?:just |already |i've |ok,? )?(?:{_DID})\b"),
    (
        1,
        0,
        rf"(?:^|[,;:] )(?:just |already |i've |then )?(?:{_DID}|started|finished|wrote|asked|opened|completed|added|created|read)\b",
    ),
    (
        1.5,
        0,
        r"^(?:let me|let's|need to|have to|going to|about to|will|trying to|maybe try|want to|next,? i(?:'ll| will))(?! (?:not|never|always|know|be|do|there)\b) \w+|"
        r"(?:[.;,] |\bi |\bthen |\bnext )(?:i |i'm )?(?:will|need to|have to|let me|about to|going to) (?:\w+ )|\bi'll (?!be\b|keep\b|have\b|never\b)\w+",
    ),
    (
        1,
        0,
        r"\b(?:moving on|picking up|went on|try(?:ing)? again|start(?:ed|ing) over|come back to|resume|hand(?:ing|ed) (?:off|over)|asked me|about to|in the middle of|tak(?:e|ing) a (?:short )?break|is next|took over|to be continued|will now|plans to|almost|nearly|"
        r"ha(?:s|ve) (?:just|now|already|not)|i (?:re)?ran|back at|both times|on to)\b",
    ),
    (
        1,
        0,
        r"\buser (?:just |has |hasn't |has not )?(?:said|asked|confirmed|replied|answered|approved|typed|to confirm|is \w+ing|went)",
    ),
    # how far it is
    (
        2,
        0,
        r"\d ?(?:%|percent) (?:done|complete|finished|through|of the)|\b(?:at|currently|now) \d+ ?(?:%|percent)|\bhalf(?:way)? (?:done|finished|through)|\b\d+/\d+\b|"
        r"\b\d+ (?:out )?of (?:the |\w+ )?\d+\b|\bprogress: ",
    ),
    (
        1.5,
        0,
        r"\b(?:step|iteration|attempt|retry|epoch|phase|turn|build|run|job|task|subtask|round|pid|ticket|loop|record|draft|batch|exit code) #?(?:\d[\d,]*|[A-Z]+-\d+)\b",
    ),
    (
        1,
        0,
        r"\b(?:first|second|third|\d(?:st|nd|rd|th)|last|next) (?:attempt|try|one|half|round|pass|run)\b|\bto go\b|\bremaining\b|\bmore (?:files|tests|sources|items)\b|\bnext[.,]|\bdown from\b|"
        r"\bthe rest\b|, then .{1,40}, then |\btook \d|\bcount: \d|\belapsed\b|\btime: \d",
    ),
    (
        2,
        0,
        r"\b\d[\d,]* (?:\w+ )?(?:passed|failed|failing|failures?|errors?|warnings?|skipped|match(?:es|ed)|results|hits|rejected|candidates|ok)\b|\bloss \d|without errors",
    ),
    (1, 0, rf"\b{_WORK}\b.{{0,30}}?\b{_STATUS}\b"),
    (0.5, 0.5, rf"\b{_STATUS}\b"),
    (
        0.5,
        0,
        rf"\b(?:{_WORK}|tool|output|context|tokens?|checkpoint|queue|debug(?:ging)?|logs?|tasks|cursor|results?|request|docs|coverage|question|file|imports|"
        r"buffer|clipboard|terminal|tab|prompt|placeholder|handoff|blockers?|answer|paragraph|stack trace|screenshot|benchmarks?|workaround|hypothesis)\b",
    ),
    (
        0.5,
        0,
        r"\b(?:no (?:change|findings|luck)|nothing|not found|permission denied|connection refused|came back|went to)\b",
    ),
    (0.5, 0, r"\b\d{1,2}:\d\d(?::\d\d)?\b|\b\d+ ?m(?:in)? ?\d+ ?s\b|\b\d+ ?ms\b"),
    # notes, logs, scratch
    (1, 0, r"(?-i:\b[A-Z]\w+(?:Error|Exception)\b)|\berror: "),
    (
        2,
        0,
        r"^\[?(?:\d{4}-\d\d-\d\d[T ])?\d\d:\d\d(?::\d\d|\b)|(?-i:\b(?:INFO|WARN|ERROR)\b)|\b(?:status|pid|uptime|state|elapsed)=",
    ),
    (
        2,
        0,
        r"(?-i:\bTODO\b)(?! comment)|^todo\b|\bgoes on\b|\bnext (?:steps?|up)\b|(?-i:\bETA\b)|^scratch\w*|^wip\b|\bin progress\b|\breminder to self\b|\bstandup\b|\btest entry\b",
    ),
    (
        1.5,
        0,
        r"^(?:today|tomorrow|now|tonight|this \w+|later|current|recent changes|status|progress|reminder|remaining|in progress|plan for|(?:my |the )?"
        r"(?:plan|idea|guess|theory|goal)|next|results?|notes? for this|session \d|done|hypothesis|observation|thought|action|pending|open questions?)\b.{0,25}:",
    ),
    (
        2,
        0,
        r"\b(?:temp(?:orary)? (?:file|variable|note|workaround)|intermediate result|partial (?:sum|result)|debug output|tool (?:call|output)|exit code|"
        r"stack trace|working directory|breakpoint|tokens (?:left|used))\b|/tmp/|^\W*\[[ x]\] |\[(?:done|todo|doing|wip)\]",
    ),
    (-1, 0, r"\b(?:19|20)\d\d\b(?!-)"),
    (
        -1.5,
        0,
        r"\b(?:you|your|hey|hi|thanks|wow|yeah|yep|love|loving|excited|amazing|awesome|feel|fun|great|cool)\b|!(?= |$)",
    ),
)

_KEEP: _Cues = (
    # rules
    (
        2,
        0,
        r"\b(?:always|never|must|shall|should(?:n't)?(?! be (?:done|finished|ready|back))|may (?:not|only|never)|not (?:allowed|wanted)|forbidden|prohibited|off limits|watch out|beware|avoid|mandatory|careful|"
        r"make sure|ensure|no new|no more than|confirm first)\b|\bonly \w+ \w+ \w+ may\b",
    ),
    (
        2,
        0,
        r"(?:^|[.;] )(?:please )?(?:do not|don't|stop \w+ing|ask|keep|use|run|set|before (?!that)|whenever|if|when|to [a-z]+\b.{0,40}[:,]|compile with|build (?:with|the)|"
        r"call|treat|explain|answer|install|split|confirm|name|prefix|lint with|reset|be|put|store|write|return|document|include|give|send|show|wrap|"
        r"leave|prefer|pass|quote|round|format|escape|convert|enable|disable|mark|tell|say|limit|assume|respect|note that|generate|start (?:\w+ ){0,2}with)(?! (?:error|count)|\w)",
    ),
    (
        1,
        0,
        r"\b(?:don't|do not|does not|cannot|can't|won't)\b|, not \w|\bnot [a-z]+ but\b|\bworse than\b|\b(?:is|are) not (?!yet|running|done|finished)",
    ),
    # preferences, people
    (
        2,
        0,
        r"\b(?:prefers?|preferred|(?:dis)?likes?|hates?|wants?|favou?rite|expects|comfortable|goes by|trusts|finds|annoyed|unhappy|tends)\b",
    ),
    (
        1,
        0,
        r"\b(?:she|he|her|his|hers|they|their|family|kids|children|wife|husband|mother|father|sister|brother|son|daughter|friends?|neighbour|patients?|tenants?|suppliers?)\b",
    ),
    # reasons, decisions
    (
        1,
        0,
        r"\b(?:because|so that|reasons?|why|due to|in order to|to avoid|otherwise|unless|until|although|since \w+ \w+ \w+)\b|, so \w+|, or (?:it|the)\b",
    ),
    (
        2,
        0,
        r"\b(?:decided|decision|chose|agreed|convention|deliberately|on purpose|by design|lessons?|mistakes?|correction|corrected|gave up|source of truth|"
        r"rather than|instead of|reviewers?|constraint|owns|owned by|follows)\b|\b(?:rules?|policy|pattern|naming|procedure|recipe|feedback|runbook|checklist)\b.{0,40}(?::|\. )",
    ),
    (
        0.5,
        0,
        r"\b(?:rule|policy|pattern|naming|procedure|instead|rejected|purpose|wrong|abandoned|considered)\b",
    ),
    # habits, limits, how things are
    (1.5, 0, r"\b(?:every(?! \d)|each)\b"),
    (
        1,
        0,
        rf"\b(?:whenever|usually|normally|by default|everywhere|at least|at most|needs?(?! to)|needed|ha(?:s|ve) to|for less than|in future|"
        rf"automatically|{_WEEKDAY}s|daily|weekly|nightly(?!-)|per (?:second|minute|month|message)|then merged|means|go(?:es)? to|go(?:es)? through)\b",
    ),
    (
        1,
        0,
        r"\b(?:takes (?:about|around|roughly|up to)|limit(?:ed)?(?: is| of| to)?|expires? after|valid for|available (?:at|on|from|only)|stands for|refers to|"
        r"is short for|known as|responsible|contact|on average|without (?:it|them|that)|is frozen|stays?|fails? (?:with|when|on|if|unless))\b",
    ),
    (
        1,
        0,
        r"\b(?:project|team|company|agents?|everyone) (?:uses|follows|targets|supports|works)\b|\bwe (?:use|keep|treat|do|call|deploy|release)\b",
    ),
    (
        0.5,
        0,
        r"\b(?:all|only|any|we|our|before \w+ing|supports?|compatible|required|important|gotcha|caveat|turns out|known issue)\b",
    ),
    # the world outside of the repository, and commands to run there
    (
        1,
        0,
        r"\bhttps?://|\b\w+\.(?:com|org|io|internal|eu|net)\b(?!/)|\blocalhost\b|\buser's?\b|(?<![\w.])~?/(?:etc|var|opt|mnt|usr|srv)/|"
        r"\b(?:production|prod|staging|(?<!\.)hosts?|cluster|bucket|vpn|vendor|customers|vault|machines?|reachable|runners?)\b",
    ),
    (
        0.5,
        0,
        r"(?-i:\b(?:Postgres|Redis|Kafka|S3|nginx|Kubernetes|Docker|AWS|GCP|Azure|Stripe|Slack|Jira|Grafana|Sentry|Vault|SQLite|MySQL|Windows|Linux|macOS|"
        r"Apple|Google|Firebase|Elasticsearch|BigQuery|Xcode)\b)|\b\d+ ?(?:GB|MB|kB|°C|euros|dollars|mg|g|km)\b",
    ),
    (2, 0, r"(?-i:`[a-z./][^`\s]* [^`]*`|^(?!git|ls|cat|tree|grep|find)[a-z]+ -)"),
    (
        1,
        0,
        r"(?-i:\b(?:docker|npm|pnpm|yarn|npx|uv|poetry|cargo|kubectl|helm|aws|gcloud|conda|pip|brew|apt|mvn|dotnet) (?:run|build|exec|install|add|test|create|apply|compose|push|pull|start|up|login|sync|publish|deploy|upgrade)\b)(?! is|\.\.)",
    ),
    (1, 0, r"^(?!.*\b(?:git|ls|cat|grep|find) ).* --?(?-i:[a-z])[\w-]*"),
)

_CUES = {CODE: _CODE, GIT: _GIT, TASK: _TASK, KEEP: _KEEP}
