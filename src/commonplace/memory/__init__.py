"""Durable memory. So far its two small judges: what is nearly the same, and what does not belong into notes."""

from .notes import NoteViolation, check_notes
from .similar import Likeness, jaccard, near_duplicate, tokens

__all__ = ["Likeness", "NoteViolation", "check_notes", "jaccard", "near_duplicate", "tokens"]
