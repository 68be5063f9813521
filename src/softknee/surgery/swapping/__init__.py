"""Puts another activation into a model, with a report, a way back, and a file that repeats it."""

from .plan import PlanError
from .report import Report
from .swap import apply_, swap_

__all__ = ["PlanError", "Report", "apply_", "swap_"]
