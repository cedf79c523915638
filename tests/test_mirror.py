"""The markdown mirror: pages as files, and hand edits that are never lost."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commonplace.errors import BadInput, StorageFailed
from commonplace.files import safe
from commonplace.mirror.folder import Mirror, Report
from commonplace.mirror.pages import (
    Added,
    Block,
    Changed,
    Clash,
    Edit,
    Page,
    Removed,
    Taken,
    edits,
    parse,
    render,
)

pytestmark = pytest.mark.spec("3.7")

TOKEN = re.compile(r"person\d+")


class Book:
    """Stands for whatever the pages come from: texts by id, written by agents, and by people through `take`."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.seen: dict[str, str | None] = {}
        self.log: list[Edit] = []
        self.asked: list[Edit] = []
        self.clashes: list[Clash] = []
        self.refuse: Callable[[Edit], str] = lambda edit: ""
        self.page = Page("MEMORY.md", "# Memory\n\nWhat we know.")
        self.shown = True

    def pages(self) -> list[Page]:
        blocks = tuple(Block(id, text) for id, text in self.texts.items())
        page = self.page
        return [Page(page.path, page.head, blocks, page.editable, page.appends)] if self.shown else []

    def take(self, path: str, found: list[Edit]) -> list[Taken]:
        answers = []
        for edit in found:
            self.asked.append(edit)
            why = self.refuse(edit)
            if why:
                answers.append(Taken(edit, False, why))
                continue
            if edit.id not in self.seen:
                self.log.append(edit)
                self.seen[edit.id] = self._apply(edit)
            answers.append(Taken(edit, True, id=self.seen[edit.id]))
        return answers

    def _apply(self, edit: Edit) -> str | None:
        if isinstance(edit, Added):
            id = f"new{len(self.log)}"
            self.texts[id] = edit.text
            return id
        if isinstance(edit, Removed):
            self.texts.pop(edit.block, None)
        else:
            self.texts[edit.block] = edit.after
        return None


class Desk:
    """A book, its mirror and the file that a person edits."""

    def __init__(self, place: Path, **texts: str) -> None:
        self.book = Book()
        self.book.texts.update(texts)
        self.folder = place
        self.file = place / "MEMORY.md"
        self.mirror = self.fresh()

    def fresh(self, grace: float = 0.0) -> Mirror:
        book = self.book
        return Mirror(self.folder, book.pages, book.take, clash=book.clashes.append, grace=grace)

    def sync(self) -> Report:
        return self.mirror.sync()

    def text(self) -> str:
        return self.file.read_bytes().decode().replace("\r\n", "\n")

    def save(self, text: str) -> None:
        self.file.write_bytes(text.encode())

    def edit(self, old: str, new: str) -> None:
        assert old in self.text()
        self.save(self.text().replace(old, new))

    def shows_the_book(self) -> bool:
        """All but for the version that the page line names, which stays if only the person changed something."""
        shown, wanted = (
            re.sub("cp page .*", "", text) for text in (self.text(), render(self.book.pages()[0]))
        )
        return shown == wanted


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    found = Desk(tmp_path, a="- alpha", b="- beta\n\n  with more", c="- gamma")
    assert found.sync().written == ["MEMORY.md"]
    return found


def marked(id: str, text: str) -> str:
    return f"<!-- cp:{id} -->\n{text}\n<!-- /cp -->\n"


# pages as text


def test_a_page_reads_well_and_comes_back_as_it_was() -> None:
    page = Page("x.md", "# Title", (Block("a", "- one"), Block("b", "two\n\nlines")))
    text = render(page)
    lines = text.split("\n")
    assert lines[0] == "# Title"
    assert lines[1].startswith("<!-- cp page ")
    assert lines[2:] == [
        "",
        "<!-- cp:a -->",
        "- one",
        "<!-- /cp -->",
        "",
        "<!-- cp:b -->",
        "two",
        "",
        "lines",
        "<!-- /cp -->",
        "",
        "<!-- /cp page -->",
        "",
    ]
    assert parse(text).head == "# Title"
    assert edits(page, text) == []


IMITATIONS = (
    r"<!--| cp|:a -->|/cp| page|\|<<<<<<<|=======|>>>>>>> x| |&#13;|&#38;#13;|<!-- /cp -->|<!-- cp page x -->|text|"
    r"<!-- cp clash: -->|<!-- cp or: -->|<!-- cp end: -->|<!-- cp rejected x: y -->|\<!-- cp"
)
NASTY = st.lists(
    st.sampled_from([*IMITATIONS.split("|"), "|||||||", "\n", "\r", "\t", "\u2028", "\x0b"]), max_size=8
).map("".join) | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12) | st.sampled_from(
    ["page", "--", "a-->b", "x--y- ", "cp:cp", "new", "%2D"]
)


@given(
    NASTY.map(lambda text: text.strip("\n")),
    st.lists(st.tuples(IDS, NASTY), max_size=5, unique_by=lambda one: one[0]),
)
@settings(max_examples=300, deadline=None)
def test_any_text_comes_back_whatever_it_imitates(head: str, blocks: list[tuple[str, str]]) -> None:
    page = Page("x.md", head, tuple(Block(*one) for one in blocks))
    text = render(page)
    found = parse(text)
    assert found.problems == ()
    assert found.head == head
    assert [(part.id, part.text) for part in found.parts] == blocks
    assert "\r" not in text
    assert edits(page, text) == []
    assert edits(page, text + "\nby hand\n") == edits(
        page, text.replace("\n<!-- /cp page", "by hand\n\n<!-- /cp page")
    )


