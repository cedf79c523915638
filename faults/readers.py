"""Every way in which an actor can read a book, as one list: what one reader is shown, path by path."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from commonplace import Actor, CommonplaceError
from commonplace.access.rights import OWNER
from commonplace.participant import Participant
from commonplace.surfaces.tools import Tools
from commonplace.work.records import RECORDS
from commonplace.work.tasks import STATUSES

Read = Callable[[], Any]
QUERIES = ("which port is open", "zq*", "port open since friday")
TITLES = ("Open the port", "Auth")
"""Tasks whose documents are read."""


def reads(me: Actor, at: Any, scratch: Path, ids: list[str]) -> Iterator[tuple[str, Read]]:
    """Each public read of an actor that takes `at`, by name. `ids` are asked for one by one."""
    yield "events", lambda: list(me.events(at=at))
    yield "runs", lambda: me.runs.list(at)
    yield "rights", lambda: me.access.rights(at=at)
    for query in QUERIES:
        for mode in ("hybrid", "keyword", "semantic"):
            yield f"search {mode} {query}", partial(me.search, query, mode=mode, at=at, explain=True)
        yield f"digest {query}", partial(digest_text, me, query, at)
    yield "search by day", lambda: me.search(mode="date_range", date_range={"start": "2000-01-01"}, at=at)
    yield "search by agent", lambda: me.search(mode="agent_filter", agent_filter=["ada", "bob"], at=at)
    yield "items", lambda: me.memory.list(status=None, at=at)
    yield "long_term", lambda: me.memory.long_term(at)
    yield "disputes", lambda: me.memory.disputes(at)
    yield "tombstones", lambda: me.memory.tombstones(at)
    yield "cores", lambda: me.memory.cores(at)
    yield "core", lambda: me.memory.core("handbook", at)
    yield "days", lambda: [me.documents.day(day, at) for day in me.documents.days(at)]
    yield "documents", lambda: [(path, me.documents.get(path, at)) for path in me.documents.list(at)]
    yield "notes", lambda: me.documents.notes(at)
    for title in TITLES:
        yield f"session {title}", partial(me.documents.session, title, at)
        yield f"task documents {title}", partial(me.documents.task, title, at)
        yield f"gates {title}", partial(me.documents.gates, title, at=at)
    yield "export", lambda: exported(lambda to: me.export(to, at=at), scratch)
    yield "export items", lambda: exported(lambda to: me.memory.export(to, at=at), scratch)
    yield "window", lambda: me.receipts.window("r1", k=50, at=at)
    yield "salient", lambda: me.receipts.salient("which port", "r1", top_k=50, at=at)
    yield "works", lambda: me.works.list(at=at)
    yield "threads", lambda: me.threads.list(at=at)
    yield "thread messages", lambda: me.thread("chat").messages(at=at)
    yield "thread context", lambda: context_text(me, at)
    yield "thread summary", lambda: me.thread("chat").summary(at=at)
    yield "thread export", lambda: exported(lambda to: me.thread("chat").export(to, at=at), scratch)
    for n, id in enumerate(ids):
        yield f"event {n}", partial(me.event, id, at)
        yield f"item {n}", partial(me.memory.get, id, at)
        yield f"traverse {n}", partial(me.memory.traverse, id, 2, at=at)
    yield from work_reads(me, at)


WORK_READS = (
    "info", "board", "tasks", "ready", "critical_path", "graph", "contributions", "inbox", "counts", "candidates",
)  # fmt: skip


def _of_work(me: Actor, name: str, at: Any) -> Any:
    return getattr(me.work("w1"), name)(at=at)


def work_reads(me: Actor, at: Any) -> Iterator[tuple[str, Read]]:
    for name in WORK_READS:
        yield f"work {name}", partial(_of_work, me, name, at)
    for status in (*STATUSES, "waiting"):
        yield f"work tasks {status}", lambda status=status: me.work("w1").tasks(status, at=at)  # type: ignore[misc]
    for kind in RECORDS:
        yield f"work {kind}", lambda kind=kind: me.work("w1").records(kind, at=at)  # type: ignore[misc]
    yield "work context", lambda: me.work("w1").context_for("t1", at=at)
    yield "work radar", lambda: me.work("w1").task("t1").radar(at=at)
    yield "work task", lambda: me.work("w1").task("t1").info(at)


def reads_now(me: Actor, scratch: Path) -> Iterator[tuple[str, Read]]:
    """The public reads of an actor that are always of now."""
    yield "watch", lambda: list(me.watch(after=0, timeout=0))
    yield "premises", lambda: [event.payload for event in me.receipts.changed_facts()]
    yield "receipts", lambda: [receipt_text(one) for one in me.receipts.list()]
    yield "bisect", lambda: me.receipts.bisect("r1")
    yield "proposals", lambda: me.memory.held("proposal")
    yield "suggestions", lambda: me.memory.suggestions()
    yield "stable digest", lambda: me.digest("which port is open", stable="task").text
    yield "prompt", lambda: told(me.prompt("find out which port is open", work=known_work(me)))
    yield "state", lambda: me.run(run_id="r1", create=False).state()
    yield "diff", lambda: me.runs.diff("r1", "r2")
    yield "work export", lambda: exported(lambda to: me.work("w1").manage.export(to), scratch)
    yield "work of t1", lambda: me.works.containing("t1").id
    yield "work watch", lambda: list(me.work("w1").watch(after=0, timeout=0))
    tools = Tools(Participant(me._session.acting_as(OWNER)))
    calls: list[tuple[str, dict[str, Any]]] = [
        ("memory.search", {"query": "which port is open"}),
        ("memory.read", {"target": "long_term"}),
        ("memory.read", {"target": "dates"}),
        ("memory.read", {"target": "daily"}),
    ]
    for tool, arguments in calls:
        yield f"tool {tool} {arguments}", partial(tools.call, tool, arguments, actor=me.name)


def told(prompt: Any) -> str:
    return f"{prompt}{prompt.left_out}"


def known_work(me: Actor) -> str | None:
    """The work for a prompt, unless this reader may not know of it."""
    return "w1" if any(one.id == "w1" for one in me.works.list()) else None


def digest_text(me: Actor, query: str, at: Any) -> str:
    digest = me.digest(query, at=at, rules={"semantic": {"enabled": True}})
    return f"{digest.text}{digest.omitted}{digest.left_out}{digest.why}"


def context_text(me: Actor, at: Any) -> str:
    context = me.thread("chat").context("which port is open", at=at)
    return f"{context.text}{context.background}{context.recent}{context.omitted}{context.left_out}"


def receipt_text(receipt: Any) -> str:
    try:
        return f"{receipt.trace}{receipt.replay()}"
    except CommonplaceError as error:
        return str(error)


def exported(write: Callable[[Path], Any], scratch: Path) -> str:
    to = scratch / "export"
    to.unlink(missing_ok=True)
    write(to)
    text = to.read_text()
    to.unlink()
    return text + "".join(
        b64decode(data).decode(errors="replace") for data in re.findall(r'"data": ?"([^"]+)"', text)
    )


def shown(read: Read) -> str:
    """What a read answers, errors included, as text."""
    try:
        answer = read()
    except CommonplaceError as error:
        return f"{type(error).__name__}: {error}"
    return flat(answer)


def flat(answer: Any) -> str:
    """All that an answer holds: `repr` of a struct names every field, and `str` is what a person reads."""
    if isinstance(answer, list | tuple):
        return "\n".join(map(flat, answer))
    if isinstance(answer, msgspec.Struct):
        return f"{answer!r}\n{answer}"
    return str(answer)
