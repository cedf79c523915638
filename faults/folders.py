"""Folders that somebody else has prepared: a clone with a book, records of a mirror, links, modes and workflows that
lead elsewhere. Reading one changes nothing outside it, syncing it needs trust, and then stays inside, too."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest import mock

import commonplace
from commonplace import Book, CommonplaceError
from commonplace.files import safe
from commonplace.mirror.folder import _key, _tag
from commonplace.workflow.load import examine

from . import Result, fault

SECRET = "only-the-user-may-know-this"
PATIENCE = 60.0
"""How many seconds a case may take before it counts as one that hangs."""


class Case:
    """One forged clone, and the user's other files beside it."""

    def __init__(self, root: Path, rng: random.Random) -> None:
        self.root, self.rng = root, rng
        self.clone = root / "clone"
        self.mirror = self.clone / ".commonplace"
        self.records = self.mirror / ".mirror"
        self.book = self.mirror / "book.db"
        self.outside = root / "home"

    def make(self, template: Path) -> None:
        shutil.copytree(template, self.clone)
        for folder in (".ssh", "bin", "notes/.mirror/base"):
            (self.outside / folder).mkdir(parents=True)
        for name in (".bashrc", ".ssh/config", "MEMORY.md", "notes/MEMORY.md"):
            (self.outside / name).write_text(f"# Mine\n\n- {SECRET}\n")
        (self.outside / "bin" / "tool").write_text(f"#!/bin/sh\ntouch {self.outside}/was-run\n")
        (self.outside / "bin" / "tool").chmod(0o755)
        (self.outside / "notes" / ".mirror" / "book").write_text(self.book_id)

    @property
    def book_id(self) -> str:
        return (self.records / "book").read_text()

    def path(self, variant: str) -> str:
        """A path as a forger writes it, seen from the folder of the mirror."""
        return variant.replace("OUT", str(self.outside)).replace(
            "UP", os.path.relpath(self.outside, self.mirror)
        )


# paths that a record, a setting or a workflow may name: they lead out, or are odd in another way

VARIANTS = {
    "absolute": "OUT/.bashrc",
    "absolute, new": "OUT/.ssh/authorized_keys",
    "up": "UP/.bashrc",
    "up, new": "UP/.ssh/authorized_keys",
    "up through a folder": "memory/../UP/.bashrc",
    "up after a dot": "./UP/.bashrc",
    "two slashes": "/OUT/.bashrc",
    "the folder above": "..",
    "the root": "/",
    "empty": "",
    "a dot": ".",
    "a hook": "../.git/hooks/pre-commit",
    "the own records": ".mirror/book",
    "the own records, in capitals": ".MIRROR/book",
    "hidden": ".git/config",
    "backslashes": "..\\..\\home\\.bashrc",
    "a drive": "C:\\home\\.bashrc",
    "a drive with slashes": "C:/home/.bashrc",
    "encoded": "%2e%2e/%2e%2e/home/.bashrc",
    "encoded twice": "%252e%252e/home/.bashrc",
    "wide dots": "\uff0e\uff0e/\uff0e\uff0e/home/.bashrc",
    "a two dot leader": "\u2025/\u2025/home/.bashrc",
    "a wide slash": "..\uff0f..\uff0fhome",
    "a home": "~/.bashrc",
    "a variable": "$HOME/.bashrc",
    "a url": "file://OUT/.bashrc",
    "a NUL": "UP/.bashrc\0.md",
    "a line end": "memory/\n../UP/.bashrc",
    "a lone surrogate": "memory/\ud800.md",
    "very long": "x" * 5_000,
    "very deep": "a/" * 2_000 + "b.md",
    "a device": "/dev/null",
    "a device name": "NUL",
    "a file as a folder": "MEMORY.md/x.md",
    "behind a link": "link/.bashrc",
    "a trailing slash": "UP/",
}


def by_base(case: Case, path: str) -> None:
    """A record of a page that is no more: its file would be taken away."""
    plant(case, path)
    known = {
        "token": "t", "versions": [["v", {"": "x"}]], "head": "# Mine", "texts": {}, "taken": [], "asked": False,
    }  # fmt: skip
    write_json(case.records / "base" / f"{key(path)}.json", {"path": path, **known})


