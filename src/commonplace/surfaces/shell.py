"""How a command is run, whichever it is.

A command is a function of a `Shell` and of what was typed, and returns an `Answer`: the data that `--json`
prints, and what people read. The shell does the rest once for all of them: opening and closing books, printing, and
exit codes (1 refused, 2 usage).
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, cast

import click
import msgspec

from ..access.rights import OWNER
from ..book import Book
from ..book import open as open_book
from ..engines.contract import TIMEOUT
from ..errors import BadInput, BookNotFound, CommonplaceError, Denied, NotABook
from ..ledger.ledger import Progress
from ..participant import Participant, acting
from .draw import clean
from .places import DEFAULT_BOOK, found_book, public, users_book
from .wording import in_shell_words


@dataclass(frozen=True, slots=True)
class Output:
    """What a command found out. `data` is the JSON document (an iterator: an array, written as it comes; with
    `lines`, one document a line). `human` is what people read, drawn only when it is asked for."""

    data: object
    human: Iterable[str] = ()
    code: int = 0
    lines: bool = False


class Shell:
    """Where the book is, who acts, and how to answer."""

    def __init__(
        self,
        given: str | None = None,
        actor: str | None = None,
        as_json: bool = False,
        mirror: str | None = None,
        *,
        user: bool = False,
        scope: str | None = None,
    ) -> None:
        self.given = users_book() if user else given
        self.mirror = mirror
        named = self.given or os.environ.get("COMMONPLACE_BOOK")
        self.found = not named
        self.url = named or found_book()
        self.actor = actor or OWNER
        self.scope = scope
        self.json = as_json
        self.warnings: list[str] = []
        self._open = ExitStack()
        self._books: dict[str, Book] = {}

    def open(
        self,
        url: str | None = None,
        *,
        name: str | None = None,
        create: bool = False,
        mirrored: bool = False,
        timeout: float = TIMEOUT,
    ) -> Book:
        """A book that stays open until the answer is printed. Only with `mirrored`, for commands that write memory, is
        its markdown taken in and written with it: a command that reads touches no file. Raises BookNotFound that says
        how to make it."""
        url = url or self.url
        if url in self._books:
            return self._books[url]
        if self.found and url == self.url and Path(url).parent.is_symlink():  # nobody has named it
            raise NotABook(f"{Path(url).parent} is a link: name the book that it leads to with --book")
        try:
            book = self._open.enter_context(
                open_book(
                    url,
                    name=name,
                    create=create,
                    mirror=self._mirror_of(url) if mirrored else False,
                    timeout=timeout,
                )
            )
            return self._books.setdefault(url, book)
        except BookNotFound:
            place = "" if url == DEFAULT_BOOK else f" --book {shlex.quote(public(url))}"
            raise BookNotFound(
                f"there is no book at {public(url)}: create it with `commonplace init{place}`"
            ) from None

    def next_command(self, *words: str) -> str:
        """A command for the user to type next: of the same book, if it was named."""
        place = () if self.given is None else ("--book", public(self.given))
        return shlex.join(["commonplace", *words, *place])

    def _mirror_of(self, url: str) -> str | None:
        return self.mirror if url == self.url else None

    def acting(self, *, mirrored: bool = False) -> Participant:
        """The book as the actor sees it: the owner all of it, anybody else under their rights; with a scope, within
        that."""
        book = self.open(mirrored=mirrored)
        return (
            book if self.actor == OWNER and self.scope is None else acting(book, self.actor, scope=self.scope)
        )

    def owned(self, *, scoped: bool = False, **how: Any) -> Book:
        """The book, for what only its owner may do to it, and unless it is `scoped`, to the whole of it."""
        if self.scope is not None and not scoped:
            raise BadInput("this is about the whole book: leave --scope out")
        if self.actor != OWNER:
            raise Denied(f"only the book's owner may do this, not {self.actor!r}: leave --as out")
        return self.open(**how)

    def run(self, function: Callable[..., Output], given: dict[str, Any]) -> int:
        """Run a command to its end, and answer the exit code."""
        code = 0
        with _warnings_to(self):
            try:
                with self._open:
                    answer = function(self, **given)
                    code = answer.code
                    self._print(answer)
            except CommonplaceError as error:
                for note in getattr(error, "__notes__", ()):
                    self.warn(note)
                told = error.as_dict()
                self._complain({**told, "message": in_shell_words(str(told["message"]))})
                return 1
            except BrokenPipeError:  # nobody reads on: what was done is done
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            except (KeyboardInterrupt, click.Abort):
                return 130
            except OSError as error:  # the output, or the markdown, cannot be written: what was done is done
                self._complain({"code": "os_error", "status": 500, "message": str(error)})
                return 1
        if self.json and self.warnings:
            print(dump({"warnings": self.warnings}), file=sys.stderr)
        return code

    def _print(self, answer: Output) -> None:
        if not self.json:
            for line in answer.human:
                print(line, flush=answer.lines)
        elif answer.lines:
            for one in cast(Iterator[object], answer.data):
                print(dump(one), flush=True)
        elif isinstance(answer.data, Iterator):
            print("[", end="")
            for number, one in enumerate(answer.data):
                print(",\n" if number else "", dump(one), sep="", end="")
            print("]")
        else:
            print(dump(answer.data))
        sys.stdout.flush()

    def _complain(self, error: dict[str, object]) -> None:
        if self.json:
            more = {"warnings": self.warnings} if self.warnings else {}
            print(dump({"error": error, **more}), file=sys.stderr)
        else:
            print("Error:", clean(str(error["message"])), file=sys.stderr)
            for one in cast(Iterable[dict[str, object]], error.get("details") or ()):
                told = ", ".join(f"{name} {value!r}" for name, value in one.items())
                print(" ", clean(told)[:500], file=sys.stderr)

    def tell(self, message: str) -> None:
        """Say something about the answer to the person who reads it, on stderr: what goes into a file is the answer."""
        if not self.json:
            print(clean(message), file=sys.stderr)

    def warn(self, message: str) -> None:
        """With --json, stderr is one document too, so warnings wait for the end."""
        self.warnings.append(message)
        if not self.json:
            print("Warning:", clean(message), file=sys.stderr)

    @contextmanager
    def progress(self, what: str) -> Iterator[Progress | None]:
        """A callback that draws a bar on a terminal once the work has taken a second."""
        if self.json or not sys.stderr.isatty():
            yield None
            return
        from rich.console import Console
        from rich.progress import Progress as Bar

        bar = Bar(console=Console(file=sys.stderr, force_terminal=True), transient=True)
        task = bar.add_task(what, total=None)
        begun = monotonic()

        def tell(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)
            if monotonic() - begun > 1:
                bar.start()

        try:
            yield tell
        finally:
            if bar.live.is_started:
                bar.stop()


@contextmanager
def _warnings_to(shell: Shell) -> Iterator[None]:
    """What the library warns of while the command runs goes where the user looks."""
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: shell.warn(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("commonplace")
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


def dump(data: object) -> str:
    """One line of ASCII: lossless in any terminal's encoding, and nothing in it can act on a terminal."""
    return json.dumps(msgspec.to_builtins(data, str_keys=True), ensure_ascii=True)
