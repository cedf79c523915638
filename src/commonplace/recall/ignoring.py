"""The words by which a person asks to leave memory out of a turn."""

from __future__ import annotations

import re
from functools import cache

LONGEST_INSTRUCTION = 200
"""How many characters a sentence may have that leaves memory out: more says something else, too."""


@cache
def _quoted() -> re.Pattern[str]:
    """What a text only mentions: code, quotes, and lines that are marked as quoted."""
    return re.compile(r"(?s:```.*?(?:```|\Z))|`[^`\n]*`|\"[^\"\n]*\"|“[^“”\n]*”|«[^«»\n]*»|(?m:^[ \t]*>.*$)")


_SENTENCE_END = re.compile(r"(?<=[.!?…])[\s)\]*_]+")
_BULLET = re.compile(r"^(?:[-*+•]|(?:\d{1,3}|[A-Za-z])[.)])\s+")
_LABEL = re.compile(
    r"(?:please |important )?(?:task|request|question|prompt|user|please|note|notes|important|reminder|"
    r"rules?|instructions?|constraints?)",
    re.I,
)
"""What stands before a colon and asks for nothing by itself."""


@cache
def _instruction() -> re.Pattern[str]:
    """A whole sentence, in lower case and without commas, that says to leave memory out and nothing else."""
    whose = "all|any|the|your|our|my|of|shared|long-term|past|previous|earlier|stored"
    memory = rf"(?:(?:{whose}) )*+(?:memory|memories)(?: you have)?"
    turn = "turn|time|task|one|question|request|answer|reply|response|message|prompt|step|call"
    around = (
        "please|kindly|just|also|and|but|so|then|ok|okay|thanks|thank you|now|here|today|once|only|at all|completely|"
        rf"this (?:time|turn)|for now|(?:for|in|on|during) (?:this|that|the current|the next|one) (?:{turn})|for this"
    )
    given = "file|files|text|document|code|attachment|message|report|transcript|data|table|page"
    instead = rf"(?: (?:the|this|that|these|my) (?:attached )?(?:{given}))?"  # "just the file": `around` has the "just"
    return re.compile(
        rf"(?:(?:{around}) )*+(?:"
        rf"(?:ignore|disregard) {memory}|"
        rf"(?:do not|don'?t) (?:use|consult|look at|rely on|read) {memory}|"
        rf"(?:(?:answer|reply|respond) (?:(?:me|it|this|(?:this|the|my) (?:{turn})) )?)?"
        rf"without (?:(?:using|consulting) )?{memory}|"
        r"(?:(?:use|take|with|in|(?:start|work|begin) (?:with|from|in)) )?(?:a )?fresh context"
        rf")(?: (?:{around}))*+{instead}"
    )


def asks_to_ignore(text: str) -> str:
    """The sentence or line of a text that asks for memory to be left out and says nothing else, if there is one. A
    question, a heading, what is quoted, and a line that the one before it asks to work on ask for nothing."""
    before = ""
    for line in filter(None, map(str.strip, _quoted().sub(" ¶ ", text).splitlines())):
        worked_on = _asks_for_more(before) and not _BULLET.match(line)
        before = line
        for part in () if worked_on else _SENTENCE_END.split(line):
            if len(part) > LONGEST_INSTRUCTION:
                continue
            sentence = _BULLET.sub("", part.strip()).strip("*_()[] ").rstrip(".!…,;: ")
            plain = " ".join(sentence.casefold().replace("’", "'").replace(",", " ").split())
            if _instruction().fullmatch(plain):
                return sentence
    return ""


def _asks_for_more(line: str) -> bool:
    """Whether what a line asks to work on comes after it: "Translate to German:". A list says by itself what it is."""
    plain = line.strip("*_# ")
    return plain.endswith(":") and not _LABEL.fullmatch(plain.rstrip(":*_ "))
