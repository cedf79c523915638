"""What is decided about threads under the book's lock: opening, adding messages, summaries, what was learned.

A thread's key is the id of its `thread.opened` event, and its name stands in that event's payload alone, so that the
name can be erased. A message carries the key as its `session_id` and its number in the thread as its `turn`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import replace

from ..access.commands import check_emits
from ..errors import Conflict, Denied
from ..ledger.events import Draft, Event, draft
from ..ledger.keys import Key
from ..ledger.overlay import Overlay
from ..ledger.reader import ViewReader
from ..ledger.scopes import scope_of
from ..ledger.views import Capability, Kind, View
from ..memory.capability import MEMORY
from ..memory.judging import decide_remember
from ..memory.requests import Remember, RememberResult
from .messages import (
    BY_ID,
    INSTRUCTIONS,
    beginning,
    fingerprint_of,
    instructs,
    overlap,
    role_of,
    words_of_message,
)

OPENED, MESSAGE, SUMMARIZED, LEARNED = (
    "thread.opened",
    "thread.message",
    "thread.summarized",
    "thread.learned",
)

ERASED = ""
"""In place of the fingerprint of a message that was erased."""

MOST_ERASED = 100
"""How many messages at the end of a thread may have been erased so that the messages before them are looked at."""

TEAM = {"audience": "team", "sensitivity": "private"}
"""Everybody who may read the thread's scope sees it, up to their ceiling."""


class AddMessages(msgspec.Struct, frozen=True):
    """Add messages to a thread, which is opened if it is not there."""

    by: str
    run: str | None
    name: str
    drafts: tuple[Draft, ...]
    """The messages, without their thread and their number."""
    most: int
    """How many are added at most; the rest takes another request."""
    after: int | None = None
    """The number of the message that the request before it added last: if the thread still ends there, all of these are
    new. None: they are compared with the end of the thread."""
    split: tuple[int, int] | None = None
    """If a summary of the thread stands among them: how many stand before it, and the number of the last message that
    it is about. Those after it continue the thread from there, even if they say what was said before."""


class MessagesAdded(msgspec.Struct, frozen=True):
    """What became of messages: the event of each, and how many were not added, because they are there already or stand
    where one was erased."""

    ids: tuple[str, ...]
    repeated: int
    withheld: int
    last: int
    """The number of the last message of the thread."""
    moved: bool = False
    """Nothing was added, because somebody else has added messages meanwhile: compare with these."""


class Summarized(msgspec.Struct, frozen=True):
    """Record what a model says of a thread's messages up to a number."""

    by: str
    run: str | None
    thread: str
    text: str
    upto: int
    sources: tuple[str, ...]


class LearnFrom(msgspec.Struct, frozen=True):
    """Keep what a model proposes from messages, and up to which message it has read."""

    by: str
    run: str | None
    thread: str
    after: int
    upto: int
    proposals: tuple[Remember, ...]


def thread_key(views: ViewReader, name: str) -> str | None:
    """The key of the thread with a name, in the scope of the reader."""
    key: str | None = views.get("threads.names", views.scope, name)
    return key


def last_number(views: ViewReader, key: str) -> int:
    rows = views.scan("threads.messages", key, limit=1, reverse=True)
    return int(rows[0][0][1]) if rows else 0


def decide_add(overlay: Overlay, request: AddMessages) -> MessagesAdded | Denied:
    """Messages with an id are added once, and so are instructions (system, developer) that say the same. Of the other
    messages those are new that come after the longest beginning of the list that the thread ends with."""
    refused = check_emits(overlay, list(request.drafts[:1]))
    if refused:
        return refused
    key = thread_key(overlay, request.name)
    if key is None:
        opening = draft(
            OPENED, actor=request.by, payload={"name": request.name}, run_id=request.run, labels=TEAM
        )
        key = overlay.emit(opening).id
    number = last_number(overlay, key)
    if request.after not in (None, number):
        return MessagesAdded((), 0, 0, number, moved=True)
    there = {} if request.after is not None else _there(overlay, key, request.drafts, request.split)
    # An erased message is known by its place alone, where another may stand: what was erased must not come back.
    withheld = sum(not row[1] for row in there.values())
    overlay.prefetch(
        ("threads.ids", (key, each.payload["id"])) for each in request.drafts if "id" in each.payload
    )
    contents = dict[str, str]()
    for message in request.drafts:  # all of them, before the first of several commits
        _known(overlay, key, message, contents)
    ids, repeated, added = list[str](), 0, 0
    for place, message in enumerate(request.drafts):
        row = _known(overlay, key, message, contents) or there.get(place)
        if row is None and instructs(message.payload["message"]):
            row = _instruction(overlay, key, _content(message.payload, message.occurred_at))
            if row is None and "id" not in message.payload and any(known > place for known in there):
                row = _instruction(overlay, key, ERASED)
                withheld += row is not None
        if row is not None:
            ids.append(row[0])
            repeated += 1
        elif added == request.most:
            break
        else:
            number, added = number + 1, added + 1
            ids.append(overlay.emit(replace(message, session_id=key, turn=number)).id)
    return MessagesAdded(tuple(ids), repeated, withheld, number)


