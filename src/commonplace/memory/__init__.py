"""Durable memory: what agents remember, and the rules by which it is kept.

items, fields, requests       an item, the checks of its fields, the commands and their answers
remember, judging             keeping something: the verb, and what is decided under the book's lock
claims, likeness, exclusions, what makes texts the same, alike, or not worth keeping
repository_facts
standing, changes, forgetting which facts stand; what happens to items afterwards
filters, listing, history     choosing items, listing them page by page, and all that happened to one
reading, viewer, visibility   who may see an item, a document, an event of memory
cores, settings, portions     collections with rules of their own; how the book's memory is kept
tidy, suggestions             keeping it small, what could be improved
curate, curation              taking in what recurs in the logs; what is decided about it under the lock
markdown, pages, places       items as markdown, the pages of the mirror, their names
showing                       what was shown to whom
imports                       the memories of other tools
verbs, capability             `book.memory`; the events, commands and views
"""

from ..documents.notes import NoteViolation, check_notes
from .likeness import Likeness, near_duplicate

__all__ = ["Likeness", "NoteViolation", "check_notes", "near_duplicate"]
