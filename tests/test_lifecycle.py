"""The lifecycle of a task: what each of its five moments reads and writes, and what a kill leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from faults.places import Worker

import commonplace
from commonplace import BadInput, Book, Conflict, Denied, NotFound
from commonplace.documents.document import WRITTEN
from tests.lifecycle_story import (
    FACT,
    LAST,
    LATER_FACT,
    STEPS,
    TASK,
    carry_on,
    carry_on_and_die,
    result,
    steps,
)
from tests.shells import COMMAND, Cli, in_process

LOGIN = "Add login"
NOTES = "- Objective: Add login (phase: plan)\n- Blockers: the test server is down\n- Pending: ask for keys"


@pytest.fixture
def local() -> Iterator[Book]:
    with commonplace.open("memory:") as book:
        yield book


def written(book: Book) -> int:
    """How many entries were written, changed or cleared."""
    return len([*book.events(kinds=[WRITTEN, "memory.item.created", "memory.item.updated"])])


@pytest.mark.spec("6.9", "3.2")
def test_each_moment_reads_and_writes_what_the_table_says(book: Book, tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "checkout.toml").write_text("currency = 'EUR'\n")
    book._session.services.repository = tmp_path  # the citation of the fact can be seen there
    ada = book.as_actor("ada", role="developer")
    ada.documents.write_notes(NOTES)

    began = ada.learn.context_start(LOGIN)
    assert (began.read, began.wrote) == (("NOTES.md",), ())
    assert "Add login (phase: plan)" in began.text

    started = ada.learn.phase_start(LOGIN, "build", note="begin with the router", facts=[FACT])
    assert [each.path for each in started.wrote] == ["memories/session/add-login-notes.md"]
    assert "Phase build started. begin with the router" in ada.documents.session(LOGIN)
    assert [(each.subject, each.promote) for each in started.promotion] == [(FACT["subject"], "yes")]
    assert [fact.key for fact in book.memory.list(repository=True)] == [FACT["subject"]]

    ended = ada.learn.phase_end(LOGIN, "build", report="The router answers.", next_phase="test")
    assert sorted(each.path for each in ended.wrote) == [
        "NOTES.md",
        "plans/artifacts/add-login/phase-build-report.md",
    ]
    assert "The router answers." in ada.documents.task(LOGIN)["phase-build-report.md"]
    assert ada.documents.notes() == (
        "- Objective: Add login (phase: build, complete; next: test)\n"
        "- Blockers: the test server is down\n- Pending: ask for keys\n"
    )

    again = ada.learn.phase_start(LOGIN, "test")
    assert again.read == ("plans/artifacts/add-login/phase-build-report.md",)
    assert "The router answers." in again.text

    done = ada.learn.task_complete(LOGIN, facts=[FACT], report="Login works.")
    assert [each.path for each in done.wrote] == ["plans/artifacts/add-login/completion.md"]
    assert len(book.memory.list(repository=True)) == 1  # it is known already
    waits = ada.learn.task_complete(LOGIN, facts=[LATER_FACT], report="Login works.").promotion[0]
    assert (waits.promote, waits.reason) == ("defer", "one source")  # nothing but ada says it
    assert [item.id for item in book.inbox().held] == [waits.item]
    assert [each.what for each in done.left_out] == ["NOTES.md"]

    left = ada.learn.conversation_end(LOGIN)
    assert [each.path for each in left.wrote] == ["memories/session/add-login-notes.md"]
    assert ada.documents.session(LOGIN) == ""
    ids = [each.id for report in (started, ended, done, left) for each in report.wrote]
    assert all(book.event(id).actor == "ada" for id in ids)


@pytest.mark.spec("6.9")
def test_context_start_lists_files_and_reads_a_body_only_on_request(local: Book) -> None:
    ada = local.as_actor("ada")
    ada.documents.add_to_task(LOGIN, "decisions", "We use HS256.\nThe key is 32 bytes long.")
    ada.documents.add_to_session("Other task", "half of it is done", "Key Results")
    everything = ada.learn.context_start()
    assert [each.path for each in everything.files] == [
        "memories/session/other-task-notes.md", "plans/artifacts/add-login/decisions.md",
    ]  # fmt: skip
    outline = everything.files[1]
    assert (outline.first_line, outline.chars) == (
        "We use HS256.",
        len(ada.documents.task(LOGIN)["decisions.md"]),
    )
    assert "32 bytes" not in str(everything)
    assert "half of it" not in ada.learn.context_start(LOGIN).text
    one = ada.learn.context_start(LOGIN, files=["decisions.md"])
    assert "32 bytes" in one.text
    assert one.read == ("plans/artifacts/add-login/decisions.md",)
    with pytest.raises(NotFound, match="decisions.md"):
        ada.learn.context_start(LOGIN, files=["decision.md"])
    assert written(local) == 2


@pytest.mark.spec("6.9", "L4")
def test_a_call_that_is_repeated_doubles_nothing_and_says_so(local: Book) -> None:
    ada = local.as_actor("ada")
    calls: list[Any] = [
        lambda: ada.learn.phase_start(LOGIN, 1, note="the router", facts=[FACT]),
        lambda: ada.learn.phase_end(LOGIN, 1, report="Done.", next_phase=2),
        lambda: ada.learn.task_complete(LOGIN, facts=[FACT]),
        lambda: ada.learn.conversation_end(LOGIN),
    ]
    for call in calls:
        call()
        there, told = written(local), call()
        assert written(local) == there
        assert told.wrote == ()
        assert told.left_out


@pytest.mark.spec("6.9")
def test_a_phase_that_is_done_again_leaves_a_second_report(local: Book) -> None:
    ada = local.as_actor("ada")
    for _ in range(2):
        assert ada.learn.phase_start(LOGIN, 1).wrote
        assert ada.learn.phase_end(LOGIN, 1, report="Done.").wrote
    assert len(ada.documents.get("plans/artifacts/add-login/phase-1-report.md")) == 2
    ada.learn.phase_start(LOGIN, 2)
    ada.learn.phase_start(LOGIN, 1)  # back, before the second has ended
    assert ada.learn.resume(LOGIN).phase == "1"


@pytest.mark.spec("6.9")
def test_a_late_repetition_does_not_take_the_notes_back(local: Book) -> None:
    ada = local.as_actor("ada")
    ada.learn.phase_end(LOGIN, 1, report="Done.", notes="- Objective: login, first half")
    ada.documents.write_notes("- Objective: login, second half")
    told = ada.learn.phase_end(LOGIN, 1, report="Done.", notes="- Objective: login, first half")
    assert "second half" in ada.documents.notes()
    assert ("NOTES.md", "it was written since this call was first made") in [
        (each.what, each.why) for each in told.left_out
    ]


@pytest.mark.spec("6.9")
def test_notes_of_another_shape_stay_and_what_may_not_stand_there_is_refused(local: Book) -> None:
    ada = local.as_actor("ada")
    ada.documents.write_notes("Everybody is on holiday.")
    told = ada.learn.phase_end(LOGIN, 1, report="Done.")
    assert ada.documents.notes() == "Everybody is on holiday.\n"
    assert [each.what for each in told.left_out] == ["NOTES.md"]
    before = written(local)
    with pytest.raises(BadInput, match="iteration"):
        ada.learn.phase_end(LOGIN, 2, report="Done.", notes="- Objective: login, iteration 3")
    with pytest.raises(BadInput, match="give notes"):
        ada.learn.phase_end(LOGIN, "iteration 3", report="Done.")
    with pytest.raises(BadInput, match="report"):
        ada.learn.phase_end(LOGIN, 2, report="  ")
    for phase in ("", "!!", "x" * 81, 1.5, True):
        with pytest.raises(BadInput, match="phase"):
            ada.learn.phase_start(LOGIN, phase)  # type: ignore[arg-type]
    assert written(local) == before  # the report is not there either: all or nothing


@pytest.mark.spec("6.9")
def test_the_objective_of_another_task_stays_until_that_is_over(local: Book) -> None:
    ada = local.as_actor("ada")
    roof = "- Objective: Fix the roof (phase: strip)\n- Blockers: no ladder"
    for notes in (
        roof,
        "- Objective: Plant the beds of the castle",
        "- Objective: Fix the roof\n- Blockers: no ladder",
    ):
        ada.documents.write_notes(notes)
        ada.learn.phase_start("Plant the beds", "dig")
        told = ada.learn.phase_end("Plant the beds", "dig", report="Dug.", next_phase="sow")
        assert ada.documents.notes() == f"{notes}\n"
        assert [each.what for each in told.left_out] == ["NOTES.md"]
        assert notes.splitlines()[0].removeprefix("- Objective: ") in told.left_out[0].why
        assert "give notes" in told.left_out[0].why
    assert [each.path for each in told.wrote] == ["plans/artifacts/plant-the-beds/phase-dig-report.md"]
    ada.learn.task_complete("Fix the roof")
    told = ada.learn.phase_end("Plant the beds", "sow", report="Sown.")
    assert ada.documents.notes() == (
        "- Objective: Plant the beds (phase: sow, complete)\n- Blockers: no ladder\n"
    )
    assert [(each.what, "which is over" in each.why) for each in told.left_out] == [
        ("blockers in NOTES.md", True)
    ]


@pytest.mark.spec("6.9", "4.3")
def test_an_objective_that_its_writer_may_not_see_is_not_told(local: Book) -> None:
    local.documents.write_notes("- Objective: rotate AKIAIOSFODNN7EXAMPLE")
    told = local.as_actor("ben").learn.phase_end("Plant the beds", "dig", report="Dug.")
    assert "may not read all of it" in told.left_out[0].why
    assert "rotate" not in str(told)


@pytest.mark.spec("6.9")
def test_empty_notes_get_the_objective_and_nothing_that_nobody_said(local: Book) -> None:
    ada = local.as_actor("ada")
    ada.learn.phase_end(LOGIN, "build", report="Done.", next_phase="test")
    assert ada.documents.notes() == "- Objective: Add login (phase: build, complete; next: test)\n"
    ada.documents.write_notes("# Objective\n- Add login\n\n# Blockers\n- the vault is down")
    ada.learn.phase_end(LOGIN, "test", report="Done.")
    assert ada.documents.notes() == (
        "# Objective\n- Objective: Add login (phase: test, complete)\n\n# Blockers\n- the vault is down\n"
    )


@pytest.mark.spec("6.9", "6.10")
def test_all_phases_under_way_are_named_and_a_mistyped_one_is_told(local: Book) -> None:
    ada = local.as_actor("ada")
    for phase in ("1 schema", "2 adapter"):
        ada.learn.phase_start(LOGIN, phase)
    known = ada.learn.resume(LOGIN)
    assert (known.phase, known.under_way) == ("2 adapter", ("1 schema", "2 adapter"))
    assert "started and not ended: 1 schema, 2 adapter" in known.text
    ada.learn.phase_end(LOGIN, "1 Schema", report="Done.")  # the same name, in another spelling
    assert ada.learn.resume(LOGIN).under_way == ("2 adapter",)
    told = ada.learn.phase_end(LOGIN, "2 adaptor", report="Done.")
    assert [(each.what, each.why) for each in told.left_out] == [
        ("phase '2 adapter'", "it is still under way; '2 adaptor', which ends, was not started")
    ]
    assert ada.learn.phase_end(LOGIN, "2 adapter", report="Done.").left_out == ()
    ada.learn.phase_start(LOGIN, "1 schema")
    ada.learn.phase_end(LOGIN, "1 schema", report="Done again.")
    assert ada.learn.resume(LOGIN).completed == ("2 adaptor", "2 adapter", "1 schema")


@pytest.mark.spec("6.9", "6.10", "6.12")
def test_the_phase_under_way_is_known_after_the_conversation(local: Book) -> None:
    ada, ben = local.as_actor("ada"), local.as_actor("ben")
    ada.learn.phase_start(LOGIN, 1)
    ada.learn.phase_end(LOGIN, 1, report="Done.")
    ada.learn.phase_start(LOGIN, 2, note="the lighthouse keeper has the keys")
    left = ada.learn.conversation_end(LOGIN)
    assert [each.path for each in left.wrote] == [
        "plans/artifacts/add-login/phases.md", "memories/session/add-login-notes.md",
    ]  # fmt: skip
    known = ben.learn.resume(LOGIN)
    assert (known.phase, known.completed) == ("2", ("1",))
    assert "started and not ended: 2" in known.text
    assert "while phase 2 was under way" in ben.documents.task(LOGIN)["phases.md"]
    assert "lighthouse" not in str([known.text, [event.payload for event in ben.events()]])
    assert ben.learn.conversation_end(LOGIN).wrote == ()
    ben.learn.phase_start(LOGIN, 2)
    ben.learn.conversation_end(LOGIN)
    assert ben.learn.resume(LOGIN).under_way == ("2",)
    ben.learn.phase_end(LOGIN, 2, report="Done.")
    assert ben.learn.resume(LOGIN).phase == ""
    ben.learn.phase_start(LOGIN, 3)
    ben.learn.task_complete(LOGIN)  # then nothing is under way
    assert [each.path for each in ben.learn.conversation_end(LOGIN).wrote] == [
        "memories/session/add-login-notes.md"
    ]


@pytest.mark.spec("6.9", "L4")
def test_a_phase_that_was_under_way_when_a_conversation_ended_has_a_report_of_its_own(local: Book) -> None:
    local.learn.phase_end(LOGIN, 1, report="Done.")
    local.learn.phase_start(LOGIN, 1)
    local.learn.conversation_end(LOGIN)
    assert local.learn.phase_end(LOGIN, 1, report="Done.").wrote
    assert local.learn.resume(LOGIN).completed == ("1",)


@pytest.mark.spec("6.9")
def test_a_task_that_nobody_knows_is_named_as_such(local: Book) -> None:
    ada = local.as_actor("ada")
    ada.learn.phase_start("Move house", 1)
    unknown = "nothing is written about Move hose (no folder, no session notes); the tasks are move-house"
    began = ada.learn.context_start("Move hose")
    assert unknown in began.text
    done = ada.learn.task_complete("Move hose")
    assert [each.path for each in done.wrote] == ["plans/artifacts/move-hose/completion.md"]
    assert [(each.what, each.why) for each in done.left_out] == [("the task", f"before this call: {unknown}")]
    assert "the task" not in [each.what for each in ada.learn.task_complete("Move house").left_out]


@pytest.mark.spec("6.9")
def test_a_long_name_of_a_phase_has_a_report(local: Book) -> None:
    names = ["a" * 79 + "b", "a" * 80, "ä" * 80, "Phase für Übergaben: " + "ü" * 59]
    for name in names:
        local.learn.phase_start(LOGIN, name)
        local.learn.phase_end(LOGIN, name, report="Done.")
    assert local.learn.resume(LOGIN).completed == tuple(names)
    assert len(local.documents.task(LOGIN)) == len(names)
    with pytest.raises(BadInput, match="up to 80 characters"):
        local.learn.phase_end(LOGIN, "x" * 300, report="Done.")


@pytest.mark.spec("6.8", "6.9")
def test_what_has_regressed_blocks_until_it_is_verified_or_somebody_gives_a_reason(book: Book) -> None:
    ada = book.as_actor("ada")
    ada.learn.verify_item(LOGIN, "login", description="POST /login answers 200", iteration=1)
    ada.learn.verify_item(LOGIN, "logout", iteration=1)
    ada.learn.verify_item(LOGIN, "login", holds=False, evidence="it answers 500", iteration=2)
    calls: list[Any] = [
        lambda: ada.learn.phase_end(LOGIN, 2, report="Done."),
        lambda: ada.learn.task_complete(LOGIN, facts=[FACT]),
    ]
    for call in calls:
        with pytest.raises(Conflict, match="login REGRESSED.*it answers 500.*despite") as error:
            call()
        assert "logout" not in str(error.value)
    assert list(ada.documents.task(LOGIN)) == ["verified_items.md"]
    assert len(book.memory.list(repository=True)) == 0
    ada.learn.phase_end(LOGIN, 2, report="Done.", despite="the fix is in review")
    report = ada.documents.task(LOGIN)["phase-2-report.md"]
    assert "Despite what has regressed: login\nReason to go on: the fix is in review" in report
    assert ada.learn.phase_end(LOGIN, 2, report="Done.").wrote == ()  # that phase has ended
    ada.learn.verify_item(LOGIN, "login", iteration=3)
    told = ada.learn.phase_end(LOGIN, 3, report="Fixed.", despite="no reason")
    assert "despite" in [each.what for each in told.left_out]
    assert ada.learn.task_complete(LOGIN).wrote


@pytest.mark.spec("6.9", "3.8")
def test_a_completed_task_can_be_archived_unless_its_folder_says_otherwise(local: Book) -> None:
    ada = local.as_actor("ada")
    ada.learn.verify_item(LOGIN, "status page", description="status page says ok")
    ada.learn.phase_end(LOGIN, 1, report="Done.")
    ada.learn.task_complete(LOGIN, report="It works.")
    ada.documents.add_to_task("Add logout", "plan", "Status: half done")
    told = ada.learn.task_complete("Add logout")
    assert [each.what for each in told.left_out] == ["plans/artifacts/add-logout/plan.md"]
    upkeep = local.memory.tidy(now=datetime.now(UTC) + timedelta(days=15))
    assert [chore.names for chore in upkeep.chores if chore.act == "archive tasks"] == [("add-login",)]
    assert "add-logout" in upkeep.left_alone[0]


@pytest.mark.spec("6.12", "3.2")
def test_a_cleared_session_is_read_by_nobody_but_the_owner(local: Book) -> None:
    ada, ben = local.as_actor("ada"), local.as_actor("ben")
    ada.learn.phase_start(LOGIN, 1, note="the lighthouse keeper has the keys")
    ada.documents.add_to_session(LOGIN, "src/lighthouse.py opens the door", "Files and Functions")
    before = local.head
    assert "lighthouse keeper" in ben.learn.resume(LOGIN).text
    ada.learn.conversation_end(LOGIN)
    for agent in (ada, ben):
        for answer in (
            agent.learn.resume(LOGIN),
            agent.learn.resume(LOGIN, at=before),
            agent.learn.context_start(LOGIN),
            agent.learn.context_start(at=before),
            agent.search("lighthouse keeper keys"),
            agent.search("lighthouse keeper keys", at=before),
            agent.documents.session(LOGIN, at=before),
        ):
            assert "lighthouse" not in str(answer)
    for agent in (ada, ben):
        assert "lighthouse" not in str([event.payload for event in agent.events()])
        assert "lighthouse" not in str([event.payload for event in agent.events(at=before)])
    assert "lighthouse keeper" in local.learn.resume(LOGIN, at=before).text
    assert "lighthouse keeper" in str([event.payload for event in local.events()])


@pytest.mark.spec("3.9")
def test_who_may_not_write_there_writes_nothing(local: Book) -> None:
    local.access.grant("ben", tiers={"working": "read"})
    local.access.grant("eve", tiers={"working": "none"})
    ben, eve = local.as_actor("ben"), local.as_actor("eve")
    for call in (
        lambda: ben.learn.phase_start(LOGIN, 1),
        lambda: ben.learn.phase_end(LOGIN, 1, report="Done."),
        lambda: ben.learn.task_complete(LOGIN),
        lambda: ben.learn.conversation_end(LOGIN),
        lambda: ben.learn.verify_item(LOGIN, "login"),
        lambda: eve.learn.context_start(LOGIN),
        lambda: eve.learn.resume(LOGIN),
        lambda: eve.learn.verified(LOGIN),
    ):
        with pytest.raises(Denied, match="working tier"):
            call()
    assert written(local) == 0
    assert "nothing is written about Add login" in ben.learn.resume(LOGIN).text


@pytest.mark.spec("L10", "6.9")
def test_lines_of_notes_that_were_carried_over_are_erased_with_their_source(local: Book) -> None:
    ada = local.as_actor("ada")
    first = ada.documents.write_notes("- Objective: login\n- Blockers: Quill has the keys")
    ada.learn.phase_end(LOGIN, 1, report="Done.")
    assert "Quill" in ada.documents.notes()
    local.erase(first.id)
    assert "Quill" not in ada.documents.notes()
    assert "Quill" not in str([event.payload for event in local.events()])


@pytest.mark.spec("3.2", "6.6")
def test_notes_can_be_checked_without_writing_them(local: Book) -> None:
    assert local.documents.check_notes() == []
    local.documents.write_notes(NOTES)
    assert local.documents.check_notes() == []
    wrong = local.documents.check_notes("- a\n- b\n- c\n- d\n\nphase-3-report")
    assert [(each.line, each.rule) for each in wrong] == [(4, "bullets"), (6, "plan_phase")]
    assert local.documents.notes() == f"{NOTES}\n"


# a task of ten phases


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, Any]:
    with commonplace.open("memory:") as book:
        carry_on(book.as_actor("ada"))
        return result(book)


@pytest.mark.spec("6.10", "6.9", "L2", "L4")
@pytest.mark.timeout(600)
def test_ten_phases_killed_before_and_after_every_write_come_to_the_same(
    tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    """Every process that takes over knows nothing but what `resume` says."""
    url = str(tmp_path / "team.db")
    commonplace.open(url).close()
    moments = [(phase, step) for phase in range(1, LAST + 1) for step in STEPS]
    moments += [(LAST + 1, "complete"), (LAST + 1, "leave")]
    for phase, step in moments:
        for when in ("before", "after"):
            worker = Worker(carry_on_and_die, url, phase, step, when)
            assert worker.rest() == ["open"], (phase, step, when)
            assert worker.process.exitcode == -signal.SIGKILL
            if (phase, step) < (LAST + 1, "leave"):
                with commonplace.open(url) as book:
                    assert book.as_actor("ada").learn.resume(TASK).completed == tuple(
                        str(done) for done in range(1, phase + (step == "end" and when == "after"))
                    )
    with commonplace.open(url) as book:
        carry_on(book.as_actor("ada"))
        assert result(book) == undisturbed
        assert book.verify().ok


@pytest.mark.spec("6.10", "6.9", "7.2")
@pytest.mark.timeout(600)
def test_the_same_through_the_command_line(cli: Cli, tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    book_file = tmp_path / "team.db"
    given = ("--book", book_file, "--as", "ada", "--json")
    assert cli("init", "--book", book_file).code == 0

    def resumed(run: Any = cli) -> dict[str, Any]:
        ran = run("resume", TASK, *given)
        assert ran.code == 0, ran
        known: dict[str, Any] = ran.json
        return known

    known, kills = resumed(), 0
    for phase in range(1, LAST + 1):
        assert known["completed"] == [str(done) for done in range(1, phase)]
        for place, name in enumerate(STEPS):
            calls = dict(steps(phase, known["text"]))[name]
            if calls and place == phase % len(STEPS):  # killed, then another process goes on
                _killed(typed(calls[0]), given, "before" if phase % 2 else "after")
                kills += 1
                known = resumed(in_process)
                calls = dict(steps(phase, known["text"]))[name]
            for call in calls:
                ran = cli(*typed(call), *given)
                assert ran.code == 0, ran
        known = resumed()
    assert kills == LAST
    last = ("task_complete", {"facts": [LATER_FACT], "report": "All pages are moved."})
    assert cli(*typed(last), *given).json["wrote"]
    assert cli("learn", "conversation-end", TASK, *given).json["wrote"]
    with commonplace.open(book_file) as book:
        assert result(book) == undisturbed


def typed(call: tuple[str, dict[str, Any]]) -> list[str]:
    """A call of the story as words of a command."""
    verb, arguments = call
    words = ["documents" if verb == "add_to_task" else "learn", verb.replace("_", "-"), TASK]
    words += [str(arguments[name]) for name in ("phase", "document", "text", "item") if name in arguments]
    for name in ("note", "report", "next_phase", "description", "evidence", "iteration"):
        if arguments.get(name) is not None:
            words += [f"--{name.replace('_', '-')}", str(arguments[name])]
    words += ["--no-holds"] if arguments.get("holds") is False else []
    for fact in arguments.get("facts", ()):
        words += ["--fact", json.dumps(fact)]
    return words


def _killed(words: list[str], given: tuple[object, ...], when: str) -> None:
    program = f"from tests.lifecycle_story import command_that_dies; command_that_dies({when!r})"
    ran = subprocess.run(
        [COMMAND[0], "-c", program, *words, *map(str, given)], capture_output=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])},
    )  # fmt: skip
    assert ran.returncode == -signal.SIGKILL, ran


@pytest.mark.spec("6.9", "L8")
def test_nobody_copies_notes_that_it_may_not_read(local: Book) -> None:
    written = local.documents.write_notes(
        "- Objective: Add login (phase: plan)\n- Blockers: Miller must not hear of it"
    )
    local.access.relabel(written.id, sensitivity="sensitive", reason="a merger")
    eve = local.as_actor("eve")
    told = eve.learn.phase_end(LOGIN, 1, report="done")
    assert "may not read all of it" in told.left_out[0].why
    assert (
        "Miller"
        not in f"{eve.documents.notes()}{eve.learn.resume(LOGIN)}{[event.payload for event in eve.events()]}"
    )
    assert "Miller" in local.documents.notes()
