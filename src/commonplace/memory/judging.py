"""Judging what comes in: what is decided, under the book's lock, before something becomes an item.

In this order: the right to write; whether it belongs into durable memory at all; whether it only repeats what
memory itself has shown (an echo); whether it is known already; whether it is nearly so; whether it contradicts.
Nothing is dropped without an answer that says so, and what a person should choose waits for a choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple, cast

import msgspec
from msgspec.structs import replace

from ..access.commands import need_tier, scope_of_run
from ..access.rights import Rights, rights_of
from ..errors import BadInput, CommonplaceError, Conflict, Denied, Erased, NotFound
from ..index.words import jaccard, tokens
from ..ledger.checks import from_us
from ..ledger.encoding import convert
from ..ledger.events import Event, draft
from ..ledger.labels import strictness
from ..ledger.overlay import Overlay
from ..ledger.reader import ViewReader
from ..ledger.scopes import scope_of
from .changes import change, end_disputes, weight_of
from .claims import framed, key_form
from .cores import core_of, may_know, no_core
from .echoes import STANDING, comparable, repeats_receipt, was_shown
from .items import Corroboration, Held, Item, from_row, joined, subject_and_fact
from .likeness import FLAGGED, WORTH, alike_places, alike_sketches, fingerprint, marks, sketch, words_of
from .markdown import HEAD
from .places import MEMORY_MD
from .reading import compared, item_at, may_name, may_read
from .requests import CREATED, RECALLED, RECEIPT, Previewed, Remember, RememberMany, RememberResult
from .settings import settings_of
from .standing import contradicts, holds_for, new_item, open_rivals, overlap, standing
from .visibility import may_read_id, may_see, readable_ids

WAITS = {
    "near_duplicate": "its author, a person or librarian settles it",
    "dispute": "a person or librarian settles it",
    "proposal": "a librarian or person decides",
    "evidence": "it waits for more evidence, or until a librarian or person creates it",
}
"""What an item that is held waits for, where the caller does not settle it."""

SETTLES = {
    "near_duplicate": "resolve it with skip, merge, or create and a rationale",
    "dispute": "resolve it with old, or with new or both and a rationale",
    "proposal": "resolve it with skip, merge or create",
    "evidence": "resolve it with skip, or create and a rationale",
}
"""How a caller that may do so settles it."""

DECLINED = ("dropped", "forgotten")
"""What has one of these statuses was declined: an agent does not propose it again."""

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

    @property
    def core(self) -> str | None:
        return self.new.core

    @property
    def partitions(self) -> list[tuple[str, str]]:
        """Where the items are that its author may compare with: of its scope, the team's and the author's own."""
        return [(self.overlay.scope, whose) for whose in ("", self.request.by)]

    def comparable(self, id: str) -> Item | None:
        """An item, if it stands in the same place and its author may know of it."""
        item = item_at(self.overlay, id)
        if item is None or item.status not in STANDING:
            return None
        same_place = item.core == self.core and item.scope == self.overlay.scope
        return item if same_place and may_read(self.rights, item) else None

    def repeatable(self, id: str) -> Item | None:
        """An item that is comparable, if it holds for the time that the new one speaks of."""
        item = self.comparable(id)
        return item if item is not None and holds_for(self.new, item) else None

    def same_key(self) -> list[Item]:
        """Facts under the same key that stand, as far as the author may see them."""
        return standing(self.overlay, self.new.key, self.partitions, self.comparable)

    def without_hidden(self, held: Held) -> Held:
        """Why something is held, without the ids of items that the author may not read."""
        fields = {"held": msgspec.to_builtins(held)}
        visible = readable_ids(fields, lambda id: may_read_id(self.overlay, self.rights, id))
        return convert(visible["held"], Held)


class Foreseen(NamedTuple):
    """What a fact of the repository would meet in the book if it were remembered now."""

    twin: Item | None
    """The item that says the same."""
    broader: Item | None
    """The fact about the same subject that says all of it, and more."""
    against: tuple[Item, ...]
    """The facts under the same key that say otherwise."""
    near: Item | None
    """The item that it would be held for as nearly the same."""
    ended: str = ""
    """Why it would not come back, if somebody has declined or forgotten the same."""


def foreseen(views: ViewReader, rights: Rights, content: Mapping[str, Any], now_us: int) -> Foreseen:
    """What a fact would meet, as far as its author may see it. It reads as `decide_remember` does, and writes
    nothing."""
    request = Remember(rights.actor, content, {}, not_after=DECLINED)
    # What is called here only reads, which a snapshot can as well as a transaction.
    case = Case(cast(Overlay, views), request, rights, new_item(rights.actor, content, now_us))
    against = tuple(fact for fact in case.same_key() if contradicts(case.new, fact))
    near = _nearest(case, ())
    ended = _ended(case)
    return Foreseen(
        _twin(case),
        _broader(case),
        against,
        None if near is None else near[0],
        "" if ended is None else ended.reason,
    )


def decide_remember(overlay: Overlay, request: Remember) -> RememberResult | Denied:
    return _refused(overlay, request) or _judged(overlay, request, rights_of(overlay, request.by))


def _judged(overlay: Overlay, request: Remember, rights: Rights) -> RememberResult:
    """What becomes of something that its author may write."""
    new = new_item(request.by, request.content, overlay.now)
    case = Case(overlay, request, rights, new)
    if request.secrets and settings_of(overlay).secrets == "reject":
        reason = f"it holds a secret ({', '.join(request.secrets)}): keep it in a vault"
        return RememberResult(None, "rejected", reason, redacted=request.secrets)
    answer = _repeated_call(case)
    if answer is None:
        _check_links(case)
        answer = _not_wanted(case) or _known(case) or _ended(case)
    if answer is not None:
        return answer
    superseded = _superseded(case)
    waiting = _waiting(case)
    follows = _follows(case, superseded)
    if follows:
        request = replace(request, labels={**request.labels, "audience": "team"})
        case = case._replace(request=request)
    answer = _more_specific(case) or _below_confidence(case)
    if answer is not None:
        return answer
    held = _held(case, superseded, waiting)
    own = tuple(item for item in waiting if item.agent == request.by)
    if held is not None and waiting and not own:
        return _known_already(case, waiting[0])
    return replace(_store(case, superseded, held, own), follows=follows)


class _Undone(Exception):
    """Ends a trial of a decider, whose writes are dropped."""

    def __init__(self, previewed: Previewed) -> None:
        self.previewed = previewed


def decide_preview(overlay: Overlay, request: Remember) -> Previewed | Denied:
    """What would become of something to remember; nothing of it is written."""
    refused = _refused(overlay, request)
    if refused:
        return refused

    def tried(overlay: Overlay, request: Remember) -> None:
        before = overlay.position
        result = _judged(overlay, request, rights_of(overlay, request.by))
        new = result.outcome in ("stored", "flagged") and (result.position or 0) > before
        item = item_at(overlay, result.item_id) if new and result.item_id is not None else None
        raise _Undone(Previewed(result, item))

    try:
        overlay.run("memory", tried, request)
    except _Undone as undone:
        return undone.previewed
    raise AssertionError("a trial ends by what it raises")


def decide_remember_many(overlay: Overlay, many: RememberMany) -> list[RememberResult] | Denied:
    """Judge one request after the other, or none of them if one fails. It ends early after an answer that shows its
    author an item of somebody else: what follows may repeat that, and is judged when it is noted."""
    as_for = {(each.run, each.acting_in, each.content["kind"] == "episode"): each for each in many.requests}
    for request in as_for.values():
        refused = _refused(overlay, request)
        if refused:
            return refused
    rights = rights_of(overlay, many.requests[0].by)
    overlay.prefetch(
        ("memory.exact", (overlay.scope, whose, fingerprint(request.content)))
        for request in many.requests
        for whose in ("", request.by)
    )
    results = list[RememberResult]()
    for number, request in enumerate(many.requests, many.before + 1):
        try:
            result = _judged(overlay, request, rights)
        except CommonplaceError as error:
            error.args = (f"entry {number}: {error}",)
            raise
        results.append(result)
        if result.held is not None and result.held.comparison:
            others = (item_at(overlay, id) for id in result.held.items)
            if any(item is not None and item.agent != request.by for item in others):
                break
    return results


def _refused(overlay: Overlay, request: Remember) -> Denied | None:
    """The refusal, already recorded, if its author may not write: the rules of both runs hold. Raises Conflict for a
    run of a scope that is not written to."""
    refused = None
    if request.run != request.acting_in:
        scope_of_run(overlay, request.by, request.run)
    for run in dict.fromkeys((request.run, request.acting_in)):
        refused = refused or need_tier(overlay, request.by, "long_term", True, run)
        if request.content["kind"] == "episode":
            refused = refused or need_tier(overlay, request.by, "episodic", False, run)
    return refused


def _rejected(reason: str, id: str | None = None) -> RememberResult:
    return RememberResult(id, "rejected", reason)


def _repeated_call(case: Case) -> RememberResult | None:
    """What was answered when a call with the same id was made before."""
    overlay, request = case.overlay, case.request
    event = None if request.id is None else overlay.event(request.id)
    if event is None:
        return None
    own = (event.actor, scope_of(event)) == (request.by, overlay.scope)
    if own and event.erased:
        raise Erased(f"item {request.id!r} was erased; remembering it again restores nothing. Use another id")
    if event.kind != CREATED or not own or not _same_request(event, request):
        raise Conflict(f"{request.id!r} is already recorded with other content: use another id")
    stored = event.payload.get("held")
    held = None if stored is None else case.without_hidden(convert(stored, Held))
    item, reason = item_at(overlay, event.id), "as the first time"
    if item is not None and item.status == "forgotten":
        reason += "; it was forgotten since, and stays so until it is restored"
    return RememberResult(event.id, "flagged" if stored else "stored", reason, held, position=event.position)


def _same_request(event: Event, request: Remember) -> bool:
    """Whether an event was recorded for the same call. The book may have added links and a pin by itself, and shows a
    key as it was first written."""
    stored, content = event.payload.get("item", {}), request.content
    same = all(stored.get(name) == value for name, value in content.items() if name not in ("links", "key"))
    same_key = key_form(stored.get("key", "")) == key_form(content.get("key", ""))
    same_labels = {name: event.labels.get(name) for name in request.labels} == request.labels
    added = {"links"} | {"pinned"} - {*content}
    return same and same_key and same_labels and {*stored} - added == {*content} - added


def _check_links(case: Case) -> None:
    for _, id in case.new.links:
        item = item_at(case.overlay, id)
        if item is None or item.status == "forgotten" or not may_read(case.rights, item):
            raise NotFound(f"there is no item {id!r} to link to")


def _not_wanted(case: Case) -> RememberResult | None:
    """The refusal of what does not belong into durable memory."""
    request = case.request
    if not request.excluded or request.override:
        return None
    return _rejected(f"{request.excluded}. If it is worth keeping all the same, say why in `override`")


def _known(case: Case) -> RememberResult | None:
    """What becomes of something that memory has shown itself, or that is known already."""
    echo, twin = _echo(case), _twin(case)
    if echo and (twin is None or twin.agent != case.request.by):  # an author's own is known already, no echo
        return _is_echo(echo)
    if twin is None or twin.id in case.request.supersedes or _gives_way(case, twin):
        return None
    return _known_already(case, twin)


def _follows(case: Case, superseded: tuple[Item, ...]) -> bool:
    """Whether it becomes shared: a correction is for those who know what it corrects."""
    request = case.request
    if not request.follows or request.labels.get("audience") == "team":
        return False
    return any(item.shared and item.agent == request.by for item in superseded)


# what memory itself has shown


def _echo(case: Case) -> str:
    """What this repeats, if it repeats something. What replaces or contradicts something does not repeat it."""
    request = case.request
    echo = _echo_by_lineage(case)
    shown = item_at(case.overlay, request.echo_of) if request.echo_of else None
    if shown is not None and not comparable(case.rights, case.new, [shown]):
        request = replace(request, echo_of="")  # it has ended meanwhile, perhaps in this very batch
    if request.supersedes or request.replaces or not (request.echo_of or echo):
        return ""
    disputes = any(contradicts(case.new, fact) for fact in case.same_key())
    return "" if disputes else request.echo_of or echo


def _echo_by_lineage(case: Case) -> str:
    """The receipt that this is derived from, unless it corrects what that receipt's reader was shown."""
    echo = ""
    for parent in case.request.parents:
        event = case.overlay.event(parent)
        if event is None or not may_see(case.overlay, case.rights, event):
            raise NotFound(f"there is no event {parent!r} to derive from: leave it out of parents")
        if event.kind in (RECALLED, RECEIPT) and repeats_receipt(
            case.overlay, case.rights, case.new, case.request.content, event
        ):
            echo = echo or event.id
    return echo


