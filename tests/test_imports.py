"""Other tools' memories come in as plain data: every format as people have it, and files that mean harm."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import commonplace
from commonplace import Book
from commonplace.errors import BadInput
from commonplace.memory import imports
from commonplace.memory.imports import FORMATS, markdown, read_memories, records
from commonplace.memory.imports.incoming import FileRead, Incoming, Skipped

CLAUDE = """\
# Shop

The shop sells plants. See @docs/architecture.md and @../secret.md for more.

## Conventions

- Use four spaces, never tabs #style
- Money is in cents:
  - never floats
  - see `Money`
* Tests live beside the code
  and end in `_test.py`.

**Names:**
- branches are `topic/…`
- commits speak in the imperative

## Release

To release, do this:

1. Bump the version
2. Tag it
   ```bash
   git tag v1
   ```
3. Push

Run the tests with:

```bash
make test
# not a heading
```

```
src/
└── shop/
```

---

<!-- the linter wants
this comment -->

## Later
"""


def export(name: str, text: str) -> tuple[str | None, list[Incoming], list[Skipped]]:
    read = records.read(name, text)
    return read.format, read.items, read.skipped


def linked(*pages: FileRead) -> dict[str, list[Incoming]]:
    markdown.link(pages)
    return {page.path: page.items for page in pages}


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.mark.spec("3.3")
def test_a_project_s_instructions_become_a_note_for_each_rule_and_a_procedure_for_each_way_to_do_things(
    tmp_path: Path,
) -> None:
    read = read_memories(write(tmp_path, {"CLAUDE.md": CLAUDE}) / "CLAUDE.md")
    assert read.format == "markdown"
    assert [(one.kind, one.title, one.body, one.source) for one in read.items] == [
        (
            "note",
            "Shop",
            "The shop sells plants. See @docs/architecture.md and @../secret.md for more.",
            "CLAUDE.md:3",
        ),
        ("note", "Shop > Conventions", "Use four spaces, never tabs #style", "CLAUDE.md:7"),
        ("note", "Shop > Conventions", "Money is in cents:\n- never floats\n- see `Money`", "CLAUDE.md:8"),
        ("note", "Shop > Conventions", "Tests live beside the code\nand end in `_test.py`.", "CLAUDE.md:11"),
        ("note", "Shop > Conventions > **Names:**", "branches are `topic/…`", "CLAUDE.md:15"),
        ("note", "Shop > Conventions > **Names:**", "commits speak in the imperative", "CLAUDE.md:16"),
        (
            "procedure",
            "Shop > Release",
            "To release, do this:\n\n1. Bump the version\n2. Tag it\n   ```bash\n   git tag v1\n   ```\n3. Push",
            "CLAUDE.md:20",
        ),
        (
            "procedure",
            "Shop > Release",
            "Run the tests with:\n\n```bash\nmake test\n# not a heading\n```",
            "CLAUDE.md:29",
        ),
        ("note", "Shop > Release", "```\nsrc/\n└── shop/\n```", "CLAUDE.md:36"),
    ]
    assert read.items[1].tags == ("style",)
    assert read.skipped == (
        Skipped("CLAUDE.md:43", "a comment: <!-- the linter wants\nthis comment -->"),
        Skipped("CLAUDE.md:46", "a heading with nothing below it: Later"),
    )


@pytest.mark.spec("3.3")
def test_a_memory_folder_keeps_its_index_with_the_notes_it_lists(tmp_path: Path) -> None:
    read = read_memories(
        write(
            tmp_path,
            {
                "MEMORY.md": "# Memory index\n\n## Feedback\n"
                "- [No summaries](feedback_summaries.md) — stop after the answer\n"
                "- [Gone](gone.md) — its file was deleted\n\n"
                "Keep this index short.\n",
                "feedback_summaries.md": "---\nname: No summaries\ndescription: how to end an answer\n"
                "type: feedback\n---\n\nEnd with the answer. See [[user-role]].\n\n**Why:** they read the diff.\n",
                "user_role.md": "---\nname: user-role\ndescription: who they are\nmetadata:\n  type: user\n---\n"
                "A gardener who learns Rust.\n",
            },
        )
    )
    assert read.format == "front-matter, markdown"
    gone, keep, summaries, role = read.items
    assert (gone.body, gone.title, gone.links) == (
        "[Gone](gone.md) — its file was deleted",
        "Memory index > Feedback",
        (("links_to", "gone.md"),),
    )
    assert (keep.title, keep.body) == ("Memory index > Feedback", "Keep this index short.")
    assert summaries == Incoming(
        kind="note",
        body="End with the answer. See [[user-role]].\n\n**Why:** they read the diff.",
        title="No summaries",
        links=(("links_to", "user_role"),),
        name="feedback_summaries",
        category="feedback",
        source="feedback_summaries.md",
        metadata={
            "description": "how to end an answer",
            "type": "feedback",
            "listed": [
                {
                    "source": "MEMORY.md:4",
                    "under": "Memory index > Feedback",
                    "text": "[No summaries](feedback_summaries.md) — stop after the answer",
                }
            ],
        },
    )
    assert (role.name, role.category, role.title) == ("user_role", "user", "user-role")
    assert not read.skipped


@pytest.mark.spec("3.3")
def test_basic_memory_notes_keep_observations_relations_and_times(tmp_path: Path) -> None:
    coffee = """\
