"""What is done to models: so far, which optimiser treats which of their parameters, and how."""

from .groups import param_groups
from .optimizers import PairedOptimizer, optimizers

__all__ = ["PairedOptimizer", "optimizers", "param_groups"]
