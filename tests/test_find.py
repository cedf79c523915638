"""Everything about one person is found, erased, and proven gone."""

from __future__ import annotations

import hmac
import json
import os
import unicodedata
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import commonplace
from commonplace import Blob, Book
from commonplace.errors import BadInput, UnsafePath
from commonplace.finding import thing_of
from commonplace.ledger.printing import number
from tests.test_views import stored_rows

WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")
"""Workers share a server, whose raw files are scanned: each has a customer of its own."""
NAME = f"Zoë Ünal-Brandt{WORKER}"
DECOMPOSED = unicodedata.normalize("NFD", NAME)
FILED = f"zoe-unal-brandt{WORKER}"
"""As folders spell her."""
BROKEN = NAME.replace(" ", "\n   ")


def edit(page: Path, before: str, after: str) -> None:
    text = page.read_text()
    assert before in text
    page.write_text(text.replace(before, after))


def tell_of_her(book: Book, pages: Path) -> None:
    """Name a customer wherever a book can name somebody."""
    book.access.grant("actor:ada", tiers={"long_term": "read_write"})
    ada = book.as_actor("ada")
    note = ada.remember(f"{NAME} is allergic to peanuts", tags=["kitchen", f"for {NAME}"], shared=True)
    ada.remember("Peanuts are kept apart", shared=True)
    ada.remember(key=f"diet of {NAME}", value={"avoid": ["peanuts"]}, shared=True)
    book.record("tool.called", actor="ada", payload={"arguments": {NAME.upper(): [1, {"q": f"{BROKEN}?"}]}})
    book.record("agent.spoke", actor="ada", payload={"text": f"I asked {DECOMPOSED} about it."}, id="spoke")
    book.record("agent.reflected", actor="ada", payload={"text": "She likes rice."}, parents=["spoke"])
    book.record("file.kept", payload={"file": Blob(f"To {NAME},\nyour order.".encode())})
    with book.run(initial={"customer": NAME}) as run, run.agent("researcher") as me:
        me.write({f"wishes of {NAME}": ["rice"], "count": 3})
    work = book.work(name="order", goal=f"Feed {NAME}", id="order")
    task = work.add_task(f"Call {NAME}", metadata={"customer": NAME}, id="call")
    work.add_task("Cook", depends_on=[task.id], id="cook")
    work.decide(question="What to cook?", choice=f"rice, for {NAME}", by="ada", affects=["cook"])
    work.artifact("menu.md", content=f"# Menu of {NAME}\n")
    first, second = work.add_task("Fry"), work.add_task("Steam")
    work.branch("How?", {f"as {NAME} likes": [first.id], "as ever": [second.id]})
    ada.documents.add_to_session(f"Onboard {NAME}", "half way")
    ada.documents.add_to_task("Kitchen", "decisions", f"{NAME} decides.")
    book.documents.log(f"{NAME} called.")
    ada.digest(f"what may {NAME} eat?")
    thread = ada.thread(f"support for {NAME}")
    hers = {"role": "user", "name": NAME, "content": "Where is my order?", "metadata": {"customer": NAME}}
    thread.add([hers, {"role": "assistant", "content": "Welcome!"}])
    thread.context("what can she eat?")
    mirror = book.mirror.folder(pages, person="kim")
    mirror.sync()
    edit(pages / "MEMORY.md", "Peanuts are kept apart", f"Peanuts are kept apart from {NAME}")
    assert note.id
    book.record("agent.spoke", actor=FILED, run_id=f"run-{FILED}", payload={"text": "hello"})


