"""Scopes: one bot, many users. Whose something is decides first, before who said it and whether it is shared."""

from __future__ import annotations

import unicodedata
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import commonplace
from commonplace import BadInput, Book, Conflict, Denied, Erased, NotFound
from commonplace.ledger.scopes import lies_in, parsed, written
from commonplace.participant import acting
from commonplace.state.policy import AgentPolicy, Policy
from tests.shells import Cli


@pytest.mark.spec("3.11")
def test_one_bot_serves_two_users_who_ask_the_same(book: Book) -> None:
    """The same keys, the same questions, other answers; the handbook is for both."""
    support = book.as_actor("support", scope="handbook")
    support.remember("Refunds take five days", shared=True)
    alice = book.as_actor("bot", scope="users/alice", reads=["handbook"])
    bob = book.as_actor("bot", scope="users/bob", reads=["handbook"])
    for user, city, diet in ((alice, "Paris", "peanuts"), (bob, "Rome", "shellfish")):
        assert user.remember(key="home.city", value=city).outcome == "stored"
        assert user.remember(f"The customer is allergic to {diet}").outcome == "stored"

    assert alice.search("the city of the customer's home")[0].content == "home.city: Paris"
    assert bob.search("the city of the customer's home")[0].content == "home.city: Rome"
    assert "peanuts" in str(alice.prompt("plan a dinner for the customer"))
    assert "shellfish" not in str(alice.prompt("plan a dinner for the customer"))
    assert "five days" in str(alice.digest("how long do refunds take"))
    assert "five days" in str(bob.digest("how long do refunds take"))
    assert [item.value for item in alice.memory.list(key="home.city")] == ["Paris"]
    assert [item.value for item in bob.memory.list(key="home.city")] == ["Rome"]
    assert len(alice.inbox()) == len(bob.inbox()) == 0  # the same key in two scopes is no dispute


@pytest.mark.spec("3.11")
def test_the_owner_sees_all_and_narrows_with_scope(book: Book) -> None:
    for name in ("alice", "bob"):
        book.as_actor("bot", scope=f"users/{name}").remember(f"{name} likes tea", shared=True)
    book.remember("the office has a kettle")
    assert len(book.memory.list()) == 3
    assert [item.scope for item in book.memory.list()] == ["users/alice", "users/bob", ""]
    assert [str(item) for item in book.memory.list(scope="users/bob")] == ["bob likes tea"]
    assert [hit.content for hit in book.search("who likes tea", scope="users/bob")] == ["bob likes tea"]
    assert len(book.memory.list(scope="users")) == 2
    assert "alice" not in str(book.prompt("make tea", scope="users/bob"))
    assert "alice" not in str(book.digest("make tea", scope="users/bob"))
    book.forget(scope="users/alice", confirm="FORGET")
    assert [str(item) for item in book.memory.list(scope="users")] == ["bob likes tea"]


@pytest.mark.spec("3.11")
def test_a_bound_session_can_only_narrow(book: Book) -> None:
    alice = book.as_actor("bot", scope="users/alice")
    alice.remember("likes tea", scope="users/alice/kitchen")
    assert [str(item) for item in alice.memory.list()] == ["likes tea"]
    assert [str(item) for item in alice.memory.list(scope="users/alice/kitchen")] == ["likes tea"]
    for outside in ("users/bob", "users", "users/al", "users/alice2"):
        with pytest.raises(Denied, match=r"bound to a scope and reads users/alice"):
            alice.search("tea", scope=outside)
        with pytest.raises(Denied, match=r"bound to a scope and acts in users/alice"):
            alice.remember("tea", scope=outside)
    assert {event.payload["what"] for event in book.events(kinds=["access.denied"])} >= {"users/bob", "users"}


@pytest.mark.spec("3.11")
def test_a_slash_is_the_root_without_what_lies_below_it(book: Book) -> None:
    book.remember("the office has a kettle", pinned=True)
    book.as_actor("bot", scope="users/bob").remember("likes coffee", shared=True)
    alice = book.as_actor("bot", scope="users/alice", reads=["/"])
    alice.remember("likes tea", shared=True)
    assert {str(item) for item in alice.memory.list()} == {"the office has a kettle", "likes tea"}
    assert "kettle" in str(alice.prompt("make tea"))
    assert "coffee" not in str(alice.prompt("make tea"))
    assert [str(item) for item in book.memory.list(scope="/")] == ["the office has a kettle"]
    with pytest.raises(BadInput):
        book.remember("anything", scope="/")
    book.access.grant("guest", scopes={"/": "read"})
    assert [str(item) for item in book.as_actor("guest").memory.list()] == ["the office has a kettle"]
    with pytest.raises(Denied):
        book.as_actor("guest").remember("anything")


