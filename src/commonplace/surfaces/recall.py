"""The commands of recall: what a prompt is given, receipts, what has just happened, and what would have been."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from ..recall.migrating import TOP
from ..recall.prompting import PARTS
from .draw import Human, clean, lines, page, table
from .options import AtOption, as_of
from .shell import Answer, Shell, command, group

MaxChars = Annotated[int | None, typer.Option(metavar="N", help="At most so many characters.")]
MaxTokens = Annotated[
    int | None, typer.Option(metavar="N", help="At most so many tokens (about four characters each).")
]
IgnoreOption = Annotated[bool, typer.Option("--ignore-memory", help="Leave memory out.")]
StableOption = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="Go on with the last digest of this name: its beginning stays as it was."
    ),
]


@command
def digest(
    shell: Shell,
    query: Annotated[str, typer.Argument(metavar="TASK", help="What it is for.")] = "",
    max_items: Annotated[int | None, typer.Option(metavar="N", help="At most so many items.")] = None,
    max_chars: MaxChars = None,
    max_tokens: MaxTokens = None,
    semantic: Annotated[
        bool | None,
        typer.Option("--semantic/--no-semantic", help="By meaning as well as by words, or by words alone."),
    ] = None,
    stable: StableOption = "",
    ignore_memory: IgnoreOption = False,
    at: AtOption = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say how each item was found.")] = False,
) -> Answer:
    """What is remembered about a task, packed into a budget, for a prompt. Writes a receipt."""
    with shell.progress("indexing") as progress:
        shell.open().admin.reindex(progress)
    rules = None if semantic is None else {"semantic": {"enabled": semantic}}
    found = shell.acting().digest(
        query, max_items=max_items, max_chars=max_chars, max_tokens=max_tokens, rules=rules, stable=stable,
        ignore_memory=ignore_memory, at=as_of(at),
    )  # fmt: skip

    def human() -> Human:
        yield from page(found.text)
        if explain:
            yield from lines(*(f"{id}: {why}" for id, why in found.why.items()))
        yield from lines(*(f"left out: {id} ({why})" for id, why in found.omitted))
        yield from lines(*(f"left out: {one.what} ({one.why})" for one in found.left_out))
        if stable:
            yield from lines(
                f"{found.kept} characters are as they were", *([found.rebased] if found.rebased else [])
            )
        if found.receipt_id:
            yield from lines(f"receipt {found.receipt_id}, as of {found.as_of}")

    return Answer(found, human())


@command
def prompt(
    shell: Shell,
    task: Annotated[str, typer.Argument(metavar="TASK", help="What is to be done.")],
    part: Annotated[
        list[str] | None,
        typer.Option(metavar="PART", help=f"Only this part ({', '.join(PARTS)}); repeatable."),
    ] = None,
    max_chars: MaxChars = None,
    max_tokens: MaxTokens = None,
    stable: StableOption = "",
    ignore_memory: IgnoreOption = False,
    work: Annotated[
        str | None, typer.Option(metavar="WORK", help="Say how this work stands, too, and tell its nudges.")
    ] = None,
    at: AtOption = None,
) -> Answer:
    """A task and all that whoever acts should know for it, as text for a model."""
    made = shell.acting().prompt(
        task, parts=part or PARTS, max_chars=max_chars, max_tokens=max_tokens, stable=stable,
        ignore_memory=ignore_memory, work=work, at=as_of(at),
    )  # fmt: skip
    told = {
        "text": str(made),
        "receipt_id": made.receipt_id,
        "omitted": made.omitted,
        "left_out": made.left_out,
    }
    return Answer(told, page(str(made)))


@command
def receipt(
    shell: Shell,
    id: Annotated[str, typer.Argument(metavar="RECEIPT", help="The receipt's id.", show_default=False)],
    replay: Annotated[bool, typer.Option("--replay", help="Pack the text again from its trace.")] = False,
) -> Answer:
    """What a digest or prompt was made of, or its text again, byte for byte."""
    found = shell.acting().receipts.get(id)
    if replay:
        text = found.replay()
        return Answer({"id": id, "text": text, "hash": found.hash}, page(text))

    def human() -> Human:
        yield from lines(
            f"for {found.by}{f' in run {found.run}' if found.run else ''}, as of {found.as_of}, at {found.now}",
            f"asked: {clean(str(found.request.get('query', '')))}",
            f"index: {found.index}",
        )
        if found.ignored:
            yield from lines(f"memory was left out: {clean(found.ignored)}")
        yield from table(found.included, "item", "version", "line")
        yield from lines(*(f"left out: {number} ({why})" for why, number in found.omitted.items()))
        if found.trace is not None:
            rows = (
                (one.via, f"{one.score:.3f}", one.id, clean(one.barred)) for one in found.trace.candidates
            )
            yield from table(rows, "found by", "score", "candidate", "why not")
        if found.missing:
            yield from lines(f"no trace: {found.missing}")

    return Answer(found, human())


@command
def bisect(
    shell: Shell,
    run: Annotated[str, typer.Argument(metavar="RUN", help="A past run.", show_default=False)],
    without: Annotated[str | None, typer.Option(metavar="ITEM", help="Leave out this item.")] = None,
    looking_for: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only what this text in a digest depended on.")
    ] = None,
) -> Answer:
    """What a run's digests would have been without one memory, or without each of them."""
    matters = None if looking_for is None else lambda text: looking_for in text
    found = shell.acting().receipts.bisect(run, without, matters)

    def human() -> Human:
        rows = ((one.item, len(one.changed), one.lines, ", ".join(one.with_it)) for one in found.effects)
        yield from table(rows, "without", "digests changed", "lines", "and what came from it")
        for effect in found.effects if without is not None else ():
            for one in effect.changed:
                yield from lines(f"receipt {one.receipt}:")
                yield from lines(
                    *(f"- {clean(line)}" for line in one.lost), *(f"+ {clean(line)}" for line in one.gained)
                )
        yield from lines(
            f"{found.receipts} digests looked at", *(f"not {id}: {why}" for id, why in found.unread)
        )

    return Answer(msgspec.to_builtins(found), human())


