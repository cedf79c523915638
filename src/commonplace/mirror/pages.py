"""Pages as text: how a page of blocks is written, read back, and compared with what a person made of it.

    # Title and introduction
    <!-- cp page 5f2c91d0a4be: … -->      the page line: the version of the page that this text was made from

    <!-- cp:ID -->
    the text of one block
    <!-- /cp -->

    <!-- /cp page -->                     the last line: without it the file was cut short

Text outside the marks was added by hand. A text is always compared with the version that its own page line names,
not with the newest: so an editor that saves an hour later, or a branch that is checked out, takes nothing back
that others wrote meanwhile, and a block that is missing was removed only if that version had it.

A clash shows both texts in the block, between three lines of their own, until a person has deleted these. An edit
that was not taken in stays, with a line that says why. White space that an editor cut off at the ends of lines is
no edit.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import quote, unquote

from ..errors import BadInput, shown

VERSIONS, HASHES, TAKEN = 200, 20_000, 64
"""How much is remembered of a file: versions, the hashes in them, and edits that were taken in."""

LONGEST, DEEPEST = 1_000, 32
"""How many characters and how many names a page's path may have."""

MERGED = "merged"
"""The version of a text whose page line alone was in conflict: git has put the rest together."""


@dataclass(frozen=True, slots=True)
class Block:
    """One thing on a page: markdown of one or more lines, under an id that stays."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Page:
    """What one file shows. The head is a title and an introduction; only blocks are content. In a page that is not
    `editable` no edit is taken in, in one that `appends` only what is added at the end."""

    path: str
    head: str = ""
    blocks: tuple[Block, ...] = ()
    editable: bool = True
    appends: bool = False


@dataclass(frozen=True, slots=True)
class Changed:
    """A person changed a block. Every edit's `id` is the same each time that the same edit is found, until it has
    been dealt with for good, so that an edit that comes twice is taken in once."""

    path: str
    block: str
    before: str
    after: str
    id: str


@dataclass(frozen=True, slots=True)
class Added:
    """A person added text below the block `after_id`, or above all blocks. `copied_id` is the id it stands under,
    if it does: one that this page does not know, brought from another page or by a merge."""

    path: str
    text: str
    after_id: str | None
    copied_id: str | None
    id: str


@dataclass(frozen=True, slots=True)
class Removed:
    """A person took a block away. One that was only emptied is Changed."""

    path: str
    block: str
    before: str
    id: str


Edit = Changed | Added | Removed


@dataclass(frozen=True, slots=True)
class Clash:
    """Both sides changed a block. None: not there; for `base` it may also mean that nobody knows any more."""

    path: str
    block: str
    base: str | None
    ours: str | None
    theirs: str | None
    id: str


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of an edit. `note` says why not, `id` is the block that now holds it, if it is another one."""

    edit: Edit
    ok: bool
    note: str = ""
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a file. Without an id: text that is no block of the page. In a clash `text` is the person's and
    `ours` the other one. `noted` is the hash of a text that was not taken in, `why` the reason."""

    id: str | None
    text: str | None
    clash: bool = False
    ours: str | None = None
    noted: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Parsed:
    """A file as read. With any `problems` nothing else in it can be relied on. `stamp` is None without a page line;
    then the head is all that stands above the first block."""

    stamp: str | None = None
    head: str = ""
    parts: tuple[Part, ...] = ()
    problems: tuple[str, ...] = ()


# writing


def render(page: Page) -> str:
    """The page as a file. `parse` gives back the same blocks, whatever their text."""
    return lay(page.head, stamp_of(page), [Part(block.id, block.text) for block in page.blocks])


def lay(head: str, stamp: str | None, parts: Iterable[Part]) -> str:
    hint = "change text between the marks, add new text anywhere else"
    lines = [*_lines(head.strip("\n") or None), f"<!-- cp page {stamp}: {hint} -->", ""]
    for part in parts:
        lines.append("<!-- cp new -->" if part.id is None else f"<!-- cp:{_quoted(part.id)} -->")
        if part.clash:
            lines += [_YOU_REMOVED if part.text is None else _YOURS, *_lines(part.text)]
            lines += [_WE_REMOVED if part.ours is None else _OURS, *_lines(part.ours), _CHOOSE]
        else:
            lines += _lines(part.text)
        lines += [f"<!-- cp rejected {part.noted}: {part.why} -->"] if part.noted else []
        lines += ["<!-- /cp -->", ""]
    return "\n".join([*lines, "<!-- /cp page -->", ""])


_YOURS = "<!-- cp clash: your text -->"
_YOU_REMOVED = "<!-- cp clash: you removed this; to insist, delete the whole block once more -->"
_OURS = "<!-- cp or: what was written meanwhile, and holds until you choose -->"
_WE_REMOVED = "<!-- cp or: it was removed meanwhile; to agree, delete the whole block -->"
_CHOOSE = "<!-- cp end of clash: keep one text and delete these three lines -->"


def _lines(text: str | None) -> list[str]:
    return [] if text is None else [_escaped(text)]


def stamp_of(page: Page) -> str:
    """The name of a page's version: the same for the same content."""
    return _stamp(page.head, [(block.id, block.text) for block in page.blocks])


