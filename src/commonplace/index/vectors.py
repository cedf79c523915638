"""What a text is about, as a vector of whole numbers from −127 to 127: sums of their products stay below 2²⁴ and
are exact, so that every processor gives the same answer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import NotEnabled

Vectors = NDArray[np.int8]

SCALE = 360
"""What a vector of length one is stretched to. Its parts are small, and cut off at 127."""
LONGEST_TEXT = 4_000
"""How many characters of a text its vector is made of."""
CHUNK = 8_192
"""How many vectors are compared at once."""


class Embedder(Protocol):
    """Makes vectors of texts. `name` tells all that they depend on: a change of it builds the index anew."""

    name: str
    dimensions: int

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One vector a text; all zeros where there is nothing to go by."""
        ...


class StaticWords:
    """The sum of fixed vectors of a text's tokens: no model runs, and nothing is downloaded."""

    dimensions = 256

    def __init__(self) -> None:
        found = find_spec("wordllama")
        if found is None or found.origin is None:
            raise NotEnabled("semantic search needs the package wordllama: pip install wordllama")
        from safetensors import safe_open
        from tokenizers import Tokenizer

        folder = Path(found.origin).parent
        with safe_open(str(folder / "weights" / "l2_supercat_256.safetensors"), "numpy") as weights:
            self._table = weights.get_tensor("embedding.weight")
        self._tokens = Tokenizer.from_file(str(folder / "tokenizers" / "l2_supercat_tokenizer_config.json"))
        self._tokens.no_padding()
        self._tokens.no_truncation()
        self.name = f"wordllama {version('wordllama')} 256"

    def embed(self, texts: Sequence[str]) -> Vectors:
        made = np.zeros((len(texts), self.dimensions), np.int8)
        for at, text in enumerate(texts):
            clean = text[:LONGEST_TEXT].encode("utf-8", "replace").decode()
            ids = self._tokens.encode(clean, add_special_tokens=False).ids
            if ids:
                made[at] = whole(np.rint(self._table[ids].astype(np.float64) * 1024).sum(axis=0))
        return made


def whole(vector: NDArray[np.float64]) -> Vectors:
    """A vector of whole numbers (below 2⁵³) brought to the length that vectors have here."""
    squares = vector.astype(np.int64) ** 2
    length = np.sqrt(float(squares.sum()))
    scaled = vector * (SCALE / length) if length else vector
    return np.clip(np.rint(scaled), -127, 127).astype(np.int8)


@cache
def static_words() -> StaticWords:
    """The embedder that everybody has, loaded when it is first needed."""
    return StaticWords()


def likeness(vectors: Vectors | NDArray[np.float32], wanted: Vectors) -> NDArray[np.float32]:
    """How alike each vector is to each of the wanted ones: whole numbers, SCALE² for the very same. One row for each
    of the wanted ones."""
    right = wanted.astype(np.float32).T
    parts = [
        vectors[at : at + CHUNK].astype(np.float32, copy=False) @ right
        for at in range(0, len(vectors), CHUNK)
    ]
    return np.concatenate([np.zeros((0, len(wanted)), np.float32), *parts]).T
