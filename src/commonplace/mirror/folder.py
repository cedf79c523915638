"""The mirror's folder: pages written as files, hand edits found in them and handed on.

Nothing that a person saved is overwritten unseen. A new text is swapped with the file in one step, and what comes
out is looked at: if it is not what was read before, somebody saved in between, and it goes back. It is looked at
again some time later, for an editor that had the old file open writes into that one.

All that is remembered lies under `.mirror/` and may be deleted: the files then say themselves what they can.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path

from ..errors import BadInput, StorageFailed
from .pages import (
    Added,
    Block,
    Clash,
    Edit,
    Known,
    Page,
    Parsed,
    Part,
    Taken,
    advanced,
    check,
    check_paths,
    lay,
    merge,
    parse,
    settled,
    stamp_of,
    without,
    without_blocks,
)

ROUNDS = 5
"""How often a file is tried again that a person keeps saving while it is written."""


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
class Difference:
    """How a file stands: hand edits that wait, clashes, why it cannot be read, and whether it is to be written."""

    path: str
    edits: tuple[Edit, ...] = ()
    clashes: tuple[Clash, ...] = ()
    refused: str = ""
    behind: bool = False


@dataclass(frozen=True, slots=True)
class _Seen:
    """A file as it was read, what was remembered of it, and what became of the edits in it."""

    path: str
    raw: bytes | None
    text: str
    file: Parsed
    known: Known
    answers: dict[str, Taken] = field(default_factory=dict)


class _Refused(Exception):
    """A file that is left alone, with the reason."""


class Mirror:
    """A folder that shows pages and takes in what people change in them.

    `pages` gives all pages as they are now. `take` gets the hand edits of one file and answers each of them; after
    that `pages` shows the outcome. The same edit may come twice if a process died in between: its id tells.
    `clash` is told of each clash once it is found. `grace` is how many seconds a swapped-out file is kept to be
    looked at again.
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
        raw: Callable[[], Mapping[str, bytes]] = dict,
    ) -> None:
        self.folder = Path(folder).absolute()
        self._own = self.folder / ".mirror"
        self._of, self._raw_pages = of, raw
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
                seen = [one for one in tried if one is not None]
                done |= {path: {} for path in todo} | {one.path: one.answers for one in seen}
                if any(one.answers for one in seen):
                    pages = check(self._pages())
                ready = [one for one in seen if one.path in pages]
                todo = [one.path for one in ready if not self._write(pages[one.path], one, report)]
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
        """Wake whoever watches this folder, in any process: the pages have changed."""
        _store(self._own / "poke", os.urandom(8))

    def status(self) -> list[Difference]:
        """The files that differ from their pages, and how. Changes nothing."""
        found = []
        for path, page in check(self._pages()).items():
            try:
                seen = self._read(path)
                merged = merge(seen.known, page, seen.file)
                behind = not merged.edits and not _fits(page, seen, merged.parts)
                one = Difference(path, tuple(merged.edits), tuple(merged.clashes), "", behind)
            except (_Refused, OSError) as error:
                one = Difference(path, refused=_told(error))
            found += [one] if one != Difference(path) else []
        return found

    def _write_raw(self, report: Report) -> None:
        """Files for programs, which have no room for marks: written whole. One that a person has changed is kept
        under another name."""
        ledger = self._own / "raw.json"
        wrote: dict[str, list[str]] = json.loads(_bytes(ledger) or b"{}")
        wanted = check_paths(dict(self._raw_pages()))
        for path in sorted({*wrote, *wanted}):
            target, text = self.folder / path, wanted.get(path)
            try:
                before = self._raw(path)
                if before == text:
                    continue
                if before is not None and [_tag(before)] != wrote.get(path, [])[:1]:
                    kept = target.with_name(f"{target.name}.edited-{os.urandom(4).hex()}")
                    target.rename(kept)
                    report.refused.append((path, f"it was edited by hand, and is kept as {kept.name}"))
                self._forget_lines(
                    target, {*wrote.get(path, [])[1:]} - {*map(_tag, (text or b"").splitlines())}
                )
                if text is not None:
                    _store(target, text)
                    report.written.append(path)
                elif before is not None:
                    target.unlink(missing_ok=True)
                    report.removed.append(path)
            except (_Refused, OSError) as error:
                report.refused.append((path, _told(error)))
        now = {path: [_tag(text), *map(_tag, text.splitlines())] for path, text in wanted.items()}
        if now != wrote:
            _store(ledger, json.dumps(now).encode())

    def _forget_lines(self, target: Path, lost: set[str]) -> None:
        """A log only grows: lines that were written and are to be there no longer were erased, in copies as well."""
        for copy in target.parent.glob(f"{target.name}.edited-*") if lost else ():
            kept = [
                line
                for line in copy.read_bytes().splitlines(keepends=True)
                if _tag(line.rstrip()) not in lost
            ]
            _store(copy, b"".join(kept))

    def files(self) -> list[Path]:
        """Every file that may hold what pages held: those written, what was put beside them, and what is remembered."""
        found = []
        for path in {*self._remembered(), *json.loads(_bytes(self._own / "raw.json") or b"{}")}:
            target = self.folder / path
            found += [
                target,
                *target.parent.glob(f"{target.stem}.saved-*"),
                *target.parent.glob(f"{target.name}.edited-*"),
            ]
        return [*sorted(found), self._own]

    def erase(self, ids: Collection[str], anew: Callable[[str], bool] = lambda _: False) -> None:
        """Take blocks out of every file and of all that is remembered, whatever people made of them. Pages for which
        `anew` holds hold what is gone in their heads: they go, to be written again."""
        with self._locked():
            for path in [path for path in sorted(self._remembered()) if anew(path)]:
                for one in (self.folder / path, self._base(path), *self._spares(path)):
                    one.unlink(missing_ok=True)
            for path in sorted(self._remembered()):
                self._save(path, without(self._load(path), ids))
                target = self.folder / path
                for _ in range(ROUNDS):
                    raw = None if target.is_symlink() else _bytes(target)
                    if raw is None:
                        break
                    rest = without_blocks(raw.decode("utf-8", "surrogateescape"), ids)
                    if rest == raw:
                        break
                    spare = self._spare(path, rest, raw)
                    _store(spare, rest, target.stat().st_mode)
                    landed = _exchange(spare, target)
                    if landed and _bytes(spare) == raw:
                        break
                    if landed:  # somebody saved it meanwhile: that text goes through it, too
                        _exchange(spare, target)
                for spare in self._spares(path):
                    spare.unlink(missing_ok=True)

    def _concerns(self, path: Path) -> bool:
        return self._own not in path.parents or path.name == "poke"

    # one file

    def _take_in(self, page: Page, before: dict[str, Taken], report: Report) -> _Seen | None:
        """Read a file and hand on the edits that have no answer yet. None: nothing is to be done, or can be."""
        try:
            self._look_again(page.path, report)
            if self._settled.get(page.path) == (page, self._raw(page.path)):
                report.unchanged.append(page.path)
                return None
            seen = self._read(page.path)
            edits = merge(seen.known, page, seen.file, before).edits
            if edits:  # remember first, so that they have the same ids after a crash
                seen = replace(seen, known=replace(seen.known, asked=True))
                self._save(page.path, seen.known)
        except (_Refused, OSError) as error:
            report.refused.append((page.path, _told(error)))
            return None
        answers = {one.id: Taken(one, False, why) for one in edits if (why := _closed(page, seen.file, one))}
        asked = [one for one in edits if one.id not in answers]
        answers |= {one.edit.id: one for one in (self._take(page.path, asked) if asked else [])}
        if set(answers) != {one.id for one in edits}:
            raise BadInput(f"take answered other edits of {page.path} than it was given: answer each once")
        report.taken += answers.values()
        return replace(seen, answers=before | answers)

    def _write(self, page: Page, seen: _Seen, report: Report) -> bool:
        """Write a page over a file as it was read. False: somebody saved it meanwhile, so it has to go again."""
        merged = merge(seen.known, page, seen.file, seen.answers)
        if merged.edits:
            return False  # what became of other edits has made an edit of a clash
        for clash in merged.clashes:
            if clash not in report.clashes:
                report.clashes.append(clash)
                if clash.id in merged.fresh:
                    self._clash(clash)
        fits = _fits(page, seen, merged.parts)
        stamp = str(seen.file.stamp) if fits else stamp_of(page)
        known = advanced(seen.known, page, seen.file, seen.answers, stamp)
        try:
            if known != seen.known:
                self._save(page.path, known)
            if not fits and not self._swap(seen, lay(page.head, stamp, merged.parts), report):
                return False
            after = settled(known, os.urandom(8).hex())
            if after != known:
                self._save(page.path, after)
        except (_Refused, OSError) as error:
            report.refused.append((page.path, _told(error)))
        else:
            (report.unchanged if fits else report.written).append(page.path)
            if fits and not merged.clashes:
                self._settled[page.path] = (page, seen.raw)
        return True

    def _drop(self, path: str, report: Report) -> None:
        """Take away the file of a page that is no more, unless somebody has edited it."""
        try:
            self._look_again(path, report)
            seen = self._read(path)
            if seen.raw is not None:
                blocks = tuple(Block(id, text) for id, text in seen.known.texts.items())
                merged = merge(seen.known, Page(path, "", blocks), seen.file)
                if merged.edits or any(one.id is None or one.clash or one.noted for one in merged.parts):
                    raise _Refused("no page holds it any more, but it was edited: keep it or delete it")
                target, spare = self.folder / path, self._spare(path, None, seen.raw)
                target.rename(spare)
                if self._look_again(path, report):
                    return
                report.removed.append(path)
                with suppress(OSError):  # a folder that still holds something stays
                    for above in Path(path).parents[:-1]:
                        (self.folder / above).rmdir()
            elif not self._spares(path):
                self._base(path).unlink(missing_ok=True)
        except (_Refused, OSError) as error:
            report.refused.append((path, _told(error)))

    # reading and swapping

    def _raw(self, path: str) -> bytes | None:
        target = self.folder / path
        for one in (target, *target.parents):
            if one == self.folder:
                break
            if one.is_symlink():
                raise _Refused("it is a symbolic link or lies behind one: put a plain file there")
        return _bytes(target)

    def _read(self, path: str) -> _Seen:
        raw = self._raw(path)
        try:
            text = (raw or b"").decode("utf-8-sig").replace("\r\n", "\n")
        except UnicodeDecodeError:
            raise _Refused("it is not UTF-8 text: save it as UTF-8") from None
        file = parse(text)
        if file.problems:
            raise _Refused("; ".join(file.problems))
        return _Seen(path, raw, text, file, self._load(path))

    def _swap(self, seen: _Seen, text: str, report: Report) -> bool:
        """Put a text in a file's place; False if that was not the file that was read, which then is back."""
        raw, target = text.encode(), self.folder / seen.path
        if seen.raw is not None and seen.raw.count(b"\r\n") * 2 > seen.raw.count(b"\n"):
            raw = raw.replace(b"\n", b"\r\n")
        target.parent.mkdir(parents=True, exist_ok=True)
        spare = self._spare(seen.path, raw, seen.raw)
        try:
            _store(spare, raw, None if seen.raw is None else target.stat().st_mode)
            if seen.raw is not None:
                landed = _exchange(spare, target)
                return not self._look_again(seen.path, report) and landed
            target.hardlink_to(spare)
        except (FileExistsError, FileNotFoundError):
            return False
        spare.unlink()
        return True

    def _look_again(self, path: str, report: Report) -> bool:
        """Look at what was swapped out: whether it holds a text of a person's that nobody has seen. Then it goes
        back, or, if somebody else has saved since, into a file beside. It also goes back if there is no file now."""
        found, target = False, self.folder / path
        spares = sorted(self._spares(path), key=lambda spare: -spare.stat().st_ctime_ns)
        ours = {spare.name.split("-")[1] for spare in spares}
        dropped = False
        for spare in spares:
            _, wrote, seen, _ = spare.name.split("-")
            tag, current = _tag(_bytes(spare)), _tag(_bytes(target))
            if spare is spares[0]:  # the last that was done may have been to take the file away
                dropped = wrote == "none" and tag == seen
            if current == "none" and not (dropped and tag in (wrote, seen)):
                found = True  # nobody wanted it gone: it was on its way
                target.parent.mkdir(parents=True, exist_ok=True)
                target.hardlink_to(spare)
            elif current != "none" and spare.samefile(target):
                spare.unlink()
            elif tag in (wrote, seen):
                if abs(time.time() - spare.stat().st_ctime) > self._grace:
                    spare.unlink()
            else:
                found = True
                if current not in ours or not _exchange(spare, target) or _tag(_bytes(spare)) not in ours:
                    beside = target.with_name(f"{target.stem}.saved-{os.urandom(4).hex()}{target.suffix}")
                    spare.replace(beside)
                    told = f"two saves crossed: one was kept as {beside.name}; take from it what you need"
                    report.refused.append((path, told))
        return found

    def _spare(self, path: str, wrote: bytes | None, seen: bytes | None) -> Path:
        """A new name that says which file it was, what was put in its place and what should come out."""
        return self._own / "swap" / f"{_key(path)}-{_tag(wrote)}-{_tag(seen)}-{os.urandom(4).hex()}"

    def _spares(self, path: str | None = None) -> list[Path]:
        return list((self._own / "swap").glob(f"{'[0-9a-f]*' if path is None else _key(path)}-*"))

    # what is remembered

    def _base(self, path: str) -> Path:
        return self._own / "base" / f"{_key(path)}.json"

    def _load(self, path: str) -> Known:
        try:
            told = json.loads(_bytes(self._base(path)) or b"{}")
            return Known(
                token=told["token"],
                versions=tuple((stamp, blocks) for stamp, blocks in told["versions"]),
                texts=told["texts"],
                head=told["head"],
                taken=tuple((stamp, block, text, to) for stamp, block, text, to in told["taken"]),
                asked=told["asked"],
            )
        except (ValueError, KeyError, TypeError):  # damaged is as good as deleted
            return Known(token=os.urandom(8).hex())

    def _save(self, path: str, known: Known) -> None:
        _store(self._base(path), json.dumps({"path": path, **asdict(known)}, ensure_ascii=False).encode())

    def _remembered(self) -> set[str]:
        found = set()
        for base in (self._own / "base").glob("[0-9a-f]*.json"):
            try:
                path = json.loads(_bytes(base) or b"")["path"]
                found |= {path} if self._base(path) == base else set()
            except (ValueError, KeyError, TypeError, AttributeError, OSError, _Refused):
                continue  # damaged: then the file, if there is one, is nobody's
        return found

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One sync at a time, in all processes."""
        try:
            for own in (self._own, self._own / "base", self._own / "swap"):
                own.mkdir(parents=True, exist_ok=True)
                if own.is_symlink():
                    raise BadInput(f"{own} is a symbolic link, and what it points to is not ours: delete it")
            while True:
                fd = os.open(self._own / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
                fcntl.flock(fd, fcntl.LOCK_EX)
                if os.fstat(fd).st_nlink:
                    break
                os.close(fd)  # somebody has deleted it: lock the one that others would
        except OSError as error:
            told = f"the mirror cannot be kept in {self.folder}: {_told(error)}"
            raise StorageFailed(f"{told}. Give a folder that can be written") from error
        try:
            for left in self._own.glob("*/tmp-*"):
                left.unlink()
            if not (self._own / ".gitignore").exists():
                _store(self._own / ".gitignore", b"*\n")  # it belongs to this copy of the folder alone
            shown = (_bytes(self._own / "book") or b"").decode("utf-8", "replace").strip()
            if shown and shown != self._of:
                raise BadInput(
                    f"{self.folder} shows another book: choose another folder, or remove {self._own}"
                )
            if not shown:
                _store(self._own / "book", f"{self._of}\n".encode())
            yield
        finally:
            os.close(fd)


def _closed(page: Page, file: Parsed, edit: Edit) -> str:
    """Why a page takes in no such edit; empty if it does."""
    if not page.editable:
        return "this page only shows what is kept elsewhere, and takes in no edits"
    last = next((part.id for part in reversed(file.parts) if part.id is not None), None)
    if page.appends and not (isinstance(edit, Added) and edit.copied_id is None and edit.after_id == last):
        return "this page only grows: add new text at its end"
    return ""


def _fits(page: Page, seen: _Seen, parts: list[Part]) -> bool:
    """Whether a file already is as it should be. The version that it names may be older if only the person has
    changed it since: an editor that shows it is not disturbed."""
    stamp = seen.file.stamp
    return stamp in (seen.known.newest, stamp_of(page)) and lay(page.head, stamp, parts) == seen.text


def _told(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _key(path: str) -> str:
    return sha256(path.encode()).hexdigest()[:32]


def _tag(raw: bytes | None) -> str:
    return "none" if raw is None else sha256(raw).hexdigest()[:16]


def _bytes(path: Path) -> bytes | None:
    """A plain file's bytes; None if it is not there."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise _Refused("it is no plain file: move it away")
        return file.read()


def _store(path: Path, raw: bytes, mode: int | None = None) -> None:
    """Write a file that is whole or not there, on disk before it has its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"tmp-{path.name}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(beside, flags, 0o666), "wb") as file:
        if mode is not None:
            os.fchmod(file.fileno(), stat.S_IMODE(mode))
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def _exchange(spare: Path, target: Path) -> bool:
    """Swap two files in one step, or, where the system cannot, in steps that overwrite nothing. False: there is a
    new file in that place, which was left there."""
    if _renameat2(spare, target):
        return True
    out = spare.with_name(f"{spare.name}o")
    target.rename(out)
    try:
        target.hardlink_to(spare)
    except FileExistsError:
        return False
    out.replace(spare)
    return True


def _renameat2(one: Path, other: Path) -> bool:
    """Swap two names by the system's own call; False if it has none for this place."""
    import ctypes

    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if call(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code), str(other))
