"""The index: what the ledger says, made searchable. Derived, so that its file can be deleted at any time."""

from .embedders import embedder_of
from .search import Found, Hit, How, Index
from .store import Change, Doc, Erase, Gone, Put, Reword, Who, not_ours, other_database
from .vectors import Embedder, static_words

__all__ = [
    "Change",
    "Doc",
    "Embedder",
    "Erase",
    "Found",
    "Gone",
    "Hit",
    "How",
    "Index",
    "Put",
    "Reword",
    "Who",
    "embedder_of",
    "not_ours",
    "other_database",
    "static_words",
]