def test_what_a_person_did_is_told_apart() -> None:
    base = Page("x.md", "# T", (Block("a", "one"), Block("b", "two"), Block("c", "three")))
    changed, added, foreign, removed = edits(
        base,
        render(base)
        .replace("\none\n", "\nONE\n")
        .replace(marked("b", "two"), "fresh\n\n" + marked("zz", "from elsewhere")),
    )
    assert isinstance(changed, Changed)
    assert (changed.block, changed.before, changed.after) == ("a", "one", "ONE")
    assert isinstance(added, Added)
    assert (added.text, added.after_id, added.copied_id) == ("fresh", "a", None)
    assert isinstance(foreign, Added)
    assert (foreign.text, foreign.copied_id) == ("from elsewhere", "zz")
    assert isinstance(removed, Removed)
    assert (removed.block, removed.before) == ("b", "two")
    moved = render(base).replace(marked("a", "one"), "") + marked("a", "one")
    assert edits(base, moved) == []
    assert [type(one) for one in edits(None, "plain text")] == [Added]


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        ("<<<<<<< HEAD\na\n=======\nb\n>>>>>>> other\n", "line 1 belongs to a merge conflict"),
        ("x\n=======\n", "line 2 belongs to a merge conflict"),
        (marked("a", "one") + marked("a", "two"), "once more"),
        ("<!-- cp:a -->\nno end\n", "has no end"),
        ("<!-- cp:a -->\n<!-- cp:b -->\n<!-- /cp -->\n", "inside another one"),
        ("text\n<!-- /cp -->\n", "no mark that is known here"),
        ("<!-- cp something -->\n", "no mark that is known here"),
        ("<!-- cp page abc -->\n" + marked("a", "one"), "cut short"),
        (marked("a", "one") + "<!-- cp page abc -->\n<!-- /cp page -->\n", "below the first block"),
        ("<!-- cp:a -->\n<!-- cp clash: -->\nx\n<!-- /cp -->\n", "half resolved"),
        ("<!-- cp:a -->\n<!-- cp end of clash: -->\n<!-- /cp -->\n", "no mark that is known here"),
    ],
)
def test_a_text_that_cannot_be_relied_on_says_where_and_what_to_do(broken: str, told: str) -> None:
    assert told in "; ".join(parse(broken).problems)
    with pytest.raises(BadInput, match=re.escape(told)):
        edits(None, broken)


# a person and the mirror


def test_edits_are_taken_in_and_the_file_is_not_touched_for_a_mere_change(desk: Desk) -> None:
    desk.edit("- alpha", "- ALPHA")
    saved = desk.file.stat()
    report = desk.sync()
    assert desk.book.texts["a"] == "- ALPHA"
    assert [one.ok for one in report.taken] == [True]
    assert report.unchanged == ["MEMORY.md"]
    assert desk.file.stat() == saved
    desk.edit("- ALPHA", "- Alpha")
    desk.sync()
    assert desk.book.texts["a"] == "- Alpha"


def test_additions_get_a_block_and_removals_go(desk: Desk) -> None:
    desk.edit(marked("b", "- beta\n\n  with more"), "- first\n- second\n\n")
    assert desk.mirror.status()[0].edits != ()
    report = desk.sync()
    assert [type(one.edit) for one in report.taken] == [Added, Removed]
    assert desk.book.texts == {"a": "- alpha", "c": "- gamma", "new1": "- first\n- second"}
    assert desk.shows_the_book()
    assert desk.mirror.status() == []
    assert not desk.sync().news


def test_a_file_from_before_the_mirror_is_taken_in_whole(tmp_path: Path) -> None:
    (tmp_path / "MEMORY.md").write_text("# Memory\n\n- old note\n\n    code\n")
    desk = Desk(tmp_path, a="- alpha")
    desk.sync()
    assert desk.book.texts == {"a": "- alpha", "new1": "- old note\n\n    code"}
    assert desk.shows_the_book()


def test_what_is_written_into_the_heading_is_an_addition(desk: Desk) -> None:
    desk.edit("What we know.", "What we know.\n- also this")
    desk.sync()
    assert desk.book.texts["new1"] == "- also this"
    assert desk.shows_the_book()


def test_a_missing_or_emptied_file_removes_nothing(desk: Desk) -> None:
    before = dict(desk.book.texts)
    desk.file.unlink()
    assert desk.sync().written == ["MEMORY.md"]
    desk.save("")
    assert desk.sync().written == ["MEMORY.md"]
    desk.save(desk.text()[:-40])  # as a reader sees it in the middle of a save
    assert [path for path, _ in desk.sync().refused] == ["MEMORY.md"]
    assert desk.book.texts == before
    assert desk.book.log == []


