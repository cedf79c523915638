"""What the index is given: documents, and the changes to them."""

from __future__ import annotations

import msgspec


class Who(msgspec.Struct, frozen=True):
    """What decides who may see a document. There are few different ones."""

    author: str
    kind: str
    shared: bool
    sensitivity: str
    tier: str
    core: str = ""
    own: bool = False
    """Nobody finds it but its author and the owner, whatever its kind."""


class Doc(msgspec.Struct, frozen=True):
    """Something that can be found: `text` is what is searched, the rest is what it is found by or shown
    with."""

    id: str
    text: str
    who: Who
    tier: str
    source: str
    time_us: int
    run: str = ""
    session: str = ""
    """The conversation that it is a part of, if it is: then what was said before and after it counts, too."""
    scope: str = ""
    """The key of the scope that it belongs to; "" for the root. It never changes."""
    speaker: str | None = None
    """Who speaks in a conversation, if that is not the author; "" if nobody has a name."""


class Put(msgspec.Struct, frozen=True):
    """From here on this is the document with its id; an earlier version of it ends here. After an Erase, versions that
    hold from an earlier position on are given again with that position in `since`."""

    doc: Doc
    since: int | None = None


class RemovedDoc(msgspec.Struct, frozen=True):
    """From here on there is no document with this id. Earlier on there still is. `since` is as of a Put."""

    id: str
    since: int | None = None


class Erase(msgspec.Struct, frozen=True):
    """No document with one of these ids ever was: every version goes, at every `at`."""

    ids: tuple[str, ...]


class Reword(msgspec.Struct, frozen=True):
    """Every version of the document says this, at every `at`: what must not be shown of it has changed. Who may see
    each version, and from when until when, stays as it is."""

    doc: Doc


Change = Put | RemovedDoc | Erase | Reword
