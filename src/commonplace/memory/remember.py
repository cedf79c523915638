"""Keeping something for later: the verb checks and labels it, and `judging` decides what becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from inspect import signature
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from ..access.masking import kinds_of_secrets, masked
from ..access.rights import THREAD, Rights, rights_of
from ..errors import BadInput, CommonplaceError, NotFound, shown
from ..ledger.checks import check_each, check_flag, check_name, check_text, to_us, without_none
from ..ledger.encoding import blobs_of, encode_payload
from ..ledger.labels import SENSITIVITY, TRUST, strictness
from ..verbs import RunId
from .cores import core_of, may_know, no_core
from .echoes import MOST_SHOWN, comparable, echo_among, texts_of
from .exclusions import excluded
from .fields import check_one_of, check_tasks, checked, shape_of
from .items import Held, Item, texts_in, value_text
from .reading import items_at
from .repository_facts import checked_fact
from .requests import ItemOrId, Previewed, Remember, RememberMany, RememberResult, check_items, id_of
from .settings import Settings, settings_of
from .standing import new_item
from .visibility import may_be_told

if TYPE_CHECKING:
    from ..ledger.reader import ViewReader
    from ..session import Session

TRUST_OF = {"tool": "low", "import": "low"}
"""How far what comes from a source is trusted unless somebody says so."""

AT_ONCE = 100
"""How many entries of `add_many` go into one commit."""

NONE_KEPT = "nothing was kept"

AS_GIVEN = (
    "text", "key", "value", "title", "category", "confidence", "reason", "core", "type", "provenance", "metadata",
    "pinned", "source_type", "valid_from", "valid_until", "observed_at",
)  # fmt: skip
"""The parameters of `remember` that are fields of an item as they are."""

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
    metadata: Mapping[str, Any] | None = None,
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
    scope: str | None = None,
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
    under its key. `title` is its title. `shared` is whether the whole team
    sees it, or its author alone. `links` are other items that it is connected to, as pairs of a relation and an id.
    `valid_from` is from when on it holds. `valid_until` is until when it holds. `observed_at` is when it was
    observed. `core` is the core that it belongs to. `type` is the type of a core's entry, such as pattern.
    `source_type` is which kind of source it comes from. `code_refs` are places in code that it is about. `tasks` are
    the tasks of a pattern. `parents` are the ids of the events that it derives from. `trust` is how far it is
    trusted: high, normal or low. `pinned` is whether prompts show it before all else. `repository` is whether it is
    a fact of the repository.
    """
    fields = {**locals()}
    del fields["session"]
    asked = _asked(session, fields)
    return _submitted(session.in_scope(scope).for_run(asked.request.run), [asked])[0]


