"""Tokens: with one, a client on a network acts as one actor, perhaps in one scope and with some verbs alone.

The text of a token is `cpl_`, its id and a secret of 256 random bits. The ledger keeps the secret's hash. A hash
without salt or stretching is enough, because nobody can guess a random secret.
"""

from __future__ import annotations

import hmac
import re
import secrets
from datetime import datetime
from hashlib import sha256
from typing import Any

import msgspec

from ..errors import Denied, NotFound, Unauthorized, shown
from ..ledger.checks import from_us
from ..ledger.events import Event, draft
from ..ledger.keys import Key
from ..ledger.overlay import Overlay
from ..ledger.printing import Readable
from ..ledger.reader import ViewReader
from ..ledger.scopes import SCOPES, Path, decide_name, path_of, written
from ..ledger.views import Decider, Kind, View
from .rights import OWNER

CREATED, REVOKED = "access.token.created", "access.token.revoked"
TOKEN = re.compile(r"cpl_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
UNKNOWN = "this token is not one of this book's: ask the book's owner for one"


class NewToken(Readable, msgspec.Struct, frozen=True):
    """A token that was made. `token` is shown once: the book keeps a hash of it alone."""

    id: str
    token: str
    actor: str
    expires_at: datetime | None

    def __str__(self) -> str:
        until = f"until {self.expires_at:%Y-%m-%d %H:%M} UTC" if self.expires_at else "until it is revoked"
        return f"{self.token}\nacts as {self.actor} {until}. It is not shown again."

    def __repr__(self) -> str:
        return f"<NewToken {self.id} of {self.actor!r}>"


class TokenInfo(Readable, msgspec.Struct, frozen=True):
    """What is known of a token. `verbs` None: all of them."""

    id: str
    actor: str
    scope: str | None
    reads: tuple[str, ...]
    verbs: tuple[str, ...] | None
    label: str
    created_at: datetime
    expires_at: datetime | None
    revoked: bool

    def allows(self, verb: str) -> bool:
        """Whether it allows a verb, by its path with dots."""
        return self.verbs is None or any(
            verb == allowed or (allowed.endswith(".*") and verb.startswith(allowed[:-1]))
            for allowed in self.verbs
        )

    def __str__(self) -> str:
        where = f" in {self.scope}" if self.scope else ""
        may = "" if self.verbs is None else f", for {', '.join(self.verbs)}"
        until = f", until {self.expires_at:%Y-%m-%d %H:%M} UTC" if self.expires_at else ""
        ended = ", revoked" if self.revoked else ""
        return f"{self.id}: {self.actor}{where}{may}{until}{ended}{f' ({self.label})' if self.label else ''}"


class CreateToken(msgspec.Struct, frozen=True):
    by: str
    id: str
    hash: str
    actor: str
    scope: Path | None
    reads: tuple[Path, ...]
    verbs: tuple[str, ...] | None
    label: str
    expires_us: int | None


class RevokeToken(msgspec.Struct, frozen=True):
    by: str
    id: str


def new_secret() -> tuple[str, str, str]:
    """The id, the text and the hash of a new token."""
    id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    return id, f"cpl_{id}_{secret}", _hash(secret)


def _hash(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def decide_token(overlay: Overlay, request: CreateToken) -> Denied | Event:
    if request.by != OWNER:
        return _refused(overlay, request.by, request.actor)
    paths = (*(() if request.scope is None else (request.scope,)), *request.reads)
    keys = overlay.run(SCOPES.name, decide_name, paths)
    scope = None if request.scope is None else keys.pop(0)
    payload = {
        "token": request.id, "hash": request.hash, "actor": request.actor, "scope": scope, "reads": keys,
        "verbs": None if request.verbs is None else list(request.verbs), "label": request.label,
        "expires_us": request.expires_us,
    }  # fmt: skip
    return overlay.emit(draft(CREATED, actor=request.by, payload=payload))


def decide_revoke(overlay: Overlay, request: RevokeToken) -> Denied | NotFound | Event | None:
    """Answers None if it is revoked already."""
    if request.by != OWNER:
        return _refused(overlay, request.by, request.id)
    row = overlay.get("tokens", request.id)
    if row is None:
        raise NotFound(f"there is no token {shown(request.id)}: access.tokens.list() shows all of them")
    if row["revoked"]:
        return None
    return overlay.emit(draft(REVOKED, actor=request.by, payload={"token": request.id}))


def _refused(overlay: Overlay, actor: str, what: str) -> Denied:
    from .commands import Denial, refuse

    return refuse(overlay, Denial(actor, "token", what), "only the book's owner gives and takes back tokens")


def tokens_in(views: ViewReader) -> list[TokenInfo]:
    """Every token, oldest first."""
    infos = [_info(views, str(key[0]), row) for key, row in views.scan("tokens")]
    return sorted((info for info in infos if info is not None), key=lambda info: (info.created_at, info.id))


def authenticated(views: ViewReader, text: str, now: datetime) -> TokenInfo:
    """What a token allows. Raises Unauthorized, with one message for all that are not known."""
    match = TOKEN.fullmatch(text)
    row = None if match is None else views.get("tokens", match[1])
    if match is None or row is None or not hmac.compare_digest(row["hash"], _hash(match[2])):
        raise Unauthorized(UNKNOWN)
    info = _info(views, match[1], row)
    if info is None:
        raise Unauthorized("the scope of this token was erased: ask the book's owner for another one")
    if info.revoked:
        raise Unauthorized("this token was revoked: ask the book's owner for another one")
    if info.expires_at is not None and info.expires_at <= now:
        raise Unauthorized("this token has expired: ask the book's owner for another one")
    return info


def _info(views: ViewReader, id: str, row: dict[str, Any]) -> TokenInfo | None:
    """What is known of a token; None if the name of a scope in it was erased."""
    paths = [
        path_of(views, key) for key in (*(() if row["scope"] is None else (row["scope"],)), *row["reads"])
    ]
    named = [written(path) or "/" for path in paths if path is not None]
    if len(named) < len(paths):
        return None
    scope = None if row["scope"] is None else named.pop(0)
    verbs = None if row["verbs"] is None else tuple(row["verbs"])
    expires = None if row["expires_us"] is None else from_us(row["expires_us"])
    return TokenInfo(
        id, row["actor"], scope, tuple(named), verbs, row["label"], from_us(row["created_us"]), expires,
        row["revoked"],
    )  # fmt: skip


def _fold(_key: Key, before: Any, event: Event) -> Any:
    if event.kind == REVOKED:
        return {**before, "revoked": True}
    payload = {name: value for name, value in event.payload.items() if name != "token"}
    return {**payload, "created_us": event.created_us, "revoked": False}


def _without_hash(payload: dict[str, Any]) -> dict[str, Any]:
    """A token whose event was erased opens nothing: no secret has an empty hash."""
    return {**payload, "hash": "", "actor": "", "label": ""}


KINDS = (Kind(CREATED, residue=_without_hash), Kind(REVOKED, residue=lambda payload: payload))
COMMANDS: dict[str, Decider] = {"access.token": decide_token, "access.revoke_token": decide_revoke}
VIEW = View(
    "tokens", 1, lambda event: [(event.payload["token"],)], _fold, kinds=frozenset({CREATED, REVOKED})
)
