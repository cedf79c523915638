"""Learning: what one run knows, the next one uses.

verbs.py          `book.learn`: each verb is a function of one of the modules below
promotion.py      the checklist by which what a task has found out becomes a fact of the repository
evidence.py       what speaks for a lesson: independent origins, citations that hold, a person
skills.py         patterns of successful completion, and the skills that are proposed from them
"""