def everything(book: Book, pages: Path) -> str:
    """All that the book shows and stores, but for the headers of events."""
    ada, work = book.as_actor("ada"), book.work(id="order")
    records = [record for kind in ("decision", "artifact", "branch") for record in work.records(kind)]
    shown = [str(event.payload) for event in book.events()]
    shown += [item.text + str(item.tags) for item in book.memory.list(status=None)]
    shown += [hit.content for hit in book.search("customer peanuts rice allergic")]
    shown += [str(ada.prompt("what may the customer eat?")), str(ada.digest("peanuts"))]
    shown += [str(task) + str(task.metadata) for task in work.tasks()] + [
        str(work.info()),
        *map(str, records),
    ]
    shown += [str(book.runs.state(run.id)) for run in book.runs.list() if run.workflow is not None]
    shown += [str(page) + page.read_text() for page in pages.rglob("*") if page.is_file()]
    return "\n".join(shown) + str(stored_rows(book))


@pytest.mark.spec("3.12", "L10", "3.6")
def test_a_customer_is_found_erased_and_proven_gone(book: Book, engine_name: str, tmp_path: Path) -> None:
    pages = tmp_path / "pages"
    tell_of_her(book, pages)
    assert NAME in everything(book, pages)
    found = book.admin.find(NAME)
    assert found.counts == {
        "document": 4, "item": 3, "receipt": 4, "blob": 2, "event": 2, "state": 2, "branch": 1, "decision": 1,
        "task": 1, "thread message": 1, "thread name": 1, "work": 1,
    }  # fmt: skip
    assert "She likes rice." in {book.event(mention.id).payload.get("text") for mention in found.derived}
    assert {(left.where, left.name) for left in found.remaining} == {
        ("actor", FILED),
        ("run id", f"run-{FILED}"),
    }
    rows_before = {task.id: task.status for task in book.work(id="order").tasks()}

    plan = book.admin.erase(found, dry_run=True)
    assert plan.counts.items() >= {"item": 3, "document": 4, "task": 1}.items()
    assert plan.position is None
    assert len(book.admin.find(NAME)) == len(found)
    erasure = book.admin.erase(found, reason="she asked for it")
    assert erasure.gone
    assert set(erasure.erased) == set(plan.erased)
    assert {task.id: task.status for task in book.work(id="order").tasks()} == rows_before

    again = book.admin.find(NAME)
    assert (list(again), list(again.derived)) == ([], [])
    assert again.remaining == found.remaining
    proof = book.admin.proof(found, tmp_path / "proof.json")
    assert proof.gone
    raw = proof.file["raw_files"]
    assert raw["holding"] == []
    assert proof.purged or "the store's own files are not on this host" in raw["problem"]
    assert proof.purged or engine_name in ("postgres", "redis")
    text = everything(book, pages)
    for spelling in (NAME, DECOMPOSED, NAME.upper(), BROKEN, f"onboard-{FILED}"):
        assert spelling not in text
    book.admin.export(tmp_path / "all.jsonl")
    assert NAME not in (tmp_path / "all.jsonl").read_text()
    assert book.verify().ok
    before = stored_rows(book)
    book.rebuild()
    assert stored_rows(book) == before


@pytest.mark.spec("3.12", "3.11")
def test_what_belongs_to_a_scope_is_found_and_erased_with_its_name(book: Book, tmp_path: Path) -> None:
    hers = book.as_actor("bot", scope=f"customers/{NAME}")
    hers.remember("Allergic to peanuts")
    book.as_actor("bot", scope=f"customers/{NAME}/orders").remember("Two bowls of rice")
    book.as_actor("bot", scope=f"customers/{NAME} the elder").remember("Likes nuts")
    book.remember("Customers come at noon")
    named = book.admin.find(NAME)
    assert named.counts == {"scope name": 3}
    found = book.admin.find(scope=f"customers/{NAME}")
    assert found.counts == {"item": 2, "scope name": 2}
    assert book.admin.find("peanuts", scope=f"customers/{NAME}").counts == {"item": 1}
    with pytest.raises(
        commonplace.NotFound, match=r"no scope 'customers/Zoë': the scopes are customers/Zoë Ünal"
    ):
        book.admin.find(scope="customers/Zoë")
    book.erase(found, reason="she has left")
    kept = {item.text for item in book.memory.list()}
    assert kept == {"Likes nuts", "Customers come at noon"}
    assert book.admin.find(NAME).counts == {"scope name": 1}
    assert book.admin.proof(found, tmp_path / "proof.json").gone
    assert [item.text for item in hers.memory.list()] == []
    assert book.verify().ok
    before = stored_rows(book)
    book.rebuild()
    assert stored_rows(book) == before