@pytest.mark.spec("3.11")
def test_what_is_only_read_cannot_be_written(book: Book) -> None:
    kept = book.as_actor("editor", scope="handbook").remember("Refunds take five days", shared=True)
    bot = book.as_actor("bot", role="librarian", scope="users/alice", reads=["handbook"])
    assert bot.memory.get(kept).scope == "handbook"
    with pytest.raises(Denied, match="handbook"):
        bot.memory.revise(kept, text="Refunds take a year")
    with pytest.raises(Denied, match="handbook"):
        bot.forget(kept, confirm="FORGET")
    with pytest.raises(BadInput, match="another scope"):
        bot.remember("Refunds take a year", supersedes=kept)
    assert str(bot.memory.get(kept)) == "Refunds take five days"


@pytest.mark.spec("3.11", "3.9")
def test_grants_limit_what_is_read_and_what_is_written(book: Book) -> None:
    book.as_actor("bot", scope="users/alice").remember("likes tea", shared=True)
    book.as_actor("bot", scope="users/bob").remember("likes coffee", shared=True)
    book.remember("the office has a kettle")
    book.access.grant("agent", scopes={"users": "read", "users/alice": "read_write", "users/bob": "none"})
    before = book.head
    assert [str(item) for item in book.as_actor("agent").memory.list()] == ["likes tea"]
    assert book.as_actor("agent", scope="users/bob").search("what is liked").results == ()
    assert book.as_actor("agent", scope="users/alice").remember("wakes early").outcome == "stored"
    for scope in (None, "users", "users/bob", "teams"):
        with pytest.raises(Denied, match="grant"):
            book.as_actor("agent", scope=scope).remember("anything")
    book.access.grant("agent", scopes=["users/bob"])  # the others stay
    granted = book.access.rights("agent")
    assert granted.granted == {"users": "read", "users/alice": "read_write", "users/bob": "read_write"}
    assert "users/alice=read_write" in str(granted)
    assert len(book.as_actor("agent").memory.list()) == 3
    book.access.grant("agent", scopes=["users/bob"], replace=True)
    assert [str(item) for item in book.as_actor("agent").memory.list()] == ["likes coffee"]
    assert book.as_actor("agent").memory.list(at=before) == []  # allowed then, and allowed now
    assert len(book.as_actor("else").memory.list()) == 3


@pytest.mark.spec("3.11", "3.9")
def test_the_call_that_a_denial_recommends_takes_nothing_away(book: Book) -> None:
    book.access.grant("coach", scopes={"members": "read_write", "members/vip": "none"})
    with pytest.raises(Denied, match="scopes={'partners': 'read_write'}"):
        book.as_actor("coach", scope="partners").remember("they open at nine")
    book.access.grant("coach", scopes={"partners": "read_write"})
    assert book.as_actor("coach", scope="partners").remember("they open at nine").outcome == "stored"
    assert book.as_actor("coach", scope="members/ana").remember("does yoga").outcome == "stored"
    with pytest.raises(Denied):
        book.as_actor("coach", scope="members/vip/zoe").remember("anything")
    with pytest.raises(Denied, match="scopes={'/': 'read_write'}"):
        book.as_actor("coach").remember("anything")
    assert book.as_actor("coach", scope="members/ana").access.rights().granted == {
        "members/ana": "read_write"
    }
    assert "members/vip" not in str(book.as_actor("coach").access.rights())


@pytest.mark.spec("3.11")
def test_one_scope_in_two_forms_is_granted_once(book: Book) -> None:
    with pytest.raises(BadInput, match="twice"):
        book.access.grant("bot", scopes={"users/e\u0301": "none", "users/\u00e9": "read_write"})
    for scopes in (["users", ["a"]], [None], {"users": "all"}):
        with pytest.raises(BadInput):
            book.access.grant("bot", scopes=scopes)  # type: ignore[arg-type]