def _is_echo(of: str) -> RememberResult:
    return _rejected(
        f"an echo: memory itself has shown this ({of}), so it is no new evidence. Say what is new"
    )


# what is there already


def _twin(case: Case) -> Item | None:
    """The item that says exactly the same, as far as the author may see it."""
    return next(_twins(case), None)


def _twins(case: Case) -> Iterator[Item]:
    """The items that say exactly the same: the team's, and the author's own."""
    mine = fingerprint(case.request.content)
    for partition in case.partitions:
        id = case.overlay.get("memory.exact", *partition, mine)
        twin = None if id is None else case.repeatable(id)
        if twin is not None and fingerprint(twin.as_content()) == mine:  # it may say something else by now
            yield twin


def _gives_way(case: Case, twin: Item) -> bool:
    """Whether something that waits does not keep out what says the same: a correction, which takes the place of
    something that the other one would not."""
    if not _waits_for_choice(twin) or twin.held is None:
        return False
    return any(item.id not in twin.held.supersedes for item in _superseded(case))


def _waiting(case: Case) -> tuple[Item, ...]:
    """What says the same as a correction and waits. The author's own ends with the correction; what is somebody else's
    waits on."""
    request = case.request
    if not request.supersedes and not request.replaces:
        return ()
    twins = (twin for twin in _twins(case) if twin.id not in request.supersedes)
    return tuple(twin for twin in twins if _waits_for_choice(twin))


