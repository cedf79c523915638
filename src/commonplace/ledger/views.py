"""The registry: which kinds there are and who owns them, which commands decide, which views fold.

A **capability** is a part of commonplace that owns kinds of events. It brings commands, each a pure decider
that looks at the book as it is under the lock and emits events, and views, each a pure fold of events into
rows. It is plain data: the core runs it, on every engine, without knowing what it is about.

A **view** is a table of rows, and each row is a fold of its own:

    keys(event)              which rows the event touches, from the event alone
    fold(key, before, event) that row's next value (None: no such row), from its last one and the event

Because a row depends on nothing but its own history, a single row can be derived again (after an erasure,
say) without touching the others, and the rows of a rebuilt view are the same bytes.

*Inline* views commit with their events. *Trailing* views keep a checkpoint, catch up when somebody reads or
follows them, and say as of where they speak. A view with `header_only` reads no payload, so erasing one
changes nothing in it, and a fold that changes nothing writes nothing; any other view forgets an erased event,
or sees what the kind's `residue` kept of it, and has a version for every event that touched a row. A *present*
view has no versions: it says what holds now, at the cost of one row in place of many, and what it said in the past
follows from other views. A row that becomes None is removed from it. It takes from an event only what the residue of
its kind keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar
from zlib import crc32

import msgspec

from ..engines.contract import Row
from ..errors import BookTooNew, Conflict, Corrupt, NotFound
from .encoding import canonical, convert, decode
from .events import Event
from .keys import Key, unpack
from .matching import Spellings

if TYPE_CHECKING:
    from .overlay import Overlay

LAYOUT = 1
"""The layout of books that this library writes. A book with a higher one is `BookTooNew`."""

RESERVED = frozenset(
    {
        "access",
        "book",
        "delegation",
        "event",
        "memory",
        "premise",
        "receipt",
        "scope",
        "state",
        "task",
        "thread",
        "work",
    }
)  # fmt: skip
"""First words of kinds that only capabilities may record, also those a later version brings."""

T = TypeVar("T")

Payload = dict[str, Any]
Decider = Callable[["Overlay", Any], Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of event with an owner. `upcast[n]` brings a payload from schema n to n + 1. `residue` picks
    what must survive an erasure for other facts to stand (ids, statuses; never content), and `names` are the fields of
    it that hold names which people choose: they are masked where they name what is erased. `effect` is what
    recording it does besides being folded: whatever brings the event into the ledger, it happens. `says` are the
    words by which an event of an owned kind can be searched for, if it can."""

    name: str
    version: int = 1
    upcast: Mapping[int, Callable[[Payload], Payload]] = field(default_factory=dict)
    residue: Callable[[Payload], Payload] | None = None
    names: Sequence[str] = ()
    effect: Callable[[Overlay, Event], None] | None = None
    says: Callable[[Payload], str] | None = None


@dataclass(frozen=True, slots=True)
class View:
    name: str
    version: int
    keys: Callable[[Event], Iterable[Key]]
    fold: Callable[[Key, Any, Event], Any]
    kinds: frozenset[str] | None = None
    """The kinds it folds; None: every kind."""
    trailing: bool = False
    header_only: bool = False
    insert_only: bool = False
    """Each event's keys are its own (they hold its position), so there is never a value before."""
    overwrites: bool = False
    """Each event holds the whole of what its rows become, so that `fold` is given None for the value before."""
    present: bool = False
    """Only what holds now is kept; erasing an event changes nothing in it."""


@dataclass(frozen=True, slots=True)
class Capability:
    name: str
    kinds: Sequence[Kind] = ()
    commands: Mapping[str, Decider] = field(default_factory=dict)
    views: Sequence[View] = ()


