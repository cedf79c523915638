"""Vectors from a server that answers as OpenAI's does: whatever runs behind it, on this machine or elsewhere."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from urllib.error import HTTPError

import numpy as np
from numpy.typing import NDArray

from ..errors import NotEnabled, shown
from ..web import post
from .vectors import Vectors, readable, rounded

KEY = "COMMONPLACE_EMBEDDER_KEY"
BATCH = 64
TIMEOUT = 60.0
"""Seconds that a server may take for a batch."""
LARGEST = 1 << 26
"""Bytes that its answer may have."""


class Endpoint:
    """A server that answers POST /embeddings as OpenAI's does. It is given the texts that are indexed and asked."""

    def __init__(self, model: str, url: str) -> None:
        self.name = f"openai {model} at {url}"
        self._model, self._url = model, f"{url.rstrip('/')}/embeddings"

    def embed(self, texts: Sequence[str], asking: bool = False) -> Vectors:
        sent = [readable(text).strip() or "-" for text in texts]  # an empty text is refused
        parts = [self._ask(sent[at : at + BATCH]) for at in range(0, len(sent), BATCH)]
        return rounded(np.concatenate(parts)) if parts else np.zeros((0, 0), np.int8)

    def _ask(self, texts: list[str]) -> NDArray[np.float64]:
        body = {"model": self._model, "input": texts, "encoding_format": "float"}
        try:
            answer = post(self._url, body, key=os.environ.get(KEY), timeout=TIMEOUT, largest=LARGEST)
            return _embeddings(answer, len(texts))
        except HTTPError as error:
            told = shown(error.read(200).decode("utf-8", "replace"))
            todo = (
                f"set {KEY} to its key" if error.code in (401, 403) else "check URL and model, or try again"
            )
            raise NotEnabled(f"{self._url} answered {error.code} ({told}): {todo}") from error
        except OSError as error:
            raise NotEnabled(
                f"{self._url} cannot be reached ({error}): start it, or choose another embedder"
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise NotEnabled(
                f"{self._url} answered with something else than embeddings: check URL and model"
            ) from error


def _embeddings(answer: bytes, wanted: int) -> NDArray[np.float64]:
    found = sorted(json.loads(answer)["data"], key=lambda one: one["index"])
    made = np.array([one["embedding"] for one in found], np.float64)
    if made.ndim != 2 or len(made) != wanted or not np.isfinite(made).all():
        raise ValueError("not one vector for each text")
    return made
