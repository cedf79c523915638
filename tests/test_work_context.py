"""What a task's holder is told of what was made: the newest version that it may see, and never an older one."""

from __future__ import annotations

import pytest

from commonplace import Book, Work


@pytest.mark.spec("5.5", "5.4")
def test_the_context_shows_the_newest_version_whatever_task_it_was_made_for(book: Book, work: Work) -> None:
    task, other = work.add_task("Design the token schema"), work.add_task("Rename the columns")
    versions = [
        work.artifact("schema.sql", content=text, description=text, task=task) for text in ("first", "second")
    ]
    assert [one.version for one in work.context_for(task).artifacts] == [2]
    then = book.head
    third = work.artifact("schema.sql", content="third", description="third", task=other)
    fourth = work.artifact("schema.sql", content="fourth", description="fourth")
    context = work.context_for(task)
    assert context.artifacts == (fourth,)
    assert "schema.sql v4 fourth" in context.text
    assert not any(text in context.text for text in ("first", "second", "third"))
    later = "there is a later version of schema.sql"
    assert {(one.id, later) for one in versions} <= set(context.left_out)
    assert work.context_for(task, at=then).artifacts == (versions[1],)
    assert work.context_for(task, at=third.position).artifacts == (third,)


@pytest.mark.spec("5.5", "4.3", "L7")
def test_of_versions_that_a_reader_may_not_see_it_is_shown_the_last_one_before(
    book: Book, work: Work
) -> None:
    task = work.add_task("Design the token schema")
    first = work.artifact("schema.sql", content="1", description="plain", task=task)
    then = book.head
    second = work.artifact("schema.sql", content="2", description="with salaries", task=task)
    mine = book.as_actor("dev-1", role="developer").work(id=work.id)
    assert mine.context_for(task).artifacts == (second,)
    book.relabel(second.id, sensitivity="sensitive", reason="it names salaries")
    context = mine.context_for(task)
    assert [one.id for one in context.artifacts] == [first.id]
    assert second.id not in str(context.left_out)
    assert [one.id for one in mine.context_for(task, at=then).artifacts] == [first.id]
    assert [one.version for one in work.context_for(task).artifacts] == [2]


@pytest.mark.spec("5.5", "L10")
def test_an_erased_version_is_not_the_newest(book: Book, work: Work) -> None:
    task = work.add_task("Design the token schema")
    first = work.artifact("schema.sql", content="1", task=task)
    second = work.artifact("schema.sql", content="2", task=task)
    book.erase(second.id)
    assert [one.id for one in work.context_for(task).artifacts] == [first.id]
