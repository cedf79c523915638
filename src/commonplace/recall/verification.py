"""Verify before use: claims of items about files, symbols, lines and commands are checked against the repository.

What is cited must be there. What is only named in a text counts once it was there: a text may speak of other places.
The outcome is recorded with the file's hash, and only the record is read, so that an answer can be replayed.
"""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from itertools import islice
from pathlib import Path
from posixpath import join
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ..errors import BadInput
from ..ledger.checks import check_path
from ..ledger.encoding import canonical, convert, decode
from ..ledger.events import Event, draft, read_header
from ..ledger.keys import Key
from ..ledger.overlay import Overlay
from ..ledger.reader import ViewReader
from ..ledger.scopes import SCOPE
from ..memory.items import Item
from .shell_commands import NamedCommand, lacks, manifest, named_by, spoken_of

if TYPE_CHECKING:
    from ..ledger.ledger import At
    from ..session import Session

CHECKED = "memory.checked"
LARGEST = 2_000_000
"""The bytes of a file that is read; of a larger one it is only known whether it is there."""
MOST_CLAIMS = 20
MOST_PLACES = 1_000
"""How many lines that are alike are looked at for those that were cited."""

Read = Callable[[Path], tuple[str, str]]
"""A file's text, and its hash."""

_CITED = re.compile(r"(?P<file>[^\s:][^\n]*?)(?::(?P<first>\d{1,7})(?:-(?P<last>\d{1,7}))?)?")
_PATH = re.compile(
    r"(?<![\w/.:@-])(?P<file>(?:\.?[\w-]+/)*[\w-]+(?:\.[\w-]+)*\.[A-Za-z]\w{0,7})"
    r"(?::(?P<first>\d{1,7})(?:-(?P<last>\d{1,7}))?)?(?![\w/])"
)
_EXPLICIT = re.compile(r"(?:\./)*(?P<file>/?(?!\.\.?(?:/|$))[\w.@+~-]+(?:/(?!\.\.?(?:/|$))[\w.@+~-]+)*)")
"""A path of a file as a citation names it; also one without an ending, with a leading dot, or an absolute one."""
_QUOTED = re.compile(r"`([^`\n]{1,200})`")
_CALL = re.compile(r"([A-Za-z_][\w.]*)\(\)")


