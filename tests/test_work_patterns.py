"""Patterns: what is known of how something is done, as the tasks that a work begins with."""

from __future__ import annotations

import json
from typing import Any

import pytest

from commonplace import BadInput, Book, Conflict
from tests.shells import Cli

SAYS = "Authentication is added in three steps."
PLAN: list[Any] = [
    "Design",
    {
        "title": "Build",
        "description": "both tables",
        "depends_on": ["Design"],
        "for_role": "developer",
        "priority": 2,
    },
    {"title": "Test", "depends_on": ["Build"], "for_role": "qa", "needs_review": True},
]


@pytest.mark.spec("5.1", "3.4")
def test_a_pattern_is_remembered_with_its_tasks_and_a_work_begins_with_them(book: Book) -> None:
    book.memory.set_core("auth", name="Authentication")
    kept = book.remember(SAYS, core="auth", type="pattern", tasks=PLAN)
    assert kept.item_id is not None
    assert [task["title"] for task in book.memory.get(kept.item_id).tasks] == ["Design", "Build", "Test"]
    work = book.work(name="auth", cores=["auth"], pattern=kept.item_id, id="w")
    design, build, test = work.tasks()
    assert (build.description, build.for_role, build.priority) == ("both tables", "developer", 2)
    assert (build.depends_on, test.depends_on) == ((design.id,), (build.id,))
    assert (test.for_role, test.needs_review) == ("qa", True)
    assert [one.title for one in work.ready()] == ["Design"]
    assert work.info().pattern == kept.item_id
    head = book.head
    again = book.work(name="auth", cores=["auth"], pattern=kept.item_id, id="w")
    assert (len(again.tasks()), book.head) == (3, head)
    with pytest.raises(Conflict, match="another pattern"):
        book.work(name="auth", cores=["auth"], id="w")


@pytest.mark.spec("5.1", "3.3", "L5")
def test_tasks_are_revised_and_none_are_lost_without_a_word(book: Book) -> None:
    book.memory.set_core("auth", name="Authentication")
    first = book.remember(SAYS, core="auth", type="pattern", tasks=["Design"])
    same = book.remember(SAYS, core="auth", type="pattern", tasks=["Design", "Build"])
    assert (same.outcome, same.item_id) == ("merged", first.item_id)
    assert "not taken over: tasks" in same.reason
    assert first.item_id is not None
    assert [one["title"] for one in book.memory.revise(first.item_id, tasks=PLAN).tasks] == [
        "Design",
        "Build",
        "Test",
    ]
    assert len(book.work(name="auth", pattern=first.item_id).tasks()) == 3
    assert book.memory.revise(first.item_id, tasks=None).tasks == ()
    with pytest.raises(BadInput, match="not a pattern with tasks"):
        book.work(name="auth", pattern=first.item_id)


@pytest.mark.spec("5.1", "L5")
@pytest.mark.parametrize(
    ("tasks", "told"),
    [
        ("Design", "is not a list"),
        ([{"description": "no title"}], "task 1 of tasks has no title"),
        (
            [{"title": "Design", "assigned_to": "dev-1"}],
            "'Design' has no 'assigned_to': its fields are title",
        ),
        (
            [{"title": "Build", "depends_on": ["Design"]}],
            "'Build' depends on 'Design', which is none of the tasks",
        ),
        ([{"title": "Build", "depends_on": "Design"}], "depends_on of task 'Build' is not a list"),
        (["Design", "Design"], "the same title"),
    ],
)
def test_tasks_that_no_work_could_begin_with_are_refused_when_they_are_remembered(
    tasks: Any, told: str, book: Book
) -> None:
    book.memory.set_core("auth", name="Authentication")
    with pytest.raises(BadInput, match=told):
        book.remember(SAYS, core="auth", type="pattern", tasks=tasks)
    with pytest.raises(BadInput, match="only a pattern has tasks"):
        book.remember(SAYS, core="auth", type="lesson", tasks=["Design"])


@pytest.mark.spec("5.1", "7.2")
def test_a_pattern_from_the_shell(cli: Cli) -> None:
    def ask(*args: object) -> Any:
        ran = cli(*args, "--json")
        assert (ran.code, ran.err) == (0, ""), ran
        return ran.json

    ask("init")
    ask("memory", "set-core", "auth", "name=Authentication")
    kept = ask("remember", SAYS, "--core", "auth", "--type", "pattern", "--task", json.dumps(PLAN))
    begun = ask("work", "new", "auth", "--core", "auth", "--pattern", kept["item_id"])
    assert begun["pattern"] == kept["item_id"]
    assert [one["title"] for one in ask("task", "list", begun["id"])] == ["Design", "Build", "Test"]
    refused = cli("remember", SAYS, "--type", "lesson", "--core", "auth", "--task", "Design")
    assert (refused.code, "only a pattern has tasks" in refused.err) == (1, True)
