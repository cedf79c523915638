"""Keeping something for later: what is asked for is checked and labelled here, and decided in `remember`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..access.masking import find_secrets, masked
from ..access.rights import rights_of
from ..errors import BadInput, NotFound, shown
from ..ledger.checks import check_each, check_name, check_text, to_us, without_none
from ..ledger.encoding import blobs_of, decode, encode_payload
from ..ledger.labels import SENSITIVITY, TRUST, strictness
from ..verbs import ItemId, RunId
from .cores import core_of, may_know, no_core
from .exclusions import excluded
from .facts import checked_fact
from .items import SHAPES, check_tasks, checked, from_row, texts_in, value_text
from .reading import Settings, labelled, settings_of
from .remember import comparable, echo_among, new_item, texts_of
from .requests import Remember, RememberResult
from .showing import was_shown
from .visibility import may_be_told

if TYPE_CHECKING:
    from ..ledger.reader import ViewReader
    from ..session import Session

MOST_SHOWN = 500
"""How much of what a run was shown is compared with what it remembers."""

TRUST_OF = {"tool": "low", "import": "low"}
"""How far what comes from a source is trusted unless somebody says so."""


def remember(
    session: Session,
    text: str | None = None,
    *,
    kind: str | None = None,
    key: str | None = None,
    value: Any = ...,
    title: str | None = None,
    tags: Sequence[str] = (),
    category: str | None = None,
    confidence: float | None = None,
    sensitivity: str | None = None,
    trust: str | None = None,
    shared: bool | None = None,
    pinned: bool | None = None,
    provenance: Mapping[str, Any] | None = None,
    citations: Sequence[str] = (),
    reason: str | None = None,
    links: Sequence[tuple[str, str]] = (),
    supersedes: ItemId | Sequence[ItemId] | bool = (),
    valid_from: datetime | None = None,
    valid_until: datetime | None = None,
    occurred_at: datetime | None = None,
    observed_at: datetime | None = None,
    core: str | None = None,
    type: str | None = None,
    scope: str | None = None,
    source_type: str | None = None,
    code_refs: Sequence[Mapping[str, Any]] = (),
    tasks: Sequence[str | Mapping[str, Any]] = (),
    parents: Sequence[str] = (),
    override: str = "",
    run_id: RunId | None = None,
    session_id: str | None = None,
    id: str | None = None,
) -> RememberResult:
    """Keep something for later: a note, a procedure or an episode as text, or a fact as key and value.

    The result says what became of it: stored, merged with an item that says the same, flagged (held until somebody
    chooses) or rejected, and why. Only its author sees an item unless it is `shared` with the team or public; what the
    owner remembers is shared. Prompts show `pinned` items first. `supersedes` names the items that this one replaces,
    whose pins it inherits; True: the author's own fact under the same key. It holds from `valid_from` until
    `valid_until`. A pattern has `tasks`, with which a work can begin: titles, or
    mappings with the fields of a task, which depend on each other by their titles. `override` is a reason to keep what
    the setting `exclusions` would reject. With an `id` of your own the call can be repeated safely.

    `text` is what to remember, in words. `kind` is fact, note, procedure or episode. `value` is what a fact says
    under its key. `title` is its title. `tags` are words that it is found by. `shared` is whether the whole team
    sees it, or its author alone. `links` are other items that it is connected to, as pairs of a relation and an id.
    `valid_from` is from when on it holds. `valid_until` is until when it holds. `observed_at` is when it was
    observed. `core` is the core that it belongs to. `type` is the type of a core's entry, such as pattern.
    `source_type` is which kind of source it comes from. `code_refs` are places in code that it is about. `tasks` are
    the tasks of a pattern. `parents` are the ids of the events that it derives from. `trust` is how far it is
    trusted: high, normal or low. `pinned` is whether prompts show it before all else.
    """
    kind = ("note" if key is None else "fact") if kind is None else kind
    shape_of(kind)
    if text is not None and value is not ...:
        raise BadInput("a fact has one value: give it as value, or as text")
    check_tasks(tasks, type)
    given = without_none(
        key=key, title=title, category=category, confidence=confidence, reason=reason, core=core, type=type,
        scope=scope, tags=tags or None, citations=citations or None, links=links or None, provenance=provenance,
        source_type=source_type, code_refs=code_refs or None, pinned=pinned, tasks=tasks or None,
    )  # fmt: skip
    for field, moment in (("valid_from", valid_from), ("valid_until", valid_until)):
        if moment is not None:
            given[f"{field}_us"] = to_us(field, moment)
    if observed_at is not None:
        given["observed_us"] = to_us("observed_at", observed_at)
    if occurred_at is not None and kind == "episode":  # of anything else it is when it was said
        given["occurred_us"] = to_us("occurred_at", occurred_at)
    if value is not ...:
        given["value"] = encode_payload({"value": value})[1]["value"]
    if text is not None:
        given[shape_of(kind).text] = check_text("text", text)
    if scope == "repository":
        given["key"] = checked_fact(
            str(key), value_text(given.get("value", "")), list(citations), reason or "", category
        )[0]
    content = encode_payload(checked(kind, given))[1]
    check_no_blob(content)
    run = session.run if run_id is None else check_name("run_id", run_id)
    session.services.showing.note()
    with session.snapshot() as now:
        settings = settings_of(now)
        content, secrets, sensitivity = without_secrets_as_set(settings, content, sensitivity)
        if secrets and settings.secrets == "reject":
            return RememberResult(
                None,
                "rejected",
                f"it holds a secret ({', '.join(secrets)}): keep it in a vault",
                redacted=secrets,
            )
        labels = _labels(session, now, content, sensitivity, trust, shared)
        echo = _echo(session, now, content, run, parents)
        rule = _exclusions(now, settings, content)
    told_elsewhere = _excluded(content, kind) if rule != "off" else ""
    replaced = () if isinstance(supersedes, bool) else supersedes
    request = Remember(
        by=session.actor,
        content=content,
        labels=labels,
        run=run,
        session=session_id,
        parents=tuple(check_name("a parent", one) for one in check_each("parents", parents)),
        supersedes=tuple(check_name("an item", one) for one in check_each("supersedes", replaced)),
        replaces=supersedes is True,
        follows=shared is None and core is None,
        secrets=secrets,
        excluded=told_elsewhere if rule == "refuse" else "",
        override=masked(check_text("override", override)),
        echo_of=echo,
        id=None if id is None else check_name("id", id),
        occurred_us=None if occurred_at is None else to_us("occurred_at", occurred_at),
    )
    kept: RememberResult = session.submit("memory.remember", request, "remember")
    if kept.held is not None and kept.held.comparison:
        with session.items() as judge:
            others = [judge.item(one) for one in kept.held.items]
        theirs = [one for one in others if one is not None and one.agent != session.actor]
        was_shown(session, [one.id for one in theirs])
    if told_elsewhere and not override and kept.outcome in ("stored", "flagged"):
        return replace(kept, advice=f"it was kept, though {told_elsewhere}")
    return kept


def _labels(
    session: Session,
    views: ViewReader,
    content: dict[str, Any],
    sensitivity: str | None,
    trust: str | None,
    shared: bool | None,
) -> dict[str, str]:
    sensitivity = "private" if sensitivity is None else sensitivity
    usual = TRUST_OF.get(content.get("provenance", {}).get("source_kind", ""), "normal")
    trust = trust or usual
    for name, given, allowed in (("sensitivity", sensitivity, SENSITIVITY), ("trust", trust, TRUST)):
        if given not in allowed:
            raise BadInput(f"there is no {name} {shown(given)}: it is one of {', '.join(allowed)}")
    rights = rights_of(views, session.actor)
    if strictness("trust", trust) < strictness("trust", usual) and not rights.may("relabel"):
        raise BadInput(
            f"what comes from there is of {usual} trust until a person says otherwise: leave trust out"
        )
    if content.get("core") is not None:
        core = core_of(views, content["core"])
        if not may_know(rights, core):
            raise NotFound(no_core(core.id))
        shared = core.visibility != "private"
    elif shared is None:
        shared = session.is_owner
    team = {"audience": "team"} if shared else {}
    return {"sensitivity": sensitivity, "trust": trust, **team}


def _echo(
    session: Session, views: ViewReader, content: dict[str, Any], run: str | None, parents: Collection[str]
) -> str:
    """Something that was shown to this actor, in this run or outside any, that says all that this does. What was
    logged and is named as a parent is not repeated but promoted."""
    actor = session.actor
    if session.is_owner:
        return ""
    ids = {
        id: None
        for where in dict.fromkeys((run or "", ""))
        for _, id in views.scan("memory.heard", where, actor, limit=MOST_SHOWN, reverse=True)
    }
    rows = zip(ids, views.get_all(decode, "memory.items", [(id,) for id in ids]), strict=True)
    items = {id: labelled(views, from_row(row)) for id, row in rows if row is not None}
    rights = rights_of(views, actor)
    others = session.ledger.events_by_id([id for id in ids if id not in items and id not in parents])
    events = [event for event in others if may_be_told(views, rights, event)]
    new = new_item(actor, content, session.ledger.moment())
    shown = [(item.id, texts_of(item)) for item in comparable(rights, new, items.values())]
    shown += [(event.id, [text for text in texts_in(event.payload) if " " in text]) for event in events]
    return echo_among(content, shown)


def without_secrets_as_set(
    settings: Settings, content: dict[str, Any], sensitivity: str | None
) -> tuple[dict[str, Any], tuple[str, ...], str | None]:
    """What is found of secrets, and what the book's settings say to do about them."""
    found = tuple(sorted({one.kind for text in texts_in(content) for one in find_secrets(text)}))
    if found and settings.secrets == "mask":
        return masked(content), found, sensitivity
    return content, found, "sensitive" if found else sensitivity


