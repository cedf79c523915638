"""How lines of NOTES.md are read: what each is about, whether a blocker still stands, which task an objective names.

Everything that reads NOTES.md asks here: resume, the audit, pruning. Pure functions of text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Literal, NamedTuple

from ..documents.document import TASKS, slug

Standing = Literal["none", "resolved", "unclear", "open"]

_NAMES = r"objectives?|goals?|tasks?|blockers?|blocked|risks?|phases?|phase boundary|pending|next"
_WAITING = r"(?:blocked|waiting|waits|stuck)\ (?:by|for|on|until|because)"
_ITEM = re.compile(
    r"(?P<indent>[\s>]*)(?P<mark>[-*+•]|\d{1,3}[.)])?(?(mark)\s+)(?:\[(?P<box>[ xX])\]\s*)?(?P<text>.*)"
)
_STRUCK = re.compile(r"~~(.*)~~\W*")
_FIELD = re.compile(
    rf"(?i)[*_]*(?:(?:active|current|open|unresolved)\ )?(?P<name>{_NAMES}|{_WAITING})(?:\ (?:and|&)\ \w+)?[*_]*"
    r"\s*(?:\([^():]*\)\s*)?(?:[:：]|[—–]|-\s)[*_]*\s*(?P<text>.*)"
)
_LABEL = re.compile(rf"(?i)[*_]{{2,3}}(?P<name>{_NAMES})[*_]{{2,3}}(?P<text>)")
_WAITS = re.compile(
    rf"(?i)(?:(?:we|I|it|this)(?:\ is|\ are|\ am|['’](?:re|m|s))?\ )?(?:still\ |currently\ )?{_WAITING}\b"
)
_HEADING = re.compile(rf"(?i)\s*#+\s*(?:(?:active|current|open|unresolved) )?(?P<name>{_NAMES})\b")

_PART = re.compile(r"[—–:;,()\[\]|\"“”`]|\s-\s|\bphase\b", re.IGNORECASE)

_ENDED = r"(?:resolved|fixed|solved|unblocked|done|closed)"
_WHEN = (
    r"(?:\s(?:(?:on|by|in|since|at|with|as\ of|today|yesterday|now|already|this|last)\b|\d|(?:mon|tues|wednes|thurs|fri"
    r"|satur|sun)day\b).*)?"
)
_MARKED = re.compile(
    r"(?ix) ^~~.*~~\W*$ | ^\[x\] | ^[✅✔☑] | [✅✔☑]\W*$"
    rf"| [(\[] (?:is\ |now\ |already\ )? {_ENDED}\b [^()\[\]]* [)\]]\W*$"
    rf"| (?:\s[—–-]+|[:,])\s* (?:now\ |already\ )? {_ENDED} {_WHEN} [.!]?$"
    rf"| \b(?:is|was|been)\ (?:now|already)\ (?:resolved|solved|unblocked) {_WHEN} [.!]?$"
    r"| ^(?:resolved|unblocked)\b\s*:"
)
_HINTED = re.compile(r"(?i)\b(?:resolved|fixed|solved|unblocked|no longer)\b|~~")
_CONDITION = re.compile(rf"(?i)\b{_ENDED} (?:if|once|when|after|as soon as|unless|until|pending)\b")
_NOT_YET = re.compile(
    r"(?i)\b(?:not|never|until|once|when|if|unless|before|should|must|cannot|to be|\w+n['’]t)\b"
)
_ALMOST = re.compile(r"(?i)\b(?:partly|partially|almost|nearly|mostly|half)\b")

_THINGS = r"(?:blockers?|blocks?|risks?|issues?|problems?|impediments?|concerns?)"
_FOR_NOW = (
    r"so\ far|for\ now|for\ the\ moment|at\ the\ moment|at\ present|at\ this\ (?:point|time)|right\ now|now|yet|today"
    r"|currently|presently|known|left|remaining|open|any\ ?more|any\ longer|here|to\ report"
    r"|(?:that\ )?(?:I|we)\ know\ of|(?:is|are)\ (?:known|open|left)|blocks?\ (?:us|me|it|this)"
)
_NONE = re.compile(
    r"(?ix) (?:currently\ |still\ )?"
    r"(?: none | nothing | nil | n/?a | not\ (?:currently\ )?blocked | unblocked | all\ (?:clear|good|fine) | clear"
    r"  | (?:there\ are\ )? no (?:\ (?:open|known|current|more|further|other|new|remaining|real|active))*"
    rf"   (?:\ {_THINGS})? | false) (?:\ (?:{_FOR_NOW})){{0,3}} (?:\ (?:as\ of|since)\ [^,;.(]*)?"
    r"\s* (?P<rest>[(\[,.:!—–-].*)?"
)
"""That there is nothing, and perhaps what is said about it."""
_EXCEPT = re.compile(
    r"(?i)\b(?:except|but|only|besides|apart|other than|until|unless|once|if|however|though|although|still"
    r"|wait(?:s|ing)?|blocked|needs?|pending|missing|down|broken)\b"
)


class NoteLine(NamedTuple):
    """A line of NOTES.md and what it is about."""

    number: int
    text: str
    role: str
    """objective, blocker, phase, pending or ""."""
    says: str
    """What it says, without the bullet and the name of its field."""
    ticked: bool = False
    """Whether it is ticked off or struck through."""

    @property
    def parts(self) -> list[str]:
        """What it says, one by one."""
        parts = [part.strip() for part in self.says.split(";")]
        return [part for part in parts if part]


_ROLES = {
    "objective": "objective", "goal": "objective", "task": "objective", "blocker": "blocker", "risk": "blocker",
}  # fmt: skip


def note_lines(text: str) -> Iterator[NoteLine]:
    """The lines of NOTES.md. What stands under a heading, or as bullets below a field without text, is about that."""
    role, above = "", ("", 0)
    for number, line in enumerate(text.splitlines(), 1):
        heading = _HEADING.match(line)
        if heading or line.lstrip().startswith("#"):
            role, above = (_role(heading["name"]) if heading else ""), ("", 0)
            yield NoteLine(number, line, "", "")
            continue
        item = _ITEM.fullmatch(line)
        assert item is not None  # every line is one
        struck = _STRUCK.fullmatch(item["text"].strip())
        says = struck[1] if struck else item["text"].strip()
        ticked = bool(struck) or (item["box"] or "").lower() == "x"
        depth = len(item["indent"]) + bool(item["mark"])
        if field := _FIELD.fullmatch(says) or _LABEL.fullmatch(says):
            says = field["text"].strip()
            yield NoteLine(number, line, _role(field["name"]), says, ticked)
            above = ("", 0) if says else (_role(field["name"]), depth)
        elif _WAITS.match(says):
            yield NoteLine(number, line, "blocker", says, ticked)
        else:
            below = bool(item["mark"]) and depth > above[1]
            above = above if below or not says else ("", 0)
            yield NoteLine(number, line, ((below and above[0]) or role) if says else "", says, ticked)


def _role(name: str) -> str:
    name = name.lower()
    if re.fullmatch(f"(?x:{_WAITING})|blocked", name):
        return "blocker"
    name = name.removesuffix("s")
    return _ROLES.get(name, "phase" if name.startswith("phase") else "pending")


# blockers


def standing(says: str, ticked: bool = False) -> Standing:
    """Whether something that blocks a task, or is pending, still stands: that there is none, that it is resolved, that
    a person has to look, or that it is open. A question, a condition, and what is resolved in part are unclear."""
    words = says.strip(" \t*_`~.!?,…()-–—")
    none = _NONE.fullmatch(words) if words else None
    if not words or (none and not _EXCEPT.search(none["rest"] or "")):
        return "unclear" if "?" in says else "none"
    if ticked:
        return "resolved"
    marked, hinted = _MARKED.search(says), _HINTED.search(says)
    if _CONDITION.search(says) or ("?" in says and (marked or hinted)):
        return "unclear"
    if (marked or hinted) and not _NOT_YET.search(says):
        return "resolved" if marked and not _ALMOST.search(says) else "unclear"
    return "open"


def open_blockers(text: str, over: Collection[str] = ()) -> list[str]:
    """The blockers that notes name and that stand, or may stand, each as it is written. `over` are the folders of tasks
    that are over: what waits for one of them is resolved."""
    found = list[str]()
    for line in note_lines(text):
        if line.role == "blocker":
            parts = [
                part
                for part in line.parts
                if standing(part, line.ticked) in ("open", "unclear") and awaited(part) not in over
            ]
            found += ["; ".join(parts)] if parts else []
    return found


_AWAITS = re.compile(
    r"(?i)^(?:we (?:are )?)?(?:still )?(?:waiting (?:for|on)|waits? (?:for|on)|blocked (?:by|on)|depends? on|needs?)"
    r":? (?:the )?(?:task )?"
)
_LANDS = re.compile(r"(?i)(?: to (?:land|finish|be (?:done|finished|merged|completed))| task)?[.!]?$")


def awaited(part: str) -> str:
    """The name that the folder of the task has which a blocker waits for, if it waits for a task."""
    waits_for = _LANDS.sub("", _AWAITS.sub("", part))
    return folder_of(waits_for.removeprefix(TASKS).strip("`'\"/ "))


# naming tasks


def folder_of(title: str) -> str:
    """The name of the folder of a task with this title, or ""."""
    return slug(title) if any(sign.isalnum() for sign in title) else ""


def folder_names(says: str) -> list[str]:
    """The names that the folder of an objective may have: of its whole text, of what stands before its phase, or the
    folder that it names."""
    first, *others = [part.strip() for part in _PART.split(says) if part.strip()] or [""]
    folders = [part.removeprefix(TASKS).strip("/") for part in others if part.startswith(TASKS)]
    whole = says.lower().partition("phase")[0].strip(" ,;:(—–-")  # a title may have marks of its own
    names = [folder_of(name) for name in (says, whole, first.removeprefix(TASKS).strip("/"), *folders)]
    return [name for name in dict.fromkeys(names) if name]


def named_tasks(says: str, tasks: Collection[str]) -> list[str]:
    """The tasks of these that an objective is."""
    return [name for name in folder_names(says) if name in tasks]


def objective_line(text: str) -> NoteLine | None:
    """The line of the notes that names the objective, if there is one."""
    return next((line for line in note_lines(text) if line.role == "objective" and line.says), None)


def objective_of(text: str) -> str:
    """The name that the folder of the active objective has, or would have; "" if the notes name none."""
    line = objective_line(text)
    firsts = (part for part in _PART.split(line.says if line else "") if part.strip())
    return folder_of(next(firsts, "").strip().removeprefix(TASKS).strip("/"))


def names_task(says: str, task: str, tasks: Collection[str] = ()) -> bool:
    """Whether an objective is this task and no other one of `tasks`: by its folder, or because all its words are words
    of the task's title. One that says more than the title may be another task."""
    named = named_tasks(says, {slug(task), *tasks})
    if named or phased_title(says):
        return slug(task) in named
    own = _words(says.lower().partition("phase")[0])
    return bool(own) and own <= _words(task)


def other_task(text: str, task: str, tasks: Collection[str]) -> str:
    """The task that the objective of the notes is, if it is another than `task`: one of `tasks`, or one that is named
    as the end of a phase does it."""
    line = objective_line(text)
    if line is None or names_task(line.says, task, tasks):
        return ""
    return phased_title(line.says) or next(iter(named_tasks(line.says, tasks)), "")


def phased_title(says: str) -> str:
    """The title of the task in an objective that is written as the end of a phase does; "" if it is not."""
    title, phased, rest = says.rpartition("(phase: ")
    return title.strip() if phased and rest.rstrip().endswith(")") else ""


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))
