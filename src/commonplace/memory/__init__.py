"""Durable memory. So far its two small judges: what is nearly the same, and what does not belong into notes."""

from .notes import NoteViolation, check_notes
from .similar import Likeness, near_duplicate

__all__ = ["Likeness", "NoteViolation", "check_notes", "near_duplicate"]
