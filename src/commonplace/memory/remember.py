"""Keeping something for later: the verb checks and labels it, and `judging` decides what becomes of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..access.masking import find_secrets, masked
from ..access.rights import rights_of
from ..errors import BadInput, NotFound
from ..ledger.checks import check_each, check_name, check_text, to_us, without_none
from ..ledger.encoding import blobs_of, decode, encode_payload
from ..ledger.labels import SENSITIVITY, TRUST, strictness
from ..verbs import RunId
from .cores import core_of, may_know, no_core
from .echoes import comparable, echo_among, texts_of
from .exclusions import excluded
from .fields import check_one_of, check_tasks, checked, shape_of
from .items import from_row, texts_in, value_text
from .reading import labelled
from .repository_facts import checked_fact
from .requests import ItemOrId, Remember, RememberResult, check_items, id_of
from .settings import Settings, settings_of
from .standing import new_item
from .visibility import may_be_told

if TYPE_CHECKING:
    from ..ledger.reader import ViewReader
    from ..session import Session

MOST_SHOWN = 500
"""How much of what a run was shown is compared with what it remembers."""

TRUST_OF = {"tool": "low", "import": "low"}
"""How far what comes from a source is trusted unless somebody says so."""

TIMES = ("valid_from", "valid_until", "occurred_at", "observed_at")


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
    links: Sequence[tuple[str, ItemOrId]] = (),
    supersedes: ItemOrId | Sequence[ItemOrId] | bool = (),
    valid_from: datetime | None = None,
    valid_until: datetime | None = None,
    occurred_at: datetime | None = None,
    observed_at: datetime | None = None,
    core: str | None = None,
    type: str | None = None,
    repository: bool = False,
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
    whose pins it inherits; True: the author's own fact under the same key. `repository` makes it a fact of the
    repository, with citations, a reason and a category (see `memory.repository_fact`). It holds from `valid_from` until
    `valid_until`. A pattern has `tasks`, with which a work can begin: titles, or mappings with the fields of a task,
    which depend on each other by their titles. `override` is a reason to keep what the setting `exclusions` would
    reject. With an `id` of your own the call can be repeated safely.

    `text` is what to remember, in words. `kind` is fact, note, procedure or episode. `value` is what a fact says
    under its key. `title` is its title. `tags` are words that it is found by. `shared` is whether the whole team
    sees it, or its author alone. `links` are other items that it is connected to, as pairs of a relation and an id.
    `valid_from` is from when on it holds. `valid_until` is until when it holds. `observed_at` is when it was
    observed. `core` is the core that it belongs to. `type` is the type of a core's entry, such as pattern.
    `source_type` is which kind of source it comes from. `code_refs` are places in code that it is about. `tasks` are
    the tasks of a pattern. `parents` are the ids of the events that it derives from. `trust` is how far it is
    trusted: high, normal or low. `pinned` is whether prompts show it before all else. `repository` is whether it is
    a fact of the repository.
    """
    kind = ("note" if key is None else "fact") if kind is None else kind
    check_tasks(tasks, type)
    content = checked_content(
        kind, text=text, key=key, value=value, title=title, category=category, confidence=confidence, reason=reason,
        core=core, type=type, repository=repository or None, tags=tags or None, citations=citations or None,
        links=links or None, provenance=provenance, pinned=pinned, source_type=source_type,
        code_refs=code_refs or None, tasks=tasks or None, valid_from=valid_from,
        valid_until=valid_until, observed_at=observed_at,
        occurred_at=occurred_at if kind == "episode" else None,  # of anything else it is when it was said
    )  # fmt: skip
    request = Remember(
        by=session.actor,
        content=content,
        labels={},
        run=session.run if run_id is None else check_name("run_id", run_id),
        acting_in=session.run,
        session=session_id,
        parents=tuple(check_name("a parent", id_of(parent)) for parent in check_each("parents", parents)),
        supersedes=() if isinstance(supersedes, bool) else check_items("supersedes", supersedes),
        replaces=supersedes is True,
        follows=shared is None and core is None,
        override=masked(check_text("override", override)),
        id=None if id is None else check_name("id", id),
        occurred_us=None if occurred_at is None else to_us("occurred_at", occurred_at),
    )
    return _submitted(session, request, sensitivity, trust, shared)


