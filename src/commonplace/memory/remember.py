"""Remembering: what is judged, under the book's lock, before something becomes an item.

In this order: the right to write; whether it belongs into durable memory at all; whether it only repeats what
memory itself had said (an echo); whether it is known already; whether it is nearly so; whether it contradicts.
Nothing is dropped without a word, and nothing is decided that somebody should choose.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ..access.commands import need_tier
from ..access.rights import Rights, rights_of
from ..errors import BadInput, Conflict, Denied, Erased, NotFound
from ..index.words import jaccard, tokens
from ..ledger.checks import from_us
from ..ledger.events import Draft, draft
from ..ledger.labels import strictness
from ..ledger.overlay import Overlay
from ..ledger.reader import ViewReader
from .claims import Claim, claim_of, corrects, covered, framed, is_part, key_form, repeats, value_form
from .cores import core_of, may_know, no_core
from .items import (
    MAX_TEXT,
    WORTH,
    Corroboration,
    Held,
    Item,
    alike_places,
    alike_sketches,
    fingerprint,
    from_row,
    joined,
    marks,
    sketch,
    subject_and_fact,
    without_secrets,
    words_of,
)
from .markdown import HEAD, block, size
from .reading import MEMORY_MD, compared, item_at, may_read, of_memory, settings_of
from .requests import CREATED, RECALLED, RECEIPT, UPDATED, Remember, RememberResult
from .similar import FLAGGED
from .visibility import may_read_id, may_see

WAITS = {
    "near_duplicate": "resolve it with skip, merge, or create and a rationale",
    "dispute": "a person or librarian settles it",
    "proposal": "a librarian or person decides what a core holds",
}
"""What an item that is held waits for."""

STANDING = ("live", "held")
"""The statuses of items that keep others out: they stand, or wait for a choice."""

MOST_LINKED = 5
"""Entries that a core links a new one to by itself."""

MOST_LOOKED_AT = 1_024
"""Rows that are looked at for each word; enough unless a word is everywhere."""

MOST_COMPARED = 128
"""Items that are compared for each word, of those that are close enough and that the author may see."""


class Case(NamedTuple):
    """Something to remember, the book, and what its author may see in it."""

    overlay: Overlay
    request: Remember
    rights: Rights
    new: Item
    """What is to be remembered, with the time from which on it holds."""

    def comparable(self, id: str) -> Item | None:
        """An item, if it stands in the same place and its author may know of it."""
        found = item_at(self.overlay, id)
        if found is None or found.status not in STANDING:
            return None
        if found.core != self.request.content.get("core") or not may_read(self.rights, found):
            return None
        return found

    def repeatable(self, id: str) -> Item | None:
        """An item that is comparable, if it holds for the time that the new one speaks of."""
        found = self.comparable(id)
        return found if found is not None and holds_for(self.new, found) else None


def decide_remember(overlay: Overlay, request: Remember) -> RememberResult | Denied:
    refused = need_tier(overlay, request.by, "long_term", True, request.run)
    if request.content["kind"] == "episode":
        refused = refused or need_tier(overlay, request.by, "episodic", False, request.run)
    if refused:
        return refused
    new = new_item(request.by, request.content, overlay.now)
    case = Case(overlay, request, rights_of(overlay, request.by), new)
    if request.id is not None:
        again = _again(overlay, request)
        if again is not None:
            return again
    _check_links(case)
    if request.excluded and not request.override:
        return RememberResult(
            None,
            "rejected",
            f"{request.excluded}. If it is worth keeping all the same, say why in `override`",
        )
    echo, twin = _echo(case), _twin(case)
    if echo and (twin is None or twin.agent != request.by):  # one's own is known already, and nothing more
        return _is_echo(echo)
    if twin is not None and twin.id not in request.supersedes:
        return _known_already(overlay, request, twin)
    superseded = _superseded(case)
    follows = request.follows and any(one.shared and one.agent == request.by for one in superseded)
    follows = follows and request.labels.get("audience") != "team"
    if follows:
        request = replace(request, labels={**request.labels, "audience": "team"})
        case = case._replace(request=request)  # a correction is for those who know what it corrects
    broader = _more_specific(case)
    if broader is not None and broader.id not in request.supersedes:
        return RememberResult(
            broader.id, "rejected", f"a more specific fact of the repository is known: {broader.id}"
        )
    held = _held(case, superseded)
    if isinstance(held, RememberResult):
        return held
    return replace(_store(case, superseded, held), follows=follows)


def _again(overlay: Overlay, request: Remember) -> RememberResult | None:
    """What was answered when the same call was made before."""
    record = overlay.record_of(request.id or "")
    if record is None:
        return None
    event = overlay.event(request.id or "")
    assert event is not None
    if event.erased and event.actor == request.by:
        raise Erased(f"item {request.id!r} was erased; remembering it again restores nothing. Use another id")
    stored = event.payload.get("item", {})
    free = ("links", "key")
    same = all(stored.get(name) == value for name, value in request.content.items() if name not in free)
    same = same and key_form(stored.get("key", "")) == key_form(request.content.get("key", ""))
    labels = {name: event.labels.get(name) for name in request.labels} == request.labels
    added = {"links"} | {"pinned"} - {*request.content}  # what the book may have added by itself
    same = same and labels and {*stored} - added == {*request.content} - added
    if event.kind != CREATED or event.actor != request.by or not same:
        raise Conflict(f"{request.id!r} is already recorded with other content: use another id")
    held = event.payload.get("held")
    kept = (
        None
        if held is None
        else _known_held(overlay, rights_of(overlay, request.by), msgspec.convert(held, Held))
    )
    return RememberResult(
        event.id, "flagged" if held else "stored", "as the first time", kept, position=event.position
    )


def _known_held(overlay: Overlay, rights: Rights, held: Held) -> Held:
    """Why something is held, without the ids of items that its reader may not read."""
    items, supersedes = (
        tuple(id for id in ids if may_read_id(overlay, rights, id)) for ids in (held.items, held.supersedes)
    )
    return replace(held, items=items, supersedes=supersedes)


def _check_links(case: Case) -> None:
    for _, id in case.request.content.get("links", ()):
        known = item_at(case.overlay, id)
        if known is None or known.status == "forgotten" or not may_read(case.rights, known):
            raise NotFound(f"there is no item {id!r} to link to")


# what memory itself has said


def texts_of(item: Item) -> list[str]:
    """What an item says, in each way in which it is shown."""
    shown = without_secrets(item)
    said = subject_and_fact(shown.as_content())[1]
    return list(dict.fromkeys((item.text, shown.text, said, block(shown))))


def comparable(rights: Rights, new: Item, items: Iterable[Item]) -> list[Item]:
    """The items that somebody may see and that keep out what repeats them."""
    return [item for item in items if _keeps_out(new, item) and may_read(rights, item)]


def _keeps_out(new: Item, known: Item) -> bool:
    """Whether an item stands or waits for a choice, and holds for the time that a new one speaks of."""
    return known.status in STANDING and holds_for(new, known)


def echo_among(content: Mapping[str, Any], shown: Iterable[tuple[str, list[str]]]) -> str:
    """The id of something that was shown which says all that this does, if there is one."""
    subject, said = subject_and_fact(content)
    mine, whole = claim_of(said, subject), joined(subject, said)
    claims = list[Claim]()
    for id, texts in shown:
        theirs = [claim_of(text) for text in texts if len(text) <= MAX_TEXT]
        claims += theirs
        if any(repeats(mine, claim) for claim in theirs) or any(is_part(whole, text) for text in texts):
            return id
        if any(claim <= mine for claim in theirs) and covered(mine, claims):
            return id
    return ""


def _echo(case: Case) -> str:
    """What this repeats, if it repeats something. What replaces or contradicts something does not repeat it."""
    request = case.request
    lineage = _echo_by_lineage(case)
    if request.supersedes or request.replaces or not (request.echo_of or lineage):
        return ""
    disputes = any(contradicts(case.new, known) for known in same_key(case))
    return "" if disputes else request.echo_of or lineage


def _echo_by_lineage(case: Case) -> str:
    """The receipt that this is derived from, unless it corrects what that receipt's reader was shown."""
    overlay, request, rights, new = case
    found = ""
    for parent in request.parents:
        event = overlay.event(parent)
        if event is None or not may_see(overlay, rights, event):
            raise NotFound(f"there is no event {parent!r} to derive from: leave it out of parents")
        if event.kind in (RECALLED, RECEIPT):
            listed = [*event.payload.get("included", ()), *event.payload.get("block", ())]
            ids = dict.fromkeys((*event.payload.get("shown", ()), *(row[0] for row in listed)))
            # An item that the author may not read any more must not show in the answer, not even by a right guess.
            shown = (item_at(overlay, id) for id in ids)
            items = [item for item in shown if item is not None and may_read(rights, item)]
            standing_texts = [(item.id, texts_of(item)) for item in items if _keeps_out(new, item)]
            ended_texts = [(item.id, texts_of(item)) for item in items if not _keeps_out(new, item)]
            if items and (not standing_texts or echo_among(request.content, ended_texts)):
                continue  # what stands no more keeps nothing out
            texts = [text for _, of_item in standing_texts for text in of_item]
            found = found or ("" if corrects(joined(*subject_and_fact(request.content)), texts) else event.id)
    return found