@command
def recent(
    shell: Shell,
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run.", show_default=False)],
    query: Annotated[str, typer.Option(metavar="TEXT", help="Rank by salience for this.")] = "",
    k: Annotated[int, typer.Option("--k", metavar="N", help="How many events.")] = 8,
    turn: Annotated[int | None, typer.Option(metavar="N", help="As of this turn.")] = None,
    semantic: Annotated[bool, typer.Option("--semantic", help="Judge relevance by the index.")] = False,
    salient: Annotated[
        bool, typer.Option("--salient", help="The most salient, not the most recent.")
    ] = False,
) -> Answer:
    """What has just happened in a run: the most recent events, or the most salient."""
    actor = shell.acting()
    if salient or query:
        found = actor.receipts.salient(query, run, turn=turn, top_k=k, semantic=semantic)
    else:
        found = actor.receipts.window(run, k=k)
    told = {
        "text": found.text, "events": [one.id for one in found.events], "scores": found.scores,
        "semantic": found.semantic, "fallback": found.fallback,
    }  # fmt: skip
    return Answer(told, page("\n".join(filter(None, (found.text, found.fallback)))))


@group("migrate", "Build something anew beside what is in use, compare, and switch.")
def index(
    shell: Shell,
    embedder: Annotated[
        str,
        typer.Argument(
            metavar="EMBEDDER",
            help="auto, static, minilm, fastembed:MODEL, sentence-transformers:MODEL or openai:MODEL@URL.",
            show_default=False,
        ),
    ],
    query: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Compare by this query, not by recorded ones; may be repeated."),
    ] = None,
    switch: Annotated[bool, typer.Option("--switch", help="Use it from now on.")] = False,
) -> Answer:
    """Build the index with another embedder beside the one in use, and compare what both find."""
    book = shell.owned()
    with shell.progress("indexing") as progress:
        found = book.admin.migrate_index(embedder, queries=query, switch=switch, progress=progress)
    told = {
        **msgspec.to_builtins(found), "alike": found.alike,
        "compared": [{**msgspec.to_builtins(one), "alike": one.alike} for one in found.compared],
    }  # fmt: skip

    def human() -> Human:
        rows = ((f"{one.alike:.0%}", one.actor, clean(one.query)[:100]) for one in found.compared)
        yield from table(rows, "found by both", "who asked", "what")
        yield from lines(
            f"{len(found.compared)} queries compared, {found.alike:.0%} of the first {TOP} results are the same",
            "every process uses it from now on"
            if found.switched
            else "nothing was changed: --switch uses it",
        )

    return Answer(told, human())