def test_a_clash_is_shown_once_and_resolved_by_hand(desk: Desk) -> None:
    desk.edit("- alpha", "- mine")
    desk.book.texts["a"] = "- theirs"
    report = desk.sync()
    assert [(one.block, one.base, one.ours, one.theirs) for one in report.clashes] == [
        ("a", "- alpha", "- theirs", "- mine")
    ]
    shown = desk.text()
    assert shown.index("- mine") < shown.index("- theirs")
    assert desk.book.texts["a"] == "- theirs"
    assert len(desk.sync().clashes) == 1
    assert desk.text() == shown
    assert len(desk.book.clashes) == 1
    desk.book.texts["a"] = "- newer"
    desk.sync()
    assert "- newer" in desk.text()
    assert "- theirs" not in desk.text()
    assert "- mine" in desk.text()
    assert len(desk.book.clashes) == 2
    desk.edit("- mine\n", "- ours\n")
    desk.save(
        "\n".join(
            one for one in desk.text().split("\n") if not re.match(r"<!-- cp (clash|or|end)|- newer", one)
        )
    )
    report = desk.sync()
    assert (desk.book.texts["a"], report.clashes) == ("- ours", [])
    assert desk.shows_the_book()


def test_writing_into_both_halves_of_a_clash_keeps_both(desk: Desk) -> None:
    desk.edit("- alpha", "- mine")
    desk.book.texts["a"] = "- theirs"
    desk.sync()
    desk.edit("- theirs", "- theirs, mended")
    desk.sync()
    text = desk.text()
    assert text.index("- mine") < text.index("- theirs, mended") < text.rindex("- theirs\n")
    assert not desk.sync().written


@pytest.mark.parametrize("insists", [True, False])
def test_a_removal_against_a_change_is_a_clash(desk: Desk, insists: bool) -> None:
    desk.edit(marked("a", "- alpha"), "")
    desk.book.texts["a"] = "- changed"
    assert [(one.ours, one.theirs) for one in desk.sync().clashes] == [("- changed", None)]
    region = re.search(r"<!-- cp:a -->.*?<!-- /cp -->\n", desk.text(), re.S)
    assert region
    desk.edit(region[0], "" if insists else marked("a", "- changed"))
    assert desk.sync().clashes == []
    assert ("a" in desk.book.texts) is not insists
    assert desk.shows_the_book()


@pytest.mark.parametrize("insists", [True, False])
def test_a_change_against_a_removal_is_a_clash(desk: Desk, insists: bool) -> None:
    desk.edit("- alpha", "- mine")
    del desk.book.texts["a"]
    assert [(one.ours, one.theirs) for one in desk.sync().clashes] == [(None, "- mine")]
    assert not desk.sync().written
    region = re.search(r"<!-- cp:a -->.*?<!-- /cp -->\n", desk.text(), re.S)
    assert region
    desk.edit(region[0], marked("a", "- mine") if insists else "")
    assert desk.sync().clashes == []
    assert ("- mine" in desk.book.texts.values()) is insists
    assert desk.shows_the_book()


def test_a_rejected_edit_stays_with_the_reason_and_is_asked_once(desk: Desk) -> None:
    desk.book.refuse = lambda edit: "facts are made once --> never changed"
    desk.edit("- alpha", "- mine")
    desk.edit(marked("c", "- gamma"), "- more\n")
    report = desk.sync()
    assert [one.ok for one in report.taken] == [False] * 3
    text = desk.text()
    assert text.count("facts are made once - -> never changed -->") == 3
    assert "- mine\n<!-- cp rejected" in text
    assert "- gamma\n<!-- cp rejected" in text
    assert "- more\n<!-- cp rejected" in text
    assert not desk.sync().news
    assert len(desk.book.asked) == 3
    desk.book.refuse = lambda edit: ""
    desk.edit("- mine", "- mine again")
    desk.edit("- more", "- more again")
    desk.edit(desk.text(), desk.text())
    desk.sync()
    assert {"- mine again", "- more again", "- gamma"} <= set(desk.book.texts.values())
    assert desk.text().count("rejected") == 1


def test_a_rejected_text_and_a_newer_one_clash(desk: Desk) -> None:
    desk.book.refuse = lambda edit: "no"
    desk.edit("- alpha", "- mine")
    desk.sync()
    desk.book.texts["a"] = "- newer"
    assert [(one.ours, one.theirs) for one in desk.sync().clashes] == [("- newer", "- mine")]
    desk.book.texts["a"] = "- mine"
    assert desk.sync().clashes == []
    assert desk.shows_the_book()


def test_a_page_that_only_shows_and_one_that_only_grows(desk: Desk) -> None:
    desk.book.page = Page("MEMORY.md", "# Memory\n\nWhat we know.", editable=False)
    desk.edit("- alpha", "- mine")
    assert [one.ok for one in desk.sync().taken] == [False]
    assert "- mine\n<!-- cp rejected" in desk.text()
    assert desk.book.asked == []
    desk.book.page = Page("MEMORY.md", "# Memory\n\nWhat we know.", appends=True)
    desk.edit("<!-- cp:c", "- between\n\n<!-- cp:c")
    desk.edit("<!-- /cp page -->\n", "<!-- /cp page -->\n- at the end\n")
    assert [one.ok for one in desk.sync().taken] == [False, True]
    assert desk.book.texts["new1"] == "- at the end"
    assert "- between" in desk.text()


def test_the_same_edit_made_again_is_a_new_one(desk: Desk) -> None:
    for _ in range(2):
        desk.edit("- alpha", "- mine")
        desk.edit("<!-- /cp page", "- extra\n<!-- /cp page")
        desk.sync()
        assert desk.book.texts["a"] == "- mine"
        assert "- extra" in desk.book.texts.values()
        desk.book.texts = {"a": "- alpha", "b": "- beta\n\n  with more", "c": "- gamma"}
        desk.sync()
    assert len(desk.book.log) == 4