def _waits_for_choice(item: Item) -> bool:
    """Whether an item waits because of what it meets, and not because of what speaks for it."""
    held = item.held if item.status == "held" else None
    return held is not None and held.why in ("near_duplicate", "dispute") and not held.reason


ENDED = {
    "dropped": "declined before",
    "forgotten": "forgotten before",
    "superseded": "something else has taken its place",
    "archived": "archived before",
}


def _ended(case: Case) -> RememberResult | None:
    """The refusal of something that does not come back by itself: an item that says the same has ended."""
    mine = fingerprint(case.request.content)
    for partition in case.partitions if case.request.not_after else ():
        id = case.overlay.get("memory.exact", *partition, mine)
        item = None if id is None else item_at(case.overlay, id)
        if item is None or item.status not in case.request.not_after or not may_name(case.rights, item):
            continue
        if fingerprint(item.as_content()) == mine:
            return _rejected(f"{ENDED[item.status]}: {item.id} said the same", item.id)
    return None


def _known_already(case: Case, twin: Item) -> RememberResult:
    overlay, request = case.overlay, case.request
    if twin.agent != request.by and was_shown(overlay, request.by, request.run, twin.id):
        return _is_echo(twin.id)
    if twin.held is not None and not twin.current:
        held = case.without_hidden(twin.held)
        result = RememberResult(twin.id, "flagged", position=twin.position)
        return _waits(case, result, held, twin.agent, f"the same is held already ({held.because})")
    position = twin.position
    if not _origin_is_new(request, twin) or _from_memory_itself(overlay, request):
        reason = "from the same origin"
    elif framed(joined(*subject_and_fact(request.content))) and not framed(twin.text):
        reason = "and this says itself that it repeats it"
    else:
        source = _source(request.content.get("provenance", {}))
        added = Corroboration(request.by, overlay.position + 1, request.run, source)
        changes = {twin.id: {"corroborated": [*twin.corroborated, added]}}
        position = change(overlay, request.by, "corroborated", changes, run=request.run)
        reason = "and this corroborates it"
    reason = f"it is remembered already, {reason}{_not_taken(request, twin)}"
    return RememberResult(twin.id, "merged", reason, position=position)