class Registry:
    """Everything the capabilities of one library bring. Immutable; cheap to ask."""

    folding: Callable[[str, bool], tuple[View, ...]]
    """The inline (False) or trailing (True) views that fold a kind."""

    owner: Callable[[str], str | None]
    """The capability that alone may record a kind, or None if anybody may."""

    def __init__(self, capabilities: Iterable[Capability]) -> None:
        self._kinds: dict[str, Kind] = {}
        self._owners: dict[str, str] = {}
        self._commands: dict[str, tuple[str, Decider]] = {}
        self.views: dict[str, View] = {}
        for capability in capabilities:
            for kind in capability.kinds:
                self._claim(self._owners, kind.name, capability.name)
                self._kinds[kind.name] = kind
            for name, decider in capability.commands.items():
                self._claim(self._commands, name, (capability.name, decider))
            for view in capability.views:
                self._claim(self.views, view.name, view)
        self.folding = lru_cache(maxsize=1024)(self._folding)
        self.owner = lru_cache(maxsize=1024)(self._owner)

    @staticmethod
    def _claim(table: dict[str, Any], name: str, value: object) -> None:
        if name in table:
            raise Conflict(f"two capabilities bring {name!r}: rename one of them")
        table[name] = value

    def _owner(self, kind: str) -> str | None:
        owner = self._owners.get(kind)
        if owner is None and kind.partition(".")[0] in RESERVED:
            return "commonplace"
        return owner

    def command(self, name: str) -> tuple[str, Decider]:
        """The capability and decider behind a command's name."""
        try:
            return self._commands[name]
        except KeyError:
            raise NotFound(
                f"there is no command {name!r}: there are {', '.join(sorted(self._commands))}"
            ) from None

    def view(self, name: str) -> View:
        try:
            return self.views[name]
        except KeyError:
            raise NotFound(f"there is no view {name!r}: there are {', '.join(sorted(self.views))}") from None

    def _folding(self, kind: str, trailing: bool) -> tuple[View, ...]:
        return tuple(
            view
            for view in self.views.values()
            if view.trailing == trailing and (view.kinds is None or kind in view.kinds)
        )

    def current(self, event: Event) -> Event:
        """The event with its payload brought up to the current schema of its kind. An event from a later
        schema than this library knows stays as it was recorded."""
        kind = self._kinds.get(event.kind)
        if kind is None or event.erased or event.schema_version >= kind.version:
            return event
        payload = event.payload
        for version in range(event.schema_version, kind.version):
            payload = kind.upcast[version](payload)
        return msgspec.structs.replace(event, payload=payload)

    def effect(self, kind: str) -> Callable[[Overlay, Event], None] | None:
        definition = self._kinds.get(kind)
        return None if definition is None else definition.effect

    def says(self, event: Event) -> str:
        """The words of an event of an owned kind that can be searched for; "" if it has none."""
        kind = self._kinds.get(event.kind)
        return "" if kind is None or kind.says is None or event.erased else kind.says(event.payload)

    def residue(self, event: Event, spellings: Spellings | None = None) -> Payload | None:
        """What must survive the erasure of this event, if anything. Names that hold one of the spellings do not."""
        kind = self._kinds.get(event.kind)
        if kind is None or kind.residue is None:
            return None
        residue = kind.residue(event.payload)
        if spellings is None:
            return residue
        return {
            name: spellings.masked(value) if name in kind.names else value for name, value in residue.items()
        }


class Meta(msgspec.Struct, frozen=True):
    """The book's own small record, read and checked under the lock by every writer.

    `views` maps each view to the fold version that built it and its generation: a rebuild writes generation
    n + 1 beside n and switches by changing this record.
    """

    book: str
    name: str
    created_at: int
    layout: int = LAYOUT
    horizon: int = 0
    views: dict[str, tuple[int, int]] = {}
    embedder: str = "static"
    """What was the best to make vectors with where the book was made. Its settings may name another."""

    def space(self, view: View) -> str:
        return space(view.name, self.views[view.name][1])

    def with_generations(self, views: Iterable[View]) -> Meta:
        """The record after these views have been built anew."""
        built = {view.name: (view.version, self.next_generation(view)) for view in views}
        return msgspec.structs.replace(self, views={**self.views, **built})

    def next_generation(self, view: View) -> int:
        return self.views.get(view.name, (0, 0))[1] + 1

    def outdated(self, registry: Registry) -> list[View]:
        """The views that this library folds in a newer way, or for the first time. Raises BookTooNew if
        the book was written by a library that knows more than this one."""
        if self.layout > LAYOUT:
            raise BookTooNew(
                f"this book has layout {self.layout} and this library knows up to {LAYOUT}: "
                "upgrade commonplace to open it"
            )
        for name, (version, _) in self.views.items():
            view_here = registry.views.get(name)
            if view_here is None or view_here.version < version:
                raise BookTooNew(
                    f"this book holds the view {name!r} in version {version}, which this library does not know: "
                    "upgrade commonplace, or open the book with the capability that brings it"
                )
        return [
            view for view in registry.views.values() if view.version > self.views.get(view.name, (0, 0))[0]
        ]


