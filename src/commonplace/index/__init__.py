"""The index: what the ledger says, made searchable. Derived, so that its file can be deleted at any time.

Its modules are loaded when one of their names is first asked for: most programs open a book and never search it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .documents import Change, Doc, Erase, Put, RemovedDoc, Reword, Who
    from .embedders import embedder_of
    from .search import Hit, How, Index, IndexHits
    from .store import not_ours, other_database
    from .vectors import Embedder, static_words

__all__ = [
    "Change",
    "Doc",
    "Embedder",
    "Erase",
    "Hit",
    "How",
    "Index",
    "IndexHits",
    "Put",
    "RemovedDoc",
    "Reword",
    "Who",
    "embedder_of",
    "not_ours",
    "other_database",
    "static_words",
]

_HOMES = {
    "embedders": "embedder_of",
    "search": "IndexHits Hit How Index",
    "documents": "Change Doc Erase Put RemovedDoc Reword Who",
    "store": "not_ours other_database",
    "vectors": "Embedder static_words",
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names.split():
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