def _not_taken(request: Remember, twin: Item) -> str:
    """The fields of the request that an item which is known already does not have."""
    content = request.content
    fields = ("tags", "citations", "reason", "category", "confidence", "pinned", "tasks", "metadata")
    left = [name for name in fields if content.get(name) and not _covers(getattr(twin, name), content[name])]
    begins, ends = content.get("valid_from_us"), content.get("valid_until_us")
    if begins is not None and begins != twin.valid_from_us:
        left.append("valid_from")
    if ends != twin.valid_until_us:  # also what holds without end, while the known one ends
        left.append("valid_until")
    if request.labels.get("audience") == "team" and not twin.shared:
        left.append("shared")
    if strictness("sensitivity", request.labels["sensitivity"]) > strictness("sensitivity", twin.sensitivity):
        left.append("sensitivity")
    told = f"; not taken over: {', '.join(left)} (revise, share or relabel it)" if left else ""
    ended = [id for id in request.supersedes if id not in twin.supersedes]
    return f"{told}; {', '.join(ended)} was not superseded (forget or archive it)" if ended else told


def _covers(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, list | tuple):
        return all(part in value for part in wanted)
    if isinstance(wanted, dict):
        return bool(wanted.items() <= value.items())
    return bool(value == wanted)


def _origin_is_new(request: Remember, item: Item) -> bool:
    """Whether this comes from somebody else than an item does, in another run and from another source."""
    origins = [(item.agent, item.run, _source(item.provenance))]
    origins += [(added.actor, added.run, added.source) for added in item.corroborated]
    source = _source(request.content.get("provenance", {}))
    return not any(
        actor == request.by or (run is not None and run == request.run) or (theirs and theirs == source)
        for actor, run, theirs in origins
    )


