"""The verbs of durable memory, for whoever acts: the book's owner, an actor, an agent in its turn."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Never, get_args

from msgspec import convert, json
from msgspec.structs import replace

from ..access.rights import OWNER, rights_of
from ..access.secrets import find_secrets, masked
from ..embedders import named_embedder
from ..errors import BadInput, NotFound, shown
from ..events import (
    blobs_of,
    check_call,
    check_name,
    check_path,
    check_seen,
    check_text,
    decode,
    encode_payload,
    to_us,
)
from ..labels import SENSITIVITY, TRUST, strictness
from ..private import new_file
from . import daily, papers
from .cores import DEEPEST, Core, SetCore, Step, core_of, may_know, no_core, walked
from .exclusions import excluded
from .facts import checked_fact
from .items import (
    CATEGORIES,
    SHAPES,
    Item,
    Status,
    check_tag,
    check_tasks,
    checked,
    from_row,
    mask,
    texts_in,
    value_text,
    wanted_provenance,
)
from .markdown import fitting
from .noting import Noting
from .reading import Judge, Settings, chosen, judging, labelled, of_memory, settings_of, tombstones
from .remember import comparable, echo_among, new_item, texts_of
from .requests import Forget, Forgotten, Kept, Mark, Patch, Remember, Resolve, Tombstone
from .upkeep import Chore, Holdings, Retell, Shelve, Upkeep, plan, shelved
from .visibility import may_be_told

if TYPE_CHECKING:
    from ..book import At
    from ..reader import Lens
    from .adopt import Adopted
    from .suggestions import Suggestion

CONFIRMATION = "FORGET"
MOST_SHOWN = 500
"""How much of what a run was shown is compared with what it remembers."""

_EMPTY: dict[str, Any] = {
    "tags": [],
    "citations": [],
    "links": [],
    "code_refs": [],
    "tasks": [],
    "provenance": {},
    "reason": "",
    "pinned": False,
}
"""What a field has when it is taken away, where that is not None."""

TRUST_OF = {"tool": "low", "import": "low"}
"""How far what comes from a source is trusted unless somebody says so."""


class Remembering(Noting):
    """What everybody can do with durable memory, each under its own rights."""

    # keeping

    def remember(
        self,
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
        supersedes: str | Sequence[str] | bool = (),
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
        run_id: str | None = None,
        session_id: str | None = None,
        id: str | None = None,
    ) -> Kept:
        """Keep something for later: a note, a procedure or an episode as text, or a fact as key and value.

        The answer says what became of it: stored, merged with what is known, flagged (held until somebody
        chooses) or rejected, and why. An item is its author's own unless it is `shared` with the team (what the
        owner keeps is shared) or public. Prompts show what is `pinned` before all else. `supersedes` names the
        items it takes the place of, with their pins; True: the author's own fact under the same key. `tasks` are those
        that a work begins with whose `pattern` it is: titles, or mappings with the fields of a task, which depend on
        each other by their titles. `override` is a reason to keep what would not be kept. With an `id` of your own the
        call can be repeated safely.
        """
        kind = ("note" if key is None else "fact") if kind is None else kind
        _shape(kind)
        if text is not None and value is not ...:
            raise BadInput("a fact has one value: give it as value, or as text")
        check_tasks(tasks, type)
        given = _given(
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
            given[_shape(kind).text] = check_text("text", text)
        if scope == "repository":
            given["key"] = checked_fact(
                str(key), value_text(given.get("value", "")), list(citations), reason or "", category
            )[0]
        content = encode_payload(checked(kind, given))[1]
        _check_no_blob(content)
        run = self._memory_run if run_id is None else check_name("run_id", run_id)
        self._ledger.showing.note(self._ledger)
        with self._ledger.snapshot() as now:
            settings = settings_of(now)
            content, secrets, sensitivity = _without_risk(settings, content, sensitivity)
            if secrets and settings.secrets == "reject":
                return Kept(
                    None,
                    "rejected",
                    f"it holds a secret ({', '.join(secrets)}): keep it in a vault",
                    redacted=secrets,
                )
            labels = self._labels(now, content, sensitivity, trust, shared)
            echo = self._echo(now, content, run, parents)
            rule = _exclusions(now, settings, content)
        told_elsewhere = _excluded(content, kind) if rule != "off" else ""
        replaced = () if isinstance(supersedes, bool) else supersedes
        request = Remember(
            by=self._memory_actor,
            content=content,
            labels=labels,
            run=run,
            session=session_id,
            parents=tuple(check_name("a parent", one) for one in _each(parents)),
            supersedes=tuple(check_name("an item", one) for one in _each(replaced)),
            replaces=supersedes is True,
            follows=shared is None and core is None,
            secrets=secrets,
            excluded=told_elsewhere if rule == "refuse" else "",
            override=masked(check_text("override", override)),
            echo_of=echo,
            id=None if id is None else check_name("id", id),
            occurred_us=None if occurred_at is None else to_us("occurred_at", occurred_at),
        )
        kept: Kept = self._ask_memory("memory.remember", request, "remember")
        if kept.held is not None and kept.held.comparison:
            with self._judging(None) as judge:
                others = [judge.item(one) for one in kept.held.items]
            theirs = [one for one in others if one is not None and one.agent != self._memory_actor]
            self._was_shown([one.id for one in theirs])
        self._was_kept(kept)
        if told_elsewhere and not override and kept.outcome in ("stored", "flagged"):
            return replace(kept, advice=f"it was kept, though {told_elsewhere}")
        return kept

    def _was_kept(self, kept: Kept) -> None:
        """Something that was just remembered."""

    def _labels(
        self,
        lens: Lens,
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
        rights = rights_of(lens, self._memory_actor)
        if strictness("trust", trust) < strictness("trust", usual) and not rights.may("relabel"):
            raise BadInput(
                f"what comes from there is of {usual} trust until a person says otherwise: leave trust out"
            )
        if content.get("core") is not None:
            core = core_of(lens, content["core"])
            if not may_know(rights, core):
                raise NotFound(no_core(core.id))
            shared = core.visibility != "private"
        elif shared is None:
            shared = self._memory_actor == OWNER
        team = {"audience": "team"} if shared else {}
        return {"sensitivity": sensitivity, "trust": trust, **team}

    def _echo(self, lens: Lens, content: dict[str, Any], run: str | None, parents: Collection[str]) -> str:
        """Something that was shown to this actor, in this run or outside any, that says all that this does. What was
        logged and is named as a parent is not repeated but promoted."""
        actor = self._memory_actor
        if actor == OWNER:
            return ""
        ids = {
            id: None
            for where in dict.fromkeys((run or "", ""))
            for _, id in lens.scan("memory.heard", where, actor, limit=MOST_SHOWN, reverse=True)
        }
        rows = zip(ids, lens.get_all(decode, "memory.items", [(id,) for id in ids]), strict=True)
        items = {id: labelled(lens, from_row(row)) for id, row in rows if row is not None}
        rights = rights_of(lens, actor)
        others = self._ledger.events_by_id([id for id in ids if id not in items and id not in parents])
        events = [event for event in others if may_be_told(lens, rights, event)]
        new = new_item(actor, content, self._ledger.moment())
        shown = [(item.id, texts_of(item)) for item in comparable(rights, new, items.values())]
        shown += [(event.id, [text for text in texts_in(event.payload) if " " in text]) for event in events]
        return echo_among(content, shown)

    def resolve(self, kept: Kept | str, choice: str, rationale: str = "") -> Item:
        """Choose what becomes of an item that is held: for a near-duplicate or proposal "skip", "merge" (its
        citations and reason) or "create"; for a dispute "old", "new" or "both", which a librarian or person
        settles. Answers the item that stands."""
        id = kept.item_id if isinstance(kept, Kept) else kept
        if id is None:
            raise BadInput("nothing was kept, so there is nothing to choose: the answer's reason says why")
        request = Resolve(
            self._memory_actor, check_name("an item", id), choice, masked(check_text("rationale", rationale))
        )
        stands: str = self._ask_memory("memory.resolve", request, "resolve")
        return self.item(stands)

    def revise(
        self, id: str, *, why: str = "", seen: int | None = None, once: str = "", **fields: Any
    ) -> Item:
        """Change fields of an item; None takes one away. With `seen` (its `position` when it was read) it is a
        Conflict if somebody was quicker; the same `once` again changes nothing."""
        item = self.item(id)
        times = {"occurred_at": "occurred_us", "observed_at": "observed_us", "valid_from": "valid_from_us",
                 "valid_until": "valid_until_us"}  # fmt: skip
        given = {
            times.get(name, name): to_us(name, one) if name in times and one is not None else one
            for name, one in fields.items()
        }
        if "text" in given:
            given[_shape(item.kind).text] = given.pop("text")
        check_tasks(given.get("tasks"), given.get("type", item.type))
        full = {name: getattr(item, name) for name in _shape(item.kind).needs}
        said = {name: one for name, one in {**full, **given}.items() if one is not None or name == "value"}
        content = encode_payload(checked(item.kind, encode_payload(said)[1]))[1]
        content = {name: content.get(name, _EMPTY.get(name)) for name in given}
        _check_no_blob(content)
        settings = self.memory_settings()
        found, secrets, _ = _without_risk(settings, content, None)
        if secrets and settings.secrets == "reject":
            raise BadInput(
                f"it holds a secret ({', '.join(secrets)}): keep that in a vault, and remember where"
            )
        request = Patch(
            self._memory_actor,
            id,
            found,
            secrets,
            why=masked(check_text("why", why)),
            seen=check_seen(seen),
            key=once and check_name("once", once),
        )
        self._ask_memory("memory.patch", request, "revise")
        return self.item(id)

    def share(self, id: str, why: str = "") -> Item:
        """Let the whole team see an item of one's own."""
        return self._marked((id,), "shared", why)

    def unshare(self, id: str, why: str = "") -> Item:
        """Keep an item to oneself again. Who has read it has read it."""
        return self._marked((id,), "unshared", why)

    def verify_item(self, id: str, why: str = "") -> Item:
        """Say that an item was checked and holds."""
        return self._marked((id,), "verified", why)

    def archive(self, id: str, why: str = "") -> Item:
        """Put an item aside: it is kept, and no longer found."""
        return self._marked((id,), "archived", why)

    def restore(self, id: str, why: str = "") -> Item:
        """Bring back what was archived, dropped or forgotten, as long as it was not erased."""
        return self._marked((id,), "restored", why)

    def link(self, id: str, relation: str, to: str) -> Item:
        """Connect two items: `related`, `depends_on`, or a relation of your own."""
        return self._marked(
            (id,), "linked", "", ((masked(check_name("a relation", relation)), check_name("an item", to)),)
        )

    def _marked(
        self,
        ids: tuple[str, ...],
        act: Literal["shared", "unshared", "verified", "archived", "restored", "linked"],
        why: str,
        links: tuple[tuple[str, str], ...] = (),
    ) -> Item:
        named = tuple(check_name("an item", id) for id in ids)
        request = Mark(self._memory_actor, named, act, masked(check_text("why", why)), links)
        self._ask_memory("memory.mark", request, act)
        return self.item(ids[0])

    # reading

    def _judging(self, at: At) -> AbstractContextManager[Judge]:
        return judging(self._ledger, self._memory_actor, at, self._memory_run)

    def item(self, id: str, at: At = None) -> Item:
        """One item as of `at`. One that this actor may not see is NotFound like one that is not there."""
        id = check_name("an item", id)
        with self._judging(at) as judge:
            found = judge.item(id)
            if found is not None:
                self._was_shown([id])
                return judge.shown(found)
        for tier in ("long_term", "episodic"):
            self._may_read_tier(
                tier
            )  # who may not read at all is told so, whether there is such an item or not
        raise NotFound(f"there is no item {id!r} in this book" + ("" if at is None else " as of then"))

    def items(
        self,
        /,
        *,
        kind: str | None = None,
        key: str | None = None,
        tag: str | None = None,
        agent: str | None = None,
        core: str | None = None,
        scope: str | None = None,
        category: str | None = None,
        provenance: Mapping[str, Any] | None = None,
        status: str | None = "live",
        at: At = None,
        valid_at: datetime | None = None,
        **unknown: Never,
    ) -> list[Item]:
        """The items that match everything that is given, oldest first, as of `at` (when the book knew of them)
        and `valid_at` (when they hold). `status` None: also those that are held, superseded or put aside. A filter, a
        field of `provenance` or a category that there is not is BadInput, never an empty answer."""
        _known_filters(
            "items", unknown, "kind key tag agent core scope category provenance status at valid_at"
        )
        moment = None if valid_at is None else to_us("valid_at", valid_at)
        key, agent, core = (
            None if name is None else check_name(field, name)
            for field, name in (("key", key), ("agent", agent), ("core", core))
        )
        tag = None if tag is None else check_tag(tag)
        _one_of("kind", kind, SHAPES)
        _one_of("status", status, get_args(Status))
        _one_of("category", category, CATEGORIES)
        origin = None if provenance is None else wanted_provenance(provenance)
        self._may_read_tier("long_term")
        with self._judging(at) as judge:
            found = chosen(
                judge.items(), kind=kind, key=key, tag=tag, agent=agent, core=core, scope=scope, category=category,
                provenance=origin, status=status, valid_at=moment,
            )  # fmt: skip
            listed = sorted(map(judge.shown, found), key=lambda item: (item.recorded_us, item.id))
        self._was_shown([one.id for one in listed])
        return listed

    def long_term(self, at: At = None) -> list[Item]:
        """What MEMORY.md holds, as far as this actor may see it: what the team knows and has not expired, the pinned
        and the newest that fits."""
        self._may_read_tier("long_term")
        now_us = self._ledger.moment(at)
        with self._judging(at) as judge:
            known = (one for one in chosen(judge.items()) if of_memory(one) and not one.expired(now_us))
            settings, seen = judge.settings, [judge.shown(one) for one in known]
        fit = fitting(seen, settings.max_size_kb * 1024)[0]
        self._was_shown([one.id for one in fit])
        return fit

    def disputes(self, at: At = None) -> list[Item]:
        """Items that contradict what is remembered, and wait to be settled."""
        return [one for one in self.items(status="held", at=at) if one.held and one.held.why == "dispute"]

    # forgetting

    def forget(
        self,
        /,
        id: str | Sequence[str] | None = None,
        *,
        key: str | None = None,
        tag: str | None = None,
        provenance: Mapping[str, Any] | None = None,
        erase: bool = False,
        confirm: str | None = None,
        reason: str = "",
        dry_run: bool = False,
        seen: int | None = None,
        **unknown: Never,
    ) -> Forgotten:
        """Forget items by id, key, tag or provenance (all that is given must match). They leave tombstones and
        can be restored, unless `erase`: then their content and everything derived from it is gone. It takes
        `confirm="FORGET"`; `dry_run` shows first what it would do."""
        _known_filters("forget", unknown, "id key tag provenance erase confirm reason dry_run seen")
        if confirm != CONFIRMATION and not dry_run:
            raise BadInput(
                f'nothing was forgotten: say confirm="{CONFIRMATION}" if you mean it, or dry_run=True to see'
            )
        if not (id or key or tag or provenance):
            raise BadInput("say what to forget: an id, a key, a tag or a provenance")
        ids = tuple(check_name("an item", one) for one in _each(() if id is None else id))
        if key is not None or tag is not None or provenance is not None:
            found = self.items(key=key, tag=tag, provenance=provenance, status=None)
            with self._ledger.snapshot() as now:
                keeps = rights_of(now, self._memory_actor).may("keep_memory")
            own = [one for one in found if keeps or one.agent == self._memory_actor]
            matching = tuple(one.id for one in own if one.status != "forgotten" or erase)
            ids = matching if id is None else tuple(one for one in ids if one in matching)
        by = "operator" if self._memory_actor == OWNER else "user"
        request = Forget(
            self._memory_actor,
            ids,
            masked(check_text("reason", reason)),
            by,
            erase,
            dry_run,
            check_seen(seen),
        )
        forgotten: Forgotten = self._ask_memory("memory.forget", request, "forget")
        if forgotten.erased and not dry_run:
            self._ledger.erased(forgotten.erased)
        return forgotten

    def tombstones(self, at: At = None) -> list[Tombstone]:
        """What was forgotten: by whom, when and why; never what it said."""
        actor = self._memory_actor
        with self._ledger.snapshot(at) as snapshot:
            found = tombstones(snapshot)
        return [one for one in found if actor in (OWNER, one.agent)]

    def curate(self, days: int = 7, *, dry_run: bool = False) -> dict[str, Any]:
        """Take what recurs in the daily logs into long-term memory, with its lines cited. `dry_run` shows it
        first. It is derived from the logs: as sensitive as they are, and gone when they are erased."""
        from .curate import curated

        if type(days) is not int or not 1 <= days <= 365:
            raise BadInput(f"days {shown(days)} is not a whole number from 1 to 365")
        return curated(self, days, dry_run)

    def adopt(
        self,
        source: str | Path,
        *,
        dry_run: bool = False,
        shared: bool | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Adopted:
        """Take in the memory of another tool: a folder of markdown notes, a MEMORY.md, CLAUDE.md or AGENTS.md, an
        export of mem0 or of the MCP memory server. The answer says what each part became; doing it again changes
        nothing."""
        from .adopt import adopt

        self._memory_acts("adopt")
        return adopt(self, check_path("a source", source), dry_run, shared, check_call("progress", progress))

    def export_items(self, to: str | Path, at: At = None) -> int:
        """Write the items that this actor may see as JSON, one a line. Answers how many."""
        found = self.items(status=None, at=at)
        try:
            with new_file(check_path("a file", to), self._ledger.beside) as file:
                file.writelines(json.encode(one) + b"\n" for one in found)
        except OSError as error:
            raise BadInput(f"{to} cannot be written ({error}): name another file") from None
        return len(found)

    # keeping it small

    def gc(self, *, dry_run: bool = False, now: datetime | None = None) -> Upkeep:
        """Keep memory small: archive old logs, ended tasks and aged entries, and consolidate what exceeds the
        budget, in a fixed order; each chore says why. `dry_run` shows it first. It can all be undone until
        something is erased."""
        moment = to_us("now", now or datetime.now(UTC))
        self._ask_memory("memory.keeper", self._memory_actor, "gc")
        with self._ledger.snapshot() as lens, self._judging(None) as judge:
            settings, kept = settings_of(lens), _all_there_is(lens, judge)
        chores, unclear = plan(kept, settings, moment)
        live = [one for one in kept.items if one.current]
        if dry_run:
            return Upkeep(tuple(chores), tuple(unclear), len(live), sum(len(one.text) for one in live))
        for chore in chores:
            self._do(chore)
        with self._judging(None) as judge:
            live = [one for one in judge.items() if one.current]
        return Upkeep(tuple(chores), tuple(unclear), len(live), sum(len(one.text) for one in live), True)

    def _do(self, chore: Chore) -> None:
        by = self._memory_actor
        match chore.act:
            case "archive days" | "archive tasks":
                what = "day" if chore.act == "archive days" else "task"
                self._ask_memory("memory.shelve", Shelve(by, what, chore.names, chore.why), "gc")
            case "archive items":
                self._ask_memory("memory.mark", Mark(by, chore.names, "archived", chore.why), "gc")
            case "consolidate facts":
                self._ask_memory("memory.forget", Forget(by, chore.names, chore.why, "consolidation"), "gc")
            case "consolidate episodes":
                self._ask_memory("memory.retell", Retell(by, chore.names), "gc")
            case "drop index":
                self._ledger.indexing.throw_away()
            case _:
                self._ask_memory("memory.forget", Forget(by, chore.names, chore.why, "budget"), "gc")

    def unarchive(self, *, days: Sequence[str] = (), tasks: Sequence[str] = ()) -> None:
        """Bring days and tasks back from the archive."""
        chosen_days = tuple(daily.check_day("a day", day) for day in _each(days))
        chosen_tasks = tuple(check_name("a task", task) for task in _each(tasks))
        for what, names in (("day", chosen_days), ("task", chosen_tasks)):
            if names:
                self._ask_memory(
                    "memory.shelve", Shelve(self._memory_actor, what, names, back=True), "unarchive"
                )

    # how it is kept

    def memory_settings(self, at: At = None) -> Settings:
        with self._ledger.snapshot(at) as snapshot:
            return settings_of(snapshot)

    def configure_memory(self, **fields: Any) -> Settings:
        """Change how the book's durable memory is kept: see `Settings`. The embedder `auto` is the best one that is
        installed here now; its name is what is kept."""
        from .capability import Configure

        if isinstance(fields.get("embedder"), str):
            fields["embedder"] = named_embedder(fields["embedder"])
        request = Configure(self._memory_actor, encode_payload(fields)[1])
        settings: Settings = self._ask_memory("memory.configure", request, "configure")
        return settings

    # cores

    def core(self, id: str, at: At = None, **fields: Any) -> Core:
        """A core by its id; with fields, it is made or changed, which takes a librarian or person."""
        id = check_name("a core", id)
        if fields:
            request = SetCore(self._memory_actor, id, mask(encode_payload(fields)[1]))
            core: Core = self._ask_memory("memory.core", request, "core")
            return core
        with self._seeing(at) as viewer:
            if not viewer.sees_core(id):
                raise NotFound(no_core(id))
            return core_of(viewer.lens, id)

    def cores(self, at: At = None) -> list[Core]:
        """The cores that this actor may know of."""
        with self._seeing(at) as viewer:
            found = [convert(row, Core) for _, row in viewer.lens.scan("memory.cores")]
            return [core for core in found if viewer.sees_core(core.id)]

    def proposals(self, core: str | None = None, at: At = None) -> list[Item]:
        """What was proposed for cores and waits for a librarian or person, as of `at`: `resolve` with create or
        skip."""
        held = self.items(core=core, status="held", at=at)
        return [one for one in held if one.held is not None and one.held.why == "proposal"]

    def suggestions(
        self, core: str | None = None, *, now: datetime | None = None, at: At = None
    ) -> list[Suggestion]:
        """What could be done for memory, or for one core, as of `at`: duplicates to merge, links to make, what has
        grown stale, better tags. It changes nothing."""
        from .suggestions import suggested

        rules = {one.id: one.config for one in self.cores(at)}
        if core is not None and check_name("a core", core) not in rules:
            raise NotFound(no_core(core))
        now_us = self._ledger.moment(at) if now is None else to_us("now", now)
        return suggested(self.items(core=core, at=at), rules, now_us)

    def traverse(
        self, start: str, depth: int = 1, relations: Sequence[str] | None = None, at: At = None
    ) -> list[Step]:
        """Where links lead from an item, in both directions, up to so many steps away, the nearest first."""
        if type(depth) is not int or not 1 <= depth <= DEEPEST:
            raise BadInput(f"depth {shown(depth)} is not a whole number from 1 to {DEEPEST}")
        first = self.item(start, at)
        wanted = None if relations is None else {check_name("a relation", one) for one in _each(relations)}
        with self._judging(at) as judge:
            steps = walked(judge, first, depth, wanted)
        self._was_shown([one.item.id for one in steps])
        return steps


def _all_there_is(lens: Lens, judge: Judge) -> Holdings:
    tasks: dict[str, tuple[int, str]] = {}
    for path in papers.papers(lens, papers.TASKS):
        task = path.split("/")[2]
        if shelved(lens, "task", task):
            continue
        lines = papers.lines(lens, path)
        written, text = tasks.get(task, (0, ""))
        last = max((one.written_us for one in lines), default=0)
        tasks[task] = max(written, last), "\n".join([text, *(one.text for one in lines)])
    cores = [convert(row, Core) for _, row in lens.scan("memory.cores")]
    return Holdings(
        items=tuple(judge.items()),
        days=tuple(day for day in daily.days(lens) if not shelved(lens, "day", day)),
        tasks=tasks,
        core_days={one.id: one.config.archive_after_days for one in cores if one.config.archive_after_days},
    )


def _without_risk(
    settings: Settings, content: dict[str, Any], sensitivity: str | None
) -> tuple[dict[str, Any], tuple[str, ...], str | None]:
    """What is found of secrets, and what the book's settings say to do about them."""
    found = tuple(sorted({one.kind for text in texts_in(content) for one in find_secrets(text)}))
    if found and settings.secrets == "mask":
        return {name: mask(value) for name, value in content.items()}, found, sensitivity
    return content, found, "sensitive" if found else sensitivity


def _check_no_blob(content: dict[str, Any]) -> None:
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


def _exclusions(lens: Lens, settings: Settings, content: Mapping[str, Any]) -> str:
    """What becomes of what is told elsewhere: as the core says, else the book. The repository's memory takes none."""
    core = content.get("core")
    rule = None if core is None else core_of(lens, core).config.exclusions
    rule = rule or settings.exclusions
    return "refuse" if rule == "advise" and content.get("scope") == "repository" else rule


SAID = ("text", "summary", "goal")


def event_text(payload: Mapping[str, Any]) -> str:
    """What an event says: its text, else its summary, else its goal; never the whole payload."""
    return next((payload[name] for name in SAID if isinstance(payload.get(name), str)), "")


def _shape(kind: str) -> Any:
    if not isinstance(kind, str) or kind not in SHAPES:
        raise BadInput(f"there is no kind of item {shown(kind)}: the kinds are {', '.join(SHAPES)}")
    return SHAPES[kind]


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _each(ids: str | Sequence[str]) -> Sequence[str]:
    if not isinstance(ids, str | list | tuple):
        raise BadInput(f"{shown(ids)} is not an item's id, nor a list of them")
    return (ids,) if isinstance(ids, str) else ids


def _known_filters(verb: str, unknown: Mapping[str, Any], known: str) -> None:
    if unknown:
        raise BadInput(f"{verb} has no {', '.join(sorted(unknown))}: it takes {', '.join(known.split())}")


def _one_of(field: str, given: object, allowed: Collection[str]) -> None:
    if given is not None and not (isinstance(given, str) and given in allowed):
        raise BadInput(f"there is no {field} {shown(given)}: it is one of {', '.join(allowed)}")
