"""Other memories, given the same texts and the same vectors, to be asked the same questions.

Both are used as they come, without a language model.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from commonplace.index.vectors import Embedder
from commonplace.index.words import STOPWORDS

from .measure import folder

MOST = 20
DIMENSIONS = 64
Find = Callable[[str], list[str]]


def floats(embedder: Embedder, texts: Iterable[str]) -> list[list[float]]:
    return [[float(one) for one in vector] for vector in embedder.embed(list(texts))]


def width(embedder: Embedder) -> int:
    return int(embedder.embed(["any"]).shape[1])


def langgraph(texts: dict[str, str], _: ExitStack, embedder: Embedder) -> Find:
    from langgraph.store.memory import InMemoryStore  # type: ignore[import-not-found,unused-ignore]

    index = {"dims": width(embedder), "embed": partial(floats, embedder), "fields": ["text"]}
    store = InMemoryStore(index=index)
    for id, text in texts.items():
        store.put(("turns",), id, {"text": text})
    return lambda query: [one.key for one in store.search(("turns",), query=query, limit=MOST)]


def stub(dimensions: int) -> Any:
    """An embedder that costs next to nothing, so that the stores are compared and not the models."""

    class Stub:
        def embed(self, text: str, _action: str | None = None, **_: Any) -> list[float]:
            rng = random.Random(text)
            return [rng.random() for _ in range(dimensions)]

        def embed_batch(self, texts: list[str], _action: str | None = None, **_: Any) -> list[list[float]]:
            return [self.embed(text) for text in texts]

    return Stub()


def theirs(where: Path, embedder: Any = None, dimensions: int = DIMENSIONS) -> Any:
    """mem0 as it comes, on its usual vector store in a folder, with another embedder, or a stub in place of one. The
    encoder of its keyword search, which it would download, is made here, with stop words of ours."""
    os.environ.setdefault("OPENAI_API_KEY", "unused")
    os.environ["MEM0_TELEMETRY"] = "False"
    os.environ["MEM0_DIR"] = str(where / "mem0")
    from mem0 import Memory  # type: ignore[import-not-found,unused-ignore]

    store = {"path": str(where / "qdrant"), "embedding_model_dims": dimensions, "on_disk": True}
    memory = Memory.from_config(
        {
            "vector_store": {"provider": "qdrant", "config": store},
            "history_db_path": str(where / "history.db"),
        }
    )
    memory.embedding_model = embedder or stub(dimensions)
    from fastembed import SparseTextEmbedding  # type: ignore[import-not-found,unused-ignore]

    memory.vector_store._bm25_encoder = SparseTextEmbedding(
        "Qdrant/bm25", specific_model_path=str(where), stopwords=set(STOPWORDS)
    )
    return memory


class ForMem0:
    """Our vectors in the shape that mem0 asks for."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    def embed(self, text: str, _action: str | None = None, **_: Any) -> list[float]:
        return floats(self._embedder, [text])[0]

    def embed_batch(self, texts: list[str], _action: str | None = None, **_: Any) -> list[list[float]]:
        return floats(self._embedder, texts)


def mem0(texts: dict[str, str], open_until: ExitStack, embedder: Embedder) -> Find:
    where = Path(open_until.enter_context(folder(None)))
    memory = theirs(where, ForMem0(embedder), width(embedder))
    open_until.callback(memory.vector_store.client.close)
    for id, text in texts.items():
        memory.add(text, user_id="us", infer=False, metadata={"turn": id})

    def find(query: str) -> list[str]:
        results = memory.search(query, filters={"user_id": "us"}, top_k=MOST)["results"]
        return [one["metadata"]["turn"] for one in results]

    return find


NEEDS = {"langgraph": ("langgraph",), "mem0": ("mem0", "fastembed")}
PEERS: dict[str, Callable[[dict[str, str], ExitStack, Embedder], Find]] = {
    "langgraph": langgraph,
    "mem0": mem0,
}


def installed() -> list[str]:
    """The peers that are there; of the others it says how to get them."""
    there = []
    for name, packages in NEEDS.items():
        missing = [one for one in packages if find_spec(one) is None]
        if missing:
            print(
                f"{name} is left out, {', '.join(missing)} not installed: pip install 'commonplace-memory[bench]'"
            )
        else:
            there.append(name)
    return there
