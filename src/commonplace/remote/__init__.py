"""A book behind `commonplace serve`, with the same verbs: `commonplace.open("http://host:port", token=…)`.

Verbs travel, not rows. A verb that is called on this book, on an actor or on a handle of it is sent to the server with
its arguments, and answers the same types and raises the same errors as it does there. What runs on the side of the
caller stays there: `with` blocks, functions that are given to a verb, and files.
"""

from .book import RemoteBook, connect

__all__ = ["RemoteBook", "connect"]