@pytest.mark.spec("3.12", "L10")
def test_names_in_headers_and_rights_remain_and_are_reported(book: Book) -> None:
    book.access.grant(f"actor:{NAME}", tiers={"long_term": "none"})
    book.record("agent.spoke", actor=NAME, payload={"text": "hello"}, session_id="s-1")
    book.record(
        "agent.spoke", actor=NAME, run_id=NAME, id=NAME, labels={"about": NAME}, payload={"text": NAME}
    )
    book.work(name="order", id="order").add_task("Cook", assigned_to=NAME)
    found = book.admin.find(NAME)
    assert found.counts == {"event": 1, "right": 1, "task": 1}
    remains = {(left.where, left.name): left.events for left in found.remaining}
    assert remains == {
        ("actor", NAME): 2, ("run id", NAME): 1, ("event id", NAME): 1, ("label", f"about={NAME}"): 1,
        ("kept by an erasure", f"actor:{NAME}"): 1, ("kept by an erasure", NAME): 1,
    }  # fmt: skip
    assert f"remains: actor '{NAME}' in 2 events: headers are part of the hash chain" in str(found)
    book.erase(found)
    again = book.admin.find(NAME)
    assert again.counts == {}
    assert {(left.where, left.name): left.events for left in again.remaining} == remains
    assert book.access.rights(NAME).tier("long_term") == "none"
    (task,) = book.work(id="order").tasks()
    assert (task.title, task.assigned_to) == ("", NAME)


@pytest.mark.spec("3.12", "5.2")
def test_tasks_and_branches_whose_words_were_erased_can_be_gone_on_with(book: Book, work: Any) -> None:
    tasks = [work.add_task(f"{word} {NAME}") for word in ("Call", "Write to", "Visit", "Forget")]
    branch = work.branch("Which?", {f"{NAME} comes": [tasks[2].id], "not": [tasks[3].id]})
    claim = work.claim("ada")
    book.erase(book.admin.find(NAME))
    assert [task.title for task in work.tasks()] == [""] * 4
    assert str(work.tasks()[1]) == "[erased] (pending)"
    claim.complete("done")
    work.task(tasks[1].id).cancel(reason="no longer wanted")
    with pytest.raises(commonplace.BadInput, match="it has 'option 1', 'option 2'"):
        work.choose(branch.id, "not", rationale="she comes")
    work.choose(branch.id, "option 1", rationale="she comes")
    assert [task.status for task in work.tasks()] == ["completed", "cancelled", "pending", "cancelled"]
    before = stored_rows(book)
    book.rebuild()
    assert stored_rows(book) == before


@pytest.mark.spec("3.12", "3.5")
def test_a_core_stays_private_when_the_words_about_it_are_erased(book: Book) -> None:
    book.memory.set_core(
        "kitchen", name=f"Kitchen of {NAME}", description=f"For {NAME}", visibility="private"
    )
    book.remember("Rice is on the left", core="kitchen", shared=True)
    book.erase(book.admin.find(NAME))
    (core,) = book.memory.cores()
    assert (core.name, core.description, core.visibility) == ("kitchen", "", "private")
    assert book.as_actor("eve").memory.list() == []


