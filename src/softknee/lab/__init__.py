"""Studies: data, models and recipes put together, and the pages that show what came of them.

`sk.lab.search` finds activations for a recipe's model and data.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .searching import search

__all__ = ["search"]


def __getattr__(name: str) -> Any:
    if name != "search":
        raise AttributeError(f"module 'softknee.lab' has no attribute {name!r}")
    from .searching import search  # it needs what the extra 'lab' brings

    return search
