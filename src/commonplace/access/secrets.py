"""Secrets as they look in text: keys of known makers, credentials in URLs, passwords that are assigned.

`find_secrets` tells where; what is done about it is for a policy to say. A hash, an id or a public key is no
secret, and neither is a placeholder that stands where one belongs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from .redact import TOKEN

_B64 = r"[A-Za-z0-9+/_-]"

MAKERS = {
    "aws": r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}\b",
    "anthropic": r"\bsk-ant-[\w-]{20,}",
    "openai": r"\bsk-(?:proj-|svcacct-|admin-)?[A-Za-z0-9_-]{20,}",
    "stripe": r"\b(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}|\bwhsec_[A-Za-z0-9+/=]{20,}",
    "github": r"\bgh[pousr]_[A-Za-z0-9]{30,}|\bgithub_pat_\w{22,}",
    "gitlab": r"\bgl(?:pat|ptt|rt|dt|soat|oas|cbt)-[\w-]{20,}",
    "bitbucket": r"\bATBB[A-Za-z0-9]{20,}|\bATATT3x[\w=-]{20,}",
    "slack": r"\bxox[abeoprs]-[\w-]{10,}|\bxapp-\d-[\w-]{10,}|hooks\.slack\.com/services/T\w+/B\w+/\w{10,}",
    "discord": r"\b[MNO][A-Za-z\d_-]{23,}\.[\w-]{6}\.[\w-]{27,}|discord(?:app)?\.com/api/webhooks/\d+/[\w-]{20,}",
    "google": r"\bAIza[\w-]{35}|\bya29\.[\w-]{20,}|\bGOCSPX-[\w-]{20,}",
    "azure": r"(?i)\b(?:AccountKey|SharedAccessKey)=[A-Za-z0-9+/]{40,}={0,2}|[?&]sig=[\w%+/=-]{20,}",
    "telegram": r"\b\d{8,10}:[A-Za-z0-9_-]{35}\b",
    "twilio": r"\b(?:SK|AC)[0-9a-f]{32}\b",
    "sendgrid": r"\bSG\.[\w-]{16,}\.[\w-]{16,}",
    "mailgun": r"\bkey-[0-9a-f]{32}\b",
    "npm": r"\bnpm_[A-Za-z0-9]{30,}",
    "long token": r"\b[a-z]{2,10}-(?=[\w-]*\d)(?=[\w-]*[A-Z])(?=[\w-]*[a-z])[\w-]{50,}",
    "huggingface": r"\bhf_[A-Za-z0-9]{30,}",
    "digitalocean": r"\bdo[opr]_v1_[0-9a-f]{40,}",
    "vault": r"\bhv[sb]\.[\w-]{20,}",
    "databricks": r"\bdapi[0-9a-f]{32}\b",
    "shopify": r"\bshp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}",
    "square": r"\bsq0(?:atp|csp)-[\w-]{20,}|\bEAAA[\w-]{40,}",
    "notion": r"\b(?:secret|ntn)_[A-Za-z0-9]{40,}",
    "others": r"\b(?:PMAK-|NRAK-|figd_|lin_api_|glsa_|sntrys_|dckr_pat_|tskey-\w+-|pscale_(?:tkn|pw)_|sbp_|gsk_|r8_"
    r"|pplx-|xai-|dp\.(?:pt|st)\.|atlasv1\.|rubygems_|AGE-SECRET-KEY-1|FlyV1 fm\d_|nfp_|vercel_|phc_|sl\.)"
    + _B64
    + r"{16,}",
    "jwt": r"\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}",
    "private key": r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----",
    "url": r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@'\"<>]*:[^\s/@'\"<>${}]{3,}@[\w.-]+",
    "authorization": r"(?i)\b(?:proxy-)?authorization\s*[:=]\s*['\"]?(?:bearer|basic|token)\s+[\w.+/=~-]{8,}"
    r"|\bbearer\s+[A-Za-z0-9._~+/-]{20,}",
}
"""What secrets of known makers and forms look like."""

WORTH_A_LOOK = r"(?i)\S{15,}|://|-----|bearer|authorization"
"""What every one of them has: most texts have none of it and need no closer look."""

ASSIGNED = r"""(?ix)
    (?: \b | _ ) (?: pass(?:word|wd|phrase|code)? | pwd | secret(?:[_-]?(?:key|token))? | tok(?:en)?
      | (?: api | access | auth | app | client | master | private | signing | encryption | service | session
          | account | consumer | webhook | refresh | id | deploy ) [_\s-]? (?: key | secret | token | password )
      | credentials? | pin (?:[_\s-]?code)? | connection[_-]?string )
    ["']? \s* (?: := | => | [:=] | \bis\b ) \s*
    (?P<quote> ["'`]? ) (?P<value> [^\s"'`,;<>]{4,} ) (?P=quote)
    """

PLACEHOLDER = r"""(?ix)
    ^ (?: \$ .* | % .* % | \{ .* | \[ .* | \( .* | < .* | \* + | x{3,} | \. {2,} .*
      | (?: your | my | the | some | example | sample | dummy | fake | placeholder | redacted | change ) [\w-]* $
      | none | null | true | false | undefined | required | optional | string | str | int | bool | bytes | missing
      | n/a | tbd | todo | empty | unset | expired | invalid | valid | wrong | correct | stored | hashed | encrypted
      | os\. .* | env .* | process\. .* | getenv .* | settings\. .* | config .* | self\. .* | request\. .* | args .*
      | get .* | field .* | secretstr .* | vault: .* | op:// .* | ref\+ .* | \w+ \( .* | \w+ \. \w+ \( .* ) $
    """


class Secret(NamedTuple):
    """Where in a text a secret stands, and what kind it seems to be."""

    start: int
    end: int
    kind: str


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    """Compiled when they are first needed: importing the library stays quick."""
    return {kind: re.compile(pattern) for kind, pattern in MAKERS.items()}


def find_secrets(text: str) -> list[Secret]:
    """Every secret in a text, in order; where two overlap, the longer one."""
    found: list[Secret] = []
    for one in sorted(_all(text), key=lambda one: (one.start, -one.end)):
        if not found or one.start >= found[-1].end:
            found.append(one)
    return found


def masked(text: str) -> str:
    """A text with every secret in it taken out."""
    parts, end = [], 0
    for one in find_secrets(text):
        parts += [text[end : one.start], TOKEN]
        end = one.end
    return "".join([*parts, text[end:]])


def _all(text: str) -> Iterator[Secret]:
    if re.search(WORTH_A_LOOK, text):
        for kind, pattern in _patterns().items():
            for match in pattern.finditer(text):
                yield Secret(match.start(), match.end(), kind)
    for match in re.finditer(ASSIGNED, text):
        if _looks_secret(match["value"], bool(match["quote"])):
            yield Secret(match.start("value"), match.end("value"), "password")


def _looks_secret(value: str, quoted: bool) -> bool:
    """Whether what is assigned can be the secret itself: no placeholder, no name, no plain word of prose."""
    value = value.rstrip(".!?)")
    if len(value) < 4 or re.match(PLACEHOLDER, value):
        return False
    kinds = sum(bool(re.search(one, value)) for one in (r"[a-z]", r"[A-Z]", r"\d", r"[^\w]"))
    if quoted:
        return kinds >= 2 or len(value) >= 6
    return kinds >= 2 and bool(re.search(r"\d|[^\w.:/-]", value)) and not re.fullmatch(r"[\d.:/-]+", value)
