"""Learning: what one run knows, the next one uses.

reflection.py     what an agent makes of what it has been through; reflection_capability.py records it
verbs.py          `book.learn`: each verb is a function of one of the modules below
"""
