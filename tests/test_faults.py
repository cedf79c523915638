"""The quick share of the fault runs, and proof that each of them can fail: a library broken on purpose."""

from __future__ import annotations

import os
import random
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

import commonplace
from commonplace import Book, Event, PurgeReport
from commonplace.engines import files, sqlite
from commonplace.engines.sqlite import SqliteEngine
from commonplace.files import safe
from commonplace.files.safe import FileAccess
from commonplace.index import RemovedDoc
from commonplace.memory import claims
from commonplace.recall import packing
from commonplace.workflow.runner import Runner

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the faults are beside the tests, not installed

import faults
from faults import derived, texts
from faults.__main__ import load, named
from faults.damage import Reading
from faults.places import Place, place, stop_servers
from faults.shims import TapeDisk
from faults.story import Story, Truth
from faults.verbs import fuzz_verbs

SPEC = {
    "kills": ("L2", "L3", "L4"),
    "power": ("L2", "L4"),
    "failing": ("L2", "L4", "L5"),
    "torn": ("L2", "1.3"),
    "flips": ("L5", "1.3"),
    "rows": ("L5", "L7", "3.9"),
    "backup": ("L3", "1.3"),
    "views": ("L1", "L10"),
    "race": ("L3", "1.2"),
    "live": ("L3", "1.2"),
    "load": ("L2", "L3", "5.3", "7.4"),
    "increments": ("2.9",),
    "delegations": ("6.0", "6.1", "6.2", "L4"),
    "retries": ("L4", "1.2"),
    "histories": ("L1", "L4", "L6"),
    "fuzz": ("L4", "L6", "1.1"),
    "injection": ("1.1", "1.2"),
    "names": ("1.1", "1.2"),
    "paths": ("1.4",),
    "imports": ("1.4", "1.5"),
    "erasure": ("L10", "1.3"),
    "remembers": ("3.5", "L4"),
    "echoes": ("L9", "3.5"),
    "forgetting": ("3.6", "L10"),
    "edits": ("3.7", "L5"),
    "runner": ("2.4", "7.6"),
    "digests": ("4.5", "4.7", "L6"),
    "leaks": ("4.3", "4.7", "L7"),
    "tasks": ("5.2", "5.3", "5.8"),
    "workers": ("5.3", "5.7", "L4"),
    "holders": ("5.3",),
    "clocks": ("5.3", "5.8"),
    "worlds": ("L5", "L7", "4.3", "5.11"),
    "tenants": ("3.11", "L5", "L7"),
    "scopes": ("3.11", "L5", "L7"),
    "revocations": ("L5", "L7", "L10", "3.9", "4.8"),
    "forged": ("3.7", "L10"),
    "swapped": ("L1", "L6", "L10", "4.2"),
    "worst": ("2.7", "L5"),
    "silent": ("L2", "5.8"),
    "wrongclock": ("1.1", "L7", "7.2"),
    "neighbours": ("L5", "5.8"),
    "streams": ("7.4", "L4"),
    "contract": ("7.4", "L12"),
    "floods": ("7.4", "L5"),
    "served": ("7.4", "L12"),
}
SEED = 1


@pytest.fixture(autouse=True, scope="module")
def servers() -> Iterator[None]:
    yield
    stop_servers()


def test_every_fault_is_listed_with_what_it_shows() -> None:
    assert set(load()) == set(SPEC)
    documented = (Path(__file__).resolve().parents[1] / "docs" / "faults.md").read_text()
    assert [name for name in SPEC if f"`{name}`" not in documented] == []
    assert named("12", load()) == ["tasks", "workers", "holders", "clocks"]
    assert named("clocks", load()) == ["clocks"]


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.spec(*SPEC[name])) for name in SPEC])
def test_it_survives(name: str, tmp_path: Path) -> None:
    fault = load()[name]
    result = fault.run(fault.quick, SEED, tmp_path)
    assert result.problems == []
    assert result.failed == 0
    assert result.cases > 0


# A check that cannot fail shows nothing: each of these breaks something and looks whether it is noticed.


def found(name: str, count: int, tmp_path: Path) -> str:
    return "\n".join(load()[name].run(count, SEED, tmp_path).problems)


