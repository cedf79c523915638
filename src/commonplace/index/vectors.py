"""What a text is about, as a vector of whole numbers from −127 to 127: sums of their products stay below 2²⁴ and
are exact, so that every processor gives the same answer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..errors import NotEnabled

Vectors = NDArray[np.int8]
Bits = NDArray[np.uint64]

SCALE = 360
"""What a vector of length one is stretched to. Its parts are small, and cut off at 127."""
TOKEN_SCALE = 254
"""What the vector of a part of a text is stretched to. It is cut off at 127, too."""
LONGEST_TEXT = 4_000
"""How many characters of a text its vector is made of."""
CHUNK = 256
"""How many vectors are compared at once: few enough to stay in the processor's cache when they are made ready for it,
and to be multiplied by one thread. Several would wait for each other where the machine has something else to do."""


class Embedder(Protocol):
    """Makes vectors of texts. `name` tells all that they depend on: a change of it builds the index anew."""

    name: str

    def embed(self, texts: Sequence[str], asking: bool = False) -> Vectors:
        """One vector a text, all of the same length; all zeros where there is nothing to go by. `asking`: the texts are
        questions, which some models tell from what answers them."""
        ...


class Tokens(NamedTuple):
    """The parts of a text: a vector for each, and the place of the word in the text that it belongs to."""

    vectors: Vectors
    words: list[tuple[int, int]]


@runtime_checkable
class TokenEmbedder(Embedder, Protocol):
    """An embedder that can make vectors of the parts of a text, too."""

    def embed_tokens(self, texts: Sequence[str]) -> tuple[Vectors, list[Tokens]]:
        """What `embed` gives, and the parts of each text."""
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

    def embed(self, texts: Sequence[str], asking: bool = False) -> Vectors:
        made = np.zeros((len(texts), self.dimensions), np.int8)
        for at, text in enumerate(texts):
            ids = self._tokens.encode(readable(text), add_special_tokens=False).ids
            if ids:
                made[at] = whole(np.rint(self._table[ids].astype(np.float64) * 1024).sum(axis=0))
        return made


def readable(text: str) -> str:
    """As much of a text as a vector is made of, in characters that every tokenizer takes."""
    return text[:LONGEST_TEXT].encode("utf-8", "replace").decode()


def whole(vector: NDArray[np.float64]) -> Vectors:
    """A vector of whole numbers (below 2⁵³) brought to the length that vectors have here."""
    squares = vector.astype(np.int64) ** 2
    length = np.sqrt(float(squares.sum()))
    scaled = vector * (SCALE / length) if length else vector
    return np.clip(np.rint(scaled), -127, 127).astype(np.int8)


def rounded(vectors: NDArray[np.floating]) -> Vectors:
    """Vectors of any length as they are kept here."""
    made = np.zeros(vectors.shape, np.int8)
    for at, vector in enumerate(np.nan_to_num(vectors.astype(np.float64), posinf=0, neginf=0)):
        largest = float(np.abs(vector).max(initial=0))
        if largest:
            made[at] = whole(np.rint(vector * (2**20 / largest)))
    return made


@cache
def static_words() -> StaticWords:
    """The embedder that everybody has, loaded when it is first needed."""
    return StaticWords()


def likeness(vectors: Vectors, wanted: Vectors) -> NDArray[np.int64]:
    """How alike each vector is to each of the wanted ones: whole numbers, SCALE² for the very same. One row for each
    of the wanted ones."""
    right = wanted.astype(np.float32)
    alike = np.empty((len(wanted), len(vectors)), np.float32)
    ready = np.empty((min(CHUNK, len(vectors)), vectors.shape[1]), np.float32)
    for at in range(0, len(vectors), CHUNK):
        some = ready[: len(vectors) - at]
        np.copyto(some, vectors[at : at + CHUNK])
        for one, found in zip(right, alike, strict=True):
            np.dot(some, one, out=found[at : at + CHUNK])
    return alike.astype(np.int64)


def shares(alike: NDArray[np.int64]) -> NDArray[np.float64]:
    """How alike words are, as a share of the very same."""
    return (alike.astype(np.float32) / SCALE**2).astype(np.float64)


def signs(vectors: Vectors) -> Bits:
    """One bit for each part of a vector, set where it is above zero: 64 parts of every vector in each row."""
    packed = np.packbits(vectors > 0, axis=1)
    words = np.zeros((len(vectors), -(-packed.shape[1] // 8) * 8), np.uint8)
    words[:, : packed.shape[1]] = packed
    return np.ascontiguousarray(words.view(np.uint64).T)


def apart(bits: Bits, wanted: Bits) -> NDArray[np.uint16]:
    """In how many signs each vector differs from one: about as many as the angle between them is wide."""
    differ = np.zeros(bits.shape[1], np.uint16)
    for row, one in zip(bits, wanted[:, 0], strict=True):
        differ += np.bitwise_count(row ^ one)
    return differ
