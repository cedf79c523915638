"""Commands about conversations that do more than call a verb: they read messages from a file, or ask a model."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ..errors import BadInput
from ..models import Model, endpoint
from .data import data_of
from .draw import lines
from .shell import Output, Shell


def add(shell: Shell, thread: str, *, file: str = "-") -> Output:
    """Add messages to a conversation: one as a JSON object, or a list of them, in the shapes of OpenAI's and
    Anthropic's APIs. What is in the conversation already is not added again.

    `thread` is the name of the conversation. `file` is the JSON file to read, if not standard input."""
    messages = read_json(file, "a message, or a list of messages")
    added = shell.acting().thread(thread).add(messages)
    return Output(data_of(added), lines(str(added)))


def summary(
    shell: Shell, thread: str, *, url: str | None = None, model: str | None = None, seconds: float = 60.0
) -> Output:
    """Show the last summary of a conversation. With a model, what was said since is summarized first.

    `thread` is the name of the conversation. `url` is the address of a server that answers as OpenAI's does, such as
    http://localhost:11434/v1. `model` is the name of the model there. `seconds` is how long it has for an
    answer."""
    made = shell.acting().thread(thread).summary(model_at(url, model, seconds))
    return Output(
        {} if made is None else data_of(made), lines("there is no summary yet" if made is None else made.text)
    )


def learn(shell: Shell, thread: str, *, url: str, model: str, seconds: float = 60.0) -> Output:
    """Let a model propose what to remember from a conversation. Proposals wait in the inbox.

    `thread` is the name of the conversation. `url` is the address of a server that answers as OpenAI's does, such as
    http://localhost:11434/v1. `model` is the name of the model there. `seconds` is how long it has for an
    answer."""
    learned = shell.acting().thread(thread).learn(endpoint(url, model, timeout=seconds))
    return Output(data_of(learned), lines(str(learned)))


def model_at(url: str | None, model: str | None, seconds: float) -> Model | None:
    """The model that a command was told to ask, if it was."""
    if url is None and model is None:
        return None
    if url is None or model is None:
        missing, what = (
            ("--model", "the name of the model there") if model is None else ("--url", "its server")
        )
        raise BadInput(f"{'--url' if model is None else '--model'} needs {missing}: {what}")
    return endpoint(url, model, timeout=seconds)


def read_json(file: str, what: str) -> Any:
    """What a JSON file holds, or standard input if the file is "-". Raises BadInput that says `what` it should be."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text("utf-8-sig")
        return json.loads(text)
    except OSError as error:
        raise BadInput(f"{file} cannot be read ({error.strerror}): name another file") from error
    except ValueError as error:
        raise BadInput(f"that is not JSON ({error}): give {what}") from error
