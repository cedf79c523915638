"""The index: what the ledger says, made searchable. Derived, so that its file can be deleted at any time."""

from .search import Found, Hit, Index
from .store import Change, Doc, Erase, Gone, Put, Who, fingerprint

__all__ = ["Change", "Doc", "Erase", "Found", "Gone", "Hit", "Index", "Put", "Who", "fingerprint"]