@pytest.mark.spec("3.11")
def test_scopes_to_read_go_with_a_scope_to_write_to(book: Book) -> None:
    with pytest.raises(BadInput, match="reads goes with a scope"):
        book.as_actor("bot", reads=["handbook"])


@pytest.mark.spec("3.11")
def test_runs_works_documents_and_cores_belong_to_a_scope(book: Book) -> None:
    for name in ("alice", "bob"):
        scope = f"users/{name}"
        with (
            book.run(run_id=f"run-{name}", initial={"user": name}, scope=scope) as run,
            run.agent("bot") as me,
        ):
            me.write({"answer": f"for {name}"})
            me.remember(f"{name} asked")
        work = book.work(f"work-{name}", name="Order", goal=f"an order of {name}", scope=scope)
        work.add_task("Pack it")
        bot = book.as_actor("bot", role="librarian", scope=scope)
        bot.documents.log(f"packed for {name}")
        bot.memory.set_core("wishes", description=f"of {name}")
        bot.remember(f"{name} wants it green", core="wishes", confidence=0.9)
    alice = book.as_actor("bot", scope="users/alice")
    assert [run.id for run in alice.runs.list()] == ["run-alice"]
    assert alice.runs.state("run-alice")["bot"] == {"answer": "for alice"}
    assert [(info.name, info.scope) for info in alice.works.list()] == [("Order", "users/alice")]
    logged = [entry.text for day in alice.documents.days() for entry in alice.documents.day(day)]
    assert logged == ["- **answer**: for alice", "packed for alice"]
    assert alice.memory.core("wishes").description == "of alice"
    assert [str(item) for item in alice.memory.list(core="wishes")] == ["alice wants it green"]
    for read in (
        lambda: alice.runs.get("run-bob"),
        lambda: alice.work("work-bob"),
        lambda: alice.memory.get(book.memory.list(scope="users/bob")[0].id),
    ):
        with pytest.raises(NotFound):
            read()
    assert [run.id for run in book.runs.list(scope="users/bob")] == ["run-bob"]
    assert [info.scope for info in book.works.list(scope="users/bob")] == ["users/bob"]
    # What a session of the whole book does to something of a scope stays in that scope.
    book.work("work-alice").add_task("Send it")
    assert [task.title for task in alice.work("work-alice").tasks()] == ["Pack it", "Send it"]


@pytest.mark.spec("3.11", "3.7")
def test_the_markdown_shows_the_root_and_a_scope_on_request(tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "book.db") as book:
        book.remember("the office has a kettle")
        book.as_actor("bot", scope="users/alice").remember("drinks cocoa", shared=True)
        book.mirror.folder(tmp_path / "root").sync()
        alice = book.mirror.folder(tmp_path / "alice", scope="users/alice")
        alice.sync()
        root, page = (tmp_path / "root" / "MEMORY.md").read_text(), tmp_path / "alice" / "MEMORY.md"
        assert ("kettle" in root, "cocoa" in root) == (True, False)
        assert ("kettle" in page.read_text(), "cocoa" in page.read_text()) == (False, True)
        page.write_text(page.read_text() + "\n- wakes early\n")
        alice.sync()
        assert [str(item) for item in book.memory.list(scope="users/alice")] == [
            "drinks cocoa",
            "wakes early",
        ]
        with pytest.raises(BadInput, match="another scope"):
            book.mirror.folder(tmp_path / "alice").sync()
        book.erase(book.memory.list(scope="users/alice")[0].id)
        assert "cocoa" not in page.read_text()


@pytest.mark.spec("3.11", "L10")
def test_the_name_of_a_scope_stands_in_one_payload_only(book: Book) -> None:
    bot = book.as_actor("bot", scope="users/zelda")
    bot.remember("likes tea", shared=True)
    bot.record("agent.spoke", payload={"text": "hello"})
    book.access.grant("bot", scopes=["users/zelda"])
    named = [event for event in book.events() if "zelda" in repr(event)]
    assert [event.kind for event in named] == ["scope.named"]
    book.erase(named[0].id)
    assert not any("zelda" in repr(event) for event in book.events())
    assert [str(item) for item in book.memory.list()] == ["likes tea"]  # for the owner, under the scope's key
    assert book.as_actor("bot", scope="users/zelda").memory.list() == []
    book.rebuild()
    assert [str(item) for item in book.memory.list()] == ["likes tea"]
    assert book.verify().ok


