"""Learning: what one run knows, the next one uses.

verbs.py                   `book.learn`: each verb is a function of one of the modules below
compaction.py              a conversation becomes a summary that fits: what must not be lost, and pointers to the rest
compaction_rules.py        what must not be lost of a text: blockers, decisions, constraints
compaction_capability.py   the commands of compaction, and the events that they record
"""
