"""Hostile names, payloads, paths and imports: nothing leaks, nothing leaves its folder, nothing is executed."""

from __future__ import annotations

import base64
import os
import pickle
import random
import shutil
import unicodedata
import uuid
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import commonplace
from commonplace import BadInput, Blob, Book, CommonplaceError, NotFound
from commonplace.ledger.checks import iso
from commonplace.ledger.encoding import canonical
from commonplace.ledger.events import draft, read_header, seal
from commonplace.memory.claims import key_form
from commonplace.testing.engine import NAME_PAIRS

from . import Result, fault
from .places import ALL, Place, place

# 16. injection

INJECTIONS = r"""
' OR '1'='1
'; DROP TABLE events; --
" OR ""="
') OR 1=1 --
'||(SELECT body FROM events)||'
\'; --
' UNION SELECT 1,2,3,4,5,6,7 --
1; DELETE FROM commonplace.events
$$; DROP SCHEMA commonplace; $$
'] return redis.call('KEYS','*') --
% _ %%% a%b_c [a-z]* * ? run-* \% {tag} }{ {0} %s %(x)s :space ?1 $1 @p ]]-- $(id) `id` ${jndi:x} {{7*7}} <script>
NULL null true 0 -1 1e999 NaN __proto__ ../../x .. . / \ ~ | ; é ß ı
"""
SOME = [
    word for line in INJECTIONS.strip().splitlines() for word in (line.split() if len(line) > 50 else [line])
]
SOME += ["\r\nKEYS *\r\n", "*1\r\n$4\r\nPING\r\n", "\0x", "\ufeff", "\u202e", "\u200b", "e\u0301"]
DRIVERS = [
    "syntax error",
    "psycopg",
    "apsw",
    "sqlite error",
    "WRONGTYPE",
    "ERR ",
    "NOSCRIPT",
    "Traceback",
    "SELECT ",
]


