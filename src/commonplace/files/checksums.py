"""Checksums on the pages of SQLite files: SQLite's own extension, which compares every page that is read."""

from __future__ import annotations

import threading

CHECKSUM_BYTES = 8
"""How many bytes at the end of each page a checksum takes."""

_loading = threading.Lock()
_available: bool | None = None


def page_checksums() -> bool:
    """Whether this process can check pages. The extension is loaded once; from then on every connection has it, and
    it does nothing for files whose pages have no room for checksums."""
    global _available
    with _loading:
        if _available is None:
            import apsw.sqlite_extra

            _available = apsw.sqlite_extra.has("cksumvfs") == "extension"
            if _available:
                connection = apsw.Connection(":memory:")
                try:
                    apsw.sqlite_extra.load(connection, "cksumvfs")
                finally:
                    connection.close()
    return _available
