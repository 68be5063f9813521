"""Training: `fit` for one model, `Replicas` for many at once; schedules are pure functions of progress."""

from . import augment
from .loop import fit
from .one_by_one import OneByOne
from .random_keys import order
from .replicas import Replicas
from .reproducing import Ensemble, dissimilarity, widths_by_depth
from .schedules import constant, cosine, linear, step

__all__ = [
    "Ensemble",
    "OneByOne",
    "Replicas",
    "augment",
    "constant",
    "cosine",
    "dissimilarity",
    "fit",
    "linear",
    "order",
    "step",
    "widths_by_depth",
]
