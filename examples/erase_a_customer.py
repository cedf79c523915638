"""A customer asks to be forgotten: find what names them, erase it with all that was made of it, and prove it.

python examples/erase_a_customer.py team.db
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import commonplace

NAME = "customer K-1187"
path = Path(sys.argv[1] if sys.argv[1:] else "team.db")


def in_files() -> list[str]:
    """The files that hold the name, read by a process that has not opened the book."""
    code = "import pathlib, sys; name = sys.argv[1].encode()\n"
    code += "print(*(p.name for p in map(pathlib.Path, sys.argv[2:]) if name in p.read_bytes()))"
    files = [str(file) for file in path.parent.glob(f"{path.name}*") if file.is_file()]
    found = subprocess.run(
        [sys.executable, "-c", code, NAME, *files], capture_output=True, text=True, check=True
    )
    return found.stdout.split()


with commonplace.open(path) as book:
    desk = book.as_actor("desk")
    desk.record("message.received", payload={"text": f"{NAME}: my parcel is late"})
    desk.remember(f"{NAME} prefers to be called in the evening", shared=True)
    desk.remember("Parcels of the north come on Thursdays", shared=True)
    digest = desk.digest("call the customer about the late parcel")
    print(f"before: {len(in_files())} files hold the name, and so does a digest: {NAME in str(digest)}")

    found = book.admin.find(NAME)
    print(found)
    print(
        f"{len(book.erase(found, reason='the customer asked').erased)} events are erased, the digest's among them"
    )
    proof = book.admin.proof(found, path.with_suffix(".proof.json"))
    print(f"gone: {proof.gone}, purged: {proof.purged}")

    assert not any(NAME in str(event.payload) for event in book.events())
    assert not any(NAME in hit.content for hit in book.search(NAME))
    assert any("Thursdays" in hit.content for hit in book.search("when do parcels come?"))
    print(f"after: {len(in_files())} files hold the name; the chain verifies: {book.verify().ok}")