@pytest.mark.spec("3.11")
@pytest.mark.parametrize(
    "name",
    [
        "",
        "/",
        "users/",
        "/users",
        "users//alice",
        "users/../bob",
        "..",
        "users/*",
        "*",
        "a\\b",
        "users/ al",
        7,
        None,
    ],
)
def test_what_is_no_path_of_names_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="scope"):
        parsed(name)


@pytest.mark.spec("3.11")
def test_two_forms_of_one_name_are_one_scope(book: Book) -> None:
    composed, apart = "users/Zoë", unicodedata.normalize("NFD", "users/Zoë")
    assert composed != apart
    book.as_actor("bot", scope=composed).remember("likes tea")
    assert [str(item) for item in book.as_actor("bot", scope=apart).memory.list()] == ["likes tea"]
    assert book.as_actor("bot", scope="users/zoë").memory.list() == []


NAMES = st.text(st.sampled_from("abÄ é-_.'%"), min_size=1, max_size=3).filter(
    lambda name: name.strip() == name and name not in (".", "..")
)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(tuple)


@pytest.mark.spec("3.11")
@given(PATHS, PATHS)
def test_a_path_lies_in_another_only_name_by_name(path: tuple[str, ...], other: tuple[str, ...]) -> None:
    first, second = parsed(written(path)), parsed(written(other))
    assert lies_in(first, second) == (list(first[: len(second)]) == list(second))
    with commonplace.open("memory:") as book:
        book.as_actor("bot", scope=written(path)).remember("likes tea", shared=True)
        seen = book.as_actor("bot", scope=written(other)).memory.list()
        assert bool(seen) == lies_in(first, second)


@pytest.mark.spec("3.11")
def test_nobody_labels_an_event_with_a_scope(book: Book) -> None:
    book.as_actor("bot", scope="users/alice").remember("likes tea")
    key = next(book.events(kinds=["scope.named"])).id
    for who in (book, book.as_actor("bot"), book.as_actor("bot", scope="users/bob")):
        with pytest.raises(BadInput, match="label scope"):
            who.record("agent.spoke", labels={"scope": key})


@pytest.mark.spec("3.11")
def test_a_session_of_a_scope_does_not_change_the_whole_book(book: Book) -> None:
    person = book.as_actor("pat", role="person", scope="users/alice")
    with pytest.raises(Denied, match="whole book"):
        person.memory.configure(retention_days=1)
    with pytest.raises(Denied, match="whole book"):
        person.memory.tidy()


@pytest.mark.spec("3.11", "L9")
def test_what_was_shown_for_one_user_is_no_echo_for_another(book: Book) -> None:
    alice, bob = (book.as_actor("bot", scope=f"users/{name}") for name in ("alice", "bob"))
    book.as_actor("clerk", scope="users/alice").remember("The customer lives in Paris", shared=True)
    assert len(alice.search("where does the customer live")) == 1
    assert alice.remember("The customer lives in Paris").outcome == "rejected"
    assert bob.remember("The customer lives in Paris").outcome == "stored"


@pytest.mark.spec("3.11", "1.4")
def test_scopes_travel_with_copies_and_exports(book: Book, tmp_path: Path) -> None:
    for name in ("alice", "bob"):
        book.as_actor("bot", scope=f"users/{name}").remember(f"{name} likes tea", shared=True)
    alice = book.as_actor("bot", scope="users/alice")
    alice.export(tmp_path / "alice.jsonl")
    assert "bob" not in (tmp_path / "alice.jsonl").read_text().replace('"bot"', "")
    book.admin.export(tmp_path / "all.jsonl")
    with commonplace.open("memory:") as copy:
        copy.admin.import_(tmp_path / "all.jsonl")
        seen = copy.as_actor("bot", scope="users/alice").memory.list()
        assert [str(item) for item in seen] == ["alice likes tea"]
    with commonplace.open("memory:") as other:
        other.remember(
            "something of its own"
        )  # so that events are recorded anew, and belong to no scope here
        other.admin.import_(tmp_path / "all.jsonl")
        assert list(other.as_actor("bot", scope="users/alice").events()) == []
        assert list(other.as_actor("bot", scope="users/alice").search("tea")) == []


