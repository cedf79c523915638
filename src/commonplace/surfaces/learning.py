"""Commands about learning that may ask a model."""

from __future__ import annotations

from ..verbs import RunId
from .answers import data_of, whole_id
from .conversing import model_at
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