def write_meta(meta: Meta) -> bytes:
    """The record with its checksum: a damaged one would point at the wrong rows."""
    raw = canonical(meta)
    return b"%08x" % crc32(raw) + raw


def read_meta(stored: bytes) -> Meta:
    """The layout is read first and by itself, so that a newer record still says that it is newer."""
    try:
        check, raw = int(stored[:8], 16), stored[8:]
        layout = decode(raw)["layout"]
    except (msgspec.MsgspecError, ValueError, KeyError, TypeError):
        check, raw, layout = -1, b"", 0
    if crc32(raw) != check:
        raise Corrupt("the book's own record is damaged: restore the book from a backup or a copy")
    if layout > LAYOUT:
        raise BookTooNew(
            f"this book has layout {layout} and this library knows up to {LAYOUT}: "
            "upgrade commonplace to open it"
        )
    return msgspec.json.decode(raw, type=Meta)


@lru_cache(1024)
def space(view: str, generation: int) -> str:
    """The engine's name for one generation of a view; the slash at its end keeps `v/1/` apart from `v/10/`."""
    return f"{view}/{generation}/"


def write_row(space: str, key: bytes, position: int, value: object) -> Row:
    """A row with its checksum, so that a damaged one is noticed when it is read."""
    if value is None:
        return Row(space, key, position, None)
    raw = canonical(value)
    return Row(space, key, position, _check(space, key, position, raw) + raw)


def _check(space: str, key: bytes, position: int, raw: bytes) -> bytes:
    return crc32(raw, crc32(key, crc32(_view_of(space), position))).to_bytes(4)


@lru_cache(1024)
def _view_of(space: str) -> bytes:
    """The view's name and not its generation: a rebuilt view has the same bytes."""
    return space.partition("/")[0].encode()


def read_row(row: Row) -> Any:
    if row.value is None:
        return None
    try:
        return decode(checked(row))
    except msgspec.MsgspecError as error:
        raise damaged(row) from error


def checked(row: Row) -> bytes:
    """The bytes of a row's value, after checking that they are the ones that were written. Damage can also change
    the type of a column, so types are checked before the checksum is."""
    value = row.value
    if (
        type(value) is not bytes
        or type(row.key) is not bytes
        or type(row.position) is not int
        or row.position < 0
        or _check(row.space, row.key, row.position, value[4:]) != value[:4]
    ):
        raise damaged(row)
    return value[4:]


def damaged(row: Row) -> Corrupt:
    """The error for a row that is not as it was written."""
    try:
        key: Key = unpack(row.key)
    except (ValueError, TypeError, IndexError):
        key = (repr(row.key),)
    return _damaged(row.space.partition("/")[0], key, row.position if type(row.position) is int else None)


def _damaged(view: str, key: Key, position: int | None = None) -> Corrupt:
    shown = "/".join(map(str, key))
    return Corrupt(
        f"the row {shown!a} of the view {view!r} is damaged: run `commonplace book rebuild`, which makes it again "
        "from the ledger",
        position,
    )


def typed(value: object, type: type[T], view: str, *key: str | int) -> T:
    """A row's value as what its view keeps. One that is nothing of the kind (a rule with a sensitivity that does not
    exist, say) is Corrupt: no default may take its place, because the default may allow more."""
    try:
        return convert(value, type)
    except msgspec.ValidationError as error:
        raise _damaged(view, key) from error
