"""The rate-accuracy curve of SQUAF-P: networks trained with a price on the bits of their activations."""

from .figure import draw_rate, rate_figure
from .measuring import Coded, Measured, code, measure, watched
from .penalty import QuickRate
from .study import BASELINES, KIND, WEIGHTS, Settings, choose_baselines, run, steps
from .table import rate_markdown

__all__ = [
    "BASELINES",
    "KIND",
    "WEIGHTS",
    "Coded",
    "Measured",
    "QuickRate",
    "Settings",
    "choose_baselines",
    "code",
    "draw_rate",
    "measure",
    "rate_figure",
    "rate_markdown",
    "run",
    "steps",
    "watched",
]
