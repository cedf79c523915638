"""Many tenants in one book: what one of them does is neither shown to another, nor does it shape what is shown."""

from __future__ import annotations

import io
import random
import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil, sqrt
from pathlib import Path

from commonplace import Actor, BadInput, Book
from commonplace.ledger.scopes import Path as ScopePath
from commonplace.ledger.scopes import lies_in, parsed, written
from commonplace.surfaces.cli import main

from . import Result, fault
from .places import place
from .readers import reads, reads_now, shown

ENGINES = ("memory", "sqlite", "postgres")

NAMES = (
    "al", "alice", "alice2", "Alice", "ALICE", "alicé", "a.lice", "a-lice", "a_lice", "ali", "bob", "b", "ob", "users",
    "user", "us", "0", "00", "%", "_", "--", ";", "?x", "[a]", "{b}", "(c)", "$1", "#2", "@me", "a=b", "a&b", "~", "^",
    "`", "'", "été", "日本", "مرحبا", "naïve", "ß", "ss", "SS", "İ", "i", "ı", "ﬁ", "fi", "Ω", "ω",
)  # fmt: skip
"""Names that a careless comparison takes for each other, or for a pattern, a query or a path."""

REFUSED = (
    "", "/", "users/", "/users", "users//alice", "users/../bob", "users/./bob", "..", ".", "users/*", "*", "users\\bob",
    "users/ alice", "users/alice ", "users/al\u200bice", "users/al\0ice", "users/al\nice", "a" * 201,
    "/".join("a" * 17),
)  # fmt: skip


@dataclass
class Tenant:
    """One scope, the bot that serves it, and the word that stands in everything that happens there."""

    number: int
    path: ScopePath
    reads: tuple[ScopePath, ...]
    word: str

    def bot(self, book: Book) -> Actor:
        """One bot serves all of them, so nothing is told apart by its author."""
        return book.as_actor("ada", scope=written(self.path), reads=[written(path) for path in self.reads])

    def may_read(self, other: Tenant) -> bool:
        return any(lies_in(other.path, path) for path in (self.path, *self.reads))


def tenants(rng: random.Random, count: int) -> list[Tenant]:
    """So many scopes with odd names, some below others, some that read another one."""
    paths: dict[ScopePath, None] = {}
    while len(paths) < count:
        above = rng.choice([(), (), *paths])
        paths[(*above, rng.choice(NAMES))[:4]] = None
    every = list(paths)
    return [
        Tenant(
            number,
            path,
            (rng.choice(every),) if rng.random() < 0.2 else (),
            f"zq{number}x{rng.randrange(10**6):06d}",
        )
        for number, path in enumerate(every)
    ]


def live(book: Book, tenant: Tenant) -> None:
    """Everything that a bot does for one tenant, in the same words for all but one."""
    me, word, n = tenant.bot(book), tenant.word, tenant.number
    note = me.remember(f"the port {word} is open", title=word, tags=[word, "port"], shared=True, pinned=True)
    me.remember(key="customer.port", value=word, shared=True)
    me.remember(key="customer.port", value=f"{word} too")
    me.remember(f"The port {word} is open.", shared=True)
    me.remember(f"on friday the port {word} was closed", kind="episode", occurred_at=datetime.now(UTC))
    gone = me.remember(f"the cellar of {word} is damp")
    me.forget(gone, confirm="FORGET")
    me.documents.log(f"opened the port {word}")
    me.documents.write_notes(f"# Objective\nOpen the port {word}\n")
    me.documents.add_to_session("Open the port", f"tried {word}")
    me.documents.add_to_task("Open the port", "decisions", f"use {word}")
    me.documents.record_gate("Open the port", "PLAN", "GO", reason=f"{word} is ready")
    me.record("agent.spoke", payload={"text": f"the port {word} is open"}, session_id="chat")
    with (
        me.run(run_id="r1" if n == 0 else f"r1-{n}", initial={"topic": word}) as run,
        run.agent("ada") as turn,
    ):
        turn.write({"findings": [f"the port {word} is open"]})
        turn.record("agent.spoke", payload={"text": f"in the run, {word}"})
        turn.remember(f"in the run the port {word} was open", shared=True)
    work = me.work("w1" if n == 0 else f"w1-{n}", name="Ports", goal=f"open the port {word}")
    task = work.add_task(f"Open the port {word}", id="t1" if n == 0 else f"t1-{n}")
    work.add_task(f"Close the port {word}")
    work.decide(
        question=f"Which port, {word}?", choice=word, rationale="it is free", by="ada", affects=[task.id]
    )
    work.discover(f"the port {word} is slow", by="ada")
    claim = work.claim("ada")
    if claim is not None:
        claim.complete(f"opened {word}")
    chat = me.thread("chat")
    chat.add([{"role": "user", "content": f"the port {word} is open", "name": word, "id": "m1"}])
    chat.summary(lambda _prompt: f"about the port {word}")
    chat.learn(
        lambda _prompt: f'{{"proposals": [{{"kind": "fact", "text": "uses {word}", "messages": [1]}}]}}'
    )
    chat.context("which port is open")
    me.digest(f"which port is open {word}")
    me.memory.revise(note, text=f"the port {word} is open since friday")