def _stamp(head: str, blocks: Iterable[tuple[str | None, str | None]]) -> str:
    return _sha(head.strip("\n"), *blocks)[:12]


def _sha(*parts: object) -> str:
    return sha256(json.dumps(parts).encode()).hexdigest()


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:12]


def _quoted(id: str) -> str:
    return quote(id, safe=":/@+=,").replace("--", "-%2D")


# A text may hold anything, also lines that look like marks or like a merge conflict. These get one backslash more
# than they have, and lose one when they are read. A carriage return is spelled out: those that an editor or git
# puts at the ends of lines are not content.
_MARK = re.compile(r"^([ \t]*<!--[ \t]*)(\\*)(?=/?cp\b)", re.M)
_ESCAPED_MARK = re.compile(r"^([ \t]*<!--[ \t]*)\\(?=\\*/?cp\b)", re.M)
_CONFLICT = re.compile(r"^(?=\\*(?:<{7}|={7}|>{7}|\|{7})(?: |$))", re.M)
_ESCAPED_CONFLICT = re.compile(r"^\\(?=\\*(?:<{7}|={7}|>{7}|\|{7})(?: |$))", re.M)
_RETURN = re.compile(r"&((?:#38;)*)#13;")


def _escaped(text: str) -> str:
    text = _RETURN.sub(r"&#38;\1#13;", text).replace("\r", "&#13;")
    return _CONFLICT.sub(r"\\", _MARK.sub(r"\1\\\2", text))


def _unescaped(text: str) -> str:
    text = _ESCAPED_MARK.sub(r"\1", _ESCAPED_CONFLICT.sub("", text))
    return _RETURN.sub(lambda match: f"&{match[1][4:]}#13;" if match[1] else "\r", text)


def reason(why: str) -> str:
    """A reason in one line that a comment can hold."""
    return re.sub("-(?=-)", "- ", " ".join(why.split()))[:300].rstrip(" -") or "it was not taken in"


# reading

_ANY_MARK = re.compile(r"[ \t]*<!--[ \t]*/?cp\b")
_LINE = re.compile(
    r"[ \t]*<!--[ \t]*(?:cp:(?P<id>\S+)[ \t]*|(?P<word>/?cp(?: (?:page|new|clash|or|end|rejected)\b)?)"
    r"(?: (?P<hash>[0-9a-z]+))?(?: of clash)?(?:[ \t]*|:(?P<why>.*)))-->[ \t]*"
)
_STAMPS_IN_CONFLICT = re.compile(
    r"^<{7} .*\n(<!-- cp page .*\n)(?:\|{7}.*\n(?:<!-- cp page .*\n)?)?={7}\n<!-- cp page .*\n>{7} .*\n", re.M
)


def parse(text: str) -> Parsed:
    """Read a file's text, its lines ended by newlines. Never fails: what is wrong is listed under `problems`."""
    text = _STAMPS_IN_CONFLICT.sub(f"<!-- cp page {MERGED} -->\n", text)
    lines = text.split("\n")
    conflicts = [n for n, line in enumerate(lines, 1) if _CONFLICT.match(line) and not line.startswith("\\")]
    if conflicts:
        return Parsed(problems=(f"line {conflicts[0]} belongs to a merge conflict: resolve it first",))
    reading = _Reading()
    for number, line in enumerate(lines, 1):
        if _ANY_MARK.match(line):
            match = _LINE.fullmatch(line)
            problem = reading.mark(match) if match else _STRAY
            reading.problems += [f"line {number} {problem}"] if problem else []
        else:
            reading.body[reading.section].append(line)
    return reading.result()


