"""Whom tasks are for: an agent, a role or anybody; and what is left of a claim whose holder is not heard of."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from commonplace import BadInput, Book, Claim, Conflict, Denied, Fenced, Task, Work
from tests.shells import Cli
from tests.works import lost, taken


@pytest.fixture
def team(book: Book) -> dict[str, str]:
    roles = {"dev-1": "developer", "dev-2": "developer", "qa-1": "qa"}
    for agent, role in roles.items():
        book.as_actor(agent, role=role)
    return roles


def whose(task: Task) -> tuple[str, str | None, str | None, str | None]:
    return task.status, task.for_role, task.for_agent, task.assigned_to


# a role


@pytest.mark.spec("5.3")
def test_a_roles_task_goes_to_agents_of_that_role_and_to_the_next_one_after_a_crash(
    work: Work, team: dict[str, str]
) -> None:
    task = work.add_task("Build the token service", for_role="developer", priority=5)
    anybodys = work.add_task("Write the changelog")
    assert taken(work, "qa-1").task.id == anybodys.id
    assert work.claim("qa-1") is None
    assert work.claim("stranger") is None
    first = taken(work, "dev-1")
    assert whose(first.task) == ("in_progress", "developer", None, "dev-1")
    lost(first)
    assert whose(work.ready()[0]) == ("pending", "developer", None, None)
    assert work.ready("qa-1") == work.ready("stranger") == []
    assert [one.id for one in work.ready("dev-2")] == [task.id]
    assert work.claim("qa-1") is None
    assert taken(work, "dev-2").complete("done").for_role == "developer"


@pytest.mark.spec("5.3", "L5")
def test_who_asks_for_a_task_of_another_role_is_told_so(work: Work, team: dict[str, str]) -> None:
    task = work.add_task("Test the token service", for_role="qa")
    with pytest.raises(Conflict, match="for the role 'qa', which 'dev-1' does not have"):
        work.claim("dev-1", task=task)
    with pytest.raises(BadInput, match="'tester' is no role: give one of orchestrator, developer, qa"):
        work.add_task("Test more", for_role="tester")
    assert taken(work, "qa-1", task=task).task.for_role == "qa"


@pytest.mark.spec("5.3")
def test_an_actor_claims_by_its_own_role_as_of_now(book: Book, work: Work) -> None:
    work.add_task("Test it", for_role="qa")
    ada = book.as_actor("ada", role="developer").work(id=work.id)
    assert ada.claim() is None
    book.access.grant("ada", role="qa")
    claim = ada.claim()
    assert claim is not None
    assert claim.task.title == "Test it"


@pytest.mark.spec("5.3", "L7")
def test_what_was_ready_for_an_agent_follows_the_role_that_it_had_then(book: Book, work: Work) -> None:
    book.as_actor("ada", role="developer")
    task = work.add_task("Test it", for_role="qa")
    then = book.head
    book.access.grant("ada", role="qa")
    assert work.ready("ada", at=then) == []
    assert [one.id for one in work.ready("ada", at=book.head)] == [task.id]


@pytest.mark.spec("5.3")
def test_the_role_is_changed_by_whoever_plans_alone(book: Book, work: Work, team: dict[str, str]) -> None:
    (task,) = work.add_tasks([{"title": "Test it", "for_role": "qa"}])
    work.task(task).edit(for_role="developer")
    assert work.claim("qa-1") is None
    claim = book.as_actor("dev-1").work(id=work.id).claim()
    assert claim is not None
    with pytest.raises(Denied, match="for_role"):
        claim.split([{"title": "a part", "for_role": "qa"}])
    claim.split(["one part", {"title": "another part", "for_role": "developer"}])
    assert {one.for_role for one in work.tasks()} == {"developer"}
    assert len(work.ready("dev-2")) == 2
    assert work.task(work.ready()[0]).edit(for_role=None).for_role is None
    assert len(work.ready("qa-1")) == 1


@pytest.mark.spec("5.7", "5.6")
def test_a_roles_task_is_on_the_board_and_comes_to_whoever_leads(work: Work, team: dict[str, str]) -> None:
    task = work.add_task("Test it", for_role="qa")
    assert [one.id for one in work.board().tasks["ready"]] == [task.id]
    with work.lead("chief") as lead:
        step = lead.next()
        assert step is not None
        assert (step.kind, step.task) == ("ready", task)


# an agent


GIVE_BACK: dict[str, Callable[[Work, Claim], object]] = {
    "dies": lambda _work, claim: lost(claim),
    "releases it": lambda _work, claim: claim.release("lunch"),
    "fails and it is retried": lambda _work, claim: claim.fail("no network"),
    "waits for another task": lambda work, claim: (
        claim.block(on=[work.add_task("before", id="before")]),
        taken(work, "dev-2", task="before").complete(),
    ),
    "is stopped by whoever plans": lambda work, claim: (
        work.task(claim.task).block("the vendor"), work.task(claim.task).unblock()
    ),
}  # fmt: skip


@pytest.mark.spec("5.3")
@pytest.mark.parametrize("how", GIVE_BACK)
def test_an_assigned_task_stays_its_agents_whatever_becomes_of_a_claim(work: Work, how: str) -> None:
    task = work.add_task("It", assigned_to="dev-1", on_failure={"policy": "retry", "backoff": 0})
    GIVE_BACK[how](work, taken(work, "dev-1"))
    assert work.claim("dev-2") is None
    assert [whose(one) for one in work.ready()] == [("assigned", None, "dev-1", "dev-1")]
    assert taken(work, "dev-1").task.id == task.id


@pytest.mark.spec("5.3")
def test_a_task_that_nobody_was_given_is_anybodys_after_a_crash(work: Work) -> None:
    task = work.add_task("It")
    lost(taken(work, "dev-1"))
    assert taken(work, "dev-2", task=task).task.for_agent is None


@pytest.mark.spec("5.3")
def test_an_assignment_ends_by_whoever_plans_or_by_the_policy_reassign(
    work: Work, team: dict[str, str]
) -> None:
    task = work.add_task(
        "It", for_role="qa", assigned_to="dev-1", on_failure={"policy": "reassign", "backoff": 0}
    )
    assert work.claim("qa-1") is None
    lost(taken(work, "dev-1"))
    assert whose(work.ready()[0]) == ("assigned", "qa", "dev-1", "dev-1")
    assert whose(work.task(task).assign("dev-2")) == ("assigned", "qa", "dev-2", "dev-2")
    assert whose(work.task(task).unassign()) == ("pending", "qa", None, None)
    work.task(task).assign("dev-2")
    taken(work, "dev-2").fail("I cannot")
    assert whose(work.task(task).info()) == ("pending", "qa", None, None)
    assert work.claim("dev-2") is None
    assert taken(work, "qa-1").task.id == task.id


@pytest.mark.spec("5.3", "L1")
def test_whom_tasks_are_for_is_rebuilt_from_the_ledger(book: Book, work: Work, team: dict[str, str]) -> None:
    work.add_task("One", for_role="qa")
    work.add_task("Two", assigned_to="dev-1")
    lost(taken(work, "dev-1"))
    before = (work.ready(), work.ready("qa-1"), work.ready("dev-1"))
    book.rebuild()
    assert (work.ready(), work.ready("qa-1"), work.ready("dev-1")) == before


HOLDS = """
import sys, commonplace
book = commonplace.open(sys.argv[1])
for agent in sys.argv[2:]:
    assert book.work(id="auth").claim(agent, lease=0.5)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.spec("5.3", "5.7", "5.8")
