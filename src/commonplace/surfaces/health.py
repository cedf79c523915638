"""What is said about a book: where it stands, what its engine promises, and what is wrong with it."""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from .. import __version__
from ..book import Book
from ..engines import locate
from ..engines.contract import Facts
from ..errors import CommonplaceError
from ..index.names import best_embedder
from ..ledger.events import Event
from ..participant import Actor, Participant
from ..version import install_hint
from .places import public

EXTRAS = {
    "postgres": ("psycopg", "psycopg_pool"),
    "redis": ("redis",),
    "server": ("mcp", "starlette", "uvicorn"),
}
SWITCH = "commonplace book migrate-index auto --switch"
LITTLE_SPACE = 100 * 1024 * 1024

Rows = list[tuple[str, object]]
"""Names and values, for people."""


def place_of(url: str) -> Path | None:
    """The file or folder of a local book; None where a server keeps it."""
    if url.startswith(("http://", "https://")):
        return None
    engine, _ = locate(url)
    place = getattr(engine, "path", None) or getattr(engine, "folder", None)
    engine.close()
    return place if isinstance(place, Path) else None


def size_of(place: Path | None) -> int | None:
    if place is None or not place.exists():
        return None
    beside = [path for path in place.parent.iterdir() if path.name.startswith(place.name)]
    files = place.rglob("*") if place.is_dir() else beside
    return sum(path.stat().st_size for path in files if path.is_file())


def standing(book: Book, url: str, reader: Participant | None = None) -> dict[str, Any]:
    """Where a book stands, all as of one head, as a reader (the owner unless said) may see it."""
    status = book.admin.status()
    head = status.head
    reader = book if reader is None else reader
    last = next(iter(last_events(reader, 0, head, 1)), None) if head else None
    shown = None if last is None else next(book.access.redacted([last]))
    return {
        "name": status.name,
        "id": status.id,
        "url": public(url),
        "engine": status.facts.engine,
        "head": head,
        "hash": status.hash if head and not isinstance(reader, Actor) else None,
        "runs": len(reader.runs.list(at=head)),
        "last_event": None if shown is None else shown.as_dict(),
        "size": size_of(place_of(url)),
        "horizon": status.horizon,
    }


def last_events(book: Participant, after: int, end: int, count: int, **wanted: Any) -> Iterable[Event]:
    """The last events that match, looked for from the end in ever longer stretches."""
    stretch = count = min(count, end)
    while True:
        start = max(after, end - stretch)
        events = deque(book.events(start, at=end, **wanted), count)
        if len(events) == count or start == after:
            return events
        stretch *= 8


def promises(facts: Facts) -> Rows:
    hosts = {"one": "processes of one host may share it", "many": "many hosts may share it"}
    purge = {
        "immediate": "clears the store's files at once",
        "deferred": "takes effect in time",
        "operator": "leaves something to the operator",
    }
    return [
        ("engine", facts.engine),
        ("durable", f"{facts.durable}: {facts.durable_why}"),
        ("hosts", hosts[facts.hosts]),
        ("purge", purge[facts.purge] + (f": {facts.purge_why}" if facts.purge_why else "")),
        *(("note", note) for note in facts.notes),
    ]


def surroundings(url: str) -> dict[str, Any]:
    """What can be told without opening the book."""
    import platform
    from importlib.metadata import version
    from importlib.util import find_spec

    import apsw

    report: dict[str, Any] = {
        "url": public(url),
        "versions": {
            "commonplace": __version__,
            "python": platform.python_version(),
            "apsw": version("apsw"),
            "sqlite": apsw.sqlite_lib_version(),
            "msgspec": version("msgspec"),
        },
        "extras": {extra: all(find_spec(name) for name in needed) for extra, needed in EXTRAS.items()},
    }
    try:
        place = place_of(url)
    except CommonplaceError:
        return report  # a URL that names no engine: opening it says so
    if place is not None:
        there = next(one for one in (place, *place.absolute().parents) if one.exists())
        report |= {"size": size_of(place), "free": shutil.disk_usage(there).free}
    return report


def condition(book: Book) -> dict[str, Any]:
    """What the opened book tells about itself."""
    status = book.admin.status()
    told = {
        name: getattr(status, name)
        for name in ("facts", "head", "acknowledged", "views", "damage", "clock", "slow_clock")
    }
    file, memory = book.admin.index_size()
    left_out = book.search("memory", limit=1).left_out
    missing = next((one.why for one in left_out if one.what == "semantic"), "")
    embedder = {"used": book.memory.settings().embedder, "best": best_embedder(), "missing": missing}
    return told | {"index": {"file": file, "memory": memory}, "embedder": embedder}


def ills(report: dict[str, Any]) -> Iterator[str]:
    """What is wrong, each with what to do about it."""
    facts: Facts | None = report.get("facts")
    if facts is not None and facts.durable == "no":
        yield f"what is recorded here can be lost: {facts.durable_why}. Keep what matters on a durable engine"
    for trouble in ("damage", "clock"):
        if report.get(trouble):
            yield report[trouble]
    if report.get("embedder", {}).get("missing"):
        yield report["embedder"]["missing"]
    head, acknowledged = report.get("head", 0), report.get("acknowledged", 0)
    if acknowledged > head:
        yield (
            f"events up to {acknowledged} had been acknowledged and the book ends at {head}, so some were lost: "
            "restore it from a copy, or go on if you put an earlier backup in place on purpose"
        )
    free, needed = report.get("free"), max(LITTLE_SPACE, report.get("size") or 0)
    if free is not None and free < needed:
        yield f"{in_bytes(free)} are free on its disk, and purge may need {in_bytes(needed)}: make room"


def findings(report: dict[str, Any]) -> Rows:
    rows: Rows = [("book", report["url"])]
    if "facts" in report:
        rows += promises(report["facts"])
        known = report["acknowledged"] or ("no position" if report["head"] else 0)
        rows.append(("head", f"{report['head']}; {known} is remembered as acknowledged"))
        rows.append(("views", _named(report["views"])))
        if report["slow_clock"]:
            rows.append(("note", report["slow_clock"]))
        index = {what: in_bytes(size) for what, size in report["index"].items()}
        rows.append(
            ("index", f"{index['file']} on disk, {index['memory']} in memory when something is searched")
        )
        rows.append(("embedder", _vectors(**report["embedder"])))
    if "free" in report:
        rows.append(("free disk", in_bytes(report["free"])))
    rows.append(("versions", _named(report["versions"])))
    for extra, there in report["extras"].items():
        rows.append((extra, "installed" if there else f"not installed: {install_hint(extra)}"))
    return rows


def _vectors(used: str, best: str, missing: str) -> str:
    """What makes the vectors, and what a better embedder would bring."""
    if used != "static":
        return f"{used}, which is missing here" if missing else used
    better = "a transformer finds more of what is asked in other words"
    if best == "static":
        return f"static; {better}: pip install 'commonplace-memory[semantic]', then {SWITCH}"
    return f"static; {better}, and {best} is installed: {SWITCH}"


def _named(versions: dict[str, object]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def in_bytes(size: int | None) -> str:
    return "unknown" if size is None else f"{size / 1e6:,.1f} MB" if size >= 1e5 else f"{size:,} bytes"


def ago(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit} ago"
    return f"{max(seconds, 0):.0f} seconds ago"
