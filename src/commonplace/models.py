"""Models that people bring: any function from a prompt to an answer, or a server that answers as OpenAI's does.

    from commonplace.models import endpoint

    model = endpoint("http://localhost:11434/v1", "llama3.2")
    book.thread("support-17").learn(model)

commonplace needs no model. Where one helps (`thread.learn`, `thread.summary`, `learn.reflect`, `memory.curate`), what
it answers is checked, and recorded as an event before anything is derived from it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from .errors import BadInput, CommonplaceError, ModelFailed, shown

Model = Callable[[str], str]
"""A model is given a prompt and answers with text."""

KEY = "COMMONPLACE_MODEL_KEY"
LARGEST = 1 << 22
"""How many bytes an answer may have."""

T = TypeVar("T")

_FENCE = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n\s*```\s*", re.S)


class _Said(msgspec.Struct):
    content: str


class _Choice(msgspec.Struct):
    message: _Said


class _Completion(msgspec.Struct):
    choices: list[_Choice]


def endpoint(url: str, model: str, *, key: str | None = None, timeout: float = 60.0) -> Model:
    """A model behind a server that answers POST /chat/completions as OpenAI's does. `key` is sent with every request;
    if it is not given, the environment variable COMMONPLACE_MODEL_KEY is. The server is given what the prompts say, and
    has `timeout` seconds for an answer. Trouble is ModelFailed."""
    if not isinstance(url, str) or urlsplit(url).scheme not in ("http", "https"):
        raise BadInput(f"url {shown(url)} is not the address of a server: give http://… or https://…")
    # The HTTP client is loaded with the first endpoint: importing the library stays quick.
    from urllib.error import HTTPError

    from .web import post

    place = f"{url.rstrip('/')}/chat/completions"

    def ask(prompt: str) -> str:
        body = {"model": model, "messages": [{"role": "user", "content": prompt}], "temperature": 0}
        try:
            answer = post(place, body, key=key or os.environ.get(KEY), timeout=timeout, largest=LARGEST)
            return msgspec.json.decode(answer, type=_Completion).choices[0].message.content
        except HTTPError as error:
            said = shown(error.read(200).decode("utf-8", "replace"))
            raise ModelFailed(f"{place} answered {error.code} ({said}): check URL, model and key") from error
        except OSError as error:
            raise ModelFailed(
                f"{place} did not answer within {timeout:g} seconds: start it, or wait longer with timeout"
                if isinstance(getattr(error, "reason", error), TimeoutError)
                else f"{place} cannot be reached ({error}): start it, or check the URL"
            ) from error
        except (msgspec.MsgspecError, ValueError, IndexError) as error:
            raise ModelFailed(
                f"{place} did not answer with a chat completion ({error}): check the URL"
            ) from error

    return ask


def answer_of(model: Model, prompt: str, longest: int) -> str:
    """What a model answers to a prompt. Raises ModelFailed if it raises, or answers with no text or too much of it."""
    if not callable(model):
        raise BadInput(
            f"model {shown(model)} is not a function: give one that takes a prompt and returns text, such as "
            "commonplace.models.endpoint(url, model)"
        )
    try:
        answer = model(prompt)
    except CommonplaceError:
        raise
    except Exception as error:
        raise ModelFailed(f"the model raised {type(error).__name__}: {error}") from error
    if not isinstance(answer, str):
        raise ModelFailed(f"the model answered {shown(answer)}, which is no text")
    if len(answer) > longest:
        raise ModelFailed(f"the model answered with {len(answer):,} characters; at most {longest:,} are read")
    return answer


def decoded(answer: str, kind: type[T]) -> T:
    """A model's answer in JSON as what it was asked for; it may stand in a block of code. Raises ModelFailed that says
    what is wrong with it."""
    fenced = _FENCE.fullmatch(answer)
    try:
        return msgspec.json.decode(fenced[1] if fenced else answer, type=kind)
    except msgspec.MsgspecError as error:
        raise ModelFailed(
            f"the model's answer is not what it was asked for: {error}. Nothing of it was kept"
        ) from error
