"""Which commonplace this is, and under which name it is installed."""

__version__ = "0.1.0"

DISTRIBUTION = "commonplace-memory"
"""What pip installs. The distribution `commonplace` is another project's."""


def install_hint(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"
