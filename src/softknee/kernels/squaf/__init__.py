"""SQUAF, the soft-quantisation activation: its function, its window, and which implementation runs."""

from ...spec import set_table_engine
from .arguments import run
from .dispatch import choose_path
from .function import squaf
from .windows import auto_window

set_table_engine(run)

__all__ = ["auto_window", "choose_path", "squaf"]
