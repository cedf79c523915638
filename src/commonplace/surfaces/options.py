"""Options that several commands have, and how what was typed is read."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer

from ..events import decode
from ..ledger import At

AtOption = Annotated[
    str | None,
    typer.Option(
        "--at", metavar="POSITION|TIME", help="As of a position, or an ISO time (local if it has no zone)."
    ),
]


def moment(typed: str) -> datetime:
    try:
        return datetime.fromisoformat(typed).astimezone()
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"{typed!r} is not a time such as 2026-01-31T09:30:00Z") from None


def as_of(typed: str | None) -> At:
    if typed is None:
        return None
    return int(typed) if typed.isascii() and typed.isdigit() and len(typed) < 20 else moment(typed)


def typed_json(typed: str, what: str, such_as: str) -> Any:
    """JSON as it was typed; `-` reads it from standard input."""
    if typed == "-" and sys.stdin is None:
        raise typer.BadParameter(f"there is no standard input to read {what} from")
    raw = sys.stdin.buffer.read() if typed == "-" else typed.encode()
    try:
        return decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise typer.BadParameter(f"{what} is not JSON ({error}): write {such_as}") from None


def json_or_text(typed: str) -> Any:
    try:
        return decode(typed)
    except msgspec.MsgspecError:
        return typed