def test_the_same_text_added_again_is_added_again(desk: Desk) -> None:
    for _ in range(2):
        desk.edit("<!-- /cp page", "- again\n<!-- /cp page")
        desk.sync()
    assert list(desk.book.texts.values())[3:] == ["- again", "- again"]

    def knows(path: str, found: list[Edit]) -> list[Taken]:
        desk.book.asked += found
        return [Taken(one, True, id="a") for one in found]

    known = Mirror(desk.folder, desk.book.pages, knows, clash=desk.book.clashes.append)
    for _ in range(2):  # whoever takes it in has it already, and says where
        desk.edit("<!-- /cp page", "- alpha, once more\n<!-- /cp page")
        assert len(known.sync().taken) == 1
        assert desk.shows_the_book()
    assert len({one.id for one in desk.book.asked}) == 4


# texts from before


def test_an_editor_that_saves_an_old_text_takes_nothing_back(desk: Desk) -> None:
    buffer = desk.text()
    desk.book.texts |= {"c": "- gamma of an agent", "d": "- delta of an agent"}
    del desk.book.texts["b"]
    desk.sync()
    desk.save(buffer.replace("- alpha", "- mine"))
    report = desk.sync()
    assert [type(one.edit) for one in report.taken] == [Changed]
    assert desk.book.texts == {"a": "- mine", "c": "- gamma of an agent", "d": "- delta of an agent"}
    assert desk.shows_the_book()


def test_an_editor_that_never_reloads_adds_nothing_twice_and_clashes_with_nobody(desk: Desk) -> None:
    buffer = desk.text()
    for n in range(4):
        buffer = buffer.replace("- alpha", "- alpha!").replace("<!-- /cp page", f"- note {n}\n<!-- /cp page")
        desk.save(buffer)
        assert desk.sync().clashes == []
    assert list(desk.book.texts.values())[3:] == [f"- note {n}" for n in range(4)]
    assert desk.book.texts["a"] == "- alpha!!!!"


def test_an_edit_that_made_a_new_block_of_the_old_one_can_be_edited_on(desk: Desk) -> None:
    superseded: list[str] = []

    def supersede(path: str, found: list[Edit]) -> list[Taken]:
        answers = []
        for edit in found:
            assert isinstance(edit, Changed)
            del desk.book.texts[edit.block]
            superseded.append(edit.block)
            desk.book.texts[f"a{len(superseded)}"] = edit.after
            answers.append(Taken(edit, True, id=f"a{len(superseded)}"))
        return answers

    desk.mirror = Mirror(desk.folder, desk.book.pages, supersede, clash=desk.book.clashes.append, grace=0)
    buffer = desk.text().replace("- alpha", "- mine")
    desk.save(buffer)
    desk.sync()
    desk.save(buffer.replace("- mine", "- mine, again"))
    desk.sync()
    assert superseded == ["a", "a1"]
    assert desk.book.clashes == []
    assert desk.book.texts["a2"] == "- mine, again"


def test_a_branch_that_is_checked_out_changes_nothing(desk: Desk) -> None:
    old = desk.text()
    desk.book.texts |= {"a": "- newer", "d": "- delta"}
    desk.sync()
    desk.save(old)
    assert desk.sync().taken == []
    assert desk.shows_the_book()


def test_merged_branches_are_just_edits(desk: Desk) -> None:
    mine = desk.text().replace("- alpha", "- mine")
    theirs = desk.text().replace("- gamma", "- theirs").replace("<!-- cp:a", "- added\n\n<!-- cp:a")
    desk.save(merged_by_git(desk.folder, mine, desk.text(), theirs))
    assert desk.sync().refused == []
    assert desk.book.texts == {
        "a": "- mine",
        "b": "- beta\n\n  with more",
        "c": "- theirs",
        "new1": "- added",
    }


def test_branches_that_the_mirror_wrote_merge_but_for_real_conflicts(desk: Desk) -> None:
    base = desk.text()
    page = desk.book.pages()[0]
    mine = render(Page(page.path, page.head, (*page.blocks[:2], Block("c", "- mine"))))
    theirs = render(Page(page.path, page.head, (page.blocks[0], Block("b", "- theirs"), page.blocks[2])))
    desk.save(mine)
    desk.book.texts["c"] = "- mine"
    desk.sync()
    desk.save(merged_by_git(desk.folder, mine, base, theirs))
    assert "<<<<<<<" in desk.text()
    assert desk.sync().refused == []
    assert desk.book.texts == {"a": "- alpha", "b": "- theirs", "c": "- mine"}
    conflict = merged_by_git(desk.folder, mine, base, base.replace("- gamma", "- other"))
    desk.save(conflict)
    assert "belongs to a merge conflict" in desk.sync().refused[0][1]
    assert desk.text() == conflict


def merged_by_git(place: Path, mine: str, base: str, theirs: str) -> str:
    names = [place / name for name in ("mine", "base", "theirs")]
    for name, text in zip(names, (mine, base, theirs), strict=True):
        name.write_text(text)
    run = subprocess.run(["git", "merge-file", "-p", *map(str, names)], capture_output=True, text=True)
    for name in names:
        name.unlink()
    return run.stdout