@fault(16, "injection", 1000, 60)
def fault_16(count: int, seed: int, tmp: Path) -> Result:
    """`count` payloads in names, labels and filters, beside a book with something to steal, on every engine."""
    result = Result()
    for kind in ALL:
        home, victim_home = place(kind, tmp), place(kind, tmp)
        with home.open() as book, victim_home.open() as victim:
            victim.record("agent.spoke", id="treasure", actor="victim", run_id="vault", payload={"x": "gold"})
            book.memory.configure(exclusions="off")
            book.as_actor("victim").remember(HIDDEN, tags=["hidden"])
            for n in range(3):
                book.record("agent.spoke", id=f"own-{n}", actor="victim", run_id="vault", payload={"n": n})
            for case in range(seed, seed + count // len(ALL)):
                rng = random.Random(case)
                text = rng.choice(SOME) + rng.choice(("", "", rng.choice(SOME)))
                _inject(book, text, case, result, f"{kind}, {text!a} (seed {case})")
                result.cases += 1
            if [event.id for event in victim.events()] != ["treasure"] or not book.verify().ok:
                result.problem(f"{kind} (seed {seed})", "another book was touched")
            if [event.id for event in book.events(run_id="vault")] != ["own-0", "own-1", "own-2"]:
                result.problem(f"{kind} (seed {seed})", "the run's events are not the ones recorded")
        home.drop()
        victim_home.drop()
    return result


def _inject(book: Book, text: str, case: int, result: Result, told: str) -> None:
    own = unicodedata.normalize("NFC", f"{text}#{case}"[:200])
    given: dict[str, Any] = {"id": own, "actor": own, "run_id": own, "labels": {"note": own}}
    given["payload"] = {text: text, "file": Blob(text.encode())}
    questions: tuple[tuple[str, Callable[[], Any], Any], ...] = (
        ("record", lambda: book.record("agent.spoke", **given).id, own),
        ("event", lambda: book.event(own).id, own),
        ("run", lambda: [event.id for event in book.events(run_id=own)], [own]),
        ("actor", lambda: [event.id for event in book.events(actor=own)], [own]),
        ("runs", lambda: [run.id for run in book.runs.list() if run.id == own], [own]),
        ("foreign id", lambda: book.event(text + "?").id, NotFound),
        ("foreign run", lambda: list(book.events(run_id=text + "?")), []),
        ("foreign kind", lambda: list(book.events(kinds=[text])), []),
        ("kind", lambda: book.record(text), CommonplaceError),
        ("session", lambda: book.record("agent.spoke", session_id=text + "'"), CommonplaceError),
        ("label", lambda: book.record("agent.spoke", labels={text: "x"}), CommonplaceError),
        ("blob", lambda: book.blob(text), NotFound),
    )
    questions += _memory_questions(book, text, own, case)
    allowed = not hidden(own)
    for name, ask, expected in questions:
        try:
            answer = ask()
        except CommonplaceError as error:
            said = str(error).replace(text, "").replace(ascii(text)[1:-1], "")
            if any(word in said for word in DRIVERS):
                result.problem(told, f"{name}: a driver speaks: {said}")
            if allowed and not (isinstance(expected, type) and isinstance(error, expected)):
                result.problem(told, f"{name}: {error!r} instead of {expected!r}")
        except Exception as error:  # noqa: BLE001  an error of no known type is a finding
            result.problem(told, f"{name} raises {type(error).__name__}: {error}")
        else:
            if name == "label" and answer.labels == {text: "x"}:
                continue
            if allowed and answer != expected:
                result.problem(told, f"{name} answers {answer!r} instead of {expected!r}")
    result.outcomes["stored" if allowed else "refused"] += 1


HIDDEN = "the treasure of the victim lies under the old oak"


def _memory_questions(
    book: Book, text: str, own: str, case: int
) -> tuple[tuple[str, Callable[[], Any], Any], ...]:
    """The same text as key, value, tag and core, and as a query of somebody who may not see what is hidden."""
    stranger, tag = book.as_actor("stranger"), own.strip()

    def keep() -> bool:
        kept = book.remember(key=own, value=[text, case], tags=[own], provenance={"channel": own})
        return kept.outcome in ("stored", "flagged")

    def search(query: str) -> bool:
        found = stranger.search(query[:1000], max_results=50)
        return all(HIDDEN not in one.text for one in found.results)

    return (
        ("remember", keep, True),
        ("key", lambda: [one.key for one in book.memory.list(key=own, status=None)], [own]),
        ("tag", lambda: [one.key for one in book.memory.list(tags=[tag], status=None)], [own]),
        (
            "provenance",
            lambda: [one.key for one in book.memory.list(provenance={"channel": own}, status=None)],
            [own],
        ),
        ("foreign tag", lambda: book.memory.list(tags=[text + "?"]), []),
        ("foreign item", lambda: book.memory.get(text + "?"), NotFound),
        ("foreign core", lambda: book.remember("something else", core=text + "?"), NotFound),
        ("forget", lambda: book.forget(key=text + "?", confirm="FORGET").items, ()),
        ("search", lambda: search(text), True),
        ("search among", lambda: search(f'{text} OR "treasure" {text} oak* -old'), True),
    )


# 17. names that look alike


def a_pair(rng: random.Random) -> tuple[str, str]:
    """Two names that a careless engine takes for one."""
    token = f"{rng.randbytes(5).hex()}"
    if rng.random() < 0.4:
        first, second = rng.choice(NAME_PAIRS).values
        return str(first).replace("@", token)[:200], str(second).replace("@", token)[:200]
    base = token + "".join(
        rng.choice("ab_%*.?[]{}:/\\ '\"é\u0301ßıI\u200b\n💥#&=") for _ in range(rng.randint(1, 8))
    )
    alike = [base + rng.choice("_%*. /:ab"), base.swapcase(), base.casefold(), base[:-1], f" {base}"]
    alike += [unicodedata.normalize("NFD", base), unicodedata.normalize("NFKC", base)]
    alike += [base.replace(mark, "x") for mark in "_%*."]
    at = rng.randint(0, len(base))
    alike += [base[:at] + rng.choice(UNSEEN) + base[at:] for _ in range(3)]
    return base, rng.choice([name for name in alike if name != base])


UNSEEN = "\u200b\u200d\u00ad\ufeff\u202e\u2066\U000e0041\ufe0f\u3164\u2800\u2028\u00a0\x07\ue000\u0378 "


def hidden(name: str) -> bool:
    """Whether a name holds something that cannot be seen."""
    unseen = any(char in UNSEEN.strip(" ") or unicodedata.category(char)[0] == "C" for char in name)
    return unseen or any(char.isspace() and char != " " for char in name) or name != name.strip()


@fault(17, "names", 10_000, 200)
def fault_17(count: int, seed: int, tmp: Path) -> Result:
    """`count` pairs: one in twenty as books on a server, the others as runs, actors and ids in one book."""
    result = Result()
    homes = {kind: place(kind, tmp) for kind in ALL}
    books = {kind: home.open() for kind, home in homes.items()}
    for case in range(count):
        rng = random.Random(seed + case)
        first, second = a_pair(rng)
        kind = ALL[(seed + case) % len(ALL)]
        told = f"{kind}, {first!a} and {second!a} (seed {seed + case})"
        result.cases += 1
        if hidden(first) or hidden(second):
            _refused(books[kind], first if hidden(first) else second, result, told)
            result.outcomes["refused"] += 1
        elif unicodedata.normalize("NFC", first) == unicodedata.normalize("NFC", second):
            _one_name(books[kind], first, second, result, told)
            result.outcomes["two forms of one name"] += 1
        elif (seed + case) % 20 == 0:
            kind = ("postgres", "redis")[(seed + case) // 20 % 2]
            _two_books(
                kind, tmp, first, second, result, f"{kind}, books {first!a} and {second!a} ({seed + case})"
            )
            result.outcomes[f"{kind} books"] += 1
        else:
            book = books[kind]
            before = book.head
            first, second = (unicodedata.normalize("NFC", name) for name in (first, second))
            for name in (first, second):
                book.record("agent.spoke", id=name, run_id=name, actor=name, payload={"of": name})
            for name in (first, second):
                found = [
                    [event.id for event in book.events(run_id=name)],
                    [event.id for event in book.events(before, actor=name)],
                    [book.event(name).id],
                    [event.id for event in book.watch(after=before, run_id=name, timeout=0.0)],
                    [run.id for run in book.runs.list() if run.id == name] if case % 50 == 1 else [name],
                ]
                if any(ids != [name] for ids in found):
                    result.problem(told, f"asked for {name!a}, got {found!a}")
            if case % 5 == 1:
                _two_agents(book, first, second, result, told)
            result.outcomes["names in a book"] += 1
    for kind, book in books.items():
        book.close()
        homes[kind].drop()
    return result


def _refused(book: Book, name: str, result: Result, told: str) -> None:
    """A name with something in it that cannot be seen is refused wherever it comes in, and nothing is recorded."""
    before = book.head
    ways: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("an actor", lambda: book.record("agent.spoke", actor=name)),
        ("a run", lambda: book.record("agent.spoke", run_id=name)),
        ("an id", lambda: book.record("agent.spoke", id=name)),
        ("who acts", lambda: book.as_actor(name)),
        ("a rule", lambda: book.access.grant(name, role="developer")),
        ("a key", lambda: book.remember(key=name, value=1)),
        ("a core", lambda: book.memory.set_core(name, type="pattern")),
        ("a work", lambda: book.work(name="it", id=name)),
        ("a filter", lambda: list(book.events(actor=name))),
    )
    for way, act in ways:
        try:
            act()
            result.problem(told, f"{name!a} was taken as {way}")
        except BadInput as error:
            if not str(error).isprintable():
                result.problem(told, f"the refusal of {way} shows what cannot be seen")
    if book.head != before:
        result.problem(told, "something was recorded")


def _one_name(book: Book, first: str, second: str, result: Result, told: str) -> None:
    """Two forms of one name are one name."""
    book.record("agent.spoke", id=first, run_id=first, actor=first)
    for name in (first, second):
        found = [book.event(name).id, *(event.id for event in book.events(run_id=name))]
        if found != [unicodedata.normalize("NFC", first)] * 2 or book.as_actor(name).name != found[0]:
            result.problem(told, f"asked for {name!a}, got {found!a}")


def _two_agents(book: Book, first: str, second: str, result: Result, told: str) -> None:
    """What two agents keep to themselves under names, tags and keys that look alike stays apart."""
    one_key = key_form(first) == key_form(second)
    kept = {
        name: str(
            book.as_actor(name).remember(key=name, value={"of": name}, tags=[name], override="x").item_id
        )
        for name in (first, second)
    }
    for name in (first, second):
        me, own = book.as_actor(name), [kept[name]]
        found = {
            "items": [one.id for one in me.memory.list()],
            "key": own if one_key else [one.id for one in book.memory.list(key=name)],
            "agent": [one.id for one in book.memory.list(agent=name)],
            "search": [one.id for one in me.search(name[:1000]).results if one.id in kept.values()] or own,
            "tag": [one.id for one in me.memory.list(tags=[name.strip()])],
        }
        for asked, ids in found.items():
            if ids != own:
                result.problem(told, f"{asked} of {name!a}: {ids} instead of {own}")
    book.as_actor(first).forget(key=first, confirm="FORGET")
    if [one.id for one in book.memory.list(key=second, agent=second)] != [kept[second]]:
        result.problem(told, "forgetting one took the other")


def _two_books(kind: str, tmp: Path, first: str, second: str, result: Result, told: str) -> None:
    one, other = place(kind, tmp, first), place(kind, tmp, second)
    try:
        with one.open() as book, other.open() as empty:
            event = book.record("agent.spoke", run_id="r", payload={"file": Blob(b"of the first")})
            digest = event.payload["file"]["$blob"]
            seen: list[object] = [
                *empty.events(),
                *empty.events(run_id="r"),
                *empty.runs.list(),
                *empty.watch(0, timeout=0.0),
            ]
            for ask, about in ((empty.event, event.id), (empty.blob, digest), (empty.erase, event.id)):
                with suppress(NotFound):
                    seen.append(ask(about))
            with commonplace.open("memory:") as copy:
                empty.admin.copy(copy)
                seen += copy.events()
            if seen or empty.head or book.head != 1 or (empty.name, book.name) != (second, first):
                result.problem(told, f"one book shows in the other: {seen!a}")
    finally:
        other.drop()
        with one.open(create=False) as book:
            if book.head != 1:
                result.problem(told, "dropping one book took something of the other")
        one.drop()


# 18. paths

ESCAPES = r"""
../secret ../../secret .. . /etc/passwd //etc/passwd C:\Windows\x \\host\share ..\secret %2e%2e/secret ..%2fsecret
%2e%2e%2fsecret ..%c0%afsecret ....//secret ~/secret a/../../secret blobs/../../secret ./../secret file:../secret
․․/secret CON NUL aux.txt secret::$DATA
"""
PATHS = ESCAPES.split()
PATHS += ["secret\0.txt", "a" * 300, "../" * 40 + "etc/passwd", "\n../secret", " ../secret"]


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): b"" if path.is_dir() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if not path.is_symlink()
    }