def check_no_blob(content: dict[str, Any]) -> None:
    """Raises BadInput if an item holds a blob."""
    if blobs_of(content):
        raise BadInput("an item holds no blob: keep what it says as text, or make an artifact of the file")


def _excluded(content: dict[str, Any], kind: str) -> str:
    """Why this does not belong into durable memory, if it does not. What happened may always be told."""
    if kind == "episode":
        return ""
    subject = f"{content['title']}: " if content.get("title") else ""
    text = content.get("body") or (content["value"] if isinstance(content.get("value"), str) else "")
    why = excluded(subject + text) if text else None
    return "" if why is None else f"{why.reason} ({why.rule}: {why.evidence})"


def _exclusions(views: ViewReader, settings: Settings, content: Mapping[str, Any]) -> str:
    """What becomes of what is told elsewhere: as the core says, else the book. The repository's memory takes none."""
    core = content.get("core")
    rule = None if core is None else core_of(views, core).config.exclusions
    rule = rule or settings.exclusions
    return "refuse" if rule == "advise" and content.get("scope") == "repository" else rule


def shape_of(kind: str) -> Any:
    """The fields of a kind of item. Raises BadInput."""
    if not isinstance(kind, str) or kind not in SHAPES:
        raise BadInput(f"there is no kind of item {shown(kind)}: the kinds are {', '.join(SHAPES)}")
    return SHAPES[kind]
