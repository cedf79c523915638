"""What is said about a work is kept whole or refused, and an id says one thing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import commonplace
from commonplace import Book, Claim, Conflict, Erased, TooLarge, Work
from commonplace.ledger.encoding import MAX_BLOB, MAX_PAYLOAD
from tests.works import taken

MIB = 1 << 20
HUGE = "x" * (MAX_PAYLOAD + 1)


# content that is too large


@pytest.mark.spec("5.4", "L5")
@pytest.mark.parametrize("kind", [str, bytes])
def test_content_that_is_not_small_is_stored_when_asked_for_and_else_refused(
    book: Book, work: Work, kind: type
) -> None:
    content: Any = "y" * (2 * MIB) if kind is str else b"y" * (2 * MIB)
    head = book.head
    with pytest.raises(TooLarge, match=r"plan.md has 2,097,152 bytes.*store=True"):
        work.artifact("plan.md", content=content)
    assert book.head == head
    stored = work.artifact("plan.md", content=content, store=True)
    assert work.content(stored) == b"y" * (2 * MIB)
    named = work.artifact("plan.md", content=content, store=False)
    assert (named.checksum, named.size, named.blob) == (stored.checksum, 2 * MIB, None)
    assert work.content(work.artifact("small.md", content=b"y" * MIB)) == b"y" * MIB


@pytest.mark.spec("5.4", "5.8", "L5")
def test_more_than_a_blob_holds_is_refused(tmp_path: Path) -> None:
    with commonplace.open("memory:") as book:
        work = book.work(name="auth")
        with pytest.raises(TooLarge, match="at most 67,108,864 are stored: keep it in a file"):
            work.artifact("plan.md", content=b"y" * (MAX_BLOB + 1), store=True)
        large = tmp_path / "large.bin"
        with large.open("wb") as file:
            file.truncate(MAX_BLOB + 1)
        with pytest.raises(TooLarge, match="leave store out"):
            work.artifact(large, store=True)
        assert work.artifact(large).size == MAX_BLOB + 1


SAID: dict[str, Callable[[Work, Claim, str], object]] = {
    "goal": lambda work, _, text: work.manage.change(goal=text),
    "one of constraints": lambda work, _, text: work.manage.change(constraints=[text]),
    "title": lambda work, _, text: work.add_task(text),
    "description": lambda work, _, text: work.add_task("it", description=text),
    "risk": lambda work, _, text: work.add_task("it", risk=text),
    "summary": lambda _, claim, text: claim.complete(text),
    "one of learnings": lambda _, claim, text: claim.complete("done", learnings=[text]),
    "one of next_steps": lambda _, claim, text: claim.complete("done", next_steps=[text]),
    "reason": lambda _, claim, text: claim.fail(text),
    "rationale": lambda work, _, text: work.decide(question="why?", choice="so", rationale=text),
    "choice": lambda work, _, text: work.decide(question="why?", choice=text),
    "one of alternatives": lambda work, _, text: work.decide(question="?", choice="so", alternatives=[text]),
    "text": lambda work, _, text: work.nudge(text),
    "text (discovery)": lambda work, _, text: work.discover(text),
    "text (escalation)": lambda work, _, text: work.escalate(text),
    "action": lambda work, _, text: work.approvals.request(text),
    "description (artifact)": lambda work, _, text: work.artifact("a.txt", description=text),
    "comments": lambda work, claim, text: work.review(claim.task, "rejected", comments=text),
}


@pytest.mark.spec("5.4", "L5")
@pytest.mark.parametrize("field", SAID)
def test_what_somebody_says_is_refused_when_it_is_too_large(field: str) -> None:
    with commonplace.open("memory:") as book:
        work = book.work(name="auth")
        work.add_task("it")
        claim, head = taken(work), book.head
        with pytest.raises(TooLarge, match=f"^{field.partition(' (')[0]} has 8,388,609 bytes"):
            SAID[field](work, claim, HUGE)
        with pytest.raises(TooLarge):  # it is larger as bytes than as characters
            SAID[field](work, claim, "é" * (MAX_PAYLOAD // 2 + 1))
        assert book.head == head


@pytest.mark.spec("5.4", "L5")
def test_what_somebody_says_is_kept_whole(work: Work) -> None:
    text = "long words " * 100_000
    task = work.add_task("it", description=text)
    assert taken(work).complete(text).result.summary == text  # type: ignore[union-attr]
    assert work.task(task).info().description == text
    assert work.nudge(text).text == text
    assert work.decide(question=text, choice=text, rationale=text).rationale == text


@pytest.mark.spec("5.3", "L5")
def test_a_worker_says_how_much_of_a_reason_it_left_out(work: Work) -> None:
    work.add_tasks([{"title": "raises"}, {"title": "says too much"}])

    def handler(claim: Claim) -> str:
        if claim.task.title == "raises":
            raise ValueError("z" * 5_000)
        return HUGE

    assert work.worker("dev-1", handler, until="idle").failed == 2
    reasons = {one.title: one.reason for one in work.tasks("failed")}
    assert reasons["raises"].endswith("z … (3,012 characters more, in the worker's log)")
    assert "summary has 8,388,609 bytes" in reasons["says too much"]


# an id says one thing


TASK: dict[str, Any] = {
    "description": "both tables", "depends_on": ["first"], "blocks": ["last"], "priority": 3, "needs_review": True,
    "on_failure": {"policy": "retry", "retries": 1}, "for_role": "developer", "assigned_to": "dev-1",
    "risk": "data is lost", "parent": "first", "metadata": {"ticket": 7},
}  # fmt: skip
OTHER: dict[str, Any] = {
    "title": "Draw it", "description": "one table", "depends_on": [], "blocks": [], "priority": 9,
    "needs_review": False, "on_failure": "retry", "for_role": "qa", "assigned_to": "dev-2", "risk": "time is lost",
    "parent": None, "metadata": {"ticket": 8},
}  # fmt: skip


@pytest.mark.spec("5.2", "L4")
def test_a_task_is_added_once_under_its_id_and_with_other_content_never(book: Book, work: Work) -> None:
    work.add_tasks([{"title": "First", "id": "first"}, {"title": "Last", "id": "last"}])
    fields = {"title": "Design it", "id": "t", **TASK}
    (task,) = work.add_tasks([fields])
    head = book.head
    assert work.add_tasks([fields]) == [task]
    for name, value in OTHER.items():
        with pytest.raises(Conflict, match=f"'t' already, which was added with another {name}:"):
            work.add_tasks([{**fields, name: value}])
        if name != "title":
            with pytest.raises(Conflict, match=name):
                work.add_tasks([{one: value for one, value in fields.items() if one != name}])
    assert book.head == head


@pytest.mark.spec("5.2", "L4")
def test_what_has_become_of_a_task_since_does_not_make_a_repeated_call_another_one(work: Work) -> None:
    task = work.add_task("Design it", id="t", priority=1, depends_on=[])
    work.task(task).edit(title="Draw it", priority=5, needs_review=True)
    other = work.add_task("Another")
    work.task(task).add_dependencies(on=[other])
    work.task(task).remove_dependencies(on=[other])
    work.task(task).assign("dev-1")
    again = work.add_task("Design it", id="t", priority=1)
    assert again == work.task("t").info()
    assert again.title == "Draw it"
    with pytest.raises(Conflict, match="another title and priority"):
        work.add_task("Draw it", id="t", priority=5)


@pytest.mark.spec("5.2", "L4", "L10")
def test_an_erased_task_or_work_is_not_added_again(book: Book, work: Work) -> None:
    work.add_task("Name of a customer", id="t")
    work.add_task("It", id="risky", risk="name of a customer")
    (added,) = (one for one in book.events(kinds=["task.added"]) if one.payload["task_id"] == "t")
    (asked,) = book.events(kinds=["work.asked"])
    book.erase([added.id, asked.id])
    (created,) = book.events(kinds=["work.created"])
    book.erase(created.id)
    head = book.head
    for title, how in (
        ("Name of a customer", {"id": "t"}),
        ("It", {"id": "risky", "risk": "name of a customer"}),
    ):
        with pytest.raises(Erased, match="another id"):
            work.add_task(title, **how)  # type: ignore[arg-type]
    with pytest.raises(Erased, match="another id"):
        book.work(name="auth", goal="Add JWT authentication to the API", id="auth")
    assert book.head == head
    assert book.work(id="auth").task("t").info().title == ""


@pytest.fixture
def cores(book: Book) -> None:
    for name in ("auth", "jwt"):
        book.memory.set_core(name, name=name)


WORK: dict[str, tuple[Any, Any]] = {
    "goal": ("Add JWT", "Add OAuth"), "constraints": (["No breaking changes"], ["None"]), "cores": (["auth"], ["jwt"]),
    "members": (["ada"], ["eve"]), "limits": ({"max_tasks": 5}, {"max_tasks": 6}), "on_failure": ("skip", "abort"),
    "auto_archive_hours": (24, 48),
}  # fmt: skip


@pytest.mark.spec("5.1", "L4")
def test_a_work_is_begun_once_under_its_id_and_with_other_content_never(book: Book, cores: None) -> None:
    fields = {name: first for name, (first, _) in WORK.items()}
    begun = book.work(id="w", name="auth", **fields)
    head = book.head
    assert book.work(id="w", name="auth", **fields).info() == begun.info()
    with pytest.raises(Conflict, match="begun with another name:"):
        book.work(id="w", name="oauth", **fields)
    for name, (first, second) in WORK.items():
        told = "settings" if name == "auto_archive_hours" else name
        without = {one: value for one, value in fields.items() if one != name}
        for other in ({**fields, name: second}, without):
            with pytest.raises(Conflict, match=f"begun with another {told}:"):
                book.work(id="w", name="auth", **other)
        with pytest.raises(Conflict, match=f"begun with another {told}:"):  # whoever only opens it
            book.work(id="w", **{name: second})
        assert book.work(id="w", **{name: first}).id == "w"
    assert book.head == head
    assert book.as_actor("ada", role="developer").work(id="w").info().members == ("ada",)


@pytest.mark.spec("5.1", "L4")
def test_what_was_changed_since_does_not_make_a_repeated_beginning_another_one(book: Book) -> None:
    work = book.work(id="w", name="auth", goal="Add JWT")
    work.manage.change(goal="Add OAuth", limits={"max_tasks": 5})
    assert book.work(id="w", name="auth", goal="Add JWT").info().goal == "Add OAuth"
    with pytest.raises(Conflict, match="another goal"):
        book.work(id="w", name="auth", goal="Add OAuth")


@pytest.mark.spec("5.1", "L4")
@pytest.mark.parametrize("end", ["complete", "abandon", "archive"])
def test_a_task_that_is_added_again_is_the_same_one_after_the_work_has_ended(
    book: Book, work: Work, end: str
) -> None:
    batch: list[dict[str, Any]] = [
        {"title": "Draw it", "id": "a"},
        {"title": "Build it", "id": "b", "depends_on": ["a"]},
    ]
    work.add_tasks(batch)
    for _ in batch:
        taken(work).complete("done")
    if end == "abandon":
        work.manage.abandon("not needed")
    else:
        work.manage.complete()
    if end == "archive":
        work.manage.archive()
    head = book.head
    assert [(one.id, one.status) for one in work.add_tasks(batch)] == [("a", "completed"), ("b", "completed")]
    assert work.add_task("Draw it", id="a") == work.task("a").info()
    with pytest.raises(Conflict, match="another title"):
        work.add_task("Paint it", id="a")
    for new in ({"title": "Sell it", "id": "c"}, {"title": "Sell it"}):
        with pytest.raises(Conflict, match="the work 'auth' is"):
            work.add_tasks([*batch, new])
    assert book.head == head