class Agreeable:
    """Equal to anything."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 0


def forget_claims() -> None:
    """What was worked out with a broken function must not be believed afterwards."""
    claims._sentences.cache_clear()
    claims._kept_claim.cache_clear()


class TestBrokenOnPurpose:
    def test_forged_notices_records_that_are_believed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from faults.folders import SHAPES

        monkeypatch.setattr("commonplace.mirror.folder.is_inside", lambda path: True)
        monkeypatch.setattr("commonplace.files.safe.parts_of", lambda path: path.split("/"))
        result = load()["forged"].run(1, list(SHAPES).index("swap: up, new"), tmp_path)
        assert "changed outside the folder: .ssh/authorized_keys" in "\n".join(result.problems)

    def test_forged_notices_links_that_are_followed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from faults.folders import SHAPES

        monkeypatch.setattr(safe, "_DIRECTORY", safe._DIRECTORY & ~os.O_NOFOLLOW)
        result = load()["forged"].run(1, list(SHAPES).index("link: .commonplace/memory"), tmp_path)
        assert "changed outside the folder" in "\n".join(result.problems)

    def test_forged_notices_a_sync_without_trust(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from faults.folders import SHAPES

        monkeypatch.setattr("commonplace.mirror.book.is_trusted", lambda book, path: True)
        result = load()["forged"].run(1, list(SHAPES).index("base: wide dots"), tmp_path)
        assert "it was synced without trust" in "\n".join(result.problems)

    def test_kills_notice_a_lost_acknowledgement(self, tmp_path: Path) -> None:
        with place("sqlite", tmp_path).open() as book:
            log: list[tuple[str, Any]] = []
            Story(random.Random(SEED), "e", log.append).tell(book, "batch")
            assert Truth(log).judge(book) == []
            lost = [*log, ("try", ["never"]), ("recorded", [("never", {}, 9)])]
            assert "lost" in str(Truth(lost).judge(book))
            assert "only a part" in str(Truth([*log, ("try", ["e-1", "never"])]).judge(book))

    def test_power_notices_a_commit_without_fsync(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("faults.shims.SqliteEngine", partial(SqliteEngine, durability="process"))
        assert "sqlite" in found("power", 30, tmp_path)

    def test_power_notices_a_batch_without_its_end(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = files.to_line
        monkeypatch.setattr(files, "to_line", lambda record, more: whole(record, 0))
        monkeypatch.setattr("faults.durability.LOCAL", ("files",))
        assert "only a part is there" in found("power", 450, tmp_path)

    def test_failing_notices_a_failed_fsync_taken_for_success(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fail = TapeDisk.fail
        monkeypatch.setattr(TapeDisk, "fail", lambda self: None if self.tape.failed == "sync" else fail(self))
        monkeypatch.setattr("faults.durability.LOCAL", ("files",))
        assert "was acknowledged and is lost" in found("failing", 200, tmp_path)

    def test_worlds_notice_that_hidden_things_are_counted(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("commonplace.work.reading.may_see_record", lambda rights, row, decided: True)
        assert "work discovery" in found("worlds", 1, tmp_path)

    def test_revocations_notice_what_is_still_shown(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("commonplace.memory.visibility.may_read_id", lambda views, rights, id: True)
        monkeypatch.setattr("commonplace.memory.reading.may_name", lambda rights, item: True)
        assert "shows it" in found("revocations", 4, tmp_path)

    def test_runner_notices_that_finished_agents_are_run_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("faults.runs.DURABLE", ("sqlite",))
        ready = Runner._ready

        def forgetful(self: Runner, running: Any) -> Any:
            if not hasattr(self, "forgot"):
                vars(self)["forgot"] = True
                self.steps.clear()
            return ready(self, running)

        monkeypatch.setattr(Runner, "_ready", forgetful)
        assert "ran again" in found("runner", 6, tmp_path)

    def test_torn_notices_that_the_loss_is_kept_quiet(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(files.FilesStore, "acknowledged", lambda self: 0)
        assert "nobody says so" in found("torn", 10, tmp_path)

    def test_flips_notice_hashes_that_are_not_checked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Unchecked:
            def __init__(self, data: bytes) -> None: ...

            def digest(self) -> Agreeable:
                return Agreeable()

            hexdigest = digest

        whole = Reading.of

        def read(self: Reading, home: Place) -> tuple[str, list[str]]:
            monkeypatch.setattr("commonplace.ledger.events.sha256", Unchecked)
            monkeypatch.setattr(files, "_check", lambda record: Agreeable())
            return whole(self, home)

        monkeypatch.setattr(Reading, "of", read)
        assert found("flips", 120, tmp_path)

    def test_rows_notice_pages_and_rows_that_are_not_checked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as unchecked:
            unchecked.setattr("commonplace.engines.sqlite._checks_pages", lambda _connection: False)
            unchecked.setattr("faults.damage.SERVED", ("sqlite",))
            assert "rights are others" in found("rows", 60, tmp_path)
        for place_of in ("commonplace.ledger.views", "commonplace.ledger.reader"):
            monkeypatch.setattr(f"{place_of}.checked", lambda row: row.value[4:])
        monkeypatch.setattr("faults.damage.SERVED", ("redis",))
        assert "are others" in found("rows", 60, tmp_path)

    def test_silent_notices_a_trip_without_an_end(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("commonplace.engines.postgres_connection.Connection.wait", patient_wait)
        monkeypatch.setattr("faults.silence.NETWORKED", ("postgres",))
        monkeypatch.setattr("faults.silence.ROOM", 2.5)
        assert " took " in found("silent", 2, tmp_path)

    def test_neighbours_notice_open_files_and_what_others_have_made(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as careless:
            careless.setattr("commonplace.files.safe.FileAccess.mode", 0o644)
            careless.setattr("commonplace.files.safe.FileAccess.writers", FileAccess(0o666))
            assert "is open to others" in found("neighbours", 6, tmp_path)
        monkeypatch.setattr("commonplace.files.safe._check", lambda *_: None)
        monkeypatch.setattr("faults.neighbours.BESIDE", ("-lock",))
        if os.getuid() == 0:
            assert "book.db-lock, which somebody else has put there, was used" in found(
                "neighbours", 24, tmp_path
            )

    def test_wrongclock_notices_that_clocks_are_not_compared(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("commonplace.ledger.clocks.A_DAY", 10**18)
        monkeypatch.setattr("commonplace.ledger.clocks.A_SECOND", -(10**18))
        told = found("wrongclock", 30, tmp_path)
        assert "now is not now" in told
        assert "and what is told is None" in told

    def test_backup_notices_a_hole(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        whole = sqlite.SqliteStore.backup

        def holed(self: sqlite.SqliteStore, to: Path) -> Any:
            head = whole(self, to)
            connection = apsw.Connection(str(to))
            connection.execute("DELETE FROM events WHERE position = 2")
            connection.close()
            return head

        monkeypatch.setattr(sqlite.SqliteStore, "backup", holed)
        monkeypatch.setattr("faults.damage.SERVED", ("sqlite",))
        with pytest.raises(commonplace.Corrupt):
            found("backup", 1, tmp_path)

    def test_views_notice_a_row_that_still_knows(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("commonplace.ledger.erase._derive_again", lambda *args: None)
        monkeypatch.setattr("faults.damage.ALL", ("memory", "sqlite"))
        assert "the rows of said differ" in found("views", 1, tmp_path)

    def test_live_notices_a_missed_event(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        whole = Book.watch

        def forgetful(self: Book, **options: Any) -> Iterator[Event]:
            return (event for event in whole(self, **{**options, "timeout": 1.0}) if event.position != 7)

        monkeypatch.setattr(Book, "watch", forgetful)
        monkeypatch.setattr("faults.concurrency.SERVED", ("sqlite",))
        assert "missed 1" in found("live", 3, tmp_path)

    def test_load_notices_writes_that_are_acknowledged_and_not_made(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("benchmarks.load.SERVE", (sys.executable, "-c", FORGETFUL))
        monkeypatch.setattr("faults.load.CLIENTS", 8)
        monkeypatch.setattr("faults.load.ENGINES", ("sqlite",))
        told = found("load", 1, tmp_path)
        assert "of record were acknowledged and are not in the ledger" in told
        assert "complete: " in told

    def test_histories_notice_an_erasure_that_keeps_the_content(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sqlite, "ERASE_EVENT", "SELECT ?")
        assert "sqlite" in found("histories", 20, tmp_path)

    def test_fuzz_notices_an_engine_with_errors_of_its_own(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(self: object, ids: object) -> dict[str, Any]:
            raise KeyError(ids)

        monkeypatch.setattr(sqlite.SqliteReads, "by_id", broken)
        assert "KeyError" in found("fuzz", 80, tmp_path)

    def test_fuzz_notices_a_verb_with_errors_of_its_own(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class OnlyBoard:
            def __init__(self, book: Book) -> None:
                self.work = book.work(name="it", id="w")
                self.work.add_task("do it")

            def board(self, limit: Any = 12) -> Any:
                return self.work.board(limit=limit)

        monkeypatch.setattr("faults.verbs.handles", lambda book: {"work": OnlyBoard(book)})
        whole, broken = faults.Result(), faults.Result()
        fuzz_verbs(whole, 10_000, SEED, tmp_path)
        assert (whole.failed, whole.cases > 100) == (0, True)
        monkeypatch.setattr("commonplace.work.verbs.check_whole", lambda _field, value: value)
        fuzz_verbs(broken, 10_000, SEED + 1, tmp_path)
        assert "raises TypeError" in str(broken.problems)

    def test_injection_and_names_notice_a_pattern(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pattern = sqlite.EVENTS_OF_RUN.replace("run = ?", "run LIKE replace(?, '?', '%')")
        monkeypatch.setattr(sqlite, "EVENTS_OF_RUN", pattern)
        assert "sqlite" in found("names", 100, tmp_path)
        assert "foreign run" in found("injection", 60, tmp_path)

    def test_names_notice_that_something_unseen_is_taken(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("commonplace.ledger.checks._unseen", lambda _char: False)
        assert "was taken as an actor" in found("names", 60, tmp_path)

    def test_echoes_notice_frames_that_are_kept_and_likeness_taken_for_sameness(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as broken:
            broken.setattr(claims, "_without_head", lambda sentence: sentence)
            forget_claims()
            assert "20 items became" in found("echoes", 1, tmp_path)
        with monkeypatch.context() as broken:
            broken.setattr(
                "commonplace.memory.remember.echo_among", lambda _content, shown: next(iter(shown))[0]
            )
            assert "a correction was refused" in found("echoes", 1, tmp_path)
        forget_claims()

    def test_paths_notice_a_blob_outside(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(files.FilesStore, "blob_path", lambda self, digest: self.folder / digest)
        assert "outside" in found("paths", 60, tmp_path)

    def test_imports_notice_a_source_that_is_not_checked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("commonplace.ledger.transfer._check", lambda ledger, source: (False, []))
        monkeypatch.setattr("commonplace.ledger.transfer.BATCH", 1)
        assert "something was taken" in found("imports", 60, tmp_path)

    def test_erasure_notices_a_purge_that_does_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sqlite.SqliteStore, "purge", lambda self: PurgeReport())
        monkeypatch.setattr("faults.erasure.ALL", ("sqlite",))
        assert "after the purge book.db-wal holds it" in found("erasure", 6, tmp_path)

    def test_leaks_notice_a_reader_who_sees_everything(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for place_of in ("commonplace.recall.search", "commonplace.memory.reading"):
            monkeypatch.setattr(f"{place_of}.may_see_of", lambda *_: True)
        assert "shows Piece" in found("leaks", 200, tmp_path)

    def test_worst_notices_a_run_that_is_read_again_and_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        jwt = re.compile(r"\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}")
        again = ([("eyj", "jwt")], {"jwt": jwt})
        monkeypatch.setattr("commonplace.access.masking._patterns", lambda: again)
        smaller = {"SMALL": 4_000, "LARGE": 40_000, "SIZES": (40_000,), "DELAY": 0.1, "EVERY": 2}
        for name, value in smaller.items():
            monkeypatch.setattr(texts, name, value)
        monkeypatch.setattr(texts, "UNITS", [f"eyJ{letter * 8}-" for letter in "abcd"])
        monkeypatch.setattr(texts, "random_text", lambda _rng, size: "eyJaaaaaaaa-" * (size // 12))
        monkeypatch.setattr(texts, "looks", lambda: [texts.functions()["secrets"]])
        monkeypatch.setattr(texts, "taken_patterns", lambda _rng, _count: ["(a*)*b"])
        monkeypatch.setattr("commonplace.access.patterns.compiled", re.compile)
        problems = found("worst", 2, tmp_path)
        assert "'(a*)*b': of" in problems
        assert "search takes" in problems
        monkeypatch.setattr(texts, "EVERY", 9)
        assert "secrets: of 'eyJ" in "\n".join(load()["worst"].run(1, 2, tmp_path).problems)

    def test_digests_notice_one_line_too_many(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(packing._Pile, "full", lambda *_: "")
        monkeypatch.setattr(packing._Pile, "_over_all", lambda *_: "")
        assert "are allowed" in found("digests", 20, tmp_path)


class TestBrokenIndexes:
    def test_swapped_notices_an_index_of_another_past_that_is_believed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def by_length(reads: Any, position: int, _hash: bytes) -> str:
            return "it is longer" if position > reads.head.position else ""

        monkeypatch.setattr("commonplace.recall.book_index._misfit", by_length)
        monkeypatch.setattr("faults.derived.SHAPES", (derived.Case.of_another_past,))
        assert "the answers differ" in found("swapped", 3, tmp_path)

    def test_swapped_notices_pages_that_nobody_checks(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from commonplace.index.store import File

        prepare = File._prepare

        def unchecked(file: File) -> None:
            prepare(file)
            file.connection.pragma("checksum_verification", 0)

        monkeypatch.setattr(File, "_prepare", unchecked)
        monkeypatch.setattr("faults.derived.SHAPES", (derived.Case.flipped,))
        assert found("swapped", 20, tmp_path)

    def test_swapped_notices_a_purge_that_leaves_out_what_it_could_not_use(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from commonplace.recall.book_index import BookIndex

        monkeypatch.setattr(BookIndex, "purge", lambda _self: [])
        assert "not in the report of the purge" in found("swapped", 1, tmp_path)


def test_the_faults_of_memory_notice_what_is_lost_or_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:

    from commonplace.mirror.book import BookMirror
    from commonplace.mirror.folder import Mirror
    from commonplace.mirror.pages import Taken
    from commonplace.recall.book_index import BookIndex

    with monkeypatch.context() as broken:
        broken.setattr(BookMirror, "_took", lambda _self, _path, edit: Taken(edit, True))
        assert "of the person is lost" in found("edits", 6, tmp_path)
    monkeypatch.setattr("faults.memory.ALL", ("sqlite",))
    with monkeypatch.context() as broken:
        broken.setattr(Mirror, "erase", lambda *_: None)
        assert "finds it in" in found("forgetting", 6, tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr(BookIndex, "purge", lambda _self: [])
        broken.setattr("commonplace.recall.index_feed.Erase", lambda _ids: RemovedDoc("nothing"))
        assert "holds it" in found("forgetting", 6, tmp_path)
    monkeypatch.setattr("faults.memory.SERVED", ("sqlite",))
    monkeypatch.setattr("faults.memory.PROCESSES", 1)
    with monkeypatch.context() as broken:
        broken.setattr("faults.memory.Worker", Twice)
        assert "2 things became 4 items" in found("remembers", 2, tmp_path)


class Twice:
    """A worker in this process that makes other items of what it is to remember."""

    def __init__(self, _run: object, home: Place, *_: object) -> None:
        with home.open() as book:
            for n in range(4):
                book.remember(f"something else {n}")

    def rest(self) -> list[dict[str, int]]:
        return [{"stored": 4}]


class TestBrokenWork:
    """Each of these is done in every process of the fault."""

    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("faults.work.SERVED", ("sqlite",))
        monkeypatch.setattr("faults.work.PROCESSES", 4)
        monkeypatch.setattr("faults.work.PATIENCE", 10.0)

    def test_tasks_notice_claims_without_a_lease(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("faults.work.SPOIL", without_leases)
        assert "was lost, though nobody died" in found("tasks", 150, tmp_path)

    def test_tasks_notice_what_is_claimed_too_early(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("commonplace.work.graph.placed", early)
        assert "was claimed" in found("tasks", 24, tmp_path)

    def test_workers_notice_a_leader_that_loses_count(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("faults.work.SPOIL", without_step_ids)
        assert "is missing" in found("workers", 1, tmp_path)

    def test_workers_notice_tasks_that_a_crash_gives_to_others(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("faults.work.SPOIL", for_anybody)
        told = found("workers", 6, tmp_path)
        assert "has changed whom it is for" in told

    def test_holders_notice_that_nobody_looks_at_the_fence(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("faults.work.SPOIL", without_fences)
        told = found("holders", 6, tmp_path)
        assert "was accepted" in told
        assert "late acts left" in told

    def test_clocks_notice_leases_on_the_wall_clock(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("faults.work.SPOIL", with_wall_clocks)
        assert "was taken back" in found("clocks", 24, tmp_path)  # too early, or from somebody alive


def patient_wait(self: Any, gen: Any, *args: Any, **more: Any) -> Any:
    """Without a limit of its own it would wait for ever; six seconds show it, too."""
    import psycopg

    try:
        return psycopg.Connection.wait(self, gen, timeout=6.0)
    except psycopg.errors._WaitTimeout:
        self.close()
        raise psycopg.OperationalError("given up by the test") from None


FORGETFUL = """
import sys
from commonplace.surfaces import network
from commonplace.surfaces.cli import main

