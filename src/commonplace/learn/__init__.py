"""Learning: what one run knows, the next one uses.

context_digest.py what a manager knows after an iteration, addressed by its content
delegations.py    what the ledger keeps of a delegation: boards, plans, digests, tools
board.py          `book.learn.board` and `book.learn.digests`, bound to the run of the caller
verbs.py          `book.learn`: each verb is a function of one of the modules below
"""

from .context_digest import ContextDigest

__all__ = ["ContextDigest"]