@pytest.mark.spec("3.11", "7.2")
def test_the_shell_acts_in_a_scope(cli: Cli) -> None:
    cli("init")
    cli("remember", "likes tea", "--scope", "users/alice")
    cli("remember", "likes coffee", "--scope", "users/bob", "--as", "bot")
    assert "tea" in cli("search", "what is liked", "--scope", "users/alice").out
    assert "coffee" not in cli("search", "what is liked", "--scope", "users/alice").out
    assert "coffee" in cli("memory", "list", "--scope", "users").out
    assert "tea" not in cli("--scope", "users/bob", "memory", "list").out
    refused = cli("book", "verify", "--scope", "users/bob")
    assert (refused.code, "whole book" in refused.err) == (1, True)
    assert cli("search", "x", "--scope", "users//bob").code == 1


# what lies outside shapes nothing


@pytest.mark.spec("3.11")
def test_a_core_of_another_scope_is_not_listed_and_its_rules_do_not_hold(book: Book) -> None:
    alice, bob = (book.as_actor("bot", role="librarian", scope=f"users/{name}") for name in ("alice", "bob"))
    bob.memory.set_core("wishes", description="of bob", config={"min_confidence": 0.9})
    book.as_actor("vera", role="librarian", scope="users/alice").memory.set_core(
        "wishes", visibility="private", description="of vera"
    )
    assert alice.memory.cores() == []
    alice.memory.set_core("plans", description="of alice")
    bob.memory.set_core("plans", description="of bob", config={"min_confidence": 0.9})
    alice.remember("wants a garden", core="plans", confidence=0.5)
    assert [(core.scope, core.description) for core in alice.memory.cores()] == [("users/alice", "of alice")]
    assert alice.memory.suggestions() == []
    assert [core.scope for core in bob.memory.cores()] == ["users/bob", "users/bob"]
    both = book.as_actor("bot", scope="users/alice", reads=["users/bob"]).memory
    assert {(core.scope, core.id) for core in both.cores()} == {
        ("users/alice", "plans"),
        ("users/bob", "plans"),
        ("users/bob", "wishes"),
    }
    assert both.suggestions() == []  # each core's rules are for its own entries
    assert len(book.memory.cores()) == 4


@pytest.mark.spec("3.11")
def test_an_id_that_is_taken_in_another_scope_is_a_conflict(book: Book) -> None:
    alice, bob = (book.as_actor("bot", scope=f"users/{name}") for name in ("alice", "bob"))
    kept = bob.remember("welcome sent", id="w")
    said = bob.record("agent.spoke", id="s", payload={"text": "hello"})
    for _ in range(2):
        with pytest.raises(Conflict):
            alice.remember("welcome sent", id="w")
        with pytest.raises(Conflict):
            alice.record("agent.spoke", id="s", payload={"text": "hello"})
        book.erase([kept.id or "", said.id])  # what was erased elsewhere is none of alice's business
    for verb in (
        lambda: bob.remember("welcome sent", id="w"),
        lambda: bob.record("agent.spoke", id="s", payload={"text": "hello"}),
    ):
        with pytest.raises(Erased):
            verb()
    assert alice.memory.list() == []


@pytest.mark.spec("3.11")
def test_the_same_file_can_be_imported_into_two_scopes(book: Book, tmp_path: Path) -> None:
    (tmp_path / "MEMORY.md").write_text("# Memory\n\n- The customer likes tea\n")
    alice, bob = (book.as_actor("bot", scope=f"users/{name}") for name in ("alice", "bob"))
    for user in (bob, alice):
        for _ in range(2):
            report = user.memory.import_(tmp_path / "MEMORY.md")
            assert {item.outcome for item in report.became} == {"stored"}
        assert ["likes tea" in item.text for item in user.memory.list()] == [True]
    assert len(book.memory.list()) == 2