class FileClaim(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that can be looked up: a file, lines or a symbol in one, or a command with what it is to make."""

    file: str = ""
    symbol: str = ""
    first: int = 0
    last: int = 0
    command: str = ""
    target: str = ""
    folder: str = ""
    """Where the target is to be, if not in the repository's own folder."""
    if_there: bool = False
    """Whether nothing is said where that folder has no list of targets."""
    cited: bool = False
    """Whether it must be there; what is only named counts once it was there. A target must be where targets are."""

    @property
    def name(self) -> str:
        where = f":{self.first}-{self.last}" if self.first else ""
        within = f" in {self.folder}" if self.folder else ""
        return (
            f"{self.file}{where} {self.symbol}".strip()
            if self.file
            else f"$ {self.command} {self.target}".strip() + within
        )


def claims(item: Item) -> tuple[FileClaim, ...]:
    """The claims of an item that can be looked up."""
    return tuple(dict.fromkeys((*_cited(item), *_named(item))))[:MOST_CLAIMS]


def _cited(item: Item) -> Iterator[FileClaim]:
    for citation in item.citations:
        match = _CITED.fullmatch(citation.strip())
        path = _EXPLICIT.fullmatch(match["file"]) if match else None
        if match and path:
            # A word without an ending may name something else than a file, and an absolute path another machine's.
            dotted = path["file"].startswith(".") or "/" in path["file"][1:]
            sure = bool(_PATH.fullmatch(path["file"]) or (dotted and match["first"]))
            sure = sure and not path["file"].startswith("/")
            yield msgspec.structs.replace(_claim(match, cited=sure), file=path["file"])
    for ref in item.code_refs:
        lines = re.fullmatch(r"(\d{1,7})(?:-(\d{1,7}))?", str(ref.get("lines") or ""))
        first = int(lines[1]) if lines else 0
        last = int(lines[2] or lines[1]) if lines else 0
        if ref.get("file"):
            yield FileClaim(str(ref["file"]), str(ref.get("symbol") or "")[:200], first, last, cited=True)


def _named(item: Item) -> Iterator[FileClaim]:
    text = item.text
    files = [*dict.fromkeys(map(_claim, _PATH.finditer(text)))][:MOST_CLAIMS]
    yield from files
    for match in _QUOTED.finditer(text):
        call = _CALL.fullmatch(match[1])
        if call:
            yield from (FileClaim(claim.file, call[1]) for claim in files)
        elif not _PATH.fullmatch(match[1]):
            yield from (_of_command(named, cited=True) for named in named_by(match[1]))
    yield from (
        _of_command(named, cited=False) for named in islice(spoken_of(_QUOTED.sub("``", text)), MOST_CLAIMS)
    )


def _of_command(named: NamedCommand, cited: bool) -> FileClaim:
    program, target, file, folder, if_there = named
    sure = cited and bool(target)
    return FileClaim(file, command=program, target=target, folder=folder, if_there=if_there, cited=sure)


def _claim(match: re.Match[str], cited: bool = False) -> FileClaim:
    first = int(match["first"] or 0)
    return FileClaim(match["file"], "", first, int(match["last"] or first), cited=cited)


class CitedLines(NamedTuple):
    """The lines that a citation names, or why they cannot be seen."""

    text: str = ""
    file: str = ""
    """The name of the file, without its folder."""
    wrong: str = ""
    named: bool = True
    """Whether it names a file at all."""


def cited_lines(root: Path, citation: str) -> CitedLines:
    """Look up one citation (file:line, file:first-last) in a repository."""
    match = _CITED.fullmatch(citation.strip())
    if match is None or not match["first"] or "://" in citation:
        return CitedLines(wrong="it cannot be looked up: write file:line", named=False)
    try:
        path = (root / match["file"]).resolve()
        if not path.is_relative_to(root.resolve()):
            return CitedLines(wrong="it lies outside the repository")
        if not path.is_file():
            named = _EXPLICIT.fullmatch(match["file"]) is not None
            return CitedLines(wrong="there is no such file in the repository", named=named)
        if path.stat().st_size > LARGEST:
            return CitedLines(wrong=f"the file has more than {LARGEST:,} bytes")
        lines = path.read_bytes().decode(errors="replace").splitlines()
    except (OSError, ValueError) as error:
        return CitedLines(wrong=f"it cannot be read ({type(error).__name__})")
    first, last = int(match["first"]), int(match["last"] or match["first"])
    if not 1 <= first <= last <= len(lines):
        return CitedLines(wrong=f"the file has no lines {first}-{last}")
    return CitedLines("\n".join(lines[first - 1 : last]), path.name)


def as_item(id: str, by: str, text: str) -> Item:
    """What an entry of a document says, as something whose claims can be looked up."""
    return Item(id=id, kind="note", agent=by, body=text)


class Checked(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of checking an item's claims. `of` is a hash of what it says: a changed one is checked anew."""

    item: str
    of: str
    stale: str = ""
    """What does not hold any more, if something does not."""
    seen: dict[str, str] = {}
    """Each claim that has held, with the hash of the lines it cites."""
    files: dict[str, str] = {}
    """The hash of each file that was read."""


def check(root: Path, item: Item, previous: Checked | None, read: Read | None = None) -> Checked:
    """Look up what an item claims. `previous` is the outcome before, `read` how files are read."""
    read = read or reading()
    all_claims = claims(item)
    content = canonical([msgspec.to_builtins(all_claims), item.text, item.verified_us])
    of = sha256(content).hexdigest()[:16]
    before = previous.seen if previous is not None and previous.of == of else {}
    held, files, stale = dict(before), dict[str, str](), list[str]()
    for claim in all_claims:
        try:
            wrong, lines = _look(root, claim, before.get(claim.name, ""), files, read)
        except (OSError, ValueError) as error:
            named = claim.file[:100] or claim.name
            wrong, lines = f"{named} cannot be read ({type(error).__name__})", ""
        if not wrong:
            held.setdefault(claim.name, lines)
        elif claim.name in before or (
            claim.cited and (not claim.target or manifest(root, claim.command, claim.folder) is not None)
        ):
            stale.append(wrong)
    return Checked(item.id, of, "; ".join(dict.fromkeys(stale)), held, files)


def reading() -> Read:
    """Reads each file once."""

    @cache
    def read(path: Path) -> tuple[str, str]:
        data = path.read_bytes()
        return data.decode(errors="replace"), sha256(data).hexdigest()[:32]

    return read


def _look(root: Path, claim: FileClaim, before: str, files: dict[str, str], read: Read) -> tuple[str, str]:
    """What is wrong with a claim, and the hash of the lines it cites."""
    if claim.target:
        path = manifest(root, claim.command, claim.folder)
        if path is None and claim.if_there:
            return "", ""
        if path is None:
            where = "Makefile" if claim.command == "make" else "package.json"
            return f"there is no {join(claim.folder, where)} for {claim.command} {claim.target}", ""
        if path.stat().st_size > LARGEST:
            return "", ""
        text, files[join(claim.folder, path.name)] = read(path)
        return lacks(text, claim.command, claim.target, claim.folder), ""
    if claim.command:
        return ("" if shutil.which(claim.command) else f"{claim.command} is not on the PATH"), ""
    path = (root / claim.file).resolve()
    if not path.is_relative_to(root.resolve()):
        return f"{claim.file} lies outside the repository", ""
    if not path.exists():
        return f"{claim.file} is gone", ""
    if not path.is_file() or path.stat().st_size > LARGEST:
        return "", ""
    text, digest = read(path)
    files[claim.file] = digest
    if claim.symbol and not _has(text, digest, path.suffix, claim.symbol):
        return f"{claim.symbol} is no longer in {claim.file}", ""
    if not claim.first:
        return (f"{claim.file} has no line 0" if claim.last else ""), ""
    lines = text.splitlines()
    if claim.last < claim.first or claim.last > len(lines):
        return f"{claim.file} has no lines {claim.first}-{claim.last}", ""
    now = _hash(lines[claim.first - 1 : claim.last])
    if before and now != before and not _stands_elsewhere(lines, claim.last - claim.first + 1, before):
        return f"lines {claim.first}-{claim.last} of {claim.file} have changed", ""
    return "", before or now


def _stands_elsewhere(lines: list[str], size: int, wanted: str) -> bool:
    """Whether lines with this hash stand anywhere in a file. Places with another first line are passed over."""
    first = wanted.partition(":")[0]
    starts = (at for at, line in enumerate(lines) if _hash([line]).partition(":")[0] == first)
    return any(_hash(lines[at : at + size]) == wanted for at in islice(starts, MOST_PLACES))


def _hash(lines: Sequence[str]) -> str:
    """The hash of the first line, and of all of them."""
    first, *_ = plain = [line.rstrip().encode() for line in lines]
    whole = sha256(b"\n".join(plain))
    return f"{sha256(first).hexdigest()[:8]}:{whole.hexdigest()[:16]}"


def _has(text: str, digest: str, suffix: str, symbol: str) -> bool:
    if suffix in (".py", ".pyi"):
        names = _symbols(digest, text)
        if names is not None:
            return any(name == symbol or name.endswith(f".{symbol}") for name in names)
    return all(
        re.search(rf"(?<!\w){re.escape(part)}(?!\w)", text) for part in re.split(r"[.#]|::", symbol) if part
    )


def _symbols(digest: str, text: str) -> frozenset[str] | None:
    """The names that a Python file defines, with the classes and functions they are in; None if it is none. Those of
    the last files are remembered, by their hashes."""
    if digest not in _SYMBOLS:
        while len(_SYMBOLS) >= REMEMBERED:
            del _SYMBOLS[next(iter(_SYMBOLS))]
        try:
            _SYMBOLS[digest] = frozenset(_defined(ast.parse(text).body, ""))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            _SYMBOLS[digest] = None
    return _SYMBOLS[digest]


REMEMBERED = 64
_SYMBOLS: dict[str, frozenset[str] | None] = {}


def _defined(body: Iterable[ast.stmt], within: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield within + node.name
            yield from _defined(node.body, f"{within}{node.name}.")
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (within + name.id for name in targets if isinstance(name, ast.Name))
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from _defined([*node.body, *getattr(node, "orelse", ())], within)


def repository_around(book: Path | None, named: str | Path | None) -> Path | None:
    """The folder that claims are checked against: the one that is named, or the git repository that a book lies in."""
    if named is not None:
        root = check_path("repository", named)
        if not root.is_dir():
            raise BadInput(f"{named} is not a folder: name the one that holds the files")
        return root
    above = () if book is None else book.resolve().parents
    return next((folder for folder in above if (folder / ".git").exists()), None)


# the record


class RecordChecks(msgspec.Struct, frozen=True):
    by: str
    run: str | None
    checks: tuple[Checked, ...]


def decide_checked(overlay: Overlay, request: RecordChecks) -> None:
    """Record the outcomes that differ from those before."""
    for checked in request.checks:
        row = overlay.get("recall.checks", checked.item)
        plain = msgspec.to_builtins(checked)
        record = overlay.record_of(checked.item)
        if (row is None or row["check"] != plain) and record is not None and record.body is not None:
            check = draft(
                CHECKED, actor=request.by, payload=plain, run_id=request.run, parents=[checked.item]
            )
            overlay.emit(check, scope=read_header(record).labels.get(SCOPE, ""))


def checked_items(event: Event) -> list[Key]:
    """The items whose checks an event records: a check by itself, or a receipt."""
    return [(check["item"],) for check in _checks_of(event)]


def fold_check(key: Key, _before: Any, event: Event) -> Any:
    check = next(check for check in _checks_of(event) if check["item"] == key[0])
    return {"check": check, "position": event.position}


def _checks_of(event: Event) -> list[dict[str, Any]]:
    return [event.payload] if event.kind == CHECKED else event.payload["checks"]


class RecordedCheck(msgspec.Struct, frozen=True):
    """A check, and where it was recorded."""

    check: Checked
    position: int


class Checks:
    """What one answer, as of `at`, says of files: each item is checked once. What is found anew goes into the answer's
    receipt, or is recorded by itself. As of the past nothing is checked: what was recorded then counts."""

    def __init__(self, session: Session, at: At = None) -> None:
        self._session, self._at, self._read = session, at, reading()
        self.new: dict[str, Checked] = {}
        """What was found that the book does not say yet, by item."""

    def of(self, views: ViewReader, items: Sequence[Item]) -> dict[str, RecordedCheck]:
        """What is known of these items' claims, by item; what is not recorded yet has position 0."""
        claiming = [item for item in items if claims(item)]
        known = recorded(views, claiming)
        root = self._session.services.repository
        if root is None or self._at is not None:
            return known
        for item in claiming:
            before = known[item.id].check if item.id in known else None
            outcome = self.new.get(item.id) or check(root, item, before, self._read)
            if outcome != before:
                self.new[item.id] = outcome
                known[item.id] = RecordedCheck(outcome, 0)
        return known

    def record(self) -> None:
        """Record what was found, and is not recorded yet."""
        if self.new:
            request = RecordChecks(self._session.actor, self._session.run, tuple(self.new.values()))
            self._session.ledger.submit("recall.checked", request, bound=self._session.bound)
            self.new = {}


def recorded(views: ViewReader, items: Sequence[Item]) -> dict[str, RecordedCheck]:
    """What was found last of these items' claims; of those that were never checked, nothing."""
    rows = views.get_all(decode, "recall.checks", [(item.id,) for item in items])
    return {
        item.id: convert(row, RecordedCheck) for item, row in zip(items, rows, strict=True) if row is not None
    }