def _from_memory_itself(overlay: Overlay, request: Remember) -> bool:
    """Whether this was drawn from what memory holds, such as a day's log, whose author may have read it here."""
    events = (overlay.event(parent) for parent in request.parents)
    return any(event is not None and event.kind.startswith("memory.") for event in events)


def _source(provenance: dict[str, Any]) -> tuple[str, ...]:
    names = tuple(str(provenance.get(name) or "") for name in ("channel", "thread", "message", "tool_call"))
    if any(names):
        return names
    # A file that two actors take in is one source: it does not corroborate itself.
    return tuple(provenance.get("refs", ())) if provenance.get("source_kind") == "import" else ()


# what it takes the place of


def _superseded(case: Case) -> tuple[Item, ...]:
    """The items that this one takes the place of."""
    request, superseded = case.request, dict[str, Item]()
    if request.replaces:
        own = (fact for fact in case.same_key() if fact.agent == request.by)
        superseded = {fact.id: fact for fact in own if overlap(case.new, fact)}
    for id in request.supersedes:
        superseded[id] = _supersedable(case, id)
    return tuple(superseded.values())


def _supersedable(case: Case, id: str) -> Item:
    item = item_at(case.overlay, id)
    if item is None or item.status in ("forgotten", "dropped") or not may_read(case.rights, item):
        raise NotFound(f"there is no item {id!r} to supersede")
    if item.superseded_by is not None:
        named = may_read_id(case.overlay, case.rights, item.superseded_by)
        by = f", by {item.superseded_by!r}: supersede that one" if named else ""
        raise Conflict(f"item {id!r} is superseded already{by}")
    if item.scope != case.overlay.scope:
        raise BadInput(f"item {id!r} belongs to another scope: supersede it from a session of that scope")
    if item.core != case.core:
        raise BadInput(
            f"item {id!r} is an entry of {item.core or 'no core'}: supersede it with one of the same"
        )
    if item.repository != case.new.repository:
        article = "a" if item.repository else "no"
        raise BadInput(f"item {id!r} is {article} fact of the repository: use memory.repository_fact")
    return item