@pytest.mark.spec("3.12")
def test_filters_narrow_each_other_and_unknown_names_are_refused() -> None:
    with commonplace.open("memory:") as book:
        first = book.record(
            "agent.spoke", actor="ada", payload={"text": "rice", "metadata": {"customer": "c-17"}}
        )
        book.record(
            "agent.spoke", actor="bob", payload={"text": "rice", "metadata": {"customer": ["c-18", "c-17"]}}
        )
        book.record("agent.spoke", actor="bob", payload={"text": "phone 5550123", "n": 5550123})
        assert len(book.admin.find("rice")) == 2
        assert book.admin.find("rice", actor="ada").ids == (first.id,)
        assert len(book.admin.find(metadata={"customer": "c-17"})) == 2
        assert len(book.admin.find(metadata={"customer": "c-17"}, actor="bob")) == 1
        assert len(book.admin.find(actor="bob")) == 2
        assert book.admin.find("5550123").entries[0].where == ("n", "text")
        assert len(book.admin.find(["no such", "PHONE"])) == 1
        book.record("agent.spoke", payload={"metadata": {"customer": True}})
        number = book.record("agent.spoke", payload={"metadata": {"customer": [1, 2]}})
        assert book.admin.find(metadata={"customer": 1}).ids == (number.id,)
        for wrong, why in (
            ({}, "give text=, scope=, metadata= or actor="),
            ({"text": "z"}, "at least 2"),
            ({"text": 5}, "text"),
            ({"metadata": ["c"]}, "is not a mapping"),
            ({"scope": "../x"}, "is not a path of names"),
            ({"actor": "eve"}, "the actors are ada, bob"),
            ({"metadata": {"client": 1}}, "the names are customer"),
            ({"scope": "users/eve"}, "this book has no scopes"),
        ):
            with pytest.raises(commonplace.CommonplaceError, match=why):
                book.admin.find(**wrong)
        found = book.admin.find("rice")
        with pytest.raises(commonplace.BadInput, match="reason names what is to be erased"):
            book.erase(found, reason="no more RICE here")
        with pytest.raises(commonplace.BadInput, match="is not what `find` has found"):
            book.admin.proof(first.id, "x.json")  # type: ignore[arg-type]


@pytest.mark.spec("3.12")
def test_snippets_are_without_secrets_and_steps_are_told() -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    with commonplace.open("memory:") as book:
        book.record("agent.spoke", payload={"text": f"token of {NAME}: {secret}"})
        steps = list[tuple[int, int]]()
        (mention,) = book.admin.find(NAME, progress=lambda done, total: steps.append((done, total)))
        assert NAME in mention.snippet
        assert secret[4:] not in mention.snippet
        assert steps[-1] == (1, 1)


@pytest.mark.spec("3.12", "L10")
def test_the_proof_holds_nothing_of_the_content(tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "team.db", name=f"of {NAME}") as book:
        book.record("agent.spoke", id=f"by {NAME}", payload={"text": f"{NAME} eats rice"})
        book.record("agent.reflected", parents=[f"by {NAME}"], payload={"text": "rice"})
        found = book.admin.find(NAME)
        early = book.admin.proof(found, tmp_path / "early.json")
        assert (early.gone, early.purged, early.erased) == (False, False, 0)
        book.erase(found, reason="asked")
        path = tmp_path / "proof.json"
        proof = book.admin.proof(found, path)
        assert (proof.gone, proof.purged, proof.erased) == (True, False, 2)
        assert "where names remain" in proof.file["raw_files"]["problem"]
        assert path.stat().st_mode & 0o077 == (tmp_path / "team.db").stat().st_mode & 0o077
        text = path.read_text()
        for spelling in (NAME, json.dumps(NAME)[1:-1], "Zo", "Brandt", "rice", proof.key):
            assert spelling not in text
        said = json.loads(text)
        assert said == proof.file
        assert said["chain"]["ok"] is True
        assert said["counts"] == {"event": 1}
        assert [(erasure["by"], erasure["reason"]) for erasure in said["erasures"]] == [("owner", "asked")]
        assert {left["where"] for left in said["remaining"]} == {"event id", "parent id", "name of the book"}
        digest = hmac.new(bytes.fromhex(proof.key), NAME.casefold().encode(), sha256).hexdigest()
        assert digest in said["looked_for"]["text"]