def test_without_its_memory_the_mirror_asks_instead_of_guessing(desk: Desk) -> None:
    shutil.rmtree(desk.folder / ".mirror")
    assert desk.sync().written == []  # the file says itself that nobody has touched it
    shutil.rmtree(desk.folder / ".mirror")
    desk.book.texts["c"] = "- newer"
    desk.sync()
    assert desk.shows_the_book()
    shutil.rmtree(desk.folder / ".mirror")
    desk.edit("- alpha", "- mine")
    desk.edit(marked("b", "- beta\n\n  with more"), "")
    report = desk.sync()
    assert [(one.block, one.base, one.ours, one.theirs) for one in report.clashes] == [
        ("a", None, "- alpha", "- mine")
    ]
    assert report.taken == []
    assert "b" in desk.book.texts
    base = next((desk.folder / ".mirror" / "base").iterdir())
    base.write_text('{"path": 3}')
    assert len(desk.sync().clashes) == 1


def test_a_page_of_another_folder_is_taken_in_block_by_block(desk: Desk) -> None:
    desk.save(
        render(Page("x.md", "# Others", (Block("x", "- from afar"), Block("a", "- alpha, an old one"))))
    )
    report = desk.sync()
    assert [(one.edit.text, one.edit.copied_id) for one in report.taken if isinstance(one.edit, Added)] == [
        ("- from afar", "x")
    ]
    assert desk.book.texts["a"] == "- alpha"
    assert desk.shows_the_book()


def test_files_with_other_line_ends_stay_so(desk: Desk) -> None:
    desk.save("\ufeff" + desk.text().replace("\n", "\r\n"))
    assert desk.sync().taken == []
    desk.edit("- alpha", "- mine")  # saved with newlines only
    desk.save(desk.text().replace("\n", "\r\n"))
    desk.book.texts["d"] = "with\r\nits own"
    desk.sync()
    assert desk.book.texts["a"] == "- mine"
    raw = desk.file.read_bytes()
    assert raw.count(b"\n") == raw.count(b"\r\n") > 0
    assert b"with&#13;\r\nits own" in raw
    assert not desk.sync().news


def test_white_space_that_an_editor_cut_off_is_no_edit(tmp_path: Path) -> None:
    desk = Desk(tmp_path, a="one  \ntwo\t\n\n")
    desk.sync()
    desk.save("\n".join(line.rstrip() for line in desk.text().split("\n")))
    assert desk.sync().taken == []
    assert desk.shows_the_book()


# the folder


@pytest.mark.parametrize(
    "path",
    [
        "../x.md",
        "/etc/x.md",
        "a/../x.md",
        "a//x.md",
        "",
        "C:/x.md",
        "a\\x.md",
        "x\0.md",
        ".mirror/x.md",
        "./x.md",
    ],
)
def test_a_page_cannot_leave_the_folder(tmp_path: Path, path: str) -> None:
    desk = Desk(tmp_path / "here")
    desk.book.page = Page(path)
    with pytest.raises(BadInput, match="no path inside the folder"):
        desk.sync()
    assert [one.name for one in tmp_path.rglob("*.md")] == []


def test_pages_that_contradict_themselves_are_refused(tmp_path: Path) -> None:
    pages = [Page("x.md")]
    mirror = Mirror(tmp_path, lambda: pages, lambda path, found: [], clash=lambda clash: None)
    for wrong in (Page("x.md"), Page("y.md", "", (Block("a", ""), Block("a", ""))), Page("y.md", "\ud800")):
        pages[1:] = [wrong]
        with pytest.raises(BadInput):
            mirror.sync()
    pages[1:] = []
    mirror.sync()
    (tmp_path / "x.md").write_text("new text")
    with pytest.raises(BadInput, match="answer each"):
        mirror.sync()


def test_links_and_other_things_are_left_alone(desk: Desk, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("private")
    desk.file.unlink()
    desk.file.symlink_to(secret)
    assert "symbolic link" in desk.sync().refused[0][1]
    assert "symbolic link" in desk.mirror.status()[0].refused
    assert secret.read_text() == "private"
    desk.file.unlink()
    os.mkfifo(desk.file)
    assert "no plain file" in desk.sync().refused[0][1]
    desk.file.unlink()
    desk.file.write_bytes(b"\xff\xfe")
    assert "UTF-8" in desk.sync().refused[0][1]
    assert desk.file.read_bytes() == b"\xff\xfe"
    desk.book.page = Page("sub/MEMORY.md")
    (desk.folder / "sub").symlink_to(tmp_path)
    assert "symbolic link" in desk.sync().refused[0][1]
    shutil.rmtree(desk.folder / ".mirror" / "base")
    (desk.folder / ".mirror" / "base").symlink_to(tmp_path)
    with pytest.raises(BadInput, match="not ours"):
        desk.sync()


def test_a_folder_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageFailed, match="cannot be kept"):
        Desk(tmp_path / "file" / "below").sync()


def test_files_keep_their_mode_and_strangers_are_left_alone(desk: Desk) -> None:
    stranger = desk.folder / "other.md"
    stranger.write_text("mine alone")
    desk.file.chmod(0o640)
    desk.book.texts["d"] = "- delta"
    desk.sync()
    assert desk.file.stat().st_mode & 0o777 == 0o640
    assert stranger.read_text() == "mine alone"
    assert (desk.folder / ".mirror" / ".gitignore").read_text() == "*\n"