_STRAY = "is no mark that is known here: delete it, or put back those that go with it"


class _Reading:
    """What has been read so far, and where: outside of blocks, in one, or in either half of a clash."""

    def __init__(self) -> None:
        self.stamp: str | None = None
        self.head: str | None = None
        self.parts: list[Part] = []
        self.problems: list[str] = []
        self.section = "outside"
        self.body: dict[str, list[str]] = {"outside": []}
        self.open = Part(None, None)
        self.ids: set[str | None] = set()
        self.ended = False

    def mark(self, match: re.Match[str]) -> str:
        """Take a line with a mark; the answer says what is wrong with it, if anything is."""
        word, hashed = match["word"], match["hash"] or ""
        move = (word, self.section)
        if match["id"] or word == "cp new":
            return self._begin(unquote(match["id"]) if match["id"] else None)
        if word == "cp page":
            if self.head is not None:
                return "is a page line below the first block or another page line: delete it"
            self.head, self.stamp = _unescaped("\n".join(self.body["outside"]).strip("\n")), hashed
            self.body["outside"] = []
        elif word == "/cp page":
            self.ended = True
        elif word == "/cp" and self.section != "outside":
            return self._end()
        elif word == "cp rejected" and self.section != "outside":
            self.open = replace(self.open, noted=hashed, why=(match["why"] or "").strip())
        elif move == ("cp clash", "inside") and self.open.id and not "".join(self.body["inside"]).strip():
            self.section = "theirs"
        elif move in (("cp or", "theirs"), ("cp end", "ours")):
            self.section = "ours" if word == "cp or" else "resolved"
        else:
            return _STRAY
        return ""

    def _begin(self, id: str | None) -> str:
        if self.section != "outside":
            return "begins a block inside another one: put <!-- /cp --> at that one's end"
        self._flush()
        self.section, self.open = "inside", Part(id, None)
        self.body = {name: [] for name in ("outside", "inside", "theirs", "ours", "resolved")}
        twice = id is not None and id in self.ids
        self.ids.add(id)
        return (
            f"has the id {shown(id)} once more: delete the marks around one of the two texts" if twice else ""
        )

    def _end(self) -> str:
        section, self.section = self.section, "outside"
        if section == "inside":
            text, note = _joined(self.body["inside"]) or "", self.open
            self.parts.append(Part(note.id, text, noted=note.noted, why=note.why))
        elif section == "resolved" and not "".join(self.body["resolved"]).strip():
            theirs, ours = _joined(self.body["theirs"]), _joined(self.body["ours"])
            self.parts.append(Part(self.open.id, theirs, True, ours))
        else:
            return "ends a clash that is half resolved: delete all three of its lines, or none"
        return ""

    def _flush(self) -> None:
        """Text outside of blocks ends here: the heading, if there was no page line, or an addition."""
        text = _bare(_joined(self.body["outside"]) or "")
        if self.head is None:
            self.head = text
        elif text.strip():
            self.parts.append(Part(None, text))

    def result(self) -> Parsed:
        if self.section != "outside":
            self.problems.append("the last block has no end: put <!-- /cp --> there")
        elif self.stamp is not None and not self.ended:
            self.problems.append("the file is cut short: it does not end with <!-- /cp page -->")
        self._flush()
        return Parsed(self.stamp, self.head or "", tuple(self.parts), tuple(self.problems))


def _joined(lines: list[str]) -> str | None:
    return _unescaped("\n".join(lines)) if lines else None


# comparing


class TakenEdit(NamedTuple):
    """An edit that was taken in: the version that it was made on, the block, if it changed one, the added text, and the
    block that holds it now."""

    version: str
    block: str | None
    text: str
    holder: str


@dataclass(frozen=True, slots=True)
class LastWritten:
    """What is remembered of a file: the versions that were written, newest last, as the hash of each block and,
    under "", of the head; the newest one's head and texts. `taken` are edits that were taken in. `token` goes into the
    ids of edits, and `asked` says that some were handed out under it."""

    token: str = ""
    versions: tuple[tuple[str, Mapping[str, str]], ...] = ()
    head: str = ""
    texts: Mapping[str, str] = field(default_factory=dict)
    taken: tuple[TakenEdit, ...] = ()
    asked: bool = False

    @property
    def newest(self) -> str | None:
        return self.versions[-1][0] if self.versions else None