def _is_echo(of: str) -> RememberResult:
    return RememberResult(
        None,
        "rejected",
        f"an echo: memory itself has shown this ({of}), so it is no new evidence. Say what is new",
    )


# what is there already


def partitions(request: Remember) -> list[str]:
    """Where items lie that its author may compare with: its own, and the team's."""
    return ["", request.by] if request.by else [""]


def _twin(case: Case) -> Item | None:
    """The item that says exactly the same, in the eyes of the author."""
    print_ = fingerprint(case.request.content)
    for partition in partitions(case.request):
        id = case.overlay.get("memory.exact", partition, print_)
        known = None if id is None else case.repeatable(id)
        if (
            known is not None and fingerprint(known.as_content()) == print_
        ):  # it may say something else by now
            return known
    return None


def _known_already(overlay: Overlay, request: Remember, twin: Item) -> RememberResult:
    if twin.agent != request.by and was_shown(overlay, request.by, request.run, twin.id):
        return _is_echo(twin.id)
    if not twin.current:
        held = None if twin.held is None else _known_held(overlay, rights_of(overlay, request.by), twin.held)
        return RememberResult(
            twin.id, "flagged", "the same is held already: resolve it", held, position=twin.position
        )
    if not _origin_is_new(request, twin) or _from_memory_itself(overlay, request):
        told = f"it is remembered already, from the same origin{_not_taken(request, twin)}"
        return RememberResult(twin.id, "merged", told, position=twin.position)
    said = joined(*subject_and_fact(request.content))
    if framed(said) and not framed(twin.text):
        told = f"it is remembered already, and this says itself that it repeats it{_not_taken(request, twin)}"
        return RememberResult(twin.id, "merged", told, position=twin.position)
    source = _source(request.content.get("provenance", {}))
    added = Corroboration(request.by, overlay.position + 1, request.run, source)
    changes = {"corroborated": [*twin.corroborated, added]}
    event = change(overlay, request.by, "corroborated", {twin.id: changes}, run=request.run)
    told = f"it is remembered already, and this corroborates it{_not_taken(request, twin)}"
    return RememberResult(twin.id, "merged", told, position=event)


