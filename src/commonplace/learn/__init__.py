"""Learning: what one run knows, the next one uses.

verbs.py          `book.learn`: each verb is a function of one of the modules below
hygiene.py        the periodic audit: what pollutes memory; duplicates.py and notes_review.py are its pure parts
checklists.py     before a fact is written; pruning NOTES.md
chores.py         what a librarian does with suggestions
"""