@pytest.mark.spec("3.11", "3.9")
def test_labels_are_changed_only_where_a_session_writes(book: Book) -> None:
    editor = book.as_actor("pat", role="person", scope="handbook")
    rule = editor.remember("Refunds take five days", shared=True)
    other = book.as_actor("pat", role="person", scope="users/bob").remember("likes tea", shared=True)
    reader = book.as_actor("pat", role="person", scope="users/alice", reads=["handbook"])
    with pytest.raises(Denied, match="writes to users/alice, not handbook"):
        reader.access.relabel(rule.id or "", sensitivity="sensitive", reason="hide it")
    for id in (rule.id, other.id):
        with pytest.raises(NotFound):
            acting(book, "owner", scope="users/alice").access.relabel(
                id or "", sensitivity="sensitive", reason="hide it"
            )
    assert not any(book.events(kinds=["access.relabelled"]))
    editor.access.relabel(rule.id or "", sensitivity="sensitive", reason="it is a draft")
    book.access.relabel(other.id or "", sensitivity="sensitive", reason="it is a draft")


@pytest.mark.spec("3.11")
def test_a_name_for_a_call_names_it_for_one_item_alone(book: Book) -> None:
    alice, bob = (book.as_actor("bot", scope=f"users/{name}") for name in ("alice", "bob"))
    hers, his = (user.remember("likes tea").id or "" for user in (alice, bob))
    for user, id in ((bob, his), (alice, hers)):
        for text in ("likes coffee", "likes cocoa"):
            user.memory.revise(id, text=text, idempotency_key="sync-1")
        assert user.memory.get(id).text == "likes coffee"


@pytest.mark.spec("3.11")
def test_what_an_actor_changes_in_one_scope_is_told_to_it_in_another(book: Book) -> None:
    editor = book.as_actor("bot", scope="handbook")
    rule = editor.remember("Refunds take five days", shared=True)
    alice = book.as_actor("bot", scope="users/alice", reads=["handbook"])
    assert "five days" in str(alice.digest("How long does a refund take?"))
    assert "five days" in str(editor.digest("How long does a refund take?"))
    editor.memory.revise(rule.id or "", text="Refunds take nine days")
    assert "nine days" in str(alice.prompt("How long does a refund take?"))
    told = list(book.events(kinds=["premise.changed"]))
    assert [event.payload["item"] for event in told] == [rule.id]
    assert [event.id for event in alice.events(kinds=["premise.changed"])] == [told[0].id]
    assert list(editor.events(kinds=["premise.changed"])) == []  # it knows what it did


@pytest.mark.spec("3.11")
def test_forgetting_in_a_scope_that_is_only_read_is_denied(book: Book) -> None:
    book.as_actor("editor", scope="handbook").remember("Refunds take five days", shared=True)
    bot = book.as_actor("bot", scope="users/alice", reads=["handbook"])
    for dry_run in (False, True):
        with pytest.raises(Denied, match="writes to users/alice, not handbook"):
            bot.forget(scope="handbook", confirm="FORGET", dry_run=dry_run)
    book.access.grant("guest", scopes={"/": "read_write", "handbook": "read"})
    with pytest.raises(Denied, match="may only read handbook"):
        book.as_actor("guest").forget(scope="handbook", confirm="FORGET")
    assert len(book.memory.list()) == 1


@pytest.mark.spec("3.11")
def test_a_turn_is_looked_for_in_the_scope_that_is_named(book: Book) -> None:
    book.run(run_id="r", scope="users/alice")
    assert acting(book, "bot", "r", scope="users/alice").remember("likes tea").outcome == "stored"
    with pytest.raises(NotFound):
        acting(book, "bot", "r", scope="users/bob")


# runs of other scopes


NO_MEMORY = AgentPolicy(access={"long_term": "none"})


