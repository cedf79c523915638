"""One transaction's changes on their way into the index file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgspec
import numpy as np
from numpy.typing import NDArray

from . import tables
from .documents import Change, Doc, Erase, Put, RemovedDoc, Reword
from .hints import flags
from .tables import read_entries
from .words import LONGEST, STOPWORDS, counted, stem

if TYPE_CHECKING:
    from .store import File, IndexHead


class Writing:
    """One transaction's changes on their way into the file."""

    def __init__(self, file: File, head: IndexHead, made: Iterator[tuple[bytes, bytes]]) -> None:
        self._file = file
        self._made = made
        self._do = file.connection.execute
        self._known: dict[str, int] = {}
        self._pending: list[tuple[int, NDArray[Any]]] = []
        self._unembedded_words: dict[int, str] = {}
        self._next, self._merged = head.next, head.merged
        self._waiting, self._erasures = head.waiting, head.erasures

    def change(self, position: int, change: Change) -> None:
        match change:
            case Put(doc, since):
                begins = position if since is None else since
                self._do(tables.END, (begins, doc.id))
                self._add(begins, doc)
            case RemovedDoc(id, since):
                self._do(tables.END, (position if since is None else since, id))
            case Erase(ids):
                nums = [
                    row[0] for id in dict.fromkeys(ids) for row in self._file.rows(tables.VERSIONS, (id,))
                ]
                if nums:
                    self._merge()
                for num, (text, _, _) in self._file.texts(nums).items():
                    self._erase(num, text)
            case Reword(doc):
                self._reword(doc, next(self._made))

    def finish(self, position: int, hash: bytes) -> None:
        self._embed_words()
        self._file.connection.executemany(
            tables.ADD_RECENT, [(num, entries.tobytes()) for num, entries in self._pending]
        )
        self._do(tables.SET_HEAD, (position, hash, self._next, self._merged, self._waiting, self._erasures))

    def _add(self, position: int, doc: Doc) -> None:
        num, self._next = self._next, self._next + 1
        entries = self._store(num, position, None, self._class(doc), doc, next(self._made))
        if len(entries):
            self._pending.append((num, entries))
            self._waiting += len(entries)
        if self._waiting >= tables.BUFFER:
            self._merge()

    def _store(
        self, num: int, since: int, until: int | None, kind: int, doc: Doc, made: tuple[bytes, bytes]
    ) -> NDArray[Any]:
        """Write down one version of a document; answer its words, which are not in the postings yet."""
        counts, length = counted(doc.text)
        entries = np.empty(len(counts), tables.WAITING)
        entries["word"] = self._numbers(counts)
        entries["count"] = [min(count, tables.MOST) for count in counts.values()]
        session = self._number(doc.session or None, tables.SESSION, tables.ADD_SESSION)
        scope = self._number(doc.scope or None, tables.SCOPE, tables.ADD_SCOPE)
        speaker = self._number(doc.speaker, tables.SPEAKER, tables.ADD_SPEAKER)
        row = (num, doc.id, since, until, kind, length, doc.time_us, session, flags(doc.text), scope, speaker)
        self._do(tables.ADD_DOC, row)
        for statement, vectors in zip((tables.ADD_VECTOR, tables.ADD_TOKENS), made, strict=True):
            if vectors:
                self._do(statement, (num, vectors))
        text = (num, doc.text, doc.source, doc.run, entries["word"].tobytes(), crc32(doc.text.encode()))
        self._do(tables.ADD_TEXT, text)
        return entries

    def _reword(self, doc: Doc, made: tuple[bytes, bytes]) -> None:
        """Put another text in the place of that of every version. The numbers stay, because they are the order in
        which a conversation is read."""
        versions = self._file.rows(tables.VERSIONS, (doc.id,))
        texts = self._file.texts([num for num, *_ in versions])
        versions = [row for row in versions if texts[row[0]][0] != doc.text]
        if versions:
            self._merge()
            self._embed_words()
        for num, since, until, kind in versions:
            before = self._counts(texts[num][0])
            self._drop(num)
            after: dict[int, int] = dict(self._store(num, since, until, kind, doc, made).tolist())
            for word in before.keys() | after.keys():
                if before.get(word) != after.get(word):
                    self._enter(word, num, after.get(word, 0))

    def _embed_words(self) -> None:
        """Give all words that are new their vectors."""
        embedder, new = self._file.words, self._unembedded_words
        if embedder is not None and new:
            rows = zip(new, (vector.tobytes() for vector in embedder.embed(list(new.values()))), strict=True)
            self._file.connection.executemany(tables.ADD_WORD_VECTOR, rows)
        new.clear()

    def _number(self, name: str | None, find: str, add: str) -> int:
        """The number of a conversation, scope or speaker; 0 for none."""
        if name is None:
            return 0
        found = self._do(find, (name,)).get
        return int(self._do(add, (name,)).get if found is None else found)

    def _class(self, doc: Doc) -> int:
        key = (msgspec.json.encode(doc.who).decode(), doc.tier)
        found = self._do(tables.CLASS, key).get
        return int(self._do(tables.ADD_CLASS, key).get if found is None else found)

    def _numbers(self, words: Iterable[str]) -> list[int]:
        known = self._known
        missing = [word for word in words if word not in known]
        if missing:
            known.update(self._file.rows(tables.WORDS, (json.dumps(missing),)))
            for word in missing:
                if word not in known:
                    back = word[::-1] if 4 <= len(word) < LONGEST else None
                    known[word] = self._do(tables.ADD_WORD, (word, stem(word), back)).get
                    if word.isalpha() and len(word) >= 3 and word not in STOPWORDS:
                        self._unembedded_words[known[word]] = word
        return [known[word] for word in words]

    def _merge(self) -> None:
        """Put all that waits in the buffer where it belongs."""
        waiting = [(num, read_entries(found, tables.WAITING)) for num, found in self._do(tables.RECENT, (0,))]
        waiting += self._pending
        self._pending = []
        self._do("DELETE FROM recent")
        self._waiting, self._merged = 0, self._next
        if not waiting:
            return
        every = np.concatenate([entries for _, entries in waiting])
        docs = np.repeat([num for num, _ in waiting], [len(entries) for _, entries in waiting])
        order = np.argsort(every["word"], kind="stable")
        words, docs, counts = every["word"][order].astype(np.int64), docs[order], every["count"][order]
        blocks = docs // tables.BLOCK
        packed = ((docs % tables.BLOCK) << 8 | counts).astype(tables.ENTRY)
        starts = np.flatnonzero((np.diff(words, prepend=-1) != 0) | (np.diff(blocks, prepend=-1) != 0))
        lists = [part.tobytes() for part in np.split(packed, starts[1:])]
        self._file.connection.executemany(
            tables.ADD_ENTRIES, zip(words[starts].tolist(), blocks[starts].tolist(), lists, strict=True)
        )

    def _erase(self, num: int, text: str) -> None:
        """Take out a document, and the words that no other has. Nothing waits in the buffer."""
        self._embed_words()
        for word in self._counts(text):
            self._enter(word, num, 0)
        self._drop(num)

    def _counts(self, text: str) -> dict[int, int]:
        """The numbers of the words of a text, and how often each counts."""
        counts, _ = counted(text)
        return {
            word: min(count, tables.MOST)
            for word, count in zip(self._numbers(counts), counts.values(), strict=True)
        }

    def _drop(self, num: int) -> None:
        """Remove all of a document but its entries in the postings."""
        speaker = self._do(tables.SPEAKER_OF, (num,)).get
        for table in ("vectors", "tokens", "texts", "docs"):
            self._do(f"DELETE FROM {table} WHERE num = ?", (num,))  # noqa: S608 - one of these four
        self._do(tables.DROP_SPEAKER, (speaker,))
        self._erasures += 1

    def _enter(self, word: int, num: int, count: int) -> None:
        """Say how often a document has a word; 0 takes the document off the word's list, and the word with the last
        document that had it."""
        block, within = divmod(num, tables.BLOCK)
        entries = read_entries(self._do(tables.ENTRIES_OF_BLOCK, (word, block)).get or b"", tables.ENTRY)
        entries = entries[entries >> 8 != within]
        if count:
            entries = np.sort(np.append(entries, np.array([within << 8 | count], tables.ENTRY)))
        if len(entries):
            self._do(tables.PUT_ENTRIES, (word, block, entries.astype(tables.ENTRY).tobytes()))
            return
        self._do(tables.DROP_ENTRIES, (word, block))
        self._do(tables.DROP_WORD, (word,))
        self._do(tables.DROP_WORD_VECTOR, (word,))
        self._known.clear()
