"""Recall: finding what was remembered and said, by whoever may see it, and what a prompt is given of it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .episodes import salience

__all__ = ["salience"]


def __getattr__(name: str) -> Any:
    if name == "salience":
        from .episodes import salience

        return salience
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