def _not_taken(request: Remember, twin: Item) -> str:
    """What was said of an item that is known, and does not hold of it."""
    wanted = {
        name: request.content.get(name)
        for name in ("tags", "citations", "reason", "category", "confidence", "pinned", "tasks")
    }
    left = [name for name, said in wanted.items() if said and not _covers(getattr(twin, name), said)]
    begins, ends = request.content.get("valid_from_us"), request.content.get("valid_until_us")
    if begins is not None and begins != twin.valid_from_us:
        left.append("valid_from")
    if ends != twin.valid_until_us:  # also what holds without end, while the known one ends
        left.append("valid_until")
    if request.labels.get("audience") == "team" and not twin.shared:
        left.append("shared")
    if strictness("sensitivity", request.labels["sensitivity"]) > strictness("sensitivity", twin.sensitivity):
        left.append("sensitivity")
    return f"; not taken over: {', '.join(left)} (revise, share or relabel it)" if left else ""


def _covers(has: Any, said: Any) -> bool:
    return all(one in has for one in said) if isinstance(said, list | tuple) else bool(has == said)


def was_shown(views: ViewReader, actor: str, run: str | None, id: str) -> bool:
    """Whether something was shown to an actor outside any run, or to anybody in the same run."""
    if run is not None and views.scan("memory.shown", run, id, limit=1):
        return True
    return views.get("memory.shown", "", id, actor) is not None