def edits(base: Page | None, text: str) -> list[Edit]:
    """The edits that a person made to a page as it was last written. Raises BadInput for a text with problems."""
    file = parse(text)
    if file.problems:
        raise BadInput(f"the text cannot be read as a page: {'; '.join(file.problems)}")
    page = base or Page("")
    last = LastWritten() if base is None else advanced(LastWritten(), page, Parsed(), {}, stamp_of(page))
    return merge(last, page, file).edits


def merge(
    last: LastWritten, ours: Page, file: Parsed, answers: Mapping[str, Taken] | None = None
) -> MergedPage:
    """Three ways, block by block: what only the person changed is an edit, what only we changed is written, what
    both changed is a clash, a removal being a change like any other. Without a version to compare with nobody
    can say who changed a block: texts that differ clash, and what is missing comes back."""
    return MergedPage(last, ours, file, answers or {})


class MergedPage:
    """A page and a file put together: edits that have no answer yet, every clash that stands, the ids of those that
    the file does not show yet, and the parts that the file should have once no edit is left open."""

    def __init__(self, last: LastWritten, ours: Page, file: Parsed, answers: Mapping[str, Taken]) -> None:
        self.edits: list[Edit] = []
        self.clashes: list[Clash] = []
        self.fresh: set[str] = set()
        self._last, self._answers, self._path, self._head = last, answers, ours.path, ours.head
        self._now = {block.id: block.text for block in ours.blocks}
        self._shown: dict[str, Part] = {}
        self._beside: dict[str | None, list[Part]] = {}
        """The parts that are no block of ours, by the block that they stand below."""
        self._place: str | None = None
        self._stamp = _named(last, file)
        self._left = [edit for edit in last.taken if edit.version == self._stamp and edit.holder in self._now]
        self._moved, self._was, parts = self._under_new_ids(file)
        above: str | None = None
        for part in parts:
            if part.id is None:
                self._free(part, above, None)
            else:
                self._block(part, part.id, above)
                above = part.id
                self._place = above if above in self._now else self._place
        self._missing({part.id for part in parts})
        self.parts = self._beside.get(None, [])
        for block in ours.blocks:
            self.parts += [
                self._shown.get(block.id) or Part(block.id, block.text),
                *self._beside.get(block.id, []),
            ]

    def _under_new_ids(self, file: Parsed) -> tuple[dict[str, str], Mapping[str, str] | None, list[Part]]:
        """The version that the file was made from, and its parts, with what stands in the heading first. An edit
        may have made a new block of an old one: then both are under the new one's id."""
        last, present = self._last, {part.id for part in file.parts}
        moves = ((edit.block or "", edit.holder) for edit in self._left)
        moved = {id: to for id, to in moves if id and id not in self._now and to not in present}
        parts = [replace(part, id=moved[part.id]) if part.id in moved else part for part in file.parts]
        version = dict(last.versions).get(self._stamp)
        if version is None and _untouched(file):
            # nobody has edited it since some mirror wrote it; what we do not know was copied here all the same
            return (
                moved,
                {str(part.id): digest(part.text or "") for part in parts if part.id in self._now},
                parts,
            )
        if version is None or version.get("") != digest(file.head):
            ours = {line.strip() for line in f"{last.head}\n{self._head}".split("\n")} - {""}
            added = _bare("\n".join(line for line in file.head.split("\n") if line.strip() not in ours))
            parts.insert(0, Part(None, added))
        was = None if version is None else {moved.get(id, id): hashed for id, hashed in version.items() if id}
        return moved, was, parts

    def _free(self, part: Part, above: str | None, copied: str | None) -> None:
        """Text that is no block: an addition, but for what was taken in when the same text was saved before."""
        text = part.text or ""
        for edit in [edit for edit in self._left if edit.block is None]:
            before, match, after = f"\n{text}\n".partition(f"\n{edit.text}\n")
            if match:
                self._left.remove(edit)
                text = "\n".join(rest for rest in (before.strip("\n"), after.strip("\n")) if rest)
        if not text.strip():
            return
        if part.noted == digest(text):
            self._show(Part(None, text, noted=part.noted, why=part.why))
        else:
            added = Added(self._path, text, above, copied, self._id(copied or "", above or "", text))
            self._offer(added, Part(None, text))

    def _block(self, part: Part, id: str, above: str | None) -> None:
        mine, theirs = self._now.get(id), part.text
        base = None if self._was is None else self._was.get(id)
        if part.clash and part.ours is not None and part.ours != mine and digest(part.ours) != base:
            # the person has written into the other text as well
            theirs = part.ours if theirs is None else f"{theirs}\n{part.ours}"
        if _same(theirs, mine):
            if mine is not None and part.noted == digest(mine) == base:
                self._show(replace(part, text=mine))
        elif part.clash or theirs is None or (base is None and mine is not None):
            self._clash(id, base, mine, theirs, part)
        elif base is None:
            self._free(part, above, id)
        elif digest(theirs) != base and not _same(theirs, self._text(id, base)):
            unchanged = mine is not None and digest(mine) == base
            edit = Changed(self._path, id, mine or "", theirs, self._id(id, base, theirs))
            if unchanged and part.noted == digest(theirs):
                self._show(part)
            elif unchanged or edit.id in self._answers:
                self._offer(edit, Part(id, theirs))
            else:
                self._clash(id, base, mine, theirs, part)

    def _missing(self, present: set[str | None]) -> None:
        for id, base in (self._was or {}).items():
            mine = self._now.get(id)
            if id not in present and mine is not None:
                edit = Removed(self._path, id, mine, self._id(id, base, None))
                if digest(mine) == base or edit.id in self._answers:
                    self._offer(edit, Part(id, mine))
                else:
                    self._clash(id, base, mine, None, Part(id, mine))

    def _offer(self, edit: Edit, part: Part) -> None:
        """An edit without an answer is open; one that was not taken in stays as this part, with the reason."""
        answer = self._answers.get(edit.id)
        if answer is None:
            self.edits.append(edit)
        elif not answer.ok:
            self._show(replace(part, noted=digest(part.text or ""), why=reason(answer.note)))

    def _clash(self, id: str, base: str | None, mine: str | None, theirs: str | None, part: Part) -> None:
        named = _sha(self._path, id, mine, theirs)
        before = None if part.clash else self._text(id, base)  # once it is shown the file knows only the two
        self.clashes.append(Clash(self._path, id, before, mine, theirs, named))
        self.fresh |= {named} if part != Part(id, theirs, True, mine) else set()
        self._show(Part(id, theirs, True, mine))

    def _show(self, part: Part) -> None:
        """Put a part where its block stands; if that is not on the page, where it stood in the file."""
        if part.id in self._now:
            self._shown[part.id] = part
        else:
            self._beside.setdefault(self._place, []).append(part)

    def _text(self, id: str, base: str | None) -> str | None:
        text = self._last.texts.get(id)
        return text if text is not None and digest(text) == base else None

    def _id(self, block: str, base: str, after: str | None) -> str:
        named = next((id for id, to in self._moved.items() if to == block), block)  # as in the file
        return _sha(self._last.token, self._path, named, base, after)


