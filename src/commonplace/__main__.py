"""`python -m commonplace` is the command line."""

from .surfaces.cli import main

main()
