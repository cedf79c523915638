"""Learning: what one run knows, the next one uses.

context_digest, delegations, board  what a manager knows after an iteration; what the ledger keeps of a delegation; the
                                    verbs of boards and digests, bound to the run of the caller
plans, curator                      what a manager decides; what a delegation leaves for the next run
reflection                          what an agent makes of what it has been through
compaction                          a conversation becomes a summary that fits
lifecycle, resume, verified         the five moments of a task; going on with it after a reset; its verified items
promotion, evidence, skills         how what a task has found out becomes a fact of the repository, or a skill
hygiene, duplicates, notes_review   the audit of what pollutes memory
note_lines                          how lines of NOTES.md are read: objectives, blockers, the tasks that they name
checklists, chores                  before a fact is written; pruning NOTES.md; what a librarian does with suggestions
verbs                               `book.learn`: each verb is a function of one of these modules
"""

from .context_digest import ContextDigest

__all__ = ["ContextDigest"]
