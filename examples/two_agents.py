"""Two agents share a memory and a list of tasks; what one learns, the other is told.

python examples/two_agents.py team.db
"""

from __future__ import annotations

import sys

import commonplace

with commonplace.open(sys.argv[1] if sys.argv[1:] else "team.db") as book:
    ada, ben = book.as_actor("ada"), book.as_actor("ben")
    work = book.work(name="release", goal="Release version 2")
    notes = work.add_task("Write the release notes", priority=2)
    announcement = work.add_task("Announce the release", depends_on=[notes])

    # Ada takes what is ready. One task has one holder, whoever else asks.
    claim = work.claim("ada", lease=60)
    assert claim is not None
    print(f"ada works on: {claim.task.title}")
    assert work.claim("ben", lease=60) is None  # the other task waits for this one

    # What she finds out is for the team; without shared=True it would be hers alone.
    print(ada.remember("The changelog is in docs/changes.md, one page per version", shared=True))
    print(ada.remember("The changelog is in docs/changes.md, one page per version"))  # nothing is kept twice
    work.decide(
        question="Which version number?",
        choice="2.0.0",
        alternatives=["1.9.0"],
        rationale="the file format has changed",
        by="ada",
        affects=[announcement.id],
    )
    claim.complete("notes are written")

    # Ben goes on where she stopped, and is told what bears on his task.
    claim = work.claim("ben", lease=60)
    assert claim is not None
    print(f"ben works on: {claim.task.title}")
    print(claim.context())
    for hit in ben.search("where are changes between versions described?", limit=1):
        print(f"ben finds: {hit.content}")
    claim.complete("announced")

    print(f"{len(work.tasks(status='completed'))} tasks are completed; {book.head} events tell how")