@pytest.mark.spec("3.11", "L7")
def test_the_id_of_a_run_in_another_scope_cannot_be_used(book: Book) -> None:
    """Neither its secrets nor its rules show, nor does anything get into it."""
    policy = Policy(sensitive_fields=("token",), agents={"bot": NO_MEMORY})
    alice = book.as_actor("bot", scope="users/alice", reads=["handbook"])
    early = [
        alice.record("agent.spoke", run_id=id, payload={"text": f"{id} is about hunter2-hunter2"})
        for id in ("late", "root")
    ]
    for id, scope in (("br", "users/bob"), ("late", "users/bob"), ("hb", "handbook"), ("root", None)):
        parent = book.run(run_id=f"{id}-above", scope=scope)
        parent.child(id, policy=policy, inherit={"token": "hunter2-hunter2"})
    head = book.head
    for id in ("br", "late", "hb", "root"):
        taken = f"the id '{id}' cannot be used here"
        with pytest.raises(Conflict, match=taken):
            alice.record("agent.spoke", run_id=id, payload={"text": "hunter2-hunter2"})
        with pytest.raises(Conflict, match=taken):
            alice.record_all([{"kind": "agent.spoke"}, {"kind": "agent.spoke", "run_id": id}])
        with pytest.raises(Conflict, match=taken):
            alice.remember("hello", run_id=id)
        with pytest.raises(Conflict, match=taken):
            alice.memory.add_many([{"text": "hello"}, {"text": "bye", "run_id": id}])
    assert book.head == head
    assert list(alice.access.redacted(early)) == list(book.access.redacted(early)) == early
    assert [event.payload for event in alice.events(kinds=["agent.spoke"])] == [
        each.payload for each in early
    ]
    assert all("hunter2-hunter2" in hit.content for hit in alice.search("what is it about"))
    # Neither can it be used where the scope is not granted to write to.
    for permission in ("none", "read"):
        book.access.grant("guest", scopes={"/": "read_write", "users": permission})
        guest = book.as_actor("guest")
        with pytest.raises(Conflict, match="the id 'br' cannot be used here"):
            guest.record("agent.spoke", run_id="br")
        with pytest.raises(Conflict, match="the id 'br' cannot be used here"):
            guest.remember("hello", run_id="br")
    # The owner acts in every scope: what it records for a run belongs to the scope of the run.
    book.record("agent.spoke", run_id="br", payload={"text": "from the owner"})
    book.remember("kept by the owner", run_id="br")
    bob = book.as_actor("eve", scope="users/bob")
    assert [event.payload["text"] for event in bob.events(kinds=["agent.spoke"])] == ["from the owner"]
    assert [str(item) for item in bob.memory.list()] == ["kept by the owner"]
    # Where a run is one's own, nothing has changed.
    assert alice.record("agent.spoke", run_id="none-yet").run_id == "none-yet"
    kept = book.memory.add_many([{"text": "one", "run_id": "br"}, "two", {"text": "three", "run_id": "x"}])
    assert [book.memory.get(result.id or "").scope for result in kept] == ["users/bob", "", ""]


@pytest.mark.spec("3.11")
def test_a_turn_keeps_its_rules_in_the_scopes_below_its_run(book: Book) -> None:
    parent = book.run(run_id="above", scope="users")
    me = parent.child("r", policy=Policy(agents={"bot": NO_MEMORY})).agent("bot")
    with pytest.raises(Denied, match="long_term"):
        me.remember("likes tea", scope="users/alice")
    other = parent.child("s").agent("bot")
    assert other.remember("likes tea", scope="users/alice").outcome == "stored"


@pytest.mark.spec("3.11")
def test_a_run_is_not_begun_under_an_id_that_is_taken(book: Book) -> None:
    book.run(run_id="r", scope="users/bob")
    alice = book.as_actor("bot", scope="users/alice")
    mine = alice.run(run_id="mine")
    with pytest.raises(Conflict, match="the id 'r' cannot be used here"):
        alice.run(run_id="r")
    with pytest.raises(Conflict, match="the id 'r' cannot be used here"):
        mine.child("r")
    with pytest.raises(Conflict, match="the id 'r' cannot be used here"):
        mine.fork(new_id="r")
    with pytest.raises(NotFound):
        alice.run(run_id="r", create=False)
    with pytest.raises(Conflict, match="use its id alone"):
        mine.child("mine")


@pytest.mark.spec("3.11", "3.9")
def test_grants_limit_what_an_agent_writes_to_a_run(book: Book) -> None:
    book.access.grant("bot", scopes={"users": "read_write", "users/vip": "none", "users/old": "read"})
    for scope, words in (("users/vip", "neither read nor write"), ("users/old", "only read")):
        me = book.run(scope=scope).agent("bot")
        with pytest.raises(Denied, match=f"may {words} {scope}"):
            me.write({"x": 1})
        with pytest.raises(Denied, match=f"may {words} {scope}"):
            me.finish({"x": 1})
        assert "bot" not in me.own_run.state()
    me = book.run(scope="users/alice").agent("bot")
    me.write({"x": 1})
    assert me.own_run.state()["bot"] == {"x": 1}


# scopes whose names were erased