COMMANDS = (
    "status", "log", "inbox", "search port", "digest port", "prompt port", "memory list --status all", "memory held",
    "memory disputes", "memory tombstones", "memory cores", "thread list", "thread messages chat",
    "thread context chat port", "runs list", "runs state r1", "work list", "work show w1", "receipts list",
    "documents notes", "access rights", "access audit",
)  # fmt: skip


def printed(url: str, tenant: Tenant) -> Iterator[tuple[str, str]]:
    """What the shell prints for a tenant, for people and as JSON. A tenant may read no scope but its own there."""
    for command in COMMANDS:
        for how in ((), ("--json",)):
            scope = written(tenant.path)
            words = [*command.split(), *how, "--book", url, "--as", "ada", "--scope", scope]
            yield f"commonplace {' '.join(words)}", _run_shell(words)


def _run_shell(words: list[str]) -> str:
    before, text = sys.argv, io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="")
    sys.argv = ["commonplace", *words]
    try:
        with redirect_stdout(text), redirect_stderr(text), suppress(SystemExit):
            main()
    finally:
        sys.argv = before
    text.seek(0)
    return text.read()


def outputs(
    book: Book, tenant: Tenant, scratch: Path, moments: list[int | None]
) -> Iterator[tuple[str, str]]:
    """Every answer that a tenant's bot can have, and what it says."""
    me = tenant.bot(book)
    ids = [str(event.id) for event in list(book.events())[:6]]
    for at in moments:
        for name, read in reads(me, at, scratch, ids):
            yield f"{name} at {at}", shown(read)
    for name, read in reads_now(me, scratch):
        yield name, shown(read)
    yield "inbox", shown(lambda: me.inbox())
    yield "typing errors", shown(lambda: me.search(tenant.word[:-1] + "#", explain=True))


@fault(27, "scopes", 10_100, 40)
def scopes(count: int, seed: int, tmp: Path) -> Result:
    """So many tenants that there are `count` pairs of a reader and another tenant, on three engines; every read of each
    reader, and what the shell prints for it, is looked through for the words of all others."""
    result, rng = Result(), random.Random(seed)
    for engine in ENGINES:
        everybody = tenants(rng, ceil((1 + sqrt(1 + 4 * count / len(ENGINES))) / 2))
        home = place(engine, tmp / engine)
        (tmp / engine).mkdir(parents=True, exist_ok=True)
        with home.open() as book:
            book.access.grant("ada", acts=["keep_memory", "orchestrate", "review", "see_as"])
            for tenant in everybody:
                live(book, tenant)
            middle = book.head // 2
            for reader in everybody:
                hidden = [other for other in everybody if not reader.may_read(other)]
                own = False
                shell = list(printed(home.url, reader)) if engine == "sqlite" else []
                for name, text in (*outputs(book, reader, tmp, [None, middle]), *shell):
                    own = own or reader.word in text
                    words = set(re.findall(r"zq\d+x\d{6}", text))
                    for other in hidden:
                        if other.word in words:
                            told = f"{engine} (seed {seed})"
                            result.problem(
                                told,
                                f"{written(reader.path)} was shown {written(other.path)} by {name}: {text}",
                            )
                if not own:
                    result.problem(f"{engine} (seed {seed})", f"{written(reader.path)} was not shown its own")
                result.cases += len(everybody) - 1
                if shell and not any(reader.word in text for _, text in shell):
                    result.problem(
                        f"{engine} (seed {seed})", f"the shell shows {written(reader.path)} nothing"
                    )
                result.outcomes["kept apart"] += len(hidden)
                result.outcomes["read by right"] += len(everybody) - 1 - len(hidden)
        home.drop()
    for name in REFUSED:
        _check_refused(result, name)
    return result


def _check_refused(result: Result, name: str) -> None:
    try:
        parsed(name)
    except BadInput:
        result.outcomes["refused"] += 1
    else:
        result.problem("names", f"{name!r} was taken for a scope")
