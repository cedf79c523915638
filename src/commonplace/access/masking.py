"""Masking: taking out of a text what looks like a secret.

It goes by the look alone: keys of known makers, credentials in URLs, passwords that are assigned. `find_secrets` says
where they are and `masked` takes them out. A hash, an id or a public key is no secret, and neither is a placeholder
that stands where one belongs. What a run has declared secret is taken out by `redact`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple, TypeVar, cast

from .redact import TOKEN

T = TypeVar("T")

Looks = tuple[str, str]
"""Words one of which every secret of a kind has (`|` between them, in lower case), and the kind's pattern. Looking for
the words is far quicker than trying the pattern, and most texts have none of them."""

MAKERS: dict[str, Looks] = {
    "aws": ("akia|asia|abia|acca", r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}\b"),
    "anthropic": ("sk-ant-", r"\bsk-ant-[\w-]{20,}"),
    "openai": ("sk-", r"\bsk-(?:proj-|svcacct-|admin-)?[A-Za-z0-9_-]{20,}"),
    "stripe": (
        "_live_|_test_|whsec_",
        r"\b(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}|\bwhsec_[A-Za-z0-9+/=]{20,}",
    ),
    "github": (
        "ghp_|gho_|ghu_|ghs_|ghr_|github_pat_",
        r"\bgh[pousr]_[A-Za-z0-9]{30,}|\bgithub_pat_\w{22,}",
    ),
    "gitlab": (
        "glpat-|glptt-|glrt-|gldt-|glsoat-|gloas-|glcbt-",
        r"\bgl(?:pat|ptt|rt|dt|soat|oas|cbt)-[\w-]{20,}",
    ),
    "bitbucket": ("atbb|atatt3x", r"\bATBB[A-Za-z0-9]{20,}|\bATATT3x[\w=-]{20,}"),
    "slack": (
        "xox|xapp-|hooks.slack.com",
        r"\bxox[abeoprs]-[\w-]{10,}|\bxapp-\d-[\w-]{10,}|hooks\.slack\.com/services/T\w+/B\w+/\w{10,}",
    ),
    "discord": (
        ".",
        r"\b[MNO][A-Za-z\d_-]{23,}(?:\.[\w-]{6}\.[\w-]{27,}|(?P<no>))"
        r"|discord(?:app)?\.com/api/webhooks/\d+/[\w-]{20,}",
    ),
    "google": ("aiza|ya29.|gocspx-", r"\bAIza[\w-]{35}|\bya29\.[\w-]{20,}|\bGOCSPX-[\w-]{20,}"),
    "azure": (
        "accountkey=|sharedaccesskey=|sig=",
        r"(?i)\b(?:AccountKey|SharedAccessKey)=[A-Za-z0-9+/]{40,}={0,2}|[?&]sig=[\w%+/=-]{20,}",
    ),
    "telegram": (":", r"\b\d{8,10}:[A-Za-z0-9_-]{35}\b"),
    "twilio": ("sk|ac", r"\b(?:SK|AC)[0-9a-f]{32}\b"),
    "sendgrid": ("sg.", r"\bSG\.[\w-]{16,}\.[\w-]{16,}"),
    "mailgun": ("key-", r"\bkey-[0-9a-f]{32}\b"),
    "npm": ("npm_", r"\bnpm_[A-Za-z0-9]{30,}"),
    "long token": (
        "-",
        r"\b[a-z]{2,10}-(?:(?=[\w-]*\d)(?=[\w-]*[A-Z])(?=[\w-]*[a-z])[\w-]{50,}|[\w-]*(?P<no>))",
    ),
    "huggingface": ("hf_", r"\bhf_[A-Za-z0-9]{30,}"),
    "digitalocean": ("_v1_", r"\bdo[opr]_v1_[0-9a-f]{40,}"),
    "vault": ("hvs.|hvb.", r"\bhv[sb]\.[\w-]{20,}"),
    "databricks": ("dapi", r"\bdapi[0-9a-f]{32}\b"),
    "shopify": ("shp", r"\bshp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    "square": ("sq0|eaaa", r"\bsq0(?:atp|csp)-[\w-]{20,}|\bEAAA[\w-]{40,}"),
    "notion": ("secret_|ntn_", r"\b(?:secret|ntn)_[A-Za-z0-9]{40,}"),
    "others": (
        "pmak-|nrak-|figd_|lin_api_|glsa_|sntrys_|dckr_pat_|tskey-|pscale_|sbp_|gsk_|r8_|pplx-|xai-|dp.pt.|dp.st."
        "|atlasv1.|rubygems_|age-secret-key-1|flyv1 fm|nfp_|vercel_|phc_|sl.",
        r"\b(?:PMAK-|NRAK-|figd_|lin_api_|glsa_|sntrys_|dckr_pat_|tskey-\w+-|pscale_(?:tkn|pw)_|sbp_|gsk_|r8_"
        r"|pplx-|xai-|dp\.(?:pt|st)\.|atlasv1\.|rubygems_|AGE-SECRET-KEY-1|FlyV1 fm\d_|nfp_|vercel_|phc_|sl\.)"
        r"[A-Za-z0-9+/_-]{16,}",
    ),
    "jwt": ("eyj", r"\beyJ[\w-]{8,}(?:\.eyJ[\w-]{8,}\.[\w-]{8,}|(?P<no>))"),
    "private key": (  # up to its end, or as much of it as there is
        "private key",
        r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
        r"(?:(?:[^-]++|-(?!----))*+-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
        r"|(?:(?:\s|\\[nr])*+[A-Za-z0-9+/=]{16,}+)*+)",
    ),
    "url": ("://", r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@'\"<>]*:[^\s/@'\"<>${}]{3,}@[\w.-]+"),
    "authorization": (
        "authorization|bearer",
        r"(?i)\b(?:proxy-)?authorization\s*[:=]\s*['\"]?(?:bearer|basic|token)\s+[\w.+/=~-]{8,}"
        r"|\bbearer\s+[A-Za-z0-9._~+/-]{20,}",
    ),
}
"""What secrets of known makers and forms look like. Anybody may write the texts, so the time that a pattern takes must
be linear in the length of the text: see `patterns`. Where a run of characters may turn out to be no secret only at its
end, the pattern takes the whole run as `no`, because it would be tried again at every place in the run otherwise."""

NAMES = "pass|pwd|secret|tok|key|credential|pin|connection"
"""Words one of which every name of something assigned has."""

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


PASSWORD, TOO_LONG = "password", "too long to look through"
LONGEST = 10_000_000
"""The longest text, in characters, that is looked through: more than an event can hold. A million take about 0.1 s, and
0.7 s if the text names every kind of secret. Readers of others' texts look at the `beginning` of each."""
SPARE = 10_000
"""How far a secret is followed beyond the end of what is shown."""


