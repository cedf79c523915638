"""By which words something about a work is found again."""

from __future__ import annotations

from itertools import islice

MOST = 16
"""How many words of a text it is found by."""


def words_of(*texts: str) -> list[str]:
    """The first words of texts that tell something, each once, without their endings."""
    from ..index.words import STOPWORDS, counted, stem

    told = (stem(word) for text in texts for word in counted(text)[0] if word not in STOPWORDS)
    return list(islice(dict.fromkeys(told), MOST))
