"""Pictures of what networks learned in finished studies: fitted pictures and functions, regions, learned SQUAFs."""

from .drawing import (
    Written,
    default_place,
    draw_runs,
    tables_of,
    theorem_figure,
    write_figures,
    write_fits,
    write_theorem,
)
from .runs import Fit, Run, read_run

__all__ = [
    "Fit",
    "Run",
    "Written",
    "default_place",
    "draw_runs",
    "read_run",
    "tables_of",
    "theorem_figure",
    "write_figures",
    "write_fits",
    "write_theorem",
]