def by_swap(case: Case, path: str) -> None:
    """A file that was swapped out of a page: it would go back to its place."""
    by_base(case, path)
    spare = case.records / "swap" / f"{key(path)}-{_tag(b'a')}-{_tag(b'b')}-00000000"
    spare.write_bytes(b"#!/bin/sh\necho forged\n")
    spare.chmod(0o755)


def by_raw(case: Case, path: str) -> None:
    """A record of a file for programs: it would be removed, or kept under another name."""
    plant(case, path)
    mine = (case.outside / ".bashrc").read_bytes()
    tags = [_tag(mine), *map(_tag, mine.splitlines())] if case.rng.random() < 0.5 else ["0" * 16]
    write_json(case.records / "raw.json", {path: tags})


def by_setting(case: Case, path: str) -> None:
    """A place for the markdown that no book of ours would take."""
    plant(case, path)
    usual = case.rng.choice(("MEMORY.md", "memory/"))
    with mock.patch("commonplace.memory.settings.check_places"), suppress(CommonplaceError):  # noqa: SIM117
        with commonplace.open(case.book, mirror=False) as book:
            book.memory.configure(places={usual: path.rstrip("/") + "/" * usual.endswith("/")})


def by_list(case: Case, path: str) -> None:
    """A folder that is said to show the book."""
    if path and "\0" not in path and path.isascii():
        folder = case.mirror / path
        with suppress(OSError):
            if folder.is_dir() and folder.is_relative_to(case.outside):
                (folder / ".mirror").mkdir(exist_ok=True)
    listed = case.mirror / "book.db.mirrors"
    listed.write_bytes(path.encode("utf-8", "surrogatepass") + f"\n{case.outside}/notes\n".encode())


def by_import(case: Case, path: str) -> None:
    """A note that is a link."""
    notes = case.clone / "notes"
    notes.mkdir()
    (notes / "plain.md").write_text("- a note of theirs\n")
    with suppress(OSError, ValueError):
        (notes / "linked.md").symlink_to(case.mirror / path)


def by_agent(case: Case, path: str) -> None:
    workflow(case, agent=path)


def by_subworkflow(case: Case, path: str) -> None:
    workflow(case, subworkflow=path)


def by_persistence(case: Case, path: str) -> None:
    workflow(case, persistence=path)


def plant(case: Case, path: str) -> None:
    if path.startswith("link/"):
        (case.mirror / "link").symlink_to(case.outside)


def key(path: str) -> str:
    return sha256(path.encode("utf-8", "surrogatepass")).hexdigest()[:32] if "\ud800" in path else _key(path)


def write_json(path: Path, data: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))


def workflow(case: Case, **named: str) -> None:
    """A workflow in the clone, with one of its paths forged."""
    folder = case.clone / "flow"
    node = {"id": "one", "agent": named.get("agent", "agents/one")}
    if "subworkflow" in named:
        node = {"id": "one", "subworkflow": named["subworkflow"]}
    runtime = (
        {"command": [named["command"]]}
        if "command" in named
        else {"callable": named.get("callable", "work:go")}
    )
    files = {
        "workflow.awp.yaml": {
            "awp": "1.0.0",
            "workflow": {"name": "flow", "version": "1.0.0", "description": "d"},
            "orchestration": {"engine": "dag", "graph": [node]},
            "state": {"model": "shared_dict", "persistence": {"path": named.get("persistence", "data/state")}},
        },
        "agents/one/agent.awp.yaml": {
            "awp": "1.0.0", "identity": {"id": "one", "role": "r", "goal": "g"}, "runtime": runtime,
        },
    }  # fmt: skip
    for name, document in files.items():
        write_json(folder / name, document)
    (folder / "work.py").write_text("def go(task):\n    return {'done': True, 'confidence': 1.0}\n")
    write_json(case.outside / "agents" / "one" / "agent.awp.yaml", files["agents/one/agent.awp.yaml"])
    write_json(case.outside / "workflow.awp.yaml", files["workflow.awp.yaml"])
    (case.outside / "away.py").write_text(
        f"import pathlib\ndef go(task):\n    pathlib.Path({str(case.outside / 'was-run')!r}).touch()\n    return {{}}\n"
    )