@fault(18, "paths", 1000, 60)
def fault_18(count: int, seed: int, tmp: Path) -> Result:
    """`count` paths as blob digests, in payloads that are erased, as names of books: the world outside the
    book's own folder stays as it was, and none of it is read."""
    result = Result()
    outside = tmp / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "secret").write_bytes(b"not yours")
    (outside / "deep" / "secret").write_bytes(b"not yours")
    before, cwd = tree(outside), set(Path().iterdir())
    for case in range(seed, seed + count):
        rng = random.Random(case)
        path = rng.choice(PATHS)
        if rng.random() < 0.3:
            path = (
                os.path.relpath(outside / "secret", tmp / "x" / "y")
                if rng.random() < 0.5
                else f"{outside}/secret"
            )
        kind = ("files", "sqlite")[case % 2]
        told = f"{kind}, {path[:60]!a} (seed {case})"
        inside = outside / "deep" / "home" / "book"  # and what is derived from it beside it
        url = f"file:{inside}" if kind == "files" else str(inside / "book.db")
        try:
            _use_path(Place(kind, url, path if rng.random() < 0.3 else "book", None), path, result, told)
        except CommonplaceError as error:
            result.outcomes[type(error).__name__] += 1
        except Exception as error:  # noqa: BLE001  an error of no known type is a finding
            result.problem(told, f"raises {type(error).__name__}: {error}")
        shutil.rmtree(inside.parent, ignore_errors=True)
        if tree(outside) != before or set(Path().iterdir()) != cwd:
            result.problem(told, "something outside the folder was changed")
            break
        result.cases += 1
    _symlinks(tmp / "links", result)
    return result


