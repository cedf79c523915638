"""What a question hints at besides its words: days, a speaker, a time; and what of that a text has."""

from __future__ import annotations

import re
from datetime import date
from typing import NamedTuple

import numpy as np

from .score import Floats, Ints

ASKS, TELLS_TIME = 1, 2
"""Flags of a document: it ends with a question; it says when something was."""

_MONTHS = "january february march april may june july august september october november december".split()  # noqa: SIM905
_MONTH = "|".join(_MONTHS)
_DAY = r"(?P<{0}>\d{{1,2}})(?:st|nd|rd|th)?"
_DATES = re.compile(
    rf"\b(?P<iso>\d{{4}}-\d\d-\d\d)\b"
    rf"|\b{_DAY.format('d1')}(?: of)? (?P<m1>{_MONTH})\b(?:,? (?P<y1>\d{{4}}))?"
    rf"|\b(?P<m2>{_MONTH}) {_DAY.format('d2')}\b(?:,? (?P<y2>\d{{4}}))?"
    rf"|(?:\b(?:in|of|during|since|by|last|this) )?\b(?P<m3>{_MONTH})\b(?:,? (?P<y3>\d{{4}}))?"
    rf"|\b(?P<y4>(?:19|20)\d\d)\b",
    re.IGNORECASE,
)
_VERB = "did|do|does|was|were|is|are|has|have|had|will|would|should|can|could|must|may|might"
_WHEN = re.compile(
    rf"\bwhen(?:['’]s| (?:{_VERB}))\b|\b(?:since|until) when\b|^\W*when\b(?!.*,)"
    r"|\b(?:what|which) (?:date|month|year|day|time)\b|\bhow (?:long|often)\b",
    re.IGNORECASE,
)
"""Asking for a time. `what happens when the disk is full` does not."""
_WEEKDAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_TIME = re.compile(
    rf"\b(?:yesterday|today|tonight|tomorrow|ago|recently|since|{_WEEKDAY}|{_MONTH}|(?:19|20)\d\d|(?:day|week|month|year)s?"
    r"|(?:last|next|this) (?:night|morning|weekend|summer|winter|spring|fall|autumn))\b",
    re.IGNORECASE,
)


class NamedTime(NamedTuple):
    """A day, month or year that a question names; what it leaves open is 0."""

    year: int
    month: int
    day: int


def flags(text: str) -> int:
    asks = ASKS if text.rstrip().endswith(("?", "？")) else 0
    return asks | (TELLS_TIME if _TIME.search(text) else 0)


def asks_when(query: str) -> bool:
    return _WHEN.search(query) is not None


def dates(query: str) -> list[NamedTime]:
    """The days, months and years that a question names. `may` alone is a verb."""
    found = []
    for one in _DATES.finditer(query):
        if one["iso"]:
            year, month, day = map(int, one["iso"].split("-"))
        else:
            year = int(one["y1"] or one["y2"] or one["y3"] or one["y4"] or 0)
            name = one["m1"] or one["m2"] or one["m3"] or ""
            month = _MONTHS.index(name.lower()) + 1 if name else 0
            day = int(one["d1"] or one["d2"] or 0)
            if one["m3"] and one[0].lower() == "may":
                continue
        if 0 <= month <= 12 and 0 <= day <= 31:
            found.append(NamedTime(year, month, day))
    return found


def nearness(named: list[NamedTime], time_us: Ints) -> Floats:
    """How near times are to the nearest of the dates named, from 0 to 1: shortly after counts for more than before,
    because people tell of what was."""
    best = np.zeros(len(time_us))
    if not named:
        return best
    days = time_us // (24 * 3600 * 1_000_000)
    months = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)  # since 1970
    years = months // 12 + 1970
    for year, month, day in named:
        if day:
            of = years if not year else np.full_like(years, year)
            gone = _apart(days, of, month, day)
            conditions = [
                gone == 0,
                (gone > 0) & (gone <= 2),
                (gone > 2) & (gone <= 9),
                (gone > 9) & (gone <= 31),
            ]
            gain = np.select([*conditions, (gone < 0) & (gone >= -2)], [1, 0.8, 0.5, 0.2, 0.3], 0.0)
        elif month:
            since = months - ((year - 1970) * 12 + month - 1) if year else (months % 12 - (month - 1)) % 12
            gain = np.select([since == 0, since == 1], [1, 0.4], 0.0)
        else:
            gain = np.where(years == year, 0.5, 0.0)
        best = np.maximum(best, gain)
    return best


def _apart(days: Ints, years: Ints, month: int, day: int) -> Ints:
    """How many days after this day of their year each of the days is; of a day that does not exist, very many."""
    apart = np.full(len(days), 10**6, np.int64)
    for year in np.unique(years).tolist():
        try:
            meant = (date(year, month, day) - date(1970, 1, 1)).days
        except ValueError:
            continue
        apart[years == year] = days[years == year] - meant
    return apart