whole = network.call

def forgetful(me, verb, arguments, lead):
    if verb.path == ("record",):
        return {"id": "a promise"}
    if verb.path == ("claim", "complete"):
        return {"id": arguments["task"]}
    return whole(me, verb, arguments, lead)

network.call = forgetful
sys.exit(main())
"""
"""A server that says that it has recorded something and completed a task."""


def without_leases() -> None:
    from commonplace.work import claims
    from commonplace.work.transaction import WorkTransaction

    whole = WorkTransaction.hold

    def late(self: WorkTransaction, task: Any, holder: str) -> None:
        if task.claims > 1:  # what is claimed again is held, so that it ends
            whole(self, task, holder)

    WorkTransaction.hold = late  # type: ignore[method-assign]
    claims.CHECK_ONE_CLAIM_IN = 1  # so that it does not take a second until somebody notices


def early(task: Any) -> Any:
    """A task is for anybody at once, whatever it waits for."""
    from msgspec.structs import replace

    return replace(task, ready_for="" if task.status == "pending" else task.assigned_to)


def without_step_ids() -> None:
    from msgspec.structs import replace

    from commonplace.ledger.events import new_id
    from commonplace.work.leading import Lead

    whole = Lead.next

    def forgetful(self: Lead) -> Any:
        step = whole(self)
        return None if step is None else replace(step, id=new_id())

    Lead.next = forgetful  # type: ignore[method-assign]


def for_anybody() -> None:
    """What is given back is for anybody."""
    from msgspec.structs import replace

    from commonplace.work import claims
    from commonplace.work.tasks import placed
    from commonplace.work.transaction import given_back

    whole = given_back

    def forgetful(task: Any, **fields: Any) -> Any:
        back = whole(task, **fields)
        return placed(replace(back, status="pending", for_agent=None, for_role=None, assigned_to=None))

    vars(claims)["given_back"] = forgetful


def without_fences() -> None:
    from commonplace.work import claims, people

    for module in (claims, people):
        module.held = lambda _desk, task, _token: task  # type: ignore[attr-defined]


def with_wall_clocks() -> None:
    import time

    sqlite.boot_clock = lambda: ("a boot", time.time())  # type: ignore[attr-defined]


def test_the_runner_fails_when_a_fault_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from faults.__main__ import main

    def run(count: int, seed: int, tmp: Path) -> faults.Result:
        result = faults.Result(cases=count)
        if seed == 2:
            result.problem("case 1", "made up")
        return result

    load()
    monkeypatch.setitem(faults.FAULTS, "made-up", faults.Fault(99, "made-up", 5, 1, run))
    for seed, expected in ((1, 0), (2, 1)):
        monkeypatch.setattr(
            sys, "argv", ["faults", "made-up", "--seed", str(seed), "--json", str(tmp_path / "r")]
        )
        assert main() == expected
        assert f'"seed": {seed}' in (tmp_path / "r").read_text()


@pytest.mark.spec("L2")
def test_a_short_soak_grows_nothing(tmp_path: Path) -> None:
    from faults.soak import soak

    result = soak(1.5, SEED, tmp_path)
    assert result.figures["seen by the watcher"] >= result.cases
    assert [text for text in result.problems if "memory" not in text] == []
