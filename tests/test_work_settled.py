"""Working memory as others came to use it: what they should not be able to do, and where they were left waiting."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from commonplace import BadInput, Book, Claim, Conflict, Denied, Fenced, Work
from commonplace.work.candidates import Candidate
from tests.works import taken


@pytest.mark.spec("5.8")
@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"blocks": ["other"]}, "blocks"),
        ({"assigned_to": "dev-2"}, "assigned_to"),
        ({"on_failure": "abort"}, "on_failure"),
        ({"on_failure": {"policy": "retry", "then": "abort"}}, "on_failure"),
        ({"priority": 6}, "higher priority"),
    ],
)
def test_who_splits_its_task_rules_over_nothing_else(
    book: Book, work: Work, fields: dict[str, object], told: str
) -> None:
    work.add_task("other", id="other")
    task = work.add_task("mine", priority=5)
    claim = book.as_actor("dev-1", role="developer").work(id=work.id).claim(task=task)
    assert claim is not None
    with pytest.raises(Denied, match=told):
        claim.split([{"title": "a part", **fields}])
    assert work.task(task).info().status == "in_progress"
    assert len(work.tasks()) == 2
    assert claim.split([{"title": "a part", "priority": 5}]).waits == 1


@pytest.mark.spec("5.8")
def test_who_may_orchestrate_splits_as_it_likes(book: Book, work: Work) -> None:
    work.add_task("mine")
    leads = book.as_actor("lead", role="orchestrator").work(id=work.id).claim()
    assert leads is not None
    leads.split([{"title": "a part", "assigned_to": "dev-2", "priority": 9, "on_failure": "abort"}])
    owned = taken(work, "dev-2")
    assert owned.task.title == "a part"
    owned.split([{"title": "a smaller part", "priority": 10}])


@pytest.mark.spec("5.2")
def test_nothing_waits_for_what_was_cancelled(work: Work) -> None:
    gone, waived, other = work.add_task("gone"), work.add_task("waived"), work.add_task("other")
    work.task(gone).cancel(reason="not needed")
    work.task(waived).cancel(reason="not needed", dependents="free")
    with pytest.raises(Conflict, match=f"{gone.id}.*cancelled"):
        work.add_task("after", depends_on=[gone])
    with pytest.raises(Conflict, match=f"{gone.id}.*cancelled"):
        work.task(other).add_dependencies(on=[gone])
    claim = taken(work)
    with pytest.raises(Conflict, match="cancelled"):
        claim.block(on=[gone])
    assert work.add_task("after", depends_on=[waived]).waits == 0


@pytest.mark.spec("5.2")
def test_what_is_unblocked_waits_no_longer_for_what_was_cancelled(work: Work) -> None:
    gone, kept = work.add_task("gone"), work.add_task("kept")
    task = work.add_task("it", depends_on=[gone, kept])
    work.task(gone).cancel(reason="not needed")
    assert work.task(task).info().status == "blocked"
    after = work.task(task).unblock()
    assert (after.status, after.waits, after.depends_on) == ("pending", 1, (kept.id,))
    taken(work).complete()
    assert taken(work).task.id == task.id


@pytest.mark.spec("5.4")
def test_whom_somebody_names_may_try_again(work: Work) -> None:
    task = work.add_task("it", on_failure={"policy": "reassign", "backoff": 0})
    taken(work).fail("could not")
    assert work.claim("dev-1") is None
    assert work.task(task).assign("dev-1").avoid == ()
    assert taken(work).task.id == task.id


@pytest.mark.spec("5.8")
def test_in_a_private_work_tasks_go_to_its_members(book: Book) -> None:
    work = book.work(name="private", members=["dev-1", "dev-2"])
    task = work.add_task("it", needs_review=True)
    with pytest.raises(BadInput, match="dev-1, dev-2"):
        work.task(task).assign("eve")
    with pytest.raises(BadInput, match="may not know"):
        work.add_task("another", assigned_to="eve")
    work.task(task).assign("dev-1")
    taken(work).complete()
    with pytest.raises(BadInput, match="may not know"):
        work.task(task).assign_review("eve")
    assert work.task(task).assign_review("dev-2").reviewer == "dev-2"


@pytest.mark.spec("5.1")
def test_limits_that_are_not_named_stay(work: Work) -> None:
    work.manage.change(limits={"max_tasks": 3}, backend="sqlite")
    info = work.manage.change(limits={"max_agents": 2}, save_interval=5)
    assert (info.limits.max_tasks, info.limits.max_agents) == (3, 2)
    assert info.settings == {"backend": "sqlite", "save_interval": 5}
    assert (
        info.advice
        == "backend, save_interval: kept, but without effect, because every change is saved at once"
    )
    with pytest.raises(BadInput, match="at least 1"):
        work.manage.change(limits={"max_agents": 0})


@pytest.mark.spec("5.5")
def test_nobody_is_asked_about_a_task_that_was_cancelled(work: Work) -> None:
    task = work.add_task("drop the table", risk="data is lost")
    asked = work.approvals.request("another thing", task=task)
    raised = work.escalate("which table?", task=task)
    other = work.escalate("something else")
    work.task(task).cancel(reason="we keep it")
    inbox = work.inbox()
    assert inbox.approvals == ()
    assert [one.id for one in inbox.escalations] == [other.id]
    assert {one.status for one in work.records("approval")} == {"cancelled"}
    settled = next(one for one in work.records("escalation") if one.id == raised.id)
    assert (settled.status, settled.answer) == ("resolved", "the task was cancelled: we keep it")
    with pytest.raises(Conflict, match="cancelled"):
        work.approvals.grant(asked)


@pytest.mark.spec("5.4")
def test_what_is_tried_again_by_hand_begins_anew(work: Work) -> None:
    task = work.add_task("it", on_failure={"policy": "retry", "retries": 1, "backoff": 0})
    for _ in range(2):
        taken(work).fail("could not")
    assert len(work.inbox().escalations) == 1
    assert work.task(task).retry().failures == 0
    assert work.inbox().escalations == ()
    taken(work).fail("could not")
    assert work.task(task).info().status == "pending"


@pytest.mark.spec("5.7")
def test_a_task_is_found_by_its_new_title(work: Work) -> None:
    task = work.add_task("something vague")
    work.task(task).edit(title="Write the migration of the tokens table")
    other = work.add_task("Write the migration of the tokens table")
    assert [one.id for one in work.task(other).radar()] == [task.id]


@pytest.mark.spec("5.5")
def test_who_approves_what_was_asked_about_a_decision_approves_the_decision(work: Work) -> None:
    for yes, status in ((True, "approved"), (False, "rejected")):
        decision = work.decide(question="which?", choice="this one")
        asked = work.approvals.request("go with it", decision=decision)
        (work.approvals.grant if yes else work.approvals.refuse)(asked, by="kim")
        (found,) = (one for one in work.records("decision") if one.id == decision.id)
        assert (found.status, found.answered_by) == (status, "kim")


SECRET = "ghp_" + "a1B2" * 9


@pytest.mark.spec("5.6", "L10")
def test_a_discarded_work_says_no_path_and_nothing_ever_said_a_secret(
    book: Book, work: Work, tmp_path: Path
) -> None:
    first, second = work.add_task("one"), work.add_task("two")
    branch = work.branch("which?", {f"with {SECRET}": [first], "without": [second]})
    work.choose(branch, f"with {SECRET}", rationale="so be it")
    work.manage.change(path=f"/srv/{SECRET}")
    claim = taken(work)
    secret = claim.artifact(f"out/{SECRET}.txt", content="1", commit=SECRET, branch=SECRET)
    assert secret.path.startswith("out/")
    made = [claim.artifact("plans/quince.txt", content=text) for text in ("1", "2")]
    assert [(one.path, one.version) for one in made] == [("plans/quince.txt", 1), ("plans/quince.txt", 2)]
    assert not any(SECRET in str(event.payload) for event in book.events())
    assert [one.id for one in book.search("quince").results]
    claim.complete()
    work.manage.complete()
    work.manage.discard(confirm="DISCARD")
    assert not any("quince" in str(event.payload) for event in book.events())
    assert work.records("artifact") == []
    work.manage.resume()
    assert work.artifact("plans/quince.txt", content="3").version == 3


@pytest.mark.spec("5.1")
def test_options_that_differ_only_by_secrets_are_refused(work: Work) -> None:
    first, second = work.add_task("one"), work.add_task("two")
    with pytest.raises(BadInput, match="name them otherwise"):
        work.branch("which?", {f"with {SECRET}": [first], f"with {SECRET[:-4]}ZZZZ": [second]})


@pytest.mark.spec("5.6")
def test_what_is_completed_with_paths_records_the_files(work: Work, tmp_path: Path) -> None:
    file = tmp_path / "made.txt"
    file.write_text("it is made")
    work.add_task("it")
    claim = taken(work)
    early = claim.artifact("early.txt", content="early")
    done = claim.complete("done", artifacts=[early, str(file), tmp_path / "nowhere.txt"])
    assert claim.complete("done", artifacts=[early, str(file), tmp_path / "nowhere.txt"]) == done
    with pytest.raises(Fenced):
        claim.complete("done", artifacts=[early, str(file)])
    _, stored, named = work.records("artifact")
    assert (stored.path, stored.size, work.content(stored)) == (str(file), 10, b"it is made")
    assert stored.checksum == f"sha256:{sha256(b'it is made').hexdigest()}"
    assert (named.checksum, named.blob) == (None, None)
    assert done.result is not None
    assert done.result.artifacts == (early.id, stored.id, named.id)


def pattern_of(work: Work) -> Candidate:
    for number in range(3):
        work.add_task(f"task {number}", needs_review=number == 0)
        claim = taken(work)
        claim.complete("done", learnings=["read the quince manual first"])
        if number == 0:
            work.review(claim.task, "approved", by="dev-2")
    return next(one for one in work.candidates() if one.kind == "pattern" and "quince" in one.text)


@pytest.mark.spec("5.9", "L10")
def test_a_promoted_pattern_goes_with_the_work_that_it_comes_from(book: Book, work: Work) -> None:
    book.memory.set_core("auth", name="Auth")
    kept = work.promote(pattern_of(work), core="auth")
    assert kept.item_id is not None
    assert kept.outcome == "stored"
    seen = book.as_actor("eve", role="developer").search("quince manual").results
    assert kept.item_id in [one.id for one in seen]
    work.manage.complete()
    work.manage.discard(confirm="DISCARD")
    assert not any("quince" in str(event.payload) for event in book.events())
    assert book.search("quince manual").results == ()


@pytest.mark.spec("5.9", "5.8")
def test_what_a_private_work_teaches_is_shared_only_when_somebody_says_so(book: Book) -> None:
    book.memory.set_core("auth", name="Auth")
    book.memory.set_core("own", name="Own", visibility="private")
    work = book.work(name="private", members=["dev-1", "dev-2"])
    candidate, eve = pattern_of(work), book.as_actor("eve", role="developer")
    with pytest.raises(Conflict, match="shared=True"):
        work.promote(candidate, core="auth")
    assert eve.search("quince manual").results == ()
    kept = work.promote(candidate, core="auth", shared=True)
    assert kept.item_id in [one.id for one in eve.search("quince manual").results]
    claim = taken_of(work)
    insight = claim.discover("the medlar ripens late")
    assert work.promote(insight.id, core="own").outcome == "stored"
    assert eve.search("medlar").results == ()


def taken_of(work: Work) -> Claim:
    work.add_task("another")
    return taken(work)


@pytest.mark.spec("5.1")
def test_settings_without_effect_are_never_taken_in_silence(
    book: Book, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("WARNING", "commonplace"):
        assert book.work(name="plain", auto_archive_hours=3).info().advice == ""
        assert caplog.text == ""
        work = book.work(name="other", saveInterval=500, path=".working-memory/")
        assert "path, save_interval: kept, but without effect" in caplog.text
        assert str(work.info()).endswith(work.info().advice)
        caplog.clear()
        work.manage.change(backend="file")
        assert "backend" in caplog.text