def _named(last: LastWritten, file: Parsed) -> str:
    """The version that a file's page line names."""
    return (last.newest if file.stamp == MERGED else file.stamp) or ""


def _untouched(file: Parsed) -> bool:
    """Whether a text is as some mirror once wrote it: its page line is the hash of what it holds."""
    plain = not any(part.id is None or part.clash for part in file.parts)
    return plain and file.stamp == _stamp(file.head, [(part.id, part.text) for part in file.parts])


def _bare(text: str) -> str:
    """A text without the empty lines around it."""
    lines = text.split("\n")
    start, end = 0, len(lines)
    while start < end - 1 and not lines[start].strip(" \t"):
        start += 1
    while start < end - 1 and not lines[end - 1].strip(" \t"):
        end -= 1
    return "\n".join(lines[start:end])


def _same(theirs: str | None, text: str | None) -> bool:
    """Whether it is this text, but for white space that an editor cut off."""
    if theirs == text or text is None:
        return theirs == text
    return theirs == "\n".join(line.rstrip(" \t") for line in text.split("\n"))


# remembering


def advanced(
    last: LastWritten, ours: Page, file: Parsed, answers: Mapping[str, Taken], stamp: str
) -> LastWritten:
    """What to remember before a page is written under this stamp, over this file. It is also right if the writing
    never happens: the file's own page line tells."""
    then, now = _named(last, file), {block.id: block.text for block in ours.blocks}
    versions = {name: dict(blocks) for name, blocks in last.versions}
    made_on, taken = versions.get(then, {}), list(last.taken)
    for answer in (answer for answer in answers.values() if answer.ok):
        edit, to = answer.edit, answer.id or ""
        if isinstance(edit, Added):
            taken.append(TakenEdit(then, None, edit.text, to))
        elif isinstance(edit, Removed):
            made_on.pop(edit.block, None)
        else:  # a person who edits the text further starts from there, not from what we wrote
            named = next(
                (old.block for old in taken if (old.version, old.holder) == (then, edit.block) and old.block),
                edit.block,
            )
            made_on[named] = digest(edit.after)
            if to and to != edit.block:
                taken = [old._replace(holder=to) if old.holder == edit.block else old for old in taken]
                taken.append(TakenEdit(then, named, "", to))
    versions.pop(stamp, None)
    versions[stamp] = {"": digest(ours.head.strip("\n")), **{id: digest(text) for id, text in now.items()}}
    kept = min(VERSIONS, max(HASHES // len(versions[stamp]), 16))
    taken = [edit for edit in dict.fromkeys(taken) if edit.holder in now][-TAKEN:]
    return LastWritten(last.token, tuple(versions.items())[-kept:], ours.head, now, tuple(taken), last.asked)


def settled(last: LastWritten, token: str) -> LastWritten:
    """What to remember once the file holds what it should: the same edit, made again, is a new one."""
    taken = tuple(edit for edit in last.taken if edit.version != last.newest)
    return replace(last, token=token if last.asked else last.token, taken=taken, asked=False)


def is_inside(path: str) -> bool:
    """Whether a page may have this path: a relative one, neither long nor deep, of printable names that are neither
    hidden (`.git`, `.mirror`) nor could be read as anything else than names on another system."""
    plain = unicodedata.normalize("NFKC", path)
    return (
        len(path) <= LONGEST
        and path.count("/") < DEEPEST
        and path.isprintable()
        and not re.search(r"\\|^[A-Za-z]:", plain)
        and len(plain.split("/")) == len(path.split("/"))
        and not any(name.startswith(".") or not name.strip() for name in plain.split("/"))
    )


def check_paths(files: dict[str, bytes]) -> dict[str, bytes]:
    """Files by their paths. Raises BadInput for a path that leaves the folder."""
    for path in files:
        if not is_inside(path):
            raise BadInput(
                f"the page {shown(path)} has no path inside the folder: give one such as 'notes/today.md'"
            )
    return files


def check(pages: Iterable[Page]) -> dict[str, Page]:
    """The pages by their paths. Raises BadInput for a path that leaves the folder, for an id or path given twice,
    and for what is not text."""
    by_path: dict[str, Page] = {}
    for page in pages:
        path, ids = page.path, [block.id for block in page.blocks]
        named = f"the page {shown(path)}"
        check_paths({path: b""})
        if path in by_path or "" in ids or len(set(ids)) < len(ids):
            raise BadInput(f"{named} is there twice, or has an id twice or an empty one: give each its own")
        try:
            "".join([path, page.head, *ids, *(block.text for block in page.blocks)]).encode()
        except UnicodeEncodeError:
            raise BadInput(f"{named} holds a lone surrogate, which is not text: decode it anew") from None
        by_path[path] = page
    return by_path


def without(last: LastWritten, ids: Collection[str]) -> LastWritten:
    """What is remembered, with nothing left of these blocks: not their texts, nor what could tell them."""
    return replace(
        last,
        versions=tuple(
            (stamp, {id: hashed for id, hashed in blocks.items() if id not in ids})
            for stamp, blocks in last.versions
        ),
        texts={id: text for id, text in last.texts.items() if id not in ids},
        taken=tuple(edit for edit in last.taken if edit.block not in ids and edit.holder not in ids),
    )


def without_blocks(text: str, ids: Collection[str]) -> bytes:
    """A file's bytes without these blocks, also in a file that cannot be read as a page."""
    for id in ids:
        mark = re.escape(f"<!-- cp:{_quoted(id)} -->")
        text = re.sub(
            rf"(?<![ \t])[ \t]*{mark}[ \t]*\r?\n.*?(?:<!-- /cp -->[ \t]*(?:\r?\n)*|\Z)",
            "",
            text,
            flags=re.DOTALL,
        )
    return text.encode("utf-8", "surrogateescape")
