"""Reading a thread: its messages as one reader may see them, as of a moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ..access.masking import masked
from ..errors import BadInput, NotFound, shown
from ..ledger.checks import check_name
from ..ledger.encoding import decode
from ..ledger.events import Event
from ..ledger.keys import Key
from ..ledger.labels import Labels
from ..ledger.printing import Readable
from ..ledger.reader import pages
from ..memory.viewer import Viewer
from ..memory.visibility import may_see
from .capability import MESSAGE, last_number
from .messages import Message, message_of

if TYPE_CHECKING:
    from ..ledger.ledger import Ledger

PAGE = 64
"""How many messages are read at a time."""


class ThreadSummary(Readable, msgspec.Struct, frozen=True):
    """What a model said of a conversation, from its first message up to another."""

    id: str
    text: str
    upto: int
    time: datetime
    position: int = 0
    sensitivity: str = "private"

    def __str__(self) -> str:
        return self.text


class ThreadReader:
    """The messages of one thread for one reader."""

    def __init__(self, ledger: Ledger, viewer: Viewer, key: str) -> None:
        self._ledger, self._viewer, self.key = ledger, viewer, key
        self._relabelled: dict[str, list[Labels]] = {}
        """What the labels of events were changed to, for each pair of views and rights of the viewer."""

    def newest(self, before: int | None = None, after: int = 0) -> Iterator[Event]:
        """The messages from the last one on, or from before a number on, down to after another. They are read page by
        page, for a caller that stops early."""
        return self._each(after, before, reverse=True)

    def oldest(self, after: int = 0, before: int | None = None) -> Iterator[Event]:
        return self._each(after, before, reverse=False)

    def _each(self, after: int, before: int | None, reverse: bool) -> Iterator[Event]:
        last = 2**53 if before is None else before - 1
        rows = self._viewer.views.each_between("threads.messages", (self.key,), after + 1, last, reverse)
        for page in pages((row[0] for _, row in rows), PAGE):
            yield from self.visible(page)

    def visible(self, ids: Sequence[str]) -> Iterator[Event]:
        """Those of these messages that the reader may see, in this order."""
        events = {event.id: event for event in self._ledger.events_by_id(ids)}
        keys: list[Key] = [(id,) for id in ids]
        rows = [views.get_all(decode, "labels", keys) for views, _ in self._viewer.pairs]
        self._relabelled |= {
            id: [row or {} for row in labels] for id, *labels in zip(ids, *rows, strict=True)
        }
        for id in ids:
            event = events.get(id)
            if event is not None and self.shows(event):
                yield without_secrets(event)

    def shows(self, event: Event) -> bool:
        return (
            event.kind == MESSAGE
            and event.session_id == self.key
            and not event.erased
            and all(
                may_see(views, rights, event, labels)
                for (views, rights), labels in zip(self._viewer.pairs, self._labels(event.id), strict=True)
            )
        )

    def _labels(self, id: str) -> list[Labels]:
        if id not in self._relabelled:
            self._relabelled[id] = [views.get("labels", id) or {} for views, _ in self._viewer.pairs]
        return self._relabelled[id]

    def sensitivity(self, event: Event) -> str:
        """How sensitive a message is, by its labels as they stand."""
        labels = {**event.labels, **self._labels(event.id)[0]}
        return str(labels.get("sensitivity", "private"))

    def masks(self, event: Event) -> bool:
        """Whether a message is sensitive for the secrets in it alone, which `visible` has masked."""
        return bool(event.payload.get("secrets")) and not event.parents and not self._labels(event.id)[0]

    def row(self, view: str) -> Any:
        """What a view says of the thread."""
        return self._viewer.views.get(view, self.key)

    def event(self, id: str) -> Event | None:
        """An event of the thread, if it is there and the reader may see it."""
        event = self._ledger.event(id)
        if event is None or event.erased:
            return None
        return event if all(may_see(views, rights, event) for views, rights in self._viewer.pairs) else None

    def count(self) -> int:
        """The number of the last message."""
        return last_number(self._viewer.views, self.key)

    def number_of(self, field: str, message: object) -> int:
        """The number of a message, from the number, the message, its id or that of its event."""
        if isinstance(message, Message):
            return message.number
        if isinstance(message, int) and not isinstance(message, bool):
            return message
        if not isinstance(message, str):
            raise BadInput(f"{field} {shown(message)} is no message: give a message, its number or its id")
        number = self._viewer.views.get("threads.ids", self.key, check_name(field, message))
        if number is None:
            events = self._ledger.events_by_id([message])
            number = next((event.turn for event in events if self.shows(event)), None)
        if number is None:
            raise NotFound(f"there is no message {message!r} in this thread")
        return int(number)


def without_secrets(event: Event) -> Event:
    """A message as anybody may be shown it."""
    return replace(event, payload=masked(event.payload)) if event.payload.get("secrets") else event


def last_summary(reader: ThreadReader) -> ThreadSummary | None:
    """The last summary of a thread, if there is one and the reader may see it."""
    id = reader.row("threads.summaries")
    event = None if id is None else reader.event(id)
    if event is None:
        return None
    payload = event.payload
    return ThreadSummary(
        event.id,
        payload["text"],
        payload["upto"],
        event.created_at,
        event.position,
        reader.sensitivity(event),
    )


def learned_upto(reader: ThreadReader) -> int:
    """The number of the last message that was learned from."""
    return int(reader.row("threads.learned") or 0)


def read(events: Iterator[Event], most: int | None) -> list[Message]:
    return [message_of(event) for event in islice(events, most)]
