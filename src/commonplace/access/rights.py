"""Rights: what an actor may do, and what it may see.

Rights are events, so they can be read as of any position like everything else. A rule is about a *subject*:
everybody (`*`), a role (`role:qa`) or one actor (`actor:ada`); the more particular rule wins, field by field.
`rights_of` puts the three together, and takes off what the workflow of a run does not leave and what lies outside the
scopes that the session reads. `may_see_of` is the one place that decides by scope, author, kind, labels, ceiling and
tier what an actor may see; `labels_allow` asks it about an event.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any, Literal

import msgspec

from ..errors import BadInput, shown
from ..ledger.checks import check_name
from ..ledger.encoding import convert, encode_payload
from ..ledger.events import Event
from ..ledger.labels import SENSITIVITY, Labels, strictness
from ..ledger.printing import Readable
from ..ledger.reader import ViewReader
from ..ledger.scopes import ROOT, SCOPE, Path, all_named, keys_in, lies_in, path_of, written
from ..ledger.views import typed

Permission = Literal["none", "read", "read_write"]
Sensitivity = Literal["public", "private", "sensitive"]

OWNER = "owner"
"""The actor that a book acts as when nobody else is named. It may do and see everything."""

RUNTIME = "runtime"
"""The actor of what no agent did: marks of progress, errors, endings."""

RESERVED_ACTORS = (OWNER, RUNTIME)

MEMORY = "memory."
"""How the kinds of durable memory begin. Only their own commands record them."""

WORKING = ("task.", "work.")
"""How the kinds of works and their tasks begin."""

THREAD = "thread."
"""How the kinds of conversations begin."""

AUTHOR = "author"
"""The audience of an event that nobody sees but its author and the owner, whatever its kind."""

LIMITED_SCOPES = ("", "scopes")
"""The row of rights that says that somebody was once granted scopes. Without it there is nothing to check."""

WORKING_KINDS = frozenset(
    {"memory.logged", "memory.noted", "memory.gated", "memory.archived", "memory.result", "memory.verified"}
)
"""Those of the working tier; the others are long-term memory's."""

EVERYBODY = "*"
TIERS = ("long_term", "working", "episodic", "semantic")
PERMISSIONS = ("none", "read", "read_write")

ACTS = {
    "grant": "change the rights of others",
    "relabel": "lower a label",
    "see_as": "ask what another actor sees",
    "keep_memory": "keep the team's memory: write cores, settle disputes, change what others remember",
    "orchestrate": "begin works, and add, assign and cancel their tasks",
    "review": "review what others have done",
    "nudge": "send nudges to those who work",
    "approve": "approve what is risky",
}
"""Rights to do something out of the ordinary, by name. Nobody but the owner has them unless a role or a rule
says so."""

ROLES: dict[str, frozenset[str]] = {
    "orchestrator": frozenset({"see_as", "orchestrate", "nudge"}),
    "developer": frozenset(),
    "qa": frozenset({"review"}),
    "researcher": frozenset(),
    "librarian": frozenset({"keep_memory"}),
    "analyst": frozenset({"see_as"}),
    "person": frozenset({"relabel", "see_as", "keep_memory", "orchestrate", "review", "nudge", "approve"}),
}
"""The roles, and which acts each of them brings."""

PUBLIC_KINDS = frozenset(
    {
        "agent.reflected",
        "agent.spoke",
        "judge.verdict",
        "oracle.spoke",
        "run.started",
        "user.injected",
        "world.observed",
    }
)
"""Kinds that everybody may see. Of all others an actor sees those that it recorded."""