def _use_path(home: Place, path: str, result: Result, told: str) -> None:
    with home.open() as book:
        try:
            if book.blob(path):
                result.problem(told, "a file outside was read as a blob")
        except NotFound:
            result.outcomes["not found"] += 1
        text = path.replace("\0", "")
        event = book.record(
            "agent.spoke", id=text[:200] or "x", payload={"f": {"$blob": text, "size": 3}, "p": path}
        )
        book.erase(event.id)
        book.purge()
        folder = Path(home.url.removeprefix("file:"))
        _use_path_in_memory(book, text, (folder if home.kind == "files" else folder.parent) / "notes")
        if home.kind == "files":
            with commonplace.open(f"file:{Path(home.url[5:]) / '%2e%2e' / 'x'}") as other:
                other.record("agent.spoke")


def _use_path_in_memory(book: Book, path: str, folder: Path) -> None:
    """The path wherever memory makes a file of a name, and the files written."""
    agent = book.as_actor(path[:200] or "x")
    agent.remember("a thing of one's own", tags=["paths"])
    for act in (
        lambda: book.memory.set_core(path[:200], name=path),
        lambda: book.remember("an entry of it", core=path[:200]),
        lambda: agent.documents.add_to_task(path, "decisions", "We went on."),
        lambda: agent.documents.add_to_task("a task", path, "We went on."),
        lambda: agent.documents.add_to_session(path, "half way"),
        lambda: agent.documents.record_gate(path, "PLAN", "GO"),
        lambda: book.memory.configure(places={"memory/": path if path.endswith("/") else f"{path}/"}),
    ):
        with suppress(CommonplaceError):
            act()
    book.mirror.folder(folder).sync()


