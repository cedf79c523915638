"""Learning: what one run knows, the next one uses.

verbs.py          `book.learn`: each verb is a function of one of the modules below
"""