def _origin_is_new(request: Remember, known: Item) -> bool:
    """Whether this comes from elsewhere than all that is known: somebody else, in another run, from another source."""
    origins = [(known.agent, known.run, _source(known.provenance))]
    origins += [(one.actor, one.run, one.source) for one in known.corroborated]
    source = _source(request.content.get("provenance", {}))
    return not any(
        actor == request.by or (run is not None and run == request.run) or (theirs and theirs == source)
        for actor, run, theirs in origins
    )


def _from_memory_itself(overlay: Overlay, request: Remember) -> bool:
    """Whether this was drawn from what memory holds, such as a day's log: whoever wrote that may have read it here."""
    events = (overlay.event(parent) for parent in request.parents)
    return any(event is not None and event.kind.startswith("memory.") for event in events)


def _source(provenance: dict[str, Any]) -> tuple[str, ...]:
    named = tuple(str(provenance.get(name) or "") for name in ("channel", "thread", "message", "tool_call"))
    return named if any(named) else ()


def _superseded(case: Case) -> tuple[Item, ...]:
    """The items that this one takes the place of."""
    overlay, request, rights, new = case
    found: dict[str, Item] = {}
    if request.replaces:
        found = {one.id: one for one in same_key(case) if one.agent == request.by and overlap(new, one)}
    for id in request.supersedes:
        known = item_at(overlay, id)
        if known is None or known.status in ("forgotten", "dropped") or not may_read(rights, known):
            raise NotFound(f"there is no item {id!r} to supersede")
        if known.superseded_by is not None:
            named = may_read_id(overlay, rights, known.superseded_by)
            by = f", by {known.superseded_by!r}: supersede that one" if named else ""
            raise Conflict(f"item {id!r} is superseded already{by}")
        if known.core != request.content.get("core"):
            raise BadInput(
                f"item {id!r} is an entry of {known.core or 'no core'}: supersede it with one of the same"
            )
        if known.scope != request.content.get("scope", ""):
            raise BadInput(
                f"item {id!r} is {'a' if known.scope else 'no'} fact of the repository: use memory.repository_fact"
            )
        found[id] = known
    return tuple(found.values())


def _more_specific(case: Case) -> Item | None:
    """The fact of the repository about the same subject that says all of this, and more."""
    if case.request.content.get("scope") != "repository":
        return None
    mine = tokens(str(case.new.value))
    facts = (one for one in same_key(case) if one.scope and holds_for(case.new, one))
    return next((one for one in facts if mine < tokens(str(one.value))), None)


