"""The smallest SQUAF that stands for a given function: `fit`, and the paper's fitted ReLU and GELU: `start`."""

from .fit import Fitted, fit, start

__all__ = ["Fitted", "fit", "start"]
