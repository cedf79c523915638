"""`python -m commonplace` is the command line."""

from .surfaces.cli import main

if __name__ == "__main__":
    main()