def _there(
    overlay: Overlay, key: str, drafts: Sequence[Draft], split: tuple[int, int] | None
) -> dict[int, Any]:
    """The rows of those turns of a list that the thread holds already, by their places in the list."""
    turns = [place for place, each in enumerate(drafts) if not instructs(each.payload["message"])]
    tokens = [
        (_token(drafts[place].payload, drafts[place].occurred_at), role_of(drafts[place].payload["message"]))
        for place in turns
    ]
    if split is None:
        rows = (row for _, row in overlay.each("threads.messages", key, reverse=True) if _is_turn(row))
        last = list(islice(rows, len(tokens) + MOST_ERASED))[::-1]
        start, length = overlap([(row[1], row[3]) for row in last], tokens)
        return dict(zip(turns[:length], last[start : start + length], strict=True))
    before, upto = sum(place < split[0] for place in turns), split[1]
    there = dict[int, Any]()
    if before:
        about = overlay.each_between("threads.messages", (key,), 1, upto)
        told = {row[1]: row for _, row in about if row[1]}
        there = {
            place: told[token]
            for place, (token, _) in zip(turns[:before], tokens, strict=False)
            if token in told
        }
    since = overlay.each_between("threads.messages", (key,), upto + 1, 2**53)
    later = list(islice((row for _, row in since if _is_turn(row)), len(turns) - before))
    length = beginning([(row[1], row[3]) for row in later], tokens[before:])
    return there | dict(zip(turns[before : before + length], later[:length], strict=True))


def _is_turn(row: Any) -> bool:
    return row[3] not in INSTRUCTIONS


def _instruction(overlay: Overlay, key: str, content: str) -> Any:
    """The row of the instruction with this fingerprint; with ERASED, of the last one that was erased."""
    number = overlay.get("threads.instructions", key, content)
    return None if number is None else overlay.get("threads.messages", key, number)


def _known(overlay: Overlay, key: str, message: Draft, contents: dict[str, str]) -> Any:
    """The row of the message that is there under the id of this one. Raises Conflict if it says something else, or if
    another message of the list with this id does: `contents` are theirs."""
    id = message.payload.get("id")
    if id is None:
        return None
    number = overlay.get("threads.ids", key, id)
    row = None if number is None else overlay.get("threads.messages", key, number)
    content = _content(message.payload, message.occurred_at)
    if contents.setdefault(id, content) != content or (row is not None and row[2] not in (ERASED, content)):
        raise Conflict(
            f"the message {id!r} is in the thread with other content: use another id, or send what was sent first"
        )
    return row


def _content(payload: dict[str, Any], time_us: int | None) -> str:
    return fingerprint_of(payload["message"], time_us)


def _token(payload: dict[str, Any], time_us: int | None) -> str:
    """By what a message is known again: its id, or else what it says."""
    return f"{BY_ID}{payload['id']}" if "id" in payload else _content(payload, time_us)


def decide_summarized(overlay: Overlay, request: Summarized) -> Event | Denied:
    payload = {"text": request.text, "upto": request.upto}
    summary = draft(
        SUMMARIZED, actor=request.by, payload=payload, run_id=request.run, session_id=request.thread,
        labels=TEAM, parents=request.sources,
    )  # fmt: skip
    return check_emits(overlay, [summary]) or overlay.emit(summary)


