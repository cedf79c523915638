"""Items as lines of a prompt: what each says as data, with where it comes from."""

from __future__ import annotations

from typing import Any

from ..ledger.checks import iso
from ..memory.items import SHAPES, Item, value_text
from .escaping import as_data, as_name
from .packing import PackLine


class DigestLine(PackLine, frozen=True, omit_defaults=True, kw_only=True):
    """An item that may go into a digest or into the long-term block, or a turn of a conversation."""

    version: int
    """The position where the item changed last."""
    via: str
    """How it was found: pinned, key, tagged, keyword, semantic, hybrid, newest, search or correction."""
    score: float = 0.0
    signals: tuple[tuple[str, float], ...] = ()
    twin: str = ""
    """The candidate that says the same, if that is why it does not go in."""
    day: str = ""
    """Of a turn, the day on which it was said. Below, its place in the conversation."""
    place: int = 0


def candidate(
    item: Item,
    via: str,
    snippet: str,
    score: float = 0.0,
    signals: tuple[tuple[str, float], ...] = (),
    stale: str = "",
    barred: str = "",
    twin: str = "",
) -> DigestLine:
    """An item as a line: `- [kind] id (sensitivity) header — snippet (prov=… channel=… thread=… refs=N)`."""
    start = f"- [{item.kind}] {as_name(item.id)} ({item.sensitivity}) "
    end = f" ({_provenance(item, stale)})"
    if item.kind == "fact":
        start += f"key={as_data(item.key or '')} value="
        text = as_data(value_text(_each_as_data(item.value)))
        end = ("" if item.confidence is None else f" conf={item.confidence:.2f}") + end
    else:
        text = as_data(snippet)
        start += _header(item) + "— "
    return DigestLine(
        item.id, item.kind, start, text, end, barred, version=item.position, via=via, score=score, signals=signals,
        twin=twin,
    )  # fmt: skip


def _each_as_data(value: Any) -> Any:
    """A value of any shape with every text in it as data: written as JSON, an order could hide behind its escapes."""
    if isinstance(value, str):
        return as_data(value)
    if isinstance(value, dict):
        return {as_data(name): _each_as_data(inner) for name, inner in value.items()}
    return [_each_as_data(inner) for inner in value] if isinstance(value, list) else value


def all_of(item: Item) -> str:
    """All that an item says, as one line of data."""
    if item.kind != "fact":
        return as_data(item.text)
    return f"{as_data(item.key or '')}: {as_data(value_text(_each_as_data(item.value)))}"


def text_of(item: Item) -> str:
    """What an item says besides its title."""
    return str(getattr(item, SHAPES[item.kind].text) or "")


def _header(item: Item) -> str:
    parts = []
    if item.kind == "episode" and item.occurred_us is not None:
        parts.append(f"occurred_at={iso(item.occurred_us)}")
    if item.title:
        parts.append(f"title={as_data(item.title)}")
    if item.confidence is not None:
        parts.append(f"conf={item.confidence:.2f}")
    return "".join(f"{part} " for part in parts)


def _provenance(item: Item, stale: str) -> str:
    source = item.provenance
    parts = [f"prov={as_name(str(source.get('source_kind') or item.agent))}"]
    parts += [f"{name}={as_name(str(source[name]))}" for name in ("channel", "thread") if source.get(name)]
    refs = source.get("refs")
    number = len(item.citations) + (len(refs) if isinstance(refs, list | tuple) else 1 if refs else 0)
    parts += [f"refs={number}"] if number else []
    parts += ["trust=low"] if item.trust == "low" else []
    parts += [f"disputed={len(item.disputed)}"] if item.disputed else []
    parts += [f"stale={as_data(stale)}"] if stale else []
    return " ".join(parts)
