"""Where books are: the one that was named, the one of this folder or of its repository, the one of this user."""

from __future__ import annotations

import os
import re
from pathlib import Path

DEFAULT_BOOK = ".commonplace/book.db"
HOOKS_LOG = "hooks.log"
"""The log of hooks beside a book."""


def found_book() -> str:
    """The book of this folder, or of the nearest folder above it that has one, up to the repository's root."""
    here = Path.cwd()
    root = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)
    for folder in (here, *here.parents):
        if (folder / DEFAULT_BOOK).exists():
            return DEFAULT_BOOK if folder == here else str(folder / DEFAULT_BOOK)
        if folder == root:
            break
    return DEFAULT_BOOK


def users_book() -> str:
    """The book of this user, for whatever belongs to no repository."""
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return str(Path(base) / "commonplace" / "book.db")


def public(url: str) -> str:
    """A URL without its password, also one with signs that should have been escaped."""
    url = re.sub(r"^([^/]*//[^/@:]*):.*@", r"\1:***@", url)
    return re.sub(r"([?&]password=)[^&]*", r"\1***", url)