def same_key(case: Case) -> list[Item]:
    """Facts under the same key that stand, in the eyes of the author."""
    return standing(case.overlay, case.request.content.get("key"), partitions(case.request), case.comparable)


def standing(
    views: ViewReader, key: str | None, where: Iterable[str], comparable: Callable[[str], Item | None]
) -> list[Item]:
    """The facts under a key that stand, in each of these places: the newest, and while these hold for some time only,
    those before."""
    found = []
    for partition in where if key is not None else ():
        form = key_form(str(key))
        for _, id in views.each("memory.keys", form, partition, reverse=True):
            known = comparable(id)
            if known is not None and known.current and key_form(known.key or "") == form:
                found.append(known)
                if known.valid_from_us is None and known.valid_until_us is None:
                    break  # what stands before it was weighed against it
    return found


def _held(case: Case, superseded: tuple[Item, ...]) -> Held | RememberResult | None:
    """Why the item must wait for a choice, if it must; or why it cannot be kept at all."""
    overlay, request, rights, new = case
    content, replaced = request.content, tuple(one.id for one in superseded)
    core = None if content.get("core") is None else core_of(overlay, content["core"])
    if core is not None and not may_know(rights, core):
        raise NotFound(no_core(core.id))
    if core is not None:
        needed, given = core.config.min_confidence, content.get("confidence", 0.0)
        if given < needed:
            return RememberResult(
                None, "rejected", f"its confidence is {given:g} and the core {core.id!r} asks for {needed:g}"
            )
    keeps = rights.may("keep_memory")
    foreign = [one for one in superseded if one.agent != request.by and not keeps]
    against = [one for one in same_key(case) if one.id not in replaced and contradicts(new, one)]
    if (against or foreign) and core is None:
        others = dict.fromkeys(one.id for one in (*against, *foreign))
        return Held("dispute", tuple(others), supersedes=replaced)
    near = None if core is not None and not core.config.auto_dedupe else _nearest(case, set(replaced))
    if near is not None:
        known, score = near
        return Held("near_duplicate", (known.id,), round(score, 4), supersedes=replaced)
    if core is not None and (not keeps or core.config.require_verification):
        return Held("proposal", tuple(one.id for one in against), supersedes=replaced)
    return None


# for which time


def new_item(by: str, content: Mapping[str, Any], now_us: int) -> Item:
    """What somebody says now, as an item that is not kept yet."""
    return from_now(from_row({"id": "", "agent": by, "recorded_us": now_us, **content}), now_us)


def from_now(item: Item, now_us: int) -> Item:
    """An item with the time from which on it holds: unless it says so itself or is over already, now."""
    dated = item.valid_from_us is not None or item.expired(now_us)
    return item if dated else replace(item, valid_from_us=now_us)


def holds_for(new: Item, known: Item) -> bool:
    """Whether a known item holds now, or when a new one begins to if that is later; of what is over, whether both held
    at some time. If not, it does not say what the new one says: it is neither its twin nor its near-duplicate, and the
    new one is no echo of it."""
    now_us = new.recorded_us
    if new.expired(now_us):
        return overlap(new, known)
    return known.valid(max(now_us, new.valid_from_us or now_us))


def contradicts(new: Item, known: Item) -> bool:
    """Another value under the same key, for a time that both speak of."""
    return overlap(new, known) and value_form(known.value) != value_form(new.value)


def overlap(one: Item, other: Item) -> bool:
    """Whether there is a time for which both hold."""
    return not (_before(one, other) or _before(other, one))


def _before(one: Item, other: Item) -> bool:
    ends, begins = one.valid_until_us, other.valid_from_us
    return ends is not None and begins is not None and ends <= begins


def _nearest(case: Case, others: set[str]) -> tuple[Item, float] | None:
    """The item that is most alike, if one is alike enough to be held to be the same."""
    mine = words_of(case.request.content)
    best: tuple[float, str, Item] | None = None
    for id in _worth_comparing(case, mine):
        known = None if id in others else case.repeatable(id)
        if known is not None:
            score = jaccard(mine, words_of(known.as_content()))
            if score >= FLAGGED and (best is None or (score, known.id) > best[:2]):
                best = (score, known.id, known)
    return None if best is None else (best[2], best[0])


