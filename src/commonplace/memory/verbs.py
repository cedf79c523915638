"""Durable memory besides `remember` and `forget`: `book.memory`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Never

from msgspec import json
from msgspec.structs import replace

from ..access.masking import masked
from ..access.rights import OWNER
from ..errors import BadInput, NotFound, shown
from ..files.safe import new_file
from ..index.names import named_embedder
from ..ledger.checks import (
    check_call,
    check_each,
    check_if_position,
    check_name,
    check_path,
    check_text,
    to_us,
)
from ..ledger.encoding import encode_payload
from ..ledger.scopes import written
from ..models import Model
from ..verbs import verb
from .cores import DEEPEST, Core, LinkStep, SetCore, no_core, walked
from .curation import Curated
from .fields import check_one_of, check_tasks, checked, shape_of
from .filters import FILTERS, check_known, item_filter
from .history import ItemChange, history
from .items import Item, remarks
from .listing import ItemList, listed
from .markdown import document, fitting
from .pages import is_stale
from .reading import of_memory, tombstones
from .remember import TIMES, add_many, check_no_blob, remember, without_secrets_as_set
from .repository_facts import checked_fact
from .requests import (
    Forget,
    Forgotten,
    ItemOrId,
    MarkItems,
    Patch,
    RememberResult,
    Resolve,
    Tombstone,
    check_item,
    check_items,
    id_of,
)
from .settings import Configure, Settings
from .tidy import Upkeep, tidied

if TYPE_CHECKING:
    from ..ledger.ledger import At
    from ..session import Session
    from .imports.importing import ImportReport
    from .suggestions import Suggestion

    Suggestions = list[Suggestion]

Items = list[Item]
Results = list[RememberResult]
Tombstones = list[Tombstone]
Cores = list[Core]
Changes = list[ItemChange]
Steps = list[LinkStep]

CONFIRMATION = "FORGET"

_EMPTY: dict[str, Any] = {
    "tags": [], "citations": [], "links": [], "code_refs": [], "tasks": [], "provenance": {}, "metadata": {},
    "reason": "", "pinned": False,
}  # fmt: skip
"""What a field has when it is taken away, where that is not None."""


class Memory:
    """Reading and changing items of memory, under an actor's rights: `book.memory`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    # changing

    @verb
    def add_many(
        self,
        items: Sequence[str | Mapping[str, Any]],
        *,
        shared: bool | None = None,
        scope: str | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Results:
        """Remember many entries: texts, or mappings with the parameters of `remember`. There is one result for each, in
        their order, and each is judged as if it were remembered by itself after the ones before it. All entries are
        checked before anything is written, and an error names the place of the bad one. A hundred entries make one
        commit: an interruption keeps the hundreds before it, and the error says how many. Entries with an `id` can be
        sent again safely.

        `items` are the entries. `shared` is whether the whole team sees those that do not say so."""
        told = check_call("progress", progress)
        return add_many(self._session, items, shared=shared, scope=scope, progress=told)

    @verb
    def resolve(self, id: ItemOrId, choice: str, rationale: str = "") -> Item:
        """Settle an item that is held: for a near-duplicate or proposal "skip", "merge" (its
        citations and reason) or "create"; for a dispute "old", "new" or "both", which a librarian or person
        settles; so they do "create" or "skip" what waits for evidence. Returns the item that holds afterwards.

        `choice` is skip, merge or create, and of a dispute old, new or both."""
        session = self._session
        why = masked(check_text("rationale", rationale))
        request = Resolve(session.actor, check_item("an item", id), choice, why, session.run)
        stands: str = session.submit("memory.resolve", request, "resolve")
        return self.get(stands)

    @verb
    def revise(
        self,
        id: ItemOrId,
        *,
        why: str = "",
        if_position: int | None = None,
        idempotency_key: str = "",
        **fields: Any,
    ) -> Item:
        """Change fields of an item; None removes one. With `if_position` (its `position` when it was read)
        raises Conflict if it was changed since. `idempotency_key` names the call: a second one changes nothing.

        `why` is the reason that is recorded."""
        item = self.get(id)
        if not fields:
            raise BadInput("nothing to change was given: name a field and its new value, such as text='…'")
        settings = self.settings()
        content, secrets, _ = without_secrets_as_set(settings, _revised(item, fields), None)
        if secrets and settings.secrets == "reject":
            raise BadInput(
                f"it holds a secret ({', '.join(secrets)}): keep that in a vault, and remember where"
            )
        request = Patch(
            self._session.actor,
            item.id,
            content,
            secrets,
            why=masked(check_text("why", why)),
            if_position=check_if_position(if_position),
            key=idempotency_key and check_name("idempotency_key", idempotency_key),
            run=self._session.run,
        )
        self._session.submit("memory.patch", request, "revise")
        return self.get(item.id)

    @verb
    def share(self, id: ItemOrId, why: str = "") -> Item:
        """Let the whole team see an item of this actor.

        `why` is the reason that is recorded."""
        return self._marked(id, "shared", why)

    @verb
    def unshare(self, id: ItemOrId, why: str = "") -> Item:
        """Show an item only to its author again, also to readers of the past.

        `why` is the reason that is recorded."""
        return self._marked(id, "unshared", why)

    @verb
    def verify(self, id: ItemOrId, why: str = "") -> Item:
        """Record that an item was checked and holds.

        `why` is the reason that is recorded."""
        return self._marked(id, "verified", why)

    @verb
    def archive(self, id: ItemOrId, why: str = "") -> Item:
        """Set an item aside: it is kept, and not found any more.

        `why` is the reason that is recorded."""
        return self._marked(id, "archived", why)

    @verb
    def restore(self, id: ItemOrId, why: str = "") -> Item:
        """Bring back what was archived, dropped or forgotten, as long as it was not erased.

        `why` is the reason that is recorded."""
        return self._marked(id, "restored", why)

    @verb
    def link(self, id: ItemOrId, relation: str, to: ItemOrId) -> Item:
        """Connect two items: `related`, `depends_on`, or a relation of your own.

        `relation` is how they are connected. `to` is the id of the other item."""
        named = masked(check_name("a relation", relation))
        return self._marked(id, "linked", "", ((named, check_item("an item", to)),))

    def _marked(
        self,
        item: ItemOrId,
        act: Literal["shared", "unshared", "verified", "archived", "restored", "linked"],
        why: str,
        links: tuple[tuple[str, str], ...] = (),
    ) -> Item:
        session, id = self._session, check_item("an item", item)
        request = MarkItems(session.actor, (id,), act, masked(check_text("why", why)), links, session.run)
        session.submit("memory.mark", request, act)
        return self.get(id)

    @verb
    def repository_fact(
        self, subject: str, fact: str, *, citations: Sequence[str], reason: str, category: str, **more: Any
    ) -> RememberResult:
        """Remember a fact about the repository: its subject, one or two sentences, where it can be seen (file:line),
        why it matters, and its category. It is never changed, only superseded by a new one.

        `subject` is what the fact is about. `fact` is one or two sentences."""
        subject, fact, cited = checked_fact(subject, fact, citations, reason, category)
        return remember(
            self._session, key=subject, value=fact, citations=cited, reason=reason, category=category,
            repository=True, shared=True, **more,
        )  # fmt: skip

    # reading

    @verb
    def get(self, id: ItemOrId, at: At = None) -> Item:
        """One item as of `at`. Raises NotFound if it does not exist or this actor may not see it."""
        self._session.check_memory_is_on()
        id = check_item("an item", id)
        with self._session.viewer(at) as viewer:
            item = viewer.item(id)
            if item is not None:
                self._session.was_shown([id])
                return viewer.shown(item)
        for tier in ("long_term", "episodic"):  # a reader without rights is told so, with or without an item
            self._session.check_reads(tier)
        raise NotFound(f"there is no item {id!r} in this book" + ("" if at is None else " as of then"))

    @verb
    def history(self, id: ItemOrId, at: At = None) -> Changes:
        """Every change of one item, oldest first: what was done, by whom, when, which fields changed from what to what,
        and why. What this actor could not see at the time, or may not see now, is left out. Of an item that was erased,
        only that is told, to its author and the owner. Raises NotFound if it does not exist or this actor may not see
        it."""
        return history(self._session, id, at)

    @verb
    def list(
        self,
        /,
        *,
        kind: str | None = None,
        key: str | None = None,
        tags: Sequence[str] | None = None,
        agent: str | None = None,
        core: str | None = None,
        repository: bool | None = None,
        category: str | None = None,
        provenance: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        status: str | None = "live",
        since: datetime | None = None,
        until: datetime | None = None,
        valid_at: datetime | None = None,
        limit: int | None = None,
        after: str | None = None,
        at: At = None,
        scope: str | None = None,
        **unknown: Never,
    ) -> ItemList:
        """The items that match every filter, oldest first, as of `at`: all of them, or a page of `limit` items with a
        cursor for the next. With status=None, held, superseded, archived, dropped and forgotten ones are among them.
        Items that have expired are listed, and marked where the list is printed. Metadata is compared by type: with a
        value, or with gt, gte, lt, lte, ne, in and exists, as in `{"seats": {"gte": 5}}`. Raises BadInput for a filter
        that there is not, and for a field of metadata that no item has which this actor may see.

        `kind` is fact, note, procedure or episode. `core` is the core that they belong to. `repository` is whether to
        list only facts of the repository, or only others. `status` is live, held, superseded, archived, dropped or
        forgotten. `until` is the time before which they were recorded. `valid_at` is a time at which they hold: those
        that have expired then are left out. `after` is the cursor of the page before."""
        check_known("memory.list", unknown, (*FILTERS, "status", "valid_at", "limit", "after", "at", "scope"))
        only = item_filter(
            kind=kind, key=key, tags=tags, agent=agent, core=core, repository=repository, category=category,
            provenance=provenance, metadata=metadata, status=status, since=since, until=until, valid_at=valid_at,
        )  # fmt: skip
        session = self._session.narrowed(scope)
        session.check_reads("long_term")
        return listed(session, only, limit, after, at)

    @verb
    def long_term(self, at: At = None) -> Items:
        """What MEMORY.md holds, as far as this actor may see it: of the team's items that have not
        expired, the pinned ones and the newest that fit."""
        self._session.check_reads("long_term")
        now_us = self._session.ledger.moment(at)
        with self._session.viewer(at) as viewer:
            items = [
                item
                for item in viewer.items()
                if item.current and of_memory(item) and not item.expired(now_us)
            ]
            listed = fitting(map(viewer.shown, items), viewer.settings.max_size_kb * 1024)[0]
        self._session.was_shown([item.id for item in listed])
        return listed

    @verb
    def markdown(self, at: At = None) -> str:
        """MEMORY.md as this actor may see it, as of `at`, with what is known about each item; "" if there is nothing in
        it."""
        items, now_us = self.long_term(at), self._session.ledger.moment(at)
        with self._session.snapshot(at) as snapshot:
            stale = {item.id for item in items if is_stale(snapshot, item)}
        return (
            document("Memory", items, lambda item: remarks(item, now_us, item.id in stale)) if items else ""
        )

    @verb
    def held(self, why: str | None = None, *, core: str | None = None, at: At = None) -> Items:
        """The items that wait for `resolve`, all or for one reason: "near_duplicate", "proposal" (for a core),
        "dispute" (it contradicts another item) or "evidence" (a lesson that too little speaks for).

        `why` is near_duplicate, proposal, dispute or evidence. `core` is the core that they are for."""
        held = self.list(core=core, status="held", at=at)
        return [item for item in held if item.held is not None and why in (None, item.held.why)]

    @verb
    def disputes(self, at: At = None) -> Items:
        """The items that contradict another item and wait for `resolve`."""
        return self.held("dispute", at=at)

    @verb
    def tombstones(self, at: At = None) -> Tombstones:
        """What was forgotten: by whom, when and why, without content."""
        actor = self._session.actor
        with self._session.snapshot(at) as snapshot:
            rights = self._session.rights()
            stones = [stone for stone in tombstones(snapshot) if rights.in_scope(stone.scope)]
            return [stone for stone in stones if actor in (OWNER, stone.agent)]

    @verb
    def curate(self, days: int = 7, *, dry_run: bool = False, model: Model | None = None) -> Curated:
        """Take stable facts from the daily logs into long-term memory, each citing its lines: what recurs in different
        runs or on different days, or what a model proposes. The answer shows what changes in MEMORY.md as a diff. The
        items are derived from the logs: as sensitive as they are, and erased with them. Doing it again changes nothing,
        and does not bring back what was forgotten.

        `days` is how many days to look back. `model` is a function that takes a prompt and returns text, such as
        `commonplace.models.endpoint(…)`; it is given no sensitive lines, what it draws from one run or day alone waits
        in the inbox, and if it answers badly, what recurs is taken."""
        from .curate import curated

        if type(days) is not int or not 1 <= days <= 365:
            raise BadInput(f"days {shown(days)} is not a whole number from 1 to 365")
        return curated(self._session, days, dry_run=dry_run, model=model)

    @verb(reads_file="source")
    def import_(
        self,
        source: str | Path,
        *,
        dry_run: bool = False,
        shared: bool | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> ImportReport:
        """Take in the memory of another tool: a folder of markdown notes, a MEMORY.md, CLAUDE.md or AGENTS.md, an
        export of mem0, of the MCP memory server or of `memory.export`. The report says what each part became; importing
        again changes nothing.

        `source` is the folder or file to read. `shared` is whether the whole team sees it."""
        from .imports.importing import import_memories

        self._session.check_may_act("import")
        return import_memories(
            self._session, check_path("a source", source), dry_run, shared, check_call("progress", progress)
        )

    @verb(reads=True, writes_file="to")
    def export(
        self,
        to: str | Path,
        *,
        format: str = "json",
        kind: str | None = None,
        key: str | None = None,
        tags: Sequence[str] | None = None,
        agent: str | None = None,
        core: str | None = None,
        repository: bool | None = None,
        category: str | None = None,
        provenance: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        status: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        at: At = None,
        scope: str | None = None,
        **unknown: Never,
    ) -> int:
        """Write the items that this actor may see and that match every filter, of every status unless one is named: as
        JSON, one item per line, or as markdown that people read. Returns how many.

        `to` is the file to write. `format` is json or markdown. `kind` is fact, note, procedure or episode. `core` is
        the core that they belong to. `repository` is whether to write only facts of the repository, or only others.
        `until` is the time before which they were recorded. `status` is live, held, superseded, archived, dropped or
        forgotten."""
        check_known("memory.export", unknown, ("to", "format", *FILTERS, "status", "at", "scope"))
        check_one_of("format", format, ("json", "markdown"))
        items = self.list(
            kind=kind, key=key, tags=tags, agent=agent, core=core, repository=repository, category=category,
            provenance=provenance, metadata=metadata, status=status, since=since, until=until, at=at, scope=scope,
        )  # fmt: skip
        with new_file(check_path("a file", to), self._session.services.beside) as file:
            if format == "markdown":
                file.write(document("Memory", items, items.all_marks).encode())
            else:
                file.writelines(json.encode(item) + b"\n" for item in items)
        return len(items)

    # keeping it small

    @verb
    def tidy(self, *, dry_run: bool = False, now: datetime | None = None) -> Upkeep:
        """Keep memory small: archive old logs, ended tasks and aged entries, and consolidate what exceeds the
        budget, in a fixed order; each chore says why. Everything can be restored until it is erased."""
        moment = to_us("now", now or datetime.now(UTC))
        self._session.submit("memory.keeper", self._session.actor, "tidy")
        return tidied(self._session, moment, dry_run)

    # how it is kept

    @verb
    def settings(self, at: At = None) -> Settings:
        """How the book's durable memory is kept, as of `at`."""
        return self._session.settings(at)

    @verb
    def configure(self, **fields: Any) -> Settings:
        """Change settings of the book's memory: see `Settings`. The embedder `auto` stands for the best one that is
        installed now, whose name is stored."""
        if isinstance(fields.get("embedder"), str):
            fields["embedder"] = named_embedder(fields["embedder"])
        request = Configure(self._session.actor, encode_payload(fields)[1])
        settings: Settings = self._session.submit("memory.configure", request, "configure")
        return settings

    # cores

    @verb
    def set_core(self, id: str | Core, **fields: Any) -> Core:
        """Create a core, or change these fields of it. Only a librarian or person may.

        `id` is the id of the core."""
        request = SetCore(
            self._session.actor,
            check_name("a core", id),
            masked(encode_payload(fields)[1]),
            self._session.run,
        )
        core: Core = self._session.submit("memory.core", request, "core")
        return replace(core, scope=written(self._session.scope))

    @verb
    def core(self, id: str | Core, at: At = None) -> Core:
        """A core by its id. Raises NotFound if it does not exist or this actor may not know of it.

        `id` is the id of the core."""
        id = check_name("a core", id_of(id))
        with self._session.viewer(at) as viewer:
            core = viewer.core(viewer.views.scope, id)
        if core is None:
            raise NotFound(no_core(id))
        return core

    @verb
    def cores(self, at: At = None) -> Cores:
        """The cores that this actor may know of, of every scope that it reads."""
        with self._session.viewer(at) as viewer:
            cores = [viewer.core(*map(str, key)) for key, _ in viewer.rows("memory.cores")]
        return [core for core in cores if core is not None]

    @verb
    def suggestions(
        self, core: str | None = None, *, now: datetime | None = None, at: At = None
    ) -> Suggestions:
        """What could be improved in memory, or in one core, as of `at`: duplicates to merge, items to link, refresh or
        tag. It changes nothing.

        `core` is the core to look at alone."""
        from .suggestions import suggested

        rules = {(each.scope, each.id): each.config for each in self.cores(at)}
        if core is not None and check_name("a core", core) not in {id for _, id in rules}:
            raise NotFound(no_core(core))
        now_us = self._session.ledger.moment(at) if now is None else to_us("now", now)
        return suggested([*self.list(core=core, at=at)], rules, now_us)

    @verb
    def traverse(
        self, start: ItemOrId, depth: int = 1, relations: Sequence[str] | None = None, at: At = None
    ) -> Steps:
        """The items that links lead to from an item, in both directions, up to `depth` steps away, nearest first.

        `start` is the id of the item to begin with. `depth` is how many links away. `relations` are the relations to
        follow."""
        if type(depth) is not int or not 1 <= depth <= DEEPEST:
            raise BadInput(f"depth {shown(depth)} is not a whole number from 1 to {DEEPEST}")
        first = self.get(start, at)
        wanted = None
        if relations is not None:
            wanted = {check_name("a relation", name) for name in check_each("relations", relations)}
        with self._session.viewer(at) as viewer:
            steps = walked(viewer, first, depth, wanted)
        self._session.was_shown([step.item.id for step in steps])
        return steps


def forget(
    session: Session,
    /,
    id: ItemOrId | Sequence[ItemOrId] | None = None,
    *,
    kind: str | None = None,
    key: str | None = None,
    tags: Sequence[str] | None = None,
    agent: str | None = None,
    core: str | None = None,
    repository: bool | None = None,
    category: str | None = None,
    provenance: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    erase: bool = False,
    confirm: str | None = None,
    reason: str = "",
    dry_run: bool = False,
    if_position: int | None = None,
    scope: str | None = None,
    **unknown: Never,
) -> Forgotten:
    """Forget the items that match every filter, as `memory.list` chooses them. They leave tombstones and can be
    restored. With `erase`, their content and everything derived from it is gone for good. Needs `confirm="FORGET"`,
    unless nothing is to be done (`dry_run`).

    `kind` is fact, note, procedure or episode. `core` is the core that they belong to. `repository` is whether to
    forget only facts of the repository, or only others. `until` is the time before which they were recorded. `erase` is
    whether the content goes as well, and all that is derived from it. `confirm` is the word FORGET."""
    check_known(
        "forget", unknown, ("id", *FILTERS, "erase", "confirm", "reason", "dry_run", "if_position", "scope")
    )
    session = session.to_change(scope)
    if confirm != CONFIRMATION and not dry_run:
        raise BadInput(
            f'nothing was forgotten: say confirm="{CONFIRMATION}" if you mean it, or dry_run=True to see'
        )
    only = item_filter(
        kind=kind, key=key, tags=tags, agent=agent, core=core, repository=repository, category=category,
        provenance=provenance, metadata=metadata, since=since, until=until,
    )  # fmt: skip
    if not id and not only and scope is None:
        raise BadInput(f"say what to forget: an id, or one of {', '.join((*FILTERS, 'scope'))}")
    ids = () if id is None else check_items("id", id)
    if only or (scope is not None and id is None):
        session.check_reads("long_term")
        keeps = session.rights().may("keep_memory")
        own = [item for item in listed(session, only) if keeps or item.agent == session.actor]
        matching = tuple(item.id for item in own if item.status != "forgotten" or erase)
        ids = matching if id is None else tuple(each for each in ids if each in matching)
    by = "operator" if session.is_owner else "user"
    request = Forget(
        session.actor, ids, masked(check_text("reason", reason)), by, erase, dry_run, check_if_position(if_position),
        session.run,
    )  # fmt: skip
    forgotten: Forgotten = session.submit("memory.forget", request, "forget")
    if (
        erase and not dry_run and not forgotten.erased
    ):  # the files of an earlier erasure may not have been reached
        session.services.outside.erased(ids)
    return forgotten


def _revised(item: Item, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The content of the fields that somebody changes; None for one that is taken away. Raises BadInput."""
    changed = {
        f"{name.removesuffix('_at')}_us" if name in TIMES else name: to_us(name, value)
        if name in TIMES and value is not None
        else value
        for name, value in fields.items()
    }
    shape = shape_of(item.kind)
    if "text" in changed:
        changed[shape.text] = changed.pop("text")
    check_tasks(changed.get("tasks"), changed.get("type", item.type))
    needed = {name: getattr(item, name) for name in shape.needs}
    full = {
        name: value for name, value in {**needed, **changed}.items() if value is not None or name == "value"
    }
    content = encode_payload(checked(item.kind, encode_payload(full)[1]))[1]
    content = {name: content.get(name, _EMPTY.get(name)) for name in changed}
    check_no_blob(content)
    return content
