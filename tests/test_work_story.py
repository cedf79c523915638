"""Authentication for the API: an orchestrator, a developer, a qa agent and a person share one work, each in a process
of its own, and know of each other only what the book tells them."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

import commonplace
from commonplace import Actor, Claim, Event, Work
from commonplace.testing.servers import Server

LONG = 120.0
"""Seconds to wait for another process before something must be wrong."""
TABLE = "CREATE TABLE tokens (id TEXT PRIMARY KEY, user_id TEXT NOT NULL, expires_at INTEGER NOT NULL);\n"


@pytest.fixture(params=["sqlite", "postgres"])
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A book that several processes open."""
    if request.param == "sqlite":
        yield str(tmp_path / "team.db")
        return
    from commonplace.engines.postgres import PostgresEngine

    server: Server = request.getfixturevalue("postgres")
    name = f"story-{uuid.uuid4().hex[:12]}"
    yield f"{server.url}{'&' if '?' in server.url else '?'}book={name}"
    engine = PostgresEngine(server.url)
    engine.drop(name)
    engine.close()


def begun(me: Actor) -> Work:
    """The work, as soon as somebody has begun it."""
    for event in me.watch(after=0, timeout=LONG):
        if event.kind == "work.created":
            return me.work(id="auth")
    raise TimeoutError("nobody has begun the work")


def until(work: Work, so: Callable[[Event], bool]) -> Event:
    """The first event of the work that is so, whenever it comes."""
    for event in work.watch(after=0, timeout=LONG):
        if so(event):
            return event
    raise TimeoutError("it has not happened")


def titled(work: Work, title: str) -> str:
    return next(one.id for one in work.tasks() if one.title == title)


# the four


def orchestrator(url: str, pattern: str) -> int:
    """Begins the work with the tasks of a pattern, gives them out, and has the design reviewed."""
    with commonplace.open(url) as book:
        work = book.as_actor("chief").work(
            id="auth", name="Auth", goal="Build auth system for the API", constraints=["No breaking changes"],
            cores=["auth-jwt", "acme-app"], pattern=pattern,
        )  # fmt: skip
        design = titled(work, "Design token schema")
        with work.lead(lease=LONG) as lead:
            lead.task(design).assign("dev")
            until(work, lambda event: event.kind == "task.submitted")
            assert [one.id for one in lead.tasks("review")] == [design]
            lead.task(design).assign_review("qa")
            while not all(one.final for one in work.tasks()):
                step = lead.next()
                if step is None:
                    lead.wait()
                    continue
                if step.kind == "ready":
                    lead.task(step.task).assign("dev")
                lead.handled(step)
            lead.manage.complete("designed, built and tested")
    return os.getpid()


def developer(url: str) -> int:
    """Designs the schema, is told to do it otherwise, does, and goes on with what follows."""
    with commonplace.open(url) as book:
        work = begun(book.as_actor("dev"))
        until(work, lambda event: event.kind == "task.assigned")
        claim = work.claim(lease=LONG)
        assert claim is not None
        context = claim.context()
        assert "Build auth system for the API" in context.text
        assert "Tokens are signed with RS256" in context.text  # the cores know
        found = claim.discover("User table has no refresh_token column", type="constraint")
        first = claim.decide(
            question="Where do refresh tokens live?", choice="Add migration to add column",
            alternatives=["A table of their own"], rationale=f"Simple: {found.text}",
        )  # fmt: skip
        nudge = told(claim)
        claim.decide(
            question=first.question, choice="A separate token table", alternatives=[first.choice],
            rationale=f"{nudge.by} said: {nudge.text}", reverses=first,
        )  # fmt: skip
        work.acknowledge(nudge)
        claim.artifact("schema/tokens.sql", type="schema", content=TABLE, description="the token table")
        done = claim.complete("a table of its own for tokens", next_steps=["build the service"])
        assert done.status == "review"
        for event in work.watch(after=done.position, timeout=LONG):
            if event.kind == "task.assigned":
                following = work.claim(task=event.payload["task_id"], lease=LONG)
                assert following is not None
                following.complete(f"{following.task.title}: done")
            elif event.kind == "work.changed":
                break
        assert work.info().status == "completed"
    return os.getpid()


def told(claim: Claim) -> Any:
    """What it is told, in the first turn in which there is something."""
    seen = 0
    while not (nudges := claim.nudges()):
        seen = next(claim.work.watch(after=seen, timeout=LONG)).position
    return nudges[0]


def qa(url: str) -> int:
    """Reviews what it was given to review."""
    with commonplace.open(url) as book:
        work = begun(book.as_actor("qa"))
        until(work, lambda _: any(one.reviewer == "qa" for one in work.tasks("review", reviewer="qa")))
        (task,) = work.tasks("review", reviewer="qa")
        (made,) = work.records("artifact", task=task)
        assert work.content(made) == TABLE.encode()
        work.review(task, "approved", comments="The user table is left alone")
    return os.getpid()


def person(url: str) -> int:
    """Does not like a decision, and says so."""
    with commonplace.open(url) as book:
        work = begun(book.as_actor("kim"))
        made = until(work, lambda event: event.kind == "work.decided")
        assert made.payload["said"]["choice"] == "Add migration to add column"
        work.nudge("Don't modify user table, use separate token table", target="dev", priority="high")
    return os.getpid()