class AccessRule(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What was said about one subject. None: nothing, so the wider rule holds.

    `may_emit` are kinds that it may record, `sees` kinds of others that it may see besides the public ones,
    both with `*` for any ending. `ceiling` is the highest sensitivity of others' events that it may see.
    """

    role: str | None = None
    tiers: dict[str, Permission] | None = None
    may_emit: tuple[str, ...] | None = None
    sees: tuple[str, ...] | None = None
    acts: tuple[str, ...] | None = None
    ceiling: Sensitivity | None = None
    scopes: dict[str, Permission] | None = None
    """What it may do in which scopes, by their keys, and in those below them; of two, the lower one holds."""


class Rights(Readable, msgspec.Struct, frozen=True):
    """All that holds for one actor at one moment."""

    actor: str
    role: str | None = None
    tiers: dict[str, Permission] = {}
    may_emit: tuple[str, ...] | None = None
    sees: tuple[str, ...] = ()
    acts: frozenset[str] = frozenset()
    ceiling: Sensitivity = "private"
    run_may_emit: tuple[str, ...] | None = None
    """What the workflow of the run it acts in lets it record, on top of `may_emit`."""
    scopes: frozenset[str] | None = None
    """The keys of the scopes that it reads; None: all of them."""
    granted: dict[str, Permission] | None = None
    """What it may do in which scopes, by their names, in an answer about rights; None: it was granted none, and may
    read and write all of them."""

    @property
    def owner(self) -> bool:
        return self.actor == OWNER

    @property
    def sees_all(self) -> bool:
        """Whether nothing in the book is hidden from it."""
        return self.actor == OWNER and self.scopes is None

    def in_scope(self, scope: str) -> bool:
        """Whether it reads the scope with this key. It is asked first, also about what is its own."""
        return self.scopes is None or scope in self.scopes

    def may(self, act: str) -> bool:
        return self.owner or act in self.acts

    def tier(self, tier: str) -> Permission:
        """What it may do in a memory tier: read_write unless a rule says less, in the history of runs read."""
        if self.owner:
            return "read_write"
        permission = self.tiers.get(tier, "read_write")
        return "read" if tier == "episodic" and permission == "read_write" else permission

    def __str__(self) -> str:
        """What a person wants to know of it, one thing per line."""
        if self.owner:
            return "owner: may do and see everything"
        tiers = [f"{tier}={self.tier(tier)}" for tier in TIERS]
        kinds = "any kind" if self.may_emit is None else ", ".join(self.may_emit) or "nothing"
        scopes = None if self.granted is None else [f"{name}={may}" for name, may in self.granted.items()]
        lines = [
            f"{self.actor} ({self.role or 'no role'})",
            f"memory: {', '.join(tiers)}",
            f"scopes: {'all' if scopes is None else ', '.join(scopes) or 'none'}",
            f"records: {kinds}",
            f"sees of others: {', '.join(self.sees) or 'what is public or shared'}, up to {self.ceiling}",
        ]
        return "\n".join([*lines, *([f"may: {', '.join(sorted(self.acts))}"] if self.acts else [])])

    def emits(self, kind: str) -> bool:
        limits = [patterns for patterns in (self.may_emit, self.run_may_emit) if patterns is not None]
        return self.owner or all(_matches(kind, patterns) for patterns in limits)


def granted_scopes(views: ViewReader, actor: str) -> dict[str, Permission] | None:
    """What an actor was granted in which scopes, by their names, those further up first."""
    granted = _granted(views, actor)
    return None if granted is None else {written(path): may for path, may in _by_depth(views, granted)}


def _granted(views: ViewReader, actor: str) -> dict[str, Permission] | None:
    if actor == OWNER or views.get("rights", *LIMITED_SCOPES) is None:
        return None
    own = _rule(views, f"actor:{actor}")
    rules = (own, _rule_of_role(views, own), _rule(views, EVERYBODY))
    return next((rule.scopes for rule in rules if rule.scopes is not None), None)


def rights_of(views: ViewReader, actor: str, run: str | None = None) -> Rights:
    """The rights of an actor, as of the position of the views. In a run, its workflow's files may leave it less, never
    more; so does the scope that the reader of the views is bound to."""
    if actor == OWNER:
        return Rights(OWNER, scopes=views.readable)
    own = _rule(views, f"actor:{actor}")
    rules = [_rule(views, EVERYBODY), _rule_of_role(views, own), own]
    in_run = rule_in(views, run, actor) or AccessRule()
    brought = ROLES.get(own.role or "", frozenset())

    def last(name: str, default: Any) -> Any:
        """The field of the most particular rule that has it."""
        values = (getattr(rule, name) for rule in reversed(rules))
        return next((value for value in values if value is not None), default)

    tiers = {tier: permission for rule in rules for tier, permission in (rule.tiers or {}).items()}
    for tier, permission in (in_run.tiers or {}).items():
        tiers[tier] = stricter(tiers.get(tier, "read_write"), permission)
    return Rights(
        actor=actor,
        role=own.role,
        tiers=tiers,
        may_emit=last("may_emit", None),
        run_may_emit=in_run.may_emit,
        sees=last("sees", ()),
        acts=frozenset(last("acts", brought)),
        ceiling=last("ceiling", "private"),
        scopes=_readable(views, last("scopes", None)),
    )


def _rule_of_role(views: ViewReader, own: AccessRule) -> AccessRule:
    return _rule(views, f"role:{own.role}") if own.role else AccessRule()


def _readable(views: ViewReader, granted: dict[str, Permission] | None) -> frozenset[str] | None:
    """The scopes that a session reads, of those that its actor was granted. A scope whose name was erased is the
    owner's alone."""
    if granted is None:
        return all_named(views) if views.readable is None else views.readable
    reads = set[str]()
    for path, permission in _by_depth(views, granted):
        if permission == "none":
            reads -= keys_in(views, path)
        else:
            reads |= keys_in(views, path)
    return frozenset(reads if views.readable is None else reads & views.readable)


def _by_depth(views: ViewReader, granted: dict[str, Permission]) -> list[tuple[Path, Permission]]:
    """The scopes that an actor was granted, those further up first; without those whose names were erased."""
    paths = ((path_of(views, key) if key else ROOT, permission) for key, permission in granted.items())
    return sorted(((path, permission) for path, permission in paths if path), key=lambda pair: len(pair[0]))


def scope_permission(views: ViewReader, actor: str, path: Path) -> Permission:
    """What an actor may do in a scope, as far as grants say: everything, unless some scopes were granted to it."""
    granted = _granted(views, actor)
    return "read_write" if granted is None else permission_in(views, granted, path)


def permission_in(views: ViewReader, granted: dict[str, Permission], path: Path) -> Permission:
    """What somebody who was granted these scopes, by their keys, may do in a scope."""
    above = [permission for scope, permission in _by_depth(views, granted) if lies_in(path or ROOT, scope)]
    return above[-1] if above else "none"


def reads_scope(views: ViewReader, actor: str, scope: str) -> bool:
    """Whether the reader of the views reads the scope with this key, as an actor that was granted it."""
    if views.readable is not None and scope not in views.readable:
        return False
    if actor == OWNER:
        return True
    if views.get("rights", *LIMITED_SCOPES) is None:
        return path_of(views, scope) is not None
    return rights_of(views, actor).in_scope(scope)


def rule_in(views: ViewReader, run: str | None, actor: str) -> AccessRule | None:
    """What a run's own rules leave an actor: its own, or else what they say of everybody. The runtime is no agent."""
    if run is None or actor in RESERVED_ACTORS:
        return None
    for subject in (actor, EVERYBODY):
        if (row := views.get("state.rights", run, subject)) is not None:
            return typed(row, AccessRule, "state.rights", run, subject)
    return None


def role_of(views: ViewReader, actor: str) -> str | None:
    """The role of an actor, as of the position of the views."""
    return None if actor == OWNER else _rule(views, f"actor:{actor}").role


def _rule(views: ViewReader, subject: str) -> AccessRule:
    row = views.get("rights", subject)
    return AccessRule() if row is None else typed(row, AccessRule, "rights", subject)


def check_actor(name: object) -> str:
    """Anybody's name but those that the book itself acts under."""
    actor = check_name("actor", name)
    if actor in RESERVED_ACTORS:
        raise BadInput(f"nobody acts as {actor!r} but the book itself: choose another name")
    if actor == EVERYBODY or actor.startswith(("role:", "actor:")):
        raise BadInput(f"{actor!r} reads like a rule's subject, not like a name: choose another one")
    return actor


def subject_of(named: object) -> str:
    """Whom a rule is about: `*`, `role:…`, `actor:…`, or just an actor's name."""
    named = check_name("the subject of a rule", named)
    if named == EVERYBODY:
        return named
    if named.startswith("role:"):
        if named.removeprefix("role:") not in ROLES:
            raise BadInput(f"there is no role {shown(named)}: the roles are {', '.join(ROLES)}")
        return named
    return f"actor:{check_actor(named.removeprefix('actor:'))}"


def labels_allow(rights: Rights, event: Event, labels: Labels) -> bool:
    """Whether an actor with these rights may see an event that carries these labels.

    Its own, always. Of others: the public kinds and those it was given to see, up to its ceiling.
    """
    return may_see_of(rights, event.actor, event.kind, labels)


def may_see_of(rights: Rights, author: str, kind: str, labels: Labels) -> bool:
    """The same for whatever has an author, a kind and labels: an event, or an item of memory. Visible is what lies in a
    scope that is read, and is one's own, shared or of a public kind, within the ceiling and an open tier. What is
    labelled as its author's is nobody else's, of a public kind or not."""
    if not rights.in_scope(labels.get(SCOPE, "")):
        return False
    if rights.owner:
        return True
    if kind.startswith(MEMORY) and rights.tier(tier_of_kind(kind)) == "none":
        return False
    if author == rights.actor:
        return True
    if labels.get("audience") == AUTHOR:
        return False
    if kind not in PUBLIC_KINDS and not _shared(kind, labels) and not _matches(kind, rights.sees):
        return False
    sensitivity = labels.get("sensitivity", "public")
    return strictness("sensitivity", sensitivity) <= strictness("sensitivity", rights.ceiling)


def work_shows(rights: Rights, author: str, kind: str, labels: Labels) -> bool:
    """The same for what a work records about itself: its members see it up to their ceiling, also what is meant for one
    of them. Whether an actor may know of the work at all is another question (`work/info.py:may_know`)."""
    return may_see_of(rights, author, kind, {**labels, "audience": "team"})


def tier_of_kind(kind: str) -> str:
    """The tier that an event of memory belongs to."""
    return "working" if kind in WORKING_KINDS else "long_term"


def _shared(kind: str, labels: Labels) -> bool:
    """Memory, and what is told of works, tasks, scopes and conversations, is its author's own unless it is the team's,
    or says that it is public."""
    return kind.startswith((MEMORY, *WORKING, "scope.", THREAD)) and (
        labels.get("audience") == "team" or labels.get("sensitivity") == "public"
    )


def stricter(a: Permission, b: Permission) -> Permission:
    return min(a, b, key=PERMISSIONS.index)


def in_both(a: tuple[str, ...] | None, b: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The kinds that two lists of patterns both allow; None allows all."""
    if a is None or b is None:
        return b if a is None else a
    narrow = [kind for kind in a if _matches(kind, b)] + [kind for kind in b if _matches(kind, a)]
    return tuple(dict.fromkeys(narrow))


def _matches(kind: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(kind, pattern) for pattern in patterns)


def checked_rule(fields: dict[str, Any]) -> AccessRule:
    """A rule from plain data. Raises BadInput that says what is allowed."""
    try:
        _, plain, _ = encode_payload(fields)
        ceiling = plain.get("ceiling")
        if ceiling is not None and ceiling not in SENSITIVITY:
            raise BadInput(f"there is no sensitivity {shown(ceiling)}: it is one of {', '.join(SENSITIVITY)}")
        rule = convert(plain, AccessRule)
    except msgspec.ValidationError as error:
        raise BadInput(f"that is not a rule about rights: {error}. Its fields are {_FIELDS}") from None
    if fields.get("role") is not None and rule.role not in ROLES:
        raise BadInput(f"there is no role {shown(rule.role)}: the roles are {', '.join(ROLES)}")
    for tier in rule.tiers or {}:
        if tier not in TIERS:
            raise BadInput(f"there is no tier {shown(tier)}: the tiers are {', '.join(TIERS)}")
    for act in rule.acts or ():
        if act not in ACTS:
            raise BadInput(f"there is no act {shown(act)}: the acts are {', '.join(ACTS)}")
    for kind in (*(rule.may_emit or ()), *(rule.sees or ())):
        check_name("a kind", kind)
    return rule


_FIELDS = ", ".join(AccessRule.__struct_fields__)