@pytest.mark.spec("3.12")
def test_what_was_found_by_metadata_or_actor_is_proven_gone_too(tmp_path: Path) -> None:
    with commonplace.open("memory:") as book:
        book.record("agent.spoke", actor="zoe", payload={"text": "hi", "metadata": {"customer": "c-17"}})
        book.as_actor("zoe").remember("I like rice")
        for number, wanted in enumerate(({"metadata": {"customer": "c-17"}}, {"actor": "zoe"})):
            found = book.admin.find(**wanted)  # type: ignore[arg-type]
            assert not book.admin.proof(found, tmp_path / f"{number}.json").gone
            book.erase(found)
            proof = book.admin.proof(found, tmp_path / f"{number}.json")
            assert (proof.gone, proof.purged) == (True, False)
            assert "no text of 4 bytes or more was looked for" in str(proof)
        assert "zoe" not in (tmp_path / "1.json").read_text()
        assert [(left.where, left.events) for left in book.admin.find(actor="zoe").remaining] == [
            ("actor", 2)
        ]


@pytest.mark.spec("3.12", "L10")
def test_a_name_that_json_has_escaped_is_found_and_purged(tmp_path: Path) -> None:
    arguments = json.dumps({"name": NAME})
    assert NAME not in arguments
    assert "\\u00eb" in arguments
    with commonplace.open(tmp_path / "team.db") as book:
        call = {"name": "look_up", "arguments": arguments}
        message = {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": call}]}
        book.thread("support").add([message])
        book.record("tool.called", payload={"log": json.dumps(json.dumps({"name": BROKEN}))})
        book.record("file.kept", payload={"file": Blob(arguments.encode())})
        book.record("tool.called", payload={"path": r"C:\users\new\table" + "\\" * 100_000})
        book.record("tool.called", payload={"log": json.dumps({"login": "ACME\\nancy"})})
        assert [len(book.admin.find(text)) for text in ("ACME\\nancy", r"c:\users\new", "ACME nancy")] == [
            1,
            1,
            0,
        ]
        found = book.admin.find(NAME)
        assert found.counts == {"blob": 1, "event": 1, "thread message": 1}
        assert any(NAME in mention.snippet for mention in found)
        assert not book.admin.proof(found, tmp_path / "early.json").purged
        holding = {name for name in ("Zo\\\\u00eb", "Zo\\u00eb") if book.admin.find_text([name])}
        assert holding
        book.erase(found, reason="asked")
        proof = book.admin.proof(found, tmp_path / "proof.json")
        assert (proof.gone, proof.purged) == (True, True)
        assert book.admin.find_text(["Zo\\\\u00eb", "Zo\\u00eb"]) == []


WORDS = st.sampled_from(["tea", "rice", "a\nb", 'quo"te', "ä", ""])


def placed(needle: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """Plain data that holds a text somewhere: in a value, in a name, in a list, beside other things."""
    around = st.builds(lambda before, text, after: f"{before} {text} {after}".strip(), WORDS, needle, WORDS)
    return st.recursive(
        around,
        lambda inner: st.one_of(
            st.builds(lambda value, other: [other, value], inner, WORDS),
            st.builds(lambda name, value: {name or "x": value, "n": 5}, WORDS, inner),
            st.builds(lambda name: {name: [1, None, True]}, around),
        ),
        max_leaves=4,
    )


NEEDLES = st.sampled_from(
    [
        NAME,
        DECOMPOSED,
        NAME.upper(),
        NAME.lower(),
        BROKEN,
        NAME.replace("-", "\u2011"),
        NAME.replace(" ", "\u00a0"),
    ]
)


@pytest.mark.spec("3.12", "L10")
@settings(max_examples=60, deadline=None)
@given(
    data=placed(NEEDLES), place=st.sampled_from(["event", "item", "fact", "tags", "task", "state", "blob"])
)
def test_a_text_is_found_wherever_it_stands_and_is_nowhere_afterwards(data: Any, place: str) -> None:
    with commonplace.open("memory:") as book:
        work = book.work(name="order", id="order")
        book.remember("Peanuts are kept apart")
        text = next(spelling for spelling in _texts(data) if "ran" in spelling.casefold())
        match place:
            case "event":
                book.record("agent.spoke", payload={"x": data})
            case "item":
                book.remember(f"she said {text}")
            case "fact":
                book.remember(key="diet", value=data)
            case "tags":
                book.remember("likes rice", tags=[" ".join(text.split())])
            case "task":
                work.add_task("Cook", metadata={"x": data})
            case "state":
                with book.run(initial={"x": data}):
                    pass
            case "blob":
                book.record("file.kept", payload={"file": Blob(json.dumps({"x": data}).encode())})
        found = book.admin.find(NAME)
        assert len(found) >= 1
        book.search("peanuts rice")
        book.erase(found)
        again = book.admin.find(NAME)
        assert (again.entries, again.remaining) == ((), ())
        stored = [
            *_texts([event.payload for event in book.events()]),
            str(stored_rows(book)),
            str(book.search("rice")),
        ]
        assert not any("brandt" in " ".join(text.casefold().split()) for text in stored)
        before = stored_rows(book)
        book.rebuild()
        assert stored_rows(book) == before


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for name, inner in value.items() for text in (name, *_texts(inner))]
    if isinstance(value, list | tuple):
        return [text for inner in value for text in _texts(inner)]
    return [value] if isinstance(value, str) else []


# what belongs to somebody, by metadata, scope or actor


@pytest.mark.spec("3.12", "L10")
def test_what_got_its_metadata_later_is_found_and_erased_with_it(book: Book, tmp_path: Path) -> None:
    ada = book.as_actor("ada")
    item = ada.remember("Prefers to be called in the evening")
    ada.memory.revise(item, text="Prefers to be called in the morning")
    ada.memory.revise(item, metadata={"customer": "c-17"})
    other = ada.remember("Peanuts are kept apart", metadata={"customer": "c-18"})
    work = book.work(name="calls", id="calls")
    task = work.add_task("Call her back at noon")
    work.task(task.id).edit(metadata={"customer": "c-17"})
    found = book.admin.find(metadata={"customer": "c-17"})
    assert found.counts == {"item": 2, "task": 2}
    assert [mention.position for mention in found] == sorted(mention.position for mention in found)
    assert item.id in found.ids
    assert book.admin.find("evening", metadata={"customer": "c-17"}).ids == (item.id,)
    assert book.admin.find(metadata={"customer": "c-17"}, actor="ada").counts == {"item": 2}
    book.erase(found, reason="asked")
    proof = book.admin.proof(found, tmp_path / "proof.json")
    assert proof.gone
    assert proof.purged == book.admin.has_files_here
    stored = str([event.payload for event in book.events()]) + str(stored_rows(book))
    assert not any(text in stored for text in ("evening", "morning", "back at noon"))
    assert [kept.id for kept in book.memory.list()] == [other.id]


def tell_of_alice(book: Book) -> dict[str, str]:
    """Let several actors do things in and about a user's scope; answers the ids of some of them."""
    bot = book.as_actor("bot", scope="users/alice")
    allergy = bot.remember("Allergic to peanuts, badly so", shared=True)
    bot.remember("Likes her rice with a little lemon", shared=True)
    bot.digest("what may she eat?")
    bot.thread("support").add([{"role": "user", "content": "Where is the parcel of last Tuesday?"}])
    book.access.relabel(str(allergy.id), sensitivity="sensitive", reason="Alice told her doctor so")
    summary = book.record(
        "agent.reflected", payload={"text": "One of them eats no nuts"}, parents=[str(allergy.id)]
    )
    mallory = book.as_actor("mallory", scope="users/bob")
    for scope in ("users/alice", "users/alice/orders"):
        with pytest.raises(commonplace.Denied):
            mallory.search("peanuts", scope=scope)
    mallory.remember("Bob is not allergic")
    return {"allergy": str(allergy.id), "summary": summary.id}


@pytest.mark.spec("3.12", "L10", "3.11")
def test_a_scope_is_found_with_all_that_names_it_and_nothing_is_left(book: Book, tmp_path: Path) -> None:
    ids = tell_of_alice(book)
    found = book.admin.find(scope="users/alice")
    assert found.counts.items() >= {
        "item": 2, "receipt": 1, "thread message": 1, "refusal": 2, "change of labels": 1, "scope name": 1,
    }.items()  # fmt: skip
    assert ids["summary"] in {mention.id for mention in found.derived}
    assert {mention.id for mention in found.derived}.isdisjoint(found.ids)
    says = {mention.kind: mention.snippet for mention in found}
    assert says["scope.named"] == "users/alice"
    assert says["access.denied"] == "users/alice/orders"
    assert says["access.relabelled"] == "Alice told her doctor so"
    assert says["thread.message"] == "Where is the parcel of last Tuesday?"
    assert "peanuts" in next(mention.snippet for mention in found if mention.id == ids["allergy"])
    erasure = book.erase(found, reason="the account was closed")
    assert {*found.ids, *(mention.id for mention in found.derived)} <= {*erasure.erased}
    proof = book.admin.proof(found, tmp_path / "proof.json")
    assert (proof.gone, proof.file["found_again"]) == (True, {})
    assert proof.file["raw_files"]["holding"] == []
    assert proof.file["raw_files"]["texts"] >= 3
    assert proof.purged == book.admin.has_files_here
    stored = str([event.payload for event in book.events()]) + str(stored_rows(book))
    for text in ("alice", "Alice", "peanuts", "lemon", "parcel", "eats no nuts"):
        assert text not in stored
        assert text not in (tmp_path / "proof.json").read_text()
    assert "Bob is not allergic" in stored
    scope = book.event(ids["allergy"]).labels["scope"]
    assert not [event for event in book.events(kinds=["premise.changed"]) if event.labels["scope"] == scope]
    before = stored_rows(book)
    book.rebuild()
    assert stored_rows(book) == before


@pytest.mark.spec("3.12", "L10")
def test_samples_of_what_was_found_are_looked_for_in_files_and_shown_nowhere(tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "team.db") as book:
        tell_of_alice(book)
        for number in range(100):
            book.as_actor("bot", scope="users/alice").record(
                "agent.spoke", payload={"text": f'so\n"{number}"\t is  the number of it, and much more ' * 3}
            )
        book.remember("Likes her rice with a little lemon")  # of somebody else, and stays
        found = book.admin.find(scope="users/alice")
        assert 3 < len(found.samples) <= 50
        assert all(len(sample) <= 60 and "\n" not in sample for sample in found.samples)
        assert "users/alice" in found.samples
        assert {hit.text for hit in book.admin.find_text(found.samples)} == {*range(len(found.samples))}
        assert "peanuts" not in str(found) + repr(found)
        early = book.admin.proof(found, tmp_path / "early.json")
        assert (early.gone, early.purged) == (False, False)
        assert early.file["raw_files"]["holding"]
        book.erase(found)
        proof = book.admin.proof(found, tmp_path / "proof.json")
        assert (proof.gone, proof.purged) == (True, True)
        assert f"purged ({proof.file['raw_files']['texts']} texts looked for in the files)" in str(proof)
        assert "lemon" in str([item.text for item in book.memory.list()])
        for sample in found.samples:
            assert sample not in (tmp_path / "proof.json").read_text()


@pytest.mark.spec("3.12", "3.10")
def test_who_relied_on_something_that_was_erased_is_told_without_naming_it(
    book: Book, tmp_path: Path
) -> None:
    book.remember("The harbour opens at nine", shared=True)
    bot = book.as_actor("bot")
    bot.remember("The harbour master likes coffee", shared=True)
    bot.digest("when does the harbour open?")
    found = book.admin.find(actor="bot")
    book.erase(found)
    (told,) = bot.receipts.changed_facts()
    assert (told.payload["why"], told.payload["text"]) == ("forgotten", "")
    assert book.admin.proof(found, tmp_path / "proof.json").gone


@pytest.mark.spec("3.12", "L10")
def test_a_reason_names_nothing_that_was_looked_for(tmp_path: Path) -> None:
    with commonplace.open("memory:") as book:
        book.as_actor("zoe", scope="users/alice").remember("Rice", metadata={"customer": ["C-1187", 5]})
        for wanted, reasons in (
            ({"scope": "users/alice"}, ("users/alice has left", "ALICE asked")),
            ({"metadata": {"customer": "C-1187"}}, ("c-1187 asked",)),
            ({"actor": "zoe"}, ("Zoe asked",)),
        ):
            found = book.admin.find(**wanted)
            for reason in reasons:
                with pytest.raises(commonplace.BadInput, match="reason names what is to be erased"):
                    book.erase(found, reason=reason, dry_run=True)
        found = book.admin.find(scope="users/alice")
        book.erase(found.ids, reason="alice asked")  # by ids, a book does not know what is behind them
        proof = book.admin.proof(found, tmp_path / "alice.json")
        assert [erasure["reason"] for erasure in proof.file["erasures"]] == ["[erased]"]
        assert "alice" not in (tmp_path / "alice.json").read_text()


@pytest.mark.spec("3.12")
def test_a_proof_that_cannot_be_written_is_refused_before_anything_else(tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "team.db") as book:
        book.remember(f"{NAME} eats rice")
        found = book.admin.find(NAME)
        for wrong in (
            tmp_path / "no such folder" / "proof.json",
            tmp_path,
            tmp_path / "team.db" / "proof.json",
        ):
            with pytest.raises((BadInput, UnsafePath)):
                book.admin.proof(found, wrong)
        assert sorted(path.name for path in tmp_path.glob("tmp-*")) == []


@pytest.mark.spec("3.12")
def test_things_are_called_what_people_call_them(book: Book) -> None:
    ada = book.as_actor("ada", scope="users/alice")
    ada.remember("Rice is on the left", shared=True)
    ben = book.as_actor("ben", scope="users/alice")
    assert ben.search("rice")
    ben.remember("Lemons are on the right", shared=True)
    counts = book.admin.find(scope="users/alice").counts
    assert counts == {"item": 2, "record of what was shown": 1, "scope name": 1}
    assert number(2, "record of what was shown") == "2 records of what was shown"
    assert number(2, "summary") == "2 summaries"
    assert [thing_of(kind) for kind in ("thread.summarized", "thread.learned")] == [
        "summary",
        "record of learning",
    ]


@pytest.mark.spec("3.12", "L10")
def test_the_id_of_a_message_remains_and_says_why(book: Book, tmp_path: Path) -> None:
    book.thread("support").add([{"role": "user", "content": f"I am {NAME}", "id": f"of {NAME}"}])
    found = book.admin.find(NAME)
    for each in (found, None):
        (left,) = (each or book.admin.find(NAME)).remaining
        assert (left.where, left.name, left.events) == ("id of a message", f"of {NAME}", 1)
        assert left.advice.startswith("kept so that the message is not added again")
        book.erase(found)
    assert ", 1 name left\n" in str(book.admin.proof(found, tmp_path / "proof.json"))


@pytest.mark.spec("3.12")
def test_what_was_erased_or_forgotten_is_told_in_a_sentence() -> None:
    with commonplace.open("memory:") as book:
        item = book.remember("Rice is on the left")
        event = book.record("agent.reflected", payload={"text": "left"}, parents=[str(item.id)])
        plan = book.erase(str(item.id), dry_run=True)
        assert str(plan) == "2 events would be erased (1 event, 1 item)"
        assert repr(plan) == f"<Erasure {plan}>"
        assert str(book.erase(event.id)) == "1 event erased"
        assert str(book.forget(item.id, dry_run=True)) == "1 item would be forgotten"
        done = book.forget(item.id, erase=True, confirm="FORGET")
        assert repr(done) == "<Forgotten 1 item forgotten; 1 event erased>"
        assert str(book.erase(str(item.id))) == "0 events erased, 2 erased before"
