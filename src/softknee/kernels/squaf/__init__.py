"""SQUAF, the soft-quantisation activation: its function, its window, and which implementation runs."""

from ...spec import set_table_engine
from .arguments import run
from .dispatch import choose_path
from .function import auto_window, squaf
from .modes import new_seed, sampled_symbols, squaf_sampled, squaf_step, step_symbols

set_table_engine(run)

__all__ = [
    "auto_window",
    "choose_path",
    "new_seed",
    "sampled_symbols",
    "squaf",
    "squaf_sampled",
    "squaf_step",
    "step_symbols",
]
