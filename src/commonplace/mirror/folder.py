"""The mirror's folder: pages written as files, hand edits found in them and handed on.

Nothing that a person saved is overwritten unseen. A new text is swapped with the file in one step, and what comes
out is looked at: if it is not what was read before, somebody saved in between, and it goes back. It is looked at
again some time later, for an editor that had the old file open writes into that one.

All that is remembered lies under `.mirror/` and may be deleted: the files then say themselves what they can. Nor is it
believed: others may have prepared the folder. Every file is reached through a `Folder`, so no record, page
or link leads outside, and what cannot be read as a record is as good as deleted.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path, PurePosixPath

import msgspec

from ..errors import BadInput, StorageFailed, UnsafePath
from ..files.safe import SHARED, TEMPORARY, Folder
from .pages import (
    Added,
    Block,
    Clash,
    Edit,
    LastWritten,
    Page,
    Parsed,
    Part,
    Taken,
    advanced,
    check,
    check_paths,
    is_inside,
    lay,
    merge,
    parse,
    render,
    settled,
    stamp_of,
    without,
    without_blocks,
)

ROUNDS = 5
"""How often a file is tried again that a person keeps saving while it is written."""

OWN = ".mirror"
"""The folder of what is remembered."""
SWAP = f"{OWN}/swap"
SPARE = re.compile(r"[0-9a-f]{32}-(none|[0-9a-f]{16})-(none|[0-9a-f]{16})-[0-9a-f]{8}o?")
"""The name of a file that was swapped out."""


@dataclass(slots=True)
class Report:
    """What one sync did: paths, edits with their outcomes, every clash that stands, and files that were left alone
    with the reason."""

    written: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    clashes: list[Clash] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)

    @property
    def news(self) -> bool:
        return bool(self.written or self.taken or self.clashes or self.refused or self.removed)


@dataclass(frozen=True, slots=True)
class FileDifference:
    """How a file stands: hand edits that wait, clashes, why it cannot be read, and whether it is to be written."""

    path: str
    edits: tuple[Edit, ...] = ()
    clashes: tuple[Clash, ...] = ()
    refused: str = ""
    behind: bool = False


@dataclass(frozen=True, slots=True)
class _ReadFile:
    """A file as it was read, what was remembered of it, and what became of the edits in it."""

    path: str
    raw: bytes | None
    text: str
    parsed: Parsed
    last: LastWritten
    answers: dict[str, Taken] = field(default_factory=dict)


class _Refused(Exception):
    """A file that is left alone, with the reason."""


LEFT_ALONE = (_Refused, UnsafePath, OSError)
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


@dataclass(frozen=True, slots=True)
class _Named:
    """Whose record a record is."""

    path: str


class Mirror:
    """A folder that shows pages and takes in what people change in them.

    `pages` gives all pages as they are now. `take` gets the hand edits of one file and answers each of them; after
    that `pages` shows the outcome. The same edit may come twice if a process died in between: its id tells.
    `clash` is told of each clash once it is found. `grace` is how many seconds a swapped-out file is kept to be
    looked at again. New files have `mode`, less the umask.
    """

    def __init__(
        self,
        folder: Path,
        pages: Callable[[], Iterable[Page]],
        take: Callable[[str, list[Edit]], list[Taken]],
        *,
        clash: Callable[[Clash], None],
        grace: float = 2.0,
        of: str = "pages",
        scope: str = "",
        raw: Callable[[], Mapping[str, bytes]] = dict,
        mode: int = SHARED,
    ) -> None:
        self._mode = mode
        self.folder = Path(folder).absolute()
        self._files = Folder(self.folder)
        self._of, self._scope, self._raw_pages = of, scope, raw
        self._pages, self._take, self._clash, self._grace = pages, take, clash, grace
        self._settled: dict[str, tuple[Page, bytes | None]] = {}  # pages and files that are known to agree

    # the two things it does

    def sync(self) -> Report:
        """Take in hand edits, then write what changed. A second one right after it finds nothing to do."""
        report = Report()
        with self._locked():
            pages = check(self._pages())
            todo, done = list(pages), dict[str, dict[str, Taken]]()
            for _ in range(ROUNDS):
                tried = [self._take_in(pages[path], done.get(path, {}), report) for path in todo]
                files = [file for file in tried if file is not None]
                done |= {path: {} for path in todo} | {file.path: file.answers for file in files}
                if any(file.answers for file in files):
                    pages = check(self._pages())
                ready = [file for file in files if file.path in pages]
                todo = [file.path for file in ready if not self._write(pages[file.path], file, report)]
                todo += [path for path in pages if path not in done]
                if not todo:
                    break
            report.refused += [(path, "it is saved again and again: it comes next time") for path in todo]
            for path in sorted(self._remembered() - set(pages)):
                self._drop(path, report)
            self._write_raw(report)
        return report

    def watch(self, stop: threading.Event, on_report: Callable[[Report], None]) -> None:
        """Sync now, and again after each change in the folder or `poke`, until `stop` is set. Reports the first sync
        and each one that had anything to tell."""
        import watchfiles

        on_report(self.sync())
        due = True  # the watcher starts only now: look once more for what was saved before
        wait = max(int(self._grace * 1000), 100)
        for changes in watchfiles.watch(
            self.folder,
            watch_filter=lambda _, path: self._concerns(Path(path)),
            debounce=800,
            stop_event=stop,
            rust_timeout=wait,
            yield_on_timeout=True,
        ):
            if changes or due:
                report = self.sync()
                due = bool(self._spares())
                if report.news:
                    on_report(report)

    def poke(self) -> None:
        """Wake every process that watches this folder: the pages have changed."""
        self._files.write(f"{OWN}/poke", os.urandom(8))

    def status(self) -> list[FileDifference]:
        """The files that differ from their pages, and how. Changes nothing."""
        differences = []
        for path, page in check(self._pages()).items():
            try:
                file = self._read(path)
                merged = merge(file.last, page, file.parsed)
                behind = not merged.edits and not _fits(page, file, merged.parts)
                difference = FileDifference(path, tuple(merged.edits), tuple(merged.clashes), "", behind)
            except LEFT_ALONE as error:
                difference = FileDifference(path, refused=_message(error))
            differences += [difference] if difference != FileDifference(path) else []
        return differences

    def check_book(self) -> bool:
        """Whether the folder says that it shows what it should. Raises BadInput if it shows something else."""
        shown = shows(self.folder)
        if shown and shown != self._of:
            raise BadInput(
                f"{self.folder} shows another book: choose another folder, or remove {self.folder / OWN}"
            )
        return bool(shown)

    def _write_raw(self, report: Report) -> None:
        """Files for programs, which have no room for marks: written whole. One that a person has changed is kept
        under another name."""
        wrote = self._wrote()
        wanted = check_paths(dict(self._raw_pages()))
        for path in sorted({*wrote, *wanted}):
            text = wanted.get(path)
            try:
                before = self._files.read(path)
                if before == text:
                    continue
                if before is not None and [_tag(before)] != wrote.get(path, [])[:1]:
                    kept = f"{path}.edited-{os.urandom(4).hex()}"
                    self._files.replace(path, kept)
                    name = PurePosixPath(kept).name
                    report.refused.append((path, f"it was edited by hand, and is kept as {name}"))
                self._forget_lines(
                    path, {*wrote.get(path, [])[1:]} - {*map(_tag, (text or b"").splitlines())}
                )
                if text is not None:
                    self._put(path, text)
                    report.written.append(path)
                elif before is not None:
                    self._files.unlink(path)
                    report.removed.append(path)
            except LEFT_ALONE as error:
                report.refused.append((path, _message(error)))
        now = {path: [_tag(text), *map(_tag, text.splitlines())] for path, text in wanted.items()}
        if now != wrote:
            self._files.write(f"{OWN}/raw.json", json.dumps(now).encode())

    def _wrote(self) -> dict[str, list[str]]:
        """The files for programs that were written, with the hashes of each as a whole and of its lines."""
        try:
            wrote = msgspec.json.decode(
                self._files.read(f"{OWN}/raw.json") or b"{}", type=dict[str, list[str]]
            )
        except UNREADABLE:
            return {}
        return {path: tags for path, tags in wrote.items() if is_inside(path)}

    def _put(self, path: str, raw: bytes, like: os.stat_result | None = None) -> None:
        """Write a file for people or programs. It is made where left-overs of a crash are found and removed."""
        fresh = f"{SWAP}/{TEMPORARY}{os.urandom(8).hex()}"
        self._files.write(fresh, raw, self._mode, like)
        self._files.replace(fresh, path)

    def _forget_lines(self, path: str, lost: set[str]) -> None:
        """A log only grows: lines that were written and are to be there no longer were erased, in copies as well."""
        for copy in self._beside(path, f"{PurePosixPath(path).name}.edited-") if lost else ():
            lines = (self._files.read(copy) or b"").splitlines(keepends=True)
            kept = [line for line in lines if _tag(line.rstrip()) not in lost]
            if kept != lines:
                self._put(copy, b"".join(kept), self._files.stat(copy))

    def _beside(self, path: str, start: str) -> list[str]:
        """The files in the folder of a file whose names start so."""
        above = path.rpartition("/")[0]
        names = [name for name in self._files.names(above) if name.startswith(start)]
        return [f"{above}/{name}" if above else name for name in names]

    def files(self) -> list[Path]:
        """Every file that may hold what pages held: those written, what was put beside them, and what is remembered."""
        paths = []
        for path in {*self._remembered(), *self._wrote()}:
            name = PurePosixPath(path)
            try:
                beside = [
                    *self._beside(path, f"{name.stem}.saved-"),
                    *self._beside(path, f"{name.name}.edited-"),
                ]
            except UnsafePath:  # it lies behind a link: nothing of ours was ever written there
                continue
            paths += [self.folder / each for each in (path, *beside)]
        return [*sorted(paths), self.folder / OWN]

    def erase(self, ids: Collection[str], anew: Callable[[str], bool] = lambda _: False) -> None:
        """Take blocks out of every file and of all that is remembered, whatever people made of them. Pages for which
        `anew` holds hold what is gone in their heads: they go, to be written again. What lies behind a link was never
        written by us, and is left alone."""
        with self._locked():
            for path in sorted(self._remembered()):
                if anew(path):
                    for spare in self._spares(path):
                        self._files.unlink(spare)
                    with suppress(UnsafePath):
                        self._files.unlink(path)
                    self._files.unlink(self._base(path))
                else:
                    self._save(path, without(self._load(path), ids))
                    with suppress(UnsafePath):
                        self._erase_blocks(path, ids)
                    for spare in self._spares(path):
                        self._files.unlink(spare)

    def _erase_blocks(self, path: str, ids: Collection[str]) -> None:
        for _ in range(ROUNDS):
            raw = self._files.read(path)
            if raw is None:
                return
            rest = without_blocks(raw.decode("utf-8", "surrogateescape"), ids)
            if rest == raw:
                return
            spare = self._spare(path, rest, raw)
            self._files.write(spare, rest, self._mode, self._files.stat(path))
            landed = self._files.exchange(spare, path)
            if landed and self._files.read(spare) == raw:
                return
            if landed:  # somebody saved it meanwhile: that text goes through it, too
                self._files.exchange(spare, path)

    def _concerns(self, path: Path) -> bool:
        return self.folder / OWN not in path.parents or path.name == "poke"

    # one file

    def _take_in(self, page: Page, before: dict[str, Taken], report: Report) -> _ReadFile | None:
        """Read a file and hand on the edits that have no answer yet. None: nothing is to be done, or can be."""
        try:
            self._look_again(page.path, report)
            if self._is_current(page):
                report.unchanged.append(page.path)
                return None
            file = self._read(page.path)
            edits = merge(file.last, page, file.parsed, before).edits
            if edits:  # remember first, so that they have the same ids after a crash
                file = replace(file, last=replace(file.last, asked=True))
                self._save(page.path, file.last)
        except LEFT_ALONE as error:
            report.refused.append((page.path, _message(error)))
            return None
        answers = {
            edit.id: Taken(edit, False, why) for edit in edits if (why := _closed(page, file.parsed, edit))
        }
        asked = [edit for edit in edits if edit.id not in answers]
        answers |= {edit.edit.id: edit for edit in (self._take(page.path, asked) if asked else [])}
        if set(answers) != {edit.id for edit in edits}:
            raise BadInput(f"take answered other edits of {page.path} than it was given: answer each once")
        report.taken += answers.values()
        return replace(file, answers=before | answers)

    def _is_current(self, page: Page) -> bool:
        """Whether a file is, byte for byte, as it was last written, and its page has not changed since. Such a file
        need not be parsed and merged."""
        raw = self._files.read(page.path)
        if self._settled.get(page.path) == (page, raw):
            return True
        last = self._load(page.path)
        open_edits = last.asked or last.taken
        if open_edits or last.newest != stamp_of(page) or render(page).encode() != raw:
            return False
        self._settled[page.path] = (page, raw)
        return True

    def _write(self, page: Page, file: _ReadFile, report: Report) -> bool:
        """Write a page over a file as it was read. False: somebody saved it meanwhile, so it has to go again."""
        merged = merge(file.last, page, file.parsed, file.answers)
        if merged.edits:
            return False  # what became of other edits has made an edit of a clash
        for clash in merged.clashes:
            if clash not in report.clashes:
                report.clashes.append(clash)
                if clash.id in merged.fresh:
                    self._clash(clash)
        fits = _fits(page, file, merged.parts)
        stamp = str(file.parsed.stamp) if fits else stamp_of(page)
        last = advanced(file.last, page, file.parsed, file.answers, stamp)
        try:
            if last != file.last:
                self._save(page.path, last)
            if not fits and not self._swap(file, lay(page.head, stamp, merged.parts), report):
                return False
            after = settled(last, os.urandom(8).hex())
            if after != last:
                self._save(page.path, after)
        except LEFT_ALONE as error:
            report.refused.append((page.path, _message(error)))
        else:
            (report.unchanged if fits else report.written).append(page.path)
            if fits and not merged.clashes:
                self._settled[page.path] = (page, file.raw)
        return True

    def _drop(self, path: str, report: Report) -> None:
        """Take away the file of a page that is no more, unless somebody has edited it."""
        try:
            self._look_again(path, report)
            file = self._read(path)
            if file.raw is not None:
                blocks = tuple(Block(id, text) for id, text in file.last.texts.items())
                merged = merge(file.last, Page(path, "", blocks), file.parsed)
                if merged.edits or any(part.id is None or part.clash or part.noted for part in merged.parts):
                    raise _Refused("no page holds it any more, but it was edited: keep it or delete it")
                self._files.replace(path, self._spare(path, None, file.raw))
                if self._look_again(path, report):
                    return
                report.removed.append(path)
                with suppress(OSError):  # a folder that still holds something stays
                    for above in PurePosixPath(path).parents[:-1]:
                        self._files.rmdir(str(above))
            elif not self._spares(path):
                self._files.unlink(self._base(path))
        except LEFT_ALONE as error:
            report.refused.append((path, _message(error)))

    # reading and swapping

    def _read(self, path: str) -> _ReadFile:
        raw = self._files.read(path)
        try:
            text = (raw or b"").decode("utf-8-sig").replace("\r\n", "\n")
        except UnicodeDecodeError:
            raise _Refused("it is not UTF-8 text: save it as UTF-8") from None
        file = parse(text)
        if file.problems:
            raise _Refused("; ".join(file.problems))
        return _ReadFile(path, raw, text, file, self._load(path))

    def _swap(self, file: _ReadFile, text: str, report: Report) -> bool:
        """Put a text in a file's place; False if that was not the file that was read, which then is back."""
        raw, path = text.encode(), file.path
        if file.raw is not None and file.raw.count(b"\r\n") * 2 > file.raw.count(b"\n"):
            raw = raw.replace(b"\n", b"\r\n")
        spare = self._spare(path, raw, file.raw)
        try:
            self._files.write(spare, raw, self._mode, None if file.raw is None else self._files.stat(path))
            if file.raw is not None:
                landed = self._files.exchange(spare, path)
                return not self._look_again(path, report) and landed
            self._files.link(spare, path)
        except (FileExistsError, FileNotFoundError):
            return False
        self._files.unlink(spare)
        return True

    def _look_again(self, path: str, report: Report) -> bool:
        """Look at what was swapped out: whether it holds a text of a person's that nobody has seen. Then it goes
        back, or, if somebody else has saved since, into a file beside. It also goes back if there is no file now."""
        restored, files = False, self._files
        spares = sorted(self._spares(path), key=lambda spare: -self._changed_at(spare))
        ours = {spare.split("-")[1] for spare in spares}
        dropped = False
        for spare in spares:
            _, wrote, expected, _ = spare.split("-")
            self._make_plain(spare)
            tag, current = _tag(files.read(spare)), _tag(files.read(path))
            if spare is spares[0]:  # the last that was done may have been to take the file away
                dropped = wrote == "none" and tag == expected
            if current == "none" and not (dropped and tag in (wrote, expected)):
                restored = True  # nobody wanted it gone: it was on its way
                files.link(spare, path)
            elif current != "none" and self._same(spare, path):
                files.unlink(spare)
            elif tag in (wrote, expected):
                if abs(time.time_ns() - self._changed_at(spare)) > self._grace * 1e9:
                    files.unlink(spare)
            else:
                restored = True
                landed = current in ours and files.exchange(spare, path)
                if not landed or _tag(files.read(spare)) not in ours:
                    name = PurePosixPath(path)
                    beside = name.with_name(f"{name.stem}.saved-{os.urandom(4).hex()}{name.suffix}")
                    files.replace(spare, str(beside))
                    note = f"two saves crossed: one was kept as {beside.name}; take from it what you need"
                    report.refused.append((path, note))
        return restored

    def _make_plain(self, spare: str) -> None:
        """A file that may go back gets no more than rw bits: nobody knows who made it. It is copied, and not changed,
        because it may have a second name elsewhere."""
        status = self._files.stat(spare)
        if status is not None and status.st_mode & 0o7777 & ~SHARED:
            self._files.write(spare, self._files.read(spare) or b"", self._mode, status)

    def _changed_at(self, path: str) -> int:
        """When a file or its names were last changed, in nanoseconds; 0 if it is gone."""
        status = self._files.stat(path)
        return 0 if status is None else status.st_ctime_ns

    def _same(self, path: str, other: str) -> bool:
        """Whether two paths are names of one file."""
        first, second = self._files.stat(path), self._files.stat(other)
        return first is not None and second is not None and os.path.samestat(first, second)

    def _spare(self, path: str, wrote: bytes | None, expected: bytes | None) -> str:
        """A new name that says which file it was, what was put in its place and what should come out."""
        return f"{SWAP}/{_key(path)}-{_tag(wrote)}-{_tag(expected)}-{os.urandom(4).hex()}"

    def _spares(self, path: str | None = None) -> list[str]:
        start = "" if path is None else f"{_key(path)}-"
        names = self._files.names(SWAP)
        return [f"{SWAP}/{name}" for name in names if SPARE.fullmatch(name) and name.startswith(start)]

    # what is remembered

    def _base(self, path: str) -> str:
        return f"{OWN}/base/{_key(path)}.json"

    def _load(self, path: str) -> LastWritten:
        try:
            return msgspec.json.decode(self._files.read(self._base(path)) or b"", type=LastWritten)
        except UNREADABLE:  # damaged is as good as deleted
            return LastWritten(token=os.urandom(8).hex())

    def _save(self, path: str, last: LastWritten) -> None:
        raw = json.dumps({"path": path, **asdict(last)}, ensure_ascii=False)
        self._files.write(self._base(path), raw.encode())

    def _remembered(self) -> set[str]:
        """The paths of all pages that are remembered."""
        paths = set()
        for name in self._files.names(f"{OWN}/base"):
            try:
                raw = self._files.read(f"{OWN}/base/{name}") or b""
                path = msgspec.json.decode(raw, type=_Named).path
                if is_inside(path) and self._base(path) == f"{OWN}/base/{name}":
                    paths.add(path)
            except (*UNREADABLE, *LEFT_ALONE):
                continue  # damaged: then the file, if there is one, is nobody's
        return paths

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One sync at a time, in all processes."""
        with ExitStack() as held:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                for own in (OWN, f"{OWN}/base", SWAP):
                    self._files.mkdir(own, 0o700)
                held.enter_context(self._files.locked(f"{OWN}/lock"))
            except OSError as error:
                trouble = f"the mirror cannot be kept in {self.folder}: {_message(error)}"
                raise StorageFailed(f"{trouble}. Give a folder that can be written") from error
            for own in (f"{OWN}/base", SWAP):
                for name in self._files.names(own):
                    if name.startswith(TEMPORARY):
                        self._files.unlink(f"{own}/{name}")
            if self._files.stat(f"{OWN}/.gitignore") is None:
                self._files.write(f"{OWN}/.gitignore", b"*\n")  # it belongs to this copy of the folder alone
            if not self.check_book():
                self._files.write(f"{OWN}/book", f"{self._of}\n{self._scope}\n".encode())
            yield


def shows(folder: Path) -> str | None:
    """The id of the book that a folder shows; None if it shows none, or does not say so in a plain file."""
    return _shows(folder)[0]


def shows_scope(folder: Path) -> str:
    """The key of the scope that a folder shows of its book; "" for the root."""
    return _shows(folder)[1]


def _shows(folder: Path) -> tuple[str | None, str]:
    try:
        raw = Folder(folder).read(f"{OWN}/book")
    except (UnsafePath, OSError):
        return None, ""
    if raw is None:
        return None, ""
    book, _, scope = raw[:400].decode("utf-8", "replace").partition("\n")
    return book.strip(), scope.strip()


def _closed(page: Page, file: Parsed, edit: Edit) -> str:
    """Why a page takes in no such edit; empty if it does."""
    if not page.editable:
        return "this page only shows what is kept elsewhere, and takes in no edits"
    last = next((part.id for part in reversed(file.parts) if part.id is not None), None)
    if page.appends and not (isinstance(edit, Added) and edit.copied_id is None and edit.after_id == last):
        return "this page only grows: add new text at its end"
    return ""


def _fits(page: Page, file: _ReadFile, parts: list[Part]) -> bool:
    """Whether a file already is as it should be. The version that it names may be older if only the person has
    changed it since: an editor that shows it is not disturbed."""
    stamp = file.parsed.stamp
    return stamp in (file.last.newest, stamp_of(page)) and lay(page.head, stamp, parts) == file.text


def _message(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _key(path: str) -> str:
    return sha256(path.encode()).hexdigest()[:32]


def _tag(raw: bytes | None) -> str:
    return "none" if raw is None else sha256(raw).hexdigest()[:16]