def decide_learn(overlay: Overlay, request: LearnFrom) -> list[RememberResult] | Denied:
    """All proposals, or none. Raises Conflict if somebody else has learned from these messages meanwhile."""
    learned = overlay.get("threads.learned", request.thread) or 0
    if learned > request.after:
        raise Conflict(f"the messages up to {learned} were learned from meanwhile: call learn again")
    results = list[RememberResult]()
    for proposal in request.proposals:
        result = overlay.run(MEMORY.name, decide_remember, proposal)
        if isinstance(result, Denied):
            return result
        results.append(result)
    payload = {"after": request.after, "upto": request.upto}
    mark = draft(
        LEARNED, actor=request.by, payload=payload, run_id=request.run, session_id=request.thread, labels=TEAM
    )  # fmt: skip
    overlay.emit(mark)
    return results


# views


def _name_of(event: Event) -> list[Key]:
    return [(scope_of(event), event.payload["name"])]


def _opened_in(event: Event) -> list[Key]:
    return [(scope_of(event), event.id)]


def _place(event: Event) -> list[Key]:
    return [(event.session_id or "", event.turn)]


def _fold_message(_key: Key, _before: Any, event: Event) -> list[Any]:
    """The event, the token by which the message is known again, the fingerprint of its content, and its role. Of one
    that was erased, the role is left and at most the token of its id: a fingerprint would tell whether a guess is
    right."""
    payload = event.payload
    if "message" not in payload:
        return [event.id, f"{BY_ID}{payload['id']}" if "id" in payload else "", ERASED, payload["role"]]
    content = _content(payload, event.occurred_us)
    return [event.id, _token(payload, event.occurred_us), content, role_of(payload["message"])]


def _instruction_keys(event: Event) -> list[Key]:
    payload, key = event.payload, event.session_id or ""
    if "message" not in payload:
        return [(key, ERASED)] if payload["role"] in INSTRUCTIONS else []
    return [(key, _content(payload, event.occurred_us))] if instructs(payload["message"]) else []


def _own_id(event: Event) -> Sequence[Key]:
    return [(event.session_id or "", event.payload["id"])] if "id" in event.payload else ()


def _without_words(payload: dict[str, Any]) -> dict[str, Any]:
    """That there was a message, of which role and under which id, holds when it is erased: it is not added again."""
    left = {"id": payload["id"]} if "id" in payload else {}
    return {**left, "role": role_of(payload["message"])}


def _of_thread(event: Event) -> list[Key]:
    return [(event.session_id or "",)]


THREADS = Capability(
    "threads",
    kinds=(
        Kind(OPENED),
        Kind(MESSAGE, residue=_without_words, says=lambda payload: words_of_message(payload["message"])),
        Kind(SUMMARIZED),
        Kind(LEARNED, residue=lambda payload: payload),
    ),
    commands={
        "threads.add": decide_add,
        "threads.summarize": decide_summarized,
        "threads.learn": decide_learn,
    },
    views=(
        View(
            "threads.names", 1, _name_of, lambda _key, _before, event: event.id,
            kinds=frozenset({OPENED}), overwrites=True,
        ),
        View(
            "threads.opened", 1, _opened_in, lambda _key, _before, event: event.position,
            kinds=frozenset({OPENED}), header_only=True, overwrites=True,
        ),
        View(
            "threads.messages", 1, _place, _fold_message,
            kinds=frozenset({MESSAGE}), insert_only=True, overwrites=True,
        ),
        View(
            "threads.ids", 1, _own_id, lambda _key, _before, event: event.turn,
            kinds=frozenset({MESSAGE}), insert_only=True, overwrites=True,
        ),
        View(
            "threads.instructions", 1, _instruction_keys, lambda _key, _before, event: event.turn,
            kinds=frozenset({MESSAGE}), overwrites=True,
        ),
        View(
            "threads.summaries", 1, _of_thread, lambda _key, _before, event: event.id,
            kinds=frozenset({SUMMARIZED}), overwrites=True,
        ),
        View(
            "threads.learned", 1, _of_thread, lambda _key, _before, event: event.payload["upto"],
            kinds=frozenset({LEARNED}), overwrites=True,
        ),
    ),
)  # fmt: skip
