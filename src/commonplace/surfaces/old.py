"""The commands of works as typer has them, until they are made from verbs."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, cast

import click
import msgspec
import typer

from .. import __version__
from ..access.rights import OWNER
from ..events import decode
from ..ledger import At
from .places import DEFAULT_BOOK
from .shell import Answer, Shell

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


app = typer.Typer(
    name="commonplace",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

BookOption = Annotated[
    str | None,
    typer.Option(
        "--book",
        metavar="URL",
        help="The book: PATH.db, file:FOLDER, postgresql://…, redis://… or unix://SOCKET, a server's with "
        f"?book=NAME.  [env var: COMMONPLACE_BOOK; default: {DEFAULT_BOOK}]",
    ),
]
AsOption = Annotated[
    str | None,
    typer.Option("--as", metavar="ACTOR", help=f"Who acts, and under whose rights.  [default: {OWNER}]"),
]
MirrorOption = Annotated[
    str | None,
    typer.Option(
        "--mirror",
        metavar="DIR",
        help="Where the book's memory lies as markdown.  [default: beside a local book]",
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document; an error is one on stderr.")
]


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"commonplace {__version__}")
        raise typer.Exit


@app.callback()
def before(
    context: typer.Context,
    book: BookOption = None,
    as_: AsOption = None,
    mirror: MirrorOption = None,
    as_json: JsonOption = False,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """One memory for a team of AI agents: an append-only ledger, and views of it.

    --book, --as, --mirror and --json may stand before the command or after it. Exit code 1 means refused, with the
    reason on stderr; 2 means wrong usage.
    """
    context.obj = (book, as_, as_json, mirror)


Command = Callable[..., Answer]


def group(name: str, about: str) -> Callable[[Command], Command]:
    """A command of commands: what makes functions into commands below it."""
    below = typer.Typer(no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.add_typer(below, name=name, help=about)
    return lambda function: _command(function, below)


def command(function: Command) -> Command:
    """Make a function of a Shell and its own options into a command that has the common options too."""
    return _command(function, app)


def _command(function: Command, into: typer.Typer) -> Command:
    def run(
        context: typer.Context,
        book: str | None,
        as_: str | None,
        as_json: bool,
        mirror: str | None,
        **given: Any,
    ) -> None:
        first = context.find_root().obj
        shell = Shell(book or first[0], as_ or first[1], as_json or first[2], mirror or first[3])
        code = shell.run(function, given)
        if code:
            raise typer.Exit(code)

    _, *own = inspect.signature(function, eval_str=True).parameters.values()
    context, *common, _ = inspect.signature(before, eval_str=True).parameters.values()
    typed = inspect.Signature([context, *own, *common])
    run.__name__, run.__doc__ = function.__name__, function.__doc__
    run.__annotations__ = {name: one.annotation for name, one in typed.parameters.items()}
    vars(run)["__signature__"] = typed
    name = function.__name__.rstrip("_").rpartition("__")[2].replace("_", "-")
    into.command(name)(run)
    return function


def run_old(words: list[str]) -> object:
    from . import team, work  # noqa: F401  their commands

    try:
        return app(words, prog_name="commonplace", standalone_mode=False)
    except cast(type[Exception], typer.BadParameter.__base__) as error:
        raise click.UsageError(cast(Any, error).format_message()) from None
    except typer.Abort:
        return 130
