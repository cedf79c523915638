"""The markdown people edit: pages of blocks as files, and the hand edits in them taken in. `pages` is pure text,
`folder` is the edge. Neither knows what a block stands for."""

from .folder import FileDifference, Mirror, Report, shows
from .pages import Added, Block, Changed, Clash, Edit, Page, Removed, Taken, edits, merge, parse, render

__all__ = [
    "Added",
    "Block",
    "Changed",
    "Clash",
    "Edit",
    "FileDifference",
    "Mirror",
    "Page",
    "Removed",
    "Report",
    "Taken",
    "edits",
    "merge",
    "parse",
    "render",
    "shows",
]
