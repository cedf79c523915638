"""What a coding agent calls at its own moments: when a session starts, before it compacts, when it stops.

A hook never fails its host. It ends within a deadline and with exit code 0, and what went wrong stands on stderr and in
a log beside the book. A book that is not there is not created; one that is locked is left alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..errors import BadInput, BookNotFound, CommonplaceError, NotABook, shown
from ..files.safe import Folder, access_of, open_private
from ..participant import Participant
from . import health
from .draw import clean
from .places import HOOKS_LOG, public
from .shell import Output, Shell

DEADLINE = 5.0
"""Seconds after which a hook ends, whatever it waits for."""
LOCKED = 2.0
"""Seconds to wait for the lock of the book."""
MOST_INPUT = 1_000_000
"""Bytes of standard input that are read. Hosts send less than a thousand."""
MOST_TRANSCRIPT = 400_000
"""Bytes at the end of a transcript that are read."""
MOST_MESSAGES = 100
TEXTS = ("text", "input_text", "output_text")
"""The parts of a message that somebody said."""
TYPED_IN_CURSOR = "<user_query>", "</user_query>"
"""What stands before and after the words of a user, to which Cursor adds the time, open files and so on."""
MOST_LOG = 256_000
"""Bytes after which the log of hooks begins anew."""
RESUME, BRIEF, SUMMARY = 4_000, 2_400, 3_000
"""Characters of the parts that a session starts with. Hosts cut what is longer than 10,000."""


def hook(shell: Shell, event: str, *, seconds: float = DEADLINE) -> Output:
    """Answer a hook of a coding agent, which sends JSON on standard input. session-start prints what the agent needs to
    go on with the active task, pre-compact saves the end of the conversation in the book, and stop adds a line to the
    day's log. Ends with exit code 0, whatever happens; what went wrong is on stderr and in hooks.log beside the book.

    `event` is session-start, pre-compact or stop. `seconds` is how long it takes at most."""
    answer = HookAnswer(event)
    over = threading.Timer(seconds, _give_up, (shell, event, seconds, answer))
    over.daemon = True
    over.start()
    try:
        asked = _input()
        answer.for_cursor = "cursor_version" in asked
        _find_out(shell, event, asked, answer.parts)
    except (BookNotFound, NotABook) as error:  # nothing to remember yet, and nothing is created
        print(f"commonplace: {clean(str(error))}", file=sys.stderr)
    except CommonplaceError as error:
        _report(shell, event, str(error))
    except Exception as error:  # noqa: BLE001  reported: an error of ours must not stop the host
        _report(shell, event, "".join(traceback.format_exception_only(error)).strip())
    over.cancel()
    text = answer.text()
    return Output(json.loads(text) if text else {}, [text] if text else [])


class HookAnswer:
    """What a hook has found out so far, in the form that its host takes."""

    def __init__(self, event: str) -> None:
        self._event, self.parts, self.for_cursor = event, list[str](), False

    def text(self) -> str:
        """What the host reads: above all what it adds to the context of its agent."""
        context = "\n\n".join(self.parts) if self._event == "session-start" else ""
        if self.for_cursor:
            return json.dumps({"additional_context": context} if context else {})
        if not context:
            return ""
        more = {"hookEventName": "SessionStart", "additionalContext": context}
        return json.dumps({"hookSpecificOutput": more})


def _find_out(shell: Shell, event: str, asked: dict[str, Any], parts: list[str]) -> None:
    if event not in DO:
        raise BadInput(f"event {shown(event)} is not known: name one of {', '.join(DO)}")
    shell.open(timeout=LOCKED)
    for part in DO[event](shell.acting(), asked):
        parts.append(part)  # noqa: PERF402  one by one, for when time is up


def _input() -> dict[str, Any]:
    """What the host sent. Raises BadInput for what is not one JSON object of a usual size."""
    raw = b"" if sys.stdin is None else sys.stdin.buffer.read(MOST_INPUT + 1)  # None: it is closed
    try:
        asked = json.loads(raw) if len(raw) <= MOST_INPUT else None
    except (ValueError, RecursionError):
        asked = None
    if not isinstance(asked, dict):
        raise BadInput(f"standard input is not one JSON object of up to {MOST_INPUT:,} bytes")
    return asked


def _session_of(asked: dict[str, Any]) -> str:
    id = asked.get("session_id", asked.get("conversation_id"))  # Cursor says the latter, at a start both
    return id if isinstance(id, str) and id.isprintable() and 0 < len(id) <= 100 else "unknown"


def _thread_of(me: Participant, asked: dict[str, Any]) -> str:
    return f"session {_session_of(asked)} of {getattr(me, 'name', 'the owner')}"


# what is done


def _session_start(me: Participant, asked: dict[str, Any]) -> Iterator[str]:
    """The active task as far as it came, and what is remembered about it; after a compaction, also what the
    conversation before it must not lose. All of it is rendered as data."""
    from ..learn.note_lines import objective_of

    task = objective_of(me.documents.notes()) or _held(me)
    if task:
        yield me.learn.resume(task, max_chars=RESUME).text
    else:
        started = me.learn.context_start(max_chars=RESUME)
        if started.read or started.files:
            yield started.text
    if asked.get("source") == "compact" and _thread_of(me, asked) in {
        each.name for each in me.threads.list()
    }:
        yield me.learn.compact(thread=_thread_of(me, asked), task=task or None, max_chars=SUMMARY).text
    about = task.replace("-", " ")
    known = me.prompt(about, parts=("long_term", "digest"), max_chars=BRIEF, receipt=False)
    if known.digest is None or not known.digest.item_ids:  # nothing but that nothing was found
        known = me.prompt(about, parts=("long_term",), max_chars=BRIEF, receipt=False)
    if any(known.parts.values()):
        yield str(known)


def _held(me: Participant) -> str:
    """The task that the agent has claimed last, in any work; "" if it has none."""
    name = getattr(me, "name", "")
    open_works = [info.id for info in me.works.list() if info.open]
    held = [
        task for id in open_works for task in me.work(id).tasks("in_progress") if task.assigned_to == name
    ]
    title = max(held, key=lambda task: task.started_us or 0).title if held else ""
    return title if any(map(str.isalnum, title)) else ""  # another one names no task to resume


def _pre_compact(me: Participant, asked: dict[str, Any]) -> Iterator[str]:
    """The end of the conversation goes to a thread of the book, and the results of the turn to the day's log."""
    from ..learn.note_lines import objective_of

    messages = _messages(asked.get("transcript_path"))
    if messages:
        task = objective_of(me.documents.notes())
        me.learn.compact(messages, thread=_thread_of(me, asked), task=task or None)
    yield from ()


