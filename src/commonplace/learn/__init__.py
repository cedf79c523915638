"""Learning: what one run knows, the next one uses.

verbs.py          `book.learn`: each verb is a function of one of the modules below
verified.py       verified items of a task, with regressions across iterations
lifecycle.py      context start, phase start, phase end, task complete, conversation end
resume.py         going on with a task after a context reset
promotion.py      which facts are promoted to the repository
"""