def _worth_comparing(case: Case, mine: frozenset[str]) -> set[str]:
    """The items that can be alike, by the words under which they are found, the places that these have there, and
    the sketches that stand beside them."""
    own, found = sketch(mine), set[str]()
    for mark in marks(mine):
        places = dict(alike_places(mark))
        if not places:
            continue
        for partition in partitions(case.request):
            rows = case.overlay.each_between(
                "memory.alike", (partition, mark.word), min(places), max(places), reverse=True
            )
            close = (
                id
                for key, (id, sketched) in islice(rows, MOST_LOOKED_AT)
                if int(key[3]) <= places.get(int(key[2]), 0) and alike_sketches(own, sketched) >= WORTH
            )
            found.update(islice((id for id in close if case.repeatable(id) is not None), MOST_COMPARED))
    return found


# storing


def _store(case: Case, superseded: tuple[Item, ...], held: Held | None) -> RememberResult:
    overlay, request = case.overlay, case.request
    content = dict(request.content)
    under = same_key(case)
    if under:
        content["key"] = under[-1].key  # a key is shown as it was first written
    if "pinned" not in content and held is None and any(one.pinned for one in superseded):
        content["pinned"] = True  # a correction of what is pinned is as important
    related = _related(case)
    if related:
        content["links"] = [*content.get("links", ()), *related]
    payload: dict[str, Any] = {"item": content}
    if superseded and held is None:
        payload["supersedes"] = [one.id for one in superseded]
        if rivals := open_rivals(overlay, superseded, from_row({"id": "", "agent": request.by, **content})):
            payload["disputed"] = rivals
    if held is not None:
        payload["held"] = msgspec.to_builtins(held)
    if request.secrets:
        payload["secrets"] = list(request.secrets)
    if request.override:
        payload["override"] = request.override
    weight = 0
    if held is None:
        labels = {
            "shared": request.labels.get("audience") == "team",
            "sensitivity": request.labels["sensitivity"],
        }
        item = from_row({"id": "x" * 36, "agent": "", **content, **labels})
        weight = weight_of(item) - sum(map(weight_of, superseded))
    if weight:
        payload["weight"] = weight
    overflow = _overflow(overlay, weight) if weight > 0 else ""
    event = overlay.emit(_draft(request, payload))
    for one in superseded if held is None else ():
        end_disputes(overlay, request.by, one)
    reason = "" if held is None else f"{held.because}: {WAITS[held.why]}"
    others = [] if held is None else [item_at(overlay, id) for id in held.items]
    return RememberResult(
        event.id,
        "stored" if held is None else "flagged",
        reason,
        None if held is None else replace(held, comparison=compared(request.content, others)),
        request.secrets,
        tuple(one.id for one in superseded) if held is None else (),
        overflow,
        event.position,
    )


def _related(case: Case) -> list[list[str]]:
    """Entries of the same core with a tag in common, if the core links by itself."""
    overlay, request = case.overlay, case.request
    core, found = request.content.get("core"), dict[str, None]()
    if core is None or not core_of(overlay, core).config.auto_link:
        return []
    for tag in request.content.get("tags", ()):
        tagged = (case.comparable(id) for _, id in overlay.each("memory.tags", tag, reverse=True))
        current = (item.id for item in tagged if item is not None and item.current)
        found |= dict.fromkeys(islice(current, MOST_LINKED))
    linked = {to for _, to in request.content.get("links", ())}
    return [["related", id] for id in list(found)[:MOST_LINKED] if id not in linked]


