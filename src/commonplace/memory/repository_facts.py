"""Facts of a repository: short, falsifiable, cited, and about more than one plan."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..errors import BadInput, shown
from ..ledger.checks import MAX_NAME, check_text

_CITED = re.compile(r"[^\s:][^\n]*?:\d+(?:-\d+)?")
_NUMBERED = r"(?i:phase|iteration|sprint|plan|task|ticket|issue)[ -]?#?\d+(?:\.\d+)*"
_MORE_NUMBERS = r"(?:(?:[/–-]|,? (?i:and|or|to) )#?\d+(?:\.\d+)*)*"
_STANDARD = r"UTF|UCS|SHA|MD|ISO|IEC|IEEE|RFC|PEP|ECMA|ES|DIN|EN|AES|RSA|HTTP|TLS|SSL|USB|CVE|CWE|GPT|COVID"
"""Letters before a hyphen and a number that name no ticket."""
_TICKET = rf"(?!(?:{_STANDARD})-)[A-Z][A-Z0-9]+-\d+(?![.-]\w)"
_FOLDER = r"plans/(?:artifacts/)?[\w./-]+"
_PLAN = rf"(?:{_NUMBERED}{_MORE_NUMBERS}|{_TICKET}|{_FOLDER})\b(?:['’]s\b)?(?: of\b(?: the\b)?)?"
_ONE_PLAN = re.compile(
    rf"(?<![\w.])(?:(?i:phase|iteration|sprint|plan|milestone)[ -]?#?\d+|{_FOLDER})\b|\b(?i:this (?:task|plan|phase))\b"
)
_MONTH = (
    r"(?i:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)\.?"
)
_YEAR = r"(?:19|20)\d\d"
_DAY = (
    rf"(?:{_YEAR}[-/]\d\d[-/]\d\d(?:T[\d:.]+Z?)?|\d\d?[./]\d\d?[./]{_YEAR}"
    rf"|\d\d? {_MONTH} {_YEAR}|{_MONTH} (?:\d\d?, )?{_YEAR})\b"
)
_JOINER = r"(?i:(?:as of|of|for|from|in|on|since|until|after|before|by|at|during|to)(?: the)? )"
_MARK = rf"\b{_JOINER}?(?<![\w.])(?:{_PLAN}|{_DAY})"
_TEMPORARY = re.compile(rf"[(\[] ?{_MARK}(?:[,;]? {_MARK})* ?[)\]]|-?{_MARK}-?")
"""A plan or a day with the preposition, the brackets or the hyphens that tie it to the rest."""
_REPEATED = re.compile(r"(?<=[,;:–-]) [,;:–-](?= )")
_OUT_OF_PLACE = re.compile(r"(?<=[(\[])[ ,;:]++|(?<![ ,;:])[ ,;:]++(?=[)\]])| (?=[,;:](?: |$))")
_SENTENCE = re.compile(r"[.!?](?:\s|$)")


def lasting_subject(subject: str) -> str:
    """A subject without plans and days, so that what is left still reads as a subject; empty if nothing is left."""
    before, left = "", subject
    while left != before:  # taking one away can bring two others together
        before, left = left, _TEMPORARY.sub(_joint, left)
        if left != before:
            left = _REPEATED.sub("", " ".join(left.split()))
            left = _trimmed(_OUT_OF_PLACE.sub("", left))
    return left


def about_one_plan(text: str) -> str:
    """The words by which a text speaks of one plan or task; "" if it does not."""
    match = _ONE_PLAN.search(text)
    return match[0] if match else ""


def _trimmed(text: str) -> str:
    """A text without separators at its ends. A hyphen that is tied to a word stays."""
    before = ""
    while text != before:
        before, text = text, text.strip(" ,;:–").removeprefix("- ").removesuffix(" -")
    return "" if text == "-" else text


def _joint(match: re.Match[str]) -> str:
    """What takes the place of a plan or day: a hyphen where hyphens tied it on both sides, else a space."""
    return "-" if match[0][0] == match[0][-1] == "-" else " "


def checked_fact(
    subject: str, fact: str, citations: Sequence[str], reason: str, category: str | None
) -> tuple[str, str, tuple[str, ...]]:
    """The parts of a fact as they are kept, plans and days stripped from its subject. Raises BadInput that lists
    everything that is wrong with it."""
    whole = " ".join(check_text("subject", subject).split())
    if len(whole) > MAX_NAME:
        raise BadInput(
            f"a subject has at most {MAX_NAME} characters, not {len(whole):,}: say the rest in the fact"
        )
    subject = lasting_subject(whole)
    fact = " ".join(check_text("fact", fact).split())
    wrong = []
    if not whole:
        wrong.append("say what it is about in subject")
    elif not subject:
        wrong.append(
            f"the subject {whole!r} names only a plan or a day: keep that in the task's folder instead"
        )
    if not fact:
        wrong.append("say what holds in fact")
    if len(_SENTENCE.findall(fact.rstrip())) > 2 or len(fact) > 500:
        wrong.append("a fact has one or two sentences: split it, or keep the rest in the task's folder")
    if not isinstance(citations, list | tuple) or not citations:
        wrong.append("cite where it can be seen, such as ['src/app.py:12']")
    else:
        bad = [place for place in citations if not _CITED.fullmatch(check_text("a citation", place))]
        wrong += [f"{shown(place)} is no citation: write file:line" for place in bad]
    if not check_text("reason", reason).strip():
        wrong.append("say in reason why it will matter later")
    if category is None:
        wrong.append("say which category it is: user, feedback, project or reference")
    if wrong:
        raise BadInput("that is not a fact of the repository: " + "; ".join(wrong))
    return subject, fact, tuple(dict.fromkeys(citations))
