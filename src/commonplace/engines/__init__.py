"""Where books can live. `locate` turns a URL into an engine and a book's name; nothing is opened yet."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

from ..errors import BadInput, MissingExtra, UnknownEngine, shown
from ..ledger.checks import check_name, is_unicode
from ..version import install_hint
from .contract import Engine

DEFAULT_BOOK = "default"

SERVERS = {
    "postgresql": ("postgres", "PostgresEngine"),
    "postgres": ("postgres", "PostgresEngine"),
    "redis": ("redis", "RedisEngine"),
    "rediss": ("redis", "RedisEngine"),
    "valkey": ("redis", "RedisEngine"),
    "unix": ("redis", "RedisEngine"),
}
FORMS = "PATH.db, memory:, file:FOLDER, postgresql://…, redis://… or unix://SOCKET"


def locate(url: str | Path, name: str | None = None, durability: str = "full") -> tuple[Engine, str]:
    """The engine that a URL names and the book in it: `name`, or `?book=NAME` of a server's URL."""
    if not isinstance(url, str | Path):
        raise UnknownEngine(f"{shown(url)} names no book: give {FORMS}")
    if durability not in ("full", "process"):
        raise BadInput(f"durability {shown(durability)} is not known: use 'full' or 'process'")
    text = str(url)
    if not text or "\0" in text or not is_unicode(text):
        raise UnknownEngine(f"{text!a} names no book: give {FORMS}")
    if name is not None:
        _check_name(name)
    scheme, colon, rest = text.partition(":")
    if isinstance(url, Path) or not colon or len(scheme) == 1 or "/" in scheme or "." in scheme:
        return _sqlite(text, durability), name or Path(text).stem
    if scheme == "memory":
        from .memory import MemoryEngine

        return MemoryEngine(), name or DEFAULT_BOOK
    if scheme in ("file", "sqlite"):
        place = unquote(rest[2:]) if rest.startswith("//") else rest
        if not place:
            raise UnknownEngine(f"{text!r} names no place: give {FORMS}")
        if scheme == "sqlite":
            return _sqlite(place, durability), name or Path(place).stem
        from .files import FilesEngine

        return FilesEngine(Path(place)), name or Path(place).name or DEFAULT_BOOK
    if scheme in SERVERS:
        return _server(text, scheme, name)
    raise UnknownEngine(f"{scheme!r} is no engine that commonplace knows: give {FORMS}")


def _check_name(name: str) -> str:
    return check_name("the book's name", name)


def _sqlite(path: str, durability: str) -> Engine:
    from .sqlite import SqliteEngine

    return SqliteEngine(Path(path), durability)


def _server(url: str, scheme: str, name: str | None) -> tuple[Engine, str]:
    bare, _, query = url.partition("?")
    fields = parse_qsl(query, keep_blank_values=True)
    named = [value for key, value in fields if key == "book"]
    if name is not None and named and named != [name]:
        raise BadInput(f"the URL says book={named[0]!r} and the call says {name!r}: give one of them")
    book = _check_name(name or (named[0] if named else DEFAULT_BOOK))
    rest = urlencode([field for field in fields if field[0] != "book"], quote_via=quote)
    bare = f"{bare}?{rest}" if rest else bare
    module, engine = SERVERS[scheme]
    return _load(module, engine)(bare.replace("valkey://", "redis://", 1)), book


def _load(module: str, engine: str) -> Any:
    try:
        return getattr(import_module(f"{__name__}.{module}"), engine)
    except ModuleNotFoundError as missing:
        raise MissingExtra(
            f"this engine needs {missing.name}, which is not installed: {install_hint(module)}"
        ) from missing
