"""SQUAF, the soft-quantisation activation: its function, its window, and which implementation runs."""

from .dispatch import choose_path
from .function import squaf
from .windows import auto_window

__all__ = ["auto_window", "choose_path", "squaf"]