def _draft(request: Remember, payload: dict[str, Any]) -> Draft:
    return draft(
        CREATED,
        actor=request.by,
        payload=payload,
        run_id=request.run,
        session_id=request.session,
        parents=request.parents,
        labels=request.labels,
        id=request.id,
        occurred_at=None if request.occurred_us is None else from_us(request.occurred_us),
    )


def _overflow(overlay: Overlay, more: int) -> str:
    limit = settings_of(overlay).max_size_kb * 1024
    held = (overlay.get("memory.sums", "team") or {}).get("bytes", 0)
    if held + more <= limit - HEAD:
        return ""
    return (
        f"{MEMORY_MD} has {limit // 1024} kB and is full: its oldest entries are in its archive now, where they "
        "can still be found"
    )


def change(
    overlay: Overlay,
    by: str,
    act: str,
    changes: dict[str, dict[str, Any]],
    *,
    why: str = "",
    run: str | None = None,
    weight: int = 0,
    key: str = "",
    kind: str = UPDATED,
    placed: Iterable[Item] = (),
) -> int:
    """Record a change of items; answers its position. It is derived from them, so it goes when they go, and
    whoever may see them before and after it may see it. `placed` are those whose text is another one now, or that
    more people may find."""
    payload: dict[str, Any] = {"act": act, "changes": msgspec.to_builtins(changes)}
    places = [[one.id, one.agent, one.shared, {**one.as_content(), "tags": list(one.tags)}] for one in placed]
    given = {"why": why, "weight": weight, "key": key, "placed": places}
    payload |= {name: value for name, value in given.items() if value}
    rows = [(overlay.get("memory.items", id) or {}, fields) for id, fields in changes.items()]
    team = all(row.get("shared") and fields.get("shared", True) for row, fields in rows)
    labels = {"sensitivity": "private", **({"audience": "team"} if team else {})}
    one = draft(kind, actor=by, payload=payload, run_id=run, parents=list(changes), labels=labels)
    return overlay.emit(one).position


def weight_of(item: Item) -> int:
    """What an item takes of MEMORY.md, in bytes."""
    return size(item) if of_memory(item) and item.current else 0


def known(overlay: Overlay, by: str, id: str) -> Item:
    """An item that somebody may know of. Raises NotFound, alike for one that is not there."""
    found = item_at(overlay, id)
    if found is None or found.status == "forgotten" or not may_read(rights_of(overlay, by), found):
        raise NotFound(f"there is no item {id!r} in this book")
    return found


# disputes


def open_rivals(overlay: Overlay, ended: Collection[Item], new: Item) -> list[str]:
    """The items that dispute what ends and that still wait, unless what takes its place says the same as they do: these
    dispute what takes its place."""
    ids = dict.fromkeys(id for item in ended for id in item.disputed)
    others = (item_at(overlay, id) for id in ids if id not in {new.id, *(item.id for item in ended)})
    return [one.id for one in others if one is not None and one.status == "held" and not _agree(new, one)]


def _agree(new: Item, rival: Item) -> bool:
    return (
        new.kind == rival.kind == "fact"
        and key_form(new.key or "") == key_form(rival.key or "")
        and not contradicts(new, rival)
    )


def end_disputes(overlay: Overlay, by: str, item: Item) -> None:
    """What an item that waited, and does so no longer, had put in doubt is in doubt no longer."""
    if item.held is None or item.held.why != "dispute" or item.status != "held":
        return
    for other in successors(overlay, item.held.items):
        if item.id in other.disputed:
            left = [id for id in other.disputed if id != item.id]
            change(overlay, by, "undisputed", {other.id: {"disputed": left}})


def successors(overlay: Overlay, ids: Iterable[str]) -> list[Item]:
    """These items, or what has taken their place since."""
    found: dict[str, Item] = {}
    for id in ids:
        one = item_at(overlay, id)
        while one is not None and one.superseded_by is not None and one.id not in found:
            one = item_at(overlay, one.superseded_by)
        if one is not None:
            found[one.id] = one
    return list(found.values())