def _more_specific(case: Case) -> RememberResult | None:
    """The refusal of a fact of the repository if another one about the same subject says all of it, and more."""
    broader = _broader(case)
    if broader is None or broader.id in case.request.supersedes:
        return None
    return _rejected(f"a more specific fact of the repository is known: {broader.id}", broader.id)


def _broader(case: Case) -> Item | None:
    if not case.new.repository:
        return None
    mine = tokens(str(case.new.value))
    facts = (fact for fact in case.same_key() if fact.repository and holds_for(case.new, fact))
    return next((fact for fact in facts if mine < tokens(str(fact.value))), None)


# what has to wait for a choice


def _below_confidence(case: Case) -> RememberResult | None:
    """The refusal of an entry that is less sure than its core asks for."""
    if case.core is None:
        return None
    core = core_of(case.overlay, case.core)
    if not may_know(case.rights, core):
        raise NotFound(no_core(core.id))
    needed, confidence = core.config.min_confidence, case.new.confidence or 0.0
    if confidence >= needed:
        return None
    return _rejected(f"its confidence is {confidence:g} and the core {core.id!r} asks for {needed:g}")


def _held(case: Case, superseded: tuple[Item, ...], waiting: tuple[Item, ...]) -> Held | None:
    """Why the item must wait for a choice, if it must: never because of those that are `waiting` and say the same."""
    replaced = tuple(item.id for item in superseded)
    config = None if case.core is None else core_of(case.overlay, case.core).config
    keeps = case.rights.may("keep_memory")
    foreign = [item for item in superseded if item.agent != case.request.by and not keeps]
    against = [fact for fact in case.same_key() if fact.id not in replaced and contradicts(case.new, fact)]
    if (against or foreign) and config is None:
        others = dict.fromkeys(item.id for item in (*against, *foreign))
        return Held("dispute", tuple(others), supersedes=replaced)
    apart = (*replaced, *(item.id for item in waiting))
    near = _nearest(case, apart) if config is None or config.auto_dedupe else None
    hold = case.request.hold
    if near is not None:
        item, score = near
        lacks = "" if hold is None else hold.reason
        return Held("near_duplicate", (item.id,), round(score, 4), supersedes=replaced, reason=lacks)
    if case.request.proposed or (config is not None and (not keeps or config.require_verification)):
        return Held("proposal", tuple(fact.id for fact in against), supersedes=replaced)
    return None if hold is None else replace(hold, supersedes=replaced)


def _nearest(case: Case, apart: tuple[str, ...]) -> tuple[Item, float] | None:
    """The item that is most alike, `apart` from some, if one is alike enough to be held to be the same."""
    mine = words_of(case.request.content)
    best: tuple[float, str, Item] | None = None
    for id in _worth_comparing(case, mine):
        item = None if id in apart else case.repeatable(id)
        if item is not None:
            score = jaccard(mine, words_of(item.as_content()))
            if score >= FLAGGED and (best is None or (score, item.id) > best[:2]):
                best = (score, item.id, item)
    return None if best is None else (best[2], best[0])


def _worth_comparing(case: Case, mine: frozenset[str]) -> set[str]:
    """The items that can be alike, by the words under which they are found, the places that these have there, and
    the sketches that stand beside them."""
    own, ids = sketch(mine), set[str]()
    for mark in marks(mine):
        places = dict(alike_places(mark))
        if not places:
            continue
        for partition in case.partitions:
            rows = case.overlay.each_between(
                "memory.alike", (*partition, mark.word), min(places), max(places), reverse=True
            )
            close = (
                id
                for key, (id, sketched) in islice(rows, MOST_LOOKED_AT)
                if int(key[4]) <= places.get(int(key[3]), 0) and alike_sketches(own, sketched) >= WORTH
            )
            ids.update(islice((id for id in close if case.repeatable(id) is not None), MOST_COMPARED))
    return ids


# storing


