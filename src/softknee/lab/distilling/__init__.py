"""Distillation: students with other activations than their teacher's, as in tables 7, 14 and 15 of the SQUAF paper."""

from .paper import PAPER, Reported
from .study import ENTRIES, KIND, Settings, choose_entries, distilling, run, steps
from .table import distil_markdown, draw_distil, reported_of

__all__ = [
    "ENTRIES",
    "KIND",
    "PAPER",
    "Reported",
    "Settings",
    "choose_entries",
    "distil_markdown",
    "distilling",
    "draw_distil",
    "reported_of",
    "run",
    "steps",
]