# what the ledger then says


def witness(url: str) -> dict[str, Any]:
    """Somebody who was not there reads the book."""
    with commonplace.open(url) as book:
        work = book.work(id="auth")
        design = titled(work, "Design token schema")
        started = next(event for event in book.events(kinds=["task.claimed"])).position
        events = [event for event in book.events() if event.payload.get("work") == "auth"]
        return {
            "process": os.getpid(),
            "whole": book.verify().ok,
            "about": work.info(),
            "design": work.task(design).info(),
            "then": work.task(design).info(at=started),
            "story": [(event.kind, event.actor) for event in events],
            "order": [event.payload["task_id"] for event in events if event.kind == "task.completed"],
            "tasks": {one.title: one for one in work.tasks()},
            "decisions": work.records("decision"),
            "discoveries": work.records("discovery"),
            "artifacts": work.records("artifact"),
            "content": work.content(work.records("artifact")[0]),
            "nudges": work.records("nudge"),
            "contributions": {one.agent: one for one in work.contributions()},
            "context": work.context_for(titled(work, "Build token service")).text,
        }


@pytest.mark.spec("5.1", "5.2", "5.3", "5.4", "5.5", "5.6", "5.7", "5.8")
def test_four_processes_build_authentication_and_a_fifth_reads_how(shared_url: str) -> None:
    with commonplace.open(shared_url) as book:
        for agent, role in (("chief", "orchestrator"), ("dev", "developer"), ("qa", "qa"), ("kim", "person")):
            book.access.grant(agent, role=role)
        for core in ("auth-jwt", "acme-app"):
            book.memory.set_core(core, name=core)
        book.remember(
            "Tokens are signed with RS256.", core="auth-jwt", type="convention", override="a convention"
        )
        plan: list[dict[str, Any]] = [
            {"title": "Design token schema", "needs_review": True},
            {"title": "Build token service", "depends_on": ["Design token schema"]},
            {"title": "Write token tests", "depends_on": ["Build token service"]},
        ]
        pattern = book.remember(
            "Authentication is added in three steps.", core="auth-jwt", type="pattern",
            tasks=plan, override="a pattern",
        ).item_id or ""  # fmt: skip
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as four:
        parts = [four.submit(orchestrator, shared_url, pattern)]
        parts += [four.submit(play, shared_url) for play in (developer, qa, person)]
        processes = {part.result(timeout=2 * LONG) for part in parts}
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fifth:
        said = fifth.submit(witness, shared_url).result(timeout=LONG)
    assert len({*processes, said["process"], os.getpid()}) == 6
    assert said["whole"]

    # what became of it
    assert (said["about"].status, said["about"].by) == ("completed", "chief")
    assert said["about"].cores == ("auth-jwt", "acme-app")
    assert [(one.title, one.status, one.assigned_to) for one in said["tasks"].values()] == [
        ("Design token schema", "completed", "dev"),
        ("Build token service", "completed", "dev"),
        ("Write token tests", "completed", "dev"),
    ]
    assert said["order"] == [one.id for one in said["tasks"].values()]
    design = said["design"]
    assert (design.reviewed_by, design.review_status) == ("qa", "approved")
    assert design.comments == ("The user table is left alone",)
    assert design.result.next_steps == ("build the service",)
    assert (said["then"].status, said["then"].assigned_to) == ("in_progress", "dev")

    # how it came to it
    first, second = said["decisions"]
    assert (first.choice, first.reversed_by) == ("Add migration to add column", second.id)
    assert (second.choice, second.reverses, second.reversed_by) == ("A separate token table", first.id, None)
    assert second.rationale == "kim said: Don't modify user table, use separate token table"
    (constraint,) = said["discoveries"]
    assert (constraint.type, constraint.by, constraint.affects) == ("constraint", "dev", (design.id,))
    (nudge,) = said["nudges"]
    assert (nudge.by, nudge.target, nudge.acknowledged) == ("kim", "dev", ("dev",))
    (made,) = said["artifacts"]
    assert (made.path, made.version, made.task, made.by) == ("schema/tokens.sql", 1, design.id, "dev")
    assert said["content"].decode() == TABLE
    told_of = [
        ("task.assigned", "chief"), ("task.claimed", "dev"), ("work.discovered", "dev"), ("work.decided", "dev"),
        ("work.nudged", "kim"), ("work.delivered", "dev"), ("work.decided", "dev"), ("work.produced", "dev"),
        ("task.submitted", "dev"), ("task.reviewed", "chief"), ("task.reviewed", "qa"), ("task.completed", "qa"),
        ("task.assigned", "chief"), ("task.claimed", "dev"), ("task.completed", "dev"),
    ]  # fmt: skip
    story = iter(said["story"])
    assert [one for one in told_of if one not in story] == []  # in this order, with others in between
    assert said["story"].count(("task.completed", "dev")) == 2
    assert said["story"].count(("work.delivered", "dev")) == 1

    # who did what, and what the next one was told
    assert len(said["contributions"]["dev"].tasks) == 3
    assert said["contributions"]["qa"].reviews == (design.id,)
    assert "A separate token table" in said["context"]
    assert "Add migration" not in said["context"]
    assert "schema/tokens.sql" in said["context"]
