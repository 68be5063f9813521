"""Pictures of what networks learned in finished studies: fitted pictures and functions, regions, learned SQUAFs."""

from .runs import Fit, Run, read_run
from .tables import tables_of
from .theorem import theorem_figure
from .writing import Written, default_place, draw_runs, write_figures, write_fits, write_theorem

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