def _store(
    case: Case, superseded: tuple[Item, ...], held: Held | None, waiting: tuple[Item, ...]
) -> RememberResult:
    """Store the item in place of those that it supersedes, and of the author's own that are `waiting`."""
    overlay, request = case.overlay, case.request
    ended = (*superseded, *waiting) if held is None else waiting  # while it waits, nothing that stands ends
    content = _stored_content(case, ended)
    weight = 0
    if held is None:
        shared, level = request.labels.get("audience") == "team", request.labels["sensitivity"]
        row = {
            "id": "x" * 36,
            "agent": "",
            **content,
            "shared": shared,
            "sensitivity": level,
            "scope": overlay.scope,
        }
        weight = weight_of(from_row(row)) - sum(map(weight_of, ended))
    overflow = _overflow(overlay, weight) if weight > 0 else ""
    more = {
        "supersedes": [item.id for item in ended],
        "disputed": open_rivals(overlay, ended, from_row({"id": "", "agent": request.by, **content})),
        "held": None if held is None else msgspec.to_builtins(held),
        "secrets": list(request.secrets),
        "override": request.override,
        "weight": weight,
    }
    payload = {"item": content, **{name: value for name, value in more.items() if value}}
    event = overlay.emit(
        draft(
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
    )
    for item in ended:
        end_disputes(overlay, request.by, item)
    result = RememberResult(
        event.id, "stored", redacted=request.secrets, superseded=tuple(item.id for item in ended),
        overflow=overflow, position=event.position,
    )  # fmt: skip
    return result if held is None else _flagged(case, result, held)


def _flagged(case: Case, stored: RememberResult, held: Held) -> RememberResult:
    """The answer for an item that waits for a choice, with what it is too near to beside it."""
    others = [item_at(case.overlay, id) for id in held.items]
    held_beside = replace(held, comparison=compared(case.request.content, others))
    return _waits(case, replace(stored, outcome="flagged"), held_beside, case.request.by, held.because)


def _waits(case: Case, flagged: RememberResult, held: Held, author: str, because: str) -> RememberResult:
    """The answer for an item of this author that is held, with what the caller may do about it."""
    by, near = case.request.by, held.why == "near_duplicate"
    settles = case.rights.may("keep_memory") or (near and author == by)
    step = (SETTLES if settles else WAITS)[held.why]
    others = [item_at(case.overlay, id) for id in held.items]
    own = bool(others) and all(item is not None and item.agent == by for item in others)
    again = (near and (own or author == by)) or (own and held.why == "dispute")
    if again and near:
        step += "; or remember it again with supersedes to replace what is there"
    elif again:
        step += "; or remember it again with supersedes=True to correct your own fact"
    return replace(flagged, reason=f"{because}: {step}", held=held, may_supersede=again)


def _stored_content(case: Case, ended: tuple[Item, ...]) -> dict[str, Any]:
    """The item's content with what the book adds by itself: the spelling of its key, the pin of what it corrects, and
    links to related entries of its core."""
    content = dict(case.request.content)
    if facts := case.same_key():
        content["key"] = facts[-1].key  # a key is shown as it was first written
    if "pinned" not in content and any(item.pinned for item in ended):
        content["pinned"] = True  # a correction of what is pinned is as important
    if related := _related(case):
        content["links"] = [*content.get("links", ()), *related]
    return content


def _related(case: Case) -> list[list[str]]:
    """Entries of the same core with a tag in common, if the core links by itself."""
    if case.core is None or not core_of(case.overlay, case.core).config.auto_link:
        return []
    related = dict[str, None]()
    for tag in case.new.tags:
        rows = case.overlay.each("memory.tags", tag, case.overlay.scope, reverse=True)
        tagged = (case.comparable(id) for _, id in rows)
        current = (item.id for item in tagged if item is not None and item.current)
        related |= dict.fromkeys(islice(current, MOST_LINKED))
    linked = {to for _, to in case.new.links}
    return [["related", id] for id in list(related)[:MOST_LINKED] if id not in linked]


def _overflow(overlay: Overlay, more: int) -> str:
    limit = settings_of(overlay).max_size_kb * 1024
    taken = (overlay.get("memory.sums", "team") or {}).get("bytes", 0)
    if taken + more <= limit - HEAD:
        return ""
    return (
        f"{MEMORY_MD} has {limit // 1024} kB and is full: its oldest entries are in its archive now, where they "
        "can still be found"
    )
