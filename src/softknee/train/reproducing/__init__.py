"""Reproducibility as a training aim: an ensemble learns the widths of activations by how alike its models predict."""

from .ensemble import Ensemble
from .similarity import dissimilarity
from .widths import widths_by_depth

__all__ = ["Ensemble", "dissimilarity", "widths_by_depth"]
