"""Events as sentences: who did what to what."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..ledger.printing import number
from .draw import clean, short

if TYPE_CHECKING:
    from ..ledger.events import Event

Title = Callable[[str], str]
"""What a task is called, by its id."""

SAID = ("text", "summary", "goal", "message", "content", "thought", "result")
"""Where a payload says something."""


def sentence(event: Event, title: Title = short) -> str:
    """What an event says, on one line. One that was erased says who did it and that it is gone."""
    who = clean(event.actor)
    if event.erased:
        return f"{who}: {event.kind} (erased)"
    template = SENTENCES.get(event.kind)
    told = "" if template is None else template(_Payload(event.payload, title))
    return clean(f"{who} {told}" if told else f"{who}: {event.kind}{_gist(event.payload)}")


def _gist(payload: Mapping[str, Any]) -> str:
    """What a payload says if it says something, else all of it."""
    said = (payload.get(name) for name in SAID)
    text = next((value for value in said if isinstance(value, str) and value.strip()), None)
    if text is not None:
        return f": {text.strip()[:1000]}"
    return f": {json.dumps(payload, ensure_ascii=False)[:1000]}" if payload else ""


class _Payload:
    """The fields of a payload as words of a sentence."""

    def __init__(self, payload: Mapping[str, Any], title: Title) -> None:
        self.payload, self.title = payload, title
        self.said = payload.get("said") or {}

    def __getitem__(self, name: str) -> str:
        value = self.payload.get(name, self.said.get(name))
        return (
            ""
            if value is None
            else value
            if isinstance(value, str)
            else json.dumps(value, ensure_ascii=False)
        )

    @property
    def task(self) -> str:
        id = self.payload.get("task_id") or self.payload.get("task")
        return f"“{self.title(id)}”" if id else ""

    @property
    def about(self) -> str:
        """The task that something was said about."""
        return f" (about {self.task})" if self.task else ""

    def why(self, *names: str) -> str:
        """A reason that was given, after a colon."""
        text = next((self[name] for name in names or ("reason", "why") if self[name]), "")
        return f": {text}" if text else ""

    def set(self, name: str) -> Any:
        """What a field of its first task became."""
        return next(
            (task["set"].get(name) for task in self.payload.get("tasks") or () if "set" in task), None
        )


def _said(event: _Payload) -> str:
    """A message of a conversation, in the words of the one who spoke."""
    shape = event.payload["message"]
    content = shape.get("content") or shape.get("output") or ""
    texts = (
        [part.get("text") for part in content if isinstance(part, dict)]
        if isinstance(content, list)
        else [content]
    )
    said = " ".join(text for text in texts if isinstance(text, str))
    return f"added a message of {shape.get('name') or shape.get('role', 'assistant')}: {said or '(no words)'}"


def _created(event: _Payload) -> str:
    item = event.payload.get("content") or event.payload.get("item") or event.payload
    text = item.get("body") or item.get("text") or item.get("title")
    if item.get("key"):
        text = f"{item['key']}: {json.dumps(item.get('value'), ensure_ascii=False)}"
    return f"remembered {text}" if text else "remembered something"


def _updated(event: _Payload) -> str:
    acts = {
        "patched": "revised", "new": "settled, for the new one,", "old": "settled, for the old one,",
        "both": "kept both of", "create": "kept", "skip": "dropped", "merge": "merged",
    }  # fmt: skip
    items = " and ".join(short(id) for id in event.payload.get("changes", {}))
    return f"{acts.get(event['act'], event['act'])} {items}{event.why()}"


def _reported(event: _Payload) -> str:
    what = "verified" if event.payload.get("holds") else "found that it does not hold any more:"
    return f"{what} {event['item']} in {event['path']}"


def _granted(event: _Payload) -> str:
    rule = event.payload.get("rule") or {}
    given = ", ".join(
        f"{name} {value if isinstance(value, str) else json.dumps(value)}" for name, value in rule.items()
    )
    return f"gave {event['subject'].removeprefix('actor:')} {given or 'nothing'}"


def _items(event: _Payload) -> str:
    return " and ".join(short(item["id"]) for item in event.payload.get("items", ()))


def _changed(event: _Payload) -> str:
    names = ", ".join(event.payload.get("payload") or ())
    return f"wrote {names or 'nothing'} into the state"


def _work_changed(event: _Payload) -> str:
    status = str((event.payload.get("set") or {}).get("status"))
    acts = {
        "paused": "paused",
        "active": "resumed",
        "completed": "completed",
        "cancelled": "abandoned",
        "archived": "archived",
    }
    what = acts.get(status, "changed")
    return f"{what} the work {short(event['work'])}{event.why('reason', 'summary')}"


def _decided(event: _Payload) -> str:
    why = f" ({event['rationale']})" if event["rationale"] else ""
    return f"decided “{event['question']}”: {event['choice']}{why}{event.about}"


def _noted(event: _Payload) -> str:
    return f"{'cleared' if event['act'] == 'clear' else 'wrote'} {event['path']}{event.why('text')}"


def _merged(event: _Payload) -> str:
    return f"merged {', '.join(event.payload.get('fields') or ()) or 'nothing'} from {short(event['fork'])}"


def _stepped(event: _Payload) -> str:
    return f"noted that {event['node']} has {event['status']}{event.why()}"


def _shown_items(event: _Payload) -> str:
    """A digest shows items by itself, and a prompt in its long-term block, too."""
    items = [*(event.payload.get("included") or ()), *(event.payload.get("block") or ())]
    query = (event.payload.get("request") or {}).get("query")
    return f"was shown {len(items)} items" + (f" for “{query}”" if query else "")


def _curated(event: _Payload) -> str:
    return f"curated {number(len(event.payload.get('items') or ()), 'fact')} from the daily logs"


SENTENCES: dict[str, Callable[[_Payload], str]] = {
    "agent.spoke": lambda event: f"said: {event['text']}" if event["text"] else "",
    "agent.reflected": lambda event: f"reflected: {event['text']}" if event["text"] else "",
    "agent.thought": lambda event: f"thought: {event['text']}" if event["text"] else "",
    "scope.named": lambda event: f"named the scope {'/'.join(event.payload.get('path', ()))}",
    "delegation.posted": lambda event: f"posted {event['topic']} for {event['worker']}: {event['payload']}",
    "delegation.planned": lambda event: f"recorded what {event['manager']} decided in iteration {event['iteration']}",
    "delegation.digested": lambda event: f"made a context digest of {event.payload['digest']['run_id']}",
    "delegation.registered": lambda event: f"registered the tool {event['name']} for {event['worker']}",
    "delegation.curated": lambda event: f"curated what the workflow {event['workflow']} has learned",
    "thread.opened": lambda event: f"began the conversation {event['name']}",
    "thread.message": _said,
    "thread.summarized": lambda event: f"summarized a conversation: {event['text']}",
    "thread.learned": lambda event: f"learned from the messages up to {event['upto']}",
    "thread.flushed": lambda event: f"logged the results of a conversation up to its message {event['upto']}",
    "thread.compacted": lambda _event: "compacted a conversation",
    "memory.item.created": _created,
    "memory.item.updated": _updated,
    "memory.item.consolidated": lambda event: f"consolidated {_items(event) or 'items'}{event.why()}",
    "memory.item.forgotten": lambda event: f"forgot {_items(event) or 'items'}{event.why()}",
    "memory.item.deleted": lambda event: f"dropped {_items(event) or 'items'}{event.why()}",
    "memory.recalled": lambda _event: "was shown what is remembered",
    "memory.checked": lambda event: f"checked {short(event['item'])} against its files",
    "memory.configured": lambda _event: "changed the settings of memory",
    "memory.curated": _curated,
    "memory.core.set": lambda event: f"set up the core {event['id']}",
    "memory.logged": lambda event: f"logged: {event['text']}",
    "memory.noted": _noted,
    "memory.gated": lambda event: f"came to a gate in {event['path']}",
    "memory.verified": _reported,
    "memory.archived": lambda event: f"{'brought back' if event.payload.get('back') else 'put aside'} {event['what']}",
    "receipt.written": _shown_items,
    "premise.changed": lambda _event: "is to be told that something changed that it relied on",
    "access.granted": _granted,
    "access.denied": lambda event: f"denied {event['actor']} to {event['act']} {event['what']}",
    "access.viewed": lambda event: f"looked at the book as {event['of']}",
    "access.token.created": lambda event: f"created the token {event['token']} for {event['actor']}",
    "access.token.revoked": lambda event: f"revoked the token {event['token']}",
    "access.relabelled": lambda event: f"relabelled {short(event['id'])}{event.why()}",
    "event.erased": lambda event: f"erased {len(event.payload.get('events') or ())} events{event.why()}",
    "run.started": lambda event: "started the run" + (f" of {event['workflow']}" if event["workflow"] else ""),
    "run.finished": lambda event: f"ended the run: {event['status']}{event.why()}",
    "state.opened": lambda _event: "opened the state of the run",
    "state.changed": _changed,
    "state.stepped": _stepped,
    "state.closed": lambda event: f"closed the state: {event['status']}{event.why()}",
    "state.merged": _merged,
    "state.violated": lambda _event: "broke the contract of its output",
    "work.created": lambda event: f"began the work “{event['name']}”{event.why('goal')}",
    "work.changed": _work_changed,
    "work.decided": _decided,
    "work.discovered": lambda event: f"found out: {event['text']}{event.about}",
    "work.produced": lambda event: f"made {event['path']}{event.about}",
    "work.branched": lambda event: f"asked to choose: {event['question']}",
    "work.nudged": lambda event: f"nudged {event['target']}: {event['text']}",
    "work.delivered": lambda event: f"was told {len(event.payload.get('nudges') or ())} nudges",
    "work.acknowledged": lambda _event: "heard a nudge",
    "work.asked": lambda event: f"asked to allow: {event['action']}{event.why('risk')}{event.about}",
    "work.answered": lambda event: f"{event['verdict']} {short(event['about'])}{event.why()}",
    "work.escalated": lambda event: f"asked for help: {event['text']}{event.about}",
    "work.resolved": lambda event: f"settled {short(event['about'])}{event.why('answer')}",
    "work.led": lambda event: f"took the lead of the work {short(event['work'])}",
    "work.handled": lambda _event: "dealt with a step",
    "work.judged": lambda event: f"judged {short(event['about'])}: {event['verdict']}{event.why()}",
    "task.added": lambda event: f"added the task “{event['title']}”" if event["title"] else f"added {event.task}",
    "task.edited": lambda event: f"edited {event.task}",
    "task.linked": lambda event: f"changed what {event.task} waits for",
    "task.assigned": lambda event: f"gave {event.task} to {event.set('for_agent') or 'anybody'}",
    "task.blocked": lambda event: f"blocked {event.task}{event.why()}",
    "task.unblocked": lambda event: f"unblocked {event.task}{event.why()}",
    "task.cancelled": lambda event: f"cancelled {event.task}{event.why()}",
    "task.claimed": lambda event: f"claimed {event.task}",
    "task.released": lambda event: f"gave back {event.task}{event.why()}",
    "task.lost": lambda event: f"saw that {event['holder']} had lost {event.task}{event.why()}",
    "task.due": lambda event: f"let {event.task} be tried again",
    "task.submitted": lambda event: f"handed in {event.task} for review{event.why()}",
    "task.completed": lambda event: f"completed {event.task}{event.why('summary')}",
    "task.failed": lambda event: f"failed at {event.task}{event.why()}",
    "task.retried": lambda event: f"let {event.task} be tried again{event.why()}",
    "task.reviewed": lambda event: f"reviewed {event.task}: {event.set('review_status')}{event.why('comments')}",
}  # fmt: skip