def _stop(me: Participant, asked: dict[str, Any]) -> Iterator[str]:
    """A line of the day's log for each session and day: a host calls this after each answer."""
    text = f"Session {_session_of(asked)} answered."
    day = datetime.now(UTC).date().isoformat()
    key = f"{getattr(me, 'name', '')} {day} {text}"
    me.documents.log(text, id=f"hook-stop-{hashlib.sha256(key.encode()).hexdigest()[:24]}")
    yield from ()


DO = {"session-start": _session_start, "pre-compact": _pre_compact, "stop": _stop}


def _messages(path: object) -> list[dict[str, Any]]:
    """What the user and the agent said at the end of a transcript, each with its id. What tools returned is left out:
    it is long, and anybody may have written it."""
    if path is None:
        return []
    if not isinstance(path, str) or "\0" in path or not Path(path).is_absolute():
        raise BadInput(f"transcript_path {shown(path)} is not an absolute path")
    file = Path(path)
    fd = Folder(file.parent.resolve()).open(file.name)
    if fd is None:
        return []
    with open(fd, "rb") as transcript:
        size = transcript.seek(0, os.SEEK_END)
        transcript.seek(max(0, size - MOST_TRANSCRIPT))
        rows = transcript.read(MOST_TRANSCRIPT).split(b"\n")
    messages = [message for row in rows if (message := _message(row)) is not None]
    if size and not messages:
        raise BadInput(
            f"nothing at the end of {file} is a message of a client that is known here: the conversation is not saved"
        )
    return messages[-MOST_MESSAGES:]


def _message(row: bytes) -> dict[str, Any] | None:
    """One line of a transcript; None for one that was cut off, or is about something else. Claude Code gives a message
    an id; for Codex and Cursor, which give none, the line tells it from others."""
    id: object = hashlib.sha256(row).hexdigest()[:32]
    try:
        entry = json.loads(row)
        if entry.get("type") == "response_item":  # Codex
            role, content = entry["payload"]["role"], entry["payload"]["content"]
        elif "role" in entry:  # Cursor
            role, content = entry["role"], entry["message"]["content"]
        else:
            role, content, id = entry["message"]["role"], entry["message"]["content"], entry["uuid"]
        texts = (
            [content] if isinstance(content, str) else [p["text"] for p in content if p.get("type") in TEXTS]
        )
        text = "\n".join(texts).strip()
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        return None
    if "role" in entry:
        text = _typed_in_cursor(text)
    if role not in ("user", "assistant") or not isinstance(id, str) or not text:
        return None
    return {"role": role, "content": text, "id": id}


def _typed_in_cursor(text: str) -> str:
    begin, end = TYPED_IN_CURSOR
    _, found, rest = text.partition(begin)
    typed, closed, _ = rest.partition(end)
    return typed.strip() if found and closed else text


# what went wrong


def _give_up(shell: Shell, event: str, seconds: float, answer: HookAnswer) -> None:
    """End the process, whatever it waits for. What was found out so far is printed; a book survives that, as it does a
    kill."""
    try:
        _report(shell, event, f"it took more than {seconds:g} seconds, and was ended")
        if text := answer.text():
            print(text, flush=True)
    finally:
        os._exit(0)


def _report(shell: Shell, event: str, problem: str) -> None:
    """Say it on stderr, and add it to the log beside a local book that is there."""
    line = clean(f"hook {event}: {public(problem)}")[:1_000].replace("\n", " ")
    try:
        print(f"commonplace: {line}", file=sys.stderr, flush=True)
        place = health.place_of(shell.url)
        if place is None or not place.exists():
            return
        log = (
            place.with_name(HOOKS_LOG)
            if place.suffix == ".db"
            else place.with_name(f"{place.name}.hooks.log")
        )
        fresh = log.exists() and log.stat().st_size > MOST_LOG
        flags = os.O_WRONLY | os.O_APPEND | (os.O_TRUNC if fresh else 0)
        with open(
            open_private(log, flags, access_of(place)), "w", encoding="utf-8", errors="replace"
        ) as file:
            file.write(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {line}\n")
    except (OSError, CommonplaceError) as error:
        sys.stderr.write(f"commonplace: the log of hooks cannot be written: {clean(str(error))}\n")
