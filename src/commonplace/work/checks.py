"""Checking what callers give: each check answers the value as it is kept, or raises BadInput that names the field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import asdict

from ..access.rights import ROLES
from ..access.secrets import masked
from ..errors import BadInput, TooLarge, shown
from ..ledger.events import MAX_PAYLOAD, check_name, check_text, encode_payload
from .tasks import OnFailure, Task

HIGHEST = 1_000_000


def checked_text(field: str, given: object) -> str:
    """What somebody says, without the secrets that are in it. It is kept whole, or refused."""
    text = check_text(field, given)
    size = len(text) if text.isascii() else len(text.encode())
    if size > MAX_PAYLOAD:
        raise TooLarge(
            f"{field} has {size:,} bytes, and at most {MAX_PAYLOAD:,} are kept: say it shorter, and keep the rest as "
            "an artifact with its content and store=True"
        )
    return masked(text)


def required_text(field: str, given: object) -> str:
    text = checked_text(field, given)
    if not text.strip():
        raise BadInput(f"{field} is empty: say something")
    return text


def texts(field: str, given: object) -> tuple[str, ...]:
    return tuple(checked_text(f"one of {field}", one) for one in listed(field, given))


def listed(field: str, given: object) -> Sequence[Any]:
    if given is None:
        return ()
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise BadInput(f"{field} {shown(given)} is not a list: give one, such as [...]")
    return given


def checked_flag(field: str, given: object) -> bool:
    if not isinstance(given, bool):
        raise BadInput(f"{field} {shown(given)} is neither True nor False")
    return given


def checked_metadata(given: object) -> dict[str, Any]:
    """A mapping of plain values, without the secrets that are in it."""
    if not isinstance(given, Mapping):
        raise BadInput(f"metadata {shown(given)} is not a mapping: give one, such as {{'ticket': 7}}")
    return masked(encode_payload(given)[1])


def checked_priority(given: object) -> int:
    if type(given) is not int or not -HIGHEST <= given <= HIGHEST:
        raise BadInput(
            f"priority {shown(given)} is not one: give a whole number from -{HIGHEST} to {HIGHEST}, higher first"
        )
    return given


def checked_role(given: object) -> str | None:
    """A role that a task is for; None, or nothing in it, is any."""
    if given in (None, ""):
        return None
    if not isinstance(given, str) or given not in ROLES:
        raise BadInput(
            f"for_role {shown(given)} is no role: give one of {', '.join(ROLES)}, or None for anybody"
        )
    return str(given)


def checked_policy(given: object) -> OnFailure | None:
    """A failure policy from its name or its fields."""
    if given is None:
        return None
    if isinstance(given, OnFailure):
        given = asdict(given)
    fields = {"policy": given} if isinstance(given, str) else given
    try:
        return msgspec.convert(fields, OnFailure)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise BadInput(
            f"on_failure {shown(given)} is not a policy: {error}. Give retry, reassign, escalate, skip or abort, or a "
            "mapping with policy, retries, backoff and then"
        ) from None


def seconds(name: str, given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0.05 <= given <= 30 * 86_400:
        raise BadInput(f"{name} {shown(given)} is not a number of seconds from 0.05 to {30 * 86_400:,}")
    return float(given)


def checked(what: str, given: object, allowed: Sequence[str]) -> str:
    if given not in allowed:
        raise BadInput(f"there is no {what} {shown(given)}: it is one of {', '.join(allowed)}")
    return str(given)


def id_of(task: object) -> str:
    """The id of a task that is given as it is, or by its id."""
    return task.id if isinstance(task, Task) else check_name("a task", task)


def names(field: str, given: object) -> tuple[str, ...]:
    """The ids of a list of tasks, each once."""
    if given is None:
        return ()
    if isinstance(given, str | Task) or not isinstance(given, Sequence):
        raise BadInput(f"{field} {shown(given)} is not a list: give the ids of tasks, such as [task.id]")
    return tuple(dict.fromkeys(id_of(one) for one in given))