def _symlinks(folder: Path, result: Result) -> None:
    """A book's folder that came with links in it, as a repository may: what they point to is not written."""
    for name in ("blobs", "ledger.torn", "redo.json", "leases.json", "book.json.new", "ledger.jsonl.new"):
        home, target = folder / name / "book", folder / name / "target"
        home.mkdir(parents=True)
        if name == "blobs":
            target.mkdir()
        else:
            target.write_bytes(b"")
        (home / name).symlink_to(target)
        result.cases += 1
        try:
            with commonplace.open(f"file:{home}") as book:
                event = book.record("agent.spoke", payload={"file": Blob(b"content")})
                book.rebuild()
                book.erase(event.id)
                book.record("agent.spoke", payload={"file": Blob(b"content")})
        except CommonplaceError as error:
            result.outcomes[f"link refused: {type(error).__name__}"] += 1
        except Exception as error:  # noqa: BLE001  an error of no known type is a finding
            result.problem(f"files, a link named {name}", f"raises {type(error).__name__}: {error}")
        if (list(target.iterdir()) if target.is_dir() else target.read_bytes()) != (
            [] if name == "blobs" else b""
        ):
            result.problem(f"files, a link named {name}", "what it points to was written")


# 19. hostile imports


class Bomb:
    """Unpickling this makes a file: a sign that something was executed."""

    def __init__(self, sign: Path) -> None:
        self.sign = sign

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.sign),)


def sealed(kind: str, payloads: list[dict[str, Any]]) -> list[bytes]:
    """An export that holds together, with whatever its author liked in it."""
    previous, lines = bytes(32), []
    for position, payload in enumerate(payloads, 1):
        which = kind if position == len(payloads) else "agent.spoke"
        record, _ = seal(draft(which, actor="mallory", payload=payload), position, previous, position)
        header, body = read_header(record), record.body or b""
        fields = {name: getattr(header, name) for name in ("position", "id", "kind", "actor", "run_id")}
        fields |= {
            name: getattr(header, name) for name in ("session_id", "turn", "schema_version", "parents")
        }
        fields |= {"created_at": iso(position), "occurred_at": None, "labels": {}, "payload": payload}
        fields |= {"salt": body[:16].hex(), "digest": header.digest, "previous": header.previous}
        fields["hash"] = record.hash.hex()
        text = canonical(fields)
        lines.append(b'{"position":%d,' % position + text[1:].replace(b'"position":%d,' % position, b"", 1))
        previous = record.hash
    first = canonical({"book": "b", "commonplace": "export", "format": 1, "head": len(payloads), "name": "b"})
    return [first, *lines, canonical({"blobs": 0, "end": len(payloads), "hash": previous.hex()})]


def forged(rng: random.Random) -> list[bytes]:
    """A chain that verifies and ends with an erasure that nobody could have decided."""
    claims: tuple[Any, ...] = (
        *({}, {"events": "x"}, {"events": [1]}, {"events": [{}]}, {"events": None}, {"events": {}}),
        *({"events": [{"position": p, "id": "x"}]} for p in (0, -1, 2, 3, 99, 10**30, "1", None, 1.5)),
        {"events": [{"position": 1, "id": "x", "residue": "y"}]},
        {"events": [{"position": 1, "id": "x"}] * 3},
    )
    kind = rng.choice(("event.erased", "event.erased", "event.imported", "task.completed", "access.granted"))
    return sealed(kind, [{"text": "x"}, rng.choice(claims)])


