"""Documents of the working tier: the notes of the book, of sessions and of tasks, and daily logs.

document.py   what a document is: its path, its shape, its entries, how it reads as markdown
writing.py    the commands that write, clear and archive documents, and the events that they record
notes.py      what NOTES.md may hold
verbs.py      `book.documents`
"""
