"""How a book's durable memory is kept."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec

from ..access.commands import Denial, need, refuse
from ..access.rights import OWNER, check_actor
from ..errors import BadInput, Denied
from ..index.names import check_embedder
from ..ledger.encoding import convert
from ..ledger.events import draft
from ..ledger.overlay import Overlay
from ..ledger.reader import ViewReader
from ..ledger.views import typed
from .places import check_places
from .portions import Count, DigestRules, Salience, merged
from .requests import CONFIGURED

T = TypeVar("T")

Days = Annotated[int, msgspec.Meta(ge=0, le=36_500)]


class Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much durable memory may hold before it is consolidated; None: as much as there is."""

    max_items: Count | None = None
    max_chars: Count | None = None


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a book's durable memory is kept."""

    max_size_kb: Annotated[int, msgspec.Meta(ge=1, le=10**6)] = 100
    """What MEMORY.md may have; older entries go to its archive."""
    retention_days: Days = 30
    """How long daily logs are kept before they are archived."""
    archive_days: Days = 14
    """How long finished work stays before it is archived."""
    secrets: Literal["label", "mask", "reject"] = "label"
    """What happens to a secret in what is remembered: it is kept and not shown, taken out, or refused."""
    exclusions: Literal["advise", "refuse", "off"] = "advise"
    """What becomes of what can be read elsewhere (code, git) or will not last: it is kept with an advice, refused, or
    not looked at. In memory of the repository it is refused, unless this is off."""
    budget: Budget = Budget()
    v1: DigestRules = DigestRules()
    """What a prompt is given of it, and how much: see `DigestRules`."""
    salience: Salience = Salience()
    """How events of a run are ranked for a prompt."""
    receipts: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    """Of how many digests a receipt is written: all, a share, or with 0 none."""
    stale: Literal["mark", "leave_out"] = "mark"
    """What becomes of an item whose files, symbols or commands are not there any more."""
    person: str = "person"
    """Who edits the markdown by hand."""
    places: dict[str, str] = {}
    """Where the markdown stands if not in its usual place, such as `{"plans/artifacts/": "work/"}`: a file or folder
    of the mirror, and what it is called instead."""
    embedder: Annotated[str, msgspec.Meta(max_length=300)] = "static"
    """What makes the vectors that search compares: static, minilm, fastembed:MODEL, sentence-transformers:MODEL or
    openai:MODEL@URL. A new book has the best that was installed when it was made (`best_embedder`)."""


def settings_of(views: ViewReader) -> Settings:
    row = views.get("memory.settings", "")
    if row is None:
        return Settings(embedder=views.meta.embedder)
    return typed(row, Settings, "memory.settings", "")


class Configure(msgspec.Struct, frozen=True):
    by: str
    fields: dict[str, Any]


FOR_THE_OWNER = {
    "person": "says who edits the markdown, because that is a person's right",
    "embedder": "chooses the embedder, because it is given everybody's texts",
}


def decide_configure(overlay: Overlay, request: Configure) -> Settings | Denied:
    refused = need(overlay, request.by, "keep_memory", "settings")
    if refused is None and "person" in request.fields:
        request.fields["person"] = check_actor(request.fields["person"])
    for name, why in FOR_THE_OWNER.items():
        if refused is None and name in request.fields and request.by != OWNER:
            denial = Denial(request.by, f"memory.{name}", "settings")
            refused = refuse(overlay, denial, f"only the owner {why}")
    if refused:
        return refused
    before = msgspec.to_builtins(settings_of(overlay))
    fields = merged(before, request.fields)
    if "places" in request.fields:
        fields["places"] = request.fields["places"]  # replaced as a whole
    settings = converted(fields, Settings, "the settings of memory")
    check_places(settings.places)
    check_embedder(settings.embedder)
    after = msgspec.to_builtins(settings)
    if after != before:
        overlay.emit(draft(CONFIGURED, actor=request.by, payload=after))
    return settings


def converted(fields: dict[str, Any], type: type[T], name: str) -> T:
    """Plain data as a struct. Raises BadInput that lists its fields."""
    try:
        return convert(fields, type, strict=True)
    except msgspec.ValidationError as error:
        raise BadInput(f"that is not {name}: {error}. The fields are {_fields_of(type)}") from None


def _fields_of(type: Any) -> str:
    """The names of a struct's fields with what is allowed in them."""
    from msgspec import inspect

    struct, parts = inspect.type_info(type), []
    assert isinstance(struct, inspect.StructType)
    for field in struct.fields:
        allowed = ""
        if isinstance(field.type, inspect.LiteralType):
            allowed = f" ({', '.join(map(str, field.type.values))})"
        elif isinstance(field.type, inspect.StructType):
            allowed = f" ({_fields_of(field.type.cls)})"
        parts.append(field.name + allowed)
    return ", ".join(parts)
