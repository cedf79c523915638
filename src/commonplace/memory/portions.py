"""How much of memory a prompt is given: what is looked for, and the budgets it is packed into (`memory.v1`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from ..access.rights import Sensitivity
from ..errors import BadInput, shown
from ..ledger.encoding import convert, encode_payload

Count = Annotated[int, msgspec.Meta(ge=0, le=10**9)]


class Portion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What may be taken at the most; None: as much as there is."""

    max_items: Count | None = None
    max_chars: Count | None = None
    max_tokens: Count | None = None


class PerKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The budget of each kind of item."""

    fact: Portion = Portion(6, 800)
    note: Portion = Portion(4, 1_200)
    procedure: Portion = Portion(3, 1_200)
    episode: Portion = Portion(2, 800)


class Portions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Budgets of the whole and of each kind of item."""

    total: Portion = Portion(12, 2_400)
    per_kind: PerKind = PerKind()


class Structured(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is always looked up: facts by key, in this order, and items by tag."""

    fact_keys: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


class Looking(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether something is looked for in this way, and how much is taken."""

    enabled: bool = True
    limit: Annotated[int, msgspec.Meta(ge=0, le=200)] = 60


class DigestRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What goes into a memory digest. What is looked for by words and by meaning is ranked by both together."""

    enabled: bool = True
    allow_sensitivities: tuple[Sensitivity, ...] = ("public", "private")
    structured: Structured = Structured()
    keyword: Looking = Looking()
    semantic: Looking = Looking(limit=20)
    budgets: Portions = Portions()


IMPORTANCE = {
    "run.started": 0.3, "world.observed": 0.7, "agent.spoke": 0.5, "oracle.spoke": 0.5, "agent.thought": 0.4,
    "agent.reflected": 0.85, "judge.verdict": 0.9, "user.injected": 0.95, "hypothesis.proposed": 0.75,
    "clue.found": 0.8, "verdict.final": 1.0,
}  # fmt: skip
"""How much each kind of event matters; any other half."""

Weight = Annotated[float, msgspec.Meta(ge=0, le=1000)]


class Salience(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What makes an event of a run worth a place in a prompt: its relevance, its recency and its importance."""

    w_rel: Weight = 0.3
    w_rec: Weight = 0.4
    w_imp: Weight = 0.3
    decay: Weight = 0.1
    """How quickly the past fades: after 1 / decay turns to a third."""
    importance: dict[str, Weight] = {}
    """By kind, where it is to be other than usual."""


def merged(before: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """What was said before with what is said now, at every depth."""
    nested = {
        name: merged(before[name], value)
        for name, value in fields.items()
        if isinstance(value, Mapping) and isinstance(before.get(name), Mapping)
    }
    return {**before, **fields, **nested}


Rules = TypeVar("Rules", DigestRules, Salience)


def rules_with(rules: Rules, fields: Mapping[str, Any]) -> Rules:
    """The rules with what somebody says otherwise. Raises BadInput."""
    if not isinstance(fields, Mapping):
        raise BadInput(f"rules {shown(fields)} is not a mapping, such as {{'semantic': {{'enabled': True}}}}")
    if not fields:
        return rules
    fields = encode_payload(fields)[1]
    try:
        return convert(merged(msgspec.to_builtins(rules), fields), type(rules))
    except msgspec.ValidationError as error:
        allowed = ", ".join(rules.__struct_fields__)
        raise BadInput(f"these rules of memory do not hold: {error}. Their fields are {allowed}") from None
