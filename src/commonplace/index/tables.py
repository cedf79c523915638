"""The tables of the index file, the statements on them, and the lists of entries in their blobs."""

from __future__ import annotations

from typing import Any

import apsw
import numpy as np
from numpy.typing import NDArray

LAYOUT = 6
BLOCK = 1 << 14
"""How many numbers of documents a list of entries spans."""
BUFFER = 1 << 16
"""How many entries wait before they are merged into the lists."""
MOST = 255
"""How often a word counts in one document at most: an entry has one byte for it."""

ENTRY = np.dtype("<u4")  # the number within its block, shifted by eight bits, and the count
NUMBER = np.dtype("<u4")
WAITING = np.dtype([("word", "<u4"), ("count", "u1")])

SCHEMA = """
CREATE TABLE head (
    fingerprint TEXT NOT NULL, book TEXT NOT NULL, position INTEGER NOT NULL, hash BLOB NOT NULL, next INTEGER NOT NULL,
    merged INTEGER NOT NULL, waiting INTEGER NOT NULL, erasures INTEGER NOT NULL
) STRICT;
CREATE TABLE classes (
    num INTEGER PRIMARY KEY, who TEXT NOT NULL, tier TEXT NOT NULL, UNIQUE (who, tier)
) STRICT;
CREATE TABLE docs (
    num INTEGER PRIMARY KEY, id TEXT NOT NULL, since INTEGER NOT NULL, until INTEGER,
    class INTEGER NOT NULL, length INTEGER NOT NULL, time_us INTEGER NOT NULL, session INTEGER NOT NULL,
    flags INTEGER NOT NULL, scope INTEGER NOT NULL, speaker INTEGER NOT NULL
) STRICT;
CREATE TABLE sessions (num INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE scopes (num INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE speakers (num INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
CREATE INDEX docs_by_speaker ON docs (speaker) WHERE speaker > 0;
CREATE TABLE vectors (num INTEGER PRIMARY KEY, vector BLOB NOT NULL) STRICT;
CREATE TABLE tokens (num INTEGER PRIMARY KEY, vectors BLOB NOT NULL) STRICT;
CREATE TABLE word_vectors (num INTEGER PRIMARY KEY, vector BLOB NOT NULL) STRICT;
CREATE INDEX docs_by_id ON docs (id, until);
CREATE INDEX docs_by_end ON docs (until) WHERE until IS NOT NULL;
CREATE TABLE texts (
    num INTEGER PRIMARY KEY, text TEXT NOT NULL, source TEXT NOT NULL, run TEXT NOT NULL, words BLOB NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;
CREATE TABLE words (num INTEGER PRIMARY KEY, word TEXT NOT NULL, stem TEXT NOT NULL, back TEXT) STRICT;
CREATE UNIQUE INDEX words_by_word ON words (word);
CREATE INDEX words_by_stem ON words (stem);
CREATE INDEX words_by_end ON words (back) WHERE back IS NOT NULL;
CREATE TABLE postings (
    word INTEGER NOT NULL, block INTEGER NOT NULL, entries BLOB NOT NULL, PRIMARY KEY (word, block)
) STRICT, WITHOUT ROWID;
CREATE TABLE recent (num INTEGER PRIMARY KEY, entries BLOB NOT NULL) STRICT;
"""
HEAD = "SELECT fingerprint, book, position, hash, next, merged, waiting, erasures FROM head"
SET_HEAD = "UPDATE head SET position = ?, hash = ?, next = ?, merged = ?, waiting = ?, erasures = ?"
CLASS = "SELECT num FROM classes WHERE who = ? AND tier = ?"
ADD_CLASS = "INSERT INTO classes (who, tier) VALUES (?, ?) RETURNING num"
END = "UPDATE docs SET until = ? WHERE id = ? AND until IS NULL"
ADD_DOC = "INSERT INTO docs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
SESSION = "SELECT num FROM sessions WHERE name = ?"
SESSIONS = "SELECT num FROM sessions WHERE name >= ? AND name < ?"
ADD_SESSION = "INSERT INTO sessions (name) VALUES (?) RETURNING num"
SCOPE = "SELECT num FROM scopes WHERE name = ?"
ADD_SCOPE = "INSERT INTO scopes (name) VALUES (?) RETURNING num"
SPEAKER = "SELECT num FROM speakers WHERE name = ?"
ADD_SPEAKER = "INSERT INTO speakers (name) VALUES (?) RETURNING num"
SPEAKER_OF = "SELECT speaker FROM docs WHERE num = ?"
DROP_SPEAKER = "DELETE FROM speakers WHERE num = ?1 AND NOT EXISTS (SELECT 1 FROM docs WHERE speaker = ?1)"
ADD_VECTOR = "INSERT INTO vectors VALUES (?, ?)"
ADD_TOKENS = "INSERT INTO tokens VALUES (?, ?)"
ADD_WORD_VECTOR = "INSERT INTO word_vectors VALUES (?, ?)"
DROP_WORD_VECTOR = (
    "DELETE FROM word_vectors WHERE num = ?1 AND NOT EXISTS (SELECT 1 FROM words WHERE num = ?1)"
)
VECTORS = "SELECT num, vector FROM vectors WHERE num >= ? ORDER BY num"
TOKENS = "SELECT num, vectors FROM tokens WHERE num IN (SELECT value FROM json_each(?))"
WORD_VECTORS = "SELECT num, vector FROM word_vectors WHERE num > ? ORDER BY num"
ADD_TEXT = "INSERT INTO texts VALUES (?, ?, ?, ?, ?, ?)"
TEXTS = "SELECT num, text, source, run, checksum FROM texts WHERE num IN (SELECT value FROM json_each(?))"
ADD_RECENT = "INSERT INTO recent VALUES (?, ?)"
WORDS = "SELECT word, num FROM words WHERE word IN (SELECT value FROM json_each(?))"
ADD_WORD = "INSERT INTO words (word, stem, back) VALUES (?, ?, ?) RETURNING num"
RECENT = "SELECT num, entries FROM recent WHERE num >= ? ORDER BY num"
# SQLite takes the two blobs joined for a text, byte for byte.
ADD_ENTRIES = """
INSERT INTO postings VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET entries = CAST(entries || excluded.entries AS BLOB)
"""
PUT_ENTRIES = "INSERT INTO postings VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET entries = excluded.entries"
ENTRIES = """
SELECT word, block, entries FROM postings WHERE word IN (SELECT value FROM json_each(?)) ORDER BY word, block
"""
ENTRIES_OF_BLOCK = "SELECT entries FROM postings WHERE word = ? AND block = ?"
DROP_ENTRIES = "DELETE FROM postings WHERE word = ? AND block = ?"
# A word that no document has any more.
DROP_WORD = "DELETE FROM words WHERE num = ?1 AND NOT EXISTS (SELECT 1 FROM postings WHERE word = ?1)"
VERSIONS = "SELECT num, since, until, class FROM docs WHERE id = ? ORDER BY num"
LAST_VERSIONS = """
SELECT num, (SELECT max(other.num) FROM docs other WHERE other.id = docs.id) FROM docs
WHERE until > ?1 AND until <= ?2 AND since <= ?1
"""
WORDS_IN = "SELECT num, words FROM texts WHERE num IN (SELECT value FROM json_each(?))"
WORDS_OF_STEM = "SELECT num, word FROM words WHERE stem = ?"
WORDS_FROM = "SELECT num, word FROM words WHERE word >= ? AND word < ?"
# Words that share the first half with a given one, or the second half, and are about as long; or are the one
# with the two letters in the middle swapped.
WORDS_ALIKE = """
SELECT num, word FROM words
WHERE word >= ?1 AND word < ?1 || ?5 AND length(word) BETWEEN ?4 - 1 AND ?4 + 1
UNION SELECT num, word FROM words
WHERE back >= ?2 AND back < ?2 || ?5 AND length(word) BETWEEN ?4 - 1 AND ?4 + 1
UNION SELECT num, word FROM words WHERE word = ?3
"""
LAST_LETTER = "\U0010ffff"


def read_entries(found: bytes, kind: np.dtype[Any]) -> NDArray[Any]:
    """The entries of a list. A page that was lost reads as zeros, which have the right checksum: but no entry is zero,
    because words are numbered from one, and none occurs less than once."""
    entries = cut_entries(found, kind)
    if not (entries["word"] if kind == WAITING else entries).all():
        raise apsw.CorruptError("a list of entries has a hole")
    return entries


def cut_entries(found: bytes, kind: np.dtype[Any]) -> NDArray[Any]:
    if len(found) % kind.itemsize:
        raise apsw.CorruptError("a list of entries is torn")
    return np.frombuffer(found, kind)
