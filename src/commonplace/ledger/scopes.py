"""Scopes: whose something is, inside one book.

A scope is a path of names, such as `users/alice`; the root is the empty path. Names are compared part by part, in NFC
and case-sensitively, so `users/al` has nothing to do with `users/alice`. What happens in a scope carries the scope's
key as the label `scope`. The key is the id of the event that named the scope, so the name stands in one payload only,
and can be erased. What happens in the root carries no such label.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import BadInput, shown
from .checks import MAX_NAME, check_name
from .events import Event, draft
from .keys import Key
from .views import Capability, Decider, Kind, View

if TYPE_CHECKING:
    from .overlay import Overlay
    from .reader import ViewReader

Path = tuple[str, ...]

SCOPE = "scope"
"""The label that holds the key of an event's scope."""

NOWHERE = "?"
"""In place of the key of a scope that nothing was written to yet: no row has it."""

SCOPED = "*"
"""In place of the key of a scope in the keys of some views: all scopes but the root."""

NAMED = "scope.named"
MOST_PARTS = 16
MOST_CHARACTERS = 3 * MAX_NAME
"""Of a whole path: the names of a path are parts of one row key."""

RUNTIME = "runtime"


class Bound(NamedTuple):
    """The part of a book that a session is bound to: it writes to `scope`, and reads the scopes in `reads` with what
    lies below them; without `below`, those alone."""

    scope: Path
    reads: tuple[Path, ...]
    below: bool = True


ROOT: Path = ("/",)
"""The root without the scopes below it, as something to read. It is no path to write to: no name has a slash."""


def parsed(scope: object) -> Path:
    """The path that a text such as `users/alice` names. Raises BadInput."""
    if scope == "/":
        raise BadInput(
            "the scope '/' is the root, which is only named to read it: leave scope out to act there"
        )
    if not isinstance(scope, str) or not scope:
        raise BadInput(f"scope {shown(scope)} is not a path of names: give one text, such as 'users/alice'")
    path = tuple(_part(scope, part) for part in unicodedata.normalize("NFC", scope).split("/"))
    if len(path) > MOST_PARTS or sum(map(len, path)) > MOST_CHARACTERS:
        raise BadInput(
            f"scope {shown(scope)} is too long: a path has at most {MOST_PARTS} names and {MOST_CHARACTERS} characters"
        )
    return path


def _part(scope: str, part: str) -> str:
    if not part:
        raise BadInput(
            f"scope {shown(scope)} has an empty name in it: write 'users/alice', without a slash at its ends"
        )
    if part in (".", "..") or "*" in part or "\\" in part:
        raise BadInput(
            f"scope {shown(scope)} is not a path of names: {shown(part)} is no name. A scope has no patterns "
            "and no relative parts; name each one, such as 'users/alice'"
        )
    return check_name("a name in the scope", part)


def parsed_read(scope: object) -> Path:
    """The same for a scope to read: `/` is what belongs to no scope."""
    return ROOT if scope == "/" else parsed(scope)


def written(path: Path) -> str:
    """A path as people write it."""
    return "/".join(path)


def lies_in(path: Path, other: Path) -> bool:
    """Whether a path is another one or lies below it."""
    return path[: len(other)] == other


# keys and names


def partitions_of(event: Event) -> tuple[str, ...]:
    """Where a view keeps what belongs to an event's scope, if it is also read for all scopes together."""
    scope = scope_of(event)
    return (scope, SCOPED) if scope else ("",)


def scope_of(event: Event) -> str:
    """The key of the scope that an event belongs to; "" for the root."""
    return event.labels.get(SCOPE, "")


def key_of(views: ViewReader, path: Path) -> str | None:
    """The key of a scope: "" for the root, None if nothing was ever written to it."""
    if path in ((), ROOT):
        return ""
    key: str | None = views.get("scopes.keys", *path)
    return key


def path_of(views: ViewReader, key: str) -> Path | None:
    """The path of the scope with a key; None if its name was erased."""
    if not key:
        return ()
    path = views.get("scopes.paths", key)
    return None if path is None else tuple(path)


def name_of(views: ViewReader, key: str) -> str:
    """A scope as people write it: "" for the root, its key if its name was erased."""
    path = path_of(views, key)
    return key if path is None else written(path)


def keys_in(views: ViewReader, path: Path) -> frozenset[str]:
    """The keys of a scope and of those below it."""
    if path == ROOT:
        return frozenset({""})
    keys = frozenset(str(key) for _, key in views.scan("scopes.keys", *path))
    return keys if path else keys | {""}


def readable(views: ViewReader, bound: Bound | None) -> frozenset[str] | None:
    """The keys of the scopes that a session reads; None: all of them."""
    if bound is None or (bound.below and () in bound.reads):
        return None
    if not bound.below:
        return frozenset(key for path in bound.reads if (key := key_of(views, path)) is not None)
    return frozenset[str]().union(*(keys_in(views, path) for path in bound.reads))


# acting in a scope


class InScope(NamedTuple):
    """A command of a session that is bound to a scope."""

    bound: Bound
    capability: str
    decide: Decider
    request: Any


class Guarded(NamedTuple):
    """A command of an actor that may be limited in the scopes that it writes to."""

    actor: str
    run: str | None
    capability: str
    decide: Decider
    request: Any


def decide_in_scope(overlay: Overlay, command: InScope) -> Any:
    """Run a decider for a session that is bound to a scope: it reads by that, and its events belong there."""
    outer = overlay.bound, overlay.scope
    overlay.bound, overlay.scope = command.bound, ""
    try:
        overlay.scope = _named(overlay, command.bound.scope)
        return overlay.run(command.capability, command.decide, command.request)
    finally:
        overlay.bound, overlay.scope = outer


def _named(overlay: Overlay, path: Path) -> str:
    """The key of a scope, which gets its name now if it has none."""
    key = key_of(overlay, path)
    if key is not None:
        return key
    event = draft(NAMED, actor=RUNTIME, payload={"path": list(path)}, labels={"audience": "team"})
    return overlay.emit(event, scope=event.id).id


def decide_name(overlay: Overlay, paths: tuple[Path, ...]) -> list[str]:
    """Answer with the keys of scopes; those without a name get one."""
    return [_named(overlay, path) for path in paths]


def all_named(views: ViewReader) -> frozenset[str] | None:
    """The keys of all scopes that have a name; None if there is none without."""
    return None if views.get("scopes.nameless", "") is None else keys_in(views, ())


def _path_rows(event: Event) -> list[Key]:
    return [(event.id,)] if event.payload["path"] else []


def _key_rows(event: Event) -> list[Key]:
    return [tuple(event.payload["path"])] if event.payload["path"] else []


def _nameless(event: Event) -> list[Key]:
    """The row that says that a scope has lost its name. Without it there is nothing to look for."""
    return [] if event.payload["path"] else [("",)]


SCOPES = Capability(
    "scopes",
    kinds=(Kind(NAMED, residue=lambda _payload: {"path": []}),),
    commands={"scopes.name": decide_name},
    views=(
        View(
            "scopes.paths",
            1,
            _path_rows,
            lambda _key, _before, event: event.payload["path"],
            frozenset({NAMED}),
        ),
        View("scopes.keys", 1, _key_rows, lambda _key, _before, event: event.id, frozenset({NAMED})),
        View("scopes.nameless", 1, _nameless, lambda _key, _before, _event: True, frozenset({NAMED})),
    ),
)
