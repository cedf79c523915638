"""Other memories, given the same texts and the same vectors, to be asked the same questions.

Both are used as they come, without a language model. mem0 gets the encoder for its keyword search with stopwords of
ours, since it would download its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from commonplace.index.vectors import static_words
from commonplace.index.words import STOPWORDS

from .measure import folder
from .memory import theirs

MOST = 20
Find = Callable[[str], list[str]]


def embed(texts: Iterable[str]) -> list[list[float]]:
    return [[float(one) for one in vector] for vector in static_words().embed(list(texts))]


def langgraph(texts: dict[str, str], _: ExitStack) -> Find:
    from langgraph.store.memory import InMemoryStore  # type: ignore[import-not-found,unused-ignore]

    store = InMemoryStore(index={"dims": static_words().dimensions, "embed": embed, "fields": ["text"]})
    for id, text in texts.items():
        store.put(("turns",), id, {"text": text})
    return lambda query: [one.key for one in store.search(("turns",), query=query, limit=MOST)]


class Embedder:
    """Our vectors in the shape that mem0 asks for."""

    def embed(self, text: str, _action: str | None = None, **_: Any) -> list[float]:
        return embed([text])[0]

    def embed_batch(self, texts: list[str], _action: str | None = None, **_: Any) -> list[list[float]]:
        return embed(texts)


def mem0(texts: dict[str, str], open_until: ExitStack) -> Find:
    where = Path(open_until.enter_context(folder(None)))
    memory = theirs(where, Embedder(), static_words().dimensions)
    from fastembed import SparseTextEmbedding  # type: ignore[import-not-found,unused-ignore]

    memory.vector_store._bm25_encoder = SparseTextEmbedding(
        "Qdrant/bm25", specific_model_path=str(where), stopwords=set(STOPWORDS)
    )
    open_until.callback(memory.vector_store.client.close)
    for id, text in texts.items():
        memory.add(text, user_id="us", infer=False, metadata={"turn": id})

    def find(query: str) -> list[str]:
        results = memory.search(query, filters={"user_id": "us"}, top_k=MOST)["results"]
        return [one["metadata"]["turn"] for one in results]

    return find


NEEDS = {"langgraph": ("langgraph",), "mem0": ("mem0", "fastembed")}
PEERS: dict[str, Callable[[dict[str, str], ExitStack], Find]] = {"langgraph": langgraph, "mem0": mem0}


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