def checked_content(kind: str, *, text: str | None = None, value: Any = ..., **fields: Any) -> dict[str, Any]:
    """The content of an item from the parameters of `remember`, None for those that were left out. Raises BadInput."""
    shape = shape_of(kind)
    if text is not None and value is not ...:
        raise BadInput("a fact has one value: give it as value, or as text")
    content = without_none(**fields)
    for name in TIMES:
        if name in content:
            content[f"{name.removesuffix('_at')}_us"] = to_us(name, content.pop(name))
    if value is not ...:
        content["value"] = encode_payload({"value": value})[1]["value"]
    if text is not None:
        content[shape.text] = check_text("text", text)
    if content.get("repository"):
        content["key"] = checked_fact(
            str(content.get("key")),
            value_text(content.get("value", "")),
            list(content.get("citations", ())),
            content.get("reason", ""),
            content.get("category"),
        )[0]
    content = encode_payload(checked(kind, content))[1]
    check_no_blob(content)
    return content


def _submitted(
    session: Session, request: Remember, sensitivity: str | None, trust: str | None, shared: bool | None
) -> RememberResult:
    """Judge what needs no lock (secrets, labels, echoes, exclusions), and submit the rest."""
    session.services.showing.note()
    with session.snapshot() as now:
        settings = settings_of(now)
        content, secrets, sensitivity = without_secrets_as_set(settings, request.content, sensitivity)
        if secrets and settings.secrets == "reject":
            reason = f"it holds a secret ({', '.join(secrets)}): keep it in a vault"
            return RememberResult(None, "rejected", reason, redacted=secrets)
        labels = _labels(session, now, content, sensitivity, trust, shared)
        echo = _echo(session, now, content, request.run, request.parents)
        rule = _exclusions(now, settings, content)
    elsewhere = _excluded(content) if rule != "off" else ""
    request = replace(
        request, content=content, labels=labels, secrets=secrets, echo_of=echo,
        excluded=elsewhere if rule == "refuse" else "",
    )  # fmt: skip
    result: RememberResult = session.submit("memory.remember", request, "remember")
    if result.held is not None and result.held.comparison:
        with session.viewer() as viewer:
            others = [viewer.item(id) for id in result.held.items]
        session.was_shown([item.id for item in others if item is not None and item.agent != session.actor])
    if elsewhere and not request.override and result.outcome in ("stored", "flagged"):
        return replace(result, advice=f"it was kept, though {elsewhere}")
    return result


def _labels(
    session: Session,
    views: ViewReader,
    content: Mapping[str, Any],
    sensitivity: str | None,
    trust: str | None,
    shared: bool | None,
) -> dict[str, str]:
    usual = TRUST_OF.get(content.get("provenance", {}).get("source_kind", ""), "normal")
    sensitivity = check_one_of("sensitivity", "private" if sensitivity is None else sensitivity, SENSITIVITY)
    trust = check_one_of("trust", trust or usual, TRUST)
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
    session: Session, views: ViewReader, content: Mapping[str, Any], run: str | None, parents: Collection[str]
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
    settings: Settings, content: Mapping[str, Any], sensitivity: str | None
) -> tuple[Mapping[str, Any], tuple[str, ...], str | None]:
    """The content after the book's settings for secrets were applied, the kinds of secrets in it, its sensitivity."""
    kinds = tuple(sorted({secret.kind for text in texts_in(content) for secret in find_secrets(text)}))
    if kinds and settings.secrets == "mask":
        return masked(content), kinds, sensitivity
    return content, kinds, "sensitive" if kinds else sensitivity


def check_no_blob(content: dict[str, Any]) -> None:
    """Raises BadInput if an item holds a blob."""
    if blobs_of(content):
        raise BadInput("an item holds no blob: keep what it says as text, or make an artifact of the file")


def _excluded(content: Mapping[str, Any]) -> str:
    """Why this does not belong into durable memory, if it does not. What happened may always be told."""
    if content["kind"] == "episode":
        return ""
    subject = f"{content['title']}: " if content.get("title") else ""
    text = content.get("body") or (content["value"] if isinstance(content.get("value"), str) else "")
    why = excluded(subject + text) if text else None
    return "" if why is None else f"{why.reason} ({why.rule}: {why.evidence})"


def _exclusions(views: ViewReader, settings: Settings, content: Mapping[str, Any]) -> str:
    """What becomes of what can be read elsewhere: as the core says, else the book. It is refused as a fact
    of the repository."""
    core = content.get("core")
    rule = None if core is None else core_of(views, core).config.exclusions
    rule = rule or settings.exclusions
    return "refuse" if rule == "advise" and content.get("repository") else rule
