"""The command that promotes what was found out: it reads facts from a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ..errors import BadInput
from .answers import data_of
from .draw import lines
from .shell import Output, Shell


def promote(shell: Shell, *, file: str = "-", task: str = "", dry_run: bool = False) -> Output:
    """Promote what was found out to facts of the repository, each through the checklist of a phase boundary: one fact
    as a JSON object, or a list of them, with subject, fact, citations, reason, category and, if there are any, sources.

    `file` is the JSON file to read, if not standard input. `task` is the name of the task that found them out."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text("utf-8-sig")
        facts = json.loads(text)
    except OSError as error:
        raise BadInput(f"{file} cannot be read ({error.strerror}): name another file") from error
    except ValueError as error:
        raise BadInput(f"that is not JSON ({error}): give a fact, or a list of facts") from error
    me = shell.acting(mirrored=not dry_run)
    report = me.learn.promote([facts] if isinstance(facts, dict) else facts, task=task, dry_run=dry_run)
    return Output(data_of(report), lines(*str(report).splitlines()))