@pytest.mark.parametrize("engine_name", ["files", "sqlite", "postgres", "redis"], indirect=True)
def test_a_process_that_is_killed_leaves_its_tasks_to_whom_they_are_for(
    book: Book, work: Work, team: dict[str, str], book_url: str
) -> None:
    assigned = work.add_task("Hers", assigned_to="dev-1", priority=1)
    roles = work.add_task("Test it", for_role="qa")
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, book_url, "dev-1", "qa-1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        os.kill(process.pid, signal.SIGKILL)
    book.as_actor("qa-2", role="qa")
    deadline = time.monotonic() + 60
    while len(work.ready()) < 2:  # their leases run out on the engine's clock
        assert time.monotonic() < deadline
    assert work.claim("dev-2") is None
    assert taken(work, "qa-2").task.id == roles.id
    assert taken(work, "dev-1").task.id == assigned.id


@pytest.mark.spec("5.3", "7.2")
def test_roles_in_the_shell(cli: Cli) -> None:
    def ask(*args: object) -> Any:
        ran = cli(*args, "--json")
        assert (ran.code, ran.err) == (0, ""), ran
        return ran.json

    ask("init")
    ask("access", "grant", "dev-1", "--role", "developer")
    ask("access", "grant", "qa-1", "--role", "qa")
    ask("work", "new", "auth", "--id", "auth")
    assert ask("task", "add", "auth", "Test it", "--for-role", "qa", "--id", "t")["for_role"] == "qa"
    assert "any qa" in cli("task", "list", "auth").out
    assert "any qa" in cli("work", "show", "auth").out
    assert ask("task", "claim", "auth", "--as", "dev-1")["task"] is None
    claimed = ask("task", "claim", "auth", "--as", "qa-1")
    ask("task", "release", "t", claimed["token"], "--as", "qa-1")
    assert ask("task", "edit", "t", "for_role=developer")["for_role"] == "developer"
    assert ask("task", "claim", "auth", "--as", "dev-1")["task"]["id"] == "t"
    refused = cli("task", "add", "auth", "More", "--for-role", "boss")
    assert (refused.code, "no role" in refused.err) == (1, True)