def add_many(
    session: Session,
    items: Iterable[str | Mapping[str, Any]],
    *,
    shared: bool | None = None,
    scope: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[RememberResult]:
    """Remember many entries, a hundred of one scope in each commit; see `Memory.add_many`."""
    session.check_may_act("remember")
    asked = _checked_entries(session, items, {**PARAMETERS, "shared": shared, "scope": scope})
    places = {each.place: None for each in asked}
    sessions = {(scope, run): session.in_scope(scope).for_run(run) for scope, run in places}
    results = list[RememberResult]()
    try:
        while len(results) < len(asked):
            rest = asked[len(results) :][:AT_ONCE]
            _, batch = next(groupby(rest, key=lambda each: sessions[each.place].bound))
            results += _submitted(sessions[rest[0].place], list(batch), len(results))
            if progress is not None:
                progress(len(results), len(asked))
    except BaseException as error:
        kept = (
            f"{len(results):,} of {len(asked):,} entries are kept, and none after them"
            if results
            else NONE_KEPT
        )
        if isinstance(error, CommonplaceError):
            error.args = (f"{error} ({kept})",)
        else:
            error.add_note(kept)
        raise
    return results


def _checked_entries(
    session: Session, items: Iterable[str | Mapping[str, Any]], defaults: Mapping[str, Any]
) -> list[Asked]:
    """Check every entry before anything is written. Raises BadInput that names the place of the first bad one."""
    if isinstance(items, str | Mapping) or not isinstance(items, Iterable):
        raise BadInput(
            f"items {shown(items)} is not a list: give texts, or mappings with the parameters of remember"
        )
    asked = []
    for number, entry in enumerate(items, 1):
        fields = {"text": entry} if isinstance(entry, str) else entry
        try:
            if not isinstance(fields, Mapping):
                raise BadInput(
                    f"{shown(entry)} is neither a text nor a mapping with the parameters of remember"
                )
            if stray := sorted(str(name) for name in fields if name not in PARAMETERS):
                raise BadInput(f"remember has no {', '.join(stray)}: it takes {', '.join(PARAMETERS)}")
            given = {name: value for name, value in fields.items() if value is not None}
            for name in TIMES:  # from a file, times are text
                if isinstance(given.get(name), str):
                    given[name] = _time(name, given[name])
            asked.append(_asked(session, {**defaults, **given}))
        except CommonplaceError as error:
            error.args = (f"entry {number}: {error} ({NONE_KEPT})",)
            raise
    return asked


def _time(name: str, text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    except ValueError:
        raise BadInput(f"{name} {shown(text)} is not a time such as 2026-01-31T09:30:00Z") from None


PARAMETERS = {
    name: field.default for name, field in signature(remember).parameters.items() if name != "session"
}
"""What `remember` takes, and what each is if it is left out."""


class Asked(NamedTuple):
    """Something to remember, and the labels that its author asks for."""

    request: Remember
    sensitivity: str | None
    trust: str | None
    shared: bool | None
    scope: str | None

    @property
    def place(self) -> tuple[str | None, str | None]:
        """What decides which scope it belongs to: the one that is named, and its run."""
        return self.scope, self.request.run


def _asked(session: Session, fields: Mapping[str, Any]) -> Asked:
    """Check the parameters of `remember`. Raises BadInput."""
    kind, key, run, id = (fields[name] for name in ("kind", "key", "run_id", "id"))
    kind = ("note" if key is None else "fact") if kind is None else kind
    check_tasks(fields["tasks"], fields["type"])
    for name, allowed in (("sensitivity", SENSITIVITY), ("trust", TRUST)):
        if fields[name] is not None:
            check_one_of(name, fields[name], allowed)
    for name in ("shared", "pinned", "repository"):
        if fields[name] is not None:
            check_flag(name, fields[name])
    lists = ("tags", "citations", "links", "code_refs", "tasks", "repository")
    content = checked_content(
        kind,
        **{name: fields[name] for name in AS_GIVEN},
        **{name: fields[name] or None for name in lists},
        occurred_at=fields["occurred_at"]
        if kind == "episode"
        else None,  # of anything else it is when it was said
    )
    supersedes, occurred_at = fields["supersedes"], fields["occurred_at"]
    request = Remember(
        by=session.actor,
        content=content,
        labels={},
        run=session.run if run is None else check_name("run_id", run),
        acting_in=session.run,
        session=fields["session_id"],
        parents=tuple(
            check_name("a parent", id_of(parent)) for parent in check_each("parents", fields["parents"])
        ),
        supersedes=() if isinstance(supersedes, bool) else check_items("supersedes", supersedes),
        replaces=supersedes is True,
        follows=fields["shared"] is None and fields["core"] is None,
        override=masked(check_text("override", fields["override"])),
        id=None if id is None else check_name("id", id),
        occurred_us=None if occurred_at is None else to_us("occurred_at", occurred_at),
    )
    return Asked(request, *(fields[name] for name in ("sensitivity", "trust", "shared", "scope")))


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


def previewed(session: Session, not_after: tuple[str, ...] = (), **fields: Any) -> Previewed:
    """What would become of something to remember, as `remember` takes it; nothing is kept. It is refused if an item
    that says the same has one of the statuses `not_after`."""
    asked = _asked(session, {**PARAMETERS, **fields})
    asked = asked._replace(request=replace(asked.request, not_after=not_after))
    session = session.in_scope(asked.scope).for_run(asked.request.run)
    preview: Previewed = session.submit("memory.preview", judge(session, [asked])[0].request, "remember")
    _note_compared(session, [preview.result])
    return preview


def remember_or_hold(
    session: Session, hold: Held | None, not_after: tuple[str, ...] = (), **fields: Any
) -> RememberResult:
    """Remember something, as `remember` takes it; or hold it in the inbox, if it says why. It is refused if an item
    that says the same has one of the statuses `not_after`."""
    asked = _asked(session, {**PARAMETERS, **fields})
    asked = asked._replace(request=replace(asked.request, hold=hold, not_after=not_after))
    return _submitted(session.in_scope(asked.scope).for_run(asked.request.run), [asked])[0]


def _submitted(session: Session, asked: Sequence[Asked], before: int | None = None) -> list[RememberResult]:
    """Judge what needs no lock, and submit the rest in one commit. Answers for the first entries, perhaps not for all:
    what follows an answer that shows items of others has to be judged anew. `before` is how many entries of the same
    call were submitted earlier; None for a call with one entry."""
    judged = judge(session, asked, before)
    requests = tuple(each.request for each in judged)
    if before is None:
        results: list[RememberResult] = [session.submit("memory.remember", requests[0], "remember")]
    else:
        results = session.submit("memory.remember_many", RememberMany(requests, before), "remember")
    _note_compared(session, results)
    return [each.advised(result) for each, result in zip(judged, results, strict=False)]


def _note_compared(session: Session, results: Sequence[RememberResult]) -> None:
    """Note the items of others that an answer shows beside what is held."""
    seen = [id for result in results if result.held and result.held.comparison for id in result.held.items]
    if seen:
        with session.viewer() as viewer:
            others = [viewer.item(id) for id in seen]
        session.was_shown([item.id for item in others if item is not None and item.agent != session.actor])


def judge(session: Session, asked: Sequence[Asked], before: int | None = None) -> list[Judged]:
    """Judge what needs no lock: secrets, labels, echoes, exclusions."""
    session.services.showing.note_all()
    judged = list[Judged]()
    with session.snapshot() as now:
        judging = _Judging(session, now)
        for number, each in enumerate(asked, (before or 0) + 1):
            try:
                judged.append(judging.judged(each))
            except CommonplaceError as error:
                if before is not None:
                    error.args = (f"entry {number}: {error}",)
                raise
    return judged


class Judged(NamedTuple):
    """A request with all that needs no lock judged; and what can be read elsewhere, as an advice."""

    request: Remember
    elsewhere: str = ""

    def advised(self, result: RememberResult) -> RememberResult:
        if self.elsewhere and not self.request.override and result.outcome in ("stored", "flagged"):
            return replace(result, advice=f"it was kept, though {self.elsewhere}")
        return result


class _Judging:
    """What is judged of entries without a lock, in one state of the book: what all of them need is read once."""

    def __init__(self, session: Session, now: ViewReader) -> None:
        self._session, self._now, self._settings = session, now, settings_of(now)
        self._rights = rights_of(now, session.actor)
        self._heard = dict[tuple[str | None, tuple[str, ...]], Heard]()
        """What was shown to the author, by the run and the parents that an entry names."""

    def judged(self, asked: Asked) -> Judged:
        request, now = asked.request, self._now
        content, secrets, sensitivity = without_secrets_as_set(
            self._settings, request.content, asked.sensitivity
        )
        place = (request.run, request.parents)
        if place not in self._heard:
            self._heard[place] = _heard(self._session, now, self._rights, *place)
        rule = _exclusions(now, self._settings, content)
        elsewhere = _excluded(content) if rule != "off" else ""
        asked = asked._replace(sensitivity=sensitivity)
        request = replace(
            request,
            content=content,
            secrets=secrets,
            labels=_labels(self._session, now, self._rights, content, asked),
            echo_of=_echo(self._session, self._rights, content, self._heard[place], request.parents),
            excluded=elsewhere if rule == "refuse" else "",
        )
        return Judged(request, elsewhere)


def _labels(
    session: Session, views: ViewReader, rights: Rights, content: Mapping[str, Any], asked: Asked
) -> dict[str, str]:
    usual = _usual_trust(content)
    sensitivity, trust, shared = asked.sensitivity or "private", asked.trust or usual, asked.shared
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


def _usual_trust(content: Mapping[str, Any]) -> str:
    return TRUST_OF.get(content.get("provenance", {}).get("source_kind", ""), "normal")


class Heard(NamedTuple):
    """What was shown to an actor, in a run or outside any: items, and what events say."""

    items: Sequence[Item] = ()
    events: Sequence[tuple[str, list[str]]] = ()


def _heard(
    session: Session, views: ViewReader, rights: Rights, run: str | None, parents: Collection[str]
) -> Heard:
    """What was shown to this actor. What was logged and is named as a parent is not repeated but promoted."""
    actor = session.actor
    if session.is_owner:
        return Heard()
    ids = {
        id: None
        for where in dict.fromkeys((run or "", ""))
        for _, id in views.scan("memory.heard", views.scope, where, actor, limit=MOST_SHOWN, reverse=True)
    }
    items = {item.id: item for item in items_at(views, ids)}
    others = session.ledger.events_by_id([id for id in ids if id not in items and id not in parents])
    # What was said in a conversation is a source: keeping it is no echo, however it was found.
    told = [event for event in others if not event.kind.startswith(THREAD)]
    events = [event for event in told if may_be_told(views, rights, event)]
    texts = [(event.id, [text for text in texts_in(event.payload) if " " in text]) for event in events]
    return Heard([*items.values()], texts)


def _echo(
    session: Session, rights: Rights, content: Mapping[str, Any], heard: Heard, parents: Collection[str]
) -> str:
    """Something that was shown to this actor that says all that this does. A fact of the repository does not repeat the
    items that it is derived from: they are promoted."""
    if not any(heard):
        return ""
    new = new_item(session.actor, content, session.ledger.moment())
    promoted = parents if content.get("repository") else ()
    items = comparable(rights, new, [item for item in heard.items if item.id not in promoted])
    return echo_among(content, [*((item.id, texts_of(item)) for item in items), *heard.events])


def without_secrets_as_set(
    settings: Settings, content: Mapping[str, Any], sensitivity: str | None
) -> tuple[Mapping[str, Any], tuple[str, ...], str | None]:
    """The content after the book's settings for secrets were applied, the kinds of secrets in it, its sensitivity."""
    kinds = kinds_of_secrets(texts_in(content))
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