@pytest.mark.spec("3.11", "L10")
def test_nobody_acts_in_a_scope_without_a_name(book: Book) -> None:
    run = book.run(run_id="r", scope="users/bob")
    run.agent("bot").write({"answer": 42})
    work = book.work("w", name="Order", goal="an order", scope="users/bob")
    book.work("over", name="Order", goal="an order", scope="users/bob").manage.complete()
    turn = run.agent("bot")
    book.erase(next(book.events(kinds=["scope.named"])).id)
    with pytest.raises(NotFound):
        turn.remember("likes tea")
    assert book.works.archive_finished(older_than=timedelta(0)) == []  # upkeep leaves it alone
    run, work = book.run(run_id="r"), book.work("w")
    head = book.head
    for act in (
        lambda: run.agent("bot").write({"answer": 43}),
        lambda: run.agent("bot").remember("likes tea"),
        lambda: run.agent("bot").record("agent.spoke"),
        lambda: run.close(),
        lambda: work.add_task("Pack it"),
    ):
        with pytest.raises(Denied, match="the name of its scope was erased"):
            act()
    with pytest.raises(Conflict):
        book.record("agent.spoke", run_id="r")
    assert all(event.kind == "access.denied" for event in book.events(after=head))
    assert (run.state()["bot"], work.info().name) == ({"answer": 42}, "Order")


@pytest.mark.spec("3.11", "L10")
def test_a_scope_without_a_name_is_the_owners_alone(book: Book) -> None:
    for name in ("alice", "bob"):
        bot = book.as_actor("bot", scope=f"users/{name}")
        bot.remember(f"{name} likes tea", shared=True)
        bot.thread("chat").add({"role": "user", "content": f"{name} says hello"})
        book.run(run_id=name, scope=f"users/{name}")
    before, everybody = book.head, book.as_actor("bot")
    assert len(everybody.memory.list()) == 2
    book.erase(next(e.id for e in book.events(kinds=["scope.named"]) if e.payload["path"][1] == "bob"))
    for _ in range(2):
        assert [str(item) for item in everybody.memory.list()] == ["alice likes tea"]
        assert [str(item) for item in everybody.memory.list(at=before)] == ["alice likes tea"]
        assert not any("bob" in hit.content for hit in everybody.search("who likes tea"))
        assert [info.scope for info in everybody.threads.list()] == ["users/alice"]
        assert [info.id for info in everybody.runs.list()] == ["alice"]
        assert not any("bob" in repr(event.payload) for event in everybody.events())
        with pytest.raises(NotFound):
            everybody.runs.get("bob")
        assert len(book.memory.list()) == len(book.threads.list()) == len(book.runs.list()) == 2
        book.rebuild()


@pytest.mark.spec("3.11", "3.9", "L10")
def test_nobody_gains_a_right_by_an_erasure(book: Book) -> None:
    book.access.grant("bot", scopes={"users": "read_write", "users/vip": "none"})
    book.access.grant("*", scopes={"users": "read_write", "users/old": "read"})
    book.as_actor("clerk", scope="users/vip").remember("likes tea", shared=True)
    names = {event.payload["path"][-1]: event.id for event in book.events(kinds=["scope.named"])}
    for name, subject in (("vip", "bot"), ("old", r"\*")):
        for dry_run in (True, False):
            with pytest.raises(Conflict, match=rf"grant\('{subject}', scopes={{'users/{name}'"):
                book.erase(names[name], dry_run=dry_run)
    with pytest.raises(Conflict):
        book.erase(book.admin.find(scope="users/vip"))
    with pytest.raises(Denied):
        book.as_actor("bot", scope="users/vip").remember("anything")
    assert len(book.memory.list(scope="users/vip")) == 1
    book.access.grant("bot", scopes={"users/vip": "read_write"})  # who may do it says so
    book.erase(book.admin.find(scope="users/vip"))
    assert book.as_actor("bot", scope="users/vip").remember("begins anew").outcome == "stored"
    book.access.grant("guest", scopes={"users/vip": "read"})
    latest = [event.id for event in book.events(kinds=["scope.named"]) if not event.erased][-1]
    book.erase(latest)  # nothing wider was granted
    with pytest.raises(Denied):
        book.as_actor("guest", scope="users/vip").remember("anything")
    assert book.as_actor("guest", scope="users/vip").memory.list() == []