# a lease that has run out


WRITES: dict[str, Callable[[Claim], object]] = {
    "complete": lambda claim: claim.complete("late"),
    "complete_many": lambda claim: claim.work.complete_many([claim]),
    "next": lambda claim: claim.next("late"),
    "fail": lambda claim: claim.fail("late"),
    "release": lambda claim: claim.release(),
    "block": lambda claim: claim.block("late"),
    "split": lambda claim: claim.split(["late"]),
    "artifact": lambda claim: claim.artifact("late.txt", content="late"),
    "heartbeat": lambda claim: claim.heartbeat(),
}


@pytest.mark.spec("5.3")
@pytest.mark.parametrize("others", [0, 3])
def test_a_late_holder_is_refused_whatever_others_did_meanwhile(book: Book, work: Work, others: int) -> None:
    task = work.add_task("It", priority=9)
    late = taken(work, "dev-1")
    work.add_tasks([{"title": f"Another {n}"} for n in range(others)])
    if others:
        taken(work, "dev-2")  # who has something to do need not look after the dead
    lost(late)
    head = book.head
    for name, write in WRITES.items():
        with pytest.raises(Fenced, match="run out") as refused:
            write(late)
        assert "claim again" in str(refused.value), name
    assert book.head == head
    assert work.task(task).info(at=head).status == "in_progress"
    assert taken(work, "dev-2", task=task).complete("in time").status == "completed"


@pytest.mark.spec("5.3")
def test_what_was_completed_in_time_is_answered_again_later(work: Work) -> None:
    work.add_tasks([{"title": "One"}, {"title": "Two"}])
    first, second = work.claim_many(2, "dev-1")
    done = first.complete("done")
    lost(second)
    assert first.complete("done") == done
    with pytest.raises(Fenced):
        work.complete_many([first, second], "done")
    assert work.complete_many([first], "done") == [done]


@pytest.mark.spec("5.3", "5.4")
@pytest.mark.parametrize("speaker", ["the owner", "the agent"])
def test_what_a_late_holder_decides_or_finds_is_refused(book: Book, work: Work, speaker: str) -> None:
    work.add_task("Make the schema", id="t")
    works = work if speaker == "the owner" else book.as_actor("dev-1", role="developer").work("auth")
    late = taken(works, "dev-1")
    late.discover("the old schema has no keys")
    late.decide(question="Which keys?", choice="uuids")
    lost(late)
    after = taken(work, "dev-2")
    head = book.head
    for says in (
        lambda: late.discover("the new schema has no keys"),
        lambda: late.decide(question="Which keys?", choice="numbers"),
        lambda: late.artifact("schema.sql", content="create table a"),
    ):
        with pytest.raises(Fenced, match="no longer in force; it is in_progress with 'dev-2' now"):
            says()
    assert book.head == head
    assert [one.text for one in work.records("discovery", task="t")] == ["the old schema has no keys"]
    assert [one.choice for one in work.records("decision", task="t")] == ["uuids"]
    assert after.discover("the new schema has keys").task == "t"


@pytest.mark.spec("5.3", "L5")
@pytest.mark.parametrize("role", [["qa"], {"qa": 1}, {"qa"}, 5, True])
def test_a_role_that_is_no_word_is_refused(work: Work, role: Any) -> None:
    with pytest.raises(BadInput, match="is no role: give one of orchestrator, developer, qa"):
        work.add_task("Test it", for_role=role)
    task = work.add_task("Test it")
    with pytest.raises(BadInput, match="is no role"):
        work.task(task).edit(for_role=role)