# links, pipes and modes in the places that are read and written

PLACES = (
    ".commonplace/MEMORY.md", ".commonplace/memory", ".commonplace/memories", ".commonplace/.mirror",
    ".commonplace/.mirror/base", ".commonplace/.mirror/swap", ".commonplace/.mirror/lock",
    ".commonplace/.mirror/book", ".commonplace/.mirror/raw.json", ".commonplace/.mirror/poke",
    ".commonplace/.mirror/.gitignore", ".commonplace/book.db", ".commonplace/book.db-wal",
    ".commonplace/book.db-shm", ".commonplace/book.db-lock",
    ".commonplace/book.db.index", ".commonplace/book.db.index-lock", ".commonplace/book.db.index-wal",
    ".commonplace/book.db.mirrors", "flow/workflow.awp.yaml", "flow/agents", "flow/agents/one", "flow/data",
    "flow/data/state", "flow/work.py", "notes", "notes/plain.md",
)  # fmt: skip
"""Below the clone: what a forger can put something else in the place of."""


def put(case: Case, place: str) -> Path:
    """Make room for something in the place of a file or folder."""
    if place.startswith("flow"):
        workflow(case)
    if place.startswith("notes"):
        by_import(case, "MEMORY.md")
    target = case.clone / place
    if target.is_dir():
        shutil.rmtree(target)
    target.unlink(missing_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def as_link(case: Case, place: str) -> None:
    """A link to a file or folder of the user's."""
    was_folder = (case.clone / place).is_dir()
    target = put(case, place)
    if target.name == "book":  # the id must be right, or it is somebody else's anyway
        shutil.copy(case.outside / "notes" / ".mirror" / "book", case.outside / "id")
        target.symlink_to(case.outside / "id")
    else:
        target.symlink_to(case.outside if was_folder or "." not in target.name else case.outside / ".bashrc")


def as_dangling_link(case: Case, place: str) -> None:
    """A link to a file that is not there yet."""
    put(case, place).symlink_to(
        os.path.relpath(case.outside / ".ssh" / "authorized_keys", (case.clone / place).parent)
    )


def as_hard_link(case: Case, place: str) -> None:
    target = put(case, place)
    os.link(case.outside / ".bashrc", target)


def as_pipe(case: Case, place: str) -> None:
    os.mkfifo(put(case, place))


def as_socket(case: Case, place: str) -> None:
    target = put(case, place)
    here = Path.cwd()
    with socket.socket(socket.AF_UNIX) as made:  # its path may be longer than a socket's may be
        try:
            os.chdir(target.parent)
            made.bind(target.name)
        finally:
            os.chdir(here)


def as_folder(case: Case, place: str) -> None:
    put(case, place).mkdir()


# what does not fit into these


def spare_with_mode(mode: int) -> Callable[[Case], None]:
    def forge(case: Case) -> None:
        path = "MEMORY.md"
        (case.mirror / path).unlink()
        spare = case.records / "swap" / f"{key(path)}-{_tag(b'a')}-{_tag(b'b')}-00000000"
        spare.write_text("- forged\n")
        spare.chmod(mode)

    return forge


def page_with_mode(mode: int) -> Callable[[Case], None]:
    def forge(case: Case) -> None:
        text = (case.mirror / "MEMORY.md").read_text()
        (case.mirror / "MEMORY.md").write_text(text.replace("<!-- /cp page", "- forged\n<!-- /cp page"))
        (case.mirror / "MEMORY.md").chmod(mode)

    return forge


def spare_named(name: str) -> Callable[[Case], None]:
    def forge(case: Case) -> None:
        spare = case.records / "swap" / name
        if "{" in name:
            spare = case.records / "swap" / name.format(key("MEMORY.md"))
        spare.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("link"):
            spare = spare.with_name(f"{key('MEMORY.md')}-{'0' * 16}-{'1' * 16}-00000000")
            spare.symlink_to(case.outside / ".bashrc")
        else:
            spare.write_text("forged")

    return forge


def record_says(raw: bytes) -> Callable[[Case], None]:
    """Records of any shape: they are as good as deleted."""

    def forge(case: Case) -> None:
        (case.records / "base" / f"{key('MEMORY.md')}.json").write_bytes(raw)
        (case.records / "raw.json").write_bytes(raw)
        (case.mirror / "book.db.mirrors").write_bytes(raw)

    return forge


def program(path: str) -> Callable[[Case], None]:
    def forge(case: Case) -> None:
        workflow(case, command=path)
        (case.clone / "flow" / "tool").symlink_to(case.outside / "bin" / "tool")
        (case.clone / "flow" / "bin").symlink_to(case.outside / "bin")

    return forge


def module(named: str) -> Callable[[Case], None]:
    def forge(case: Case) -> None:
        workflow(case, callable=named)
        (case.clone / "flow" / "away.py").symlink_to(case.outside / "away.py")
        (case.clone / "flow" / "package").symlink_to(case.outside)
        (case.outside / "__init__.py").write_text((case.outside / "away.py").read_text())

    return forge


def swapped_in(moment: int) -> Callable[[Case], None]:
    """A folder becomes a link at some moment of the sync, between the check and the use."""

    def forge(case: Case) -> None:
        vars(case)["moment"] = moment

    return forge


Forge = Callable[[Case], None]


def shapes() -> dict[str, Forge]:
    """Every forged folder by its name, in an order that mixes their kinds."""
    found: dict[str, Forge] = {}
    by_path: dict[str, tuple[Callable[[Case, str], None], tuple[str, ...]]] = {
        "base": (by_base, tuple(VARIANTS)),
        "swap": (by_swap, tuple(VARIANTS)),
        "raw": (by_raw, tuple(VARIANTS)),
        "setting": (
            by_setting,
            ("absolute", "up", "a hook", "hidden", "the own records", "backslashes", "behind a link"),
        ),
        "list": (
            by_list,
            ("absolute", "the root", "the folder above", "empty", "a NUL", "very long", "a lone surrogate"),
        ),
        "import": (by_import, ("absolute", "up", "the folder above", "a device", "a dot")),
        "agent": (by_agent, ("absolute", "up", "the folder above", "backslashes", "encoded", "wide dots", "a NUL")),
        "subworkflow": (by_subworkflow, ("absolute", "up", "the folder above", "a dot", "the root", "a home")),
        "persistence": (by_persistence, ("absolute", "up", "the folder above", "a drive", "a variable")),
    }  # fmt: skip
    for name, (forge, variants) in by_path.items():
        for variant in variants:
            found[f"{name}: {variant}"] = lambda case, forge=forge, variant=variant: forge(  # type: ignore[misc]
                case, case.path(VARIANTS[variant])
            )
    in_place: dict[str, tuple[Callable[[Case, str], None], tuple[str, ...]]] = {
        "link": (as_link, tuple(place for place in PLACES if place != "notes")),  # the user names that one
        "dangling link": (as_dangling_link, PLACES),
        "hard link": (as_hard_link, (PLACES[0], PLACES[6], PLACES[8], PLACES[9], PLACES[15], PLACES[18])),
        "pipe": (
            as_pipe,
            (*PLACES[:1], *PLACES[6:10], *PLACES[14:15], *PLACES[15:17], *PLACES[18:20], PLACES[26]),
        ),
        "socket": (as_socket, (PLACES[0], PLACES[8], PLACES[18])),
        "folder": (as_folder, (PLACES[0], PLACES[8], PLACES[18])),
    }
    for name, (stand_in, places) in in_place.items():
        for place in places:
            found[f"{name}: {place}"] = lambda case, forge=stand_in, place=place: forge(case, place)  # type: ignore[misc]
    found |= {f"mode of a spare: {mode:o}": spare_with_mode(mode) for mode in (0o755, 0o4755, 0o2755, 0o777)}
    found |= {f"mode of a page: {mode:o}": page_with_mode(mode) for mode in (0o755, 0o4755, 0o2777, 0o1777)}
    odd = ("{}-none-none", "{}", "{}-a-b-c-d-e", "{}-..-..-0", "link")
    found |= {f"name of a spare: {name}": spare_named(name) for name in odd}
    texts = (
        b"",
        b"[]",
        b"null",
        b"{}",
        b"\xff\xfe",
        b'{"path": 7}',
        b"[" * 100_000,
        b'{"MEMORY.md": {"a": []}}',
    )
    found |= {f"record: {raw[:30]!r}": record_says(raw) for raw in texts}
    found |= {f"program: {path}": program(path) for path in ("./tool", "bin/tool", "../../home/bin/tool")}
    found |= {f"module: {named}": module(named) for named in ("away:go", "package:go", "package.away:go")}
    found |= {f"swapped in at {moment}": swapped_in(moment) for moment in (1, 2, 3, 5, 8, 13, 21, 34, 55)}
    names = sorted(found)
    random.Random(26).shuffle(names)
    return {name: found[name] for name in names}


SHAPES = shapes()


# what a user does with such a folder


def read(case: Case) -> None:
    """Everything that only reads."""
    with commonplace.open(case.book, create=False) as book:
        list(book.events())
        book.memory.list()
        book.admin.status()
        book.search("memory")
        book.mirror.folder().status()
        book.admin.find_text("forged text")
    examine(case.clone / "flow")


def sync_untrusted(case: Case) -> None:
    with commonplace.open(case.book, create=False) as book:
        book.mirror.folder().sync()


def use(case: Case) -> Iterator[Callable[[], object]]:
    """Everything that writes, by a user who trusts the folder."""
    at = case.clone
    yield lambda: opened(case, lambda book: book.mirror.folder(trust=True).sync())
    yield lambda: opened(case, lambda book: book.remember("A new thing", title="new"))
    yield lambda: opened(case, lambda book: book.erase([book.memory.list()[0].id]))
    yield lambda: opened(case, lambda book: book.memory.import_(at / "notes", shared=True))
    yield lambda: opened(case, lambda book: book.runs.execute(at / "flow"))
    yield lambda: opened(case, lambda book: book.admin.export(at / "notes" / "plain.md"))
    yield lambda: opened(case, lambda book: book.memory.export(at / "notes" / "linked.md"))
    yield lambda: opened(case, lambda book: book.admin.backup(at / "notes" / "linked.md"))
    yield lambda: opened(
        case, lambda book: book.work(book.works.list()[0].id).artifact(at / "notes" / "linked.md")
    )
    yield lambda: opened(case, lambda book: book.rebuild())
    yield lambda: opened(case, lambda book: book.purge())


def opened(case: Case, act: Callable[[Book], object]) -> None:
    with commonplace.open(case.book, create=False, mirror=case.mirror, trust=True) as book:
        act(book)


@contextmanager
def swapping(case: Case) -> Iterator[None]:
    """At one of the calls that open something, the folder of the daily logs becomes a link to the user's files."""
    moment, count, real = getattr(case, "moment", 0), 0, safe._open

    def open_(*args: Any, **named: Any) -> int:
        nonlocal count
        count += 1
        if count == moment and (case.mirror / "memory").is_dir():
            (case.mirror / "memory").rename(case.clone / "moved")
            (case.mirror / "memory").symlink_to(case.outside)
        return real(*args, **named)

    with mock.patch.object(safe, "_open", open_) if moment else mock.MagicMock():
        yield


def tree(root: Path, *, but: str = "") -> dict[str, tuple[object, ...]]:
    """All that lies below a folder: kinds, modes, contents, and where links lead. Not the files named `but…`."""
    found: dict[str, tuple[object, ...]] = {}
    for place, folder_names, names in os.walk(root):
        for name in (*folder_names, *names):
            path = Path(place, name)
            known = path.lstat()
            if but and (name.startswith(but) or any(part.startswith(but) for part in path.parts)):
                continue
            more: tuple[object, ...] = ()
            if stat.S_ISLNK(known.st_mode):
                more = (str(path.readlink()),)
            elif stat.S_ISREG(known.st_mode):
                more = (known.st_ino, known.st_mtime_ns, path.read_bytes())
            found[str(path.relative_to(root))] = (
                stat.S_IFMT(known.st_mode),
                stat.S_IMODE(known.st_mode),
                *more,
            )
    return found


def powers(root: Path) -> set[tuple[int, int]]:
    """The plain files below a folder that have more than rw bits, by device and inode."""
    files = [path.lstat() for path in root.rglob("*")]
    return {(one.st_dev, one.st_ino) for one in files if stat.S_ISREG(one.st_mode) and one.st_mode & 0o7111}


def differences(before: dict[str, Any], after: dict[str, Any]) -> str:
    return ", ".join(
        sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    )


# the run


def make_template(folder: Path) -> None:
    """A clone as its author has it: a repository with a book, and markdown beside it."""
    (folder / ".git" / "hooks").mkdir(parents=True)
    (folder / ".git" / "config").write_text("[core]\n")
    with commonplace.open(folder / ".commonplace" / "book.db", mirror=True) as book:
        book.memory.configure(exclusions="off")
        book.remember("Tea is served at four.", title="tea")
        book.as_actor("ada").documents.log("The build was red.")
        book.work(name="w", goal="ship it")
    for left in (folder / ".commonplace").glob("book.db[-.]*"):
        shutil.rmtree(left) if left.is_dir() else left.unlink()


def judge(case: Case, shape: str) -> list[str]:
    """What one forged folder does to the user's other files."""
    wrong: list[str] = []

    def looks(before: dict[str, Any], what: str) -> None:
        after = tree(case.outside)
        if after != before:
            wrong.append(f"{what} changed outside the folder: {differences(before, after)}")

    def tried(act: Callable[[], object], what: str) -> BaseException | None:
        try:
            act()
        except CommonplaceError as error:
            return error
        except Exception as error:  # noqa: BLE001  an error of no known type is a finding
            wrong.append(f"{what} raises {type(error).__name__}: {error}")
        return None

    before, inside = tree(case.outside), tree(case.clone, but="book.db")
    tried(lambda: read(case), "reading")
    looks(before, "reading")
    refused = tried(lambda: sync_untrusted(case), "syncing without trust")
    if refused is None:
        wrong.append("it was synced without trust")
    if tree(case.clone, but="book.db") != inside:
        told = differences(inside, tree(case.clone, but="book.db"))
        wrong.append(f"reading, or syncing without trust, changed {told}")
    looks(before, "syncing without trust")
    could = powers(case.clone)
    with swapping(case):
        for n, act in enumerate(use(case)):
            tried(act, f"act {n}")
            looks(before, f"act {n}")
    more = powers(case.clone) - could
    if more:
        wrong.append(f"{len(more)} files in the folder were made executable")
    with suppress(CommonplaceError), commonplace.open(case.book, create=False, mirror=False) as book:
        held = [event.id for event in book.events() if SECRET in str(event.payload)]
        if held and not shape.startswith("hard link"):
            wrong.append("a file outside the folder was taken in")
    return wrong


@fault(26, "forged", len(SHAPES), 8)
def fault_26(count: int, seed: int, tmp: Path) -> Result:
    """`count` folders that somebody else has prepared, read, then synced without trust and with it."""
    result, names = Result(), list(SHAPES)
    state = {"XDG_STATE_HOME": str(tmp / "theirs")}
    with mock.patch.dict(os.environ, state):
        make_template(tmp / "template")
    for case_seed in range(seed, seed + count):
        shape = names[case_seed % len(names)]
        case = Case(tmp / f"case-{case_seed}", random.Random(case_seed))
        with mock.patch.dict(os.environ, {"XDG_STATE_HOME": str(case.root / "state")}):
            case.make(tmp / "template")
            SHAPES[shape](case)
            result.problem(f"{shape} (seed {case_seed})", *in_time(case, shape))
        result.outcomes[shape.partition(":")[0].partition(" at ")[0]] += 1
        result.cases += 1
        shutil.rmtree(case.root, ignore_errors=True)
    return result


def in_time(case: Case, shape: str) -> list[str]:
    """What is wrong with a case, also if it never comes to its end."""
    wrong: list[str] = []
    thread = threading.Thread(target=lambda: wrong.extend(judge(case, shape)), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return ["it hangs"] if thread.is_alive() else wrong
