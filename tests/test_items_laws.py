"""Items against a plain model: whatever is done in whatever order, every read at every past moment is right."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import commonplace
from commonplace import Actor, Book
from commonplace.errors import CommonplaceError

WHO = ("ada", "ben")
ACTS = ("remember", "revise", "share", "unshare", "supersede", "forget", "restore", "erase", "archive")

steps = st.lists(
    st.tuples(st.sampled_from(ACTS), st.sampled_from(WHO), st.integers(0, 9), st.booleans()),
    min_size=1,
    max_size=25,
)


class Model:
    """What the items should be: their text, whose they are, whether they stand, and who may see them."""

    def __init__(self) -> None:
        self.items: dict[str, dict[str, Any]] = {}
        self.ids: list[str] = []

    def seen_by(self, actor: str) -> dict[str, str]:
        return {
            id: one["text"]
            for id, one in self.items.items()
            if one["status"] == "live" and (actor in (one["agent"], "owner") or one["shared"])
        }


def play(
    book: Book, plan: list[tuple[str, str, int, bool]]
) -> list[tuple[int, dict[str, dict[str, str]], set[str]]]:
    """Do it to the book and to the model. Answers, for each step, the position, what each reader should have seen
    then, and what was shared then; refusals must be alike."""
    model, past = Model(), []
    actors: dict[str, Actor] = {name: book.as_actor(name) for name in WHO}
    for number, (act, who, which, flag) in enumerate(plan):
        me, text = actors[who], f"saying {number} " + " ".join(f"{who}{number}{n}" for n in range(6))
        id = model.ids[which % len(model.ids)] if model.ids else ""
        item = model.items.get(id)
        mine = item is not None and item["agent"] == who
        try:
            if act == "remember" or item is None:
                kept = me.remember(text, shared=flag, id=f"item-{number}")
                assert kept.outcome == "stored"
                model.items[str(kept.item_id)] = {
                    "text": text,
                    "agent": who,
                    "shared": flag,
                    "status": "live",
                }
                model.ids.append(str(kept.item_id))
            else:
                done = _do(me, act, id, text, number, flag)
                assert _allowed(item, act, mine), (act, item, who)
                _follow(model, act, id, text, who, done, flag)
        except CommonplaceError:
            assert item is not None
            assert not _allowed(item, act, mine), (act, item, who)
        past.append((book.head, {name: model.seen_by(name) for name in (*WHO, "owner")}, set(model.items)))
    return past


def _allowed(item: dict[str, Any], act: str, mine: bool) -> bool:
    if item["status"] == "forgotten":
        return mine and act in ("restore", "forget", "erase")
    if act == "supersede":
        return bool((mine or item["shared"]) and item["status"] != "superseded")
    if not mine:
        return False
    if act == "restore":
        return bool(item["status"] == "archived")
    if act == "revise":
        return item["status"] in ("live", "held")
    return bool(act != "archive" or item["status"] == "live")


def _do(me: Actor, act: str, id: str, text: str, number: int, flag: bool) -> Any:
    match act:
        case "revise":
            return me.memory.revise(id, text=text)
        case "supersede":
            return me.remember(text, supersedes=id, shared=flag, id=f"item-{number}")
        case "forget" | "erase":
            return me.forget(id, confirm="FORGET", erase=act == "erase")
        case _:
            return getattr(me.memory, act)(id)


def _follow(model: Model, act: str, id: str, text: str, who: str, done: Any, flag: bool) -> None:
    item = model.items[id]
    match act:
        case "revise":
            item["text"] = text
        case "share" | "unshare":
            item["shared"] = act == "share"
        case "supersede":
            mine = item["agent"] == who  # what is somebody else's is superseded when somebody settles it
            assert done.outcome == ("stored" if mine else "flagged")
            item["status"] = "superseded" if mine else item["status"]
            status = "live" if mine else "held"
            model.items[done.item_id] = {"text": text, "agent": who, "shared": flag, "status": status}
            model.ids.append(done.item_id)
        case "erase":
            del model.items[id]
            model.ids.remove(id)
        case "forget":
            if item["status"] != "forgotten":
                item |= {"was": item["status"], "status": "forgotten"}
        case "restore":
            item["status"] = item["was"] if item["status"] == "forgotten" else "live"
        case _:
            item["status"] = "archived"


def rows(book: Book) -> dict[str, list[Any]]:
    with book.ledger.snapshot() as snapshot:
        names = [name for name in snapshot.registry.views if name.startswith("memory.")]
        return {name: snapshot.scan(name) for name in names}


@pytest.mark.spec("L1", "L7", "L10", "3.3")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps)
def test_every_read_at_every_past_moment_is_what_the_reader_may_see(
    plan: list[tuple[str, str, int, bool]],
) -> None:
    with commonplace.open("memory:") as book:
        past = play(book, plan)
        now_seen = past[-1][1]
        standing = past[-1][2]
        readers: dict[str, Any] = {name: book.as_actor(name) for name in WHO} | {"owner": book}
        for name, reader in readers.items():
            assert {item.id: item.text for item in reader.memory.list()} == now_seen[name]
        kept = [item for item in book.memory.list(status=None) if item.status != "forgotten"]
        shared_now = {item.id for item in kept if item.shared}
        for position, seen, _ in past:
            for name, reader in readers.items():
                shown = {item.id: item.text for item in reader.memory.list(at=position)}
                expected = {
                    id: text
                    for id, text in seen[name].items()
                    if id in standing
                    and (name == "owner" or book.memory.get(id).agent == name or id in shared_now)
                }
                assert shown == expected
        before = rows(book)
        book.rebuild()
        assert rows(book) == before
        with commonplace.open("memory:") as copy:
            book.admin.copy(copy)
            assert rows(copy) == before
        said = str([event.payload for event in book.events()])
        for number, (_, who, _, _) in enumerate(plan):
            if f"item-{number}" in {stone.id for stone in book.memory.tombstones() if stone.erased}:
                assert f"saying {number} {who}" not in said
