"""Output contracts: JSON Schemas that say what an agent's output must be (R17). Violations name field and rule
and never a value, so that they can be shown to anybody."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..access.patterns import bad_pattern, compiled
from ..errors import BadInput
from ..ledger.encoding import canonical, decode

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

CONFIDENCE = "confidence"
FILLED_IN = 0.5
"""The confidence of an output that states none, where the contract does not insist."""


def violations(
    contract: dict[str, Any], output: dict[str, Any], partial: bool = False
) -> list[dict[str, str]]:
    """What is wrong with an output. `partial`: fields may still be missing."""
    broken = []
    for error in _validator(canonical(contract)).iter_errors(output):
        if not (partial and error.validator == "required" and not error.absolute_path):
            broken += [{"field": field, "rule": rule} for field, rule in _in_words(error)]
    stated = output.get(CONFIDENCE)
    if CONFIDENCE in output and not (
        isinstance(stated, int | float) and not isinstance(stated, bool) and 0 <= stated <= 1
    ):
        broken = [each for each in broken if each["field"] != CONFIDENCE]
        broken.append({"field": CONFIDENCE, "rule": "must be a number from 0 to 1"})
    return sorted(broken, key=lambda each: (each["field"], each["rule"]))


def _in_words(error: Any) -> Iterator[tuple[str, str]]:
    """Field and rule in words, without the value that broke it."""
    field = ".".join(str(part) for part in error.absolute_path)
    limit = error.validator_value
    if error.validator == "required":
        for name in limit:
            if name not in error.instance:
                yield f"{field}.{name}" if field else name, "is required and missing"
    elif error.validator == "additionalProperties":
        for name in sorted(_undeclared(error.schema, error.instance)):
            yield f"{field}.{name}" if field else name, "is not declared"
    elif error.validator == "type":
        kinds = limit if isinstance(limit, str) else " or ".join(map(str, limit))
        yield field, f"must be of type {kinds}"
    elif error.validator in ("anyOf", "oneOf", "allOf", "not", "if", "$ref", "contains", "dependentSchemas"):
        yield field, f"does not meet {error.validator}"
    else:
        yield field, f"must meet {error.validator}: {limit!r}"[:200]


def bad_pattern_in(schema: object) -> str | None:
    """What is wrong with a pattern somewhere in a schema, or None. What agents put out is matched with them."""
    if isinstance(schema, dict):
        named = schema.get("patternProperties")
        for pattern in (schema.get("pattern"), *(named if isinstance(named, dict) else ())):
            why = bad_pattern(pattern) if isinstance(pattern, str) else None
            if why:
                return f"the pattern {pattern!r:.60} cannot be used: {why}"
    inner = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    return next(filter(None, map(bad_pattern_in, inner)), None)


@lru_cache(256)
def _validator(contract: bytes) -> Validator:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import extend
    from referencing import Registry

    schema = decode(contract)
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise BadInput(f"the contract is not a JSON Schema: {error.message[:200]}") from None
    why = bad_pattern_in(schema)
    if why is not None:
        raise BadInput(f"the contract cannot be used: {why}")
    in_linear_time: Any = extend(  # type: ignore[no-untyped-call]
        Draft202012Validator,
        {
            "pattern": _meets_pattern,
            "patternProperties": _meet_patterns,
            "additionalProperties": _adds_nothing,
        },
    )
    validator: Validator = in_linear_time(schema, registry=Registry())  # nothing is fetched from anywhere
    return validator


# The keywords of JSON Schema that match patterns, in linear time


def _meets_pattern(_validator: Any, pattern: str, value: object, _schema: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    if isinstance(value, str) and not compiled(pattern).search(value):
        yield ValidationError("it does not match the pattern")


def _meet_patterns(validator: Any, patterns: dict[str, Any], value: Any, _schema: Any) -> Iterator[Any]:
    for pattern, schema in patterns.items() if isinstance(value, dict) else ():
        for name in filter(compiled(pattern).search, value):
            yield from validator.descend(value[name], schema, path=name, schema_path=pattern)


def _adds_nothing(validator: Any, rest: Any, value: Any, schema: dict[str, Any]) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    more = _undeclared(schema, value) if isinstance(value, dict) else []
    if rest is False and more:
        yield ValidationError("it has more properties than are declared")
    for name in more if rest is not False else ():
        yield from validator.descend(value[name], rest, path=name)


def _undeclared(schema: dict[str, Any], value: dict[str, Any]) -> list[str]:
    """The properties that a schema does not speak of."""
    patterns = [compiled(pattern) for pattern in schema.get("patternProperties", ())]
    declared = schema.get("properties", {})
    return [
        name
        for name in value
        if name not in declared and not any(pattern.search(name) for pattern in patterns)
    ]
