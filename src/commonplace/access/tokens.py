"""Tokens: what a network client shows to act as one actor of a book.

A token is a text `cpl_<id>_<secret>`. The ledger holds the SHA-256 of the secret and never the secret, which has 256
random bits, so that nothing can be guessed from its hash. A token narrows what its client may do: to one actor, to a
scope, to some verbs, until a time. It gives nothing that the actor may not do anyway.
"""

from __future__ import annotations

import re
import secrets
from datetime import datetime
from hashlib import sha256
from hmac import compare_digest
from typing import Any

import msgspec

from ..errors import Conflict, Denied, NotFound, Unauthorized, shown
from ..ledger.checks import from_us, iso
from ..ledger.events import Event, draft
from ..ledger.keys import Key
from ..ledger.overlay import Overlay
from ..ledger.printing import Readable
from ..ledger.reader import ViewReader
from ..ledger.scopes import SCOPES, Path, decide_name, path_of, written
from ..ledger.views import Capability, Kind, View, typed
from .commands import Denial, refuse
from .rights import OWNER

TOKEN_CREATED, TOKEN_REVOKED = "access.token.created", "access.token.revoked"

PREFIX = "cpl"
SHAPE = re.compile(rf"{PREFIX}_([0-9a-f]{{10}})_([A-Za-z0-9_-]{{43}})")

UNKNOWN = (
    "this token is not valid here: the owner of the book makes one with book.access.tokens.create(actor)"
)
"""Says the same for every token whose secret is not right, so that nobody learns which ids there are."""

NO_HASH = "0" * 64
"""Compared with where there is no token: an unknown id takes as long as a wrong secret."""


class CreateToken(msgspec.Struct, frozen=True):
    by: str
    id: str
    hash: str
    actor: str
    lifetime_us: int
    scope: Path | None = None
    reads: tuple[Path, ...] = ()
    verbs: tuple[str, ...] | None = None
    label: str = ""


class RevokeToken(msgspec.Struct, frozen=True):
    by: str
    id: str


class TokenInfo(Readable, msgspec.Struct, frozen=True):
    """What is known of a token; nothing of its secret. `scope` is None for the whole book, `verbs` None for all."""

    id: str
    actor: str
    scope: str | None
    reads: tuple[str, ...]
    verbs: tuple[str, ...] | None
    created: datetime
    expires: datetime
    revoked: datetime | None = None
    label: str = ""

    def __str__(self) -> str:
        where = "" if self.scope is None else f" in {self.scope}"
        until = f"until {self.expires:%Y-%m-%d}" if self.revoked is None else "revoked"
        return f"{self.id} for {self.actor}{where}, {until}" + (f": {self.label}" if self.label else "")


class NewToken(Readable, msgspec.Struct, frozen=True):
    """A token that was just made. `secret` is its whole text, which is shown this once: the book keeps a hash of it."""

    id: str
    actor: str
    expires: datetime
    secret: str

    def __str__(self) -> str:
        return f"{self.id} for {self.actor}, until {self.expires:%Y-%m-%d}"


class TokenGrant(Readable, msgspec.Struct, frozen=True):
    """What the client with a token may do: act as `actor`, in `scope` (None: the whole book), reading `reads` besides,
    with these verbs (None: all of them)."""

    id: str
    actor: str
    scope: str | None = None
    reads: tuple[str, ...] = ()
    verbs: tuple[str, ...] | None = None

    def allows(self, verb_path: str) -> bool:
        """Whether the token is good for a verb, by its path (`memory.list`). What its actor may do is asked besides."""
        return self.verbs is None or any(_fits(verb_path, pattern) for pattern in self.verbs)

    def __str__(self) -> str:
        return f"{self.id} for {self.actor}"


class TokenRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token as the view keeps it. Scopes are kept by their keys: their names can be erased."""

    hash: str
    actor: str
    scope: str | None
    reads: tuple[str, ...]
    verbs: tuple[str, ...] | None
    label: str
    created_us: int
    expires_us: int
    revoked_us: int | None = None


def _fits(verb_path: str, pattern: str) -> bool:
    if pattern.endswith("*"):
        return verb_path.startswith(pattern[:-1])  # `memory.*` keeps its dot, so `memory` itself does not fit
    return verb_path == pattern


# making and revoking


def new_secret() -> tuple[str, str]:
    """A new id and a new secret of 256 bits."""
    return secrets.token_hex(5), secrets.token_urlsafe(32)


def token_text(id: str, secret: str) -> str:
    return f"{PREFIX}_{id}_{secret}"


def hashed(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def decide_create(overlay: Overlay, request: CreateToken) -> Denied | Event:
    refused = _need_owner(overlay, request.by, "create a token for", request.actor)
    if refused:
        return refused
    if overlay.get("access.tokens", request.id) is not None:
        raise Conflict(f"there is a token {request.id} already: create it again, which chooses another id")
    scope = None if request.scope is None else overlay.run(SCOPES.name, decide_name, (request.scope,))[0]
    payload = {
        "token": request.id,
        "hash": request.hash,
        "actor": request.actor,
        "scope": scope,
        "reads": overlay.run(SCOPES.name, decide_name, request.reads),
        "verbs": None if request.verbs is None else list(request.verbs),
        "label": request.label,
        "expires_us": overlay.now + request.lifetime_us,
    }
    return overlay.emit(draft(TOKEN_CREATED, actor=request.by, payload=payload))


def decide_revoke(overlay: Overlay, request: RevokeToken) -> Denied | Event | None:
    """Answers None for a token that is revoked already."""
    refused = _need_owner(overlay, request.by, "revoke the token", request.id)
    if refused:
        return refused
    row = overlay.get("access.tokens", request.id)
    if row is None:
        raise NotFound(
            f"there is no token {shown(request.id)}: book.access.tokens.list() shows those there are"
        )
    if row["revoked_us"] is not None:
        return None
    return overlay.emit(draft(TOKEN_REVOKED, actor=request.by, payload={"token": request.id}))


def _need_owner(overlay: Overlay, by: str, act: str, what: str) -> Denied | None:
    if by == OWNER and overlay.bound is None:
        return None
    return refuse(overlay, Denial(by, act, what), ONLY_OWNER)


ONLY_OWNER = "only the owner of the whole book creates, lists and revokes tokens"


# reading


def token_infos(views: ViewReader) -> list[TokenInfo]:
    """All tokens, the oldest first. A scope whose name was erased is named by its key."""
    rows = [
        (str(id), typed(value, TokenRow, "access.tokens", id)) for (id,), value in views.scan("access.tokens")
    ]
    return [_info(views, id, row) for id, row in sorted(rows, key=lambda each: each[1].created_us)]


def _info(views: ViewReader, id: str, row: TokenRow) -> TokenInfo:
    return TokenInfo(
        id,
        row.actor,
        None if row.scope is None else _named(views, row.scope) or row.scope,
        tuple(_named(views, key) or key for key in row.reads),
        row.verbs,
        from_us(row.created_us),
        from_us(row.expires_us),
        None if row.revoked_us is None else from_us(row.revoked_us),
        row.label,
    )


def _named(views: ViewReader, key: str) -> str | None:
    """A scope as people write it, `/` for the root; None if its name was erased."""
    path = path_of(views, key)
    return None if path is None else written(path) or "/"


def grant_of(views: ViewReader, text: object, now_us: int) -> TokenGrant:
    """What a token gives at this time. Raises Unauthorized. That a token has expired or was revoked is told only to a
    client that has its secret."""
    match = SHAPE.fullmatch(text) if isinstance(text, str) else None
    id, secret = match.groups() if match else ("", "")
    value = views.get("access.tokens", id) if match else None
    row = None if value is None else typed(value, TokenRow, "access.tokens", id)
    right = compare_digest(hashed(secret), NO_HASH if row is None else row.hash)
    if row is None or not right:
        raise Unauthorized(UNKNOWN)
    if row.revoked_us is not None:
        raise Unauthorized(f"the token {id} was revoked: ask the owner of the book for another one")
    if now_us >= row.expires_us:
        raise Unauthorized(
            f"the token {id} expired at {iso(row.expires_us)}: ask the owner of the book for another one"
        )
    scope = None if row.scope is None else _named(views, row.scope)
    if row.scope is not None and scope is None:
        # Without its scope the token would be good for the whole book.
        raise Unauthorized(
            f"the scope of the token {id} was erased: ask the owner of the book for another one"
        )
    reads = tuple(name for key in row.reads if (name := _named(views, key)) is not None)
    return TokenGrant(id, row.actor, scope, reads, row.verbs)


# the view


def _fold_token(_key: Key, before: Any, event: Event) -> Any:
    if event.kind == TOKEN_REVOKED:
        # A token whose creation was erased is gone, and its revocation has nothing to end.
        return before and {**before, "revoked_us": before["revoked_us"] or event.created_us}
    fields = {name: value for name, value in event.payload.items() if name != "token"}
    return {**fields, "created_us": event.created_us, "revoked_us": None}


TOKENS = Capability(
    "access.tokens",
    kinds=(
        Kind(TOKEN_CREATED),  # nothing of it outlasts its erasure: the token is no longer valid
        Kind(TOKEN_REVOKED, residue=lambda payload: payload),  # erasing it must not bring the token back
    ),
    commands={"access.tokens.create": decide_create, "access.tokens.revoke": decide_revoke},
    views=(
        View(
            "access.tokens",
            1,
            lambda event: [(event.payload["token"],)],
            _fold_token,
            kinds=frozenset({TOKEN_CREATED, TOKEN_REVOKED}),
        ),
    ),
)