def test_a_file_goes_with_its_page_unless_it_was_edited(tmp_path: Path) -> None:
    desk = Desk(tmp_path, a="- alpha")
    desk.book.page = Page("deep/er/x.md")
    desk.file = tmp_path / "deep" / "er" / "x.md"
    desk.sync()
    desk.book.shown = False
    before = desk.text()
    desk.edit("- alpha", "- mine")
    assert "it was edited" in desk.sync().refused[0][1]
    assert "- mine" in desk.text()
    desk.save(before)
    assert desk.sync().removed == ["deep/er/x.md"]
    assert not (tmp_path / "deep").exists()
    for _ in range(2):
        assert not desk.sync().news
    assert list((tmp_path / ".mirror").glob("*/*")) == []


def test_two_processes_take_turns(desk: Desk) -> None:
    code = (
        "import fcntl, sys; lock = open(sys.argv[1], 'w'); fcntl.flock(lock, fcntl.LOCK_EX); "
        "print('in', flush=True); sys.stdin.read()"
    )
    lock = desk.folder / ".mirror" / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout
        assert other.stdout.readline() == b"in\n"
        done: list[Report] = []
        thread = threading.Thread(target=lambda: done.append(desk.sync()))
        thread.start()
        assert done == []
        assert other.stdin
        other.stdin.close()
        thread.join()
    assert done[0].unchanged == ["MEMORY.md"]


# saves that cross ours


@pytest.fixture(params=["exchange", "steps"])
def swapping(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[], None]], None]:
    """Do something right before the next files are swapped, on systems that can do so in one step and others."""
    real = safe._renameat2 if request.param == "exchange" else lambda *files: False
    monkeypatch.setattr(safe, "_renameat2", real)

    def before(act: Callable[[], None]) -> None:
        def once(folder: int, name: str, other: int, new: str) -> bool:
            monkeypatch.setattr(safe, "_renameat2", real)
            act()
            return real(folder, name, other, new)

        monkeypatch.setattr(safe, "_renameat2", once)

    return before


@pytest.mark.parametrize("atomic", [True, False])
def test_a_save_in_the_middle_of_a_write_is_taken_in(desk: Desk, swapping: Any, atomic: bool) -> None:
    desk.book.texts["d"] = "- delta"

    def save() -> None:
        text = desk.text().replace("- alpha", "- mine").replace("<!-- /cp page", "- more\n<!-- /cp page")
        if atomic:
            (desk.folder / "editor").write_text(text)
            (desk.folder / "editor").replace(desk.file)
        else:
            desk.save(text)

    swapping(save)
    report = desk.sync()
    assert [type(one.edit) for one in report.taken] == [Changed, Added]
    assert list(desk.book.texts.values()) == [
        "- mine",
        "- beta\n\n  with more",
        "- gamma",
        "- delta",
        "- more",
    ]
    assert desk.shows_the_book()
    assert not desk.sync().news


def test_a_file_that_comes_or_goes_in_the_middle_of_a_write(desk: Desk, swapping: Any) -> None:
    desk.book.texts["d"] = "- delta"
    swapping(desk.file.unlink)
    desk.sync()
    assert desk.shows_the_book()


