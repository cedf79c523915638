"""Checking what callers give: each check answers the value as it is kept, or raises BadInput that names the field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import asdict

from ..access.masking import masked
from ..access.rights import ROLES
from ..errors import BadInput, TooLarge, shown
from ..ledger.checks import check_name, check_text
from ..ledger.encoding import MAX_PAYLOAD, convert, encode_payload
from .tasks import OnFailure, Task

HIGHEST = 1_000_000


def checked_text(field: str, value: object) -> str:
    """What somebody says, without the secrets that are in it. It is kept whole, or refused."""
    text = check_text(field, value)
    size = len(text) if text.isascii() else len(text.encode())
    if size > MAX_PAYLOAD:
        raise TooLarge(
            f"{field} has {size:,} bytes, and at most {MAX_PAYLOAD:,} are kept: say it shorter, and keep the rest as "
            "an artifact with its content and store=True"
        )
    return masked(text)


def required_text(field: str, value: object) -> str:
    text = checked_text(field, value)
    if not text.strip():
        raise BadInput(f"{field} is empty: say something")
    return text


def texts(field: str, value: object) -> tuple[str, ...]:
    return tuple(checked_text(f"one of {field}", item) for item in listed(field, value))


def listed(field: str, value: object) -> Sequence[Any]:
    if value is None:
        return ()
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise BadInput(f"{field} {shown(value)} is not a list: give one, such as [...]")
    return value


def checked_metadata(value: object) -> dict[str, Any]:
    """A mapping of plain values, without the secrets that are in it."""
    if not isinstance(value, Mapping):
        raise BadInput(f"metadata {shown(value)} is not a mapping: give one, such as {{'ticket': 7}}")
    return masked(encode_payload(value)[1])


def checked_priority(value: object) -> int:
    if type(value) is not int or not -HIGHEST <= value <= HIGHEST:
        raise BadInput(
            f"priority {shown(value)} is not one: give a whole number from -{HIGHEST} to {HIGHEST}, higher first"
        )
    return value


def checked_role(value: object) -> str | None:
    """A role that a task is for; None, or nothing in it, is any."""
    if value in (None, ""):
        return None
    if not isinstance(value, str) or value not in ROLES:
        raise BadInput(
            f"for_role {shown(value)} is no role: give one of {', '.join(ROLES)}, or None for anybody"
        )
    return str(value)


def checked_policy(value: object) -> OnFailure | None:
    """A failure policy from its name or its fields."""
    if value is None:
        return None
    if isinstance(value, OnFailure):
        value = asdict(value)
    fields = {"policy": value} if isinstance(value, str) else value
    try:
        return convert(fields, OnFailure)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise BadInput(
            f"on_failure {shown(value)} is not a policy: {error}. Give retry, reassign, escalate, skip or abort, or a "
            "mapping with policy, retries, backoff and then"
        ) from None


def seconds(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.05 <= value <= 30 * 86_400:
        raise BadInput(f"{name} {shown(value)} is not a number of seconds from 0.05 to {30 * 86_400:,}")
    return float(value)


def checked(kind: str, value: object, allowed: Sequence[str]) -> str:
    if value not in allowed:
        raise BadInput(f"there is no {kind} {shown(value)}: it is one of {', '.join(allowed)}")
    return str(value)


def id_of(task: object) -> str:
    """The id of a task that is given as it is, or by its id."""
    return task.id if isinstance(task, Task) else check_name("a task", task)


def names(field: str, value: object) -> tuple[str, ...]:
    """The ids of a list of tasks, each once."""
    if value is None:
        return ()
    if isinstance(value, str | Task) or not isinstance(value, Sequence):
        raise BadInput(f"{field} {shown(value)} is not a list: give the ids of tasks, such as [task.id]")
    return tuple(dict.fromkeys(id_of(item) for item in value))
