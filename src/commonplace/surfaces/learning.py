"""Commands about learning that do more than call a verb: they read JSON from a file, or ask a model."""

from __future__ import annotations

from ..verbs import RunId, WorkId
from .answers import whole_id
from .conversing import model_at, read_json
from .data import data_of
from .draw import page
from .shell import Output, Shell


def curate(
    shell: Shell,
    *,
    days: int = 7,
    dry_run: bool = False,
    url: str | None = None,
    model: str | None = None,
    seconds: float = 60.0,
) -> Output:
    """Take stable facts from the daily logs into long-term memory, each citing its lines: what recurs, or with a model
    what that proposes. Shows what changes in MEMORY.md as a diff.

    `days` is how many days to look back. `url` is the address of a server that answers as OpenAI's does, such as
    http://localhost:11434/v1. `model` is the name of the model there. `seconds` is how long it has for an answer."""
    asked = model_at(url, model, seconds)
    curated = shell.acting(mirrored=not dry_run).memory.curate(days, dry_run=dry_run, model=asked)
    return Output(data_of(curated), page(str(curated)))


def reflect(
    shell: Shell,
    *,
    run_id: RunId,
    threshold: int | None = None,
    private: bool = False,
    force: bool = False,
    url: str | None = None,
    model: str | None = None,
    seconds: float = 60.0,
) -> Output:
    """Let an agent reflect on a run, if that is due.

    `run_id` is the run. `threshold` is after how many events a reflection is due; by default what the agent's file says
    in memory.reflection_threshold. `private` is whether it may use the agent's own thoughts: then nobody else sees it.
    `force` is whether to reflect also when it is not due. `url` is the address of a server that answers as OpenAI's
    does, such as http://localhost:11434/v1. `model` is the name of the model there. `seconds` is how long it has for an
    answer."""
    me, asked = shell.acting(), model_at(url, model, seconds)
    id = whole_id(me, "run", run_id)
    reflection = me.learn.reflect(id, threshold=threshold, private=private, force=force, model=asked)
    return Output(data_of(reflection), page(str(reflection)))


def promote(shell: Shell, *, file: str = "-", task: str = "", dry_run: bool = False) -> Output:
    """Promote what was found out to facts of the repository, each through the checklist of a phase boundary: one fact
    as a JSON object, or a list of them, with subject, fact, citations, reason, category and, if there are any, sources.

    `file` is the JSON file to read, if not standard input. `task` is the name of the task that found them out."""
    facts = read_json(file, "a fact, or a list of facts")
    me = shell.acting(mirrored=not dry_run)
    report = me.learn.promote([facts] if isinstance(facts, dict) else facts, task=task, dry_run=dry_run)
    return Output(data_of(report), page(str(report)))


def compact(
    shell: Shell,
    *,
    file: str | None = None,
    thread: str | None = None,
    task: str | None = None,
    work: WorkId | None = None,
    notes: str | None = None,
    max_chars: int = 8000,
) -> Output:
    """Make a summary of a conversation that has grown too long, and lose nothing. Give a file of messages, or the name
    of a thread that holds them, or both.

    `file` is a JSON file with the messages, or - for standard input. `thread` is the name of the conversation. `task`
    is the name of the task whose session notes, decisions and gates are kept. `work` is the id of a work whose
    constraints, decisions and blockers are kept. `notes` is what was noted and not saved yet."""
    me = shell.acting(mirrored=True)
    messages = None if file is None else read_json(file, "a list of messages")
    id = None if work is None else whole_id(me, "work", work)
    made = me.learn.compact(messages, thread=thread, task=task, work=id, notes=notes, max_chars=max_chars)
    return Output(data_of(made), page(made.text))
