"""Finding things: modes, tiers, filters and rights; the tools and their envelopes. On every engine."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import commonplace
from commonplace import Actor, Book
from commonplace.errors import BadInput, NotFound, StorageFailed
from commonplace.index import Index
from commonplace.state.policy import AgentMemory, AgentPolicy, Policy
from commonplace.state.requests import Open
from commonplace.surfaces.tools import Tools, schema
from commonplace.surfaces.tools import tools as known_tools
from tests.serving import ledger_below


@pytest.fixture
def team(book: Book) -> dict[str, Actor]:
    """A team that has said and kept things about a harbour."""
    ada, ben = book.as_actor("ada"), book.as_actor("ben")
    ada.remember("The harbour freezes in January", title="harbour", shared=True, tags=["winter"])
    ada.remember("I would rather not sail into the harbour at night")
    ada.remember(
        "The harbour master was replaced", kind="episode", occurred_at=datetime(2026, 3, 1, tzinfo=UTC)
    )
    book.record("agent.spoke", actor="ben", payload={"text": "we reached the harbour"}, run_id="r1")
    book.record("agent.thought", actor="ben", payload={"text": "the harbour frightens me"}, run_id="r1")
    with book.run(run_id="r2") as run, run.agent("cem") as me:
        me.write({"summary": "mapped the harbour", "confidence": 0.8})
    ada.documents.log("The harbour fees went up.")
    return {"ada": ada, "ben": ben}


def found(answer: Any) -> set[str]:
    return {one.content.split("\n")[0] for one in answer.results}


@pytest.mark.spec("4.1", "4.2", "4.3")
def test_everybody_finds_what_it_may_see_and_nothing_else(book: Book, team: dict[str, Actor]) -> None:
    public = {"harbour: The harbour freezes in January", "we reached the harbour", "cem (confidence: 0.8)"}
    shared = {*public, "The harbour fees went up."}
    own = {"I would rather not sail into the harbour at night", "The harbour master was replaced"}
    assert found(team["ada"].search("harbour")) == shared | own
    assert found(team["ben"].search("harbour")) == shared | {"the harbour frightens me"}
    assert found(book.search("harbour", max_results=20)) == shared | own | {"the harbour frightens me"}
    answer = team["ben"].search("harbour", max_results=2)
    assert (len(answer.results), answer.total) == (2, 5)
    assert ("3 more", "only 2 were asked for") in [(one.what, one.why) for one in answer.left_out]
    assert answer.as_of >= book.head - 1


@pytest.mark.spec("4.1")
def test_each_mode_serves_its_tiers_and_says_what_it_leaves_out(team: dict[str, Actor]) -> None:
    ada = team["ada"]
    assert {one.tier for one in ada.search("harbour", mode="keyword").results} == {"long_term", "working"}
    assert {one.tier for one in ada.search("harbour").results} == {"long_term", "working", "episodic"}
    assert {one.tier for one in ada.search("harbour", tiers=["working"]).results} == {"working"}
    semantic = ada.search("harbour", mode="semantic")
    assert {one.tier for one in semantic.results} == {"semantic"}
    assert semantic.left_out == ()
    barred = ada.search("harbour", mode="keyword", tiers=["episodic", "working"])
    assert [(one.what, one.why) for one in barred.left_out] == [
        ("episodic", "the mode keyword does not serve it")
    ]
    today = ada.documents.days()[-1]
    days = {"start": today, "end": today}
    assert {one.tier for one in ada.search(mode="date_range", date_range=days).results} == {"working"}
    assert ada.search(mode="date_range", date_range={"end": "2020-01-01"}).results == ()
    by = ada.search(mode="agent_filter", agent_filter=["cem", "ben"])
    assert {(one.author, one.tier) for one in by.results} == {("cem", "episodic"), ("ben", "episodic")}
    assert found(ada.search("harbour", agent_filter=["ben"])) == {"we reached the harbour"}
    march = ada.search("harbour", date_range=("2026-03-01", "2026-03-01"))
    assert found(march) == {"The harbour master was replaced"}


@pytest.mark.spec("3.9", "4.1", "L5")
def test_who_may_not_read_the_semantic_tier_finds_nothing_in_it(book: Book, team: dict[str, Actor]) -> None:
    assert team["ben"].search("harbour", mode="semantic").results
    book.access.grant("ben", tiers={"semantic": "none"})
    answer = team["ben"].search("harbour", mode="semantic")
    assert (answer.results, answer.total) == ((), 0)
    assert [(one.what, one.why) for one in answer.left_out] == [("semantic", "you may not read it")]


@pytest.mark.spec("4.2", "4.11")
def test_words_phrases_prefixes_and_typing_errors(team: dict[str, Actor]) -> None:
    ada = team["ada"]
    for query in ('"harbour freezes"', "freez*", "winter"):
        assert found(ada.search(query, mode="keyword")) == {"harbour: The harbour freezes in January"}
        assert ada.search(query).results[0].content.startswith("harbour: The harbour freezes in January")
    typed = ada.search("harbuor frezes")
    assert typed.corrected == {"harbuor": "harbour", "frezes": "freezes"}
    why = ada.search("freezing January", explain=True).results[0].why
    assert "'freezing' matched 'freezes'" in why
    for garbage in ('"', "*", "AND OR NOT", "a:b^2~", "\0x", "(((", "' OR 1=1 --", "x" * 5000):
        assert ada.search(garbage).total >= 0


@pytest.mark.spec("4.1")
@pytest.mark.parametrize(
    "wrong",
    [
        {"mode": "psychic"},
        {"tiers": ["attic"]},
        {"tiers": "working"},
        {"max_results": 0},
        {"max_results": 1000},
        {"mode": "date_range"},
        {"mode": "agent_filter"},
        {"date_range": {"start": "yesterday"}},
        {"date_range": {"start": "2026-02-02", "end": "2026-02-01"}},
        {"date_range": {"from": "2026-02-02"}},
    ],
)
def test_a_search_that_is_off_is_told_what_is_allowed(wrong: dict[str, Any]) -> None:
    with commonplace.open("memory:") as book, pytest.raises(BadInput) as refused:
        book.search("x", **wrong)
    assert len(str(refused.value)) > 30


@pytest.mark.spec("L7", "4.1")
def test_a_search_as_of_then_finds_what_was_known_then_and_may_be_seen_now(
    book: Book, team: dict[str, Actor]
) -> None:
    ada, ben = team["ada"], team["ben"]
    id = next(one.id for one in ada.memory.list() if one.title == "harbour")
    then = book.head
    ada.memory.revise(id, text="The harbour thaws in April")
    assert found(ben.search("harbour thaws", mode="keyword")) >= {"harbour: The harbour thaws in April"}
    assert "harbour: The harbour freezes in January" in found(ben.search("freezes", at=then))
    assert not any("freezes" in one for one in found(ben.search("freezes")))
    ada.memory.unshare(id)
    assert not any("freezes" in one for one in found(ben.search("freezes", at=then)))
    assert "harbour: The harbour freezes in January" in found(ada.search("freezes", at=then))
    ada.forget(id, confirm="FORGET", erase=True)
    assert not any("freezes" in one for one in found(ada.search("freezes", at=then)))
    assert not any("thaws" in one for one in found(ada.search("thaws")))


@pytest.mark.spec("L1", "4.2")
def test_the_index_can_be_deleted_at_any_time(tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "team.db") as book:
        for n in range(30):
            book.remember(f"The buoy number {n} is painted in the colour {n * 7}")
        before = book.search("buoy colour 21", max_results=50)
    index = tmp_path / "team.db.index"
    assert index.exists()
    for path in tmp_path.glob("team.db.index*"):
        path.unlink()
    with commonplace.open(tmp_path / "team.db") as book:
        assert book.search("buoy colour 21", max_results=50) == before
    index.write_bytes(b"rubbish" * 1000)
    with commonplace.open(tmp_path / "team.db") as book:
        assert book.search("buoy colour 21", max_results=50).results == before.results


@pytest.mark.spec("3.10")
def test_what_is_in_memory_only_leaves_no_index_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with commonplace.open("memory:") as book:
        book.remember("The buoy is painted in red")
        assert book.search("buoy").total == 1
    with commonplace.open("memory:") as book:
        assert book.search("buoy").total == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spec("L1")
def test_the_index_says_how_much_room_it_takes(tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "team.db") as book:
        book.remember("The buoy is painted in red")
        assert book.admin.index_size() == (0, 0)  # nobody has looked for anything yet
        book.search("buoy")
        on_disk, in_memory = book.admin.index_size()
        assert on_disk == sum(path.stat().st_size for path in tmp_path.glob("team.db.index*"))
        assert in_memory > 0


@pytest.mark.spec("L9")
def test_feeding_recalled_text_back_a_thousand_times_makes_nothing_new(book_url: str) -> None:
    with commonplace.open(book_url) as book:
        ben = book.as_actor("ben")
        book.as_actor("ada").remember("The lighthouse is lit from dusk to dawn", shared=True, run_id="r0")
        book.record(
            "agent.spoke", actor="cem", payload={"text": "the pier was rebuilt in stone"}, run_id="r1"
        )
        with book.run(run_id="r2") as run:
            me = run.agent("ben")
            me.search("lighthouse pier")
            before = book.head + 1  # the first write notes what was shown
            for n in range(1000 if book.admin.facts.engine == "memory" else 20):
                for one in me.search("lighthouse pier").results:
                    kept = me.remember(one.text if n % 2 else f"{one.text}!")
                    assert (kept.outcome, kept.reason.split(":")[0]) == ("rejected", "an echo")
            assert book.head == before
        assert [item.corroborated for item in book.memory.list()] == [()]
        elsewhere = ben.remember("The lighthouse is lit from dusk to dawn", run_id="r9")
        assert elsewhere.reason == "it is remembered already, and this corroborates it"


# the tools


@pytest.mark.spec("4.1", "3.1", "7.3")
def test_the_tools_answer_with_their_envelopes(book: Book, team: dict[str, Actor]) -> None:
    tools, today = Tools(book), book.documents.days()[-1]

    def call(name: str, actor: str = "ben", **arguments: Any) -> dict[str, Any]:
        answer = tools.call(name, arguments, actor=actor)
        assert set(answer) == {"ok", "status", "data", "error", "log"}
        assert answer["ok"] is (answer["status"] == 200) is (answer["error"] is None)
        return answer

    read = call("memory.read", target="long_term")["data"]
    assert read["exists"] is True
    assert "- **harbour** — The harbour freezes in January" in read["content"]
    assert call("memory_read", target="dates")["data"] == {"dates": book.documents.days()}
    day = call("memory.read", target="daily", date=today)["data"]
    assert day["content"].startswith(f"# {today}\n\n### ")
    assert "The harbour fees went up." in day["content"]
    missing = call("memory.read", target="daily", date="2020-01-01")
    assert (missing["ok"], missing["data"]["content"], missing["data"]["exists"]) == (True, "", False)
    assert call("memory.write", target="daily", content="low tide")["data"]["outcome"] == "stored"
    wrote = call("memory.write", target="long_term", content="The tide turns every six hours.")["data"]
    assert book.memory.get(wrote["id"]).shared is True
    searched = call(
        "memory.search", query="tide", mode="keyword", tiers=["long_term", "working"], max_results=10
    )
    assert searched["data"]["total"] == 2
    first = searched["data"]["results"][0]
    assert {"tier", "source", "content", "score", "timestamp"} <= set(first)
    assert first["timestamp"].endswith("Z")
    assert 0 <= first["score"] <= 1
    for name, arguments, status in (
        ("memory.read", {}, 400),
        ("memory.read", {"target": "attic"}, 400),
        ("memory.read", {"target": "daily", "date": "never"}, 400),
        ("memory.write", {"target": "daily"}, 400),
        ("memory.write", {"target": "daily", "content": 7}, 400),
        ("memory.write", {"target": "daily", "content": "x", "colour": "red"}, 400),
        ("memory.search", {"mode": "psychic"}, 400),
        ("memory.curate", {"days": 0}, 400),
        ("memory.levitate", {}, 404),
    ):
        answer = call(name, **arguments)
        assert (answer["status"], answer["data"]) == (status, {}), name
        assert len(answer["error"]["message"]) > 20
    assert tools.call("memory.read", ["x"], actor="ben")["status"] == 400  # type: ignore[arg-type]
    book.access.grant("ben", tiers={"long_term": "none", "working": "read"})
    assert call("memory.read", target="long_term")["status"] == 403
    refused = call("memory.write", target="daily", content="x")
    assert (refused["status"], refused["error"]["agent"], refused["error"]["tool"]) == (
        403,
        "ben",
        "memory.write",
    )
    for tool in known_tools().values():
        assert tool.summary.endswith(".")
        assert schema(tool)["type"] == "object"
        assert schema(tool)["additionalProperties"] is False
        assert all(argument["description"] for argument in schema(tool)["properties"].values())


@pytest.mark.spec("3.9", "4.1")
def test_an_agents_file_can_switch_its_memory_or_its_search_off(book: Book) -> None:
    agents = {
        "off": AgentPolicy(memory=AgentMemory(enabled=False, log=False)),
        "blind": AgentPolicy(memory=AgentMemory(search=False)),
        "narrow": AgentPolicy(memory=AgentMemory(tiers=("working",))),
    }
    ledger_below(book).submit("state.open", Open("r", "owner", Policy(agents=agents)))
    book.remember("The gate closes at nine.")
    tools = Tools(book)
    assert tools.call("memory.read", {"target": "dates"}, actor="off", run_id="r")["status"] == 503
    assert tools.call("memory.search", {"query": "gate"}, actor="blind", run_id="r")["status"] == 403
    assert (
        tools.call("memory.read", {"target": "long_term"}, actor="blind", run_id="r")["data"]["exists"]
        is True
    )
    narrow = tools.call("memory.search", {"query": "gate"}, actor="narrow", run_id="r")
    assert (narrow["status"], narrow["data"]["total"]) == (200, 0)
    assert tools.call("memory.read", {"target": "dates"}, actor="ada", run_id="no-such")["status"] == 404


@pytest.mark.spec("6.5", "3.1")
def test_what_recurs_in_the_logs_is_curated_with_its_lines_cited(book: Book) -> None:
    for run_id in ("r1", "r2"):
        with book.run(run_id=run_id) as run, run.agent("ada") as me:
            me.write({"learned": "the cache must be warmed before every release", "n": run_id})
    tools = Tools(book)
    first = tools.call("memory.curate", {"days": 7, "dry_run": True})["data"]
    assert [(one["text"], one["outcome"]) for one in first["found"]] == [
        ("the cache must be warmed before every release", "stored")
    ]
    assert first["diff"].splitlines()[-1] == "+- the cache must be warmed before every release"
    assert book.memory.list() == []
    done = tools.call("memory.curate", {})["data"]["found"]
    (item,) = book.memory.list()
    assert (item.id, item.body) == (done[0]["id"], "the cache must be warmed before every release")
    assert all(cited.startswith(f"memory/{book.documents.days()[-1]}.md (") for cited in item.citations)
    assert len(item.citations) == 2
    again = tools.call("memory.curate", {})["data"]["found"]
    assert again[0]["outcome"] == "merged"
    (log, _) = book.events(kinds=("memory.logged",))
    book.erase(log.id)
    assert book.memory.list() == []  # it was derived from what is gone
    with pytest.raises(NotFound):
        book.memory.get(item.id)


@pytest.mark.spec("4.4")
@pytest.mark.parametrize("failing", ["apply", "search"])
def test_a_broken_index_is_done_without_and_the_answer_says_so(
    book: Book, team: dict[str, Actor], failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = getattr(Index, failing)

    def broken(self: Index, *args: Any, **more: Any) -> Any:
        if self._file.path is not None:
            raise StorageFailed("the disk is full")
        return whole(self, *args, **more)

    with_index = team["ben"].search("harbour", explain=True)
    book.record("agent.spoke", actor="ben", payload={"text": "a second harbour"}, run_id="r1")
    monkeypatch.setattr(Index, failing, broken)
    answer = team["ben"].search("harbour", explain=True)
    assert {one.id for one in with_index.results} < {one.id for one in answer.results}
    told = [one.why for one in answer.left_out if one.what == "the index file"]
    assert bool(told) == (book._session.services.index.place is not None)
    assert all("the disk is full" in one for one in told)
    assert team["ben"].digest("harbour").item_ids


@pytest.mark.spec("4.1", "L5")
def test_an_answer_counts_what_was_superseded_and_would_have_matched(book: Book) -> None:
    ada, ben = book.as_actor("ada"), book.as_actor("ben")
    old = str(ada.remember("The cache is kept in Redis on the large host", shared=True).id)
    own = str(ada.remember("The cache key is the user's number").id)
    ada.remember(key="cache.minutes", value=5, shared=True)
    before = book.head
    ada.remember("Nothing is cached any more", shared=True, supersedes=old)
    ada.remember("There is no cache key", supersedes=own)
    ada.remember(key="cache.minutes", value=0, shared=True, supersedes=True)

    def superseded(who: Book | Actor, query: str, **how: Any) -> list[str]:
        left_out = who.search(query, **how).left_out
        return [one.what for one in left_out if "superseded" in one.what]

    for mode in ("hybrid", "keyword"):
        assert superseded(ada, "redis", mode=mode) == ["1 superseded"]  # also where nothing is found
        assert superseded(ada, "cache", mode=mode) == ["3 superseded"]
        assert superseded(ben, "cache", mode=mode) == ["2 superseded"]  # one is not his to know of
    assert superseded(ada, "cache", at=before) == []
    assert superseded(ada, "harbour") == []
    assert superseded(ada, "redis", tiers=["working"]) == []
    ada.forget(old, confirm="FORGET", erase=True)
    assert superseded(ada, "redis") == []
