"""Recall: finding what was remembered and said, under the rights of the reader, and putting it into prompts."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .recent import salience

__all__ = ["salience"]


def __getattr__(name: str) -> Any:
    if name == "salience":
        from .recent import salience

        return salience
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
