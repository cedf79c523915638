"""A team at work on one book, in half a minute: processes that share tasks, one that is killed, memory that explains
itself, a corrected fact, a past moment, and a customer who is erased.

    python examples/demo.py [BOOK]

Every sentence that claims something is checked; the exit code is 1 if one of them does not hold.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import commonplace
from commonplace import Book

CUSTOMER = "customer K-1187"
LEASE = 2.0
failed: list[str] = []


def say(text: str = "") -> None:
    print(text, flush=True)


def check(claim: str, holds: bool) -> None:
    say(f"   {'✓' if holds else '✗ NOT SO:'} {claim}")
    if not holds:
        failed.append(claim)


def work_in_a_process(book_path: str, work_id: str, me: str, tasks: int) -> None:
    """What each worker process does: claim a task, do it, claim the next. With no tasks to do it holds one for ever."""
    with commonplace.open(book_path) as book:
        work = book.work(id=work_id)
        for _ in range(tasks or 1):
            while (claim := work.claim(me, lease=LEASE)) is None:
                time.sleep(0.05)
            say(f"claims {claim.task.title!r}")
            if not tasks:
                time.sleep(60)
            claim.complete(f"{claim.task.title}: done")
            say(f"completes {claim.task.title!r}")


def start(book_path: Path, work_id: str, me: str, tasks: int) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "work", str(book_path), work_id, me, str(tasks)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def lines_of(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stdout is not None
    for line in process.stdout:
        yield line.strip()


def short(text: str) -> str:
    """A text with ids cut to their last eight characters, as the command line shows them."""
    return re.sub(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{4}([0-9a-f]{8})", r"\1", text)


def shared_tasks(book: Book, path: Path) -> str:
    say("1. Two processes share the work. One of them is killed.")
    work = book.work(name="sign-in", goal="Let people sign in", constraints=["No breaking changes"])
    table = work.add_task("Design the token table", priority=5)
    work.add_task("Write the help page", priority=4)
    work.add_task("Build the token service", depends_on=[table])
    ben = start(path, work.id, "ben", tasks=0)
    say(f"   ben  {next(lines_of(ben))}   (process {ben.pid})")
    ben.kill()
    ben.wait()
    killed = time.monotonic()
    say("   ben  is killed with the task in its hands: kill -9")
    cy = start(path, work.id, "cy", tasks=2)
    for line in lines_of(cy):
        late = f", {time.monotonic() - killed:.1f} s after the kill" if "Design" in line else ""
        say(f"   cy   {line}{late}   (process {cy.pid})")
    cy.wait()
    done = [event for event in book.events() if event.kind == "task.completed"]
    check("each task was completed once, and by cy", [event.actor for event in done] == ["cy", "cy"])
    return work.id


def memory_that_explains_itself(book: Book, work_id: str) -> None:
    ada, dee = book.as_actor("ada"), book.as_actor("dee")
    ada.remember(key="token.lifetime", value="1 hour", shared=True)
    ada.remember("Postgres listens on 5433, not on 5432", shared=True)
    book.record("message.received", actor="desk", payload={"text": f"{CUSTOMER}: let me sign in by phone"})
    ada.remember(f"{CUSTOMER} wants to sign in by phone, +49 170 5550147", shared=True)

    say("\n2. Dee claims the task that cy's work has made ready, and asks what the team knows.")
    claim = book.work(id=work_id).claim("dee", lease=600)
    assert claim is not None
    digest = dee.digest(f"{claim.task.title}: how long does a customer stay signed in?", max_chars=1200)
    for line in str(digest).splitlines():
        say(f"   | {short(line)}")
    receipt = book.receipt(str(digest.receipt_id))
    check(
        f"its receipt {str(digest.receipt_id)[-8:]} gives the same bytes again",
        receipt.replay() == str(digest),
    )

    say("\n3. Ada corrects a fact that dee relies on.")
    before = book.head
    ada.remember(key="token.lifetime", value="15 minutes", shared=True, supersedes=True)
    say("   ada  token.lifetime is 15 minutes")
    context = str(claim.context())
    changed = [line for line in context.splitlines() if "has changed" in line]
    for line in changed:
        say(f"   dee  is told: {short(line).removeprefix('- ')}")
    check("dee hears of it, and her context has the new value", bool(changed) and "15 minutes" in context)

    say("\n4. What did the team believe before that?")
    question = "how long is a token valid?"
    then, now = (dee.search(question, limit=1, at=at)[0].content for at in (before, None))
    say(f"   {question}   as of event {before}: {then}   now: {now}")
    check("both answers come from the same ledger", ("1 hour" in then, "15 minutes" in now) == (True, True))


def a_customer_is_erased(book: Book, path: Path) -> None:
    say(f"\n5. {CUSTOMER} asks to be erased.")
    naming = [event for event in book.events() if CUSTOMER in str(event.payload)]
    for event in naming:
        say(f"   event {event.position}: {event.kind} by {event.actor}")
    say(f"   and raw bytes in {', '.join(files_naming(path)) or 'no file'}")
    report = book.erase([event.id for event in naming], reason="the customer asked")
    say(f"   erased: {len(report.erased)} events, with the digest that had shown them")
    check(f"the hash chain over {book.head} events still verifies", book.verify().ok)
    check("no event and no search shows the name", not shows(book))
    purged = book.purge()
    check("the store's own files were cleaned", purged.purged)
    check("another process reads every file of the book and does not find it", not files_naming(path))


def shows(book: Book) -> bool:
    found = [event for event in book.events() if CUSTOMER in str(event.payload)]
    return bool(found) or any(CUSTOMER in hit.content for hit in book.search(CUSTOMER))


def files_naming(path: Path) -> list[str]:
    """Which of the book's files hold the name, as a process sees them that has not opened the book."""
    look = "import pathlib, sys; name = sys.argv[1].encode()\n"
    look += "print(*(p.name for p in map(pathlib.Path, sys.argv[2:]) if name in p.read_bytes()))"
    beside = path.parent.glob(f"{path.name}*")
    files = [str(file) for one in beside for file in (one, *one.rglob("*")) if file.is_file()]
    command = [sys.executable, "-c", look, CUSTOMER, *files]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def main(path: Path) -> int:
    began = time.monotonic()
    say(f"The book is {path}. A call returns when what it wrote is on disk.\n")
    with commonplace.open(path) as book:
        if book.head:
            say("there are events in it already: give the demo a new path")
            return 1
        work_id = shared_tasks(book, path)
        memory_that_explains_itself(book, work_id)
        a_customer_is_erased(book, path)
    say(f"\nThat took {time.monotonic() - began:.0f} seconds. Look for yourself:")
    program = (
        "commonplace" if shutil.which("commonplace") else f"{shlex.quote(sys.executable)} -m commonplace"
    )
    for words in ("log", "status", "search 'how long is a token valid'", f"work show {work_id}", "doctor"):
        say(f"   {program} --book {shlex.quote(str(path))} {words}")
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        work_in_a_process(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
    else:
        given = (
            Path(sys.argv[1])
            if sys.argv[1:]
            else Path(tempfile.mkdtemp(prefix="commonplace-demo-")) / "team.db"
        )
        sys.exit(main(given))