def mutated(rng: random.Random, lines: list[bytes], sign: Path) -> list[bytes]:
    """A good export with something wrong in it."""
    lines, at = list(lines), rng.randrange(len(lines))
    line = lines[at]
    deep = rng.choice((b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 50_000 + b"1" + b"}" * 50_000))
    bomb = base64.b64encode(pickle.dumps(Bomb(sign)))
    other = rng.randrange(len(lines))
    choice = rng.randrange(14)
    if choice == 0:
        cut = rng.randrange(len(line))
        lines[at] = (
            line[:cut] + rng.choice((b"\xff", b"\xed\xa0\x80", b"\0", b'"', b"\n", b"")) + line[cut + 1 :]
        )
    elif choice == 1:
        lines[at], lines[other] = lines[other], lines[at]
    elif choice == 2:
        lines.insert(at, line)
    elif choice == 3:
        del lines[at]
    elif choice == 4:
        lines[at] = deep
    elif choice == 5:
        lines[at] = line[:-1] + b',"x":"' + b"y" * 3_000_000 + b'"}'
    elif choice == 6:
        lines[at] = line.replace(b'"payload":', b'"payload":' + deep + b',"payload":', 1)
    elif choice == 7:
        lines[at] = line.replace(b'"actor":', b'"actor":"mallory","actor":', 1)
    elif choice == 8:
        lines[at] = line.replace(
            rng.choice((b'"hash":"', b'"digest":"', b'"salt":"', b'"previous":"')), b'"hash":"0', 1
        )
    elif choice == 9:
        lines[at] = rng.choice(
            (b"null", b"[]", b"5", b"", b"\x80\x04", pickle.dumps(Bomb(sign)), b"!!python/object")
        )
    elif choice == 10:
        digest = sha256(pickle.dumps(Bomb(sign))).hexdigest().encode()
        lines.insert(1, b'{"blob":"%s","data":"%s"}' % (rng.choice((digest, b"../x", b"0" * 64)), bomb))
    elif choice == 11:
        lines[at] = line.replace(
            rng.choice((b'"turn":0', b'"position":1', b'"created_at":"2')), b'"turn":1e999', 1
        )
    elif choice == 12:
        lines = lines[: rng.randrange(len(lines))]
    else:
        lines.insert(
            rng.randrange(1, len(lines)), b'{"blob":"%s","data":"%s"}' % (b"0" * 64, b"A" * 4_000_000)
        )
    return lines


@fault(19, "imports", 1000, 60)
def fault_19(count: int, seed: int, tmp: Path) -> Result:
    """`count` hostile exports into books with and without content: taken whole, or refused and nothing changed."""
    result = Result()
    source = tmp / "good.jsonl"
    with commonplace.open("memory:") as book:
        for n in range(4):
            book.record("agent.spoke", id=f"e-{n}", run_id="r", payload={"n": n, "file": Blob(b"x" * n)})
        book.erase("e-1")
        book.admin.export(source)
        truth = [(event.id, event.payload) for event in book.events()]
    good, sign = source.read_bytes().splitlines(), tmp / "executed"
    for case in range(seed, seed + count):
        rng = random.Random(case)
        forges = rng.random() < 0.3
        lines = forged(rng) if forges else mutated(rng, good, sign)
        hostile = tmp / "hostile.jsonl"
        hostile.write_bytes(b"\n".join(lines) + b"\n")
        kind = ("memory", "sqlite", "files")[case % 3]
        told = f"{kind}, {'forged' if forges else 'mutated'} (seed {case})"
        home = place(kind, tmp)
        with home.open() as book:
            filled = rng.random() < 0.5
            if filled:
                book.record("agent.spoke", id=f"own-{uuid.uuid4()}", payload={"mine": True})
            before = list(book.events())
            try:
                book.admin.import_(hostile)
                result.outcomes["taken"] += 1
                after = list(book.events())
                if after[: len(before)] != before:
                    result.problem(told, "what was here before is changed")
                if not forges and not filled and [(event.id, event.payload) for event in after] != truth:
                    result.problem(told, "what was taken is not what the source held")
                if filled and any(e.kind.startswith(("event.erased", "task.", "access.")) for e in after):
                    result.problem(told, "an owned kind was forged")
            except CommonplaceError as error:
                result.outcomes[type(error).__name__] += 1
                if list(book.events()) != before:
                    result.problem(told, "refused, and yet something was taken")
            except Exception as error:  # noqa: BLE001  an error of no known type is a finding
                result.problem(told, f"raises {type(error).__name__}: {error}")
                if list(book.events()) != before:
                    result.problem(told, "failed, and yet something was taken")
            if not book.verify().ok:
                result.problem(told, f"verify: {book.verify().problem}")
        if home.files:
            shutil.rmtree(home.files)
        result.cases += 1
    if sign.exists():
        result.problem(f"seed {seed}", "something in an import was executed")
    return result