def test_where_files_cannot_be_swapped_in_one_step_none_is_overwritten(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, text = os.link, desk.text()

    def link(name: str, new: str, **folders: Any) -> None:
        monkeypatch.setattr(os, "link", real)
        assert not desk.file.exists()
        desk.save(text.replace("- alpha", "- mine"))
        real(name, new, **folders)

    monkeypatch.setattr(safe, "_renameat2", lambda *files: False)
    monkeypatch.setattr(os, "link", link)
    desk.book.texts["d"] = "- delta"
    report = desk.sync()
    assert (report.written, len(report.taken)) == (["MEMORY.md"], 1)
    assert desk.book.texts["a"] == "- mine"
    assert desk.shows_the_book()


def test_a_save_through_a_file_that_was_open_before_is_found_later(desk: Desk, swapping: Any) -> None:
    desk.mirror = desk.fresh(grace=3600)
    with desk.file.open("r+") as editor:
        text = editor.read()
        for n in range(2):
            desk.book.texts["d"] = f"- delta {n}"
            desk.sync()
        editor.seek(0)
        editor.write(text.replace("- alpha", "- mine"))
    desk.sync()
    assert desk.book.texts == {"a": "- mine", "b": "- beta\n\n  with more", "c": "- gamma", "d": "- delta 1"}
    assert desk.shows_the_book()


def test_of_two_saves_that_cross_the_elder_is_kept_beside(desk: Desk) -> None:
    desk.mirror = desk.fresh(grace=3600)
    with desk.file.open("r+") as editor:
        text = editor.read()
        desk.book.texts["d"] = "- delta"
        desk.sync()
        desk.edit("- gamma", "- newest")
        editor.seek(0)
        editor.write(text.replace("- alpha", "- mine"))
    report = desk.sync()
    assert "kept as MEMORY.saved-" in report.refused[0][1]
    beside = next(desk.folder.glob("MEMORY.saved-*.md"))
    assert "- mine" in beside.read_text()
    assert desk.book.texts["c"] == "- newest"
    assert not desk.sync().news


def test_a_save_into_a_file_that_was_just_removed_brings_it_back(desk: Desk) -> None:
    desk.mirror = desk.fresh(grace=3600)
    with desk.file.open("r+") as editor:
        text = editor.read()
        desk.book.shown = False
        assert desk.sync().removed == ["MEMORY.md"]
        editor.seek(0)
        editor.write(text.replace("- alpha", "- mine"))
    assert "it was edited" in desk.sync().refused[0][1]
    assert "- mine" in desk.text()


# crashes


class Killed(BaseException):
    """The process ends here."""


def kill(monkeypatch: pytest.MonkeyPatch, at: int, after: bool, steps: bool) -> Callable[[], bool]:
    """Die at the nth thing that reaches the disk, before it is done or right after. Tells whether it came so far."""
    count = 0

    def mortal(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            nonlocal count
            count += 1
            if count == at and not after:
                raise Killed
            done = real(*args, **named)
            if count == at:
                raise Killed
            return done

        return call

    for name in ("replace", "rename", "link", "unlink", "fsync"):
        monkeypatch.setattr(os, name, mortal(getattr(os, name)))
    if steps:
        monkeypatch.setattr(safe, "_renameat2", lambda *files: False)
    else:
        monkeypatch.setattr(safe, "_renameat2", mortal(safe._renameat2))
    return lambda: count >= at


@pytest.mark.parametrize("steps", [False, True])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("goes_on", ["nobody", "agent", "person"])
def test_a_crash_between_any_two_steps_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: bool, after: bool, goes_on: str
) -> None:
    for at in range(1, 100):
        desk = Desk(tmp_path / str(at), a="- alpha", b="- beta", c="- gamma", d="- delta")
        desk.sync()
        desk.book.texts["d"] = "- delta of an agent"
        desk.book.refuse = lambda edit: "no" if "unwanted" in str(edit) else ""
        desk.edit("- alpha", "- mine")
        desk.edit(marked("b", "- beta"), "- more\n")
        desk.edit("<!-- cp:a", "- unwanted\n\n<!-- cp:a")
        with monkeypatch.context() as patch:
            reached = kill(patch, at, after, steps)
            try:
                desk.sync()
            except Killed:
                pass
            if not reached():
                return
        wanted = ["- mine", "- gamma", "- delta of an agent", "- more"]
        if goes_on == "agent":
            desk.book.texts["e"] = "- epsilon"
            wanted = ["- mine", "- gamma", "- delta of an agent", "- more", "- epsilon"]
        elif goes_on == "person" and desk.file.exists():
            desk.edit("- gamma", "- gamma, mine")
            wanted[1] = "- gamma, mine"
        desk.mirror = desk.fresh()
        reports = [desk.sync() for _ in range(3)]
        assert sorted(desk.book.texts.values()) == sorted(wanted), at
        assert desk.book.clashes == [], at
        assert "- unwanted\n<!-- cp rejected" in desk.text(), at
        desk.save(re.sub("<!-- cp new -->.*?<!-- /cp -->\n\n", "", desk.text(), flags=re.S))
        assert desk.shows_the_book(), at
        assert not reports[-1].news, at
        assert {one.name for one in desk.folder.iterdir()} == {".mirror", "MEMORY.md"}
    pytest.fail("a sync never ends")


def test_a_crash_while_a_file_is_taken_in_for_the_first_time_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(1, 100):
        desk = Desk(tmp_path / str(at))
        desk.folder.mkdir()
        desk.save("- old note\n")
        with monkeypatch.context() as patch:
            reached = kill(patch, at, after=False, steps=False)
            try:
                desk.sync()
            except Killed:
                pass
            if not reached():
                return
        desk.fresh().sync()
        assert desk.book.texts == {"new1": "- old note"}, at
        assert desk.shows_the_book()
    pytest.fail("a sync never ends")


def test_an_edit_made_again_after_a_crash_is_a_new_one(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    real = desk.mirror._take

    def die(path: str, found: list[Edit]) -> list[Taken]:
        real(path, found)
        raise Killed

    desk.edit("- alpha", "- mine")
    desk.mirror._take = die
    with pytest.raises(Killed):
        desk.sync()
    desk.mirror = desk.fresh()
    desk.sync()
    desk.book.texts["a"] = "- alpha"
    desk.sync()
    desk.edit("- alpha", "- mine")
    desk.sync()
    assert desk.book.texts["a"] == "- mine"


# everything at once


class Person:
    """Somebody who edits a file's text in ways that people do, each time with a word of their own."""

    def __init__(self) -> None:
        self.words = 0

    def word(self) -> str:
        self.words += 1
        return f"- person{self.words}"

    def edit(self, text: str, what: int, where: int) -> str:
        blocks = list(re.finditer(r"<!-- cp:\S+ -->\n.*?<!-- /cp -->\n", text, re.S))
        one = blocks[where % len(blocks)] if blocks else None
        if what == 0 or one is None:
            foot = "<!-- /cp page -->\n"
            return text.replace(foot, f"{self.word()}\n{foot}") if foot in text else f"{text}{self.word()}\n"
        start, end = one.span()
        inner = one[0].split("\n")[1:-2]
        mark = one[0].split("\n")[0]
        if what == 1:  # insert above
            return f"{text[:start]}{self.word()}\n\n{text[start:]}"
        if what == 2:  # remove
            return text[:start] + text[end:]
        if what == 3:  # move to the end
            return text[:start] + text[end:] + one[0]
        kept = [line for line in inner if not re.match("<!-- cp (clash|or|end)", line)]
        if len(kept) < len(inner) or what == 4:  # resolve, or change
            kept = [*kept[: where % 2], self.word()]
        else:  # change only the first line
            kept = [self.word(), *kept[1:]]
        return f"{text[:start]}{mark}\n" + "\n".join([*kept, "<!-- /cp -->\n"]) + text[end:]


ACTS = "edit edit edit stale reload sync sync change add remove crash cross checkout refuse crlf forget head late"
STEPS = st.lists(st.tuples(st.sampled_from(ACTS.split()), st.integers(0, 5), st.integers(0, 7)), max_size=25)


@given(STEPS)
@settings(max_examples=200, deadline=None)
def test_no_word_of_a_person_is_ever_lost(steps: list[tuple[str, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        desk, person = Desk(Path(place), a="- one", b="- two", c="- three"), Person()
        desk.sync()
        buffer, old, agents = desk.text(), [desk.text()], 0
        forgotten = False
        real = safe._renameat2
        desk.book.refuse = lambda edit: "no" if refusing and isinstance(edit, Changed) else ""
        refusing = False
        for what, how, where in [*steps, ("sync", 0, 0), ("sync", 0, 0)]:
            ids = sorted(desk.book.texts)
            if what == "edit":
                desk.save(person.edit(desk.text() if desk.file.exists() else "", how, where))
            elif what == "stale":
                buffer = person.edit(buffer, how, where)
                desk.save(buffer)
            elif what == "reload":
                buffer = desk.text()
                old.append(buffer)
            elif what == "checkout":
                desk.save(old[where % len(old)])
            elif what == "crlf":
                desk.save(desk.text().replace("\n", "\r\n"))
            elif what == "forget":
                shutil.rmtree(desk.folder / ".mirror", ignore_errors=True)
                forgotten = True
            elif what == "refuse":
                refusing = not refusing
            elif what == "head":
                agents += 1
                desk.book.page = Page("MEMORY.md", f"# Memory\n\n{agents} things.")
            elif what == "change" and ids:
                agents += 1
                desk.book.texts[ids[where % len(ids)]] = f"- agent{agents}"
            elif what == "add":
                agents += 1
                desk.book.texts[f"id{agents}"] = f"- agent{agents}"
            elif what == "remove" and ids:
                del desk.book.texts[ids[where % len(ids)]]
            elif what in ("sync", "crash", "cross", "late"):
                saved = [desk.text()]
                if what == "crash":
                    with pytest.MonkeyPatch.context() as inner:
                        kill(inner, how * 8 + where + 1, where % 2 == 0, how % 2 == 0)
                        try:
                            desk.sync()
                        except Killed:
                            pass
                    desk.mirror = desk.fresh()
                elif what == "cross":

                    def save(
                        *files: Any, how: int = how, where: int = where, saved: list[str] = saved
                    ) -> bool:
                        patch.setattr(safe, "_renameat2", real)
                        saved[:] = [person.edit(desk.text(), how, where)]
                        desk.save(saved[0])
                        return real(*files)

                    patch.setattr(safe, "_renameat2", save)
                    desk.sync()
                    patch.setattr(safe, "_renameat2", real)
                elif what == "late":
                    desk.mirror = desk.fresh(grace=3600)
                    with desk.file.open("r+b") as editor:
                        desk.sync()
                        editor.seek(0)
                        saved = [person.edit(editor.read().decode().replace("\r\n", "\n"), how, where)]
                        editor.seek(0)
                        editor.write(saved[0].encode())
                        editor.truncate()
                    desk.sync()
                    desk.mirror = desk.fresh()
                desk.sync()
                taken = {
                    word
                    for edit in desk.book.log
                    for word in TOKEN.findall(getattr(edit, "after", "") + getattr(edit, "text", ""))
                }
                shown = {
                    word for file in desk.folder.glob("*.md") for word in TOKEN.findall(file.read_text())
                }
                clashed = {word for clash in desk.book.clashes for word in TOKEN.findall(clash.theirs or "")}
                assert set(TOKEN.findall(saved[0])) <= taken | shown | clashed
                again = desk.sync()
                assert [*again.written, *again.taken, *again.refused] == []
                if not again.clashes and "rejected" not in desk.text():
                    found = parse(desk.text())
                    assert {part.id: part.text for part in found.parts} == desk.book.texts
                held = [text for text in desk.book.texts.values() if TOKEN.search(text)]
                assert forgotten or len(held) == len(set(held))  # nothing is added twice


# watching


@pytest.fixture
def watched(desk: Desk) -> Iterator[tuple[Desk, Callable[[Callable[[Report], bool]], Report]]]:
    """A desk whose folder is watched, and a way to wait for a report of some kind."""
    stop, news, reports = threading.Event(), threading.Condition(), list[Report]()

    def tell(report: Report) -> None:
        with news:
            reports.append(report)
            news.notify_all()

    def wait(wanted: Callable[[Report], bool]) -> Report:
        with news:
            assert news.wait_for(lambda: any(map(wanted, reports)), timeout=60)
            return next(filter(wanted, reports))

    thread = threading.Thread(target=desk.mirror.watch, args=(stop, tell))
    thread.start()
    try:
        yield desk, wait
    finally:
        stop.set()
        thread.join()


def test_a_watched_folder_follows_people_and_pokes(watched: Any) -> None:
    desk, wait = watched
    wait(lambda report: bool(report.unchanged))
    desk.edit("- alpha", "- mine")
    wait(lambda report: bool(report.taken))
    assert desk.book.texts["a"] == "- mine"
    desk.book.texts["d"] = "- delta"
    desk.mirror.poke()
    wait(lambda report: bool(report.written))
    assert desk.shows_the_book()
