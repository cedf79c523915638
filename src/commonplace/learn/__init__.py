"""Learning: what one run knows, the next one uses.

context_digest.py what a manager knows after an iteration, addressed by its content
delegations.py    what the ledger keeps of a delegation: boards, plans, digests, tools
board.py          `book.learn.board` and `book.learn.digests`, bound to the run of the caller
verbs.py          `book.learn`: each verb is a function of one of the modules below
verbs.py                   `book.learn`: each verb is a function of one of the modules below
compaction.py              a conversation becomes a summary that fits: what must not be lost, and pointers to the rest
compaction_rules.py        what must not be lost of a text: blockers, decisions, constraints
compaction_capability.py   the commands of compaction, and the events that they record
"""

from .context_digest import ContextDigest

__all__ = ["ContextDigest"]