---
title: Coffee Brewing, by Hand
type: note
permalink: drinks/coffee-by-hand
tags: [coffee, 'brewing']
created: 2024-03-01T09:30:00Z
rating: 4.50
# how I rate: with my nose
---

# Coffee

- [method] Pour over gives clarity #brewing (mine)
- pairs_with [[Proper Grinding|grinding]] (always)
- "contrasts with" [[tea]]
- uses [[tea]] in summer, says `[[nobody]]` #2024
"""
    read = read_memories(
        write(tmp_path, {"a/coffee.md": coffee, "b/grind.md": "---\ntitle: Proper Grinding\n---\nFine.\n"})
    )
    assert read.format == "front-matter"
    note, grind = read.items
    assert (note.title, note.name, note.created_at) == (
        "Coffee Brewing, by Hand",
        "a/coffee",
        "2024-03-01T09:30:00Z",
    )
    assert note.body == coffee.split("---\n\n")[1].strip()
    assert note.tags == ("brewing", "coffee")
    assert note.links == (("pairs_with", "b/grind"), ("contrasts with", "tea"), ("links_to", "tea"))
    assert note.metadata == {"type": "note", "permalink": "drinks/coffee-by-hand", "rating": "4.50"}
    assert (grind.name, grind.body, grind.category) == ("b/grind", "Fine.", None)
    assert read.skipped == (
        Skipped("a/coffee.md:8", "a comment in the front matter: # how I rate: with my nose"),
    )


@pytest.mark.spec("3.3")
def test_an_obsidian_vault_links_by_file_name_alias_path_and_property(tmp_path: Path) -> None:
    read = read_memories(
        write(
            tmp_path,
            {
                ".obsidian/app.json": "{}",
                "Daily/2024-05-01.md": "Met [[Ada]] and [[people/Bo#Work|Bo]], ![[plan.png]]. #log/daily (#met)\n"
                "```python\n#not_a_tag [[not a link]]\n```\n",
                "people/Ada Byron.md": "---\naliases: Ada, Countess\ndate: 2024-05-01\nup: '[[Index]]'\n"
                "related: ['[[people/Bo]]', '[[Index]]']\ntags: '#person, friend'\n---\n",
                "people/Bo.md": "# Bo, the builder #\nSee [her](Ada%20Byron.md#top) and [web](https://a.b/c.md).\n",
                "archive/Bo.md": "---\ntype: procedure\n---\n[[Bo]] was here.\n",
            },
        )
    )
    day, old, ada, bo = read.items
    assert day.links == (
        ("links_to", "people/Ada Byron"),
        ("links_to", "people/Bo"),
        ("links_to", "plan.png"),
    )
    assert day.tags == ("log/daily", "met")
    assert day.title == "2024-05-01"
    assert (old.kind, old.links) == ("procedure", (("links_to", "archive/Bo"),))  # the one in its own folder
    assert (ada.title, ada.body, ada.tags) == ("Ada Byron", "Ada Byron", ("friend", "person"))
    assert (ada.occurred_at, ada.created_at) == ("2024-05-01", None)
    assert ada.links == (("up", "Index"), ("related", "people/Bo"), ("related", "Index"))
    assert (bo.name, bo.title, bo.links) == (
        "people/Bo",
        "Bo, the builder",
        (("links_to", "people/Ada Byron"),),
    )
    assert read.skipped == (Skipped(".obsidian/", "a hidden folder; give its path to read it"),)


MEMORIES = [
    {
        "id": "892db2ae-06d9-49e5-8b3e-585ef9b85b8e",
        "memory": "Prefers window seats",
        "hash": "2f2b",
        "metadata": {"type": "user"},
        "categories": ["travel", "preferences"],
        "created_at": "2024-07-20T01:30:36.275141-07:00",
        "updated_at": None,
        "user_id": "ada",
        "agent_id": "travel-agent",
        "run_id": "trip-1",
    },
    {
        "id": "2",
        "memory": "1. open the form 2. send it",
        "metadata": {"memory_type": "procedural_memory"},
        "created_at": 1721460636,
    },
]


@pytest.mark.spec("3.3")
@pytest.mark.parametrize("shape", ["answer", "list", "lines"])
def test_mem0_memories_keep_who_when_and_where_from(tmp_path: Path, shape: str) -> None:
    text = {
        "answer": json.dumps({"count": 2, "next": None, "previous": None, "results": MEMORIES}, indent=2),
        "list": json.dumps(MEMORIES),
        "lines": "\n".join(map(json.dumps, MEMORIES)) + "\n",
    }[shape]
    read = read_memories(write(tmp_path, {"export.json": text}) / "export.json")
    assert read.format == "mem0"
    assert not read.skipped
    assert read.items == (
        Incoming(
            kind="note",
            body="Prefers window seats",
            tags=("preferences", "travel"),
            category="user",
            created_at="2024-07-20T01:30:36.275141-07:00",
            agent="travel-agent",
            run="trip-1",
            source="export.json#892db2ae-06d9-49e5-8b3e-585ef9b85b8e",
            metadata={
                "id": "892db2ae-06d9-49e5-8b3e-585ef9b85b8e",
                "hash": "2f2b",
                "metadata": {"type": "user"},
                "user_id": "ada",
            },
        ),
        Incoming(
            kind="procedure",
            body="1. open the form 2. send it",
            source="export.json#2",
            metadata={
                "id": "2",
                "metadata": {"memory_type": "procedural_memory"},
                "created_at": 1721460636,
            },
        ),
    )


@pytest.mark.spec("3.3")
def test_mem0_s_graph_further_pages_and_deleted_memories_are_told() -> None:
    graph = [
        {"source": "ada", "relationship": "lives_in", "target": "london"},
        {"source": "ada", "relationship": "knows", "destination": "bo", "score": 0.9},
        {"source": "ada", "relationship": "knows"},
    ]
    gone = {"id": "3", "content": "old", "metadata": {}, "state": "deleted"}
    kept = {"id": "4", "content": "new", "metadata": {}, "state": "active", "app": "cursor"}
    document = {
        "results": [gone, kept, {"memory": " "}],
        "relations": graph,
        "next": "https://…?page=2",
        "a": {"b": 1},
    }
    format, found, skipped = export("m.json", json.dumps(document))
    assert format == "mem0"
    assert [one.body for one in found] == ["new", "ada lives_in london\nada knows bo"]
    assert found[0].metadata == {"id": "4", "metadata": {}, "state": "active", "app": "cursor"}
    assert (found[1].name, found[1].links) == ("ada", (("lives_in", "london"), ("knows", "bo")))
    assert found[1].metadata["relations"][0]["score"] == 0.9
    assert [(one.source, one.why) for one in skipped] == [
        ("m.json#next", "there are further pages, which this file does not hold"),
        ("m.json#a", "stands beside the memories and is none of them"),
        ("m.json#results[0]", "deleted where it comes from"),
        ("m.json#results[2]", "empty"),
        ("m.json#relations[2]", "a relation needs two ends and a type, all of them text"),
    ]


ENTITIES = [
    {"name": "Ada", "entityType": "person", "observations": ["Speaks Italian", "Rises early"]},
    {"name": "Engine", "entityType": "machine", "observations": []},
]
RELATIONS = [
    {"from": "Ada", "to": "Engine", "relationType": "programs"},
    {"from": "Ada", "to": "Bo", "relationType": "knows"},
    {"from": "Bo", "to": "Ada", "relationType": "knows"},
]


@pytest.mark.spec("3.3")
@pytest.mark.parametrize("shape", ["file", "answer"])
def test_the_memory_server_s_entities_become_notes_and_its_relations_links(
    tmp_path: Path, shape: str
) -> None:
    lines = [{"type": "entity", **one} for one in ENTITIES] + [
        {"type": "relation", **one} for one in RELATIONS
    ]
    text = (
        "\n".join(map(json.dumps, lines))
        if shape == "file"
        else json.dumps({"entities": ENTITIES, "relations": RELATIONS}, indent=2)
    )
    read = read_memories(write(tmp_path, {"memory.json": text}))
    assert read.format == "server-memory"
    assert [(one.title, one.body, one.tags, one.name, one.links) for one in read.items] == [
        ("Ada", "Speaks Italian", ("person",), "Ada", (("programs", "Engine"), ("knows", "Bo"))),
        ("Ada", "Rises early", ("person",), None, ()),
        ("Engine", "Engine (machine)", ("machine",), "Engine", ()),
        ("Bo", "Bo knows Ada", (), "Bo", (("knows", "Ada"),)),
    ]
    assert read.items[0].source == {"file": "memory.json:1", "answer": "memory.json#entities[0]"}[shape]
    assert not read.skipped


@pytest.mark.spec("3.3", "L4", "L5")
def test_what_is_taken_in_is_linked_as_it_was_and_taking_it_in_again_changes_nothing(tmp_path: Path) -> None:
    relations = [
        *RELATIONS,
        {"from": "Ada", "to": "Ada", "relationType": "is"},
        {"from": "Bo", "to": "Nobody", "relationType": "seeks"},
    ]
    large = {"name": "Log", "entityType": "file", "observations": ["x" * 200_000]}
    text = json.dumps({"entities": [large, *ENTITIES], "relations": relations})
    source = write(tmp_path, {"memory.json": text}) / "memory.json"
    seen: list[tuple[int, int]] = []
    with commonplace.open("memory:") as book:
        looked = book.memory.import_(source, dry_run=True)
        assert (looked.done, looked.links, [*book.memory.list()]) == (False, 0, [])
        adopted = book.memory.import_(source, progress=lambda done, of: seen.append((done, of)))
        assert seen == [(n, len(adopted.became)) for n in range(1, len(adopted.became) + 1)]
        assert [one.outcome for one in adopted.became] == ["rejected", *["stored"] * 4]
        by_title = {item.title: item for item in reversed(book.memory.list())}
        assert by_title["Ada"].links == (("knows", by_title["Bo"].id), ("programs", by_title["Engine"].id))
        assert by_title["Bo"].links == (("knows", by_title["Ada"].id),)
        assert (adopted.done, adopted.links) == (True, 3)
        before = book.memory.list()
        assert {book.event(item.id).occurred_us for item in before} == {None}  # no time is made up
        assert book.memory.import_(source).links == 0
        assert book.memory.list() == before


@pytest.mark.spec("3.3", "3.9", "L4", "L9")
def test_each_actor_takes_in_a_file_for_itself_unless_it_may_read_what_another_one_took_in(
    book: Book, tmp_path: Path
) -> None:
    text = "# Ferry\n\n- The ferry leaves pier four at noon\n- Dogs travel free of charge\n"
    source = write(tmp_path, {"CLAUDE.md": text}) / "CLAUDE.md"
    ben, ada, cem = book.as_actor("ben"), book.as_actor("ada"), book.as_actor("cem")
    first = ben.memory.import_(source)
    mine = ada.memory.import_(source)
    assert first.counts == mine.counts == {"stored": 2}
    assert {part.id for part in first.became}.isdisjoint(part.id for part in mine.became)
    assert [item.agent for item in ada.memory.list()] == ["ada", "ada"]
    again = ada.memory.import_(source)
    assert [(part.id, part.outcome, part.reason) for part in again.became] == [
        (part.id, "stored", "as the first time") for part in mine.became
    ]
    for part in first.became:
        ben.memory.share(str(part.id))
    theirs = cem.memory.import_(source)
    assert [(part.id, part.outcome) for part in theirs.became] == [
        (part.id, "merged") for part in first.became
    ]
    for part in first.became:  # one file speaks once, however many read it
        assert ben.memory.get(str(part.id)).corroborated == ()


@pytest.mark.spec("3.6", "L4", "L5")
def test_an_import_says_that_what_was_forgotten_stays_so(book: Book, tmp_path: Path) -> None:
    text = "# Ferry\n\n- The ferry leaves pier four at noon\n- Dogs travel free of charge\n"
    source = write(tmp_path, {"CLAUDE.md": text}) / "CLAUDE.md"
    for me in (book, book.as_actor("ada")):
        forgotten, erased = me.memory.import_(source).became
        me.forget(str(forgotten.id), confirm="FORGET")
        me.forget(str(erased.id), erase=True, confirm="FORGET")
        before = book.head
        again, gone = me.memory.import_(source).became
        assert (again.id, again.outcome) == (forgotten.id, "stored")
        assert again.reason == "as the first time; it was forgotten since, and stays so until it is restored"
        assert gone.outcome == "rejected"
        assert "was erased; remembering it again restores nothing" in gone.reason
        assert (book.head, [*me.memory.list()]) == (before, [])


@pytest.mark.spec("3.3", "L5")
def test_a_broken_line_in_the_middle_costs_only_itself() -> None:
    lines = [
        '{"type":"entity","name":"Ada","entityType":"person","observations":["one", 2, ""]}',
        '{"type":"entity","name":"Bo","entityTy',
        '{"type":"entity","name":"A","name":"B"}',
        '{"type":"entity","observations":["nameless"]}',
        '{"type":"relation","from":"Ada","to":null,"relationType":"x"}',
        '{"type":"weather"}',
        '{"type":"entity","name":"C","observations":"alone","createdAt":"2025-01-02"}',
        "[" * 5_000,
        '{"type":"entity","name":"Ada","entityType":"person","observations":["two"]}',
        '{"type":"entity","name":"\\ud800"}',
        '{"type":"entity","name":"D","weight":1e999}',
    ]
    format, found, skipped = export("memory.jsonl", "\r\n".join(lines))
    assert format == "server-memory"
    assert [(one.title, one.name, one.body, one.created_at) for one in found] == [
        ("Ada", "Ada", "one", None),
        ("C", "C", "alone", "2025-01-02"),
        ("Ada", None, "two", None),
    ]
    assert sorted(int(one.source.partition(":")[2]) for one in skipped) == [1, 1, 2, 3, 4, 5, 6, 8, 10, 11]
    assert "the key 'name' comes twice" in next(one.why for one in skipped if one.source == "memory.jsonl:3")


@pytest.mark.spec("L5")
def test_a_folder_says_what_it_did_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"out.md": "not for you", "in/z.md": "- read", "in/.git/HEAD": "x", "in/.env": "x"})
    folder = tmp_path / "in"
    (folder / "huge.md").write_bytes(b"a " * 5_000_000)
    (folder / "nul.md").write_bytes(b"a\0b")
    (folder / "latin.md").write_bytes("one\ncaf\xe9".encode("latin-1"))
    (folder / "empty.md").write_text(" \n")
    (folder / "rule.md").write_text("---\n---\n")
    (folder / "photo.png").write_bytes(b"\x89PNG")
    (folder / "package.json").write_text('{"name": "x", "results": [{"title": "y"}]}')
    (folder / "broken.json").write_text('{"results": [\n')
    (folder / "blank.jsonl").write_text("\n")
    (folder / "same.md").symlink_to("z.md")
    (folder / "away.md").symlink_to(tmp_path / "out.md")
    (folder / "up").symlink_to("..")
    (folder / "loop.md").symlink_to("loop.md")
    os.mkfifo(folder / "pipe.md")
    read = read_memories(folder)
    assert [one.body for one in read.items] == ["read"]
    told = {one.source: one.why for one in read.skipped}
    assert list(told) == sorted(told)
    assert told.pop("broken.json").startswith("not JSON (Expecting value: line 2")
    assert told == {
        ".env": "a hidden file; give its path to read it",
        ".git/": "a hidden folder; give its path to read it",
        "away.md": "a link that leaves the folder; links are not followed",
        "blank.jsonl": "empty",
        "empty.md": "empty",
        "huge.md": "10,000,000 bytes; at most 1,000,000 are read",
        "latin.md": "not UTF-8 (line 2); save it as UTF-8",
        "loop.md": "a link inside the folder; links are not followed",
        "nul.md": "binary (it holds a NUL byte)",
        "package.json": "JSON, but neither memories nor entities and relations",
        "photo.png": "neither markdown nor JSON",
        "pipe.md": "not a file",
        "rule.md": "empty",
        "same.md": "a link inside the folder; links are not followed",
        "up": "a link that leaves the folder; links are not followed",
    }
    monkeypatch.setattr(imports, "MAX_FILES", 2)
    with pytest.raises(BadInput, match="more than 2 files: this one and all that come after it"):
        read_memories(folder)


@pytest.mark.spec("L5")
def test_where_nothing_can_be_read_the_formats_are_listed(tmp_path: Path) -> None:
    write(tmp_path, {"chat.json": '[{"id": "1", "role": "user", "content": "hi"}]', "notes.docx": "x"})
    (tmp_path / "none").mkdir()
    (tmp_path / "large.md").write_bytes(b"a" * 1_000_001)
    for name in ("chat.json", "notes.docx", "none", "large.md", "missing.md"):
        with pytest.raises(BadInput) as refused:
            read_memories(tmp_path / name)
        for format, about in FORMATS.items():
            assert f"{format}: {about}" in str(refused.value)
    assert export("e.json", '{"entities": [], "relations": []}') == ("server-memory", [], [])
    assert export("e.json", '{"results": []}') == ("mem0", [], [])


BOMB = "a: &a [x, x, x]\n" + "".join(
    f"{chr(98 + at)}: &{chr(98 + at)} [{', '.join([f'*{chr(97 + at)}'] * 9)}]\n" for at in range(9)
)


@pytest.mark.spec("3.3", "L5")
@pytest.mark.parametrize(
    ("front", "why"),
    [
        (BOMB, "with its aliases written out"),
        ("title: !!python/object/apply:os.system ['true']", "tag"),
        ("title: one\ntitle: two", "the key 'title' comes twice"),
        ("[a, b]: c", "must be text"),
        ("x: " + "[" * 500 + "]" * 500, "nested deeper than 64 levels"),
        ("title: " + "x" * 70_000, "at most 64,000 are read"),
        ("title: Design: a plan", "line 2: not YAML"),
        ("title: x\n--- y", "second document"),
        ('title: "\\ud800"', "surrogate|not YAML"),
        ("title: \x07", "not YAML"),
    ],
)
def test_front_matter_that_means_harm_is_kept_as_text_and_never_followed(front: str, why: str) -> None:
    page = markdown.read("note.md", f"---\n{front}\n---\nThe note did nothing wrong. #kept\n")
    assert [(one.body, one.title, one.tags, one.metadata) for one in page.items] == [
        ("The note did nothing wrong. #kept", "note", ("kept",), {"front_matter": front})
    ]
    assert [one.source for one in page.skipped] == ["note.md:1"]
    assert re.search(why, page.skipped[0].why)


@pytest.mark.spec("3.3")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("---\nJust a rule above\n---\nand below", ["Just a rule above", "and below"]),
        ("---\nno end", ["no end"]),
        ("one\n2024. was a year\n\n1. a\n\n   more\n- sub\n2) b\n- c", None),
        ("-  [ ] task\n-\n+ x", ["[ ] task\n-", "x"]),
        ("```\nnever closed\n\n# x", ["```\nnever closed\n\n# x"]),
        ("- ```sh\n  ls\n  ```\n- next", ["```sh\nls\n```", "next"]),
        ("| a | b |\n|---|---|\n| 1 | 2 |", ["| a | b |\n|---|---|\n| 1 | 2 |"]),
        ("# T #\n\n## C#\n\ntext\n\n#\n\nafter", ["text", "after"]),
        ("***\n- - -\n\n?!", []),
    ],
)
def test_markdown_is_cut_where_a_reader_would_cut_it(text: str, expected: list[str] | None) -> None:
    page = markdown.read("AGENTS.md", text)
    if expected is None:
        expected = ["one\n2024. was a year", "1. a\n\n   more\n- sub\n2) b\n- c"]
        assert [one.kind for one in page.items] == ["note", "procedure"]
    assert [one.body for one in page.items] == expected
    assert all(one.source != "AGENTS.md" for one in page.skipped)


def test_a_title_stays_short_however_long_the_heading_is() -> None:
    page = markdown.read("MEMORY.md", f"# {'long ' * 100}\n- a\n- b\n")
    assert [one.body for one in page.items] == [("long " * 100).strip(), "a", "b"]
    assert all(len(one.title or "") <= 120 for one in page.items)
    entity = {"type": "entity", "name": "n" * 500, "entityType": "t" * 500, "observations": ["a", "b"]}
    _, found, _ = export("m.jsonl", json.dumps(entity))
    assert [(len(one.title or ""), len(one.tags[0])) for one in found] == [(120, 120)] * 2
    assert (found[0].name, found[0].metadata) == ("n" * 500, {"entityType": "t" * 500})


def test_indexes_of_each_other_do_not_vanish() -> None:
    pages = [
        markdown.read("a/MEMORY.md", "- [b](../b.md)"),
        markdown.read("b.md", "- [a](a/MEMORY.md) — all\n"),
    ]
    assert [one.body for items in linked(*pages).values() for one in items] == [
        "[b](../b.md)",
        "[a](a/MEMORY.md) — all",
    ]
    pages = [markdown.read("MEMORY.md", "# Index\n- [b](b.md)\n"), markdown.read("b.md", "alone\n")]
    woven = linked(*pages)
    assert woven["MEMORY.md"] == []
    assert woven["b.md"][0].metadata["listed"] == [
        {"source": "MEMORY.md:2", "under": "Index", "text": "[b](b.md)"}
    ]


words = st.text(alphabet="abcdefgh éß日本", min_size=1, max_size=12).filter(str.strip)
fields = st.builds("{}: {}".format, words, words)
marks = st.sampled_from(
    [
        "",
        "",
        "- ",
        "* ",
        "  - ",
        "    ",
        "1. ",
        "2) ",
        "# ",
        "### ",
        "> ",
        "| ",
        "```",
        "```sh ",
        "<!-- ",
        "\t",
    ]
)
tails = st.sampled_from(["", "", ":", " #tag", " [[Name]]", " -->", " ``", " [x](MEMORY.md)", "**"])
lines = st.one_of(
    st.just(""), st.just("---"), st.builds("{}{}{}".format, marks, words | st.just("?!"), tails)
)


def told(items: list[Incoming], skipped: list[Skipped]) -> set[str]:
    text = " ".join([*(msgspec.json.encode(one).decode() for one in items), *(one.why for one in skipped)])
    return set(re.findall(r"\w+", re.sub(r"\\[nt]", " ", text)))


@pytest.mark.spec("3.3", "L5")
@settings(deadline=None)
@given(st.lists(fields, max_size=3), st.lists(lines, max_size=25), st.sampled_from(["CLAUDE.md", "note.md"]))
def test_no_word_of_a_page_is_lost(front: list[str], written: list[str], name: str) -> None:
    text = "\n".join([*(["---", *front, "---"] if front else []), *written])
    page = markdown.read(name, text)
    again = markdown.read(name, text)
    assert (again.items, again.skipped) == (page.items, page.skipped)
    assert set(re.findall(r"\w+", text)) <= told(linked(page)[name], page.skipped)


@pytest.mark.spec("3.3", "L5")
@settings(deadline=None)
@given(st.text(), st.sampled_from(["AGENTS.md", "note.md"]))
def test_no_text_makes_the_reader_fail(text: str, name: str) -> None:
    page = markdown.read(name, f"---\n{text}\n---\n{text}")
    msgspec.json.encode(linked(page)[name])
    export("m.json", text)


names = st.sampled_from(["Ada", "Bo", "Cy"])
rows = st.one_of(
    st.fixed_dictionaries(
        {
            "type": st.just("entity"),
            "name": names,
            "entityType": words,
            "observations": st.lists(words, max_size=3),
        }
    ),
    st.fixed_dictionaries({"type": st.just("relation"), "from": names, "to": names, "relationType": words}),
    st.fixed_dictionaries(
        {"memory": words, "user_id": names, "metadata": st.dictionaries(words, words, max_size=2)}
    ),
)


@pytest.mark.spec("3.3", "L5")
@settings(deadline=None)
@given(st.lists(rows, min_size=1, max_size=8))
def test_no_word_of_an_export_is_lost(given_rows: list[dict[str, object]]) -> None:
    _, found, skipped = export("m.jsonl", "\n".join(map(json.dumps, given_rows)))
    said = json.dumps([{**row, "type": ""} for row in given_rows], ensure_ascii=False)
    said = re.sub(
        r'"(type|name|entityType|observations|from|to|relationType|memory|metadata|user_id)":', "", said
    )
    assert not skipped
    assert set(re.findall(r"\w+", said)) <= told(found, skipped)