class Secret(NamedTuple):
    """Where in a text a secret stands, and what kind it seems to be."""

    start: int
    end: int
    kind: str


@cache
def _patterns() -> tuple[list[tuple[str, str]], dict[str, re.Pattern[str]]]:
    """Each word with the kind whose pattern it is worth to try, and the patterns by their kinds. They are compiled when
    they are first needed: importing the library stays quick."""
    every = {**MAKERS, PASSWORD: (NAMES, ASSIGNED)}
    words = [(word, kind) for kind, (each, _) in every.items() for word in each.split("|")]
    return words, {kind: re.compile(pattern) for kind, (_, pattern) in every.items()}


def find_secrets(text: str) -> list[Secret]:
    """Every secret in a text, in order; where two overlap, the longer one. A text of more than LONGEST characters is
    not looked through: all of it counts as one secret of the kind TOO_LONG."""
    if len(text) > LONGEST:
        return [Secret(0, len(text), TOO_LONG)]
    secrets: list[Secret] = []
    for secret in sorted(_all(text), key=lambda secret: (secret.start, -secret.end)):
        if not secrets or secret.start >= secrets[-1].end:
            secrets.append(secret)
    return secrets


def kinds_of_secrets(texts: Iterable[str]) -> tuple[str, ...]:
    """The kinds of secrets in these texts, each once. Most texts hold none, which one look at all of them tells."""
    texts = list(texts)
    plain = "\n".join(texts).casefold()
    if len(plain) <= LONGEST and not any(word in plain for word, _ in _patterns()[0]):
        return ()
    return tuple(sorted({secret.kind for text in texts for secret in find_secrets(text)}))


def masked(value: T) -> T:
    """A text, or plain data of any shape, with every secret in its texts and names taken out. Where two names become
    the same by that, the later one gets a number."""
    plain: Any = value
    if isinstance(plain, str):
        plain = _masked_text(plain)
    elif isinstance(plain, list | tuple):
        plain = type(plain)(map(masked, plain))
    elif isinstance(plain, dict):
        plain = {}
        for name, item in value.items():  # type: ignore[attr-defined]
            hidden = masked(name)
            while hidden in plain:
                hidden = f"{hidden} {len(plain)}"
            plain[hidden] = masked(item)
    return cast(T, plain)


def _masked_text(text: str) -> str:
    parts, end = [], 0
    for secret in find_secrets(text):
        parts += [text[end : secret.start], TOKEN]
        end = secret.end
    return "".join([*parts, text[end:]])


def beginning(text: str, most: int) -> str:
    """So many of the first characters of a text, as `masked` gives them; `…` at the end says that there were more.
    What comes later is not looked through, save for the end of a secret that begins before."""
    if len(text) <= most:
        return masked(text)
    parts, end = [], 0
    for secret in find_secrets(text[: min(most + SPARE, LONGEST)]):
        if secret.start < most:
            parts += [text[end : secret.start], TOKEN]
            end = secret.end
    return "".join([*parts, text[end : max(end, most)], "…"])


def _all(text: str) -> Iterator[Secret]:
    plain = text.casefold()
    words, patterns = _patterns()
    for kind in dict.fromkeys([kind for word, kind in words if word in plain]):
        for match in patterns[kind].finditer(text):
            if kind != PASSWORD:
                if match.lastgroup != "no":
                    yield Secret(match.start(), match.end(), kind)
            elif _looks_secret(match["value"], bool(match["quote"])):
                yield Secret(match.start("value"), match.end("value"), kind)


def _looks_secret(value: str, quoted: bool) -> bool:
    """Whether what is assigned can be the secret itself: no placeholder, no name, no plain word of prose."""
    value = value.rstrip(".!?)")
    if len(value) < 4 or re.match(PLACEHOLDER, value):
        return False
    kinds = sum(bool(re.search(one, value)) for one in (r"[a-z]", r"[A-Z]", r"\d", r"[^\w]"))
    if quoted:
        return kinds >= 2 or len(value) >= 6
    return kinds >= 2 and bool(re.search(r"\d|[^\w.:/-]", value)) and not re.fullmatch(r"[\d.:/-]+", value)
